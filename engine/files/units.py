"""Durations, rates and sizes as people write them, and back.

`"1m30s"`, `"50/10s"`, `"30MB"` in files; integers (`_ns`, `_requests`, `_bytes`) everywhere else.
Arithmetic is exact: a text that is not a whole number of its base unit is refused, never rounded. K
and MB are powers of ten, KiB and MiB powers of two (D-UNITS).

Each `*_or_rule` returns the value, or the rule that the text breaks, for callers that know where
the text stands; each `parse_*` raises `InputError` instead.

`Duration`, `RateText` and `Size` are the kinds of values in files.
"""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, NamedTuple, TypeVar

from engine.errors import InputError, wrong_type
from engine.files.document import Spot
from engine.files.kinds import Kind, Schema

_DURATION_NS: Final = {
    "d": 86_400_000_000_000,
    "h": 3_600_000_000_000,
    "m": 60_000_000_000,
    "s": 1_000_000_000,
    "ms": 1_000_000,
    "us": 1_000,
    "µs": 1_000,
    "ns": 1,
}
_SIZE_BYTES: Final = {
    "": 1,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "KI": 2**10,
    "MI": 2**20,
    "GI": 2**30,
}
_UNITS: Final = (
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("min", 60_000_000_000),
    ("s", 1_000_000_000),
)
_SMALL_UNITS: Final = (("ms", 1_000_000), ("µs", 1_000), ("ns", 1))
_THIN: Final = "\u202f"
_LONGEST_NS: Final = 2**63 - 1
_LONGEST_TEXT: Final = 200
"""Longer texts are refused: Python does not parse numbers with thousands of digits."""

_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(d|h|ms|us|µs|ns|m|s)", re.ASCII)
_DURATION: Final = re.compile(rf"(?:{_PART.pattern})+", re.ASCII)
_SIZE: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?) ?([kKMG]?i?)B?", re.ASCII)
_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]+)?", re.ASCII)


_Parsed = TypeVar("_Parsed")


class Rate(NamedTuple):
    """A number of requests in a window, both integers; the window is above 0."""

    limit_requests: int
    window_ns: int

    def __str__(self) -> str:
        return format_rate(self)


def duration_or_rule(text: str) -> int | str:
    """Return the nanoseconds of a duration, or the rule that the text breaks."""
    if len(text) <= _LONGEST_TEXT and _NUMBER.fullmatch(text):
        return f'must name a unit; write "{text}s" for seconds'
    if len(text) > _LONGEST_TEXT or not _DURATION.fullmatch(text):
        return 'must be a duration such as "1m30s" (units d, h, m, s, ms, us, ns)'
    total = Fraction(0)
    last_unit_ns = _LONGEST_NS
    for number, unit in _PART.findall(text):
        unit_ns = _DURATION_NS[unit]
        if unit_ns >= last_unit_ns:
            return 'must name each unit once, the largest first, such as "1m30s"'
        last_unit_ns = unit_ns
        total += Fraction(number) * unit_ns
    if total.denominator != 1:
        return "must be a whole number of nanoseconds"
    if total > _LONGEST_NS:
        return "must be below 292 years"
    return int(total)


def parse_duration_ns(text: str) -> int:
    """Return the nanoseconds of a duration; `InputError` for any other text.

    >>> parse_duration_ns("1m30s"), parse_duration_ns("1.5s"), parse_duration_ns("0s")
    (90000000000, 1500000000, 0)
    """
    return _value("duration", text, duration_or_rule(text))


def as_ns(thing: str, value: object) -> int:
    """Return whole nanoseconds, given as such or as a duration; `InputError` for anything else.

    >>> as_ns("block_ns", "10s"), as_ns("block_ns", 5)
    (10000000000, 5)
    >>> as_ns("block_ns", "10")
    Traceback (most recent call last):
    engine.errors.InputError: block_ns = '10' must name a unit; write "10s" for seconds
    """
    if isinstance(value, str):
        return _value(thing, value, duration_or_rule(value))
    if isinstance(value, bool | float) or not hasattr(value, "__index__"):
        raise wrong_type(thing, value, "whole nanoseconds or a duration such as '10s'")
    return operator.index(value)


def format_duration(duration_ns: int) -> str:
    """Return the shortest text that `parse_duration_ns` reads back as the same number.

    >>> format_duration(90_000_000_000), format_duration(1_500_000), format_duration(0)
    ('1m30s', '1.5ms', '0s')
    """
    assert duration_ns >= 0
    parts = []
    rest_ns = duration_ns
    for unit in ("d", "h", "m"):
        count, rest_ns = divmod(rest_ns, _DURATION_NS[unit])
        if count:
            parts.append(f"{count}{unit}")
    if rest_ns or not parts:
        unit = "s"
        if not parts and rest_ns:
            unit = next(u for u in ("s", "ms", "us", "ns") if rest_ns >= _DURATION_NS[u])
        parts.append(_decimal(rest_ns, _DURATION_NS[unit]) + unit)
    return "".join(parts)


