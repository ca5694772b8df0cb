"""Named random streams, and draws from them by inverse transform sampling.

Philox4x64-10 (Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11)
turns a counter and a key into four 64-bit words; there is no state besides the counter. The key is
(seed, stream number), and a stream's number is a hash of its name, `group/member/purpose`. So
adding a client, or a draw in one client, moves no draw of any other. `Stream` takes the words from
numpy in blocks; word i of a stream is word i mod 4 of block i div 4 + 1. The tests hold them equal
to the definition (`tests.oracles.streams`) word for word.

Every draw that reaches a decision is made here, one number in (0, 1) in and one value out: a
duration, a choice, a rank. So the simulator's fidelities make the same decisions bit for bit. Only
+ − × ÷, `sqrt`, `floor`, `ldexp` and the scalar `math.log` are used: they give the same bits
interpreted and compiled, where a vectorised logarithm differs in the last place now and then.

Durations come back in whole nanoseconds by one rule: the nearest, halves up, never below 0
(`nearest_ns`).
"""

from __future__ import annotations

import hashlib
import math
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Final

import numpy as np

BALANCE_STREAM: Final = "nodes/balance"
"""The stream of a balancer that chooses nodes at random."""

_MASK: Final = (1 << 64) - 1

_FIRST_BLOCK_WORDS: Final = 8
_LAST_BLOCK_WORDS: Final = 1024

UNIT: Final = 2.0**-52


@lru_cache(maxsize=1 << 19)
def stream_number(name: str) -> int:
    """Return the 64-bit number of the stream named `name`, the same in every run.

    >>> stream_number("browsers/17/think") == stream_number("browsers/17/think")
    True
    """
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


class Stream:
    """One source of numbers in (0, 1): the words of Philox under (seed, number of the name).

    The number of a word w is (⌊w / 2¹²⌋ + ½) · 2⁻⁵²: exact in a double, never 0 and never 1, so
    that its logarithm and every quantile of it are finite.

    seed: 0 to 2⁶⁴ − 1; name: any text.

    >>> a, b = Stream(7, "x"), Stream(7, "x")
    >>> [a.uniform() for _ in range(20)] == [b.uniform() for _ in range(20)]
    True
    """

    __slots__ = ("uniform",)

    uniform: Callable[[], float]
    """Returns the next number in (0, 1)."""

    def __init__(self, seed: int, name: str) -> None:
        assert 0 <= seed <= _MASK, "a seed has 64 bits"
        key = np.array([seed, stream_number(name)], dtype=np.uint64)
        self.uniform = _numbers(np.random.Philox(key=key)).__next__


def _numbers(source: np.random.Philox) -> Iterator[float]:
    block_words = _FIRST_BLOCK_WORDS
    while True:
        words = source.random_raw(block_words)
        yield from (((words >> np.uint64(12)).astype(np.float64) + 0.5) * UNIT).tolist()
        block_words = min(4 * block_words, _LAST_BLOCK_WORDS)


LONGEST_NS: Final = 1 << 60
"""No draw is longer than this (36 years), so that sums of instants stay in 64 bits."""


def nearest_ns(duration: float) -> int:
    """Return `duration`, in ns, as a whole number: the nearest, halves up, in [0, 2⁶⁰].

    >>> nearest_ns(1.5), nearest_ns(1.49), nearest_ns(-3.0)
    (2, 1, 0)
    """
    if duration <= 0.0:
        return 0
    if duration >= LONGEST_NS:
        return LONGEST_NS
    return math.floor(duration + 0.5)


def uniform_ns(u: float, low_ns: int, high_ns: int) -> int:
    """Return a duration spread evenly over [low_ns, high_ns]."""
    return low_ns + nearest_ns(u * (high_ns - low_ns))


def exponential_ns(u: float, mean_ns: float) -> int:
    """Return an exponential duration: −mean · ln(1 − u).

    >>> exponential_ns(0.5, 1_000_000_000)
    693147181
    """
    return nearest_ns(-math.log(1.0 - u) * mean_ns)


def exponential_area(u: float) -> float:
    """Return how many requests are due on average until the next one of a Poisson process."""
    return -math.log(1.0 - u)


def requests_within(length_ns: float, low: float, high: float, into_ns: float) -> float:
    """Return how many requests a straight piece of a rate holds on average behind `into_ns`.

    low, high: its first rate and its last one, in requests a nanosecond.
    """
    slope = (high - low) / length_ns if length_ns else 0.0
    return (low + slope * (into_ns + length_ns) * 0.5) * (length_ns - into_ns)


def time_until(
    due: float, length_ns: float, low: float, high: float, into_ns: float
) -> float | None:
    """Return how far into a piece `due` requests have come since `into_ns`; None behind its end.

    Solves rate · x + slope · x² / 2 = due in the form that loses no digits as the slope vanishes.
    """
    if length_ns <= 0:
        return None
    slope = (high - low) / length_ns
    rate = low + slope * into_ns
    under_root = rate * rate + 2.0 * slope * due
    if under_root < 0.0:
        return None
    below = rate + math.sqrt(under_root)
    if below <= 0.0:
        return None
    at_ns = into_ns + 2.0 * due / below
    return at_ns if at_ns < length_ns else None


def lognormal_ns(u: float, median_ns: int, sigma: float) -> int:
    """Return a lognormal duration: median · e^(sigma · z), z standard normal."""
    return nearest_ns(median_ns * raise_e(sigma * normal(u)))


