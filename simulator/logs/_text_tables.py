"""CSV and JSON lines: logs whose fields have names.

Every value comes out as the text that stands in the file (a JSON number is never made a float), so
that times stay exact. CSV: the first row names the columns; comma, semicolon, tab or bar between
them; quoted fields may span lines. JSON lines: one object a line; a dotted name reaches into nested
objects (`request.path`).
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NoReturn

from engine.errors import InputError
from simulator.logs._batch import BATCH_LINES, Batch, Column, Faults
from simulator.logs._source import Place, head_lines, numbered_lines, open_log

__all__ = ["CsvReader", "JsonLinesReader"]

_DELIMITERS: Final = ",;\t|"
_HEAD_LINES: Final = 100
_DEEPEST_NAME: Final = 8


class CsvReader:
    """A CSV file with a header row."""

    open_ended = False

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
        width = len(self.fields)
        places = [self.fields.index(name) for name in wanted]
        lines: list[int] = []
        rows: list[list[str]] = []
        for number, row in self._rows(faults):
            if len(row) != width:
                faults.add(number, f"row must have {width} columns, it has {len(row)}")
                continue
            lines.append(number)
            rows.append(row)
            if len(lines) == BATCH_LINES:
                yield _batch(lines, rows, places)
                lines, rows = [], []
        if lines:
            yield _batch(lines, rows, places)

    def _rows(self, faults: Faults) -> Iterator[tuple[int, list[str]]]:
        """Yield (number of the row's first line, row) without header and blank lines."""
        with open_log(self._path) as stream:
            texts = (
                text + "\n" if text is not None else "\n" for _, text in numbered_lines(stream)
            )
            rows = csv.reader(texts, delimiter=self._delimiter)
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
                elif row:
                    yield first, row


def _batch(lines: list[int], rows: list[list[str]], places: Sequence[int]) -> Batch:
    columns = list(zip(*rows, strict=True))
    return Batch(lines, [columns[place] for place in places])


class JsonLinesReader:
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

    def clean(self, name: str, text: str | None) -> str | None:
        """Return the text as it is."""
        del name
        return text

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the objects; a line that is none is a fault."""
        lines: list[int] = []
        columns: list[list[str | None]] = [[] for _ in wanted]
        with open_log(self._path) as stream:
            for number, text in numbered_lines(stream):
                if text is not None and not text.strip():
                    continue
                found = _object(text) if text is not None else "line is too long"
                if isinstance(found, str):
                    faults.add(number, found)
                    continue
                lines.append(number)
                for column, name in zip(columns, wanted, strict=True):
                    column.append(_text(_reach(found, name)))
                if len(lines) == BATCH_LINES:
                    yield Batch(lines, list[Column](columns))
                    lines, columns = [], [[] for _ in wanted]
        if lines:
            yield Batch(lines, list[Column](columns))


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
