"""What the tests of the chapters' general statements draw."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st

from engine import LimitTable
from simulator import caller

SECOND_NS = 10**9
FEW = settings(max_examples=40)
VERY_FEW = settings(max_examples=10)
WHOLE = LimitTable.default()
PUBLIC = caller("POST", "/tokens", kind="public")

times_s = st.lists(
    st.tuples(st.sampled_from([0, 0, 0, 1, 2, 3, 7, 8, 9, 16]), st.integers(1, 6)), min_size=3
).map(
    lambda bursts: [
        Fraction(sum(gap for gap, _ in bursts[: place + 1]), 8)
        for place, (_, size) in enumerate(bursts)
        for _ in range(size)
    ]
)
"""Instants in eighths of a second, in ascending order: bursts and pauses."""
rates = st.tuples(st.integers(1, 6), st.integers(1, 3))
"""Requests, and the window in seconds."""


def alone(rule_id: str, rate: tuple[int, int], block_s: int | None = None) -> LimitTable:
    """Return a table with one rule alone."""
    requests, window_s = rate
    action: dict[str, Any] = {"action": "throttle", "block_ns": None}
    if block_s is not None:
        action = {"action": "block", "block_ns": f"{block_s}s"}
    changed = WHOLE.replace_rule(rule_id, rate=f"{requests}/{window_s}s", **action)
    return LimitTable(rules=(changed[rule_id],))
