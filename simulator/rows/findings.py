"""What a run's rows say, gathered batch by batch: nothing here grows with the number of rows.

`Result.findings` keeps them: the page, the plots and the terminal read what was counted once. The
input is `requests.parquet` (or its table) and nothing else, so a report can be made again from a
folder. Counts are exact; instants are cut into bins before anything is drawn.

- refused: by a throttle or a block (`refused` and `blocked` in the column `outcome`).
- locked out: the time in which a key and address, under one clause, had to wait: from a refused
  request to the instant at which it would have been admitted, overlaps counted once, cut at the
  run's end. All parties of a batch are computed together, since a batch has thousands of them with
  a few rows each.

Bins hold every row; everything else excludes the warm-up. A party that was refused in the warm-up
with a wait beyond its end is locked out from that end on, whether or not a refusal follows.

A log may keep fewer columns than a run has: parts that need a missing column (`PARTS`) are empty.
"""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from simulator.rows.metrics import round_ns
from simulator.rows.parquet import missing
from simulator.rows.reducer import BlockedTime, RowBatch, order_by_counter

Numbers = npt.NDArray[np.int64]


PARTS: Final[dict[str, tuple[str, ...]]] = {
    "timeline": ("t_ns", "outcome", "rule"),
    "attempts": ("t_ns", "attempt", "outcome", "status"),
    "parties": ("t_ns", "key", "ip", "outcome", "rule", "wait_ns"),
    "waits": ("outcome", "wait_ns"),
    "latencies": ("outcome", "latency_ns"),
}
"""Part of the findings → the columns that it needs; with a warm-up each needs `t_ns` too."""

_COLUMNS: Final = tuple(dict.fromkeys(itertools.chain.from_iterable(PARTS.values())))
_INTERVALS_LIMIT: Final = 200_000
_DECADES: Final = 12
_STEPS: Final = 4
_FINE: Final = 10
"""Histograms of time have 4 bars a decade, from 1 ns up; they are counted ten times finer."""
_SIZE: Final = _DECADES * _STEPS * _FINE + 2


class RequestKey(NamedTuple):
    """A key and address that a clause refused; the key is None for requests without one."""

    clause: str
    key: str | None
    ip: str


