"""Thirteen kinds of runs whose true value is known, to judge intervals by.

A pool is many runs of one kind; its own total is the truth, and sets of runs are drawn from it.
What a limiter does to traffic makes the kinds: excess over a limit, blocks, bursts, clients that
retry. None of this shares code with `simulator.intervals`, but for `Share` that carries the counts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from simulator.intervals import (
    WINDOWS,
    Interval,
    Share,
    difference_of,
    interval_of,
    sequential_error,
)
from simulator.options import ReplicationBudget
from simulator.study.runs import FIRST, until_precise

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Counts: TypeAlias = tuple[Array, Array]
"""Attempts refused and offered, a row per run, a column per window."""

POOL_RUNS: Final = 12_000
_PRECISION: Final = 0.04


@dataclass(frozen=True)
class Kind:
    """A kind of runs. draw: makes a pool of so many. width: the largest, over the ideal one."""

    name: str
    runs: int
    draw: Callable[[np.random.Generator, int], Any]
    form: Literal["share", "mean", "difference", "precision"] = "share"
    metric: str = "refused_share"
    width: float = 1.3


@dataclass(frozen=True)
class Coverage:
    """How often intervals held the truth, and their mean width over the ideal one."""

    held: float
    width: float
    method: str
    runs: float


def coverage_of(kind: Kind, repetitions: int, seed: int = 7) -> Coverage:
    """Draw sets of runs of a kind, and judge their intervals."""
    rng = np.random.default_rng(seed)
    pool = kind.draw(rng, POOL_RUNS)
    truth = _truth(kind, pool)
    intervals = [
        _interval(kind, pool, rng.choice(POOL_RUNS, min(40 * kind.runs, 400), replace=False))
        for _ in range(repetitions)
    ]
    held = sum(each.low <= truth <= each.high for each in intervals) / repetitions
    estimates = np.array([each.mean for each in intervals])
    # The width that the true variance allows: of a normal interval around the same estimates.
    ideal = 2 * 1.96 * math.sqrt(float(((estimates - truth) ** 2).mean()))
    finite = [2 * each.half_width for each in intervals if math.isfinite(each.half_width)]
    methods = [each.method for each in intervals]
    return Coverage(
        held,
        float(np.mean(finite)) / ideal,
        max(set(methods), key=methods.count),
        float(np.mean([each.runs for each in intervals])),
    )


def false_alarms(kind: Kind, repetitions: int, seed: int = 7) -> float:
    """Return how often two sets of runs of one kind differ surely."""
    rng = np.random.default_rng(seed)
    pool = kind.draw(rng, POOL_RUNS)
    alarms = 0
    for _ in range(repetitions):
        drawn = rng.choice(POOL_RUNS, 2 * kind.runs, replace=False)
        one, other = (shares_of(pool, half) for half in np.split(drawn, 2))
        change = difference_of(one, other, "refused_share")
        alarms += not change.low <= 0 <= change.high
    return alarms / repetitions


def _truth(kind: Kind, pool: Any) -> float:
    if kind.form == "mean":
        return float(pool.mean())
    if kind.form == "difference":
        return _share_of(pool[1]) - _share_of(pool[0])
    return _share_of(pool)


def _share_of(counts: Counts) -> float:
    return float(counts[0].sum() / counts[1].sum())


def _interval(kind: Kind, pool: Any, drawn: Array) -> Interval:
    chosen = drawn[: kind.runs]
    if kind.form == "mean":
        return interval_of(pool[chosen].tolist(), kind.metric)
    if kind.form == "difference":
        before, after = (shares_of(counts, chosen) for counts in pool)
        return difference_of(before, after, kind.metric)
    if kind.form == "precision":
        return _to_precision(shares_of(pool, drawn))
    return interval_of(shares_of(pool, chosen), kind.metric)


def _to_precision(shares: Sequence[Share]) -> Interval:
    """Look again and again, as `run --precision` does, until the interval is narrow enough."""
    intervals: list[Interval] = []

    def look(runs: int) -> list[Interval]:
        error = sequential_error(sum(0 < share < 1 for share in shares[:runs]), runs)
        intervals.append(interval_of(shares[:runs], "refused_share", error=error))
        return intervals[-1:]

    until_precise(_PRECISION, FIRST, ReplicationBudget(len(shares)), look, lambda _: None)
    return intervals[-1]


def shares_of(counts: Counts, chosen: Array) -> list[Share]:
    """Return the shares of some runs of a pool."""
    return [Share(*pair) for pair in zip(counts[0][chosen], counts[1][chosen], strict=True)]


# --- pools ---------------------------------------------------------------------------------------


def _excess(rng: np.random.Generator, runs: int, mean: float, limit: int, size: int = 1) -> Counts:
    """Poisson traffic of `size` limiter windows in each window of time; what is over is refused."""
    offered = rng.poisson(mean, (runs, WINDOWS, size))
    return np.maximum(0, offered - limit).sum(axis=2), offered.sum(axis=2)


def _skewed(rng: np.random.Generator, runs: int) -> Counts:
    offered = rng.poisson(100, (runs, WINDOWS))
    rate = 0.03 * rng.lognormal(0, 0.7, (runs, 1))
    return rng.binomial(offered, np.minimum(rate, 1)), offered


def _bursts(rng: np.random.Generator, runs: int) -> Counts:
    """A window in four has a burst of three times the traffic, most of which is refused."""
    is_burst = rng.random((runs, WINDOWS)) < 0.25
    offered = rng.poisson(np.where(is_burst, 300, 100))
    return rng.binomial(offered, np.where(is_burst, 0.6, 0.01)), offered


def _blocks(rng: np.random.Generator, runs: int) -> Counts:
    """Blocks begin at random and refuse all of two windows."""
    begins = rng.random((runs, WINDOWS + 1)) < 0.1
    is_shut = begins[:, 1:] | begins[:, :-1]
    offered = rng.poisson(50, (runs, WINDOWS))
    return np.where(is_shut, offered, 0), offered


def _heavy(rng: np.random.Generator, runs: int) -> Counts:
    """Sessions of Pareto sizes; a hundred of each window pass."""
    sessions = 20 * (1 + rng.pareto(2.5, (runs, WINDOWS, 3)))
    offered = np.floor(sessions).sum(axis=2)
    return np.maximum(0, offered - 100), offered


def _busy_refuses(rng: np.random.Generator, runs: int) -> Counts:
    """Busy runs are refused more: the mean of the shares is far from the share of all."""
    offered = rng.poisson(20 * rng.gamma(2, 2, (runs, 1)), (runs, WINDOWS))
    return np.maximum(0, offered - 60), offered


def _cycles(rng: np.random.Generator, runs: int) -> Counts:
    """One long run of many bursts of varied lengths."""
    is_burst = (rng.random((runs, WINDOWS, 12)) < 0.4).mean(axis=2)
    offered = rng.poisson(100 + 200 * is_burst)
    return rng.binomial(offered, 0.3 * is_burst), offered


def _with_retries(rng: np.random.Generator, runs: int) -> Array:
    """Requests, and a storm of retries in every other run."""
    storms = rng.exponential(400, runs) * (rng.random(runs) < 0.5)
    return rng.poisson(300, runs) + np.floor(storms)


def _latency(rng: np.random.Generator, runs: int) -> Array:
    """A 99th percentile of 400 exponential latencies."""
    return np.quantile(rng.exponential(1, (runs, 400)), 0.99, axis=1)


def _paired(rng: np.random.Generator, runs: int) -> tuple[Counts, Counts]:
    """The same traffic under a limit of 50 and of 54 in each window."""
    offered = rng.poisson(45 * rng.lognormal(0, 0.2, (runs, 1)), (runs, WINDOWS))
    refused = (np.maximum(0, offered - limit) for limit in (50, 54))
    before, after = ((each, offered) for each in refused)
    return before, after


KINDS: Final = (
    Kind("common", 20, lambda rng, runs: _excess(rng, runs, 45, 45, 3)),
    Kind("common, 5 runs in batches", 5, lambda rng, runs: _excess(rng, runs, 45, 45)),
    Kind("rare: none in 78 % of runs", 20, lambda rng, runs: _excess(rng, runs, 30, 41), width=2.0),
    Kind("skewed", 20, _skewed),
    Kind("bursts, 8 runs in batches", 8, _bursts),
    Kind("blocks", 20, _blocks),
    Kind("heavy tails", 20, _heavy),
    Kind("ratio: busy runs are refused more", 20, _busy_refuses),
    Kind("one long run", 1, _cycles),
    Kind("offered with retries", 20, _with_retries, form="mean", metric="offered"),
    Kind("quantile", 10, _latency, form="mean", metric="latency_p99"),
    Kind("paired difference", 20, _paired, form="difference"),
    Kind("until ± 0.04", 10, _blocks, form="precision"),
)
