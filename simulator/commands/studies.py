"""The commands that make several runs: `run --replications`, `capacity`, `compare`, `coverage`."""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from simulator.progress import TELL_EVERY_S

if TYPE_CHECKING:
    from simulator.intervals import Interval
    from simulator.scenario import Scenario
    from simulator.study.capacity import Capacity, Trial
    from simulator.study.replications import Precision, Replication

__all__ = [
    "add_budget",
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
    """Play replications; keep rows and report of the first, and only the metrics of the others."""
    from simulator.commands.run import (
        console,
        print_groups,
        print_head,
        print_warm_up,
        repeated_command,
    )
    from simulator.rows.column_sets import choose_columns
    from simulator.study.runs import PRECISION, budget_of, run_replicated
    from simulator.views import REPORT_FILE

    precision = PRECISION.read("--precision", args.precision)
    most_time_ns = _most_time_ns(args)
    budget = budget_of(precision, args.replications, args.most_replications, most_time_ns)
    command = repeated_command(args)
    if not args.quiet:
        print_head(scenario, seed, args.fidelity, warm_up_ns)
        if precision is None:
            print(
                f"replications {args.replications}, seeds {seed} to {seed + args.replications - 1}"
            )
        else:
            most_time = "" if args.most_time is None else f" and {args.most_time}"
            print(
                f"replications until every share is known to ± {precision:g}, "
                f"at most {budget.most_replications}{most_time}, seeds from {seed}"
            )
    result = run_replicated(
        scenario,
        args.replications,
        precision=precision,
        budget=budget,
        fidelity=args.fidelity,
        seed=seed,
        warm_up_ns=warm_up_ns,
        check=args.check,
        out=out,
        columns=choose_columns(args.columns),
        force=args.force,
        told=None if args.quiet or precision is not None else _teller(args.replications),
        told_of_precision=None if args.quiet else _tell_precision,
        command=command,
    )
    found = result.summary["replications"]
    count = len(found["runs"])
    if args.quiet:
        print(out / REPORT_FILE)
    else:
        console().print(f"seed {seed} alone:")
        console().print(result)
        print_groups(result, console())
        print_warm_up(result, console())
        _print_intervals(found["intervals"], count)
        faults = found["faults"]
        print(f"checks: {f'{faults} faults' if faults else 'all hold'} in {count} runs")
        _print_precision(found.get("precision"), count)
        for line in found["thresholds"]:
            print(f"threshold: {line['that']} {_judgement(line, count)}")
        print("again:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    return _code_of(found, is_strict=args.strict)


def _most_time_ns(args: argparse.Namespace) -> int | None:
    from engine.files import parse_duration_ns

    return None if args.most_time is None else parse_duration_ns(args.most_time)


def _code_of(found: Mapping[str, Any], *, is_strict: bool) -> int:
    """Return the exit code of replications."""
    verdicts = [line["verdict"] for line in found["thresholds"]]
    missed = not found.get("precision", {"reached": True})["reached"]
    open_ = is_strict and (missed or "not decided" in verdicts)
    return 1 if found["faults"] or "broken" in verdicts or open_ else 0


def _judgement(line: Mapping[str, Any], count: int) -> str:
    """Return the result of a threshold, in words."""
    name = line["subject"]
    low, high = (_shown(name, line[end]) for end in ("low", "high"))
    spread = f"mean {_shown(name, line['mean'])}, from {low} to {high}, {line['method']}"
    if line["runs"] == 0:
        return f"{line['verdict']} (no value)"
    if line["verdict"] != "not decided":
        return f"{line['verdict']} ({spread})"
    return f"not decided after {count} runs{_would_do(line['needed'])} ({spread})"


def _would_do(needed: int | None) -> str:
    return "; no number of runs is known to do" if needed is None else f"; about {needed} would do"


def _print_precision(found: Mapping[str, Any] | None, count: int) -> None:
    if found is None:
        return
    if found["reached"]:
        print(f"precision: every share is known to ± {found['asked']:g} after {count} runs")
    else:
        print(
            f"precision: ± {found['asked']:g} is not reached after {count} runs"
            f"{_would_do(found['needed'])}"
        )


def _tell_precision(runs: Sequence[Replication], found: Precision) -> None:
    """Report the progress of replications on standard error."""
    from simulator.intervals import interval_of

    if not found.reached:
        shares = [run.line["refused_share"] for run in runs]
        spread = _spread(interval_of(shares, "refused_share"))
        print(f"refused_share {spread}{_would_do(found.needed)}", file=sys.stderr, flush=True)


def _teller(count: int) -> Callable[[int], None] | None:
    """Return a callback that shows how many runs are done; None without a terminal."""
    if not sys.stderr.isatty():
        return None

    def tell(done: int) -> None:
        end = "\n" if done == count - 1 else ""
        print(f"\r{done + 1} of {count} runs", end=end, file=sys.stderr)

    return tell


def _print_intervals(spread: Mapping[str, Mapping[str, Any]], count: int) -> None:
    from rich.table import Table

    from simulator.commands.run import console

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
    table.add_column("method", no_wrap=True)
    for name, each in spread.items():
        if name in _SHOWN or "{" in name:
            ends = (_shown(name, each[end]) for end in ("mean", "low", "high"))
            table.add_row(name, *ends, each["method"])
    console().print(table, markup=False)


def _shown(metric: str, value: float | None) -> str:
    """Return a metric's value as a person reads it; durations in seconds."""
    from simulator.scenario import METRICS

    if value is None or not math.isfinite(value):
        return "–"
    base = METRICS.get(metric.partition("{")[0])
    if base is not None and base.is_duration:
        return f"{value / 1e9:.4g} s"
    return f"{value:,.6g}"


# --- capacity ---


def add_capacity(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `capacity`."""
    from simulator.commands.run import count_of, seed_of

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
        default="compiled",
        help="compiled: limit decisions alone, many times as fast (default); limits: the same "
        "decisions under SimPy; engine: every request runs whole",
    )
    parser.add_argument(
        "--replications", type=count_of, default=5, metavar="N", help="runs of a pilot (5)"
    )
    add_budget(parser, "runs that deciding one value may take (1000)")
    parser.add_argument(
        "--tolerance",
        type=_tolerance,
        default=0.01,
        metavar="SHARE",
        help="how near to the border to go, as a share of the value (0.01)",
    )
    parser.add_argument("--seed", type=seed_of, metavar="N", help="the scenario's unless given")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 too where a side is not decided"
    )
    parser.add_argument("--quiet", action="store_true", help="print the answer alone")


def add_budget(parser: argparse.ArgumentParser, most: str) -> None:
    """Add the flags that say when replications end."""
    from simulator.commands.run import count_of

    parser.add_argument("--most-replications", type=count_of, metavar="N", help=most)
    parser.add_argument("--most-time", metavar="D", help="end after D (1m30s), whatever is known")


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a share from 0 to 1, such as 0.01")
    return value


def run_capacity(args: argparse.Namespace) -> int:
    """Run the command: 0 when some value is shown to meet the condition, else 1."""
    from simulator.study.capacity import CapacityInterrupted, capacity
    from simulator.study.runs import resolve

    scenario = resolve(args.scenario)
    seed = scenario.seed if args.seed is None else args.seed
    if not args.quiet:
        print(f"seed {seed}, fidelity {args.fidelity}, {args.replications} runs a pilot")

    shown = _SearchShown(args.vary)
    try:
        found = capacity(
            scenario,
            vary=args.vary,
            between=(args.between[0], args.between[1]),
            keep=args.keep,
            fidelity=args.fidelity,
            replications=args.replications,
            most_replications=args.most_replications,
            most_time=args.most_time,
            seed=seed,
            tolerance=args.tolerance,
            told=None if args.quiet else shown.tell,
            progress=None if args.quiet else shown.progress,
        )
    except CapacityInterrupted as interrupted:
        _print_capacity(interrupted.found, args)
        raise
    _print_capacity(found, args)
    return 1 if found.keeps is None or (args.strict and not found.is_decided) else 0


class _SearchShown:
    """Prints a search's trials, and the progress of the current one."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._known: dict[str, str] = {}
        self._told_s = time.monotonic()

    def tell(self, trial: Trial) -> None:
        """Print a trial."""
        print(f"{self._path} = {trial.value}: {_trial_words(trial)}", flush=True)
        if not trial.is_pilot and trial.verdict != "not decided":
            self._known[trial.verdict] = trial.value
        self._told_s = time.monotonic()

    def progress(self, value: str, done: int, whole: int) -> None:
        """Say on standard error how many runs are done, and what is known so far."""
        if done == whole or time.monotonic() - self._told_s < TELL_EVERY_S:
            return
        self._told_s = time.monotonic()
        known = [f"{verdict} at {at}" for verdict, at in self._known.items()]
        line = f"{self._path} = {value}: {done} of {whole} runs"
        so_far = f"so far {' and '.join(known)}" if known else "so far nothing is decided"
        print(f"{line}; {so_far}", file=sys.stderr, flush=True)


def _trial_words(trial: Trial) -> str:
    if trial.is_pilot:
        needed = "" if trial.needed is None else f"; about {trial.needed} runs would decide"
        return f"pilot, {_spread(trial.interval)}{needed}"
    if trial.verdict == "not decided":
        return f"not decided, {_spread(trial.interval)}{_would_do(trial.needed)}"
    return f"{trial.verdict} ({_spread(trial.interval)}, {_method(trial.interval)})"


def _method(interval: Interval) -> str:
    if interval.method == "exact":
        return "exact: nothing is drawn at random"
    return f"{interval.method}, {interval.confidence:.4g} confidence"


def _print_capacity(found: Capacity, args: argparse.Namespace) -> None:
    """Print the answer, or as much of it as is known."""
    of_pilots = [trial for trial in found.trials if trial.is_pilot]
    if found.keeps is not None:
        print(f"{found.condition} is kept up to {found.path} = {found.keeps}")
    elif "keeps" in found.undecided or found.unfinished:
        print(f"{found.condition} is not shown to be kept anywhere")
    else:
        print(f"{found.condition} is kept nowhere from {args.between[0]} up")
    if found.breaks is not None:
        print(f"it is broken from {found.path} = {found.breaks} on")
    elif "breaks" in found.undecided or found.unfinished:
        print("it is not shown to be broken anywhere")
    else:
        print(f"it is nowhere seen to break, up to {args.between[1]}")
    if found.estimate is not None and of_pilots:
        both = found.keeps is not None and found.breaks is not None
        head = "between them nothing is decided; the" if both else "the"
        print(f"{head} pilots' means cross at about {found.estimate}")
    for side in found.undecided:
        print(f"not decided: {_undecided(found, side)}")
    if found.unfinished:
        print(f"the search is not finished: {found.unfinished}")
    print(f"{found.runs} runs")


def _undecided(found: Capacity, side: str) -> str:
    """Return what would decide a side: the fewest runs that one of its trials would need."""
    wanted = "kept" if side == "keeps" else "broken"
    asked = [(t.needed, t.value) for t in found.trials if t.needed is not None]
    if not asked:
        return f"no number of runs is known that would show where it is {wanted}"
    needed, value = min(asked)
    return (
        f"where it is {wanted}; about {needed} runs would decide {found.path} = {value}, "
        f"take --most-replications {2 * needed}"
    )


def _spread(interval: Interval) -> str:
    """Return an interval in words."""
    if interval.runs == 0:
        return "no value"
    runs = "1 run" if interval.runs == 1 else f"{interval.runs} runs"
    if interval.method == "exact":
        return f"{interval.mean:g}"
    low, high = (f"{end:.4g}" if math.isfinite(end) else "–" for end in interval[1:3])
    return f"{interval.mean:.4g}, from {low} to {high}, {runs}"


# --- compare ---


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `compare`."""
    from simulator.commands.run import precision_of

    parser.description = "Say what differs between two runs, and how surely."
    parser.add_argument("a", metavar="DIR_A", help="a run's folder")
    parser.add_argument("b", metavar="DIR_B", help="another run's folder")
    parser.add_argument(
        "--precision",
        type=precision_of,
        metavar="X",
        help="replicate both, each in its fidelity, until every share's difference is known to ± X",
    )
    add_budget(parser, "pairs of runs that --precision may take (1000)")
    parser.add_argument(
        "--strict", action="store_true", help="exit with 1 too where the precision is not reached"
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run_compare(args: argparse.Namespace) -> int:
    """Run the command: 0 where nothing differs, 1 where something does."""
    from rich.table import Table

    from simulator.commands.run import console
    from simulator.study.comparison import compare

    def tell(pairs: int, reached: Precision) -> None:
        if not reached.reached:
            print(f"{pairs} pairs{_would_do(reached.needed)}", file=sys.stderr, flush=True)

    found = compare(
        args.a,
        args.b,
        precision=args.precision,
        most_replications=args.most_replications,
        most_time=args.most_time,
        told=tell,
    )
    missed = args.strict and found.precision is not None and not found.precision.reached
    shown = [d for d in found.differences if d.a != d.b or d.is_sure]
    if args.json:
        frame = found.frame.reset_index()
        print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))
        return 1 if shown or not found.same_rows or missed else 0
    print(f"A = {found.names[0]}, B = {found.names[1]}, {found.said}")
    if found.precision is not None:
        _print_precision(dataclasses.asdict(found.precision), found.pairs)
    if not shown:
        print("no metric differs" + ("" if found.same_rows else "; some rows do"))
        return 0 if found.same_rows and not missed else 1
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("metric", no_wrap=True)
    for name in ("A", "B", "B − A", "from", "to"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("sure", no_wrap=True)
    table.add_column("method", no_wrap=True)
    for d in shown:
        values = (d.a, d.b, d.change.mean, d.change.low, d.change.high)
        table.add_row(
            d.metric,
            *(_shown(d.metric, value) for value in values),
            "yes" if d.is_sure else "",
            d.change.method,
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
    from rich.table import Table

    from simulator.commands.run import console
    from simulator.rows import check_out, out_folder
    from simulator.study.coverage import coverage

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
