"""The judge of a fit: the log and the fitted scenario under the same limits, side by side.

The scenario is played several times, each time under a seed of its own and with the paces of its
groups varied by their uncertainty: the error of the estimate and, for a window that was not fitted,
the variation between windows beyond that of the process itself. So the intervals are prediction
intervals: each contains the value of one further log like this with probability 95 %.

A measure of the log outside its interval is listed among the limits of the fit.

Which form of traffic is taken, parametric arrivals or sessions of the log, is judged by what
matters for limits: log and scenario are put through the log's limits and through two other tables,
all rates multiplied by one factor, chosen so that they refuse about 5 % and 20 % of the log's
requests. The parametric form stays where its refused share differs from the log's by at most a
tenth under each table: it is short, and its parameters mean something. Elsewhere the closer form is
taken.
"""

from __future__ import annotations

import dataclasses
import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, TypeAlias

import numpy as np

from engine.files import Include, Rate
from engine.limits import LimitTable
from simulator.options import FitOptions
from simulator.play.replay import replay_arrivals
from simulator.play.simulation import simulate
from simulator.quantiles import student_quantile
from simulator.rows import Result, RunHeader, RunRecorder
from simulator.rows.record import Chunk, Numbers, SubjectTable
from simulator.rows.run_recorder import CounterIndex
from simulator.scenario import Scenario
from simulator.scenario.draws import Arrivals, OnOffArrivals
from simulator.scenario.model import changed
from simulator.study.fit.model import Model
from simulator.study.fit.observed import MOST_ATTEMPTS, Floats, Observed
from simulator.study.fit.series import WIDTHS_S, CountSeries, Hints, SeriesRows
from simulator.study.fit.traffic import Pace, own_dispersion
from simulator.study.replay import enter_parties
from simulator.study.run_size import shorter

_SEED: Final = 20_260_101
_MOST_ROWS: Final = 4_000_000
"""The most attempts of all runs together, unless the smallest number of runs exceeds it."""
_MOST_SESSION_ROWS: Final = 400_000
"""The same where sessions are sampled: a row takes twice as long, 23 µs at 10⁵ rows, not 11, and
the runs of the other form came before."""
_RUNS: Final = (39, 9)
_SHARE_RUNS: Final = 5
_OF_LIMITS: Final = ("refused share", "blocked s", "peak")
"""What matters for limits."""
_ERROR: Final = 0.05
_FREEDOM: Final = 7
_LEAD_NS: Final = 600 * 1_000_000_000
FACTORS: Final = tuple(Fraction(2) ** power for power in (*range(4), *range(-1, -9, -1)))
AIMED_SHARES: Final = (0.05, 0.2)
TOLERANCE: Final = 0.1
"""The relative difference of refused shares up to which a form refuses as the log does."""
NEGLIGIBLE_SHARE: Final = 0.002
"""Refused shares below this are equal to each other."""


@dataclass(frozen=True, slots=True)
class Line:
    """One measure: the log's value, the scenario's value, and its 95 % prediction interval."""

    measure: str
    of: str
    log: float
    fitted: float
    low: float
    high: float

    @property
    def agrees(self) -> bool:
        """Whether the log's value lies within the interval."""
        slack = 0.01 if self.measure == "dispersion" else 1e-9 + 1e-6 * abs(self.log)
        return self.low - slack <= self.log <= self.high + slack

    @property
    def is_like(self) -> bool:
        """Whether the log's value is inside, or differs from the scenario's by a tenth at most."""
        if self.measure == "refused share":
            return self.agrees or difference(self) <= TOLERANCE
        return self.agrees or abs(self.fitted - self.log) <= TOLERANCE * self.log


Measures: TypeAlias = dict[tuple[str, str], float]
"""(Measure, of what) → its value."""


