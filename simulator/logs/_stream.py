"""A log as a stream of columns: each batch is read, mapped, filtered and yielded.

A reader hands on a `Batch` of lines as columns, and counts the lines that it could not read in
`Faults`. A column is texts as they stand in the file (None = the line has no such field) or an
Arrow array; `Reader.clean` says what such a text comes to, and is asked once a distinct text. Of a
bad line only its number and the reason are kept: its text may be hostile or secret.

A log of ten million lines names few addresses and fewer methods, so every text is a number into
the list of its distinct values, and the map is applied to that list. Only those lists stay in
memory: they grow with the number of addresses, keys and paths, and not with the lines.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from bisect import insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import InputError
from simulator.logs._log_map import LogMap, Notation, Rejected, Source, parts_of
from simulator.logs._values import CLOCKS, arrow_instants, arrow_texts, guess_notation
from simulator.rows.record import Numbered, words

BATCH_LINES: Final = 1 << 15
"""Lines a batch: enough for column-wise work, little enough for memory to stay flat."""

_NAMED: Final = 5

Column: TypeAlias = "Sequence[str | None] | pa.Array"


@dataclass(slots=True)
class Faults:
    """Lines that do not parse: how many, and the first few with the reason."""

    count: int = 0
    _first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, why: str, lines: int = 1) -> None:
        """Count lines that were lost; `line` is the number of the first."""
        self.count += lines
        insort(self._first, (line, why))
        del self._first[_NAMED:]

    def add_many(self, lines: Sequence[int], why: str) -> None:
        """Count all of `lines` (ascending) for one reason."""
        for line in lines[:_NAMED]:
            self.add(int(line), why)
        self.count += max(0, len(lines) - _NAMED)

    @property
    def first(self) -> tuple[tuple[int, str], ...]:
        """The first few, as (line number, reason), in the log's order."""
        return tuple(self._first)


@dataclass(frozen=True, slots=True)
class Batch:
    """Some lines of a log: `columns` are in the order in which the fields were asked for."""

    lines: Sequence[int]
    columns: Sequence[Column]


class Reader(ABC):
    """A log of one format.

    fields: the names of its fields; for JSON lines those of the first lines. open_ended: whether
    later lines may hold others.
    """

    fields: tuple[str, ...]
    open_ended = False

    def clean(self, name: str, text: str | None) -> str | None:
        """Return the value of a field `name` that stands in the log as `text`; None is absent."""
        del name
        return text

    @abstractmethod
    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; unreadable lines go to `faults`."""


ADDRESS: Final = "192.0.2.1"
"""The address of requests in a log that has none (a documentation address, RFC 5737)."""

_CONSTANTS: Final[Mapping[str, str]] = {
    "address": ADDRESS,
    "method": "POST",
    "path": "/tokenize",
}
_REJECTED: Final = -2
_NO_TIME: Final = -(1 << 63)
"""Below every instant that a time stamp can express."""
_STAMPS_KEPT: Final = 1 << 15


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Some requests of a log, in the order of its lines.

    t_ns: instants in ns since the Unix epoch (UTC). line: line or row numbers from 1, ascending.
    codes: of each field, each row's place in the names of the stream so far; −1 means absent.
    """

    t_ns: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    codes: Mapping[str, npt.NDArray[np.int32]]

    def __len__(self) -> int:
        return len(self.t_ns)

    @classmethod
    def joined(cls, batches: Sequence[LogBatch]) -> LogBatch:
        """Return several batches of one stream as one."""
        if len(batches) == 1:
            return batches[0]
        return cls(
            np.concatenate([batch.t_ns for batch in batches]),
            np.concatenate([batch.line for batch in batches]),
            {
                name: np.concatenate([batch.codes[name] for batch in batches])
                for name in batches[0].codes
            },
        )

    def take(self, rows: npt.NDArray[np.int64]) -> LogBatch:
        """Return these rows."""
        codes = {name: column[rows] for name, column in self.codes.items()}
        return LogBatch(self.t_ns[rows], self.line[rows], codes)


