"""Running scenarios: once, or several times under seeds of their own, into a folder or memory.

`simulator.play` plays them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.errors import InputError
from engine.files import format_duration
from simulator.arguments import (
    DURATION,
    FLAG,
    FOLDER,
    Rule,
    instance,
    is_number,
    one_of,
    optional,
    takes,
    whole,
)
from simulator.intervals import (
    CONFIDENCE,
    Interval,
    Verdict,
    judged,
    runs_for_verdict,
    spent,
)
from simulator.play import FIDELITIES, SEED, Fidelity, seed_in_force, simulate
from simulator.progress import Progress, in_notebook, progress_bar
from simulator.rows import Result, check_out, out_folder
from simulator.rows.parquet import COLUMNS, columns_to_keep, refuse_missing
from simulator.rows.result import columns_of, measure_condition, subject_of
from simulator.scenario import Scenario, dump, is_toml, load
from simulator.scenario.model import draws_at_random
from simulator.study.replications import (
    MOST_REPLICATIONS,
    Budget,
    Precision,
    Replication,
    ReplicationsInterrupted,
    intervals,
    replicate_to,
    replication_of,
    replicator,
)

__all__ = [
    "MOST_TIME",
    "PRECISION",
    "SCENARIO",
    "ScenarioLike",
    "ThresholdLine",
    "budget_of",
    "judge",
    "resolve",
    "run",
    "run_once",
    "run_replicated",
]

ScenarioLike: TypeAlias = Scenario | str | Path
"""A scenario, the path of its file, the name of a built-in one, or its TOML text."""

_SCENARIO_FILE: Final = instance(
    "a Scenario, a file's path, the name of a built-in one, or TOML text", Scenario, str, Path
)
SCENARIO: Final = Rule(
    _SCENARIO_FILE.words, lambda value: is_toml(value) or _SCENARIO_FILE.holds(value)
)
PRECISION: Final = optional(
    Rule(
        "above 0 and below 0.5, half the width of a share's interval, such as 0.005",
        lambda value: is_number(value) and 0 < value < 0.5,
        float,
    )
)
MOST_TIME: Final = optional(DURATION, "no bound")


@dataclass(frozen=True, slots=True)
class ThresholdLine:
    """A threshold of a scenario, and what a run made of it."""

    that: str
    value: float
    holds: bool


def resolve(scenario: ScenarioLike) -> Scenario:
    """Return the scenario. Raises `InputError` with file:line:col where a file has a fault."""
    if isinstance(scenario, Scenario):
        return scenario
    return load(scenario)


@takes(
    scenario=SCENARIO,
    fidelity=one_of(FIDELITIES),
    seed=SEED,
    warm_up=optional(DURATION, "the scenario's"),
    replications=optional(whole(1)),
    precision=PRECISION,
    most_replications=optional(whole(1)),
    most_time=MOST_TIME,
    check=FLAG,
    out=optional(FOLDER, "rows in memory"),
    columns=COLUMNS,
    force=FLAG,
    progress=optional(FLAG),
)
def run(  # noqa: PLR0913 # reason: what a command has as flags
    scenario: ScenarioLike,
    *,
    fidelity: Fidelity = "engine",
    seed: int | None = None,
    warm_up: str | int | None = None,
    replications: int | None = None,
    precision: float | None = None,
    most_replications: int | None = None,
    most_time: str | int | None = None,
    check: bool = True,
    out: str | Path | None = None,
    columns: str | Sequence[str] | None = None,
    force: bool = False,
    progress: bool | None = None,
) -> Result:
    """Play a scenario; returns its result.

    scenario: a `Scenario`, a file's path, the name of a built-in one, or TOML text.
    fidelity: `engine` runs every request whole, `limits` decides by the limits alone; the
        decisions are the same, bit for bit.
    seed: the scenario's unless given. warm_up: ns, or a text such as `"1m"`; results leave it out.
    replications: runs, under seeds that count up; rows are the first one's, and
        `Result.replications` has the intervals of the metrics over all of them.
    precision: replicate until the interval of every refused share, and of every other share that a
        threshold is about, is at most ± this wide; at most `most_replications` (1000) and
        `most_time`, in ns or a text such as `"5m"`. replications: then the runs before it looks.
    check: run the invariant checkers. out: a folder for the rows, the summary and the report;
        without it the rows stay in memory. force: replace what an earlier run left there.
    columns: those of the rows that the folder's file keeps, as names or a text with commas; all
        unless given, and `decisions` stands for t_ns, key, outcome, rule and wait_ns.
    progress: show a bar; left out, in notebooks only.

    Raises `InputError` for a scenario that cannot be, a folder that cannot be written, or columns
    that are unknown or too few for the scenario's thresholds.

    >>> result = run("management-loop", fidelity="limits")
    >>> result.summary["totals"]["offered"] > 0, result.violations
    (True, ())
    """
    assert not isinstance(warm_up, str), "a text was read already"
    assert not isinstance(most_time, str), "a text was read already"
    if force and out is None:
        raise InputError("force = True must go with out, a folder; without one nothing is replaced")
    found = resolve(scenario)
    shown = in_notebook() if progress is None else progress
    with progress_bar(found.duration_ns, quiet=not shown) as tell:
        return run_replicated(
            found,
            replications,
            precision=precision,
            budget=budget_of(precision, replications, most_replications, most_time),
            fidelity=fidelity,
            seed=seed,
            warm_up_ns=warm_up,
            check=check,
            out=None if out is None else Path(out),
            columns=columns_to_keep(columns, out),
            force=force,
            progress=tell,
        )


def run_once(  # noqa: PLR0913 # reason: what a command has as flags
    scenario: Scenario,
    *,
    fidelity: Fidelity,
    seed: int | None = None,
    warm_up_ns: int | None = None,
    check: bool = True,
    out: Path | None = None,
    columns: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    extra: Callable[[Result], Mapping[str, Any]] | None = None,
) -> Result:
    """Play a scenario once; what `extra` makes of the result goes into the summary too.

    The rest as `run` says.
    """
    if columns is not None:
        left_out_ns = scenario.warm_up_ns if warm_up_ns is None else warm_up_ns
        for threshold in scenario.thresholds:
            needed = columns_of(threshold.that, warm_up=bool(left_out_ns))
            refuse_missing(f"columns, for the threshold {threshold.that},", needed, columns)
    place = nullcontext() if out is None else out_folder(out, force=force)
    with place as folder:
        result = simulate(
            scenario,
            seed=seed,
            fidelity=fidelity,
            warm_up_ns=warm_up_ns,
            folder=folder,
            columns=columns,
            check=check,
            headroom=check,
            progress=progress,
        )
        result.folder = folder
        result.scenario_text = dump(scenario, absolute=True)
        result.summary["question"] = scenario.question
        result.summary["answer"] = scenario.answer
        result.summary["thresholds"] = _judged(judge(scenario, result))
        result.summary.update(extra(result) if extra is not None else {})
        if folder is not None:
            from simulator.views import write_report  # noqa: PLC0415 # reason: charts load only where a page is written

            result.write_to(folder)
            write_report(folder)
    result.folder = out
    return result


def budget_of(
    precision: float | None,
    replications: int | None,
    most_replications: int | None,
    most_time_ns: int | None,
) -> Budget:
    """Return what replications may take. Raises `InputError` for bounds that contradict."""
    if precision is None:
        time = None if most_time_ns is None else format_duration(most_time_ns)
        for name, value in (("most_replications", most_replications), ("most_time", time)):
            if value is not None:
                raise InputError(f"{name} = {value} must go with precision; leave it out")
    if most_time_ns is not None and most_time_ns <= 0:
        raise InputError(f"most_time = {most_time_ns} ns must be above 0; take more")
    most = max(MOST_REPLICATIONS, replications or 1)
    if most_replications is not None:
        most = most_replications
    if most < (replications or 1):
        raise InputError(
            f"most_replications = {most} must be at least replications, {replications}; take more"
        )
    return Budget(most, None if most_time_ns is None else most_time_ns / 1e9)


def run_replicated(  # noqa: PLR0913 # reason: what a command has as flags
    scenario: Scenario,
    replications: int | None,
    *,
    fidelity: Fidelity,
    precision: float | None = None,
    budget: Budget | None = None,
    seed: int | None = None,
    warm_up_ns: int | None = None,
    check: bool = True,
    out: Path | None = None,
    columns: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    told: Callable[[int], None] | None = None,
    told_of_precision: Callable[[Sequence[Replication], Precision], None] | None = None,
    command: Sequence[str] | None = None,
) -> Result:
    """Play a scenario under several seeds; the rows and files are those of the first.

    told: hears how many of the runs after the first are done. command: what repeats this run.
    """
    several = precision is not None or (replications or 1) > 1
    flags: Any = {"fidelity": fidelity, "warm_up_ns": warm_up_ns, "check": check}
    if several:
        _refuse_columns(columns)
    if out is not None:
        check_out(out, force=force)
    seed = seed_in_force(scenario, seed)
    exact = not draws_at_random(scenario)
    others: list[Replication] = []
    reached: Precision | None = None
    with replicator() as player:
        if precision is not None:
            found, reached = replicate_to(
                precision,
                player,
                scenario,
                seed,
                first=replications,
                budget=budget,
                exact=exact,
                told=told_of_precision,
                **flags,
            )
            others = found[1:]
        elif several:
            seeds = range(seed + 1, seed + (replications or 1))
            others = player.play(scenario, seeds, told=told, **flags)

    def extra(result: Result) -> dict[str, Any]:
        added: dict[str, Any] = {} if command is None else {"command": list(command)}
        if several:
            runs = [replication_of(result, scenario), *others]
            added["replications"] = _replications(scenario, runs, reached, exact=exact)
        return added

    with _interrupted_with(others, reached):
        return run_once(
            scenario,
            seed=seed,
            out=out,
            columns=columns,
            force=force,
            progress=progress,
            extra=extra,
            **flags,
        )


def _refuse_columns(columns: Sequence[str] | None) -> None:
    """Raise `InputError` where replications are to keep some columns alone."""
    if columns is not None:
        raise InputError(
            f"columns = {','.join(columns)} must be left out with replications; intervals are of"
            " metrics that need every column"
        )


@contextmanager
def _interrupted_with(runs: Sequence[Replication], reached: Precision | None) -> Iterator[None]:
    """Let Ctrl-C come with the runs that are done."""
    try:
        yield
    except KeyboardInterrupt:
        raise ReplicationsInterrupted(runs, 0 if reached is None else reached.looks) from None


def _replications(
    scenario: Scenario, runs: Sequence[Replication], reached: Precision | None, *, exact: bool
) -> dict[str, Any]:
    """Return what a summary says of replications: each run's line, intervals, thresholds."""
    error = 1 - CONFIDENCE if reached is None else spent(reached.looks)
    spread = intervals(runs, exact=exact, error=error)
    return {
        "confidence": CONFIDENCE,
        "faults": sum(each.faults for each in runs),
        "runs": [
            {
                "seed": each.seed,
                "sha256": each.sha256,
                "faults": each.faults,
                "line": {name: _plain(value) for name, value in each.line.items()},
            }
            for each in runs
        ],
        "intervals": {name: _interval_plain(each) for name, each in spread.items()},
        "spread": {name: _spread(name, runs) for name in spread},
        "thresholds": _judged_by_intervals(scenario, runs, spread),
        **({} if reached is None else {"precision": asdict(reached)}),
    }


