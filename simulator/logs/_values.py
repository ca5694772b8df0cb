"""Single values of a log: instants, addresses, paths, and Arrow's scalars.

Instants become integer nanoseconds since the Unix epoch, never through a float. Five notations: the
stamp of the common log format (`17/May/2015:10:05:03 +0000`), ISO 8601
(`2023-11-16 18:15:46.6805900`, one to nine fraction digits), the date of HTTP
(`Mon, 09 Jun 2025 12:10:00 GMT`), that of C (`Mon Jun  9 12:10:00 2025`), and epoch numbers
(`1431857103.25`, `1.43e9`). A fraction is digits, not a number, so seven digits are exactly 100 ns.
A stamp without a zone is in the zone that the caller states.

Each function is applied once a distinct value. What cannot be used raises `ValueRejected`, whose
text never repeats the value: a wrongly mapped column may hold a key.
"""

from __future__ import annotations

import datetime as dt
import re
from fractions import Fraction
from functools import lru_cache
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import InputError
from simulator.logs._log_map import ValueRejected
from simulator.rows.record import array_of, number_column

_SECOND_NS: Final = 1_000_000_000
UNIT_DIGITS: Final[dict[str, int]] = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Digits of a nanosecond that each unit is long."""
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
LATEST_NS: Final = 2**63 - 1
"""The latest instant, and the earliest one's distance from the epoch."""
_MONTHS: Final = {
    name: f"{number:02d}"
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_CLOCK: Final = (
    r"(?P<hour>\d\d)(?P<colon>:?)(?P<minute>\d\d)"
    r"(?:(?P=colon)(?P<second>\d\d)(?:[.,](?P<fraction>\d+))?)?"
)
_ZONE: Final = r"(?: ?(?P<zone>[Zz]|UTC|GMT|[+-]\d\d(?::?\d\d)?))?"
_MONTH: Final = "(?P<month>[A-Za-z]{3})"
_STAMPS: Final = {
    notation: re.compile(pattern, re.ASCII)
    for notation, pattern in {
        "clf": rf"(?P<day>\d{{1,2}})/{_MONTH}/(?P<year>\d{{4}})[: ]{_CLOCK}{_ZONE}",
        "iso": rf"(?P<year>\d{{4}})(?P<dash>[-/]?)(?P<month>\d\d)(?P=dash)(?P<day>\d\d)"
        rf"(?:[T t_]| - ){_CLOCK}{_ZONE}",
        "http": rf"(?:[A-Za-z]{{3}}, )?(?P<day>\d\d?) {_MONTH} (?P<year>\d{{4}}) {_CLOCK}{_ZONE}",
        "asctime": rf"[A-Za-z]{{3}} {_MONTH} +(?P<day>\d\d?) {_CLOCK} (?P<year>\d{{4}}){_ZONE}",
    }.items()
}
_EXAMPLES: Final = {
    "iso": "2023-11-16T18:15:46.25Z",
    "clf": "17/May/2015:10:05:03 +0000",
    "http": "Mon, 09 Jun 2025 12:10:00 GMT",
    "asctime": "Mon Jun  9 12:10:00 2025",
}
_EPOCH: Final = re.compile(r"-?\d{1,20}(?:\.\d{0,30})?(?:[eE][+-]?\d{1,2})?", re.ASCII)
_ZERO: Final = number_column(np.zeros(1, np.int64), np.int64)[0]
_DATE: Final = re.compile(r"(?:19|20)\d\d[01]\d[0-3]\d", re.ASCII)
_UNCLEAR: Final = "time falls into a change of the zone's clocks; write it with its offset"
_TOO_FINE: Final = "time must not be finer than a nanosecond (nine fraction digits)"
_NUMBER: Final = "time must be an epoch number, such as 1431857103.25 or 1.4e9"


def epoch_unit(text: str) -> str | None:
    """Return the unit that an epoch number's size suggests; None when the text is no number.

    A number below 10¹¹ is seconds (until the year 5138), below 10¹⁴ milliseconds, below 10¹⁷
    microseconds, else nanoseconds. Eight digits that are a date (`20250609`) are no number.
    """
    text = text.strip()
    if _EPOCH.fullmatch(text) is None or _DATE.fullmatch(text) is not None:
        return None
    size = abs(float(text))
    return next((unit for unit, digits in UNIT_DIGITS.items() if size < 10 ** (20 - digits)), "ns")


def read_instant(text: str, unit: str = "auto", zone: dt.tzinfo | None = None) -> tuple[int, bool]:
    """Return an instant in ns since the Unix epoch, and whether its zone was assumed.

    unit: a notation, or `auto` for any but epoch numbers. zone: of stamps that have none (UTC).
    Raises `ValueRejected`.

    >>> read_instant("01/Jan/1970:02:00:00 +0200"), read_instant("1970-01-01 00:00:01.0000001")
    ((0, False), (1000000100, True))
    >>> read_instant("1500.5", "ms"), read_instant("Thu, 01 Jan 1970 00:00:01 GMT")
    ((1500500000, False), (1000000000, False))
    """
    text = text.strip()
    if unit in UNIT_DIGITS:
        return _read_epoch(text, UNIT_DIGITS[unit]), False
    for notation in (unit,) if unit != "auto" else _STAMPS:
        match = _STAMPS[notation].fullmatch(text)
        if match is not None:
            return _read_stamp(match.groupdict(), zone)
    forms = _EXAMPLES if unit == "auto" else {unit: _EXAMPLES[unit]}
    number = " or an epoch number" if unit == "auto" else ""
    raise ValueRejected(f"time must be like {', '.join(forms.values())}{number}")


def _read_stamp(parts: dict[str, str | None], zone: dt.tzinfo | None) -> tuple[int, bool]:
    year, month, day = str(parts["year"]), str(parts["month"]), str(parts["day"])
    if not month.isdigit():
        month = _MONTHS.get(month.lower(), "")
        if not month:
            raise ValueRejected("time must name a month from Jan to Dec")
    hours, minutes = int(str(parts["hour"])), int(str(parts["minute"]))
    seconds = int(parts["second"] or "0")
    # 60 is a leap second: it falls together with the first of the next minute, as in POSIX time.
    if hours > 23 or minutes > 59 or seconds > 60:
        raise ValueRejected("time must lie between 00:00:00 and 23:59:60")
    clock_ns = (hours * 3600 + minutes * 60 + seconds) * _SECOND_NS
    at_ns = _day_ns(int(year), int(month), int(day)) + clock_ns + _fraction(parts["fraction"])
    stated = parts["zone"]
    if stated is not None:
        return _bounded(at_ns - _offset_ns(stated)), False
    if zone is not None and zone is not dt.UTC:
        at_ns -= _local_offset_ns(at_ns // _SECOND_NS, zone)
    return _bounded(at_ns), True


def _read_epoch(text: str, digits: int) -> int:
    if _EPOCH.fullmatch(text) is None:
        raise ValueRejected(_NUMBER)
    if "e" in text or "E" in text:
        exact = Fraction(text) * 10**digits
        if exact.denominator != 1:
            raise ValueRejected(_TOO_FINE)
        return _bounded(exact.numerator)
    whole, _, fraction = text.removeprefix("-").partition(".")
    size_ns = int(whole) * 10**digits + _fraction(fraction, digits)
    return _bounded(-size_ns if text[0] == "-" else size_ns)


def _fraction(text: str | None, digits: int = 9) -> int:
    """Return a fraction of at most `digits` digits in units of 10^-digits; zeros may follow."""
    if not text:
        return 0
    if text[digits:].strip("0"):
        raise ValueRejected(_TOO_FINE)
    return int(text[:digits].ljust(digits, "0") or "0")


@lru_cache(maxsize=1024)
def _offset_ns(zone: str) -> int:
    if zone[0] not in "+-":
        return 0
    hours, minutes = int(zone[1:3]), int(zone[3:].lstrip(":") or "0")
    away = hours * 3600 + minutes * 60
    if away > 24 * 3600:
        raise ValueRejected("time must have a zone within 24 hours of UTC")
    return (-away if zone[0] == "-" else away) * _SECOND_NS


def _local_offset_ns(wall_s: int, zone: dt.tzinfo) -> int:
    """Return the offset of a wall clock; it must show that time exactly once."""
    try:
        wall = dt.datetime(1970, 1, 1, tzinfo=zone) + dt.timedelta(seconds=wall_s)
        offsets = {wall.replace(fold=fold).utcoffset() for fold in (0, 1)}
    except OverflowError:
        raise ValueRejected("time must lie between the years 1678 and 2262") from None
    if len(offsets) > 1:
        raise ValueRejected(_UNCLEAR)
    (offset,) = offsets
    assert offset is not None, "a zone has an offset"
    return round(offset.total_seconds()) * _SECOND_NS


@lru_cache(maxsize=1024)
def _day_ns(year: int, month: int, day: int) -> int:
    try:
        ordinal = dt.date(year, month, day).toordinal()
    except ValueError as error:
        raise ValueRejected("time must name a day of the calendar") from error
    return (ordinal - _EPOCH_DAY) * 86_400 * _SECOND_NS


def _bounded(at_ns: int) -> int:
    if not -LATEST_NS <= at_ns <= LATEST_NS:
        raise ValueRejected("time must lie between the years 1678 and 2262")
    return at_ns


def read_zone(text: str) -> dt.tzinfo:
    """Return a time zone by its name, or an offset. Raises `InputError`.

    >>> read_zone("+02:00").utcoffset(None), read_zone("Europe/Berlin").key
    (datetime.timedelta(seconds=7200), 'Europe/Berlin')
    """
    match = re.fullmatch(r"([+-])(\d\d):?(\d\d)", text, re.ASCII)
    if match is not None and int(match[2]) < 24 and int(match[3]) < 60:
        away = dt.timedelta(hours=int(match[2]), minutes=int(match[3]))
        return dt.timezone(-away if match[1] == "-" else away)
    if text in {"UTC", "Z", "GMT"}:
        return dt.UTC
    try:
        return ZoneInfo(text)
    except (ValueError, OSError, ModuleNotFoundError, LookupError):
        raise InputError(
            f"zone = {text!r} must be a time zone such as Europe/Berlin, or an offset such as"
            " +02:00"
        ) from None


def arrow_texts(column: pa.Array) -> list[str | None]:
    """Return a column's values as texts; None where there is none, or an empty one."""
    values = column.to_pylist()
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return [value or None for value in values]
    return [_arrow_text(value) for value in values]


def _arrow_text(value: Any) -> str | None:  # noqa: ANN401 # reason: whatever a Parquet column holds
    if value is None or value == "" or value != value:  # noqa: PLR0124 # reason: NaN means absent
        return None
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, bool):
        return "true" if value else "false"
    return format(value, "f") if hasattr(value, "as_tuple") else str(value)


def arrow_instants(
    column: pa.Array, notation: str | None, zone: dt.tzinfo | None = None
) -> tuple[npt.NDArray[np.int64], dict[str, list[int]]] | None:
    """Return exact ns and the rows without a time by the reason; None: it has to be read as texts.

    That is every column but one of timestamps, or of whole numbers in the unit `notation`, none of
    them beyond what it can say. zone: of timestamps that have none (UTC). Raises `InputError` for
    timestamps too far away.
    """
    unit_ns, exact, unclear = 1, column, None
    if pa.types.is_timestamp(column.type):
        try:
            exact = pc.cast(column, pa.timestamp("ns", column.type.tz))
            if column.type.tz is None and zone is not None:
                exact, unclear = _zoned(exact, zone)
            exact = exact.cast(pa.int64())
        except pa.ArrowInvalid as error:
            raise InputError(
                "time must lie between the years 1678 and 2262 in the whole log"
            ) from error
    elif notation in UNIT_DIGITS and pa.types.is_integer(column.type):
        unit_ns = 10 ** UNIT_DIGITS[notation]
        span, latest = pc.min_max(column).as_py(), LATEST_NS // unit_ns
        if span["min"] is not None and not -latest <= span["min"] <= span["max"] <= latest:
            return None
    else:
        return None
    # `to_numpy` would load pandas, and 50 MB.
    missing = np.flatnonzero(array_of(column.is_null().cast(pa.uint8()))).tolist()
    whole = array_of(pc.coalesce(exact.cast(pa.int64()), _ZERO)) * unit_ns
    bad = {"time is missing": missing} if missing else {}
    if unclear is not None and pc.any(unclear).as_py():
        bad[_UNCLEAR] = np.flatnonzero(array_of(unclear.fill_null(False).cast(pa.uint8()))).tolist()
    return whole, bad


def _zoned(walls: pa.Array, zone: dt.tzinfo) -> tuple[pa.Array, pa.Array | None]:
    """Return the instants of wall clocks in a zone, and which are shown twice or never."""
    if isinstance(zone, ZoneInfo):
        first, last = (
            pc.assume_timezone(walls, zone.key, ambiguous=end, nonexistent=end)
            for end in ("earliest", "latest")
        )
        return first, pc.not_equal(first, last)
    offset = zone.utcoffset(None)
    assert offset is not None, "a zone has an offset"
    return pc.subtract(walls, pa.scalar(offset, pa.duration("ns"))), None
