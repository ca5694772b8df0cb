"""Confidence intervals of metrics over replications, and what they say about a threshold.

A *share* is a ratio of two totals: attempts refused over attempts offered, in all runs together.
A mean of the runs' shares would give a quiet run the weight of a busy one. What varies
independently is a run and not an attempt, so a run is a *cluster*: the variance of the share is
that of its residuals, refused − share · offered, over clusters. It says to how many independent
attempts the runs amount (the *effective number*: offered / design effect), and the interval is that
of Clopper and Pearson for so many, widened since the variance itself is an estimate (Korn and
Graubard, "Confidence intervals for proportions with small expected number of positive counts
estimated from survey data", Survey Methodology 24, 1998). Rules, in order:

- *exact*: the scenario draws nothing at random, so one run tells all.
- *rule of three*: nothing was refused (or everything), so no variance is seen. An episode of
  refusals is assumed to cost `episode` attempts, and offered / `episode` is the effective number.
- *batch means*: fewer than 10 runs, and refusals in each of them. Each run is cut into as many
  equal batches of time as make 10 clusters, if successive batches are uncorrelated and runs vary as
  batches say they should; else into half as many, and so on. A single run needs 10 batches.
- *bootstrap-t*: at least 10 runs saw an event, so that they show how skewed they are.
- *cluster*: all else.

Other metrics get a *bootstrap-t* interval of their mean (Hall, "Theoretical comparison of bootstrap
confidence intervals", 1988), since sums as well are skewed where clients retry; fewer than 10 runs,
which do not show it, get Student's *t* at half the error. Differences of paired runs are nearly
symmetric and get Student's *t*; those of a share by the residuals of its jackknife. *Range*: no
two values differ, or there is one, so that only the metric's range is known.

Precision may be judged after every run once 20 runs saw an event; before, and wherever an interval
is compared with a bound repeatedly, the looks share the error (`spent`). No interval leaves its
metric's range.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from statistics import NormalDist
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from engine.errors import InputError
from simulator.arguments import FLAG, TEXT, ArgumentRule, is_number, list_of, takes
from simulator.quantiles import beta_quantile, fisher_quantile, student_quantile
from simulator.scenario.conditions import METRICS, Condition, Metric

_NORMAL: Final = NormalDist()
CONFIDENCE: Final = 0.95

Method: TypeAlias = Literal[
    "exact", "rule of three", "batch means", "cluster", "bootstrap-t", "t", "range"
]
"""How an interval is made; see the file's head."""
Verdict: TypeAlias = Literal["met", "not met", "not decided"]

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

WINDOWS: Final = 20
"""Equal parts of a run's time in which a share's attempts are counted."""
_MIN_CLUSTERS: Final = 10
"""With fewer runs, each is cut into batches; a single one needs so many."""
_RUNS_WITH_EVENTS: Final = 20
"""From so many runs that saw an event on, an interval's width may be looked at after every run."""
_DOUBT: Final = 0.8
"""Batches are too short if successive ones correlate, or if runs vary more, at this level."""
_REGULATED: Final = 0.02
"""Runs that vary so much less than their batches have a total that a limit or clients hold."""
_MAX_SHARED: Final = 0.9
"""Correlation of successive batches beyond which a single run tells nothing more."""
_RESAMPLES: Final = 1_999
_MIN_SHARE: Final = 1e-9
"""A smaller share, as a plain number, is not taken for an attempt."""
_OF_A_LINE: Final = 2
"""Parameters of a straight line."""
_NEWTON_STEPS: Final = 60
_STEP_ENDS: Final = 1e-9
_MOST_EXPONENT: Final = 100.0
_SINGULAR: Final = 1e12
_MAX_RUNS: Final = 10_000_000
"""Larger numbers of runs are not reported."""


class Interval(NamedTuple):
    """An estimate over runs, and the interval that holds the true value with `confidence`.

    mean: refused / offered in all of a share, otherwise the runs' mean. runs: how many values it is
    made of; without any, mean and ends are NaN. An end is infinite where nothing is known.
    """

    mean: float
    low: float
    high: float
    runs: int
    method: Method = "range"
    confidence: float = CONFIDENCE
    episode: float | None = None

    @property
    def half_width(self) -> float:
        """Half of the distance of the ends."""
        return (self.high - self.low) / 2


