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
            if cause is None:  # its cause is a follower without a place yet
                found[one.clause.id] = by_id[one.clause.id] = Cause(one)
            else:
                cause.followers.append(one)

    def place(cause: Cause) -> tuple[bool, bool]:
        members = (cause.result, *cause.followers)
        return cause.result.is_expected, all(one.clause.id not in new for one in members)

    return sorted(found.values(), key=place)


def failures(results: Iterable[ClauseResult], new: Collection[str] = ()) -> list[ClauseResult]:
    """Return the failures of a run: each cause, then those that follow from it."""
    return [one for cause in causes(results, new) for one in (cause.result, *cause.followers)]


def crashes(results: Iterable[ClauseResult]) -> list[ClauseResult]:
    """Return the clauses for which the harness failed and no check saw a failure."""
    return [one for one in results if one.is_crashed and not one.is_failed]


def passes(results: Iterable[ClauseResult]) -> list[ClauseResult]:
    """Return the clauses that passed, except where a failure was expected."""
    return [one for one in results if one.verdict is Verdict.PASS and not one.is_finding]


def folds(results: Sequence[ClauseResult]) -> list[Fold]:
    """Return the unjudged clauses, grouped by verdict and reason, the worst verdict first."""
    found: dict[tuple[Verdict, str], Fold] = {}
    for one in results:
        if one.is_unjudged or one.verdict is Verdict.INFORMATIONAL:
            reason = next((x.says for x in one.findings if x.verdict is one.verdict), "")
            fold = found.setdefault((one.verdict, reason), Fold(one.verdict, reason))
            fold.results.append(one)
    return sorted(found.values(), key=lambda fold: (-fold.verdict, -len(fold.results)))


def in_order(results: Sequence[ClauseResult], new: Collection[str] = ()) -> list[ClauseResult]:
    """Return every clause once: failures by cause, crashes, what is not judged, what passed."""
    ordered = failures(results, new) + crashes(results)
    ordered += [one for fold in folds(results) for one in fold.results]
    ordered += passes(results)
    seen = {id(one) for one in ordered}
    return ordered + [one for one in results if id(one) not in seen]
