"""Retry delays and paces, as the scenario's classes describe them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.files import Rate
from simulator.scenario.clients import (
    AimdPacing,
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    Pacing,
    Retry,
    TokenBucketPacing,
)
from simulator.traffic.arrivals import NEVER_NS
from simulator.traffic.client_rules import (
    CAP,
    DUE,
    KIND,
    begin_attempt,
    goes_on_ns,
    own_delay_ns,
    pace_rows,
    retry_after_ns,
    retry_row,
    take_answer,
)

S = 1_000_000_000


def _delays(retry: Retry) -> tuple[int, int, int]:
    kind, base_ns, cap_ns = retry_row(retry)[KIND : CAP + 1]
    return kind, base_ns, cap_ns


def test_delays_without_chance() -> None:
    fixed = FixedRetry(delay_ns=7)
    doubling = ExponentialRetry(base_ns=3, cap_ns=20)
    assert [own_delay_ns(*_delays(fixed), n, 0, 0.5) for n in range(3)] == [7, 7, 7]
    assert [own_delay_ns(*_delays(doubling), n, 0, 0.5) for n in range(4)] == [3, 6, 12, 20]
    assert own_delay_ns(*_delays(doubling), 5_000, 0, 0.5) == 20


@given(st.integers(0, 100), st.floats(1e-9, 1 - 1e-9))
def test_full_jitter_stays_below_its_ceiling(number: int, u: float) -> None:
    policy = FullJitter(base_ns=200, cap_ns=20_000)
    ceiling = min(20_000, 200 * 2**number)
    assert own_delay_ns(*_delays(policy), number, 0, u) == int(u * ceiling + 0.5)


@given(st.lists(st.floats(1e-9, 1 - 1e-9), min_size=1, max_size=20))
def test_decorrelated_jitter_grows_from_its_own_last_value(draws: list[float]) -> None:
    policy = DecorrelatedJitter(base_ns=100, cap_ns=5_000)
    last = 0
    for number, u in enumerate(draws):
        top = 3 * (last if number else 100)
        last = own_delay_ns(*_delays(policy), number, last, u)
        assert min(100, 5_000) <= last <= min(5_000, top)


@given(st.integers(1, 10**12))
def test_retry_after_is_whole_seconds_rounded_up(wait_ns: int) -> None:
    told = retry_after_ns(wait_ns)
    assert told % S == 0
    assert 0 <= told - wait_ns < S


@pytest.mark.parametrize(
    ("wait_ns", "until_ns", "stop_ns", "goes_on", "attempt"),
    [
        (-1, NEVER_NS, 100 * S, 15 * S, 2),  # its own delay
        (8 * S + 1, NEVER_NS, 100 * S, 19 * S, 2),  # Retry-After, rounded up to whole seconds
        (1, NEVER_NS, 100 * S, 15 * S, 2),  # its own delay is longer than Retry-After
        (-1, 15 * S, 100 * S, 15 * S, 1),  # no attempt at the deadline: it fails there
        (8 * S + 1, 18 * S, 100 * S, 18 * S, 1),
        (-1, 9 * S, 100 * S, 9 * S, 1),  # answered after its deadline: it fails at once
        (-1, 9 * S, 8 * S, 9 * S, 1),  # after the stop too
        (-1, NEVER_NS, 15 * S, NEVER_NS, 1),  # nothing begins at the stop: it stays pending
        (-1, 14 * S, 14 * S, NEVER_NS, 1),
    ],
)
def test_when_a_request_goes_on_after_an_answer_that_it_retries(
    wait_ns: int, until_ns: int, stop_ns: int, goes_on: int, attempt: int
) -> None:
    tries = [1, 0]
    rule = retry_row(FixedRetry(delay_ns=5 * S))
    assert goes_on_ns(rule, tries, wait_ns, 10 * S, until_ns, stop_ns, 0.5) == goes_on
    assert tries == [attempt, 5 * S]
    untold = retry_row(FixedRetry(delay_ns=5 * S), told_to_wait=False)
    assert goes_on_ns(untold, [1, 0], 60 * S, 10 * S, NEVER_NS, 100 * S, 0.5) == 15 * S


class Pace:
    """The pace of one client."""

    def __init__(self, pacing: Pacing, start_ns: int) -> None:
        self._kind, self._line, self._rule = pace_rows(pacing, start_ns)

    @property
    def due_ns(self) -> int:
        return self._line[DUE]

    def began(self, now_ns: int) -> None:
        begin_attempt(self._kind, self._line, self._rule, now_ns)

    def answered(self, *, limited: bool) -> None:
        take_answer(self._kind, self._line, self._rule, limited)


def _paced(pace: Pace, asks: Iterator[int]) -> list[int]:
    begun = []
    for at_ns in asks:
        begun.append(max(at_ns, pace.due_ns))
        pace.began(begun[-1])
    return begun


@given(
    st.integers(1, 7),
    st.integers(1, 50),
    st.integers(1, 5),
    st.lists(st.integers(0, 30), min_size=1, max_size=40),
)
def test_a_bucket_never_lets_more_through(
    limit: int, window: int, burst: int, gaps: list[int]
) -> None:
    now, asks = 0, []
    for gap in gaps:
        now += gap
        asks.append(now)
    begun = _paced(Pace(TokenBucketPacing(rate=Rate(limit, window), burst=burst), 0), iter(asks))
    for i, first in enumerate(begun):
        for j in range(i, len(begun)):
            # In any stretch of time at most the burst and what is refilled meanwhile.
            assert (j - i + 1 - burst) * window <= (begun[j] - first) * limit
    free = Pace(TokenBucketPacing(rate=Rate(limit, window), burst=burst), 0)
    assert _paced(free, iter([0] * burst)) == [0] * burst


def test_aimd_grows_by_steps_and_shrinks_by_share() -> None:
    pace = Pace(
        AimdPacing(
            start=Rate(10, S), minimum=Rate(1, S), maximum=Rate(20, S), increase=2.0,
            decrease_percent=50,
        ),
        0,
    )  # fmt: skip
    pace.began(0)
    assert pace.due_ns == S // 10
    pace.answered(limited=False)
    assert pace.due_ns == S // 12
    pace.answered(limited=True)
    assert pace.due_ns == S // 6
    for _ in range(9):
        pace.answered(limited=True)
    assert pace.due_ns == S
    for _ in range(30):
        pace.answered(limited=False)
    assert pace.due_ns == S // 20