class Share(float):
    """A run's refused share, with the attempts that it is made of.

    refused, offered: their numbers in equal parts of the run's time (in `WINDOWS`, or in all).
    episode: attempts that an episode of refusals would cost, where none is seen.

    >>> Share([0, 3], [4, 8])
    0.25
    """

    refused: Values
    offered: Values
    episode: float

    def __new__(  # noqa: PYI034 # reason: no subclasses
        cls, refused: Sequence[float], offered: Sequence[float], episode: float = 1.0
    ) -> Share:
        """Return the share with its counts; NaN where nothing was offered."""
        total = math.fsum(offered)
        share = super().__new__(cls, math.fsum(refused) / total if total else math.nan)
        share.refused = np.asarray(refused, dtype=np.float64)
        share.offered = np.asarray(offered, dtype=np.float64)
        share.episode = episode
        return share

    def __reduce__(self) -> tuple[type[Share], tuple[list[float], list[float], float]]:
        """Return what makes it again, in another process."""
        return Share, (self.refused.tolist(), self.offered.tolist(), self.episode)


@takes(
    values=list_of("a list of numbers, one a run", is_number),
    metric=TEXT,
    exact=FLAG,
    difference=FLAG,
    error=ArgumentRule(
        "above 0 and below 1, such as 0.05", lambda error: is_number(error) and 0 < error < 1
    ),
)
def interval_of(
    values: Sequence[float],
    metric: str = "",
    *,
    exact: bool = False,
    difference: bool = False,
    error: float = 1 - CONFIDENCE,
) -> Interval:
    """Return the interval of a metric from one value per run; NaN values are left out.

    values: shares that know their counts (`Share`, as `Result.share` gives them) are pooled; shares
    as plain numbers get the same weight, run by run. metric: its name, with or without labels; it
    says the range and the method. exact: the scenario draws nothing at random, so all runs are the
    same. difference: the values are differences of the metric between two runs. error: how often
    the interval may miss.

    >>> interval_of([0.0] * 5, "refused_share").method
    'rule of three'
    >>> interval_of([3.0, 4.0, 5.0], "offered").method
    't'
    """
    known = [value for value in values if not math.isnan(value)]
    confidence = 1 - error
    least, most = _range_of(metric, difference=difference)
    if not known:
        nan = float("nan")
        return Interval(nan, nan, nan, 0, "range", confidence)
    mean = pooled(known)
    if exact:
        return Interval(mean, mean, mean, len(known), "exact", 1.0)
    if min(known) < least or max(known) > most:
        raise InputError(f"values must lie from {least:g} to {most:g}, the range of the metric")
    if not difference and is_share(metric):
        return _Ratio.of(known).interval(error)
    numbers: Values = np.array(known, dtype=np.float64)
    if difference and is_share(metric):
        differing = int(np.count_nonzero(numbers))
        return _of_difference(mean, numbers - mean, differing, len(numbers), error)
    if len(known) == 1 or min(known) == max(known):
        return Interval(mean, least, most, len(known), "range", confidence)
    low, high, method = _of_mean(numbers, error, symmetric=difference)
    return Interval(mean, max(least, low), min(most, high), len(known), method, confidence)


def difference_of(
    before: Sequence[float],
    after: Sequence[float],
    metric: str = "",
    *,
    exact: bool = False,
    error: float = 1 - CONFIDENCE,
) -> Interval:
    """Return the interval of after − before, paired run by run; a pair with a NaN is left out.

    exact, error: as for `interval_of`.
    """
    pairs = [
        (a, b) for a, b in zip(before, after, strict=True) if not (math.isnan(a) or math.isnan(b))
    ]
    if exact or not pairs or not _are_counted([value for pair in pairs for value in pair]):
        steps = [b - a for a, b in pairs]
        return interval_of(steps, metric, exact=exact, difference=True, error=error)
    ratios = [_Ratio.of(values) for values in zip(*pairs, strict=True)]
    residuals = ratios[1].jackknife_residuals() - ratios[0].jackknife_residuals()
    attempts = min(ratio.offered for ratio in ratios) / ratios[0].episode
    differing = sum(a != b for a, b in pairs)
    return _of_difference(ratios[1].share - ratios[0].share, residuals, differing, attempts, error)


