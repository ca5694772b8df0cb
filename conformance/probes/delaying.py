"""Which algorithms could have made a history of a throttle that slows (D-THROTTLE delay).

Requests beyond the rate wait for their turn, first come first served, and what would wait longer
than a bound is refused. So the whole history is replayed through the engine's own limiter with
the arrivals as they were seen, and compared by burst: how many were admitted in all, and when.

What it is not: `families`, which asks burst by burst. Here a release is reserved before the next
burst comes, so the past cannot be taken from the answers alone.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Final

from conformance.probes.families import BASIC, Cluster, Family, Rate, aligned_shifts
from conformance.probes.sightings import Sighting, uncertainty_ns
from engine import Limiter, LimitTable, Rule, Subject
from engine.files import Rate as RateOf
from engine.profile import LimitsProfile

__all__ = ["bound_between", "delays", "delays_that_fit", "longest_wait_ns"]

_FAMILIES: Final = (
    *(
        dataclasses.replace(family, counts_refused=counts_refused)
        for counts_refused in (False, True)
        for family in BASIC
    ),
    Family("gcra", burst_requests=1),
)
_GUARD_NS: Final = 50_000_000


def delays(lanes: Sequence[Sequence[Cluster]]) -> bool:
    """Whether anything was held back."""
    return any(one.is_late for lane in lanes for cluster in lane for one in cluster)


def longest_wait_ns(lanes: Sequence[Sequence[Cluster]]) -> int:
    """Return how long anything was held back at most: the bound is no shorter."""
    late = [one for lane in lanes for cluster in lane for one in cluster if one.is_late]
    return max((one.sent_ns - one.asked_ns for one in late), default=0)


def bound_between(
    lanes: Sequence[Sequence[Cluster]], rate: Rate, families: Sequence[Family]
) -> tuple[int, int] | None:
    """Return between which waits the bound lies, however it is counted; None where nothing tells.

    The one was granted, the other would have been asked of a request that was refused.
    """
    longest_ns = longest_wait_ns(lanes)
    if not longest_ns:
        return None
    refused: list[int] = []
    first_ns = min(one.sent_ns for lane in lanes for cluster in lane for one in cluster)
    for family in families:
        if family.is_aligned:
            return None
        for lane in lanes:
            replay = _Replay(rate, family, -first_ns, 0, longest_ns)
            replay.fits(lane)
            refused += replay.refused_waits
    return (longest_ns, min(refused)) if refused else None


def delays_that_fit(lanes: Sequence[Sequence[Cluster]], rate: Rate, bound_ns: int) -> list[Family]:
    """Return the families that could have made the histories, with delays of at most `bound_ns`."""
    return [family for family in _FAMILIES if _fits(lanes, rate, family, bound_ns)]


def _fits(lanes: Sequence[Sequence[Cluster]], rate: Rate, family: Family, bound_ns: int) -> bool:
    first_ns = min(one.sent_ns for lane in lanes for cluster in lane for one in cluster)
    unsure_ns = max(uncertainty_ns(cluster) for lane in lanes for cluster in lane)
    shifts = aligned_shifts(lanes, rate.window_ns, family) if family.is_aligned else (0,)
    return any(
        all(
            _Replay(rate, family, shift - first_ns, unsure_ns, bound_ns).fits(lane)
            for lane in lanes
        )
        for shift in shifts
    )


class _Replay:
    def __init__(
        self, rate: Rate, family: Family, shift_ns: int, unsure_ns: int, bound_ns: int
    ) -> None:
        self._family = family
        self._rate = rate
        self._shift_ns = shift_ns
        self._unsure_ns = unsure_ns
        self._bound_ns = bound_ns
        self.refused_waits: list[int] = []
        rule = Rule(id="OWN-ROW", counter="key", rate=RateOf(rate.limit_requests, rate.window_ns))
        profile = LimitsProfile(
            algorithm=family.algorithm,
            fixed_anchor="first" if family.anchored else "aligned",
            burst_requests=family.burst_requests,
            count_refused=family.counts_refused,
            throttle="delay",
            delay_bound_ns=bound_ns,
        )
        self._limiter = Limiter({"Default": LimitTable((rule,))}, profile)
        self._subject = Subject("GET", "/", "192.0.2.1", key_id="key")

    def fits(self, lane: Sequence[Cluster]) -> bool:
        """Whether every burst was answered as this family would."""
        arrivals = sorted(
            ((one.arrived_ns, place, one) for place, cluster in enumerate(lane) for one in cluster),
            key=lambda each: each[:2],
        )
        predicted: list[list[int]] = [[] for _ in lane]
        unclear = [0] * len(lane)
        for arrived_ns, place, _ in arrivals:
            now_ns = arrived_ns + self._shift_ns
            decision = self._limiter.decide(now_ns, self._subject)
            wait_ns = decision.wait_ns + (0 if decision.admitted else self._bound_ns)
            if abs(wait_ns - self._bound_ns) <= 3 * self._unsure_ns + _GUARD_NS:
                unclear[place] += 1
            if not decision.admitted:
                self.refused_waits.append(wait_ns)
            if decision.admitted:
                predicted[place].append(arrived_ns + decision.wait_ns)
        return all(
            self._agrees(cluster, predicted[place], unclear[place])
            for place, cluster in enumerate(lane)
        )

    def _agrees(self, cluster: Cluster, predicted: list[int], unclear: int) -> bool:
        admitted = sorted(_admitted_at(one) for one in cluster if one.outcome == "admitted")
        lost = sum(one.outcome == "lost" for one in cluster)
        slack = unclear + lost
        gaining = self._family.algorithm in {"token-bucket", "gcra", "sliding-counter"}
        if gaining:
            gained = -(-self._rate.limit_requests * 2 * self._unsure_ns // self._rate.window_ns)
            slack += gained + (3 if self._family.algorithm == "sliding-counter" else 0)
        if abs(len(admitted) - len(predicted)) > slack:
            return False
        step_ns = self._rate.window_ns // self._rate.limit_requests
        near_ns = 2 * self._unsure_ns + _GUARD_NS + (slack + 1) * step_ns
        return all(
            abs(seen - said) <= near_ns
            for seen, said in zip(admitted, sorted(predicted), strict=False)
        )


def _admitted_at(one: Sighting) -> int:
    return one.received_ns if one.is_late else one.middle_ns
