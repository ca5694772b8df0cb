"""What is decided about a log's arrivals, block by block, whichever way decides.

Every way takes the blocks of `Arrivals` and gives blocks of `Decisions`, in the order of the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias, get_args

import numpy as np
import numpy.typing as npt

from engine.limits import Subject
from engine.messages import Decision, Outcome
from simulator.logs.arrivals import Block
from simulator.logs.parties import Party
from simulator.rows.tally import clauses_of

__all__ = [
    "FIDELITIES",
    "Ask",
    "Decisions",
    "Fidelity",
    "Progress",
    "Told",
    "limit_subject",
]

Fidelity: TypeAlias = Literal["engine", "limits", "compiled"]
FIDELITIES: Final[tuple[Fidelity, ...]] = get_args(Fidelity)
Progress: TypeAlias = Callable[[int], None]
"""Called from time to time with the number of decided rows."""

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
