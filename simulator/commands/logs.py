"""The commands that read an access log, `replay` and `fit`: their flags, and what they print."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from rich.text import Text

from engine.command_line import RESULTS_PAGE
from engine.files import span_text
from simulator.arguments import add_flags, given, repeated
from simulator.logs import FORMATS, log_name
from simulator.logs.formats import WRAPPERS
from simulator.options import DEFAULT_KIND, DEFAULT_TENANT, FitOptions, ReplayOptions
from simulator.progress import progress_shown
from simulator.rows import Result, check_out
from simulator.rows.findings import Findings, together_ns
from simulator.views.text import (
    Axis,
    console,
    count_text,
    counted_text,
    nodes_text,
    plain_table,
    plain_text,
    share_text,
)

_SHOWN: Final = 10
_REASONS: Final = 5
_SEED: Final = 0
"""A replay draws nothing."""

_JSON: Final = "json"
"""Of `--format`: how the answer is printed. No log format is called so."""

_SCENARIO: Final = "scenario.toml"

_REQUESTS_DONE: Final = (
    lambda rows, _: f"{rows:,} requests",
    "{task.description}: {task.completed:,} requests{task.fields[left]}",
)
"""How progress is shown, in a line and as a bar."""


def add_replay(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `replay`."""
    parser.description = "Apply the limits to the requests of an access log."

    add_flags(
        parser,
        ReplayOptions,
        format="format of the log, detected unless named; `--formats` lists all. json, alone or"
        " after a comma, prints the summary as one JSON object",
        out="folder of the results (runs/<log>-0)",
    )
    parser.add_argument("--formats", action=_ListFormats, help="list the formats and exit")
    parser.add_argument("--quiet", action="store_true", help="print only the report's path")


class _ListFormats(argparse.Action):
    """Prints the formats of logs, and ends the command."""

    def __init__(self, option_strings: Sequence[str], dest: str, help: str) -> None:  # noqa: A002 # reason: argparse's own word
        super().__init__(option_strings, dest, nargs=0, help=help, default=argparse.SUPPRESS)

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        table = plain_table(("format", "layout", "logs of"), ())
        for form in FORMATS.values():
            table.add_row(form.name, form.layout, form.title)
        screen = console()
        screen.print(table)
        carriers = ", ".join(dict.fromkeys(wrapper.title for wrapper in WRAPPERS))
        screen.print(Text(f"Taken off around lines: {carriers}."))
        screen.print(Text("Unpacked: gzip, bzip2, xz, zstd, lz4."))
        parser.exit()


