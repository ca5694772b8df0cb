"""D-COUNTERS-BOUND: memory of counters is bounded, and nobody is admitted beyond a rate for it."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from engine import Engine, LimitTable, Profile, Request
from engine.limits import CountersFull, Limiter, Subject
from engine.profile import LimitsProfile
from tests.engine.deployment import Deployment

SECOND_NS = 1_000_000_000
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
