"""Faults of authentication, permissions and error answers (sections 5 and 7)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from copy import copy
from typing import Any, Final, TypeVar

from conformance.context.answers import elements_in
from conformance.faults.bodies import (
    DEFAULT_CONTAINERS,
    containers_named,
    is_creating,
    is_fiftieth,
    read_answered,
)
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_records,
    fault_of_responses,
    json_of,
    register,
)
from engine import Request, Response
from engine.limits import RateLimitStatus, Subject
from engine.messages import Decision

_Fields = TypeVar("_Fields", bound=Callable[[Subject], dict[str, Any]])
_COMPARED: Final = 36
_DEFAULTS: Final = {"token": "/general/high/", "card": "/pci/high/"}


# --- the key ------------------------------------------------------------------------------------


def _as_known(request: Request, key: str) -> Request:
    changed = copy(request)
    changed.key = key
    return changed


def _first_key(engine: FaultyEngine, request: Request) -> str | None:
    """Return the first key with token:create on /pci/high/ that was used, and remember it."""
    caller = engine.identify(request)
    if caller is not None and request.key is not None and caller.may("token:create", "/pci/high/"):
        engine.notes.setdefault("key", request.key)
    return engine.notes.get("key")


@fault("unknown-key-accepted", "AUTH-HEADER")
async def _unknown_key_accepted(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A key that does not exist is accepted."""
    known = _first_key(engine, request)
    if known is not None and request.key is not None and engine.identify(request) is None:
        return await submit(_as_known(request, known))
    return await submit(request)


