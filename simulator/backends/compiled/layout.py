"""The arrays of a compiled simulation: what each place of each row means.

A *combo* is what one client can ask: an entry of its mix, a key and an address; it is what the
results call a subject. A *request* is one under way, or a place in a line. An *event* is something
that happens at an instant; of one instant in order of (client, attempt, serial), then of making.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np

__all__ = ["Sim", "linked", "longer"]

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Floats: TypeAlias = np.ndarray[Any, np.dtype[np.float64]]

# `clock`: one row of whole numbers about the run.
NOW, SEQUENCE, PENDING, FREE_EVENT, FREE_REQUEST, COMBO_COUNT, ROWS, WARM_UP, STARTED = range(9)
CLOCK_WIDTH: Final = 9

# A group's row.
(
    G_ATTEMPTS,
    G_RETRIES,
    G_RETRY_KIND,
    G_BASE,
    G_CAP,
    G_HONOURS,
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
    G_PACE_1,
    G_PACE_2,
    G_PACE_3,
    G_PACE_4,
    G_ARRIVALS,
    G_ARRIVE_1,
    G_ARRIVE_2,
    G_ARRIVE_3,
    G_ARRIVE_4,
) = range(32)
GROUP_WIDTH: Final = 32
NONE: Final = -1

FIXED, ROTATED, DRAWN = range(3)
RETRY_FIXED, RETRY_EXPONENTIAL, RETRY_FULL, RETRY_DECORRELATED = range(4)
UNPACED, BUCKET, AIMD = range(3)
CONSTANT_RATE, POISSON, ON_OFF, VARYING, REPLAYED = range(5)

# A client's row.
(
    C_GROUP,
    C_STOP,
    C_START,
    C_KEY,
    C_ADDRESS,
    C_ADDRESSES,
    C_COMBO,
    C_UNDER_WAY,
    C_SERIAL,
    C_QUEUE_HEAD,
    C_QUEUE_TAIL,
    C_LINE_HEAD,
    C_LINE_TAIL,
    C_DUE,
    C_TAT,
    C_PART,
    C_PACE,
    C_LAST,
    C_TIMER,
    C_MIX,
    C_KEYS,
    C_ADDRESS_STREAM,
    C_RETRY,
    C_SERVICE,
    C_THINK,
    C_ARRIVALS,
    C_SWITCHES,
    C_BEGINS,
    C_ENDS,
    C_IS_ON,
    C_ACTIVE,
    C_AT,
) = range(32)
CLIENT_WIDTH: Final = 32

# A client's floats: of varying arrivals.
F_PASSED, F_DUE = range(2)
FLOAT_WIDTH: Final = 2

# A request's row.
R_CLIENT, R_SERIAL, R_ATTEMPT, R_BEGAN, R_DELAY, R_COMBO, R_NEXT, R_LANE = range(8)
REQUEST_WIDTH: Final = 8

# An event's row; `E_ORDER` is client << 16 | attempt.
E_T, E_ORDER, E_SERIAL, E_SEQUENCE, E_KIND, E_WHAT, E_NEXT, E_SPARE = range(8)
EVENT_WIDTH: Final = 8
ASK, ARRIVE, RETRY, ANSWER, TIMER, WAITED = range(6)

# A combo's row.
O_CLIENT, O_ENTRY, O_KEY, O_ADDRESS, O_LANE = range(5)
COMBO_WIDTH: Final = 5

# An output row, column by column.
COLUMNS: Final = 7

# What a combo's place in the hash table is mixed with.
MIX_1: Final = -7046029254386353131
MIX_2: Final = -4658895280553007687

# What the loop stops for.
DONE, FULL, NO_LANES, NO_RINGS, NO_PLACES, NO_COMBOS = range(6)


class Sim(NamedTuple):
    """The arrays.

    draws, shares: rows of distributions. tables, values: cumulative weights and what they choose
    from. pieces (n, 3): of varying rates. kinds: numbers of the limiter. keys, addresses: numbers
    by place. ended (combos, 2): requests, and those that went well. rows (COLUMNS, rows).
    """

    clock: Ints
    groups: Ints
    group_floats: Floats
    clients: Ints
    client_floats: Floats
    streams: np.ndarray[Any, np.dtype[np.uint64]]
    draws: Ints
    shares: Floats
    tables: Floats
    values: Ints
    pieces: Floats
    kinds: np.ndarray[Any, np.dtype[np.int32]]
    keys: np.ndarray[Any, np.dtype[np.int32]]
    addresses: np.ndarray[Any, np.dtype[np.int32]]
    requests: Ints
    events: Ints
    heap: Ints
    combos: np.ndarray[Any, np.dtype[np.int32]]
    combo_table: np.ndarray[Any, np.dtype[np.int32]]
    ended: Ints
    rows: Ints


def longer(array: np.ndarray[Any, Any], size: int) -> np.ndarray[Any, Any]:
    """Return an array with room for `size` rows, the new ones zero."""
    found = np.zeros((size, *array.shape[1:]), dtype=array.dtype)
    found[: len(array)] = array
    return found


def linked(rows: Any, taken: int, size: int, column: int) -> Any:  # noqa: ANN401 # reason: arrays
    """Return `size` rows, those from `taken` on linked into a list of free ones."""
    found = np.zeros((size, rows.shape[1]), dtype=np.int64)
    found[: min(len(rows), size)] = rows[:size]
    following = np.arange(taken + 1, size + 1)
    following[-1] = -1
    found[taken:, column] = following
    return found
