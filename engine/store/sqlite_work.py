"""Work in a SQLite store: unfinished operations, and the process that runs each.

Several processes may use one file, so the rows alone do not show whether an operation is abandoned
or still running elsewhere. So each store that begins work locks a file of its own,
`<store>-owner-<id>`, while it is open, and its rows name that file. The system releases the lock
when the process ends in any way; a process that can take the lock knows that its owner is gone and
that the work will not be finished. This needs no clock, process number or heartbeat.

Lock files are made, tested and removed inside write transactions, which exclude each other in all
processes, so that no process finds a lock file that is made but not yet locked.
"""

# ruff: noqa: S608  # reason: names of columns are constants here, values are bound

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import astuple

from engine.errors import StoreError
from engine.model import LogEntry
from engine.store.sqlite_file import Session

if sys.platform != "win32":  # there a file has one process at a time
    import fcntl

__all__ = ["WorkTable"]

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
