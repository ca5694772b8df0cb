"""Whole numbers that are appended to, one a subject or text, and read as an array.

A run's tables grow while chunks of its rows are looked up in them: building an array from a list
each time would cost as much as the rows. Appending never changes an array that was read before, so
another thread may keep reading it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Growing", "Table"]

Table: TypeAlias = npt.NDArray[Any]
_FIRST_SIZE = 64


class Growing:
    """An array of one type that numbers are appended to."""

    __slots__ = ("_count", "_kept")

    def __init__(self, dtype: npt.DTypeLike) -> None:
        self._kept: Table = np.zeros(_FIRST_SIZE, dtype=dtype)
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def extend(self, values: Sequence[int] | Table) -> None:
        """Append some numbers."""
        count = self._count + len(values)
        if count > len(self._kept):
            kept = np.zeros(max(count, 2 * len(self._kept)), dtype=self._kept.dtype)
            kept[: self._count] = self._kept[: self._count]
            self._kept = kept
        self._kept[self._count : count] = values
        self._count = count

    def read(self) -> Table:
        """Return everything so far; later numbers do not show in it."""
        return self._kept[: self._count]
