"""Verdicts: of one finding, of a clause, and of the run.

The order is from best to worst: `pass < informational < not-applicable < not-observable < skipped <
inconclusive < fail < error`. A pass with a remark beside it (*informational*) is a pass. An
exception of the harness is an *error*: never a pass, and never a failure of the deployment.

Findings come from checks, from the plan (what this target cannot show) and from the preflight. The
worst finding is a clause's verdict. A clause without any is *not-observable* where the clause table
says why, else *skipped*. A run in which a specified clause was skipped or inconclusive is
*partial*: it never says "conformant".
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final, Literal, TypeAlias

from engine.clauses import Clause


class Verdict(enum.IntEnum):
    """The verdict on a clause; greater is worse."""

    PASS = 0
    INFORMATIONAL = 1
    NOT_APPLICABLE = 2
    NOT_OBSERVABLE = 3
    SKIPPED = 4
    INCONCLUSIVE = 5
    FAIL = 6
    ERROR = 7

    @property
    def word(self) -> str:
        """The verdict as reports write it: `not-applicable`.

        >>> Verdict.NOT_APPLICABLE.word
        'not-applicable'
        """
        return self.name.lower().replace("_", "-")


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """An entry of a limit's timeline: one request that decides, or a series of equal ones.

    at_ns: when it was sent, on the run's clock; until_ns: when the last of a series was. count: how
    many requests. status: None without an answer. key, source: who sent it, and from where.
    message: its role in the timeline, such as "the first refused".
    """

    at_ns: int
    status: int | None
    until_ns: int | None = None
    count: int = 1
    key: str | None = None
    source: str | None = None
    message: str = ""


Symptom: TypeAlias = Literal[
    "refused", "crashed", "shared-id", "once", "late-answer", "leaks", "leaks-in-part", "hides"
]
"""What a failure looks like, as a code: the blame is computed from these, never from sentences.

refused: a valid request was. crashed: an answer was a 5xx. shared-id: different values have one
identifier. once: right when sent again. late-answer: a destination outlasted its timeout. leaks,
hides: what must be hidden is there, what must be there is not; in-part: only some of it.
"""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found about one clause.

    clause: its id. check: the check's id. message: one sentence, with what was expected and seen.
    evidence: numbers of the exchanges that show it. accepts: the outcomes that would have passed.
    reading: a choice of the profile that the deployment was seen to follow, as
    (`section.field`, value). follows: the clause whose break explains this one. timeline: what
    was sent and answered when, in order of time, where that is what decides. is_cut: whether the
    budget's requests or minutes left it out. is_absent: whether the deployment lacks an operation
    that the specification does not ask for. symptoms: codes of a failure. place: where in a body,
    or in which kind of body, it was seen.
    """

    clause: str
    check: str
    verdict: Verdict
    message: str
    evidence: tuple[int, ...] = ()
    accepts: str = ""
    reading: tuple[str, object] | None = field(default=None)
    follows: str | None = None
    timeline: tuple[Moment, ...] = ()
    is_cut: bool = False
    is_absent: bool = False
    symptoms: tuple[Symptom, ...] = ()
    place: str = ""


def to_json(part: Finding | Moment) -> dict[str, Any]:
    """Return a finding or a moment as files hold it: there its message is `says`."""
    names = {"message": "says"}
    return {names.get(name, name): value for name, value in asdict(part).items()}


def worst(findings: Iterable[Finding]) -> Verdict:
    """Return the verdict over findings; without any it is *skipped*.

    A remark beside a pass leaves it a pass; remarks alone are *informational*.

    >>> seen = [Finding("TOK-LEAF", "a", one, "") for one in (Verdict.PASS, Verdict.INFORMATIONAL)]
    >>> worst(seen).word, worst(seen[1:]).word
    ('pass', 'informational')
    """
    seen = {finding.verdict for finding in findings}
    if Verdict.PASS in seen:
        seen.discard(Verdict.INFORMATIONAL)
    return max(seen, default=Verdict.SKIPPED)


_UNSAID: Final = (Verdict.SKIPPED, Verdict.INCONCLUSIVE)
_UNJUDGED: Final = (*_UNSAID, Verdict.NOT_OBSERVABLE, Verdict.NOT_APPLICABLE)


