"""Mutants by kind: what is wrong for one kind of value, element, record or caller alone.

They vary what services get wrong: unusual texts, encrypted elements, duplicates, other callers.
"""

from __future__ import annotations

import datetime as dt
import html
import json
import re
import unicodedata
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import unquote

from conformance.context.answers import elements_in, is_request, is_uuid
from conformance.faults.bodies import containers_named, is_creating, requests_in
from conformance.faults.records import asked_and_given, change_time, masks_in
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_answers,
    fault_of_refusals,
    fault_of_requests,
    fault_of_responses,
    json_of,
    records_of,
    register,
    requests_changed,
    with_body,
)
from engine import Request, Response
from engine.messages import Json, Problem
from engine.tokens.strict_json import dumps

# --- values changed on the way to the store -------------------------------------------------------


def _reformatted(text: str) -> str:
    try:
        return json.dumps(json.loads(text), separators=(",", ":"))
    except ValueError:
        return text


def _without_controls(text: str) -> str:
    return "".join(letter for letter in text if unicodedata.category(letter) != "Cc")


_STORED: Final[Mapping[str, tuple[str, Callable[[str], str]]]] = {
    "cut-at-255": ("cut after 255 characters", lambda text: text[:255]),
    "cut-at-256": ("cut after 256 characters", lambda text: text[:256]),
    "cut-at-4095": ("cut after 4,095 characters", lambda text: text[:4095]),
    "cut-at-nul": ("cut at NUL", lambda text: text.partition("\0")[0]),
    "without-nul": ("stored without NUL", lambda text: text.replace("\0", "")),
    "lf-for-crlf": ("stored with LF for CR LF", lambda text: text.replace("\r\n", "\n")),
    "without-cr": ("stored without CR", lambda text: text.replace("\r", "")),
    "trimmed": ("stored without spaces at its ends", str.strip),
    "spaces-merged": ("stored with one space for several", lambda text: re.sub(" +", " ", text)),
    "html-escaped": ("stored with HTML entities", lambda text: html.escape(text, quote=False)),
    "html-unescaped": ("stored with HTML entities resolved", html.unescape),
    "percent-decoded": ("stored with percent escapes resolved", unquote),
    "bmp-only": (
        "stored with ? for astral characters",
        lambda text: "".join(letter if ord(letter) < 0x10000 else "?" for letter in text),
    ),
    "composed": ("stored composed (NFC)", lambda text: unicodedata.normalize("NFC", text)),
    "compatible": ("stored in NFKC", lambda text: unicodedata.normalize("NFKC", text)),
    "json-reformatted": ("stored reformatted where it is JSON", _reformatted),
    "without-quotes": ("stored without quotes", lambda text: text.replace('"', "")),
    "without-controls": ("stored without control characters", _without_controls),
    "without-bom": ("stored without U+FEFF", lambda text: text.replace("\ufeff", "")),
    "without-first-bom": (
        "stored without U+FEFF at its beginning",
        lambda text: text.removeprefix("\ufeff"),
    ),
    "number-like": (
        "stored without leading zeros where it is digits",
        lambda text: text.lstrip("0") or text if text.isdigit() else text,
    ),
    "empty-as-space": ("stored as a space where it is empty", lambda text: text or " "),
    "date-like": (
        "stored with its day first where it is a date",
        lambda text: re.sub(r"^(\d{4})-(\d\d)-(\d\d)$", r"\3.\2.\1", text),
    ),
    "uuid-in-small": (
        "stored in lower case where it is a UUID",
        lambda text: text.lower() if is_uuid(text) else text,
    ),
}
"""What a mutant does to each string before it is stored."""
_IN_DATA: Final = (
    *("cut-at-255", "cut-at-nul", "lf-for-crlf", "trimmed", "composed", "bmp-only"),
    "empty-as-space",
)


