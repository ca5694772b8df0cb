"""What single values of a log become: request lines, methods, addresses, Arrow's scalars.

Each function is applied once a distinct value. What cannot be used raises `Rejected`, whose text
never repeats the value.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import InputError
from simulator.traffic.logs._mapping import Rejected, Source
from simulator.traffic.logs._stamps import LATEST_NS, UNIT_DIGITS, Notation

__all__ = ["arrow_numbers", "arrow_texts", "arrow_times", "parts_of"]

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
