"""An operation: one method on one path, with all its properties.

The registry (`engine.resources.OPERATIONS`) is the one list of what the service answers. The
router, the OpenAPI documents, the permissions table and the conformance plan are made from it.

A `Context` is one request on its way through an operation.

`carry_out` runs an operation that awaits the world, as begin → await → finish. Begin and finish
each run in a transaction, and none is open across the await, so that a slow
destination blocks no other request. Begin writes an intent to the store; finish, or a failure of
the await, removes it and writes the one log entry (D-LOGS). A kill between the two leaves the
intent, which the next start logs as failed.

`once` runs a POST that creates: with an `Idempotency-Key`, a repeated request creates only once
(D-IDEMPOTENCY). The first answer is kept for 24 h, by API key, path and `Idempotency-Key`, in the
transaction that created: a kill leaves both or neither, and the second of two concurrent requests
finds the first one's answer. The same body gets that answer again, another body 422 (IETF draft
httpapi-idempotency-key-header). Only what created something is kept: a refusal changed nothing, so
its request is simply answered anew.

An answer may show a key's text, so it is sealed as token data is; of the body and of the
`Idempotency-Key` the store holds keyed hashes.

A request body whose shape is a plain object has a form: a JSON Schema, written once, against which
bodies are checked and which the OpenAPI documents show. A `View` is the same for answers. Messages
name the place and the rule and never quote a value.

Faults are found one by one, and the search stops at the number that an answer names: a body may
have half a million. The elements of an array that is too long are not checked. A library for JSON
Schema names all missing or unknown members in one fault and takes 0.1 s to import.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from types import UnionType
from typing import Any, Final, Literal, TypeAlias, TypeVar

import orjson
from msgspec import Struct
from msgspec.structs import replace

from engine.identity import Caller
from engine.messages import Json, Problem, Request, Response, find_header
from engine.model import KeptAnswer, LogEntry, Proxy, Tenant
from engine.profile import Profile
from engine.store import Store
from engine.tokens.rules import Rules
from engine.tokens.stored import timestamp
from engine.tokens.strict_json import BodyErrors, dumps, escaped
from engine.vault import Vault
from engine.world import World

Schema: TypeAlias = Mapping[str, Any]

NAME: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": 200}
"""The name of a document."""


UUID: Final[Schema] = {"type": "string", "format": "uuid"}
INSTANT: Final[Schema] = {"type": "string", "format": "date-time"}
TEXT: Final[Schema] = {"type": "string"}
TEXTS: Final[Schema] = {"type": "array", "items": TEXT}
OWNED: Final[Mapping[str, Schema]] = {"id": UUID, "tenant_id": UUID}
MADE: Final[Mapping[str, Schema]] = {"created_by": UUID, "created_at": INSTANT}


def object_schema(
    properties: Mapping[str, Any],
    required: tuple[str, ...] = (),
    **more: Any,  # noqa: ANN401 # reason: further keywords
) -> dict[str, Any]:
    """Return the schema of an object that holds nothing else; `more` are further keywords."""
    schema: dict[str, Any] = {
        "type": "object",
        "properties": dict(properties),
        "additionalProperties": False,
        **more,
    }
    return schema | ({"required": list(required)} if required else {})


class View:
    """What answers show of a record: its fields, each with its schema for the OpenAPI documents."""

    def __init__(self, fields: Mapping[str, Schema]) -> None:
        self.fields = fields

    def of(self, record: object, **values: Any) -> dict[str, Any]:  # noqa: ANN401 # reason: any JSON
        """Return the fields of a record; values: those that it does not hold as they are shown."""
        document = {}
        for name, schema in self.fields.items():
            if name in values:
                document[name] = values[name]
            elif schema is INSTANT:
                document[name] = timestamp(getattr(record, f"{name}_ns"))
            else:
                document[name] = getattr(record, name)
        return document

    def schema(self, **more: Schema) -> dict[str, Any]:
        """Return the schema of an answer; more: what it shows besides."""
        fields = {**self.fields, **more}
        return object_schema(fields, tuple(fields))


def pointer(*parts: str | int) -> str:
    """Return the JSON Pointer of a place.

    >>> pointer("a/b", 0)
    '/a~1b/0'
    """
    return "".join(escaped(str(part)) for part in parts)


class BodySchema:
    """A request body's schema, ready to check bodies.

    clause: the clause that a body of another form breaks; field_clauses: the clauses for faults in
    certain fields, instead of it.
    """

    def __init__(
        self, schema: Schema, clause: str, field_clauses: Mapping[str, str] | None = None
    ) -> None:
        self.schema = schema
        self.clause = clause
        self._field_clauses = field_clauses or {}

    def check(self, body: Json) -> dict[str, Any]:
        """Return the body; raises `Problem` 400 with its faults by JSON Pointer, 1,000 at most."""
        faults = BodyErrors()
        detail = "The body is not of the form that is asked for."
        for place, message in _faults(self.schema, body):
            if faults.is_full:
                detail += f" The first {len(faults)} faults are named."
                break
            field = str(place[0]) if place else ""
            faults.add(pointer(*place), message, self._field_clauses.get(field, self.clause))
        if faults:
            raise Problem(400, detail, errors=faults, clause=faults.clause)
        assert isinstance(body, dict), "every form is an object"
        return body


Place: TypeAlias = tuple[str | int, ...]

_TYPES: Final[Mapping[str, type]] = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "null": type(None),
}
_BOUNDS: Final[Mapping[str, tuple[type | UnionType, str]]] = {
    "minLength": (str, "must hold at least {0} characters"),
    "maxLength": (str, "must hold at most {0} characters"),
    "maxItems": (list, "must hold at most {0} items"),
    "minimum": (int | float, "must be at least {0}"),
    "maximum": (int | float, "must be at most {0}"),
}


def _faults(schema: Schema, value: Json, place: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield the place and the rule of each fault of a value, by the keywords that forms use."""
    for keyword, rule in schema.items():
        broken = _broken_rule(keyword, rule, value)
        if broken is not None:
            yield place, broken
        elif isinstance(value, dict):
            yield from _member_faults(schema, keyword, value, place)
        elif keyword == "items" and isinstance(value, list):
            is_short = len(value) <= schema.get("maxItems", len(value))
            for index, item in enumerate(value if is_short else ()):
                yield from _faults(rule, item, (*place, index))


