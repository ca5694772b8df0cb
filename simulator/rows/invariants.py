"""Invariant checkers, independent of the model: they check the rows that it makes.

Each takes the rows chunk by chunk, keeps state for the active counters only, and collects
`Violation`s; it uses nothing of the limiter's state. A run that violates an invariant is wrong. The
sums (offered = admitted + refused + pending, and those of requests) are checked in
`simulator.rows.run_recorder`, which makes them.

- `OrderChecker`: rows come in order of (t_ns, client).
- `RowChecker`: outcome, rule, wait and latency of each row fit together.
- `RateChecker`: what a counter admitted in any window is within what its algorithm allows.
- `WaitChecker`: a counter admits no request before the instant that a refusal of it announced.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from engine.limits.counters import ALGORITHMS
from engine.limits.rules import CounterFamily
from engine.profile import LimitsProfile, NodesProfile
from simulator.rows.record import NO_STATUS, Chunk, Numbers
from simulator.rows.reducer import RunningMax, order_by_counter

_KEPT_VIOLATIONS: Final = 5
_NONE: Final[Numbers] = np.empty(0, dtype=np.int64)


@dataclass(frozen=True, slots=True)
class Violation:
    """One invariant that does not hold, and where."""

    invariant: str
    what: str

    def __str__(self) -> str:
        return f"{self.invariant}: {self.what}"


class Checker(ABC):
    """Watches rows; `violations` holds the first few faults, `faults` how many there were.

    spent_s: the time that it took, so that a run can say what its checks cost.
    """

    invariant: ClassVar[str]

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.faults = 0
        self.spent_s = 0.0

    def take(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        began_s = time.perf_counter()
        self.look(chunk)
        self.spent_s += time.perf_counter() - began_s

    @abstractmethod
    def look(self, chunk: Chunk) -> None:
        """Look at the next rows, whatever time it takes."""

    def fault(self, bad: np.ndarray[Any, np.dtype[np.bool_]], chunk: Chunk, what: str) -> None:
        """Note the rows where `bad` holds."""
        places = np.flatnonzero(bad)
        self.faults += len(places)
        for place in places[: max(0, _KEPT_VIOLATIONS - len(self.violations))]:
            subject = chunk.subjects[chunk.subject[place]]
            self.violations.append(
                Violation(
                    self.invariant,
                    f"{what} at t_ns = {chunk.t_ns[place]}, client {subject.client}, "
                    f"attempt {chunk.attempt[place]}, {subject.method} {subject.path}",
                )
            )


class OrderChecker(Checker):
    """Rows come in order of (t_ns, client); in replay, of t_ns alone.

    Attempts of one client at one instant may follow from one another (a refusal at once ends a
    request, and the next one begins), so their numbers say nothing about their order here.
    """

    invariant = "order"

    def __init__(self, *, by_client: bool = True) -> None:
        super().__init__()
        self._by_client = by_client
        self._last = (-1, -1)

    def look(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        t_ns = np.r_[self._last[0], chunk.t_ns]
        client = np.r_[self._last[1], chunk.clients.take(chunk.subject)]
        bad = t_ns[1:] < t_ns[:-1]
        if self._by_client:
            bad |= (t_ns[1:] == t_ns[:-1]) & (client[1:] < client[:-1])
        self.fault(bad, chunk, "out of order")
        self._last = (int(t_ns[-1]), int(client[-1]))


class RowChecker(Checker):
    """Outcome, rule, wait, latency and status of a row fit together."""

    invariant = "row"

    def look(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        passed = chunk.outcome_is("admitted")
        delayed = chunk.outcome_is("delayed")
        turned = ~chunk.passed()
        ruled = ~chunk.rule_is(None)
        known = chunk.status != NO_STATUS
        self.fault(passed & ((chunk.wait_ns != 0) | ruled), chunk, "admitted, yet a wait or a rule")
        self.fault(delayed & ((chunk.wait_ns <= 0) | ~ruled), chunk, "delayed by nothing")
        self.fault(turned & ((chunk.wait_ns <= 0) | ~ruled), chunk, "refused, yet admissible")
        self.fault(turned & known & (chunk.status != 429), chunk, "refused, yet not 429 (ERR-429)")
        self.fault(~turned & (chunk.status == 429), chunk, "429, yet not refused (ERR-429)")
        self.fault(delayed & (chunk.latency_ns < chunk.wait_ns), chunk, "answered before release")
        self.fault((chunk.latency_ns < 0) | (chunk.attempt < 1), chunk, "a number out of range")


class RateChecker(Checker):
    """In any window of any counter, no more was admitted than its algorithm allows.

    The check compares each admission with the one `bound` places before it on the same counter:
    they must lie a window apart. N per window for the sliding log; twice N (one full window at
    each side of an edge) for fixed windows and the sliding counter; N + burst for token bucket
    and gcra. Where the end of a block clears its counter (D-BLOCK-RESET), as much again for each
    block that a window has room for. A delayed request counts at its release. nodes: how many nodes
    may each admit as much.
    """

    invariant = "rate"

    def __init__(
        self, legs: Sequence[CounterFamily], profile: LimitsProfile, nodes: int = 1
    ) -> None:
        super().__init__()
        self._legs = legs
        self._nodes = nodes
        self._clears = profile.block_reset == "clear"
        self._closed = int(profile.edges == "closed")
        self._carried: dict[int, tuple[Numbers, Numbers]] = {}

    def look(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        rows = chunk.passed()
        rows &= (chunk.status == NO_STATUS) | (chunk.status < 300)
        release_ns = chunk.release_ns()
        for place, leg, counter in _in_force(self._legs, chunk):
            chosen = np.flatnonzero(rows & (counter >= 0))
            if len(chosen):
                self._check(place, leg, chunk, chosen, counter[chosen], release_ns[chosen])

    def _check(
        self,
        place: int,
        leg: CounterFamily,
        chunk: Chunk,
        chosen: Numbers,
        counter: Numbers,
        release_ns: Numbers,
    ) -> None:
        before, before_ns = self._carried.get(place, (_NONE, _NONE))
        counters = np.r_[before, counter]
        times_ns = np.r_[before_ns, release_ns]
        order = order_by_counter(counters)
        counters, times_ns = counters[order], times_ns[order]
        bound, window_ns = self._bound(leg), leg.rule.window_ns
        if len(counters) > bound:
            same = counters[bound:] == counters[:-bound]
            near = times_ns[bound:] - times_ns[:-bound] < window_ns + self._closed
            late = order[bound:][same & near]
            bad = np.zeros(len(chunk), dtype=bool)
            bad[chosen[late[late >= len(before)] - len(before)]] = True
            self.fault(bad, chunk, f"{leg.name}: over {bound} admitted in {window_ns} ns")
        keep = times_ns > int(chunk.t_ns[-1]) - window_ns - self._closed
        self._carried[place] = (counters[keep], times_ns[keep])

    def _bound(self, leg: CounterFamily) -> int:
        rule, settings = leg.rule, leg.settings
        algorithm = ALGORITHMS[settings.algorithm]
        bound = algorithm.most_windows * rule.limit_requests
        if algorithm.has_burst:
            bound += settings.burst_requests
        if self._clears and rule.block_ns:
            bound *= 1 - -rule.window_ns // rule.block_ns
        return bound * self._nodes


class WaitChecker(Checker):
    """A counter admits no request before the instant that a refusal of it announced.

    The rule that is reported is the one with the longest wait (D-DECIDER), so its counter stays
    closed until then. It does not hold where throttles delay: there a refusal says when the
    delay would be short enough, while an earlier reservation may be what others wait for.
    """

    invariant = "wait"

    def __init__(self, legs: Sequence[CounterFamily]) -> None:
        super().__init__()
        self._legs = legs
        self._latest: defaultdict[int, RunningMax] = defaultdict(RunningMax)

    def look(self, chunk: Chunk) -> None:
        """Look at the next rows."""
        turned = ~chunk.passed()
        for place, leg, counter in _in_force(self._legs, chunk):
            chosen = np.flatnonzero(counter >= 0)
            closes = (turned & chunk.rule_is(leg.name))[chosen]
            if closes.any():
                ends_ns = np.where(closes, chunk.t_ns[chosen] + chunk.wait_ns[chosen], 0)
                open_ns = self._latest[place].before(counter[chosen], ends_ns)
            else:
                open_ns = self._latest[place].so_far(counter[chosen])
            bad = np.zeros(len(chunk), dtype=bool)
            bad[chosen] = ~turned[chosen] & (chunk.t_ns[chosen] < open_ns)
            self.fault(bad, chunk, f"{leg.name}: admitted before the announced instant")


def _in_force(
    legs: Sequence[CounterFamily], chunk: Chunk
) -> Iterator[tuple[int, CounterFamily, Numbers]]:
    """Yield the legs that are not in shadow: place, leg, and each row's counter, −1 for none."""
    for place, leg in enumerate(legs):
        if not leg.rule.shadow:
            yield place, leg, chunk.counters(place)


def checkers(
    legs: Sequence[CounterFamily],
    profile: LimitsProfile,
    nodes: NodesProfile | None,
    *,
    by_client: bool,
) -> list[Checker]:
    """Return the checkers that hold for a run.

    by_client: ties go by client number. nodes: that are played; one node that refuses binds no
    other, releases of two have no order, and what a slow counter admits has no bound.
    """
    exact, delays = nodes is None or nodes.is_exact, profile.throttle == "delay"
    chosen: list[Checker] = [OrderChecker(by_client=by_client), RowChecker()]
    if exact:
        chosen.append(RateChecker(legs, profile))
    elif nodes is not None and nodes.sharing != "shared-slow" and not delays:
        copies = 1 if nodes.sharing == "split" else nodes.count
        chosen.append(RateChecker(legs, profile, copies))
    if exact and not delays:
        chosen.append(WaitChecker(legs))
    return chosen
