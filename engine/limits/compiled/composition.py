"""One decision over the arrays of `Core`: what `engine.limits.limiter` does, in the same order.

Plain functions that numba compiles; the algorithms and the blocks are the interpreted limiter's
own. Composition stands twice, for speed: the interpreted one walks lists of what each loop reads,
this one tests the first counters without a branch. `tests/engine/limits/test_compiled.py` holds the
two together over drawn tables, profiles and traffic; `test_limiter_oracle.py` beside it holds the
interpreted one to an oracle.

`decide` tests a lane's counters all and then charges them all or none; before it there must be room
(`engine.limits.compiled.lookup`).

A verdict is one number: 0 admitted, else 4 · (leg + 1) + outcome (`DELAYED`, `REFUSED`, `BLOCKED`).
Masks have a bit a place: `refusing` among the rules in force, `shadow` among those in shadow.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

import numpy as np

from engine.limits.compiled import algorithms
from engine.limits.compiled import core as at
from engine.limits.compiled.algorithms import BASE, BLOCK, FULL, LAST, LIMIT, PLACE, READY, SPAN
from engine.limits.compiled.jit import called, first_bit, inlined
from engine.limits.compiled.lookup import (
    Int,
    Line,
    Pointer,
    Raw,
    lane_row,
    legs_of,
    line_of,
    rule_of,
    sizes_of,
)

DELAYED: Final = 1
REFUSED: Final = 2
BLOCKED: Final = 3

_Found: TypeAlias = tuple[Int, Int, Int, Int]

_begin_or_extend_block = inlined(algorithms.begin_or_extend_block)


# --- charging -----------------------------------------------------------------------------------


def _by_method(place: int = 0) -> Callable[[Int, Line, Pointer, Pointer, Int], None]:
    """Return the function that charges by the method at a place of `CHARGES`, or a later one."""
    own = inlined(at.CHARGES[place])
    if place == len(at.CHARGES) - 1:
        return inlined(lambda _, line, ring, rule, t_ns: own(line, ring, rule, t_ns))
    later = _by_method(place + 1)

    @inlined
    def charge_by(method: Int, line: Line, ring: Pointer, rule: Pointer, t_ns: Int) -> None:
        if method == place:
            own(line, ring, rule, t_ns)
        else:
            later(method, line, ring, rule, t_ns)

    return charge_by


_charge_by = _by_method()


@inlined
def charge(raw: Raw, counter: Int, leg: Int, t_ns: Int) -> None:
    """Charge one request to a counter; its ring grows when it is full."""
    line, rule = line_of(raw, counter), rule_of(raw, leg)
    method = rule[at.ALGORITHM]
    if (
        method == at.SLIDING_LOG
        and raw.flags[at.GROWS]
        and line[PLACE] == line[at.RING] & at.SLOT_MASK
    ):
        make_slots(raw, line, rule, t_ns)
    _charge_by(method, line, raw.ring, rule, t_ns)


@inlined
def slots_short(raw: Raw, line: Line, charges: Int, now_ns: Int) -> Int:
    """Return how many slots a ring needs for `charges` more charges; 0 when it has enough.

    None of them is before `now_ns`; slots of charges outside the window by then are reused first.
    """
    rule = rule_of(raw, line[at.LEG])
    if rule[at.ALGORITHM] != at.SLIDING_LOG or line[FULL]:
        return np.int64(0)
    slots = line[at.RING] & at.SLOT_MASK
    if min(rule[LIMIT], line[PLACE] + charges) > slots:
        _forget(raw, line, _gone(raw, line, rule, now_ns))
    needed = min(rule[LIMIT], line[PLACE] + charges)
    return min(rule[LIMIT], max(needed, 2 * slots)) if needed > slots else np.int64(0)


@called
def make_slots(raw: Raw, line: Line, rule: Pointer, t_ns: Int) -> None:
    """Make slots in a ring that has used all of them but has never held `limit` charges.

    When half of its charges have left the window, their slots are reused; so a ring has at most
    twice as many slots as its window ever held charges.
    """
    slots = line[PLACE]
    gone = _gone(raw, line, rule, t_ns)
    if gone and 2 * gone >= slots:
        _forget(raw, line, gone)
    else:
        move_ring(raw, line, min(rule[LIMIT], max(2 * slots, at.FIRST_SLOTS)))


@inlined
def _gone(raw: Raw, line: Line, rule: Pointer, now_ns: Int) -> Int:
    """Return how many charges of a ring that was never full have left the window by now."""
    ring, base, slots = raw.ring, line[BASE], line[PLACE]
    gone = np.int64(0)
    while gone < slots and ring[base + gone] + rule[SPAN] <= now_ns:
        gone += 1
    return gone


@inlined
def _forget(raw: Raw, line: Line, gone: Int) -> None:
    """Drop the first charges of a ring that was never full.

    They never count again: when the ring is full, they would be found out of the window.
    """
    ring, base, slots = raw.ring, line[BASE], line[PLACE]
    for slot in range(gone, slots):
        ring[base + slot - gone] = ring[base + slot]
    line[PLACE] = slots - gone


@called
def move_ring(raw: Raw, line: Line, slots: Int) -> None:
    """Move a ring that was never full to where it has more slots."""
    used, ring = raw.used, raw.ring
    base = used[at.SLOTS]
    for slot in range(line[PLACE]):
        ring[base + slot] = ring[line[BASE] + slot]
    used[at.SLOTS] = base + slots
    used[at.LARGEST] = max(used[at.LARGEST], slots)
    line[at.RING] = base << at.SLOT_BITS | slots


@called
def _charge_refused(raw: Raw, counter: Int, leg: Int, now_ns: Int) -> None:
    """Charge a request that was refused (D-COUNT all)."""
    line = line_of(raw, counter)
    if raw.flags[at.CLEARS] and line[BLOCK] > now_ns:
        return
    charge(raw, counter, leg, max(now_ns, line[LAST]))
    line[READY] = max(line[READY], line[BLOCK])


# --- deciding -----------------------------------------------------------------------------------


@inlined
def decide(raw: Raw, now_ns: Int, lane: Int) -> _Found:
    """Decide about one request of a lane; return verdict, wait_ns, refusing and shadow.

    Neither the outcome nor the number of counters is predictable for the branch predictor. So the
    first places are all tested without a branch: unused ones hold a counter that always has room.
    """
    row = lane_row(raw, lane)
    legs, sizes = legs_of(raw, row[0]), sizes_of(raw, row[0])
    in_force = np.int64(sizes[at.IN_FORCE])
    beyond = np.int64(0)
    for place in range(at.EAGER_PLACES):
        is_beyond = line_of(raw, row[at.LANE_COUNTERS + place])[READY] > now_ns
        beyond |= np.int64(is_beyond) << place
    for place in range(at.EAGER_PLACES, in_force):
        is_beyond = line_of(raw, row[at.LANE_COUNTERS + place])[READY] > now_ns
        beyond |= np.int64(is_beyond) << place
    beyond &= (np.int64(1) << in_force) - 1
    if beyond:
        return _beyond(raw, now_ns, lane, beyond)
    if raw.flags[at.LATER] and sizes[at.ALL] > in_force:
        return _admit(raw, now_ns, now_ns, lane)
    for place in range(in_force):
        charge(raw, row[at.LANE_COUNTERS + place], legs[place], now_ns)
    return 0, 0, 0, 0


@called
def _beyond(raw: Raw, now_ns: Int, lane: Int, beyond: Int) -> _Found:
    """Decide where at least one counter is not ready, those of `beyond`: delay or refuse."""
    row = lane_row(raw, lane)
    legs = legs_of(raw, row[0])
    release_ns = now_ns
    refusing = np.int64(0)
    while beyond:
        place = first_bit(beyond)
        beyond &= beyond - 1
        ready_ns = _release_ns(raw, now_ns, row[at.LANE_COUNTERS + place], legs[place])
        if ready_ns < 0:
            refusing |= np.int64(1) << place
        elif ready_ns > release_ns:
            release_ns = ready_ns
    if refusing or not raw.flags[at.LATER]:
        return _refuse(raw, now_ns, lane, refusing)
    return _admit(raw, now_ns, release_ns, lane)


@inlined
def _release_ns(raw: Raw, now_ns: Int, counter: Int, leg: Int) -> Int:
    """Return when a counter would release the request; −1 when its rule refuses it."""
    line, rule = line_of(raw, counter), rule_of(raw, leg)
    block_ns = rule[at.BLOCK_NS]
    ready_ns = line[READY]
    if not block_ns:
        return ready_ns if ready_ns - now_ns <= raw.flags[at.BOUND_NS] else -1
    begins = line[BLOCK] <= now_ns
    if begins and raw.flags[at.LATER] and ready_ns <= max(now_ns, line[LAST]):
        return max(now_ns, line[LAST])
    if begins or raw.flags[at.EXTENDS]:
        begin_block(raw, line, rule, now_ns)
    return -1


@inlined
def begin_block(raw: Raw, line: Line, rule: Pointer, now_ns: Int) -> None:
    """Begin a counter's block, or extend it."""
    ring = line[at.RING]
    extends, clears = raw.flags[at.EXTENDS] != 0, raw.flags[at.CLEARS] != 0
    _begin_or_extend_block(line, now_ns, rule[at.BLOCK_NS], extends, clears)
    if rule[at.ALGORITHM] == at.SLIDING_LOG:
        line[at.RING] = ring  # a cleared counter keeps its ring


