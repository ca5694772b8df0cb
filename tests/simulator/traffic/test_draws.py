"""Draws: scipy's distributions are the oracle, and the rounding is one stated rule."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from simulator.traffic import draws
from simulator.traffic.draws import Stream

_OPEN = st.floats(2.0**-53, 1 - 2.0**-53)


@given(_OPEN)
def test_the_normal_quantile_is_scipys(u: float) -> None:
    assert math.isclose(draws.normal(u), float(stats.norm.ppf(u)), rel_tol=4e-15, abs_tol=1e-16)


@given(st.floats(-700, 700))
def test_the_exponential_function_is_exact_to_two_places(x: float) -> None:
    exact = math.exp(x)
    assert abs(draws.raise_e(x) - exact) <= 2 * math.ulp(exact)


@pytest.mark.parametrize(
    ("draw", "oracle"),
    [
        (lambda u: draws.exponential_ns(u, 2e9), stats.expon(scale=2e9)),
        (lambda u: draws.lognormal_ns(u, 10**9, 0.5), stats.lognorm(0.5, scale=1e9)),
        (lambda u: draws.pareto_ns(u, 10**9, 1.5), stats.pareto(1.5, scale=1e9)),
        (lambda u: draws.uniform_ns(u, 10**9, 3 * 10**9), stats.uniform(1e9, 2e9)),
    ],
)
def test_a_duration_has_its_distribution(draw: object, oracle: object) -> None:
    stream = Stream(11, "oracle")
    sample = [draw(stream.uniform()) for _ in range(5_000)]  # type: ignore[operator] # reason: parametrised
    assert all(isinstance(value, int) for value in sample)
    assert stats.kstest(sample, oracle.cdf).pvalue > 0.001  # type: ignore[attr-defined] # reason: parametrised


@given(st.floats(0, 1e15))
def test_a_duration_is_the_nearest_nanosecond(duration: float) -> None:
    assert abs(draws.nearest_ns(duration) - duration) <= 0.5


def test_no_duration_leaves_its_bounds() -> None:
    assert draws.nearest_ns(-5.0) == 0
    assert draws.nearest_ns(0.5) == 1
    assert draws.nearest_ns(1e30) == draws.LONGEST_NS
    assert draws.pareto_ns(1 - 2.0**-53, 10**12, 0.05) == draws.LONGEST_NS


@pytest.mark.parametrize("exponent", [0.0, 0.8, 1.1, 2.0])
def test_zipf_ranks_have_scipys_shares(exponent: float) -> None:
    count = 50
    table = draws.cumulative_weights(draws.zipf_weights(count, exponent))
    stream = Stream(3, f"zipf {exponent}")
    seen = Counter(draws.categorical(stream.uniform(), table) for _ in range(20_000))
    shares = stats.zipfian(exponent, count).pmf(np.arange(1, count + 1))
    observed = [seen[rank] for rank in range(count)]
    assert stats.chisquare(observed, shares * 20_000).pvalue > 0.001


@given(st.lists(st.floats(0, 10), min_size=1, max_size=8), _OPEN)
def test_a_choice_of_weight_zero_is_never_made(weights: list[float], u: float) -> None:
    if sum(weights) > 0:
        assert weights[draws.categorical(u, draws.cumulative_weights(weights))] > 0
