"""Arrivals of an open loop: instants in whole nanoseconds, one after the other, never decreasing.

A process belongs to a client group; `instants` runs it for one client, which has streams of its
own. So a client has the same instants whoever asks for them and however fast answers come.

- `ConstantProcess`: exactly N per W, in exact integers; the k-th at ⌊k · W / N⌋ after the start.
- `PoissonProcess`: independent exponential gaps.
- `OnOffProcess`: a Poisson process that is switched on and off after exponential times (an
  interrupted, or with a rate in both phases a two-state Markov-modulated, Poisson process).
- `VaryingProcess`: a Poisson process whose rate follows straight pieces (steps, ramps, days), by
  inverting the cumulative rate: the area between two arrivals is exponential with mean 1.
- `ReplayedProcess`: instants of a file.

Closed loops, whose next request waits for the last answer, are in `simulator.play`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import count
from typing import NamedTuple, TypeAlias

from engine.files import Rate
from simulator.traffic.draws import (
    exponential_area,
    exponential_ns,
    nearest_ns,
    requests_within,
    time_until,
)
from simulator.traffic.population import Client


@dataclass(frozen=True, slots=True)
class ConstantProcess:
    """Arrivals at equal gaps."""

    rate: Rate

    def instants(self, client: Client) -> Iterator[int]:
        """Yield the instants at which a client's requests begin."""
        for number in count():
            yield client.group.start_ns + number * self.rate.window_ns // self.rate.limit_requests


@dataclass(frozen=True, slots=True)
class PoissonProcess:
    """Independent arrivals. gap_ns: the mean gap."""

    gap_ns: float

    def instants(self, client: Client) -> Iterator[int]:
        """Yield the instants at which a client's requests begin."""
        uniform, at_ns = client.stream("arrivals").uniform, client.group.start_ns
        while True:
            at_ns += exponential_ns(uniform(), self.gap_ns)
            yield at_ns


@dataclass(frozen=True, slots=True)
class OnOffProcess:
    """Bursts: phases of exponential length, each with Poisson arrivals of its own rate.

    mean_ns, gaps_ns: mean length of a phase and mean gap in it, on and off; gap 0 is silence.
    begins_either: the first phase is drawn by its share of the time; else it is on. stop_ns: when
    the clients stop.
    """

    mean_ns: tuple[int, int]
    gaps_ns: tuple[float, float]
    begins_either: bool
    stop_ns: int

    def begins_on(self, client: Client) -> bool:
        """Return whether a client's first phase is on; drawn from a stream of its own."""
        if not self.begins_either:
            return True
        return client.stream("phase").uniform() < self.mean_ns[0] / sum(self.mean_ns)

    def instants(self, client: Client) -> Iterator[int]:
        """Yield the instants at which a client's requests begin.

        Exponential gaps have no memory, so at a switch the gap is drawn anew.
        """
        arrivals, switches = (client.stream(name).uniform for name in ("arrivals", "switches"))
        phase = 0 if self.begins_on(client) else 1
        begin_ns = client.group.start_ns
        while begin_ns < self.stop_ns:
            end_ns = begin_ns + max(1, exponential_ns(switches(), self.mean_ns[phase]))
            gap_ns = self.gaps_ns[phase]
            at_ns = begin_ns + exponential_ns(arrivals(), gap_ns) if gap_ns else end_ns
            while at_ns < end_ns:
                yield at_ns
                at_ns += exponential_ns(arrivals(), gap_ns)
            begin_ns, phase = end_ns, 1 - phase


class Piece(NamedTuple):
    """A straight piece of a rate: from one value to another, in requests a nanosecond."""

    length_ns: int
    from_rate: float
    to_rate: float


@dataclass(frozen=True, slots=True)
class VaryingProcess:
    """Poisson arrivals whose rate follows straight pieces from the client's start on."""

    pieces: Sequence[Piece]

    def instants(self, client: Client) -> Iterator[int]:
        """Yield the instants at which a client's requests begin."""
        uniform, begin_ns = client.stream("arrivals").uniform, client.group.start_ns
        due = exponential_area(uniform())
        for piece in self.pieces:
            into_ns = 0.0
            while (at_ns := time_until(due, *piece, into_ns)) is not None:
                yield begin_ns + nearest_ns(at_ns)
                due, into_ns = exponential_area(uniform()), at_ns
            due = max(due - requests_within(*piece, into_ns), 0.0)
            begin_ns += piece.length_ns


@dataclass(frozen=True, slots=True)
class ReplayedProcess:
    """Instants of a file, since the client's start."""

    offsets_ns: Sequence[int]

    def instants(self, client: Client) -> Iterator[int]:
        """Yield the instants at which a client's requests begin."""
        return (client.group.start_ns + offset_ns for offset_ns in self.offsets_ns)


ArrivalProcess: TypeAlias = (
    ConstantProcess | PoissonProcess | OnOffProcess | VaryingProcess | ReplayedProcess
)
