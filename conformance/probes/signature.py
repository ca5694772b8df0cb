"""Which row refuses, and what it counts by: probes sent during a refusal, each with one change.

They are: the same counter again (the control), the same key and address on other resources, another
address, another key, and both other. Which of them are refused too tells a row from its neighbours,
and shows what it counts by (D-AND-COUNTER): key and address together, each separately, the key only
or the address only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from conformance.probes.bursts import Asker, Burst, Counter
from conformance.probes.families import HEAVY_REQUESTS, Rate
from conformance.probes.sightings import is_absent, is_of_a_front, odd_statuses
from conformance.wire.exchange import Exchange

CONTROL: Final = "control"
OTHER_RESOURCE: Final = "other resource"
BOTH_OTHER: Final = "both other"
TWIN: Final = "twin "
TWIN_BY_ID: Final = "twin by id "
"""Beginning of the names of probes for the row's further operations."""
ANY: Final = "any "
"""Beginning of the names of probes for further operations of a row for any resource."""
APART: Final = "apart "
"""Beginning of the names of probes for operations of other rows."""
READINGS: Final = ("one token", "with an API key")
"""Probes that a deployment may count in the row or not."""
_AGAIN: Final = "control again"
_FEW: Final = 3
_MOST: Final = 40
_OTHERS_ROOM: Final = 48
"""Fewer than the counter of any other resource admits: LIM-SEARCH admits 50."""
_MOST_HEAVY: Final = 300
_PAUSE_NS: Final = 40_000_000
_APART_ROOM: Final = 8
"""Fewer than the counter of any row admits: LIM-ACCOUNT-UPDATER admits 10."""
_ANY_ROOM: Final = 198
"""Fewer than LIM-CREATE, LIM-PATCH and LIM-DELETE admit: what they refuse shows nothing."""
_TURNS: Final = 3
"""The control, the other probes and the control again are sent one after another."""


class Probes(NamedTuple):
    """The probes of a row.

    own: the names of those that the row counts in its own counter.
    """

    askers: Mapping[str, Asker]
    own: frozenset[str]


@dataclass(slots=True)
class Signature:
    """The answers to the probes during one refusal, by name of the probe.

    own: the names of those that the row counts in its own counter. calm_status: the status of the
    row's own operation while there is room. is_held: the control was held back instead of refused.
    is_spaced: even the first burst of the row met a refusal. until_ns: only before this time is the
    counter certain to refuse. regained: the largest number of requests for which the counter may
    regain room between the first refusal and the last.
    """

    bursts: dict[str, Burst] = field(default_factory=dict)
    own: frozenset[str] = frozenset()
    calm_status: int = 0
    odd: frozenset[int] = frozenset()
    is_held: bool = False
    is_spaced: bool = False
    until_ns: int | None = None
    regained: int = 0

    def refused(self, name: str) -> bool | None:
        """Whether a probe was refused; None if it was not sent, was lost or has no operation."""
        answers = self.exchanges(name)
        if any(self.is_refused(one) for one in answers):
            return True
        if _is_resource(name) and is_absent(answers):
            return None
        told = sum(not is_of_a_front(one.status) for one in answers)
        return False if told > self.regained else None

    def is_refused(self, one: Exchange) -> bool:
        """Whether an answer is a refusal: 429 or the status used in place of it."""
        return one.refused or one.status in self.odd

    @property
    def tells(self) -> bool:
        """Whether the counter was full during all probes, so that their answers mean something.

        The control must be refused before and after them. From `until_ns` on, a window or a block
        may have ended in between, and the probes may have filled the counter again. Or a pause may
        have given a bucket room for a whole probe. Where requests are spaced, every counter
        refuses requests sent together, full or not.
        """
        if self.is_held or self.is_spaced:
            return False
        if not (self.refused(CONTROL) and self.refused(_AGAIN)):
            return False
        if self.until_ns is not None and self.bursts[_AGAIN].last_received_ns >= self.until_ns:
            return False
        return self.bursts[CONTROL].size > self.regained

    def leaves_out(self, name: str) -> bool:
        """Whether an operation of a row for any resource is answered while the row refuses.

        An operation that fails with another status than the row's may be answered before it counts.
        """
        if not name.startswith(ANY) or self.refused(name) is not False:
            return False
        statuses = {one.status or 0 for one in self.exchanges(name)}
        return min(statuses) < 400 or statuses == {self.calm_status}

    def is_counted(self, name: str) -> bool:
        """Whether the row counted a probe in its own counter."""
        if name in READINGS:
            return bool(self.refused(name))
        if name not in self.own or self.leaves_out(name):
            return False
        return not _is_resource(name) or not is_absent(self.exchanges(name))

    def exchanges(self, name: str) -> list[Exchange]:
        """Return the exchanges of a probe."""
        return self.bursts[name].exchanges if name in self.bursts else []


