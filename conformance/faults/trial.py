"""A trial: checks run against one deployment, good or known-bad, and what they found.

A fault is *killed* when a check fails its clause. Neither a crash of a check nor an inconclusive
verdict kills it.

The suite knows no more than QA does: which keys there are. What one run cannot decide, a second run
must, with the profile that the first has discovered. A fault that the first run passes is not
caught. A trial is plain data, so that another process can return it.

Over real HTTP the engine runs behind the real server, on loopback, in a thread of this process,
with the system's clock and the demo's tenants and keys.
"""

from __future__ import annotations

import asyncio
import dataclasses
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import uvicorn

from conformance.context.check import all_checks, checks_of
from conformance.context.choices import known_to_toml
from conformance.context.verdicts import ClauseResult, Finding, Verdict, worst
from conformance.faults.registry import Fault, fault_of
from conformance.report import Report
from conformance.report.sections import causes
from conformance.runner.runner import Options, Run
from conformance.target import Target
from conformance.wire.in_process import Deployment, deploy
from engine import Engine
from engine.clauses import CLAUSES
from engine.files import Document, Include
from engine.http.app import HttpApplication
from engine.http.demo import demo_lines, target_of
from engine.http.pages import PAGE_PATHS
from engine.http.protocol import Connections
from engine.http.server import bind, server_config
from engine.http.system import SystemWorld

SEED = 7
_SCOUTS = ("limits.counted",)
"""Checks that show how a deployment counts; they run beside those of another clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantTrial:
    """What the checks found on one deployment.

    fault, clause: empty for the good deployment. killers: the checks that failed the clause.
    failed: (check, clause) of every failure, the clause's own included. crashed: checks that ended
    in an error. unsaid: clauses that neither passed nor failed, with the reason. message: the
    sentence of the first finding that kills, else why the fault survived. causes: the clauses that
    the report names as root causes, in its order. runs: number of runs that a fault took.
    """

    fault: str
    clause: str
    killers: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    crashed: tuple[str, ...]
    unsaid: tuple[tuple[str, str], ...]
    message: str
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
    results: Sequence[ClauseResult] = (),
) -> MutantTrial:
    """Return the trial of some findings; results: of all clauses of the run."""
    said = list(findings)
    failed = [finding for finding in said if finding.verdict is Verdict.FAIL]
    own = [finding for finding in failed if fault is not None and finding.clause == fault.clause]
    passed = {finding.clause for finding in said if finding.verdict is Verdict.PASS}
    passed |= {finding.clause for finding in failed}
    unsaid = {finding.clause: finding.message for finding in said if finding.clause not in passed}
    return MutantTrial(
        fault="" if fault is None else fault.id,
        clause="" if fault is None else fault.clause,
        killers=tuple(dict.fromkeys(finding.check for finding in own)),
        failed=tuple(dict.fromkeys((finding.check, finding.clause) for finding in failed)),
        crashed=tuple(dict.fromkeys(o.check for o in said if o.verdict is Verdict.ERROR)),
        unsaid=tuple(unsaid.items()),
        message=own[0].message if own else _best_reason(fault, said),
        causes=tuple(cause.result.clause.id for cause in causes(results)),
    )


def _best_reason(fault: Fault | None, said: list[Finding]) -> str:
    """Return why a fault survived: the worst finding of its clause."""
    own = [finding for finding in said if fault is not None and finding.clause == fault.clause]
    if not own:
        return "no check judges the clause"
    finding = max(own, key=lambda finding: finding.verdict)
    return f"{finding.check}: {finding.verdict.word}: {finding.message}"


def _run(deployment: Deployment, checks: Iterable[str], profile: str) -> tuple[Run, Report]:
    """Run checks; profile: the text of the target's profile file, empty for none."""
    chosen = tuple(checks)
    known = all_checks()
    clauses = tuple({clause for name in chosen for clause in known[name].clauses})
    options = Options(checks=chosen, select=clauses, leaves=True, seed=SEED)
    with tempfile.TemporaryDirectory() as folder:
        target = deployment.target
        if profile:
            file = Path(folder) / "profile.toml"
            file.write_text(profile, encoding="utf-8")
            target = dataclasses.replace(target, profile=Include(str(file)))
        run = Run(target, options, transport=deployment.transport)
        report = run.execute()
    return run, report


