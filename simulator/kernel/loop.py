"""The event loop in compiled code: what `simulator.play.simpy_driver` does, over arrays.

Events happen one after the other in the driver's order. Each draws from the same streams and makes
events in the same order, so ties end alike; tests compare the two row by row. The loop stops where
an array is too small or the rows are full; its caller makes room and calls again.
"""

from __future__ import annotations

import numpy as np

from simulator.kernel import records as at
from simulator.kernel.compiling import called, entry, inlined
from simulator.kernel.deciding import (
    Int,
    Record,
    Records,
    charge_gcra,
    decide,
    has_lane_room,
    has_ring_room,
    is_admitted,
)
from simulator.kernel.drawing import (
    combo_of,
    draw_combo,
    duration_ns,
    next_arrival_ns,
    uniform,
)
from simulator.kernel.records import NONE, Simulation
from simulator.play.outside import FILE, NEVER_NS
from simulator.traffic import draws

_SECOND_NS = 1_000_000_000
_MOST_DOUBLINGS = 62
_MILLI_NS = 1_000_000_000_000
SPARE_EVENTS = 8
"""One step makes fewer events than this."""

# --- the order of events: a binary heap ----------------------------------------------------------


@inlined
def _is_before(event: Record, t_ns: Int, order: Int, serial: Int, tail: Int) -> Int:
    if event.t_ns != t_ns:
        return event.t_ns < t_ns
    if event.order != order:
        return event.order < order
    if event.serial != serial:
        return event.serial < serial
    return event.tail < tail


@inlined
def _put(event: Record, t_ns: Int, order: Int, serial: Int, tail: Int) -> None:
    event.t_ns, event.order, event.serial, event.tail = t_ns, order, serial, tail


@inlined
def schedule(t_ns: Int, order: Int, serial: Int, kind: Int, target: Int, sim: Simulation) -> Int:
    """Make an event; return its number."""
    clock = sim.clock[0]
    number = clock.number
    clock.number += 1
    tail = (number << at.TAIL_BITS) | (np.int64(target) << at.KIND_BITS) | np.int64(kind)
    clock.event_count += 1
    _insert(t_ns, np.int64(order), np.int64(serial), tail, clock.event_count - 1, sim.events)
    return number


@called
def _insert(t_ns: Int, order: Int, serial: Int, tail: Int, hole: Int, events: Records) -> None:
    """Put an event into the heap; `hole` is behind its last place."""
    while hole > 0:
        above = (hole - 1) >> 1
        parent = events[np.uint64(above)]
        if _is_before(parent, t_ns, order, serial, tail):
            break
        _put(events[np.uint64(hole)], parent.t_ns, parent.order, parent.serial, parent.tail)
        hole = above
    _put(events[np.uint64(hole)], t_ns, order, serial, tail)


@inlined
def _remove_first(sim: Simulation) -> None:
    """Take the first event out of the heap.

    Which child is earlier is a number and no branch, which nobody could predict; places are
    unsigned, which saves a test whether they count from the end.
    """
    clock, events = sim.clock[0], sim.events
    clock.event_count -= 1
    size = clock.event_count
    last = events[size]
    t_ns, order, serial, tail = last.t_ns, last.order, last.serial, last.tail
    hole = np.int64(0)
    while 2 * hole + 1 < size:
        child = 2 * hole + 1
        if child + 1 < size:
            left, right = events[np.uint64(child)], events[np.uint64(child + 1)]
            is_right = np.int64(right.t_ns < left.t_ns)
            if right.t_ns == left.t_ns:
                is_right = np.int64(
                    _is_before(right, left.t_ns, left.order, left.serial, left.tail)
                )
            child += is_right
        least = events[np.uint64(child)]
        if not _is_before(least, t_ns, order, serial, tail):
            break
        _put(events[np.uint64(hole)], least.t_ns, least.order, least.serial, least.tail)
        hole = child
    _put(events[np.uint64(hole)], t_ns, order, serial, tail)


@inlined
def _schedule_for(t_ns: Int, number: Int, attempt: Int, kind: Int, sim: Simulation) -> None:
    """Make an event of a request, in the order of an attempt."""
    request = sim.requests[number]
    order = (np.int64(request.client) << at.ORDER_BITS) | np.int64(attempt)
    schedule(t_ns, order, request.serial, kind, number, sim)


