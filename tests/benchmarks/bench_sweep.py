"""A sweep of 200 short runs on two processes against one, and what Dask adds to a task.

The runs are played and written as `simulator sweep` does, by processes that have started. A busy
machine hides what two processes gain, so the processor time of a run stands below the times.
"""

import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from simulator.play.simulation import warm_up
from simulator.study.runs import PRELOAD
from simulator.study.sweep import SweepTask, _play_into, failed_row, play_task, tasks_of
from simulator.study.workers import Cluster, ProcessWorkers, Workers, play_all
from tests.benchmarks import _measure
from tests.benchmarks.bench_closed_loop import cl1

_RUNS: Final = 200
_SUBMISSIONS: Final = 50


def _nothing(task: SweepTask) -> dict[str, Any]:
    return failed_row(task, "")


def _timed(
    workers: Workers, tasks: list[SweepTask], folder: Path
) -> Callable[[], Callable[[], object]]:
    play = partial(_play_into, folder)
    list(play_all(workers, tasks[:_SUBMISSIONS], play))  # processes start
    return lambda: lambda: list(play_all(workers, tasks, play))


def _show_dask(cluster: Cluster, tasks: list[SweepTask]) -> None:
    list(play_all(cluster, tasks[:_SUBMISSIONS], _nothing))  # workers import what they need
    began_s = time.perf_counter()
    list(play_all(cluster, tasks, _nothing))
    together_ms = (time.perf_counter() - began_s) / len(tasks) * 1e3
    alone_ms = []
    for task in tasks[:_SUBMISSIONS]:
        began_s = time.perf_counter()
        cluster.submit(_nothing, task).result()
        alone_ms.append((time.perf_counter() - began_s) * 1e3)
    print(
        f"{_measure.version('distributed')}, two workers: {together_ms:.2f} ms a task that does "
        f"nothing, in a sweep of {len(tasks)}; {statistics.median(alone_ms):.2f} ms there and back "
        "for one alone"
    )


def main(*, big: bool = False) -> None:
    """Print the tables."""
    warm_up()
    axes = [{"clients.c.count": 40 + number % 10} for number in range(_RUNS)]
    tasks = tasks_of(cl1(40, 200 if big else 100), axes, 1, 7, "compiled")
    with tempfile.TemporaryDirectory() as name:
        _show_local(tasks, Path(name))
    cluster = Cluster("local", 2)
    try:
        _show_dask(cluster, tasks)
    finally:
        cluster.close()


def _show_local(tasks: list[SweepTask], folder: Path) -> None:
    one, two = ProcessWorkers(1, PRELOAD), ProcessWorkers(2, PRELOAD)
    try:
        timings = _measure.interleave(
            [
                _measure.Contestant("two processes", _timed(two, tasks, folder), len(tasks)),
                _measure.Contestant("one process", _timed(one, tasks, folder), len(tasks)),
            ],
            rounds=5,
        )
        _measure.show(f"A sweep of {len(tasks)} runs", "runs", timings)
        began_s = time.process_time()
        for task in tasks:
            play_task(task)
        each_ms = (time.process_time() - began_s) / len(tasks) * 1e3
        print(f"processor time of a run: {each_ms:.2f} ms")
    finally:
        one.close()
        two.close()
