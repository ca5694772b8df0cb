"""One decision in compiled code: test all counters of a request, then charge all or none.

A *lane* is one combination of request kind, key and address: the numbers of the counters that such
a request is charged to, those of rules in force before those in shadow, 0 for none.

A verdict is one number: 0 admitted, else 4 · (rule + 1) + outcome.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from simulator.kernel.compiling import called, entry, inlined
from simulator.kernel.counting import (
    COUNTERS,
    FIRST_SLOTS,
    LANES,
    LARGEST_RING,
    RING_SLOTS,
    Int,
    Records,
    begin_block,
    charge,
)

ADMITTED, DELAYED, REFUSED, BLOCKED = range(4)
MOST_RULES: Final = 31

# plain: every charge is at its request's instant: no throttle delays and no rule is in shadow.
PROFILE: Final = np.dtype(
    [
        (name, np.int64)
        for name in ("plain", "delay_bound_ns", "extends", "clears", "counts_refused", "from_ns")
    ]
)


class Limits(NamedTuple):
    """The arrays of a limiter.

    kinds: a row a kind of request, the rules that count it, −1 for none; others: what each of them
    is kept by beside key and address, −1 for nothing. shadow_counts: how often each rule in shadow
    would have refused since `from_ns`.
    """

    profile: Records
    rules: Records
    kinds: Records
    others: Records
    counters: Records
    blocks: Records
    counter_table: Records
    lanes: Records
    lane_table: Records
    rings: Records
    used: Records
    shadow_counts: Records


@inlined
def decide(now_ns: Int, lane: Int, limits: Limits) -> tuple[Int, Int, Int, Int]:
    """Decide about a request; return verdict, wait, and masks of the places that refuse it.

    The masks are of rules in force and of those in shadow.
    """
    lanes, counters = limits.lanes, limits.counters
    over = np.int64(0)
    for place in range(lanes.shape[1]):
        if lanes[lane, place] == 0:
            break
        over |= np.int64(counters[lanes[lane, place]].ready > now_ns) << place
    if over or not limits.profile[0].plain:
        return _compose(now_ns, lane, over, limits)
    for place in range(lanes.shape[1]):
        number = lanes[lane, place]
        if number == 0:
            break
        counter = counters[number]
        charge(counter, limits.rules[counter.rule], limits.rings, limits.used, now_ns)
    return np.int64(0), np.int64(0), np.int64(0), np.int64(0)


@inlined
def is_admitted(verdict: Int) -> Int:
    """Whether a verdict lets a request in, at once or delayed."""
    return verdict == 0 or verdict & 3 == DELAYED


@inlined
def _compose(now_ns: Int, lane: Int, over: Int, limits: Limits) -> tuple[Int, Int, Int, Int]:
    """Decide where a counter is not ready, or where charges may be later than requests."""
    lanes, profile = limits.lanes, limits.profile[0]
    release_ns, refusing, shadow = now_ns, np.int64(0), np.int64(0)
    for place in range(lanes.shape[1]):
        if over >> place & 1:
            number = np.int64(lanes[lane, place])
            if not limits.rules[limits.counters[number].rule].shadow:
                ready_ns = _release_ns(now_ns, number, limits)
                if ready_ns < 0:
                    refusing |= np.int64(1) << place
                release_ns = max(release_ns, ready_ns)
    if not profile.plain:
        shadow = _judge_shadow(now_ns, lane, limits)
    if refusing:
        if profile.counts_refused:
            _charge_refused(now_ns, lane, ~np.int64(0), limits)
        verdict, wait_ns = _longest_wait(now_ns, lane, refusing, limits)
        return verdict, wait_ns, refusing, shadow
    return _admit(now_ns, release_ns, lane, shadow, limits), release_ns - now_ns, refusing, shadow


@inlined
def _release_ns(now_ns: Int, number: Int, limits: Limits) -> Int:
    """Return when a counter would let the request go, −1 where it refuses (D-THROTTLE)."""
    counter, profile = limits.counters[number], limits.profile[0]
    rule, block = limits.rules[counter.rule], limits.blocks[number]
    if not rule.block_ns:
        return counter.ready if counter.ready - now_ns <= profile.delay_bound_ns else -1
    begins = block.until_ns <= now_ns
    if begins and not profile.plain and counter.ready <= max(now_ns, block.last_ns):
        return max(now_ns, block.last_ns)
    if begins or profile.extends:
        begin_block(now_ns, counter, block, rule, profile)
    return np.int64(-1)


@inlined
def _longest_wait(now_ns: Int, lane: Int, refusing: Int, limits: Limits) -> tuple[Int, Int]:
    """Return the verdict of the rule with the longest wait, a block of equal ones, and the wait."""
    wait_ns, verdict, blocks = np.int64(-1) << 62, np.int64(0), False
    for place in range(limits.lanes.shape[1]):
        if refusing >> place & 1:
            counter = limits.counters[limits.lanes[lane, place]]
            is_block, own_ns = limits.rules[counter.rule].block_ns > 0, counter.ready - now_ns
            if not is_block:
                own_ns -= limits.profile[0].delay_bound_ns
            if own_ns > wait_ns or (own_ns == wait_ns and is_block and not blocks):
                wait_ns, blocks = own_ns, is_block
                verdict = 4 * (np.int64(counter.rule) + 1) + (BLOCKED if is_block else REFUSED)
    return verdict, wait_ns


@called
def _charge_refused(now_ns: Int, lane: Int, mask: Int, limits: Limits) -> None:
    """Charge a request that was refused to the places of a mask (D-COUNT all)."""
    for place in range(limits.lanes.shape[1]):
        number = limits.lanes[lane, place]
        if number == 0:
            break
        block = limits.blocks[number]
        # What a block clears at its end need not be charged before.
        if mask >> place & 1 and not (limits.profile[0].clears and block.until_ns > now_ns):
            counter = limits.counters[number]
            rule, t_ns = limits.rules[counter.rule], max(now_ns, block.last_ns)
            charge(counter, rule, limits.rings, limits.used, t_ns)
            counter.ready = max(counter.ready, block.until_ns)


@called
def _admit(now_ns: Int, release_ns: Int, lane: Int, shadow: Int, limits: Limits) -> Int:
    """Charge an admitted request at its release; return the verdict."""
    verdict = np.int64(0)
    if release_ns > now_ns:
        verdict = 4 * (_delayer(now_ns, lane, limits) + 1) + DELAYED
    if shadow and limits.profile[0].counts_refused:
        _charge_refused(now_ns, lane, shadow, limits)
    for place in range(limits.lanes.shape[1]):
        number = limits.lanes[lane, place]
        if number == 0:
            break
        if shadow >> place & 1:
            continue
        counter = limits.counters[number]
        rule = limits.rules[counter.rule]
        t_ns = max(release_ns, counter.ready) if rule.shadow else release_ns
        charge(counter, rule, limits.rings, limits.used, t_ns)
        limits.blocks[number].last_ns = t_ns
    return verdict


@inlined
def _delayer(now_ns: Int, lane: Int, limits: Limits) -> Int:
    """Return the rule that delays the most (D-DECIDER)."""
    latest_ns, decider, blocks = np.int64(-1), np.int64(-1), False
    for place in range(limits.lanes.shape[1]):
        number = limits.lanes[lane, place]
        if number == 0:
            break
        counter = limits.counters[number]
        rule = limits.rules[counter.rule]
        is_block = rule.block_ns > 0
        own_ns = max(now_ns, limits.blocks[number].last_ns if is_block else counter.ready)
        if not rule.shadow and (
            own_ns > latest_ns or (own_ns == latest_ns and is_block and not blocks)
        ):
            latest_ns, decider, blocks = own_ns, np.int64(counter.rule), is_block
    return decider


@called
def _judge_shadow(now_ns: Int, lane: Int, limits: Limits) -> Int:
    """Return the places in shadow that would refuse; begin their blocks, count each clause once."""
    shadow = np.int64(0)
    for place in range(limits.lanes.shape[1]):
        number = np.int64(limits.lanes[lane, place])
        if number == 0:
            break
        counter = limits.counters[number]
        rule = limits.rules[counter.rule]
        if rule.shadow and counter.ready > now_ns and _release_ns(now_ns, number, limits) < 0:
            is_first = True
            for earlier in range(place):
                other = limits.counters[limits.lanes[lane, earlier]].rule
                if shadow >> earlier & 1 and limits.rules[other].clause == rule.clause:
                    is_first = False
            shadow |= np.int64(1) << place
            if is_first and now_ns >= limits.profile[0].from_ns:
                limits.shadow_counts[counter.rule] += 1
    return shadow


# --- lanes ---------------------------------------------------------------------------------------


@inlined
def number_of(table: Records, a: Int, b: Int, c: Int, new: Int) -> Int:
    """Return the number that a table keeps for three numbers; `new` is kept for new ones."""
    mask = np.uint64(len(table) - 1)
    mixed = (np.int64(a) + (np.int64(b) << 32)) * -7046029254386353131
    mixed ^= np.int64(c) * -4417276706812531889
    place = np.uint64(mixed ^ mixed >> 29 ^ mixed >> 47) & mask
    while table[place, 0] >= 0:
        if table[place, 1] == a and table[place, 2] == b and table[place, 3] == c:
            return np.int64(table[place, 0])
        place = (place + np.uint64(1)) & mask
    table[place, 0], table[place, 1], table[place, 2], table[place, 3] = new, a, b, c
    return np.int64(new)


@inlined
def has_lane_room(limits: Limits) -> Int:
    """Whether there is room for one more lane, and for its counters."""
    counters = limits.used[COUNTERS] + limits.kinds.shape[1]
    is_short = limits.used[LANES] >= len(limits.lanes) or counters > len(limits.counters)
    return not is_short


@inlined
def has_ring_room(limits: Limits) -> Int:
    """Whether every ring of a lane could grow."""
    largest = max(2 * limits.used[LARGEST_RING], FIRST_SLOTS)
    return limits.used[RING_SLOTS] + limits.lanes.shape[1] * largest <= len(limits.rings)


@inlined
def lane_of(kind: Int, key: Int, ip: Int, limits: Limits) -> Int:
    """Return the lane of a request; there must be room for a new one."""
    used, lanes = limits.used, limits.lanes
    lane = number_of(limits.lane_table, kind, key, ip, used[LANES])
    if lane == used[LANES]:
        used[LANES] += 1
        for place in range(limits.kinds.shape[1]):
            number = np.int64(limits.kinds[kind, place])
            if number < 0:
                break
            rule = limits.rules[number]
            by = np.int64(key) if rule.by_key else np.int64(limits.others[kind, place])
            by_ip = np.int64(ip) if rule.by_ip else np.int64(-1)
            counter = number_of(limits.counter_table, by, by_ip, number, used[COUNTERS])
            lanes[lane, place] = counter
            if counter == used[COUNTERS]:
                limits.counters[counter].rule = number
                used[COUNTERS] += 1
    return lane


# --- columns -------------------------------------------------------------------------------------


@entry
def find_lanes(
    first: int, kind: Records, key: Records, ip: Records, lane: Records, limits: Limits
) -> int:
    """Find the lanes of rows from `first` on; return the first row without room for its lane."""
    for row in range(first, len(kind)):
        if not has_lane_room(limits):
            return row
        lane[row] = lane_of(kind[row], key[row], ip[row], limits)
    return len(kind)


@entry
def decide_rows(
    first: int,
    t_ns: Records,
    lane: Records,
    verdict: Records,
    wait_ns: Records,
    refusing: Records,
    shadow: Records,
    limits: Limits,
) -> int:
    """Decide about rows from `first` on; return the first row without room for larger rings."""
    for row in range(first, len(t_ns)):
        if not has_ring_room(limits):
            return row
        verdict[row], wait_ns[row], refusing[row], shadow_places = decide(
            t_ns[row], lane[row], limits
        )
        if len(shadow):
            shadow[row] = shadow_places
    return len(t_ns)


@entry
def refill_table(table: Records, entries: Records) -> None:
    """Put entries of an older table into a larger one."""
    for row in range(len(entries)):
        number, a, b, c = entries[row]
        if number >= 0:
            number_of(table, np.int64(a), np.int64(b), np.int64(c), np.int64(number))
