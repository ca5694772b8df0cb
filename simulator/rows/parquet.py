"""`requests.parquet`: which columns it keeps, how they are encoded, and the digest of a run.

*Columns*: a day of 10⁸ requests is 1 GB with every column, and most questions need few. The digest
of a run covers all columns whichever are kept, so runs that keep different ones can be compared.
Readers call `missing` first, and leave a part out or report it in one line.

*Digest*: the SHA-256 of the decoded values alone, whatever library stored them (`ColumnDigest`).
Texts are numbered once a run, so that a chunk's text column is a look-up.

*File*: each column has the encoding that packs it best. Instants are delta-packed, other numbers
are split into bytes (so that leading zeros compress), waits are plain (whole values repeat), texts
are dictionaries. The result is compressed by zstd at level 1 where that saves more than a tenth of
a byte per row. Only `t_ns` has statistics, the one column by which a reader can skip row groups.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError, did_you_mean
from simulator.arguments import TEXTS, ArgumentRule, optional
from simulator.rows.record import (
    NO_STATUS,
    SCHEMA,
    TEXT_COLUMNS,
    Chunk,
    GrowableArray,
    Numbers,
    Table,
    TextColumn,
    number_column,
)

ALL: Final = "all"
COLUMN_SETS: Final[dict[str, tuple[str, ...]]] = {
    ALL: tuple(SCHEMA.names),
    "decisions": ("t_ns", "key", "outcome", "rule", "wait_ns"),
}
"""Words that stand for several columns; others may be listed beside them."""

COLUMNS: Final = optional(
    ArgumentRule(
        "names of columns, listed or with commas",
        lambda asked: isinstance(asked, str) or TEXTS.holds(asked),
    )
)


def choose_columns(asked: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return the columns that are asked for, in the file's order; None where it is all of them.

    asked: names of columns and of `COLUMN_SETS`, as a sequence or in a text with commas.
    Raises `InputError` for a name that is neither, and where there is none.

    >>> choose_columns("outcome, t_ns")
    ('t_ns', 'outcome')
    >>> choose_columns("decisions,ip")
    ('t_ns', 'key', 'ip', 'outcome', 'rule', 'wait_ns')
    """
    if asked is None:
        return None
    COLUMNS.read("columns", asked)
    words = asked.split(",") if isinstance(asked, str) else asked
    chosen: set[str] = set()
    for word in map(str.strip, words):
        if word not in COLUMN_SETS and word not in SCHEMA.names:
            known = [*COLUMN_SETS, *SCHEMA.names]
            raise InputError(
                f"columns = {word!r} must be a column of the log{did_you_mean(word, known)}"
            )
        chosen.update(COLUMN_SETS.get(word, (word,)))
    if not chosen:
        raise InputError(f"columns = {asked!r} must name a column; leave it out to keep all")
    return None if len(chosen) == len(SCHEMA) else _in_order(chosen)


def schema_of(columns: Collection[str] | None) -> pa.Schema:
    """Return the schema of a log that keeps these columns; all of them for None."""
    if columns is None:
        return SCHEMA
    return pa.schema([SCHEMA.field(name) for name in _in_order(columns)], SCHEMA.metadata)


def missing(needed: Iterable[str], held: Collection[str]) -> tuple[str, ...]:
    """Return the columns that are needed and not held, in the file's order."""
    return _in_order(set(needed).difference(held))


def refuse_missing(what: str, needed: Iterable[str], held: Sequence[str]) -> None:
    """Raise `InputError` where a log lacks a column that `what` is made of; it names them all."""
    if lacking := missing(needed, held):
        raise InputError(
            f"{what} must have the column{'s' * (len(lacking) > 1)} {', '.join(lacking)}; "
            f"the log keeps {', '.join(held)} alone: run again with --columns that name more"
        )


def _in_order(columns: Collection[str]) -> tuple[str, ...]:
    return tuple(name for name in SCHEMA.names if name in columns)


_NULL_NUMBER: Final = -(1 << 63)


