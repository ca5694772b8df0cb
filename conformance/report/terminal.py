"""The terminal: the plan, live progress, a table by clause, and the last lines."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import Progress as Bar
from rich.progress import SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from conformance.planning import Plan
from conformance.preflight import Preflight
from conformance.registry import Check
from conformance.report.report import Report
from conformance.results import ClauseResult
from conformance.target import Target
from conformance.verdicts import Finding, Verdict, worst
from engine.files import format_duration

__all__ = ["Terminal", "show_report"]

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


class Terminal:
    """Tells a terminal, or a log where there is none, how a run goes."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self.console = Console(file=stream, highlight=False, soft_wrap=True)
        self._bar: Bar | None = None
        self._running: dict[str, None] = {}
        self._done = 0
        self._total = 0

    def planned(self, plan: Plan, target: Target, seed: int) -> None:
        """Print the plan: what runs, how long, how many requests, what cannot be shown and why."""
        print_ = self.console.print
        print_(f"target {escape(target.base_url)} · seed {seed}")
        checks = plan.dealt
        beside = sum(len(each) for each in plan.rounds)
        floor = format_duration(plan.floor_ns) if plan.floor_ns else "no time"
        print_(
            f"plan: {len(checks)} checks of {len(plan.clauses)} clauses, {beside} of them side by "
            f"side"
        )
        print_(
            f"  about {plan.requests} requests, {plan.requests_most} at most "
            f"(budget.requests = {target.budget.requests})"
        )
        print_(
            f"  the floor is {floor}: windows, blocks and retentions take that long, however fast "
            "the deployment answers"
        )
        rounds = [each for each in plan.rounds if each]
        if len(rounds) > 1:
            print_(
                f"  in {len(rounds)} rounds, {format_duration(plan.pause_ns)} apart: more keys and "
                "addresses would make it one"
            )
        for line in _unshown(plan):
            print_(f"  [yellow]cannot be shown here[/] {escape(line)}")
        self._total = len(checks)

    def flown(self, preflight: Preflight) -> None:
        """Print what the preflight found."""
        print_ = self.console.print
        if preflight.fatal is not None:
            print_(f"[bold red]preflight:[/] {escape(preflight.fatal)}")
            return
        roles = ", ".join(preflight.accepted)
        median, spread = preflight.latency_ns, preflight.jitter_ns
        print_(
            f"preflight: accepted {escape(roles)}; an answer takes {_ms(median)}, give or take "
            f"{_ms(spread)}"
        )
        if preflight.apart is not None or preflight.apart_says:
            print_(f"  addresses: {escape(preflight.apart_says)}")
        if preflight.open_says is not None:
            print_(f"  [bold red]{escape(preflight.open_says)}[/]")
        for why in preflight.problems.values():
            print_(f"  [yellow]cannot be used[/] {escape(why)}")
        if self.console.is_terminal:
            self._bar = Bar(
                SpinnerColumn(),
                TextColumn("{task.completed}/{task.total} checks"),
                TimeElapsedColumn(),
                TextColumn("{task.description}"),
                console=self.console,
                transient=True,
            )
            self._bar.add_task("", total=self._total)
            self._bar.start()

    def began(self, check: Check) -> None:
        """Show what runs."""
        self._running[check.id] = None
        self._show()

    def ended(self, check: Check, findings: Sequence[Finding]) -> None:
        """Print what a check found, where that is no plain pass."""
        self._running.pop(check.id, None)
        self._done += 1
        verdict = worst(findings)
        if verdict > Verdict.NOT_OBSERVABLE:
            says = next(one.says for one in findings if one.verdict is verdict)
            self.console.print(
                f"  [{_COLOURS[verdict]}]{verdict.word}[/] {check.id}: {escape(says[:160])}"
            )
        self._show()

    def _show(self) -> None:
        if self._bar is not None:
            names = list(self._running)
            text = ", ".join(names[:4]) + (f" and {len(names) - 4} more" if names[4:] else "")
            self._bar.update(self._bar.task_ids[0], completed=self._done, description=text)

    def cleaned(self, gone: int, left: int) -> None:
        """Print what was deleted again."""
        self.close()
        tail = f"; {left} could not be" if left else ""
        self.console.print(f"cleaning: {gone} created things are deleted again{tail}")

    def close(self) -> None:
        """End the live part."""
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _unshown(plan: Plan) -> Iterable[str]:
    by_reason: dict[str, list[str]] = {}
    for finding in plan.left_out:
        by_reason.setdefault(finding.says, []).append(finding.clause)
    for clause in plan.clauses:
        if clause.unobservable is not None:
            by_reason.setdefault(clause.unobservable, []).append(clause.id)
        if clause.masked is not None:
            by_reason.setdefault(clause.masked, []).append(f"{clause.id} in part")
    for reason, clauses in by_reason.items():
        yield f"{', '.join(dict.fromkeys(clauses))}: {reason}"


def show_report(console: Console, report: Report, files: Sequence[Path] = ()) -> None:
    """Print the table, what it sums up to, and as the last line the command that repeats it."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("clause", no_wrap=True)
    table.add_column("verdict", no_wrap=True)
    table.add_column("what was seen", overflow="fold")
    for result in report.results:
        says = report.redactor.text(result.says)
        table.add_row(result.clause.id, f"[{_colour(result)}]{result.word}[/]", escape(says[:220]))
    console.print(table, soft_wrap=False)
    for result in report.results:
        if result.verdict in {Verdict.FAIL, Verdict.ERROR}:
            _show_evidence(console, report, result)
    for note in report.notes:
        console.print(f"note: {escape(note)}")
    for choice, value in report.readings().items():
        console.print(f"reading: {escape(choice)} = {escape(repr(value))}")
    for path in files:
        console.print(f"wrote {escape(str(path))}")
    floor = format_duration(report.floor_ns) if report.floor_ns else "0s"
    took = format_duration(report.took_ns // _MILLISECOND_NS * _MILLISECOND_NS)
    console.print(f"{report.requests} requests; took {took}; the floor is {floor}")
    console.print(f"[{_line_colour(report)}]{escape(report.redactor.text(report.verdict_line))}[/]")
    if report.command:
        console.print(escape(shlex.join(report.command)))


def _show_evidence(console: Console, report: Report, result: ClauseResult) -> None:
    console.print(f"\n[bold]{result.clause.id}[/] {escape(result.clause.text)}")
    for one in result.findings:
        if one.verdict not in {Verdict.FAIL, Verdict.ERROR}:
            continue
        console.print(f"  {escape(report.redactor.text(one.says))} \\[{escape(one.check)}]")
        if one.accepts:
            console.print(f"  accepted would be: {escape(one.accepts)}")
        for shown in report.evidence(one):
            console.print(f"  {escape(shown['curl'])}")
            answer = shown["error"] or f"{shown['status']} {shown['body'][:300]}"
            console.print(f"    -> {escape(answer)}")


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
