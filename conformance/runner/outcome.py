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
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from conformance.context.check import Absent, Check, Inconclusive, OutOfBudget, Skip, about_all
from conformance.context.context import CheckContext
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Verdict


def judge_one(ctx: CheckContext) -> list[Finding]:
    """Run a one-by-one check; raises nothing except an interrupt."""
    said: list[Finding] = []
    try:
        judged = ctx.check.judge(ctx)
        assert isinstance(judged, Iterable), f"{ctx.check.id} must yield findings"
        # One by one: findings before a crash are kept.
        said.extend(judged)
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return [*_clean(ctx, said), *_raised(ctx, error)]
    return [*_clean(ctx, said), *_unsaid(ctx, said)]


async def judge_side_by_side(ctx: CheckContext) -> list[Finding]:
    """Run a side-by-side check; raises nothing except an interrupt."""
    try:
        judged = ctx.check.judge(ctx)
        assert not isinstance(judged, Iterable), f"{ctx.check.id} must be async"
        said = list(await judged)
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return _raised(ctx, error)
    return [*_clean(ctx, said), *_unsaid(ctx, said)]


def _clean(ctx: CheckContext, said: list[Finding]) -> list[Finding]:
    """Return the findings with all key texts removed from their sentences."""
    text = ctx.session.redactor.text
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


def _raised(ctx: CheckContext, error: Exception) -> list[Finding]:
    if isinstance(error, Skip | Inconclusive):
        verdict = Verdict.SKIPPED if isinstance(error, Skip) else Verdict.INCONCLUSIVE
        text = ctx.session.redactor.text(str(error))
        return about_all(
            ctx.check,
            verdict,
            text,
            ctx.session.last_of(ctx.check.id),
            is_cut=isinstance(error, OutOfBudget),
            is_absent=isinstance(error, Absent),
        )
    return crashed(ctx.check, ctx.session, error)


