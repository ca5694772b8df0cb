"""Order, pace and labels of a replay: exact, stable, and without a key's text anywhere."""

from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.files import parse_toml
from simulator.logs import LogMap, LogStream, stream_log
from simulator.logs.arrivals import Arrivals, make_arrivals, read_speed
from simulator.logs.parties import LogCaller
from simulator.rows import record
from simulator.study.replay import replay

SECOND_NS = 10**9
MOST = 2**31 - 2
"""A number of a text may be as large."""


def frame(t_ns: list[int], **columns: Any) -> pd.DataFrame:
    request = {"ip": "192.0.2.1", "method": "POST", "path": "/tokenize"}
    return pd.DataFrame({"t_ns": t_ns, **request, **columns})


def arrivals(table: pd.DataFrame, speed: str = "1", **options: Any) -> Any:
    given_ = {"kind": "public", "tenant_kind": "production", **options}
    return make_arrivals(stream_log(table), speed=read_speed(speed), **given_)


def rows(found: Arrivals) -> list[tuple[int, LogCaller]]:
    """Return every arrival as its instant and its party."""
    return [
        (t_ns, found.parties[party])
        for block in found.blocks()
        for t_ns, party in zip(*(column.tolist() for column in block), strict=True)
    ]


def test_order_is_by_instant_and_then_by_line() -> None:
    found = arrivals(frame([20, 10, 20, 10], ip=["a", "b", "c", "d"]))
    assert [(t_ns, who.ip) for t_ns, who in rows(found)] == [
        (0, "b"),
        (0, "d"),
        (10, "a"),
        (10, "c"),
    ]
    assert [who.ip for who in found.parties] == ["b", "d", "a", "c"]
    assert (found.start_ns, found.end_ns, len(found)) == (10, 20, 4)


@given(
    st.lists(st.tuples(st.integers(0, 6), st.sampled_from("abcd")), min_size=1, max_size=24),
    st.integers(1, 24),
)
def test_parties_and_labels_are_in_order_of_first_appearance_in_time(
    requests: list[tuple[int, str]], batch_rows: int
) -> None:
    """Of one instant the first line counts, whatever the order of lines and batches."""
    log = stream_log(
        frame([at for at, _ in requests], key=[f"key text {key}" for _, key in requests])
    )
    whole = next(log.batches())
    cut = [np.arange(first, len(whole))[:batch_rows] for first in range(0, len(whole), batch_rows)]
    batches = [whole.take(part) for part in cut]
    with mock.patch.object(LogStream, "batches", return_value=batches):
        found = make_arrivals(log, kind="public", tenant_kind="production", speed=Fraction(1))
    ordered = [key for _, key in sorted(requests, key=lambda request: request[0])]
    first = list(dict.fromkeys(ordered))
    assert [who.key for who in found.parties] == [f"key-{n:04d}" for n in range(1, len(first) + 1)]
    told = [int(str(who.key)[-1]) - 1 for _, who in rows(found)]
    assert [first[number] for number in told] == ordered


