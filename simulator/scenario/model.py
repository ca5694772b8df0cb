"""The scenario: the whole input of a simulation, as frozen data.

These dataclasses are the only declaration: a file's keys, their reading and writing and the JSON
Schema follow from them (`engine.files`). Durations and points in time are integers in nanoseconds,
counted from the run's start; in files both are texts with units. The docstrings here, in
`simulator.scenario.clients` and in `simulator.scenario.draws` define what `simulator.play` does.

`limits_of`, `limit_tables_of` and `profile_of` combine files and changes. `draws_at_random` says
whether runs with two seeds may differ; a scenario that draws nothing has exact metrics.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import ipaddress
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from engine.errors import InputError
from engine.files import (
    Alias,
    Document,
    Duration,
    Include,
    Integer,
    Kind,
    Number,
    Rate,
    Spot,
    TableSchema,
    TextType,
    Unwritten,
    from_document,
    read_toml,
    to_plain,
)
from engine.limits import DEFAULT_TABLE, LimitTable
from engine.model import ApplicationKind, TenantKind
from engine.profile import Algorithm, Balance, Profile, Sharing
from engine.world import EPOCH_2026_NS
from simulator.scenario.clients import NAME, Ask, ClientGroup, Dealing, NoRetry
from simulator.scenario.conditions import Condition, ConditionText
from simulator.scenario.draws import Draw, Drawn

Part = TypeVar("Part")

_EVEN: Final = Dealing()
_EPOCH: Final = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_MICROSECOND: Final = dt.timedelta(microseconds=1)
_RULE: Final = "must be a time with its offset, such as 2026-01-01T00:00:00Z"


@dataclass(frozen=True)
class InstantType(Kind[int]):
    """An offset date-time of TOML, or a text of the same form; whole microseconds."""

    suffix: ClassVar[str] = "_ns"

    def read(self, spot: Spot) -> int:
        value = spot.value
        if isinstance(value, str):
            try:
                value = dt.datetime.fromisoformat(value)
            except ValueError:
                spot.fail(_RULE)
        if not isinstance(value, dt.datetime) or value.tzinfo is None:
            spot.fail(_RULE)
        if value < _EPOCH:
            spot.fail("must not be before 1970")
        return (value - _EPOCH) // _MICROSECOND * 1_000

    def write(self, value: int) -> str:
        moment = _EPOCH + value // 1_000 * _MICROSECOND
        return moment.isoformat().replace("+00:00", "Z")

    def schema(self, _definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return {"type": "string", "format": "date-time"}


@dataclass(frozen=True)
class Choices(Kind[Mapping[str, Mapping[str, object]]]):
    """Some of the profile's sections and fields; checked as a profile, kept as written."""

    def read(self, spot: Spot) -> dict[str, dict[str, object]]:
        TableSchema(Profile).read(spot)
        return {section: dict(fields) for section, fields in spot.value.items()}

    def write(self, value: Mapping[str, Mapping[str, object]]) -> dict[str, dict[str, object]]:
        return {section: dict(fields) for section, fields in value.items()}

    def schema(self, definitions: dict[str, dict[str, Any]]) -> dict[str, Any]:
        return TableSchema(Profile).schema(definitions)


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """A tenant's quotas by name; quotas left out keep their defaults (QUO-TENANT)."""

    rate_limit: Annotated[
        str | None,
        Alias("Rate Limit"),
        TextType(),
        '"Default", or a name of `limit_tables` (QUO-RATE)',
    ] = None
    log_retention_ns: Annotated[int | None, Alias("Log Retention"), Duration(1), "QUO-LOG"] = None
    tokenize_limit: Annotated[
        int | None, Alias("Tokenize Limit"), Integer(minimum=0), "QUO-TOKENIZE"
    ] = None
    detokenize_limit: Annotated[
        int | None, Alias("Detokenize Limit"), Integer(minimum=0), "QUO-DETOKENIZE"
    ] = None
    cvc_retention_ns: Annotated[int | None, Alias("CVC Retention"), Duration(1), "QUO-CVC"] = None
    token_intent_retention_ns: Annotated[
        int | None, Alias("Token Intent Retention"), Duration(1), "QUO-INTENT"
    ] = None

    def by_name(self) -> dict[str, int | str]:
        """Return quota name → value of those that are set; durations in nanoseconds."""
        values = {item.key: getattr(self, item.name) for item in TableSchema(Quotas).fields}
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A tenant; LIM-TEST-TENANT applies to tenants of kind "test"."""

    name: NAME
    kind: Annotated[TenantKind, "test tenants have a limit of their own"] = "production"
    quotas: Annotated[Quotas, "quotas by name; the rest keep their defaults"] = Quotas()
    settings: Annotated[Mapping[str, bool], "settings by name, such as deduplicate_tokens"] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Permissions on a container path and all below it (D-GRANT)."""

    container: Annotated[str, TextType(), "path, such as /pci/"] = "/"
    permissions: Annotated[tuple[str, ...], "permissions, such as token:create"]