def _add_stored(name: str, description: str, change: Callable[[str], str]) -> None:
    def of_request(asked: dict[str, Any]) -> Json:
        if isinstance(asked.get("data"), str):
            asked["data"] = change(asked["data"])
        return asked

    async def everywhere(_: FaultyEngine, request: Request, submit: Submit) -> Response:
        body = json_of(request) if request.path in {"/tokenize", "/tokens"} else None
        if isinstance(body, dict | list) and request.method == "POST":
            changed = requests_changed(body, of_request, change)
            return await submit(with_body(request, changed))
        return await submit(request)

    everywhere.__doc__ = f"A value is {description}."
    register(f"value-{name}", "TOK-LEAF")(everywhere)
    if name in _IN_DATA:

        def in_data(asked: dict[str, Any]) -> Json:
            return of_request(asked) if asked["type"] == "token" else asked

        in_data.__doc__ = f"`data` of a `token` is {description}; plain strings are not."
        fault_of_requests(f"data-{name}", "TOK-TOKEN-DATA")(in_data)


for _name, (_description, _change) in _STORED.items():
    _add_stored(_name, _description, _change)


# --- the form decides -----------------------------------------------------------------------------


@fault_of_answers("uuid-not-tokenized", "TOK-LEAF")
def _uuid_not_tokenized(body: Json, answer: Json) -> Json:
    """A string that looks like a UUID comes back as it is."""
    if isinstance(body, str):
        return body if is_uuid(body) else answer
    if isinstance(body, dict) and isinstance(answer, dict) and not is_request(body):
        return {key: _uuid_not_tokenized(part, answer[key]) for key, part in body.items()}
    if isinstance(body, list) and isinstance(answer, list):
        return [_uuid_not_tokenized(*pair) for pair in zip(body, answer, strict=True)]
    return answer


