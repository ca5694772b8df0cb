"""What a run's rows say, gathered batch by batch: nothing here grows with the number of rows.

The input is `requests.parquet` (or its table) and nothing else, so a report can be made again from
a folder. Counts are exact; instants are cut into bins before anything is drawn.

- refused: by a throttle or a block (`refused` and `blocked` in the column `outcome`).
- shut out: the time in which a key and address, under one clause, were told to wait: from a refused
  request to the instant at which it would have been let in, overlaps counted once, cut at the
  run's end.

Bins hold every row; everything else leaves the warm-up out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

__all__ = [
    "Findings",
    "Party",
    "Refusals",
    "gather",
    "histogram",
    "quantile_ns",
    "together_ns",
]

_COLUMNS: Final = ("t_ns", "client", "key", "ip", "outcome", "rule", "wait_ns", "latency_ns")
_INTERVALS_LIMIT: Final = 200_000
_DECADES: Final = 12
_STEPS: Final = 4
_FINE: Final = 10
"""Histograms of time have 4 bars a decade, from 1 ns up; they are counted ten times finer."""
_SIZE: Final = _DECADES * _STEPS * _FINE + 2

Numbers = npt.NDArray[np.int64]


class Party(NamedTuple):
    """Whom a clause refused; the key is None for requests without one."""

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
    until_ns: int = -1
    intervals: list[tuple[int, int]] = field(default_factory=list)


@dataclass(slots=True)
class Findings:
    """What was found.

    end_ns: end of the time axis. bin_ns: width of a bin. offered: attempts a bin. refused:
    attempts a bin by clause. waits: for refused attempts, how many had a wait in each step of the
    histogram; latencies: likewise for what was let in. start_ns: end of the warm-up.
    by_client: attempts of each client number, offered and refused.
    """

    end_ns: int
    bin_ns: int
    offered: Numbers
    start_ns: int = 0
    refused: dict[str, Numbers] = field(default_factory=dict)
    parties: dict[Party, Refusals] = field(default_factory=dict)
    offered_of_key: dict[str | None, int] = field(default_factory=dict)
    offered_of_ip: dict[str | None, int] = field(default_factory=dict)
    by_client: Numbers = field(default_factory=lambda: np.zeros((0, 2), dtype=np.int64))
    waits: Numbers = field(default_factory=lambda: np.zeros(_SIZE, dtype=np.int64))
    latencies: Numbers = field(default_factory=lambda: np.zeros(_SIZE, dtype=np.int64))
    _kept: int = 0

    @property
    def rows(self) -> int:
        """How many attempts there were."""
        return int(self.offered.sum())

    def take(self, batch: pa.RecordBatch) -> None:
        """Take in the next rows, in decision order."""
        self._take_bins(batch)
        if self.start_ns:
            batch = batch.filter(pc.greater_equal(batch.column("t_ns"), self.start_ns))
        if not batch.num_rows:
            return
        passed = _words(batch, "outcome").isin(["admitted", "delayed"]).to_numpy()
        for name, counts in (("key", self.offered_of_key), ("ip", self.offered_of_ip)):
            for value, count in _words(batch, name).value_counts(dropna=False).items():
                text = value if isinstance(value, str) else None
                counts[text] = counts.get(text, 0) + int(count)
        self._take_clients(batch.column("client").to_numpy(), ~passed)
        self.latencies += _steps(batch.column("latency_ns").to_numpy()[passed])
        turned = np.flatnonzero(~passed)
        if len(turned):
            part = batch.take(pa.array(turned))
            self.waits += _steps(part.column("wait_ns").to_numpy())
            self._take_refused(part)

    def _take_bins(self, batch: pa.RecordBatch) -> None:
        size = len(self.offered)
        place = np.minimum(batch.column("t_ns").to_numpy() // self.bin_ns, size - 1)
        self.offered += _binned(place, size)
        outcome = _words(batch, "outcome")
        clause = _words(batch, "rule").map(_clause_of)[outcome.isin(["refused", "blocked"])]
        for name, part in clause.groupby(clause, sort=False):
            bins = self.refused.setdefault(str(name), np.zeros(size, dtype=np.int64))
            bins += _binned(place[part.index.to_numpy()], size)

    def _take_clients(self, client: Numbers, turned: npt.NDArray[np.bool_]) -> None:
        size = max(len(self.by_client), int(client.max()) + 1)
        if size > len(self.by_client):
            grown = np.zeros((2 * size, 2), dtype=np.int64)
            grown[: len(self.by_client)] = self.by_client
            self.by_client = grown
        self.by_client[:, 0] += _binned(client, len(self.by_client))
        self.by_client[:, 1] += _binned(client[turned], len(self.by_client))

    def _take_refused(self, batch: pa.RecordBatch) -> None:
        t_ns = batch.column("t_ns").to_numpy()
        until_ns = np.minimum(t_ns + batch.column("wait_ns").to_numpy(), self.end_ns)
        clause = _words(batch, "rule").map(_clause_of)
        key, ip = _words(batch, "key"), _words(batch, "ip")
        blocked = (_words(batch, "outcome") == "blocked").to_numpy()
        who = pd.DataFrame({"clause": clause, "key": key, "ip": ip})
        group = who.groupby(list(who), sort=False, dropna=False).ngroup().to_numpy()
        order = np.argsort(group, kind="stable")
        for rows in np.split(order, np.flatnonzero(np.diff(group[order])) + 1):
            first = rows[0]
            its_key = key.iloc[first]
            party = Party(
                clause.iloc[first], its_key if isinstance(its_key, str) else None, ip.iloc[first]
            )
            found = self.parties.setdefault(party, Refusals())
            found.blocked += int(blocked[rows].sum())
            self._extend(found, t_ns[rows], until_ns[rows])

    def _extend(self, found: Refusals, starts: Numbers, ends: Numbers) -> None:
        if not found.refused:
            found.first_ns = int(starts[0])
        found.refused += len(starts)
        found.last_ns = int(starts[-1])
        before = np.maximum.accumulate(np.r_[found.until_ns, ends])[:-1]
        # Whoever is told to wait 5 s and a second later 4 s is shut out for 5 s, not for 9.
        found.shut_ns += int(np.maximum(ends - np.maximum(starts, before), 0).sum())
        fresh = np.flatnonzero(starts > before)
        runs = np.split(np.arange(len(starts)), fresh)
        if len(runs[0]) and found.intervals:
            start, end = found.intervals[-1]
            found.intervals[-1] = (start, max(end, int(ends[runs[0]].max())))
        for run in runs[1:]:
            if self._kept < _INTERVALS_LIMIT:
                self._kept += 1
                found.intervals.append((int(starts[run[0]]), int(ends[run].max())))
        found.until_ns = max(found.until_ns, int(ends.max()))


def gather(
    batches: Iterable[pa.RecordBatch], *, end_ns: int, bins: int, start_ns: int = 0
) -> Findings:
    """Return what a run's rows say.

    end_ns: the run's end, after the last row. bins: how many bins the time axis has at most.
    start_ns: the end of the warm-up.
    """
    bin_ns = _round_bin(max(1, -(-end_ns // bins)))
    count = max(1, -(-end_ns // bin_ns))
    findings = Findings(end_ns, bin_ns, np.zeros(count, dtype=np.int64), start_ns)
    for batch in batches:
        if batch.num_rows:
            findings.take(batch.select(_COLUMNS))
    return findings


def together_ns(refusals: Iterable[Refusals]) -> int:
    """Return how long at least one of several was shut out."""
    total_ns = until_ns = 0
    for from_ns, to_ns in sorted(each for found in refusals for each in found.intervals):
        total_ns += max(0, to_ns - max(from_ns, until_ns))
        until_ns = max(until_ns, to_ns)
    return total_ns


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
    total = int(counts.sum())
    if not total:
        return 0
    place = int(np.searchsorted(np.cumsum(counts), share * total))
    return 0 if place == 0 else round(10 ** (place / (_STEPS * _FINE)))


def _words(batch: pa.RecordBatch, name: str) -> pd.Series[Any]:
    words: pd.Series[Any] = batch.column(name).to_pandas().astype(object)
    return words


@cache  # of each row, and there are few rules
def _clause_of(rule: object) -> str:
    """Return the clause of a rule: `LIM-PRIVATE.key` is reported as `LIM-PRIVATE`."""
    return str(rule).partition(".")[0]


def _binned(place: npt.NDArray[Any], count: int) -> Numbers:
    return np.bincount(place, minlength=count).astype(np.int64)


def _steps(values_ns: npt.NDArray[Any]) -> Numbers:
    """Return how many values fall into each fine step; 0 has a step of its own."""
    positive = values_ns[values_ns > 0].astype(np.float64)
    place = np.floor(np.log10(positive) * _STEPS * _FINE).astype(np.int64) + 1
    counts = _binned(np.minimum(place, _SIZE - 1), _SIZE)
    counts[0] = len(values_ns) - len(positive)
    return counts


def _round_bin(bin_ns: int) -> int:
    """Return the next width that people count in: 1, 2 or 5 of a unit, parts of hours, days."""
    second = 10**9
    steps: Sequence[int] = (
        *(unit * 10**power for power in range(9) for unit in (1, 2, 5)),
        *(n * second for n in (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800)),
        *(n * 3600 * second for n in (1, 2, 3, 6, 12, 24, 48, 168, 720)),
    )
    return next((step for step in steps if step >= bin_ns), bin_ns)
