"""The arrays of a compiled simulation: what each place of each row means.

A *combo* is what one client can ask: an entry of its mix, a key and an address; it is what the
results call a subject. The upload that follows entry n of a mix of m is its entry m + n. A
*request* is one under way, or a place in a line. An *event* is something that happens at an
instant; of one instant in order of (client, attempt, serial), then of making, and the service's own
come before any client's. A *call* is what an admitted attempt does behind a proxy or in a reactor;
a *pool* has the instances that code runs in (`engine.instances`).
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

from engine.limits.compiled.core import aligned
from engine.limits.subject import OTHER_FIELDS

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Shorts: TypeAlias = np.ndarray[Any, np.dtype[np.int32]]
Words: TypeAlias = np.ndarray[Any, np.dtype[np.uint64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# `clock`: one row of whole numbers about the run, then what the profile says of the outside and of
# nodes: how many, 0 where they are exact. `GROWN`: whether the wheel, or the table of combos, is a
# larger one than before.
(
    NOW,
    SEQUENCE,
    PENDING,
    FREE_EVENT,
    FREE_REQUEST,
    COMBO_COUNT,
    ROWS,
    WARM_UP,
    END,
    STARTED,
    ROWS_BEFORE,
    LATE_COUNT,
    PARTS_LEFT,
    PARTS_OF,
    FREE_CALL,
    CALLS,
    HEAPED,
    EPOCH,
    SHIFT,
    TAKEN,
    TUNE_AT,
    TUNED_NS,
    NEAR_FIRST,
    NEAR_COUNT,
    NEAR_WANTED,
    CALL_TIMEOUT,
    CODE_TIMEOUT,
    COLD_START,
    KEEP_HOT,
    INSTANCES,
    STATUSES,
    _,
    _,
    _,
    NODES,
    BALANCE,
    TURN,
    NODE_STREAM,
    HOME_KEYS,
    GROWN,
) = range(40)
CLOCK_WIDTH: Final = 40

SPARE: Final = 8
"""A step takes fewer places than this for events, and for calls; with no more left, it waits."""

# A group's row. At `G_RETRY` stands the rule of its retries, at `G_RULE` that of its pace
# (`simulator.traffic.client_rules`).
(
    G_RETRY,
    _,
    _,
    _,
    _,
    G_RETRIES,
    G_DEADLINE,
    G_OPEN,
    G_CONCURRENCY,
    G_AWAITS,
    G_MIX,
    G_MIX_COUNT,
    G_KINDS,
    G_KEYS,
    G_KEY_COUNT,
    G_KEY_DEAL,
    G_KEY_TABLE,
    G_ADDRESS_COUNT,
    G_ADDRESS_DEAL,
    G_ADDRESS_TABLE,
    G_SERVICE,
    G_THINK,
    G_PACING,
    G_RULE,
    _,
    _,
    _,
    _,
    _,
    _,
    G_ARRIVALS,
    G_ARRIVE_1,
    G_ARRIVE_2,
    G_ENTRIES,
    G_DEALS,
) = range(35)
GROUP_WIDTH: Final = 40
NONE: Final = -1

# How keys, and addresses, are dealt: words of a group's row, from `G_KEY_COUNT` or
# `G_ADDRESS_COUNT` on.
DEAL_COUNT, DEAL_KIND, DEAL_TABLE = range(3)
FIXED, ROTATED, DRAWN = range(3)

# A client's row; what every attempt needs stands in the first cache line. The line of its pace
# begins at `C_DUE`; `C_TIMER` stands in a place of it that no pace uses. The state of its
# arrivals (`simulator.traffic.arrivals`) stands from `C_ARRIVALS` to `C_NUMBER`.
(
    C_GROUP,
    C_STOP,
    C_COMBO,
    C_THINK,
    C_SERVICE,
    C_RETRY,
    C_UNDER_WAY,
    C_LINE_HEAD,
    C_START,
    C_KEY,
    C_ADDRESS,
    C_ADDRESSES,
    C_SERIAL,
    C_QUEUE_HEAD,
    C_QUEUE_TAIL,
    C_LINE_TAIL,
    C_DUE,
    _,
    _,
    C_TIMER,
    _,
    _,
    C_MIX,
    C_KEYS,
    C_ADDRESS_STREAM,
    C_ARRIVALS,
    C_SWITCHES,
    C_BEGINS,
    C_ENDS,
    C_IS_ON,
    C_ACTIVE,
    C_AT,
    C_NUMBER,
    C_BEHIND,
    C_TIMER_NUMBER,
    C_FILES,
) = range(36)
CLIENT_WIDTH: Final = 40

# An entry of a mix: what is behind it, −1 = nothing; how many files its job has, 0 = it is none;
# the kind of an upload; where, among a client's streams, those begin that its plan draws from.
M_BEHIND, M_PARTS, M_UPLOAD, M_STREAMS = range(4)
ENTRY_WIDTH: Final = 4

# An entry with a key: its number for the limiter, then those of the other parts that it carries.
K_KIND, K_OTHERS = range(2)
KIND_WIDTH: Final = K_OTHERS + len(OTHER_FIELDS)

# What is behind a proxy or a reactor: draws and pools, −1 where there is none; `B_SHARE` is a place
# in the tables. Its streams, in this order: destination, reach, request's code, response's code. A
# reactor is a response's code and nothing else.
B_DESTINATION, B_SHARE, B_REQUEST, B_RESPONSE, B_REQUEST_POOL, B_RESPONSE_POOL = range(6)
BEHIND_WIDTH: Final = 6
BEHIND_STREAMS: Final = 4

# A pool's row: hot instances that idle for good, instances that are busy, the claims that wait, and
# the instances that idle for a while. The first two are those of `engine.instances`.
P_LASTING, P_BUSY, P_FIRST, P_LAST, P_IDLE_FIRST, P_IDLE_LAST = range(6)
POOL_WIDTH: Final = 6

# A call's row; an instance that idles for a while has one too (`V_UNTIL`, `V_NEXT`, `V_BEFORE`).
# At `V_HELD` stands its claim's row (`engine.instances`).
(
    V_ASKING,
    V_ROW,
    V_BEGAN,
    V_SERVICE,
    V_BEHIND,
    V_STAGE,
    V_PART,
    V_POOL,
    V_UNTIL,
    V_LATE,
    V_HELD,
    _,
    V_READY,
    V_TIMER,
    V_BELL,
    V_DESTINATION,
    V_REACHABLE,
    V_REQUEST,
    V_RESPONSE,
    V_NEXT,
    V_BEFORE,
    V_NODE,
) = range(22)
CALL_WIDTH: Final = 22

GAPS_WIDTH: Final = 2  # of a group (`simulator.traffic.arrivals`)

STREAM_WIDTH: Final = 8  # of a stream (`simulator.play.compiled.sampling`)

# A request's row. `R_LANE`: which of a closed client's loops, −1 = none, −2 = a further part of a
# job that is split. `R_NEXT` has how an attempt ended while its answer is on the way. From
# `R_ATTEMPT` on stands what `simulator.traffic.client_rules` knows of its attempts.
R_CLIENT, R_SERIAL, R_ATTEMPT, R_DELAY, R_BEGAN, R_COMBO, R_NEXT, R_LANE = range(8)
REQUEST_WIDTH: Final = 8
PART: Final = -2

# How the outside ended, the places of the statuses it causes (from `STATUSES` on), and the bits of
# those that a group retries (`G_RETRIES`).
WELL, TIMED_OUT, UNREACHABLE, CODE_TIMED_OUT, LIMITED = range(5)

# An event's row; `E_ORDER` is client << 16 | attempt, `OF_SERVICE` for the service's own; `E_WHAT`
# is what it is about << `KIND_BITS` | its kind. Beside it a link: its instant, and what follows it
# in its list. Links are read to put events in order, rows when they happen.
E_ORDER, E_SERIAL, E_SEQUENCE, E_WHAT = range(4)
EVENT_WIDTH: Final = 4
L_T, L_NEXT = range(2)
LINK_WIDTH: Final = 2
ORDER_BITS: Final = 16
KIND_BITS: Final = 4
KIND_MASK: Final = (1 << KIND_BITS) - 1
OF_SERVICE: Final = -1
(
    ASK,
    WAITED,
    ARRIVE,
    RETRY,
    ANSWER,
    TIMER,
    UPLOAD,
    GO_ON,
    TIME_OVER,
    RUNG,
    WOKEN,
    DEADLINE,
    LATE_TURN,
    LANDED,
) = range(14)
LAST_BEGINNING: Final = ARRIVE

# An event that is near: its instant, its number, the request that is about to ask (`prefetch`).
N_T, N_NUMBER, N_ASKING = range(3)
NEAR_WIDTH: Final = 4
NEAR_ROOM: Final = 64

# A combo's row: who asks for what, its lane, what is behind it, how many files its job has, and its
# node where the key or the address decides.
O_CLIENT, O_ENTRY, O_KEY, O_ADDRESS, O_LANE, O_BEHIND, O_PARTS, O_HOME = range(8)
COMBO_WIDTH: Final = 8

# What is counted of a combo's requests.
Q_BEGAN, Q_ENDED, Q_WELL = range(3)
ENDED_WIDTH: Final = 4

# An output row: one cache line, of which so many words are written.
W_T, W_COMBO, W_ATTEMPT, W_VERDICT, W_WAIT, W_LATENCY, W_STATUS = range(7)
COLUMNS: Final = 7
ROW_WIDTH: Final = 8

# A balancer (`engine.limits.nodes`). `homes`: the nodes of keys, `HOME_KEYS` of them, then those of
# addresses. `in_flight`: of each node, how many of its requests are.
MOST_NODES: Final = 64

# Why the loop stops.
DONE, FULL, NO_COUNTERS, NO_ROOM = range(4)


class Sim(NamedTuple):
    """The arrays.

    group_gaps, passed: what `simulator.traffic.arrivals` knows in floats of each group, and of each
    client. draws, shares: rows of distributions. tables, values: cumulative weights and what they
    choose from, and replayed instants. pieces: of varying rates. kinds: entries with a key. keys,
    addresses: numbers by place. links, near, wheel, heap: the order of events (`event_queue`).
    ended (combos, ENDED_WIDTH): requests that began, that ended, and that ended well. rows
    (COLUMNS, rows): a row's words lie together. late (n, 3): number, latency and status of rows
    that were answered after they were handed on. homes, in_flight: of a balancer. apart (groups,
    legs): attempts that a node lets in and the exact counter refuses by that leg, or that a node
    refuses by that leg and the exact counter lets in.
    """

    clock: Ints
    groups: Ints
    group_gaps: Floats
    clients: Ints
    passed: Floats
    streams: Words
    draws: Ints
    shares: Floats
    tables: Floats
    values: Ints
    pieces: Floats
    entries: Ints
    behind: Ints
    pools: Ints
    calls: Ints
    kinds: Shorts
    keys: Shorts
    addresses: Shorts
    requests: Ints
    events: Ints
    links: Ints
    near: Ints
    wheel: Shorts
    heap: Ints
    combos: Shorts
    combo_table: Shorts
    ended: Ints
    rows: Ints
    late: Ints
    homes: Shorts
    in_flight: Ints
    apart: Ints


def linked(rows: Any, taken: int, size: int, column: int) -> Any:  # noqa: ANN401 # reason: arrays
    """Return `size` rows, those from `taken` on linked into a list of free ones."""
    found = aligned((size, rows.shape[1]))
    found[: min(len(rows), size)] = rows[:size]
    following = np.arange(taken + 1, size + 1)
    following[-1] = -1
    found[taken:, column] = following
    return found
