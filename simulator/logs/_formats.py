r"""The formats of logs, each with its reader, and which one a source is written in.

`stream_log` looks only at the names of the fields, or at the first lines; the stream reads the
rest.

*Lines told apart by a pattern*: combined, common, or a user's own.

    combined   ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS SIZE "REFERER" "AGENT" ["EXTRA1" …]
    common     ADDRESS IDENTITY USER [TIME] "REQUEST" STATUS SIZE

A line of another shape is refused with the first place where it leaves the format: a line that was
cut may have been cut anywhere. Quoted fields may hold escapes (`\"`), which stay as logged. Every
pattern here is linear in the length of the line.

*CSV and JSON lines*: every value comes out as the text that stands in the file (a JSON number is
never made a float), so that times stay exact. CSV: the first row names the columns; comma,
semicolon, tab or bar between them; quoted fields may span lines. JSON lines: one object a line; a
dotted name reaches into nested objects (`request.path`).

*Parquet files and frames*: a Parquet file is read a row group's batch at a time. A frame is
anything that Arrow can take: a pandas or polars frame, an Arrow table. Rows are numbered from 1, as
lines are.
"""

from __future__ import annotations

import csv
import io
import json
import re
import sys
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, islice
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from simulator.arguments import shown
from simulator.logs._log_map import Format, LogMap
from simulator.logs._source import (
    Pipe,
    Place,
    head_lines,
    line_blocks,
    numbered_lines,
    open_log,
    place_of,
    unreadable,
)
from simulator.logs._stream import BATCH_LINES, Batch, Faults, LogStream, Reader

_Extras: TypeAlias = "dict[str, str | None] | str"
"""The fields after the user agent by name, or what is wrong with them."""

# No part matches a line feed: whole blocks of lines are matched at once.
_QUOTED: Final = r'"[^"\\\n]*(?:\\.[^"\\\n]*)*"'
_PLACES: Final = (
    ("address", r"(?P<address>\S+)"),
    ("identity", r" (?P<identity>\S+)"),
    ("user", r' (?P<user>[^\["\n]+)'),
    ("time", r" \[(?P<time>[^\]\n]*)\]"),
    ("request", rf" (?P<request>{_QUOTED})"),
    ("status", r" (?P<status>\d{3}|-)"),
    ("size", r" (?P<size>\d+|-)"),
)
_MORE_PLACES: Final = (
    ("referer", rf" (?P<referer>{_QUOTED})"),
    ("agent", rf" (?P<agent>{_QUOTED})"),
)
_EXTRAS: Final = 9
_TAILS_KEPT: Final = 1 << 15
_EXTRA: Final = re.compile(rf" (?:({_QUOTED})|(\S+))")
_QUOTED_FIELDS: Final = frozenset({"request", "referer", "agent"})
_BLANKS: Final = frozenset({"", "-"})

COMMON: Final = tuple(name for name, _ in _PLACES)
"""The fields of the common log format."""
COMBINED: Final = (
    *COMMON,
    *(name for name, _ in _MORE_PLACES),
    "key",
    *(f"extra{number}" for number in range(1, _EXTRAS + 1)),
)
"""The fields of the combined format; `key` is the first extra one that reads like an API key."""


def _batches(rows: Iterable[tuple[int, Sequence[str | None]]]) -> Iterator[Batch]:
    """Yield rows, each with the number of its line, in batches of columns."""
    left = iter(rows)
    while held := list(islice(left, BATCH_LINES)):
        lines, texts = zip(*held, strict=True)
        yield Batch(lines, list(zip(*texts, strict=True)))


