"""What the tests ask a store, each in a transaction of its own."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

from engine.model import Token
from engine.store import LogFilter, Store, TokenFilter
from tests.engine.store._records import TENANT


def found(store: Store, *, size: int = 100, after: str | None = None, **chosen: Any) -> list[Token]:
    with store.transaction(write=False):
        return list(store.find_tokens(TENANT, TokenFilter(**chosen), after=after, size=size))


def logged(store: Store, *, size: int = 100, after: str | None = None, **chosen: Any) -> list[str]:
    with store.transaction(write=False):
        return [
            each.id for each in store.find_logs(TENANT, LogFilter(**chosen), after=after, size=size)
        ]


def files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(path.name + "*"))


def bytes_of(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in files(path))


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
