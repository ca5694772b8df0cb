"""One SQLite file: opened, checked, locked, and spoken to.

It knows transactions and nothing of records. Its ideas: writers of all processes queue at a lock
file, so that nobody polls and no two ever meet inside SQLite; and after a transaction that erased
something the write-ahead log is folded into the file and emptied, because it still holds what the
pages held before.
"""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from engine.errors import StoreError
from engine.store.sqlite_schema import APPLICATION_ID, SCHEMA, UPGRADES, VERSION

if sys.platform != "win32":  # there SQLite's own lock and its busy timeout have to do
    import fcntl

__all__ = ["Session"]

_SCRUB_TIMEOUT_MS: Final = 1_000
_MODE: Final = 0o600
_PRAGMAS: Final = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "secure_delete = ON",
    "temp_store = MEMORY",
    "cache_size = -32768",
    "trusted_schema = OFF",
)


def _failed(error: Exception) -> StoreError:
    """Return the error as ours; SQLite's texts name tables and columns, never values."""
    if isinstance(error, UnicodeEncodeError):
        return StoreError("a record's texts must be Unicode; one of them holds a surrogate")
    if isinstance(error, sqlite3.IntegrityError):
        return StoreError(f"a record must be new where it has to be: {error}")
    return StoreError(f"the store file failed: {error}")


