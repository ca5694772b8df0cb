"""Intervals and searches against the truth: how often they hold it, over many repetitions.

Each case draws a thousand sets of runs from a distribution whose mean is known, and looks at every
set as `run --precision` and `capacity` do. What an interval promises is a coverage of 95 %; a
thousand repetitions may fall short of it by two standard errors, 1.4 %. Seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import pytest
from scipy import stats

from simulator.intervals import CONFIDENCE, interval_of, spent
from simulator.options import Budget
from simulator.scenario import loads, parse_condition
from simulator.study.capacity import Search
from simulator.study.runs import replicator

MACROS: Final = 1_000
LEAST: Final = CONFIDENCE - 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / MACROS)
Draw = Callable[[np.random.Generator, tuple[int, int]], Any]


@dataclass(frozen=True)
class Case:
    """A metric whose runs are drawn: sizes (macros, runs) to values. mean: the true one."""

    name: str
    metric: str
    draw: Draw
    mean: float
    runs: int
    difference: bool = False


def _sparse(rng: np.random.Generator, size: tuple[int, int]) -> Any:
    return np.where(rng.random(size) < 0.76, 0.0, rng.beta(1, 20, size))


def _all_or_nothing(rng: np.random.Generator, size: tuple[int, int]) -> Any:
    return (rng.random(size) < 0.02).astype(float)


CASES: Final = (
    Case("zero in 76 % of runs", "refused_share", _sparse, 0.24 / 21, 20),
    Case("a rare outage", "refused_share", _all_or_nothing, 0.02, 20),
    Case("near its upper bound", "fairness", lambda r, s: r.beta(60, 1, s), 60 / 61, 20),
    Case("a usual share", "refused_share", lambda r, s: r.beta(2, 8, s), 0.2, 20),
    Case("counts", "offered", lambda r, s: r.poisson(60, s).astype(float), 60.0, 10),
    Case("small counts", "admitted", lambda r, s: r.poisson(4, s).astype(float), 4.0, 20),
    Case("few runs of nodes", "admitted_beyond", lambda r, s: r.exponential(170, s), 170.0, 5),
    Case("skewed", "latency_p99", lambda r, s: r.exponential(1, s), 1.0, 10),
    Case("very skewed", "latency_p99", lambda r, s: r.lognormal(0, 1, s), math.exp(0.5), 20),
    Case(
        "a difference",
        "refused",
        lambda r, s: r.exponential(1.5, s) - r.exponential(1, s),
        0.5,
        10,
        difference=True,
    ),
    Case("skewed and mostly 0", "refused", lambda r, s: 100 * _sparse(r, s), 24 / 21, 20),
)


def covered(case: Case, values: Sequence[Sequence[float]], **flags: Any) -> float:
    """Return the share of sets whose interval holds the true mean."""
    flags = {"difference": case.difference, **flags}
    found = [interval_of(list(each), case.metric, **flags) for each in values]
    assert not any(interval.low == interval.high for interval in found)
    return sum(each.low <= case.mean <= each.high for each in found) / len(found)


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_intervals_hold_the_true_mean(case: Case) -> None:
    values = case.draw(np.random.default_rng(7), (MACROS, case.runs))
    assert covered(case, values.tolist()) >= LEAST


@pytest.mark.slow
def test_students_interval_misses_where_these_do_not() -> None:
    """Without this, the cases would be too easy to tell."""
    values = CASES[0].draw(np.random.default_rng(7), (MACROS, 10))
    half = stats.t.ppf(0.975, 9) * values.std(axis=1, ddof=1) / math.sqrt(10)
    held = np.abs(values.mean(axis=1) - CASES[0].mean) <= half
    assert held.mean() < 0.8


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES[:4], ids=lambda case: case.name)
def test_a_shares_interval_holds_at_every_look(case: Case) -> None:
    """A gambler's capital on the true mean, run by run: it may reach its bound in 5 % of sets."""
    looks = (5, 6, 8, 10, 13, 16, 20, 26, 32, 40)
    values = case.draw(np.random.default_rng(8), (250, looks[-1])).tolist()
    missed = sum(
        any(
            not found.low <= case.mean <= found.high
            for found in (interval_of(each[:look], case.metric) for look in looks)
        )
        for each in values
    )
    assert missed / len(values) <= 0.05


@pytest.mark.slow
def test_spent_error_pays_for_repeated_looks() -> None:
    case = CASES[4]
    values = case.draw(np.random.default_rng(9), (300, 80)).tolist()

    def missed(spends: bool) -> float:
        count = 0
        for each in values:
            for look, runs in enumerate((5, 10, 20, 40, 80), 1):
                error = spent(look) if spends else 1 - CONFIDENCE
                found = interval_of(each[:runs], case.metric, error=error)
                if not found.low <= case.mean <= found.high:
                    count += 1
                    break
        return count / len(values)

    assert missed(spends=True) <= 0.05 < missed(spends=False)


