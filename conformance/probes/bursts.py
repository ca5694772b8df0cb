"""Bursts of requests to one counter, their answers, and the way to exceed a rate.

A burst is sent over many connections at once. The time of the next burst follows from the answers
received, never from nominal times. A deployment that slows requests down (D-THROTTLE delay) holds
some of them for seconds; `Counter.settled` waits for all requests of a burst except those.

However a rate of L per W is counted, no window of W admits more than 2·L. So `go_beyond` sends
until a request is refused or slowed, or until more than 2·L admissions lie provably inside one
window. No pause and no window's edge in between can change that result.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from conformance.probes.families import Rate
from conformance.probes.sightings import (
    Sighting,
    is_of_a_front,
    late_after_ns,
    mark_late,
    odd_statuses,
    outcomes_of,
    provable_admissions,
)
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive
from conformance.wire.exchange import Ask, Exchange

SECOND_NS: Final = 1_000_000_000
_CONNECTIONS: Final = 128
_MOST_CONNECTIONS: Final = 256
_LARGE: Final = 800
_SOME: Final = 5
_FINE_NS: Final = 25_000_000
_POLL_NS: Final = 20_000_000
_OF_BLOCKS: Final = ("the end", "well after", "long after")
"""Endings of the names of bursts that wait for a block; the others wait for a window."""
_SETTLE_NS: Final = 2 * SECOND_NS

Asker: TypeAlias = Callable[[int], Ask]
"""Makes a request from its number: always the same resource, with different ids and values."""


class Warm(Inconclusive):
    """The row's keys are warm from earlier use: nothing is measured before they have rested."""

    def __init__(self, counter: Counter) -> None:
        super().__init__("its keys were in use before the run")
        self.counter = counter


@dataclass(slots=True, eq=False)
class Burst:
    """Requests that are sent together; `exchanges` grows as answers arrive."""

    name: str
    size: int
    exchanges: list[Exchange] = field(default_factory=list)
    begun_ns: int = -1

    @property
    def is_done(self) -> bool:
        """Whether every answer has arrived."""
        return len(self.exchanges) >= self.size

    @property
    def last_received_ns(self) -> int:
        """When the last answer so far arrived."""
        return max((one.received_ns for one in self.exchanges), default=self.begun_ns)


class Counter:
    """All requests to one counter of the deployment, in bursts."""

    def __init__(self, bench: Bench, name: str, ask: Asker) -> None:
        self.bench = bench
        self.name = name
        self._lane = bench.lane(name)
        self._ask = ask
        self._number = 0
        self.bursts: list[Burst] = []
        self.spacing_ns = 0
        """The time that a limiter that spaces requests puts between two, if the row is known."""

    def again(self) -> Counter:
        """Return the same counter with a history of its own; its requests are numbered on."""
        found = copy(self)
        found.bursts = []
        return found

    @property
    def now_ns(self) -> int:
        """The suite's clock."""
        return self._lane.now_ns

    async def wait_until_ns(self, at_ns: int, why: str) -> None:
        """Sleep; why: what ends at that time. Raises `Warm` where the row's keys are warm."""
        bench = self.bench
        await self._lane.sleep_until_ns(at_ns, why, unless=lambda: bench.is_warm)
        if bench.is_warm:
            raise Warm(self)

    def new_burst(self, name: str, size: int) -> Burst:
        """Return a new burst, not sent yet, that belongs to this counter's history."""
        burst = Burst(name, size)
        self.bursts.append(burst)
        return burst

    async def send(self, name: str, size: int, *, at_ns: int = 0) -> Burst:
        """Send a burst and wait for all answers."""
        burst = self.new_burst(name, size)
        await self.fill(burst, at_ns=at_ns)
        return burst

    async def fill(self, burst: Burst, *, at_ns: int = 0, ask: Asker | None = None) -> None:
        """Send a burst's requests from `at_ns` on and wait for all answers."""
        why = "its block is over" if burst.name.endswith(_OF_BLOCKS) else "its window is over"
        try:
            await self.wait_until_ns(at_ns, why)
        except Warm:
            self.bursts = [one for one in self.bursts if one is not burst]
            raise
        burst.begun_ns = self.now_ns
        first = self._number
        self._number += burst.size
        make = ask or self._ask
        asks = iter([make(number) for number in range(first, first + burst.size)])
        workers = min(burst.size, _MOST_CONNECTIONS if burst.size > _LARGE else _CONNECTIONS)
        await self.bench.gather([self._work(asks, burst) for _ in range(workers)])

    async def _work(self, asks: Iterator[Ask], burst: Burst) -> None:
        for ask in asks:
            burst.exchanges.append(await self._lane.send(ask))

    async def settled(self, burst: Burst) -> int:
        """Wait for the answers to a burst, except requests held back; returns the last time."""
        calm_ns = self.calm_ns
        while burst.begun_ns < 0:
            await self._lane.sleep_ns(_POLL_NS)
        patience_ns = _SETTLE_NS + 4 * calm_ns
        while not burst.is_done and self.now_ns < max(
            burst.begun_ns + patience_ns, burst.last_received_ns + calm_ns + _POLL_NS
        ):
            await self._lane.sleep_ns(_POLL_NS)
        return burst.last_received_ns

    @property
    def calm_ns(self) -> int:
        """The longest round trip of the first burst, which reaches no limit.

        If even its answers come one by one at the row's pace, the round trip of its first request.
        """
        first = self.bursts[0].exchanges if self.bursts else []
        took = [one.received_ns - one.sent_ns for one in first]
        return min(took) if self.is_paced else max(took, default=0)

    @property
    def is_paced(self) -> bool:
        """Whether the first burst was admitted one by one, each after a pause."""
        first = self.bursts[0].exchanges if self.bursts else []
        received = sorted(one.received_ns for one in first)
        gaps = [after - before for before, after in itertools.pairwise(received)]
        if len(gaps) < _SOME or not self.spacing_ns:
            return False
        return statistics.median_low(gaps) > self.spacing_ns * 8 // 10

    @property
    def late_after_ns(self) -> int:
        """The round trip above which an admission counts as held back."""
        if self.is_paced:
            return self.calm_ns + self.spacing_ns // 2
        return late_after_ns(self.calm_ns)

    def by_source(self) -> list[list[Sighting]]:
        """Return what was seen from each address, in order of time."""
        exchanges = self.exchanges()
        found: dict[str | None, list[Sighting]] = {}
        for one, outcome in zip(exchanges, outcomes_of(exchanges), strict=True):
            sighting = Sighting(one.sent_ns, one.received_ns, outcome)
            found.setdefault(one.ask.source, []).append(sighting)
        return [sorted(each) for each in found.values()]

    def exchanges(self) -> list[Exchange]:
        """Return all exchanges of the counter."""
        return [one for burst in self.bursts for one in burst.exchanges]

    def clusters(self) -> list[list[Sighting]]:
        """Return what the bursts show, one cluster for each, in order of time."""
        groups = [burst.exchanges for burst in self.bursts]
        throttle = self.bench.profile.limits.throttle
        slows = self.bench.knows("limits.throttle") and throttle == "delay"
        return clusters_of(groups, self.calm_ns, self.late_after_ns, slows=slows)


