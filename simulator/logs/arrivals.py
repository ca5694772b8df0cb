"""From a log to arrivals: ordered, scaled, and with labels in the place of secrets.

An arrival is an instant and the number of a party (who asks for what). Every way of deciding
takes this form, one request at a time or a column at a time. Order is (instant, line) after a
stable sort; an instant is floor((t − t0) / speed) in exact integers, t0 the earliest in the log.

The log is read once, and its rows wait in an `ExternalSort`: in runs, on disk where there are many.
Each run is sorted when it is full, and runs that overlap in time are merged while they are read. A
log in order, as most are, is neither sorted nor merged, and one that is a little out of order is
merged from two runs at a time. Memory is that of one run, however many there are. The file is
unlinked from the start, so that it disappears with the process, however that ends.
"""

from __future__ import annotations

import copy
import io
import re
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import IO, Any, Final, Self, TypeAlias

import numpy as np
import numpy.typing as npt

from engine.errors import InputError
from engine.model import TenantKind
from simulator.logs import Kind, LogStream
from simulator.logs.parties import LogCallers, Naming, PartyTable

RUN_ROWS: Final = 1 << 19
"""Rows a run: what is sorted at once, and what merging holds in memory."""

_FEWEST_ROWS: Final = 1 << 10
"""Rows read from one run at a time: smaller reads would cost more than they save."""

Times: TypeAlias = npt.NDArray[np.int64]
Piece: TypeAlias = tuple[npt.NDArray[Any], ...]
"""Some rows: instants, numbers of who asked for what, and line numbers where these are kept."""

_DTYPES: Final[Sequence[np.dtype[Any]]] = tuple(map(np.dtype, ("i8", "i4", "i8")))
_COLUMNS: Final = 2


class ExternalSort:
    """Takes rows in the log's order, and gives them in order of time.

    folder: where the file lies, once there are more rows than a run has; None keeps all of them in
    memory. Raises `OSError`, with the folder's name, when the disk is full.
    """

    def __init__(
        self, folder: Path | None, *, run_rows: int = RUN_ROWS, columns: int = _COLUMNS
    ) -> None:
        assert run_rows > 0, "a run holds rows"
        self._folder = folder
        self._run_rows = run_rows
        self._columns = columns
        self._file: IO[bytes] | None = None
        self._runs: list[SortedRun] = []
        self._held: Piece = _empty(run_rows, columns)
        self._count = 0

    def __len__(self) -> int:
        return sum(run.rows for run in self._runs) + self._count

    def add(self, *columns: npt.NDArray[Any]) -> None:
        """Take in the next rows, as a piece's columns."""
        while len(columns[0]):
            room = min(self._run_rows - self._count, len(columns[0]))
            for held, column in zip(self._held, columns, strict=True):
                held[self._count : self._count + room] = column[:room]
            self._count += room
            columns = tuple(column[room:] for column in columns)
            if self._count == self._run_rows:
                self._flush()

    def _flush(self) -> None:
        """End the run that is being filled, and begin another one."""
        run = self._sorted()
        self._count = 0
        if self._folder is None:
            self._held = _empty(self._run_rows, self._columns)
            self._runs.append(SortedRun(run[0], partial(_part, run)))
            return
        try:
            self._runs.append(self._written(run, self._folder))
        except OSError as error:
            raise OSError(error.errno, error.strerror, str(self._folder)) from error

    def _sorted(self) -> Piece:
        return _in_order(tuple(column[: self._count] for column in self._held))

    def _written(self, run: Piece, folder: Path) -> SortedRun:
        """Write a run column by column."""
        if self._file is None:
            self._file = tempfile.TemporaryFile(dir=folder)  # noqa: SIM115 # reason: `close` closes it
        starts = []
        for column in run:
            starts.append(self._file.seek(0, io.SEEK_END))
            self._file.write(np.ascontiguousarray(column).data)
        self._file.flush()
        return SortedRun(run[0], partial(_read, self._file, starts))

    def in_order(self) -> Iterator[Piece]:
        """Yield every row in pieces, in order of (instant, place in the log); add none later."""
        runs = list(self._runs)
        if self._count:
            run = self._sorted()
            runs.append(SortedRun(run[0], partial(_part, run)))
        yield from _merged(runs, self._run_rows)

    def close(self) -> None:
        """Free the disk space."""
        if self._file is not None:
            with suppress(OSError):  # rows that a full disk refused are no longer needed
                self._file.close()


class SortedRun:
    """Rows in order of time. read: returns so many rows from a number on.

    first_ns, last_ns: their earliest and latest instant.
    """

    def __init__(self, t_ns: Times, read: Callable[[int, int], Piece]) -> None:
        self.rows = len(t_ns)
        self.first_ns, self.last_ns = int(t_ns[0]), int(t_ns[-1])
        self.read = read


def _part(run: Piece, first: int, rows: int) -> Piece:
    return tuple(column[first : first + rows] for column in run)


