"""Instances: where reactor and transform code runs, hot or from a cold start (RCT-HOT, D-HOT).

Each reactor and each transform has a pool. Some instances of it are hot from the beginning
(`hot_concurrency`, 1) and stay. A claim that finds an idle instance gets it at once; one that finds
none starts another, cold, and one beyond `instances_cap` queues, first come first served. When an
instance is given back, the first in the queue gets it as it is; else a hot one idles, and a
cold-started one dies, or idles for `keep_hot_ns` more: in [t, t + keep), not at its end.

With a cap and no cold start this is a first-come-first-served queue with c servers (M/M/c for
exponential times).

The pool only assigns instances; `engine.resources.invoking` waits. Instances live in the process
and are lost on restart.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from engine.profile import OutsideProfile
from engine.resources.services import Services
from engine.world import Bell

__all__ = ["Claim", "Pool", "drop_pool", "pool_of"]

_NAME_START: Final = "instances/"


class Claim:
    """One invocation's hold on an instance, or its place in the queue.

    held: it has an instance. cold: that instance has to start first. lasting: it is one of the hot
    ones that never die. ready: it has started; set by the holder after a cold start. bell: rings
    when a queued claim gets an instance.
    """

    __slots__ = ("bell", "cold", "held", "lasting", "ready")

    def __init__(self) -> None:
        self.bell = Bell()
        self.held = False
        self.cold = False
        self.lasting = False
        self.ready = False

    def take(self, *, cold: bool, lasting: bool) -> None:
        """Get an instance."""
        self.held, self.cold, self.lasting, self.ready = True, cold, lasting, not cold


class Pool:
    """The instances of one reactor or transform; safe among threads.

    Of `hot_concurrency` never more are hot than `instances_cap` allows.
    """

    __slots__ = (
        "_busy",
        "_cap",
        "_idle_lasting",
        "_idle_until_ns",
        "_keep_hot_ns",
        "_lock",
        "_queue",
    )

    def __init__(self, outside: OutsideProfile) -> None:
        self._cap = outside.instances_cap
        self._keep_hot_ns = outside.keep_hot_ns
        hot = outside.hot_concurrency
        self._idle_lasting = hot if self._cap is None else min(hot, self._cap)
        self._idle_until_ns: deque[int] = deque()  # of the other idle ones, in increasing order
        self._busy = 0
        self._queue: deque[Claim] = deque()
        self._lock = threading.Lock()

    def claim(self, now_ns: int) -> Claim:
        """Ask for an instance: the claim holds one, or stands in the queue."""
        claim = Claim()
        with self._lock:
            while self._idle_until_ns and self._idle_until_ns[0] <= now_ns:
                self._idle_until_ns.popleft()
            if self._idle_lasting:
                self._idle_lasting -= 1
                claim.take(cold=False, lasting=True)
            elif self._idle_until_ns:
                self._idle_until_ns.pop()  # the one that would live longest
                claim.take(cold=False, lasting=False)
            elif self._cap is None or self._busy < self._cap:
                claim.take(cold=True, lasting=False)
            else:
                self._queue.append(claim)
                return claim
            self._busy += 1
        return claim

    def release(self, claim: Claim, now_ns: int) -> None:
        """Give the instance back, or leave the queue."""
        with self._lock:
            if not claim.held:
                self._queue.remove(claim)
                return
            following = self._queue.popleft() if self._queue else None
            if following is not None:
                # An instance that has not started is not passed on: the next claim starts its own.
                following.take(cold=not claim.ready, lasting=claim.lasting)
            else:
                self._busy -= 1
                if claim.lasting:
                    self._idle_lasting += 1
                elif claim.ready and self._keep_hot_ns:
                    self._idle_until_ns.append(now_ns + self._keep_hot_ns)
        if following is not None:
            following.bell.ring()


def pool_of(services: Services, name: str) -> Pool:
    """Return the pool of that name; it is there from its first use, with its hot instances idle."""
    pool: Pool = services.running.get(_NAME_START + name) or services.running.setdefault(
        _NAME_START + name, Pool(services.profile.outside)
    )
    return pool


def drop_pool(services: Services, name: str) -> None:
    """Forget the pool of what was deleted; running invocations go on."""
    services.running.pop(_NAME_START + name, None)
