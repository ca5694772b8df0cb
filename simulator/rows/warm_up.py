"""Help with a run's warm-up and length, from one metric's own series over time.

*Warm-up*: MSER-5 (White, Cobb and Spratt, "A comparison of five steady-state truncation heuristics
for simulation", WSC 2000). The series is cut into batches of five bins. Of all truncations d in the
first half, MSER-5 suggests the one with the smallest standard error of the remaining mean: the sum
of squared deviations from that mean, divided by the square of the number of remaining batches. If
that is the last truncation allowed, the series has no steady part.

*Length*: what is left behind the warm-up is cut into twenty batches, whose means give Student's t
interval. Its half-width shrinks with the square root of the length. Where neighbouring batches
depend on each other, or do not differ at all, nothing is said of a length.

Neither is proof: one run has one start. Replications show how far runs lie apart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from simulator.intervals import interval_of, runs_for_precision

BINS: Final = 180
"""Bins that a run is cut into at most, unless told."""
_BATCH: Final = 5
_LEAST_BATCHES: Final = 10
"""The fewest batches from which a warm-up is estimated."""
_MEANS: Final = 20
_LONGEST: Final = 1e9
"""How much narrower than this run's own interval one can be asked for."""
_DEPENDENT: Final = 2 / math.sqrt(_MEANS)
"""A correlation of neighbours that independent batches seldom reach."""

Values = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class WarmUp:
    """The warm-up that a metric's series suggests.

    series: the metric bin by bin, from the run's start; NaN where a bin has no value. A last bin
    that the run's end cuts is left out. given_ns: the run's warm-up. suggested_ns: the warm-up that
    MSER-5 suggests; None where the series is too short, or does not settle. is_long_enough: whether
    there are 50 bins with a value. mean: of the series behind `suggested_ns`; whole_mean: of all.
    """

    metric: str
    bin_ns: int
    series: tuple[float, ...]
    given_ns: int
    suggested_ns: int | None
    is_long_enough: bool
    mean: float
    whole_mean: float

    @property
    def is_too_short(self) -> bool:
        """Whether the run's warm-up is shorter than the suggested one."""
        return self.suggested_ns is not None and self.given_ns < self.suggested_ns


@dataclass(frozen=True, slots=True)
class RunLength:
    """How long a run, or how many replications, would give a mean this half-width.

    asked: the half-width. half_width: that of this run's own interval, by batch means; None where
    it has none. duration_ns: about how long one run would have to be, its warm-up included.
    replications: about how many runs like the replications of this one; None without any. why_not:
    why there is no duration; empty where there is one.
    """

    metric: str
    asked: float
    half_width: float | None
    duration_ns: int | None
    replications: int | None
    why_not: str = ""


def mser_5(values: Sequence[float]) -> int | None:
    """Return how many of the first values to leave out, a multiple of 5; None for no answer.

    There is none for fewer than 50 values, and where the series does not settle in its first half.

    >>> mser_5([9.0] * 10 + [1.0, 2.0] * 40), mser_5([1.0] * 100), mser_5(range(100))
    (10, 0, None)
    """
    count = len(values) // _BATCH
    if count < _LEAST_BATCHES:
        return None
    known: Values = np.asarray(values, dtype=np.float64)[: count * _BATCH]
    batches = known.reshape(count, _BATCH).mean(axis=1)
    most = count // 2
    errors = np.array([_squares(batches[d:]) / (count - d) ** 2 for d in range(most + 1)])
    # Of truncations that are equal but for rounding, the shortest.
    slack = 1e-12 * float(np.square(batches).max()) / count
    best = int(np.flatnonzero(errors <= errors.min() * (1 + 1e-9) + slack)[0])
    return None if best == most else best * _BATCH


def _squares(values: Values) -> float:
    return float(np.square(values - values.mean()).sum())


def warm_up_of(
    metric: str, series: Sequence[float], *, bin_ns: int, end_ns: int, given_ns: int = 0
) -> WarmUp:
    """Return what a series says of the warm-up; bins without a value (NaN) are passed over."""
    whole: Values = np.asarray(series[: end_ns // bin_ns], dtype=np.float64)
    places = np.flatnonzero(~np.isnan(whole))
    values = whole[places]
    cut = mser_5(values.tolist())
    suggested_ns = None
    if cut is not None:
        # Keep the start if nothing is cut; else cut everything before the first bin kept.
        suggested_ns = int(places[cut]) * bin_ns if cut else 0
    return WarmUp(
        metric,
        bin_ns,
        tuple(whole.tolist()),
        given_ns,
        suggested_ns,
        len(values) >= _BATCH * _LEAST_BATCHES,
        _mean(values[cut or 0 :]),
        _mean(values),
    )


def _mean(values: Values) -> float:
    return float(values.mean()) if len(values) else math.nan


def run_length_of(
    warm_up: WarmUp, half_width: float, *, end_ns: int, of_runs: Sequence[float] = ()
) -> RunLength:
    """Return how long a run would give a half-width, by what stays behind the warm-up.

    of_runs: the metric of each replication.
    """
    start_ns = max(warm_up.given_ns, warm_up.suggested_ns or 0)
    whole: Values = np.asarray(warm_up.series[-(-start_ns // warm_up.bin_ns) :], dtype=np.float64)
    values = whole[~np.isnan(whole)]
    runs = [value for value in of_runs if not math.isnan(value)]
    needed = runs_for_precision(runs, warm_up.metric, half_width) if len(runs) > 1 else None

    def answer(now: float | None, duration_ns: int | None, why_not: str = "") -> RunLength:
        return RunLength(warm_up.metric, half_width, now, duration_ns, needed, why_not)

    if warm_up.suggested_ns is None and warm_up.is_long_enough:
        return answer(None, None, "the series does not settle in this run")
    if len(values) < 2 * _MEANS:
        return answer(None, None, f"fewer than {2 * _MEANS} bins have a value")
    size = len(values) // _MEANS
    means = values[len(values) - size * _MEANS :].reshape(_MEANS, size).mean(axis=1)
    if means.min() == means.max():
        return answer(None, None, "the batches of this run do not differ")
    if _neighbours(means) > _DEPENDENT:
        return answer(None, None, "neighbouring batches of this run depend on each other")
    now = interval_of(means.tolist()).half_width
    if now <= half_width:
        return answer(now, end_ns)
    if now > half_width * _LONGEST:
        return answer(now, None, "no run is so long")
    return answer(now, start_ns + math.ceil((end_ns - start_ns) * (now / half_width) ** 2))


def _neighbours(means: Values) -> float:
    """Return the correlation of each mean with the next."""
    apart: Any = means - means.mean()
    return float((apart[1:] * apart[:-1]).sum() / np.square(apart).sum())
