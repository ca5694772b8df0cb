"""Intervals and searches against the truth: how often they hold it, over many repetitions.

`pools.py` has thirteen kinds of runs whose true value is known, and looks at sets of them as `run`
and `run --precision` do. What an interval promises is a coverage of 95 %. Seeds are fixed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction
from functools import partial
from typing import Final

import numpy as np
import pytest
from scipy import stats

from simulator.intervals import CONFIDENCE, interval_of, spent
from simulator.options import ReplicationBudget
from simulator.scenario import loads, parse_condition
from simulator.study.capacity import Search, Values
from simulator.study.runs import line_of_conditions, replicator
from tests.simulator.intervals.pools import KINDS, Kind, coverage_of, false_alarms

MACROS: Final = 1_000
LEAST: Final = CONFIDENCE - 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / MACROS)
REPETITIONS: Final = 250


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_intervals_hold_the_true_value_and_are_narrow(kind: Kind) -> None:
    """250 repetitions know a coverage to ± 2.8 %; `make bench intervals` makes 500."""
    found = coverage_of(kind, REPETITIONS)
    assert 0.90 <= found.held <= 0.995
    assert found.width <= 1.1 * kind.width


@pytest.mark.slow
def test_runs_of_one_kind_seldom_differ_surely() -> None:
    """Where busy runs are refused more, plain residuals make 8 % of A/A comparisons sure."""
    ratio = next(kind for kind in KINDS if kind.name.startswith("ratio"))
    assert 0.03 <= false_alarms(ratio, 1_000, seed=9) <= 0.07


@pytest.mark.slow
def test_students_interval_misses_where_these_do_not() -> None:
    """Without this, the kinds would be too easy to tell."""
    rare = next(kind for kind in KINDS if kind.name.startswith("rare"))
    rng = np.random.default_rng(7)
    refused, offered = rare.draw(rng, 20 * MACROS)
    shares = (refused.sum(axis=1) / offered.sum(axis=1)).reshape(MACROS, 20)
    half = stats.t.ppf(0.975, 19) * shares.std(axis=1, ddof=1) / math.sqrt(20)
    held = np.abs(shares.mean(axis=1) - shares.mean()) <= half
    assert held.mean() < 0.9


@pytest.mark.slow
def test_spent_error_pays_for_repeated_looks() -> None:
    rng = np.random.default_rng(9)
    values = rng.poisson(60, (300, 80)).astype(float).tolist()

    def missed(spends: bool) -> float:
        count = 0
        for each in values:
            for look, runs in enumerate((5, 10, 20, 40, 80), 1):
                error = spent(look) if spends else 1 - CONFIDENCE
                found = interval_of(each[:runs], "offered", error=error)
                if not found.low <= 60 <= found.high:
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
    conditions = [parse_condition("refused >= 0"), parse_condition("offered >= 0")]
    line = partial(line_of_conditions, conditions)
    with replicator() as player:
        found = player.play(
            loads(ERLANG), range(MACROS * runs), fidelity="compiled", line=line, keep="totals"
        )
    refused, offered = (
        np.array([run.line[name] for run in found]).reshape(MACROS, runs)
        for name in ("refused", "offered")
    )
    for metric, values, mean in (
        ("admitted", offered - refused, 2 * per_window),
        ("offered", offered, 400.0),
    ):
        intervals = [interval_of(each, metric) for each in values.tolist()]
        assert sum(each.low <= mean <= each.high for each in intervals) / MACROS >= LEAST


# --- searches ------------------------------------------------------------------------------------


class _Line(Values):
    """Whole values from 0 to 100, to be searched to neighbours."""

    def __init__(self) -> None:
        super().__init__("0", "100", lambda _: False)

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


def _sudden(value: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
    """A limit that is enough up to 40: nothing is refused, and beyond it 8 % and more at once."""
    beyond = int(value) - 40
    shares = []
    for seed in seeds:
        rng = np.random.Generator(np.random.Philox([5, seed]))
        mean = 0.08 + 0.004 * beyond
        shares.append(float(rng.beta(80 * mean, 80 * (1 - mean))) if beyond > 0 else 0.0)
    return shares, [80.0] * len(shares)


def test_a_border_that_no_line_describes_names_no_wrong_value() -> None:
    """A line through zeros and 25 % said that 1 % is exceeded at values that refuse nothing."""
    condition = parse_condition("refused_share <= 0.01")
    for seed in range(20):
        found = Search(
            _sudden, _Line(), condition, first=3, budget=ReplicationBudget(60), seed=1_000 * seed
        ).run()
        assert found.keeps is None or int(found.keeps) <= 40
        assert found.breaks is not None
        assert 40 < int(found.breaks) <= 60


@pytest.mark.parametrize(("runs", "is_bent"), [(2, False), (10, True)])
def test_the_last_few_runs_of_a_budget_contradict_no_line(runs: int, is_bent: bool) -> None:
    """Two runs of a value below the border may both miss the bound by chance; ten do not."""
    condition = parse_condition("refused_share <= 0.01")
    search = Search(_sudden, _Line(), condition, first=3, budget=ReplicationBudget(60), seed=1)
    search._near[Fraction(38)] = [0.02] * runs
    search._attempts[Fraction(38)] = 80 * runs
    border = interval_of([0.01, 0.02], "refused_share")._replace(mean=40.0)
    assert search._is_bent(border) == is_bent


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
            budget=ReplicationBudget(400),
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
