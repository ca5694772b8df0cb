"""Which counters a subject is counted in.

The matching is the engine's (`engine.limits.Legs`), in an instance of its own: no counter of the
run's limiter is read here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from engine.limits.algorithms import ALGORITHMS
from engine.limits.legs import Leg, Legs, RequestClass, class_of, counter_keys
from engine.limits.subject import Subject
from engine.limits.table import FAMILIES, LimitTable
from engine.profile import Algorithm, LimitsProfile
from simulator.rows.record import Chunk, Counted, Counters, Numbers, columns_by


class LimitsView:
    """Finds the counters that a request is counted in; `index` holds their rules.

    tables: limit tables by name, `Default` among them. profile: how they are played.
    """

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
    """The rules of a run by place; the run's subjects know their counters under each.

    clause_of: the clause of each rule, by the rule's id.
    """

    def __init__(self) -> None:
        self.rules: list[CountedRule] = []
        self.clause_of: dict[str, str] = {}

    def add(self, rule: CountedRule) -> int:
        """Add a rule, and return its place; equal rules may have counters of their own."""
        self.rules.append(rule)
        self.clause_of[rule.id] = rule.clause
        return len(self.rules) - 1

    def numbers(self, place: int, chunk: Chunk) -> Numbers:
        """Return each row's counter under the rule at `place`, −1 where it does not apply."""
        return chunk.subjects.counters(place, chunk.subject)

    def in_force(self, chunk: Chunk) -> Iterator[tuple[int, CountedRule, Numbers]]:
        """Yield the rules that are not in shadow: place, rule, and each row's counter."""
        for place, rule in enumerate(self.rules):
            if not rule.shadow:
                yield place, rule, self.numbers(place, chunk)
