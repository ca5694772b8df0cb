"""What every count of rows is made of, whether rows come live from a run or from a file.

- `RowBatch`: some rows of a batch as arrays, any dimension of them as numbers.
- `CrossTab`: how many rows fall into each cell of a table that grows.
- `BlockedTime`: how long counters or parties were shut, overlaps counted once.

Each takes chunk by chunk; memory follows what is told apart, not the rows.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from simulator.rows.record import (
    PASSED,
    Numbers,
    Table,
    clause_of,
    distinct,
    ensure_capacity,
    joined_codes,
)

_DIGIT_BITS: Final = 16
_DIGIT: Final = (1 << _DIGIT_BITS) - 1


def order_by_counter(counter: Numbers) -> Numbers:
    """Return the places of rows ordered by counter (from 0), and each counter's in row order.

    As `argsort(kind="stable")`, 16 bits at a time: numpy sorts so short numbers by radix, in a
    sixth of the time.
    """
    order = np.argsort((counter & _DIGIT).astype(np.uint16), kind="stable")
    rest = counter >> _DIGIT_BITS
    while rest.any():
        order = order[np.argsort((rest[order] & _DIGIT).astype(np.uint16), kind="stable")]
        rest = rest >> _DIGIT_BITS
    return order


NEVER = -(1 << 62)
_FEW: Final = 256
"""Groups that are looked at one by one in less time than all at once."""


def _latest_before(end_ns: Numbers, groups: Numbers, firsts: Numbers, known_ns: Numbers) -> Numbers:
    """Return, for each row, the latest end of the earlier rows of its group.

    groups: of each row; rows are sorted by it. firsts: the first row of each group. known_ns: of
    each group, the latest end before these rows.

    >>> ends, groups = np.array([5, 3, 9, 1]), np.array([0, 0, 0, 4])
    >>> _latest_before(ends, groups, np.array([0, 3]), np.array([2, 7])).tolist()
    [2, 5, 5, 7]
    """
    earlier: Numbers = np.r_[np.int64(NEVER), end_ns[:-1]]
    earlier[firsts] = known_ns
    if len(firsts) <= _FEW:
        parts = [np.maximum.accumulate(part) for part in np.split(earlier, firsts[1:])]
        return np.concatenate(parts)
    longest = int(np.diff(np.r_[firsts, len(groups)]).max())
    step = 1
    while step < longest:  # after it, each row holds the latest of the 2 * step rows before
        within = groups[step:] == groups[:-step]
        before = np.where(within, earlier[:-step], NEVER)
        earlier[step:] = np.maximum(earlier[step:], before)
        step *= 2
    return earlier


class RunningMax:
    """Remembers, counter by counter, the latest end so far."""

    def __init__(self) -> None:
        self._ends: Numbers = np.empty(0, dtype=np.int64)

    def before(self, counter: Numbers, end_ns: Numbers) -> Numbers:
        """Return, row by row, the latest end of earlier rows of its counter, then take these in.

        `NEVER` where there is none. Rows in order; equal lengths.
        """
        if not len(counter):
            return counter
        self._ends = ensure_capacity(self._ends, int(counter.max()) + 1, fill=NEVER)
        order = order_by_counter(counter)
        groups = counter[order]
        firsts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        running = _latest_before(end_ns[order], groups, firsts, self._ends[groups[firsts]])
        answer = np.empty_like(end_ns)
        answer[order] = running
        np.maximum.at(self._ends, counter, end_ns)
        return answer

    def so_far(self, counter: Numbers) -> Numbers:
        """Return, row by row, the latest end of its counter; `before` where no row has an end."""
        self._ends = ensure_capacity(self._ends, int(counter.max(initial=-1)) + 1, fill=NEVER)
        return self._ends[counter]


class BlockedSpans(NamedTuple):
    """What each wait adds to the time for which its counter was shut.

    from_ns: from when it is new. until_ns: its end. before_ns: the latest end of earlier waits.
    """

    from_ns: Numbers
    until_ns: Numbers
    before_ns: Numbers

    @property
    def lasted_ns(self) -> Numbers:
        """How long it lasted beyond earlier waits."""
        lasted_ns: Numbers = np.maximum(self.until_ns - self.from_ns, 0)
        return lasted_ns


class BlockedTime:
    """Waits of counters or parties, chunk by chunk in order of time; overlaps count once.

    from_ns, to_ns: only time between them counts, of waits that began before too.

    A wait of 5 s, and a second later one of 4 s, are 5 s of waiting, not 9.

    >>> numbers = lambda *each: np.array(each, dtype=np.int64)
    >>> BlockedTime(0, 100).take(numbers(7, 7), numbers(0, 1), numbers(5, 4)).lasted_ns.tolist()
    [5, 0]
    """

    def __init__(self, from_ns: int, to_ns: int) -> None:
        self._from_ns, self._to_ns = from_ns, to_ns
        self._latest = RunningMax()

    def take(self, counter: Numbers, t_ns: Numbers, wait_ns: Numbers) -> BlockedSpans:
        """Take the next waits: each one's counter, from 0, its instant and its length."""
        until_ns = np.minimum(t_ns + wait_ns, self._to_ns)
        before_ns = self._latest.before(counter, until_ns)
        from_ns = np.maximum(np.maximum(t_ns, self._from_ns), before_ns)
        return BlockedSpans(from_ns, until_ns, before_ns)