def _read(file: IO[bytes], starts: Sequence[int], first: int, rows: int) -> Piece:
    """Return some rows of a file. starts: where each column of their run begins."""
    columns = []
    for start, dtype in zip(starts, _DTYPES, strict=False):
        file.seek(start + first * dtype.itemsize)
        columns.append(np.frombuffer(file.read(rows * dtype.itemsize), dtype=dtype))
    return tuple(columns)


class _Cursor:
    """How far a run is read; `piece` has the rows that are read and not given."""

    def __init__(self, number: int, run: SortedRun) -> None:
        self.number = number
        self._run = run
        self._next = 0
        self.piece = run.read(0, 0)

    def __len__(self) -> int:
        return len(self.piece[0])

    def has_unread(self) -> bool:
        return self._next < self._run.rows

    def refill(self, rows: int) -> None:
        """Read on where fewer than half of `rows` rows are left."""
        have = len(self)
        count = min(rows - have, self._run.rows - self._next)
        if 2 * have < rows and count:
            more = self._run.read(self._next, count)
            self._next += count
            self.piece = _joined([self.piece, more]) if have else more

    def take(self, bound: tuple[int, int] | None) -> Piece:
        """Give the rows at or before `bound`, an instant and the number of a run; all if None."""
        count = len(self)
        if bound is not None:
            side = "right" if self.number <= bound[1] else "left"
            count = int(np.searchsorted(self.piece[0], bound[0], side=side))  # type: ignore[call-overload] # reason: both words are sides
        piece = tuple(column[:count] for column in self.piece)
        self.piece = tuple(column[count:] for column in self.piece)
        return piece


