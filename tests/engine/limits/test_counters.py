"""One counter alone: what remains, what a debt may become, what others decide (D-ALGORITHM)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limits import RateLimitItemPerSecond
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter, MovingWindowRateLimiter

from engine import Engine, LimitTable, Profile, Request
from engine.limits import CountersFull, Limiter, Subject
from engine.limits.counters import ALGORITHMS, FAR_NS, Counter, CounterSettings
from engine.profile import Algorithm, LimitsProfile
from tests.engine.deployment import Deployment

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


# --- D-COUNTERS-BOUND ----------------------------------------------------------------------------


TABLES = {"Default": LimitTable.default()}


def _by_ip(number: int) -> Subject:
    return Subject("GET", "/tokens", f"2001:db8::{number:x}")


def _bounded(limit: int) -> Limiter:
    return Limiter(TABLES, LimitsProfile(counters_limit=limit), is_bounded=True)


def test_at_the_bound_who_has_a_counter_goes_on_and_who_has_none_waits() -> None:
    limiter = _bounded(20)
    for number in range(20):
        assert limiter.decide(0, _by_ip(number)).outcome == "admitted"
    for _ in range(3):
        with pytest.raises(CountersFull):
            limiter.decide(SECOND_NS, _by_ip(20))
    assert limiter.counter_count == 20
    # LIM-IP: 2000 in 10 s, and not one more, full or not.
    outcomes = [limiter.decide(SECOND_NS, _by_ip(3)).outcome for _ in range(2_000)]
    assert outcomes == ["admitted"] * 1_999 + ["blocked"]


def test_there_is_room_again_once_others_have_expired() -> None:
    limiter = _bounded(20)
    for number in range(20):
        limiter.decide(0, _by_ip(number))
    with pytest.raises(CountersFull):
        limiter.decide(10 * SECOND_NS - 1, _by_ip(20))
    assert limiter.decide(11 * SECOND_NS, _by_ip(20)).outcome == "admitted"
    assert limiter.counter_count == 1


def test_below_the_bound_no_decision_is_another() -> None:
    """Sweeping piece by piece forgets only what decides as a fresh counter does."""
    chance = random.Random(7)
    bounded, unbounded = _bounded(60_000), Limiter(TABLES, LimitsProfile())
    now_ns = 0
    for _ in range(6_000):
        now_ns += chance.choice((0, 1, SECOND_NS // 50))
        number = chance.choice((chance.randrange(40), chance.randrange(20_000)))
        who = (
            "POST",
            "/tokenize",
            f"192.0.2.{number}",
        )
        key = {"key_id": f"k{number}", "application_kind": "public", "tenant_kind": "test"}
        asked = [Subject(*who, **key) for _ in range(2)]  # type: ignore[arg-type] # reason: literals
        assert bounded.decide_with_status(now_ns, asked[0]) == unbounded.decide_with_status(
            now_ns, asked[1]
        )
    assert bounded.counter_count == unbounded.counter_count


def test_a_large_sweep_is_done_in_pieces() -> None:
    limiter = Limiter(TABLES, LimitsProfile())
    for number in range(12_000):
        limiter.decide(0, _by_ip(number))
    one = _by_ip(0)
    left = []
    for step in range(4):
        limiter.decide(100 * SECOND_NS + step * 20_000_000, one)
        left.append(limiter.counter_count)
    assert left == [7_000, 2_000, 1, 1]


def test_the_engine_answers_503_and_counts_nothing(deploy: Callable[..., Deployment]) -> None:
    engine = Engine(profile=Profile().replace(limits={"counters_limit": 20}), seed=7)
    asked = [Request("GET", "/tokens", ip=f"192.0.2.{number}") for number in range(21)]
    assert [engine.handle(request).status for request in asked[:20]] == [401] * 20
    refused = engine.handle(asked[20])
    assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
    assert engine.handle(asked[3]).status == 401
    engine.clock.advance_ns(11 * SECOND_NS)  # type: ignore[attr-defined] # reason: a ManualClock
    assert engine.handle(asked[20]).status == 401
