"""A run: plan, preflight, checks, cleaning up, verdicts.

Checks that wait run side by side; the others run one after another beside them. Probes of limits
have keys and addresses of their own. So a run takes little longer than the longest window or block,
which no suite can shorten.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime as dt
import random
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from conformance.context.check import Check, about_all, all_checks
from conformance.context.context import CheckContext
from conformance.context.cooldown import Cooldown, file_of
from conformance.context.history import HISTORY_FILE, HistoryWriter, finding_record
from conformance.context.session import Rest, Session
from conformance.context.verdicts import Finding, Verdict, assemble, unrun_notes
from conformance.report.baseline import read_results
from conformance.report.report import Report, chosen_baseline, chosen_formats
from conformance.runner.cleanup import clean
from conformance.runner.outcome import (
    crash_text,
    crashed,
    judge,
    settled,
)
from conformance.runner.plan import Dealt, RunPlan, leave_out, loads_after_ns, make_plan, starts_ns
from conformance.runner.preflight import Preflight, Unreachable, fly
from conformance.target import Target
from conformance.wire.over_http import HttpTransport
from conformance.wire.redaction import without_secrets
from conformance.wire.transport import Transport
from engine.clauses import select
from engine.errors import InputError
from engine.files import Include
from engine.limits import LimitTable
from engine.profile import Profile


class Progress:
    """Progress callbacks of a run; these do nothing."""

    def planned(self, plan: RunPlan, session: Session) -> None:
        """Receive the plan, and the session, which knows what checks wait for."""

    def flown(self, preflight: Preflight) -> None:
        """Receive what the preflight found."""

    def began(self, check: Check) -> None:
        """Receive a check that begins."""

    def ended(self, check: Check, findings: Sequence[Finding]) -> None:
        """Receive what a check found."""

    def cleaned(self, gone: int, left: int) -> None:
        """Receive how many created objects were deleted, and how many are left."""


@dataclass(frozen=True, kw_only=True)
class Options:
    """The options of a run.

    select: clause ids or prefixes that end in `-`; none means all. checks: ids of the checks to
    run, instead of every check that judges these clauses. schema_only: run the schema layer alone.
    no_limits: leave out the probes of limits. strict: *partial* counts as a finding. leaves: delete
    nothing that the run has created, because the deployment ends with the run.
    """

    select: tuple[str, ...] = ()
    checks: tuple[str, ...] = ()
    schema_only: bool = False
    no_limits: bool = False
    strict: bool = False
    leaves: bool = False
    seed: int | None = None


class Run:
    """One run against one deployment; `execute` once.

    transport: HTTP to the target's URL unless given (a deployment in process, on virtual time).
    out: the folder for the history; None writes none.
    """

    def __init__(
        self,
        target: Target,
        options: Options | None = None,
        *,
        transport: Transport | None = None,
        profile: Profile | None = None,
        limits: LimitTable | None = None,
        out: Path | None = None,
        progress: Progress | None = None,
        command: Sequence[str] = (),
    ) -> None:
        self.options = Options() if options is None else options
        self.target = target
        self.out = out
        self.command = tuple(command)
        self.progress = Progress() if progress is None else progress
        self.clauses = select(list(self.options.select))
        seed = self.options.seed
        self.seed = random.SystemRandom().getrandbits(31) if seed is None else seed
        self.transport = HttpTransport(target) if transport is None else transport
        self.session = Session(
            target, self.transport, seed=self.seed, profile=profile, limits=limits
        )
        self.history = HistoryWriter(
            None if out is None else out / HISTORY_FILE, self.session.redactor
        )
        self.session.history = self.history
        self.findings: list[Finding] = []
        self.notes: list[str] = []
        self.preflight = Preflight()
        self._is_live = isinstance(self.transport, HttpTransport)
        if self._is_live:
            self.session.nonce = f"-{random.SystemRandom().getrandbits(32):08x}"
            now_ns = self.transport.wall_start_ns + self.transport.now_ns
            self.session.cooldown = Cooldown.load(file_of(target.base_url), now_ns)
        self._ended: list[str] = []
        self._spans: dict[str, tuple[int, int]] = {}
        self._gone = 0
        self._broken: list[str] = []

    def plan(self) -> RunPlan:
        """Return what would run."""
        checks = self._checks()
        chosen = [check for check in checks if not (self.options.no_limits and check.is_probe)]
        plan = make_plan(self.target, self.session.limits, self.clauses, chosen)
        for check in checks:
            if check not in chosen:
                leave_out(plan, check, "left out by --no-limits")
        return plan

    def _checks(self) -> list[Check]:
        options = self.options
        return [
            check
            for check in all_checks().values()
            if (not options.checks or check.id in options.checks)
            and (not options.schema_only or check.is_generated)
            # Generated requests take too long to be worth it where nothing is on the wire.
            and (self._is_live or not check.is_generated)
        ]

    def _unrun(self) -> tuple[str, ...]:
        """Return the checks of these clauses that virtual time leaves out, unless named."""
        if self._is_live or self.options.checks:
            return ()
        wanted = {clause.id for clause in self.clauses}
        generated = [check for check in all_checks().values() if check.is_generated]
        return tuple(check.id for check in generated if wanted.intersection(check.clauses))

    def execute(self) -> Report:
        """Run everything and return the report. Raises `Unreachable` when there is no answer."""
        started_at = dt.datetime.now(dt.UTC)
        began_ns = self.transport.now_ns
        plan = self.plan()
        self.session.reserved = dict(plan.reserved)
        head = self._head(plan, started_at)
        self.history.write("run", head)
        try:
            self.progress.planned(plan, self.session)
            self._fly(plan)
            self._say(plan.left_out)
            if self.preflight.fatal is None:
                self._check(plan)
            if not self.options.leaves:
                self.session.begin_last_cleaning()
                self._clean()
            cleaned = self._gone, len(self.session.created)
            if any(cleaned):
                self.progress.cleaned(*cleaned)
            tail = self._tail(plan, self.transport.now_ns - began_ns, cleaned)
            self.history.write("end", tail)
        except KeyboardInterrupt:
            clean(self.session)  # a second Ctrl-C ends this too
            raise
        finally:
            if self._is_live and self.session.cooldown.entries():
                self.session.cooldown.save(file_of(self.target.base_url))
            self.transport.close()
            self.history.close()
        return report_of(
            {**head, **tail}, self.session, self.findings, self.notes, spans=self._spans
        )

    # --- preflight ------------------------------------------------------------------------------

    def _fly(self, plan: RunPlan) -> None:
        roles = [role for dealt in plan.dealt for role in dealt.check.roles]
        probes = any(dealt.check.is_probe for dealt in plan.dealt)
        usual = [role for role in ("private_prod", "private_test") if self.target.labels(role)]
        try:
            self.preflight = fly(self.session, [*usual, *roles], with_addresses=probes)
        except Unreachable:
            raise
        except Exception as error:  # noqa: BLE001 # reason: a fault of the harness ends in a report
            message = self._broke("its preflight", error)
            self.preflight = Preflight(fatal=f"the harness failed in {message}")
        self.progress.flown(self.preflight)
        self._say(self.preflight.findings)
        if self.preflight.fatal is not None:
            for dealt in plan.dealt:
                self._say(about_all(dealt.check, Verdict.INCONCLUSIVE, self.preflight.fatal))

    def _hindered(self, dealt: Dealt) -> str | None:
        """Return why a check's verdict could not be trusted here, None when it can."""
        problems = self.preflight.problems
        why = next((problems[role] for role in dealt.check.roles if role in problems), None)
        if why is None and self.preflight.apart is False and dealt.check.sources > 1:
            why = self.preflight.apart_says
        return why

    # --- checks ---------------------------------------------------------------------------------

    def _check(self, plan: RunPlan) -> None:
        first, *later = plan.rounds
        began_ns = self.transport.now_ns
        join = self.transport.start(self._round(first))
        after = loads_after_ns(first, plan.sequential, self.session.latency_ns)
        for load, after_ns in after.items():
            of_load = [dealt for dealt in plan.sequential if dealt.check.load == load]
            if self._is_live and of_load:
                self._sleep_until(began_ns + after_ns)
            for dealt in of_load:
                self.transport.run([self._run(dealt)])
        if self._is_live and plan.sequential:
            self._clean_shared(plan)
        join()
        for together in later:
            until_ns = self.transport.now_ns + plan.pause_ns
            with self.session.waiting(
                "the next round", until_ns, "the limits on its keys are over"
            ):
                self._sleep_until(until_ns)
            self.transport.run(self._round(together))
        for dealt in plan.heavy:
            self.transport.run(self._round([dealt]))

    def _sleep_until(self, at_ns: int) -> None:
        until_ns = min(at_ns, self.session.deadline_ns)
        self.transport.run([self.transport.sleep_until_ns(until_ns)])

    async def _run(self, dealt: Dealt) -> None:
        with self._reporting(dealt.check):
            ctx = self._begin(dealt)
            if ctx is not None:
                self._end(ctx, await judge(ctx))

    @contextlib.contextmanager
    def _reporting(self, check: Check) -> Iterator[None]:
        """Turn an exception around a check into an error of that check; the others go on."""
        try:
            yield
        except BrokenPipeError:
            raise  # nobody reads what is printed: the run is over
        except Exception as error:  # noqa: BLE001 # reason: a fault of the harness is a verdict
            self._say(crashed(check, self.session, error))

    def _broke(self, where: str, error: Exception) -> str:
        """Record a failure of the harness outside a check; returns its description."""
        self._broken.append(self.session.redactor.text(f"{where}: {crash_text(error)}"))
        return self._broken[-1]

    def _clean(self, **chosen: Any) -> None:  # noqa: ANN401 # reason: arguments of `clean`
        """Delete what was created; an error here does not end the run."""
        try:
            self._gone += clean(self.session, **chosen)
        except Exception as error:  # noqa: BLE001 # reason: a fault of the harness ends in a report
            self._broke("cleaning up", error)

    def _round(self, together: Sequence[Dealt]) -> list[Coroutine[Any, Any, None]]:
        round_ns = self.transport.now_ns

        async def run_later(dealt: Dealt, after_ns: int) -> None:
            if self._is_live and after_ns:
                await self.transport.sleep_until_ns(round_ns + after_ns)
            await self._run(dealt)

        starts = starts_ns(together)
        return [run_later(dealt, after) for dealt, after in zip(together, starts, strict=True)]

    def _clean_shared(self, plan: RunPlan) -> None:
        """Delete what ended checks have created, while probes wait, without the probes' keys."""
        shared = plan.sequential[0]
        theirs = {label for labels in shared.keys.values() for label in labels}
        busy = [label for label in self.target.key_labels if label not in theirs]
        self._clean(made_by=set(self._ended), busy=busy, sources=shared.sources)

    def _begin(self, dealt: Dealt) -> CheckContext | None:
        check = dealt.check
        why = self._hindered(dealt)
        if why is not None:
            self._say(about_all(check, Verdict.INCONCLUSIVE, why))
            return None
        keys = {role: list(labels) for role, labels in dealt.keys.items()}
        self.history.write(
            "check",
            {
                "id": check.id,
                "began_ns": self.transport.now_ns,
                "keys": keys,
                "sources": list(dealt.sources),
            },
        )
        self._spans[check.id] = (self.transport.now_ns, self.transport.now_ns)
        self.progress.began(check)
        return CheckContext(check, self.session, keys=keys, sources=dealt.sources)

    def _end(self, ctx: CheckContext, findings: list[Finding]) -> None:
        for finding in findings:
            self.history.write("found", finding_record(finding))
        ended_ns = self.transport.now_ns
        self.history.write("ended", {"id": ctx.check.id, "at_ns": ended_ns})
        self._spans[ctx.check.id] = (self._spans[ctx.check.id][0], ended_ns)
        self.findings += findings
        self.notes += learn(self.session, findings)
        self._ended.append(ctx.check.id)
        self.session.reserved.pop(ctx.check.id, None)
        if not ctx.check.is_concurrent:
            self.session.ended.append(ctx.check.id)
        self.progress.ended(ctx.check, findings)

    def _say(self, findings: Iterable[Finding]) -> None:
        for finding in findings:
            self.history.write("said", finding_record(finding))
            self.findings.append(finding)

    # --- what is kept ---------------------------------------------------------------------------

    def _head(self, plan: RunPlan, started_at: dt.datetime) -> dict[str, Any]:
        """Return what the history says at the beginning of a run."""
        session = self.session
        return {
            "format": 1,
            "started_at": started_at.isoformat(timespec="seconds"),
            "seed": self.seed,
            "nonce": session.nonce,
            "wall_start_ns": session.wall_start_ns,
            "select": list(self.options.select),
            "strict": self.options.strict,
            "command": list(self.command),
            "floor_ns": plan.floor_ns,
            "recently_used": session.cooldown.entries(),
            "unseen": "left out by --schema-only"
            if self.options.schema_only
            else "no check has looked at it",
            "unrun": list(self._unrun()),
            "target": without_secrets(self.target),
            "profile": session.profile.to_toml(),
            "known": sorted(session.known),
            "limits": session.limits.to_toml(),
        }

    def _unplayed(self, plan: RunPlan) -> set[str]:
        """Return the checks that ended before their shortest duration, without pass or failure."""
        settled = {
            finding.check
            for finding in self.findings
            if finding.verdict in {Verdict.PASS, Verdict.FAIL}
        }
        judged = set()
        for dealt in plan.dealt:
            began_ns, ended_ns = self._spans.get(dealt.check.id, (0, 0))
            if dealt.check.id not in settled and ended_ns - began_ns < dealt.check.takes_ns:
                judged.add(dealt.check.id)
        return judged

    def _tail(self, plan: RunPlan, took_ns: int, cleaned: tuple[int, int]) -> dict[str, Any]:
        """Return what the history says at the end of a run."""
        unplayed = self._unplayed(plan)
        return {
            "took_ns": took_ns,
            "floor_ns": plan.floor_without_ns(unplayed),
            "rest": list(plan.rest_beyond(unplayed, self.session.rests)),
            "requests": self.session.requests,
            "cleaned": list(cleaned),
            "latency_ns": self.session.latency_ns,
            "aborted": self.preflight.fatal,
            "broken": self._broken,
            "preflight": dataclasses.asdict(self.preflight),
        }


