"""One decision over the arrays of `Core`: what `engine.limits.limiter` does, in the same order.

Plain functions that numba compiles; the algorithms and the blocks are the interpreted limiter's
own. `find_lane` says which counters a request meets, `decide` tests them all and then charges them
all or none. Before each of them there must be room (`has_room`, `has_lane_room`).

A verdict is one number: 0 admitted, else 4 · (leg + 1) + outcome (`DELAYED`, `REFUSED`, `BLOCKED`).
Masks have a bit a place: `refusing` among the rules in force, `shadow` among those in shadow.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from engine.limits import algorithms
from engine.limits.algorithms import BASE, BLOCK, LAST, LIMIT, PLACE, READY
from engine.limits.compiled.core import (
    ALGORITHM,
    ALL,
    BLOCK_NS,
    BOUND_NS,
    CLEARS,
    COUNTERS,
    COUNTS_REFUSED,
    EXTENDS,
    FAMILY,
    FIRST_SLOTS,
    FIXED_WINDOW,
    FROM_NS,
    IN_FORCE,
    LANE_COUNTERS,
    LANES,
    LARGEST,
    LEG,
    LEG_BITS,
    LEG_MASK,
    LINE_WIDTH,
    MOST_LEGS,
    RING,
    RULE_WIDTH,
    SLIDING_COUNTER,
    SLIDING_LOG,
    Core,
)
from engine.limits.compiled.jit import inlined
from engine.limits.compiled.raw import moved, pointer

__all__ = [
    "BLOCKED",
    "DELAYED",
    "REFUSED",
    "SOURCES",
    "Int",
    "Pointer",
    "Raw",
    "decide",
    "find_lane",
    "has_lane_room",
    "has_room",
    "raw_of",
    "refill_tables",
]

Int: TypeAlias = Any
"""A whole number: of Python where a function is called there, of 64 bits once compiled."""

Pointer: TypeAlias = Any
"""What `engine.limits.compiled.raw.pointer` makes of an array."""

_Found: TypeAlias = tuple[Int, Int, Int, Int]

DELAYED: Final = 1
REFUSED: Final = 2
BLOCKED: Final = 3

_HERE: Final = Path(__file__).parent
SOURCES: Final = (
    Path(algorithms.__file__),
    _HERE / "core.py",
    _HERE / "deciding.py",
    _HERE / "raw.py",
)
"""The files whose code is in whatever calls these functions."""

# Odd constants with well-spread bits (2^64 / golden ratio and relatives), as signed numbers.
_MIX_1: Final = -7046029254386353131
_MIX_2: Final = -4658895280553007687
_MIX_3: Final = -7723592293110705685

_sliding_log = inlined(algorithms.charge_sliding_log)
_fixed_window = inlined(algorithms.charge_fixed_window)
_sliding_counter = inlined(algorithms.charge_sliding_counter)
_gcra = inlined(algorithms.charge_gcra)
_begin_or_extend_block = inlined(algorithms.begin_or_extend_block)


class Raw(NamedTuple):
    """A limiter's arrays as compiled code sees them: pointers, and what they have room for."""

    rules: Pointer
    class_legs: Pointer
    class_width: Int
    class_sizes: Pointer
    flags: Pointer
    used: Pointer
    blocked_ns: Pointer
    shadow_counts: Pointer
    lines: Pointer
    counter_room: Int
    counter_keys: Pointer
    counter_table: Pointer
    counter_mask: Int
    ring: Pointer
    ring_room: Int
    lanes: Pointer
    lane_width: Int
    lane_room: Int
    lane_table: Pointer
    lane_mask: Int


@inlined
def raw_of(core: Core) -> Raw:
    """Return the arrays as pointers; the caller keeps the arrays while it uses them."""
    return Raw(
        pointer(core.rules),
        pointer(core.class_legs),
        core.class_legs.shape[1],
        pointer(core.class_sizes),
        pointer(core.flags),
        pointer(core.used),
        pointer(core.blocked_ns),
        pointer(core.shadow_counts),
        pointer(core.lines),
        core.lines.shape[0],
        pointer(core.counter_keys),
        pointer(core.counter_table),
        core.counter_table.shape[0] - 1,
        pointer(core.ring),
        core.ring.shape[0],
        pointer(core.lanes),
        core.lanes.shape[1],
        core.lanes.shape[0],
        pointer(core.lane_table),
        core.lane_table.shape[0] - 1,
    )


