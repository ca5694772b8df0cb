"""Sections 8.2 to 8.7: every row of the limit table, measured from outside.

There is one check for each row of the specification's table; the rate that it judges comes from the
target. How the deployment counts is a reading.
"""

from __future__ import annotations

from typing import Final

from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.limits.findings import judge_row
from conformance.limits.rows import ROWS, LimitRow, sizes_of
from engine.limits import LimitTable, Rule

_ACCEPTS: Final = (
    "the rate in any window (a fixed window may admit more across a boundary), counted by what the "
    "row names; ±10 % of number, window and block are excluded"
)
_BLOCKS: Final = "; every request is refused until the block ends, and then admitted again"
_MORE: Final = {"LIM-TEST-TENANT": ("LIM-THROTTLE",), "LIM-PUBLIC": ("LIM-BLOCK",)}
"""Rules for all limits that a row's measurement judges too."""


def _register(rule: Rule, row: LimitRow) -> None:
    """Register the check of one row of the table."""

    async def judge(ctx: CheckContext) -> list[Finding]:
        return await judge_row(ctx, rule.id)

    judge.__doc__ = row.description
    sizes = sizes_of(rule)
    more = _MORE.get(rule.id, ())
    check(
        f"limits.{rule.id}",
        *(rule.id, *more, "ERR-429"),
        accepts=_ACCEPTS + (_BLOCKS if rule.block_ns else ""),
        roles=() if row.role is None else (row.role,),
        sources=2 if rule.id == "LIM-PRIVATE" else 1,
        requests=sizes.requests,
        requests_most=sizes.requests_most,
        takes_ns=sizes.takes_ns,
        is_probe=True,
        beside=() if more else ("ERR-429",),
    )(judge)


for _rule in LimitTable.default():
    _register(_rule, ROWS[_rule.id])
