"""Confidence intervals of a metric's mean over replications, and what they say of a threshold.

A *share* has known bounds, so its interval is a confidence sequence by betting (Waudby-Smith and
Ramdas, "Estimating means of bounded random variables by betting", JRSS B, 2024): for each possible
mean m, a gambler stakes fractions of a capital on "the mean is above m" and on "it is below m". If
m is the mean, neither capital is expected to grow, so by Ville's inequality it reaches 2 / α with a
probability of at most α / 2, ever. The interval is every m that no capital refutes. It needs no
shape of the distribution, and holds for any number of runs, however often one looks in between. The
stakes are a fixed mixture, which is a valid bet as well: half of the capital stakes all it may (the
best against values that do not vary), the rest less and less (the best against values that do).

The difference of a share between paired runs lies in [-1, 1] and gets the same.

Other metrics have no upper bound, and no interval without assumptions exists for them. Attempts
offered add up many independent parts and get Student's t, and so do other differences of paired
runs; metrics that may be skewed, what a limit caps among them, get a bootstrap-t interval (Hall,
"Theoretical comparison of bootstrap confidence intervals", 1988), never narrower than Student's and
at a raised level for few runs. Both need a fixed number of runs: whoever looks repeatedly must
spend the error over the looks (`spent`).

No interval leaves the metric's range. None has zero width, except that of a scenario which draws
nothing at random (*exact*). Where no two values differ, or there is one value, only the range is
known of a metric without an upper bound.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, TypeAlias

import numpy as np

from engine.errors import InputError
from simulator.arguments import FLAG, TEXT, Rule, is_number, list_of, takes
from simulator.scenario.conditions import METRICS, Condition, Metric

CONFIDENCE: Final = 0.95

Method: TypeAlias = Literal["exact", "betting", "t", "bootstrap-t", "range"]
"""How an interval is made; `range` when only the metric's range is known, as values are equal."""
Verdict: TypeAlias = Literal["kept", "broken", "not decided"]

Values: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

_STAKES: Final = np.array([1.0, *(2.0**-k for k in range(1, 12))])
_PARTS: Final = np.array([0.5, *[0.5 / 11] * 11])
"""Fractions of the largest stake, and how the capital is divided among them at first."""
_STEPS: Final = 44
"""Bisection steps on [0, 1]; the ends are exact to 1e-13."""
_RESAMPLES: Final = 1_999
_FEW: Final = 15
"""At this many runs the error that a bootstrap interval may make is halved; see `_bootstrap`."""
_MOST_RUNS: Final = 10_000_000
"""Larger numbers of runs are not reported."""


class Interval(NamedTuple):
    """A mean over runs, and the interval that holds the true mean with `confidence`.

    runs: how many values it is made of, one a run; without any, mean and ends are NaN. An end is
    infinite where nothing is known.
    """

    mean: float
    low: float
    high: float
    runs: int
    method: Method = "range"
    confidence: float = CONFIDENCE

    @property
    def half_width(self) -> float:
        """Half of the distance of the ends."""
        return (self.high - self.low) / 2


