"""The event loop, compiled: what `simulator.play.simpy_driver` plays, over arrays.

Events happen one after the other in the reference's order. Each does what the reference does, step
by step: it draws from the same streams and makes events in the same order, so ties have the same
result. Tests hold both to the same rows, bit for bit; SimPy's processes cannot be compiled, and
what both compute is one source (`simulator.traffic`, `engine.limits.algorithms`). What an attempt
meets outside is in `invocations`.

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

from engine.limits.algorithms import BASE, PLACE
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
from simulator.play.compiled.balancer import begin_flight, choose_node
from simulator.play.compiled.event_queue import free_event, next_event, schedule, schedule_for
from simulator.play.compiled.invocations import (
    call_outside,
    call_row,
    forget_call,
    go_on,
    plan_call,
    time_over,
    woken_by_bell,
)
from simulator.play.compiled.layout import Ints
from simulator.play.compiled.sampling import (
    STREAM_WIDTH,
    asked,
    drawn_ns,
    entry_row,
    next_arrival_ns,
    uniform,
    uploaded,
)
from simulator.play.compiled.state import (
    RawSim,
    block_of,
    client_row,
    combo_row,
    event_row,
    forget_request,
    group_row,
    near_row,
    new_request,
    request_row,
)
from simulator.play.events import ANSWER, FILE, FIRST
from simulator.traffic import arrivals, client_rules, draws

__all__ = ["JIT", "play"]

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
        prefetch(moved(sim.ended, request[at.R_COMBO] * at.ENDED_WIDTH))
        prefetch(moved(sim.streams, client[at.C_SERVICE] * STREAM_WIDTH))
        prefetch(moved(sim.streams, client[at.C_THINK] * STREAM_WIDTH))
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


HAS_TURN: Final = 1 << 40
"""Added to a request whose turn it is already."""

_NEVER: Final = np.int64(1 << 62)

_retry_after_ns = inlined(client_rules.retry_after_ns)
_own_delay_ns = inlined(client_rules.own_delay_ns)
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
        moved(sim.ended, combo * at.ENDED_WIDTH)[at.Q_BEGAN] += 1
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
    """Return the first in a client's line if its turn has come, above `HAS_TURN`.

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
    if _in_time(sim, asking, now_ns) < 0:
        return np.int64(at.NONE)
    return HAS_TURN + asking


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
    return _NEVER if deadline_ns < 0 else request[at.R_BEGAN] + deadline_ns


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
    node = choose_node(sim, combo, now_ns)
    verdict, wait_ns, exact = decide_on_node(sim.limits, now_ns, np.int64(combo[at.O_LANE]), node)
    let_in = verdict == 0 or verdict & 3 == DELAYED
    if let_in != (exact == 0 or exact & 3 == DELAYED) and now_ns >= sim.clock[at.WARM_UP]:
        refused_by = (exact if let_in else verdict) >> 2
        sim.apart[client[at.C_GROUP] * sim.apart_width + refused_by - 1] += 1
    return node, verdict, wait_ns


@inlined
def answer(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Take in the service's answer."""
    answered(sim, request_row(sim, asking)[at.R_CLIENT], now_ns, 0)
    _end_well(sim, asking, now_ns)


@called
def answer_late(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Take in an answer from outside, which may be a failure."""
    request = request_row(sim, asking)
    how = request[at.R_NEXT]
    answered(sim, request[at.R_CLIENT], now_ns, 0)
    if how == at.WELL:
        _end_well(sim, asking, now_ns)
    else:
        _ask_again(sim, asking, now_ns, how, np.int64(0))


@called
def _ask_again(sim: RawSim, asking: Int, now_ns: Int, how: Int, wait_ns: Int) -> None:
    """Try again later, or give up; where neither comes before the stop, stay pending."""
    request = request_row(sim, asking)
    client = client_row(sim, request[at.R_CLIENT])
    group = group_row(sim, client)
    attempt = request[at.R_ATTEMPT]
    if not group[at.G_RETRIES] >> how & 1 or attempt >= group[at.G_ATTEMPTS]:
        _end(sim, asking, now_ns, 0)
        return
    kind, u = group[at.G_RETRY_KIND], 0.0
    if kind >= client_rules.DRAWN:
        u = uniform(sim.streams, client[at.C_RETRY])
    delay_ns = _own_delay_ns(
        kind, group[at.G_BASE], group[at.G_CAP], attempt - 1, request[at.R_DELAY], u
    )
    request[at.R_DELAY] = delay_ns
    if group[at.G_HONOURS] and how == at.LIMITED:
        delay_ns = max(delay_ns, _retry_after_ns(wait_ns))
    at_ns = now_ns + delay_ns
    until_ns = _deadline_ns(sim, request)
    if at_ns >= until_ns:
        if until_ns <= now_ns:
            _end(sim, asking, now_ns, 0)
        elif until_ns < client[at.C_STOP]:
            schedule_for(sim, until_ns, asking, ANSWER, at.DEADLINE)
        return
    if at_ns >= client[at.C_STOP]:
        return
    request[at.R_ATTEMPT] = attempt + 1
    schedule_for(sim, at_ns, asking, attempt + 1, at.RETRY)


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
        ended = moved(sim.ended, request[at.R_COMBO] * at.ENDED_WIDTH)
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
    if group[at.G_PACING] != client_rules.AIMD:
        return
    changed = _take_answer(moved(client, at.C_DUE), moved(group, at.G_RULE), limited)
    if changed and client[at.C_LINE_HEAD] >= 0:
        arm(sim, number, now_ns)


_HERE: Final = Path(__file__).parent
_SPARE_EVENTS: Final = 8
_SPARE_CALLS: Final = 8
_SPARE_FLIGHTS: Final = at.MOST_NODES + 2

_UNCOMPILED: Final = {"__init__.py", "plan.py", "run.py"}

JIT: Final = Jit(
    "compiled simulation",
    (
        *SOURCES,
        *(path for path in _HERE.glob("*.py") if path.name not in _UNCOMPILED),
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
    if not has_lane_room(sim.limits):
        return at.NO_LANES
    if not has_room(sim.limits):
        return at.NO_RINGS
    if clock[at.COMBO_COUNT] >= sim.combo_room:
        return at.NO_COMBOS
    if clock[at.PENDING] + _SPARE_EVENTS >= sim.event_room or clock[at.FREE_REQUEST] < 0:
        return at.NO_PLACES
    if clock[at.CALLS] + _SPARE_CALLS >= sim.call_room or clock[at.LATE_COUNT] >= sim.late_room:
        return at.NO_CALLS
    if clock[at.FLIGHTS] + clock[at.CALLS] + _SPARE_FLIGHTS >= sim.flight_room:
        return at.NO_FLIGHTS
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
    elif kind == at.ANSWER_LATE:
        answer_late(sim, what, now_ns)
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
    while clock[at.PENDING] or clock[at.PARTS_LEFT]:
        short = _short_of(sim)
        if short != at.DONE:
            return int(short)
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
        if asking >= HAS_TURN:
            asking -= HAS_TURN
        elif asking >= 0:
            asking = turn(sim, asking, now_ns)
        if asking >= 0:
            put(sim, asking, now_ns)
    return at.DONE
