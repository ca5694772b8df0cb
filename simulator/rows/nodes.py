"""What several nodes let in beyond the exact limits, and refuse below them.

Every attempt is judged twice, as it happens: by the node that it reaches, and by one exact counter
for all nodes (`engine.limits.nodes`). The exact counter sees the same attempts, which are those
that clients make of the nodes' answers, and it charges what it lets in itself.

- beyond: the node lets an attempt in that the exact counter refuses, by the clause of the latter.
- below: the node refuses an attempt that the exact counter lets in, by the clause of the node.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping
from typing import Any

from engine.messages import Decision
from engine.profile import NodesProfile
from simulator.rows.record import SubjectTable, clause_of


class NodesTally:
    """Counts, for each client group and clause, the attempts that nodes decide otherwise.

    nodes: what is played. groups: name → numbers of its clients. warm_up_ns: attempts before it
    are left out.
    """

    def __init__(self, nodes: NodesProfile, groups: Mapping[str, range], warm_up_ns: int) -> None:
        self.nodes = nodes
        self._groups = groups
        self._warm_up_ns = warm_up_ns
        self._rows: Counter[tuple[int, str, bool]] = Counter()
        self._beyond: Counter[tuple[str, str]] = Counter()
        self._below: Counter[tuple[str, str]] = Counter()

    def take(self, t_ns: int, subject: int, node: Decision, exact: Decision) -> None:
        """Count an attempt of a subject of the rows, from what both have decided."""
        if node.admitted == exact.admitted or t_ns < self._warm_up_ns:
            return
        rule = exact.rule if node.admitted else node.rule
        assert rule is not None, "what is refused is refused by a rule"
        self._rows[subject, rule, node.admitted] += 1

    def add(self, group: str, rule: str, count: int, *, beyond: bool) -> None:
        """Count attempts of a group, all after the warm-up."""
        (self._beyond if beyond else self._below)[group, clause_of(rule)] += count

    def summary(self, subjects: SubjectTable) -> dict[str, Any]:
        """Return what the run's summary says of its nodes."""
        client = subjects.clients()
        for (subject, rule, beyond), count in self._rows.items():
            number = int(client[subject])
            group = next(name for name, held in self._groups.items() if number in held)
            self.add(group, rule, count, beyond=beyond)
        self._rows.clear()
        pairs = sorted(
            self._beyond.keys() | self._below.keys(),
            key=lambda pair: (list(self._groups).index(pair[0]), pair[1]),
        )
        return {
            **dataclasses.asdict(self.nodes),
            "admitted_beyond": self._beyond.total(),
            "refused_below": self._below.total(),
            "groups": [
                {
                    "group": group,
                    "clause": clause,
                    "admitted_beyond": self._beyond[group, clause],
                    "refused_below": self._below[group, clause],
                }
                for group, clause in pairs
            ],
        }