def run_replay(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.study.replay import SEED, replay, run_name
    from simulator.views.report import REPORT_FILE

    named = [name for name in (args.format or "").split(",") if name != _JSON]
    is_json = _JSON in (args.format or "").split(",")
    args.format = ",".join(named) or None
    out = Path(args.out) if args.out else Path("runs") / f"{run_name(log_name(args.source))}-{SEED}"
    check_out(out, force=args.force)
    command = ["python", "-m", "simulator", "replay", *repeated(args, ReplayOptions, force=True)]
    asked = given(args, ReplayOptions) | {"out": out, "command": command}
    is_text = not is_json and not args.quiet
    with progress_shown(*_REQUESTS_DONE, quiet=not is_text) as progress:
        result = replay(**asked, progress=progress)
    if is_text:
        _print_answer(result, args, console())
        print(f"columns: {RESULTS_PAGE} explains them")
        print("repeat with:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    elif args.quiet:
        print(out / REPORT_FILE)
    else:
        print(json.dumps(result.summary, ensure_ascii=False, indent=2))
    for violation in result.violations[:5]:
        print(f"broken invariant: {violation}", file=sys.stderr)
    broken = result.summary.get("against", {}).get("gate", {}).get("broken", [])
    for finding in broken:
        print(f"gate: {finding}", file=sys.stderr)
    return 1 if result.violations or broken else 0


def _print_answer(result: Result, args: argparse.Namespace, console: Console) -> None:
    """Print who would have been refused, when, by which clause, and for how long.

    Text from the log is shown without control characters and never as markup.
    """
    summary = result.summary
    findings = result.findings()
    replayed = summary["replay"]
    axis = Axis.of(summary)
    _print_reading(replayed, args, summary["fidelity"], console)
    _print_headline(summary, console)
    if "nodes" in summary:
        console.print(Text(nodes_text(summary)))
    if summary["totals"]["refused"]:
        console.print(_by_clause(summary, findings, axis))
    if findings.parties:
        console.print(_by_party(findings, axis))
    if "against" in summary:
        _print_against(summary, console)
    _print_shadow(summary, console)
    if args.check:
        broken = len(result.violations)
        checks = f"{broken} broken" if broken else "passed"
        console.print(f"self-checks: {checks} ({result.check_s:.2f} s)", markup=False)


def _print_reading(
    replayed: dict[str, Any], args: argparse.Namespace, fidelity: str, console: Console
) -> None:
    """Print how the log was read: all that the numbers below rest on."""
    reading = replayed["reading"]
    console.print(Text(f"read {replayed['log']} as {reading['format']}:"))
    fields = dict(reading["fields"])
    tenant, kind = args.tenant or DEFAULT_TENANT, args.as_kind or DEFAULT_KIND
    if args.map and replayed["as"] is None:
        owner = f"owners by {args.map}"
    else:
        owner = f"{kind} of a {tenant} tenant (--as, --tenant)"
    keys = "none in the log; all requests count as one key"
    fields["key"] = f"{fields.get('key', keys)}, {owner}"
    fields.setdefault("status", "none (no limit reads it)")
    for name in ("address", "key", "request", "method", "path", "status", "time"):
        if name in fields:
            console.print(Text(f"  {name + ':':<9}{plain_text(fields[name])}"))
    console.print(
        Text(
            f"  lines:   {count_text(reading['lines_read'])} read,"
            f" {count_text(reading['lines_skipped'])} skipped,"
            f" from {replayed['log_start']} to {replayed['log_end']}"
        )
    )
    for reason, count in list(reading["skipped_by_reason"].items())[:_REASONS]:
        console.print(Text(f"  skipped: {count_text(count)}: {plain_text(reason)}"))
    for line in replayed["unparsed_first"]:
        console.print(Text(f"  skipped: {plain_text(line)}"))
    console.print(
        Text(
            f"limits {args.limits or 'default'}, profile {args.profile or 'default'},"
            f" fidelity {fidelity}, speed {args.speed}, seed {_SEED}"
        )
    )


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
    spans = ("first", "last", "locked out") if "parties" in findings.parts else ()
    names = ("clause", "offered", "refused", "share", *spans, "addresses")
    table = _table("By limit clause", names[:1], names[1:])
    for line in summary["clauses"]:
        if not line["offered"]:
            continue
        refusals = [row for who, row in findings.parties.items() if who.clause == line["clause"]]
        times = ["–"] * len(spans)
        if refusals:
            times = [
                axis.instant(min(row.first_ns for row in refusals)),
                axis.instant(max(row.last_ns for row in refusals)),
                span_text(together_ns(refusals)),
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
    numbers = ("refused", "first", "last", "locked out")
    table = _table(title, ("address", "key", "clause"), numbers)
    for who, row in ordered[:_SHOWN]:
        table.add_row(
            Text(plain_text(who.ip)),
            Text(plain_text(who.key or "no key")),
            who.clause,
            count_text(row.refused),
            axis.instant(row.first_ns),
            axis.instant(row.last_ns),
            span_text(row.shut_ns),
        )
    return table


def _print_against(summary: dict[str, Any], console: Console) -> None:
    against = summary["against"]
    gained, lost, keys = (against[name] for name in ("gained", "lost", "keys_changed"))
    console.print(
        Text(
            f"Against {against['limits']}: {count_text(against['refused_old'])} refused before,"
            f" {count_text(against['refused_new'])} now;"
            f" {counted_text(gained, 'request')} newly admitted,"
            f" {count_text(lost)} newly refused;"
            f" {counted_text(against['ips_changed'], 'address', 'addresses')} and"
            f" {counted_text(keys, 'key')} affected."
        )
    )
    if "gate" in against and not against["gate"]["broken"]:
        console.print("gate: met")
    _print_newly_refused(against, console)
    parts = (("clause", "clauses", "clause"), ("key", "keys", "name"), ("address", "ips", "name"))
    for word, part, name in parts:
        lines = against[part][:_SHOWN]
        if not lines:
            continue
        numbers = ("refused before", "refused now", "newly admitted", "newly refused")
        table = _table(f"Changes by {word}", [word], numbers)
        for line in lines:
            counts = (line[count] for count in ("refused_old", "refused_new", "gained", "lost"))
            label = Text(plain_text(line[name] or "no key"))
            table.add_row(label, *(count_text(count) for count in counts))
        console.print(table)


def _print_newly_refused(against: dict[str, Any], console: Console) -> None:
    """Print the plan of a change: who is newly refused, from when, and for how long."""
    lines = against["newly_refused"][:_SHOWN]
    if not lines:
        return
    table = _table(
        f"Newly refused, by harm ({counted_text(against['keys_newly_refused'], 'key')})",
        ("clause", "key", "address"),
        ("requests", "first", "locked out"),
    )
    for line in lines:
        table.add_row(
            line["clause"],
            Text(plain_text(line["key"] or "no key")),
            Text(plain_text(line["ip"])),
            count_text(line["newly_refused"]),
            line["first"],
            span_text(line["locked_out_ns"]),
        )
    console.print(table)


def _print_shadow(summary: dict[str, Any], console: Console) -> None:
    for line in summary["clauses"]:
        if line["shadow_refused"]:
            count = counted_text(line["shadow_refused"], "request")
            console.print(Text(f"{line['clause']} is in shadow and would refuse {count}."))


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
    with progress_shown(*_REQUESTS_DONE, quiet=args.quiet) as progress:
        judged = args.strict or not args.quiet
        scenario = fit(**given(args, FitOptions), judged=judged, progress=progress)
    scenario.save(out, force=args.force)
    code = 1 if args.strict and scenario.differs else 0
    if args.quiet:
        print(out)
        return code
    console().print(scenario)
    print("run it:", shlex.join(["python", "-m", "simulator", "run", str(out)]))
    print("scenario:", out)
    return code