# --- requests ------------------------------------------------------------------------------------


@inlined
def _new_request(client: Int, serial: Int, sim: Simulation) -> Int:
    clock = sim.clock[0]
    number = clock.free_request
    request = sim.requests[number]
    clock.free_request = np.int64(request.next)
    request.client, request.serial, request.loop = client, serial, NONE
    return number


@inlined
def _free(number: Int, sim: Simulation) -> None:
    """Give a request's place back."""
    request, clock = sim.requests[number], sim.clock[0]
    request.next, request.serial, request.state = clock.free_request, NONE, at.SENT
    clock.free_request = number


@inlined
def _begin(number: Int, combo: Int, now_ns: Int, sim: Simulation) -> None:
    """Let a request begin: from now on it is pending."""
    request, clock = sim.requests[number], sim.clock[0]
    request.began_ns, request.combo, request.lane = now_ns, combo, sim.combos[combo].lane
    request.attempt, request.delay_ns, request.queued_ns, request.state = 1, 0, 0, at.SENT
    if now_ns >= clock.warm_up_ns:
        clock.began += max(1, sim.combos[combo].parts)


@inlined
def _arrive(number: Int, now_ns: Int, sim: Simulation) -> Int:
    """Draw a request as it arrives; return it where it is sent now."""
    combo = draw_combo(np.int64(sim.requests[number].client), sim)
    _begin(number, combo, now_ns, sim)
    return _send(number, sim)


@inlined
def _send(number: Int, sim: Simulation) -> Int:
    """Return a request that is sent now, or none where its further parts are sent before it."""
    parts = np.int64(sim.combos[sim.requests[number].combo].parts)
    if parts <= 1:
        return np.int64(number)
    sim.clock[0].parts_left, sim.clock[0].parts_of = parts, number
    return NONE


@called
def _next_part(sim: Simulation) -> Int:
    """Return one more part of a split job, the last of all the request itself (ACC-SPLIT)."""
    clock = sim.clock[0]
    number = clock.parts_of
    clock.parts_left -= 1
    if not clock.parts_left:
        return number
    request = sim.requests[number]
    client = sim.clients[request.client]
    part = _new_request(np.int64(request.client), FILE + client.files, sim)
    client.files += 1
    other = sim.requests[part]
    other.loop, other.combo, other.lane = at.PART, request.combo, request.lane
    other.began_ns, other.queued_ns = request.began_ns, request.queued_ns
    other.attempt, other.delay_ns, other.state = 1, 0, at.SENT
    return part


@called
def _arrive_open(number: Int, now_ns: Int, sim: Simulation) -> Int:
    """Take an open client's arrival; return it where it is sent now."""
    client = sim.clients[number]
    group = sim.groups[client.group]
    arrival = _new_request(number, client.serial, sim)
    client.serial += 1
    _await_arrival(number, sim)
    if group.concurrency < 0 or client.under_way < group.concurrency:
        client.under_way += 1
        return _arrive(arrival, now_ns, sim)
    _begin(arrival, draw_combo(number, sim), now_ns, sim)
    request = sim.requests[arrival]
    request.state, request.next = at.WAITING, NONE
    if client.queue_head < 0:
        client.queue_head = arrival
    else:
        sim.requests[client.queue_tail].next = arrival
    client.queue_tail = arrival
    until_ns = _deadline_ns(arrival, sim)
    if until_ns < group.stop_ns:
        _schedule_for(until_ns, arrival, at.ANSWER_ATTEMPT, at.EXPIRE, sim)
    return NONE


@called
def _await_arrival(number: Int, sim: Simulation) -> None:
    t_ns, client = next_arrival_ns(number, sim), sim.clients[number]
    if t_ns < sim.groups[client.group].stop_ns:
        order = (np.int64(number) << at.ORDER_BITS) | at.FIRST_ATTEMPT
        schedule(t_ns, order, client.serial, at.ARRIVE, number, sim)


