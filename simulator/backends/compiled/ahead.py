"""Looking ahead: what events to come will read is fetched into the cache, stage by stage.

With thousands of clients most of an attempt is waiting for memory, line after line, each known from
the one before. The wheel says which events come next, so while it turns to a span, the events some
spans ahead are looked at: the farther away, the earlier in the chain from event to request, client
and combo, lane, streams and counters. Nothing is written and nothing depends on it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.limits.algorithms import BASE, PLACE
from engine.limits.compiled.core import EAGER_PLACES, LANE_COUNTERS
from engine.limits.compiled.finding import Int, Pointer, lane_row, line_of
from engine.limits.compiled.jit import inlined
from engine.limits.compiled.line import LINE_WIDTH
from engine.limits.compiled.raw import moved, prefetch
from simulator.backends.compiled import layout as at
from simulator.backends.compiled.drawing import STREAM_WIDTH
from simulator.backends.compiled.state import (
    RawSim,
    client_row,
    combo_row,
    event_row,
    request_row,
)

__all__ = ["look_ahead"]

# How many spans ahead each stage looks.
_EVENTS: Final = 6
_REQUESTS: Final = 5
_CLIENTS: Final = 4
_LANES: Final = 3
_COUNTERS: Final = 2
_RINGS: Final = 1


@inlined
def look_ahead(sim: RawSim, span: Int) -> None:
    """Fetch what the events of the spans after this one will read."""
    number = _first(sim, span + _EVENTS)
    if number >= 0:
        prefetch(event_row(sim, number))
    asking = _asking(sim, span + _REQUESTS)
    if asking >= 0:
        prefetch(request_row(sim, asking))
    asking = _asking(sim, span + _CLIENTS)
    if asking >= 0:
        request = request_row(sim, asking)
        prefetch(client_row(sim, request[at.R_CLIENT]))
        prefetch(combo_row(sim, request[at.R_COMBO]))
    asking = _asking(sim, span + _LANES)
    if asking >= 0:
        request = request_row(sim, asking)
        client = client_row(sim, request[at.R_CLIENT])
        prefetch(lane_row(sim.limits, combo_row(sim, request[at.R_COMBO])[at.O_LANE]))
        prefetch(moved(sim.streams, client[at.C_SERVICE] * STREAM_WIDTH))
        prefetch(moved(sim.streams, client[at.C_THINK] * STREAM_WIDTH))
    asking = _asking(sim, span + _COUNTERS)
    if asking >= 0:
        counters = _counters(sim, asking)
        for place in range(EAGER_PLACES):
            prefetch(moved(sim.limits.lines, np.int64(counters[place]) * LINE_WIDTH))
    asking = _asking(sim, span + _RINGS)
    if asking >= 0:
        counters = _counters(sim, asking)
        for place in range(EAGER_PLACES):
            line = line_of(sim.limits, counters[place])
            prefetch(moved(sim.limits.ring, line[BASE] + line[PLACE]))


@inlined
def _counters(sim: RawSim, asking: Int) -> Pointer:
    """Return the counters that a request meets."""
    lane = combo_row(sim, request_row(sim, asking)[at.R_COMBO])[at.O_LANE]
    return moved(lane_row(sim.limits, lane), LANE_COUNTERS)


@inlined
def _first(sim: RawSim, span: Int) -> Int:
    """Return the first event in a span's list, −1 = none; it may be of a later turn."""
    return np.int64(sim.wheel[span & sim.wheel_mask])


@inlined
def _asking(sim: RawSim, span: Int) -> Int:
    """Return the request that the first event in a span's list is about, −1 = none."""
    number = _first(sim, span)
    if number < 0:
        return np.int64(at.NONE)
    event = event_row(sim, number)
    kind = event[at.E_KIND]
    if kind == at.ASK or kind == at.RETRY:  # noqa: PLR1714 # reason: a set is no number to the compiler
        return event[at.E_WHAT]
    return np.int64(at.NONE)
