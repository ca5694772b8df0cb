"""The make targets are the documented ones, and each stands for the command that it promises."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

TARGETS = {
    "bench", "check", "help", "lab", "lock", "notebooks", "release", "run", "setup", "test",
    "test-all", "wheel",
}  # fmt: skip  # reason: a list of words


def _make(repository: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MAKE", "MFLAGS"))}
    command = ["make", "--no-print-directory", *arguments]
    return subprocess.run(
        command, cwd=repository, env=inherited, capture_output=True, text=True, check=False
    )


def test_help_lists_every_target(repository: Path) -> None:
    listed = re.findall(r"^make (\S+)", _make(repository, "help").stdout, re.MULTILINE)
    assert set(listed) == TARGETS
    assert len(listed) == len(TARGETS)


@pytest.mark.parametrize(
    ("target", "command"),
    [
        ("run", "-m simulator run everyday --force --out runs/make-run"),
        ("test", '-m "not slow"'),
        ("check", "-m mypy"),
        ("bench", "-m tests.benchmarks"),
        ("lab", "-m jupyter lab"),
        ("wheel", "-m build --no-isolation"),
        ("release", "git tag --annotate"),
    ],
)
def test_a_target_stands_for_its_command(repository: Path, target: str, command: str) -> None:
    assert command in _make(repository, "--dry-run", target).stdout


def test_big_asks_for_the_largest_benchmarks(repository: Path) -> None:
    assert "--big" in _make(repository, "--dry-run", "bench", "BIG=1").stdout
    assert "--big" not in _make(repository, "--dry-run", "bench").stdout


def test_an_old_python_stops_with_one_clear_line(repository: Path, tmp_path: Path) -> None:
    old = tmp_path / "python3"
    old.write_text(
        f'#!/bin/sh\nexec "{sys.executable}" -c "import sys; sys.version_info = (3, 9, 2)\n$2"\n',
        encoding="utf-8",
    )
    old.chmod(0o755)
    venv = tmp_path / "venv"
    ran = _make(repository, "setup", f"PYTHON={old}", f"VENV={venv}")
    assert ran.stderr.splitlines()[0] == (
        "python = 3.9 must be 3.11 to 3.14; choose another with make PYTHON=python3.12"
    )
    assert "Traceback" not in ran.stderr
    assert not venv.exists()
