"""Work in a SQLite file that several stores have: whose it is, and what an older file held."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.model import JobResult, LogEntry
from engine.store import MemoryStore, SqliteStore, Store
from tests.engine.store._queries import files
from tests.engine.store._records import TENANT, job, job_result, log, uuid


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


def first_version(path: Path) -> None:
    """Make a file as version 1 had it: results in the rows of jobs, work without an owner."""
    with closing(SqliteStore(path)) as store, store.transaction():
        store.put(job(1, status="completed", ends_at_ns=5))
        store.put(job_result(1))
        store.put(job(2))
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript("""
            ALTER TABLE jobs ADD COLUMN sealed_result INTEGER;
            UPDATE jobs SET sealed_result =
                (SELECT sealed_content FROM job_results WHERE job_results.id = jobs.id);
            DROP TABLE job_results;
            DROP TABLE kept_answers;
            DROP TABLE work;
            ALTER TABLE tenants DROP COLUMN host_suffixes;
            ALTER TABLE applications DROP COLUMN origins;
            ALTER TABLE reactors DROP COLUMN sealed_code;
            ALTER TABLE reactors DROP COLUMN sealed_configuration;
            ALTER TABLE reactors ADD COLUMN code TEXT;
            ALTER TABLE reactors ADD COLUMN configuration TEXT;
            ALTER TABLE proxies DROP COLUMN sealed_request_transform;
            ALTER TABLE proxies DROP COLUMN sealed_response_transform;
            ALTER TABLE proxies ADD COLUMN request_transform TEXT;
            ALTER TABLE proxies ADD COLUMN response_transform TEXT;
            ALTER TABLE tenants DROP COLUMN mac;
            ALTER TABLE applications DROP COLUMN mac;
            ALTER TABLE api_keys DROP COLUMN mac;
            ALTER TABLE encryption_keys DROP COLUMN mac;
            ALTER TABLE reactors DROP COLUMN mac;
            ALTER TABLE proxies DROP COLUMN mac;
            ALTER TABLE jobs DROP COLUMN mac;
            ALTER TABLE intents DROP COLUMN mac;
            CREATE TABLE work (id TEXT PRIMARY KEY, tenant_id TEXT, operation TEXT, at_ns INTEGER);
            INSERT INTO work VALUES ('a', 'tenant', 'react', 5);
            PRAGMA user_version = 1;
        """)


def test_a_file_of_the_first_version_is_brought_up_and_keeps_all(path: Path) -> None:
    first_version(path)
    for _ in range(2):
        with closing(SqliteStore(path)) as store:
            with store.transaction(write=False):
                assert store.list(type(job(1)), TENANT) == [
                    job(1, status="completed", ends_at_ns=5),
                    job(2),
                ]
                assert store.get(JobResult, uuid(1)) == job_result(1)
                assert store.get(JobResult, uuid(2)) is None
            with store.transaction():
                assert store.abandoned_work() == [
                    LogEntry("a", "tenant", 5, "react", "work", "a", None, 500)
                ]
