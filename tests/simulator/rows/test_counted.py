"""Rows by their counter: the order that checkers look at them in, and the latest end of each."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from simulator.rows.reducer import NEVER, RunningMax, order_by_counter

NUMBERS = st.lists(st.one_of(st.integers(0, 5), st.integers(0, 1 << 33)), max_size=60)
ENDS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 100)), max_size=20)


@given(NUMBERS)
def test_rows_of_a_counter_keep_their_order(counter: list[int]) -> None:
    numbers = np.array(counter, dtype=np.int64)
    assert order_by_counter(numbers).tolist() == np.argsort(numbers, kind="stable").tolist()


@given(st.lists(ENDS, max_size=4))
def test_the_latest_end_is_that_of_earlier_rows_of_the_counter(
    chunks: list[list[tuple[int, int]]],
) -> None:
    latest, known = RunningMax(), dict.fromkeys(range(4), NEVER)
    for rows in chunks:
        counter = np.array([row[0] for row in rows], dtype=np.int64)
        assert latest.so_far(counter).tolist() == [known[number] for number in counter.tolist()]
        found = latest.before(counter, np.array([row[1] for row in rows], dtype=np.int64))
        for (number, end_ns), before_ns in zip(rows, found.tolist(), strict=True):
            assert before_ns == known[number]
            known[number] = max(known[number], end_ns)
