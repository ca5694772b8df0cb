"""The arrays of a compiled run: clients, requests, events and what they draw from.

Whatever names another record does so by its number; −1 is none.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from simulator.kernel.deciding import Limits, Records, record_type
from simulator.play import outside

NONE: Final = np.int64(-1)


STREAM: Final = record_type(u8="key block used word0 word1 word2 word3")
DRAW: Final = record_type(i8="kind first second", f8="share")

# A group. Retry: attempts, delay (its kind), base_ns, cap_ns, honours. Dealing of keys and of
# addresses: how many, how, and a table. pace: its kind; a bucket's limit, step, rest and slack
# (`counting.charge_gcra`), or AIMD's floor, top, growth and kept_percent.
GROUP: Final = record_type(
    i8="attempts delay base_ns cap_ns honours retries_limited deadline_ns is_open concurrency "
    "awaits mix_table mix_count first_kind first_key key_count key_deal key_table address_count "
    "address_deal address_table is_fixed first_entry service think pace limit step rest slack "
    "floor top growth kept_percent arrivals arrive1 arrive2 start_ns stop_ns",
    f8="gap_on gap_off",
)

# A client. What every attempt needs comes first. Pace: `ready` is when the next attempt may begin,
# with `mark` and `count` of a bucket, or the milli-rate and the last attempt of AIMD. Arrivals:
# where the present phase or piece begins and ends, whether it is on, whether its phase has begun,
# the last arrival, how many arrivals or pieces are over, and how much of the piece is. Replayed:
# where its instants stand, how many there are, and where the mix entry of each request stands.
CLIENT: Final = record_type(
    i4="group combo think service retry queue_head queue_tail line_head line_tail under_way "
    "mix key_stream address_stream arrivals switches first_address",
    i8="serial key address files ready mark count milli_rate last_ns timer_ns "
    "timer begins_ns ends_ns is_on is_active at_ns number instants instant_count mix_entries",
    f8="passed",
)

# A request. loop: of a closed client, −1 = none, PART = a further part of a job. queued_ns: how
# long it waited for a place, counted in its first latency. next: in its queue, line or free list.
REQUEST: Final = record_type(
    i4="client combo lane loop attempt next", i8="serial began_ns delay_ns queued_ns state"
)
PART: Final = -2
WAITING, SENT, EXPIRED = range(3)

# An event. order: client << 16 | attempt. tail: number of the event << 30 | what it is about << 4 |
# its kind. Events happen in the order of all four.
EVENT: Final = record_type(i8="t_ns order serial tail")
ORDER_BITS: Final = 16
KIND_BITS: Final = 4
TAIL_BITS: Final = 30
# Numbers of numpy: a function is compiled for their type, and not for each of them.
(ASK, WAITED, ARRIVE, RETRY, ANSWER, TIMER, UPLOAD, DEADLINE, LATE_TURN, EXPIRE) = map(
    np.int64, range(10)
)
ANSWER_ATTEMPT, FIRST_ATTEMPT = np.int64(outside.ANSWER), np.int64(outside.FIRST)

# Who asks for what: an entry of the mix, from the mix's length on the upload of such a job.
COMBO: Final = record_type(i4="client entry key address lane parts")

ENTRY: Final = record_type(i4="parts upload_kind")
ROW: Final = record_type(i8="t_ns wait_ns latency_ns", i4="combo attempt verdict")

CLOCK: Final = record_type(
    i8="now_ns number event_count free_request combo_count row_count warm_up_ns end_ns is_started "
    "parts_left parts_of began ended well touched",
    u8="seed",
)

TYPES: Final = {
    "groups": GROUP,
    "clients": CLIENT,
    "streams": STREAM,
    "draws": DRAW,
    "entries": ENTRY,
    "requests": REQUEST,
    "events": EVENT,
    "combos": COMBO,
    "rows": ROW,
}
"""The arrays of a run that hold records."""

FIXED_DEAL, ROTATED_DEAL, DRAWN_DEAL = range(3)
CONSTANT, UNIFORM, EXPONENTIAL, LOGNORMAL, PARETO, DISCRETE = range(6)
UNPACED, BUCKET, AIMD = range(3)
EVEN_ARRIVALS, REPLAYED_ARRIVALS, POISSON_ARRIVALS, ON_OFF_ARRIVALS, VARYING_ARRIVALS = range(5)
FIXED_DELAY, EXPONENTIAL_DELAY, FULL_JITTER, DECORRELATED = range(4)

# Why the loop stops.
DONE, ROWS_FULL, RINGS_FULL, LANES_FULL, ROOM_FULL = range(5)


class Simulation(NamedTuple):
    """The arrays of a run.

    tables, values: cumulative weights and what they choose from, replayed instants and the mix
    entries of their requests. pieces:
    length, first and last rate of each straight piece. kinds: the limiter's kind of each entry with
    each key. keys, addresses: numbers by place.
    """

    clock: Records
    groups: Records
    clients: Records
    streams: Records
    draws: Records
    tables: Records
    values: Records
    pieces: Records
    entries: Records
    kinds: Records
    keys: Records
    addresses: Records
    requests: Records
    events: Records
    combos: Records
    combo_table: Records
    rows: Records
    limits: Limits
