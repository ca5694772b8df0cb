"""Capacity: the largest value of one parameter at which a condition is met, and how surely.

The search has two steps. A *coarse search* brackets the border by bisection, with a few runs of
each value; it decides nothing. Then values on both sides of the border are run, each run under a
seed of its own, and a line through all runs near the border (`intervals.crossing_of`) tells where
the metric crosses the bound; the ends of the border's 95 % interval are the answer. The search ends
when the interval is as narrow as the tolerance or the budget of runs is spent: the answer then says
how sharp it is, and how many runs would do. Seeds are not shared between values: two runs under one
seed are refused much alike, so the second one would tell little more of the border. If all values
meet the condition, or none, the last value is run until its own interval decides it.

So `keeps` is wrong, or `breaks` is, in at most 5 % of searches. It assumes that more of the
parameter does not help the condition, and that near the border a metric is nearly a power of the
value. Where all runs of a value contradict the line, as where a limit is suddenly enough, only
values are named that their own runs decide. Where no draw moves a metric, the coarse search tells
all.

How sharp 200 runs are is up to the scenario. Runs at the border tell most, so no choice of values
beats σ / √runs, where σ is the standard deviation of the border by a single run: 24 % for the
shoppers of `checkout` and 1 % refused, so 200 runs cannot know it better than to ± 3.3 %. Longer
runs would not answer the question that was put, as counters then start empty less often: with the
script of `shared-office` and 50 % refused, runs of 280 min have their border 0.36 % higher than
those of 10 min (10.596 and 10.558 per 10 s, ± 0.01). So the scenario's duration is never changed.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from typing import Final, Literal, TypeAlias

from engine.errors import InputError
from engine.files import Rate
from engine.limits import Rule
from simulator.arguments import (
    FUNCTION,
    TEXT,
    ArgumentRule,
    count_option,
    instance,
    is_number,
    option,
    optional,
    options,
    takes_options,
    typed,
)
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
from simulator.options import BudgetOptions, CompiledOptions, ReplicationBudget
from simulator.play.simulation import Fidelity, seed_in_force
from simulator.progress import keeps_what_is_known
from simulator.rows.result import kept_for
from simulator.scenario import Condition, Scenario, parse_condition, value_of, with_value
from simulator.scenario.model import draws_at_random
from simulator.study.runs import FIRST, Replicator, line_of_conditions, next_count, replicator

Side: TypeAlias = Literal["keeps", "breaks"]

MOST_RUNS: Final = 200
"""Default limit of the runs of a search."""
_SPAN: Final = 0.1
"""How far the first two values are from the border, as a share of it."""
_NARROWEST: Final = 0.03
_WIDEST: Final = 0.5
"""How far later ones are at least and at most."""
_WIDER: Final = 3
"""They are so many times further away than the border may be off, so that its slope is known."""
_WINDOW: Final = 2
"""Runs that are further from the border, in spans, do not make the line, which may bend."""
_ENOUGH_RUNS: Final = 5
"""Fewer runs of a value may all miss the bound, or meet it, by chance."""
_ENOUGH_EVENTS: Final = 8
"""Where so many events were to be expected at the bound, their absence is no chance."""
_MAX_UNSURE: Final = 1.0
"""A border that may be off by such a factor, as a logarithm, is unknown."""
_ZERO: Final = 0.5
"""What 0 counts as among whole numbers: as far below 1 as 1 is below 2."""
_UNKNOWN: Final = Interval(math.nan, -math.inf, math.inf, 0)
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
_NUMBER: Final = re.compile(r"([0-9]{1,18}(?:\.[0-9]{1,18})?)(.*)", re.DOTALL)
_DIGITS: Final = 6
_MOST_TIMES: Final = 64
"""Limits are raised to at most this many times their value."""
_TOLERANCE: Final = ArgumentRule(
    "a share of the value, from 0 to 1", lambda share: is_number(share) and 0 <= share <= 1
)


@dataclass(frozen=True, slots=True)
class Trial:
    """One value that was played, its metric's interval, and what that says of the condition.

    is_coarse: a few runs of the coarse search; their verdict is not used.
    """

    value: str
    interval: Interval
    verdict: Verdict
    is_coarse: bool = False


@dataclass(slots=True)
class Capacity:
    """What `capacity` found; values between `keeps` and `breaks` are not decided.

    keeps: the largest value that is shown to keep the condition, None where none is. breaks: the
    smallest that is shown to break it, None where none is. estimate: about where the border is;
    None where it lies outside. place: the same on the scale. border: its interval; None where the
    coarse search tells all, where nothing else tells it, and where it lies outside.
    trials: what was played, in order. runs: how many in all. needed: about how many would reach the
    tolerance; None where these did, or nobody knows. unfinished: why the search ended early; empty
    where it did not. undecided: the sides where there is a border, and no value is decided.
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
        """Whether a value was decided on each side of the border."""
        return not self.unfinished and not self.undecided


