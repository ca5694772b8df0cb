"""Intervals in which parties are told to wait, for many parties at once.

Rows are sorted by party; all parties are computed together, since a batch has thousands of them
with a few rows each.
"""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.rows.running_maxima import latest_before

__all__ = ["Stretches", "stretches"]

Numbers: TypeAlias = npt.NDArray[np.int64]


class Stretches(NamedTuple):
    """What some rows add to each party, by its place; and the runs of rows that overlap.

    runs: where each party's runs begin; of each run from_ns, to_ns, and whether it is fresh: begins
    after all that the party was told before.
    """

    refused: list[int]
    blocked: list[int]
    first_ns: list[int]
    last_ns: list[int]
    shut_ns: list[int]
    until_ns: list[int]
    runs: list[int]
    from_ns: list[int]
    to_ns: list[int]
    is_fresh: list[bool]


def stretches(
    starts: Numbers,
    ends: Numbers,
    blocked: npt.NDArray[np.bool_],
    firsts: npt.NDArray[np.intp],
    known_ns: Numbers,
) -> Stretches:
    """Return what refused rows, sorted by party, add to the parties.

    starts, ends: when a row was refused, and until when it was told to wait. firsts: the first row
    of each party. known_ns: until when each party was told to wait before these rows.
    """
    bounds = np.r_[firsts, len(starts)]
    groups = np.repeat(np.arange(len(firsts)), np.diff(bounds))
    before = latest_before(ends, groups, firsts, known_ns)
    # A wait of 5 s, and a second later one of 4 s, shut a party out for 5 s, not for 9.
    shut_ns = np.maximum(ends - np.maximum(starts, before), 0)
    is_fresh = starts > before
    begins = is_fresh.copy()
    begins[firsts] = True
    runs = np.flatnonzero(begins)
    return Stretches(
        np.diff(bounds).tolist(),
        np.add.reduceat(blocked.astype(np.int64), firsts).tolist(),
        starts[firsts].tolist(),
        starts[bounds[1:] - 1].tolist(),
        np.add.reduceat(shut_ns, firsts).tolist(),
        np.maximum.reduceat(ends, firsts).tolist(),
        np.asarray(np.searchsorted(runs, bounds)).tolist(),
        starts[runs].tolist(),
        np.maximum.reduceat(ends, runs).tolist(),
        is_fresh[runs].tolist(),
    )
