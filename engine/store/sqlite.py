"""`SqliteStore`: the store of a server, one file that survives a kill at any instant.

Between transactions it caches what each would otherwise read from the file: the earliest deadline,
and the documents that every request reads. Both are valid until `PRAGMA data_version` changes, as
it does with each commit of another connection; a counter in the file then tells whether another
process has changed a document. A rollback drops what the transaction may have changed.

Log entries are in order of (at_ns, arrival).

Unfinished operations are rows too, each with the open store that runs it (`_Presence`).
"""

from __future__ import annotations

import heapq
import os
import re
import sqlite3
import sys
from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from hmac import compare_digest
from pathlib import Path
from typing import Any, Final, cast

from msgspec.structs import astuple

from engine.errors import StoreError, wrong_type
from engine.model import Intent, KeptAnswer, Key, LogEntry, Proxy, Tenant, Token
from engine.store.protocol import (
    UNCACHED,
    Cursor,
    D,
    Document,
    LogFilter,
    RecordMac,
    TokenFilter,
    Transactional,
    WithoutCvc,
    bare,
    cursor_place,
)
from engine.store.selection import (
    TYPE_TERMS,
    Union,
    terms_of,
    token_matches,
    token_unions,
    type_of,
    wants_types,
)
from engine.store.sqlite_file import LockFile, Session
from engine.store.sqlite_schema import (
    DOCUMENTS,
    LOGS,
    TOKENS,
    Rows,
    make_cell,
    make_cells,
    open_cell,
)

# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound


_ID: Final = re.compile("[0-9a-f]{16}")


class _Presence:
    """The lock that shows other processes that this store is open.

    Several processes may use one file, so the rows alone do not show whether an operation is
    abandoned or still running elsewhere. So each store that begins work locks a file of its own,
    `<store>-owner-<id>`, while it is open, and its rows name that file. The system releases the
    lock when the process ends in any way; a process that can take the lock knows that its owner is
    gone and that the work will not be finished. This needs no clock, process number or heartbeat.

    Lock files are made, tested and removed inside write transactions, which exclude each other in
    all processes, so that no process finds a lock file that is made but not yet locked.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self.owner = os.urandom(8).hex()
        self._lock = LockFile()

    def show(self) -> None:
        """Lock the file of this store."""
        if sys.platform == "win32" or self._lock.is_ours:  # there a file has one process at a time
            return
        try:
            self._lock.open(self._lock_file(self.owner))
            self._lock.take()
        except OSError as error:
            raise StoreError(f"the store's lock file failed: {error.strerror}") from error

    def leave(self) -> None:
        """Release the lock: work that is unfinished now is abandoned."""
        if self._lock.is_ours:
            self._lock_file(self.owner).unlink(missing_ok=True)
            self._lock.close()

    def present(self) -> set[str]:
        """Return the owners that are open, this one among them; remove the locks of the rest."""
        owners = {self.owner}
        if sys.platform == "win32":
            return owners
        prefix = self._lock_file("").name
        for file in self._path.parent.iterdir():
            owner = file.name.removeprefix(prefix)
            if owner == self.owner or not (file.name.startswith(prefix) and _ID.fullmatch(owner)):
                continue  # what is not one of ours is never touched
            if _is_locked(file):
                owners.add(owner)
            else:
                file.unlink(missing_ok=True)
        return owners

    def _lock_file(self, owner: str) -> Path:
        return self._path.with_name(f"{self._path.name}-owner-{owner}")


def _is_locked(file: Path) -> bool:
    """Return whether the store that made the file is still open; another user's file: assume so."""
    lock = LockFile()
    try:
        lock.open(file)
        lock.take()
    except OSError:
        return True
    finally:
        lock.close()
    return False


_DUE: Final = (Intent, KeptAnswer)
"""The kinds of records that expire at their own `until_ns`."""

