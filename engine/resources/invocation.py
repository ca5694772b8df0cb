"""Invoke code in an instance, within 30 s including its start (RCT-HOT, RCT-TIMEOUT).

Both reactors and transforms run here. The world runs the code (`World.run_code`); the engine
evaluates no caller's code.

Code must not:

- take longer than `reactor_timeout_ns`, its cold start and its wait in a queue included
  (D-REACTOR-TIMEOUT): the answer is then `reactor_timeout_status`, sent at that time; taking
  exactly that time is allowed;
- fail, or return what is not JSON: 502, as for a destination with an invalid answer. Its error
  message is not passed on, because it may quote a token's data.

Code runs in an instance, which is hot or needs a cold start (RCT-HOT, D-HOT).

Each reactor and each transform has a pool of instances. `hot_concurrency` of them (1 by default)
are hot from the start and stay. A claim takes an idle instance; without one it starts another,
cold; beyond `instances_cap` it queues, first come first served. A released instance goes to the
first in the queue. Without a queue a hot instance becomes idle, and a cold-started one dies or
stays idle for `keep_hot_ns`: in [t, t + keep), end excluded.

With a cap and no cold start this is a first-come-first-served queue with c servers (M/M/c for
exponential times).

`Pool` only assigns instances; `invoke` waits for them. Instances live in the process and are lost
on restart.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import Final

from engine.errors import DestinationTimeout, DriverError
from engine.messages import Json, Problem
from engine.profile import OutsideProfile, Profile
from engine.resources.context import Services
from engine.tokens import check_value
from engine.world import Bell

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
    """The instances of one reactor or transform; safe among threads."""

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
        self._idle_lasting = outside.hot_instances
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
    """Return the pool of that name; the first call creates it, with its hot instances idle."""
    pool: Pool = services.running.get(_NAME_START + name) or services.running.setdefault(
        _NAME_START + name, Pool(services.profile.outside)
    )
    return pool


def drop_pool(services: Services, name: str) -> None:
    """Forget the pool of what was deleted; running invocations go on."""
    services.running.pop(_NAME_START + name, None)


def check_code(code: str, place: str, profile: Profile) -> None:
    """Raise `Problem` 400 for more characters than code may have (RCT-CODE, D-UNITS).

    Characters are code points. `place`: the JSON Pointer of the code.
    """
    limit = profile.outside.reactor_code_limit
    if len(code) > limit:  # obeys RCT-CODE
        raise Problem(
            400,
            "The code is too long.",
            errors={place: [f"must hold at most {limit} characters"]},
            clause="RCT-CODE",
        )


def seal_code(
    services: Services, tenant_id: str, record_id: str, text: str, purpose: str = "code"
) -> bytes:
    """Return code, or the configuration of code, as it is stored: it may hold passwords."""
    return services.vault.of(tenant_id).seal("/code/", record_id, text.encode(), purpose)


def open_code(
    services: Services, tenant_id: str, record_id: str, sealed: bytes, purpose: str = "code"
) -> str:
    """Return what `seal_code` was given for the same place."""
    return services.vault.of(tenant_id).open("/code/", record_id, sealed, purpose).decode()


def code_fault(what: str) -> Problem:
    """Return the answer to code that failed: 502."""
    return Problem(502, f"The code {what}.", clause="D-STATUSES")


async def invoke(
    services: Services, name: str, code: str, args: Json, configuration: Mapping[str, str]
) -> Json:
    """Return what the code returns; `name` is its pool's. No transaction is open meanwhile.

    Raises `Problem`: `reactor_timeout_status` over the time (RCT-TIMEOUT), 502 where it fails.
    """
    world = services.world
    pool = pool_of(services, name)
    until_ns = world.clock.now_ns + services.profile.outside.reactor_timeout_ns  # obeys RCT-TIMEOUT
    claim = pool.claim(world.clock.now_ns)  # obeys RCT-HOT
    try:
        left_ns = await _instance(services, claim, until_ns)
        result = await world.run_code(code, args, dict(configuration), left_ns)
    except DestinationTimeout:
        raise _timeout(services.profile) from None
    except DriverError:
        raise
    except Exception:  # noqa: BLE001 # reason: whatever code raises is its own fault
        raise code_fault("failed") from None
    finally:
        pool.release(claim, world.clock.now_ns)
    try:
        # Nobody knows yet how large it is.
        return await world.apart(partial(check_value, result), name)
    except Problem:
        raise code_fault("returned what is no JSON") from None


async def _instance(services: Services, claim: Claim, until_ns: int) -> int:
    """Return how many ns are left when the claim's instance is ready.

    Raises `DestinationTimeout` at `until_ns`.
    """
    world = services.world
    if not claim.held:
        await world.sleep_ns(until_ns - world.clock.now_ns, claim.bell)
        if not claim.held:
            raise DestinationTimeout("no instance was free in time")
    if claim.cold:
        cold_start_ns = services.profile.outside.cold_start_ns
        left_ns = until_ns - world.clock.now_ns
        await world.sleep_ns(min(cold_start_ns, left_ns))
        if cold_start_ns > left_ns:
            raise DestinationTimeout("the instance did not start in time")
        claim.ready = True
    left_ns = until_ns - world.clock.now_ns
    if left_ns < 0:  # a real clock may oversleep
        raise DestinationTimeout("the instance came too late")
    return left_ns


def _timeout(profile: Profile) -> Problem:
    limit_ns = profile.outside.reactor_timeout_ns
    return Problem(
        profile.outside.reactor_timeout_status,
        f"The code took longer than {limit_ns / 1_000_000_000:g} s.",
        clause="RCT-TIMEOUT",
    )
