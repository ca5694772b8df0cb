"""How many requests a scenario asks for, before it is played; and its parts at another pace.

The number is a mean, of requests without their retries. A closed loop asks again as soon as it is
answered and has thought, so its number holds where nothing is refused: refusals are answered at
once, and it asks more often.
"""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, Final, TypeAlias

from engine.files import Rate, to_plain
from engine.profile import SECOND_NS
from simulator.scenario import Scenario, draws
from simulator.scenario.clients import AimdPacing, ClientGroup, TokenBucketPacing
from simulator.scenario.model import changed
from simulator.traffic.population import session_log
from simulator.traffic.sampling import pieces_of, replayed_ns

Edits: TypeAlias = tuple[tuple[str, Any], ...]
"""Changes of a scenario: path and value of each, as `with_values` takes them."""
LARGE_RUN: Final = 100_000_000
"""Requests of a run that takes minutes compiled, and above 1 GB of disk."""


def expected_requests(scenario: Scenario) -> int:
    """Return about how many requests a run begins, retries left out.

    Raises `InputError` for a file of arrivals that cannot be read.

    >>> from simulator.scenario import load
    >>> expected_requests(load("management-loop"))
    8400
    """
    return round(sum(_of_group(scenario, group) for group in scenario.clients))


def largest_group(scenario: Scenario) -> ClientGroup:
    """Return the group whose clients begin the most requests."""
    return max(scenario.clients, key=lambda group: _of_group(scenario, group))


def size_warning(scenario: Scenario) -> str | None:
    """Return one line about a run that is larger than usual; None for other runs."""
    asked = expected_requests(scenario)
    if asked <= LARGE_RUN:
        return None
    group = largest_group(scenario)
    return (
        f"duration asks for about {asked:,} requests, more than {LARGE_RUN:,}; most are of"
        f" clients.{group.name}, {group.count:,} clients, and a rate is of each client:"
        " lower its rate or count, or shorten the duration"
    )


def _of_group(scenario: Scenario, group: ClientGroup) -> float:
    """Return how many requests the clients of a group begin on average."""
    span_ns = scenario.stop_of(group) - group.start_ns
    if isinstance(group.arrivals, draws.SessionArrivals):
        log = session_log(group.arrivals)
        return log.size * group.count / len(log.callers) * span_ns / log.span_ns
    if group.arrivals is not None:
        return group.count * _of_arrivals(scenario, group, group.arrivals, span_ns)
    turn_ns = _mean_ns(group.service) + (0.0 if group.think is None else _mean_ns(group.think))
    requests = (group.concurrency or 1) * span_ns / turn_ns if turn_ns else math.inf
    if group.pacing is not None:
        pace = group.pacing
        rate = pace.rate if isinstance(pace, TokenBucketPacing) else pace.maximum
        requests = min(requests, 1 + span_ns * rate.limit_requests / rate.window_ns)
    return requests * group.count


def _of_arrivals(
    scenario: Scenario, group: ClientGroup, arrivals: draws.Arrivals, span_ns: int
) -> float:
    """Return how many requests one client begins on average in `span_ns` from its start."""
    if isinstance(arrivals, draws.ConstantArrivals | draws.PoissonArrivals):
        return span_ns * arrivals.rate.limit_requests / arrivals.rate.window_ns
    if isinstance(arrivals, draws.ReplayArrivals):
        return sum(at_ns < span_ns for at_ns in replayed_ns(arrivals))
    if isinstance(arrivals, draws.OnOffArrivals):
        on = arrivals.on_rate.limit_requests / arrivals.on_rate.window_ns
        off = arrivals.off_rate.limit_requests / arrivals.off_rate.window_ns
        whole_ns = arrivals.on_ns + arrivals.off_ns
        return span_ns * (on * arrivals.on_ns + off * arrivals.off_ns) / whole_ns
    assert not isinstance(arrivals, draws.SessionArrivals), "counted by the log"
    requests, passed_ns = 0.0, 0
    for length_ns, low, high in pieces_of(arrivals, group.start_ns, scenario.start_time_ns):
        part_ns = min(length_ns, span_ns - passed_ns)
        if length_ns:
            end = low + (high - low) * part_ns / length_ns
            requests += part_ns * (low + end) / 2
        passed_ns += length_ns
        if passed_ns >= span_ns:
            break
    return requests