def independent_difference(
    before: Sequence[float],
    after: Sequence[float],
    metric: str = "",
    *,
    error: float = 1 - CONFIDENCE,
) -> Interval:
    """Return Welch's t interval of after − before, from runs that have no seed in common."""
    least, most = _range_of(metric, difference=True)
    sides = [[value for value in side if not math.isnan(value)] for side in (before, after)]
    counts = [len(side) for side in sides]
    mean = pooled(sides[1]) - pooled(sides[0])
    runs = min(counts)
    variances = [0.0, 0.0]
    if runs > 1:
        for place, side in enumerate(sides):
            variances[place] = _standard_error(_residuals(side, metric)) ** 2
    if not sum(variances):
        return Interval(mean, least, most, runs, "range", 1 - error)
    shares = [variance**2 / (n - 1) for variance, n in zip(variances, counts, strict=True)]
    freedom = sum(variances) ** 2 / sum(shares)
    half = student_quantile(freedom, 1 - error / 2) * math.sqrt(sum(variances))
    return Interval(mean, max(least, mean - half), min(most, mean + half), runs, "t", 1 - error)


def crossing_of(
    places: Sequence[float],
    values: Sequence[float],
    bound: float,
    metric: str = "",
    *,
    error: float = 1 - CONFIDENCE,
) -> Interval:
    """Return where a metric crosses a bound, from independent runs at several places.

    The logarithm of the metric's mean is taken for a straight line of the place, and its variance
    for proportional to its mean: a quasi-Poisson regression, for a share with the attempts as
    exposure (Wedderburn, "Quasi-likelihood functions", Biometrika 61, 1974). Nothing is known
    (method `range`) where the bound is not above 0, or the line does not surely rise or fall.
    """
    known = [pair for pair in zip(places, values, strict=True) if not math.isnan(pair[1])]
    runs, events = len(known), sum(value > 0 for _, value in known)
    nothing = Interval(math.nan, -math.inf, math.inf, runs, "range", 1 - error)
    if bound <= 0 or not events or runs <= _OF_A_LINE or len({place for place, _ in known}) == 1:
        return nothing
    totals: Values = np.array([value for _, value in known], dtype=np.float64)
    exposures = np.ones_like(totals)
    if is_share(metric) and _are_counted([value for _, value in known]):
        refused, offered = _counts_of([value for _, value in known])
        totals, exposures = refused.sum(axis=1), offered.sum(axis=1)
    line = _line_of(np.array([place for place, _ in known]), totals, exposures)
    if line is None:
        return nothing
    middle, (level, slope), covariance = line
    # Fieller's: the places where the line is no further from the bound than it is unsure there.
    quantile = student_quantile(min(runs - _OF_A_LINE, events), 1 - error / 2)
    level -= math.log(bound)
    a, b, c = (
        factor - quantile**2 * variance
        for factor, variance in (
            (slope**2, covariance[1, 1]),
            (level * slope, covariance[0, 1]),
            (level**2, covariance[0, 0]),
        )
    )
    if a <= 0:
        return nothing
    low, high = ((-b + sign * math.sqrt(max(0.0, b * b - a * c))) / a for sign in (-1, 1))
    ends = middle + low, middle + high
    return Interval(middle - level / slope, *ends, runs, "t", 1 - error)


def _line_of(
    places: Values, totals: Values, exposures: Values
) -> tuple[float, tuple[float, float], Values] | None:
    """Return the middle place, the line's value there and its slope, and their covariance.

    None where all runs on one side saw nothing, so that the slope has no bound.
    """
    middle = float(places.mean())
    design = np.stack([np.ones_like(places), places - middle])
    line = np.array([math.log(totals.sum() / exposures.sum()), 0.0])
    for _ in range(_NEWTON_STEPS):
        means = exposures * np.exp(np.clip(line @ design, -_MOST_EXPONENT, _MOST_EXPONENT))
        information = (design * means) @ design.T
        if np.linalg.cond(information) > _SINGULAR:
            return None
        step = np.linalg.solve(information, design @ (totals - means))
        line += step
        if float(np.abs(step).max()) < _STEP_ENDS:
            dispersion = float(((totals - means) ** 2 / means).sum()) / (len(totals) - _OF_A_LINE)
            return middle, (float(line[0]), float(line[1])), dispersion * np.linalg.inv(information)
    return None


