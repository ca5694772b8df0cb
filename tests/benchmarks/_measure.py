"""Interleaved measurement: contestants take turns, and ratios are formed within a round.

Not a profiler and not a test. Its one idea: drift of the machine hits all contestants of a round
alike, so the ratio of two of them in the same round is steady where their times are not.
"""

import gc
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Contestant:
    """One way to do the work.

    `prepare` builds fresh state and returns the call that is timed; what `prepare` does is not.
    `units` is how many units of work (requests, rows, events) one timed call does. `clock_ns` is
    its own clock, such as the processor time of a server, where it has one.
    """

    name: str
    prepare: Callable[[], Callable[[], object]]
    units: int
    version: str = ""
    clock_ns: Callable[[], int] | None = None


@dataclass(frozen=True)
class Timing:
    """What one contestant took, `unit_ns` a unit of work, a value a round; `time_of` whose time."""

    contestant: Contestant
    unit_ns: tuple[float, ...]
    time_of: str = "the wall clock"

    @property
    def median_ns(self) -> float:
        """The median over the rounds, nanoseconds a unit."""
        return statistics.median(self.unit_ns)


@dataclass(frozen=True)
class Ratio:
    """A median over the rounds, and the quartiles beside it."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        """The median with its quartiles, as `12.3 (12.1 to 12.6)`."""
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"


def version(distribution: str) -> str:
    """The name and installed version of a peer, for the table."""
    return f"{distribution} {metadata.version(distribution)}"


def _once(contestant: Contestant, clock_ns: Callable[[], int]) -> float:
    call = contestant.prepare()
    clock_ns = contestant.clock_ns or clock_ns
    gc.collect()
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        start_ns = clock_ns()
        call()
        taken_ns = clock_ns() - start_ns
    finally:
        if was_enabled:
            gc.enable()
    return taken_ns / contestant.units


def interleave(
    contestants: Sequence[Contestant],
    *,
    rounds: int = 7,
    warm_ups: int = 1,
    of_processor: bool = False,
) -> list[Timing]:
    """Time all contestants in turn, `rounds` times; the order turns by one each round.

    of_processor: count the time that this process had the processor, for work of one thread that
    waits for nothing; others on the machine then disturb less.
    """
    assert rounds >= 2, "quartiles need two rounds"
    clock_ns = time.process_time_ns if of_processor else time.perf_counter_ns
    has_own = any(contestant.clock_ns for contestant in contestants)
    time_of = "the processor" if of_processor or has_own else "the wall clock"
    for _ in range(warm_ups):
        for contestant in contestants:
            _once(contestant, clock_ns)
    taken: list[list[float]] = [[] for _ in contestants]
    for turn in range(rounds):
        for step in range(len(contestants)):
            place = (turn + step) % len(contestants)
            taken[place].append(_once(contestants[place], clock_ns))
    pairs = zip(contestants, taken, strict=True)
    return [Timing(contestant, tuple(values), time_of) for contestant, values in pairs]


def ratio(slow: Timing, fast: Timing) -> Ratio:
    """How many times the work a second `fast` does of `slow`, formed round by round."""
    pairs = zip(slow.unit_ns, fast.unit_ns, strict=True)
    low, median, high = statistics.quantiles([a / b for a, b in pairs], n=4, method="inclusive")
    return Ratio(median, low, high)


def rate_text(unit_ns: float) -> str:
    """Units a second, three digits: `4.12 M/s`."""
    rate = 1e9 / unit_ns
    for size, letter in ((1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.3g}{letter}/s"
    return f"{rate:.3g}/s"


def show(title: str, unit: str, timings: Sequence[Timing], *, ours: int = 0) -> None:
    """Print a table: each contestant's rate, and how many times its speed ours has.

    `unit` is the plural of what is counted, and `ours` the place of our contestant in `timings`.
    """
    table = Table(title=title, title_justify="left")
    table.caption = (
        f"{unit} a second of {timings[0].time_of}; ratio: median over "
        f"{len(timings[0].unit_ns)} interleaved rounds (quartiles)"
    )
    table.add_column("who")
    table.add_column("version")
    table.add_column("rate", justify="right")
    table.add_column("ours / it", justify="right")
    for place, timing in enumerate(timings):
        against = "1" if place == ours else str(ratio(timing, timings[ours]))
        who = timing.contestant
        table.add_row(who.name, who.version, rate_text(timing.median_ns), against)
    Console(width=100).print(table)
