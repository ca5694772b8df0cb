"""The arrays that a compiled limiter consists of, and how they grow.

- A *leg* is a family of counters of one rule (`engine.limits.legs`), a *class* of requests an
  array of legs, those in force before those in shadow, each in table order.
- A *counter* is a line of eight integers, a cache line of 64 bytes: the seven that the algorithms
  know (`engine.limits.algorithms`), then its leg and the size of its ring.
- A *lane* is who asks for what as far as limits go (class, key, address, proxy key, host) with the
  counters that such a request meets. It is found by one probe of a hash table.
- Rings of sliding logs lie in one array, one after the other; a ring grows by doubling up to
  exactly `limit` slots.

Compiled code never allocates: it stops when there is no room for one more request, and `grow`
doubles what is short.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from engine.limits.algorithms import LINE_SIZE, RULE_SIZE
from engine.limits.legs import Leg
from engine.profile import Algorithm

__all__ = ["Core", "fresh_core", "grown", "leg_rows"]

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Numbers32: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]

# A counter's line has one integer more than the algorithms use: leg + (slots of its ring << 16).
LEG: Final = LINE_SIZE
LINE_WIDTH: Final = LINE_SIZE + 1
LEG_BITS: Final = 16
LEG_MASK: Final = (1 << LEG_BITS) - 1

# A rule's row has these after the algorithms' own.
ALGORITHM: Final = RULE_SIZE
BLOCK_NS: Final = RULE_SIZE + 1
FAMILY: Final = RULE_SIZE + 2
RULE_WIDTH: Final = RULE_SIZE + 3

SLIDING_LOG: Final = 0
FIXED_WINDOW: Final = 1
SLIDING_COUNTER: Final = 2
BUCKET: Final = 3
CODES: Final[dict[Algorithm, int]] = {
    "sliding-log": SLIDING_LOG,
    "fixed-window": FIXED_WINDOW,
    "sliding-counter": SLIDING_COUNTER,
    "token-bucket": BUCKET,
    "gcra": BUCKET,
}

# `flags`
BOUND_NS: Final = 0  # how long a throttle may delay; 0 = it refuses
EXTENDS: Final = 1  # refusals extend a block
COUNTS_REFUSED: Final = 2  # refused requests are charged too
CLEARS: Final = 3  # a block clears its counter
FROM_NS: Final = 4  # shadow refusals are counted from here on
MOST_LEGS: Final = 5  # of any class
FLAGS: Final = 6

# `used`
COUNTERS: Final = 0
LANES: Final = 1
RING: Final = 2  # slots of all rings
LARGEST: Final = 3  # slots of the largest ring
USED: Final = 4

# A lane's row: who it is, then its counters.
LANE_COUNTERS: Final = 5

# A class's row in `class_sizes`.
IN_FORCE: Final = 0
ALL: Final = 1

FIRST_SLOTS: Final = 4
_LINE_BYTES: Final = 64
_FIRST: Final = 1 << 14
_FIRST_RING: Final = 1 << 20
_GROWTH: Final = 4


class Core(NamedTuple):
    """The arrays; numbers in the shapes are what they have room for.

    rules (legs, RULE_WIDTH), class_legs (classes, most legs), class_sizes (classes, 2),
    flags, used, blocked_ns and shadow_counts (legs), lines (counters, 8), counter_keys
    (counters, 3), counter_table (a power of two), ring, lanes (lanes, 5 + most legs), lane_table.
    """

    rules: Ints
    class_legs: Numbers32
    class_sizes: Numbers32
    flags: Ints
    used: Ints
    blocked_ns: Ints
    shadow_counts: Ints
    lines: Ints
    counter_keys: Numbers32
    counter_table: Numbers32
    ring: Ints
    lanes: Numbers32
    lane_table: Numbers32


def leg_rows(legs: list[Leg]) -> Ints:
    """Return the rules of legs as rows."""
    rows = np.zeros((max(1, len(legs)), RULE_WIDTH), dtype=np.int64)
    for row, leg in zip(rows, legs, strict=False):
        row[:RULE_SIZE] = leg.row
        row[ALGORITHM] = CODES[leg.algorithm]
        row[BLOCK_NS] = leg.block_ns
        row[FAMILY] = leg.key_place
    return rows


def fresh_core(flags: Ints) -> Core:
    """Return the arrays of a limiter that has seen nothing."""
    return Core(
        rules=leg_rows([]),
        class_legs=np.zeros((1, 1), dtype=np.int32),
        class_sizes=np.zeros((1, 2), dtype=np.int32),
        flags=flags,
        used=np.zeros(USED, dtype=np.int64),
        blocked_ns=np.zeros(1, dtype=np.int64),
        shadow_counts=np.zeros(1, dtype=np.int64),
        lines=_lines(_FIRST),
        counter_keys=np.zeros((_FIRST, 3), dtype=np.int32),
        counter_table=np.full(2 * _FIRST, -1, dtype=np.int32),
        ring=np.zeros(_FIRST_RING, dtype=np.int64),
        lanes=np.zeros((_FIRST, 16), dtype=np.int32),
        lane_table=np.full(2 * _FIRST, -1, dtype=np.int32),
    )


def grown(core: Core) -> Core:
    """Return arrays with room for the next request, at least; the tables are then to be refilled.

    The hash tables are empty where their size has changed (`used` says how much they must hold).
    """
    most = int(core.flags[MOST_LEGS])
    counters, lanes, slots, largest = (int(n) for n in core.used)
    if counters + most > len(core.lines):
        size = _at_least(counters + most, len(core.lines))
        lines = _lines(size)
        lines[:counters] = core.lines[:counters]
        core = core._replace(
            lines=lines,
            counter_keys=_longer(core.counter_keys, size),
            counter_table=np.full(2 * size, -1, dtype=np.int32),
        )
    if lanes >= len(core.lanes):
        size = _at_least(lanes + 1, len(core.lanes))
        core = core._replace(
            lanes=_longer(core.lanes, size), lane_table=np.full(2 * size, -1, dtype=np.int32)
        )
    need = slots + most * max(2 * largest, FIRST_SLOTS)
    if need > len(core.ring):
        core = core._replace(ring=_longer(core.ring, _at_least(need, len(core.ring))))
    return core


def widened(core: Core, most: int) -> Core:
    """Return arrays whose lanes hold `most` counters each."""
    width = -(-(LANE_COUNTERS + most) // 16) * 16
    if width <= core.lanes.shape[1]:
        return core
    lanes = np.zeros((len(core.lanes), width), dtype=np.int32)
    lanes[:, : core.lanes.shape[1]] = core.lanes
    return core._replace(lanes=lanes)


def _at_least(need: int, size: int) -> int:
    while size < need:
        size *= _GROWTH
    return size


def _longer(array: np.ndarray[Any, np.dtype[Any]], size: int) -> np.ndarray[Any, np.dtype[Any]]:
    longer = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    longer[: len(array)] = array
    return longer


def _lines(count: int) -> Ints:
    """Return zeroed lines, none of which straddles two cache lines."""
    raw = np.zeros(count * LINE_WIDTH + _LINE_BYTES // 8, dtype=np.int64)
    skipped = -raw.ctypes.data % _LINE_BYTES // 8
    return raw[skipped : skipped + count * LINE_WIDTH].reshape(count, LINE_WIDTH)
