"""The tables of a SQLite store, and how a file is identified as one.

Ciphertexts have a table of their own. SQLite's `secure_delete` overwrites deleted data, but when
SQLite moves rows between pages to balance a tree, it leaves copies that are never overwritten. So
ciphertexts are in cells of the table `sealed` that never move: rows are only appended, and a cell
is rewritten in place with the same length. Every `sealed_*` column holds the number of such a slot.

A slot is a row of `sealed`. Rows are appended, never removed; a cell is written again only with as
many bytes, which SQLite does in place. A ciphertext is padded to a size class, and an erased slot
(all zeros) is used again for the next one of its class.

A record is a row, a column a field, in the order of the dataclass. Mappings and tuples are JSON
text. A `sealed_*` field is the number of the slot that holds it: packed rows still have the bytes,
which the caller puts into slots; selected ones have the cell.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from inspect import signature
from operator import attrgetter
from types import NoneType, UnionType
from typing import Any, Final, Generic, TypeAlias, TypeVar, get_args, get_origin, get_type_hints

import orjson

from engine.errors import StoreError
from engine.model import (
    Application,
    EncryptionKey,
    Grant,
    Intent,
    Job,
    JobResult,
    KeptAnswer,
    Key,
    LogEntry,
    Proxy,
    Reactor,
    Tenant,
    Token,
)

# ruff: noqa: S608  # reason: names of tables and columns are constants here


APPLICATION_ID: Final = 0x544F4C47
"""`TOLG`: the `PRAGMA application_id` of our files."""

VERSION: Final = 8
"""The `PRAGMA user_version`: the version of a file's tables."""

_TABLES: Final = """
-- Changes of documents (for the copies in other processes), and each tenant's tokens.
CREATE TABLE counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
INSERT INTO counters VALUES ('documents', 0);
CREATE TABLE sealed (slot INTEGER PRIMARY KEY, cell BLOB NOT NULL);
CREATE TABLE free_slots (
    size_bytes INTEGER, slot INTEGER, PRIMARY KEY (size_bytes, slot)
) WITHOUT ROWID;
-- Rows of tokens are appended; what is looked up at random stands in the indices.
CREATE TABLE tokens (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant_id TEXT NOT NULL, type TEXT,
    container TEXT, created_by TEXT, created_at_ns INTEGER, sealed_data INTEGER,
    dedup_hash BLOB, mask TEXT, metadata TEXT, search_indexes TEXT, index_hashes TEXT,
    fingerprint TEXT, fingerprint_expression TEXT, sealed_cvc INTEGER, cvc_until_ns INTEGER
);
CREATE UNIQUE INDEX tokens_by_id ON tokens (tenant_id, id);
CREATE INDEX tokens_listed ON tokens (tenant_id, created_at_ns, id);
CREATE INDEX tokens_equal ON tokens (tenant_id, dedup_hash, created_at_ns, id);
CREATE INDEX tokens_due ON tokens (cvc_until_ns) WHERE cvc_until_ns IS NOT NULL;
CREATE TABLE token_terms (
    tenant_id TEXT, term BLOB, created_at_ns INTEGER, id TEXT,
    PRIMARY KEY (tenant_id, term, created_at_ns, id)
) WITHOUT ROWID;
CREATE TABLE logs (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant_id TEXT NOT NULL, at_ns INTEGER,
    operation TEXT, entity_type TEXT, entity_id TEXT, actor_id TEXT, status INTEGER
);
CREATE UNIQUE INDEX logs_by_id ON logs (tenant_id, id);
CREATE INDEX logs_listed ON logs (tenant_id, at_ns);
CREATE INDEX logs_by_entity ON logs (tenant_id, entity_id, at_ns);
CREATE INDEX logs_by_type ON logs (tenant_id, entity_type, at_ns);
CREATE TABLE secrets (name TEXT PRIMARY KEY, sealed INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE work (
    id TEXT PRIMARY KEY, tenant_id TEXT, at_ns INTEGER, operation TEXT, entity_type TEXT,
    entity_id TEXT, actor_id TEXT, status INTEGER, owner TEXT
);
"""

_LENGTH_BYTES: Final = 4
_SMALLEST: Final = 64