class CommonReader(Reader):
    """The common log format, or the combined one with whatever stands after the user agent.

    One search gives all lines of a block: either the fields, or the whole line where it has none.
    """

    def __init__(self, path: Place, *, is_combined: bool) -> None:
        self.fields = COMBINED if is_combined else COMMON
        self._path = path
        self._places = (*_PLACES, *_MORE_PLACES) if is_combined else _PLACES
        self._is_combined = is_combined
        self._extras = lru_cache(_TAILS_KEPT)(self._read_extras)

    def clean(self, name: str, text: str | None) -> str | None:
        """Return a field without its quotes; an empty one and `-` are absent."""
        if text is not None and name in _QUOTED_FIELDS:
            text = text[1:-1]
        return None if text in _BLANKS else text

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        captured = ["address", *(name for name in wanted if name != "address")]
        row = self._row(captured)
        names = [*(name for name, _ in self._places if name in captured), "tail", "whole"]
        with open_log(self._path) as stream:
            for first, text in line_blocks(stream):
                if text is None:
                    faults.add(first, "line is too long")
                    continue
                found = row.findall(text)
                columns = dict(zip(names, zip(*found, strict=True), strict=True))
                extras = {tail: self._extras(tail) for tail in set(columns["tail"])}
                lines: Sequence[int] = range(first, first + len(found))
                is_wrong = any(isinstance(extra, str) for extra in extras.values())
                if is_wrong or not all(columns["address"]):
                    good = self._good(lines, columns, extras, faults)
                    lines = [lines[place] for place in good]
                    columns = {
                        name: tuple(c[place] for place in good) for name, c in columns.items()
                    }
                if lines:
                    yield Batch(lines, [self._column(name, columns, extras) for name in wanted])

    def _row(self, captured: Sequence[str]) -> re.Pattern[str]:
        """Return what matches one line: the captured fields and the rest, or the whole line."""
        fields = "".join(
            part if name in captured else part.replace(f"(?P<{name}>", "(?:")
            for name, part in self._places
        )
        return re.compile(rf"(?:{fields}([^\n]*)|([^\n]*))\n")

    def _good(
        self,
        lines: Sequence[int],
        columns: Mapping[str, Sequence[str]],
        extras: Mapping[str, _Extras],
        faults: Faults,
    ) -> list[int]:
        """Return the places of the lines that have the format; the others are faults, or blank."""
        wrong = {tail: extra for tail, extra in extras.items() if isinstance(extra, str)}
        good = []
        of_line = zip(columns["address"], columns["tail"], strict=True)
        for place, (address, tail) in enumerate(of_line):
            # A line that has the format has an address; another one stands whole at the end.
            if address and tail not in wrong:
                good.append(place)
            elif address:
                faults.add(lines[place], wrong[tail])
            elif (whole := columns["whole"][place]).strip():
                faults.add(lines[place], _diagnosis(whole.rstrip("\r"), self._places))
        return good

    def _column(
        self, name: str, columns: dict[str, tuple[str, ...]], extras: dict[str, _Extras]
    ) -> Sequence[str | None]:
        if name in columns:
            return columns[name]
        of_tail = {
            tail: extra.get(name) for tail, extra in extras.items() if not isinstance(extra, str)
        }
        return [of_tail[tail] for tail in columns["tail"]]

    def _read_extras(self, tail: str) -> _Extras:
        """Return what stands after the last field that the format has."""
        rest, place, number = tail.rstrip(), 0, 0
        if rest and not self._is_combined:
            return "line must end after the size; is it the combined format?"
        found: dict[str, str | None] = {}
        while place < len(rest):
            extra = _EXTRA.match(rest, place)
            if extra is None or (extra[2] or "").startswith('"'):
                return "field after the user agent must be quoted text, closed"
            number += 1
            value = _bare(extra[1] or extra[2])
            if number <= _EXTRAS:
                found[f"extra{number}"] = value
            if value.startswith("key_"):
                found.setdefault("key", value)
            place = extra.end()
        return found


class _LinesReader(Reader):
    """Lines each of which is read alone."""

    _path: Place

    @abstractmethod
    def _read(self, text: str, wanted: Sequence[str]) -> list[str | None] | str:
        """Return the `wanted` fields of a line, or what is wrong with it."""

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        yield from _batches(self._rows(wanted, faults))

    def _rows(
        self, wanted: Sequence[str], faults: Faults
    ) -> Iterator[tuple[int, list[str | None]]]:
        with open_log(self._path) as stream:
            for number, text in numbered_lines(stream):
                found = "line is too long" if text is None else self._read(text, wanted)
                if not isinstance(found, str):
                    yield number, found
                elif text is None or text.strip():
                    faults.add(number, found)


class PatternReader(_LinesReader):
    """Lines that a pattern of the user's matches; its named groups are the fields."""

    def __init__(self, path: Place, pattern: re.Pattern[str]) -> None:
        self.fields = tuple(pattern.groupindex)
        self._path = path
        self._pattern = pattern

    def _read(self, text: str, wanted: Sequence[str]) -> list[str | None] | str:
        match = self._pattern.search(text)
        if match is None:
            return "line must match the pattern of the map"
        return [match[name] for name in wanted]


