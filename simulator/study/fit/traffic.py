"""From counts to the parameters of a client group, each with its interval and its evidence.

`pace_of` takes the first model that fits: gaps that hardly vary (a constant pace), a closed loop,
bursts that explain the variation (on-off arrivals), a rate by hour of day, a rate that changes in
steps, other bursts, Poisson. A client is a closed loop if it never begins a request while an
earlier one is being retried, although independent arrivals would have done so.

Intervals are of 95 %. The interval of a rate is made from the variance between eighths of the
window, so that bursts widen it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt

from engine.files import Rate, format_duration
from engine.profile import SECOND_NS
from simulator.scenario import draws
from simulator.scenario.clients import (
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    NoRetry,
    Retry,
)
from simulator.study.fit.observed import MOST_ATTEMPTS, Floats
from simulator.study.fit.series import (
    LAG_CHAIN,
    MIN_REQUESTS_FOR_ARRIVAL_MODEL,
    SLOTS,
    CountSeries,
    GapCounts,
    gap_edges,
)

_HOUR_NS: Final = 3_600 * SECOND_NS
_PARTS: Final = 8
_T_7: Final = 2.365
"""Student's t at 97.5 % with `_PARTS` − 1 degrees of freedom."""
_Z: Final = 1.96
_EVEN: Final = 0.1
_REGULAR: Final = 0.8
_MOST_STEPS: Final = 6
_HALT: Final = 5.0
_MOST_LANES: Final = 64
_TOO_MUCH: Final = 4.0
_STEADY: Final = 0.15
_GROWS: Final = 1.4
_WINDOWS_S: Final = (1, 10, 60, 600, 3_600, 36_000, 86_400, 864_000)


@dataclass(frozen=True, slots=True)
class Estimate:
    """A number and its 95 % interval."""

    value: float
    low: float
    high: float

    def scaled(self, factor: float) -> Estimate:
        """Return the estimate in another unit."""
        return Estimate(self.value * factor, self.low * factor, self.high * factor)


@dataclass(slots=True)
class Pace:
    """When the clients of a group send requests.

    rate: first attempts per second of one client. sd: standard error of its logarithm, for
    predictions. kind: of the arrivals, or `think-…` for a closed loop. evidence: why, in words.
    lost: what the log does not show.
    """

    loop: str
    kind: str
    rate: Estimate
    sd: float
    arrivals: draws.Arrivals | None = None
    think: draws.Draw | None = None
    parameters: dict[str, Estimate] = field(default_factory=dict)
    concurrency: int = 1
    start_ns: int = 0
    stop_ns: int | None = None
    evidence: str = ""
    lost: list[str] = field(default_factory=list)


def nice_rate(per_second: float) -> Rate:
    """Return a rate of at most three digits, in a common window.

    >>> str(nice_rate(2.5)), str(nice_rate(1 / 300))
    ('25/10s', '2/10m')
    """
    if per_second <= 0:
        return Rate(0, SECOND_NS)
    for seconds in _WINDOWS_S:
        requests = per_second * seconds
        if requests >= 1 and abs(round(requests) - requests) <= 0.002 * requests:
            return Rate(round(requests), seconds * SECOND_NS)
        if requests >= 100:
            return Rate(_three_digits(requests), seconds * SECOND_NS)
    return Rate(1, nice_ns(SECOND_NS / per_second))


def _three_digits(number: float) -> int:
    step = 10 ** max(0, len(str(int(number))) - 3)
    return int(round(number / step) * step)


def nice_ns(duration_ns: float) -> int:
    """Return a duration of three digits."""
    whole = max(1, round(duration_ns))
    for unit in (_HOUR_NS, 60 * SECOND_NS, SECOND_NS, 1_000_000, 1_000):
        if whole >= 3 * unit:
            step = unit
            while whole // step > 999:
                step *= 10
            while whole // step < 100 and step > 1 and step % 10 == 0:
                step //= 10
            return max(1, round(whole / step) * step)
    return whole


# --- pace ----------------------------------------------------------------------------------------


