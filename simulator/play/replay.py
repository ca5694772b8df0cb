"""Arrivals in, decisions out, under SimPy: the limits alone, or the whole engine.

Both take the blocks of `Arrivals` and give blocks of `Decisions`, so that a pass over arrays can
replace them. Decisions are in the order of the rows: one SimPy process feeds them, and requests at
one instant are decided in the log's order. A block is yielded when all of its rows are answered, so
memory grows with the requests in flight, not with the length of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt
import simpy

from engine.limits import Limiter, LimitTable, Subject
from engine.messages import Decision, Outcome
from engine.profile import Profile
from simulator.logs.arrivals import BLOCK_ROWS, Arrivals, Block
from simulator.logs.parties import Party
from simulator.rows.tally import clauses_of

__all__ = [
    "FIDELITIES",
    "Ask",
    "Decisions",
    "Fidelity",
    "Progress",
    "Told",
    "decide",
    "limit_subject",
]

Fidelity: TypeAlias = Literal["engine", "limits", "compiled"]
FIDELITIES: Final[tuple[Fidelity, ...]] = get_args(Fidelity)
Progress: TypeAlias = Callable[[int], None]
"""Called from time to time with the number of decided rows."""

_TELL_EVERY: Final = 1 << 12
_NO_STATUS: Final = -1


@dataclass(slots=True)
class Told:
    """What one pass over the arrivals returns besides its rows; grows during the pass.

    verdicts: outcome and reported rule, as rows number them. shadow: how many each clause in
    shadow would have refused so far.
    """

    verdicts: list[tuple[Outcome, str | None]] = field(default_factory=lambda: [("admitted", None)])
    shadow: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class Decisions:
    """What was decided about a block of arrivals, a row an arrival.

    verdict: numbers into `told.verdicts`. wait_ns: the delay imposed, or the exact time until
    admissible. latency_ns: from arrival to answer. status: -1 where no body was run. unanswered:
    how many rows are still under way.
    """

    block: Block
    told: Told
    verdict: npt.NDArray[np.int64]
    wait_ns: npt.NDArray[np.int64]
    latency_ns: npt.NDArray[np.int64]
    status: npt.NDArray[np.int64]
    unanswered: int = 0

    @classmethod
    def empty(cls, block: Block, told: Told) -> Decisions:
        """Return the rows of a block that is still to be decided."""
        verdict, wait_ns, latency_ns = (np.zeros(len(block), dtype=np.int64) for _ in range(3))
        status = np.full(len(block), _NO_STATUS, dtype=np.int64)
        return cls(block, told, verdict, wait_ns, latency_ns, status)

    def __len__(self) -> int:
        return len(self.block)

    def put(self, row: int, decision: Decision) -> None:
        """Write down one decision."""
        if decision.shadow:
            shadow = self.told.shadow
            for clause in clauses_of(decision.shadow):
                shadow[clause] = shadow.get(clause, 0) + 1
        if decision.outcome == "admitted":
            return
        verdicts = self.told.verdicts
        pair = (decision.outcome, decision.rule)
        if pair not in verdicts:
            verdicts.append(pair)
        self.verdict[row] = verdicts.index(pair)
        self.wait_ns[row] = decision.wait_ns
        if decision.outcome == "delayed":
            self.latency_ns[row] = decision.wait_ns

    @property
    def passed(self) -> npt.NDArray[np.bool_]:
        """Row by row, whether the request was let in, at once or delayed."""
        verdicts = self.told.verdicts
        good = np.array([outcome in {"admitted", "delayed"} for outcome, _ in verdicts])
        return np.asarray(good[self.verdict])


Ask: TypeAlias = Callable[[Decisions, int, int, int], None]
"""Decides about a row of a block at an instant, by a party, and writes it down."""


def decide(
    arrivals: Arrivals,
    limits: LimitTable,
    profile: Profile,
    *,
    fidelity: Fidelity = "limits",
    seed: int = 0,
    progress: Progress | None = None,
    block_rows: int = BLOCK_ROWS,
) -> Iterator[Decisions]:
    """Put every arrival to the limits, in order; yield what is decided, block by block.

    The size of the blocks has no effect on the decisions.
    """
    if fidelity == "compiled":
        from simulator.play.replay_compiled import decide_at_once  # noqa: PLC0415 # reason: numba loads where it is asked for

        return decide_at_once(arrivals, limits, profile, progress, block_rows)
    return _decide_under_simpy(arrivals, limits, profile, fidelity, seed, progress, block_rows)


def _decide_under_simpy(
    arrivals: Arrivals,
    limits: LimitTable,
    profile: Profile,
    fidelity: Fidelity,
    seed: int,
    progress: Progress | None,
    block_rows: int,
) -> Iterator[Decisions]:
    environment = simpy.Environment(initial_time=0)
    if fidelity == "engine":
        from simulator.play.replay_engine import ask_engine  # noqa: PLC0415 # reason: loaded where it is asked for

        ask = ask_engine(environment, arrivals, limits, profile, seed)
    else:
        ask = _ask_limiter(arrivals, limits, profile)
    fed: deque[Decisions] = deque()
    blocks = arrivals.blocks(block_rows)
    environment.process(_feed(environment, blocks, ask, fed, progress))
    while environment.peek() != float("inf"):
        environment.step()
        while fed and not fed[0].unanswered:
            yield fed.popleft()
    assert not fed, "every row is answered before the end"


def _feed(
    environment: simpy.Environment,
    blocks: Iterator[Block],
    ask: Ask,
    fed: deque[Decisions],
    progress: Progress | None,
) -> Generator[simpy.Event, None, None]:
    now_ns = number = 0
    told = Told()
    for block in blocks:
        decisions = Decisions.empty(block, told)
        rows = zip(block.t_ns.tolist(), block.party.tolist(), strict=True)
        for row, (at_ns, party) in enumerate(rows):
            if at_ns > now_ns:
                yield environment.timeout(at_ns - now_ns)
                now_ns = at_ns
            ask(decisions, row, now_ns, party)
            if progress is not None and not number % _TELL_EVERY:
                progress(number)
            number += 1
        fed.append(decisions)


def _ask_limiter(arrivals: Arrivals, limits: LimitTable, profile: Profile) -> Ask:
    limiter = Limiter({"Default": limits}, profile.limits)
    subjects = [limit_subject(party) for party in arrivals.parties]

    def ask(decisions: Decisions, row: int, now_ns: int, party: int) -> None:
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
