"""From a log to columns: read, map, and keep what parses.

A log of ten million lines names few addresses and fewer methods, so every field is held as a code
into the list of its distinct values, and the map is applied to that list. Nothing here orders,
scales or judges requests.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from engine.errors import InputError, did_you_mean
from simulator.traffic.logs._arrow_tables import FrameReader, ParquetReader
from simulator.traffic.logs._batch import Column, Faults, Reader
from simulator.traffic.logs._lines import combined_reader, common_reader, pattern_reader
from simulator.traffic.logs._mapping import FORMATS, Format, LogMap, Rejected, Source
from simulator.traffic.logs._source import head_lines
from simulator.traffic.logs._stamps import Notation, StampError, clock_for, guess_notation
from simulator.traffic.logs._text_tables import CsvReader, JsonLinesReader
from simulator.traffic.logs._values import arrow_text, arrow_times, parts_of

__all__ = ["ADDRESS", "Field", "Log", "read_log"]

ADDRESS: Final = "192.0.2.1"
"""The address of requests in a log that has none (a documentation address, RFC 5737)."""

_METHOD: Final = "POST"
_PATH: Final = "/tokenize"
_READERS: Final[Mapping[Format, Callable[[Path], Reader]]] = {
    "combined": combined_reader,
    "common": common_reader,
    "csv": CsvReader,
    "jsonl": JsonLinesReader,
    "parquet": ParquetReader,
}
_SUFFIXES: Final[Mapping[str, Format]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".parquet": "parquet",
}


@dataclass(frozen=True, slots=True)
class Field:
    """One column: `names[codes[i]]` is row i's value; the code -1 means absent."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...] = field(repr=False)

    def take(self, rows: npt.NDArray[Any]) -> Field:
        """Return the column of these rows."""
        return Field(self.codes[rows], self.names)


@dataclass(frozen=True, slots=True)
class Log:
    """A read log, in the order of its lines.

    t_ns: instants in ns since the Unix epoch (UTC). line: line or row numbers from 1.
    fields: `address`, `method`, `path` always; `key` and the others of a map where the log has
    them. Key texts stand in `fields["key"].names` alone.
    unparsed: how many lines did not parse; unparsed_first: the first few, as `name:line: reason`.
    """

    name: str
    format: str
    t_ns: npt.NDArray[np.int64]
    line: npt.NDArray[np.int64]
    fields: Mapping[str, Field]
    unparsed: int
    unparsed_first: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.t_ns)


