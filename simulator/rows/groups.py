"""Results of each client group: the refused share, the limit that binds it, the admitted pace.

Counted by subject (who asks for what), so memory follows the subjects and not the rows. Rows before
the warm-up's end are left out.

- binds: the rule that refused the group most, and its counter that refused the group most.
- pace: that rule's rate shared evenly by all clients, of any group, that the counter counted. So
  many requests a second of each, evenly spread, pass; it is exact for sliding-log.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from simulator.rows.counters import CounterIndex
from simulator.rows.int_list import Table
from simulator.rows.record import Chunk, Numbers
from simulator.rows.subjects import SubjectTable

__all__ = ["GroupTally"]

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
