"""A paced client's line, over arrays: `simulator.traffic.pacing` and the reference's line."""

from __future__ import annotations

from typing import Final

from engine.limits.compiled.finding import Int, Pointer
from engine.limits.compiled.jit import inlined
from simulator.backends.compiled import layout as at
from simulator.backends.compiled.ordering import schedule
from simulator.backends.compiled.state import RawSim, client_row, group_row, request_row

__all__ = ["answered", "arm", "began"]

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