def _residuals(values: Sequence[float], metric: str) -> Values:
    """Return what each run adds to a metric's deviation from its value over all runs."""
    if is_share(metric) and _are_counted(values):
        return _Ratio.of(values).jackknife_residuals()
    numbers: Values = np.array(values, dtype=np.float64)
    return np.asarray(numbers - numbers.mean(), dtype=np.float64)


def pooled(values: Sequence[float]) -> float:
    """Return refused / offered in all for shares with counts, otherwise the mean; NaN is left out.

    >>> pooled([Share([1], [1]), Share([0], [3])]), pooled([1.0, 0.0])
    (0.25, 0.5)
    """
    known = [value for value in values if not math.isnan(value)]
    if not known:
        return math.nan
    return _Ratio.of(known).share if _are_counted(known) else math.fsum(known) / len(known)


def is_share(metric: str) -> bool:
    """Return whether a metric has known bounds."""
    known = _metric_of(metric)
    return math.isfinite(known.least) and math.isfinite(known.most)


def spent(look: int, error: float = 1 - CONFIDENCE) -> float:
    """Return how much of an error the given look (from 1) may spend.

    All of them together spend no more than the whole: Σ 1 / (k (k + 1)) = 1.

    >>> spent(1, 0.05), round(spent(2, 0.06), 9)
    (0.025, 0.01)
    """
    return error / (look * (look + 1))


def sequential_error(events: int, runs: int, error: float = 1 - CONFIDENCE) -> float:
    """Return the error of an interval of shares that is looked at again and again, for its width.

    All of it once 20 runs saw an event; until then the looks, at 10, 20, 40 … runs, share it.

    >>> round(sequential_error(20, 20), 9), round(sequential_error(1, 10), 9)
    (0.05, 0.025)
    """
    if events >= _RUNS_WITH_EVENTS:
        return error
    return spent(max(1, math.floor(math.log2(runs / _MIN_CLUSTERS)) + 1), error)


def judged(condition: Condition, interval: Interval) -> Verdict:
    """Return whether all of an interval meets a condition, none of it, or some of it.

    Without any value, no condition is met.
    """
    if not interval.runs:
        return "not met"
    low, high, bound = interval.low, interval.high, condition.bound
    if low == high:
        return "met" if condition.holds(low) else "not met"
    if condition.compare in {"==", "!="}:
        outside = not low <= bound <= high
        is_met = outside == (condition.compare == "!=")
        return ("met" if is_met else "not met") if outside else "not decided"
    held = condition.holds(low), condition.holds(high)
    return "met" if all(held) else "not decided" if any(held) else "not met"


def runs_for_precision(values: Sequence[float], metric: str, half_width: float) -> int | None:
    """Return about how many runs like these make an interval this narrow; None if too many."""
    return _runs_for(
        lambda runs: _foreseen(values, metric, runs),
        lambda interval: interval.half_width <= half_width,
        len(values),
    )


def runs_for_narrower(interval: Interval, half_width: float) -> int | None:
    """Return about how many runs make an interval this narrow, whose width falls as 1 / √runs."""
    if interval.method == "range" or not interval.runs:
        return None
    level = (1 + interval.confidence) / 2  # looks at few runs have less of the error
    few = student_quantile(max(1, interval.runs - 1), level) / _NORMAL.inv_cdf((1 + CONFIDENCE) / 2)
    needed = math.ceil(interval.runs * (interval.half_width / few / half_width) ** 2)
    needed = max(interval.runs + 1, needed)
    return needed if needed <= _MAX_RUNS else None


def runs_for_verdict(
    values: Sequence[float],
    condition: Condition,
    *,
    error: float = 1 - CONFIDENCE,
) -> int | None:
    """Return about how many runs like these decide a condition; None if too many or never."""
    return _runs_for(
        lambda runs: _foreseen(values, condition.metric, runs, error=error),
        lambda interval: judged(condition, interval) != "not decided",
        len(values),
    )


