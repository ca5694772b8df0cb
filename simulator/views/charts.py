"""The charts of a run, each defined once, for the report's page and for notebooks.

A definition takes findings that are counted already and returns plain data: stacked bars over time
(`Stacked`), spans of time in rows (`Spans`), a distribution (`Histogram`), values in their
intervals (`Estimates`) or counts in a band (`Band`). A page draws it as SVG (`simulator.views.svg`)
in the colours of its style sheet; for notebooks it becomes an Altair chart
(`simulator.views.plots`). A chart has a bounded number of marks however long the run was.

The page does without Altair. That takes 2 s to load and 140 kB for a timeline, where the whole page
takes 0.1 s and 200 kB, and its pictures do not follow light and dark.

Clauses have the colours of Okabe and Ito ("Color universal design", 2008), which people tell apart
whatever their colour vision, and after them some darker ones. What is let in is pale and what is
refused dark, so those two differ in lightness alone. `page/report.css` has the same colours, and
lighter ones for dark paper; a test holds the two together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from simulator.views.findings import Findings, Party, Refusals, histogram
from simulator.views.text import Axis, count_text

if TYPE_CHECKING:
    pass

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
"""One colour per clause, in table order; with more clauses the colours repeat."""


COLOURS: Final[dict[str, str]] = {
    "admitted": ADMITTED,
    "turned": REFUSED,
    "again": REFUSED,
    "lost": "#bcc0c7",
    "goodput": CLAUSES[1],
    **{f"c{place}": colour for place, colour in enumerate(CLAUSES)},
}
"""The style sheet's classes, as a notebook has them on white paper."""
BINS: Final = 60

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Series:
    """One colour of stacked bars. css: its class in the style sheet. counts: a bin each."""

    name: str
    css: str
    counts: Numbers


@dataclass(frozen=True, slots=True)
class Stacked:
    """Stacked bars over time, the first series at the bottom.

    title: what a screen reader says. unit: what is counted. legend: what the colours tell.
    """

    title: str
    unit: str
    legend: str
    bin_ns: int
    series: Sequence[Series]


@dataclass(frozen=True, slots=True)
class Spans:
    """Who was shut out when: a row a key and address under a clause, the longest first."""

    title: str
    rows: Sequence[tuple[Party, Refusals]]


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


class Estimate(NamedTuple):
    """A value at a place, a number or a name; its interval's ends are NaN where none is known.

    series: tells its colour. kind: tells its form. says: all its numbers, in words.
    """

    at: float | str
    value: float
    low: float
    high: float
    series: str
    kind: str
    says: str


@dataclass(frozen=True, slots=True)
class Estimates:
    """Values in their intervals, over a logarithmic scale of numbers or in rows by name.

    at, value, series, kind: the titles of an estimate's parts; `at` is empty where places are
    names, `kind` where the colour tells as much. colours: series → class.
    """

    title: str
    at: str
    value: str
    series: str
    kind: str
    colours: Mapping[str, str]
    rows: Sequence[Estimate]


@dataclass(frozen=True, slots=True)
class Band:
    """Counts over time, a bin each, and the ends between which they are expected."""

    title: str
    unit: str
    bin_s: float
    counts: Sequence[float]
    low: Sequence[float]
    high: Sequence[float]


def clause_colours(summary: Mapping[str, Any], findings: Findings) -> dict[str, str]:
    """Return a colour class for each clause that refused, in table order."""
    order = [line["clause"] for line in summary["clauses"]]
    order += sorted(clause for clause in findings.refused if clause not in order)
    bound = [clause for clause in order if clause in findings.refused]
    return {clause: f"c{place % len(CLAUSES)}" for place, clause in enumerate(bound)}


def timeline(findings: Findings, colours: Mapping[str, str]) -> Stacked:
    """Return requests over time: let in, or refused by a clause."""
    refused = [Series(clause, css, findings.refused[clause]) for clause, css in colours.items()]
    total = sum((each.counts for each in refused), np.zeros_like(findings.offered))
    title = (
        f"Requests over time: {count_text(findings.rows)} offered,"
        f" {count_text(int(total.sum()))} refused; clauses that refused:"
        f" {', '.join(colours) or 'none'}"
    )
    passed = Series("let in", "admitted", findings.offered - total)
    legend = "let in, or refused by"
    return Stacked(title, "requests", legend, findings.bin_ns, (passed, *refused))


def attempts(findings: Findings) -> Stacked:
    """Return first attempts below, retries above them, over time."""
    firsts, offered = _coarse(findings.firsts), _coarse(findings.offered)
    again = offered - firsts
    title = (
        f"Attempts over time: {count_text(int(firsts.sum()))} first attempts,"
        f" {count_text(int(again.sum()))} retries"
    )
    series = (Series("first attempts", "admitted", firsts), Series("retries", "again", again))
    return Stacked(title, "attempts", "attempts", _width_ns(findings), series)


def goodput(findings: Findings) -> Stacked:
    """Return attempts that were let in and not answered with an error, and the others above."""
    good, offered = _coarse(findings.good), _coarse(findings.offered)
    title = (
        f"Goodput over time: {count_text(int(good.sum()))} of {count_text(int(offered.sum()))}"
        " attempts were let in and not answered with an error"
    )
    series = (Series("good", "goodput", good), Series("lost", "lost", offered - good))
    return Stacked(title, "attempts", "attempts", _width_ns(findings), series)


RATES: Final[Mapping[str, Callable[[Findings], Stacked]]] = {
    "attempts": attempts,
    "goodput": goodput,
}
"""Charts of attempts over time, by the name that the page's template has them under."""


def time_rows(findings: Findings, axis: Axis) -> list[dict[str, Any]]:
    """Return attempts and goodput as a table, a row a stretch of time in which somebody asked."""
    (firsts, again), (good, lost) = (
        [each.counts for each in chart(findings).series] for chart in (attempts, goodput)
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


def shut_out(findings: Findings, most: int) -> Spans:
    """Return who was shut out longest, and when."""
    everybody = findings.shut_out
    ordered = sorted(
        everybody.items(),
        key=lambda item: (-item[1].shut_ns, item[1].first_ns, item[0].clause, item[0].ip),
    )[:most]
    title = f"When whom was shut out: {len(ordered)} of {len(everybody)} rows, the longest first"
    return Spans(title, ordered)


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
    note = "From a refused request to the instant at which it would have been let in"
    return Histogram("How long the refused had to wait", note, "wait, s", findings.waits)


def latencies(findings: Findings) -> Histogram:
    """Return the latencies of admitted attempts, from arrival to answer."""
    note = "Of the requests that were let in, delays included"
    return Histogram("From arrival to answer", note, "latency, s", findings.latencies)


def _width_ns(findings: Findings) -> int:
    return max(1, -(-len(findings.offered) // BINS)) * findings.bin_ns


def _coarse(counts: Numbers) -> Numbers:
    """Return at most `BINS` sums of neighbouring bins."""
    step = max(1, -(-len(counts) // BINS))
    found: Numbers = np.add.reduceat(counts, range(0, len(counts), step))
    return found
