"""Erased means gone: from the file of a SQLite store, from its log, and whatever happened to it."""

from __future__ import annotations

import random
import re
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from engine.model import Job, JobResult, Token
from engine.store import LogFilter, SqliteStore, TokenFilter
from tests.engine.store._queries import bytes_of
from tests.engine.store._records import (
    TENANT,
    card,
    intent,
    job_result,
    log,
    one_of_each,
    proxy,
    sealed,
    token,
    uuid,
)


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
    gone = [sealed(n, "secret") for n in range(5)]
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([token(1, sealed_data=gone[0]), token(2, sealed_data=gone[1])])
            store.put(job_result(3, sealed_content=gone[2] * 3_000))
            store.put(job_result(4, sealed_content=gone[3]))
            store.put_secret("dek", gone[4])
        with store.transaction():
            store.update_token(token(1, sealed_data=b"new"))
            store.delete_token(TENANT, uuid(2))
            store.put(job_result(3, sealed_content=b"short"))
            store.delete(JobResult, uuid(4))
            store.put_secret("dek", sealed(99, "secret"))
        content = bytes_of(path)
        assert [each for each in gone if each in content] == []
        assert sealed(99, "secret") in content


def test_a_replaced_secret_is_in_no_file_though_nothing_else_was_erased(path: Path) -> None:
    """Key rotation: what the old master key opens is not left in the write-ahead log."""
    old, new = sealed(1, "secret"), sealed(2, "secret")
    with closing(SqliteStore(path)) as store:
        for secret in (old, new):
            with store.transaction():
                store.put_secret("dek", secret)
        content = bytes_of(path)
        assert (old in content, new in content) == (False, True)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_no_copy_of_what_was_erased_survives_any_history(path: Path, seed: int) -> None:
    """SQLite's `secure_delete` overwrites what a deleted or changed row held."""
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
        "store.truncate_log = lambda: os._exit(9)\n"
        "store.begin(); store.expire(50); store.commit()\n"
    )
    command = [sys.executable, "-c", script, str(path)]
    assert subprocess.run(command, check=False).returncode == 9
    assert sealed(1, "cvc") in bytes_of(path)
    with closing(SqliteStore(path)):
        assert sealed(1, "cvc") not in bytes_of(path)


# --- plans of statements -------------------------------------------------------------------------


def test_no_statement_walks_a_table_or_sorts(path: Path) -> None:
    """Cost is flat in the number of tokens: each statement finds its rows by an index, in order."""
    with closing(SqliteStore(path)) as store:
        statements: set[str] = set()
        connection = store._connection
        connection.set_trace_callback(statements.add)
        drive_everything(store)
        connection.set_trace_callback(None)
        plans = {
            sql: [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {sql}")]
            for sql in sorted(statements)
            if sql.startswith(("SELECT", "UPDATE", "DELETE"))
            and not any(small in sql for small in SMALL)
        }
    assert len(plans) > 25
    for words, step in NARROW.items():
        chosen = [steps for sql, steps in plans.items() if words in sql]
        assert chosen, words
        assert all(any(step in each for each in steps) for steps in chosen), (words, chosen)
    for sql, steps in plans.items():
        for step in steps:
            walks = step.startswith("SCAN") and not step.startswith(("SCAN CONSTANT", "SCAN (sub"))
            assert not walks, (sql, step)
            assert "TEMP B-TREE" not in step, (sql, step)


NARROW = {
    "AND dedup_hash = ": "tokens_equal (tenant_id=? AND dedup_hash=?",
    "WHERE cvc_until_ns <= ": "tokens_due",
    "min(cvc_until_ns)": "tokens_due",
    "FROM documents WHERE until_ns <= ": "documents_due",
    "FROM token_terms AS filed": "PRIMARY KEY (tenant_id=? AND term=? AND (created_at_ns,id)>",
    "INDEXED BY tokens_listed": "(tenant_id=? AND (created_at_ns,id)>",
    "WHERE name = x": "(name=?)",
    "AND entity_id = ": "logs_by_entity (tenant_id=? AND entity_id=?",
    "DELETE FROM logs WHERE": "logs_listed (tenant_id=? AND at_ns<?)",
    "SELECT answer_id FROM answers_of": "(entity_id=?)",
}
"""Words of statements, and the index and columns that must find their rows."""

SMALL = ("FROM work ORDER BY", "wrapped FROM secrets", "probes")
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
        assert store.next_deadline_ns == 8
        store.expire(8)
        store.expire_logs(TENANT, 5)
        store.delete_token(TENANT, uuid(2))
        store.delete(Job, uuid(11))
        store.secret("a")
        store.put_secret("a", b"b")
        store.secrets()
        store.open_work(log(4, 1))
        store.close_work(uuid(4))
        store.unfinished_work()
        store.abandoned_work()


def test_a_deadline_is_told_without_asking_the_file_again(path: Path) -> None:
    """It is asked first in every request: one statement, whatever the number of tokens."""
    with closing(SqliteStore(path)) as store:
        with store.transaction():
            store.add_tokens([card(1, 50)])
        assert store.next_deadline_ns == 50
        statements: list[str] = []
        store._connection.set_trace_callback(statements.append)
        assert store.next_deadline_ns == 50
        assert statements == []
