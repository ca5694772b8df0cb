"""The event loop, compiled: what `simulator.backends.simpy_backend` plays, over arrays.

Each function here is one of the reference's steps, and does things in its order: draws come in the
same order from the same streams, events are made in the same order, so ties fall alike. Tests hold
both to the same rows, bit for bit.

The loop stops where an array is too small, or the rows are full; its caller makes room and calls
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engine.limits.compiled.core import Core
from engine.limits.compiled.deciding import DELAYED, decide
from engine.limits.compiled.finding import SOURCES, Int, Pointer, has_lane_room, has_room
from engine.limits.compiled.jit import Jit, called, inlined
from engine.limits.compiled.raw import moved
from simulator.backends.compiled import layout as at
from simulator.backends.compiled.choosing import asked, drawn_ns, next_arrival_ns, own_delay_ns
from simulator.backends.compiled.layout import Sim
from simulator.backends.compiled.state import (
    RawSim,
    client_row,
    event_row,
    forget_request,
    group_row,
    new_request,
    next_event,
    raw_sim,
    request_row,
    schedule,
)
from simulator.traffic import arrivals, draws, retrying

__all__ = ["JIT", "play"]

_HERE: Final = Path(__file__).parent
_MILLI_NS: Final = 1_000_000_000_000
_SPARE_EVENTS: Final = 8

JIT: Final = Jit(
    "compiled simulation",
    (
        *SOURCES,
        *(_HERE / f"{name}.py" for name in ("layout", "drawing", "state", "choosing", "loop")),
        Path(draws.__file__),
        Path(arrivals.__file__),
        Path(retrying.__file__),
    ),
)

_retry_after_ns = inlined(retrying.retry_after_ns)


# --- pacing -------------------------------------------------------------------------------------


@inlined
def _began(sim: RawSim, client: Pointer, now_ns: Int) -> None:
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
def _answered(sim: RawSim, number: Int, now_ns: Int, limited: Int) -> None:
    """Let a paced client take in an answer; who waits may begin earlier, or later."""
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
        _arm(sim, number, now_ns)


@inlined
def _arm(sim: RawSim, number: Int, now_ns: Int) -> None:
    client = client_row(sim, number)
    due_ns = max(client[at.C_DUE], now_ns)
    if due_ns != client[at.C_TIMER]:
        client[at.C_TIMER] = due_ns
        first = request_row(sim, client[at.C_LINE_HEAD])
        order = number << 16 | first[at.R_ATTEMPT]
        schedule(sim, due_ns, order, first[at.R_SERIAL], at.TIMER, number)


@called
def _fire(sim: RawSim, number: Int, now_ns: Int) -> None:
    """Let the first in the line begin, if it may."""
    client = client_row(sim, number)
    if now_ns != client[at.C_TIMER]:
        return
    client[at.C_TIMER] = -1
    if client[at.C_DUE] > now_ns:
        _arm(sim, number, now_ns)
        return
    asking = client[at.C_LINE_HEAD]
    client[at.C_LINE_HEAD] = request_row(sim, asking)[at.R_NEXT]
    _began(sim, client, now_ns)
    if client[at.C_LINE_HEAD] >= 0:
        _arm(sim, number, now_ns)
    _attempt(sim, asking, now_ns)


# --- requests -----------------------------------------------------------------------------------


@inlined
def _begin(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Begin a request: say what it asks, and make its first attempt."""
    request = request_row(sim, asking)
    request[at.R_BEGAN] = now_ns
    request[at.R_ATTEMPT] = 1
    request[at.R_DELAY] = 0
    request[at.R_COMBO] = asked(sim, request[at.R_CLIENT])
    _turn(sim, asking, now_ns)


