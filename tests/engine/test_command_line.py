"""How a command ends: the same exit codes and one line of error in every package."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys

import pytest

from engine.command_line import number_of, run_command
from engine.errors import InputError


@pytest.mark.parametrize("package", ["engine", "simulator", "conformance"])
def test_a_reader_that_stops_early_is_no_error(package: str) -> None:
    """What is printed goes to a closed pipe: no traceback, and exit code 0."""
    words = {"engine": "profile", "simulator": "scenarios", "conformance": "list"}[package]
    reading, writing = os.pipe()
    os.close(reading)
    try:
        command = [sys.executable, "-m", package, words]
        done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, check=False)
    finally:
        os.close(writing)
    assert (done.returncode, done.stderr) == (0, b"")


def _failing(error: BaseException) -> int:
    raise error


@pytest.mark.parametrize(
    ("error", "code", "says"),
    [
        (InputError("--x = 1 must be 2"), 2, "tool: --x = 1 must be 2\n"),
        (OSError(28, "No space left on device"), 2, "tool: No space left on device\n"),
        (FileNotFoundError(2, "No such file", "a.toml"), 2, "tool: a.toml: No such file\n"),
        (KeyboardInterrupt(), 130, "tool: interrupted\n"),
    ],
)
def test_an_error_is_one_line(
    error: BaseException, code: int, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_command("tool", lambda: _failing(error)) == code
    assert capsys.readouterr().err == says


def test_the_code_of_a_command_is_its_own() -> None:
    assert run_command("tool", lambda: 1) == 1


@pytest.mark.parametrize("text", ["0", "8080", "65535", "000000000000080"])
def test_a_number_of_a_flag_is_read_between_its_bounds(text: str) -> None:
    assert number_of("a port", 0, 65_535)(text) == int(text)


@pytest.mark.parametrize("text", ["65536", "-1", "+1", "1.0", "", " 1", "٣", "²", "9" * 5000])
def test_a_flag_says_which_numbers_it_takes(text: str) -> None:
    """Also for more digits than Python turns into a number."""
    with pytest.raises(argparse.ArgumentTypeError) as refused:
        number_of("a port", 0, 65_535)(text)
    assert str(refused.value) == f"{text!r} must be a port from 0 to 65535"
