"""A trial: one deployment, good or known-bad, put before checks, and what they said.

A fault is *killed* when a check says that its clause fails; a crash of a check kills nothing, and
neither does an inconclusive verdict.

The suite is told no more than QA knows: which keys there are. So what one run cannot tell, a second
one must, with the profile that the first has discovered; a fault that the first run passes is not
caught. A trial is plain data, so that it comes back from a process of its own.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from conformance.faults.registry import Fault, fault_of
from conformance.report import Report
from conformance.report.sections import causes
from conformance.runner.choices import known_to_toml
from conformance.runner.registry import all_checks, checks_of
from conformance.runner.results import ClauseResult
from conformance.runner.runner import Options, Run
from conformance.runner.verdicts import Finding, Verdict, worst
from conformance.wire.in_process import Deployment, deploy
from engine.clauses import CLAUSES
from engine.files import Include

__all__ = ["SEED", "Trial", "judged", "try_fault", "try_good"]

SEED = 7
_SCOUTS = ("LIM-SEARCH", "LIM-PROXY-KEY")
"""Rows that show how a deployment counts, beside the probe of another clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the checks said of one deployment.

    fault, clause: empty for the good deployment. killers: the checks that say that the clause
    fails. failed: (check, clause) of every failure, the clause's own among them. crashed: checks
    that ended in an error. unsaid: clauses that are neither passed nor failed, with the reason.
    says: the first sentence that kills. causes: the clauses that the report names as broken and as
    following from none, first things first. took_s: seconds. runs: how many it took.
    """

    fault: str
    clause: str
    killers: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    crashed: tuple[str, ...]
    unsaid: tuple[tuple[str, str], ...]
    says: str
    took_s: float
    causes: tuple[str, ...] = ()
    runs: int = 1

    @property
    def is_killed(self) -> bool:
        """Whether a check has caught it."""
        return bool(self.killers)

    @property
    def is_blamed(self) -> bool:
        """Whether the broken clause comes first in the report."""
        return self.causes[:1] == (self.clause,)

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not self.failed and not self.crashed


def judged(
    fault: Fault | None,
    findings: Iterable[Finding],
    took_s: float,
    results: Sequence[ClauseResult] = (),
) -> Trial:
    """Return the trial that findings make; results: of all clauses of the run that they are of."""
    said = list(findings)
    failed = [one for one in said if one.verdict is Verdict.FAIL]
    own = [one for one in failed if fault is not None and one.clause == fault.clause]
    passed = {one.clause for one in said if one.verdict is Verdict.PASS}
    passed |= {one.clause for one in failed}
    unsaid = {one.clause: one.says for one in said if one.clause not in passed}
    return Trial(
        fault="" if fault is None else fault.id,
        clause="" if fault is None else fault.clause,
        killers=tuple(dict.fromkeys(one.check for one in own)),
        failed=tuple(dict.fromkeys((one.check, one.clause) for one in failed)),
        crashed=tuple(dict.fromkeys(o.check for o in said if o.verdict is Verdict.ERROR)),
        unsaid=tuple(unsaid.items()),
        says=own[0].says if own else _best_reason(fault, said),
        took_s=took_s,
        causes=tuple(one.result.clause.id for one in causes(results)),
    )


def _best_reason(fault: Fault | None, said: list[Finding]) -> str:
    """Return why a fault survived: the worst thing that was said of its clause."""
    own = [one for one in said if fault is not None and one.clause == fault.clause]
    if not own:
        return "no check judges the clause"
    found = max(own, key=lambda one: one.verdict)
    return f"{found.check}: {found.verdict.word}: {found.says}"


def _run(deployment: Deployment, checks: Iterable[str], told: str) -> tuple[Run, Report]:
    """Run checks; told: the text of the profile's file, empty for none."""
    chosen = tuple(checks)
    known = all_checks()
    clauses = tuple({clause for name in chosen for clause in known[name].clauses})
    options = Options(checks=chosen, select=clauses, seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        target = deployment.target
        if told:
            file = Path(folder) / "profile.toml"
            file.write_text(told, encoding="utf-8")
            target = dataclasses.replace(target, profile=Include(str(file)))
        run = Run(target, options, transport=deployment.transport)
        report = run.execute()
    return run, report


def _discovered(run: Run) -> str:
    return known_to_toml(run.session.profile, run.session.known)


def try_fault(fault_id: str, *, everything: bool = False) -> Trial:
    """Put one known-bad deployment before its clause's checks, or before all of them.

    Straight into its engine, on virtual time; a second time where the first tells nothing.
    """
    fault = fault_of(fault_id)
    known = all_checks()
    began = time.perf_counter()
    checks = tuple(known) if everything else _checks_for(fault)
    if not checks:
        return judged(fault, [], 0.0)
    wanted = {clause.id for clause in CLAUSES} if everything else {fault.clause}

    def findings(run: Run) -> list[Finding]:
        return [one for one in run.findings if one.clause in wanted]

    first, report = _run(deploy(engine=fault.engine), checks, "")
    trial = judged(fault, findings(first), time.perf_counter() - began, report.results)
    own = [one for one in first.findings if one.clause == fault.clause]
    if trial.is_killed or worst(own) < Verdict.INCONCLUSIVE:
        return trial
    second, report = _run(deploy(engine=fault.engine), checks, _discovered(first))
    trial = judged(fault, findings(second), time.perf_counter() - began, report.results)
    return dataclasses.replace(trial, runs=2)


def _checks_for(fault: Fault) -> tuple[str, ...]:
    """Return the checks of a fault's clause, and those beside them that may blame another.

    A probe needs scouts; what looks back at all answers needs answers to look at.
    """
    own = checks_of([fault.clause])
    if any(check.is_probe for check in own):
        beside = checks_of(_SCOUTS)
    else:
        beside = [one for one in all_checks().values() if not one.is_probe and not one.takes_ns]
        beside = [one for one in beside if one.load in {"light", "closing"}]
    return tuple(dict.fromkeys(check.id for check in (*own, *beside)))


def try_good() -> Trial:
    """Put the engine as it is before every check, twice: discovering, and with what was found."""
    known = all_checks()
    began = time.perf_counter()
    first, _ = _run(deploy(), known, "")
    second, _ = _run(deploy(), known, _discovered(first))
    trial = judged(None, [*first.findings, *second.findings], time.perf_counter() - began)
    return dataclasses.replace(trial, runs=2)
