"""Arrivals in, decisions out, in one compiled pass: no SimPy, no object a request.

Who asks for what is numbered once (`Arrivals.parties`); each row is then a look-up in arrays and a
decision of the compiled limiter, which decides as the interpreted one does.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from engine.limits import LimitTable
from engine.limits.compiled import Columns, CompiledLimiter
from engine.profile import Profile
from simulator.replaying._arrivals import Arrivals
from simulator.replaying._deciding import Decisions, Progress, limit_subject

__all__ = ["decide_at_once"]

_PIECE_ROWS: Final = 1 << 20


def decide_at_once(
    arrivals: Arrivals, limits: LimitTable, profile: Profile, progress: Progress | None = None
) -> Decisions:
    """Put every arrival to the limits, in order. Raises `InputError` as `CompiledLimiter` does."""
    limiter = CompiledLimiter({"Default": limits}, profile.limits, tell=_tell)
    columns = _numbers(arrivals, limiter)
    decisions = Decisions.empty(len(arrivals))
    numbers: dict[int, int] = {0: 0}
    for first in range(0, len(arrivals), _PIECE_ROWS):
        rows = slice(first, first + _PIECE_ROWS)
        kind, key, ip = columns[:, arrivals.party[rows]]
        decided = limiter.decide(Columns(arrivals.t_ns[rows], kind, key, ip))
        found = decided.verdicts()
        for number, verdict in found.items():
            if number not in numbers:
                decisions.verdicts.append(verdict)
                numbers[number] = len(decisions.verdicts) - 1
        table = np.zeros(max(found, default=0) + 1, dtype=np.int64)
        for number in found:
            table[number] = numbers[number]
        decisions.verdict[rows] = table[decided.verdict]
        decisions.wait_ns[rows] = decided.wait_ns
        decisions.latency_ns[rows] = np.where(decided.admitted, decided.wait_ns, 0)
        if progress is not None:
            progress(min(first + _PIECE_ROWS, len(arrivals)))
    decisions.shadow.update(limiter.shadow_counts())
    return decisions


def _numbers(arrivals: Arrivals, limiter: CompiledLimiter) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return each party's kind, key and address as numbers."""
    keys: dict[str, int] = {}
    ips: dict[str, int] = {}
    rows = [
        (
            limiter.kind(limit_subject(who)),
            -1 if who.key is None else keys.setdefault(who.key, len(keys)),
            ips.setdefault(who.ip, len(ips)),
        )
        for who in arrivals.parties
    ]
    return np.ascontiguousarray(np.array(rows, dtype=np.int64).reshape(-1, 3).T)


def _tell(text: str) -> None:
    print(f"simulator: {text}", file=sys.stderr, flush=True)  # noqa: T201 # reason: silence would look like a hang
