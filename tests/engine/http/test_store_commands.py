"""`backup` and `rotate-key`: beside a server, with kills in the middle, and told in one line."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path

import httpx
import pytest

from engine import Engine, ManualClock, ModelWorld, Request, SqliteStore
from engine.cli import main
from engine.errors import VaultError
from tests.engine.http.live import KEY, MASTER_KEY, served, wait_until

OLD, NEW = bytes.fromhex(MASTER_KEY), bytes.fromhex("22" * 32)
KEYS = {"TOLLGATE_MASTER_KEY": OLD.hex(), "TOLLGATE_NEW_MASTER_KEY": NEW.hex()}


def command(*arguments: str, keys: Mapping[str, str] = KEYS) -> tuple[int, str]:
    said = io.StringIO()
    with (
        pytest.MonkeyPatch.context() as patch,
        contextlib.redirect_stdout(said),
        contextlib.redirect_stderr(said),
    ):
        for name in KEYS:
            patch.delenv(name, raising=False)
        for name, value in keys.items():
            patch.setenv(name, value)
        code = main(arguments)
    return code, said.getvalue()


def opened(path: Path, master_key: bytes) -> Engine:
    store = SqliteStore(path)
    try:
        return Engine(store=store, master_key=master_key, world=ModelWorld(clock=ManualClock()))
    except VaultError:
        store.close()
        raise


@pytest.fixture
def made(tmp_path: Path) -> tuple[Path, list[tuple[str, str]]]:
    """A store of three tenants; each one's API key and a token of it."""
    path, known = tmp_path / "a.db", []
    with opened(path, OLD) as engine:
        for number in range(3):
            tenant = engine.create_tenant(f"tenant {number}")
            rights = {"token:create", "token:read"}
            app = engine.create_application(tenant, "app", grants=[("/", rights)])
            key = engine.create_key(app)
            answer = engine.handle(
                Request("POST", "/tokenize", ip="192.0.2.1", key=key, body=[f"x{number}"])
            )
            known.append((str(key), answer.body[0]))
    return path, known


def check(path: Path, master_key: bytes, known: list[tuple[str, str]]) -> None:
    with opened(path, master_key) as engine:
        for number, (key, token) in enumerate(known):
            asked = Request(
                "POST", "/detokenize", ip="192.0.2.1", key=key, body=[f"{{{{ {token} }}}}"]
            )
            assert engine.handle(asked).body == [f"x{number}"]


def test_a_rotated_store_opens_with_the_new_key_alone(
    made: tuple[Path, list[tuple[str, str]]],
) -> None:
    path, known = made
    code, said = command("rotate-key", "--store", str(path))
    assert (code, said.count("\n")) == (0, 1), said
    assert said.startswith(f"{path}: 3 keys are under the new master key")
    with pytest.raises(VaultError):
        check(path, OLD, known)
    check(path, NEW, known)
    assert OLD.hex() not in said
    code, said = command("rotate-key", "--store", str(path))
    assert code == 2
    assert said.startswith(f"engine: master_key must be the one that {path} was made with")


@pytest.mark.parametrize("after", [1, 2, 3])
def test_a_kill_in_the_middle_of_a_rotation_leaves_the_old_key_in_force(
    made: tuple[Path, list[tuple[str, str]]], after: int
) -> None:
    path, known = made
    script = (
        "import os, sys\n"
        "from engine.cli import main\n"
        "from engine.store import SqliteStore\n"
        "put, left = SqliteStore.put_secret, [int(sys.argv[1])]\n"
        "def counted(store, name, wrapped):\n"
        "    put(store, name, wrapped)\n"
        "    left[0] -= 1\n"
        "    if not left[0]: os._exit(9)\n"
        "SqliteStore.put_secret = counted\n"
        "sys.exit(main(['rotate-key', '--store', sys.argv[2]]))\n"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script, str(after), str(path)],
        check=False,
        env={**os.environ, **KEYS},
        timeout=60,
    )
    assert ran.returncode == 9
    check(path, OLD, known)
    assert command("rotate-key", "--store", str(path))[0] == 0
    check(path, NEW, known)