def _bare(value: str) -> str:
    return value[1:-1] if len(value) > 1 and value[0] == value[-1] == '"' else value


def _diagnosis(text: str, places: Sequence[tuple[str, str]]) -> str:
    """Name the first field that does not follow the format."""
    patterns = accumulate(part for _, part in places)
    fields = zip((name for name, _ in places), patterns, strict=True)
    broken = next(name for name, pattern in fields if re.match(pattern, text) is None)
    return f"{broken} is missing, cut or not in its form"


_DELIMITERS: Final = ",;\t|"
_HEAD_LINES: Final = 100
_DEEPEST_NAME: Final = 8


class CsvReader(Reader):
    """A CSV file with a header row."""

    def __init__(self, path: Place) -> None:
        """Read the header. Raises `InputError` when there is none."""
        self._path = path
        header = head_lines(path, 1)
        if not header:
            raise InputError(f"log = '{path}' must start with a row of column names; it is blank")
        self._delimiter = max(_DELIMITERS, key=header[0].count)
        try:
            names = next(csv.reader(header, delimiter=self._delimiter))
        except csv.Error as error:
            raise InputError(f"log = '{path}' must start with a row of column names") from error
        self.fields = tuple(name.strip() for name in names)

    def clean(self, name: str, text: str | None) -> str | None:
        """Return a cell without the blanks around it; an empty one is absent."""
        del name
        return (text or "").strip() or None

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows below the header; a row of another width is a fault."""
        places = [self.fields.index(name) for name in wanted]
        for batch in _batches(self._rows(faults)):
            yield Batch(batch.lines, [batch.columns[place] for place in places])

    def _rows(self, faults: Faults) -> Iterator[tuple[int, list[str]]]:
        """Yield (number of the row's first line, row) without header and blank lines."""
        width = len(self.fields)
        with open_log(self._path) as stream:
            rows = csv.reader(_texts(stream, faults), delimiter=self._delimiter)
            headed = False
            while True:
                first = rows.line_num + 1
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error:
                    lost = rows.line_num + 1 - first
                    faults.add(first, "quotes must be closed, with no bare carriage return", lost)
                    continue
                if row and not headed:
                    headed = True
                elif row and len(row) != width:
                    faults.add(first, f"row must have {width} columns, it has {len(row)}")
                elif row:
                    yield first, row


def _texts(stream: io.BufferedIOBase, faults: Faults) -> Iterator[str]:
    """Yield lines with their ends; one that is too long is a fault, and then blank."""
    for number, text in numbered_lines(stream):
        if text is None:
            faults.add(number, "line is too long")
        yield f"{text or ''}\n"


class JsonLinesReader(_LinesReader):
    """A file of one JSON object a line."""

    open_ended = True

    def __init__(self, path: Place) -> None:
        """Look at the first lines for the names of the fields."""
        self._path = path
        names: dict[str, None] = {}
        for text in head_lines(path, _HEAD_LINES):
            found = _object(text)
            if isinstance(found, dict):
                _collect(found, "", names)
        self.fields = tuple(names)

    def _read(self, text: str, wanted: Sequence[str]) -> list[str | None] | str:
        found = _object(text)
        if isinstance(found, str):
            return found
        return [_text(_reach(found, name)) for name in wanted]


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


_DECODER: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_no_constant)


def _object(text: str) -> dict[str, Any] | str:
    try:
        found = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return "line must be one JSON object"
    return found if isinstance(found, dict) else "line must be one JSON object"


def _collect(found: dict[str, Any], before: str, names: dict[str, None]) -> None:
    for name, value in found.items():
        if isinstance(value, dict) and before.count(".") < _DEEPEST_NAME:
            _collect(value, f"{before}{name}.", names)
        else:
            names[before + name] = None


