"""Statistics of a stream of requests, made in one pass; memory grows with groups and clients.

A log and a simulated run are counted in the same way, so that they can be compared. A
*first* attempt begins a request; a *further* one repeats a refused one. Where the rows do not say
which is which, a further attempt is one of the same client for the same kind of request that comes
within the group's `patience` after a refusal.

Stamps of a coarse clock are spread evenly over its tick first; else all gaps within a tick are 0.

First counts give hints for the next ones: which requests are retries, which belong to one burst.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.profile import SECOND_NS
from simulator.rows.record import Numbers
from simulator.study.fit.observed import MOST_ATTEMPTS, Floats

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
MIN_REQUESTS_FOR_ARRIVAL_MODEL: Final = 30
"""With fewer, a group gets only a mean pace."""


def gap_edges() -> Floats:
    """Return the edges of the classes of gaps, in ns; class 0 holds all that is shorter."""
    return np.asarray(_SHORTEST_NS * 10 ** (np.arange(_BINS + 1) / _PER_DECADE))


def _class_of(gaps_ns: Numbers) -> Numbers:
    logs = np.log10(np.maximum(gaps_ns, _SHORTEST_NS) / _SHORTEST_NS) * _PER_DECADE
    return np.minimum(logs.astype(np.int64), _BINS - 1)


def _none(*shape: int) -> Numbers:
    return np.zeros(shape, dtype=np.int64)


def _add(
    sums: npt.NDArray[Any], group: Numbers, place: Numbers, weights: Numbers | Floats | None = None
) -> None:
    at = group * sums.shape[1] + place
    sums += np.bincount(at, weights, minlength=sums.size).reshape(sums.shape)


@dataclass(slots=True)
class SeriesRows:
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

    def after(self, instant_ns: int) -> SeriesRows:
        """Return the rows from an instant on, which becomes 0."""
        if not instant_ns:
            return self
        later = self.at(slice(int(np.searchsorted(self.t_ns, instant_ns)), None))
        later.t_ns = later.t_ns - instant_ns
        return later

    def at(self, places: Any) -> SeriesRows:  # noqa: ANN401 # reason: whatever an array takes
        """Return the rows at some places."""
        return SeriesRows(*(getattr(self, column.name)[places] for column in fields(self)))

    def put(self, places: Numbers, rows: SeriesRows) -> None:
        """Replace the rows at some places."""
        for column in fields(self):
            getattr(self, column.name)[places] = getattr(rows, column.name)


class GapCounts:
    """Gaps by length, of each group."""

    def __init__(self, groups: int) -> None:
        self.counts: Numbers = np.zeros((groups, _BINS), dtype=np.int64)
        self.sums_ns: Floats = np.zeros((groups, _BINS))
        self.squares: Floats = np.zeros(groups)
        self.least_ns: Floats = np.full(groups, np.inf)

    def add(self, group: Numbers, gaps_ns: Numbers) -> None:
        """Count some gaps."""
        place = _class_of(gaps_ns)
        _add(self.counts, group, place)
        _add(self.sums_ns, group, place, gaps_ns)
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
        return float(self.sums_ns[group, place] / max(1, counts[place]))


class _Bins:
    """Requests in bins of one width, by group: how many bins, the sum and the sum of squares."""

    def __init__(self, width_ns: int, groups: int) -> None:
        self._width_ns, self._groups = width_ns, groups
        self.sums: Floats = np.zeros(groups)
        self.squares: Floats = np.zeros(groups)
        self._open = _none(0), _none(0)

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
        self._open = _none(0), _none(0)
        bins = max(1.0, span_ns / self._width_ns)
        mean = self.sums / bins
        with np.errstate(invalid="ignore", divide="ignore"):
            return np.asarray((self.squares / bins - mean * mean) / mean)


class Hints(NamedTuple):
    """What earlier counts have shown of each group; None for nothing.

    patience_ns: how long after a refusal the same request is a further attempt. most_attempts:
    after how many attempts a request is given up, 0 for unknown. burst_gap_ns: the gap below which
    two requests belong to one burst, 0 for none.
    """

    patience_ns: Numbers | None = None
    most_attempts: Numbers | None = None
    burst_gap_ns: Numbers | None = None


class CountSeries:
    """The counts; the last group of `dispersion` is all rows together, further attempts too."""

    def __init__(
        self,
        groups: int,
        clients: int,
        span_ns: int,
        start_ns: int,
        tick_ns: int,
        hints: Hints | None = None,
    ) -> None:
        self.groups, self.clients, self.hints = groups, clients, hints or Hints()
        self.span_ns, self.start_ns, self.tick_ns = span_ns, start_ns, tick_ns
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
        self.runs: Floats = np.zeros((groups, 5))
        self._bins = [_Bins(width * SECOND_NS, groups + 1) for width in WIDTHS_S]
        # The last row of each client: -1 without one, 0 its attempt.
        self._last = SeriesRows(*(np.full(clients, -1) for _ in fields(SeriesRows)))
        self._last.attempt += 1
        self._last_first_ns = np.full(clients, -1, dtype=np.int64)
        self._last_label = np.full(clients, -1, dtype=np.int64)
        self._blocks = 0

    def take(self, rows: SeriesRows) -> None:
        """Count some rows; blocks come in order of time."""
        if not len(rows.t_ns):
            return
        rows, t_ns = self._by_client(rows)
        starts = np.r_[True, rows.client[1:] != rows.client[:-1]]
        now = replace(rows, t_ns=t_ns)
        before = self._before(np.flatnonzero(starts), now)
        further, place = self._further(rows, starts, before)
        now.attempt = place
        last = np.flatnonzero(np.r_[starts[1:], True])
        self._last.put(rows.client[last], now.at(last))
        self._count(rows, further, place)
        self._gap(rows, t_ns, further, place, before)

    def dispersion(self) -> Floats:
        """Return the index of dispersion: a line per group and one for all, a column per width."""
        return np.column_stack([bins.dispersion(self.span_ns) for bins in self._bins])

    # --- one block -------------------------------------------------------------------------------

    def _by_client(self, rows: SeriesRows) -> tuple[SeriesRows, Numbers]:
        """Return the rows by client, then time, and their instants."""
        t_ns = rows.t_ns
        if self.tick_ns > 1:
            random = np.random.Generator(np.random.Philox(self._blocks))
            t_ns = t_ns // self.tick_ns * self.tick_ns
            t_ns = t_ns + random.integers(0, self.tick_ns, len(t_ns))
        self._blocks += 1
        order = np.lexsort((t_ns, rows.client))
        return rows.at(order), t_ns[order]

    def _before(self, heads: Numbers, now: SeriesRows) -> SeriesRows:
        """Return, for each row, the previous row of its client. heads: each client's first row."""
        before = now.at(np.arange(-1, len(now.t_ns) - 1))
        before.put(heads, self._last.at(now.client[heads]))
        return before

    def _further(
        self, rows: SeriesRows, starts: Flags, before: SeriesRows
    ) -> tuple[Flags, Numbers]:
        """Return which rows are further attempts, and which attempt each is, from 1."""
        attempt = rows.attempt
        further = attempt > 1
        if self.hints.patience_ns is not None:
            repeats = (
                (before.refused == 1)
                & (before.request == rows.request)
                & (rows.t_ns - before.t_ns <= self.hints.patience_ns[rows.group])
            )
            further = further | ((attempt == 0) & repeats & (before.t_ns >= 0))
        number = np.arange(len(attempt))
        root = np.maximum.accumulate(np.where(~further | starts, number, -1))
        carried = self._last.attempt[rows.client[root]]
        base = np.where(further[root], np.maximum(carried, 1) + 1, 1)
        place = np.where(attempt > 0, attempt, base + number - root)
        if self.hints.most_attempts is not None:
            most = self.hints.most_attempts[rows.group]
            ends = (attempt == 0) & (most > 0)
            place = np.where(ends, (place - 1) % np.maximum(most, 1) + 1, place)
            further = further & (place > 1)
        return further, np.minimum(place, MOST_ATTEMPTS)

    def _count(self, rows: SeriesRows, further: Flags, place: Numbers) -> None:
        groups, refused = self.groups, rows.refused == 1
        self.rows += np.bincount(rows.group, minlength=groups)
        self.refusals += np.bincount(rows.group[refused], minlength=groups)
        t_s = rows.t_ns / 1e9
        _add(self.attempts, rows.group, place)
        _add(self.times_s, rows.group, place, t_s)
        _add(self.refused_attempts, rows.group[refused], place[refused])
        _add(self.refused_times_s, rows.group[refused], place[refused], t_s[refused])
        firsts = rows.at(~further)
        self.firsts += np.bincount(firsts.group, minlength=groups)
        self.per_client += np.bincount(firsts.client, minlength=self.clients)
        slot = np.minimum(firsts.t_ns * SLOTS // max(1, self.span_ns), SLOTS - 1)
        _add(self.slots, firsts.group, slot)
        hour = (self.start_ns + firsts.t_ns) // (3_600 * SECOND_NS) % 24
        _add(self.hours, firsts.group, hour)
        all_rows = np.full(len(rows.t_ns), groups, dtype=np.int64)
        for bins in self._bins:
            bins.add(np.r_[firsts.t_ns, rows.t_ns], np.r_[firsts.group, all_rows])
        keys, counts = np.unique(firsts.group * (1 << 32) + firsts.request, return_counts=True)
        for key, count in zip(keys.tolist(), counts.tolist(), strict=True):
            pair = divmod(key, 1 << 32)
            self.mix[pair] = self.mix.get(pair, 0) + count

    def _gap(
        self, rows: SeriesRows, t_ns: Numbers, further: Flags, place: Numbers, before: SeriesRows
    ) -> None:
        group, known = rows.group, before.t_ns >= 0
        gap = np.maximum(t_ns - before.t_ns, 0)
        after = known & (before.refused == 1)
        again = after & (before.request == rows.request)
        follows = (rows.attempt == 0) | ((rows.attempt == before.attempt + 1) & (gap > 0))
        alone = further & after & follows
        for counts, rows_counted in (
            (self.all_gaps, known & (before.refused != 1)),
            (self.halts, after),
            (self.after_refusal, again),
            (self.thinks, known & ~further),
        ):
            counts.add(group[rows_counted], gap[rows_counted])
        self.interleaved += np.bincount(group[further & known & ~alone], minlength=self.groups)
        self.chained_ns += np.bincount(group[alone], gap[alone], minlength=self.groups)
        self._retries(group[alone], gap[alone], place[alone], before.wait_ns[alone])
        self.asked += np.bincount(group[rows.wait_ns > 0], minlength=self.groups)
        asked_s = -(-rows.wait_ns // SECOND_NS).astype(float)
        self.asked_s += np.bincount(group, asked_s, minlength=self.groups)
        self._first_gaps(rows.client, group, t_ns, further)

    def _retries(self, group: Numbers, gap: Numbers, place: Numbers, wait: Numbers) -> None:
        asked_ns = -(-wait // SECOND_NS) * SECOND_NS
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
        """Count gaps between first attempts, and how short and long gaps follow each other.

        runs: short gaps, their time, bursts that begin after a long gap, requests between two long
        gaps, first requests.
        """
        firsts = np.flatnonzero(~further)
        if not len(firsts):
            return
        client, group, t_ns = client[firsts], group[firsts], t_ns[firsts]
        heads = np.flatnonzero(np.r_[True, client[1:] != client[:-1]])
        before = np.r_[-1, t_ns[:-1]]
        before[heads] = self._last_first_ns[client[heads]]
        last = np.flatnonzero(np.r_[client[1:] != client[:-1], True])
        self._last_first_ns[client[last]] = t_ns[last]
        known = before >= 0
        gap = np.maximum(t_ns - before, 0)
        self.gaps.add(group[known], gap[known])
        if self.hints.burst_gap_ns is None:
            return
        label = np.where(known, np.where(gap <= self.hints.burst_gap_ns[group], 1, 0), -1)
        prior = np.r_[-1, label[:-1]]
        prior[heads] = self._last_label[client[heads]]
        self._last_label[client[last]] = label[last]
        for column, rows, weight in (
            (0, label == 1, None),
            (1, label == 1, gap),
            (2, (label == 1) & (prior != 1), None),
            (3, (label == 0) & (prior == 0), None),
            (4, label == -1, None),
        ):
            weights = None if weight is None else weight[rows].astype(float)
            self.runs[:, column] += np.bincount(group[rows], weights, minlength=self.groups)


# --- hints ---------------------------------------------------------------------------------------


def patience_ns(series: CountSeries) -> Numbers:
    """Return, for each group, how long after a refusal the same request counts as a retry.

    Where clients retry, gaps after a refusal are shorter than other gaps. The result is the gap at
    which the excess of short gaps is largest; 0 where there is no excess.
    """
    patience = np.zeros(series.groups, dtype=np.int64)
    edges = gap_edges()[1:]
    for group in range(series.groups):
        after, others = series.after_refusal.counts[group], series.all_gaps.counts[group]
        if after.sum() < 5:
            continue
        of_others = np.cumsum(others) / max(1, others.sum())
        excess = np.cumsum(after) / after.sum() - of_others
        place = int(excess.argmax())
        if excess[place] * np.sqrt(after.sum()) > 1.6:
            patience[group] = round(float(edges[place]))
    return patience


def most_attempts(series: CountSeries) -> Numbers:
    """Return, for each group, after how many attempts clients give up; 0 where none is known.

    Nearly every refused attempt before that number is repeated. Few at that number are: an apparent
    retry is then a new request that came soon.
    """
    pairs = zip(series.refused_attempts, series.attempts, strict=True)
    return np.array([_most_attempts(refused, made) for refused, made in pairs], dtype=np.int64)


def _most_attempts(refused: Numbers, made: Numbers) -> int:
    going = 1.0
    for place in range(1, MOST_ATTEMPTS):
        if refused[place] < 5:
            return 0
        share = float(made[place + 1]) / float(refused[place])
        if share < 0.6 * going:
            return place
        going = max(share, 0.5) if place == 1 else (going + share) / 2
    return 0


def burst_gaps_ns(series: CountSeries) -> Numbers:
    """Return, for each group, the gap that divides short gaps from long ones; 0 for none."""
    groups = range(series.groups)
    return np.array([_burst_gap_ns(series.gaps, group) for group in groups], dtype=np.int64)


def _burst_gap_ns(gaps: GapCounts, group: int) -> int:
    """Return the gap that divides short gaps from long ones, 0 where one exponential fits.

    Two exponentials are fitted to the classes of gaps; the border is where both are as likely.
    """
    counts = gaps.counts[group].astype(float)
    total = counts.sum()
    if total < MIN_REQUESTS_FOR_ARRIVAL_MODEL or gaps.variation(group) < 1.15:
        return 0
    with np.errstate(invalid="ignore"):
        means = np.where(counts > 0, gaps.sums_ns[group] / np.maximum(counts, 1), 1.0) / 1e9
    means = np.maximum(means, 1e-9)
    mean = float(counts @ means) / total
    share, short, long = 0.5, mean / 5, mean * 2
    for _ in range(300):
        short_part = share / short * np.exp(-means / short)
        two = (1 - share) / long * np.exp(-means / long)
        part = short_part / np.maximum(short_part + two, 1e-300)
        weight = float(counts @ part)
        if weight < 1 or weight > total - 1:
            return 0
        share = weight / total
        short = float(counts @ (part * means)) / weight
        long = float(counts @ ((1 - part) * means)) / (total - weight)
    short_part = np.log(np.maximum(share / short * np.exp(-means / short), 1e-300))
    both = np.logaddexp(short_part, np.log((1 - share) / long) - means / long)
    gain = float(counts @ both - counts @ (-np.log(mean) - means / mean))
    if gain < 12 or long < 3 * short:
        return 0
    border_s = math.log(share / short * long / (1 - share)) / (1 / short - 1 / long)
    border_ns: int = round(max(border_s, 0.0) * 1e9)
    return border_ns
