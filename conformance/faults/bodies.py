"""Faults of POST /tokenize: bodies, request objects, atomicity, quota, deduplication.

Some show in a few answers of a hundred only.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from conformance.context.answers import elements_in, is_request, parts
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_answers,
    fault_of_cards,
    fault_of_engines,
    fault_of_profile,
    fault_of_records,
    fault_of_refusals,
    fault_of_requests,
    fault_of_responses,
    json_of,
    records_of,
    requests_changed,
    with_body,
)
from engine import Profile, Request, Response
from engine.messages import Json, Problem
from engine.tokens.strict_json import dumps
from engine.world import Sleep

_SPORADIC: Final = 50
"""A sporadic fault appears in one answer out of this many."""
_TURN: Final = 7
_MILLISECOND_NS: Final = 1_000_000
DEFAULT_CONTAINERS: Final = ("/general/high/", "/pci/high/")


def is_creating(request: Request) -> bool:
    """Whether a request creates tokens."""
    path = request.path.partition("?")[0]
    return request.method == "POST" and path in {"/tokenize", "/tokens"}


def requests_in(body: Json) -> Iterator[dict[str, Any]]:
    """Yield the token request objects of a body, in order."""
    return (part for part in elements_in(body) if isinstance(part, dict))


def is_record(answer: Json) -> bool:
    """Whether a part of an answer is a token record."""
    return isinstance(answer, dict) and "id" in answer and isinstance(answer.get("_extras"), dict)


# --- the mirror -----------------------------------------------------------------------------------


@fault_of_answers("array-reversed", "TOK-ARRAY")
def _array_reversed(_: Json, answer: Json) -> Json:
    """An array comes back in the opposite order."""
    return answer[::-1] if isinstance(answer, list) else answer


@fault_of_answers("strings-rotated", "TOK-ARRAY")
def _strings_rotated(_: Json, answer: Json) -> Json:
    """The identifiers of an array of strings come back shifted by one place."""
    if isinstance(answer, list) and all(isinstance(part, str) for part in answer):
        return answer[-1:] + answer[:-1]
    return answer


@fault_of_answers("array-sorted", "TOK-ARRAY")
def _array_sorted(_: Json, answer: Json) -> Json:
    """The identifiers of an array of strings come back in order of their text."""
    if isinstance(answer, list) and all(isinstance(part, str) for part in answer):
        return sorted(answer)
    return answer


@fault_of_answers("last-item-dropped", "TOK-ARRAY")
def _last_item_dropped(_: Json, answer: Json) -> Json:
    """The last element of an array is missing."""
    return answer[:-1] if isinstance(answer, list) and len(answer) > 1 else answer


@fault_of_answers("key-lower-cased", "TOK-PLAIN")
def _key_lower_cased(body: Json, answer: Json) -> Json:
    """The keys of a plain object come back in lower case."""
    if not isinstance(answer, dict) or is_request(body):
        return answer
    return {key.lower(): part for key, part in answer.items()}


@fault_of_answers("odd-key-dropped", "TOK-PLAIN")
def _odd_key_dropped(body: Json, answer: Json) -> Json:
    """The empty key of a plain object is missing."""
    if isinstance(answer, dict) and not is_request(body):
        answer.pop("", None)
    return answer


@fault_of_answers("values-swapped", "TOK-PLAIN")
def _values_swapped(body: Json, answer: Json) -> Json:
    """The identifiers of a plain object are assigned to its keys in sorted order."""
    if not isinstance(answer, dict) or is_request(body):
        return answer
    if not all(isinstance(part, str) for part in answer.values()):
        return answer
    return dict(zip(sorted(answer), answer.values(), strict=True))


@fault_of_answers("object-as-identifier", "TOK-OBJECT")
def _object_as_identifier(_: Json, answer: Json) -> Json:
    """A token request object alone comes back as its identifier."""
    return answer["id"] if isinstance(answer, dict) and is_record(answer) else answer


@fault_of_answers("record-in-list", "TOK-OBJECT")
def _record_in_list(_: Json, answer: Json) -> Json:
    """A token request object alone comes back as an array of one record."""
    return [answer] if is_record(answer) else answer


@fault_of_answers("record-wrapped", "TOK-OBJECT")
def _record_wrapped(body: Json, answer: Json) -> Json:
    """The record of a token request object comes back inside `{"token": …}`."""
    return {"token": answer} if is_request(body) else answer


@fault_of_answers("nested-flattened", "TOK-COMPOSITE")
def _nested_flattened(_: Json, answer: Json) -> Json:
    """An array of one element inside another array comes back as that element."""

    def flat(part: Json, *, inside: bool) -> Json:
        if isinstance(part, list):
            inner = [flat(inner_part, inside=True) for inner_part in part]
            return inner[0] if inside and len(inner) == 1 else inner
        if isinstance(part, dict) and not is_record(part):
            return {key: flat(inner_part, inside=False) for key, inner_part in part.items()}
        return part

    return flat(answer, inside=False)


@fault_of_answers("deep-part-unwalked", "TOK-COMPOSITE")
def _deep_part_unwalked(_: Json, answer: Json) -> Json:
    """What is nested deeper than four levels comes back empty."""

    def cut(part: Json, left: int) -> Json:
        if isinstance(part, list):
            return [cut(inner_part, left - 1) for inner_part in part] if left else []
        if isinstance(part, dict) and not is_record(part):
            return (
                {key: cut(inner_part, left - 1) for key, inner_part in part.items()} if left else {}
            )
        return part

    return cut(answer, 4)


@fault_of_answers("leaf-as-record", "TOK-LEAF")
def _leaf_as_record(body: Json, answer: Json) -> Json:
    """A plain string beside token request objects comes back as a record."""
    if not isinstance(body, list) or not any(map(is_request, body)):
        return answer
    assert isinstance(answer, list), "the engine mirrors"
    extras: Json = {"deduplicated": False}
    return [
        {"id": part, "type": "token", "_extras": extras} if isinstance(part, str) else part
        for part in answer
    ]


@fault_of_answers("leaf-prefixed", "TOK-LEAF")
def _leaf_prefixed(_: Json, answer: Json) -> Json:
    """In an object, the identifier of a plain string comes back with the prefix `token:`."""
    if isinstance(answer, dict) and not is_record(answer):
        return {k: f"token:{part}" if isinstance(part, str) else part for k, part in answer.items()}
    return answer


@fault_of_answers("same-id-twice", "TOK-LEAF")
def _same_id_twice(_: Json, answer: Json) -> Json:
    """The second of two strings in an array gets the first one's identifier."""
    if isinstance(answer, list) and len(answer) > 1 and isinstance(answer[0], str):
        answer[1] = answer[0]
    return answer


