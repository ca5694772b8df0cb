"""What one request shows about a limiter: when it was sent and answered, and whether refused.

The deployment decided at an unknown time between `sent_ns` and `received_ns` on our clock. The
conclusions here and in `families` hold for every time in between, so no latency and no jitter can
make a correct limiter look wrong.

Two statements about "at most L in any W" hold whatever the algorithm and the latency:

- *premature refusal*: fewer than L requests were admitted in the window of length W that ends at
  the refusal, even if every request that could lie in the window is counted. Logs, fixed windows
  and buckets never refuse so. A sliding counter may, when it weighs an earlier window (see
  `families`).
- *overrun*: more than k·L admissions lie provably inside one window of length W. k = 1 is the
  strict reading. No fixed window and no bucket of L per W admits more than 2·L.

And one about any single counter, whatever its rate:

- *turns*: a counter that has refused a request admits the next one only when it has regained room.
  Where more is admitted between refusals, several counters have answered.

`families` says which algorithm could have made a history.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple, TypeAlias

from conformance.wire.exchange import Exchange

Outcome: TypeAlias = Literal["admitted", "refused", "lost"]
"""`lost`: the limiter gave no answer, so it is not known whether the request was counted."""

FRONT_STATUSES: Final = frozenset({408, 413, 414, 431})
"""Answers that a front end may give itself, before or after a limiter counts; so may any 5xx."""

LATE_NS: Final = 1_000_000_000
_LATE_FACTOR: Final = 4
_SHORT: Final = 4
"""In this part of a window a bucket regains little."""


class Sighting(NamedTuple):
    """One request as the client saw it; times in nanoseconds on the client's clock.

    A request that was held back (D-THROTTLE `delay`) is an admission at its receive time: then
    `is_late` is true, `sent_ns` is its receive time less a round trip, and `asked_ns` is the time
    when it was really sent.
    """

    sent_ns: int
    received_ns: int
    outcome: Outcome = "admitted"
    is_late: bool = False
    asked_ns: int = -1

    @property
    def arrived_ns(self) -> int:
        """About when the request reached the deployment."""
        if self.is_late:
            return self.asked_ns + (self.received_ns - self.sent_ns) // 2
        return self.middle_ns

    @property
    def middle_ns(self) -> int:
        """The middle between sending and receiving."""
        return (self.sent_ns + self.received_ns) // 2


def is_absent(exchanges: Sequence[Exchange]) -> bool:
    """Whether the operation of these exchanges seems not to exist there."""
    told = [one for one in exchanges if not is_of_a_front(one.status) and not one.refused]
    return bool(told) and all(one.is_absent for one in told)


def is_of_a_front(status: int | None) -> bool:
    """Whether a request may never have reached the limiter, or got no answer."""
    return status is None or status >= 500 or status in FRONT_STATUSES


def odd_statuses(exchanges: Sequence[Exchange]) -> frozenset[int]:
    """Return the statuses, such as 403, with which a deployment refuses that never answers 429.

    They break ERR-429 and no other clause. There are none if the deployment does answer 429, or
    answers everything alike. A front end's answers are excluded: 503 may mean an overload.
    """
    if any(one.refused for one in exchanges):
        return frozenset()
    ordered = sorted(exchanges, key=lambda one: one.sent_ns)
    seen = [one.status for one in ordered if one.status and not is_of_a_front(one.status)]
    calm = seen[0] if seen else 0
    return frozenset(status for status in seen if status >= 400 and status != calm and calm < 400)


def outcomes_of(exchanges: Sequence[Exchange]) -> list[Outcome]:
    """Return whether each request was admitted, refused or lost.

    429 is a refusal, and so are `odd_statuses`. A request that a front end answers itself is lost:
    it may have counted or not. Any other answer is an admission (D-COUNTED: 400 as well as 200).
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
    """Return the longest round trip among requests that were not held back."""
    return max((one.received_ns - one.sent_ns for one in sightings if not one.is_late), default=0)


def late_after_ns(calm_ns: int) -> int:
    """Return the round trip above which an admission was held back, and not just slow."""
    return LATE_NS + _LATE_FACTOR * calm_ns


def mark_late(sightings: Sequence[Sighting], calm_ns: int, bound_ns: int) -> list[Sighting]:
    """Return the sightings; those that were held back are marked as late admissions.

    calm_ns: the longest round trip of a burst of the same size that reached no limit. bound_ns: a
    request admitted after a longer round trip was held back (LIM-THROTTLE, D-THROTTLE delay).
    """
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


# --- what follows whatever the latency ------------------------------------------------------------


class Premature(NamedTuple):
    """A refusal that came too early, and the largest number of admissions that could justify it."""

    sighting: Sighting
    possible_requests: int


def bounds(sightings: Sequence[Sighting], *outcomes: str) -> tuple[list[int], list[int]]:
    """Return when requests with these outcomes were sent, and when answered, each in order."""
    chosen = [one for one in sightings if one.outcome in outcomes]
    return sorted(one.sent_ns for one in chosen), sorted(one.received_ns for one in chosen)