def read_log(
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    format: Format | None = None,  # noqa: A002 # reason: the command's own word for it
    map: LogMap | None = None,  # noqa: A002 # reason: the command's own word for it
    time_column: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Read a log whole.

    source: a path (plain or gzip), or a pandas frame, Arrow table or the like.
    format: how it is written; left out, its name and first lines tell.
    map: which field says what; left out, the common names do, and the log has one kind of key.
    time_column: the field with the time, of a log whose fields have names.
    progress: told now and then how many lines were read.

    Raises `InputError` when the source is missing, empty, unreadable, or no line of it parses.
    """
    if isinstance(source, str | Path):
        path = Path(source)
        name = path.name
        kind, reader = _reader(path, format, map)
    else:
        name, kind, reader = "frame", "frame", FrameReader(source)
    if map is None or not map.sources:
        if time_column is not None and kind in {"combined", "common"}:
            raise InputError(
                f"--time-column = {time_column!r} must go with csv, jsonl or parquet; the {kind}"
                " format has its time in its place"
            )
        map = LogMap.guess(reader.fields, time_column=time_column)  # noqa: A001 # reason: as above
    elif time_column is not None:
        raise InputError(f"--time-column = {time_column!r} must stand without a map; say it there")
    map.check_fields(reader.fields, name, open_ended=reader.open_ended)
    return _Assembly(name, kind, map).read(reader, progress)


def _reader(path: Path, format_: Format | None, map_: LogMap | None) -> tuple[str, Reader]:
    if map_ is not None and map_.line is not None:
        if format_ is not None:
            raise InputError(f"--format = {format_!r} must be left out; the map splits the lines")
        return "pattern", pattern_reader(path, map_.line)
    if map_ is not None and map_.format is not None:
        if format_ not in {None, map_.format}:
            raise InputError(
                f"--format = {format_!r} must agree with the map, which says {map_.format!r}"
            )
        format_ = map_.format
    if format_ is None:
        format_ = _tell_format(path)
    elif format_ not in FORMATS:
        raise InputError(
            f"--format = {format_!r} must be one of {', '.join(FORMATS)}"
            f"{did_you_mean(format_, FORMATS)}"
        )
    return format_, _READERS[format_](path)


def _tell_format(path: Path) -> Format:
    """Tell a format by the file's name, else by its first lines."""
    suffixes = [suffix.lower() for suffix in path.suffixes if suffix.lower() != ".gz"]
    if suffixes and suffixes[-1] in _SUFFIXES:
        return _SUFFIXES[suffixes[-1]]
    lines = head_lines(path, 20)
    if not lines:
        raise InputError(f"log = '{path}' must hold at least one line; it is blank")
    if lines[0].startswith("PAR1"):
        return "parquet"
    if lines[0].lstrip().startswith("{"):
        return "jsonl"
    if any('" ' in line and " [" in line for line in lines):
        commons = sum(line.rstrip().count('"') == 2 for line in lines)
        return "common" if 2 * commons > len(lines) else "combined"
    return "csv" if any(mark in lines[0] for mark in ",;\t") else "combined"


class _Codes:
    """The distinct values of a column, numbered in order of appearance, and each row's number."""

    def __init__(self) -> None:
        self.numbers: dict[str | None, int] = {}
        self.codes = array("i")

    def extend(self, column: Column) -> None:
        numbers = self.numbers
        if isinstance(column, list):
            self.codes.extend([numbers.setdefault(text, len(numbers)) for text in column])
            return
        encoded = pc.dictionary_encode(column, null_encoding="encode")
        distinct = [arrow_text(value) for value in encoded.dictionary.to_pylist()]
        own = np.array([numbers.setdefault(text, len(numbers)) for text in distinct], dtype="i4")
        self.codes.frombytes(own[encoded.indices.to_numpy()].tobytes())

    def array(self) -> npt.NDArray[np.int32]:
        return np.frombuffer(self.codes, dtype=np.int32)


class _Assembly:
    """One reading of one log."""

    def __init__(self, name: str, kind: str, log_map: LogMap) -> None:
        self._name = name
        self._kind = kind
        self._sources = log_map.sources
        self._faults = Faults()
        self._lines = array("q")
        self._times = array("q")
        self._bad_times: dict[str, array[int]] = {}
        unit = log_map.sources["time"].unit
        self._clock = None if unit == "auto" else clock_for(cast("Notation", unit))

    def read(self, reader: Reader, progress: Callable[[int], None] | None) -> Log:
        wanted = list(dict.fromkeys(s.field for s in self._sources.values() if s.field is not None))
        raw = {name: _Codes() for name in wanted if name != self._sources["time"].field}
        if any(s.field == self._sources["time"].field for s in self._others()):
            raw[cast("str", self._sources["time"].field)] = _Codes()
        for batch in reader.batches(wanted, self._faults):
            self._lines.extend(batch.lines)
            if progress is not None:
                progress(len(self._lines))
            for name, column in zip(wanted, batch.columns, strict=True):
                if name in raw:
                    raw[name].extend(column)
                if name == self._sources["time"].field:
                    self._extend_times(column, batch.lines)
        return self._finish(raw)

    def _others(self) -> list[Source]:
        return [source for target, source in self._sources.items() if target != "time"]

    def _extend_times(self, column: Column, lines: Sequence[int]) -> None:
        if not isinstance(column, list):
            exact = arrow_times(column)
            if exact is not None:
                times, bad = exact
                self._times.frombytes(times.tobytes())
                for row in bad:
                    self._bad_time("time is missing", lines[int(row)])
                return
            column = [arrow_text(value) for value in column.to_pylist()]
        source = self._sources["time"]
        for line, text in zip(lines, column, strict=True):
            try:
                self._times.append(self._time(source.map_value(text)))
            except (StampError, Rejected) as error:
                self._times.append(0)
                self._bad_time(str(error), line)

    def _time(self, text: str | None) -> int:
        if text is None:
            raise StampError("time is missing")
        if self._clock is None:
            self._clock = clock_for(guess_notation(text))
        return self._clock(text)

    def _bad_time(self, why: str, line: int) -> None:
        self._bad_times.setdefault(why, array("q")).append(line)

    def _finish(self, raw: Mapping[str, _Codes]) -> Log:
        line = np.array(self._lines, dtype=np.int64)
        good = np.ones(len(line), dtype=bool)
        for why, lines in self._bad_times.items():
            good[np.searchsorted(line, lines)] = False
            self._faults.add_many(lines, why)
        fields: dict[str, Field] = {}
        for source in self._others():
            for target, part in parts_of(source):
                fields[target] = self._mapped(source, part, raw, line, good)
        for target, constant in (("address", ADDRESS), ("method", _METHOD), ("path", _PATH)):
            if target not in fields:
                fields[target] = Field(np.zeros(len(line), dtype=np.int32), (constant,))
        if "key" in fields and not (fields["key"].codes[good] >= 0).any():
            del fields["key"]
        rows = np.flatnonzero(good)
        first = tuple(f"{self._name}:{number}: {why}" for number, why in self._faults.first)
        if not len(rows):
            why = f"; {first[0]}" if first else "; it is blank"
            raise InputError(
                f"log = '{self._name}' must hold a line that parses as {self._kind}{why}"
            )
        return Log(
            self._name,
            self._kind,
            np.array(self._times, dtype=np.int64)[rows],
            line[rows],
            {target: column.take(rows) for target, column in fields.items()},
            self._faults.count,
            first,
        )

    def _mapped(
        self,
        source: Source,
        part: Callable[[str], str],
        raw: Mapping[str, _Codes],
        line: npt.NDArray[np.int64],
        good: npt.NDArray[np.bool_],
    ) -> Field:
        """Map the distinct values of a source's field; rows of bad ones leave `good`."""
        if source.field is None:
            assert source.value is not None
            return Field(np.zeros(len(line), dtype=np.int32), (source.value,))
        codes = raw[source.field].array()
        names: dict[str, int] = {}
        translation = np.empty(len(raw[source.field].numbers), dtype=np.int32)
        bad: dict[str, list[int]] = {}
        for text, code in raw[source.field].numbers.items():
            try:
                value = source.map_value(text)
                number = -1 if value is None else names.setdefault(part(value), len(names))
            except Rejected as error:
                number = -1
                bad.setdefault(str(error), []).append(code)
            translation[code] = number
        for why, codes_of_why in bad.items():
            hit = np.isin(codes, codes_of_why) & good
            good[hit] = False
            self._faults.add_many(line[hit].tolist(), why)
        return Field(translation[codes], tuple(names))
