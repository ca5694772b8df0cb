"""The outcome of a check: its findings, and which clause is to blame for them.

An exception is an *error* of all clauses of the check: a fault of the harness, neither a pass nor a
failure of the deployment. A clause without a finding at the end of the check is *inconclusive*.
Secrets in the text of an exception are replaced.

One fault can fail the checks of many clauses: where cards are refused, quotas of tokens look wrong
too. So a failure may be explained by the failure of another clause. Then it *follows from* that
clause, which comes first in every report. The reference model names the cause of what it sees; one
ordered table holds the rules for other checks.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from conformance.context.check import Absent, Check, Inconclusive, OutOfBudget, Skip, about_all
from conformance.context.context import CheckContext
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Verdict


async def judge(ctx: CheckContext) -> list[Finding]:
    """Run a check; raises nothing except an interrupt."""
    check, redacted = ctx.check, ctx.session.redactor.text
    try:
        findings = list(await check.judge(ctx))
    except (Skip, Inconclusive) as why:
        return about_all(
            check,
            Verdict.SKIPPED if isinstance(why, Skip) else Verdict.INCONCLUSIVE,
            redacted(str(why)),
            ctx.session.last_of(check.id),
            is_cut=isinstance(why, OutOfBudget),
            is_absent=isinstance(why, Absent),
        )
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return crashed(check, ctx.session, error)
    judged = {finding.clause for finding in findings}
    why_open = "the check ended without a verdict"
    silent = about_all(check, Verdict.INCONCLUSIVE, why_open, ctx.session.last_of(check.id))
    return [
        *(dataclasses.replace(finding, message=redacted(finding.message)) for finding in findings),
        *(finding for finding in silent if finding.clause not in judged),
    ]


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
    judged = list(findings)
    if any(finding.clause == "LIM-IP" and finding.verdict is Verdict.PASS for finding in judged):
        doubt = None

    def why(finding: Finding) -> str | None:
        check = checks.get(finding.check)
        if finding.verdict is not Verdict.FAIL or check is None:
            return None
        of_keys = [doubt for role, doubt in (doubts or {}).items() if role in check.roles]
        return next(iter(of_keys), doubt if check.sources > 1 else None)

    return blamed(
        finding
        if (reason := why(finding)) is None
        else dataclasses.replace(
            finding, verdict=Verdict.INCONCLUSIVE, message=f"{finding.message}; but {reason}"
        )
        for finding in judged
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
    message = f"the harness failed, which says nothing of the deployment: {crash_text(error)}"
    evidence = session.last_of(check.id)
    return about_all(check, Verdict.ERROR, session.redactor.text(message), evidence)


_MODEL: Final = "model.sequences"
_FORMS: Final = frozenset({"preflight", "schema.floor", "schema.ceiling", "schema.links"})
"""Checks that judge each answer by its form alone."""
_BY_ANOTHER: Final = frozenset({"refused", "crashed", "shared-id"})
"""Symptoms that a fault of another clause can have."""
_QUOTAS_OF_TOKENS: Final = ("QUO-TOKENIZE", "QUO-DETOKENIZE", "TOK-LIMIT")
_SHAPES_ASKED: Final = 5

_Failures = Mapping[str, Sequence[Finding]]
"""The failures of a run by clause."""


def _always(*_: object) -> bool:
    return True


class _Rule(NamedTuple):
    """A cause, the clauses that it explains, when it applies, and which findings it explains."""

    cause: str
    effects: Sequence[str]
    holds: Callable[[_Failures], bool] = _always
    explains: Callable[[Finding], bool] = _always

    def applies(self, failures: _Failures) -> bool:
        return self.cause in failures and self.holds(failures)


def _is_shown(finding: Finding) -> bool:
    return finding.check == "quotas.shown"


def _outlasts(failures: _Failures) -> bool:
    """Whether the answer of a slow destination was passed on, so the timeout itself is wrong."""
    late = failures.get("PRX-TIMEOUT", ())
    return bool(late) and all("late-answer" in finding.symptoms for finding in late)


def _within_timeout(failures: _Failures) -> bool:
    return not _outlasts(failures)


def _several_quotas(failures: _Failures) -> bool:
    quotas = ("QUO-TOKENIZE", "QUO-DETOKENIZE", "QUO-CVC", "QUO-INTENT", "QUO-LOG")
    of_records = [finding for finding in failures["QUO-TENANT"] if _is_shown(finding)]
    return sum(name in failures for name in quotas) > 1 or len(of_records) > 1


def _every_shape(failures: _Failures) -> bool:
    """Whether the limit itself is wrong: bodies of every shape show it."""
    of_check = [f for f in failures.get("QUO-TOKENIZE", ()) if f.check == "quotas.tokenize"]
    return len({finding.place for finding in of_check}) >= _SHAPES_ASKED


def _is_of_quota(failures: _Failures) -> bool:
    is_of_tenant = "QUO-TENANT" in failures and _several_quotas(failures)
    return _every_shape(failures) and not is_of_tenant


def _some_shapes(failures: _Failures) -> bool:
    is_of_tenant = "QUO-TENANT" in failures and _several_quotas(failures)
    return not _every_shape(failures) and not is_of_tenant


_RULES: Final[tuple[_Rule, ...]] = (
    # Quotas: several failures blame QUO-TENANT, one its own quota, a single shape TOK-LIMIT.
    _Rule("QUO-TENANT", _QUOTAS_OF_TOKENS, _several_quotas),
    _Rule("QUO-TOKENIZE", ("TOK-LIMIT", "QUO-TENANT"), _is_of_quota),
    _Rule("TOK-LIMIT", ("QUO-TOKENIZE", "QUO-TENANT"), _some_shapes),
    *(
        _Rule(name, ("QUO-TENANT",), explains=_is_shown)
        for name in ("QUO-CVC", "QUO-INTENT", "QUO-LOG", "QUO-DETOKENIZE")
    ),
    _Rule("REC-FINGERPRINT", ("REC-SECRET",)),
    _Rule("TOK-CONTAINER", ("AUTH-CREATE", "AUTH-READ")),
    _Rule("PRX-TIMEOUT", ("ERR-408",), _outlasts),
    _Rule("ERR-408", ("PRX-TIMEOUT",), _within_timeout),
)


def blamed(findings: Iterable[Finding]) -> list[Finding]:
    """Return the findings; a failure that another clause's failure explains names that clause.

    The model knows the cause best: what other checks saw of the form of an answer, and valid
    requests that they saw refused, follow from its root cause.
    """
    judged = list(findings)
    failures: dict[str, list[Finding]] = {}
    for finding in judged:
        if finding.verdict is Verdict.FAIL:
            failures.setdefault(finding.clause, []).append(finding)
    root = next((f.clause for all_of in failures.values() for f in all_of if _is_root(f)), None)
    if root is not None and root not in _QUOTAS_OF_TOKENS:  # what is refused breaks no limit
        failures = {clause: fs for clause, fs in failures.items() if not _is_refusal(fs)}
    rules = [rule for rule in _RULES if rule.applies(failures)]
    causes = {rule.cause for rule in rules}
    return [_led_back(finding, rules, causes, root) for finding in judged]


def _is_root(finding: Finding) -> bool:
    return finding.check == _MODEL and finding.follows is None


def _is_refusal(failures: Sequence[Finding]) -> bool:
    """Whether all that a quota of tokens fails for are valid bodies that were refused."""
    is_of_tokens = failures[0].clause in _QUOTAS_OF_TOKENS
    return is_of_tokens and all("refused" in f.symptoms for f in failures)


def _led_back(
    finding: Finding, rules: Sequence[_Rule], causes: Collection[str], root: str | None
) -> Finding:
    """Return a failure with its cause, if there is one: by the first rule that explains it."""
    if finding.verdict is not Verdict.FAIL or finding.follows is not None:
        return finding
    for rule in rules:
        if finding.clause in rule.effects and rule.explains(finding):
            return dataclasses.replace(finding, follows=rule.cause)
    is_of_model = finding.check == _MODEL or finding.clause in causes
    if root is None or is_of_model or finding.clause == root:
        return finding
    by_form = finding.check in _FORMS or bool(_BY_ANOTHER.intersection(finding.symptoms))
    is_explained = by_form and finding.clause.startswith(("TOK-", "REC-", "AUTH-", "QUO-"))
    return dataclasses.replace(finding, follows=root) if is_explained else finding