@dataclass(frozen=True, slots=True)
class Under:
    """Log and scenario under the log's limits with every rate multiplied.

    share: the refused share in all. others: those of each clause, how long it blocked, and how full
    the fullest counter of each rule was.
    """

    factor: Fraction
    share: Line
    others: tuple[Line, ...]

    @classmethod
    def of(cls, factor: Fraction, lines: Sequence[Line]) -> Under:
        """Return what of some lines matters for limits."""
        share = next(line for line in lines if (line.measure, line.of) == ("refused share", ""))
        others = (line for line in lines if line is not share and line.measure in _OF_LIMITS)
        return cls(factor, share, tuple(others))

    @property
    def words(self) -> str:
        """The refused share in words."""
        return f"{_rates_text(self.factor)} {_limits_words(self.share)}"

    @property
    def differs(self) -> list[str]:
        """Where the scenario is not like the log, in words."""
        unlike = [line for line in (self.share, *self.others) if not line.is_like]
        return [f"{_rates_text(self.factor)} {_limits_words(line)}" for line in unlike]


def _rates_text(factor: Fraction) -> str:
    """Return a factor of all rates in words.

    >>> _rates_text(Fraction(1, 2)), _rates_text(Fraction(2))
    ('at 1/2 of the rates', 'at 2 times the rates')
    """
    if factor == 1:
        return "under its limits"
    return f"at {factor} {'times' if factor > 1 else 'of'} the rates"


def _limits_words(line: Line) -> str:
    """Return a measure of limits in words.

    >>> _limits_words(Line("refused share", "", 0.19, 0.1, 0.09, 0.11)).replace(chr(0x202F), " ")
    '19.0 % of the log are refused, 10.0 % of the scenario'
    """
    if line.measure == "refused share":
        by = f" by {line.of}" if line.of else ""
        log, fitted = (f"{100 * share:.1f}\u202f%" for share in (line.log, line.fitted))
        return f"{log} of the log are refused{by}, {fitted} of the scenario"
    log, fitted = (f"{value:,.0f}" for value in (line.log, line.fitted))
    if line.measure == "peak":
        return f"the fullest counter of {line.of} holds {log} in the log, {fitted} in the scenario"
    return f"{line.of} blocks for {log} s in the log, for {fitted} s in the scenario"


@dataclass(slots=True)
class Judgement:
    """The comparison of the log with `runs` runs of the scenario."""

    lines: list[Line]
    runs: int
    predicted: bool
    window: range
    slots_log: Numbers
    slots_runs: Floats

    @property
    def lost(self) -> list[str]:
        """The measures of the log that lie outside their intervals, in words."""
        return [_words(line) for line in self.lines if not line.agrees]


def replayed(
    observed: Observed,
    options: FitOptions,
    window: range,
    of_client: Numbers,
    hints: Hints | None = None,
    table: LimitTable | None = None,
) -> tuple[Measures, CountSeries]:
    """Put a window of the log through the limits; return its measures and its series.

    Requests shortly before the window are played too, so that its counters do not start empty.
    window: instants since the start of the log. table: the limits, the options' unless given.
    """
    table, profile, lead_ns = table or options.table, options.read_profile, lead_of(window)
    series = CountSeries(
        int(of_client.max()) + 1,
        len(of_client),
        len(window),
        observed.arrivals.start_ns + window.start,
        observed.tick_ns if observed.tick_ns >= 1_000_000 else 1,
        hints,
    )
    part = observed.arrivals.part(window.start - lead_ns, window.stop)
    header = RunHeader(
        name="log",
        seed=0,
        fidelity="compiled",
        start_time_ns=part.start_ns,
        duration_ns=len(window) + lead_ns,
        warm_up_ns=lead_ns,
        groups={"log": range(observed.clients)},
    )
    view, subjects = CounterIndex({"Default": table}, profile.limits), SubjectTable()
    numbers = enter_parties(subjects, part, view)
    chunks: deque[Chunk] = deque(maxlen=1)
    book = RunRecorder(
        header,
        {"Default": table},
        profile.limits,
        check=False,
        headroom=True,
        by_client=False,
        known=(view, subjects),
        keep="totals",
        watchers=[chunks.append],
    )
    progress = options.stage("deciding", len(part) if len(window) == observed.span_ns else None)
    for t_ns, party in replay_arrivals(
        part, table, profile, book.recorder, numbers, fidelity="compiled", progress=progress
    ):
        log_rows = _log_rows(observed, t_ns, party, chunks[0].wait_ns, of_client)
        series.take(log_rows.after(lead_ns))
    book.recorder.close()
    return _measures(book.close(), series), series


def lead_of(window: range) -> int:
    """Return how much time before a window is played too."""
    return min(window.start, _LEAD_NS)


