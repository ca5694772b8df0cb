"""Generated requests (sections 2 and 4): what every service must accept, and what it must refuse.

The *floor* is a closed schema of what must be accepted, and is run with valid data. The *ceiling*
is an open schema of what may be accepted, and is run with invalid data. A strict service and a
lenient one both pass. These checks need real HTTP; the runner leaves them out in virtual time.

Each answer is judged for its mirror, masks, formats, redaction, and secrets. The in-process engine
is the oracle: it says whether a body is valid, what its mirror is and, where it is not valid, which
clause says so.
"""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from conformance.checks._oracle import Oracle, clauses_in, mirror_faults, shape_clause
from conformance.checks.secrets import secrets_found
from conformance.runner.answers import elements, flag_of, is_known, is_refused, is_uuid
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, check
from conformance.runner.verdicts import Finding
from conformance.schema.bridge import Asked, Bridge, Explored, Fault, Search
from conformance.wire.exchange import Exchange, KeyLabel
from engine.http.openapi import document
from engine.http.openapi.schemas import Kind
from engine.messages import Json
from engine.tokens.cards import card_mask

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

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
"""Shorter values may occur in answers by chance."""
_SHOWN: Final = 300


class AnswerJudge:
    """Judges answers, and counts what it has seen.

    bodies: number of valid ones that were accepted and mirrored. accepted: parts of these, by
    clause. refused: invalid bodies, by the clause that they break. records: by type. shown: an
    exchange for each clause.
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
        """Judge a body outside the ceiling, which every conforming service must refuse."""
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
        for part in dict.fromkeys(clauses_in(asked.body)):
            self._note(part, exchange)
        for request, record in elements(asked.body, answer):
            if isinstance(request, dict) and isinstance(record, dict):
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
        """Yield the fields of a request that its record does not show as it should."""
        if is_known(record):
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
    """Return a body without null members in its token request objects and what these hold.

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
    """Return a member of a token request object without its own null members."""
    if isinstance(member, dict):
        return {key: one for key, one in member.items() if one is not None}
    return member


