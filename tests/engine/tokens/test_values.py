"""Expressions, masks and fingerprints (D-EXPR, REC-CARD-MASK, REC-FINGERPRINT, D-FINGERPRINT)."""

from __future__ import annotations

import hashlib
import hmac
import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.messages import Json
from engine.tokens.expressions import MISSING, canonical, index_message, is_empty, parse, select
from engine.tokens.rules import card_mask, is_card_number, is_luhn_valid
from engine.tokens.stored import dedup_place
from engine.vault import Nonces, TenantKeys, base58, derive_key

ALPHABET = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("{{ data }}", ()),
        ("{{ data.number }}", ("number",)),
        ("{{ data.a.b-c.d_e.ключ.0 }}", ("a", "b-c", "d_e", "ключ", "0")),
    ],
)
def test_d_expr_grammar(text: str, path: tuple[str, ...]) -> None:
    assert parse(text) == path


@pytest.mark.parametrize(
    "text",
    ["", "data", "{{data}}", "{{ data}}", "{{  data }}", "{{ data. }}", "{{ data..a }}",
     "{{ datum }}", "{{ data | upper }}", "{{ data }} ", "x{{ data }}", "{{ data }}\n",
     "{{ data.a b }}", "{{ data.{{ data }} }}", "{ data }", "{{ }}", "{{ data\n }}",
     "{{ data[0] }}", "{{ Data }}"],
)  # fmt: skip
def test_d_expr_anything_else_is_none(text: str) -> None:
    assert parse(text) is None


def test_select_follows_keys_of_objects_only() -> None:
    data = {"a": {"b": None, "": 1}, "l": ["x"]}
    assert select(data, ()) is data
    assert select(data, ("a", "b")) is None
    for path in (("x",), ("a", "b", "c"), ("l", "0"), ("a", "c")):
        assert select(data, path) is MISSING
    assert select("text", ("a",)) is MISSING
    empty: list[object] = [MISSING, None, "", [], {}]
    assert all(map(is_empty, empty))
    filled: list[object] = [0, False, "x", [0]]
    assert not any(map(is_empty, filled))


def test_canonical_is_one_text_a_value() -> None:
    assert canonical({"b": 1.0, "a": [True, None, "ü", {"d": 1, "c": 2.5}]}) == (
        '{"a":[true,null,"ü",{"c":2.5,"d":1}],"b":1}'.encode()
    )
    assert canonical({"a": 10**30}) == b'{"a":%d}' % 10**30
    whole: list[Json] = [[1.0, {"a": 2.0}]]
    assert canonical(whole) == b'[[1,{"a":2}]]'
    assert repr(whole) == "[[1.0, {'a': 2.0}]]", "what is sealed stays as it was sent"


@given(st.dictionaries(st.text('aé\0"\\', max_size=3), st.integers() | st.text(max_size=5)))
def test_canonical_does_not_depend_on_the_order_of_keys(value: dict[str, Json]) -> None:
    value = json.loads(json.dumps(value).replace("\\ud", "\\u0"))
    backwards = dict(reversed(value.items()))
    assert canonical(value) == canonical(backwards)
    assert json.loads(canonical(value)) == value


def test_an_index_is_hashed_as_a_query_says_it() -> None:
    assert index_message((), "text") == b"data\0text"
    assert index_message(("a", "b"), 12) == index_message(("a", "b"), "12") == b"data.a.b\x0012"
    assert index_message((), {"b": 1, "a": 2}) == b'data\0{"a":2,"b":1}'


def _luhn(digits: str) -> bool:
    total = 0
    for place, digit in enumerate(reversed(digits)):
        value = int(digit) * (1 + place % 2)
        total += value - 9 if value > 9 else value
    return total % 10 == 0


@given(st.text("0123456789", min_size=12, max_size=19))
def test_luhn_is_the_textbooks(digits: str) -> None:
    assert is_luhn_valid(digits) == _luhn(digits)
    assert sum(is_luhn_valid(digits[:-1] + last) for last in "0123456789") == 1


@pytest.mark.parametrize("text", ["1" * 11, "1" * 20, "", "1" * 12 + "x", "²" * 12, "١" * 16])
def test_what_is_no_card_number(text: str) -> None:
    assert not is_card_number(text)


@given(st.text("0123456789", min_size=12, max_size=19))
def test_rec_card_mask_every_digit_but_the_last_four(digits: str) -> None:
    mask = card_mask({"number": digits, "cvc": "123", "expiration_year": 2030})
    assert mask == {"number": "X" * (len(digits) - 4) + digits[-4:], "expiration_year": 2030}


def _base58(raw: bytes) -> str:
    number, text = int.from_bytes(raw), ""
    while number:
        number, digit = divmod(number, 58)
        text = ALPHABET[digit] + text
    return "1" * (len(raw) - len(raw.lstrip(b"\0"))) + text


@given(st.binary(max_size=40))
def test_base58_is_the_textbooks(raw: bytes) -> None:
    assert base58(raw) == _base58(raw)


def test_rec_fingerprint_is_base58_of_hmac_sha256_over_type_and_value() -> None:
    keys = TenantKeys("tenant", bytes(32), Nonces(os.urandom))
    key = derive_key(bytes(32), "fingerprint")
    expected = _base58(hmac.new(key, b'card\0"4242"', hashlib.sha256).digest())
    assert keys.fingerprint("card", b'"4242"') == expected


def test_d_dedup_key_tells_type_container_and_value_apart() -> None:
    places = [("token", "/a/", b'"x"'), ("card", "/a/", b'"x"'), ("token", "/b/", b'"x"'),
              ("token", "/a/", b'"y"')]  # fmt: skip
    assert len({dedup_place(kind, container) + value for kind, container, value in places}) == 4
    without = [dedup_place(kind, "") + value for kind, _, value in places]
    assert len(set(without)) == 3
    assert without[0] == without[2]
