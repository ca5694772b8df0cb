"""How full the counters of each rule were, over time: what was admitted in its last window.

Occupancy of a counter at an attempt is the number of admissions that it counted in the window that
ends there, over the rule's limit: 1 is full. Algorithms that count in fixed windows, or refill a
bucket, sometimes admit more, so it may be above 1. A delayed attempt counts at its release.

Each bin of time holds the occupancy of the fullest counter, at the attempts charged to it. The
peaks of counters exclude the warm-up; the bins do not.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from simulator.rows.counters import CounterIndex
from simulator.rows.int_list import Table
from simulator.rows.record import Chunk, Numbers

__all__ = ["Headroom"]

_BINS: Final = 120
_NONE: Final[Numbers] = np.zeros(0, dtype=np.int64)
_SAFE: Final = 1 << 62
CLASSES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Counters are told apart by their peaks below each of these; the last class is full."""


class Headroom:
    """Watches how full counters are.

    index: the run's counters. end_ns: the run's end, where it is known; bins grow beyond it.
    """

    __slots__ = ("_bin_ns", "_carried", "_index", "_met", "_most", "_peaks", "_warm_up_ns")

    def __init__(self, index: CounterIndex, *, end_ns: int, warm_up_ns: int = 0) -> None:
        self._index = index
        self._warm_up_ns = warm_up_ns
        self._bin_ns = max(1, -(-end_ns // _BINS))
        self._most: dict[int, Numbers] = {}
        self._peaks: dict[int, Numbers] = {}
        self._met: dict[int, int] = {}
        self._carried: dict[int, tuple[Numbers, Numbers]] = {}

    def take(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        if not len(chunk):
            return
        while int(chunk.t_ns[-1]) >= self._bin_ns * _BINS:
            self._fold()
        passed = chunk.outcome_is("admitted", "delayed")
        release_ns = chunk.t_ns + np.where(chunk.outcome_is("delayed"), chunk.wait_ns, 0)
        for place in range(len(self._index.rules)):
            counter = self._index.numbers(place, chunk)
            met = np.flatnonzero(counter >= 0)
            if len(met):
                self._look(place, chunk, met, counter, passed, release_ns)

    def _look(
        self,
        place: int,
        chunk: Chunk,
        met: Table,
        counter: Numbers,
        passed: np.ndarray[Any, np.dtype[np.bool_]],
        release_ns: Numbers,
    ) -> None:
        window_ns = self._index.rules[place].window_ns
        let_in = met[passed[met]]
        before, before_ns = self._carried.get(place, (_NONE, _NONE))
        counters = np.r_[before, counter[let_in]]
        times_ns = np.r_[before_ns, release_ns[let_in]]
        held = _held(counters, times_ns, counter[met], chunk.t_ns[met], window_ns)
        keep = times_ns > int(chunk.t_ns[-1]) - window_ns
        self._carried[place] = counters[keep], times_ns[keep]
        most = self._most.setdefault(place, np.full(_BINS, -1, dtype=np.int64))
        np.maximum.at(most, chunk.t_ns[met] // self._bin_ns, held)
        counted = chunk.t_ns[met] >= self._warm_up_ns
        if counted.any():
            numbers = counter[met][counted]
            peaks = self._peaks.get(place, _NONE)
            size = max(len(peaks), int(numbers.max()) + 1)
            peaks = np.r_[peaks, np.full(size - len(peaks), -1, dtype=np.int64)]
            np.maximum.at(peaks, numbers, held[counted])
            self._peaks[place] = peaks

    def _fold(self) -> None:
        """Make bins twice as wide."""
        self._bin_ns *= 2
        for place, most in self._most.items():
            folded = np.full(_BINS, -1, dtype=np.int64)
            folded[: _BINS // 2] = most.reshape(-1, 2).max(axis=1)
            self._most[place] = folded

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` holds: a line a rule that was met.

        most: of each bin, the admissions that the fullest counter held; −1 where nobody asked.
        classes: how many counters peaked below each of `CLASSES` of the limit, and how many were
        full.
        """
        lines = []
        for place, most in self._most.items():
            rule = self._index.rules[place]
            peaks = self._peaks.get(place, _NONE)
            peaks = peaks[peaks >= 0]
            shares = peaks / rule.limit_requests
            classes = np.bincount(np.searchsorted(CLASSES, shares, side="right"), minlength=7)
            lines.append(
                {
                    "rule": rule.id,
                    "clause": rule.clause,
                    "limit_requests": rule.limit_requests,
                    "window_ns": rule.window_ns,
                    "counters": len(peaks),
                    "peak": int(peaks.max(initial=0)),
                    "classes": classes.tolist(),
                    "most": most.tolist(),
                }
            )
        return {"bin_ns": self._bin_ns, "edges": list(CLASSES), "rules": lines}


def _held(
    counters: Numbers, times_ns: Numbers, asked: Numbers, at_ns: Numbers, window_ns: int
) -> Numbers:
    """Return how many admissions each asked counter has in (at − window, at]."""
    if not len(counters):
        return np.zeros(len(asked), dtype=np.int64)
    first_ns = min(int(times_ns.min()), int(at_ns.min()) - window_ns)
    span_ns = max(int(times_ns.max()), int(at_ns.max())) - first_ns + 1
    highest = max(int(counters.max()), int(asked.max())) + 1
    # One number stands for counter and instant; where it would not fit, instants are coarser.
    step = max(1, -(-span_ns * highest // _SAFE))
    wide = -(-span_ns // step) + 1
    known = np.sort(counters * wide + (times_ns - first_ns) // step)
    base = asked * wide
    upper = np.searchsorted(known, base + (at_ns - first_ns) // step, side="right")
    lower = np.searchsorted(known, base + (at_ns - window_ns - first_ns) // step, side="right")
    return np.asarray(upper - lower, dtype=np.int64)
