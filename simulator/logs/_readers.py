"""Readers of logs: each yields a log's fields in batches, and names the lines that it cannot read.

*Lines of text* are split by a format's template, or by a pattern of the user's. A line of another
form is refused with the first field that leaves the format: a line that was cut may have been cut
anywhere.

*CSV, W3C and JSON*: every value comes out as the text that stands in the file (a JSON number is
never made a float), so that times stay exact. CSV: the first row names the columns, or a map does;
comma, semicolon, tab or bar between them; quoted fields may span lines. W3C: `#Fields` names the
columns of the lines after it. JSON: an object a line, or objects one after another or in an array;
a dotted name reaches into nested objects (`request.path`).

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
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from ipaddress import ip_address
from itertools import accumulate, islice
from typing import Any, Final, NoReturn, cast

import orjson
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from engine.hosts import read_address
from simulator.arguments import format_value
from simulator.logs._log_map import DOCUMENTED, EXTRAS, WRAPPER_TIME
from simulator.logs._source import (
    LONGEST_LINE_BYTES,
    Lines,
    Pipe,
    Place,
    Unwrapper,
    head_lines,
    numbered_lines,
    open_log,
    text_blocks,
    unreadable,
)
from simulator.logs._stream import BATCH_LINES, Batch, Column, Reader, UnreadLines
from simulator.logs._values import epoch_unit
from simulator.logs.formats import QUOTED, Wrapper

_EXTRA: Final = re.compile(rf' +(?:[^\s"]*"({QUOTED})"|(\S+))')


def _batches(rows: Iterable[tuple[int, Sequence[str | None]]]) -> Iterator[Batch]:
    """Yield rows, each with the number of its line, in batches of columns."""
    left = iter(rows)
    while together := list(islice(left, BATCH_LINES)):
        lines, texts = zip(*together, strict=True)
        yield lines, list(zip(*texts, strict=True))


class LineReader(Reader):
    """Lines that a format's template or a user's pattern splits.

    One search gives all lines of a block: either the fields, or the whole line where it has none.
    """

    def __init__(
        self,
        path: Place,
        wrappers: Sequence[Wrapper],
        parts: Sequence[tuple[str, str]],
        pattern: re.Pattern[str] | None = None,
    ) -> None:
        self._path = path
        self._wrappers = wrappers
        self._parts = parts
        self._pattern = pattern
        line = pattern or re.compile("".join(part for _, part in parts))
        self._named = [name for name in line.groupindex if name != "tail"]
        extras = ("key", *EXTRAS) if "tail" in line.groupindex and pattern is None else ()
        self.fields = (*self._named, *extras, *((WRAPPER_TIME,) if wrappers else ()))

    def forwarded(self) -> Iterator[str]:
        """Yield the further fields that are addresses, without ports, in the first lines."""
        if EXTRAS[0] not in self.fields:
            return
        unwrap, line = Unwrapper(self._wrappers), re.compile("".join(p for _, p in self._parts))
        heads = [unwrap(text) for text in head_lines(self._path, _HEAD_RECORDS)]
        matches = [line.match(head[0]) for head in heads if head and head[0]]
        tails = [_extras(match["tail"]) for match in matches if match]
        if "captures" in line.groupindex:  # of HAProxy: {first|second} {…}
            captured = [re.split(r"[{}|]", match["captures"]) for match in matches if match]
            if any(_ends_in_address(text) for texts in captured for text in texts):
                yield "captures"
        for name in EXTRAS:
            values = [fields[name] for fields in tails if fields.get(name, "-") not in {"", "-"}]
            if values and all(map(_ends_in_address, values)):
                yield name

    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        blocks = text_blocks(self._path, self._wrappers, faults.add)
        if self._pattern is not None:
            yield from _batches(self._searched(blocks, wanted, faults))
            return
        has_tail = any(name == "key" or name in EXTRAS for name in wanted)
        captured = {*wanted, *(("tail",) if has_tail else ())}
        fields = "".join(
            part if name in captured else part.replace(f"(?P<{name}>", "(?:")
            for name, part in self._parts
        )
        names = [name for name in (*self._named, "tail") if f"(?P<{name}>" in fields]
        row = re.compile(rf"(?:(?=(\S)){fields}[ \t\r]*|([^\n]*))\n")
        for block in blocks:
            batch = self._split(block, row, names, wanted, faults)
            if batch is not None:
                yield batch

    def _split(
        self,
        block: Lines,
        row: re.Pattern[str],
        names: Sequence[str],
        wanted: Sequence[str],
        faults: UnreadLines,
    ) -> Batch | None:
        """Return the fields of the lines that have the format; the others are faults, or blank."""
        numbers, text, times = block
        matches = row.findall(text)
        good = [place for place, match in enumerate(matches) if match[0]]
        if len(good) < len(matches):
            for place, match in enumerate(matches):
                if match[-1].strip():
                    faults.add(numbers[place], self._diagnosis(match[-1]))
            matches = [matches[place] for place in good]
            numbers = [numbers[place] for place in good]
            times = [times[place] for place in good]
        if not matches:
            return None
        columns: dict[str, Column] = dict(
            zip(["", *names, "whole"], zip(*matches, strict=True), strict=True)
        )
        if "tail" in names:
            columns |= _tail_columns(columns["tail"], [name for name in wanted if name in _IN_TAIL])
        columns[WRAPPER_TIME] = times
        return numbers, [columns[name] for name in wanted]

    def _diagnosis(self, text: str) -> str:
        """Name the first field that does not follow the format."""
        patterns = accumulate(part for _, part in self._parts)
        fields = zip((name for name, _ in self._parts), patterns, strict=True)
        broken = next((name for name, pattern in fields if re.match(pattern, text) is None), None)
        if broken is not None:
            return f"{broken} is missing, truncated or malformed"
        named = [name for name, _ in self._parts if name not in {"tail", "captures"}]
        return f"what follows {named[-1]} is malformed"

    def _searched(
        self, blocks: Iterable[Lines], wanted: Sequence[str], faults: UnreadLines
    ) -> Iterator[tuple[int, list[str | None]]]:
        """Yield (number, wanted fields) of the lines that the user's pattern matches."""
        assert self._pattern is not None
        for numbers, text, times in blocks:
            for number, line, time in zip(numbers, text[:-1].split("\n"), times, strict=True):
                match = self._pattern.search(line.rstrip("\r"))
                if match is not None:
                    fields = {**match.groupdict(), WRAPPER_TIME: time}
                    yield number, [fields[name] for name in wanted]
                elif line.strip():
                    faults.add(number, "line must match the pattern of the map")


