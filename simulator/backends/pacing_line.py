"""The line in front of a paced client: its attempts begin one after the other, as its pace allows.

The pace (`simulator.traffic.pacing`) says from when the next attempt may begin; this line keeps
who waits, first come first served, and wakes the first one then. An answer that changes the pace
moves that instant.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator

import simpy

from simulator.backends.events import At
from simulator.traffic.pacing import Pace

__all__ = ["PacingLine"]


class PacingLine:
    """Attempts of one client, waiting for their turn."""

    __slots__ = ("_env", "_pace", "_timer_ns", "_waiting")

    def __init__(self, env: simpy.Environment, pace: Pace) -> None:
        self._env = env
        self._pace = pace
        self._waiting: deque[tuple[int, simpy.Event]] = deque()
        self._timer_ns = -1

    def turn(self, order: int) -> Generator[simpy.Event, object, None]:
        """Wait until an attempt may begin, and begin it; `order` as `order_of` gives it."""
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        if not self._waiting and self._pace.due_ns <= now_ns:
            self._pace.began(now_ns)
            return
        go = self._env.event()
        self._waiting.append((order, go))
        self._arm()
        yield go

    def answered(self, *, limited: bool) -> None:
        """Take in an answer; the first in the line may begin earlier, or later, than before."""
        if self._pace.answered(limited=limited) and self._waiting:
            self._arm()

    def _arm(self) -> None:
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        due_ns = max(self._pace.due_ns, now_ns)
        if due_ns != self._timer_ns:
            self._timer_ns = due_ns
            timer = At(self._env, due_ns - now_ns, self._waiting[0][0])
            timer.callbacks.append(self._fire)

    def _fire(self, _: simpy.Event) -> None:
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        if now_ns != self._timer_ns:
            return  # the pace has changed since; another timer stands in this one's place
        self._timer_ns = -1
        if self._pace.due_ns > now_ns:
            self._arm()
            return
        go = self._waiting.popleft()[1]
        self._pace.began(now_ns)
        go.succeed()
        if self._waiting:
            self._arm()
