"""Rounds of kill -9 over one store: what was answered is there, and a request is whole or nothing.

Each round forks a process that opens the store and tokenizes until it is killed, at any instant:
while it opens, recovers, writes, erases or scrubs; in every second round, after its first answer.
`BIG=1` makes 200 rounds.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from engine.store import SqliteStore
from tests.engine.store._records import TENANT, uuid

ROUNDS = 200 if os.environ.get("BIG", "0") not in {"", "0"} else 25
SCRIPT = """
import asyncio, os, random, select, signal, sys, time
from engine import Engine, LimitTable, Request, SqliteStore
from engine.http.system import SystemWorld

path, rounds, chance = sys.argv[1], int(sys.argv[2]), random.Random(7)

limits = LimitTable.default()
for rule in limits:
    limits = limits.replace_rule(rule.id, rate="1000000/10s")

def opened():
    world = SystemWorld()
    return Engine(store=SqliteStore(path), master_key=b"m" * 32, world=world, limits=limits)

def asked(method, where, key, body=None):
    return Request(method, where, ip="192.0.2.1", key=key, body=body)

with opened() as engine:
    tenant = engine.create_tenant("Acme")
    for rule in ("Tokenize Limit", "Detokenize Limit"):
        engine.set_quota(tenant, rule, 1_000_000)
    engine.set_quota(tenant, "CVC Retention", 50_000_000)
    rights = {"token:create", "token:read", "token:delete"}
    key = str(engine.create_key(engine.create_application(tenant, "app", grants=[("/", rights)])))

CARD = {"type": "card", "data": {"number": "4242424242424242", "cvc": "123"}}
kept, deleted, either = {}, set(), set()  # being deleted when the kill came: either
for turn in range(rounds):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        with opened() as engine:
            number = 0
            while True:
                values = [f"{turn} {number} {place}" for place in range(3)]
                made = engine.handle(asked("POST", "/tokenize", key, [*values, CARD])).body
                os.write(writer, f"+{made[0]} {made[1]} {made[2]} {turn}-{number}\\n".encode())
                if number % 5 == 4:
                    os.write(writer, f"?{made[0]}\\n".encode())
                    engine.handle(asked("DELETE", f"/tokens/{made[0]}", key))
                    os.write(writer, f"-{made[0]}\\n".encode())
                number += 1
    os.close(writer)
    if turn % 2 == 0:
        select.select([reader], [], [])
    time.sleep(chance.uniform(0.0, 0.25))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    with os.fdopen(reader) as lines:
        for line in lines:
            if line[0] in "?-":
                (deleted if line[0] == "-" else either).add(line[1:].strip())
                continue
            *ids, what = line[1:].split()
            first, _, second = what.partition("-")
            kept.update({each: f"{first} {second} {at}" for at, each in enumerate(ids)})
with opened() as engine, asyncio.Runner() as runner:
    lost = 0
    for token, value in kept.items():
        answer = runner.run(
            engine.submit(asked("POST", "/detokenize", key, ["{{ " + token + " }}"]))
        )
        if token in deleted:
            lost += answer.status != 400
        elif token not in either:
            lost += answer.body != [value]
    store = engine.services.store
    with store.transaction(write=False):
        count = store.count_tokens(tenant.id)
    print(len(kept), lost, count)
SqliteStore(path, checked_bytes=10**9).close()
"""


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "fork"), reason="a killed process is forked")
def test_no_kill_loses_what_was_answered(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path / "a.db"), str(ROUNDS)]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=900)
    assert ran.returncode == 0, ran.stderr
    kept, lost, _ = ran.stdout.split()
    assert int(kept) > ROUNDS
    assert int(lost) == 0
    print(f"{ROUNDS} kills, {kept} tokens answered, {lost} lost")  # noqa: T201 # reason: for -s


# --- power loss ----------------------------------------------------------------------------------


STRACE = shutil.which("strace")
WORK = """
import os, sys
from pathlib import Path
from engine.store import SqliteStore
from tests.engine.store._records import TENANT, card, token, uuid

said = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT)
store = SqliteStore(Path(sys.argv[1]), truncates=False)
for step in range(12):
    with store.transaction():
        store.add_tokens([token(2 * step), card(2 * step + 1, 50)])
    os.write(said, b"+%d\\n" % step)
    if step % 4 == 3:
        with store.transaction():
            for number in (2 * step - 2, 2 * step - 1):
                store.delete_token(TENANT, uuid(number))
        os.write(said, b"-%d\\n" % (step - 1))
        store.truncate_log()
