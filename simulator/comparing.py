"""Comparison of two runs of the same or of two scenarios: what differs, and how surely.

Where both folders hold replications, the seeds that they have in common are paired: the draws are
the same, so what differs is due to the scenario. Where they do not, the two runs are cut into the
same slices of time and the slices are paired; neighbouring slices are not independent, so such an
interval is a little too narrow, and says so.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import pandas as pd

from engine.errors import InputError
from simulator.arguments import instance, takes
from simulator.replicating import NONE_IS_0, Interval, interval_of, line_of
from simulator.results import Result
from simulator.results.choosing import refuse_missing
from simulator.scenario import METRICS

__all__ = ["Comparison", "Difference", "compare"]

_SLICES: Final = 20
_RUN: Final = instance("a Result, or the path of a run's folder", Result, str, Path)


@dataclass(frozen=True, slots=True)
class Difference:
    """One metric in A and in B, and the interval of B − A; its ends are NaN where unknown."""

    metric: str
    a: float
    b: float
    change: Interval

    @property
    def is_sure(self) -> bool:
        """Whether the interval leaves no change out."""
        return self.change.low > 0 or self.change.high < 0


@dataclass(frozen=True, slots=True)
class Comparison:
    """What `compare` found. paired: `seeds`, `slices` of time, or None where nothing pairs."""

    names: tuple[str, str]
    same_rows: bool
    paired: Literal["seeds", "slices"] | None
    pairs: int
    differences: tuple[Difference, ...]

    @property
    def frame(self) -> pd.DataFrame:
        """A line a metric: a, b, change, low, high, sure."""
        return pd.DataFrame(
            [
                (d.metric, d.a, d.b, d.change.mean, d.change.low, d.change.high, d.is_sure)
                for d in self.differences
            ],
            columns=["metric", "a", "b", "change", "low", "high", "sure"],
        ).set_index("metric")

    def _repr_html_(self) -> str:
        return f"<p>{self.names[0]} → {self.names[1]}, {self.said}</p>" + self.frame.to_html()

    @property
    def said(self) -> str:
        """How the pairs were made, in words."""
        if self.same_rows:
            return "the same rows" if self.paired else "the same rows, but not the same warm-up"
        if self.paired == "seeds":
            return f"paired by seed ({self.pairs} pairs)"
        if self.paired == "slices":
            return f"paired by time ({self.pairs} slices; intervals a little too narrow)"
        return "not paired: the runs differ in length or warm-up, so there are no intervals"


@takes(a=_RUN, b=_RUN)
def compare(a: Result | str | Path, b: Result | str | Path) -> Comparison:
    """Compare two results, or two runs' folders; metrics that only one log tells are left out.

    Raises `InputError` where a folder holds none, and where a log lacks time or outcome.
    """
    results = tuple(each if isinstance(each, Result) else Result.load(each) for each in (a, b))
    one, other = results
    names = (_name(a, one), _name(b, other))
    same = one.summary["sha256"] == other.summary["sha256"]
    lines = _replicated(one), _replicated(other)
    seeds = sorted(lines[0].keys() & lines[1].keys())
    if len(seeds) > 1:
        pairs = [(lines[0][seed], lines[1][seed]) for seed in seeds]
        return Comparison(names, same, "seeds", len(pairs), _differences(pairs))
    if same and one.summary["warm_up_ns"] == other.summary["warm_up_ns"]:
        one = other = max(results, key=lambda result: len(result.columns))
    for name, result in zip(names, (one, other), strict=True):
        refuse_missing(f"{name}, to be compared,", ("t_ns", "outcome"), result.columns)
    whole = _told(_differences([(line_of(one), line_of(other))]), results)
    if _span_ns(one) != _span_ns(other):
        return Comparison(names, same, None, 1, whole)
    sliced = _slices(one), _slices(other)
    found = []
    for change in whole:
        if change.metric in METRICS and change.metric not in _OF_THE_WHOLE:
            column = METRICS[change.metric].column
            steps = (sliced[1][column] - sliced[0][column]).astype(float)
            scale = len(steps) if change.metric in _ADD_UP else 1
            found.append(_placed(change, interval_of(steps.tolist()), scale))
        else:
            found.append(change)
    return Comparison(names, same, "slices", _SLICES, tuple(found))


def _told(changes: tuple[Difference, ...], results: tuple[Result, ...]) -> tuple[Difference, ...]:
    """Leave out what one of the logs does not tell, where one keeps fewer columns."""
    if not any("columns" in result.summary for result in results):
        return changes
    return tuple(change for change in changes if not math.isnan(change.change.mean))


_ADD_UP: Final = frozenset({"offered", "admitted", "delayed", "refused", "blocked", "blocked_time"})
"""What is the sum of its slices, and 0 in one without rows."""

_OF_THE_WHOLE: Final = frozenset({"first_refusal"})
"""What says nothing in a slice."""


def _span_ns(result: Result) -> tuple[int, int]:
    return result.summary["warm_up_ns"], result.summary["duration_ns"]


def _placed(change: Difference, interval: Interval, scale: int) -> Difference:
    """Put a slice's interval around the whole run's change."""
    half = (interval.high - interval.low) / 2 * scale
    mean = change.change.mean
    placed = Interval(mean, mean - half, mean + half, interval.values)
    return Difference(change.metric, change.a, change.b, placed)


def _name(given: Result | str | Path, result: Result) -> str:
    if isinstance(given, Result):
        return f"{result.summary['scenario']}-{result.summary['seed']}"
    return str(given)


def _replicated(result: Result) -> dict[int, Mapping[str, float]]:
    found: dict[str, Any] = result.summary.get("replications", {})
    nan = float("nan")
    return {
        run["seed"]: {name: nan if v is None else v for name, v in run["line"].items()}
        for run in found.get("runs", ())
    }


def _differences(
    pairs: list[tuple[Mapping[str, float], Mapping[str, float]]],
) -> tuple[Difference, ...]:
    lines = [line for pair in pairs for line in pair]
    found = []
    for name in dict.fromkeys(name for line in lines for name in line):
        if not name.startswith(NONE_IS_0) and any(name not in line for line in lines):
            continue  # what only one of the scenarios has
        a = [line.get(name, 0.0) for line, _ in pairs]
        b = [line.get(name, 0.0) for _, line in pairs]
        change = interval_of([after - before for before, after in zip(a, b, strict=True)])
        means = (interval_of(a).mean, interval_of(b).mean)
        if not (math.isnan(means[0]) and math.isnan(means[1])):
            found.append(Difference(name, *means, change))
    if not found:
        raise InputError("the two runs have no metric in common; compare runs with requests")
    return tuple(found)


def _slices(result: Result) -> pd.DataFrame:
    start_ns, end_ns = _span_ns(result)
    width_ns = max(1, -(-end_ns // _SLICES))
    frame = result.metrics(by="time", bin=width_ns)
    whole = frame.reindex(range(start_ns // width_ns * width_ns, end_ns, width_ns))
    columns = [METRICS[metric].column for metric in sorted(_ADD_UP)]
    whole[columns] = whole[columns].fillna(0)
    return whole
