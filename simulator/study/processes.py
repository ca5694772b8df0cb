"""Processes that end with the one that started them, however that one came to its end.

They never load the program that started them: a script without a main guard, or one that came
through a pipe, can start them too. A pool's own processes wait for work for ever where whoever
would hand it out was killed.
"""

from __future__ import annotations

import os
import signal
import sys
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock, Thread
from types import ModuleType
from typing import Any, ClassVar

__all__ = ["cores", "end_pool", "process_pool"]


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


def process_pool(count: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of fresh processes, as many as there are cores unless told."""
    return ProcessPoolExecutor(count or cores(), mp_context=_Context(), initializer=_begin)


def end_pool(pool: ProcessPoolExecutor) -> None:
    """End a pool's processes at once; what is under way is lost."""
    processes = list((getattr(pool, "_processes", None) or {}).values())
    pool.shutdown(wait=False, cancel_futures=True)
    for process in processes:
        process.terminate()
    for process in processes:
        process.join()


class _Process(SpawnProcess):
    """A fresh process that is told of no main module, so that it loads none."""

    _starting: ClassVar[Lock] = Lock()

    def start(self) -> None:
        """Start it. What it is sent of this process names an empty main module meanwhile."""
        with self._starting:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process: ClassVar[Any] = _Process

    def get_context(self, method: str | None = None) -> Any:  # noqa: ANN401 # reason: multiprocessing's own signature
        """Return this context, so that a pool does not fall back to another one."""
        return self if method is None else get_context(method)


def _begin() -> None:
    # Ctrl-C is the parent's to answer: processes that heard it too would complain each.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent is gone: then its end of a pipe is, even where it was killed."""
    parent = parent_process()
    assert parent is not None, "a pool's process has a parent"
    parent.join()
    os._exit(1)  # nobody is left to hear more, and what is under way is lost with the pool
