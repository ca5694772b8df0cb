"""How often our intervals and Student's t hold the true mean, and how wide they are.

Not a measure of speed: sets of runs are drawn from the cases of the coverage tests, whose means are
known, and each set gets both intervals. 95 % is what both promise; a width is a mean over the sets.
A t interval that misses too often is narrow for nothing.

Then searches for a capacity whose border is known: wrong in at most 5 % is what they promise.
"""

import math
from typing import Final

import numpy as np
from rich.console import Console
from rich.table import Table
from scipy import stats

from simulator.intervals import CONFIDENCE, interval_of
from tests.simulator.intervals.test_coverage import CASES, Case, wrong_and_decided

_SETS: Final = 200
_BIG_SETS: Final = 1_000
_SEARCHES: Final = 20
_BIG_SEARCHES: Final = 1_000
_SEED: Final = 7


def _line(case: Case, sets: int) -> tuple[str, ...]:
    """Return a case's name, runs and method, coverage and mean width of ours and of Student's t."""
    values = case.draw(np.random.default_rng(_SEED), (sets, case.runs))
    ours = [interval_of(each, case.metric, difference=case.difference) for each in values.tolist()]
    # A set whose values are all alike has an interval of the range alone, without an upper end.
    widths = [each.high - each.low for each in ours if math.isfinite(each.high - each.low)]
    held = sum(each.low <= case.mean <= each.high for each in ours) / sets
    quantile = float(stats.t.ppf((1 + CONFIDENCE) / 2, case.runs - 1))
    half = quantile * values.std(axis=1, ddof=1) / math.sqrt(case.runs)
    held_by_t = float((np.abs(values.mean(axis=1) - case.mean) <= half).mean())
    return (
        case.name,
        str(case.runs),
        ours[0].method,
        f"{held:.1%}",
        f"{np.mean(widths):.3g}",
        f"{held_by_t:.1%}",
        f"{2 * half.mean():.3g}",
    )


def main(*, big: bool) -> None:
    """Print a line a case; with `big`, of a thousand sets instead of two hundred."""
    sets = _BIG_SETS if big else _SETS
    error = 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / sets)
    table = Table(title=f"{sets} sets a case, seed {_SEED}; coverage is known to ± {error:.1%}")
    table.add_column("case", no_wrap=True)
    for name in ("runs", "method", "held", "width", "held by t", "width of t"):
        table.add_column(name, justify="right")
    for case in CASES:
        table.add_row(*_line(case, sets))
    Console().print(table)
    searches = _BIG_SEARCHES if big else _SEARCHES
    for name, is_sparse in (("a share that varies", False), ("all or nothing", True)):
        wrong, decided = wrong_and_decided(searches, is_sparse=is_sparse)
        told = f"{wrong:.1%} wrong, {decided:.1%} decided on both sides"
        print(f"{searches} searches, {name}: {told}")
