"""Cost is flat in the number of tokens, because no statement of a SQLite store walks a table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from engine.model import Job
from engine.store import LogFilter, SqliteStore, TokenFilter
from tests.engine.store._records import (
    TENANT,
    card,
    log,
    one_of_each,
    proxy,
    token,
    uuid,
)


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
