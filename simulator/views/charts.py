"""The charts of a run, each defined once, for the report's page and for notebooks.

A definition takes findings that are counted already and returns plain data: stacked bars over time
(`StackedBars`), spans of time in rows (`GanttRows`), a distribution (`Histogram`) or values in
their intervals (`Estimates`). A page draws it as SVG (`simulator.views.svg`) in the colours of its
style sheet; for notebooks it becomes an Altair chart here, which can be changed and combined. A
chart has a bounded number of marks however long the run was.

The page does without Altair. That takes 2 s to load and 140 kB for a timeline, where the whole page
takes 0.1 s and 200 kB, and its pictures do not follow light and dark.

Clauses have the colours of Okabe and Ito ("Color universal design", 2008), which people tell apart
whatever their colour vision, and after them some darker ones. What is admitted is pale and what is
refused dark, so those two differ in lightness alone. `page/report.css` has the same colours, and
lighter ones for dark paper; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from simulator.arguments import takes, whole
from simulator.rows.findings import (
    PARTS,
    Findings,
    Numbers,
    Refusals,
    RequestKey,
    histogram,
)
from simulator.rows.metrics import BINS
from simulator.rows.parquet import refuse_missing
from simulator.views.text import Axis, count_text

if TYPE_CHECKING:
    import altair as alt
    import pandas as pd

    from simulator.rows import Result

ADMITTED: Final = "#b9c5d8"
REFUSED: Final = "#3f4a5f"
CLAUSES: Final = (
    "#d55e00",
    "#0072b2",
    "#e69f00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#8a7500",
    "#5d3a9b",
    "#7f3b08",
    "#66708a",
)
"""One colour per clause, in the order of the table; with more clauses the colours repeat."""


COLOURS: Final[dict[str, str]] = {
    "admitted": ADMITTED,
    "turned": REFUSED,
    "again": REFUSED,
    "lost": "#bcc0c7",
    "goodput": CLAUSES[1],
    **{f"c{place}": colour for place, colour in enumerate(CLAUSES)},
}
"""The style sheet's classes, as a notebook has them on white paper."""
_BINS: Final = 60
_WIDTH: Final = 640
_ROWS: Final = 24
_MARKS: Final = 4_000
_SECOND_NS: Final = 1_000_000_000
_METHODS: Final = {"parties": "shut_out"}
"""Part of what is found → the plot of it, where they differ in name."""


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of stacked bars. css: its class in the style sheet. counts: a bin each."""

    name: str
    css: str
    counts: Numbers


@dataclass(frozen=True, slots=True)
class StackedBars:
    """Stacked bars over time, the first series at the bottom.

    title: what a screen reader says. unit: what is counted. legend: what the colours tell.
    """

    title: str
    unit: str
    legend: str
    bin_ns: int
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class GanttRows:
    """Who was locked out when: a row a key and address under a clause, the longest first."""

    title: str
    rows: Sequence[tuple[RequestKey, Refusals]]


@dataclass(frozen=True, slots=True)
class Histogram:
    """A histogram of times. steps: (from_ns, to_ns, count) on a logarithmic scale."""

    title: str
    note: str
    unit: str
    counts: Numbers

    @property
    def steps(self) -> list[tuple[int, int, int]]:
        """The bars that hold something, and all between."""
        return histogram(self.counts)


class PlottedEstimate(NamedTuple):
    """A value at a place, a number or a name; its interval's ends are NaN where none is known.

    series: tells its colour. kind: tells its form. text: all its numbers, in words.
    """

    at: float | str
    value: float
    low: float
    high: float
    series: str
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Estimates:
    """Shares in their intervals, over a logarithmic scale of numbers or in rows by name.

    at, value, series, kind: the titles of an estimate's parts; `at` is empty where places are
    names, `kind` where the colour tells as much. colours: series → class.
    """

    title: str
    at: str
    value: str
    series: str
    kind: str
    colours: Mapping[str, str]
    rows: Sequence[PlottedEstimate]


def clause_colours(summary: Mapping[str, Any], findings: Findings) -> dict[str, str]:
    """Return a colour class for each clause that refused, those that refused most first."""
    order = [line["clause"] for line in summary["clauses"]]
    order += sorted(clause for clause in findings.refused if clause not in order)
    bound = [clause for clause in order if clause in findings.refused]
    return {clause: f"c{place % len(CLAUSES)}" for place, clause in enumerate(bound)}


def timeline(findings: Findings, colours: Mapping[str, str]) -> StackedBars:
    """Return requests over time: admitted, or refused by a clause."""
    refused = [Series(clause, css, findings.refused[clause]) for clause, css in colours.items()]
    total = sum((series.counts for series in refused), np.zeros_like(findings.offered))
    title = (
        f"Requests over time: {count_text(findings.rows)} offered,"
        f" {count_text(int(total.sum()))} refused; clauses that refused:"
        f" {', '.join(colours) or 'none'}"
    )
    passed = Series("admitted", "admitted", findings.offered - total)
    legend = "admitted, or refused by"
    return StackedBars(title, "requests", legend, findings.bin_ns, (passed, *refused))


def attempts(findings: Findings) -> StackedBars:
    """Return first attempts below, retries above them, over time."""
    firsts, offered = _coarse(findings.firsts), _coarse(findings.offered)
    again = offered - firsts
    title = (
        f"Attempts over time: {count_text(int(firsts.sum()))} first attempts,"
        f" {count_text(int(again.sum()))} retries"
    )
    series = (Series("first attempts", "admitted", firsts), Series("retries", "again", again))
    return StackedBars(title, "attempts", "attempts", _width_ns(findings), series)


def goodput(findings: Findings) -> StackedBars:
    """Return attempts that were admitted and not answered with an error, and the others above."""
    good, offered = _coarse(findings.good), _coarse(findings.offered)
    title = (
        f"Goodput over time: {count_text(int(good.sum()))} of {count_text(int(offered.sum()))}"
        " attempts were admitted and not answered with an error"
    )
    series = (Series("good", "goodput", good), Series("lost", "lost", offered - good))
    return StackedBars(title, "attempts", "attempts", _width_ns(findings), series)


RATES: Final[Mapping[str, Callable[[Findings], StackedBars]]] = {
    "attempts": attempts,
    "goodput": goodput,
}
"""Charts of attempts over time, by the name that the page's template has them under."""


