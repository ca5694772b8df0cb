"""Comparison of two runs of the same or of two scenarios: what differs, and how surely.

Where both folders hold replications, the seeds that they have in common are paired: the draws are
the same, so what differs is due to the scenario. Replications under other seeds are independent:
their difference holds as well, with a wider interval. Single runs are cut into the same slices of
time and the slices are paired; such an interval is wider by as much as neighbouring slices
correlate, and holds for these two runs' stretch of time alone. With a precision both scenarios are
replicated under common seeds until the differences of shares are known so well.

Each interval is one of 95 %, so of some 17 metrics about one leaves out 0 by chance. A difference
is *significant* only if it stays so when all metrics are tested together: one or more differences
of equal scenarios are called significant in at most 5 % of comparisons (Holm, "A simple
sequentially rejective multiple test procedure", Scandinavian Journal of Statistics 6, 1979).

Advice and the table of policies rest on the same pairing: the same seeds play a scenario as it is
and changed (`observe`), so that their difference (`paired`) is due to the change.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Final, Literal, TypeAlias

import pandas as pd

from engine.errors import InputError
from engine.profile import SECOND_NS
from simulator.arguments import FUNCTION, instance, option, optional, options, takes_options
from simulator.intervals import (
    CONFIDENCE,
    Interval,
    Share,
    difference_of,
    independent_difference,
    interval_of,
    is_share,
    pooled,
    sequential_error,
)
from simulator.options import PrecisionOptions, ReplicationBudget
from simulator.rows import Result
from simulator.rows.metrics import SUMS
from simulator.rows.parquet import refuse_missing
from simulator.rows.record import PASSED
from simulator.rows.result import share_of
from simulator.scenario import METRICS, Scenario, loads
from simulator.scenario.model import draws_at_random
from simulator.study.runs import (
    FIRST,
    NONE_IS_0,
    Precision,
    Replication,
    Replicator,
    line_of,
    max_attempts,
    replicator,
    until_precise,
)

_SLICES: Final = 20
_MOST_SHARED: Final = 0.9
_ERROR: Final = 1 - CONFIDENCE
_RUN: Final = instance("a Result, or the path of a run's folder", Result, str, Path)


Observed: TypeAlias = Mapping[str, float]
"""Metric → its value in one run."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric in A and in B, and the interval of B − A; its ends are NaN where unknown."""

    metric: str
    a: float
    b: float
    change: Interval

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0, that is, no change."""
        return self.change.low > 0 or self.change.high < 0


def paired(
    metric: str,
    before: Sequence[Observed],
    after: Sequence[Observed],
    *,
    exact: bool = False,
    error: float = 1 - CONFIDENCE,
) -> Difference:
    """Return what a change does to a metric, from runs under the same seeds; NaN is left out.

    exact: the scenario draws nothing at random. error: how often the interval may miss.
    """
    a, b = ([run.get(metric, 0.0) for run in runs] for runs in (before, after))
    exact = exact or before is after
    change = difference_of(a, b, metric, exact=exact, error=error)
    return Difference(metric, pooled(a), pooled(b), change)


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found. paired: `seeds`, `slices` of time, or None where nothing pairs.

    independent: runs of A and of B whose seeds differ; (0, 0) otherwise. precision: what became of
    the one that was asked for. significant: metrics whose difference is no chance, all of them
    tested together. same_draws: whether only the scenarios can make a difference, not the seeds.
    """

    names: tuple[str, str]
    same_rows: bool
    paired: Literal["seeds", "slices"] | None
    pairs: int
    differences: tuple[Difference, ...]
    precision: Precision | None = None
    independent: tuple[int, int] = (0, 0)
    significant: frozenset[str] = frozenset()
    same_draws: bool = True

    @property
    def differs(self) -> bool:
        """Whether A and B differ: at all if their draws are the same, else by more than chance."""
        if self.same_draws:
            return not self.same_rows or any(d.a != d.b for d in self.differences)
        return bool(self.significant)

    @property
    def tested(self) -> str:
        """What significant means, and what the differences come to, in words; empty if exact."""
        if not any(d.change.method == "t" for d in self.differences):
            return ""
        text = (
            "significant: not by chance, at 5 % for all metrics together (Holm); each interval is"
            " one of 95 %"
        )
        if self.significant or self.same_draws:
            return text
        return f"{text}\nno difference is significant: other seeds alone would differ as much"

    @property
    def frame(self) -> pd.DataFrame:
        """A line a metric: a, b, change, low, high, sure (significant), method."""
        return pd.DataFrame(
            [
                (d.metric, d.a, d.b, *d.change[:3], d.metric in self.significant, d.change.method)
                for d in self.differences
            ],
            columns=["metric", "a", "b", "change", "low", "high", "sure", "method"],
        ).set_index("metric")

    def _repr_html_(self) -> str:
        first, other = map(html.escape, self.names)
        return f"<p>{first} → {other}, {self.said}</p>" + self.frame.to_html()

    @property
    def said(self) -> str:
        """How the pairs were made, in words."""
        if self.same_rows:
            return "the same rows" if self.paired else "the same rows, but not the same warm-up"
        if self.paired == "seeds":
            return f"paired by seed ({self.pairs} pairs)"
        if self.paired == "slices":
            return f"paired by time ({self.pairs} slices of one run each)"
        if any(self.independent):
            a, b = self.independent
            return (
                f"not paired: {a} and {b} independent runs with {self.pairs} seeds in common; the"
                " differences hold, but runs under the same seeds would tell smaller ones"
            )
        return "not paired: the runs differ in length or warm-up, so there are no intervals"


