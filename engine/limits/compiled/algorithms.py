"""The five ways of counting "N requests per W" (D-ALGORITHM), in exact integers.

One source, two machines: every function here works on *indexable int64 sequences* and nothing
else. The engine interprets them over lists; a compiled loop can run the same functions over rows
of arrays (`numba.extending.register_jitable` takes them as they stand): only layout and loop
differ.

The main idea: between two charges, a counter that admits a request also admits it later. So each
charge computes the earliest instant at which the next request would be admitted, `READY`. Testing
any rule is then one comparison, `line[READY] > now_ns`; the exact wait is the difference; and only
a charge runs an algorithm.

A counter is a `line` of `LINE_SIZE` integers, all zero when fresh, and for the sliding log a
`ring` that holds its last N charges. A rule is a row of `RULE_SIZE` integers (`rule_row`).
Instants are nanoseconds, not negative, and the instants charged to one counter never decrease.

No product overflows int64: the only ones are N·W and burst·W, which `rule_row` bounds by
2^62, and no instant is ever multiplied. Instants themselves stay below 2^62 ns, 146 years.

Composition and delay stand in `engine.limits.limiter`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.profile import Algorithm

Line: TypeAlias = MutableSequence[int]
Row: TypeAlias = Sequence[int]
Charge: TypeAlias = Callable[[Line, Line, Row, int], None]
"""`charge(line, ring, rule, t_ns)`: count one request at `t_ns` and set `line[READY]`."""

Remaining: TypeAlias = Callable[[Line, Row, Row, int], int]
"""`remaining(line, ring, rule, now_ns)`: how many requests it would admit at `now_ns`.

