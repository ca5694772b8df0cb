"""The balancer of `engine.limits.nodes` over arrays: which node an attempt reaches.

The interpreted `Balancer` has a dict and `heapq`, which cannot be compiled; the tests of drawn
scenarios hold the two together, row by row.
"""

from __future__ import annotations

import numpy as np

from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import Int, Pointer
from simulator.play.compiled import layout as at
from simulator.play.compiled.sampling import uniform
from simulator.play.compiled.state import RawSim

__all__ = ["begin_flight", "choose_node", "end_flight"]


@called
def choose_node(sim: RawSim, combo: Pointer, now_ns: Int) -> Int:
    """Return the node of an attempt that arrives now."""
    clock = sim.clock
    balance, count = clock[at.BALANCE], clock[at.NODES]
    if balance == at.BY_NAME:
        return np.int64(combo[at.O_HOME])
    if balance == at.ROUND_ROBIN:
        node = clock[at.TURN] % count
        clock[at.TURN] += 1
        return node
    if balance == at.AT_RANDOM:
        return np.int64(uniform(sim.streams, clock[at.NODE_STREAM]) * count)
    while clock[at.FLIGHTS] and _flight(sim, 0)[at.FLIGHT_END] <= now_ns:
        _node_row(sim, _flight(sim, 0)[at.FLIGHT_NODE])[0] -= 1
        _drop_first(sim)
    found = np.int64(0)
    for node in range(1, count):
        if _node_row(sim, node)[0] < _node_row(sim, found)[0]:
            found = np.int64(node)
    return found


@called
def begin_flight(sim: RawSim, node: Int, end_ns: Int) -> None:
    """Note that a node lets a request in, which is in flight until it ends; −1 = not known yet."""
    _node_row(sim, node)[0] += 1
    if end_ns >= 0:
        end_flight(sim, node, end_ns)


@called
def end_flight(sim: RawSim, node: Int, end_ns: Int) -> None:
    """Say when a request that began is answered; from then on it is not in flight."""
    if sim.clock[at.BALANCE] != at.LEAST_BUSY:
        return
    place = sim.clock[at.FLIGHTS]
    sim.clock[at.FLIGHTS] = place + 1
    while place > 0:
        above = (place - 1) // 2
        row = _flight(sim, above)
        if row[at.FLIGHT_END] <= end_ns:
            break
        _set(sim, place, row[at.FLIGHT_END], row[at.FLIGHT_NODE])
        place = above
    _set(sim, place, end_ns, node)


@inlined
def _drop_first(sim: RawSim) -> None:
    """Take the earliest end from the heap."""
    size = sim.clock[at.FLIGHTS] - 1
    sim.clock[at.FLIGHTS] = size
    last = _flight(sim, size)
    end_ns, node = last[at.FLIGHT_END], last[at.FLIGHT_NODE]
    place = np.int64(0)
    while 2 * place + 1 < size:
        below = 2 * place + 1
        if below + 1 < size:
            other = _flight(sim, below + 1)[at.FLIGHT_END]
            below += np.int64(other < _flight(sim, below)[at.FLIGHT_END])
        row = _flight(sim, below)
        if row[at.FLIGHT_END] >= end_ns:
            break
        _set(sim, place, row[at.FLIGHT_END], row[at.FLIGHT_NODE])
        place = below
    _set(sim, place, end_ns, node)


@inlined
def _node_row(sim: RawSim, node: Int) -> Pointer:
    return moved(sim.flights, np.int64(node) * at.FLIGHT_WIDTH)


@inlined
def _flight(sim: RawSim, place: Int) -> Pointer:
    return moved(sim.flights, (at.MOST_NODES + np.int64(place)) * at.FLIGHT_WIDTH)


@inlined
def _set(sim: RawSim, place: Int, end_ns: Int, node: Int) -> None:
    row = _flight(sim, place)
    row[at.FLIGHT_END] = end_ns
    row[at.FLIGHT_NODE] = node
