"""What a SQLite store says when its file, its lock or its neighbours are not as they should be."""

from __future__ import annotations

import sqlite3
import stat
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.errors import StoreError
from engine.store import SqliteStore, TokenFilter, back_up
from engine.store.sqlite_file import _damage
from tests.engine.store._records import TENANT, token


def _held(path: Path) -> list[str]:
    with closing(SqliteStore(path)) as store, store.transaction(write=False):
        return [each.id for each in store.find_tokens(TENANT, TokenFilter(), size=9)]


def _made(path: Path, *numbers: int) -> None:
    with closing(SqliteStore(path)) as store, store.transaction():
        store.add_tokens([token(number) for number in numbers])


@pytest.mark.parametrize("name", ["a\0b", "a\ud800b"])
def test_what_can_be_no_file_name_is_said_in_ascii(tmp_path: Path, name: str) -> None:
    with pytest.raises(
        StoreError, match="must be a file's path; no file can have that name"
    ) as said:
        SqliteStore(tmp_path / name)
    assert str(said.value).isascii()


@pytest.mark.parametrize("is_replaced", [False, True])
def test_nothing_is_written_to_a_file_that_is_gone(path: Path, is_replaced: bool) -> None:
    """What is written to a file without a name is lost with the process."""
    with closing(SqliteStore(path)) as store:
        path.rename(path.with_name("moved"))
        if is_replaced:
            path.write_bytes(b"")
        for _ in range(2):
            with pytest.raises(StoreError, match="was removed or replaced; start again with it"):
                store.begin()
        path.unlink(missing_ok=True)
        path.with_name("moved").rename(path)
        with store.transaction():
            store.add_tokens([token(1)])
    assert len(_held(path)) == 1


def test_a_closed_store_says_so_in_its_own_words(path: Path) -> None:
    store = SqliteStore(path)
    store.close()
    with pytest.raises(StoreError, match="the store file failed: Cannot operate on a closed"):
        store.begin()


def test_a_backup_is_a_whole_store_of_its_own(path: Path) -> None:
    _made(path, 1, 2)
    copy = path.with_name("copy")
    with closing(SqliteStore(path)) as store, store.transaction():
        store.add_tokens([token(3)])
        size = back_up(path, copy)  # before the commit
    assert size == copy.stat().st_size > 0
    assert stat.S_IMODE(copy.stat().st_mode) == 0o600
    assert [len(_held(copy)), len(_held(path))] == [2, 3]
    assert not [each for each in path.parent.iterdir() if each.name.endswith(".part")]


def test_a_backup_replaces_nothing_and_leaves_nothing_behind(path: Path) -> None:
    _made(path, 1)
    taken = path.with_name("taken")
    taken.write_text("mine")
    with pytest.raises(StoreError, match="taken must be a file to make: file exists"):
        back_up(path, taken)
    assert taken.read_text() == "mine"
    with pytest.raises(StoreError, match="part must be a file that can be made: no such file"):
        back_up(path, path.with_name("nowhere") / "copy")
    assert {each.name for each in path.parent.iterdir()} == {path.name, "taken"}


_SHARED_LOCK = """
import fcntl, sys
with open(sys.argv[1], "r+b") as file:
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)
"""
"""Takes the bytes at which SQLite locks a file that it has open."""


def test_a_backup_in_this_process_keeps_sqlites_lock_on_the_file(path: Path) -> None:
    """To open and close a file beside SQLite drops every lock of the process on it."""
    with closing(SqliteStore(path)) as store:
        with store.transaction(write=False):
            store.tenants()
        back_up(path, path.with_name("copy"))
        command = [sys.executable, "-c", _SHARED_LOCK, str(path)]
        taken = subprocess.run(command, capture_output=True, check=False)
    assert b"BlockingIOError" in taken.stderr


def test_a_damaged_store_is_not_copied(path: Path) -> None:
    _made(path, *range(1, 200))
    with closing(sqlite3.connect(path)) as store:
        ((root,),) = store.execute(
            "SELECT rootpage FROM sqlite_schema WHERE name = 'tokens_listed'"
        )
    content = bytearray(path.read_bytes())
    size = int.from_bytes(content[16:18], "big")
    content[(root - 1) * size : (root - 1) * size + 60] = bytes(60)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged: table tokens: "):
        back_up(path, path.with_name("copy"))
    assert not [each for each in path.parent.iterdir() if "copy" in each.name]


def test_damage_names_the_table() -> None:
    """SQLite names an index or the number of a root page."""

    class Reader:
        """A database that reports one finding."""

        def __init__(self, finding: str) -> None:
            self.finding = finding

        def execute(self, sql: str, names: tuple[str | None, ...] = ()) -> Any:
            row = (self.finding,) if "integrity" in sql else None
            if row is None and names[0] == "tokens_listed":
                row = ("tokens",)
            if row is None and names[1] == "7":
                row = ("logs",)
            return SimpleNamespace(fetchone=lambda: row)

    for finding, expected in (
        ("ok", None),
        ("row 3 missing from index tokens_listed", "table tokens: {}"),
        ("Tree 7 page 7: btree", "table logs: {}"),
        ("Tree 99999 page 1: x", "{}"),
        ("Freelist: size is 3 but should be 1", "{}"),
    ):
        reader: Any = Reader(finding)
        assert _damage(reader) == (expected and expected.format(finding))
    reader = Reader("*** in database main ***\nTree 7 page 9: x\nmore")
    assert _damage(reader) == "table logs: Tree 7 page 9: x"


def test_a_file_has_one_owner(path: Path) -> None:
    """A second process, and a second store of this one, is refused in one line."""
    rule = "must have one owner; stop the other one first"
    script = "import sys; from engine.store import SqliteStore; SqliteStore(sys.argv[1])"
    with closing(SqliteStore(path)) as store:
        with pytest.raises(StoreError) as refused:
            SqliteStore(path)
        assert str(refused.value) == f"store = {path} {rule}"
        link = path.with_name("link")
        link.symlink_to(path)
        command = [sys.executable, "-c", script, str(link)]
        ran = subprocess.run(command, capture_output=True, check=False, text=True)
        assert ran.stderr.splitlines()[-1].endswith(f"store = {link} {rule}")
        with store.transaction():
            store.add_tokens([token(1)])
    assert subprocess.run(command, check=False).returncode == 0
    assert len(_held(path)) == 1
