"""The records of a SQLite store: documents, log entries and tokens.

The documents that every request reads have a cache in memory.

A cached record is valid until another process changes a document: a counter in the file tells, and
is read only when `PRAGMA data_version` shows a commit elsewhere.

Log entries are in order of (at_ns, arrival).
"""

from __future__ import annotations

import heapq
import sqlite3
from collections.abc import Iterator, Sequence
from hmac import compare_digest
from typing import Any, Final, cast

from engine.errors import StoreError
from engine.model import (
    Application,
    EncryptionKey,
    Intent,
    KeptAnswer,
    Key,
    LogEntry,
    Proxy,
    Reactor,
    Tenant,
    Token,
)
from engine.store.protocol import (
    Cursor,
    D,
    Document,
    LogFilter,
    RecordMac,
    TokenFilter,
    WithoutCvc,
    cursor_place,
)
from engine.store.selection import (
    TYPE_TERMS,
    Union,
    token_matches,
    token_terms,
    token_unions,
    type_of,
    wants_types,
)
from engine.store.sqlite_file import Session
from engine.store.sqlite_schema import DOCUMENTS, LOGS, TOKENS, Rows, Slots

__all__ = ["DocumentTables", "LogTable", "TokenTable"]


# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound


_KEPT: Final = frozenset({Tenant, Application, Key, EncryptionKey, Reactor, Proxy})
_DUE: Final = (Intent, KeptAnswer)
"""The kinds of records that expire at their own `until_ns`."""

_KEPT_LIMIT: Final = 250_000


class DocumentTables:
    """The document tables of one file, and this process's copies of what they hold.

    `version` changes whenever earlier copies may be stale.
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


# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound


_LAST = 2**63 - 1


class LogTable:
    """The log entries of one file."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def add(self, entry: LogEntry) -> None:
        """Append an entry."""
        self._session.run(LOGS.insert, LOGS.pack(entry))

    def find(
        self, tenant_id: str, chosen: LogFilter, after: Cursor | None, size: int
    ) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        place = (-1, -1) if after is None else self._place(tenant_id, after)
        if place is None:
            return []
        index, tests, values = _tests(chosen)
        found = self._session.all(
            f"SELECT {LOGS.columns} FROM logs INDEXED BY {index}"
            f" WHERE tenant_id = ? AND (at_ns, seq) > (?, ?){tests} ORDER BY at_ns, seq LIMIT ?",
            (tenant_id, *place, *values, size),
        )
        return [LOGS.unpack(row) for row in found]

    def expire(self, tenant_id: str, before_ns: int, size: int | None = None) -> int:
        """Erase a tenant's entries older than `before_ns`, `size` at most (QUO-LOG)."""
        return self._session.run(
            "DELETE FROM logs WHERE seq IN"
            " (SELECT seq FROM logs WHERE tenant_id = ? AND at_ns < ? LIMIT ?)",
            (tenant_id, before_ns, -1 if size is None else size),
        ).rowcount

    def _place(self, tenant_id: str, after: Cursor) -> tuple[int, int] | None:
        at_ns, entry_id = cursor_place(after)
        row = self._session.one(
            "SELECT at_ns, seq FROM logs WHERE tenant_id = ? AND id = ?", (tenant_id, entry_id)
        )
        if row is not None:
            return row[0], row[1]
        # It expired, and with it all entries of its instant.
        return None if at_ns is None else (at_ns, _LAST)


def _tests(chosen: LogFilter) -> tuple[str, str, list[object]]:
    """Return the index that finds the chosen entries, the tests of the rest, and their values."""
    index, tests = "logs_listed", ""
    values: list[object] = []
    for column, value, by in (
        ("entity_type = ?", chosen.entity_type, "logs_by_type"),
        ("entity_id = ?", chosen.entity_id, "logs_by_entity"),
        ("at_ns >= ?", chosen.from_ns, ""),
        ("at_ns < ?", chosen.before_ns, ""),
    ):
        if value is not None:
            tests += f" AND {column}"
            values.append(value)
            index = by or index
    return index, tests, values


# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound


_ID: Final = TOKENS.names.index("id")
_CREATED: Final = TOKENS.names.index("created_at_ns")
_COUNTED: Final = 1_000
"""How many records of a term are counted, to tell a narrow term from a wide one."""