def _runs_for(
    foreseen: Callable[[int], Interval], enough: Callable[[Interval], bool], known: int
) -> int | None:
    low, high = 1, max(2, known)
    if not foreseen(high).runs:
        return None
    while not enough(foreseen(high)):
        low, high = high, 2 * high
        if high > _MAX_RUNS:
            return None
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if enough(foreseen(middle)) else (middle, high)
    return high


def _foreseen(
    values: Sequence[float],
    metric: str,
    runs: int,
    *,
    error: float = 1 - CONFIDENCE,
) -> Interval:
    """Return an estimate of the interval after `runs` runs similar to the known ones."""
    known = [value for value in values if not math.isnan(value)]
    if known and is_share(metric) and not (ratio := _Ratio.of(known)).is_common:
        return ratio.interval(error, runs=runs)
    now = interval_of(known, metric, error=error)
    if now.method == "range":
        return now
    scale = math.sqrt(len(known) / runs)
    low, high = (now.mean + (end - now.mean) * scale for end in (now.low, now.high))
    return now._replace(low=low, high=high, runs=runs)


def _metric_of(name: str) -> Metric:
    return _KNOWN.get(name.partition("{")[0], _ANY)


_ANY: Final = Metric("", least=-math.inf)
_KNOWN: Final = METRICS | dict.fromkeys(  # what nodes decide otherwise is in a summary, not in rows
    ("admitted_beyond", "refused_below"), Metric("")
)


def _range_of(name: str, *, difference: bool) -> tuple[float, float]:
    metric = _metric_of(name)
    if difference:
        return metric.least - metric.most, metric.most - metric.least
    return metric.least, metric.most


# --- shares --------------------------------------------------------------------------------------


class _Ratio(NamedTuple):
    """A share over runs, and how surely it is known.

    offered: attempts in all. variance: of the total of residuals; freedom: its degrees of freedom.
    least: the variance that is assumed at least. batches: of each run; 1 where a run is a cluster.
    """

    share: float
    offered: float
    variance: float
    freedom: float
    least: float
    batches: int
    runs: int
    seen: int
    episode: float
    residuals: Values
    offered_by_run: Values

    @classmethod
    def of(cls, values: Sequence[float]) -> _Ratio:
        """Return the share of some runs, without NaN."""
        refused, offered = _counts_of(values)
        runs, total = len(refused), float(offered.sum())
        share = min(1.0, float(refused.sum()) / total)
        residuals = refused - share * offered
        whole_refused, whole_offered = refused.sum(axis=1), offered.sum(axis=1)
        are_all_seen = bool((whole_refused > 0).all())
        variance, freedom, batches = _variance(residuals, can_cut=are_all_seen)
        seen = int(min((whole_refused > 0).sum(), (whole_offered > whole_refused).sum()))
        if runs == 1:  # its clusters are its windows
            seen = int(min((refused > 0).sum(), (offered > refused).sum()))
        # The sizes of rare events are known from the clusters alone that saw one.
        freedom = min(freedom, float(seen * batches + 1))
        # At least Poisson's where a run saw nothing, or half an attempt a run.
        least = total * share * (1 - share) if seen < runs else runs / 4
        if not variance and not _are_counted(values):
            least = total**2 * share * (1 - share) / runs  # as if each run were one attempt
        whole_residuals = residuals.sum(axis=1)
        episode = max(value.episode if isinstance(value, Share) else 1.0 for value in values)
        return cls(
            *(share, total, variance, freedom, least, batches, runs, seen, episode),
            *(whole_residuals, whole_offered),
        )

    @property
    def is_common(self) -> bool:
        """Whether enough runs saw an event to show how skewed they are."""
        return self.runs >= _MIN_CLUSTERS and self.seen >= _MIN_CLUSTERS and self.variance > 0

    def relative_residuals(self) -> Values:
        """Return, run by run, what moves the share: residuals over a run's mean offered."""
        return self.residuals / (self.offered / self.runs)

    def jackknife_residuals(self) -> Values:
        """Return the same of the jackknife: how far the share is from what it is without a run.

        A busy run draws the share to itself and so hides a part of its own residual; differences of
        runs that are unlike in traffic would be sure too often.
        """
        others = np.maximum(self.offered - self.offered_by_run, self.offered / self.runs)
        return np.asarray(self.residuals * (self.runs - 1) / others, dtype=np.float64)

    def interval(self, error: float, *, runs: int | None = None) -> Interval:
        """Return the interval; runs: as if so many had been played, similar to these."""
        times = 1.0 if runs is None else runs / self.runs
        if self.is_common and runs is None:
            low, high, how = _of_mean(
                self.share + self.relative_residuals(), error, symmetric=False
            )
            ends = max(0.0, low), min(1.0, high)
            return Interval(self.share, *ends, self.runs, how, 1 - error)
        offered, share = self.offered * times, self.share
        binomial = offered * share * (1 - share)
        confidence, count = 1 - error, self.runs if runs is None else runs
        if not binomial:
            method: Method = "rule of three"
            effective = offered / self.episode
        elif self.freedom < 1:  # one run without enough windows
            return Interval(share, 0.0, 1.0, count, "range", confidence)
        else:
            method = "batch means" if self.batches > 1 else "cluster"
            widened = float(
                student_quantile(self.freedom * times, 1 - error / 2)
                / _NORMAL.inv_cdf(1 - error / 2)
            )
            variance = max(self.variance * times * widened**2, self.least * times)
            effective = offered * binomial / variance
        events = share * effective
        low = high = share
        if events > 0:
            low = beta_quantile(events, effective - events + 1, error / 2)
        if events < effective:
            high = beta_quantile(events + 1, effective - events, 1 - error / 2)
        assumed = None if binomial else self.episode
        ends = min(low, share), max(high, share)
        return Interval(share, *ends, count, method, confidence, assumed)


