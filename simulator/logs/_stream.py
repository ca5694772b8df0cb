"""A log as a stream of columns: each batch is read, mapped, filtered and yielded.

A reader hands on a `Batch` of lines as columns, and counts the lines that it could not read in
`UnreadLines`. A column is texts as they stand in the file (None = the line has no such field) or an
Arrow array; `Reader.clean` says what such a text comes to, and is asked once a distinct text. Of a
bad line only its number and the reason are kept: its text may be hostile or secret.

A log of ten million lines names few addresses and fewer methods, so every value is a number into
the list of the distinct ones. Only those lists stay in memory: they grow with the number of
addresses, keys and paths, and not with the lines. What a text comes to is remembered for the texts
that were met last.
"""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from bisect import insort
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, TypeAlias, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from engine.errors import InputError
from engine.hosts import is_plain_address, read_address
from simulator.logs._log_map import DOCUMENTED, LogMap, Source, ValueRejected, parts_of
from simulator.logs._values import (
    UNIT_DIGITS,
    arrow_instants,
    arrow_texts,
    epoch_unit,
    read_instant,
)
from simulator.logs.formats import FORWARDED, plain_name
from simulator.rows.record import array_of, words

BATCH_LINES: Final = 1 << 15
"""Lines a batch: enough for column-wise work, little enough for memory to stay flat."""

_NAMED: Final = 3
_ABSENT: Final = frozenset({"", "-"})

Column: TypeAlias = "Sequence[str | None] | pa.Array"


@dataclass(slots=True)
class UnreadLines:
    """Lines that do not parse: how many, for which reason, and the first few."""

    count: int = 0
    reasons: Counter[str] = field(default_factory=Counter)
    _first: list[tuple[int, str]] = field(default_factory=list)

    def add(self, line: int, why: str, lines: int = 1) -> None:
        """Count lines that were lost; `line` is the number of the first."""
        self.count += lines
        self.reasons[why] += lines
        insort(self._first, (line, why))
        del self._first[_NAMED:]

    def add_many(self, lines: Sequence[int], why: str) -> None:
        """Count all of `lines` (ascending) for one reason."""
        for line in lines[:_NAMED]:
            self.add(int(line), why, 0)
        self.count += len(lines)
        self.reasons[why] += len(lines)

    @property
    def first(self) -> tuple[tuple[int, str], ...]:
        """The first few, as (line number, reason), in the log's order."""
        return tuple(self._first)


Batch: TypeAlias = "tuple[Sequence[int], Sequence[Column]]"
"""Some lines of a log: their numbers, and their fields in the order that was asked for."""


