"""The file of a SQLite store: what it keeps, what it refuses, and what another store changes."""

from __future__ import annotations

import sqlite3
import stat
import threading
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.model import Tenant
from engine.store import LogFilter, MemoryStore, SqliteStore, Store, TokenFilter
from engine.store.sqlite_file import VERSION
from tests.engine.store._queries import files, rows
from tests.engine.store._records import (
    TENANT,
    card,
    log,
    one_of_each,
    sealed,
    tenant,
    token,
    uuid,
)


def test_what_was_committed_is_there_after_reopening(path: Path) -> None:
    with closing(SqliteStore(path)) as store, store.transaction():
        store.add_tokens([card(1, 50), token(2)])
        store.add_log(log(3, 1))
        store.put_secret("dek", b"wrapped")
        for record in one_of_each():
            store.put(record)
    with closing(SqliteStore(path)) as store, store.transaction(write=False):
        assert store.persistent
        assert store.find_tokens(TENANT, TokenFilter(), size=9) == [card(1, 50), token(2)]
        assert store.find_logs(TENANT, LogFilter(), size=9) == [log(3, 1)]
        assert store.secrets() == {"dek": b"wrapped"}
        assert [store.get(type(each), each.id) for each in one_of_each()] == one_of_each()
        assert store.next_deadline_ns == 50


def test_only_this_user_may_read_the_files(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([token(1)])
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in files(path)}
    assert len(modes) == 3
    assert set(modes.values()) == {0o600}
    path.chmod(0o644)
    SqliteStore(path).close()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_nothing_of_a_deleted_record_stays_behind_in_any_table(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([card(1, 50), token(2)])
            store.update_token(card(1, 60, container="/x/", metadata=None, index_hashes=()))
            for record in one_of_each():
                store.put(record)
        with store.transaction():
            for number in (1, 2):
                store.delete_token(TENANT, uuid(number))
            for record in one_of_each():
                store.delete(type(record), record.id)
    for table in ("tokens", "token_terms", "documents", "names", "answers_of"):
        assert rows(path, table) == 0


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")


def of_version(version: int, path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")


def garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1_000)


def torn(path: Path) -> None:
    SqliteStore(path).close()
    path.write_bytes(path.read_bytes()[:5_000])


MUST_BE_OURS = "must be a Tollgate store; it is a database of another program, choose another path"
MUST_BE_OF_VERSION = (
    f"must have schema version {VERSION}; it has %d, open it with the Tollgate that wrote it"
)
MUST_BE_WHOLE = "must be a whole Tollgate store that can be written: "
MUST_BE_FILE = "must be a file that can be made and written: "


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (foreign, MUST_BE_OURS),
        (partial(of_version, VERSION + 1), MUST_BE_OF_VERSION % (VERSION + 1)),
        (partial(of_version, VERSION - 1), MUST_BE_OF_VERSION % (VERSION - 1)),
        (garbage, MUST_BE_WHOLE + "file is not a database"),
        (torn, MUST_BE_WHOLE + "database disk image is malformed"),
        (Path.mkdir, MUST_BE_WHOLE + "it is no regular file"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(
    path: Path, spoil: Callable[[Path], None], rule: str
) -> None:
    spoil(path)
    path.chmod(0o755)
    before = _state(path)
    with pytest.raises(StoreError) as refused:
        SqliteStore(path)
    assert str(refused.value) == f"store = {path} {rule}"
    assert _state(path) == before


def _state(path: Path) -> dict[str, tuple[int, bytes]]:
    """Every file of the folder, with its mode and what it holds."""
    return {
        each.name: (each.stat().st_mode, each.read_bytes() if each.is_file() else b"")
        for each in path.parent.iterdir()
    }


def test_a_foreign_database_with_a_log_is_left_alone(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE theirs (a)")
        for leaves_log in (True, False):
            if not leaves_log:
                connection.close()
            before = _state(path)
            with pytest.raises(StoreError, match="a database of another program"):
                SqliteStore(path)
            assert _state(path).keys() == before.keys()
            assert _state(path)[path.name] == before[path.name]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        StoreError, match=r"store = .*nowhere/a\.db must be a file that can be made"
    ):
        SqliteStore(tmp_path / "nowhere" / "a.db")


def read_all(path: Path) -> None:
    with closing(SqliteStore(path)) as store, store.transaction(write=False):
        for number in range(300):
            store.token(TENANT, uuid(number))
            store.duplicate(TENANT, b"hash %d" % number)


def test_damage_found_later_is_a_store_error_without_values(path: Path) -> None:
    with closing(SqliteStore(path)) as store, store.transaction():
        store.add_tokens([token(number, sealed_data=sealed(number) * 9) for number in range(300)])
    content = bytearray(path.read_bytes())
    content[40_960:] = b"\xff" * (len(content) - 40_960)
    path.write_bytes(bytes(content))
    with pytest.raises(StoreError) as failed:
        read_all(path)
    assert "sealed" not in str(failed.value)
    assert uuid(1)[:8] not in str(failed.value)


def test_another_programs_lock_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait; the test's own wait is long, since the other thread may run late on a busy machine."""
    monkeypatch.setattr("engine.store.sqlite_file._BUSY_TIMEOUT_S", 30.0)
    with closing(SqliteStore(path)) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.1, other.execute, ["COMMIT"])
        release.start()
        with store.transaction():
            store.add_tokens([token(1)])
        release.join()
        other.close()


def test_a_lock_that_never_goes_is_a_store_error_and_the_store_goes_on(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="the store file failed: database is locked"):
                store.begin()
            other.execute("COMMIT")
        with store.transaction():
            store.add_tokens([token(1)])
            assert store.count_tokens(TENANT) == 1


def test_an_undone_change_leaves_no_copy(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.put(tenant(1))
        store.begin()
        store.put(tenant(1, name="undone"))
        assert store.get(Tenant, uuid(1)) == tenant(1, name="undone")
        store.rollback()
        with store.transaction(write=False):
            assert store.get(Tenant, uuid(1)) == tenant(1)


# --- unfinished work -----------------------------------------------------------------------------


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
