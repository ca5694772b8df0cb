"""One SQLite file: open it, check it, lock it, run statements.

It knows transactions and no records. The writers of all processes take turns through a lock file,
so that they never compete inside SQLite. After a transaction that deleted something, the
write-ahead log is checkpointed into the file and emptied (`scrub`), because it still holds the old
pages. A reader in another process can prevent that for any time, so scrubbing does not wait for
readers: it is tried again later.

A file is checked before anything is changed: a refused one stays as it was, its mode and
neighbouring files included.
"""

from __future__ import annotations

import contextlib
import os
import re
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from engine.errors import StoreBusy, StoreError
from engine.store.sqlite_schema import APPLICATION_ID, SCHEMA, VERSION

if sys.platform != "win32":  # there SQLite's own lock and its busy timeout have to do
    import fcntl

_MODE: Final = 0o600
_POLL_S: Final = 0.005
_HEADER: Final = b"SQLite format 3\0"
_LOG_PAGES: Final = 10_000
"""The longest log when a timer checkpoints it; else SQLite does so at a tenth of that."""
_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "cache_size = -32768",
    "trusted_schema = OFF",
)


def _failed(error: Exception) -> StoreError:
    """Convert the error to ours; SQLite's messages name tables and columns, never values."""
    if isinstance(error, UnicodeEncodeError):
        return StoreError("a record's texts must be Unicode; one of them holds a surrogate")
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"a record must be new where it has to be: {error}")
    if _is_busy(error):
        return StoreBusy(f"the store file failed: {error}")
    if "Could not decode" in str(error):  # the library's words quote the text
        return StoreError("the store is damaged: one of its texts is not UTF-8")
    return StoreError(f"the store file failed: {error}")


def _reason(error: Exception) -> str:
    return (error.strerror or "").lower() if isinstance(error, OSError) else str(error)


def _is_busy(error: Exception) -> bool:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code == sqlite3.SQLITE_BUSY or isinstance(error, BlockingIOError)