@inlined
def _line(raw: Raw, counter: Int) -> Pointer:
    return moved(raw.lines, np.int64(counter) * LINE_WIDTH)


@inlined
def _rule(raw: Raw, leg: Int) -> Pointer:
    return moved(raw.rules, np.int64(leg) * RULE_WIDTH)


@inlined
def _lane(raw: Raw, lane: Int) -> Pointer:
    return moved(raw.lanes, np.int64(lane) * raw.lane_width)


@inlined
def _sizes(raw: Raw, kind: Int) -> Pointer:
    return moved(raw.class_sizes, np.int64(kind) * 2)


# --- finding counters ---------------------------------------------------------------------------


@inlined
def has_lane_room(raw: Raw) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether one more lane, with counters of its own, can be made."""
    used = raw.used
    return used[LANES] < raw.lane_room and used[COUNTERS] + raw.flags[MOST_LEGS] <= raw.counter_room


@inlined
def has_room(raw: Raw) -> Any:  # noqa: ANN401 # reason: as above
    """Whether one more request can be charged, whichever of its rings must grow."""
    used = raw.used
    largest = max(2 * used[LARGEST], FIRST_SLOTS)
    return used[RING] + raw.flags[MOST_LEGS] * largest <= raw.ring_room


@inlined
def _slot(a: Int, b: Int, c: Int, mask: Int) -> Int:
    """Return where a probe for three numbers begins."""
    mixed = np.int64(a) * _MIX_1 ^ np.int64(b) * _MIX_2 ^ np.int64(c) * _MIX_3
    return (mixed ^ (mixed >> 29) ^ (mixed >> 47)) & mask


@inlined
def _lane_slot(raw: Raw, kind: Int, key: Int, ip: Int, proxy: Int, host: Int) -> Int:
    """Return where a probe for a lane begins."""
    rest = np.int64(kind) + (np.int64(proxy) + 1 << 16) + (np.int64(host) + 1 << 40)
    return _slot(key, ip, rest, raw.lane_mask)


@inlined
def find_lane(raw: Raw, kind: Int, key: Int, ip: Int, proxy: Int, host: Int) -> Int:
    """Return the lane of a class, key, address, proxy key and host; −1 stands for none of them."""
    table = raw.lane_table
    mask = raw.lane_mask
    at = _lane_slot(raw, kind, key, ip, proxy, host)
    while table[at] >= 0:
        row = _lane(raw, table[at])
        if row[1] == key and row[2] == ip and row[0] == kind and row[3] == proxy and row[4] == host:
            return table[at]
        at = (at + 1) & mask
    number = raw.used[LANES]
    raw.used[LANES] = number + 1
    table[at] = number
    row = _lane(raw, number)
    row[0] = kind
    row[1] = key
    row[2] = ip
    row[3] = proxy
    row[4] = host
    for place in range(_sizes(raw, kind)[ALL]):
        leg = raw.class_legs[kind * raw.class_width + place]
        row[LANE_COUNTERS + place] = _find_counter(raw, leg, key, ip, proxy, host)
    return number


@inlined
def _find_counter(raw: Raw, leg: Int, key: Int, ip: Int, proxy: Int, host: Int) -> Int:
    """Return the counter of a leg that such a request meets, a fresh one where there is none."""
    family = _rule(raw, leg)[FAMILY]
    first, second = ip, key  # as `counter_keys` orders them
    if family == 1:
        first, second = -1, key
    elif family == 2:
        first, second = ip, -1
    elif family == 3:
        first, second = ip, proxy
    elif family == 4:
        first, second = ip, host
    table, keys = raw.counter_table, raw.counter_keys
    mask = raw.counter_mask
    at = _slot(first, second, leg, mask)
    while table[at] >= 0:
        found = table[at]
        known = moved(keys, np.int64(found) * 3)
        if known[0] == leg and known[1] == first and known[2] == second:
            return found
        at = (at + 1) & mask
    number = raw.used[COUNTERS]
    raw.used[COUNTERS] = number + 1
    table[at] = number
    known = moved(keys, number * 3)
    known[0] = leg
    known[1] = first
    known[2] = second
    _line(raw, number)[LEG] = leg
    return number


@inlined
def refill_tables(raw: Raw) -> None:
    """Fill both hash tables, which are empty, with what is there."""
    for number in range(raw.used[LANES]):
        row = _lane(raw, number)
        at = _lane_slot(raw, row[0], row[1], row[2], row[3], row[4])
        while raw.lane_table[at] >= 0:
            at = (at + 1) & raw.lane_mask
        raw.lane_table[at] = number
    for number in range(raw.used[COUNTERS]):
        known = moved(raw.counter_keys, number * 3)
        at = _slot(known[1], known[2], known[0], raw.counter_mask)
        while raw.counter_table[at] >= 0:
            at = (at + 1) & raw.counter_mask
        raw.counter_table[at] = number


# --- charging -----------------------------------------------------------------------------------


@inlined
def _charge(raw: Raw, counter: Int, t_ns: Int) -> None:
    """Charge one request to a counter, in a larger ring where its own is full."""
    line = _line(raw, counter)
    rule = _rule(raw, line[LEG] & LEG_MASK)
    algorithm = rule[ALGORITHM]
    if algorithm == SLIDING_LOG:
        if line[PLACE] == line[LEG] >> LEG_BITS:
            _grow_ring(raw, line, rule[LIMIT])
        _sliding_log(line, raw.ring, rule, t_ns)
    elif algorithm == FIXED_WINDOW:
        _fixed_window(line, raw.ring, rule, t_ns)
    elif algorithm == SLIDING_COUNTER:
        _sliding_counter(line, raw.ring, rule, t_ns)
    else:
        _gcra(line, raw.ring, rule, t_ns)


def _grow_ring(raw: Raw, line: Pointer, limit: Int) -> None:
    """Move a ring to where it has twice the slots, at most `limit`."""
    used, ring = raw.used, raw.ring
    slots = line[LEG] >> LEG_BITS
    more = min(limit, max(2 * slots, FIRST_SLOTS))
    base = used[RING]
    for slot in range(slots):
        ring[base + slot] = ring[line[BASE] + slot]
    used[RING] = base + more
    used[LARGEST] = max(used[LARGEST], more)
    line[BASE] = base
    line[LEG] = (line[LEG] & LEG_MASK) | more << LEG_BITS


_grow_ring = inlined(_grow_ring)


@inlined
def _charge_refused(raw: Raw, counter: Int, now_ns: Int) -> None:
    """Charge a request that was refused (D-COUNT all)."""
    line = _line(raw, counter)
    if raw.flags[CLEARS] and line[BLOCK] > now_ns:
        return
    _charge(raw, counter, max(now_ns, line[LAST]))
    line[READY] = max(line[READY], line[BLOCK])


# --- deciding -----------------------------------------------------------------------------------


@inlined
def decide(raw: Raw, now_ns: Int, lane: Int) -> _Found:
    """Decide about one request of a lane; return verdict, wait_ns, refusing and shadow."""
    row = _lane(raw, lane)
    sizes = _sizes(raw, row[0])
    in_force = sizes[IN_FORCE]
    for place in range(LANE_COUNTERS, LANE_COUNTERS + in_force):
        if _line(raw, row[place])[READY] > now_ns:
            return _beyond(raw, now_ns, lane)
    if sizes[ALL] > in_force:
        return _admit(raw, now_ns, now_ns, lane)
    for place in range(LANE_COUNTERS, LANE_COUNTERS + in_force):
        _charge(raw, row[place], now_ns)
    return 0, 0, 0, 0


def _beyond(raw: Raw, now_ns: Int, lane: Int) -> _Found:
    """Decide where at least one counter is not ready: delay or refuse."""
    row = _lane(raw, lane)
    release_ns = now_ns
    refusing = np.int64(0)
    for place in range(_sizes(raw, row[0])[IN_FORCE]):
        counter = row[LANE_COUNTERS + place]
        line = _line(raw, counter)
        if line[READY] <= now_ns:
            continue
        if line[BLOCK] > now_ns and not raw.flags[EXTENDS]:
            refusing |= np.int64(1) << place
            continue
        ready_ns = _release_ns(raw, now_ns, counter)
        if ready_ns < 0:
            refusing |= np.int64(1) << place
        elif ready_ns > release_ns:
            release_ns = ready_ns
    if refusing:
        return _refuse(raw, now_ns, lane, refusing)
    return _admit(raw, now_ns, release_ns, lane)


@inlined
def _release_ns(raw: Raw, now_ns: Int, counter: Int) -> Int:
    """Return when a counter would let the request go, −1 when its rule refuses it."""
    line = _line(raw, counter)
    leg = line[LEG] & LEG_MASK
    block_ns = _rule(raw, leg)[BLOCK_NS]
    ready_ns = line[READY]
    if not block_ns:
        return ready_ns if ready_ns - now_ns <= raw.flags[BOUND_NS] else -1
    begins = line[BLOCK] <= now_ns
    if begins and ready_ns <= max(now_ns, line[LAST]):
        return max(now_ns, line[LAST])
    extends = raw.flags[EXTENDS] != 0
    if begins or extends:
        raw.blocked_ns[leg] += _begin_or_extend_block(
            line, now_ns, block_ns, extends, raw.flags[CLEARS] != 0
        )
    return -1


def _refuse(raw: Raw, now_ns: Int, lane: Int, refusing: Int) -> _Found:
    row = _lane(raw, lane)
    sizes = _sizes(raw, row[0])
    shadow = _judge_shadow(raw, now_ns, lane)
    if raw.flags[COUNTS_REFUSED]:
        for place in range(sizes[ALL]):
            _charge_refused(raw, row[LANE_COUNTERS + place], now_ns)
    wait_ns, decider, blocks = np.int64(-1) << 62, np.int64(-1), False
    for place in range(sizes[IN_FORCE]):
        if not refusing >> place & 1:
            continue
        line = _line(raw, row[LANE_COUNTERS + place])
        leg = line[LEG] & LEG_MASK
        its_block = _rule(raw, leg)[BLOCK_NS] > 0
        its_ns = line[READY] - now_ns
        if not its_block:
            its_ns -= raw.flags[BOUND_NS]
        if its_ns > wait_ns or (its_ns == wait_ns and its_block and not blocks):
            wait_ns, decider, blocks = its_ns, leg, its_block
    outcome = BLOCKED if blocks else REFUSED
    return 4 * (decider + 1) + outcome, wait_ns, refusing, shadow


@inlined
def _admit(raw: Raw, now_ns: Int, release_ns: Int, lane: Int) -> _Found:
    """Charge an admitted request at its release."""
    row = _lane(raw, lane)
    sizes = _sizes(raw, row[0])
    verdict = np.int64(0)
    if release_ns > now_ns:
        verdict = 4 * (_delayer(raw, now_ns, lane) + 1) + DELAYED
    shadow = _judge_shadow(raw, now_ns, lane)
    for place in range(sizes[ALL]):
        counter = row[LANE_COUNTERS + place]
        line = _line(raw, counter)
        at_ns = release_ns
        if place >= sizes[IN_FORCE]:
            if shadow >> (place - sizes[IN_FORCE]) & 1:
                if raw.flags[COUNTS_REFUSED]:
                    _charge_refused(raw, counter, now_ns)
                continue
            at_ns = max(release_ns, line[READY])
        _charge(raw, counter, at_ns)
        line[LAST] = at_ns
    return verdict, release_ns - now_ns, 0, shadow


@inlined
def _judge_shadow(raw: Raw, now_ns: Int, lane: Int) -> Int:
    """Return the rules in shadow that would refuse, and begin their blocks."""
    row = _lane(raw, lane)
    sizes = _sizes(raw, row[0])
    shadow = np.int64(0)
    for place in range(sizes[IN_FORCE], sizes[ALL]):
        counter = row[LANE_COUNTERS + place]
        if _release_ns(raw, now_ns, counter) < 0:
            shadow |= np.int64(1) << (place - sizes[IN_FORCE])
            if now_ns >= raw.flags[FROM_NS]:
                raw.shadow_counts[_line(raw, counter)[LEG] & LEG_MASK] += 1
    return shadow


@inlined
def _delayer(raw: Raw, now_ns: Int, lane: Int) -> Int:
    """Return the leg that delays the most (D-DECIDER)."""
    row = _lane(raw, lane)
    latest_ns, decider, blocks = np.int64(-1), np.int64(-1), False
    for place in range(_sizes(raw, row[0])[IN_FORCE]):
        line = _line(raw, row[LANE_COUNTERS + place])
        leg = line[LEG] & LEG_MASK
        its_block = _rule(raw, leg)[BLOCK_NS] > 0
        its_ns = max(now_ns, line[LAST] if its_block else line[READY])
        if its_ns > latest_ns or (its_ns == latest_ns and its_block and not blocks):
            latest_ns, decider, blocks = its_ns, leg, its_block
    return decider


_refuse = inlined(_refuse)
_beyond = inlined(_beyond)
