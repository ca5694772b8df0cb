"""Going beyond a rate for certain: how many requests it takes, and what is beyond.

However a rate of L per W is counted, no window of W admits more than 2 L of them. So whoever sends
on until something is refused or slowed, or more than 2 L lie provably inside one window, has an
answer that no pause and no window's edge in between can change.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from conformance.probes.bursts import Burst, Counter
from conformance.probes.families import Rate
from conformance.probes.sightings import is_of_a_front, late_after_ns, odd_statuses
from conformance.probes.soundness import provable_admissions
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive
from conformance.wire.exchange import Exchange

__all__ = ["Beyond", "check_accepted", "go_beyond", "refused_in", "regained", "slowed_in"]

_TRIES = 4


@dataclass(slots=True)
class Beyond:
    """What was sent, and what of it was beyond the rate: nothing, where there is no such rate."""

    exchanges: list[Exchange] = field(default_factory=list)
    refused: list[Exchange] = field(default_factory=list)
    slowed: list[Exchange] = field(default_factory=list)

    @property
    def size(self) -> int:
        """How many were sent."""
        return len(self.exchanges)

    @property
    def last_received_ns(self) -> int:
        """When the last answer was there."""
        return max(one.received_ns for one in self.exchanges)


def refused_in(exchanges: list[Exchange]) -> list[Exchange]:
    """Return what was refused, by 429 or by what is said in place of it."""
    odd = odd_statuses(exchanges)
    return [one for one in exchanges if one.refused or one.status in odd]


def slowed_in(bench: Bench, exchanges: list[Exchange]) -> list[Exchange]:
    """Return what was held back: much later than what the preflight saw."""
    bound_ns = late_after_ns(2 * bench.latency_ns)
    return [one for one in exchanges if one.received_ns - one.sent_ns > bound_ns]


def regained(bench: Bench, rate: Rate) -> int:
    """Return how many requests a bucket regains while a burst is under way."""
    limit = rate.limit_requests
    return min(limit, 4 * limit * bench.latency_ns // rate.window_ns)


def check_accepted(burst: Burst, what: str) -> None:
    """Raise `Inconclusive` where not even the first request was taken."""
    ordered = sorted(burst.exchanges, key=lambda one: one.number)
    first = next((one for one in ordered if not is_of_a_front(one.status)), ordered[0])
    if first.status is None or first.status == 401:
        raise Inconclusive(f"{what} is not accepted: {first.status or first.error}")


async def go_beyond(
    bench: Bench,
    counters: Sequence[Counter],
    rate: Rate,
    what: str,
    size: int = 0,
    *,
    pause_ns: int = 0,
    until_lost: bool = False,
) -> Beyond:
    """Send `size` at once (half more than the rate unless given), and more until it is certain.

    counters: of one row, whose keys take turns; with one alone more than 2 L may have to go out,
    with two each gets one burst. what: whose requests they are. pause_ns: before each further
    burst. until_lost: a burst of which a front answers a good part is enough too. Raises
    `Inconclusive` when they come too slowly.
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
        # Whoever blocks refuses at once: what comes late then was held up by something else.
        found.slowed = [] if rate.block_ns else slowed_in(bench, found.exchanges)
        if found.refused or found.slowed or _is_overrun(counters, rate, bursts):
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
    """Whether no way of counting admits as much.

    An edge of aligned windows cannot lie in two bursts, one after the other inside one window: so
    one of them has got no more than the limit, and what a bucket regains meanwhile.
    """
    if len(counters) == 1:
        seen = [one for cluster in counters[0].clusters() for one in cluster]
        return provable_admissions(seen, rate.window_ns) > 2 * rate.limit_requests
    lasted_ns = bursts[-1].last_received_ns - bursts[0].begun_ns
    most = rate.limit_requests + 1 + rate.limit_requests * lasted_ns // rate.window_ns
    answered = [sum(not is_of_a_front(one.status) for one in each.exchanges) for each in bursts]
    return len(bursts) > 1 and lasted_ns < rate.window_ns and min(answered) > most
