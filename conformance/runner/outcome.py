"""The outcome of a check: its findings, and which clause is to blame for them.

An exception is an *error* of all clauses of the check: a fault of the harness, neither a pass nor a
failure of the deployment. A clause without a finding at the end of the check is *inconclusive*.
Secrets in the text of an exception are replaced.

One fault can fail the checks of many clauses: where arrays come back in another order, a record's
type looks wrong too. So a failure may be explained by the failure of a more basic clause. Then it
*follows from* that clause, which comes first in every report. One ordered table holds the rules. A
rule applies where the cause has failed on its own, and where the finding is of a kind that the
cause can produce: it shares an exchange with the cause's failure, it says that something valid was
refused, or it may be any finding.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from conformance.runner.bench import Bench
from conformance.runner.registry import Check, Inconclusive, Skip, about_all
from conformance.runner.session import Session
from conformance.runner.verdicts import Finding, Verdict


def judge_one(bench: Bench) -> list[Finding]:
    """Run a one-by-one check; raises nothing except an interrupt."""
    said: list[Finding] = []
    try:
        judged = bench.check.judge(bench)
        assert isinstance(judged, Iterable), f"{bench.check.id} must yield findings"
        # One by one: findings before a crash are kept.
        said.extend(judged)
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return [*_clean(bench, said), *_raised(bench, error)]
    return [*_clean(bench, said), *_unsaid(bench, said)]


async def judge_side_by_side(bench: Bench) -> list[Finding]:
    """Run a side-by-side check; raises nothing except an interrupt."""
    try:
        judged = bench.check.judge(bench)
        assert not isinstance(judged, Iterable), f"{bench.check.id} must be async"
        said = list(await judged)
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return _raised(bench, error)
    return [*_clean(bench, said), *_unsaid(bench, said)]


def _clean(bench: Bench, said: list[Finding]) -> list[Finding]:
    """Return the findings with all key texts removed from their sentences."""
    text = bench.session.redactor.text
    return [dataclasses.replace(finding, says=text(finding.says)) for finding in said]


def settled(
    findings: Iterable[Finding],
    checks: Mapping[str, Check],
    doubt: str | None,
    doubts: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Return the findings with causes; failures that rest on a doubt become *inconclusive*.

    doubt: why addresses may not be counted separately. A failure of a probe that used several
    addresses is then inconclusive, unless the probe of LIM-IP, whose counter is the address alone,
    has passed. doubts: role → what is uncertain about its keys; a failure of a check that needs
    them is inconclusive too.
    """
    found = list(findings)
    if any(one.clause == "LIM-IP" and one.verdict is Verdict.PASS for one in found):
        doubt = None

    def why(one: Finding) -> str | None:
        check = checks.get(one.check)
        if one.verdict is not Verdict.FAIL or check is None:
            return None
        of_keys = [says for role, says in (doubts or {}).items() if role in check.roles]
        return next(iter(of_keys), doubt if check.sources > 1 else None)

    return blamed(
        one
        if (says := why(one)) is None
        else dataclasses.replace(one, verdict=Verdict.INCONCLUSIVE, says=f"{one.says}; but {says}")
        for one in found
    )