class Reader(ABC):
    """A log of one format.

    fields: the names of its fields; for JSON lines those of the first lines. open_ended: whether
    later lines may hold others.
    """

    fields: tuple[str, ...]
    open_ended = False

    def clean(self, text: str | None) -> str | None:
        """Return the value of a field that stands in the log as `text`; None is absent."""
        text = (text or "").strip()
        return None if text in _ABSENT else text

    def forwarded(self) -> Iterator[str]:
        """Yield the fields that hold addresses of clients behind proxies, by their names."""
        yield from (name for name in self.fields if plain_name(name).endswith(FORWARDED))

    @abstractmethod
    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; unreadable lines go to `faults`."""


_REJECTED: Final = -2
_NO_TIME: Final = -(1 << 63)
"""Below every instant that a time stamp can express."""
_TEXTS_REMEMBERED: Final = 1 << 16


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

    def take(self, rows: npt.NDArray[np.int64]) -> LogBatch:
        """Return these rows."""
        codes = {name: column[rows] for name, column in self.codes.items()}
        return LogBatch(self.t_ns[rows], self.line[rows], codes)


class LogStream:
    """A log that is read once, from its first line to its last, by `batches`.

    format: its name, and what stands around its lines. names: of each field, the distinct values so
    far; whole once `batches` has ended, as are `unparsed`, `unparsed_first` and `reading`. Key
    texts stand in `names["key"]` alone. has_key_field: whether the log has a place for keys, so
    that an empty one is a request without a key.
    """

    def __init__(  # noqa: PLR0913 # reason: what `stream_log` found out
        self,
        name: str,
        format: str,  # noqa: A002 # reason: the command's own word for it
        log_map: LogMap,
        reader: Reader,
        *,
        progress: Callable[[int], None] | None,
        changes: Mapping[str, Callable[[str], str]],
        has_key_field: bool,
        zone: dt.tzinfo | None,
        client: str | None,
        status: str | None,
        forwarded: str | None,
        is_detected: bool,
    ) -> None:
        self.name = name
        self.format = format
        self.has_key_field = has_key_field
        self._map = log_map
        self._reader = reader
        self._progress = progress
        self._faults = UnreadLines()
        self._good = 0
        self._client = client
        self._status = status
        self._forwarded = forwarded
        self._is_detected = is_detected
        source = log_map.sources["time"]
        self._stamps = _Stamps(source, reader, zone, name)
        others = [other for target, other in log_map.sources.items() if target != "time"]
        self._targets = {
            name: _Target(other, part, reader, changes.get(name, str))
            for other in others
            for name, part in parts_of(other.target, client or "first").items()
        }
        self.names: dict[str, Sequence[str]] = {
            name: target.names for name, target in self._targets.items()
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
        """Yield the requests that parse.

        Raises `InputError`, at the end, where there is none, and where a format that was detected
        describes fewer than half of the lines.
        """
        fields = (target.source.field for target in self._targets.values())
        wanted = list(dict.fromkeys([*filter(None, fields), *self._stamps.fields]))
        rows = 0
        for lines, columns in self._reader.batches(wanted, self._faults):
            rows += len(lines)
            if self._progress is not None:
                self._progress(rows)
            requests = self._read(dict(zip(wanted, columns, strict=True)), lines)
            if len(requests):
                self._good += len(requests)
                yield requests
        for target in self._targets.values():
            target.forget()
        first = self.unparsed_first
        if not self._good:
            is_time = bool(first) and ": time must be like " in first[0]
            way_out = (
                "convert such times first, or name another field"
                if is_time
                else "describe its fields"
            )
            why = f"{first[0]}; {way_out} in a map (see {DOCUMENTED})" if first else ""
            raise InputError(
                f"log = '{self.name}' contains no line in the expected format {self.format};"
                f" {why or 'it is blank'}"
            )
        if self._is_detected and self.unparsed > self._good:
            raise InputError(
                f"log = '{self.name}' must be {self.format}, but {self.unparsed} of"
                f" {self.unparsed + self._good} lines do not parse; {first[0]}; state --format to"
                f" replay the others alone, or describe the lines in a map (see {DOCUMENTED})"
            )

    @property
    def reading(self) -> dict[str, Any]:
        """How the log was read, once it was: what `summary.json` has of it.

        fields: of each target the field that it was read from, and what was assumed.
        """
        targets = ("address", "key", "request", "method", "path")
        sources = self._map.sources
        fields = {name: _described(sources[name]) for name in targets if name in sources}
        if not self.has_key_field and not self.names.get("key"):
            fields.pop("key", None)
        names = self.names.get("address", ())
        others = sum(not is_plain_address(text) and read_address(text) is None for text in names)
        if "address" in fields:
            if self._targets["address"].has_lists or self._client:
                fields["address"] += f", {self._client or 'first'} of forwarded addresses"
            if others:
                fields["address"] += f"; {others} of {len(names)} values are names or pseudonyms"
            if self._forwarded is not None:
                fields["address"] += f"; {self._forwarded} holds addresses too, a map can take it"
        if self._status is not None:
            fields["status"] = f"field {self._status} (no limit reads it)"
        fields["time"] = self._stamps.described()
        return {
            "format": self.format,
            "fields": fields,
            "lines_read": self._good,
            "lines_skipped": self.unparsed,
            "skipped_by_reason": dict(self._faults.reasons.most_common()),
        }

    def _read(self, columns: Mapping[str, Column], lines: Sequence[int]) -> LogBatch:
        line = np.asarray(lines, dtype=np.int64)
        good = np.ones(len(line), dtype=bool)
        t_ns, bad = self._stamps.read([columns[name] for name in self._stamps.fields])
        self._drop(bad, line, good)
        mapped = {target.source.field for target in self._targets.values()}
        texts = {n: self._distinct(n, column) for n, column in columns.items() if n in mapped}
        codes: dict[str, npt.NDArray[np.int32]] = {}
        for name, target in self._targets.items():
            if target.source.field is None:
                codes[name] = np.zeros(len(line), dtype=np.int32)
                continue
            codes[name], bad = target.look_up(*texts[target.source.field])
            self._drop(bad, line, good)
        requests = LogBatch(t_ns, line, codes)
        return requests if good.all() else requests.take(np.flatnonzero(good))

    def _distinct(self, name: str, column: Column) -> _TextsAndPlaces:
        """Return a column as `_distinct_texts`; raises `InputError` where rows hold no texts."""
        try:
            return _distinct_texts(column)
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


_TextsAndPlaces: TypeAlias = "tuple[Sequence[str | None], npt.NDArray[np.int64] | None]"


def _distinct_texts(column: Column) -> _TextsAndPlaces:
    """Return a column's texts and, of an Arrow column, each row's place in its distinct texts."""
    if not isinstance(column, pa.Array):
        return column, None
    if isinstance(column, pa.DictionaryArray) and len(column.dictionary) > len(column):
        column = column.dictionary_decode()  # a file's dictionary comes whole with every batch
    encoded = pc.dictionary_encode(column, null_encoding="encode")
    distinct = arrow_texts(encoded.dictionary)
    places = encoded.indices.cast(pa.int64())
    if places.null_count:  # a column that came as a dictionary keeps its own nulls
        places = places.fill_null(len(distinct))
        distinct.append(None)
    return distinct, array_of(places)


class _LookUp(dict["str | None", int], ABC):
    """What texts come to, of the texts that were met last: most logs repeat them.

    rejected: the value of a text that cannot be used.
    """

    def __init__(self, dtype: type[np.integer[Any]], rejected: int) -> None:
        super().__init__()
        self._dtype = dtype
        self._rejected = rejected
        self._why: dict[str | None, str] = {}

    @abstractmethod
    def value_of(self, text: str | None) -> int:
        """Return what a text comes to. Raises `ValueRejected`."""

    def __missing__(self, text: str | None) -> int:
        try:
            value = self.value_of(text)
        except ValueRejected as error:
            self._why[text] = str(error)
            value = self._rejected
        self[text] = value
        return value

    def look_up(
        self, texts: Sequence[str | None], places: npt.NDArray[np.int64] | None
    ) -> tuple[npt.NDArray[Any], dict[str, list[int]]]:
        """Return each row's value, and the rows that cannot be used by the reason."""
        if len(self) > _TEXTS_REMEMBERED:
            self.clear()
            self._why.clear()
        values = np.fromiter(map(self.__getitem__, texts), self._dtype, len(texts))
        values = values if places is None else values[places]
        bad: dict[str, list[int]] = {}
        if self._why:
            for row in np.flatnonzero(values == self._rejected).tolist():
                text = texts[row if places is None else places[row]]
                bad.setdefault(self._why[text], []).append(row)
        return values, bad


