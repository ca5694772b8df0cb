"""Rows that block: the window by parties that never exceed the rate, the block by parties that do.

Polling a block row would restart its block. So each party of the *ladder* fills its counter without
exceeding it, and sends a single request later, each at another part of the window. A block inside a
full window cannot be seen: a party exceeds the rate shortly before its window ends.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Sequence
from typing import Any, Final, NamedTuple

from conformance.context.verdicts import Verdict
from conformance.limits.measurement import Decided, Measurement, seconds
from conformance.limits.observations import Burst, Observation, may_share_border
from conformance.limits.sending import BurstSender
from conformance.limits.throttle import paced

_RUNGS: Final = 20
_RUNGS_HEAVY: Final = 4
_FEWEST_RUNGS: Final = 3
_HEAVY: Final = 1_000
_OTHER_PARTIES: Final = 5
_SHARP: Final = 16
_ROUNDS: Final = 3


class _Rung(NamedTuple):
    """A party that filled its counter, and its single request later.

    more, of_bucket: how much was admitted then, where that was seen, and what a bucket admits.
    """

    burst: Burst
    probe: Observation
    more: int | None = None
    of_bucket: float = 0

    @property
    def is_admitted(self) -> bool:
        return self.probe.refused is False

    @property
    def least_ns(self) -> int:
        """The time from the first request to the probe, at least."""
        return self.probe.sent_ns - self.burst.first_received_ns

    @property
    def most_ns(self) -> int:
        """The time from the first request to the probe, at most."""
        return self.probe.received_ns - self.burst.first_sent_ns


class BlockMeasurement(Measurement):
    """Measures a row that blocks.

    boundary: between which instants an aligned window began. is_extended: whether requests during a
    block may extend it. of_block: what has decided the block;
    block_message: words on it, where it is right.
    """

    boundary: tuple[int, int] | None = None
    is_extended = True
    of_block: Sequence[Decided] = ()
    block_message: str | None = None

    async def run(self) -> str:
        """Return words on what was measured; raises `Decided` where the row is not right."""
        await self.whom()
        if max(burst.size for burst in self.fresh) < self.limit / 2:
            self.kind = "gradual"
            return "small bursts; " + await paced(self, is_bucket=False)
        parts = [self._window(), self._block(), self._second_block()]
        results = await self.sender.gather([_decided(part) for part in parts])
        decisions = [result for result in results if isinstance(result, Decided)]
        self.of_block = [result for result in results[1:] if isinstance(result, Decided)]
        if decisions:
            raise max(decisions, key=lambda decision: decision.verdict)
        self.block_message = results[1]
        return f"{results[0]}; {results[1]}"

    # --- the window -------------------------------------------------------------------------------

    @property
    def _fill_ns(self) -> int:
        return max(burst.duration_ns for burst in self.fresh) + 2 * self.sender.rtt_ns

    async def _rung(
        self,
        part: float,
        start_ns: int,
        party: BurstSender | None = None,
        *,
        is_counted: bool = False,
        until_ns: int = 0,
    ) -> _Rung:
        """Fill a counter from an instant on, and send once a part of the window later.

        party: a fresh one unless given. is_counted: whether to see how much is admitted then.
        until_ns: when to send instead.
        """
        sender = self.sender
        await sender.wait_until_ns(start_ns, party)
        party = party or await sender.take()
        burst = await sender.at_once(party, self.limit)
        if burst.refused:
            self.check_number(burst, burst.size)
        if any(map(sender.is_slow, burst.all)):
            self.undecided(f"{burst.size} answers took {seconds(burst.duration_ns)} s")
        at_ns = until_ns or burst.first_sent_ns + int(part * self.window_ns)
        await sender.wait_until_ns(at_ns, party)
        probe = await sender.send(party)
        more, of_bucket = None, 0.0
        if probe.refused is False and is_counted:
            # A log frees itself as slowly as it was filled.
            await sender.wait_until_ns(probe.received_ns + burst.duration_ns, party)
            again = await sender.until_refused(party, self.limit - 1)
            more = again.size + 1 if again.refused and not again.lost else None
            silence_ns = again.first_sent_ns - burst.first_sent_ns
            of_bucket = min(self.limit, silence_ns / self.step_ns) + self.regained(again)
        return _Rung(burst, probe, more, of_bucket)

    async def _window(self) -> str:
        """Find the window by the ladder; raises `Decided` where it is wrong."""
        sender, window_ns = self.sender, self.window_ns
        start_ns = sender.now_ns
        if 2 * self._fill_ns > window_ns:
            self.undecided(
                f"filling a counter takes {seconds(self._fill_ns)} s, its window is "
                f"{seconds(window_ns)} s; run closer to the server"
            )
        most = _RUNGS if self.limit < _HEAVY else _RUNGS_HEAVY
        free = sender.parties.fresh_count(start_ns) - _OTHER_PARTIES
        size = max(_FEWEST_RUNGS, min(most, free))
        parts = [0.975 * (place + 1) / (size - 1) for place in range(size - 1)] + [1.025]
        if size > 10:
            parts = [(place + 0.5) / (size - 1) for place in range(size - 1)] + [1.025]
        rungs = [
            self._rung(
                part,
                start_ns + place * self._fill_ns,
                is_counted=place % 3 == 2 or part > 1 or size < 6,
            )
            for place, part in enumerate(parts)
        ]
        phases = []
        if free >= size:
            phase_ns = start_ns + window_ns // 3 + size * self._fill_ns
            phases = [
                self._rung(part, phase_ns + place * self._fill_ns, is_counted=part > 1)
                for place, part in enumerate((0.975, 1.025))
            ]
        results: list[_Rung] = await sender.gather([*rungs, *phases])
        ladder, second = results[:size], results[size:]
        self._check_early(results)
        is_bucket = self._see_kind(results)
        if self.kind == "window":  # only a sliding counter weighs the window before
            sender.parties.rest_ns = window_ns * 11 // 10
            self.check_capacity(self.fresh, "on fresh counters")
        if self.kind == "gradual":
            self._read("token-bucket" if is_bucket else "sliding-counter")
            return await paced(self, is_bucket=is_bucket)
        if not any(rung.is_admitted for rung in ladder):
            late_ns = ladder[-1].least_ns
            if late_ns <= window_ns:
                self.undecided(f"the longest silence was only {seconds(late_ns)} s")
            self.too_strict(
                f"still refused after {seconds(late_ns)} s of silence: the window is longer"
            )
        admitted = [x for x in ladder if x.is_admitted]
        if all(x.most_ns >= window_ns for x in [*admitted, *second] if x.is_admitted):
            low_ns = max((x.least_ns for x in ladder if x.probe.refused), default=0)
            high_ns = min(x.most_ns for x in admitted)
        else:
            low_ns, high_ns = await self._aligned([*ladder, *second])
        self._check_more([*ladder, *second])
        return f"{self.limit} per " + self.within("window", low_ns, high_ns, window_ns)

    def _read(self, algorithm: str) -> None:
        self.readings["limits.algorithm"] = algorithm

    def _see_kind(self, rungs: Sequence[_Rung]) -> bool:
        """See whether counters free themselves at once or little by little.

        Returns whether it is a bucket: what it admits is in proportion to the silence.
        """
        sizes = [(rung.more, rung.of_bucket) for rung in rungs if rung.more is not None]
        if not sizes:
            return False
        least = min(size for size, _ in sizes)
        self.kind = "gradual" if least < 0.75 * self.limit else "window"
        off = max(abs(size - of_bucket) for size, of_bucket in sizes)
        return self.kind == "gradual" and off < 0.07 * self.limit + 2

    def _check_early(self, rungs: Sequence[_Rung]) -> None:
        """Decide where full counters admitted more, at two phases, but fewer than a bucket regains.

        Within a window, a counter of a window does so only where an aligned one begins.
        """
        early = [
            x for x in rungs if x.is_admitted and not x.burst.lost and x.most_ns < self.window_ns
        ]
        fewer = [x for x in early if self._is_fewer(x)]
        is_unexplained = any(
            not any(may_share_border(*spans, self.window_ns) for spans in itertools.product(*pair))
            for pair in itertools.combinations(map(self._borders, early), 2)
        )
        if fewer and is_unexplained:
            most = self.limit + (fewer[0].more or 0)
            self.too_strict(f"fresh counters admitted {most}, not {self.limit}", fewer[0].burst)

    def _is_fewer(self, rung: _Rung) -> bool:
        """Whether a full counter admitted fewer than a bucket regains."""
        silence_ns = rung.probe.sent_ns - rung.burst.last_received_ns
        return rung.more is not None and rung.more < silence_ns // self.step_ns

    def _borders(self, rung: _Rung) -> list[tuple[int, int]]:
        """Return when an aligned window may have begun, of a counter that admitted more.

        Where it admitted few, in the midst of the burst, or for a sliding counter shortly before.
        """
        if not self._is_fewer(rung):
            return [(rung.burst.first_sent_ns, rung.probe.received_ns)]
        since_ns = (1 + (rung.more or 0)) * self.step_ns
        return [rung.burst.span, (rung.probe.sent_ns - since_ns, rung.probe.received_ns)]

    def _check_more(self, rungs: Sequence[_Rung]) -> None:
        """Decide where a window that has begun anew admitted more than the limit, twice."""
        sizes = [rung.more for rung in rungs if rung.more is not None]
        fewest = min((size for size in sizes if size), default=self.limit)
        if fewest > self.limit:
            self.fail(f"windows that had begun anew admitted {fewest} and more, not {self.limit}")

    def _find_boundary(self, rungs: Sequence[_Rung]) -> None:
        """See between which instants an aligned window began."""
        first = min((x for x in rungs if x.is_admitted), key=lambda x: x.probe.received_ns)
        before = [
            x.probe.sent_ns
            for x in rungs
            if x.probe.refused and x.burst.first_received_ns <= first.burst.first_sent_ns
        ]
        # What was filled before it and admitted after it has the boundary in between.
        low_ns = max([first.burst.first_sent_ns, *before])
        self.boundary = (low_ns, first.probe.received_ns)

    async def _aligned(self, rungs: Sequence[_Rung]) -> tuple[int, int]:
        """Return between which lengths the window lies, where windows begin by a clock."""
        self.readings |= {"limits.algorithm": "fixed-window", "limits.fixed_anchor": "aligned"}
        window_ns = self.window_ns
        self._find_boundary(rungs)
        assert self.boundary is not None, "it was seen just now"
        for _ in range(_ROUNDS):
            if self.boundary[1] - self.boundary[0] <= window_ns // _SHARP:
                break
            await self._sharpen()
        low_ns, high_ns = self.boundary
        first, second = await self.sender.take_several(2)
        now_ns = self.sender.now_ns
        turns = max(0, -(-(now_ns - high_ns - window_ns // 50) // window_ns))
        start_ns = high_ns + turns * window_ns + window_ns // 50
        early, late = await self.sender.gather(
            [
                self._rung(0.92, start_ns, first),
                self._rung(
                    0.99,
                    start_ns + min(self._fill_ns, window_ns // 100),
                    second,
                    until_ns=start_ns + window_ns * 99 // 100,
                ),
            ]
        )
        by_ns = turns * window_ns
        if not early.probe.refused:
            short_ns = early.probe.received_ns - low_ns - by_ns
            if short_ns < window_ns:
                self.fail(f"the window is shorter than {seconds(short_ns)} s")
            self.undecided(f"the window is only known to be shorter than {seconds(short_ns)} s")
        if late.probe.refused and late.probe.sent_ns - high_ns - by_ns > window_ns:
            long_ns = late.probe.sent_ns - high_ns - by_ns
            self.too_strict(f"the window is longer than {seconds(long_ns)} s")
        if late.probe.refused:
            self.undecided("the window's end was not seen")
        return early.probe.sent_ns - high_ns - by_ns, late.probe.received_ns - low_ns - by_ns

    async def _sharpen(self) -> None:
        """Look for the boundary more closely, one or more windows later."""
        assert self.boundary is not None, "it was seen before"
        low_ns, high_ns = self.boundary
        window_ns = self.window_ns
        free = self.sender.parties.fresh_count(self.sender.now_ns)
        count = min(_FEWEST_RUNGS + 1, max(2, free))
        parties = await self.sender.take_several(count)
        lead_ns = (count + 1) * self._fill_ns
        turns = max(1, -(-(self.sender.now_ns + lead_ns - low_ns) // window_ns))
        low_ns, high_ns = low_ns + turns * window_ns, high_ns + turns * window_ns
        rungs = [
            self._rung(
                0,
                low_ns - lead_ns + place * self._fill_ns,
                party,
                until_ns=low_ns + (place + 1) * (high_ns - low_ns) // (count + 1),
            )
            for place, party in enumerate(parties)
        ]
        seen: list[_Rung] = await self.sender.gather(rungs)
        refused = [
            x.probe.sent_ns for x in seen if x.probe.refused and x.burst.last_received_ns <= low_ns
        ]
        admitted = [x.probe.received_ns for x in seen if x.is_admitted]
        low_ns, high_ns = max([low_ns, *refused]), min([high_ns, *admitted])
        if low_ns >= high_ns:
            self.undecided("the windows of these keys do not begin at the same time")
        self.boundary = (low_ns, high_ns)

    # --- the block --------------------------------------------------------------------------------

    async def _block(self) -> str:
        """Exceed the rate shortly before the window ends; then time the first admission."""
        sender, block_ns = self.sender, self.block_ns
        party, refusals, free_ns = await self._exceeding()
        first = refusals[0]
        # Silent until the window is over: a poll before it might begin another block.
        quiet_ns = max(block_ns // 4 + self.window_ns // 50, block_ns * 3 // 10)
        await sender.wait_until_ns(first.received_ns + quiet_ns, party)
        until_ns = first.received_ns + block_ns * 16 // 10
        last, admitted = await sender.poll(party, block_ns // 50, until_ns, refusals[-1])
        if admitted is not None:
            high_ns = admitted.received_ns - first.sent_ns
            if last.sent_ns <= first.received_ns and high_ns < block_ns:
                raise Decided(
                    Verdict.FAIL,
                    f"no block was seen: admitted {seconds(high_ns)} s after the rate was exceeded",
                    [first.exchange, admitted.exchange],
                    clause="LIM-BLOCK",
                )
            low_ns = last.sent_ns - first.received_ns
            if low_ns > block_ns and last.sent_ns <= free_ns:
                self.undecided("the window ended after the block, so how long it was is not seen")
            self.is_extended = False
            return "block " + self.within("block", low_ns, high_ns, block_ns)
        (over_ns, _, after), (_, first_ns, before) = await sender.gather(
            [self._silent(block_ns * 107 // 100), self._silent(block_ns * 93 // 100)]
        )
        long_ns = after.sent_ns - over_ns
        short_ns = before.received_ns - first_ns
        if after.refused and long_ns > 0:
            self.too_strict(
                f"still refused {seconds(long_ns + block_ns)} s after the rate was exceeded: the "
                f"block is longer than {seconds(block_ns)} s"
            )
        if before.refused is False and short_ns < block_ns:
            self.fail(
                f"admitted {seconds(short_ns)} s after the rate was exceeded: the block is shorter"
            )
        if after.refused is not False or not before.refused:
            self.undecided("the window ended after the block, so how long it was is not seen")
        text = f"block {seconds(block_ns * 93 // 100)} to {seconds(block_ns * 107 // 100)} s"
        if free_ns >= until_ns:
            return text
        self.readings["limits.block_extends"] = True
        return f"{text} (refused requests extend it)"

    async def _exceeding(
        self, party: BurstSender | None = None
    ) -> tuple[BurstSender, list[Observation], int]:
        """Let a party exceed the rate once; returns it, its refusals, and when its window ended."""
        party = party or await self.sender.take()
        burst = await self._exceed(party)
        free_ns = sorted(x.received_ns for x in burst.all)[-self.limit :][0] + self.window_ns
        if self.boundary is not None:
            low_ns, high_ns = self.boundary
            turns = (burst.refused[0].sent_ns - low_ns) // self.window_ns + 1
            free_ns = min(free_ns, high_ns + turns * self.window_ns)
        return party, burst.refused, free_ns

    async def _silent(self, silence_ns: int) -> tuple[int, int, Observation]:
        """Let a party exceed the rate and be silent.

        Returns when window and block are over at the latest, when the block began at the earliest,
        and the next request.
        """
        party, refusals, free_ns = await self._exceeding()
        at_ns = refusals[0].received_ns + silence_ns
        await self.sender.wait_until_ns(at_ns, party, "its block is over")
        over_ns = max(x.received_ns for x in refusals) + self.block_ns
        return max(over_ns, free_ns), refusals[0].sent_ns, await self.sender.send(party)

    async def _exceed(self, party: BurstSender) -> Burst:
        """Exceed the rate with a party shortly before its window ends; returns all it sent."""
        sender, window_ns, ahead_ns = self.sender, self.window_ns, self.block_ns // 4
        burst = await sender.at_once(party, self.limit - 1)
        if burst.refused:
            return burst
        if self.block_ns < window_ns * 3 // 2:
            await sender.wait_until_ns(burst.first_sent_ns + window_ns - ahead_ns, party)
            await self._await_boundary(party, ahead_ns)
        more = Burst([await sender.send(party), await sender.send(party)])
        if not more.refused and self.kind != "gradual":
            await self._await_boundary(party, ahead_ns)
        if not more.refused:
            regained = self.limit - 3 if self.kind != "gradual" else 0
            more += await sender.at_once(party, max(0, regained)) if regained > 0 else Burst(())
            more += await sender.until_refused(party, 0) if not more.refused else Burst(())
        if not more.refused:
            windows = 2 + more.duration_ns // window_ns
            if more.size <= windows * self.limit:
                self.undecided(f"{more.size} answers took {seconds(more.duration_ns)} s")
            self.fail(
                f"{more.size} more were admitted {seconds(ahead_ns)} s before the window's end"
            )
        return burst + more

    async def _await_boundary(self, party: BurstSender, ahead_ns: int) -> None:
        """Wait until shortly before an aligned window begins, where one is known."""
        if self.boundary is None or self.kind == "gradual":
            return
        at_ns = self.boundary[0] - ahead_ns
        turns = max(0, -(-(self.sender.now_ns - at_ns) // self.window_ns))
        await self.sender.wait_until_ns(at_ns + turns * self.window_ns, party)

    async def _second_block(self) -> None:
        """Exceed the rate again once a first block is over: a second one must be as long."""
        sender, block_ns, party = self.sender, self.block_ns, self.first_party
        silence_ns = max(block_ns, self.window_ns) * 103 // 100
        at_ns = self.silent_since_ns + silence_ns
        await sender.wait_until_ns(at_ns, party, "its block is over")
        _, refusals, free_ns = await self._exceeding(party)
        first = refusals[0]
        until_ns = first.received_ns + block_ns * 95 // 100
        _, again = await sender.poll(party, block_ns // 20, until_ns, refusals[-1])
        if again is not None and again.received_ns - first.sent_ns < block_ns * 95 // 100:
            lasted_ns = again.received_ns - first.sent_ns
            self.fail(f"a second block ended within {seconds(lasted_ns)} s")
        over_ns = max(free_ns, first.received_ns + block_ns) + block_ns // 10
        await sender.wait_until_ns(over_ns, party, "its second block is over")
        late = await sender.send(party)
        if again is None and late.refused and not self.is_extended and self.kind != "gradual":
            lasted_ns = late.sent_ns - first.received_ns
            self.fail(f"still refused {seconds(lasted_ns)} s after the rate was exceeded again")


async def _decided(part: Coroutine[Any, Any, str | None]) -> str | Decided | None:
    """Return what a part of a measurement returns, or what it has decided."""
    try:
        return await part
    except Decided as decided:
        return decided