Player: TypeAlias = Callable[[str, Sequence[int]], tuple[list[float], list[float]]]
"""Plays a value under some seeds; returns each run's metric, NaN for none, and its attempts."""


@options
class CapacityOptions(BudgetOptions, CompiledOptions):
    """The options of a search for a capacity."""

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
    replications: int = count_option(
        "runs per value in the coarse search that comes first (5)", default=5
    )
    tolerance: float = option(
        _TOLERANCE,
        "stop when the bracket is this narrow, relative to the value (0.01)",
        default=0.01,
        type=typed(_TOLERANCE),
        metavar="SHARE",
    )
    on_trial: Callable[[Trial], None] | None = option(
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
            on_trial=options.on_trial,
        ).run()


# --- the values that a search may try ------------------------------------------------------------


class Values:
    """The values between two texts that differ in their first number only, as rising numbers.

    Numbers are rounded to values that a person can write again. They are whole where a text with a
    decimal cannot be (`takes_decimal`).
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
        digits = str(int(number)) if is_whole else f"{float(number):.{_DIGITS}g}"
        return digits + self._rest

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
            value = Fraction(math.floor(number) + (1 if up else 0))
        else:
            step = Fraction(10) ** (math.floor(math.log10(max(abs(number), 1e-9))) - 3)
            value = (math.floor(Fraction(number) / step) + (1 if up else 0)) * step
        return min(max(value, self.low), self.high)

    def size(self, number: float) -> float:
        """Return what a tolerance is a share of at a value; also the number that has a size."""
        return number


class LoweredLimits(Values):
    """The limits of a rule as reductions from 64 times its limit: the highest limit comes first."""

    is_whole = True

    def __init__(self, rule: Rule) -> None:
        self._highest = _MOST_TIMES * rule.limit_requests
        self._window_ns = rule.window_ns
        self.low = Fraction(0)
        self.high = Fraction(self._highest - rule.limit_requests)

    def text(self, number: Fraction) -> str:
        """Return a limit as a rate."""
        return str(Rate(self._highest - int(number), self._window_ns))

    def middle(self, low: Fraction, high: Fraction, tolerance: float) -> Fraction | None:
        """Return a limit between two: a geometric middle, as limits differ by factors."""
        limits = self._highest - int(low), self._highest - int(high)
        if limits[0] - limits[1] <= max(1, tolerance * limits[1]):
            return None
        middle = round(math.sqrt(limits[0] * limits[1]))
        middle = min(max(middle, limits[1] + 1), limits[0] - 1)
        return Fraction(self._highest - middle)

    def size(self, number: float) -> float:
        """Return the limit; a limit's number is of the same form."""
        return self._highest - number


# --- the search ----------------------------------------------------------------------------------


class _BudgetSpentError(Exception):
    """The time of a search's budget is over, or its runs are."""


def _takes(scenario: Scenario, path: str, text: str) -> bool:
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
    line = partial(line_of_conditions, asked)

    def play(value: str, seeds: Sequence[int]) -> tuple[list[float], list[float]]:
        scenario, done = changed(value), itertools.count(1)
        runs = runner.play(
            scenario,
            seeds,
            fidelity=fidelity,
            check=False,
            on_progress=progress and (lambda _: progress(value, next(done), len(seeds))),
            line=line,
            keep=kept_for(scenario, asked),
        )
        values = [run.line[condition.subject] for run in runs]
        return values, [
            float(value.offered.sum()) if isinstance(value, Share) else run.line[offered.subject]
            for value, run in zip(values, runs, strict=True)
        ]

    return play