@dataclass(slots=True)
class Refusals:
    """The refusals of one clause to one key and address.

    intervals: [from, until) in ns from the run's start, in order, apart from one another.
    """

    refused: int = 0
    blocked: int = 0
    first_ns: int = 0
    last_ns: int = 0
    shut_ns: int = 0
    intervals: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """What a run's rows say, ready to be drawn.

    end_ns: end of the time axis. bin_ns: width of a bin. offered: attempts a bin. refused:
    attempts a bin by clause. firsts, good: a bin, those that are a request's first attempt, and
    those that were admitted and not answered with an error. waits: for refused attempts, how many
    had a wait in each step of the histogram; latencies: likewise for what was admitted. start_ns:
    end of the warm-up. parts: those of `PARTS` that the rows hold; the others are empty. carried:
    who was refused in the warm-up alone, and is locked out beyond it.
    """

    end_ns: int
    bin_ns: int
    offered: Numbers
    start_ns: int = 0
    parts: frozenset[str] = frozenset(PARTS)
    refused: dict[str, Numbers] = field(default_factory=dict)
    firsts: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    good: Numbers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    parties: dict[RequestKey, Refusals] = field(default_factory=dict)
    carried: dict[RequestKey, Refusals] = field(default_factory=dict)
    offered_of_key: dict[str | None, int] = field(default_factory=dict)
    offered_of_ip: dict[str | None, int] = field(default_factory=dict)
    waits: Numbers = field(default_factory=lambda: np.zeros(_SIZE, dtype=np.int64))
    latencies: Numbers = field(default_factory=lambda: np.zeros(_SIZE, dtype=np.int64))
    _kept: int = 0
    _numbers: dict[Any, int] = field(default_factory=dict)
    _who: list[RequestKey] = field(default_factory=list)
    _waits: BlockedTime = field(init=False)

    def __post_init__(self) -> None:
        self._waits = BlockedTime(self.start_ns, self.end_ns)

    @property
    def rows(self) -> int:
        """How many attempts there were."""
        return int(self.offered.sum())

    @property
    def shut_out(self) -> dict[RequestKey, Refusals]:
        """Everybody who was locked out, refused after the warm-up or not."""
        return self.parties | self.carried

    def take(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows, in decision order."""
        rows = RowBatch(batch, None, {})
        self._take_times(rows)
        if not self.parts.difference({"timeline", "attempts"}):
            return
        if self.start_ns:
            t_ns = rows.ints("t_ns")
            if "parties" in self.parts:
                late = (t_ns < self.start_ns) & (t_ns + rows.ints("wait_ns") > self.start_ns)
                early = rows.take(np.flatnonzero(late & rows.turned()))
                if len(early):
                    self._take_waits(early, counted=False)
            rows = rows.take(np.flatnonzero(t_ns >= self.start_ns))
        if not len(rows):
            return
        turned = rows.turned()
        if "latencies" in self.parts:
            self.latencies += _steps(rows.ints("latency_ns")[~turned])
        refused = rows.take(np.flatnonzero(turned))
        if "waits" in self.parts:
            self.waits += _steps(refused.ints("wait_ns"))
        if "parties" in self.parts:
            self._take_offered(rows)
            if len(refused):
                self._take_waits(refused, counted=True)

    def _take_offered(self, rows: RowBatch) -> None:
        for name, counts in (("key", self.offered_of_key), ("ip", self.offered_of_ip)):
            codes, values = rows.coded(name)
            met = np.bincount(codes + 1, minlength=len(values) + 1).tolist()
            for value, count in zip((None, *values), met, strict=True):
                if count:
                    counts[value] = counts.get(value, 0) + count

    def _take_times(self, rows: RowBatch) -> None:
        """Take in what is told over time, the warm-up included."""
        if not self.parts & {"timeline", "attempts"}:
            return
        size = len(self.offered)
        place = np.minimum(rows.ints("t_ns") // self.bin_ns, size - 1)
        if "timeline" in self.parts:
            self.offered += _binned(place, size)
            turned = np.flatnonzero(rows.turned())
            codes, clauses = rows.take(turned).coded("clause")
            for code in dict.fromkeys(codes.tolist()):
                bins = self.refused.setdefault(clauses[code], np.zeros(size, dtype=np.int64))
                bins += _binned(place[turned[codes == code]], size)
        if "attempts" in self.parts:
            if not len(self.firsts):
                self.firsts, self.good = np.zeros_like(self.offered), np.zeros_like(self.offered)
            self.firsts += _binned(place[rows.ints("attempt") == 1], size)
            self.good += _binned(place[rows.good()], size)

    def _take_waits(self, rows: RowBatch, *, counted: bool) -> None:
        """Take in refused rows: who was locked out, from when and until when.

        counted: whether they came after the warm-up. Of the others, only the waits beyond its end
        count.
        """
        t_ns = rows.ints("t_ns")
        party = rows.numbered(("clause", "key", "ip"), self._numbers)
        shut = self._waits.take(party, t_ns, rows.ints("wait_ns"))
        order = order_by_counter(party)
        firsts = np.flatnonzero(np.r_[True, np.diff(party[order]) > 0])
        bounds = np.r_[firsts, len(order)]
        callers = self._met(party, order[firsts], counted=counted)
        if counted:
            blocked = rows.holds("outcome", "blocked")[order]
            for refusals, refused, by_block, first_ns, last_ns in zip(
                callers,
                np.diff(bounds).tolist(),
                np.add.reduceat(blocked.astype(np.int64), firsts).tolist(),
                t_ns[order[firsts]].tolist(),
                t_ns[order[bounds[1:] - 1]].tolist(),
                strict=True,
            ):
                refusals.first_ns = refusals.first_ns if refusals.refused else first_ns
                refusals.refused += refused
                refusals.blocked += by_block
                refusals.last_ns = last_ns
        for refusals, lasted_ns in zip(
            callers, np.add.reduceat(shut.lasted_ns[order], firsts).tolist(), strict=True
        ):
            refusals.shut_ns += lasted_ns
        is_fresh = (shut.from_ns > shut.before_ns)[order]
        begins = is_fresh.copy()
        begins[firsts] = True
        runs = np.flatnonzero(begins)
        for refusals, begin_ns, end_ns, fresh in zip(
            np.searchsorted(firsts, runs, side="right").tolist(),
            shut.from_ns[order[runs]].tolist(),
            np.maximum.reduceat(shut.until_ns[order], runs).tolist(),
            is_fresh[runs].tolist(),
            strict=True,
        ):
            self._extend(callers[refusals - 1], begin_ns, end_ns, is_fresh=fresh)

    def _met(self, party: Numbers, leads: Numbers, *, counted: bool) -> list[Refusals]:
        """Return the refusals of each party, new ones in order of their first rows."""
        new = itertools.islice(reversed(self._numbers), len(self._numbers) - len(self._who))
        self._who += [
            RequestKey(clause, key if isinstance(key, str) else None, ip)
            for clause, key, ip in reversed(list(new))
        ]
        callers = [Refusals()] * len(leads)
        for place in np.argsort(leads).tolist():
            who = self._who[party[leads[place]]]
            if not counted:
                callers[place] = self.carried.setdefault(who, Refusals())
                continue
            if who not in self.parties:
                self.parties[who] = self.carried.pop(who, Refusals())
            callers[place] = self.parties[who]
        return callers

    def _extend(self, refusals: Refusals, from_ns: int, to_ns: int, *, is_fresh: bool) -> None:
        """Add an interval, or make the last one longer."""
        if is_fresh:
            if self._kept < _INTERVALS_LIMIT:
                self._kept += 1
                refusals.intervals.append((from_ns, to_ns))
        elif refusals.intervals:
            start_ns, end_ns = refusals.intervals[-1]
            refusals.intervals[-1] = (start_ns, max(end_ns, to_ns))


def gather(batches: Iterable[pa.RecordBatch], summary: Mapping[str, Any], *, bins: int) -> Findings:
    """Return what a run's rows say.

    summary: of the run; it tells the run's end and that of the warm-up. bins: how many bins the
    time axis has at most.
    """
    start_ns, end_ns = summary["warm_up_ns"], summary["duration_ns"]
    bin_ns = round_ns(max(1, -(-end_ns // bins)))
    count = max(1, -(-end_ns // bin_ns))
    findings = Findings(end_ns, bin_ns, np.zeros(count, dtype=np.int64), start_ns)
    for batch in batches:
        held = [name for name in _COLUMNS if name in batch.schema.names]
        if len(held) < len(_COLUMNS):
            findings.parts = parts_of(held, warm_up=bool(start_ns))
        if batch.num_rows:
            findings.take(batch.select(held))
    return findings


def parts_of(columns: Collection[str], *, warm_up: bool) -> frozenset[str]:
    """Return which of `PARTS` can be made from a log with these columns."""
    timed = ("t_ns",) if warm_up else ()
    return frozenset(
        part for part, needed in PARTS.items() if not missing((*needed, *timed), columns)
    )


def together_ns(refusals: Iterable[Refusals]) -> int:
    """Return how long at least one of several was locked out."""
    spans = sorted(interval for caller in refusals for interval in caller.intervals)
    if not spans:
        return 0
    from_ns, to_ns = np.array(spans, dtype=np.int64).T
    everybody = np.zeros(len(spans), dtype=np.int64)
    return int(
        BlockedTime(0, int(to_ns.max())).take(everybody, from_ns, to_ns - from_ns).lasted_ns.sum()
    )


def histogram(counts: Numbers) -> list[tuple[int, int, int]]:
    """Return the bars that hold something, and all between, as (from_ns, to_ns, count)."""
    # The first place counts zeros, the last what is beyond the scale.
    bars = np.r_[counts[0], counts[1:-1].reshape(-1, _FINE).sum(axis=1), counts[-1]]
    filled = np.flatnonzero(bars)
    if not len(filled):
        return []
    edges = [0, 1, *(round(10 ** (bar / _STEPS)) for bar in range(1, len(bars)))]
    return [
        (edges[place], edges[place + 1], int(bars[place]))
        for place in range(int(filled[0]), int(filled[-1]) + 1)
    ]


def quantile_ns(counts: Numbers, share: float) -> int:
    """Return the quantile, at most 6 % too high; 0 where nothing was counted."""
    place = int(np.searchsorted(np.cumsum(counts), share * int(counts.sum())))
    return 0 if place == 0 else round(10 ** (place / (_STEPS * _FINE)))


def _binned(place: npt.NDArray[Any], count: int) -> Numbers:
    return np.bincount(place, minlength=count).astype(np.int64)


def _steps(values_ns: npt.NDArray[Any]) -> Numbers:
    """Return how many values fall into each fine step; 0 has a step of its own."""
    positive = values_ns[values_ns > 0].astype(np.float64)
    place = np.floor(np.log10(positive) * _STEPS * _FINE).astype(np.int64) + 1
    counts = _binned(np.minimum(place, _SIZE - 1), _SIZE)
    counts[0] = len(values_ns) - len(positive)
    return counts
