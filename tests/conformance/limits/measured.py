"""Playing the limit checks against an engine in process, on virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance.context.check import all_checks
from conformance.context.verdicts import Finding, Verdict, worst
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from conformance.wire.transport import Latency
from engine import Decision, Engine, LimitTable, ManualClock, Profile
from engine.limits import Limiter, RateLimitStatus, Subject
from engine.world import Clock

MS_NS = 1_000_000
SECOND_NS = 1_000_000_000
CLAUSES = ("LIM-", "ERR-429", "AUTH-")
PROBES = tuple(
    check.id for check in all_checks().values() if check.is_probe and check.id[:7] == "limits."
)


class Measured:
    """What a run of limit checks found, and the profile that it discovered."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.profile = run.session.profile
        self.known = run.session.known
        self.ended_ns = max(one.received_ns for one in run.session.exchanges.values())

    @property
    def bad(self) -> list[Finding]:
        """Everything but passes."""
        return [one for one in self.run.findings if one.verdict is not Verdict.PASS]

    @property
    def failed(self) -> set[str]:
        """The clauses that fail."""
        return {one.clause for one in self.run.findings if one.verdict is Verdict.FAIL}

    @property
    def open(self) -> set[str]:
        """The clauses that do not pass: a pass with a remark beside it is one."""
        clauses = {one.clause for one in self.run.findings}
        by_clause = {x: [one for one in self.run.findings if one.clause == x] for x in clauses}
        return {x for x, findings in by_clause.items() if worst(findings) is not Verdict.PASS}

    def says(self, clause: str) -> str:
        """Every sentence about a clause."""
        return "\n".join(one.message for one in self.run.findings if one.clause == clause)


def play(
    *checks: str,
    table: LimitTable | None = None,
    told_table: LimitTable | None = None,
    latency: Latency | None = None,
    seed: int = 5,
    engine: Callable[..., Any] | None = None,
    target: dict[str, Any] | None = None,
    **limits: Any,
) -> Measured:
    """Run checks (all probes of limits unless named) against an engine of this table and profile.

    What the engine plays is not told to the suite, but for `told_table`.
    """
    more: dict[str, Any] = {} if engine is None else {"engine": engine}
    made = deploy(
        profile=Profile().replace(limits=limits),
        limits=table,
        latency=latency,
        **more,
        **(target or {}),
    )
    if isinstance(latency, Stalling):
        latency.clock = made.engine.clock
    chosen = tuple(f"limits.{name}" for name in checks) or PROBES
    options = Options(select=CLAUSES, checks=chosen, seed=seed)
    run = Run(made.target, options, transport=made.transport, limits=told_table)
    run.execute()
    return Measured(run)


def jittery(seed: int, latency_ms: int, jitter_ms: int) -> Latency:
    """Return a latency model: each way half of a fixed part and of a random one."""
    chance = random.Random(seed)

    def draw() -> tuple[int, int]:
        there = latency_ms * MS_NS // 2 + chance.randrange(jitter_ms * MS_NS // 2 + 1)
        return there, latency_ms * MS_NS // 2 + chance.randrange(jitter_ms * MS_NS // 2 + 1)

    return draw


class Stalling:
    """A latency model of a machine that stops now and then, for all that is under way alike."""

    def __init__(self, seed: int, every_s: float, most_s: float) -> None:
        self._chance = random.Random(seed)
        self._every_s = every_s
        self._most_s = most_s
        self._stalls: list[tuple[int, int]] = [(0, 0)]
        self.clock: Clock = ManualClock()

    def _after(self, at_ns: int) -> int:
        """Return when what would happen at an instant does."""
        while self._stalls[-1][1] <= at_ns:
            begin = self._stalls[-1][1] + int(self._chance.expovariate(1 / self._every_s) * 1e9)
            lasts = int(self._chance.uniform(0.02, self._most_s) * 1e9)
            self._stalls.append((begin, begin + lasts))
        return next((end for begin, end in self._stalls[-4:] if begin <= at_ns < end), at_ns)

    def __call__(self) -> tuple[int, int]:
        now_ns = self.clock.now_ns
        there = self._after(now_ns + self._chance.randrange(1, 5 * MS_NS))
        back = self._after(there + self._chance.randrange(1, 5 * MS_NS))
        return there - now_ns, back - there


def tenth() -> LimitTable:
    """Return the seed's table with windows and blocks divided by 10."""
    table = LimitTable.default()
    for rule in table:
        block_ns = None if rule.block_ns is None else rule.block_ns // 10
        rate = rule.rate._replace(window_ns=rule.window_ns // 10)
        table = table.replace_rule(rule.id, rate=rate, block_ns=block_ns)
    return table


Balance = Callable[[Subject, int], int]
"""Chooses a node for the request of a number."""


class Balanced:
    """Limiters side by side, of which each request meets one."""

    def __init__(self, nodes: list[Limiter], balance: Balance) -> None:
        self._nodes = nodes
        self._balance = balance
        self._number = 0

    def decide_with_status(
        self, now_ns: int, subject: Subject
    ) -> tuple[Decision, RateLimitStatus | None]:
        """Let the next request's node decide."""
        node = self._nodes[self._balance(subject, self._number) % len(self._nodes)]
        self._number += 1
        return node.decide_with_status(now_ns, subject)


def nodes_of(count: int, balance: Balance) -> Callable[..., Engine]:
    """Return what makes an engine that counts on several nodes."""

    def make(**options: Any) -> Engine:
        engine = Engine(**options)
        limits = engine.profile.limits
        origin_ns = engine.limiter.origin_ns
        nodes = [
            Limiter(engine.tables, limits, origin_ns=origin_ns, is_bounded=True)
            for _ in range(count)
        ]
        engine.limiter = Balanced(nodes, balance)  # type: ignore[assignment] # reason: a balancer
        return engine

    return make


def in_turn(_: Subject, number: int) -> int:
    return number


def by_address(subject: Subject, _: int) -> int:
    return int(subject.ip.rpartition(".")[2])


def at_random(_: Subject, number: int) -> int:
    return random.Random(number).getrandbits(30)