@inlined
def _refuse(raw: Raw, now_ns: Int, lane: Int, refusing: Int) -> _Found:
    row = lane_row(raw, lane)
    legs, sizes = legs_of(raw, row[0]), sizes_of(raw, row[0])
    shadow = _judge_shadow(raw, now_ns, lane) if raw.flags[at.LATER] else np.int64(0)
    if raw.flags[at.COUNTS_REFUSED]:
        for place in range(sizes[at.ALL]):
            _charge_refused(raw, row[at.LANE_COUNTERS + place], legs[place], now_ns)
    wait_ns, decider, blocks = np.int64(-1) << 62, np.int64(-1), False
    left = refusing
    while left:
        place = first_bit(left)
        left &= left - 1
        leg = np.int64(legs[place])
        its_block = rule_of(raw, leg)[at.BLOCK_NS] > 0
        its_ns = line_of(raw, row[at.LANE_COUNTERS + place])[READY] - now_ns
        if not its_block:
            its_ns -= raw.flags[at.BOUND_NS]
        if its_ns > wait_ns or (its_ns == wait_ns and its_block and not blocks):
            wait_ns, decider, blocks = its_ns, leg, its_block
    outcome = BLOCKED if blocks else REFUSED
    return 4 * (decider + 1) + outcome, wait_ns, refusing, shadow


