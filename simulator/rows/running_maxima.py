"""Group by group running maxima over rows, carried from chunk to chunk.

The length of blocks, the time for which a party is shut out (overlaps counted once), and the check
that nobody is let in before the announced wait need, for each row, the latest end among the earlier
rows of its group: a counter, a key or an address.
"""

from __future__ import annotations

import numpy as np

from simulator.rows.counters import order_by_counter
from simulator.rows.record import Numbers

__all__ = ["LatestEnd", "latest_before"]

NEVER = -(1 << 62)


def latest_before(end_ns: Numbers, groups: Numbers, firsts: Numbers, known_ns: Numbers) -> Numbers:
    """Return the latest end before each row among its group's.

    groups: of each row; rows are sorted by it. firsts: the first row of each group. known_ns: of
    each group, the latest end before these rows.

    >>> ends, groups = np.array([5, 3, 9, 1]), np.array([0, 0, 0, 4])
    >>> latest_before(ends, groups, np.array([0, 3]), np.array([2, 7])).tolist()
    [2, 5, 5, 7]
    """
    import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

    earlier = np.r_[np.int64(NEVER), end_ns[:-1]]
    earlier[firsts] = known_ns
    return np.asarray(pd.Series(earlier).groupby(groups).cummax().to_numpy())


class LatestEnd:
    """Remembers, counter by counter, the latest end so far."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: Numbers = np.empty(0, dtype=np.int64)

    def before(self, counter: Numbers, end_ns: Numbers) -> Numbers:
        """Return, row by row, the latest end of earlier rows of its counter, then take these in.

        `NEVER` where there is none. Rows in order; equal lengths.
        """
        if not len(counter):
            return counter
        self._grow(int(counter.max()) + 1)
        order = order_by_counter(counter)
        groups = counter[order]
        firsts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        running = latest_before(end_ns[order], groups, firsts, self._ends[groups[firsts]])
        answer = np.empty_like(end_ns)
        answer[order] = running
        np.maximum.at(self._ends, counter, end_ns)
        return answer

    def so_far(self, counter: Numbers) -> Numbers:
        """Return, row by row, the latest end of its counter; `before` where no row has an end."""
        self._grow(int(counter.max(initial=-1)) + 1)
        return self._ends[counter]

    def _grow(self, top: int) -> None:
        if top > len(self._ends):
            grown = np.full(max(top, 2 * len(self._ends)), NEVER, dtype=np.int64)
            grown[: len(self._ends)] = self._ends
            self._ends = grown
