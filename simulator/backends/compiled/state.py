"""The simulation's arrays as compiled code sees them: pointers, and events in order."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from engine.limits.compiled.core import Core
from engine.limits.compiled.finding import Int, Pointer, Raw, raw_of
from engine.limits.compiled.jit import inlined
from engine.limits.compiled.raw import moved, pointer
from simulator.backends.compiled import layout as at
from simulator.backends.compiled.layout import Sim

__all__ = [
    "RawSim",
    "client_row",
    "event_row",
    "forget_request",
    "group_row",
    "new_request",
    "next_event",
    "raw_sim",
    "request_row",
    "schedule",
]


class RawSim(NamedTuple):
    """The arrays of `Sim` as pointers, and what they have room for."""

    clock: Pointer
    groups: Pointer
    group_floats: Pointer
    clients: Pointer
    client_floats: Pointer
    streams: Pointer
    draws: Pointer
    shares: Pointer
    tables: Pointer
    values: Pointer
    pieces: Pointer
    kinds: Pointer
    keys: Pointer
    addresses: Pointer
    requests: Pointer
    events: Pointer
    heap: Pointer
    combos: Pointer
    combo_table: Pointer
    combo_mask: int
    combo_room: int
    ended: Pointer
    rows: Pointer
    row_room: int
    limits: Raw


@inlined
def raw_sim(sim: Sim, core: Core) -> RawSim:
    """Return the arrays as pointers; the caller keeps the arrays while it uses them."""
    return RawSim(
        pointer(sim.clock),
        pointer(sim.groups),
        pointer(sim.group_floats),
        pointer(sim.clients),
        pointer(sim.client_floats),
        pointer(sim.streams),
        pointer(sim.draws),
        pointer(sim.shares),
        pointer(sim.tables),
        pointer(sim.values),
        pointer(sim.pieces),
        pointer(sim.kinds),
        pointer(sim.keys),
        pointer(sim.addresses),
        pointer(sim.requests),
        pointer(sim.events),
        pointer(sim.heap),
        pointer(sim.combos),
        pointer(sim.combo_table),
        sim.combo_table.shape[0] - 1,
        sim.combos.shape[0],
        pointer(sim.ended),
        pointer(sim.rows),
        sim.rows.shape[1],
        raw_of(core),
    )


@inlined
def client_row(sim: RawSim, number: Int) -> Pointer:
    """Return a client's row."""
    return moved(sim.clients, np.int64(number) * at.CLIENT_WIDTH)


@inlined
def group_row(sim: RawSim, client: Pointer) -> Pointer:
    """Return the row of a client's group."""
    return moved(sim.groups, client[at.C_GROUP] * at.GROUP_WIDTH)


@inlined
def request_row(sim: RawSim, number: Int) -> Pointer:
    """Return a request's row."""
    return moved(sim.requests, np.int64(number) * at.REQUEST_WIDTH)


@inlined
def event_row(sim: RawSim, number: Int) -> Pointer:
    """Return an event's row."""
    return moved(sim.events, np.int64(number) * at.EVENT_WIDTH)


# --- events in order ----------------------------------------------------------------------------


@inlined
def _before(sim: RawSim, one: Int, other: Int) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether one event of the same instant comes before another."""
    a, b = event_row(sim, one), event_row(sim, other)
    if a[at.E_ORDER] != b[at.E_ORDER]:
        return a[at.E_ORDER] < b[at.E_ORDER]
    if a[at.E_SERIAL] != b[at.E_SERIAL]:
        return a[at.E_SERIAL] < b[at.E_SERIAL]
    return a[at.E_SEQUENCE] < b[at.E_SEQUENCE]


@inlined
def schedule(sim: RawSim, t_ns: Int, order: Int, serial: Int, kind: Int, what: Int) -> None:
    """Make an event; the heap holds pairs of instant and event."""
    clock = sim.clock
    number = clock[at.FREE_EVENT]
    event = event_row(sim, number)
    clock[at.FREE_EVENT] = event[at.E_NEXT]
    event[at.E_T] = t_ns
    event[at.E_ORDER] = order
    event[at.E_SERIAL] = serial
    event[at.E_SEQUENCE] = clock[at.SEQUENCE]
    event[at.E_KIND] = kind
    event[at.E_WHAT] = what
    clock[at.SEQUENCE] += 1
    heap = sim.heap
    place = clock[at.PENDING]
    clock[at.PENDING] = place + 1
    while place > 0:
        above = (place - 1) >> 2
        above_ns = heap[2 * above]
        if above_ns < t_ns or (above_ns == t_ns and _before(sim, heap[2 * above + 1], number)):
            break
        heap[2 * place] = above_ns
        heap[2 * place + 1] = heap[2 * above + 1]
        place = above
    heap[2 * place] = t_ns
    heap[2 * place + 1] = number


@inlined
def next_event(sim: RawSim) -> Int:
    """Take the first event off the heap, of which each place has four below it."""
    heap, clock = sim.heap, sim.clock
    found = heap[1]
    count = clock[at.PENDING] - 1
    clock[at.PENDING] = count
    t_ns, number = heap[2 * count], heap[2 * count + 1]
    place: Int = np.int64(0)
    while True:
        child = 4 * place + 1
        if child >= count:
            break
        best, best_ns = child, heap[2 * child]
        for other in range(child + 1, min(child + 4, count)):
            other_ns = heap[2 * other]
            if other_ns < best_ns or (
                other_ns == best_ns and _before(sim, heap[2 * other + 1], heap[2 * best + 1])
            ):
                best, best_ns = other, other_ns
        if t_ns < best_ns or (t_ns == best_ns and _before(sim, number, heap[2 * best + 1])):
            break
        heap[2 * place] = best_ns
        heap[2 * place + 1] = heap[2 * best + 1]
        place = best
    heap[2 * place] = t_ns
    heap[2 * place + 1] = number
    return found


@inlined
def new_request(sim: RawSim, client: Int, serial: Int) -> Int:
    """Take a free place for a request."""
    number = sim.clock[at.FREE_REQUEST]
    request = request_row(sim, number)
    sim.clock[at.FREE_REQUEST] = request[at.R_NEXT]
    request[at.R_CLIENT] = client
    request[at.R_SERIAL] = serial
    request[at.R_LANE] = at.NONE
    return number


@inlined
def forget_request(sim: RawSim, number: Int) -> None:
    """Give a request's place back."""
    request_row(sim, number)[at.R_NEXT] = sim.clock[at.FREE_REQUEST]
    sim.clock[at.FREE_REQUEST] = number
