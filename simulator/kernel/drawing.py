"""Random numbers, durations, contents of requests and arrivals, in compiled code.

Philox4x64-10 as numpy has it: the key is (seed, number of the stream). The formulas of durations
are those of `simulator.traffic.draws`, compiled from their source, so both fidelities draw the same
bits.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numba.extending import register_jitable

from simulator.kernel import records as at
from simulator.kernel.compiling import called, inlined
from simulator.kernel.deciding import Int, Record, Records, lane_of, number_of
from simulator.kernel.records import NONE, Simulation
from simulator.play.outside import NEVER_NS
from simulator.traffic import draws

for _function in (
    *(draws.nearest_ns, draws.uniform_ns, draws.exponential_ns, draws.raise_e, draws.normal),
    *(draws._rational, draws.lognormal_ns, draws.pareto_ns),  # noqa: SLF001 # reason: compiled code needs every callee
    *(draws.exponential_area, draws.requests_within, draws.time_until),
):
    register_jitable(_function)

_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_HALF, _LOW = np.uint64(32), np.uint64(0xFFFFFFFF)
_ONE, _TWELVE = np.uint64(1), np.uint64(12)
_ROUNDS: Final = 10


@inlined
def _high_word(a: Int, b: Int) -> Int:
    """Return the upper 64 bits of a product, by halves."""
    a1, a0, b1, b0 = a >> _HALF, a & _LOW, b >> _HALF, b & _LOW
    first, second = a1 * b0, a0 * b1
    middle = (a0 * b0 >> _HALF) + (first & _LOW) + second
    return a1 * b1 + (first >> _HALF) + (middle >> _HALF)


@called
def _next_block(stream: Record, seed: Int) -> None:
    """Compute the stream's next block of four words."""
    stream.block += _ONE
    c0, c1, c2, c3 = stream.block, np.uint64(0), np.uint64(0), np.uint64(0)
    k0, k1 = seed, stream.key
    for _ in range(_ROUNDS):
        h0, h1 = _high_word(c0, _M0), _high_word(c2, _M1)
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, c2 * _M1, h0 ^ c3 ^ k1, c0 * _M0
        k0 += _W0
        k1 += _W1
    stream.word0, stream.word1, stream.word2, stream.word3 = c0, c1, c2, c3
    stream.used = np.uint64(0)


@inlined
def uniform(number: Int, sim: Simulation) -> float:
    """Return a stream's next number in (0, 1), as `Stream.uniform` does."""
    stream = sim.streams[number]
    if stream.used == np.uint64(4):
        _next_block(stream, sim.clock[0].seed)
    word = stream.word0
    if stream.used == np.uint64(1):
        word = stream.word1
    elif stream.used == np.uint64(2):
        word = stream.word2
    elif stream.used == np.uint64(3):
        word = stream.word3
    stream.used += _ONE
    return (np.float64(word >> _TWELVE) + 0.5) * draws.UNIT


@called
def _choose(u: float, tables: Records, first: Int, count: Int) -> Int:
    """Return `draws.categorical` of `count` cumulative weights that begin at `first`."""
    weight = u * tables[first + count - 1]
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) // 2
        if weight < tables[first + middle]:
            high = middle
        else:
            low = middle + 1
    return min(low, np.int64(count) - 1)


@inlined
def duration_ns(number: Int, stream: Int, sim: Simulation) -> Int:
    """Return the next duration of a distribution; a constant draws nothing."""
    draw = sim.draws[number]
    if draw.kind == at.CONSTANT:
        return draw.first
    u = uniform(np.int64(stream), sim)
    if draw.kind == at.EXPONENTIAL:
        return draws.exponential_ns(u, draw.first)
    return _other_duration_ns(draw, u, sim.tables, sim.values)


@called
def _other_duration_ns(draw: Record, u: float, tables: Records, values: Records) -> Int:
    if draw.kind == at.UNIFORM:
        return draws.uniform_ns(u, draw.first, draw.second)
    if draw.kind == at.LOGNORMAL:
        return draws.lognormal_ns(u, draw.first, draw.share)
    if draw.kind == at.PARETO:
        return draws.pareto_ns(u, draw.first, draw.share)
    return values[draw.first + _choose(u, tables, draw.first, draw.second)]


# --- contents of requests ------------------------------------------------------------------------


@inlined
def draw_combo(number: Int, sim: Simulation) -> Int:
    """Return the combo of a client's next request."""
    client = sim.clients[number]
    if client.combo >= 0:
        return np.int64(client.combo)
    return _draw_combo(number, sim)


