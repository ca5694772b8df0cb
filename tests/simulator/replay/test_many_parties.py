"""A log of a day names millions of (key, address, path): each is a place in arrays, no object."""

from __future__ import annotations

import random
import sys
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction
from types import FrameType
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.files import parse_toml
from engine.limits.table import COUNTER_KEYS
from simulator.logs import LogMap, stream_log
from simulator.logs.arrivals import make_arrivals
from simulator.logs.parties import RowNumbers
from simulator.rows import record
from simulator.rows.record import Counters, RequestIdentity, SubjectTable, TextColumn
from simulator.study.replay import replay

MOST = 2**31 - 2
"""A number of a text may be as large."""

CODES = st.one_of(st.integers(-1, 4), st.sampled_from([MOST - 1, MOST]))
ROWS = st.integers(2, 5).flatmap(
    lambda width: st.lists(st.lists(st.tuples(*[CODES] * width), min_size=1, max_size=12))
)


@pytest.mark.slow
@given(ROWS)
@example([[(-1, -1)], [(-1, MOST), (MOST, -1), (-1, -1)]])
def test_rows_have_one_number_from_batch_to_batch(batches: list[list[tuple[int, ...]]]) -> None:
    numbers: dict[tuple[int, ...], int] = {}
    found = RowNumbers(len(batches[0][0]) if batches else 2)
    for rows in batches:
        columns = [np.array(column, dtype=np.int32) for column in zip(*rows, strict=True)]
        told = found.number(columns)
        assert told.tolist() == [numbers.setdefault(row, len(numbers)) for row in rows]
        assert len(found) == len(numbers)


SUBJECTS = st.lists(
    st.tuples(
        st.just(0), st.sampled_from([None, "a"]), st.sampled_from([None, "p", "q"]),
        st.sampled_from([None, "key-0001", "key-0002"]), st.sampled_from(["i", "j"]),
        st.sampled_from(["GET", "POST"]), st.sampled_from(["/", "/tokens"]),
    ),
    unique=True,
    max_size=12,
)  # fmt: skip
PAIR_RULE, KEY_RULE, NOBODYS_RULE, OTHER_RULE = 0, 1, 2, 3
OTHER_PARTS = ("application_id", "ip")
"""What a kind of counter that nobody has yet may be kept by."""


def _counted(subject: RequestIdentity) -> tuple[Counters, tuple[object, ...]]:
    """Count by key where there is one, and by the pair where it is a GET."""
    by_pair = ((PAIR_RULE, 0),) if subject.method == "GET" else ()
    by_key = ((KEY_RULE, 1),) if subject.key is not None else ()
    by_other = ((OTHER_RULE, len(COUNTER_KEYS)),) if subject.application is not None else ()
    nothing = [None] * (len(COUNTER_KEYS) - 3)
    keys = ((subject.ip, subject.key), subject.key, subject.ip, *nothing)
    return (*by_pair, *by_key, *by_other), (*keys, (subject.application, subject.ip))


@given(SUBJECTS)
def test_subjects_added_at_once_are_those_added_one_after_another(rows: list[Any]) -> None:
    callers = list(dict.fromkeys((row[3], row[4]) for row in rows))
    subjects = [RequestIdentity(callers.index((row[3], row[4])), *row[1:]) for row in rows]
    with mock.patch.object(record, "COUNTER_KEYS", (*COUNTER_KEYS, OTHER_PARTS)):
        _compare(subjects)


def _compare(subjects: list[RequestIdentity]) -> None:
    single, whole = SubjectTable(), SubjectTable()
    assert [single.number(each, *_counted(each)) for each in subjects] == list(range(len(subjects)))
    names = ("tenant", "application", "key", "ip", "method", "path")
    texts = {}
    for name in names:
        values = [getattr(each, name) for each in subjects]
        known = sorted({value for value in values if value is not None}, reverse=True)
        codes = [-1 if value is None else known.index(value) for value in values]
        texts[name] = TextColumn(np.array(codes, dtype=np.int32), known)
    kinds = [_counted(each)[0] for each in subjects]
    whole.adopt(
        texts,
        kinds,
        np.arange(len(kinds)),
    )
    assert list(single) == list(whole) == subjects
    for one, other in zip(single.kinds(), whole.kinds(), strict=True):
        assert list(one) == list(other), "what is counted alike is one kind, however it came"
    every = np.arange(len(subjects))
    for place in (PAIR_RULE, KEY_RULE, NOBODYS_RULE, OTHER_RULE):
        one, other = single.counters(place, every).tolist(), whole.counters(place, every).tolist()
        assert [each < 0 for each in one] == [each < 0 for each in other]
        assert len(set(zip(one, other, strict=True))) == len(set(one))
    assert (single.counters(NOBODYS_RULE, every) == -1).all()


