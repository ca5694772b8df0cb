"""Arrivals of an open loop: instants in whole nanoseconds, one after the other, never decreasing.

Each process is an iterator fed by one named stream, so it yields the same instants whoever asks
for them and however fast answers come.

- `constant`: exactly N per W, in exact integers; the k-th at ⌊k · W / N⌋ after the start.
- `poisson`: independent exponential gaps.
- `varying`: a Poisson process whose rate follows straight pieces (steps, ramps, days), by
  inverting the cumulative rate: the area between two arrivals is exponential with mean 1.
  `next_varying_ns` is one step of it.
- `on_off`: a Poisson process that is switched on and off after exponential times (an interrupted,
  or with a rate in both phases a two-state Markov-modulated, Poisson process); `next_burst_ns` is
  one step of it.

The steps are plain functions over rows of numbers, which both drivers use.

Closed loops, whose next request waits for the last answer, are in `simulator.play`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, MutableSequence, Sequence
from itertools import count
from typing import Any, Final, NamedTuple, TypeAlias

from simulator.traffic.draws import Stream, exponential_ns, nearest_ns

NEVER_NS: Final = 1 << 62
"""After every instant of a run."""

# The state of a process: the numbers of its streams (of arrivals, of switches), where the present
# phase or piece begins and ends, whether it is on, whether it has a next arrival, the last arrival.
# Beside it, of varying rates, how far the piece has passed, and the area until the next arrival.
SOURCE, SWITCHES, BEGINS, ENDS, IS_ON, ACTIVE, AT = range(7)
PASSED, DUE = range(2)

Streams: TypeAlias = Any
Draw: TypeAlias = Callable[[Streams, int], float]
"""`draw(streams, number)`: the next number in (0, 1) of one of some streams."""

Ints: TypeAlias = MutableSequence[int]
Floats: TypeAlias = MutableSequence[float]


def _uniform(streams: Sequence[Stream], number: int) -> float:
    return streams[number].uniform()


class Piece(NamedTuple):
    """A straight piece of a rate: from one value to another, in requests a nanosecond."""

    length_ns: int
    from_rate: float
    to_rate: float


def constant(limit_requests: int, window_ns: int, *, start_ns: int = 0) -> Iterator[int]:
    """Yield exactly `limit_requests` instants each `window_ns`, evenly spread.

    >>> it = constant(3, 10)
    >>> [next(it) for _ in range(5)]
    [0, 3, 6, 10, 13]
    """
    for number in count():
        yield start_ns + number * window_ns // limit_requests


def poisson(
    stream: Stream, limit_requests: int, window_ns: int, *, start_ns: int = 0
) -> Iterator[int]:
    """Yield the instants of a Poisson process of `limit_requests` each `window_ns` on average."""
    mean_ns = window_ns / limit_requests
    now_ns = start_ns
    while True:
        now_ns += exponential_ns(stream.uniform(), mean_ns)
        yield now_ns


def varying(stream: Stream, pieces: Iterable[Piece], *, start_ns: int = 0) -> Iterator[int]:
    """Yield the instants of a Poisson process whose rate follows `pieces`; ends with them."""
    streams, line, state = (stream,), [0] * (AT + 1), [0.0, next_due(_uniform, (stream,), 0)]
    line[BEGINS] = start_ns
    for piece in pieces:
        while (at_ns := next_varying_ns(_uniform, streams, line, state, piece)) < NEVER_NS:
            yield at_ns


def next_due(draw: Draw, streams: Streams, number: int) -> float:
    """Return the area until the next arrival of a varying rate."""
    return -math.log(1.0 - draw(streams, number))


def next_varying_ns(draw: Draw, streams: Streams, line: Ints, state: Floats, piece: Piece) -> int:
    """Return the next arrival in a piece; `NEVER_NS` where there is none, before the next piece."""
    found = _distance(piece, state[PASSED], state[DUE])
    if found is None:
        state[DUE] = max(state[DUE] - _area(piece, state[PASSED], float(piece.length_ns)), 0.0)
        state[PASSED] = 0.0
        line[BEGINS] += piece.length_ns
        return NEVER_NS
    state[PASSED] = found
    state[DUE] = next_due(draw, streams, line[SOURCE])
    return line[BEGINS] + nearest_ns(found)


def on_off(
    switches: Stream,
    stream: Stream,
    *,
    on: tuple[int, int],
    off: tuple[int, int] | None,
    on_mean_ns: float,
    off_mean_ns: float,
    start_ns: int = 0,
    is_on: bool = True,
) -> Iterator[int]:
    """Yield the instants of bursts; `on` and `off` are rates (requests, window_ns), None = silent.

    is_on: the first state. The exponential gaps have no memory, so at a switch the gap is drawn
    anew.
    """
    streams, line = (stream, switches), [0, 1, start_ns, start_ns, int(is_on), 0, start_ns]
    gaps_ns = [rate[1] / rate[0] if rate is not None else 0.0 for rate in (on, off)]
    means_ns = [on_mean_ns, off_mean_ns]
    while True:
        yield next_burst_ns(_uniform, streams, line, means_ns, gaps_ns, NEVER_NS)


def next_burst_ns(
    draw: Draw, streams: Streams, line: Ints, means_ns: Floats, gaps_ns: Floats, stop_ns: int
) -> int:
    """Return the next arrival of bursts; `NEVER_NS` where no phase begins before `stop_ns`.

    means_ns, gaps_ns: the mean length of a phase that is on, and of one that is off, and the mean
    gaps of arrivals in them; a gap of 0 is silence.
    """
    while True:
        phase = 0 if line[IS_ON] else 1
        gap_ns = gaps_ns[phase]
        if line[ACTIVE]:
            line[AT] += exponential_ns(draw(streams, line[SOURCE]), gap_ns)
        else:
            lasts_ns = exponential_ns(draw(streams, line[SWITCHES]), means_ns[phase])
            line[ENDS] = line[BEGINS] + max(1, lasts_ns)
            line[AT] = line[ENDS]
            if gap_ns > 0.0:
                line[AT] = line[BEGINS] + exponential_ns(draw(streams, line[SOURCE]), gap_ns)
                line[ACTIVE] = 1
        if line[AT] < line[ENDS]:
            return line[AT]
        line[BEGINS] = line[ENDS]
        line[IS_ON] = phase
        line[ACTIVE] = 0
        if line[BEGINS] >= stop_ns:
            return NEVER_NS


def _area(piece: Piece, begin: float, end: float) -> float:
    """Return how many requests a piece holds on average between two distances from its start."""
    slope = (piece.to_rate - piece.from_rate) / piece.length_ns if piece.length_ns else 0.0
    return (piece.from_rate + slope * (begin + end) * 0.5) * (end - begin)


def _distance(piece: Piece, begin: float, due: float) -> float | None:
    """Return the distance from the piece's start at which `due` more requests are due, or None.

    Solves rate · x + slope · x² / 2 = due in the form that loses no digits as the slope vanishes.
    """
    if piece.length_ns <= 0:
        return None
    slope = (piece.to_rate - piece.from_rate) / piece.length_ns
    rate = piece.from_rate + slope * begin
    under_root = rate * rate + 2.0 * slope * due
    if under_root < 0.0:
        return None
    below = rate + math.sqrt(under_root)
    if below <= 0.0:
        return None
    at = begin + 2.0 * due / below
    return at if at < piece.length_ns else None