def _ends_in_address(text: str) -> bool:
    """Whether a text ends in an address without a port, as a list of forwarded ones does."""
    try:
        return bool(ip_address(text.rpartition(",")[2].strip()))
    except ValueError:
        return False


_IN_TAIL: Final = frozenset({"key", *EXTRAS})


def _tail_columns(tails: Column, wanted: Sequence[str]) -> dict[str, Column]:
    """Return the wanted ones of the fields after those that the format names."""
    if list(wanted) == ["key"]:  # most tails hold no key, and are not split
        extras = [_extras(tail) if tail and "key_" in tail else {} for tail in tails]
    else:
        extras = [_extras(tail) for tail in tails]
    return {name: [fields.get(name) for fields in extras] for name in wanted}


@lru_cache(1 << 15)
def _extras(tail: str) -> dict[str, str]:
    """Return the further fields of a line by name."""
    values = [match[1] or match[2] or "" for match in _EXTRA.finditer(tail)]
    extras = dict(zip(EXTRAS, values, strict=False))
    key = next((value for value in values if value.startswith("key_")), None)
    return extras if key is None else {**extras, "key": key}


# --- CSV and W3C ---------------------------------------------------------------------------------

_DELIMITERS: Final = ",;\t|"
_QUOTED: Final = re.compile('"[^"]*"')
_VALUE: Final = re.compile(
    r"key_.*|/.*|.+@.*|.*[=\\{}\"].*|.{41,}|GET|POST|PUT|PATCH|DELETE|HEAD|OPTIONS|\d{4}-\d\d-\d\d.*|"
    r"\d{1,2}/[A-Za-z]{3}/\d{4}.*|-",
    re.DOTALL,
)
"""What no column is called: an address, a number, a path, a key …"""


