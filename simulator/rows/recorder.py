"""The recorder: takes rows one by one, passes them on in chunks, keeps none.

Decisions come in order; answers may come later and in any order (a proxy's destination takes up to
25 s). A chunk is passed on when it is full, all its rows are answered, and every chunk before it
has been passed on: so memory grows with the requests in flight, not with the length of the run.

`Watcher`s take the chunks: the Parquet file, the digest, the tally, the checkers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Final, Protocol

import numpy as np

from simulator.rows.record import CELLS, NO_STATUS, Chunk, Numbers, SubjectTable, VerdictTable

__all__ = ["CHUNK_ROWS", "Recorder", "Watcher"]

CHUNK_ROWS: Final = 1 << 17
"""Rows a chunk, and a row group of the file."""

_COLUMNS: Final = ("t_ns", "subject", "attempt", "verdict", "wait_ns", "latency_ns", "status")
_LATENCY_CELL: Final = 5
_STATUS_CELL: Final = 6
_OPEN: Final = -1


class Watcher(Protocol):
    """Takes a run's rows, chunk by chunk, in decision order."""

    def take(self, chunk: Chunk) -> None:
        """Take in the next rows."""
        ...


class _Open:
    """A chunk that is still being written to."""

    __slots__ = ("cells", "unanswered")

    def __init__(self) -> None:
        self.cells: list[int] = []
        self.unanswered = 0


class Recorder:
    """Collects a run's rows and hands them to `watchers`.

    `add` returns the row's number; a row added with `latency_ns` None is under way, and `answer`
    must be called for it. `close` hands on what is left.
    """

    __slots__ = ("_chunk_cells", "_chunks", "_first", "_last", "_watchers", "subjects", "verdicts")

    def __init__(
        self,
        watchers: Sequence[Watcher],
        *,
        chunk_rows: int = CHUNK_ROWS,
        subjects: SubjectTable | None = None,
    ) -> None:
        assert chunk_rows > 0, "a chunk holds rows"
        self.subjects = SubjectTable() if subjects is None else subjects
        self.verdicts = VerdictTable()
        self._watchers = tuple(watchers)
        self._chunk_cells = chunk_rows * CELLS
        self._last = _Open()
        self._chunks = deque([self._last])
        self._first = 0  # number of the first chunk that is not handed on, times its rows

    def add(
        self,
        t_ns: int,
        subject: int,
        attempt: int,
        verdict: int,
        wait_ns: int,
        latency_ns: int | None,
        status: int = NO_STATUS,
    ) -> int:
        """Take in one decided attempt; returns its number, for `answer`."""
        last = self._last
        cells = last.cells
        if len(cells) == self._chunk_cells:
            last = self._next_chunk()
            cells = last.cells
        if latency_ns is None:
            last.unanswered += 1
            latency_ns = _OPEN
        cells += (t_ns, subject, attempt, verdict, wait_ns, latency_ns, status)
        return self._first + (len(self._chunks) - 1) * self._chunk_cells + len(cells) - CELLS

    def take(self, columns: dict[str, Numbers]) -> None:
        """Hand on rows that are answered already, as columns; not to be mixed with `add`."""
        assert not self._last.cells, "a recorder takes rows or columns"
        chunk = Chunk(**columns, subjects=self.subjects, verdicts=self.verdicts.verdicts)
        for watcher in self._watchers:
            watcher.take(chunk)

    def answer(self, row: int, latency_ns: int, status: int) -> None:
        """Say when and how a row that was under way was answered."""
        place, cell = divmod(row - self._first, self._chunk_cells)
        chunk = self._chunks[place]
        assert chunk.cells[cell + _LATENCY_CELL] == _OPEN, "a row is answered once"
        chunk.cells[cell + _LATENCY_CELL] = latency_ns
        chunk.cells[cell + _STATUS_CELL] = status
        chunk.unanswered -= 1

    def close(self) -> None:
        """Hand on the rows that are left; every one of them must be answered."""
        while self._chunks:
            assert not self._chunks[0].unanswered, "every row is answered before the end"
            self._hand_on()

    def _next_chunk(self) -> _Open:
        self._last = _Open()
        self._chunks.append(self._last)
        while len(self._chunks) > 1 and not self._chunks[0].unanswered:
            self._hand_on()
        return self._last

    def _hand_on(self) -> None:
        cells = self._chunks.popleft().cells
        self._first += self._chunk_cells
        if not cells:
            return
        rows = np.array(cells, dtype=np.int64).reshape(-1, CELLS)
        columns = dict(zip(_COLUMNS, np.ascontiguousarray(rows.T), strict=True))
        chunk = Chunk(**columns, subjects=self.subjects, verdicts=self.verdicts.verdicts)
        for watcher in self._watchers:
            watcher.take(chunk)
