"""A replay through the whole engine: every request runs its whole path.

The replay's requests have no bodies: an operation with a body gets an object of one string. When
an answer waits (a delayed throttle, a proxy), a SimPy process continues it.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator, Mapping
from typing import Any, Final

import simpy

from engine.hosts import read_address
from engine.limits import LimitTable
from engine.messages import Request, Response
from engine.model import Application, ApplicationKind, Tenant
from engine.profile import Profile
from engine.service import Engine
from engine.world import ModelWorld, Sleep
from simulator.logs.arrivals import Arrivals
from simulator.logs.parties import Parties
from simulator.play.decisions import Ask, Decisions

__all__ = ["ask_engine"]

_BODY: Final = {"value": "replayed"}
_RIGHTS: Final[Mapping[ApplicationKind, frozenset[str]]] = {
    "private": frozenset({"token:create", "token:read", "token:update", "token:delete"}),
    "public": frozenset({"token:create"}),
    "management": frozenset(),
}


class _SimpyClock:
    """SimPy's time as the engine's clock; wall time runs with it from the log's first instant."""

    lead_ns = 0

    def __init__(self, environment: simpy.Environment, start_ns: int) -> None:
        self._environment = environment
        self._start_ns = start_ns

    @property
    def now_ns(self) -> int:
        return int(self._environment.now)

    @property
    def wall_ns(self) -> int:
        return self._start_ns + int(self._environment.now)


def ask_engine(
    environment: simpy.Environment,
    arrivals: Arrivals,
    limits: LimitTable,
    profile: Profile,
    seed: int,
) -> Ask:
    """Return what answers a row of a block by a party at an instant, and writes it down."""
    clock = _SimpyClock(environment, arrivals.start_ns)
    engine = Engine(profile=profile, limits=limits, world=ModelWorld(clock=clock, seed=seed))
    key_texts = _make_keys(engine, arrivals.parties)
    addresses = _addresses(arrivals.parties)

    def finish(decisions: Decisions, row: int, began_ns: int, response: Response) -> None:
        assert response.decision is not None, "the limits answer every request"
        decisions.put(row, response.decision)
        decisions.latency_ns[row] = clock.now_ns - began_ns
        decisions.status[row] = response.status

    def go_on(
        decisions: Decisions,
        row: int,
        began_ns: int,
        answering: Coroutine[Any, Any, Response],
        sleep: Sleep,
    ) -> Generator[simpy.Event, None, None]:
        while True:
            yield environment.timeout(sleep.for_ns)
            try:
                sleep = answering.send(None)
            except StopIteration as stop:
                finish(decisions, row, began_ns, stop.value)
                decisions.unanswered -= 1
                return

    def ask(decisions: Decisions, row: int, now_ns: int, party: int) -> None:
        who = arrivals.parties[party]
        body = _BODY if who.method in {"POST", "PUT", "PATCH"} else None
        key = None if who.key is None else key_texts[who.key]
        address = addresses[who.ip]
        answering = engine.submit(Request(who.method, who.path, key=key, ip=address, body=body))
        try:
            sleep = answering.send(None)
        except StopIteration as stop:
            finish(decisions, row, now_ns, stop.value)
        else:
            decisions.unanswered += 1
            environment.process(go_on(decisions, row, now_ns, answering, sleep))

    return ask


def _addresses(parties: Parties) -> dict[str, str]:
    """Return each party's address; a host name or pseudonym gets an unused one (RFC 6666)."""
    names = dict.fromkeys(who.ip for who in parties)
    return {
        name: name if read_address(name) is not None else f"100::{place >> 16:x}:{place:x}:0:0"
        for place, name in enumerate(names)
    }


def _make_keys(engine: Engine, parties: Parties) -> dict[str, str]:
    """Create every tenant, application and key that the parties name; return key texts by label."""
    tenants: dict[str, Tenant] = {}
    applications: dict[tuple[str, str], Application] = {}
    texts: dict[str, str] = {}
    for who in parties:
        if who.key is None or who.key in texts:
            continue
        assert who.tenant is not None
        assert who.tenant_kind is not None
        assert who.application is not None
        assert who.application_kind is not None
        if who.tenant not in tenants:
            tenants[who.tenant] = engine.create_tenant(who.tenant, kind=who.tenant_kind)
        place = (who.tenant, who.application)
        if place not in applications:
            applications[place] = engine.create_application(
                tenants[who.tenant],
                who.application,
                kind=who.application_kind,
                grants=[("/", _RIGHTS[who.application_kind])],
            )
        texts[who.key] = engine.create_key(applications[place], legacy=who.legacy)
    return texts
