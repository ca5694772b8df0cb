"""Strict JSON (TOK-JSON, D-STRICT-JSON)."""

from __future__ import annotations

import json
import math
from collections import OrderedDict
from enum import StrEnum
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Json, Problem
from engine.tokens.strict_json import check_value, dumps, parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
VALUE = st.recursive(
    SCALAR | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=20,
)


def _same(one: Any, two: Any) -> bool:
    """Equal with equal types all the way down: 1 is neither 1.0 nor true."""
    if type(one) is not type(two):
        return False
    if isinstance(one, dict):
        return list(one) == list(two) and all(_same(one[k], two[k]) for k in one)
    if isinstance(one, list):
        return len(one) == len(two) and all(map(_same, one, two))
    return bool(one == two)


@given(VALUE, st.booleans(), st.sampled_from([None, 1, " "]))
def test_every_json_text_reads_as_what_it_says(
    value: Json, ascii_only: bool, indent: None | int | str
) -> None:
    raw = json.dumps(value, ensure_ascii=ascii_only, indent=indent).encode()
    assert _same(parse(raw), value)


@given(VALUE)
def test_a_python_value_is_copied_whole(value: Json) -> None:
    copy = check_value(value)
    assert _same(copy, value)
    if isinstance(value, list | dict):
        assert copy is not value


@given(VALUE)
def test_what_is_written_reads_back(value: Json) -> None:
    assert _same(parse(dumps(value)), value)


@pytest.mark.parametrize(
    "raw",
    [
        b'{"a": 1, "a": 2}',
        b'{"a": 1, "a": 1}',
        b'{"a": 1, "\\u0061": 2}',
        b'{"a\\n": 1, "b": "\\"", "a\\n": 2}',
        b'[{"x": {"deep": [{"k": "1", "k": "1"}]}}]',
        b'{"a": 12345678901234567890123, "a": 2}',
    ],
)
def test_a_repeated_key_is_refused_at_any_depth(raw: bytes) -> None:
    with pytest.raises(Problem, match="repeat a key") as caught:
        parse(raw)
    assert caught.value.status == 400


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b" ",
        b"{",
        b"[1,]",
        b"{'a': 1}",
        b"// x\n1",
        b"NaN",
        b"[Infinity]",
        b"-Infinity",
        b"01",
        b"+1",
        b".5",
        b'"\x01"',
        b"[1] 2",
        b'"\xff"',
        b'"\xed\xa0\x80"',
        b'"\xc0\xaf"',
        b'"\\ud800"',
        b'{"\\udc00": 1}',
        b'"\\ud800\\ud800"',
        b"\xef\xbb\xbf{}",
        '{"a": 1}'.encode("utf-16"),
        b"1e999",
        b"-1e999",
        b"9" * 10_000,
        b'{"a": 1e999, "b": 12345678901234567890123}',
        b"[" * 10_000 + b"]" * 10_000,
        b"[" * 200_000,
        b'{"a":' * 5_000 + b"1" + b"}" * 5_000,
        b"[" * 1_000 + b"123456789012345678901" + b"]" * 1_000,
    ],
)
def test_what_is_not_strictly_json_is_400(raw: bytes) -> None:
    with pytest.raises(Problem) as caught:
        parse(raw)
    assert caught.value.status == 400
    assert caught.value.clause in {"TOK-JSON", "D-STRICT-JSON", "D-DEPTH"}


def test_a_problem_says_where_and_quotes_nothing() -> None:
    with pytest.raises(Problem) as caught:
        parse(b'{\n "a": "4242424242424242" x}')
    assert caught.value.detail == "The body is not JSON (line 2, column 26); see RFC 8259."


@pytest.mark.parametrize("number", [2**63, 2**64, -(2**63) - 1, 10**40, 10**18 + 1])
def test_integers_stay_exact(number: int) -> None:
    assert parse(b'{"n": %d}' % number) == {"n": number}
    assert check_value([number]) == [number]
    assert dumps([number]) == b"[%d]" % number


@pytest.mark.parametrize("raw", [b'"\\ud83d\\ude00"', '"😀"'.encode()])
def test_a_pair_of_surrogates_is_one_character(raw: bytes) -> None:
    assert parse(raw) == "😀"


@pytest.mark.parametrize("levels", [200, 300, 900, 985, 1_000, 1_020])
def test_deep_but_reasonable_nesting_is_read_and_written(levels: int) -> None:
    """Whatever is read can be written, and neither leans on Python's own stack."""
    for opened, closed in ((b"[", b"]"), (b'[{"k":[],"l":', b"}]"), (b'{"\xc3\xa9":[1,', b"]}")):
        times = levels // opened.count(b"[") if b"{" not in opened else levels // 2
        raw = opened * times + b'"\xc3\xa9\\n"' + closed * times
        value = parse(raw)
        assert dumps(value) == raw
        assert dumps(check_value(value)) == raw


def test_nesting_beyond_all_reason_is_refused() -> None:
    with pytest.raises(Problem, match="nested deeper"):
        parse(b"[" * 1_025 + b"]" * 1_025)


def test_what_orjson_does_not_write_is_written_as_it_would_be() -> None:
    """Depth and huge integers apart, there is one way to write a value."""
    value: Any = {"a": [1, 1.5, True, None, "é\n"], "": {}, "b": [[]], "c": {"d": {"e": []}}}
    deep = value
    for _ in range(300):
        deep = [deep, 10**30]
    written = dumps(deep)
    assert written.startswith(b"[" * 300 + dumps(value) + b",1000000")
    assert json.loads(written) == deep


def test_an_integer_that_python_would_not_write_is_refused() -> None:
    assert check_value([10**4_000]) == [10**4_000]
    assert dumps([10**4_000]) == b"[1" + b"0" * 4_000 + b"]"
    with pytest.raises(Problem, match="number beyond the range"):
        check_value([10**5_000])


@pytest.mark.parametrize(
    "value",
    [
        (1, 2),
        {"a": (1,)},
        {1: "x"},
        {None: "x"},
        {"a", "b"},
        b"bytes",
        [math.nan],
        {"a": math.inf},
        "\ud800",
        {"\udfff": 1},
        [object()],
        UUID(int=1),
        OrderedDict(a=(1,)),
        [[[{"x": [b""]}]]],
    ],
)
def test_python_values_that_are_no_json_are_400(value: object) -> None:
    with pytest.raises(Problem) as caught:
        check_value(value)
    assert caught.value.status == 400


def test_a_string_of_an_enumeration_becomes_a_plain_string() -> None:
    class Kind(StrEnum):
        CARD = "card"

    copy = check_value({"type": Kind.CARD})
    assert copy == {"type": "card"}
    assert type(copy["type"]) is str


def test_neither_a_cycle_nor_depth_exhausts_anything() -> None:
    cycle: list[Any] = []
    cycle.append(cycle)
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    for value in (cycle, deep):
        with pytest.raises(Problem, match="nested deeper"):
            check_value(value)
    while deep:  # taken apart by hand: not the test's recursion either
        deep = deep[0]