@fault("known-identifier-unchanged", "TOK-LEAF")
async def _known_identifier(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A plain string that is the identifier of a known token comes back as it is."""
    response, body = await submit(request), json_of(request)

    def answered(part: Json, answer: Json) -> Json:
        if isinstance(part, str) and isinstance(answer, str):
            if part in engine.notes:
                return part
            engine.notes[answer] = "known"
        elif isinstance(part, list) and isinstance(answer, list):
            return [answered(*pair) for pair in zip(part, answer, strict=True)]
        return answer

    if response.ok and request.path == "/tokenize":
        response.body = answered(body, response.body)
    return response


@fault_of_refusals("long-value-refused", "TOK-LEAF")
def _long_value_refused(body: Json) -> bool:
    """A plain string of more than 1,000 characters is refused."""
    return any(isinstance(part, str) and len(part) > 1_000 for part in elements_in(body))


@fault_of_refusals("nul-refused", "TOK-LEAF")
def _nul_refused(body: Json) -> bool:
    """A plain string that holds NUL is refused."""
    return any(isinstance(part, str) and "\0" in part for part in elements_in(body))


@fault_of_refusals("type-must-be-first", "TOK-OBJECT")
def _type_must_be_first(body: Json) -> bool:
    """A token request object whose `type` is not its first member is refused."""
    return any(next(iter(asked)) != "type" for asked in requests_in(body))


@fault_of_answers("equal-objects-share", "REC-ID")
def _equal_objects_share(body: Json, answer: Json) -> Json:
    """Different objects of one array get the identifier of the first."""
    if isinstance(body, list) and isinstance(answer, list):
        records = [part for part in answer if isinstance(part, dict) and "_extras" in part]
        for record in records:
            record["id"] = records[0]["id"]
    return answer


@fault_of_answers("equal-objects-one-id", "REC-ID")
def _equal_objects_one_id(body: Json, answer: Json) -> Json:
    """Equal objects of one array get one identifier."""
    if isinstance(body, list) and isinstance(answer, list):
        first: dict[bytes, str] = {}
        for part, record in zip(body, answer, strict=True):
            if is_request(part):
                record["id"] = first.setdefault(dumps(part), record["id"])
    return answer


@fault_of_refusals("html-forbidden", "TOK-TOKEN-DATA", 403)
def _html_forbidden(body: Json) -> bool:
    """`data` of a `token` that holds `<` gets 403, as from a web application firewall."""
    texts = (asked.get("data") for asked in requests_in(body))
    return any(isinstance(text, str) and "<" in text for text in texts)


@fault_of_refusals("sql-forbidden", "TOK-LEAF", 403)
def _sql_forbidden(body: Json) -> bool:
    """A plain string that looks like SQL gets 403."""
    return any(isinstance(part, str) and "DROP TABLE" in part for part in elements_in(body))


@fault_of_answers("data-without-type", "TOK-PLAIN")
def _data_without_type(body: Json, answer: Json) -> Json:
    """An object of `data` alone comes back as the identifier alone."""
    is_alone = isinstance(body, dict) and list(body) == ["data"]
    return answer["data"] if is_alone and isinstance(answer, dict) else answer


@fault_of_answers("keys-without-case", "TOK-PLAIN")
def _keys_without_case(body: Json, answer: Json) -> Json:
    """Of keys that differ in case alone, the last stays."""
    if is_request(body) or not isinstance(answer, dict):
        return answer
    last = {key.lower(): key for key in answer}
    return {key: answer[key] for key in last.values()}


def _renaming(name: str, description: str, change: Callable[[str], str]) -> None:
    def renamed(body: Json, answer: Json) -> Json:
        if isinstance(answer, dict) and not is_request(body):
            return {change(key): part for key, part in answer.items()}
        return answer

    renamed.__doc__ = description
    fault_of_answers(f"key-{name}", "TOK-PLAIN")(renamed)


_renaming("cut-at-255", "Keys are cut after 255 characters.", lambda key: key[:255])
_renaming("cut-at-nul", "Keys are cut at NUL.", lambda key: key.partition("\0")[0])
_renaming("composed", "Keys come back composed.", lambda key: unicodedata.normalize("NFC", key))
_renaming(
    "bmp-only",
    "Astral characters of keys become ?.",
    lambda key: (
        key.encode("ascii", "replace").decode() if ord(max(key, default="a")) > 0xFFFF else key
    ),
)
_renaming(
    "prototype",
    "Keys of every object's prototype come back with _.",
    lambda key: f"_{key}" if key in {"toString", "constructor", "__proto__"} else key,
)


# --- deduplication --------------------------------------------------------------------------------


@fault_of_requests("encrypted-not-deduplicated", "TOK-DEDUP")
def _encrypted_not_deduplicated(asked: dict[str, Any]) -> Json:
    """An encrypted element is never deduplicated."""
    return {**asked, "deduplicate_token": False} if "encrypted" in asked else asked


@fault_of_requests("cards-not-deduplicated", "TOK-DEDUP")
def _cards_not_deduplicated(asked: dict[str, Any]) -> Json:
    """A card is never deduplicated."""
    return {**asked, "deduplicate_token": False} if asked["type"] == "card" else asked


@fault_of_requests("indexed-not-deduplicated", "TOK-DEDUP")
def _indexed_not_deduplicated(asked: dict[str, Any]) -> Json:
    """An element with search indexes is never deduplicated."""
    return {**asked, "deduplicate_token": False} if "search_indexes" in asked else asked


@fault("deleted-deduplicated", "TOK-DEDUP")
async def _deleted_deduplicated(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A deleted token is still found for an equal value."""
    response = await submit(request)
    if request.method == "DELETE" and response.ok:
        engine.notes[f"gone {request.path.rpartition('/')[2]}"] = "yes"
    for asked, record in asked_and_given(request, response):
        value = f"value {record['tenant_id']} {asked.get('data')!r}"
        earlier = engine.notes.get(value, "")
        if f"gone {earlier}" in engine.notes and not record["_extras"]["deduplicated"]:
            record.update({"id": earlier, "_extras": {"deduplicated": True}})
        engine.notes[value] = record["id"]
    return response


def _of_duplicates(
    fault_id: str, clause: str
) -> Callable[[Callable[[FaultyEngine, Request, dict[str, Any]], None]], None]:
    """Register a change of the records of deduplicated tokens."""

    def registered(change: Callable[[FaultyEngine, Request, dict[str, Any]], None]) -> None:
        def changed(engine: FaultyEngine, request: Request, response: Response) -> None:
            for record in records_of(response):
                if record["_extras"]["deduplicated"]:
                    change(engine, request, record)

        changed.__doc__ = change.__doc__
        fault_of_responses(fault_id, clause)(changed)

    return registered


@_of_duplicates("duplicate-created-now", "REC-CREATED")
def _duplicate_created_now(engine: FaultyEngine, _: Request, record: dict[str, Any]) -> None:
    """`created_at` of a deduplicated record is the time of the request."""
    now = dt.datetime.fromtimestamp(engine.clock.wall_ns / 1e9, dt.UTC)
    change_time(record, lambda _: now)


@_of_duplicates("duplicate-created-by-caller", "REC-CREATED")
def _duplicate_by_caller(engine: FaultyEngine, request: Request, record: dict[str, Any]) -> None:
    """`created_by` of a deduplicated record is the caller."""
    caller = engine.identify(request)
    if caller is not None and "created_by" in record:
        record["created_by"] = caller.application.id


@_of_duplicates("duplicate-without-creator", "REC-CREATED")
def _duplicate_without_creator(_: FaultyEngine, __: Request, record: dict[str, Any]) -> None:
    """A deduplicated record lacks `created_by`."""
    record.pop("created_by", None)


@_of_duplicates("duplicate-shows-six", "REC-CARD-MASK")
def _duplicate_shows_six(_: FaultyEngine, __: Request, record: dict[str, Any]) -> None:
    """The mask of a deduplicated card shows its first six places as 4s."""
    for mask in masks_in(record):
        mask["number"] = "444444" + mask["number"][6:]


@_of_duplicates("duplicate-without-mask", "REC-CARD-MASK")
def _duplicate_without_mask(_: FaultyEngine, __: Request, record: dict[str, Any]) -> None:
    """A deduplicated card lacks its mask."""
    record.pop("mask", None)


@_of_duplicates("duplicate-of-other-tenant", "REC-TENANT")
def _duplicate_of_other_tenant(_: FaultyEngine, __: Request, record: dict[str, Any]) -> None:
    """`tenant_id` of a deduplicated record is the identifier of the token."""
    record["tenant_id"] = record["id"]


@_of_duplicates("duplicate-without-fingerprint", "REC-FINGERPRINT")
def _duplicate_without_fingerprint(_: FaultyEngine, __: Request, record: dict[str, Any]) -> None:
    """A deduplicated record lacks its fingerprint."""
    record.pop("fingerprint", None)


@_of_duplicates("duplicate-with-new-id", "TOK-DEDUP")
def _duplicate_with_new_id(_: FaultyEngine, __: Request, record: dict[str, Any]) -> None:
    """A deduplicated record has an identifier of its own."""
    record["id"] = str(uuid.uuid5(uuid.UUID(record["id"]), "again"))


# --- fingerprints ---------------------------------------------------------------------------------


def _fingerprint_by(
    name: str, description: str, part: Callable[[FaultyEngine, Request, dict[str, Any]], str]
) -> None:
    def changed(engine: FaultyEngine, request: Request, response: Response) -> None:
        for asked, record in asked_and_given(request, response):
            if "fingerprint" in record:
                record["fingerprint"] += part(engine, request, asked)

    changed.__doc__ = description
    fault_of_responses(f"fingerprint-by-{name}", "REC-FINGERPRINT")(changed)


def _callers_application(engine: FaultyEngine, request: Request, _: dict[str, Any]) -> str:
    caller = engine.identify(request)
    return "" if caller is None else caller.application.id[:8]


_fingerprint_by("caller", "A fingerprint depends on the caller.", _callers_application)
_fingerprint_by(
    "container",
    "A fingerprint depends on the container.",
    lambda _, __, asked: str(asked.get("containers", "")),
)
_fingerprint_by(
    "time",
    "A fingerprint depends on the second.",
    lambda engine, _, __: str(engine.clock.now_ns // 10**9),
)
_fingerprint_by(
    "metadata",
    "A fingerprint depends on metadata.",
    lambda _, __, asked: str(asked.get("metadata", "")),
)


# --- secrets --------------------------------------------------------------------------------------


def _cvc_as(name: str, description: str, show: Callable[[dict[str, Any], str], None]) -> None:
    def changed(_: FaultyEngine, request: Request, response: Response) -> None:
        for asked, record in asked_and_given(request, response):
            data = asked.get("data")
            if isinstance(data, dict) and isinstance(data.get("cvc"), str):
                show(record, data["cvc"])

    changed.__doc__ = description
    fault_of_responses(f"cvc-changed-as-{name}", "REC-SECRET")(changed)


_cvc_as(
    "check",
    "A record shows the cvc as `cvc_check`.",
    lambda record, cvc: record.update(cvc_check=cvc),
)
_cvc_as(
    "number",
    "A record shows the cvc as a number.",
    lambda record, cvc: record.update(code=int(cvc)),
)
_cvc_as(
    "extra",
    "A record's `_extras` holds the cvc.",
    lambda record, cvc: record["_extras"].update(security=cvc),
)
_cvc_as(
    "sentence",
    "A record quotes the cvc in a sentence.",
    lambda record, cvc: record.update(note=f"checked {cvc} ok"),
)


@fault_of_responses("refusal-quotes-value", "REC-SECRET")
def _refusal_quotes_value(_: FaultyEngine, request: Request, response: Response) -> None:
    """A 400 quotes the first value of the body."""
    values = [part for part in elements_in(json_of(request)) if isinstance(part, str)]
    if response.status == 400 and values and isinstance(response.body, dict):
        response.body["detail"] = f"{values[0]} is not acceptable"


def _is_of_this_year(engine: FaultyEngine, asked: dict[str, Any]) -> bool:
    """Whether a card expires this year and has a cvc."""
    year, data = dt.datetime.fromtimestamp(engine.clock.wall_ns / 1e9, dt.UTC).year, asked["data"]
    return isinstance(data, dict) and data.get("expiration_year") == year and "cvc" in data


@fault_of_responses("cvc-of-this-year-shown", "REC-SECRET")
def _cvc_of_this_year_shown(engine: FaultyEngine, request: Request, response: Response) -> None:
    """A record shows the cvc of a card that expires this year."""
    for asked, record in asked_and_given(request, response):
        if "data" in asked and _is_of_this_year(engine, asked):
            record["check"] = asked["data"]["cvc"]


@fault("cvc-of-this-year-kept", "QUO-CVC")
async def _cvc_of_this_year_kept(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """The cvc of a card that expires this year is readable for ever."""
    response = await submit(request)
    for asked, _ in asked_and_given(request, response):
        if "data" in asked and _is_of_this_year(engine, asked):
            engine.notes[asked["data"]["number"]] = asked["data"]["cvc"]
    if request.path == "/detokenize" and response.ok and isinstance(response.body, bytes):
        answer = json.loads(response.body)
        for card in answer.values() if isinstance(answer, dict) else ():
            if isinstance(card, dict) and card.get("number") in engine.notes:
                card["cvc"] = engine.notes[card["number"]]
        response.body = dumps(answer)
    return response


# --- authority, quotas, atomicity -----------------------------------------------------------------


@fault("encrypted-without-right", "AUTH-CREATE")
async def _encrypted_without_right(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """Encrypted elements need no token:create."""
    caller, body = engine.identify(request), json_of(request)
    if caller is None or '"encrypted"' not in json.dumps(body):
        return await submit(request)
    paths = (*containers_named(request), "/general/high/", "/pci/high/")
    with engine.answering(caller, "token:create", paths, lambda _: True):
        return await submit(request)


@fault("indexed-without-right", "AUTH-CREATE")
async def _indexed_without_right(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A body with metadata needs no token:create."""
    caller, body = engine.identify(request), json_of(request)
    if caller is None or '"metadata"' not in json.dumps(body):
        return await submit(request)
    paths = (*containers_named(request), "/general/high/", "/pci/high/")
    with engine.answering(caller, "token:create", paths, lambda _: True):
        return await submit(request)


@fault("forbidden-others-created", "AUTH-CREATE")
async def _forbidden_others(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Where an element's container is not permitted, those beside it are created all the same."""
    response, body = await submit(request), json_of(request)
    if response.status == 403 and isinstance(body, list) and request.path == "/tokenize":
        for part in body:
            await submit(with_body(request, [part]))
    return response


@fault("read-elsewhere-shows", "REC-DEDUP-REDACT")
async def _read_elsewhere(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """`token:read` in any container shows what a deduplicated record must hide."""
    caller = engine.identify(request) if is_creating(request) else None
    if caller is None or not any("token:read" in x.permissions for x in caller.application.grants):
        return await submit(request)
    paths = (*containers_named(request), "/general/high/", "/pci/high/")
    with engine.answering(caller, "token:read", paths, lambda _: True):
        return await submit(request)


def _uncounted(
    name: str, clause: str, quota: str, description: str, free_of: Callable[[Any], int]
) -> None:
    """Register a mutant that does not count some elements of a body for a quota."""

    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        caller, body = engine.identify(request), json_of(request)
        path = "/detokenize" if quota.startswith("Detokenize") else "/tokenize"
        if caller is None or request.path != path or not isinstance(body, dict | list):
            return await submit(request)
        most = caller.tenant.quotas[quota]
        free = sum(map(free_of, elements_in(body)))
        assert isinstance(most, int), "a count"
        engine.set_quota(caller.tenant, quota, most + free)
        try:
            return await submit(request)
        finally:
            engine.set_quota(caller.tenant, quota, most)

    around.__doc__ = description
    register(f"{name}-not-counted", clause)(around)


_uncounted(
    "encrypted",
    "TOK-LIMIT",
    "Tokenize Limit",
    "Encrypted elements do not count.",
    lambda part: isinstance(part, dict) and "encrypted" in part,
)
_uncounted(
    "cards",
    "TOK-LIMIT",
    "Tokenize Limit",
    "Cards do not count.",
    lambda part: isinstance(part, dict) and part.get("type") == "card",
)
_uncounted(
    "embedded",
    "QUO-DETOKENIZE",
    "Detokenize Limit",
    "Expressions inside a text do not count.",
    lambda part: isinstance(part, str) and not part.startswith("{{"),
)
_uncounted(
    "others-of-a-text",
    "QUO-DETOKENIZE",
    "Detokenize Limit",
    "Several expressions of one text count once.",
    lambda part: part.count("{{") - 1 if isinstance(part, str) and "{{" in part else 0,
)


@fault("others-of-broken-created", "TOK-ATOMIC")
async def _others_of_broken_created(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Where an encrypted element does not decrypt, the plain ones are created all the same."""
    response, body = await submit(request), json_of(request)
    if response.status == 400 and isinstance(body, list) and request.path == "/tokenize":
        rest = [part for part in body if not (isinstance(part, dict) and "encrypted" in part)]
        if 0 < len(rest) < len(body):
            await submit(with_body(request, rest))
    return response


# --- the bytes of answers -------------------------------------------------------------------------


def _bytes_of_tokenize(fault_id: str, description: str, change: Callable[[bytes], bytes]) -> None:
    def changed(_: FaultyEngine, request: Request, response: Response) -> None:
        if response.ok and request.path == "/tokenize" and not isinstance(response.body, bytes):
            response.body = change(dumps(response.body))

    changed.__doc__ = description
    fault_of_responses(fault_id, "TOK-JSON")(changed)


_bytes_of_tokenize(
    "names-repeat",
    "A name stands twice in each record.",
    lambda raw: raw.replace(b'"type":', b'"type":"token","type":'),
)
_bytes_of_tokenize(
    "byte-order-mark",
    "A byte order mark stands before the answer.",
    lambda raw: b"\xef\xbb\xbf" + raw,
)
_bytes_of_tokenize("nul-behind", "A NUL stands behind the answer.", lambda raw: raw + b"\0")


@fault("leading-blank-refused", "TOK-JSON")
async def _leading_blank_refused(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A body that begins with white space is refused."""
    if isinstance(request.body, bytes) and request.body[:1].isspace():
        return Problem(400, "Not here.").response()
    return await submit(request)


# --- outside --------------------------------------------------------------------------------------


@fault_of_responses("keyed-time-out-with-504", "ERR-408")
def _keyed_time_out_with_504(_: FaultyEngine, request: Request, response: Response) -> None:
    """A proxy request with an API key that takes longer than 25 s gets 504."""
    if request.key is not None and response.status == 408:
        response.status = 504


@fault_of_responses("posts-time-out-with-504", "ERR-408")
def _posts_time_out_with_504(_: FaultyEngine, request: Request, response: Response) -> None:
    """A proxied POST that takes longer than 25 s gets 504."""
    if request.method == "POST" and response.status == 408:
        response.status = 504
