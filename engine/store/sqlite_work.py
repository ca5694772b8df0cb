"""Work in a SQLite store: what has begun and not finished, and whose it is.

Several processes may have one file, so that what never finished cannot be told from what another
one is busy with by looking at the rows alone. Each store that begins work therefore holds a lock on
a file of its own, `<store>-owner-<id>`, for as long as it is open, and its rows name it. The system
lets go of a lock when its process ends, however it ends; whoever can take it knows that its owner
is gone, and that nobody will finish the work. No clock, no process number, no heartbeat is asked.

Lock files are made, tested and removed inside transactions that write, one after the other in all
processes, so that none is met between its making and its locking.
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
    """The work of one file, and the lock that says that this store is there."""

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
        """Return what nobody will finish, in the same order; remove the locks of who is gone."""
        present = {self._owner, *self._others()}
        return [LogEntry(*row[:-1]) for row in self._session.all(_SELECT) if row[-1] not in present]

    def leave(self) -> None:
        """Let go of the lock: what is unfinished now is abandoned."""
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
        """Return the other owners that are there; forget the rest."""
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
    """Return whether the store that made the file is still there."""
    try:
        number = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:  # another user's: who is not known to be gone is there
        return True
    try:
        fcntl.flock(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(number)
    return False
