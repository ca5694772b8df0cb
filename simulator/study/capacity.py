"""Capacity: the largest value of one parameter at which a condition is kept, and how surely.

The search has two steps. *Pilots*, a few runs of a value, look for the border by bisection; their
means decide nothing. Then two values on both sides of it are played under fresh seeds, the same
ones at both, until the place where a straight line between their metrics crosses the bound is known
to the tolerance, or the budget is spent: the ends of its 95 % interval are the answer. If it lies
outside of the two values, they move. Between values far apart no straight line is assumed: they are
judged themselves. So is the last value, with the error shared among the looks, where all values
keep the condition, or none.

So `keeps` is wrong, or `breaks` is, in at most 5 % of searches. It assumes that more of the
parameter does not help the condition, and that a metric is nearly straight within a few tolerances
of its border. Where nothing is drawn at random, a run tells all, and bisection finds the border.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, Protocol, TypeAlias

from engine.errors import InputError
from simulator.arguments import FUNCTION, TEXT, ArgumentRule, instance, is_number, optional
from simulator.intervals import (
    Interval,
    Share,
    Verdict,
    crossing_of,
    interval_of,
    judged,
    runs_for_verdict,
    sequential_error,
    spent,
)
from simulator.options import (
    BudgetOptions,
    CompiledOptions,
    ReplicationBudget,
    count_option,
    option,
    options,
    takes_options,
    typed,
)
from simulator.play.simulation import Fidelity, seed_in_force
from simulator.progress import keeps_what_is_known
from simulator.scenario import Condition, Scenario, parse_condition, value_of, with_value
from simulator.scenario.model import draws_at_random
from simulator.study.runs import FIRST, Replicator, next_count, replicator

Side: TypeAlias = Literal["keeps", "breaks"]

_NUMBER: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(.*)", re.DOTALL)
_SPAN_TOLERANCES: Final = 3
"""How far the two values are from the border at first, in tolerances."""
_MAX_SPAN: Final = 0.03
"""And at most, as a share of the value: further apart, a metric is not straight."""
_BESIDE: Final = 0.5
_NEAR: Final = 2
"""A crossing so far beside the two, or known so badly, in distances of the two, asks for others."""
_DOUBTFUL: Final = 40
"""Runs of two values after which a crossing that they do not tell asks for other values."""
_STILL: Final = 10
"""A border that no draw moves is found so many times more exactly: a few runs tell all."""
_MAX_MOVES: Final = 6
"""How often the two values may move, each time further apart."""
_DIGITS: Final = 6
_SEED: Final = "seed"
_BETWEEN: Final = ArgumentRule(
    'the lowest and the highest value, such as (10, 500) or ("1/1s", "90/1s")',
    lambda ends: (
        isinstance(ends, list | tuple)
        and len(ends) == 2
        and all(isinstance(end, str) or is_number(end) for end in ends)
    ),
)
_TOLERANCE: Final = ArgumentRule(
    "a share of the value, from 0 to 1", lambda share: is_number(share) and 0 <= share <= 1
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One value that was played, its metric's interval, and what that says of the condition.

    is_pilot: a few runs that look for the border; their verdict is not used. needed: about how
    many runs would decide it; None where it is decided, or where no number would do.
    """

    value: str
    interval: Interval
    verdict: Verdict
    is_pilot: bool = False
    needed: int | None = None


@dataclass(slots=True)
class Capacity:
    """What was found; between `keeps` and `breaks` nothing is decided.

    keeps: the largest value that is shown to keep the condition, None where none is. breaks: the
    smallest that is shown to break it, None where none is. estimate: about where the border is;
    None where it lies outside. border: its interval; None where a run tells all, or outside.
    trials: what was played, in order. runs: how many in all. unfinished: why the search ended
    early; empty where it did not. undecided: the sides where the pilots saw a border, and the
    budget decided no value.
    """

    path: str
    condition: str
    keeps: str | None = None
    breaks: str | None = None
    estimate: str | None = None
    border: Interval | None = None
    trials: list[Trial] = field(default_factory=list)
    runs: int = 0
    unfinished: str = ""
    undecided: tuple[Side, ...] = ()

    @property
    def is_decided(self) -> bool:
        """Whether a value was decided on each side of the border that the pilots saw."""
        return not self.unfinished and not self.undecided


Player: TypeAlias = Callable[[str, Sequence[int]], tuple[list[float], list[float]]]
"""Plays a value under some seeds; returns each run's metric, NaN for none, and its attempts."""


