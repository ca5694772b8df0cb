"""Every command and example of the README and of CONTRIBUTING runs as it is written.

`sh` blocks run whole, in an empty folder, with the environment's commands on the path; the lines
that only set up (`make …`, activating the environment) are held against the Makefile instead: a
test that ran `make test` would run itself. `python` blocks run top to bottom in one process.
"""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.house._files import ROOT
from tests.house.test_make import TARGETS

_PAGES = ("README.md", "CONTRIBUTING.md")
_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ACTIVATE = ". .venv/bin/activate"


def _blocks(language: str) -> list[ParameterSet]:
    found: list[ParameterSet] = []
    for page in _PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        for match in _BLOCK.finditer(text):
            if match[1] == language:
                line = text[: match.start()].count("\n") + 1
                found.append(pytest.param(match[2], id=f"{page}:{line}"))
    return found


def _is_set_up(line: str) -> bool:
    return line.startswith("make ") or line == _ACTIVATE


@pytest.mark.parametrize("block", _blocks("sh"))
def test_the_set_up_lines_are_true(block: str) -> None:
    for line in filter(_is_set_up, block.splitlines()):
        words = line.split("#")[0].split()
        if words[0] == "make":
            assert words[1] in TARGETS, line
            assert all("=" in word for word in words[2:]), line


@pytest.mark.slow
@pytest.mark.parametrize("block", _blocks("sh"))
def test_the_commands_run(block: str, tmp_path: Path) -> None:
    script = "\n".join(line for line in block.splitlines() if not _is_set_up(line))
    if not script.strip():
        return
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    ran = subprocess.run(
        ["sh", "-eu", "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"


@pytest.mark.parametrize("block", _blocks("python"))
def test_the_python_examples_run(block: str) -> None:
    exec(compile(block, "<example>", "exec"), {"__name__": "__example__"})
