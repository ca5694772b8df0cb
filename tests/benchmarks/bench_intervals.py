"""How often intervals hold the true value, and how wide they are.

Not a measure of speed: sets of runs are drawn from pools whose value is known, thirteen kinds of
them, and each set gets its interval. 95 % is promised; the ideal width is that of the true variance
of the same estimates. An A/A comparison asks how often a difference is sure where there is none.

Then searches for a capacity whose border is known: wrong in at most 5 % is what they promise.
"""

import math
from typing import Final

from rich.console import Console
from rich.table import Table

from simulator.intervals import CONFIDENCE
from tests.simulator.intervals.pools import KINDS, coverage_of, false_alarms
from tests.simulator.intervals.test_coverage import wrong_and_decided

_REPETITIONS: Final = 500
_BIG_REPETITIONS: Final = 2_000
_SEARCHES: Final = 20
_BIG_SEARCHES: Final = 1_000
_LEAST_COVERAGE: Final = 0.92
_MOST_COVERAGE: Final = 0.98
_MOST_ALARMS: Final = 0.07
_SEED: Final = 7


def main(*, big: bool) -> None:
    """Print a line per kind; with `big`, of two thousand repetitions instead of five hundred."""
    repetitions = _BIG_REPETITIONS if big else _REPETITIONS
    error = 2 * math.sqrt(CONFIDENCE * (1 - CONFIDENCE) / repetitions)
    title = f"{repetitions} sets a kind, seed {_SEED}; coverage is known to ± {error:.1%}"
    table = Table(title=title)
    table.add_column("kind", no_wrap=True)
    for name in ("runs", "method", "held", "width / ideal", "A/A alarms", "in bounds"):
        table.add_column(name, justify="right")
    is_fine = True
    for kind in KINDS:
        found = coverage_of(kind, repetitions, _SEED)
        fine = _LEAST_COVERAGE <= found.held <= _MOST_COVERAGE and found.width <= kind.width
        alarms = "–"
        if kind.form == "share" and kind.runs >= 20:
            share = false_alarms(kind, repetitions, _SEED)
            alarms = f"{share:.1%}"
            fine = fine and share <= _MOST_ALARMS
        is_fine = is_fine and fine
        table.add_row(
            kind.name,
            f"{found.runs:.0f}",
            found.method,
            f"{found.held:.1%}",
            f"{found.width:.2f}",
            alarms,
            "yes" if fine else "NO",
        )
    Console(width=100).print(table)
    searches = _BIG_SEARCHES if big else _SEARCHES
    for name, is_sparse in (("a share that varies", False), ("all or nothing", True)):
        wrong, decided = wrong_and_decided(searches, is_sparse=is_sparse)
        text = f"{wrong:.1%} wrong, {decided:.1%} decided on both sides"
        print(f"{searches} searches, {name}: {text}")
    if not is_fine:
        raise SystemExit("some intervals miss the coverage or the width that they promise")
