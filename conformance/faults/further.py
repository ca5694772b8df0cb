"""Further faults of bodies, records, permissions, quotas and deduplication.

Text that is normalized, types that are read too loosely, a field that is lost, tokens shared
between tenants, races between two requests, and faults in one answer out of fifty.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import unicodedata
from collections.abc import Callable
from typing import Any, Final

from conformance.faults.bodies import (
    containers_named,
    counting,
    elements_in,
    is_creating,
    is_record,
    is_request,
    quota_during,
)
from conformance.faults.records import asked_and_given, change_metadata, change_time, masks_in
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_answers,
    fault_of_bodies,
    fault_of_cards,
    fault_of_records,
    fault_of_refusals,
    fault_of_requests,
    fault_of_responses,
    json_of,
    records_in,
    records_of,
    with_body,
)
from engine import Request, Response
from engine.messages import Json, Problem
from engine.world import Sleep

_SPORADIC: Final = 50
"""A sporadic fault appears in one answer out of this many."""
_TURN: Final = 7
_MILLISECOND_NS: Final = 1_000_000


def _keys_changed(answer: Json, change: Callable[[str], str]) -> Json:
    """Return an answer with the keys of its plain objects changed."""
    if isinstance(answer, dict) and not is_record(answer):
        return {change(key): _keys_changed(one, change) for key, one in answer.items()}
    return [_keys_changed(one, change) for one in answer] if isinstance(answer, list) else answer


def _leaves_changed(body: Json, change: Callable[[str], str]) -> Json:
    """Return a body with its plain strings and the data of its tokens changed."""
    if isinstance(body, str):
        return change(body)
    if isinstance(body, list):
        return [_leaves_changed(one, change) for one in body]
    if isinstance(body, dict) and is_request(body):
        data = body.get("data")
        return {**body, "data": change(data)} if isinstance(data, str) else body
    if isinstance(body, dict):
        return {key: _leaves_changed(one, change) for key, one in body.items()}
    return body


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
    found: dict[str, Any] = {}
    for key, one in answer.items():
        front, dot, rest = key.partition(".")
        found[front if dot else key] = {rest: one} if dot else one
    return found


# --- structure ----------------------------------------------------------------------------------


@fault_of_answers("array-of-one-unwrapped", "TOK-ARRAY")
def _array_of_one(_: Json, answer: Json) -> Json:
    """An array of one element comes back as that element."""
    return answer[0] if isinstance(answer, list) and len(answer) == 1 else answer


@fault_of_answers("array-as-object", "TOK-ARRAY")
def _array_as_object(_: Json, answer: Json) -> Json:
    """An array comes back as an object whose keys are the indexes."""
    if isinstance(answer, list):
        return {str(place): one for place, one in enumerate(answer)}
    return answer


@fault_of_answers("equal-strings-once", "TOK-ARRAY")
def _equal_strings_once(body: Json, answer: Json) -> Json:
    """Equal strings in an array come back as one element."""
    if not isinstance(body, list) or not isinstance(answer, list):
        return answer
    return [
        given
        for place, (one, given) in enumerate(zip(body, answer, strict=True))
        if not isinstance(one, str) or one not in body[:place]
    ]


@fault_of_answers("inner-record-as-identifier", "TOK-OBJECT")
def _inner_record(body: Json, answer: Json) -> Json:
    """A token request object within an object comes back as its identifier."""
    if not isinstance(answer, dict) or is_request(body):
        return answer
    return {key: one["id"] if is_record(one) else one for key, one in answer.items()}


@fault_of_answers("strings-as-records", "TOK-LEAF")
def _strings_as_records(body: Json, answer: Json) -> Json:
    """Every plain string comes back as a record."""
    if isinstance(body, str) and isinstance(answer, str):
        return {"id": answer, "type": "token"}
    if isinstance(body, list) and isinstance(answer, list):
        pairs = zip(body, answer, strict=True)
        return [_strings_as_records(one, given) for one, given in pairs]
    if isinstance(body, dict) and isinstance(answer, dict) and not is_request(body):
        return {key: _strings_as_records(one, answer[key]) for key, one in body.items()}
    return answer


@fault_of_answers("answer-wrapped", "TOK-PLAIN")
def _answer_wrapped(body: Json, answer: Json) -> Json:
    """A plain object comes back within another object."""
    return {"result": answer} if isinstance(body, dict) and not is_request(body) else answer


@fault_of_refusals("odd-text-refused", "TOK-LEAF")
def _odd_text_refused(body: Json) -> bool:
    """A plain string with a quotation mark or a backslash is refused."""
    return any(isinstance(one, str) and set(one) & set('"\\') for one in elements_in(body))


@fault_of_refusals("emoji-refused", "TOK-LEAF")
def _emoji_refused(body: Json) -> bool:
    """A plain string with a character above U+FFFF is refused."""
    leaves = (one for one in elements_in(body) if isinstance(one, str))
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
    if isinstance(indexes, list) and not all(isinstance(one, str) for one in indexes):
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


# --- records ------------------------------------------------------------------------------------


@fault_of_responses("tenant-of-the-first", "REC-TENANT")
def _tenant_of_the_first(engine: FaultyEngine, _: Request, response: Response) -> None:
    """`tenant_id` is always that of the first tenant that sent a request."""
    for record in records_of(response):
        record["tenant_id"] = engine.notes.setdefault("tenant", record["tenant_id"])


@fault_of_records("created-by-the-tenant", "REC-CREATED")
def _created_by_the_tenant(record: dict[str, Any]) -> None:
    """`created_by` is the id of the tenant instead of the application."""
    record["created_by"] = record["tenant_id"]


@fault_of_records("created-in-local-time", "REC-CREATED")
def _created_in_local_time(record: dict[str, Any]) -> None:
    """`created_at` is the local time of a place two hours ahead, labelled as UTC."""
    change_time(record, lambda moment: moment + dt.timedelta(hours=2))


@fault_of_records("created-at-noon", "REC-CREATED")
def _created_at_noon(record: dict[str, Any]) -> None:
    """`created_at` is the noon of the day of creation."""
    change_time(record, lambda made: made.replace(hour=12, minute=0, second=0, microsecond=0))


@fault_of_records("type-always-token", "REC-TYPE")
def _type_always_token(record: dict[str, Any]) -> None:
    """A card's record says `token`."""
    record["type"] = "token"


