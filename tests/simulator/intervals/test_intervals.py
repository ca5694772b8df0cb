"""Intervals: their ranges, their widths, what they say of thresholds, and how many runs would do.

Whether they cover is `test_coverage.py`'s.
"""

from __future__ import annotations

import math
import pickle

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from scipy import stats

from engine.errors import InputError
from simulator.intervals import (
    Interval,
    Share,
    difference_of,
    independent_difference,
    interval_of,
    is_share,
    judged,
    pooled,
    runs_for_precision,
    runs_for_verdict,
    spent,
)
from simulator.scenario import METRICS, parse_condition

SHARES = st.lists(st.integers(0, 10_000).map(lambda n: n / 10_000), min_size=1, max_size=40)


@given(SHARES)
@settings(max_examples=60, deadline=None)
def test_a_shares_interval_stays_in_its_range_and_has_a_width(values: list[float]) -> None:
    found = interval_of(values, "refused_share{client='c'}")
    assert 0 <= found.low <= found.mean <= found.high <= 1
    assert found.high > found.low
    assert found.runs == len(values)
    mirrored = interval_of([1 - value for value in values], "fairness")
    assert mirrored.low == pytest.approx(1 - found.high, abs=1e-6)


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


def test_a_share_is_refused_over_offered_in_all_runs() -> None:
    """The mean of these runs' shares is 0.5: a run of one attempt would weigh as much as 99."""
    shares = [Share([1], [1]), Share([0], [99])] * 10
    assert interval_of(shares, "refused_share").mean == pytest.approx(0.01)
    assert pooled(shares) == pytest.approx(0.01)


def test_independent_attempts_get_the_exact_binomial_interval() -> None:
    """One attempt a run: the design effect is 1, so the ends are close to Clopper and Pearson's."""
    shares = [Share([k < 4], [1]) for k in range(200)]
    found = interval_of(shares, "refused_share")
    oracle = stats.binomtest(4, 200).proportion_ci(method="exact")
    assert found.method == "cluster"
    assert found.low == pytest.approx(oracle.low, rel=0.6)
    assert found.high == pytest.approx(oracle.high, rel=0.35)
    assert found.high >= oracle.high


def test_what_was_never_refused_rests_on_a_stated_assumption() -> None:
    """More traffic says more, an episode that costs more attempts says less."""
    shares = [Share([0], [10_000], 50.0)] * 10
    found = interval_of(shares, "refused_share")
    assert (found.low, found.method, found.episode) == (0.0, "rule of three", 50.0)
    assert found.high == pytest.approx(1 - 0.025 ** (50 / 100_000))
    longer = interval_of([Share([0], [600_000], 50.0)] * 10, "refused_share")
    assert longer.high < found.high / 50


def test_a_long_run_has_an_interval_of_its_own() -> None:
    rng = np.random.default_rng(3)
    offered = rng.poisson(500, 20)
    found = interval_of(
        [Share(rng.binomial(offered, 0.1).tolist(), offered.tolist())], "refused_share"
    )
    assert (found.method, found.runs) == ("batch means", 1)
    assert 0.005 < found.half_width < 0.02
    unknown = interval_of([Share([50], [500])], "refused_share")
    assert (unknown.low, unknown.high, unknown.method) == (0.0, 1.0, "range")


def test_batches_that_depend_on_each_other_are_merged_into_runs() -> None:
    """Runs that differ by themselves are the clusters, however many windows they have."""
    rng = np.random.default_rng(4)
    rates = rng.uniform(0, 0.4, 5)
    shares = [Share(rng.binomial(500, np.full(20, rate)).tolist(), [500] * 20) for rate in rates]
    found = interval_of(shares, "refused_share")
    assert found.method == "cluster"
    assert found.half_width > 0.08


def test_shares_travel_between_processes_with_their_counts() -> None:
    share = pickle.loads(pickle.dumps(Share([1, 2], [3, 4], 5.0)))  # reason: our own
    assert (share.refused.tolist(), share.offered.tolist(), share.episode) == ([1, 2], [3, 4], 5.0)


def test_few_values_get_students_interval_at_half_the_error() -> None:
    values = [3.0, 4.5, 5.0, 8.0]
    found = interval_of(values, "offered")
    oracle = stats.ttest_1samp(values, 0).confidence_interval(0.975)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))
    assert interval_of([math.nan, 3.0, 5.0], "offered").runs == 2
    assert interval_of([0.0, 0.0, 9.0], "offered").low == 0.0
    difference = interval_of(values, "offered", difference=True)
    oracle = stats.ttest_1samp(values, 0).confidence_interval(0.95)
    assert (difference.low, difference.high) == pytest.approx((oracle.low, oracle.high))