@dataclass(frozen=True, kw_only=True)
class Application:
    """An application with its keys. Its kind is a rate-limit class (AUTH-KINDS).

    grants: by default all permissions that its kind may hold (D-PERMISSIONS), on `/`.
    """

    name: NAME
    tenant: Annotated[str, TextType(), "name of its [[tenants]]"]
    kind: Annotated[ApplicationKind, "its rate-limit class"] = "private"
    keys: Annotated[
        int | None,
        Integer(minimum=0, maximum=1_000_000),
        "how many keys; by default 1, or 0 if it has legacy keys",
    ] = None
    legacy_keys: Annotated[
        int, Integer(minimum=0, maximum=1_000_000), "how many legacy keys (AUTH-LEGACY)"
    ] = 0
    grants: Annotated[
        tuple[Grant, ...] | None, "permissions of its keys; by default all of its kind"
    ] = None

    @property
    def ordinary_keys(self) -> int:
        """How many keys it has that are not legacy ones."""
        if self.keys is not None:
            return self.keys
        return 0 if self.legacy_keys else 1


@dataclass(frozen=True, kw_only=True)
class AddressPool:
    """A pool of client addresses; clients share an address (NAT) or have one each.

    The pool has `count` addresses, in order; `deal` assigns them to clients. `clients_each` = n is
    NAT of a fixed size: clients i · n … i · n + n − 1 of a group get address i mod count; it
    excludes `deal`.
    network: a CIDR block; its addresses are used from the first host on. Pools without a network
    share 10.0.0.0/8: the addresses from 10.0.0.1 on go to one pool after another, in file order,
    then one each to the clients of groups without a pool.
    """

    name: NAME
    count: Annotated[int, Integer(minimum=1, maximum=10_000_000), "how many addresses"] = 1
    deal: Annotated[Dealing, "how addresses are assigned to clients"] = _EVEN
    clients_each: Annotated[
        int | None, Integer(minimum=1), "how many clients share one address, block by block"
    ] = None
    network: Annotated[str | None, TextType(), 'a block such as "203.0.113.0/24"'] = None


