"""Statistics of a stream of requests, made in one pass; memory grows with groups and clients.

A log and a simulated run are counted in the same way, so that they can be compared. A
*first* attempt begins a request; a *further* one repeats a refused one. Where the rows do not say
which is which, a further attempt is one of the same client for the same kind of request that comes
within the group's `patience` after a refusal.

Stamps of a coarse clock are spread evenly over its tick first; else all gaps within a tick are 0.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

import numpy as np
import numpy.typing as npt

from simulator.study.fit.observed import MOST_ATTEMPTS

__all__ = ["LAG_CHAIN", "SLOTS", "WIDTHS_S", "Rows", "Series", "gap_edges"]

Numbers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]

WIDTHS_S: Final = (1, 10, 60)
"""Widths of the bins in which the index of dispersion is taken."""
SLOTS: Final = 240
"""Slots of equal length that a window is divided into, for the rate over time."""
LAG_CHAIN: Final = 8
"""Retry delays are kept by attempt number, up to this many."""
_PER_DECADE: Final = 24
_DECADES: Final = 13
_BINS: Final = _PER_DECADE * _DECADES
_SHORTEST_NS: Final = 1e3
_SECOND_NS: Final = 1_000_000_000


def gap_edges() -> Floats:
    """Return the edges of the classes of gaps, in ns; class 0 holds all that is shorter."""
    return np.asarray(_SHORTEST_NS * 10 ** (np.arange(_BINS + 1) / _PER_DECADE))


def _class_of(gaps_ns: Numbers) -> Numbers:
    logs = np.log10(np.maximum(gaps_ns, _SHORTEST_NS) / _SHORTEST_NS) * _PER_DECADE
    return np.minimum(logs.astype(np.int64), _BINS - 1)


def _none(*shape: int) -> Numbers:
    return np.zeros(shape, dtype=np.int64)


@dataclass(slots=True)
class Rows:
    """Some consecutive rows, in order of time.

    attempt: 0 unknown. refused: 1, 0, −1 unknown. wait_ns: what a refusal asked for, 0 else.
    """

    t_ns: Numbers
    client: Numbers
    group: Numbers
    request: Numbers
    attempt: Numbers
    refused: Numbers
    wait_ns: Numbers

    def after(self, instant_ns: int) -> Rows:
        """Return the rows from an instant on, which becomes 0."""
        if not instant_ns:
            return self
        first = int(np.searchsorted(self.t_ns, instant_ns))
        kept = [getattr(self, each.name)[first:] for each in fields(self)]
        return Rows(kept[0] - instant_ns, *kept[1:])


class GapCounts:
    """Gaps by length, of each group."""

    def __init__(self, groups: int) -> None:
        self.counts: Numbers = np.zeros((groups, _BINS), dtype=np.int64)
        self.sums_ns: Floats = np.zeros((groups, _BINS))
        self.squares: Floats = np.zeros(groups)
        self.least_ns: Floats = np.full(groups, np.inf)

    def add(self, group: Numbers, gaps_ns: Numbers) -> None:
        """Count some gaps."""
        place = group * _BINS + _class_of(gaps_ns)
        size = self.counts.size
        self.counts += np.bincount(place, minlength=size).reshape(self.counts.shape)
        self.sums_ns += np.bincount(place, gaps_ns, minlength=size).reshape(self.counts.shape)
        self.squares += np.bincount(group, gaps_ns.astype(float) ** 2, minlength=len(self.squares))
        np.minimum.at(self.least_ns, group, gaps_ns.astype(float))

    def number(self, group: int) -> int:
        """Return how many gaps a group has."""
        return int(self.counts[group].sum())

    def mean_ns(self, group: int) -> float:
        """Return the mean gap of a group."""
        return float(self.sums_ns[group].sum()) / max(1, self.number(group))

    def variation(self, group: int) -> float:
        """Return the coefficient of variation of a group's gaps."""
        number, mean = self.number(group), self.mean_ns(group)
        if number < 2 or mean <= 0:
            return 1.0
        return float(np.sqrt(max(0.0, self.squares[group] / number - mean * mean)) / mean)

    def quantile_ns(self, group: int, share: float) -> float:
        """Return a quantile of a group's gaps, as the mean of the class in which it lies."""
        counts = self.counts[group]
        place = int(np.searchsorted(np.cumsum(counts), share * counts.sum()))
        place = min(place, _BINS - 1)
        while place and not counts[place]:
            place -= 1
        return float(self.sums_ns[group, place] / max(1, counts[place]))


