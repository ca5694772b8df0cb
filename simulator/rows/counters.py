"""Which counters a subject is counted in, and the latest end of a wait of each counter.

The matching is the engine's (`engine.limits.Legs`), in an instance of its own: no counter of the
run's limiter is read here.

`LatestEnd` carries a running maximum for each counter from chunk to chunk. Whatever counts
overlapping waits once needs it: the length of blocks, the time for which a party is shut out, and
the check that nobody is let in before the announced wait.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

import numpy as np

from engine.limits.algorithms import ALGORITHMS
from engine.limits.legs import Leg, Legs, RequestClass, class_of, counter_keys
from engine.limits.subject import Subject
from engine.limits.table import FAMILIES, LimitTable
from engine.profile import Algorithm, LimitsProfile
from simulator.rows.record import Chunk, Counted, Counters, Numbers, columns_by

__all__ = [
    "CountedRule",
    "CounterIndex",
    "LatestEnd",
    "LimitsView",
    "order_by_counter",
    "uncovered",
]


class LimitsView:
    """Finds the counters that a request is counted in; `index` holds their rules.

    tables: limit tables by name, `Default` among them. profile: how they are played.
    """

    __slots__ = ("_legs", "_of_class", "_places", "clauses", "delays", "index", "profile")

    def __init__(self, tables: Mapping[str, LimitTable], profile: LimitsProfile) -> None:
        self._legs = Legs(tables, profile)
        self._of_class: dict[RequestClass, Counters] = {}
        self._places: dict[Leg, int] = {}
        self.profile = profile
        self.index = CounterIndex()
        rules = [rule for table in tables.values() for rule in table]
        self.clauses = tuple(dict.fromkeys(rule.id for rule in rules))
        self.delays = profile.throttle == "delay"

    def counted(self, subject: Subject) -> Counted:
        """Return every counter that a subject is counted in."""
        resources = self._legs.classifier.matching(subject.method, subject.path)
        asked = class_of(subject, resources)
        places = self._of_class.get(asked)
        if places is None:
            legs = self._legs.of_class(asked)
            places = tuple((self._place(leg), leg.key_place) for leg in legs)
            self._of_class[asked] = places
        return Counted(places, counter_keys(subject))

    def _place(self, leg: Leg) -> int:
        found = self._places.get(leg)
        if found is not None:
            return found
        rule = leg.rule
        burst = None
        if ALGORITHMS[leg.algorithm].takes_burst:  # others ignore the profile's choice
            burst = rule.burst_requests or self.profile.burst_requests
        place = self._places[leg] = self.index.add(
            CountedRule(
                id=leg.name,
                clause=rule.id,
                limit_requests=rule.limit_requests,
                window_ns=rule.window_ns,
                algorithm=leg.algorithm,
                burst_requests=burst or rule.limit_requests,
                block_ns=rule.block_ns or 0,
                shadow=rule.shadow,
                by=columns_by(FAMILIES[leg.key_place]),
            )
        )
        return place


_DIGIT_BITS: Final = 16
_DIGIT: Final = (1 << _DIGIT_BITS) - 1


def order_by_counter(counter: Numbers) -> Numbers:
    """Return the places of rows ordered by counter (from 0), and each counter's in row order.

    As `argsort(kind="stable")`, 16 bits at a time: numpy sorts so short numbers by radix, in a
    sixth of the time.
    """
    order = np.argsort((counter & _DIGIT).astype(np.uint16), kind="stable")
    rest = counter >> _DIGIT_BITS
    while rest.any():
        order = order[np.argsort((rest[order] & _DIGIT).astype(np.uint16), kind="stable")]
        rest = rest >> _DIGIT_BITS
    return order


class CountedRule(NamedTuple):
    """A rule of the limit table, or the part of one that has counters of its own.

    id: as in the `rule` column (`LIM-PRIVATE.key`). clause: as in reports (`LIM-PRIVATE`).
    burst_requests: of gcra, else the limit. block_ns: 0 where it throttles. by: the columns of
    `requests.parquet` that tell its counters apart.
    """

    id: str
    clause: str
    limit_requests: int
    window_ns: int
    algorithm: Algorithm
    burst_requests: int
    block_ns: int
    shadow: bool
    by: tuple[str, ...]


class CounterIndex:
    """The rules of a run by place; the run's subjects know their counters under each."""

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: list[CountedRule] = []

    def add(self, rule: CountedRule) -> int:
        """Add a rule, and return its place; equal rules may have counters of their own."""
        self.rules.append(rule)
        return len(self.rules) - 1

    def numbers(self, place: int, chunk: Chunk) -> Numbers:
        """Return each row's counter under the rule at `place`, −1 where it does not apply."""
        return chunk.subjects.counters(place, chunk.subject)


