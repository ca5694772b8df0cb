"""Columns in and columns out: requests by numbers, and what was decided about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import numpy as np

from engine.limits.compiled.deciding import BLOCKED, DELAYED, REFUSED
from engine.limits.subject import OTHER_PARTS
from engine.messages import Outcome

__all__ = ["Columns", "Decided", "Numbers", "Verdict", "verdict_of"]

Ints: TypeAlias = np.ndarray[Any, np.dtype[np.int64]]
Numbers: TypeAlias = np.ndarray[Any, np.dtype[Any]]
Verdict: TypeAlias = tuple[Outcome, str | None]

_OUTCOMES: Final[dict[int, Outcome]] = {
    DELAYED: "delayed",
    REFUSED: "refused",
    BLOCKED: "blocked",
}


@dataclass(frozen=True, slots=True)
class Columns:
    """Requests in order of time, a row a request.

    t_ns: arrivals, never decreasing. kind: numbers that `CompiledLimiter.kind` gave. key, ip:
    numbers of the API key (−1 = none) and of the address. others: numbers of the other parts of
    requests (`OTHER_PARTS`), a column each, −1 = none; None where no request has any.
    """

    t_ns: Ints
    kind: Numbers
    key: Numbers
    ip: Numbers
    others: Numbers | None = None

    def __post_init__(self) -> None:
        assert all(
            column is None or len(column) == len(self.t_ns)
            for column in (self.kind, self.key, self.ip, self.others)
        ), "columns are of one length"
        assert self.others is None or self.others.shape[1] == len(OTHER_PARTS), "a column a part"

    def __len__(self) -> int:
        return len(self.t_ns)


@dataclass(frozen=True, slots=True)
class Decided:
    """What was decided, a row a request.

    verdict: a number; `verdicts` says which outcome and reported rule it stands for.
    wait_ns: the delay imposed, or the exact time until admissible. refusing: bit i is set where
    the i-th rule in force of the request's kind refuses (`CompiledLimiter.rules`); shadow: the
    same of its rules in shadow that would refuse.
    """

    verdict: Numbers
    wait_ns: Ints
    refusing: Numbers
    shadow: Numbers
    legs: Sequence[str] = field(repr=False)

    def __len__(self) -> int:
        return len(self.verdict)

    @property
    def admitted(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether the request of each row was admitted, at once or delayed."""
        return np.asarray((self.verdict == 0) | (self.verdict & 3 == DELAYED))

    def verdicts(self) -> dict[int, Verdict]:
        """Return what each number among the verdicts stands for."""
        return {int(n): verdict_of(int(n), self.legs) for n in np.unique(self.verdict)}


def verdict_of(number: int, legs: Sequence[str]) -> Verdict:
    """Return the outcome and the reported rule that a verdict's number stands for."""
    if not number:
        return "admitted", None
    return _OUTCOMES[number & 3], legs[(number >> 2) - 1]