@options
class CompareOptions(PrecisionOptions):
    """The options of a comparison of two runs."""

    a: Result | str | Path = option(_RUN, "a result, or a run's folder")
    b: Result | str | Path = option(_RUN, "another")
    _: KW_ONLY
    on_look: Callable[[int, Precision], None] | None = option(
        optional(FUNCTION),
        "hears the pairs so far and what they make of the precision",
        default=None,
    )


@takes_options(CompareOptions)
def compare(options: CompareOptions) -> Comparison:
    """Compare two results, or two runs' folders; metrics that only one of them has are left out.

    {options}

    With a precision, both scenarios are replicated under common seeds until the difference of every
    share is known so well.

    Raises `InputError` where a folder holds none, and where a log lacks time or outcome.
    """
    a, b, precision = options.a, options.b, options.precision
    budget = options.budget()
    results = tuple(run if isinstance(run, Result) else Result.load(run) for run in (a, b))
    first, other = results
    names = (_name(a, first), _name(b, other))
    same = first.summary["sha256"] == other.summary["sha256"]
    lines = _replicated(first), _replicated(other)
    seeds = sorted(lines[0].keys() & lines[1].keys())
    pairs = [(lines[0][seed], lines[1][seed]) for seed in seeds]
    if precision is not None:
        return _to_precision(
            precision, names, (first, other), pairs, seeds, budget, options.on_look
        )
    counts = len(lines[0]), len(lines[1])
    if len(seeds) > 1 and 2 * len(seeds) >= min(counts):
        exact = all(_is_exact(result) for result in results)
        changes, significant = _tested(lambda error: _differences(pairs, exact=exact, error=error))
        return Comparison(names, same, "seeds", len(pairs), changes, significant=significant)
    if min(counts) > 1:
        before, after = (list(line.values()) for line in lines)
        changes, significant = _tested(lambda error: _independent(before, after, error))
        return Comparison(
            *(names, same, None, len(pairs), changes),
            independent=counts,
            significant=significant,
            same_draws=False,
        )
    if same and first.summary["warm_up_ns"] == other.summary["warm_up_ns"]:
        first = other = max(results, key=lambda result: len(result.columns))
    for name, result in zip(names, (first, other), strict=True):
        refuse_missing(f"{name}, to be compared,", ("t_ns", "outcome"), result.columns)
    whole = _without_missing(_differences([(line_of(first), line_of(other))]), results)
    if _span_ns(first) != _span_ns(other):
        return Comparison(names, same, None, 1, whole)
    sliced = _slices(first), _slices(other)
    changes, significant = _tested(lambda error: _over_slices(whole, sliced, error))
    same_draws = first.summary["seed"] == other.summary["seed"]
    return Comparison(
        *(names, same, "slices", _SLICES, changes), significant=significant, same_draws=same_draws
    )


