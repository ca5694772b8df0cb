"""The picture of a run: what was admitted and refused, bin by bin, as inline SVG."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from simulator.report import ADMITTED, REFUSED
from simulator.results import Result

__all__ = ["picture"]

BINS: Final = 60
_WIDTH: Final = 640
_HEIGHT: Final = 180
_LEFT: Final = 52
_BOTTOM: Final = 22


def picture(result: Result, title: str) -> str:
    """Return a stacked bar a bin of time: admitted below, refused above."""
    end_ns = result.summary["duration_ns"]
    edges = np.linspace(0, end_ns, BINS + 1)
    table = result.table.select(["t_ns", "outcome"])
    t_ns = table.column("t_ns").to_numpy()
    outcome = table.column("outcome").cast("string").to_numpy(zero_copy_only=False)
    good = np.isin(outcome, ("admitted", "delayed"))
    admitted, _ = np.histogram(t_ns[good], edges)
    refused, _ = np.histogram(t_ns[~good], edges)
    return _svg(admitted, refused, end_ns / 1e9, _words(result, title))


def _words(result: Result, title: str) -> str:
    totals = result.summary["totals"]
    return (
        f"{title}: {totals['offered']:,} attempts, {totals['refused_share']:.1%} refused, "
        f"{totals['succeeded']:,} of {totals['requests']:,} requests succeeded"
    )


def _svg(admitted: Any, refused: Any, end_s: float, words: str) -> str:  # noqa: ANN401 # reason: arrays
    highest = max(1, int((admitted + refused).max(initial=0)))
    high, width = _HEIGHT - 2 * _BOTTOM, (_WIDTH - _LEFT - 8) / BINS
    bars = []
    for place, (low, top) in enumerate(zip(admitted.tolist(), refused.tolist(), strict=True)):
        x, foot = _LEFT + place * width, float(_HEIGHT - _BOTTOM)
        for count, colour in ((low, ADMITTED), (top, REFUSED)):
            size = high * count / highest
            foot -= size
            if count:
                bars.append(
                    f'<rect x="{x:.1f}" y="{foot:.1f}" width="{width - 1:.1f}" '
                    f'height="{size:.1f}" fill="{colour}"/>'
                )
    base = _HEIGHT - _BOTTOM
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{_escaped(words)}" '
        f'viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" font-family="sans-serif" '
        f'font-size="11"><text x="{_LEFT}" y="13">{_escaped(words)}</text>{"".join(bars)}'
        f'<line x1="{_LEFT}" x2="{_WIDTH - 8}" y1="{base}" y2="{base}" stroke="#888"/>'
        f'<text x="{_LEFT - 4}" y="{_BOTTOM + 8}" text-anchor="end">{highest:,}</text>'
        f'<text x="{_LEFT}" y="{_HEIGHT - 7}">0 s</text>'
        f'<text x="{_WIDTH - 8}" y="{_HEIGHT - 7}" text-anchor="end">{end_s:,.0f} s</text></svg>'
    )


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace('"', "&quot;")
