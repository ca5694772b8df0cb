"""The life of a request: its turn, its attempts, its answer, its end.

Each function is one of the reference's steps (`simulator.play.simpy_driver`), in the same
order: it draws from the same streams and makes events in the same order, so ties have the same
result.
A paced client's line is here too: `simulator.traffic.pacing` and the reference's line, over arrays.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.limits.compiled.composition import DELAYED, decide
from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import Int, Pointer
from simulator.play.compiled import layout as at
from simulator.play.compiled.event_queue import schedule
from simulator.play.compiled.invocations import call_outside, plan_call
from simulator.play.compiled.pools import forget_call
from simulator.play.compiled.sampling import (
    asked,
    drawn_ns,
    entry_row,
    own_delay_ns,
    uploaded,
)
from simulator.play.compiled.state import (
    RawSim,
    client_row,
    combo_row,
    forget_request,
    group_row,
    new_request,
    request_row,
)
from simulator.play.events import FILE
from simulator.traffic import retries

__all__ = [
    "HAS_TURN",
    "answer",
    "answer_late",
    "answered",
    "arm",
    "began",
    "begin",
    "begin_part",
    "fire",
    "give_up",
    "leave_line",
    "put",
    "think",
    "turn",
    "upload",
]

HAS_TURN: Final = 1 << 40
"""Added to a request whose turn it is already."""

_NEVER: Final = np.int64(1 << 62)

_retry_after_ns = inlined(retries.retry_after_ns)


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
    if group_row(sim, client)[at.G_PACING] == at.UNPACED:
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
    request[at.R_NEXT] = at.NONE
    if client[at.C_LINE_HEAD] < 0:
        client[at.C_LINE_HEAD] = asking
    else:
        request_row(sim, client[at.C_LINE_TAIL])[at.R_NEXT] = asking
    client[at.C_LINE_TAIL] = asking
    arm(sim, number, now_ns)
    until_ns = _deadline_ns(sim, request)
    if until_ns < client[at.C_STOP]:
        order = number << 16
        schedule(sim, until_ns, order, request[at.R_SERIAL], at.LATE_TURN, asking)
    return np.int64(at.NONE)


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
    elif call >= 0:
        written[at.W_LATENCY] = at.NONE
        number_of_row = sim.clock[at.ROWS_BEFORE] + row
        call_outside(sim, call, asking, number_of_row, now_ns, wait_ns, service_ns)
    elif latency_ns and (group[at.G_AWAITS] or combo[at.O_PARTS]):
        order = number << 16
        schedule(sim, now_ns + latency_ns, order, request[at.R_SERIAL], at.ANSWER, asking)
    else:
        # No other event can change when the answer comes, so the request is counted in advance.
        answered(sim, number, now_ns, 0)
        _end_well(sim, asking, now_ns + latency_ns)


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
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    group = group_row(sim, client)
    attempt = request[at.R_ATTEMPT]
    if not group[at.G_RETRIES] >> how & 1 or attempt >= group[at.G_ATTEMPTS]:
        _end(sim, asking, now_ns, 0)
        return
    delay_ns = own_delay_ns(sim, client, group, attempt - 1, request[at.R_DELAY])
    request[at.R_DELAY] = delay_ns
    if group[at.G_HONOURS] and how == at.LIMITED:
        delay_ns = max(delay_ns, _retry_after_ns(wait_ns))
    at_ns = now_ns + delay_ns
    until_ns = _deadline_ns(sim, request)
    if at_ns >= until_ns:
        if until_ns <= now_ns:
            _end(sim, asking, now_ns, 0)
        elif until_ns < client[at.C_STOP]:
            schedule(sim, until_ns, number << 16, request[at.R_SERIAL], at.DEADLINE, asking)
        return
    if at_ns >= client[at.C_STOP]:
        return
    request[at.R_ATTEMPT] = attempt + 1
    order = number << 16 | (attempt + 1)
    schedule(sim, at_ns, order, request[at.R_SERIAL], at.RETRY, asking)


@called
def _end_well(sim: RawSim, asking: Int, answered_ns: Int) -> None:
    """End an admitted request: a success unless late. A job is followed by its upload."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    deadline_ns = group_row(sim, client_row(sim, number))[at.G_DEADLINE]
    in_time = deadline_ns < 0 or answered_ns - request[at.R_BEGAN] < deadline_ns
    combo = combo_row(sim, request[at.R_COMBO])
    if combo[at.O_PARTS] and combo[at.O_BEHIND] < 0:
        _count(sim, request, answered_ns, 1 if in_time else 0)
        serial = request[at.R_SERIAL]
        schedule(sim, answered_ns, number << 16 | 1, serial, at.UPLOAD, asking)
    else:
        _end(sim, asking, answered_ns, 1 if in_time else 0)