def crash_text(error: Exception) -> str:
    """Return the description of an exception of the harness: its type, text and place."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    lines = str(error).strip().splitlines()
    text = f": {lines[0][:300]}" if lines else ""
    return f"{type(error).__name__}{text}{where}"


def crashed(check: Check, session: Session, error: Exception) -> list[Finding]:
    """Return the findings of a check that the harness could not complete.

    They say nothing of the deployment: an error is a fault of the harness.
    """
    says = f"the harness failed, which says nothing of the deployment: {crash_text(error)}"
    return _about_all(check, session, Verdict.ERROR, session.redactor.text(says))


def _raised(bench: Bench, error: Exception) -> list[Finding]:
    if isinstance(error, Skip | Inconclusive):
        verdict = Verdict.SKIPPED if isinstance(error, Skip) else Verdict.INCONCLUSIVE
        text = bench.session.redactor.text(str(error))
        return _about_all(bench.check, bench.session, verdict, text)
    return crashed(bench.check, bench.session, error)


def _unsaid(bench: Bench, said: list[Finding]) -> list[Finding]:
    silent = set(bench.check.clauses) - {finding.clause for finding in said}
    why = "the check ended without a verdict"
    return [
        one
        for one in _about_all(bench.check, bench.session, Verdict.INCONCLUSIVE, why)
        if one.clause in silent
    ]


def _about_all(check: Check, session: Session, verdict: Verdict, says: str) -> list[Finding]:
    return about_all(check, verdict, says, session.last_of(check.id))


_SHAPES: Final = ("TOK-LEAF", "TOK-PLAIN", "TOK-ARRAY", "TOK-OBJECT", "TOK-COMPOSITE")
_REQUESTS: Final = (
    "TOK-ONE-OF",
    "TOK-TYPES",
    "TOK-CARD-DATA",
    "TOK-TOKEN-DATA",
    "TOK-METADATA",
    "TOK-INDEXES",
    "TOK-FPEXPR",
    "TOK-ENCRYPTED",
)
_RECORDS: Final = (
    "REC-ID",
    "REC-TENANT",
    "REC-TYPE",
    "REC-CARD-MASK",
    "REC-TOKEN-DATA",
    "REC-METADATA",
    "REC-INDEXES",
    "REC-FINGERPRINT",
    "REC-FPEXPR",
    "REC-CREATED",
    "REC-EXTRAS",
)
_QUOTAS_OF_TOKENS: Final = ("QUO-TOKENIZE", "QUO-DETOKENIZE", "TOK-LIMIT")
_REDACTION: Final = ("REC-DEDUP-REDACT", "AUTH-READ")
_MIRRORS: Final = frozenset({"tokenize.mirror", "tokenize.steady", "preflight", "schema.floor"})
_ANSWERED_5XX: Final = re.compile("answered (5[0-9]{2})[^0-9].*")
_MOSTLY: Final = 0.55
_READ_BACK: Final = "tokenize.read-back"


class _Case:
    """All failures of a run, by clause."""

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.failed: dict[str, list[Finding]] = {}
        self.counts: dict[str, int] = {}
        for one in findings:
            if one.verdict in {Verdict.FAIL, Verdict.PASS}:
                self.counts[one.clause] = self.counts.get(one.clause, 0) + 1
            if one.verdict is Verdict.FAIL:
                self.failed.setdefault(one.clause, []).append(one)

    def share(self, clause: str) -> float:
        """Return the share of a clause's findings that are failures."""
        return len(self.failed.get(clause, ())) / max(1, self.counts.get(clause, 0))

    def evidence(self, clause: str) -> set[int]:
        """Return the exchanges that show a clause's failures."""
        return {number for one in self.failed.get(clause, ()) for number in one.evidence}

    def is_mirrored(self, clause: str) -> bool:
        """Whether a check of the form of answers saw the clause fail: 5xx has no form."""
        return any(
            one.check in _MIRRORS and _ANSWERED_5XX.fullmatch(one.says) is None
            for one in self.failed.get(clause, ())
        )


class _Rule(NamedTuple):
    """A cause, the clauses that it explains, when it applies, and which findings it explains."""

    cause: str
    effects: Sequence[str]
    holds: Callable[[_Case], bool]
    explains: Callable[[_Case, Finding], bool]


def _any(case: _Case, finding: Finding) -> bool:  # noqa: ARG001 # reason: the form of a test
    return True


def _refused(case: _Case, finding: Finding) -> bool:  # noqa: ARG001 # reason: the form of a test
    return any(x in finding.says for x in ("must be accepted", "is no", "body is refused"))


def _answered(case: _Case, finding: Finding) -> bool:
    return not _refused(case, finding)


def _identifiers(case: _Case, finding: Finding) -> bool:  # noqa: ARG001 # reason: the form of a test
    return "must have different identifiers" in finding.says


def _in_order(case: _Case) -> bool:
    return not case.is_mirrored("TOK-ARRAY")


def _by(*checks: str) -> Callable[[_Case, Finding], bool]:
    return lambda case, finding: finding.check in checks  # noqa: ARG005 # reason: the form of a test


def _shares(cause: str) -> Callable[[_Case, Finding], bool]:
    return lambda case, finding: bool(case.evidence(cause).intersection(finding.evidence))


def _mostly(clause: str) -> Callable[[_Case], bool]:
    return lambda case: case.share(clause) >= _MOSTLY


def _always(case: _Case) -> bool:  # noqa: ARG001 # reason: the form of a test
    return True


def _mirrored(clause: str) -> Callable[[_Case], bool]:
    return lambda case: case.is_mirrored(clause)


def _one_for_several(case: _Case) -> bool:
    """Whether records were seen to share an identifier."""
    return any("identifier of its own" in one.says for one in case.failed.get("REC-ID", ()))


def _one_for_two(clause: str) -> Callable[[_Case], bool]:
    """Return a test: whether failures of the clause show different values with one identifier."""

    def holds(case: _Case) -> bool:
        says = [one.says for one in case.failed.get(clause, ())]
        return any("different" in one or "that differ" in one for one in says)

    return holds


def _outlasts(case: _Case) -> bool:
    """Whether the answer of a slow destination was passed on, so the timeout itself is wrong."""
    found = case.failed.get("PRX-TIMEOUT", ())
    return bool(found) and all("got 2" in one.says for one in found)


