"""Which algorithms could have produced a history of a throttle that slows (D-THROTTLE delay).

Requests beyond the rate wait for their turn, first come, first served; a request that would wait
longer than a bound is refused. So the observed arrivals are replayed through the engine's own
algorithms, and each admission reserves its turn: an admitted request must have been answered at its
turn, and a refused one must have had to wait longer than the bound.

`families` compares how many requests of a burst were admitted. Here each admission reserves a turn
before the next burst comes, so the answers also show when each request was admitted.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from conformance.probes.families import (
    Cluster,
    Family,
    FamilyCounter,
    Rate,
    aligned_shifts,
    apart,
    families,
)
from conformance.probes.sightings import Sighting, uncertainty_ns
from conformance.runner.registry import check_time
from engine.limits.compiled.algorithms import READY

_GUARD_NS: Final = 50_000_000
_SLACK: Final = 10
"""This part of the time between two turns a server may be late with each."""
_EVER_NS: Final = 1 << 60


def delays(lanes: Sequence[Sequence[Cluster]]) -> bool:
    """Whether any request was held back."""
    return any(one.is_late for lane in lanes for cluster in lane for one in cluster)


def longest_wait_ns(lanes: Sequence[Sequence[Cluster]]) -> int:
    """Return the longest time that a request was held back; the bound is at least that long."""
    late = [one for lane in lanes for cluster in lane for one in cluster if one.is_late]
    return max((one.sent_ns - one.asked_ns for one in late), default=0)


class _Part(NamedTuple):
    """Requests that overlap in time, in the form that a replay needs.

    admitted_ns, refused_ns, lost_ns: about when those arrived, in order; answered_ns: when the
    admissions were granted, in order.
    """

    admitted_ns: list[int]
    answered_ns: list[int]
    refused_ns: list[int]
    lost_ns: list[int]
    first_ns: int

    @classmethod
    def of(cls, cluster: Cluster) -> _Part:
        """Return what a cluster shows."""
        arrived = sorted((one.arrived_ns, one.outcome) for one in cluster)
        by = {
            outcome: [at_ns for at_ns, each in arrived if each == outcome]
            for outcome in ("admitted", "refused", "lost")
        }
        answered = sorted(one.middle_ns for one in cluster if one.outcome == "admitted")
        return cls(by["admitted"], answered, by["refused"], by["lost"], arrived[0][0])


def _arrived(one: Sighting) -> tuple[int, int]:
    return one.arrived_ns, one.arrived_ns


class Arrivals:
    """The histories of several counters, prepared once for many replays."""

    def __init__(self, lanes: Sequence[Sequence[Cluster]]) -> None:
        self._lanes = lanes
        self.first_ns = min(one.sent_ns for lane in lanes for cluster in lane for one in cluster)
        self.unsure_ns = max(uncertainty_ns(cluster) for lane in lanes for cluster in lane)
        calm = [x for lane in lanes for cluster in lane for x in cluster if not x.is_late]
        least_ns = min((one.received_ns - one.sent_ns for one in calm), default=0)
        self.jitter_ns = self.unsure_ns - least_ns
        """How much the way there and back differs between answers that came at once."""
        self.longest_wait_ns = longest_wait_ns(lanes)

        self.parts = [[_Part.of(cluster) for cluster in apart(lane, _arrived)] for lane in lanes]
        self._shifts: dict[tuple[int, str], Sequence[int]] = {}

    def shifts(self, window_ns: int, family: Family) -> Sequence[int]:
        """Return the shifts of time that make a difference to a family."""
        if not family.is_aligned:
            return (0,)
        asked = window_ns, family.algorithm
        if asked not in self._shifts:
            self._shifts[asked] = aligned_shifts(self._lanes, window_ns, family)
        return self._shifts[asked]


def bound_between(
    arrivals: Arrivals, rate: Rate, fitting: Sequence[Family]
) -> tuple[int, int] | None:
    """Return two waits between which the bound lies, for any fitting family; None if not known.

    The first wait was granted; the second is what a refused request would have had to wait.
    """
    longest_ns = arrivals.longest_wait_ns
    if not longest_ns:
        return None
    refused: list[int] = []
    for family in fitting:
        if family.is_aligned:
            return None
        for lane in arrivals.parts:
            near = _Nearness(_GUARD_NS, _GUARD_NS)
            replay = _Replay(rate, family, -arrivals.first_ns, near, longest_ns)
            replay.fits(lane)
            refused += replay.refused_waits
    return (longest_ns, min(refused)) if refused else None


def delays_that_fit(
    arrivals: Arrivals, rate: Rate, bound_ns: int, since_ns: int = 0
) -> list[Family]:
    """Return the families that could have made the histories, with delays of at most `bound_ns`.

    since_ns: earlier requests are replayed but not judged, as in `families_that_fit`.
    """
    return [one for one in families(rate) if delay_fits(arrivals, rate, one, bound_ns, since_ns)]


def delay_fits(
    arrivals: Arrivals,
    rate: Rate,
    family: Family,
    bound_ns: int,
    since_ns: int = 0,
    *,
    is_sharp: bool = False,
) -> bool:
    """Whether one family could have made the histories, with delays of at most `bound_ns`.

    is_sharp: whether each turn must have come as exactly as the way there and back allows. Moving
    arrivals by some time moves no turn by more, and what all ways have in common cancels out.
    Where windows begin is not known as exactly: families with aligned windows are never sharp.
    """
    near_ns = 3 * arrivals.unsure_ns + _GUARD_NS
    if family.algorithm == "sliding-counter":
        # Its alignment is known as well as the grid of shifts is fine.
        near_ns += 2 * rate.window_ns // rate.limit_requests
    turn_near_ns = near_ns
    if is_sharp and not family.is_aligned:
        turn_near_ns = min(near_ns, turn_slack_ns(arrivals, rate))
    nearness = _Nearness(near_ns, turn_near_ns)
    return any(
        all(
            _Replay(rate, family, shift - arrivals.first_ns, nearness, bound_ns).fits(
                lane, since_ns
            )
            for lane in arrivals.parts
        )
        for shift in arrivals.shifts(rate.window_ns, family)
    )


def turn_slack_ns(arrivals: Arrivals, rate: Rate) -> int:
    """Return how far a turn may lie from its instant where nothing but the way there moves it."""
    return 2 * arrivals.jitter_ns + rate.window_ns // rate.limit_requests // _SLACK


class _Nearness(NamedTuple):
    """How far what was seen may lie from a replay: of a refusal's wait, and of a turn."""

    wait_ns: int
    turn_ns: int


