"""The clause index: where each clause lives in code, tests, conformance checks and notebooks.

A static scan: a place is a file, and the innermost class or function in it, that names the
clause's id as a whole word. The result is a committed file (`clause_index.json`), so that an
installed package can show it; a test checks that it is current, and
`python -m engine clauses --refresh` rewrites it. The scan imports and runs nothing.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from pathlib import Path
from typing import Final, TypeAlias

from engine.clauses import CLAUSES
from engine.errors import InputError

__all__ = ["KINDS", "Index", "load", "scan", "write"]

Index: TypeAlias = Mapping[str, Mapping[str, list[str]]]
"""Clause id → kind of place → places, as `path` or `path::name`."""

KINDS: Final[Mapping[str, str]] = {
    "code": "engine",
    "tests": "tests",
    "check": "conformance",
    "notebook": "notebooks",
}
"""Kind of place → the folder that is scanned for it."""

_FILE: Final = "clause_index.json"
_NOT_CODE: Final = frozenset({"clauses.py", "clause_index.py"})
_WORD: Final = re.compile(r"\b[A-Z]{3,4}-[A-Z0-9]+(?:-[A-Z0-9]+)*\b")


def scan(root: Path) -> Index:
    """Return the index of a checkout; raises `InputError` when `root` is not a checkout."""
    if not (root / "engine" / "clauses.toml").is_file():
        raise InputError(f"{root} is no checkout of Tollgate; run the command inside one")
    known = {clause.id for clause in CLAUSES}
    found: dict[str, dict[str, set[str]]] = {c.id: {k: set() for k in KINDS} for c in CLAUSES}
    for kind, folder in KINDS.items():
        for path in sorted((root / folder).rglob("*.py")):
            if kind == "code" and path.name in _NOT_CODE:
                continue
            name = path.relative_to(root).as_posix()
            for clause_id, place in _mentions(name, path.read_text(encoding="utf-8")):
                if clause_id in known:
                    found[clause_id][kind].add(place)
    return {c: {k: sorted(places) for k, places in kinds.items()} for c, kinds in found.items()}


def _mentions(name: str, text: str) -> Iterator[tuple[str, str]]:
    spans = _spans(text)
    for number, line in enumerate(text.splitlines(), 1):
        for clause_id in _WORD.findall(line):
            inside = [span for span in spans if span[0] <= number <= span[1]]
            yield clause_id, f"{name}::{inside[-1][2]}" if inside else name


def _spans(text: str) -> list[tuple[int, int, str]]:
    """Return (first line, last line, dotted name) of every class and function, outer first."""
    spans: list[tuple[int, int, str]] = []

    def visit(node: ast.AST, prefix: str) -> None:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                dotted = f"{prefix}{child.name}"
                first = min([child.lineno, *(d.lineno for d in child.decorator_list)])
                spans.append((first, child.end_lineno or child.lineno, dotted))
                visit(child, f"{dotted}.")
            else:
                visit(child, prefix)

    visit(ast.parse(text), "")
    return spans


def write(root: Path) -> Path:
    """Write the index of a checkout into it; returns the file."""
    target = root / "engine" / _FILE
    target.write_text(json.dumps(scan(root), indent=1) + "\n", encoding="utf-8")
    return target


def load() -> Index:
    """Return the committed index."""
    text = resources.files("engine").joinpath(_FILE).read_text(encoding="utf-8")
    index: Index = json.loads(text)
    return index
