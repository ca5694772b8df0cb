"""The registry of clauses: every sentence of the specification that a service can keep or break.

Completeness is measured against this list: the code, the tests, the conformance checks and the
notebooks name a clause by its id, and reports use this order. The data are in `clauses.toml`. The
open decisions are what the specification leaves open, the engine's default and the alternatives.
Their data are in `decisions.toml`, from which documents are generated. A decision is either a
choice, set by profile fields, or fixed for a stated reason.

The clause index says where each clause lives. It is a static scan for ids as whole words: the scan
imports and runs nothing, and doctests do not count. A place is a file, and the innermost class or
function in it that names the clause. One line of the engine *obeys* a clause: the comment `# obeys
ID` marks it, at its end or above it, and a row of the limit table obeys the clause that it is named
after. In a checkout the scan is made when it is first asked for; a wheel holds its result as
`clause_index.json`, which `hatch_build.py` writes.
"""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Final, Literal, TypeAlias, TypeVar

from engine.errors import InputError, did_you_mean

Status: TypeAlias = Literal["specified", "mixed", "assumed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Clause:
    """One clause.

    status: `specified` by the seed, `mixed` (a detail is ours) or `assumed` (ours).
    decisions: the open decisions about it; profile fields where a service may differ.
    unobservable: why no external request can show it; None when one can.
    masked: the part of it that another clause hides; None when nothing is hidden.
    """

    id: str
    text: str
    seed_section: str
    status: Status
    decisions: tuple[str, ...] = ()
    unobservable: str | None = None
    masked: str | None = None


_Row = TypeVar("_Row")


def _load(kind: type[_Row], name: str, listed: str) -> tuple[_Row, ...]:
    """Return the tables of that name; listed: their one field that holds several ids."""
    raw = resources.files("engine").joinpath(f"{name}s.toml").read_text(encoding="utf-8")
    rows = tomllib.loads(raw)[name]
    return tuple(kind(**{**row, listed: tuple(row.get(listed, ()))}) for row in rows)


def _named(what: str, rows: Mapping[str, _Row], name: str) -> _Row:
    if name not in rows:
        raise InputError(f"{what} = {name!r} does not exist{did_you_mean(name, rows)}")
    return rows[name]


CLAUSES: Final[tuple[Clause, ...]] = _load(Clause, "clause", "decisions")
"""Every clause, in the order of every report."""

_BY_ID: Final = {item.id: item for item in CLAUSES}


def clause(clause_id: str) -> Clause:
    """Return the clause of that id; raises `InputError` with the nearest known one."""
    return _named("clause", _BY_ID, clause_id)


def select(patterns: list[str]) -> list[Clause]:
    """Return the clauses named by ids or by prefixes that end in `-`, in registry order.

    No pattern selects all. Raises `InputError` for a pattern that names none.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        selected = {
            c for c in _BY_ID if c == pattern or (pattern[-1:] == "-" and c.startswith(pattern))
        }
        if not selected:
            clause(pattern)
        chosen |= selected
    return [item for item in CLAUSES if not patterns or item.id in chosen]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenDecision:
    """One decision.

    default: what the engine does by default. alternatives: what a service may do instead, None when
    none is known; `study` where one of them is for simulation only, else they are readings.
    fields: the profile fields that set it, as `section.field`. fixed: why there are none.
    """

    id: str
    question: str
    default: str
    alternatives: str | None = None
    study: bool = False
    fields: tuple[str, ...] = ()
    fixed: str | None = None


DECISIONS: Final[tuple[OpenDecision, ...]] = _load(OpenDecision, "decision", "fields")
"""Every open decision, in the order of the list."""

_DECISION_BY_ID: Final = {item.id: item for item in DECISIONS}


def open_decision(decision_id: str) -> OpenDecision:
    """Return the decision of that id; raises `InputError` with the nearest known one."""
    return _named("decision", _DECISION_BY_ID, decision_id)


Index: TypeAlias = Mapping[str, Mapping[str, list[str]]]
"""Clause id → kind of place → places, as `path::name`, or `path:line` for `obeyed`."""

KINDS: Final[Mapping[str, str]] = {
    "check": "conformance",
    "notebook": "notebooks",
    "obeyed": "engine",
    "code": "engine",
    "tests": "tests",
}
"""Kind of place → the folder that is scanned for it, in the order of `engine clauses`."""

INDEX_FILE: Final = "clause_index.json"
_NOT_CODE: Final = frozenset({"clauses.py"})
_WORD: Final = re.compile(r"\b[A-Z]{3,4}-[A-Z0-9]+(?:-[A-Z0-9]+)*\b")
_EXAMPLE: Final = re.compile(r"\s*>{3} ")
_OBEYS: Final = re.compile(r"#\ obeys\ (?P<ids>[A-Z0-9, -]+)$|_row\(\"(?P<row>LIM-[A-Z-]+)\"")


def scan(root: Path) -> Index:
    """Return the index of a checkout; raises `InputError` when `root` is not a checkout."""
    if not is_checkout(root):
        raise InputError(f"{root} is no checkout of Tollgate")
    known = {clause.id for clause in CLAUSES}
    index: dict[str, dict[str, set[str]]] = {c.id: {k: set() for k in KINDS} for c in CLAUSES}
    for kind, folder in KINDS.items():
        mentions = _obeyed if kind == "obeyed" else _mentions
        for path in sorted((root / folder).rglob("*.py")):
            if folder == "engine" and path.name in _NOT_CODE:
                continue
            if kind == "notebook" and not path.name[0].isdigit():
                continue  # it renders chapters
            name = path.relative_to(root).as_posix()
            for clause_id, place in mentions(name, path.read_text(encoding="utf-8")):
                if clause_id in known:
                    index[clause_id][kind].add(name if kind == "notebook" else place)
    return {c: {k: sorted(places) for k, places in kinds.items()} for c, kinds in index.items()}


def is_checkout(root: Path) -> bool:
    """Whether a folder holds the project with its tests, which a source distribution lacks."""
    return (root / "pyproject.toml").is_file() and (root / "tests").is_dir()


def _obeyed(name: str, text: str) -> Iterator[tuple[str, str]]:
    for number, line in enumerate(text.splitlines(), 1):
        mark = _OBEYS.search(line)
        if mark is not None:
            is_above = line.lstrip().startswith("#")
            for clause_id in _WORD.findall(mark["ids"] or mark["row"]):
                yield clause_id, f"{name}:{number + is_above}"


def _mentions(name: str, text: str) -> Iterator[tuple[str, str]]:
    lines = _without_doctests(text)
    named = [(number, ids) for number, line in lines if (ids := _WORD.findall(line))]
    spans = _spans(text) if named else []
    for number, ids in named:
        inside = [span for span in spans if span[0] <= number <= span[1]]
        for clause_id in ids:
            yield clause_id, f"{name}::{inside[-1][2]}" if inside else name


def _without_doctests(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines with their numbers; a doctest ends where its paragraph or docstring does."""
    is_doctest = False
    for number, line in enumerate(text.splitlines(), 1):
        is_over = not line.strip() or line.strip() in {'"""', "'''"}
        is_doctest = bool(_EXAMPLE.match(line)) or (is_doctest and not is_over)
        if not is_doctest:
            yield number, line


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


@cache
def load_index() -> Index:
    """Return the index: scanned in a checkout, else as the wheel holds it."""
    root = Path(__file__).parents[1]
    if is_checkout(root):
        return scan(root)
    built = resources.files("engine").joinpath(INDEX_FILE).read_text(encoding="utf-8")
    index: Index = json.loads(built)
    return index