class _Replay(FamilyCounter):
    """A counter whose requests wait for their turn, fed with what was seen."""

    def __init__(
        self, rate: Rate, family: Family, shift_ns: int, near: _Nearness, bound_ns: int
    ) -> None:
        super().__init__(rate, family, shift_ns)
        self._bound_ns = bound_ns
        self._near = near
        self._last_ns = 0
        self._lost_ns: list[int] = []
        self.refused_waits: list[int] = []

    def fits(self, lane: Sequence[_Part], since_ns: int = 0) -> bool:
        """Whether every burst was answered as this family would answer it, given all before it.

        The admissions of a burst are replayed before its refusals; their real order is not known.
        """
        check_time()
        return all(self._fits(part, since_ns) for part in lane)

    def _fits(self, part: _Part, since_ns: int) -> bool:
        self._lost_ns += part.lost_ns
        reach_ns = 2 * self._rate.window_ns + self._bound_ns
        # Each of those may have taken a turn, and has moved all that came soon after it.
        lost = sum(at_ns > part.first_ns - reach_ns for at_ns in self._lost_ns)
        wait_near_ns, near_ns = (one + lost * self._rate.window_ns for one in self._near)
        if part.first_ns < since_ns:
            wait_near_ns = near_ns = _EVER_NS
        most_ns, shift_ns = self._bound_ns + wait_near_ns, self._shift_ns
        # Turns are given in order of arrival, so predicted and observed times are both sorted.
        for at_ns, seen_ns in zip(part.admitted_ns, part.answered_ns, strict=True):
            turn_ns = self._turn_ns(at_ns)
            granted_ns = turn_ns - shift_ns
            if granted_ns - at_ns > most_ns or abs(granted_ns - seen_ns) > near_ns:
                return False
            self._count(turn_ns)
        for at_ns in part.refused_ns:
            wait_ns = self._turn_ns(at_ns) - at_ns - shift_ns
            if wait_ns < self._bound_ns - wait_near_ns:
                return False
            self.refused_waits.append(wait_ns)
            if self._family.counts_refused:
                self._count(at_ns + shift_ns)
        return True

    def _turn_ns(self, arrived_ns: int) -> int:
        """Return the time of a request's turn, on the replay's clock."""
        return max(self._line[READY], self._last_ns, arrived_ns + self._shift_ns)

    def _count(self, t_ns: int) -> None:
        self._last_ns = max(self._last_ns, t_ns)
        super()._count(self._last_ns)
