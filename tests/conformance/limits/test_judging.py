"""What a measurement may conclude, on a limiter in a script and a clock that its answers move.

Every test here fails if the rule that it is about is taken out of `conformance/limits`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, cast

import pytest

from conformance.context.verdicts import Verdict
from conformance.limits.block import BlockMeasurement, _Rung
from conformance.limits.measurement import Decided, Measurement, Shared
from conformance.limits.observations import Burst, Observation
from conformance.limits.sending import BurstSender, BurstSenders, Sender
from conformance.limits.throttle import ThrottleMeasurement
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.wire.pace import Traffic
from engine import LimitTable

MS_NS = 1_000_000
SECOND_NS = 1_000_000_000
LIMIT = 50
WINDOW_NS = 10 * SECOND_NS
PAIRS = tuple(BurstSender(f"k{key}", (f"a{source}",)) for key in range(5) for source in range(5))
FIRST = PAIRS[0]

Limiter = Callable[[BurstSender, int], bool]
"""Whether a request of a party is refused that is decided at an instant."""


def observation(sent_ns: int, received_ns: int, *, refused: bool = False) -> Observation:
    ask = HttpRequest(method="POST", path="/tokenize")
    status = 429 if refused else 200
    exchange = Exchange(1, "check", "lane", 1, ask, sent_ns, received_ns, status)
    return Observation(sent_ns, received_ns, refused, exchange)


class ScriptedSender(Sender):
    """Sends to a limiter that decides one request after another, each in `service_ns`."""

    def __init__(self, limiter: Limiter, start_ns: int = 0, service_ns: int = MS_NS) -> None:
        parties = BurstSenders(PAIRS, "pair", 2 * WINDOW_NS)
        ctx = cast("Any", None)
        super().__init__(
            ctx,
            LIMIT,
            WINDOW_NS,
            0,
            parties,
            cast("Any", None),
            Traffic(LimitTable(())),
            (FIRST, 0),
        )
        self.limiter = limiter
        self.at_ns = start_ns
        self.service_ns = service_ns

    @property
    def now_ns(self) -> int:
        return self.at_ns

    async def wait_until_ns(
        self, at_ns: int, party: BurstSender | None = None, why: str = ""
    ) -> None:
        self.at_ns = max(self.at_ns, at_ns)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        return list(await asyncio.gather(*coroutines))

    async def take(self, but: Sequence[BurstSender] = ()) -> BurstSender:
        return FIRST

    async def send(self, party: BurstSender, variant: str = "plain") -> Observation:
        sent_ns = self.at_ns
        await asyncio.sleep(0)
        self.at_ns += self.service_ns
        self.rtts_ns.append(self.at_ns - sent_ns)
        self._total_ns += self.at_ns - sent_ns
        self._least_ns = self.service_ns
        refused = self.limiter(party, self.at_ns)
        return observation(sent_ns, self.at_ns, refused=refused)


def sends_nothing(party: BurstSender, at_ns: int) -> bool:
    raise AssertionError("no request is sent")


async def _prepared() -> bool:
    return True


def measurement(sender: Sender, kind: type[Measurement] = ThrottleMeasurement) -> Any:
    return kind(sender, "pair", (), {}, _prepared)


def burst_of(size: int, first_ns: int, last_ns: int) -> Burst:
    """Return admissions, the first sent and the last answered at two instants."""
    return Burst([observation(first_ns, last_ns) for _ in range(size)])


def decided(call: Callable[[], object]) -> str:
    with pytest.raises(Decided) as caught:
        call()
    assert caught.value.verdict is Verdict.FAIL
    return caught.value.message


# --- a row that refuses too much is measured again, apart ----------------------------------------


def test_too_few_admissions_fail_only_where_no_other_counter_may_explain_them() -> None:
    row, few = measurement(ScriptedSender(sends_nothing)), burst_of(49, 0, SECOND_NS)
    with pytest.raises(Shared):
        row.check_number(few, few.size)
    row.is_apart = True
    message = decided(lambda: row.check_number(few, few.size))
    assert message == "49 requests were admitted in a fresh window, not 50"
    known = measurement(ScriptedSender(sends_nothing))
    known.readings["limits.and_counter"] = "pair"
    assert decided(lambda: known.check_number(few, few.size)) == message


def test_too_many_admissions_fail_at_once() -> None:
    row, many = measurement(ScriptedSender(sends_nothing)), burst_of(51, 0, SECOND_NS)
    assert "51 requests" in decided(lambda: row.check_number(many, many.size))


def test_a_row_whose_parties_were_not_told_apart_is_measured_again() -> None:
    row = measurement(ScriptedSender(sends_nothing))
    with pytest.raises(Shared):
        row._check_whom_seen()
    row.is_apart = True
    row._check_whom_seen()
    assert row.notes == ["the counter was free again before others could be seen beside it"]


# --- windows by a clock ---------------------------------------------------------------------------


def test_two_bursts_beyond_the_limit_fail_unless_a_window_may_begin_in_both() -> None:
    row = measurement(ScriptedSender(sends_nothing))
    first = burst_of(90, 9_900 * MS_NS, 10_100 * MS_NS)
    same_border = burst_of(90, 29_900 * MS_NS, 30_100 * MS_NS)
    other_phase = burst_of(90, 34_900 * MS_NS, 35_100 * MS_NS)
    row.check_capacity([first, same_border], "on fresh counters")
    message = decided(lambda: row.check_capacity([first, other_phase], "on fresh counters"))
    assert message.startswith("bursts on fresh counters admitted 90 and 90 requests")


def rung(fill_s: float, probe_s: float, more: int) -> _Rung:
    """Return a party that fills its counter in 0.2 s, and is admitted once more later."""
    fill_ns, probe_ns = int(fill_s * SECOND_NS), int(probe_s * SECOND_NS)
    burst = burst_of(LIMIT, fill_ns, fill_ns + 200 * MS_NS)
    return _Rung(burst, observation(probe_ns, probe_ns + MS_NS), more)


def ladder_of(*rungs: _Rung) -> Any:
    """Return a block row whose parties show this; all others are refused when they send again."""
    row = measurement(ScriptedSender(sends_nothing), BlockMeasurement)
    row.is_apart, row.fresh = True, [rungs[0].burst]
    seen = list(rungs)
    refused = rungs[0]._replace(probe=observation(0, 0, refused=True), more=None)

    async def fill_and_probe(*_: object, **__: object) -> _Rung:
        return seen.pop() if seen else refused

    row._rung = fill_and_probe
    return row


def test_full_counters_that_admit_a_few_more_fail_unless_a_window_may_begin_in_both() -> None:
    """A window that begins in the midst of filling leaves a few places, at that phase alone."""
    first, same_border, other_phase = rung(9.9, 14, 5), rung(19.9, 23, 6), rung(21.8, 29.5, 5)
    row = ladder_of(first, other_phase)
    assert decided(lambda: asyncio.run(row._window())) == "fresh counters admitted 55, not 50"
    ladder_of(first)._check_early([first, same_border])


def aligned_windows() -> Limiter:
    counts: dict[int, int] = {}

    def is_refused(party: BurstSender, at_ns: int) -> bool:
        number = at_ns // WINDOW_NS
        counts[number] = counts.get(number, 0) + 1
        return counts[number] > LIMIT

    return is_refused


def test_a_window_that_begins_after_the_first_refusal_of_a_burst_is_filled_first() -> None:
    """The fifty-first request is refused at 9.995 s, and the next three begin a window."""
    sender = ScriptedSender(aligned_windows(), WINDOW_NS - 515 * MS_NS, 10 * MS_NS)
    row = measurement(sender)
    asyncio.run(row._cycles())
    assert row.first.size == 50 + 50
    assert row.refilled == LIMIT
    assert row._window().startswith("50 per ")


# --- whom a full counter holds for ----------------------------------------------------------------


def counters(name: Callable[[BurstSender], object], regain_ns: int = WINDOW_NS) -> Limiter:
    """Return a limiter of token buckets, one for each name, that regain a request so often."""
    buckets: dict[object, tuple[float, int]] = {}

    def is_refused(party: BurstSender, at_ns: int) -> bool:
        level, since_ns = buckets.get(name(party), (float(LIMIT), at_ns))
        level = min(LIMIT, level + (at_ns - since_ns) / regain_ns)
        buckets[name(party)] = (level - (level >= 1), at_ns)
        return level < 1

    return is_refused


def beside_a_full_counter(sender: ScriptedSender) -> Any:
    """Fill the counter of the first party, and send for others beside it."""
    row = measurement(sender)

    async def fill_and_send() -> None:
        burst = await sender.until_refused(FIRST, LIMIT)
        await row._other_pairs(FIRST, burst)

    asyncio.run(fill_and_send())
    return row


def of_pairs(party: BurstSender) -> object:
    return party.key, party.sources


def of_keys(party: BurstSender) -> object:
    return party.key


def test_counters_of_pairs_and_of_keys_are_told_apart() -> None:
    row = beside_a_full_counter(ScriptedSender(counters(of_pairs)))
    assert row.readings == {"limits.and_counter": "pair"}
    with pytest.raises(Decided, match="also refused another address: it is not of the pair"):
        beside_a_full_counter(ScriptedSender(counters(of_keys)))


def test_refusals_of_addresses_that_have_not_rested_show_nothing() -> None:
    """Another row has just filled the other addresses' counters."""

    def but_full_addresses() -> Limiter:
        pairs = counters(of_pairs)
        return lambda party, at_ns: party.sources != FIRST.sources or pairs(party, at_ns)

    sender = ScriptedSender(but_full_addresses())
    for place in range(1, 5):
        sender.parties.used(BurstSender("another row's", (f"a{place}",)), 0)
    row = beside_a_full_counter(sender)
    assert row.readings == {}
    with pytest.raises(Decided, match="not of the pair"):
        beside_a_full_counter(ScriptedSender(but_full_addresses()))


def test_admissions_that_a_full_counter_has_regained_show_nothing() -> None:
    """Counted by key; a request is decided each 0.15 s, and one place is regained each 0.2 s."""
    bucket = counters(of_keys, WINDOW_NS // LIMIT)
    row = beside_a_full_counter(ScriptedSender(bucket, service_ns=150 * MS_NS))
    assert row.readings == {}
