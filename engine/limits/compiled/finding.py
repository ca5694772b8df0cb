"""The limiter's arrays as compiled code sees them, and how a request finds its counters."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from engine.limits import algorithms
from engine.limits.compiled.core import (
    ALL,
    COUNTERS,
    FAMILY,
    FIRST_SLOTS,
    LANE_COUNTERS,
    LANES,
    LARGEST,
    LEG,
    LINE_WIDTH,
    MOST_LEGS,
    RING,
    RULE_WIDTH,
    Core,
)
from engine.limits.compiled.jit import called, inlined
from engine.limits.compiled.raw import moved, pointer

__all__ = [
    "SOURCES",
    "Int",
    "Pointer",
    "Raw",
    "find_lane",
    "has_lane_room",
    "has_room",
    "lane_row",
    "line_of",
    "raw_of",
    "refill_tables",
    "rule_of",
    "sizes_of",
]

Int: TypeAlias = Any
"""A whole number: of Python where a function is called there, of 64 bits once compiled."""

Pointer: TypeAlias = Any
"""What `engine.limits.compiled.raw.pointer` makes of an array."""

_HERE: Final = Path(__file__).parent
SOURCES: Final = (
    Path(algorithms.__file__),
    _HERE / "core.py",
    _HERE / "deciding.py",
    _HERE / "finding.py",
    _HERE / "raw.py",
)
"""The files whose code is in whatever decides."""

# Odd constants with well-spread bits (2^64 / golden ratio and relatives), as signed numbers.
_MIX_1: Final = -7046029254386353131
_MIX_2: Final = -4658895280553007687
_MIX_3: Final = -7723592293110705685


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
def line_of(raw: Raw, counter: Int) -> Pointer:
    """Return a counter's line."""
    return moved(raw.lines, np.int64(counter) * LINE_WIDTH)


@inlined
def rule_of(raw: Raw, leg: Int) -> Pointer:
    """Return the row of a leg's rule."""
    return moved(raw.rules, np.int64(leg) * RULE_WIDTH)


@inlined
def lane_row(raw: Raw, lane: Int) -> Pointer:
    """Return a lane's row."""
    return moved(raw.lanes, np.int64(lane) * raw.lane_width)


@inlined
def sizes_of(raw: Raw, kind: Int) -> Pointer:
    """Return how many legs a class has."""
    return moved(raw.class_sizes, np.int64(kind) * 2)


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


@called
def find_lane(raw: Raw, kind: Int, key: Int, ip: Int, proxy: Int, host: Int) -> Int:
    """Return the lane of a class, key, address, proxy key and host; −1 stands for none of them."""
    table = raw.lane_table
    mask = raw.lane_mask
    at = _lane_slot(raw, kind, key, ip, proxy, host)
    while table[at] >= 0:
        row = lane_row(raw, table[at])
        if row[1] == key and row[2] == ip and row[0] == kind and row[3] == proxy and row[4] == host:
            return table[at]
        at = (at + 1) & mask
    number = raw.used[LANES]
    raw.used[LANES] = number + 1
    table[at] = number
    row = lane_row(raw, number)
    row[0] = kind
    row[1] = key
    row[2] = ip
    row[3] = proxy
    row[4] = host
    for place in range(sizes_of(raw, kind)[ALL]):
        leg = raw.class_legs[kind * raw.class_width + place]
        row[LANE_COUNTERS + place] = _find_counter(raw, leg, key, ip, proxy, host)
    return number


@inlined
def _find_counter(raw: Raw, leg: Int, key: Int, ip: Int, proxy: Int, host: Int) -> Int:
    """Return the counter of a leg that such a request meets, a fresh one where there is none."""
    family = rule_of(raw, leg)[FAMILY]
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
    line_of(raw, number)[LEG] = leg
    return number


@called
def refill_tables(raw: Raw) -> None:
    """Fill both hash tables, which are empty, with what is there."""
    for number in range(raw.used[LANES]):
        row = lane_row(raw, number)
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