@given(
    st.lists(st.integers(-(2**62), 2**62), min_size=1, max_size=20),
    st.fractions(Fraction(1, 4), Fraction(10**6), max_denominator=997),
)
@example([0, 16 * 15 * 10**15], Fraction(1000, 997)).via("its product is between 2^63 and 2^64")
def test_time_is_the_floor_of_the_exact_quotient(t_ns: list[int], speed: Fraction) -> None:
    log = stream_log(frame([at // 16 for at in t_ns]))
    found = make_arrivals(log, kind="public", tenant_kind="production", speed=speed)
    first = min(at // 16 for at in t_ns)
    exact = sorted((Fraction(at // 16 - first) / speed).__floor__() for at in t_ns)
    assert [t_ns for t_ns, _ in rows(found)] == exact


@pytest.mark.parametrize(
    "speed",
    ["0", "-1", "fast", "1e400", "nan", "", "1/2", "٣", 0, None, float("nan"), float("inf")],
)
def test_a_speed_is_a_decimal_number_above_0(speed: Any) -> None:
    with pytest.raises(InputError) as caught:
        read_speed(speed)
    assert str(caught.value) == (
        f"speed = {speed!r} must be a decimal number above 0, such as 1000 or 0.5"
    )


def test_a_replay_that_would_take_centuries_says_so() -> None:
    with pytest.raises(InputError, match="must keep the replay below 146 years"):
        arrivals(frame([0, 10**18]), "0.000001")


def test_keys_become_labels_in_order_of_first_appearance() -> None:
    found = arrivals(frame([3, 1, 2, 4], key=["x", "y", None, "x"]))
    asked = [who for _, who in rows(found)]
    assert [who.key for who in asked] == ["key-0001", None, "key-0002", "key-0002"]
    nobody = asked[1].owner
    assert (nobody.tenant, nobody.application, nobody.application_kind) == (None, None, None)


@given(
    st.lists(st.tuples(*[st.integers(-1, 5)] * 4), min_size=1, max_size=30),
    st.sampled_from([1 << 62, 40, 1]),
)
@example([(0, 0, 0, 0), (1, 0, 0, 0), (0, MOST, MOST, MOST)], 1 << 62)
def test_distinct_rows_are_told_apart_however_many_values_they_may_have(
    codes: list[tuple[int, ...]], widest: int
) -> None:
    columns = [np.array(column, dtype=np.int32) for column in zip(*codes, strict=True)]
    with mock.patch.object(record, "_WIDEST", widest):
        number, first = record.distinct(columns)
    distinct = list(dict.fromkeys(codes))
    assert number.tolist() == [distinct.index(row) for row in codes]
    assert first.tolist() == [codes.index(row) for row in distinct]


def test_a_short_key_text_says_nothing_where_it_stands_in_a_path() -> None:
    log = frame([1, 2], key=["abc", "abcd"], path=["/abc/tabcs", "/abcd"])
    assert replay(log).requests["path"].tolist() == ["/abc/tabcs", "/key-0002"]


def test_no_key_text_is_left_in_a_path() -> None:
    texts = ["sesame-42", "key_prod_us_pvt_" + "A" * 22]
    paths = ["/x?api_key=sesame-42", f"/y/{texts[1]}"]
    result = replay(frame([1, 2], key=texts, path=paths))
    assert result.requests["path"].tolist() == ["/x?api_key=key-0001", "/y/key_…"]
    whole = repr(result.requests.to_dict()) + repr(result.summary)
    assert not any(text in whole for text in texts)


def test_pseudonyms_replace_addresses_and_keys_before_anything_is_written(tmp_path: Path) -> None:
    table = frame(
        [1, 2, 3],
        ip=["203.0.113.7", "203.0.113.8", "203.0.113.7"],
        key=["sesame", "sesame", "other"],
        path=["/from/203.0.113.7", "/b", "/c"],
    )
    result = replay(table, pseudonymise=True, out=tmp_path / "out")
    rows = result.requests
    assert rows["ip"].str.fullmatch(r"ip-[0-9a-f]{16}").all()
    assert rows["key"].str.fullmatch(r"key-[0-9a-f]{16}").all()
    assert rows["ip"][0] == rows["ip"][2] != rows["ip"][1]
    assert rows["key"][0] == rows["key"][1] != rows["key"][2]
    for file in (tmp_path / "out").iterdir():
        content = file.read_bytes()
        assert b"203.0.113" not in content
        assert b"sesame" not in content
    assert "Pseudonymised" in (tmp_path / "out" / "report.html").read_text("utf-8")
    again = replay(table, pseudonymise=True)
    assert again.requests["ip"][0] != rows["ip"][0]


MAP = """
time = { field = "t_ns", unit = "ns" }
key = "key"
tenant = "tenant"
application_kind = "kind"
"""


def test_a_key_has_one_owner() -> None:
    table = frame([1, 2, 3], key=["a", "a", "b"], tenant=["x", "x", "x"], kind=["public"] * 3)
    log_map = LogMap.from_document(parse_toml(MAP, "map.toml"))
    result = replay(table, map=log_map)
    assert result.requests["application"].tolist() == ["public"] * 3
    told = result.summary["replay"]
    assert (told["as"], told["map"], told["tenant"]) == (None, "map.toml", "production")
    table["tenant"] = ["x", "y", "x"]
    with pytest.raises(InputError) as caught:
        replay(table, map=log_map)
    assert str(caught.value) == (
        "frame:2: key must belong to one application of one tenant; line 1 gives it another, map"
        " tenant and application by the key"
    )


def test_a_legacy_key_is_a_private_application_s(tmp_path: Path) -> None:
    table = frame([0] * 101, key=["a"] * 101)
    result = replay(table, as_kind="legacy")
    met = result.clauses[result.clauses["offered"] > 0].index.tolist()
    assert met == ["LIM-LEGACY", "LIM-CREATE", "LIM-PRIVATE", "LIM-IP"]
    assert result.clauses.loc["LIM-LEGACY", "refused"] == 1
    told = result.summary["replay"]
    assert (told["as"], told["map"], told["tenant"]) == ("legacy", None, "production")


def test_map_and_kind_do_not_contradict() -> None:
    log_map = LogMap.from_document(parse_toml(MAP, "map.toml"))
    with pytest.raises(InputError, match="must be left out; the map says application_kind"):
        replay(frame([1]), map=log_map, as_kind="public")
    with pytest.raises(InputError, match="did you mean 'public'"):
        replay(frame([1]), as_kind="pubic")  # type: ignore[arg-type] # reason: a wrong word
