"""The event loop, compiled: what `simulator.play.simpy_driver` plays, over arrays.

Events happen one after the other in the reference's order, and each does what the reference does
(`requests`, `invocations`). Tests hold both to the same rows, bit for bit.

The loop stops where an array is too small, or the rows are full; its caller makes room and calls
again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

import numpy as np

from engine.limits.compiled.core import Core
from engine.limits.compiled.jit import Jit, called, inlined
from engine.limits.compiled.lookup import SOURCES, Int, has_lane_room, has_room, raw_of
from simulator.play.compiled import layout as at
from simulator.play.compiled.block import block_of
from simulator.play.compiled.event_queue import free_event, next_event, schedule
from simulator.play.compiled.invocations import go_on, time_over, woken_by_bell
from simulator.play.compiled.layout import Ints
from simulator.play.compiled.prefetch import look_ahead
from simulator.play.compiled.requests import (
    HAS_TURN,
    answer,
    answer_late,
    begin,
    begin_part,
    fire,
    give_up,
    leave_line,
    put,
    think,
    turn,
    upload,
)
from simulator.play.compiled.sampling import next_arrival_ns
from simulator.play.compiled.state import (
    RawSim,
    client_row,
    event_row,
    group_row,
    new_request,
    request_row,
)
from simulator.traffic import arrivals, draws, retries

__all__ = ["JIT", "play"]

_HERE: Final = Path(__file__).parent
_SPARE_EVENTS: Final = 8
_SPARE_CALLS: Final = 8

_UNCOMPILED: Final = {"__init__.py", "plan.py", "plan_outside.py", "run.py"}

JIT: Final = Jit(
    "compiled simulation",
    (
        *SOURCES,
        *(path for path in _HERE.glob("*.py") if path.name not in _UNCOMPILED),
        Path(draws.__file__),
        Path(arrivals.__file__),
        Path(retries.__file__),
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
    request_row(sim, asking)[at.R_NEXT] = at.NONE
    if client[at.C_QUEUE_HEAD] < 0:
        client[at.C_QUEUE_HEAD] = asking
    else:
        request_row(sim, client[at.C_QUEUE_TAIL])[at.R_NEXT] = asking
    client[at.C_QUEUE_TAIL] = asking
    return np.int64(at.NONE)


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
        give_up(sim, what, now_ns)
    elif kind == at.LATE_TURN:
        leave_line(sim, what, now_ns)
    else:
        _serve(sim, now_ns, kind, what, made)
    return np.int64(at.NONE)


@called
def _serve(sim: RawSim, now_ns: Int, kind: Int, what: Int, made: Int) -> None:
    """Let the service do its own business."""
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