def pace_of(series: CountSeries, group: int, clients: float, *, steady: bool = False) -> Pace:
    """Return when the clients of a group send requests. steady: fit no trend, for predictions."""
    firsts = int(series.firsts[group])
    rate, sd = _rate(series, group, clients)
    if firsts < MIN_REQUESTS_FOR_ARRIVAL_MODEL:
        pace = _poisson(rate, sd)
        pace.evidence = f"{firsts} requests: too few to tell more than their mean pace"
        return pace
    even = _even(series, group, rate, sd, clients)
    if even is not None:
        return even
    if (waits := _awaited(series, group, rate)) is not None:
        return _closed(series, group, rate, sd, waits)
    if (halting := _halting(series, group, rate, sd)) is not None:
        return halting
    bursts = _bursts(series, group, rate, sd, clients)
    trend = _day(series, group, rate, sd)
    if bursts is not None and _explains(series, group, bursts):
        if trend is not None:
            bursts.lost.append(
                f"the pattern of the day, which on-off bursts lack: {trend.evidence}"
            )
        return bursts
    if trend is None and not steady:
        trend = _steps(series, group, rate, sd, clients)
    return trend or bursts or _loop(series, group, rate, sd)


def _rate(series: CountSeries, group: int, clients: float) -> tuple[Estimate, float]:
    """Return the mean pace of one client, and the standard error of its logarithm."""
    firsts = max(1, int(series.firsts[group]))
    value = firsts / (clients * series.span_ns / 1e9)
    parts = series.slots[group].reshape(_PARTS, -1).sum(axis=1)
    between = float(parts.var(ddof=1)) / max(float(parts.mean()), 1e-9) ** 2 / _PARTS
    by_chance = 1.0 / firsts
    error = math.sqrt(max(between, by_chance))
    wide = _T_7 * error if between > by_chance else _Z * error
    return Estimate(value, value * math.exp(-wide), value * math.exp(wide)), error


def _poisson(rate: Estimate, sd: float) -> Pace:
    arrivals = draws.PoissonArrivals(rate=nice_rate(rate.value))
    return Pace("open", "poisson", rate, sd, arrivals, parameters={"rate": rate})


def _even(
    series: CountSeries, group: int, rate: Estimate, sd: float, clients: float
) -> Pace | None:
    """Return a constant pace, or a constant think time, where gaps hardly vary."""
    if (clock := _clock(series, group, clients)) is not None:
        return clock
    gaps = series.gaps if not series.refusals[group] else series.all_gaps
    low, middle, high = _tenths(series, gaps, group)
    spread = (high - low) / middle
    if spread > _EVEN:
        return None
    words = f"gaps from {_ms(low)} (p10) to {_ms(high)} (p90), median {_ms(middle)}"
    half = spread / 2 + 0.01
    think = Estimate(middle / 1e9, middle / 1e9 * (1 - half), middle / 1e9 * (1 + half))
    return Pace(
        *("closed", "think-constant", rate, min(sd, 0.02)),
        think=draws.Constant(value_ns=nice_ns(middle)),
        parameters={"think": think},
        evidence=f"{words}: evenly, one after another; the time of an answer is included",
    )


def _tenths(series: CountSeries, gaps: GapCounts, group: int) -> tuple[float, float, float]:
    """Return the 10th, 50th and 90th percentile of gaps; infinitely apart if they tell nothing."""
    low, middle, high = (gaps.quantile_ns(group, share) for share in (0.1, 0.5, 0.9))
    if gaps.number(group) < 2 * _PARTS or middle <= 2 * series.tick_ns:
        return 0.0, 1.0, math.inf
    return low, middle, high


def _clock(series: CountSeries, group: int, clients: float) -> Pace | None:
    """Return a constant pace where all gaps are equal; with start and stop if it is short."""
    low, middle, high = _tenths(series, series.gaps, group)
    if high - low > 2e-3 * middle + 2 * series.tick_ns:
        return None
    exact = 1e9 / series.gaps.mean_ns(group)
    rate = Estimate(exact, exact * (1 - 1e-3), exact * (1 + 1e-3))
    pace = Pace(
        *("open", "constant", rate, 0.0, draws.ConstantArrivals(rate=nice_rate(exact))),
        parameters={"rate": rate},
        evidence=f"gaps from {_ms(low)} (p10) to {_ms(high)} (p90): evenly spaced",
    )
    busy = np.flatnonzero(series.slots[group])
    slot_ns = series.span_ns / SLOTS
    if len(busy) < 0.9 * SLOTS and busy[-1] - busy[0] < 0.9 * SLOTS:
        lasts_ns = int(series.firsts[group]) / clients / exact * 1e9
        pace.start_ns = _round_to(max(0.0, (busy[0] + busy[-1] + 1) / 2 * slot_ns - lasts_ns / 2))
        pace.stop_ns = pace.start_ns + _round_to(lasts_ns)
    return pace