def rate_or_rule(text: str, *, may_be_zero: bool = False, is_mean: bool = False) -> Rate | str:
    """Return a rate, or the rule that the text breaks; zero requests only where allowed.

    is_mean: decimals are allowed; the window is multiplied by a power of ten to keep them.
    """
    count, slash, window = text.partition("/")
    scale = 1
    if is_mean and slash and len(count) <= _LONGEST_TEXT and _NUMBER.fullmatch(count):
        whole, _, decimals = count.partition(".")
        decimals = decimals.rstrip("0")
        count, scale = whole + decimals, 10 ** len(decimals)
    if slash and _NUMBER.fullmatch(count.removeprefix("-")) and count.startswith("-"):
        return "must be above 0"
    if not slash or len(count) > _LONGEST_TEXT or not (count.isascii() and count.isdigit()):
        return 'must be a rate such as "50/10s": whole requests, a slash, a window'
    window_ns = duration_or_rule(window if window[:1].isdigit() else f"1{window}")
    if isinstance(window_ns, str):
        return 'must be a rate such as "50/10s": whole requests, a slash, a window'
    if window_ns == 0:
        return "must have a window above 0"
    window_ns *= scale
    if window_ns > _LONGEST_NS:
        return "must have fewer decimals"
    if int(count) == 0 and not may_be_zero:
        return "must be above 0"
    if int(count) > 2**31 - 1:
        return "must be below 2147483648 requests"
    return Rate(int(count), window_ns)


def span_text(span_ns: int) -> str:
    """Return a length of time for a sentence, in its two largest units; the rest is cut.

    >>> span_text(65_000_000_000).replace("\u202f", " "), span_text(2_500_000_000).split()
    ('1 min 5 s', ['2.5', 's'])
    """
    if span_ns <= 0:
        return f"0{_THIN}s"
    for place, (unit, size_ns) in enumerate(_UNITS[:-1]):
        if span_ns >= size_ns:
            whole, rest_ns = divmod(span_ns, size_ns)
            small, small_ns = _UNITS[place + 1]
            rest = rest_ns // small_ns
            text = f"{whole}{_THIN}{unit}"
            return f"{text} {rest}{_THIN}{small}" if rest else text
    unit, size_ns = next(size for size in (_UNITS[-1], *_SMALL_UNITS) if span_ns >= size[1])
    return f"{span_ns / size_ns:.3g}{_THIN}{unit}"


def parse_rate(text: str) -> Rate:
    """Return `(limit_requests, window_ns)` of a rate; `InputError` for any other text.

    >>> parse_rate("50/10s")
    Rate(limit_requests=50, window_ns=10000000000)
    >>> str(parse_rate("200/m"))
    '200/1m'
    """
    return _value("rate", text, rate_or_rule(text))


def as_rate(thing: str, value: object) -> Rate:
    """Return a rate, given as a text or as requests and a window; `InputError` for anything else.

    >>> as_rate("rate", "50/10s") == as_rate("rate", (50, "10s"))
    True
    """
    if isinstance(value, str):
        return _value(thing, value, rate_or_rule(value))
    if not isinstance(value, tuple) or len(value) != 2:
        raise wrong_type(thing, value, "a rate such as '50/10s'")
    limit_requests, window = value
    if isinstance(limit_requests, bool) or not isinstance(limit_requests, int):
        raise wrong_type(thing, limit_requests, "whole requests in a window, such as '50/10s'")
    return Rate(limit_requests, as_ns(thing, window))


def format_rate(rate: tuple[int, int]) -> str:
    """Return a rate as text: `format_rate((50, 10_000_000_000)) == "50/10s"`."""
    limit_requests, window_ns = rate
    return f"{limit_requests}/{format_duration(window_ns)}"


def size_or_rule(text: str) -> int | str:
    """Return the bytes of a size, or the rule that the text breaks."""
    match = _SIZE.fullmatch(text)
    if match is None or match[2] == "i" or len(text) > _LONGEST_TEXT:
        return 'must be a size such as "30MB" or "1MiB" (units B, K, M, G, Ki, Mi, Gi)'
    total = Fraction(match[1]) * _SIZE_BYTES[match[2].upper()]
    if total.denominator != 1:
        return "must be a whole number of bytes"
    if total > _LONGEST_NS:
        return "must be below 9 EB"
    return int(total)


def parse_size_bytes(text: str) -> int:
    """Return the bytes of a size; `InputError` for any other text.

    >>> parse_size_bytes("30MB"), parse_size_bytes("1MiB"), parse_size_bytes("12")
    (30000000, 1048576, 12)
    """
    return _value("size", text, size_or_rule(text))