def time_rows(findings: Findings, axis: Axis) -> list[dict[str, Any]]:
    """Return attempts and goodput as a table, a row a stretch of time in which somebody asked."""
    (firsts, again), (good, lost) = (
        [series.counts for series in chart(findings).series] for chart in (attempts, goodput)
    )
    return [
        {
            "from": axis.instant(int(place) * _width_ns(findings)),
            "firsts": int(firsts[place]),
            "again": int(again[place]),
            "good": int(good[place]),
            "lost": int(lost[place]),
        }
        for place in np.flatnonzero(good + lost)
    ]


def shut_out(findings: Findings, most: int) -> GanttRows:
    """Return who was locked out longest, and when."""
    everybody = findings.shut_out
    ordered = sorted(
        everybody.items(),
        key=lambda item: (-item[1].shut_ns, item[1].first_ns, item[0].clause, item[0].ip),
    )[:most]
    title = f"When whom was locked out: {len(ordered)} of {len(everybody)} rows, the longest first"
    return GanttRows(title, ordered)


def joined(
    intervals: Iterable[tuple[int, int]], *, gap_ns: float, least_ns: float = 0.0
) -> list[tuple[float, float]]:
    """Return intervals as bars of a least length, those with a gap that cannot be seen as one."""
    bars: list[tuple[float, float]] = []
    for from_ns, until_ns in intervals:
        to_ns = max(from_ns + least_ns, until_ns)
        if bars and from_ns <= bars[-1][1] + gap_ns:
            bars[-1] = (bars[-1][0], max(to_ns, bars[-1][1]))
        else:
            bars.append((from_ns, to_ns))
    return bars


def waits(findings: Findings) -> Histogram:
    """Return how long the refused had to wait."""
    note = "From a refused request to the instant at which it would have been admitted"
    return Histogram("How long the refused had to wait", note, "wait, s", findings.waits)


