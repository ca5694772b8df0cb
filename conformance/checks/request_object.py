"""Section 2.2 and rule 5 of 4.1: the fields of a token request object, and atomic requests.

Where 2.2 is silent, a check sends one thing that it leaves open and reports a reading. A request
that must be accepted is sent first, and a 5xx fails the clause, whatever the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from conformance.checks._witness import named, seen_witness
from conformance.context.answers import accepted, record_of, records_of
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import Exchange, KeyLabel
from engine.messages import Json
from engine.tokens import dumps
from engine.vault import jwe

_VISA: Final = "4242424242424242"


# --- what is accepted -----------------------------------------------------------------------------


@check(
    "request.valid",
    "TOK-TYPES",
    "TOK-TOKEN-DATA",
    "TOK-CARD-DATA",
    "TOK-METADATA",
    "TOK-INDEXES",
    "TOK-FPEXPR",
    accepts="2xx and records of the types that were asked for",
)
def valid(ctx: CheckContext) -> Iterator[Finding]:
    """A token request object with each field that the specification names is accepted."""
    key = ctx.ready_key("private_prod")
    mixed = ctx.tokenize([ctx.token("mixed"), ctx.card("mixed")], key)
    if not mixed.ok:
        yield ctx.ok_or_unsettled("TOK-TYPES", "a token and a card in one request", mixed)
    else:
        types = [record.get("type") for record in records_of(mixed, 2)]
        says = "the type of each record must be the one that was asked for"
        yield ctx.rule("TOK-TYPES", says, mixed, is_so=types == ["token", "card"])
    cases: tuple[tuple[str, str, dict[str, Any]], ...] = (
        ("TOK-TOKEN-DATA", "a string", ctx.token("plain")),
        (
            "TOK-TOKEN-DATA",
            "a string of many scripts",
            {"type": "token", "data": '\u00e9\u00df \u6c34 \U0001f512 \\ " ' + ctx.value("odd")},
        ),
        ("TOK-CARD-DATA", "number, month, year and cvc", ctx.card("whole")),
        ("TOK-METADATA", "two entries", ctx.token("m", metadata={"a": "1", "B": "\u00e9"})),
        ("TOK-METADATA", "no entry", ctx.token("empty metadata", metadata={})),
        ("TOK-INDEXES", "an expression", ctx.token("i", search_indexes=["{{ data }}"])),
        (
            "TOK-INDEXES",
            "expressions over a card",
            ctx.card("ci", search_indexes=["{{ data.number }}", "{{ data.expiration_year }}"]),
        ),
        ("TOK-FPEXPR", "over a string", ctx.token("f", fingerprint_expression="{{ data }}")),
        (
            "TOK-FPEXPR",
            "over a card",
            ctx.card("cf", fingerprint_expression="{{ data.number }}"),
        ),
    )
    for clause, what, body in cases:
        yield ctx.ok_or_unsettled(clause, what, ctx.tokenize(body, key))


# --- what is refused, and creates nothing ---------------------------------------------------------


def _object(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 # reason: fields of a request
    return {"type": "token", "data": "x", **fields}


def _card(**fields: Any) -> dict[str, Any]:  # noqa: ANN401 # reason: fields of card data
    return {"type": "card", "data": {"number": _VISA, **fields}}


_INVALID: Final[tuple[tuple[str, str, Any], ...]] = (
    ("TOK-ONE-OF", "neither `data` nor `encrypted`", {"type": "token"}),
    ("TOK-ONE-OF", "a card with neither", {"type": "card", "metadata": {"a": "b"}}),
    ("TOK-TYPES", "an unknown type", {"type": "no-such-type", "data": "x"}),
    ("TOK-TYPES", "an empty type", {"type": "", "data": "x"}),
    ("TOK-CARD-DATA", "a number with letters", _card(number="4242x24242424242")),
    ("TOK-CARD-DATA", "a number that is an integer", _card(number=4242424242424242)),
    ("TOK-CARD-DATA", "an empty number", _card(number="")),
    ("TOK-CARD-DATA", "no number", {"type": "card", "data": {"expiration_month": 12}}),
    ("TOK-CARD-DATA", "data that is a string", {"type": "card", "data": _VISA}),
    ("TOK-CARD-DATA", "a month that is a string", _card(expiration_month="12")),
    ("TOK-CARD-DATA", "a year that is a string", _card(expiration_year="2031")),
    ("TOK-CARD-DATA", "a month of 12.5", _card(expiration_month=12.5)),
    ("TOK-CARD-DATA", "a cvc that is a number", _card(cvc=731)),
    ("TOK-METADATA", "a value that is a number", _object(metadata={"a": 1})),
    ("TOK-METADATA", "a value that is an object", _object(metadata={"a": {"b": "c"}})),
    ("TOK-METADATA", "an array", _object(metadata=["a"])),
    ("TOK-METADATA", "a string", _object(metadata="a")),
    ("TOK-INDEXES", "a string", _object(search_indexes="{{ data }}")),
    ("TOK-INDEXES", "an element that is a number", _object(search_indexes=[5])),
    ("TOK-FPEXPR", "a number", _object(fingerprint_expression=5)),
    ("TOK-FPEXPR", "an array", _object(fingerprint_expression=["{{ data }}"])),
    ("TOK-ENCRYPTED", "a number", {"type": "token", "encrypted": 5}),
    ("TOK-ENCRYPTED", "a string that is not a JWE", {"type": "token", "encrypted": "hello"}),
)
"""Clause, what is wrong, and the invalid token request object."""


@check(
    "request.atomic",
    "TOK-ATOMIC",
    "TOK-ONE-OF",
    "TOK-TYPES",
    "TOK-CARD-DATA",
    "TOK-METADATA",
    "TOK-INDEXES",
    "TOK-FPEXPR",
    "TOK-ENCRYPTED",
    accepts="any 4xx, and no valid token of the request exists afterwards",
    requests=2 * len(_INVALID) + 6,
)
def atomic(ctx: CheckContext) -> Iterator[Finding]:
    """One invalid token, at any place, fails the whole request, and no token is created."""
    witness, key, why = seen_witness(ctx)
    for place, (clause, what, invalid) in enumerate(_INVALID):
        good = named(ctx, f"atomic {place}", is_card=place % 3 == 0)
        shapes: tuple[Json, ...] = (
            [good, invalid],
            {"deep": [{"good": good}], "last": [invalid]},
            [invalid, good],
        )
        exchange = ctx.tokenize(shapes[place % len(shapes)], key)
        yield ctx.refusal(clause, what, exchange)
        if witness is None:
            yield ctx.refusal("TOK-ATOMIC", f"a valid token beside {what}", exchange)
            continue
        there, shown = witness.exists(good)
        seen = f"{what}: nothing was created"
        says = f"{what}: a valid token of the request was created anyway"
        yield ctx.judges("TOK-ATOMIC", not there, seen, says, exchange, shown)
    if witness is None:
        yield ctx.finding("TOK-ATOMIC", Verdict.NOT_OBSERVABLE, why, exchange)


@check(
    "request.atomic-leaf",
    "TOK-ATOMIC",
    accepts="any 4xx, and no string of the request is stored afterwards",
)
def atomic_leaf(ctx: CheckContext) -> Iterator[Finding]:
    """Plain strings before and after an invalid token are not tokenized either."""
    witness, key, why = seen_witness(ctx)
    before, after = ctx.value("before"), ctx.value("after")
    body: Json = {"a": before, "b": {"type": "card", "data": {"number": "12ab"}}, "c": [after]}
    exchange = ctx.tokenize(body, key)
    yield ctx.refusal("TOK-ATOMIC", "strings around an invalid card", exchange)
    if witness is None or witness.way == "listing":
        why = why or "whether strings are tokenized cannot be seen: a listing shows no values"
        yield ctx.finding("TOK-ATOMIC", Verdict.NOT_OBSERVABLE, why, exchange)
        return
    for where, text in (("before", before), ("after", after)):
        there, shown = witness.exists({"type": "token", "data": text})
        seen = f"the string {where} the invalid token was not tokenized"
        says = f"the string {where} the invalid token was tokenized anyway"
        yield ctx.judges("TOK-ATOMIC", not there, seen, says, exchange, shown)


# --- the body is JSON -----------------------------------------------------------------------------


@check(
    "request.json",
    "TOK-JSON",
    accepts="2xx for JSON with its media type, any 4xx for a body that is not JSON",
    requests=8,
)
def json_body(ctx: CheckContext) -> Iterator[Finding]:
    """The body is JSON, `Content-Type: application/json`."""
    key = ctx.ready_key("private_prod")
    text = ctx.value("json")
    for what, media in (
        ("application/json", "application/json"),
        ("application/json with a charset", "application/json; charset=utf-8"),
    ):
        raw = dumps({"a": f"{text} {what}"})
        exchange = ctx.tokenize(raw, key, headers={"Content-Type": media})
        yield ctx.ok_or_unsettled("TOK-JSON", what, exchange)
    headers = {"Content-Type": "application/json"}
    for what, raw in (
        ("an open brace", b'{"a": "x"'),
        ("an empty body", b""),
        ("plain text", b"hello"),
        ("two values", b'{"a": "x"} {"b": "y"}'),
        ("a form", b"a=x&b=y"),
    ):
        exchange = ctx.tokenize(raw, key, headers=headers)
        yield ctx.refusal("TOK-JSON", what, exchange)


# --- client-side encryption -----------------------------------------------------------------------


@check(
    "request.encrypted",
    "TOK-ENCRYPTED",
    accepts="2xx for `encrypted` in place of `data`, alone and in arrays; 4xx for a broken one",
    needs=("encryption_jwk",),
)
def encrypted(ctx: CheckContext) -> Iterator[Finding]:
    """`encrypted` can replace `data`; the decrypted value becomes the token's."""
    key = ctx.ready_key("private_prod")
    text, card = ctx.value("sealed"), ctx.card("sealed")
    alone = ctx.tokenize({"type": "token", "encrypted": _sealed(ctx, "alone", text)}, key)
    yield ctx.ok_or_unsettled("TOK-ENCRYPTED", "a single object", alone)
    several: Json = [
        {"type": "token", "encrypted": _sealed(ctx, "in an array", f"{text} 2")},
        ctx.value("beside"),
        {"type": "card", "encrypted": _sealed(ctx, "card", card["data"])},
    ]
    array = ctx.tokenize(several, key)
    yield ctx.ok_or_unsettled("TOK-ENCRYPTED", "inside an array", array)
    if array.ok:
        yield _sealed_card(ctx, array, card["data"]["number"])
    if alone.ok:
        yield from _same_as_plain(ctx, alone, text)
    broken = _sealed(ctx, "broken", text)
    changed = broken[:-2] + ("AA" if broken[-2:] != "AA" else "BB")
    exchange = ctx.tokenize({"type": "token", "encrypted": changed}, key)
    yield ctx.refusal("TOK-ENCRYPTED", "a message with a changed tag", exchange)


