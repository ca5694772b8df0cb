"""The arrays that a compiled limiter consists of, and how they grow.

- A *leg* is a family of counters of one rule (`engine.limits.rules`), a *class* of requests an
  array of legs, those in force before those in shadow, each in table order.
- A *counter* is a line of eight integers, half of them apart from the others (`Line`, below).
- A *lane* is one combination of class, key, address and other parts, with the counters that such a
  request is charged to. One probe of a hash table finds it; the slots hold the full keys, so
  that a probe reads one place and not two.
- Counter 0 counts nothing and always has room. Unused places of a lane hold it, so that the first
  places of any lane can be tested without a check of how many there are.
- Rings of sliding logs lie in one array, one after the other. A ring gets the slots that its
  counter will need where that is known, else it doubles, up to `limit` slots. Before it grows, the
  slots of charges that have left the window are reused.

Compiled code never allocates: it stops when there is no room for one more request, and `grown`
enlarges what is too small.

A counter's line is what the algorithms index, in half the memory. They see one `line` of integers
(`engine.limits.compiled.algorithms`). Here its words lie in two places: the four that a test or a
charge reads in 32 bytes, so that two counters share a cache line, and the others, of blocks and
delays, elsewhere. A word's place depends on its number alone, and that is a constant wherever a
line is indexed; so the compiler leaves nothing of the look-up.

Two words share a place: no algorithm uses both. Where the sliding counter has `CUR`, the sliding
log has its ring, `RING`: where it begins (`BASE`) and how many slots it has, in one integer.
"""

from __future__ import annotations

import math
import operator
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model
from numpy.typing import DTypeLike

from engine.limits.compiled.algorithms import (
    ALGORITHMS,
    BASE,
    BLOCK,
    LAST,
    LINE_SIZE,
    READY,
    RULE_SIZE,
    charge_sliding_log,
    rule_row,
)
from engine.limits.rules import CounterFamily
from engine.limits.subject import KEY_FIELDS, OTHER_FIELDS
from engine.limits.table import COUNTER_KEYS

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Numbers32: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]

# A rule's row has these after the algorithms' own.
ALGORITHM: Final = RULE_SIZE
BLOCK_NS: Final = RULE_SIZE + 1
CLAUSE: Final = RULE_SIZE + 2  # equal for the counters of one clause (D-OR-COUNTER)
FIRST_PART: Final = RULE_SIZE + 3  # places in `KEY_FIELDS` of what its counters are told apart by
SECOND_PART: Final = RULE_SIZE + 4
RULE_WIDTH: Final = RULE_SIZE + 5

IP: Final = KEY_FIELDS.index("ip")
KEY: Final = KEY_FIELDS.index("key_id")
OTHERS: Final = len(OTHER_FIELDS)
FIRST_OTHER: Final = len(KEY_FIELDS) - OTHERS
NONE: Final = -1

CHARGES: Final = tuple(dict.fromkeys(method.charge for method in ALGORITHMS.values()))
SLIDING_LOG: Final = CHARGES.index(charge_sliding_log)

# `flags`
BOUND_NS: Final = 0  # how long a throttle may delay; 0 = it refuses
EXTENDS: Final = 1  # refusals extend a block
COUNTS_REFUSED: Final = 2  # refused requests are charged too
CLEARS: Final = 3  # a block clears its counter
FROM_NS: Final = 4  # shadow refusals are counted from here on
MOST_LEGS: Final = 5  # of any class
LATER: Final = 6  # charges may be later than their requests: throttles delay, or rules in shadow
GROWS: Final = 7  # a ring may have to grow at a charge
SETS: Final = 8  # sets of counters; as many lanes are made at once, one a set
KNOWS: Final = 9  # what nodes know of each other: `ALONE`, `SYNCED` or `SLOW`
EVERY_NS: Final = 10  # how often their events are published
LAG_NS: Final = 11  # and how much later all know them
MOST_SLOTS: Final = 12  # the largest limit of any sliding log
FLAGS: Final = 13

ALONE, SYNCED, SLOW = range(3)

# `used`
COUNTERS: Final = 0
LANES: Final = 1
SLOTS: Final = 2  # of all rings
LARGEST: Final = 3  # slots of the largest ring
EVENTS: Final = 4  # events of all histories
FREE_EVENT: Final = 5  # the first place for an event, each has the next one in `V_NEXT`
USED: Final = 6

