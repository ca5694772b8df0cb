"""Pictures that stay legible on a phone: narrow drawings, two beside each other on a wide page.

Attempts first and again, goodput, headroom, addresses, and the spread of replications. Each has a
bounded number of marks, and a table of the same numbers beside it on the page.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.rows.warm_up import WarmUp
from simulator.views._findings import Findings
from simulator.views._headline import value_text
from simulator.views._svg import Drawing, bars_path, number
from simulator.views._tables import address_rows
from simulator.views._text import Axis, count_text, plain_text, share_text, span_text

__all__ = ["addresses", "attempts", "goodput", "headroom", "spread", "time_rows", "warm_up"]

_WIDTH: Final = 420
_LEFT: Final = 46
_RIGHT: Final = 12
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_TALL: Final = 130
_BINS: Final = 60
_ROW: Final = 40
_LONGEST: Final = 34
_SECOND_NS: Final = 1_000_000_000

Numbers = npt.NDArray[np.int64]


def attempts(findings: Findings, axis: Axis) -> Drawing:
    """First attempts below, retries above them, over time."""
    firsts, offered = _coarse(findings.firsts), _coarse(findings.offered)
    again = offered - firsts
    title = (
        f"Attempts over time: {count_text(int(firsts.sum()))} first attempts,"
        f" {count_text(int(again.sum()))} retries"
    )
    drawing = Drawing(_WIDTH, _TALL + 46, title)
    _bars(drawing, axis, [("admitted", firsts), ("again", again)], _width_ns(findings))
    return drawing


def goodput(findings: Findings, axis: Axis) -> Drawing:
    """Admitted and successful attempts, in front of offered ones, over time."""
    good, offered = _coarse(findings.good), _coarse(findings.offered)
    title = (
        f"Goodput over time: {count_text(int(good.sum()))} of {count_text(int(offered.sum()))}"
        " attempts were let in and not answered with an error"
    )
    drawing = Drawing(_WIDTH, _TALL + 46, title)
    _bars(drawing, axis, [("goodput", good), ("lost", offered - good)], _width_ns(findings))
    return drawing


def headroom(summary: Mapping[str, Any], axis: Axis, colours: Mapping[str, str]) -> Drawing | None:
    """How full the fullest counter of each rule was: a row a rule, its upper line is the limit."""
    rules = summary.get("headroom", {}).get("rules", [])
    if not rules:
        return None
    bottom = 8 + _ROW * len(rules)
    fullest = ", ".join(
        f"{line['rule']} {share_text(line['peak'], line['limit_requests'])}" for line in rules
    )
    drawing = Drawing(
        _WIDTH, bottom + 26, f"How full the fullest counter of each rule was: {fullest}"
    )
    left, plot = 8, _WIDTH - 16
    _ticks(drawing, axis, left, plot, bottom)
    bin_ns = summary["headroom"]["bin_ns"]
    for place, line in enumerate(rules):
        top, tall = 8 + place * _ROW + 16, _ROW - 20
        peak = f"{count_text(line['peak'])} of {count_text(line['limit_requests'])}"
        drawing.text(left, top - 4, line["rule"], "label mono")
        drawing.text(_WIDTH - 8, top - 4, f"at most {peak}", "label end")
        drawing.rect(left, top, plot, tall, "strip")
        bars = []
        for bin_, held in enumerate(line["most"]):
            x = left + axis.place(bin_ * bin_ns, plot)
            width = left + axis.place((bin_ + 1) * bin_ns, plot) - x
            if held > 0 and width > 0:
                high = tall * min(1.0, held / line["limit_requests"])
                bars.append((x, top + tall - high, max(0.8, width - 0.4), high))
        drawing.path(bars_path(bars), colours.get(line["clause"], "admitted"))
        drawing.line(left, top, left + plot, top, "axis limit")
    return drawing


def addresses(findings: Findings) -> Drawing | None:
    """The refused share of the addresses that were refused most: a bar each, of 100 % length."""
    rows = address_rows(findings)["rows"]
    if not rows:
        return None
    told = ", ".join(f"{row['name']} {share_text(row['refused'], row['offered'])}" for row in rows)
    drawing = Drawing(_WIDTH, 8 + 30 * len(rows), f"Refused share by address: {told}")
    for place, row in enumerate(rows):
        top = 4 + place * 30
        share = row["refused"] / row["offered"]
        drawing.text(8, top + 12, _short(row["name"]), "label mono")
        words = f"{share_text(row['refused'], row['offered'])} of {count_text(row['offered'])}"
        drawing.text(_WIDTH - 8, top + 12, words, "label end")
        drawing.rect(8, top + 16, _WIDTH - 16, 7, "strip")
        drawing.rect(8, top + 16, (_WIDTH - 16) * share, 7, "turned")
    return drawing


def spread(rows: Sequence[Mapping[str, Any]]) -> Drawing | None:
    """A dot a run, and the interval of the mean as a bar under the dots: a row a metric."""
    if not rows:
        return None
    told = "; ".join(
        f"{row['name']} {row['mean']} from {row['low']} to {row['high']}" for row in rows
    )
    drawing = Drawing(_WIDTH, 6 + 54 * len(rows), f"Runs and intervals of the mean: {told}")
    for place, row in enumerate(rows):
        _spread_row(drawing, row, 6 + place * 54)
    return drawing


def warm_up(found: WarmUp, axis: Axis) -> Drawing:
    """A share by bins: those that MSER-5 would leave out are pale, the others in full colour."""
    advice = (
        "no warm-up is suggested"
        if found.suggested_ns is None
        else f"the suggested warm-up is {span_text(found.suggested_ns)}"
    )
    title = (
        f"Refused share over time in bins of {span_text(found.bin_ns)}: {advice},"
        f" this run has {span_text(found.given_ns)}"
    )
    drawing = Drawing(_WIDTH, _TALL + 46, title)
    top = 16
    if found.given_ns:
        drawing.rect(_LEFT, top, axis.place(found.given_ns, _PLOT), _TALL, "warmup")
    for share in (0.0, 0.5, 1.0):
        y = top + _TALL * (1 - share)
        drawing.line(_LEFT, y, _WIDTH - _RIGHT, y, "grid" if share else "axis")
        drawing.text(_LEFT - 5, y + 4, f"{share:.0%}", "tick end")
    drawing.text(_LEFT, 10, "refused share", "tick")
    _ticks(drawing, axis, _LEFT, _PLOT, top + _TALL)
    cut_ns = found.suggested_ns or 0
    early: list[tuple[float, float, float, float]] = []
    late: list[tuple[float, float, float, float]] = []
    for place, value in enumerate(found.series):
        if value > 0:
            x = _LEFT + axis.place(place * found.bin_ns, _PLOT)
            width = _LEFT + axis.place((place + 1) * found.bin_ns, _PLOT) - x
            high = _TALL * value
            kept = late if place * found.bin_ns >= cut_ns else early
            kept.append((x, top + _TALL - high, max(0.8, width - 0.6), high))
    drawing.path(bars_path(early), "lost")
    drawing.path(bars_path(late), "goodput")
    if cut_ns:
        x = _LEFT + axis.place(cut_ns, _PLOT)
        drawing.line(x, top - 4, x, top + _TALL, "axis limit")
    return drawing


def _spread_row(drawing: Drawing, row: Mapping[str, Any], top: float) -> None:
    """Draw one metric's runs, their mean and its interval."""
    values, low, high = row["values"], row["low_value"], row["high_value"]
    ends = [value for value in (low, high) if value is not None]
    least, most = min([*values, *ends]), max([*values, *ends])
    left, plot = 16, _WIDTH - 32

    def x_of(value: float) -> float:
        return left + float((value - least) / ((most - least) or 1.0)) * plot

    drawing.text(8, top + 11, _short(row["name"], 44), "label mono")
    drawing.line(left, top + 24, left + plot, top + 24, "grid")
    if len(ends) > 1:
        drawing.rect(x_of(low), top + 29, max(1.5, x_of(high) - x_of(low)), 4, "interval")
    dots = (
        f"M{number(x_of(value) - 3)} {number(top + 24)}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z"
        for value in values
    )
    drawing.path("".join(dots), "dots")
    drawing.line(x_of(row["mean_value"]), top + 17, x_of(row["mean_value"]), top + 35, "mean")
    drawing.text(left, top + 46, value_text(row["name"], least), "tick")
    drawing.text(left + plot, top + 46, value_text(row["name"], most), "tick end")