def _tested(
    changes_at: Callable[[float], tuple[Difference, ...]],
) -> tuple[tuple[Difference, ...], frozenset[str]]:
    """Return the differences with 95 % intervals, and the metrics that Holm's test finds to differ.

    changes_at: the differences with intervals that may miss in a share of cases. The metrics that
    are not known to differ share the error; each that is found leaves more of it to the others.
    """
    changes = changes_at(_ERROR)
    significant = frozenset(d.metric for d in changes if d.change.method == "exact" and d.is_sure)
    open_metrics = {d.metric for d in changes if d.change.method == "t"}
    while open_metrics:
        tested = changes_at(_ERROR / len(open_metrics))
        differing = {d.metric for d in tested if d.is_sure} & open_metrics
        if not differing:
            break
        open_metrics -= differing
        significant |= differing
    return changes, significant


def _scenario_of(result: Result) -> Scenario | None:
    return None if result.scenario_text is None else loads(result.scenario_text)


def _is_exact(result: Result) -> bool:
    scenario = _scenario_of(result)
    return scenario is not None and not draws_at_random(scenario)


def _to_precision(  # reason: all that a comparison under way is made of
    precision: float,
    names: tuple[str, str],
    results: tuple[Result, Result],
    pairs: list[tuple[Observed, Observed]],
    seeds: list[int],
    budget: ReplicationBudget,
    on_look: Callable[[int, Precision], None] | None,
) -> Comparison:
    """Replicate both scenarios, seed by seed, until every share's difference is narrow enough."""
    scenarios = []
    for name, result in zip(names, results, strict=True):
        if (scenario := _scenario_of(result)) is None:
            raise InputError(f"{name} must be a scenario's run for a precision; it is a replay")
        scenarios.append(scenario)
    exact = all(_is_exact(result) for result in results)
    begin = max(seeds, default=min(result.summary["seed"] for result in results) - 1) + 1
    known = len(pairs)

    def widths(count: int) -> list[Interval]:
        more = range(begin + len(pairs) - known, begin + count - known)
        if more:
            lines = [
                player.play(
                    scenario,
                    more,
                    fidelity=result.summary["fidelity"],
                    warm_up_ns=result.summary["warm_up_ns"],
                    check=False,
                )
                for scenario, result in zip(scenarios, results, strict=True)
            ]
            pairs.extend((before.line, other.line) for before, other in zip(*lines, strict=True))
        return [
            change.change
            for change in _differences(pairs, exact=exact, sequential=True)
            if change.metric.startswith("refused_share")
        ]

    def tell(precision_so_far: Precision) -> None:
        if on_look is not None:
            on_look(len(pairs), precision_so_far)

    with replicator() as player:
        reached = until_precise(precision, max(known, FIRST), budget, widths, tell)
    changes, significant = _tested(
        lambda error: _differences(pairs, exact=exact, sequential=True, error=error)
    )
    same = results[0].summary["sha256"] == results[1].summary["sha256"]
    return Comparison(names, same, "seeds", len(pairs), changes, reached, significant=significant)


def _over_slices(
    whole: tuple[Difference, ...], sliced: tuple[pd.DataFrame, pd.DataFrame], error: float
) -> tuple[Difference, ...]:
    """Return the differences of two whole runs, with intervals over their slices where known."""
    changes = []
    for change in whole:
        if change.metric in METRICS and change.metric not in _OF_THE_WHOLE:
            column = METRICS[change.metric].column
            steps = (sliced[1][column] - sliced[0][column]).astype(float)
            scale = len(steps) if change.metric in SUMS else 1
            changes.append(_placed(change, _of_slices(steps.tolist(), error), scale))
        else:
            changes.append(change)
    return tuple(changes)