def _are_counted(values: Sequence[float]) -> bool:
    return all(isinstance(value, Share) for value in values)


def _counts_of(values: Sequence[float]) -> tuple[Values, Values]:
    """Return attempts refused and offered, a row per run, a column per window of time.

    Plain numbers get the same number offered in each run, so that the smallest event is an attempt.
    """
    shares = [value for value in values if isinstance(value, Share)]
    if len(shares) == len(values):
        windows = {len(share.offered) for share in shares}
        if len(windows) == 1:
            refused = np.array([share.refused for share in shares])
            return refused, np.array([share.offered for share in shares])
        refused = np.array([[share.refused.sum()] for share in shares])
        return refused, np.array([[share.offered.sum()] for share in shares])
    numbers: Values = np.array(values, dtype=np.float64)[:, None]
    parts = np.concatenate([numbers, 1 - numbers])
    unit = float(parts[(parts > _MIN_SHARE) & (parts < 1)].min(initial=1.0))
    return numbers / unit, np.full_like(numbers, 1 / unit)


def _variance(residuals: Values, *, can_cut: bool) -> tuple[float, float, int]:
    """Return the variance of the total of residuals, its degrees of freedom, batches of each run.

    can_cut: whether the runs may be cut into batches. Degrees of freedom are 0 where nothing is
    known.
    """
    runs, windows = residuals.shape
    if runs == 1:
        return _variance_of_one(residuals[0])
    whole = float(_between(residuals, 1)[0].sum())
    batches = min(windows, -(-_MIN_CLUSTERS // runs)) if can_cut and runs < _MIN_CLUSTERS else 1
    while batches > 1:
        by_place, deviations = _between(residuals, batches)
        within = float(by_place.sum())
        if not within:
            break
        ratio = whole / within
        freedoms = runs - 1, (runs - 1) * batches
        low, high = (fisher_quantile(*freedoms, level) for level in (_REGULATED, _DOUBT))
        if not _are_correlated(deviations) and low <= ratio <= high:
            # Satterthwaite: the places may have different variances.
            freedom = within**2 / float((by_place**2).sum() / (runs - 1))
            return within, freedom, batches
        batches //= 2
    return whole, runs - 1.0, 1


def _variance_of_one(residuals: Values) -> tuple[float, float, int]:
    """Return the same of a single run: batches that correlate after all count as fewer."""
    batches = len(residuals)
    if batches < _MIN_CLUSTERS:
        return 0.0, 0.0, 1
    while True:
        sums = _batch_sums(residuals[None, :], batches)[0]
        deviations = sums - sums.mean()
        squares = float((deviations**2).sum())
        variance = batches / (batches - 1) * squares
        if not _are_correlated(deviations[None, :]):
            return variance, batches - 1.0, batches
        if batches // 2 < _MIN_CLUSTERS:
            shared = min(float((deviations[1:] * deviations[:-1]).sum()) / squares, _MAX_SHARED)
            inflation = (1 + shared) / (1 - shared)
            return variance * inflation, max(1.0, (batches - 1) / inflation), batches
        batches //= 2


def _between(residuals: Values, batches: int) -> tuple[Values, Values]:
    """Return the variance of each batch's total over runs, and the batches' deviations.

    Batches at the same place of each run are compared, so that a ramp adds no variance.
    """
    runs = len(residuals)
    sums = _batch_sums(residuals, batches)
    deviations = sums - sums.mean(axis=0)
    return runs / (runs - 1) * (deviations**2).sum(axis=0), deviations


def _batch_sums(residuals: Values, batches: int) -> Values:
    starts = np.arange(batches) * residuals.shape[1] // batches
    return np.asarray(np.add.reduceat(residuals, starts, axis=1), dtype=np.float64)


def _are_correlated(deviations: Values) -> bool:
    """Return whether successive batches correlate, at the level of doubt."""
    squares = float((deviations**2).sum())
    if not squares:
        return False
    products = float((deviations[:, 1:] * deviations[:, :-1]).sum())
    pairs = deviations[:, 1:].size if len(deviations) > 1 else deviations.size
    return products / squares * math.sqrt(pairs) >= _NORMAL.inv_cdf(_DOUBT)


def _of_difference(
    mean: float, residuals: Values, differing: int, attempts: float, error: float
) -> Interval:
    """Return Student's t interval of a difference of shares.

    residuals: what each pair adds to it. differing: pairs that differ; where none does, `attempts`
    independent ones bound it.
    """
    method: Method = "t"
    runs = len(residuals)
    if differing and runs > 1:
        freedom = min(runs - 1, differing + 1)
        half = student_quantile(freedom, 1 - error / 2) * _standard_error(residuals)
    elif differing:
        method, half = "range", 2.0
    else:
        method, half = "rule of three", 1 - (error / 2) ** (1 / max(attempts, 1e-9))
    low, high = max(-1.0, mean - half), min(1.0, mean + half)
    return Interval(mean, low, high, runs, method, 1 - error)


# --- means ---------------------------------------------------------------------------------------


def _of_mean(values: Values, error: float, *, symmetric: bool) -> tuple[float, float, Method]:
    """Return the ends of the interval of a mean, and the method.

    symmetric: Student's t suits any number of runs. Otherwise, too few runs to show how skewed
    they are get Student's t at half the error.
    """
    if symmetric or len(values) < _MIN_CLUSTERS:
        level = 1 - (error if symmetric else error / 2) / 2
        half = student_quantile(len(values) - 1, level) * _standard_error(values)
        return float(values.mean()) - half, float(values.mean()) + half, "t"
    return *_bootstrap(values, error), "bootstrap-t"


def _bootstrap(values: Values, error: float) -> tuple[float, float]:
    """Return the bootstrap-t interval; no end is further away than 1.8 times Student's.

    Resamples that hold few distinct values have tiny deviations, and huge pivots.
    """
    count = len(values)
    mean, deviation = float(values.mean()), _standard_error(values)
    resampled = values[_resamples(count)]
    means = resampled.mean(axis=1)
    deviations = resampled.std(axis=1, ddof=1) / math.sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        pivots = np.where(means == mean, 0.0, (means - mean) / deviations)
    pivots.sort()
    place = max(0, math.floor(error / 2 * (_RESAMPLES + 1)) - 1)
    most = 1.8 * student_quantile(count - 1, 1 - error / 2)
    above = min(most, float(pivots[_RESAMPLES - 1 - place]))
    below = max(-most, float(pivots[place]))
    return mean - above * deviation, mean - below * deviation


@functools.lru_cache(maxsize=4)
def _resamples(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return which values each resample takes; they depend on nothing but the count."""
    return np.random.Generator(np.random.Philox(count)).integers(0, count, (_RESAMPLES, count))


def _standard_error(values: Values) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))
