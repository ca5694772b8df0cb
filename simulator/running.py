"""Running scenarios: once, or several times under seeds of their own, into a folder or memory.

What it is not: how a scenario is played (`simulator.backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeAlias

from engine.errors import InputError
from simulator.arguments import (
    DURATION,
    FLAG,
    FOLDER,
    Rule,
    instance,
    one_of,
    optional,
    takes,
    whole,
)
from simulator.backends import FIDELITIES, SEED, Fidelity, seed_in_force, simulate
from simulator.progress import Progress, in_notebook, progress_bar
from simulator.replicating import CONFIDENCE, Replication, intervals, replication_of, replicator
from simulator.results import Result, check_out, out_folder
from simulator.results.choosing import COLUMNS, columns_to_keep, refuse_missing
from simulator.results.measuring import columns_of, measure_condition, subject_of
from simulator.scenario import Scenario, dump, load, loads

__all__ = [
    "SCENARIO",
    "ScenarioLike",
    "ThresholdLine",
    "judge",
    "judge_lines",
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
    _SCENARIO_FILE.words, lambda value: _is_toml(value) or _SCENARIO_FILE.holds(value)
)


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
    if _is_toml(scenario):
        return loads(str(scenario))
    return load(scenario)


def _is_toml(given: object) -> bool:
    return isinstance(given, str) and "\n" in given


@takes(
    scenario=SCENARIO,
    fidelity=one_of(FIDELITIES),
    seed=SEED,
    warm_up=optional(DURATION, "the scenario's"),
    replications=whole(1),
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
    replications: int = 1,
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
    if force and out is None:
        raise InputError("force = True must go with out, a folder; without one nothing is replaced")
    found = resolve(scenario)
    shown = in_notebook() if progress is None else progress
    with progress_bar(found.duration_ns, quiet=not shown) as tell:
        return run_replicated(
            found,
            replications,
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
            progress=progress,
        )
        result.folder = folder
        result.scenario_text = dump(scenario, absolute=True)
        result.summary["question"] = scenario.question
        result.summary["answer"] = scenario.answer
        result.summary["thresholds"] = _judged(judge(scenario, result))
        result.summary.update(extra(result) if extra is not None else {})
        if folder is not None:
            from simulator.report import write_report  # noqa: PLC0415 # reason: charts load only where a page is written

            result.write_to(folder)
            write_report(folder)
    result.folder = out
    return result


def run_replicated(  # noqa: PLR0913 # reason: what a command has as flags
    scenario: Scenario,
    replications: int,
    *,
    fidelity: Fidelity,
    seed: int | None = None,
    warm_up_ns: int | None = None,
    check: bool = True,
    out: Path | None = None,
    columns: Sequence[str] | None = None,
    force: bool = False,
    progress: Progress | None = None,
    told: Callable[[int], None] | None = None,
    command: Sequence[str] | None = None,
) -> Result:
    """Play a scenario under several seeds; the rows and files are those of the first.

    told: hears how many of the runs after the first are done. command: what repeats this run.
    """
    if replications > 1 and columns is not None:
        raise InputError(
            f"columns = {','.join(columns)} must be left out with replications; intervals are of"
            " metrics that need every column"
        )
    if out is not None:
        check_out(out, force=force)
    seed = seed_in_force(scenario, seed)
    others: list[Replication] = []
    if replications > 1:
        with replicator() as player:
            others = player.play(
                scenario,
                range(seed + 1, seed + replications),
                fidelity=fidelity,
                warm_up_ns=warm_up_ns,
                check=check,
                told=told,
            )

    def extra(result: Result) -> dict[str, Any]:
        found: dict[str, Any] = {} if command is None else {"command": list(command)}
        if others:
            runs = [replication_of(result, scenario), *others]
            found["replications"] = _replications(scenario, runs)
        return found

    return run_once(
        scenario,
        fidelity=fidelity,
        seed=seed,
        warm_up_ns=warm_up_ns,
        check=check,
        out=out,
        columns=columns,
        force=force,
        progress=progress,
        extra=extra,
    )


def _replications(scenario: Scenario, runs: Sequence[Replication]) -> dict[str, Any]:
    spread = intervals(runs)
    means = {name: each.mean for name, each in spread.items()}
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
        "intervals": {
            name: {"mean": _plain(i.mean), "low": _plain(i.low), "high": _plain(i.high)}
            for name, i in spread.items()
        },
        "thresholds": _judged(judge_lines(scenario, means)),
    }


def _judged(lines: Sequence[ThresholdLine]) -> list[dict[str, Any]]:
    return [{"that": line.that, "value": _plain(line.value), "holds": line.holds} for line in lines]


def judge(scenario: Scenario, result: Result) -> list[ThresholdLine]:
    """Return what became of the scenario's thresholds in a run."""
    values = {
        subject_of(threshold.that): measure_condition(result, threshold.that)
        for threshold in scenario.thresholds
    }
    return judge_lines(scenario, values)


def judge_lines(scenario: Scenario, values: Mapping[str, float]) -> list[ThresholdLine]:
    """Return what becomes of the thresholds where what they are about has these values."""
    return [
        ThresholdLine(
            str(threshold.that),
            values[subject_of(threshold.that)],
            threshold.that.holds(values[subject_of(threshold.that)]),
        )
        for threshold in scenario.thresholds
    ]


def _plain(value: float) -> float | None:
    """Return a value as JSON has it: NaN is null."""
    return None if value != value else value  # noqa: PLR0124 # reason: NaN alone differs from itself
