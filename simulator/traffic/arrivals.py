"""Arrivals of an open loop: instants in whole nanoseconds, one after the other, never decreasing.

A process is a kind and a few rows of numbers, which `simulator.traffic.sampling` makes of a
scenario's words. `next_arrival_ns` and what it calls are plain functions over such rows: the
reference interprets them over lists, compiled code runs them over arrays. Each client's process is
fed by streams of its own, so it has the same instants whoever asks for them and however fast
answers come.

- `CONSTANT`: exactly N per W, in exact integers; the k-th at ⌊k · W / N⌋ after the start.
- `POISSON`: independent exponential gaps.
- `ON_OFF`: a Poisson process that is switched on and off after exponential times (an interrupted,
  or with a rate in both phases a two-state Markov-modulated, Poisson process).
- `VARYING`: a Poisson process whose rate follows straight pieces (steps, ramps, days), by inverting
  the cumulative rate: the area between two arrivals is exponential with mean 1.
- `REPLAYED`: instants of a file.

Closed loops, whose next request waits for the last answer, are in `simulator.play`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, MutableSequence, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from simulator.traffic.draws import exponential_ns, nearest_ns

NEVER_NS: Final = 1 << 62
"""After every instant of a run."""

CONSTANT, REPLAYED, POISSON, ON_OFF, VARYING = range(5)

# The state of a process: the numbers of its streams (of arrivals, of switches), where the present
# phase or piece begins and ends, whether it is on, whether its phase has begun, the last arrival,
# how many arrivals or pieces it has passed. Beside it, of varying rates, how far the piece has
# passed.
SOURCE, SWITCHES, BEGINS, ENDS, IS_ON, ACTIVE, AT, NUMBER = range(8)
PASSED: Final = 0

Streams: TypeAlias = Any
Draw: TypeAlias = Callable[[Streams, int], float]
"""`draw(streams, number)`: the next number in (0, 1) of one of some streams."""

Ints: TypeAlias = MutableSequence[int]
Floats: TypeAlias = MutableSequence[float]


class Piece(NamedTuple):
    """A straight piece of a rate: from one value to another, in requests a nanosecond."""

    length_ns: int
    from_rate: float
    to_rate: float


PIECE_WIDTH: Final = 3


class Process(NamedTuple):
    """What all clients of a group have in common.

    rule: N and W, the mean times on and off, or where the pieces or the instants begin and how many
    there are. gaps_ns: the mean gaps of arrivals, on and off; a gap of 0 is silence. pieces:
    `PIECE_WIDTH` numbers each. instants: since the client's start. stop_ns: when the clients stop.
    """

    kind: int
    rule: Sequence[int]
    gaps_ns: Sequence[float]
    pieces: Sequence[float]
    instants: Sequence[int]
    stop_ns: int


def next_arrival_ns(
    draw: Draw, streams: Streams, process: Process, line: Ints, state: Floats
) -> int:
    """Return the next arrival of a process; `NEVER_NS` where there is none before its stop.

    >>> line, process = [0, 1, 0, 0, 1, 0, 0, 0], Process(CONSTANT, (3, 10), (), (), (), 99)
    >>> [next_arrival_ns(None, (), process, line, []) for _ in range(5)]
    [0, 3, 6, 10, 13]
    """
    kind = process.kind
    if kind == POISSON:
        u = draw(streams, line[SOURCE])
        line[AT] = at_ns = line[AT] + exponential_ns(u, process.gaps_ns[0])
        return at_ns
    if kind == ON_OFF:
        return next_burst_ns(draw, streams, process, line)
    if kind == VARYING:
        return next_varying_ns(draw, streams, process, line, state)
    number, one, two = line[NUMBER], process.rule[0], process.rule[1]
    line[NUMBER] = number + 1
    if kind == CONSTANT:
        place = number % one  # its product with `two` might not fit into 64 bits
        of_place_ns = place * (two // one) + place * (two % one) // one
        return line[BEGINS] + number // one * two + of_place_ns
    return line[BEGINS] + process.instants[one + number] if number < two else NEVER_NS


def next_varying_ns(
    draw: Draw, streams: Streams, process: Process, line: Ints, state: Floats
) -> int:
    """Return the next arrival of a varying rate; `NEVER_NS` behind its last piece."""
    due = -math.log(1.0 - draw(streams, line[SOURCE]))  # the area until the next arrival
    pieces, passed = process.pieces, state[PASSED]
    while line[NUMBER] < process.rule[1]:
        place = (process.rule[0] + line[NUMBER]) * PIECE_WIDTH
        length_ns, low, high = pieces[place], pieces[place + 1], pieces[place + 2]
        found = _distance(length_ns, low, high, passed, due)
        if found is not None:
            state[PASSED] = found
            return line[BEGINS] + nearest_ns(found)
        due = max(due - _area(length_ns, low, high, passed), 0.0)
        passed = 0.0
        line[BEGINS] += int(length_ns)
        line[NUMBER] += 1
    return NEVER_NS


def next_burst_ns(draw: Draw, streams: Streams, process: Process, line: Ints) -> int:
    """Return the next arrival of bursts; `NEVER_NS` where no phase begins before the stop.

    The exponential gaps have no memory, so at a switch the gap is drawn anew.
    """
    while True:
        phase = 0 if line[IS_ON] else 1
        gap_ns = process.gaps_ns[phase]
        if line[ACTIVE]:
            line[AT] += exponential_ns(draw(streams, line[SOURCE]), gap_ns)
        else:
            lasts_ns = exponential_ns(draw(streams, line[SWITCHES]), process.rule[phase])
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
        if line[BEGINS] >= process.stop_ns:
            return NEVER_NS


def _area(length_ns: float, low: float, high: float, begin: float) -> float:
    """Return how many requests a piece holds on average from a distance on, to its end.

    low, high: its first rate and its last one.
    """
    slope = (high - low) / length_ns if length_ns else 0.0
    return (low + slope * (begin + length_ns) * 0.5) * (length_ns - begin)


def _distance(length_ns: float, low: float, high: float, begin: float, due: float) -> float | None:
    """Return the distance from the piece's start at which `due` more requests are due, or None.

    Solves rate · x + slope · x² / 2 = due in the form that loses no digits as the slope vanishes.
    """
    if length_ns <= 0:
        return None
    slope = (high - low) / length_ns
    rate = low + slope * begin
    under_root = rate * rate + 2.0 * slope * due
    if under_root < 0.0:
        return None
    below = rate + math.sqrt(under_root)
    if below <= 0.0:
        return None
    at = begin + 2.0 * due / below
    return at if at < length_ns else None
