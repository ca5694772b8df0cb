"""Sending to the counters of a limit row: parties, bursts, polls and trains.

A *party* is what a row counts: a pair of key and address, a key, or an address. A measurement takes
fresh parties from a pool; a party is fresh again once nothing that it sent can count any more.
Nothing here judges. Loops end by the times of exchanges, never by the clock alone, so that a
recorded history replays the same requests.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from conformance.context.check import Inconclusive
from conformance.context.context import CheckContext, Lane
from conformance.context.cooldown import CounterId
from conformance.limits.observations import Burst, Observation, RefusalClassifier
from conformance.messages.exchange import HttpRequest, KeyLabel
from conformance.target import Source
from conformance.wire.pace import Traffic

WIDTH: Final = 32
"""Requests in flight in a burst."""
SECOND_NS: Final = 1_000_000_000
_SLOW_NS: Final = 300_000_000
_SLOW_RTTS: Final = 20

Sleep: TypeAlias = Callable[[int], Coroutine[Any, Any, None]]


@dataclass(frozen=True, slots=True)
class BurstSender:
    """A key and an address; with several addresses, its requests take them in turn."""

    key: KeyLabel | None
    sources: tuple[Source, ...]

    @property
    def name(self) -> str:
        """The name of its lane."""
        return f"{self.key or 'no key'} from {self.sources[0] or 'this machine'}" + (
            f" and {len(self.sources) - 1} more" if self.sources[1:] else ""
        )


def counter_ids(kind: str, party: BurstSender) -> tuple[CounterId, ...]:
    """Return the counters that a party's requests are in.

    kind: what a counter is of: `pair`, `key`, `ip`, or `each` (the pair, the key and the address).
    """
    source = party.sources[0]
    return {
        "pair": ((party.key, source),),
        "key": ((party.key, ""),),
        "ip": (("", source),),
        "each": ((party.key, source), (party.key, ""), ("", source)),
    }[kind]


class BurstSenders:
    """The parties of a row: which are fresh, and when those in use will be fresh again."""

    def __init__(
        self,
        candidates: Sequence[BurstSender],
        kind: str,
        rest_ns: int,
        last_used_ns: Mapping[CounterId, int] | None = None,
    ) -> None:
        self.candidates = list(candidates)
        self.kind = kind
        self.rest_ns = rest_ns
        self.last_used_ns: dict[CounterId, int] = dict(last_used_ns or {})
        self._reserved: set[CounterId] = set()

    def used(self, party: BurstSender, at_ns: int) -> None:
        """Note that a party has sent, or that its block lasts until then."""
        for counter in self._touched(party):
            self.last_used_ns[counter] = max(at_ns, self.last_used_ns.get(counter, at_ns))

    def _touched(self, party: BurstSender) -> tuple[CounterId, ...]:
        """Return the counters that a party's requests may be in: a pair may be counted by each."""
        return counter_ids("each" if self.kind == "pair" else self.kind, party)

    def _used_ns(self, counter: CounterId) -> int:
        return self.last_used_ns.get(counter, -(1 << 62))

    def is_rested(self, counter: CounterId, now_ns: int) -> bool:
        """Whether nothing in a counter counts any more."""
        return self._used_ns(counter) + self.rest_ns <= now_ns

    def _last_ns(self, party: BurstSender) -> int:
        return max(map(self._used_ns, counter_ids(self.kind, party)))

    def _by_rest(self, party: BurstSender) -> list[int]:
        return sorted(map(self._used_ns, self._touched(party)), reverse=True)

    def is_fresh(self, party: BurstSender, now_ns: int) -> bool:
        """Whether nothing that a party has sent counts any more."""
        return self._last_ns(party) + self.rest_ns <= now_ns

    def fresh_count(self, now_ns: int) -> int:
        """Return how many parties could be taken now, at least."""
        fresh = [party for party in self.candidates if self.is_fresh(party, now_ns)]
        if self.kind == "each":
            return min(len({party.key for party in fresh}), len({party.sources for party in fresh}))
        return len({counter_ids(self.kind, party) for party in fresh})

    async def take(self, lane: Lane, but: Sequence[BurstSender] = ()) -> BurstSender:
        """Return the party that has rested longest, once it is fresh; none of `but`."""
        while True:
            others = [party for party in self.candidates if party not in but]
            free = [party for party in others if not self._is_reserved(party)]
            party = min(
                free or others or self.candidates,
                key=lambda x: (self._last_ns(x), self._by_rest(x)),
            )
            ids = counter_ids(self.kind, party)
            self._reserved.update(ids)
            try:
                await lane.sleep_until_ns(self._last_ns(party) + self.rest_ns, "its keys rest")
            finally:
                self._reserved.difference_update(ids)
            if self.is_fresh(party, lane.now_ns):  # else it was used meanwhile
                self.used(party, lane.now_ns)
                return party

    def _is_reserved(self, party: BurstSender) -> bool:
        return not self._reserved.isdisjoint(counter_ids(self.kind, party))

    def fresh(
        self, now_ns: int, suits: Callable[[BurstSender], bool], most: int
    ) -> list[BurstSender]:
        """Return parties whose own counters are fresh, at most so many; note that they are used.

        Those whose keys and addresses have rested longest come first.
        """
        chosen: list[BurstSender] = []
        for party in sorted(self.candidates, key=self._by_rest):
            own = counter_ids(self.kind, party)[0]
            if len(chosen) < most and suits(party) and self.is_rested(own, now_ns):
                chosen.append(party)
                self.used(party, now_ns)
        return chosen