class _Target(_LookUp):
    """The codes of one field after the map: places in its `names`, −1 for absent.

    has_lists: whether some value was a list.
    """

    def __init__(
        self,
        source: Source,
        part: Callable[[str], str],
        reader: Reader,
        change: Callable[[str], str],
    ) -> None:
        super().__init__(np.int32, _REJECTED)
        self.source = source
        self.has_lists = False
        self._part = part
        self._reader = reader
        self._change = change
        self._words = words() if source.value is None else words(change(part(source.value)))
        self.names: list[str] = self._words.known

    def value_of(self, text: str | None) -> int:
        """Return the code of a text. Raises `ValueRejected`."""
        value = self.source.map_value(self._reader.clean(text))
        if value is None:
            return -1
        self.has_lists = self.has_lists or "," in value
        return self._words[self._change(self._part(value))]

    def forget(self) -> None:
        """Free what only more lines would need; the names stay."""
        self.clear()
        self._words.clear()


def _described(source: Source) -> str:
    if source.field is None:
        return f"assumed: {'…' if source.target == 'key' else source.value}"
    return f"field {source.field}"


_UNIT_SAMPLE: Final = 1 << 15
_UNIT_NAMES: Final = {"s": "seconds", "ms": "milliseconds", "us": "microseconds", "ns": "ns"}