@called
def _expire(number: Int, order: Int, serial: Int, now_ns: Int, sim: Simulation) -> None:
    """End a request that still waits for a place at its deadline."""
    request = sim.requests[number]
    is_same = request.serial == serial and request.client == order >> at.ORDER_BITS
    if is_same and request.state == at.WAITING:
        request.state = at.EXPIRED
        parts = np.int64(max(1, sim.combos[request.combo].parts))
        _count(number, parts, now_ns, np.int64(0), sim)


@called
def _serve_queue(number: Int, now_ns: Int, sim: Simulation) -> None:
    """Call the oldest request that waits for the place that is free, or leave it free."""
    client = sim.clients[number]
    stop_ns = sim.groups[client.group].stop_ns
    while client.queue_head >= 0 and now_ns < stop_ns:
        oldest = np.int64(client.queue_head)
        client.queue_head = sim.requests[oldest].next
        if sim.requests[oldest].state != at.EXPIRED:
            _schedule_for(now_ns, oldest, at.FIRST_ATTEMPT, at.WAITED, sim)
            return
        _free(oldest, sim)
    client.under_way -= 1


@called
def _take_place(number: Int, now_ns: Int, sim: Simulation) -> Int:
    """Return a request that has waited for its place, unless its deadline came right now."""
    request = sim.requests[number]
    if request.state == at.EXPIRED:
        client = np.int64(request.client)
        _free(number, sim)
        _serve_queue(client, now_ns, sim)
        return NONE
    request.state, request.queued_ns = at.SENT, now_ns - request.began_ns
    return _send(number, sim)


@called
def _upload(number: Int, now_ns: Int, sim: Simulation) -> Int:
    """Return the upload that follows a job, unless it is too late for it."""
    request = sim.requests[number]
    client = np.int64(request.client)
    group = sim.groups[sim.clients[client].group]
    if now_ns >= group.stop_ns:
        return NONE
    job = sim.combos[request.combo]
    entry_of_upload = job.entry + group.mix_count
    combo = combo_of(
        client, np.int64(entry_of_upload), np.int64(job.key), np.int64(job.address), sim
    )
    _begin(number, combo, now_ns, sim)
    return number


@inlined
def _deadline_ns(number: Int, sim: Simulation) -> Int:
    request = sim.requests[number]
    deadline_ns = sim.groups[sim.clients[request.client].group].deadline_ns
    return np.int64(NEVER_NS) if deadline_ns < 0 else request.began_ns + deadline_ns


@inlined
def _count(number: Int, parts: Int, ended_ns: Int, well: Int, sim: Simulation) -> None:
    """Count a request that ended before the run's end."""
    clock = sim.clock[0]
    if sim.requests[number].began_ns >= clock.warm_up_ns and ended_ns < clock.end_ns:
        clock.ended += parts
        clock.well += well


@called
def _fail(number: Int, now_ns: Int, sim: Simulation) -> None:
    """End a request that got no answer in time, or a refusal as its last one."""
    _count(number, np.int64(1), now_ns, np.int64(0), sim)
    _leave(number, now_ns, sim)


@inlined
def _leave(number: Int, now_ns: Int, sim: Simulation) -> None:
    """After a request a closed loop thinks, another takes its place, or it is gone."""
    request = sim.requests[number]
    if request.loop >= 0:
        _think(number, now_ns, sim)
    else:
        _leave_open(number, now_ns, sim)


@called
def _leave_open(number: Int, now_ns: Int, sim: Simulation) -> None:
    client, is_part = np.int64(sim.requests[number].client), sim.requests[number].loop == at.PART
    _free(number, sim)
    if not is_part and sim.groups[sim.clients[client].group].concurrency >= 0:
        _serve_queue(client, now_ns, sim)


@inlined
def _think(number: Int, now_ns: Int, sim: Simulation) -> None:
    """Let a closed loop think, and send its next request then."""
    request = sim.requests[number]
    client = sim.clients[request.client]
    group = sim.groups[client.group]
    think_ns = duration_ns(group.think, client.think + request.loop, sim)
    if now_ns + think_ns < group.stop_ns:
        _schedule_for(now_ns + think_ns, number, at.FIRST_ATTEMPT, at.ASK, sim)


# --- pacing --------------------------------------------------------------------------------------


@inlined
def _is_paced(number: Int, sim: Simulation) -> Int:
    return sim.groups[sim.clients[sim.requests[number].client].group].pace != at.UNPACED


