"""Section 4.1 and 2.2 name no bounds: how deep bodies, and how long metadata and indexes, may be.

Every bound is a reading; only one that forbids the simplest use is a failure. The model learns no
bound: it sends what lies below all of them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, KeyLabel
from engine.messages import Json

_LEAST_DEPTH: Final = 8
_MOST_DEPTH: Final = 128
_MOST: Final = 2_000

_Bound = tuple[str, str, int, Callable[[int], dict[str, Json]]]
"""Clause, setting, the usual bound, and fields of that size."""
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


@check(
    "bounds.fields",
    "TOK-METADATA",
    "TOK-INDEXES",
    accepts="any bound: a reading",
    requests=16,
)
async def fields(ctx: CheckContext) -> list[Finding]:
    """Find how many and how long metadata and search indexes may be (D-METADATA, D-INDEXES)."""
    key = await ctx.ready_key("private_prod")
    return [await _field_bound(ctx, key, bound) for bound in _BOUNDS]


async def _field_bound(ctx: CheckContext, key: KeyLabel, bound: _Bound) -> Finding:
    """Find the largest size that is accepted; the usual one and the next are tried first."""
    clause, setting, usual, fields_of = bound

    async def send(size: int) -> Exchange:
        return await ctx.client.tokenize(ctx.token(f"{setting} {size}", **fields_of(size)), key)

    single = await send(1)
    if not single.ok:
        message = f"{setting}: one must be accepted, got {single.status}"
        return ctx.fails(clause, message, single, symptoms=("refused",))
    at, over = await send(usual), await send(usual + 1)
    if at.ok and not over.ok:
        return ctx.reads(clause, setting, usual, at, over)
    most = await send(_MOST)
    if most.ok:
        return ctx.passes(clause, f"{setting}: {_MOST} are accepted too", most)
    low, high = (usual + 1, _MOST) if over.ok else (1, usual)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if (await send(middle)).ok else (low, middle)
    return ctx.reads(clause, setting, low, most)


@check(
    "bounds.depth",
    "TOK-COMPOSITE",
    accepts="2xx for eight levels of nesting; any bound above that is a reading",
    requests=12,
)
async def depth(ctx: CheckContext) -> list[Finding]:
    """A body may be nested at least 8 levels deep; find how much deeper (D-DEPTH)."""
    key = await ctx.ready_key("private_prod")
    exchange = await _nested(ctx, key, _LEAST_DEPTH)
    findings = [ctx.ok_or_unsettled("TOK-COMPOSITE", f"{_LEAST_DEPTH} levels of nesting", exchange)]
    if not exchange.ok:
        return findings
    low, high = _LEAST_DEPTH, _MOST_DEPTH + 1
    while high - low > 1:
        middle = (low + high) // 2
        exchange = await _nested(ctx, key, middle)
        low, high = (middle, high) if exchange.ok else (low, middle)
    if low == _MOST_DEPTH:
        findings.append(ctx.passes("TOK-COMPOSITE", f"{low} levels are accepted too", exchange))
    else:
        findings.append(ctx.reads("TOK-COMPOSITE", "tokens.depth_limit", low, exchange))
    return findings


async def _nested(ctx: CheckContext, key: KeyLabel, levels: int) -> Exchange:
    body: Json = ctx.value(f"{levels} levels")
    for level in range(levels):
        body = [body] if level % 2 else {"in": body}
    return await ctx.client.tokenize(body, key)