class CrossTab:
    """How many rows fall into each cell of a table; lines and columns may be added."""

    def __init__(self) -> None:
        self.counts: Numbers = np.zeros((0, 0), dtype=np.int64)

    def add(self, lines: Table, columns: Table, shape: tuple[int, int]) -> None:
        """Count some rows, each at its line and column of a table that has grown to `shape`."""
        if shape != self.counts.shape:
            counts = np.zeros(shape, dtype=np.int64)
            counts[: self.counts.shape[0], : self.counts.shape[1]] = self.counts
            self.counts = counts
        cells = lines.astype(np.int64) * shape[1] + columns
        if self.counts.size > len(cells):  # few rows of a large table
            np.add.at(self.counts.reshape(-1), cells, 1)
        else:
            self.counts += np.bincount(cells, minlength=self.counts.size).reshape(shape)


_NULL: Final = -1
_BAD_STATUS: Final = 400


@dataclass(eq=False, slots=True)
class RowBatch:
    """Some rows of one batch. `take` gives fewer of them; columns are read where asked for.

    bin_ns: width of a bin of the dimension `time`. groups: client group → client numbers. rows:
    places in the batch, all of it for None.
    """

    batch: pa.RecordBatch
    bin_ns: int | None
    groups: Mapping[str, range]
    rows: Numbers | None = None

    def __len__(self) -> int:
        return self.batch.num_rows if self.rows is None else len(self.rows)

    def take(self, rows: Numbers) -> RowBatch:
        """Return the rows at these places among these."""
        places = rows if self.rows is None else self.rows[rows]
        return RowBatch(self.batch, self.bin_ns, self.groups, places)

    def ints(self, name: str) -> Numbers:
        """Return a column of numbers; null is −1, and so is all of a column that is not kept."""
        if name not in self.batch.schema.names:
            return np.full(len(self), _NULL, dtype=np.int64)
        return self._chosen(_values(self.batch.column(name)))

    def coded(self, name: str) -> tuple[Numbers, list[Any]]:
        """Return a dimension as codes, and the list that they point into; null is −1."""
        if name == "clause":
            codes, rules = self._texts("rule")
            clauses = dict.fromkeys(map(clause_of, rules))
            place = {clause: number for number, clause in enumerate(clauses)}
            of_rule = np.array([*(place[clause_of(rule)] for rule in rules), _NULL])
            return of_rule[codes], list(clauses)  # null, −1, is the last place
        if name in {"client", "group", "time"}:
            values, codes = np.unique(self._number(name), return_inverse=True)
            if name == "group":
                return values[codes], list(self.groups)
            return codes, values.tolist()
        return self._texts(name)

    def holds(self, name: str, value: str | int) -> npt.NDArray[np.bool_]:
        """Return, row by row, whether a dimension has this value."""
        codes, values = self.coded(name)
        hits = np.array([entry == value for entry in values] + [False])
        return np.asarray(hits[codes])  # null is −1, the last place

    def split(self, names: Sequence[str], *, nulls: bool) -> Iterator[tuple[Any, RowBatch]]:
        """Yield the rows of each combination of values, with the values; null is NaN.

        nulls: rows with a null in them count too. Without names, all rows under `None`.
        """
        if not names:
            yield None, self
            return
        columns = [self.coded(name) for name in names]
        number = joined_codes([codes for codes, _ in columns])
        known = nulls | np.all([codes >= 0 for codes, _ in columns], axis=0)
        rows = np.flatnonzero(known)
        order = rows[np.argsort(number[rows], kind="stable")]
        for part in np.split(order, np.flatnonzero(np.diff(number[order])) + 1):
            if len(part):
                yield (
                    tuple(_value(codes[part[0]], values) for codes, values in columns),
                    (self.take(part)),
                )

    def numbered(self, names: Sequence[str], numbers: dict[Any, int]) -> Numbers:
        """Return the number of each row's combination of values; null is NaN.

        numbers: those of combinations met so far, by their values; new ones are added in order of
        appearance.
        """
        columns = [self.coded(name) for name in names]
        code, first = distinct([codes for codes, _ in columns])
        own = [
            numbers.setdefault(
                tuple(_value(codes[row], values) for codes, values in columns), len(numbers)
            )
            for row in first.tolist()
        ]
        return np.array(own, dtype=np.int64)[code]

    def turned(self) -> npt.NDArray[np.bool_]:
        """Return, row by row, whether it was refused, by a throttle or by a block."""
        codes, names = self.coded("outcome")
        return ~np.array([name in PASSED for name in names], dtype=bool)[codes]

    def good(self) -> npt.NDArray[np.bool_]:
        """Return, row by row, whether it was admitted and not answered with an error."""
        return ~self.turned() & (self.ints("status") < _BAD_STATUS)  # null, −1, is good

    def _number(self, name: str) -> Numbers:
        if name == "client":
            return self.ints("client")
        if name == "time":
            return self.ints("t_ns") // (self.bin_ns or 1) * (self.bin_ns or 1)
        top = max((numbers.stop for numbers in self.groups.values()), default=0)
        of_client = np.full(top + 1, _NULL, dtype=np.int64)
        for number, numbers in enumerate(self.groups.values()):
            of_client[numbers.start : numbers.stop] = number
        return of_client[np.minimum(self.ints("client"), top)]

    def _texts(self, name: str) -> tuple[Numbers, list[str]]:
        if name not in self.batch.schema.names:
            return np.full(len(self), _NULL, dtype=np.int64), []
        column = self.batch.column(name)
        return self._chosen(_values(column.indices)), column.dictionary.to_pylist()

    def _chosen(self, values: Numbers) -> Numbers:
        return values if self.rows is None else values[self.rows]


