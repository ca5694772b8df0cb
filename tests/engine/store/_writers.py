"""Processes that write to one store file, for the tests that kill them."""

from __future__ import annotations

from multiprocessing.connection import Connection
from pathlib import Path

from engine.store import SqliteStore
from tests.engine.store._records import TENANT, log, token, uuid

BATCH = 5
KEPT = 3
"""Transactions whose tokens stay; a later one deletes those of the one before these."""


def batch(number: int) -> list[int]:
    """The numbers of the tokens of a transaction."""
    return list(range(number * BATCH, number * BATCH + BATCH))


def write_until_killed(path: Path, answers: Connection) -> None:
    """Write one transaction after the other, and acknowledge each."""
    store = SqliteStore(path)
    with store.transaction(write=False):
        number = store.count_tokens("committed")
    while True:
        with store.transaction():
            store.add_tokens([token(each, created_at_ns=number) for each in batch(number)])
            store.add_tokens([token(number, tenant_id="committed", created_at_ns=number)])
            store.add_log(log(number, number))
            for each in batch(number - KEPT) if number >= KEPT else ():
                assert store.delete_token(TENANT, uuid(each))
        answers.send_bytes(b".")
        number += 1
