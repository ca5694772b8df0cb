"""Arrivals of an open loop: instants in whole nanoseconds, one after the other, never decreasing.

Each process is an iterator fed by one named stream, so it yields the same instants whoever asks
for them and however fast answers come.

- `constant`: exactly N per W, in exact integers; the k-th at ⌊k · W / N⌋ after the start.
- `poisson`: independent exponential gaps.
- `varying`: a Poisson process whose rate follows straight pieces (steps, ramps, days), by
  inverting the cumulative rate: the area between two arrivals is exponential with mean 1.
- `on_off`: a Poisson process that is switched on and off after exponential times (an interrupted,
  or with a rate in both phases a two-state Markov-modulated, Poisson process).

Closed loops, whose next request waits for the last answer, are in `simulator.play`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from itertools import count
from typing import NamedTuple

from simulator.traffic.draws import Stream, exponential_ns, nearest_ns

__all__ = ["Piece", "constant", "on_off", "poisson", "varying"]


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
    begins_ns = start_ns
    due = -math.log(1.0 - stream.uniform())
    for piece in pieces:
        passed = 0.0
        while True:
            at = _distance(piece, passed, due)
            if at is None:
                break
            passed = at
            yield begins_ns + nearest_ns(passed)
            due = -math.log(1.0 - stream.uniform())
        due -= _area(piece, passed, float(piece.length_ns))
        due = max(due, 0.0)
        begins_ns += piece.length_ns


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
    begins_ns = start_ns
    while True:
        mean_ns = on_mean_ns if is_on else off_mean_ns
        ends_ns = begins_ns + max(1, exponential_ns(switches.uniform(), mean_ns))
        rate = on if is_on else off
        if rate is not None:
            gap_ns = rate[1] / rate[0]
            now_ns = begins_ns + exponential_ns(stream.uniform(), gap_ns)
            while now_ns < ends_ns:
                yield now_ns
                now_ns += exponential_ns(stream.uniform(), gap_ns)
        begins_ns = ends_ns
        is_on = not is_on


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