def _of_slices(steps: list[float], error: float) -> Interval:
    """Return the t interval over slices, wider by as much as neighbouring slices correlate."""
    interval = interval_of(steps, difference=True, error=error)
    known = [step - interval.mean for step in steps if not math.isnan(step)]
    squares = math.fsum(step * step for step in known)
    if interval.method != "t" or not squares:
        return interval
    shared = math.fsum(a * b for a, b in itertools.pairwise(known)) / squares
    shared = min(max(shared, 0.0), _MOST_SHARED)
    half = interval.half_width * math.sqrt((1 + shared) / (1 - shared))
    return interval._replace(low=interval.mean - half, high=interval.mean + half)


def _without_missing(
    changes: tuple[Difference, ...], results: tuple[Result, ...]
) -> tuple[Difference, ...]:
    """Leave out metrics whose columns are missing in one of the logs."""
    if not any("columns" in result.summary for result in results):
        return changes
    return tuple(change for change in changes if not math.isnan(change.change.mean))


_OF_THE_WHOLE: Final = frozenset({"first_refusal"})
"""Metrics that have no meaning in a slice."""


def _span_ns(result: Result) -> tuple[int, int]:
    return result.summary["warm_up_ns"], result.summary["duration_ns"]


def _placed(change: Difference, interval: Interval, scale: int) -> Difference:
    """Put a slice's interval around the whole run's change."""
    half = (interval.high - interval.low) / 2 * scale
    mean = change.change.mean
    placed = interval._replace(mean=mean, low=mean - half, high=mean + half)
    return Difference(change.metric, change.a, change.b, placed)


def _name(given: Result | str | Path, result: Result) -> str:
    if isinstance(given, Result):
        return f"{result.summary['scenario']}-{result.summary['seed']}"
    return str(given)


def _replicated(result: Result) -> dict[int, Observed]:
    runs = result.summary.get("replications", {}).get("runs", ())
    return {run["seed"]: Replication.line_from_json(run) for run in runs}


def _differences(
    pairs: list[tuple[Observed, Observed]],
    *,
    exact: bool = False,
    sequential: bool = False,
    error: float = _ERROR,
) -> tuple[Difference, ...]:
    """Return the paired difference of every metric; sequential: shares' widths are looked at."""
    before, after = zip(*pairs, strict=True)
    changes = []
    for name in _common([line for pair in pairs for line in pair]):
        of_look = error
        if sequential and is_share(name):
            differing = sum(a.get(name, 0.0) != b.get(name, 0.0) for a, b in pairs)
            of_look = sequential_error(differing, len(pairs), error)
        changes.append(paired(name, before, after, exact=exact, error=of_look))
    return _known(changes)


def _independent(
    before: Sequence[Observed], after: Sequence[Observed], error: float
) -> tuple[Difference, ...]:
    """Return the difference of every metric between runs that have no seeds in common."""
    changes = []
    for name in _common([*before, *after]):
        a, b = ([line.get(name, 0.0) for line in side] for side in (before, after))
        change = independent_difference(a, b, name, error=error)
        changes.append(Difference(name, pooled(a), pooled(b), change))
    return _known(changes)


def _common(lines: Sequence[Observed]) -> list[str]:
    """Return the metrics that all runs have, or that are 0 where a run lacks them."""
    names = dict.fromkeys(name for line in lines for name in line)
    return [n for n in names if n.startswith(NONE_IS_0) or all(n in line for line in lines)]


def _known(changes: Sequence[Difference]) -> tuple[Difference, ...]:
    known = tuple(
        change for change in changes if not (math.isnan(change.a) and math.isnan(change.b))
    )
    if not known:
        raise InputError("the two runs have no metric in common; compare runs with requests")
    return known


