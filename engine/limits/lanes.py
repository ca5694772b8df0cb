"""Lanes: the counters that one subject meets, found once and laid out for the walks over them.

A *plan* is what all subjects of one class share, a *lane* what one subject meets. Each walk of the
limiter has a list of its own, with just what it reads, made when it is first walked.

What it is not: a decision; `engine.limits.limiter` walks.
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
        """Make what headroom walks, once it is asked for."""
        self.measures = [
            (c.leg.remaining, c.line, c.ring, c.leg.row, c.leg.rule.limit_requests, c)
            for c in self.real
        ]
        return self.measures

    def taking(self) -> list[_Taking]:
        """Make what a judgement walks, once it is asked for."""
        self.takes = [
            (taker(c.leg), c.line, c.ring, c.leg.row, c.leg.rule.limit_requests, c)
            for c in self.real
        ]
        return self.takes


def take_sliding_log(line: list[int], ring: list[int], rule: tuple[int, ...], t_ns: int) -> int:
    """Charge a sliding log as `charge_sliding_log`, and return what `remaining_sliding_log` would.

    In one call, because every admitted request makes it a rule. In a list's ring BASE is 0.
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
    """Return how a leg's counters are charged and looked at in one."""
    return take_sliding_log if leg.algorithm == "sliding-log" else _taker(leg.charge, leg.remaining)


def _taker(charge: Charge, remaining: Remaining) -> Take:
    def take(line: list[int], ring: list[int], rule: tuple[int, ...], t_ns: int) -> int:
        make_charge(charge, line, ring, rule, t_ns)
        return remaining(line, ring, rule, t_ns)

    return take
