"""Group by group running maxima over rows, carried from chunk to chunk.

Both the length of blocks and the check that nobody is let in before the announced wait need, for
each row, the latest end among the earlier rows of its counter.
"""

from __future__ import annotations

import numpy as np

from simulator.rows.counters import order_by_counter
from simulator.rows.record import Numbers

__all__ = ["LatestEnd"]

NEVER = -(1 << 62)


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
        first = np.r_[True, groups[1:] != groups[:-1]]
        earlier = np.r_[np.int64(NEVER), end_ns[order][:-1]]
        earlier[first] = self._ends[groups[first]]
        import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

        running = pd.Series(earlier).groupby(groups).cummax().to_numpy()
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
