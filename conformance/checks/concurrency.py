"""Section 1: equal values that are tokenized at the same time, which the model does not do."""

from __future__ import annotations

from typing import Final

from conformance.context.answers import flag_of, record_of
from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding

_AT_ONCE: Final = 10


@check(
    "deduplication.at-once",
    "TOK-DEDUP",
    accepts="equal concurrent requests return one identifier, and only one creates a token",
    roles=("dedup",),
    requests=2 * _AT_ONCE + 2,
)
async def at_once(ctx: CheckContext) -> list[Finding]:
    """Ten equal requests sent at the same time create one token."""
    key = await ctx.ready_key("dedup")
    findings = []
    for what, body in (("cards", ctx.card("at once")), ("tokens", ctx.token("at once"))):
        lanes = [ctx.lane(f"{what} {number}") for number in range(_AT_ONCE)]
        exchanges = await ctx.gather([lane.tokenize(body, key) for lane in lanes])
        bad = [exchange for exchange in exchanges if not exchange.ok]
        equal = f"{_AT_ONCE} equal {what} at the same time"
        if bad:
            message = f"{equal}: {len(bad)} got {bad[0].status}"
            findings.append(ctx.informs("TOK-DEDUP", message, *bad))
            continue
        records = [record_of(exchange) for exchange in exchanges]
        if None in map(flag_of, records):
            message = f"{equal}: the records do not say which one is new"
            findings.append(ctx.informs("TOK-DEDUP", message, *exchanges[:2]))
            continue
        ids = {record["id"] for record in records}
        created = sum(flag_of(record) is False for record in records)
        rule = f"{equal} must create one token, not {created} with {len(ids)} identifiers"
        is_so = len(ids) == created == 1
        seen = f"{equal} have one identifier"
        findings.append(ctx.judges("TOK-DEDUP", is_so, seen, rule, *exchanges))
    return findings