class CsvReader(Reader):
    """A CSV file whose first row names the columns, or a map does."""

    def __init__(self, path: Place, columns: Sequence[str] | None) -> None:
        """Read the header. Raises `InputError` when there is none."""
        self._path = path
        header = head_lines(path, 1)
        if not header:
            raise InputError(f"log = '{path}' must start with a row of column names; it is blank")
        self._delimiter = max(_DELIMITERS, key=_QUOTED.sub("", header[0]).count)
        self._has_header = columns is None
        if columns is not None:
            self.fields = tuple(columns)
            return
        try:
            names = next(csv.reader(header, delimiter=self._delimiter))
        except csv.Error as error:
            raise InputError(f"log = '{path}' must start with a row of column names") from error
        self.fields = tuple(name.strip() for name in names)
        if any(map(_is_value, self.fields)):
            raise InputError(
                f"{path}:1: the first row must name the columns, and holds values; name the"
                f' {len(names)} columns in a map (columns = ["time", "client_ip", …]), or describe'
                f" its lines (line = '(?P<time>…) …'), see {DOCUMENTED}"
            )

    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the rows below the header; a row of another width is a fault."""
        places = [self.fields.index(name) for name in wanted]
        for lines, columns in _batches(self._rows(faults)):
            yield lines, [columns[place] for place in places]

    def _rows(self, faults: UnreadLines) -> Iterator[tuple[int, list[str]]]:
        """Yield (number of the row's first line, row) without header and blank lines."""
        width, needs_header = len(self.fields), self._has_header
        not_closed = "quotes must be closed, with no bare carriage return"
        with open_log(self._path) as stream:
            rows = csv.reader(_texts(stream, faults), delimiter=self._delimiter)
            while True:
                first = rows.line_num + 1
                try:
                    row = next(rows)
                except StopIteration:
                    return
                except csv.Error:
                    lost = rows.line_num + 1 - first
                    faults.add(first, not_closed, lost)
                    continue
                has_breaks = rows.line_num > first or (row and "\n" in row[-1])
                if has_breaks and self._holds_rows(row, rows.line_num - first):
                    faults.add(first, not_closed, rows.line_num + 1 - first)
                elif row and needs_header:
                    needs_header = False
                elif row and len(row) != width:
                    faults.add(first, f"row must have {width} columns, it has {len(row)}")
                elif row:
                    yield first, row

    def _holds_rows(self, row: Sequence[str], breaks: int) -> bool:
        """Whether a cell over several lines holds whole rows, or goes on to the log's end.

        breaks: how many line ends stand inside the row.
        """
        marks = max(len(self.fields) - 1, 1)
        lines = [line for cell in row if "\n" in cell for line in cell.split("\n")[1:]]
        return sum(cell.count("\n") for cell in row) > breaks or any(
            line.count(self._delimiter) >= marks for line in lines
        )


def _is_value(name: str) -> bool:
    is_number = name.isdigit() or epoch_unit(name) is not None
    return is_number or read_address(name) is not None or _VALUE.fullmatch(name) is not None


def _texts(stream: io.BufferedIOBase, faults: UnreadLines) -> Iterator[str]:
    """Yield lines with their ends; one that is too long is a fault, and then blank."""
    for number, text in numbered_lines(stream):
        if text is None:
            faults.add(number, "line is too long")
        yield f"{text or ''}\n"


_W3C_FIELD: Final = re.compile(r'"((?:[^"]|"")*)"|(\S+)')


class W3cReader(Reader):
    """A log whose `#Fields` lines name the columns of the lines after them."""

    open_ended = True

    def __init__(self, path: Place, head: Sequence[str]) -> None:
        self._path = path
        names = (name for line in head for name in _w3c_fields(line) or ())
        self.fields = tuple(dict.fromkeys(names))

    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields."""
        yield from _batches(self._rows(wanted, faults))

    def _rows(
        self, wanted: Sequence[str], faults: UnreadLines
    ) -> Iterator[tuple[int, list[str | None]]]:
        names: list[str] | None = None
        places: list[int | None] = []
        with open_log(self._path) as stream:
            for number, text in numbered_lines(stream):
                if text is None:
                    faults.add(number, "line is too long")
                elif text.startswith("#"):
                    stated = _w3c_fields(text)
                    if stated is not None:
                        names = stated
                        places = [names.index(name) if name in names else None for name in wanted]
                elif text.strip():
                    values = _w3c_values(text)
                    if names is None:
                        faults.add(number, "line must come after #Fields")
                    elif len(values) != len(names):
                        faults.add(
                            number, f"line must have {len(names)} fields, it has {len(values)}"
                        )
                    else:
                        yield number, [None if at is None else values[at] for at in places]


def _w3c_fields(line: str) -> list[str] | None:
    head, colon, names = line.partition(":")
    return names.split() if colon and head.strip().lower() == "#fields" else None


def _w3c_values(line: str) -> list[str]:
    if "\t" in line:
        return line.rstrip("\t ").split("\t")
    return [match[1] if match[2] is None else match[2] for match in _W3C_FIELD.finditer(line)]


# --- JSON ----------------------------------------------------------------------------------------

_DEEPEST_NAME: Final = 8
_HEAD_RECORDS: Final = 200
_NOT_AN_OBJECT: Final = "line must be one JSON object"


class JsonReader(Reader):
    """JSON objects. is_stream: they do not stand on a line each."""

    open_ended = True

    def __init__(self, path: Place, wrappers: Sequence[Wrapper], *, is_stream: bool) -> None:
        """Look at the first objects for the names of the fields."""
        self._path = path
        self._wrappers = wrappers
        self._is_stream = is_stream
        names: dict[str, bool] = {}
        if is_stream:
            with open_log(path, look=True) as stream:
                for _, record in islice(_objects(stream, UnreadLines()), _HEAD_RECORDS):
                    collect_names(record, names)
        else:
            unwrap = Unwrapper(wrappers)
            for text in head_lines(path, _HEAD_RECORDS):
                inside = unwrap(text)
                fields = read_object(inside[0]) if inside and inside[0] else None
                collect_names(fields or {}, names)
        self.fields = (*names, *((WRAPPER_TIME,) if wrappers else ()))
        self._lists = [name for name, has_list in names.items() if has_list]

    def forwarded(self) -> Iterator[str]:
        """Yield the fields that hold such addresses by their names, and lists of addresses."""
        yield from super().forwarded()
        yield from self._lists

    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the log in batches of the `wanted` fields; blank lines are no lines."""
        yield from _batches(self._rows(wanted, faults))

    def _rows(
        self, wanted: Sequence[str], faults: UnreadLines
    ) -> Iterator[tuple[int, list[str | None]]]:
        if self._is_stream:
            with open_log(self._path) as stream:
                for number, record in _objects(stream, faults):
                    yield number, [_text(_reach(record, name)) for name in wanted]
            return
        is_quick = True
        time_at = wanted.index(WRAPPER_TIME) if WRAPPER_TIME in wanted else None
        for numbers, text, times in text_blocks(self._path, self._wrappers, faults.add):
            for number, line, time in zip(numbers, text[:-1].split("\n"), times, strict=True):
                values = _quick_values(line, wanted) if is_quick else None
                if values is None:
                    fields = read_object(line)
                    if fields is None:
                        if line.strip():
                            faults.add(number, _NOT_AN_OBJECT)
                        continue
                    is_quick = False
                    values = [_text(_reach(fields, name)) for name in wanted]
                if time_at is not None:
                    values[time_at] = time
                yield number, values


def _quick_values(line: str, wanted: Sequence[str]) -> list[str | None] | None:
    """Return the wanted fields of the JSON object that a line is, as texts.

    orjson is several times as fast, and keeps every text and whole number. None where a field is a
    number with a fraction, whose digits it does not keep, or the line is no object for it.
    """
    with suppress(ValueError):
        record = orjson.loads(line)
        if isinstance(record, dict):
            values = [_reach(record, name) for name in wanted]
            if not any(isinstance(value, float | dict | list) for value in values):
                return list(map(_text, values))
    return None


def _no_constant(_: str) -> NoReturn:
    raise ValueError("NaN and Infinity are no JSON")


_DECODER: Final = json.JSONDecoder(parse_float=str, parse_int=str, parse_constant=_no_constant)


def read_object(text: str) -> dict[str, Any] | None:
    """Return the JSON object that a line is, with numbers as they are written; else None."""
    try:
        record = _DECODER.decode(text)
    except (ValueError, RecursionError):
        return None
    return record if isinstance(record, dict) else None


_BETWEEN: Final = re.compile(r"[\s,\[\]]*")


def _objects(
    stream: io.BufferedIOBase, faults: UnreadLines
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield (number of its first line, object) of a JSON array, or of objects one after another.

    What follows a place that is no JSON is lost, and counted line by line.
    """
    lines = io.TextIOWrapper(
        cast("io.BufferedReader", stream), "utf-8-sig", "backslashreplace", newline="\n"
    )
    try:
        yield from _objects_of(lines, faults)
    finally:
        lines.detach()  # whoever opened the stream closes it


def _objects_of(lines: io.TextIOBase, faults: UnreadLines) -> Iterator[tuple[int, dict[str, Any]]]:
    text, number, is_end = "", 1, False
    while True:
        between = _BETWEEN.match(text)
        assert between is not None, "it matches nothing too"
        number += text.count("\n", 0, between.end())
        text = text[between.end() :]
        end = 0
        with suppress(ValueError, RecursionError):
            record, end = _DECODER.raw_decode(text)
        if end and (end < len(text) or is_end):
            if isinstance(record, dict):
                yield number, record
            else:
                faults.add(number, "array must hold JSON objects")
            number += text.count("\n", 0, end)
            text = text[end:]
        elif is_end or len(text) > LONGEST_LINE_BYTES:
            if text:
                lost = text.count("\n") + 1 + sum(1 for _ in lines)
                faults.add(number, "JSON is cut or damaged here; all that follows is lost", lost)
            return
        else:
            more = lines.read(max(_CHUNK, len(text)))
            is_end = not more
            text += more


_CHUNK: Final = 1 << 16


def _as_object(value: Any) -> dict[str, Any] | None:  # noqa: ANN401 # reason: any JSON
    """Return an object, or the one that a list of pairs is: attributes of OTLP, headers of AWS.

    OTLP wraps a value by its type: `{"key": "url.path", "value": {"stringValue": "/tokens"}}`.
    """
    if isinstance(value, dict):
        return value
    pairs = value if isinstance(value, list) else []
    named: dict[str, Any] = {}
    for pair in pairs:
        name = (pair.get("key") or pair.get("name")) if isinstance(pair, dict) else None
        if not isinstance(name, str) or "value" not in pair:
            return None
        inner = pair["value"]
        is_typed = isinstance(inner, dict) and len(inner) == 1
        named[name] = next(iter(inner.values())) if is_typed else inner
    return named or None


def collect_names(record: Mapping[str, Any], names: dict[str, bool], before: str = "") -> None:
    """Add the dotted names of the fields of an object that hold something; `a[]` holds objects.

    names: to each, whether some value is a list of addresses.
    """
    for name, value in record.items():
        inner = _as_object(value)
        if inner is not None and before.count(".") < _DEEPEST_NAME:
            collect_names(inner, names, f"{before}{name}.")
        elif isinstance(value, list) and value and isinstance(value[0], dict):
            within: dict[str, bool] = {}
            if before.count(".") < _DEEPEST_NAME:
                collect_names(value[0], within, f"{before}{name}[].")
            lists = (deeper for deeper in within if deeper.endswith("[]"))
            names[next(lists, f"{before}{name}[]")] = False
        elif value is not None:
            names[before + name] = names.get(before + name) or (
                isinstance(value, list) and any(read_address(str(part)) for part in value)
            )


def _reach(record: dict[str, Any], name: str) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return the field of that name; `a.b` is the field `a.b`, else `b` within `a`."""
    if name in record:
        return record[name]
    head, dot, rest = name.partition(".")
    while dot:
        inner = _as_object(record.get(head))
        if inner is not None:
            value = _reach(inner, rest)
            if value is not None:
                return value
        step, dot, rest = rest.partition(".")
        head = f"{head}.{step}"
    return None


def _text(value: Any) -> str | None:  # noqa: ANN401 # reason: any JSON
    if value is None or isinstance(value, str):
        # JSON can write half a character; it becomes a visible escape, as bad bytes do.
        return value and (
            value if value.isascii() else value.encode("utf-8", "backslashreplace").decode("utf-8")
        )
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return ", ".join(value)
    return json.dumps(value, ensure_ascii=False)


# --- Arrow ---------------------------------------------------------------------------------------

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

    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a Parquet file is one
        done = 0
        with unreadable(self._path), pq.ParquetFile(self._path, **_READING) as file:
            try:
                batches = file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(wanted)))
                for batch in _sound(batches, wanted, f"log = '{self._path}'"):
                    done += len(batch[0])
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
            if frame.columns.nlevels > 1:
                raise InputError(
                    f"frame: columns must have one level, not {frame.columns.nlevels}; choose one"
                    " group, or join the names: frame.columns.map('.'.join)"
                )
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
                f"source = {format_value(frame)} must be a log's path, or a frame that Arrow can"
                " read"
            ) from error
        self.fields = tuple(self._table.column_names)
        _refuse_twins("frame", self.fields)

    def batches(self, wanted: Sequence[str], faults: UnreadLines) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a frame is one
        table = self._table.select(list(dict.fromkeys(wanted)))
        yield from _sound(table.to_batches(_BATCH_ROWS), wanted, "frame")


def _sound(batches: Iterable[pa.RecordBatch], wanted: Sequence[str], what: str) -> Iterator[Batch]:
    """Yield rows in batches of the wanted columns, numbered from 1."""
    first = 1
    for batch in batches:
        rows = range(first, first + batch.num_rows)
        yield rows, [_sound_column(batch, name, what, rows) for name in wanted]
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
