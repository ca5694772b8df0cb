"""`SqliteStore`: the store of a server, one file that survives a kill at any instant.

It combines the tables behind the protocol and caches between transactions what each would
otherwise read from the file. The cache is valid until `PRAGMA data_version` changes, as it does
with each commit of another connection, and is dropped on a rollback.

`WorkTable` holds the unfinished operations, and which open store runs each. Several processes may
use one file, so the rows alone do not show whether an operation is abandoned or still running
elsewhere. So each store that begins work locks a file of its own, `<store>-owner-<id>`, while it is
open, and its rows name that file. The system releases the lock when the process ends in any way; a
process that can take the lock knows that its owner is gone and that the work will not be finished.
This needs no clock, process number or heartbeat.

Lock files are made, tested and removed inside write transactions, which exclude each other in all
processes, so that no process finds a lock file that is made but not yet locked.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import astuple

from engine.errors import StoreError, wrong_type
from engine.model import Intent, KeptAnswer, Key, LogEntry, Proxy, Tenant, Token
from engine.store.protocol import (
    Cursor,
    D,
    Document,
    LogFilter,
    RecordMac,
    TokenFilter,
    Transactional,
    WithoutCvc,
    bare,
)
from engine.store.sqlite_documents import DocumentTables, LogTable, TokenTable
from engine.store.sqlite_file import Session
from engine.store.sqlite_schema import Slots, open_cell

__all__ = ["SqliteStore", "WorkTable"]


# ruff: noqa: S608  # reason: names of columns are constants here, values are bound


if sys.platform != "win32":  # there a file has one process at a time
    import fcntl


_COLUMNS: Final = ", ".join([*LogEntry.__struct_fields__, "owner"])
_MARKS: Final = ", ".join("?" * (len(LogEntry.__struct_fields__) + 1))
_INSERT: Final = f"INSERT INTO work ({_COLUMNS}) VALUES ({_MARKS})"
_SELECT: Final = f"SELECT {_COLUMNS} FROM work ORDER BY at_ns, id"
_ID: Final = re.compile("[0-9a-f]{16}")
_MODE: Final = 0o600
_NO_LOCK: Final = -1


class WorkTable:
    """The work of one file, and the lock that shows that this store is open."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._owner = os.urandom(8).hex()
        self._lock_number = _NO_LOCK

    def open(self, entry: LogEntry) -> None:
        """Remember that an operation has begun, here."""
        self._show_presence()
        self._session.run(_INSERT, (*astuple(entry), self._owner))

    def close(self, work_id: str) -> None:
        """Forget it."""
        self._session.run("DELETE FROM work WHERE id = ?", (work_id,))

    def unfinished(self) -> Sequence[LogEntry]:
        """Return what never finished, in order of (at_ns, id)."""
        return [LogEntry(*row[:-1]) for row in self._session.all(_SELECT)]

    def abandoned(self) -> Sequence[LogEntry]:
        """Return abandoned work, in the same order; remove the locks of closed stores."""
        present = {self._owner, *self._others()}
        return [LogEntry(*row[:-1]) for row in self._session.all(_SELECT) if row[-1] not in present]

    def leave(self) -> None:
        """Release the lock: work that is unfinished now is abandoned."""
        if self._lock_number != _NO_LOCK:
            self._lock_file(self._owner).unlink(missing_ok=True)
            os.close(self._lock_number)
            self._lock_number = _NO_LOCK

    def _lock_file(self, owner: str) -> Path:
        path = self._session.path
        return path.with_name(f"{path.name}-owner-{owner}")

    def _show_presence(self) -> None:
        if sys.platform == "win32" or self._lock_number != _NO_LOCK:
            return
        try:
            number = os.open(self._lock_file(self._owner), os.O_CREAT | os.O_RDWR, _MODE)
            fcntl.flock(number, fcntl.LOCK_EX)
        except OSError as error:
            raise StoreError(f"the store's lock file failed: {error.strerror}") from error
        self._lock_number = number

    def _others(self) -> Sequence[str]:
        """Return the other owners that are open; remove the rest."""
        if sys.platform == "win32":
            return []
        owners = []
        prefix = self._lock_file("").name
        for file in self._session.path.parent.iterdir():
            owner = file.name.removeprefix(prefix)
            if owner == self._owner or not (file.name.startswith(prefix) and _ID.fullmatch(owner)):
                continue  # what is not one of ours is never touched
            if _is_locked(file):
                owners.append(owner)
            else:
                file.unlink(missing_ok=True)
        return owners