_KEPT_LIMIT: Final = 250_000
_LAST: Final = 2**63 - 1
_TOKEN_ID: Final = TOKENS.names.index("id")
_TOKEN_CREATED: Final = TOKENS.names.index("created_at_ns")
_COUNTED: Final = 1_000
"""How many records of a term are counted, to tell a narrow term from a wide one."""

_SELECT: Final = f"SELECT {TOKENS.columns} FROM tokens"
_BY_ID: Final = "tenant_id = ? AND id = ?"
_ADD_TERM: Final = "INSERT INTO token_terms VALUES (?, ?, ?, ?)"
_DROP_TERM: Final = (
    "DELETE FROM token_terms WHERE tenant_id = ? AND term = ? AND created_at_ns = ? AND id = ?"
)
_COUNT: Final = (
    "INSERT INTO counters VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET value = value + ?2"
)
_FREE_SLOTS: Final = "SELECT slot FROM free_slots WHERE size_bytes = ? ORDER BY slot LIMIT ?"
_TAKE_SLOT: Final = "DELETE FROM free_slots WHERE size_bytes = length(?1) AND slot = ?2"
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
_SECRETS: Final = "SELECT name, (SELECT cell FROM sealed WHERE slot = secrets.sealed) FROM secrets"
_WORK: Final = ", ".join([*LogEntry.__struct_fields__, "owner"])
_OPEN_WORK: Final = f"INSERT INTO work ({_WORK}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)"
_OPENED_WORK: Final = f"SELECT {_WORK} FROM work ORDER BY at_ns, id"


def _term_rows(tokens: Sequence[Token]) -> list[tuple[object, ...]]:
    return [
        (token.tenant_id, term, token.created_at_ns, token.id) for token, term in terms_of(tokens)
    ]


def _tokens_of(tenant_id: str) -> str:
    """Return the name of the counter of a tenant's tokens."""
    return f"tokens:{tenant_id}"


def _place_of(row: Sequence[Any]) -> tuple[int, str]:
    return row[_TOKEN_CREATED], row[_TOKEN_ID]


def _log_tests(chosen: LogFilter) -> tuple[str, str, list[object]]:
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


