"""Arrivals in, decisions out, under SimPy: the limits alone, or the whole engine.

One SimPy process feeds the rows in their order; requests at one instant are decided in the log's
order. A block is yielded when all of its rows are answered, so memory grows with the requests in
flight, not with the length of the log.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterator
from typing import Final

import simpy

from engine.limits import Limiter, LimitTable
from engine.profile import Profile
from simulator.logs.arrivals import BLOCK_ROWS, Arrivals, Block
from simulator.play.decisions import Ask, Decisions, Fidelity, Progress, Told, limit_subject

__all__ = ["decide"]

_TELL_EVERY: Final = 1 << 12


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
