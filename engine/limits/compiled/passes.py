"""The compiled passes over rows; `engine.limits.compiled.limiter` says what they are for."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from engine.limits.compiled.core import ALL, LANE_COUNTERS, OTHERS, Core
from engine.limits.compiled.deciding import decide, move_ring, slots_short
from engine.limits.compiled.finding import (
    SOURCES,
    Int,
    Raw,
    fill_table,
    find_lane,
    has_lane_room,
    lane_row,
    line_of,
    plain_raw_of,
    raw_of,
    sizes_of,
)
from engine.limits.compiled.jit import Jit, inlined
from engine.limits.compiled.line import LINE_WIDTH
from engine.limits.compiled.raw import moved, pointer, prefetch

__all__ = [
    "JIT",
    "copy_table",
    "count_rows",
    "decide_plain_rows",
    "decide_rows",
    "find_rows",
    "reserve_slots",
]

Array: TypeAlias = np.ndarray[Any, Any]

_LANES_AHEAD: Final = 16
_LINES_AHEAD: Final = 8
_LINES_FETCHED: Final = 6

JIT: Final = Jit("compiled limiter", (*SOURCES, Path(__file__)))


@JIT.compiled
def find_rows(
    core: Core,
    first: int,
    kind: Array,
    key: Array,
    ip: Array,
    others: Array,
    lane: Array,
) -> int:
    """Find the lanes of rows from `first` on; return the first row without room for its lane.

    others: a row a request, or one row for all of them.
    """
    raw = raw_of(core)
    step = OTHERS if len(others) == len(kind) else 0
    for row in range(first, len(kind)):
        if not has_lane_room(raw):
            return row
        lane[row] = find_lane(
            raw,
            int(kind[row]),
            int(key[row]),
            int(ip[row]),
            moved(pointer(others), row * step),
        )
    return len(kind)


@JIT.compiled
def count_rows(core: Core, lane: Array, now_ns: int, asked: Array, need: Array) -> int:
    """Return how many slots the rings lack in total, and set `need` to each ring's number.

    now_ns: no row, here or elsewhere, is decided at an earlier instant from now on.
    asked, need: zeros, one a lane and one a counter; `asked` counts each lane's rows.
    """
    raw = raw_of(core)
    for row in range(len(lane)):
        asked[lane[row]] += 1
    for number in range(len(asked)):
        if asked[number]:
            found = lane_row(raw, number)
            for place in range(sizes_of(raw, found[0])[ALL]):
                need[found[LANE_COUNTERS + place]] += asked[number]
    short = 0
    for counter in range(len(need)):
        if need[counter]:
            need[counter] = slots_short(raw, line_of(raw, counter), need[counter], now_ns)
            short += need[counter]
    return short


@JIT.compiled
def reserve_slots(core: Core, need: Array) -> None:
    """Give every ring the slots that `count_rows` found it short of; there is room for them."""
    raw = raw_of(core)
    for counter in range(len(need)):
        if need[counter]:
            move_ring(raw, line_of(raw, counter), need[counter])


@inlined
def _fetch_ahead(raw: Raw, lane: Array, row: Int) -> None:
    """Prefetch the memory of later rows."""
    last = len(lane) - 1
    prefetch(lane_row(raw, lane[min(row + _LANES_AHEAD, last)]))
    counters = moved(lane_row(raw, lane[min(row + _LINES_AHEAD, last)]), LANE_COUNTERS)
    for place in range(_LINES_FETCHED):
        prefetch(moved(raw.lines, np.int64(counters[place]) * LINE_WIDTH))


@inlined
def _decide_all(
    raw: Raw,
    t_ns: Array,
    lane: Array,
    verdict: Array,
    wait_ns: Array,
    refusing: Array,
    shadow: Array,
) -> None:
    for row in range(len(t_ns)):
        _fetch_ahead(raw, lane, row)
        found = decide(raw, t_ns[row], lane[row])
        verdict[row], wait_ns[row], refusing[row] = found[:3]
        if len(shadow):
            shadow[row] = found[3]


@JIT.compiled
def decide_rows(
    core: Core,
    t_ns: Array,
    lane: Array,
    verdict: Array,
    wait_ns: Array,
    refusing: Array,
    shadow: Array,
) -> None:
    """Decide about all rows; every ring has the slots that it will need."""
    _decide_all(raw_of(core), t_ns, lane, verdict, wait_ns, refusing, shadow)


@JIT.compiled
def decide_plain_rows(
    core: Core,
    t_ns: Array,
    lane: Array,
    verdict: Array,
    wait_ns: Array,
    refusing: Array,
    shadow: Array,
) -> None:
    """Do the same for a limiter whose profile is plain."""
    _decide_all(plain_raw_of(core), t_ns, lane, verdict, wait_ns, refusing, shadow)


@JIT.compiled
def copy_table(old: Array, new: Array) -> None:
    """Put the slots of a hash table into a larger one, which is empty."""
    fill_table(old, new)