def test_the_same_row_counted_otherwise_is_another_subject() -> None:
    """Rows name no proxies, and two proxies' requests count apart (LIM-PROXY-KEY)."""
    table, row = SubjectTable(), RequestIdentity(0, None, None, None, "i", "GET", "/proxy")
    one, other = ((((0, 3),), (None, None, "i", proxy)) for proxy in ("x", "y"))
    assert [table.number(row, *each) for each in (one, other, one)] == [0, 1, 0]
    assert table.counters(0, np.array([0, 1, 1])).tolist() == [0, 1, 1]


def test_subjects_are_added_one_after_another_or_at_once() -> None:
    table, none = SubjectTable(), np.zeros(1, dtype=np.int64)
    names = ("tenant", "application", "key", "ip", "method", "path")
    texts = {name: TextColumn(none, [name]) for name in names}
    table.adopt(texts, [()], none)
    with pytest.raises(AssertionError):
        table.number(table[0])
    with pytest.raises(AssertionError):
        table.adopt(texts, [()], none)


def test_whose_a_key_is_makes_no_kind() -> None:
    """A thousand tenants who ask alike are matched against the rules once."""
    names = [f"name {number}" for number in range(1_000)]
    log = pd.DataFrame({"t_ns": range(1_000), "key": names, "tenant": names}).assign(
        ip="192.0.2.1", method="POST", path="/tokenize"
    )
    text = 'time = { field = "t_ns", unit = "ns" }\nkey = "key"\ntenant = "tenant"\n'
    log_map = LogMap.from_document(parse_toml(text, "map.toml"))
    parties = make_arrivals(
        stream_log(log, map=log_map), kind="public", tenant_kind="test", speed=Fraction(1)
    ).parties
    assert len(parties) == len({each.owner.tenant for each in parties}) == 1_000
    assert [len(list(each)) for each in parties.kinds(lambda *request: request)] == [1_000, 1]


def _log(parties: int) -> pd.DataFrame:
    """Return a log of 30,000 requests by so many parties: 100 keys, 100 addresses, 4 paths."""
    chance = random.Random(4)
    places = (chance.sample(range(40_000), parties) * (30_000 // parties))[:30_000]
    columns = {
        "key": [f"key text {place % 100:02d}" for place in places],
        "ip": [f"192.0.2.{place // 100 % 100}" for place in places],
        "path": [f"/tokens/{place // 10_000}" for place in places],
    }
    distinct = [sorted(set(values)) for values in columns.values()]
    firsts = pd.DataFrame(
        {
            name: [values[number % len(values)] for number in range(100)]
            for name, values in zip(columns, distinct, strict=True)
        }
    )
    frame = pd.concat([firsts, pd.DataFrame(columns)], ignore_index=True)
    return frame.astype("category").assign(t_ns=range(len(frame)), method="GET")


@contextmanager
def _calls() -> Iterator[list[int]]:
    """Count the calls of Python functions."""
    calls = [0]

    def count(_: FrameType, event: str, __: object) -> None:
        calls[0] += event == "call"

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        yield calls
    finally:
        sys.setprofile(before)


def test_nothing_is_called_once_a_party() -> None:
    few, many = _log(1_000), _log(30_000)
    replay(few, fidelity="compiled")  # whatever is made once is made
    replay(many, fidelity="compiled")
    counts = []
    for log in (few, many):
        with _calls() as calls:
            replay(log, fidelity="compiled")
        counts.append(calls[0])
    assert counts[1] - counts[0] < 2_000, "29,000 more parties"


@pytest.mark.slow
def test_a_party_takes_few_bytes() -> None:
    """Its codes, its numbers in the rows and in the limits, and its counters there."""
    few, many = _log(1_000), _log(30_000)
    replay(few, fidelity="compiled")
    peaks = []
    for log in (few, many):
        tracemalloc.start()
        replay(log, fidelity="compiled")
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert (peaks[1] - peaks[0]) / 29_000 < 300
