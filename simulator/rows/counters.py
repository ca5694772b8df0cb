"""Limit tables as the results see them: which counters a subject is counted in, by matching alone.

The matching is the engine's (`engine.limits.Legs`), in a separate instance: no counter of the run's
limiter is read here.
`counter_ids` and its like find the rows that share a counter.
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
from simulator.rows.record import Chunk, Numbers
from simulator.rows.subjects import Counted, Counters

__all__ = ["CountedRule", "CounterIndex", "LimitsView", "order_by_counter"]

_COLUMNS: Final = {"key_id": "key", "ip": "ip"}
"""Columns of a row that tell counters apart; rows name neither proxy keys nor hostnames."""


class LimitsView:
    """Turns limits' subjects into counters, numbered in `index`.

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
                by=tuple(_COLUMNS[part] for part in _COLUMNS if part in FAMILIES[leg.key_place]),
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
    """What is said of one counter of the limit table.

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
    """The rules of a run; the counters of each are told by the run's subjects."""

    __slots__ = ("rules",)

    def __init__(self) -> None:
        self.rules: list[CountedRule] = []

    def add(self, rule: CountedRule) -> int:
        """Return a place for a rule's counters; two that are equal may count apart."""
        self.rules.append(rule)
        return len(self.rules) - 1

    def numbers(self, place: int, chunk: Chunk) -> Numbers:
        """Return each row's counter under the rule at `place`, −1 where it does not apply."""
        return chunk.subjects.counters(place, chunk.subject)
