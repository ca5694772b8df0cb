"""Which layer refuses: probes during a refusal that change one thing each.

The same counter once more (the control), the same key and address on other resources, another
address, another key, both other. A row is told from its neighbours by which of them are refused
too, and so is what it counts by (D-AND-COUNTER): the pair, each of both, the key only or the
address only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from conformance.probes.bursts import Asker, Burst, Counter
from conformance.probes.families import HEAVY_REQUESTS, Rate
from conformance.probes.sightings import is_absent, is_of_a_front, odd_statuses
from conformance.wire.exchange import Exchange

__all__ = [
    "ANY",
    "APART",
    "BOTH_OTHER",
    "CONTROL",
    "OTHER_RESOURCE",
    "READINGS",
    "TWIN",
    "TWIN_BY_ID",
    "Signature",
    "signature_requests",
    "take_signature",
]

CONTROL: Final = "control"
OTHER_RESOURCE: Final = "other resource"
BOTH_OTHER: Final = "both other"
TWIN: Final = "twin "
TWIN_BY_ID: Final = "twin by id "
"""What the names of probes of the row's further operations begin with."""
ANY: Final = "any "
"""What the names of probes of further operations of a row for any resource begin with."""
APART: Final = "apart "
"""What the names of probes of other rows' operations begin with."""
READINGS: Final = ("one token", "with an API key")
"""Probes that are counted in the row or not, as the deployment chooses."""
_AGAIN: Final = "control again"
_FEW: Final = 3
_MOST: Final = 40
_OTHERS_ROOM: Final = 48
"""Below what the counter of another resource holds: LIM-SEARCH has room for 50."""
_MOST_HEAVY: Final = 300
_PAUSE_NS: Final = 40_000_000
_APART_ROOM: Final = 8
"""Below what the counter of any row holds: LIM-ACCOUNT-UPDATER has room for 10."""
_TURNS: Final = 3
"""The control, the others and the control again go out one after another."""


@dataclass(slots=True)
class Signature:
    """What the probes of one refusal said, by name of the probe.

    calm_status: of the row's own operation while there is room. is_held: the control was held back
    instead of refused. is_spaced: even the first burst of the
    row met a refusal. until_ns: the counter is sure to refuse only before. regained: the most
    requests that a counter gives room to by its rate between the first refusal and the last.
    """

    bursts: dict[str, Burst] = field(default_factory=dict)
    calm_ns: int = 0
    calm_status: int = 0
    odd: frozenset[int] = frozenset()
    is_held: bool = False
    is_spaced: bool = False
    until_ns: int | None = None
    regained: int = 0

    def refused(self, name: str) -> bool | None:
        """Whether a probe was refused; None when it was not sent, is lost or asks for nothing."""
        answers = self.exchanges(name)
        if any(self.is_refused(one) for one in answers):
            return True
        if _is_resource(name) and is_absent(answers):
            return None
        told = sum(not is_of_a_front(one.status) for one in answers)
        return False if told > self.regained else None

    def is_refused(self, one: Exchange) -> bool:
        """Whether an answer says no, by 429 or what is said in place of it."""
        return one.refused or one.status in self.odd

    @property
    def tells(self) -> bool:
        """Whether the counter was full all the while, so that the others mean something.

        The control was refused before and after them. In between a window may have ended or a
        block, and the probes themselves have filled the counter again: from `until_ns` on. Or a
        pause gave a bucket room for a whole probe. Where requests are spaced every counter refuses
        what comes at once, full or not.
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

        What fails otherwise than the row's own operation does may be decided on before it counts.
        """
        if not name.startswith(ANY) or self.refused(name) is not False:
            return False
        statuses = {one.status or 0 for one in self.exchanges(name)}
        return min(statuses) < 400 or statuses == {self.calm_status}

    def is_counted(self, name: str, own: frozenset[str]) -> bool:
        """Whether the row has counted a probe in its own counter; own: those that it must."""
        if name in READINGS:
            return bool(self.refused(name))
        if name not in own or self.leaves_out(name):
            return False
        return not _is_resource(name) or not is_absent(self.exchanges(name))

    def exchanges(self, name: str) -> list[Exchange]:
        """Return what a probe asked."""
        return self.bursts[name].exchanges if name in self.bursts else []


