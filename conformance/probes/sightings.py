"""What one request shows of a limiter: when it was sent, when answered, and whether refused.

The one idea: the deployment decided somewhere between `sent_ns` and `received_ns` on our clock, and
nothing else is known. Everything said about a limiter (`soundness`, `families`) is said of all
decisions that fit in there, so no latency and no jitter can make an honest limiter look bad.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from conformance.wire.exchange import Exchange

__all__ = [
    "ABSENT_STATUSES",
    "FRONT_STATUSES",
    "Outcome",
    "Sighting",
    "is_absent",
    "is_of_a_front",
    "late_after_ns",
    "mark_late",
    "odd_statuses",
    "outcomes_of",
    "plainly",
    "uncertainty_ns",
]

Outcome: TypeAlias = Literal["admitted", "refused", "lost"]
"""`lost`: no answer of the limiter's, so nobody knows whether it was counted."""

FRONT_STATUSES: Final = frozenset({408, 413, 414, 431})
"""Answers that a front gives by itself, before or after a limiter has counted; so is any 5xx."""

_LATE_NS: Final = 1_000_000_000
_LATE_FACTOR: Final = 4


class Sighting(NamedTuple):
    """One request as the client saw it; instants in nanoseconds on the client's clock.

    A request that was held back (D-THROTTLE `delay`) is an admission at its receive time: it
    `is_late`, `sent_ns` is then its receive time less a round trip, and `asked_ns` when it was
    really sent.
    """

    sent_ns: int
    received_ns: int
    outcome: Outcome = "admitted"
    is_late: bool = False
    asked_ns: int = -1

    @property
    def arrived_ns(self) -> int:
        """About when it reached the deployment."""
        if self.is_late:
            return self.asked_ns + (self.received_ns - self.sent_ns) // 2
        return self.middle_ns

    @property
    def middle_ns(self) -> int:
        """Halfway between."""
        return (self.sent_ns + self.received_ns) // 2


ABSENT_STATUSES: Final = frozenset({404, 405, 501})
"""Answers of a deployment that has no such operation: it is then under no row of its own."""


def is_absent(exchanges: Sequence[Exchange]) -> bool:
    """Whether the operation that these ask for seems not to exist there."""
    told = [one.status for one in exchanges if not is_of_a_front(one.status) and not one.refused]
    return bool(told) and all(status in ABSENT_STATUSES for status in told)


def is_of_a_front(status: int | None) -> bool:
    """Whether an answer may never have reached the limiter, or none came at all."""
    return status is None or status >= 500 or status in FRONT_STATUSES


def odd_statuses(exchanges: Sequence[Exchange]) -> frozenset[int]:
    """Return the statuses by which a deployment refuses that never says 429.

    Such as 403: ERR-429's fault, and no other clause's. Where it does say 429, or answers
    everything alike, there are none. A front's answers are never meant: 503 may be an overrun.
    """
    if any(one.refused for one in exchanges):
        return frozenset()
    ordered = sorted(exchanges, key=lambda one: one.sent_ns)
    seen = [one.status for one in ordered if one.status and not is_of_a_front(one.status)]
    calm = seen[0] if seen else 0
    return frozenset(status for status in seen if status >= 400 and status != calm and calm < 400)


def outcomes_of(exchanges: Sequence[Exchange]) -> list[Outcome]:
    """Return whether each was admitted, refused or lost.

    429 is a refusal, and so are `odd_statuses`. What a front answers by itself is lost: it may
    have counted or not. Any other answer was counted as it is (D-COUNTED: 400 as well as 200).
    """
    odd = odd_statuses(exchanges)
    found: list[Outcome] = []
    for one in exchanges:
        if one.refused or one.status in odd:
            found.append("refused")
        elif is_of_a_front(one.status):
            found.append("lost")
        else:
            found.append("admitted")
    return found


def uncertainty_ns(sightings: Iterable[Sighting]) -> int:
    """Return the longest round trip among answers that came at once."""
    return max((one.received_ns - one.sent_ns for one in sightings if not one.is_late), default=0)


def late_after_ns(calm_ns: int) -> int:
    """Return the round trip from which on an admission was slowed, and is not just slow."""
    return _LATE_NS + _LATE_FACTOR * calm_ns


def mark_late(
    sightings: Sequence[Sighting], calm_ns: int, bound_ns: int | None = None
) -> list[Sighting]:
    """Return the sightings with those that were held back marked as late admissions.

    calm_ns: the longest round trip of a burst of the same size that met no limit. What was admitted
    a second and four such round trips later, or after bound_ns, was slowed, not slow (LIM-THROTTLE,
    D-THROTTLE delay).
    """
    bound_ns = late_after_ns(calm_ns) if bound_ns is None else bound_ns
    return [
        Sighting(one.received_ns - calm_ns, one.received_ns, "admitted", True, one.sent_ns)
        if one.outcome == "admitted" and one.received_ns - one.sent_ns > bound_ns
        else one
        for one in sightings
    ]


def plainly(sightings: Sequence[Sighting]) -> list[Sighting]:
    """Return the sightings as they were before `mark_late`."""
    return [
        Sighting(one.asked_ns, one.received_ns, one.outcome) if one.is_late else one
        for one in sightings
    ]
