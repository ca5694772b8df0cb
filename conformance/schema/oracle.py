"""The oracle: what the answer to a body must be.

The parts of a body are leaves, token request objects, plain objects and arrays; each part of the
answer is checked against the clause of its part of the body. Identifiers, times and fingerprints
differ between deployments: only their form is checked.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from conformance.context.answers import (
    elements,
    flag_of,
    is_identifier,
    is_known,
    is_request,
    is_uuid,
)
from conformance.context.verdicts import Symptom
from conformance.model.blame import shape_clause
from conformance.model.comparison import instant
from engine.messages import Json
from engine.tokens.rules import card_mask


class Contradiction(NamedTuple):
    """A clause's id, what is wrong, where in the body, and the symptoms that this is."""

    clause: str
    message: str
    place: str = ""
    symptoms: tuple[Symptom, ...] = ()


SHAPES: Final = ("TOK-OBJECT", "TOK-PLAIN", "TOK-ARRAY", "TOK-COMPOSITE")
"""The clauses of the four shapes of a body."""


def mirror_faults(body: Json, answer: Json, at: str = "") -> Iterator[Contradiction]:
    """Yield (clause, fault) for every part of an answer that does not mirror its body.

    >>> [fault[:3] for fault in mirror_faults({"A": "x"}, {"a": "2"})]
    [('TOK-PLAIN', 'the keys must be those of the body', '/')]
    """
    clause, where = shape_clause(body), at or "/"
    fault = _fault(body, answer)
    if fault is not None:
        yield Contradiction(clause, fault, where)
    elif isinstance(body, dict) and not is_request(body):
        assert isinstance(answer, dict)
        for key, part in body.items():
            yield from mirror_faults(part, answer[key], f"{at}/{key}")
    elif isinstance(body, list):
        assert isinstance(answer, list)
        seen = [_kind(part) for part in answer]
        wanted = [_kind(part) for part in body]
        if seen != wanted and sorted(seen) == sorted(wanted):
            yield Contradiction(clause, "the elements must be in the body's order", where)
            return
        for place, part in enumerate(body):
            yield from mirror_faults(part, answer[place], f"{at}/{place}")


def _kind(part: Json) -> str:
    """Return the kind of a part of a body or an answer: enough to notice a changed order."""
    if isinstance(part, dict):
        return f"{part['type']}" if "type" in part else "object"
    return "array" if isinstance(part, list) else "string"


def _fault(body: Json, answer: Json) -> str | None:
    """Return what is wrong with one part of an answer; its inner parts are not checked here."""
    if is_request(body):
        if not isinstance(answer, dict) or not isinstance(answer.get("id"), str):
            return "a token request object must come back as a record"
        is_same = answer.get("type") == body["type"]
        return None if is_same else "the record must be of the type that was asked for"
    if isinstance(body, str):
        is_one = is_identifier(answer, body)
        return None if is_one else "a plain string must come back as an identifier string"
    if isinstance(body, dict):
        is_same = isinstance(answer, dict) and set(answer) == set(body)
        return None if is_same else "the keys must be those of the body"
    if isinstance(body, list):
        is_same = isinstance(answer, list) and len(answer) == len(body)
        return None if is_same else f"the array must have {len(body)} elements"
    return None


def answer_faults(body: Json, answer: Json) -> Iterator[Contradiction]:
    """Yield what is wrong with an answer: its structure, or else its identifiers and records."""
    faults = list(mirror_faults(body, answer))
    yield from faults
    if faults:
        return
    for asked, given in elements(body, answer):
        if isinstance(asked, dict):
            yield from record_faults(asked, given)
        elif not is_uuid(given):
            yield Contradiction("REC-ID", "the identifier of a plain string must be a UUID string")


def record_rules(record: dict[str, Any], type_: str | None) -> Iterator[tuple[str, str, bool]]:
    """Yield (clause, rule, whether it holds) of the fields that every record has.

    type_: that of the token, None where it is not known. A record of a token that existed may leave
    out who created it (D-DEDUP-REDACT).
    """
    known = ("token", "card") if type_ is None else (type_,)
    is_redacted = is_known(record) and not {"created_by", "created_at"} & record.keys()
    yield "REC-ID", "`id` must be a UUID string", is_uuid(record.get("id"))
    yield "REC-TENANT", "`tenant_id` must be a UUID string", is_uuid(record.get("tenant_id"))
    yield "REC-TYPE", f"`type` must be {' or '.join(known)}", record.get("type") in known
    is_uuid_or_none = is_redacted or is_uuid(record.get("created_by"))
    yield "REC-CREATED", "`created_by` must be a UUID string", is_uuid_or_none
    is_time = is_redacted or instant(record.get("created_at")) is not None
    yield "REC-CREATED", "`created_at` must be an ISO 8601 time with UTC offset", is_time
    yield "REC-EXTRAS", "`_extras.deduplicated` must be a boolean", flag_of(record) is not None


def record_faults(asked: dict[str, Any], record: dict[str, Any]) -> Iterator[Contradiction]:
    """Yield what is wrong with the record of a token request object."""
    for clause, message, is_so in record_rules(record, asked["type"]):
        if not is_so:
            yield Contradiction(clause, message)
    if asked["type"] == "token" and "data" in record:
        yield Contradiction("REC-TOKEN-DATA", "the record of a `token` must have no `data`")
    if flag_of(record) is not False:
        return  # other checks judge which record comes back and what it leaves out
    views = [record[name] for name in ("mask", "data") if name in record]
    if _is_card_of_plain_data(asked):
        masked = card_mask(asked["data"])
        if not views or any(view != masked for view in views):
            yield Contradiction(
                "REC-CARD-MASK", "the masked object must show the last four digits and the expiry"
            )
    if asked.get("metadata") != {} and record.get("metadata") != asked.get("metadata"):
        yield Contradiction(
            "REC-METADATA", "`metadata` must come back exactly as supplied, or not at all"
        )
    if asked.get("search_indexes") and record.get("search_indexes") != asked["search_indexes"]:
        yield Contradiction("REC-INDEXES", "`search_indexes` must come back exactly as supplied")


def _is_card_of_plain_data(asked: dict[str, Any]) -> bool:
    data = {} if "encrypted" in asked else asked.get("data")
    return (
        asked["type"] == "card"
        and isinstance(data, dict)
        and isinstance(data.get("number"), str)
        and all(type(data.get(name, 0)) is int for name in ("expiration_month", "expiration_year"))
    )
