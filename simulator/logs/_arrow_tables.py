"""Parquet files and frames: logs that are columns already.

A Parquet file is read a row group's batch at a time. A frame is anything that Arrow can take: a
pandas or polars frame, an Arrow table. Rows are numbered from 1, as lines are.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from simulator.arguments import shown
from simulator.logs._batch import Batch, Faults
from simulator.logs._source import unreadable

__all__ = ["FrameReader", "ParquetReader"]

_BATCH_ROWS: Final = 1 << 17
"""More than lines at once: each batch has texts of its own to be looked up."""
_READING: Final[Mapping[str, Any]] = {"pre_buffer": False, "buffer_size": 1 << 20}
"""What is read ahead would be held until the end, and so would a row group of the whole file."""
_NOT_ARROW: Final = (TypeError, ValueError, OverflowError, pa.ArrowException)


class ParquetReader:
    """A Parquet file."""

    open_ended = False

    def __init__(self, path: Path) -> None:
        """Read the schema. Raises `InputError` when the file is no Parquet."""
        self._path = path
        with unreadable(path):
            try:
                self.fields = tuple(pq.read_schema(path).names)
            except (pa.ArrowInvalid, UnicodeDecodeError) as error:
                raise InputError(f"log = '{path}' must be Parquet; it is cut or damaged") from error
        _refuse_twins(f"log = '{path}'", self.fields)

    def clean(self, name: str, text: str | None) -> str | None:
        """Return the text as it is: Arrow's values have no quotes and no blanks around them."""
        del name
        return text

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a Parquet file is one
        first = 1
        with unreadable(self._path), pq.ParquetFile(self._path, **_READING) as file:
            try:
                for batch in file.iter_batches(_BATCH_ROWS, columns=list(dict.fromkeys(wanted))):
                    rows = range(first, first + batch.num_rows)
                    what = f"log = '{self._path}'"
                    yield Batch(rows, [_sound(batch, name, what, rows) for name in wanted])
                    first += batch.num_rows
            except pa.ArrowException as error:
                raise InputError(
                    f"log = '{self._path}' must be readable Parquet; it is damaged after row"
                    f" {first - 1}"
                ) from error


class FrameReader:
    """A frame in memory."""

    open_ended = False

    def __init__(self, frame: Any) -> None:  # noqa: ANN401 # reason: whatever Arrow takes
        """Take the frame as an Arrow table. Raises `InputError` when Arrow cannot take it."""
        if isinstance(frame, pd.DataFrame):
            _refuse_twins("frame", frame.columns.astype(str))
        try:
            if isinstance(frame, pd.DataFrame):
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

    def clean(self, name: str, text: str | None) -> str | None:
        """Return the text as it is: Arrow's values have no quotes and no blanks around them."""
        del name
        return text

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a frame is one
        first = 1
        table = self._table.select(list(dict.fromkeys(wanted)))
        for batch in table.to_batches(_BATCH_ROWS):
            rows = range(first, first + batch.num_rows)
            yield Batch(rows, [_sound(batch, name, "frame", rows) for name in wanted])
            first += batch.num_rows


def _sound(batch: pa.RecordBatch, name: str, what: str, rows: range) -> pa.Array:
    """Return a column; raises `InputError` where its values are none of its type.

    Arrow takes the word of whoever wrote the file that a text is UTF-8, and fails when it is read.
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
    """Raise `InputError` where two columns have one name: nobody could tell which one is meant."""
    met: set[str] = set()
    for name in names:
        if name in met:
            raise InputError(
                f"{what}: column = {name!r} must stand once; rename the others or leave them out"
            )
        met.add(name)


def _unconvertible(frame: object) -> str | None:
    """Return the name of the first column that Arrow cannot take; None where it is no column."""
    if not isinstance(frame, pd.DataFrame | Mapping):
        return None
    for name, column in frame.items():
        try:
            pa.array(column, from_pandas=True)
        except _NOT_ARROW:
            return str(name)
    return None
