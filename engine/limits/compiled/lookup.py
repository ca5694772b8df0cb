"""The limiter's arrays as compiled code sees them, and how a request finds its counters."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from engine.limits import nodes, subject
from engine.limits.compiled import algorithms
from engine.limits.compiled import core as at
from engine.limits.compiled.core import Core, joined, most_slots
from engine.limits.compiled.jit import called, inlined, moved, pointer, prefetch

Int: TypeAlias = Any
"""A whole number: of Python where a function is called there, of 64 bits once compiled."""

Pointer: TypeAlias = Any
"""What `engine.limits.compiled.jit.pointer` makes of an array."""

Line: TypeAlias = Any
"""A counter's line (`engine.limits.compiled.core`)."""

_HERE: Final = Path(__file__).parent
SOURCES: Final = (
    Path(algorithms.__file__),
    Path(nodes.__file__),
    Path(subject.__file__),
    _HERE / "composition.py",
    _HERE / "core.py",
    _HERE / "jit.py",
    _HERE / "lookup.py",
    _HERE / "nodes.py",
)
"""The source files of the compiled decision code."""

_UNREAD: Final = {at.FROM_NS, at.MOST_LEGS, at.GROWS, at.SETS, at.MOST_SLOTS}
PLAIN: Final = (0,) * at.FLAGS
"""The flags of a limiter that never delays, counts what it admits and has no rule in shadow."""

# Odd constants with well-spread bits (2^64 / golden ratio and relatives), as signed numbers.
MIX_1: Final = -7046029254386353131
MIX_2: Final = -4658895280553007687


_most_slots = inlined(most_slots)


class Raw(NamedTuple):
    """A limiter's arrays as compiled code sees them: pointers, and what they have room for.

    Where every flag is known to be zero, `flags` is the constant `PLAIN`: then the compiler leaves
    out what only other profiles need.
    """

    rules: Pointer
    class_legs: Pointer
    class_width: Int
    class_sizes: Pointer
    flags: Pointer
    used: Pointer
    shadow_counts: Pointer
    lines: Pointer
    lines_apart: Pointer
    counter_room: Int
    counter_table: Pointer
    counter_mask: Int
    ring: Pointer
    ring_room: Int
    lanes: Pointer
    lane_width: Int
    lane_room: Int
    lane_others: Pointer
    lane_table: Pointer
    lane_mask: Int
    histories: Pointer
    events: Pointer
    event_room: Int
    saved: Pointer


@inlined
def raw_of(core: Core) -> Raw:
    """Return the arrays as pointers; the caller keeps the arrays while it uses them."""
    return _raw_with(core, pointer(core.flags))


@inlined
def plain_raw_of(core: Core) -> Raw:
    """Return the pointers for a limiter with `is_plain`: same decisions, faster code."""
    return _raw_with(core, PLAIN)


def is_plain(core: Core) -> bool:
    """Whether the fast path applies."""
    return not any(core.flags[flag] for flag in range(at.FLAGS) if flag not in _UNREAD)


@inlined
def _raw_with(core: Core, flags: Any) -> Raw:  # noqa: ANN401 # reason: a pointer, or constants
    return Raw(
        pointer(core.rules),
        pointer(core.class_legs),
        core.class_legs.shape[1],
        pointer(core.class_sizes),
        flags,
        pointer(core.used),
        pointer(core.shadow_counts),
        pointer(core.lines),
        pointer(core.lines_apart),
        core.lines.shape[0],
        pointer(core.counter_table),
        core.counter_table.shape[0] - 1,
        pointer(core.ring),
        core.ring.shape[0],
        pointer(core.lanes),
        core.lanes.shape[1],
        core.lanes.shape[0],
        pointer(core.lane_others),
        pointer(core.lane_table),
        core.lane_table.shape[0] - 1,
        pointer(core.histories),
        pointer(core.events),
        core.events.shape[0],
        pointer(core.saved),
    )


def rows_of(array: Callable[[Any], Pointer], width: int) -> Callable[[Any, Int], Pointer]:
    """Return the function that gives a row of an array of `Raw`, or the like, by its number."""
    whole = inlined(array)

    @inlined
    def row(raw: Any, number: Int) -> Pointer:  # noqa: ANN401 # reason: whoever holds the array
        return moved(whole(raw), np.int64(number) * width)

    return row


rule_of: Final = rows_of(lambda raw: raw.rules, at.RULE_WIDTH)
sizes_of: Final = rows_of(lambda raw: raw.class_sizes, at.CLASS_SIZES)
others_of: Final = rows_of(lambda raw: raw.lane_others, at.OTHERS)


@inlined
def line_of(raw: Raw, counter: Int) -> Line:
    """Return a counter's line."""
    place = np.int64(counter) * at.LINE_WIDTH
    return joined(moved(raw.lines, place), moved(raw.lines_apart, place))


@inlined
def lane_row(raw: Raw, lane: Int) -> Pointer:
    """Return a lane's row."""
    return moved(raw.lanes, np.int64(lane) * raw.lane_width)


@inlined
def legs_of(raw: Raw, kind: Int) -> Pointer:
    """Return the legs of a class, those in force before those in shadow."""
    return moved(raw.class_legs, np.int64(kind) * raw.class_width)