def _log_rows(
    observed: Observed, t_ns: Numbers, party: Numbers, wait_ns: Numbers, of_client: Numbers
) -> SeriesRows:
    client = observed.client[party]
    refused = observed.refused[party]
    return SeriesRows(
        t_ns,
        client,
        np.maximum(of_client[client], 0),
        observed.request[party],
        observed.attempt[party],
        refused,
        np.where(refused == 1, wait_ns, 0),
    )


def _measures(result: Result, series: CountSeries) -> Measures:
    summary = result.summary
    totals = summary["totals"]
    offered = max(1, totals["offered"])
    measures: Measures = {
        ("offered", ""): float(totals["offered"]),
        ("refused share", ""): totals["refused"] / offered,
    }
    for line in summary["clauses"]:
        if line["offered"]:
            measures["refused share", line["clause"]] = line["refused"] / offered
            if line["blocked_ns"] or line["clause"] in summary["counters"]:
                measures["blocked s", line["clause"]] = line["blocked_ns"] / 1e9
    for rule in summary["headroom"]["rules"]:
        measures["peak", rule["rule"]] = float(rule["peak"])
    for width, value in zip(WIDTHS_S, series.dispersion()[-1].tolist(), strict=True):
        if series.span_ns >= 9.5 * width * 1_000_000_000:
            measures["dispersion", f"{width} s"] = value
    return measures


