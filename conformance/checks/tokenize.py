"""Section 4.1: the body shapes of POST /tokenize, and that the answer mirrors them.

Where 4.1 is silent (deep nesting, empty bodies, leaves that are not strings), a check reports a
reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from conformance.checks._bodies import ODD_KEYS, Counterexample, bodies, smallest, tokens_in
from conformance.checks._oracle import SHAPES, Contradiction, failure_of, mirror_faults
from conformance.checks._witness import Witness, find_witness
from conformance.context.answers import (
    accepted,
    elements,
    is_identifier,
    is_known,
    is_uuid,
    records_of,
)
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.model.blame import shape_clause, shapes_in
from engine.messages import Json

_DIFFERENT: Final = "different values must have different identifiers"
_EXAMPLES: Final = 40
_MIXED: Final = 60
"""How many arrays of a string and an object are sent; the answer's form shows their order."""
_NO_ACCESS: Final = frozenset({401, 403, 404, 405})


# --- the mirror -----------------------------------------------------------------------------------


class _Mirror:
    """Tokenizes valid bodies, judges the answers, and remembers every identifier."""

    def __init__(self, ctx: CheckContext, key: KeyLabel) -> None:
        self.ctx = ctx
        self.key = key
        self.limit = ctx.quota("Tokenize Limit", key)
        self.accepted: dict[str, Exchange] = {}
        self.count = 0
        self._owners: dict[str, str] = {}
        self._forms: dict[str, list[tuple[str, Exchange]]] = {}

    def judge(self, body: Json) -> Counterexample | None:
        """Return what is broken about the answer to a body, None when nothing is."""
        exchange = self.ctx.tokenize(body, self.key)
        if exchange.status in _NO_ACCESS:
            raise Inconclusive(f"no access to tokenize: {exchange.status}")
        if not exchange.ok:
            says = f"a valid body must be accepted, got {exchange.status}"
            fault = Contradiction(shape_clause(body), says, "/", "refused")
            return Counterexample(body, [fault], (exchange,))
        try:
            answer = exchange.json
        except ValueError:
            fault = Contradiction(shape_clause(body), "the answer must be JSON", "/")
            return Counterexample(body, [fault], (exchange,))
        faults = [*mirror_faults(body, answer), *self._shared(body, answer)]
        if faults:
            return Counterexample(body, faults, (exchange,))
        self.count += 1
        for clause, _, token_id in _pairs(body, answer):
            self._forms.setdefault(clause, []).append((token_id, exchange))
        for clause in shapes_in(body):
            self.accepted[clause] = exchange
        return None

    def odd_leaf(self) -> tuple[str, Exchange] | None:
        """Return an identifier of a string that is not a UUID, if every record's `id` is one."""
        records = self._forms.get("TOK-OBJECT", [])
        if not records or not all(is_uuid(token_id) for token_id, _ in records):
            return None
        leaves = self._forms.get("TOK-LEAF", [])
        return next((one for one in leaves if not is_uuid(one[0])), None)

    def _shared(self, body: Json, answer: Json) -> Iterator[Contradiction]:
        """Yield a fault for each identifier that two different values have received so far."""
        for clause, asked, token_id in _pairs(body, answer):
            if self._owners.setdefault(token_id, asked) != asked:
                yield Contradiction(clause, _DIFFERENT, symptom="shared-id")


def _pairs(body: Json, answer: Json) -> Iterator[tuple[str, str, str]]:
    """Yield (clause, value asked for, identifier) of each element that came back as it should."""
    for asked, given in elements(body, answer):
        if isinstance(asked, str) and isinstance(given, str):
            yield "TOK-LEAF", f"token {asked}", given
        is_record = isinstance(asked, dict) and isinstance(given, dict)
        if is_record and isinstance(given.get("id"), str):
            yield "TOK-OBJECT", f"{asked['type']} {asked['data']}", given["id"]


