"""One SQLite file: its tables, its one owner, how it is opened, checked and copied.

A file is checked before anything is changed: a refused one stays as it was, its mode and
neighbouring files included. Its owner holds a lock of the system on it, which ends with the
process; it is of a kind that SQLite does not use.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from engine.errors import StoreBusy, StoreError, reason_of

if sys.platform != "win32":
    import fcntl

_MODE: Final = 0o600
_BUSY_TIMEOUT_S: Final = 0.25

APPLICATION_ID: Final = 0x544F4C47
"""`TOLG`: the `PRAGMA application_id` of our files."""

VERSION: Final = 11
"""The `PRAGMA user_version`: the version of a file's tables."""

_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "cache_size = -32768",
    "trusted_schema = OFF",
)
SCHEMA: Final = f"""
CREATE TABLE state (name TEXT PRIMARY KEY, value INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE secrets (name TEXT PRIMARY KEY, wrapped BLOB NOT NULL);
CREATE TABLE probes (bytes BLOB);
-- Rows of documents and tokens are appended; what is looked up at random stands in the indices.
CREATE TABLE documents (
    seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, id TEXT NOT NULL, tenant_id TEXT NOT NULL,
    created_at_ns INTEGER, until_ns INTEGER, record BLOB NOT NULL
);
CREATE UNIQUE INDEX documents_by_id ON documents (kind, id);
CREATE INDEX documents_listed ON documents (kind, tenant_id, created_at_ns, id);
CREATE INDEX documents_due ON documents (until_ns) WHERE until_ns IS NOT NULL;
CREATE TABLE names (name BLOB PRIMARY KEY, kind TEXT, id TEXT) WITHOUT ROWID;
CREATE INDEX names_of ON names (kind, id);
CREATE TABLE answers_of (
    entity_id TEXT, answer_id TEXT, PRIMARY KEY (entity_id, answer_id)
) WITHOUT ROWID;
CREATE INDEX entities_of ON answers_of (answer_id);
CREATE TABLE tokens (
    seq INTEGER PRIMARY KEY, id TEXT NOT NULL, tenant_id TEXT NOT NULL, created_at_ns INTEGER,
    dedup_hash BLOB, cvc_until_ns INTEGER, record BLOB NOT NULL,
    sealed_data BLOB NOT NULL -- apart and last: a list reads none of it
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
CREATE TABLE work (
    id TEXT PRIMARY KEY, tenant_id TEXT, at_ns INTEGER, operation TEXT, entity_type TEXT,
    entity_id TEXT, actor_id TEXT, status INTEGER
);
PRAGMA application_id = {APPLICATION_ID};
PRAGMA user_version = {VERSION}""".split(";\n")
"""The statements that make an empty file a store, in one transaction."""


def store_error(error: Exception) -> StoreError:
    """Convert the error to ours; SQLite's messages name tables and columns, never values."""
    if isinstance(error, UnicodeEncodeError):
        return StoreError("a record's texts must be Unicode; one of them holds a surrogate")
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"a record must be new where it has to be: {error}")
    if getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY:
        return StoreBusy(f"the store file failed: {error}")
    if "Could not decode" in str(error):  # the library's words quote the text
        return StoreError("the store is damaged: one of its texts is not UTF-8")
    return StoreError(f"the store file failed: {error}")


