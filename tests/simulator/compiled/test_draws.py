"""Compiled random numbers are those of the definition and of numpy; compiled draws the reference's.

Philox is computed twice, once in numpy's C code and once in the compiled loop, so it is held to one
definition over its whole space: any key, any counter. Draws are compiled from the reference's own
source; they are compared all the same, bit for bit, at both ends of (0, 1) and between, because a
compiler may do to arithmetic what an interpreter does not.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from engine.limits.compiled.jit import Jit, pointer
from simulator.play.compiled import layout
from simulator.play.compiled import sampling as drawing
from simulator.traffic import client_rules as retrying
from simulator.traffic import draws
from simulator.traffic.draws import (
    LONGEST_NS,
    Stream,
    categorical,
    cumulative_weights,
    stream_number,
)
from tests.oracles.streams import philox4x64

_JIT = Jit("tests of draws", [Path(__file__), Path(drawing.__file__), Path(draws.__file__)])
_MOST = 2**64 - 1
_LEAST_U, _MOST_U = 0.5 * 2.0**-52, 1.0 - 2.0**-53

WORDS = st.one_of(st.integers(0, _MOST), st.sampled_from([0, 1, 2**32, 2**63, _MOST - 1, _MOST]))
US = st.one_of(
    st.integers(0, 2**52 - 1).map(lambda n: (n + 0.5) * 2.0**-52),
    st.sampled_from([_LEAST_U, 0.075, 0.5, 0.925, _MOST_U]),
)
DURATIONS = st.one_of(st.integers(1, 10**13), st.sampled_from([1, LONGEST_NS >> 7]))


@_JIT.compiled
def uniforms(streams: Any, number: int, out: Any) -> None:
    """Fill `out` with a stream's next numbers."""
    for place in range(len(out)):
        out[place] = drawing.uniform(pointer(streams), number)


@_JIT.compiled
def drawn(row: Any, share: float, u: float, values: Any, tables: Any) -> int:
    """Return one draw."""
    return int(drawing.draw_ns(pointer(row), share, u, pointer(values), pointer(tables)))


def streams_of(keys: list[tuple[int, int]], block: int = 0) -> Any:
    """Return rows of streams that have used up the block of that number."""
    rows = np.zeros((len(keys), layout.STREAM_WIDTH), dtype=np.uint64)
    rows[:, :2] = np.array(keys, dtype=np.uint64).reshape(-1, 2)
    rows[:, 2] = block
    rows[:, 3] = 4
    return rows


def compiled_draw(kind: int, first: int, second: int, share: float, u: float) -> int:
    """Return one compiled draw without tables."""
    row = np.array([kind, first, second, 0], dtype=np.int64)
    return drawn(row, share, u, np.zeros(1, dtype=np.int64), np.zeros(1))


@given(WORDS, WORDS, st.integers(0, _MOST - 1))
@example(_MOST, _MOST, _MOST - 1)
@settings(max_examples=300)
def test_a_block_of_words_is_the_definitions_for_any_key_and_counter(
    seed: int, stream: int, block: int
) -> None:
    rows, out = streams_of([(seed, stream)], block), np.zeros(1)
    uniforms(rows, 0, out)
    words = philox4x64(block + 1, (seed, stream))
    assert tuple(rows[0, 4:].tolist()) == words
    assert out[0] == ((words[0] >> 12) + 0.5) * 2.0**-52
    assert 0.0 < out[0] < 1.0


@given(WORDS, WORDS)
@settings(max_examples=50)
def test_words_are_numpys(seed: int, stream: int) -> None:
    rows = streams_of([(0, 0), (seed, stream)])
    out = np.zeros(203)
    uniforms(rows, 1, out)
    source = np.random.Philox(key=np.array([seed, stream], dtype=np.uint64))
    expected = ((source.random_raw(203) >> np.uint64(12)).astype(np.float64) + 0.5) * 2.0**-52
    assert out.tolist() == expected.tolist()
    assert rows[0, 3] == 4, "no other stream moves"


def test_a_long_stream_is_the_references_number_by_number() -> None:
    out = np.zeros(20_000)
    uniforms(streams_of([(7, stream_number("g/0/think"))]), 0, out)
    reference = Stream(7, "g/0/think").uniform
    assert [reference() for _ in range(20_000)] == out.tolist()


@given(US, DURATIONS)
@settings(max_examples=400)
def test_exponential_draws(u: float, mean_ns: int) -> None:
    found = compiled_draw(drawing.EXPONENTIAL, mean_ns, 0, 0.0, u)
    assert found == draws.exponential_ns(u, mean_ns)
    assert found == draws.exponential_from(lambda: u, mean_ns)()


@given(US, st.integers(0, 10**13), st.integers(0, 10**13))
@settings(max_examples=400)
def test_uniform_draws(u: float, low_ns: int, more_ns: int) -> None:
    found = compiled_draw(drawing.UNIFORM, low_ns, low_ns + more_ns, 0.0, u)
    assert found == draws.uniform_ns(u, low_ns, low_ns + more_ns)


@given(US, DURATIONS, st.floats(0.0, 8.0))
@settings(max_examples=600)
def test_lognormal_draws(u: float, median_ns: int, sigma: float) -> None:
    found = compiled_draw(drawing.LOGNORMAL, median_ns, 0, sigma, u)
    assert found == draws.lognormal_ns(u, median_ns, sigma)


@given(US, DURATIONS, st.floats(0.05, 50.0))
@settings(max_examples=600)
def test_pareto_draws(u: float, least_ns: int, alpha: float) -> None:
    found = compiled_draw(drawing.PARETO, least_ns, 0, alpha, u)
    assert found == draws.pareto_ns(u, least_ns, alpha)


@given(US, st.lists(st.floats(0.0, 1e9), min_size=1, max_size=9), st.integers(0, 3))
@settings(max_examples=400)
def test_discrete_draws(u: float, weights: list[float], before: int) -> None:
    weights[0] += 0.5
    table = cumulative_weights(weights)
    tables = np.array([9.0] * before + table)
    values = np.array([-1] * before + [10 * place for place in range(len(weights))])
    row = np.array([drawing.DISCRETE, before, len(weights), 0], dtype=np.int64)
    assert drawn(row, 0.0, u, values, tables) == 10 * categorical(u, table)


@given(st.integers(0, 2**52 - 1))
@settings(max_examples=2_000)
def test_one_logarithm_for_both(n: int) -> None:
    """Of ln(1 − u), times a mean that no rounding to nanoseconds can hide a last bit behind."""
    u, mean_ns = (n + 0.5) * 2.0**-52, 2.0**53
    found = compiled_draw(drawing.EXPONENTIAL, int(mean_ns), 0, 0.0, u)
    assert found == draws.nearest_ns(-math.log(1.0 - u) * mean_ns)


@given(st.integers(0, 2**61))
def test_retry_after_rounds_up(wait_ns: int) -> None:
    assert retried(wait_ns) == retrying.retry_after_ns(wait_ns)


@_JIT.compiled
def retried(wait_ns: int) -> int:
    """Return what `Retry-After` says, compiled."""
    return int(retrying.retry_after_ns(wait_ns))