def clusters_of(
    groups: Sequence[Sequence[Exchange]],
    calm_ns: int,
    bound_ns: int,
    *,
    slows: bool = False,
) -> list[list[Sighting]]:
    """Return groups of exchanges as clusters of sightings, in order of time.

    bound_ns: the round trip above which an admission was held back. slows: whether other rows have
    shown a throttle that slows. Then a request whose wait would exceed the bound is refused, and a
    later one with a shorter wait may be held back.
    """
    everything = [one for group in groups for one in group]
    outcome_of = dict(zip((one.number for one in everything), outcomes_of(everything), strict=True))
    plain = [
        [
            Sighting(one.sent_ns, one.received_ns, outcome_of[one.number])
            for one in sorted(group, key=lambda each: (each.sent_ns, each.number))
        ]
        for group in groups
        if group
    ]
    marked = [mark_late(cluster, calm_ns, bound_ns) for cluster in plain]
    clusters = plain
    if slows or _holds_back(marked, bound_ns):
        # Some were held back, so shorter round trips that exceed the calm ones were too.
        fine_ns = min(bound_ns, _FINE_NS + calm_ns * 5 // 4)
        clusters = [mark_late(cluster, calm_ns, fine_ns) for cluster in plain]
    return sorted(clusters, key=lambda cluster: min(one.arrived_ns for one in cluster))


def _holds_back(clusters: Sequence[Sequence[Sighting]], slow_ns: int) -> bool:
    """Whether late admissions come from the deployment's throttle, not from a slow server.

    A throttle that slows holds requests back before it refuses any, and its refusals are quick.
    """
    ordered = sorted(clusters, key=lambda cluster: min(one.arrived_ns for one in cluster))
    refused = [one for cluster in ordered for one in cluster if one.outcome == "refused"]
    for cluster in ordered:
        if any(one.is_late for one in cluster):
            return not any(one.received_ns - one.sent_ns > slow_ns for one in refused)
        if any(one.outcome == "refused" for one in cluster):
            return False
    return False


# --- beyond a rate --------------------------------------------------------------------------------


_TRIES = 4


@dataclass(slots=True)
class Beyond:
    """The requests sent, and those of them beyond the rate: none if there is no such rate."""

    exchanges: list[Exchange] = field(default_factory=list)
    refused: list[Exchange] = field(default_factory=list)
    slowed: list[Exchange] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many requests were sent."""
        return len(self.exchanges)

    @property
    def last_received_ns(self) -> int:
        """When the last answer arrived."""
        return max(one.received_ns for one in self.exchanges)


def refused_in(exchanges: list[Exchange]) -> list[Exchange]:
    """Return the exchanges that were refused, with 429 or the status used in place of it."""
    odd = odd_statuses(exchanges)
    return [one for one in exchanges if one.refused or one.status in odd]


def slowed_in(bench: Bench, exchanges: list[Exchange]) -> list[Exchange]:
    """Return the exchanges that were held back: much slower than those of the preflight."""
    bound_ns = late_after_ns(2 * bench.latency_ns)
    return [one for one in exchanges if one.received_ns - one.sent_ns > bound_ns]


def regained(bench: Bench, rate: Rate) -> int:
    """Return how many requests a bucket regains while a burst is under way."""
    limit = rate.limit_requests
    return min(limit, 4 * limit * bench.latency_ns // rate.window_ns)


def check_accepted(burst: Burst, what: str) -> None:
    """Raise `Inconclusive` if not even the first request was accepted."""
    ordered = sorted(burst.exchanges, key=lambda one: one.number)
    first = next((one for one in ordered if not is_of_a_front(one.status)), ordered[0])
    if first.status is None or first.status == 401:
        raise Inconclusive(f"{what} is not accepted: {first.status or first.error}")


def check_counted(exchanges: Sequence[Exchange], what: str) -> None:
    """Raise `Inconclusive` if all these requests failed: they need not count (D-COUNTED)."""
    statuses = {one.status or 0 for one in exchanges if not is_of_a_front(one.status)}
    if statuses and all(400 <= status < 500 for status in statuses):
        raise Inconclusive(
            f"not decided: requests of {what} are answered {min(statuses)} and never refused, and "
            "failed requests need not count; give the key the permissions for them"
        )


async def go_beyond(
    bench: Bench,
    counters: Sequence[Counter],
    rate: Rate,
    what: str,
    size: int = 0,
    *,
    pause_ns: int = 0,
    until_lost: bool = False,
    may_fail: bool = False,
) -> Beyond:
    """Send `size` requests at once (default: 1.5 times the rate), then more until it is certain.

    counters: of one row, whose keys take turns; with a single one, more than 2 L may have to be
    sent, with two, each gets one burst. what: whose requests they are. pause_ns: pause before each
    further burst. until_lost: also stop after a burst that a front end answers in good part.
    may_fail: the requests may all be invalid. Raises `Inconclusive` if the requests come too
    slowly.
    """
    found = Beyond()
    size = size or rate.limit_requests * 3 // 2 + regained(bench, rate)
    bursts: list[Burst] = []
    turns = list(counters) if len(counters) > 1 else list(counters) * _TRIES
    for counter in turns:
        at_ns = bursts[-1].last_received_ns + pause_ns if bursts else 0
        bursts.append(await counter.send("beyond", size, at_ns=at_ns))
        check_accepted(bursts[-1], what)
        found.exchanges += bursts[-1].exchanges
        found.refused = refused_in(found.exchanges)
        # A limiter that blocks refuses at once: so late answers were delayed by something else.
        found.slowed = [] if rate.block_ns else slowed_in(bench, found.exchanges)
        if found.refused or found.slowed:
            return found
        if _is_overrun(counters, rate, bursts):
            if not may_fail:
                check_counted(found.exchanges, what)
            return found
        lost = sum(is_of_a_front(one.status) for one in bursts[-1].exchanges)
        if until_lost and lost > size // 5:
            return found
        if len(counters) == 1:
            size = rate.limit_requests
    raise Inconclusive(
        f"not decided: requests of {what} came too slowly to exceed {rate.limit_requests}; run "
        "closer to the server"
    )


def _is_overrun(counters: Sequence[Counter], rate: Rate, bursts: Sequence[Burst]) -> bool:
    """Whether more was admitted than any way of counting admits.

    Of two bursts inside one window, only one can contain an edge of aligned windows. So the other
    has at most the limit, plus what a bucket regains meanwhile.
    """
    if len(counters) == 1:
        seen = [one for cluster in counters[0].clusters() for one in cluster]
        return provable_admissions(seen, rate.window_ns) > 2 * rate.limit_requests
    lasted_ns = bursts[-1].last_received_ns - bursts[0].begun_ns
    most = rate.limit_requests + 1 + rate.limit_requests * lasted_ns // rate.window_ns
    answered = [sum(not is_of_a_front(one.status) for one in each.exchanges) for each in bursts]
    return len(bursts) > 1 and lasted_ns < rate.window_ns and min(answered) > most
