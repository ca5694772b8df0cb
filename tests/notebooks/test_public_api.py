"""A cell of the course runs wherever the wheel is installed: public names, and nothing else."""

from __future__ import annotations

import ast
import importlib
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import jupytext
import pytest

from notebooks.api_pages import PACKAGES
from notebooks.course import sources

LIBRARIES = {"altair", "distributed", "httpx", "numpy", "pandas"}
"""What a chapter may import beside Python's own library: the wheel brings all but `distributed`."""

WITHOUT_CHECKOUT = """
import sys
sys.path = [place for place in sys.path if place]
sys.modules["notebooks"] = None
exec(compile(sys.stdin.read(), "cells", "exec"), {"__name__": "__main__"})
"""


def imported(source: Path) -> Iterator[tuple[str, str]]:
    """Yield (module, name) of each import; the name is empty where the module is imported."""
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((one.name, "") for one in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "no relative import"
            yield from ((node.module or "", one.name) for one in node.names)


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_chapter_imports_public_names_alone(source: Path) -> None:
    for module, name in imported(source):
        if module in PACKAGES:
            assert not name or name in importlib.import_module(module).__all__, f"{module}.{name}"
        else:
            top = module.partition(".")[0]
            assert top in sys.stdlib_module_names or top in LIBRARIES, f"{module} is not public"


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_chapter_uses_no_inner_attribute(source: Path) -> None:
    for node in ast.walk(ast.parse(source.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute):
            is_inner = re.match("_[^_]", node.attr) and node.attr != "_asdict"
            assert not is_inner, f"line {node.lineno}: .{node.attr}"
            assert node.attr != "services", f"line {node.lineno}: the engine's inner parts"


@pytest.mark.parametrize("source", sources(), ids=lambda source: source.stem)
def test_a_frame_is_a_table_and_not_printed(source: Path) -> None:
    assert not re.search(r"\.to_string\(|print\((?:pd|frame|table)\b", source.read_text("utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("stem", ["01_body_shapes", "07_retention"])
def test_a_chapter_runs_without_the_checkout(stem: str, tmp_path: Path) -> None:
    """In another folder, in a Python that has no package `notebooks`."""
    (source,) = (one for one in sources() if one.stem == stem)
    cells = jupytext.read(source).cells
    code = "\n\n".join(cell.source for cell in cells if cell.cell_type == "code")
    ran = subprocess.run(
        [sys.executable, "-c", WITHOUT_CHECKOUT],
        input=code,
        text=True,
        capture_output=True,
        cwd=tmp_path,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