def test_a_skewed_metrics_interval_reaches_further_up() -> None:
    values = np.random.default_rng(7).lognormal(0, 1, 12).tolist()
    found = interval_of(values, "latency_p99")
    assert found.method == "bootstrap-t"
    assert found.high - found.mean > found.mean - found.low
    assert interval_of(values, "latency_p99") == found  # the same resamples each time


def test_a_difference_of_shares_is_that_of_their_totals() -> None:
    """Runs of 10 and of 1,000 attempts: the small ones hardly count."""
    sizes = [10, 1_000] * 10
    before = [Share([size // 10], [size]) for size in sizes]
    after = [Share([size // 5 if size == 10 else size // 10 + 1], [size]) for size in sizes]
    found = difference_of(before, after, "refused_share")
    assert found.method == "t"
    assert found.mean == pytest.approx(pooled(after) - pooled(before))
    assert 0 < found.low < found.high < 0.01
    same = difference_of(before, before, "refused_share")
    assert (same.mean, same.method) == (0.0, "rule of three")
    assert same.low < 0 < same.high


def test_independent_runs_get_welchs_interval() -> None:
    rng = np.random.default_rng(5)
    one, other = rng.normal(10, 1, 12), rng.normal(12, 3, 20)
    found = independent_difference(one.tolist(), other.tolist(), "offered")
    oracle = stats.ttest_ind(other, one, equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((oracle.low, oracle.high))


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
        ("refused_share <= 0.1", (0.02, 0.1), "met"),
        ("refused_share <= 0.1", (0.1001, 0.3), "not met"),
        ("refused_share <= 0.1", (0.02, 0.3), "not decided"),
        ("refused_share < 0.1", (0.02, 0.1), "not decided"),
        ("offered >= 100", (100.0, math.inf), "met"),
        ("offered == 100", (90.0, 110.0), "not decided"),
        ("offered == 100", (101.0, 110.0), "not met"),
        ("offered != 100", (101.0, 110.0), "met"),
        ("offered == 100", (100.0, 100.0), "met"),
    ],
)
def test_a_threshold_is_judged_by_the_whole_interval(
    condition: str, ends: tuple[float, float], verdict: str
) -> None:
    assert judged(parse_condition(condition), Interval(sum(ends) / 2, *ends, 5)) == verdict


def test_no_value_keeps_no_threshold() -> None:
    nothing = interval_of([math.nan], "latency_p99")
    assert judged(parse_condition("latency_p99 <= 1s"), nothing) == "not met"


@pytest.mark.parametrize("rate", [0.0, 0.02, 0.3])
def test_the_runs_that_would_do_do(rate: float) -> None:
    rng = np.random.default_rng(6)
    shares = [Share([refused], [100]) for refused in rng.binomial(100, rate, 400)]
    needed = runs_for_precision(shares[:40], "refused_share", 0.01)
    assert needed is not None
    assert interval_of(shares[:needed], "refused_share").half_width <= 0.014
    fewer = interval_of(shares[: needed // 2], "refused_share")
    assert fewer.half_width > 0.01


def test_the_runs_that_would_decide_decide() -> None:
    condition = parse_condition("refused_share <= 0.01")
    for refused, verdict in ((0, "met"), (4, "met"), (20, "not met")):
        runs = [Share([refused + noise], [1_000]) for noise in (0, 1 if refused else 0)] * 100
        needed = runs_for_verdict(runs[:4], condition)
        assert needed is not None
        assert judged(condition, interval_of(runs[: max(4, needed)], "refused_share")) == verdict
    assert runs_for_verdict([0.01] * 5, condition) is None
    assert runs_for_verdict([math.nan], condition) is None
    scattered = [90.0, 100.0, 111.0]
    assert (runs_for_precision(scattered, "offered", 1.0) or 0) > 100


def test_looks_spend_no_more_than_there_is() -> None:
    assert math.fsum(spent(look, 0.05) for look in range(1, 10_000)) < 0.05


def test_shares_are_what_has_two_bounds() -> None:
    assert {name for name in METRICS if is_share(name)} == {"refused_share", "fairness"}


def test_a_share_is_no_bound_of_a_count() -> None:
    """`refused < 1%` was read as 0.01 requests."""
    with pytest.raises(InputError, match="1% is a share"):
        parse_condition("refused < 1%")
    assert parse_condition("refused_share < 1%").bound == 0.01
