"""The room left of a sliding log, looked at now and then, against a count over all charges."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.limits.compiled.algorithms import (
    LINE_SIZE,
    READY,
    charge_sliding_log,
    grow_ring,
    remaining_sliding_log,
    rule_row,
)

_STEPS = st.lists(st.tuples(st.integers(0, 12), st.sampled_from("clb")), max_size=120)
"""(time passed, charge | look | charge beyond the rate too), in order."""


@given(st.integers(1, 9), st.integers(1, 20), st.booleans(), st.integers(0, 30), _STEPS)
def test_the_room_left_is_counted_right_however_seldom_it_is_asked_for(
    limit: int, window: int, closed: bool, start: int, steps: list[tuple[int, str]]
) -> None:
    """D-429-HEADERS over D-ALGORITHM sliding-log, D-COUNT all included."""
    rule = rule_row("sliding-log", limit, window, closed=closed)
    line, ring = [0] * LINE_SIZE, [0] * min(2, limit)
    now, charged = start, list[int]()
    for passed, step in steps:
        now += passed
        if step == "l":
            live = sum(1 for at in charged if at > now - window - closed)
            assert remaining_sliding_log(line, ring, rule, now) == max(0, limit - live)
        elif step == "b" or line[READY] <= now:
            charged.append(now)
            try:
                charge_sliding_log(line, ring, rule, now)
            except IndexError:
                grow_ring(ring, limit)
                charge_sliding_log(line, ring, rule, now)
