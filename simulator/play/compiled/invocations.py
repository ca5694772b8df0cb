"""What an admitted attempt does behind a proxy or in a reactor, and its instances, over arrays.

`simulator.play.outside` plays this with the engine's own coroutines
(`engine.resources.invocation`, its `Pool`, the world's model of a
destination). Here a call is a row that goes through stages in the coroutine's order, each of which
ends with a sleep. A sleep of 0 ns is left out, as in the coroutine (RCT-HOT, RCT-TIMEOUT,
PRX-TIMEOUT, D-HOT, D-REACTOR-TIMEOUT, D-PROXY-TIMEOUT). A *claim* is a call's row: it holds an
instance, or waits in its pool's line.

Two implementations, for speed: a coroutine of the engine cannot be compiled. The tests of drawn
scenarios hold them together, row by row (`tests/simulator/compiled/test_same_decisions.py`).
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import Int, Pointer
from simulator.play.compiled import layout as at
from simulator.play.compiled.balancer import end_flight
from simulator.play.compiled.event_queue import schedule, schedule_for
from simulator.play.compiled.sampling import drawn_ns, uniform
from simulator.play.compiled.state import RawSim, request_row
from simulator.play.events import ANSWER

__all__ = [
    "call_outside",
    "call_row",
    "forget_call",
    "go_on",
    "plan_call",
    "time_over",
    "woken_by_bell",
]


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


# Parts of a call, in order.
_REQUEST: Final = 0
_DESTINATION: Final = 1
_RESPONSE: Final = 2
_END: Final = 3

# Where in its part a call is: each but the first is what a sleep comes back to.
_BEGINS, _CLAIMED, _STARTED, _RAN, _CALLED = range(5)

# What comes of a stage, where it is not how the call ended.
_GOES_ON: Final = -1
_SLEEPS: Final = -2


@inlined
def behind_row(sim: RawSim, number: Int) -> Pointer:
    """Return what is behind a proxy or a reactor."""
    return moved(sim.behind, np.int64(number) * at.BEHIND_WIDTH)


@called
def plan_call(sim: RawSim, number: Int, streams: Int) -> Int:
    """Draw what the outside will do to an attempt, and return the call's number.

    streams: where the client's streams of this outside begin.
    """
    call = new_call(sim)
    row, behind = call_row(sim, call), behind_row(sim, number)
    row[at.V_BEHIND] = number
    row[at.V_DESTINATION] = _drawn(sim, behind[at.B_DESTINATION], streams)
    row[at.V_REACHABLE] = 1
    if behind[at.B_SHARE] >= 0:
        reached = uniform(sim.streams, streams + 1) >= sim.tables[behind[at.B_SHARE]]
        row[at.V_REACHABLE] = 1 if reached else 0
    row[at.V_REQUEST] = _drawn(sim, behind[at.B_REQUEST], streams + 2)
    row[at.V_RESPONSE] = _drawn(sim, behind[at.B_RESPONSE], streams + 3)
    return call


@inlined
def _drawn(sim: RawSim, draw: Int, stream: Int) -> Int:
    if draw < 0:
        return np.int64(0)
    return drawn_ns(sim, draw, stream)


@called
def call_outside(
    sim: RawSim, call: Int, asking: Int, row_number: Int, now_ns: Int, wait_ns: Int, service_ns: Int
) -> None:  # reason: what a call is told
    """Begin an admitted attempt's call; it is answered by an event, in any case."""
    row = call_row(sim, call)
    row[at.V_ASKING] = asking
    row[at.V_ROW] = row_number
    row[at.V_BEGAN] = now_ns
    row[at.V_SERVICE] = service_ns
    row[at.V_PART] = _REQUEST
    if behind_row(sim, row[at.V_BEHIND])[at.B_DESTINATION] < 0:
        row[at.V_PART] = _RESPONSE
    row[at.V_STAGE] = _BEGINS
    if wait_ns:
        of_service(sim, now_ns + wait_ns, at.GO_ON, call)
    else:
        go_on(sim, call, now_ns)


@called
def go_on(sim: RawSim, call: Int, now_ns: Int) -> None:
    """Go on until the next sleep, or the end."""
    found: Int = np.int64(_GOES_ON)
    while found == _GOES_ON:
        found = _stage(sim, call, now_ns)
    if found != _SLEEPS:
        _answer(sim, call, now_ns, found)