def _slices(result: Result) -> pd.DataFrame:
    start_ns, end_ns = _span_ns(result)
    width_ns = max(1, -(-end_ns // _SLICES))
    frame = result.metrics(by="time", bin=width_ns)
    whole = frame.reindex(range(start_ns // width_ns * width_ns, end_ns, width_ns))
    columns = [METRICS[metric].column for metric in sorted(SUMS)]
    whole[columns] = whole[columns].fillna(0)
    return whole


# --- what runs show of each client group ---------------------------------------------------------

Detail: TypeAlias = Callable[[Result, Scenario], Iterable[tuple[str, float]]]
"""What more a run shows, from its rows: metrics by name."""


def observe(
    player: Replicator,
    scenario: Scenario,
    seeds: Sequence[int],
    details: Sequence[Detail] = (),
) -> list[Observed]:
    """Play a scenario compiled, under each seed, and return what each run shows of each group.

    Named as in thresholds: offered, refused, refused_share, goodput_per_s, attempts_per_success of
    `{client='GROUP'}`, refused_share of `{client='GROUP',clause='CLAUSE'}`. details: what makes
    more of them, which takes longer as it needs the rows.
    """
    runs = player.play(
        scenario,
        seeds,
        fidelity="compiled",
        check=False,
        line=partial(_observe, details),
        keep="rows" if details else "subjects",
    )
    return [run.line for run in runs]


def _observe(details: Sequence[Detail], result: Result, scenario: Scenario) -> dict[str, float]:
    """Return what a run shows of each group, and of each clause in it."""
    metrics: dict[str, float] = {}
    attempts = max_attempts(scenario)
    span_s = (result.summary["duration_ns"] - result.summary["warm_up_ns"]) / SECOND_NS
    episode = result.summary["windows"]["episode"] * attempts
    clauses = [row["clause"] for row in result.summary["clauses"] if row["offered"]]
    for row in result.summary["groups"]:
        if not row["offered"]:
            continue
        name, admitted = row["name"], row["admitted"]
        label = f"{{client='{name}'}}"
        metrics |= {f"{metric}{label}": float(row[metric]) for metric in ("offered", "refused")}
        metrics[f"refused_share{label}"] = share_of(result.summary, name, attempts=attempts)
        # The limits alone answer nothing with an error.
        metrics[f"goodput_per_s{label}"] = admitted / span_s
        metrics[f"attempts_per_success{label}"] = (
            row["offered"] / admitted if admitted else math.nan
        )
        for clause in clauses:
            refused = row["clauses"].get(clause, 0)
            metrics[f"refused_share{{client='{name}',clause='{clause}'}}"] = Share(
                [refused], [row["offered"]], episode
            )
    for detail in details:
        metrics.update(detail(result, scenario))
    return metrics


def paces(result: Result, scenario: Scenario) -> Iterator[tuple[str, float]]:
    """Yield how many first attempts a second a client of each group made."""
    t_ns, client, attempt = (
        result.table.column(name).to_numpy() for name in ("t_ns", "client", "attempt")
    )
    firsts_of = client[(attempt == 1) & (t_ns >= result.summary["warm_up_ns"])]
    for group in scenario.clients:
        from_ns = max(group.start_ns, result.summary["warm_up_ns"])
        span_s = (scenario.stop_of(group) - from_ns) / SECOND_NS
        clients = result.groups.get(group.name, range(0))
        firsts = int(((firsts_of >= clients.start) & (firsts_of < clients.stop)).sum())
        if len(clients) and span_s > 0:
            yield f"pace{{client='{group.name}'}}", firsts / len(clients) / span_s


def echoes(result: Result, _: Scenario) -> Iterator[tuple[str, float]]:
    """Yield each group's refused share within a block's length after a block's end."""
    names = ["t_ns", "client", "key", "ip", "outcome", "rule", "wait_ns"]
    frame = result.table.select(names).to_pandas()
    blocked = frame[frame["outcome"] == "blocked"]
    if not len(blocked):
        return
    ends = blocked.assign(end_ns=blocked["t_ns"] + blocked["wait_ns"])
    length_ns = ends.groupby("rule", observed=True)["wait_ns"].transform("max")
    ends = ends.assign(until_ns=ends["end_ns"] + length_ns)
    ends = ends.drop_duplicates(["ip", "end_ns"]).sort_values("end_ns")
    rows = frame.sort_values("t_ns")
    blocks = ends[["ip", "end_ns", "until_ns"]].rename(columns={"end_ns": "t_ns"})
    after = pd.merge_asof(rows, blocks, on="t_ns", by="ip")
    after = after[after["t_ns"] < after["until_ns"]]
    refused = ~after["outcome"].isin(PASSED)
    for group, clients in result.groups.items():
        of_group = after["client"].isin(clients)
        if of_group.any():
            yield f"echo{{client='{group}'}}", float(refused[of_group].mean())