NEVER = -(1 << 62)
_FEW: Final = 256
"""Groups that numpy looks at one by one in less time than pandas takes to begin."""


def uncovered(starts_ns: Numbers, ends_ns: Numbers, before_ns: Numbers) -> tuple[Numbers, Numbers]:
    """Return from when each wait is new, and for how long: overlaps count once.

    before_ns: the latest end of earlier waits of the same counter or party.

    A wait of 5 s, and a second later one of 4 s, are 5 s of waiting, not 9.

    >>> starts, ends, before = np.array([0, 1]), np.array([5, 5]), np.array([0, 5])
    >>> [found.tolist() for found in uncovered(starts, ends, before)]
    [[0, 5], [5, 0]]
    """
    from_ns = np.maximum(starts_ns, before_ns)
    return from_ns, np.maximum(ends_ns - from_ns, 0)


def _latest_before(end_ns: Numbers, groups: Numbers, firsts: Numbers, known_ns: Numbers) -> Numbers:
    """Return, for each row, the latest end of the earlier rows of its group.

    groups: of each row; rows are sorted by it. firsts: the first row of each group. known_ns: of
    each group, the latest end before these rows.

    >>> ends, groups = np.array([5, 3, 9, 1]), np.array([0, 0, 0, 4])
    >>> _latest_before(ends, groups, np.array([0, 3]), np.array([2, 7])).tolist()
    [2, 5, 5, 7]
    """
    earlier = np.r_[np.int64(NEVER), end_ns[:-1]]
    earlier[firsts] = known_ns
    if len(firsts) <= _FEW:
        parts = [np.maximum.accumulate(part) for part in np.split(earlier, firsts[1:])]
        return np.concatenate(parts)
    import pandas as pd  # noqa: PLC0415 # reason: it loads longer than a small run takes

    return np.asarray(pd.Series(earlier).groupby(groups).cummax().to_numpy())


class LatestEnd:
    """Remembers, counter by counter, the latest end so far."""

    __slots__ = ("_ends",)

    def __init__(self) -> None:
        self._ends: Numbers = np.empty(0, dtype=np.int64)

    def before(self, counter: Numbers, end_ns: Numbers) -> Numbers:
        """Return, row by row, the latest end of earlier rows of its counter, then take these in.

        `NEVER` where there is none. Rows in order; equal lengths.
        """
        if not len(counter):
            return counter
        self._grow(int(counter.max()) + 1)
        order = order_by_counter(counter)
        groups = counter[order]
        firsts = np.flatnonzero(np.r_[True, groups[1:] != groups[:-1]])
        running = _latest_before(end_ns[order], groups, firsts, self._ends[groups[firsts]])
        answer = np.empty_like(end_ns)
        answer[order] = running
        np.maximum.at(self._ends, counter, end_ns)
        return answer

    def so_far(self, counter: Numbers) -> Numbers:
        """Return, row by row, the latest end of its counter; `before` where no row has an end."""
        self._grow(int(counter.max(initial=-1)) + 1)
        return self._ends[counter]

    def _grow(self, top: int) -> None:
        if top > len(self._ends):
            grown = np.full(max(top, 2 * len(self._ends)), NEVER, dtype=np.int64)
            grown[: len(self._ends)] = self._ends
            self._ends = grown
