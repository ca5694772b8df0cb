"""What a sweep varies: lists of values as a grid, ranges as a Latin hypercube, and both together.

`path=v1,v2` lists values; `path=A..B` is a range of whole or decimal numbers, durations or rates
of one window. A sample of N draws N points of all ranges at once, so that each range is covered
evenly however many there are (`scipy.stats.qmc.LatinHypercube`).
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd

from engine.errors import InputError
from engine.files import format_duration, parse_duration_ns, parse_rate
from simulator.arguments import TEXT, Rule
from simulator.scenario import value_of

__all__ = ["AXES", "Point", "Span", "points_of", "read_axis", "read_sample"]

Point: TypeAlias = dict[str, Any]
"""Path in the scenario → value, as a file would hold it."""

AXES: Final = Rule(
    "paths in the scenario, each with a list of values that is not empty, or with a text such as"
    ' "10/10s..100/10s"',
    lambda axes: (
        isinstance(axes, Mapping)
        and all(map(TEXT.holds, axes))
        and all(TEXT.holds(values) or _is_list(values) for values in axes.values())
    ),
    lambda axes: {path: _listed(values) for path, values in axes.items()},
)
_SAMPLE: Final = re.compile(r"lhs:([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of values, both ends included; text is what it was written as."""

    text: str
    low: float
    high: float
    kind: str
    window: str = ""

    def at(self, share: float) -> Any:  # noqa: ANN401 # reason: a number or a text
        """Return the value at a share of the way, as a file would hold it."""
        if self.kind == "float":
            return self.low + share * (self.high - self.low)
        # Each whole number has the same part of the way, the ends too.
        whole = min(int(self.high), int(self.low) + int(share * (self.high - self.low + 1)))
        if self.kind == "duration":
            return format_duration(whole)
        return f"{whole}/{self.window}" if self.kind == "rate" else whole


def read_axis(text: str) -> tuple[str, Span | list[Any]]:
    """Return the path and the values of `path=…`. Raises `InputError`.

    >>> read_axis("clients.browsers.count=1,2"), read_axis("rules.LIM-IP.rate=5/1s..9/1s")[1].kind
    (('clients.browsers.count', [1, 2]), 'rate')
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip() or not values.strip():
        raise InputError(f"--set = {text!r} must be path=v1,v2 or path=A..B")
    ends = values.split("..")
    if len(ends) == 2 and all(ends):
        return path.strip(), _span(text, *(end.strip() for end in ends))
    return path.strip(), [value_of(part.strip()) for part in _parts(values)]


def read_sample(text: str) -> int:
    """Return N of `lhs:N`. Raises `InputError`."""
    found = _SAMPLE.fullmatch(text)
    if found is None:
        raise InputError(f"--sample = {text!r} must be lhs:N, such as lhs:50")
    return int(found[1])


def points_of(
    axes: Mapping[str, Span | Sequence[Any]], sample: int | None, seed: int
) -> list[Point]:
    """Return every point: the grid of the lists, times the sample of the ranges.

    Raises `InputError` for ranges without a sample, or a sample without ranges.
    """
    spans = {path: axis for path, axis in axes.items() if isinstance(axis, Span)}
    lists = {path: axis for path, axis in axes.items() if not isinstance(axis, Span)}
    if spans and sample is None:
        path, span = next(iter(spans.items()))
        raise InputError(f"--set = '{path}={span.text}' is a range; add --sample lhs:N")
    if sample is not None and not spans:
        raise InputError(f"--sample = 'lhs:{sample}' must have a range; add --set path=A..B")
    grid = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    if sample is None:
        return grid
    from scipy.stats import qmc  # noqa: PLC0415 # reason: a second, where nothing is sampled

    shares = qmc.LatinHypercube(len(spans), rng=seed).random(sample).tolist()
    drawn = [
        {path: span.at(share) for (path, span), share in zip(spans.items(), row, strict=True)}
        for row in shares
    ]
    return [point | values for point in grid for values in drawn]


def _is_list(values: object) -> bool:
    return isinstance(values, list | tuple | range | np.ndarray | pd.Series) and len(values) > 0


def _listed(values: Any) -> str | list[Any]:  # noqa: ANN401 # reason: a text or any kind of list
    """Return a text as it is, and the values of a list as plain Python has them."""
    if isinstance(values, str):
        return values
    plain = values.tolist() if isinstance(values, np.ndarray | pd.Series) else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in plain]


def _span(text: str, low: str, high: str) -> Span:
    ends = value_of(low), value_of(high)
    written = f"{low}..{high}"
    if all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        found = Span(written, ends[0], ends[1], "int")  # type: ignore[arg-type] # reason: both are numbers
    elif all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        found = Span(written, ends[0], ends[1], "float")  # type: ignore[arg-type] # reason: as above
    elif "/" in low and "/" in high:
        one, other = parse_rate(low), parse_rate(high)
        if one.window_ns != other.window_ns:
            raise InputError(f"--set = {text!r} must have one window in both rates")
        window = format_duration(one.window_ns)
        found = Span(written, one.limit_requests, other.limit_requests, "rate", window)
    else:
        found = Span(written, parse_duration_ns(low), parse_duration_ns(high), "duration")
    if found.low >= found.high:
        raise InputError(f"--set = {text!r} must go from the lower to the higher value")
    return found


def _parts(values: str) -> list[str]:
    """Split at commas that stand in no brackets and no quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for place, letter in enumerate(values):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(values[begin:place])
            begin = place + 1
    return [*parts, values[begin:]]
