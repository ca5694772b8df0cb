"""What a summary says, counted chunk by chunk in memory that does not grow with rows.

Rows before the warm-up's end are left out here; they stay in the file.

*`RunStatistics`*: totals, the table by clause, and the lines of client groups. Counts are kept for
each (kind of request, verdict), or (subject, verdict) where there are groups; every total is a sum
of them. Blocks that began in the warm-up count from its end.

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

Of each client group it tells the refused share, the limit that binds it, the admitted pace.

- binds: the rule that refused the group most, and its counter that refused the group most.
- fair share: that rule's rate shared evenly by all clients, of any group, that the counter counted.
  It passes where all of them keep to it; `senders` tells what they send instead.

*`Utilization`*: how full the counters of each rule were. Occupancy of a counter at an attempt is
the number of admissions that it counted in the window that ends there, over the rule's limit: 1 is
full. Algorithms that count in fixed windows, or refill a bucket, sometimes admit more, so it may be
above 1. A delayed attempt counts at its release. Each bin of time holds the occupancy of the
fullest counter, at the attempts charged to it. Peaks exclude the warm-up; bins include it.

*`NodesStatistics`*: what several nodes admitted beyond the exact limits, and refuse below them.
Every attempt is judged twice, as it happens: by the node that it reaches, and by one exact counter
for all nodes (`engine.limits.nodes`). The exact counter sees the same attempts, which are those
that clients make of the nodes' answers, and it charges what it admits itself.

- beyond: the node lets an attempt in that the exact counter refuses, by the clause of the latter.
- below: the node refuses an attempt that the exact counter admits, by the clause of the node.
"""

from __future__ import annotations

import dataclasses
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from fastdigest import TDigest

from engine.limits.rules import CounterFamily
from engine.messages import Decision, Outcome
from engine.profile import NodesProfile
from simulator.intervals import WINDOWS
from simulator.rows.metrics import QUANTILES
from simulator.rows.record import (
    NO_STATUS,
    PASSED,
    Chunk,
    Numbers,
    SubjectTable,
    Table,
    clause_of,
    ensure_capacity,
)
from simulator.rows.reducer import BlockedTime, CrossTab


