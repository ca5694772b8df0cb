"""The service: the one path of a request, readable top to bottom.

`Engine.submit` is that path (D-ORDER):

    identify the key → limits → 414, 404, 405 → 401 → 413, 415, unparsable 400 → the operation

and the operation (`engine.resources`) goes on: walk → 403 → 400 → look-up → quota → write. The
first step that fails determines the answer. `handle` runs the path under a manual clock, the HTTP
adapter under asyncio, the simulator inside a SimPy process: one code, three drivers.

Nothing here reads a clock, sleeps or draws random numbers: the `World` does. The operator's side
(tenants, applications, keys, quotas, settings) is inherited from `engine.resources.operator`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Coroutine, Iterable, Mapping
from functools import cached_property, lru_cache, partial
from typing import Any, Final, Self, TypeAlias, TypeVar
from urllib.parse import parse_qsl, unquote

from msgspec.structs import replace

from engine.errors import InputError, StoreBusy, check_text, wrong_type
from engine.hosts import host_name
from engine.identity import Caller, check_region, random_id
from engine.limits import CountersFull, Limiter, LimitTable, RateLimitStatus, Subject
from engine.limits.table import counted_by
from engine.messages import BodyStream, Decision, Json, Problem, Request, Response, find_header
from engine.profile import SECOND_NS, HttpProfile, Profile
from engine.resources import OPERATIONS
from engine.resources.bodies import BUFFERED_TYPES, field_names, read_body, receive, without_names
from engine.resources.identification import (
    Identification,
    Identifier,
    find_proxies,
    proxy_path,
    refused_hosts,
    unauthenticated,
)
from engine.resources.operation import (
    IDEMPOTENCY_KEY,
    LARGE_BYTES,
    METHODS,
    Context,
    Operation,
    Services,
    apart_if_large,
    first_answer,
    once,
)
from engine.resources.operator import Operator, check_tables
from engine.store import MemoryStore, Store
from engine.tokens.rules import Rules
from engine.tokens.stored import without_cvc
from engine.vault import KEY_BYTES, Vault
from engine.world import (
    UNCOUNTED_BYTES,
    Clock,
    ClockReading,
    ManualClock,
    ModelWorld,
    Sleep,
    World,
)

_Returned = TypeVar("_Returned")

ASKING_IP: Final = "192.0.2.1"
"""The default client address of `Engine.ask`: an address for documentation (RFC 5737)."""

_LOG_SWEEP_NS: Final = 60 * SECOND_NS
_NOTE_NS: Final = 10 * SECOND_NS
"""How often the time is written to the store while something in it has a deadline."""

_ERASED_AT_ONCE: Final = 256
"""How many expired records one transaction deletes, which takes a few milliseconds."""


_NO_PARAMETERS: Final[Mapping[str, str]] = {}
_SEGMENT: Final = re.compile(r"/\{\w+\}")
_REST_SEGMENT: Final = re.compile(r"/\{\w+\.\.\.\}$")


_Methods: TypeAlias = dict[str, Operation]


class Router:
    """Finds operations. A path without parameters wins over one with them."""

    __slots__ = ("_plain", "_templates")

    def __init__(self, operations: Iterable[Operation]) -> None:
        self._plain: dict[str, _Methods] = {}
        self._templates: dict[str, list[tuple[re.Pattern[str], _Methods]]] = {}
        for operation in operations:
            path, method = operation.path, operation.method
            if "{" not in path:
                methods = self._plain.setdefault(path, {})
            else:
                methods = self._methods_of(path)
            assert method not in methods, "one operation a method and path"
            methods[method] = operation

    def _methods_of(self, path: str) -> _Methods:
        """Return the methods of a path with parameters, found by its first segment."""
        form = re.compile(
            _SEGMENT.sub("/([^/]+)", _REST_SEGMENT.sub("(?:/(.*))?", path)), re.DOTALL
        )
        known = self._templates.setdefault(path.split("/")[1], [])
        methods = next((methods for other, methods in known if other == form), None)
        if methods is None:
            methods = {}
            known.append((form, methods))
        return methods

    def find(self, method: str, path: str) -> tuple[Operation, Mapping[str, str]]:
        """Return the operation and the path's parameters.

        HEAD finds what GET finds. Raises `Problem` 404, or 405 with the methods that are allowed.
        """
        here = self._plain.get(path)
        if here is not None and (plain := here.get(method)) is not None:
            return plain, _NO_PARAMETERS
        allowed, values = self._at(path)
        if not allowed:
            raise Problem(404, "There is nothing at this path.", clause="D-STATUSES")
        operation = allowed.get("ANY") or allowed.get("GET" if method == "HEAD" else method)
        if operation is None:
            raise Problem(
                405,
                f"{_format(method)} is not allowed at this path.",
                clause="D-STATUSES",
                headers={"Allow": ", ".join(self.allowed(path))},
            )
        names = [s.strip("{}.") for s in operation.path.strip("/").split("/") if s.startswith("{")]
        return operation, dict(zip(names, values, strict=True))

    def allowed(self, path: str) -> list[str]:
        """Return the methods that the path supports; none for an unknown path.

        `*` is the service as a whole (RFC 9110, 9.3.7).
        """
        if path == "*":
            return sorted({*METHODS, "HEAD", "OPTIONS"})
        methods = set(self._at(path)[0])
        if not methods:
            return []
        if "ANY" in methods:
            methods = set(METHODS)
        if "GET" in methods:
            methods.add("HEAD")
        return sorted(methods | {"OPTIONS"})

    def _at(self, path: str) -> tuple[_Methods, list[str]]:
        plain = self._plain.get(path)
        if plain is not None:
            return plain, []
        for form, methods in self._templates.get(path[1:].partition("/")[0], ()):
            match = form.fullmatch(path)
            if match is not None:
                is_rest = "ANY" in methods
                return methods, [v or "" if is_rest else unquote(_text(v)) for v in match.groups()]
        return {}, []


def _text(part: str) -> str:
    """Return encodable text: a lone surrogate, which no HTTP request holds, becomes `?`."""
    return part if part.isascii() else part.encode("utf-8", "replace").decode()


def _format(method: str) -> str:
    return method if method.isascii() and method.isalpha() and len(method) <= 16 else "This method"


def parse_query(query: str) -> Mapping[str, str]:
    """Return the query's parameters; raises `Problem` 400 when one is given twice."""
    parameters: dict[str, str] = {}
    for name, value in parse_qsl(_text(query), keep_blank_values=True, errors="replace"):
        if name in parameters:
            raise Problem(
                400,
                "A query parameter is given twice.",
                errors={"": ["given twice"]},
                clause="D-STATUSES",
            )
        parameters[name] = value
    return parameters