def _member_faults(
    schema: Schema, keyword: str, value: dict[str, Json], place: Place
) -> Iterator[tuple[Place, str]]:
    known: Any = schema.get("properties", {})
    others: Any = schema.get("additionalProperties")
    if keyword == "required":
        yield from (((*place, n), "is required") for n in schema["required"] if n not in value)
    elif keyword == "properties":
        for name, rule in known.items():
            if name in value:
                yield from _faults(rule, value[name], (*place, name))
    elif keyword == "additionalProperties":
        for name, member in value.items():
            if name not in known and others is False:
                yield (*place, name), "is an unknown field"
            elif name not in known:
                yield from _faults(others, member, (*place, name))


def _broken_rule(keyword: str, rule: Any, value: Json) -> str | None:  # noqa: ANN401 # reason: any JSON
    """Return the rule that a value breaks by itself, in words; None for none."""
    if keyword == "type":
        names = [rule] if isinstance(rule, str) else rule
        if isinstance(value, float) and value.is_integer():  # JSON has one kind of number
            value = int(value)
        fine = isinstance(value, tuple(_TYPES[name] for name in names))
        fine &= not isinstance(value, bool) or "boolean" in names  # Python's are integers too
        return None if fine else f"must be {', '.join(names)}"
    if keyword == "enum":
        return None if value in rule else f"must be one of {', '.join(rule)}"
    if keyword == "pattern":
        fine = not isinstance(value, str) or re.search(rule, value) is not None
        return None if fine else f"must match {rule}"
    kind, words = _BOUNDS.get(keyword, (str, ""))
    if not words or not isinstance(value, kind) or isinstance(value, bool):
        return None
    size: Any = len(value) if isinstance(value, str | list) else value
    fine = size >= rule if keyword.startswith("min") else size <= rule
    return None if fine else words.format(rule)


