"""The algorithms are one source (D-ALGORITHM).

Compiled over arrays they decide as interpreted over lists, and where the semantic is ours the
`limits` library decides the same.
"""

import time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter
from numba import njit

from engine.limits.compiled import algorithms
from engine.profile import Algorithm

ALGORITHMS = tuple(algorithms.ALGORITHMS)
COMPILED = {name: njit(method.charge) for name, method in algorithms.ALGORITHMS.items()}


def admitted(
    algorithm: Algorithm, row: tuple[int, ...], times: list[int], *, compiled: bool, all_count: bool
) -> list[tuple[bool, int]]:
    """Play times through one counter: was it admitted, and when is it ready again."""
    line: Any
    ring: Any
    rule: Any
    charge: Any
    if compiled:
        line, ring = np.zeros(algorithms.LINE_SIZE, np.int64), np.zeros(row[0] + 3, np.int64)
        line[algorithms.BASE] = 3
        charge, rule = COMPILED[algorithm], np.array(row, np.int64)
    else:
        line, ring = [0] * algorithms.LINE_SIZE, [0] * row[0]
        charge, rule = algorithms.ALGORITHMS[algorithm].charge, row
    found = []
    for now in times:
        fine = bool(line[algorithms.READY] <= now)
        if fine or all_count:
            charge(line, ring, rule, now)
        found.append((fine, int(line[algorithms.READY])))
    return found


@pytest.mark.slow
@given(
    st.sampled_from(ALGORITHMS),
    st.integers(1, 2000),
    st.sampled_from((7, 1_000_000_007, 60_000_000_000, 86_400_000_000_000)),
    st.lists(st.integers(0, 3_000_000_000_000), max_size=60),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
@settings(max_examples=400)
def test_compiled_over_arrays_is_interpreted_over_lists(
    algorithm: Algorithm,
    limit: int,
    window_ns: int,
    gaps: list[int],
    closed: bool,
    anchored: bool,
    all_count: bool,
) -> None:
    row = algorithms.rule_row(algorithm, limit, window_ns, closed=closed, anchored=anchored)
    times = [int(t) for t in np.cumsum(np.array([year_ns(3), *gaps], np.int64))]
    played = [
        admitted(algorithm, row, times, compiled=compiled, all_count=all_count)
        for compiled in (False, True)
    ]
    assert played[0] == played[1]


def year_ns(years: int) -> int:
    return years * 365 * 86_400 * 10**9


def test_no_product_leaves_int64_at_the_bound() -> None:
    """A window and a limit at 2^62, hours past three years: python's integers say what fits."""
    window_ns = algorithms.PRODUCT_BOUND // 2000 - 1
    for algorithm in ALGORITHMS:
        row = algorithms.rule_row(algorithm, 2000, window_ns)
        assert all(abs(value) < 2**63 for value in row)
        times = [year_ns(3) + place * 10**9 for place in range(2500)]
        for fine, ready_ns in admitted(algorithm, row, times, compiled=False, all_count=True):
            assert isinstance(fine, bool)
            assert abs(ready_ns) < 2**63
    with pytest.raises(AssertionError):
        algorithms.rule_row("gcra", 2000, window_ns + 2000)
    with pytest.raises(AssertionError):
        algorithms.rule_row("gcra", 1, window_ns, burst_requests=2002)


def test_a_debt_stops_growing() -> None:
    row = algorithms.rule_row("gcra", 1, 366 * 86_400 * 10**9)
    line = [0] * algorithms.LINE_SIZE
    for now in range(1000):
        algorithms.charge_gcra(line, [], row, now)
    assert algorithms.FAR_NS <= line[algorithms.READY] < 2**63


@given(st.integers(1, 6), st.integers(1, 4), st.lists(st.integers(0, 9), min_size=5, max_size=40))
def test_the_limits_library_decides_the_same(limit: int, seconds: int, gaps: list[int]) -> None:
    """Its fixed window always; its moving window but at exact ties, where ours is half-open.

    Times are quarters of a second; for the moving window a request never comes at an exact tie,
    because its place in the trace is added in microseconds.
    """
    item = RateLimitItemPerSecond(limit, seconds)
    strategies = {
        "fixed-window": (FixedWindowRateLimiter, 0),
        "sliding-log": (MovingWindowRateLimiter, 1_000),
    }
    for algorithm, (strategy, apart_ns) in strategies.items():
        assert algorithm in ALGORITHMS
        start_ns = 1_000 * 10**9 - 1_000 * 10**9 % (seconds * 10**9)
        quarters = np.cumsum(gaps)
        times = [
            start_ns + int(q) * 250_000_000 + place * apart_ns for place, q in enumerate(quarters)
        ]
        theirs = []
        storage = MemoryStorage()
        storage.timer.cancel()  # it would clear by the real clock, in the middle of the trace
        storage.timer.join()
        peer = strategy(storage)
        with (
            mock.patch.object(time, "time") as clock,
            mock.patch.object(storage, "_MemoryStorage__schedule_expiry"),  # a thread's real clock
        ):
            for now_ns in times:
                clock.return_value = now_ns / 1e9
                theirs.append(peer.hit(item, "key"))
        row = algorithms.rule_row(
            algorithm,
            limit,
            seconds * 10**9,
            anchored=algorithm == "fixed-window",
        )
        ours = admitted(
            algorithm,
            row,
            times,
            compiled=False,
            all_count=False,
        )
        assert [fine for fine, _ in ours] == theirs