@called
def give_up(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """End a request at its deadline, which its next attempt would have come after."""
    _end(sim, asking, now_ns, 0)


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
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    group = group_row(sim, client)
    if group[at.G_CONCURRENCY] < 0 or request[at.R_LANE] == at.PART:
        forget_request(sim, asking)
    elif client[at.C_QUEUE_HEAD] >= 0 and now_ns < client[at.C_STOP]:
        following = client[at.C_QUEUE_HEAD]
        client[at.C_QUEUE_HEAD] = request_row(sim, following)[at.R_NEXT]
        forget_request(sim, asking)
        serial = request_row(sim, following)[at.R_SERIAL]
        schedule(sim, now_ns, number << 16 | 1, serial, at.WAITED, following)
    else:
        client[at.C_UNDER_WAY] -= 1
        forget_request(sim, asking)


@inlined
def think(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Let a closed loop think, and ask again then."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    stream = client[at.C_THINK] + request[at.R_LANE]
    at_ns = now_ns + drawn_ns(sim, group_row(sim, client)[at.G_THINK], stream)
    if at_ns < client[at.C_STOP]:
        schedule(sim, at_ns, number << 16 | 1, request[at.R_SERIAL], at.ASK, asking)


_MILLI_NS: Final = 1_000_000_000_000


@inlined
def began(sim: RawSim, client: Pointer, now_ns: Int) -> None:
    """Note that an attempt of a paced client began (`simulator.traffic.pacing`)."""
    group = group_row(sim, client)
    if group[at.G_PACING] == at.AIMD:
        client[at.C_LAST] = now_ns
        client[at.C_DUE] = now_ns + _MILLI_NS // client[at.C_PACE]
        return
    limit, window_ns, burst_ns = group[at.G_PACE_1], group[at.G_PACE_2], group[at.G_PACE_3]
    if client[at.C_TAT] < now_ns:
        client[at.C_TAT] = now_ns
        client[at.C_PART] = 0
    client[at.C_TAT] += window_ns // limit
    client[at.C_PART] += window_ns % limit
    if client[at.C_PART] >= limit:
        client[at.C_PART] -= limit
        client[at.C_TAT] += 1
    client[at.C_DUE] = client[at.C_TAT] - (burst_ns - client[at.C_PART]) // limit


@inlined
def arm(sim: RawSim, number: Int, now_ns: Int) -> None:
    """Set the timer of the first in a client's line."""
    client = client_row(sim, number)
    due_ns = max(client[at.C_DUE], now_ns)
    if due_ns != client[at.C_TIMER]:
        client[at.C_TIMER] = due_ns
        client[at.C_TIMER_NUMBER] = sim.clock[at.SEQUENCE]
        first = request_row(sim, client[at.C_LINE_HEAD])
        order = number << 16 | first[at.R_ATTEMPT]
        schedule(sim, due_ns, order, first[at.R_SERIAL], at.TIMER, number)


@inlined
def answered(sim: RawSim, number: Int, now_ns: Int, limited: Int) -> None:
    """Give a paced client an answer; waiting attempts may begin earlier, or later."""
    client = client_row(sim, number)
    group = group_row(sim, client)
    if group[at.G_PACING] != at.AIMD:
        return
    if limited:
        slower = client[at.C_PACE] * group[at.G_PACE_4] // 100
        client[at.C_PACE] = max(group[at.G_PACE_1], slower)
    else:
        client[at.C_PACE] = min(group[at.G_PACE_2], client[at.C_PACE] + group[at.G_PACE_3])
    if client[at.C_LAST] < 0:
        return
    due_ns = client[at.C_LAST] + _MILLI_NS // client[at.C_PACE]
    changed = due_ns != client[at.C_DUE]
    client[at.C_DUE] = due_ns
    if changed and client[at.C_LINE_HEAD] >= 0:
        arm(sim, number, now_ns)
