"""How a command ends: the same exit codes and one line of error in every package."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from engine import LimitTable, Profile
from engine.cli import main
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


@pytest.mark.parametrize("package", ["engine", "simulator", "conformance"])
def test_every_command_prints_its_version(package: str, capsys: pytest.CaptureFixture[str]) -> None:
    module = importlib.import_module(package)
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"{package}.cli").main(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"tollgate {module.__version__}\n")


@pytest.mark.parametrize(
    ("package", "words", "hint"),
    [
        ("engine", ["limits", "--tomll"], "--toml"),
        ("simulator", ["run", "everyday", "--sed=3"], "--seed"),
        ("conformance", ["run", "target.toml", "--plann"], "--plan"),
    ],
)
def test_an_unknown_option_prints_the_usage_of_its_command(
    package: str, words: list[str], hint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        importlib.import_module(f"{package}.cli").main(words)
    message = capsys.readouterr().err
    assert ended.value.code == 2
    assert message.startswith(f"usage: python -m {package} {words[0]} ")
    assert f"unrecognized arguments: {words[-1]}; did you mean {hint!r}?" in message


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "line", "completion"),
    [
        ("engine", "tollgate-engine serve --acc", "--access-log"),
        ("simulator", "tollgate-simulator run everyday --fid", "--fidelity"),
        ("simulator", "tollgate-simulator swe", "sweep"),
        ("conformance", "tollgate-conformance run --base", "--baseline"),
    ],
)
def test_a_shell_completes_commands_and_options(
    command: str, line: str, completion: str, tmp_path: Path
) -> None:
    out = tmp_path / "completions"
    environment = os.environ | {
        "_ARGCOMPLETE": "1",
        "_ARGCOMPLETE_STDOUT_FILENAME": str(out),
        "_ARGCOMPLETE_SUPPRESS_SPACE": "1",
        "COMP_LINE": line,
        "COMP_POINT": str(len(line)),
    }
    program = f"from {command}.cli import main; main()"
    subprocess.run([sys.executable, "-c", program], env=environment, check=True)
    assert completion in re.split(r"[\v\s]+", out.read_text(encoding="utf-8"))


# --- commands that print files -------------------------------------------------------------------


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