@dataclass(slots=True)
class Services:
    """The parts that the service hands to every operation.

    own_names: hostnames of the server itself, which no proxy may have (D-HOST).
    rules: the profile's choices about tokens, prepared. new_id returns a fresh UUID string.
    `running` holds what lives in the process only (reactor instances), by name.
    """

    profile: Profile
    rules: Rules
    store: Store
    vault: Vault
    world: World
    new_id: Callable[[], str]
    region: str
    running: dict[str, Any]
    own_names: frozenset[str] = frozenset()


Proxies: TypeAlias = tuple[Proxy | None, Proxy | None]
"""The proxy of the proxy key and the proxy of the custom hostname."""

NO_PROXIES: Final[Proxies] = (None, None)


class Context(Struct, eq=False):
    """One request on its way through an operation.

    params, query: from the path template and the query string.
    now_ns, wall_ns, steady_ns: the request's one instant on the monotonic clock, on the wall clock,
    and on the time that never goes back, by which deadlines are judged (D-CLOCK).
    proxies: the proxies that a proxy key and a custom hostname name.
    body: the parsed JSON, or the bytes where the operation takes them raw. raw: the bytes of a JSON
    body that came as such.
    prepared: what the operation's `prepare` has made of it.
    configurer: who configured what runs for the caller, and must hold its rights too (D-RIGHTS).
    rights, entity_ids: what a kept answer depends on, None where no answer is kept (D-IDEMPOTENCY).
    caller: the principal; None only where an operation asks for no key, since the service
    authenticates first. Such an operation reads `known_caller`.
    """

    services: Services
    request: Request
    caller: Caller
    params: Mapping[str, str]
    query: Mapping[str, str]
    now_ns: int
    wall_ns: int
    steady_ns: int
    proxies: Proxies = NO_PROXIES
    body: Json | bytes = None
    raw: bytes | None = None
    prepared: Any = None
    configurer: Caller | None = None
    rights: set[str] | None = None
    entity_ids: dict[str, None] | None = None

    def __repr__(self) -> str:
        return f"<Context of {self.request!r}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("request", self.request)]

    @property
    def known_caller(self) -> Caller | None:
        """The principal, None without one."""
        return self.caller

    @property
    def tenant(self) -> Tenant:
        """The caller's tenant."""
        return self.caller.tenant

    @property
    def is_bodiless(self) -> bool:
        """Whether no body came; JSON `null` is one."""
        return self.body == b"" or self.request.body is None

    @property
    def json(self) -> Json:
        """The body as JSON."""
        assert not isinstance(self.body, bytes), "this operation takes its body raw"
        return self.body

    def may(self, permission: str, container: str | None = None) -> bool:
        """Return whether the caller holds `permission`; an answer that is kept depends on it."""
        may = self.caller.may(permission, container)
        if self.configurer is not None:
            may = may and self.configurer.may(permission, container)
        if may and self.rights is not None:
            self.rights.add(permission if container is None else f"{permission} {container}")
        return may

    def shows(self, entity_id: str) -> None:
        """Note that the answer shows an entity: its deletion deletes a kept answer."""
        if self.entity_ids is not None:
            self.entity_ids[entity_id] = None

    def require(self, permission: str, container: str | None = None) -> None:
        """Raise a 403 problem unless the caller holds `permission` (D-PERMISSIONS, D-GRANT)."""
        if not self.may(permission, container):
            where = "" if container is None else f" on {container}"
            clause = "AUTH-CREATE" if permission == "token:create" else "D-PERMISSIONS"
            who = "The key"
            if self.caller.may(permission, container):
                who, clause = "The application that configured this", "D-RIGHTS"
            raise Problem(403, f"{who} lacks {permission}{where}.", clause=clause)

    def log(self, operation: str, entity_type: str, entity_id: str, status: int) -> None:
        """Append one log entry (D-LOGS)."""
        self.services.store.add_log(self.entry(operation, entity_type, entity_id, status))

    def entry(self, operation: str, entity_type: str, entity_id: str, status: int) -> LogEntry:
        """Return the log entry of what the caller has done to what; it holds no value."""
        actor, entry_id = self.caller.application, self.services.new_id()
        return LogEntry(
            entry_id,
            actor.tenant_id,
            self.wall_ns,
            operation,
            entity_type,
            entity_id,
            actor.id,
            status,
        )


