"""Capacity: the largest value of one parameter at which a condition still holds, and how surely.

A value *keeps* the condition when the whole confidence interval of the metric over replications
does, *breaks* it when none of the interval does, and is *open* in between; an open value gets more
replications before it is given up. Every value is tried under the same seeds. Bisection narrows
from both sides: up to `keeps` it surely holds, from `breaks` on it surely does not.

It assumes that more of the parameter does not help the condition; where a value is found to break
below one that keeps, it says so by leaving the interval wide, never by hiding it.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final, Literal, TypeAlias

from engine.errors import InputError
from simulator.arguments import (
    FUNCTION,
    TEXT,
    Rule,
    instance,
    is_number,
    one_of,
    optional,
    takes,
    whole,
)
from simulator.backends import FIDELITIES, SEED, Fidelity, seed_in_force
from simulator.replicating import Interval, Replicator, interval_of, replicator
from simulator.results.measuring import subject_of
from simulator.running import SCENARIO, ScenarioLike, resolve
from simulator.scenario import Condition, Scenario, Threshold, parse_condition, value_of, with_value

__all__ = ["Capacity", "Trial", "capacity"]

Verdict: TypeAlias = Literal["keeps", "breaks", "open"]

_NUMBER: Final = re.compile(r"([0-9]+(?:\.[0-9]+)?)(.*)", re.DOTALL)
_MOST_TRIALS: Final = 60
_MOST_RUNS: Final = 20
_SEED: Final = "seed"
_BETWEEN: Final = Rule(
    'the lowest and the highest value, such as (10, 500) or ("1/1s", "90/1s")',
    lambda ends: (
        isinstance(ends, list | tuple)
        and len(ends) == 2
        and all(isinstance(end, str) or is_number(end) for end in ends)
    ),
)
_TOLERANCE: Final = Rule(
    "a share of the value, from 0 to 1", lambda share: is_number(share) and 0 <= share <= 1
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One value that was tried: the metric's interval, and what it says of the condition."""

    value: str
    interval: Interval
    verdict: Verdict


@dataclass(slots=True)
class Capacity:
    """What was found; between `keeps` and `breaks` nothing is sure.

    keeps: the largest value that surely keeps the condition, None where none does. breaks: the
    smallest that surely breaks it, None where none does. trials: what was tried, in order.
    """

    path: str
    condition: str
    keeps: str | None = None
    breaks: str | None = None
    trials: list[Trial] = field(default_factory=list)


@takes(
    scenario=SCENARIO,
    vary=TEXT,
    between=_BETWEEN,
    keep=instance("a condition such as 'refused_share <= 0.01'", str, Condition),
    fidelity=one_of(FIDELITIES),
    replications=whole(1),
    most_replications=optional(whole(1)),
    seed=SEED,
    tolerance=_TOLERANCE,
    told=optional(FUNCTION),
)
def capacity(  # noqa: PLR0913 # reason: what a command has as flags
    scenario: ScenarioLike,
    *,
    vary: str,
    between: tuple[str | float, str | float],
    keep: str | Condition,
    fidelity: Fidelity = "limits",
    replications: int = 5,
    most_replications: int | None = None,
    seed: int | None = None,
    tolerance: float = 0.01,
    told: Callable[[Trial], None] | None = None,
) -> Capacity:
    """Find the largest value of `vary` that keeps a condition, by bisection over replications.

    vary: a path as in `with_value` (`clients.browsers.count`, `clients[0].arrivals.rate`).
    between: the lowest and the highest value: numbers, or texts that differ in their first number
        only (`"10/1s"`, `"90/1s"`). keep: such as `"refused_share <= 0.01"`.
    replications, most_replications: runs a value at first, and at most; 20 unless given, or as
        many as at first where those are more. tolerance: bisection ends at this share of the value;
        whole numbers end at neighbours. told: hears each trial.

    Raises `InputError` for a path, values or a condition that cannot be.
    """
    if vary.strip() == _SEED:
        raise InputError(
            "vary = 'seed' must be something else; every value is tried under the same seeds"
        )
    most = max(_MOST_RUNS, replications) if most_replications is None else most_replications
    if most < replications:
        raise InputError(
            f"most_replications = {most} must be at least replications, {replications}; take more"
        )
    base = resolve(scenario)
    condition = parse_condition(keep) if isinstance(keep, str) else keep
    scale = _Scale(str(between[0]), str(between[1]))
    found = Capacity(vary, str(condition))
    with replicator() as player:
        search = _Search(
            base, vary, condition, scale, player, fidelity,
            (replications, most), seed_in_force(base, seed),
        )  # fmt: skip

        def tried(number: Fraction) -> Verdict:
            trial = search.trial(number)
            found.trials.append(trial)
            if told is not None:
                told(trial)
            return trial.verdict

        keeps, breaks = _bisect(scale, tried, tolerance)
    found.keeps = None if keeps is None else scale.text(keeps)
    found.breaks = None if breaks is None else scale.text(breaks)
    return found


