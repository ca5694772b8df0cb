"""Quantiles are those of scipy; a Latin hypercube has one point in each part of each axis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from simulator.quantiles import (
    beta_probability,
    beta_quantile,
    fisher_quantile,
    latin_hypercube,
    log_gamma,
    student_quantile,
)

PARAMETERS = st.floats(-0.3, 4.5).map(lambda power: 10**power)
PROBABILITIES = st.floats(1e-6, 1 - 1e-6)


@given(PARAMETERS, PARAMETERS, PROBABILITIES)
def test_the_beta_quantile_is_that_of_scipy(a: float, b: float, probability: float) -> None:
    x = beta_quantile(a, b, probability)
    assert x == pytest.approx(special.betaincinv(a, b, probability), rel=1e-7)
    assert beta_probability(a, b, x) == pytest.approx(probability, rel=1e-7)


@given(st.floats(1, 1_000), PROBABILITIES)
def test_students_quantile_is_that_of_scipy(freedom: float, probability: float) -> None:
    expected = float(special.stdtrit(freedom, probability))
    assert student_quantile(freedom, probability) == pytest.approx(expected, rel=1e-6, abs=1e-6)


@given(st.integers(1, 2_000), st.integers(1, 2_000), PROBABILITIES)
def test_fishers_quantile_is_that_of_scipy(upper: int, lower: int, probability: float) -> None:
    expected = float(special.fdtri(upper, lower, probability))
    assert fisher_quantile(upper, lower, probability) == pytest.approx(expected, rel=1e-6)


def test_the_ends_of_the_beta_quantile() -> None:
    assert (beta_quantile(2, 3, 0), beta_quantile(2, 3, 1)) == (0, 1)
    assert beta_quantile(0.005, 3, 0.0125) < 1e-299, "the true one is below the least number"
    assert student_quantile(7, 0.5) == 0
    assert math.isclose(student_quantile(7, 0.025), -student_quantile(7, 0.975))


def test_the_logarithm_of_gamma_is_that_of_scipy() -> None:
    values = np.array([0.5, 3.0, 3.0, 1e5])
    assert log_gamma(values) == pytest.approx(special.gammaln(values), rel=1e-12)


@given(st.integers(1, 50), st.integers(1, 5), st.integers(0, 1 << 40))
def test_a_latin_hypercube_has_one_point_in_each_part(samples: int, axes: int, seed: int) -> None:
    points = np.array(latin_hypercube(samples, axes, seed))
    assert points.shape == (samples, axes)
    for axis in points.T:
        assert sorted(np.floor(axis * samples).astype(int)) == list(range(samples))
    assert latin_hypercube(samples, axes, seed) == points.tolist()
