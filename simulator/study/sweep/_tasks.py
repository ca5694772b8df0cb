"""One run of a sweep, as a worker gets it and as it comes back."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from simulator.play import Fidelity, simulate
from simulator.progress import Progress
from simulator.scenario import Scenario, loads
from simulator.study.replications import line_of
from simulator.study.sweep._space import Point

if TYPE_CHECKING:
    from simulator.play.compiled import Template

__all__ = ["Task", "failed_row", "play_task"]


@dataclass(frozen=True, slots=True)
class Task:
    """point: its number in the sweep; values: what was set; scenario: its resolved TOML text."""

    point: int
    replication: int
    seed: int
    fidelity: Fidelity
    values: Point
    scenario: str


def play_task(
    task: Task,
    prepare: Callable[[Task], tuple[Scenario, Template | None]] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Play a task; returns its row. A fault of the run is a row that says so.

    prepare: returns the task's scenario, and what runs of it share.
    """
    try:
        scenario, template = prepare(task) if prepare else (loads(task.scenario), None)
        result = simulate(
            scenario,
            seed=task.seed,
            fidelity=task.fidelity,
            check=False,
            progress=progress,
            template=template,
        )
        line = line_of(result, scenario)
    except Exception as fault:  # noqa: BLE001 # reason: one run's fault must not end the others
        return failed_row(task, f"{type(fault).__name__}: {fault}")
    return _head(task) | {"status": "ok", "error": "", "sha256": result.summary["sha256"]} | line


def failed_row(task: Task, error: str) -> dict[str, Any]:
    """Return the row of a task that has no result."""
    return _head(task) | {"status": "failed", "error": error, "sha256": ""}


def _head(task: Task) -> dict[str, Any]:
    return {
        "point": task.point,
        "replication": task.replication,
        "seed": task.seed,
        "fidelity": task.fidelity,
        "values": json.dumps(task.values, sort_keys=True),
        "scenario": task.scenario,
    }