def time_rows(findings: Findings, axis: Axis) -> list[dict[str, Any]]:
    """Return attempts and goodput as a table, a row a stretch of time in which somebody asked."""
    offered = _coarse(findings.offered)
    firsts, good = _coarse(findings.firsts), _coarse(findings.good)
    return [
        {
            "from": axis.instant(int(place) * _width_ns(findings)),
            "firsts": int(firsts[place]),
            "again": int(offered[place] - firsts[place]),
            "good": int(good[place]),
            "lost": int(offered[place] - good[place]),
        }
        for place in np.flatnonzero(offered)
    ]


def _step(findings: Findings) -> int:
    return max(1, -(-len(findings.offered) // _BINS))


def _width_ns(findings: Findings) -> int:
    return _step(findings) * findings.bin_ns


def _coarse(counts: Numbers) -> Numbers:
    """Return at most `_BINS` sums of neighbouring bins."""
    step = max(1, -(-len(counts) // _BINS))
    found: Numbers = np.add.reduceat(counts, range(0, len(counts), step))
    return found


def _bars(
    drawing: Drawing, axis: Axis, series: Sequence[tuple[str, Numbers]], width_ns: int
) -> None:
    """Draw stacked bars, the first series at the bottom, as rates a second."""
    total = np.sum([counts for _, counts in series], axis=0)
    most = max(1, int(total.max(initial=0)))
    top = 16
    for share in (0.0, 0.5, 1.0):
        y = top + _TALL * (1 - share)
        drawing.line(_LEFT, y, _WIDTH - _RIGHT, y, "grid" if share else "axis")
        rate = share * most * _SECOND_NS / width_ns
        drawing.text(
            _LEFT - 5, y + 4, f"{rate:.3g}" if rate < 1e4 else f"{rate:.1e}", "tick end"
        )  # reason: four digits fit
    drawing.text(_LEFT, 10, "attempts a second", "tick")
    _ticks(drawing, axis, _LEFT, _PLOT, top + _TALL)
    below = np.zeros(len(total), dtype=np.int64)
    for css, counts in series:
        bars = []
        for place in np.flatnonzero(counts):
            x = _LEFT + axis.place(int(place) * width_ns, _PLOT)
            width = _LEFT + axis.place((int(place) + 1) * width_ns, _PLOT) - x
            high = _TALL * int(counts[place]) / most
            y = top + _TALL * (1 - int(below[place]) / most) - high
            bars.append((x, y, max(0.8, width - 0.8), high))
        drawing.path(bars_path(bars), css)
        below = below + counts


def _ticks(drawing: Drawing, axis: Axis, left: float, plot: float, bottom: float) -> None:
    """Write as many instants under a picture as there is room for."""
    ticks = axis.ticks()
    apart = max(1, -(-len(ticks) // 5))
    for at_ns, text in ticks[::apart]:
        x = left + axis.place(at_ns, plot)
        drawing.text(min(max(x, left + 14), left + plot - 14), bottom + 18, text, "tick mid")


def _short(text: str, longest: int = _LONGEST) -> str:
    text = plain_text(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"
