"""Timing: what the clock of the suite can support.

An answer is there later than the deployment gave it: its machine may be busy, and so may ours. So
a time that was measured is the most that the deployment has taken, and never the least. *Too
early* is sound as it is. *Too late* is judged after what is known to have held it up: how late this
process itself woke meanwhile, and how long a request took beside that had nothing to wait for.
Where that eats up the margin, nothing can be said.
"""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, Final

from conformance.runner.bench import Bench
from conformance.wire.exchange import Exchange

__all__ = ["Stalls", "seconds", "took_ns"]

_SECOND_NS: Final = 1_000_000_000
_BEAT_NS: Final = 50_000_000


def took_ns(exchange: Exchange) -> int:
    """Return how long an answer took, from its first byte sent to its first byte here."""
    return exchange.received_ns - exchange.sent_ns


def seconds(duration_ns: int) -> str:
    """Return a duration for a sentence.

    >>> seconds(25_004_000_000)
    '25.00 s'
    """
    return f"{duration_ns / _SECOND_NS:.2f} s"


class Stalls:
    """Measures by how much this process was held up while others are awaited."""

    def __init__(self, bench: Bench) -> None:
        self._bench = bench
        self._is_over = False
        self._late_ns = 0
        self.stalled_ns = 0

    async def beside(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines side by side; `stalled_ns` then says for how long nothing ran here."""

        async def watched() -> list[Any]:
            try:
                return await self._bench.gather(coroutines)
            finally:
                self._is_over = True

        found, _ = await self._bench.gather([watched(), self._beat()])
        # No seed fixes it: whoever judges the run again must have the same.
        self.stalled_ns = int(self._bench.make("stalled_ns", lambda: str(self._late_ns)))
        return list(found)

    async def _beat(self) -> None:
        transport = self._bench.transport
        while not self._is_over:
            due_ns = transport.now_ns + _BEAT_NS
            await transport.sleep_until_ns(due_ns)
            self._late_ns += max(0, transport.now_ns - due_ns - _BEAT_NS)
