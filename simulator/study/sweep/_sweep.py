"""A sweep from its axes to its dataset."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pandas as pd

from engine.errors import InputError
from simulator.arguments import FOLDER, FUNCTION, TEXT, one_of, optional, takes, whole
from simulator.play import FIDELITIES, SEED, Fidelity, seed_in_force
from simulator.progress import tell_line
from simulator.scenario import Scenario, dump, with_value
from simulator.study.runs import SCENARIO, ScenarioLike, resolve
from simulator.study.sweep._dataset import done_runs, load_sweep, open_folder, write_row
from simulator.study.sweep._space import AXES, Point, Span, points_of, read_axis, read_sample
from simulator.study.sweep._tasks import Task
from simulator.study.sweep._workers import check_scheduler, play_all, workers_of

__all__ = ["sweep", "tasks_of"]

_WRITTEN: Final = "written"
_SEED: Final = "seed"


@takes(
    scenario=SCENARIO,
    axes=AXES,
    out=FOLDER,
    sample=optional(TEXT),
    replications=whole(1),
    fidelity=one_of(FIDELITIES),
    seed=SEED,
    scheduler=optional(TEXT),
    workers=optional(whole(1), "all cores"),
    progress=optional(FUNCTION),
)
def sweep(  # noqa: PLR0913 # reason: what the command has as flags
    scenario: ScenarioLike,
    axes: Mapping[str, Sequence[Any] | str],
    *,
    out: str | Path,
    sample: str | None = None,
    replications: int = 1,
    fidelity: Fidelity = "compiled",
    seed: int | None = None,
    scheduler: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> pd.DataFrame:
    """Play a scenario at every point of a space, and return the runs as a frame (`load_sweep`).

    axes: path in the scenario → a list of values, or a text as on the command line (`"1,2"`,
    `"10/10s..100/10s"`). sample: `"lhs:N"`, how many points of the ranges. replications: runs a
    point, under seed, seed + 1 and on; an axis `seed` says each point's first. scheduler: `local`
    or the address of a Dask scheduler; without it the cores of this machine. workers: how many;
    all unless given. out: the folder of the dataset; one that holds this sweep goes on where it
    was.

    Raises `InputError` for a space or a folder that cannot be, before anything is played.
    """
    if seed is not None and _SEED in axes and sample is None:
        raise InputError(f"seed = {seed} must be left out; the axis seed says each point's")
    base = resolve(scenario)
    seed = seed_in_force(base, seed)
    spaces: dict[str, Span | Sequence[Any]] = {}
    for path, values in axes.items():
        spaces[path] = read_axis(f"{path}={values}")[1] if isinstance(values, str) else values
    points = points_of(spaces, None if sample is None else read_sample(sample), seed)
    tasks = tasks_of(base, points, replications, seed, fidelity)
    folder = Path(out)
    check_scheduler(scheduler)  # before anything is written
    open_folder(folder, _spec(base, axes, sample, replications, seed, fidelity))
    done = done_runs(folder)
    left = [task for task in tasks if (task.point, task.replication) not in done]
    if progress is not None:
        progress(len(tasks) - len(left), len(tasks))
    if left:
        _play(left, folder, scheduler, workers, len(tasks), progress)
    return load_sweep(folder)


def _play(  # reason: the parts of a sweep under way
    left: Sequence[Task],
    folder: Path,
    scheduler: str | None,
    workers: int | None,
    count: int,
    progress: Callable[[int, int], None] | None,
) -> None:
    if left[0].fidelity == "compiled":
        from simulator.play.compiled import warm_up  # noqa: PLC0415 # reason: numba loads where it is asked for

        warm_up(tell_line)  # here, so that workers find it compiled
    with closing(workers_of(scheduler, workers, left[0].fidelity)) as hands:
        play = partial(_play_into, folder.absolute(), hands.play) if hands.here else hands.play
        for number, row in enumerate(play_all(hands, left, play), count - len(left) + 1):
            if not row.pop(_WRITTEN, False):
                write_row(folder, row)
            if progress is not None:
                progress(number, count)


def _play_into(folder: Path, play: Callable[[Task], dict[str, Any]], task: Task) -> dict[str, Any]:
    """Play a task and write its row, where the worker has the sweep's own disk."""
    row = play(task)
    # What it cannot write, whoever started the sweep tries again and hears why.
    with suppress(OSError):
        write_row(folder, row)
        row[_WRITTEN] = True
    return row


def tasks_of(
    base: Scenario, points: Sequence[Point], replications: int, seed: int, fidelity: Fidelity
) -> list[Task]:
    """Return the runs of a sweep. Raises `InputError` for a point that is no scenario."""
    tasks = []
    for number, values in enumerate(points):
        scenario = base
        for path, value in values.items():
            scenario = with_value(scenario, path, value)
        if fidelity == "compiled":
            from simulator.play.compiled import cannot_play  # noqa: PLC0415 # reason: as above

            if reason := cannot_play(scenario):
                raise InputError(f"fidelity = 'compiled' is limits alone, and {reason}")
        text = dump(scenario, absolute=True)
        first = scenario.seed if _SEED in values else seed
        tasks += [
            Task(number, replication, first + replication, fidelity, values, text)
            for replication in range(replications)
        ]
    return tasks


def _spec(  # reason: all that makes a sweep this one
    base: Scenario,
    axes: Mapping[str, Sequence[Any] | str],
    sample: str | None,
    replications: int,
    seed: int,
    fidelity: Fidelity,
) -> dict[str, Any]:
    text = dump(base, absolute=True)
    return {
        "format": 1,
        "scenario": base.name,
        "scenario_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "axes": {
            path: values if isinstance(values, str) else list(values)
            for path, values in axes.items()
        },
        "sample": sample,
        "replications": replications,
        "seed": seed,
        "fidelity": fidelity,
    }