def _steps(
    series: CountSeries, group: int, rate: Estimate, sd: float, clients: float
) -> Pace | None:
    """Return a rate that changes in steps; None where it does not."""
    counts = series.slots[group].reshape(SLOTS // 4, 4).sum(axis=1)
    edges = _segments(counts)
    if len(edges) < 3:
        return None
    slot_ns = series.span_ns / len(counts)
    rates = [
        counts[low:high].sum() / ((high - low) * slot_ns / 1e9) / clients
        for low, high in pairwise(edges)
    ]
    steps = tuple(
        draws.Step(at_ns=_round_to(low * slot_ns), rate=nice_rate(rate))
        for low, rate in zip(edges, rates, strict=False)
    )
    shape = np.repeat(
        [counts[low:high].mean() for low, high in pairwise(edges)],
        np.diff(edges).tolist(),
    )
    rate, sd = _around(series, group, rate, counts, shape)
    return Pace(
        *("open", "steps", rate, sd, draws.StepArrivals(steps=steps)),
        parameters={"rate": rate},
        evidence=f"the pace changes {len(rates) - 1} times in {len(counts)} slots, between "
        f"{min(rates):.3g} and {max(rates):.3g} per second",
    )


def _around(
    series: CountSeries,
    group: int,
    rate: Estimate,
    counts: npt.NDArray[Any],
    shape: npt.NDArray[Any],
) -> tuple[Estimate, float]:
    """Return the pace and its error; variation that `shape` explains does not widen it."""
    met = shape > 0
    excess = float((((counts - shape) ** 2)[met] / shape[met]).mean())
    error = math.sqrt(max(1.0, excess) / max(1, int(series.firsts[group])))
    wide = math.exp(_Z * error)
    return Estimate(rate.value, rate.value / wide, rate.value * wide), error


def _round_to(at_ns: float) -> int:
    unit = SECOND_NS if at_ns >= 10 * SECOND_NS else 1_000_000
    return round(at_ns / unit) * unit


def _segments(counts: npt.NDArray[np.int64]) -> list[int]:
    """Divide slots into stretches of one rate, at least cost; each further stretch has a penalty.

    The penalty grows with the dispersion of neighbouring slots, which bursts raise and steps do
    not.
    """
    size = len(counts)
    price = 4 * math.log(size) * max(1.0, _local_dispersion(counts))
    sums = np.r_[0.0, np.cumsum(counts)]

    def cost(low: int, high: int) -> float:
        total = sums[high] - sums[low]
        return 0.0 if total <= 0 else -2 * total * math.log(total / (high - low))

    best: list[list[tuple[float, int]]] = [[(0.0, 0)] + [(math.inf, 0)] * size]
    for _ in range(_MOST_STEPS):
        row = [(math.inf, 0)] * (size + 1)
        for high in range(1, size + 1):
            tries = [(best[-1][low][0] + cost(low, high), low) for low in range(high)]
            row[high] = min(tries)
        best.append(row)
    prices = [row[size][0] + price * number for number, row in enumerate(best)]
    edges, at = [size], size
    for number in range(int(np.argmin(prices[1:])) + 1, 0, -1):
        at = best[number][at][1]
        edges.append(at)
    return edges[::-1]


def _explains(series: CountSeries, group: int, pace: Pace) -> bool:
    """Whether bursts alone would make the pace vary as much over the window as it does."""
    parts = series.slots[group].reshape(12, -1).sum(axis=1)
    seen = float(parts.var(ddof=1)) / max(float(parts.mean()), 1e-9)
    return seen <= _TOO_MUCH * own_dispersion(pace)


def own_dispersion(pace: Pace) -> float:
    """Return the index of dispersion over long times that the process itself has."""
    arrivals = pace.arrivals
    if not isinstance(arrivals, draws.OnOffArrivals):
        return 1.0
    fast, slow = (rate[0] / rate[1] * 1e9 for rate in (arrivals.on_rate, arrivals.off_rate))
    leave, come = 1e9 / arrivals.on_ns, 1e9 / arrivals.off_ns
    mean = fast * come + slow * leave
    return 1 + 2 * (fast - slow) ** 2 * leave * come / ((leave + come) ** 2 * mean)


def _day(series: CountSeries, group: int, rate: Estimate, sd: float) -> Pace | None:
    """Return a daily shape, where the log is long enough and the hours differ."""
    hours = series.hours[group]
    if series.span_ns < 20 * _HOUR_NS or hours.sum() < 24 * 5:
        return None
    met = _hours_met(series)
    mean = hours.sum() / met.sum()
    expected = mean * met
    with np.errstate(divide="ignore", invalid="ignore"):
        excess = np.where(expected > 0, (hours - expected) ** 2 / expected, 0.0).sum()
    if excess < 2 * 24 * max(1.0, _local_dispersion(series.slots[group])):
        return None
    weights = np.where(met > 0, hours / np.maximum(met, 1e-9) / mean, 1.0)
    shape = tuple(round(float(weight), 2) for weight in weights)
    arrivals = draws.DailyArrivals(rate=nice_rate(rate.value), hours=shape)
    peak = int(np.argmax(weights))
    rate, sd = _around(series, group, rate, hours, expected * weights)
    return Pace(
        *("open", "daily", rate, sd, arrivals),
        parameters={"rate": rate},
        evidence=f"the busiest hour, {peak}:00 UTC, has {weights.max():.2g} times the mean, the "
        f"quietest {weights.min():.2g}",
    )


def _hours_met(series: CountSeries) -> Floats:
    hours = np.zeros(24)
    at, end = series.start_ns, series.start_ns + series.span_ns
    while at < end:
        border = (at // _HOUR_NS + 1) * _HOUR_NS
        hours[at // _HOUR_NS % 24] += (min(border, end) - at) / _HOUR_NS
        at = border
    return hours


def _local_dispersion(slots: npt.NDArray[np.int64]) -> float:
    """Return the dispersion of neighbouring slots, which a slow trend does not raise."""
    return float((np.diff(slots) ** 2).mean()) / (2 * max(float(slots.mean()), 1e-9))


# --- bursts --------------------------------------------------------------------------------------


def _bursts(
    series: CountSeries, group: int, rate: Estimate, sd: float, clients: float
) -> Pace | None:
    """Return on-off arrivals, where requests come in bursts."""
    borders_ns = series.hints.burst_gap_ns
    if borders_ns is None or not borders_ns[group]:
        return None
    short, short_ns, bursts, lonely, heads = series.runs[group].tolist()
    if bursts < 4:  # each has a short gap at least
        return None
    border_s = float(borders_ns[group]) / 1e9
    inner_s = _untruncated(short_ns / short / 1e9, border_s)
    on_rate, lonely_rate = 1 / inner_s, 0.0
    off_s = max(clients * series.span_ns / 1e9 - short_ns / 1e9, inner_s) / bursts
    if lonely > max(5.0, 0.6 * bursts) and lonely * inner_s < 0.05 * short_ns / 1e9:
        lonely_rate = lonely / (off_s * bursts)
    else:  # bursts of one request
        bursts += max(0.0, lonely + heads - clients)
    # In a burst a request is followed by another one with probability rate · on / (1 + rate · on).
    on_s = short / bursts / on_rate
    off_s = on_s * (on_rate - rate.value) / max(rate.value - lonely_rate, 1e-9)
    if off_s <= 0:
        return None
    if on_s + off_s > series.span_ns / 1e9 * 20:
        return None
    arrivals = draws.OnOffArrivals(
        on_rate=nice_rate(on_rate),
        off_rate=nice_rate(lonely_rate) if lonely_rate else Rate(0, SECOND_NS),
        on_ns=nice_ns(on_s * 1e9),
        off_ns=nice_ns(off_s * 1e9),
        begin="either",
    )
    part = _Z / math.sqrt(bursts)
    of_short = _Z / math.sqrt(short)
    parameters = {
        "on_rate": _spread(on_rate, of_short + 0.02),
        "on": _spread(on_s, part + 0.02),
        "off": _spread(off_s, 1.5 * part + 0.1),
    }
    if lonely_rate:
        parameters["off_rate"] = _spread(lonely_rate, _Z / math.sqrt(lonely) + 0.1)
    return Pace(
        *("open", "on-off", rate, max(sd, 0.0), arrivals),
        parameters=parameters,
        evidence=f"{bursts:,.0f} bursts, {short / bursts + 1:.3g} requests each, pauses above "
        f"{border_s:.3g} s; gaps vary {series.gaps.variation(group):.2g} times as much as their "
        "mean",
    )


def _untruncated(mean: float, border: float) -> float:
    """Return the mean of exponential gaps of which only those below a border were seen."""
    estimate = mean = max(mean, 1e-9)
    for _ in range(50):
        over = border / estimate
        if over > 30:
            return estimate
        estimate = mean + border / math.expm1(over)
        if estimate > 50 * mean:
            return mean
    return estimate


def _spread(value: float, relative: float) -> Estimate:
    wide = math.exp(min(relative, 3.0))
    return Estimate(value, value / wide, value * wide)


# --- open or closed ------------------------------------------------------------------------------


def _awaited(series: CountSeries, group: int, rate: Estimate) -> float | None:
    """Return how many new requests were expected between a request and its retries if none came.

    None where some are, or where there are too few retries to tell.
    """
    further = int(series.attempts[group, 2:].sum())
    expected = rate.value * float(series.chained_ns[group]) / 1e9
    crossed = int(series.interleaved[group]) > max(2.0, 0.02 * further)
    return None if crossed or further < 10 or expected < 5 else expected


def _halting(series: CountSeries, group: int, rate: Estimate, sd: float) -> Pace | None:
    """Return a closed loop of several requests at once, where refusals bring a client to a halt.

    In an open loop a gap after a refusal is like any other. In a closed loop of several requests, a
    long gap follows the refusal of the last request under way, until one of them is retried. So
    refusals divided by long gaps after a refusal is the number of requests under way.
    """
    going, halts = series.all_gaps, series.halts
    refused = halts.number(group)
    mean_ns = going.mean_ns(group)
    if refused < 2 * _PARTS or halts.mean_ns(group) < _HALT * mean_ns:
        return None
    edges = gap_edges()[:-1]
    long = int(halts.counts[group][edges > _HALT * mean_ns].sum())
    lanes = round(refused / max(1, long))
    if not 1 < lanes <= _MOST_LANES:
        return None
    cycle_s = mean_ns / 1e9 * lanes
    spread = _spread(cycle_s, 0.1 + _Z * going.variation(group) / math.sqrt(going.number(group)))
    return Pace(
        *("closed", "think-constant", rate, min(sd, 0.02)),
        think=draws.Constant(value_ns=nice_ns(cycle_s * 1e9)),
        parameters={"think": spread},
        concurrency=lanes,
        evidence=f"after {refused:,} refusals the next request came {_ms(halts.mean_ns(group))} "
        f"later on average, else {_ms(mean_ns)}: refusals halt a client that has about {lanes} "
        "requests under way; the pause includes the time of an answer",
    )


def _loop(series: CountSeries, group: int, rate: Estimate, sd: float) -> Pace:
    """Return Poisson arrivals, or think times where gaps are too regular for them."""
    interleaved = int(series.interleaved[group])
    further = int(series.attempts[group, 2:].sum())
    words = f"gaps vary {series.gaps.variation(group):.2f} times as much as their mean"
    crossed = interleaved > max(2.0, 0.02 * further)
    if not crossed and series.thinks.variation(group) < _REGULAR:
        return _closed(series, group, rate, sd, None)
    pace = _poisson(rate, sd)
    pace.evidence = words
    if crossed:
        pace.evidence += f"; {interleaved} retries came after a newer request: clients do not wait"
    elif further >= 10 or series.refusals[group]:
        pace.lost.append("whether clients wait for an answer before the next request")
    return pace


def _closed(
    series: CountSeries, group: int, rate: Estimate, sd: float, expected: float | None
) -> Pace:
    thinks = series.thinks
    variation, number = thinks.variation(group), thinks.number(group)
    firsts = max(1, int(series.firsts[group]))
    # Pauses that outlast the window are not among the gaps, so the time is divided instead.
    mean_s = 1 / rate.value - float(series.chained_ns[group]) / 1e9 / firsts
    spread = _spread(mean_s, max(2.1 * max(variation, 0.05) / math.sqrt(firsts), 0.01))
    why = f"mean of {number:,} pauses after an answer, which vary {variation:.2f} times as much"
    if expected is not None:
        why += f"; independent arrivals would put {expected:.0f} requests among retries, not none"
    if variation >= _REGULAR:
        think: draws.Draw = draws.Exponential(mean_ns=nice_ns(mean_s * 1e9))
        kind = "think-exponential"
    else:
        sigma = math.sqrt(math.log1p(variation**2))
        median = mean_s / math.exp(sigma**2 / 2)
        think = draws.Lognormal(median_ns=nice_ns(median * 1e9), sigma=round(sigma, 2))
        kind = "think-lognormal"
    return Pace(
        *("closed", kind, rate, sd),
        think=think,
        parameters={"think": spread},
        evidence=why,
    )


def _ms(duration_ns: float) -> str:
    return format_duration(nice_ns(duration_ns))


# --- retries -------------------------------------------------------------------------------------


@dataclass(slots=True)
class RetryFit:
    """What clients do after a refusal. evidence: why, in words. lost: what is not known."""

    retry: Retry
    parameters: dict[str, Estimate] = field(default_factory=dict)
    evidence: str = ""
    lost: list[str] = field(default_factory=list)


def retry_of(series: CountSeries, group: int) -> RetryFit:
    """Return what the clients of a group do after a refusal."""
    refused = int(series.refusals[group])
    further = int(series.attempts[group, 2:].sum())
    if not refused:
        fit = RetryFit(NoRetry())
        fit.lost.append("what clients do after a refusal: none was refused")
        return fit
    if further < 5 or further < 0.02 * refused:
        return RetryFit(NoRetry(), evidence=f"{refused:,} refusals, {further} further attempts")
    attempts = _attempts(series, group)
    crossed = int(series.interleaved[group]) > 0.02 * further
    delays = _crossed_delays(series, group) if crossed else _delays(series, group)
    words = (
        f"{further:,} further attempts after {refused:,} refusals, up to "
        f"{np.flatnonzero(series.attempts[group]).max()} of a request; the first after "
        f"{delays.first_s:.3g} s on average"
    )
    if delays.honours:
        words += ", hardly any before Retry-After had passed"
    fit = RetryFit(NoRetry(), {"attempts": attempts}, words)
    common: dict[str, Any] = {
        "attempts": max(2, round(attempts.value)),
        "honour_retry_after": delays.honours,
    }
    if delays.hidden:
        fit.retry = FixedRetry(delay_ns=SECOND_NS, **common)
        fit.lost.append("the clients' own delays, which are shorter than Retry-After")
        return fit
    fit.retry, parameters = _delay(delays, common)
    fit.parameters |= parameters
    return fit


def _attempts(series: CountSeries, group: int) -> Estimate:
    """Return the attempts of a request: exact where several ended at a number that is counted."""
    most = int(np.flatnonzero(series.attempts[group]).max())
    gave_up = int(series.refused_attempts[group, most])
    before = int(series.refused_attempts[group, most - 1])
    if most < MOST_ATTEMPTS and (gave_up >= 3 or (gave_up and gave_up >= 0.2 * before)):
        return Estimate(most, most, most)
    return Estimate(max(most, 5), most, math.inf)


def _delay(delays: _Delays, common: dict[str, Any]) -> tuple[Retry, dict[str, Estimate]]:
    base_s, variation = delays.base_s, delays.variation
    sure = _Z * max(variation, 0.05) / math.sqrt(max(1, delays.number))
    retry: Retry
    if variation < _STEADY and delays.growth < _GROWS:
        retry = FixedRetry(delay_ns=nice_ns(base_s * 1e9), **common)
        return retry, {"delay": _spread(base_s, 0.05 + sure)}
    if variation < _STEADY:
        cap_ns = nice_ns(delays.longest_s * 1e9)
        retry = ExponentialRetry(base_ns=nice_ns(base_s * 1e9), cap_ns=cap_ns, **common)
        return retry, {"base": _spread(base_s, 0.05 + sure)}
    if not delays.honours and delays.least_s > 0.3 * base_s and variation < 0.45:
        low_s = base_s / 2
        top = nice_ns(max(delays.longest_s, low_s) * 1e9)
        retry = DecorrelatedJitter(base_ns=nice_ns(low_s * 1e9), cap_ns=top, **common)
        return retry, {"base": _spread(low_s, 0.1 + sure)}
    top = nice_ns(max(delays.longest_s, 2 * base_s) * 1e9)
    retry = FullJitter(base_ns=nice_ns(2 * base_s * 1e9), cap_ns=top, **common)
    return retry, {"base": _spread(2 * base_s, 0.15 + sure)}


class _Delays(NamedTuple):
    """The delays before the retries of a group.

    honours: whether retries wait as long as Retry-After asks. hidden: whether it is longer than
    nearly all delays of the clients' own; then nothing is known of their growth. growth: from retry
    to retry. variation: coefficient of variation.
    """

    number: int
    honours: bool
    hidden: bool
    first_s: float
    least_s: float
    base_s: float = 0.0
    growth: float = 1.0
    variation: float = 0.0
    longest_s: float = 0.0


def _delays(series: CountSeries, group: int) -> _Delays:
    """Return the delays of clients whose retries are told from their other requests."""
    number = sum(gaps.number(group) for gaps in series.delays)
    waited = int(series.waited[group])
    honours = waited >= 5 and int(series.honoured[group]) >= 0.97 * waited
    beyond = sum(gaps.number(group) for gaps in series.beyond)
    hidden = honours and beyond < max(5, 0.1 * number)
    first_s = series.delays[0].mean_ns(group) / 1e9
    least_s = float(series.delays[0].least_ns[group]) / 1e9
    known = _Delays(number, honours, hidden, first_s, least_s)
    counted = series.beyond if honours else series.delays
    means = [gaps.mean_ns(group) / 1e9 for gaps in counted]
    enough = [n for n in range(LAG_CHAIN) if counted[n].number(group) >= 5]
    if not enough:
        only_s = max(first_s, 1e-3)
        return known._replace(base_s=only_s, variation=0.6, longest_s=only_s)
    first = enough[0]
    variation = counted[first].variation(group)
    if honours:  # what outlasts Retry-After reaches up to the longest delay of its step
        tops = {n: counted[n].quantile_ns(group, 1.0) / 1e9 for n in enough}
        longest_s = max(tops.values())
        if variation < _STEADY:
            return known._replace(base_s=max(means[first], 1e-3), longest_s=longest_s)
        base_s = max(tops[first] / 2 ** (first + 1), 1e-3)
        return known._replace(base_s=base_s, growth=2.0, variation=1.0, longest_s=longest_s)
    base_s = means[first] / 2**first
    growths = [means[n + 1] / max(means[n], 1e-9) for n in enough if n + 1 in enough]
    top_s = max(counted[n].quantile_ns(group, 0.99) for n in enough) / 1e9
    return known._replace(
        base_s=max(base_s, 1e-3),
        growth=growths[0] if growths else 1.0,
        variation=variation,
        longest_s=max(top_s, base_s),
    )


def _crossed_delays(series: CountSeries, group: int) -> _Delays:
    """Return the delays of clients with overlapping requests: what a retry repeats is not known.

    The mean delay is known: the mean instant of the attempts of one number, minus that of the
    refused attempts of the number before.
    """
    means: list[float] = []
    busy = np.flatnonzero(series.slots[group])
    end_s = (int(busy[-1]) + 1) / SLOTS * series.span_ns / 1e9
    for place in range(2, 2 + LAG_CHAIN):
        number = int(series.attempts[group, place])
        refused = int(series.refused_attempts[group, place - 1])
        if number < 10 or refused < number:
            break
        missing = refused - number
        total = float(series.refused_times_s[group, place - 1])
        if missing <= 0.1 * refused:  # refused too near the end to be repeated
            total -= missing * end_s
            mean = total / number
        else:
            mean = total / refused
        means.append(max(float(series.times_s[group, place]) / number - mean, 1e-3))
    asked_s = float(series.asked_s[group]) / max(1, int(series.asked[group]))
    first_s = means[0] if means else 1.0
    honours = asked_s > 0 and first_s >= 0.8 * asked_s
    hidden = not means or (honours and first_s < 1.3 * asked_s)
    known = _Delays(int(series.attempts[group, 2:].sum()), honours, hidden, first_s, least_s=0.0)
    if not means:
        return known
    growth = means[1] / means[0] if len(means) > 1 else 1.0
    return known._replace(
        base_s=first_s,
        growth=growth,
        variation=0.6 if growth > _GROWS else 0.0,
        longest_s=2 * max(means),
    )
