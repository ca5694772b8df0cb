"""Lanes: the counters that one subject is charged to, found once and stored for fast iteration.

A *plan* belongs to a class of subjects, a *lane* to one subject. Each loop of the limiter has a
list of its own with only the fields that it reads, made on first use. `engine.limits.limiter`
decides.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from engine.limits.algorithms import (
    FULL,
    LIMIT,
    OLDEST,
    PLACE,
    READY,
    SPAN,
    Charge,
    Remaining,
    grow_ring,
    remaining_sliding_log,
)
from engine.limits.legs import Counted, Leg, counter_keys
from engine.limits.settling import make_charge
from engine.limits.subject import Subject
from engine.messages import Decision

__all__ = ["Lane", "Plan", "Take", "take_sliding_log", "taker"]

Take: TypeAlias = Callable[[list[int], list[int], tuple[int, ...], int], int]
"""`take(line, ring, rule, t_ns)`: charge one request at `t_ns`, return how many remain then."""

_Measure: TypeAlias = tuple[Remaining, list[int], list[int], tuple[int, ...], int, Counted]
_Taking: TypeAlias = tuple[Take, list[int], list[int], tuple[int, ...], int, Counted]


class Plan:
    """What all subjects of one class share: the legs that count them, in table order."""

    __slots__ = ("admitted", "legs", "plain")

    def __init__(self, legs: tuple[Leg, ...]) -> None:
        self.legs = tuple((leg, leg.key_place) for leg in legs)
        self.plain = not any(leg.rule.shadow or leg.settles for leg in legs)
        self.admitted = Decision("admitted", counted=tuple(leg.name for leg in legs))


class Lane:
    """The counters that one subject meets, in table order, ready to be walked."""

    __slots__ = (
        "admitted",
        "charges",
        "counters",
        "lines",
        "measures",
        "plain",
        "real",
        "shadow",
        "takes",
    )

    def __init__(self, plan: Plan, subject: Subject) -> None:
        keys = counter_keys(subject)
        counters = []
        for leg, place in plan.legs:
            counted = leg.counters.get(keys[place])
            if counted is None:
                counted = leg.counters[keys[place]] = Counted(leg)
            counters.append(counted)
        self.admitted = plan.admitted
        self.plain = plan.plain
        self.counters = self.real = counters
        self.shadow: list[Counted] = []
        if not plan.plain:
            self.real = [each for each in counters if not each.leg.rule.shadow]
            self.shadow = [each for each in counters if each.leg.rule.shadow]
        self.lines = [each.line for each in self.real]
        self.charges = [each.charging for each in self.real]
        self.measures: list[_Measure] | None = None
        self.takes: list[_Taking] | None = None

    def measured(self) -> list[_Measure]:
        """Make the list that headroom reads, on first use."""
        self.measures = [
            (c.leg.remaining, c.line, c.ring, c.leg.row, c.leg.rule.limit_requests, c)
            for c in self.real
        ]
        return self.measures

    def taking(self) -> list[_Taking]:
        """Make the list that `judge` reads, on first use."""
        self.takes = [
            (taker(c.leg), c.line, c.ring, c.leg.row, c.leg.rule.limit_requests, c)
            for c in self.real
        ]
        return self.takes


def take_sliding_log(line: list[int], ring: list[int], rule: tuple[int, ...], t_ns: int) -> int:
    """Charge a sliding log as `charge_sliding_log`, and return what `remaining_sliding_log` would.

    One call, because every admitted request makes it for each rule. BASE is 0 in a list's ring.
    """
    place, limit = line[PLACE], rule[LIMIT]
    try:
        ring[place] = t_ns
    except IndexError:  # reason: free until a ring must grow
        grow_ring(ring, limit)
        ring[place] = t_ns
    place += 1
    if place == limit:
        place = 0
        line[FULL] = 1
    line[PLACE] = place
    gone_ns = t_ns - rule[SPAN]
    if line[FULL] and ring[place] > gone_ns:
        line[READY] = ring[place] + rule[SPAN]
    else:
        line[READY] = t_ns
    oldest = line[OLDEST]
    if ring[oldest - 1] > gone_ns:  # the look before this one does not help
        return remaining_sliding_log(line, ring, rule, t_ns)
    while ring[oldest] <= gone_ns:
        oldest += 1
        if oldest == limit:
            oldest = 0
    line[OLDEST] = oldest
    return oldest - place if oldest >= place else limit + oldest - place


def taker(leg: Leg) -> Take:
    """Return the function that charges a leg's counter and returns what remains."""
    return take_sliding_log if leg.algorithm == "sliding-log" else _taker(leg.charge, leg.remaining)


def _taker(charge: Charge, remaining: Remaining) -> Take:
    def take(line: list[int], ring: list[int], rule: tuple[int, ...], t_ns: int) -> int:
        make_charge(charge, line, ring, rule, t_ns)
        return remaining(line, ring, rule, t_ns)

    return take