Authentication: TypeAlias = Literal["key", "optional", "none"]
"""`key`: an API key is required; `optional`: the operation decides; `none`: never looked at."""

BodyForm: TypeAlias = Literal["none", "json", "merge-patch", "raw"]
"""How the body is read: not at all, as JSON of one of two media types, or by the operation.

One with a `raw` body reads it itself, with `bodies.read_raw`, because what may be sent depends on
a record (a proxy's transforms, a job's state) that is looked at first.
"""

Tier: TypeAlias = Literal["specified", "assumed"]
"""Whether the specification shows the operation's shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One operation.

    method: an HTTP method, or `ANY`.
    path: a template; `{name}` takes one segment, a last `{name...}` takes the rest or nothing.
    run: what answers, inside one transaction, after `prepare` where there is one, which judges the
    body with no transaction open and leaves its result as `context.prepared`; or
    run_async: what answers by awaiting the world. It opens its own transactions before and after
    (begin → await → finish) and none is open across an await.
    permission: the right it asks for, None when it asks for none or decides itself.
    form: the schema of its JSON body, where the body is a plain object.
    body_optional: no body at all is fine too.
    paged: it takes `start` and `size` and answers a page; `query`: what else the query may hold.
    body_limit_bytes: largest body by the profile (D-SIZE).
    is_costly: whether a small request may take more than a few milliseconds, because of what it
    reads or makes; it runs in the worker thread then.
    """

    name: str
    method: str
    path: str
    summary: str
    prepare: Callable[[Context], Any] | None = None
    run: Callable[[Context], Response] | None = None
    run_async: Callable[[Context], Coroutine[Any, Any, Response]] | None = None
    clauses: tuple[str, ...] = ()
    tier: Tier = "assumed"
    authentication: Authentication = "key"
    permission: str | None = None
    body: BodyForm = "none"
    body_optional: bool = False
    form: BodySchema | None = None
    paged: bool = False
    query: tuple[str, ...] = ()
    body_limit_bytes: Callable[[Profile], int] = attrgetter("http.body_limit_bytes")
    success_status: int = 200
    is_costly: bool = False

    @property
    def creates(self) -> bool:
        """Whether it is a POST that creates, which takes `Idempotency-Key` (D-IDEMPOTENCY)."""
        return self.method == "POST" and (self.permission or "").endswith(":create")

    @property
    def reads(self) -> bool:
        """Whether it changes nothing, except that reads of plaintext are logged (D-LOGS)."""
        return self.run is not None and (self.method == "GET" or self.name == "search_tokens")

    def __post_init__(self) -> None:
        assert (self.run is None) != (self.run_async is None), "one way to answer"


METHODS: Final = ("GET", "POST", "PUT", "PATCH", "DELETE")
"""What `ANY` stands for in an `Allow` header; the operation itself takes every method."""

FAILED_STATUS: Final = 500
"""The status of work that has not finished."""

LARGE_BYTES: Final = 16_384
"""Larger bodies are processed in the worker thread (D-BODY-COST): one may take 0.1 s."""

_Plan = TypeVar("_Plan")
_Result = TypeVar("_Result")


async def apart_if_large(context: Context, size_bytes: int, work: Callable[[], _Result]) -> _Result:
    """Run the work; for a large body in the worker thread, so that other requests go on."""
    if size_bytes <= LARGE_BYTES:
        return work()
    whose = context.known_caller or context.request.ip
    return await context.services.world.apart(work, whose)


async def carry_out(
    context: Context,
    entry: LogEntry,
    begin: Callable[[], _Plan],
    wait: Callable[[_Plan], Awaitable[_Result]],
    finish: Callable[[_Result], Response],
) -> Response:
    """Begin, await, finish; returns what finish answers.

    entry: the log entry of work that never finishes, under the work's id.
    begin, finish: each inside a transaction of its own. If begin raises, nothing is recorded.
    wait: with no transaction open. An exception from wait or finish propagates after the intent
        is removed.
    """
    services = context.services
    store = services.store
    with store.transaction():
        plan = begin()
        store.open_work(replace(entry, at_ns=services.world.clock.wall_ns))
    try:
        result = await wait(plan)
        with store.transaction():
            response = finish(result)
            _close(services, entry, response.status)
    except BaseException as error:
        with store.transaction():
            _close(services, entry, error.status if isinstance(error, Problem) else FAILED_STATUS)
        raise
    return response


