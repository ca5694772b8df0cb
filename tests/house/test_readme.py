"""README and CONTRIBUTING work as they are written.

A newcomer types README's commands in order, in one shell, in a fresh checkout: so does the test.
Only `make test` is left out, which would run the test again, and `make setup` finds `.venv` ready.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from _pytest.mark import ParameterSet

from tests.house._files import ROOT, files
from tests.house.test_make import TARGETS

_BLOCK = re.compile(r"^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_ACTIVATE = ". .venv/bin/activate"


def _blocks(page: str) -> list[tuple[str, str, int]]:
    """Return the blocks of a page: language, text and line."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        (match[1], match[2], text[: match.start()].count("\n") + 1)
        for match in _BLOCK.finditer(text)
    ]


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md"])
def test_the_make_lines_name_targets(page: str) -> None:
    lines = [line for _, block, _ in _blocks(page) for line in block.splitlines()]
    made = [line.split("#")[0].split() for line in lines if line.startswith("make ")]
    assert made
    for words in made:
        assert words[1] in TARGETS
        assert all("=" in word for word in words[2:])


def _python_examples() -> list[ParameterSet]:
    blocks = [block for block in _blocks("README.md") if block[0] == "python"]
    return [pytest.param(text, id=f"README.md:{line}") for _, text, line in blocks]


@pytest.mark.parametrize("block", _python_examples())
def test_the_python_examples_run(block: str) -> None:
    exec(compile(block, "<example>", "exec"), {"__name__": "__example__"})


def _checkout(folder: Path) -> None:
    """Copy the checkout, with the files' times, so that make finds this environment up to date."""
    for path in files():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / path, folder / path)
    (folder / ".venv").symlink_to(sys.prefix)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_the_readme_runs_in_one_shell_in_order(tmp_path: Path) -> None:
    if not Path(sys.prefix, ".stamp-dev").exists():
        pytest.skip("needs the environment that `make setup` makes")
    _checkout(tmp_path)
    script = ["set -e"]
    for language, text, line in _blocks("README.md"):
        script.append(f"echo '== README.md:{line}'")
        if language == "python":
            script.append(f"python - <<'END'\n{text}END")
        elif text.strip() != "make test":
            script.append(text)
    kept = {"PATH", "HOME", "LANG", "TMPDIR"}
    environment = {name: value for name, value in os.environ.items() if name in kept}
    path = environment["PATH"].split(os.pathsep)
    environment["PATH"] = os.pathsep.join(p for p in path if not p.startswith(sys.prefix))
    ran = subprocess.run(
        ["sh", "-c", "\n".join(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, f"{ran.stdout}\n{ran.stderr}"
    for folder in ("make-run", "everyday-8", "replay", "conformance"):
        assert list((tmp_path / "runs" / folder).iterdir())
    after_make_run = subprocess.run(
        [".venv/bin/python", "-m", "simulator", "run", "everyday", "--quiet"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert after_make_run.returncode == 0, after_make_run.stderr


@pytest.mark.slow
def test_the_example_log_is_what_the_simulator_writes() -> None:
    example = ROOT / "examples" / "make_access_log.py"
    spec = importlib.util.spec_from_file_location("make_access_log", example)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = module.access_log()
    assert len(text.splitlines()) == 2_000
    assert (ROOT / "examples" / "access.log").read_text(encoding="ascii") == text
