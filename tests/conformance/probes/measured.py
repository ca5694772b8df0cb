"""Playing the limit checks against an engine in process, on virtual time."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from conformance.in_process import deploy
from conformance.registry import all_checks
from conformance.running import Options, Run
from conformance.transport import Latency
from conformance.verdicts import Finding, Verdict
from engine import LimitTable, Profile

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

    def says(self, clause: str) -> str:
        """Every sentence about a clause."""
        return "\n".join(one.says for one in self.run.findings if one.clause == clause)


def play(
    *checks: str,
    table: LimitTable | None = None,
    latency: Latency | None = None,
    seed: int = 5,
    engine: Callable[..., Any] | None = None,
    target: dict[str, Any] | None = None,
    **limits: Any,
) -> Measured:
    """Run checks (all probes of limits unless named) against an engine of this table and profile.

    What the engine plays is not told to the suite.
    """
    more: dict[str, Any] = {} if engine is None else {"engine": engine}
    made = deploy(
        profile=Profile().replace(limits=limits),
        limits=table,
        latency=latency,
        **more,
        **(target or {}),
    )
    chosen = tuple(f"limits.{name}" for name in checks) or PROBES
    options = Options(select=CLAUSES, checks=chosen, seed=seed)
    run = Run(made.target, options, transport=made.transport)
    run.execute()
    return Measured(run)


def jittery(seed: int, latency_ms: int, jitter_ms: int) -> Latency:
    """Return a latency model: each way half of a fixed part and of a random one."""
    chance = random.Random(seed)

    def draw() -> tuple[int, int]:
        there = latency_ms * MS_NS // 2 + chance.randrange(jitter_ms * MS_NS // 2 + 1)
        return there, latency_ms * MS_NS // 2 + chance.randrange(jitter_ms * MS_NS // 2 + 1)

    return draw