@called
def _stage(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Run the stage after the last sleep; return the next state, or how the call ended."""
    row = call_row(sim, call)
    stage = row[at.V_STAGE]
    if stage == _BEGINS:
        return _begin_part(sim, call, now_ns)
    if stage == _CALLED:
        if row[at.V_LATE]:
            return np.int64(at.TIMED_OUT)
        return _next_part(row) if row[at.V_REACHABLE] else np.int64(at.UNREACHABLE)
    if stage == _CLAIMED:
        row[at.V_LATE] = 0 if row[at.V_HELD] else 1
    if row[at.V_LATE]:
        release(sim, call, now_ns)
        return np.int64(at.CODE_TIMED_OUT)
    if stage == _CLAIMED:
        return _start(sim, call, now_ns)
    if stage == _STARTED:
        return _run(sim, call, now_ns)
    release(sim, call, now_ns)
    return _next_part(row)


@inlined
def _next_part(row: Pointer) -> Int:
    row[at.V_PART] += 1
    row[at.V_STAGE] = _BEGINS
    return np.int64(_GOES_ON)


@called
def _sleeps(sim: RawSim, call: Int, now_ns: Int, need_ns: Int, left_ns: Int) -> Int:
    """Sleep for the shorter of `need_ns` and `left_ns`, unless it is 0."""
    call_row(sim, call)[at.V_LATE] = 1 if need_ns > left_ns else 0
    for_ns = min(need_ns, left_ns)
    if for_ns > 0:
        of_service(sim, now_ns + for_ns, at.GO_ON, call)
        return np.int64(_SLEEPS)
    return np.int64(_GOES_ON)


@inlined
def _begin_part(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Begin a part: call the destination, or claim an instance where there is code."""
    row = call_row(sim, call)
    part, behind = row[at.V_PART], behind_row(sim, row[at.V_BEHIND])
    if part == _END:
        return np.int64(at.WELL)
    if part == _DESTINATION:
        row[at.V_STAGE] = _CALLED
        return _sleeps(sim, call, now_ns, row[at.V_DESTINATION], sim.clock[at.CALL_TIMEOUT])
    pool = behind[at.B_REQUEST_POOL] if part == _REQUEST else behind[at.B_RESPONSE_POOL]
    if pool < 0:
        return _next_part(row)
    row[at.V_POOL] = pool
    row[at.V_UNTIL] = now_ns + sim.clock[at.CODE_TIMEOUT]
    row[at.V_STAGE] = _CLAIMED
    claim(sim, call, now_ns)
    if row[at.V_HELD]:
        return np.int64(_GOES_ON)
    row[at.V_TIMER] = of_service(sim, row[at.V_UNTIL], at.TIME_OVER, call)
    return np.int64(_SLEEPS)


@inlined
def _start(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Start the instance where it is cold."""
    row = call_row(sim, call)
    row[at.V_STAGE] = _STARTED
    need_ns = sim.clock[at.COLD_START] if row[at.V_COLD] else np.int64(0)
    return _sleeps(sim, call, now_ns, need_ns, row[at.V_UNTIL] - now_ns)


@inlined
def _run(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Run the code."""
    row = call_row(sim, call)
    row[at.V_READY] = 1
    row[at.V_STAGE] = _RAN
    need_ns = row[at.V_REQUEST] if row[at.V_PART] == _REQUEST else row[at.V_RESPONSE]
    return _sleeps(sim, call, now_ns, need_ns, row[at.V_UNTIL] - now_ns)


@called
def _answer(sim: RawSim, call: Int, now_ns: Int, ended: Int) -> None:
    """Record how the attempt ended, and send the answer."""
    clock, row = sim.clock, call_row(sim, call)
    status = clock[at.STATUSES + ended]
    service_ns = row[at.V_SERVICE]
    latency_ns = now_ns + service_ns - row[at.V_BEGAN]
    place = row[at.V_ROW] - clock[at.ROWS_BEFORE]
    if place >= 0:
        sim.rows[at.ROW_WIDTH * place + at.W_LATENCY] = latency_ns
        sim.rows[at.ROW_WIDTH * place + at.W_STATUS] = status
    else:
        late = moved(sim.late, clock[at.LATE_COUNT] * 3)
        late[0] = row[at.V_ROW]
        late[1] = latency_ns
        late[2] = status
        clock[at.LATE_COUNT] += 1
    asking = row[at.V_ASKING]
    request_row(sim, asking)[at.R_NEXT] = ended
    if clock[at.NODES]:
        end_flight(sim, row[at.V_NODE], now_ns + service_ns)
    forget_call(sim, call)
    schedule_for(sim, now_ns + service_ns, asking, ANSWER, at.ANSWER_LATE)


# --- waiting for an instance ----------------------------------------------------------------------


@inlined
def time_over(sim: RawSim, call: Int, made: Int, now_ns: Int) -> None:
    """Wake a call whose wait for an instance has timed out, unless it was woken before."""
    if call_row(sim, call)[at.V_TIMER] == made:
        _wake(sim, call, now_ns)


@inlined
def woken_by_bell(sim: RawSim, call: Int, made: Int, now_ns: Int) -> None:
    """Wake a call that has got an instance, unless its time was over at this very instant."""
    row = call_row(sim, call)
    if row[at.V_BELL] == made and row[at.V_TIMER] >= 0:
        _wake(sim, call, now_ns)


@inlined
def _wake(sim: RawSim, call: Int, now_ns: Int) -> None:
    """Let a call go on at this instant, after the events already scheduled for it."""
    row = call_row(sim, call)
    row[at.V_TIMER] = at.NONE
    row[at.V_BELL] = at.NONE
    of_service(sim, now_ns, at.WOKEN, call)
