"""One check, judged: whatever it yields, raises or leaves unsaid becomes findings.

An exception is an *error* of all its clauses: a fault of the harness, neither a pass nor a failure
of the deployment. A clause that the check ends without a word about is *inconclusive*. No text of
an exception leaves without its secrets replaced.
"""

from __future__ import annotations

import dataclasses
import traceback
from collections.abc import Iterable, Mapping
from pathlib import Path

from conformance.runner.bench import Bench
from conformance.runner.blame import blamed
from conformance.runner.registry import Check, Inconclusive, Skip
from conformance.runner.session import Session
from conformance.runner.verdicts import Finding, Verdict

__all__ = ["crash_text", "crashed", "judge_one", "judge_side_by_side", "settled"]


def judge_one(bench: Bench) -> list[Finding]:
    """Run a check that runs one by one; never raises but for an interrupt."""
    said: list[Finding] = []
    try:
        judged = bench.check.judge(bench)
        assert isinstance(judged, Iterable), f"{bench.check.id} must yield findings"
        # One by one: what was said before a crash stays said.
        said.extend(judged)
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return [*_clean(bench, said), *_raised(bench, error)]
    return [*_clean(bench, said), *_unsaid(bench, said)]


async def judge_side_by_side(bench: Bench) -> list[Finding]:
    """Run a check that runs beside others; never raises but for an interrupt."""
    try:
        judged = bench.check.judge(bench)
        assert not isinstance(judged, Iterable), f"{bench.check.id} must be async"
        said = list(await judged)
    except Exception as error:  # noqa: BLE001 # reason: a check's crash is a verdict
        return _raised(bench, error)
    return [*_clean(bench, said), *_unsaid(bench, said)]


def _clean(bench: Bench, said: list[Finding]) -> list[Finding]:
    """Return findings whose sentences hold no key text, whatever the check wrote into them."""
    text = bench.session.redactor.text
    return [dataclasses.replace(finding, says=text(finding.says)) for finding in said]


def settled(
    findings: Iterable[Finding],
    checks: Mapping[str, Check],
    doubt: str | None,
    doubts: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Return the findings without the failures that rest on what is in doubt, and with causes.

    doubt: of addresses. A failure of a probe that used several of them is *inconclusive* then,
    unless a probe of LIM-IP, which has a counter for each address alone, has seen that they count
    apart. doubts: role → of its keys; a failure of a check that needs them is inconclusive too.
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
    """Return what is said of an exception of the harness: its kind, its text and its place."""
    frames = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    lines = str(error).strip().splitlines()
    text = f": {lines[0][:300]}" if lines else ""
    return f"{type(error).__name__}{text}{where}"


def crashed(check: Check, session: Session, error: Exception) -> list[Finding]:
    """Return the findings of a check that the harness could not bring to its end.

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
    recent = session.last_of(check.id)
    beside = () if verdict is Verdict.ERROR else check.beside
    return [
        Finding(
            clause,
            check.id,
            Verdict.INFORMATIONAL if clause in beside else verdict,
            says,
            recent,
            check.accepts,
        )
        for clause in check.clauses
    ]
