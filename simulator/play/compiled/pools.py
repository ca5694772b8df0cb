"""Instances that code runs in: what `engine.resources.invocation.Pool` does, over arrays.

A *claim* is a call's row: it holds an instance, or waits in its pool's line (RCT-HOT, D-HOT).
"""

from __future__ import annotations

import numpy as np

from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import Int, Pointer
from simulator.play.compiled import layout as at
from simulator.play.compiled.event_queue import schedule
from simulator.play.compiled.state import RawSim

__all__ = ["call_row", "claim", "forget_call", "new_call", "of_service", "release"]


@inlined
def call_row(sim: RawSim, number: Int) -> Pointer:
    """Return a call's row."""
    return moved(sim.calls, np.int64(number) * at.CALL_WIDTH)


@inlined
def _pool_row(sim: RawSim, number: Int) -> Pointer:
    return moved(sim.pools, np.int64(number) * at.POOL_WIDTH)


@inlined
def new_call(sim: RawSim) -> Int:
    """Take a free place for a call, or for an instance that idles."""
    clock = sim.clock
    number = clock[at.FREE_CALL]
    row = call_row(sim, number)
    clock[at.FREE_CALL] = row[at.V_NEXT]
    clock[at.CALLS] += 1
    row[at.V_TIMER] = at.NONE
    row[at.V_BELL] = at.NONE
    return number


@inlined
def forget_call(sim: RawSim, number: Int) -> None:
    """Give a call's place back."""
    row = call_row(sim, number)
    row[at.V_TIMER] = at.NONE
    row[at.V_BELL] = at.NONE
    row[at.V_NEXT] = sim.clock[at.FREE_CALL]
    sim.clock[at.FREE_CALL] = number
    sim.clock[at.CALLS] -= 1


@inlined
def of_service(sim: RawSim, t_ns: Int, kind: Int, call: Int) -> Int:
    """Make an event of the service's own, ordered by when it is made; return its number."""
    number = sim.clock[at.SEQUENCE]
    schedule(sim, t_ns, at.OF_SERVICE, number, kind, call)
    return number


@called
def claim(sim: RawSim, call: Int, now_ns: Int) -> None:
    """Ask for an instance: the call holds one then, or stands in the line."""
    row = call_row(sim, call)
    pool = _pool_row(sim, row[at.V_POOL])
    while pool[at.P_IDLE_FIRST] >= 0:
        first = pool[at.P_IDLE_FIRST]
        if call_row(sim, first)[at.V_UNTIL] > now_ns:
            break
        _unlink(sim, pool, at.P_IDLE_FIRST, first)
        forget_call(sim, first)
    cap = sim.clock[at.INSTANCES]
    row[at.V_BELL] = at.NONE  # drop a late bell of an earlier wait
    row[at.V_HELD] = 1
    row[at.V_LASTING] = 0
    row[at.V_COLD] = 0
    row[at.V_READY] = 1
    if pool[at.P_LASTING]:
        pool[at.P_LASTING] -= 1
        row[at.V_LASTING] = 1
    elif pool[at.P_IDLE_LAST] >= 0:
        latest = pool[at.P_IDLE_LAST]  # the one that would live longest
        _unlink(sim, pool, at.P_IDLE_FIRST, latest)
        forget_call(sim, latest)
    elif cap < 0 or pool[at.P_BUSY] < cap:
        row[at.V_COLD] = 1
        row[at.V_READY] = 0
    else:
        row[at.V_HELD] = 0
        row[at.V_READY] = 0
        _append(sim, pool, at.P_FIRST, call)
        return
    pool[at.P_BUSY] += 1


@called
def release(sim: RawSim, call: Int, now_ns: Int) -> None:
    """Give the instance back, or leave the line; ring for who gets it."""
    row = call_row(sim, call)
    pool = _pool_row(sim, row[at.V_POOL])
    if not row[at.V_HELD]:
        _unlink(sim, pool, at.P_FIRST, call)
        return
    row[at.V_HELD] = 0
    following = pool[at.P_FIRST]
    if following >= 0:
        _unlink(sim, pool, at.P_FIRST, following)
        other = call_row(sim, following)
        other[at.V_HELD] = 1
        other[at.V_LASTING] = row[at.V_LASTING]
        # An instance that has not started is not passed on: the next claim starts its own.
        other[at.V_COLD] = 0 if row[at.V_READY] else 1
        other[at.V_READY] = row[at.V_READY]
        other[at.V_BELL] = of_service(sim, now_ns, at.RUNG, following)
        return
    pool[at.P_BUSY] -= 1
    if row[at.V_LASTING]:
        pool[at.P_LASTING] += 1
    elif row[at.V_READY] and sim.clock[at.KEEP_HOT]:
        idle = new_call(sim)
        call_row(sim, idle)[at.V_UNTIL] = now_ns + sim.clock[at.KEEP_HOT]
        _append(sim, pool, at.P_IDLE_FIRST, idle)


@inlined
def _append(sim: RawSim, pool: Pointer, first: Int, call: Int) -> None:
    """Put a call at the end of a pool's list, whose two ends stand at `first` and after it."""
    row = call_row(sim, call)
    last = pool[first + 1]
    row[at.V_NEXT] = at.NONE
    row[at.V_BEFORE] = last
    pool[first + 1] = call
    if last < 0:
        pool[first] = call
    else:
        call_row(sim, last)[at.V_NEXT] = call


@called
def _unlink(sim: RawSim, pool: Pointer, first: Int, call: Int) -> None:
    """Take a call out of a pool's list."""
    row = call_row(sim, call)
    before, following = row[at.V_BEFORE], row[at.V_NEXT]
    if before < 0:
        pool[first] = following
    else:
        call_row(sim, before)[at.V_NEXT] = following
    if following < 0:
        pool[first + 1] = before
    else:
        call_row(sim, following)[at.V_BEFORE] = before
