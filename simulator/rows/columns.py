"""From chunks to Arrow columns, and the SHA-256 that names a run's values.

The digest depends on the decoded values alone, not on the library that stored them: see
`ColumnDigest`. Texts are numbered once a run (`TextColumns`), so that a chunk's text column is a
look-up and no string is touched twice.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import numpy as np
import pyarrow as pa

from simulator.rows.int_list import Growing, Table
from simulator.rows.record import NO_STATUS, SCHEMA, TEXT_COLUMNS, Chunk, Numbers
from simulator.rows.subjects import SUBJECT_COLUMNS, Words

__all__ = ["Coded", "ColumnDigest", "TextColumns", "digest_of_table", "record_batch"]

_NULL_NUMBER: Final = -(1 << 63)
_VERDICT_COLUMNS: Final = ("outcome", "rule")


@dataclass(slots=True)
class CodedText:
    """A text column of a chunk: the row's entry, the entry's text.

    rows: each row's place in the chunk's table of subjects or verdicts. of_entry: number of the
    text there, −1 for null. texts: every text so far, by number.
    """

    rows: Numbers
    of_entry: Table
    texts: Sequence[str]


@dataclass(slots=True)
class Coded:
    """A chunk whose texts are numbers. Other threads may read it while the run goes on.

    clients: number of the client of each subject.
    """

    chunk: Chunk
    clients: Table
    texts: dict[str, CodedText]


class TextColumns:
    """The text columns of a run, growing with its tables."""

    __slots__ = ("_verdicts", "_verdicts_seen", "_words")

    def __init__(self) -> None:
        self._words = {name: Words() for name in _VERDICT_COLUMNS}
        self._verdicts = {name: Growing(np.int32) for name in _VERDICT_COLUMNS}
        self._verdicts_seen = 0

    def encode(self, chunk: Chunk) -> Coded:
        """Return the chunk with every column as numbers."""
        self._grow(chunk)
        texts = {}
        for name in SUBJECT_COLUMNS:
            told = chunk.subjects.text(name)
            texts[name] = CodedText(chunk.subject, told.of_entry, told.texts)
        for name, column in self._verdicts.items():
            texts[name] = CodedText(chunk.verdict, column.read(), self._words[name].texts)
        return Coded(chunk, chunk.subjects.clients(), texts)

    def _grow(self, chunk: Chunk) -> None:
        for verdict in chunk.verdicts[self._verdicts_seen :]:
            for name, text in zip(_VERDICT_COLUMNS, verdict, strict=True):
                self._verdicts[name].extend((self._words[name].number(text),))
            self._verdicts_seen += 1


class _Used:
    """The entries of a table that some row has, in order, and each row's place among them.

    A run's tables may be far longer than a chunk. Only the entries that the chunk uses are looked
    up for each column, so that they stay in the processor's cache.
    """

    __slots__ = ("entries", "rows")

    def __init__(self, rows: Numbers, count: int) -> None:
        found = np.zeros(count, dtype=bool)
        found[rows] = True
        self.entries = np.flatnonzero(found)
        place = np.empty(count, dtype=np.int64)
        place[self.entries] = np.arange(len(self.entries))
        self.rows = _room(len(rows), np.int64)[1]
        _take(place, rows, self.rows)

    def look_up(self, table: Table) -> tuple[pa.Buffer, Table]:
        """Return a 32-bit value a row from a value an entry, and the buffer that holds them."""
        buffer, values = _room(len(self.rows), np.int32)
        _take(table, self.rows, values)
        return buffer, values


def _room(count: int, dtype: type[np.signedinteger[Any]]) -> tuple[pa.Buffer, Table]:
    """Return room for numbers, from Arrow's pool: it hands out again what was given back."""
    buffer = pa.allocate_buffer(count * np.dtype(dtype).itemsize)
    return buffer, np.frombuffer(buffer, dtype=dtype)


def _take(table: Table, rows: Numbers, out: Table) -> None:
    """Look rows up in a table, into memory that is there: fresh pages cost more than the look-up.

    `clip` keeps numpy from a copy of its own; rows are places of the table, nothing is clipped.
    """
    table.take(rows, out=out, mode="clip")


def record_batch(coded: Coded, schema: pa.Schema = SCHEMA) -> pa.RecordBatch:
    """Return the rows as a batch, its dictionaries cut to the values it uses.

    schema: `SCHEMA`, or fewer of its columns.
    """
    chunk = coded.chunk
    subjects = cache(lambda: _Used(chunk.subject, len(coded.clients)))
    verdicts = cache(lambda: _Used(chunk.verdict, len(coded.texts["rule"].of_entry)))
    columns: dict[str, Callable[[], pa.Array]] = {
        "t_ns": lambda: pa.array(chunk.t_ns),
        "client": lambda: _clients(coded.clients, subjects()),
        "attempt": lambda: _attempts(chunk.attempt),
        "wait_ns": lambda: pa.array(chunk.wait_ns),
        "latency_ns": lambda: pa.array(chunk.latency_ns),
        "status": lambda: _status(chunk.status),
    }
    for name, text in coded.texts.items():
        used = subjects if name in SUBJECT_COLUMNS else verdicts
        columns[name] = partial(_dictionary, text, used)
    return pa.RecordBatch.from_arrays([columns[name]() for name in schema.names], schema=schema)


