"""Limit tables as the results see them: which counters a subject is counted in, by matching alone.

The matching is the engine's (`engine.limits.Legs`: one semantic in one place), on an instance of
its own: no counter of the run's limiter is read here.
"""

from __future__ import annotations

from collections.abc import Mapping

from engine.limits.legs import Legs, class_of, counter_keys
from engine.limits.subject import Subject
from engine.limits.table import LimitTable
from engine.profile import LimitsProfile
from simulator.results.counted import CountedRule, CounterIndex

__all__ = ["LimitsView"]


class LimitsView:
    """Turns limits' subjects into counters, numbered in `index`.

    tables: limit tables by name, `Default` among them. profile: how they are played.
    """

    __slots__ = ("_legs", "clauses", "delays", "index", "profile")

    def __init__(self, tables: Mapping[str, LimitTable], profile: LimitsProfile) -> None:
        self._legs = Legs(tables, profile)
        self.profile = profile
        self.index = CounterIndex()
        rules = [rule for table in tables.values() for rule in table]
        self.clauses = tuple(dict.fromkeys(rule.id for rule in rules))
        self.delays = profile.throttle == "delay"

    def counters(self, subject: Subject) -> tuple[tuple[int, str], ...]:
        """Return what `simulator.results.rows.Subject` holds as its counters."""
        resources = self._legs.classifier.matching(subject.method, subject.path)
        keys = counter_keys(subject)
        return tuple(
            (
                self.index.place(
                    CountedRule(
                        id=leg.name,
                        clause=leg.rule.id,
                        limit_requests=leg.rule.limit_requests,
                        window_ns=leg.rule.window_ns,
                        algorithm=leg.algorithm,
                        burst_requests=leg.rule.burst_requests
                        or self.profile.burst_requests
                        or leg.rule.limit_requests,
                        block_ns=leg.rule.block_ns or 0,
                        shadow=leg.rule.shadow,
                    )
                ),
                str(keys[leg.key_place]),
            )
            for leg in self._legs.of_class(class_of(subject, resources))
        )
