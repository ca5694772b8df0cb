"""The line in front of a paced client: its attempts begin one after the other, as its pace allows.

The pace (`simulator.traffic.pacing`) gives the instant from which the next attempt may begin. This
line holds the waiting attempts, first come first served, and wakes the first one then. An answer
that changes the pace moves that instant. An attempt whose deadline passes leaves the line.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Generator

import simpy

from simulator.backends.events import At
from simulator.traffic.pacing import Pace

__all__ = ["PacingLine"]


class PacingLine:
    """Attempts of one client, waiting for their turn."""

    __slots__ = ("_came", "_env", "_pace", "_timer", "_timer_ns", "_waiting")

    def __init__(self, env: simpy.Environment, pace: Pace) -> None:
        self._env = env
        self._pace = pace
        self._waiting: OrderedDict[int, tuple[int, simpy.Event]] = OrderedDict()
        self._came = 0
        self._timer: simpy.Event | None = None
        self._timer_ns = -1

    def turn(
        self, order: int, deadline_ns: int | None, late_order: int
    ) -> Generator[simpy.Event, object, object]:
        """Wait until an attempt may begin, and begin it; false where its deadline came first.

        order, late_order: of the attempt and of its end at the deadline (`order_of`).
        """
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        if not self._waiting and self._pace.due_ns <= now_ns:
            self._pace.began(now_ns)
            return True
        go = self._env.event()
        self._came += 1
        number = self._came
        self._waiting[number] = order, go
        self._arm()
        if deadline_ns is not None:
            late = At(self._env, deadline_ns - now_ns, late_order)
            late.callbacks.append(lambda _: self._leave(number))
        yield go
        return go.value

    def answered(self, *, limited: bool) -> None:
        """Take in an answer; the first in the line may begin earlier, or later, than before."""
        if self._pace.answered(limited=limited) and self._waiting:
            self._arm()

    def _arm(self) -> None:
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        due_ns = max(self._pace.due_ns, now_ns)
        if due_ns != self._timer_ns:
            self._timer_ns = due_ns
            order, _ = self._waiting[self._first()]
            self._timer = timer = At(self._env, due_ns - now_ns, order)
            timer.callbacks.append(self._fire)

    def _first(self) -> int:
        return next(iter(self._waiting))

    def _leave(self, number: int) -> None:
        """Let an attempt go that has waited until its deadline, if it still waits."""
        if number not in self._waiting:
            return
        was_first = number == self._first()
        _, go = self._waiting.pop(number)
        if was_first:
            self._timer, self._timer_ns = None, -1
            if self._waiting:
                self._arm()
        go.succeed(value=False)

    def _fire(self, timer: simpy.Event) -> None:
        if timer is not self._timer:
            return  # the pace or the first in the line has changed; another timer stands for it
        now_ns: int = self._env.now  # type: ignore[assignment] # reason: time is whole here
        self._timer, self._timer_ns = None, -1
        _, (_, go) = self._waiting.popitem(last=False)
        self._pace.began(now_ns)
        go.succeed(value=True)
        if self._waiting:
            self._arm()
