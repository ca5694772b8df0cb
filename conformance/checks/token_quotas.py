"""Seed 4.1 rule 4 and 8.8: the Tokenize Limit and the Detokenize Limit, exactly."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from conformance.checks._common import (
    accepted,
    card,
    identifiers,
    informs,
    is_refused,
    must_be_there,
    ok_or_unsettled,
    over_limit,
    quota,
    reads,
    ready,
    records_of,
    spread_key,
    tokenize,
    unsettled,
    value,
)
from conformance.checks._witness import NoWitness, Witness
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, check
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json

__all__: list[str] = []

_STATUSES: Final = (400, 403, 413, 422, 429)

_Shape = Callable[[Bench, str, int], Json]


def _values(bench: Bench, name: str, count: int) -> list[Json]:
    return [value(bench, f"{name} {number}") for number in range(count)]


def _array(bench: Bench, name: str, count: int) -> Json:
    return _values(bench, name, count)


def _object(bench: Bench, name: str, count: int) -> Json:
    return {f"k{place}": one for place, one in enumerate(_values(bench, name, count))}


def _nested(bench: Bench, name: str, count: int) -> Json:
    values = _values(bench, name, count)
    return {"only": [values[: count // 2], {"rest": values[count // 2 :]}]}


def _records(bench: Bench, name: str, count: int) -> Json:
    found: list[Json] = []
    for place in range(count):
        one = f"{name} {place}"
        found.append(
            card(bench, one) if place % 2 else {"type": "token", "data": value(bench, one)}
        )
    return found


def _mixed(bench: Bench, name: str, count: int) -> Json:
    values = _values(bench, name, count)
    wrapped: list[Json] = [{"type": "token", "data": one} for one in values[1::2]]
    return {"strings": values[::2], "records": wrapped}


def _equal(bench: Bench, name: str, count: int) -> Json:
    return [value(bench, name)] * count


_SHAPES: Final[tuple[tuple[str, _Shape], ...]] = (
    ("an array of strings", _array),
    ("an object of strings", _object),
    ("one top-level element", _nested),
    ("records of two types", _records),
    ("strings and records", _mixed),
)


@check(
    "quotas.tokenize",
    "TOK-LIMIT",
    "QUO-TOKENIZE",
    accepts="2xx at the Tokenize Limit and below, any 4xx above it",
    roles=("private_prod",),
    requests=5 * len(_SHAPES),
)
def tokenize_limit(bench: Bench) -> Iterator[Finding]:
    """The Tokenize Limit holds for the whole request, exactly, however its tokens are nested."""
    key = spread_key(bench, "private_prod")
    most = quota(bench, "Tokenize Limit", key)
    ready(bench, key)
    refused: list[Exchange] = []
    for what, shape in _SHAPES:
        for count in (most - 1, most) if most > 1 else (most,):
            exchange = tokenize(bench, shape(bench, f"{what} {count}", count), key)
            for clause in ("TOK-LIMIT", "QUO-TOKENIZE"):
                yield ok_or_unsettled(
                    bench, clause, f"{count} tokens of {most} allowed ({what})", exchange
                )
        for count in (most + 1, 2 * most + 1):
            exchange = over_limit(bench, "tokenize", shape(bench, f"{what} {count}", count), key)
            yield from _over(
                bench,
                ("TOK-LIMIT", "QUO-TOKENIZE"),
                f"{count} tokens of {most} allowed ({what})",
                exchange,
            )
            if _is_over(exchange):
                refused.append(exchange)
    yield from _status(bench, "TOK-LIMIT", refused)
    yield from _equal_strings(bench, key, most)


def _equal_strings(bench: Bench, key: KeyLabel, most: int) -> Iterator[Finding]:
    """Equal strings are so many tokens, unless they are seen to be one (D-LIMIT-COUNT)."""
    pair = tokenize(bench, _equal(bench, "pair", 2), key)
    if most < 2 or not pair.ok or len(set(identifiers(pair, 2))) == 1:  # reason: deduplicated
        return
    exchange = over_limit(bench, "tokenize", _equal(bench, "equal", most + 1), key)
    yield from _over(bench, ("TOK-LIMIT",), f"{most + 1} equal strings", exchange)


def _is_over(exchange: Exchange) -> bool:
    """Whether a request over a quota was refused; 429 is a reading too (D-LIMIT-STATUS)."""
    return is_refused(exchange) or exchange.refused


def _over(
    bench: Bench, clauses: tuple[str, ...], what: str, exchange: Exchange
) -> Iterator[Finding]:
    for clause in clauses:
        if _is_over(exchange):
            yield bench.passes(clause, f"{what}: refused with {exchange.status}", exchange)
        else:
            says = f"{what} must be refused with a 4xx, got {exchange.status}"
            yield bench.fails(clause, says, exchange)


def _status(bench: Bench, clause: str, refused: list[Exchange]) -> Iterator[Finding]:
    statuses = {exchange.status for exchange in refused}
    if len(statuses) == 1 and statuses <= set(_STATUSES):
        yield reads(bench, clause, "tokens.limit_status", statuses.pop(), refused[0])
    elif statuses:
        yield informs(bench, clause, f"over the limit: {sorted(map(str, statuses))}", *refused[:2])


@check(
    "quotas.tokenize-whole",
    "TOK-LIMIT",
    accepts="a request over the Tokenize Limit creates none of its tokens",
    roles=("private_prod",),
    requests=12,
)
def tokenize_whole(bench: Bench) -> Iterator[Finding]:
    """A request over the Tokenize Limit fails as a whole: not even the first is created."""
    try:
        witness: Witness | None = Witness.of(bench)
    except NoWitness as why:
        witness, unseen = None, f"that nothing is created cannot be seen: {why}"
    key = spread_key(bench, "private_prod") if witness is None else witness.key
    if witness is None:
        ready(bench, key)
    most = quota(bench, "Tokenize Limit", key)
    made = Witness(bench, key, "flag") if witness is None else witness
    body: list[Json] = [made.request(f"whole {place}") for place in range(most + 1)]
    exchange = over_limit(bench, "tokenize", body, key)
    yield from _over(bench, ("TOK-LIMIT",), f"{most + 1} token request objects", exchange)
    if witness is None:
        yield bench.finding("TOK-LIMIT", Verdict.NOT_OBSERVABLE, unseen, exchange)
        return
    for place in dict.fromkeys((0, most - 1, most)):
        there, shown = witness.exists(f"whole {place}")
        if there:
            says = f"token {place + 1} of a request over the limit was created"
            yield bench.fails("TOK-LIMIT", says, exchange, shown)
        else:
            yield bench.passes("TOK-LIMIT", f"token {place + 1} was not created", exchange, shown)


@check(
    "quotas.tokenize-counts",
    "TOK-LIMIT",
    accepts="tokens that exist already count, or they do not",
    roles=("dedup",),
    requests=8,
    is_extra=True,
)
def tokenize_counts(bench: Bench) -> Iterator[Finding]:
    """Whether deduplicated elements count against the Tokenize Limit (D-LIMIT-COUNT)."""
    key = spread_key(bench, "dedup")
    most = quota(bench, "Tokenize Limit", key)
    ready(bench, key)
    one: Json = {"type": "token", "data": value(bench, "counted")}
    first = tokenize(bench, one, key)
    second = tokenize(bench, [one, one], key) if first.ok else first
    records = records_of(second, 2)
    if not all((record.get("_extras") or {}).get("deduplicated") is True for record in records):
        yield unsettled(bench, "TOK-LIMIT", "this tenant does not deduplicate", first, second)
        return
    exchange = over_limit(bench, "tokenize", [one] * (most + 1), key)
    if exchange.ok:
        yield reads(bench, "TOK-LIMIT", "tokens.limit_counts", "created", exchange)
    elif _is_over(exchange):
        yield reads(bench, "TOK-LIMIT", "tokens.limit_counts", "elements", exchange)
    else:
        says = f"{most + 1} known values must pass or be refused, got {exchange.status}"
        yield bench.fails("TOK-LIMIT", says, exchange)


# --- Detokenize Limit ---------------------------------------------------------------------------


@check(
    "quotas.detokenize",
    "QUO-DETOKENIZE",
    accepts="2xx with the values at the Detokenize Limit and below, any 4xx above it",
    roles=("private_reader",),
    requests=10,
)
def detokenize_limit(bench: Bench) -> Iterator[Finding]:
    """The Detokenize Limit holds for the whole request, exactly (D-DETOKENIZE)."""
    key = spread_key(bench, "private_reader")
    most = quota(bench, "Detokenize Limit", key)
    made = _made(bench, key, most + 1)
    first = _detokenized(bench, key, [made[0]])
    must_be_there("detokenize", first)
    if not first.ok:
        raise Inconclusive("a token cannot be detokenized; name its shape in [requests.detokenize]")
    for count in (most - 1, most) if most > 1 else (most,):
        exchange = _detokenized(bench, key, made[:count])
        yield ok_or_unsettled(bench, "QUO-DETOKENIZE", f"{count} of {most} tokens", exchange)
        if exchange.ok:
            yield _values_back(bench, exchange, made[:count])
    for nested in (False, True):
        body = _expressions(made)
        exchange = over_limit(bench, "detokenize", {"only": [body, {}]} if nested else body, key)
        what = f"{most + 1} tokens" + (" in one top-level element" if nested else "")
        yield from _over(bench, ("QUO-DETOKENIZE",), what, exchange)
    if most > 1:
        exchange = over_limit(bench, "detokenize", _expressions([made[0]] * (most + 1)), key)
        if exchange.ok or _is_over(exchange):
            seen = "distinct" if exchange.ok else "expressions"
            yield reads(bench, "QUO-DETOKENIZE", "tokens.detokenize_counts", seen, exchange)


_Made = tuple[str, str]
"""An identifier and the value behind it."""


def _made(bench: Bench, key: KeyLabel, count: int) -> list[_Made]:
    most = quota(bench, "Tokenize Limit", key)
    values = [value(bench, f"detokenized {number}") for number in range(count)]
    found: list[_Made] = []
    for start in range(0, count, most):
        part = values[start : start + most]
        ids = identifiers(tokenize(bench, part, key), len(part))
        found.extend(zip(ids, part, strict=True))
    return found


def _expressions(made: list[_Made]) -> dict[str, Json]:
    return {f"v{place}": f"{{{{ {token_id} }}}}" for place, (token_id, _) in enumerate(made)}


def _detokenized(bench: Bench, key: KeyLabel, made: list[_Made]) -> Exchange:
    return bench.call("detokenize", body=_expressions(made), key=key)


def _values_back(bench: Bench, exchange: Exchange, made: list[_Made]) -> Finding:
    answer = accepted(exchange)
    wanted = {f"v{place}": text for place, (_, text) in enumerate(made)}
    if answer == wanted:
        return bench.passes("QUO-DETOKENIZE", f"{len(made)} values came back", exchange)
    return bench.finding(
        "QUO-DETOKENIZE", Verdict.INCONCLUSIVE, "the values did not come back", exchange
    )
