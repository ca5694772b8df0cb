"""Generated requests (sections 2 and 4): what every service must accept, and what it must refuse.

The *floor* is a closed schema of what must be accepted, and is run with valid data. The *ceiling*
is an open schema of what may be accepted, and is run with invalid data. A strict service and a
lenient one both pass. These checks need real HTTP; the runner leaves them out in virtual time.

Each answer is judged for its mirror, masks, formats, redaction, and secrets. The reference says
whether a body is valid and, where it is not, which clause says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Final

from conformance.context.answers import elements, is_known, is_secret_in, text_in
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, parsed_or_none
from conformance.model.blame import shape_clause, shapes_in
from conformance.model.reference import Reference, ReferenceAnswer
from conformance.schema.bridge import Bridge, GeneratedCase
from conformance.schema.oracle import (
    SHAPES,
    Contradiction,
    answer_faults,
    record_rules,
)
from engine.http.openapi import document
from engine.messages import Json
from engine.tokens.rules import SchemaKind

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator

_RECORDS: Final = (
    "REC-ID",
    "REC-TENANT",
    "REC-TYPE",
    "REC-CREATED",
    "REC-EXTRAS",
    "REC-METADATA",
    "REC-INDEXES",
)
"""What the record of every type shows."""

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


class GeneratedRequests:
    """The requests that are generated for one check, and what their answers show.

    seen: for each clause, the answers that show it.
    """

    def __init__(self, ctx: CheckContext) -> None:
        self.ctx = ctx
        self.bridge = Bridge(ctx)
        self.writers = (*ctx.keys("private_prod"), *ctx.keys("dedup"))
        self.seen: dict[str, list[Exchange]] = defaultdict(list)
        self._ceiling = _ceiling(ctx)
        self._readers = set(ctx.target.labels("private_reader"))
        self._readers |= set(ctx.target.labels("dedup_reader"))
        self._writer = min(self.writers, key=lambda key: ctx.quota("Tokenize Limit", key))
        self._reference = Reference(ctx.target, ctx.profile)

    def _expected(self, body: Json) -> ReferenceAnswer:
        return self._reference.answer("POST", "/tokenize", label=self._writer, body=body)

    def judge(self, asked: GeneratedCase) -> Iterator[Contradiction]:
        """Yield what is wrong with one answer."""
        exchange = self.bridge.exchanges.get(asked.number)
        if exchange is None:
            return
        if asked.is_negative:
            yield from self._judge_invalid(asked, exchange)
        elif asked.operation in _CREATING:
            yield from self._judge_valid(asked, exchange)
        elif exchange.ok:
            for record in _records(parsed_or_none(exchange.content)):
                for clause, message, is_so in record_rules(record, None):
                    if not is_so:
                        yield Contradiction(clause, message)

    def _judge_invalid(self, asked: GeneratedCase, exchange: Exchange) -> Iterator[Contradiction]:
        """Judge a body outside the ceiling, which every conforming service must refuse."""
        if not isinstance(exchange.ask.body, bytes):
            return
        body = _without_nulls(asked.body)
        if self._ceiling.is_valid(asked.body) or self._ceiling.is_valid(body):
            return
        if self._expected(body).ok:
            return  # a member that is null may be read as one that is not there
        expected = self._expected(asked.body)
        if expected.ok or not isinstance(expected.body, dict):
            return
        clause = _broken_clause(asked.body, expected.body)
        if exchange.status is not None and 400 <= exchange.status < 500:
            self.seen[clause].append(exchange)
        else:
            message = f"an invalid body must be refused with a 4xx, got {exchange.status}"
            yield Contradiction(clause, message)

    def _judge_valid(self, asked: GeneratedCase, exchange: Exchange) -> Iterator[Contradiction]:
        if not self._expected(asked.body).ok or _has_fraction(asked.body):
            return
        clause = shape_clause(asked.body)
        if not exchange.ok:
            if asked.operation == "tokenize":
                message = f"a valid body must be accepted, got {exchange.status}"
                yield Contradiction(clause, message, symptoms=("refused",))
            return
        answer = parsed_or_none(exchange.content)
        faults = list(answer_faults(asked.body, answer))
        yield from faults
        if {*SHAPES, "TOK-LEAF"} & {fault.clause for fault in faults}:
            return
        self._note_parts(asked.body, answer, exchange)
        if any(self._is_shown(part, exchange) for _, part in elements(asked.body, answer)):
            yield Contradiction(
                "REC-DEDUP-REDACT", "a redacted record must hold no data and no metadata"
            )
        if any(is_secret_in(text_in(exchange), secret) for secret in _secrets(asked.body)):
            yield Contradiction("REC-SECRET", "a value that was sent stands in the answer")

    def _note_parts(self, body: Json, answer: Json, exchange: Exchange) -> None:
        """Keep what an accepted body shows."""
        for part in {"REC-SECRET", *shapes_in(body)}:
            self.seen[part].append(exchange)
        for request, _ in elements(body, answer):
            if isinstance(request, dict):
                own = "REC-CARD-MASK" if request["type"] == "card" else "REC-TOKEN-DATA"
                for part in (*_RECORDS, own):
                    self.seen[part].append(exchange)

    def _is_shown(self, part: Json, exchange: Exchange) -> bool:
        """Whether part of an answer is a deduplicated record with what its key may not read."""
        if exchange.ask.key in self._readers or not isinstance(part, dict):
            return False
        return is_known(part) and bool({"data", "metadata"} & part.keys())

    def explore(self, searched: dict[str, Any], **how: Any) -> None:  # noqa: ANN401 # reason: those of the adapter
        """Generate requests from a document; how: keys, mode, phases and examples."""
        from conformance.schema.adapter import explore  # noqa: PLC0415 # reason: slow, and not every run's

        explore(searched, self.bridge, self.judge, seed=self.ctx.seed, **how)

    def failures(self) -> Iterator[Finding]:
        """Yield a failure for each clause that was seen broken, with its smallest body."""
        ctx, bridge = self.ctx, self.bridge
        if bridge.stopped is not None:
            raise bridge.stopped
        seen: dict[Contradiction, list[Exchange]] = defaultdict(list)
        for fault, number in bridge.failures:
            seen[fault].append(bridge.exchanges[number])
        for fault, evidence in seen.items():
            if fault.clause in ctx.check.clauses:
                where = f"at {fault.place}: " if fault.place else ""
                smallest = min(evidence, key=_body_bytes)
                message, symptoms = where + fault.message, fault.symptoms
                yield ctx.fails(fault.clause, message, smallest, symptoms=symptoms)
        if not bridge.failures and bridge.errors:
            raise Inconclusive(f"the generator failed: {bridge.errors[0].splitlines()[0]}")

    def unbroken(self, what: str) -> Iterator[Finding]:
        """Yield a pass for each clause that was seen often enough and never broken."""
        failed = {fault.clause for fault, _ in self.bridge.failures}
        for clause in self.ctx.check.clauses:
            if clause in failed:
                continue
            seen = self.seen[clause]
            if len(seen) >= _LEAST:
                message = f"{len(seen)} generated {what}, none of them broken"
                yield self.ctx.passes(clause, message, seen[0])
            else:
                message = f"only {len(seen)} generated {what}; {_LEAST} are needed to say anything"
                yield self.ctx.unsettled(clause, message, *seen[:1])


def _without_nulls(body: Json) -> Json:
    """Return a body without null members in its token request objects and what these hold.

    >>> _without_nulls([{"type": "card", "data": {"number": "4", "cvc": None}, "metadata": None}])
    [{'type': 'card', 'data': {'number': '4'}}]
    """
    if isinstance(body, list):
        return [_without_nulls(part) for part in body]
    if not isinstance(body, dict):
        return body
    if "type" not in body:
        return {key: _without_nulls(part) for key, part in body.items()}
    return {key: _without(part) for key, part in body.items() if part is not None}


def _without(member: Json) -> Json:
    """Return a member of a token request object without its own null members."""
    if isinstance(member, dict):
        return {key: part for key, part in member.items() if part is not None}
    return member


def _has_fraction(body: Json) -> bool:
    """Whether a number has a fraction: 2.0 is an integer to JSON Schema, but not to every service.

    >>> _has_fraction({"type": "card", "data": {"expiration_month": 2.0}})
    True
    """
    if isinstance(body, dict):
        return any(map(_has_fraction, body.values()))
    return isinstance(body, float) or (isinstance(body, list) and any(map(_has_fraction, body)))


def _ceiling(ctx: CheckContext) -> Draft202012Validator:
    from jsonschema import Draft202012Validator  # noqa: PLC0415 # reason: slow, and not every run's

    ceiling = document("ceiling", ctx.profile)
    whole = {"$ref": "#/components/schemas/TokenizeBody", "components": ceiling["components"]}
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


def _records(answer: Json) -> Iterator[dict[str, Any]]:
    """Yield the token records of an answer of /tokens: the record itself, or those of a page."""
    page = answer.get("data") if isinstance(answer, dict) and "pagination" in answer else [answer]
    for record in page if isinstance(page, list) else ():
        if isinstance(record, dict) and "_extras" in record:
            yield record


def _secrets(body: Json) -> list[str]:
    """Return the sensitive values of a body that are long enough to look for."""
    secrets: set[str] = set()
    open_text: list[str] = []
    stack: list[Json] = [body]
    while stack:
        part = stack.pop()
        if isinstance(part, str):
            secrets.add(part)
        elif isinstance(part, list):
            stack += part
        elif isinstance(part, dict) and "type" not in part:
            open_text += part
            stack += part.values()
        elif isinstance(part, dict):
            data = part.get("data")
            secrets.add(data["number"] if isinstance(data, dict) else str(data))
            open_text += [str(part.get(name, "")) for name in ("metadata", "search_indexes")]
    plain = "\n".join(open_text)
    return [part for part in secrets if len(part) >= _LONG and part not in plain]


CEILING_CLAUSES: Final = (
    "TOK-ATOMIC",
    "TOK-ONE-OF",
    "TOK-CARD-DATA",
    "TOK-METADATA",
    "TOK-INDEXES",
    "TOK-FPEXPR",
)
"""The clauses for which the generator finds invalid bodies in every run."""

_PLAIN: Final = {
    "type": "object",
    "minProperties": 1,
    "maxProperties": 4,
    "propertyNames": {"pattern": "^[A-Za-su-z][A-Za-z0-9_]{0,11}$"},
    "additionalProperties": {"type": "string", "minLength": 1, "maxLength": 40},
}
"""Plain objects alone, which the generator rarely produces by itself."""
_LEAST: Final = 5
"""Fewer accepted requests of a shape, or refused ones of a clause, give no verdict."""
_FLOOR_EXAMPLES: Final = 80
_PLAIN_EXAMPLES: Final = 20
_CEILING_EXAMPLES: Final = 80
_FORM_EXAMPLES: Final = 40
_LINKED_EXAMPLES: Final = 12
_LINKED_PATHS: Final = ("/tokenize", "/tokens", "/tokens/{id}", "/detokenize")


def _trimmed(ctx: CheckContext, kind: SchemaKind, paths: tuple[str, ...]) -> dict[str, Any]:
    """Return a document reduced to some paths and the links between them."""
    trimmed = document(kind, ctx.profile)
    trimmed["paths"] = {path: item for path, item in trimmed["paths"].items() if path in paths}
    operations = [operation for item in trimmed["paths"].values() for operation in item.values()]
    known = {operation["operationId"] for operation in operations}
    for operation in operations:
        for response in operation["responses"].values():
            links = response.get("links", {})
            response["links"] = {
                name: link for name, link in links.items() if link.get("operationId") in known
            }
    return trimmed


def _narrowed(whole: dict[str, Any], body: dict[str, Any]) -> dict[str, Any]:
    """Return a document in which the body of a tokenize request has another schema."""
    schemas = {**whole["components"]["schemas"], "TokenizeBody": body}
    return {**whole, "components": {**whole["components"], "schemas": schemas}}


async def _in_thread(
    ctx: CheckContext, judge: Callable[[CheckContext], Iterator[Finding]]
) -> list[Finding]:
    """Run the generator, which waits for answers by itself, in a thread."""
    for key in ctx.keys("private_prod")[:1]:
        await ctx.ready(key)
    return await ctx.transport.aside(lambda: list(judge(ctx)))


def _body_bytes(exchange: Exchange) -> int:
    return len(exchange.ask.body) if isinstance(exchange.ask.body, bytes) else 0


@check(
    "schema.floor",
    *SHAPES,
    "TOK-LEAF",
    *_RECORDS,
    "REC-CARD-MASK",
    "REC-TOKEN-DATA",
    "REC-SECRET",
    accepts="2xx and a mirrored answer for every valid body, whatever its shape",
    requests=2 * _FLOOR_EXAMPLES,
    load="computing",
)
async def floor(ctx: CheckContext) -> list[Finding]:
    """Generated bodies that every service must accept come back mirrored, with sound records."""
    return await _in_thread(ctx, _floor_findings)


def _floor_findings(ctx: CheckContext) -> Iterator[Finding]:
    generated = GeneratedRequests(ctx)
    whole = _trimmed(ctx, "floor", ("/tokenize",))
    for searched, phases, examples in (
        (whole, ("examples", "coverage", "fuzzing"), _FLOOR_EXAMPLES),
        (_narrowed(whole, _PLAIN), ("fuzzing",), _PLAIN_EXAMPLES),
    ):
        keys = generated.writers
        generated.explore(searched, keys=keys, mode="positive", phases=phases, examples=examples)
    yield from generated.failures()
    yield from generated.unbroken("parts of accepted bodies")


@check(
    "schema.ceiling",
    *CEILING_CLAUSES,
    accepts="any 4xx for every body that no service may accept",
    requests=6 * _CEILING_EXAMPLES,
    load="computing",
)
async def ceiling(ctx: CheckContext) -> list[Finding]:
    """Generated bodies that no service may accept are refused with a 4xx, never with a 5xx."""
    return await _in_thread(ctx, _ceiling_findings)


def _ceiling_findings(ctx: CheckContext) -> Iterator[Finding]:
    generated = GeneratedRequests(ctx)
    # A body made to break one form of a token request object mostly has one fault, and the ceiling
    # tells whether every service must refuse that one; made to break the ceiling, it has several.
    floor_ = _trimmed(ctx, "floor", ("/tokenize",))
    forms = floor_["components"]["schemas"]["TokenRequest"]["anyOf"][:2]
    for searched, examples in (
        (_trimmed(ctx, "ceiling", ("/tokenize",)), _CEILING_EXAMPLES),
        *((_narrowed(floor_, form), _FORM_EXAMPLES) for form in forms),
    ):
        keys, phases = ctx.keys("private_prod"), ("coverage", "fuzzing")
        generated.explore(searched, keys=keys, mode="negative", phases=phases, examples=examples)
    yield from generated.failures()
    yield from generated.unbroken("invalid bodies refused")


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
async def links(ctx: CheckContext) -> list[Finding]:
    """Links in the answers to tokenize lead to sound records, and are refused without a key."""
    return await _in_thread(ctx, _link_findings)


def _link_findings(ctx: CheckContext) -> Iterator[Finding]:
    generated = GeneratedRequests(ctx)
    linked = _trimmed(ctx, "floor", _LINKED_PATHS)
    keys, examples = ctx.keys("private_reader"), _LINKED_EXAMPLES
    generated.explore(linked, keys=keys, mode="positive", phases=["stateful"], examples=examples)
    yield from generated.failures()
    bridge = generated.bridge
    paths = ("/tokens/", "/detokenize")
    asked = [
        exchange for exchange in bridge.exchanges.values() if _path(ctx, exchange).startswith(paths)
    ]
    followed = [exchange for exchange in asked if exchange.ok]
    generated.seen |= {"REC-ID": followed, "REC-EXTRAS": followed}
    is_absent = not asked or any(exchange.is_absent for exchange in asked)
    for finding in generated.unbroken("linked requests"):
        if finding.clause == "AUTH-HEADER":
            continue
        if not followed and is_absent:
            message = "no token can be read by its identifier here: no link was followed"
            yield ctx.informs(finding.clause, message, *asked[:1])
        else:
            yield finding
    yield from _keyless(ctx, bridge)


def _path(ctx: CheckContext, exchange: Exchange) -> str:
    """Return the path of a request as the engine spells it."""
    return ctx.target.spelling.assumed(exchange.ask.method, exchange.ask.path)


def _keyless(ctx: CheckContext, bridge: Bridge) -> Iterator[Finding]:
    """Send one of each kind of accepted request again, without a key."""
    kinds: dict[tuple[str, str], Exchange] = {}
    for exchange in bridge.exchanges.values():
        if exchange.ok:
            place = _path(ctx, exchange).partition("?")[0].split("/")[1]
            kinds.setdefault((exchange.ask.method, place), exchange)
    if not kinds:
        yield ctx.unsettled(
            "AUTH-HEADER", "no request was accepted that could be sent again without a key"
        )
    for (method, place), accepted in kinds.items():
        ask = accepted.ask
        exchange = bridge.send(ask.method, ask.path, ask.body, headers=ask.headers)
        yield ctx.refusal("AUTH-HEADER", f"{method} /{place} without a key", exchange)
