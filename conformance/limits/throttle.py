"""Rows that throttle: number and window, by filling, polling and filling again.

A counter that frees itself at once is of a *window* (a log that was filled at once too); one that
frees itself little by little is *gradual* (a bucket, strict spacing, a sliding counter). A limiter
that delays instead of refusing is timed by its answers.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from conformance.limits.measurement import SPACED, Delays, Measurement, seconds
from conformance.limits.observations import Burst, Observation
from conformance.limits.sending import BurstSender

_MANY: Final = 20
_TURNS: Final = 3
_ENOUGH: Final = 30
_SATURATING: Final = 48
_TRAIN_TIMES: Final = 18
"""A train at 108 % exceeds what was regained before it if it lasts 14 times as long."""


@dataclass(slots=True)
class _Silent:
    """What parties showed that were silent.

    after, before: more and less than a window of silence; before_low_ns, before_high_ns: how long
    it was. is_bucket: admitted again after three refill times.
    """

    after: Burst
    before: Observation
    before_low_ns: int
    before_high_ns: int
    is_bucket: bool


class ThrottleMeasurement(Measurement):
    """Measures a row that throttles."""

    async def run(self) -> str:
        """Return words on what was measured; raises `Decided` where the row is not right."""
        try:
            await self.whom()
            if self.fresh[0].size < SPACED:
                return await self._spaced()
            return await self._number_and_window()
        except Delays:
            return await self._delayed()

    # --- windows and buckets ----------------------------------------------------------------------

    async def _number_and_window(self) -> str:
        if self.is_heavy:
            await self._cycles()
            silent = None if self._is_clear() else await self._silent()
            halves = None
        else:
            silent, _, idle, halves = await self.sender.gather(
                [self._silent(), self._cycles(), self._idle(), self._halves()]
            )
            self.check_capacity(idle, "after two windows of silence")
            self._check_restored(idle)
        self.check_capacity(self.fresh, "on fresh counters")
        message = self._window() if silent is None else await self._judge(silent)
        self._read_algorithm(silent, halves)
        return message

    def _is_clear(self) -> bool:
        """Whether two windows were seen to end, and the second one to admit the limit."""
        is_late = self.freed is None or self._is_late(self.freed[0])
        is_whole = self.kind == "window" and self.refilled >= self.limit
        return is_whole and not is_late and self.freed_again is not None

    def _is_late(self, at_ns: int) -> bool:
        return at_ns > self.first.first_received_ns + self.window_ns * 103 // 100

    async def _cycles(self) -> None:
        """Fill, poll until the counter frees itself, fill again, poll again."""
        sender, window_ns = self.sender, self.window_ns
        party, every_ns = await sender.take(), self.window_ns // 100
        self.first = burst = await self.fill(party)
        last = burst.refused[-1]
        for _ in range(_TURNS):  # a window may have begun in the midst of the burst
            x = await sender.send(party)
            if x.refused:
                last = x
                break
            self.first += Burst([x]) + await sender.until_refused(party, 0)
        until_ns = burst.first_sent_ns + window_ns * 135 // 100 + 2 * self.step_ns
        last, admitted = await sender.poll(party, every_ns, until_ns, last)
        self.freed = None if admitted is None else (last.sent_ns, admitted.received_ns)
        self.freed_again: tuple[int, int] | None = None
        self.refilled = 0
        self.saturated: list[Observation] = []
        if admitted is None:
            return
        # A log frees itself as slowly as it was filled.
        await sender.wait_until_ns(admitted.received_ns + burst.duration_ns + window_ns // 200)
        self.second = await sender.until_refused(party, self.limit - 1)
        self.refilled = self.second.size + 1
        self.kind = self._kind(self.second.last_received_ns - last.sent_ns)
        if self.kind == "gradual":
            # A sliding counter that was idle for a while has its full rate a window later.
            idle_ns = window_ns if self.second.first_sent_ns - last.sent_ns > window_ns // 20 else 0
            duration_ns = idle_ns - (-_ENOUGH // self.limit) * window_ns
            start_ns = sender.now_ns + idle_ns
            train = await sender.train(party, self.step_ns * 3 // 7, duration_ns)
            self.saturated = [x for x in train if x.sent_ns >= start_ns]
        elif self.second.refused:
            until_ns = admitted.received_ns + window_ns * 135 // 100
            last, admitted = await sender.poll(party, every_ns, until_ns, self.second.refused[-1])
            self.freed_again = None if admitted is None else (last.sent_ns, admitted.received_ns)

    def _kind(self, since_freed_ns: int) -> str:
        """Return `window` where more was free than a counter regains little by little."""
        if not self.second.refused and any(map(self.sender.is_slow, self.second.all)):
            self.undecided(f"an answer of a burst took {seconds(self.second.duration_ns)} s")
        gained = since_freed_ns / self.step_ns
        if gained > 0.9 * self.limit:
            self.undecided(
                f"filling the counter again took {seconds(since_freed_ns)} s, its window is "
                f"{seconds(self.window_ns)} s; run closer to the server"
            )
        return "window" if self.refilled >= (gained + self.limit) / 2 else "gradual"

    async def _silent(self) -> _Silent:
        """Fill counters without exceeding them, and send again after a silence."""
        sender, window_ns = self.sender, self.window_ns
        spread_ns = max(burst.duration_ns for burst in self.fresh) + window_ns // 100

        async def after() -> Burst:
            party = await sender.take()
            burst = await sender.at_once(party, self.limit)
            await sender.wait_until_ns(burst.last_received_ns + window_ns * 103 // 100)
            return await sender.until_refused(party, self.limit)

        async def before() -> tuple[Observation, int, int]:
            await sender.wait_until_ns(start_ns + spread_ns)
            party = await sender.take()
            burst = await sender.at_once(party, self.limit)
            await sender.wait_until_ns(burst.first_sent_ns + window_ns * 97 // 100)
            x = await sender.send(party)
            return x, x.sent_ns - burst.first_received_ns, x.received_ns - burst.first_sent_ns

        async def soon() -> bool:
            """Whether a filled counter admits again soon; twice, for a border may fall there."""
            is_bucket = True
            for turn in range(2):
                await sender.wait_until_ns(start_ns + (2 + turn * 3) * spread_ns)
                party = await sender.take()
                burst = await sender.at_once(party, self.limit)
                await sender.wait_until_ns(burst.last_received_ns + 3 * self.step_ns)
                x = await sender.send(party)
                is_early = x.received_ns < burst.first_sent_ns + window_ns
                is_bucket &= is_early and x.refused is False
            return is_bucket

        start_ns = sender.now_ns
        burst, (x, low_ns, high_ns), is_bucket = await sender.gather([after(), before(), soon()])
        return _Silent(burst, x, low_ns, high_ns, is_bucket)

    async def _idle(self) -> list[Burst]:
        """Exceed the rate again after a silence: it is what it was, and nothing is carried over."""
        sender = self.sender

        async def idle(windows: float) -> Burst:
            party = await sender.take()
            burst = await sender.until_refused(party, self.limit)
            at_ns = burst.all[-1].received_ns + int(windows * self.window_ns)
            await sender.wait_until_ns(at_ns, party)
            return await sender.until_refused(party, self.limit)

        return await sender.gather([idle(2.2), idle(2.5)])

    def _check_restored(self, idle: Sequence[Burst]) -> None:
        """Decide where counters that were exceeded, and then silent, admit less than fresh ones."""
        is_pair = self.readings.get("limits.and_counter") == "pair"
        if self.sender.parties.kind != self.counter or (self.counter == "pair" and not is_pair):
            return  # others may share its key or its address
        least = 0.97 * min(self.limit, *(burst.size for burst in self.fresh)) - 1
        sizes = [burst.size + burst.lost for burst in idle]
        if max(sizes) < least and not any(self.sender.is_slow(x) for b in idle for x in b.all):
            self.fail(
                f"after two windows of silence {max(sizes)} were admitted, {self.fresh[0].size} "
                "before: a rate that was exceeded must come back",
                *idle,
            )

    async def _halves(self) -> Burst | None:
        """Fill a counter by halves: a log frees only the first half one window later."""
        sender, half = self.sender, self.limit // 2
        start_ns = sender.now_ns
        await sender.wait_until_ns(start_ns + self.window_ns // 4)
        party = await sender.take()
        first = await sender.at_once(party, half)
        await sender.wait_until_ns(first.first_sent_ns + self.window_ns // 2)
        second = await sender.at_once(party, self.limit - half)
        await sender.wait_until_ns(first.last_received_ns + self.window_ns * 105 // 100)
        if first.refused or second.refused:
            return None
        burst = await sender.until_refused(party, half)
        is_late = burst.last_received_ns > second.first_sent_ns + self.window_ns
        return None if is_late else burst

    async def _judge(self, silent: _Silent) -> str:
        is_late = self.freed is None or self._is_late(self.freed[0])
        is_whole = self.kind == "window" and self.refilled >= self.limit and self.freed_again
        if is_late and not is_whole:
            return await self._refused_count(silent)
        if self.kind == "gradual":
            return await self._gradual(silent)
        if self.refilled < self.limit and silent.after.size > self.refilled:
            return self._by_silence(silent)  # the polls took places
        if silent.is_bucket and self.refilled < self.limit:
            self.undecided("the counter regains about as fast as a burst fills it")
        return self._window()

    def _window(self) -> str:
        """Judge a counter that frees itself at once."""
        self.check_number(self.second, self.refilled)
        if self.freed is None or self.freed_again is None:
            longest_s = seconds(self.window_ns * 135 // 100)
            self.too_strict(f"a second window did not end within {longest_s} s")
        low_ns = self.freed_again[0] - self.freed[1]
        high_ns = self.freed_again[1] - self.freed[0]
        return f"{self.refilled} per " + self.within("window", low_ns, high_ns, self.window_ns)

    async def _refused_count(self, silent: _Silent) -> str:
        """Judge a counter that was not free one window later, although it was polled."""
        if not silent.after.size:
            self.too_strict(
                f"still refused after {seconds(self.window_ns * 103 // 100)} s of silence: the "
                "window is longer",
                silent.after,
            )
        await self._check_unblocked()
        self.readings["limits.count_refused"] = True
        most = self._check_enough(is_bucket=silent.is_bucket)
        fewest = 0.97 * min(self.limit, most.size)
        is_gradual = silent.is_bucket or silent.after.size < fewest
        if is_gradual or not silent.before.refused:
            self.kind = "gradual"
            return "refused requests count; " + await paced(self, is_bucket=silent.is_bucket)
        return self._by_silence(silent)

    def _check_enough(self, *, is_bucket: bool) -> Burst:
        """Return the largest burst on a fresh counter; only a bucket may admit fewer than L."""
        most = max(self.fresh, key=lambda burst: burst.size)
        if most.size < self.limit and not is_bucket:
            self.check_number(most, most.size)
        return most

    async def _check_unblocked(self) -> None:
        """Exceed the rate once and be silent: where refused requests count, that frees a counter.

        After more than a window, for a sliding counter weighs the window before.
        """
        sender, silence_ns = self.sender, self.window_ns * 12 // 10
        party = await sender.take()
        burst = await sender.until_refused(party, self.limit)
        await sender.wait_until_ns(max(x.received_ns for x in burst.all) + silence_ns)
        after = await sender.send(party)
        if burst.refused and after.refused:
            self.too_strict(
                f"still refused {seconds(silence_ns)} s after the rate was exceeded, without a "
                "request in between: a throttle does not block",
                burst,
                Burst([after]),
            )

    def _by_silence(self, silent: _Silent) -> str:
        """Judge by parties that sent nothing while their counters were full."""
        self.readings["limits.count_refused"] = True
        self.check_number(silent.after, silent.after.size)
        if silent.before.refused is not True:
            after_s = seconds(silent.before_high_ns)
            if silent.before_high_ns >= self.window_ns:
                self.undecided(f"an answer after a silence took until {after_s} s were over")
            self.fail(f"admitted again after {after_s} s of silence: the window is shorter")
        high_ns = self.window_ns * 103 // 100 + self.first.duration_ns
        text = self.within("window", silent.before_low_ns, high_ns, self.window_ns)
        return f"{self.limit} per {text} (refused requests count)"

    async def _gradual(self, silent: _Silent) -> str:
        size = self._check_enough(is_bucket=silent.is_bucket).size
        small = f"burst of {size}, " if size < self.limit else ""
        admitted = [x for x in self.saturated if x.refused is False]
        is_held = any(map(self.sender.is_slow, admitted))  # then a burst's last answers come later
        times = sorted(x.received_ns if is_held else x.sent_ns for x in admitted)
        if len(times) < 0.6 * self.limit:
            self.readings["limits.count_refused"] = True
            return (
                small + "refused requests count; " + await paced(self, is_bucket=silent.is_bucket)
            )
        slowest_ns = max(x.rtt_ns for x in self.saturated)  # one pause is none of the jitter
        return small + self._rate(times, self.step_ns * 3 // 7 + slowest_ns)

    def _rate(self, times_ns: Sequence[int], gap_ns: int) -> str:
        """Judge the rate of admissions of a counter that is kept full."""
        span_ns = times_ns[-1] - times_ns[0]
        low = (len(times_ns) - 2) / (span_ns + gap_ns)
        high = len(times_ns) / max(1, span_ns - gap_ns)
        low_ns, high_ns = int(self.limit / high), int(self.limit / max(low, 1e-18))
        return f"{self.limit} per " + self.within("window", low_ns, high_ns, self.window_ns)

    async def _spaced(self) -> str:
        """Judge strict spacing: nothing is saved up, so polls must be close."""
        self.kind = "gradual"
        self.readings |= {"limits.algorithm": "gcra", "limits.burst_requests": 1}
        sender = self.sender
        party = await sender.take()
        duration_ns = max(min(self.window_ns, 60 * self.step_ns), _ENOUGH * self.step_ns)
        train = await sender.train(party, self.step_ns // 20, duration_ns)
        times = sorted(x.sent_ns for x in train if x.refused is False)
        if len(times) < _MANY // 2:
            return await paced(self, is_bucket=False)
        every_ns = self.step_ns // 20
        span_ns = times[-1] - times[0]
        low = (len(times) - 2) / span_ns
        high = (len(times) - 1) / max(1, span_ns - int(len(times) * 1.5 * every_ns))
        return f"{self.limit} per " + self.within(
            "window", int(self.limit / high), int(self.limit / low), self.window_ns
        )

    def _read_algorithm(self, silent: _Silent | None, halves: Burst | None) -> None:
        """Say which algorithm counts, where the tests have shown it."""
        algorithm: str | None = None
        if self.kind == "gradual":
            algorithm = "token-bucket" if silent and silent.is_bucket else "sliding-counter"
        elif self.freed is not None and silent is not None:
            early_ns = self.first.first_sent_ns + self.window_ns * 98 // 100
            is_aligned = self.freed[1] < early_ns
            if is_aligned or (halves and halves.size >= self.limit * 3 // 4):
                algorithm = "fixed-window"
                self.readings["limits.fixed_anchor"] = "aligned" if is_aligned else "first"
            elif halves and halves.size:
                algorithm = "sliding-log"
        if algorithm is not None:
            self.readings["limits.algorithm"] = algorithm
        self.readings.setdefault("limits.throttle", "refuse")

    # --- delays -----------------------------------------------------------------------------------

    async def _delayed(self) -> str:
        """Time the answers of a limiter that holds requests back: it is kept busy for a while."""
        self.readings["limits.throttle"] = "delay"
        sender, window_ns = self.sender, self.window_ns
        party = await sender.take_apart()
        seen: list[Observation] = []
        start_ns = sender.now_ns
        until_ns = start_ns + window_ns * 33 // 10

        async def work() -> None:
            at_ns = start_ns
            while at_ns < until_ns:
                observation = await sender.send(party)
                seen.append(observation)
                at_ns = observation.received_ns
                if observation.refused is not False:
                    await sender.wait_until_ns(at_ns + window_ns // 50)

        await sender.gather([work() for _ in range(min(_SATURATING, self.limit))])
        times = sorted(x.received_ns for x in seen if x.refused is False)
        message = self._batches(times)
        return f"requests beyond the rate are slowed: {message}"

    def _batches(self, times_ns: Sequence[int]) -> str:
        """Judge answers that come in batches, one a window, or else at an even rate."""
        gaps = [
            place
            for place, (before, after) in enumerate(itertools.pairwise(times_ns), 1)
            if after - before > self.window_ns // 4
        ]
        blur_ns = self.window_ns // 50 + 2 * self.sender.least_rtt_ns
        if len(gaps) >= 2:
            first, second = gaps[:2]
            size, period_ns = second - first, times_ns[second] - times_ns[first]
            if size != self.limit:
                decide = self.fail if size > self.limit else self.too_strict
                decide(f"{size} requests were admitted in a window, not {self.limit}")
            text = self.within("window", period_ns - blur_ns, period_ns + blur_ns, self.window_ns)
            return f"{size} per {text}"
        later = [at for at in times_ns if at > times_ns[0] + self.window_ns * 12 // 10]
        if len(later) < self.limit // 2:
            self.undecided(f"only {len(later)} answers came")
        return self._rate(later, self.step_ns + blur_ns)


async def paced(measurement: Measurement, *, is_bucket: bool) -> str:
    """Judge the rate of a gradual counter by two trains: a slow one must pass, a fast one not."""
    sender, window_ns, step_ns = measurement.sender, measurement.window_ns, measurement.step_ns
    is_blocking = measurement.block_ns > 0
    is_saved_up = is_bucket and measurement.fresh[0].size > measurement.limit / 2

    async def run(percent: int) -> tuple[int, int, int]:
        party: BurstSender = await sender.take()
        duration_ns = window_ns * 5 // 2
        if is_saved_up:  # empty it; then a train decides soon
            if is_blocking:
                burst = await sender.at_once(party, measurement.limit)
            else:
                burst = await sender.until_refused(party, measurement.limit)
            rest_ns = (10 * len(burst.refused) + 13) * step_ns // 10 + 2 * sender.jitter_ns
            await sender.wait_until_ns(burst.last_received_ns + rest_ns, party)
            full_ns = burst.refused[0].sent_ns if burst.refused else burst.first_sent_ns
            duration_ns = max(duration_ns, _TRAIN_TIMES * (sender.now_ns - full_ns))
        train = await sender.train(party, step_ns * percent // 100, duration_ns)
        half = train[0 if is_blocking else len(train) // 2 :]
        seen = [x for x in half if x.refused is not None]
        slowest_ns = max((x.rtt_ns for x in train), default=0)  # a pause bunches what follows it
        return sum(bool(x.refused) for x in seen), len(seen), slowest_ns

    trains = await sender.gather([run(107), run(93)])
    (slow, slow_size, _), (fast, fast_size, _) = trains
    jitter_ns = max(slowest_ns for *_, slowest_ns in trains) - sender.least_rtt_ns
    text = f"at 93 % of the rate {slow} of {slow_size} were refused, at 108 % {fast} of {fast_size}"
    size = measurement.fresh[0].size
    if size < SPACED and jitter_ns > step_ns // 20:
        measurement.undecided(f"{text}, but round trips differ by {seconds(jitter_ns)} s")
    if not (slow or fast or is_bucket) and size > measurement.limit / 2:
        return await paced(measurement, is_bucket=True)
    is_fast_refused = bool(fast) if is_blocking else fast > fast_size * _least_share(size)
    if (slow or not is_fast_refused) and jitter_ns > window_ns // 20:
        measurement.undecided(f"{text}, but round trips differ by {seconds(jitter_ns)} s")
    if slow or not is_fast_refused:
        decide = measurement.too_strict if slow else measurement.fail
        decide(f"{text}: the rate is not {measurement.limit} per {seconds(window_ns)} s")
    return text


def _least_share(size: int) -> float:
    """Return the share of a train at 108 % of the rate that is refused at least.

    size: of a burst on a fresh counter. Where refused requests count, such a train is locked out.
    Strict spacing refuses every second request, and what is beyond the rate if it lets two through.
    """
    if size >= SPACED:
        return 1 / 2
    return 1 / 3 if size < SPACED - 1 else 1 / 40
