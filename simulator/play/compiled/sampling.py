"""Random draws in compiled code: durations, requests of a client, arrivals."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import Int, Pointer, find_lane
from simulator.play.compiled import layout as at
from simulator.play.compiled.draws import (
    DRAW_WIDTH,
    choose,
    draw_ns,
    exponential_ns,
    nearest_ns,
    uniform,
    uniform_ns,
)
from simulator.play.compiled.state import RawSim, client_row, combo_row, group_row
from simulator.traffic import arrivals
from simulator.traffic.arrivals import Piece

__all__ = ["asked", "drawn_ns", "entry_row", "next_arrival_ns", "own_delay_ns", "uploaded"]

_NEVER: Final = 1 << 62
_MOST_DOUBLINGS: Final = 62

_area = inlined(arrivals._area)  # noqa: SLF001 # reason: compiled code needs every callee
_distance = inlined(arrivals._distance)  # noqa: SLF001 # reason: as above


# --- what is drawn ------------------------------------------------------------------------------


@called
def drawn_ns(sim: RawSim, draw: Int, stream: Int) -> Int:
    """Return the next duration of a distribution; a constant draws nothing."""
    row = moved(sim.draws, np.int64(draw) * DRAW_WIDTH)
    if not row[0]:
        return row[1]
    return draw_ns(row, sim.shares[draw], uniform(sim.streams, stream), sim.values, sim.tables)


@inlined
def _dealt(
    sim: RawSim, client: Pointer, deal: Int, place: Int, count: Int, table: Int, stream: Int
) -> Int:  # reason: the parts of a dealing
    """Return the member of a pool that the next request gets; `place` is where the client is."""
    if count <= 1:
        return np.int64(0)
    if deal == at.FIXED:
        return client[place]
    if deal == at.ROTATED:
        found = client[place]
        client[place] = found + 1
        return found % count
    return choose(uniform(sim.streams, stream), sim.tables, table, count)


@inlined
def asked(sim: RawSim, number: Int) -> Int:
    """Return the combo of a client's next request."""
    client = client_row(sim, number)
    if client[at.C_COMBO] >= 0:
        return client[at.C_COMBO]
    group = group_row(sim, client)
    entry = np.int64(0)
    if group[at.G_MIX_COUNT] > 1:
        u = uniform(sim.streams, client[at.C_MIX])
        entry = choose(u, sim.tables, group[at.G_MIX], group[at.G_MIX_COUNT])
    key = _dealt(
        sim,
        client,
        group[at.G_KEY_DEAL],
        at.C_KEY,
        group[at.G_KEY_COUNT],
        group[at.G_KEY_TABLE],
        client[at.C_KEYS],
    )
    address = _dealt(
        sim,
        client,
        group[at.G_ADDRESS_DEAL],
        at.C_ADDRESS,
        group[at.G_ADDRESS_COUNT],
        group[at.G_ADDRESS_TABLE],
        client[at.C_ADDRESS_STREAM],
    )
    found = _combo(sim, number, entry, key, address)
    if not group[at.G_DEALS]:
        client[at.C_COMBO] = found
    return found


@inlined
def entry_row(sim: RawSim, group: Pointer, entry: Int) -> Pointer:
    """Return the row of an entry of a group's mix."""
    return moved(sim.entries, (group[at.G_ENTRIES] + entry) * at.ENTRY_WIDTH)


@called
def uploaded(sim: RawSim, job: Int) -> Int:
    """Return the combo of the upload that follows a job's."""
    row = combo_row(sim, job)
    number = np.int64(row[at.O_CLIENT])
    count = group_row(sim, client_row(sim, number))[at.G_MIX_COUNT]
    entry, key = np.int64(row[at.O_ENTRY]) + count, np.int64(row[at.O_KEY])
    return _combo(sim, number, entry, key, np.int64(row[at.O_ADDRESS]))


