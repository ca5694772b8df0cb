"""Two engines on one file: each finishes what it began, and the dead one's work is marked failed.

DESIGN, transactions: a kill between begin and finish leaves the intent, which the next start marks
failed. A start beside a living engine must leave that one's alone.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from engine import Engine, ManualClock, ModelWorld, Request
from engine.store import SqliteStore
from tests.engine.resources.outside import SECOND_NS, Outside

MASTER = bytes(32)


class Busy:
    """Another process, in the middle of a reactor's invocation until it is told to go on."""

    def __init__(self, path: Path) -> None:
        heard, answers = os.pipe()
        orders, self._orders = os.pipe()
        self.process = os.fork()
        if not self.process:
            try:
                os.close(heard)
                os.close(self._orders)
                _be_busy(path, answers, orders)
            finally:
                os._exit(0)
        os.close(answers)
        os.close(orders)
        self._heard = os.fdopen(heard)
        self.key = self._heard.readline().strip()

    def finish(self) -> None:
        """Let it go on to its end."""
        os.write(self._orders, b"go\n")
        assert self._heard.readline() == "200\n"

    def kill(self) -> None:
        """End it where it stands."""
        os.kill(self.process, signal.SIGKILL)
        os.waitpid(self.process, 0)
        self.process = 0

    def close(self) -> None:
        if self.process:
            self.kill()
        self._heard.close()
        os.close(self._orders)


def _be_busy(path: Path, answers: int, orders: int) -> None:
    outside = Outside(SqliteStore(path))
    outside.service_ns = SECOND_NS
    reactor = outside.made("/reactors", {"name": "r", "code": "code"})
    task = outside.at(0, "POST", f"/reactors/{reactor['id']}/react", {"args": 1})
    outside.loop.run(until_ns=SECOND_NS // 2)
    os.write(answers, f"{outside.key}\n".encode())
    os.read(orders, 3)
    outside.loop.run()
    os.write(answers, f"{task.result.status}\n".encode())
    os.read(orders, 3)  # stay until killed


@contextmanager
def busy(path: Path) -> Iterator[Busy]:
    process = Busy(path)
    try:
        yield process
    finally:
        process.close()


def _logged(path: Path, key: str) -> list[int]:
    """Start an engine on the file; return the statuses of the invocations in its log."""
    world = ModelWorld(clock=ManualClock())
    engine = Engine(world=world, store=SqliteStore(path), master_key=MASTER)
    found = _statuses(engine, key)
    engine.close()
    return found


def _statuses(engine: Engine, key: str) -> list[int]:
    body = engine.handle(Request("GET", "/logs?size=100", key=key, ip="::1")).body
    return [e["status"] for e in body["data"] if e["operation"] == "reactor:invoke"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.sqlite"


def test_the_work_of_a_killed_engine_is_failed_at_the_next_start(path: Path) -> None:
    with busy(path) as other:
        other.kill()
        assert _logged(path, other.key) == [500]
        assert _logged(path, other.key) == [500]
    assert [file.name for file in path.parent.iterdir() if "owner" in file.name] == []


def test_what_was_abandoned_is_logged_as_it_would_have_been(path: Path) -> None:
    """D-LOGS: with the entity and the actor, so that whoever looks for either finds it."""
    with busy(path) as other:
        other.kill()
        engine = Engine(
            world=ModelWorld(clock=ManualClock()), store=SqliteStore(path), master_key=MASTER
        )
        body = engine.handle(Request("GET", "/logs?size=100", key=other.key, ip="::1")).body
        engine.close()
    made, failed = (e for e in body["data"] if e["entity_type"] == "reactor")
    assert (made["operation"], failed["operation"]) == ("reactor:create", "reactor:invoke")
    assert (failed["entity_id"], failed["actor_id"]) == (made["entity_id"], made["actor_id"])
    assert failed["id"] != made["id"]
