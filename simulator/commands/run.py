"""`python -m simulator run`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.rows import Result
    from simulator.scenario import Scenario

__all__ = [
    "add_arguments",
    "add_columns",
    "console",
    "count_of",
    "precision_of",
    "print_head",
    "print_warm_up",
    "repeated_command",
    "run",
    "seed_of",
]

_PIPE_COLUMNS: Final = 140


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `run`."""
    from simulator.commands.studies import add_budget

    parser.description = "Play a scenario, and say which limits bound, when, and whom."
    parser.add_argument(
        "scenario", metavar="SCENARIO", help="a file, or a built-in scenario's name"
    )
    parser.add_argument(
        "--fidelity",
        choices=("engine", "limits", "compiled"),
        default="engine",
        help="engine: every request runs whole (default); limits: limit decisions alone; "
        "compiled: the decisions of limits, many times as fast (capacity and sweep take it)",
    )
    parser.add_argument("--seed", type=seed_of, metavar="N", help="the scenario's unless given")
    parser.add_argument(
        "--replications", type=count_of, metavar="N", help="runs, with seeds N, N + 1 … (1)"
    )
    parser.add_argument(
        "--precision",
        type=precision_of,
        metavar="X",
        help="replicate until every share is known to ± X, such as 0.005; looks after "
        "--replications runs (5) and then again and again",
    )
    add_budget(parser, "runs that --precision may take (1000)")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="of replications: exit with 1 too for a threshold that is not decided",
    )
    parser.add_argument("--warm-up", metavar="D", help="leave out the first D (1m30s) of results")
    parser.add_argument(
        "--check",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="run the invariant checkers (on)",
    )
    parser.add_argument("--out", metavar="DIR", help="folder of the results (runs/<name>-<seed>)")
    add_columns(parser)
    parser.add_argument("--force", action="store_true", help="replace the results in that folder")
    parser.add_argument("--quiet", action="store_true", help="print the report's path alone")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add the flag that says which columns a run's rows are kept with."""
    parser.add_argument(
        "--columns",
        metavar="NAMES",
        help="columns that requests.parquet keeps, as t_ns,key,outcome; decisions stands for "
        "t_ns,key,outcome,rule,wait_ns (all)",
    )


def seed_of(text: str) -> int:
    """Return a seed of a command line."""
    if not (text.isascii() and text.isdigit() and int(text) < 2**63):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 0 to 2^63 - 1")
    return int(text)


def precision_of(text: str) -> float:
    """Return a precision of a command line."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 0.5:
        raise argparse.ArgumentTypeError(
            f"{text!r} must be above 0 and below 0.5, half the width of a share's interval"
        )
    return value


def count_of(text: str) -> int:
    """Return a count of a command line."""
    if not (text.isascii() and text.isdigit() and 1 <= int(text) <= 100_000):
        raise argparse.ArgumentTypeError(f"{text!r} must be a whole number from 1 to 100000")
    return int(text)


def run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from engine.files import parse_duration_ns
    from simulator.progress import progress_bar
    from simulator.rows import check_out
    from simulator.rows.column_sets import choose_columns
    from simulator.study.runs import budget_of, resolve, run_once
    from simulator.views import REPORT_FILE

    scenario = resolve(args.scenario)
    seed = scenario.seed if args.seed is None else args.seed
    warm_up_ns = scenario.warm_up_ns if args.warm_up is None else parse_duration_ns(args.warm_up)
    out = Path(args.out) if args.out else Path("runs") / f"{scenario.name}-{seed}"
    columns = choose_columns(args.columns)
    check_out(out, force=args.force)
    if args.precision is None:
        most_time_ns = None if args.most_time is None else parse_duration_ns(args.most_time)
        budget_of(None, args.replications, args.most_replications, most_time_ns)
    if args.precision is not None or (args.replications or 1) > 1:
        from simulator.commands.studies import run_replications

        return run_replications(args, scenario, seed, warm_up_ns, out)
    command = repeated_command(args)
    if not args.quiet:
        print_head(scenario, seed, args.fidelity, warm_up_ns)
    with progress_bar(scenario.duration_ns, quiet=args.quiet) as progress:
        result = run_once(
            scenario,
            fidelity=args.fidelity,
            seed=seed,
            warm_up_ns=warm_up_ns,
            check=args.check,
            out=out,
            columns=columns,
            force=args.force,
            progress=progress,
            extra=lambda _: {"command": command},
        )
    if args.quiet:
        print(out / REPORT_FILE)
    else:
        screen = console()
        screen.print(result)
        print_tail(result, screen, checked=args.check)
        print_warm_up(result, screen)
        print("again:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    for violation in result.violations[:5]:
        print(f"broken invariant: {violation.invariant}: {violation.what}", file=sys.stderr)
    broken = [line for line in result.summary["thresholds"] if not line["holds"]]
    return 1 if result.violations or broken else 0


def repeated_command(args: argparse.Namespace) -> list[str]:
    """Return the command that repeats this run."""
    words = ["python", "-m", "simulator", "run", args.scenario]
    if args.fidelity != "engine":
        words += ["--fidelity", args.fidelity]
    for flag, value in (
        ("--seed", args.seed),
        ("--warm-up", args.warm_up),
        ("--out", args.out),
        ("--columns", args.columns),
        ("--replications", args.replications),
        ("--precision", args.precision),
        ("--most-replications", args.most_replications),
        ("--most-time", args.most_time),
    ):
        if value is not None:
            words += [flag, str(value)]
    words += ["--strict"] if args.strict else []
    words += [] if args.check else ["--no-check"]
    return [*words, "--force"]


def console() -> Console:
    """Return the console for standard output; wide where it is no terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)