def _is_resource(name: str) -> bool:
    """Whether a probe asks for a resource that the deployment may not have."""
    return name == OTHER_RESOURCE or (
        name.startswith((TWIN, ANY, APART)) and not name.startswith(TWIN_BY_ID)
    )


async def take_signature(
    counter: Counter,
    rate: Rate,
    probes: Mapping[str, Asker],
    own: frozenset[str],
    *,
    until_ns: int,
) -> Signature:
    """Send the probes at once, the control just before, and return what they said.

    own: the probes that the row counts in this very counter, which are part of its history. Each
    is big enough that what a bucket regains meanwhile does not hide a refusal; where a pause made
    it too small they are sent again. until_ns: when what the counter holds begins to leave its
    window, or its block ends.

    Where the control is held back instead of refused (D-THROTTLE delay) nothing else is sent: a
    held request keeps its place in line in every counter that it meets, so others wait behind it
    whichever counter is full.
    """
    lasts_ns = _TURNS * counter.calm_ns + _PAUSE_NS
    apart_room = _APART_ROOM
    room = _room(rate)
    while True:
        began_ns = counter.now_ns
        size = min(_size(rate, lasts_ns), room)
        apart = min(size, (apart_room + 1) // 2)
        apart_room -= apart
        sizes = {name: apart if name.startswith(APART) else size for name in probes}
        signature = await _take(counter, rate, probes, own, sizes)
        signature.until_ns = until_ns
        room -= size
        lasts_ns = 2 * max(lasts_ns, counter.now_ns - began_ns)
        is_late = counter.now_ns + lasts_ns >= until_ns
        is_done = signature.is_held or signature.is_spaced or signature.tells or is_late
        if is_done or room < _size(rate, lasts_ns):
            return signature


def _room(rate: Rate) -> int:
    """Return the most that each probe sends: one of another counter must not fill it."""
    is_small = rate.limit_requests < HEAVY_REQUESTS or rate.block_ns
    return min(rate.limit_requests - 2, _OTHERS_ROOM if is_small else 2 * _MOST_HEAVY)


def signature_requests(rate: Rate, probes: int) -> int:
    """Return the most that `take_signature` sends with so many probes and the control again."""
    return (probes + 1) * max(_room(rate), _FEW)


def _size(rate: Rate, lasts_ns: int) -> int:
    """Return how many requests a probe has, where all of them take so long.

    A few are enough in a block: it gives no room until it ends.
    """
    if rate.block_ns:
        return _FEW
    most = _MOST_HEAVY if rate.limit_requests >= HEAVY_REQUESTS else _MOST
    return min(_FEW + rate.limit_requests * lasts_ns // rate.window_ns, most)


def _regained(rate: Rate, signature: Signature) -> int:
    """Return how many requests find room by and by while the probes go out.

    A block gives none until it ends.
    """
    if rate.block_ns:
        return 0
    sent_ns = min(
        (x.sent_ns for x in signature.exchanges(CONTROL) if signature.is_refused(x)), default=0
    )
    lasted_ns = signature.bursts[_AGAIN].last_received_ns - sent_ns
    return 1 + rate.limit_requests * lasted_ns // rate.window_ns


async def _take(
    counter: Counter,
    rate: Rate,
    probes: Mapping[str, Asker],
    own: frozenset[str],
    sizes: Mapping[str, int],
) -> Signature:
    odd = odd_statuses(counter.exchanges())
    calm = next((x.status or 0 for x in counter.bursts[0].exchanges if not x.refused), 0)
    signature = Signature(calm_ns=counter.calm_ns, calm_status=calm, odd=odd)
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
        names = [name for name in probes if name != CONTROL and sizes[name]]
        signature.bursts.update({name: Burst(name, sizes[name]) for name in names})
        await counter.gather(
            [counter.fill(signature.bursts[name], ask=probes[name]) for name in names]
        )
        again = signature.bursts[_AGAIN] = counter.new_burst(_AGAIN, sizes[CONTROL])
        await counter.fill(again, ask=probes[CONTROL])
        signature.regained = _regained(rate, signature)
        for name in names:
            if signature.is_counted(name, own):
                history.exchanges += signature.bursts[name].exchanges
                history.size += sizes[name]

    await counter.gather([counter.fill(control, ask=probes[CONTROL]), others()])
    return signature