def _reduced(mirrored: _Mirror, broken: Counterexample) -> list[Counterexample]:
    """Return the part of a body that is broken alone, and the body if that shows more faults."""
    body = broken.body
    if isinstance(body, dict) and "type" not in body:
        parts: list[Json] = [{key: one} for key, one in body.items()]
    elif isinstance(body, list):
        parts = [[one] for one in body]
    else:
        return [broken]
    if len(parts) < 2:  # reason: nothing is left out
        return [broken]
    found = next(filter(None, map(mirrored.judge, parts)), None)
    if found is None:
        return [broken]
    is_more = {fault.clause for fault in broken.faults} - {fault.clause for fault in found.faults}
    return [found, broken] if is_more else [found]


_TEXTS: Final = (
    ("a quotation mark", '"quoted"'),
    ("a backslash", "back\\slash"),
    ("a line break", "two\nlines"),
    ("an emoji", "\U0001f511 key"),
    ("letters of other scripts", "\u6c34 \u043a\u043b\u044e\u0447 \u00e9"),
    ("what looks like markup", "<b>&amp;</b>"),
    ("what looks like an expression", "{{ data }}"),
    ("what looks like a number", "0012"),
)
"""Contents of plain strings; each is sent alone, in an array that is otherwise accepted."""


def _text(mirrored: _Mirror, what: str, text: str) -> Counterexample | None:
    """Return what is broken about one text; if other texts pass, the body's shape is not."""
    broken = mirrored.judge([text])
    if broken is None or mirrored.judge(["text"]) is not None:
        return broken
    faults = [fault for fault in broken.faults if fault.symptom != "refused"]
    if len(faults) < len(broken.faults):
        message = f"a plain string with {what} must be accepted, got {broken.shown[0].status}"
        faults.append(Contradiction("TOK-LEAF", message, symptom="refused"))
    return Counterexample(broken.body, faults, broken.shown)


def _plain_cases(ctx: CheckContext, limit: int) -> list[Json]:
    """Return one body of every shape and every odd key, so that none is left to chance."""
    one, two, three = (ctx.value(name) for name in ("one", "two", "three"))
    both = ctx.card("plain")
    odd: list[Json] = [
        {key: ctx.value(f"under {key}") for key in ODD_KEYS[start : start + limit]}
        for start in range(0, len(ODD_KEYS), limit)
    ]
    return [
        *odd,
        {"type": "token", "data": one},
        both,
        {"first_name": one, "LastName": two, "": three},
        [one, two, three],
        [one, one, two],
        [one],
        [one, {"type": "token", "data": two}, one, both],
        {"Name": one, "cards": [both, {"Type": "visa", "deep": [[two], {"x": {"y": three}}]}]},
        [[[[[[{"last": one}]]]]]],
    ]


@check(
    "tokenize.mirror",
    *SHAPES,
    "TOK-LEAF",
    accepts="2xx with the body's structure: identifier strings for leaves, records for objects",
    requests=_EXAMPLES + 12,
)
def mirror(ctx: CheckContext) -> Iterator[Finding]:
    """The answer mirrors the body, whatever its shape."""
    mirrored = _Mirror(ctx, ctx.spread_key("private_prod"))
    limit = mirrored.limit
    cases = [body for body in _plain_cases(ctx, limit) if tokens_in(body) <= limit]
    found = [broken for broken in map(mirrored.judge, cases) if broken is not None]
    found = [each for broken in found for each in _reduced(mirrored, broken)]
    found += filter(None, (_text(mirrored, what, text) for what, text in _TEXTS))
    if not found:
        cards = [ctx.card("drawn one"), ctx.card("drawn two")]
        drawn = smallest(ctx, bodies(limit, cards), mirrored.judge, _EXAMPLES)
        found = [] if drawn is None else [drawn]
    for broken in found:
        for fault in dict.fromkeys(broken.faults):
            yield failure_of(ctx, fault, *broken.shown)
    failed = {fault.clause for broken in found for fault in broken.faults}
    odd = mirrored.odd_leaf()
    if odd is not None:
        text, shown = odd
        says = f"a plain string came back as {text!r}, but the `id` of every record is a UUID"
        yield ctx.fails("TOK-LEAF", f"{says}: must be the identifier alone", shown)
        failed.add("TOK-LEAF")
    for clause in ctx.check.clauses:
        if clause not in failed and clause in mirrored.accepted:
            says = f"{mirrored.count} answers mirrored their bodies, this shape among them"
            yield ctx.passes(clause, says, mirrored.accepted[clause])
    statuses = {exchange.status for exchange in mirrored.accepted.values()}
    if not found and statuses <= {200, 201} and len(statuses) == 1:
        shown = mirrored.accepted["TOK-OBJECT"]
        yield ctx.reads("TOK-OBJECT", "http.tokenize_status", statuses.pop(), shown)