def _is_locked(file: Path) -> bool:
    """Return whether the store that made the file is still open."""
    try:
        number = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:  # another user's file: assume that its store is open
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False


_SECRETS: Final = "SELECT name, (SELECT cell FROM sealed WHERE slot = secrets.sealed) FROM secrets"


class SqliteStore(Transactional):
    """The store in one SQLite file (write-ahead log, full synchronisation, mode 0600).

    path: the file; made when there is none. `-wal`, `-shm` and `-lock` stand beside it, and an
        `-owner-…` for each store that has begun work (`engine.store.sqlite`).
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
        self._slots = Slots(self._session)
        self._documents = DocumentTables(self._session, self._slots)
        self._tokens = TokenTable(self._session, self._slots)
        self._logs = LogTable(self._session)
        self._work = WorkTable(self._session)
        self._version = -1
        self._deadline_ns: int | None = None
        self._knows_deadline = False

    def __repr__(self) -> str:
        return f"SqliteStore({str(self._session.path)!r})"

    # transactions
    def begin(self, *, write: bool = True, wait: bool = True) -> None:
        """Open a transaction, when the one before it has ended, in whichever process."""
        self._session.begin(write=write, wait=wait)
        try:
            if self._session.version != self._version:
                self._documents.refresh()
                self._knows_deadline = False
                self._version = self._session.version
        except BaseException:
            self._session.rollback()
            raise

    def commit(self) -> None:
        """Make what the transaction did last, whatever happens to the machine."""
        try:
            self._session.commit()
        except BaseException:
            self._forget()
            raise
        self._documents.committed()

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
            self._session.run(
                "INSERT INTO counters VALUES ('probes', 1)"
                " ON CONFLICT (name) DO UPDATE SET value = value + 1"
            )
        with self._reading:
            self._session.one("SELECT value FROM counters WHERE name = 'probes'")
            self.tenants()

    def close(self) -> None:
        """Close the file; what is unfinished is abandoned from now on."""
        self._work.leave()
        self._session.close()

    def refuse(self) -> None:
        """Close a file that `check` found damaged, and leave it as it was."""
        self._session.refuse()

    def _forget(self) -> None:
        self._documents.undone()
        self._knows_deadline = False

    def _check_reads(self) -> None:
        assert self._session.is_open, "a read must stand in a transaction"

    def _check_writes(self) -> None:
        assert self._session.writes, "a write must stand in a transaction that writes"

    def guard(self, mac: RecordMac) -> None:
        """Authenticate documents from now on."""
        self._documents.guard(mac)

    # documents
    def put(self, record: Document) -> None:
        """Insert or replace the record."""
        self._check_writes()
        if isinstance(record, Intent | KeptAnswer):
            self._knows_deadline = False
        self._documents.put(record)

    def get(self, kind: type[D], record_id: str) -> D | None:
        """Return the record of that class and id."""
        self._check_reads()
        return self._documents.get(kind, record_id)

    def delete(self, kind: type[D], record_id: str) -> bool:
        """Remove the record, overwriting what it held."""
        self._check_writes()
        if kind in {Intent, KeptAnswer}:
            self._knows_deadline = False
        return self._documents.delete(kind, record_id)

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        """Return a tenant's records of that class in order, after a cursor."""
        self._check_reads()
        return self._documents.listed(kind, tenant_id, after, size)

    def tenants(self) -> Sequence[Tenant]:
        """Return all tenants in order."""
        self._check_reads()
        return self._documents.tenants()

    def key_by_hash(self, text_hash: bytes) -> Key | None:
        """Return the API key of that text hash."""
        self._check_reads()
        return self._documents.named(Key, "text_hash", text_hash)

    def proxy_by_hash(self, key_hash: bytes) -> Proxy | None:
        """Return the proxy of that proxy-key hash."""
        self._check_reads()
        return self._documents.named(Proxy, "key_hash", key_hash) if key_hash else None

    def proxy_by_host(self, host: str) -> Proxy | None:
        """Return the proxy of that custom hostname."""
        self._check_reads()
        return self._documents.named(Proxy, "host", host) if host else None

    def documents_version(self) -> int | None:
        """Return a number that changes whenever a document changes; None when unknown."""
        with self._session.lock:
            if not self._session.is_open and self._session.newest() != self._version:
                return None  # another process has committed something
            return self._documents.version

    # tokens
    def add_tokens(self, tokens: Sequence[Token]) -> None:
        """Insert new tokens."""
        self._check_writes()
        self._tokens.add(tokens)
        if any(token.cvc_until_ns is not None for token in tokens):
            self._knows_deadline = False

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        """Return a tenant's token."""
        self._check_reads()
        return self._tokens.get(tenant_id, token_id)

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        """Return the oldest token of that hash (D-DEDUP-KEY)."""
        self._check_reads()
        return self._tokens.oldest(tenant_id, dedup_hash)

    def update_token(self, token: Token) -> None:
        """Replace the token of the same id, overwriting what it held."""
        self._check_writes()
        self._knows_deadline = False
        self._tokens.update(token)

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        """Remove a token, overwriting what it held."""
        self._check_writes()
        self._knows_deadline = False
        return self._tokens.delete(tenant_id, token_id)

    def find_tokens(
        self, tenant_id: str, chosen: TokenFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[Token]:
        """Return at most `size` chosen tokens in order, after a cursor."""
        self._check_reads()
        return self._tokens.find(tenant_id, chosen, after, size)

    def tokens_with_cvc(self, tenant_id: str) -> Sequence[Token]:
        """Return a tenant's tokens that hold a cvc."""
        self._check_reads()
        return self._tokens.with_cvc(tenant_id)

    def count_tokens(self, tenant_id: str) -> int:
        """Return how many tokens the tenant holds."""
        self._check_reads()
        return self._tokens.count(tenant_id)

    # logs
    def add_log(self, entry: LogEntry) -> None:
        """Append a log entry."""
        self._check_writes()
        self._logs.add(entry)

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        self._check_reads()
        return self._logs.find(tenant_id, chosen, after, size)

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        """Erase a tenant's entries older than `before_ns`, `size` at most (QUO-LOG)."""
        self._check_writes()
        return self._logs.expire(tenant_id, before_ns, size)

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
                found = (self._tokens.next_cvc_ns(), self._documents.next_due_ns())
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
        self._check_writes()
        self._knows_deadline = False
        most = -1 if size is None else size
        return self._tokens.expire(now_ns, without_cvc, most) + self._documents.expire(now_ns, most)

    def latest_ns(self) -> int:
        """Return the latest instant that was given, in whichever process."""
        self._check_reads()
        row = self._session.one("SELECT value FROM counters WHERE name = 'latest_ns'")
        return 0 if row is None else row[0]

    def put_latest_ns(self, steady_ns: int) -> None:
        """Remember an instant."""
        self._check_writes()
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
        self._check_writes()
        row = self._session.one("SELECT sealed FROM secrets WHERE name = ?", (name,))
        slot = self._slots.change(None if row is None else row[0], wrapped)
        self._session.run(
            "INSERT INTO secrets VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET sealed = ?",
            (name, slot, slot),
        )

    def secrets(self) -> Mapping[str, bytes]:
        """Return all wrapped secrets by name."""
        return self._secrets("", ())

    def _secrets(self, which: str, values: Sequence[str]) -> dict[str, bytes]:
        self._check_reads()
        found = self._session.all(f"{_SECRETS} {which}", values)
        return {name: open_cell(cell) or b"" for name, cell in found}

    # work
    def open_work(self, entry: LogEntry) -> None:
        """Remember that an operation has begun."""
        self._check_writes()
        self._work.open(entry)

    def close_work(self, work_id: str) -> None:
        """Forget it."""
        self._check_writes()
        self._work.close(work_id)

    def unfinished_work(self) -> Sequence[LogEntry]:
        """Return what never finished, in order of (at_ns, id)."""
        self._check_reads()
        return self._work.unfinished()

    def abandoned_work(self) -> Sequence[LogEntry]:
        """Return what nobody will finish, in the same order."""
        self._check_writes()
        return self._work.abandoned()