@called
def _combo(sim: RawSim, number: Int, entry: Int, key: Int, address: Int) -> Int:
    """Return the number of a client's combo, a new one where it is new."""
    mixed = (number * 31 + entry) * at.MIX_1 + (key * 8191 + address) * at.MIX_2
    slot = (mixed ^ (mixed >> 31)) & sim.combo_mask
    while sim.combo_table[slot] >= 0:
        row = combo_row(sim, sim.combo_table[slot])
        if (
            row[at.O_CLIENT] == number
            and row[at.O_ENTRY] == entry
            and row[at.O_KEY] == key
            and row[at.O_ADDRESS] == address
        ):
            return np.int64(sim.combo_table[slot])
        slot = (slot + 1) & sim.combo_mask
    found = sim.clock[at.COMBO_COUNT]
    sim.clock[at.COMBO_COUNT] = found + 1
    sim.combo_table[slot] = found
    row = combo_row(sim, found)
    row[at.O_CLIENT] = number
    row[at.O_ENTRY] = entry
    row[at.O_KEY] = key
    row[at.O_ADDRESS] = address
    _describe(sim, row, number, entry, key)
    return found


@inlined
def _describe(sim: RawSim, row: Pointer, number: Int, entry: Int, key: Int) -> None:
    """Write a new combo's lane and properties."""
    client = client_row(sim, number)
    group = group_row(sim, client)
    ip = np.int64(sim.addresses[client[at.C_ADDRESSES] + row[at.O_ADDRESS]])
    row[at.O_BEHIND] = at.NONE
    row[at.O_PARTS] = 0
    count = max(group[at.G_KEY_COUNT], np.int64(1))
    if entry >= group[at.G_MIX_COUNT]:
        job = entry - group[at.G_MIX_COUNT]
        upload = np.int64(entry_row(sim, group, job)[at.M_UPLOAD])
        others = moved(_kind_row(sim, group, job * count), at.K_OTHERS)
        row[at.O_LANE] = _lane(sim, upload, np.int64(at.NONE), ip, others)
        return
    asks = entry_row(sim, group, entry)
    row[at.O_BEHIND] = asks[at.M_BEHIND]
    row[at.O_PARTS] = asks[at.M_PARTS]
    kind = _kind_row(sim, group, entry * count + key)
    key_number = np.int64(at.NONE)
    if group[at.G_KEY_COUNT]:
        key_number = np.int64(sim.keys[group[at.G_KEYS] + key])
    others = moved(kind, at.K_OTHERS)
    row[at.O_LANE] = _lane(sim, np.int64(kind[at.K_KIND]), key_number, ip, others)


@inlined
def _kind_row(sim: RawSim, group: Pointer, place: Int) -> Pointer:
    """Return the row of one of a group's entries with one of its keys."""
    return moved(sim.kinds, np.int64(group[at.G_KINDS] + place) * at.KIND_WIDTH)


@called
def _lane(sim: RawSim, kind: Int, key: Int, ip: Int, others: Pointer) -> Int:
    return np.int64(find_lane(sim.limits, kind, key, ip, others))


# --- arrivals -----------------------------------------------------------------------------------


@inlined
def next_arrival_ns(sim: RawSim, number: Int) -> Int:
    """Return when an open client's next request begins; `simulator.traffic.arrivals`."""
    client = client_row(sim, number)
    group = group_row(sim, client)
    kind, serial = group[at.G_ARRIVALS], client[at.C_SERIAL]
    floats = moved(sim.group_floats, client[at.C_GROUP] * 2)
    if kind == at.CONSTANT_RATE:
        limit, window_ns = group[at.G_ARRIVE_1], group[at.G_ARRIVE_2]
        whole = serial // limit * window_ns
        return client[at.C_START] + whole + serial % limit * window_ns // limit
    if kind == at.REPLAYED:
        if serial >= group[at.G_ARRIVE_2]:
            return np.int64(_NEVER)
        return client[at.C_START] + sim.values[group[at.G_ARRIVE_1] + serial]
    if kind == at.POISSON:
        u = uniform(sim.streams, client[at.C_ARRIVALS])
        client[at.C_AT] += exponential_ns(u, floats[0])
        return client[at.C_AT]
    if kind == at.ON_OFF:
        return _next_burst_ns(sim, client, group, floats)
    return _next_varying_ns(sim, number, client, group)