class Engine(Operator):
    """The whole service, in process.

    profile: the choices that the specification leaves open.
    limits: the limit table, or tables by name (`Default` must be among them) for tenants whose
        `Rate Limit` quota names another one (QUO-RATE).
    clock, seed: a `ManualClock` at zero and the operating system's randomness unless given; or
    world: all ports at once (then neither clock nor seed).
    store: memory unless given. A store that outlives the process takes a `master_key` (32 bytes)
        and no seed.
    own_names: hostnames that reach the service itself; no proxy may have one (D-HOST).

    A seed is for simulation alone: all random values repeat with it, including identifiers, key
    texts and fingerprints, but not key pairs for client-side encryption.

    An engine is a context manager that closes its store at the end.

    Raises `InputError` when these do not fit together, `VaultError` when the master key is not the
    one that the store was made with.

    >>> engine = Engine(seed=7)
    >>> tenant = engine.create_tenant("Acme", kind="test")
    >>> app = engine.create_application(tenant, "shop", grants=[("/", {"token:create"})])
    >>> key = engine.create_key(app)
    >>> body = {"name": "Ada"}
    >>> engine.handle(Request("POST", "/tokenize", key=key, ip="203.0.113.7", body=body)).status
    200
    """

    router: Final = Router(OPERATIONS)

    def __init__(  # noqa: PLR0913 # reason: the parts of a service, each by its name
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
        own_names: Iterable[str] = (),
    ) -> None:
        if world is not None and (clock is not None or seed is not None):
            raise InputError("world is given; leave clock and seed out, the world holds both")
        if profile is not None and not isinstance(profile, Profile):
            raise wrong_type("profile", profile, "a Profile")
        if store is not None and not hasattr(store, "transaction"):
            raise wrong_type("store", store, "a store such as SqliteStore(path)")
        if world is not None and not hasattr(world, "call_destination"):
            raise wrong_type("world", world, "a World such as ModelWorld()")
        store = MemoryStore() if store is None else store
        if store.persistent and (seed is not None or getattr(world, "is_seeded", False)):
            text = "of the world" if seed is None else f"= {seed}"
            raise InputError(f"seed {text} is for simulation; leave it out with a kept store")
        if store.persistent and master_key is None:
            raise InputError("master_key is missing; a kept store needs 32 bytes that you keep too")
        check_region(region)
        world = ModelWorld(clock=clock, seed=seed) if world is None else world
        self.profile = _of_one_node(Profile() if profile is None else profile)
        tables = _tables(limits)
        self.table_names = frozenset(tables)
        self.tables = tables
        origin_ns = world.clock.wall_ns - world.clock.now_ns  # windows align to the epoch (D-ALIGN)
        self.limiter = Limiter(tables, self.profile.limits, origin_ns=origin_ns, is_bounded=True)
        if master_key is None:
            master_key = world.entropy(KEY_BYTES)
        vault = Vault(master_key, world.entropy, store)
        if store.persistent:  # checked before a tenant can be made under a wrong key
            with store.transaction():
                vault.verify()
                check_tables(store.tenants(), self.table_names)
        rules = Rules(self.profile.tokens, self.profile.dedup)
        names = frozenset(map(host_name, own_names))
        new_id = partial(random_id, world.random)
        self.services = Services(
            self.profile, rules, store, vault, world, new_id, region, {}, names
        )
        self._without_cvc = partial(without_cvc, keys_of=vault.of, rules=rules)
        self._identifier = Identifier(self.services)
        self._settles = self.profile.limits.counted_statuses == "success"
        self._erases_apart = False
        # Reads go on when the store cannot be written; reads of plaintext cannot: they are logged.
        logged = self.profile.tokens.plaintext_reads
        self._reading = frozenset(
            operation.name for operation in OPERATIONS if operation.reads and not logged
        )
        keeps = self.profile.http.idempotency != "ignore"  # the first answer (D-IDEMPOTENCY)
        self._kept = frozenset(
            operation.name for operation in OPERATIONS if operation.creates and keeps
        )
        self._lock = threading.Lock()
        self._clock = world.clock
        self._next_log_sweep_ns = world.clock.steady_ns + _LOG_SWEEP_NS
        self._next_note_ns = 0
        self._recover()

    @cached_property
    def _field_names(self) -> frozenset[str]:
        return field_names(OPERATIONS, self.services.rules)

    @property
    def clock(self) -> Clock:
        """The world's clock."""
        return self.services.world.clock

    def ask(
        self,
        method: str,
        path: str,
        body: Json | bytes | BodyStream = None,
        *,
        key: str | None = None,
        ip: str = ASKING_IP,
        headers: Mapping[str, str] | None = None,
        host: str | None = None,
        proxy_key: str | None = None,
    ) -> Response:
        """Answer one request from an address of its own: `handle` for notebooks and tests.

        >>> engine = Engine(seed=7)
        >>> app = engine.create_application(
        ...     engine.create_tenant("Acme"), "shop", grants=[("/", {"token:create"})]
        ... )
        >>> key = engine.create_key(app)
        >>> engine.ask("POST", "/tokenize", {"name": "Ada"}, key=key).status
        200
        """
        return self.handle(
            Request(
                method,
                path,
                ip=ip,
                key=key,
                headers=headers,
                body=body,
                host=host,
                proxy_key=proxy_key,
            )
        )

    def handle(self, request: Request) -> Response:
        """Answer one request; where it waits, the manual clock moves.

        Never raises for what a caller sent. Raises `InputError` for what is no request and for a
        key among the headers, `TypeError` when the request has to wait and the clock is not a
        `ManualClock`.
        """
        if not isinstance(request, Request):
            raise wrong_type("request", request, "a Request; or use ask(method, path, body)")
        if request.headers is not None:
            self._check_headers(request)
        return drive(self.submit(request), self._clock)

    def _check_headers(self, request: Request) -> None:
        """Raise `InputError` for a key in the headers, where it has no effect (AUTH-HEADER)."""
        if not hasattr(request.headers, "items"):
            raise wrong_type("headers", request.headers, "a mapping of names to values")
        http = self.profile.http
        for name, given, argument in (
            (http.key_header, request.key, "key"),
            (http.proxy_key_header, request.proxy_key, "proxy_key"),
        ):
            if given is None and find_header(request.headers, name) is not None:
                raise InputError(f"headers hold {name}; give its value as {argument}= instead")

    async def submit(self, request: Request) -> Response:  # noqa: C901, PLR0912 # reason: the whole path
        """Answer one request: the path, top to bottom."""
        # 1. Who asks: the key, and the proxy that a proxy key or a custom hostname names.
        who, subject = self._identifier.identify(request)

        # 2. The limits, at the request's one instant.
        try:
            decision, status, instant = self._decide(subject)
        except CountersFull:
            return _FULL_PROBLEM.response()
        headers = _rate_fields(status, self.profile.http, decision)
        if decision.refusing:
            return _refusal(decision, status, self.tables[subject.table], headers)

        # 3. Everything after answers 4xx by raising a problem.
        context: Context | None = None
        try:
            if decision.wait_ns:  # its caller may go away meanwhile
                await self.services.world.sleep_ns(decision.wait_ns)
                instant = instant.later(decision.wait_ns)
                self.expire()  # delete records whose retention has expired meanwhile
            # 3.1 What is asked: 414, 404, 405. 3.2 Who may ask at all: 401.
            operation, context = self._prepare(request, who, instant)
            # 3.3 The body: 413, 415, unparsable 400.
            sent: Any = request.body
            if type(sent) not in BUFFERED_TYPES:
                sent = await receive(operation, request, self.profile)
            elif type(sent) is bytes and len(sent) > UNCOUNTED_BYTES:
                self.services.world.reserve(len(sent))
            # 3.4 The operation, in one transaction; those that await the world open their own.
            if operation.run_async is not None:
                size_bytes = len(sent) if type(sent) is bytes else 0
                read = partial(read_body, operation, context, sent)
                context.body = await apart_if_large(context, size_bytes, read)
                response = await operation.run_async(context)
            elif operation.is_costly or (type(sent) is bytes and len(sent) > LARGE_BYTES):
                # Others go on meanwhile; callers take turns.
                work = partial(self._answer, operation, context, sent)
                response = await self.services.world.apart(work, who.caller)
            else:
                response = self._answer(operation, context, sent)
        except _Options as options:
            response = Response(204, headers={"Allow": options.allowed})
        except Problem as problem:
            response = self._refused(problem, context)
        except StoreBusy:
            response = _LOCKED_PROBLEM.response()
        except BaseException:  # a caller that went away, a store that fails: no success
            self._settle(decision, 500)
            raise
        if request.method == "HEAD":
            response.body = None
        response.headers.update(headers)
        response.decision = decision
        if self._settles:  # checked here too, to spare most requests a call
            self._settle(decision, response.status)
        return response

    def _refused(self, problem: Problem, context: Context | None) -> Response:
        """Return the answer to a request that cannot be carried out; it quotes no member's name."""
        if problem.errors and context is not None:
            sent = context.query if context.body is None else context.body
            problem.errors = without_names(problem.errors, sent, self._field_names)
        return problem.response()

    def _prepare(
        self, request: Request, who: Identification, instant: ClockReading
    ) -> tuple[Operation, Context]:
        """Return the requested operation and its context."""
        path, query = request.path, ""
        limit = self.profile.http.target_limit
        if len(path) > limit:
            raise Problem(414, f"The target must hold at most {limit} characters.", clause="D-SIZE")
        if "?" in path:
            path, _, query = path.partition("?")
        if who.proxies[1] is not None:
            path = proxy_path(path)
        try:
            operation, params = self.router.find(request.method, path)
        except Problem:
            if request.method == "OPTIONS" and (allowed := self.router.allowed(path)):
                raise _Options(allowed) from None
            raise
        request.operation = operation.name
        if who.caller is None and operation.authentication == "key":
            raise unauthenticated(self.profile.http.key_header)  # obeys AUTH-HEADER
        # What stands behind ANY is a proxy, whose query is its destination's to read.
        parameters = parse_query(query) if query and operation.method != "ANY" else {}
        return operation, Context(
            self.services,
            request,
            who.caller,  # type: ignore[arg-type] # reason: None only where no key is asked for
            params,
            parameters,
            *instant,
            who.proxies,
        )

    def _answer(self, operation: Operation, context: Context, sent: Json | bytes) -> Response:
        """Read the body, judge it, and run the operation in one transaction."""
        run, name, store = operation.run, operation.name, self.services.store
        assert run is not None, "it awaits nothing"
        context.body = read_body(operation, context, sent)
        headers = context.request.headers  # None in process, mostly
        if headers and name in self._kept and find_header(headers, IDEMPOTENCY_KEY) is not None:
            with store.transaction(write=False):
                answer = first_answer(context)
            if answer is not None:
                return answer
            run = partial(once, operation)
            context.rights, context.entity_ids = set(), {}
        if operation.prepare is not None:
            context.prepared = operation.prepare(context)
        # By hand: a `with` block would cost every request four more calls.
        store.begin(write=name not in self._reading)
        try:
            response = run(context)
        except BaseException:
            store.rollback()
            raise
        store.commit()
        return response

    def _decide(self, subject: Subject) -> tuple[Decision, RateLimitStatus | None, ClockReading]:
        """Ask the limits about the request, at one instant, in order of arrival (D-CLOCK)."""
        with self._lock:
            instant = self._clock.read()
            now_ns, _, steady_ns = instant
            if not self._erases_apart:
                deadline_ns = self.services.store.next_deadline_ns
                is_due = deadline_ns is not None and deadline_ns <= steady_ns
                if is_due or steady_ns >= self._next_log_sweep_ns:
                    self._expire()
            decision, status = self.limiter.decide_with_status(now_ns, subject)
        return decision, status, instant

    def _settle(self, decision: Decision, status: int) -> None:
        """Give the charges back where only successful requests count (D-COUNTED)."""
        if self._settles:
            with self._lock:
                self.limiter.settle(decision, status)

    def caller_of(self, request: Request) -> Caller | None:
        """Return the key, application and tenant that send a request; None for no known key."""
        return self._identifier.identify(request)[0].caller

    def expire(self) -> None:
        """Delete what has expired (QUO-CVC, QUO-INTENT, QUO-LOG).

        Called first in every request, unless a timer calls `erase`.
        """
        with self._lock:
            self._expire()

    def erase(self) -> bool:
        """Delete and overwrite what has expired, while requests go on.

        For a server's timer, in a thread of its own: after the first call, requests no longer do
        it. Expired records are never read, whether deleted yet or not. Each step is short, so that
        requests run in between. Returns False while another program prevents the overwriting.
        """
        # A search could find an index over an expired cvc, where the profile allows one.
        self._erases_apart = self.profile.tokens.cvc_derive == "reject"
        self._expire()
        return self.services.store.truncate_log()

    def _expire(self) -> None:
        store, steady_ns = self.services.store, self._clock.steady_ns
        while (deadline_ns := store.next_deadline_ns) is not None and deadline_ns <= steady_ns:
            with store.transaction():
                store.expire(steady_ns, self._without_cvc, size=_ERASED_AT_ONCE)
                store.put_latest_ns(steady_ns)
        if self._erases_apart and steady_ns >= self._next_note_ns:
            self._next_note_ns = steady_ns + _NOTE_NS
            if store.next_deadline_ns is not None:
                with store.transaction():
                    store.put_latest_ns(steady_ns)
        if steady_ns >= self._next_log_sweep_ns:
            self._next_log_sweep_ns = steady_ns + _LOG_SWEEP_NS
            self._identifier.forget_subjects()
            self._expire_logs()

    def _expire_logs(self) -> None:
        store = self.services.store
        wall_ns = self.services.world.clock.wall_ns
        left = 0
        while left == 0:
            left = _ERASED_AT_ONCE
            with store.transaction():
                for tenant in store.tenants():
                    retention_ns = tenant.quotas["Log Retention"]
                    before_ns = wall_ns - retention_ns + 1
                    left -= store.expire_logs(tenant.id, before_ns, size=left)

    def _recover(self) -> None:
        """Log the unfinished work of a dead process as failed, in its tenant's log."""
        services = self.services
        with services.store.transaction():
            for entry in services.store.abandoned_work():
                at_ns = services.world.clock.wall_ns
                services.store.add_log(replace(entry, id=services.new_id(), at_ns=at_ns))
                services.store.close_work(entry.id)

    def is_host_of_a_proxy(self, host: str) -> bool:
        """Return whether a hostname leads to a proxy: then every path is the proxy's (D-HOST)."""
        request = Request("GET", "/", ip=ASKING_IP, host=host)
        with self.services.store.transaction(write=False):
            return find_proxies(self.services, request)[1] is not None

    def refused_hosts(self) -> list[str]:
        """Return a line for each stored hostname of a proxy that is not routed (D-HOST)."""
        with self.services.store.transaction(write=False):
            return list(refused_hosts(self.services))

    def close(self) -> None:
        """Close the store; the engine is not used afterwards."""
        self.services.store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def drive(coroutine: Coroutine[Any, None, _Returned], clock: Clock) -> _Returned:
    """Run a coroutine to its end under a manual clock: each `Sleep` moves the clock.

    Never `asyncio.run`: Jupyter already runs a loop. Raises `TypeError` when the coroutine awaits
    anything but this world, or sleeps on a clock that cannot be moved.
    """
    try:
        while True:
            wish = coroutine.send(None)
            if not isinstance(wish, Sleep):
                raise TypeError(f"cannot drive {type(wish).__name__} by hand; use asyncio")
            if not isinstance(clock, ManualClock):
                raise TypeError("only a ManualClock can be driven by hand")
            clock.advance_ns(wish.for_ns)
    except StopIteration as stop:
        result: _Returned = stop.value
        return result
    finally:
        coroutine.close()