def latencies(findings: Findings) -> Histogram:
    """Return the latencies of admitted attempts, from arrival to answer."""
    note = "Of the requests that were admitted, delays included"
    return Histogram("From arrival to answer", note, "latency, s", findings.latencies)


def _width_ns(findings: Findings) -> int:
    return max(1, -(-len(findings.offered) // _BINS)) * findings.bin_ns


def _coarse(counts: Numbers) -> Numbers:
    """Return at most `_BINS` sums of neighbouring bins."""
    step = max(1, -(-len(counts) // _BINS))
    sums: Numbers = np.add.reduceat(counts, range(0, len(counts), step))
    return sums


class Plots:
    """The plots of one result; each method returns an Altair chart.

    Times are UTC in a replay at the log's own pace, else seconds from the run's start. Raises
    `InputError` where the log does not keep the columns that a plot is made of.
    """

    def __init__(self, result: Result) -> None:
        self._summary = result.summary
        self._result = result
        self._in_log_time = Axis.of(self._summary).start_ns is not None
        self._ends = ["from:T", "to:T"] if self._in_log_time else ["from:Q", "to:Q"]

    @takes(bins=whole(1))
    def timeline(self, bins: int = BINS) -> alt.Chart:
        """Requests over time, stacked by result: admitted, or refused by a clause."""
        findings = self._findings("timeline", bins)
        return self._stacked(timeline(findings, clause_colours(self._summary, findings)))

    @takes(bins=whole(1))
    def attempts(self, bins: int = _BINS) -> alt.Chart:
        """First attempts and retries over time."""
        return self._stacked(attempts(self._findings("attempts", min(bins, _BINS))))

    @takes(bins=whole(1))
    def goodput(self, bins: int = _BINS) -> alt.Chart:
        """Attempts that were admitted and not answered with an error, and the others, over time."""
        return self._stacked(goodput(self._findings("attempts", min(bins, _BINS))))

    @takes(rows=whole(1))
    def shut_out(self, rows: int = _ROWS) -> alt.Chart:
        """Who was locked out, when and for how long: the parties that were longest, as bars."""
        import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

        findings = self._findings("parties")
        spans = shut_out(findings, rows)
        bars = [
            (f"{who.ip} {who.key or 'no key'}", who.clause, from_ns, to_ns)
            for (who, _), intervals in zip(spans.rows, _few(spans, findings.end_ns), strict=True)
            for from_ns, to_ns in intervals
        ]
        frame = pd.DataFrame(bars, columns=["who", "clause", "from", "to"])
        for end in ("from", "to"):
            frame[end] = self._times(pd.Index(frame[end], dtype="int64"))
        colours = clause_colours(self._summary, findings)
        x, names = self._time_axis("from"), "address and key"
        chart = rows_of_bars(frame, spans.title, x, colours, "refused by", names)
        return chart.encode(tooltip=["who:N", "clause:N", *self._ends])

    def clauses(self) -> alt.Chart:
        """Requests that each clause was offered: admitted, and refused by it."""
        import altair as alt  # noqa: PLC0415 # reason: loads where drawn
        import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

        lines = [line for line in self._summary["clauses"] if line["offered"]]
        rows = [
            {"clause": line["clause"], "outcome": outcome, "requests": count}
            for line in lines
            for outcome, count in (
                ("refused by it", line["refused"]),
                ("others", line["offered"] - line["refused"]),
            )
        ]
        frame = pd.DataFrame(rows, columns=["clause", "outcome", "requests"])
        chart: alt.Chart = (
            alt.Chart(frame, width=_WIDTH)
            .mark_bar()
            .encode(
                y=alt.Y("clause:N", sort=[line["clause"] for line in lines], title=None),
                x=alt.X("requests:Q", title="requests offered"),
                color=alt.Color(
                    "outcome:N",
                    title=None,
                    scale=alt.Scale(
                        domain=["refused by it", "others"], range=[CLAUSES[0], ADMITTED]
                    ),
                ),
                tooltip=["clause:N", "outcome:N", "requests:Q"],
            )
        )
        return chart

    def waits(self) -> alt.Chart:
        """How long the refused had to wait, on a logarithmic scale of seconds."""
        return self._histogram(waits(self._findings("waits")))

    def latencies(self) -> alt.Chart:
        """From arrival to answer, of what was admitted, on a logarithmic scale of seconds."""
        return self._histogram(latencies(self._findings("latencies")))

    def _stacked(self, stack: StackedBars) -> alt.Chart:
        """Return stacked bars over time."""
        import altair as alt  # noqa: PLC0415 # reason: loads where drawn
        import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

        frame = pd.DataFrame({series.name: series.counts for series in stack.series})
        frame["from"] = self._times(stack.bin_ns * pd.RangeIndex(len(frame)))
        frame["to"] = self._times(stack.bin_ns * pd.RangeIndex(1, len(frame) + 1))
        rows = frame.melt(id_vars=["from", "to"], var_name="outcome", value_name=stack.unit)
        rows = rows[rows[stack.unit] > 0]
        rows["top"] = rows.groupby("from", sort=False)[stack.unit].cumsum()
        rows["bottom"] = rows["top"] - rows[stack.unit]
        colours = {series.name: series.css for series in stack.series}
        chart: alt.Chart = (
            alt.Chart(rows, width=_WIDTH, height=220, description=stack.title)
            .mark_rect()
            .encode(
                x=self._time_axis("from"),
                x2="to",
                y=alt.Y("bottom:Q", title=f"{stack.unit} in {stack.bin_ns / _SECOND_NS:g} s"),
                y2="top",
                color=_colour("outcome", colours, stack.legend),
                tooltip=["outcome:N", f"{stack.unit}:Q", *self._ends],
            )
        )
        return chart

    @staticmethod
    def _histogram(histogram: Histogram) -> alt.Chart:
        """Return a distribution on a logarithmic scale, zeros left out."""
        import altair as alt  # noqa: PLC0415 # reason: loads where drawn
        import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

        rows = [
            {"from": low / _SECOND_NS, "to": high / _SECOND_NS, "requests": count}
            for low, high, count in histogram.steps
            if low > 0
        ]
        frame = pd.DataFrame(rows, columns=["from", "to", "requests"], dtype="float64")
        chart: alt.Chart = (
            alt.Chart(frame, width=_WIDTH, height=200, description=histogram.title)
            .mark_rect()
            .encode(
                x=alt.X("from:Q", title=histogram.unit, scale=alt.Scale(type="log")),
                x2="to",
                y=alt.Y("requests:Q", title="requests"),
                y2=alt.Y2Datum(0),
                tooltip=["from:Q", "to:Q", "requests:Q"],
            )
        )
        return chart

    def _findings(self, part: str, bins: int = BINS) -> Findings:
        if (columns := self._summary.get("columns")) is not None:
            timed = ("t_ns",) if self._summary["warm_up_ns"] else ()
            refuse_missing(f"plots.{_METHODS.get(part, part)}", (*PARTS[part], *timed), columns)
        return self._result.findings(bins)

    def _times(self, from_start_ns: pd.Index) -> Any:  # noqa: ANN401 # reason: instants or seconds
        import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

        if self._in_log_time:
            return pd.to_datetime(from_start_ns + self._summary["start_time_ns"], utc=True)
        return from_start_ns / _SECOND_NS

    def _time_axis(self, name: str) -> alt.X:
        import altair as alt  # noqa: PLC0415 # reason: loads where drawn

        if self._in_log_time:
            return alt.X(f"{name}:T", title="UTC", scale=alt.Scale(type="utc"))
        return alt.X(f"{name}:Q", title="seconds from the start")


def rows_of_bars(
    frame: pd.DataFrame,
    title: str,
    x: alt.X,
    colours: Mapping[str, str],
    legend: str,
    names: str | None = None,
) -> alt.Chart:
    """Return bars from `from` to `to` in rows by name; the columns before say name and colour."""
    import altair as alt  # noqa: PLC0415 # reason: loads where drawn

    name, what, *_ = frame.columns
    order = list(dict.fromkeys(frame[name]))
    y = alt.Y(f"{name}:N", sort=order, title=names, axis=alt.Axis(labelLimit=260))
    chart = alt.Chart(frame, width=_WIDTH, description=title).mark_bar()
    bars: alt.Chart = chart.encode(x=x, x2="to", y=y, color=_colour(what, colours, legend))
    return bars


def estimates(chart: Estimates) -> alt.LayerChart | alt.FacetChart:
    """Return values in their intervals; in rows where their places are names."""
    import altair as alt  # noqa: PLC0415 # reason: loads where drawn
    import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

    frame = pd.DataFrame(chart.rows, columns=PlottedEstimate._fields)
    base = alt.Chart(width=_WIDTH, description=chart.title).encode(
        color=_colour("series", chart.colours, chart.series), tooltip=["text:N"]
    )
    ends: dict[str, Any]
    percent = alt.Axis(labelExpr="format(100 * datum.value, '~g') + ' %'")
    if chart.at:
        places = alt.Scale(type="log", nice=False, padding=12)
        base = base.encode(x=alt.X("at:Q", title=chart.at, scale=places))
        ends = {"y": alt.Y("low:Q", title=chart.value, axis=percent), "y2": "high:Q"}
        value: dict[str, Any] = {"y": alt.Y("value:Q", title=chart.value, axis=percent)}
    else:
        base = base.encode(y=alt.Y("at:N", sort=list(frame["at"]), title=None))
        ends = {"x": alt.X("low:Q", title=chart.value, axis=percent), "x2": "high:Q"}
        value = {"x": "value:Q"}
    intervals = base.mark_rule(strokeWidth=5, opacity=0.4).encode(**ends)
    legend = alt.Legend(title=chart.kind) if chart.kind else None
    kinds = alt.Shape("kind:N", legend=legend, sort=list(chart.colours))
    values = base.mark_point(size=50, filled=True).encode(shape=kinds, **value)
    known = frame[frame["low"].notna()]
    layers = [intervals.properties(data=known), values.properties(data=frame)]
    if chart.at:
        # What was decided counts for more than the few runs of a coarse search at the same place.
        means = frame.sort_values("low", na_position="last").drop_duplicates(["at", "series"])
        line = base.mark_line(strokeWidth=1).encode(**value)
        layers.insert(0, line.properties(data=means))
    return alt.layer(*layers)


def band(
    description: str,
    unit: str,
    bin_s: float,
    counts: Sequence[float],
    low: Sequence[float],
    high: Sequence[float],
) -> alt.LayerChart | alt.FacetChart:
    """Return counts as a line over time, within the ends between which they are expected."""
    import altair as alt  # noqa: PLC0415 # reason: loads where drawn
    import pandas as pd  # noqa: PLC0415 # reason: loads where drawn

    seconds = [bin_s * (place + 0.5) for place in range(len(counts))]
    frame = pd.DataFrame({"seconds": seconds, "log": counts, "low": low, "high": high})
    base = alt.Chart(frame, width=_WIDTH, height=220, description=description).encode(
        x=alt.X("seconds:Q", title="seconds from the start")
    )
    title = f"{unit} in {bin_s:.3g} s"
    expected = base.mark_area(opacity=0.35, color=CLAUSES[1])
    counted = base.mark_line(color=REFUSED)
    return alt.layer(
        expected.encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        counted.encode(y="log:Q", tooltip=["seconds", "log"]),
    )


def _colour(name: str, colours: Mapping[str, str], title: str) -> alt.Color:
    import altair as alt  # noqa: PLC0415 # reason: loads where drawn

    colour_range = [COLOURS.get(css, css) for css in colours.values()]
    return alt.Color(
        f"{name}:N", title=title, scale=alt.Scale(domain=list(colours), range=colour_range)
    )


def _few(spans: GanttRows, end_ns: int) -> list[list[tuple[float, float]]]:
    """Return the bars of each row, joined more and more where there are too many."""
    gap_ns = end_ns // (2 * _WIDTH)
    while True:
        intervals = [joined(refusals.intervals, gap_ns=gap_ns) for _, refusals in spans.rows]
        if sum(map(len, intervals)) <= _MARKS:
            return intervals
        gap_ns = 2 * gap_ns + 1
