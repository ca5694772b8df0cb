"""Which rows share a counter, told from the rows' subjects and not from the limiter.

The tally and the checkers watch the limiter, so they do not ask it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from engine.profile import Algorithm
from simulator.results.rows import Chunk, Numbers

__all__ = ["CountedRule", "CounterIndex"]


class CountedRule(NamedTuple):
    """What is said of one counter of the limit table.

    id: as in the `rule` column (`LIM-PRIVATE.key`). clause: as in reports (`LIM-PRIVATE`).
    burst_requests: of gcra, else the limit. block_ns: 0 where it throttles.
    """

    id: str
    clause: str
    limit_requests: int
    window_ns: int
    algorithm: Algorithm
    burst_requests: int
    block_ns: int
    shadow: bool


class CounterIndex:
    """The rules of a run, and its counters, numbered from 0 for each rule as subjects appear."""

    __slots__ = ("_known", "_of_subject", "_places", "_seen", "rules")

    def __init__(self) -> None:
        self.rules: list[CountedRule] = []
        self._places: dict[CountedRule, int] = {}
        self._known: list[dict[str, int]] = []
        self._of_subject: list[list[int]] = []
        self._seen = 0

    def place(self, rule: CountedRule) -> int:
        """Return the rule's place, a new one where it is new."""
        found = self._places.get(rule)
        if found is None:
            found = self._places[rule] = len(self.rules)
            self.rules.append(rule)
            self._known.append({})
            self._of_subject.append([-1] * self._seen)
        return found

    def numbers(self, place: int, chunk: Chunk) -> Numbers:
        """Return each row's counter under the rule at `place`, −1 where it does not apply."""
        self._grow(chunk)
        return np.array(self._of_subject[place], dtype=np.int64)[chunk.subject]

    def _grow(self, chunk: Chunk) -> None:
        for subject in chunk.subjects[self._seen :]:
            for numbers in self._of_subject:
                numbers.append(-1)
            for place, counter in subject.counters:
                known = self._known[place]
                self._of_subject[place][-1] = known.setdefault(counter, len(known))
        self._seen = len(chunk.subjects)
