"""Work that a process has left unfinished: the next one finds it when it opens the file."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.store._records import log


def abandoned(store: Store) -> list[str]:
    with store.transaction():
        return [entry.id for entry in store.abandoned_work()]


def opened(store: Store, *works: str) -> None:
    with store.transaction():
        for at_ns, work in enumerate(works):
            store.open_work(log(0, at_ns, id=work))


def test_a_closed_store_has_abandoned_what_it_had_not_finished(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        opened(store, "a", "b", "c")
        assert abandoned(store) == []
        with store.transaction():
            store.close_work("a")
    with closing(SqliteStore(path)) as store:
        opened(store, "d")
        assert abandoned(store) == ["b", "c"]
        with store.transaction():
            store.close_work("b")
        assert abandoned(store) == ["c"]


def test_nothing_in_memory_is_ever_abandoned() -> None:
    store = MemoryStore()
    opened(store, "a")
    assert abandoned(store) == []