# --- token request objects ------------------------------------------------------------------------


@fault_of_refusals("encrypted-in-arrays-refused", "TOK-ENCRYPTED")
def _encrypted_in_arrays(body: Json) -> bool:
    """`encrypted` is accepted in a single object only, not inside an array."""
    return isinstance(body, list) and any("encrypted" in asked for asked in requests_in(body))


@fault_of_requests("encrypted-never-opened", "TOK-ENCRYPTED")
def _encrypted_never_opened(asked: dict[str, Any]) -> Json:
    """An encrypted payload is never decrypted: its text is stored as the data."""
    if asked["type"] == "token" and "encrypted" in asked and "data" not in asked:
        asked["data"] = str(asked.pop("encrypted"))
    return asked


@fault_of_requests("no-data-accepted", "TOK-ONE-OF")
def _no_data_accepted(asked: dict[str, Any]) -> Json:
    """A token request object with neither `data` nor `encrypted` creates an empty token."""
    if asked["type"] == "token" and not {"data", "encrypted", "token_intent_id"} & set(asked):
        asked["data"] = ""
    return asked


@fault_of_refusals("mixed-types-refused", "TOK-TYPES")
def _mixed_types_refused(body: Json) -> bool:
    """A request with both a card and a `token` is refused."""
    types = [asked["type"] for asked in requests_in(body)]
    return "card" in types and "token" in types


@fault_of_requests("unknown-type-accepted", "TOK-TYPES")
def _unknown_type_accepted(asked: dict[str, Any]) -> Json:
    """A token request object of an unknown type is accepted as a `token`."""
    return asked if asked["type"] in {"token", "card"} else {**asked, "type": "token"}


@fault_of_refusals("other-scripts-refused", "TOK-TOKEN-DATA")
def _other_scripts_refused(body: Json) -> bool:
    """`data` of a `token` may hold ASCII only."""
    texts = (asked.get("data") for asked in requests_in(body))
    return any(isinstance(data, str) and not data.isascii() for data in texts)


@fault_of_cards("month-as-text", "TOK-CARD-DATA", "expiration_month")
def _month_as_text(month: Json) -> Json:
    """A card's month may be a string of digits."""
    return int(month) if isinstance(month, str) and month.isdigit() else month


@fault_of_cards("number-as-integer", "TOK-CARD-DATA", "number")
def _number_as_integer(number: Json) -> Json:
    """A card's number may be an integer."""
    return str(number) if type(number) is int else number