def _sealed(ctx: CheckContext, name: str, data: Json) -> str:
    """Return data encrypted under the deployment's key; name: unique within the check."""
    jwk = ctx.target.encryption_jwk
    assert jwk is not None, "the plan requires it"
    return ctx.make(name, lambda: jwe.encrypt(jwk, dumps(data)))


def _sealed_card(ctx: CheckContext, array: Exchange, number: str) -> Finding:
    try:
        record = array.json[2]
        masks = [record.get(name) for name in ("mask", "data")]
    except (ValueError, LookupError, TypeError, AttributeError):
        return ctx.fails("TOK-ENCRYPTED", "an encrypted card must become a record", array)
    numbers = {str(mask.get("number")) for mask in masks if isinstance(mask, dict)}
    says = "the record must be that of the card inside the message"
    return ctx.rule("TOK-ENCRYPTED", says, array, is_so=numbers == {"X" * 12 + number[-4:]})


def _same_as_plain(ctx: CheckContext, alone: Exchange, text: str) -> Iterator[Finding]:
    """Judge whether the token holds the decrypted value: by an equal plain one, or by a read."""
    key = alone.ask.key
    assert key is not None, "it was asked with one"
    known = ctx.token("known")
    ctx.tokenize(known, key)
    try:
        can_look, _ = ctx.deduplicated(known, key)
    except Inconclusive:
        can_look = False
    if can_look:
        is_same, shown = ctx.deduplicated({"type": "token", "data": text}, key)
    elif ctx.keys("private_reader"):
        body: Json = {"value": f"{{{{ {record_of(alone)['id']} }}}}"}
        shown = ctx.call("detokenize", body=body, key=ctx.key("private_reader"))
        if not shown.ok:
            yield ctx.informs("TOK-ENCRYPTED", "the decrypted value cannot be compared", shown)
            return
        is_same = accepted(shown) == {"value": text}
    else:
        yield ctx.informs("TOK-ENCRYPTED", "the decrypted value cannot be compared", alone)
        return
    says = "the token must hold the value that was encrypted"
    yield ctx.rule("TOK-ENCRYPTED", says, alone, shown, is_so=is_same)