"""
CALL = re.compile(rb"(\w+)\(\d+<([^>]*)>(?:, (.*))?\) += (\d+)")


class Disk:
    """What is on the disk for sure, and what was written since, file by file."""

    def __init__(self) -> None:
        self.synced: dict[bytes, bytearray] = {}
        self.later: dict[bytes, list[tuple[int, bytes | None]]] = {}

    def write(self, path: bytes, at: int, data: bytes | None) -> None:
        """Write at a place; with no data, cut the file there."""
        self.later.setdefault(path, []).append((at, data))

    def sync(self, path: bytes) -> None:
        held = self.synced.setdefault(path, bytearray())
        for at, data in self.later.pop(path, []):
            _apply(held, at, data)

    def images(self, chance: random.Random) -> Iterator[dict[bytes, bytes]]:
        """Yield what may be found after a loss of power now."""
        for share in (0.0, 1.0, 0.5):
            image = {path: bytearray(held) for path, held in self.synced.items()}
            for path, writes in self.later.items():
                held = image.setdefault(path, bytearray())
                for at, data in writes:
                    if chance.random() < share:
                        _apply(held, at, data)
            yield {path: bytes(held) for path, held in image.items()}


def _apply(held: bytearray, at: int, data: bytes | None) -> None:
    if data is None:
        del held[at:]
        return
    held.extend(bytes(max(0, at - len(held))))
    held[at : at + len(data)] = data


def _bytes(quoted: bytes) -> bytes:
    return bytes.fromhex(quoted.replace(b"\\x", b"").decode())


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, list[bytes]]:
    """A store's path and the system calls of its work."""
    folder = tmp_path_factory.mktemp("power")
    command = [
        *(str(STRACE), "-f", "-y", "-xx", "-s", "200000", "-o", str(folder / "trace")),
        *("-e", "trace=write,pwrite64,ftruncate,fsync,fdatasync"),
        *(sys.executable, "-c", WORK, str(folder / "a.db"), str(folder / "said")),
    ]
    ran = subprocess.run(command, check=False, capture_output=True, text=True, timeout=100)
    if "ptrace" in ran.stderr:
        pytest.skip("this system lets nobody trace")  # reason: as containers are configured
    assert ran.returncode == 0, ran.stderr
    return folder / "a.db", (folder / "trace").read_bytes().splitlines()


def _check(folder: Path, image: dict[bytes, bytes], there: set[int], gone: set[int]) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for path, content in image.items():
        (folder / Path(path.decode()).name).write_bytes(content)
    with (
        closing(SqliteStore(folder / "a.db", checked_bytes=10**9)) as store,
        store.transaction(write=False),
    ):
        for step in range(12):
            found = [
                store.token(TENANT, uuid(number)) is not None for number in (2 * step, 2 * step + 1)
            ]
            assert found[0] == found[1], "a commit is whole or not at all"
            assert found[0] or step not in there - gone, "what was committed is there"
            assert not (found[0] and step in gone), "what was deleted is gone"


@pytest.mark.slow
@pytest.mark.skipif(STRACE is None, reason="strace records what is written")
def test_a_loss_of_power_loses_no_commit_and_tears_none(
    trace: tuple[Path, list[bytes]], tmp_path: Path
) -> None:
    store_path, lines = trace
    names = {str(store_path).encode() + end for end in (b"", b"-wal")}
    disk, chance = Disk(), random.Random(7)
    there, gone = set[int](), set[int]()
    points = 0
    for line in lines:
        found = CALL.search(line)
        if found is None:
            continue
        call, quoted, rest = found[1], found[2], found[3]
        path = _bytes(quoted) if quoted.startswith(b"\\x") else quoted
        if path.endswith(b"/said"):
            word = _bytes(rest.split(b'"')[1])
            (there if word[:1] == b"+" else gone).add(int(word[1:]))
        elif path not in names:
            continue
        elif call == b"pwrite64":
            _, data, tail = rest.split(b'"')
            disk.write(path, int(tail.split(b",")[2]), _bytes(data))
            continue
        elif call == b"ftruncate":
            disk.write(path, int(rest), None)
            continue
        if not disk.synced and not there:
            disk.sync(path)
            continue  # a store that is not made yet
        for image in disk.images(chance):
            points += 1
            # A delete that has not returned yet may have happened or not.
            deleting = {step for step in (2, 6, 10) if step in there and step not in gone}
            _check(tmp_path / "image", image, there - deleting, gone)
        if call in {b"fsync", b"fdatasync"}:
            disk.sync(path)
    assert (len(there), len(gone)) == (12, 3)
    assert points > 60