def _values(column: pa.Array) -> Numbers:
    """Return numbers, null as −1; Arrow's own methods load pandas, which takes a second."""
    kind = np.dtype(str(column.type))
    valid, held = column.buffers()
    if held is None:
        return np.empty(0, dtype=kind)
    values = np.frombuffer(held, kind, len(column), column.offset * kind.itemsize)
    if not column.null_count:
        return values
    bits = np.unpackbits(np.frombuffer(valid, np.uint8), bitorder="little")
    return np.where(bits[column.offset : column.offset + len(column)], values, kind.type(_NULL))


def _value(code: int, values: list[Any]) -> Any:  # noqa: ANN401 # reason: a text, a number or NaN
    return np.nan if code < 0 else values[code]


_PAIR: Final = ("key", "ip")


class GroupBlockedTime:
    """The block times of one group of rows, batch by batch in order of time.

    from_ns, until_ns: only time between them counts, of blocks that began before too.
    counters: rule → the columns that tell its counters apart; both key and address unless given.
    """

    def __init__(self, from_ns: int, until_ns: int, counters: Mapping[str, Sequence[str]]) -> None:
        self._counters = counters
        self._numbers: defaultdict[str, dict[Any, int]] = defaultdict(dict)
        self._waits: defaultdict[str, BlockedTime] = defaultdict(
            lambda: BlockedTime(from_ns, until_ns)
        )
        self._spans: list[tuple[Numbers, Numbers]] = []

    def take(self, blocked: RowBatch) -> None:
        """Take the next blocked rows."""
        for (rule,), rows in blocked.split(("rule",), nulls=False):
            counter = rows.numbered(self._counters.get(rule, _PAIR), self._numbers[rule])
            shut = self._waits[rule].take(counter, rows.ints("t_ns"), rows.ints("wait_ns"))
            fresh = shut.until_ns > shut.from_ns
            self._spans.append((shut.from_ns[fresh], shut.until_ns[fresh]))

    def in_all_ns(self) -> int:
        """Return the time in all."""
        return sum(int((end_ns - start_ns).sum()) for start_ns, end_ns in self._spans)

    def between(self, edges_ns: Numbers) -> Numbers:
        """Return the time before each of some instants, modulo 2^64; differences are exact."""
        starts_ns = np.sort(np.concatenate([np.zeros(0, np.int64), *(s for s, _ in self._spans)]))
        ends_ns = np.sort(np.concatenate([np.zeros(0, np.int64), *(e for _, e in self._spans)]))
        return _gone(starts_ns, edges_ns) - _gone(ends_ns, edges_ns)


def _gone(instants_ns: Numbers, edges_ns: Numbers) -> Numbers:
    """Return Σ max(0, edge − instant) for each edge, modulo 2^64."""
    before = np.searchsorted(instants_ns, edges_ns)
    sums = np.r_[np.int64(0), np.cumsum(instants_ns)]
    return np.asarray(edges_ns * before - sums[before], dtype=np.int64)
