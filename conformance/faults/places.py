"""Mutants that are wrong in one place only: one way to read, one position, one caller, one answer.

Each is right where a quick look falls, and wrong a step further.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from conformance.context.answers import is_request
from conformance.faults.bodies import is_creating
from conformance.faults.records import asked_and_given, masks_in
from conformance.faults.registry import (
    FaultyEngine,
    Submit,
    fault,
    fault_of_answers,
    fault_of_cards,
    fault_of_responses,
    json_of,
    records_of,
    requests_changed,
    with_body,
)
from engine import Request, Response
from engine.messages import Json
from engine.tokens.strict_json import dumps, parse

_EXPRESSION = re.compile(r"\{\{ ([0-9a-f-]{36}) \}\}")


def _change_read(request: Request, response: Response, change: Callable[[str, Json], Json]) -> None:
    """Change what a detokenize answers for whole expressions, by identifier."""

    def changed(part: Json, value: Json) -> Json:
        match = _EXPRESSION.fullmatch(part) if isinstance(part, str) else None
        if match is not None:
            return change(match[1], value)
        if isinstance(part, dict) and isinstance(value, dict):
            return {name: changed(part.get(name), inner) for name, inner in value.items()}
        if isinstance(part, list) and isinstance(value, list):
            return [changed(*pair) for pair in zip(part, value, strict=True)]
        return value

    if request.path == "/detokenize" and response.ok and isinstance(response.body, bytes):
        response.body = dumps(changed(json_of(request), parse(response.body)))


# --- values ---------------------------------------------------------------------------------------


@fault("encrypted-read-in-small", "TOK-ENCRYPTED")
async def _encrypted_read_in_small(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A token that was created encrypted is read in lower case."""
    response = await submit(request)
    for asked, record in asked_and_given(request, response):
        if "encrypted" in asked:
            engine.notes[record["id"]] = "encrypted"

    def changed(name: str, value: Json) -> Json:
        return value.lower() if name in engine.notes and isinstance(value, str) else value

    _change_read(request, response, changed)
    return response


@fault_of_cards("zero-of-cvc-changed", "TOK-CARD-DATA", "cvc")
def _zero_of_cvc_changed(cvc: Json) -> Json:
    """A zero at the beginning of a cvc is stored as a 9."""
    return f"9{cvc[1:]}" if isinstance(cvc, str) and cvc.startswith("0") else cvc