class StoreFile:
    """The file of a store, owned by this process until `close`.

    path: made, with mode 0600, when there is none. checked_bytes: up to which size a file is
    checked for damage.

    Raises `StoreError` when it is no store, of another version, damaged, not writable, or owned.
    """

    def __init__(self, path: Path, checked_bytes: int = 0) -> None:
        self.path = path
        self._name = str(path)
        try:
            is_new = not path.exists()
            if not is_new and not path.is_file():
                raise _not_whole(path, "it is no regular file")
            if not is_new and _identity(self._name) in _OWNED_FILES:
                raise _owned(path, "store")  # to open and close it would drop SQLite's own locks
            flags = os.O_CREAT | os.O_EXCL if is_new else 0
            self._owner = os.open(path, flags | os.O_RDWR, _MODE)
        except OSError as error:
            raise _not_made(path, error) from error
        except ValueError:  # a NUL, or a surrogate that stands for no byte
            raise StoreError(
                f"store = {str(path)!a} must be a file's path; no file can have that name"
            ) from None
        try:
            lock_or_refuse(self._owner, path, "store")
            self._identity = _identity(self._name)
            if not is_new:
                check_is_store(path, checked_bytes)
            self.connection = self._connect()
            _OWNED_FILES.add(self._identity)
        except BaseException:
            os.close(self._owner)
            if is_new:
                path.unlink(missing_ok=True)
            raise

    def _connect(self) -> sqlite3.Connection:
        """Return a connection, after the tables of an empty file were made."""
        connection = sqlite3.connect(
            self.path,
            timeout=_BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            is_empty = _check_kind(connection.execute, self.path)
            for pragma in _PRAGMAS:
                connection.execute(f"PRAGMA {pragma}").fetchall()
            connection.execute("BEGIN IMMEDIATE")
            for statement in SCHEMA if is_empty else ():
                connection.execute(statement)
            connection.execute("COMMIT")
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            if self.path.stat().st_mode & 0o777 & ~_MODE:
                self.path.chmod(_MODE)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            connection.close()
            raise _not_whole(self.path, error) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def check_identity(self) -> None:
        """Raise `StoreError` where the file is no longer the one that was opened.

        What is written to a file that was removed or replaced is lost with this process.
        """
        try:
            is_same = _identity(self._name) == self._identity
        except OSError:
            is_same = False
        if not is_same:
            raise StoreError(f"store = {self.path} was removed or replaced; start again with it")

    def close(self) -> None:
        """Close the file, which ends the ownership."""
        self.connection.close()
        if self._owner >= 0:
            _OWNED_FILES.discard(self._identity)
            os.close(self._owner)
            self._owner = -1


def lock_or_refuse(number: int, path: Path, thing: str) -> None:
    """Lock an open file for this process; raises `StoreError` while another one has it."""
    if sys.platform == "win32":
        return
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise _owned(path, thing) from None


def _owned(path: Path, thing: str) -> StoreError:
    return StoreError(f"{thing} = {path} must have one owner; stop the other one first")


_OWNED_FILES: Final[set[tuple[int, int]]] = set()
"""The files that this process owns, by their identity."""


def _identity(path: str) -> tuple[int, int]:
    """Return the identity of a file, the same for all its names."""
    status = os.stat(path)  # noqa: PTH116 # reason: runs at every write; Path.stat is slower
    return status.st_dev, status.st_ino


def check_is_store(path: Path, checked_bytes: int = 0) -> None:
    """Raise `StoreError` for a file that is no store of ours, or a damaged one; change nothing."""
    # A file with no log beside it holds everything itself, and is read without making one.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    uri = f"{path.absolute().as_uri()}?{mode}"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as reader:
            _check_kind(reader.execute, path)
            damage = _damage(reader) if path.stat().st_size <= checked_bytes else None
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise _not_whole(path, error) from error
    if damage is not None:
        raise StoreError(f"store = {path} is damaged; restore a backup: {damage}")


def _check_kind(run: Callable[[str], sqlite3.Cursor], path: Path) -> bool:
    """Return whether a database is empty; raise `StoreError` when it is not ours."""
    is_empty: bool = run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
    application_id = run("PRAGMA application_id").fetchone()[0]
    version = run("PRAGMA user_version").fetchone()[0]
    if application_id != APPLICATION_ID and not (is_empty and application_id == 0):
        raise StoreError(
            f"store = {path} must be a Tollgate store; it is a database of another"
            " program, choose another path"
        )
    if application_id == APPLICATION_ID and version != VERSION:
        raise StoreError(
            f"store = {path} must have schema version {VERSION}; it has {version},"
            " open it with the Tollgate that wrote it"
        )
    return is_empty


_DAMAGED_PLACE: Final = re.compile(r"\bindex (\w+)$|^(?:Tree|Page) ([0-9]+)")


def _damage(reader: sqlite3.Connection) -> str | None:
    """Return the first damage that SQLite finds, with its table; None for a whole file.

    It takes about a second for each 100 MB. SQLite names rows by number and the index that lacks
    them, or the root page of a tree.
    """
    finding: str = reader.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if finding == "ok":
        return None
    finding = finding.rpartition("***\n")[2].partition("\n")[0]
    named = _DAMAGED_PLACE.search(finding)
    table = (
        named
        and reader.execute(
            "SELECT tbl_name FROM sqlite_master WHERE name = ? OR rootpage = ?", named.groups()
        ).fetchone()
    )
    return finding if not table else f"table {table[0]}: {finding}"


def back_up(source: str | Path, target: str | Path) -> int:
    """Write a copy of a store, whole as of one instant; returns its size in bytes.

    It is made under another name and appears when it is whole, checked and on the disk. The owner
    of the store goes on meanwhile. Raises `StoreError` where the source is no store or damaged, or
    the target exists or cannot be written.
    """
    source, target = Path(source), Path(target)
    check_is_store(source)
    part = target.with_name(f".{target.name}.part")
    try:
        number = os.open(part, os.O_CREAT | os.O_RDWR, _MODE)
    except OSError as error:
        raise StoreError(f"{part} must be a file that can be made: {reason_of(error)}") from error
    try:
        lock_or_refuse(number, part, "backup")
        try:
            os.ftruncate(number, 0)  # of a backup that was killed
            _copy(source, part)
            os.fsync(number)
            try:
                os.link(part, target)  # which, unlike a rename, replaces nothing
            except OSError as error:
                raise StoreError(f"{target} must be a file to make: {reason_of(error)}") from error
            return target.stat().st_size
        finally:
            for file in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm"))):
                file.unlink(missing_ok=True)
    finally:
        os.close(number)


def _copy(source: Path, part: Path) -> None:
    """Copy all pages, as one reader sees them, and check the copy."""
    try:
        with (
            contextlib.closing(sqlite3.connect(source, timeout=5)) as reader,
            contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy,
        ):
            reader.backup(copy)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            damage = _damage(copy)
    except sqlite3.Error as error:
        raise StoreError(f"store = {source} cannot be copied: {error}") from error
    if damage is not None:
        raise StoreError(f"store = {source} is damaged: {damage}")


def _not_made(path: Path, error: OSError) -> StoreError:
    return StoreError(
        f"store = {path} must be a file that can be made and written: {reason_of(error)}"
    )


def _not_whole(path: Path, error: object) -> StoreError:
    return StoreError(f"store = {path} must be a whole Tollgate store that can be written: {error}")
