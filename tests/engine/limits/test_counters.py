"""One counter alone: what remains, what a debt may become, what others decide (D-ALGORITHM)."""

from __future__ import annotations

import time
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from engine.limits.counters import ALGORITHMS, FAR_NS, Counter, CounterSettings
from engine.profile import Algorithm

SECOND_NS = 1_000_000_000
EPOCH_NS = 1_767_225_600_123_456_789


def settings(
    algorithm: Algorithm, limit_requests: int, window_ns: int, **more: Any
) -> CounterSettings:
    return CounterSettings(
        algorithm=algorithm,
        limit_requests=limit_requests,
        window_ns=window_ns,
        burst_requests=more.pop("burst_requests", limit_requests),
        **more,
    )


_STEPS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("clb")), max_size=120)
"""(time passed, charge | look | charge beyond the rate too), in order."""


@given(
    st.sampled_from(tuple(ALGORITHMS)),
    st.integers(1, 9),
    st.integers(1, 20),
    st.booleans(),
    st.sampled_from((0, 3, EPOCH_NS)),
    _STEPS,
)
def test_what_remains_is_what_would_be_admitted_and_all_of_it_once_idle(
    algorithm: Algorithm,
    limit: int,
    window: int,
    closed: bool,
    origin: int,
    steps: list[tuple[int, str]],
) -> None:
    """D-429-HEADERS, D-COUNT all included: however seldom one looks, a look changes nothing."""
    rule = settings(algorithm, limit, window, tick_ns=int(closed), offset_ns=origin % window)
    counter = Counter(rule)
    now = 0
    for passed, step in steps:
        now += passed
        if step == "l":
            copied = Counter(rule)
            copied.assign(counter)
            copied.window = counter.window.copy()
            admitted = 0
            while copied.ready_ns <= now:
                copied.charge(now)
                admitted += 1
            assert counter.window.remaining(now) == admitted
        elif step == "b" or counter.ready_ns <= now:
            counter.charge(now)
    idle_ns = max(now, counter.window.idle_ns())
    assert counter.window.remaining(idle_ns) == limit
    assert counter.is_idle(idle_ns)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_debt_stops_growing(algorithm: Algorithm) -> None:
    """Where refused requests count, an instant always fits into 64 bits."""
    counter = Counter(settings(algorithm, 1, 366 * 86_400 * SECOND_NS))
    for now_ns in range(1_000):
        counter.charge(now_ns)
    assert counter.ready_ns < 2 * FAR_NS


@given(st.integers(1, 6), st.integers(1, 4), st.lists(st.integers(0, 9), min_size=5, max_size=40))
def test_the_limits_library_decides_the_same(limit: int, seconds: int, gaps: list[int]) -> None:
    """Its fixed window always; its moving window but at exact ties, where ours is half-open.

    Times are quarters of a second; for the moving window a request never comes at an exact tie,
    because its place in the trace is added in microseconds. Its fixed windows begin at the first
    request.
    """
    item = RateLimitItemPerSecond(limit, seconds)
    strategies: dict[Algorithm, Any] = {
        "fixed-window": (FixedWindowRateLimiter, 0),
        "sliding-log": (MovingWindowRateLimiter, 1_000),
    }
    for algorithm, (strategy, apart_ns) in strategies.items():
        times = [
            1_000 * SECOND_NS + int(quarter) * 250_000_000 + place * apart_ns
            for place, quarter in enumerate(np.cumsum(gaps))
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
        counter = Counter(settings(algorithm, limit, seconds * SECOND_NS, is_anchored=True))
        ours = []
        for now_ns in times:
            ours.append(counter.ready_ns <= now_ns)
            if ours[-1]:
                counter.charge(now_ns)
        assert ours == theirs
