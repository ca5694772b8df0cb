"""Distinct rows of codes, numbered: of one batch, and of a log from batch to batch.

A log may have as many distinct rows as requests, so nothing here is an object a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

__all__ = ["RowNumbers", "distinct"]

_WIDEST: Final = 1 << 62
_CODE_BITS: Final = 32

Codes = npt.NDArray[np.int32]
Numbers = npt.NDArray[np.int64]


def distinct(columns: Sequence[npt.NDArray[np.signedinteger[Any]]]) -> tuple[Numbers, Numbers]:
    """Number the distinct rows in order of appearance; return each row's number, and first rows.

    columns: codes from −1.
    """
    import pandas as pd  # noqa: PLC0415 # reason: loaded where a log is read

    number, width = columns[0].astype(np.int64) + 1, int(columns[0].max(initial=-1)) + 2
    for column in columns[1:]:
        size = int(column.max(initial=-1)) + 2
        if width * size > _WIDEST:
            number, names = pd.factorize(number)
            width = len(names)
        number = number * size + (column + 1)
        width *= size
    number, names = pd.factorize(number)  # hashes in one pass, where np.unique sorts
    return number, _first_of_each(number, len(names))


def _first_of_each(number: Numbers, count: int) -> Numbers:
    """Return the first row of each number."""
    first = np.empty(count, dtype=np.int64)
    first[number[::-1]] = np.arange(len(number))[::-1]  # of several writes the last one stays
    return first


class RowNumbers:
    """Numbers of distinct rows of codes, from 0, the same from call to call.

    New rows are numbered in order of appearance. A row of several codes is a pair of the number
    of all codes before the last, and the last.
    """

    __slots__ = ("_pairs",)

    def __init__(self, columns: int) -> None:
        self._pairs = [_Pairs() for _ in range(max(columns - 1, 1))]

    def __len__(self) -> int:
        return len(self._pairs[-1])

    def number(self, columns: Sequence[Codes]) -> Numbers:
        """Return each row's number. columns: codes from −1 to 2³¹ − 2."""
        number = columns[0].astype(np.int64) + 1
        if len(columns) == 1:
            return self._pairs[0].number(number, np.zeros_like(columns[0]))
        for pairs, column in zip(self._pairs, columns[1:], strict=True):
            number = pairs.number(number, column)
        return number


class _Pairs:
    """Numbers of distinct pairs; the pairs are kept in their order, each beside its number."""

    __slots__ = ("_numbers", "_ordered")

    def __init__(self) -> None:
        self._ordered: Numbers = np.empty(0, dtype=np.int64)
        self._numbers: Codes = np.empty(0, dtype=np.int32)

    def __len__(self) -> int:
        return len(self._ordered)

    def number(self, left: Numbers, right: Codes) -> Numbers:
        """Return each pair's number. left: from 0, below 2³¹. right: from −1."""
        import pandas as pd  # noqa: PLC0415 # reason: loaded where a log is read

        local, pairs = pd.factorize(left << _CODE_BITS | (right.astype(np.int64) + 1))
        order = np.argsort(pairs)
        ordered = pairs[order]
        place = np.searchsorted(self._ordered, ordered)
        known = np.zeros(len(pairs), dtype=bool)
        inside = place < len(self._ordered)
        known[inside] = self._ordered[place[inside]] == ordered[inside]
        numbers = np.empty(len(pairs), dtype=np.int64)
        numbers[order[known]] = self._numbers[place[known]]
        new = ~known
        fresh = np.sort(order[new])  # in order of appearance
        numbers[fresh] = np.arange(len(self), len(self) + len(fresh))
        self._numbers = np.insert(self._numbers, place[new], numbers[order[new]])
        self._ordered = np.insert(self._ordered, place[new], ordered[new])
        return np.asarray(numbers[local])