class _Options(Exception):
    """OPTIONS on a path without such an operation; holds the methods that the path supports."""

    def __init__(self, allowed: list[str]) -> None:
        super().__init__()
        self.allowed = ", ".join(allowed)


_FULL_PROBLEM: Final = Problem(
    503,
    "The service counts for as many callers as it can; try again.",
    clause="D-COUNTERS-BOUND",
    headers={"Retry-After": "1"},
)
_LOCKED_PROBLEM: Final = Problem(
    503,
    "Another program has the store locked; try again.",
    clause=None,
    headers={"Retry-After": "1"},
)


def _of_one_node(profile: Profile) -> Profile:
    """Return the profile; `InputError` where it asks for nodes that do not count exactly."""
    nodes = profile.nodes
    if not nodes.is_exact:
        raise InputError(
            f"profile.nodes.sharing = {nodes.sharing!r} must be 'exact': an engine is one node; "
            "play several in a simulation, with --fidelity limits or compiled"
        )
    return profile


def _tables(limits: LimitTable | Mapping[str, LimitTable] | None) -> dict[str, LimitTable]:
    if limits is None or isinstance(limits, LimitTable):
        return {"Default": LimitTable.default() if limits is None else limits}
    if not isinstance(limits, Mapping):
        raise wrong_type("limits", limits, "a LimitTable, or a mapping of names to them")
    if "Default" not in limits:
        raise InputError("limits holds no table 'Default'; the `Rate Limit` quota starts there")
    for name in limits:
        check_text("limits table", name)
    return dict(limits)


