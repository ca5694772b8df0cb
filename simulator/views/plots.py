"""The charts of `simulator.views.charts` as Altair charts, for notebooks.

They can be changed and combined, and hold their data. Altair takes 2 s to load, so this module
loads where a chart is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import altair as alt
import pandas as pd
import pyarrow as pa

from simulator.arguments import takes, whole
from simulator.rows.parquet import refuse_missing
from simulator.views import charts
from simulator.views.charts import Band, Estimate, Estimates, Histogram, Spans, Stacked
from simulator.views.findings import PARTS, Findings, gather
from simulator.views.text import Axis

_WIDTH: Final = 640
_ROWS: Final = 24
_MARKS: Final = 4_000
_SECOND_NS: Final = 1_000_000_000
_METHODS: Final = {"parties": "shut_out"}
"""Part of what is found → the plot of it, where they differ in name."""


class PlottedResult(Protocol):
    """What a plot needs of a result: `simulator.Result` is one."""

    @property
    def summary(self) -> Mapping[str, Any]:
        """What `summary.json` holds."""
        ...

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the attempt rows."""
        ...


class Plots:
    """The plots of one result; each method returns an Altair chart.

    Times are UTC in a replay at the log's own pace, else seconds from the run's start. Raises
    `InputError` where the log does not keep the columns that a plot is made of.
    """

    def __init__(self, result: PlottedResult) -> None:
        self._summary = result.summary
        self._result = result
        self._known: dict[int, Findings] = {}
        self._in_log_time = Axis.of(self._summary).start_ns is not None
        self._ends = ["from:T", "to:T"] if self._in_log_time else ["from:Q", "to:Q"]

    @takes(bins=whole(1))
    def timeline(self, bins: int = 180) -> alt.Chart:
        """Requests over time, stacked by result: admitted, or refused by a clause."""
        found = self._findings("timeline", bins)
        return self._stacked(charts.timeline(found, charts.clause_colours(self._summary, found)))

    @takes(bins=whole(1))
    def attempts(self, bins: int = charts.BINS) -> alt.Chart:
        """First attempts and retries over time."""
        return self._stacked(charts.attempts(self._findings("attempts", min(bins, charts.BINS))))

    @takes(bins=whole(1))
    def goodput(self, bins: int = charts.BINS) -> alt.Chart:
        """Attempts that were let in and not answered with an error, and the others, over time."""
        return self._stacked(charts.goodput(self._findings("attempts", min(bins, charts.BINS))))

    @takes(rows=whole(1))
    def shut_out(self, rows: int = _ROWS) -> alt.Chart:
        """Who was shut out, when and for how long: the parties that were longest, as bars."""
        found = self._findings("parties")
        spans = charts.shut_out(found, rows)
        bars = [
            (f"{who.ip} {who.key or 'no key'}", who.clause, from_ns, to_ns)
            for (who, _), intervals in zip(spans.rows, _few(spans, found.end_ns), strict=True)
            for from_ns, to_ns in intervals
        ]
        frame = pd.DataFrame(bars, columns=["who", "clause", "from", "to"])
        for end in ("from", "to"):
            frame[end] = self._times(pd.Index(frame[end], dtype="int64"))
        colours = charts.clause_colours(self._summary, found)
        x, names = self._time_axis("from"), "address and key"
        chart = rows_of_bars(frame, spans.title, x, colours, "refused by", names)
        return chart.encode(tooltip=["who:N", "clause:N", *self._ends])

    def clauses(self) -> alt.Chart:
        """Requests that each clause was offered: let in, and refused by it."""
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
        colours = [charts.CLAUSES[0], charts.ADMITTED]
        chart: alt.Chart = (
            alt.Chart(frame, width=_WIDTH)
            .mark_bar()
            .encode(
                y=alt.Y("clause:N", sort=[line["clause"] for line in lines], title=None),
                x=alt.X("requests:Q", title="requests offered"),
                color=alt.Color(
                    "outcome:N",
                    title=None,
                    scale=alt.Scale(domain=["refused by it", "others"], range=colours),
                ),
                tooltip=["clause:N", "outcome:N", "requests:Q"],
            )
        )
        return chart

    def waits(self) -> alt.Chart:
        """How long the refused had to wait, on a logarithmic scale of seconds."""
        return self._histogram(charts.waits(self._findings("waits")))

    def latencies(self) -> alt.Chart:
        """From arrival to answer, of what was let in, on a logarithmic scale of seconds."""
        return self._histogram(charts.latencies(self._findings("latencies")))

    def _stacked(self, stack: Stacked) -> alt.Chart:
        """Return stacked bars over time."""
        frame = pd.DataFrame({each.name: each.counts for each in stack.series})
        frame["from"] = self._times(stack.bin_ns * pd.RangeIndex(len(frame)))
        frame["to"] = self._times(stack.bin_ns * pd.RangeIndex(1, len(frame) + 1))
        rows = frame.melt(id_vars=["from", "to"], var_name="outcome", value_name=stack.unit)
        rows = rows[rows[stack.unit] > 0]
        rows["top"] = rows.groupby("from", sort=False)[stack.unit].cumsum()
        rows["bottom"] = rows["top"] - rows[stack.unit]
        colours = {each.name: each.css for each in stack.series}
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
    def _histogram(found: Histogram) -> alt.Chart:
        """Return a distribution on a logarithmic scale, zeros left out."""
        rows = [
            {"from": low / _SECOND_NS, "to": high / _SECOND_NS, "requests": count}
            for low, high, count in found.steps
            if low > 0
        ]
        frame = pd.DataFrame(rows, columns=["from", "to", "requests"], dtype="float64")
        chart: alt.Chart = (
            alt.Chart(frame, width=_WIDTH, height=200, description=found.title)
            .mark_rect()
            .encode(
                x=alt.X("from:Q", title=found.unit, scale=alt.Scale(type="log")),
                x2="to",
                y=alt.Y("requests:Q", title="requests"),
                y2=alt.Y2Datum(0),
                tooltip=["from:Q", "to:Q", "requests:Q"],
            )
        )
        return chart

    def _findings(self, part: str, bins: int = 1) -> Findings:
        if (kept := self._summary.get("columns")) is not None:
            timed = ("t_ns",) if self._summary["warm_up_ns"] else ()
            refuse_missing(f"plots.{_METHODS.get(part, part)}", (*PARTS[part], *timed), kept)
        if bins not in self._known:
            self._known[bins] = gather(
                self._result.batches(),
                end_ns=self._summary["duration_ns"],
                bins=bins,
                start_ns=self._summary["warm_up_ns"],
            )
        return self._known[bins]

    def _times(self, from_start_ns: pd.Index) -> Any:  # noqa: ANN401 # reason: instants or seconds
        if self._in_log_time:
            return pd.to_datetime(from_start_ns + self._summary["start_time_ns"], utc=True)
        return from_start_ns / _SECOND_NS

    def _time_axis(self, name: str) -> alt.X:
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
    name, what, *_ = frame.columns
    order = list(dict.fromkeys(frame[name]))
    y = alt.Y(f"{name}:N", sort=order, title=names, axis=alt.Axis(labelLimit=260))
    chart = alt.Chart(frame, width=_WIDTH, description=title).mark_bar()
    bars: alt.Chart = chart.encode(x=x, x2="to", y=y, color=_colour(what, colours, legend))
    return bars


