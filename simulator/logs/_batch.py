"""What a reader hands on: a batch of lines as columns, and the lines that it could not read.

A column is texts as they stand in the file (None = the line has no such field) or an Arrow array;
`Reader.clean` says what such a text comes to, and is asked once a distinct text. The one idea:
nothing about a bad line but its number and the reason is kept, because what stood in it may be
hostile or secret.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeAlias

import pyarrow as pa

__all__ = ["BATCH_LINES", "Batch", "Column", "Faults", "Reader"]

BATCH_LINES: Final = 1 << 15
"""Lines a batch: enough for column-wise work, little enough for memory to stay flat."""

_NAMED: Final = 5

Column: TypeAlias = "Sequence[str | None] | pa.Array"


@dataclass(slots=True)
class Faults:
    """Lines that do not parse: how many, and the first few with the reason."""

    count: int = 0
    _worst: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, why: str, lines: int = 1) -> None:
        """Count `lines` lost lines, the first of them number `line`."""
        self.count += lines
        # A heap of the smallest numbers, negated so that the largest kept one is dropped first.
        if len(self._worst) < _NAMED:
            heapq.heappush(self._worst, (-line, why))
        elif -line > self._worst[0][0]:
            heapq.heapreplace(self._worst, (-line, why))

    def add_many(self, lines: Sequence[int], why: str) -> None:
        """Count all of `lines` (ascending) for one reason."""
        for line in lines[:_NAMED]:
            self.add(int(line), why)
        self.count += max(0, len(lines) - _NAMED)

    @property
    def first(self) -> tuple[tuple[int, str], ...]:
        """The first few, as (line number, reason), in the log's order."""
        return tuple(sorted((-line, why) for line, why in self._worst))


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines of a log: `columns` are in the order in which the fields were asked for."""

    lines: Sequence[int]
    columns: Sequence[Column]


class Reader(Protocol):
    """A log of one format."""

    @property
    def fields(self) -> tuple[str, ...]:
        """The names of its fields; for JSON lines those of the first lines."""
        ...

    @property
    def open_ended(self) -> bool:
        """Whether later lines may hold fields that `fields` does not name."""
        ...

    def clean(self, name: str, text: str | None) -> str | None:
        """Return the value of a field `name` that stands in the log as `text`; None is absent."""
        ...

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; unreadable lines go to `faults`."""
        ...