One after another; blocks apart.
"""

Idle: TypeAlias = Callable[[Line, Row, Row], int]
"""`idle_ns(line, ring, rule)`: from when on it decides as a fresh one does; blocks apart."""

PRODUCT_BOUND: Final = 1 << 62
FAR_NS: Final = 1 << 62

# A counter's line. The first four mean the same under every algorithm.
READY: Final = 0  # the earliest instant at which the next request would be admitted
BLOCK: Final = 1  # a block refuses before this instant
LAST: Final = 2  # the last release that was reserved (only where throttles delay)
BASE: Final = 3  # where this counter's ring begins in the sequence that holds it
PLACE: Final = 4  # sliding log: the ring's next slot
FULL: Final = 5  # sliding log: 1 once the ring holds N charges
OLDEST: Final = 6  # sliding log: the slot of the oldest charge that counted at the last look
END: Final = 4  # fixed window: where the window of the last charge ends
COUNT: Final = 5  # fixed window: charges in it
START: Final = 4  # sliding counter: where the window of the last charge starts
PREV: Final = 5  # sliding counter: charges in the window before that
CUR: Final = 6  # sliding counter: charges in that window
TAT: Final = 4  # gcra: the theoretical arrival time, whole nanoseconds
PART: Final = 5  # gcra: and its fraction, in N-ths of a nanosecond
LINE_SIZE: Final = 7

# A rule's row.
LIMIT: Final = 0  # N
WINDOW: Final = 1  # W
SPAN: Final = 2  # W, and one tick more where edges are closed (D-EDGES)
ANCHORED: Final = 3  # fixed window: 1 = it starts at the first charge, 0 = at multiples of W
STEP: Final = 4  # gcra: whole part of W / N
REST: Final = 5  # gcra: W mod N
SLACK: Final = 6  # gcra: (burst - 1) * W
RULE_SIZE: Final = 7


def charge_sliding_log(line: Line, ring: Line, rule: Row, t_ns: int) -> None:
    """Admit when fewer than N charges lie in (t - W, t]; closed edges: in [t - W, t].

    The ring holds the last N charges, so the slot that the next charge will overwrite is the
    oldest that matters: when it leaves the window there is room. Raises IndexError, before
    anything has changed, when the ring is shorter than its next slot (`grow_ring`).
    """
    base = line[BASE]
    place = line[PLACE]
    ring[base + place] = t_ns
    place += 1
    if place == rule[LIMIT]:
        place = 0
        line[FULL] = 1
    line[PLACE] = place
    line[READY] = t_ns
    if line[FULL]:
        room_ns = ring[base + place] + rule[SPAN]
        if room_ns > t_ns:
            line[READY] = room_ns


def charge_fixed_window(line: Line, ring: Line, rule: Row, t_ns: int) -> None:  # noqa: ARG001 # reason: one signature
    """Admit when fewer than N charges lie in the window of t.

    Windows start at multiples of W, or, anchored, at the first charge that finds none open
    (closed edges: such a window ends one tick later).
    """
    if t_ns >= line[END]:
        if rule[ANCHORED]:
            line[END] = t_ns + rule[SPAN]
        else:
            line[END] = t_ns - t_ns % rule[WINDOW] + rule[WINDOW]
        line[COUNT] = 0
    line[COUNT] += 1
    line[READY] = line[END] if line[COUNT] >= rule[LIMIT] else t_ns


def charge_sliding_counter(line: Line, ring: Line, rule: Row, t_ns: int) -> None:  # noqa: ARG001 # reason: one signature
    """Admit when floor(prev * (W - e) / W) + cur + 1 <= N, with e = t mod W.

    `cur` counts the charges in the window of t (multiples of W), `prev` those in the one before.
    With `free` places beside `cur` that says prev * (W - e) <= free * W - 1, which is solved for
    e; with none free it is solved in the next window, where `cur` has become `prev`.
    """
    limit = rule[LIMIT]
    window_ns = rule[WINDOW]
    start_ns = line[START]
    if not start_ns <= t_ns < start_ns + window_ns:  # a division only where a window begins
        start_ns = t_ns - t_ns % window_ns
        line[PREV] = line[CUR] if start_ns == line[START] + window_ns else 0
        line[CUR] = 0
        line[START] = start_ns
    line[CUR] += 1
    free = limit - line[CUR]
    ready_ns = t_ns
    if free <= 0:
        ready_ns = start_ns + 2 * window_ns - (limit * window_ns - 1) // line[CUR]
    elif line[PREV] > 0:
        ready_ns = start_ns + window_ns - (free * window_ns - 1) // line[PREV]
    line[READY] = max(t_ns, ready_ns)


def charge_gcra(line: Line, ring: Line, rule: Row, t_ns: int) -> None:  # noqa: ARG001 # reason: one signature
    """Admit when (TAT - t) * N <= (burst - 1) * W; a charge sets TAT = max(TAT, t) + W / N.

    It is the token bucket too: a bucket of N tokens that refills N per W is full again at TAT,
    so it holds a token at t exactly when (TAT - t) * N <= (N - 1) * W.

    TAT is kept as whole nanoseconds and N-ths of one, so that nothing is rounded and no instant
    is multiplied. A debt (refused requests that count) stops growing at `FAR_NS`.
    """
    limit = rule[LIMIT]
    if line[TAT] < t_ns:
        line[TAT] = t_ns
        line[PART] = 0
    if line[TAT] < FAR_NS:
        line[TAT] += rule[STEP]
        line[PART] += rule[REST]
        if line[PART] >= limit:
            line[PART] -= limit
            line[TAT] += 1
    ready_ns = line[TAT] - (rule[SLACK] - line[PART]) // limit
    line[READY] = max(t_ns, ready_ns)


def rule_row(
    algorithm: Algorithm,
    limit_requests: int,
    window_ns: int,
    *,
    burst_requests: int | None = None,
    closed: bool = False,
    anchored: bool = False,
) -> tuple[int, ...]:
    """Return the integers that the functions above read of a rule.

    burst_requests: of gcra alone, N when None. closed: D-EDGES closed. anchored: fixed windows
    start at the first charge. Raises AssertionError when a product could leave int64.
    """
    takes_burst = ALGORITHMS[algorithm].takes_burst
    burst = limit_requests if burst_requests is None or not takes_burst else burst_requests
    assert min(limit_requests, window_ns, burst) > 0
    assert max(limit_requests, burst) * window_ns < PRODUCT_BOUND
    return (
        limit_requests,
        window_ns,
        window_ns + (1 if closed else 0),
        1 if anchored else 0,
        window_ns // limit_requests,
        window_ns % limit_requests,
        (burst - 1) * window_ns,
    )


def grow_ring(ring: list[int], limit_requests: int) -> None:
    """Double a list's ring, up to N slots.

    Until it holds N charges a ring has never wrapped, so growing moves nothing; and a counter
    that sees few requests never pays for N slots.
    """
    held = len(ring)
    ring.extend([0] * min(max(held, 4), limit_requests - held))


def remaining_sliding_log(line: Line, ring: Row, rule: Row, now_ns: int) -> int:
    """Return N less the charges in (t - W, t].

    The oldest that counted at the last look is where the search goes on, when the charge before it
    still counts for nothing; each charge is passed once, so a look costs O(1) over time.
    """
    place = line[PLACE]
    gone_ns = now_ns - rule[SPAN]
    if ring[place - 1] <= gone_ns or not (place or line[FULL]):
        return rule[LIMIT]  # not even the newest counts, or there is none
    oldest = line[OLDEST]
    if ring[oldest - 1] > gone_ns:
        limit = rule[LIMIT]
        oldest = bisect_right(ring, gone_ns, place, limit) % limit if line[FULL] else 0
    while ring[oldest] <= gone_ns:
        oldest += 1
        if oldest == rule[LIMIT]:
            oldest = 0
    line[OLDEST] = oldest
    return oldest - place if oldest >= place else rule[LIMIT] + oldest - place


def remaining_fixed_window(line: Line, ring: Row, rule: Row, now_ns: int) -> int:  # noqa: ARG001 # reason: one signature
    """Return N less the charges in the window of t."""
    return rule[LIMIT] if now_ns >= line[END] else max(0, rule[LIMIT] - line[COUNT])


def remaining_sliding_counter(line: Line, ring: Row, rule: Row, now_ns: int) -> int:  # noqa: ARG001 # reason: one signature
    """Return N - cur - floor(prev * (W - e) / W), with e = t mod W."""
    window_ns = rule[WINDOW]
    start_ns = now_ns - now_ns % window_ns
    prev, cur = line[PREV], line[CUR]
    if start_ns > line[START]:
        prev, cur = (cur if start_ns == line[START] + window_ns else 0), 0
    return max(0, rule[LIMIT] - prev * (window_ns - now_ns % window_ns) // window_ns - cur)


def remaining_gcra(line: Line, ring: Row, rule: Row, now_ns: int) -> int:  # noqa: ARG001 # reason: one signature
    """Return how many requests the burst still admits: free steps of W / N."""
    debt = 0
    if line[TAT] >= now_ns:
        debt = max(0, (line[TAT] - now_ns) * rule[LIMIT] + line[PART])
    return max(0, (rule[SLACK] - debt) // rule[WINDOW] + 1)


def idle_sliding_log(line: Line, ring: Row, rule: Row) -> int:
    """Return when the last charge leaves the window."""
    if not line[FULL] and not line[PLACE]:
        return 0
    return ring[line[PLACE] - 1] + rule[SPAN]


def idle_fixed_window(line: Line, ring: Row, rule: Row) -> int:  # noqa: ARG001 # reason: one signature
    """Return when the window of the last charge ends."""
    return line[END]


def idle_sliding_counter(line: Line, ring: Row, rule: Row) -> int:  # noqa: ARG001 # reason: one signature
    """Return when the window after that of the last charge ends."""
    return line[START] + 2 * rule[WINDOW] if line[CUR] else 0


def idle_gcra(line: Line, ring: Row, rule: Row) -> int:  # noqa: ARG001 # reason: one signature
    """Return the theoretical arrival time, rounded up."""
    return line[TAT] + (1 if line[PART] else 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of counting "N requests per W".

    charge, remaining, idle_ns: the functions above. windows: in any window at most so many times N
    are admitted; has_burst: and a burst beside them. takes_burst: the burst is a rule's own.
    has_ring: it keeps its last N charges. has_windows: of fixed edges; takes_anchor: the first
    charge can be one. regains: room comes back between two edges.
    """

    charge: Charge
    remaining: Remaining
    idle_ns: Idle
    windows: int = 1
    has_burst: bool = False
    takes_burst: bool = False
    has_ring: bool = False
    has_windows: bool = False
    takes_anchor: bool = False
    regains: bool = False


