"""`python -m simulator run`: its flags, and what it prints, of one run and of replications."""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from engine.command_line import RESULTS_PAGE
from engine.files import format_duration
from simulator.arguments import (
    add_flags,
    given,
    read_options,
    repeated,
)
from simulator.options import RunOptions, resolve
from simulator.rows import Result, check_out
from simulator.views.text import (
    binding_text,
    console,
    episode_text,
    interval_text,
    metric_title,
    needed_text,
    nodes_text,
    number_text,
    pace_text,
    percent_text,
    plain_table,
    precision_text,
    share_line,
    share_text,
    value_text,
)

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.progress import TimeLeft
    from simulator.scenario import Scenario
    from simulator.study.runs import Precision, Replication

_SHOWN: Final = (
    "offered",
    "refused_share",
    "attempts_per_success",
    "goodput_per_s",
    "fairness",
    "latency_p50",
    "latency_p99",
)


def add_run(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `run`."""
    parser.description = (
        "Run a scenario, and report which limits refused requests, when, and whose."
    )

    add_flags(parser, RunOptions, out="folder of the results (runs/<name>-<seed>)")
    parser.add_argument(
        "--strict",
        action="store_true",
        help="with replications: also exit with 1 if a threshold is not decided",
    )
    parser.add_argument("--quiet", action="store_true", help="print only the report's path")


def run_run(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.views.report import REPORT_FILE

    scenario = resolve(args.scenario)
    seed = scenario.seed if args.seed is None else args.seed
    out = Path(args.out) if args.out else Path("runs") / f"{scenario.name}-{seed}"
    settings = given(args, RunOptions) | {"scenario": scenario, "seed": seed, "out": out}
    asked = read_options(RunOptions)(**settings)
    asked.budget(asked.replications)  # before anything is printed
    check_out(out, force=asked.force)
    command = ["python", "-m", "simulator", "run", *repeated(args, RunOptions, force=True)]
    command += ["--strict"] if args.strict else []
    if not args.quiet:
        _print_head(asked, seed)
    result = _played(asked, command, quiet=args.quiet)
    several = result.summary.get("replications")
    if args.quiet:
        print(out / REPORT_FILE)
    else:
        screen = console()
        if several is not None:
            screen.print(f"seed {seed} alone:")
        screen.print(result)
        _print_groups(result, screen)
        _print_nodes(result, screen)
        if several is None:
            _print_tail(result, screen, checked=asked.check)
        _print_warm_up(result, screen)
        if several is not None:
            _print_replications(several, checked=asked.check)
        print(f"columns: {RESULTS_PAGE} explains them")
        print("repeat with:", shlex.join(command))
        print("report:", out / REPORT_FILE)
    if several is not None:
        return _code_of(several, is_strict=args.strict)
    for violation in result.violations[:5]:
        print(f"broken invariant: {violation}", file=sys.stderr)
    broken = [line for line in result.summary["thresholds"] if not line["holds"]]
    return 1 if result.violations or broken else 0


def _played(asked: RunOptions, command: list[str], *, quiet: bool) -> Result:
    """Play a run, or replications: rows and report of the first, the metrics of the others."""
    from simulator.progress import TimeLeft, progress_bar, progress_shown
    from simulator.study.runs import run_replicated

    if not asked.are_several:
        with progress_bar(asked.played.duration_ns, quiet=quiet) as progress:
            return run_replicated(asked, progress=progress, command=command)
    others = (asked.replications or 1) - 1
    hidden = quiet or asked.precision is not None

    runs: list[Replication] = []

    def so_far(*_: int | None) -> str:
        return f"{len(runs)} of {others}, so far refused share {_share_so_far(runs)}"

    with (
        _told_what_is_known(asked.played, quiet=quiet),
        progress_shown(so_far, quiet=hidden) as tell,
    ):

        def on_progress(run: Replication) -> None:
            runs.append(run)
            if tell is not None:
                tell("running", len(runs), others)

        return run_replicated(
            asked,
            on_progress=on_progress,
            told_of_precision=None if quiet else partial(_tell_precision, TimeLeft()),
            command=command,
        )


def _print_replications(replications: Mapping[str, Any], *, checked: bool) -> None:
    count = len(replications["runs"])
    _print_intervals(replications["intervals"], count)
    faults = replications["faults"]
    if checked:
        print(f"self-checks: {f'{faults} failed' if faults else 'passed'} in {count} runs")
    if (reached := replications.get("precision")) is not None:
        print(precision_text(reached, count))
    for line in replications["thresholds"]:
        print(f"threshold: {line['that']}: {_judgement(line, count)}")


@contextmanager
def _told_what_is_known(scenario: Scenario, *, quiet: bool) -> Iterator[None]:
    """Print the intervals of the runs that are done where Ctrl-C stops replications."""
    from simulator.progress import Interrupted
    from simulator.scenario.model import draws_at_random
    from simulator.study.runs import intervals

    try:
        yield
    except Interrupted as stop:
        runs = stop.result
        if len(runs) > 1 and not quiet:
            metrics = intervals(runs, exact=not draws_at_random(scenario))
            _print_intervals(
                {name: interval._asdict() for name, interval in metrics.items()}, len(runs)
            )
        seeds = f" (seeds {runs[0].seed} to {runs[-1].seed})" if runs else ""
        print(
            f"interrupted: {len(runs)} runs are done{seeds}; no folder is written", file=sys.stderr
        )
        raise


def _code_of(replications: Mapping[str, Any], *, is_strict: bool) -> int:
    verdicts = [line["verdict"] for line in replications["thresholds"]]
    missed = not replications.get("precision", {"reached": True})["reached"]
    open_ = is_strict and (missed or "not decided" in verdicts)
    return 1 if replications["faults"] or "not met" in verdicts or open_ else 0


def _judgement(line: Mapping[str, Any], count: int) -> str:
    name = line["subject"]
    low, high = (value_text(name, line[end]) for end in ("low", "high"))
    spread = f"mean {value_text(name, line['mean'])}, from {low} to {high}, {line['method']}"
    if line["runs"] == 0:
        return f"{line['verdict']} (no value)"
    if line["verdict"] != "not decided":
        return f"{line['verdict']} ({spread})"
    return f"not decided after {count} runs{needed_text(line['needed'])} ({spread})"


def _tell_precision(left: TimeLeft, runs: Sequence[Replication], precision: Precision) -> None:
    time_text = left.text(len(runs), precision.needed)
    if not precision.reached:
        line = f"refused_share {_share_so_far(runs)}{needed_text(precision.needed)}{time_text}"
        print(line, file=sys.stderr, flush=True)


def _share_so_far(runs: Sequence[Replication]) -> str:
    from simulator.intervals import interval_of

    shares = [run.line["refused_share"] for run in runs]
    return interval_text(interval_of(shares, "refused_share"), "refused_share")


def _print_intervals(spread: Mapping[str, Mapping[str, Any]], count: int) -> None:
    title = f"{count} replications, 95 % intervals of the mean"
    table = plain_table(["metric"], ("mean", "from", "to"), ["method"], title=title)
    for name, interval in spread.items():
        if name in _SHOWN or "{" in name:
            ends = (value_text(name, interval[end]) for end in ("mean", "low", "high"))
            table.add_row(metric_title(name), *ends, interval["method"])
    console().print(table, markup=False)
    if (note := episode_text(spread.values())) is not None:
        print(note)


def _print_head(asked: RunOptions, seed: int) -> None:
    """Print the scenario, seed, fidelity, warm-up and replications before the run begins."""
    from simulator.study.run_size import expected_requests, size_warning

    scenario, given_ns = asked.played, asked.warm_up_ns
    warm_up_ns = scenario.warm_up_ns if given_ns is None else given_ns
    if (warning := size_warning(scenario)) is not None:
        print(f"simulator: warning: {warning}", file=sys.stderr)
    clients = ", ".join(f"{group.count} {group.name}" for group in scenario.clients)
    if scenario.question:
        print(scenario.question)
    print(
        f"seed {seed}, fidelity {asked.fidelity}, "
        f"duration {format_duration(scenario.duration_ns)}, "
        f"warm-up {format_duration(warm_up_ns)}, about {expected_requests(scenario):,} requests, "
        f"clients: {clients}"
    )
    count = asked.replications or 1
    if asked.precision is not None:
        budget = asked.budget(asked.replications)
        time_s = "" if budget.most_time_s is None else f" in {number_text(budget.most_time_s)} s"
        print(
            f"replications until every share is known to ± {asked.precision:g}, at most "
            f"{budget.most_replications}{time_s}, seeds from {seed}"
        )
    elif count > 1:
        print(f"replications {count}, seeds {seed} to {seed + count - 1}")


def _print_groups(result: Result, screen: Console) -> None:
    counts = ("count", "affected", "offered", "refused", "share")
    table = plain_table(["clients"], counts, ("bound by", "fair share"), wraps=["bound by"])
    for group in result.summary["groups"]:
        table.add_row(
            group["name"],
            f"{group['clients']:,}",
            f"{group['clients_refused']:,}",
            f"{group['offered']:,}",
            f"{group['refused']:,}",
            share_text(group["refused"], group["offered"]),
            binding_text(group) or "–",
            pace_text(group["binds"]) or "–",
        )
    screen.print(table, markup=False)


def _print_nodes(result: Result, screen: Console) -> None:
    """Print what several nodes admitted beyond the exact limits, and refused below them."""
    nodes = result.summary.get("nodes")
    if nodes is None:
        return
    numbers = (metric_title("admitted_beyond"), metric_title("refused_below"))
    table = plain_table(("clients", "clause"), numbers)
    for row in nodes["groups"]:
        counts = f"{row['admitted_beyond']:,}", f"{row['refused_below']:,}"
        table.add_row(row["group"], row["clause"], *counts)
    if nodes["groups"]:
        screen.print(table, markup=False)
    screen.print(nodes_text(result.summary), markup=False, soft_wrap=True)


def _print_warm_up(result: Result, screen: Console) -> None:
    """Print the warm-up that MSER-5 suggests for the refused share, where the run's is shorter."""
    if not {"t_ns", "outcome"} <= set(result.columns):
        return
    warm_up = result.warm_up("refused_share")
    if warm_up.is_too_short and warm_up.suggested_ns is not None:
        suggested = format_duration(warm_up.suggested_ns)
        screen.print(
            f"warm-up: {format_duration(warm_up.given_ns)} is shorter than the {suggested} that "
            f"MSER-5 suggests for the refused share (the mean over its bins of time is "
            f"{percent_text(warm_up.mean)} after it, {percent_text(warm_up.whole_mean)} in all); "
            f"see the report, or use --warm-up {suggested}",
            markup=False,
            soft_wrap=True,
        )


def _print_tail(result: Result, screen: Console, *, checked: bool) -> None:
    totals = result.summary["totals"]
    screen.print(
        f"{totals['offered']:,} attempts: {totals['admitted']:,} admitted, "
        f"{totals['refused']:,} refused ({share_text(totals['refused'], totals['offered'])}), "
        f"{totals['pending']:,} pending; {totals['requests']:,} requests: "
        f"{totals['succeeded']:,} succeeded, {totals['failed']:,} failed, "
        f"{totals['requests_pending']:,} pending",
        markup=False,
    )
    screen.print(share_line(result.summary), markup=False)
    if checked:
        faults = result.summary["checks"]["faults"]
        screen.print(f"self-checks: {f'{faults} failed' if faults else 'passed'}", markup=False)
    for line in result.summary["thresholds"]:
        word = "met" if line["holds"] else "not met"
        value = "no value" if line["value"] is None else value_text(line["that"], line["value"])
        screen.print(f"threshold: {line['that']}: {word} ({value})", markup=False)
