"""The page's charts as SVG: what `simulator.views.charts` defines, and pictures of the page alone.

A drawing takes its colours from the page's style sheet by class, so that it follows light and
dark. Bars of one series are one path: a drawing stays small however many bars it has. Texts are
escaped and coordinates rounded, so that the bytes repeat.

Wide charts are drawn twice: on a phone the page shows the narrow one, with names above their rows
instead of beside them, so that nothing scrolls sideways. Narrow charts stand two beside each other
on a wide page, each with a table of the same numbers.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
from markupsafe import Markup, escape

from engine.files import span_text
from simulator.rows.findings import Findings, Refusals, RequestKey
from simulator.rows.metrics import WarmUp
from simulator.views.charts import Estimates, GanttRows, Histogram, Series, StackedBars, joined
from simulator.views.text import (
    Axis,
    count_text,
    counted_text,
    number_text,
    plain_text,
    share_text,
    value_text,
)


def number(value: float) -> str:
    """Return a coordinate in at most two decimals, without a trailing zero."""
    return f"{value:.2f}".rstrip("0").rstrip(".") or "0"


def bars_path(bars: Iterable[tuple[float, float, float, float]]) -> str:
    """Return one path of upright bars, each given by x, y of its top, width and height."""
    return "".join(
        f"M{number(x)} {number(y)}h{number(w)}v{number(h)}h{number(-w)}z" for x, y, w, h in bars
    )


class Drawing:
    """One picture; `title` is what a screen reader says of it."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.width = width
        self.height = height
        self._parts: list[Markup] = []
        self._title = title

    def path(self, d: str, css: str, title: str = "") -> None:
        """Draw a path; nothing where it is empty."""
        if d:
            self._add("path", css, title, d=d)

    def line(self, x1: float, y1: float, x2: float, y2: float, css: str) -> None:
        """Draw a straight line."""
        self._add("path", css, "", d=f"M{number(x1)} {number(y1)}L{number(x2)} {number(y2)}")

    def rect(  # reason: a rectangle's own numbers
        self, x: float, y: float, width: float, height: float, css: str, title: str = ""
    ) -> None:
        """Draw a rectangle."""
        self._add(
            "rect", css, title, x=number(x), y=number(y), width=number(width), height=number(height)
        )

    def text(self, x: float, y: float, text: str, css: str) -> None:
        """Write a text; its anchor is in the class."""
        self._parts.append(
            Markup('<text x="{}" y="{}" class="{}">{}</text>').format(
                number(x), number(y), css, text
            )
        )

    def markup(self) -> Markup:
        """Return the element."""
        return Markup('<svg viewBox="0 0 {} {}" role="img" aria-label="{}">{}</svg>').format(
            number(self.width), number(self.height), self._title, Markup("").join(self._parts)
        )

    def _add(self, tag: str, css: str, title: str, **attributes: str) -> None:
        texts = Markup(" ").join(
            Markup('{}="{}"').format(name, value) for name, value in attributes.items()
        )
        inside = Markup("<title>{}</title>").format(title) if title else escape("")
        self._parts.append(Markup('<{} class="{}" {}>{}</{}>').format(tag, css, texts, inside, tag))


