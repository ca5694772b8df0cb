"""The registry of clauses: every sentence of the seed that can be true or false of a service.

Completeness is measured against this list: the code, the tests, the conformance checks and the
notebooks name a clause by its id, and reports use this order. The data are in `clauses.toml`.
This module implements no clause; `engine.clause_index` says where each clause lives.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from importlib import resources
from typing import Final, Literal, TypeAlias

from engine.errors import InputError, did_you_mean

__all__ = ["CLAUSES", "Clause", "Status", "clause", "select"]

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


def _load() -> tuple[Clause, ...]:
    raw = resources.files("engine").joinpath("clauses.toml").read_text(encoding="utf-8")
    return tuple(
        Clause(**{**row, "decisions": tuple(row.get("decisions", ()))})
        for row in tomllib.loads(raw)["clause"]
    )


CLAUSES: Final[tuple[Clause, ...]] = _load()
"""Every clause, in the order of every report."""

_BY_ID: Final = {item.id: item for item in CLAUSES}


def clause(clause_id: str) -> Clause:
    """Return the clause of that id; raises `InputError` with the nearest known one."""
    try:
        return _BY_ID[clause_id]
    except KeyError:
        raise InputError(
            f"clause = {clause_id!r} does not exist{did_you_mean(clause_id, _BY_ID)}"
        ) from None


def select(patterns: list[str]) -> list[Clause]:
    """Return the clauses named by ids or by prefixes that end in `-`, in registry order.

    No pattern selects all. Raises `InputError` for a pattern that names none.
    """
    chosen: set[str] = set()
    for pattern in patterns:
        found = {
            c for c in _BY_ID if c == pattern or (pattern[-1:] == "-" and c.startswith(pattern))
        }
        if not found:
            clause(pattern)
        chosen |= found
    return [item for item in CLAUSES if not patterns or item.id in chosen]