@inlined
def _begin_attempt(client: Record, group: Record, now_ns: Int) -> None:
    """Note that an attempt begins; a bucket gives a token for it."""
    if group.pace == at.AIMD:
        client.last_ns = now_ns
        client.ready = now_ns + _MILLI_NS // client.milli_rate
    else:
        charge_gcra(client, group, now_ns)


@called
def _take_answer(number: Int, now_ns: Int, limited: Int, sim: Simulation) -> None:
    """Raise an AIMD pace, or lower it after a 429; a bucket ignores answers."""
    client = sim.clients[number]
    group = sim.groups[client.group]
    if group.pace != at.AIMD:
        return
    if limited:
        client.milli_rate = max(group.floor, client.milli_rate * group.kept_percent // 100)
    else:
        client.milli_rate = min(group.top, client.milli_rate + group.growth)
    if client.last_ns < 0:
        return
    before_ns, client.ready = client.ready, client.last_ns + _MILLI_NS // client.milli_rate
    if client.ready != before_ns and client.line_head >= 0:
        _set_timer(number, now_ns, sim)


@called
def _set_timer(number: Int, now_ns: Int, sim: Simulation) -> None:
    """Set the timer of the first in a client's line."""
    client = sim.clients[number]
    due_ns = max(client.ready, now_ns)
    if due_ns != client.timer_ns:
        first = sim.requests[client.line_head]
        order = (np.int64(number) << at.ORDER_BITS) | first.attempt
        client.timer_ns = due_ns
        client.timer = schedule(due_ns, order, first.serial, at.TIMER, number, sim)


@called
def _await_turn(number: Int, now_ns: Int, sim: Simulation) -> Int:
    """Return a request whose attempt may begin; else it waits in its client's line."""
    request = sim.requests[number]
    client_number = np.int64(request.client)
    client = sim.clients[client_number]
    group = sim.groups[client.group]
    if client.line_head < 0 and client.ready <= now_ns:
        _begin_attempt(client, group, now_ns)
        return np.int64(number) if now_ns < group.stop_ns else NONE
    request.next = NONE
    if client.line_head < 0:
        client.line_head = number
    else:
        sim.requests[client.line_tail].next = number
    client.line_tail = number
    _set_timer(client_number, now_ns, sim)
    until_ns = _deadline_ns(number, sim)
    if until_ns < group.stop_ns:
        _schedule_for(until_ns, number, at.ANSWER_ATTEMPT, at.LATE_TURN, sim)
    return NONE


@called
def _fire(number: Int, made: Int, now_ns: Int, sim: Simulation) -> Int:
    """Return the first in a client's line, whose turn has come. made: the timer's number."""
    client = sim.clients[number]
    if made != client.timer:
        return NONE
    client.timer = client.timer_ns = -1
    first = np.int64(client.line_head)
    client.line_head = sim.requests[first].next
    group = sim.groups[client.group]
    _begin_attempt(client, group, now_ns)
    if client.line_head >= 0:
        _set_timer(number, now_ns, sim)
    return first if now_ns < group.stop_ns else NONE


@called
def _leave_line(number: Int, serial: Int, now_ns: Int, sim: Simulation) -> None:
    """End a request that waits in its client's line at its deadline."""
    request = sim.requests[number]
    if request.serial != serial or now_ns != _deadline_ns(number, sim):
        return
    client_number = np.int64(request.client)
    client = sim.clients[client_number]
    before, waiting = NONE, np.int64(client.line_head)
    while waiting >= 0 and waiting != number:
        before, waiting = waiting, np.int64(sim.requests[waiting].next)
    if waiting < 0:
        return
    if request.next < 0:
        client.line_tail = before
    if before >= 0:
        sim.requests[before].next = request.next
    else:
        client.line_head = request.next
        client.timer = client.timer_ns = -1
        if client.line_head >= 0:
            _set_timer(client_number, now_ns, sim)
    _fail(number, now_ns, sim)


# --- attempts and answers ------------------------------------------------------------------------


@inlined
def _attempt(number: Int, now_ns: Int, sim: Simulation) -> None:
    """Let the limits decide about an attempt, record it, and do what follows."""
    request, clock = sim.requests[number], sim.clock[0]
    client = sim.clients[request.client]
    group = sim.groups[client.group]
    verdict, wait_ns = decide(now_ns, np.uint32(request.lane), sim.limits)
    row = sim.rows[clock.row_count]
    clock.row_count += 1
    row.t_ns, row.wait_ns, row.latency_ns = now_ns, wait_ns, request.queued_ns
    row.combo, row.attempt, row.verdict = request.combo, request.attempt, verdict
    request.queued_ns = 0
    if not is_admitted(verdict):
        if group.pace != at.UNPACED:
            _take_answer(np.int64(request.client), now_ns, np.int64(1), sim)
        _retry(number, now_ns, wait_ns, sim)
        return
    latency_ns = wait_ns + duration_ns(group.service, np.int64(client.service), sim)
    row.latency_ns += latency_ns
    if latency_ns and (group.awaits or sim.combos[request.combo].parts):
        _schedule_for(now_ns + latency_ns, number, at.ANSWER_ATTEMPT, at.ANSWER, sim)
        return
    # No other event can change when the answer comes, so the request is counted in advance.
    if group.pace != at.UNPACED:
        _take_answer(np.int64(request.client), now_ns, np.int64(0), sim)
    _end_well(number, now_ns + latency_ns, sim)


@inlined
def _end_well(number: Int, answered_ns: Int, sim: Simulation) -> None:
    """End an admitted request: a success unless late. A job is followed by its upload."""
    request = sim.requests[number]
    well = 1 if answered_ns < _deadline_ns(number, sim) else 0
    _count(number, np.int64(1), answered_ns, np.int64(well), sim)
    if sim.combos[request.combo].parts:
        _schedule_for(answered_ns, number, at.FIRST_ATTEMPT, at.UPLOAD, sim)
    else:
        _leave(number, answered_ns, sim)


@called
def _answer(number: Int, now_ns: Int, sim: Simulation) -> None:
    """Take in an answer that its client has waited for."""
    if _is_paced(number, sim):
        _take_answer(np.int64(sim.requests[number].client), now_ns, np.int64(0), sim)
    _end_well(number, now_ns, sim)


@called
def _own_delay_ns(group: Record, request: Record, u: float) -> Int:
    """Return the delay before a retry (`simulator.traffic.attempts`)."""
    if group.delay == at.FIXED_DELAY:
        return group.base_ns
    if group.delay == at.DECORRELATED:
        before_ns = request.delay_ns if request.attempt > 1 else group.base_ns
        return min(group.cap_ns, draws.uniform_ns(u, group.base_ns, 3 * before_ns))
    doublings = min(request.attempt - 1, _MOST_DOUBLINGS)
    full_ns = group.cap_ns
    if group.base_ns <= group.cap_ns >> doublings:
        full_ns = group.base_ns << doublings
    return full_ns if group.delay == at.EXPONENTIAL_DELAY else draws.uniform_ns(u, 0, full_ns)


@inlined
def _retry(number: Int, now_ns: Int, wait_ns: Int, sim: Simulation) -> None:
    """Try again later, or give up; where neither comes before the stop, stay pending."""
    request = sim.requests[number]
    client = sim.clients[request.client]
    group = sim.groups[client.group]
    if not group.retries_limited or request.attempt >= group.attempts:
        _fail(number, now_ns, sim)
        return
    u = uniform(np.int64(client.retry), sim) if group.delay >= at.FULL_JITTER else 0.0
    request.delay_ns = _own_delay_ns(group, request, u)
    at_ns, until_ns = now_ns + request.delay_ns, _deadline_ns(number, sim)
    if group.honours:
        seconds = max(1, (wait_ns + _SECOND_NS - 1) // _SECOND_NS)
        at_ns = max(at_ns, now_ns + seconds * _SECOND_NS)
    if at_ns < until_ns and at_ns < group.stop_ns:
        request.attempt += 1
        _schedule_for(at_ns, number, np.int64(request.attempt), at.RETRY, sim)
    elif until_ns <= now_ns:
        _fail(number, now_ns, sim)
    elif until_ns < group.stop_ns:
        _schedule_for(until_ns, number, at.ANSWER_ATTEMPT, at.DEADLINE, sim)


# --- the loop ------------------------------------------------------------------------------------


@called
def _start(sim: Simulation) -> None:
    """Start every client; the first requests are the closed clients' loops, in order."""
    loop = np.int64(0)
    for number in range(len(sim.clients)):
        client = sim.clients[number]
        if sim.groups[client.group].is_open:
            _await_arrival(number, sim)
            continue
        while loop < len(sim.requests) and sim.requests[loop].client == number:
            if sim.requests[loop].loop < 0:
                break
            _think(loop, np.int64(sim.groups[client.group].start_ns), sim)
            loop += 1


@inlined
def _short_of(sim: Simulation) -> Int:
    """Return what there is no room for in one more step, DONE where there is room for all."""
    clock = sim.clock[0]
    if clock.row_count >= len(sim.rows):
        return at.ROWS_FULL
    if not has_ring_room(sim.limits):
        return at.RINGS_FULL
    if not has_lane_room(sim.limits):
        return at.LANES_FULL
    if clock.combo_count >= len(sim.combos) or clock.free_request < 0:
        return at.ROOM_FULL
    if clock.event_count + SPARE_EVENTS >= len(sim.events):
        return at.ROOM_FULL
    return at.DONE


@inlined
def _happen(  # noqa: C901 # reason: a branch a kind of event
    kind: Int, target: Int, order: Int, serial: Int, made: Int, sim: Simulation
) -> Int:
    """Let an event happen; return the request that makes an attempt for it, −1 = none."""
    now_ns = sim.clock[0].now_ns
    if kind == at.RETRY:
        return target
    if kind == at.ASK:
        return _arrive(target, now_ns, sim)
    if kind == at.ARRIVE:
        return _arrive_open(target, now_ns, sim)
    if kind == at.WAITED:
        return _take_place(target, now_ns, sim)
    if kind == at.TIMER:
        return _fire(target, made, now_ns, sim)
    if kind == at.UPLOAD:
        return _upload(target, now_ns, sim)
    if kind == at.ANSWER:
        _answer(target, now_ns, sim)
    elif kind == at.EXPIRE:
        _expire(target, order, serial, now_ns, sim)
    elif kind == at.LATE_TURN:
        _leave_line(target, serial, now_ns, sim)
    elif kind == at.DEADLINE:
        _fail(target, now_ns, sim)
    return NONE


@inlined
def _target(tail: Int) -> Int:
    """Return what an event is about: a request, or the client of an arrival or a timer."""
    return (tail >> at.KIND_BITS) & ((1 << (at.TAIL_BITS - at.KIND_BITS)) - 1)


@inlined
def _touch_next(sim: Simulation) -> None:
    """Load what the next event most likely needs, beside the work of this one.

    With 20,000 clients their records are in no near cache: CL1 is faster by a fifth.
    """
    event = sim.events[0]
    request, client = sim.requests[_target(event.tail)], sim.clients[event.order >> at.ORDER_BITS]
    counter = sim.limits.counters[sim.limits.lanes[np.uint32(request.lane), 0]]
    sim.clock[0].touched = counter.ready ^ np.int64(sim.streams[client.retry].used)


@entry
def run_events(sim: Simulation) -> int:
    """Run until the end, or until something is too small or full; return which."""
    clock = sim.clock[0]
    if not clock.is_started:
        clock.is_started = 1
        _start(sim)
    while clock.event_count or clock.parts_left:
        short = _short_of(sim)
        if short != at.DONE:
            return int(short)
        kind = np.int64(at.ASK)
        if clock.parts_left:
            number = _next_part(sim)
        else:
            event = sim.events[0]
            clock.now_ns, order, serial, tail = event.t_ns, event.order, event.serial, event.tail
            _remove_first(sim)
            _touch_next(sim)
            kind = tail & ((1 << at.KIND_BITS) - 1)
            number = _happen(kind, _target(tail), order, serial, tail >> at.TAIL_BITS, sim)
        if number >= 0 and kind != at.TIMER and _is_paced(number, sim):
            number = _await_turn(number, clock.now_ns, sim)
        if number >= 0:
            _attempt(number, clock.now_ns, sim)
    return at.DONE