def format_size(size_bytes: int) -> str:
    """Return a text that `parse_size_bytes` reads back as the same number.

    >>> format_size(30_000_000), format_size(1_048_576), format_size(1_500)
    ('30MB', '1MiB', '1500B')
    """
    assert size_bytes >= 0
    if size_bytes:
        for unit in ("G", "GI", "M", "MI", "K", "KI"):
            count, rest = divmod(size_bytes, _SIZE_BYTES[unit])
            if count and not rest:
                return f"{count}{unit.replace('I', 'i')}B"
    return f"{size_bytes}B"


def _value(thing: str, text: str, parsed: _Parsed | str) -> _Parsed:
    if isinstance(parsed, str):
        raise InputError(f"{thing} = {text!r} {parsed}")
    return parsed


def _decimal(amount: int, unit: int) -> str:
    """Return amount / unit as an exact decimal; unit is a power of ten."""
    whole, rest = divmod(amount, unit)
    digits = str(unit + rest)[1:].rstrip("0")
    return f"{whole}.{digits}" if digits else str(whole)


@dataclass(frozen=True)
class Duration(Kind[int]):
    """A duration such as `"1m30s"`; nanoseconds in Python, whose names end in `_ns`."""

    minimum_ns: int = 0
    suffix: ClassVar[str] = "_ns"

    def read(self, spot: Spot) -> int:
        if isinstance(spot.value, int | float) and not isinstance(spot.value, bool):
            spot.fail(f'must name a unit; write "{spot.value}s" for seconds')
        duration_ns = _from_text(spot, duration_or_rule, 'a duration such as "1m30s"')
        if duration_ns < self.minimum_ns:
            least = format_duration(self.minimum_ns)
            spot.fail("must be above 0" if self.minimum_ns == 1 else f"must be at least {least}")
        return int(duration_ns)

    def write(self, value: int) -> str:
        return format_duration(value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        definitions["duration"] = {
            "type": "string",
            "description": 'A duration such as "1m30s"; units d, h, m, s, ms, us, ns.',
            "pattern": r"^([0-9]+(\.[0-9]+)?(d|h|ms|us|µs|ns|m|s))+$",
        }
        return {"$ref": "#/$defs/duration"}


@dataclass(frozen=True)
class RateText(Kind[Rate]):
    """A rate such as `"50/10s"`: requests in a window.

    is_mean: a mean rate, which may have decimals: `"6.67/1s"` is 667 in 100 s.
    """

    may_be_zero: bool = False
    is_mean: bool = False

    def read(self, spot: Spot) -> Rate:
        if isinstance(spot.value, int | float) and not isinstance(spot.value, bool):
            spot.fail(f'must name a window; write "{spot.value}/1s" for requests a second')
        rate: Rate = _from_text(
            spot,
            partial(rate_or_rule, may_be_zero=self.may_be_zero, is_mean=self.is_mean),
            'a rate such as "50/10s"',
        )
        return rate

    def write(self, value: Rate) -> str:
        return format_rate(value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        name, examples, count = "rate", '"50/10s"', "[0-9]+"
        if self.is_mean:
            name, examples, count = "mean rate", '"50/10s" or "6.67/1s"', r"[0-9]+(\.[0-9]+)?"
        key = name.replace(" ", "_")
        definitions[key] = {
            "type": "string",
            "description": f"A {name} such as {examples}: requests in a window.",
            "pattern": rf"^{count}/([0-9]*(\.[0-9]+)?(d|h|ms|us|µs|ns|m|s))+$",
        }
        return {"$ref": f"#/$defs/{key}"}


@dataclass(frozen=True)
class Size(Kind[int]):
    """A size such as `"30MB"`, or a whole number of bytes; Python names end in `_bytes`."""

    minimum_bytes: int = 0
    suffix: ClassVar[str] = "_bytes"

    def read(self, spot: Spot) -> int:
        if isinstance(spot.value, int) and not isinstance(spot.value, bool):
            size_bytes = spot.value
        else:
            size_bytes = _from_text(spot, size_or_rule, 'a size such as "30MB"')
        if size_bytes < self.minimum_bytes:
            spot.fail(f"must be at least {format_size(self.minimum_bytes)}")
        return size_bytes

    def write(self, value: int) -> str:
        return format_size(value)

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        definitions["size"] = {
            "type": ["string", "integer"],
            "description": 'A size such as "30MB" or "1MiB", or a number of bytes.',
            "pattern": r"^[0-9]+(\.[0-9]+)? ?([kKMG]|[KMG]i)?B?$",
            "minimum": 0,
        }
        return {"$ref": "#/$defs/size"}


def _from_text(spot: Spot, parse: Any, expected: str) -> Any:  # noqa: ANN401 # reason: by unit
    if not isinstance(spot.value, str):
        spot.fail(f"must be {expected}")
    value = parse(spot.value)
    if isinstance(value, str):
        spot.fail(value)
    return value