# A lane's row: its class, then its counters, as many of them as fit and at least `EAGER_PLACES`.
LANE_COUNTERS: Final = 1
LANE_STEP: Final = 8
EAGER_PLACES: Final = 4

# A slot of a hash table: what is found there, then what it stands for; −1 = nothing.
SLOT_WIDTH: Final = 4
_SLOTS_EACH: Final = 2

NOBODY: Final = 0  # the counter that counts nothing

# A class's row in `class_sizes`.
IN_FORCE: Final = 0
ALL: Final = 1
CLASS_SIZES: Final = 2

# The history of a counter (`engine.limits.nodes`): of a node's own, before which instant it holds
# the events of all; of a common one, its first and its last event, −1 = none.
H_HEARD, H_FIRST, H_LAST = range(3)
HISTORY_WIDTH: Final = 4
# An event: its instant, the node, what it is, and the next one of its counter.
V_T, V_NODE, V_WHAT, V_NEXT = range(4)
EVENT_WIDTH: Final = 4
# What a decision may change of a counter: its words but `BASE`.
SAVED_WIDTH: Final = 8
MOST_RULES: Final = 63

FIRST_SLOTS: Final = 4
_LINE_BYTES: Final = 64
_FIRST: Final = 1 << 12
_FIRST_RING: Final = 1 << 16
_GROWTH: Final = 2


class Core(NamedTuple):
    """The arrays; numbers in the shapes are what they have room for.

    rules (legs, RULE_WIDTH), class_legs (classes, most legs), class_sizes (classes, 2), flags,
    used, shadow_counts (legs), lines and lines_apart (counters, 4), counter_table (a power of two,
    4: counter, leg and two numbers), ring, lanes (lanes, 1 + most legs), lane_others (lanes,
    `OTHERS`), lane_table (a power of two, 4: lane, class, key, address). Of nodes that know of each
    other: histories (counters, HISTORY_WIDTH), events (n, EVENT_WIDTH), saved (MOST_RULES,
    SAVED_WIDTH).
    """

    rules: Ints
    class_legs: Numbers32
    class_sizes: Numbers32
    flags: Ints
    used: Ints
    shadow_counts: Ints
    lines: Ints
    lines_apart: Ints
    counter_table: Numbers32
    ring: Ints
    lanes: Numbers32
    lane_others: Numbers32
    lane_table: Numbers32
    histories: Ints
    events: Ints
    saved: Ints


def leg_rows(legs: list[CounterFamily]) -> Ints:
    """Return the rules of legs as rows."""
    rows = np.zeros((max(1, len(legs)), RULE_WIDTH), dtype=np.int64)
    clauses: dict[str, int] = {}
    for row, leg in zip(rows, legs, strict=False):
        settings = leg.settings
        row[:RULE_SIZE] = rule_row(
            settings.algorithm,
            settings.limit_requests,
            settings.window_ns,
            burst_requests=settings.burst_requests,
            closed=settings.tick_ns > 0,
            anchored=settings.is_anchored,
            offset_ns=settings.offset_ns,
        )
        row[ALGORITHM] = CHARGES.index(ALGORITHMS[settings.algorithm].charge)
        row[BLOCK_NS] = settings.block_ns
        by = [KEY_FIELDS.index(field) for field in COUNTER_KEYS[leg.key_place]]
        row[FIRST_PART], row[SECOND_PART] = [*by, NONE][:2]
        row[CLAUSE] = clauses.setdefault(leg.rule.id, len(clauses))
    return rows


def fresh_core(flags: Ints) -> Core:
    """Return the arrays of a limiter that has seen nothing."""
    used = np.zeros(USED, dtype=np.int64)
    used[COUNTERS] = NOBODY + 1
    used[FREE_EVENT] = NONE
    return Core(
        rules=leg_rows([]),
        class_legs=np.zeros((1, 1), dtype=np.int32),
        class_sizes=np.zeros((1, CLASS_SIZES), dtype=np.int32),
        flags=flags,
        used=used,
        shadow_counts=np.zeros(1, dtype=np.int64),
        lines=aligned((_FIRST, LINE_WIDTH), np.int64),
        lines_apart=aligned((_FIRST, LINE_WIDTH), np.int64),
        counter_table=_table(_FIRST),
        ring=np.zeros(_FIRST_RING, dtype=np.int64),
        lanes=aligned((_FIRST, LANE_STEP), np.int32),
        lane_others=np.zeros((_FIRST, OTHERS), dtype=np.int32),
        lane_table=_table(_FIRST),
        histories=np.zeros((0, HISTORY_WIDTH), dtype=np.int64),
        events=np.zeros((0, EVENT_WIDTH), dtype=np.int64),
        saved=np.zeros((MOST_RULES, SAVED_WIDTH), dtype=np.int64),
    )