def _unsaid(ctx: CheckContext, said: list[Finding]) -> list[Finding]:
    silent = set(ctx.check.clauses) - {finding.clause for finding in said}
    why = "the check ended without a verdict"
    return [
        one
        for one in _about_all(ctx.check, ctx.session, Verdict.INCONCLUSIVE, why)
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
_MOSTLY: Final = 0.55
_READ_BACK: Final = "tokenize.read-back"


class _Case(NamedTuple):
    """By clause, the failures that are not sporadic, and how many findings passed."""

    failed: Mapping[str, Sequence[Finding]]
    passed: Counter[str]


def _always(*_: object) -> bool:
    return True


class _Rule(NamedTuple):
    """A cause, the clauses that it explains, when it applies, and which findings it explains.

    holds: takes the cause's failures and the whole case. explains: takes a finding and the cause's
    failures.
    """

    cause: str
    effects: Sequence[str]
    holds: Callable[[Sequence[Finding], _Case], bool] = _always
    explains: Callable[[Finding, Sequence[Finding]], bool] = _always

    def applies(self, case: _Case) -> bool:
        found = case.failed.get(self.cause)
        return found is not None and self.holds(found, case)


def _refused(finding: Finding, _: Sequence[Finding]) -> bool:
    return "refused" in finding.symptoms


def _answered(finding: Finding, found: Sequence[Finding]) -> bool:
    return not _refused(finding, found)


def _identifiers(finding: Finding, _: Sequence[Finding]) -> bool:
    return "shared-id" in finding.symptoms


def _shared(finding: Finding, found: Sequence[Finding]) -> bool:
    """Whether it shows an exchange of the cause's failures."""
    return any(set(finding.evidence).intersection(one.evidence) for one in found)


def _by(check: str) -> Callable[[Finding, Sequence[Finding]], bool]:
    return lambda finding, _: finding.check == check


def _mostly(found: Sequence[Finding], case: _Case) -> bool:
    return len(found) / (len(found) + case.passed[found[0].clause]) >= _MOSTLY


def _mirrored(found: Sequence[Finding], _: _Case) -> bool:
    """Whether a check of the form of answers saw the clause fail: 5xx has no form."""
    return any(one.check in _MIRRORS and not _is_crash(one) for one in found)


def _is_crash(finding: Finding) -> bool:
    """Whether a 5xx is all that a failure shows; a valid body that is refused has a form."""
    return "crashed" in finding.symptoms and not {"refused", "once"} & set(finding.symptoms)


def _none_mirrored(*clauses: str) -> Callable[[Sequence[Finding], _Case], bool]:
    return lambda _, case: not any(_mirrored(case.failed.get(one, ()), case) for one in clauses)


def _shares_ids(found: Sequence[Finding], _: _Case) -> bool:
    """Whether failures show different values, or records, with one identifier."""
    return any("shared-id" in one.symptoms for one in found)


def _outlasts(found: Sequence[Finding], _: _Case) -> bool:
    """Whether the answer of a slow destination was passed on, so the timeout itself is wrong."""
    return bool(found) and all("late-answer" in one.symptoms for one in found)


def _within_timeout(_: Sequence[Finding], case: _Case) -> bool:
    return not _outlasts(case.failed.get("PRX-TIMEOUT", ()), case)


def _several_quotas(_: Sequence[Finding], case: _Case) -> bool:
    quotas = ("QUO-TOKENIZE", "QUO-DETOKENIZE", "QUO-CVC", "QUO-INTENT", "QUO-LOG")
    return sum(name in case.failed for name in quotas) > 1


def _every_shape(found: Sequence[Finding], _: _Case) -> bool:
    """Whether the limit itself is wrong: bodies of every shape show it."""
    shapes = {one.place for one in found if one.check == "quotas.tokenize"}
    return len(shapes) >= _SHAPES_ASKED


_SHAPES_ASKED: Final = 5


def _hides_by_part(found: Sequence[Finding], _: _Case) -> bool:
    """Whether only part of what must be hidden is shown, so the permission was checked."""
    leaks = [one for one in found if {"leaks", "leaks-in-part"} & set(one.symptoms)]
    is_part = any("leaks-in-part" in one.symptoms and one.place == "a card" for one in leaks)
    is_hidden = any("hides" in one.symptoms for one in found)
    return bool(leaks) and (is_hidden or is_part or len({one.place for one in leaks}) == 1)


def _only_inside(clause: str) -> Callable[[Sequence[Finding], _Case], bool]:
    """Return a test: whether a shape is wrong only inside others, never as a whole body."""

    def holds(_: Sequence[Finding], case: _Case) -> bool:
        places = {one.place for one in case.failed.get(clause, ()) if one.place.startswith("/")}
        return bool(places) and "/" not in places

    return holds


_ORDER: Final = _by("tokenize.order")
_RULES: Final[tuple[_Rule, ...]] = (
    _Rule("REC-TYPE", ("TOK-OBJECT", "TOK-TYPES"), _none_mirrored("TOK-ARRAY")),
    # Quotas: several failures blame QUO-TENANT, one its own quota, a single shape TOK-LIMIT.
    _Rule("QUO-TENANT", _QUOTAS_OF_TOKENS, _several_quotas),
    _Rule("QUO-TENANT", _SHAPES, _several_quotas, _refused),
    _Rule("TOK-TYPES", ("QUO-TOKENIZE", "TOK-LIMIT", "TOK-ENCRYPTED", *_SHAPES), explains=_refused),
    _Rule("QUO-TOKENIZE", ("TOK-LIMIT", "QUO-TENANT"), _every_shape),
    _Rule("QUO-TOKENIZE", _SHAPES, _every_shape, _refused),
    _Rule("TOK-ATOMIC", ("TOK-LIMIT",), _mostly, _by("quotas.tokenize-whole")),
    _Rule("TOK-LIMIT", ("QUO-TOKENIZE", "QUO-TENANT")),
    *(
        _Rule(name, ("QUO-TENANT",), explains=_by("quotas.shown"))
        for name in ("QUO-CVC", "QUO-INTENT", "QUO-LOG", "QUO-DETOKENIZE")
    ),
    # A record's own field, where it is wrong in most records.
    _Rule("REC-ID", _SHAPES, lambda _, case: "TOK-LEAF" not in case.failed, _identifiers),
    _Rule("REC-ID", _SHAPES, _shares_ids, _ORDER),
    _Rule("REC-EXTRAS", ("TOK-DEDUP", *_REDACTION), _mostly),
    _Rule("REC-ID", ("TOK-DEDUP", "QUO-LOG", "QUO-CVC"), _mostly),
    *(_Rule(name, _SHAPES, _mostly, _ORDER) for name in ("REC-ID", "REC-EXTRAS", "REC-CARD-MASK")),
    _Rule("REC-CARD-MASK", ("TOK-ENCRYPTED",), _mostly, _answered),
    _Rule("REC-TOKEN-DATA", _REDACTION, _mostly),
    _Rule("REC-METADATA", _REDACTION, _mostly),
    _Rule("TOK-DEDUP", _SHAPES, _none_mirrored(*_SHAPES), _ORDER),
    _Rule("REC-DEDUP-REDACT", ("AUTH-READ",), _hides_by_part),
    _Rule("AUTH-READ", ("REC-DEDUP-REDACT",)),
    _Rule("TOK-CONTAINER", ("AUTH-CREATE", "AUTH-READ")),
    *(_Rule(name, _SHAPES, _shares_ids, _by(_READ_BACK)) for name in ("TOK-LEAF", "TOK-DEDUP")),
    _Rule("PRX-TIMEOUT", ("ERR-408",), _outlasts),
    _Rule("ERR-408", ("PRX-TIMEOUT",), _within_timeout),
    # Requests: rules for one field come before rules for the whole body.
    *(_Rule(name, ("TOK-ATOMIC",), explains=_shared) for name in _REQUESTS),
    *(
        _Rule(name, ("TOK-OBJECT", "TOK-ARRAY", "TOK-COMPOSITE", "TOK-LEAF"), explains=_refused)
        for name in ("TOK-TOKEN-DATA", "TOK-CARD-DATA")
    ),
    _Rule("TOK-TYPES", ("TOK-OBJECT",)),
    # The form of the answer comes before its content.
    *(
        _Rule("TOK-COMPOSITE", (name,), _only_inside(name))
        for name in ("TOK-ARRAY", "TOK-PLAIN", "TOK-OBJECT")
    ),
    _Rule("TOK-LEAF", ("TOK-ARRAY", "TOK-OBJECT", "TOK-PLAIN"), _mirrored),
    *(_Rule(name, ("TOK-COMPOSITE",), _mirrored) for name in _SHAPES[:-1]),
    *(
        _Rule(name, (*_RECORDS, *_REQUESTS, "TOK-DEDUP", *_REDACTION), _mirrored)
        for name in _SHAPES
    ),
    *(_Rule(name, ("TOK-PLAIN",), _mirrored) for name in ("TOK-ARRAY", "TOK-OBJECT")),
)


def blamed(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; a failure that another clause's failure explains names that clause.

    Sporadic failures come first: a failure that shares an exchange with one follows from it.
    """
    found = list(findings)
    sporadic = _sporadic(found)
    case = _case(one for one in found if not _is_sporadic(one))
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
            follow(place, one.clause, symptoms.setdefault(one.place, one.clause))
        for number in sporadic.keys() & set(one.evidence):
            follow(place, one.clause, sporadic[number])
        for cause in _broken_down(one, failed):
            follow(place, one.clause, cause)
    rules = [rule for rule in _RULES if rule.applies(case)]
    for rule, (place, one) in itertools.product(rules, failed):
        is_steady = not _is_sporadic(one) or one.check == _READ_BACK
        if is_steady and one.clause in rule.effects and rule.explains(one, case.failed[rule.cause]):
            follow(place, one.clause, rule.cause)
    return [
        dataclasses.replace(one, follows=_root(causes[place], found, causes))
        if place in causes
        else one
        for place, one in enumerate(found)
    ]


def _case(findings: Iterable[Finding]) -> _Case:
    failed: dict[str, list[Finding]] = {}
    passed = Counter[str]()
    for one in findings:
        if one.verdict is Verdict.FAIL:
            failed.setdefault(one.clause, []).append(one)
        passed[one.clause] += one.verdict is Verdict.PASS
    return _Case(failed, passed)


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
    if finding.check in _MIRRORS and _is_crash(finding):
        for _, other in failed:
            if other.check not in _MIRRORS and "crashed" in other.symptoms:
                yield other.clause


def _is_sporadic(finding: Finding) -> bool:
    return finding.verdict is Verdict.FAIL and "once" in finding.symptoms


def _sporadic(findings: Iterable[Finding]) -> Mapping[int, str]:
    return {number: one.clause for one in findings if _is_sporadic(one) for number in one.evidence}