MakeAsk: TypeAlias = Callable[[str, BurstSender, int], HttpRequest]
"""Makes a request of a variant (`plain` or another), of a party, from its number."""


@dataclass(slots=True)
class Sender:
    """Sends a row's requests, and keeps what they showed.

    limit_requests, window_ns, block_ns: of the row. make: what a request is. apart: a party that
    shares no key and no address with other rows, and its turn. is_light: whether the other rows'
    limits must be respected. is_of_resource: whether another operation has other counters.
    """

    ctx: CheckContext
    limit_requests: int
    window_ns: int
    block_ns: int
    parties: BurstSenders
    make: MakeAsk
    traffic: Traffic
    apart: tuple[BurstSender, int]
    prefix: str = ""
    is_light: bool = True
    is_of_resource: bool = False
    refusals: RefusalClassifier = field(default_factory=RefusalClassifier)
    rtts_ns: list[int] = field(default_factory=list)
    numbers: dict[str, int] = field(default_factory=dict)
    _lanes: dict[str, Lane] = field(default_factory=dict)
    _total_ns: int = 0
    _least_ns: int | None = None
    _recorded: int = 0

    @property
    def step_ns(self) -> int:
        """The time in which the row regains one request."""
        return self.window_ns // self.limit_requests

    @property
    def clock(self) -> Lane:
        """The lane that only waits."""
        return self._lane("wait")

    @property
    def now_ns(self) -> int:
        """The suite's clock."""
        return self.clock.now_ns

    @property
    def rtt_ns(self) -> int:
        """The mean round-trip time."""
        return self._total_ns // max(1, len(self.rtts_ns))

    @property
    def least_rtt_ns(self) -> int:
        """The shortest round-trip time."""
        return self._least_ns or 0

    @property
    def jitter_ns(self) -> int:
        """By how much round trips differ."""
        ordered = sorted(self.rtts_ns)
        return ordered[int(0.99 * (len(ordered) - 1))] - ordered[0] if ordered else 0

    @property
    def slow_ns(self) -> int:
        """The round trip above which an answer may have been held back."""
        return max(_SLOW_NS, self.window_ns // 20) + _SLOW_RTTS * self.least_rtt_ns

    def _lane(self, name: str) -> Lane:
        name = f"{self.prefix}{name}"
        if name not in self._lanes:
            self._lanes[name] = self.ctx.lane(name)
        return self._lanes[name]

    def recorded(self, what: str, compute: Callable[[], int]) -> int:
        """Return what depends on other rows, and record it: no exchange of this row shows it."""
        self._recorded += 1
        name = f"{self.prefix}{what} {self._recorded}"
        return int(self.ctx.make(name, lambda: str(int(compute()))))

    async def wait_until_ns(
        self, at_ns: int, party: BurstSender | None = None, why: str = "its window is over"
    ) -> None:
        """Sleep until an instant. party: who waits; no other step takes it meanwhile."""
        if party is not None:
            self.parties.used(party, at_ns)
        await self.clock.sleep_until_ns(at_ns, why)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines at the same time; results in order."""
        return await self.ctx.gather(coroutines)

    async def take(self, but: Sequence[BurstSender] = ()) -> BurstSender:
        """Return a fresh party, none of `but`, once rows for any resource leave room for it."""
        party = await self.parties.take(self.clock, but)
        names, size = [party.key, *party.sources], self.limit_requests * 3 // 2

        def room_ns() -> int:
            return self.traffic.wait_ns(names, size, self.now_ns)

        while self.is_light and (wait_ns := self.recorded("room", room_ns)):
            await self.wait_until_ns(self.now_ns + wait_ns, why="other limits leave room")
        return party

    async def take_several(self, count: int) -> list[BurstSender]:
        """Return as many different fresh parties, once all are fresh."""
        parties: list[BurstSender] = []
        for _ in range(count):
            parties.append(await self.take(parties))
        for party in parties:
            self.parties.used(party, self.now_ns)
        return parties

    async def take_apart(self) -> BurstSender:
        """Return a party that no row holds back, once all others have ended or wait for theirs."""
        party, turn = self.apart
        self.traffic.measuring.discard(self.ctx.check.id)
        while self.recorded("measured rows", lambda: len(self.traffic.measuring)):
            await self.wait_until_ns(self.now_ns + SECOND_NS, why="other rows are measured")
        rest_ns = 2 * self.window_ns + turn * 6 * self.window_ns
        await self.wait_until_ns(self.now_ns + rest_ns, why="what was held back is answered")
        return party

    async def send(self, party: BurstSender, variant: str = "plain") -> Observation:
        """Send a request and wait for its answer."""
        number = self.numbers[party.name] = self.numbers.get(party.name, -1) + 1
        exchange = await self._lane(party.name).send(self.make(variant, party, number))
        if exchange.status == 401 and party.key is not None and exchange.ask.key == party.key:
            raise Inconclusive(f"{party.key} is not accepted: 401")
        refused = self.refusals.is_refused(exchange, variant)
        rtt_ns = exchange.received_ns - exchange.sent_ns
        if self._least_ns is None or rtt_ns <= self.slow_ns:  # else it was held back
            self.rtts_ns.append(rtt_ns)
            self._total_ns += rtt_ns
            self._least_ns = min(rtt_ns, self._least_ns or rtt_ns)
        blocked_ns = self.block_ns if refused else 0
        self.parties.used(party, exchange.received_ns + blocked_ns)
        return Observation(exchange.sent_ns, exchange.received_ns, refused, exchange)

    async def at_once(
        self, party: BurstSender, size: int, variant: str = "plain", *, slow_ends: bool = True
    ) -> Burst:
        """Send as fast as the connections allow; stop at a refusal.

        slow_ends: stop at a slow answer too, since a limiter may hold it back.
        """
        self.traffic.note([party.key, *party.sources], size, self.now_ns)
        seen: list[Observation] = []
        left = size

        def is_over() -> bool:
            slow_ns = self.slow_ns if slow_ends else math.inf
            last = seen[-WIDTH:]
            return any(x.refused or (x.refused is False and x.rtt_ns > slow_ns) for x in last)

        async def work() -> None:
            nonlocal left
            while left > 0 and not is_over():
                left -= 1
                seen.append(await self.send(party, variant))

        await self.gather([work() for _ in range(min(WIDTH, size))])
        return Burst(seen)

    def is_slow(self, observation: Observation) -> bool:
        """Whether an admission came so late that it may have been held back."""
        return observation.refused is False and observation.rtt_ns > self.slow_ns

    async def until_refused(self, party: BurstSender, at_once: int) -> Burst:
        """Send `at_once` together, then few by few until one is refused, at most 2 L + 2."""
        burst = await self.at_once(party, at_once) if at_once else Burst(())
        few = math.ceil(2 * self.rtt_ns / self.step_ns) or 1
        small = self.limit_requests // 10 + 3
        while not burst.refused and len(burst.all) < 2 * self.limit_requests + 2:
            if any(self.is_slow(x) for x in burst.all):
                break
            small -= 1
            size = few if small > 0 else max(few, self.limit_requests // 12)
            burst += await self.at_once(party, size)
        return burst

    async def poll(
        self, party: BurstSender, every_ns: int, until_ns: int, last: Observation
    ) -> tuple[Observation, Observation | None]:
        """Poll until a request is admitted; returns the last refused one and the admitted one.

        last: a refusal before the polls.
        """
        at_ns = last.sent_ns
        while at_ns < until_ns:
            observation = await self.send(party)
            if observation.refused is False:
                return last, observation
            last = observation if observation.refused else last
            at_ns = observation.sent_ns + every_ns
            await self.wait_until_ns(at_ns)
        return last, None

    async def train(self, party: BurstSender, every_ns: int, duration_ns: int) -> list[Observation]:
        """Send at a steady pace, without waiting for answers."""
        size = max(1, duration_ns // every_ns)
        start_ns = self.now_ns

        async def wagon(place: int) -> Observation:
            await self.wait_until_ns(start_ns + place * every_ns)
            return await self.send(party)

        return list(await self.gather([wagon(place) for place in range(size)]))