_SELECT: Final = f"SELECT {TOKENS.columns} FROM tokens"
_BY_ID: Final = " WHERE tokens.tenant_id = ? AND tokens.id = ?"
_ADD_TERM: Final = "INSERT INTO token_terms VALUES (?, ?, ?, ?)"
_DROP_TERM: Final = (
    "DELETE FROM token_terms WHERE tenant_id = ? AND term = ? AND created_at_ns = ? AND id = ?"
)
_COUNT: Final = (
    "INSERT INTO counters VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET value = value + ?"
)
_DERIVED: Final = (
    "instr(coalesce(search_indexes, '') || coalesce(fingerprint_expression, ''), 'data.cvc')"
)
_WALK: Final = (
    _SELECT + " INDEXED BY tokens_listed WHERE tokens.tenant_id = ?"
    " AND (tokens.created_at_ns, tokens.id) > (?, ?) ORDER BY tokens.created_at_ns, tokens.id"
)
_WALK_TERM: Final = (
    f"SELECT {TOKENS.columns} FROM token_terms AS filed CROSS JOIN tokens"
    " ON tokens.tenant_id = filed.tenant_id AND tokens.id = filed.id"
    " WHERE filed.tenant_id = ? AND filed.term = ?"
    " AND (filed.created_at_ns, filed.id) > (?, ?) ORDER BY filed.created_at_ns, filed.id"
)


def _term_rows(token: Token) -> list[tuple[object, ...]]:
    return [(token.tenant_id, term, token.created_at_ns, token.id) for term in token_terms(token)]


def _counter(tenant_id: str) -> str:
    return f"tokens:{tenant_id}"


def _place_of(row: Sequence[Any]) -> tuple[int, str]:
    return row[_CREATED], row[_ID]


