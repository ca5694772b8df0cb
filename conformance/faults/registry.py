"""Known-bad deployments: the real engine with one small, named change that breaks one clause.

A fault changes as little as possible, so that only a check that looks at its clause can notice it:
the suite is trusted because it is seen to fail. Each fault is one decorated function in `bodies`,
`records`, `access` or `limits`; its docstring says what is wrong.

Every fault is one of five changes of an engine: another profile, another limit table, other quotas
for its tenants, a change to the engine once it exists, or a wrapper around `submit`.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias, TypeVar

from conformance.context.answers import is_request, records_in
from engine import Engine, LimitTable, Profile, Request, Response
from engine.clauses import clause
from engine.errors import InputError, did_you_mean
from engine.identity import Caller
from engine.messages import Json, Problem
from engine.model import Tenant
from engine.tokens.strict_json import dumps, parse

Submit: TypeAlias = Callable[[Request], Awaitable[Response]]
Around: TypeAlias = "Callable[[FaultyEngine, Request, Submit], Awaitable[Response]]"
_Changed = TypeVar("_Changed", bound=Callable[..., Any])
_LONGEST_BODY_BYTES: Final = 40_000_000
_MODULES: Final = (
    "bodies",
    "records",
    "kinds",
    "places",
    "access",
    "limits",
)


@dataclass(frozen=True, slots=True)
class Fault:
    """One known-bad deployment.

    id: a stable word. clause: the clause that it breaks. description: one sentence.
    profile, limits, quotas: functions that replace what the engine and its tenants were given.
    prepare: changes the engine once it exists. around: wraps every request. operator_profile: the
    text of the profile file that the operator hands to the suite, empty for none.
    """

    id: str
    clause: str
    description: str
    profile: Callable[[Profile], Profile] | None = None
    limits: Callable[[LimitTable], LimitTable] | None = None
    quotas: Callable[[Mapping[str, Any]], Mapping[str, Any]] | None = None
    prepare: Callable[[FaultyEngine], None] | None = None
    around: Around | None = None
    operator_profile: str = ""

    def engine(self, **arguments: Any) -> FaultyEngine:  # noqa: ANN401 # reason: arguments of Engine
        """Return an engine with this fault; the arguments are those of `Engine`."""
        return FaultyEngine(self, **arguments)


class FaultyEngine(Engine):
    """The engine with one fault."""

    def __init__(self, fault: Fault, **arguments: Any) -> None:  # noqa: ANN401 # reason: arguments of Engine
        self._fault = fault
        self.notes: dict[str, str] = {}
        self._turns = Counter[str]()
        if fault.profile is not None:
            arguments["profile"] = fault.profile(arguments.get("profile") or Profile())
        if fault.limits is not None:
            table = arguments.get("limits") or LimitTable.default()
            assert isinstance(table, LimitTable), "faults change one table"
            arguments["limits"] = fault.limits(table)
        super().__init__(**arguments)
        if fault.prepare is not None:
            fault.prepare(self)

    def create_tenant(self, *given: Any, **named: Any) -> Tenant:  # noqa: ANN401 # reason: those of Engine
        """Create a tenant, and change its quotas as the fault does."""
        tenant = super().create_tenant(*given, **named)
        if self._fault.quotas is not None:
            for quota, value in self._fault.quotas(tenant.quotas).items():
                self.set_quota(tenant, quota, value)
        return tenant

    def turn(self, what: str) -> int:
        """Count one more of something; returns how many there are."""
        self._turns[what] += 1
        return self._turns[what]

    def identify(self, request: Request) -> Caller | None:
        """Return the caller of a request, None when it is unknown."""
        return self._identifier.identify(request)[0].caller

    @contextmanager
    def answering(
        self,
        caller: Caller,
        permission: str,
        containers: Iterable[str],
        change: Callable[[bool], bool],
    ) -> Iterator[None]:
        """Change the answer to whether a caller holds a permission, during the block."""
        remembered = caller._may  # noqa: SLF001 # reason: what a caller remembers is what it says
        before: dict[tuple[str, str | None], bool] = {
            (permission, path): caller.may(permission, path) for path in containers
        }
        remembered.update({asked: change(held) for asked, held in before.items()})
        try:
            yield
        finally:
            remembered.update(before)

    async def submit(self, request: Request) -> Response:
        """Answer one request with the fault."""
        around = self._fault.around
        if around is None:
            return await super().submit(request)
        body = request.body
        if body is not None and not isinstance(body, bytes | str | int | float | list | dict):
            whole = await body.read(_LONGEST_BODY_BYTES)
            request.body = body if whole is None else whole
        return await around(self, request, super().submit)


FAULTS: Final[dict[str, Fault]] = {}
"""Every fault that has been imported, by its id, in the order of definition."""


def all_faults() -> dict[str, Fault]:
    """Return every known-bad deployment by its id."""
    for name in _MODULES:
        importlib.import_module(f"conformance.faults.{name}")
    return FAULTS


def fault_of(fault_id: str) -> Fault:
    """Return the fault of that id; raises `InputError` with the nearest known one."""
    known = all_faults()
    if fault_id not in known:
        raise InputError(f"fault = {fault_id!r} does not exist{did_you_mean(fault_id, known)}")
    return known[fault_id]


# --- the ways to write one ----------------------------------------------------------------------


_Change: TypeAlias = Callable[..., Any]


class _Decorator(Protocol):
    """Registers a change, and returns it as it is."""

    def __call__(self, change: _Changed, /) -> _Changed:
        """Register the change."""


def register(
    fault_id: str,
    clause_id: str,
    field: str = "around",
    made: Callable[[_Change], object] | None = None,
    operator_profile: str = "",
) -> _Decorator:
    """Return the decorator that registers a fault.

    field: that of `Fault` which is the change, or what `made` makes of it. operator_profile: as in
    `Fault`.
    """

    def registered(change: _Changed) -> _Changed:
        clause(clause_id)
        description = " ".join((change.__doc__ or "").split())
        assert description, f"{fault_id} must say what is wrong"
        assert fault_id not in FAULTS, f"two faults are called {fault_id}"
        part: Any = change if made is None else made(change)
        FAULTS[fault_id] = Fault(
            fault_id, clause_id, description, operator_profile=operator_profile, **{field: part}
        )
        return change

    return registered


def fault(fault_id: str, clause_id: str) -> _Decorator:
    """Register `async (engine, request, submit) -> Response`: a wrapper around every request."""
    return register(fault_id, clause_id)


def fault_of_responses(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(engine, request, response) -> Response | None`: changes or replaces any answer."""
    return register(fault_id, clause_id, made=around_responses)