def record_batch(chunk: Chunk, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return the rows as a batch whose dictionaries hold only the values in use.

    schema: `SCHEMA`, or fewer of its columns.
    """
    columns: dict[str, Callable[[], pa.Array]] = {
        "t_ns": lambda: number_column(chunk.t_ns, np.int64),
        "client": lambda: number_column(chunk.clients.take(chunk.subject), np.int32),
        "attempt": lambda: number_column(chunk.attempt, np.int32),
        "wait_ns": lambda: number_column(chunk.wait_ns, np.int64),
        "latency_ns": lambda: number_column(chunk.latency_ns, np.int64),
        "status": lambda: _status(chunk.status),
    }
    for name, text in chunk.texts.items():
        columns[name] = partial(_dictionary, text, chunk.entries(name))
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)


def _status(status: Numbers) -> pa.Array:
    unknown = status == NO_STATUS
    if unknown.all():
        return pa.nulls(len(status), pa.int16())
    return number_column(status, np.int16, missing=unknown)


def _words(texts: Sequence[str]) -> pa.Array:
    """Return texts as an array, without pandas as well."""
    encoded = [text.encode() for text in texts]
    ends = np.cumsum([0, *map(len, encoded)], dtype=np.int32)
    return pa.StringArray.from_buffers(
        len(texts), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded))
    )


def _dictionary(text: TextColumn, entries: Numbers) -> pa.DictionaryArray:
    """Return the column of rows that have these entries of a text column."""
    known = len(text.texts)
    codes: Table = text.codes.take(entries)
    is_used = np.zeros(known + 1, dtype=bool)
    is_used[codes] = True  # null, −1, is the last place
    used = np.flatnonzero(is_used[:known])
    place: Table = np.full(known + 1, -1, dtype=np.int32)
    place[used] = np.arange(len(used), dtype=np.int32)
    missing: Table | None = codes < 0 if is_used[known] else None
    indices = number_column(place[codes], np.int32, missing=missing)
    words = _words([text.texts[code] for code in used.tolist()])
    return pa.DictionaryArray.from_arrays(indices, words, safe=False)


class ColumnDigest:
    """SHA-256 over the decoded columns, fed chunk by chunk; how rows are grouped has no effect.

    A column's digest is the SHA-256 of its rows: a number as 8 bytes, little-endian, two's
    complement (null as −2⁶³); a text as the first 8 bytes of the SHA-256 of its UTF-8 form (null
    as 8 zero bytes). The digest of the run is the SHA-256 of, for each column in file order, its
    name in UTF-8, a zero byte and its digest. All columns count, whichever of them a file keeps.
    """

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in SCHEMA.names}
        self._known = {name: GrowableArray("<u8") for name in TEXT_COLUMNS}
        self._words = {name: GrowableArray("<u8") for name in TEXT_COLUMNS}

    def add(self, chunk: Chunk) -> None:
        """Take in some rows."""
        numbers = {
            "t_ns": chunk.t_ns,
            "client": chunk.clients.take(chunk.subject),
            "attempt": chunk.attempt,
            "wait_ns": chunk.wait_ns,
            "latency_ns": chunk.latency_ns,
            "status": np.where(chunk.status == NO_STATUS, _NULL_NUMBER, chunk.status),
        }
        for name, rows in numbers.items():
            self._columns[name].update(np.ascontiguousarray(rows, dtype="<i8").data)
        for name, text in chunk.texts.items():
            words = self._words_of(name, text).take(chunk.entries(name))
            self._columns[name].update(words.data)

    def _words_of(self, name: str, text: TextColumn) -> Table:
        """Return what stands for each entry."""
        known, words = self._known[name], self._words[name]
        known.extend([_word(value) for value in text.texts[len(known) :]])
        new = text.codes[len(words) :]
        if len(new):
            words.extend(np.append(known.read(), np.uint64(0))[new])  # null, −1, is the last place
        return words.read()

    def hexdigest(self, *, without: str | None = None) -> str:
        """Return the digest of everything so far, or of all columns but one."""
        whole = hashlib.sha256()
        for name, column in self._columns.items():
            if name != without:
                whole.update(name.encode() + b"\0" + column.digest())
        return whole.hexdigest()


def _word(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


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

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self._under_way: deque[Future[None]] = deque()

    def do(self, work: Callable[[], None]) -> None:
        """Queue the work; waits while the queue is full, and raises errors of earlier work."""
        self._under_way.append(self._thread.submit(work))
        if len(self._under_way) > _AHEAD:
            self._under_way.popleft().result()

    def close(self) -> None:
        """Wait until all is done, and end the thread; raises what the work raised."""
        try:
            while self._under_way:
                self._under_way.popleft().result()
        finally:
            self._thread.shutdown(cancel_futures=True)


class CountSink:
    """Counts rows, and keeps neither them nor a digest: for runs of which totals are enough."""

    rows = 0
    digest: ColumnDigest | None = None

    def take(self, chunk: Chunk) -> None:
        """Take in the next rows, which must not change any more."""
        self.rows += len(chunk)

    def hexdigest(self, *, without: str | None = None) -> str:
        """Return the SHA-256 over the columns so far, or over all but one; empty without any.

        Without `status`, which only bodies give, it is equal for two fidelities with equal
        decisions.
        """
        return "" if self.digest is None else self.digest.hexdigest(without=without)

    def close(self) -> None:
        """Finish what is kept."""

    def table(self) -> pa.Table | None:
        """Return the rows so far, where they are in memory."""
        return None


class MemorySink(CountSink):
    """Keeps rows as Arrow batches."""

    digest: ColumnDigest

    def __init__(self) -> None:
        self.digest = ColumnDigest()
        self._batches: list[pa.RecordBatch] = []

    def take(self, chunk: Chunk) -> None:
        """Keep the next rows, and digest them."""
        super().take(chunk)
        self.digest.add(chunk)
        self._batches.append(record_batch(chunk))

    def table(self) -> pa.Table:
        """Return the rows so far."""
        return pa.Table.from_batches(self._batches, schema=SCHEMA)


class FileSink(CountSink):
    """Streams rows into `requests.parquet`, one row group a chunk.

    Writing and hashing have a thread each: both leave Python's lock while they work, so a run goes
    on meanwhile where there is another core. Call `close` before you ask for a digest. A full disk
    raises `OSError`, in `take` or in `close`.

    columns: those that the file keeps, all of them unless given. The digest is over all.
    """

    digest: ColumnDigest

    def __init__(self, path: Path, columns: Collection[str] | None = None) -> None:
        self.digest = ColumnDigest()
        self._schema = schema_of(columns)
        self._writer = open_file(path, self._schema)
        self._writing, self._digesting = _Lane(), _Lane()

    def take(self, chunk: Chunk) -> None:
        """Write the next rows, and digest them."""
        super().take(chunk)
        self._writing.do(lambda: self._writer.write_batch(record_batch(chunk, self._schema)))
        self._digesting.do(lambda: self.digest.add(chunk))

    def close(self) -> None:
        """Finish the file; until then it cannot be read."""
        self._digesting.close()
        self._writing.close()
        self._writer.close()


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
        write_page_checksum=True,
    )
