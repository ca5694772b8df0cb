"""Random numbers, draws, requests of a client and arrivals, in compiled code.

The formulas of `simulator.traffic` are compiled from their own source, so a draw is one function
for both fidelities. Philox's words are computed here block by block (numpy's come from its own C
code); the definition, `tests.oracles.streams`, is what tests hold both to.

A *stream* is a row of `STREAM_WIDTH` words: key, block's number, words used, the block.
A *draw* is a row of `DRAW_WIDTH` integers and one of floats (`simulator.scenario.draws`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
from numba import types
from numba.extending import intrinsic

from engine.limits.compiled.core import SETS
from engine.limits.compiled.jit import called, inlined, moved
from engine.limits.compiled.lookup import MIX_1, MIX_2, Int, Pointer, find_lane
from engine.limits.nodes import BY_NAME
from simulator.play.compiled import layout as at
from simulator.play.compiled.state import RawSim, client_row, combo_row, group_row
from simulator.traffic import arrivals, draws
from simulator.traffic.arrivals import Process

_KEY_0, _KEY_1, _BLOCK, _USED, _WORDS = 0, 1, 2, 3, 4

DRAW_WIDTH: Final = 4
KIND: Final = 0
FIRST: Final = 1  # low, mean, median, least, value; a discrete draw's first place in the tables
SECOND: Final = 2  # high; how many values
CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL, PARETO, DISCRETE = range(6)

_ROUNDS: Final = 10
_M0, _M1 = np.uint64(0xD2E7470EE14C6C93), np.uint64(0xCA5A826395121157)
_W0, _W1 = np.uint64(0x9E3779B97F4A7C15), np.uint64(0xBB67AE8584CAA73B)
_ONE: Final = np.uint64(1)
_LOW_BITS: Final = np.uint64(12)

nearest_ns = inlined(draws.nearest_ns)
uniform_ns = inlined(draws.uniform_ns)
exponential_ns = inlined(draws.exponential_ns)
raise_e = inlined(draws.raise_e)
_rational = inlined(draws._rational)  # noqa: SLF001 # reason: compiled code needs every callee
normal = inlined(draws.normal)
lognormal_ns = inlined(draws.lognormal_ns)
pareto_ns = inlined(draws.pareto_ns)


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def _high_word(typing_context: Any, one: Any, other: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return the upper 64 bits of a product of two words."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        from llvmlite import ir  # noqa: PLC0415 # reason: only where code is generated

        wide = ir.IntType(128)
        product = builder.mul(builder.zext(args[0], wide), builder.zext(args[1], wide))
        shifted = builder.lshr(product, ir.Constant(wide, 64))
        return builder.trunc(shifted, ir.IntType(64))

    return types.uint64(types.uint64, types.uint64), generate


@called
def _refill(stream: Pointer) -> None:
    """Compute the stream's next block of four words."""
    stream[_BLOCK] += _ONE
    c0, c1, c2, c3 = stream[_BLOCK], np.uint64(0), np.uint64(0), np.uint64(0)
    k0, k1 = stream[_KEY_0], stream[_KEY_1]
    for _ in range(_ROUNDS):
        h0, l0 = _high_word(c0, _M0), c0 * _M0
        h1, l1 = _high_word(c2, _M1), c2 * _M1
        c0, c1, c2, c3 = h1 ^ c1 ^ k0, l1, h0 ^ c3 ^ k1, l0
        k0 += _W0
        k1 += _W1
    stream[_WORDS] = c0
    stream[_WORDS + 1] = c1
    stream[_WORDS + 2] = c2
    stream[_WORDS + 3] = c3
    stream[_USED] = np.uint64(0)


@inlined
def uniform(streams: Pointer, number: Int) -> float:
    """Return a stream's next number in (0, 1), as `Stream.uniform` does."""
    stream = moved(streams, np.int64(number) * at.STREAM_WIDTH)
    if stream[_USED] == np.uint64(4):
        _refill(stream)
    used = np.int64(stream[_USED])
    stream[_USED] = np.uint64(used + 1)
    return (np.float64(stream[_WORDS + used] >> _LOW_BITS) + 0.5) * draws.UNIT


@inlined
def choose(u: float, tables: Pointer, first: Int, count: Int) -> Int:
    """Return `draws.categorical` of `count` cumulative weights that begin at `first`."""
    cumulative = moved(tables, np.int64(first))
    wanted = u * cumulative[count - 1]
    low, high = np.int64(0), np.int64(count)
    while low < high:
        middle = (low + high) // 2
        if wanted < cumulative[middle]:
            high = middle
        else:
            low = middle + 1
    return min(low, np.int64(count) - 1)


@inlined
def draw_ns(draw: Pointer, share: float, u: float, values: Pointer, tables: Pointer) -> Int:
    """Return one draw; share is sigma or alpha, where it has one."""
    kind = draw[KIND]
    if kind == EXPONENTIAL:
        return exponential_ns(u, draw[FIRST])
    if kind == UNIFORM:
        return uniform_ns(u, draw[FIRST], draw[SECOND])
    if kind == LOGNORMAL:
        return lognormal_ns(u, draw[FIRST], share)
    if kind == PARETO:
        return pareto_ns(u, draw[FIRST], share)
    return values[draw[FIRST] + choose(u, tables, draw[FIRST], draw[SECOND])]