def grown(core: Core, *, lanes: int = 1, slots: int = 0) -> Core:
    """Return arrays with room for the next request, at least; the tables are then to be refilled.

    lanes: how many there must be room for beside those that are there. slots: as many of rings.
    The hash tables are empty where their size has changed (`used` says how much they must hold).
    """
    most, sets = int(core.flags[MOST_LEGS]), int(core.flags[SETS])
    lanes = max(lanes, sets)
    counters, old_lanes, old_slots, largest, events, _ = (int(n) for n in core.used)
    need = counters + max(lanes, most * sets)
    if need > len(core.lines):
        size = _at_least(need, len(core.lines))
        core = core._replace(
            lines=longer(core.lines, size, counters),
            lines_apart=longer(core.lines_apart, size, counters),
            counter_table=_table(size),
        )
    if old_lanes + lanes > len(core.lanes):
        size = _at_least(old_lanes + lanes, len(core.lanes))
        core = core._replace(
            lanes=longer(core.lanes, size, old_lanes),
            lane_others=longer(core.lane_others, size, old_lanes),
            lane_table=_table(size),
        )
    each = max(2 * largest, FIRST_SLOTS)
    if core.flags[KNOWS] != ALONE:
        core = _with_histories(core)
        each = NODE_RINGS * most_slots(int(core.flags[MOST_SLOTS]), largest, events)
    need = old_slots + max(slots, most * each)
    if need > len(core.ring):
        size = max(need, 2 * len(core.ring))
        core = core._replace(ring=longer(core.ring, size, old_slots))
    return core


NODE_RINGS: Final = 8
"""Rings that one counter may need in a decision of nodes that know of each other, at most.

The common ring doubles up to its size, which takes twice as many slots; the node's becomes a copy
of it and doubles too; then the node's and the exact one's may double for the charge.
"""


def most_slots(limit: Any, largest: Any, events: Any) -> Any:  # noqa: ANN401 # reason: numbers of Python, or of compiled code
    """Return the slots of the largest ring that a decision of nodes may make."""
    return min(limit, 2 * (largest + events) + FIRST_SLOTS)


def _with_histories(core: Core) -> Core:
    """Return arrays with a history for each counter, and room for the events of a decision."""
    size = len(core.lines)
    before = len(core.histories)
    if before < size:
        histories = longer(core.histories, size, before)
        histories[before:, H_FIRST] = histories[before:, H_LAST] = NONE
        core = core._replace(histories=histories)
    events, held = core.events, len(core.events)
    if int(core.used[EVENTS]) + 2 * MOST_RULES > held:
        size = max(_FIRST, 2 * held)
        events = longer(events, size, held)
        events[held:, V_NEXT] = np.arange(held + 1, size + 1)
        events[-1, V_NEXT] = core.used[FREE_EVENT]
        core.used[FREE_EVENT] = held
        core = core._replace(events=events)
    return core


