"""Which form of traffic refuses as the log does: parametric arrivals, or sessions of the log.

Log and scenario are put through the log's limits and through two other tables: all rates multiplied
by one factor, chosen so that they refuse about 5 % and 20 % of the log's requests. The parametric
form is kept where its refused share differs from the log's by at most a tenth under each table: it
is short, and its parameters mean something. Elsewhere the closer form is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from engine.files import Rate
from engine.limits import LimitTable
from simulator.scenario.model import changed

FACTORS: Final = tuple(Fraction(2) ** power for power in (*range(4), *range(-1, -9, -1)))
AIMED_SHARES: Final = (0.05, 0.2)
TOLERANCE: Final = 0.1
"""The relative difference of refused shares up to which a form refuses as the log does."""
NEGLIGIBLE_SHARE: Final = 0.002
"""Refused shares below this are equal to each other."""


@dataclass(frozen=True, slots=True)
class RefusedShare:
    """The refused share of log and scenario under a table. factor: of its rates, to the log's."""

    factor: Fraction
    log: float
    scenario: float

    @property
    def difference(self) -> float:
        """The relative difference of the scenario's share to the log's."""
        return abs(self.scenario - self.log) / max(self.log, NEGLIGIBLE_SHARE)

    @property
    def agrees(self) -> bool:
        """Whether the scenario refuses as the log does."""
        both = max(self.log, self.scenario)
        return both < NEGLIGIBLE_SHARE or self.difference <= TOLERANCE


def scaled(table: LimitTable, factor: Fraction) -> LimitTable:
    """Return a table with every rate multiplied, at least 1 request.

    >>> str(scaled(LimitTable.default(), Fraction(1, 2))["LIM-PUBLIC"].rate)
    '25/1m'
    """

    def multiplied(rate: Rate) -> Rate:
        return Rate(max(1, math.floor(rate.limit_requests * factor)), rate.window_ns)

    return LimitTable(tuple(changed(rule, Rate, multiplied) for rule in table))


def other_factors(share_under: Callable[[Fraction], float]) -> list[Fraction]:
    """Return two factors under which the log's refused share is nearest to the aimed shares.

    share_under: returns the log's refused share under a factor.
    """
    shares = dict(_shares(share_under))
    factors: list[Fraction] = []
    for aimed in AIMED_SHARES:
        left = [factor for factor in shares if factor != 1 and factor not in factors]
        factors.append(min(left, key=lambda factor: abs(math.log((shares[factor] + 1e-4) / aimed))))
    return sorted(factors, reverse=True)


def _shares(share_under: Callable[[Fraction], float]) -> Iterator[tuple[Fraction, float]]:
    """Yield the log's refused share from the loosest table on, until most is refused."""
    for factor in sorted(FACTORS, reverse=True):
        share = share_under(factor)
        yield factor, share
        if share > 2 * max(AIMED_SHARES) and factor < 1:
            return


def distance(shares: list[RefusedShare]) -> float:
    """Return the largest relative difference under the tables."""
    return max(share.difference if not share.agrees else 0.0 for share in shares)


def text_of(share: RefusedShare) -> str:
    """Return one share in words.

    >>> text_of(RefusedShare(Fraction(1, 2), 0.19, 0.1))
    'at 1/2 of the rates the log loses 19.0 %, the scenario 10.0 %'
    """
    rates = "under its limits" if share.factor == 1 else f"at {share.factor} of the rates"
    if share.factor > 1:
        rates = f"at {share.factor} times the rates"
    return f"{rates} the log loses {share.log:.1%}, the scenario {share.scenario:.1%}".replace(
        "%", " %"
    )