def _several_quotas(case: _Case) -> bool:
    quotas = ("QUO-TOKENIZE", "QUO-DETOKENIZE", "QUO-CVC", "QUO-INTENT", "QUO-LOG")
    return sum(name in case.failed for name in quotas) > 1


def _every_shape(case: _Case) -> bool:
    """Whether the limit itself is wrong: bodies of every shape show it."""
    found = [one for one in case.failed["QUO-TOKENIZE"] if one.check == "quotas.tokenize"]
    shapes = {one.says.partition("(")[2].partition(")")[0] for one in found}
    return len(shapes - {""}) >= _SHAPES_ASKED


_SHAPES_ASKED: Final = 5


def _hides_by_part(case: _Case) -> bool:
    """Whether only part of what must be hidden is shown, so the permission was checked."""
    says = [one.says for one in case.failed.get("REC-DEDUP-REDACT", ())]
    hidden = [one for one in says if "without token:read" in one]
    shown = [one for one in says if "with token:read" in one]
    kinds = {one.partition(":")[0] for one in hidden}
    is_part = any("data and metadata" not in one and "a card" in one for one in hidden)
    return bool(hidden) and (bool(shown) or is_part or len(kinds) == 1)


def _only_inside(clause: str) -> Callable[[_Case], bool]:
    """Return a test: whether a shape is wrong only inside others, never as a whole body."""

    def holds(case: _Case) -> bool:
        places = [one.says for one in case.failed.get(clause, ()) if one.says.startswith("at /")]
        return bool(places) and not any(one.startswith("at /: ") for one in places)

    return holds


_ORDER: Final = _by("tokenize.order")
_RULES: Final[tuple[_Rule, ...]] = (
    _Rule("REC-TYPE", ("TOK-OBJECT", "TOK-TYPES"), _in_order, _any),
    # Quotas: several failures blame QUO-TENANT, one its own quota, a single shape TOK-LIMIT.
    _Rule("QUO-TENANT", _QUOTAS_OF_TOKENS, _several_quotas, _any),
    _Rule("QUO-TENANT", _SHAPES, _several_quotas, _refused),
    _Rule("TOK-TYPES", ("QUO-TOKENIZE", "TOK-LIMIT", "TOK-ENCRYPTED", *_SHAPES), _always, _refused),
    _Rule("QUO-TOKENIZE", ("TOK-LIMIT", "QUO-TENANT"), _every_shape, _any),
    _Rule("QUO-TOKENIZE", _SHAPES, _every_shape, _refused),
    _Rule("TOK-ATOMIC", ("TOK-LIMIT",), _mostly("TOK-ATOMIC"), _by("quotas.tokenize-whole")),
    _Rule("TOK-LIMIT", ("QUO-TOKENIZE", "QUO-TENANT"), _always, _any),
    *(
        _Rule(name, ("QUO-TENANT",), _always, _by("quotas.shown"))
        for name in ("QUO-CVC", "QUO-INTENT", "QUO-LOG", "QUO-DETOKENIZE")
    ),
    # A record's own field, where it is wrong in most records.
    _Rule("REC-ID", _SHAPES, lambda case: "TOK-LEAF" not in case.failed, _identifiers),
    _Rule("REC-ID", _SHAPES, _one_for_several, _ORDER),
    _Rule("REC-EXTRAS", ("TOK-DEDUP", *_REDACTION), _mostly("REC-EXTRAS"), _any),
    _Rule("REC-ID", ("TOK-DEDUP", "QUO-LOG", "QUO-CVC"), _mostly("REC-ID"), _any),
    *(
        _Rule(name, _SHAPES, _mostly(name), _ORDER)
        for name in ("REC-ID", "REC-EXTRAS", "REC-CARD-MASK")
    ),
    _Rule("REC-CARD-MASK", ("TOK-ENCRYPTED",), _mostly("REC-CARD-MASK"), _answered),
    _Rule("REC-TOKEN-DATA", _REDACTION, _mostly("REC-TOKEN-DATA"), _any),
    _Rule("REC-METADATA", _REDACTION, _mostly("REC-METADATA"), _any),
    _Rule("TOK-DEDUP", _SHAPES, lambda case: not any(map(case.is_mirrored, _SHAPES)), _ORDER),
    _Rule("REC-DEDUP-REDACT", ("AUTH-READ",), _hides_by_part, _any),
    _Rule("AUTH-READ", ("REC-DEDUP-REDACT",), _always, _any),
    _Rule("TOK-CONTAINER", ("AUTH-CREATE", "AUTH-READ"), _always, _any),
    *(
        _Rule(name, _SHAPES, _one_for_two(name), _by(_READ_BACK))
        for name in ("TOK-LEAF", "TOK-DEDUP")
    ),
    _Rule("PRX-TIMEOUT", ("ERR-408",), _outlasts, _any),
    _Rule("ERR-408", ("PRX-TIMEOUT",), lambda case: not _outlasts(case), _any),
    # Requests: rules for one field come before rules for the whole body.
    *(_Rule(name, ("TOK-ATOMIC",), _always, _shares(name)) for name in _REQUESTS),
    *(
        _Rule(name, ("TOK-OBJECT", "TOK-ARRAY", "TOK-COMPOSITE", "TOK-LEAF"), _always, _refused)
        for name in ("TOK-TOKEN-DATA", "TOK-CARD-DATA")
    ),
    _Rule("TOK-TYPES", ("TOK-OBJECT",), _always, _any),
    # The form of the answer comes before its content.
    *(
        _Rule("TOK-COMPOSITE", (name,), _only_inside(name), _any)
        for name in ("TOK-ARRAY", "TOK-PLAIN", "TOK-OBJECT")
    ),
    _Rule("TOK-LEAF", ("TOK-ARRAY", "TOK-OBJECT", "TOK-PLAIN"), _mirrored("TOK-LEAF"), _any),
    *(_Rule(name, ("TOK-COMPOSITE",), _mirrored(name), _any) for name in _SHAPES[:-1]),
    *(
        _Rule(name, (*_RECORDS, *_REQUESTS, "TOK-DEDUP", *_REDACTION), _mirrored(name), _any)
        for name in _SHAPES
    ),
    *(_Rule(name, ("TOK-PLAIN",), _mirrored(name), _any) for name in ("TOK-ARRAY", "TOK-OBJECT")),
)