def report_of(
    stated: Mapping[str, Any],
    session: Session,
    findings: Iterable[Finding],
    notes: Iterable[str],
    *,
    spans: Mapping[str, tuple[int, int]],
) -> Report:
    """Return the report of a run; stated: what its history says at its beginning and at its end."""
    preflight, unrun = stated["preflight"], tuple(stated.get("unrun", ()))
    target = session.target
    return Report(
        results=assemble(
            select(list(stated["select"])),
            settled(findings, all_checks(), preflight["doubt"], preflight.get("doubts", {})),
            expected=target.expected_failures,
            unseen=stated["unseen"],
        ),
        exchanges=session.exchanges,
        redactor=session.redactor,
        target=target,
        profile=session.profile,
        known=frozenset(session.known),
        notes=(*target.notes, *notes, *unrun_notes(unrun)),
        preflight=preflight,
        seed=stated["seed"],
        started_at=stated["started_at"],
        took_ns=stated["took_ns"],
        floor_ns=stated["floor_ns"],
        rest=Rest(*stated.get("rest", ())),
        requests=stated["requests"],
        cleaned=(stated["cleaned"][0], stated["cleaned"][1]),
        strict=stated["strict"],
        aborted=stated["aborted"],
        command=tuple(stated["command"]),
        unrun=unrun,
        broken=tuple(stated.get("broken", ())),
        spans=spans,
    )