def _has_fraction(body: Json) -> bool:
    """Whether a number has a fraction: 2.0 is an integer to JSON Schema, but not to every service.

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
    """Return the clause that an invalid body breaks, by the fields that the oracle reports."""
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
    if flag_of(record) is None:
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


CEILING_CLAUSES: Final = (
    "TOK-ATOMIC",
    "TOK-ONE-OF",
    "TOK-CARD-DATA",
    "TOK-METADATA",
    "TOK-INDEXES",
    "TOK-FPEXPR",
)
"""The clauses for which the generator finds invalid bodies in every run."""

_MISSING: Final = frozenset({404, 405, 501})
_LEAST: Final = 5
"""Fewer accepted requests of a shape, or refused ones of a clause, give no verdict."""
_FLOOR_EXAMPLES: Final = 80
_PLAIN_EXAMPLES: Final = 20
_CEILING_EXAMPLES: Final = 80
_FORM_EXAMPLES: Final = 40
_LINKED_EXAMPLES: Final = 12
_LINKED_PATHS: Final = ("/tokenize", "/tokens", "/tokens/{id}", "/detokenize")


def _trimmed(bench: Bench, kind: Kind, paths: tuple[str, ...]) -> dict[str, Any]:
    """Return a document reduced to some paths and the links between them."""
    found = document(kind, bench.profile)
    found["paths"] = {path: item for path, item in found["paths"].items() if path in paths}
    operations = [operation for item in found["paths"].values() for operation in item.values()]
    known = {operation["operationId"] for operation in operations}
    for operation in operations:
        for response in operation["responses"].values():
            links = response.get("links", {})
            response["links"] = {
                name: link for name, link in links.items() if link.get("operationId") in known
            }
    return found


def _plain_only(whole: dict[str, Any]) -> dict[str, Any]:
    """Return the floor of plain objects alone: the generator rarely produces one by itself."""
    schemas = whole["components"]["schemas"]
    plain = {
        "type": "object",
        "minProperties": 1,
        "maxProperties": 4,
        "propertyNames": {"pattern": "^[A-Za-su-z][A-Za-z0-9_]{0,11}$"},
        "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 40},
    }
    narrowed = {**schemas, "TokenizeBody": plain}
    return {**whole, "components": {**whole["components"], "schemas": narrowed}}


def _of_form(whole: dict[str, Any], form: int) -> dict[str, Any]:
    """Return the floor of one form of a token request object alone.

    A body generated to break it mostly has one fault, and the ceiling tells whether every service
    must refuse that one. A body generated to break the ceiling itself nearly always has several
    faults.
    """
    schemas = whole["components"]["schemas"]
    narrowed = {**schemas, "TokenizeBody": schemas["TokenRequest"]["anyOf"][form]}
    return {**whole, "components": {**whole["components"], "schemas": narrowed}}


def _writers(bench: Bench) -> tuple[KeyLabel, ...]:
    return (*bench.keys("private_prod"), *bench.keys("dedup"))


def _begin(bench: Bench) -> tuple[Bridge, AnswerJudge]:
    keys = bench.keys("private_prod")
    for key in keys[:1]:
        bench.ready(key)
    bridge = Bridge(bench)
    limit = min(bench.quota("Tokenize Limit", key) for key in _writers(bench))
    return bridge, AnswerJudge(bench, bridge, limit)


def _explore(
    bench: Bench,
    searched: dict[str, Any],
    bridge: Bridge,
    judge: AnswerJudge,
    keys: tuple[KeyLabel, ...],
    search: Search,
) -> Explored:
    from conformance.schema.adapter import explore  # noqa: PLC0415 # reason: slow, and not every run's

    return explore(
        searched,
        bridge,
        judge.judge,
        keys=lambda _: keys,
        key_header=bench.target.key_header,
        search=search,
        seed=bench.seed,
    )


def _failures(bench: Bench, bridge: Bridge, explored: Explored) -> Iterator[Finding]:
    """Yield a failure for each clause that the generator saw broken, with its smallest body."""
    if bridge.stopped is not None:
        raise bridge.stopped
    seen: dict[tuple[str, str], list[Exchange]] = {}
    for clause, says, number in explored.failures:
        exchange = bridge.exchanges.get(number)
        seen.setdefault((clause, says), []).extend([] if exchange is None else [exchange])
    for (clause, says), shown in seen.items():
        if clause in bench.check.clauses:
            yield bench.fails(clause, says, *sorted(shown, key=_body_bytes)[:1])
    if not explored.failures and explored.errors:
        raise Inconclusive(f"the generator failed: {explored.errors[0].splitlines()[0]}")


def _body_bytes(exchange: Exchange) -> int:
    return len(exchange.ask.body) if isinstance(exchange.ask.body, bytes) else 0


def _unbroken(
    bench: Bench, explored: Explored, bridge: Bridge, seen: dict[str, tuple[int, str, int]]
) -> Iterator[Finding]:
    """Yield a pass for each clause that was seen often enough and never broken.

    seen: clause → how often, what, and an exchange that shows it.
    """
    failed = {clause for clause, _, _ in explored.failures}
    for clause in bench.check.clauses:
        if clause in failed:
            continue
        count, what, number = seen.get(clause, (0, "requests", 0))
        shown = [bridge.exchanges[number]] if number in bridge.exchanges else []
        if count >= _LEAST:
            yield bench.passes(clause, f"{count} generated {what}, none of them broken", *shown)
        else:
            says = f"only {count} generated {what}; {_LEAST} are needed to say anything"
            yield bench.unsettled(clause, says, *shown)


@check(
    "schema.floor",
    *FLOOR_CLAUSES,
    accepts="2xx and a mirrored answer for every valid body, whatever its shape",
    requests=2 * _FLOOR_EXAMPLES,
    load="computing",
)
def floor(bench: Bench) -> Iterator[Finding]:
    """Generated bodies that every service must accept come back mirrored, with sound records."""
    bridge, judge = _begin(bench)
    explored = Explored()
    whole = _trimmed(bench, "floor", ("/tokenize",))
    for searched, phases, examples in (
        (whole, ("examples", "coverage", "fuzzing"), _FLOOR_EXAMPLES),
        (_plain_only(whole), ("fuzzing",), _PLAIN_EXAMPLES),
    ):
        search = Search("positive", phases, examples)
        explored += _explore(bench, searched, bridge, judge, _writers(bench), search)
    yield from _failures(bench, bridge, explored)
    shapes = {
        clause: (
            judge.accepted[clause],
            "bodies of this shape accepted",
            judge.shown.get(clause, 0),
        )
        for clause in SHAPES
    }
    some = max(judge.shown.values(), default=0)
    records = sum(judge.records.values())
    everything = judge.bodies
    rest = {clause: (records, "records", some) for clause in FLOOR_CLAUSES if "REC-" in clause}
    rest["REC-CARD-MASK"] = (judge.records["card"], "cards", some)
    rest["REC-TOKEN-DATA"] = (judge.records["token"], "tokens", some)
    rest["REC-SECRET"] = rest["TOK-LEAF"] = (everything, "bodies", some)
    yield from _unbroken(bench, explored, bridge, {**shapes, **rest})


@check(
    "schema.ceiling",
    *CEILING_CLAUSES,
    accepts="any 4xx for every body that no service may accept",
    requests=6 * _CEILING_EXAMPLES,
    load="computing",
)
def ceiling(bench: Bench) -> Iterator[Finding]:
    """Generated bodies that no service may accept are refused with a 4xx, never with a 5xx."""
    bridge, judge = _begin(bench)
    explored = Explored()
    forms = _trimmed(bench, "floor", ("/tokenize",))
    for searched, examples in (
        (_trimmed(bench, "ceiling", ("/tokenize",)), _CEILING_EXAMPLES),
        *((_of_form(forms, form), _FORM_EXAMPLES) for form in (0, 1)),
    ):
        search = Search("negative", ("coverage", "fuzzing"), examples)
        explored += _explore(bench, searched, bridge, judge, bench.keys("private_prod"), search)
    yield from _failures(bench, bridge, explored)
    seen = {
        clause: (judge.refused[clause], "invalid bodies refused", judge.shown.get(clause, 0))
        for clause in CEILING_CLAUSES
    }
    yield from _unbroken(bench, explored, bridge, seen)


@check(
    "schema.links",
    "REC-ID",
    "REC-EXTRAS",
    "AUTH-HEADER",
    accepts="what was created is found by its identifier, and nothing of it without a key",
    roles=("private_prod", "private_reader"),
    requests=12 * _LINKED_EXAMPLES,
    load="computing",
)
def links(bench: Bench) -> Iterator[Finding]:
    """Links in the answers to tokenize lead to sound records, and are refused without a key."""
    bridge, judge = _begin(bench)
    linked = _trimmed(bench, "floor", _LINKED_PATHS)
    search = Search("positive", ("stateful",), _LINKED_EXAMPLES)
    explored = _explore(bench, linked, bridge, judge, bench.keys("private_reader"), search)
    yield from _failures(bench, bridge, explored)
    followed = [one for one in bridge.exchanges.values() if one.ok and _is_followed(bench, one)]
    seen = {
        clause: (len(followed), "linked requests", followed[0].number if followed else 0)
        for clause in ("REC-ID", "REC-EXTRAS")
    }
    gone = [one for one in bridge.exchanges.values() if _is_followed(bench, one) and not one.ok]
    for finding in _unbroken(bench, explored, bridge, seen):
        if finding.clause == "AUTH-HEADER":
            continue
        if not followed and (not gone or any(one.status in _MISSING for one in gone)):
            says = "no token can be read by its identifier here: no link was followed"
            yield bench.informs(finding.clause, says, *gone[:1])
        else:
            yield finding
    yield from _keyless(bench, bridge)


def _is_followed(bench: Bench, exchange: Exchange) -> bool:
    ask = exchange.ask
    path = bench.target.spelling.assumed(ask.method, ask.path)
    return path.startswith(("/tokens/", "/detokenize"))


def _keyless(bench: Bench, bridge: Bridge) -> Iterator[Finding]:
    """Send one of each kind of accepted request again, without a key."""
    kinds: dict[tuple[str, str], Exchange] = {}
    for exchange in bridge.exchanges.values():
        if exchange.ok:
            path = bench.target.spelling.assumed(exchange.ask.method, exchange.ask.path)
            place = path.partition("?")[0].split("/")[1]
            kinds.setdefault((exchange.ask.method, place), exchange)
    if not kinds:
        yield bench.unsettled(
            "AUTH-HEADER", "no request was accepted that could be sent again without a key"
        )
    for (method, place), accepted in kinds.items():
        ask = accepted.ask
        exchange = bench.ask(ask.method, ask.path, ask.body, headers=ask.headers)
        what = f"{method} /{place} without a key"
        seen, says = f"{what}: {exchange.status}", f"{what} must be refused, got {exchange.status}"
        yield bench.judges("AUTH-HEADER", is_refused(exchange), seen, says, accepted, exchange)
