"""Verdicts: what a run says about a clause, and how several findings become one.

The order is the worst's: `pass < informational < not-applicable < not-observable < skipped <
inconclusive < fail < error`. A pass with a remark beside it (*informational*) is a pass. An
exception of the harness is an *error*: never a pass, and never a failure of the deployment. A run
in which a specified clause was skipped or inconclusive is *partial*: it never says "conformant".
"""

from __future__ import annotations

import enum
from collections.abc import Iterable
from dataclasses import dataclass, field

__all__ = ["Finding", "Moment", "Verdict", "worst"]


class Verdict(enum.IntEnum):
    """What is said of a clause; greater is worse."""

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
    """A place of a limit's timeline: one request that decides, or a run of like ones.

    at_ns: when it was sent, on the run's clock; until_ns: when the last of a run was. count: how
    many requests. status: None without an answer. key, source: whose, and from where. says: what
    it is in the story, such as "first refused".
    """

    at_ns: int
    status: int | None
    until_ns: int | None = None
    count: int = 1
    key: str | None = None
    source: str | None = None
    says: str = ""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that a check found out about one clause.

    clause: its id. check: the check's id. says: one sentence, with what was expected and seen.
    evidence: numbers of the exchanges that show it. accepts: the outcomes that would have passed.
    reading: a choice of the profile that the deployment was seen to follow, as
    (`section.field`, value). follows: the clause whose break explains this one. timeline: what
    was sent and answered when, in order of time, where that is what decides.
    """

    clause: str
    check: str
    verdict: Verdict
    says: str
    evidence: tuple[int, ...] = ()
    accepts: str = ""
    reading: tuple[str, object] | None = field(default=None)
    follows: str | None = None
    timeline: tuple[Moment, ...] = ()


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