class Session:
    """The connection of one process to one store file; one transaction after the other.

    path: the file; made, with mode 0600, when there is none.
    timeout_s: how long SQLite waits for a lock that another program holds.

    Raises `StoreError` when the file is no store, newer than this program, damaged or not
    writable.
    """

    def __init__(self, path: Path, *, timeout_s: int) -> None:
        self.path = path
        self.lock = threading.RLock()
        self.is_open = False
        self.writes = False
        self.version = -1
        self._timeout_s = timeout_s
        self._erased = False
        self._to_scrub = True  # a kill may have left what the process before erased in the log
        self._holds_file = False
        self._lock_number = -1
        try:
            self._lock_number = _make_files(path)
            self._connection = sqlite3.connect(
                path,
                timeout=timeout_s,
                isolation_level=None,
                check_same_thread=False,
                cached_statements=256,
            )
        except (OSError, sqlite3.Error) as error:
            self._close_lock()
            raise StoreError(
                f"store = {path} must be a file that can be made and written: {error}"
            ) from error
        except ValueError:  # a NUL, or a surrogate that stands for no byte
            raise StoreError(
                f"store = {str(path)!a} must be a file's path; no file can have that name"
            ) from None
        try:
            self._prepare()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file; the session is not used afterwards."""
        with self.lock:
            assert not self.is_open, "a transaction is open"
            self._connection.close()
            self._close_lock()

    # speaking
    def run(self, sql: str, values: Sequence[Any] = ()) -> sqlite3.Cursor:
        """Run one statement."""
        try:
            return self._connection.execute(sql, values)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise _failed(error) from error

    def many(self, sql: str, rows: Sequence[Sequence[Any]]) -> None:
        """Run one statement for each row of values."""
        try:
            self._connection.executemany(sql, rows)
        except (sqlite3.Error, UnicodeEncodeError) as error:
            raise _failed(error) from error

    def all(self, sql: str, values: Sequence[Any] = ()) -> list[Any]:
        """Return all rows that a statement selects; by a text that is not Unicode, none."""
        try:
            return self._connection.execute(sql, values).fetchall()
        except UnicodeEncodeError:
            return []
        except sqlite3.Error as error:
            raise _failed(error) from error

    def one(self, sql: str, values: Sequence[Any] = ()) -> Any:  # noqa: ANN401  # reason: a row, or None
        """Return the one row that a statement selects, None when there is none, as in `all`."""
        try:
            cursor = self._connection.execute(sql, values)
            row = cursor.fetchone()
            cursor.close()
        except UnicodeEncodeError:
            return None
        except sqlite3.Error as error:
            raise _failed(error) from error
        return row

    def newest(self) -> int:
        """Return the version of what was committed last, in whichever process."""
        version: int = self.one("PRAGMA data_version")[0]
        return version

    def erases(self) -> None:
        """Say that this transaction overwrites what must not be found any more."""
        self._erased = True

    # transactions
    def begin(self, *, write: bool) -> None:
        """Open a transaction, when the one before it has ended, here and in other processes."""
        self.lock.acquire()
        if self.is_open:
            self.lock.release()
            raise AssertionError("a transaction is open in this thread; they do not nest")
        try:
            if write:
                self._take_file()
                self._connection.execute("BEGIN IMMEDIATE")
            else:
                self._connection.execute("BEGIN")
            # Asked inside, so that it says which state the transaction sees.
            self.version = self._connection.execute("PRAGMA data_version").fetchone()[0]
        except (OSError, sqlite3.Error) as error:
            self._leave()
            raise _failed(error) from error
        except BaseException:
            self._leave()
            raise
        self.is_open = True
        self.writes = write

    def commit(self) -> None:
        """Make the transaction last; when this raises it is undone."""
        assert self.is_open, "no transaction is open"
        try:
            self._connection.execute("COMMIT")
            self._to_scrub = self._to_scrub or self._erased
            if self._to_scrub:
                self._scrub()
        except sqlite3.Error as error:
            raise _failed(error) from error
        finally:
            self._leave()

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
            self._give_file()
            self.lock.release()

    def _scrub(self) -> None:
        """Fold the write-ahead log into the file and empty it (QUO-CVC: really gone).

        A reader in another process can be in the way; then the next transaction tries again.
        """
        self._take_file()
        run = self._connection.execute
        run(f"PRAGMA busy_timeout = {_SCRUB_TIMEOUT_MS}")
        try:
            self._to_scrub = run("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0] != 0
        except sqlite3.OperationalError:
            self._to_scrub = True  # what was committed stays so; the next transaction tries again
        finally:
            run(f"PRAGMA busy_timeout = {self._timeout_s * 1_000}")

    # the lock file
    def _take_file(self) -> None:
        if sys.platform != "win32" and not self._holds_file:
            fcntl.flock(self._lock_number, fcntl.LOCK_EX)
            self._holds_file = True

    def _give_file(self) -> None:
        if sys.platform != "win32" and self._holds_file:
            fcntl.flock(self._lock_number, fcntl.LOCK_UN)
            self._holds_file = False

    def _close_lock(self) -> None:
        if self._lock_number >= 0:
            os.close(self._lock_number)
            self._lock_number = -1

    # opening
    def _prepare(self) -> None:
        """Check that the file is ours, or make it so when it is empty."""
        self._take_file()
        run = self._connection.execute
        try:
            is_empty = run("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0
            application_id = run("PRAGMA application_id").fetchone()[0]
            version = run("PRAGMA user_version").fetchone()[0]
            if application_id != APPLICATION_ID and not (is_empty and application_id == 0):
                raise StoreError(
                    f"store = {self.path} must be a Tollgate store; it is a database of another"
                    " program, choose another path"
                )
            is_older = version in UPGRADES
            if application_id == APPLICATION_ID and version != VERSION and not is_older:
                raise StoreError(
                    f"store = {self.path} must have schema version {VERSION}; it has {version},"
                    " open it with the Tollgate that wrote it"
                )
            for pragma in _PRAGMAS:
                run(f"PRAGMA {pragma}").fetchall()
            run("BEGIN IMMEDIATE")
            for statement in SCHEMA if is_empty else ():
                run(statement)
            while not is_empty and version != VERSION:
                for statement in UPGRADES[version]:
                    run(statement)
                version = run("PRAGMA user_version").fetchone()[0]
            run("COMMIT")
            self._scrub()
        except sqlite3.Error as error:
            raise StoreError(
                f"store = {self.path} must be a whole Tollgate store that can be written: {error}"
            ) from error
        finally:
            self._give_file()


def _make_files(path: Path) -> int:
    """Make the store file and its lock file, for this user only; return the lock's descriptor."""
    try:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, _MODE))
    except FileExistsError:
        # Never opened here: closing any descriptor of it would drop the locks that SQLite holds.
        if path.stat().st_mode & ~_MODE & 0o777:
            path.chmod(_MODE)
    return os.open(f"{path}-lock", os.O_CREAT | os.O_RDWR, _MODE)