@dataclass(frozen=True, slots=True)
class Frame:
    """How wide a picture is, and its margins.

    head: height of a row's name where it stands above the row; 0 where it stands beside it.
    """

    width: int
    left: int
    right: int
    head: int = 0

    @property
    def plot(self) -> int:
        """The width between the margins."""
        return self.width - self.left - self.right

    @property
    def row(self) -> int:
        """The height of a row, with its name."""
        return self.head + _ROW

    def ticks(self, axis: Axis) -> Iterator[tuple[float, str]]:
        """Yield place and text of as many of an axis's ticks as have room."""
        places = [(self.left + axis.place(at_ns, self.plot), text) for at_ns, text in axis.ticks()]
        longest = max((len(text) for _, text in places), default=0)
        room = self.plot / max(1, len(places) - 1)
        yield from places[:: max(1, -(-int(_LETTER * (longest + 2)) // max(1, int(room))))]


_WIDE: Final = Frame(1080, 150, 28)
_NARROW: Final = Frame(360, 40, 24, 18)
FRAMES: Final = {"wide": _WIDE, "narrow": _NARROW}
"""The class of a picture on the page, which shows one of them, and its frame."""
_LETTER: Final = 6.6
_ROW: Final = 22
_LONGEST_LABEL: Final = 22
_LABEL_WIDTH: Final = 62


def timeline(chart: StackedBars, findings: Findings, axis: Axis, frame: Frame = _WIDE) -> Drawing:
    """Three panels over one time axis: all requests, the refused by clause, each clause's share."""
    passed, *clauses = chart.series
    refused = sum((series.counts for series in clauses), np.zeros_like(passed.counts))
    tall_a, tall_b, gap = 120, 150 if clauses else 0, 34
    top_b = 26 + tall_a + gap
    top_c = top_b + tall_b + gap if clauses else top_b
    bottom = top_c + frame.row * len(clauses)
    drawing = Drawing(frame.width, bottom + 30, chart.title)
    if findings.start_ns:
        width = axis.place(findings.start_ns, frame.plot)
        drawing.rect(
            frame.left, 26, width, bottom - 26, "warmup", "warm-up, left out of the numbers"
        )
    for x, text in frame.ticks(axis):
        drawing.line(x, 26, x, bottom, "grid")
        drawing.text(x, bottom + 20, text, "tick mid")
    panels = _Panels(drawing, findings, axis, frame)
    panels.stack("Requests", 26, tall_a, [passed, Series("refused", "turned", refused)])
    if clauses:
        panels.stack("Refused, by clause", top_b, tall_b, clauses)
        drawing.text(frame.left, top_c - 10, "Share refused by each clause", "panel")
        for place, clause in enumerate(clauses):
            panels.strip(clause, top_c + place * frame.row)
    if not frame.head:  # touch screens cannot hover
        panels.hover(26, bottom)
    return drawing


def gantt(
    chart: GanttRows, axis: Axis, colours: Mapping[str, str], frame: Frame = _WIDE
) -> Drawing:
    """Who was locked out when: a row a key and address under a clause."""
    frame = Frame(frame.width, 8, 24, frame.head) if frame.head else Frame(frame.width, 290, 96)
    bottom = 10 + frame.row * len(chart.rows)
    drawing = Drawing(frame.width, bottom + 30, chart.title)
    for x, text in frame.ticks(axis):
        drawing.line(x, 6, x, bottom, "grid")
        drawing.text(x, bottom + 18, text, "tick mid" if x > _LABEL_WIDTH / 2 else "tick")
    for place, (who, refusals) in enumerate(chart.rows):
        top = 10 + place * frame.row
        if place % 2 == 0:
            drawing.rect(0, top, frame.width, frame.row, "zebra")
        ip = _short(who.ip, 15 if frame.head else _LONGEST_LABEL)
        drawing.text(8, top + 15, ip, "label mono")
        key = _short(who.key or "no key", 14 if frame.head else 19)
        drawing.text(150 if frame.head else 166, top + 15, key, "label mono muted")
        bars = _gantt_bars(refusals, axis, frame, top + frame.head)
        drawing.path(bars_path(bars), colours[who.clause], _gantt_title(who, refusals, axis))
        drawing.text(frame.width - 8, top + 15, span_text(refusals.shut_ns), "label end")
    return drawing


def histogram_chart(chart: Histogram) -> Drawing:
    """A histogram over a logarithmic scale of time."""
    width, tall, left, steps = 420, 150, 22, chart.steps
    drawing = Drawing(width, tall + 44, chart.title)
    slot = (width - 2 * left) / max(12, len(steps))
    highest = max(count for _, _, count in steps)
    shift = (width - 2 * left - slot * len(steps)) / 2
    drawing.line(left, tall + 16, width - left, tall + 16, "axis")
    decades = [place for place, (from_ns, _, _) in enumerate(steps) if _is_decade(from_ns)]
    apart = -(-_LABEL_WIDTH // slot)
    labelled = set(decades if len(decades) > 2 else range(0, len(steps), int(apart)))
    for place, (from_ns, to_ns, count) in enumerate(steps):
        x = left + shift + place * slot
        high = tall * count / highest
        if count:
            drawing.rect(
                x + 1,
                16 + tall - max(1.0, high),
                slot - 2,
                max(1.0, high),
                "hist",
                f"{_step_text(from_ns, to_ns)}: {count_text(count)}",
            )
        if to_ns <= 1:
            drawing.text(x + slot / 2, tall + 34, "0", "tick mid")
        elif place in labelled:
            drawing.line(x, tall + 16, x, tall + 21, "axis")
            drawing.text(x, tall + 34, span_text(from_ns), "tick mid")
    return drawing


def _is_decade(at_ns: int) -> bool:
    return at_ns > 0 and str(at_ns).rstrip("0") == "1"


def _step_text(from_ns: int, to_ns: int) -> str:
    return "none" if to_ns <= 1 else f"{span_text(from_ns)} to {span_text(to_ns)}"


@dataclass(frozen=True, slots=True)
class _Panels:
    """The panels of a timeline, over one time axis."""

    drawing: Drawing
    findings: Findings
    axis: Axis
    frame: Frame

    def stack(self, title: str, top: float, tall: float, series: Sequence[Series]) -> None:
        """Draw stacked bars, the first series at the bottom, with an axis of round counts."""
        frame = self.frame
        total = np.sum([layer.counts for layer in series], axis=0)
        ceiling = _round_up(int(total.max(initial=0)))
        self.drawing.text(frame.left, top - 10, title, "panel")
        counts = sorted({0, ceiling // 2, ceiling} if ceiling > 1 else {0, ceiling})
        levels = ((count / max(1, ceiling), count_text(count)) for count in counts)
        box = (frame.left, frame.plot, top, tall)
        _levels(self.drawing, box, levels, 4 if frame.head else 8)
        bars = [(layer.css, layer.counts) for layer in series]
        _bars(self.drawing, self.axis, box, self.findings.bin_ns, bars, ceiling)

    def strip(self, clause: Series, top: float) -> None:
        """Draw one clause's row: the larger the share that it refused, the darker the bin."""
        drawing, findings, frame = self.drawing, self.findings, self.frame
        if frame.head:
            drawing.text(frame.left, top + 14, _short(clause.name, 40), "label mono")
        else:
            drawing.text(frame.left - 8, top + 14, _short(clause.name), "label end mono")
        top += frame.head
        drawing.rect(frame.left, top + 3, frame.plot, _ROW - 6, "strip")
        counts = clause.counts
        shades: dict[int, list[tuple[float, float, float, float]]] = {}
        for bin_ in np.flatnonzero(counts):
            share = int(counts[bin_]) / max(1, int(findings.offered[bin_]))
            shade = 1 + min(3, int(share * 4))
            x, width = self._span(int(bin_))
            wide = max(0.8, width - min(1.0, width / 5))
            shades.setdefault(shade, []).append((frame.left + x, top + 3, wide, _ROW - 6))
        for shade, bars in sorted(shades.items()):
            drawing.path(bars_path(bars), f"{clause.css} shade{shade}")

    def hover(self, top: float, bottom: float) -> None:
        """Lay an invisible bar with the numbers over every bin that holds something."""
        findings = self.findings
        for bin_ in np.flatnonzero(findings.offered):
            at = int(bin_)
            x, width = self._span(at)
            offered = int(findings.offered[at])
            lines = [
                f"{self.axis.instant(at * findings.bin_ns)}: {counted_text(offered, 'request')}"
            ]
            for clause, counts in findings.refused.items():
                if refused := int(counts[at]):
                    share = share_text(refused, offered)
                    lines.append(f"{clause}: {count_text(refused)} refused ({share})")
            place = self.frame.left + x, top, max(0.8, width), bottom - top
            self.drawing.rect(*place, "hover", "\n".join(lines))

    def _span(self, number: int) -> tuple[float, float]:
        """Return where a bin begins, and how wide it is."""
        bin_ns = self.findings.bin_ns
        return _span(number * bin_ns, bin_ns, self.axis, self.frame.plot)


def _bars(  # reason: a panel's place, data and scale
    drawing: Drawing,
    axis: Axis,
    box: tuple[float, float, float, float],
    bin_ns: int,
    series: Iterable[tuple[str, npt.NDArray[Any]]],
    ceiling: float,
    gap: float = 0.0,
) -> None:
    """Draw bars over time, a bin each, the first series (class and heights) at the bottom.

    box: left, width, top and height of the panel. gap: between bars; 0 for what a bar has room for.
    """
    left, plot, top, tall = box
    below: npt.NDArray[Any] | float = 0.0
    for css, heights in series:
        feet = np.broadcast_to(below, heights.shape)
        bars = []
        for place in np.flatnonzero(heights > 0).tolist():
            x, width = _span(place * bin_ns, bin_ns, axis, plot)
            if width > 0:
                high = tall * float(heights[place]) / ceiling
                y = top + tall * (1 - float(feet[place] + heights[place]) / ceiling)
                wide = max(0.8, width - (gap or min(1.0, width / 5)))
                bars.append((left + x, y, wide, high))
        drawing.path(bars_path(bars), css)
        below = feet + heights


def _span(from_ns: int, length_ns: int, axis: Axis, plot: float) -> tuple[float, float]:
    """Return where a stretch of time begins on an axis of a width, and how wide it is."""
    x = axis.place(from_ns, plot)
    return x, axis.place(from_ns + length_ns, plot) - x


def _gantt_bars(
    refusals: Refusals, axis: Axis, frame: Frame, top: float
) -> list[tuple[float, float, float, float]]:
    """Return a row's bars, those that would touch on the page drawn as one."""
    pixel_ns = axis.end_ns / frame.plot
    bars = joined(refusals.intervals, gap_ns=0.6 * pixel_ns, least_ns=1.6 * pixel_ns)
    return [
        (frame.left + from_ns / pixel_ns, top + 4, (to_ns - from_ns) / pixel_ns, _ROW - 8)
        for from_ns, to_ns in bars
    ]


def _gantt_title(who: RequestKey, refusals: Refusals, axis: Axis) -> str:
    if not refusals.refused:
        return (
            f"{who.clause} refused {plain_text(who.ip)} in the warm-up alone; locked out"
            f" {span_text(refusals.shut_ns)} of what follows"
        )
    return (
        f"{who.clause} refused {plain_text(who.ip)} {count_text(refusals.refused)} times, first"
        f" {axis.instant(refusals.first_ns)}, last {axis.instant(refusals.last_ns)}; locked out"
        f" {span_text(refusals.shut_ns)}"
    )


def _short(text: str, longest: int = _LONGEST_LABEL) -> str:
    text = plain_text(text)
    return text if len(text) <= longest else text[: longest - 1] + "…"


def _round_up(count: int) -> int:
    """Return the next count of one digit and zeros that an axis ends with."""
    power = 1
    while True:
        for step in (1, 2, 3, 4, 5, 6, 8):
            if step * power >= count:
                return step * power
        power *= 10


_WIDTH: Final = 420
_LEFT: Final = 46
_RIGHT: Final = 12
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_HEAD: Final = 16
_TALL: Final = 130
_BOX: Final = (_LEFT, _PLOT, _HEAD, _TALL)
_HALVES: Final = (0.0, 0.5, 1.0)
_RULE_ROW: Final = 40
_LONGEST: Final = 34
_SECOND_NS: Final = 1_000_000_000


def rates(chart: StackedBars, axis: Axis) -> Drawing:
    """Stacked bars as rates a second."""
    return rates_compared({f"{chart.unit} a second": chart}, axis, chart.title)


def rates_compared(charts: Mapping[str, StackedBars], axis: Axis, title: str) -> Drawing:
    """Stacked bars as rates a second: a panel for each heading, on one scale and one time axis."""
    heights = [
        np.sum([layer.counts for layer in chart.series], axis=0) for chart in charts.values()
    ]
    bin_s = next(iter(charts.values())).bin_ns / _SECOND_NS
    most = max(int(height.max(initial=0)) for height in heights)
    ceiling = _round_up(math.ceil(1_000 * most / bin_s)) / 1_000
    apart = _TALL + _HEAD + 8
    drawing = Drawing(_WIDTH, len(charts) * apart + 22, title)
    boxes = [(_LEFT, _PLOT, _HEAD + place * apart, _TALL) for place in range(len(charts))]
    for box, heading in zip(boxes, charts, strict=True):
        levels = ((share, number_text(share * ceiling, 3)) for share in _HALVES)
        _levels(drawing, box, levels, 5)
        drawing.text(_LEFT, box[2] - 6, heading, "tick")
    _ticks(drawing, axis, _LEFT, _PLOT, drawing.height - 30)
    for box, chart in zip(boxes, charts.values(), strict=True):
        series = [(layer.css, layer.counts) for layer in chart.series]
        _bars(drawing, axis, box, chart.bin_ns, series, ceiling * bin_s, 0.8)
    return drawing


def headroom(counters: Mapping[str, Any], axis: Axis, colours: Mapping[str, str]) -> Drawing:
    """How full the fullest counter of each rule was: a row a rule, its upper line is the limit."""
    rules = counters["rules"]
    bottom = 8 + _RULE_ROW * len(rules)
    fullest = ", ".join(
        f"{line['rule']} {share_text(line['peak'], line['limit_requests'])}" for line in rules
    )
    drawing = Drawing(
        _WIDTH, bottom + 26, f"How full the fullest counter of each rule was: {fullest}"
    )
    left, plot = 8, _WIDTH - 16
    _ticks(drawing, axis, left, plot, bottom)
    for place, line in enumerate(rules):
        top, tall = 8 + place * _RULE_ROW + 16, _RULE_ROW - 20
        peak = f"{count_text(line['peak'])} of {count_text(line['limit_requests'])}"
        drawing.text(left, top - 4, line["rule"], "label mono")
        drawing.text(_WIDTH - 8, top - 4, f"at most {peak}", "label end")
        drawing.rect(left, top, plot, tall, "strip")
        held = np.minimum(line["most"], line["limit_requests"])
        colour = colours.get(line["clause"], "admitted")
        box = (left, plot, top, tall)
        _bars(drawing, axis, box, counters["bin_ns"], [(colour, held)], line["limit_requests"], 0.4)
        drawing.line(left, top, left + plot, top, "axis limit")
    return drawing


def addresses(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """The refused share of the addresses that were refused most: a bar each, of 100 % length."""
    label = ", ".join(f"{row['name']} {share_text(row['refused'], row['offered'])}" for row in rows)
    drawing = Drawing(_WIDTH, 8 + 30 * len(rows), f"Refused share by address: {label}")
    for place, row in enumerate(rows):
        top = 4 + place * 30
        share = row["refused"] / row["offered"]
        drawing.text(8, top + 12, _short(row["name"], _LONGEST), "label mono")
        words = f"{share_text(row['refused'], row['offered'])} of {count_text(row['offered'])}"
        drawing.text(_WIDTH - 8, top + 12, words, "label end")
        drawing.rect(8, top + 16, _WIDTH - 16, 7, "strip")
        drawing.rect(8, top + 16, (_WIDTH - 16) * share, 7, "turned")
    return drawing


def spread(rows: Sequence[Mapping[str, Any]]) -> Drawing:
    """A dot a run, and the interval of the mean as a bar under the dots: a row a metric."""
    label = "; ".join(
        f"{row['name']} {row['mean']} from {row['low']} to {row['high']}" for row in rows
    )
    drawing = Drawing(_WIDTH, 6 + 54 * len(rows), f"Runs and intervals of the mean: {label}")
    for place, row in enumerate(rows):
        _spread_row(drawing, row, 6 + place * 54)
    return drawing


def warm_up(run: WarmUp, axis: Axis) -> Drawing:
    """A share by bins: those that MSER-5 would leave out are pale, the others in full colour."""
    advice = (
        "no warm-up is suggested"
        if run.suggested_ns is None
        else f"the suggested warm-up is {span_text(run.suggested_ns)}"
    )
    title = (
        f"Refused share over time in bins of {span_text(run.bin_ns)}: {advice},"
        f" this run has {span_text(run.given_ns)}"
    )
    drawing = Drawing(_WIDTH, _TALL + 46, title)
    if run.given_ns:
        drawing.rect(_LEFT, _HEAD, axis.place(run.given_ns, _PLOT), _TALL, "warmup")
    _axes(drawing, "refused share", (f"{100 * share:.0f} %" for share in _HALVES))
    _ticks(drawing, axis, _LEFT, _PLOT, _HEAD + _TALL)
    cut_ns = run.suggested_ns or 0
    shares = np.nan_to_num(run.series)
    is_late = np.arange(len(shares)) * run.bin_ns >= cut_ns
    series = [("lost", shares * ~is_late), ("goodput", shares * is_late)]
    _bars(drawing, axis, _BOX, run.bin_ns, series, 1.0, 0.6)
    if cut_ns:
        x = _LEFT + axis.place(cut_ns, _PLOT)
        drawing.line(x, _HEAD - 4, x, _HEAD + _TALL, "axis limit")
    return drawing


def estimates(chart: Estimates) -> Drawing:
    """Shares in their intervals over a logarithmic scale; those without one are pale."""
    drawing = Drawing(_WIDTH, _TALL + 60, chart.title)
    places = [float(row.at) for row in chart.rows]
    least = math.floor(math.log10(min(places)))
    decades = max(1, math.ceil(math.log10(max(places))) - least)
    highest = max(row.value if math.isnan(row.high) else row.high for row in chart.rows)
    most = _round_up(math.ceil(100 * highest)) / 100
    _axes(drawing, chart.value, (f"{100 * share * most:g} %" for share in _HALVES))
    for decade in range(decades + 1):
        x = _LEFT + _PLOT * decade / decades
        drawing.line(x, _HEAD, x, _HEAD + _TALL, "grid")
        text = number_text(10.0 ** (least + decade))
        drawing.text(min(x, _LEFT + _PLOT - 14), _HEAD + _TALL + 18, text, "tick mid")
    drawing.text(_LEFT + _PLOT / 2, _HEAD + _TALL + 36, chart.at, "tick mid")

    def y_of(value: float) -> float:
        return _HEAD + _TALL * (1 - value / most)

    for at, row in zip(places, chart.rows, strict=True):
        x = _LEFT + _PLOT * (math.log10(at) - least) / decades
        css = chart.colours[row.series]
        if not math.isnan(row.low):
            top = y_of(row.high)
            drawing.rect(x - 2, top, 4, y_of(row.low) - top, f"{css} shade1")
        faint = " shade1" if math.isnan(row.low) else ""
        drawing.path(_dot(x, y_of(row.value)), css + faint, row.text)
    return drawing


def _spread_row(drawing: Drawing, row: Mapping[str, Any], top: float) -> None:
    """Draw one metric's runs, their mean and its interval."""
    values, low, high = row["values"], row["low_value"], row["high_value"]
    ends = [value for value in (low, high) if value is not None]
    least, most = min([*values, *ends]), max([*values, *ends])
    left, plot = 16, _WIDTH - 32

    def x_of(value: float) -> float:
        return left + float((value - least) / ((most - least) or 1.0)) * plot

    drawing.text(8, top + 11, _short(row["title"], 44), "label")
    drawing.line(left, top + 24, left + plot, top + 24, "grid")
    if len(ends) > 1:
        drawing.rect(x_of(low), top + 29, max(1.5, x_of(high) - x_of(low)), 4, "interval")
    drawing.path("".join(_dot(x_of(value), top + 24) for value in values), "dots")
    drawing.line(x_of(row["mean_value"]), top + 17, x_of(row["mean_value"]), top + 35, "mean")
    drawing.text(left, top + 46, value_text(row["name"], least), "tick")
    drawing.text(left + plot, top + 46, value_text(row["name"], most), "tick end")


def _dot(x: float, y: float) -> str:
    return f"M{number(x - 3)} {number(y)}a3 3 0 1 0 6 0a3 3 0 1 0 -6 0z"


def _axes(drawing: Drawing, unit: str, texts: Iterable[str]) -> None:
    """Draw the upright axis of a small picture; texts: what its foot, middle and top are called."""
    _levels(drawing, _BOX, zip(_HALVES, texts, strict=True), 5)
    drawing.text(_LEFT, 10, unit, "tick")


def _levels(
    drawing: Drawing,
    box: tuple[float, float, float, float],
    levels: Iterable[tuple[float, str]],
    apart: float,
) -> None:
    """Draw lines at shares of a panel's height, each with its name so far to the left of it."""
    left, plot, top, tall = box
    for share, text in levels:
        y = top + tall * (1 - share)
        drawing.line(left, y, left + plot, y, "grid" if share else "axis")
        drawing.text(left - apart, y + 4, text, "tick end")


def _ticks(drawing: Drawing, axis: Axis, left: float, plot: float, bottom: float) -> None:
    """Write as many instants under a picture as there is room for."""
    ticks = axis.ticks()
    apart = max(1, -(-len(ticks) // 5))
    for at_ns, text in ticks[::apart]:
        x = left + axis.place(at_ns, plot)
        drawing.text(min(max(x, left + 14), left + plot - 14), bottom + 18, text, "tick mid")