def learn(session: Session, findings: Iterable[Finding]) -> list[str]:
    """Record the choices that findings report; returns a note for each contradiction."""
    choices = []
    for finding in findings:
        if finding.reading is not None:
            wrong = session.learn(finding.reading)
            if wrong is not None:
                choices.append(f"{finding.check}: {wrong}")
    return choices


def run(  # noqa: PLR0913 # reason: the options of a run, all by name
    target: Target | str | Path,
    *,
    select: Sequence[str] = (),
    no_limits: bool = False,
    schema_only: bool = False,
    strict: bool = False,
    seed: int | None = None,
    transport: Transport | None = None,
    profile: str | Path | None = None,
    out: str | Path | None = None,
    formats: Sequence[str] = (),
    baseline: str | Path | None = None,
    only_new: bool = False,
    progress: Progress | None = None,
) -> Report:
    """Run the suite against a deployment and return the report; for notebooks and programs.

    Works inside a running event loop. profile: a file of the deployment's known choices, which
    replaces the target's. out: a folder for the history and the report's files. formats: the
    formats of these files, as for `--format`: json, junit, html, sarif, annotations. baseline: the
    folder of an earlier run, to tell what is new, mended and unchanged; only_new: findings of the
    baseline do not fail this run. Raises `InputError` for a bad argument or target, `Unreachable`
    when there is no answer.
    """
    if formats and out is None:
        raise InputError("formats needs out, the folder that the files are written to")
    chosen = chosen_formats([formats] if isinstance(formats, str) else formats)
    earlier = chosen_baseline(baseline, only_new=only_new)
    if not isinstance(target, Target):
        target = Target.from_toml(target)
    if profile is not None:
        target = dataclasses.replace(target, profile=Include(str(profile)))
    options = Options(
        select=tuple(select),
        no_limits=no_limits,
        schema_only=schema_only,
        strict=strict,
        seed=seed,
    )
    folder = None if out is None else Path(out)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    report = Run(target, options, transport=transport, out=folder, progress=progress).execute()
    report = dataclasses.replace(report, baseline=earlier, only_new=only_new)
    if folder is not None:
        report.save(folder, chosen)
    return report