@fault_of_records("id-in-braces", "REC-ID")
def _id_in_braces(record: dict[str, Any]) -> None:
    """A record's `id` is enclosed in braces."""
    record["id"] = f"{{{record['id']}}}"


@fault_of_answers("one-id-a-request", "REC-ID")
def _one_id_a_request(_: Json, answer: Json) -> Json:
    """All records of a request have one identifier."""
    records = list(records_in(answer))
    for record in records[1:]:
        record["id"] = records[0]["id"]
    return answer


@fault_of_answers("extras-missing-in-arrays", "REC-EXTRAS")
def _extras_missing(body: Json, answer: Json) -> Json:
    """Records in an array have no `_extras`."""
    for record in list(records_in(answer)) if isinstance(body, list) else ():
        del record["_extras"]
    return answer


@fault_of_records("mask-lower-case", "REC-CARD-MASK")
def _mask_lower_case(record: dict[str, Any]) -> None:
    """The mask is in lower case."""
    for mask in masks_in(record):
        mask["number"] = mask["number"].lower()


@fault_of_records("mask-without-year", "REC-CARD-MASK")
def _mask_without_year(record: dict[str, Any]) -> None:
    """The masked object lacks the year."""
    for mask in masks_in(record):
        mask.pop("expiration_year", None)


@fault_of_records("mask-year-of-two-digits", "REC-CARD-MASK")
def _mask_year_short(record: dict[str, Any]) -> None:
    """The masked object holds the last two digits of the year."""
    for mask in masks_in(record):
        if "expiration_year" in mask:
            mask["expiration_year"] %= 100


@fault_of_records("mask-shows-cvc-length", "REC-CARD-MASK")
def _mask_shows_cvc(record: dict[str, Any]) -> None:
    """The masked object holds a masked cvc too."""
    for mask in masks_in(record):
        mask["cvc"] = "X" * 3