def hosts_of(network: str) -> tuple[ipaddress.IPv4Address | ipaddress.IPv6Address, int]:
    """Return a block's first host, and how many it has; of two addresses both are (RFC 3021).

    Raises `ValueError` where it is no block.
    """
    block = ipaddress.ip_network(network)
    ends = int(block.num_addresses > 2)
    return block.network_address + ends, block.num_addresses - 2 * ends


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A pre-configured proxy and the destination behind it (section 8.5).

    destination: the time that one call takes, to its last byte; if it exceeds the profile's
    destination timeout, the answer is 408 (PRX-TIMEOUT).
    transforms: service times of request and response transform; each makes RCT-* apply.
    """

    name: NAME
    tenant: Annotated[str, TextType(), "name of its [[tenants]]"]
    host: Annotated[str | None, TextType(), "custom hostname"] = None
    require_auth: Annotated[bool, "callers need an API key; false is a whitelabel proxy"] = False
    destination: Annotated[Draw, "latency of the destination"]
    unreachable_share: Annotated[
        float, Number(minimum=0, maximum=1), "probability that the destination cannot be reached"
    ] = 0.0
    request_transform: Annotated[Draw | None, "service time of a request transform"] = None
    response_transform: Annotated[Draw | None, "service time of a response transform"] = None


@dataclass(frozen=True, kw_only=True)
class Reactor:
    """A reactor (section 8.9).

    How many instances stay hot and how long a cold start takes are choices of the profile (D-HOT):
    `[choices.outside]` has `hot_concurrency`, `cold_start`, `keep_hot`, `instances_cap`. An
    invocation that waited for an instance continues after everything else that the service does at
    the same time; it is in time if it has an instance by then.
    """

    name: NAME
    tenant: Annotated[str, TextType(), "name of its [[tenants]]"]
    service: Annotated[Draw, "time of one invocation, without the cold start"]


@dataclass(frozen=True, kw_only=True)
class RuleChange:
    """Changes to one rule of the scenario's limit table; fields left out stay as they are."""

    rate: Annotated[Rate | None, "the limit"] = None
    action: Annotated[
        Literal["throttle", "block"] | None, "what happens when the rate is exceeded"
    ] = None
    block_ns: Annotated[int | None, Duration(1), "how long a block lasts"] = None
    algorithm: Annotated[Algorithm | None, "how the rule counts"] = None
    burst: Annotated[int | None, Integer(minimum=1), "burst of gcra"] = None
    shadow: Annotated[bool | None, "count and report, never refuse"] = None
    off: Annotated[bool, "leave the rule out"] = False


@dataclass(frozen=True, kw_only=True)
class Nodes:
    """Nodes behind a balancer (D-COUNTERS-LIFE); what is left out is the profile's.

    How each sharing counts is said in `engine.limits.nodes`.
    """

    count: Annotated[int | None, Integer(minimum=1, maximum=64), "how many nodes"] = None
    balance: Annotated[Balance | None, "which node gets a request"] = None
    sharing: Annotated[
        Sharing | None, "what a node knows of the requests that the others count"
    ] = None
    every_ns: Annotated[int | None, Duration(1), "synced: publication interval"] = None
    lag_ns: Annotated[int | None, "synced: delay until other nodes see it"] = None
    race_ns: Annotated[int | None, "shared-slow: delay between reading and writing a counter"] = (
        None
    )


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A condition that a run must meet; if it does not, the run exits with 1."""

    that: Annotated[
        Condition, ConditionText(), "such as \"refused_share{client='browsers'} <= 0.01\""
    ]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A whole scenario. Attempts happen in [0, duration); results leave out [0, warm_up).

    limits, profile: files; by default the engine's own. `rules` and `choices` then change single
    rules and choices, so that a sweep can vary them: `rules.LIM-PUBLIC.rate`,
    `choices.limits.algorithm`.
    question, answer: from the comment at the start of the file: the question, and after `Answer:`
    the result of a run.
    """

    name: NAME = "scenario"
    question: Annotated[str, Unwritten] = ""
    answer: Annotated[str, Unwritten] = ""
    duration_ns: Annotated[int, Duration(1), "how long traffic is simulated"]
    warm_up_ns: Annotated[int, "time at the start that results leave out"] = 0
    seed: Annotated[int, Integer(minimum=0, maximum=2**63 - 1), "seed of every random stream"] = 7
    start_time_ns: Annotated[
        int, InstantType(), "wall-clock time at the start, such as 2026-01-01T00:00:00Z"
    ] = EPOCH_2026_NS
    limits: Annotated[Include | None, "file of the limit table; by default the engine's own"] = None
    limit_tables: Annotated[
        Mapping[str, Include], "further tables, for tenants' Rate Limit quota (QUO-RATE)"
    ] = field(default_factory=dict)
    profile: Annotated[Include | None, "file of the profile; by default the engine's own"] = None
    rules: Annotated[
        Mapping[str, RuleChange], "changes to rules of the limit table, by rule id"
    ] = field(default_factory=dict)
    choices: Annotated[
        Mapping[str, Mapping[str, object]], Choices(), "changes to the profile, by section"
    ] = field(default_factory=dict)
    nodes: Annotated[
        Nodes | None, "nodes behind a balancer; left out, the profile's, else one node"
    ] = None
    tenants: Annotated[tuple[Tenant, ...], "tenants of the service"]
    applications: Annotated[tuple[Application, ...], "applications and their keys"] = ()
    addresses: Annotated[tuple[AddressPool, ...], "pools of client addresses"] = ()
    proxies: Annotated[tuple[Proxy, ...], "pre-configured proxies"] = ()
    reactors: Annotated[tuple[Reactor, ...], "reactors"] = ()
    clients: Annotated[tuple[ClientGroup, ...], "groups of clients that send requests"]
    thresholds: Annotated[
        tuple[Threshold, ...], "conditions to meet; if one is not met, the run exits with 1"
    ] = ()
    folder: Annotated[Path | None, Unwritten] = field(default=None, compare=False)

    def proxy_of(self, ask: Ask) -> Proxy | None:
        """Return the proxy that an entry of a mix names."""
        return next((proxy for proxy in self.proxies if proxy.name == ask.proxy), None)

    def reactor_of(self, ask: Ask) -> Reactor | None:
        """Return the reactor that an entry of a mix names."""
        return next((reactor for reactor in self.reactors if reactor.name == ask.reactor), None)

    def pool_of(self, group: ClientGroup) -> AddressPool | None:
        """Return the pool of addresses that a group names."""
        return next((pool for pool in self.addresses if pool.name == group.addresses), None)

    def stop_of(self, group: ClientGroup) -> int:
        """Return when a group's clients stop: by themselves, or at the run's end."""
        return min(group.stop_ns or self.duration_ns, self.duration_ns)

    def dealings_of(self, group: ClientGroup) -> tuple[Dealing, Dealing]:
        """Return how a group's keys are dealt, and its addresses."""
        pool = self.pool_of(group)
        return group.keys, Dealing() if pool is None else pool.deal


