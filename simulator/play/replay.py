"""A log through the backends of a run: clients that ask once, at the instants of the log.

One SimPy process feeds a backend (`simulator.play.backends`) row by row, or compiled code decides a
block of rows at once. Both write to a recorder, as a run does. Requests at one instant are decided
in the log's order.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt
import simpy

from engine.hosts import read_address
from engine.limits import (
    KeyIdentity,
    LimitTable,
    Subject,
    TenantIdentity,
)
from engine.messages import Json, Request, Response
from engine.model import Application, ApplicationKind, Tenant
from engine.profile import Profile
from simulator.logs.arrivals import BLOCK_ROWS, Arrivals, Times
from simulator.logs.parties import LogCaller, LogCallers
from simulator.play.backends import Backend, RequestSpec
from simulator.play.outside import FIRST_OF_CLIENT, At, spawn
from simulator.play.simpy_driver import backend_of
from simulator.play.simulation import is_without_kernel
from simulator.progress import Progress
from simulator.rows.record import NO_STATUS, Recorder
from simulator.rows.statistics import NodesStatistics

if TYPE_CHECKING:
    from engine.service import Engine
    from simulator.play.simulation import Fidelity
    from simulator.traffic.population import Client

_TELL_EVERY: Final = 1 << 12
_BODY: Final = {"value": "replayed"}
_RIGHTS: Final[Mapping[ApplicationKind, frozenset[str]]] = {
    "private": frozenset({"token:create", "token:read", "token:update", "token:delete"}),
    "public": frozenset({"token:create"}),
    "management": frozenset(),
}


def replay_arrivals(  # noqa: PLR0913 # reason: what a replay is told
    arrivals: Arrivals,
    limits: LimitTable,
    profile: Profile,
    recorder: Recorder,
    subjects: npt.NDArray[np.int64],
    *,
    fidelity: Fidelity = "limits",
    seed: int = 0,
    nodes: NodesStatistics | None = None,
    progress: Progress | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[tuple[Times, Times]]:
    """Put every arrival to the limits, in order, and write what is decided.

    subjects: each party's number in the rows. nodes: counts what several nodes decide otherwise,
    where the profile has several. progress: hears how many rows are decided.

    It yields each block of arrivals that it has decided. The size of the blocks has no effect on
    the decisions, and memory grows with the requests in flight, not with the length of the log.
    Raises `InputError` as `ColumnLimiter` does.
    """
    tables = {"Default": limits}
    if fidelity != "compiled" or is_without_kernel():
        env = simpy.Environment()
        traffic = LogTraffic(arrivals) if fidelity == "engine" else None
        run = arrivals.start_ns, profile, tables, seed
        backend = backend_of(env, *run, recorder, nodes, traffic)
        yield from _decided_one_by_one(env, arrivals, backend, subjects, progress, block_rows)
        return
    from simulator.kernel.limiter import ColumnLimiter, is_admitted, verdict_numbers  # noqa: PLC0415 # reason: numba loads where it is asked for

    limiter = ColumnLimiter(tables, profile.limits, origin_ns=arrivals.start_ns)
    parties = arrivals.parties
    number, one_of_each = parties.kinds(limiter.classifier.kind)
    kinds = np.array([limiter.kind(limit_subject(who)) for who in one_of_each], dtype=np.int64)
    kind_of = kinds[number]
    if limiter.is_by_other_fields:  # two parties of one class may have other counters
        kind_of = np.array([limiter.kind(limit_subject(who)) for who in parties], dtype=np.int64)
    lane_of = limiter.lanes(kind_of, parties.key.codes, parties.ip.codes)
    limiter.close_lanes()
    verdicts_of = verdict_numbers(limiter, recorder)
    done = 0
    for t_ns, party in arrivals.blocks(block_rows):
        verdict, wait_ns = limiter.decide(t_ns, lane_of[party])
        recorder.take(
            {
                "t_ns": t_ns,
                "subject": subjects[party],
                "attempt": np.ones_like(t_ns),
                "verdict": verdicts_of(verdict),
                "wait_ns": wait_ns,
                "latency_ns": np.where(is_admitted(verdict), wait_ns, 0),
                "status": np.full(len(t_ns), NO_STATUS, dtype=np.int64),
            }
        )
        done += len(t_ns)
        if progress is not None:
            progress(done)
        yield t_ns, party
    recorder.shadow.update(limiter.shadow_requests())


def _decided_one_by_one(
    env: simpy.Environment,
    arrivals: Arrivals,
    backend: Backend,
    subjects: npt.NDArray[np.int64],
    progress: Progress | None,
    block_rows: int,
) -> Iterator[tuple[Times, Times]]:
    """Put the log to a backend as one client, which asks at the log's instants."""
    begin, submit = backend.begin, backend.submit
    parties = zip(subjects.tolist(), arrivals.parties, strict=True)
    asking = [RequestSpec(limit_subject(party), row) for row, party in parties]
    decided = env.event()

    def process() -> Generator[simpy.Event, object, None]:
        nonlocal decided
        now_ns = number = 0
        for block in arrivals.blocks(block_rows):
            for at_ns, party in zip(*(column.tolist() for column in block), strict=True):
                if at_ns > now_ns:
                    yield At(env, at_ns - now_ns, FIRST_OF_CLIENT)
                    now_ns = at_ns
                asked = asking[party]
                content = None if begin is None else begin(asked, None, None)
                answer = submit(now_ns, asked, content, 1, 0)
                if answer.later is not None:
                    spawn(env, answer.later)
                if progress is not None and not number % _TELL_EVERY:
                    progress(number)
                number += 1
            decided.succeed(block)
            decided = env.event()

    client = env.process(process())
    while client.is_alive:
        yield env.run(until=decided)  # type: ignore[misc] # reason: a block
    env.run()


