"""The registry of checks: each one bound to the clauses that it judges.

A check is a plain function of a `Bench`. It yields findings; whatever it raises is an *error* of
its clauses, except `Skip` and `Inconclusive`, which say why nothing can be said. Ids are stable
words: `tokenize.mirror`, `limits.LIM-PUBLIC`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

from conformance.verdicts import Finding
from engine.clauses import clause

if TYPE_CHECKING:
    from conformance.bench import Bench

__all__ = ["CHECKS", "Check", "Inconclusive", "Skip", "check", "checks_of"]

Judge: TypeAlias = "Callable[[Bench], Iterator[Finding]]"


class Skip(Exception):
    """The target lacks what the check needs; the message says what to add."""


class Inconclusive(Exception):
    """What was seen allows no verdict; the message says why."""


@dataclass(frozen=True, slots=True)
class Check:
    """One check.

    id: a stable word. clauses: what it judges. says: what is shown, in our words.
    accepts: the outcomes that pass. roles: key roles that the target must have, else *skipped*.
    requests: about how many it sends; takes_ns: how long it lasts at least (windows, blocks).
    """

    id: str
    clauses: tuple[str, ...]
    says: str
    accepts: str
    judge: Judge
    roles: tuple[str, ...] = ()
    requests: int = 10
    takes_ns: int = 0


CHECKS: Final[dict[str, Check]] = {}
"""Every check by its id, in the order of definition."""


def check(
    check_id: str,
    *clauses: str,
    accepts: str,
    roles: Iterable[str] = (),
    requests: int = 10,
    takes_ns: int = 0,
) -> Callable[[Judge], Judge]:
    """Register a check; its docstring's first line says what it shows."""
    for clause_id in clauses:
        clause(clause_id)
    assert check_id not in CHECKS, f"two checks are called {check_id}"

    def register(judge: Judge) -> Judge:
        says = (judge.__doc__ or "").strip().partition("\n")[0]
        assert says, f"{check_id} must say what it shows"
        CHECKS[check_id] = Check(
            check_id, clauses, says, accepts, judge, tuple(roles), requests, takes_ns
        )
        return judge

    return register


def checks_of(clause_ids: Iterable[str]) -> list[Check]:
    """Return the checks that judge any of the clauses, in order of definition."""
    wanted = set(clause_ids)
    return [one for one in CHECKS.values() if wanted.intersection(one.clauses)]
