"""What a client does with answers: how long it waits before a retry, and how it paces itself.

The forms are `simulator.scenario`'s retry and pacing classes, whose docstrings say what each means;
the backoffs are those of the field (Brooker, "Exponential backoff and jitter", 2015). All of it is
plain functions over whole numbers and rows of them, played as they stand by both drivers.

A pace is told when attempts begin and what was answered, and says from when the next one may
begin; who waits meanwhile, and in which order, is the driver's.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from engine.files import Rate
from simulator.scenario.clients import (
    AimdPacing,
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    Pacing,
    Retry,
    TokenBucketPacing,
)
from simulator.traffic.draws import nearest_ns, uniform_ns

__all__ = [
    "Aimd",
    "Bucket",
    "Pace",
    "attempts_of",
    "draws",
    "own_delay_ns",
    "pace_of",
    "retry_after_ns",
]

_SECOND_NS: Final = 1_000_000_000
_MOST_DOUBLINGS: Final = 62


def attempts_of(retry: Retry) -> int:
    """Return how many attempts a request may have, the first included."""
    return 1 if isinstance(retry, NoRetry) else retry.attempts


def draws(retry: Retry) -> bool:
    """Return whether each delay takes a number from the client's stream."""
    return isinstance(retry, FullJitter | DecorrelatedJitter)


def own_delay_ns(retry: Retry, number: int, last_ns: int, u: float) -> int:
    """Return the delay before retry `number` (0 is the first), without `Retry-After`.

    last_ns: the formula's last value within the request, ignored for the first retry.

    >>> policy = ExponentialRetry(base_ns=100, cap_ns=350)
    >>> [own_delay_ns(policy, n, 0, 0.5) for n in range(4)]
    [100, 200, 350, 350]
    """
    if isinstance(retry, FixedRetry):
        return retry.delay_ns
    assert not isinstance(retry, NoRetry), "who never retries never waits"
    if isinstance(retry, DecorrelatedJitter):
        before_ns = last_ns if number else retry.base_ns
        return min(retry.cap_ns, uniform_ns(u, retry.base_ns, 3 * before_ns))
    doublings = min(number, _MOST_DOUBLINGS)
    full_ns = min(retry.cap_ns, retry.base_ns << doublings)
    return full_ns if isinstance(retry, ExponentialRetry) else uniform_ns(u, 0, full_ns)


def retry_after_ns(wait_ns: int) -> int:
    """Return what the `Retry-After` header says of a wait: whole seconds, rounded up, at least 1.

    >>> retry_after_ns(1), retry_after_ns(1_000_000_001)
    (1000000000, 2000000000)
    """
    return max(1, -(-wait_ns // _SECOND_NS)) * _SECOND_NS


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