class LogTraffic:
    """What a log's requests send to the engine: keys of their own, and little bodies.

    A log holds no bodies: an operation with a body gets an object of one string.
    """

    def __init__(self, arrivals: Arrivals) -> None:
        self._parties = arrivals.parties
        self._keys: dict[str, str] = {}
        self._addresses = _addresses(arrivals.parties)

    def enter(self, engine: Engine) -> None:
        """Create every tenant, application and key that the parties name."""
        tenants: dict[str, Tenant] = {}
        applications: dict[tuple[str, str], Application] = {}
        for who in self._parties:
            if who.key is None or who.key in self._keys:
                continue
            tenant, tenant_kind, application, kind, legacy = who.owner
            assert tenant is not None
            assert tenant_kind is not None
            assert application is not None
            assert kind is not None
            if tenant not in tenants:
                tenants[tenant] = engine.create_tenant(tenant, kind=tenant_kind)
            place = (tenant, application)
            if place not in applications:
                grants = [("/", _RIGHTS[kind])]
                applications[place] = engine.create_application(
                    tenants[tenant], application, kind=kind, grants=grants
                )
            self._keys[who.key] = engine.create_key(applications[place], legacy=legacy)

    def request(self, asked: RequestSpec, client: Client | None, given: Json) -> Request:
        """Return what a request of the log sends."""
        del client, given
        who = asked.subject
        return Request(
            who.method,
            who.path,
            key=None if who.key_id is None else self._keys[who.key_id],
            ip=self._addresses[who.ip],
            body=_BODY if who.method in {"POST", "PUT", "PATCH"} else None,
        )

    def learn(self, asked: RequestSpec, content: Request, response: Response) -> None:
        """Learn nothing: no request of a log uses what another created."""

    def created(self, engine: Engine) -> tuple[int, int] | None:
        """Return None: a log does not say what was created."""
        del engine
        return None


def _addresses(parties: LogCallers) -> dict[str, str]:
    """Return each party's address; a host name or pseudonym gets an unused one (RFC 6666)."""
    names = dict.fromkeys(who.ip for who in parties)
    return {
        name: name if read_address(name) is not None else f"100::{place >> 16:x}:{place:x}:0:0"
        for place, name in enumerate(names)
    }


def limit_subject(party: LogCaller) -> Subject:
    """Return a party as the limits see it."""
    owner = party.owner
    key = tenant = None
    if party.key is not None:
        key = KeyIdentity(
            party.key, owner.legacy, f"{owner.tenant}/{owner.application}", owner.application_kind
        )
        tenant = TenantIdentity(str(owner.tenant), owner.tenant_kind, "Default")
    return Subject.of(
        party.method,
        party.path,
        party.ip,
        key=key,
        tenant=tenant,
        proxy_key_id=None,
        host_id=None,
    )
