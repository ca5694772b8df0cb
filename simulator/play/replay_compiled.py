"""Arrivals in, decisions out, in one compiled pass: no SimPy, no object a request.

Parties are numbered once (`Arrivals.parties`); each row is then a look-up in arrays and a decision
of the compiled limiter, which decides as the interpreted one does. Its counters are kept between
blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from engine.limits import LimitTable
from engine.limits.compiled import Columns, CompiledLimiter
from engine.profile import Profile
from simulator.logs.arrivals import Arrivals
from simulator.play.decisions import Decisions, Progress, Told, limit_subject
from simulator.progress import tell_line

__all__ = ["decide_at_once"]


def decide_at_once(
    arrivals: Arrivals,
    limits: LimitTable,
    profile: Profile,
    progress: Progress | None,
    block_rows: int,
) -> Iterator[Decisions]:
    """Put every arrival to the limits, in order. Raises `InputError` as `CompiledLimiter` does."""
    limiter = CompiledLimiter({"Default": limits}, profile.limits, tell=tell_line)
    columns = _numbers(arrivals, limiter)
    told = Told()
    numbers: dict[int, int] = {0: 0}
    done = 0
    for block in arrivals.blocks(block_rows):
        kind, key, ip = columns[:, block.party]
        decided = limiter.decide(Columns(block.t_ns, kind, key, ip))
        found = decided.verdicts()
        for number, verdict in found.items():
            if number not in numbers:
                numbers[number] = len(told.verdicts)
                told.verdicts.append(verdict)
        table = np.zeros(max(found, default=0) + 1, dtype=np.int64)
        for number in found:
            table[number] = numbers[number]
        decisions = Decisions.empty(block, told)
        decisions.verdict[:] = table[decided.verdict]
        decisions.wait_ns[:] = decided.wait_ns
        decisions.latency_ns[:] = np.where(decided.admitted, decided.wait_ns, 0)
        told.shadow.update(limiter.shadow_requests())
        done += len(block)
        if progress is not None:
            progress(done)
        yield decisions


def _numbers(arrivals: Arrivals, limiter: CompiledLimiter) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each party's kind, key and address as numbers."""
    parties = arrivals.parties
    number, one_of_each = parties.kinds()
    kinds = np.array([limiter.kind(limit_subject(who)) for who in one_of_each], dtype=np.int64)
    return np.array([kinds[number], parties.key.codes, parties.ip.codes], dtype=np.int64)