@options
class CapacityOptions(BudgetOptions, CompiledOptions):
    """What a search for a capacity can be told."""

    _: KW_ONLY
    vary: str = option(
        TEXT,
        "the place to vary, a path such as clients.browsers.count or clients[0].arrivals.rate",
        metavar="PATH",
    )
    between: tuple[str | float, str | float] = option(
        _BETWEEN,
        "the lowest and the highest value, such as 10 500, or 1/1s 90/1s",
        nargs=2,
        metavar=("A", "B"),
    )
    keep: str | Condition = option(
        instance("a condition such as 'refused_share <= 0.01'", str, Condition),
        "the condition to keep, such as 'refused_share <= 0.01'",
        metavar="CONDITION",
    )
    replications: int = count_option("runs per value in the first, coarse search (5)", default=5)
    tolerance: float = option(
        _TOLERANCE,
        "stop when the bracket is this narrow, relative to the value (0.01)",
        default=0.01,
        type=typed(_TOLERANCE),
        metavar="SHARE",
    )
    told: Callable[[Trial], None] | None = option(
        optional(FUNCTION),
        "hears each trial, and trials under way as they go on",
        default=None,
        flag=False,
    )
    progress: Callable[[str, int, int], None] | None = option(
        optional(FUNCTION),
        "hears, run by run, the value under way, how many of its next runs are done, of how many",
        default=None,
        flag=False,
    )


@takes_options(CapacityOptions)
def capacity(options: CapacityOptions) -> Capacity:
    """Find the largest value of `vary` that keeps a condition.

    {options}

    Where the parameter takes whole numbers, the border is looked for to neighbours.

    Raises `InputError` for a path, values or a condition that cannot be. Ctrl-C raises
    `simulator.progress.Interrupted`, a `KeyboardInterrupt` that has what is known so far.
    """
    vary, between, keep = options.vary, options.between, options.keep
    if vary.strip() == _SEED:
        raise InputError(
            "vary = 'seed' must be something else; every value is tried under the same seeds"
        )
    budget = options.budget(options.replications)
    base = options.played
    condition = parse_condition(keep) if isinstance(keep, str) else keep
    scale = Values(str(between[0]), str(between[1]), lambda text: _takes(base, vary, text))

    def changed(value: str) -> Scenario:
        return with_value(base, vary, value_of(value))

    for end in (scale.low, scale.high):
        changed(scale.text(end))
    with replicator() as runner:
        return Search(
            scenario_player(changed, condition, runner, options.fidelity, options.progress),
            scale,
            condition,
            path=vary,
            first=options.replications,
            budget=budget,
            seed=seed_in_force(base, options.seed),
            tolerance=options.tolerance,
            exact=lambda value: not draws_at_random(changed(value)),
            told=options.told,
        ).run()


class _OutOfTimeError(Exception):
    """The time of a search's budget is over."""


class Scale(Protocol):
    """The values of a parameter."""

    low: Fraction
    high: Fraction
    is_whole: bool

    def text(self, number: Fraction) -> str:
        """Return a value as a person would write it."""
        ...

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a value strictly between two, or None where they are near enough."""
        ...

    def rounded(self, number: float, *, up: bool) -> Fraction:
        """Return the nearest value below a number, or above it; the scale's end where none is."""
        ...

    def size(self, number: float) -> float:
        """Return what a tolerance is a share of at a value."""
        ...


