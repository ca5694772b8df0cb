"""A store file with flipped bytes is served whole or refused in one line, and left as it was."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from engine import Engine, SqliteStore
from tests.engine.deployment import CARD, Deployment
from tests.engine.http.live import MASTER_KEY

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with some tokens."""
    path = tmp_path_factory.mktemp("whole") / "a.sqlite"
    master_key = bytes.fromhex(MASTER_KEY)
    with Engine(store=SqliteStore(path), master_key=master_key) as engine:
        acme = Deployment(engine)
        for number in range(30):
            acme.tokenize([f"value {number}", CARD])
    return path.read_bytes()


def _index(content: bytes) -> bytes:
    """Damage a table's index: an id in it is another one."""
    place = content.rindex(b"token:create")
    return content[:place] + b"tokem:create" + content[place + 12 :]


def _schema(content: bytes) -> bytes:
    return content.replace(b"CREATE TABLE secrets", b"CREATE TABLE \xc5ecrets")


def _random(seed: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        draw, changed = random.Random(seed), bytearray(content)
        for _ in range(draw.choice([1, 20, 200])):
            changed[draw.randrange(100, len(changed))] ^= 1 << draw.randrange(8)
        return bytes(changed)

    return flip


@pytest.mark.parametrize(
    "damage",
    [_schema, _index, *map(_random, range(6))],
    ids=["schema", "index", *map(str, range(6))],
)
def test_a_damaged_store_is_one_line_or_serves(
    tmp_path: Path, whole: bytes, damage: Callable[[bytes], bytes]
) -> None:
    path = tmp_path / "a.sqlite"
    content = damage(whole)
    path.write_bytes(content)
    path.chmod(0o644)
    command = [sys.executable, "-m", "engine", "serve", "--store", str(path), "--port", "0"]
    environment = {**os.environ, "TOLLGATE_MASTER_KEY": MASTER_KEY}
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    ) as server:
        assert server.stdout is not None
        serves = bool(server.stdout.readline())
        if serves:  # what was hit was free
            server.send_signal(signal.SIGTERM)
        _, said = server.communicate()
    if serves:
        assert (server.returncode, said) == (0, "")
        return
    assert server.returncode == 2
    assert len(said.splitlines()) == 1, said
    assert said.startswith(f"engine: store = {path} ")
    assert path.read_bytes() == content
    assert path.stat().st_mode & 0o777 == 0o644
    assert [each.name for each in tmp_path.iterdir()] == ["a.sqlite"]