class RunStatistics:
    """Counts a run's rows; see the file's head for what each number means.

    legs: those of the run's view. clauses: the lines of the table, in order. end_ns: the run's end.
    warm_up_ns: rows before are left out. groups: name → numbers of its clients. by_subject: count
    by subject, as the lines of groups need; memory follows the subjects then.
    """

    def __init__(
        self,
        legs: Sequence[CounterFamily],
        clauses: Iterable[str],
        *,
        end_ns: int,
        warm_up_ns: int = 0,
        groups: Mapping[str, range] | None = None,
        by_subject: bool = False,
    ) -> None:
        self._legs = legs
        self._end_ns = end_ns
        self._warm_up_ns = warm_up_ns
        self._groups = groups or {}
        self._by_subject = by_subject
        self._blocked_ns: Counter[str] = Counter()
        self._first_refusal_ns: dict[str, int] = {}
        self._cells = CrossTab()
        self._pending = 0
        self._statuses: Counter[int] = Counter()
        self._blocks = defaultdict[int, BlockedTime](lambda: BlockedTime(warm_up_ns, end_ns))
        self._touched = {clause: (_NumberSet(), _NumberSet()) for clause in clauses}
        self._digest = TDigest()
        # offered and refused, by group and window; groups are counted where subjects are
        self._windows = np.zeros(
            (2, max(1, len(self._groups) if by_subject else 0), WINDOWS), dtype=np.int64
        )
        self._requests = 0
        self._ended = [0, 0]  # not well, and well
        self.first_attempts = 0  # of requests: those that wait for a turn have made none
        self._subjects = SubjectTable()
        self._verdicts: Sequence[tuple[Outcome, str | None]] = []

    def take(self, chunk: Chunk) -> None:
        """Count the next rows."""
        self._subjects, self._verdicts = chunk.subjects, chunk.verdicts
        self._block_times(chunk)
        chosen = chunk.t_ns >= self._warm_up_ns
        if not chosen.any():
            return
        self.first_attempts += int(np.count_nonzero(chunk.attempt[chosen] == 1))
        lines, count = chunk.subject[chosen], len(chunk.subjects)
        if not self._by_subject:
            kind, kinds = chunk.subjects.kinds()
            lines, count = kind.take(lines), len(kinds)
        self._cells.add(lines, chunk.verdict[chosen], (count, len(chunk.verdicts)))
        self._count_windows(chunk, chosen)
        late = chunk.outcome_is("delayed") & (chunk.t_ns + chunk.wait_ns >= self._end_ns) & chosen
        self._pending += int(np.count_nonzero(late))
        known = chunk.status[chosen & (chunk.status != NO_STATUS)]
        statuses, counts = np.unique(known, return_counts=True)
        self._statuses.update(dict(zip(statuses.tolist(), counts.tolist(), strict=True)))
        passed = chunk.passed()
        served = chosen & passed
        if served.any():
            # Sort here, where it is fast; the digest would sort in the same way.
            self._digest.batch_update(np.sort(chunk.latency_ns[served]).tolist())
        self._first_refusals(chunk, chosen & ~passed)

    def request_began(self, began_ns: int) -> None:
        """Count a request that began."""
        self._requests += began_ns >= self._warm_up_ns

    def request_ended(self, began_ns: int, ended_ns: int, *, well: bool) -> None:
        """Count a request that ended, and whether it ended well; after the run's end is pending."""
        if began_ns >= self._warm_up_ns and ended_ns < self._end_ns:
            self._ended[well] += 1

    def add_requests(self, began: int, ended: int, well: int) -> None:
        """Count requests, all after the warm-up and, those that ended, before the run's end."""
        self._requests += began
        self._ended[False] += ended - well
        self._ended[True] += well

    def totals(self) -> dict[str, Any]:
        """Return the totals; the refused share is 0 where nothing was offered."""
        by_outcome: Counter[str] = Counter()
        for (outcome, _), count in zip(self._verdicts, self._met(), strict=False):
            by_outcome[outcome] += count
        offered, refused = by_outcome.total(), by_outcome["refused"] + by_outcome["blocked"]
        return {
            "offered": offered,
            "admitted": by_outcome["admitted"] + by_outcome["delayed"] - self._pending,
            "delayed": by_outcome["delayed"],
            "refused": refused,
            "blocked": by_outcome["blocked"],
            "pending": self._pending,
            "requests": self._requests,
            "succeeded": self._ended[True],
            "failed": self._ended[False],
            "requests_pending": self._requests - sum(self._ended),
            "refused_share": refused / offered if offered else 0.0,
            "statuses": {str(status): count for status, count in sorted(self._statuses.items())},
            "latency_ns": self._latency_quantiles_ns(),
        }

    def windows(self) -> dict[str, Any]:
        """Return the attempts offered and refused in equal parts of the time behind the warm-up.

        Intervals of shares are made of them. groups: the same of each client group. episode: how
        many attempts a counter would refuse where it refuses.
        """
        offered, refused = self._windows.sum(axis=1).tolist()
        names = self._groups if self._by_subject else ()
        groups = {
            name: {"offered": counts[0].tolist(), "refused": counts[1].tolist()}
            for name, counts in zip(names, self._windows.swapaxes(0, 1), strict=False)
        }
        return {
            "offered": offered,
            "refused": refused,
            "episode": self._episode(),
            "groups": groups,
        }

    def _count_windows(self, chunk: Chunk, chosen: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        width_ns = max(1, -(-(self._end_ns - self._warm_up_ns) // WINDOWS))
        place = np.minimum((chunk.t_ns[chosen] - self._warm_up_ns) // width_ns, WINDOWS - 1)
        if self._by_subject and self._groups:
            starts = [numbers.start for numbers in self._groups.values()]
            clients = chunk.clients[chunk.subject[chosen]]
            group = np.searchsorted(starts, clients, side="right") - 1
            place = place + WINDOWS * np.maximum(group, 0)
        shape = self._windows.shape[1:]
        size = self._windows[0].size
        self._windows[0] += np.bincount(place, minlength=size).reshape(shape)
        refused = ~chunk.passed()[chosen]
        self._windows[1] += np.bincount(place[refused], minlength=size).reshape(shape)

    def _episode(self) -> float:
        """Return how many attempts a counter would refuse where it refuses: 1 at least.

        Those of a block at the pace of the busiest counter, and no more than the limit lets pass;
        or the noise of a full window. Where subjects are not counted, the busiest counter is taken
        to get all attempts.
        """
        span_ns = max(1, self._end_ns - self._warm_up_ns)
        most = 1.0
        offered_of = self._cells.counts.sum(axis=1) if self._by_subject else None
        for place, counted in self._offered_of_legs().items():
            rule = self._legs[place].rule
            if rule.shadow or not counted:
                continue
            busiest = counted
            if offered_of is not None:
                counter = self._subjects.counters(place, np.arange(len(offered_of)))
                is_met = counter >= 0
                busiest = int(np.bincount(counter[is_met], offered_of[is_met]).max(initial=0))
            in_block = busiest * (rule.block_ns or 0) / span_ns
            at_limit = rule.limit_requests * (rule.block_ns or 0) / rule.window_ns
            noise = min(math.sqrt(rule.limit_requests), busiest)
            most = max(most, noise, min(in_block, at_limit, busiest))
        return most

    def _offered_of_legs(self) -> Counter[int]:
        """Return how many attempts met each leg."""
        offered: Counter[int] = Counter()
        for counters, counts in zip(self._subjects.kinds()[1], self._of_kinds(), strict=False):
            for place, _ in counters:
                offered[place] += sum(counts)
        return offered

    def _latency_quantiles_ns(self) -> dict[str, int] | None:
        """Return the latency quantiles of what was admitted (t-digest), None where nothing was."""
        if self._digest.is_empty():
            return None
        return {f"p{q * 100:g}": round(self._digest.quantile(q)) for q in QUANTILES}

    def clauses(self, shadow: Mapping[str, int]) -> list[dict[str, Any]]:
        """Return the table by clause: those that refused most first, and then in table order.

        shadow: clause → requests that its rules in shadow would have refused.
        offered = admitted + refused + refused_by_others; all are 0 where no request met a clause.
        """
        lines: dict[str, dict[str, Any]] = {
            clause: {
                "clause": clause,
                "offered": 0,
                "admitted": 0,
                "refused": 0,
                "refused_by_others": 0,
                "delayed": 0,
                "shadow_refused": shadow.get(clause, 0),
                "blocked_ns": self._blocked_ns[clause],
                "keys": len(keys),
                "ips": len(ips),
                "first_refusal_ns": self._first_refusal_ns.get(clause),
            }
            for clause, (keys, ips) in self._touched.items()
        }
        passes = [outcome in PASSED for outcome, _ in self._verdicts]
        for counters, counts in zip(self._subjects.kinds()[1], self._of_kinds(), strict=False):
            offered = sum(counts)
            admitted = sum(c for c, passed in zip(counts, passes, strict=False) if passed)
            for clause in dict.fromkeys(self._legs[place].rule.id for place, _ in counters):
                lines[clause]["offered"] += offered
                lines[clause]["admitted"] += admitted
        for (outcome, rule), count in zip(self._verdicts, self._met(), strict=False):
            if rule is not None:
                column = "delayed" if outcome == "delayed" else "refused"
                lines[clause_of(rule)][column] += count
        for line in lines.values():
            line["refused_by_others"] = line["offered"] - line["admitted"] - line["refused"]
        return sorted(lines.values(), key=lambda line: -line["refused"])

    def groups(self) -> list[dict[str, Any]]:
        """Return a line a client group, as `summary.json` has it."""
        counts = self._cells.counts if self._by_subject else np.zeros((0, 0), dtype=np.int64)
        count = len(counts)
        offered_of = counts.sum(axis=1)
        refused: dict[str, Numbers] = {}
        for (outcome, rule), met in zip(self._verdicts, counts.T, strict=False):
            if rule is not None and outcome not in PASSED and met.any():
                refused[rule] = refused.get(rule, 0) + met
        clients = self._subjects.clients()[:count]
        ips = self._subjects.text("ip").codes[:count]
        groups = []
        for name, numbers in self._groups.items():
            mine = (clients >= numbers.start) & (clients < numbers.stop) & (offered_of > 0)
            by_rule = {rule: int(by_subject[mine].sum()) for rule, by_subject in refused.items()}
            by_rule = {rule: number for rule, number in by_rule.items() if number}
            turned = mine & (sum(refused.values(), np.zeros(count, dtype=np.int64)) > 0)
            offered, total = int(offered_of[mine].sum()), sum(by_rule.values())
            groups.append(
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
                    "binds": self._binds(by_rule, refused, mine, offered_of > 0),
                }
            )
        return groups

    def _by_clause(self, by_rule: Mapping[str, int]) -> dict[str, int]:
        by_clause: Counter[str] = Counter()
        for rule, number in sorted(by_rule.items(), key=lambda item: (-item[1], item[0])):
            by_clause[clause_of(rule)] += number
        return dict(by_clause)

    def _binds(
        self,
        by_rule: Mapping[str, int],
        refused: Mapping[str, Numbers],
        mine: np.ndarray[Any, np.dtype[np.bool_]],
        asked: np.ndarray[Any, np.dtype[np.bool_]],
    ) -> dict[str, Any] | None:
        """Return the rule that refused a group most, and the counter of it that did."""
        if not by_rule:
            return None
        clients = self._subjects.clients()[: len(mine)]
        ips = self._subjects.text("ip").codes[: len(mine)]
        name = max(by_rule, key=lambda rule: (by_rule[rule], rule))
        everybody = np.arange(len(mine), dtype=np.int64)
        most, binding = 0, None
        for place, leg in enumerate(self._legs):
            if leg.name != name:
                continue
            counter = self._subjects.counters(place, everybody)
            counts = np.bincount(
                counter[mine & (counter >= 0)], refused[name][mine & (counter >= 0)]
            )
            if len(counts) and counts.max() > most:
                most, busiest = int(counts.max()), int(counts.argmax())
                sharing = (counter == busiest) & asked
                binding = {
                    "clause": leg.rule.id,
                    "rule": leg.name,
                    "refused": by_rule[name],
                    "addresses": _distinct(ips[mine & (refused[name] > 0)]),
                    "limit_requests": leg.rule.limit_requests,
                    "window_ns": leg.rule.window_ns,
                    "sharing": _distinct(clients[sharing]),
                    "senders": self._senders(clients, sharing),
                }
        return binding

    def _senders(
        self, clients: Table, sharing: np.ndarray[Any, np.dtype[np.bool_]]
    ) -> dict[str, dict[str, int]]:
        """Return how many clients of each group meet a counter, and their attempts there."""
        offered_of = self._cells.counts.sum(axis=1)
        senders = {}
        for name, numbers in self._groups.items():
            mine = sharing & (clients >= numbers.start) & (clients < numbers.stop)
            if mine.any():
                attempts = int(offered_of[mine].sum())
                senders[name] = {"clients": _distinct(clients[mine]), "offered": attempts}
        return senders

    def _met(self) -> list[int]:
        """Return how many rows met each verdict."""
        totals: list[int] = self._cells.counts.sum(axis=0).tolist()
        return totals

    def _of_kinds(self) -> list[list[int]]:
        """Return the counts of each kind of request."""
        counts = self._cells.counts
        if self._by_subject:
            kind, kinds = self._subjects.kinds()
            counts = np.zeros((len(kinds), counts.shape[1]), dtype=np.int64)
            np.add.at(counts, kind[: len(self._cells.counts)], self._cells.counts)
        lists: list[list[int]] = counts.tolist()
        return lists

    def _block_times(self, chunk: Chunk) -> None:
        blocked = chunk.outcome_is("blocked")
        for place, leg in enumerate(self._legs):
            rule = leg.rule
            if not rule.block_ns or rule.shadow:
                continue
            chosen = np.flatnonzero(blocked & chunk.rule_is(leg.name))
            if not len(chosen):
                continue
            # A rule of this name may be in another table too, with numbers of its own.
            counter = chunk.counters(place)[chosen]
            chosen, counter = chosen[counter >= 0], counter[counter >= 0]
            shut = self._blocks[place].take(counter, chunk.t_ns[chosen], chunk.wait_ns[chosen])
            self._blocked_ns[rule.id] += int(shut.lasted_ns.sum())

    def _first_refusals(self, chunk: Chunk, turned: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        for number, (_, rule) in enumerate(chunk.verdicts):
            if rule is None:
                continue
            rows = np.flatnonzero(turned & (chunk.verdict == number))
            if not len(rows):
                continue
            clause, first_ns = clause_of(rule), int(chunk.t_ns[rows[0]])
            earlier_ns = self._first_refusal_ns.get(clause, first_ns)
            self._first_refusal_ns[clause] = min(earlier_ns, first_ns)
            for seen, name in zip(self._touched[clause], ("key", "ip"), strict=True):
                column = chunk.texts[name]
                seen.add(column.codes.take(chunk.subject[rows]), len(column.texts))


class _NumberSet:
    """Which of some numbers from 0 were there; −1 is none."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = np.zeros(0, dtype=bool)

    def __len__(self) -> int:
        return int(np.count_nonzero(self._seen))

    def add(self, numbers: Table, count: int) -> None:
        """Take in some numbers, all below `count`."""
        self._seen = ensure_capacity(self._seen, count, fill=False)
        self._seen[numbers[numbers >= 0]] = True


_NONE: Final[Numbers] = np.zeros(0, dtype=np.int64)


def _distinct(numbers: Table) -> int:
    return len(np.unique(numbers))


_BINS: Final = 120
_SAFE: Final = 1 << 62
CLASSES: Final = (0.1, 0.25, 0.5, 0.75, 0.9, 1.0)
"""Counters are told apart by their peaks below each of these; the last class is full."""


class Utilization:
    """Watches how full counters are.

    legs: those of the run's view. end_ns: the run's end; every attempt comes before it.
    """

    def __init__(self, legs: Sequence[CounterFamily], *, end_ns: int, warm_up_ns: int = 0) -> None:
        self._legs = legs
        self._warm_up_ns = warm_up_ns
        self._bin_ns = max(1, -(-end_ns // _BINS))
        self._most: dict[int, Numbers] = {}
        self._peaks: dict[int, Numbers] = {}
        self._carried: dict[int, tuple[Numbers, Numbers]] = {}

    def take(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        if not len(chunk):
            return
        passed = chunk.passed()
        release_ns = chunk.release_ns()
        for place in range(len(self._legs)):
            counter = chunk.counters(place)
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
        window_ns = self._legs[place].rule.window_ns
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
            peaks = ensure_capacity(self._peaks.get(place, _NONE), int(numbers.max()) + 1, fill=-1)
            np.maximum.at(peaks, numbers, held[counted])
            self._peaks[place] = peaks

    def summary(self) -> dict[str, Any]:
        """Return what `summary.json` holds: a line a rule that was met.

        most: of each bin, the admissions that the fullest counter held; −1 where nobody asked.
        classes: how many counters peaked below each of `CLASSES` of the limit, and how many were
        full.
        """
        lines = []
        for place, most in self._most.items():
            leg = self._legs[place]
            peaks = self._peaks.get(place, _NONE)
            peaks = peaks[peaks >= 0]
            shares = peaks / leg.rule.limit_requests
            classes = np.bincount(np.searchsorted(CLASSES, shares, side="right"), minlength=7)
            lines.append(
                {
                    "rule": leg.name,
                    "clause": leg.rule.id,
                    "limit_requests": leg.rule.limit_requests,
                    "window_ns": leg.rule.window_ns,
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


@dataclass(slots=True)
class NodesStatistics:
    """Counts, for each client group and clause, the attempts that nodes decide otherwise.

    nodes: what is played. groups: name → numbers of its clients. warm_up_ns: attempts before it
    are left out. subjects: those of the rows.
    """

    nodes: NodesProfile
    groups: Mapping[str, range]
    warm_up_ns: int
    subjects: SubjectTable
    _counts: Counter[tuple[str, str, bool]] = field(default_factory=Counter, init=False)

    def take(self, t_ns: int, subject: int, node: Decision, exact: Decision) -> None:
        """Count an attempt of a subject of the rows, from what both have decided."""
        if node.admitted == exact.admitted or t_ns < self.warm_up_ns:
            return
        rule = exact.rule if node.admitted else node.rule
        assert rule is not None, "what is refused is refused by a rule"
        client = int(self.subjects.clients()[subject])
        group = next(name for name, held in self.groups.items() if client in held)
        self.add(group, rule, 1, beyond=node.admitted)

    def add(self, group: str, rule: str, count: int, *, beyond: bool) -> None:
        """Count attempts of a group, all after the warm-up."""
        self._counts[group, clause_of(rule), beyond] += count

    def summary(self) -> dict[str, Any]:
        """Return what the run's summary says of its nodes."""
        order, counts = list(self.groups), self._counts.items()
        pairs = {(group, clause) for group, clause, _ in self._counts}
        lines = [
            {
                "group": group,
                "clause": clause,
                "admitted_beyond": self._counts[group, clause, True],
                "refused_below": self._counts[group, clause, False],
            }
            for group, clause in sorted(pairs, key=lambda pair: (order.index(pair[0]), pair[1]))
        ]
        return {
            **dataclasses.asdict(self.nodes),
            "admitted_beyond": sum(count for (*_, beyond), count in counts if beyond),
            "refused_below": sum(count for (*_, beyond), count in counts if not beyond),
            "groups": lines,
        }
