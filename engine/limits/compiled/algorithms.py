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

from collections.abc import Callable, MutableSequence, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from engine.profile import Algorithm

Line: TypeAlias = MutableSequence[int]
Row: TypeAlias = Sequence[int]
Charge: TypeAlias = Callable[[Line, Line, Row, int], None]
"""`charge(line, ring, rule, t_ns)`: count one request at `t_ns` and set `line[READY]`."""

PRODUCT_BOUND: Final = 1 << 62
FAR_NS: Final = 1 << 62

# A counter's line. The first four mean the same under every algorithm.
READY: Final = 0  # the earliest instant at which the next request would be admitted
BLOCK: Final = 1  # a block refuses before this instant
LAST: Final = 2  # the last release that was reserved (only where throttles delay)
BASE: Final = 3  # where this counter's ring begins in the sequence that holds it
PLACE: Final = 4  # sliding log: the ring's next slot
FULL: Final = 5  # sliding log: 1 once the ring holds N charges
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
OFFSET: Final = 7  # how long before instant 0 an aligned window starts (D-ALIGN)
RULE_SIZE: Final = 8


def charge_sliding_log(line: Line, ring: Line, rule: Row, t_ns: int) -> None:
    """Admit when fewer than N charges lie in (t - W, t]; closed edges: in [t - W, t].

    The ring holds the last N charges, so the slot that the next charge will overwrite is the
    oldest that matters: when it leaves the window there is room. Raises IndexError, before
    anything has changed, when the ring is shorter than its next slot.
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
            line[END] = t_ns - (t_ns + rule[OFFSET]) % rule[WINDOW] + rule[WINDOW]
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
    if not (line[CUR] > 0 and start_ns <= t_ns < start_ns + window_ns):
        start_ns = t_ns - (t_ns + rule[OFFSET]) % window_ns
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
    offset_ns: int = 0,
) -> tuple[int, ...]:
    """Return the integers that the functions above read of a rule.

    burst_requests: of gcra alone, N when None. closed: D-EDGES closed. anchored: fixed windows
    start at the first charge. offset_ns: how long before instant 0 an aligned one starts. Raises
    AssertionError when a product could leave int64.
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
        offset_ns,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One way of counting "N requests per W".

    charge: the function above. windows: in any window at most so many times N
    are admitted; has_burst: and a burst beside them. takes_burst: the burst is a rule's own.
    has_ring: it keeps its last N charges. has_windows: of fixed edges; takes_anchor: the first
    charge can be one. regains: room comes back between two edges.
    """

    charge: Charge
    windows: int = 1
    has_burst: bool = False
    takes_burst: bool = False
    has_ring: bool = False
    has_windows: bool = False
    takes_anchor: bool = False
    regains: bool = False


_BUCKET: Final = Method(
    charge=charge_gcra,
    has_burst=True,
    regains=True,
)

ALGORITHMS: Final[dict[Algorithm, Method]] = {
    "sliding-log": Method(
        charge=charge_sliding_log,
        has_ring=True,
    ),
    "fixed-window": Method(
        charge=charge_fixed_window,
        windows=2,
        has_windows=True,
        takes_anchor=True,
    ),
    "sliding-counter": Method(
        charge=charge_sliding_counter,
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
