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
from simulator.replicating import Interval, interval_of, line_of
from simulator.results import Result
from simulator.scenario import METRICS

__all__ = ["Comparison", "Difference", "compare"]

_SLICES: Final = 20


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
            return "the same rows"
        if self.paired == "seeds":
            return f"paired by seed ({self.pairs} pairs)"
        if self.paired == "slices":
            return f"paired by time ({self.pairs} slices; intervals a little too narrow)"
        return "not paired: the runs differ in length, so there are no intervals"


def compare(a: Result | str | Path, b: Result | str | Path) -> Comparison:
    """Compare two results, or two runs' folders. Raises `InputError` where a folder holds none."""
    results = tuple(each if isinstance(each, Result) else Result.load(each) for each in (a, b))
    one, other = results
    names = (_name(a, one), _name(b, other))
    same = one.summary["sha256"] == other.summary["sha256"]
    lines = _replicated(one), _replicated(other)
    seeds = sorted(lines[0].keys() & lines[1].keys())
    if len(seeds) > 1:
        pairs = [(lines[0][seed], lines[1][seed]) for seed in seeds]
        return Comparison(names, same, "seeds", len(pairs), _differences(pairs))
    whole = (line_of(one), line_of(other))
    if one.summary["duration_ns"] != other.summary["duration_ns"]:
        return Comparison(names, same, None, 1, _differences([whole]))
    sliced = _slices(one), _slices(other)
    found = []
    for change in _differences([whole]):
        if change.metric in METRICS:
            column = METRICS[change.metric].column
            steps = (sliced[1][column] - sliced[0][column]).astype(float)
            interval = interval_of(steps.tolist())
            scale = len(steps) if change.metric in _ADD_UP else 1
            found.append(_placed(change, interval, scale))
    return Comparison(names, same, "slices", _SLICES, tuple(found))


_ADD_UP: Final = frozenset({"offered", "admitted", "delayed", "refused", "blocked"})


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
    names = dict.fromkeys(name for pair in pairs for line in pair for name in line)
    found = []
    for name in names:
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
    start_ns, end_ns = result.summary["warm_up_ns"], result.summary["duration_ns"]
    width_ns = max(1, -(-end_ns // _SLICES))
    frame = result.metrics(by="time", bin=width_ns)
    return frame.reindex(range(start_ns // width_ns * width_ns, end_ns, width_ns))
