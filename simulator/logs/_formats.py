"""From a source to its reader: which format it is written in, and which field says what.

`stream_log` looks only at the names of the fields, or at the first lines; the stream reads the
rest. `read_log` reads a whole log into memory, for analysis.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from engine.errors import InputError, did_you_mean
from simulator.arguments import shown
from simulator.logs._arrow_tables import FrameReader, ParquetReader
from simulator.logs._batch import Reader
from simulator.logs._line_formats import CommonReader, PatternReader
from simulator.logs._log_map import FORMATS, Format, LogMap
from simulator.logs._source import Pipe, Place, head_lines, place_of
from simulator.logs._stream import LogBatch, LogStream
from simulator.logs._text_tables import CsvReader, JsonLinesReader

__all__ = ["Field", "Log", "read_log", "stream_log"]


def _parquet(path: Place) -> Reader:
    if isinstance(path, Pipe):
        raise InputError(f"log = '{path}' must be a file to be Parquet; write it to one first")
    return ParquetReader(path)


_READERS: Final[Mapping[Format, Callable[[Place], Reader]]] = {
    "combined": partial(CommonReader, is_combined=True),
    "common": partial(CommonReader, is_combined=False),
    "csv": CsvReader,
    "jsonl": JsonLinesReader,
    "parquet": _parquet,
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

    Raises `InputError` when the source is missing, empty or unreadable, or lacks a field.
    """
    if not isinstance(source, str | Path):
        reader = FrameReader(source)
        _refuse_writing(format, map)
        return _stream("frame", "frame", reader, map, time_column, progress, extra or {})
    path = place_of(source)
    try:
        kind, opened = _reader(path, format, map)
        return _stream(path.name, kind, opened, map, time_column, progress, extra or {})
    except InputError:
        if isinstance(path, Pipe):
            path.close()
        raise


def _refuse_writing(format_: Format | None, map_: LogMap | None) -> None:
    """Raise `InputError` where a frame, which is columns already, is said to be written somehow."""
    if format_ is not None:
        raise InputError(f"format = {shown(format_)} must be left out; the log is a frame")
    for name in ("format", "line"):
        if map_ is not None and getattr(map_, name) is not None:
            raise InputError(
                f"{map_.name or 'map'}: {name} must be left out; the log is a frame, its columns"
                " are the fields"
            )


def _stream(
    name: str,
    kind: str,
    reader: Reader,
    map_: LogMap | None,
    time_column: str | None,
    progress: Callable[[int], None] | None,
    extra: Mapping[str, Sequence[str]],
) -> LogStream:
    """Return the log of a reader, under a map that fits its fields. Raises `InputError`."""
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
    says_keys = is_mapped or has_column
    return LogStream(name, kind, map_, reader, progress, says_keys=says_keys)


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
    if format_ is None:
        format_ = _tell_format(path)
    elif format_ not in FORMATS:
        raise InputError(
            f"--format = {format_!r} must be one of {', '.join(FORMATS)}"
            f"{did_you_mean(format_, FORMATS)}"
        )
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


@dataclass(frozen=True, slots=True)
class Field:
    """One column: `names[codes[i]]` is row i's value; the code -1 means absent."""

    codes: npt.NDArray[np.int32]
    names: tuple[str, ...] = field(repr=False)


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

    @property
    def says_keys(self) -> bool:
        """Whether the log has a place for keys, so that an empty one is a request without a key."""
        return "key" in self.fields

    @property
    def names(self) -> Mapping[str, Sequence[str]]:
        """The distinct values of each field."""
        return {target: column.names for target, column in self.fields.items()}

    def batches(self) -> Iterator[LogBatch]:
        """Yield the whole log as one batch."""
        codes = {target: column.codes for target, column in self.fields.items()}
        yield LogBatch(self.t_ns, self.line, codes)


def read_log(
    source: Any,  # noqa: ANN401 # reason: a path, or any frame that Arrow can take
    *,
    format: Format | None = None,  # noqa: A002 # reason: the command's own word for it
    map: LogMap | None = None,  # noqa: A002 # reason: the command's own word for it
    time_column: str | None = None,
    progress: Callable[[int], None] | None = None,
) -> Log:
    """Read a log whole; the parameters are those of `stream_log`.

    Raises `InputError` when the source is missing, empty, unreadable, or no line of it parses.
    """
    stream = stream_log(source, format=format, map=map, time_column=time_column, progress=progress)
    batch = LogBatch.joined(list(stream.batches()))
    fields = {
        target: Field(batch.codes[target], tuple(names)) for target, names in stream.names.items()
    }
    if "key" in fields and not stream.says_keys and not (fields["key"].codes >= 0).any():
        del fields["key"]
    return Log(
        stream.name,
        stream.format,
        batch.t_ns,
        batch.line,
        fields,
        stream.unparsed,
        stream.unparsed_first,
    )
