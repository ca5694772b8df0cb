"""The commands of studies: their flags, and what they print.

`capacity`, `sweep`, `compare`, `advise` and `coverage`. A study that Ctrl-C stops is printed, and
written where a folder is named, as far as it is known.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import math
import shlex
import sys
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from statistics import NormalDist
from typing import TYPE_CHECKING, Any, Final, TextIO, TypeVar

from engine.errors import InputError
from simulator.arguments import add_flags, given
from simulator.options import LogReadingOptions, PrecisionOptions, resolve
from simulator.progress import Due, Interrupted, TimeLeft, progress_shown
from simulator.rows import check_out, out_folder
from simulator.views.text import (
    console,
    interval_text,
    metric_title,
    needed_text,
    number_text,
    percent_text,
    plain_table,
    precision_text,
    value_text,
)

if TYPE_CHECKING:
    from simulator.intervals import Interval
    from simulator.scenario import Scenario
    from simulator.study.advice import Advice, Suggestion
    from simulator.study.capacity import Capacity, Trial
    from simulator.study.policies import Policies
    from simulator.study.runs import Precision

Study = TypeVar("Study")

_TWO: Final = 2
_SWEPT: Final = ("offered", "admitted", "refused_share", "admitted_beyond", "refused_below")
"""Metrics of a sweep that are printed; the last two are of several nodes."""

_METHODS: Final = {"t": "Student's t", "range": "nothing: no spread is known"}
"""What methods of intervals are called in text, where their name does not tell."""
_POLICY_TITLES: Final = {
    "shut_out_s": "locked out longest (s)",
    "peak_admitted_per_s": "most admitted in 1 s",
    "non_dominated": "Pareto-optimal",
    "dominated_by": "worse than",
}
"""What columns of policies are called in text, where `metric_title` does not tell."""


def _finished(
    study: Callable[[], Study],
    show: Callable[[Study], None],
    out: str | None = None,
    *,
    force: bool = False,
    output: TextIO | None = None,
) -> Study:
    """Return a study, shown and written into a folder; if Ctrl-C stops it, what is known of it.

    output: where it is said that the folder is written, standard output unless given.
    """
    stop = None
    if out is not None:
        check_out(Path(out), force=force)
    try:
        result = study()
    except Interrupted as caught:
        stop, result = caught, caught.result
    show(result)
    if out is not None:
        with out_folder(Path(out), force=force) as folder:
            result.write_to(folder)  # type: ignore[attr-defined] # reason: one with a folder has it
        print(f"written to {out}", file=output)
    if stop is not None:
        raise stop
    return result


def _refuse(args: argparse.Namespace, flags: Iterable[str], why: str) -> None:
    """Raise `InputError` where one of some flags is given."""
    for flag in flags:
        if (value := getattr(args, flag)) is not None:
            name = flag.removesuffix("_kind").replace("_", "-")
            text = "" if isinstance(value, list) else f" = {value}"  # a key may be assumed
            raise InputError(f"--{name}{text} {why}")


def _tell(text: str) -> None:
    print(f"running: {text}", file=sys.stderr, flush=True)


def _tell_suggestion(suggestion: Suggestion) -> None:
    line = f"so far: {suggestion.group}, {suggestion.about}: {suggestion.text}"
    print(line, file=sys.stderr, flush=True)


def add_capacity(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `capacity`."""
    parser.description = "Find the largest value of one parameter that meets a condition."
    from simulator.study.capacity import CapacityOptions

    limit_help = "most runs of all values together (200)"
    add_flags(parser, CapacityOptions, most_replications=limit_help)
    parser.add_argument(
        "--strict",
        action="store_true",
        help="also exit with 1 if the upper or the lower value is undecided",
    )
    parser.add_argument("--quiet", action="store_true", help="print only the answer")


