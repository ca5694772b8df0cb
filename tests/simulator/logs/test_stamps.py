"""Times of logs are exact integers, whatever their notation (issue: replay of real logs)."""

import datetime as dt
from fractions import Fraction

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.logs._log_map import ValueRejected
from simulator.logs._values import arrow_instants, epoch_unit, read_instant


@pytest.mark.parametrize(
    ("notation", "text", "expected_ns"),
    [
        ("clf", "17/May/2015:10:05:03 +0000", 1_431_857_103_000_000_000),
        ("clf", "17/May/2015:12:35:03 +0230", 1_431_857_103_000_000_000),
        ("clf", "17/May/2015:03:05:03.25 -0700", 1_431_857_103_250_000_000),
        ("iso", "2023-11-16 18:15:46.6805900", 1_700_158_546_680_590_000),
        ("iso", "2023-11-16T18:15:46.123456789Z", 1_700_158_546_123_456_789),
        ("iso", "2023-11-16T20:15:46+02:00", 1_700_158_546_000_000_000),
        ("iso", "2023-11-16T18:15:46,5", 1_700_158_546_500_000_000),
        ("iso", "2016-12-31T23:59:60Z", 1_483_228_800_000_000_000),
        ("s", "1700158546.68059", 1_700_158_546_680_590_000),
        ("s", "-0.5", -500_000_000),
        ("ms", "1700158546680.59", 1_700_158_546_680_590_000),
        ("us", "1700158546680590.1", 1_700_158_546_680_590_100),
        ("ns", "1700158546680590123", 1_700_158_546_680_590_123),
        ("s", "1.500000000000", 1_500_000_000),
        ("s", "1.749470000E9", 1_749_470_000_000_000_000),
        ("ms", "1.749470000123e+12", 1_749_470_000_123_000_000),
        ("s", "25e-2", 250_000_000),
        ("iso", "2023-11-16 18:15:46 GMT", 1_700_158_546_000_000_000),
        ("iso", "2023/11/16 18:15:46", 1_700_158_546_000_000_000),
        ("clf", "17/May/2015:10:05:03 GMT", 1_431_857_103_000_000_000),
        ("http", "Sun, 17 May 2015 10:05:03 GMT", 1_431_857_103_000_000_000),
    ],
)
def test_stamps_are_read_exactly(notation: str, text: str, expected_ns: int) -> None:
    assert read_instant(text, notation)[0] == expected_ns


@pytest.mark.parametrize(
    ("notation", "text", "why"),
    [
        ("clf", "17/Mai/2015:10:05:03 +0000", "time must name a month from Jan to Dec"),
        ("clf", "31/Feb/2015:10:05:03 +0000", "time must name a day of the calendar"),
        ("clf", "17/May/2015:25:05:03 +0000", "time must lie between 00:00:00 and 23:59:60"),
        ("clf", "17/May/2015:10:05:61 +0000", "time must lie between 00:00:00 and 23:59:60"),
        ("iso", "yesterday", "time must be like 2023-11-16T18:15:46.25Z"),
        ("iso", "2023-11-16T18:15:46.1234567891", "finer than a nanosecond"),
        ("iso", "9999-11-16T18:15:46", "between the years 1678 and 2262"),
        ("iso", "2023-11-16T18:15:46+99:00", "zone within 24 hours"),
        ("s", "1.7e9e", "an epoch number"),
        ("ns", "1.5e0", "finer than a nanosecond"),
        ("ns", "0.5", "finer than a nanosecond"),
        ("s", "1" * 20, "between the years 1678 and 2262"),
        ("s", "\u0661\u0667", "an epoch number"),
    ],
)
def test_a_bad_stamp_says_why_and_never_what(notation: str, text: str, why: str) -> None:
    with pytest.raises(ValueRejected) as caught:
        read_instant(text, notation)
    assert why in str(caught.value)
    assert text not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "unit"),
    [
        ("17/May/2015:10:05:03 +0000", None),
        ("1.7e9", "s"),
        ("0", "s"),
        ("1700158546", "s"),
        ("1700158546680", "ms"),
        ("1700158546680590", "us"),
        ("1700158546680590000", "ns"),
    ],
)
def test_an_epoch_number_s_size_suggests_its_unit(text: str, unit: str | None) -> None:
    assert epoch_unit(text) == unit


FIRST = dt.datetime(1700, 1, 1)  # noqa: DTZ001 # reason: the zone is drawn apart
LAST = dt.datetime(2260, 1, 1)  # noqa: DTZ001 # reason: the zone is drawn apart


@given(
    st.datetimes(FIRST, LAST),
    st.integers(0, 999_999_999),
    st.integers(-14 * 60, 14 * 60),
)
def test_iso_agrees_with_datetime_in_exact_arithmetic(
    moment: dt.datetime, fraction: int, zone_minutes: int
) -> None:
    moment = moment.replace(microsecond=0)
    zone = dt.timezone(dt.timedelta(minutes=zone_minutes))
    text = (
        moment.isoformat() + f".{fraction:09d}" + dt.datetime(1, 1, 2, tzinfo=zone).isoformat()[19:]
    )
    away = moment.replace(tzinfo=zone) - dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
    exact = Fraction(away // dt.timedelta(seconds=1)) * 10**9 + fraction
    assert read_instant(text)[0] == exact


def test_a_column_of_numbers_is_read_at_once_where_each_can_be_said() -> None:
    """A number too far for nanoseconds leaves the column to the clock, which says why."""
    latest_s = (2**63 - 1) // 10**9
    for number in (latest_s, -latest_s):
        found = arrow_instants(pa.array([1, None, number]), "s")
        assert found is not None
        times_ns, bad = found
        assert times_ns.tolist() == [10**9, 0, number * 10**9]
        assert bad == {"time is missing": [1]}
        assert arrow_instants(pa.array([1, number + (1 if number > 0 else -1)]), "s") is None
