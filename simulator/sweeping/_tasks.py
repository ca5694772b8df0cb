"""One run of a sweep, as a worker gets it and as it comes back."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from simulator.backends import Fidelity, simulate
from simulator.replicating import line_of
from simulator.scenario import loads
from simulator.sweeping._space import Point

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


def play_task(task: Task) -> dict[str, Any]:
    """Play a task; returns its row. A fault of the run is a row that says so."""
    try:
        scenario = loads(task.scenario)
        result = simulate(scenario, seed=task.seed, fidelity=task.fidelity, check=False)
    except Exception as fault:  # noqa: BLE001 # reason: one run's fault must not end the others
        return failed_row(task, f"{type(fault).__name__}: {fault}")
    row = _head(task) | {"status": "ok", "error": "", "sha256": result.summary["sha256"]}
    return row | line_of(result, scenario)


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
