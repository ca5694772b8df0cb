"""The simulation's arrays as compiled code sees them: pointers, rows, and free places."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np

from engine.limits.compiled.jit import inlined, moved
from engine.limits.compiled.lookup import Int, Pointer
from simulator.play.compiled import layout as at

__all__ = [
    "RawSim",
    "client_row",
    "combo_row",
    "event_row",
    "forget_request",
    "group_row",
    "link_row",
    "near_row",
    "new_request",
    "request_row",
]


RawSim: TypeAlias = Any
"""What `simulator.play.compiled.block.block_of` makes of a `Sim`."""


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


@inlined
def link_row(sim: RawSim, number: Int) -> Pointer:
    """Return an event's link."""
    return moved(sim.links, np.int64(number) * at.LINK_WIDTH)


@inlined
def near_row(sim: RawSim, place: Int) -> Pointer:
    """Return the row of an event that is near; places go round."""
    return moved(sim.near, (np.int64(place) & (at.NEAR_ROOM - 1)) * at.NEAR_WIDTH)


@inlined
def combo_row(sim: RawSim, number: Int) -> Pointer:
    """Return a combo's row."""
    return moved(sim.combos, np.int64(number) * at.COMBO_WIDTH)


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
    request = request_row(sim, number)
    request[at.R_NEXT] = sim.clock[at.FREE_REQUEST]
    request[at.R_BEGAN] = at.NONE
    sim.clock[at.FREE_REQUEST] = number
