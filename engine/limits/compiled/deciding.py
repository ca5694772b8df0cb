"""One decision over the arrays of `Core`: what `engine.limits.limiter` does, in the same order.

Plain functions that numba compiles; the algorithms and the blocks are the interpreted limiter's
own. `decide` tests a lane's counters all and then charges them all or none; before it there must be
room (`engine.limits.compiled.finding`).

A verdict is one number: 0 admitted, else 4 · (leg + 1) + outcome (`DELAYED`, `REFUSED`, `BLOCKED`).
Masks have a bit a place: `refusing` among the rules in force, `shadow` among those in shadow.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from engine.limits import algorithms
from engine.limits.algorithms import BASE, BLOCK, LAST, LIMIT, PLACE, READY
from engine.limits.compiled.core import (
    ALGORITHM,
    ALL,
    BLOCK_NS,
    BOUND_NS,
    CLEARS,
    COUNTS_REFUSED,
    EXTENDS,
    FIRST_SLOTS,
    FIXED_WINDOW,
    FROM_NS,
    IN_FORCE,
    LANE_COUNTERS,
    LARGEST,
    LEG,
    LEG_BITS,
    LEG_MASK,
    RING,
    SLIDING_COUNTER,
    SLIDING_LOG,
)
from engine.limits.compiled.finding import (
    Int,
    Pointer,
    Raw,
    lane_row,
    line_of,
    rule_of,
    sizes_of,
)
from engine.limits.compiled.jit import called, inlined

__all__ = ["BLOCKED", "DELAYED", "REFUSED", "decide"]

DELAYED: Final = 1
REFUSED: Final = 2
BLOCKED: Final = 3

_Found: TypeAlias = tuple[Int, Int, Int, Int]

_sliding_log = inlined(algorithms.charge_sliding_log)
_fixed_window = inlined(algorithms.charge_fixed_window)
_sliding_counter = inlined(algorithms.charge_sliding_counter)
_gcra = inlined(algorithms.charge_gcra)
_begin_or_extend_block = inlined(algorithms.begin_or_extend_block)


# --- charging -----------------------------------------------------------------------------------


@inlined
def _charge(raw: Raw, counter: Int, t_ns: Int) -> None:
    """Charge one request to a counter, in a larger ring where its own is full."""
    line = line_of(raw, counter)
    rule = rule_of(raw, line[LEG] & LEG_MASK)
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


@called
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


@called
def _charge_refused(raw: Raw, counter: Int, now_ns: Int) -> None:
    """Charge a request that was refused (D-COUNT all)."""
    line = line_of(raw, counter)
    if raw.flags[CLEARS] and line[BLOCK] > now_ns:
        return
    _charge(raw, counter, max(now_ns, line[LAST]))
    line[READY] = max(line[READY], line[BLOCK])


# --- deciding -----------------------------------------------------------------------------------


@inlined
def decide(raw: Raw, now_ns: Int, lane: Int) -> _Found:
    """Decide about one request of a lane; return verdict, wait_ns, refusing and shadow."""
    row = lane_row(raw, lane)
    sizes = sizes_of(raw, row[0])
    in_force = sizes[IN_FORCE]
    for place in range(LANE_COUNTERS, LANE_COUNTERS + in_force):
        if line_of(raw, row[place])[READY] > now_ns:
            return _beyond(raw, now_ns, lane)
    if sizes[ALL] > in_force:
        return _admit(raw, now_ns, now_ns, lane)
    for place in range(LANE_COUNTERS, LANE_COUNTERS + in_force):
        _charge(raw, row[place], now_ns)
    return 0, 0, 0, 0


@called
def _beyond(raw: Raw, now_ns: Int, lane: Int) -> _Found:
    """Decide where at least one counter is not ready: delay or refuse."""
    row = lane_row(raw, lane)
    release_ns = now_ns
    refusing = np.int64(0)
    for place in range(sizes_of(raw, row[0])[IN_FORCE]):
        counter = row[LANE_COUNTERS + place]
        line = line_of(raw, counter)
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
    line = line_of(raw, counter)
    leg = line[LEG] & LEG_MASK
    block_ns = rule_of(raw, leg)[BLOCK_NS]
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


@inlined
def _refuse(raw: Raw, now_ns: Int, lane: Int, refusing: Int) -> _Found:
    row = lane_row(raw, lane)
    sizes = sizes_of(raw, row[0])
    shadow = _judge_shadow(raw, now_ns, lane)
    if raw.flags[COUNTS_REFUSED]:
        for place in range(sizes[ALL]):
            _charge_refused(raw, row[LANE_COUNTERS + place], now_ns)
    wait_ns, decider, blocks = np.int64(-1) << 62, np.int64(-1), False
    for place in range(sizes[IN_FORCE]):
        if not refusing >> place & 1:
            continue
        line = line_of(raw, row[LANE_COUNTERS + place])
        leg = line[LEG] & LEG_MASK
        its_block = rule_of(raw, leg)[BLOCK_NS] > 0
        its_ns = line[READY] - now_ns
        if not its_block:
            its_ns -= raw.flags[BOUND_NS]
        if its_ns > wait_ns or (its_ns == wait_ns and its_block and not blocks):
            wait_ns, decider, blocks = its_ns, leg, its_block
    outcome = BLOCKED if blocks else REFUSED
    return 4 * (decider + 1) + outcome, wait_ns, refusing, shadow


@called
def _admit(raw: Raw, now_ns: Int, release_ns: Int, lane: Int) -> _Found:
    """Charge an admitted request at its release."""
    row = lane_row(raw, lane)
    sizes = sizes_of(raw, row[0])
    verdict = np.int64(0)
    if release_ns > now_ns:
        verdict = 4 * (_delayer(raw, now_ns, lane) + 1) + DELAYED
    shadow = _judge_shadow(raw, now_ns, lane)
    for place in range(sizes[ALL]):
        counter = row[LANE_COUNTERS + place]
        line = line_of(raw, counter)
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
    row = lane_row(raw, lane)
    sizes = sizes_of(raw, row[0])
    shadow = np.int64(0)
    for place in range(sizes[IN_FORCE], sizes[ALL]):
        counter = row[LANE_COUNTERS + place]
        if _release_ns(raw, now_ns, counter) < 0:
            shadow |= np.int64(1) << (place - sizes[IN_FORCE])
            if now_ns >= raw.flags[FROM_NS]:
                raw.shadow_counts[line_of(raw, counter)[LEG] & LEG_MASK] += 1
    return shadow


@inlined
def _delayer(raw: Raw, now_ns: Int, lane: Int) -> Int:
    """Return the leg that delays the most (D-DECIDER)."""
    row = lane_row(raw, lane)
    latest_ns, decider, blocks = np.int64(-1), np.int64(-1), False
    for place in range(sizes_of(raw, row[0])[IN_FORCE]):
        line = line_of(raw, row[LANE_COUNTERS + place])
        leg = line[LEG] & LEG_MASK
        its_block = rule_of(raw, leg)[BLOCK_NS] > 0
        its_ns = max(now_ns, line[LAST] if its_block else line[READY])
        if its_ns > latest_ns or (its_ns == latest_ns and its_block and not blocks):
            latest_ns, decider, blocks = its_ns, leg, its_block
    return decider