@takes(
    values=list_of("a list of numbers, one a run", is_number),
    metric=TEXT,
    exact=FLAG,
    difference=FLAG,
    error=Rule(
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
    """Return the interval of the mean of one value a run; NaN values are left out.

    metric: its name, with or without labels; it says the range and the method. exact: the scenario
    draws nothing at random, so all runs are the same. difference: the values are differences of the
    metric between two runs. error: how often the interval may miss.

    >>> interval_of([0.0] * 5, "refused_share").method
    'betting'
    >>> interval_of([3.0, 4.0, 5.0], "offered").method
    't'
    """
    known = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    confidence = 1 - error
    least, most = _range_of(metric, difference=difference)
    if not len(known):
        nan = float("nan")
        return Interval(nan, nan, nan, 0, "range", confidence)
    mean = math.fsum(known) / len(known)
    if exact:
        return Interval(mean, mean, mean, len(known), "exact", 1.0)
    if math.isfinite(least) and math.isfinite(most):
        return _of_bounded(known, least, most, error, len(known))
    if len(known) == 1 or known.min() == known.max():
        return Interval(mean, least, most, len(known), "range", confidence)
    normal = difference or not metric or _metric_of(metric).is_normal
    low, high = _student(known, error) if normal else _bootstrap(known, error)
    method: Method = "t" if normal else "bootstrap-t"
    return Interval(mean, max(least, low), min(most, high), len(known), method, confidence)


def is_share(metric: str) -> bool:
    """Return whether a metric has known bounds, so that its interval assumes nothing."""
    found = _metric_of(metric)
    return math.isfinite(found.least) and math.isfinite(found.most)


def spent(look: int, error: float = 1 - CONFIDENCE) -> float:
    """Return how much of an error the given look (from 1) may spend.

    All of them together spend no more than the whole: Σ 1 / (k (k + 1)) = 1.

    >>> spent(1, 0.05), round(spent(2, 0.06), 9)
    (0.025, 0.01)
    """
    return error / (look * (look + 1))


def judged(condition: Condition, interval: Interval) -> Verdict:
    """Return whether all of an interval meets a condition, none of it, or some of it.

    Without any value, no condition is met.
    """
    if not interval.runs:
        return "broken"
    low, high, bound = interval.low, interval.high, condition.bound
    if low == high:
        return "kept" if condition.holds(low) else "broken"
    if condition.compare in {"==", "!="}:
        outside = not low <= bound <= high
        is_broken = outside == (condition.compare == "==")
        return ("broken" if is_broken else "kept") if outside else "not decided"
    held = condition.holds(low), condition.holds(high)
    return "kept" if all(held) else "not decided" if any(held) else "broken"


def runs_for_precision(
    values: Sequence[float],
    metric: str,
    half_width: float,
    *,
    difference: bool = False,
) -> int | None:
    """Return about how many runs like these make an interval this narrow; None if too many."""
    return _runs_for(
        values, metric, lambda found: found.half_width <= half_width, difference=difference
    )


def runs_for_verdict(
    values: Sequence[float],
    condition: Condition,
    *,
    error: float = 1 - CONFIDENCE,
) -> int | None:
    """Return about how many runs like these decide a condition; None if too many or never."""
    return _runs_for(
        values, condition.metric, lambda f: judged(condition, f) != "not decided", error=error
    )


def _runs_for(
    values: Sequence[float],
    metric: str,
    enough: Callable[[Interval], bool],
    *,
    difference: bool = False,
    error: float = 1 - CONFIDENCE,
) -> int | None:
    known = np.array([value for value in values if not math.isnan(value)], dtype=np.float64)
    if not len(known):
        return None

    def holds(runs: int) -> bool:
        return enough(_foreseen(known, metric, runs, difference=difference, error=error))

    low, high = 1, max(2, len(known))
    while not holds(high):
        low, high = high, 2 * high
        if high > _MOST_RUNS:
            return None
    while high - low > max(1, low // 64):
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle, high)
    return high


def _foreseen(known: Values, metric: str, runs: int, *, difference: bool, error: float) -> Interval:
    """Return an estimate of the interval after `runs` runs similar to the known ones."""
    least, most = _range_of(metric, difference=difference)
    if math.isfinite(least) and math.isfinite(most):
        return _of_bounded(known, least, most, error, runs)
    now = interval_of(known.tolist(), metric, difference=difference, error=error)
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
    found = _metric_of(name)
    if difference:
        return found.least - found.most, found.most - found.least
    return found.least, found.most


# --- betting -------------------------------------------------------------------------------------


def _of_bounded(known: Values, least: float, most: float, error: float, runs: int) -> Interval:
    """Return the interval after `runs` runs like the known ones, of a metric with bounds."""
    if known.min() < least or known.max() > most:
        raise InputError(f"values must lie from {least:g} to {most:g}, the range of the metric")
    width = most - least
    low, high = _betting((known - least) / width, error, weight=runs / len(known))
    mean = math.fsum(known) / len(known)
    return Interval(mean, least + low * width, least + high * width, runs, "betting", 1 - error)


def _betting(shares: Values, error: float, weight: float) -> tuple[float, float]:
    """Return the ends of the interval of the mean of values in [0, 1].

    weight: every value stands for so many.
    """
    distinct, numbers = np.unique(shares, return_counts=True)
    counts: Values = (numbers * weight).astype(np.float64)
    needed = math.log(2 / error)
    high = _last_unrefuted(distinct, counts, needed)
    low = 1 - _last_unrefuted(1 - distinct[::-1], counts[::-1], needed)
    return max(0.0, low), min(1.0, high)


def _last_unrefuted(shares: Values, counts: Values, needed: float) -> float:
    """Return the largest mean that a gambler on "it is below" does not refute."""
    low, high = float(shares @ counts / counts.sum()), 1.0
    for _ in range(_STEPS):
        middle = (low + high) / 2
        refuted = _log_capital(shares, counts, middle) >= needed
        low, high = (low, middle) if refuted else (middle, high)
    return high


def _log_capital(shares: Values, counts: Values, mean: float) -> float:
    """Return the logarithm of the capital that bets on a mean below `mean`, of 1 at first."""
    if mean >= 1.0:
        return math.inf if shares.min() < 1.0 else 0.0
    gains = (mean - shares) / (1 - mean)  # at least −1: what is staked can be lost, and no more
    with np.errstate(divide="ignore"):
        logs = np.log1p(_STAKES[:, None] * gains) @ counts + np.log(_PARTS)
    top = float(logs.max())
    return top + math.log(float(np.exp(logs - top).sum()))


# --- without bounds ------------------------------------------------------------------------------


def _student(values: Values, error: float) -> tuple[float, float]:
    """Return Student's t interval."""
    from scipy import special  # noqa: PLC0415 # reason: it loads longer than a small run takes

    count = len(values)
    half = float(special.stdtrit(count - 1, 1 - error / 2)) * _standard_error(values)
    return float(values.mean()) - half, float(values.mean()) + half


def _bootstrap(values: Values, error: float) -> tuple[float, float]:
    """Return the bootstrap-t interval, widened to Student's where that reaches further.

    With few runs of a skewed metric both miss too often; the error that they may make is lowered
    to error · n / (n + 15), which the tests have shown to cover log-normal values of σ = 1 from ten
    runs on.
    """
    count = len(values)
    error *= count / (count + _FEW)
    mean, deviation = float(values.mean()), _standard_error(values)
    drawn = values[_resamples(count)]
    means = drawn.mean(axis=1)
    deviations = drawn.std(axis=1, ddof=1) / math.sqrt(count)
    with np.errstate(divide="ignore", invalid="ignore"):
        pivots = np.where(means == mean, 0.0, (means - mean) / deviations)
    pivots.sort()
    place = max(0, math.floor(error / 2 * (_RESAMPLES + 1)) - 1)
    low, high = _student(values, error)
    low = min(low, mean - float(pivots[_RESAMPLES - 1 - place]) * deviation)
    return low, max(high, mean - float(pivots[place]) * deviation)


@functools.lru_cache(maxsize=4)
def _resamples(count: int) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return which values each resample takes; they depend on nothing but the count."""
    return np.random.Generator(np.random.Philox(count)).integers(0, count, (_RESAMPLES, count))


def _standard_error(values: Values) -> float:
    return float(values.std(ddof=1)) / math.sqrt(len(values))
