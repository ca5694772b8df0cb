"""Intervals: their ranges, their widths, what they say of thresholds, and how many runs would do.

Whether they cover is `test_coverage.py`'s.
"""

from __future__ import annotations

import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import optimize, stats

from engine.errors import InputError
from simulator.intervals import (
    Interval,
    interval_of,
    is_share,
    judged,
    runs_for_precision,
    runs_for_verdict,
    spent,
)
from simulator.scenario import METRICS, parse_condition

SHARES = st.lists(st.floats(0, 1, allow_subnormal=False), min_size=1, max_size=40)


@given(SHARES)
@settings(max_examples=60, deadline=None)
def test_a_shares_interval_stays_in_its_range_and_has_a_width(values: list[float]) -> None:
    found = interval_of(values, "refused_share{client='c'}")
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.high > found.low
    assert (found.method, found.runs) == ("betting", len(values))
    mirrored = interval_of([1 - value for value in values], "fairness")
    assert mirrored.low == pytest.approx(1 - found.high, abs=1e-9)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.sampled_from(sorted(METRICS)))
@settings(max_examples=80, deadline=None)
def test_no_interval_leaves_its_metrics_range(values: list[float], metric: str) -> None:
    least, most = METRICS[metric].least, METRICS[metric].most
    found = interval_of([min(max(value, least), most) for value in values], metric)
    assert least <= found.low <= found.high <= most
    assert found.high > found.low


@pytest.mark.parametrize("values", [[0.5, 2.0], [-0.5, 0.2]])
def test_values_outside_a_metrics_range_are_refused(values: list[float]) -> None:
    with pytest.raises(InputError, match="values must lie from 0 to 1, the range of the metric"):
        interval_of(values, "refused_share")


def test_five_zeros_say_little_and_a_thousand_say_more() -> None:
    """Five runs without a refusal once were printed as "from 0 to 0", surely."""
    assert interval_of([0.0] * 5, "refused_share").high > 0.4
    assert interval_of([0.0] * 470, "refused_share").high < 0.01
    assert judged(parse_condition("refused_share <= 0.01"), interval_of([0.0] * 5, "refused_share"))


def test_the_ends_are_where_the_capital_reaches_its_bound() -> None:
    """Root finding over the definition, written again, against the bisection."""
    values = [0.1, 0.4, 0.0, 0.3, 0.1]

    def excess(mean: float) -> float:
        stakes = [1.0, *(2.0**-k for k in range(1, 12))]
        parts = [0.5, *[0.5 / 11] * 11]
        capital = sum(
            part * math.prod(1 + stake * (mean - value) / (1 - mean) for value in values)
            for stake, part in zip(stakes, parts, strict=True)
        )
        return capital - 2 / 0.05

    expected = optimize.brentq(excess, 0.18, 0.999, xtol=1e-12)
    assert interval_of(values, "refused_share").high == pytest.approx(expected, abs=1e-9)


def test_a_counts_interval_is_students() -> None:
    values = [3.0, 4.5, 5.0, 8.0]
    found = interval_of(values, "offered")
    oracle = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert interval_of([math.nan, 3.0, 5.0], "offered").runs == 2
    assert interval_of([0.0, 0.0, 9.0], "offered").low == 0.0


def test_a_skewed_metrics_interval_reaches_further_up() -> None:
    values = np.random.default_rng(7).lognormal(0, 1, 12).tolist()
    found = interval_of(values, "latency_p99")
    student = interval_of(values, "offered")
    assert found.method == "bootstrap-t"
    assert found.high - found.mean > found.mean - found.low
    assert found.low <= student.low
    assert found.high >= student.high
    assert interval_of(values, "latency_p99") == found  # the same resamples each time


@pytest.mark.parametrize("values", [[3.0], [2.0, 2.0, 2.0]])
def test_values_that_do_not_differ_tell_the_range_alone(values: list[float]) -> None:
    found = interval_of(values, "refused")
    assert (found.low, found.high, found.method) == (0.0, math.inf, "range")
    exact = interval_of(values, "refused", exact=True)
    assert (exact.low, exact.high, exact.method) == (values[0], values[0], "exact")
    assert interval_of([], "refused").runs == 0


def test_a_difference_of_shares_lies_between_minus_one_and_one() -> None:
    found = interval_of([0.0, 0.1, -0.2], "refused_share", difference=True)
    assert -1 <= found.low < 0 < found.high <= 1
    assert interval_of([1.0, -1.0, 3.0], "offered", difference=True).low < 0


@pytest.mark.parametrize(
    ("condition", "ends", "verdict"),
    [
        ("refused_share <= 0.1", (0.02, 0.1), "kept"),
        ("refused_share <= 0.1", (0.1001, 0.3), "broken"),
        ("refused_share <= 0.1", (0.02, 0.3), "not decided"),
        ("refused_share < 0.1", (0.02, 0.1), "not decided"),
        ("offered >= 100", (100.0, math.inf), "kept"),
        ("offered == 100", (90.0, 110.0), "not decided"),
        ("offered == 100", (101.0, 110.0), "broken"),
        ("offered != 100", (101.0, 110.0), "kept"),
        ("offered == 100", (100.0, 100.0), "kept"),
    ],
)
def test_a_threshold_is_judged_by_the_whole_interval(
    condition: str, ends: tuple[float, float], verdict: str
) -> None:
    assert judged(parse_condition(condition), Interval(sum(ends) / 2, *ends, 5)) == verdict


def test_no_value_keeps_no_threshold() -> None:
    nothing = interval_of([math.nan], "latency_p99")
    assert judged(parse_condition("latency_p99 <= 1s"), nothing) == "broken"


@pytest.mark.parametrize("value", [0.0, 0.3])
def test_the_runs_that_would_do_do(value: float) -> None:
    needed = runs_for_precision([value] * 5, "refused_share", 0.02)
    assert needed is not None
    assert interval_of([value] * needed, "refused_share").half_width <= 0.02
    fewer = interval_of([value] * (needed * 9 // 10), "refused_share")
    assert fewer.half_width > 0.02


def test_the_runs_that_would_decide_decide() -> None:
    condition = parse_condition("refused_share <= 0.01")
    for share, verdict in ((0.0, "kept"), (0.004, "kept"), (0.02, "broken")):
        needed = runs_for_verdict([share] * 5, condition)
        assert needed is not None
        assert judged(condition, interval_of([share] * needed, "refused_share")) == verdict
        fewer = interval_of([share] * (needed * 9 // 10 - 1), "refused_share")
        assert judged(condition, fewer) == "not decided"
    assert runs_for_verdict([0.01] * 5, condition) is None
    assert runs_for_verdict([math.nan], condition) is None
    scattered = [90.0, 100.0, 111.0]
    assert (runs_for_precision(scattered, "offered", 1.0) or 0) > 100


def test_looks_spend_no_more_than_there_is() -> None:
    assert math.fsum(spent(look, 0.05) for look in range(1, 10_000)) < 0.05


def test_shares_are_what_has_two_bounds() -> None:
    assert {name for name in METRICS if is_share(name)} == {"refused_share", "fairness"}