class _Stamps(_LookUp):
    """The instants of stamps.

    fields: those that hold the time. The first batch decides which of two guessed ones does, and
    the unit of epoch numbers.
    """

    def __init__(self, source: Source, reader: Reader, zone: dt.tzinfo | None, log: str) -> None:
        super().__init__(np.int64, _NO_TIME)
        assert source.field is not None, "no log has a constant time"
        self.fields = [name for name in (source.field, source.second) if name is not None]
        self._source = source
        self._reader = reader
        self._zone = zone
        self._log = log
        self._unit = source.unit
        self._is_decided = self._is_unit_decided = self._is_doubtful = False
        self._used: list[int] = list(range(len(self.fields)))
        self._zones = [0, 0]  # stamps with a zone, and without

    def described(self) -> str:
        """Return where the time was read, its unit and its zone."""
        text = "field " + " and ".join(self.fields[place] for place in self._used)
        if self._unit in UNIT_DIGITS:
            return f"{text}, {_UNIT_NAMES[self._unit]} since 1970 (UTC)"
        zone = "UTC" if self._zone is None else str(self._zone)
        if not self._zones[1]:
            return f"{text}, with its zone"
        assumed = "assumed; --zone states another" if self._zone is None else "--zone"
        return f"{text}, zone {zone} ({assumed})" + (" where it has none" if self._zones[0] else "")

    def read(self, columns: Sequence[Column]) -> tuple[npt.NDArray[np.int64], dict[str, list[int]]]:
        """Return each row's instant, and the rows without one by the reason."""
        if not self._is_decided:
            self._decide(columns)
            self._is_decided = True
        columns = [columns[place] for place in self._used]
        if len(columns) == 1 and isinstance(column := columns[0], pa.Array):
            unit = self._unit if self._source.is_plain else None
            exact = arrow_instants(column, unit, self._zone)
            if exact is not None and self._is_of_unit(column, exact[0]):
                self._zones[_is_timestamps(column) and column.type.tz is None] += 1
                return exact
        if len(columns) == 1:
            return self.look_up(*_distinct_texts(columns[0]))
        return self.look_up(self._texts(columns), None)

    def _texts(self, columns: Sequence[Column]) -> Sequence[str | None]:
        """Return the texts of the time, those of day and time of day joined."""
        parts = [arrow_texts(c) if isinstance(c, pa.Array) else c for c in columns]
        if len(parts) == 1:
            return parts[0]
        return [
            f"{day} {clock}" if day and clock else None for day, clock in zip(*parts, strict=True)
        ]

    def _decide(self, columns: Sequence[Column]) -> None:
        """Decide by many lines which field holds the time, and in which unit numbers are."""
        heads = [column[:_UNIT_SAMPLE] for column in columns]
        if self._source.is_guess and len(heads) > 1:
            best = -1
            for places in ([1], [0], [0, 1]):
                count = self._readable([heads[place][:_HEAD_STAMPS] for place in places])
                if count > best:
                    best, self._used = count, places
                if best == min(len(heads[0]), _HEAD_STAMPS):
                    break  # so that no other column, of times perhaps, becomes texts
            self._is_doubtful = not best
        if self._unit != "auto":
            return
        texts = self._texts([heads[place] for place in self._used])
        values = [self._mapped(text) for text in texts if text]
        units = Counter(unit for value in values if (unit := epoch_unit(value)))
        numbers = [float(value) for value in values if epoch_unit(value)]
        if self._source.is_guess:
            self._refuse_durations(numbers)
        self._refuse_other_clocks(numbers)
        ranked = units.most_common(2)
        if len(ranked) > 1 and ranked[0][1] == ranked[1][1]:
            raise InputError(
                f"{self._log}: time must be in one unit; as many lines look like"
                f" {_UNIT_NAMES[ranked[0][0]]} as like {_UNIT_NAMES[ranked[1][0]]}, state it in a"
                f' map: time = {{ field = "{self.fields[0]}", unit = "{ranked[0][0]}" }}'
            )
        if ranked and ranked[0][1] * 2 >= sum(text is not None for text in texts):
            self._unit = ranked[0][0]
            self._is_unit_decided = True

    def _mapped(self, text: str) -> str:
        try:
            return self._source.map_value(self._reader.clean(text)) or ""
        except ValueRejected:
            return ""

    def _readable(self, columns: Sequence[Column]) -> int:
        """Return how many of the first rows hold an instant."""
        column, count = columns[0], 0
        if len(columns) == 1 and isinstance(column, pa.Array) and _is_timestamps(column):
            return len(column.drop_null())
        for text in self._texts(columns):
            with suppress(ValueRejected):
                value = self._mapped(text) if text else ""
                if epoch_unit(value):
                    count += float(value) >= _EARLIEST_S
                elif value:
                    count += bool(read_instant(value))
        return count

    def _refuse_durations(self, numbers: Sequence[float]) -> None:
        """Raise `InputError` where numbers are small and jump: nothing says that they are times."""
        name = plain_name(self.fields[self._used[0]])
        falls = sum(later < earlier for earlier, later in pairwise(numbers))
        jumps = len(numbers) >= _LEAST_FALLS and _LEAST_FALLS * falls >= len(numbers)
        is_duration = jumps or name == "requesttime" or self._is_doubtful
        if numbers and max(numbers) < _EARLIEST_S and is_duration:
            raise InputError(
                f"{self._log}: time must be an instant; {self.fields[self._used[0]]} seems to hold"
                f" durations. Name the time with --time-column, or in a map (see {DOCUMENTED})"
            )

    def _refuse_other_clocks(self, numbers: Sequence[float]) -> None:
        """Raise `InputError` for ticks of 100 ns and days of a spreadsheet: no unit is theirs."""
        ends = (min(numbers, default=0), max(numbers, default=0))
        is_days = any(number % 1 for number in numbers)
        for kind, first, end in (("days of a spreadsheet", *_DAYS), ("ticks of 100 ns", *_TICKS)):
            if first <= ends[0] and ends[1] < end and (is_days or first == _TICKS[0]):
                raise InputError(
                    f"{self._log}: time must be in seconds, ms, us or ns since 1970;"
                    f" {self.fields[self._used[0]]} seems to hold {kind}, convert it first; if not,"
                    f" state its unit in a map (see {DOCUMENTED})"
                )

    def _is_of_unit(self, column: pa.Array, t_ns: npt.NDArray[np.int64]) -> bool:
        """Whether whole numbers are all of the size of the unit that was decided."""
        if not self._is_unit_decided or _is_timestamps(column) or not len(t_ns):
            return True
        ends = pc.min_max(column).as_py().values()
        return all(end is None or epoch_unit(str(end)) == self._unit for end in ends)

    def value_of(self, stamp: str | None) -> int:
        """Return the instant of a stamp. Raises `ValueRejected`."""
        text = self._source.map_value(self._reader.clean(stamp))
        if text is None:
            raise ValueRejected("time is missing")
        if self._is_unit_decided and epoch_unit(text) not in {None, self._unit}:
            raise ValueRejected(
                f"time must be in {_UNIT_NAMES[self._unit]} since 1970, as most lines have it; else"
                " state its unit in a map"
            )
        unit = self._unit
        if self._is_unit_decided and epoch_unit(text) is None:
            unit = "auto"
        instant, is_assumed = read_instant(text, unit, self._zone)
        self._zones[is_assumed] += 1
        return instant


def _is_timestamps(column: pa.Array) -> bool:
    return bool(pa.types.is_timestamp(column.type))


_HEAD_STAMPS: Final = 1000
_EARLIEST_S: Final = 10**8
"""A smaller number is no date of a log (1973), but may count from its start."""
_DAYS: Final = (36_526, 73_050)
"""Days of a spreadsheet from 2000 to 2099."""
_TICKS: Final = (1.2e17, 6.7e17)
"""Windows ticks and those of .NET, of this century; ns since 1970 are more from 2000 on."""
_LEAST_FALLS: Final = 4
"""Of so many numbers in a row, one or more that is below the one before it: durations."""