@inlined
def has_lane_room(raw: Raw) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether one more lane a set, with counters of its own, can be made."""
    used, sets = raw.used, raw.flags[at.SETS]
    counters = used[at.COUNTERS] + sets * raw.flags[at.MOST_LEGS]
    return used[at.LANES] + sets <= raw.lane_room and counters <= raw.counter_room


@inlined
def has_room(raw: Raw) -> Any:  # noqa: ANN401 # reason: as above
    """Whether one more request can be charged, whichever of its rings must grow."""
    used = raw.used
    largest = max(2 * used[at.LARGEST], at.FIRST_SLOTS)
    if raw.flags[at.KNOWS] != at.ALONE:
        largest = at.NODE_RINGS * _most_slots(
            raw.flags[at.MOST_SLOTS], used[at.LARGEST], used[at.EVENTS]
        )
        if used[at.EVENTS] + 2 * at.MOST_RULES > raw.event_room:
            return False
    return used[at.SLOTS] + raw.flags[at.MOST_LEGS] * largest <= raw.ring_room


@inlined
def first_slot(a: Int, b: Int, c: Int, mask: Int) -> Int:
    """Return where a probe for three numbers begins."""
    mixed = (np.int64(a) + (np.int64(b) << 32)) * MIX_1 ^ np.int64(c) * MIX_2
    return (mixed ^ (mixed >> 29) ^ (mixed >> 47)) & mask


@inlined
def _is(slot: Pointer, a: Int, b: Int, c: Int) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether a slot stands for three numbers."""
    return slot[1] == a and slot[2] == b and slot[3] == c


@inlined
def fill_slot(slot: Pointer, found: Int, a: Int, b: Int, c: Int) -> None:
    """Let a slot stand for three numbers."""
    slot[0] = found
    slot[1] = a
    slot[2] = b
    slot[3] = c


@inlined
def find_lane(raw: Raw, kind: Int, key: Int, ip: Int, others: Pointer) -> Int:
    """Return the lane of a class, key, address and `OTHERS` other parts; −1 = none of them."""
    # A lane with other parts has them in `lane_others`, and its class below −1.
    tag = -2 - kind if _has_any(others) else kind
    probe = first_slot(key, ip, tag, raw.lane_mask)
    while True:
        slot = moved(raw.lane_table, probe * at.SLOT_WIDTH)
        found = slot[0]
        if found < 0:
            return _new_lane(raw, slot, kind, key, ip, others)
        if _is(slot, tag, key, ip) and (tag >= 0 or _has(raw, found, others)):
            return np.int64(found)
        probe = (probe + 1) & raw.lane_mask


@inlined
def _has_any(others: Pointer) -> Any:  # noqa: ANN401 # reason: a truth value of the machine's
    """Whether a request carries more than key and address."""
    found = False
    for place in range(at.OTHERS):
        found |= others[place] >= 0
    return found


@inlined
def _has(raw: Raw, lane: Int, others: Pointer) -> Any:  # noqa: ANN401 # reason: as above
    """Whether a lane has these other parts."""
    own = others_of(raw, lane)
    same = True
    for place in range(at.OTHERS):
        same &= own[place] == others[place]
    return same


@called
def _new_lane(raw: Raw, slot: Pointer, kind: Int, key: Int, ip: Int, others: Pointer) -> Int:
    """Make a lane in a free slot."""
    number = raw.used[at.LANES]
    raw.used[at.LANES] = number + 1
    fill_slot(slot, number, -2 - kind if _has_any(others) else kind, key, ip)
    own = others_of(raw, number)
    for place in range(at.OTHERS):
        own[place] = others[place]
    row = lane_row(raw, number)
    row[0] = kind
    legs = legs_of(raw, kind)
    count = sizes_of(raw, kind)[at.ALL]
    for place in range(count):
        leg = legs[place]
        first, second = _counted_by(raw, leg, key, ip, others)
        prefetch(
            moved(
                raw.counter_table, first_slot(first, second, leg, raw.counter_mask) * at.SLOT_WIDTH
            )
        )
    for place in range(count):
        leg = legs[place]
        first, second = _counted_by(raw, leg, key, ip, others)
        row[at.LANE_COUNTERS + place] = _find_counter(raw, leg, first, second)
    return number


@inlined
def _counted_by(raw: Raw, leg: Int, key: Int, ip: Int, others: Pointer) -> tuple[Int, Int]:
    """Return the two numbers that identify a counter of a leg."""
    rule = rule_of(raw, leg)
    return _part(rule[at.FIRST_PART], key, ip, others), _part(rule[at.SECOND_PART], key, ip, others)


@inlined
def _part(place: Int, key: Int, ip: Int, others: Pointer) -> Int:
    """Return a request's number for a place in `KEY_FIELDS`."""
    if place == at.IP:
        return np.int64(ip)
    if place == at.KEY:
        return np.int64(key)
    return np.int64(at.NONE) if place < 0 else np.int64(others[place - at.FIRST_OTHER])


@inlined
def _find_counter(raw: Raw, leg: Int, first: Int, second: Int) -> Int:
    """Return a leg's counter for two numbers; make it if there is none."""
    probe = first_slot(first, second, leg, raw.counter_mask)
    while True:
        slot = moved(raw.counter_table, probe * at.SLOT_WIDTH)
        if slot[0] < 0:
            break
        if _is(slot, leg, first, second):
            return np.int64(slot[0])
        probe = (probe + 1) & raw.counter_mask
    number = raw.used[at.COUNTERS]
    raw.used[at.COUNTERS] = number + 1
    fill_slot(slot, number, leg, first, second)
    line_of(raw, number)[at.LEG] = leg
    return number