class Session:
    """The connection of one process to one store file; one transaction after the other.

    path: the file; made, with mode 0600, when there is none.
    timeout_s: how long to wait for a lock that another program holds.
    scrubs: whether a commit that erased something scrubs; if not, the caller must call `scrub`.

    Raises `StoreError` when the file is no store, of another version, damaged or not writable.
    """

    def __init__(self, path: Path, *, timeout_s: float, scrubs: bool) -> None:
        self.path = path
        self._name = str(path)
        self.lock = threading.RLock()
        self.is_open = False
        self.writes = False
        self.version = -1
        self._timeout_s = timeout_s
        self._scrubs = scrubs
        self._scrubber: sqlite3.Connection | None = None
        self._scrubbing = threading.Lock()
        self._erased = False
        self._erasures = 1  # after a kill, the log may still hold deleted data
        self._scrubbed = 0
        self._turn = LockFile()  # at which the writers of all processes take turns
        self._made: list[Path] = []
        self._mode = _MODE
        try:
            self._open()
        except (OSError, sqlite3.Error) as error:
            self._leave_no_trace()
            raise StoreError(
                f"store = {path} must be a file that can be made and written: {_reason(error)}"
            ) from error
        except UnicodeDecodeError as error:  # a name in the file is not Unicode
            self._leave_no_trace()
            raise _not_whole(path, error) from error
        except ValueError:  # a NUL, or a surrogate that stands for no byte
            raise StoreError(
                f"store = {str(path)!a} must be a file's path; no file can have that name"
            ) from None
        self.identity = _identity(path)
        _OPEN[self.identity] = _OPEN.get(self.identity, 0) + 1
        try:
            self._prepare()
        except BaseException:
            self.close()
            self._leave_no_trace()
            raise

    def close(self) -> None:
        """Close the file; the session is not used afterwards."""
        with self._scrubbing, self.lock:
            assert not self.is_open, "a transaction is open"
            if self._scrubber is not None:
                self._scrubber.close()
            self._connection.close()
            self._turn.close()
            if self.identity in _OPEN:
                _OPEN[self.identity] -= 1

    def refuse(self) -> None:
        """Close a file that was refused, and leave it as it was."""
        self.close()
        self._leave_no_trace()
        if self._mode & ~_MODE:
            self.path.chmod(self._mode)

    # statements
    def check_reads(self) -> None:
        """Assert that a transaction is open."""
        assert self.is_open, "a read must stand in a transaction"

    def check_writes(self) -> None:
        """Assert that a transaction is open that writes."""
        assert self.writes, "a write must stand in a transaction that writes"

    def run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement that writes."""
        self.check_writes()
        try:
            return self._connection.execute(sql, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise _failed(error) from error

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement that writes for each row of values."""
        self.check_writes()
        if not rows:
            return
        try:
            self._connection.executemany(sql, rows)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise _failed(error) from error

    def walk(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Return a cursor over the rows that a statement selects, for the caller to close."""
        self.check_reads()
        try:
            return self._connection.execute(sql, values)
        except sqlite3.Error as error:
            raise _failed(error) from error

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows that a statement selects; none if a value is not valid Unicode."""
        try:
            return self.walk(sql, values).fetchall()
        except UnicodeEncodeError:
            return []
        except sqlite3.Error as error:
            raise _failed(error) from error

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:  # noqa: ANN401  # reason: a row, or None
        """Return the one row that a statement selects, None when there is none, as in `all`."""
        rows = self.all(sql, values)
        return rows[0] if rows else None

    def newest(self) -> int:
        """Return the version of the last commit by any process; in a transaction or not."""
        try:
            version: int = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except sqlite3.Error as error:
            raise _failed(error) from error
        return version

    def erases(self) -> None:
        """Mark this transaction as one that deletes data, which must be overwritten."""
        self._erased = True

    # transactions
    def begin(self, *, write: bool, wait: bool = True) -> None:
        """Open a transaction, when the one before it has ended, here and in other processes.

        wait: for other programs' locks; else raises `StoreBusy` at once.
        """
        until_s = 0.0
        while True:
            self.lock.acquire()
            if self.is_open:
                self.lock.release()
                raise AssertionError("a transaction is open in this thread; they do not nest")
            try:
                self._begin(write=write)
            except (OSError, sqlite3.Error) as error:
                self._leave()
                now_s = time.monotonic()
                until_s = until_s or now_s + self._timeout_s
                if not (wait and _is_busy(error) and now_s < until_s):
                    raise _failed(error) from error
            except BaseException:
                self._leave()
                raise
            else:
                self.is_open = True
                self.writes = write
                return
            time.sleep(_POLL_S)  # with no lock held: others may read meanwhile

    def _begin(self, *, write: bool) -> None:
        if write:
            self._check_identity()
            self._turn.take()
            self._connection.execute("BEGIN IMMEDIATE")
        else:
            self._connection.execute("BEGIN")
        # Asked inside, so that it says which state the transaction sees.
        self.version = self._connection.execute("PRAGMA data_version").fetchone()[0]

    def _check_identity(self) -> None:
        """Raise `StoreError` where the file is no longer the one that was opened.

        What is written to a file that was removed or replaced is lost with this process.
        """
        try:
            found: tuple[int, int] | None = _identity(self._name)
        except OSError:
            found = None
        if found != self.identity:
            raise StoreError(f"store = {self.path} was removed or replaced; start again with it")

    def check(self) -> str | None:
        """Return the first damage that is found, by table and row; None for a whole file.

        It takes about a second for each 100 MB, and has a connection of its own.
        """
        try:
            with contextlib.closing(self._connect()) as reader:
                said: str = reader.execute("PRAGMA integrity_check(1)").fetchone()[0]
                return None if said == "ok" else _damage(reader, said)
        except sqlite3.Error as error:
            return str(error)

    def commit(self) -> None:
        """Make the transaction last; when this raises it is undone."""
        assert self.is_open, "no transaction is open"
        try:
            self._connection.execute("COMMIT")
            self._erasures += self._erased
        except sqlite3.Error as error:
            raise _failed(error) from error
        finally:
            self._leave()
        if self._scrubs and self._scrubbed != self._erasures:
            self.scrub()

    def rollback(self) -> None:
        """Undo the transaction."""
        assert self.is_open, "no transaction is open"
        self._leave()

    def _leave(self) -> None:
        """End the transaction, undone when it is not committed, and let the next one in."""
        self.is_open = self.writes = self._erased = False
        try:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")
        except sqlite3.Error as error:
            raise _failed(error) from error
        finally:
            self._turn.give()
            self.lock.release()

    # scrubbing
    def scrub(self) -> bool:
        """Checkpoint the write-ahead log into the file and empty it (QUO-CVC: really gone).

        Returns whether nothing that was erased is left in it. It has a connection of its own, so
        that transactions go on meanwhile; only the last step, which is short, keeps writers out.
        """
        with self._scrubbing:
            erasures = self._erasures
            if self._scrubbed == erasures:
                return True
            try:
                if self._scrubber is None:
                    self._scrubber = self._connect()
                self._scrubber.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
                last = self._scrubber.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            except sqlite3.Error:
                return False  # what was committed stays so
            if last[0] != 0:
                return False  # another reader or writer is in the way
            self._scrubbed = erasures
            return True

    # opening
    def _open(self) -> None:
        """Open the file after checking that it may be a store of ours."""
        path = self.path
        exists = path.exists()
        if exists:
            _check_is_ours(path)
        lock_path = path.with_name(f"{path.name}-lock")
        self._made = [each for each in (path, lock_path) if not each.exists()]
        if not exists:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
        self._turn.open(lock_path)
        self._connection = self._connect()

    def _leave_no_trace(self) -> None:
        """Remove what was made for a file that is refused."""
        self._turn.close()
        for file in self._made:
            with contextlib.suppress(OSError):
                file.unlink()

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(
            self.path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )

    def _prepare(self) -> None:
        """Create the tables of a file that was checked before, where it has none."""
        self._wait_for_turn()
        run = self._connection.execute
        try:
            run(f"PRAGMA busy_timeout = {int(self._timeout_s * 1_000)}")
            is_empty = _check_kind(run, self.path)
            for pragma in _PRAGMAS:
                run(f"PRAGMA {pragma}").fetchall()
            if not self._scrubs:
                run(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}").fetchall()
            run("BEGIN IMMEDIATE")
            for statement in SCHEMA if is_empty else ():
                run(statement)
            run("COMMIT")
            run("PRAGMA busy_timeout = 0")
            self._mode = self.path.stat().st_mode & 0o777
            if self._mode & ~_MODE:
                self.path.chmod(_MODE)
        except (sqlite3.Error, UnicodeDecodeError) as error:
            raise _not_whole(self.path, error) from error
        finally:
            self._turn.give()
        self.scrub()

    def _wait_for_turn(self) -> None:
        until_s = time.monotonic() + self._timeout_s
        while True:
            try:
                self._turn.take()
            except BlockingIOError as error:
                if time.monotonic() >= until_s:
                    raise _failed(error) from None
                time.sleep(_POLL_S)
            else:
                return


class LockFile:
    """A file, made for this user only, that one process at a time has locked.

    The system unlocks it when that process ends in any way.
    """

    def __init__(self) -> None:
        self._number = -1
        self.is_ours = False

    def open(self, path: Path) -> None:
        """Open the file."""
        self._number = os.open(path, os.O_CREAT | os.O_RDWR, _MODE)

    def take(self) -> None:
        """Lock it; raises `BlockingIOError` while somebody else has it."""
        if sys.platform != "win32" and not self.is_ours:
            fcntl.flock(self._number, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self.is_ours = True

    def give(self) -> None:
        """Unlock it, if it is ours."""
        if sys.platform != "win32" and self.is_ours:
            fcntl.flock(self._number, fcntl.LOCK_UN)
            self.is_ours = False

    def close(self) -> None:
        """Close the file, which unlocks it."""
        if self._number >= 0:
            os.close(self._number)
            self._number, self.is_ours = -1, False


_OPEN: Final[dict[tuple[int, int], int]] = {}
"""How many sessions this process has on each file: such a file must not be opened and closed by
anybody but SQLite, because the system then drops the locks that SQLite has on it."""


def _identity(path: Path | str) -> tuple[int, int]:
    """Return the identity of a file, the same for all its names."""
    found = os.stat(path)  # noqa: PTH116 # reason: runs at every write; Path.stat is slower
    return found.st_dev, found.st_ino


_DAMAGED: Final = re.compile(r"\bindex (\w+)$|^(?:Tree|Page) ([0-9]+)")


def _damage(reader: sqlite3.Connection, said: str) -> str:
    """Return SQLite's finding with the table that it is about.

    It names rows by number and the index that lacks them, or the root page of a tree.
    """
    said = said.rpartition("***\n")[2].partition("\n")[0]
    named = _DAMAGED.search(said)
    found = (
        named
        and reader.execute(
            "SELECT tbl_name FROM sqlite_master WHERE name = ? OR rootpage = ?", named.groups()
        ).fetchone()
    )
    return said if found is None else f"table {found[0]}: {said}"


def back_up(source: str | Path, target: str | Path) -> int:
    """Write a copy of a store, whole as of one instant; returns its size in bytes.

    It is made under another name and appears when it is whole, checked and on the disk. Writers of
    the store go on meanwhile. Raises `StoreError` where the source is no store or damaged, or the
    target exists or cannot be written.
    """
    source, target = Path(source), Path(target)
    _check_is_ours(source)
    part = target.with_name(f".{target.name}.part")
    claim = LockFile()
    try:  # a part that a killed backup has left is written anew
        claim.open(part)
        claim.take()
        os.truncate(part, 0)
    except BlockingIOError:
        claim.close()
        raise StoreError(f"{part} is being written by another backup; wait for its end") from None
    except OSError as error:
        claim.close()
        raise StoreError(f"{part} must be a file that can be made: {_reason(error)}") from error
    try:
        _copy(source, part)
        with part.open("rb") as file:
            os.fsync(file.fileno())
        try:
            os.link(part, target)  # which, unlike a rename, replaces nothing
        except OSError as error:
            raise StoreError(f"{target} must be a file to make: {_reason(error)}") from error
        return target.stat().st_size
    finally:
        for each in (part, *(part.with_name(part.name + end) for end in ("-wal", "-shm"))):
            each.unlink(missing_ok=True)
        claim.close()


def _copy(source: Path, part: Path) -> None:
    """Copy all pages, as one reader sees them, and check the copy."""
    try:
        with (
            contextlib.closing(sqlite3.connect(source, timeout=5)) as reader,
            contextlib.closing(sqlite3.connect(part, isolation_level=None)) as copy,
        ):
            reader.backup(copy)
            copy.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            said: str = copy.execute("PRAGMA integrity_check(1)").fetchone()[0]
            damage = None if said == "ok" else _damage(copy, said)
    except sqlite3.Error as error:
        raise StoreError(f"store = {source} cannot be copied: {error}") from error
    if damage is not None:
        raise StoreError(f"store = {source} is damaged: {damage}")


def _not_whole(path: Path, error: object) -> StoreError:
    return StoreError(f"store = {path} must be a whole Tollgate store that can be written: {error}")


def _check_is_ours(path: Path) -> None:
    """Raise `StoreError` for a file that is no store of ours, and change nothing.

    One that this process has open was checked before, and is not opened beside SQLite (`_OPEN`).
    """
    if _OPEN.get(_identity(path)):
        return
    if not path.is_file():
        raise _not_whole(path, "it is no regular file")
    with path.open("rb") as file:
        start = file.read(len(_HEADER))
    if start and start != _HEADER:
        raise _not_whole(path, "file is not a database")
    # A file with no log beside it holds everything itself, and is read without making one.
    mode = "mode=ro" if path.with_name(f"{path.name}-wal").exists() else "immutable=1"
    uri = f"{path.absolute().as_uri()}?{mode}"
    try:
        with contextlib.closing(sqlite3.connect(uri, uri=True, timeout=5)) as reader:
            _check_kind(reader.execute, path)
    except sqlite3.Error as error:
        raise _not_whole(path, error) from error


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
