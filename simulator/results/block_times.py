"""How long counters were blocked, computed from the rows: in all, or between instants.

A block lasts from a blocked row to the instant that it was told to wait for. Overlaps of one
counter count once: a wait of 5 s, and a second later one of 4 s, are a block of 5 s, not of 9. The
times of several counters add up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import numpy.typing as npt

from simulator.results.metric_rows import BatchRows

__all__ = ["BlockTimes"]

Ints: TypeAlias = npt.NDArray[np.int64]

_PAIR: Final = ("key", "ip")


class BlockTimes:
    """The block times of one group of rows, batch by batch in order of time.

    from_ns, until_ns: time outside is not counted, yet blocks that began before go on.
    counters: rule → the columns that tell its counters apart; both key and address unless given.
    """

    __slots__ = ("_counters", "_from_ns", "_known", "_spans", "_until_ns")

    def __init__(self, from_ns: int, until_ns: int, counters: Mapping[str, Sequence[str]]) -> None:
        self._from_ns = from_ns
        self._until_ns = until_ns
        self._counters = counters
        self._known: dict[Any, int] = {}
        self._spans: list[tuple[Ints, Ints]] = []

    def take(self, blocked: BatchRows) -> None:
        """Take the next blocked rows."""
        for (rule,), rows in blocked.split(("rule",), nulls=False):
            for counter, part in rows.split(self._counters.get(rule, _PAIR), nulls=True):
                self._take_counter((rule, *counter), part)

    def _take_counter(self, counter: Any, rows: BatchRows) -> None:  # noqa: ANN401 # reason: texts, or NaN for none
        start_ns = rows.ints("t_ns")
        end_ns = np.minimum(start_ns + rows.ints("wait_ns"), self._until_ns)
        known_ns = self._known.get(counter, self._from_ns)
        before_ns = np.maximum.accumulate(np.r_[known_ns, end_ns])
        start_ns = np.maximum(start_ns, before_ns[:-1])
        fresh = end_ns > start_ns
        self._spans.append((start_ns[fresh], end_ns[fresh]))
        self._known[counter] = int(before_ns[-1])

    def in_all_ns(self) -> int:
        """Return the time in all."""
        return sum(int((end_ns - start_ns).sum()) for start_ns, end_ns in self._spans)

    def between(self, edges_ns: Ints) -> Ints:
        """Return the time before each of some instants, modulo 2^64; differences are exact."""
        starts_ns = np.sort(np.concatenate([np.zeros(0, np.int64), *(s for s, _ in self._spans)]))
        ends_ns = np.sort(np.concatenate([np.zeros(0, np.int64), *(e for _, e in self._spans)]))
        return _gone(starts_ns, edges_ns) - _gone(ends_ns, edges_ns)


def _gone(instants_ns: Ints, edges_ns: Ints) -> Ints:
    """Return Σ max(0, edge − instant) for each edge, modulo 2^64."""
    before = np.searchsorted(instants_ns, edges_ns)
    sums = np.r_[np.int64(0), np.cumsum(instants_ns)]
    return np.asarray(edges_ns * before - sums[before], dtype=np.int64)
