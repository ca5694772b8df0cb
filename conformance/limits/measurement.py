"""The steps that every row shares: is there a limit, of whom, what counts, how many at most.

A step that decides the row raises `Decided`. Every "must" here holds for each algorithm that counts
L per W: sliding logs, fixed windows (aligned or anchored), sliding counters, token buckets, GCRA.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple, NoReturn, TypeAlias

from conformance.context.check import Absent
from conformance.context.verdicts import Verdict
from conformance.limits.observations import (
    Burst,
    Observation,
    answer_class,
    is_gateway_answer,
    is_missing,
    may_share_border,
)
from conformance.limits.sending import SECOND_NS, BurstSender, Sender
from conformance.messages.exchange import Exchange

_OTHERS: Final = 4
FEW_AT_ONCE: Final = 16
"""A fresh counter that admits fewer at once may be one of the address, which rows share."""
SPACED: Final = 3
"""A fresh counter that admits fewer at once spaces requests strictly (a reading)."""
_MIXED_AT_ONCE: Final = 8
_MIXED_PARTIES: Final = 3
_ROUNDS: Final = 6
_TURNS: Final = 3
_LOOK_NS: Final = 50_000_000
"""How often another is looked at while a party may be held back."""
_HELD: Final = 2
_LOST_SHARE: Final = 5
_EVIDENCE: Final = 4
FEW_PARTIES: Final = 12
HEAVY_REQUESTS: Final = 1_000
"""A row of as many requests is measured while no other row is, with as few bursts as possible."""


PrepareValid: TypeAlias = Callable[[], Coroutine[Any, Any, bool]]


class Decided(Exception):
    """A step has decided the row. clause: of a rule for all limits, which is broken here."""

    def __init__(
        self,
        verdict: Verdict,
        message: str,
        evidence: Sequence[Exchange] = (),
        clause: str | None = None,
    ) -> None:
        super().__init__(message)
        self.clause = clause
        self.verdict = verdict
        self.message = message
        self.evidence = list(evidence)[:_EVIDENCE]


class ProfileEffect(NamedTuple):
    """What a variant shows of the profile: the value where it counts, and where it does not.

    otherwise: None where the row must count it.
    """

    path: str
    value: object
    otherwise: object = None


class Shared(Exception):
    """Others may have taken places in a counter of the key or of the address: measure apart."""


class Delays(Exception):
    """The limiter holds requests back instead of refusing them (D-THROTTLE delay)."""


def seconds(time_ns: int) -> str:
    """Return a time in seconds, as sentences give it.

    >>> seconds(9_870_000_000), seconds(60_000_000_000)
    ('9.87', '60')
    """
    return f"{time_ns / SECOND_NS:.2f}".rstrip("0").rstrip(".")


def evidence_of(*bursts: Burst) -> list[Exchange]:
    """Return the exchanges of bursts that show most: the last admitted and the first refused."""
    chosen = []
    for burst in bursts:
        chosen += [x.exchange for x in (*burst.admitted[-1:], *burst.refused[:1])]
    return chosen


class Measurement:
    """What is known of a row while it is measured.

    counter: what the row counts, `pair`, `key` or `ip`. variants: requests that it counts, by name;
    what each is stands in the row. choices: what variants show of the profile. prepare_valid: makes
    valid requests possible; returns whether as many as the row takes can be sent. fresh: bursts on
    fresh counters, until a request was refused. readings: choices of the profile that were seen.
    is_apart: whether no other row is measured meanwhile.
    """

    def __init__(
        self,
        sender: Sender,
        counter: str,
        variants: Sequence[str],
        choices: Mapping[str, ProfileEffect],
        prepare_valid: PrepareValid,
    ) -> None:
        self.sender = sender
        self.counter = counter
        self._prepare_valid = prepare_valid
        self.variants = tuple(variants)
        self.choices = choices
        self.limit = sender.limit_requests
        self.window_ns = sender.window_ns
        self.block_ns = sender.block_ns
        self.step_ns = sender.step_ns
        self.fresh: list[Burst] = []
        self.readings: dict[str, object] = {}
        self.notes: list[str] = []
        self.is_apart = False
        self.evidence: list[Exchange] = []
        self._apart_refused = 0
        self.kind: str | None = None
        """`window` or `gradual`, once a counter was seen to free itself."""

    @property
    def is_heavy(self) -> bool:
        """Whether bursts are large."""
        return self.limit >= HEAVY_REQUESTS

    # --- deciding ---------------------------------------------------------------------------------

    def fail(self, message: str, *bursts: Burst) -> NoReturn:
        """Decide that the row is wrong."""
        raise Decided(Verdict.FAIL, message, evidence_of(*bursts) or self.evidence)

    def too_strict(self, message: str, *bursts: Burst) -> NoReturn:
        """Decide that the row refuses what it must admit, unless others may have taken places.

        They may where a key and an address can each have a counter, which parties and rows share.
        """
        kind, seen = self.sender.parties.kind, self.readings.get("limits.and_counter")
        if kind in {"pair", "each"} and seen != "pair" and not self.is_apart:
            raise Shared
        self.fail(message, *bursts)

    def undecided(self, message: str) -> NoReturn:
        """End this measurement without a verdict."""
        raise Decided(Verdict.INCONCLUSIVE, message, self.evidence)

    def within(self, name: str, low_ns: int, high_ns: int, value_ns: int) -> str:
        """Return words on a time that lies between two bounds; decide where that is not enough."""
        text = f"{seconds(low_ns)} to {seconds(high_ns)} s"
        if low_ns > value_ns:
            self.too_strict(f"the {name} is {text}, not {seconds(value_ns)} s")
        if high_ns < value_ns:
            self.fail(f"the {name} is {text}, not {seconds(value_ns)} s")
        if low_ns < 0.9 * value_ns or high_ns > 1.1 * value_ns:
            self.undecided(f"the {name} is only known to be {text}")
        return text

    # --- is there a limit, and whom does it hold for ----------------------------------------------

    async def whom(self) -> None:
        """Fill two counters, and see who else is refused then and which requests are not."""
        for turn in range(2):  # twice: an aligned window may begin anew just then
            party = await self.sender.take()
            burst = await self.fill(party)
            self.check_capacity(self.fresh, "on fresh counters")
            if await self._is_address_spaced(party, burst):
                self.undecided(
                    "the address is refused whatever is sent, so the row cannot be seen: LIM-IP "
                    "seems to space requests"
                )
            await self._others(party, burst)
            await self._other_rows(party, burst)
            if not turn:
                await self._variants(party)
                self.first_party, self.silent_since_ns = party, self.sender.now_ns
            free = self.sender.parties.fresh_count(self.sender.now_ns)
            is_over = burst.size - self.regained(burst) > self.limit
            if not is_over and (self.is_heavy or free < FEW_PARTIES):
                break
        if not self.is_heavy and free >= _MIXED_PARTIES:
            await self._mixed()
        self._check_whom_seen()

    def _check_whom_seen(self) -> None:
        """See to it that it is known whom a counter holds for, where that can be seen."""
        kind, parties = self.sender.parties.kind, self.sender.parties.candidates
        if kind not in {"pair", "each"} or "limits.and_counter" in self.readings:
            return
        if len({x.key for x in parties}) == 1 or len({x.sources for x in parties}) == 1:
            self.notes.append("with one key or one address, whom it holds for cannot be seen")
        elif not self.is_apart:
            raise Shared
        else:
            self.notes.append("the counter was free again before others could be seen beside it")

    async def fill(self, party: BurstSender) -> Burst:
        """Fill a fresh counter until a request is refused; decide where none is."""
        burst = await self.sender.until_refused(party, self.limit)
        is_slow = any(map(self.sender.is_slow, burst.all))
        if burst.refused and is_slow and await self._is_alone(party):
            raise Delays
        if not burst.refused:
            burst = await self._unlimited(party, burst)
        self.fresh.append(burst)
        self.evidence = evidence_of(burst)
        return burst

    async def _unlimited(self, party: BurstSender, burst: Burst) -> Burst:
        """Decide what a burst without any refusal means; returns it where it had refusals."""
        sender = self.sender
        if any(map(sender.is_slow, burst.all)):
            if await self._is_alone(party):
                raise Delays
            more = max(0, 2 * self.limit + 2 - burst.size)
            burst += await sender.at_once(party, more, slow_ends=False)
            if burst.refused:
                return burst
        substitute = sender.refusals.substitute([x.exchange for x in burst.all])
        if substitute is not None and await self._stands_for_refusal(party, substitute):
            sender.refusals.substitutes.add(substitute)
            again = [
                x._replace(refused=sender.refusals.is_refused(x.exchange, "plain"))
                for x in burst.all
            ]
            return Burst(again)
        exchanges = [x.exchange for x in burst.all]
        if burst.lost > len(burst.all) // _LOST_SHARE:
            self.undecided(f"{burst.lost} of {len(burst.all)} answers were lost")
        usual = sender.refusals.usual
        is_uncounted = is_missing(exchanges) or not self.do_failures_count()
        if usual.get("plain", 0) >= 400 and "valid" not in usual and is_uncounted:
            return await self._valid_twin(burst)  # it skips a row whose operation is missing
        if is_missing(exchanges):
            raise Absent("the deployment does not have this operation")
        if burst.duration_ns >= self.window_ns:
            self.undecided(
                f"{burst.size} requests took {seconds(burst.duration_ns)} s, too long to exceed "
                f"{self.limit} per {seconds(self.window_ns)} s; run closer to the server"
            )
        message = (
            f"{burst.size} requests in {seconds(burst.duration_ns)} s were all admitted: no limit "
            f"of {self.limit} per {seconds(self.window_ns)} s"
        )
        raise Decided(Verdict.FAIL, message, exchanges[-2:])

    def do_failures_count(self) -> bool:
        """Whether another check has shown that failed requests count (D-COUNTED)."""
        ctx, name = self.sender.ctx, "limits.counted_statuses"

        def is_known() -> int:
            return ctx.knows(name) and ctx.profile.limits.counted_statuses == "every"

        return bool(self.sender.recorded("failures count", is_known))

    async def _valid_twin(self, burst: Burst) -> Burst:
        """Fill with valid requests where all were answered 4xx: failed ones need not count."""
        sender = self.sender
        is_enough = await self._prepare_valid()
        party = await sender.take()
        probe = await sender.send(party, "valid")
        if not probe.exchange.ok:
            if is_missing([x.exchange for x in (*burst.all, probe)]):
                raise Absent("the deployment does not have this operation")
            self.undecided(
                f"requests are answered {sender.refusals.usual['plain']} and never refused, and "
                "failed requests need not count; give the key the permissions for them"
            )
        make = sender.make
        sender.make = lambda variant, whose, number: make(
            "valid" if variant == "plain" else variant, whose, number
        )
        status = sender.refusals.usual["plain"]
        sender.refusals.usual["plain"] = probe.exchange.status or 0
        if probe.exchange.ask.key != party.key:  # one key for all: only the address differs
            sender.parties.kind = "ip"
        twin = await sender.until_refused(party, self.limit)
        if not twin.refused and probe.exchange.ask.method == "OPTIONS":
            self.undecided(
                f"requests are answered {status} and never refused, and failed requests need not "
                "count; OPTIONS is not refused either, which a gateway may answer"
            )
        if not twin.refused:
            return await self._unlimited(party, twin)
        self.readings["limits.counted_statuses"] = "success"
        if not is_enough:
            self.undecided(
                f"{twin.size + 1} of the requests that succeed are admitted; more of them would "
                "be needed to see the window: give the key the permissions for them"
            )
        return twin

    async def _is_alone(self, party: BurstSender) -> bool:
        """Whether a party is held back once more, and another is answered at once all the while.

        A limiter that delays holds back this party alone, a slow network or machine all alike.
        """
        sender = self.sender
        other = BurstSender(None, sender.ctx.target.addresses[:1])
        mine: list[Observation] = []
        others: list[Observation] = []

        async def held() -> None:
            mine.extend((await sender.at_once(party, self.limit + 2)).all)

        async def beside() -> None:
            while not mine:
                others.append(await sender.send(other, "apart"))
                await sender.wait_until_ns(others[-1].sent_ns + _LOOK_NS)

        await sender.gather([held(), beside()])
        slow_ns = max((x.rtt_ns for x in mine if sender.is_slow(x)), default=0)
        return slow_ns > _HELD * max(x.rtt_ns for x in others)

    async def _stands_for_refusal(self, party: BurstSender, substitute: object) -> bool:
        """Whether only this party gets an answer, again and again, and another party never."""
        other = await self.sender.take()
        for _ in range(_TURNS):
            mine = await self.sender.send(party)
            theirs = await self.sender.send(other)
            if answer_class(mine.exchange) != substitute:
                return False
            if answer_class(theirs.exchange) == substitute:
                return False
        return True

    async def _is_address_spaced(self, party: BurstSender, burst: Burst) -> bool:
        """Whether a small burst was refused by the address's counter: it saves up few requests.

        Of more requests, without a key and together, some are refused then too.
        """
        most = SPACED if self.counter == "ip" else FEW_AT_ONCE
        if burst.size >= min(most, self.limit):
            return False
        address = BurstSender(None, party.sources[:1])
        sends = [self.sender.send(address, "apart") for _ in range(2 * FEW_AT_ONCE)]
        return any(x.refused for x in await self.sender.gather(sends))

    async def _share_refused(
        self, parties: Sequence[BurstSender], times: int, part: float = 0.5
    ) -> bool:
        """Whether more than a part of what these parties send is refused."""
        sends = [self.sender.send(party) for party in parties for _ in range(times)]
        seen = Burst(await self.sender.gather(sends))
        return len(seen.refused) > part * (seen.size + len(seen.refused))

    async def _others(self, party: BurstSender, burst: Burst) -> None:
        """Send for others while a counter is full: whom does it hold for?"""
        if self.counter == "ip":
            await self._other_addresses(party, burst)
        elif self.counter == "key":
            await self._same_key(party, burst)
        elif self.sender.parties.kind != "ip" and "limits.and_counter" not in self.readings:
            await self._other_pairs(party, burst)

    async def _other_rows(self, party: BurstSender, burst: Burst) -> None:
        """Send an operation of another row while the counter is full: it has a counter apart."""
        if not self.sender.is_of_resource:
            return
        seen = await self.sender.gather([self.sender.send(party, "apart") for _ in range(_TURNS)])
        answers = [x for x in seen if x.refused is not None]
        self._apart_refused += bool(answers) and all(x.refused for x in answers)
        if self._apart_refused > 1:
            message = "a full counter also refused an operation of another row"
            self.too_strict(message, burst, Burst(seen))

    async def _other_addresses(self, party: BurstSender, burst: Burst) -> None:
        others = self._fresh(lambda other: other != party, 2)
        if await self._share_refused(others, _TURNS):
            self.fail("a full counter also refused another address", burst)

    async def _same_key(self, party: BurstSender, burst: Burst) -> None:
        others = [x for x in self._of_key(party) if x.sources[0] not in party.sources][:_OTHERS]
        times = 1 if self.block_ns else _TURNS
        sends = [self.sender.send(other) for other in others for _ in range(times)]
        seen = Burst(await self.sender.gather(sends))
        since_full_ns = seen.last_received_ns - burst.refused[-1].sent_ns
        if seen.size > 1 + since_full_ns / self.step_ns and await self._is_full(party, burst):
            self.fail("a full counter did not refuse the key at another address", burst, seen)

    async def _is_full(self, party: BurstSender, burst: Burst) -> bool:
        """Whether a party is still refused, more often than a bucket regains since a burst."""
        since_full_ns = self.sender.now_ns - burst.refused[-1].sent_ns
        times = min(self.limit, since_full_ns // self.step_ns + _TURNS)
        return bool(await self._share_refused([party], times, 0))

    async def _other_pairs(self, party: BurstSender, burst: Burst) -> None:
        """See whether a pair is counted: neither its key nor its address alone."""
        parties, key, sources = self.sender.parties, party.key, party.sources
        now_ns = self.sender.now_ns
        rested = [
            x
            for x in parties.candidates
            if parties.is_rested((x.key, "") if x.key != key else ("", x.sources[0]), now_ns)
        ]
        same_key = self._fresh(lambda x: x.key == key and x.sources != sources)
        same_source = self._fresh(lambda x: x.key != key and x.sources == sources)
        by_key, by_source = await self.sender.gather(
            [self._are_refused(x, burst, rested) for x in (same_key, same_source)]
        )
        # The party itself sends after them, which shows that its counter is still full.
        if None in {by_key, by_source} or not await self._is_full(party, burst):
            return
        if by_key and by_source:
            if self.block_ns:
                await self._check_counters_shared(party, burst)
            self.readings["limits.and_counter"] = "each"
            parties.kind = "each"
            neither = self._fresh(lambda x: parties.is_fresh(x, self.sender.now_ns))
            if await self._share_refused(neither, 1):
                self.too_strict("a full counter also refused other keys at other addresses", burst)
        elif by_key or by_source:
            other = "address" if by_key else "key"
            decide = self.fail if burst.size >= self.limit else self.too_strict
            decide(f"a full counter also refused another {other}: it is not of the pair", burst)
        else:
            self.readings["limits.and_counter"] = parties.kind = "pair"

    async def _are_refused(
        self, parties: Sequence[BurstSender], burst: Burst, rested: Sequence[BurstSender]
    ) -> bool | None:
        """Whether parties are refused beside a full counter; None where that is not seen.

        They are not, if more were admitted than the counter holds. rested: whose refusals show it:
        of the others, another counter may be full.
        """
        if not parties:
            return None
        most = 2 * int(self.regained(burst)) + _TURNS
        times = max(1, min(burst.size, self.limit, -(-most // len(parties))))
        sends = [self.sender.send(party) for party in parties for _ in range(times)]
        seen = await self.sender.gather(sends)
        telling = Burst(x for place, x in enumerate(seen) if parties[place // times] in rested)
        if len(telling.refused) > telling.size:
            return True
        whole = burst + Burst(seen)
        is_more = whole.size - min(self.limit, burst.size) > self.regained(whole)
        return False if is_more else None

    async def _check_counters_shared(self, party: BurstSender, burst: Burst) -> None:
        """Where a block refuses key and address, see whether full counters do, without a block.

        Twice, for an aligned window may begin anew just then. What a bucket regains meanwhile
        admits others too, so more are sent than that.
        """
        sender, refusing = self.sender, [party]
        whole = Burst(())

        def is_apart(other: BurstSender) -> bool:
            return all(other.key != x.key and other.sources != x.sources for x in refusing)

        for _ in range(2):
            taken = self._fresh(is_apart, 1)
            if not taken:
                return
            beside = [*self._beside(taken[0], is_apart)]
            if len(beside) < 2:
                return
            full = await sender.at_once(taken[0], self.limit)
            most = min(self.limit, 2 * int(self.regained(full)) + 3)
            sends = [sender.send(other) for other in beside for _ in range(most)]
            seen = await sender.gather(sends)
            fewest = min(Burst(seen[:most]).size, Burst(seen[most:]).size)
            whole += full + Burst(seen)
            if full.size < self.limit or fewest <= self.regained(full + Burst(seen)):
                return
            refusing += [*taken, *beside]
        if whole.duration_ns >= self.window_ns:
            return
        self.fail(
            "a block refuses other addresses of the key and other keys of the address, whose "
            "counters are not full: it must hold for the pair",
            burst,
            whole,
        )

    def _beside(
        self, party: BurstSender, is_apart: Callable[[BurstSender], bool]
    ) -> Iterator[BurstSender]:
        """Yield a fresh party of the same key, and one of the same address."""
        key, sources = party.key, party.sources
        yield from self._fresh(lambda other: is_apart(other) and other.key == key, 1)
        yield from self._fresh(lambda other: is_apart(other) and other.sources == sources, 1)

    def _fresh(
        self, suits: Callable[[BurstSender], bool], most: int = _OTHERS
    ) -> list[BurstSender]:
        return self.sender.parties.fresh(self.sender.now_ns, suits, most)

    def _of_key(self, party: BurstSender) -> list[BurstSender]:
        """Return a key at each of its addresses."""
        sources = {other.sources for other in self.sender.parties.candidates}
        more = {(source,) for source in self.sender.ctx.sources}
        return [BurstSender(party.key, group) for group in sorted(sources | more, key=str)]

    # --- which requests it holds for --------------------------------------------------------------

    async def _variants(self, party: BurstSender) -> None:
        """While a counter is full, send each variant between plain requests: it must be refused.

        What a bucket regains meanwhile admits plain requests as well.
        """
        for variant in self.variants:
            is_counted = None
            for _ in range(_TURNS):
                if is_counted is None:
                    is_counted = await self._is_refused_too(party, variant)
            choice = self.choices.get(variant)
            if is_counted is None:
                self.notes.append(f"whether {variant} counts was not seen")
            elif choice is not None:
                self.readings[choice.path] = choice.value if is_counted else choice.otherwise

    async def _is_refused_too(self, party: BurstSender, variant: str) -> bool | None:
        """Whether a variant is refused while plain requests are; None where that is not seen."""
        sender = self.sender
        plain: list[Observation] = []
        other: list[Observation] = []
        for _ in range(_ROUNDS):
            plain.append(await sender.send(party))
            other.append(await sender.send(party, variant))
            if other[-1].refused:
                return True
        is_due = self._must_count(other[-1], do_failures=self.do_failures_count())
        if is_gateway_answer(other[-1].exchange.status) or not is_due:
            return None  # it may be validated before it counts
        if sum(x.refused is False for x in plain) > 1:
            await sender.until_refused(party, 0)  # it has begun anew meanwhile
            return None
        lasted_ns = plain[-1].received_ns - other[0].sent_ns
        if lasted_ns // self.step_ns > _ROUNDS // 2:
            return None
        choice = self.choices.get(variant)
        if choice is not None and choice.otherwise is not None:
            return False
        evidence = [plain[0].exchange, other[0].exchange, other[-1].exchange, plain[-1].exchange]
        raise Decided(
            Verdict.FAIL,
            f"{variant}: {_ROUNDS} requests were admitted between refused ones: the row must count "
            "them too",
            evidence,
        )

    async def _mixed(self) -> None:
        """Fill counters with plain requests and variants in turn: all of them must count alike."""
        sender, bursts = self.sender, []
        counted = [
            variant
            for variant in self.variants
            if variant not in self.choices or self.choices[variant].otherwise is None
        ]
        names = [name for variant in counted for name in ("plain", variant)]
        for _ in range(2 if names else 0):  # at two phases: an aligned window may begin anew
            party = await sender.take()
            burst = Burst(())
            kinds = itertools.cycle(names)
            while not burst.refused and len(burst.all) < 2 * self.limit + 2:
                few = max(1, min(_MIXED_AT_ONCE, self.limit - len(burst.all)))
                sends = [sender.send(party, next(kinds)) for _ in range(few)]
                burst += Burst(await sender.gather(sends))
                if any(map(sender.is_slow, burst.all)):
                    return
            do_all = self.do_failures_count()
            like = [x for x in burst.admitted if self._must_count(x, do_failures=do_all)]
            bursts.append(burst)
            if self._is_mixed_right(burst, len(like)):
                return
        if bursts:
            fewer, more = (min(burst.size for burst in bursts), max(burst.size for burst in bursts))
            is_over = min(burst.size - self.regained(burst) for burst in bursts) > self.limit
            decide = self.fail if is_over else self.too_strict
            decide(
                f"bursts of plain requests in turn with {', '.join(counted)} admitted "
                f"{fewer} to {more}, and plain ones alone {self.fresh[0].size}: all must count, "
                "once each",
                *bursts,
            )

    def _must_count(self, observation: Observation, *, do_failures: bool) -> bool:
        """Whether it was answered as plain ones are, or is a success, or failures count too."""
        status = observation.exchange.status or 0
        is_like = 200 <= status < 300 or status == self.sender.refusals.usual.get("plain")
        return is_like or do_failures

    def _is_mixed_right(self, burst: Burst, like: int) -> bool:
        regained = self.regained(burst) + 1e-6
        fewest = min(self.fresh[0].size, self.limit)
        is_enough = burst.size + burst.lost + self.limit // 20 + 1 >= fewest
        return like <= self.limit + regained and (is_enough or fewest < SPACED)

    # --- how many ---------------------------------------------------------------------------------

    def regained(self, burst: Burst) -> float:
        """Return how many requests a counter regains during a burst, at most."""
        return 0 if self.kind == "window" else burst.duration_ns / self.step_ns

    def check_capacity(self, bursts: Sequence[Burst], where: str) -> None:
        """No algorithm admits more than L and the refill, but where an aligned window begins.

        So one of two bursts must be within it, unless one window may have begun in both.
        """
        over = [x for x in bursts if x.size - self.regained(x) > self.limit + 1e-6]
        for first, second in itertools.combinations(over, 2):
            is_shared = may_share_border(first.span, second.span, self.window_ns)
            if len(over) == len(bursts) and not is_shared:
                sizes = " and ".join(str(burst.size) for burst in bursts)
                self.fail(
                    f"bursts {where} admitted {sizes} requests, more than {self.limit} plus the "
                    "refill during the burst",
                    first,
                    second,
                )

    def check_number(self, burst: Burst, size: int) -> None:
        """Decide where a fresh window did not admit exactly the limit."""
        few = size + burst.lost < self.limit
        if size > self.limit or few:
            message = f"{size} requests were admitted in a fresh window, not {self.limit}"
            decide = self.too_strict if few else self.fail
            decide(message, burst)
        if burst.lost:
            self.undecided(f"{burst.lost} answers were lost in a burst")