# --- replay -------------------------------------------------------------------------------------

_BAD: Final = ("fail", "error")


def failed(results: Mapping[str, Any], ids: Sequence[str]) -> dict[str, str]:
    """Return those of the clauses that failed in a run's results, with their verdicts."""
    wanted = {clause.id for clause in select(list(ids))}
    return {
        result["clause"]: result["verdict"]
        for result in results["clauses"]
        if result["clause"] in wanted and result["verdict"] in _BAD
    }


def again(
    results: Mapping[str, Any],
    before: Mapping[str, str],
    target: Target,
    *,
    transport: Transport | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run the checks that failed once more and return their report."""
    checks = {
        finding["check"]
        for result in results["clauses"]
        if result["clause"] in before
        for finding in result["findings"]
        if finding["verdict"] in _BAD
    }
    options = Options(select=tuple(before), checks=tuple(sorted(checks)), seed=results["seed"])
    return Run(target, options, transport=transport, progress=progress).execute()


def replay(
    folder: str | Path,
    target: Target | str | Path,
    ids: Sequence[str],
    *,
    transport: Transport | None = None,
) -> Report:
    """Repeat the failed checks of the run in a folder, with the same seed; return the report.

    ids: clauses, or the beginnings of their ids, such as `TOK-ATOMIC` or `LIM-`. Raises
    `InputError` for a folder without a run, and where nothing of the clauses failed.
    """
    results = read_results(Path(folder))
    before = failed(results, ids)
    if not before:
        raise InputError(f"ids = {', '.join(ids)}: nothing of it failed in {folder}")
    if not isinstance(target, Target):
        target = Target.from_toml(target)
    return again(results, before, target, transport=transport)