def _refusal(
    decision: Decision, status: RateLimitStatus | None, table: LimitTable, headers: dict[str, str]
) -> Response:
    """Return the answer to a request that the limits refuse (ERR-429), in plain words."""
    assert decision.rule is not None, "a refusal has its rule"
    row, _, counter = decision.rule.partition(".")  # LIM-PRIVATE is one row with two counters
    rule = table[row]
    window = _seconds(rule.window_ns)
    counted = counted_by(rule, counter)
    detail = f"More than {rule.limit_requests} requests in {window} {counted}."
    wait_s = status.retry_after_s if status is not None else -(-decision.wait_ns // SECOND_NS)
    if decision.outcome == "blocked" and rule.block_ns is not None:
        detail += f" Blocked for {_seconds(rule.block_ns)}; the"
    else:
        detail += " The"
    detail += f" next request can succeed in {max(1, wait_s)} s."
    response = Problem(429, detail, headers=headers, clause=row).response()  # obeys ERR-429
    response.decision = decision
    return response


def _seconds(duration_ns: int) -> str:
    return f"{duration_ns / SECOND_NS:g} s"


def _rate_fields(
    status: RateLimitStatus | None, profile: HttpProfile, decision: Decision
) -> dict[str, str]:
    """Return `Retry-After` (when refused), `RateLimit-Policy` and `RateLimit` (D-429-HEADERS)."""
    if status is None:
        return {}
    headers = {}
    if decision.refusing and profile.retry_after:
        headers["Retry-After"] = str(status.retry_after_s)
    if profile.rate_limit_fields:
        headers["RateLimit-Policy"], headers["RateLimit"] = _rate_texts(status)
    return headers


@lru_cache(maxsize=4096)  # most repeat
def _rate_texts(status: RateLimitStatus) -> tuple[str, str]:
    """Return the values of `RateLimit-Policy` and `RateLimit`."""
    rule, window_s = status.rule, -(-status.window_ns // SECOND_NS)
    reset_s = -(-status.reset_ns // SECOND_NS)
    return (
        f'"{rule}";q={status.limit_requests};w={window_s}',
        f'"{rule}";r={status.remaining_requests};t={reset_s}',
    )