class Values:
    """The values between two texts that differ in their first number only.

    They are whole numbers where a text with a decimal cannot be (`takes_decimal`).
    """

    def __init__(self, low: str, high: str, takes_decimal: Callable[[str], bool]) -> None:
        parts = _NUMBER.fullmatch(low.strip()), _NUMBER.fullmatch(high.strip())
        if parts[0] is None or parts[1] is None or parts[0][2] != parts[1][2]:
            raise InputError(
                f"between = {low} {high} must be two numbers, or texts that differ in their first "
                "number only, such as 10/1s 90/1s"
            )
        self.low, self.high = Fraction(parts[0][1]), Fraction(parts[1][1])
        self._rest = parts[0][2]
        if self.low >= self.high:
            raise InputError(f"between = {low} {high} must rise; put the lower value first")
        self.is_whole = all("." not in part[1] for part in parts if part) and not takes_decimal(
            f"{float(self.high) - 0.5:g}{self._rest}"
        )

    def text(self, number: Fraction) -> str:
        """Return a value as a person would write it."""
        is_whole = number.denominator == 1
        shown = str(int(number)) if is_whole else f"{float(number):.{_DIGITS}g}"
        return shown + self._rest

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a value strictly between two, or None where they are near enough."""
        if self.is_whole:
            middle = Fraction(math.floor((low + high) / 2))
            near = high - low <= 1 or (high - low) <= Fraction(tolerance) * low
            return None if near or middle in {low, high} else middle
        if high - low <= Fraction(tolerance) * max(low, high - low if low == 0 else low):
            return None
        # No more digits than the tolerance asks for, so that a person can write it again.
        for digits in range(1, _DIGITS + 1):
            middle = Fraction(f"{float((low + high) / 2):.{digits}g}")
            if 3 * low + high < 4 * middle < low + 3 * high:
                return middle
        middle = Fraction(f"{float((low + high) / 2):.{_DIGITS}g}")
        return None if middle in {low, high} else middle

    def rounded(self, number: float, *, up: bool) -> Fraction:
        """Return the nearest value below a number, or above it; the scale's end where none is."""
        if self.is_whole:
            value = rounded_to_whole(number, up=up)
        else:
            step = Fraction(10) ** (math.floor(math.log10(max(abs(number), 1e-9))) - 3)
            value = (math.floor(Fraction(number) / step) + (1 if up else 0)) * step
        return min(max(value, self.low), self.high)

    def size(self, number: float) -> float:
        """Return what a tolerance is a share of at a value: the value."""
        return abs(number)


def rounded_to_whole(number: float, *, up: bool) -> Fraction:
    """Return the largest whole number up to a number, or the smallest above it."""
    return Fraction(math.floor(number) + (1 if up else 0))


def _takes(scenario: Scenario, path: str, text: str) -> bool:
    """Return whether the scenario takes a value at a place."""
    try:
        with_value(scenario, path, value_of(text))
    except InputError:
        return False
    return True