def print_head(scenario: Scenario, seed: int, fidelity: str, warm_up_ns: int) -> None:
    """Print the scenario, seed, fidelity and warm-up of the run before it begins."""
    from engine.files import format_duration

    clients = ", ".join(f"{group.count} {group.name}" for group in scenario.clients)
    if scenario.question:
        print(scenario.question)
    print(
        f"seed {seed}, fidelity {fidelity}, duration {format_duration(scenario.duration_ns)}, "
        f"warm-up {format_duration(warm_up_ns)}, clients: {clients}"
    )


def print_groups(result: Result, screen: Console) -> None:
    """Print the table of client groups: how much of each is refused, by what, and what passes."""
    from rich.table import Table

    from simulator.views import binding_text, pace_text

    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("clients", no_wrap=True)
    for name in ("count", "affected", "offered", "refused", "share"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("bound by")
    table.add_column("would pass", no_wrap=True)
    for group in result.summary["groups"]:
        share = group["refused"] / group["offered"] if group["offered"] else 0.0
        table.add_row(
            group["name"],
            f"{group['clients']:,}",
            f"{group['clients_refused']:,}",
            f"{group['offered']:,}",
            f"{group['refused']:,}",
            f"{share:.1%}",
            binding_text(group) or "–",
            pace_text(group["binds"]) or "–",
        )
    screen.print(table, markup=False)


def print_warm_up(result: Result, screen: Console) -> None:
    """Print the warm-up that MSER-5 suggests for the refused share, where the run's is shorter."""
    from engine.files import format_duration

    if not {"t_ns", "outcome"} <= set(result.columns):
        return
    found = result.warm_up("refused_share")
    if found.is_too_short and found.suggested_ns is not None:
        suggested = format_duration(found.suggested_ns)
        screen.print(
            f"warm-up: {format_duration(found.given_ns)} is shorter than the {suggested} that "
            f"MSER-5 suggests for refused_share ({found.mean:.3g} on average behind it, "
            f"{found.whole_mean:.3g} in all); see the report, or take --warm-up {suggested}",
            markup=False,
            soft_wrap=True,
        )


def print_tail(result: Result, screen: Console, *, checked: bool) -> None:
    """Print groups of clients, totals, checks and thresholds."""
    print_groups(result, screen)
    totals = result.summary["totals"]
    screen.print(
        f"{totals['offered']:,} attempts: {totals['admitted']:,} admitted, "
        f"{totals['refused']:,} refused ({totals['refused_share']:.2%}), "
        f"{totals['pending']:,} pending; {totals['requests']:,} requests: "
        f"{totals['succeeded']:,} succeeded, {totals['failed']:,} failed, "
        f"{totals['requests_pending']:,} pending",
        markup=False,
    )
    if checked:
        faults = result.summary["checks"]["faults"]
        found = f"{faults} faults" if faults else "all hold"
        names = ", ".join(result.summary["checks"]["invariants"])
        screen.print(f"checks: {found} ({names}; {result.check_s:.2f} s)", markup=False)
    for line in result.summary["thresholds"]:
        word = "holds" if line["holds"] else "does not hold"
        value = "no value" if line["value"] is None else f"{line['value']:g}"
        screen.print(f"threshold: {line['that']} {word} ({value})", markup=False)