def limits_of(scenario: Scenario) -> LimitTable:
    """Return the default limit table: the scenario's file, or the engine's, with its changes.

    Raises `InputError` for a file that is not a table, or a change that makes it invalid.
    """
    if scenario.limits is None:
        table = LimitTable.default()
    else:
        table = LimitTable.from_toml(scenario.limits.file)
    for rule_id, change in scenario.rules.items():
        table = _changed(table, rule_id, change)
    return table


def limit_tables_of(scenario: Scenario) -> dict[str, LimitTable]:
    """Return every table by name: `Default`, and those of `limit_tables` (QUO-RATE)."""
    others = {
        name: LimitTable.from_toml(include.file) for name, include in scenario.limit_tables.items()
    }
    return {DEFAULT_TABLE: limits_of(scenario), **others}


def profile_of(scenario: Scenario) -> Profile:
    """Return the profile: the scenario's file, or the engine's, with its choices and nodes."""
    profile = Profile()
    if scenario.profile is not None:
        profile = from_document(Profile, read_toml(scenario.profile.file))
    nodes = {} if scenario.nodes is None else to_plain(scenario.nodes)
    if not scenario.choices and not nodes:
        return profile
    plain = to_plain(profile)
    for section, fields in (*scenario.choices.items(), ("nodes", nodes)):
        plain[section] |= fields
    return from_document(Profile, Document(plain))


def _changed(table: LimitTable, rule_id: str, change: RuleChange) -> LimitTable:
    if change.off:
        gone = table[rule_id]
        return LimitTable(tuple(rule for rule in table if rule is not gone))
    values = {item.name: getattr(change, item.name) for item in dataclasses.fields(change)}
    values["burst_requests"] = values.pop("burst")
    del values["off"]
    changes = {name: value for name, value in values.items() if value is not None}
    if change.action == "throttle":
        changes["block_ns"] = None
    try:
        return table.replace_rule(rule_id, **changes)
    except InputError as error:
        raise InputError(f"rules.{error}") from None


