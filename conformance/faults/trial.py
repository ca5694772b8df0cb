"""A trial: one deployment, good or known-bad, put before checks, and what they said.

A fault is *killed* when a check says that its clause fails; a crash of a check kills nothing, and
neither does an inconclusive verdict. A trial is plain data, so that it comes back from a process
of its own.
"""

from __future__ import annotations

import dataclasses
import tempfile
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from conformance.faults.registry import Fault, fault_of
from conformance.in_process import Deployment, deploy
from conformance.registry import all_checks, checks_of
from conformance.running import Options, Run
from conformance.verdicts import Finding, Verdict
from engine import Profile
from engine.clauses import CLAUSES
from engine.files import Include

__all__ = ["SEED", "Trial", "judged", "try_fault", "try_good"]

SEED = 7
_TOLD = f'[limits]\nalgorithm = "{Profile().limits.algorithm}"\n'
"""What the operator says of every deployment here. Without it a limit that is off by one looks
like another algorithm of the right limit, which would be a reading and no fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """What the checks said of one deployment.

    fault, clause: empty for the good deployment. killers: the checks that say that the clause
    fails. failed: (check, clause) of every failure, the clause's own among them. crashed: checks
    that ended in an error. unsaid: clauses that are neither passed nor failed, with the reason.
    says: the first sentence that kills. took_s: seconds.
    """

    fault: str
    clause: str
    killers: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    crashed: tuple[str, ...]
    unsaid: tuple[tuple[str, str], ...]
    says: str
    took_s: float

    @property
    def is_killed(self) -> bool:
        """Whether a check has caught it."""
        return bool(self.killers)

    @property
    def is_good(self) -> bool:
        """Whether nothing was found."""
        return not self.failed and not self.crashed


def judged(fault: Fault | None, findings: Iterable[Finding], took_s: float) -> Trial:
    """Return the trial that findings make."""
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
    )


def _best_reason(fault: Fault | None, said: list[Finding]) -> str:
    """Return why a fault survived: the worst thing that was said of its clause."""
    own = [one for one in said if fault is not None and one.clause == fault.clause]
    if not own:
        return "no check judges the clause"
    found = max(own, key=lambda one: one.verdict)
    return f"{found.check}: {found.verdict.word}: {found.says}"


def _run(deployment: Deployment, checks: tuple[str, ...], clauses: tuple[str, ...]) -> Run:
    options = Options(checks=checks, select=clauses, seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        told = Path(folder) / "profile.toml"
        told.write_text(_TOLD, encoding="utf-8")
        target = dataclasses.replace(deployment.target, profile=Include(str(told)))
        run = Run(target, options, transport=deployment.transport)
        run.execute()
    return run


def try_fault(fault_id: str, *, everything: bool = False) -> Trial:
    """Put one known-bad deployment before its clause's checks, or before all of them.

    Straight into its engine, on virtual time.
    """
    fault = fault_of(fault_id)
    all_checks()
    began = time.perf_counter()
    checks = () if everything else tuple(check.id for check in checks_of([fault.clause]))
    findings: list[Finding] = []
    if everything or checks:
        clauses = () if everything else (fault.clause,)
        findings = _run(deploy(engine=fault.engine), checks, clauses).findings
    wanted = {clause.id for clause in CLAUSES} if everything else {fault.clause}
    own = [one for one in findings if one.clause in wanted]
    return judged(fault, own, time.perf_counter() - began)


def try_good() -> Trial:
    """Put the engine as it is before every check."""
    all_checks()
    began = time.perf_counter()
    return judged(None, _run(deploy(), (), ()).findings, time.perf_counter() - began)