class LogStream:
    """A log that is read once, from its first line to its last, by `batches`.

    names: of each field, the distinct values so far; whole once `batches` has ended, as are
    `unparsed` and `unparsed_first`. Key texts stand in `names["key"]` alone. says_keys: whether the
    log has a place for keys, so that an empty one is a request without a key.
    """

    def __init__(
        self,
        name: str,
        kind: str,
        log_map: LogMap,
        reader: Reader,
        progress: Callable[[int], None] | None,
        changes: Mapping[str, Callable[[str], str]],
        *,
        says_keys: bool,
    ) -> None:
        self.name = name
        self.format = kind
        self.says_keys = says_keys
        self._reader = reader
        self._progress = progress
        self._faults = Faults()
        source = log_map.sources["time"]
        self._time_field = cast("str", source.field)
        self._stamps = _Stamps(source, reader)
        others = [each for target, each in log_map.sources.items() if target != "time"]
        self._raw = {each.field: _Texts() for each in others if each.field is not None}
        self._targets = {
            target: _Target(each, part, reader, changes.get(target, str))
            for each in others
            for target, part in parts_of(each.target).items()
        }
        for target, constant in _CONSTANTS.items():
            source = Source(target, value=constant)
            self._targets.setdefault(target, _Target(source, str, reader, str))
        self.names: dict[str, Sequence[str]] = {
            target: found.names for target, found in self._targets.items()
        }

    @property
    def unparsed(self) -> int:
        """How many lines did not parse."""
        return self._faults.count

    @property
    def unparsed_first(self) -> tuple[str, ...]:
        """The first few lines that did not parse, as `name:line: reason`."""
        return tuple(f"{self.name}:{number}: {why}" for number, why in self._faults.first)

    def batches(self) -> Iterator[LogBatch]:
        """Yield the requests that parse. Raises `InputError`, at the end where there is none."""
        wanted = list(dict.fromkeys([*self._raw, self._time_field]))
        rows = good = 0
        for batch in self._reader.batches(wanted, self._faults):
            rows += len(batch.lines)
            if self._progress is not None:
                self._progress(rows)
            found = self._read(dict(zip(wanted, batch.columns, strict=True)), batch)
            if len(found):
                good += len(found)
                yield found
        if not good:
            first = self.unparsed_first
            why = f"; {first[0]}" if first else "; it is blank"
            raise InputError(
                f"log = '{self.name}' must hold a line that parses as {self.format}{why}"
            )

    def _read(self, columns: Mapping[str, Column], batch: Batch) -> LogBatch:
        line = np.asarray(batch.lines, dtype=np.int64)
        good = np.ones(len(line), dtype=bool)
        t_ns, bad = self._stamps.read(columns[self._time_field])
        self._drop(bad, line, good)
        raw = {name: self._numbered(name, columns[name]) for name in self._raw}
        codes: dict[str, npt.NDArray[np.int32]] = {}
        for target, found in self._targets.items():
            name = found.source.field
            if name is None:
                codes[target] = np.zeros(len(line), dtype=np.int32)
                continue
            found.learn(self._raw[name].known)
            codes[target], bad = found.map(raw[name])
            self._drop(bad, line, good)
        found_all = LogBatch(t_ns, line, codes)
        return found_all if good.all() else found_all.take(np.flatnonzero(good))

    def _numbered(self, name: str, column: Column) -> npt.NDArray[np.int32]:
        """Return each row's text as a number; raises `InputError` where rows hold no texts."""
        try:
            return self._raw[name].number(column)
        except pa.ArrowNotImplementedError:
            raise InputError(
                f"{self.name}: column = {name!r} must hold one value a row, not"
                f" {cast('pa.Array', column).type}; take one out of it or leave it out"
            ) from None

    def _drop(
        self,
        bad: Mapping[str, Sequence[int]],
        line: npt.NDArray[np.int64],
        good: npt.NDArray[np.bool_],
    ) -> None:
        """Take rows out; a line is counted once, for the first thing that is wrong with it."""
        for why, rows in bad.items():
            hit = [row for row in rows if good[row]]
            good[hit] = False
            self._faults.add_many(line[hit].tolist(), why)


