"""The file of a SQLite store: what it keeps, what it refuses, and that erased means gone."""

from __future__ import annotations

import random
import re
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engine.errors import StoreError
from engine.model import Intent, Job, Tenant, Token
from engine.store import LogFilter, SqliteStore, TokenFilter
from tests.engine.store._records import (
    TENANT,
    card,
    intent,
    job,
    key,
    log,
    one_of_each,
    proxy,
    sealed,
    tenant,
    token,
    uuid,
)


def files(path: Path) -> list[Path]:
    return sorted(path.parent.glob(path.name + "*"))


def bytes_of(path: Path) -> bytes:
    return b"".join(each.read_bytes() for each in files(path))


def rows(path: Path, table: str) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


# --- keeping -------------------------------------------------------------------------------------


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
        assert store.next_deadline_ns() == 50


def test_only_this_user_may_read_the_files(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([token(1)])
        modes = {each.name: stat.S_IMODE(each.stat().st_mode) for each in files(path)}
    assert len(modes) == 4
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
    for table in ("tokens", "token_terms", "tenants", "api_keys", "jobs", "intents", "proxies"):
        assert rows(path, table) == 0
    assert rows(path, "free_slots") == rows(path, "sealed")


def test_erased_slots_are_used_again(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        for number in range(50):
            with store.transaction():
                store.add_tokens([card(number, 10 + number)])
                store.expire(10 + number)
                store.delete_token(TENANT, uuid(number))
    assert rows(path, "sealed") == 2


# --- refusing ------------------------------------------------------------------------------------


def foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (a)")


def newer(path: Path) -> None:
    SqliteStore(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 2")


def garbage(path: Path) -> None:
    path.write_bytes(b"no database " * 1_000)


def torn(path: Path) -> None:
    SqliteStore(path).close()
    path.write_bytes(path.read_bytes()[:5_000])


MUST_BE_OURS = "must be a Tollgate store; it is a database of another program, choose another path"
MUST_BE_1 = "must have schema version 1; it has 2, open it with the Tollgate that wrote it"
MUST_BE_WHOLE = "must be a whole Tollgate store that can be written: "
MUST_BE_FILE = "must be a file that can be made and written: "


@pytest.mark.parametrize(
    ("spoil", "rule"),
    [
        (foreign, MUST_BE_OURS),
        (newer, MUST_BE_1),
        (garbage, MUST_BE_WHOLE + "file is not a database"),
        (torn, MUST_BE_WHOLE + "database disk image is malformed"),
        (Path.mkdir, MUST_BE_FILE + "unable to open database file"),
    ],
)
def test_a_file_that_is_no_store_is_refused_and_left_alone(
    path: Path, spoil: Callable[[Path], None], rule: str
) -> None:
    spoil(path)
    before = path.read_bytes() if path.is_file() else b""
    with pytest.raises(StoreError) as refused:
        SqliteStore(path)
    assert str(refused.value) == f"store = {path} {rule}"
    assert before == (path.read_bytes() if path.is_file() else b"")


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


def test_another_programs_lock_is_waited_for(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        other = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        other.execute("BEGIN IMMEDIATE")
        release = threading.Timer(0.2, other.execute, ["COMMIT"])
        release.start()
        with store.transaction():
            store.add_tokens([token(1)])
        release.join()
        other.close()


def test_a_lock_that_never_goes_is_a_store_error_and_the_store_goes_on(path: Path) -> None:
    with closing(SqliteStore(path, timeout_s=0)) as store:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            with pytest.raises(StoreError, match="the store file failed: database is locked"):
                store.begin()
            other.execute("COMMIT")
        with store.transaction():
            store.add_tokens([token(1)])
            assert store.count_tokens(TENANT) == 1


# --- erased means gone ---------------------------------------------------------------------------


def test_an_expired_cvc_is_in_no_file(path: Path) -> None:
    """QUO-CVC: really gone, from the write-ahead log too, when `expire` is committed."""
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([card(1, 50), card(2, 60)])
            store.put(intent(3, 50))
        assert sealed(1, "cvc") in bytes_of(path)
        with store.transaction():
            store.expire(50)
        content = bytes_of(path)
        assert sealed(1, "cvc") not in content
        assert sealed(3, "intent") not in content
        assert sealed(2, "cvc") in content
        assert sealed(1) in content


def test_what_is_deleted_or_replaced_is_in_no_file(path: Path) -> None:
    gone = [sealed(n, "secret") for n in range(8)]
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([token(1, sealed_data=gone[0]), token(2, sealed_data=gone[1])])
            store.put(job(3, sealed_file=gone[2] * 3_000, sealed_result=gone[3]))
            store.put(job(4, sealed_file=gone[4]))
            store.put_secret("dek", gone[5])
        with store.transaction():
            store.update_token(token(1, sealed_data=b"new"))
            store.delete_token(TENANT, uuid(2))
            store.put(job(3, sealed_file=b"short"))
            store.delete(Job, uuid(4))
            store.put_secret("dek", sealed(99, "secret"))
        content = bytes_of(path)
        assert [each for each in gone if each in content] == []
        assert sealed(99, "secret") in content


@pytest.mark.parametrize("seed", range(3))
def test_no_copy_of_what_was_erased_survives_any_history(path: Path, seed: int) -> None:
    """Trees that are balanced move rows; the cells of ciphertexts must not move with them."""
    chance = random.Random(seed)
    live: dict[int, Token] = {}
    erased: set[bytes] = set()
    with closing(SqliteStore(path)) as store:
        for step in range(60):
            with store.transaction():
                for number in range(step * 30, step * 30 + 30):
                    note = {"note": "x" * chance.randint(0, 900)}
                    live[number] = card(number, step + chance.randint(1, 20), metadata=note)
                    store.add_tokens([live[number]])
                for number in chance.sample(sorted(live), 10):
                    store.delete_token(TENANT, live.pop(number).id)
                    erased |= {sealed(number), sealed(number, "cvc")}
                for number in chance.sample(sorted(live), 5):
                    note = {"note": "y" * chance.randint(0, 900)}
                    live[number] = card(number, step + 10, metadata=note)
                    store.update_token(live[number])
                    erased.discard(sealed(number, "cvc"))
                store.expire(step)
                due = [n for n, each in live.items() if (each.cvc_until_ns or 0) <= step]
                erased |= {sealed(number, "cvc") for number in due}
        found = set(re.findall(rb"<sealed \w+ \d{8}>", bytes_of(path)))
    assert len(erased) > 1_000
    assert not found & erased
    assert {sealed(number) for number in live} <= found


def test_a_reader_in_the_way_only_delays_the_erasure(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([card(1, 50)])
        with closing(sqlite3.connect(path, isolation_level=None)) as reader:
            reader.execute("BEGIN")
            reader.execute("SELECT count(*) FROM tokens").fetchone()
            with store.transaction():
                store.expire(50)
            assert sealed(1, "cvc") in bytes_of(path)
            reader.execute("COMMIT")
        with store.transaction(write=False):
            pass
        assert sealed(1, "cvc") not in bytes_of(path)


def test_a_kill_between_commit_and_erasure_is_made_good_at_the_next_start(path: Path) -> None:
    with closing(SqliteStore(path)) as store, store.transaction():
        store.add_tokens([card(1, 50)])
    script = (
        "import os, sys\n"
        "from pathlib import Path\n"
        "from engine.store import SqliteStore\n"
        "store = SqliteStore(Path(sys.argv[1]))\n"
        "store._session._scrub = lambda: os._exit(9)\n"
        "store.begin(); store.expire(50); store.commit()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    assert subprocess.run(command, check=False).returncode == 9
    assert sealed(1, "cvc") in bytes_of(path)
    with closing(SqliteStore(path)):
        assert sealed(1, "cvc") not in bytes_of(path)


# --- two at a time -------------------------------------------------------------------------------


def test_what_one_changes_the_other_sees_at_once(path: Path) -> None:
    """Two stores on one file: no copy of a tenant, a key or a deadline is ever stale."""
    with closing(SqliteStore(path)) as one, closing(SqliteStore(path)) as two:
        for name in ("first", "second", "third"):
            with one.transaction():
                one.put(tenant(1, name=name))
                one.put(key(2))
            with two.transaction(write=False):
                assert two.get(Tenant, uuid(1)) == tenant(1, name=name)
                assert two.key_by_hash(b"key 2") == key(2)
            with one.transaction():
                one.delete(type(key(2)), uuid(2))
            with two.transaction():
                assert two.key_by_hash(b"key 2") is None
        for deadline in (50, 40, 45):
            with one.transaction():
                one.put(intent(3, deadline))
            assert two.next_deadline_ns() == deadline
        with two.transaction():
            two.expire(45)
        assert one.next_deadline_ns() is None
        with one.transaction(write=False):
            assert one.get(Intent, uuid(3)) is None


def test_copies_stay_while_the_other_only_writes_tokens(path: Path) -> None:
    with closing(SqliteStore(path)) as one, closing(SqliteStore(path)) as two:
        with one.transaction():
            one.put(tenant(1))
        with two.transaction(write=False):
            known = two.get(Tenant, uuid(1))
        with one.transaction():
            one.add_tokens([token(1)])
        with two.transaction(write=False):
            assert two.get(Tenant, uuid(1)) is known


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


# --- flat cost -----------------------------------------------------------------------------------


def test_no_statement_walks_a_table_or_sorts(path: Path) -> None:
    """Cost is flat in the number of tokens: each statement finds its rows by an index, in order."""
    with closing(SqliteStore(path)) as store:
        statements: set[str] = set()
        connection = store._session._connection
        connection.set_trace_callback(statements.add)
        drive_everything(store)
        connection.set_trace_callback(None)
        plans = {
            sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            for sql in sorted(statements)
            if sql.startswith(("SELECT", "UPDATE", "DELETE"))
            and not any(small in sql for small in SMALL)
        }
    assert len(plans) > 40
    for sql, steps in plans.items():
        for step in steps:
            walks = step.startswith("SCAN") and not step.startswith(("SCAN CONSTANT", "SCAN (sub"))
            assert not walks, (sql, step)
            assert "TEMP B-TREE" not in step, (sql, step)


SMALL = ("FROM work ORDER BY", "FROM secrets ", "FROM tenants ORDER BY")
"""Statements that read a whole table, of a row a tenant, a secret or an open operation."""


def drive_everything(store: SqliteStore) -> None:
    """Call each method of the protocol, with each filter."""
    with store.transaction():
        for record in [*one_of_each(), proxy(20, host="h")]:
            store.put(record)
            store.put(record)
            store.list(type(record), TENANT, after=record.id, size=2)
        store.tenants()
        store.key_by_hash(b"nobody")
        store.proxy_by_hash(b"nobody")
        store.proxy_by_host("nobody")
        store.add_tokens([card(1, 9), token(2), token(3)])
        store.update_token(card(1, 8, metadata=None))
        store.token(TENANT, uuid(9))
        store.duplicate(TENANT, b"hash 1")
        for chosen in (
            TokenFilter(),
            TokenFilter(type="card"),
            TokenFilter(containers=("/pci/", "/general/")),
            TokenFilter(metadata=(("a", "b"),), index_hash=b"h", fingerprint="f"),
        ):
            store.find_tokens(TENANT, chosen, after=uuid(1), size=2)
        store.count_tokens(TENANT)
        store.add_log(log(1, 1))
        for logs in (
            LogFilter(),
            LogFilter(entity_id="e", entity_type="t", from_ns=1),
            LogFilter(entity_type="t", before_ns=4),
        ):
            store.find_logs(TENANT, logs, after=uuid(1), size=2)
        store.next_deadline_ns()
        store.expire(8)
        store.expire_logs(TENANT, 5)
        store.delete_token(TENANT, uuid(2))
        store.delete(Job, uuid(11))
        store.secret("a")
        store.put_secret("a", b"b")
        store.secrets()
        store.open_work("w", TENANT, "o", 1)
        store.close_work("w")
        store.unfinished_work()


def test_a_deadline_is_told_without_asking_the_file_again(path: Path) -> None:
    """It is asked first in every request: one statement, whatever the number of tokens."""
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([card(1, 50)])
        assert store.next_deadline_ns() == 50
        statements: list[str] = []
        store._session._connection.set_trace_callback(statements.append)
        assert store.next_deadline_ns() == 50
        assert statements == ["PRAGMA data_version"]
