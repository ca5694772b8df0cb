"""Which counters a subject is counted in.

The matching is the engine's (`engine.limits.rules`), in an instance of its own: no counter of the
run's limiter is read here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.limits.rules import CounterFamily, RequestClass, RuleSet, counter_keys
from engine.limits.subject import Subject
from engine.limits.table import LimitTable
from engine.profile import LimitsProfile
from simulator.rows.record import CounterIds, Counters, Interner


class CounterIndex:
    """Finds the counters that a request is counted in.

    tables: limit tables by name, `Default` among them. profile: how they are played. legs: those
    that a subject was counted in, by place; the run's subjects know their counters under each.
    """

    def __init__(self, tables: Mapping[str, LimitTable], profile: LimitsProfile) -> None:
        self._legs = RuleSet(tables, profile)
        self.classifier = self._legs.classifier
        self._of_class: dict[RequestClass, Counters] = {}
        self._places = Interner()
        self.legs: Sequence[CounterFamily] = self._places.known
        rules = [rule for table in tables.values() for rule in table]
        self.clauses = tuple(dict.fromkeys(rule.id for rule in rules))
        self.delays = profile.throttle == "delay"

    def counted(self, subject: Subject) -> CounterIds:
        """Return every counter that a subject is counted in."""
        resources = self._legs.classifier.matching(subject.method, subject.path)
        asked = RequestClass.of(subject, resources)
        places = self._of_class.get(asked)
        if places is None:
            legs = self._legs.of_class(asked)
            places = tuple((self._places[leg], leg.key_place) for leg in legs)
            self._of_class[asked] = places
        return CounterIds(places, counter_keys(subject))
