"""The commands that read an access log, `replay` and `fit`: their flags, and what they print."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.command_line import RESULTS_PAGE
from simulator.logs import log_name
from simulator.options import (
    DEFAULT_KIND,
    DEFAULT_TENANT,
    FitOptions,
    ReplayOptions,
    add_flags,
    given,
    repeated,
)
from simulator.progress import progress_shown
from simulator.rows import Result, check_out
from simulator.views.findings import Findings, gather, together_ns
from simulator.views.text import (
    Axis,
    console,
    count_text,
    counted_text,
    plain_table,
    plain_text,
    share_text,
    span_text,
)

_SHOWN: Final = 10

_SCENARIO: Final = "scenario.toml"


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `replay`."""
    parser.description = "Put the requests of a real access log through the limits."

    add_flags(parser, ReplayOptions, out="folder of the results (runs/<log>-0)")
    parser.add_argument("--quiet", action="store_true", help="print only the report's path")


def run_replay(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.study.replay import SEED, replay, run_name
    from simulator.views.report import REPORT_FILE

    out = Path(args.out) if args.out else Path("runs") / f"{run_name(log_name(args.source))}-{SEED}"
    check_out(out, force=args.force)
    screen = console()
    if not args.quiet:
        tenant = args.tenant or DEFAULT_TENANT
        kind = args.as_kind or DEFAULT_KIND
        keys = f"keys by {args.map}" if args.map else f"every key {kind} of a {tenant} tenant"
        screen.print(
            f"seed {SEED}, fidelity {args.fidelity}, {keys}, speed {args.speed},"
            f" limits {args.limits or 'default'}",
            markup=False,
        )
    command = ["python", "-m", "simulator", "replay", *repeated(args, ReplayOptions, force=True)]
    asked = given(args, ReplayOptions) | {"out": out, "command": command}
    with _progress(quiet=args.quiet) as progress:
        result = replay(**asked, progress=progress)
    if not args.quiet:
        _print_answer(result, screen)
        if args.check:
            broken = len(result.violations)
            found = f"{broken} broken" if broken else "all hold"
            screen.print(f"checks: {found} ({result.check_s:.2f} s)", markup=False)
        print(f"columns: {RESULTS_PAGE} explains them")
        print("again:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    else:
        print(out / REPORT_FILE)
    for violation in result.violations[:5]:
        print(f"broken invariant: {violation}", file=sys.stderr)
    return 1 if result.violations else 0


def _print_answer(result: Result, console: Console) -> None:
    """Print who would have been refused, when, by which clause, and for how long.

    Text from the log is shown without control characters and never as markup.
    """
    summary = result.summary
    findings = gather(result.batches(), summary, bins=1)
    replayed = summary["replay"]
    axis = Axis.of(summary)
    _print_headline(summary, console)
    if summary["totals"]["refused"]:
        console.print(_by_clause(summary, findings, axis))
    if findings.parties:
        console.print(_by_party(findings, axis))
    if "against" in summary:
        _print_against(summary, console)
    _print_shadow(summary, console)
    _print_unparsed(replayed, console)


def _print_headline(summary: dict[str, Any], console: Console) -> None:
    totals, replayed = summary["totals"], summary["replay"]
    console.print(
        Text(
            f"{counted_text(totals['offered'], 'request')} from"
            f" {counted_text(replayed['addresses'], 'address', 'addresses')} with"
            f" {counted_text(replayed['keys'], 'key')}, over"
            f" {span_text(replayed['log_span_ns'])} of log:"
            f" {count_text(totals['refused'])} would have been refused"
            f" ({share_text(totals['refused'], totals['offered'])})."
        )
    )


def _by_clause(summary: dict[str, Any], findings: Findings, axis: Axis) -> Table:
    # A log with too few columns does not show when and for how long (`Findings.parts`).
    told = ("first", "last", "shut out") if "parties" in findings.parts else ()
    names = ("clause", "offered", "refused", "share", *told, "addresses")
    table = _table("By limit clause", names[:1], names[1:])
    for line in summary["clauses"]:
        if not line["offered"]:
            continue
        found = [each for who, each in findings.parties.items() if who.clause == line["clause"]]
        times = ["–"] * len(told)
        if found:
            times = [
                axis.instant(min(each.first_ns for each in found)),
                axis.instant(max(each.last_ns for each in found)),
                span_text(together_ns(found)),
            ]
        table.add_row(
            line["clause"],
            count_text(line["offered"]),
            count_text(line["refused"]),
            share_text(line["refused"], line["offered"]),
            *times,
            count_text(line["ips"]),
        )
    return table


def _by_party(findings: Findings, axis: Axis) -> Table:
    ordered = sorted(
        findings.parties.items(), key=lambda item: (-item[1].refused, item[0].ip, item[0].clause)
    )
    title = f"Refused most ({min(_SHOWN, len(ordered))} of {count_text(len(ordered))})"
    numbers = ("refused", "first", "last", "shut out")
    table = _table(title, ("address", "key", "clause"), numbers)
    for who, found in ordered[:_SHOWN]:
        table.add_row(
            Text(plain_text(who.ip)),
            Text(plain_text(who.key or "no key")),
            who.clause,
            count_text(found.refused),
            axis.instant(found.first_ns),
            axis.instant(found.last_ns),
            span_text(found.shut_ns),
        )
    return table


def _print_against(summary: dict[str, Any], console: Console) -> None:
    against = summary["against"]
    gained, lost, keys = (against[name] for name in ("gained", "lost", "keys_changed"))
    console.print(
        Text(
            f"Against {against['limits']}: {count_text(against['refused_old'])} refused before,"
            f" {count_text(against['refused_new'])} now;"
            f" {counted_text(gained, 'request gains', 'requests gain')},"
            f" {counted_text(lost, 'loses', 'lose')};"
            f" {counted_text(against['ips_changed'], 'address', 'addresses')} and"
            f" {counted_text(keys, 'key notices', 'keys notice')}."
        )
    )
    parts = (("clause", "clauses", "clause"), ("key", "keys", "name"), ("address", "ips", "name"))
    for word, part, name in parts:
        lines = against[part][:_SHOWN]
        if not lines:
            continue
        numbers = ("refused before", "refused now", "gain", "lose")
        table = _table(f"Who gains and who loses, by {word}", [word], numbers)
        for line in lines:
            counts = (line[each] for each in ("refused_old", "refused_new", "gained", "lost"))
            label = Text(plain_text(line[name] or "no key"))
            table.add_row(label, *(count_text(count) for count in counts))
        console.print(table)


def _print_shadow(summary: dict[str, Any], console: Console) -> None:
    for line in summary["clauses"]:
        if line["shadow_refused"]:
            count = counted_text(line["shadow_refused"], "request")
            console.print(Text(f"{line['clause']} is in shadow and would refuse {count}."))


def _print_unparsed(replayed: dict[str, Any], console: Console) -> None:
    count = replayed["unparsed"]
    if not count:
        return
    word = "line does" if count == 1 else "lines do"
    console.print(Text(f"{count_text(count)} {word} not parse as {replayed['format']}:"))
    for line in replayed["unparsed_first"]:
        console.print(Text(f"  {plain_text(line)}"))
    if count > len(replayed["unparsed_first"]):
        console.print(Text(f"  … and {count_text(count - len(replayed['unparsed_first']))} more"))


def _table(title: str, left: Sequence[str], numbers: Sequence[str]) -> Table:
    """Return an empty table; where room is short only instants wrap, between day and time."""
    return plain_table(left, numbers, wraps=("first", "last"), title=title, box=SIMPLE_HEAD)


def add_fit(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `fit`."""
    parser.description = (
        "Fit a scenario to a real access log, and run both under the same limits to judge it."
    )

    add_flags(parser, FitOptions)
    parser.add_argument("--out", metavar="FILE", help=f"the scenario file ({_SCENARIO})")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="exit with 1 if the scenario does not refuse as the log does",
    )
    parser.add_argument("--force", action="store_true", help="replace that file")
    parser.add_argument("--quiet", action="store_true", help="print only the file's path")


def run_fit(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.study.fit import check_free, fit

    out = Path(args.out or _SCENARIO)
    check_free(out, force=args.force)
    with _progress(quiet=args.quiet) as progress:
        found = fit(**given(args, FitOptions), judged=not args.quiet, progress=progress)
    found.save(out, force=args.force)
    code = 1 if args.strict and found.differs else 0
    if args.quiet:
        print(out)
        return code
    console().print(found)
    print("play it:", shlex.join(["python", "-m", "simulator", "run", str(out)]))
    print("scenario:", out)
    return code


@contextmanager
def _progress(*, quiet: bool) -> Iterator[Callable[[str, int], None] | None]:
    """Show how many of a log's requests are done: a bar on a terminal, else plain lines."""
    columns = ("{task.description}: {task.completed:,} requests",)
    with progress_shown(*columns, quiet=quiet) as tell:
        yield tell and (lambda stage, rows: tell(stage, rows, None, f"{rows:,} requests"))
