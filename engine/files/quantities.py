"""Kinds of values that are texts with units in files: durations, rates, sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

from engine.files.document import Spot
from engine.files.kinds import Kind, Schema
from engine.files.units import (
    Rate,
    duration_or_rule,
    format_duration,
    format_rate,
    format_size,
    rate_or_rule,
    size_or_rule,
)

__all__ = ["Duration", "RateText", "Size"]


@dataclass(frozen=True)
class Duration(Kind[int]):
    """A duration such as `"1m30s"`; nanoseconds in Python, whose names end in `_ns`."""

    minimum_ns: int = 0
    suffix: ClassVar[str] = "_ns"

    def _read(self, spot: Spot) -> int:
        if isinstance(spot.value, int | float) and not isinstance(spot.value, bool):
            spot.fail(f'must name a unit; write "{spot.value}s" for seconds')
        duration_ns = _from_text(spot, duration_or_rule, 'a duration such as "1m30s"')
        if duration_ns < self.minimum_ns:
            least = format_duration(self.minimum_ns)
            spot.fail("must be above 0" if self.minimum_ns == 1 else f"must be at least {least}")
        return int(duration_ns)

    def _write(self, value: int) -> str:
        return format_duration(value)

    def _schema(self, definitions: dict[str, Schema]) -> Schema:
        definitions["duration"] = {
            "type": "string",
            "description": 'A duration such as "1m30s"; units d, h, m, s, ms, us, ns.',
            "pattern": r"^([0-9]+(\.[0-9]+)?(d|h|ms|us|µs|ns|m|s))+$",
        }
        return {"$ref": "#/$defs/duration"}


@dataclass(frozen=True)
class RateText(Kind[Rate]):
    """A rate such as `"50/10s"`: requests in a window.

    is_mean: whether it is a mean, of which decimals are kept: `"6.67/1s"` is 667 in 100 s.
    """

    may_be_zero: bool = False
    is_mean: bool = False

    def _read(self, spot: Spot) -> Rate:
        if isinstance(spot.value, int | float) and not isinstance(spot.value, bool):
            spot.fail(f'must name a window; write "{spot.value}/1s" for requests a second')
        found: Rate = _from_text(
            spot,
            partial(rate_or_rule, may_be_zero=self.may_be_zero, is_mean=self.is_mean),
            'a rate such as "50/10s"',
        )
        return found

    def _write(self, value: Rate) -> str:
        return format_rate(value)

    def _schema(self, definitions: dict[str, Schema]) -> Schema:
        if self.is_mean:
            definitions["mean_rate"] = {
                "type": "string",
                "description": 'A mean rate such as "50/10s" or "6.67/1s": requests in a window.',
                "pattern": r"^[0-9]+(\.[0-9]+)?/([0-9]*(\.[0-9]+)?(d|h|ms|us|µs|ns|m|s))+$",
            }
            return {"$ref": "#/$defs/mean_rate"}
        definitions["rate"] = {
            "type": "string",
            "description": 'A rate such as "50/10s": requests in a window.',
            "pattern": r"^[0-9]+/([0-9]*(\.[0-9]+)?(d|h|ms|us|µs|ns|m|s))+$",
        }
        return {"$ref": "#/$defs/rate"}


@dataclass(frozen=True)
class Size(Kind[int]):
    """A size such as `"30MB"`, or a whole number of bytes; Python names end in `_bytes`."""

    minimum_bytes: int = 0
    suffix: ClassVar[str] = "_bytes"

    def _read(self, spot: Spot) -> int:
        if isinstance(spot.value, int) and not isinstance(spot.value, bool):
            size_bytes = spot.value
        else:
            size_bytes = _from_text(spot, size_or_rule, 'a size such as "30MB"')
        if size_bytes < self.minimum_bytes:
            spot.fail(f"must be at least {format_size(self.minimum_bytes)}")
        return size_bytes

    def _write(self, value: int) -> str:
        return format_size(value)

    def _schema(self, definitions: dict[str, Schema]) -> Schema:
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