@called
def _draw_combo(number: Int, sim: Simulation) -> Int:
    client = sim.clients[number]
    group = sim.groups[client.group]
    entry = key = address = np.int64(0)
    if client.mix_entries >= 0:
        entry = sim.values[client.mix_entries + client.serial - 1]
    elif group.mix_count > 1:
        u = uniform(np.int64(client.mix), sim)
        entry = _choose(u, sim.tables, group.mix_table, group.mix_count)
    if group.key_count > 1:
        key = client.key
        if group.key_deal == at.ROTATED_DEAL:
            client.key, key = key + 1, key % group.key_count
        elif group.key_deal != at.FIXED_DEAL:
            u = uniform(np.int64(client.key_stream), sim)
            key = _choose(u, sim.tables, group.key_table, group.key_count)
    if group.address_count > 1:
        address = client.address
        if group.address_deal == at.ROTATED_DEAL:
            client.address, address = address + 1, address % group.address_count
        elif group.address_deal != at.FIXED_DEAL:
            u = uniform(np.int64(client.address_stream), sim)
            address = _choose(u, sim.tables, group.address_table, group.address_count)
    combo = combo_of(number, entry, key, address, sim)
    if group.is_fixed:
        client.combo = combo
    return combo


@called
def combo_of(number: Int, entry: Int, key: Int, address: Int, sim: Simulation) -> Int:
    """Return the number of who asks for what; there must be room for a new one."""
    clock, group = sim.clock[0], sim.groups[sim.clients[number].group]
    keys = max(group.key_count, np.int64(1))
    combo = number_of(sim.combo_table, number, entry * keys + key, address, clock.combo_count)
    if combo < clock.combo_count:
        return combo
    clock.combo_count += 1
    new = sim.combos[combo]
    new.client, new.entry, new.key, new.address, new.parts = number, entry, key, address, 0
    key_number = kind = NONE
    if entry >= group.mix_count:
        kind = np.int64(sim.entries[group.first_entry + entry - group.mix_count].upload_kind)
    else:
        new.parts = sim.entries[group.first_entry + entry].parts
        kind = np.int64(sim.kinds[group.first_kind + entry * keys + key])
        if group.key_count:
            key_number = np.int64(sim.keys[group.first_key + key])
    ip = np.int64(sim.addresses[sim.clients[number].first_address + address])
    new.lane = lane_of(kind, key_number, ip, sim.limits)
    return combo


# --- arrivals ------------------------------------------------------------------------------------


@called
def next_arrival_ns(number: Int, sim: Simulation) -> Int:
    """Return when an open client's next request begins, `NEVER_NS` where none does."""
    client = sim.clients[number]
    group = sim.groups[client.group]
    if group.arrivals == at.POISSON_ARRIVALS:
        client.at_ns += draws.exponential_ns(uniform(np.int64(client.arrivals), sim), group.gap_on)
        return client.at_ns
    if group.arrivals == at.ON_OFF_ARRIVALS:
        return _next_burst_ns(client, group, sim)
    if group.arrivals == at.VARYING_ARRIVALS:
        return _next_varying_ns(client, group, sim)
    place = client.number
    client.number += 1
    if group.arrivals == at.EVEN_ARRIVALS:
        count, span_ns = group.arrive1, group.arrive2
        rest = place % count  # its product with `span_ns` might not fit into 64 bits
        of_rest_ns = rest * (span_ns // count) + rest * (span_ns % count) // count
        return client.begins_ns + place // count * span_ns + of_rest_ns
    if place < client.instant_count:
        return client.begins_ns + sim.values[client.instants + place]
    return np.int64(NEVER_NS)


@called
def _next_varying_ns(client: Record, group: Record, sim: Simulation) -> Int:
    """Return the next arrival of a varying rate (`simulator.traffic.sampling`)."""
    due = draws.exponential_area(uniform(np.int64(client.arrivals), sim))
    while client.number < group.arrive2:
        piece = sim.pieces[group.arrive1 + client.number]
        length_ns, low, high = piece[0], piece[1], piece[2]
        at_ns = draws.time_until(due, length_ns, low, high, client.passed)
        if at_ns is not None:
            client.passed = at_ns
            return client.begins_ns + draws.nearest_ns(at_ns)
        due = max(due - draws.requests_within(length_ns, low, high, client.passed), 0.0)
        client.passed = 0.0
        client.begins_ns += np.int64(length_ns)
        client.number += 1
    return np.int64(NEVER_NS)


@called
def _next_burst_ns(client: Record, group: Record, sim: Simulation) -> Int:
    """Return the next arrival of bursts; at a switch the gap is drawn anew."""
    while True:
        gap_ns = group.gap_on if client.is_on else group.gap_off
        if client.is_active:
            client.at_ns += draws.exponential_ns(uniform(np.int64(client.arrivals), sim), gap_ns)
        else:
            mean_ns = group.arrive1 if client.is_on else group.arrive2
            lasts_ns = draws.exponential_ns(uniform(np.int64(client.switches), sim), mean_ns)
            client.ends_ns = client.begins_ns + max(1, lasts_ns)
            client.at_ns = client.ends_ns
            if gap_ns > 0.0:
                u = uniform(np.int64(client.arrivals), sim)
                client.at_ns = client.begins_ns + draws.exponential_ns(u, gap_ns)
                client.is_active = 1
        if client.at_ns < client.ends_ns:
            return client.at_ns
        client.begins_ns = client.ends_ns
        client.is_on = 0 if client.is_on else 1
        client.is_active = 0
        if client.begins_ns >= group.stop_ns:
            return np.int64(NEVER_NS)