def run_capacity(args: argparse.Namespace) -> int:
    """Run the command: 0 when some value is shown to meet the condition, else 1."""
    from simulator.study.capacity import CapacityOptions, capacity

    scenario = resolve(args.scenario)
    seed = scenario.seed if args.seed is None else args.seed
    if not args.quiet:
        print(
            f"seed {seed}, fidelity {args.fidelity}, {args.replications} runs per value in the"
            " coarse search"
        )

    display = _SearchShown(args.vary, args.keep)
    answer = _finished(
        lambda: capacity(
            **given(args, CapacityOptions) | {"scenario": scenario},
            on_trial=None if args.quiet else display.tell,
            progress=None if args.quiet else display.progress,
        ),
        partial(_print_capacity, args=args),
    )
    return 1 if answer.keeps is None or (args.strict and not answer.is_decided) else 0


class _SearchShown:
    """Prints a search's trials, and the progress of the current one."""

    def __init__(self, path: str, metric: str) -> None:
        self._path, self._metric = path, metric
        self._known: dict[str, str] = {}
        self._due, self._left = Due(), TimeLeft()

    def tell(self, trial: Trial) -> None:
        """Print a trial."""
        print(f"{self._path} = {trial.value}: {_trial_words(trial, self._metric)}", flush=True)
        if not trial.is_coarse and trial.verdict != "not decided":
            self._known[trial.verdict] = trial.value
        self._due, self._left = Due(), TimeLeft()

    def progress(self, value: str, done: int, whole: int) -> None:
        """Say on standard error how many runs are done, and what is known so far."""
        left = self._left.text(done, whole)
        if done == whole or not self._due.now():
            return
        known = [f"{verdict} at {at}" for verdict, at in self._known.items()]
        line = f"{self._path} = {value}: {done} of {whole} runs{left}"
        so_far = f"so far {' and '.join(known)}" if known else "so far nothing is decided"
        print(f"{line}; {so_far}", file=sys.stderr, flush=True)


def _trial_words(trial: Trial, metric: str) -> str:
    if trial.is_coarse:
        return f"coarse search: {interval_text(trial.interval, metric)}"
    if trial.verdict == "not decided":
        return f"not decided, {interval_text(trial.interval, metric)}"
    return f"{trial.verdict} ({interval_text(trial.interval, metric)}, {_method(trial.interval)})"


def _method(interval: Interval) -> str:
    if interval.method == "exact":
        return "exact: the scenario has no randomness"
    return f"{interval.method}, {interval.confidence:.4g} confidence"


def _print_capacity(answer: Capacity, args: argparse.Namespace) -> None:
    """Print the answer, or as much of it as is known."""
    coarse = [trial for trial in answer.trials if trial.is_coarse]
    if answer.keeps is not None:
        print(f"{answer.condition} is met up to {answer.path} = {answer.keeps}")
    elif "keeps" in answer.undecided or answer.unfinished:
        print(f"no value is shown to meet {answer.condition}")
    else:
        print(f"{answer.condition} is met at no value from {args.between[0]} up")
    if answer.breaks is not None:
        print(f"it is not met from {answer.path} = {answer.breaks} on")
    elif "breaks" in answer.undecided or answer.unfinished:
        print("no value is shown not to meet it")
    else:
        print(f"it is met at every value up to {args.between[1]}")
    if answer.border is None and answer.estimate is not None and coarse:
        both = answer.keeps is not None and answer.breaks is not None
        head = "between these values nothing is decided; the" if both else "the"
        print(f"{head} coarse search puts the border at about {answer.estimate}")
    if answer.border is not None and answer.border.mean:
        _print_border(answer, answer.border)
    for side in answer.undecided:
        wanted = "met" if side == "keeps" else "not met"
        print(f"not decided: where it is {wanted}{_undecided(answer)}")
    if not answer.undecided and answer.needed is not None:
        print(f"the tolerance of {args.tolerance:.2g} is not reached{_undecided(answer)}")
    if answer.unfinished:
        print(f"the search is not finished: {answer.unfinished}{_undecided(answer)}")
    print(f"{answer.runs} runs")


def _print_border(answer: Capacity, border: Interval) -> None:
    """Print how sharp the border is, and if that is too little, how much a run's border varies."""
    precision = border.half_width / abs(border.mean)
    print(f"the border is at {answer.estimate} ± {percent_text(precision)}")
    if answer.needed is not None:
        quantile = NormalDist().inv_cdf((1 + border.confidence) / 2)
        deviation = percent_text(precision / quantile * math.sqrt(border.runs))
        print(
            f"what limits it: the border of a single run varies by {deviation} (standard deviation)"
        )


