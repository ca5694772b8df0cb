"""Which layer refuses: probes during a refusal that change one thing each.

The same counter once more (the control), the same key and address on another resource, another
address, another key, both other. A row is told from its neighbours by which of them are refused
too, and so is what it counts by (D-AND-COUNTER): the pair, each of both, the key only or the
address only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from conformance.exchanges import Exchange
from conformance.probes.asking import Asker, Burst, Counter
from conformance.probes.families import Rate
from conformance.probes.sightings import odd_statuses

__all__ = ["CONTROL", "READINGS", "Signature", "take_signature"]

CONTROL: Final = "control"
READINGS: Final = ("one token", "with an API key")
"""Probes that are counted in the row or not, as the deployment chooses."""
_AGAIN: Final = "control again"
_MOST: Final = 40
_HEAVY: Final = 1_000
_MOST_HEAVY: Final = 200
_PAUSE_NS: Final = 40_000_000


@dataclass(slots=True)
class Signature:
    """What the probes of one refusal said, by name of the probe."""

    bursts: dict[str, Burst] = field(default_factory=dict)
    calm_ns: int = 0
    odd: frozenset[int] = frozenset()
    is_held: bool = False
    until_ns: int | None = None

    def refused(self, name: str) -> bool | None:
        """Whether a probe was refused; None when it was not sent."""
        if name not in self.bursts:
            return None
        return any(one.refused or one.status in self.odd for one in self.bursts[name].exchanges)

    @property
    def tells(self) -> bool:
        """Whether the control was refused before and after the others, so that they mean something.

        Else a window may have ended in between. From `until_ns` on another burst may have filled
        the counter again, which the control would not show.
        """
        if self.is_held or not (self.refused(CONTROL) and self.refused(_AGAIN)):
            return False
        return self.until_ns is None or self.bursts[_AGAIN].last_received_ns < self.until_ns

    def exchanges(self, name: str) -> list[Exchange]:
        """Return what a probe asked."""
        return self.bursts[name].exchanges if name in self.bursts else []


async def take_signature(
    counter: Counter,
    rate: Rate,
    probes: Mapping[str, Asker],
    own: frozenset[str],
    *,
    until_ns: int | None = None,
) -> Signature:
    """Send the probes at once, the control just before, and return what they said.

    own: the probes that the row counts in this very counter, which are part of its history. Each
    is big enough that what a bucket regains meanwhile does not hide a refusal. until_ns: when the
    counter's next big burst may go out.

    Where the control is held back instead of refused (D-THROTTLE delay) nothing else is sent: a
    held request keeps its place in line in every counter that it meets, so others wait behind it
    whichever counter is full.
    """
    regained = 2 * rate.limit_requests * (counter.calm_ns + _PAUSE_NS) // rate.window_ns
    size = min(3 + regained, _MOST_HEAVY if rate.limit_requests >= _HEAVY else _MOST)
    odd = odd_statuses(counter.exchanges())
    signature = Signature(calm_ns=counter.calm_ns, odd=odd, until_ns=until_ns)
    control = counter.new_burst("control", size)
    signature.bursts[CONTROL] = control

    async def others() -> None:
        await counter.settled(control)
        signature.is_held = not control.is_done or not signature.refused(CONTROL)
        if signature.is_held:
            return
        history = counter.new_burst("signature", 0)
        names = [name for name in probes if name != CONTROL]
        signature.bursts.update({name: Burst(name, size) for name in names})
        await counter.gather(
            [counter.fill(signature.bursts[name], ask=probes[name]) for name in names]
        )
        for name in names:
            if name in own or (name in READINGS and signature.refused(name)):
                history.exchanges += signature.bursts[name].exchanges
                history.size += size
        again = signature.bursts[_AGAIN] = counter.new_burst(_AGAIN, size)
        await counter.fill(again, ask=probes[CONTROL])

    await counter.gather([counter.fill(control, ask=probes[CONTROL]), others()])
    return signature
