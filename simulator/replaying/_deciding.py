"""Arrivals in, decisions out, under SimPy: the limits alone, or the whole engine.

Both take the columns of `Arrivals` and give the columns of `Decisions`, so that a pass over arrays
can stand in their place. The order of decisions is the order of the rows: one SimPy process feeds
them, and requests at one instant are decided in the log's order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

import numpy as np
import numpy.typing as npt
import simpy

from engine.limits import Limiter, LimitTable, Subject
from engine.messages import Decision, Outcome
from engine.profile import Profile
from simulator.replaying._arrivals import Arrivals, Party

__all__ = ["Decisions", "Fidelity", "Progress", "decide", "limit_subject"]

Fidelity: TypeAlias = Literal["engine", "limits", "compiled"]
Progress: TypeAlias = Callable[[int], None]
"""Told now and then how many rows are decided."""

_TELL_EVERY: Final = 1 << 12
_NO_STATUS: Final = -1


@dataclass(slots=True)
class Decisions:
    """What was decided, a row an arrival.

    verdict: numbers into `verdicts` (outcome and reported rule). wait_ns: the delay imposed, or
    the exact time until admissible. latency_ns: from arrival to answer. status: -1 where no body
    was run. shadow: how many each shadow rule would have refused.
    """

    verdict: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.int64]
    status: npt.NDArray[np.int64]
    verdicts: list[tuple[Outcome, str | None]] = field(default_factory=lambda: [("admitted", None)])
    shadow: dict[str, int] = field(default_factory=dict)

    @classmethod
    def empty(cls, rows: int) -> Decisions:
        """Return `rows` rows that are still to be decided."""
        verdict, wait_ns, latency_ns = (np.zeros(rows, dtype=np.int64) for _ in range(3))
        return cls(verdict, wait_ns, latency_ns, np.full(rows, _NO_STATUS, dtype=np.int64))

    def put(self, row: int, decision: Decision) -> None:
        """Write down one decision."""
        if decision.shadow:
            for rule in decision.shadow:
                self.shadow[rule] = self.shadow.get(rule, 0) + 1
        if decision.outcome == "admitted":
            return
        pair = (decision.outcome, decision.rule)
        if pair not in self.verdicts:
            self.verdicts.append(pair)
        self.verdict[row] = self.verdicts.index(pair)
        self.wait_ns[row] = decision.wait_ns
        if decision.outcome == "delayed":
            self.latency_ns[row] = decision.wait_ns

    @property
    def passed(self) -> npt.NDArray[np.bool_]:
        """Row by row, whether the request was let in, at once or delayed."""
        good = np.array([outcome in {"admitted", "delayed"} for outcome, _ in self.verdicts])
        return np.asarray(good[self.verdict])


def decide(
    arrivals: Arrivals,
    limits: LimitTable,
    profile: Profile,
    *,
    fidelity: Fidelity = "limits",
    seed: int = 0,
    progress: Progress | None = None,
) -> Decisions:
    """Put every arrival to the limits, in order."""
    if fidelity == "compiled":
        from simulator.replaying._batch import decide_at_once  # noqa: PLC0415 # reason: numba loads where it is asked for

        return decide_at_once(arrivals, limits, profile, progress)
    environment = simpy.Environment(initial_time=0)
    decisions = Decisions.empty(len(arrivals))
    if fidelity == "engine":
        from simulator.replaying._engine_asking import ask_engine  # noqa: PLC0415 # reason: loaded where it is asked for

        ask = ask_engine(environment, arrivals, limits, profile, decisions, seed)
    else:
        ask = _ask_limiter(arrivals, limits, profile, decisions)
    environment.process(_feed(environment, arrivals, ask, progress))
    environment.run()
    return decisions


def _feed(
    environment: simpy.Environment,
    arrivals: Arrivals,
    ask: Callable[[int, int, int], None],
    progress: Progress | None,
) -> Generator[simpy.Event, None, None]:
    now_ns = 0
    rows = zip(arrivals.t_ns.tolist(), arrivals.party.tolist(), strict=True)
    for row, (at_ns, party) in enumerate(rows):
        if at_ns > now_ns:
            yield environment.timeout(at_ns - now_ns)
            now_ns = at_ns
        ask(row, now_ns, party)
        if progress is not None and not row % _TELL_EVERY:
            progress(row)


def _ask_limiter(
    arrivals: Arrivals, limits: LimitTable, profile: Profile, decisions: Decisions
) -> Callable[[int, int, int], None]:
    limiter = Limiter({"Default": limits}, profile.limits)
    subjects = [limit_subject(party) for party in arrivals.parties]

    def ask(row: int, now_ns: int, party: int) -> None:
        decision = limiter.decide(now_ns, subjects[party])
        if decision.outcome != "admitted" or decision.shadow:
            decisions.put(row, decision)

    return ask


def limit_subject(party: Party) -> Subject:
    """Return a party as the limits see it."""
    return Subject(
        party.method,
        party.path,
        party.ip,
        key_id=party.key,
        tenant_kind=party.tenant_kind,
        application_kind=party.application_kind,
        legacy=party.legacy,
    )
