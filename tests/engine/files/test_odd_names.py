"""What no file can be called is told as any other bad path, in one line that can be printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import LimitTable, Profile
from engine.cli import main
from engine.errors import InputError, StoreError
from engine.store import SqliteStore

NAMES = ["a\0b", "\ud800"]


@pytest.mark.parametrize("name", NAMES)
def test_no_store_is_opened_under_what_is_no_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(StoreError, match=r"no file can have that name$") as caught:
        SqliteStore(tmp_path / name)
    assert str(caught.value).startswith(f"store = '{tmp_path}/")
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("read", [LimitTable.from_toml, Profile.from_toml])
def test_no_file_is_read_under_what_is_no_name(name: str, read: object) -> None:
    with pytest.raises(InputError, match=r"^'.*': no file can have that name$") as caught:
        read(name)  # type: ignore[operator] # reason: one of the two above
    assert str(caught.value).isascii()
    assert str(caught.value).isprintable()


def test_a_configuration_that_names_no_file_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A TOML text may hold what a command line cannot."""
    file = tmp_path / "serve.toml"
    file.write_text(f'store = "a\\u0000b"\nmaster_key = "{"00" * 32}"\n')
    assert main(["serve", "--config", str(file), "--port", "0"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert (
        said.err == "engine: store = 'a\\x00b' must be a file's path; no file can have that name\n"
    )