@dataclass(slots=True)
class Search:
    """A search among the values of a scale with any player; the fields are as in `capacity`.

    first: runs of a value in the coarse search. budget: of all values. exact: whether nothing is
    drawn at random under a value.
    """

    player: Player
    scale: Values
    condition: Condition
    _: KW_ONLY
    path: str = ""
    first: int = 5
    budget: ReplicationBudget = field(default_factory=lambda: ReplicationBudget(MOST_RUNS))
    seed: int = 0
    tolerance: float = 0.01
    exact: Callable[[str], bool] = lambda _: False
    on_trial: Callable[[Trial], None] | None = None
    capacity: Capacity = field(init=False)
    _ends_s: float = field(default=math.inf, init=False)
    _fresh: int = field(init=False)
    _coarse: dict[Fraction, _Coarse] = field(default_factory=dict, init=False)
    _near: dict[Fraction, list[float]] = field(default_factory=dict, init=False)
    _attempts: Counter[Fraction] = field(default_factory=Counter, init=False)

    def run(self) -> Capacity:
        """Return what is found. Raises `Interrupted` with what is known where Ctrl-C stops it."""
        self.capacity = Capacity(self.path, str(self.condition))
        self._fresh = self.seed + self.first
        if self.budget.most_time_s is not None:
            self._ends_s = time.monotonic() + self.budget.most_time_s
        with keeps_what_is_known(self.capacity):
            try:
                self._find()
            except _BudgetSpentError as spent_error:
                self.capacity.unfinished = str(spent_error)
        return self.capacity

    def _find(self) -> None:
        """Bracket the border by a coarse search, then find it, or decide the last value."""
        low, high = self.scale.low, self.scale.high
        at_low, at_high = self._coarse_of(low), self._coarse_of(high)
        if at_high.holds:
            self._decide_end("keeps", high)
        elif not at_low.holds:
            self._decide_end("breaks", low)
        else:
            self._bisect(low, high)

    def _bisect(self, low: Fraction, high: Fraction, *, is_still: bool = False) -> None:
        """Halve the bracket. is_still: no draw moves the metric, so that a few runs tell all."""
        scale = self.scale
        while True:
            self.capacity.estimate, self.capacity.place = scale.text(low), float(low)
            are_still = is_still or (
                self._coarse_of(low).is_still and self._coarse_of(high).is_still
            )
            has_line = self.condition.bound > 0
            tolerance = max(self.tolerance, 2 * _SPAN) if has_line else self.tolerance
            tolerance = self.tolerance / _STILL if are_still else tolerance
            if (middle := scale.middle(low, high, tolerance)) is None:
                break
            low, high = (middle, high) if self._coarse_of(middle).holds else (low, middle)
        if are_still:
            self.capacity.keeps, self.capacity.breaks = scale.text(low), scale.text(high)
        elif has_line:
            self._find_crossing(float((low + high) / 2))
        else:
            self._decide_end("breaks", high)
            self._decide_end("keeps", low)

    # --- runs ------------------------------------------------------------------------------------

    def _coarse_of(self, number: Fraction) -> _Coarse:
        """Play a few runs of a value, once."""
        coarse = self._coarse.get(number)
        if coarse is None:
            text = self.scale.text(number)
            exact = self.exact(text)
            values, offered = self._play(text, self.seed, 1 if exact else self.first)
            interval = interval_of(values, self.condition.metric, exact=exact)
            sends = sum(offered) > 0
            trial = Trial(text, interval, self._verdict(interval, sends=sends), is_coarse=not exact)
            holds = self.condition.holds(interval.mean) if interval.runs else not sends
            is_still = exact or (len(values) > 1 and len(set(values)) == 1)
            coarse = self._coarse[number] = _Coarse(trial, holds, is_still)
            self._report(trial)
        return coarse

    def _play(self, text: str, seed: int, count: int) -> tuple[list[float], list[float]]:
        if time.monotonic() >= self._ends_s:
            raise _BudgetSpentError(f"{self.budget.most_time_s:g} s were over")
        if count > self._affordable(1):
            raise _BudgetSpentError(f"{self.budget.most_replications} runs were too few")
        played = self.player(text, range(seed, seed + count))
        self.capacity.runs += count
        return played

    def _affordable(self, values: int) -> int:
        """Return how many more runs each of some values may have."""
        return max(0, self.budget.most_replications - self.capacity.runs) // values

    def _report(self, trial: Trial) -> None:
        self.capacity.trials.append(trial)
        if self.on_trial is not None:
            self.on_trial(trial)

    def _verdict(self, interval: Interval, *, sends: bool) -> Verdict:
        """Return the verdict; no value breaks a condition, unless there was no attempt."""
        if not interval.runs and not sends:
            return "not decided"
        return judged(self.condition, interval)

    # --- the border ------------------------------------------------------------------------------

    def _find_crossing(self, centre: float) -> None:
        """Find where the metric crosses the bound, by runs of values around it.

        Two values at a time, which move to the border and come closer as it is better known; all
        runs near it make the line, each under a seed of its own.
        """
        scale, capacity, span, pairs = self.scale, self.capacity, _SPAN, 0
        border, aim = _UNKNOWN, FIRST
        while (more := min(aim - pairs, self._affordable(2))) > 0:
            ends = sorted(scale.size(scale.size(centre) * (1 + side)) for side in (-span, span))
            low, high = scale.rounded(ends[0], up=False), scale.rounded(ends[1], up=True)
            at_low, at_high = self._play_near(low, more), self._play_near(high, more)
            pairs += more
            if len(set(at_low)) == len(set(at_high)) == 1 < more and at_low[0] != at_high[0]:
                # No draw moves the metric, which may jump.
                is_between = self._coarse_of(low).holds > self._coarse_of(high).holds
                both = (low, high) if is_between else (scale.low, scale.high)
                self._bisect(*both, is_still=True)
                return
            border = self._border(centre, _WINDOW * span)
            if not math.isfinite(border.half_width):
                span, aim = min(_WIDER * span, _WIDEST), pairs + FIRST
                continue
            if (needed := self._needed(border)) <= border.runs:
                break
            centre = min(max(border.mean, float(scale.low)), float(scale.high))
            beside = _WIDER * border.half_width / scale.size(centre)
            span = min(max(beside, _NARROWEST), _WIDEST)
            more_pairs = (needed - border.runs) // 2
            aim = next_count(pairs, pairs + more_pairs, self.budget.most_replications)
        if self._is_bent(border):
            broken = [number for number in self._near if self._decided(number) == "not met"]
            capacity.breaks = scale.text(min(broken)) if broken else None
        elif math.isfinite(border.half_width):
            capacity.border, capacity.place = border, border.mean
            capacity.estimate = scale.text(scale.rounded(border.mean, up=False))
            if (needed := self._needed(border)) > border.runs:
                capacity.needed = capacity.runs + needed - border.runs
            keeps = scale.rounded(border.low, up=False)
            breaks = scale.rounded(border.high, up=True)
            capacity.keeps = scale.text(keeps) if keeps <= border.low else None
            capacity.breaks = scale.text(breaks) if breaks >= border.high else None
        sides: tuple[tuple[Side, str | None], ...]
        sides = ("breaks", capacity.breaks), ("keeps", capacity.keeps)
        capacity.undecided = tuple(side for side, value in sides if value is None)

    def _play_near(self, number: Fraction, count: int) -> list[float]:
        """Run a value near the border under seeds of its own; return each run's metric."""
        text = self.scale.text(number)
        values, attempts = self._play(text, self._fresh, count)
        self._fresh += count  # runs that nothing was chosen by
        self._near.setdefault(number, []).extend(values)
        self._attempts[number] += round(sum(attempts))
        interval = interval_of(values, self.condition.metric)
        self._report(Trial(text, interval, judged(self.condition, interval)))
        return values

    def _decided(self, number: Fraction) -> Verdict:
        """Return the verdict of all runs of a value near the border."""
        return judged(self.condition, interval_of(self._near[number], self.condition.metric))

    def _is_bent(self, border: Interval) -> bool:
        """Whether all runs of some value contradict the border: what is near it is no line.

        Runs that meet a bound say little before so many attempts that some would have missed it.
        """
        for number, values in self._near.items():
            if len(values) < _ENOUGH_RUNS:
                continue
            verdicts = {self.condition.holds(value) for value in values}
            is_sure = self._attempts[number] * self.condition.bound >= _ENOUGH_EVENTS
            if number >= border.mean and verdicts == {True} and is_sure:
                return True
            if number <= border.mean and verdicts == {False}:
                return True
        return False

    def _place(self, number: Fraction | float) -> float:
        """Return where a value stands on the line: the logarithm of its size."""
        return math.log(self.scale.size(float(number)) or _ZERO)

    def _border(self, centre: float, window: float) -> Interval:
        """Return the interval of the border, by the runs within a window around a value."""
        middle = self._place(centre)
        near = [
            (place, value)
            for number, values in self._near.items()
            if abs((place := self._place(number)) - middle) <= window
            for value in values
        ]
        places, values = [place for place, _ in near], [value for _, value in near]
        error = sequential_error(sum(value > 0 for value in values), max(FIRST, len(values)))
        crossing = crossing_of(
            places, values, self.condition.bound, self.condition.metric, error=error
        )
        if not crossing.half_width <= _MAX_UNSURE:
            return _UNKNOWN
        mean, *ends = (self.scale.size(math.exp(place)) for place in crossing[:3])
        return crossing._replace(mean=mean, low=min(ends), high=max(ends))

    def _needed(self, border: Interval) -> int:
        """Return about how many runs near the border tell it to the tolerance."""
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
            self.capacity.undecided += (side,)
        elif side == "keeps":
            self.capacity.keeps = trial.value
        else:
            self.capacity.breaks = trial.value

    def _trial(self, number: Fraction) -> Trial:
        trial = self._coarse_of(number).trial
        if not trial.is_coarse:
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
                self.capacity.needed = None
                break
            needed = runs_for_verdict(values, condition, error=spent(look))
            self.capacity.needed = needed and self.capacity.runs + needed - len(values)
            if self.on_trial is not None:
                self.on_trial(trial)
            count *= 2
        self._report(trial)
        return trial


_WANTED: Final[dict[Side, Verdict]] = {"keeps": "met", "breaks": "not met"}


@dataclass(frozen=True, slots=True)
class _Coarse:
    """A value's few runs. is_still: no draw moves the metric, so they tell all."""

    trial: Trial
    holds: bool
    is_still: bool
