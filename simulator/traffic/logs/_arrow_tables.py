"""Parquet files and frames: logs that are columns already.

A Parquet file is read a row group's batch at a time. A frame is anything that Arrow can take: a
pandas or polars frame, an Arrow table. Rows are numbered from 1, as lines are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from simulator.traffic.logs._batch import BATCH_LINES, Batch, Faults
from simulator.traffic.logs._source import unreadable

__all__ = ["FrameReader", "ParquetReader"]


class ParquetReader:
    """A Parquet file."""

    open_ended = False

    def __init__(self, path: Path) -> None:
        """Read the schema. Raises `InputError` when the file is no Parquet."""
        self._path = path
        with unreadable(path):
            try:
                self.fields = tuple(pq.read_schema(path).names)
            except pa.ArrowInvalid as error:
                raise InputError(f"log = '{path}' must be Parquet; it is cut or damaged") from error

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a Parquet file is one
        first = 1
        with unreadable(self._path), pq.ParquetFile(self._path) as file:
            try:
                for batch in file.iter_batches(BATCH_LINES, columns=list(dict.fromkeys(wanted))):
                    columns = [batch.column(name) for name in wanted]
                    yield Batch(range(first, first + batch.num_rows), columns)
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
        try:
            if isinstance(frame, pd.DataFrame):
                self._table = pa.Table.from_pandas(frame, preserve_index=False)
            else:
                self._table = pa.table(frame)
        except (TypeError, ValueError, pa.ArrowException) as error:
            raise InputError(
                f"frame = {type(frame).__name__} must be a pandas frame or what Arrow can read"
            ) from error
        self.fields = tuple(self._table.column_names)

    def batches(self, wanted: Sequence[str], faults: Faults) -> Iterator[Batch]:
        """Yield the rows in batches."""
        del faults  # every row of a frame is one
        first = 1
        table = self._table.select(list(dict.fromkeys(wanted)))
        for batch in table.to_batches(BATCH_LINES):
            yield Batch(
                range(first, first + batch.num_rows), [batch.column(name) for name in wanted]
            )
            first += batch.num_rows