def blamed(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; a failure that another clause's failure explains names that clause.

    Sporadic failures come first: a failure that shares an exchange with one follows from it.
    """
    found = list(findings)
    sporadic = _sporadic(found)
    case = _Case(one for one in found if not _is_sporadic(one))
    causes: dict[int, str] = {}
    led: dict[str, set[str]] = {}

    def reaches(clause: str, wanted: str) -> bool:
        return clause == wanted or any(reaches(one, wanted) for one in led.get(clause, ()))

    def follow(place: int, clause: str, cause: str) -> None:
        if clause != cause and place not in causes and not reaches(cause, clause):
            causes[place] = cause
            led.setdefault(clause, set()).add(cause)

    failed = [
        (place, one)
        for place, one in enumerate(found)
        if one.verdict is Verdict.FAIL and one.follows is None
    ]
    symptoms: dict[str, str] = {}
    for place, one in failed:
        if _is_sporadic(one):  # the same in bodies of several forms is one fault
            follow(place, one.clause, symptoms.setdefault(one.says.partition(": ")[2], one.clause))
        for number in sporadic.keys() & set(one.evidence):
            follow(place, one.clause, sporadic[number])
        for cause in _broken_down(one, failed):
            follow(place, one.clause, cause)
    rules = [rule for rule in _RULES if rule.cause in case.failed and rule.holds(case)]
    for rule, (place, one) in itertools.product(rules, failed):
        is_steady = not _is_sporadic(one) or one.check == _READ_BACK
        if one.clause in rule.effects and is_steady and rule.explains(case, one):
            follow(place, one.clause, rule.cause)
    return [
        dataclasses.replace(one, follows=_root(causes[place], found, causes))
        if place in causes
        else one
        for place, one in enumerate(found)
    ]


def _root(clause: str, findings: Sequence[Finding], causes: Mapping[int, str]) -> str:
    """Return the root cause: go back from a clause while all its failures have one cause."""
    own = {
        causes.get(place)
        for place, one in enumerate(findings)
        if one.clause == clause and one.verdict is Verdict.FAIL
    }
    cause = own.pop() if len(own) == 1 else None
    return clause if cause is None else _root(cause, findings, causes)


def _broken_down(finding: Finding, failed: Iterable[tuple[int, Finding]]) -> Iterator[str]:
    """Yield the clauses that were asked about where the service broke down, each time alike.

    The steadiness check sees the answer of 5xx as well, and knows the body's form alone.
    """
    status = _ANSWERED_5XX.fullmatch(finding.says) if finding.check in _MIRRORS else None
    if status is not None:
        for _, other in failed:
            if other.check not in _MIRRORS and f"got {status[1]}" in other.says:
                yield other.clause


def _is_sporadic(finding: Finding) -> bool:
    return finding.verdict is Verdict.FAIL and finding.says.startswith("sporadic")


def _sporadic(findings: Iterable[Finding]) -> Mapping[int, str]:
    return {number: one.clause for one in findings if _is_sporadic(one) for number in one.evidence}
