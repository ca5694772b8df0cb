"""Processes that end with the one that started them, however that one came to its end.

A pool's own processes wait for work for ever where whoever would hand it out was killed.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process
from threading import Thread

__all__ = ["process_pool"]


def process_pool(count: int | None = None) -> ProcessPoolExecutor:
    """Return a pool of fresh processes, as many as there are cores unless told."""
    return ProcessPoolExecutor(count, mp_context=get_context("spawn"), initializer=_begin)


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
