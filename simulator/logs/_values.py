"""Single values of a log: instants, request lines, methods, addresses, Arrow's scalars.

Instants become integer nanoseconds since the Unix epoch, never through a float. Three notations:
the stamp of the common log format (`17/May/2015:10:05:03 +0000`), ISO 8601
(`2023-11-16 18:15:46.6805900`, one to nine fraction digits, no zone means UTC), and epoch numbers
(`1431857103.25`). A fraction is digits, not a number, so seven digits are exactly 100 ns.

Each function is applied once a distinct value. What cannot be used raises `StampError` or
`Rejected`, whose text never repeats the value: a wrongly mapped column may hold a key.
"""

from __future__ import annotations

import datetime as dt
import ipaddress
import re
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Any, Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import InputError
from simulator.logs._log_map import Rejected, Source

Unit: TypeAlias = Literal["s", "ms", "us", "ns"]
Notation: TypeAlias = Literal["clf", "iso", "s", "ms", "us", "ns"]
"""How a column writes time: the common log format's stamp, ISO 8601, or an epoch number's unit."""

_SECOND_NS: Final = 1_000_000_000
UNIT_DIGITS: Final[dict[str, int]] = {"s": 9, "ms": 6, "us": 3, "ns": 0}
"""Digits of a nanosecond that each unit is long."""
_EPOCH_DAY: Final = dt.date(1970, 1, 1).toordinal()
_REMEMBERED: Final = 1024
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


class StampError(ValueError):
    """A stamp cannot be read; the text says why and never repeats the stamp."""


def clock_for(notation: Notation) -> Callable[[str], int]:
    """Return the function that reads one stamp of `notation` to ns since the epoch (UTC).

    The function raises `StampError`. It remembers the last few stamps: a log of whole seconds
    repeats them.

    >>> clock_for("iso")("1970-01-01 00:00:01.0000001")
    1000000100
    >>> clock_for("clf")("01/Jan/1970:02:00:00 +0200")
    0
    >>> clock_for("ms")("1500.5")
    1500500000
    """
    remember = lru_cache(maxsize=_REMEMBERED)
    if notation == "clf":
        return remember(_read_clf)
    if notation == "iso":
        return remember(_read_iso)
    return remember(partial(_read_epoch, digits=UNIT_DIGITS[notation]))


def guess_notation(text: str) -> Notation:
    """Return the notation that `text` is written in; an epoch number's unit is told by its size.

    A number below 10¹¹ is seconds (until the year 5138), below 10¹⁴ milliseconds, below 10¹⁷
    microseconds, else nanoseconds. Raises `StampError` when it is none of them.
    """
    text = text.strip()
    if _CLF.fullmatch(text):
        return "clf"
    if _ISO.fullmatch(text):
        return "iso"
    number = _EPOCH.fullmatch(text)
    if number is None:
        raise StampError(
            "time must be like 2023-11-16T18:15:46.25Z, 17/May/2015:10:05:03 +0000 or an epoch"
            " number"
        )
    size = int(number[2])
    for unit, bound in zip(get_args(Unit), (10**11, 10**14, 10**17), strict=False):
        if size < bound:
            result: Notation = unit
            return result
    return "ns"


def _read_clf(text: str) -> int:
    match = _CLF.fullmatch(text.strip())
    if match is None:
        raise StampError("time must be like 17/May/2015:10:05:03 +0000")
    day, month_name, year, *clock = match.groups()
    month = _MONTHS.get(month_name.lower())
    if month is None:
        raise StampError("time must name a month from Jan to Dec")
    return _instant_ns(int(year), month, int(day), clock)


def _read_iso(text: str) -> int:
    match = _ISO.fullmatch(text.strip())
    if match is None:
        raise StampError("time must be like 2023-11-16T18:15:46.25Z")
    year, month, day, *clock = match.groups()
    return _instant_ns(int(year), int(month), int(day), clock)


def _instant_ns(year: int, month: int, day: int, clock: Sequence[str]) -> int:
    """Return an instant; clock: hour, minute, second, fraction, sign and hours and minutes away."""
    hour, minute, second, fraction, *zone = clock
    time_ns = _clock_ns(hour, minute, second or "0", fraction)
    return _bounded(_day_ns(year, month, day) + time_ns - _zone_ns(*zone))


