"""A number of any length in a file, or in an operator's call, is refused in one line.

Python reads and writes no whole number of more than 4 300 decimal digits; it raises instead.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engine import Engine, LimitTable, Profile
from engine.errors import InputError
from engine.files import parse_duration_ns, parse_rate, parse_size_bytes, parse_toml, shown_value
from engine.http.configuration import loads

NINES = "9" * 5_000
HEX = "0x" + "f" * 6_000


@pytest.mark.parametrize(
    ("parse", "text", "rule"),
    [
        (parse_duration_ns, f"{NINES}h", "must be a duration such as"),
        (parse_duration_ns, f"1.{NINES}h", "must be a duration such as"),
        (parse_duration_ns, NINES, "must be a duration such as"),
        (parse_rate, f"{NINES}/10s", "must be a rate such as"),
        (parse_rate, f"1/{NINES}s", "must be a rate such as"),
        (parse_size_bytes, f"{NINES}MB", "must be a size such as"),
        (parse_duration_ns, "9" * 150 + "h", "must be below 292 years"),
        (parse_rate, "9" * 150 + "/s", "must be below 2147483648 requests"),
        (parse_size_bytes, "9" * 150, "must be below 9 EB"),
    ],
)
def test_a_quantity_of_any_length(parse: Callable[[str], object], text: str, rule: str) -> None:
    with pytest.raises(InputError, match=rule):
        parse(text)


@pytest.mark.parametrize(
    "text", [NINES, HEX, "0o" + "7" * 9_000, "9223372036854775808", "-9223372036854775809"]
)
@pytest.mark.parametrize(
    "form", ["[tokens]\nindexes_limit = {}\n", "[tokens]\nx = [[1, {{ y = {} }}]]\n"]
)
def test_d_units_a_files_number_fits_64_bits(tmp_path: Path, form: str, text: str) -> None:
    """TOML asks for it; the place is named wherever Python could read the number at all."""
    file = tmp_path / "profile.toml"
    file.write_text(form.format(text))
    with pytest.raises(InputError, match=r"must fit 64 bits$") as caught:
        Profile.from_toml(file)
    assert len(str(caught.value)) < 300
    assert text == NINES or f"{file}:2:" in str(caught.value)


@pytest.mark.parametrize("number", [2**63 - 1, -(2**63)])
def test_the_largest_numbers_are_read(number: int) -> None:
    assert parse_toml(f"a = [{number}]", "a.toml").value == {"a": [number]}


@pytest.mark.parametrize("read", [LimitTable.from_text, loads])
def test_a_key_of_thousands_of_parts_is_no_stack_of_ours(read: Callable[[str], Any]) -> None:
    """What is too deep to be found has no line and column; the file is named."""
    text = f"[a{'.b' * 2_000}]\nx = 1\n"
    with pytest.raises(InputError, match=r"^[a-z]+\.toml: a is an unknown key"):
        read(text)
    assert parse_toml(text, "serve.toml").where(("a",)) == "serve.toml: "


@pytest.mark.parametrize("sign", [1, -1])
@pytest.mark.parametrize("quota", ["Tokenize Limit", "CVC Retention", "Rate Limit"])
def test_quo_tenant_a_quota_of_any_length(quota: str, sign: int) -> None:
    engine = Engine(seed=7)
    tenant = engine.create_tenant("Acme")
    with pytest.raises(InputError, match=f"^quota {quota} = -?0x[0-9a-f]+… must ") as caught:
        engine.set_quota(tenant, quota, sign * 10**5_000)
    assert len(str(caught.value)) < 200
    with pytest.raises(InputError, match=f"^quota {quota} = True must "):
        engine.set_quota(tenant, quota, True)


def test_a_value_in_a_message_is_not_long() -> None:
    assert shown_value(10**5_000).startswith("0x")
    assert len(shown_value(-(16**5_000))) < 70
    assert shown_value(2**64) == "18446744073709551616"