# --- an analytic answer, played ------------------------------------------------------------------

ERLANG: Final = """
duration = "20s"
tenants = [{ name = "t" }]
applications = [{ name = "a", tenant = "t", kind = "private" }]
[choices.limits]
algorithm = "fixed-window"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "200/10s" }
"""
"""Two windows of LIM-CREATE, 200 in 10 s, each of a Poisson number of attempts."""


@pytest.mark.slow
def test_intervals_hold_an_analytic_answer() -> None:
    """Admitted are min(N, 200) of each window's Poisson number N; sets of five runs."""
    numbers = np.arange(0, 400)
    per_window = float(stats.poisson.pmf(numbers, 200) @ np.minimum(numbers, 200))
    runs = 5
    only = [parse_condition("refused >= 0"), parse_condition("offered >= 0")]
    with replicator() as player:
        found = player.play(
            loads(ERLANG), range(MACROS * runs), fidelity="compiled", check=False, only=only
        )
    refused, offered = (
        np.array([run.line[name] for run in found]).reshape(MACROS, runs)
        for name in ("refused", "offered")
    )
    for metric, values, mean in (
        ("admitted", offered - refused, 2 * per_window),
        ("offered", offered, 400.0),
    ):
        case = Case("played", metric, CASES[0].draw, mean, runs)
        assert covered(case, values.tolist()) >= LEAST


# --- searches ------------------------------------------------------------------------------------


class _Line:
    """Values from 0 to 100, whole or not."""

    low, high = Fraction(0), Fraction(100)
    is_whole = True

    def text(self, number: Fraction) -> str:
        return str(int(number))

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        del tolerance
        middle = Fraction((low + high) // 2)
        return None if middle in {low, high} else middle


class _Drawn:
    """A metric that rises with the value: its mean is value / 200, so the border is at 20."""

    def __init__(self, macro: int, *, is_sparse: bool) -> None:
        self._macro = macro
        self._is_sparse = is_sparse

    def __call__(self, value: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
        mean = int(value) / 200
        found = []
        for seed in seeds:
            rng = np.random.Generator(np.random.Philox([self._macro, seed]))
            if self._is_sparse:
                found.append(float(rng.random() < mean))
            else:
                found.append(float(rng.beta(8 * mean, 8 * (1 - mean))) if 0 < mean < 1 else mean)
        return found, [1.0] * len(found)


class _Misleading:
    """Above 20 its pilots are far from the border of 0.1, and all later runs near it."""

    def __init__(self) -> None:
        self.runs: dict[str, int] = {}

    def __call__(self, value: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
        self.runs[value] = self.runs.get(value, 0) + len(seeds)
        above = [0.2 if seed < 5 else 0.154 if seed % 2 else 0.054 for seed in seeds]
        return above if int(value) > 20 else [0.01] * len(seeds), [1.0] * len(seeds)


def test_a_trial_ends_once_its_budget_is_seen_not_to_decide() -> None:
    """Some 2 000 runs would decide a mean of 0.104: a hundred of a thousand show that."""
    player = _Misleading()
    condition = parse_condition("refused_share <= 0.1")
    found = Search(player, _Line(), condition, budget=Budget(1_000)).run()
    assert found.breaks is None
    tried = [runs for value, runs in player.runs.items() if int(value) > 20 and runs > 5]
    assert tried
    assert max(tried) < 300


def wrong_and_decided(searches: int, *, is_sparse: bool) -> tuple[float, float]:
    """Return the shares of searches that named a wrong value, and that decided both sides."""
    condition = parse_condition("refused_share <= 0.1")
    wrong = decided = 0
    for macro in range(searches):
        found = Search(
            _Drawn(macro, is_sparse=is_sparse),
            _Line(),
            condition,
            first=5,
            budget=Budget(200),
            seed=0,
        ).run()
        keeps, breaks = (None if end is None else int(end) for end in (found.keeps, found.breaks))
        wrong += (keeps is not None and keeps > 20) or (breaks is not None and breaks <= 20)
        decided += keeps is not None and breaks is not None
    return wrong / searches, decided / searches


@pytest.mark.slow
@pytest.mark.parametrize("is_sparse", [True, False])
def test_a_capacity_is_wrong_in_at_most_one_of_twenty(*, is_sparse: bool) -> None:
    """The search looks again and again, at many values, and chooses by what it saw.

    A sample of 100: `python -m tests.benchmarks --big intervals` makes a thousand of each.
    """
    wrong, decided = wrong_and_decided(100, is_sparse=is_sparse)
    assert wrong <= 0.05
    assert is_sparse or decided > 0.5  # what is all or nothing takes more runs
