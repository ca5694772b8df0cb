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

from simulator.results.growing import Growing, Table
from simulator.results.rows import NO_STATUS, SCHEMA, TEXT_COLUMNS, Chunk, Numbers

__all__ = ["Coded", "ColumnDigest", "TextColumns", "digest_of_table", "record_batch"]

_NULL_NUMBER: Final = -(1 << 63)
_SUBJECT_COLUMNS: Final = ("tenant", "application", "key", "ip", "method", "path")
_VERDICT_COLUMNS: Final = ("outcome", "rule")


@dataclass(slots=True)
class CodedText:
    """A text column of a chunk: the row's entry, the entry's text.

    rows: each row's place in the chunk's table of subjects or verdicts. of_entry: number of the
    text there, −1 for null. texts: every text so far, by number.
    """

    rows: Numbers
    of_entry: Table
    texts: list[str]


@dataclass(slots=True)
class Coded:
    """A chunk whose texts are numbers. Other threads may read it while the run goes on."""

    chunk: Chunk
    clients: Numbers
    texts: dict[str, CodedText]


class _Texts:
    """One text column: its distinct values, and which of them each table entry holds."""

    __slots__ = ("_numbers", "of_entry", "place", "values")

    def __init__(self, place: int) -> None:
        self.place = place
        self.values: list[str] = []
        self.of_entry = Growing(np.int32)
        self._numbers: dict[str, int] = {}

    def add(self, texts: list[str | None]) -> None:
        self.of_entry.extend([-1 if text is None else self._number(text) for text in texts])

    def _number(self, text: str) -> int:
        number = self._numbers.get(text)
        if number is None:
            number = self._numbers[text] = len(self.values)
            self.values.append(text)
        return number


class TextColumns:
    """The text columns of a run, growing with its tables."""

    __slots__ = ("_clients", "_columns", "_subjects_seen", "_verdicts_seen")

    def __init__(self) -> None:
        self._columns = {
            **{name: _Texts(place) for place, name in enumerate(_SUBJECT_COLUMNS, start=1)},
            **{name: _Texts(place) for place, name in enumerate(_VERDICT_COLUMNS)},
        }
        self._clients = Growing(np.int64)
        self._subjects_seen = 0
        self._verdicts_seen = 0

    def encode(self, chunk: Chunk) -> Coded:
        """Return the chunk with every column as numbers."""
        self._grow(chunk)
        texts = {
            name: CodedText(
                chunk.subject if name in _SUBJECT_COLUMNS else chunk.verdict,
                column.of_entry.read(),
                column.values,
            )
            for name, column in self._columns.items()
        }
        return Coded(chunk, self._clients.read().take(chunk.subject), texts)

    def _grow(self, chunk: Chunk) -> None:
        subjects = chunk.subjects[self._subjects_seen :]
        if subjects:
            self._clients.extend([subject.client for subject in subjects])
            self._add(_SUBJECT_COLUMNS, subjects)
        verdicts = chunk.verdicts[self._verdicts_seen :]
        if verdicts:
            self._add(_VERDICT_COLUMNS, verdicts)
        self._subjects_seen += len(subjects)
        self._verdicts_seen += len(verdicts)

    def _add(self, names: tuple[str, ...], entries: Any) -> None:  # noqa: ANN401 # reason: tuples of either table
        for name in names:
            column = self._columns[name]
            column.add([entry[column.place] for entry in entries])


def record_batch(coded: Coded) -> pa.RecordBatch:
    """Return the rows as a batch of `SCHEMA`, its dictionaries cut to the values it uses."""
    chunk = coded.chunk
    columns: dict[str, pa.Array] = {
        "t_ns": pa.array(chunk.t_ns),
        "client": pa.array(coded.clients.astype(np.int32)),
        "attempt": pa.array(chunk.attempt.astype(np.int32)),
        "wait_ns": pa.array(chunk.wait_ns),
        "latency_ns": pa.array(chunk.latency_ns),
        "status": _status(chunk.status),
    }
    subjects = _used(chunk.subject, len(coded.texts["ip"].of_entry))
    verdicts = _used(chunk.verdict, len(coded.texts["rule"].of_entry))
    for name in TEXT_COLUMNS:
        used = subjects if name in _SUBJECT_COLUMNS else verdicts
        columns[name] = _dictionary(coded.texts[name], used)
    return pa.RecordBatch.from_arrays([columns[name] for name in SCHEMA.names], schema=SCHEMA)


def _status(status: Numbers) -> pa.Array:
    unknown = status == NO_STATUS
    if unknown.all():
        return pa.nulls(len(status), pa.int16())
    return pa.array(status.astype(np.int16), mask=unknown)


def _used(rows: Numbers, entries: int) -> Numbers:
    """Return the entries that some row has, in order."""
    found = np.zeros(entries, dtype=bool)
    found[rows] = True
    return np.flatnonzero(found)


def _dictionary(text: CodedText, used: Numbers) -> pa.DictionaryArray:
    """Return the column; rows are looked up once, in a table from entry to place."""
    numbers = text.of_entry[used]
    kept = np.unique(numbers)
    kept = kept[kept >= 0]
    place: Table = np.full(len(text.of_entry), -1, dtype=np.int32)
    place[used] = np.where(numbers < 0, -1, np.searchsorted(kept, numbers))
    indices = place.take(text.rows)
    mask = indices < 0 if (numbers < 0).any() else None
    values = pa.array([text.texts[number] for number in kept.tolist()], pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(indices, mask=mask), values, safe=False)


class ColumnDigest:
    """SHA-256 over the decoded columns, fed chunk by chunk; how rows are grouped has no effect.

    A column's digest is the SHA-256 of its rows: a number as 8 bytes, little-endian, two's
    complement (null as −2⁶³); a text as the first 8 bytes of the SHA-256 of its UTF-8 form (null
    as 8 zero bytes). The digest of the run is the SHA-256 of, for each column in file order, its
    name in UTF-8, a zero byte and its digest.
    """

    __slots__ = ("_columns", "_known", "_words")

    def __init__(self) -> None:
        self._columns = {name: hashlib.sha256() for name in SCHEMA.names}
        self._known = {name: Growing("<u8") for name in TEXT_COLUMNS}
        self._words = {name: Growing("<u8") for name in TEXT_COLUMNS}

    def add(self, coded: Coded) -> None:
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
            self._columns[name].update(np.ascontiguousarray(rows, dtype="<i8").data)
        for name, text in coded.texts.items():
            self._columns[name].update(self._words_of(name, text).take(text.rows).data)

    def _words_of(self, name: str, text: CodedText) -> Table:
        """Return what stands for each entry."""
        known, words = self._known[name], self._words[name]
        known.extend([_word(value) for value in text.texts[len(known) :]])
        if new := text.of_entry[len(words) :].tolist():
            values = known.read()
            words.extend([0 if number < 0 else values[number] for number in new])
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
