"""Output that several commands share: the console, metrics, intervals, a precision."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from simulator.views.text import needed_text, number_text

if TYPE_CHECKING:
    from rich.console import Console

    from simulator.intervals import Interval

_PIPE_COLUMNS: Final = 140


def console() -> Console:
    """Return the console for standard output; wide if that is not a terminal."""
    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else _PIPE_COLUMNS)


def metric_text(metric: str, value: float | None) -> str:
    """Return a metric's value as readable text; durations in seconds."""
    from simulator.scenario import METRICS

    if value is None or not math.isfinite(value):
        return "–"
    base = METRICS.get(metric.partition("{")[0])
    if base is not None and base.is_duration:
        return f"{number_text(value / 1e9)} s"
    return number_text(value, 6)


def interval_text(interval: Interval) -> str:
    """Return an interval in words."""
    if interval.runs == 0:
        return "no value"
    runs = "1 run" if interval.runs == 1 else f"{interval.runs} runs"
    if interval.method == "exact":
        return number_text(interval.mean, 6)
    mean, low, high = map(number_text, interval[:3])
    return f"{mean}, from {low} to {high}, {runs}"


def print_precision(found: Mapping[str, Any] | None, count: int) -> None:
    """Print whether the precision was reached, and if not, how many runs would be enough."""
    if found is None:
        return
    if found["reached"]:
        print(f"precision: every share is known to ± {found['asked']:g} after {count} runs")
    else:
        print(
            f"precision: ± {found['asked']:g} is not reached after {count} runs"
            f"{needed_text(found['needed'])}"
        )
