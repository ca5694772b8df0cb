"""The tally: what a summary says, counted chunk by chunk in memory that does not grow with rows.

Counts are kept for each (kind of request, verdict): what a kind is counted in tells the table by
clause, and every total is a sum. Rows before the warm-up's end are left out here
(they stay in the file); blocks that began there are known but their time before it is not counted.

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
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from fastdigest import TDigest

from engine.messages import Outcome
from simulator.rows.counters import CounterIndex
from simulator.rows.int_list import Table
from simulator.rows.record import NO_STATUS, Chunk, Numbers
from simulator.rows.running_maxima import LatestEnd
from simulator.rows.subjects import Counters

__all__ = ["ClauseLine", "Tally", "Totals", "clauses_of"]

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
            # Sorted here, where it is fast; the digest would sort them the same.
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
        """Return the table by clause, in table order; clauses nobody met have zeros."""
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
            start_ns = chunk.t_ns[chosen]
            end_ns = start_ns + chunk.wait_ns[chosen]
            open_ns = self._blocks[place].before(counter, end_ns)
            start_ns = np.maximum(np.maximum(start_ns, open_ns), self._warm_up_ns)
            lasted_ns = np.minimum(end_ns, self._end_ns) - start_ns
            self._clauses[rule.clause].blocked_ns += int(np.maximum(lasted_ns, 0).sum())

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