@fault("expression-resolved", "TOK-LEAF")
async def _expression_resolved(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A string that is an expression of a known token comes back as that token's identifier."""
    response, body = await submit(request), json_of(request)

    def resolved(part: Json, answer: Json) -> Json:
        if isinstance(part, str):
            match = _EXPRESSION.fullmatch(part)
            return answer if match is None else match[1]
        if isinstance(part, list) and isinstance(answer, list):
            return [resolved(*pair) for pair in zip(part, answer, strict=True)]
        return answer

    if request.path == "/tokenize" and response.ok:
        response.body = resolved(body, response.body)
    return response


@fault_of_answers("digits-as-array", "TOK-PLAIN")
def _digits_as_array(body: Json, answer: Json) -> Json:
    """An object whose keys are all digits comes back as an array."""
    if isinstance(body, dict) and isinstance(answer, dict) and not is_request(body):
        return list(answer.values()) if answer and "".join(answer).isdigit() else answer
    return answer


# --- deduplication and fingerprints ---------------------------------------------------------------


@fault("expiry-compared", "TOK-DEDUP")
async def _expiry_compared(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """A card with another expiry is another card."""

    def changed(asked: dict[str, Any]) -> Json:
        data = asked.get("data")
        if asked["type"] != "card" or not isinstance(data, dict):
            return asked
        expiry = str([data.get("expiration_month"), data.get("expiration_year")])
        known = engine.notes.setdefault(str(data.get("number")), expiry)
        return asked if known == expiry else {**asked, "deduplicate_token": False}

    body = json_of(request)
    if not is_creating(request) or not isinstance(body, dict | list):
        return await submit(request)
    return await submit(with_body(request, requests_changed(body, changed)))


@fault_of_responses("fingerprint-of-beginning", "REC-FINGERPRINT")
def _fingerprint_of_beginning(engine: FaultyEngine, request: Request, response: Response) -> None:
    """Values that agree in their first 1,000 characters have one fingerprint."""
    for asked, record in asked_and_given(request, response):
        value = asked.get("data")
        if isinstance(value, str) and len(value) >= 1_000 and "fingerprint" in record:
            beginning = f"{record['tenant_id']} {value[:1_000]}"
            known = engine.notes.setdefault(beginning, record["fingerprint"])
            record["fingerprint"] = known


@fault("first-card-created", "TOK-ATOMIC")
async def _first_card_created(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Where an element behind a card is invalid, the card is created all the same."""
    response, body = await submit(request), json_of(request)
    first = body[0] if isinstance(body, list) and body else None
    is_card = isinstance(first, dict) and first.get("type") == "card"
    if request.path == "/tokenize" and response.status == 400 and is_card:
        await submit(with_body(request, first))
    return response


# --- answers of other operations ------------------------------------------------------------------


@fault_of_responses("number-in-groups", "REC-SECRET")
def _number_in_groups(_: FaultyEngine, request: Request, response: Response) -> None:
    """A record shows the card's number in groups of four digits."""
    for asked, record in asked_and_given(request, response):
        data = asked.get("data")
        if isinstance(data, dict) and isinstance(data.get("number"), str):
            record["display"] = " ".join(re.findall(".{1,4}", data["number"]))


@fault_of_responses("number-without-its-end", "REC-SECRET")
def _number_without_its_end(_: FaultyEngine, request: Request, response: Response) -> None:
    """A record shows all digits of the card's number but the last four."""
    for asked, record in asked_and_given(request, response):
        data = asked.get("data")
        if isinstance(data, dict) and isinstance(data.get("number"), str):
            record["begins"] = data["number"][:-4]


@fault_of_responses("data-in-hexadecimal", "REC-SECRET")
def _data_in_hexadecimal(_: FaultyEngine, request: Request, response: Response) -> None:
    """A record shows the data of a `token` in hexadecimal."""
    for asked, record in asked_and_given(request, response):
        if isinstance(asked.get("data"), str):
            record["raw"] = asked["data"].encode().hex()


@fault_of_responses("patch-shows-cvc", "REC-SECRET")
def _patch_shows_cvc(_: FaultyEngine, request: Request, response: Response) -> None:
    """The answer to a PATCH of a cvc shows it."""
    body = json_of(request) if request.method == "PATCH" and response.ok else None
    if isinstance(body, dict) and isinstance(body.get("data"), dict) and "cvc" in body["data"]:
        response.body["changed"] = body["data"]["cvc"]


@fault_of_responses("cvc-in-lists", "REC-SECRET")
def _cvc_in_lists(engine: FaultyEngine, request: Request, response: Response) -> None:
    """The list of tokens shows the cvc of cards with search indexes."""
    for asked, record in asked_and_given(request, response):
        data = asked.get("data")
        if "search_indexes" in asked and isinstance(data, dict) and "cvc" in data:
            engine.notes[record["id"]] = str(data["cvc"])
    if request.method == "GET" and request.path.startswith("/tokens?"):
        for record in records_of(response):
            if record["id"] in engine.notes:
                record["verified"] = engine.notes[record["id"]]


@fault_of_responses("mask-of-search-in-small", "REC-CARD-MASK")
def _mask_of_search(_: FaultyEngine, request: Request, response: Response) -> None:
    """Search returns masks of small x."""
    for record in records_of(response) if request.path == "/tokens/search" else ():
        for mask in masks_in(record):
            mask["number"] = mask["number"].lower()


# --- retention ------------------------------------------------------------------------------------


@fault("cvc-in-arrays-of-reads", "QUO-CVC")
async def _cvc_in_arrays_of_reads(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A detokenize whose body is an array shows a cvc for ever."""
    response = await submit(request)
    for asked, record in asked_and_given(request, response):
        if isinstance(asked.get("data"), dict) and "cvc" in asked["data"]:
            engine.notes[record["id"]] = asked["data"]["cvc"]

    def changed(name: str, value: Json) -> Json:
        cvc = engine.notes.get(name)
        return value if cvc is None or not isinstance(value, dict) else {**value, "cvc": cvc}

    if isinstance(json_of(request), list):
        _change_read(request, response, changed)
    return response


async def _intent_noted(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
    """Submit a request, and note the value of an intent that it creates."""
    response, body = await submit(request), json_of(request)
    value = body.get("data") if isinstance(body, dict) else None
    if request.path == "/token-intents" and response.ok and isinstance(value, str):
        engine.notes[response.body["id"]] = value
    return response


@fault("intent-late-in-arrays", "QUO-INTENT")
async def _intent_late_in_arrays(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """A token intent can be converted inside an array for ever."""
    body = json_of(request)

    def changed(asked: dict[str, Any]) -> Json:
        value = engine.notes.get(str(asked.get("token_intent_id")))
        return asked if value is None else {"type": asked["type"], "data": value}

    if request.path == "/tokenize" and isinstance(body, list):
        return await submit(with_body(request, requests_changed(body, changed)))
    return await _intent_noted(engine, request, submit)


@fault("intent-late-in-create", "QUO-INTENT")
async def _intent_late_in_create(
    engine: FaultyEngine, request: Request, submit: Submit
) -> Response:
    """POST /tokens converts a token intent for ever."""
    body = json_of(request)
    if request.path == "/tokens" and isinstance(body, dict) and "token_intent_id" in body:
        value = engine.notes.get(str(body["token_intent_id"]))
        rest = {name: part for name, part in body.items() if name != "token_intent_id"}
        request = with_body(request, {**rest, "data": value}) if value else request
    return await _intent_noted(engine, request, submit)


# --- reactors -------------------------------------------------------------------------------------


@fault("blanks-of-code-not-counted", "RCT-CODE")
async def _blanks_of_code(_: FaultyEngine, request: Request, submit: Submit) -> Response:
    """White space in code does not count."""
    body = json_of(request)
    if isinstance(body, dict) and isinstance(body.get("code"), str):
        request = with_body(request, {**body, "code": re.sub(r"\s", "", body["code"])})
    return await submit(request)