@fault_of_requests("metadata-of-numbers", "TOK-METADATA")
def _metadata_of_numbers(asked: dict[str, Any]) -> Json:
    """A metadata value may be a number; it is stored as text."""
    metadata = asked.get("metadata")
    if isinstance(metadata, dict):
        asked["metadata"] = {
            key: str(part) if isinstance(part, int | float) else part
            for key, part in metadata.items()
        }
    return asked


@fault_of_requests("odd-metadata-ignored", "TOK-METADATA")
def _odd_metadata_ignored(asked: dict[str, Any]) -> Json:
    """Metadata that is not an object is dropped, and the token is created."""
    if not isinstance(asked.get("metadata", {}), dict):
        del asked["metadata"]
    return asked


@fault_of_requests("odd-expression-ignored", "TOK-FPEXPR")
def _odd_expression_ignored(asked: dict[str, Any]) -> Json:
    """A `fingerprint_expression` that is not a string is dropped, and the token is created."""
    if not isinstance(asked.get("fingerprint_expression", ""), str):
        del asked["fingerprint_expression"]
    return asked


@fault_of_requests("one-index-as-text", "TOK-INDEXES")
def _one_index_as_text(asked: dict[str, Any]) -> Json:
    """A single search index may be a string instead of an array."""
    if isinstance(asked.get("search_indexes"), str):
        asked["search_indexes"] = [asked["search_indexes"]]
    return asked


@fault_of_refusals("expression-refused", "TOK-FPEXPR")
def _expression_refused(body: Json) -> bool:
    """`fingerprint_expression` is refused on a `token`, as if only cards had fingerprints."""
    tokens = (asked for asked in requests_in(body) if asked["type"] == "token")
    return any("fingerprint_expression" in part for part in tokens)


