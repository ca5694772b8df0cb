"""What is asked of one answer to a generated request: mirror, masks, formats, no secret, redaction.

The in-process engine is the oracle: it says whether a body is valid, what its mirror is, and, where
it is not valid, whose clause says so. Everything here is a function of a request and its answer.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from conformance.checks._common import is_uuid
from conformance.checks._oracle import Oracle, mirror_faults, shape_clause
from conformance.checks.secrets import secrets_found
from conformance.runner.bench import Bench
from conformance.schema.bridge import Bridge
from conformance.schema.generated import Asked, Fault
from conformance.wire.exchange import Exchange
from engine.http.openapi import document
from engine.messages import Json
from engine.tokens.cards import card_mask

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

__all__ = ["FLOOR_CLAUSES", "SHAPES", "AnswerJudge"]

SHAPES: Final = ("TOK-OBJECT", "TOK-PLAIN", "TOK-ARRAY", "TOK-COMPOSITE")
"""The clauses of the four shapes of a body."""

FLOOR_CLAUSES: Final = (
    *SHAPES,
    "TOK-LEAF",
    "REC-ID",
    "REC-TENANT",
    "REC-TYPE",
    "REC-CREATED",
    "REC-EXTRAS",
    "REC-CARD-MASK",
    "REC-TOKEN-DATA",
    "REC-METADATA",
    "REC-INDEXES",
    "REC-SECRET",
)
"""What valid requests show."""

_CLAUSE_OF: Final = {
    "type": "TOK-TYPES",
    "metadata": "TOK-METADATA",
    "search_indexes": "TOK-INDEXES",
    "fingerprint_expression": "TOK-FPEXPR",
    "encrypted": "TOK-ENCRYPTED",
}
_CREATING: Final = frozenset({"tokenize", "create_token"})
_LONG: Final = 8
"""Shorter values stand in answers by chance."""
_SHOWN: Final = 300


class AnswerJudge:
    """Judges answers, and counts what it has seen.

    bodies: how many valid ones were accepted and mirrored; accepted: by the clauses of their
    parts. refused: by the clause that an invalid body breaks. records: by type. shown: an exchange
    for each clause.
    """

    def __init__(self, bench: Bench, bridge: Bridge, tokenize_limit: int) -> None:
        self._bridge = bridge
        self._ceiling = _ceiling(bench)
        self._header = bench.target.key_header
        self._readers = set(bench.target.labels("private_reader"))
        self._readers |= set(bench.target.labels("dedup_reader"))
        self._oracle = Oracle(bench.profile, tokenize_limit)
        self.bodies = 0
        self.accepted: Counter[str] = Counter()
        self.refused: Counter[str] = Counter()
        self.records: Counter[str] = Counter()
        self.shown: dict[str, int] = {}

    def judge(self, asked: Asked) -> Iterator[Fault]:
        """Yield what is wrong with one answer."""
        exchange = self._bridge.exchanges.get(asked.number)
        if exchange is None:
            return
        if asked.is_negative:
            yield from self._judge_invalid(asked, exchange)
        elif asked.operation in _CREATING and asked.has_body:
            yield from self._judge_valid(asked, exchange)
        elif exchange.ok:
            for record in _records(_json(exchange)):
                yield from record_faults(record)

    def _judge_invalid(self, asked: Asked, exchange: Exchange) -> Iterator[Fault]:
        """A body outside of the ceiling is refused by every conforming service."""
        if not isinstance(exchange.ask.body, bytes) or not asked.has_body:
            return
        body = _without_nulls(asked.body)
        if self._ceiling.is_valid(asked.body) or self._ceiling.is_valid(body):
            return
        if self._oracle.answer(body)[0]:
            return  # a member that is null may be read as one that is not there
        is_valid, problem = self._oracle.answer(asked.body)
        if is_valid or not isinstance(problem, dict):
            return
        clause = _broken_clause(asked.body, problem)
        if exchange.status is not None and 400 <= exchange.status < 500:
            self.refused[clause] += 1
            self.shown.setdefault(clause, exchange.number)
        else:
            yield clause, f"an invalid body must be refused with a 4xx, got {exchange.status}"

    def _judge_valid(self, asked: Asked, exchange: Exchange) -> Iterator[Fault]:
        is_valid, expected = self._oracle.answer(asked.body)
        if not is_valid or _has_fraction(asked.body):
            return
        clause = shape_clause(asked.body)
        if not exchange.ok:
            if asked.operation == "tokenize":
                yield clause, f"a valid body must be accepted, got {exchange.status}"
            return
        answer = _json(exchange)
        mirrored = list(mirror_faults(asked.body, expected, answer))
        yield from mirrored
        if mirrored:
            return
        self.bodies += 1
        for part in dict.fromkeys(_shapes_in(asked.body)):
            self._note(part, exchange)
        for request, record in _pairs(asked.body, answer):
            if isinstance(record, dict):
                self.records[str(request["type"])] += 1
                yield from record_faults(record)
                yield from self._echo_faults(request, record, exchange)
        if secrets_found(exchange, _secrets(asked.body)):
            yield "REC-SECRET", "a value that was sent stands in the answer"

    def _note(self, clause: str, exchange: Exchange) -> None:
        self.accepted[clause] += 1
        self.shown.setdefault(clause, exchange.number)

    def _echo_faults(
        self, request: dict[str, Any], record: dict[str, Any], exchange: Exchange
    ) -> Iterator[Fault]:
        """Yield what a record does not show of its request as it should."""
        extras = record.get("_extras")
        if isinstance(extras, dict) and extras.get("deduplicated") is True:
            if exchange.ask.key not in self._readers and {"data", "metadata"} & set(record):
                yield "REC-DEDUP-REDACT", "a redacted record must hold no data and no metadata"
            return
        if request["type"] == "card":
            views = [record[name] for name in ("mask", "data") if name in record]
            if not views or any(one != card_mask(request["data"]) for one in views):
                yield "REC-CARD-MASK", "the masked object must show the last four digits alone"
        elif "data" in record:
            yield "REC-TOKEN-DATA", "a token record must carry no data"
        if record.get("metadata") != request.get("metadata"):
            yield "REC-METADATA", "metadata must come back as it was supplied, or not at all"
        if (
            "search_indexes" in request
            and record.get("search_indexes") != request["search_indexes"]
        ):
            yield "REC-INDEXES", "search_indexes must come back as they were supplied"


def _without_nulls(body: Json) -> Json:
    """Return a body whose token request objects, and what they hold, have no member that is null.

    >>> _without_nulls([{"type": "card", "data": {"number": "4", "cvc": None}, "metadata": None}])
    [{'type': 'card', 'data': {'number': '4'}}]
    """
    if isinstance(body, list):
        return [_without_nulls(one) for one in body]
    if not isinstance(body, dict):
        return body
    if "type" not in body:
        return {key: _without_nulls(one) for key, one in body.items()}
    return {key: _without(one) for key, one in body.items() if one is not None}


def _without(member: Json) -> Json:
    """Return what a token request object holds, without its own members that are null."""
    if isinstance(member, dict):
        return {key: one for key, one in member.items() if one is not None}
    return member


def _has_fraction(body: Json) -> bool:
    """Whether a number is written with a fraction: to JSON Schema 2.0 is an integer, to others not.

    >>> _has_fraction({"type": "card", "data": {"expiration_month": 2.0}})
    True
    """
    if isinstance(body, dict):
        return any(map(_has_fraction, body.values()))
    return isinstance(body, float) or (isinstance(body, list) and any(map(_has_fraction, body)))


def _ceiling(bench: Bench) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 # reason: slow, and not every run's

    found = document("ceiling", bench.profile)
    whole = {"$ref": "#/components/schemas/TokenizeBody", "components": found["components"]}
    return Draft202012Validator(whole)


def _broken_clause(body: Json, problem: dict[str, Any]) -> str:
    """Return the clause that an invalid body breaks, by where the oracle finds fault with it."""
    if not isinstance(body, dict) or "type" not in body:
        return "TOK-ATOMIC"
    fields = {pointer.split("/")[1] for pointer in problem.get("errors") or {} if "/" in pointer}
    if not {"data", "encrypted", "token_intent_id"} & set(body):
        return "TOK-ONE-OF"
    if len(fields) != 1:
        return "TOK-ATOMIC"
    if fields == {"data"}:
        return "TOK-CARD-DATA" if body["type"] == "card" else "TOK-TOKEN-DATA"
    return _CLAUSE_OF.get(fields.pop(), "TOK-ATOMIC")


def record_faults(record: dict[str, Any]) -> Iterator[Fault]:
    """Yield what is wrong with the form of a token record.

    >>> [clause for clause, _ in record_faults({"id": "x"})]
    ['REC-ID', 'REC-TENANT', 'REC-TYPE', 'REC-EXTRAS']
    """
    if not is_uuid(record.get("id")):
        yield "REC-ID", "id must be a UUID string"
    if not is_uuid(record.get("tenant_id")):
        yield "REC-TENANT", "tenant_id must be a UUID string"
    if record.get("type") not in {"token", "card"}:
        yield "REC-TYPE", "type must be the token's type"
    extras = record.get("_extras")
    if not isinstance(extras, dict) or not isinstance(extras.get("deduplicated"), bool):
        yield "REC-EXTRAS", "_extras.deduplicated must be a boolean"
    if "created_by" in record and not is_uuid(record["created_by"]):
        yield "REC-CREATED", "created_by must be a UUID string"
    if "created_at" in record and not _is_instant(record["created_at"]):
        yield "REC-CREATED", "created_at must be an ISO 8601 time with UTC offset"


def _is_instant(text: object) -> bool:
    try:
        return isinstance(text, str) and dt.datetime.fromisoformat(text).tzinfo is not None
    except ValueError:
        return False


def _shapes_in(body: Json) -> Iterator[str]:
    """Yield the clause of each part of a body."""
    yield shape_clause(body)
    if isinstance(body, dict) and "type" not in body:
        for one in body.values():
            yield from _shapes_in(one)
    elif isinstance(body, list):
        for one in body:
            yield from _shapes_in(one)


def _json(exchange: Exchange) -> Any:  # noqa: ANN401 # reason: any JSON
    try:
        return exchange.json
    except ValueError:
        return None


def _records(answer: Json) -> Iterator[dict[str, Any]]:
    """Yield the token records of an answer of /tokens: the record itself, or those of a page."""
    page = answer.get("data") if isinstance(answer, dict) and "pagination" in answer else [answer]
    for one in page if isinstance(page, list) else ():
        if isinstance(one, dict) and "_extras" in one:
            yield one


def _pairs(body: Json, answer: Json) -> Iterator[tuple[Any, Json]]:
    """Yield each token request object with what stands in its place; the answer mirrors."""
    if isinstance(body, dict) and "type" in body:
        yield body, answer
    elif isinstance(body, dict) and isinstance(answer, dict):
        for key, one in body.items():
            yield from _pairs(one, answer[key])
    elif isinstance(body, list) and isinstance(answer, list):
        for one, given in zip(body, answer, strict=True):
            yield from _pairs(one, given)


def _secrets(body: Json) -> list[str]:
    """Return the sensitive values of a body that are long enough to look for."""
    secrets: set[str] = set()
    open_text: list[str] = []
    stack: list[Json] = [body]
    while stack:
        one = stack.pop()
        if isinstance(one, str):
            secrets.add(one)
        elif isinstance(one, list):
            stack += one
        elif isinstance(one, dict) and "type" not in one:
            open_text += one
            stack += one.values()
        elif isinstance(one, dict):
            data = one.get("data")
            secrets.add(data["number"] if isinstance(data, dict) else str(data))
            open_text += [str(one.get(name, "")) for name in ("metadata", "search_indexes")]
    shown = "\n".join(open_text)
    return [one for one in secrets if len(one) >= _LONG and one not in shown]
