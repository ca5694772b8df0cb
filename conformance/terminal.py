"""The terminal: the plan, the progress, and the findings, failures first.

Without a terminal, as in the log of a CI job, a line every ten seconds shows the progress and what
the run waits for.
"""

from __future__ import annotations

import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import (
    BarColumn,
    ProgressColumn,
    SpinnerColumn,
    Task,
    TextColumn,
    TimeElapsedColumn,
)
from rich.progress import Progress as Bar
from rich.table import Column
from rich.text import Text

from conformance.context.check import Check
from conformance.context.choices import line_of
from conformance.context.session import Session
from conformance.context.verdicts import ClauseResult, Finding, Moment, Verdict, worst
from conformance.report.evidence import sender_of, status_of
from conformance.report.report import Report
from conformance.report.sections import Cause, causes, crashes, folds, passes
from conformance.runner.plan import RunPlan, blocked_addresses, unshown
from conformance.runner.preflight import Preflight
from conformance.runner.runner import Progress
from conformance.target import Target
from engine.files import span_text

_COLOURS: Final = {
    Verdict.PASS: "green",
    Verdict.INFORMATIONAL: "cyan",
    Verdict.NOT_APPLICABLE: "dim",
    Verdict.NOT_OBSERVABLE: "dim",
    Verdict.SKIPPED: "yellow",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.FAIL: "bold red",
    Verdict.ERROR: "bold magenta",
}
_MILLISECOND_NS: Final = 1_000_000
_SECOND_NS: Final = 1_000_000_000
_BEAT_S: Final = 10.0
"""Seconds between two progress lines in a log."""
_SHOWN_TIMELINE: Final = 14
_SHOWN_FINDINGS: Final = 3
_SHOWN_BODY: Final = 300


class _StateColumn(ProgressColumn):
    """Shows a text that is made anew each time the bar is drawn."""

    def __init__(self, state: Callable[[], str]) -> None:
        super().__init__(Column(no_wrap=True))
        self._state = state

    def render(self, task: Task) -> Text:  # noqa: ARG002 # reason: the column's form
        return Text(self._state())