def premature_refusals(
    sightings: Sequence[Sighting],
    limit_requests: int,
    window_ns: int,
    *,
    counts_refused: bool = False,
) -> list[Premature]:
    """Return the refusals that fewer than `limit_requests` admissions could justify.

    Lost requests may have been admitted, so they justify a refusal too, and so do refused requests
    where those count (D-COUNT all).
    """
    counted = ("admitted", "lost", "refused") if counts_refused else ("admitted", "lost")
    sent, received = bounds(sightings, *counted)
    found = []
    for one in sightings:
        if one.outcome != "refused":
            continue
        begun = bisect_right(sent, one.received_ns)
        gone = bisect_right(received, one.sent_ns - window_ns)
        possible = begun - gone - (1 if counts_refused else 0)
        if possible < limit_requests:
            found.append(Premature(one, possible))
    return found


def provable_admissions(sightings: Sequence[Sighting], window_ns: int) -> int:
    """Return the most admissions that lie provably inside one window of length `window_ns`."""
    admitted = [one for one in sightings if one.outcome == "admitted"]
    best, received = 0, list[int]()
    for one in sorted(admitted, key=lambda one: one.sent_ns, reverse=True):
        insort(received, one.received_ns)  # of all that were sent from then on
        best = max(best, bisect_left(received, one.sent_ns + window_ns))
    return best


def nodes_filled(sightings: Sequence[Sighting], limit_requests: int, window_ns: int) -> int:
    """Return how many nodes admit what was admitted at once, where each admits the limit.

    A burst that follows half of the rate may find as much less. Longer than a part of the window a
    bucket would have regained a good deal of it, or a fixed window begun anew.
    """
    at_once = provable_admissions(sightings, window_ns // _SHORT)
    return -(-at_once * 9 // (10 * limit_requests))


def turns_beyond(sightings: Sequence[Sighting], window_ns: int, block_ns: int = 0) -> int:
    """Return how many admissions between refusals are more than one counter of any rate grants.

    Counted are admissions after one refusal's answer and before the next one is sent. A log admits
    one for each request that leaves its window, a bucket and a sliding counter regain their limit
    in a window, and once in a window or a block a fixed one begins anew. The limit is not known,
    but no counter refuses below it: so it is at most what was asked in the two windows before a
    refusal. 0 or less: one counter explains all that was seen.
    """
    refusals, runs = _turns(sightings)
    sent, received = bounds(sightings, "admitted", "lost", "refused")

    def asked(from_ns: int, to_ns: int) -> int:
        """Return how many requests may have arrived in between."""
        return bisect_right(sent, to_ns) - bisect_left(received, from_ns)

    limits = [asked(one.sent_ns - 2 * window_ns, one.received_ns) for one in refusals]
    most = 0
    for begin, first in enumerate(refusals):
        limit = limits[begin]
        anew = [0] * (2 if block_ns else 1)
        admitted = 0
        for place in range(begin + 1, len(refusals)):
            last = refusals[place]
            lasted_ns = last.received_ns - first.sent_ns
            if lasted_ns >= min(window_ns, block_ns or window_ns):
                break
            limit = min(limit, limits[place])
            admitted += runs[place - 1]
            anew = sorted([*anew, runs[place - 1]])[1:]
            left = asked(first.sent_ns - window_ns, last.received_ns - window_ns)
            regained = 1 + limit * lasted_ns // window_ns
            most = max(most, admitted - sum(anew) - max(left, regained) - 1)
    return most


def _turns(sightings: Sequence[Sighting]) -> tuple[list[Sighting], list[int]]:
    """Return refusals with admissions between them, and how many in between each two.

    Each was sent when the answer before it was there.
    """
    refusals: list[Sighting] = []
    runs: list[int] = []
    run = end_ns = last_ns = 0
    for one in sorted(sightings, key=lambda each: each.received_ns):
        if one.sent_ns < end_ns:
            continue
        if one.outcome == "admitted" and refusals:
            run, last_ns = run + 1, one.received_ns
        elif one.outcome == "refused" and (not refusals or (run and one.sent_ns >= last_ns)):
            if refusals:
                runs.append(run)
            refusals.append(one)
            run, end_ns = 0, one.received_ns
    return refusals, runs


def broken_blocks(sightings: Sequence[Sighting], block_ns: int) -> list[Sighting]:
    """Return the admissions that lie provably inside the block of this counter's first refusal.

    The first refusal begins a block (LIM-BLOCK) at a time between its sending and its answer. A
    lost request before it may already have exceeded the rate; the block may have begun with it.
    """
    refused = [one for one in sightings if one.outcome == "refused"]
    if not refused:
        return []
    first_sent_ns = min(one.sent_ns for one in sightings if one.outcome in {"refused", "lost"})
    begun_ns = min(one.received_ns for one in refused)
    return [
        one
        for one in sightings
        if one.outcome == "admitted"
        and one.sent_ns > begun_ns
        and one.received_ns < first_sent_ns + block_ns
    ]