def _merged(runs: list[SortedRun], room: int) -> Iterator[Piece]:
    """Merge runs by (instant, number of the run), holding about `room` rows.

    Only runs that may hold the next row are open. What is given goes up to a bound that no unread
    row lies before: the last row that is read of any open run, the first of one not yet open.
    """
    share = max(min(_FEWEST_ROWS, room), room // _most_together(runs))
    waiting = sorted(range(len(runs)), key=lambda number: (runs[number].first_ns, number))
    waiting.reverse()
    cursors: list[_Cursor] = []
    while waiting or cursors:
        for cursor in cursors:
            cursor.refill(share)
        bounds = [(int(c.piece[0][-1]), c.number) for c in cursors if c.has_unread()]
        if waiting:
            bounds.append((runs[waiting[-1]].first_ns, waiting[-1]))
        bound = min(bounds, default=None)
        pieces = [piece for cursor in cursors if len((piece := cursor.take(bound))[0])]
        cursors = [c for c in cursors if len(c) or c.has_unread()]
        if pieces:
            yield _in_order(_joined(pieces)) if len(pieces) > 1 else pieces[0]
        elif waiting:
            number = waiting.pop()
            cursors.append(_Cursor(number, runs[number]))
            cursors.sort(key=lambda cursor: cursor.number)


def _most_together(runs: list[SortedRun]) -> int:
    """Return how many runs overlap at one instant, at most."""
    starts = np.sort([run.first_ns for run in runs])
    ends = np.sort([run.last_ns for run in runs])
    begun = np.arange(1, len(runs) + 1)
    return int((begun - np.searchsorted(ends, starts)).max(initial=1))


def _in_order(piece: Piece) -> Piece:
    """Return rows in order of time; of one instant, in the order in which they stand."""
    t_ns = piece[0]
    if not (t_ns[1:] < t_ns[:-1]).any():
        return piece
    order = np.argsort(t_ns, kind="stable")
    return tuple(column[order] for column in piece)


def _empty(rows: int, columns: int) -> Piece:
    return tuple(np.empty(rows, dtype=dtype) for dtype in _DTYPES[:columns])


def in_blocks(pieces: Iterable[Piece], rows: int) -> Iterator[Piece]:
    """Yield the same rows in blocks of `rows`, the last one of what is left."""
    held: list[Piece] = []
    count = 0
    for piece in pieces:
        first = 0
        while first < len(piece[0]):
            part = slice(first, first + rows - count)
            held.append(tuple(column[part] for column in piece))
            count += len(held[-1][0])
            first = part.stop
            if count == rows:
                yield _joined(held)
                held, count = [], 0
    if held:
        yield _joined(held)


def _joined(pieces: list[Piece]) -> Piece:
    if len(pieces) == 1:
        return pieces[0]
    return tuple(np.concatenate(columns) for columns in zip(*pieces, strict=True))


BLOCK_ROWS: Final = 1 << 17
"""Rows a block; that of a file's row group, so that a block is written as it was decided."""

_LATEST_NS: Final = 1 << 62
_SPEED: Final = re.compile(r"\d{1,12}(?:\.\d{1,12})?", re.ASCII)


class Arrivals:
    """The requests of a replay, to be read in decision order as often as need be.

    parties: who asks for what, in order of first appearance. start_ns, end_ns: instants of the
    first and the last request in ns since the Unix epoch (UTC), as logged. A context manager; its
    end gives back the room that the requests took.
    """

    def __init__(
        self,
        rows: ExternalSort,
        table: PartyTable,
        order: Times,
        parties: LogCallers,
        speed: Fraction,
    ) -> None:
        """order: the table's numbers of the parties."""
        self.parties = parties
        self.start_ns, self.end_ns = table.start_ns, table.end_ns
        self._rows = rows
        self._place = np.argsort(order)
        self._speed = speed
        _check_span(self.end_ns - self.start_ns, speed)

    def __len__(self) -> int:
        return len(self._rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the disk space."""
        self._rows.close()

    def part(self, from_ns: int, to_ns: int) -> Arrivals:
        """Return the requests in [from_ns, to_ns), of a log at its own pace.

        Their instants count from `from_ns`. They are in the same room, and nobody counts them.
        """
        assert self._speed == 1, "instants are the log's own"
        part = copy.copy(self)
        part.start_ns, part.end_ns = self.start_ns + from_ns, self.start_ns + to_ns - 1
        return part

    def blocks(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[Times, Times]]:
        """Yield instants from the run's start, and the party of each; of a part without any, none.

        rows: how many at a time.
        """
        for t_ns, party, *_ in in_blocks(self._rows.in_order(), rows):
            low = int(np.searchsorted(t_ns, self.start_ns))
            high = int(np.searchsorted(t_ns, self.end_ns, side="right"))
            if high > low:
                yield self._scaled(t_ns[low:high]), self._place[party[low:high]]
            if high < len(t_ns):
                return

    def places(self, rows: int = BLOCK_ROWS) -> Iterator[tuple[Times, Times]]:
        """Yield the instants, as logged, and the line numbers of all arrivals in decision order."""
        for t_ns, _, line in in_blocks(self._rows.in_order(), rows):
            yield t_ns, line

    def _scaled(self, t_ns: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Return floor((t − t0) / speed), exactly."""
        times, over = self._speed.denominator, self._speed.numerator
        if (self.end_ns - self.start_ns) * times < 1 << 63:
            return np.asarray((t_ns - self.start_ns) * times // over, dtype=np.int64)
        return np.array([(t - self.start_ns) * times // over for t in t_ns.tolist()], dtype="i8")


def read_speed(speed: str | int | Fraction) -> Fraction:
    """Return how many times faster than the log the replay runs. Raises `InputError`.

    >>> read_speed("0.5")
    Fraction(1, 2)
    """
    try:
        factor = Fraction(speed if not isinstance(speed, str) or _SPEED.fullmatch(speed) else 0)
    except (TypeError, ValueError, OverflowError):
        factor = Fraction(0)
    if factor <= 0:
        raise InputError(f"speed = {speed!r} must be a decimal number above 0, such as 1000 or 0.5")
    return factor


def speed_text(speed: Fraction) -> str:
    """Return a speed as a decimal number where it is one.

    >>> speed_text(Fraction(5, 2)), speed_text(Fraction(1000)), speed_text(Fraction(1, 3))
    ('2.5', '1000', '1/3')
    >>> speed_text(Fraction(1, 20))
    '0.05'
    """
    decimals = next((n for n in range(25) if not speed * 10**n % 1), None)
    if decimals is None:
        return str(speed)
    digits = str(int(speed * 10**decimals)).rjust(decimals + 1, "0")
    return f"{digits[:-decimals]}.{digits[-decimals:]}" if decimals else digits


def make_arrivals(  # noqa: PLR0913 # reason: all that a log does not say
    log: LogStream,
    *,
    kind: Kind,
    tenant_kind: TenantKind,
    speed: Fraction,
    pseudonym_key: bytes | None = None,
    prefix_bits: int = 128,
    folder: Path | None = None,
    run_rows: int = RUN_ROWS,
    has_lines: bool = False,
) -> Arrivals:
    """Read a log to its end; order and scale its requests, and put labels in place of key texts.

    kind, tenant_kind: of the keys of which the log says nothing.
    pseudonym_key: with it, addresses and keys become keyed hashes (HMAC-SHA-256).
    prefix_bits: what tells IPv6 clients apart (D-IP).
    folder: where requests lie meanwhile, when there are more than `run_rows`; None keeps all in
    memory. has_lines: whether `Arrivals.places` will be read.

    Raises `InputError` when the log gives one key two owners, or is too long at this speed, and as
    `LogStream.batches` does; `OSError` when the folder has no room.
    """
    rows = ExternalSort(folder, run_rows=run_rows, columns=_COLUMNS + has_lines)
    table = PartyTable(log.names)
    try:
        for batch in log.batches():
            lines = (batch.line,) if has_lines else ()
            rows.add(batch.t_ns, table.number(batch), *lines)
        order = table.order()
        naming = Naming(*table.rows(order), log, kind, tenant_kind, pseudonym_key, prefix_bits)
        return Arrivals(rows, table, order, naming.named(), speed)
    except BaseException:
        rows.close()
        raise


def _check_span(span_ns: int, speed: Fraction) -> None:
    if span_ns * speed.denominator // speed.numerator >= _LATEST_NS:
        raise InputError(
            f"speed = {speed_text(speed)} must keep the replay below 146 years; the log spans"
            f" {span_ns // 10**9} s"
        )