class _Bins:
    """Requests in bins of one width, by group: how many bins, the sum and the sum of squares."""

    def __init__(self, width_ns: int, groups: int) -> None:
        self._width_ns, self._groups = width_ns, groups
        self.sums: Floats = np.zeros(groups)
        self.squares: Floats = np.zeros(groups)
        self._open: tuple[Numbers, Numbers] = (
            np.empty(0, np.int64),
            np.empty(0, np.int64),
        )

    def add(self, t_ns: Numbers, group: Numbers) -> None:
        """Count some rows, none of them earlier than the last bin begun so far."""
        keys, counts = np.unique(
            (t_ns // self._width_ns) * self._groups + group, return_counts=True
        )
        keys, place = np.unique(np.r_[self._open[0], keys], return_inverse=True)
        totals = np.bincount(place, np.r_[self._open[1], counts]).astype(np.int64)
        is_open = keys // self._groups == keys[-1] // self._groups
        self._close(keys[~is_open], totals[~is_open])
        self._open = keys[is_open], totals[is_open]

    def _close(self, keys: Numbers, totals: Numbers) -> None:
        group = keys % self._groups
        self.sums += np.bincount(group, totals, minlength=self._groups)
        self.squares += np.bincount(group, totals.astype(float) ** 2, minlength=self._groups)

    def dispersion(self, span_ns: int) -> Floats:
        """Return the index of dispersion of each group: variance over mean, 1 for Poisson."""
        self._close(*self._open)
        self._open = (np.empty(0, np.int64), np.empty(0, np.int64))
        bins = max(1.0, span_ns / self._width_ns)
        mean = self.sums / bins
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((self.squares / bins - mean * mean) / mean)


@dataclass(slots=True)
class Carry:
    """The last row of each client."""

    t_ns: Numbers
    first_ns: Numbers
    refused: Numbers
    request: Numbers
    place: Numbers
    wait_ns: Numbers
    label: Numbers

    @classmethod
    def of(cls, clients: int) -> Carry:
        """Return the initial state: no client has a row."""
        none = [np.full(clients, -1, dtype=np.int64) for _ in range(7)]
        return cls(*none)


class Series:
    """The counts; the last group of `dispersion` is all rows together, further attempts too.

    patience_ns: of each group, how long after a refusal the same request is a further attempt.
    most_attempts: of each group, after how many attempts a request is given up, 0 for unknown.
    burst_gap_ns: of each group, the gap below which two requests belong to one burst, 0 for none.
    """

    def __init__(
        self, groups: int, clients: int, span_ns: int, start_ns: int, tick_ns: int = 1
    ) -> None:
        self.groups, self.clients = groups, clients
        self.span_ns, self.start_ns, self.tick_ns = span_ns, start_ns, tick_ns
        self.patience_ns: Numbers | None = None
        self.burst_gap_ns: Numbers | None = None
        self.most_attempts: Numbers | None = None
        self.rows, self.firsts, self.refusals = _none(groups), _none(groups), _none(groups)
        self.interleaved, self.asked = _none(groups), _none(groups)
        self.waited, self.honoured = _none(groups), _none(groups)
        self.chained_ns: Floats = np.zeros(groups)
        self.asked_s: Floats = np.zeros(groups)
        self.per_client = _none(clients)
        self.slots, self.hours = _none(groups, SLOTS), _none(groups, 24)
        self.mix: dict[tuple[int, int], int] = {}
        numbers = MOST_ATTEMPTS + 1
        self.attempts, self.refused_attempts = _none(groups, numbers), _none(groups, numbers)
        self.times_s: Floats = np.zeros((groups, numbers))
        self.refused_times_s: Floats = np.zeros((groups, numbers))
        self.gaps, self.thinks, self.halts = (GapCounts(groups) for _ in range(3))
        self.after_refusal, self.all_gaps = GapCounts(groups), GapCounts(groups)
        self.delays = [GapCounts(groups) for _ in range(LAG_CHAIN)]
        self.beyond = [GapCounts(groups) for _ in range(LAG_CHAIN)]
        self.runs: Floats = np.zeros((groups, 7))
        self._bins = [_Bins(width * _SECOND_NS, groups + 1) for width in WIDTHS_S]
        self._carry = Carry.of(clients)
        self._blocks = 0

    def take(self, rows: Rows) -> None:
        """Count some rows; blocks come in order of time."""
        if not len(rows.t_ns):
            return
        order, t_ns = self._by_client(rows)
        client = rows.client[order]
        before = self._before(order, t_ns, client, rows)
        further, place = self._further(rows, order, before)
        self._note(rows, order, t_ns, place, before)
        self._count(rows, order, further, place)
        self._gap(rows, order, t_ns, further, place, before)

    def dispersion(self) -> Floats:
        """Return the index of dispersion: a line per group and one for all, a column per width."""
        return np.column_stack([bins.dispersion(self.span_ns) for bins in self._bins])

    # --- one block -------------------------------------------------------------------------------

    def _by_client(self, rows: Rows) -> tuple[Numbers, Numbers]:
        """Return the rows' order by client, then time, and their instants in that order."""
        t_ns = rows.t_ns
        if self.tick_ns > 1:
            random = np.random.Generator(np.random.Philox(self._blocks))
            t_ns = t_ns // self.tick_ns * self.tick_ns
            t_ns = t_ns + random.integers(0, self.tick_ns, len(t_ns))
        self._blocks += 1
        order = np.lexsort((t_ns, rows.client))
        return order, t_ns[order]

    def _before(self, order: Numbers, t_ns: Numbers, client: Numbers, rows: Rows) -> _Before:
        """Return, for each row, the previous row of its client; −1 where there is none."""
        starts = np.r_[True, client[1:] != client[:-1]]
        carry = self._carry
        heads = np.flatnonzero(starts)

        def shifted(now: Numbers, last: Numbers) -> Numbers:
            found = np.empty_like(now)
            found[1:] = now[:-1]
            found[heads] = last[client[heads]]
            return found

        return _Before(
            starts,
            shifted(t_ns, carry.t_ns),
            shifted(rows.refused[order], carry.refused),
            shifted(rows.request[order], carry.request),
            shifted(rows.wait_ns[order], carry.wait_ns),
            shifted(rows.attempt[order], np.maximum(carry.place, 0)),
        )

    def _further(self, rows: Rows, order: Numbers, before: _Before) -> tuple[Flags, Numbers]:
        """Return which rows are further attempts, and which attempt each is, from 1."""
        told = rows.attempt[order]
        group = rows.group[order]
        client = rows.client[order]
        further = told > 1
        if self.patience_ns is not None:
            gap = rows.t_ns[order] - before.t_ns
            repeats = (
                (before.refused == 1)
                & (before.request == rows.request[order])
                & (gap <= self.patience_ns[group])
            )
            further = further | ((told == 0) & repeats & (before.t_ns >= 0))
        number = np.arange(len(order))
        root = np.where(~further | before.starts, number, -1)
        root = np.maximum.accumulate(root)
        carried = self._carry.place[client[root]]
        base = np.where(further[root], np.maximum(carried, 1) + 1, 1)
        place = np.where(told > 0, told, base + number - root)
        if self.most_attempts is not None:
            most = self.most_attempts[group]
            ends = (told == 0) & (most > 0)
            place = np.where(ends, (place - 1) % np.maximum(most, 1) + 1, place)
            further = further & (place > 1)
        return further, np.minimum(place, MOST_ATTEMPTS)

    def _note(
        self, rows: Rows, order: Numbers, t_ns: Numbers, place: Numbers, before: _Before
    ) -> None:
        """Keep the last row of each client."""
        client = rows.client[order]
        last = np.flatnonzero(np.r_[before.starts[1:], True])
        carry, who = self._carry, client[last]
        carry.t_ns[who] = t_ns[last]
        carry.refused[who] = rows.refused[order][last]
        carry.request[who] = rows.request[order][last]
        carry.place[who] = place[last]
        carry.wait_ns[who] = rows.wait_ns[order][last]

    def _count(self, rows: Rows, order: Numbers, further: Flags, place: Numbers) -> None:
        groups, group = self.groups, rows.group[order]
        refused = rows.refused[order] == 1
        first = ~further
        self.rows += np.bincount(group, minlength=groups)
        self.firsts += np.bincount(group[first], minlength=groups)
        self.refusals += np.bincount(group[refused], minlength=groups)
        self.per_client += np.bincount(rows.client[order][first], minlength=self.clients)
        size = MOST_ATTEMPTS + 1
        at = group * size + place
        self.attempts += np.bincount(at, minlength=groups * size).reshape(groups, size)
        counted = np.bincount(at[refused], minlength=groups * size)
        self.refused_attempts += counted.reshape(groups, size)
        t_s = rows.t_ns[order] / 1e9
        self.times_s += np.bincount(at, t_s, minlength=groups * size).reshape(groups, size)
        sums = np.bincount(at[refused], t_s[refused], minlength=groups * size)
        self.refused_times_s += sums.reshape(groups, size)
        is_first = np.empty(len(order), dtype=bool)
        is_first[order] = first
        t_first, g_first = rows.t_ns[is_first], rows.group[is_first]
        slot = np.minimum(t_first * SLOTS // max(1, self.span_ns), SLOTS - 1)
        at = g_first * SLOTS + slot
        self.slots += np.bincount(at, minlength=groups * SLOTS).reshape(groups, SLOTS)
        hour = (self.start_ns + t_first) // (3_600 * _SECOND_NS) % 24
        at = g_first * 24 + hour
        self.hours += np.bincount(at, minlength=groups * 24).reshape(groups, 24)
        for bins in self._bins:
            bins.add(
                np.r_[t_first, rows.t_ns],
                np.r_[g_first, np.full(len(rows.t_ns), groups, dtype=np.int64)],
            )
        keys, counts = np.unique(g_first * (1 << 32) + rows.request[is_first], return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            pair = divmod(key, 1 << 32)
            self.mix[pair] = self.mix.get(pair, 0) + count

    def _gap(
        self,
        rows: Rows,
        order: Numbers,
        t_ns: Numbers,
        further: Flags,
        place: Numbers,
        before: _Before,
    ) -> None:
        group, client = rows.group[order], rows.client[order]
        known = before.t_ns >= 0
        gap = np.maximum(t_ns - before.t_ns, 0)
        self.all_gaps.add(group[known & (before.refused != 1)], gap[known & (before.refused != 1)])
        after = known & (before.refused == 1)
        self.halts.add(group[after], gap[after])
        after = after & (before.request == rows.request[order])
        self.after_refusal.add(group[after], gap[after])
        thinks = known & ~further
        self.thinks.add(group[thinks], gap[thinks])
        told = rows.attempt[order]
        follows = (told == 0) | ((told == before.attempt + 1) & (gap > 0))
        alone = further & known & (before.refused == 1) & follows
        self.interleaved += np.bincount(group[further & known & ~alone], minlength=self.groups)
        self.chained_ns += np.bincount(group[alone], gap[alone], minlength=self.groups)
        self._retries(group[alone], gap[alone], place[alone], before.wait_ns[alone])
        asked = rows.wait_ns[order] > 0
        self.asked += np.bincount(group[asked], minlength=self.groups)
        asked_s = -(-rows.wait_ns[order] // _SECOND_NS).astype(float)
        self.asked_s += np.bincount(group, asked_s, minlength=self.groups)
        self._first_gaps(client, group, t_ns, further)

    def _retries(self, group: Numbers, gap: Numbers, place: Numbers, wait: Numbers) -> None:
        asked_ns = -(-wait // _SECOND_NS) * _SECOND_NS
        waited = asked_ns > 0
        self.waited += np.bincount(group[waited], minlength=self.groups)
        honoured = waited & (gap >= asked_ns - 1_000_000 - self.tick_ns)
        self.honoured += np.bincount(group[honoured], minlength=self.groups)
        for chain in range(LAG_CHAIN):
            here = place == chain + 2
            self.delays[chain].add(group[here], gap[here])
            more = here & (gap > asked_ns + 1_000_000 + self.tick_ns)
            self.beyond[chain].add(group[more], gap[more])

    def _first_gaps(self, client: Numbers, group: Numbers, t_ns: Numbers, further: Flags) -> None:
        """Count gaps between first attempts, and how short and long gaps follow each other."""
        kept = np.flatnonzero(~further)
        if not len(kept):
            return
        client, group, t_ns = client[kept], group[kept], t_ns[kept]
        heads = np.flatnonzero(np.r_[True, client[1:] != client[:-1]])
        before = np.r_[-1, t_ns[:-1]]
        before[heads] = self._carry.first_ns[client[heads]]
        last = np.flatnonzero(np.r_[client[1:] != client[:-1], True])
        self._carry.first_ns[client[last]] = t_ns[last]
        known = before >= 0
        gap = np.maximum(t_ns - before, 0)
        self.gaps.add(group[known], gap[known])
        if self.burst_gap_ns is not None:
            self._label(client, group, gap, known, heads, last)

    def _label(
        self,
        client: Numbers,
        group: Numbers,
        gap: Numbers,
        known: Flags,
        heads: Numbers,
        last: Numbers,
    ) -> None:
        """Count the short and long gaps from which bursts are estimated.

        runs: short gaps and their time, long gaps and their time, bursts that begin after a long
        gap, requests between two long gaps, first requests.
        """
        assert self.burst_gap_ns is not None, "asked with it"
        label = np.where(known, np.where(gap <= self.burst_gap_ns[group], 1, 0), -1)
        prior = np.r_[-1, label[:-1]]
        prior[heads] = self._carry.label[client[heads]]
        self._carry.label[client[last]] = label[last]
        for column, rows, weight in (
            (0, label == 1, None),
            (1, label == 1, gap),
            (2, label == 0, None),
            (3, label == 0, gap),
            (4, (label == 1) & (prior != 1), None),
            (5, (label == 0) & (prior == 0), None),
            (6, label == -1, None),
        ):
            weights = None if weight is None else weight[rows].astype(float)
            self.runs[:, column] += np.bincount(group[rows], weights, minlength=self.groups)


@dataclass(slots=True)
class _Before:
    starts: Flags
    t_ns: Numbers
    refused: Numbers
    request: Numbers
    wait_ns: Numbers
    attempt: Numbers