# --- each at its own place ------------------------------------------------------------------------


_ORDERED: Final[tuple[tuple[str, Callable[[str, str, str], Json]], ...]] = (
    ("TOK-ARRAY", lambda a, b, c: [a, b, c]),
    ("TOK-PLAIN", lambda a, b, c: {"z": b, "a": c, "M": a}),
    ("TOK-COMPOSITE", lambda a, b, c: {"q": [[c, a]], "b": {"z": [b]}}),
)
"""Clause, and a body of three values."""


_DRAWS: Final = ("abc", "def", "ghi", "jkl", "mno", "pqr")
"""Enough draws that the identifiers of at least one are not sorted by chance."""


@check(
    "tokenize.order",
    "TOK-LEAF",
    "TOK-ARRAY",
    "TOK-PLAIN",
    "TOK-COMPOSITE",
    accepts="each value has its own identifier, at the value's place",
    requests=12 + _MIXED,
)
def order(ctx: CheckContext) -> Iterator[Finding]:
    """Each value has its own token, and its identifier is at the value's place."""
    key = ctx.spread_key("private_prod")
    yield from _card_order(ctx, key)
    for number in range(_MIXED if ctx.quota("Tokenize Limit", key) > 1 else 0):
        # `tokenize.steady` judges these answers too, and finds an order that is wrong sometimes.
        text = ctx.value(f"mixed {number}")
        ctx.tokenize([text, {"type": "token", "data": f"{text} too"}], key)
    witness, _ = find_witness(ctx)
    key = key if witness is None else witness.key
    for clause, shape in _ORDERED:
        for names in _DRAWS:
            values = [ctx.value(f"{clause} {name}") for name in names]
            body = shape(*values)
            exchange = ctx.tokenize(body, key)
            placed = dict(elements(body, accepted(exchange)))
            found = [placed.get(value) for value in values]
            yield from _placed(ctx, witness, clause, values, found, exchange)
            texts = [str(one) for one in found]
            if texts not in (sorted(texts), sorted(texts, reverse=True)):
                break  # otherwise a deployment that sorts identifiers would pass by chance


def _placed(
    ctx: CheckContext,
    witness: Witness | None,
    clause: str,
    values: list[str],
    found: list[Any],
    exchange: Exchange,
) -> Iterator[Finding]:
    if not all(is_identifier(one, sent) for one, sent in zip(found, values, strict=True)):
        yield ctx.fails(clause, "each value must come back as an identifier", exchange)
    elif len(set(map(str, found))) != len(found):
        for broken in (clause, "TOK-LEAF"):
            yield ctx.fails(broken, _DIFFERENT, exchange, symptoms=("shared-id",))
    else:
        yield ctx.passes("TOK-LEAF", "three values have three identifiers", exchange)
        if witness is None:
            says = "values cannot be looked up here, so their places could not be checked"
            yield ctx.informs(clause, says, exchange)
            return
        yield _looked_up(ctx, witness, clause, values, found, exchange)


def _card_order(ctx: CheckContext, key: KeyLabel) -> Iterator[Finding]:
    """Cards show their place by their last four digits; no deduplication is needed."""
    asked = [ctx.card(f"order {number}") for number in range(3)]
    exchange = ctx.tokenize(asked, key)
    records = records_of(exchange, len(asked))
    masks = [record.get("mask", record.get("data")) for record in records]
    numbers = [str(mask.get("number")) for mask in masks if isinstance(mask, dict)]
    if len(numbers) < len(asked):
        return
    is_so = all(
        number[-4:] == request["data"]["number"][-4:]
        for number, request in zip(numbers, asked, strict=True)
    )
    yield ctx.rule("TOK-ARRAY", "each card's record must be at its place", exchange, is_so=is_so)


