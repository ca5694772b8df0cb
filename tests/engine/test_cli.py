"""The commands that print what a file may hold: what is printed can be changed and handed back."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import LimitTable, Profile
from engine.cli import main


def test_the_limit_table_is_printed_by_row(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["limits"]) == 0
    printed = capsys.readouterr().out
    first_words = {line.split()[0] for line in printed.splitlines() if line}
    assert first_words >= {rule.id for rule in LimitTable.default()}


def test_a_printed_table_is_a_table_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["limits", "--toml"]) == 0
    file = tmp_path / "limits.toml"
    file.write_text(capsys.readouterr().out.replace('"2000/10s"', '"3000/10s"'))
    assert LimitTable.from_toml(file)["LIM-IP"].limit_requests == 3000
    assert main(["limits", str(file)]) == 0
    assert "3000/10s" in capsys.readouterr().out


def test_a_printed_profile_is_a_profile_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["profile"]) == 0
    file = tmp_path / "profile.toml"
    file.write_text(capsys.readouterr().out.replace('"sliding-log"', '"gcra"'))
    assert Profile.from_toml(file) == Profile().replace(limits={"algorithm": "gcra"})
    assert main(["profile", str(file)]) == 0
    assert '"gcra"' in capsys.readouterr().out


@pytest.mark.parametrize("command", ["limits", "profile"])
def test_a_file_that_is_none_is_one_line(
    command: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, str(tmp_path / "none.toml")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("engine: ")
    assert said.err.count("\n") == 1
