"""Progress of a run: a bar on a terminal and in a notebook, occasional plain lines elsewhere."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Progress: TypeAlias = Callable[[int], None]
"""Called from time to time with the simulated instant, in ns."""
Told: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the name of some work, what is done and the whole (None where it is not known)."""

TELL_EVERY_S: Final = 5.0
"""The shortest time between two plain progress lines."""
_MINUTE_S: Final = 60
_HOUR_S: Final = 3_600
_LONG: Final = 1.5
"""From so many minutes, or hours, on a time is told in them."""


class Due:
    """Says whether a line of progress is due: not too soon after the last one."""

    def __init__(self) -> None:
        self._told_s = time.monotonic()

    def now(self, *, always: bool = False) -> bool:
        """Return whether it is, and count from now if so; always: it is in any case."""
        if not always and time.monotonic() - self._told_s < TELL_EVERY_S:
            return False
        self._told_s = time.monotonic()
        return True


class TimeLeft:
    """Reckons how long some work goes on, from how fast it went since its first report."""

    def __init__(self) -> None:
        self._first: tuple[float, int] | None = None
        self._work: tuple[str, int | None, int] = "", None, 0

    def text(self, done: int, whole: int | None, name: str = "") -> str:
        """Return how long it takes still, as the end of a sentence; empty where nobody knows.

        What was done before the first report, as in a sweep that goes on, says nothing of it, nor
        does other work: one of another name or size, or one that begins anew.
        """
        now_s = time.monotonic()
        if self._work[:2] != (name, whole) or done < self._work[2]:
            self._first = None
        self._work = name, whole, done
        began_s, begin = self._first = self._first or (now_s, done)
        if whole is None or not begin < done < whole:
            return ""
        return f", about {seconds_text((now_s - began_s) * (whole - done) / (done - begin))} left"


def seconds_text(seconds: float) -> str:
    """Return a time in whole seconds, minutes or hours.

    >>> seconds_text(0.2), seconds_text(89), seconds_text(125), seconds_text(7000)
    ('1 s', '89 s', '2 min', '1.9 h')
    """
    if seconds < _LONG * _MINUTE_S:
        return f"{max(1, math.ceil(seconds))} s"
    if seconds < _LONG * _HOUR_S:
        return f"{seconds / _MINUTE_S:.0f} min"
    return f"{seconds / _HOUR_S:.1f} h"


class Interrupted(KeyboardInterrupt):
    """Ctrl-C during a study. result: what is known so far."""

    def __init__(self, result: Any) -> None:  # noqa: ANN401 # reason: what the study finds
        super().__init__("interrupted")
        self.result = result


@contextmanager
def keeps_what_is_known(result: Any) -> Iterator[None]:  # noqa: ANN401 # reason: what the study finds
    """Raise `Interrupted` with what is found so far, where Ctrl-C ends the block."""
    try:
        yield
    except KeyboardInterrupt:
        result.unfinished = "it was interrupted"
        raise Interrupted(result) from None


def tell_line(text: str) -> None:
    """Say on standard error what is taking long, so that silence does not look like a hang."""
    print(f"simulator: {text}", file=sys.stderr, flush=True)  # noqa: T201 # reason: it is what a terminal shows


def in_notebook() -> bool:
    """Return whether this code runs in a notebook's kernel.

    A program that only imports ipykernel, to run notebooks, is none.
    """
    shells = sys.modules.get("IPython")
    shell = None if shells is None else shells.get_ipython()
    return getattr(shell, "kernel", None) is not None


@contextmanager
def progress_shown(
    text: Callable[[int, int | None], str], *columns: str, quiet: bool = False
) -> Iterator[Told | None]:
    """Yield what shows how far work is: a bar where somebody looks, else a line now and then.

    text: makes a line of what is done of the whole. columns: of the bar, as rich formats them;
    `task.fields[left]` is the time left. quiet: show nothing, yield None.
    """
    left = TimeLeft()
    if quiet:
        yield None
    elif in_notebook() or sys.stderr.isatty():
        from rich.console import Console  # noqa: PLC0415 # reason: loads only where a bar is shown
        from rich.progress import Progress as Bar  # noqa: PLC0415 # reason: as above

        console = None if in_notebook() else Console(stderr=True)
        with Bar(*(columns or Bar.get_default_columns()), console=console, transient=True) as bar:
            task = bar.add_task("", total=None, left="")
            yield lambda name, done, whole: bar.update(
                task,
                description=name,
                completed=done,
                total=whole,
                left=left.text(done, whole, name),
            )
    else:
        due = Due()

        def tell(name: str, done: int, whole: int | None) -> None:
            left_text = left.text(done, whole, name)
            if due.now(always=done == whole):
                print(f"{name}: {text(done, whole)}{left_text}", file=sys.stderr, flush=True)  # noqa: T201 # reason: it is what a log shows of long work

        yield tell


@contextmanager
def progress_bar(whole_ns: int, *, quiet: bool = False) -> Iterator[Progress | None]:
    """Yield a callback that shows how much of `whole_ns` is simulated; None to show nothing."""
    with progress_shown(
        lambda now_ns, _: f"{100 * now_ns / whole_ns:.0f} %", quiet=quiet
    ) as update:

        def tell(now_ns: int) -> None:
            if update is not None and now_ns < whole_ns:
                update("simulating", now_ns, whole_ns)

        yield update and tell
