"""Checkers catch what they are for: each is shown a wrong run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.limits import LimitTable, Subject
from engine.messages import Outcome
from engine.profile import LimitsProfile, Profile
from simulator.rows import Result, RunHeader, RunRecorder
from simulator.rows.record import SCHEMA, RequestIdentity
from simulator.rows.reducer import NEVER, GroupBlockedTime, RowBatch, RunningMax, order_by_counter

S = 1_000_000_000
Row = tuple[int, str, Outcome, str | None, int]


def _book(
    rows: list[Row],
    *,
    chunk_rows: int = 3,
    profile: LimitsProfile | None = None,
    requests: tuple[int, int] | None = None,
    answer: tuple[int, int, int] | None = None,
) -> Result:
    """Write rows of public keys (t_ns, key, outcome, rule, wait_ns) and close the book.

    requests: how many began and ended; each row is one unless given. answer: attempt, latency_ns
    and status of each row; a first attempt without a status unless given.
    """
    header = RunHeader("made-up", 7, "limits", 0, 100 * S)
    book = RunRecorder(
        header,
        {"Default": LimitTable.default()},
        profile or Profile().limits,
        chunk_rows=chunk_rows,
    )
    for t_ns, key, outcome, rule, wait_ns in rows:
        asking = Subject("POST", "/tokenize", "192.0.2.1", key_id=key, application_kind="public")
        subject = RequestIdentity(0, "acme", "shop", key, "192.0.2.1", "POST", "/tokenize")
        number = book.recorder.subjects.number(subject, *book.view.counted(asking))
        verdict = book.recorder.verdicts[outcome, rule]
        attempt, *told = answer or (1, wait_ns if outcome == "delayed" else 0)
        book.recorder.add(t_ns, number, attempt, verdict, wait_ns, *told)
    began, ended = requests or (len(rows), len(rows))
    book.tally.add_requests(began, ended, 0)
    return book.close()


def _broken(result: Result) -> set[str]:
    assert result.summary["checks"]["faults"] >= len(result.violations)
    return {violation.invariant for violation in result.violations}


def _admitted(count: int, *, every_ns: int = S, key: str = "k") -> list[Row]:
    return [(t * every_ns, key, "admitted", None, 0) for t in range(count)]


@pytest.mark.parametrize("chunk_rows", [1, 3, 1_000])
def test_a_sound_run_breaks_nothing(chunk_rows: int) -> None:
    rows = [*_admitted(50), (50 * S, "k", "blocked", "LIM-PUBLIC", 10 * S)]
    rows += [(59 * S, "k", "blocked", "LIM-PUBLIC", S), (60 * S, "k", "admitted", None, 0)]
    assert _broken(_book(rows, chunk_rows=chunk_rows)) == set()


def test_requests_that_do_not_add_up_are_found() -> None:
    rows = _admitted(3)
    assert _broken(_book(rows, requests=(4, 3))) == set()
    assert _broken(_book(rows, requests=(3, 4))) == {"sum"}
    assert _broken(_book(rows, requests=(2, 2))) == {"sum"}


@pytest.mark.parametrize("chunk_rows", [1, 3, 1_000])
def test_one_admission_too_many_is_found(chunk_rows: int) -> None:
    assert _broken(_book(_admitted(51), chunk_rows=chunk_rows)) == {"rate"}
    two_keys = sorted(_admitted(30) + _admitted(30, key="other"))
    assert _broken(_book(two_keys, chunk_rows=chunk_rows)) == set()


def test_a_looser_algorithm_has_a_looser_bound() -> None:
    bucket = Profile().replace(limits={"algorithm": "token-bucket"}).limits
    assert _broken(_book(_admitted(51), profile=bucket)) == set()
    assert _broken(_book(_admitted(101, every_ns=1), profile=bucket)) == {"rate"}


def test_a_burst_is_that_of_gcra_alone() -> None:
    """D-ALGORITHM: a token bucket holds N whatever burst the profile chooses for gcra."""
    limits = {"algorithm": "token-bucket", "burst_requests": 1}
    bucket = Profile().replace(limits=limits).limits
    assert _broken(_book(_admitted(100, every_ns=1), profile=bucket)) == set()
    spaced = Profile().replace(limits=limits | {"algorithm": "gcra"}).limits
    assert _broken(_book(_admitted(52, every_ns=1), profile=spaced)) == {"rate"}


@pytest.mark.parametrize("chunk_rows", [1, 3, 1_000])
def test_letting_somebody_in_before_the_announced_instant_is_found(chunk_rows: int) -> None:
    rows: list[Row] = [
        (0, "k", "blocked", "LIM-PUBLIC", 10 * S),
        (4 * S, "k", "blocked", "LIM-PUBLIC", 6 * S),
        (10 * S - 1, "k", "admitted", None, 0),
    ]
    assert _broken(_book(rows, chunk_rows=chunk_rows)) == {"wait"}
    rows[2] = (10 * S, "k", "admitted", None, 0)
    assert _broken(_book(rows, chunk_rows=chunk_rows)) == set()
    other = [*rows[:2], (5 * S, "other", "admitted", None, 0)]
    assert _broken(_book(other, chunk_rows=chunk_rows)) == set()


@pytest.mark.parametrize(
    "row",
    [
        (0, "k", "admitted", None, 5),
        (0, "k", "admitted", "LIM-IP", 0),
        (0, "k", "refused", None, 5),
        (0, "k", "refused", "LIM-IP", 0),
        (0, "k", "delayed", "LIM-IP", 0),
    ],
)
def test_a_row_that_contradicts_itself_is_found(row: Row) -> None:
    assert "row" in _broken(_book([row]))


@pytest.mark.parametrize(
    ("row", "attempt", "latency_ns", "status", "what"),
    [
        ((0, "k", "admitted", None, 0), 1, 5, 429, "429, yet not refused"),
        ((0, "k", "delayed", "LIM-IP", 5), 1, 5, 429, "429, yet not refused"),
        ((0, "k", "refused", "LIM-IP", 5), 1, 0, 200, "refused, yet not 429"),
        ((0, "k", "delayed", "LIM-IP", 5), 1, 4, 200, "answered before release"),
        ((0, "k", "admitted", None, 0), 1, -1, 200, "a number out of range"),
        ((0, "k", "admitted", None, 0), 0, 5, 200, "a number out of range"),
        ((0, "k", "admitted", None, 0), 1, 0, 200, None),
        ((0, "k", "delayed", "LIM-IP", 5), 1, 5, 201, None),
        ((0, "k", "refused", "LIM-IP", 5), 1, 0, 429, None),
    ],
)
def test_a_status_a_latency_and_a_number_fit_the_outcome(
    row: Row, attempt: int, latency_ns: int, status: int, what: str | None
) -> None:
    """ERR-429: whoever is refused gets 429, and nobody else does."""
    found = _book([row], answer=(attempt, latency_ns, status))
    assert [each.what.partition(" at ")[0].partition(" (")[0] for each in found.violations] == (
        [] if what is None else [what]
    )


@pytest.mark.parametrize("chunk_rows", [1, 1_000])
def test_rows_out_of_order_are_found(chunk_rows: int) -> None:
    rows: list[Row] = [(5, "k", "admitted", None, 0), (4, "k", "admitted", None, 0)]
    assert "order" in _broken(_book(rows, chunk_rows=chunk_rows))


# --- rows by their counter -----------------------------------------------------------------------


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


# --- blocked time --------------------------------------------------------------------------------


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
