"""The limiter in compiled code: counters, and one decision over all counters of a request.

*Counters*: the five algorithms of D-ALGORITHM, one record a counter. A token bucket is GCRA with a
burst of N, so four ways of counting are left. Between two charges a counter that admits a request
also admits it later; so each charge computes `ready`, the earliest instant of the next admission,
and testing a counter is one comparison.

*Decisions*: test all counters of a request, then charge all or none. A *lane* is one combination of
request kind, key and address: the numbers of the counters that such a request is charged to, those
of rules in force before those in shadow, 0 for none. A verdict is one number: 0 admitted, else
4 · (rule + 1) + outcome.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from simulator.kernel.compiling import called, entry, inlined

Records: TypeAlias = Any
"""An array of records; compiled code gets one of them by its number."""
Record: TypeAlias = Any
Int: TypeAlias = Any


def record_type(**kinds: str) -> np.dtype[Any]:
    """Return the type of records: fields by kind, such as i8="one two"."""
    return np.dtype([(name, kind) for kind, names in kinds.items() for name in names.split()])


LOG, FIXED, SLIDING, GCRA = range(4)
FAR_NS: Final = 1 << 62
FIRST_SLOTS: Final = 4

# A rule's counter. span_ns: of the window, and one tick more where edges are closed. offset_ns: of
# the run's start within a window that is aligned to the Unix epoch. step, rest: W / N of gcra, and
# its remainder; slack: (burst - 1) * W. by_key, by_ip: what its counters are kept by, beside other
# fields.
RULE: Final = record_type(
    i8="algorithm limit window_ns span_ns offset_ns anchored step rest slack block_ns by_key by_ip "
    "shadow clause"
)

# A counter fills half a cache line. `mark`: where its ring begins, where its window ends or begins,
# or the theoretical arrival time. `count`: the ring's next slot, charges in the window, those in
# the one before, N-ths of a nanosecond. `size`: slots of the ring, charges in the present window.
# `full`: the ring holds N charges.
COUNTER: Final = record_type(i8="ready mark", i4="count size rule full")
# What only blocks and delays need: the end of the block, and the last release that was reserved.
BLOCK: Final = record_type(i8="until_ns last_ns")

# How much is in use: slots of all rings, slots of the largest ring, lanes, counters.
RING_SLOTS, LARGEST_RING, LANES, COUNTERS = range(4)

ADMITTED, DELAYED, REFUSED, BLOCKED = range(4)
MOST_RULES: Final = 31

# plain: every charge is at its request's instant: no throttle delays and no rule is in shadow.
PROFILE: Final = record_type(i8="plain delay_bound_ns extends clears counts_refused from_ns")


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


# --- counters -------------------------------------------------------------------------------------


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


# --- decisions ------------------------------------------------------------------------------------


@inlined
def decide(now_ns: Int, lane: Int, limits: Limits) -> tuple[Int, Int]:
    """Decide about a request; return verdict and wait."""
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
    return np.int64(0), np.int64(0)


@inlined
def is_admitted(verdict: Int) -> Int:
    """Whether a verdict lets a request in, at once or delayed."""
    return verdict & 3 <= DELAYED


@inlined
def _compose(now_ns: Int, lane: Int, over: Int, limits: Limits) -> tuple[Int, Int]:
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
        return _longest_wait(now_ns, lane, refusing, limits)
    return _admit(now_ns, release_ns, lane, shadow, limits), release_ns - now_ns


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
    limits: Limits,
) -> int:
    """Decide about rows from `first` on; return the first row without room for larger rings."""
    for row in range(first, len(t_ns)):
        if not has_ring_room(limits):
            return row
        verdict[row], wait_ns[row] = decide(t_ns[row], lane[row], limits)
    return len(t_ns)


@entry
def refill_table(table: Records, entries: Records) -> None:
    """Put entries of an older table into a larger one."""
    for row in range(len(entries)):
        number, a, b, c = entries[row]
        if number >= 0:
            number_of(table, np.int64(a), np.int64(b), np.int64(c), np.int64(number))