def changed(part: Any, kind: type[Part], change: Callable[[Part], Part]) -> Any:  # noqa: ANN401 # reason: any part of a scenario
    """Return a part of a scenario with everything of a kind in it changed."""
    if isinstance(part, kind):
        return change(part)
    if dataclasses.is_dataclass(part) and not isinstance(part, type):
        names = [item.name for item in dataclasses.fields(part)]
        return dataclasses.replace(
            part, **{name: changed(getattr(part, name), kind, change) for name in names}
        )
    if isinstance(part, dict):
        return {key: changed(item, kind, change) for key, item in part.items()}
    if type(part) is tuple:
        return tuple(changed(item, kind, change) for item in part)
    return part


def draws_at_random(scenario: Scenario) -> bool:
    """Return whether runs under two seeds may differ.

    Draws that have no effect count too, so False means that all runs are the same.
    """
    nodes = profile_of(scenario).nodes
    if nodes.balance == "random" and not nodes.is_exact:
        return True
    return _is_random(
        (*scenario.clients, *scenario.addresses, *scenario.proxies, *scenario.reactors)
    )


def _is_random(part: Any) -> bool:  # noqa: ANN401 # reason: any part of a scenario
    if isinstance(part, tuple):
        return any(map(_is_random, part))
    if not dataclasses.is_dataclass(part):
        return False
    return (
        isinstance(part, Drawn)
        or (isinstance(part, Dealing) and part.zipf is not None)
        or (isinstance(part, ClientGroup) and len(part.mix) > 1)
        or (isinstance(part, Proxy) and part.unreachable_share > 0)
        or (isinstance(part, Ask) and _body_is_random(part))
        or any(_is_random(getattr(part, item.name)) for item in dataclasses.fields(part))
    )


def _body_is_random(ask: Ask) -> bool:
    return (
        ask.tokens_max is not None
        or ask.pick == "uniform"
        or (ask.types.token > 0 and ask.types.card > 0)
        or ask.duplicate_share > 0
        or ask.invalid_share > 0
    )


def needs_bodies(scenario: Scenario) -> str | None:
    """Return what in the scenario needs bodies, as part of a sentence; None when nothing does.

    Without bodies nothing is created, so nothing can be invalid, missing or beyond a token quota:
    only the limits decide. Where something else affects a decision, a fidelity without bodies would
    decide differently, so it must not run.
    """
    profile = profile_of(scenario)
    if profile.limits.counted_statuses == "success":
        return 'the profile\'s counted_statuses = "success" counts by what a body answers'
    played = {429, 408, 502, profile.outside.reactor_timeout_status}
    plain = {
        app.name for app in scenario.applications if app.grants is None and app.kind != "public"
    }
    for group in scenario.clients:
        where = f"clients.{group.name}"
        retry = group.retry
        if not isinstance(retry, NoRetry) and set(retry.statuses) - played:
            return f"{where}.retry.on retries what only a body answers"
        for ask in group.mix:
            if _too_large(scenario, profile, ask):
                return f"{where} sends what is too large for what it invokes"
            downstream_of = ask.reactor or ask.proxy or ask.is_job
            if downstream_of and not plain.issuperset(group.applications):
                return f"{where} may lack a right, which its application's grants decide"
    return None


def _too_large(scenario: Scenario, profile: Profile, ask: Ask) -> bool:
    outside = profile.outside
    if ask.reactor is not None:
        return ask.size_bytes > outside.reactor_payload_limit_bytes
    proxy = scenario.proxy_of(ask)
    if proxy is None:
        return False
    transforms = proxy.request_transform is not None or proxy.response_transform is not None
    limit_bytes = (
        outside.reactor_payload_limit_bytes if transforms else profile.http.proxy_body_limit_bytes
    )
    return ask.size_bytes > limit_bytes
