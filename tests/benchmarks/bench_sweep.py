"""A sweep of 200 short runs on two workers against one, and what Dask adds to a task."""

import time
from collections.abc import Callable
from typing import Final

from simulator.backends.compiled import warm_up
from simulator.sweeping._sweep import tasks_of
from simulator.sweeping._tasks import Task, failed_row
from simulator.sweeping._workers import Cluster, LocalPool, Workers, play_all
from tests.benchmarks import _measure
from tests.benchmarks.bench_closed_loop import cl1

_RUNS: Final = 200


def _nothing(task: Task) -> dict[str, object]:
    return failed_row(task, "")


def _timed(workers: Workers, tasks: list[Task]) -> Callable[[], Callable[[], object]]:
    return lambda: lambda: list(play_all(workers, tasks))


def main(*, big: bool = False) -> None:
    """Print the tables."""
    warm_up(print)
    axes = [{"clients.c.count": 40 + number % 10} for number in range(_RUNS)]
    tasks = tasks_of(cl1(40, 200 if big else 100), axes, 1, 7, "compiled")
    one, two = LocalPool(1), LocalPool(2)
    cluster = Cluster("local", 2)
    try:
        timings = _measure.interleave(
            [
                _measure.Contestant("two local workers", _timed(two, tasks), _RUNS),
                _measure.Contestant("one local worker", _timed(one, tasks), _RUNS),
                _measure.Contestant(
                    "Dask, two workers",
                    _timed(cluster, tasks),
                    _RUNS,
                    _measure.version("distributed"),
                ),
            ],
            rounds=3,
        )
        _measure.show(f"A sweep of {_RUNS} runs", "runs", timings)
        began_s = time.perf_counter()
        list(play_all(cluster, tasks, _nothing))
        each_ms = (time.perf_counter() - began_s) / _RUNS * 1e3
        print(f"Dask: {each_ms:.2f} ms a task that does nothing")
    finally:
        for workers in (one, two, cluster):
            workers.close()