def estimates(chart: Estimates) -> alt.LayerChart | alt.FacetChart:
    """Return values in their intervals; in rows where their places are names."""
    frame = pd.DataFrame(chart.rows, columns=Estimate._fields)
    base = alt.Chart(width=_WIDTH, description=chart.title).encode(
        color=_colour("series", chart.colours, chart.series), tooltip=["says:N"]
    )
    ends: dict[str, Any]
    if chart.at:
        base = base.encode(x=alt.X("at:Q", title=chart.at, scale=alt.Scale(type="log")))
        ends = {"y": alt.Y("low:Q", title=chart.value), "y2": "high:Q"}
        value: dict[str, Any] = {"y": alt.Y("value:Q", title=chart.value)}
    else:
        base = base.encode(y=alt.Y("at:N", sort=list(frame["at"]), title=None))
        ends = {"x": alt.X("low:Q", title=chart.value), "x2": "high:Q"}
        value = {"x": "value:Q"}
    intervals = base.mark_rule(strokeWidth=5, opacity=0.4).encode(**ends)
    legend = alt.Legend(title=chart.kind) if chart.kind else None
    kinds = alt.Shape("kind:N", legend=legend, sort=list(chart.colours))
    values = base.mark_point(size=50, filled=True).encode(shape=kinds, **value)
    known = frame[frame["low"].notna()]
    return alt.layer(intervals.properties(data=known), values.properties(data=frame))


def band(chart: Band) -> alt.LayerChart | alt.FacetChart:
    """Return counts as a line over time, within the band in which they are expected."""
    count = len(chart.counts)
    seconds = [chart.bin_s * (place + 0.5) for place in range(count)]
    parts = {"seconds": seconds, "log": chart.counts, "low": chart.low, "high": chart.high}
    base = alt.Chart(pd.DataFrame(parts), width=_WIDTH, height=220, description=chart.title).encode(
        x=alt.X("seconds:Q", title="seconds from the start")
    )
    title = f"{chart.unit} in {chart.bin_s:.3g} s"
    expected = base.mark_area(opacity=0.35, color=charts.CLAUSES[1])
    counted = base.mark_line(color=charts.REFUSED)
    return alt.layer(
        expected.encode(y=alt.Y("low:Q", title=title), y2="high:Q"),
        counted.encode(y="log:Q", tooltip=["seconds", "log"]),
    )


def _colour(name: str, colours: Mapping[str, str], title: str) -> alt.Color:
    found = [charts.COLOURS.get(css, css) for css in colours.values()]
    return alt.Color(f"{name}:N", title=title, scale=alt.Scale(domain=list(colours), range=found))


def _few(spans: Spans, end_ns: int) -> list[list[tuple[float, float]]]:
    """Return the bars of each row, joined more and more where there are too many."""
    gap_ns = end_ns // (2 * _WIDTH)
    while True:
        found = [charts.joined(refusals.intervals, gap_ns=gap_ns) for _, refusals in spans.rows]
        if sum(map(len, found)) <= _MARKS:
            return found
        gap_ns = 2 * gap_ns + 1
