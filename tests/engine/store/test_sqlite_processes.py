"""Processes on one store file: killed at any instant."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from engine.store import LogFilter, SqliteStore, TokenFilter
from tests.engine.store._records import TENANT, uuid
from tests.engine.store._writers import KEPT, batch, write_until_killed

ROUNDS = 200


@pytest.fixture(scope="module")
def processes() -> ForkServerContext:
    """Starts processes quickly: each is forked from one that has imported the store."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.engine.store._writers"])
    return context


def check_whole(path: Path, least: int) -> int:
    """Every acknowledged transaction is there whole and no half is; return how many are there."""
    with closing(SqliteStore(path)) as store, store.transaction(write=False):
        committed = store.count_tokens("committed")
        assert committed >= least, "an acknowledged transaction is lost"
        kept = [
            each for number in range(max(0, committed - KEPT), committed) for each in batch(number)
        ]
        found = store.find_tokens(TENANT, TokenFilter(), size=100)
        assert [each.id for each in found] == [uuid(each) for each in kept]
        assert store.count_tokens(TENANT) == len(kept)
        last = store.find_logs(TENANT, LogFilter(from_ns=committed - 1), size=9)
        assert [each.at_ns for each in last] == list(range(max(0, committed - 1), committed))
        for each in found:
            assert store.duplicate(TENANT, each.dedup_hash) == each
    return committed


def drain(heard: Connection) -> int:
    """Return how many more answers there are."""
    answers = 0
    with heard:
        while True:
            try:
                heard.recv_bytes()
            except EOFError:
                return answers
            answers += 1


@pytest.mark.slow
def test_a_kill_at_any_instant_leaves_whole_transactions(
    path: Path, processes: ForkServerContext
) -> None:
    """TOK-ATOMIC, 200 kills: what was answered is there, and of what was not, all or nothing."""
    chance = random.Random(1)
    committed = unanswered = 0
    for _ in range(ROUNDS):
        heard, answers = processes.Pipe(duplex=False)
        writer = processes.Process(target=write_until_killed, args=(path, answers))
        writer.start()
        answers.close()
        heard.recv_bytes()
        time.sleep(chance.uniform(0, 0.02))
        assert writer.pid is not None
        os.kill(writer.pid, signal.SIGKILL)
        writer.join()
        acknowledged = 1 + drain(heard)
        now = check_whole(path, committed + acknowledged)
        assert now - committed - acknowledged <= 1
        unanswered += now - committed - acknowledged
        committed = now
    assert committed > ROUNDS
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
