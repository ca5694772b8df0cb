"""A store while it is served: locks of other programs, readers in the way, one server a file."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import msgspec
import pytest

from engine.http.system import SystemClock
from tests.engine.http.live import KEY, MASTER_KEY, Live, served, wait_until

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


def _sealed_cvcs(path: Path) -> list[tuple[int, bytes]]:
    """Return the deadline and the ciphertext of each cvc in the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as reader:
        rows = reader.execute(
            "SELECT cvc_until_ns, record FROM tokens WHERE cvc_until_ns IS NOT NULL"
        ).fetchall()
    return [(until_ns, msgspec.msgpack.decode(record)["sealed_cvc"]) for until_ns, record in rows]


@pytest.mark.slow
def test_what_has_expired_is_erased_in_time_under_load(tmp_path: Path) -> None:
    """QUO-CVC: within the printed bound, from the file and its log, while four callers write on."""
    path = tmp_path / "a.db"
    with served(tmp_path, "--store", str(path), cvc_retention="1s") as live:
        within_s = live.lines[-1]["erased_within_s"]
        stopping = threading.Event()
        statuses: set[int] = set()

        def write() -> None:
            headers = {"SVC-API-KEY": KEY}
            with httpx.Client(base_url=live.url, headers=headers, timeout=60) as client:
                while not stopping.is_set():
                    statuses.add(client.post("/tokenize", json=[CARD] * 5).status_code)

        writers = [threading.Thread(target=write) for _ in range(4)]
        for writer in writers:
            writer.start()
        seen: dict[bytes, int] = {}
        end_s = time.monotonic() + 2 + 2 * within_s
        while time.monotonic() < end_s:
            rows = _sealed_cvcs(path)
            assert min((until_ns for until_ns, _ in rows), default=time.time_ns()) > (
                time.time_ns() - (within_s + 1) * 1_000_000_000
            )
            seen.update({sealed: until_ns for until_ns, sealed in rows})
            due_ns = time.time_ns() - within_s * 1_000_000_000
            content = path.read_bytes() + path.with_name("a.db-wal").read_bytes()
            late = [sealed for sealed, until_ns in seen.items() if until_ns < due_ns]
            assert not [sealed for sealed in late if sealed in content]
            for sealed in late:
                del seen[sealed]
            time.sleep(0.5)
        stopping.set()
        for writer in writers:
            writer.join()
        assert statuses == {200}
        code, logged = live.stop()
        assert (code, logged) == (0, "")


HOLD = """
import sqlite3, sys, time
other = sqlite3.connect(sys.argv[1], isolation_level=None)
other.execute("BEGIN IMMEDIATE")
began_s = time.monotonic()
print("held", flush=True)
time.sleep(0.08)
other.execute("COMMIT")
print(time.monotonic() - began_s)
"""


@pytest.mark.slow
def test_a_lock_that_goes_in_time_is_waited_for(kept: Live, tmp_path: Path) -> None:
    """A store waits a quarter of a second for a lock of another program."""
    held_s = 1.0
    while held_s >= 0.2:  # where the machine paused, it did not go in time
        command = [sys.executable, "-c", HOLD, str(tmp_path / "a.db")]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as other:
            assert other.stdout is not None
            assert other.stdout.readline() == b"held\n"
            status = kept.ask("POST", "/tokenize", json=["x"]).status_code
            held_s = float(other.stdout.readline())
    assert status == 200
    large = ["x" * 20_000]  # which is answered in a thread
    assert kept.ask("POST", "/tokenize", json=large).status_code == 200


@pytest.mark.slow
def test_a_reader_in_the_way_holds_up_the_erasure_alone(kept: Live, tmp_path: Path) -> None:
    made = kept.ask("POST", "/tokens", json={"type": "token", "data": "Ada"}).json()["id"]
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM tokens").fetchone()
        assert kept.ask("DELETE", f"/tokens/{made}").status_code == 204
        log = tmp_path / "a.db-wal"
        took_s = []
        for _ in range(10):
            started_s = time.monotonic()
            assert kept.ask("POST", "/tokenize", json=["x"]).status_code == 200
            took_s.append(time.monotonic() - started_s)
        assert min(took_s) < 1  # each waited for a second, on an idle machine too
        assert log.stat().st_size > 0
        reader.execute("COMMIT")
    wait_until(lambda: log.stat().st_size == 0)


