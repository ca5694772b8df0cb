"""Pools of instances in which code runs: which one an invocation gets (RCT-HOT, D-HOT).

Each reactor and each transform has a pool of instances. `hot_concurrency` of them (1 by default)
are hot from the start and stay. A claim takes an idle instance; without one it starts another,
cold; beyond `instances_cap` it queues, first come first served. A released instance goes to the
first in the queue. Without a queue a hot instance becomes idle, and a cold-started one dies or
stays idle for `keep_hot_ns`: in [t, t + keep), end excluded.

With a cap and no cold start this is a first-come-first-served queue with c servers (M/M/c for
exponential times).

The rules are plain functions over rows of integers. `InstancePool` interprets them over lists; a
compiled simulation runs the same functions over arrays. Each keeps the queue and the idle instances
itself.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import MutableSequence, Sequence
from typing import TypeAlias

from engine.profile import OutsideProfile
from engine.world import Bell

Line: TypeAlias = MutableSequence[int]

# A pool's row: hot instances that idle, and instances that are busy.
IDLE_HOT, BUSY = range(2)

# A claim's row: whether it has an instance, whether that is one of the hot ones that never die,
# and whether it has started; its holder sets that after a cold start.
HELD, LASTING, READY = range(3)

# What becomes of a claim: it queues, it has an instance, or the one that idled last.
QUEUES, HOLDS, HOLDS_IDLE = range(3)


def claim_instance(pool: Line, claim: Line, is_one_idle: int, cap: int) -> int:
    """Ask for an instance; return what becomes of the claim.

    is_one_idle: whether a cold-started instance idles; of several it gets the one that would live
    longest. cap: how many may be busy, −1 = any number.
    """
    state = HOLDS
    claim[HELD], claim[LASTING], claim[READY] = 1, 0, 1
    if pool[IDLE_HOT]:
        pool[IDLE_HOT] -= 1
        claim[LASTING] = 1
    elif is_one_idle:
        state = HOLDS_IDLE
    elif cap < 0 or pool[BUSY] < cap:
        claim[READY] = 0
    else:
        claim[HELD], claim[READY] = 0, 0
        return QUEUES
    pool[BUSY] += 1
    return state


def pass_on(claim: Sequence[int], following: Line) -> None:
    """Give the instance of a claim to the first in the queue.

    One that has not started is not passed on: the next claim starts its own.
    """
    following[HELD], following[LASTING], following[READY] = 1, claim[LASTING], claim[READY]


def give_back(pool: Line, claim: Sequence[int], keep_hot_ns: int) -> int:
    """Give an instance back where nobody queues; return whether it idles for `keep_hot_ns`."""
    pool[BUSY] -= 1
    if claim[LASTING]:
        pool[IDLE_HOT] += 1
        return 0
    return 1 if claim[READY] and keep_hot_ns else 0


class Claim:
    """One invocation's hold on an instance, or its place in the queue.

    bell: rings when a queued claim gets an instance.
    """

    __slots__ = ("bell", "row")

    def __init__(self) -> None:
        self.bell = Bell()
        self.row = [0, 0, 0]

    @property
    def held(self) -> bool:
        """Whether it has an instance."""
        return self.row[HELD] == 1

    @property
    def cold(self) -> bool:
        """Whether its instance has to start first."""
        return self.held and not self.row[READY]


class InstancePool:
    """The instances of one reactor or transform; safe among threads."""

    __slots__ = ("_cap", "_idle_until_ns", "_keep_hot_ns", "_lock", "_queue", "_row")

    def __init__(self, outside: OutsideProfile) -> None:
        self._cap = -1 if outside.instances_cap is None else outside.instances_cap
        self._keep_hot_ns = outside.keep_hot_ns
        self._row = [outside.hot_instances, 0]
        self._idle_until_ns: deque[int] = deque()  # of cold-started ones, in increasing order
        self._queue: deque[Claim] = deque()
        self._lock = threading.Lock()

    def claim(self, now_ns: int) -> Claim:
        """Ask for an instance: the claim holds one, or stands in the queue."""
        claim = Claim()
        with self._lock:
            while self._idle_until_ns and self._idle_until_ns[0] <= now_ns:
                self._idle_until_ns.popleft()
            state = claim_instance(self._row, claim.row, len(self._idle_until_ns), self._cap)
            if state == QUEUES:
                self._queue.append(claim)
            elif state == HOLDS_IDLE:
                self._idle_until_ns.pop()
        return claim

    def release(self, claim: Claim, now_ns: int) -> None:
        """Give the instance back, or leave the queue."""
        with self._lock:
            if not claim.held:
                self._queue.remove(claim)
                return
            following = self._queue.popleft() if self._queue else None
            if following is not None:
                pass_on(claim.row, following.row)
            elif give_back(self._row, claim.row, self._keep_hot_ns):
                self._idle_until_ns.append(now_ns + self._keep_hot_ns)
        if following is not None:
            following.bell.ring()
