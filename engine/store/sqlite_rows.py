"""Records as rows and back: a column a field, in the order of the dataclass.

Mappings and tuples are JSON text. A `sealed_*` field is the number of the slot that holds it:
packed rows still have the bytes, which the caller puts into slots; selected ones have the cell.
"""

# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from inspect import signature
from operator import attrgetter
from typing import Any, Final, Generic, TypeAlias, TypeVar

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
from engine.store.sqlite_slots import open_cell

__all__ = ["DOCUMENTS", "LOGS", "TOKENS", "Rows"]

R = TypeVar("R")
_Codec: TypeAlias = tuple[Callable[[Any], Any], Callable[[Any], Any]]


def _dump_mapping(value: Mapping[str, Any] | None) -> str | None:
    return None if value is None else orjson.dumps(value, default=dict).decode()


def _load(text: str | None) -> object:
    return None if text is None else orjson.loads(text)


def _dump_strings(value: tuple[str, ...] | None) -> str | None:
    return None if value is None else orjson.dumps(value).decode()


def _load_strings(text: str | None) -> tuple[str, ...] | None:
    return None if text is None else tuple(orjson.loads(text))


def _load_list(text: str | None) -> tuple[str, ...]:
    return _load_strings(text) or ()


def _dump_hashes(value: tuple[bytes, ...]) -> str | None:
    return ",".join(each.hex() for each in value) if value else None


def _load_hashes(text: str | None) -> tuple[bytes, ...]:
    return () if text is None else tuple(bytes.fromhex(each) for each in text.split(","))


def _dump_grants(value: tuple[Grant, ...]) -> str:
    return orjson.dumps([[each.container, sorted(each.permissions)] for each in value]).decode()


def _load_grants(text: str) -> tuple[Grant, ...]:
    return tuple(Grant(path, frozenset(rights)) for path, rights in orjson.loads(text))


def _dump_unique(value: bytes | str | None) -> bytes | str | None:
    return value or None


def _load_hash(value: bytes | None) -> bytes:
    return value or b""


def _load_host(value: str | None) -> str | None:
    return value


_MAPPING: Final[_Codec] = (_dump_mapping, _load)
_STRINGS: Final[_Codec] = (_dump_strings, _load_strings)
_LIST: Final[_Codec] = (_dump_strings, _load_list)
_HASHES: Final[_Codec] = (_dump_hashes, _load_hashes)
_GRANTS: Final[_Codec] = (_dump_grants, _load_grants)
_FLAG: Final[_Codec] = (int, bool)
_UNIQUE_HASH: Final[_Codec] = (_dump_unique, _load_hash)
_UNIQUE_HOST: Final[_Codec] = (_dump_unique, _load_host)


class Rows(Generic[R]):
    """How one class of records lies in one table.

    `columns` selects a record for `unpack`, with the cells of its sealed fields in place;
    `sealed` are the positions of these fields. A guarded row has one more column, `mac`: the keyed
    hash of `message`, which detects a row that another program has changed.
    """

    def __init__(
        self, kind: type[R], table: str, *, guarded: bool = False, **codecs: _Codec
    ) -> None:
        self.table = table
        self.names: Sequence[str] = list(signature(kind).parameters)
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
        self._values = attrgetter(*self.names)
        self._packed = [(self.names.index(name), codec[0]) for name, codec in codecs.items()]
        self._unpacked = [(self.names.index(name), codec[1]) for name, codec in codecs.items()]
        self._unpacked += [(at, open_cell) for at in self.sealed]

    def pack(self, record: R) -> list[Any]:
        """Return the record as a row, the bytes of its sealed fields in place."""
        row = list(self._values(record))
        for at, pack in self._packed:
            row[at] = pack(row[at])
        return row

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
    Tenant: Rows(
        Tenant,
        "tenants",
        guarded=True,
        quotas=_MAPPING,
        settings=_MAPPING,
        host_suffixes=_LIST,
    ),
    Application: Rows(Application, "applications", guarded=True, grants=_GRANTS, origins=_LIST),
    Key: Rows(Key, "api_keys", guarded=True, legacy=_FLAG),
    EncryptionKey: Rows(EncryptionKey, "encryption_keys", guarded=True, public_jwk=_MAPPING),
    Reactor: Rows(Reactor, "reactors", guarded=True),
    Proxy: Rows(
        Proxy,
        "proxies",
        guarded=True,
        require_auth=_FLAG,
        key_hash=_UNIQUE_HASH,
        host=_UNIQUE_HOST,
    ),
    Job: Rows(Job, "jobs", guarded=True),
    JobResult: Rows(JobResult, "job_results", guarded=True),
    Intent: Rows(Intent, "intents", guarded=True, mask=_MAPPING),
    KeptAnswer: Rows(KeptAnswer, "kept_answers", guarded=True),
}
TOKENS: Final = Rows(
    Token,
    "tokens",
    mask=_MAPPING,
    metadata=_MAPPING,
    search_indexes=_STRINGS,
    index_hashes=_HASHES,
)
LOGS: Final = Rows(LogEntry, "logs")