@pytest.mark.slow
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
    assert second.stderr.startswith(f"engine: store = {other} must have one owner")
    assert second.stderr.count("\n") == 1
    assert sorted(each.name for each in tmp_path.iterdir()) == before
    assert kept.ask("POST", "/tokenize", json=["x"]).status_code == 200


def test_a_hangup_drains_as_a_termination_does(tmp_path: Path) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)  # under nohup it is ignored
    try:
        with served(tmp_path) as live:
            assert live.stop(signal.SIGHUP) == (0, "")
    finally:
        signal.signal(signal.SIGHUP, before)


def _healthy(live: Live) -> bool:
    return live.ask("GET", "/healthz", key=None).status_code == 200


@pytest.mark.slow
@pytest.mark.parametrize("replaced", [False, True])
def test_a_file_that_was_removed_or_replaced_is_noticed(
    kept: Live, tmp_path: Path, *, replaced: bool
) -> None:
    assert _healthy(kept)
    token = kept.ask("POST", "/tokens", json=CARD).json()["id"]
    path = tmp_path / "a.db"
    if replaced:
        path.rename(tmp_path / "old.db")
        path.write_bytes((tmp_path / "old.db").read_bytes())
    else:
        path.unlink()
    wait_until(lambda: not _healthy(kept))
    refused = kept.ask("POST", "/tokenize", json=["would be lost"])
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    assert kept.ask("GET", f"/tokens/{token}").status_code == 200
    code, logged = kept.stop()
    assert code == 0
    assert f"store = {path} was removed or replaced" in logged
    assert "Traceback" not in logged


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="another process's limits are set there")
def test_reads_go_on_where_the_disk_is_full(kept: Live, tmp_path: Path) -> None:
    """A limit on the size of files stands in for a full disk; it goes when there is room again."""
    token = kept.ask("POST", "/tokens", json=CARD).json()["id"]
    before = resource.prlimit(kept.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(kept.process.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    refused = kept.ask("POST", "/tokenize", json=["x"])
    assert (refused.status_code, refused.headers["Retry-After"]) == (503, "5")
    wait_until(lambda: not _healthy(kept))
    assert kept.ask("GET", f"/tokens/{token}").json()["id"] == token
    assert kept.ask("GET", "/tokens").status_code == 200
    resource.prlimit(kept.process.pid, resource.RLIMIT_FSIZE, before)
    made = kept.ask("POST", "/tokenize", json=["x"])
    assert made.status_code == 200
    wait_until(lambda: _healthy(kept))
    assert kept.ask("GET", f"/tokens/{made.json()[0]}").status_code == 200
    assert "Traceback" not in kept.stop()[1]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one megabyte."""
    folder = tmp_path / "disk"
    folder.mkdir()
    try:
        command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        pytest.skip(f"this machine cannot mount: {error}")
    if done.returncode:
        pytest.skip(f"this machine lets nobody mount: {done.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="a tmpfs is mounted")
def test_a_disk_that_is_full_loses_nothing(small_disk: Path, tmp_path: Path) -> None:
    """TOK-ATOMIC: what was answered 200 is there, what was answered 503 is not, also at a start."""
    store, ballast = small_disk / "a.db", small_disk / "ballast"
    with served(tmp_path, "--store", str(store)) as live:
        kept = live.ask("POST", "/tokenize", json=["x"]).json()
        with ballast.open("wb", buffering=0) as file, contextlib.suppress(OSError):
            while True:
                file.write(bytes(4_096))
        statuses = set()
        for number in range(60):  # the first may fit in what the file has
            answer = live.ask("POST", "/tokenize", json=[f"{number:0500}"])
            statuses.add(answer.status_code)
            kept += answer.json() if answer.status_code == 200 else []
        assert statuses <= {200, 503}
        assert answer.status_code == 503
        wait_until(lambda: not _healthy(live))
        assert live.ask("GET", f"/tokens/{kept[0]}").status_code == 200
        ballast.unlink()
        wait_until(lambda: live.ask("POST", "/tokenize", json=["y"]).status_code == 200)
        wait_until(lambda: _healthy(live))
        found = {token: live.ask("GET", f"/tokens/{token}").status_code for token in kept}
        assert set(found.values()) == {200}
        assert "Traceback" not in live.stop()[1]
    with served(tmp_path, "--store", str(store)) as live:
        listed = live.ask("GET", "/tokens?size=100").json()["data"]
        assert {each["id"] for each in listed} >= set(kept)
        assert len(listed) == len(kept) + 1
        assert "Traceback" not in live.stop()[1]


@pytest.mark.slow
def test_what_does_not_open_is_one_line_that_names_table_and_row(
    kept: Live, tmp_path: Path
) -> None:
    token = kept.ask("POST", "/tokens", json=CARD | {"metadata": {"a": "b"}}).json()["id"]
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        sealed = bytearray(other.execute("SELECT sealed_data FROM tokens").fetchone()[0])
        sealed[-1] ^= 1
        other.execute("UPDATE tokens SET sealed_data = ?", (bytes(sealed),))
        failed = kept.ask("POST", "/detokenize", json=[f"{{{{ {token} }}}}"])
        assert failed.status_code == 500
        other.execute("UPDATE tokens SET record = x'ff'")
        assert kept.ask("GET", f"/tokens/{token}").status_code == 503
    lines = kept.stop()[1].splitlines()
    assert len(lines) == 2
    assert f"tokens row {token}: its data" in lines[0]
    assert f"the store is damaged: table tokens, row '{token}', column record" in lines[1]


@pytest.mark.slow
def test_a_damaged_store_is_not_served(tmp_path: Path) -> None:
    """A token whose index lost it would be unknown, though it is there."""
    path = tmp_path / "a.db"
    with served(tmp_path, "--store", str(path)) as live:
        token = live.ask("POST", "/tokens", json=CARD).json()["id"]
        assert live.stop() == (0, "")
    content = path.read_bytes()
    at = content.rfind(token.encode())
    path.write_bytes(content[:at] + b"~" + content[at + 1 :])
    before = path.read_bytes()
    command = [sys.executable, "-m", "engine", "serve", "--port", "0", "--store", str(path)]
    environment = {**os.environ, "TOLLGATE_MASTER_KEY": MASTER_KEY}
    refused = subprocess.run(
        command, check=False, capture_output=True, text=True, timeout=60, env=environment
    )
    assert refused.returncode == 2
    assert refused.stderr.count("\n") == 1
    said = f"engine: store = {path} is damaged; restore a backup: table "
    assert refused.stderr.startswith(said)
    assert "row 1 missing from index" in refused.stderr
    assert path.read_bytes() == before


@pytest.mark.slow
def test_a_wall_clock_that_was_set_back_brings_no_cvc_back(tmp_path: Path) -> None:
    """QUO-CVC, D-CLOCK: an earlier process has seen the cvc expire; `created_at` is wall time."""
    path = tmp_path / "a.db"
    with served(tmp_path, "--store", str(path)) as live:
        token = live.ask("POST", "/tokens", json=CARD).json()["id"]
        whole = live.ask("POST", "/detokenize", json=[f"{{{{ {token} }}}}"])
        assert whole.json()[0]["cvc"] == "123"
        assert live.stop() == (0, "")
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        later_ns = time.time_ns() + 2 * 3_600 * 1_000_000_000
        other.execute("INSERT OR REPLACE INTO state VALUES ('latest_ns', ?)", (later_ns,))
    with served(tmp_path, "--store", str(path)) as live:
        shown = live.ask("POST", "/detokenize", json=[f"{{{{ {token} }}}}"])
        assert shown.json() == [{"number": "4242424242424242"}]
        made = live.ask("POST", "/tokens", json=CARD).json()
        age = datetime.now(UTC) - datetime.fromisoformat(made["created_at"])
        assert abs(age) < timedelta(minutes=5)
        fresh = live.ask("POST", "/detokenize", json=[f"{{{{ {made['id']} }}}}"])
        assert fresh.json()[0]["cvc"] == "123"


def test_created_at_follows_the_wall_clock_and_deadlines_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D-CLOCK: somebody sets the machine's clock while the service runs."""
    clock = SystemClock()
    before_ns = clock.steady_ns
    real = time.time_ns
    hour_ns = 3_600 * 1_000_000_000
    for set_by_ns in (-hour_ns, hour_ns):
        monkeypatch.setattr(time, "time_ns", lambda by_ns=set_by_ns: real() + by_ns)
        assert abs(clock.wall_ns - real() - set_by_ns) < hour_ns / 2
        steady_ns = clock.steady_ns
        assert before_ns <= steady_ns < before_ns + hour_ns / 2
    clock.not_before(steady_ns + 5 * hour_ns)
    assert clock.steady_ns >= steady_ns + 5 * hour_ns
