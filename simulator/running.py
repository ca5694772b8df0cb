"""Running scenarios: once, or several times under seeds of their own, into a folder or memory.

What it is not: how a scenario is played (`simulator.backends`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from engine.errors import InputError
from engine.files import parse_duration_ns
from simulator.backends import Fidelity, Progress, simulate
from simulator.results import Result, out_folder
from simulator.results.measuring import measure_condition
from simulator.scenario import Scenario, dump, load, loads

__all__ = ["ScenarioLike", "ThresholdLine", "judge", "resolve", "run", "run_once"]

ScenarioLike: TypeAlias = Scenario | str | Path
"""A scenario, the path of its file, the name of a built-in one, or its TOML text."""


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
    if isinstance(scenario, str) and "\n" in scenario:
        return loads(scenario)
    return load(scenario)


def run(  # reason: what a command has as flags
    scenario: ScenarioLike,
    *,
    fidelity: Fidelity = "engine",
    seed: int | None = None,
    warm_up: str | int | None = None,
    check: bool = True,
    out: str | Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
) -> Result:
    """Play a scenario; returns its result.

    scenario: a `Scenario`, a file's path, the name of a built-in one, or TOML text.
    fidelity: `engine` runs every request whole, `limits` decides by the limits alone; the
        decisions are the same, bit for bit.
    seed: the scenario's unless given. warm_up: ns, or a text such as `"1m"`; results leave it out.
    check: run the invariant checkers. out: a folder for the rows, the summary and the report;
        without it the rows stay in memory. force: replace what an earlier run left there.

    Raises `InputError` for a scenario that cannot be, or a folder that cannot be written.

    >>> result = run("management-loop", fidelity="limits")
    >>> result.summary["totals"]["offered"] > 0, result.violations
    (True, ())
    """
    warm_up_ns = parse_duration_ns(warm_up) if isinstance(warm_up, str) else warm_up
    return run_once(
        resolve(scenario),
        fidelity=fidelity,
        seed=seed,
        warm_up_ns=warm_up_ns,
        check=check,
        out=None if out is None else Path(out),
        force=force,
        progress=progress,
    )


def run_once(  # noqa: PLR0913 # reason: what a command has as flags
    scenario: Scenario,
    *,
    fidelity: Fidelity,
    seed: int | None = None,
    warm_up_ns: int | None = None,
    check: bool = True,
    out: Path | None = None,
    force: bool = False,
    progress: Progress | None = None,
    extra: Mapping[str, Any] | None = None,
) -> Result:
    """Play a scenario once; `extra` goes into the summary. The rest as `run` says."""
    place = nullcontext() if out is None else out_folder(out, force=force)
    with place as folder:
        result = simulate(
            scenario,
            seed=seed,
            fidelity=fidelity,
            warm_up_ns=warm_up_ns,
            folder=folder,
            check=check,
            progress=progress,
        )
        result.folder = folder
        result.scenario_text = dump(scenario, absolute=True)
        result.summary.update(extra or {})
        result.summary["question"] = scenario.question
        result.summary["thresholds"] = [
            {"that": line.that, "value": _plain(line.value), "holds": line.holds}
            for line in judge(scenario, [result])
        ]
        if folder is not None:
            from simulator.report import write_report  # noqa: PLC0415 # reason: charts load only where a page is written

            result.write_to(folder)
            write_report(folder)
    result.folder = out
    return result


def judge(scenario: Scenario, results: Sequence[Result]) -> list[ThresholdLine]:
    """Return what became of the scenario's thresholds, by the mean over runs of their values."""
    if not results:
        raise InputError("results = [] must hold at least one run")
    lines = []
    for threshold in scenario.thresholds:
        values = [measure_condition(result, threshold.that) for result in results]
        mean = sum(values) / len(values)
        lines.append(ThresholdLine(str(threshold.that), mean, threshold.that.holds(mean)))
    return lines


def _plain(value: float) -> float | None:
    """Return a value as JSON has it: NaN is null."""
    return None if value != value else value  # noqa: PLR0124 # reason: NaN alone differs from itself
