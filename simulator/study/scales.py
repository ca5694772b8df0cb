"""Scales: the values that a search may try, as numbers that rise where the condition gets harder.

A scale rounds its numbers to values that a person can write again, and says what a tolerance is a
share of. It plays nothing and knows no condition.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from fractions import Fraction
from typing import Final, Protocol

from engine.errors import InputError
from engine.files import Rate
from engine.limits import Rule

_NUMBER: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(.*)", re.DOTALL)
_DIGITS: Final = 6
_WIDEST: Final = 64
"""Limits are raised to at most this many times their value."""


class Scale(Protocol):
    """The values of a parameter."""

    low: Fraction
    high: Fraction
    is_whole: bool

    def text(self, number: Fraction) -> str:
        """Return a value as a person would write it."""
        ...

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a value strictly between two, or None where they are near enough."""
        ...

    def rounded(self, number: float, *, up: bool) -> Fraction:
        """Return the nearest value below a number, or above it; the scale's end where none is."""
        ...

    def size(self, number: float) -> float:
        """Return what a tolerance is a share of at a value."""
        ...

    def of_size(self, size: float) -> float:
        """Return the number that has a size."""
        ...


class Values:
    """The values between two texts that differ in their first number only.

    They are whole numbers where a text with a decimal cannot be (`takes_decimal`).
    """

    def __init__(self, low: str, high: str, takes_decimal: Callable[[str], bool]) -> None:
        parts = _NUMBER.fullmatch(low.strip()), _NUMBER.fullmatch(high.strip())
        if parts[0] is None or parts[1] is None or parts[0][2] != parts[1][2]:
            raise InputError(
                f"between = {low} {high} must be two numbers, or texts that differ in their first "
                "number only, such as 10/1s 90/1s"
            )
        self.low, self.high = Fraction(parts[0][1]), Fraction(parts[1][1])
        self._rest = parts[0][2]
        if self.low >= self.high:
            raise InputError(f"between = {low} {high} must rise; put the lower value first")
        self.is_whole = all("." not in part[1] for part in parts if part) and not takes_decimal(
            f"{float(self.high) - 0.5:g}{self._rest}"
        )

    def text(self, number: Fraction) -> str:
        """Return a value as a person would write it."""
        is_whole = number.denominator == 1
        digits = str(int(number)) if is_whole else f"{float(number):.{_DIGITS}g}"
        return digits + self._rest

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a value strictly between two, or None where they are near enough."""
        if self.is_whole:
            middle = Fraction(math.floor((low + high) / 2))
            near = high - low <= 1 or (high - low) <= Fraction(tolerance) * low
            return None if near or middle in {low, high} else middle
        if high - low <= Fraction(tolerance) * max(low, high - low if low == 0 else low):
            return None
        # No more digits than the tolerance asks for, so that a person can write it again.
        for digits in range(1, _DIGITS + 1):
            middle = Fraction(f"{float((low + high) / 2):.{digits}g}")
            if 3 * low + high < 4 * middle < low + 3 * high:
                return middle
        middle = Fraction(f"{float((low + high) / 2):.{_DIGITS}g}")
        return None if middle in {low, high} else middle

    def rounded(self, number: float, *, up: bool) -> Fraction:
        """Return the nearest value below a number, or above it; the scale's end where none is."""
        if self.is_whole:
            value = _rounded_to_whole(number, up=up)
        else:
            step = Fraction(10) ** (math.floor(math.log10(max(abs(number), 1e-9))) - 3)
            value = (math.floor(Fraction(number) / step) + (1 if up else 0)) * step
        return min(max(value, self.low), self.high)

    def size(self, number: float) -> float:
        """Return what a tolerance is a share of at a value: the value."""
        return number

    def of_size(self, size: float) -> float:
        """Return the number that has a size: the size."""
        return size


def _rounded_to_whole(number: float, *, up: bool) -> Fraction:
    """Return the largest whole number up to a number, or the smallest above it."""
    return Fraction(math.floor(number) + (1 if up else 0))


class LoweredLimits:
    """The limits of a rule as reductions from 64 times its limit: the highest limit comes first."""

    is_whole = True

    def __init__(self, rule: Rule) -> None:
        self._highest = _WIDEST * rule.limit_requests
        self._window_ns = rule.window_ns
        self.low = Fraction(0)
        self.high = Fraction(self._highest - rule.limit_requests)

    def text(self, number: Fraction) -> str:
        """Return a limit as a rate."""
        return str(Rate(self._highest - int(number), self._window_ns))

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a value strictly between two, or None where they are near enough."""
        limits = self._highest - int(low), self._highest - int(high)
        if limits[0] - limits[1] <= max(1, tolerance * limits[1]):
            return None
        # Limits differ by factors, so the middle is a geometric one.
        middle = round(math.sqrt(limits[0] * limits[1]))
        middle = min(max(middle, limits[1] + 1), limits[0] - 1)
        return Fraction(self._highest - middle)

    def rounded(self, number: float, *, up: bool) -> Fraction:
        """Return the nearest value below a number, or above it; the scale's end where none is."""
        return min(max(_rounded_to_whole(number, up=up), self.low), self.high)

    def size(self, number: float) -> float:
        """Return what a tolerance is a share of at a value: the limit."""
        return self._highest - number

    def of_size(self, size: float) -> float:
        """Return the number that has a size."""
        return self._highest - size
