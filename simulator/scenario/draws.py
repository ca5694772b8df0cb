"""The random parts of a scenario: distributions of durations, and arrivals.

A duration is drawn from one uniform number by the inverse distribution function and rounded to
whole nanoseconds. `simulator.traffic.draws` has the formulas; these classes hold the parameters.
Arrivals say when the requests of an open loop begin.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, ClassVar, Final, Literal, TypeAlias

from engine.files import Alias, Duration, Include, Integer, Items, Number, Rate, RateText, TextType


@dataclass(frozen=True, kw_only=True)
class Drawn:
    """Marks a part of a scenario that draws at random."""


@dataclass(frozen=True, kw_only=True)
class Constant:
    """Always the same duration; `"2s"` is the short form."""

    short_form: ClassVar[str] = "value_ns"
    kind: Literal["constant"] = "constant"
    value_ns: Annotated[int, "the duration"] = 0


@dataclass(frozen=True, kw_only=True)
class Uniform(Drawn):
    """Uniform over [low, high]."""

    kind: Literal["uniform"] = "uniform"
    low_ns: Annotated[int, "the least"] = 0
    high_ns: Annotated[int, "the most, not below `low`"]


@dataclass(frozen=True, kw_only=True)
class Exponential(Drawn):
    """Exponential with the given mean: −mean · ln(1 − u)."""

    kind: Literal["exponential"] = "exponential"
    mean_ns: Annotated[int, Duration(1), "the mean, above 0"]


@dataclass(frozen=True, kw_only=True)
class Lognormal(Drawn):
    """Lognormal: median · e^(sigma · z), z standard normal; its mean is median · e^(sigma² / 2)."""

    kind: Literal["lognormal"] = "lognormal"
    median_ns: Annotated[int, Duration(1), "the median, above 0"]
    sigma: Annotated[float, Number(minimum=0, maximum=10), "standard deviation of the logarithm"]


@dataclass(frozen=True, kw_only=True)
class Pareto(Drawn):
    """Pareto, a heavy tail: least · (1 − u)^(−1 / alpha); its mean is infinite for alpha ≤ 1."""

    kind: Literal["pareto"] = "pareto"
    least_ns: Annotated[int, Duration(1), "the least, above 0"]
    alpha: Annotated[float, Number(above=0), "the shape: the smaller, the heavier the tail"]


@dataclass(frozen=True, kw_only=True)
class Discrete(Drawn):
    """One of a few durations, each with its weight."""

    kind: Literal["discrete"] = "discrete"
    values_ns: Annotated[
        tuple[int, ...], Alias("values"), Items(Duration(), minimum=1), "the durations"
    ]
    weights: Annotated[
        tuple[float, ...],
        Items(Number(minimum=0)),
        "one weight per duration, with a sum above 0; by default all are equal",
    ] = ()


Draw: TypeAlias = Constant | Uniform | Exponential | Lognormal | Pareto | Discrete
"""A distribution of durations, in nanoseconds."""


def durations_ns(draw: Draw) -> list[int]:
    """Return the durations that a distribution is given by."""
    given = [getattr(draw, item.name) for item in fields(draw) if item.name.endswith("_ns")]
    return [n for item in given for n in (item if isinstance(item, tuple) else (item,))]


@dataclass(frozen=True, kw_only=True)
class ConstantArrivals:
    """Evenly spaced: request k = 0, 1, … begins at start + ⌊k · window / requests⌋.

    `"60/1m"` is the short form.
    """

    short_form: ClassVar[str] = "rate"
    kind: Literal["constant"] = "constant"
    rate: Annotated[Rate, RateText(is_mean=True), "requests per window, of each client"]


@dataclass(frozen=True, kw_only=True)
class PoissonArrivals(Drawn):
    """A Poisson process: independent exponential gaps of mean window / requests."""

    kind: Literal["poisson"] = "poisson"
    rate: Annotated[Rate, RateText(is_mean=True), "mean requests per window, of each client"]


@dataclass(frozen=True, kw_only=True)
class Step:
    """A rate that applies from a point in time on."""

    at_ns: Annotated[int, "since the client's start"] = 0
    rate: Annotated[
        Rate, RateText(may_be_zero=True, is_mean=True), "mean requests per window; 0/1s is a pause"
    ]


@dataclass(frozen=True, kw_only=True)
class StepArrivals(Drawn):
    """A Poisson process whose rate is constant from each step to the next; 0 before the first.

    Steps are in order of time. The last one holds until the client stops.
    """

    kind: Literal["steps"] = "steps"
    steps: Annotated[tuple[Step, ...], "rates and when each begins, in order of time"]


@dataclass(frozen=True, kw_only=True)
class RampArrivals(Drawn):
    """A Poisson process whose rate changes linearly, then stays at its last value."""

    kind: Literal["ramp"] = "ramp"
    from_rate: Annotated[
        Rate, Alias("from"), RateText(may_be_zero=True, is_mean=True), "the rate at the start"
    ]
    to_rate: Annotated[
        Rate, Alias("to"), RateText(may_be_zero=True, is_mean=True), "the rate at the end"
    ]
    over_ns: Annotated[int, Duration(1), "how long the ramp is, from the client's start"]


BUSINESS_DAY: tuple[float, ...] = (
    *(1.0, 1.0, 1.0, 1.0, 1.0, 2.0, 4.0, 8.0, 14.0, 18.0, 20.0, 20.0),
    *(18.0, 18.0, 19.0, 18.0, 16.0, 14.0, 12.0, 10.0, 8.0, 5.0, 3.0, 2.0),
)
"""Relative traffic of the hours of a business day."""


@dataclass(frozen=True, kw_only=True)
class DailyArrivals(Drawn):
    """A Poisson process whose rate follows the hour of the day, UTC, from the run's `start_time`.

    In hour h its rate is `rate` · hours[h] · 24 / Σ hours, so `rate` is the mean over a day. With a
    `day` other than 24 h, the day begins with the client's start, and an hour is a 24th of it.
    """

    kind: Literal["daily"] = "daily"
    rate: Annotated[Rate, RateText(is_mean=True), "mean requests per window over a whole day"]
    hours: Annotated[
        tuple[float, ...],
        Items(Number(minimum=0), minimum=24),
        "24 relative weights, midnight first",
    ] = BUSINESS_DAY
    day_ns: Annotated[int, Duration(24), "length of the day"] = 24 * 3_600 * 1_000_000_000


_NEVER: Final = Rate(0, 1_000_000_000)


@dataclass(frozen=True, kw_only=True)
class OnOffArrivals(Drawn):
    """Bursts: a Markov-modulated Poisson process of two states.

    Times in a state are exponential of mean `on` and `off`; within a state arrivals are Poisson of
    that state's rate. It begins on, or with `begin = "either"` in a state drawn by its share of
    the time, like a client that was active before the run.
    """

    kind: Literal["on-off"] = "on-off"
    on_rate: Annotated[Rate, RateText(is_mean=True), "mean requests per window while on"]
    off_rate: Annotated[Rate, RateText(may_be_zero=True, is_mean=True), "the same while off"] = (
        _NEVER
    )
    on_ns: Annotated[int, Duration(1), "mean time in the on state"]
    off_ns: Annotated[int, Duration(1), "mean time in the off state"]
    begin: Annotated[
        Literal["on", "either"], "the first state: on, or either, by their shares of the time"
    ] = "on"


@dataclass(frozen=True, kw_only=True)
class ReplayArrivals:
    """The times in a file, one per line: decimal seconds, or ISO 8601 times (no zone = UTC).

    The file is sorted first. The earliest line t₀ becomes the client's start, and line t becomes
    start + floor((t − t₀) / speed), in exact arithmetic. Empty lines and `#` lines are skipped.
    With `column` it is a CSV file with a header. Each client of the group replays the whole file.
    """

    kind: Literal["replay"] = "replay"
    file: Annotated[Include, "the file, relative to the scenario's"]
    column: Annotated[str | None, TextType(), "the column of a CSV file"] = None
    speed: Annotated[int, Integer(minimum=1), "how many times faster than recorded"] = 1


@dataclass(frozen=True, kw_only=True)
class SessionArrivals(Drawn):
    """New sessions, sampled from those of a log: as bursty, as unequal, as regular as the log.

    `python -m simulator fit` writes the file; `simulator.traffic.sessions` says how sessions are
    sampled. Client i is caller i of the log, at the caller's key and address, so `count` is the
    log's number of callers. Further clients are copies with keys of their own, and addresses of
    their own but those that several keys of the log share: twice the `count`, with twice the keys
    and addresses, is twice the traffic. Each request of the file must be an entry of the `mix`;
    weights have no effect.
    """

    kind: Literal["sessions"] = "sessions"
    file: Annotated[Include, "the file that `fit` wrote, relative to the scenario's"]
    group: Annotated[str, TextType(), "a group of the file"]
    span_ns: Annotated[int, Duration(1), "how long the log is; its rate over time repeats"]


Arrivals: TypeAlias = (
    ConstantArrivals
    | PoissonArrivals
    | StepArrivals
    | RampArrivals
    | DailyArrivals
    | OnOffArrivals
    | ReplayArrivals
    | SessionArrivals
)
"""When the requests of one open-loop client begin, between its start and its stop."""
