"""Blocked time against every nanosecond counted by hand: overlaps, batches, counters, edges."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from simulator.rows.record import SCHEMA
from simulator.rows.reducer import GroupBlockedTime, RowBatch

COUNTERS: Final = {"LIM-A": ("key",), "LIM-B": ("key",)}
"""Of a rule that is not named, as LIM-C, the counters are of key and address together."""
ROWS: Final = st.lists(
    st.tuples(
        st.integers(0, 30),
        st.integers(0, 12),
        st.sampled_from(["LIM-A", "LIM-B", "LIM-C"]),
        st.sampled_from([None, "key-0001"]),
        st.sampled_from(["192.0.2.1", "192.0.2.2"]),
    ),
    min_size=4,
    max_size=20,
)
"""Instant, wait, rule, key and address of blocked rows."""


def batch(rows: Sequence[tuple[Any, ...]]) -> RowBatch:
    names = ("t_ns", "wait_ns", "rule", "key", "ip")
    columns = dict(zip(names, zip(*rows, strict=True), strict=True))
    fields = [SCHEMA.field(name) for name in names]
    arrays = []
    for field in fields:
        texts = pa.types.is_dictionary(field.type)
        values = pa.array(columns[field.name], pa.string() if texts else field.type)
        arrays.append(values.dictionary_encode().cast(field.type) if texts else values)
    return RowBatch(pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields)), None, {})


@given(
    rows=ROWS,
    sizes=st.lists(st.integers(1, 5)),
    from_ns=st.integers(0, 12),
    span=st.integers(1, 25),
)
def test_time_is_that_of_every_instant_in_which_a_counter_is_blocked(
    rows: list[tuple[Any, ...]], sizes: list[int], from_ns: int, span: int
) -> None:
    rows = sorted(rows, key=lambda row: row[0])
    until_ns = from_ns + span
    times = GroupBlockedTime(from_ns, until_ns, COUNTERS)
    left = list(rows)
    for size in [*sizes, len(rows)]:
        if left:
            times.take(batch(left[:size]))
            left = left[size:]
    blocked: set[tuple[Any, ...]] = set()
    for t_ns, wait_ns, rule, key, ip in rows:
        counter = {"LIM-A": (key,), "LIM-B": (key,)}.get(rule, (key, ip))
        instants = range(max(t_ns, from_ns), min(t_ns + wait_ns, until_ns))
        blocked.update((rule, counter, instant) for instant in instants)
    assert times.in_all_ns() == len(blocked)
    edges_ns = np.arange(0, until_ns + 5, 4)
    shares = np.diff(times.between(edges_ns)).tolist()
    assert shares == [
        sum(start <= instant < start + 4 for _, _, instant in blocked)
        for start in edges_ns[:-1].tolist()
    ]
