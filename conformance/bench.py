"""The bench: what a check works with.

It asks the deployment through the transport, records every exchange, deals out keys and source
addresses so that no two checks share a counter, and holds what is known: the target, the profile
that has been told or discovered so far, the limit table, the seed.

A check is deterministic: the same answers at the same times give the same requests and findings.
So everything random in it comes from `bench.random(name)`, and time only from exchanges and
`now_ns`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from typing import Any

from conformance.exchanges import Ask, Exchange, KeyLabel
from conformance.registry import Check, Inconclusive, Skip
from conformance.target import Target
from conformance.transport import Transport
from conformance.verdicts import Finding, Verdict
from engine import LimitTable, Profile
from engine.messages import Json

__all__ = ["Bench", "Lane", "Recorder"]

Recorder = Callable[[Exchange], None]
"""Keeps an exchange; called in order of numbers."""


class Lane:
    """One sender: a key, a source address, and its own turn of requests.

    Lanes run side by side inside `bench.side_by_side`; outside of it `bench.ask` is the way.
    """

    def __init__(self, bench: Bench, name: str, **defaults: Any) -> None:  # noqa: ANN401 # reason: fields of Ask
        self._bench = bench
        self.name = name
        self.defaults = defaults
        self.turn = 0

    @property
    def now_ns(self) -> int:
        """The suite's clock."""
        return self._bench.transport.now_ns

    async def ask(self, method: str, path: str, body: Json | bytes = None, **more: Any) -> Exchange:  # noqa: ANN401 # reason: fields of Ask
        """Send one request; returns its exchange, whatever comes back."""
        ask = Ask(method=method, path=path, body=body, **{**self.defaults, **more})
        return await self._bench.exchange(self, ask)

    async def sleep_until_ns(self, at_ns: int) -> None:
        """Wait for an instant of the suite's clock."""
        await self._bench.transport.sleep_until_ns(at_ns)

    async def sleep_ns(self, for_ns: int) -> None:
        """Wait so long."""
        await self.sleep_until_ns(self.now_ns + for_ns)


class Bench:
    """What one check of one run works with."""

    def __init__(
        self,
        check: Check,
        target: Target,
        transport: Transport,
        *,
        profile: Profile,
        limits: LimitTable,
        seed: int,
        record: Recorder,
        numbers: Iterator[int],
    ) -> None:
        self.check = check
        self.target = target
        self.transport = transport
        self.profile = profile
        self.limits = limits
        self.seed = seed
        self.exchanges: list[Exchange] = []
        self._record = record
        self._numbers = numbers
        self._lock = threading.Lock()
        self._lane = Lane(self, "main")

    def __repr__(self) -> str:
        return f"<Bench of {self.check.id}>"

    # --- asking ---------------------------------------------------------------------------------

    def ask(self, method: str, path: str, body: Json | bytes = None, **more: Any) -> Exchange:  # noqa: ANN401 # reason: fields of Ask
        """Send one request and wait; `key="private_prod.1"`, `source=…`, `headers=…`, as in Ask."""
        found: Exchange = self.transport.run([self._lane.ask(method, path, body, **more)])[0]
        return found

    def lane(self, name: str, **defaults: Any) -> Lane:  # noqa: ANN401 # reason: fields of Ask
        """Return a sender with defaults of its own, for `side_by_side`; names are unique."""
        return Lane(self, name, **defaults)

    def side_by_side(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines of lanes at the same time; returns their results in order."""
        return self.transport.run(coroutines)

    async def exchange(self, lane: Lane, ask: Ask) -> Exchange:
        """Send for a lane and record; called by lanes."""
        lane.turn += 1
        turn = lane.turn
        answer = await self.transport.send(ask)
        with self._lock:
            found = Exchange(
                next(self._numbers),
                self.check.id,
                lane.name,
                turn,
                ask,
                answer.sent_ns,
                answer.received_ns,
                answer.status,
                answer.headers,
                answer.body,
                answer.error,
            )
            self.exchanges.append(found)
            self._record(found)
        return found

    # --- keys, addresses, chance ----------------------------------------------------------------

    def key(self, role: str, place: int = 1) -> KeyLabel:
        """Return the label of a role's key; raises `Skip` when the target has none such."""
        label = f"{role}.{place}"
        if label not in self.target.key_labels:
            raise Skip(f"needs {place} key(s) of role {role}: add [[keys]] role = {role!r}")
        return label

    def random(self, name: str) -> random.Random:
        """Return a source of chance of its own, fixed by seed, check and name."""
        return random.Random(f"{self.seed}/{self.check.id}/{name}")  # noqa: S311 # reason: must repeat

    # --- saying ---------------------------------------------------------------------------------

    def finding(  # reason: the parts of a finding
        self,
        clause: str,
        verdict: Verdict,
        says: str,
        *shown: Exchange,
        reading: tuple[str, object] | None = None,
    ) -> Finding:
        """Return a finding of this check with its evidence."""
        assert clause in self.check.clauses, f"{self.check.id} does not judge {clause}"
        evidence = tuple(exchange.number for exchange in shown)
        return Finding(clause, self.check.id, verdict, says, evidence, self.check.accepts, reading)

    def passes(self, clause: str, says: str, *shown: Exchange) -> Finding:
        """Say that what was asked for was seen."""
        return self.finding(clause, Verdict.PASS, says, *shown)

    def fails(self, clause: str, says: str, *shown: Exchange) -> Finding:
        """Say that the deployment breaks the clause."""
        return self.finding(clause, Verdict.FAIL, says, *shown)

    def inconclusive(self, why: str) -> Inconclusive:
        """Return the exception that ends the check without a verdict."""
        return Inconclusive(why)
