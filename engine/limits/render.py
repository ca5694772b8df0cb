"""The limit table as people read it, for `python -m engine limits` and for docs."""

from __future__ import annotations

from collections.abc import Sequence

from engine.files import format_duration
from engine.limits.table import COUNTER_KINDS, LimitTable, Match, Rule

__all__ = ["render"]

_HEADINGS = ("rule", "seed", "counts", "counter", "rate", "action", "")


def render(table: LimitTable) -> str:
    """Return the table as aligned text, a row a rule, ending in a line that counts them.

    >>> print(render(LimitTable.default()).splitlines()[-1])
    14 rules, 15 counters
    """
    rows = [_HEADINGS, *(_cells(rule) for rule in table)]
    widths = [max(len(row[place]) for row in rows) for place in range(len(_HEADINGS))]
    lines = [_line(row, widths) for row in rows]
    lines.insert(1, _line(["-" * width for width in widths], widths))
    counters = sum(len(rule.counter_names) for rule in table)
    return "\n".join([*lines, "", f"{len(table.rules)} rules, {counters} counters"])


def _line(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(c.ljust(width) for c, width in zip(cells, widths, strict=True)).rstrip()


def _cells(rule: Rule) -> tuple[str, ...]:
    action = "throttle"
    if rule.block_ns is not None:
        action = f"{format_duration(rule.block_ns)} block"
    notes = []
    if rule.shadow:
        notes.append("shadow")
    if rule.algorithm is not None:
        notes.append(rule.algorithm)
    if rule.burst_requests is not None:
        notes.append(f"burst {rule.burst_requests}")
    return (
        rule.id,
        rule.seed_section or "own",
        _counts(rule.match),
        COUNTER_KINDS[rule.counter].short,
        str(rule.rate),
        action,
        ", ".join(notes),
    )


def _counts(match: Match) -> str:
    parts = []
    if match.tenant is not None:
        parts.append(f"{match.tenant} tenant")
    if match.application is not None:
        parts.append(f"{match.application} application")
    if match.legacy is not None:
        parts.append("legacy keys" if match.legacy else "keys that are not legacy")
    if match.proxy is not None:
        parts.append("proxies by key" if match.proxy == "key" else "proxies by hostname")
    if match.resource:
        parts.append(" or ".join(match.resource))
    return ", ".join(parts) or "anything"