def _read_epoch(text: str, digits: int) -> int:
    match = _EPOCH.fullmatch(text.strip())
    if match is None:
        raise StampError("time must be a plain decimal number, without an exponent")
    sign, whole, fraction = match.groups()
    size_ns = int(whole) * 10**digits + _fraction(fraction, digits)
    return _bounded(-size_ns if sign else size_ns)


def _fraction(text: str | None, digits: int) -> int:
    """Return a fraction of at most `digits` digits in units of 10^-digits; zeros may follow."""
    if not text:
        return 0
    if len(text) > digits:
        if text[digits:].strip("0"):
            raise StampError("time must not be finer than a nanosecond (nine fraction digits)")
        text = text[:digits]
    return int(text.ljust(digits, "0") or "0")


def _clock_ns(hour: str, minute: str, second: str, fraction: str | None) -> int:
    hours, minutes, seconds = int(hour), int(minute), int(second)
    # 60 is a leap second: it falls together with the first of the next minute, as in POSIX time.
    if hours > 23 or minutes > 59 or seconds > 60:
        raise StampError("time must lie between 00:00:00 and 23:59:60")
    return (hours * 3600 + minutes * 60 + seconds) * _SECOND_NS + _fraction(fraction, 9)


def _zone_ns(sign: str | None, hours: str | None, minutes: str | None) -> int:
    if sign is None or hours is None:
        return 0
    away = int(hours) * 3600 + int(minutes or "0") * 60
    if away > 24 * 3600:
        raise StampError("time must have a zone within 24 hours of UTC")
    return (-away if sign == "-" else away) * _SECOND_NS


@lru_cache(maxsize=1024)
def _day_ns(year: int, month: int, day: int) -> int:
    try:
        ordinal = dt.date(year, month, day).toordinal()
    except ValueError as error:
        raise StampError("time must name a day of the calendar") from error
    return (ordinal - _EPOCH_DAY) * 86_400 * _SECOND_NS


def _bounded(at_ns: int) -> int:
    if not -LATEST_NS <= at_ns <= LATEST_NS:
        raise StampError("time must lie between the years 1678 and 2262")
    return at_ns


_TOKEN: Final = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_VERSION: Final = re.compile(r" +HTTP/[0-9.]+$")


def parts_of(source: Source) -> list[tuple[str, Callable[[str], str]]]:
    if source.target == "request":
        return [
            ("method", lambda text: _request(text)[0]),
            ("path", lambda text: _request(text)[1]),
        ]
    return [(source.target, {"address": _address, "method": _method}.get(source.target, str))]


def _request(text: str) -> tuple[str, str]:
    """Split a request line into method and path as logged; the version may be missing."""
    method, space, rest = text.partition(" ")
    path = _VERSION.sub("", rest).strip(" ")
    if not space or not path or _TOKEN.fullmatch(method) is None:
        raise Rejected("request must be a method, a path and a version")
    return method, path


def _method(text: str) -> str:
    if _TOKEN.fullmatch(text) is None:
        raise Rejected("method must be one word")
    return text


def _address(text: str) -> str:
    """Return an address in its one spelling; IPv4-mapped IPv6 is IPv4 (D-IP), a name stays."""
    try:
        found = ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        if re.fullmatch(r"[^\s\x00-\x1f\x7f]{1,255}", text) is None:
            raise Rejected("address must be an IP address or a host name") from None
        return text
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return str(mapped or found)


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


def arrow_times(
    column: pa.Array,
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return exact ns and the rows without a time, of a column of timestamps; None of any other."""
    if not pa.types.is_timestamp(column.type):
        return None
    missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
    try:
        exact = pc.cast(column, pa.timestamp("ns", column.type.tz)).cast(pa.int64())
    except pa.ArrowInvalid as error:
        raise InputError(
            "time must lie between the years 1678 and 2262 in the whole log"
        ) from error
    return exact.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64), missing


def arrow_numbers(
    column: pa.Array, notation: Notation
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]] | None:
    """Return the same of a column of whole numbers, counted from the epoch in such a unit.

    None of any other column, and where a number is beyond what the unit can say.
    """
    digits = UNIT_DIGITS.get(notation)
    if digits is None or not pa.types.is_integer(column.type):
        return None
    latest = LATEST_NS // 10**digits
    span = pc.min_max(column).as_py()
    if span["min"] is not None and not -latest <= span["min"] <= span["max"] <= latest:
        return None
    missing = np.flatnonzero(column.is_null().to_numpy(zero_copy_only=False))
    whole = column.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    return whole * 10**digits, missing
