"""The room left of a sliding log, looked at now and then, against a count over all charges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.limits.counters import CounterSettings, SlidingLog

_STEPS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("clb")), max_size=120)
"""(time passed, charge | look | charge beyond the rate too), in order."""


@given(st.integers(1, 9), st.integers(1, 20), st.booleans(), st.integers(0, 30), _STEPS)
def test_the_room_left_is_counted_right_however_seldom_it_is_asked_for(
    limit: int, window: int, closed: bool, start: int, steps: list[tuple[int, str]]
) -> None:
    """D-429-HEADERS over D-ALGORITHM sliding-log, D-COUNT all included."""
    log = SlidingLog(
        CounterSettings(
            algorithm="sliding-log",
            limit_requests=limit,
            window_ns=window,
            burst_requests=limit,
            tick_ns=int(closed),
        )
    )
    now, ready, charged = start, 0, list[int]()
    for passed, step in steps:
        now += passed
        if step == "l":
            live = sum(1 for at in charged if at > now - window - closed)
            assert log.remaining(now) == max(0, limit - live)
        elif step == "b" or ready <= now:
            charged.append(now)
            ready = log.charge(now)