def _is_resource(name: str) -> bool:
    """Whether a probe uses a resource that the deployment may not have."""
    return name == OTHER_RESOURCE or (
        name.startswith((TWIN, ANY, APART)) and not name.startswith(TWIN_BY_ID)
    )


async def take_signature(
    counter: Counter, rate: Rate, probes: Probes, *, until_ns: int
) -> Signature:
    """Send the control and then the probes together, and return their answers.

    Those that the row counts in this counter become part of its history. Each probe is large enough
    that the room a bucket regains meanwhile cannot hide a refusal; if a pause made it too small,
    all are sent again. until_ns: when requests begin to leave the counter's window, or its block
    ends.

    If the control is held back instead of refused (D-THROTTLE delay), nothing else is sent: a held
    request keeps its place in the queue of every counter it passes, so others wait behind it
    whichever counter is full.
    """
    lasts_ns = _TURNS * counter.calm_ns + _PAUSE_NS
    apart_room, any_room = _APART_ROOM, _ANY_ROOM
    room = _room(rate)
    while True:
        began_ns = counter.now_ns
        size = min(_size(rate, lasts_ns), room)
        apart = min(size, (apart_room + 1) // 2)
        apart_room -= apart
        of_any = min(size, any_room)
        any_room -= of_any
        by_kind = {APART: apart, ANY: of_any}
        sizes = {
            name: next((most for kind, most in by_kind.items() if name.startswith(kind)), size)
            for name in probes.askers
        }
        signature = await _take(counter, rate, probes, sizes)
        signature.until_ns = until_ns
        room -= size
        lasts_ns = 2 * max(lasts_ns, counter.now_ns - began_ns)
        is_late = counter.now_ns + lasts_ns >= until_ns
        is_done = signature.is_held or signature.is_spaced or signature.tells or is_late
        if is_done or room < _size(rate, lasts_ns):
            return signature


def _room(rate: Rate) -> int:
    """Return the largest size of a probe: a probe must not fill the counter of another row."""
    is_small = rate.limit_requests < HEAVY_REQUESTS or rate.block_ns
    return min(rate.limit_requests - 2, _OTHERS_ROOM if is_small else 2 * _MOST_HEAVY)


def signature_requests(rate: Rate, probes: int, any_of: int, apart: int) -> int:
    """Return the most requests that `take_signature` sends for these numbers of probes.

    any_of, apart: those of `ANY` and `APART`. probes: all others, the control included.
    """
    room = max(_room(rate), _FEW)
    return (probes + 1) * room + any_of * min(room, _ANY_ROOM) + apart * _APART_ROOM


def _size(rate: Rate, lasts_ns: int) -> int:
    """Return how many requests a probe has; lasts_ns: how long all of them take.

    During a block a few are enough: it gives no room until it ends.
    """
    if rate.block_ns:
        return _FEW
    most = _MOST_HEAVY if rate.limit_requests >= HEAVY_REQUESTS else _MOST
    return min(_FEW + rate.limit_requests * lasts_ns // rate.window_ns, most)


def _regained(rate: Rate, signature: Signature) -> int:
    """Return for how many requests there is room again while the probes are sent.

    A block gives no room until it ends.
    """
    if rate.block_ns:
        return 0
    sent_ns = min(
        (x.sent_ns for x in signature.exchanges(CONTROL) if signature.is_refused(x)), default=0
    )
    lasted_ns = signature.bursts[_AGAIN].last_received_ns - sent_ns
    return 1 + rate.limit_requests * lasted_ns // rate.window_ns


async def _take(
    counter: Counter, rate: Rate, probes: Probes, sizes: Mapping[str, int]
) -> Signature:
    askers = probes.askers
    odd = odd_statuses(counter.exchanges())
    calm = next((x.status or 0 for x in counter.bursts[0].exchanges if not x.refused), 0)
    signature = Signature(own=probes.own, calm_status=calm, odd=odd)
    signature.is_spaced = any(signature.is_refused(one) for one in counter.bursts[0].exchanges)
    control = counter.new_burst("control", sizes[CONTROL])
    signature.bursts[CONTROL] = control

    async def others() -> None:
        await counter.settled(control)
        signature.is_held = not control.is_done or not any(
            signature.is_refused(one) for one in control.exchanges
        )
        if signature.is_held:
            return
        history = counter.new_burst("signature", 0)
        names = [name for name in askers if name != CONTROL and sizes[name]]
        signature.bursts.update({name: Burst(name, sizes[name]) for name in names})
        await counter.bench.gather(
            [counter.fill(signature.bursts[name], ask=askers[name]) for name in names]
        )
        again = signature.bursts[_AGAIN] = counter.new_burst(_AGAIN, sizes[CONTROL])
        await counter.fill(again, ask=askers[CONTROL])
        signature.regained = _regained(rate, signature)
        for name in names:
            if signature.is_counted(name):
                history.exchanges += signature.bursts[name].exchanges
                history.size += sizes[name]

    await counter.bench.gather([counter.fill(control, ask=askers[CONTROL]), others()])
    return signature
