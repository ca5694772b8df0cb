"""Make a sampling function of a distribution, and an iterator of an arrival process.

The formulas are in `simulator.traffic.draws` and `simulator.traffic.arrivals`; this module picks
the one that a scenario's class names, once a client, so that a draw costs one call. It reads files
of arrivals too; of those only the instants matter, and the scenario says who asks for what. (An
access log through the limits is `simulator.study.replay`.)
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator
from itertools import count
from pathlib import Path
from typing import Final, TypeAlias

from engine.errors import InputError
from engine.files import Rate
from simulator.scenario import draws
from simulator.traffic.arrivals import Piece, constant, on_off, poisson, varying
from simulator.traffic.draws import (
    Stream,
    categorical,
    cumulative_weights,
    exponential_from,
    lognormal_ns,
    pareto_ns,
    uniform_ns,
)


class ReplayedInstants:
    """Files of arrivals, each read once a run."""

    def __init__(self) -> None:
        self._known: dict[tuple[Path, str | None], list[int]] = {}

    def of(self, replay: draws.ReplayArrivals) -> Iterator[int]:
        """Yield floor((t − t₀) / speed) of each line, sorted.

        Raises `InputError` with file:line for a file that cannot be read.
        """
        place = (replay.file.file, replay.column)
        stamps = self._known.get(place)
        if stamps is None:
            stamps = self._known[place] = _stamps(replay)
        first_ns = stamps[0]
        return ((at_ns - first_ns) // replay.speed for at_ns in stamps)


def _stamps(replay: draws.ReplayArrivals) -> list[int]:
    path = replay.file.file
    try:
        with path.open(encoding="utf-8-sig", newline="") as lines:
            stamps = sorted(_read(replay, lines))
    except (OSError, UnicodeDecodeError) as fault:
        reason = getattr(fault, "strerror", None) or "it is no UTF-8 text"
        raise InputError(f"{path} must be a readable file of arrival times; {reason}") from None
    if not stamps:
        raise InputError(f"{path} must hold at least one arrival time; it holds none")
    return stamps


def _read(replay: draws.ReplayArrivals, lines: Iterable[str]) -> Iterator[int]:
    from simulator.logs._log_map import Rejected  # noqa: PLC0415 # reason: as below
    from simulator.logs._values import CLOCKS  # noqa: PLC0415 # reason: readers of logs bring all of Arrow

    seconds, iso = CLOCKS["s"], CLOCKS["iso"]
    for number, text in _texts(replay, lines):
        read = seconds if text.lstrip("-").replace(".", "", 1).isdigit() else iso
        try:
            yield read(text)
        except Rejected as fault:
            raise InputError(f"{replay.file.file}:{number}:1: {fault}") from None


def _texts(replay: draws.ReplayArrivals, lines: Iterable[str]) -> Iterator[tuple[int, str]]:
    if replay.column is None:
        for number, line in enumerate(lines, start=1):
            text = line.strip()
            if text and not text.startswith("#"):
                yield number, text
        return
    rows = csv.DictReader(lines)
    if replay.column not in (rows.fieldnames or ()):
        known = ", ".join(rows.fieldnames or ())
        raise InputError(
            f"{replay.file.file}:1:1: column = {replay.column!r} must be in the header; "
            f"it has {known}"
        )
    for row in rows:
        yield rows.line_num, (row[replay.column] or "").strip()


_HOURS: Final = 24
_FOREVER_NS: Final = 1 << 60


Duration: TypeAlias = int | Callable[[], int]
"""A duration in ns, or a function that draws the next one."""


def drawn_ns(duration: Duration) -> int:
    """Return the next duration."""
    return duration if isinstance(duration, int) else duration()


def duration_of(draw: draws.Draw, stream: Callable[[], Stream]) -> Duration:
    """Return the constant duration, or a function that draws the next one from `stream`.

    `stream` is called only where something is drawn, so that constants cost no stream.
    """
    if isinstance(draw, draws.Constant):
        return draw.value_ns
    uniform = stream().uniform
    if isinstance(draw, draws.Uniform):
        low_ns, high_ns = draw.low_ns, draw.high_ns
        return lambda: uniform_ns(uniform(), low_ns, high_ns)
    if isinstance(draw, draws.Exponential):
        return exponential_from(uniform, draw.mean_ns)
    if isinstance(draw, draws.Lognormal):
        median_ns, sigma = draw.median_ns, draw.sigma
        return lambda: lognormal_ns(uniform(), median_ns, sigma)
    if isinstance(draw, draws.Discrete):
        values_ns = draw.values_ns
        table = cumulative_weights(draw.weights or (1.0,) * len(values_ns))
        return lambda: values_ns[categorical(uniform(), table)]
    least_ns, alpha = draw.least_ns, draw.alpha
    return lambda: pareto_ns(uniform(), least_ns, alpha)


def arrivals_of(
    arrivals: draws.Arrivals,
    stream: Callable[[str], Stream],
    *,
    start_ns: int,
    start_time_ns: int,
    replayed_ns: Callable[[draws.ReplayArrivals], Iterator[int]],
) -> Iterator[int]:
    """Return the instants at which an open-loop client's requests begin, never decreasing.

    stream: by purpose. start_time_ns: the run's start on the wall clock, for days.
    replayed_ns: reads a replay's file as instants from 0.
    """
    if isinstance(arrivals, draws.ConstantArrivals):
        return constant(*arrivals.rate, start_ns=start_ns)
    if isinstance(arrivals, draws.ReplayArrivals):
        return (start_ns + at_ns for at_ns in replayed_ns(arrivals))
    source = stream("arrivals")
    if isinstance(arrivals, draws.PoissonArrivals):
        return poisson(source, *arrivals.rate, start_ns=start_ns)
    if isinstance(arrivals, draws.OnOffArrivals):
        return on_off(
            stream("switches"),
            source,
            on=arrivals.on_rate,
            off=arrivals.off_rate if arrivals.off_rate[0] else None,
            on_mean_ns=arrivals.on_ns,
            off_mean_ns=arrivals.off_ns,
            start_ns=start_ns,
            is_on=begins_on(arrivals, stream),
        )
    return varying(source, pieces_of(arrivals, start_ns, start_time_ns), start_ns=start_ns)


def begins_on(arrivals: draws.OnOffArrivals, stream: Callable[[str], Stream]) -> bool:
    """Return whether bursts begin on; where either may be, it is drawn from a stream of its own."""
    if arrivals.begin == "on":
        return True
    share = arrivals.on_ns / (arrivals.on_ns + arrivals.off_ns)
    return stream("phase").uniform() < share


def pieces_of(
    arrivals: draws.StepArrivals | draws.RampArrivals | draws.DailyArrivals,
    start_ns: int,
    start_time_ns: int,
) -> Iterator[Piece]:
    """Yield the straight pieces of a rate from the client's start on, without end."""
    if isinstance(arrivals, draws.RampArrivals):
        low, high = _rate(arrivals.from_rate), _rate(arrivals.to_rate)
        yield Piece(arrivals.over_ns, low, high)
        yield Piece(_FOREVER_NS, high, high)
    elif isinstance(arrivals, draws.StepArrivals):
        steps = arrivals.steps
        yield Piece(steps[0].at_ns, 0.0, 0.0)
        ends_ns = [step.at_ns for step in steps[1:]] + [_FOREVER_NS]
        for step, end_ns in zip(steps, ends_ns, strict=True):
            yield Piece(end_ns - step.at_ns, _rate(step.rate), _rate(step.rate))
    else:
        yield from _days(arrivals, start_ns, start_time_ns)


def _days(arrivals: draws.DailyArrivals, start_ns: int, start_time_ns: int) -> Iterator[Piece]:
    """Yield hourly pieces from the client's start; a day of 24 h follows the UTC clock."""
    mean = _rate(arrivals.rate) * _HOURS / sum(arrivals.hours)
    borders_ns = [hour * arrivals.day_ns // _HOURS for hour in range(_HOURS + 1)]
    hours = [
        Piece(borders_ns[hour + 1] - borders_ns[hour], mean * weight, mean * weight)
        for hour, weight in enumerate(arrivals.hours)
    ]
    is_day = arrivals.day_ns == _HOURS * 3_600 * 1_000_000_000
    into_ns = (start_time_ns + start_ns) % arrivals.day_ns if is_day else 0
    for hour in count():
        piece, begins_ns = hours[hour % _HOURS], borders_ns[hour % _HOURS]
        if hour < _HOURS and begins_ns + piece.length_ns <= into_ns:
            continue
        gone_ns = max(0, into_ns - begins_ns) if hour < _HOURS else 0
        yield piece._replace(length_ns=piece.length_ns - gone_ns)


def _rate(rate: Rate) -> float:
    return rate.limit_requests / rate.window_ns