class Terminal(Progress):
    """Prints progress to a terminal, or to a log where there is none."""

    def __init__(self, stream: TextIO | None = None, *, beat_s: float = _BEAT_S) -> None:
        self.console = Console(file=stream, highlight=False, soft_wrap=True)
        self._beat_s = beat_s
        self._bar: Bar | None = None
        self._running: dict[str, Check] = {}
        self._told: tuple[RunPlan, Session] | None = None
        self._done = 0
        self._skipped: set[str] = set()
        self._began_s = 0.0
        self._stop = threading.Event()
        self._beat: threading.Thread | None = None

    def planned(self, plan: RunPlan, session: Session) -> None:
        """Hold the plan back until the deployment answers: an unreachable one gets one line."""
        self._told = plan, session

    def show_plan(self) -> None:
        """Print the plan: checks, requests, duration, and what cannot be judged and why."""
        plan, session = self._planned
        for line in _plan_lines(plan, session.target, session.seed):
            self.console.print(line)

    def flown(self, preflight: Preflight) -> None:
        """Print the plan and what the preflight found."""
        if preflight.fatal is not None:
            return
        self.show_plan()
        print_ = self.console.print
        roles = ", ".join(preflight.accepted)
        median, spread = preflight.latency_ns, preflight.jitter_ns
        print_(
            f"preflight: keys accepted for {escape(roles)}; the median answer takes "
            f"{_ms(median)}, and answers vary by {_ms(spread)}"
        )
        print_(f"  addresses: {escape(preflight.apart_says)}")
        if preflight.open_says is not None:
            print_(f"  [bold red]{escape(preflight.open_says)}[/]")
        for why in preflight.problems.values():
            print_(f"  [yellow]cannot be used[/] {escape(why)}")
        self._began_s = time.monotonic()
        if self.console.is_terminal:
            self._bar = Bar(
                SpinnerColumn(),
                TextColumn("{task.completed}/{task.total} checks"),
                BarColumn(20),
                TimeElapsedColumn(),
                _StateColumn(self._state),
                console=self.console,
                transient=True,
            )
            self._bar.add_task("", total=len(self._planned[0].dealt))
            self._bar.start()
        else:
            self._beat = threading.Thread(target=self._go_on, name="progress", daemon=True)
            self._beat.start()

    def _go_on(self) -> None:
        """Print a line to a log at intervals."""
        while not self._stop.wait(self._beat_s):
            self.console.print(f"  … {escape(self._state())}")

    @property
    def _planned(self) -> tuple[RunPlan, Session]:
        assert self._told is not None, "a run says first what it has planned"
        return self._told

    def _state(self) -> str:
        took_s = int(time.monotonic() - self._began_s)
        plan, session = self._planned
        rests, now_ns = dict(session.rests), session.transport.now_ns
        floor_s = plan.floor_without_ns(self._skipped, rests) // _SECOND_NS
        of = f", at least {span_text(floor_s * _SECOND_NS)} planned" if floor_s else ""
        rest = plan.rest_beyond(self._skipped, rests)
        if rest.more_ns:
            of += f" ({span_text(rest.more_ns)} of it for {rest.why})"
        took = span_text(took_s * _SECOND_NS)
        parts = [f"{took} elapsed{of}: {self._done} of {len(plan.dealt)} checks done"]
        # Waits that end within a second are not worth a word.
        waits = [wait for wait in tuple(session.waits) if wait.until_ns > now_ns + _SECOND_NS]
        wait = max(waits, key=lambda wait: wait.until_ns, default=None)
        if wait is not None:
            left_s = -(-(wait.until_ns - now_ns) // _SECOND_NS)
            why = f" until {wait.why}" if wait.why else ""
            parts.append(f"{wait.check} waits {left_s} s{why}")
        others = sorted(self._running.values(), key=lambda check: -check.takes_ns)
        names = [check.id for check in others if wait is None or check.id != wait.check]
        if names:
            more = f" and {len(names) - 2} more" if names[2:] else ""
            parts.append(f"running: {', '.join(names[:2])}{more}")
        return "; ".join(parts)

    def began(self, check: Check) -> None:
        """Show that a check runs."""
        self._running[check.id] = check

    def ended(self, check: Check, findings: Sequence[Finding]) -> None:
        """Print what a check found, where it is skipped, inconclusive, failed or crashed."""
        self._running.pop(check.id, None)
        self._done += 1
        verdict = worst(findings)
        if all(finding.verdict is Verdict.SKIPPED for finding in findings):
            self._skipped.add(check.id)
        if verdict > Verdict.NOT_OBSERVABLE:
            message = next(finding.message for finding in findings if finding.verdict is verdict)
            word = f"[{_COLOURS[verdict]}]{verdict.word}[/]"
            self.console.print(f"  {word} {check.id}: {escape(message)}")
        if self._bar is not None:
            self._bar.update(self._bar.task_ids[0], completed=self._done)

    def cleaned(self, gone: int, left: int) -> None:
        """Print how many created objects were deleted."""
        self.close()
        tail = f"; {left} could not be deleted" if left else ""
        self.console.print(f"cleaning: {gone} resources that this run created are deleted{tail}")

    def close(self) -> None:
        """Stop the live output."""
        self._stop.set()
        if self._beat is not None:
            self._beat.join()
            self._beat = None
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _plan_lines(plan: RunPlan, target: Target, seed: int) -> Iterable[str]:
    yield f"target {escape(target.base_url)} · seed {seed}"
    checks = plan.dealt
    beside = sum(len(together) for together in plan.rounds)
    parallel = f", {beside} of them in parallel" if beside > 1 else ""
    yield f"plan: {len(checks)} checks of {len(plan.clauses)} clauses{parallel}"
    yield (
        f"  sends about {plan.requests:,} requests, {plan.requests_most:,} at most "
        f"(budget.requests = {target.budget.requests:,})"
    )
    if plan.floor_ns:
        yield f"  {plan.durations}"
    if plan.short_says is not None:
        yield f"  [bold yellow]warning[/] {plan.short_says}"
    rounds = [together for together in plan.rounds if together]
    if len(rounds) > 1:
        yield (
            f"  in {len(rounds)} rounds, {span_text(plan.pause_ns)} apart; more keys and "
            "addresses would make it one"
        )
    for line in blocked_addresses(plan, target):
        yield f"  [bold yellow]warning[/] {escape(line)}"
    for fold in unshown(plan):
        yield f"  [yellow]not judged here:[/] {escape(', '.join(fold[1]))}: {escape(fold[0])}"


# --- what was found -----------------------------------------------------------------------------


def show_report(console: Console, report: Report, files: Sequence[Path] = ()) -> None:
    """Print failures by cause, what is not judged by reason, what passed, and the last lines."""
    for cause in causes(report.results, report.new):
        _show_cause(console, report, cause)
    variables = report.legend()
    if variables:
        console.print("\nshell variables in these commands:")
        for line in variables:
            console.print(f"  {escape(line)}")
    for result in crashes(report.results):
        console.print(
            f"\n[bold magenta]{result.clause.id}[/] {escape(report.redactor.text(result.message))}"
        )
    console.print()
    for fold in folds(report.results):
        ids = ", ".join(result.clause.id for result in fold.results)
        reason = report.redactor.text(fold.reason)
        word = f"[{_COLOURS[fold.verdict]}]{fold.verdict.word}[/]"
        console.print(f"{word} {ids}: {escape(reason)}")
    passed = passes(report.results)
    if passed:
        ids = ", ".join(result.clause.id for result in passed)
        console.print(f"[green]pass[/] ({len(passed)}) {ids}")
    for note in report.notes:
        console.print(f"note: {escape(note)}")
    for choice, value in report.readings().items():
        console.print(f"choice: {escape(line_of(choice, value))}")
    for path in files:
        console.print(f"wrote {escape(str(path))}")
    _show_last(console, report)


def _show_last(console: Console, report: Report) -> None:
    floor_ns, rest = report.floor_ns, report.rest
    floor = f" (minimum {span_text(floor_ns)})" if floor_ns else ""
    if rest.more_ns:
        more = span_text(rest.more_ns)
        floor += f", and this one {more} more for {rest.why}"
    took = span_text(report.took_ns)
    console.print(f"{report.requests:,} requests in {took}{floor}")
    if report.baseline is not None and report.comparison is not None:
        only = "; only new findings fail this run" if report.only_new else ""
        line = f"against {report.baseline.path}: {report.comparison.line}{only}"
        console.print(escape(line))
    console.print(f"[{_line_colour(report)}]{escape(report.redactor.text(report.verdict_line))}[/]")
    if report.command:
        console.print(escape(shlex.join(report.command)))


def _show_cause(console: Console, report: Report, cause: Cause) -> None:
    result = cause.result
    new = " [bold red](new)[/]" if result.clause.id in report.new else ""
    console.print(f"\n[{_colour(result)}]{result.word}[/] [bold]{result.clause.id}[/]{new}")
    console.print(f"  the clause: {escape(result.clause.text)}")
    failures = [finding for finding in result.findings if finding.verdict is Verdict.FAIL]
    different = list(
        {(finding.check, finding.message): finding for finding in reversed(failures)}.values()
    )[::-1]
    for finding in different[:_SHOWN_FINDINGS]:
        _show_finding(console, report, finding)
    more = len(failures) - len(different[:_SHOWN_FINDINGS])
    if more:
        console.print(f"  and {more} more finding{'s' if more > 1 else ''} in the report")
    if not failures:
        console.print(f"  {escape(report.redactor.text(result.message))}")
    if cause.followers:
        ids = ", ".join(result.clause.id for result in cause.followers)
        console.print(f"  because of it these fail too: {ids}")


def _show_finding(console: Console, report: Report, finding: Finding) -> None:
    console.print(
        f"  seen: {escape(report.redactor.text(finding.message))} \\[{escape(finding.check)}]"
    )
    if finding.accepts:
        console.print(f"  expected: {escape(finding.accepts)}")
    for line in _timeline(report.timeline(finding)):
        console.print(f"    {escape(line)}")
    burst = report.burst(finding)
    if burst is not None:
        console.print(f"  the burst: {escape(burst)}")
    for evidence in report.evidence(finding):
        console.print(f"  {escape(evidence['curl'])}")
        body = evidence["body"]
        body = body if len(body) <= _SHOWN_BODY else f"{body[:_SHOWN_BODY]}…"
        answer = evidence["error"] or f"{evidence['status']} {body}"
        console.print(f"    -> {escape(answer)}")


def _timeline(timeline: Sequence[Moment]) -> Iterable[str]:
    """Return the lines of a limit's timeline, without the middle where there are many."""
    lines = []
    start_ns = timeline[0].at_ns if timeline else 0
    for moment in timeline:
        until = f" to {_offset(moment.until_ns - start_ns)}" if moment.until_ns is not None else ""
        at = f"{_offset(moment.at_ns - start_ns)}{until}"
        parts = (at, status_of(moment), sender_of(moment), moment.message)
        lines.append("  ".join(filter(None, parts)))
    if len(lines) > _SHOWN_TIMELINE:
        half = _SHOWN_TIMELINE // 2
        lines = [*lines[:half], f"… {len(lines) - 2 * half} more", *lines[-half:]]
    return lines


def _offset(offset_ns: int) -> str:
    return f"{offset_ns / _SECOND_NS:+.3f} s"


def _colour(result: ClauseResult) -> str:
    if result.is_finding:
        return "bold red"
    return "yellow" if result.is_expected else _COLOURS[result.verdict]


def _line_colour(report: Report) -> str:
    if report.exit_code:
        return "bold red"
    return "bold yellow" if report.partial else "bold green"


def _ms(duration_ns: int) -> str:
    return f"{duration_ns / _MILLISECOND_NS:.1f} ms"