class TokenTable:
    """The tokens of one file."""

    def __init__(self, session: Session, slots: Slots) -> None:
        self._session = session
        self._slots = slots

    def add(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens."""
        added: dict[str, int] = {}
        rows = []
        terms: list[tuple[object, ...]] = []
        for token in tokens:
            row = TOKENS.pack(token)
            for at in TOKENS.sealed:
                if row[at] is not None:
                    row[at] = self._slots.put(row[at])
            rows.append(row)
            terms += _term_rows(token)
            added[token.tenant_id] = added.get(token.tenant_id, 0) + 1
        self._session.many(TOKENS.insert, rows)
        self._session.many(_ADD_TERM, terms)
        for tenant_id, number in added.items():
            self._session.run(_COUNT, (_counter(tenant_id), number, number))

    def get(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""
        row = self._session.one(_SELECT + _BY_ID, (tenant_id, token_id))
        return None if row is None else TOKENS.unpack(row)

    def oldest(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest (created_at_ns, id) token of that hash (D-DEDUP-KEY)."""
        row = self._session.one(
            _SELECT + " WHERE tenant_id = ? AND dedup_hash = ? ORDER BY created_at_ns, id LIMIT 1",
            (tenant_id, dedup_hash),
        )
        return None if row is None else TOKENS.unpack(row)

    def update(self, token: Token) -> None:
        """Replace the token of the same id."""
        old = self.get(token.tenant_id, token.id)
        if old is None:
            raise StoreError("a token that is updated must exist; it does not")
        assert old.created_at_ns == token.created_at_ns, "a token's creation never changes"
        self._session.erases()
        row = TOKENS.pack(token)
        slots = self._slots_of(token.tenant_id, token.id)
        for at, slot in zip(TOKENS.sealed, slots, strict=True):
            row[at] = self._slots.change(slot, row[at])
        self._session.run(
            f"UPDATE tokens SET {TOKENS.assign}" + _BY_ID, [*row, token.tenant_id, token.id]
        )
        before, after = set(_term_rows(old)), set(_term_rows(token))
        self._session.many(_DROP_TERM, list(before - after))
        self._session.many(_ADD_TERM, list(after - before))

    def delete(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token, overwriting what it held."""
        token = self.get(tenant_id, token_id)
        if token is None:
            return False
        self._session.erases()
        slots = self._slots_of(tenant_id, token_id)
        self._slots.erase([slot for slot in slots if slot is not None])
        self._session.run("DELETE FROM tokens" + _BY_ID, (tenant_id, token_id))
        self._session.many(_DROP_TERM, _term_rows(token))
        self._session.run(_COUNT, (_counter(tenant_id), 0, -1))
        return True

    def find(
        self, tenant_id: str, chosen: TokenFilter, after: Cursor | None, size: int
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order, after a cursor."""
        place = (-1, "") if after is None else self._place(tenant_id, after)
        if place is None:
            return []
        unions = token_unions(chosen, self._types(tenant_id) if wants_types(chosen) else ())
        found: list[Token] = []
        walks = self._walks(tenant_id, unions, place)
        try:
            for row in heapq.merge(*walks, key=_place_of):
                if len(found) == size:
                    break
                token = TOKENS.unpack(row)
                if token_matches(token, chosen):
                    found.append(token)
        except sqlite3.Error as error:
            raise StoreError(f"the store file failed: {error}") from error
        finally:
            for walk in walks:
                walk.close()  # an open one would keep the log from being emptied
        return found

    def count(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""
        row = self._session.one("SELECT value FROM counters WHERE name = ?", (_counter(tenant_id),))
        return 0 if row is None else row[0]

    def with_cvc(self, tenant_id: str) -> Sequence[Token]:
        """Return a tenant's tokens that hold a cvc."""
        chosen = f"{_SELECT} WHERE cvc_until_ns IS NOT NULL AND tenant_id = ?"
        return [TOKENS.unpack(row) for row in self._session.all(chosen, (tenant_id,))]

    def next_cvc_ns(self) -> int | None:
        """Return the earliest deadline of a cvc."""
        at_ns: int | None = self._session.one(
            "SELECT min(cvc_until_ns) FROM tokens WHERE cvc_until_ns IS NOT NULL"
        )[0]
        return at_ns

    def expire(self, now_ns: int, without_cvc: WithoutCvc, size: int) -> int:
        """Erase every cvc whose deadline is at or before `now_ns` (QUO-CVC).

        A token with an expression that may use its cvc (D-CVC-DERIVE) is rewritten as a whole; of
        every other token two columns are cleared.
        """
        derived = self._session.all(
            f"{_SELECT} WHERE cvc_until_ns <= ? AND {_DERIVED} LIMIT ?", (now_ns, size)
        )
        for row in derived:
            self.update(without_cvc(TOKENS.unpack(row)))
        due = self._session.all(
            "SELECT seq, sealed_cvc FROM tokens"
            f" WHERE cvc_until_ns <= ? AND NOT {_DERIVED} LIMIT ?",
            (now_ns, size),
        )
        self._slots.erase([slot for _, slot in due if slot is not None])
        self._session.many(
            "UPDATE tokens SET sealed_cvc = NULL, cvc_until_ns = NULL WHERE seq = ?",
            [(number,) for number, _ in due],
        )
        return len(derived) + len(due)

    def _slots_of(self, tenant_id: str, token_id: str) -> Sequence[int | None]:
        columns = ", ".join(TOKENS.sealed_names)
        slots: Sequence[int | None] = self._session.one(
            f"SELECT {columns} FROM tokens" + _BY_ID, (tenant_id, token_id)
        )
        return slots

    def _place(self, tenant_id: str, after: Cursor) -> tuple[int, str] | None:
        at_ns, token_id = cursor_place(after)
        row = self._session.one("SELECT created_at_ns FROM tokens" + _BY_ID, (tenant_id, token_id))
        if row is not None:
            at_ns = row[0]
        return None if at_ns is None else (at_ns, token_id)

    def _types(self, tenant_id: str) -> Iterator[str]:
        """Yield every token type that the tenant has, with one look-up each."""
        term, end = TYPE_TERMS
        while True:
            term = self._session.one(
                "SELECT min(term) FROM token_terms WHERE tenant_id = ? AND term > ? AND term < ?",
                (tenant_id, term, end),
            )[0]
            if term is None:
                return
            yield type_of(term)

    def _walks(
        self, tenant_id: str, unions: Sequence[Union], place: tuple[int, str]
    ) -> list[sqlite3.Cursor]:
        if not unions:
            return [self._session.run(_WALK, (tenant_id, *place))]
        narrowest = unions[0]
        if len(unions) > 1:
            narrowest = min(unions, key=lambda union: self._width(tenant_id, union))
        return [self._session.run(_WALK_TERM, (tenant_id, term, *place)) for term in narrowest]

    def _width(self, tenant_id: str, union: Union) -> int:
        width = 0
        for term in union:
            width += self._session.one(
                "SELECT count(*) FROM (SELECT 1 FROM token_terms"
                " WHERE tenant_id = ? AND term = ? LIMIT ?)",
                (tenant_id, term, _COUNTED - width),
            )[0]
            if width >= _COUNTED:
                break
        return width
