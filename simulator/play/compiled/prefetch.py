"""Prefetch: the data of upcoming events are fetched into the cache, stage by stage.

With thousands of clients most of an attempt's time is spent waiting for memory, one cache line
after another, since each address is read from the line before. The next events are known
(`event_queue`), so when one happens, some later ones are prefetched: the farther away, the earlier
in the chain from event to request, client and combo, lane, streams and counters. Results do not
depend on it.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from engine.limits.algorithms import BASE, PLACE
from engine.limits.compiled.core import EAGER_PLACES, LANE_COUNTERS, LINE_WIDTH
from engine.limits.compiled.jit import inlined, moved, prefetch
from engine.limits.compiled.lookup import Int, Pointer, lane_row, line_of
from simulator.play.compiled import layout as at
from simulator.play.compiled.draws import STREAM_WIDTH
from simulator.play.compiled.state import (
    RawSim,
    client_row,
    combo_row,
    event_row,
    near_row,
    request_row,
)

__all__ = ["look_ahead"]

# How many events ahead each stage looks.
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
