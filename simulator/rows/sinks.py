"""Where rows go: a Parquet file, row group by row group, or a table in memory.

Each column has the encoding that packs it best: instants are delta-packed, other numbers are split
into bytes (so that leading zeros compress), waits are plain (whole values repeat), texts are
dictionaries. The result is compressed by zstd at level 1 where that saves more than a tenth of a
byte per row. Only `t_ns` has statistics, the one column by which a reader can skip row groups. Both
sinks also keep the digest of the columns.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow as pa
import pyarrow.parquet as pq

from simulator.rows.column_sets import schema_of
from simulator.rows.columns import Coded, ColumnDigest, TextColumns, record_batch
from simulator.rows.record import SCHEMA, TEXT_COLUMNS, Chunk

__all__ = ["REQUESTS_FILE", "CountSink", "FileSink", "MemorySink", "open_file", "write_table"]

REQUESTS_FILE: Final = "requests.parquet"

_ENCODINGS: Final = {
    "t_ns": "DELTA_BINARY_PACKED",
    **dict.fromkeys(("client", "attempt", "latency_ns", "status"), "BYTE_STREAM_SPLIT"),
}
_PACKED_ALREADY: Final = frozenset({"t_ns", "tenant", "method", "outcome", "rule"})
_ZSTD_LEVEL: Final = 1
_ROWS_AT_ONCE: Final = 1 << 16
"""Rows that a column's encoder is handed in one call."""
_AHEAD: Final = 2
"""How many chunks a run may be ahead of its file; it bounds the memory."""


class _Lane:
    """Work that is done one after the other in a thread, while the run goes on."""

    __slots__ = ("_thread", "_under_way")

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._under_way: deque[Future[None]] = deque()

    def do(self, work: Callable[[], None]) -> None:
        """Queue the work; waits while the queue is full, and raises errors of earlier work."""
        self._under_way.append(self._thread.submit(work))
        if len(self._under_way) > _AHEAD:
            self._under_way.popleft().result()

    def wait(self) -> None:
        """Return when all is done; raises what it raised."""
        while self._under_way:
            self._under_way.popleft().result()

    def close(self) -> None:
        """Wait, and end the thread."""
        try:
            self.wait()
        finally:
            self._thread.shutdown(cancel_futures=True)


class _Sink(ABC):
    """What both sinks share: the texts and the digest."""

    __slots__ = ("_digest", "_texts", "rows")

    def __init__(self) -> None:
        self._texts = TextColumns()
        self._digest = ColumnDigest()
        self.rows = 0

    def take(self, chunk: Chunk) -> None:
        """Take in the next rows, which must not change any more."""
        self._put(self._texts.encode(chunk))
        self.rows += len(chunk)

    def hexdigest(self) -> str:
        """Return the SHA-256 over the columns so far."""
        return self._digest.hexdigest()

    def decisions_hexdigest(self) -> str:
        """Return the same over all columns but `status`, which only bodies give.

        It is equal for two fidelities with equal decisions.
        """
        return self._digest.hexdigest(without="status")

    @abstractmethod
    def _put(self, coded: Coded) -> None:
        """Keep one chunk, and digest it."""


class CountSink:
    """Counts rows, and keeps neither them nor a digest: for runs of which totals are enough."""

    __slots__ = ("rows",)

    def __init__(self) -> None:
        self.rows = 0

    def take(self, chunk: Chunk) -> None:
        """Count the next rows."""
        self.rows += len(chunk)

    def hexdigest(self) -> str:
        """Return no digest."""
        return ""

    decisions_hexdigest = hexdigest


class FileSink(_Sink):
    """Streams rows into `requests.parquet`, one row group a chunk.

    Writing and hashing have a thread each: both leave Python's lock while they work, so a run goes
    on meanwhile where there is another core. `close` before anything is asked for. A full disk
    raises `OSError`, in `take` or in `close`.

    columns: those that the file keeps, all of them unless given. The digest is over all.
    """

    __slots__ = ("_digesting", "_schema", "_writer", "_writing")

    def __init__(self, path: Path, columns: Collection[str] | None = None) -> None:
        super().__init__()
        self._schema = schema_of(columns)
        self._writer = open_file(path, self._schema)
        self._writing, self._digesting = _Lane(), _Lane()

    def _put(self, coded: Coded) -> None:
        self._writing.do(partial(self._write, coded))
        self._digesting.do(partial(self._digest.add, coded))

    def _write(self, coded: Coded) -> None:
        self._writer.write_batch(record_batch(coded, self._schema))

    def close(self) -> None:
        """Finish the file; it is no Parquet file before."""
        self._digesting.close()
        self._writing.close()
        self._writer.close()


class MemorySink(_Sink):
    """Keeps rows as Arrow batches."""

    __slots__ = ("_batches",)

    def __init__(self) -> None:
        super().__init__()
        self._batches: list[pa.RecordBatch] = []

    def _put(self, coded: Coded) -> None:
        self._digest.add(coded)
        self._batches.append(record_batch(coded))

    def table(self) -> pa.Table:
        """Return the rows so far."""
        return pa.Table.from_batches(self._batches, schema=SCHEMA)


def write_table(table: pa.Table, path: Path) -> None:
    """Write a table of rows as the same file that a `FileSink` would have written."""
    with open_file(path, schema_of(table.column_names)) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def open_file(path: Path, schema: pa.Schema = SCHEMA) -> pq.ParquetWriter:
    """Return a writer of attempt rows, a row group a batch.

    schema: `SCHEMA`, or fewer of its columns.
    """
    names = schema.names
    zstd = [name for name in names if name not in _PACKED_ALREADY]
    return pq.ParquetWriter(
        path,
        schema,
        compression={name: "zstd" if name in zstd else "none" for name in names},
        compression_level=dict.fromkeys(zstd, _ZSTD_LEVEL),
        use_dictionary=[name for name in names if name in TEXT_COLUMNS],
        column_encoding={name: kind for name, kind in _ENCODINGS.items() if name in names},
        write_statistics=["t_ns"],
        write_batch_size=_ROWS_AT_ONCE,
    )
