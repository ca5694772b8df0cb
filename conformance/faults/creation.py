"""Faults of creating tokens: atomicity, the token quota, deduplication (seed 4, TOK-DEDUP)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from conformance.faults.bodies import elements_in, is_creating, is_record, is_request
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_answers,
    fault_of_engines,
    json_of,
    records_in,
    with_body,
)
from engine import Request, Response
from engine.messages import Json
from engine.model import Tenant, Token

__all__: list[str] = []

_MANY: Final = 1_000_000


def _none(tenant_id: str, dedup_hash: bytes) -> Token | None:
    del tenant_id, dedup_hash
    return None


@contextmanager
def _quota_during(
    engine: FaultyEngine, request: Request, name: str, value: int
) -> Iterator[Tenant | None]:
    """Let the tenant of a request have another quota meanwhile; gives the tenant."""
    caller = engine.identify(request)
    if caller is None:
        yield None
        return
    before = caller.tenant.quotas[name]
    engine.set_quota(caller.tenant, name, value)
    try:
        yield caller.tenant
    finally:
        engine.set_quota(caller.tenant, name, before)


async def _each_alone(request: Request, submit: Submit, elements: list[Any]) -> None:
    """Create some elements of a body each in a request of its own."""
    for one in elements:
        await submit(with_body(request, [one]))


@fault("partial-creation", "TOK-ATOMIC")
async def _partial_creation(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The valid tokens of a request that fails are created all the same."""
    del engine
    response = await submit(request)
    if request.path == "/tokenize" and response.status == 400:
        await _each_alone(request, submit, list(elements_in(json_of(request))))
    return response


@fault("created-until-invalid", "TOK-ATOMIC")
async def _created_until_invalid(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """What stands before the invalid token of a request is created all the same."""
    del engine
    response = await submit(request)
    if request.path == "/tokenize" and response.status == 400:
        for one in elements_in(json_of(request)):
            if not (await submit(with_body(request, [one]))).ok:
                break
    return response


@fault("strings-before-invalid", "TOK-ATOMIC")
async def _strings_before_invalid(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """The plain strings of a request with an invalid token are created all the same."""
    del engine
    response = await submit(request)
    if request.path == "/tokenize" and response.status == 400:
        leaves = [one for one in elements_in(json_of(request)) if isinstance(one, str)]
        await _each_alone(request, submit, leaves)
    return response


@fault("first-five-created", "TOK-LIMIT")
async def _first_five_created(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A request over the limit is refused, and as many tokens as are allowed are created."""
    response = await submit(request)
    caller = engine.identify(request)
    if request.path == "/tokenize" and response.status == 400 and caller is not None:
        elements = list(elements_in(json_of(request)))
        limit = caller.tenant.quotas["Tokenize Limit"]
        assert isinstance(limit, int)
        if len(elements) > limit:
            await _each_alone(request, submit, elements[:limit])
    return response


@fault("limit-by-top-level", "TOK-LIMIT")
async def _limit_by_top_level(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The limit counts the elements at the top of the body, not those within."""
    body = json_of(request)
    caller = engine.identify(request)
    if request.path != "/tokenize" or not isinstance(body, dict | list) or caller is None:
        return await submit(request)
    limit = caller.tenant.quotas["Tokenize Limit"]
    top = 1 if is_request(body) else len(body)
    within = sum(1 for _ in elements_in(body))
    if not isinstance(limit, int) or within <= limit or top > limit:
        return await submit(request)
    with _quota_during(engine, request, "Tokenize Limit", _MANY):
        return await submit(request)


@fault("limit-by-objects", "TOK-LIMIT")
async def _limit_by_objects(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The limit counts token request objects; plain strings are free."""
    caller = engine.identify(request)
    elements = list(elements_in(json_of(request))) if is_creating(request) else []
    limit = None if caller is None else caller.tenant.quotas["Tokenize Limit"]
    objects = sum(isinstance(one, dict) for one in elements)
    if not isinstance(limit, int) or len(elements) <= limit or objects > limit:
        return await submit(request)
    with _quota_during(engine, request, "Tokenize Limit", _MANY):
        return await submit(request)


@fault_of_answers("dedup-claimed-false", "TOK-DEDUP")
def _dedup_claimed_false(body: Json, answer: Json) -> Json:
    """A deduplicated token's record says that it is not."""
    del body
    for record in records_in(answer):
        record["_extras"] = {"deduplicated": False}
    return answer


@fault_of_engines("dedup-creates-anew", "TOK-DEDUP")
def _dedup_creates_anew(engine: FaultyEngine) -> None:
    """An equal value of an earlier request is never found, so that a new token is created."""
    engine.services.store.duplicate = _none  # type: ignore[method-assign] # reason: the fault


@fault("dedup-with-new-id", "TOK-DEDUP")
async def _dedup_with_new_id(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A deduplicated record says so, and shows an identifier of its own."""
    response = await submit(request)
    for record in records_in(response.body) if response.ok else ():
        if record["_extras"]["deduplicated"]:
            record["id"] = engine.services.new_id()
    return response


@fault("dedup-not-in-one-request", "TOK-DEDUP")
async def _dedup_not_in_one(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Equal values in one request get a token each, though deduplication is on."""
    response = await submit(request)
    if response.ok and request.path == "/tokenize" and isinstance(response.body, list):
        seen: set[Any] = set()
        for place, one in enumerate(response.body):
            found = one["id"] if isinstance(one, dict) and is_record(one) else one
            if isinstance(found, str) and found in seen:
                fresh = engine.services.new_id()
                if isinstance(one, dict):
                    one.update(id=fresh, _extras={"deduplicated": False})
                else:
                    response.body[place] = fresh
            elif isinstance(found, str):
                seen.add(found)
    return response
