"""Plots of a result for a notebook, as Altair charts that can be changed and combined.

Everything is counted into bins first, so a chart holds at most a few thousand marks however long
the run was. The report's own pictures are drawn without Altair (`simulator.views._charts`): they
are smaller and follow the page's light and dark.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

import altair as alt
import pandas as pd
import pyarrow as pa

from simulator.arguments import takes, whole
from simulator.rows.parquet import refuse_missing
from simulator.views._charts import ADMITTED, CLAUSES
from simulator.views._findings import PARTS, Findings, gather, histogram

__all__ = ["Plots"]

_WIDTH: Final = 640
_ROWS: Final = 24
_MARKS: Final = 4_000
_ADMITTED: Final = "let in"
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
        replayed = self._summary.get("replay")
        self._in_log_time = replayed is not None and replayed["speed"] == "1"
        self._ends = ["from:T", "to:T"] if self._in_log_time else ["from:Q", "to:Q"]

    @takes(bins=whole(1))
    def timeline(self, bins: int = 180) -> alt.Chart:
        """Requests over time, stacked by result: admitted, or refused by a clause."""
        found = self._findings("timeline", bins)
        passed = found.offered.copy()
        series = {}
        for clause in self._clauses(found):
            series[clause] = found.refused[clause]
            passed = passed - found.refused[clause]
        frame = pd.DataFrame({_ADMITTED: passed, **series})
        frame["from"] = self._times(found.bin_ns * pd.RangeIndex(len(frame)))
        frame["to"] = self._times(found.bin_ns * pd.RangeIndex(1, len(frame) + 1))
        rows = frame.melt(id_vars=["from", "to"], var_name="outcome", value_name="requests")
        rows = rows[rows["requests"] > 0]
        rows["top"] = rows.groupby("from", sort=False)["requests"].cumsum()
        rows["bottom"] = rows["top"] - rows["requests"]
        order = [_ADMITTED, *series]
        counts = {name: int(frame[name].sum()) for name in order}
        said = ", ".join(
            f"{count:,} {name}" if name == _ADMITTED else f"{count:,} refused by {name}"
            for name, count in counts.items()
        )
        words = f"Requests over time in {len(frame)} bins, stacked by result: {said}."
        chart: alt.Chart = (
            alt.Chart(rows, width=_WIDTH, height=220, description=words)
            .mark_rect()
            .encode(
                x=self._time_axis("from"),
                x2="to",
                y=alt.Y("bottom:Q", title=f"requests in {found.bin_ns / _SECOND_NS:g} s"),
                y2="top",
                color=self._colour("outcome", order, "let in, or refused by"),
                tooltip=["outcome:N", "requests:Q", *self._ends],
            )
        )
        return chart

    @takes(rows=whole(1))
    def shut_out(self, rows: int = _ROWS) -> alt.Chart:
        """Who was shut out, when and for how long: the parties that were longest, as bars."""
        found = self._findings("parties")
        longest = sorted(found.shut_out.items(), key=lambda item: (-item[1].shut_ns, item[0].ip))
        joined = _joined([refusals.intervals for _, refusals in longest[:rows]], found.end_ns)
        bars: list[dict[str, Any]] = [
            {
                "who": f"{who.ip} {who.key or 'no key'}",
                "clause": who.clause,
                "from_ns": from_ns,
                "to_ns": to_ns,
            }
            for (who, _), intervals in zip(longest, joined, strict=False)
            for from_ns, to_ns in intervals
        ]
        frame = pd.DataFrame(bars, columns=["who", "clause", "from_ns", "to_ns"])
        frame["from"] = self._times(pd.Index(frame.pop("from_ns"), dtype="int64"))
        frame["to"] = self._times(pd.Index(frame.pop("to_ns"), dtype="int64"))
        names = list(dict.fromkeys(frame["who"]))
        words = f"Who was shut out, and when: {len(names)} of {len(longest)}, the longest first."
        chart: alt.Chart = (
            alt.Chart(frame, width=_WIDTH, description=words)
            .mark_bar()
            .encode(
                x=self._time_axis("from"),
                x2="to",
                y=alt.Y("who:N", sort=names, title="address and key"),
                color=self._colour("clause", self._clauses(found), "refused by"),
                tooltip=["who:N", "clause:N", *self._ends],
            )
        )
        return chart

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
        return self._spread(self._findings("waits").waits, "wait, s")

    def latencies(self) -> alt.Chart:
        """From arrival to answer, of what was let in, on a logarithmic scale of seconds."""
        return self._spread(self._findings("latencies").latencies, "latency, s")

    def _spread(self, counts: Any, title: str) -> alt.Chart:  # noqa: ANN401 # reason: an array of counts
        steps = [step for step in histogram(counts) if step[0] > 0]
        rows = [
            {"from": low / _SECOND_NS, "to": high / _SECOND_NS, "requests": count}
            for low, high, count in steps
        ]
        frame = pd.DataFrame(rows, columns=["from", "to", "requests"], dtype="float64")
        chart: alt.Chart = (
            alt.Chart(frame, width=_WIDTH, height=200)
            .mark_rect()
            .encode(
                x=alt.X("from:Q", title=title, scale=alt.Scale(type="log")),
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

    def _clauses(self, found: Findings) -> list[str]:
        known = [line["clause"] for line in self._summary["clauses"]]
        return [clause for clause in known if clause in found.refused]

    def _times(self, from_start_ns: pd.Index) -> Any:  # noqa: ANN401 # reason: instants or seconds
        if self._in_log_time:
            return pd.to_datetime(from_start_ns + self._summary["start_time_ns"], utc=True)
        return from_start_ns / _SECOND_NS

    def _time_axis(self, name: str) -> alt.X:
        if self._in_log_time:
            return alt.X(f"{name}:T", title="UTC", scale=alt.Scale(type="utc"))
        return alt.X(f"{name}:Q", title="seconds from the start")

    @staticmethod
    def _colour(name: str, order: list[str], title: str) -> alt.Color:
        named = [item for item in order if item != _ADMITTED]
        colours = [CLAUSES[place % len(CLAUSES)] for place in range(len(named))]
        if _ADMITTED in order:
            colours = [ADMITTED, *colours]
        return alt.Color(f"{name}:N", title=title, scale=alt.Scale(domain=order, range=colours))


def _joined(rows: list[list[tuple[int, int]]], end_ns: int) -> list[list[tuple[int, int]]]:
    """Join intervals with an invisible gap, and wider ones when there are too many."""
    gap_ns = end_ns // (2 * _WIDTH)
    while True:
        found = []
        for row in rows:
            kept: list[tuple[int, int]] = []
            for from_ns, to_ns in row:
                if kept and from_ns - kept[-1][1] <= gap_ns:
                    kept[-1] = (kept[-1][0], to_ns)
                else:
                    kept.append((from_ns, to_ns))
            found.append(kept)
        if sum(map(len, found)) <= _MARKS:
            return found
        gap_ns = 2 * gap_ns + 1
