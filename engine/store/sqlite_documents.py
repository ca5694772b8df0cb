"""Documents in a SQLite store, with a cache in memory of those that every request reads.

A cached record is valid until another process changes a document: a counter in the file tells, and
is read only when `PRAGMA data_version` shows a commit elsewhere.
"""

# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound

from __future__ import annotations

from collections.abc import Sequence
from hmac import compare_digest
from typing import Any, Final, cast

from engine.errors import StoreError
from engine.model import (
    Application,
    EncryptionKey,
    Intent,
    KeptAnswer,
    Key,
    Proxy,
    Reactor,
    Tenant,
)
from engine.store.protocol import Cursor, D, Document, RecordMac, cursor_place
from engine.store.sqlite_file import Session
from engine.store.sqlite_rows import DOCUMENTS, Rows
from engine.store.sqlite_slots import Slots

__all__ = ["DocumentTables"]

_KEPT: Final = frozenset({Tenant, Application, Key, EncryptionKey, Reactor, Proxy})
_DUE: Final = (Intent, KeptAnswer)
"""The kinds of records that expire at their own `until_ns`."""

_KEPT_LIMIT: Final = 250_000


class DocumentTables:
    """The document tables of one file, and this process's copies of what they hold.

    `version` moves whenever the copies of before may be wrong.
    """

    def __init__(self, session: Session, slots: Slots) -> None:
        self._session = session
        self._slots = slots
        self._kept: dict[tuple[object, ...], Document] = {}
        self._changes_known = -1
        self._is_changed = False
        self._mac: RecordMac | None = None
        self.version = 0

    def guard(self, mac: RecordMac) -> None:
        """Write every row with its keyed hash from now on, and refuse rows of another one."""
        self._drop_copies()
        self._mac = mac

    # copies
    def refresh(self) -> None:
        """Forget the copies when another process has changed a document."""
        changes = self._session.one("SELECT value FROM counters WHERE name = 'documents'")[0]
        if changes != self._changes_known:
            self._changes_known = changes
            self._drop_copies()

    def committed(self) -> None:
        """Reset the state of the transaction after its commit."""
        self._is_changed = False

    def undone(self) -> None:
        """Forget the copies when the transaction that is undone changed a document."""
        if self._is_changed:
            self._is_changed = False
            self._drop_copies()
            self._changes_known = -1  # the next transaction asks the file

    def _drop_copies(self) -> None:
        self._kept.clear()
        self.version += 1

    def _note_change(self, kind: type) -> None:
        if kind not in _KEPT:
            return
        self._drop_copies()
        if not self._is_changed:
            self._is_changed = True
            self._session.run("UPDATE counters SET value = value + 1 WHERE name = 'documents'")
            self._changes_known += 1

    def _keep(self, name: tuple[object, ...], record: Document) -> None:
        if len(self._kept) >= _KEPT_LIMIT:
            self._kept.clear()
        self._kept[name] = record

    # records
    def put(self, record: Document) -> None:
        """Insert or replace a record."""
        kind = type(record)
        rows = DOCUMENTS[kind]
        self._note_change(kind)
        row = rows.pack(record)
        row.append(None if self._mac is None else self._mac(*rows.message(row), make=True))
        old = self._slots_of(kind, record.id)
        for at, slot in zip(rows.sealed, old or [None] * len(rows.sealed), strict=True):
            row[at] = self._slots.change(slot, row[at])
        if old is None:
            self._session.run(rows.insert, row)
        else:
            self._session.erases()
            self._session.run(
                f"UPDATE {rows.table} SET {rows.assign} WHERE id = ?", [*row, record.id]
            )

    def get(self, kind: type[D], record_id: str) -> D | None:
        """Return the record of that class and id."""
        return cast("D | None", self._find(kind, "id", record_id))

    def named(self, kind: type[D], column: str, name: str | bytes) -> D | None:
        """Return the record that alone has that value in a unique column."""
        return cast("D | None", self._find(kind, column, name))

    def delete(self, kind: type, record_id: str) -> bool:
        """Remove a record, overwriting what it held."""
        slots = self._slots_of(kind, record_id)
        if slots is None:
            return False
        self._note_change(kind)
        self._session.erases()
        self._slots.erase([slot for slot in slots if slot is not None])
        self._session.run(f"DELETE FROM {DOCUMENTS[kind].table} WHERE id = ?", (record_id,))
        return True

    def listed(
        self, kind: type[D], tenant_id: str, after: Cursor | None, size: int | None
    ) -> Sequence[D]:
        """Return a tenant's records of that class in order, after a cursor."""
        if kind is Tenant:
            own = self.get(kind, tenant_id)
            return [] if own is None or after is not None else [own][:size]
        return cast("Sequence[D]", self._page(kind, tenant_id, after, size))

    def tenants(self) -> Sequence[Tenant]:
        """Return all tenants in order."""
        rows = DOCUMENTS[Tenant]
        found = self._session.all(
            f"SELECT {rows.columns} FROM {rows.table} ORDER BY created_at_ns, id"
        )
        return [self._opened(rows, row) for row in found]

    def next_due_ns(self) -> int | None:
        """Return the earliest deadline of a record that has one."""
        found = [
            self._session.one(f"SELECT min(until_ns) FROM {DOCUMENTS[kind].table}")[0]
            for kind in _DUE
        ]
        return min((at_ns for at_ns in found if at_ns is not None), default=None)

    def expire(self, now_ns: int, size: int) -> int:
        """Erase the records whose deadline is at or before `now_ns`, `size` of a kind at most."""
        erased = 0
        for kind in _DUE:
            rows = DOCUMENTS[kind]
            (sealed,) = rows.sealed_names
            due = self._session.all(
                f"SELECT id, {sealed} FROM {rows.table} WHERE until_ns <= ? LIMIT ?",
                (now_ns, size),
            )
            self._slots.erase([slot for _, slot in due])
            gone = [(record_id,) for record_id, _ in due]
            self._session.many(f"DELETE FROM {rows.table} WHERE id = ?", gone)
            erased += len(due)
        return erased

    def _page(
        self, kind: type, tenant_id: str, after: Cursor | None, size: int | None
    ) -> Sequence[Document]:
        rows = DOCUMENTS[kind]
        place = (-1, "") if after is None else self._place(kind, tenant_id, after)
        if place is None:
            return []
        found = self._session.all(
            f"SELECT {rows.columns} FROM {rows.table} WHERE tenant_id = ?"
            " AND (created_at_ns, id) > (?, ?) ORDER BY created_at_ns, id LIMIT ?",
            (tenant_id, *place, -1 if size is None else size),
        )
        return [self._opened(rows, row) for row in found]

    def _opened(self, rows: Rows[Any], row: Sequence[Any]) -> Any:  # noqa: ANN401 # reason: any document
        """Return the record of a row; raises `StoreError` where another program has changed it."""
        if self._mac is not None:
            known = self._mac(*rows.message(row), make=False)
            if known is None or row[-1] is None or not compare_digest(known, row[-1]):
                raise StoreError(
                    f"the row of id {rows.id_of(row)} in table {rows.table} was changed by another "
                    "program; restore it from a backup"
                )
        return rows.unpack(row)

    def _find(self, kind: type, column: str, value: str | bytes) -> Document | None:
        name = (kind, column, value)
        kept = self._kept.get(name)
        if kept is not None:
            return kept
        rows = DOCUMENTS[kind]
        row = self._session.one(
            f"SELECT {rows.columns} FROM {rows.table} WHERE {column} = ?", (value,)
        )
        if row is None:
            return None
        record: Document = self._opened(rows, row)
        if kind in _KEPT:
            self._keep(name, record)
        return record

    def _slots_of(self, kind: type, record_id: str) -> list[Any] | None:
        """Return the slots of a record's sealed fields, None when there is no such record."""
        rows = DOCUMENTS[kind]
        columns = ", ".join(["id", *rows.sealed_names])
        row = self._session.one(f"SELECT {columns} FROM {rows.table} WHERE id = ?", (record_id,))
        return None if row is None else list(row[1:])

    def _place(self, kind: type, tenant_id: str, after: Cursor) -> tuple[int, str] | None:
        at_ns, record_id = cursor_place(after)
        row = self._session.one(
            f"SELECT created_at_ns FROM {DOCUMENTS[kind].table} WHERE tenant_id = ? AND id = ?",
            (tenant_id, record_id),
        )
        if row is not None:
            at_ns = row[0]
        return None if at_ns is None else (at_ns, record_id)
