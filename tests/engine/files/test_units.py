"""Durations, rates and sizes: exact, and the same there and back."""

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.files import (
    Rate,
    format_duration,
    format_rate,
    format_size,
    parse_duration_ns,
    parse_rate,
    parse_size_bytes,
)

LONGEST = 2**63 - 1


@given(st.integers(0, LONGEST) | st.integers(0, 10**6).map(lambda ms: ms * 10**6))
def test_a_duration_reads_back_as_it_was_written(duration_ns: int) -> None:
    assert parse_duration_ns(format_duration(duration_ns)) == duration_ns


@given(st.integers(1, 2**31 - 1), st.integers(1, LONGEST))
def test_a_rate_reads_back_as_it_was_written(limit_requests: int, window_ns: int) -> None:
    rate = Rate(limit_requests, window_ns)
    assert parse_rate(format_rate(rate)) == rate
    assert str(rate) == format_rate(rate)


@given(st.integers(0, LONGEST) | st.integers(0, 10**6).map(lambda kib: kib * 2**10))
def test_a_size_reads_back_as_it_was_written(size_bytes: int) -> None:
    assert parse_size_bytes(format_size(size_bytes)) == size_bytes


@given(st.integers(0, 10**6), st.integers(0, 10**9 - 1))
def test_decimals_are_exact(seconds: int, nanoseconds: int) -> None:
    text = f"{seconds}.{nanoseconds:09}s"
    assert parse_duration_ns(text) == Fraction(f"{seconds}.{nanoseconds:09}") * 10**9


@pytest.mark.parametrize(
    ("text", "duration_ns"),
    [
        ("1m30s", 90 * 10**9),
        ("1.5s", 1_500_000_000),
        ("2d3h4m5s6ms7us8ns", 183_845_006_007_008),
        ("0.1s", 100_000_000),
        ("250µs", 250_000),
        ("0s", 0),
    ],
)
def test_durations_as_people_write_them(text: str, duration_ns: int) -> None:
    assert parse_duration_ns(text) == duration_ns


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (90 * 10**9, "1m30s"),
        (3_600 * 10**9, "1h"),
        (86_400 * 10**9, "1d"),
        (200 * 10**6, "200ms"),
        (1_500_000_000, "1.5s"),
        (1, "1ns"),
        (60_000_000_001, "1m0.000000001s"),
        (0, "0s"),
    ],
)
def test_durations_are_written_as_people_do(duration_ns: int, text: str) -> None:
    assert format_duration(duration_ns) == text


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("10", 'must name a unit; write "10s" for seconds'),
        ("", 'must be a duration such as "1m30s" (units d, h, m, s, ms, us, ns)'),
        ("-1s", 'must be a duration such as "1m30s" (units d, h, m, s, ms, us, ns)'),
        ("1 s", 'must be a duration such as "1m30s" (units d, h, m, s, ms, us, ns)'),
        ("1S", 'must be a duration such as "1m30s" (units d, h, m, s, ms, us, ns)'),
        ("٣s", 'must be a duration such as "1m30s" (units d, h, m, s, ms, us, ns)'),
        ("1s1m", 'must name each unit once, the largest first, such as "1m30s"'),
        ("1s2s", 'must name each unit once, the largest first, such as "1m30s"'),
        ("0.3ns", "must be a whole number of nanoseconds"),
        ("200000d", "must be below 292 years"),
    ],
)
def test_what_is_no_duration_says_what_one_is(text: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_duration_ns(text)
    assert str(caught.value) == f"duration = {text!r} {rule}"


@pytest.mark.parametrize(
    ("text", "rate"),
    [
        ("50/10s", Rate(50, 10 * 10**9)),
        ("200/m", Rate(200, 60 * 10**9)),
        ("1/1.5s", Rate(1, 1_500_000_000)),
        ("2000/1m30s", Rate(2000, 90 * 10**9)),
    ],
)
def test_rates_as_people_write_them(text: str, rate: Rate) -> None:
    assert parse_rate(text) == rate


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("50", 'must be a rate such as "50/10s": whole requests, a slash, a window'),
        ("1.5/s", 'must be a rate such as "50/10s": whole requests, a slash, a window'),
        ("50/10", 'must be a rate such as "50/10s": whole requests, a slash, a window'),
        ("50/", 'must be a rate such as "50/10s": whole requests, a slash, a window'),
        ("-5/1s", "must be above 0"),
        ("0/1s", "must be above 0"),
        ("5/0s", "must have a window above 0"),
        ("9999999999/1s", "must be below 2147483648 requests"),
    ],
)
def test_what_is_no_rate_says_what_one_is(text: str, rule: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_rate(text)
    assert str(caught.value) == f"rate = {text!r} {rule}"


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("30MB", 30_000_000),
        ("30M", 30_000_000),
        ("1 MB", 1_000_000),
        ("50K", 50_000),
        ("50kB", 50_000),
        ("1KiB", 1024),
        ("1.5MiB", 1_572_864),
        ("2G", 2_000_000_000),
        ("7B", 7),
        ("7", 7),
    ],
)
def test_sizes_as_people_write_them(text: str, size_bytes: int) -> None:
    """K and MB are powers of ten (D-UNITS)."""
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize("text", ["", "MB", "-1MB", "1mB", "1iB", "30 megabytes", "0.5B", "1.5"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^size = "):
        parse_size_bytes(text)
