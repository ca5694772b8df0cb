"""Counters in compiled code: the five algorithms of D-ALGORITHM, one record a counter.

A token bucket is GCRA with a burst of N, so four ways of counting are left. Between two charges a
counter that admits a request also admits it later; so each charge computes `ready`, the earliest
instant of the next admission, and testing a counter is one comparison.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias

import numpy as np

from simulator.kernel.compiling import called, inlined

Records: TypeAlias = Any
"""An array of records; compiled code gets one of them by its number."""
Record: TypeAlias = Any
Int: TypeAlias = Any

LOG, FIXED, SLIDING, GCRA = range(4)
FAR_NS: Final = 1 << 62
FIRST_SLOTS: Final = 4

# A rule's counter. span_ns: of the window, and one tick more where edges are closed. offset_ns: of
# the run's start within a window that is aligned to the Unix epoch. step, rest: W / N of gcra, and
# its remainder; slack: (burst - 1) * W. by_key, by_ip: what its
# counters are kept by, beside other fields.
RULE: Final = np.dtype(
    [
        (name, np.int64)
        for name in (
            *("algorithm", "limit", "window_ns", "span_ns", "offset_ns", "anchored"),
            *("step", "rest", "slack", "block_ns", "by_key", "by_ip", "shadow", "clause"),
        )
    ]
)

# A counter fills half a cache line. `mark`: where its ring begins, where its window ends or begins,
# or the theoretical arrival time. `count`: the ring's next slot, charges in the window, those in
# the one before, N-ths of a nanosecond. `size`: slots of the ring, charges in the present window.
# `full`: the ring holds N charges.
COUNTER: Final = np.dtype(
    [
        *(("ready", np.int64), ("mark", np.int64), ("count", np.int32)),
        *(("size", np.int32), ("rule", np.int32), ("full", np.int32)),
    ]
)
# What only blocks and delays need: the end of the block, and the last release that was reserved.
BLOCK: Final = np.dtype([("until_ns", np.int64), ("last_ns", np.int64)])

# How much is in use: slots of all rings, slots of the largest ring, lanes, counters.
RING_SLOTS, LARGEST_RING, LANES, COUNTERS = range(4)


@inlined
def _charge_log(counter: Record, rule: Record, rings: Records, t_ns: Int) -> None:
    rings[np.uint64(counter.mark + counter.count)] = t_ns
    counter.count += 1
    if counter.count == rule.limit:
        counter.count, counter.full = 0, 1
    counter.ready = t_ns
    if counter.full:
        oldest_ns = rings[np.uint64(counter.mark + counter.count)]
        counter.ready = max(t_ns, oldest_ns + rule.span_ns)


@inlined
def _charge_fixed(counter: Record, rule: Record, t_ns: Int) -> None:
    if t_ns >= counter.mark:
        end_ns = t_ns - (t_ns + rule.offset_ns) % rule.window_ns + rule.window_ns
        counter.mark = t_ns + rule.span_ns if rule.anchored else end_ns
        counter.count = 0
    counter.count += 1
    counter.ready = counter.mark if counter.count >= rule.limit else t_ns


@inlined
def _charge_sliding(counter: Record, rule: Record, t_ns: Int) -> None:
    start_ns, window_ns = counter.mark, rule.window_ns
    if counter.size == 0 or not start_ns <= t_ns < start_ns + window_ns:
        start_ns = t_ns - (t_ns + rule.offset_ns) % window_ns
        follows = counter.size > 0 and start_ns == counter.mark + window_ns
        counter.count = counter.size if follows else 0
        counter.size, counter.mark = 0, start_ns
    counter.size += 1
    free, ready_ns = rule.limit - counter.size, t_ns
    if free <= 0:
        ready_ns = start_ns + 2 * window_ns - (rule.limit * window_ns - 1) // counter.size
    elif counter.count > 0:
        ready_ns = start_ns + window_ns - (free * window_ns - 1) // counter.count
    counter.ready = max(t_ns, ready_ns)


@inlined
def charge_gcra(counter: Record, rule: Record, t_ns: Int) -> None:
    """Charge one request to a bucket; a client's own pace is one too."""
    if counter.mark < t_ns:
        counter.mark, counter.count = t_ns, 0
    part = np.int64(counter.count)
    if counter.mark < FAR_NS:
        counter.mark += rule.step
        part += rule.rest
        if part >= rule.limit:
            part -= rule.limit
            counter.mark += 1
    counter.count = part
    counter.ready = max(t_ns, counter.mark - (rule.slack - part) // rule.limit)


@inlined
def charge(counter: Record, rule: Record, rings: Records, used: Records, t_ns: Int) -> None:
    """Charge one request to a counter; there must be room for a larger ring."""
    if rule.algorithm == LOG:
        if counter.count == counter.size and not counter.full:
            _make_slots(counter, rule, rings, used, t_ns)
        _charge_log(counter, rule, rings, t_ns)
    elif rule.algorithm == FIXED:
        _charge_fixed(counter, rule, t_ns)
    elif rule.algorithm == SLIDING:
        _charge_sliding(counter, rule, t_ns)
    else:
        charge_gcra(counter, rule, t_ns)


@called
def _make_slots(counter: Record, rule: Record, rings: Records, used: Records, t_ns: Int) -> None:
    """Reuse the slots of charges that left the window, or double a ring that is not full yet."""
    gone = 0
    while gone < counter.count and rings[counter.mark + gone] + rule.span_ns <= t_ns:
        gone += 1
    first = counter.mark
    if gone == 0 or 2 * gone < counter.count:
        gone, first = 0, used[RING_SLOTS]
        counter.size = min(rule.limit, max(2 * counter.size, FIRST_SLOTS))
        used[RING_SLOTS] += counter.size
        used[LARGEST_RING] = max(used[LARGEST_RING], counter.size)
    for slot in range(gone, counter.count):
        rings[first + slot - gone] = rings[counter.mark + slot]
    counter.mark = first
    counter.count -= gone


@inlined
def begin_block(now_ns: Int, counter: Record, block: Record, rule: Record, profile: Record) -> None:
    """Begin a block, or extend it (LIM-BLOCK, D-BLOCK-START, D-BLOCK-RESET)."""
    if block.until_ns <= now_ns:
        if profile.clears:
            counter.ready = block.last_ns = 0
            counter.count = counter.full = 0
            if rule.algorithm != LOG:
                counter.mark, counter.size = 0, 0
    elif not profile.extends:
        return
    block.until_ns = now_ns + rule.block_ns
    counter.ready = max(counter.ready, block.until_ns)
