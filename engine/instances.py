"""Pools of instances in which code runs: which one an invocation gets (RCT-HOT, D-HOT).

Each reactor and each transform has a pool of instances. `hot_concurrency` of them (1 by default)
are hot from the start and stay. A claim takes an idle instance; without one it starts another,
cold; beyond `instances_cap` it queues, first come first served. A released instance goes to the
first in the queue. Without a queue a hot instance becomes idle, and a cold-started one dies or
stays idle for `keep_hot_ns`: in [t, t + keep), end excluded.

With a cap and no cold start this is a first-come-first-served queue with c servers (M/M/c for
exponential times).
"""

from __future__ import annotations

import threading
from collections import deque

from engine.profile import OutsideProfile
from engine.world import Bell


class Claim:
    """One invocation's hold on an instance, or its place in the queue.

    is_held: whether it has an instance. is_lasting: whether that is one of the hot ones that never
    die. is_started: false until a cold instance has started; its holder sets it then.
    bell: rings when a queued claim gets an instance.
    """

    __slots__ = ("bell", "is_held", "is_lasting", "is_started")

    def __init__(self) -> None:
        self.bell = Bell()
        self.is_held = self.is_lasting = self.is_started = False


class InstancePool:
    """The instances of one reactor or transform; safe among threads."""

    __slots__ = ("_busy", "_cap", "_idle_hot", "_idle_until_ns", "_keep_hot_ns", "_lock", "_queue")

    def __init__(self, outside: OutsideProfile) -> None:
        self._cap = outside.instances_cap
        self._keep_hot_ns = outside.keep_hot_ns
        self._idle_hot = outside.hot_instances
        self._busy = 0
        self._idle_until_ns: deque[int] = deque()  # of cold-started ones, in increasing order
        self._queue: deque[Claim] = deque()
        self._lock = threading.Lock()

    def claim(self, now_ns: int) -> Claim:
        """Ask for an instance: the claim holds one, or stands in the queue."""
        claim = Claim()
        with self._lock:
            while self._idle_until_ns and self._idle_until_ns[0] <= now_ns:
                self._idle_until_ns.popleft()
            if self._idle_hot:
                self._idle_hot -= 1
                claim.is_lasting = claim.is_started = True
            elif self._idle_until_ns:
                self._idle_until_ns.pop()  # the one that would live longest
                claim.is_started = True
            elif self._cap is not None and self._busy >= self._cap:
                self._queue.append(claim)
                return claim
            claim.is_held = True
            self._busy += 1
        return claim

    def release(self, claim: Claim, now_ns: int) -> None:
        """Give the instance back, or leave the queue.

        One that has not started is not passed on: the first in the queue starts its own.
        """
        with self._lock:
            if not claim.is_held:
                self._queue.remove(claim)
            elif self._queue:
                following = self._queue.popleft()
                following.is_held = True
                following.is_lasting, following.is_started = claim.is_lasting, claim.is_started
                following.bell.ring()
            else:
                self._busy -= 1
                if claim.is_lasting:
                    self._idle_hot += 1
                elif claim.is_started and self._keep_hot_ns:
                    self._idle_until_ns.append(now_ns + self._keep_hot_ns)
