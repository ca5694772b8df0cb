"""What a summary says, counted chunk by chunk in memory that does not grow with rows.

Rows before the warm-up's end are left out here; they stay in the file.

*`Tally`*: totals and the table by clause. Counts are kept for each (kind of request, verdict);
every total is a sum of them. Blocks that began in the warm-up count from its end.

- offered: attempts that reached the service; offered = admitted + refused + pending.
- pending: delayed by a throttle, and not released before the run's end. In the totals they stand
  apart; by clause and in metrics, which know no end, they are among the admitted.
- requests: those that began, each of one or more attempts; requests = succeeded + failed +
  requests_pending. Pending is what had not ended before the run's end: it waits for its turn, for
  its next attempt or for its answer.
- refused: by a throttle or a block, whoever was told; `blocked` are those of blocks.
- blocked time of a clause: how long its counters let nobody in, from a blocked request to the
  instant it was told to wait for, overlaps counted once, cut at the run's end.
- keys and addresses touched: those that the clause refused at least once.

*`GroupTally`*: for each client group the refused share, the limit that binds it, the admitted pace.
It counts by subject (who asks for what), so memory follows the subjects.

- binds: the rule that refused the group most, and its counter that refused the group most.
- pace: that rule's rate shared evenly by all clients, of any group, that the counter counted. So
  many requests a second of each, evenly spread, pass; it is exact for sliding-log.

*`Headroom`*: how full the counters of each rule were. Occupancy of a counter at an attempt is the
number of admissions that it counted in the window that ends there, over the rule's limit: 1 is
full. Algorithms that count in fixed windows, or refill a bucket, sometimes admit more, so it may be
above 1. A delayed attempt counts at its release. Each bin of time holds the occupancy of the
fullest counter, at the attempts charged to it. Peaks exclude the warm-up; bins include it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from fastdigest import TDigest

from engine.messages import Outcome
from simulator.rows.counters import CounterIndex, LatestEnd, uncovered
from simulator.rows.record import NO_STATUS, Chunk, Counters, Numbers, SubjectTable, Table

__all__ = ["GroupTally", "Headroom", "Tally", "clauses_of"]

QUANTILES: Final = (0.5, 0.9, 0.99)


@dataclass(slots=True)
class Totals:
    """Counts of attempts, and of requests (each of one or more attempts)."""

    offered: int = 0
    admitted: int = 0
    delayed: int = 0
    refused: int = 0
    blocked: int = 0
    pending: int = 0
    requests: int = 0
    succeeded: int = 0
    failed: int = 0
    requests_pending: int = 0

    @property
    def refused_share(self) -> float:
        """Refused ÷ offered, 0 where nothing was offered."""
        return self.refused / self.offered if self.offered else 0.0


@dataclass(slots=True)
class ClauseLine:
    """One line of the table by limit clause."""

    clause: str
    offered: int = 0
    admitted: int = 0
    refused: int = 0
    delayed: int = 0
    shadow_refused: int = 0
    blocked_ns: int = 0
    keys: int = 0
    ips: int = 0
    first_refusal_ns: int | None = None


class Tally:
    """Counts a run's rows; see the file's head for what each number means.

    index: the run's counters. clauses: the lines of the table, in order. end_ns: the run's end.
    warm_up_ns: rows before are left out.
    """

    __slots__ = (
        "_blocks",
        "_clauses",
        "_counts",
        "_digest",
        "_end_ns",
        "_index",
        "_kinds",
        "_made_first",
        "_pending",
        "_requests",
        "_requests_ended",
        "_shadow",
        "_statuses",
        "_touched",
        "_verdicts",
        "_warm_up_ns",
        "_well",
    )

    def __init__(
        self, index: CounterIndex, clauses: Iterable[str], *, end_ns: int, warm_up_ns: int = 0
    ) -> None:
        self._index = index
        self._end_ns = end_ns
        self._warm_up_ns = warm_up_ns
        self._clauses = {clause: ClauseLine(clause) for clause in clauses}
        self._counts: Numbers = np.zeros((0, 0), dtype=np.int64)
        self._pending = 0
        self._statuses: dict[int, int] = {}
        self._shadow: dict[str, int] = {}
        self._blocks: defaultdict[int, LatestEnd] = defaultdict(LatestEnd)
        self._touched = {clause: (_Seen(), _Seen()) for clause in self._clauses}
        self._digest = TDigest()
        self._requests = 0
        self._requests_ended = 0
        self._made_first = 0
        self._well = 0
        self._kinds: Sequence[Counters] = []
        self._verdicts: Sequence[tuple[Outcome, str | None]] = []

    def take(self, chunk: Chunk) -> None:
        """Count the next rows."""
        kind, self._kinds = chunk.subjects.kinds()
        self._verdicts = chunk.verdicts
        self._block_times(chunk)
        chosen = chunk.t_ns >= self._warm_up_ns
        if not chosen.any():
            return
        self._made_first += int(np.count_nonzero(chunk.attempt[chosen] == 1))
        self._grow()
        width = self._counts.shape[1]
        cells = kind.take(chunk.subject[chosen]).astype(np.int64) * width + chunk.verdict[chosen]
        self._counts += np.bincount(cells, minlength=self._counts.size).reshape(-1, width)
        late = chunk.outcome_is("delayed") & (chunk.t_ns + chunk.wait_ns >= self._end_ns) & chosen
        self._pending += int(np.count_nonzero(late))
        known = chunk.status[chosen & (chunk.status != NO_STATUS)]
        for status, count in zip(*np.unique(known, return_counts=True), strict=True):
            self._statuses[int(status)] = self._statuses.get(int(status), 0) + int(count)
        served = chosen & chunk.outcome_is("admitted", "delayed")
        if served.any():
            # Sort here, where it is fast; the digest would sort in the same way.
            self._digest.batch_update(np.sort(chunk.latency_ns[served]).tolist())
        self._first_refusals(chunk, chosen)

    def add_shadow(self, t_ns: int, rules: Iterable[str]) -> None:
        """Count what shadow rules would have refused at `t_ns`; ids as in `Decision.shadow`."""
        if t_ns < self._warm_up_ns:
            return
        for clause in clauses_of(rules):
            self._shadow[clause] = self._shadow.get(clause, 0) + 1

    def add_shadow_requests(self, clause: str, count: int) -> None:
        """Count requests that a clause in shadow would have refused, all after the warm-up."""
        self._shadow[clause] = self._shadow.get(clause, 0) + count

    def request_began(self, began_ns: int) -> None:
        """Count a request that began."""
        self._requests += began_ns >= self._warm_up_ns

    def request_ended(self, began_ns: int, ended_ns: int, *, well: bool) -> None:
        """Count a request that ended, and whether it ended well; after the run's end is pending."""
        if began_ns >= self._warm_up_ns and ended_ns < self._end_ns:
            self._requests_ended += 1
            self._well += well

    def add_requests(self, began: int, ended: int, well: int) -> None:
        """Count requests, all after the warm-up and, those that ended, before the run's end."""
        self._requests += began
        self._requests_ended += ended
        self._well += well

    @property
    def first_attempts(self) -> int:
        """How many requests made an attempt at all; those that wait for a turn have made none."""
        return self._made_first

    def totals(self) -> Totals:
        """Return the totals."""
        by_outcome: dict[str, int] = dict.fromkeys(("admitted", "delayed", "refused", "blocked"), 0)
        for (outcome, _), count in zip(
            self._verdicts, self._counts.sum(axis=0).tolist(), strict=False
        ):
            by_outcome[outcome] += count
        return Totals(
            offered=sum(by_outcome.values()),
            admitted=by_outcome["admitted"] + by_outcome["delayed"] - self._pending,
            delayed=by_outcome["delayed"],
            refused=by_outcome["refused"] + by_outcome["blocked"],
            blocked=by_outcome["blocked"],
            pending=self._pending,
            requests=self._requests,
            succeeded=self._well,
            failed=self._requests_ended - self._well,
            requests_pending=self._requests - self._requests_ended,
        )

    def statuses(self) -> dict[str, int]:
        """Return status → attempts answered with it; empty where no body was run."""
        return {str(status): count for status, count in sorted(self._statuses.items())}

    def latency_quantiles_ns(self) -> dict[str, int] | None:
        """Return the latency quantiles of what was let in (t-digest), None where nothing was."""
        if self._digest.is_empty():
            return None
        return {f"p{q * 100:g}": round(self._digest.quantile(q)) for q in QUANTILES}

    def clauses(self) -> list[ClauseLine]:
        """Return the table by clause, in table order, with zeros where no request met one."""
        lines = {c: _fresh(line) for c, line in self._clauses.items()}
        rules = self._index.rules
        clause_of = {rule.id: rule.clause for rule in rules}
        passes = [o in {"admitted", "delayed"} for o, _ in self._verdicts]
        for counters, counts in zip(self._kinds, self._counts.tolist(), strict=False):
            offered = sum(counts)
            admitted = sum(c for c, passed in zip(counts, passes, strict=False) if passed)
            for clause in dict.fromkeys(rules[place].clause for place, _ in counters):
                lines[clause].offered += offered
                lines[clause].admitted += admitted
        sums = self._counts.sum(axis=0).tolist()
        for (outcome, rule), count in zip(self._verdicts, sums, strict=False):
            if rule is not None:
                line = lines[clause_of[rule]]
                if outcome == "delayed":
                    line.delayed += count
                else:
                    line.refused += count
        for clause, count in self._shadow.items():
            lines[clause].shadow_refused += count
        for clause, (keys, ips) in self._touched.items():
            lines[clause].keys, lines[clause].ips = len(keys), len(ips)
        return list(lines.values())

    def _grow(self) -> None:
        shape = (len(self._kinds), len(self._verdicts))
        if shape != self._counts.shape:
            grown = np.zeros(shape, dtype=np.int64)
            grown[: self._counts.shape[0], : self._counts.shape[1]] = self._counts
            self._counts = grown

    def _block_times(self, chunk: Chunk) -> None:
        blocked = chunk.outcome_is("blocked")
        for place, rule in enumerate(self._index.rules):
            if not rule.block_ns or rule.shadow:
                continue
            by_rule = np.fromiter((r == rule.id for _, r in chunk.verdicts), bool)
            chosen = np.flatnonzero(blocked & by_rule[chunk.verdict])
            if not len(chosen):
                continue
            # A rule of this name may be in another table too, with numbers of its own.
            counter = self._index.numbers(place, chunk)[chosen]
            chosen, counter = chosen[counter >= 0], counter[counter >= 0]
            start_ns = np.maximum(chunk.t_ns[chosen], self._warm_up_ns)
            end_ns = np.minimum(chunk.t_ns[chosen] + chunk.wait_ns[chosen], self._end_ns)
            before_ns = self._blocks[place].before(counter, end_ns)
            _, lasted_ns = uncovered(start_ns, end_ns, before_ns)
            self._clauses[rule.clause].blocked_ns += int(lasted_ns.sum())

    def _first_refusals(self, chunk: Chunk, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        turned = chosen & chunk.outcome_is("refused", "blocked")
        clause_of = {rule.id: rule.clause for rule in self._index.rules}
        for number, (_, rule) in enumerate(chunk.verdicts):
            if rule is None:
                continue
            rows = np.flatnonzero(turned & (chunk.verdict == number))
            if not len(rows):
                continue
            line = self._clauses[clause_of[rule]]
            first_ns = int(chunk.t_ns[rows[0]])
            if line.first_refusal_ns is None or first_ns < line.first_refusal_ns:
                line.first_refusal_ns = first_ns
            for seen, name in zip(self._touched[line.clause], ("key", "ip"), strict=True):
                told = chunk.subjects.text(name)
                seen.add(told.of_entry.take(chunk.subject[rows]), len(told.texts))


class _Seen:
    """Which of some numbers from 0 were there; −1 is none."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = np.zeros(0, dtype=bool)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._seen))

    def add(self, numbers: Table, count: int) -> None:
        """Take in some numbers, all below `count`."""
        if count > len(self._seen):
            self._seen = np.append(self._seen, np.zeros(count - len(self._seen), dtype=bool))
        self._seen[numbers[numbers >= 0]] = True


def clauses_of(rules: Iterable[str]) -> dict[str, None]:
    """Return the clauses of rules as decisions name them, each once (`LIM-PRIVATE.key`)."""
    return dict.fromkeys(rule.partition(".")[0] for rule in rules)


def _fresh(line: ClauseLine) -> ClauseLine:
    return ClauseLine(
        line.clause, blocked_ns=line.blocked_ns, first_refusal_ns=line.first_refusal_ns
    )


_NONE: Final[Numbers] = np.zeros(0, dtype=np.int64)


class GroupTally:
    """Counts a run's rows for its groups of clients.

    groups: name → numbers of its clients. index: the run's counters.
    """

    __slots__ = ("_groups", "_index", "_offered", "_refused", "_subjects", "_warm_up_ns")

    def __init__(
        self, index: CounterIndex, groups: Mapping[str, range], *, warm_up_ns: int = 0
    ) -> None:
        self._index = index
        self._groups = groups
        self._warm_up_ns = warm_up_ns
        self._offered = _NONE
        self._refused: dict[str, Numbers] = {}
        self._subjects: SubjectTable | None = None

    def take(self, chunk: Chunk) -> None:
        """Count the next rows."""
        self._subjects = chunk.subjects
        chosen = chunk.t_ns >= self._warm_up_ns
        self._offered = _added(self._offered, chunk.subject[chosen], len(chunk.subjects))
        chosen &= chunk.outcome_is("refused", "blocked")
        for number in np.unique(chunk.verdict[chosen]).tolist():
            _, rule = chunk.verdicts[number]
            assert rule is not None, "what is refused is refused by a rule"
            met = chunk.subject[chosen & (chunk.verdict == number)]
            before = self._refused.get(rule, _NONE)
            self._refused[rule] = _added(before, met, len(chunk.subjects))

    def lines(self) -> list[dict[str, Any]]:
        """Return a line a group, as `summary.json` has it."""
        count = len(self._offered)
        refused = {rule: _longer(counts, count) for rule, counts in self._refused.items()}
        clients = _NONE if self._subjects is None else self._subjects.clients()[:count]
        ips = _NONE if self._subjects is None else self._subjects.text("ip").of_entry[:count]
        found = []
        for name, numbers in self._groups.items():
            mine = (clients >= numbers.start) & (clients < numbers.stop) & (self._offered > 0)
            by_rule = {rule: int(each[mine].sum()) for rule, each in refused.items()}
            by_rule = {rule: number for rule, number in by_rule.items() if number}
            turned = mine & (sum(refused.values(), np.zeros(count, dtype=np.int64)) > 0)
            offered, total = int(self._offered[mine].sum()), sum(by_rule.values())
            found.append(
                {
                    "name": name,
                    "first_client": numbers.start,
                    "clients": len(numbers),
                    "offered": offered,
                    "admitted": offered - total,
                    "refused": total,
                    "clients_met": _distinct(clients[mine]),
                    "clients_refused": _distinct(clients[turned]),
                    "addresses": _distinct(ips[mine]),
                    "addresses_refused": _distinct(ips[turned]),
                    "clauses": self._by_clause(by_rule),
                    "binds": self._binds(by_rule, refused, mine, clients, ips),
                }
            )
        return found

    def _by_clause(self, by_rule: Mapping[str, int]) -> dict[str, int]:
        clause_of = {rule.id: rule.clause for rule in self._index.rules}
        found: dict[str, int] = {}
        for rule, number in sorted(by_rule.items(), key=lambda each: (-each[1], each[0])):
            found[clause_of[rule]] = found.get(clause_of[rule], 0) + number
        return found

    def _binds(
        self,
        by_rule: Mapping[str, int],
        refused: Mapping[str, Numbers],
        mine: np.ndarray[Any, np.dtype[np.bool_]],
        clients: Table,
        ips: Table,
    ) -> dict[str, Any] | None:
        """Return the rule that refused a group most, and the counter of it that did."""
        if not by_rule:
            return None
        assert self._subjects is not None, "what was refused was asked by somebody"
        name = max(by_rule, key=lambda rule: (by_rule[rule], rule))
        everybody = np.arange(len(mine), dtype=np.int64)
        most, found = 0, None
        for place, rule in enumerate(self._index.rules):
            if rule.id != name:
                continue
            counter = self._subjects.counters(place, everybody)
            counts = np.bincount(
                counter[mine & (counter >= 0)], refused[name][mine & (counter >= 0)]
            )
            if len(counts) and counts.max() > most:
                most, busiest = int(counts.max()), int(counts.argmax())
                sharing = (counter == busiest) & (self._offered > 0)
                found = {
                    "clause": rule.clause,
                    "rule": rule.id,
                    "refused": by_rule[name],
                    "addresses": _distinct(ips[mine & (refused[name] > 0)]),
                    "limit_requests": rule.limit_requests,
                    "window_ns": rule.window_ns,
                    "sharing": _distinct(clients[sharing]),
                }
        return found


def _added(counts: Numbers, subjects: Numbers, count: int) -> Numbers:
    """Return counts by subject with so many more."""
    found: Numbers = _longer(counts, count) + np.bincount(subjects, minlength=count)
    return found


def _longer(counts: Numbers, count: int) -> Numbers:
    found: Numbers = np.r_[counts, np.zeros(count - len(counts), dtype=np.int64)]
    return found


def _distinct(numbers: Table) -> int:
    return len(np.unique(numbers))


_BINS: Final = 120
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