def _mean_ns(draw: draws.Draw) -> float:
    """Return the mean of a duration; the median of a Pareto that has no mean."""
    if isinstance(draw, draws.Constant):
        return draw.value_ns
    if isinstance(draw, draws.Uniform):
        return (draw.low_ns + draw.high_ns) / 2
    if isinstance(draw, draws.Exponential):
        return draw.mean_ns
    if isinstance(draw, draws.Lognormal):
        return draw.median_ns * math.exp(draw.sigma**2 / 2)
    if isinstance(draw, draws.Discrete):
        weights = draw.weights or (1.0,) * len(draw.values_ns)
        pairs = zip(draw.values_ns, weights, strict=True)
        return sum(value_ns * weight for value_ns, weight in pairs) / sum(weights)
    if draw.alpha > 1:
        return draw.least_ns * draw.alpha / (draw.alpha - 1)
    return draw.least_ns * 2 ** (1 / draw.alpha)


# --- another pace --------------------------------------------------------------------------------


def shorter(draw: draws.Draw, factor: float | Fraction) -> draws.Draw:
    """Return a distribution of durations with every duration divided."""

    def divided(value: Any) -> Any:  # noqa: ANN401 # reason: a duration or a tuple of them
        if isinstance(value, tuple):
            return tuple(map(divided, value))
        return max(1, round(value / factor)) if value else value

    names = [part.name for part in dataclasses.fields(draw) if part.name.endswith("_ns")]
    return dataclasses.replace(draw, **{name: divided(getattr(draw, name)) for name in names})


def stated_pace(group: ClientGroup) -> Fraction | None:
    """Return the pace that a group's file states, in requests a second; None where it is a draw."""
    rate = getattr(group.arrivals if group.loop == "open" else group.pacing, "rate", None)
    return _per_second(rate) if isinstance(rate, Rate) else None


def at_pace(place: str, group: ClientGroup, pace: Fraction, now: Fraction) -> Edits:
    """Return the change that gives each client another pace; () if no change can.

    Rates of arrivals and of pacing are multiplied, think times are divided. A loop that mostly
    waits for answers gets a token bucket of size one.
    """
    factor = pace / now
    if group.loop == "open":
        faster = _faster(group.arrivals, factor)
        if faster == group.arrivals and factor != 1:
            return ()
        edits = [(f"{place}.arrivals", to_plain(faster))]
    elif group.think is not None and _thinks(group.think, now, group.concurrency or 1):
        edits = [(f"{place}.think", to_plain(shorter(group.think, factor)))]
    elif group.pacing is None:
        rate = Rate(pace.numerator, pace.denominator * SECOND_NS)
        return ((f"{place}.pacing", to_plain(TokenBucketPacing(rate=rate))),)
    else:
        edits = []
    if isinstance(group.pacing, AimdPacing):
        maximum = _faster(group.pacing.maximum, factor)
        ends = {
            end: min(maximum, getattr(group.pacing, end), key=_per_second)
            for end in ("start", "minimum")
        }
        pacing = dataclasses.replace(group.pacing, maximum=maximum, **ends)
        edits.append((f"{place}.pacing", to_plain(pacing)))
    elif group.pacing is not None:
        edits.append((f"{place}.pacing", to_plain(_faster(group.pacing, factor))))
    return tuple(edits)


def _thinks(think: draws.Draw, now: Fraction, at_once: int) -> bool:
    """Whether thinking takes most of a loop's time at a pace; else waiting for answers does."""
    times_ns = draws.durations_ns(think)
    typical_s = Fraction(sum(times_ns), max(1, len(times_ns)) * SECOND_NS)
    return 2 * typical_s * now >= at_once


def _per_second(rate: Rate) -> Fraction:
    return Fraction(rate.limit_requests * SECOND_NS, rate.window_ns)


def _faster(part: Any, factor: Fraction) -> Any:  # noqa: ANN401 # reason: a part of a scenario
    """Return arrivals or pacing with every rate multiplied."""

    def times(rate: Rate) -> Rate:
        pace = Fraction(rate.limit_requests, rate.window_ns) * factor
        return Rate(pace.numerator, pace.denominator)

    return changed(part, Rate, times)