def _spread(name: str, runs: Sequence[Replication]) -> dict[str, float | None]:
    """Return how far single runs lie apart; a metric that a run lacks counts as 0."""
    values = [run.line.get(name, 0.0) for run in runs]
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return dict.fromkeys(("least", "most", "deviation"))
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"least": min(values), "most": max(values), "deviation": deviation}


def _interval_plain(interval: Interval) -> dict[str, Any]:
    found = interval._asdict()
    return found | {name: _plain(found[name]) for name in ("mean", "low", "high")}


def _judged_by_intervals(
    scenario: Scenario, runs: Sequence[Replication], spread: Mapping[str, Interval]
) -> list[dict[str, Any]]:
    """Return a line a threshold: the interval of what it is about, and its verdict.

    needed: about how many runs would decide one that is not decided; None where none is known.
    """
    lines = []
    for threshold in scenario.thresholds:
        name = subject_of(threshold.that)
        verdict: Verdict = judged(threshold.that, spread[name])
        needed = None
        if verdict == "not decided":
            needed = runs_for_verdict([run.line[name] for run in runs], threshold.that)
        lines.append(
            {"that": str(threshold.that), "subject": name, "verdict": verdict, "needed": needed}
            | _interval_plain(spread[name])
        )
    return lines


def _judged(lines: Sequence[ThresholdLine]) -> list[dict[str, Any]]:
    return [{"that": line.that, "value": _plain(line.value), "holds": line.holds} for line in lines]


def judge(scenario: Scenario, result: Result) -> list[ThresholdLine]:
    """Return what became of the scenario's thresholds in this one run."""
    lines = []
    for threshold in scenario.thresholds:
        value = measure_condition(result, threshold.that)
        lines.append(ThresholdLine(str(threshold.that), value, threshold.that.holds(value)))
    return lines


def _plain(value: float) -> float | None:
    """Return a value as JSON has it: NaN and the infinite are null."""
    return value if math.isfinite(value) else None