def widened(core: Core, most: int) -> Core:
    """Return arrays whose lanes hold `most` counters each."""
    width = -(-(LANE_COUNTERS + most) // LANE_STEP) * LANE_STEP
    if width <= core.lanes.shape[1]:
        return core
    lanes = aligned((len(core.lanes), width), np.int32)
    lanes[:, : core.lanes.shape[1]] = core.lanes
    return core._replace(lanes=lanes)


def _at_least(need: int, size: int) -> int:
    while size < need:
        size *= _GROWTH
    return size


def _table(count: int) -> Numbers32:
    """Return an empty hash table for `count` entries that is never more than half full."""
    table = aligned((_SLOTS_EACH * count, SLOT_WIDTH), np.int32)
    table.fill(-1)
    return table


def longer(array: Array, size: int, used: int | None = None) -> Array:
    """Return an array with room for `size` rows: the first `used` of this one, then zeros."""
    found = aligned((size, *array.shape[1:]), array.dtype)
    used = len(array) if used is None else used
    found[:used] = array[:used]
    return found


def aligned(shape: tuple[int, ...], dtype: DTypeLike = np.int64) -> Array:
    """Return zeros that begin with a cache line, so that rows cross as few of them as possible."""
    size_bytes = math.prod(shape) * np.dtype(dtype).itemsize
    raw = np.zeros(size_bytes + _LINE_BYTES, dtype=np.uint8)
    skipped = -raw.ctypes.data % _LINE_BYTES
    return raw[skipped : skipped + size_bytes].view(dtype).reshape(shape)


LINE_WIDTH: Final = 4
"""Integers of a line in each of the two places."""

LEG: Final = LINE_SIZE
"""The word after the algorithms' own: the leg that a counter belongs to."""

RING: Final = 6
SLOT_BITS: Final = 30
SLOT_MASK: Final = (1 << SLOT_BITS) - 1

# Word → place: 0 to 3 among those that are used often, 4 to 7 among the others.
_PLACES: Final = {READY: 0, BLOCK: 4, LAST: 5, BASE: 3, 4: 1, 5: 2, RING: 3, LEG: 6}
_PACKED: Final = sum(place << 4 * word for word, place in _PLACES.items())
_WIDTH_BITS: Final = 2


class _LineType(types.Type):  # type: ignore[misc] # reason: numba has no types
    """Two pointers: a line's two places."""

    def __init__(self) -> None:
        super().__init__(name="Line")


_LINE: Final = _LineType()
_WORDS: Final = types.CPointer(types.int64)


@register_model(_LineType)
class _LineModel(models.StructModel):  # type: ignore[misc] # reason: numba has no types
    def __init__(self, manager: Any, kind: Any) -> None:  # noqa: ANN401 # reason: numba's protocol
        super().__init__(manager, kind, [("often", _WORDS), ("seldom", _WORDS)])


@intrinsic  # type: ignore[untyped-decorator] # reason: numba has no types
def joined(typing_context: Any, often: Any, seldom: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    """Return the line whose two places two pointers point at."""
    if not (often == _WORDS and seldom == _WORDS):
        return None

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
        made = cgutils.create_struct_proxy(_LINE)(context, builder)
        made.often, made.seldom = args
        return made._getvalue()  # noqa: SLF001 # reason: numba's protocol

    return _LINE(_WORDS, _WORDS), generate


def _word(context: Any, builder: Any, line: Any, number: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
    """Return a pointer to a word of a line."""
    made = cgutils.create_struct_proxy(_LINE)(context, builder, value=line)
    whole = number.type
    shift = builder.shl(number, whole(2))
    place = builder.and_(builder.lshr(whole(_PACKED), shift), whole(7))
    is_seldom = builder.trunc(builder.lshr(place, whole(_WIDTH_BITS)), ir.IntType(1))
    base = builder.select(is_seldom, made.seldom, made.often)
    return builder.gep(base, [builder.and_(place, whole(LINE_WIDTH - 1))])


@infer_global(operator.getitem)
class _GetWord(AbstractTemplate):  # type: ignore[misc] # reason: numba has no types
    def generic(self, args: Any, kws: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        assert not kws
        if len(args) == 2 and args[0] == _LINE:
            return signature(types.int64, _LINE, types.int64)
        return None


@infer_global(operator.setitem)
class _SetWord(AbstractTemplate):  # type: ignore[misc] # reason: numba has no types
    def generic(self, args: Any, kws: Any) -> Any:  # noqa: ANN401 # reason: numba's protocol
        assert not kws
        if len(args) == 3 and args[0] == _LINE:
            return signature(types.none, _LINE, types.int64, types.int64)
        return None


@lower_builtin(operator.getitem, _LineType, types.Integer)  # type: ignore[untyped-decorator] # reason: numba has no types
def _get_word(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    found = builder.load(_word(context, builder, *args))
    whole = found.type
    is_base = builder.icmp_signed("==", args[1], args[1].type(BASE))
    return builder.select(is_base, builder.ashr(found, whole(SLOT_BITS)), found)


@lower_builtin(operator.setitem, _LineType, types.Integer, types.int64)  # type: ignore[untyped-decorator] # reason: numba has no types
def _set_word(context: Any, builder: Any, signature: Any, args: Any) -> Any:  # noqa: ANN401, ARG001 # reason: numba's protocol
    builder.store(args[2], _word(context, builder, *args[:2]))
    return context.get_dummy_value()
