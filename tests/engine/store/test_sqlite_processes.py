"""Processes on one store file: killed at any instant, and racing for the same token."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import threading
import time
from contextlib import closing
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerContext
from pathlib import Path

import pytest

from engine.store import LogFilter, SqliteStore, TokenFilter, sqlite_file
from tests.engine.store._records import TENANT, uuid
from tests.engine.store._writers import KEPT, batch, race, write_until_killed

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


def test_two_processes_leave_one_token_of_equal_ones(
    path: Path, processes: ForkServerContext
) -> None:
    """D-DEDUP-KEY: look-up and insert are one transaction, in whichever process."""
    hashes = 40
    SqliteStore(path).close()
    together = processes.Barrier(2)
    racers = [
        processes.Process(target=race, args=(path, 1_000 * number, hashes, together))
        for number in range(2)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
        assert racer.exitcode == 0
    with closing(SqliteStore(path)) as store, store.transaction(write=False):
        assert store.count_tokens(TENANT) == hashes
        for at in range(hashes):
            assert store.duplicate(TENANT, b"same %d" % at) is not None


def test_opening_waits_for_a_process_that_is_closing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last connection that closes has the file for itself for a moment."""
    SqliteStore(path).close()
    check = sqlite_file._check_is_ours
    closing_one = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    def check_then_lock(file: Path) -> None:
        check(file)
        closing_one.execute("PRAGMA locking_mode = EXCLUSIVE")
        closing_one.execute("BEGIN EXCLUSIVE")
        threading.Timer(0.1, closing_one.close).start()

    monkeypatch.setattr(sqlite_file, "_check_is_ours", check_then_lock)
    SqliteStore(path).close()
