"""The picture of a limit's timeline: time from left to right, a row for each key and address.

A run of like requests is a bar with its count, one that decides is a dot; what was admitted,
refused or lost differs in colour and in shape. The same stands beside it as a table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from conformance.runner.verdicts import Moment

__all__ = ["picture"]

_SECOND_NS: Final = 1_000_000_000
_WIDTH: Final = 760
_LEFT: Final = 12
_ROW: Final = 60
_TOP: Final = 8
_AXIS: Final = 26
_TICKS: Final = 8
_STEPS: Final = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300)


def picture(timeline: Sequence[Moment]) -> dict[str, Any]:
    """Return what the page draws: marks, rows, ticks, and the lines of the table."""
    start_ns = min(one.at_ns for one in timeline)
    end_ns = max(one.until_ns or one.at_ns for one in timeline)
    span_s = max((end_ns - start_ns) / _SECOND_NS, 0.001)
    rows = list(dict.fromkeys(_whose(one) for one in timeline))

    def across(at_ns: int) -> float:
        seconds = (at_ns - start_ns) / _SECOND_NS
        return round(_LEFT + seconds / span_s * (_WIDTH - 2 * _LEFT), 1)

    marks = []
    for one in timeline:
        left = across(one.at_ns)
        right = across(one.until_ns) if one.until_ns is not None else left
        y = _TOP + rows.index(_whose(one)) * _ROW + 36
        marks.append(
            {
                "x": left,
                "width": max(right - left, 3.0),
                "y": y,
                "label": y - 10 if _kind(one.status) == "refused" else y + 19,
                "count": one.count,
                "kind": _kind(one.status),
                "title": f"{_offset(one, start_ns)}: {_status(one)} {one.says}".strip(),
            }
        )
    step = next((step for step in _STEPS if span_s / step <= _TICKS), span_s / _TICKS)
    ticks: list[dict[str, Any]] = []
    while len(ticks) * step <= span_s:
        seconds = len(ticks) * step
        ticks.append({"x": across(start_ns + int(seconds * _SECOND_NS)), "text": f"{seconds:g} s"})
    height = _TOP + len(rows) * _ROW + _AXIS
    return {
        "width": _WIDTH,
        "height": height,
        "axis": height - _AXIS + 4,
        "rows": [{"y": _TOP + place * _ROW + 10, "text": row} for place, row in enumerate(rows)],
        "marks": marks,
        "ticks": ticks,
        "lines": [_line(one, start_ns) for one in timeline],
    }


def _line(one: Moment, start_ns: int) -> dict[str, str]:
    return {
        "at": _offset(one, start_ns),
        "status": _status(one),
        "kind": _kind(one.status),
        "whose": _whose(one),
        "says": one.says,
    }


def _offset(one: Moment, start_ns: int) -> str:
    at = f"{(one.at_ns - start_ns) / _SECOND_NS:+.3f} s"
    if one.until_ns is None:
        return at
    lasts = (one.until_ns - one.at_ns) / _SECOND_NS
    return f"{at}, first to last {lasts:.3f} s"


def _status(one: Moment) -> str:
    status = "no answer" if one.status is None else str(one.status)
    return f"{one.count} x {status}" if one.count > 1 else status


def _whose(one: Moment) -> str:
    where = f"from {one.source}" if one.source else ""
    return " ".join(filter(None, (one.key or "no key", where)))


def _kind(status: int | None) -> str:
    if status is None:
        return "lost"
    if status == 429:
        return "refused"
    return "admitted" if status < 500 and status not in {408, 413, 414, 431} else "lost"
