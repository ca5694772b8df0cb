"""Tasks to workers and rows back, whatever happens to a worker.

Behind it is one interface, `concurrent.futures.Executor`: threads of this process for compiled
runs, which release the lock, processes of this machine for runs in Python, or a Dask cluster. A
process that dies takes its task along, and in a local pool all that were under way; the pool is
made anew and those are played again one by one, so that a task which breaks it a second time is
known, and is recorded as failed.
"""

from __future__ import annotations

import logging
import signal
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Executor,
    Future,
    ProcessPoolExecutor,
    ThreadPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from functools import lru_cache
from importlib.util import find_spec
from multiprocessing import resource_tracker
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from engine.errors import InputError
from simulator.play import Fidelity, template_for
from simulator.progress import Stop
from simulator.scenario import Scenario, loads
from simulator.study.processes import cores, end_pool, process_pool
from simulator.study.sweep._tasks import Task, failed_row, play_task

if TYPE_CHECKING:
    from simulator.play.compiled import Template

__all__ = ["Cluster", "LocalPool", "Threads", "Workers", "play_all", "workers_of"]

LOCAL: Final = "local"
_AHEAD: Final = 2
_BREAKS: Final = 2
_BATCH_S: Final = 0.1
"""Tasks that go to a worker together take about as long: seldom handed out, soon come back."""

_DASK: Final = {
    # How often a task may break a worker is counted here, as for local processes.
    "distributed.scheduler.allowed-failures": 0,
    # A worker that died is started again however long it takes; else none might be left.
    "distributed.deploy.lost-worker-timeout": "1h",
}

_Played: TypeAlias = tuple[float, list[dict[str, Any]]]
"""How many seconds some tasks took, and their rows."""


class Workers(Protocol):
    """Whoever plays tasks. count: how many at a time; here: on this machine, with its files.

    play: plays one.
    """

    count: int
    here: bool

    @property
    def play(self) -> Callable[[Task], dict[str, Any]]:
        """Return what plays a task, as it is handed to the executor."""
        ...

    def executor(self) -> Executor:
        """Return the executor, a fresh one after `broken`."""
        ...

    def broken(self) -> None:
        """Note that the executor cannot go on."""
        ...

    def close(self) -> None:
        """Stop at once; what is under way is lost."""
        ...


class Threads:
    """Threads of this process, for compiled runs: as many as there are cores unless told.

    Nothing is loaded or compiled again, and runs of one point share what they can.
    """

    here = True

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()
        self._stop = Stop()
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="sweep")
        self._preparing = Lock()
        self._scenario = lru_cache(self.count + 1)(loads)
        self._template = lru_cache(self.count + 1)(self._shared)

    def executor(self) -> Executor:
        """Return the threads."""
        return self._pool

    def play(self, task: Task) -> dict[str, Any]:
        """Play a task, until `close`."""
        return play_task(task, self._prepare, self._stop)

    def broken(self) -> None:
        """Do nothing: threads do not die."""

    def close(self) -> None:
        """End what is under way, and the threads."""
        self._stop.set()
        self._pool.shutdown(cancel_futures=True)

    def _prepare(self, task: Task) -> tuple[Scenario, Template | None]:
        with self._preparing:  # one thread prepares what others wait for
            scenario = self._scenario(task.scenario)
            # A template pays from the second run of a point on.
            return scenario, self._template(task.scenario) if task.replication else None

    def _shared(self, text: str) -> Template | None:
        return template_for(self._scenario(text))


class LocalPool:
    """Processes of this machine, as many as it has cores unless told."""

    here = True
    play = staticmethod(play_task)

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()
        self._pool: ProcessPoolExecutor | None = None

    def executor(self) -> Executor:
        """Return the pool; it starts its processes when it is first handed a task."""
        if self._pool is None:
            self._pool = process_pool(self.count)
        return self._pool

    def broken(self) -> None:
        """Forget the pool; the next one is fresh."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    def close(self) -> None:
        """End the processes."""
        pool, self._pool = self._pool, None
        if pool is not None:
            end_pool(pool)


class Cluster:
    """A Dask cluster: one of this machine (`local`), or one by its address."""

    here = False
    play = staticmethod(play_task)

    def __init__(self, scheduler: str, count: int | None = None) -> None:
        check_scheduler(scheduler)
        import dask as _dask  # noqa: PLC0415 # reason: an optional dependency
        import distributed as _distributed  # noqa: PLC0415 # reason: as above

        dask: Any = _dask
        distributed: Any = _distributed
        self._cluster: Any = None
        self._settings = ExitStack()
        try:
            if scheduler == LOCAL:
                self._settings.enter_context(dask.config.set(_DASK))
                self._cluster = _local_cluster(distributed, count)
            self._client = distributed.Client(self._cluster or scheduler, timeout="10s")
        except (OSError, ValueError) as fault:
            self._settings.close()
            raise InputError(
                f"--scheduler = {scheduler!r} must be local or a scheduler's address that "
                f"answers; {fault}"
            ) from None
        self.count = max(1, sum(self._client.nthreads().values()))
        self._executor = self._client.get_executor(retries=0, pure=False)

    def executor(self) -> Executor:
        """Return Dask's executor; the cluster replaces its workers itself."""
        found: Executor = self._executor
        return found

    def broken(self) -> None:
        """Do nothing: Dask starts another worker."""

    def close(self) -> None:
        """Leave the cluster; end it where it is this machine's own."""
        self._client.close()
        if self._cluster is not None:
            self._cluster.close()
        self._settings.close()


