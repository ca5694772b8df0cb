"""Sections: the order of a report. Failures by cause come first, then unjudged clauses by reason.

Terminal, page, JUnit and SARIF all use this order.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from conformance.context.verdicts import ClauseResult, Verdict


@dataclass(slots=True)
class Cause:
    """One fault: the clause that it breaks, and the clauses that fail because of it."""

    result: ClauseResult
    followers: list[ClauseResult] = field(default_factory=list)


@dataclass(slots=True)
class Fold:
    """Clauses with the same verdict for the same reason."""

    verdict: Verdict
    reason: str
    results: list[ClauseResult] = field(default_factory=list)


def causes(results: Iterable[ClauseResult], new: Collection[str] = ()) -> list[Cause]:
    """Return the failures of a run by cause, in the clauses' order, those with a new one first.

    A clause that follows from another is listed under it; so is one that fails with the same
    sentence. new: the clauses that did not fail in the baseline.
    """
    failed = [result for result in results if result.is_failed or result.is_finding]
    ids = {result.clause.id for result in failed}
    by_clause: dict[str, Cause] = {}
    for result in failed:
        if result.follows not in ids or result.follows == result.clause.id:
            key = f"{result.is_expected} {result.message}"
            if result.message and key in by_clause:
                by_clause[key].followers.append(result)
            else:
                by_clause[key if result.message else result.clause.id] = Cause(result)
    by_id = {
        member.clause.id: cause
        for cause in by_clause.values()
        for member in (cause.result, *cause.followers)
    }
    for result in failed:
        if result.clause.id not in by_id:
            cause = by_id.get(result.follows or "")
            if cause is None:  # its cause is a follower without a place yet
                by_clause[result.clause.id] = by_id[result.clause.id] = Cause(result)
            else:
                cause.followers.append(result)

    def place(cause: Cause) -> tuple[bool, bool]:
        members = (cause.result, *cause.followers)
        return cause.result.is_expected, all(result.clause.id not in new for result in members)

    return sorted(by_clause.values(), key=place)


def failures(results: Iterable[ClauseResult], new: Collection[str] = ()) -> list[ClauseResult]:
    """Return the failures of a run: each cause, then those that follow from it."""
    return [result for cause in causes(results, new) for result in (cause.result, *cause.followers)]


def crashes(results: Iterable[ClauseResult]) -> list[ClauseResult]:
    """Return the clauses for which the harness failed and no check saw a failure."""
    return [result for result in results if result.is_crashed and not result.is_failed]


def passes(results: Iterable[ClauseResult]) -> list[ClauseResult]:
    """Return the clauses that passed, except where a failure was expected."""
    return [
        result for result in results if result.verdict is Verdict.PASS and not result.is_finding
    ]


def folds(results: Sequence[ClauseResult]) -> list[Fold]:
    """Return the unjudged clauses, grouped by verdict and reason, the worst verdict first."""
    by_reason: dict[tuple[Verdict, str], Fold] = {}
    for result in results:
        if result.is_unjudged or result.verdict is Verdict.INFORMATIONAL:
            reason = next((x.message for x in result.findings if x.verdict is result.verdict), "")
            fold = by_reason.setdefault((result.verdict, reason), Fold(result.verdict, reason))
            fold.results.append(result)
    return sorted(by_reason.values(), key=lambda fold: (-fold.verdict, -len(fold.results)))


def in_order(results: Sequence[ClauseResult], new: Collection[str] = ()) -> list[ClauseResult]:
    """Return every clause once: failures by cause, crashes, what is not judged, what passed."""
    ordered = failures(results, new) + crashes(results)
    ordered += [result for fold in folds(results) for result in fold.results]
    ordered += passes(results)
    seen = {id(result) for result in ordered}
    return ordered + [result for result in results if id(result) not in seen]
