"""A store leaves alone what stands beside it and is not its own."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from engine.store import SqliteStore
from tests.engine.store._records import log


def _abandoned(store: SqliteStore) -> list[str]:
    with store.transaction():
        return [entry.id for entry in store.abandoned_work()]


@pytest.mark.parametrize(
    "name", ["notes.txt", "0123456789ABCDEF", "0123456789abcdef.bak", "0123456789abcde"]
)
def test_a_file_by_another_name_is_not_removed(path: Path, name: str) -> None:
    """A backup, or another store that is called so, was taken for a lock that nobody holds."""
    beside = path.with_name(f"{path.name}-owner-{name}")
    beside.write_text("kept")
    with closing(SqliteStore(path)) as store:
        assert _abandoned(store) == []
    assert beside.read_text() == "kept"


def test_a_store_beside_it_is_not_removed(path: Path) -> None:
    other = path.with_name(f"{path.name}-owner-shop.sqlite")
    with closing(SqliteStore(other)) as beside, closing(SqliteStore(path)) as store:
        assert _abandoned(store) == []
        with beside.transaction():
            beside.put_secret("dek", b"kept")
    with closing(SqliteStore(other)) as beside, beside.transaction(write=False):
        assert beside.secret("dek") == b"kept"


def test_a_lock_that_may_not_be_looked_at_is_somebodys(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's server: its work is not failed, and this one goes on."""
    with closing(SqliteStore(path)) as store, closing(SqliteStore(path)) as theirs:
        with theirs.transaction():
            theirs.open_work(log(0, 1, id="a"))
        usual = os.open

        def forbidden(name: Any, *more: Any) -> int:
            if "-owner-" in str(name):
                raise PermissionError(13, "Permission denied")
            return usual(name, *more)

        monkeypatch.setattr(os, "open", forbidden)
        assert _abandoned(store) == []
        monkeypatch.undo()
        assert len(list(path.parent.glob("*-owner-*"))) == 1