_BUCKET: Final = Method(
    charge=charge_gcra,
    remaining=remaining_gcra,
    idle_ns=idle_gcra,
    has_burst=True,
    regains=True,
)

ALGORITHMS: Final[dict[Algorithm, Method]] = {
    "sliding-log": Method(
        charge=charge_sliding_log,
        remaining=remaining_sliding_log,
        idle_ns=idle_sliding_log,
        has_ring=True,
    ),
    "fixed-window": Method(
        charge=charge_fixed_window,
        remaining=remaining_fixed_window,
        idle_ns=idle_fixed_window,
        windows=2,
        has_windows=True,
        takes_anchor=True,
    ),
    "sliding-counter": Method(
        charge=charge_sliding_counter,
        remaining=remaining_sliding_counter,
        idle_ns=idle_sliding_counter,
        windows=2,
        has_windows=True,
        regains=True,
    ),
    "token-bucket": _BUCKET,
    "gcra": replace(_BUCKET, takes_burst=True),
}
"""The algorithms of D-ALGORITHM; a token bucket is GCRA with a burst of N."""


def begin_or_extend_block(
    line: Line,
    now_ns: int,
    block_ns: int,
    extends: bool,  # noqa: FBT001 # reason: by place, so that it compiles
    clears: bool,  # noqa: FBT001 # reason: by place, so that it compiles
) -> None:
    """Refuse one request by a block rule.

    The first request beyond the rate begins a block, which refuses it and all later ones before
    its end (LIM-BLOCK, D-BLOCK-START); refusals inside it move its end only where `extends`. Where
    the block `clears` (D-BLOCK-RESET) the counter forgets what was charged to it, and nothing is
    charged to it before the end: at the end it is fresh. Call it only when `line[READY] > now_ns`.
    """
    if line[BLOCK] <= now_ns:
        if clears:
            line[READY] = line[LAST] = line[4] = line[5] = line[6] = 0
    elif not extends:
        return
    line[BLOCK] = now_ns + block_ns
    line[READY] = max(line[READY], line[BLOCK])
