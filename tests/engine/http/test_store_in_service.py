"""A store while it is served: locks of other programs, readers in the way, one server a file."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.engine.http.live import MASTER_KEY, Live, served, wait_until

CARD = {"type": "card", "data": {"number": "4242424242424242", "cvc": "123"}}


@pytest.fixture
def kept(tmp_path: Path) -> Iterator[Live]:
    """A server whose store is a file, and whose cvcs live for a second."""
    (tmp_path / "profile.toml").write_text("", encoding="utf-8")
    with served(tmp_path, "--store", str(tmp_path / "a.db")) as live:
        yield live


def test_a_foreign_lock_is_503_and_reads_go_on(kept: Live, tmp_path: Path) -> None:
    token = kept.ask("POST", "/tokens", json=CARD).json()["id"]
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        refused = kept.ask("POST", "/tokenize", json=["x"])
        assert refused.status_code == 503
        assert refused.headers["Retry-After"] == "1"
        assert refused.headers["Content-Type"] == "application/problem+json"
        assert kept.ask("GET", f"/tokens/{token}").status_code == 200
        assert kept.ask("GET", "/tokens").status_code == 200
        other.execute("COMMIT")
    assert kept.ask("POST", "/tokenize", json=["x"]).status_code == 200


def test_a_lock_that_goes_in_time_is_waited_for(kept: Live, tmp_path: Path) -> None:
    script = (
        "import sqlite3, sys, time\n"
        "other = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "other.execute('BEGIN IMMEDIATE'); print('held', flush=True)\n"
        "time.sleep(0.3); other.execute('COMMIT')\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "a.db")]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        assert kept.ask("POST", "/tokenize", json=["x"]).status_code == 200
        large = ["x" * 20_000]  # which is answered in a thread
        assert kept.ask("POST", "/tokenize", json=large).status_code == 200


def test_a_reader_in_the_way_holds_up_the_erasure_alone(kept: Live, tmp_path: Path) -> None:
    made = kept.ask("POST", "/tokens", json={"type": "token", "data": "Ada"}).json()["id"]
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tokens").fetchone()
        assert kept.ask("DELETE", f"/tokens/{made}").status_code == 204
        log = tmp_path / "a.db-wal"
        started_s = time.monotonic()
        for _ in range(10):  # each took a second
            assert kept.ask("POST", "/tokenize", json=["x"]).status_code == 200
        assert time.monotonic() - started_s < 8
        assert log.stat().st_size > 0
        reader.execute("COMMIT")
    wait_until(lambda: log.stat().st_size == 0)


@pytest.mark.parametrize("link", [os.symlink, os.link, None])
def test_a_file_has_one_server_whatever_it_is_called(
    kept: Live, tmp_path: Path, link: object
) -> None:
    other = tmp_path / "a.db"
    if callable(link):
        other = tmp_path / "b.db"
        link(tmp_path / "a.db", other)
    before = sorted(each.name for each in tmp_path.iterdir())
    command = [sys.executable, "-m", "engine", "serve", "--port", "0", "--store", str(other)]
    environment = {**os.environ, "TOLLGATE_MASTER_KEY": MASTER_KEY}
    second = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env=environment
    )
    assert second.returncode == 2
    assert second.stderr.startswith(f"engine: store = {other} must have one server")
    assert second.stderr.count("\n") == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    assert kept.ask("POST", "/tokenize", json=["x"]).status_code == 200


def test_a_hangup_drains_as_a_termination_does(tmp_path: Path) -> None:
    with served(tmp_path) as live:
        assert live.stop(signal.SIGHUP) == (0, "")