def _close(services: Services, entry: LogEntry, status: int) -> None:
    services.store.close_work(entry.id)
    services.store.add_log(replace(entry, id=services.new_id(), status=status))


IDEMPOTENCY_KEY: Final = "Idempotency-Key"
"""The request header's name."""

IDEMPOTENCY_FORM: Final = r"[!-~]{1,255}"
"""Visible ASCII; the quotes of a structured field's string are part of the text."""

_CLAUSE: Final = "D-IDEMPOTENCY"
_CONTAINER: Final = "/idempotency/"


def once(operation: Operation, context: Context) -> Response:
    """Answer a request that has an `Idempotency-Key`, inside the caller's transaction.

    Raises `Problem` as `first_answer` does.
    """
    assert operation.run is not None, "what creates is one transaction"
    kept_answer = first_answer(context)
    if kept_answer is not None:
        return kept_answer
    assert context.rights is not None, "noted since the body was read"
    assert context.entity_ids is not None, "likewise"
    response = operation.run(context)
    if response.ok:
        services, tenant_id = context.services, context.tenant.id
        record_id, body_hash = _request_hashes(context)
        answer = dumps({"body": response.body, "headers": response.headers})
        keys = services.vault.of(tenant_id)
        services.store.put(
            KeptAnswer(
                record_id,
                tenant_id,
                body_hash,
                response.status,
                keys.seal(_CONTAINER, record_id, answer, "answer"),
                context.wall_ns,
                context.steady_ns + _kept_for_ns(operation, context),
                tuple(sorted(context.rights)),
                tuple(context.entity_ids),
            )
        )
    return response


def first_answer(context: Context) -> Response | None:
    """Return the answer that was kept, None where there is none; inside a transaction.

    Raises `Problem` 400 for a header of another form, 403 for a caller that lacks a right which
    the first answer needed (D-RIGHTS), 422 for another body than the first one's.
    """
    record_id, body_hash = _request_hashes(context)
    services = context.services
    kept_answer = services.store.get(KeptAnswer, record_id)
    if kept_answer is None or kept_answer.until_ns <= context.steady_ns:
        return None
    for right in kept_answer.rights:
        permission, _, container = right.partition(" ")
        context.require(permission, container or None)
    if kept_answer.body_hash != body_hash:
        raise Problem(
            422,
            "This Idempotency-Key came with another body before; take a new one.",
            clause=_CLAUSE,
        )
    keys = services.vault.of(context.tenant.id)
    opened = orjson.loads(keys.open(_CONTAINER, record_id, kept_answer.sealed_answer, "answer"))
    return Response(kept_answer.status, opened["body"], opened["headers"])


def _request_hashes(context: Context) -> tuple[str, bytes]:
    """Return the id of the request's record and the hash of its body, both under tenant keys."""
    text = find_header(context.request.headers, IDEMPOTENCY_KEY) or ""
    if re.fullmatch(IDEMPOTENCY_FORM, text) is None:
        raise Problem(
            400, f"{IDEMPOTENCY_KEY} must hold 1 to 255 visible ASCII characters.", clause=_CLAUSE
        )
    keyed_hash = context.services.vault.of(context.tenant.id).index
    path = context.request.path.partition("?")[0]
    name = f"\0idempotency\0{context.caller.key.id}\0{path}\0{text}"
    body = context.body if isinstance(context.body, bytes) else dumps(context.body)
    return keyed_hash(name.encode("latin-1")).hex(), keyed_hash(b"\0body\0" + body)


def _kept_for_ns(operation: Operation, context: Context) -> int:
    """Return how long to keep the answer: no longer than any cvc that it may show (D-CVC)."""
    profile = context.services.profile
    retention_ns: int = context.tenant.quotas["CVC Retention"]
    kept_ns = profile.http.idempotency_kept_ns
    shows_cvc = profile.tokens.plaintext_reads and operation.name == "create_token"
    return min(kept_ns, retention_ns) if shows_cvc else kept_ns