class SqliteStore(Transactional):
    """The store in one SQLite file (write-ahead log, full synchronisation, mode 0600).

    path: the file; made when there is none. `-wal`, `-shm` and `-lock` stand beside it, and an
        `-owner-…` for each store that has begun work.
    timeout_s: how long to wait for a lock on the file, of another program or of another store
        here; then `StoreBusy` is raised.
    scrubs: deleted data are overwritten before the commit returns, in the file and in its log,
        unless another program reads the file at that time. With False, call `scrub` from time to
        time, in any thread.

    Safe among threads and among processes.

    Raises `StoreError` when the file is no store, of another version, damaged or not writable.
    """

    persistent = True

    def __init__(self, path: str | Path, *, timeout_s: float = 30, scrubs: bool = True) -> None:
        given: object = path
        if not isinstance(given, str | Path):
            raise wrong_type("path", given, "a file's path")
        super().__init__()
        self._session = Session(Path(path), timeout_s=timeout_s, scrubs=scrubs)
        self._presence = _Presence(self._session.path)
        self._mac: RecordMac | None = None
        self._version = -1  # of the session, at the last transaction
        self._deadline_ns: int | None = None
        self._knows_deadline = False
        self._kept: dict[tuple[object, ...], Document] = {}
        self._kept_version = 0  # changes whenever earlier copies may be stale
        self._changes_known = -1
        self._is_changed = False

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._session.path)!r})"

    # transactions
    def begin(self, *, write: bool = True, wait: bool = True) -> None:
        """Open a transaction, when the one before it has ended, in whichever process."""
        session = self._session
        session.begin(write=write, wait=wait)
        try:
            if session.version != self._version:
                changes = self._counted("documents")
                if changes != self._changes_known:  # by another process
                    self._changes_known = changes
                    self._drop_copies()
                self._knows_deadline = False
                self._version = session.version
        except BaseException:
            session.rollback()
            raise

    def commit(self) -> None:
        """Make what the transaction did last, whatever happens to the machine."""
        try:
            self._session.commit()
        except BaseException:
            self._forget()
            raise
        self._is_changed = False

    def rollback(self) -> None:
        """Undo what the transaction did."""
        if self._session.writes:
            self._forget()
        self._session.rollback()

    def scrub(self) -> bool:
        """Overwrite what is left of what was erased; False where another program is in the way."""
        return self._session.scrub()

    def check(self) -> str | None:
        """Return the first damage that is found in the file, by table and row; None for none."""
        return self._session.check()

    def probe(self) -> None:
        """Write to the file and read it back; raises `StoreError` where that cannot be done."""
        with self._writing:
            self._session.run(_COUNT, ("probes", 1))
        with self._reading:
            self._counted("probes")
            self.tenants()

    def close(self) -> None:
        """Close the file; what is unfinished is abandoned from now on."""
        self._presence.leave()
        self._session.close()

    def refuse(self) -> None:
        """Close a file that `check` found damaged, and leave it as it was."""
        self._session.refuse()

    def _forget(self) -> None:
        """Forget what the transaction that is undone may have changed."""
        self._knows_deadline = False
        if self._is_changed:
            self._is_changed = False
            self._drop_copies()
            self._changes_known = -1  # the next transaction asks the file

    def _counted(self, name: str) -> int:
        """Return the value of a counter, 0 for one that never counted."""
        row = self._session.one("SELECT value FROM counters WHERE name = ?", (name,))
        return 0 if row is None else row[0]

    # documents
    def guard(self, mac: RecordMac) -> None:
        """Write every row with its keyed hash from now on, and refuse rows of another one."""
        self._drop_copies()
        self._mac = mac

    def put(self, record: Document) -> None:
        """Insert or replace the record."""
        self._session.check_writes()
        kind = type(record)
        rows = DOCUMENTS[kind]
        self._note_change(kind)
        row = rows.pack(record)
        row.append(None if self._mac is None else self._mac(*rows.message(row), make=True))
        if not self._replace(rows, row, "id = ?", (record.id,)):
            self._insert(rows, [row])

    def get(self, kind: type[D], record_id: str) -> D | None:
        """Return the record of that class and id."""
        return self._find(kind, "id", record_id)

    def delete(self, kind: type[D], record_id: str) -> bool:
        """Remove the record, overwriting what it held."""
        self._session.check_writes()
        rows = DOCUMENTS[kind]
        if not self._erase(rows, "id = ?", (record_id,)):
            return False
        self._note_change(kind)
        return True

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        """Return a tenant's records of that class in order, after a cursor."""
        rows = DOCUMENTS[kind]
        if rows is DOCUMENTS[Tenant]:
            own = self.get(kind, tenant_id)
            return [] if own is None or after is not None else [own][:size]
        place = self._place(rows.table, tenant_id, after)
        if place is None:
            return []
        found = self._session.all(
            f"SELECT {rows.columns} FROM {rows.table} WHERE tenant_id = ?"
            " AND (created_at_ns, id) > (?, ?) ORDER BY created_at_ns, id LIMIT ?",
            (tenant_id, place[0], place[1], -1 if size is None else size),
        )
        return [self._opened(rows, row) for row in found]

    def tenants(self) -> Sequence[Tenant]:
        """Return all tenants in order."""
        rows = DOCUMENTS[Tenant]
        found = self._session.all(
            f"SELECT {rows.columns} FROM {rows.table} ORDER BY created_at_ns, id"
        )
        return [self._opened(rows, row) for row in found]

    def key_by_hash(self, text_hash: bytes) -> Key | None:
        """Return the API key of that text hash."""
        return self._find(Key, "text_hash", text_hash)

    def proxy_by_hash(self, key_hash: bytes) -> Proxy | None:
        """Return the proxy of that proxy-key hash."""
        return self._find(Proxy, "key_hash", key_hash)

    def proxy_by_host(self, host: str) -> Proxy | None:
        """Return the proxy of that custom hostname."""
        return self._find(Proxy, "host", host)

    def documents_version(self) -> int | None:
        """Return a number that changes whenever a document changes; None when unknown."""
        session = self._session
        with session.lock:
            if not session.is_open and session.newest() != self._version:
                return None  # another process has committed something
            return self._kept_version

    def _find(self, kind: type[D], column: str, value: str | bytes) -> D | None:
        """Return the record that alone has that value in a unique column."""
        self._session.check_reads()
        name = (kind, column, value)
        kept = self._kept.get(name)
        if kept is not None:
            return cast("D", kept)
        rows = DOCUMENTS[kind]
        row = self._session.one(
            f"SELECT {rows.columns} FROM {rows.table} WHERE {column} = ?", (value,)
        )
        if row is None:
            return None
        record: D = self._opened(rows, row)
        if kind not in UNCACHED:
            if len(self._kept) >= _KEPT_LIMIT:
                self._kept.clear()
            self._kept[name] = record
        return record

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

    def _drop_copies(self) -> None:
        self._kept.clear()
        self._kept_version += 1

    def _note_change(self, kind: type) -> None:
        """Forget what a change of such a record makes stale, here and in other processes."""
        if kind in _DUE:
            self._knows_deadline = False
        if kind not in UNCACHED:
            self._drop_copies()
            if not self._is_changed:
                self._is_changed = True
                self._session.run(_COUNT, ("documents", 1))
                self._changes_known += 1

    # rows and their sealed cells
    def _put_cells(self, sealed: Sequence[bytes]) -> Sequence[int]:
        """Write ciphertexts into slots, free ones of their size first, and return the numbers."""
        if not sealed:
            return []
        session, cells = self._session, make_cells(sealed)
        free: dict[int, list[int]] = {}
        for size_bytes in set(map(len, cells)):
            found = session.all(_FREE_SLOTS, (size_bytes, len(cells)))
            free[size_bytes] = [slot for (slot,) in reversed(found)]
        last: int | None = None
        slots, reused, fresh = [], [], []
        for cell in cells:
            if free[len(cell)]:
                slot = free[len(cell)].pop()
                reused.append((cell, slot))
            elif last is None:
                last = session.run("INSERT INTO sealed (cell) VALUES (?)", (cell,)).lastrowid
                assert last is not None, "an insert gives a row id"
                slot = last
            else:
                slot = last = last + 1
                fresh.append((cell, slot))
            slots.append(slot)
        if fresh:
            session.many("INSERT INTO sealed (cell, slot) VALUES (?, ?)", fresh)
        if reused:
            session.many(_TAKE_SLOT, reused)
            session.many("UPDATE sealed SET cell = ? WHERE slot = ?", reused)
        return slots

    def _change_cell(self, slot: int | None, sealed: bytes | None) -> int | None:
        """Let a slot hold another ciphertext, or none; return the slot that holds it now."""
        if slot is None:
            return None if sealed is None else self._put_cells([sealed])[0]
        if sealed is not None:
            held = self._session.one("SELECT cell FROM sealed WHERE slot = ?", (slot,))[0]
            cell = make_cell(sealed)
            if held == cell:
                return slot
            if len(held) == len(cell):
                self._session.erases()
                self._session.run("UPDATE sealed SET cell = ? WHERE slot = ?", (cell, slot))
                return slot
        self._erase_cells([slot])
        return None if sealed is None else self._put_cells([sealed])[0]

    def _erase_cells(self, slots: Sequence[int]) -> None:
        """Overwrite slots with zeros, to be used again."""
        if not slots:
            return
        self._session.erases()
        numbers = [(slot,) for slot in slots]
        self._session.many(
            "UPDATE sealed SET cell = zeroblob(length(cell)) WHERE slot = ?", numbers
        )
        self._session.many(
            "INSERT INTO free_slots SELECT length(cell), slot FROM sealed WHERE slot = ?", numbers
        )

    def _insert(self, rows: Rows[Any], packed: Sequence[MutableSequence[Any]]) -> None:
        """Insert packed rows, with their sealed bytes in new slots."""
        places = [(row, at) for row in packed for at in rows.sealed if row[at] is not None]
        slots = self._put_cells([row[at] for row, at in places])
        for (row, at), slot in zip(places, slots, strict=True):
            row[at] = slot
        self._session.many(rows.insert, packed)

    def _replace(
        self, rows: Rows[Any], row: Sequence[Any], which: str, values: Sequence[str]
    ) -> bool:
        """Replace a row, overwriting what it held; False when there is none."""
        old = self._slots_of(rows, which, values)
        if old is None:
            return False
        self._session.erases()
        placed = [*row]
        for at, slot in zip(rows.sealed, old, strict=True):
            placed[at] = self._change_cell(slot, placed[at])
        self._session.run(
            f"UPDATE {rows.table} SET {rows.assign} WHERE {which}", [*placed, *values]
        )
        return True

    def _erase(self, rows: Rows[Any], which: str, values: Sequence[str]) -> bool:
        """Remove a row, overwriting what it held; False when there is none."""
        old = self._slots_of(rows, which, values)
        if old is None:
            return False
        self._session.erases()
        self._erase_cells([slot for slot in old if slot is not None])
        self._session.run(f"DELETE FROM {rows.table} WHERE {which}", values)
        return True

    def _slots_of(
        self, rows: Rows[Any], which: str, values: Sequence[str]
    ) -> Sequence[int | None] | None:
        """Return the slots of a row's sealed fields, None when there is no such row."""
        columns = ", ".join(["id", *rows.sealed_names])
        row = self._session.one(f"SELECT {columns} FROM {rows.table} WHERE {which}", values)
        return None if row is None else row[1:]

    def _place(self, table: str, tenant_id: str, after: Cursor | None) -> tuple[int, str] | None:
        """Return where a list goes on; None after a record that is gone, known by its id alone."""
        if after is None:
            return -1, ""
        at_ns, record_id = cursor_place(after)
        row = self._session.one(
            f"SELECT created_at_ns FROM {table} WHERE {_BY_ID}", (tenant_id, record_id)
        )
        if row is not None:
            at_ns = row[0]
        return None if at_ns is None else (at_ns, record_id)

    # tokens
    def add_tokens(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens."""
        self._insert(TOKENS, TOKENS.pack_all(tokens))
        self._session.many(_ADD_TERM, _term_rows(tokens))
        added: dict[str, int] = {}
        for token in tokens:
            added[token.tenant_id] = added.get(token.tenant_id, 0) + 1
            if token.cvc_until_ns is not None:
                self._knows_deadline = False
        for tenant_id, number in added.items():
            self._session.run(_COUNT, (_tokens_of(tenant_id), number))

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""
        row = self._session.one(f"{_SELECT} WHERE {_BY_ID}", (tenant_id, token_id))
        return None if row is None else TOKENS.unpack(row)

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest token of that hash (D-DEDUP-KEY)."""
        row = self._session.one(
            _SELECT + " WHERE tenant_id = ? AND dedup_hash = ? ORDER BY created_at_ns, id LIMIT 1",
            (tenant_id, dedup_hash),
        )
        return None if row is None else TOKENS.unpack(row)

    def update_token(self, token: Token) -> None:
        """Replace the token of the same id, overwriting what it held."""
        old = self.token(token.tenant_id, token.id)
        if old is None:
            raise StoreError("a token that is updated must exist; it does not")
        assert old.created_at_ns == token.created_at_ns, "a token's creation never changes"
        self._knows_deadline = False
        self._replace(TOKENS, TOKENS.pack(token), _BY_ID, (token.tenant_id, token.id))
        before, after = set(_term_rows([old])), set(_term_rows([token]))
        self._session.many(_DROP_TERM, list(before - after))
        self._session.many(_ADD_TERM, list(after - before))

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token, overwriting what it held."""
        token = self.token(tenant_id, token_id)
        if token is None:
            return False
        self._knows_deadline = False
        self._erase(TOKENS, _BY_ID, (tenant_id, token_id))
        self._session.many(_DROP_TERM, _term_rows([token]))
        self._session.run(_COUNT, (_tokens_of(tenant_id), -1))
        return True

    def find_tokens(
        self, tenant_id: str, chosen: TokenFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order, after a cursor."""
        place = self._place("tokens", tenant_id, after)
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

    def count_tokens(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""
        return self._counted(_tokens_of(tenant_id))

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
    ) -> Sequence[sqlite3.Cursor]:
        if not unions:
            return [self._session.walk(_WALK, (tenant_id, *place))]
        narrowest = unions[0]
        if len(unions) > 1:
            narrowest = min(unions, key=lambda union: self._width(tenant_id, union))
        return [self._session.walk(_WALK_TERM, (tenant_id, term, *place)) for term in narrowest]

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

    # logs
    def add_log(self, entry: LogEntry) -> None:
        """Append a log entry."""
        self._session.run(LOGS.insert, astuple(entry))

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        place = (-1, -1) if after is None else self._log_place(tenant_id, after)
        if place is None:
            return []
        index, tests, values = _log_tests(chosen)
        found = self._session.all(
            f"SELECT {LOGS.columns} FROM logs INDEXED BY {index}"
            f" WHERE tenant_id = ? AND (at_ns, seq) > (?, ?){tests} ORDER BY at_ns, seq LIMIT ?",
            (tenant_id, *place, *values, size),
        )
        return [LOGS.unpack(row) for row in found]

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        """Erase a tenant's entries older than `before_ns`, `size` at most (QUO-LOG)."""
        return self._session.run(
            "DELETE FROM logs WHERE seq IN"
            " (SELECT seq FROM logs WHERE tenant_id = ? AND at_ns < ? LIMIT ?)",
            (tenant_id, before_ns, -1 if size is None else size),
        ).rowcount

    def _log_place(self, tenant_id: str, after: Cursor) -> tuple[int, int] | None:
        at_ns, entry_id = cursor_place(after)
        row = self._session.one(
            f"SELECT at_ns, seq FROM logs WHERE {_BY_ID}", (tenant_id, entry_id)
        )
        if row is not None:
            return row[0], row[1]
        # It expired, and with it all entries of its instant.
        return None if at_ns is None else (at_ns, _LAST)

    # retention
    def next_deadline_ns(self) -> int | None:
        """Return the earliest deadline, of this process's or another's writing."""
        with self._session.lock:
            if not self._session.is_open:
                if self._knows_deadline and self._session.newest() == self._version:
                    return self._deadline_ns
                with self._reading:
                    return self.next_deadline_ns()
            if not self._knows_deadline:
                found = [
                    self._session.one(f"SELECT min(until_ns) FROM {DOCUMENTS[kind].table}")[0]
                    for kind in _DUE
                ]
                found += self._session.one(
                    "SELECT min(cvc_until_ns) FROM tokens WHERE cvc_until_ns IS NOT NULL"
                )
                self._deadline_ns = min((at for at in found if at is not None), default=None)
                self._knows_deadline = True
            return self._deadline_ns

    def is_due(self, now_ns: int) -> bool:
        """Return whether a deadline has come."""
        deadline_ns = self.next_deadline_ns()
        return deadline_ns is not None and deadline_ns <= now_ns

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = bare, *, size: int | None = None
    ) -> int:
        """Erase what has expired (QUO-CVC, QUO-INTENT)."""
        self._session.check_writes()
        self._knows_deadline = False
        most = -1 if size is None else size
        erased = self._expire_cvcs(now_ns, without_cvc, most)
        for kind in _DUE:
            rows = DOCUMENTS[kind]
            (sealed,) = rows.sealed_names
            due = self._session.all(
                f"SELECT id, {sealed} FROM {rows.table} WHERE until_ns <= ? LIMIT ?",
                (now_ns, most),
            )
            self._erase_cells([slot for _, slot in due])
            gone = [(record_id,) for record_id, _ in due]
            self._session.many(f"DELETE FROM {rows.table} WHERE id = ?", gone)
            erased += len(due)
        return erased

    def _expire_cvcs(self, now_ns: int, without_cvc: WithoutCvc, size: int) -> int:
        """Erase every cvc whose deadline is at or before `now_ns` (QUO-CVC).

        A token with an expression that may use its cvc (D-CVC-DERIVE) is rewritten as a whole; of
        every other token two columns are cleared.
        """
        derived = self._session.all(
            f"{_SELECT} WHERE cvc_until_ns <= ? AND {_DERIVED} LIMIT ?", (now_ns, size)
        )
        for row in derived:
            self.update_token(without_cvc(TOKENS.unpack(row)))
        due = self._session.all(
            "SELECT seq, sealed_cvc FROM tokens"
            f" WHERE cvc_until_ns <= ? AND NOT {_DERIVED} LIMIT ?",
            (now_ns, size),
        )
        self._erase_cells([slot for _, slot in due if slot is not None])
        self._session.many(
            "UPDATE tokens SET sealed_cvc = NULL, cvc_until_ns = NULL WHERE seq = ?",
            [(number,) for number, _ in due],
        )
        return len(derived) + len(due)

    def latest_ns(self) -> int:
        """Return the latest instant that was given, in whichever process."""
        return self._counted("latest_ns")

    def put_latest_ns(self, steady_ns: int) -> None:
        """Remember an instant."""
        self._session.run(
            "INSERT INTO counters VALUES ('latest_ns', ?1)"
            " ON CONFLICT (name) DO UPDATE SET value = max(value, ?1)",
            (steady_ns,),
        )

    # secrets
    def secret(self, name: str) -> bytes | None:
        """Return the wrapped secret of that name."""
        return self._secrets("WHERE name = ?", (name,)).get(name)

    def put_secret(self, name: str, wrapped: bytes) -> None:
        """Insert or replace a wrapped secret, overwriting the one before."""
        row = self._session.one("SELECT sealed FROM secrets WHERE name = ?", (name,))
        slot = self._change_cell(None if row is None else row[0], wrapped)
        self._session.run(
            "INSERT INTO secrets VALUES (?1, ?2) ON CONFLICT (name) DO UPDATE SET sealed = ?2",
            (name, slot),
        )

    def secrets(self) -> Mapping[str, bytes]:
        """Return all wrapped secrets by name."""
        return self._secrets("", ())

    def _secrets(self, which: str, values: Sequence[str]) -> dict[str, bytes]:
        found = self._session.all(f"{_SECRETS} {which}", values)
        return {name: open_cell(cell) or b"" for name, cell in found}

    # work
    def open_work(self, entry: LogEntry) -> None:
        """Remember that an operation has begun."""
        self._session.check_writes()
        self._presence.show()
        self._session.run(_OPEN_WORK, (*astuple(entry), self._presence.owner))

    def close_work(self, work_id: str) -> None:
        """Forget it."""
        self._session.run("DELETE FROM work WHERE id = ?", (work_id,))

    def unfinished_work(self) -> Sequence[LogEntry]:
        """Return what never finished, in order of (at_ns, id)."""
        return [LogEntry(*row[:-1]) for row in self._session.all(_OPENED_WORK)]

    def abandoned_work(self) -> Sequence[LogEntry]:
        """Return what nobody will finish, in the same order; remove the locks of closed stores."""
        self._session.check_writes()
        present = self._presence.present()
        opened = self._session.all(_OPENED_WORK)
        return [LogEntry(*row[:-1]) for row in opened if row[-1] not in present]
