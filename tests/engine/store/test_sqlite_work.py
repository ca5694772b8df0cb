"""Work in a SQLite file that several stores have: whose it is, and what an older file held."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.store._queries import files
from tests.engine.store._records import log


def abandoned(store: Store) -> list[str]:
    with store.transaction():
        return [entry.id for entry in store.abandoned_work()]


def opened(store: Store, *works: str) -> None:
    with store.transaction():
        for at_ns, work in enumerate(works):
            store.open_work(log(0, at_ns, id=work))


def locks(path: Path) -> list[Path]:
    return [each for each in files(path) if "-owner-" in each.name]


@pytest.fixture
def pair(path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    with closing(SqliteStore(path)) as one, closing(SqliteStore(path)) as two:
        yield one, two


def test_what_is_being_done_is_not_abandoned(
    path: Path, pair: tuple[SqliteStore, SqliteStore]
) -> None:
    one, two = pair
    opened(one, "a", "b")
    opened(two, "c")
    assert len(locks(path)) == 2
    for store in pair:
        assert abandoned(store) == []
        with store.transaction(write=False):
            assert [entry.id for entry in store.unfinished_work()] == ["a", "c", "b"]


def test_a_closed_store_has_abandoned_what_it_had_not_finished(path: Path) -> None:
    with closing(SqliteStore(path)) as other:
        with closing(SqliteStore(path)) as store:
            opened(store, "a", "b")
            with store.transaction():
                store.close_work("a")
        assert abandoned(other) == ["b"]
        assert locks(path) == []
        with other.transaction():
            other.close_work("b")
        assert abandoned(other) == []


def test_a_lock_file_that_nobody_holds_is_removed(path: Path) -> None:
    left = path.with_name(f"{path.name}-owner-0123456789abcdef")
    left.touch()
    with closing(SqliteStore(path)) as store:
        opened(store, "a")
        assert abandoned(store) == []
        assert len(locks(path)) == 1
        assert not left.exists()


def test_a_lock_that_cannot_be_had_is_a_store_error(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store._presence._lock_file(store._presence.owner).mkdir()
        with pytest.raises(StoreError, match="the store's lock file failed: Is a directory"):
            opened(store, "a")
        with store.transaction(write=False):
            assert store.unfinished_work() == []


def test_nothing_in_memory_is_ever_abandoned() -> None:
    store = MemoryStore()
    opened(store, "a")
    assert abandoned(store) == []