def _reach(found: dict[str, Any], name: str) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return the field of that name; `a.b` is the field `a.b`, else `b` within `a`."""
    if name in found:
        return found[name]
    head, dot, rest = name.partition(".")
    inner = found.get(head)
    return _reach(inner, rest) if dot and isinstance(inner, dict) else None


def _text(value: Any) -> str | None:  # noqa: ANN401 # reason: any JSON
    if value is None or value == "":
        return None
    if isinstance(value, str):
        # JSON can write half a character; it becomes a visible escape, as bad bytes do.
        return value.encode("utf-8", "backslashreplace").decode("utf-8")
    return json.dumps(value, ensure_ascii=False)


_BATCH_ROWS: Final = 1 << 17
"""More than lines at once: each batch has texts of its own to be looked up."""
_READING: Final[Mapping[str, Any]] = {"pre_buffer": False, "buffer_size": 1 << 20}
"""What is read ahead would be held until the end, and so would a row group of the whole file."""
_NOT_ARROW: Final = (TypeError, ValueError, OverflowError, pa.ArrowException)


class ParquetReader(Reader):
    """A Parquet file."""

    def __init__(self, path: Place) -> None:
        """Read the schema. Raises `InputError` when the file is no Parquet."""
        if isinstance(path, Pipe):
            raise InputError(f"log = '{path}' must be a file to be Parquet; write it to one first")
        self._path = path
        with unreadable(path):
            try:
                self.fields = tuple(pq.read_schema(path).names)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise InputError(f"log = '{path}' must be Parquet; it is cut or damaged") from error
        _refuse_twins(f"log = '{path}'", self.fields)

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a Parquet file is one
        done = 0
        with unreadable(self._path), pq.ParquetFile(self._path, **_READING) as file:
            try:
                batches = file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(wanted)))
                for batch in _sound(batches, wanted, f"log = '{self._path}'"):
                    done += len(batch.lines)
                    yield batch
            except pa.ArrowException as error:
                raise InputError(
                    f"log = '{self._path}' must be readable Parquet; it is damaged after row {done}"
                ) from error


class FrameReader(Reader):
    """A frame in memory."""

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 # reason: whatever Arrow takes
        """Take the frame as an Arrow table. Raises `InputError` when Arrow cannot take it."""
        if _is_pandas(frame):
            _refuse_twins("frame", frame.columns.astype(str))
        try:
            if _is_pandas(frame):
                self._table = pa.Table.from_pandas(frame, preserve_index=False)
            else:
                self._table = pa.table(frame)
        except _NOT_ARROW as error:
            column = _unconvertible(frame)
            if column is not None:
                raise InputError(
                    f"frame: column = {column!r} must hold what Arrow can read; convert it or"
                    " leave it out"
                ) from error
            raise InputError(
                f"source = {shown(frame)} must be a log's path, or a frame that Arrow can read"
            ) from error
        self.fields = tuple(self._table.column_names)
        _refuse_twins("frame", self.fields)

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a frame is one
        table = self._table.select(list(dict.fromkeys(wanted)))
        yield from _sound(table.to_batches(_BATCH_ROWS), wanted, "frame")


def _sound(batches: Iterable[pa.RecordBatch], wanted: Sequence[str], what: str) -> Iterator[Batch]:
    """Yield rows in batches of the wanted columns, numbered from 1."""
    first = 1
    for batch in batches:
        rows = range(first, first + batch.num_rows)
        yield Batch(rows, [_sound_column(batch, name, what, rows) for name in wanted])
        first = rows.stop


def _sound_column(batch: pa.RecordBatch, name: str, what: str, rows: range) -> pa.Array:
    """Return a column; raises `InputError` where a value does not fit the type.

    Arrow trusts the file that a text is UTF-8, and fails when it is read.
    """
    column = batch.column(name)
    try:
        column.validate(full=True)
    except pa.ArrowInvalid as error:
        must = "be UTF-8" if "UTF8" in str(error) else f"hold {column.type}"
        raise InputError(
            f"{what}: column = {name!r} must {must}, and does not in rows {rows[0]} to {rows[-1]}; "
            "write it anew, or as binary"
        ) from None
    return column


def _refuse_twins(what: str, names: Iterable[str]) -> None:
    """Raise `InputError` where two columns have one name."""
    met: set[str] = set()
    for name in names:
        if name in met:
            raise InputError(
                f"{what}: column = {name!r} must stand once; rename the others or leave them out"
            )
        met.add(name)


def _is_pandas(frame: object) -> bool:
    """Whether it is a pandas frame; pandas is not loaded to find that out."""
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(frame, pandas.DataFrame)


def _unconvertible(frame: Any) -> str | None:  # noqa: ANN401 # reason: whatever Arrow takes
    """Return the name of the first column that Arrow cannot take; None where it is no column."""
    if not (_is_pandas(frame) or isinstance(frame, Mapping)):
        return None
    for name, column in frame.items():
        try:
            pa.array(column, from_pandas=True)
        except _NOT_ARROW:
            return str(name)
    return None


_READERS: Final[Mapping[Format, Callable[[Place], Reader]]] = {
    "combined": partial(CommonReader, is_combined=True),
    "common": partial(CommonReader, is_combined=False),
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


def stream_log(
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    format: Format | None = None,  # noqa: A002 # reason: the command's own word for it
    map: LogMap | None = None,  # noqa: A002 # reason: the command's own word for it
    time_column: str | None = None,
    progress: Callable[[int], None] | None = None,
    extra: Mapping[str, Sequence[str]] | None = None,
    changes: Mapping[str, Callable[[str], str]] | None = None,
) -> LogStream:
    """Return a log that is read batch by batch, in memory that does not grow with its lines.

    source: a path (plain or gzip), a pipe, `-` for standard input, or a pandas frame, Arrow table
        or the like.
    format: how it is written; left out, its name and first lines tell.
    map: which field says what; left out, the common names do, and the log has one kind of key.
    time_column: the field with the time, of a log whose fields have names.
    progress: told now and then how many lines were read.
    extra: further targets that the map says nothing of, and what their fields are called; those
        that the log has are read too, "" where a line has none.
    changes: what becomes of the texts of a target, distinct text by distinct text.

    Raises `InputError` when the source is missing, empty or unreadable, or lacks a field.
    """
    place = place_of(source) if isinstance(source, str | Path) else None
    reader: Reader
    try:
        if place is None:
            name, kind, reader = "frame", "frame", FrameReader(source)
            _refuse_writing(format, map)
        else:
            name, (kind, reader) = place.name, _reader(place, format, map)
        log_map, says_keys = _fitted(name, kind, reader, map, time_column, extra or {})
    except InputError:
        if isinstance(place, Pipe):
            place.close()
        raise
    return LogStream(name, kind, log_map, reader, progress, changes or {}, says_keys=says_keys)


def _refuse_writing(format_: Format | None, map_: LogMap | None) -> None:
    """Raise `InputError` where a format or a pattern is given for a frame, which has columns."""
    if format_ is not None:
        raise InputError(f"format = {shown(format_)} must be left out; the log is a frame")
    for name in ("format", "line"):
        if map_ is not None and getattr(map_, name) is not None:
            raise InputError(
                f"{map_.name or 'map'}: {name} must be left out; the log is a frame, its columns"
                " are the fields"
            )


def _fitted(
    name: str,
    kind: str,
    reader: Reader,
    map_: LogMap | None,
    time_column: str | None,
    extra: Mapping[str, Sequence[str]],
) -> tuple[LogMap, bool]:
    """Return a map that fits a reader's fields, and whether it says keys. Raises `InputError`."""
    is_mapped = map_ is not None and "key" in map_.sources
    if map_ is None or not map_.sources:
        if time_column is not None and kind in {"combined", "common"}:
            raise InputError(
                f"--time-column = {time_column!r} must go with csv, jsonl or parquet; the {kind}"
                " format has its time in its place"
            )
        map_ = LogMap.guess(reader.fields, time_column=time_column)
    elif time_column is not None:
        raise InputError(f"--time-column = {time_column!r} must stand without a map; say it there")
    map_.check_fields(reader.fields, name, open_ended=reader.open_ended)
    map_ = map_.with_extra(reader.fields, extra)
    has_column = "key" in map_.sources and kind not in {"combined", "common"}
    return map_, is_mapped or has_column


def _reader(path: Place, format_: Format | None, map_: LogMap | None) -> tuple[str, Reader]:
    if map_ is not None and map_.line is not None:
        if format_ is not None:
            raise InputError(f"--format = {format_!r} must be left out; the map splits the lines")
        return "pattern", PatternReader(path, map_.line)
    if map_ is not None and map_.format is not None:
        if format_ not in {None, map_.format}:
            raise InputError(
                f"--format = {format_!r} must agree with the map, which says {map_.format!r}"
            )
        format_ = map_.format
    format_ = format_ or _tell_format(path)
    return format_, _READERS[format_](path)


def _tell_format(path: Place) -> Format:
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