def _bisect(
    scale: _Scale, tried: Callable[[Fraction], Verdict], tolerance: float
) -> tuple[Fraction | None, Fraction | None]:
    """Return the largest value that keeps and the smallest that breaks."""
    at_low, at_high = tried(scale.low), tried(scale.high)
    if at_low == "breaks":
        return None, scale.low
    keeps = scale.low if at_low == "keeps" else None
    if at_high == "keeps":
        return scale.high, None
    breaks = scale.high if at_high == "breaks" else None
    known: dict[Fraction, Verdict] = {scale.low: at_low, scale.high: at_high}
    for side in ("keeps", "breaks"):
        low, high = scale.low, scale.high
        while len(known) < _MOST_TRIALS:
            low = max((v for v, verdict in known.items() if _left(verdict, side)), default=low)
            high = min(
                (v for v, verdict in known.items() if not _left(verdict, side) and v > low),
                default=high,
            )
            middle = scale.middle(low, high, tolerance)
            if middle is None:
                break
            known[middle] = tried(middle)
    kept = [v for v, verdict in known.items() if verdict == "keeps"]
    broken = [v for v, verdict in known.items() if verdict == "breaks"]
    keeps = max((v for v in kept if all(v < b for b in broken)), default=keeps)
    breaks = min((v for v in broken if keeps is None or v > keeps), default=breaks)
    return keeps, breaks


def _left(verdict: Verdict, side: str) -> bool:
    """Whether a value lies left of the border that is looked for."""
    return verdict == "keeps" if side == "keeps" else verdict != "breaks"


class _Scale:
    """The values between two texts that differ in their first number only."""

    def __init__(self, low: str, high: str) -> None:
        parts = _NUMBER.fullmatch(low.strip()), _NUMBER.fullmatch(high.strip())
        if parts[0] is None or parts[1] is None or parts[0][2] != parts[1][2]:
            raise InputError(
                f"between = {low} {high} must be two numbers, or texts that differ in their first "
                "number only, such as 10/1s 90/1s"
            )
        self.low, self.high = Fraction(parts[0][1]), Fraction(parts[1][1])
        self._rest = parts[0][2]
        self._whole = "." not in parts[0][1] and "." not in parts[1][1]
        if self.low >= self.high:
            raise InputError(f"between = {low} {high} must rise; put the lower value first")

    def text(self, number: Fraction) -> str:
        """Return a value as a person would write it."""
        shown = str(int(number)) if self._whole else f"{float(number):.6g}"
        return shown + self._rest

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a value strictly between two, or None where they are near enough."""
        if self._whole:
            middle = Fraction(math.floor((low + high) / 2))
            near = high - low <= 1 or (high - low) <= Fraction(tolerance) * low
            return None if near or middle in {low, high} else middle
        if high - low <= Fraction(tolerance) * max(low, high - low if low == 0 else low):
            return None
        middle = Fraction(f"{float((low + high) / 2):.6g}")
        return None if middle in {low, high} else middle


class _Search:
    """Tries values, each under the same seeds."""

    def __init__(  # reason: what a search is made of
        self,
        scenario: Scenario,
        path: str,
        condition: Condition,
        scale: _Scale,
        player: Replicator,
        fidelity: Fidelity,
        counts: tuple[int, int],
        seed: int,
    ) -> None:
        self._scenario = scenario
        self._path = path
        self._condition = condition
        self._scale = scale
        self._player = player
        self._fidelity = fidelity
        self._counts = counts
        self._seed = seed
        self._asked = dataclasses.replace(condition, metric="offered")
        self._name, self._offered = subject_of(condition), subject_of(self._asked)

    def trial(self, number: Fraction) -> Trial:
        """Play a value until its verdict is sure, or the replications are used up."""
        text = self._scale.text(number)
        changed = with_value(self._scenario, self._path, value_of(text))
        judged = _with_thresholds(changed, self._condition, self._asked)
        first, most = self._counts
        values: list[float] = []
        offered: list[float] = []
        count = first
        while True:
            seeds = range(self._seed + len(values), self._seed + count)
            found = self._player.play(judged, list(seeds), fidelity=self._fidelity, check=False)
            values += [replication.line[self._name] for replication in found]
            offered += [replication.line[self._offered] for replication in found]
            interval = interval_of(values)
            verdict = _verdict(self._condition, interval, asked=sum(offered) > 0)
            if verdict != "open" or count >= most:
                return Trial(text, interval, verdict)
            count = min(most, 2 * count)


def _with_thresholds(scenario: Scenario, *conditions: Condition) -> Scenario:
    thresholds = tuple(Threshold(that=condition) for condition in conditions)
    return dataclasses.replace(scenario, thresholds=thresholds)


def _verdict(condition: Condition, interval: Interval, *, asked: bool) -> Verdict:
    """Return whether a whole interval keeps a condition, or breaks it, or neither.

    A single value counts as sure of itself. No value at all breaks, unless nobody asked: then there
    is nothing to say.
    """
    if interval.values == 0:
        return "breaks" if asked else "open"
    ends = [interval.mean] if interval.values == 1 else [interval.low, interval.high]
    held = sum(condition.holds(end) for end in ends)
    if held == len(ends):
        return "keeps"
    return "breaks" if held == 0 else "open"
