"""Quantiles of the beta, Student's and Fisher's distributions, and a Latin hypercube.

They are what intervals, fits and sweeps need of scipy, whose installation takes a quarter of the
space of all packages. All three are quantiles of the beta distribution, whose distribution function
is a continued fraction (Abramowitz and Stegun, 26.5.8). Tests compare them with scipy.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Final

import numpy as np

_PRECISION: Final = 1e-15
_MOST_TERMS: Final = 10_000
_MOST_STEPS: Final = 2_000
_TINY: Final = 1e-300


@lru_cache(maxsize=4096)
def beta_quantile(a: float, b: float, probability: float) -> float:
    """Return x with I(x; a, b) = probability, for a and b above 0.

    >>> round(beta_quantile(2.0, 3.0, 0.5), 6)
    0.385728
    """
    if probability <= 0.0 or probability >= 1.0:
        return 0.0 if probability <= 0.0 else 1.0
    low, high, x = 0.0, 1.0, a / (a + b)
    for _ in range(_MOST_STEPS):
        excess = beta_probability(a, b, x) - probability
        low, high = (low, x) if excess > 0.0 else (x, high)
        if excess == 0.0 or high - low <= _PRECISION * high:
            break
        if high <= _TINY:
            break
        slope = math.exp(_log_density(a, b, x))
        following = x - excess / slope if slope > 0.0 else low
        if not low < following < high:  # Newton's step leaves the bracket
            is_near = low > high / 4
            root = math.sqrt(max(low, _TINY)) * math.sqrt(high)  # their product may be below 1e-308
            following = (low + high) / 2 if is_near else root
        if abs(following - x) <= _PRECISION * x:
            break
        x = following
    return x


def student_quantile(freedom: float, probability: float) -> float:
    """Return the quantile of Student's t, by its degrees of freedom.

    >>> round(student_quantile(4, 0.975), 4)
    2.7764
    """
    if probability == 0.5:
        return 0.0
    x = beta_quantile(freedom / 2, 0.5, 2 * min(probability, 1 - probability))
    return math.copysign(math.sqrt(freedom * (1 - x) / x), probability - 0.5)


def fisher_quantile(upper: float, lower: float, probability: float) -> float:
    """Return the quantile of Fisher's F, by the degrees of freedom of its two parts.

    >>> round(fisher_quantile(5, 10, 0.95), 4)
    3.3258
    """
    x = beta_quantile(upper / 2, lower / 2, probability)
    return lower * x / (upper * (1 - x))


def beta_probability(a: float, b: float, x: float) -> float:
    """Return I(x; a, b), the distribution function of the beta distribution."""
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 1.0
    front = math.exp(_log_density(a, b, x) + math.log(x) + math.log1p(-x))
    if x <= (a + 1) / (a + b + 2):
        return front * _fraction(a, b, x) / a
    return 1.0 - front * _fraction(b, a, 1 - x) / b


def latin_hypercube(samples: int, axes: int, seed: int) -> list[list[float]]:
    """Return points of [0, 1): on each axis, one in each of `samples` equal parts."""
    random = np.random.default_rng(seed)
    places = np.stack([random.permutation(samples) for _ in range(axes)], axis=1)
    points: list[list[float]] = ((places + random.random((samples, axes))) / samples).tolist()
    return points


def log_gamma(values: np.ndarray[Any, np.dtype[np.float64]]) -> np.ndarray[Any, Any]:
    """Return ln Γ of each value."""
    distinct, places = np.unique(values, return_inverse=True)
    return np.array([math.lgamma(value) for value in distinct.tolist()])[places]


def _log_density(a: float, b: float, x: float) -> float:
    whole = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    return whole + (a - 1) * math.log(x) + (b - 1) * math.log1p(-x)


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function, by Lentz's method."""
    upper = 1.0
    lower = 1.0 / _away_from_zero(1.0 - (a + b) * x / (a + 1))
    value = lower
    for m in range(1, _MOST_TERMS):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            lower = 1.0 / _away_from_zero(1.0 + term * lower)
            upper = _away_from_zero(1.0 + term / upper)
            change = upper * lower
            value *= change
        if abs(change - 1.0) < _PRECISION:
            break
    return value


def _away_from_zero(value: float) -> float:
    return value if abs(value) > _TINY else _TINY
