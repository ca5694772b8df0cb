"""From chunks to Arrow columns, and the SHA-256 that names a run's values.

The digest depends on the decoded values alone, not on the library that stored them: see
`ColumnDigest`. Texts are numbered once a run (`TextColumns`), so that a chunk's text column is a
look-up and no string is touched twice.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa

from simulator.results.rows import NO_STATUS, SCHEMA, TEXT_COLUMNS, Chunk, Numbers

__all__ = ["Coded", "ColumnDigest", "TextColumns", "digest_of_table", "record_batch"]

_NULL_NUMBER: Final = -(1 << 63)
_SUBJECT_COLUMNS: Final = ("tenant", "application", "key", "ip", "method", "path")
_VERDICT_COLUMNS: Final = ("outcome", "rule")


@dataclass(slots=True)
class Coded:
    """A chunk whose texts are numbers into `TextColumns.texts`, −1 for null."""

    chunk: Chunk
    clients: Numbers
    texts: dict[str, Numbers]


class _Texts:
    """One text column: its distinct values, and which of them each table entry holds."""

    __slots__ = ("_numbers", "of_entry", "place", "values")

    def __init__(self, place: int) -> None:
        self.place = place
        self.values: list[str] = []
        self.of_entry: list[int] = []
        self._numbers: dict[str, int] = {}

    def add(self, text: str | None) -> None:
        if text is None:
            self.of_entry.append(-1)
            return
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.values)
            self.values.append(text)
        self.of_entry.append(number)


class TextColumns:
    """The text columns of a run, growing with its tables."""

    __slots__ = ("_clients", "_columns", "_subjects_seen", "_verdicts_seen")

    def __init__(self) -> None:
        self._columns = {
            **{name: _Texts(place) for place, name in enumerate(_SUBJECT_COLUMNS, start=1)},
            **{name: _Texts(place) for place, name in enumerate(_VERDICT_COLUMNS)},
        }
        self._clients: list[int] = []
        self._subjects_seen = 0
        self._verdicts_seen = 0

    def texts(self, name: str) -> list[str]:
        """Return the distinct values of a column, by number."""
        return self._columns[name].values

    def encode(self, chunk: Chunk) -> Coded:
        """Return the chunk with every column as numbers."""
        self._grow(chunk)
        texts: dict[str, Numbers] = {}
        for name, column in self._columns.items():
            entries = np.array(column.of_entry, dtype=np.int64)
            rows = chunk.subject if name in _SUBJECT_COLUMNS else chunk.verdict
            texts[name] = entries[rows]
        clients = np.array(self._clients, dtype=np.int64)[chunk.subject]
        return Coded(chunk, clients, texts)

    def _grow(self, chunk: Chunk) -> None:
        for subject in chunk.subjects[self._subjects_seen :]:
            self._clients.append(subject.client)
            for name in _SUBJECT_COLUMNS:
                column = self._columns[name]
                column.add(subject[column.place])  # type: ignore[arg-type] # reason: text places only
        for verdict in chunk.verdicts[self._verdicts_seen :]:
            for name in _VERDICT_COLUMNS:
                column = self._columns[name]
                column.add(verdict[column.place])
        self._subjects_seen = len(chunk.subjects)
        self._verdicts_seen = len(chunk.verdicts)


def record_batch(coded: Coded, texts: TextColumns) -> pa.RecordBatch:
    """Return the rows as a batch of `SCHEMA`, its dictionaries cut to the values it uses."""
    chunk = coded.chunk
    columns: dict[str, pa.Array] = {
        "t_ns": pa.array(chunk.t_ns),
        "client": pa.array(coded.clients.astype(np.int32)),
        "attempt": pa.array(chunk.attempt.astype(np.int32)),
        "wait_ns": pa.array(chunk.wait_ns),
        "latency_ns": pa.array(chunk.latency_ns),
        "status": pa.array(chunk.status.astype(np.int16), mask=chunk.status == NO_STATUS),
    }
    for name in TEXT_COLUMNS:
        columns[name] = _dictionary(coded.texts[name], texts.texts(name))
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _dictionary(numbers: Numbers, values: list[str]) -> pa.DictionaryArray:
    used = np.zeros(len(values) + 1, dtype=bool)
    used[numbers] = True  # null is −1, the last place
    used[-1] = False
    kept = np.flatnonzero(used)
    place = np.cumsum(used, dtype=np.int32) - 1
    indices = pa.array(place[numbers], mask=numbers < 0)
    return pa.DictionaryArray.from_arrays(indices, pa.array([values[k] for k in kept], pa.string()))


class ColumnDigest:
    """SHA-256 over the decoded columns, fed chunk by chunk; how rows are grouped has no effect.

    A column's digest is the SHA-256 of its rows: a number as 8 bytes, little-endian, two's
    complement (null as −2⁶³); a text as the first 8 bytes of the SHA-256 of its UTF-8 form (null
    as 8 zero bytes). The digest of the run is the SHA-256 of, for each column in file order, its
    name in UTF-8, a zero byte and its digest.
    """

    __slots__ = ("_columns", "_known")

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in SCHEMA.names}
        self._known: dict[str, list[int]] = {name: [] for name in TEXT_COLUMNS}

    def add(self, coded: Coded, texts: TextColumns) -> None:
        """Take in some rows."""
        chunk = coded.chunk
        status = np.where(chunk.status == NO_STATUS, _NULL_NUMBER, chunk.status)
        for name, rows in (
            ("t_ns", chunk.t_ns),
            ("client", coded.clients),
            ("attempt", chunk.attempt),
            ("wait_ns", chunk.wait_ns),
            ("latency_ns", chunk.latency_ns),
            ("status", status),
        ):
            self._columns[name].update(np.ascontiguousarray(rows, dtype="<i8").tobytes())
        for name, numbers in coded.texts.items():
            self._columns[name].update(self._words(name, texts.texts(name))[numbers].tobytes())

    def _words(self, name: str, values: list[str]) -> np.ndarray[Any, np.dtype[np.uint64]]:
        known = self._known[name]
        known.extend(_word(value) for value in values[len(known) :])
        return np.array([*known, 0], dtype="<u8")  # null is −1, the last place

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