@dataclass(frozen=True, slots=True)
class ClauseResult:
    """The verdict on one clause. is_expected: the target names it in `expected_failures`."""

    clause: Clause
    verdict: Verdict
    findings: tuple[Finding, ...]
    is_expected: bool = False

    @property
    def is_failed(self) -> bool:
        """Whether a check saw the deployment break it, whatever the other checks found."""
        return any(finding.verdict is Verdict.FAIL for finding in self.findings)

    @property
    def is_crashed(self) -> bool:
        """Whether the harness failed in one of its checks; the deployment is not at fault."""
        return self.verdict is Verdict.ERROR

    @property
    def is_finding(self) -> bool:
        """Whether it fails the run: an unexpected failure, or an expected one that is missing."""
        if self.is_failed:
            return not self.is_expected
        return self.is_expected and self.verdict is Verdict.PASS

    @property
    def is_cut(self) -> bool:
        """Whether the budget left out what would have judged it."""
        return self.verdict is Verdict.SKIPPED and any(finding.is_cut for finding in self.findings)

    @property
    def is_undecided(self) -> bool:
        """Whether it is specified and was not judged, though the deployment has what it needs."""
        is_absent = self.verdict is Verdict.SKIPPED and any(
            finding.is_absent for finding in self.findings
        )
        return self.verdict in _UNSAID and self.clause.status != "assumed" and not is_absent

    @property
    def is_as_asked(self) -> bool:
        """Whether it passed, or failed as the target expects."""
        return self.verdict is Verdict.PASS or (self.is_expected and self.is_failed)

    @property
    def is_unjudged(self) -> bool:
        """Whether nothing was said of it; the result line counts these, and so does JUnit."""
        return self.verdict in _UNJUDGED

    @property
    def follows(self) -> str | None:
        """The clause whose failure explains every failure of this one; None where there is none."""
        causes = {finding.follows for finding in self.findings if finding.verdict is Verdict.FAIL}
        return causes.pop() if len(causes) == 1 else None

    @property
    def word(self) -> str:
        """The verdict as reports write it."""
        if self.is_expected and self.verdict is Verdict.FAIL:
            return "fail (expected)"
        if self.is_expected and self.verdict is Verdict.PASS:
            return "pass (a failure was expected)"
        return self.verdict.word

    @property
    def message(self) -> str:
        """The sentence of the finding that decides."""
        decisive = [finding for finding in self.findings if finding.verdict is self.verdict]
        decisive.sort(
            key=lambda finding: finding.reading is not None
        )  # observations before readings
        more = len({finding.message for finding in decisive}) - 1
        text = decisive[0].message if decisive else ""
        return f"{text} (and {more} more finding{'s' if more > 1 else ''})" if more > 0 else text


def assemble(
    clauses: Sequence[Clause],
    findings: Iterable[Finding],
    *,
    expected: Collection[str] = (),
    unseen: str = "no check has looked at it",
) -> list[ClauseResult]:
    """Return the results by clause, in the clauses' order.

    unseen: why a clause without any finding is skipped.
    """
    by_clause: dict[str, list[Finding]] = {clause.id: [] for clause in clauses}
    for finding in findings:
        if finding.clause in by_clause:
            by_clause[finding.clause].append(finding)
    results = []
    for clause in clauses:
        said = by_clause[clause.id]
        if not said:
            verdict = Verdict.NOT_OBSERVABLE if clause.unobservable else Verdict.SKIPPED
            said = [Finding(clause.id, "no-check", verdict, clause.unobservable or unseen)]
        results.append(ClauseResult(clause, worst(said), tuple(said), clause.id in expected))
    return results


def is_partial(results: Iterable[ClauseResult]) -> bool:
    """Whether a specified or mixed clause was skipped or inconclusive."""
    return any(
        result.clause.status != "assumed" and result.verdict in _UNSAID for result in results
    )


def sums(results: Iterable[ClauseResult]) -> dict[str, int]:
    """Return the number of clauses by verdict, the worst first."""
    counted = Counter(result.verdict for result in results)
    return {verdict.word: counted[verdict] for verdict in sorted(counted, reverse=True)}


def unrun_notes(unrun: Sequence[str]) -> list[str]:
    """Return what a report says of checks that its kind of run leaves out."""
    return [f"{', '.join(unrun)}: generated requests are sent over HTTP only"] if unrun else []


def last_line(results: Sequence[ClauseResult], *, total: int, unrun: Sequence[str] = ()) -> str:
    """Return the result of the run in one line; total: the number of all clauses.

    unrun: checks of these clauses that this kind of run leaves out.
    """
    bad = [result for result in results if result.is_finding]
    crashed = [result.clause.id for result in results if result.is_crashed]
    clauses = "clause" if len(results) == 1 else "clauses"
    of = "" if len(results) == total else f" of {len(results)} selected {clauses}"
    partial = is_partial(results) or bool(unrun)
    unjudged = [result for result in results if result.is_unjudged]
    said = ", ".join(f"{number} {word}" for word, number in sums(unjudged).items())
    cut = [result.clause.id for result in results if result.is_cut]
    said += f"; {len(cut)} left out by the budget: {', '.join(cut)}" if cut else ""
    lacks = "; ".join(filter(None, (said, f"not run: {', '.join(unrun)}" if unrun else "")))
    tail = f"; partial: {lacks}" if partial else ""
    if crashed:
        tail = f"; the harness failed in {len(crashed)}: {', '.join(crashed)}{tail}"
    if bad:
        own = [result.clause.id for result in bad if result.follows is None]
        led = [result.clause.id for result in bad if result.follows is not None]
        follow = "follows" if len(led) == 1 else "follow"
        cause = "it" if len(own) == 1 else "these"
        follow = f"; {', '.join(led)} {follow} from {cause}" if led else ""
        return f"does not conform: {', '.join(own or led)}{follow if own else ''}{tail}"
    passed = sum(result.verdict is Verdict.PASS for result in results)
    if crashed:
        return f"no verdict{tail}; {passed} passed{of}, no failure was seen"
    if not any(result.is_as_asked for result in results):
        said = ", ".join(f"{number} {word}" for word, number in sums(results).items())
        return f"nothing was judged{of}: {said or 'no clause'}"
    if partial:
        return f"partial: {passed} passed{of}, {lacks}; no failure"
    if len(results) < total:
        rest = total - len(results)
        return f"no failure: {passed} passed{of}; the other {rest} clauses were not checked"
    return f"conformant: {passed} passed, no failure"