def _looked_up(
    ctx: CheckContext,
    witness: Witness,
    clause: str,
    values: list[str],
    found: list[str],
    shown: Exchange,
) -> Finding:
    """Look the values up by deduplication: every identifier must belong to its value."""
    again: list[Json] = [witness.again({"type": "token", "data": one}) for one in values]
    exchange = ctx.tokenize(again, witness.key)
    records = records_of(exchange, len(again)) if exchange.ok else []
    if not records or not all(map(is_known, records)):
        says = "no deduplication, so the places of strings could not be checked"
        return ctx.informs(clause, says, exchange)
    is_so = [record["id"] for record in records] == found
    says = "each identifier must be at its value's place"
    return ctx.rule(clause, says, shown, exchange, is_so=is_so)


# --- where the specification is silent: depth, empty bodies, leaves that are no strings --------


_LEAST_DEPTH: Final = 8
_MOST_DEPTH: Final = 128


@check(
    "tokenize.depth",
    "TOK-COMPOSITE",
    accepts="2xx for eight levels of nesting; any bound above that is a reading",
    requests=12,
)
def depth(ctx: CheckContext) -> Iterator[Finding]:
    """Eight levels of nesting are accepted; the deployment's bound is measured (D-DEPTH)."""
    key = ctx.ready_key("private_prod")
    shown = _nested(ctx, key, _LEAST_DEPTH)
    yield ctx.ok_or_unsettled("TOK-COMPOSITE", f"{_LEAST_DEPTH} levels of nesting", shown)
    if not shown.ok:
        return
    low, high = _LEAST_DEPTH, _MOST_DEPTH + 1
    while high - low > 1:
        middle = (low + high) // 2
        last = _nested(ctx, key, middle)
        low, high = (middle, high) if last.ok else (low, middle)
        shown = last
    if low == _MOST_DEPTH:
        yield ctx.passes("TOK-COMPOSITE", f"{_MOST_DEPTH} levels are accepted too", shown)
    else:
        yield ctx.reads("TOK-COMPOSITE", "tokens.depth_limit", low, shown)


def _nested(ctx: CheckContext, key: KeyLabel, levels: int) -> Exchange:
    body: Json = ctx.value(f"{levels} levels")
    for level in range(levels):
        body = [body] if level % 2 else {"in": body}
    return ctx.tokenize(body, key)


@check(
    "tokenize.type-field",
    "TOK-OBJECT",
    "TOK-PLAIN",
    accepts="an object with `type` is a token request object; `Type` is an ordinary key",
    requests=8,
)
def type_field(ctx: CheckContext) -> Iterator[Finding]:
    """An object is a token request object exactly if it has the key `type`, at any depth."""
    key = ctx.ready_key("private_prod")
    for what, body in (
        ("an object whose `type` is no token type", {"kind": {"type": "visa"}}),
        ("an object whose `type` is a number", [{"type": 5, "data": "x"}]),
        ("an object whose `type` is null", [[{"type": None, "data": "x"}]]),
        ("a type in capitals", {"type": "TOKEN", "data": ctx.value("capitals")}),
    ):
        yield ctx.refusal("TOK-OBJECT", what, ctx.tokenize(body, key))
    plain: dict[str, Json] = {"Type": ctx.value("Type"), "types": ctx.value("types")}
    exchange = ctx.tokenize(plain, key)
    if exchange.status in {401, 403}:
        yield ctx.unsettled("TOK-PLAIN", f"no access: {exchange.status}", exchange)
    else:
        is_so = exchange.ok and not list(mirror_faults(plain, accepted(exchange)))
        seen = "`Type` and `types` are ordinary keys"
        says = f"an object with `Type` is a plain object: same keys, got {exchange.status}"
        yield ctx.judges("TOK-PLAIN", is_so, seen, says, exchange)
    named: Json = {
        "type": "token",
        "data": ctx.value("in metadata"),
        "metadata": {"type": "no-token"},
    }
    exchange = ctx.tokenize(named, key)
    yield ctx.ok_or_unsettled("TOK-OBJECT", "`type` within metadata", exchange)