@fault("no-key-accepted", "AUTH-HEADER")
async def _no_key_accepted(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A request without any key is answered as if it had one."""
    known = _first_key(engine, request)
    if known is not None and request.key is None and is_creating(request):
        return await submit(_as_known(request, known))
    return await submit(request)


@fault("key-cut-short-accepted", "AUTH-HEADER")
async def _key_cut_short(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A key is compared by its first 36 characters only."""
    asked = request.key
    if asked is None or len(asked) < _COMPARED:
        return await submit(request)
    if engine.identify(request) is not None:
        engine.notes[asked[:_COMPARED]] = asked
    return await submit(_as_known(request, engine.notes.get(asked[:_COMPARED], asked)))


# --- permissions --------------------------------------------------------------------------------


def _container_of(element: Any) -> str:  # noqa: ANN401 # reason: any JSON
    """Return the container that an element of a valid body goes to."""
    if not isinstance(element, dict):
        return _DEFAULTS["token"]
    named = element.get("containers")
    if isinstance(named, list) and named and isinstance(named[0], str):
        return named[0].lower()
    return _DEFAULTS.get(str(element["type"]), _DEFAULTS["token"])


async def _allowing(
    engine: FaultyEngine,
    request: Request,
    submit: Submit,
    *,
    is_first_checked: bool = False,
) -> Response:
    """Submit a request with token:create granted for its containers.

    is_first_checked: only if its key holds the permission for the first of them.
    """
    caller = engine.identify(request)
    if caller is None or not is_creating(request):
        return await submit(request)
    passing = [_container_of(element) for element in elements_in(json_of(request))]
    if is_first_checked and passing and not caller.may("token:create", passing[0]):
        passing = []
    with engine.answering(caller, "token:create", passing, lambda _: True):
        return await submit(request)


@fault("first-container-only", "AUTH-CREATE")
async def _first_container_only(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The right to create is checked on the first container of a request only."""
    return await _allowing(engine, request, submit, is_first_checked=True)


@fault("default-container-unchecked", "AUTH-CREATE")
async def _default_container(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The right to create is checked on containers that are named, not on default ones."""
    body = json_of(request) if is_creating(request) else None
    if any(isinstance(element, dict) and "containers" in element for element in elements_in(body)):
        return await submit(request)
    return await _allowing(engine, request, submit)


@fault("create-unchecked", "AUTH-CREATE")
async def _create_unchecked(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Every known key may create tokens."""
    return await _allowing(engine, request, submit)


@fault("read-ignored", "AUTH-READ")
async def _read_ignored(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A deduplicated record is redacted, whether or not the key holds token:read."""
    return await read_answered(engine, request, submit, lambda _: False)


@fault("read-not-asked-for", "AUTH-READ")
async def _read_not_asked_for(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A deduplicated record is never redacted."""
    return await read_answered(engine, request, submit, lambda _: True)


@fault_of_records("redacted-for-readers", "AUTH-READ")
def _redacted_for_readers(record: dict[str, Any]) -> None:
    """A deduplicated record has no metadata, even for a key with token:read."""
    if record["_extras"]["deduplicated"]:
        record.pop("metadata", None)


@fault("forbidden-and-created", "AUTH-CREATE")
async def _forbidden_and_created(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A request without token:create gets 403, but its tokens are created."""
    response = await submit(request)
    caller = engine.identify(request)
    if response.status == 403 and is_creating(request) and caller is not None:
        with engine.answering(caller, "token:create", DEFAULT_CONTAINERS, lambda _: True):
            await submit(request)
    return response


@fault("container-by-beginning", "AUTH-CREATE")
async def _container_by_beginning(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """token:create on /pci/ also holds for every container whose path begins with /pci."""
    caller = engine.identify(request)
    if caller is None or not is_creating(request):
        return await submit(request)
    may = caller.may("token:create", "/pci/")
    named = [path for path in containers_named(request) if isinstance(path, str)]
    passing = [path for path in named if may and path.startswith("/pci")]
    with engine.answering(caller, "token:create", passing, lambda _: True):
        return await submit(request)


# --- classes of the limits ----------------------------------------------------------------------


def change_subjects(engine: FaultyEngine, fields: Callable[[Subject], dict[str, Any]]) -> None:
    """Let an engine's limiter see every request with some fields changed."""
    decide = engine.limiter.decide_with_status
    names = [name for name in Subject.__slots__ if not name.startswith("_")]

    def changed(now_ns: int, subject: Subject) -> tuple[Decision, RateLimitStatus | None]:
        values = {name: getattr(subject, name) for name in names} | fields(subject)
        return decide(now_ns, Subject(**values))

    engine.limiter.decide_with_status = changed  # type: ignore[method-assign] # reason: the fault


def fault_of_subjects(fault_id: str, clause_id: str) -> Callable[[_Fields], _Fields]:
    """Register `(subject) -> fields`: those that the limiter sees changed."""

    def made(fields: Callable[[Subject], dict[str, Any]]) -> Callable[[FaultyEngine], None]:
        return lambda engine: change_subjects(engine, fields)

    return register(fault_id, clause_id, "prepare", made)


@fault_of_subjects("public-as-private", "AUTH-KINDS")
def _public_as_private(subject: Subject) -> dict[str, Any]:
    """A public application is limited as a private one."""
    return {"application_kind": "private"} if subject.application_kind == "public" else {}


@fault_of_subjects("management-without-class", "AUTH-KINDS")
def _management_without_class(subject: Subject) -> dict[str, Any]:
    """A management application has no rate-limit class."""
    return {"application_kind": None} if subject.application_kind == "management" else {}


@fault_of_subjects("everything-legacy", "AUTH-LEGACY")
def _everything_legacy(subject: Subject) -> dict[str, Any]:
    """Every key counts as a legacy key."""
    return {"legacy": subject.key_id is not None}


@fault_of_subjects("legacy-unknown", "AUTH-LEGACY")
def _legacy_unknown(_: Subject) -> dict[str, Any]:
    """A legacy key is limited like any other key."""
    return {"legacy": False}


# --- error answers ------------------------------------------------------------------------------


@fault_of_responses("busy-for-too-many", "ERR-429")
def _busy_for_too_many(_: FaultyEngine, __: Request, response: Response) -> Response | None:
    """A rate-limited request gets 503."""
    return dataclasses.replace(response, status=503) if response.status == 429 else None


@fault_of_responses("forbidden-while-blocked", "ERR-429")
def _forbidden_while_blocked(_: FaultyEngine, __: Request, response: Response) -> Response | None:
    """A request refused by a block gets 403; one refused by a throttle gets 429."""
    is_blocked = response.decision.outcome == "blocked"
    return dataclasses.replace(response, status=403) if is_blocked else None


@fault_of_responses("forbidden-after-first", "ERR-429")
def _forbidden_after(engine: FaultyEngine, request: Request, response: Response) -> Response | None:
    """The request that starts a block gets 429; requests refused during it get 403."""
    if response.decision.outcome != "blocked" or request.key is None:
        return None
    place = f"blocked {request.key} {request.ip}"
    is_first = place not in engine.notes
    engine.notes[place] = request.path
    return None if is_first else dataclasses.replace(response, status=403)


@fault_of_responses("gateway-timeout", "ERR-408")
def _gateway_timeout(_: FaultyEngine, __: Request, response: Response) -> Response | None:
    """A proxy whose destination takes too long answers 504."""
    return dataclasses.replace(response, status=504) if response.status == 408 else None


@fault_of_responses("sporadic-status", "ERR-429")
def _sporadic_status(engine: FaultyEngine, _: Request, response: Response) -> Response | None:
    """Every fiftieth refusal is 403 and not 429."""
    is_rare = response.status == 429 and is_fiftieth(engine, "refusal")
    return dataclasses.replace(response, status=403) if is_rare else None