def _discovered(run: Run) -> str:
    return known_to_toml(run.session.profile, run.session.known)


def try_fault(fault_id: str, *, everything: bool = False) -> MutantTrial:
    """Run its clause's checks, or all checks, against one known-bad deployment.

    It runs in process, on virtual time, and a second time where the first run is inconclusive.
    """
    fault = fault_of(fault_id)
    known = all_checks()
    checks = tuple(known) if everything else _checks_for(fault)
    if not checks:
        return judged(fault, [])
    wanted = {clause.id for clause in CLAUSES} if everything else {fault.clause}

    def findings(run: Run) -> list[Finding]:
        return [finding for finding in run.findings if finding.clause in wanted]

    first, report = _run(deploy(engine=fault.engine), checks, fault.operator_profile)
    trial = judged(fault, findings(first), report.results)
    own = [finding for finding in first.findings if finding.clause == fault.clause]
    if trial.is_killed or worst(own) < Verdict.INCONCLUSIVE:
        return trial
    second, report = _run(deploy(engine=fault.engine), checks, _discovered(first))
    trial = judged(fault, findings(second), report.results)
    return dataclasses.replace(trial, runs=2)


def _checks_for(fault: Fault) -> tuple[str, ...]:
    """Return the checks of a fault's clause, and the others that they depend on.

    A probe needs the scouts. A check that reviews all answers needs checks that send requests.
    """
    own = checks_of([fault.clause])
    if any(check.is_probe for check in own):
        beside = [all_checks()[name] for name in _SCOUTS]
    else:
        beside = [
            check for check in all_checks().values() if not check.is_probe and not check.takes_ns
        ]
        beside = [check for check in beside if check.load in {"light", "closing"}]
    return tuple(dict.fromkeys(check.id for check in (*own, *beside)))


def try_good() -> MutantTrial:
    """Run every check on the correct engine, without a profile and then with the discovered one."""
    known = all_checks()
    first, _ = _run(deploy(), known, "")
    second, _ = _run(deploy(), known, _discovered(first))
    return judged(None, [*first.findings, *second.findings])


_DESTINATION = "https://destination.example"
_KEYS_A_ROLE = 8
_MOST_CONNECTIONS = 500
_START_S = 20


@contextmanager
def served(make: Callable[..., Engine] = Engine) -> Iterator[Target]:
    """Serve an engine while the block runs; yields the target that describes it."""
    engine = make(world=SystemWorld())
    lines = list(demo_lines(engine, b"over http" * 4, _KEYS_A_ROLE, _DESTINATION))
    bound = bind("127.0.0.1", 0)
    connections = Connections(_MOST_CONNECTIONS)
    application = HttpApplication(engine, page_paths=PAGE_PATHS)
    server = uvicorn.Server(server_config(application, connections))
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[bound])), name="known-bad", daemon=True
    )
    thread.start()
    try:
        end_s = time.monotonic() + _START_S
        while not server.started and thread.is_alive() and time.monotonic() < end_s:
            time.sleep(0.01)
        assert server.started, "the server must start"
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        yield Target.from_document(Document(target_of(url, engine, lines)))
    finally:
        server.should_exit = True
        thread.join(_START_S)
        bound.close()
        engine.close()


def try_over_http(fault: Fault, *, generated: bool = True) -> MutantTrial:
    """Run its clause's checks against one known-bad deployment, over HTTP and in real time.

    generated: whether to include the schema layer's checks, which run over HTTP only.
    """
    all_checks()
    own = checks_of([fault.clause])
    checks = tuple(check.id for check in own if generated or not check.is_generated)
    with served(fault.engine) as target:
        run = Run(target, Options(checks=checks, select=(fault.clause,), seed=SEED))
        run.execute()
    findings = [finding for finding in run.findings if finding.clause == fault.clause]
    return judged(fault, findings)
