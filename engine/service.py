"""The service: the one path of a request, readable top to bottom.

`Engine.submit` is that path (D-ORDER):

    identify the key → limits → 404, 405 → 401 → 413, 415, unparsable 400 → the operation

and the operation (`engine.resources`) goes on: walk → 403 → 400 → look-up → quota → write. The
first step that fails answers alone. `handle` drives the path by hand under a manual clock, the
HTTP adapter under asyncio, the simulator inside a SimPy process: one code, three drivers.

Nothing here reads a clock, sleeps or draws chance: the `World` is handed in. The operator's side
(tenants, applications, keys, quotas, settings) is inherited from `engine.resources.operator`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Mapping
from typing import Final

from engine.errors import InputError
from engine.identity import Caller
from engine.limits import Headroom, Limiter, LimitTable, Subject
from engine.messages import Decision, Problem, Request, Response
from engine.model import Application, Key, LogEntry, Tenant
from engine.profile import Profile
from engine.resources import OPERATIONS
from engine.resources.authentication import unauthenticated
from engine.resources.bodies import read_body
from engine.resources.context import Context
from engine.resources.fields import rate_fields
from engine.resources.operator import Operator
from engine.resources.proxy_names import NO_PROXIES, Proxies, find_proxies
from engine.resources.router import Router, parse_query
from engine.resources.services import Services
from engine.store import MemoryStore, Store
from engine.tokens import Rules
from engine.vault import Vault, hash_key_text
from engine.world import Clock, ModelWorld, World, drive

__all__ = ["Engine"]

_CALLERS_LIMIT: Final = 100_000
_LOG_SWEEP_NS: Final = 60 * 1_000_000_000
_MASTER_KEY_BYTES: Final = 32


class Engine(Operator):
    """The whole service, in process.

    profile: the choices that the specification leaves open.
    limits: the limit table, or tables by name (`Default` must be among them) for tenants whose
        `Rate Limit` quota names another one (QUO-RATE).
    clock, seed: a `ManualClock` at zero and the operating system's chance unless given; or
    world: all ports at once (then neither clock nor seed).
    store: memory unless given. A store that outlives the process takes a `master_key` (32 bytes)
        and no seed.

    Raises `InputError` when these do not fit together.

    >>> engine = Engine(seed=7)
    >>> tenant = engine.create_tenant("Acme", kind="test")
    >>> app = engine.create_application(tenant, "shop", grants=[("/", {"token:create"})])
    >>> key = engine.create_key(app)
    >>> body = {"name": "Ada"}
    >>> engine.handle(Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body)).status
    200
    """

    def __init__(
        self,
        *,
        profile: Profile | None = None,
        limits: LimitTable | Mapping[str, LimitTable] | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        world: World | None = None,
        store: Store | None = None,
        master_key: bytes | None = None,
        region: str = "us",
    ) -> None:
        if world is not None and (clock is not None or seed is not None):
            raise InputError("world is given; leave clock and seed out, the world holds both")
        store = MemoryStore() if store is None else store
        if store.persistent and seed is not None:
            raise InputError(f"seed = {seed} is for simulation; leave it out with a kept store")
        if store.persistent and master_key is None:
            raise InputError("master_key is missing; a kept store needs 32 bytes that you keep too")
        if master_key is not None and len(master_key) != _MASTER_KEY_BYTES:
            raise InputError(f"master_key must hold {_MASTER_KEY_BYTES} bytes")
        world = ModelWorld(clock=clock, seed=seed) if world is None else world
        self.profile = Profile() if profile is None else profile
        tables = _tables(limits)
        self.table_names = frozenset(tables)
        self.tables = tables
        self.limiter = Limiter(tables, self.profile.limits)
        vault = Vault(master_key or world.entropy(_MASTER_KEY_BYTES), world.entropy, store)
        rules = Rules(self.profile.tokens, self.profile.dedup)
        self.services = Services(
            self.profile, rules, store, vault, world, _id_maker(world.random), region, {}
        )
        self.router = Router(OPERATIONS)
        self._lock = threading.Lock()
        self._callers: dict[str, Caller] = {}
        self._next_log_sweep_ns = world.clock.wall_ns + _LOG_SWEEP_NS
        self._recover()

    @property
    def clock(self) -> Clock:
        """The world's clock."""
        return self.services.world.clock

    def handle(self, request: Request) -> Response:
        """Answer one request; where it waits, the manual clock moves.

        Never raises for what a caller sent. Raises `TypeError` when the request has to wait and
        the clock is not a `ManualClock`.
        """
        return drive(self.submit(request), self.services.world.clock)

    async def submit(self, request: Request) -> Response:
        """Answer one request: the path, top to bottom."""
        # 1. Who asks: the key, and the proxy that a proxy key or a custom hostname names.
        caller, proxies, subject = self._identify(request)

        # 2. The limits, at the request's one instant.
        decision, headroom, now_ns, wall_ns = self._decide(subject)
        headers: dict[str, str] = {}
        rate_fields(headers, headroom, self.profile.http, refused=not decision.admitted)
        if not decision.admitted:
            return _refusal(decision, headers)
        if decision.wait_ns:
            await self.services.world.sleep_ns(decision.wait_ns)
            now_ns += decision.wait_ns
            wall_ns += decision.wait_ns

        # 3. Everything after answers 4xx by raising a problem.
        try:
            response = await self._execute(request, caller, proxies, now_ns, wall_ns)
        except Problem as problem:
            response = problem.response()
        if request.method == "HEAD":
            response.body = None
        response.headers.update(headers)
        response.decision = decision
        if self.profile.limits.counted_statuses == "success":
            self._settle(decision, response)
        return response

    async def _execute(
        self,
        request: Request,
        caller: Caller | None,
        proxies: Proxies,
        now_ns: int,
        wall_ns: int,
    ) -> Response:
        # 3.1 What is asked: 404, 405.
        path, _, query = request.path.partition("?")
        if proxies[1] is not None and path != "/proxy" and not path.startswith("/proxy/"):
            path = "/proxy" + path  # a custom hostname is the proxy, whatever the path
        try:
            operation, params = self.router.find(request.method, path)
        except Problem:
            if request.method == "OPTIONS" and (allowed := self.router.allowed(path)):
                return Response(204, headers={"Allow": ", ".join(allowed)})
            raise
        request.operation = operation.name

        # 3.2 Who may ask at all: 401.
        if operation.authentication == "key" and caller is None:
            raise unauthenticated(self.profile.http.key_header)

        # 3.3 The body: 413, 415, unparsable 400.
        services = self.services
        # What stands behind ANY is a proxy, whose query is its destination's to read.
        parameters = {} if operation.method == "ANY" else parse_query(query)
        context = Context(services, request, caller, params, parameters, now_ns, wall_ns)
        context.proxies = proxies
        context.body = await read_body(operation, request, self.profile)

        # 3.4 The operation, in one transaction; those that await the world open their own.
        if operation.run is None:
            assert operation.run_async is not None
            return await operation.run_async(context)
        with services.store.transaction():
            return operation.run(context)

    def _identify(self, request: Request) -> tuple[Caller | None, Proxies, Subject]:
        """Return the principal, the proxies that the request names, and both for the limits.

        A request with no or an unknown key has no principal (D-UNKEYED). Key text is compared by
        its hash only (AUTH-HEADER).
        """
        store = self.services.store
        caller, proxies = None, NO_PROXIES
        with store.transaction(write=False):
            if request.key is not None:
                key = store.key_by_hash(hash_key_text(request.key))
                if key is not None:
                    caller = self._caller(key)
            if request.proxy_key is not None or request.host is not None:
                proxies = find_proxies(self.services, request)
            return caller, proxies, _subject(request, caller, proxies, store)

    def _caller(self, key: Key) -> Caller | None:
        store = self.services.store
        application = store.get(Application, key.application_id)
        tenant = store.get(Tenant, key.tenant_id)
        if application is None or tenant is None:
            return None
        caller = self._callers.get(key.id)
        if caller is None or caller.application is not application or caller.tenant is not tenant:
            caller = Caller(key, application, tenant)
            if len(self._callers) >= _CALLERS_LIMIT:
                self._callers.clear()
            self._callers[key.id] = caller
        return caller

    def _decide(self, subject: Subject) -> tuple[Decision, Headroom | None, int, int]:
        """Put the request to the limits, at one instant, in order of arrival (D-CLOCK)."""
        clock = self.services.world.clock
        with self._lock:
            now_ns, wall_ns = clock.now_ns, clock.wall_ns
            self._expire(wall_ns)
            decision = self.limiter.decide(now_ns, subject)
            return decision, self.limiter.headroom(now_ns, subject), now_ns, wall_ns

    def _settle(self, decision: Decision, response: Response) -> None:
        """Give the charges back where only successful requests count (D-COUNTED)."""
        with self._lock:
            self.limiter.settle(decision, response.status)

    def expire(self) -> None:
        """Erase what its time has come for (QUO-CVC, QUO-INTENT, QUO-LOG).

        Called first in every request, and by a server's timer.
        """
        with self._lock:
            self._expire(self.services.world.clock.wall_ns)

    def _expire(self, wall_ns: int) -> None:
        store = self.services.store
        deadline_ns = store.next_deadline_ns()
        if deadline_ns is not None and deadline_ns <= wall_ns:
            with store.transaction():
                store.expire(wall_ns)
        if wall_ns >= self._next_log_sweep_ns:
            self._next_log_sweep_ns = wall_ns + _LOG_SWEEP_NS
            with store.transaction():
                for tenant in store.tenants():
                    retention_ns = tenant.quotas["Log Retention"]
                    assert isinstance(retention_ns, int)
                    store.expire_logs(tenant.id, wall_ns - retention_ns + 1)

    def _recover(self) -> None:
        """Mark what an earlier process began and never finished as failed, in its tenant's log."""
        services = self.services
        with services.store.transaction():
            for work_id, tenant_id, operation, _ in services.store.unfinished_work():
                services.store.add_log(
                    LogEntry(
                        services.new_id(),
                        tenant_id,
                        services.world.clock.wall_ns,
                        operation,
                        "work",
                        work_id,
                        None,
                        500,
                    )
                )
                services.store.close_work(work_id)

    def close(self) -> None:
        """Close the store; the engine is not used afterwards."""
        self.services.store.close()


