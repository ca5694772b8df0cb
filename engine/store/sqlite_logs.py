"""Log entries in a SQLite store, in order of (at_ns, arrival)."""

# ruff: noqa: S608  # reason: names of tables and columns are constants here, values are bound

from __future__ import annotations

from collections.abc import Sequence

from engine.model import LogEntry
from engine.store.protocol import Cursor, LogFilter, cursor_place
from engine.store.sqlite_file import Session
from engine.store.sqlite_rows import LOGS

__all__ = ["LogTable"]

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
