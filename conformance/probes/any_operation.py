"""Tests whether a row for any method and resource refuses each of them once its rate is exceeded.

Each operation is first sent once while there is room, which shows that the deployment has it. While
the key is refused, the operation is sent again, between two requests of the row's own operation. If
both of these are refused but the operation is answered three times in a row, more often than the
room that a bucket regains allows, the row does not count the operation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from conformance.probes.bursts import Asker, Beyond, Burst, Counter
from conformance.probes.rows import ROWS, of_token, rate_of
from conformance.probes.sightings import is_of_a_front
from conformance.runner.answers import text_of
from conformance.runner.bench import Bench
from conformance.runner.verdicts import Finding
from conformance.wire.exchange import Exchange, KeyLabel

_OPERATIONS: Final = (
    "create",
    "search",
    "detokenize",
    "list",
    "get",
    "patch",
    "delete",
    "get_tenant",
)
_BY_ID: Final = frozenset({"detokenize", "get", "patch", "delete"})
_ROUNDS: Final = 3
_AT_ONCE: Final = 4


@dataclass(slots=True)
class _Seen:
    """The answers to an operation between refusals; refused: the operation was refused too."""

    answered: list[Exchange] = field(default_factory=list)
    controls: list[Exchange] = field(default_factory=list)
    rounds: int = 0
    lasted_ns: int = 0
    refused: bool = False


class AnyOperation:
    """The operations for one row's key: sent while there is room, and again while there is none."""

    def __init__(self, bench: Bench, rule_id: str, key: KeyLabel, counter: Counter) -> None:
        self._bench = bench
        self._rule_id = rule_id
        self._key = key
        self._counter = counter
        self._calm: dict[str, int] = {}
        self._ids: tuple[str, str] | None = None

    async def look(self) -> None:
        """Send each operation once, while there is room; remember those that exist."""
        lane = self._bench.lane(f"{self._counter.name} there", key=self._key)
        values = {name: f"{self._rule_id} {name}" for name in ("first", "second")}
        made = await lane.ask(*self._bench.shaped("tokenize", {"value": values}))
        first, second = (text_of(made, name) for name in values)
        if first is not None and second is not None:
            self._ids = (first, second)
        for name in _OPERATIONS:
            # The token that is deleted here must not be used later.
            one = await lane.send(self._asker(name, 1 if name == "delete" else 0)(0))
            if one.status is not None and not (
                is_of_a_front(one.status) or one.refused or one.is_absent
            ):
                self._calm[name] = one.status

    def _asker(self, name: str, which: int = 0) -> Asker:
        sources = self._bench.sources[:1]
        plain = ROWS[self._rule_id].asker(self._bench, name, key=self._key, sources=sources)
        if self._ids is None or name not in _BY_ID:
            return plain
        return of_token(self._bench, name, plain, self._ids[which])

    async def finding(self, sent: Beyond) -> Finding:
        """Send each operation again once the rate is exceeded, and report what that shows."""
        if sent.slowed:
            return self._untold(
                "requests beyond the rate are slowed, and a delay does not show which row caused "
                "it; only refusals can be judged"
            )
        if not any(one.refused for one in sent.refused):
            return self._untold("the key is not refused immediately beyond its rate")
        until_ns = sent.exchanges[0].sent_ns + rate_of(self._bench, self._rule_id)[1].window_ns // 2
        seen = {name: await self._between(name, until_ns) for name in self._calm}
        # If one request that fails with a status is refused, limits come before such failures.
        failures = {self._calm[name] for name, one in seen.items() if one.refused}
        for name, one in seen.items():
            if self._is_left_out(one, is_like_refused=self._calm[name] in failures):
                method, path, _ = self._bench.shaped(name)
                says = (
                    f"{method} {path} is answered {one.answered[0].status} {len(one.answered)} "
                    "times, between refusals of the same key: the row must count it too"
                )
                shown = (one.controls[0], *one.answered[:2], one.controls[-1])
                return self._bench.fails(self._rule_id, says, *shown)
        refused = [name for name, one in seen.items() if one.refused]
        if not refused:
            return self._untold("no other operation was refused while the rate was exceeded")
        says = f"refused as well while the rate is exceeded: {', '.join(refused)}"
        untold = [name for name in seen if name not in refused]
        if untold:
            says += f"; not decided for {', '.join(untold)}"
        return self._bench.passes(self._rule_id, says, *sent.refused[:1])

    def _untold(self, why: str) -> Finding:
        says = f"not decided whether every method and resource counts: {why}"
        return self._bench.informs(self._rule_id, says)

    async def _between(self, name: str, until_ns: int) -> _Seen:
        """Send an operation between two requests that are refused, until it is refused too."""
        found = _Seen()
        for _ in range(_ROUNDS):
            if self._counter.now_ns > until_ns:
                break
            before = await self._ask(1)
            between = await self._ask(_AT_ONCE, self._asker(name))
            after = await self._ask(1)
            if any(one.refused for one in between):
                found.refused = True
                break
            controls = (*before, *after)
            if not all(one.refused for one in controls):
                continue
            found.rounds += 1
            found.controls += controls
            found.answered += [one for one in between if not is_of_a_front(one.status)]
            found.lasted_ns += after[0].received_ns - before[0].sent_ns
        return found

    async def _ask(self, size: int, ask: Asker | None = None) -> Sequence[Exchange]:
        burst = Burst("any", size)
        await self._counter.fill(burst, ask=ask)
        return burst.exchanges

    def _is_left_out(self, seen: _Seen, *, is_like_refused: bool) -> bool:
        """Whether an operation was answered more often than the room a row regains allows."""
        if seen.refused or seen.rounds < _ROUNDS:
            return False
        succeeded = any((one.status or 0) < 400 for one in seen.answered)
        if not succeeded and not is_like_refused:
            return False  # permissions or existence may be checked before the request counts
        _, rate = rate_of(self._bench, self._rule_id)
        regained = 2 * rate.limit_requests * seen.lasted_ns // rate.window_ns
        return len(seen.answered) > seen.rounds + regained
