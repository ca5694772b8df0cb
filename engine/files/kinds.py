"""Kinds of values: each defines how its values are read, written and described.

A kind turns a TOML value into a Python one or fails at its place, turns it back, and gives the
JSON Schema of what it accepts. Forms (`engine.files.forms`) combine kinds into tables.

Durations, rates and sizes: `"1m30s"`, `"50/10s"`, `"30MB"` in files; integers (`_ns`, `_requests`,
`_bytes`) everywhere else. Arithmetic is exact: a text that is not a whole number of its base unit
is refused, never rounded. K and MB are powers of ten, KiB and MiB powers of two (D-UNITS).

Each `*_or_rule` returns the value, or the rule that the text breaks, for callers that know where
the text stands; each `parse_*` raises `InputError` instead.
"""

from __future__ import annotations

import math
import operator
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import Any, ClassVar, Final, Generic, NamedTuple, TypeVar

from engine.errors import InputError, did_you_mean, wrong_type
from engine.files.document import Spot, shown_value

Value = TypeVar("Value")
Schema = dict[str, Any]

_ENVIRONMENT: Final = re.compile(r"\$\{([^}]*)\}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class Kind(ABC, Generic[Value]):
    """A kind of value. `suffix`: the unit that ends Python names and is left out of files."""

    suffix: ClassVar[str] = ""

    @abstractmethod
    def read(self, spot: Spot) -> Value:
        """Return the Python value; `InputError` at its place when it breaks the rule."""

    def write(self, value: Value) -> Any:  # noqa: ANN401 # reason: any TOML value
        """Return the TOML value that reads back as `value`."""
        return value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        """Return the JSON Schema; shared parts go to `definitions`."""
        return {}


@dataclass(frozen=True)
class TextType(Kind[str]):
    """A string.

    pattern, rule: a regular expression for the whole text, and its rule in words.
    environment: `${NAME}` stands for that environment variable, which must be set.
    secret: messages do not quote it.
    """

    pattern: str | None = None
    rule: str = "must not be empty"
    environment: bool = False
    secret: bool = False

    def read(self, spot: Spot) -> str:
        if not isinstance(spot.value, str):
            spot.fail("must be a string", secret=self.secret)
        text = self._expanded(spot, spot.value) if self.environment else spot.value
        broken = self.pattern is not None and not re.fullmatch(self.pattern, text)
        if broken or not text:
            spot.fail(self.rule, secret=self.secret)
        return text

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": "string"}
        if self.pattern is not None and not self.environment:
            schema["pattern"] = f"^(?:{self.pattern})$"
        else:
            schema["minLength"] = 1
        return schema

    def _expanded(self, spot: Spot, text: str) -> str:
        def variable(match: re.Match[str]) -> str:
            name = match[1]
            if not _VARIABLE.fullmatch(name):
                spot.fail("must name environment variables as ${NAME}", secret=self.secret)
            if name not in os.environ:
                spot.fail_key(f"needs the environment variable {name}, which is not set")
            return os.environ[name]

        return _ENVIRONMENT.sub(variable, text)


@dataclass(frozen=True)
class ChoiceType(Kind[Any]):
    """One of a closed list of strings or whole numbers."""

    choices: tuple[Any, ...]

    def read(self, spot: Spot) -> Any:  # noqa: ANN401 # reason: strings or numbers
        for choice in self.choices:
            if type(spot.value) is type(choice) and spot.value == choice:
                return choice
        names = ", ".join(shown_value(choice) for choice in self.choices)
        words = [str(choice) for choice in self.choices]
        is_text = isinstance(spot.value, str)
        hint = did_you_mean(spot.value, words, otherwise="") if is_text else ""
        rule = f"must be one of {names}{hint}" if len(self.choices) > 1 else f"must be {names}"
        return spot.fail(rule)

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        if len(self.choices) == 1:
            return {"const": self.choices[0]}
        return {"enum": list(self.choices)}


@dataclass(frozen=True)
class Integer(Kind[int]):
    """A whole number from `minimum` to `maximum`."""

    minimum: int | None = None
    maximum: int | None = 2**63 - 1

    def read(self, spot: Spot) -> int:
        if not isinstance(spot.value, int) or isinstance(spot.value, bool):
            spot.fail("must be a whole number")
        _check_bounds(spot, spot.value, self.minimum, self.maximum)
        return spot.value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        maximum = None if self.maximum == 2**63 - 1 else self.maximum
        return _bounded({"type": "integer"}, minimum=self.minimum, maximum=maximum)


@dataclass(frozen=True)
class Number(Kind[float]):
    """A finite number, whole or decimal; `above` excludes its bound."""

    above: float | None = None
    minimum: float | None = None
    maximum: float | None = None

    def read(self, spot: Spot) -> float:
        value = spot.value
        if not isinstance(value, int | float) or isinstance(value, bool):
            spot.fail("must be a number")
        if not math.isfinite(value) or abs(value) > 1e300:
            spot.fail("must be a finite number")
        if self.above is not None and value <= self.above:
            spot.fail(f"must be above {self.above:g}")
        _check_bounds(spot, value, self.minimum, self.maximum)
        return float(value)

    def write(self, value: float) -> float | int:
        return int(value) if value == int(value) and abs(value) < 2**53 else value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        return _bounded(
            {"type": "number"},
            exclusiveMinimum=self.above,
            minimum=self.minimum,
            maximum=self.maximum,
        )


@dataclass(frozen=True)
class Boolean(Kind[bool]):
    """`true` or `false`."""

    def read(self, spot: Spot) -> bool:
        if not isinstance(spot.value, bool):
            spot.fail("must be true or false")
        return spot.value

    def schema(self, _definitions: dict[str, Schema]) -> Schema:
        return {"type": "boolean"}


@dataclass(frozen=True)
class AnyJson(Kind[Any]):
    """Any value that JSON can hold: no date, no time, no infinity."""

    def read(self, spot: Spot) -> Any:  # noqa: ANN401 # reason: any JSON
        value = spot.value
        if isinstance(value, Mapping):
            return {key: self.read(spot.child(key)) for key in value}
        if isinstance(value, list | tuple):
            return [self.read(spot.child(index)) for index in range(len(value))]
        if isinstance(value, float) and not math.isfinite(value):
            spot.fail("must be a finite number")
        if not isinstance(value, str | int | float):
            spot.fail("must be JSON, which has no dates and times; write a string")
        return value


@dataclass(frozen=True)
class Items(Kind[tuple[Any, ...]]):
    """An array whose elements are all of one kind; `minimum` is its least length."""

    item: Kind[Any]
    minimum: int = 0

    def read(self, spot: Spot) -> tuple[Any, ...]:
        if not isinstance(spot.value, list | tuple):
            header = isinstance(spot.value, Mapping) and len(spot.path) == 1
            hint = f"; write [[{spot.path[0]}]]" if header else ""
            spot.fail(f"must be an array{hint}")
        if len(spot.value) < self.minimum:
            spot.fail(
                "must not be empty"
                if self.minimum == 1
                else f"must have at least {self.minimum} elements"
            )
        return tuple(self.item.read(spot.child(index)) for index in range(len(spot.value)))

    def write(self, value: tuple[Any, ...]) -> list[Any]:
        return [self.item.write(item) for item in value]

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        schema: Schema = {"type": "array", "items": self.item.schema(definitions)}
        return _bounded(schema, minItems=self.minimum or None)


@dataclass(frozen=True)
class TableOf(Kind[Mapping[str, Any]]):
    """A table with any keys, all values of one kind."""

    item: Kind[Any]

    def read(self, spot: Spot) -> dict[str, Any]:
        if not isinstance(spot.value, Mapping):
            spot.fail("must be a table")
        return {key: self.item.read(spot.child(key)) for key in spot.value}

    def write(self, value: Mapping[str, Any]) -> dict[str, Any]:
        return {key: self.item.write(item) for key, item in value.items()}

    def schema(self, definitions: dict[str, Schema]) -> Schema:
        return {"type": "object", "additionalProperties": self.item.schema(definitions)}


def _check_bounds(spot: Spot, value: float, minimum: float | None, maximum: float | None) -> None:
    below = minimum is not None and value < minimum
    over = maximum is not None and value > maximum
    if not below and not over:
        return
    spot.fail(f"must be at least {minimum}" if below else f"must be at most {maximum}")


def _bounded(schema: Schema, **bounds: float | None) -> Schema:
    return schema | {name: bound for name, bound in bounds.items() if bound is not None}


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
