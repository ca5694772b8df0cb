"""`python -m simulator capacity`: its flags, and what it prints."""

from __future__ import annotations

import argparse
import math
import sys
import time
from typing import TYPE_CHECKING

from simulator.commands.flags import add_budget, count_of, seed_of
from simulator.commands.words import interval_text, needed_text
from simulator.progress import TELL_EVERY_S

if TYPE_CHECKING:
    from simulator.intervals import Interval
    from simulator.study.capacity import Capacity, Trial

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `capacity`."""
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


def _tolerance(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a share from 0 to 1, such as 0.01")
    return value


def run(args: argparse.Namespace) -> int:
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
        return f"pilot, {interval_text(trial.interval)}{needed}"
    if trial.verdict == "not decided":
        return f"not decided, {interval_text(trial.interval)}{needed_text(trial.needed)}"
    return f"{trial.verdict} ({interval_text(trial.interval)}, {_method(trial.interval)})"


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