@inlined
def _turn(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Make an attempt, or wait in line where the client's pace does not allow it yet."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    if group_row(sim, client)[at.G_PACING] == at.UNPACED:
        _put(sim, asking, now_ns)
    elif client[at.C_LINE_HEAD] < 0 and client[at.C_DUE] <= now_ns:
        _began(sim, client, now_ns)
        _attempt(sim, asking, now_ns)
    else:
        request[at.R_NEXT] = at.NONE
        if client[at.C_LINE_HEAD] < 0:
            client[at.C_LINE_HEAD] = asking
        else:
            request_row(sim, client[at.C_LINE_TAIL])[at.R_NEXT] = asking
        client[at.C_LINE_TAIL] = asking
        _arm(sim, number, now_ns)


@inlined
def _stop_ns(sim: RawSim, request: Pointer) -> Int:
    client = client_row(sim, request[at.R_CLIENT])
    deadline_ns = group_row(sim, client)[at.G_DEADLINE]
    if deadline_ns < 0:
        return client[at.C_STOP]
    return min(client[at.C_STOP], request[at.R_BEGAN] + deadline_ns)


@inlined
def _attempt(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Make an attempt of a paced client, unless it is too late for it."""
    if now_ns >= _stop_ns(sim, request_row(sim, asking)):
        _end(sim, asking, now_ns, 0)
    else:
        _put(sim, asking, now_ns)


@called
def _put(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Let the limits decide about an attempt, record it, and do what follows."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    group = group_row(sim, client)
    combo = request[at.R_COMBO]
    lane = np.int64(moved(sim.combos, combo * at.COMBO_WIDTH)[at.O_LANE])
    verdict, wait_ns, _, _ = decide(sim.limits, now_ns, lane)
    let_in = verdict == 0 or verdict & 3 == DELAYED
    latency_ns = np.int64(0)
    if let_in:
        latency_ns = wait_ns + drawn_ns(sim, group[at.G_SERVICE], client[at.C_SERVICE])
    row = sim.clock[at.ROWS]
    sim.clock[at.ROWS] = row + 1
    rows, size = sim.rows, sim.row_room
    rows[row] = now_ns
    rows[size + row] = combo
    rows[2 * size + row] = request[at.R_ATTEMPT]
    rows[3 * size + row] = verdict
    rows[4 * size + row] = wait_ns
    rows[5 * size + row] = latency_ns
    rows[6 * size + row] = -1
    if not let_in:
        _refused(sim, asking, now_ns, wait_ns)
    elif latency_ns and group[at.G_AWAITS]:
        order = number << 16
        schedule(sim, now_ns + latency_ns, order, request[at.R_SERIAL], at.ANSWER, asking)
    else:
        _answered(sim, number, now_ns, 0)
        _end_well(sim, asking, now_ns, latency_ns)


@inlined
def _refused(sim: RawSim, asking: Int, now_ns: Int, wait_ns: Int) -> None:
    """Try again later, or give up."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    group = group_row(sim, client)
    _answered(sim, number, now_ns, 1)
    attempt = request[at.R_ATTEMPT]
    if not group[at.G_RETRIES] or attempt >= group[at.G_ATTEMPTS]:
        _end(sim, asking, now_ns, 0)
        return
    delay_ns = own_delay_ns(sim, client, group, attempt - 1, request[at.R_DELAY])
    request[at.R_DELAY] = delay_ns
    if group[at.G_HONOURS]:
        delay_ns = max(delay_ns, _retry_after_ns(wait_ns))
    at_ns = now_ns + delay_ns
    if at_ns >= _stop_ns(sim, request):
        _end(sim, asking, now_ns, 0)
        return
    request[at.R_ATTEMPT] = attempt + 1
    order = number << 16 | (attempt + 1)
    schedule(sim, at_ns, order, request[at.R_SERIAL], at.RETRY, asking)


@inlined
def _end_well(sim: RawSim, asking: Int, now_ns: Int, latency_ns: Int) -> None:
    """End a request that was let in; late is not well."""
    request = request_row(sim, asking)
    deadline_ns = group_row(sim, client_row(sim, request[at.R_CLIENT]))[at.G_DEADLINE]
    in_time = deadline_ns < 0 or now_ns + latency_ns - request[at.R_BEGAN] < deadline_ns
    _end(sim, asking, now_ns, 1 if in_time else 0)


@called
def _end(sim: RawSim, asking: Int, now_ns: Int, well: Int) -> None:
    """End a request: a closed loop thinks, another takes its place, or it is gone."""
    request = request_row(sim, asking)
    if request[at.R_BEGAN] >= sim.clock[at.WARM_UP]:
        ended = moved(sim.ended, request[at.R_COMBO] * 2)
        ended[0] += 1
        ended[1] += well
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    group = group_row(sim, client)
    if request[at.R_LANE] >= 0:
        _think(sim, asking, now_ns)
    elif group[at.G_CONCURRENCY] < 0:
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
def _think(sim: RawSim, asking: Int, now_ns: Int) -> None:
    """Let a closed loop think, and ask again then."""
    request = request_row(sim, asking)
    number = request[at.R_CLIENT]
    client = client_row(sim, number)
    stream = client[at.C_THINK] + request[at.R_LANE]
    at_ns = now_ns + drawn_ns(sim, group_row(sim, client)[at.G_THINK], stream)
    if at_ns < client[at.C_STOP]:
        schedule(sim, at_ns, number << 16 | 1, request[at.R_SERIAL], at.ASK, asking)


@called
def _arrive(sim: RawSim, number: Int, now_ns: Int) -> None:
    """Begin an open client's request, or let it wait; then look for its next."""
    client = client_row(sim, number)
    asking = new_request(sim, number, client[at.C_SERIAL])
    most = group_row(sim, client)[at.G_CONCURRENCY]
    if most < 0:
        _begin(sim, asking, now_ns)
    elif client[at.C_UNDER_WAY] < most:
        client[at.C_UNDER_WAY] += 1
        _begin(sim, asking, now_ns)
    else:
        request_row(sim, asking)[at.R_NEXT] = at.NONE
        if client[at.C_QUEUE_HEAD] < 0:
            client[at.C_QUEUE_HEAD] = asking
        else:
            request_row(sim, client[at.C_QUEUE_TAIL])[at.R_NEXT] = asking
        client[at.C_QUEUE_TAIL] = asking
    client[at.C_SERIAL] += 1
    _await_arrival(sim, number)


@inlined
def _await_arrival(sim: RawSim, number: Int) -> None:
    client = client_row(sim, number)
    at_ns = next_arrival_ns(sim, number)
    if at_ns < client[at.C_STOP]:
        schedule(sim, at_ns, number << 16 | 1, client[at.C_SERIAL], at.ARRIVE, number)


@called
def _start(sim: RawSim, clients: Int, loops: Int) -> None:
    """Start every client: requests 0 … loops − 1 are the closed ones' loops, in order."""
    asking = np.int64(0)
    for number in range(clients):
        if not group_row(sim, client_row(sim, number))[at.G_OPEN]:
            while asking < loops and request_row(sim, asking)[at.R_CLIENT] == number:
                _think(sim, asking, client_row(sim, number)[at.C_START])
                asking += 1
        else:
            _await_arrival(sim, number)


@inlined
def _short_of(sim: RawSim, event_room: Int) -> Int:
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
    if clock[at.PENDING] + _SPARE_EVENTS >= event_room or clock[at.FREE_REQUEST] < 0:
        return at.NO_PLACES
    return at.DONE


@inlined
def _happen(sim: RawSim, now_ns: Int, kind: Int, what: Int) -> None:
    """Let an event happen."""
    if kind == at.RETRY:
        _turn(sim, what, now_ns)
    elif kind == at.ANSWER:
        _answered(sim, request_row(sim, what)[at.R_CLIENT], now_ns, 0)
        _end_well(sim, what, now_ns, 0)
    elif kind == at.ARRIVE:
        _arrive(sim, what, now_ns)
    elif kind == at.TIMER:
        _fire(sim, what, now_ns)
    else:
        _begin(sim, what, now_ns)


@JIT.compiled
def play(sim_arrays: Sim, core: Core, loops: int) -> int:
    """Play until the end, or until something is too small or full; return which."""
    sim = raw_sim(sim_arrays, core)
    clock = sim.clock
    if not clock[at.STARTED]:
        clock[at.STARTED] = 1
        _start(sim, sim_arrays.clients.shape[0], loops)
    while clock[at.PENDING]:
        short = _short_of(sim, sim_arrays.events.shape[0])
        if short != at.DONE:
            return int(short)
        number = next_event(sim)
        event = event_row(sim, number)
        now_ns, kind, what = event[at.E_T], event[at.E_KIND], event[at.E_WHAT]
        event[at.E_NEXT] = clock[at.FREE_EVENT]
        clock[at.FREE_EVENT] = number
        clock[at.NOW] = now_ns
        _happen(sim, now_ns, kind, what)
    return at.DONE