def judge(
    model: Model,
    log: Measures,
    series: CountSeries,
    window: range,
    options: FitOptions,
    *,
    predicted: bool,
) -> Judgement:
    """Play the scenario and compare it. predicted: the window is not the fitted one."""
    scenario, offered = model.scenario, log["offered", ""]
    if predicted:
        begin_ns = series.start_ns - lead_of(window)
        scenario = dataclasses.replace(scenario, start_time_ns=begin_ns // 1000 * 1000)
    most = _MOST_SESSION_ROWS if model.sessions else _MOST_ROWS
    count = options.runs or next((runs for runs in _RUNS if runs * offered <= most), _RUNS[-1])
    rows = round(offered)
    progress = options.stage("playing", count * rows)
    played: list[Measures] = []
    slots: list[Numbers] = []
    gaps: list[Numbers] = []
    random = np.random.Generator(np.random.Philox(_SEED))
    spreads = {
        group.name: _spread(group.pace, group.firsts, predicted=predicted) for group in model.groups
    }
    for run in range(count):
        factors = {
            name: math.exp(spread * float(random.standard_t(_FREEDOM)))
            for name, spread in spreads.items()
        }
        stretch = {
            group.name: math.exp(_burst_error(group.pace) * float(random.standard_normal()))
            for group in model.groups
        }
        other = varied(scenario, factors, stretch)
        measures, run_series = _play(other, _SEED + run, series, lead_of(window))
        played.append(measures)
        slots.append(run_series.slots.sum(axis=0))
        gaps.append(run_series.gaps.counts)
        if progress:
            progress((run + 1) * rows)
    lines = [_line(key, log, played) for key in _keys(log, played)]
    lines += _gap_lines(model, series, gaps)
    return Judgement(lines, count, predicted, window, series.slots.sum(axis=0), np.array(slots))


def judge_limits(
    model: Model,
    options: FitOptions,
    series: CountSeries,
    window: range,
    logs: Mapping[Fraction, Measures],
) -> list[Under]:
    """Compare scenario and log in what matters for limits, under several tables.

    logs: factor of the limits' rates → the log's measures under them.
    """
    judged: list[Under] = []
    rows = round(logs[Fraction(1)]["offered", ""])
    progress = options.stage("comparing", len(logs) * _SHARE_RUNS * rows)
    with TemporaryDirectory(prefix="simulator-fit-") as folder:
        for factor, log in logs.items():
            file = Path(folder) / f"{factor.numerator}-{factor.denominator}.toml"
            file.write_text(scaled(options.table, factor).to_toml(), "utf-8")
            scenario = dataclasses.replace(model.scenario, limits=Include(str(file)))
            played = []
            for run in range(_SHARE_RUNS):
                if progress:
                    progress((len(judged) * _SHARE_RUNS + run) * rows)
                played.append(_play(scenario, _SEED + run, series, lead_of(window))[0])
            lines = [_line(key, log, played) for key in _keys(log, played)]
            judged.append(Under.of(factor, lines))
    return judged


def _play(
    scenario: Scenario, seed: int, like: CountSeries, lead_ns: int
) -> tuple[Measures, CountSeries]:
    """Play the scenario once, for as long as the log; return its measures and its series."""
    scenario = dataclasses.replace(scenario, duration_ns=like.span_ns + lead_ns)
    counts = [group.count for group in scenario.clients]
    of_client = np.repeat(np.arange(len(counts)), counts)
    series = CountSeries(len(counts), len(of_client), like.span_ns, like.start_ns, like.tick_ns)

    def count(chunk: Chunk) -> None:
        """Count the next rows as the log would have stamped them."""
        client = chunk.clients.take(chunk.subject)
        none = np.zeros(len(chunk), dtype=np.int64)
        rows = SeriesRows(
            chunk.t_ns // like.tick_ns * like.tick_ns,
            client,
            of_client[client],
            none,
            np.minimum(chunk.attempt, MOST_ATTEMPTS),
            none,
            none,
        )
        series.take(rows.after(lead_ns))

    result = simulate(
        scenario,
        seed=seed,
        fidelity="compiled",
        warm_up_ns=lead_ns,
        check=False,
        headroom=True,
        keep="totals",
        watchers=[count],
    )
    return _measures(result, series), series


def varied(
    scenario: Scenario, factors: Mapping[str, float], stretch: Mapping[str, float]
) -> Scenario:
    """Return the scenario with the pace of each group, and the length of bursts, multiplied."""
    groups = []
    for group in scenario.clients:
        factor = factors.get(group.name, 1.0)
        arrivals = group.arrivals and _faster(group.arrivals, factor)
        arrivals = arrivals and _stretched(arrivals, stretch.get(group.name, 1.0))
        think = group.think and shorter(group.think, factor)
        groups.append(dataclasses.replace(group, arrivals=arrivals, think=think))
    return dataclasses.replace(scenario, clients=tuple(groups))


def _stretched(arrivals: Arrivals, factor: float) -> Arrivals:
    if not isinstance(arrivals, OnOffArrivals):
        return arrivals
    on_ns, off_ns = (
        max(1, round(length_ns * factor)) for length_ns in (arrivals.on_ns, arrivals.off_ns)
    )
    return dataclasses.replace(arrivals, on_ns=on_ns, off_ns=off_ns)


def _faster(arrivals: Arrivals, factor: float) -> Arrivals:
    if isinstance(arrivals, OnOffArrivals):  # more bursts, each as it was
        off_ns = max(1, round((arrivals.on_ns + arrivals.off_ns) / factor) - arrivals.on_ns)
        return dataclasses.replace(arrivals, off_ns=off_ns)

    def scaled(rate: Rate) -> Rate:
        return Rate(rate.limit_requests, max(1, round(rate.window_ns / factor)))

    faster: Arrivals = changed(arrivals, Rate, scaled)
    return faster


def _spread(pace: Pace, firsts: int, *, predicted: bool) -> float:
    """Return the standard deviation of the logarithm of a group's pace.

    The index of dispersion gives the variation of the process itself. Variation between eighths of
    the window beyond that is an error of the estimate; a predicted window has it a second time.
    """
    own = own_dispersion(pace) / max(1, firsts)
    seen = pace.sd**2
    if pace.kind in {"constant", "think-constant"}:
        return pace.sd
    if not predicted:
        return math.sqrt(max(0.0, seen - own))
    return math.sqrt(max(seen, own) + max(0.0, seen - own))


def _burst_error(pace: Pace) -> float:
    estimate = pace.parameters.get("on")
    return 0.0 if estimate is None else math.log(estimate.high / estimate.value) / 1.96


def _keys(log: Measures, played: list[Measures]) -> list[tuple[str, str]]:
    """Return the keys of the measures by kind; in each kind those of the log come first."""
    keys = dict.fromkeys(key for measures in (log, *played) for key in measures)
    order = ["offered", "refused share", "blocked s", "peak", "dispersion"]
    return sorted(keys, key=lambda key: order.index(key[0]))


def _line(
    key: tuple[str, str],
    log: Measures,
    played: list[Measures],
) -> Line:
    values = np.array([measures.get(key, 0.0) for measures in played])
    low, high = _interval(values)
    high = min(1.0, high) if key[0] == "refused share" else high
    return Line(*key, log.get(key, 0.0), float(np.median(values)), max(0.0, low), high)


def _interval(values: Floats) -> tuple[float, float]:
    """Return the 95 % prediction interval of one further value, by ranks or Student's t."""
    ordered, count = np.sort(values), len(values)
    place = int((count + 1) * _ERROR / 2)
    if place >= 1:
        return float(ordered[place - 1]), float(ordered[-place])
    mean, deviation = float(values.mean()), float(values.std(ddof=1))
    half = student_quantile(count - 1, 1 - _ERROR / 2) * deviation
    half *= math.sqrt(1 + 1 / count)
    return mean - half, mean + half


def _gap_lines(model: Model, log: CountSeries, runs: list[Numbers]) -> list[Line]:
    """Return Kolmogorov's distance between each group's gaps in the log and in the scenario.

    The interval is of the distances of single runs from all runs together.
    """
    lines = []
    for number, group in enumerate(model.groups):
        of_log = log.gaps.counts[number]
        pooled = np.sum([run[number] for run in runs], axis=0)
        if of_log.sum() < 30 or not pooled.sum():
            continue
        singles = np.array([_distance(run[number], pooled) for run in runs])
        value = _distance(of_log, pooled)
        ordered = np.sort(singles)
        top = float(ordered[min(len(ordered) - 1, int(0.95 * (len(ordered) + 1)))])
        lines.append(Line("gap distance", group.name, value, float(np.median(singles)), 0.0, top))
    return lines


def _distance(counts: Numbers, others: Numbers) -> float:
    if not counts.sum():
        return 1.0
    share, two = np.cumsum(counts) / counts.sum(), np.cumsum(others) / others.sum()
    return float(np.abs(share - two).max())


def _words(line: Line) -> str:
    less = line.log > line.high
    if line.measure == "dispersion":
        how = "burstier" if less else "steadier"
        return f"bursts within {line.of}: the log is {how} than the scenario"
    if line.measure == "gap distance":
        return f"the times between requests of {line.of}: they have another distribution"
    if line.measure == "peak":
        how = "fuller" if less else "less full"
        return f"how full {line.of} gets: {how} in the log"
    measure = "time blocked" if line.measure == "blocked s" else line.measure
    what = measure if not line.of else f"{measure} by {line.of}"
    return f"{what}: {'more' if less else 'less'} in the log"


# --- the limits that decide the form -------------------------------------------------------------


def difference(share: Line) -> float:
    """Return the relative difference of the scenario's refused share to the log's; 0 if none."""
    if max(share.log, share.fitted) < NEGLIGIBLE_SHARE:
        return 0.0
    return abs(share.fitted - share.log) / max(share.log, NEGLIGIBLE_SHARE)


def scaled(table: LimitTable, factor: Fraction) -> LimitTable:
    """Return a table with every rate multiplied, at least 1 request.

    >>> str(scaled(LimitTable.default(), Fraction(1, 2))["LIM-PUBLIC"].rate)
    '25/1m'
    """

    def multiplied(rate: Rate) -> Rate:
        return Rate(max(1, math.floor(rate.limit_requests * factor)), rate.window_ns)

    return LimitTable(tuple(changed(rule, Rate, multiplied) for rule in table))


def other_factors(share_under: Callable[[Fraction], float]) -> list[Fraction]:
    """Return two factors under which the log's refused share is nearest to the aimed shares.

    share_under: returns the log's refused share under a factor.
    """
    shares = dict(_shares(share_under))
    factors: list[Fraction] = []
    for aimed in AIMED_SHARES:
        left = [factor for factor in shares if factor != 1 and factor not in factors]
        factors.append(min(left, key=lambda factor: abs(math.log((shares[factor] + 1e-4) / aimed))))
    return sorted(factors, reverse=True)


def _shares(share_under: Callable[[Fraction], float]) -> Iterator[tuple[Fraction, float]]:
    """Yield the log's refused share from the loosest table on, until most is refused."""
    for factor in sorted(FACTORS, reverse=True):
        share = share_under(factor)
        yield factor, share
        if share > 2 * max(AIMED_SHARES) and factor < 1:
            return
