"""A sweep of 200 short runs on two workers against one, and what Dask adds to a task.

The runs are played and written as `simulator sweep` does. A busy machine lends one worker more than
its share and two no more than theirs, so the processor time of both sides stands beside the times:
with two free cores, two workers do 2 w / (w + p) times the work of one, where a run takes a worker
w and whoever hands it out p.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulator.backends.compiled import warm_up
from simulator.sweeping._sweep import _play_into, tasks_of
from simulator.sweeping._tasks import Task, failed_row
from simulator.sweeping._workers import Cluster, LocalPool, Workers, play_all
from tests.benchmarks import _measure
from tests.benchmarks.bench_closed_loop import cl1

_RUNS: Final = 200
_SUBMISSIONS: Final = 50


def _nothing(task: Task) -> dict[str, Any]:
    return failed_row(task, "")


def _metered(folder: Path, task: Task) -> dict[str, Any]:
    began_s = time.process_time()
    return _play_into(folder, task) | {"processor_s": time.process_time() - began_s}


def _timed(
    workers: Workers, tasks: list[Task], play: Callable[[Task], dict[str, Any]]
) -> Callable[[], Callable[[], object]]:
    return lambda: lambda: list(play_all(workers, tasks, play))


def _show_processor_time(two: Workers, tasks: list[Task], folder: Path) -> None:
    began_s = time.process_time()
    rows = list(play_all(two, tasks, partial(_metered, folder)))
    parent_ms = (time.process_time() - began_s) / len(rows) * 1e3
    worker_ms = statistics.median(row["processor_s"] for row in rows) * 1e3
    print(
        f"processor time a run: worker {worker_ms:.2f} ms, parent {parent_ms:.2f} ms; "
        f"two free cores: {2 * worker_ms / (worker_ms + parent_ms):.2f} times one"
    )


def _show_dask(cluster: Workers, tasks: list[Task]) -> None:
    list(play_all(cluster, tasks[:_SUBMISSIONS], _nothing))  # workers import what they need
    began_s = time.perf_counter()
    list(play_all(cluster, tasks, _nothing))
    together_ms = (time.perf_counter() - began_s) / len(tasks) * 1e3
    executor, alone_ms = cluster.executor(), []
    for task in tasks[:_SUBMISSIONS]:
        began_s = time.perf_counter()
        executor.submit(_nothing, task).result()
        alone_ms.append((time.perf_counter() - began_s) * 1e3)
    print(
        f"{_measure.version('distributed')}, two workers: {together_ms:.2f} ms a task that does "
        f"nothing, in a sweep of {len(tasks)}; {statistics.median(alone_ms):.2f} ms there and back "
        "for one alone"
    )


def main(*, big: bool = False) -> None:
    """Print the tables."""
    warm_up(print)
    axes = [{"clients.c.count": 40 + number % 10} for number in range(_RUNS)]
    tasks = tasks_of(cl1(40, 200 if big else 100), axes, 1, 7, "compiled")
    with tempfile.TemporaryDirectory() as name:
        _show_local(tasks, Path(name))
    cluster = Cluster("local", 2)
    try:
        _show_dask(cluster, tasks)
    finally:
        cluster.close()


def _show_local(tasks: list[Task], folder: Path) -> None:
    play = partial(_play_into, folder)
    one, two = LocalPool(1), LocalPool(2)
    try:
        timings = _measure.interleave(
            [
                _measure.Contestant("two local workers", _timed(two, tasks, play), len(tasks)),
                _measure.Contestant("one local worker", _timed(one, tasks, play), len(tasks)),
            ],
            rounds=5,
        )
        _measure.show(f"A sweep of {len(tasks)} runs", "runs", timings)
        _show_processor_time(two, tasks, folder)
    finally:
        one.close()
        two.close()
