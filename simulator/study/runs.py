"""Running scenarios: once, or several times under seeds of their own, into a folder or memory.

`simulator.play` plays them.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from engine.errors import InputError
from simulator.intervals import CONFIDENCE, Interval, Verdict, judged, runs_for_verdict, spent
from simulator.options import RunOptions, takes_options
from simulator.play import seed_in_force, simulate
from simulator.progress import Interrupted, Progress, in_notebook, progress_bar
from simulator.rows import Result, check_out
from simulator.rows.parquet import refuse_missing
from simulator.rows.result import columns_of, measure_condition
from simulator.scenario import Scenario, dump
from simulator.scenario.model import draws_at_random
from simulator.study.replications import (
    Precision,
    Replication,
    intervals,
    line_of,
    replicate_to,
    replication_of,
    replicator,
)


@takes_options(RunOptions)
def run(options: RunOptions) -> Result:
    """Play a scenario; returns its result.

    {options}

    Decisions are the same in each fidelity, bit for bit. With replications, rows are the first
    one's, and `Result.replications` has the intervals of the metrics over all of them.

    Raises `InputError` for a scenario that cannot be, a folder that cannot be written, or columns
    that are unknown or too few for the scenario's thresholds.

    >>> result = run("management-loop", fidelity="limits")
    >>> result.summary["totals"]["offered"] > 0, result.violations
    (True, ())
    """
    scenario = options.played
    shown = in_notebook() if options.progress is None else options.progress
    with progress_bar(scenario.duration_ns, quiet=not shown) as tell:
        return run_replicated(replace(options, scenario=scenario), progress=tell)


def _run_once(
    options: RunOptions,
    progress: Progress | None = None,
    extra: Callable[[Result], Mapping[str, Any]] = lambda _: {},
) -> Result:
    """Play a scenario once; what `extra` makes of the result goes into the summary too."""
    scenario, columns, warm_up_ns = options.played, options.kept, options.warm_up_ns
    if columns is not None:
        left_out_ns = scenario.warm_up_ns if warm_up_ns is None else warm_up_ns
        for threshold in scenario.thresholds:
            needed = columns_of(threshold.that, warm_up=bool(left_out_ns))
            refuse_missing(f"columns, for the threshold {threshold.that},", needed, columns)
    with options.written() as folder:
        result = simulate(
            scenario,
            seed=options.seed,
            fidelity=options.fidelity,
            warm_up_ns=warm_up_ns,
            folder=folder,
            columns=columns,
            check=options.check,
            headroom=options.check,
            progress=progress,
        )
        result.folder = folder
        result.scenario_text = dump(scenario, absolute=True)
        result.summary["question"] = scenario.question
        result.summary["answer"] = scenario.answer
        result.summary["thresholds"] = _judged(scenario, result)
        result.summary.update(extra(result))
        if folder is not None:
            result.write_to(folder)
    result.folder = options.folder
    return result


def run_replicated(
    options: RunOptions,
    *,
    progress: Progress | None = None,
    told: Callable[[int], None] | None = None,
    told_of_precision: Callable[[Sequence[Replication], Precision], None] | None = None,
    command: Sequence[str] | None = None,
) -> Result:
    """Play a scenario once, or under several seeds; the rows and files are those of the first.

    told: hears how many of the runs after the first are done. command: what repeats this run.
    """
    scenario = options.played
    budget = options.budget(options.replications)
    several, kept = options.are_several, options.kept
    if several and kept is not None:
        raise InputError(
            f"columns = {','.join(kept)} must be left out with replications; intervals are of"
            " metrics that need every column"
        )
    if options.folder is not None:
        check_out(options.folder, force=options.force)
    options = replace(options, scenario=scenario, seed=seed_in_force(scenario, options.seed))
    exact = not draws_at_random(scenario)
    others: list[Replication] = []
    reached: Precision | None = None
    with replicator() as player:
        if options.precision is not None:
            found, reached = replicate_to(
                options, player, budget, exact=exact, told=told_of_precision
            )
            others = found[1:]
        elif several:
            first = seed_in_force(scenario, options.seed)
            others = player.play(
                scenario,
                range(first + 1, first + (options.replications or 1)),
                fidelity=options.fidelity,
                warm_up_ns=options.warm_up_ns,
                check=options.check,
                told=told,
            )

    def extra(result: Result) -> dict[str, Any]:
        added: dict[str, Any] = {} if command is None else {"command": list(command)}
        if several:
            runs = [replication_of(result, line_of(result, scenario)), *others]
            added["replications"] = _replications(scenario, runs, reached, exact=exact)
        return added

    try:
        return _run_once(options, progress, extra)
    except KeyboardInterrupt:
        raise Interrupted(others, 0 if reached is None else reached.looks) from None


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
            asdict(each) | {"line": {name: _plain(value) for name, value in each.line.items()}}
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
        name = threshold.that.subject
        verdict: Verdict = judged(threshold.that, spread[name])
        needed = None
        if verdict == "not decided":
            needed = runs_for_verdict([run.line[name] for run in runs], threshold.that)
        lines.append(
            {"that": str(threshold.that), "subject": name, "verdict": verdict, "needed": needed}
            | _interval_plain(spread[name])
        )
    return lines


def _judged(scenario: Scenario, result: Result) -> list[dict[str, Any]]:
    """Return what became of the scenario's thresholds in this one run."""
    lines = []
    for threshold in scenario.thresholds:
        value = measure_condition(result, threshold.that)
        holds = threshold.that.holds(value)
        lines.append({"that": str(threshold.that), "value": _plain(value), "holds": holds})
    return lines


def _plain(value: float) -> float | None:
    """Return a value as JSON has it: NaN and the infinite are null."""
    return value if math.isfinite(value) else None
