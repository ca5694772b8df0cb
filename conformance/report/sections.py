"""Sections: what a reader sees first. Failures by cause, then what is not judged by reason.

Every output takes its order from here: terminal, page, JUnit, SARIF.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final

from conformance.runner.verdicts import ClauseResult, Verdict

__all__ = ["Cause", "Fold", "causes", "crashes", "folds", "in_order", "passes"]

_UNJUDGED: Final = (
    Verdict.INCONCLUSIVE,
    Verdict.SKIPPED,
    Verdict.NOT_APPLICABLE,
    Verdict.NOT_OBSERVABLE,
    Verdict.INFORMATIONAL,
)


@dataclass(slots=True)
class Cause:
    """One thing that is broken: the clause that says so best, and those that fail because of it."""

    result: ClauseResult
    followers: list[ClauseResult] = field(default_factory=list)


@dataclass(slots=True)
class Fold:
    """Clauses of one verdict for one reason."""

    verdict: Verdict
    reason: str
    results: list[ClauseResult] = field(default_factory=list)


def causes(results: Iterable[ClauseResult]) -> list[Cause]:
    """Return the failures of a run by cause, in the clauses' order.

    A clause that follows from another stands under it; so does one that fails with the very same
    sentence.
    """
    failed = [one for one in results if one.is_failed or one.is_finding]
    ids = {one.clause.id for one in failed}
    found: dict[str, Cause] = {}
    for one in failed:
        if one.follows not in ids or one.follows == one.clause.id:
            key = f"{one.is_expected} {one.says}"
            if one.says and key in found:
                found[key].followers.append(one)
            else:
                found[key if one.says else one.clause.id] = Cause(one)
    by_id = {
        member.clause.id: cause
        for cause in found.values()
        for member in (cause.result, *cause.followers)
    }
    for one in failed:
        if one.clause.id not in by_id:
            cause = by_id.get(one.follows or "")
            if cause is None:  # it follows from one that follows itself
                found[one.clause.id] = by_id[one.clause.id] = Cause(one)
            else:
                cause.followers.append(one)
    return sorted(found.values(), key=lambda cause: cause.result.is_expected)


def crashes(results: Iterable[ClauseResult]) -> list[ClauseResult]:
    """Return the clauses that the harness failed in."""
    return [one for one in results if one.is_crashed and not one.is_failed]


def passes(results: Iterable[ClauseResult]) -> list[ClauseResult]:
    """Return what passed, and is no finding for it."""
    return [one for one in results if one.verdict is Verdict.PASS and not one.is_finding]


def folds(results: Sequence[ClauseResult]) -> list[Fold]:
    """Return what is not judged, folded by verdict and reason, the worst verdict first."""
    found: dict[tuple[Verdict, str], Fold] = {}
    for one in results:
        if one.verdict in _UNJUDGED:
            reason = _reason(one)
            fold = found.setdefault((one.verdict, reason), Fold(one.verdict, reason))
            fold.results.append(one)
    return sorted(found.values(), key=lambda fold: (-fold.verdict, -len(fold.results)))


def _reason(result: ClauseResult) -> str:
    return next((one.says for one in result.findings if one.verdict is result.verdict), "")


def in_order(results: Sequence[ClauseResult]) -> list[ClauseResult]:
    """Return every clause once: failures by cause, crashes, what is not judged, what passed."""
    ordered = [member for cause in causes(results) for member in (cause.result, *cause.followers)]
    ordered += crashes(results)
    ordered += [one for fold in folds(results) for one in fold.results]
    ordered += passes(results)
    seen = {id(one) for one in ordered}
    return ordered + [one for one in results if id(one) not in seen]