def _undecided(answer: Capacity) -> str:
    if answer.needed is None:
        return ""
    return f"; about {answer.needed} runs would be enough: use --most-replications {answer.needed}"


def add_sweep(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `sweep`."""
    from simulator.study.sweep import SweepOptions

    parser.description = (
        "Run a scenario with many values; a stopped sweep resumes where it stopped."
    )
    parser.add_argument(
        "--set",
        dest="axes",
        action="append",
        required=True,
        metavar="PATH=V1,V2|PATH=A..B",
        help="values of one field of the scenario, or a range to sample; may be repeated",
    )
    add_flags(parser, SweepOptions)
    parser.add_argument("--out", metavar="DIR", help="folder of the dataset (runs/sweep-<name>)")
    parser.add_argument("--quiet", action="store_true", help="print only the folder")


def run_sweep(args: argparse.Namespace) -> int:
    """Run the command; returns the exit code. Raises `InputError` for bad input."""
    from simulator.study.sweep import SweepOptions, load_sweep, read_axis, sweep

    scenario = resolve(args.scenario)
    out = Path(args.out) if args.out else Path("runs") / f"sweep-{scenario.name}"
    axes: dict[str, Any] = {}
    for text in args.axes:
        path, _ = read_axis(text)
        if path in axes:
            raise InputError(f"--set = {path!r} must stand once; list all its values there")
        axes[path] = text.partition("=")[2]
    seed = scenario.seed if args.seed is None else args.seed
    if not args.quiet:
        runs = "1 run" if args.replications == 1 else f"{args.replications} runs"
        print(f"seed {seed}, fidelity {args.fidelity}, {runs} per point")
    asked = given(args, SweepOptions) | {"scenario": scenario, "axes": axes, "out": out}
    try:
        with progress_shown(lambda done, runs: f"{done} of {runs}", quiet=args.quiet) as tell:
            frame = sweep(**asked, progress=tell and partial(tell, "sweeping"))
    except KeyboardInterrupt:
        if not args.quiet and len(known := load_sweep(out)):
            _print_points(known, list(axes))
        print(f"finished runs stay in {out}; the same command resumes there", file=sys.stderr)
        raise
    failed = frame[frame["status"] == "failed"]
    if args.quiet:
        print(out)
    else:
        _print_points(frame, list(axes))
        print("repeat with:", shlex.join(["python", "-m", "simulator", *args.words]))
        print("dataset:", out)
    for line in failed[["point", "replication", "error"]].itertuples(index=False):
        print(f"failed: point {line.point}, run {line.replication}: {line.error}", file=sys.stderr)
    return 1 if len(failed) else 0


def _print_points(frame: Any, paths: list[str]) -> None:  # noqa: ANN401 # reason: a frame
    metrics = [name for name in _SWEPT if name in frame]
    columns = (*paths, "runs", *map(metric_title, metrics))
    table = plain_table((), columns, wraps=columns)
    for _, rows in frame[frame["status"] == "ok"].groupby("point"):
        values = [str(rows[path].iloc[0]) for path in paths]
        means = [value_text(name, rows[name].mean()) for name in metrics]
        table.add_row(*values, str(len(rows)), *means)
    console().print(table)


def add_compare(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `compare`."""
    parser.description = (
        "Show what differs between two runs, or what several limit tables and profiles change in"
        " scenarios, and how certain that is."
    )
    from simulator.study.policies import PolicyOptions

    parser.add_argument(
        "what",
        nargs="+",
        metavar="RUN_OR_SCENARIO",
        help="two runs' folders; or with --limits or --profile, scenarios",
    )
    add_flags(parser, PolicyOptions)
    parser.set_defaults(replications=None)  # which tells whether it is given
    parser.add_argument(
        "--out", metavar="DIR", help="write the table of policies there, as a page and as CSV"
    )
    add_flags(
        parser,
        PrecisionOptions,
        precision="replicate both, each in its fidelity, until every share's difference is known"
        " to ± this",
        most_replications="stop after this many pairs of runs even if --precision is not reached"
        " (1000)",
    )
    parser.add_argument(
        "--strict", action="store_true", help="also exit with 1 if the precision is not reached"
    )
    parser.add_argument("--json", action="store_true", help="print the differences as JSON")


def run_compare(args: argparse.Namespace) -> int:
    """Run the command: 0 where nothing differs, 1 where something does; 0 for policies.

    Runs under other seeds differ where a difference is significant.
    """
    if args.limits or args.profiles:
        return _compare_policies(args)
    _refuse(args, ("replications", "out"), "must go with --limits or --profile")
    if len(args.what) != _TWO:
        raise InputError(
            f"compare takes two runs' folders, or scenarios with --limits or --profile;"
            f" {len(args.what)} are given"
        )
    return _compare_runs(args)


def _print_json(frame: Any) -> None:  # noqa: ANN401 # reason: a frame
    print(json.dumps(json.loads(frame.to_json(orient="records")), indent=2))


def _compare_policies(args: argparse.Namespace) -> int:
    from simulator.study.policies import PolicyOptions, policies

    flags = ("precision", "most_replications", "most_time")
    _refuse(args, flags, "must go with two runs' folders; leave it out")
    asked = {name: value for name, value in given(args, PolicyOptions).items() if value is not None}
    _finished(
        lambda: policies(args.what, **asked, progress=_tell),
        partial(_print_policies, args=args),
        args.out,
        output=sys.stderr if args.json else None,
    )
    return 0


def _print_policies(comparison: Policies, args: argparse.Namespace) -> None:
    if args.json:
        _print_json(comparison.frame)
    elif len(comparison.frame):
        table = (
            comparison.table.drop(columns="scenario") if len(args.what) == 1 else comparison.table
        )
        print(comparison.caption)
        for frame in (table, comparison.best):
            print(_titled(frame).to_string(index=False, float_format=number_text, na_rep="–"))


def _titled(frame: Any) -> Any:  # noqa: ANN401 # reason: a frame
    """Return a frame as text: titles instead of names, shares in percent, yes and no."""
    cells = {
        name: frame[name].map(percent_text, na_action="ignore")
        for name in frame
        if name == "refused_share"
    }
    if "non_dominated" in frame:
        cells["non_dominated"] = frame["non_dominated"].map({True: "yes", False: "no"})
    return frame.assign(**cells).rename(
        columns=_POLICY_TITLES
        | {name: metric_title(name) for name in frame if name not in _POLICY_TITLES}
    )


def _compare_runs(args: argparse.Namespace) -> int:
    from simulator.study.comparison import compare

    def tell(pairs: int, reached: Precision) -> None:
        if not reached.reached:
            print(f"{pairs} pairs{needed_text(reached.needed)}", file=sys.stderr, flush=True)

    comparison = compare(*args.what, **given(args, PrecisionOptions), on_look=tell)
    missed = args.strict and comparison.precision is not None and not comparison.precision.reached
    differences = [d for d in comparison.differences if d.a != d.b]
    code = 1 if comparison.differs or missed else 0
    if args.json:
        _print_json(comparison.frame.reset_index())
        return code
    print(f"A = {comparison.names[0]}, B = {comparison.names[1]}, {comparison.said}")
    if comparison.precision is not None:
        print(precision_text(dataclasses.asdict(comparison.precision), comparison.pairs))
    if not differences:
        print("no metric differs" + ("" if comparison.same_rows else "; some rows do"))
        return code
    table = plain_table(
        ["metric"], ("A", "B", "B − A", "95 % from", "to"), ("significant", "interval by")
    )
    for d in differences:
        values = [_compared_text(d.metric, value) for value in (d.a, d.b)]
        changes = [_compared_text(d.metric, value, is_change=True) for value in d.change[:3]]
        is_significant = "yes" if d.metric in comparison.significant else ""
        method = _METHODS.get(d.change.method, d.change.method)
        table.add_row(metric_title(d.metric), *values, *changes, is_significant, method)
    console().print(table)
    if comparison.tested:
        print(comparison.tested)
    return code


def _compared_text(metric: str, value: float, *, is_change: bool = False) -> str:
    """Return a metric's value, or the difference of two: one of shares is in percentage points."""
    if is_change and metric.startswith("refused_share") and math.isfinite(value):
        return f"{number_text(100 * value, 3)} points"
    return value_text(metric, value)


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `advise`."""
    parser.description = (
        "Report which limits are the bottleneck of each group of clients, what would help it,"
        " and what a higher limit would cost. Runs support each suggestion."
    )
    from simulator.study.advise import AdviseOptions

    add_flags(
        parser,
        AdviseOptions,
        scenario="a scenario's file (.toml), a built-in scenario's name, or an access log, to which"
        " a scenario is fitted first",
    )
    add_flags(parser, LogReadingOptions)
    parser.add_argument(
        "--out", metavar="DIR", help="write a page, the tables and a diff of each suggestion there"
    )
    parser.add_argument(
        "--force", action="store_true", help="replace the files of an earlier call in DIR"
    )
    parser.add_argument("--quiet", action="store_true", help="print only the suggestions")


def run_advise(args: argparse.Namespace) -> int:
    """Run the command; returns 0."""
    from simulator.study.advise import AdviseOptions, advise

    _finished(
        lambda: advise(
            **given(args, AdviseOptions) | {"scenario": _advised(args)},
            progress=None if args.quiet else _tell,
            suggested=None if args.quiet else _tell_suggestion,
        ),
        partial(_print_advice, args=args),
        args.out,
        force=args.force,
    )
    return 0


def _advised(args: argparse.Namespace) -> Scenario | str:
    """Return the scenario that is named, or the one that is fitted to the log."""
    is_log = Path(args.scenario).suffix != ".toml" and Path(args.scenario).is_file()
    if not is_log:
        _refuse(
            args, given(args, LogReadingOptions), f"must go with a log; {args.scenario} is none"
        )
        return str(args.scenario)
    from simulator.study.fit import fit

    if not args.quiet:
        _tell("the log, to fit a scenario to it; `fit` shows how well the two match")
    scenario_of_log: Scenario = fit(
        args.scenario,
        **given(args, LogReadingOptions),
        limits=args.limits,
        profile=args.profile,
        judged=False,
    ).scenario
    return scenario_of_log


def _print_advice(advice: Advice, args: argparse.Namespace) -> None:
    from simulator.views.report import dashed

    print(f"{advice.scenario.name}: {advice.runs} runs of each change, paired by seed")
    for group in dict.fromkeys(suggestion.group for suggestion in advice.suggestions):
        print(f"\nclient group {group}")
        for suggestion in advice.suggestions:
            if suggestion.group == group:
                print(f"  {suggestion.about}: {suggestion.text}")
                if suggestion.verified:
                    print(f"    {suggestion.verified}")
    for suggestion in advice.contradicted:
        print(
            f"\nleft out, as fresh runs contradict it: {suggestion.group}, {suggestion.about}:"
            f" {suggestion.text}"
        )
    if not args.quiet:
        for name, frame in advice.tables.items():
            print(f"\n{name}")
            print(dashed(frame).to_string(index=False, float_format=number_text))
    if advice.unfinished:
        print(f"\nunfinished: {advice.unfinished}")
    if args.out is not None:
        print()


def add_coverage(parser: argparse.ArgumentParser) -> None:
    """Fill the parser of `coverage`."""
    parser.description = "Trigger every limit rule, action, quota and bound at least once."
    parser.add_argument("--out", metavar="DIR", help="write coverage.json into this folder")
    parser.add_argument("--force", action="store_true", help="replace what is in that folder")


def run_coverage(args: argparse.Namespace) -> int:
    """Run the command: 0 when everything fired or says why it cannot, else 1."""
    from simulator.study.coverage import coverage

    if args.out is not None:
        check_out(Path(args.out), force=args.force)
    lines = coverage()
    why = "how, or why not"
    table = plain_table(("clause", "what", "fired", why), wraps=[why])
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
