"""Which form of traffic refuses as the log does: parametric arrivals, or sessions of the log.

Log and scenario are put through the log's limits and through two other tables: all rates multiplied
by one factor, chosen so that they refuse about 5 % and 20 % of the log's requests. The parametric
form is kept where its refused share differs from the log's by at most a tenth under each table: it
is short, and its parameters mean something. Elsewhere the closer form is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from fractions import Fraction
from typing import TYPE_CHECKING, Final

from engine.files import Rate
from engine.limits import LimitTable
from simulator.scenario.model import changed

if TYPE_CHECKING:
    from simulator.study.fit.judge import Line

FACTORS: Final = tuple(Fraction(2) ** power for power in (*range(4), *range(-1, -9, -1)))
AIMED_SHARES: Final = (0.05, 0.2)
TOLERANCE: Final = 0.1
"""The relative difference of refused shares up to which a form refuses as the log does."""
NEGLIGIBLE_SHARE: Final = 0.002
"""Refused shares below this are equal to each other."""


def difference(share: Line) -> float:
    """Return the relative difference of the scenario's refused share to the log's; 0 if none."""
    if max(share.log, share.fitted) < NEGLIGIBLE_SHARE:
        return 0.0
    return abs(share.fitted - share.log) / max(share.log, NEGLIGIBLE_SHARE)


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