@called
def _admit(raw: Raw, now_ns: Int, release_ns: Int, lane: Int) -> _Found:
    """Charge an admitted request at its release."""
    row = lane_row(raw, lane)
    legs, sizes = legs_of(raw, row[0]), sizes_of(raw, row[0])
    verdict = np.int64(0)
    if release_ns > now_ns:
        verdict = 4 * (_delayer(raw, now_ns, lane) + 1) + DELAYED
    shadow = _judge_shadow(raw, now_ns, lane)
    for place in range(sizes[at.ALL]):
        counter = row[at.LANE_COUNTERS + place]
        line = line_of(raw, counter)
        at_ns = release_ns
        if place >= sizes[at.IN_FORCE]:
            if shadow >> (place - sizes[at.IN_FORCE]) & 1:
                if raw.flags[at.COUNTS_REFUSED]:
                    _charge_refused(raw, counter, legs[place], now_ns)
                continue
            at_ns = max(release_ns, line[READY])
        charge(raw, counter, legs[place], at_ns)
        line[LAST] = at_ns
    return verdict, release_ns - now_ns, 0, shadow


@inlined
def _judge_shadow(raw: Raw, now_ns: Int, lane: Int) -> Int:
    """Return the rules in shadow that would refuse, and begin their blocks."""
    row = lane_row(raw, lane)
    legs, sizes = legs_of(raw, row[0]), sizes_of(raw, row[0])
    shadow = np.int64(0)
    for place in range(sizes[at.IN_FORCE], sizes[at.ALL]):
        if _release_ns(raw, now_ns, row[at.LANE_COUNTERS + place], legs[place]) < 0:
            shadow |= np.int64(1) << (place - sizes[at.IN_FORCE])
            if now_ns >= raw.flags[at.FROM_NS] and not _is_again(raw, lane, place, shadow):
                raw.shadow_counts[np.int64(legs[place])] += 1
    return shadow


@called
def _is_again(raw: Raw, lane: Int, place: Int, shadow: Int) -> Int:
    """Return 1 when an earlier counter of the same clause would refuse too, else 0."""
    row = lane_row(raw, lane)
    legs, sizes = legs_of(raw, row[0]), sizes_of(raw, row[0])
    clause, again = rule_of(raw, legs[place])[at.CLAUSE], np.int64(0)
    for other in range(sizes[at.IN_FORCE], place):
        if (
            shadow >> (other - sizes[at.IN_FORCE]) & 1
            and rule_of(raw, legs[other])[at.CLAUSE] == clause
        ):
            again = np.int64(1)
    return again


@inlined
def _delayer(raw: Raw, now_ns: Int, lane: Int) -> Int:
    """Return the leg that delays the most (D-DECIDER)."""
    row = lane_row(raw, lane)
    legs = legs_of(raw, row[0])
    latest_ns, decider, blocks = np.int64(-1), np.int64(-1), False
    for place in range(sizes_of(raw, row[0])[at.IN_FORCE]):
        line, leg = line_of(raw, row[at.LANE_COUNTERS + place]), np.int64(legs[place])
        its_block = rule_of(raw, leg)[at.BLOCK_NS] > 0
        its_ns = max(now_ns, line[LAST] if its_block else line[READY])
        if its_ns > latest_ns or (its_ns == latest_ns and its_block and not blocks):
            latest_ns, decider, blocks = its_ns, leg, its_block
    return decider
