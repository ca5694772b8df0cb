"""Replications: the same scenario under several seeds, and what can be said of its metrics then.

Replication r plays seed + r. What is kept of each is a line of metrics; intervals are Student's t
over the lines, at 95 %, so they assume nothing about a run's inside. Runs are spread over the
local cores where that pays.
"""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np

from engine.errors import InputError
from simulator.backends import Fidelity, simulate
from simulator.results import Result
from simulator.results.measuring import measure_condition, subject_of, value_in
from simulator.scenario import METRICS, Scenario, dump, loads
from simulator.spawning import process_pool

__all__ = [
    "CONFIDENCE",
    "NONE_IS_0",
    "Interval",
    "Replication",
    "Replicator",
    "interval_of",
    "intervals",
    "line_of",
    "replication_of",
    "replicator",
]

CONFIDENCE: Final = 0.95
NONE_IS_0: Final = ("refused{clause=", "blocked_time{clause=")
"""Beginnings of the metrics that a run keeps only where there is some: one that lacks it had 0."""
_WORTH_S: Final = 6.0
"""Work that is shorter than this is done before other processes have started."""


class Interval(NamedTuple):
    """A mean, and what it lies between with `CONFIDENCE`; both ends are NaN for a single value.

    values: how many values it is made of.
    """

    mean: float
    low: float
    high: float
    values: int


@dataclass(frozen=True, slots=True)
class Replication:
    """One replication: its seed, the digest of its rows, broken invariants, a line of metrics."""

    seed: int
    sha256: str
    faults: int
    line: dict[str, float]


def interval_of(values: Sequence[float]) -> Interval:
    """Return Student's t interval of the mean of `values`; NaN values are left out.

    >>> interval_of([1.0, 2.0, 3.0]).mean
    2.0
    """
    known = [value for value in values if not math.isnan(value)]
    count = len(known)
    nan = float("nan")
    if count == 0:
        return Interval(nan, nan, nan, 0)
    mean = math.fsum(known) / count
    if count == 1:
        return Interval(mean, nan, nan, 1)
    deviation = float(np.std(known, ddof=1))
    if deviation == 0.0 or max(known) == min(known):
        return Interval(mean, mean, mean, count)
    from scipy import stats  # noqa: PLC0415 # reason: it loads longer than a small run takes

    half = float(stats.t.ppf(0.5 + CONFIDENCE / 2, count - 1)) * deviation / math.sqrt(count)
    return Interval(mean, mean - half, mean + half, count)


def line_of(result: Result, scenario: Scenario | None = None) -> dict[str, float]:
    """Return the metrics of a run that are kept of it, by what a threshold would call them.

    The overall ones, each client group's refused share, what each clause refused and how long it
    blocked, and whatever the scenario's thresholds are about.
    """
    whole = result.metrics()
    line = {name: value_in(whole, name) for name in METRICS}
    grouped = bool(result.groups) and "client" in result.columns
    shares = dict(result.metrics("group")["refused_share"]) if grouped else {}
    for group in result.groups:
        line[f"refused_share{{client='{group}'}}"] = float(shares.get(group, float("nan")))
    for clause in result.summary["clauses"]:
        if clause["offered"]:
            line[f"refused{{clause='{clause['clause']}'}}"] = float(clause["refused"])
            if clause["blocked_ns"]:
                line[f"blocked_time{{clause='{clause['clause']}'}}"] = float(clause["blocked_ns"])
    for threshold in scenario.thresholds if scenario is not None else ():
        line[subject_of(threshold.that)] = measure_condition(result, threshold.that)
    return line


def intervals(replications: Sequence[Replication]) -> dict[str, Interval]:
    """Return metric → interval over replications; one that a replication lacks counts as 0."""
    names = dict.fromkeys(name for each in replications for name in each.line)
    return {
        name: interval_of([each.line.get(name, 0.0) for each in replications]) for name in names
    }


class Replicator:
    """Plays scenarios under many seeds, on all local cores where that pays."""

    def __init__(self, executor: Callable[[], ProcessPoolExecutor]) -> None:
        self._executor = executor

    def play(
        self,
        scenario: Scenario,
        seeds: Sequence[int],
        *,
        fidelity: Fidelity,
        warm_up_ns: int | None = None,
        check: bool = True,
        told: Callable[[int], None] | None = None,
    ) -> list[Replication]:
        """Return one replication a seed, in order. `told` hears how many are done."""
        if not seeds:
            raise InputError("replications = 0 must be at least 1")
        text = dump(scenario, absolute=True)
        jobs = [(text, seed, fidelity, warm_up_ns, check) for seed in seeds]
        if fidelity == "compiled":
            from simulator.backends.compiled import warm_up  # noqa: PLC0415 # reason: numba loads where it is asked for

            # Once and here: workers that find nothing compiled would all compile the same.
            warm_up(lambda line: print(f"simulator: {line}", file=sys.stderr, flush=True))  # noqa: T201 # reason: a minute of silence would look like a hang
        began_s = time.perf_counter()
        done = [_play_one(*jobs[0])]
        if told is not None:
            told(1)
        work_s = (time.perf_counter() - began_s) * (len(jobs) - 1)
        if work_s > _WORTH_S and (os.cpu_count() or 1) > 1:
            # A worker that dies takes its pool with it; what is missing is then played here.
            with suppress(BrokenProcessPool):
                for replication in self._executor().map(_play_one, *zip(*jobs[1:], strict=True)):
                    done.append(replication)
                    if told is not None:
                        told(len(done))
        for job in jobs[len(done) :]:
            done.append(_play_one(*job))
            if told is not None:
                told(len(done))
        return done


@contextmanager
def replicator() -> Iterator[Replicator]:
    """Hand over a replicator; the processes that it may have started end with the block."""
    started: list[ProcessPoolExecutor] = []

    def executor() -> ProcessPoolExecutor:
        if not started:
            started.append(process_pool())
        return started[0]

    try:
        yield Replicator(executor)
    finally:
        for each in started:
            each.shutdown(cancel_futures=True)


def _play_one(
    text: str,
    seed: int,
    fidelity: Fidelity,
    warm_up_ns: int | None,
    check: bool,  # noqa: FBT001 # reason: one tuple a job
) -> Replication:
    scenario = loads(text)
    result = simulate(scenario, seed=seed, fidelity=fidelity, warm_up_ns=warm_up_ns, check=check)
    return replication_of(result, scenario)


def replication_of(result: Result, scenario: Scenario) -> Replication:
    """Return what is kept of a run."""
    return Replication(
        result.summary["seed"],
        result.summary["sha256"],
        result.summary["checks"]["faults"],
        line_of(result, scenario),
    )