def _clients(clients: Table, used: _Used) -> pa.Array:
    buffer, values = used.look_up(clients[used.entries].astype(np.int32))
    return pa.Array.from_buffers(pa.int32(), len(values), [None, buffer])


def _attempts(attempt: Numbers) -> pa.Array:
    buffer, values = _room(len(attempt), np.int32)
    values[:] = attempt
    return pa.Array.from_buffers(pa.int32(), len(values), [None, buffer])


def _status(status: Numbers) -> pa.Array:
    unknown = status == NO_STATUS
    if unknown.all():
        return pa.nulls(len(status), pa.int16())
    return pa.array(status.astype(np.int16), mask=unknown)


def _dictionary(text: CodedText, entries: Callable[[], _Used]) -> pa.DictionaryArray:
    """Return the column; rows are looked up once, in a table from entry to place."""
    used = entries()
    numbers = text.of_entry[used.entries]
    known = len(text.texts)
    found = np.zeros(known + 1, dtype=bool)
    found[numbers] = True  # null, −1, is the last place
    kept = np.flatnonzero(found[:known])
    place = np.full(known + 1, -1, dtype=np.int32)
    place[kept] = np.arange(len(kept), dtype=np.int32)
    buffer, values = used.look_up(place[numbers])
    valid = pa.py_buffer(np.packbits(values >= 0, bitorder="little")) if found[known] else None
    indices = pa.Array.from_buffers(pa.int32(), len(values), [valid, buffer])
    words = pa.array([text.texts[number] for number in kept.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(indices, words, safe=False)


class ColumnDigest:
    """SHA-256 over the decoded columns, fed chunk by chunk; how rows are grouped has no effect.

    A column's digest is the SHA-256 of its rows: a number as 8 bytes, little-endian, two's
    complement (null as −2⁶³); a text as the first 8 bytes of the SHA-256 of its UTF-8 form (null
    as 8 zero bytes). The digest of the run is the SHA-256 of, for each column in file order, its
    name in UTF-8, a zero byte and its digest. All columns count, whichever of them a file keeps.
    """

    __slots__ = ("_columns", "_known", "_numbers", "_words", "_words_a_row")

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in SCHEMA.names}
        self._known = {name: Growing("<u8") for name in TEXT_COLUMNS}
        self._words = {name: Growing("<u8") for name in TEXT_COLUMNS}
        self._numbers: Table = np.empty(0, dtype="<i8")
        self._words_a_row: Table = np.empty(0, dtype="<u8")

    def add(self, coded: Coded) -> None:
        """Take in some rows."""
        chunk = coded.chunk
        if len(chunk) > len(self._numbers):
            self._numbers = np.empty(len(chunk), dtype="<i8")
            self._words_a_row = self._numbers.view("<u8")
        numbers, words = self._numbers[: len(chunk)], self._words_a_row[: len(chunk)]
        for name, rows in (
            ("t_ns", chunk.t_ns),
            ("attempt", chunk.attempt),
            ("wait_ns", chunk.wait_ns),
            ("latency_ns", chunk.latency_ns),
        ):
            self._columns[name].update(np.ascontiguousarray(rows, dtype="<i8").data)
        numbers[:] = chunk.status
        numbers[chunk.status == NO_STATUS] = _NULL_NUMBER
        self._columns["status"].update(numbers.data)
        _take(coded.clients, chunk.subject, numbers)
        self._columns["client"].update(numbers.data)
        for name, text in coded.texts.items():
            _take(self._words_of(name, text), text.rows, words)
            self._columns[name].update(words.data)

    def _words_of(self, name: str, text: CodedText) -> Table:
        """Return what stands for each entry."""
        known, words = self._known[name], self._words[name]
        known.extend([_word(value) for value in text.texts[len(known) :]])
        new = text.of_entry[len(words) :]
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


def digest_of_table(table: pa.Table) -> str:
    """Return the same digest from a table as read back: what a second reader would compute."""
    whole = hashlib.sha256()
    for name in SCHEMA.names:
        column = hashlib.sha256()
        for value in table.column(name).to_pylist():
            if name in TEXT_COLUMNS:
                column.update((0 if value is None else _word(value)).to_bytes(8, "little"))
            else:
                number = _NULL_NUMBER if value is None else value
                column.update(number.to_bytes(8, "little", signed=True))
        whole.update(name.encode() + b"\0" + column.digest())
    return whole.hexdigest()
