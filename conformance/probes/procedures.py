"""The clusters of requests that measure a row of the limit table.

A throttle row needs six clusters (L is the limit, W the window): L/2 at once; L/2 + 5 half a window
later, which exceeds the rate, followed by the signature probes; a few early probes while both are
still inside the window; L + 5 when the first has left the window; some a quarter of a window later,
when a log has no room but a bucket has; L + 5 when the second has left. If the window is long, the
second cluster comes a second after the first, so that a row per minute takes about a minute.

A block row is exceeded so late that its block ends after the first cluster has left the window:
then only the block refuses just before its end. A second counter, not exceeded until then, shows
the window.

Each cluster is scheduled from the last answer of the cluster that it depends on.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from conformance.probes.bursts import SECOND_NS, Burst, Counter, Warm, refused_in
from conformance.probes.families import BASIC, HEAVY_REQUESTS, Rate, border_between, fits
from conformance.probes.rows import Row, is_fixed
from conformance.probes.sightings import Sighting, nodes_filled, provable_admissions
from conformance.probes.signature import Probes, Signature, signature_requests, take_signature
from conformance.runner.bench import Bench
from conformance.wire.exchange import Exchange
from engine.limits import LimitTable, Rule

_EXTRA: Final = 5
_MARGIN_NS: Final = 20_000_000
LONG_NS: Final = 20 * SECOND_NS
_HEAVY_MORE: Final = 40
_ROOM_NS: Final = 700_000_000
_EARLY_PART: Final = 40
_TRIES: Final = 5
_TRIES_HEAVY: Final = 3
_LITTLE: Final = 3
_FIXED: Final = tuple(family for family in BASIC if family.algorithm == "fixed-window")
_ALIGNED: Final = next(family for family in _FIXED if family.is_aligned)
_BUCKETS: Final = tuple(family for family in BASIC if family.algorithm == "token-bucket")
_LATENCIES: Final = 4
"""What is sent together arrives within so many round trips."""
_KEPT: Final = 8
"""For at most so many windows a bucket is kept empty."""
_QUARTERS: Final = 10
_POLLS: Final = 30
"""Polls in a window that find a border of fixed windows, to 7 % of the window with both borders."""
_FILLING_NS: Final = 500_000
"""The time that a request takes when many are sent together."""
_AT_ONCE: Final = 200
_POLLS_PAST: Final = 3
_POLLS_BEFORE: Final = 5
FAILING_TIMES: Final = 2
"""So many times LIM-SEARCH's rate shows whether failed requests count."""
_MOST_NODES: Final = 4
_TURNS: Final = 12
"""So often each node is asked once one of them is full."""
_PLAYS: Final = 2
"""A row is played once more after a rest where the first time does not settle it."""


class Sizes(NamedTuple):
    """What the check of a row takes: the usual and the most requests, and the least time."""

    requests: int
    requests_most: int
    takes_ns: int


@dataclass(slots=True)
class Played:
    """What was measured of a row: its counters' histories, the signature, and two of the bursts."""

    rate: Rate
    counters: list[Counter] = field(default_factory=list)
    signature: Signature = field(default_factory=Signature)
    middle: Signature = field(default_factory=Signature)
    """The answers to the same probes in the middle of a block."""
    nodes: Counter | None = None
    """Asked where more than the rate was admitted, to show whether several nodes count."""
    is_warm: bool = False
    """The first burst was refused because the keys were used before, so nothing was measured."""

    def find_warm(self, first: Burst, *, is_rested: bool) -> bool:
        """Whether the first burst shows that the keys were used shortly before.

        Or, after a rest, that they are still blocked: then nothing more is measured either.
        """
        refused = refused_in(first.exchanges)
        self.is_warm = not is_rested and bool(refused)
        if self.is_warm:
            self.counters[0].bench.is_warm = True
        return self.is_warm or bool(self.rate.block_ns and len(refused) == first.size)


def counters_of(played: Sequence[Played]) -> list[Counter]:
    """Return all counters of a row, in order."""
    return [counter for each in played for counter in each.counters]


