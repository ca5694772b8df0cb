"""Seed 4.1 where it is silent: how deep, how empty, and what is no string (readings)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from conformance.checks._common import (
    accepted,
    informs,
    is_identifier,
    is_refused,
    is_uuid,
    ok_or_unsettled,
    reads,
    ready,
    refusal,
    spread_key,
    tokenize,
    unsettled,
    value,
)
from conformance.runner.bench import Bench
from conformance.runner.registry import check
from conformance.runner.verdicts import Finding
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json

__all__: list[str] = []

_LEAST_DEPTH: Final = 8
_MOST_DEPTH: Final = 128


@check(
    "tokenize.depth",
    "TOK-COMPOSITE",
    accepts="2xx for eight levels of nesting; any bound above that is a reading",
    roles=("private_prod",),
    requests=12,
)
def depth(bench: Bench) -> Iterator[Finding]:
    """Eight levels of nesting are accepted; where the bound lies is discovered (D-DEPTH)."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    shown = _nested(bench, key, _LEAST_DEPTH)
    yield ok_or_unsettled(bench, "TOK-COMPOSITE", f"{_LEAST_DEPTH} levels of nesting", shown)
    if not shown.ok:
        return
    low, high = _LEAST_DEPTH, _MOST_DEPTH + 1
    while high - low > 1:
        middle = (low + high) // 2
        last = _nested(bench, key, middle)
        low, high = (middle, high) if last.ok else (low, middle)
        shown = last
    if low == _MOST_DEPTH:
        yield bench.passes("TOK-COMPOSITE", f"{_MOST_DEPTH} levels are accepted too", shown)
    else:
        yield reads(bench, "TOK-COMPOSITE", "tokens.depth_limit", low, shown)


def _nested(bench: Bench, key: KeyLabel, levels: int) -> Exchange:
    body: Json = value(bench, f"{levels} levels")
    for level in range(levels):
        body = [body] if level % 2 else {"in": body}
    return tokenize(bench, body, key)


@check(
    "tokenize.empty",
    "TOK-COMPOSITE",
    accepts="an empty body is echoed or refused with a 4xx; a lone string likewise",
    roles=("private_prod",),
    requests=7,
)
def empty(bench: Bench) -> Iterator[Finding]:
    """What comes of a body without a token, and of a lone string (D-EMPTY, D-SCALAR)."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    found: list[tuple[str, Exchange]] = []
    cases: tuple[Json, ...] = ({}, [], {"a": [{}, []]})
    for body in cases:
        exchange = tokenize(bench, body, key)
        if exchange.ok and accepted(exchange) == body:
            found.append(("echo", exchange))
        elif is_refused(exchange):
            found.append(("reject", exchange))
        else:
            says = f"a body without a token must be echoed or refused, got {exchange.status}"
            yield bench.fails("TOK-COMPOSITE", says, exchange)
    if len(found) == len(cases):
        readings = {reading for reading, _ in found}
        shown = tuple(exchange for _, exchange in found)
        if len(readings) == 1:
            yield reads(bench, "TOK-COMPOSITE", "tokens.empty_body", readings.pop(), *shown)
        else:
            says = "some bodies without a token are echoed, others refused"
            yield informs(bench, "TOK-COMPOSITE", says, *shown)
    lone = tokenize(bench, value(bench, "lone"), key)
    if lone.ok and is_identifier(accepted(lone), value(bench, "lone")):
        yield reads(bench, "TOK-COMPOSITE", "tokens.scalar_body", "accept", lone)
    elif is_refused(lone):
        yield reads(bench, "TOK-COMPOSITE", "tokens.scalar_body", "reject", lone)
    else:
        says = f"a lone string must become an identifier or be refused, got {lone.status}"
        yield bench.fails("TOK-COMPOSITE", says, lone)


@check(
    "tokenize.no-string",
    "TOK-COMPOSITE",
    accepts="a leaf that is no string is refused with a 4xx, tokenized, or handed back",
    roles=("private_prod",),
    requests=5,
)
def no_string(bench: Bench) -> Iterator[Finding]:
    """What comes of leaves that are numbers, booleans and null (D-LEAF)."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    found: dict[str, Exchange] = {}
    leaves: tuple[Json, ...] = (12345, True, None)
    for leaf in leaves:
        exchange = tokenize(bench, {"text": value(bench, f"beside {leaf}"), "leaf": leaf}, key)
        if is_refused(exchange):
            found["reject"] = exchange
            continue
        if not exchange.ok:
            says = f"a leaf that is no string must be refused with a 4xx, got {exchange.status}"
            yield bench.fails("TOK-COMPOSITE", says, exchange)
            continue
        answer = accepted(exchange)
        given = answer.get("leaf", "") if isinstance(answer, dict) else ""
        if is_uuid(given):
            found["tokenize"] = exchange
        elif given is leaf or (type(given) is type(leaf) and given == leaf):
            found["pass"] = exchange
        else:
            says = "a leaf that is no string must become an identifier or come back as it was"
            yield bench.fails("TOK-COMPOSITE", says, exchange)
    if len(found) == 1:
        reading, shown = next(iter(found.items()))
        yield reads(bench, "TOK-COMPOSITE", "tokens.non_string_leaf", reading, shown)
    elif found:
        says = "leaves that are no strings differ: " + ", ".join(sorted(found))
        yield informs(bench, "TOK-COMPOSITE", says, *found.values())


@check(
    "tokenize.type-field",
    "TOK-OBJECT",
    "TOK-PLAIN",
    accepts="whatever holds `type` is a token request object; `Type` is a key like any other",
    roles=("private_prod",),
    requests=8,
)
def type_field(bench: Bench) -> Iterator[Finding]:
    """An object is a token request object exactly when it holds `type`, wherever it stands."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    for what, body in (
        ("an object whose `type` is no token type", {"kind": {"type": "visa"}}),
        ("an object whose `type` is a number", [{"type": 5, "data": "x"}]),
        ("an object whose `type` is null", [[{"type": None, "data": "x"}]]),
        ("a type in capitals", {"type": "TOKEN", "data": value(bench, "capitals")}),
    ):
        yield refusal(bench, "TOK-OBJECT", what, tokenize(bench, body, key))
    plain: dict[str, Json] = {"Type": value(bench, "Type"), "types": value(bench, "types")}
    exchange = tokenize(bench, plain, key)
    answer = accepted(exchange) if exchange.ok else None
    if exchange.status in {401, 403}:
        yield unsettled(bench, "TOK-PLAIN", f"no access: {exchange.status}", exchange)
    elif (
        isinstance(answer, dict)
        and answer.keys() == {"Type", "types"}
        and all(is_identifier(answer[name], plain[name]) for name in plain)
    ):
        yield bench.passes("TOK-PLAIN", "`Type` and `types` are keys like any other", exchange)
    else:
        says = f"an object with `Type` is a plain object: same keys, got {exchange.status}"
        yield bench.fails("TOK-PLAIN", says, exchange)
    named: Json = {
        "type": "token",
        "data": value(bench, "in metadata"),
        "metadata": {"type": "no-token"},
    }
    exchange = tokenize(bench, named, key)
    yield ok_or_unsettled(bench, "TOK-OBJECT", "`type` within metadata", exchange)