@fault_of_responses("mask-shows-six", "REC-CARD-MASK")
def _mask_shows_six(_: FaultyEngine, request: Request, response: Response) -> None:
    """The mask of a card shows its first six digits too."""
    for asked, record in asked_and_given(request, response):
        for mask in masks_in(record):
            mask["number"] = asked["data"]["number"][:6] + mask["number"][6:]


@fault_of_records("card-metadata-lost", "REC-METADATA")
def _card_metadata_lost(record: dict[str, Any]) -> None:
    """A card's metadata never comes back."""
    if record["type"] == "card":
        record.pop("metadata", None)


@fault_of_records("metadata-values-cut", "REC-METADATA")
def _metadata_values_cut(record: dict[str, Any]) -> None:
    """Metadata values come back with 100 characters at most."""
    change_metadata(record, lambda text: text[:100])


@fault_of_records("metadata-entities", "REC-METADATA")
def _metadata_entities(record: dict[str, Any]) -> None:
    """Quotation marks in metadata values come back as HTML entities."""
    change_metadata(record, lambda text: text.replace('"', "&quot;"))


@fault_of_records("first-index-only", "REC-INDEXES")
def _first_index_only(record: dict[str, Any]) -> None:
    """Only the first of several search indexes comes back."""
    if isinstance(record.get("search_indexes"), list):
        record["search_indexes"] = record["search_indexes"][:1]


@fault_of_records("fingerprint-of-all-fields", "REC-FINGERPRINT")
def _fingerprint_of_all(record: dict[str, Any]) -> None:
    """A card's fingerprint changes with its expiry."""
    mask = record.get("mask") or record.get("data")
    if isinstance(mask, dict) and "fingerprint" in record:
        record["fingerprint"] += f"-{mask.get('expiration_year')}"


@fault_of_records("fingerprint-of-the-type", "REC-FINGERPRINT")
def _fingerprint_of_type(record: dict[str, Any]) -> None:
    """All tokens of a type have one fingerprint."""
    if "fingerprint" in record:
        record["fingerprint"] = f"fp-{record['type']}"


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
    elif response.ok:
        for record in records_in(response.body):
            record["id"] = engine.services.new_id()
            record["_extras"]["deduplicated"] = False
    return response


@fault_of_bodies("dedup-trims", "TOK-DEDUP")
def _dedup_trims(body: Json) -> Json:
    """Values that differ only in leading or trailing whitespace count as equal."""
    return _leaves_changed(body, str.strip)


@fault_of_bodies("dedup-without-case", "TOK-DEDUP")
def _dedup_without_case(body: Json) -> Json:
    """Values that differ only in case count as equal."""
    return _leaves_changed(body, str.lower)


@fault_of_bodies("dedup-composes", "TOK-DEDUP")
def _dedup_composes(body: Json) -> Json:
    """Values that differ only in Unicode normalization count as equal."""
    return _leaves_changed(body, lambda text: unicodedata.normalize("NFC", text))


@fault_of_responses("redacts-cards-only", "REC-DEDUP-REDACT")
def _redacts_cards_only(_: FaultyEngine, request: Request, response: Response) -> None:
    """A redacted record of a `token` still shows the metadata that was sent."""
    for asked, record in asked_and_given(request, response):
        is_found = record["_extras"]["deduplicated"] and record["type"] == "token"
        if is_found and isinstance(asked.get("metadata"), dict):
            record.setdefault("metadata", asked["metadata"])


# --- rights -------------------------------------------------------------------------------------


