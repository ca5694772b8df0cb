"""Workers that play runs at the same time: processes of this machine, or a Dask cluster.

Processes of this machine are forks of a server that has loaded the simulator once (`forkserver`);
where the system has none, each process loads it (`spawn`). They end with the process that started
them, even if it is killed. They never load the program that started them: a script without a main
guard, or one that came through a pipe, can start them too.

A worker that dies takes its tasks along, and in a local pool all that were under way. The pool is
made anew, and those are played again one by one; a task that breaks it a second time is given up.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from abc import ABC, abstractmethod
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    ProcessPoolExecutor,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import (
    get_all_start_methods,
    get_context,
    parent_process,
    resource_tracker,
)
from threading import Lock, Thread
from types import ModuleType
from typing import Any, Final, ParamSpec, TypeVar

from engine.errors import InputError

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")

LOCAL: Final = "local"
_AHEAD: Final = 2
_BREAKS: Final = 2
_BATCH_S: Final = 0.1
"""Tasks sent together take about this long: few messages, and results come back soon."""
_DASK: Final = {
    # How often a task may break a worker is counted here, as for local processes.
    "distributed.scheduler.allowed-failures": 0,
    # A worker that died is started again however long it takes; else none might be left.
    "distributed.deploy.lost-worker-timeout": "1h",
}


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Workers(ABC):
    """What plays runs at the same time. here: whether it shares this machine's files."""

    here = True

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()

    @abstractmethod
    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a worker call a function."""

    def broken(self) -> None:  # noqa: B027 # reason: a cluster replaces its workers
        """Note that workers died, so that the next call has fresh ones."""

    @abstractmethod
    def close(self) -> None:
        """End the workers at once; what is under way is lost."""


class ProcessWorkers(Workers):
    """Processes of this machine; they start with the first call.

    preload: the modules that the server of the processes loads.
    """

    def __init__(self, count: int | None = None, preload: Sequence[str] = ()) -> None:
        super().__init__(count)
        self._preload = list(preload)
        self._pool: ProcessPoolExecutor | None = None

    @property
    def are_started(self) -> bool:
        """Whether there are processes, so that another call is cheap."""
        return self._pool is not None

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a process call a function."""
        with interrupts_blocked(), _main_hidden():
            try:
                return self._started().submit(call, *args, **kwargs)
            except BrokenProcessPool:  # it broke between two calls
                self.broken()
                return self._started().submit(call, *args, **kwargs)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            has_server = "forkserver" in get_all_start_methods()
            context = get_context("forkserver" if has_server else "spawn")
            if has_server:
                context.set_forkserver_preload(self._preload)
            self._pool = ProcessPoolExecutor(self.count, mp_context=context, initializer=_begin)
        return self._pool

    def broken(self) -> None:
        """Forget the pool; the next one is fresh."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    def close(self) -> None:
        """End the processes at once; what is under way is lost."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self.broken()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in the processes and threads started here; the parent handles it.

    They inherit the blocked signal when they start; the parent receives it after the block.
    """
    if sys.platform == "win32":  # it has no signals to block
        yield
        return
    resource_tracker.ensure_running()  # it would unblock the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_hiding: Final = Lock()


@contextmanager
def _main_hidden() -> Iterator[None]:
    """Keep the processes started here from loading the main module of this one."""
    with _hiding:
        main = sys.modules["__main__"]
        sys.modules["__main__"] = ModuleType("__main__")
        try:
            yield
        finally:
            sys.modules["__main__"] = main


def _begin() -> None:
    # Only the parent handles Ctrl-C; otherwise each process would print an error.
    # The server of the processes may have started before, under another mask.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if sys.platform != "win32":
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent has ended, even by a kill, and then end this process."""
    parent = parent_process()
    assert parent is not None, "a pool's process has a parent"
    parent.join()
    os._exit(1)  # the parent is gone; work in progress is lost with the pool