class _Texts(Numbered):
    """The distinct texts of a field, absent among them, numbered in order of appearance."""

    def number(self, column: Column) -> npt.NDArray[np.int32]:
        """Return each row's text as a number."""
        if not isinstance(column, pa.Array):
            return np.fromiter(map(self.__getitem__, column), np.int32, len(column))
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        distinct = arrow_texts(encoded.dictionary)
        places = encoded.indices
        if places.null_count:  # a column that came as a dictionary keeps its own nulls
            places = places.cast(pa.int64()).fill_null(len(distinct))
            distinct.append(None)
        own = np.fromiter(map(self.__getitem__, distinct), np.int32, len(distinct))
        return np.asarray(own[places.to_numpy()])


class _Target:
    """One field after the map: a look-up from the number of its text."""

    def __init__(
        self,
        source: Source,
        part: Callable[[str], str],
        reader: Reader,
        change: Callable[[str], str],
    ) -> None:
        self.source = source
        self._part = part
        self._reader = reader
        self._change = change
        self._words = words() if source.value is None else words(change(part(source.value)))
        self.names: list[str] = self._words.known
        self._codes = array("i")
        self._why: dict[int, str] = {}

    def learn(self, texts: Sequence[str | None]) -> None:
        """Map the texts of the field that were not there before."""
        source, codes = self.source, self._codes
        name = cast("str", source.field)
        for text in texts[len(codes) :]:
            try:
                value = source.map_value(self._reader.clean(name, text))
                found = None if value is None else self._change(self._part(value))
                codes.append(self._words[found])
            except Rejected as error:
                self._why[len(codes)] = str(error)
                codes.append(_REJECTED)

    def map(self, raw: npt.NDArray[np.int32]) -> tuple[npt.NDArray[np.int32], dict[str, list[int]]]:
        """Return each row's code, and the rows that cannot be used by the reason."""
        codes = np.frombuffer(self._codes, dtype=np.int32)[raw]
        bad: dict[str, list[int]] = {}
        if self._why:
            for row in np.flatnonzero(codes == _REJECTED).tolist():
                bad.setdefault(self._why[int(raw[row])], []).append(row)
        return codes, bad


class _Stamps(dict["str | None", int]):
    """The instants of the stamps met last: a log of whole seconds repeats them."""

    def __init__(self, source: Source, reader: Reader) -> None:
        super().__init__()
        self._source = source
        self._reader = reader
        self._notation = None if source.unit == "auto" else cast("Notation", source.unit)
        self._why: dict[str | None, str] = {}

    def read(self, column: Column) -> tuple[npt.NDArray[np.int64], dict[str, list[int]]]:
        """Return each row's instant, and the rows without one by the reason."""
        if isinstance(column, pa.Array):
            exact = arrow_instants(column, self._notation if self._source.is_plain else None)
            if exact is not None:
                missing = exact[1].tolist()
                return exact[0], {"time is missing": missing} if missing else {}
            column = arrow_texts(column)
        if len(self) > _STAMPS_KEPT:
            self.clear()
            self._why.clear()
        times = np.fromiter(map(self.__getitem__, column), np.int64, len(column))
        bad: dict[str, list[int]] = {}
        if self._why:
            for row in np.flatnonzero(times == _NO_TIME).tolist():
                bad.setdefault(self._why[column[row]], []).append(row)
        return times, bad

    def __missing__(self, stamp: str | None) -> int:
        try:
            found = self._read_one(stamp)
        except Rejected as error:
            self._why[stamp] = str(error)
            found = _NO_TIME
        self[stamp] = found
        return found

    def _read_one(self, stamp: str | None) -> int:
        source = self._source
        text = source.map_value(self._reader.clean(cast("str", source.field), stamp))
        if text is None:
            raise Rejected("time is missing")
        self._notation = self._notation or guess_notation(text)
        return CLOCKS[self._notation](text)
