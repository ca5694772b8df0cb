"""Seed 2.2 where it is silent: what else a token request object may hold (readings).

Each case asks for one thing that the specification leaves open, beside a control that is accepted;
an answer of 5xx is a failure of its clause, whatever the reading.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from conformance.checks._common import (
    card,
    informs,
    is_refused,
    reads,
    ready,
    spread_key,
    token,
    tokenize,
    value,
)
from conformance.runner.bench import Bench
from conformance.runner.registry import check
from conformance.runner.verdicts import Finding
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json
from engine.tokens import dumps
from engine.vault import jwe

__all__: list[str] = []

_Case = tuple[str, str, Any, Any, Callable[[Bench], dict[str, Any]]]


def _wrong_luhn(bench: Bench) -> dict[str, Any]:
    asked = card(bench, "luhn")
    number: str = asked["data"]["number"]
    asked["data"]["number"] = number[:-1] + str((int(number[-1]) + 1) % 10)
    return asked


_CASES: Final[tuple[_Case, ...]] = (
    (
        "TOK-OBJECT",
        "tokens.unknown_field",
        "ignore",
        "reject",
        lambda bench: token(bench, "unknown", no_such_field="x"),
    ),
    (
        "TOK-TOKEN-DATA",
        "tokens.token_data",
        "any",
        "string",
        lambda bench: {"type": "token", "data": {"any": value(bench, "any")}},
    ),
    ("TOK-CARD-DATA", "tokens.card_luhn", False, True, _wrong_luhn),
    (
        "TOK-FPEXPR",
        "tokens.cvc_derive",
        "allow",
        "reject",
        lambda bench: card(bench, "cvc", fingerprint_expression="{{ data.cvc }}"),
    ),
)
"""Clause, choice, its value when accepted, its value when refused, what is asked."""


@check(
    "request.readings",
    "TOK-OBJECT",
    "TOK-TOKEN-DATA",
    "TOK-CARD-DATA",
    "TOK-FPEXPR",
    accepts="2xx or any 4xx: both are readings",
    roles=("private_prod",),
    requests=10,
)
def readings(bench: Bench) -> Iterator[Finding]:
    """Which fields and values beyond those specified a token request object may hold."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    for clause, choice, when_accepted, when_refused, asked in _CASES:
        exchange = tokenize(bench, asked(bench), key)
        if exchange.ok:
            yield reads(bench, clause, choice, when_accepted, exchange)
        elif is_refused(exchange):
            yield reads(bench, clause, choice, when_refused, exchange)
        else:
            says = f"{choice}: must be accepted or refused with a 4xx, got {exchange.status}"
            yield bench.fails(clause, says, exchange)
    yield _required(bench, key)


_OPTIONAL: Final = ("expiration_month", "expiration_year", "cvc")


def _required(bench: Bench, key: KeyLabel) -> Finding:
    """Which fields of a card are required (D-CARD): each is left out alone, then all of them."""
    shown: list[Exchange] = []
    refused: list[tuple[str, ...]] = []
    for names in (*((name,) for name in _OPTIONAL), _OPTIONAL):
        asked = card(bench, f"without {' and '.join(names)}")
        for name in names:
            del asked["data"][name]
        exchange = tokenize(bench, asked, key)
        shown.append(exchange)
        if is_refused(exchange):
            refused.append(names)
        elif not exchange.ok:
            says = f"a card without {' and '.join(names)} must be accepted or refused with a 4xx, "
            return bench.fails("TOK-CARD-DATA", f"{says}got {exchange.status}", exchange)
    if len(refused) in {0, len(shown)}:
        choice = "tokens.card_all_required"
        return reads(bench, "TOK-CARD-DATA", choice, bool(refused), *shown)
    alone = [names[0] for names in refused if len(names) == 1]
    says = f"{' and '.join(alone)} required of a card" if alone else "a card's number alone refused"
    return informs(bench, "TOK-CARD-DATA", f"{says}: a reading without a field of its own", *shown)


@check(
    "request.both",
    "TOK-ONE-OF",
    accepts="`data` and `encrypted` together are refused, or one of them wins",
    roles=("private_prod",),
    needs=("encryption_jwk",),
    requests=4,
    is_extra=True,
)
def both(bench: Bench) -> Iterator[Finding]:
    """What comes of `data` and `encrypted` together (D-ONE-OF)."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    jwk = bench.target.encryption_jwk
    assert jwk is not None, "the plan has seen to it"
    inside, beside = card(bench, "inside")["data"], card(bench, "beside")["data"]
    body: Json = {
        "type": "card",
        "data": beside,
        "encrypted": bench.make("inside", lambda: jwe.encrypt(jwk, dumps(inside))),
    }
    exchange = tokenize(bench, body, key)
    if is_refused(exchange):
        yield reads(bench, "TOK-ONE-OF", "tokens.one_of", "reject", exchange)
        return
    if not exchange.ok:
        says = f"both must be refused with a 4xx or one win, got {exchange.status}"
        yield bench.fails("TOK-ONE-OF", says, exchange)
        return
    shown = exchange.body.decode(errors="replace")
    for seen, data in (("data", beside), ("encrypted", inside)):
        if f"X{data['number'][-4:]}" in shown:
            yield reads(bench, "TOK-ONE-OF", "tokens.one_of", seen, exchange)
            return
    yield informs(bench, "TOK-ONE-OF", "both are accepted; which one won is not shown", exchange)


# --- bounds -------------------------------------------------------------------------------------

_BOUNDS: Final[tuple[tuple[str, str, int, Callable[[int], dict[str, Json]]], ...]] = (
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
"""Clause, choice, the usual bound, and fields of that size."""
_MOST: Final = 2_000


@check(
    "request.bounds",
    "TOK-METADATA",
    "TOK-INDEXES",
    accepts="any bound: a reading",
    roles=("private_prod",),
    requests=16,
)
def bounds(bench: Bench) -> Iterator[Finding]:
    """How many and how long metadata and search indexes may be (D-METADATA, D-INDEXES)."""
    key = spread_key(bench, "private_prod")
    ready(bench, key)
    for clause, choice, usual, fields in _BOUNDS:
        yield _bound(bench, key, clause, choice, usual, fields)


def _bound(
    bench: Bench,
    key: KeyLabel,
    clause: str,
    choice: str,
    usual: int,
    fields: Callable[[int], dict[str, Json]],
) -> Finding:
    """Find the largest size that is accepted, the usual one and the next first."""

    def ask(size: int) -> Exchange:
        return tokenize(bench, token(bench, f"{choice} {size}", **fields(size)), key)

    one = ask(1)
    if not one.ok:
        return bench.fails(clause, f"{choice}: one must be accepted, got {one.status}", one)
    at, over = ask(usual), ask(usual + 1)
    if at.ok and not over.ok:
        return reads(bench, clause, choice, usual, at, over)
    most = ask(_MOST)
    if most.ok:
        return bench.passes(clause, f"{choice}: {_MOST} are accepted too", most)
    low, high = (usual + 1, _MOST) if over.ok else (1, usual)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if ask(middle).ok else (low, middle)
    return reads(bench, clause, choice, low, most)