def exchanges_of(played: Sequence[Played]) -> list[Exchange]:
    """Return the exchanges of all counters of a row."""
    return [one for counter in counters_of(played) for one in counter.exchanges()]


async def play_together(
    bench: Bench, rate: Rate, plays: Sequence[Coroutine[Any, Any, Played]]
) -> list[Played]:
    """Play procedures of one row at once; all end as soon as one finds the row's keys warm."""

    async def played(play: Coroutine[Any, Any, Played]) -> Played:
        try:
            return await play
        except Warm as warm:
            return Played(rate, [warm.counter], is_warm=True)

    return await bench.gather([played(each) for each in plays])


async def play_throttle_row(
    counter: Counter,
    rate: Rate,
    probes: Probes,
    *,
    is_rested: bool = True,
) -> Played:
    """Send the clusters; returns the history of the counter and the signature.

    is_rested: whether the keys were not used for a while, so that a refused first burst does not
    mean earlier use.
    """
    played = Played(rate, [counter])
    limit, window_ns = rate.limit_requests, rate.window_ns
    half = limit // 2
    # A server may be as slow as strict spacing of a heavy row.
    counter.spacing_ns = 0 if limit >= HEAVY_REQUESTS else window_ns // limit
    more = _more_than(limit)
    start_ns = counter.now_ns
    first = await counter.send("first", half)
    if played.find_warm(first, is_rested=is_rested):
        return played
    left_ns = first.last_received_ns + window_ns + _MARGIN_NS
    until_ns = min(one.sent_ns for one in first.exchanges) + window_ns
    second = counter.new_burst("second", limit - half + _EXTRA)

    async def beyond() -> None:
        gap_ns = SECOND_NS if window_ns >= LONG_NS else window_ns // 2
        at_ns = max(start_ns + gap_ns, first.last_received_ns + 2 * _MARGIN_NS)
        await counter.fill(second, at_ns=at_ns)

    async def probe_then_last() -> None:
        await go_on(second, await counter.settled(second), _tries(rate))

    async def go_on(beyond: Burst, settled_ns: int, tries: int) -> None:
        if _refusals(counter, [beyond]) or not tries:
            played.signature = await take_signature(counter, rate, probes, until_ns=until_ns)
            size = _fifth_of(limit)
            fifth = await counter.send("fifth", size, at_ns=settled_ns + window_ns + _MARGIN_NS)
            await _ask_until_let_in(counter, rate, fifth)
            return
        # A bucket has regained what the first cluster took: send until it is empty. A throttle
        # that slows must hold the last requests long enough to be told from slow answers.
        held_ns = min(counter.late_after_ns + SECOND_NS, window_ns // 2)
        top = counter.new_burst("more", half + 2 * _EXTRA + limit * held_ns // window_ns)

        async def then() -> None:
            await go_on(top, await counter.settled(top), tries - 1)

        await counter.bench.gather([counter.fill(top), then()])

    async def between() -> None:
        # A log is full again since the fourth cluster; a bucket has regained room (families).
        if window_ns < LONG_NS and limit < HEAVY_REQUESTS:
            await counter.send("between", 2 + limit * 3 // 8, at_ns=left_ns + window_ns // 4)

    few = 2 + limit // _EARLY_PART
    early = [
        counter.send(f"early {part} %", few, at_ns=start_ns + window_ns * part // 100)
        for part in (85, 97)
    ]
    fourth = counter.send("fourth", more, at_ns=left_ns)
    await counter.bench.gather([beyond(), probe_then_last(), *early, fourth, between()])
    if is_rested and await counter.bench.aside(lambda: _is_overrun(counter, rate)):
        await _show_nodes(played, probes)
        return played
    await _show_anchor(counter, rate, start_ns)
    await _show_borders(counter, rate)
    return played


def _more_than(limit: int) -> int:
    """Return how many requests to send when a window has ended; fewer for a heavy rate."""
    return limit + _EXTRA if limit < HEAVY_REQUESTS else limit // 2 + _HEAVY_MORE


def _fifth_of(limit: int) -> int:
    """Return how many requests to send when the second window has ended."""
    return limit + _EXTRA if limit < HEAVY_REQUESTS else _HEAVY_MORE


async def _show_anchor(counter: Counter, rate: Rate, start_ns: int) -> None:
    """If windows are fixed, show whether they begin with a request or at multiples of W.

    After a rest that is not a multiple of W, a window of the first kind begins with the next
    request, and one of the second kind ends sooner.
    """

    def may_be_both() -> bool:
        return all(fits([counter.clusters()], rate, family) for family in _FIXED)

    window_ns = rate.window_ns
    if window_ns >= LONG_NS or rate.limit_requests >= HEAVY_REQUESTS:
        return
    if not await counter.bench.aside(may_be_both):
        return
    turns = -(-(counter.now_ns + window_ns - start_ns) // window_ns)
    at_ns = start_ns + turns * window_ns + window_ns * 4 // 10
    rested = await counter.send("after a rest", rate.limit_requests, at_ns=at_ns)
    await counter.send("early again", _LITTLE, at_ns=rested.begun_ns + window_ns * 97 // 100)


async def _show_borders(counter: Counter, rate: Rate) -> None:
    """If windows may be fixed on a clock, show two borders, each between two polls.

    Bursts alone only show that a border lies between them, which is also true, for some start, of
    windows a tenth longer or shorter. Where other rows have shown another way of counting, such
    windows are not in question, and up to two windows of polling are spared.
    """
    bench, limit, window_ns = counter.bench, rate.limit_requests, rate.window_ns
    if limit >= HEAVY_REQUESTS or (bench.knows("limits.algorithm") and not is_fixed(bench)):
        return
    others = [dataclasses.replace(rate, window_ns=window_ns * tenths // 10) for tenths in (9, 11)]

    def is_open() -> bool:
        seen = counter.clusters()
        late = [one for cluster in seen for one in cluster if one.is_late]
        if late:
            # A throttle that slows admits them at the border itself, so a poll would wait for it.
            first = min(late, key=lambda one: one.received_ns)
            bench.session.note_border(window_ns, first.sent_ns, first.received_ns)
            return False
        if not fits([seen], rate, _ALIGNED):
            return False
        between = border_between([seen], rate)
        if between is not None:
            bench.session.note_border(window_ns, *between)
        return any(fits([seen], one, _ALIGNED) for one in others)

    if not await bench.aside(is_open):
        return
    begun_ns = counter.now_ns
    full = await counter.send("full", limit + _EXTRA)
    border = await _poll_until_let_in(counter, rate, full.begun_ns, range(1, _POLLS + _POLLS_PAST))
    if border is not None:
        await counter.send("full again", limit + _EXTRA)
        around = range(_POLLS - _POLLS_BEFORE, _POLLS + _POLLS_PAST)
        await _poll_until_let_in(counter, rate, border.begun_ns, around)
    bench.session.note_rest(bench.check.id, counter.now_ns - begun_ns)


def _is_overrun(counter: Counter, rate: Rate) -> bool:
    """Whether a light row of a short window admits so much that several nodes may count it."""
    if rate.window_ns >= LONG_NS or rate.limit_requests >= HEAVY_REQUESTS:
        return False
    clusters = counter.clusters()
    seen = [one for cluster in clusters for one in cluster]
    admitted = provable_admissions(seen, rate.window_ns)
    is_refused = any(one.outcome == "refused" for one in seen)
    if not is_refused or admitted * 4 <= rate.limit_requests * 5:
        return False
    return not any(fits([clusters], rate, family) for family in BASIC)


async def _show_nodes(played: Played, probes: Probes) -> None:
    """Fill one of several nodes, where a balancer deals requests out in turn; then ask the others.

    Between two requests of the counter go as many of another key as lead to the same node again, so
    that it is full when the others have room: what follows is refused and admitted by turns.
    One counter of a higher rate admits all of it.
    """
    counter, rate = played.counters[0], played.rate
    seen = [one for cluster in counter.clusters() for one in cluster]
    other = probes.askers.get("other key")
    if other is None or any(one.is_late for one in seen):
        return
    limit = rate.limit_requests
    count = min(max(2, nodes_filled(seen, limit, rate.window_ns)), _MOST_NODES)
    last_ns = max(one.received_ns for one in seen)
    await counter.wait_until_ns(last_ns + 2 * rate.window_ns + _MARGIN_NS, "its window is over")
    nodes = played.nodes = counter.again()
    room = _nodes_requests(rate) - _TURNS * count
    asked = between = 0
    while asked + between + count <= room:
        one = await nodes.send("one node", 1)
        asked += 1
        if refused_in(one.exchanges):
            for _ in range(_TURNS * count):
                await nodes.send("by turns", 1)
            return
        for _ in range(count - 1 if asked <= limit + _EXTRA else 0):
            await counter.fill(Burst("between", 1), ask=other)
            between += 1


async def _poll_until_let_in(
    counter: Counter, rate: Rate, since_ns: int, places: range
) -> Burst | None:
    """Poll once at each place, in parts of a window; return the first poll that is admitted."""
    before_ns = 0
    for place in places:
        at_ns = since_ns + rate.window_ns * place // _POLLS
        poll = await counter.send("poll", 1, at_ns=at_ns)
        if not refused_in(poll.exchanges):
            end_ns = poll.last_received_ns
            if end_ns - poll.begun_ns > counter.late_after_ns:
                before_ns = end_ns - 2 * counter.calm_ns  # held back until the border
            if before_ns:
                counter.bench.session.note_border(rate.window_ns, before_ns, end_ns)
            return poll
        before_ns = poll.exchanges[0].sent_ns
    return None


async def play_borders(
    counter: Counter,
    rate: Rate,
    border_ns: int,
    *,
    is_late: bool = False,
    silent: bool = False,
) -> Played:
    """Show two borders of windows that are fixed on a clock, and a block across the second one.

    The counter is filled just before a border and again just after it. Then a request just before
    the next border must be refused, and one just after it admitted. border_ns: about when a border
    is. With a block rule, the first of these requests begins a block, so the second one is sent to
    another counter (is_late). silent: as in `play_block`.
    """
    played = Played(rate, [counter])
    limit, window_ns = rate.limit_requests, rate.window_ns
    near_ns = window_ns // _POLLS
    filling_ns = limit * _FILLING_NS + (1 + limit // _AT_ONCE) * counter.bench.latency_ns
    soonest_ns = counter.now_ns + filling_ns + 2 * near_ns
    turns = max(0, -(-(soonest_ns - border_ns) // window_ns))
    at_ns = border_ns + turns * window_ns
    await counter.send("first", limit - _LITTLE, at_ns=at_ns - near_ns - filling_ns)
    await counter.send("the last of it", _LITTLE, at_ns=at_ns - near_ns)
    new = await counter.send("behind a border", 1, at_ns=at_ns + near_ns)
    if refused_in(new.exchanges):
        return played  # its windows begin at other times
    await counter.send("full again", limit - 1)
    if not (rate.block_ns and is_late):
        last = await counter.send("before a border", 1, at_ns=at_ns + window_ns - near_ns)
        if rate.block_ns:
            if rate.block_ns < window_ns:
                await _ask_around_end(played, counter, _refusals(counter, [last]), silent=silent)
            return played
    await counter.send("behind the next border", 1, at_ns=at_ns + window_ns + near_ns)
    return played


async def play_number(counter: Counter, rate: Rate) -> Played:
    """Show the number of a throttle row that a number next to it explained as well.

    After a rest, a log or a window admits exactly the limit at once, whatever the latency. A bucket
    regains some meanwhile. So it is kept empty for some windows: what another number would regain
    more or less adds up, and what the latency leaves uncertain does not.
    """
    played = Played(rate, [counter])
    limit, window_ns = rate.limit_requests, rate.window_ns
    gained = limit * counter.bench.latency_ns // window_ns
    more = _EXTRA + min(_LATENCIES * gained, limit // 8)
    # A burst alone would do, but for a full bucket: how long its requests took to arrive is not
    # known exactly, and that is what the bucket regains.
    begun_ns = (await counter.send("half at once", limit // 2)).begun_ns
    await counter.send("the rest at once", limit - limit // 2 + more)

    def may_be_bucket() -> bool:
        near = [dataclasses.replace(rate, limit_requests=limit + by) for by in (0, -1, 1)]
        return any(fits([counter.clusters()], each, x) for each in near for x in _BUCKETS)

    if not await counter.bench.aside(may_be_bucket):
        return played
    for quarter in range(1, 4 * min(_KEPT, 2 + 3 * gained) + 1):
        at_ns = begun_ns + quarter * window_ns // 4
        await counter.send("kept empty", limit // 4 + more, at_ns=at_ns)
    return played


async def _ask_until_let_in(counter: Counter, rate: Rate, burst: Burst) -> None:
    """After a burst that was refused as a whole, send a few requests from time to time.

    If refused requests count, it takes up to two windows until one is admitted. A block of another
    length shows by the time when it ends.
    """
    begun_ns = burst.last_received_ns
    for quarter in range(1, _QUARTERS + 1):
        if rate.window_ns >= LONG_NS or len(refused_in(burst.exchanges)) < burst.size:
            return
        at_ns = begun_ns + quarter * rate.window_ns // 4 + _MARGIN_NS
        burst = await counter.send("until let in", _LITTLE, at_ns=at_ns)


def _refusals(counter: Counter, bursts: Sequence[Burst]) -> list[Sighting]:
    """Return the requests of some bursts that were refused or held back, or have no answer yet."""
    sent = {(x.sent_ns, x.received_ns) for burst in bursts for x in burst.exchanges}
    found = [
        one
        for cluster in counter.clusters()
        for one in cluster
        if one.outcome == "refused" or one.is_late
        if (one.asked_ns if one.is_late else one.sent_ns, one.received_ns) in sent
    ]
    now_ns = counter.now_ns
    return found + [Sighting(now_ns, now_ns) for burst in bursts if not burst.is_done]


async def _exceed(counter: Counter, burst: Burst, more: int, tries: int) -> list[Sighting]:
    """Send more after a burst until something is refused; returns the refusals, empty if none."""
    for _ in range(tries):
        refused = _refusals(counter, [burst])
        if refused:
            return refused
        burst = await counter.send("more", more)
    return _refusals(counter, [burst])


def _block_ends_ns(rate: Rate, refused: Sequence[Sighting]) -> int:
    """Return the earliest possible end of the block that these refusals began."""
    return min(one.sent_ns for one in refused) + rate.block_ns


async def play_block(
    counter: Counter,
    rate: Rate,
    probes: Probes | None = None,
    *,
    silent: bool = False,
    is_rested: bool = True,
    shows_window: bool = False,
) -> Played:
    """Exceed a block rule, then send just before (unless `silent`) and just after the block's end.

    It is exceeded so late that the block outlasts the window of the first cluster. shows_window:
    whether the rate is reached at once and exceeded just before its window ends, for a block that
    outlasts its window. is_rested: as in `play_throttle_row`.
    """
    played = Played(rate, [counter])
    limit, window_ns = rate.limit_requests, rate.window_ns
    half = limit // 2
    start_ns = counter.now_ns
    first = await counter.send("first", half)
    if played.find_warm(first, is_rested=is_rested):
        return played
    next_ns = first.last_received_ns + _MARGIN_NS
    if shows_window:
        await counter.send("second", limit - half, at_ns=next_ns)
        few = min(_HEAVY_MORE, half // 2)
        last = await counter.send("early", few, at_ns=start_ns + window_ns * 97 // 100)
    else:
        apart_ns = max(min(SECOND_NS, window_ns // 4), window_ns + _ROOM_NS - rate.block_ns)
        beyond_ns = max(start_ns + apart_ns, next_ns)
        last = await counter.send("second", limit - half + _EXTRA, at_ns=beyond_ns)
    refused = await _exceed(counter, last, half + 2 * _EXTRA, _tries(rate))
    if probes and refused:
        await _look_at_block(played, counter, refused, probes)
    await _ask_around_end(played, counter, refused, silent=silent)
    return played


async def _look_at_block(
    played: Played, counter: Counter, refused: Sequence[Sighting], probes: Probes
) -> None:
    """Find who is blocked by the block that these refusals began, at once and near its middle.

    Just before the middle, because a block of half the time ends there, and exceeding the rate
    again would begin another one.
    """
    rate, until_ns = played.rate, _block_ends_ns(played.rate, refused)
    played.signature = await take_signature(counter, rate, probes, until_ns=until_ns)
    await counter.wait_until_ns(until_ns - rate.block_ns * 55 // 100, "half of its block is over")
    played.middle = await take_signature(counter, rate, probes, until_ns=until_ns)


async def _ask_around_end(
    played: Played, counter: Counter, refused: Sequence[Sighting], *, silent: bool
) -> None:
    """Send just before and just after the end of the block that these refusals began."""
    if not refused:
        return
    block_ns = played.rate.block_ns
    guard_ns = min(3 * counter.calm_ns + 3 * _MARGIN_NS, block_ns // 4)
    if not silent:
        at_ns = _block_ends_ns(played.rate, refused) - guard_ns
        await counter.send("before the end", 2, at_ns=at_ns)
    after_ns = max(one.received_ns for one in refused) + block_ns + _MARGIN_NS
    after = await counter.send("after the end", 3, at_ns=after_ns)
    limit = played.rate.limit_requests
    if len(_refusals(counter, [after])) < after.size:
        if limit < HEAVY_REQUESTS:
            # Half of the rate may still be in the window, unless the block has cleared it.
            await counter.send("room after the end", limit // 2 + _EXTRA)
    else:
        # It is a little too long, or the requests inside it extend it, which lasts much longer.
        some = max(3, min(limit // 4, _HEAVY_MORE))
        well = await counter.send("well after", some, at_ns=after_ns + block_ns * 12 // 100)
        if len(_refusals(counter, [well])) < well.size:
            return
        if block_ns < LONG_NS:
            await counter.send("long after", some, at_ns=after_ns + block_ns * 6 // 10)
        if not silent:
            # If refusals extend it, this shows that it is not too short.
            last_ns = min(one.sent_ns for one in counter.bursts[-1].exchanges)
            await counter.send("again before the end", 2, at_ns=last_ns + block_ns - guard_ns)


async def play_window(
    counter: Counter, rate: Rate, *, is_late: bool = False, is_rested: bool = True
) -> Played:
    """Show a block rule's window: send L in two halves, then more just before W ends.

    is_late: just after W instead, with nothing before that could begin a block. is_rested: as in
    `play_throttle_row`.
    """
    played = Played(rate, [counter])
    half = rate.limit_requests // 2
    start_ns = counter.now_ns
    first = await counter.send("first", half)
    if played.find_warm(first, is_rested=is_rested):
        return played
    second = await counter.send(
        "second", rate.limit_requests - half, at_ns=first.last_received_ns + _MARGIN_NS
    )
    if is_late:
        at_ns = second.last_received_ns + rate.window_ns + _MARGIN_NS
        await counter.send("late", min(half, _HEAVY_MORE), at_ns=at_ns)
    else:
        at_ns = start_ns + rate.window_ns * 97 // 100
        # A bucket has regained nearly all of it by then.
        size = rate.limit_requests if rate.limit_requests < HEAVY_REQUESTS else _HEAVY_MORE
        await counter.send("early", size + 2, at_ns=at_ns)
    return played


# --- how many requests, and how long -------------------------------------------------------------


def _tries(rate: Rate) -> int:
    """Return how many further bursts are sent while nothing is refused."""
    return _TRIES if rate.limit_requests < HEAVY_REQUESTS else _TRIES_HEAVY


def _throttle_requests(rate: Rate, look: int) -> int:
    """Return the most requests of `play_throttle_row`; look: those of a signature."""
    limit = rate.limit_requests
    more = _tries(rate) * (limit // 2 + 2 * _EXTRA + limit // 2)
    early = 2 * (2 + limit // _EARLY_PART)
    later = _more_than(limit) + _fifth_of(limit) + _QUARTERS * _LITTLE
    if limit < HEAVY_REQUESTS:
        # Showing borders, where no nodes are asked, takes fewer.
        later += 2 + limit * 3 // 8 + _nodes_requests(rate)
    return limit + _EXTRA + more + early + later + look


def _number_requests(rate: Rate) -> int:
    """Return the most requests of `play_number`."""
    limit = rate.limit_requests
    more = _EXTRA + limit // 8
    return limit + more + 4 * _KEPT * (limit // 4 + more)


def _nodes_requests(rate: Rate) -> int:
    """Return the most that `_show_nodes` sends."""
    return _MOST_NODES * (rate.limit_requests + _EXTRA + _TURNS)


def block_requests(rate: Rate, look: int = 0) -> int:
    """Return the most requests of `play_block`; look: those of a signature."""
    return rate.limit_requests + _EXTRA + _end_requests(rate, look)


def _window_requests(rate: Rate) -> int:
    """Return the most requests of `play_window`."""
    limit = rate.limit_requests
    return limit + 2 + (limit if limit < HEAVY_REQUESTS else _HEAVY_MORE)


def _border_requests(row: Row, rate: Rate) -> int:
    """Return the most requests of `play_borders` with all counters of a row."""
    counters = 1 if not rate.block_ns else 2 if row.role is None else 4
    is_blocked = 0 < rate.block_ns < rate.window_ns
    end = _end_requests(rate) if is_blocked else 0
    return counters * (2 * rate.limit_requests + 2 + end)


def _end_requests(rate: Rate, look: int = 0) -> int:
    """Return the most requests that exceed a block rule's rate and test its block's end."""
    limit = rate.limit_requests
    room = limit // 2 + _EXTRA if limit < HEAVY_REQUESTS else 0
    well = 2 * max(_LITTLE, min(limit // 4, _HEAVY_MORE)) + 2
    return _tries(rate) * (limit // 2 + 2 * _EXTRA) + 2 + _LITTLE + max(room, well) + 2 * look


def looks_of(row: Row, rate: Rate) -> tuple[str, ...]:
    """Return the counters that show a block row's window beside the main one.

    They send just before a window's end (`early`), just after it (`late`), or nothing during the
    block (`silent`).
    """
    if row.role is None:
        return ("late",)
    return ("early", "late", "silent") if rate.block_ns == rate.window_ns else ("early", "silent")


def sizes_of(rule: Rule, row: Row, table: LimitTable) -> Sizes:
    """Return what the check of a row takes; table: the target's table, which contains the row."""
    rate = Rate(rule.limit_requests, rule.window_ns, rule.block_ns or 0)
    limit = rate.limit_requests
    is_light = not rate.block_ns and rate.window_ns < LONG_NS and limit < HEAVY_REQUESTS
    number = _number_requests(rate) if is_light else 0
    usual = limit * 5 // 2 + 200 if limit >= HEAVY_REQUESTS else limit * 16 // 5 + 60
    most = max(_play_requests(rule, row, table, rate), _border_requests(row, rate), number)
    # If the keys are warm, half of the limit was sent before.
    return Sizes(usual, _PLAYS * most + limit // 2, _takes_ns(rate))


def _play_requests(rule: Rule, row: Row, table: LimitTable, rate: Rate) -> int:
    """Return the most requests of measuring a row once."""
    search = next((one.limit_requests for one in table if one.id == "LIM-SEARCH"), 0)
    rest = FAILING_TIMES * search + 3
    look = signature_requests(rate, row.most_probes(rule), len(row.any_of), len(row.apart))
    if not rate.block_ns:
        return _throttle_requests(rate, look) + rest
    for one in looks_of(row, rate):
        rest += block_requests(rate) if one == "silent" else _window_requests(rate)
    if rate.block_ns > rate.window_ns:
        return rate.limit_requests + _HEAVY_MORE + _end_requests(rate, look) + rest
    return block_requests(rate, look) + rest


def _takes_ns(rate: Rate) -> int:
    """Return the least time that a row takes: the waits of its clusters."""
    if rate.block_ns > rate.window_ns:
        return rate.window_ns * 5 // 2 + rate.block_ns + 2 * SECOND_NS
    is_whole = rate.block_ns or rate.window_ns >= LONG_NS
    return rate.window_ns * (10 if is_whole else 15) // 10 + SECOND_NS