_area = inlined(arrivals._area)  # noqa: SLF001 # reason: compiled code needs every callee
_distance = inlined(arrivals._distance)  # noqa: SLF001 # reason: as above
_next_burst_ns = called(arrivals.next_burst_ns)
_next_varying_ns = called(arrivals.next_varying_ns)
_next_arrival_ns = inlined(arrivals.next_arrival_ns)


# --- what is drawn ------------------------------------------------------------------------------


@called
def drawn_ns(sim: RawSim, draw: Int, stream: Int) -> Int:
    """Return the next duration of a distribution; a constant draws nothing."""
    row = moved(sim.draws, np.int64(draw) * DRAW_WIDTH)
    if not row[0]:
        return row[1]
    return draw_ns(row, sim.shares[draw], uniform(sim.streams, stream), sim.values, sim.tables)


@inlined
def _dealt(sim: RawSim, client: Pointer, dealing: Pointer, place: Int, stream: Int) -> Int:
    """Return the member of a pool that the next request gets; `place` is where the client is."""
    count, deal = dealing[at.DEAL_COUNT], dealing[at.DEAL_KIND]
    if count <= 1:
        return np.int64(0)
    if deal == at.FIXED:
        return client[place]
    if deal == at.ROTATED:
        found = client[place]
        client[place] = found + 1
        return found % count
    return choose(uniform(sim.streams, stream), sim.tables, dealing[at.DEAL_TABLE], count)


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
    keys, addresses = moved(group, at.G_KEY_COUNT), moved(group, at.G_ADDRESS_COUNT)
    key = _dealt(sim, client, keys, at.C_KEY, client[at.C_KEYS])
    address = _dealt(sim, client, addresses, at.C_ADDRESS, client[at.C_ADDRESS_STREAM])
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


@inlined
def _first_slot(sim: RawSim, number: Int, entry: Int, key: Int, address: Int) -> Int:
    """Return the slot of the table at which the search for a combo begins."""
    mixed = (number * 31 + entry) * MIX_1 + (key * 8191 + address) * MIX_2
    return (mixed ^ (mixed >> 31)) & sim.combo_mask


@called
def place_combos(sim: RawSim) -> None:
    """Put every combo into the table again, which may be a larger one."""
    for slot in range(sim.combo_mask + 1):
        sim.combo_table[slot] = at.NONE
    for number in range(sim.clock[at.COMBO_COUNT]):
        row = combo_row(sim, number)
        client, entry = np.int64(row[at.O_CLIENT]), np.int64(row[at.O_ENTRY])
        key, address = np.int64(row[at.O_KEY]), np.int64(row[at.O_ADDRESS])
        slot = _first_slot(sim, client, entry, key, address)
        while sim.combo_table[slot] >= 0:
            slot = (slot + 1) & sim.combo_mask
        sim.combo_table[slot] = number


@called
def _combo(sim: RawSim, number: Int, entry: Int, key: Int, address: Int) -> Int:
    """Return the number of a client's combo, a new one where it is new."""
    slot = _first_slot(sim, number, entry, key, address)
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
        row[at.O_HOME] = _home(sim, np.int64(at.NONE), ip)
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
    row[at.O_HOME] = _home(sim, key_number, ip)


@inlined
def _kind_row(sim: RawSim, group: Pointer, place: Int) -> Pointer:
    """Return the row of one of a group's entries with one of its keys."""
    return moved(sim.kinds, np.int64(group[at.G_KINDS] + place) * at.KIND_WIDTH)


@called
def _lane(sim: RawSim, kind: Int, key: Int, ip: Int, others: Pointer) -> Int:
    """Return the lane of the first set of counters; those of the others follow it."""
    first = np.int64(find_lane(sim.limits, kind, key, ip, others))
    for number in range(1, sim.limits.flags[SETS]):
        find_lane(sim.limits, kind + number, key, ip, others)
    return first


@inlined
def _home(sim: RawSim, key: Int, ip: Int) -> Int:
    """Return the node to which a balancer sends a key, or an address where keys do not count."""
    clock = sim.clock
    if clock[at.BALANCE] != BY_NAME:
        return np.int64(0)
    if key >= 0 and clock[at.HOME_KEYS]:
        return np.int64(sim.homes[key])
    return np.int64(sim.homes[clock[at.HOME_KEYS] + ip])


# --- arrivals -----------------------------------------------------------------------------------


@inlined
def next_arrival_ns(sim: RawSim, number: Int) -> Int:
    """Return when an open client's next request begins."""
    client = client_row(sim, number)
    group = group_row(sim, client)
    gaps_ns = moved(sim.group_gaps, client[at.C_GROUP] * at.GAPS_WIDTH)
    kind, rule = group[at.G_ARRIVALS], moved(group, at.G_ARRIVE_1)
    process = Process(kind, rule, gaps_ns, sim.pieces, sim.values, client[at.C_STOP])
    state = moved(sim.passed, np.int64(number))
    return _next_arrival_ns(uniform, sim.streams, process, moved(client, at.C_ARRIVALS), state)
