"""Single values of a log: instants and Arrow's scalars.

Instants become integer nanoseconds since the Unix epoch, never through a float. Three notations:
the stamp of the common log format (`17/May/2015:10:05:03 +0000`), ISO 8601
(`2023-11-16 18:15:46.6805900`, one to nine fraction digits, no zone means UTC), and epoch numbers
(`1431857103.25`). A fraction is digits, not a number, so seven digits are exactly 100 ns.

Each function is applied once a distinct value. What cannot be used raises `Rejected`, whose text
never repeats the value: a wrongly mapped column may hold a key.
"""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import InputError
from simulator.logs._log_map import Notation, Rejected

_SECOND_NS: Final = 1_000_000_000
UNIT_DIGITS: Final[dict[Notation, int]] = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Digits of a nanosecond that each unit is long."""
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
LATEST_NS: Final = 2**63 - 1
"""The latest instant, and the earliest one's distance from the epoch."""
_MONTHS: Final = {
    name: number
    for number, name in enumerate(
        ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"), 1
    )
}
_CLF: Final = re.compile(
    r"(\d{1,2})/([A-Za-z]{3})/(\d{4}):(\d\d):(\d\d):(\d\d)(?:[.,](\d+))?(?: ([+-])(\d\d):?(\d\d))?",
    re.ASCII,
)
_ISO: Final = re.compile(
    r"(\d{4})-(\d\d)-(\d\d)[T t_](\d\d):(\d\d)(?::(\d\d)(?:[.,](\d+))?)?"
    r" ?(?:[Zz]|UTC|([+-])(\d\d):?(\d\d)?)?",
    re.ASCII,
)
_EPOCH: Final = re.compile(r"(-?)(\d{1,20})(?:\.(\d*))?", re.ASCII)


def guess_notation(text: str) -> Notation:
    """Return the notation that `text` is written in; an epoch number's unit is told by its size.

    A number below 10¹¹ is seconds (until the year 5138), below 10¹⁴ milliseconds, below 10¹⁷
    microseconds, else nanoseconds. Raises `Rejected` when it is none of them.
    """
    text = text.strip()
    if _CLF.fullmatch(text):
        return "clf"
    if _ISO.fullmatch(text):
        return "iso"
    number = _EPOCH.fullmatch(text)
    if number is None:
        raise Rejected(
            "time must be like 2023-11-16T18:15:46.25Z, 17/May/2015:10:05:03 +0000 or an epoch"
            " number"
        )
    size = int(number[2])  # of at most 20 digits
    return next(unit for unit, digits in UNIT_DIGITS.items() if size < 10 ** (20 - digits))


def _read_clf(text: str) -> int:
    """Return an instant in ns.

    >>> _read_clf("01/Jan/1970:02:00:00 +0200")
    0
    """
    match = _CLF.fullmatch(text.strip())
    if match is None:
        raise Rejected("time must be like 17/May/2015:10:05:03 +0000")
    day, month_name, year, *clock = match.groups()
    month = _MONTHS.get(month_name.lower())
    if month is None:
        raise Rejected("time must name a month from Jan to Dec")
    return _instant_ns(int(year), month, int(day), clock)


def _read_iso(text: str) -> int:
    """Return an instant in ns.

    >>> _read_iso("1970-01-01 00:00:01.0000001")
    1000000100
    """
    match = _ISO.fullmatch(text.strip())
    if match is None:
        raise Rejected("time must be like 2023-11-16T18:15:46.25Z")
    year, month, day, *clock = match.groups()
    return _instant_ns(int(year), int(month), int(day), clock)


def _instant_ns(year: int, month: int, day: int, clock: Sequence[str]) -> int:
    """Return an instant; clock: hour, minute, second, fraction, sign and hours and minutes away."""
    hour, minute, second, fraction, *zone = clock
    time_ns = _clock_ns(hour, minute, second or "0", fraction)
    return _bounded(_day_ns(year, month, day) + time_ns - _zone_ns(*zone))


def _read_epoch(text: str, digits: int) -> int:
    """Return an instant in ns. digits: of a nanosecond that the unit is long.

    >>> _read_epoch("1500.5", 6)
    1500500000
    """
    match = _EPOCH.fullmatch(text.strip())
    if match is None:
        raise Rejected("time must be a plain decimal number, without an exponent")
    sign, whole, fraction = match.groups()
    size_ns = int(whole) * 10**digits + _fraction(fraction, digits)
    return _bounded(-size_ns if sign else size_ns)


def _fraction(text: str | None, digits: int) -> int:
    """Return a fraction of at most `digits` digits in units of 10^-digits; zeros may follow."""
    if not text:
        return 0
    if len(text) > digits:
        if text[digits:].strip("0"):
            raise Rejected("time must not be finer than a nanosecond (nine fraction digits)")
        text = text[:digits]
    return int(text.ljust(digits, "0") or "0")


def _clock_ns(hour: str, minute: str, second: str, fraction: str | None) -> int:
    hours, minutes, seconds = int(hour), int(minute), int(second)
    # 60 is a leap second: it falls together with the first of the next minute, as in POSIX time.
    if hours > 23 or minutes > 59 or seconds > 60:
        raise Rejected("time must lie between 00:00:00 and 23:59:60")
    return (hours * 3600 + minutes * 60 + seconds) * _SECOND_NS + _fraction(fraction, 9)


def _zone_ns(sign: str | None, hours: str | None, minutes: str | None) -> int:
    if sign is None or hours is None:
        return 0
    away = int(hours) * 3600 + int(minutes or "0") * 60
    if away > 24 * 3600:
        raise Rejected("time must have a zone within 24 hours of UTC")
    return (-away if sign == "-" else away) * _SECOND_NS


@lru_cache(maxsize=1024)
def _day_ns(year: int, month: int, day: int) -> int:
    try:
        ordinal = dt.date(year, month, day).toordinal()
    except ValueError as error:
        raise Rejected("time must name a day of the calendar") from error
    return (ordinal - _EPOCH_DAY) * 86_400 * _SECOND_NS


def _bounded(at_ns: int) -> int:
    if not -LATEST_NS <= at_ns <= LATEST_NS:
        raise Rejected("time must lie between the years 1678 and 2262")
    return at_ns


CLOCKS: Final[Mapping[Notation, Callable[[str], int]]] = {
    "clf": _read_clf,
    "iso": _read_iso,
    **{unit: partial(_read_epoch, digits=digits) for unit, digits in UNIT_DIGITS.items()},
}
"""Notation → what reads a stamp of it to ns since the epoch (UTC), or raises `Rejected`."""


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
    column: pa.Array, notation: Notation | None
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return exact ns and the rows without a time; None of a column that has to be read as texts.

    That is every column but one of timestamps, or of whole numbers in the unit `notation`, none of
    them beyond what it can say. Raises `InputError` for timestamps too far away.
    """
    unit_ns, exact = 1, column
    if pa.types.is_timestamp(column.type):
        try:
            exact = pc.cast(column, pa.timestamp("ns", column.type.tz)).cast(pa.int64())
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
    missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
    whole = exact.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return whole * unit_ns, missing
