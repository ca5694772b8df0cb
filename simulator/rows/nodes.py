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
    are left out. subjects: those of the rows.
    """

    def __init__(
        self,
        nodes: NodesProfile,
        groups: Mapping[str, range],
        warm_up_ns: int,
        subjects: SubjectTable,
    ) -> None:
        self.nodes = nodes
        self._groups = groups
        self._warm_up_ns = warm_up_ns
        self._subjects = subjects
        self._counts: Counter[tuple[str, str, bool]] = Counter()

    def take(self, t_ns: int, subject: int, node: Decision, exact: Decision) -> None:
        """Count an attempt of a subject of the rows, from what both have decided."""
        if node.admitted == exact.admitted or t_ns < self._warm_up_ns:
            return
        rule = exact.rule if node.admitted else node.rule
        assert rule is not None, "what is refused is refused by a rule"
        client = int(self._subjects.clients()[subject])
        group = next(name for name, held in self._groups.items() if client in held)
        self.add(group, rule, 1, beyond=node.admitted)

    def add(self, group: str, rule: str, count: int, *, beyond: bool) -> None:
        """Count attempts of a group, all after the warm-up."""
        self._counts[group, clause_of(rule), beyond] += count

    def summary(self) -> dict[str, Any]:
        """Return what the run's summary says of its nodes."""
        order, counts = list(self._groups), self._counts.items()
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