def _tables(limits: LimitTable | Mapping[str, LimitTable] | None) -> dict[str, LimitTable]:
    if limits is None or isinstance(limits, LimitTable):
        return {"Default": LimitTable.default() if limits is None else limits}
    if "Default" not in limits:
        raise InputError("limits holds no table 'Default'; the `Rate Limit` quota starts there")
    return dict(limits)


def _id_maker(chance: random.Random) -> Callable[[], str]:
    """Return a maker of UUID version 4 texts from the world's chance."""
    getrandbits = chance.getrandbits

    def new_id() -> str:
        digits = f"{getrandbits(122):031x}"  # 122 bits are chance, 6 are version and variant
        variant = "89ab"[int(digits[0], 16)]
        return (
            f"{digits[1:9]}-{digits[9:13]}-4{digits[13:16]}-{variant}{digits[16:19]}-{digits[19:]}"
        )

    return new_id


def _subject(request: Request, caller: Caller | None, proxies: Proxies, store: Store) -> Subject:
    """Return what the limits need to know: AUTH-KINDS, D-UNKEYED, D-PROXY-RULES."""
    by_key, by_host = proxies
    proxy_key_id = by_key.id if by_key is not None and not by_key.require_auth else None
    host_id = by_host.id if by_host is not None else None
    if caller is not None:
        tenant, key = caller.tenant, caller.key
        return Subject(
            request.method,
            request.path,
            request.ip,
            key_id=key.id,
            tenant_kind=tenant.kind,
            application_kind=caller.application.kind,
            legacy=key.legacy,
            table=str(tenant.quotas["Rate Limit"]),
            proxy_key_id=proxy_key_id,
            host_id=host_id,
        )
    proxy = by_key or by_host
    owner = None if proxy is None else store.get(Tenant, proxy.tenant_id)
    if owner is None:
        return Subject(request.method, request.path, request.ip)
    return Subject(
        request.method,
        request.path,
        request.ip,
        tenant_kind=owner.kind,
        table=str(owner.quotas["Rate Limit"]),
        proxy_key_id=proxy_key_id,
        host_id=host_id,
    )


def _refusal(decision: Decision, headers: dict[str, str]) -> Response:
    """Return the answer to a request that the limits refuse (ERR-429)."""
    verb = "blocked" if decision.outcome == "blocked" else "throttled"
    response = Problem(
        429, f"Too many requests: {verb} by {decision.rule}.", headers=headers, clause="ERR-429"
    ).response()
    response.decision = decision
    return response
