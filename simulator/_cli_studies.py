"""The commands that make several runs: `run --replications`, `capacity`, `compare`, `coverage`."""

from __future__ import annotations

import argparse
import json
import math
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from simulator.replicating import Interval
    from simulator.scenario import Scenario
    from simulator.searching import Trial

__all__ = [
    "add_capacity",
    "add_compare",
    "add_coverage",
    "run_capacity",
    "run_compare",
    "run_coverage",
    "run_replications",
]

_SHOWN: Final = (
    "offered",
    "refused_share",
    "attempts_per_success",
    "goodput_per_s",
    "fairness",
    "latency_p50",
    "latency_p99",
)


def run_replications(
    args: argparse.Namespace, scenario: Scenario, seed: int, warm_up_ns: int, out: Path
) -> int:
    """Play replications; the first one's rows and report are kept, of the others their metrics."""
    from simulator._cli_run import console, print_head, repeated_command
    from simulator.report import REPORT_FILE
    from simulator.results.choosing import choose_columns
    from simulator.running import run_replicated

    count = args.replications
    command = repeated_command(args)
    if not args.quiet:
        print_head(scenario, seed, args.fidelity, warm_up_ns)
        print(f"replications {count}, seeds {seed} to {seed + count - 1}")
    result = run_replicated(
        scenario,
        count,
        fidelity=args.fidelity,
        seed=seed,
        warm_up_ns=warm_up_ns,
        check=args.check,
        out=out,
        columns=choose_columns(args.columns),
        force=args.force,
        told=None if args.quiet else _teller(count),
        command=command,
    )
    found = result.summary["replications"]
    if args.quiet:
        print(out / REPORT_FILE)
    else:
        screen = console()
        screen.print(f"seed {seed} alone:")
        screen.print(result)
        _print_intervals(found["intervals"], count)
        faults = found["faults"]
        print(f"checks: {f'{faults} faults' if faults else 'all hold'} in {count} runs")
        for line in found["thresholds"]:
            word = "holds" if line["holds"] else "does not hold"
            value = "no value" if line["value"] is None else f"mean {line['value']:g}"
            print(f"threshold: {line['that']} {word} ({value})")
        print("again:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    broken = found["faults"] or any(not line["holds"] for line in found["thresholds"])
    return 1 if broken else 0


def _teller(count: int) -> Callable[[int], None] | None:
    """Return what shows how many runs are done; None where it is no terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int) -> None:
        end = "\n" if done == count - 1 else ""
        print(f"\r{done + 1} of {count} runs", end=end, file=sys.stderr)

    return tell


def _print_intervals(spread: Mapping[str, Mapping[str, float | None]], count: int) -> None:
    from rich.table import Table

    from simulator._cli_run import console

    table = Table(
        title=f"{count} replications, 95 % intervals of the mean",
        title_justify="left",
        box=None,
        header_style="bold",
        pad_edge=False,
    )
    table.add_column("metric", no_wrap=True)
    for name in ("mean", "low", "high"):
        table.add_column(name, justify="right", no_wrap=True)
    for name, each in spread.items():
        if name in _SHOWN or "{" in name:
            table.add_row(name, *(_shown(name, each[end]) for end in ("mean", "low", "high")))
    console().print(table, markup=False)


def _shown(metric: str, value: float | None) -> str:
    """Return a metric's value as a person reads it; durations in seconds."""
    from simulator.scenario import METRICS

    if value is None or math.isnan(value):
        return "–"
    base = METRICS.get(metric.partition("{")[0])
    if base is not None and base.is_duration:
        return f"{value / 1e9:.4g} s"
    return f"{value:,.6g}"


# --- capacity ---


def add_capacity(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `capacity`."""
    from simulator._cli_run import count_of, seed_of

    parser.description = "Find the largest value of one parameter that keeps a condition."
    parser.add_argument(
        "scenario", metavar="SCENARIO", help="a file, or a built-in scenario's name"
    )
    parser.add_argument(
        "--vary", required=True, metavar="PATH", help="such as clients.browsers.count"
    )
    parser.add_argument(
        "--between",
        required=True,
        nargs=2,
        metavar=("A", "B"),
        help="such as 10 500, or 1/1s 90/1s",
    )
    parser.add_argument(
        "--keep", required=True, metavar="CONDITION", help="such as 'refused_share <= 0.01'"
    )
    parser.add_argument(
        "--fidelity",
        choices=("engine", "limits", "compiled"),
        default="limits",
        help="compiled: the decisions of limits (default), and many times as fast",
    )
    parser.add_argument(
        "--replications", type=count_of, default=5, metavar="N", help="runs a value at first (5)"
    )
    parser.add_argument("--seed", type=seed_of, metavar="N", help="the scenario's unless given")
    parser.add_argument("--quiet", action="store_true", help="print the answer alone")


def run_capacity(args: argparse.Namespace) -> int:
    """Run the command: 0 when some value surely keeps the condition, else 1."""
    from simulator.running import resolve
    from simulator.searching import capacity

    scenario = resolve(args.scenario)
    seed = scenario.seed if args.seed is None else args.seed
    if not args.quiet:
        print(f"seed {seed}, fidelity {args.fidelity}, {args.replications} runs a value at first")

    def tell(trial: Trial) -> None:
        print(f"{args.vary} = {trial.value}: {trial.verdict} ({_spread(trial.interval)})")

    found = capacity(
        scenario,
        vary=args.vary,
        between=(args.between[0], args.between[1]),
        keep=args.keep,
        fidelity=args.fidelity,
        replications=args.replications,
        seed=seed,
        told=None if args.quiet else tell,
    )
    surely = "surely" if args.replications > 1 else "in its one run"
    if found.keeps is None:
        print(f"{found.condition} {surely} holds nowhere from {args.between[0]} up")
    else:
        print(f"{found.condition} {surely} holds up to {args.vary} = {found.keeps}")
    if found.breaks is None:
        print(f"it is nowhere sure to break, up to {args.between[1]}")
    else:
        print(f"it {surely} does not hold at {args.vary} = {found.breaks}")
    return 0 if found.keeps is not None else 1


def _spread(interval: Interval) -> str:
    """Return an interval in words."""
    if interval.values == 0:
        return "no value"
    if interval.values == 1:
        return f"{interval.mean:g}, 1 run"
    low, high = interval.low, interval.high
    return f"{interval.mean:g}, from {low:g} to {high:g}, {interval.values} runs"


# --- compare ---


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `compare`."""
    parser.description = "Say what differs between two runs, and how surely."
    parser.add_argument("a", metavar="DIR_A", help="a run's folder")
    parser.add_argument("b", metavar="DIR_B", help="another run's folder")
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run_compare(args: argparse.Namespace) -> int:
    """Run the command: 0 where nothing differs, 1 where something does."""
    from rich.table import Table

    from simulator._cli_run import console
    from simulator.comparing import compare

    found = compare(args.a, args.b)
    shown = [d for d in found.differences if d.a != d.b or d.is_sure]
    if args.json:
        frame = found.frame.reset_index()
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
        return 1 if shown or not found.same_rows else 0
    print(f"A = {found.names[0]}, B = {found.names[1]}, {found.said}")
    if not shown:
        print("no metric differs" + ("" if found.same_rows else "; some rows do"))
        return 0 if found.same_rows else 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for name in ("A", "B", "B − A", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("sure", no_wrap=True)
    for d in shown:
        values = (d.a, d.b, d.change.mean, d.change.low, d.change.high)
        table.add_row(
            d.metric, *(_shown(d.metric, value) for value in values), "yes" if d.is_sure else ""
        )
    console().print(table)
    return 1


# --- coverage ---


def add_coverage(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `coverage`."""
    parser.description = "Fire every limit rule, action, quota and bound at least once."
    parser.add_argument("--out", metavar="DIR", help="write coverage.json into this folder")
    parser.add_argument("--force", action="store_true", help="replace what is in that folder")


def run_coverage(args: argparse.Namespace) -> int:
    """Run the command: 0 when everything fired or says why it cannot, else 1."""
    import dataclasses

    from rich.table import Table

    from simulator._cli_run import console
    from simulator.covering import coverage
    from simulator.results import check_out, out_folder

    if args.out is not None:
        check_out(Path(args.out), force=args.force)
    lines = coverage()
    table = Table(box=None, header_style="bold", pad_edge=False)
    for name in ("clause", "what", "fired"):
        table.add_column(name, no_wrap=True)
    table.add_column("how, or why not")
    for line in lines:
        table.add_row(line.clause, line.what, "yes" if line.fired else "no", line.how)
    console().print(table, markup=False)
    missing = [line for line in lines if not line.fired and not line.masked]
    fired = sum(line.fired for line in lines)
    print(f"{fired} of {len(lines)} fired, {len(missing)} missing")
    if args.out is not None:
        with out_folder(Path(args.out), force=args.force) as folder:
            text = json.dumps([dataclasses.asdict(line) for line in lines], indent=2)
            (folder / "coverage.json").write_text(text + "\n", "utf-8")
        print("coverage:", Path(args.out) / "coverage.json")
    return 1 if missing else 0