def pareto_ns(u: float, least_ns: int, alpha: float) -> int:
    """Return a Pareto duration: least · (1 − u)^(−1/alpha)."""
    return nearest_ns(least_ns * raise_e(-math.log(1.0 - u) / alpha))


def categorical(u: float, cumulative: Sequence[float]) -> int:
    """Return the place that `u` falls on; `cumulative` as `cumulative_weights` gives it.

    >>> table = cumulative_weights([9, 1])
    >>> categorical(0.89, table), categorical(0.91, table)
    (0, 1)
    """
    place = bisect_right(cumulative, u * cumulative[-1])
    last = len(cumulative) - 1
    return min(place, last)


def cumulative_weights(weights: Sequence[float]) -> list[float]:
    """Return the running sums of `weights`; the last is the total, above 0."""
    assert weights, "at least one weight"
    assert min(weights) >= 0, "weights are not negative"
    sums = list(accumulate(weights))
    assert sums[-1] > 0, "some weight is above 0"
    return sums


def zipf_weights(count: int, exponent: float) -> list[float]:
    """Return the weights of ranks 1 … count under a bounded Zipf law, rank^(−exponent)."""
    return [raise_e(-exponent * math.log(rank)) for rank in range(1, count + 1)]


# --- the normal quantile and the exponential function --------------------------------------

_LN2_HIGH: Final = 6.93147180369123816490e-01
_LN2_LOW: Final = 1.90821492927058770002e-10
_LOG2_E: Final = 1.44269504088896338700
_TAYLOR: Final = tuple(1.0 / math.factorial(k) for k in range(14, -1, -1))
_LARGEST_POWER: Final = 700.0


def raise_e(x: float) -> float:
    """Return eˣ within 2 units in the last place, for |x| ≤ 700 (beyond, as at ±700).

    x = k · ln 2 + r with |r| ≤ ½ ln 2; e^r by its Taylor polynomial of degree 14, whose remainder
    is below 2⁻⁶⁰, in Horner's form; then an exact scaling by 2ᵏ.
    """
    x = min(max(x, -_LARGEST_POWER), _LARGEST_POWER)
    k = math.floor(x * _LOG2_E + 0.5)
    r = (x - k * _LN2_HIGH) - k * _LN2_LOW
    value = 0.0
    for coefficient in _TAYLOR:
        value = value * r + coefficient
    return math.ldexp(value, k)


# Three rational approximations, highest power first, from Wichura's algorithm PPND16 ("AS 241: the
# percentage points of the normal distribution", Applied Statistics 37, 1988).
_CENTRE: Final = (
    (
        2.5090809287301226727e3,
        3.3430575583588128105e4,
        6.7265770927008700853e4,
        4.5921953931549871457e4,
        1.3731693765509461125e4,
        1.9715909503065514427e3,
        1.3314166789178437745e2,
        3.3871328727963666080e0,
    ),
    (
        5.2264952788528545610e3,
        2.8729085735721942674e4,
        3.9307895800092710610e4,
        2.1213794301586595867e4,
        5.3941960214247511077e3,
        6.8718700749205790830e2,
        4.2313330701600911252e1,
        1.0,
    ),
)
_MIDDLE: Final = (
    (
        7.74545014278341407640e-4,
        2.27238449892691845833e-2,
        2.41780725177450611770e-1,
        1.27045825245236838258e0,
        3.64784832476320460504e0,
        5.76949722146069140550e0,
        4.63033784615654529590e0,
        1.42343711074968357734e0,
    ),
    (
        1.05075007164441684324e-9,
        5.47593808499534494600e-4,
        1.51986665636164571966e-2,
        1.48103976427480074590e-1,
        6.89767334985100004550e-1,
        1.67638483018380384940e0,
        2.05319162663775882187e0,
        1.0,
    ),
)
_TAIL: Final = (
    (
        2.01033439929228813265e-7,
        2.71155556874348757815e-5,
        1.24266094738807843860e-3,
        2.65321895265761230930e-2,
        2.96560571828504891230e-1,
        1.78482653991729133580e0,
        5.46378491116411436990e0,
        6.65790464350110377720e0,
    ),
    (
        2.04426310338993978564e-15,
        1.42151175831644588870e-7,
        1.84631831751005468180e-5,
        7.86869131145613259100e-4,
        1.48753612908506148525e-2,
        1.36929880922735805310e-1,
        5.99832206555887937690e-1,
        1.0,
    ),
)


def normal(u: float) -> float:
    """Return the standard normal quantile of `u` in (0, 1), within about 1 part in 10¹⁵.

    >>> normal(0.5), round(normal(0.975), 12)
    (0.0, 1.95996398454)
    """
    q = u - 0.5
    if -0.425 <= q <= 0.425:
        return q * _rational(0.180625 - q * q, _CENTRE)
    tail = u if q < 0.0 else 1.0 - u
    r = math.sqrt(-math.log(tail))
    z = _rational(r - 1.6, _MIDDLE) if r <= 5.0 else _rational(r - 5.0, _TAIL)
    return -z if q < 0.0 else z


def _rational(x: float, tables: tuple[tuple[float, ...], tuple[float, ...]]) -> float:
    above = 0.0
    for coefficient in tables[0]:
        above = above * x + coefficient
    below = 0.0
    for coefficient in tables[1]:
        below = below * x + coefficient
    return above / below