@pytest.mark.slow
def test_a_backup_goes_beside_a_server_and_a_rotation_is_refused(tmp_path: Path) -> None:
    path, copy = tmp_path / "a.db", tmp_path / "copy.db"
    made: list[str] = []
    with served(tmp_path, "--store", str(path)) as live:
        stopping = threading.Event()

        def ask() -> None:
            with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": KEY}) as client:
                while not stopping.is_set():
                    answer = client.post("/tokenize", json=[f"value {len(made)}"])
                    assert answer.status_code == 200
                    made.append(answer.json()[0])

        asking = threading.Thread(target=ask)
        asking.start()
        wait_until(lambda: len(made) > 5)
        code, said = command("backup", str(copy), "--store", str(path))
        at_least = len(made)
        assert (code, said.endswith("a whole store\n")) == (0, True), said
        code, said = command("rotate-key", "--store", str(path))
        assert (code, said.count("\n")) == (2, 1)
        assert "must have one owner" in said
        stopping.set()
        asking.join()
        assert live.ask("POST", "/tokenize", json=["goes on"]).status_code == 200
        assert live.stop() == (0, "")
    assert copy.stat().st_mode & 0o777 == 0o600
    assert sorted(each.name for each in tmp_path.glob("*copy*")) == ["copy.db"]
    with opened(path, OLD) as engine:
        asked = [f"{{{{ {made[0]} }}}}", f"{{{{ {made[-1]} }}}}"]
        answer = engine.handle(Request("POST", "/detokenize", ip="192.0.2.1", key=KEY, body=asked))
        assert answer.body == ["value 0", f"value {len(made) - 1}"]
    with opened(copy, OLD) as engine, engine.services.store.transaction(write=False):
        (tenant,) = engine.services.store.tenants()
        assert 0 <= engine.services.store.count_tokens(tenant.id) <= at_least + 1


def test_what_cannot_be_done_is_one_line_and_changes_nothing(
    made: tuple[Path, list[tuple[str, str]]], tmp_path: Path
) -> None:
    path, known = made
    (tmp_path / "there").write_bytes(b"mine")
    (tmp_path / "foreign").write_bytes(b"no store " * 999)
    for arguments, keys, says in (
        (("backup", str(tmp_path / "there"), "--store", str(path)), {}, "there must be a file to"),
        (("backup", str(tmp_path / "b"), "--store", str(tmp_path / "no")), {}, "must be a store"),
        (("backup", str(tmp_path / "b"), "--store", str(tmp_path / "foreign")), {}, "a whole Toll"),
        (("rotate-key", "--store", str(tmp_path / "no")), KEYS, "must be a store that exists"),
        (("rotate-key", "--store", str(path)), {"TOLLGATE_MASTER_KEY": OLD.hex()}, "_NEW_MASTER_"),
        (
            ("rotate-key", "--store", str(path)),
            {**KEYS, "TOLLGATE_NEW_MASTER_KEY": OLD.hex()},
            "must be another key",
        ),
    ):
        before = sorted(each.name for each in tmp_path.iterdir())
        code, said = command(*arguments, keys=keys)
        assert (code, said.count("\n"), says in said) == (2, 1, True), said
        assert sorted(each.name for each in tmp_path.iterdir()) == before
    assert (tmp_path / "there").read_bytes() == b"mine"
    check(path, OLD, known)


def test_a_killed_backup_does_not_block_the_next_one(
    made: tuple[Path, list[tuple[str, str]]], tmp_path: Path
) -> None:
    copy = tmp_path / "copy.db"
    (tmp_path / ".copy.db.part").write_bytes(b"half of a copy")
    assert command("backup", str(copy), "--store", str(made[0]))[0] == 0
    assert not list(tmp_path.glob(".copy*"))
    with opened(copy, OLD) as engine:
        assert len(engine.tenants()) == 3


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no such files")
def test_a_store_that_is_no_regular_file_is_refused_at_once(tmp_path: Path) -> None:
    """It hung: a FIFO is opened only when somebody writes to it."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    arguments = ("-m", "engine", "serve", "--port", "0", "--demo", "--store", str(path))
    environment = {**os.environ, **KEYS}
    ran = subprocess.run(
        [sys.executable, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env=environment,
        timeout=60,
    )
    path.unlink()
    assert ran.returncode == 2
    assert "regular file" in ran.stderr
    assert ran.stderr.count("\n") == 1