# --- where the specification is silent: other fields and values --------------------------------


# --- bounds ---------------------------------------------------------------------------------------

_Bound = tuple[str, str, int, Callable[[int], dict[str, Json]]]
"""Clause, choice, the usual bound, and fields of that size."""
_BOUNDS: Final[tuple[_Bound, ...]] = (
    (
        "TOK-METADATA",
        "tokens.metadata_entries_limit",
        50,
        lambda size: {"metadata": {f"k{number}": "v" for number in range(size)}},
    ),
    (
        "TOK-METADATA",
        "tokens.metadata_key_limit",
        100,
        lambda size: {"metadata": {"k" * size: "v"}},
    ),
    (
        "TOK-METADATA",
        "tokens.metadata_value_limit",
        500,
        lambda size: {"metadata": {"k": "v" * size}},
    ),
    (
        "TOK-INDEXES",
        "tokens.indexes_limit",
        10,
        lambda size: {"search_indexes": ["{{ data }}"] * size},
    ),
)
_MOST: Final = 2_000


@check(
    "request.bounds",
    "TOK-METADATA",
    "TOK-INDEXES",
    accepts="any bound: a reading",
    requests=16,
)
def bounds(ctx: CheckContext) -> Iterator[Finding]:
    """Find how many and how long metadata and search indexes may be (D-METADATA, D-INDEXES)."""
    key = ctx.ready_key("private_prod")
    for bound in _BOUNDS:
        yield _bound_found(ctx, key, bound)


def _bound_found(ctx: CheckContext, key: KeyLabel, bound: _Bound) -> Finding:
    """Find the largest size that is accepted; the usual one and the next are tried first."""
    clause, choice, usual, fields = bound

    def ask(size: int) -> Exchange:
        return ctx.tokenize(ctx.token(f"{choice} {size}", **fields(size)), key)

    one = ask(1)
    if not one.ok:
        return ctx.fails(clause, f"{choice}: one must be accepted, got {one.status}", one)
    at, over = ask(usual), ask(usual + 1)
    if at.ok and not over.ok:
        return ctx.reads(clause, choice, usual, at, over)
    most = ask(_MOST)
    if most.ok:
        return ctx.passes(clause, f"{choice}: {_MOST} are accepted too", most)
    low, high = (usual + 1, _MOST) if over.ok else (1, usual)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ask(middle).ok else (low, middle)
    return ctx.reads(clause, choice, low, most)
