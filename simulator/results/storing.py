"""Where rows go: a Parquet file, row group by row group, or a table in memory.

The file is zstd-compressed at level 1 and its times are delta-packed: a few bytes a row. Both
sinks also keep the digest of the columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from simulator.results.columns import ColumnDigest, TextColumns, record_batch
from simulator.results.rows import SCHEMA, TEXT_COLUMNS, Chunk

__all__ = ["REQUESTS_FILE", "FileSink", "MemorySink", "write_table"]

REQUESTS_FILE: Final = "requests.parquet"

_DICTIONARIES: Final = [*TEXT_COLUMNS, "client", "attempt", "wait_ns", "status"]
_ENCODINGS: Final = {"t_ns": "DELTA_BINARY_PACKED", "latency_ns": "DELTA_BINARY_PACKED"}


class _Sink(ABC):
    """What both sinks share: the texts and the digest."""

    __slots__ = ("_digest", "_texts", "rows")

    def __init__(self) -> None:
        self._texts = TextColumns()
        self._digest = ColumnDigest()
        self.rows = 0

    def take(self, chunk: Chunk) -> None:
        """Take in the next rows."""
        coded = self._texts.encode(chunk)
        self._digest.add(coded, self._texts)
        self._put(record_batch(coded, self._texts))
        self.rows += len(chunk)

    def hexdigest(self) -> str:
        """Return the SHA-256 over the columns so far."""
        return self._digest.hexdigest()

    def decisions_hexdigest(self) -> str:
        """Return the same over all columns but `status`, which only bodies give.

        Two fidelities that decide alike have it in common.
        """
        return self._digest.hexdigest(without="status")

    @abstractmethod
    def _put(self, batch: pa.RecordBatch) -> None:
        """Keep one batch."""


class FileSink(_Sink):
    """Streams rows into `requests.parquet`, one row group a chunk."""

    __slots__ = ("_writer",)

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._writer = _writer(path)

    def _put(self, batch: pa.RecordBatch) -> None:
        self._writer.write_batch(batch)

    def close(self) -> None:
        """Finish the file; it is no Parquet file before."""
        self._writer.close()


class MemorySink(_Sink):
    """Keeps rows as Arrow batches."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[pa.RecordBatch] = []

    def _put(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)

    def table(self) -> pa.Table:
        """Return the rows so far."""
        return pa.Table.from_batches(self._batches, schema=SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table of rows as the same file that a `FileSink` would have written."""
    with _writer(path) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def _writer(path: Path) -> pq.ParquetWriter:
    return pq.ParquetWriter(
        path,
        SCHEMA,
        compression="zstd",
        compression_level=1,
        use_dictionary=_DICTIONARIES,
        column_encoding=_ENCODINGS,
    )