class Cluster(Workers):
    """A Dask cluster: one of this machine (`local`), or one by its address."""

    here = False

    def __init__(self, scheduler: str, count: int | None = None) -> None:
        check_scheduler(scheduler)
        import dask as _dask  # noqa: PLC0415 # reason: an optional dependency
        import distributed as _distributed  # noqa: PLC0415 # reason: as above

        dask: Any = _dask
        distributed: Any = _distributed
        cluster: Any = None
        self._own = ExitStack()
        try:
            if scheduler == LOCAL:
                self._own.enter_context(dask.config.set(_DASK))
                cluster = _local_cluster(distributed, count)
                self._own.callback(cluster.close)
            self._client = distributed.Client(cluster or scheduler, timeout="10s")
        except (OSError, ValueError) as fault:
            self._own.close()
            raise InputError(
                f"--scheduler = {scheduler!r} must be local or a scheduler's address that "
                f"answers; {fault}"
            ) from None
        self.count = max(1, sum(self._client.nthreads().values()))
        self._executor = self._client.get_executor(retries=0, pure=False)

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a worker call a function; the cluster replaces workers that die."""
        with interrupts_blocked():
            future: Future[R] = self._executor.submit(call, *args, **kwargs)
        return future

    def close(self) -> None:
        """Leave the cluster; end it where it is this machine's own."""
        self._client.close()
        self._own.close()


def _local_cluster(distributed: Any, count: int | None) -> Any:  # noqa: ANN401 # reason: Dask has no types
    # The task's row reports what broke a worker, so Dask's own messages are off.
    with interrupts_blocked():
        return distributed.LocalCluster(
            n_workers=count or cores(),
            threads_per_worker=1,
            dashboard_address="127.0.0.1:0",
            silence_logs=logging.CRITICAL,
        )


def check_scheduler(scheduler: str | None) -> None:
    """Raise `InputError` where a scheduler is asked for and Dask is not installed."""
    if scheduler is not None and None in map(find_spec, ("dask", "distributed")):
        raise InputError(f"--scheduler = {scheduler!r} must have Dask; install tollgate[dask]")


def workers_of(
    scheduler: str | None, count: int | None = None, preload: Sequence[str] = ()
) -> Workers:
    """Return the workers that a command asks for. Raises `InputError` where there are none."""
    if count is not None and scheduler not in {None, LOCAL}:
        raise InputError(
            f"--workers = {count} must be left out; {scheduler} has the workers that it has"
        )
    return ProcessWorkers(count, preload) if scheduler is None else Cluster(scheduler, count)


@dataclass(frozen=True, slots=True)
class Lost:
    """A task that has no result, and why."""

    why: str


def play_all(
    workers: Workers, tasks: Sequence[T], play: Callable[[T], R], task_s: float = _BATCH_S
) -> Iterator[tuple[int, R | Lost]]:
    """Yield the place of each task and its result, in order of arrival.

    Short tasks travel several at a time, so that handing them out costs little beside them.
    task_s: how long a task takes, as far as known.
    """
    waiting = deque(range(len(tasks)))
    suspects: deque[int] = deque()
    breaks: Counter[int] = Counter()
    under_way: dict[Future[tuple[float, list[R]]], list[int]] = {}

    def next_batch() -> list[int]:
        """Return the tasks to send now, none where workers have enough."""
        if suspects:
            return [] if under_way else [suspects.popleft()]
        if len(under_way) == _AHEAD * workers.count:
            return []
        size = min(len(waiting), _batch_size(task_s, len(waiting), workers.count))
        return [waiting.popleft() for _ in range(size)]

    while waiting or suspects or under_way:
        while batch := next_batch():
            under_way[workers.submit(_play_some, play, [tasks[place] for place in batch])] = batch
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            batch = under_way.pop(future)
            fault = _fault(future)
            if fault is None:
                taken_s, results = future.result()
                task_s = taken_s / len(results)
                yield from zip(batch, results, strict=True)
                continue
            if isinstance(fault, BrokenProcessPool | CancelledError):
                workers.broken()
            breaks.update(batch)
            suspects.extend(place for place in batch if breaks[place] < _BREAKS)
            why = f"its worker died {_BREAKS} times ({type(fault).__name__})"
            yield from ((place, Lost(why)) for place in batch if breaks[place] == _BREAKS)


def _batch_size(task_s: float, waiting: int, count: int) -> int:
    """Return how many tasks go together: `_BATCH_S` of them, fewer towards the end."""
    fair = waiting // (_AHEAD * count)
    return max(1, min(fair, int(_BATCH_S / max(task_s, 1e-4))))


def _play_some(play: Callable[[T], R], tasks: Sequence[T]) -> tuple[float, list[R]]:
    began_s = time.perf_counter()
    results = [play(task) for task in tasks]
    return time.perf_counter() - began_s, results


def _fault(future: Future[Any]) -> BaseException | None:
    with suppress(CancelledError):
        return future.exception()
    return CancelledError()