def _local_cluster(distributed: Any, count: int | None) -> Any:  # noqa: ANN401 # reason: Dask has no types
    # What breaks a worker is said in the task's row, so that Dask need not.
    with _deaf():
        return distributed.LocalCluster(
            n_workers=count or cores(),
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )


def check_scheduler(scheduler: str | None) -> None:
    """Raise `InputError` where a scheduler is asked for and Dask is not installed."""
    if scheduler is not None and None in map(find_spec, ("dask", "distributed")):
        raise InputError(f"--scheduler = {scheduler!r} must have Dask; install tollgate[dask]")


def workers_of(
    scheduler: str | None, count: int | None = None, fidelity: Fidelity = "limits"
) -> Workers:
    """Return the workers that a command asks for. Raises `InputError` where there are none."""
    if count is not None and scheduler not in {None, LOCAL}:
        raise InputError(
            f"--workers = {count} must be left out; {scheduler} has the workers that it has"
        )
    if scheduler is not None:
        return Cluster(scheduler, count)
    return Threads(count) if fidelity == "compiled" else LocalPool(count)


def play_all(
    workers: Workers,
    tasks: Sequence[Task],
    play: Callable[[Task], dict[str, Any]] = play_task,
) -> Iterator[dict[str, Any]]:
    """Yield each task's row, in order of arrival.

    Short tasks travel several at a time, so that handing them out costs little beside them.
    """
    waiting = deque(tasks)
    suspects: deque[Task] = deque()
    breaks: dict[tuple[int, int], int] = {}
    under_way: dict[Future[_Played], Sequence[Task]] = {}
    each_s = _BATCH_S
    while waiting or suspects or under_way:
        if suspects:
            if not under_way:
                _submit(workers, play, [suspects.popleft()], under_way)
        else:
            while waiting and len(under_way) < _AHEAD * workers.count:
                size = _batch_size(each_s, len(waiting), workers.count)
                batch = [waiting.popleft() for _ in range(size)]
                _submit(workers, play, batch, under_way)
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            batch = list(under_way.pop(future))
            fault = _fault(future)
            if fault is None:
                taken_s, rows = future.result()
                each_s = taken_s / len(rows)
                yield from rows
                continue
            if isinstance(fault, BrokenProcessPool | CancelledError):
                workers.broken()
            for task in batch:
                number = breaks[_known(task)] = breaks.get(_known(task), 0) + 1
                if number < _BREAKS:
                    suspects.append(task)
                else:
                    why = f"its worker died {number} times ({type(fault).__name__})"
                    yield failed_row(task, why)


def _batch_size(each_s: float, waiting: int, count: int) -> int:
    """Return how many tasks go together: `_BATCH_S` of them, fewer towards the end."""
    fair = waiting // (_AHEAD * count)
    return max(1, min(fair, int(_BATCH_S / max(each_s, 1e-4))))


def _play_some(play: Callable[[Task], dict[str, Any]], tasks: Sequence[Task]) -> _Played:
    """Play tasks one after the other: what a worker runs."""
    began_s = time.perf_counter()
    rows = [play(task) for task in tasks]
    return time.perf_counter() - began_s, rows


def _known(task: Task) -> tuple[int, int]:
    return task.point, task.replication


def _submit(
    workers: Workers,
    play: Callable[[Task], dict[str, Any]],
    tasks: Sequence[Task],
    under_way: dict[Future[_Played], Sequence[Task]],
) -> None:
    if isinstance(workers, Threads):
        under_way[workers.executor().submit(_play_some, play, tasks)] = tasks
        return
    with _deaf():
        try:
            future = workers.executor().submit(_play_some, play, tasks)
        except BrokenProcessPool:  # it broke between two tasks
            workers.broken()
            future = workers.executor().submit(_play_some, play, tasks)
    under_way[future] = tasks


@contextmanager
def _deaf() -> Iterator[None]:
    """Start processes and threads that never hear Ctrl-C: it is for the parent to answer.

    They inherit what is blocked here, from their first instant; the parent hears it afterwards.
    """
    resource_tracker.ensure_running()  # it would unblock the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _fault(future: Future[_Played]) -> BaseException | None:
    with suppress(CancelledError):
        return future.exception()
    return CancelledError()