@fault("broken-json-accepted", "TOK-JSON")
async def _broken_json_accepted(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A body that is not JSON is read as an empty object."""
    if is_creating(request) and isinstance(request.body, bytes) and json_of(request) is None:
        return await submit(with_body(request, {}))
    return await submit(request)


def containers_named(request: Request) -> list[Any]:
    """Return what stands in the arrays of containers that a request names."""
    return [
        path
        for asked in requests_in(json_of(request))
        if isinstance(asked.get("containers"), list)
        for path in asked["containers"]
    ]


@fault("container-ignored", "TOK-CONTAINER")
async def _container_ignored(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Every token goes into the default container of its type, whichever container is named."""
    caller = engine.identify(request)
    if caller is None or request.path != "/tokenize":
        return await submit(request)
    named = containers_named(request)
    if not all(isinstance(path, str) and path.startswith("/") for path in named):
        return await submit(request)
    if not all(caller.may("token:create", path.lower()) for path in named):
        return await submit(request)

    def without(asked: dict[str, Any]) -> Json:
        return {name: part for name, part in asked.items() if name != "containers"}

    changed = with_body(request, requests_changed(json_of(request), without)) if named else request
    passing = DEFAULT_CONTAINERS if named else ()
    with engine.answering(caller, "token:create", passing, lambda _: True):
        return await submit(changed)


@fault_of_profile(
    "container-field-not-as-told",
    "TOK-CONTAINER",
    operator_profile='[tokens]\ncontainer_field = "containers"\n',
)
def _container_field(profile: Profile) -> Profile:
    """`vault` names the container, and the operator says that `containers` does."""
    return profile.replace(tokens={"container_field": "vault"})


# --- an answer of 500 to what may be accepted or refused ------------------------------------------


def _alone(body: Json) -> dict[str, Any]:
    """Return the token request object that is the whole body, an empty one for another body."""
    return body if is_request(body) else {}


@fault_of_refusals("number-as-container-crashes", "TOK-CONTAINER", 500)
def _number_as_container(body: Json) -> bool:
    """A container that is a number is answered 500."""
    return _alone(body).get("containers") == 5


@fault_of_refusals("unknown-field-crashes", "TOK-OBJECT", 500)
def _unknown_field(body: Json) -> bool:
    """A token request object with an unknown field is answered 500."""
    return "no_such_field" in _alone(body)


@fault_of_refusals("object-as-data-crashes", "TOK-TOKEN-DATA", 500)
def _object_as_data(body: Json) -> bool:
    """A `token` whose `data` is an object is answered 500."""
    asked = _alone(body)
    return asked.get("type") == "token" and isinstance(asked.get("data"), dict)


@fault_of_refusals("bare-card-crashes", "TOK-CARD-DATA", 500)
def _bare_card(body: Json) -> bool:
    """A card of which only the number is sent is answered 500."""
    data = _alone(body).get("data")
    return isinstance(data, dict) and list(data) == ["number"]


@fault_of_refusals("cvc-expression-crashes", "TOK-FPEXPR", 500)
def _cvc_expression(body: Json) -> bool:
    """A `fingerprint_expression` over the cvc is answered 500."""
    return _alone(body).get("fingerprint_expression") == "{{ data.cvc }}"


@fault_of_refusals("data-and-encrypted-crash", "TOK-ONE-OF", 500)
def _data_and_encrypted(body: Json) -> bool:
    """`data` and `encrypted` together are answered 500."""
    return {"data", "encrypted"} <= _alone(body).keys()


@fault_of_refusals("metadata-crashes", "TOK-METADATA", 500)
def _metadata_crashes(body: Json) -> bool:
    """A token request object with metadata is answered 500, unless a key is `type`."""
    metadata = _alone(body).get("metadata")
    return isinstance(metadata, dict) and bool(metadata) and "type" not in metadata


@fault_of_refusals("indexes-crash", "TOK-INDEXES", 500)
def _indexes_crash(body: Json) -> bool:
    """A token request object with search indexes is answered 500."""
    return bool(_alone(body).get("search_indexes"))


@fault_of_refusals("empty-body-crashes", "TOK-COMPOSITE", 500)
def _empty_body(body: Json) -> bool:
    """An empty object or array is answered 500."""
    return body in ({}, [])


@fault_of_refusals("null-crashes", "TOK-COMPOSITE", 500)
def _null_crashes(body: Json) -> bool:
    """An object with a key whose value is null is answered 500."""
    return isinstance(body, dict) and not is_request(body) and None in body.values()


@fault_of_refusals("deep-body-refused", "TOK-COMPOSITE")
def _deep_body(body: Json) -> bool:
    """A body of more than seven levels is refused."""

    def levels(part: Json) -> int:
        inner = part.values() if isinstance(part, dict) else part if isinstance(part, list) else ()
        return 1 + max(map(levels, inner), default=0) if isinstance(part, dict | list) else 0

    return levels(body) > 7


# --- creating: atomicity, the token quota, deduplication ------------------------------------------

_MANY: Final = 1_000_000


@contextmanager
def quota_during(engine: FaultyEngine, request: Request, name: str, value: int) -> Iterator[None]:
    """Change a quota of the caller's tenant, if any, during the block."""
    caller = engine.identify(request)
    if caller is None:
        yield
        return
    before = caller.tenant.quotas[name]
    engine.set_quota(caller.tenant, name, value)
    try:
        yield
    finally:
        engine.set_quota(caller.tenant, name, before)


async def counting(
    engine: FaultyEngine, request: Request, submit: Submit, counted: int
) -> Response:
    """Submit a request; the Tokenize Limit applies only to what the fault counts."""
    caller = engine.identify(request)
    limit = None if caller is None else caller.tenant.quotas["Tokenize Limit"]
    if not is_creating(request) or not isinstance(limit, int) or counted > limit:
        return await submit(request)
    with quota_during(engine, request, "Tokenize Limit", _MANY):
        return await submit(request)


async def read_answered(
    engine: FaultyEngine, request: Request, submit: Submit, change: Callable[[bool], bool]
) -> Response:
    """Submit a request while the answer to whether its key holds token:read is changed."""
    caller = engine.identify(request)
    if caller is None or not is_creating(request):
        return await submit(request)
    with engine.answering(caller, "token:read", DEFAULT_CONTAINERS, change):
        return await submit(request)


async def _each_alone(request: Request, submit: Submit, elements: list[Any]) -> None:
    """Create each element in a request of its own."""
    for part in elements:
        await submit(with_body(request, [part]))


@fault("partial-creation", "TOK-ATOMIC")
async def _partial_creation(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The valid tokens of a refused request are created anyway."""
    response = await submit(request)
    if request.path == "/tokenize" and response.status == 400:
        await _each_alone(request, submit, list(elements_in(json_of(request))))
    return response


@fault("created-until-invalid", "TOK-ATOMIC")
async def _created_until_invalid(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The tokens before the first invalid one in a request are created anyway."""
    response = await submit(request)
    if request.path == "/tokenize" and response.status == 400:
        for part in elements_in(json_of(request)):
            if not (await submit(with_body(request, [part]))).ok:
                break
    return response


@fault("strings-before-invalid", "TOK-ATOMIC")
async def _strings_before_invalid(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The plain strings of a request with an invalid token are created anyway."""
    response = await submit(request)
    if request.path == "/tokenize" and response.status == 400:
        leaves = [part for part in elements_in(json_of(request)) if isinstance(part, str)]
        await _each_alone(request, submit, leaves)
    return response


@fault("first-five-created", "TOK-LIMIT")
async def _first_five_created(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A request over the limit is refused, but tokens up to the limit are created."""
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
    """The limit counts only the top-level elements of a body."""
    body = json_of(request)
    top = len(body) if isinstance(body, dict | list) and not is_request(body) else 1
    return await counting(engine, request, submit, top)


@fault("limit-by-objects", "TOK-LIMIT")
async def _limit_by_objects(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The limit counts token request objects; plain strings are free."""
    return await counting(engine, request, submit, len(list(requests_in(json_of(request)))))


@fault_of_refusals("known-values-crash", "TOK-LIMIT", 500)
def _known_values_crash(body: Json) -> bool:
    """A request with one token request object more than five times is answered 500."""
    objects = [asked for asked in requests_in(body) if "data" in asked]
    return len(objects) > 5 and all(part == objects[0] for part in objects)


@fault_of_records("dedup-claimed-false", "TOK-DEDUP")
def _dedup_claimed_false(record: dict[str, Any]) -> None:
    """The record of a deduplicated token says `deduplicated: false`."""
    record["_extras"] = {"deduplicated": False}


@fault_of_engines("dedup-creates-anew", "TOK-DEDUP")
def _dedup_creates_anew(engine: FaultyEngine) -> None:
    """A value stored by an earlier request is never found, so a new token is created."""
    store = engine.services.store
    store.duplicate = lambda tenant_id, dedup_hash: None  # type: ignore[method-assign] # noqa: ARG005 # reason: the fault


@fault_of_responses("dedup-with-new-id", "TOK-DEDUP")
def _dedup_with_new_id(engine: FaultyEngine, _: Request, response: Response) -> None:
    """A deduplicated record is marked as such but has a new identifier."""
    for record in records_of(response):
        if record["_extras"]["deduplicated"]:
            record["id"] = engine.services.new_id()


@fault_of_responses("dedup-not-in-one-request", "TOK-DEDUP")
def _dedup_not_in_one(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Equal values in one request get a token each, though deduplication is on."""
    if not response.ok or request.path != "/tokenize" or not isinstance(response.body, list):
        return
    seen: set[Any] = set()
    for place, part in enumerate(response.body):
        identifier = part["id"] if isinstance(part, dict) and is_record(part) else part
        if isinstance(identifier, str) and identifier in seen:
            fresh = engine.services.new_id()
            if isinstance(part, dict):
                part.update(id=fresh, _extras={"deduplicated": False})
            else:
                response.body[place] = fresh
        elif isinstance(identifier, str):
            seen.add(identifier)


def _keys_changed(answer: Json, change: Callable[[str], str]) -> Json:
    """Return an answer with the keys of its plain objects changed."""
    if isinstance(answer, dict) and not is_record(answer):
        return {change(key): _keys_changed(part, change) for key, part in answer.items()}
    return [_keys_changed(part, change) for part in answer] if isinstance(answer, list) else answer


# --- keys of objects ----------------------------------------------------------------------------


@fault_of_answers("keys-composed", "TOK-PLAIN")
def _keys_composed(_: Json, answer: Json) -> Json:
    """The keys of a plain object come back in Unicode's composed form (NFC)."""
    return _keys_changed(answer, lambda key: unicodedata.normalize("NFC", key))


@fault_of_answers("keys-decomposed", "TOK-PLAIN")
def _keys_decomposed(_: Json, answer: Json) -> Json:
    """The keys of a plain object come back in Unicode's decomposed form (NFD)."""
    return _keys_changed(answer, lambda key: unicodedata.normalize("NFD", key))


@fault_of_answers("keys-compatible", "TOK-PLAIN")
def _keys_compatible(_: Json, answer: Json) -> Json:
    """The keys of a plain object come back in Unicode's compatibility form (NFKC)."""
    return _keys_changed(answer, lambda key: unicodedata.normalize("NFKC", key))


@fault_of_answers("keys-trimmed", "TOK-PLAIN")
def _keys_trimmed(_: Json, answer: Json) -> Json:
    """The keys of a plain object come back without leading and trailing whitespace."""
    return _keys_changed(answer, str.strip)


@fault_of_answers("keys-cut-short", "TOK-PLAIN")
def _keys_cut_short(_: Json, answer: Json) -> Json:
    """The keys of a plain object come back with 64 characters at most."""
    return _keys_changed(answer, lambda key: key[:64])


@fault_of_answers("keys-without-joiners", "TOK-PLAIN")
def _keys_without_joiners(_: Json, answer: Json) -> Json:
    """Characters without width are dropped from the keys of a plain object."""
    return _keys_changed(answer, lambda key: key.replace("\u200b", "").replace("\ufeff", ""))


@fault_of_answers("prototype-dropped", "TOK-PLAIN")
def _prototype_dropped(body: Json, answer: Json) -> Json:
    """The key `__proto__` of a plain object is missing."""
    if isinstance(answer, dict) and not is_request(body):
        answer.pop("__proto__", None)
    return answer


@fault_of_answers("dotted-key-nested", "TOK-PLAIN")
def _dotted_key_nested(body: Json, answer: Json) -> Json:
    """A key with a dot comes back as a nested object."""
    if not isinstance(answer, dict) or is_request(body):
        return answer
    nested: dict[str, Any] = {}
    for key, part in answer.items():
        front, dot, rest = key.partition(".")
        nested[front if dot else key] = {rest: part} if dot else part
    return nested


# --- structure ----------------------------------------------------------------------------------


@fault_of_answers("array-of-one-unwrapped", "TOK-ARRAY")
def _array_of_one(_: Json, answer: Json) -> Json:
    """An array of one element comes back as that element."""
    return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


@fault_of_answers("array-as-object", "TOK-ARRAY")
def _array_as_object(_: Json, answer: Json) -> Json:
    """An array comes back as an object whose keys are the indexes."""
    if isinstance(answer, list):
        return {str(place): part for place, part in enumerate(answer)}
    return answer


@fault_of_answers("equal-strings-once", "TOK-ARRAY")
def _equal_strings_once(body: Json, answer: Json) -> Json:
    """Equal strings in an array come back as one element."""
    if not isinstance(body, list) or not isinstance(answer, list):
        return answer
    return [
        given
        for place, (part, given) in enumerate(zip(body, answer, strict=True))
        if not isinstance(part, str) or part not in body[:place]
    ]


@fault_of_answers("inner-record-as-identifier", "TOK-COMPOSITE")
def _inner_record(body: Json, answer: Json) -> Json:
    """A token request object within an object comes back as its identifier."""
    if not isinstance(answer, dict) or is_request(body):
        return answer
    return {key: part["id"] if is_record(part) else part for key, part in answer.items()}


@fault_of_answers("strings-as-records", "TOK-LEAF")
def _strings_as_records(body: Json, answer: Json) -> Json:
    """Every plain string comes back as a record."""
    if isinstance(body, str) and isinstance(answer, str):
        return {"id": answer, "type": "token"}
    if isinstance(body, list) and isinstance(answer, list):
        pairs = zip(body, answer, strict=True)
        return [_strings_as_records(part, given) for part, given in pairs]
    if isinstance(body, dict) and isinstance(answer, dict) and not is_request(body):
        return {key: _strings_as_records(part, answer[key]) for key, part in body.items()}
    return answer


@fault_of_answers("answer-wrapped", "TOK-PLAIN")
def _answer_wrapped(body: Json, answer: Json) -> Json:
    """A plain object comes back within another object."""
    return {"result": answer} if isinstance(body, dict) and not is_request(body) else answer


@fault_of_refusals("odd-text-refused", "TOK-LEAF")
def _odd_text_refused(body: Json) -> bool:
    """A plain string with a quotation mark or a backslash is refused."""
    return any(isinstance(part, str) and set(part) & set('"\\') for part in elements_in(body))


@fault_of_refusals("emoji-refused", "TOK-LEAF")
def _emoji_refused(body: Json) -> bool:
    """A plain string with a character above U+FFFF is refused."""
    leaves = (part for part in elements_in(body) if isinstance(part, str))
    return any(ord(letter) > 0xFFFF for leaf in leaves for letter in leaf)


@fault_of_requests("type-without-case", "TOK-OBJECT")
def _type_without_case(asked: dict[str, Any]) -> Json:
    """`type` is case-insensitive: TOKEN is read as `token`."""
    return {**asked, "type": asked["type"].lower()}


@fault_of_refusals("capital-type-is-type", "TOK-PLAIN")
def _capital_type(body: Json) -> bool:
    """A plain object with the key `Type` is refused, as if its type were unknown."""
    return isinstance(body, dict) and "Type" in body


# --- types taken too loosely --------------------------------------------------------------------


@fault_of_cards("year-as-text", "TOK-CARD-DATA", "expiration_year")
def _year_as_text(year: Json) -> Json:
    """A card's year may be a string of digits."""
    return int(year) if isinstance(year, str) and year.isdigit() else year


@fault_of_cards("cvc-as-number", "TOK-CARD-DATA", "cvc")
def _cvc_as_number(cvc: Json) -> Json:
    """A card's cvc may be a number."""
    return str(cvc) if isinstance(cvc, int) else cvc


@fault_of_cards("month-rounded", "TOK-CARD-DATA", "expiration_month")
def _month_rounded(month: Json) -> Json:
    """A month of 12.5 is read as 12."""
    return int(month) if isinstance(month, float) else month


@fault_of_requests("card-of-text", "TOK-CARD-DATA")
def _card_of_text(asked: dict[str, Any]) -> Json:
    """A card's data may be its number alone, as a string."""
    if asked["type"] == "card" and isinstance(asked.get("data"), str):
        asked["data"] = {"number": asked["data"]}
    return asked


@fault_of_requests("wrong-indexes-ignored", "TOK-INDEXES")
def _wrong_indexes(asked: dict[str, Any]) -> Json:
    """Search indexes that hold a value other than a string are ignored."""
    indexes = asked.get("search_indexes")
    if isinstance(indexes, list) and not all(isinstance(part, str) for part in indexes):
        del asked["search_indexes"]
    return asked


@fault_of_requests("empty-type-is-token", "TOK-TYPES")
def _empty_type(asked: dict[str, Any]) -> Json:
    """An empty `type` is read as `token`."""
    return {**asked, "type": "token"} if asked["type"] == "" else asked


@fault("charset-refused", "TOK-JSON")
async def _charset_refused(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """`Content-Type: application/json` with a charset is refused."""
    heads = request.headers or {}
    kinds = [text for name, text in heads.items() if name.lower() == "content-type"]
    if is_creating(request) and any("charset" in kind for kind in kinds):
        return Problem(415, "The body must be JSON.").response()
    return await submit(request)


@fault("first-value-only", "TOK-JSON")
async def _first_value_only(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Anything after the first JSON value of a body is ignored."""
    if is_creating(request) and isinstance(request.body, bytes) and b"} {" in request.body:
        cut = request.body.partition(b"} {")[0] + b"}"
        request = with_body(request, {})
        request.body = cut
    return await submit(request)


# --- deduplication ------------------------------------------------------------------------------


@fault_of_responses("dedup-between-tenants", "TOK-DEDUP")
def _dedup_between_tenants(engine: FaultyEngine, request: Request, response: Response) -> None:
    """A value stored by another tenant counts as a duplicate and returns that tenant's token."""
    body, caller, record = json_of(request), engine.identify(request), response.body
    if not response.ok or not is_creating(request) or caller is None:
        return
    if not isinstance(body, dict) or not is_request(body) or not isinstance(record, dict):
        return
    known = engine.notes.setdefault(
        f"value {body.get('data')}", f"{caller.tenant.id} {record['id']}"
    )
    owner, _, token_id = known.partition(" ")
    if owner != caller.tenant.id and caller.tenant.settings.get("deduplicate_tokens"):
        record["id"] = token_id
        record["_extras"]["deduplicated"] = True


@fault_of_responses("dedup-between-tenants-with-it", "TOK-DEDUP")
def _dedup_where_both_ask(engine: FaultyEngine, request: Request, response: Response) -> None:
    """With deduplication in two tenants, an equal value returns the other tenant's token."""
    caller = engine.identify(request)
    if not is_creating(request) or caller is None:
        return
    is_set = bool(caller.tenant.settings.get("deduplicate_tokens"))
    for asked, record in zip(elements_in(json_of(request)), records_of(response), strict=False):
        if isinstance(asked, dict) and (is_set or asked.get("deduplicate_token")):
            place = f"across {asked['type']} {asked.get('data')}"
            record["id"] = engine.notes.setdefault(place, record["id"])


@fault_of_responses("dedup-gives-away-a-record", "TOK-DEDUP")
def _dedup_gives_away(engine: FaultyEngine, request: Request, response: Response) -> None:
    """A value of another tenant returns its whole record: id, tenant, metadata."""
    body, caller, record = json_of(request), engine.identify(request), response.body
    if not response.ok or not is_creating(request) or caller is None:
        return
    if not isinstance(body, dict) or not is_request(body) or not isinstance(record, dict):
        return
    if not (caller.tenant.settings.get("deduplicate_tokens") or body.get("deduplicate_token")):
        engine.notes.setdefault(f"record {body.get('data')}", json.dumps(record))
        return
    known = json.loads(engine.notes.get(f"record {body.get('data')}", "{}"))
    if known and known["tenant_id"] != record["tenant_id"]:
        response.body = {**known, "_extras": {"deduplicated": True}}


@fault("dedup-races", "TOK-DEDUP")
async def _dedup_races(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Equal values sent at the same time get a token each."""
    body = json_of(request)
    if not is_creating(request) or not isinstance(body, dict | list):
        return await submit(request)
    place = f"under way {body}"
    is_first = place not in engine.notes
    engine.notes[place] = "1"
    response = await submit(request)
    await Sleep(20 * _MILLISECOND_NS)
    if is_first:
        del engine.notes[place]
    else:
        for record in records_of(response):
            record["id"] = engine.services.new_id()
            record["_extras"]["deduplicated"] = False
    return response


def _compare_otherwise(
    engine: FaultyEngine, request: Request, change: Callable[[str], str]
) -> None:
    """Change each value of the caller's tenant before it is compared, and not what is stored."""
    caller = engine.identify(request)
    if caller is not None and engine.turn(f"keys of {caller.tenant.id}") == 1:
        keys = engine.services.vault.of(caller.tenant.id)
        compared = keys.dedup
        keys.dedup = lambda message: compared(_changed_text(message, change))


def _changed_text(message: bytes, change: Callable[[str], str]) -> bytes:
    """Return what is compared with its last part, the value as JSON, changed."""
    front, separator, raw = message.rpartition(b"\0")
    value = json.loads(raw)
    return front + separator + (dumps(change(value)) if isinstance(value, str) else raw)


@fault("dedup-trims", "TOK-DEDUP")
async def _dedup_trims(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Values that differ only in leading or trailing whitespace count as equal."""
    _compare_otherwise(engine, request, str.strip)
    return await submit(request)


@fault("dedup-without-case", "TOK-DEDUP")
async def _dedup_without_case(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Values that differ only in case count as equal."""
    _compare_otherwise(engine, request, str.lower)
    return await submit(request)


@fault("dedup-composes", "TOK-DEDUP")
async def _dedup_composes(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Values that differ only in Unicode normalization count as equal."""
    _compare_otherwise(engine, request, lambda text: unicodedata.normalize("NFC", text))
    return await submit(request)


# --- quotas -------------------------------------------------------------------------------------


@fault("limit-of-distinct-strings", "TOK-LIMIT")
async def _limit_of_distinct(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Equal strings are counted once against the limit, and each creates a token."""
    leaves = list(elements_in(json_of(request)))
    if not all(isinstance(part, str) for part in leaves):
        return await submit(request)
    return await counting(engine, request, submit, len(set(leaves)))


@fault("limit-of-arrays", "TOK-LIMIT")
async def _limit_of_arrays(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The limit holds for arrays only: an object may hold up to 1,000 strings."""
    body = json_of(request)
    if request.path != "/tokenize" or not isinstance(body, dict) or is_request(body):
        return await submit(request)
    with quota_during(engine, request, "Tokenize Limit", 1_000):
        return await submit(request)


# --- in a few answers of a hundred --------------------------------------------------------------


def has_turn(engine: FaultyEngine, request: Request) -> bool:
    """Whether it is this answer's turn to be wrong."""
    is_tokenize = request.method == "POST" and request.path == "/tokenize"
    return is_tokenize and engine.turn("answer") % _SPORADIC == _TURN


def _is_plain(body: Json) -> bool:
    is_object = isinstance(body, dict) and not is_request(body)
    return is_object and all(isinstance(part, str) for part in parts(body))


@fault("sporadic-error", "TOK-PLAIN")
async def _sporadic_error(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """One in fifty plain objects is answered 500."""
    body = json_of(request)
    if _is_plain(body) and has_turn(engine, request):
        return Problem(500, "Something went wrong.").response()
    return await submit(request)


@fault_of_responses("sporadic-key-lost", "TOK-PLAIN")
def _sporadic_key_lost(engine: FaultyEngine, request: Request, response: Response) -> None:
    """One in fifty plain objects comes back without its last key."""
    body = json_of(request)
    is_answered = _is_plain(body) and response.ok and bool(response.body)
    if is_answered and has_turn(engine, request) and isinstance(response.body, dict):
        response.body.popitem()


@fault_of_responses("sporadic-order", "TOK-ARRAY")
def _sporadic_order(engine: FaultyEngine, request: Request, response: Response) -> None:
    """One in fifty arrays lacks its last element."""
    is_turn = isinstance(json_of(request), list) and has_turn(engine, request)
    if is_turn and response.ok and isinstance(response.body, list) and response.body:
        response.body.pop()


def is_fiftieth(engine: FaultyEngine, what: str) -> bool:
    """Whether this is a fiftieth occurrence of `what`."""
    return engine.turn(what) % _SPORADIC == 0


@fault_of_responses("sporadic-reversed", "TOK-ARRAY")
def _sporadic_reversed(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Every fiftieth array comes back in the opposite order."""
    body = response.body
    if response.ok and is_creating(request) and isinstance(body, list) and len(body) > 1:
        response.body = body[::-1] if is_fiftieth(engine, "array") else body