@called
def _next_burst_ns(sim: RawSim, client: Pointer, group: Pointer, floats: Pointer) -> Int:
    while True:
        is_on = client[at.C_IS_ON] != 0
        gap_ns = floats[0] if is_on else floats[1]
        if client[at.C_ACTIVE]:
            client[at.C_AT] += exponential_ns(uniform(sim.streams, client[at.C_ARRIVALS]), gap_ns)
        else:
            mean_ns = group[at.G_ARRIVE_1] if is_on else group[at.G_ARRIVE_2]
            lasts_ns = exponential_ns(uniform(sim.streams, client[at.C_SWITCHES]), mean_ns)
            client[at.C_ENDS] = client[at.C_BEGINS] + max(np.int64(1), lasts_ns)
            if gap_ns > 0.0:
                u = uniform(sim.streams, client[at.C_ARRIVALS])
                client[at.C_AT] = client[at.C_BEGINS] + exponential_ns(u, gap_ns)
                client[at.C_ACTIVE] = 1
            else:
                client[at.C_AT] = client[at.C_ENDS]
        if client[at.C_AT] < client[at.C_ENDS]:
            return client[at.C_AT]
        client[at.C_BEGINS] = client[at.C_ENDS]
        client[at.C_IS_ON] = 0 if is_on else 1
        client[at.C_ACTIVE] = 0
        if client[at.C_BEGINS] >= client[at.C_STOP]:
            return np.int64(_NEVER)


@called
def _next_varying_ns(sim: RawSim, number: Int, client: Pointer, group: Pointer) -> Int:
    state = moved(sim.client_floats, np.int64(number) * at.FLOAT_WIDTH)
    if not client[at.C_ACTIVE]:
        client[at.C_ACTIVE] = 1
        state[at.F_DUE] = -math.log(1.0 - uniform(sim.streams, client[at.C_ARRIVALS]))
    while client[at.C_AT] < group[at.G_ARRIVE_2]:
        row = moved(sim.pieces, (group[at.G_ARRIVE_1] + client[at.C_AT]) * 3)
        piece = Piece(int(row[0]), row[1], row[2])
        passed, due = state[at.F_PASSED], state[at.F_DUE]
        found = _distance(piece, passed, due)
        if found is not None:
            state[at.F_PASSED] = found
            state[at.F_DUE] = -math.log(1.0 - uniform(sim.streams, client[at.C_ARRIVALS]))
            return client[at.C_BEGINS] + nearest_ns(found)
        due -= _area(piece, passed, float(piece.length_ns))
        state[at.F_DUE] = max(due, 0.0)
        client[at.C_BEGINS] += piece.length_ns
        client[at.C_AT] += 1
        state[at.F_PASSED] = 0.0
    return np.int64(_NEVER)


# --- retries -----------------------------------------------------------------------------------


@called
def own_delay_ns(sim: RawSim, client: Pointer, group: Pointer, retry: Int, last_ns: Int) -> Int:
    """Return `retries.own_delay_ns`; min(cap, base << n) so that nothing overflows."""
    kind, base_ns, cap_ns = group[at.G_RETRY_KIND], group[at.G_BASE], group[at.G_CAP]
    if kind == at.RETRY_FIXED:
        return base_ns
    if kind == at.RETRY_DECORRELATED:
        before_ns = last_ns if retry else base_ns
        u = uniform(sim.streams, client[at.C_RETRY])
        return min(cap_ns, uniform_ns(u, base_ns, 3 * before_ns))
    doublings: Int = min(retry, np.int64(_MOST_DOUBLINGS))
    full_ns = cap_ns if base_ns > cap_ns >> doublings else base_ns << doublings
    if kind == at.RETRY_EXPONENTIAL:
        return full_ns
    return uniform_ns(uniform(sim.streams, client[at.C_RETRY]), 0, full_ns)
