"""Capacity: the largest value of one parameter at which a condition is met, and how surely.

The search has two steps. *Pilots*, a few runs of a value, look for the border by bisection; they
decide nothing. Then two values on both sides of it are played under fresh seeds, the same ones at
both, and the place where a straight line between their metrics crosses the bound is the border; the
ends of its 95 % interval are the answer. It ends when the interval is as narrow as the tolerance or
the budget of runs is spent: the answer then says how sharp it is, and how many runs would do. If
the border lies outside of the two values, they move. Between values that had to be far apart no
straight line is assumed: they are judged themselves. So is the last value, with the error shared
among the looks, where all values keep the condition, or none.

So `keeps` is wrong, or `breaks` is, in at most 5 % of searches. It assumes that more of the
parameter does not help the condition, and that a metric is nearly straight within a few percent of
its border. Where no draw moves a metric, its pilots tell all, and bisection finds the border.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import lru_cache
from typing import Final, Literal, TypeAlias

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
from simulator.study.scales import Scale, Values

Side: TypeAlias = Literal["keeps", "breaks"]

MOST_RUNS: Final = 200
"""Default limit of the runs of a search."""
_SPAN: Final = 0.03
"""How far the two values are from the border, as a share of it: a metric is nearly straight."""
_MAX_BESIDE: Final = 1
"""A border so far beside the two values, in distances of them, asks for others around it."""
_MAX_UNSURE: Final = 3
"""A border that two values know so badly, in distances of them, asks for values further apart."""
_WIDER: Final = 3
"""How many times further apart they then are."""
_STILL: Final = 10
"""A border that no draw moves is found so many times more exactly: a few runs tell all."""
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

    is_pilot: a few runs that look for the border; their verdict is not used.
    """

    value: str
    interval: Interval
    verdict: Verdict
    is_pilot: bool = False


