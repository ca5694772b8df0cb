"""The population: who the clients are, with which keys and from which addresses.

Expands a scenario's counts into numbered keys, addresses and clients, and deals keys and
addresses to clients as the scenario's `Dealing` says. All of it follows from the scenario and its
seed; nothing here knows time.

Keys are numbered over the whole scenario, application after application, each one's ordinary keys
before its legacy ones; `key-0001` is the first. Clients are numbered over all groups in file
order; requests at one instant are decided in order of this number.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import count
from typing import Final, TypeAlias

from engine.limits import LimitTable
from engine.model import ApplicationKind, TenantKind
from engine.profile import Profile
from simulator.scenario.clients import ClientGroup, Dealing
from simulator.scenario.draws import SessionArrivals
from simulator.scenario.model import (
    Application,
    Scenario,
    hosts_of,
    limit_tables_of,
    profile_of,
)
from simulator.traffic.draws import Stream, categorical, cumulative_weights, zipf_weights
from simulator.traffic.sessions import SessionLog, read_sessions

_PRIVATE_NETWORK: Final = int(ipaddress.IPv4Address("10.0.0.0"))
_PRIVATE_ADDRESSES: Final = 1 << 24


@dataclass(frozen=True, slots=True)
class KeyHolder:
    """One API key of the scenario. label: what reports call it; it is not the key's text.

    Keys that differ in their labels alone are equal.
    """

    label: str = field(compare=False)
    tenant: str
    tenant_kind: TenantKind
    table: str
    application: str
    application_kind: ApplicationKind
    legacy: bool


PoolAssignment: TypeAlias = Callable[[], int]
"""Returns the place, within its pool, of the member that the next request gets."""


@dataclass(frozen=True, slots=True)
class Client:
    """One client. keys, addresses: its group's pools; one is dealt to each request."""

    number: int
    name: str
    place: int
    group: ClientGroup
    keys: Sequence[KeyHolder]
    addresses: Sequence[str]
    deal_key: PoolAssignment
    deal_address: PoolAssignment
    stream: Callable[[str], Stream]


@dataclass(frozen=True, slots=True)
class Population:
    """All keys and clients. groups: client group → the numbers of its clients."""

    keys: tuple[KeyHolder, ...]
    clients: tuple[Client, ...]
    groups: dict[str, range]


@dataclass(frozen=True, slots=True)
class Setup:
    """What a run plays: a scenario, its population under a seed, the profile, the limit tables."""

    scenario: Scenario
    seed: int
    population: Population
    profile: Profile
    tables: dict[str, LimitTable]

    @classmethod
    def of(cls, scenario: Scenario, seed: int, profile: Profile | None = None) -> Setup:
        """Return what a run of a scenario plays. profile: the scenario's, where it is known."""
        population, tables = populate(scenario, seed), limit_tables_of(scenario)
        return cls(scenario, seed, population, profile or profile_of(scenario), tables)


def populate(scenario: Scenario, seed: int) -> Population:
    """Return the scenario's population under a seed."""
    labels = count(1)
    keys = {app.name: _keys_of(scenario, app, labels) for app in scenario.applications}
    pools, spare = _address_pools(scenario)
    clients: list[Client] = []
    groups: dict[str, range] = {}
    for group in scenario.clients:
        first = len(clients)
        held = [holder for name in group.applications for holder in keys[name]]
        for place in range(group.count):
            if group.addresses is None:
                addresses: Sequence[str] = (_private(spare),)
                spare += 1
            else:
                addresses = pools[group.addresses]
            clients.append(_client(scenario, group, len(clients), place, held, addresses, seed))
        groups[group.name] = range(first, len(clients))
    everybody = tuple(holder for held in keys.values() for holder in held)
    return Population(everybody, tuple(clients), groups)


def _client(  # reason: the parts of one client
    scenario: Scenario,
    group: ClientGroup,
    number: int,
    place: int,
    keys: Sequence[KeyHolder],
    addresses: Sequence[str],
    seed: int,
) -> Client:
    name = f"{group.name}/{place}"
    streams: dict[str, Stream] = {}

    def stream(purpose: str) -> Stream:
        source = streams.get(purpose)
        if source is None:
            source = streams[purpose] = Stream(seed, f"{name}/{purpose}")
        return source

    if isinstance(group.arrivals, SessionArrivals):
        key, address = session_log(group.arrivals).identity(place)
        return Client(
            *(number, name, place, group, keys, addresses),
            *(lambda: key % max(1, len(keys)), lambda: address % len(addresses), stream),
        )
    pool = scenario.pool_of(group)
    _, dealing = scenario.dealings_of(group)
    per_address = 1 if pool is None else pool.clients_each or 1
    deal_address = _dealer(dealing, place // per_address, len(addresses), lambda: stream("address"))
    deal_key = _dealer(group.keys, place, len(keys), lambda: stream("key"))
    return Client(number, name, place, group, keys, addresses, deal_key, deal_address, stream)


def session_log(arrivals: SessionArrivals) -> SessionLog:
    """Return the sessions of a group. Raises `InputError` for a bad file."""
    return read_sessions(arrivals.file.file, arrivals.group, arrivals.span_ns)


def _dealer(
    dealing: Dealing, place: int, count: int, stream: Callable[[], Stream]
) -> PoolAssignment:
    if count <= 1:
        return lambda: 0
    if dealing.zipf is None:
        if dealing.per == "client":
            fixed = place % count
            return lambda: fixed
        following = iter(range(place, 1 << 62))
        return lambda: next(following) % count
    table = _zipf_table(count, dealing.zipf)
    if dealing.per == "client":
        drawn = categorical(stream().uniform(), table)
        return lambda: drawn
    uniform = stream().uniform
    return lambda: categorical(uniform(), table)


@cache
def _zipf_table(count: int, exponent: float) -> list[float]:
    return cumulative_weights(zipf_weights(count, exponent))


def _keys_of(scenario: Scenario, app: Application, labels: Iterator[int]) -> list[KeyHolder]:
    tenant = next(tenant for tenant in scenario.tenants if tenant.name == app.tenant)
    table = tenant.quotas.rate_limit or "Default"
    return [
        KeyHolder(
            f"key-{next(labels):04d}", tenant.name, tenant.kind, table, app.name, app.kind, legacy
        )
        for legacy, number in ((False, app.ordinary_keys), (True, app.legacy_keys))
        for _ in range(number)
    ]


def _address_pools(scenario: Scenario) -> tuple[dict[str, Sequence[str]], int]:
    """Return the pools' addresses, and the next private address that none of them took."""
    spare = 1
    pools: dict[str, Sequence[str]] = {}
    for pool in scenario.addresses:
        if pool.network is None:
            pools[pool.name] = [_private(spare + place) for place in range(pool.count)]
            spare += pool.count
        else:
            first, _ = hosts_of(pool.network)
            pools[pool.name] = [str(first + place) for place in range(pool.count)]
    return pools, spare


def _private(place: int) -> str:
    assert 0 < place < _PRIVATE_ADDRESSES, "10.0.0.0/8 has room for the scenario's addresses"
    number = _PRIVATE_NETWORK + place
    return f"{number >> 24}.{number >> 16 & 255}.{number >> 8 & 255}.{number & 255}"