def size_class(size_bytes: int) -> int:
    """Return the cell size for a ciphertext: an eighth larger than needed at most, 64 at least.

    >>> size_class(10), size_class(61), size_class(1000)
    (64, 128, 1024)
    """
    needed = size_bytes + _LENGTH_BYTES
    step = max(_SMALLEST, 1 << max(needed.bit_length() - 4, 0))
    return -(-needed // step) * step


def make_cell(sealed: bytes) -> bytes:
    """Return the cell that holds a ciphertext."""
    framed = len(sealed).to_bytes(_LENGTH_BYTES, "big") + sealed
    return framed.ljust(size_class(len(sealed)), b"\0")


def make_cells(sealed: Iterable[bytes]) -> list[bytes]:
    """Return the cells that hold these ciphertexts."""
    return [make_cell(each) for each in sealed]


def open_cell(cell: bytes | None) -> bytes | None:
    """Return the ciphertext of a cell."""
    if cell is None:
        return None
    length_bytes = int.from_bytes(cell[:_LENGTH_BYTES], "big")
    return cell[_LENGTH_BYTES : _LENGTH_BYTES + length_bytes]


R = TypeVar("R")
_Codec: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Any]]
"""What makes a column of a value, and a value of a column."""


def _dumps(value: object) -> str:
    return orjson.dumps(value, default=dict).decode()


