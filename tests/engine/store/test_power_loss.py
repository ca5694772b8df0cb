"""Power loss: of what was written, any part that was not synced yet may be missing.

A store's system calls are recorded by strace. At each sync, and at each commit that has returned,
the files are built anew from what was synced, with all, none or some of the later writes, and
opened as after a restart: every commit that had returned is there, and each is whole or not at all.
"""

from __future__ import annotations

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