@dataclass(slots=True)
class Capacity:
    """What `capacity` found; values between `keeps` and `breaks` are not decided.

    keeps: the largest value that is shown to keep the condition, None where none is. breaks: the
    smallest that is shown to break it, None where none is. estimate: about where the border is;
    None where it lies outside. place: the same on the scale. border: its interval; None where the
    pilots tell all, where nothing else tells it, and where it lies outside.
    trials: what was played, in order. runs: how many in all. needed: about how many would reach the
    tolerance; None where these did, or nobody knows. unfinished: why the search ended early; empty
    where it did not. undecided: the sides where the pilots saw a border, and no value is decided.
    """

    path: str
    condition: str
    keeps: str | None = None
    breaks: str | None = None
    estimate: str | None = None
    place: float | None = None
    border: Interval | None = None
    trials: list[Trial] = field(default_factory=list)
    runs: int = 0
    needed: int | None = None
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
        "field of the scenario to vary, such as clients.browsers.count or clients[0].arrivals.rate",
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
        "the condition to meet, such as 'refused_share <= 0.01'",
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
    """Find the largest value of `vary` that meets a condition.

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
    if options.most_replications is None:
        most = max(MOST_RUNS, 4 * options.replications)
        budget = dataclasses.replace(budget, most_replications=most)
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


class _BudgetSpentError(Exception):
    """The time of a search's budget is over, or its runs are."""


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

    first: runs of a pilot. budget: of all values. exact: whether nothing is drawn at random under a
    value.
    """

    player: Player
    scale: Scale
    condition: Condition
    _: KW_ONLY
    path: str = ""
    first: int = 5
    budget: ReplicationBudget = field(default_factory=lambda: ReplicationBudget(MOST_RUNS))
    seed: int = 0
    tolerance: float = 0.01
    exact: Callable[[str], bool] = lambda _: False
    told: Callable[[Trial], None] | None = None
    found: Capacity = field(init=False)
    _ends_s: float = field(default=math.inf, init=False)
    _fresh: int = field(init=False)
    _pilots: dict[Fraction, _Pilot] = field(default_factory=dict, init=False)

    def run(self) -> Capacity:
        """Return what is found. Raises `Interrupted` with what is known where Ctrl-C stops it."""
        self.found = Capacity(self.path, str(self.condition))
        self._fresh = self.seed + self.first
        if self.budget.most_time_s is not None:
            self._ends_s = time.monotonic() + self.budget.most_time_s
        with keeps_what_is_known(self.found):
            try:
                self._find()
            except _BudgetSpentError as spent_error:
                self.found.unfinished = str(spent_error)
        return self.found

    def _find(self) -> None:
        """Look for the border by pilots, then find it, or decide the last value."""
        low, high = self.scale.low, self.scale.high
        at_low, at_high = self._pilot(low), self._pilot(high)
        if at_high.holds:
            self._decide_end("keeps", high)
        elif not at_low.holds:
            self._decide_end("breaks", low)
        else:
            self._bisect(low, high)

    def _bisect(self, low: Fraction, high: Fraction, *, is_still: bool = False) -> None:
        """Look for the border by pilots. is_still: no draw moves it, so that they tell all."""
        scale = self.scale
        while True:
            self.found.estimate, self.found.place = scale.text(low), float(low)
            are_still = is_still or (self._pilot(low).is_still and self._pilot(high).is_still)
            tolerance = self.tolerance / _STILL if are_still else max(self.tolerance, 2 * _SPAN)
            if (middle := scale.middle(low, high, tolerance)) is None:
                break
            low, high = (middle, high) if self._pilot(middle).holds else (low, middle)
        if are_still:
            self.found.keeps, self.found.breaks = scale.text(low), scale.text(high)
        else:
            self._find_crossing((low + high) / 2)

    # --- runs ------------------------------------------------------------------------------------

    def _pilot(self, number: Fraction) -> _Pilot:
        """Play a few runs of a value, once."""
        pilot = self._pilots.get(number)
        if pilot is None:
            text = self.scale.text(number)
            exact = self.exact(text)
            values, offered = self._play(text, self.seed, 1 if exact else self.first)
            interval = interval_of(values, self.condition.metric, exact=exact)
            sends = sum(offered) > 0
            trial = Trial(text, interval, self._verdict(interval, sends=sends), is_pilot=not exact)
            holds = self.condition.holds(interval.mean) if interval.runs else not sends
            is_still = exact or (len(values) > 1 and len(set(values)) == 1)
            pilot = self._pilots[number] = _Pilot(trial, holds, is_still)
            self._report(trial)
        return pilot

    def _play(self, text: str, seed: int, count: int) -> tuple[list[float], list[float]]:
        if time.monotonic() >= self._ends_s:
            raise _BudgetSpentError(f"{self.budget.most_time_s:g} s were over")
        if count > self._affordable(1):
            raise _BudgetSpentError(f"{self.budget.most_replications} runs were too few")
        played = self.player(text, range(seed, seed + count))
        self.found.runs += count
        return played

    def _affordable(self, values: int) -> int:
        """Return how many more runs each of some values may have."""
        return max(0, self.budget.most_replications - self.found.runs) // values

    def _report(self, trial: Trial) -> None:
        self.found.trials.append(trial)
        if self.told is not None:
            self.told(trial)

    def _verdict(self, interval: Interval, *, sends: bool) -> Verdict:
        """Return the verdict; no value breaks a condition, unless there was no attempt."""
        if not interval.runs and not sends:
            return "not decided"
        return judged(self.condition, interval)

    # --- the border ------------------------------------------------------------------------------

    def _find_crossing(self, near: Fraction) -> None:
        """Find where the metric crosses the bound, by runs of two values around it."""
        scale, found = self.scale, self.found
        straight = max(_SPAN * scale.size(float(near)), 1.0 if scale.is_whole else 0.0)
        low, high, border, trials = self._around(float(near), straight)
        if border.low == border.high:  # no draw moves the metric, which may jump
            is_between = self._pilot(low).holds > self._pilot(high).holds
            ends = (low, high) if is_between else (scale.low, scale.high)
            self._bisect(*ends, is_still=True)
            return
        for trial in trials:
            self._report(trial)
            self._take(trial)
        if math.isfinite(border.half_width):
            found.border, found.place = border, border.mean
            found.estimate = scale.text(scale.rounded(border.mean, up=False))
            if (pairs := self._needed(border)) > border.runs:
                found.needed = found.runs + 2 * (pairs - border.runs)
            if high - low < 2 * _WIDER * straight:  # else a metric is no straight line
                keeps = scale.rounded(border.low, up=False)
                breaks = scale.rounded(border.high, up=True)
                found.keeps = scale.text(keeps) if keeps <= border.low else None
                found.breaks = scale.text(breaks) if breaks >= border.high else None
        sides: tuple[tuple[Side, str | None], ...]
        sides = ("breaks", found.breaks), ("keeps", found.keeps)
        found.undecided = tuple(side for side, value in sides if value is None)

    def _around(
        self, centre: float, straight: float
    ) -> tuple[Fraction, Fraction, Interval, list[Trial]]:
        """Play two values around the border, which move to it; return the last ones.

        straight: how far from the border a metric is nearly a straight line. Values further apart
        only show where to put the next ones, the last.
        """
        scale, size, span, is_last = self.scale, self.scale.size(centre), straight, False
        while True:
            low = scale.rounded(centre - span, up=False)
            high = scale.rounded(centre + span, up=True)
            border, trials = self._border(low, high, is_rough=span > straight, is_last=is_last)
            is_here = is_last or _is_here(border, low, high)
            if self._affordable(2) < FIRST or border.low == border.high:
                break
            if not is_last and not _is_known(border, low, high):
                span *= _WIDER
                continue
            is_last |= span > straight
            closer = max(2 * border.half_width, self.tolerance * size / 2)
            if span > straight or not is_here:
                span = min(span, straight)
            elif closer < span / 2:  # the metric may bend between the two
                span = closer
            else:
                break
            centre = min(max(border.mean, float(scale.low)), float(scale.high))
        return low, high, border if is_here else border._replace(low=-math.inf), trials

    def _border(
        self, low: Fraction, high: Fraction, *, is_rough: bool, is_last: bool
    ) -> tuple[Interval, list[Trial]]:
        """Play two values until a line through them crosses the bound, as surely as is asked.

        Or until the border is elsewhere, or the budget is spent. Return its interval, and trials.
        is_rough: look once, to put the values around the border. is_last: they do not move again.
        """
        metric, width = self.condition.metric, float(high - low)
        values: tuple[list[float], list[float]] = [], []
        border, error, count = (
            Interval(math.nan, -math.inf, math.inf, 0),
            0.05,
            2 * FIRST if is_rough else FIRST,
        )
        while (more := min(count - len(values[0]), self._affordable(2))) > 0:
            for known, number in zip(values, (low, high), strict=True):
                known.extend(self._play(self.scale.text(number), self._fresh, more)[0])
            self._fresh += more  # runs that nothing was chosen by
            differing = sum(a != b for a, b in zip(*values, strict=True))
            error = sequential_error(differing, len(values[0]))
            border = crossing_of(*values, self.condition.bound, metric, error=error)
            mean, *ends = (float(low) + width * place for place in border[:3])
            border = border._replace(mean=mean, low=ends[0], high=ends[1])
            if is_rough or not (is_last or _is_here(border, low, high)):
                break
            if self._needed(border) <= border.runs:
                break
            count = next_count(border.runs, self._needed(border), self.budget.most_replications)
        trials = []
        for known, number in zip(values, (low, high), strict=True) if border.runs else ():
            interval = interval_of(known, metric, error=error)
            verdict = judged(self.condition, interval)
            trials.append(Trial(self.scale.text(number), interval, verdict))
        return border, trials

    def _needed(self, border: Interval) -> int:
        """Return about how many runs of two values tell the border to the tolerance."""
        if math.isinf(border.half_width):
            return 2 * border.runs
        if self.scale.is_whole and math.floor(border.low) == math.floor(border.high):
            return border.runs
        aim = self.tolerance * self.scale.size(border.mean) / 2
        if self.scale.is_whole:  # to neighbours, unless the border is at one of them
            aim = max(aim, min(border.mean % 1, 1 - border.mean % 1))
        if not aim:
            return 2 * border.runs
        return math.ceil(border.runs * (border.half_width / aim) ** 2)

    # --- the last value --------------------------------------------------------------------------

    def _decide_end(self, side: Side, number: Fraction) -> None:
        """Play the last value of the scale until it is decided, or the budget is spent."""
        trial = self._trial(number)
        if trial.verdict != _WANTED[side]:
            self.found.undecided = (side,)
        else:
            self._take(trial)

    def _take(self, trial: Trial) -> None:
        """Take a value for an end that its own runs decide."""
        if trial.verdict == "met":
            self.found.keeps = trial.value
        elif trial.verdict == "not met":
            self.found.breaks = trial.value

    def _trial(self, number: Fraction) -> Trial:
        trial = self._pilot(number).trial
        if not trial.is_pilot:
            return trial  # nothing is drawn at random: one run tells all
        text, condition, values = self.scale.text(number), self.condition, list[float]()
        offered, count = 0.0, FIRST
        for look in itertools.count(1):
            more = min(count - len(values), self._affordable(1))
            if more <= 0:
                break
            played, attempts = self._play(text, self._fresh, more)
            self._fresh += more  # runs that nothing was chosen by
            values += played
            offered += sum(attempts)
            interval = interval_of(values, condition.metric, error=spent(look))
            trial = Trial(text, interval, self._verdict(interval, sends=offered > 0))
            if trial.verdict != "not decided":
                self.found.needed = None
                break
            needed = runs_for_verdict(values, condition, error=spent(look))
            self.found.needed = needed and self.found.runs + needed - len(values)
            if self.told is not None:
                self.told(trial)
            count *= 2
        self._report(trial)
        return trial


def _is_known(border: Interval, low: Fraction, high: Fraction) -> bool:
    """Whether two values tell where the border is."""
    return border.half_width <= _MAX_UNSURE * float(high - low)


def _is_here(border: Interval, low: Fraction, high: Fraction) -> bool:
    """Whether two values tell where the border is, and that it is near them."""
    beside = _MAX_BESIDE * (high - low)
    return _is_known(border, low, high) and low - beside <= border.mean <= high + beside


_WANTED: Final[dict[Side, Verdict]] = {"keeps": "met", "breaks": "not met"}


@dataclass(frozen=True, slots=True)
class _Pilot:
    """A value's few runs. is_still: no draw moves the metric, so they tell all."""

    trial: Trial
    holds: bool
    is_still: bool