def _optional(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> _Codec:
    """Return the codec of a value that may be None, which is NULL."""
    return (
        lambda value: None if value is None else pack(value),
        lambda column: None if column is None else unpack(column),
    )


def _dump_hashes(value: tuple[bytes, ...]) -> str | None:
    return ",".join(each.hex() for each in value) if value else None


def _load_hashes(text: str | None) -> tuple[bytes, ...]:
    return () if text is None else tuple(bytes.fromhex(each) for each in text.split(","))


def _dump_grants(value: tuple[Grant, ...]) -> str:
    return _dumps([[each.container, sorted(each.permissions)] for each in value])


def _load_grants(text: str) -> tuple[Grant, ...]:
    return tuple(Grant(path, frozenset(rights)) for path, rights in orjson.loads(text))


_TYPES: Final = {int: "INTEGER", bool: "INTEGER", bytes: "BLOB"}
"""Column type of a field's type; text for all others."""

_CODECS: Final[Mapping[Any, _Codec]] = {
    bool: (int, bool),
    Mapping: _optional(_dumps, orjson.loads),
    tuple[str, ...]: _optional(_dumps, lambda text: tuple(orjson.loads(text))),
    tuple[bytes, ...]: (_dump_hashes, _load_hashes),
    tuple[Grant, ...]: (_dump_grants, _load_grants),
}
"""Codec of a field's type; a value of any other type is its own column."""


def _codec_of(hint: Any) -> _Codec | None:  # noqa: ANN401 # reason: any annotation
    return _CODECS.get(Mapping if get_origin(hint) is Mapping else hint)


def _without_none(hint: Any) -> Any:  # noqa: ANN401 # reason: any annotation
    """Return the type of a field's value where there is one."""
    is_optional = get_origin(hint) is UnionType
    return next(each for each in get_args(hint) if each is not NoneType) if is_optional else hint


class Rows(Generic[R]):
    """How one class of records lies in one table.

    `columns` selects a record for `unpack`, with the cells of its sealed fields in place;
    `sealed` are the positions of these fields. A guarded row has one more column, `mac`: the keyed
    hash of `message`, which detects a row that another program has changed.
    """

    def __init__(
        self,
        kind: type[R],
        table: str,
        *,
        guarded: bool = False,
        unique: Sequence[str] = (),
    ) -> None:
        self.table = table
        hints = get_type_hints(kind)
        self._types = {name: _without_none(hints[name]) for name in signature(kind).parameters}
        self.names: Sequence[str] = list(self._types)
        self.sealed = [at for at, name in enumerate(self.names) if name.startswith("sealed_")]
        self.sealed_names = [self.names[at] for at in self.sealed]
        self.columns = ", ".join(
            f"(SELECT cell FROM sealed WHERE slot = {table}.{name})"
            if name in self.sealed_names
            else f"{table}.{name}"
            for name in self.names
        )
        written = [*self.names, "mac"] if guarded else self.names
        if guarded:
            self.columns += f", {table}.mac"
        marks = ", ".join("?" * len(written))
        self.insert = f"INSERT INTO {table} ({', '.join(written)}) VALUES ({marks})"
        self.assign = ", ".join(f"{name} = ?" for name in written)
        self._owner = self.names.index("tenant_id" if "tenant_id" in self.names else "id")
        self._id = self.names.index("id")
        self._kind = kind
        self._unique = unique
        self._values = attrgetter(*self.names)
        codecs = [(at, _codec_of(self._types[name])) for at, name in enumerate(self.names)]
        self._packed = [(at, codec[0]) for at, codec in codecs if codec is not None]
        self._unpacked = [(at, codec[1]) for at, codec in codecs if codec is not None]
        self._unpacked += [(at, open_cell) for at in self.sealed]

    def schema(self) -> Iterator[str]:
        """Yield the statements that make the table of a document, with its indexes."""
        columns = ["id TEXT PRIMARY KEY"]
        for name in self.names[1:]:
            sealed = name in self.sealed_names
            type_ = "INTEGER" if sealed else _TYPES.get(self._types[name], "TEXT")
            columns.append(f"{name} {type_}{' UNIQUE' if name in self._unique else ''}")
        yield f"CREATE TABLE {self.table} ({', '.join(columns)}, mac BLOB)"
        if "tenant_id" in self.names:
            listed = f"{self.table} (tenant_id, created_at_ns, id)"
            yield f"CREATE INDEX {self.table}_listed ON {listed}"
        if "until_ns" in self.names:
            yield f"CREATE INDEX {self.table}_due ON {self.table} (until_ns)"

    def pack(self, record: R) -> list[Any]:
        """Return the record as a row, the bytes of its sealed fields in place."""
        return self.pack_all([record])[0]

    def pack_all(self, records: Iterable[R]) -> list[list[Any]]:
        """Return the records as rows, the bytes of their sealed fields in place."""
        rows = [list(self._values(record)) for record in records]
        for row in rows:
            for at, pack in self._packed:
                row[at] = pack(row[at])
        return rows

    def message(self, row: Sequence[Any]) -> tuple[str, bytes]:
        """Return the tenant of a row, packed or selected, and the message for its keyed hash.

        Sealed fields are left out: the vault binds each to its place. So are NULLs: a column that
        a later version adds does not change the message of existing rows.
        """
        clear = {
            name: value
            for at, (name, value) in enumerate(zip(self.names, row, strict=False))
            if value is not None and at not in self.sealed
        }
        return row[self._owner], orjson.dumps([self.table, clear], default=bytes.hex)

    def id_of(self, row: Sequence[Any]) -> str:
        """Return the id of a selected row."""
        return str(row[self._id])

    def unpack(self, row: Sequence[Any]) -> R:
        """Return the record of a row that `columns` selected.

        Raises `StoreError` naming the table, the row and the column that cannot be read.
        """
        values = list(row[: len(self.names)])
        at = 0
        try:
            for at, unpack in self._unpacked:
                values[at] = unpack(values[at])
            return self._kind(*values)
        except (ValueError, TypeError, KeyError, AttributeError):
            raise StoreError(
                f"the store is damaged: table {self.table}, row {self.id_of(row)!a}, "
                f"column {self.names[at]}"
            ) from None


DOCUMENTS: Final[Mapping[type, Rows[Any]]] = {
    Tenant: Rows(Tenant, "tenants", guarded=True),
    Application: Rows(Application, "applications", guarded=True),
    Key: Rows(Key, "api_keys", guarded=True, unique=("text_hash",)),
    EncryptionKey: Rows(EncryptionKey, "encryption_keys", guarded=True),
    Reactor: Rows(Reactor, "reactors", guarded=True),
    Proxy: Rows(Proxy, "proxies", guarded=True, unique=("key_hash", "host")),
    Job: Rows(Job, "jobs", guarded=True),
    JobResult: Rows(JobResult, "job_results", guarded=True),
    Intent: Rows(Intent, "intents", guarded=True),
    KeptAnswer: Rows(KeptAnswer, "kept_answers", guarded=True),
}
TOKENS: Final = Rows(Token, "tokens")
LOGS: Final = Rows(LogEntry, "logs")

SCHEMA: Final = (
    *(statement for statement in _TABLES.split(";\n") if statement.strip()),
    *(statement for rows in DOCUMENTS.values() for statement in rows.schema()),
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)
"""The statements that make an empty file a store, in one transaction."""
