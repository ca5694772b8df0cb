"""Client-side pacing: from when a client lets its next attempt begin.

A pace is told when attempts begin and what was answered, and says from when the next one may
begin; who waits meanwhile, and in which order, is the backend's. The forms are
`simulator.scenario`'s pacing classes, whose docstrings say what each means.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from engine.files import Rate
from simulator.scenario.clients import AimdPacing, Pacing, TokenBucketPacing
from simulator.traffic.draws import nearest_ns

__all__ = ["Aimd", "Bucket", "Pace", "pace_of"]

_MILLI_NS: Final = 1_000_000_000_000
"""Between attempts at a thousandth of a request a second."""


class Bucket:
    """A token bucket, in exact integers; full at `start_ns`.

    >>> pace = Bucket(TokenBucketPacing(rate=Rate(1, 10), burst=2), 0)
    >>> for _ in range(2):
    ...     pace.began(0)
    >>> pace.due_ns
    10
    """

    __slots__ = ("_burst_ns", "_limit", "_tat", "_window_ns", "due_ns")

    def __init__(self, pacing: TokenBucketPacing, start_ns: int) -> None:
        self._limit, self._window_ns = pacing.rate
        self._burst_ns = (pacing.burst - 1) * self._window_ns
        self._tat = start_ns * self._limit  # theoretical arrival time, times the limit
        self.due_ns = start_ns

    def began(self, now_ns: int) -> None:
        """Take one token at `now_ns`."""
        self._tat = max(self._tat, now_ns * self._limit) + self._window_ns
        self.due_ns = -((self._burst_ns - self._tat) // self._limit)

    def answered(self, *, limited: bool) -> bool:
        """Return whether `due_ns` changed: a bucket does not learn."""
        del limited
        return False


class Aimd:
    """A pace that grows a step with each answer and shrinks with each 429.

    In exact integers: the pace is in thousandths of a request a second, the gap between attempts
    ⌊10¹² / pace⌋ ns.
    """

    __slots__ = ("_floor", "_kept_percent", "_last_ns", "_pace", "_step", "_top", "due_ns")

    def __init__(self, pacing: AimdPacing, start_ns: int) -> None:
        self._floor = _milli(pacing.minimum)
        self._top = max(self._floor, _milli(pacing.maximum))
        self._pace = min(max(_milli(pacing.start), self._floor), self._top)
        self._step = nearest_ns(pacing.increase * 1_000)
        self._kept_percent = 100 - pacing.decrease_percent
        self._last_ns: int | None = None
        self.due_ns = start_ns

    def began(self, now_ns: int) -> None:
        """Note that an attempt began."""
        self._last_ns = now_ns
        self.due_ns = now_ns + _MILLI_NS // self._pace

    def answered(self, *, limited: bool) -> bool:
        """Take in an answer; return whether `due_ns` changed."""
        if limited:
            self._pace = max(self._floor, self._pace * self._kept_percent // 100)
        else:
            self._pace = min(self._top, self._pace + self._step)
        if self._last_ns is None:
            return False
        due_ns = self._last_ns + _MILLI_NS // self._pace
        changed = due_ns != self.due_ns
        self.due_ns = due_ns
        return changed


Pace: TypeAlias = Bucket | Aimd


def pace_of(pacing: Pacing, start_ns: int) -> Pace:
    """Return a fresh pace for a client that starts at `start_ns`."""
    if isinstance(pacing, AimdPacing):
        return Aimd(pacing, start_ns)
    return Bucket(pacing, start_ns)


def _milli(rate: Rate) -> int:
    return max(1, rate[0] * _MILLI_NS // rate[1])