def around_responses(change: _Change) -> Around:
    """Return the wrapper that changes or replaces any answer."""

    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        response = await submit(request)
        return change(engine, request, response) or response

    return around


def _of_bodies(change: _Change) -> Around:
    async def around(_: FaultyEngine, request: Request, submit: Submit) -> Response:
        body = json_of(request) if _is_tokenize(request) else None
        changed = isinstance(body, dict | list)
        return await submit(with_body(request, change(body)) if changed else request)

    return around


def fault_of_requests(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(asked) -> body`: changes each token request object that the engine reads."""
    return register(fault_id, clause_id, made=_of_requests)


def _of_requests(change: _Change) -> Around:
    return _of_bodies(lambda body: requests_changed(body, change))


def fault_of_cards(fault_id: str, clause_id: str, field: str) -> _Decorator:
    """Register `(value) -> value`: changes one field of each card's data that the engine reads."""

    def made(change: _Change) -> Around:
        def changed(asked: dict[str, Any]) -> Json:
            data = asked.get("data")
            if asked["type"] == "card" and isinstance(data, dict) and field in data:
                asked["data"] = {**data, field: change(data[field])}
            return asked

        return _of_requests(changed)

    return register(fault_id, clause_id, made=made)


def fault_of_answers(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(body, answer) -> answer`: changes the answer to an accepted POST /tokenize."""

    def made(change: _Change) -> Around:
        def changed(_: FaultyEngine, request: Request, response: Response) -> None:
            if _is_tokenize(request) and response.ok:
                response.body = change(json_of(request), response.body)

        return around_responses(changed)

    return register(fault_id, clause_id, made=made)


def fault_of_refusals(fault_id: str, clause_id: str, status: int = 400) -> _Decorator:
    """Register `(body) -> bool`: whether a POST /tokenize is answered with the status instead."""

    def made(change: _Change) -> Around:
        async def around(_: FaultyEngine, request: Request, submit: Submit) -> Response:
            if _is_tokenize(request) and change(json_of(request)):
                return Problem(status, "Not here.").response()
            return await submit(request)

        return around

    return register(fault_id, clause_id, made=made)


def fault_of_records(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(record) -> None`: changes every token record in an answer."""

    def made(change: _Change) -> Around:
        def changed(_: FaultyEngine, __: Request, response: Response) -> None:
            for record in records_of(response):
                change(record)

        return around_responses(changed)

    return register(fault_id, clause_id, made=made)


def fault_of_engines(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(engine) -> None`: changes one part of an engine once it exists."""
    return register(fault_id, clause_id, "prepare")


def fault_of_limits(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(table) -> table`: changes the limit table."""
    return register(fault_id, clause_id, "limits")


def fault_of_profile(fault_id: str, clause_id: str, operator_profile: str = "") -> _Decorator:
    """Register `(profile) -> profile`: makes a choice that no conforming service may make.

    operator_profile: the text of a profile file, where the choice is wrong because the operator
    names another.
    """
    return register(fault_id, clause_id, "profile", operator_profile=operator_profile)


def fault_of_quotas(fault_id: str, clause_id: str) -> _Decorator:
    """Register `(quotas) -> quotas`: returns quotas that replace those of a tenant."""
    return register(fault_id, clause_id, "quotas")


# --- looking into requests and answers ----------------------------------------------------------


def _is_tokenize(request: Request) -> bool:
    return request.method == "POST" and request.path.partition("?")[0] == "/tokenize"


def json_of(request: Request) -> Json:
    """Return a request's body as JSON, None when it is not JSON."""
    if not isinstance(request.body, bytes):
        body: Json = request.body  # type: ignore[assignment] # reason: streams are drained before
        return body
    try:
        return parse(request.body)
    except Exception:  # noqa: BLE001 # reason: whatever is wrong with it, the engine says it
        return None


def with_body(request: Request, body: Json) -> Request:
    """Return the same request with another JSON body."""
    changed = copy(request)
    changed.body = dumps(body) if isinstance(request.body, bytes) else body
    return changed


def requests_changed(
    body: Json,
    change: Callable[[dict[str, Any]], Json],
    of_string: Callable[[str], Json] = str,
) -> Json:
    """Return the body with every token request object changed; of_string: each plain string."""
    if is_request(body):
        return change(dict(body)) if isinstance(body["type"], str) else body
    if isinstance(body, dict):
        return {key: requests_changed(part, change, of_string) for key, part in body.items()}
    if isinstance(body, list):
        return [requests_changed(part, change, of_string) for part in body]
    return of_string(body) if isinstance(body, str) else body


def records_of(response: Response) -> list[dict[str, Any]]:
    """Return the token records of an accepted answer, none of another one."""
    return list(records_in(response.body)) if response.ok else []