@fault("forbidden-and-created", "AUTH-CREATE")
async def _forbidden_and_created(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A request without token:create gets 403, but its tokens are created."""
    response = await submit(request)
    caller = engine.identify(request)
    if response.status == 403 and is_creating(request) and caller is not None:
        paths = ("/general/high/", "/pci/high/")
        with engine.answering(caller, "token:create", paths, lambda _: True):
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
    named = [one for one in containers_named(request) if isinstance(one, str)]
    passing = [path for path in named if may and path.startswith("/pci")]
    with engine.answering(caller, "token:create", passing, lambda _: True):
        return await submit(request)


# --- quotas -------------------------------------------------------------------------------------


@fault("limit-of-distinct-strings", "TOK-LIMIT")
async def _limit_of_distinct(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Equal strings are counted once against the limit, and each creates a token."""
    leaves = list(elements_in(json_of(request)))
    if not all(isinstance(one, str) for one in leaves):
        return await submit(request)
    return await counting(engine, request, submit, len(set(leaves)))


@fault("limit-of-arrays", "TOK-LIMIT")
async def _limit_of_arrays(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """The limit holds for arrays only: an object may hold up to 1 000 strings."""
    body = json_of(request)
    if request.path != "/tokenize" or not isinstance(body, dict) or is_request(body):
        return await submit(request)
    with quota_during(engine, request, "Tokenize Limit", 1_000):
        return await submit(request)


# --- in a few answers of a hundred --------------------------------------------------------------


def _is_turn(engine: FaultyEngine, request: Request) -> bool:
    """Whether it is this answer's turn to be wrong."""
    if request.method != "POST" or request.path != "/tokenize":
        return False
    turn = int(engine.notes.get("turn", "0")) + 1
    engine.notes["turn"] = str(turn)
    return turn % _SPORADIC == _TURN


@fault("sporadic-error", "TOK-PLAIN")
async def _sporadic_error(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """One in fifty plain objects is answered 500."""
    body = json_of(request)
    is_plain = isinstance(body, dict) and not is_request(body)
    if is_plain and _is_turn(engine, request):
        return Problem(500, "Something went wrong.").response()
    return await submit(request)


@fault_of_responses("sporadic-key-lost", "TOK-PLAIN")
def _sporadic_key_lost(engine: FaultyEngine, request: Request, response: Response) -> None:
    """One in fifty plain objects comes back without its last key."""
    body = json_of(request)
    is_turn = isinstance(body, dict) and not is_request(body) and _is_turn(engine, request)
    if is_turn and response.ok and isinstance(response.body, dict) and response.body:
        response.body.popitem()


@fault_of_responses("sporadic-order", "TOK-ARRAY")
def _sporadic_order(engine: FaultyEngine, request: Request, response: Response) -> None:
    """One in fifty arrays lacks its last element."""
    is_turn = isinstance(json_of(request), list) and _is_turn(engine, request)
    if is_turn and response.ok and isinstance(response.body, list) and response.body:
        response.body.pop()


@fault_of_responses("sporadic-identifier", "REC-ID")
def _sporadic_identifier(engine: FaultyEngine, request: Request, response: Response) -> None:
    """One in fifty records has an `id` that is no UUID."""
    is_turn = is_request(json_of(request)) and _is_turn(engine, request)
    for record in records_of(response) if is_turn else ():
        record["id"] = "pending"


def _is_rare(engine: FaultyEngine, what: str) -> bool:
    """Whether this is a fiftieth occurrence of `what`."""
    turn = int(engine.notes.get(f"rare {what}", "0")) + 1
    engine.notes[f"rare {what}"] = str(turn)
    return turn % _SPORADIC == 0


@fault_of_responses("sporadic-reversed", "TOK-ARRAY")
def _sporadic_reversed(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Every fiftieth array comes back in the opposite order."""
    body = response.body
    if response.ok and is_creating(request) and isinstance(body, list) and len(body) > 1:
        response.body = body[::-1] if _is_rare(engine, "array") else body


@fault_of_responses("sporadic-without-extras", "REC-EXTRAS")
def _sporadic_no_extras(engine: FaultyEngine, _: Request, response: Response) -> None:
    """Every fiftieth record has no `_extras`."""
    for record in records_of(response):
        if _is_rare(engine, "record"):
            del record["_extras"]


@fault_of_responses("sporadic-mask", "REC-CARD-MASK")
def _sporadic_mask(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Every fiftieth card's mask shows five digits."""
    for asked, record in asked_and_given(request, response):
        if record["type"] == "card" and _is_rare(engine, "card"):
            for mask in masks_in(record):
                mask["number"] = mask["number"][:-5] + asked["data"]["number"][-5:]


@fault_of_responses("sporadic-status", "ERR-429")
def _sporadic_status(engine: FaultyEngine, _: Request, response: Response) -> Response | None:
    """Every fiftieth refusal is 403 and not 429."""
    is_rare = response.status == 429 and _is_rare(engine, "refusal")
    return dataclasses.replace(response, status=403) if is_rare else None