def scenario_player(
    changed: Callable[[str], Scenario],
    condition: Condition,
    runner: Replicator,
    fidelity: Fidelity = "compiled",
    progress: Callable[[str, int, int], None] | None = None,
) -> Player:
    """Return what plays a scenario under values of what is searched; changed: with a value."""
    changed = lru_cache(1)(changed)  # the scenario that is played shares its template
    offered = dataclasses.replace(condition, metric="offered")
    asked = (condition,) if condition.metric == "refused_share" else (condition, offered)

    def play(value: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
        done = itertools.count(1)
        found = runner.play(
            changed(value),
            seeds,
            fidelity=fidelity,
            check=False,
            on_progress=progress and (lambda _: progress(value, next(done), len(seeds))),
            only=asked,
        )
        values = [run.line[condition.subject] for run in found]
        return values, [
            float(value.offered.sum()) if isinstance(value, Share) else run.line[offered.subject]
            for value, run in zip(values, found, strict=True)
        ]

    return play


@dataclass(slots=True)
class Search:
    """A search among the values of a scale with any player; the fields are as in `capacity`.

    first: runs of a pilot. exact: whether nothing is drawn at random under a value.
    """

    player: Player
    scale: Scale
    condition: Condition
    _: KW_ONLY
    path: str = ""
    first: int = 5
    budget: ReplicationBudget = field(default_factory=ReplicationBudget)
    seed: int = 0
    tolerance: float = 0.01
    exact: Callable[[str], bool] = lambda _: False
    told: Callable[[Trial], None] | None = None
    found: Capacity = field(init=False)
    _ends_s: float = field(default=math.inf, init=False)
    _trials: int = field(default=0, init=False)
    _pilots: dict[Fraction, _Pilot] = field(default_factory=dict, init=False)

    def run(self) -> Capacity:
        """Return what is found. Raises `Interrupted` with what is known where Ctrl-C stops it."""
        self.found = Capacity(self.path, str(self.condition))
        if self.budget.most_time_s is not None:
            self._ends_s = time.monotonic() + self.budget.most_time_s
        with keeps_what_is_known(self.found):
            try:
                self._find()
            except _OutOfTimeError:
                self.found.unfinished = f"{self.budget.most_time_s:g} s were over"
        return self.found

    def _find(self) -> None:
        """Look for the border, then decide on both sides of it."""
        scale = self.scale
        at_low, at_high = self._pilot(scale.low), self._pilot(scale.high)
        if at_high.holds:
            self._decide_end("keeps", scale.high)
        elif not at_low.holds:
            self._decide_end("breaks", scale.low)
        else:
            low, high = scale.low, scale.high
            while (middle := scale.middle(low, high, self.tolerance)) is not None:
                low, high = (middle, high) if self._pilot(middle).holds else (low, middle)
            self.found.estimate = scale.text(low)
            if not self._pilot(low).trial.is_pilot and not self._pilot(high).trial.is_pilot:
                self.found.keeps, self.found.breaks = scale.text(low), scale.text(high)
            else:
                self._find_crossing((low + high) / 2)

    # --- pilots ----------------------------------------------------------------------------------

    def _pilot(self, number: Fraction) -> _Pilot:
        """Play a few runs of a value, once."""
        known = self._pilots.get(number)
        if known is None:
            text = self.scale.text(number)
            exact = self.exact(text)
            values, offered = self._play(text, self.seed, 1 if exact else self.first)
            interval = interval_of(values, self.condition.metric, exact=exact)
            asked = sum(offered) > 0
            verdict = self._verdict(interval, asked=asked)
            needed = None
            if verdict == "not decided":
                needed = runs_for_verdict(values, self.condition)
            trial = Trial(text, interval, verdict, is_pilot=not exact, needed=needed)
            holds = self.condition.holds(interval.mean) if interval.runs else not asked
            known = self._pilots[number] = _Pilot(trial, holds, asked)
            self._report(trial)
        return known

    def _play(self, text: str, seed: int, count: int) -> tuple[list[float], list[float]]:
        if time.monotonic() >= self._ends_s:
            raise _OutOfTimeError
        found = self.player(text, range(seed, seed + count))
        self.found.runs += count
        return found

    def _report(self, trial: Trial) -> None:
        self.found.trials.append(trial)
        if self.told is not None:
            self.told(trial)

    def _verdict(self, interval: Interval, *, asked: bool) -> Verdict:
        """Return the verdict; no value breaks a condition, unless there was no attempt."""
        if not interval.runs and not asked:
            return "not decided"
        return judged(self.condition, interval)

    # --- the border ------------------------------------------------------------------------------

    def _find_crossing(self, near: Fraction) -> None:
        """Find where the metric crosses the bound, by runs of two values around it."""
        scale, found = self.scale, self.found
        size = scale.size(float(near))
        least = max(
            min(_SPAN_TOLERANCES * self.tolerance, _MAX_SPAN) * size,
            1.0 if scale.is_whole else 0.0,
        )
        span, is_again = least, False
        for _ in range(_MAX_MOVES):
            low = scale.rounded(float(near) - span, up=False)
            high = scale.rounded(float(near) + span, up=True)
            border = self._border(low, high, is_rough=span > least and not is_again)
            if border.low == border.high:
                self._find_still(low, high)
                return
            if border.method != "range":
                low_end, width = float(low), float(high - low)
                mean, *ends = (low_end + width * each for each in border[:3])
                found.border = border._replace(mean=mean, low=ends[0], high=ends[1])
                near = min(max(Fraction(mean), scale.low), scale.high)
            if not _is_near(border):
                span *= 2
            elif span > least and not is_again:  # the crossing of values far apart is rough
                span, is_again = least, True
            else:
                break
        if found.border is None:
            found.undecided = ("breaks", "keeps")
            return
        border = found.border
        found.estimate = scale.text(scale.rounded(border.mean, up=False))
        if span <= least:
            keeps, breaks = scale.rounded(border.low, up=False), scale.rounded(border.high, up=True)
            found.keeps = scale.text(keeps) if keeps <= border.low else None
            found.breaks = scale.text(breaks) if breaks >= border.high else None
        else:  # between values far apart a metric is no straight line: what they show themselves
            for trial in found.trials[-2:]:
                self._take(trial)
        found.undecided += () if found.breaks else ("breaks",)
        found.undecided += () if found.keeps else ("keeps",)

    def _find_still(self, low: Fraction, high: Fraction) -> None:
        """Find the border of a metric that no draw changes, which may jump: by bisection."""
        below, above = (self._pilot(number).holds for number in (low, high))
        low, high = low if below else self.scale.low, high if not above else self.scale.high
        tolerance = self.tolerance / _STILL
        while (middle := self.scale.middle(low, high, tolerance)) is not None:
            low, high = (middle, high) if self._pilot(middle).holds else (low, middle)
        self.found.keeps, self.found.breaks = self.scale.text(low), self.scale.text(high)
        self.found.estimate = self.found.keeps

    def _border(self, low: Fraction, high: Fraction, *, is_rough: bool) -> Interval:
        """Play two values until the crossing between them is known to the tolerance.

        is_rough: until it is known well enough to put the values around it.
        """
        most, metric = self.budget.most_replications, self.condition.metric
        seed = self.seed + self.first + self._trials * most  # of runs that nothing was chosen by
        self._trials += 1
        at_low: list[float] = []
        at_high: list[float] = []
        count = min(most, max(self.first, FIRST))
        while True:
            for values, number in ((at_low, low), (at_high, high)):
                more = range(seed + len(values), seed + count)
                values.extend(self._play(self.scale.text(number), more.start, len(more))[0])
            differing = sum(a != b for a, b in zip(at_low, at_high, strict=True))
            error = sequential_error(differing, count)
            border = crossing_of(at_low, at_high, self.condition.bound, metric, error=error)
            if _is_far(border) or (not _is_near(border) and count >= _DOUBTFUL):
                break
            needed = 2 * count
            if _is_near(border):
                needed = self._needed(low, high, border, is_rough=is_rough)
            if needed <= count or count >= most:
                break
            count = next_count(count, needed, most)
        for values, number in ((at_low, low), (at_high, high)):
            interval = interval_of(values, metric, error=error)
            verdict = judged(self.condition, interval)
            self._report(Trial(self.scale.text(number), interval, verdict))
        return border

    def _needed(self, low: Fraction, high: Fraction, border: Interval, *, is_rough: bool) -> int:
        """Return about how many runs of two values tell the border to the tolerance."""
        width = float(high - low)
        at, *ends = (float(low) + width * each for each in border[:3])
        if self.scale.is_whole and math.floor(ends[0]) == math.floor(ends[1]):
            return border.runs
        aim = self.tolerance * self.scale.size(at) / 2
        if self.scale.is_whole:  # to neighbours, unless the border is at one of them
            aim = max(aim, min(at % 1, 1 - at % 1))
        if is_rough:
            aim = max(aim, width / 4)
        return math.ceil(border.runs * (border.half_width * width / aim) ** 2)

    def _decide_end(self, side: Side, number: Fraction) -> None:
        """Play the last value of the scale until it is decided, or the budget is spent."""
        trial = self._trial(number)
        if trial.verdict != _WANTED[side]:
            self.found.undecided = (side,)
        else:
            self._take(trial)

    def _take(self, trial: Trial) -> None:
        """Take a value for an end that its own runs decide."""
        if trial.verdict == "kept":
            self.found.keeps = trial.value
        elif trial.verdict == "broken":
            self.found.breaks = trial.value

    def _trial(self, number: Fraction) -> Trial:
        pilot = self._pilot(number)
        if not pilot.trial.is_pilot:
            return pilot.trial  # nothing is drawn at random: one run tells all
        text, most = self.scale.text(number), self.budget.most_replications
        seed = self.seed + self.first  # of runs that nothing was chosen by
        values: list[float] = []
        offered = 0.0
        count = min(most, max(self.first, FIRST))
        for look in itertools.count(1):
            more, asked = self._play(text, seed + len(values), count - len(values))
            values += more
            offered += sum(asked)
            error = spent(look)
            interval = interval_of(values, self.condition.metric, error=error)
            verdict = self._verdict(interval, asked=offered > 0)
            needed = None
            if verdict == "not decided":
                needed = runs_for_verdict(values, self.condition, error=error)
            trial = Trial(text, interval, verdict, needed=needed)
            if verdict != "not decided" or count >= most:
                break
            if self.told is not None:
                self.told(trial)
            count = min(most, 2 * count)
        self._report(trial)
        return trial


def _is_beside(border: Interval) -> bool:
    """Whether a crossing, in distances of two values from the low one, is well beside them."""
    return not -_BESIDE <= border.mean <= 1 + _BESIDE


def _is_near(border: Interval) -> bool:
    """Whether a crossing can be told by the two values."""
    return not _is_beside(border) and border.half_width <= _NEAR


def _is_far(border: Interval) -> bool:
    """Whether a crossing is surely elsewhere, or nothing is known of it."""
    return border.method == "range" or (_is_beside(border) and border.half_width < 1)


_WANTED: Final[dict[Side, Verdict]] = {"keeps": "kept", "breaks": "broken"}


@dataclass(frozen=True, slots=True)
class _Pilot:
    trial: Trial
    holds: bool
    asked: bool
