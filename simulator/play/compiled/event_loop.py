"""The event loop, compiled: what `simulator.play.simpy_driver` plays, over arrays.

Events happen one after the other in the reference's order. Each does what the reference does, step
by step: it draws from the same streams and makes events in the same order, so ties have the same
result. Tests hold both to the same rows, bit for bit; SimPy's processes cannot be compiled, and
what both compute is one source (`simulator.traffic`, `engine.limits.compiled.algorithms`). The
order of what an admitted attempt does behind a proxy or in a reactor is written twice, for the same
reason. Tests of drawn scenarios compare the two, row by row (`tests/simulator/compiled`).

The loop stops where an array is too small, or the rows are full; its caller makes room and calls
again.

With thousands of clients most of an attempt's time is spent waiting for memory, one cache line
after another, since each address is read from the line before. The next events are known
(`event_queue`), so when one happens, some later ones are prefetched: the farther away, the earlier
in the chain from event to request, client and combo, lane, streams and counters. Results do not
depend on it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engine import instances
from engine.limits import nodes
from engine.limits.compiled.algorithms import BASE, PLACE
from engine.limits.compiled.composition import DELAYED, decide
from engine.limits.compiled.core import EAGER_PLACES, LANE_COUNTERS, LINE_WIDTH, Core
from engine.limits.compiled.jit import Jit, called, inlined, moved, prefetch
from engine.limits.compiled.lookup import (
    SOURCES,
    Int,
    Pointer,
    has_lane_room,
    has_room,
    lane_row,
    line_of,
    raw_of,
)
from engine.limits.compiled.nodes import decide_on_node
from simulator.play.compiled import layout as at
from simulator.play.compiled.event_queue import (
    free_event,
    next_event,
    place_events,
    schedule,
    schedule_for,
)
from simulator.play.compiled.layout import Ints
from simulator.play.compiled.sampling import (
    asked,
    drawn_ns,
    entry_row,
    next_arrival_ns,
    place_combos,
    uniform,
    uploaded,
)
from simulator.play.compiled.state import (
    RawSim,
    behind_row,
    block_of,
    call_row,
    client_row,
    combo_row,
    ended_row,
    event_row,
    forget_request,
    group_row,
    near_row,
    new_request,
    pool_row,
    request_row,
    stream_row,
)
from simulator.play.events import ANSWER, FILE, FIRST
from simulator.traffic import arrivals, client_rules, draws
from simulator.traffic.client_rules import ATTEMPT, ATTEMPTS, KIND

# How many events ahead each prefetch stage looks.
_EVENTS: Final = 11
_REQUESTS: Final = 8
_COMBOS: Final = 6
_LANES: Final = 3
_LINES: Final = 1


@inlined
def look_ahead(sim: RawSim) -> None:
    """Prefetch the data of the next events."""
    clock = sim.clock
    if clock[at.NEAR_COUNT] <= _EVENTS:
        return
    first = clock[at.NEAR_FIRST]
    _look_at_event(sim, near_row(sim, first + _EVENTS))
    asking = near_row(sim, first + _REQUESTS)[at.N_ASKING]
    if asking >= 0:
        request = request_row(sim, asking)
        client = client_row(sim, request[at.R_CLIENT])
        prefetch(combo_row(sim, request[at.R_COMBO]))
        prefetch(ended_row(sim, request[at.R_COMBO]))
        prefetch(stream_row(sim, client[at.C_SERVICE]))
        prefetch(stream_row(sim, client[at.C_THINK]))
    asking = near_row(sim, first + _COMBOS)[at.N_ASKING]
    if asking >= 0:
        combo = combo_row(sim, request_row(sim, asking)[at.R_COMBO])
        prefetch(lane_row(sim.limits, combo[at.O_LANE]))
    asking = near_row(sim, first + _LANES)[at.N_ASKING]
    if asking >= 0:
        counters = _counters(sim, asking)
        for place in range(EAGER_PLACES):
            prefetch(moved(sim.limits.lines, np.int64(counters[place]) * LINE_WIDTH))
    asking = near_row(sim, first + _LINES)[at.N_ASKING]
    if asking >= 0:
        counters = _counters(sim, asking)
        for place in range(EAGER_PLACES):
            line = line_of(sim.limits, counters[place])
            prefetch(moved(sim.limits.ring, line[BASE] + line[PLACE]))


@inlined
def _look_at_event(sim: RawSim, near: Pointer) -> None:
    """Note the request of an event that will make an attempt; prefetch it and its client."""
    event = event_row(sim, near[at.N_NUMBER])
    kind = event[at.E_WHAT] & at.KIND_MASK
    if kind == at.ASK or kind == at.RETRY:  # noqa: PLR1714 # reason: a set is no number to the compiler
        asking = event[at.E_WHAT] >> at.KIND_BITS
        near[at.N_ASKING] = asking
        prefetch(request_row(sim, asking))
        prefetch(client_row(sim, event[at.E_ORDER] >> at.ORDER_BITS))


@inlined
def _counters(sim: RawSim, asking: Int) -> Pointer:
    """Return the counters that a request is charged to."""
    lane = combo_row(sim, request_row(sim, asking)[at.R_COMBO])[at.O_LANE]
    return moved(lane_row(sim.limits, lane), LANE_COUNTERS)


# --- the balancer --------------------------------------------------------------------------------
# Which node a request gets is said in `engine.limits.nodes`; here the end of a request is an event
# of the service's own, and the nodes of names are known beforehand.

_choose_node = inlined(nodes.choose_node)


@called
def choose_node(sim: RawSim, combo: Pointer) -> Int:
    """Return the node of an attempt that arrives now."""
    clock = sim.clock
    balance, u = clock[at.BALANCE], 0.0
    if balance == nodes.BY_NAME:
        return np.int64(combo[at.O_HOME])
    if balance == nodes.AT_RANDOM:
        u = uniform(sim.streams, clock[at.NODE_STREAM])
    clock[at.TURN] += 1
    return np.int64(_choose_node(balance, clock[at.NODES], clock[at.TURN], u, sim.in_flight))


@called
def begin_flight(sim: RawSim, node: Int, end_ns: Int) -> None:
    """Note that a node lets a request in, which is in flight until it ends; −1 = not known yet."""
    sim.in_flight[node] += 1
    if end_ns >= 0:
        end_flight(sim, node, end_ns)


@called
def end_flight(sim: RawSim, node: Int, end_ns: Int) -> None:
    """Say when a request that began is answered; from then on it is not in flight."""
    clock = sim.clock
    if clock[at.BALANCE] != nodes.LEAST_BUSY:
        return
    if end_ns > clock[at.NOW]:
        schedule(sim, end_ns, at.OF_SERVICE, clock[at.SEQUENCE], at.LANDED, node)
    else:
        sim.in_flight[node] -= 1


# --- outside calls and instances -----------------------------------------------------------------
# `simulator.play.outside` plays this with the engine's own coroutines
# (`engine.resources.invocation`, the world's model of a destination); which instance a call gets is
# one source (`engine.instances`). Here a call is a row that goes through stages in the coroutine's
# order, each of which ends with a sleep. A sleep of 0 ns is left out, as in the coroutine (RCT-HOT,
# RCT-TIMEOUT, PRX-TIMEOUT, D-HOT, D-REACTOR-TIMEOUT, D-PROXY-TIMEOUT). A *claim* is a call's row:
# it holds an instance, or waits in its pool's line.

_claim_instance = inlined(instances.claim_instance)
_pass_on = inlined(instances.pass_on)
_give_back = inlined(instances.give_back)


@inlined
def new_call(sim: RawSim) -> Int:
    """Take a free place for a call, or for an instance that idles."""
    clock = sim.clock
    number = clock[at.FREE_CALL]
    row = call_row(sim, number)
    clock[at.FREE_CALL] = row[at.V_NEXT]
    clock[at.CALLS] += 1
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
    pool = pool_row(sim, row[at.V_POOL])
    while pool[at.P_IDLE_FIRST] >= 0:
        first = pool[at.P_IDLE_FIRST]
        if call_row(sim, first)[at.V_UNTIL] > now_ns:
            break
        _unlink_call(sim, pool, at.P_IDLE_FIRST, first)
        forget_call(sim, first)
    row[at.V_BELL] = at.NONE  # drop a late bell of an earlier wait
    latest = pool[at.P_IDLE_LAST]
    found = _claim_instance(pool, moved(row, at.V_HELD), latest >= 0, sim.clock[at.INSTANCES])
    if found == instances.QUEUES:
        _append_call(sim, pool, at.P_FIRST, call)
    elif found == instances.HOLDS_IDLE:
        _unlink_call(sim, pool, at.P_IDLE_FIRST, latest)
        forget_call(sim, latest)


@called
def release(sim: RawSim, call: Int, now_ns: Int) -> None:
    """Give the instance back, or leave the line; ring for who gets it."""
    row = call_row(sim, call)
    pool = pool_row(sim, row[at.V_POOL])
    if not row[at.V_HELD]:
        _unlink_call(sim, pool, at.P_FIRST, call)
        return
    held, following = moved(row, at.V_HELD), pool[at.P_FIRST]
    if following >= 0:
        _unlink_call(sim, pool, at.P_FIRST, following)
        other = call_row(sim, following)
        _pass_on(held, moved(other, at.V_HELD))
        other[at.V_BELL] = of_service(sim, now_ns, at.RUNG, following)
    elif _give_back(pool, held, sim.clock[at.KEEP_HOT]):
        idle = new_call(sim)
        call_row(sim, idle)[at.V_UNTIL] = now_ns + sim.clock[at.KEEP_HOT]
        _append_call(sim, pool, at.P_IDLE_FIRST, idle)


@inlined
def _append_call(sim: RawSim, pool: Pointer, first: Int, call: Int) -> None:
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
def _unlink_call(sim: RawSim, pool: Pointer, first: Int, call: Int) -> None:
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
        _answer_call(sim, call, now_ns, found)


@called
def _stage(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Run the stage after the last sleep; return the next state, or how the call ended."""
    row = call_row(sim, call)
    stage = row[at.V_STAGE]
    if stage == _BEGINS:
        return _begin_call_part(sim, call, now_ns)
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
        return _start_instance(sim, call, now_ns)
    if stage == _STARTED:
        return _run_code(sim, call, now_ns)
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
def _begin_call_part(sim: RawSim, call: Int, now_ns: Int) -> Int:
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
def _start_instance(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Start the instance where it is cold."""
    row = call_row(sim, call)
    row[at.V_STAGE] = _STARTED
    need_ns = sim.clock[at.COLD_START] if not row[at.V_READY] else np.int64(0)
    return _sleeps(sim, call, now_ns, need_ns, row[at.V_UNTIL] - now_ns)


@inlined
def _run_code(sim: RawSim, call: Int, now_ns: Int) -> Int:
    """Run the code."""
    row = call_row(sim, call)
    row[at.V_READY] = 1
    row[at.V_STAGE] = _RAN
    need_ns = row[at.V_REQUEST] if row[at.V_PART] == _REQUEST else row[at.V_RESPONSE]
    return _sleeps(sim, call, now_ns, need_ns, row[at.V_UNTIL] - now_ns)


@called
def _answer_call(sim: RawSim, call: Int, now_ns: Int, ended: Int) -> None:
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
    schedule_for(sim, now_ns + service_ns, asking, ANSWER, at.ANSWER)


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


# --- requests ------------------------------------------------------------------------------------

_own_delay_ns = inlined(client_rules.own_delay_ns)
_retry_after_ns = inlined(client_rules.retry_after_ns)
_goes_on_ns = inlined(client_rules.goes_on_ns)
_begin_attempt = inlined(client_rules.begin_attempt)
_take_answer = inlined(client_rules.take_answer)


@inlined
def begin(sim: RawSim, asking: Int, now_ns: Int) -> Int:
    """Begin a request: draw its combo; return it, or none when its parts must begin first."""
    request = request_row(sim, asking)
    combo = asked(sim, request[at.R_CLIENT])
    _fresh(sim, request, combo, now_ns)
    parts = np.int64(combo_row(sim, combo)[at.O_PARTS])
    if parts <= 1:
        return asking
    sim.clock[at.PARTS_LEFT] = parts
    sim.clock[at.PARTS_OF] = asking
    return np.int64(at.NONE)


@inlined
def _fresh(sim: RawSim, request: Pointer, combo: Int, now_ns: Int) -> None:
    if now_ns >= sim.clock[at.WARM_UP]:
        ended_row(sim, combo)[at.Q_BEGAN] += 1
    request[at.R_BEGAN] = now_ns
    request[at.R_ATTEMPT] = 1
    request[at.R_DELAY] = 0
    request[at.R_COMBO] = combo


@called
def begin_part(sim: RawSim) -> Int:
    """Begin one more part of a split job, the last of all the request itself (ACC-SPLIT)."""
    clock = sim.clock
    asking = clock[at.PARTS_OF]
    clock[at.PARTS_LEFT] -= 1
    if not clock[at.PARTS_LEFT]:
        return asking
    request = request_row(sim, asking)
    client = client_row(sim, request[at.R_CLIENT])
    part = new_request(sim, request[at.R_CLIENT], FILE + client[at.C_FILES])
    client[at.C_FILES] += 1
    request_row(sim, part)[at.R_LANE] = at.PART
    _fresh(sim, request_row(sim, part), request[at.R_COMBO], clock[at.NOW])
    return part


@called
def upload(sim: RawSim, asking: Int, now_ns: Int) -> Int:
    """Begin the upload that follows a job and return it, unless it is too late for it."""
    request = request_row(sim, asking)
    if now_ns < client_row(sim, request[at.R_CLIENT])[at.C_STOP]:
        _fresh(sim, request, uploaded(sim, request[at.R_COMBO]), now_ns)
        return asking
    _leave(sim, asking, now_ns)
    return np.int64(at.NONE)


# --- turns ---------------------------------------------------------------------------------------


@inlined
def turn(sim: RawSim, asking: Int, now_ns: Int) -> Int:
    """Return a request whose turn it is; none where the client's pace does not allow it yet."""
    client = client_row(sim, request_row(sim, asking)[at.R_CLIENT])
    if group_row(sim, client)[at.G_PACING] == client_rules.UNPACED:
        return asking
    return _paced_turn(sim, asking, now_ns)


@called
def _paced_turn(sim: RawSim, asking: Int, now_ns: Int) -> Int:
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    if client[at.C_LINE_HEAD] < 0 and client[at.C_DUE] <= now_ns:
        began(sim, client, now_ns)
        return _in_time(sim, asking, now_ns)
    _append(sim, client, at.C_LINE_HEAD, at.C_LINE_TAIL, asking)
    arm(sim, number, now_ns)
    until_ns = _deadline_ns(sim, request)
    if until_ns < client[at.C_STOP]:
        schedule_for(sim, until_ns, asking, ANSWER, at.LATE_TURN)
    return np.int64(at.NONE)


@inlined
def _append(sim: RawSim, client: Pointer, head: Int, tail: Int, asking: Int) -> None:
    """Put a request at the end of one of its client's lists, whose ends stand at two columns."""
    request_row(sim, asking)[at.R_NEXT] = at.NONE
    if client[head] < 0:
        client[head] = asking
    else:
        request_row(sim, client[tail])[at.R_NEXT] = asking
    client[tail] = asking


@called
def leave_line(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """End a request that has waited in its client's line until its deadline, if it still waits."""
    request = request_row(sim, asking)
    if request[at.R_BEGAN] < 0 or now_ns != _deadline_ns(sim, request):
        return
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    before, waiting = np.int64(at.NONE), client[at.C_LINE_HEAD]
    while waiting >= 0 and waiting != asking:
        before, waiting = waiting, request_row(sim, waiting)[at.R_NEXT]
    if waiting < 0:
        return
    following = request[at.R_NEXT]
    if following < 0:
        client[at.C_LINE_TAIL] = before
    if before >= 0:
        request_row(sim, before)[at.R_NEXT] = following
    else:
        client[at.C_LINE_HEAD] = following
        client[at.C_TIMER] = client[at.C_TIMER_NUMBER] = -1
        if following >= 0:
            arm(sim, number, now_ns)
    _end(sim, asking, now_ns, 0)


@called
def fire(sim: RawSim, number: Int, made: Int, now_ns: Int) -> Int:
    """Return the first in a client's line if its turn has come.

    made: the timer's number; only the last one that was set counts.
    """
    client = client_row(sim, number)
    if made != client[at.C_TIMER_NUMBER]:
        return np.int64(at.NONE)
    client[at.C_TIMER_NUMBER] = -1
    client[at.C_TIMER] = -1
    asking = client[at.C_LINE_HEAD]
    client[at.C_LINE_HEAD] = request_row(sim, asking)[at.R_NEXT]
    began(sim, client, now_ns)
    if client[at.C_LINE_HEAD] >= 0:
        arm(sim, number, now_ns)
    return _in_time(sim, asking, now_ns)


@called
def _in_time(sim: RawSim, asking: Int, now_ns: Int) -> Int:
    """Return a request, unless its client has stopped: then it stays pending."""
    if now_ns < client_row(sim, request_row(sim, asking)[at.R_CLIENT])[at.C_STOP]:
        return asking
    return np.int64(at.NONE)


@inlined
def _deadline_ns(sim: RawSim, request: Pointer) -> Int:
    """Return the instant at which a request may ask no more."""
    deadline_ns = group_row(sim, client_row(sim, request[at.R_CLIENT]))[at.G_DEADLINE]
    return np.int64(arrivals.NEVER_NS) if deadline_ns < 0 else request[at.R_BEGAN] + deadline_ns


# --- attempts and answers ------------------------------------------------------------------------


@called
def put(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Let the limits decide about an attempt, record it, and do what follows."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    group = group_row(sim, client)
    combo = combo_row(sim, request[at.R_COMBO])
    node = np.int64(0)
    if sim.clock[at.NODES]:
        node, verdict, wait_ns = _decide_on_node(sim, client, combo, now_ns)
    else:
        verdict, wait_ns, _, _ = decide(sim.limits, now_ns, np.int64(combo[at.O_LANE]))
    behind = np.int64(combo[at.O_BEHIND])
    call = np.int64(at.NONE)
    if behind >= 0:
        entry = entry_row(sim, group, np.int64(combo[at.O_ENTRY]))
        call = plan_call(sim, behind, client[at.C_BEHIND] + entry[at.M_STREAMS])
    let_in = verdict == 0 or verdict & 3 == DELAYED
    service_ns = np.int64(0)
    if let_in:
        service_ns = drawn_ns(sim, group[at.G_SERVICE], client[at.C_SERVICE])
    latency_ns = wait_ns + service_ns if let_in else np.int64(0)
    row = sim.clock[at.ROWS]
    sim.clock[at.ROWS] = row + 1
    written = moved(sim.rows, row * at.ROW_WIDTH)
    written[at.W_T] = now_ns
    written[at.W_COMBO] = request[at.R_COMBO]
    written[at.W_ATTEMPT] = request[at.R_ATTEMPT]
    written[at.W_VERDICT] = verdict
    written[at.W_WAIT] = wait_ns
    written[at.W_LATENCY] = latency_ns
    written[at.W_STATUS] = at.NONE
    if not let_in:
        if call >= 0:
            forget_call(sim, call)
        answered(sim, number, now_ns, 1)
        _ask_again(sim, asking, now_ns, at.LIMITED, wait_ns)
        return
    if sim.clock[at.NODES]:
        begin_flight(sim, node, now_ns + latency_ns if call < 0 else np.int64(at.NONE))
    if call >= 0:
        written[at.W_LATENCY] = at.NONE
        call_row(sim, call)[at.V_NODE] = node
        row += sim.clock[at.ROWS_BEFORE]
        call_outside(sim, call, asking, row, now_ns, wait_ns, service_ns)
    elif latency_ns and (group[at.G_AWAITS] or combo[at.O_PARTS]):
        request[at.R_NEXT] = at.WELL
        schedule_for(sim, now_ns + latency_ns, asking, ANSWER, at.ANSWER)
    else:
        # No other event can change when the answer comes, so the request is counted in advance.
        answered(sim, number, now_ns, 0)
        _end_well(sim, asking, now_ns + latency_ns)


@called
def _decide_on_node(
    sim: RawSim, client: Pointer, combo: Pointer, now_ns: Int
) -> tuple[Int, Int, Int]:
    """Decide as the node does that the attempt reaches, and count where one counter would not."""
    node = choose_node(sim, combo)
    verdict, wait_ns, exact = decide_on_node(sim.limits, now_ns, np.int64(combo[at.O_LANE]), node)
    let_in = verdict == 0 or verdict & 3 == DELAYED
    if let_in != (exact == 0 or exact & 3 == DELAYED) and now_ns >= sim.clock[at.WARM_UP]:
        refused_by = (exact if let_in else verdict) >> 2
        sim.apart[client[at.C_GROUP] * sim.apart_width + refused_by - 1] += 1
    return node, verdict, wait_ns


@called
def answer(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Take in an answer; one from outside may be a failure."""
    request = request_row(sim, asking)
    how = request[at.R_NEXT]
    answered(sim, request[at.R_CLIENT], now_ns, 0)
    if how == at.WELL:
        _end_well(sim, asking, now_ns)
    else:
        _ask_again(sim, asking, now_ns, how, np.int64(at.NONE))


@called
def _ask_again(sim: RawSim, asking: Int, now_ns: Int, how: Int, wait_ns: Int) -> None:
    """Try again later, or give up; where neither comes before the stop, stay pending."""
    request = request_row(sim, asking)
    client = client_row(sim, request[at.R_CLIENT])
    group = group_row(sim, client)
    rule, tries = moved(group, at.G_RETRY), moved(request, at.R_ATTEMPT)
    if not group[at.G_RETRIES] >> how & 1 or tries[ATTEMPT] >= rule[ATTEMPTS]:
        _end(sim, asking, now_ns, 0)
        return
    u = 0.0
    if rule[KIND] >= client_rules.DRAWN:
        u = uniform(sim.streams, client[at.C_RETRY])
    until_ns = _deadline_ns(sim, request)
    at_ns = _goes_on_ns(rule, tries, wait_ns, now_ns, until_ns, client[at.C_STOP], u)
    if at_ns < until_ns:
        schedule_for(sim, at_ns, asking, tries[ATTEMPT], at.RETRY)
    elif at_ns <= now_ns:
        _end(sim, asking, now_ns, 0)
    elif at_ns < arrivals.NEVER_NS:
        schedule_for(sim, at_ns, asking, ANSWER, at.DEADLINE)


@called
def _end_well(sim: RawSim, asking: Int, answered_ns: Int) -> None:
    """End an admitted request: a success unless late. A job is followed by its upload."""
    request = request_row(sim, asking)
    in_time = 1 if answered_ns < _deadline_ns(sim, request) else 0
    combo = combo_row(sim, request[at.R_COMBO])
    if combo[at.O_PARTS] and combo[at.O_BEHIND] < 0:
        _count(sim, request, answered_ns, in_time)
        schedule_for(sim, answered_ns, asking, FIRST, at.UPLOAD)
    else:
        _end(sim, asking, answered_ns, in_time)


@inlined
def _count(sim: RawSim, request: Pointer, ended_ns: Int, well: Int) -> None:
    """Count a request that ended, if it did so before the run's end."""
    if request[at.R_BEGAN] >= sim.clock[at.WARM_UP] and ended_ns < sim.clock[at.END]:
        ended = ended_row(sim, request[at.R_COMBO])
        ended[at.Q_ENDED] += 1
        ended[at.Q_WELL] += well


@inlined
def _end(sim: RawSim, asking: Int, now_ns: Int, well: Int) -> None:
    """End a request."""
    _count(sim, request_row(sim, asking), now_ns, well)
    _leave(sim, asking, now_ns)


@called
def _leave(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """After a request a closed loop thinks, another takes its place, or it is gone."""
    request = request_row(sim, asking)
    if request[at.R_LANE] >= 0:
        think(sim, asking, now_ns)
        return
    client = client_row(sim, request[at.R_CLIENT])
    group = group_row(sim, client)
    if group[at.G_CONCURRENCY] < 0 or request[at.R_LANE] == at.PART:
        forget_request(sim, asking)
    elif client[at.C_QUEUE_HEAD] >= 0 and now_ns < client[at.C_STOP]:
        following = client[at.C_QUEUE_HEAD]
        client[at.C_QUEUE_HEAD] = request_row(sim, following)[at.R_NEXT]
        forget_request(sim, asking)
        schedule_for(sim, now_ns, following, FIRST, at.WAITED)
    else:
        client[at.C_UNDER_WAY] -= 1
        forget_request(sim, asking)


@inlined
def think(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Let a closed loop think, and ask again then."""
    request = request_row(sim, asking)
    client = client_row(sim, request[at.R_CLIENT])
    stream = client[at.C_THINK] + request[at.R_LANE]
    at_ns = now_ns + drawn_ns(sim, group_row(sim, client)[at.G_THINK], stream)
    if at_ns < client[at.C_STOP]:
        schedule_for(sim, at_ns, asking, FIRST, at.ASK)


@inlined
def began(sim: RawSim, client: Pointer, now_ns: Int) -> None:
    """Note that an attempt of a paced client began."""
    group = group_row(sim, client)
    line, rule = moved(client, at.C_DUE), moved(group, at.G_RULE)
    _begin_attempt(group[at.G_PACING], line, rule, now_ns)


@inlined
def arm(sim: RawSim, number: Int, now_ns: Int) -> None:
    """Set the timer of the first in a client's line."""
    client = client_row(sim, number)
    due_ns = max(client[at.C_DUE], now_ns)
    if due_ns != client[at.C_TIMER]:
        client[at.C_TIMER] = due_ns
        client[at.C_TIMER_NUMBER] = sim.clock[at.SEQUENCE]
        first = request_row(sim, client[at.C_LINE_HEAD])
        order = number << at.ORDER_BITS | first[at.R_ATTEMPT]
        schedule(sim, due_ns, order, first[at.R_SERIAL], at.TIMER, number)


@inlined
def answered(sim: RawSim, number: Int, now_ns: Int, limited: Int) -> None:
    """Give a paced client an answer; waiting attempts may begin earlier, or later."""
    client = client_row(sim, number)
    group = group_row(sim, client)
    line, rule = moved(client, at.C_DUE), moved(group, at.G_RULE)
    if _take_answer(group[at.G_PACING], line, rule, limited) and client[at.C_LINE_HEAD] >= 0:
        arm(sim, number, now_ns)


_HERE: Final = Path(__file__).parent

_UNCOMPILED: Final = {"__init__.py", "plan.py", "run.py"}

JIT: Final = Jit(
    "compiled simulation",
    (
        *SOURCES,
        *(path for path in _HERE.glob("*.py") if path.name not in _UNCOMPILED),
        Path(instances.__file__),
        Path(nodes.__file__),
        Path(draws.__file__),
        Path(arrivals.__file__),
        Path(client_rules.__file__),
    ),
)


@called
def _arrive(sim: RawSim, number: Int) -> Int:
    """Look for an open client's next request; return this one if it may begin, or let it wait."""
    client = client_row(sim, number)
    asking = new_request(sim, number, client[at.C_SERIAL])
    client[at.C_SERIAL] += 1
    _await_arrival(sim, number)
    most = group_row(sim, client)[at.G_CONCURRENCY]
    if most < 0:
        return asking
    if client[at.C_UNDER_WAY] < most:
        client[at.C_UNDER_WAY] += 1
        return asking
    _append(sim, client, at.C_QUEUE_HEAD, at.C_QUEUE_TAIL, asking)
    return np.int64(at.NONE)


@inlined
def _await_arrival(sim: RawSim, number: Int) -> None:
    client = client_row(sim, number)
    at_ns = next_arrival_ns(sim, number)
    if at_ns < client[at.C_STOP]:
        order = number << at.ORDER_BITS | FIRST
        schedule(sim, at_ns, order, client[at.C_SERIAL], at.ARRIVE, number)


@called
def _start(sim: RawSim, clients: Int, loops: Int) -> None:
    """Start every client: requests 0 … loops − 1 are the closed ones' loops, in order."""
    asking = np.int64(0)
    for number in range(clients):
        if not group_row(sim, client_row(sim, number))[at.G_OPEN]:
            while asking < loops and request_row(sim, asking)[at.R_CLIENT] == number:
                think(sim, asking, client_row(sim, number)[at.C_START])
                asking += 1
        else:
            _await_arrival(sim, number)


@inlined
def _short_of(sim: RawSim) -> Int:
    """Return what there is no room for in one more step, DONE where there is room for all."""
    clock = sim.clock
    if clock[at.ROWS] >= sim.row_room:
        return at.FULL
    if not has_lane_room(sim.limits) or not has_room(sim.limits):
        return at.NO_COUNTERS
    if clock[at.COMBO_COUNT] >= sim.combo_room or clock[at.FREE_REQUEST] < 0:
        return at.NO_ROOM
    if clock[at.PENDING] + at.SPARE >= sim.event_room:
        return at.NO_ROOM
    if clock[at.CALLS] + at.SPARE >= sim.call_room or clock[at.LATE_COUNT] >= sim.late_room:
        return at.NO_ROOM
    return at.DONE


@inlined
def _happen(sim: RawSim, now_ns: Int, kind: Int, what: Int, made: Int) -> Int:
    """Let an event happen; return the request that makes an attempt for it, −1 = none.

    made: the number under which the event was made.
    """
    if kind == at.RETRY:
        return what
    if kind <= at.LAST_BEGINNING:
        asking = _arrive(sim, what) if kind == at.ARRIVE else what
        return begin(sim, asking, now_ns) if asking >= 0 else asking
    if kind == at.TIMER:
        return fire(sim, what, made, now_ns)
    if kind == at.UPLOAD:
        return upload(sim, what, now_ns)
    if kind == at.ANSWER:
        answer(sim, what, now_ns)
    elif kind == at.DEADLINE:
        _end(sim, what, now_ns, 0)
    elif kind == at.LATE_TURN:
        leave_line(sim, what, now_ns)
    else:
        _serve(sim, now_ns, kind, what, made)
    return np.int64(at.NONE)


@called
def _serve(sim: RawSim, now_ns: Int, kind: Int, what: Int, made: Int) -> None:
    """Play an event of the service itself."""
    if kind == at.TIME_OVER:
        time_over(sim, what, made, now_ns)
    elif kind == at.RUNG:
        woken_by_bell(sim, what, made, now_ns)
    elif kind == at.LANDED:
        sim.in_flight[what] -= 1
    else:
        go_on(sim, what, now_ns)


@JIT.compiled
def play(words: Ints, core: Core, loops: int) -> int:
    """Play until the end, or until something is too small or full; return which.

    words: the simulation, as `words_of` makes them. loops: how many closed loops there are.
    """
    sim = block_of(words, raw_of(core))
    clock = sim.clock
    if not clock[at.STARTED]:
        clock[at.STARTED] = 1
        _start(sim, sim.client_count, loops)
    if clock[at.GROWN]:
        clock[at.GROWN] = 0
        place_events(sim, clock[at.SHIFT])
        place_combos(sim)
    while clock[at.PENDING] or clock[at.PARTS_LEFT]:
        short = _short_of(sim)
        if short != at.DONE:
            return int(short)
        kind = np.int64(at.ASK)
        if clock[at.PARTS_LEFT]:
            asking = begin_part(sim)
        else:
            number = next_event(sim)
            if clock[at.NEAR_WANTED]:
                look_ahead(sim)
            event = event_row(sim, number)
            what, made = event[at.E_WHAT], event[at.E_SEQUENCE]
            free_event(sim, number)
            kind = what & at.KIND_MASK
            asking = _happen(sim, clock[at.NOW], kind, what >> at.KIND_BITS, made)
        now_ns = clock[at.NOW]
        if asking >= 0 and kind != at.TIMER:
            asking = turn(sim, asking, now_ns)
        if asking >= 0:
            put(sim, asking, now_ns)
    return at.DONE
