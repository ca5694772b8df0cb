"""Metrics of each client group over runs, and the effect of a change, paired by seed.

Advice and the table of policies rest on it: the same seeds play a scenario as it is and changed, so
that their difference is due to the change.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, Literal, TypeAlias

import pandas as pd

from simulator.intervals import CONFIDENCE, Interval, Share, difference_of, pooled
from simulator.rows import Result
from simulator.rows.findings import gather
from simulator.rows.record import PASSED
from simulator.rows.result import share_of
from simulator.scenario import Scenario
from simulator.study.runs import Replicator, RunLine, max_attempts

_SECOND_NS: Final = 1_000_000_000

Observed: TypeAlias = Mapping[str, float]
"""Metric → its value in one run."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A metric in A and in B, and the interval of B − A; its ends are NaN where unknown."""

    metric: str
    a: float
    b: float
    change: Interval

    @property
    def is_sure(self) -> bool:
        """Whether the interval excludes 0, that is, no change."""
        return self.change.low > 0 or self.change.high < 0


def paired(
    metric: str,
    before: Sequence[Observed],
    after: Sequence[Observed],
    *,
    exact: bool = False,
    error: float = 1 - CONFIDENCE,
) -> Difference:
    """Return what a change does to a metric, from runs under the same seeds; NaN is left out.

    exact: the scenario draws nothing at random. error: how often the interval may miss.
    """
    a, b = ([run.get(metric, 0.0) for run in runs] for runs in (before, after))
    exact = exact or before is after
    change = difference_of(a, b, metric, exact=exact, error=error)
    return Difference(metric, pooled(a), pooled(b), change)


Detail: TypeAlias = Literal["pace", "echo", "shut_out_s", "peak_admitted_per_s"]


def observe(
    player: Replicator,
    scenario: Scenario,
    seeds: Sequence[int],
    details: Collection[Detail] = (),
) -> list[Observed]:
    """Play a scenario compiled, under each seed, and return what each run shows of each group.

    Named as in thresholds: offered, refused, refused_share, goodput_per_s, attempts_per_success of
    `{client='GROUP'}`, refused_share of `{client='GROUP',clause='CLAUSE'}`. details, which take
    longer: `pace` (first attempts a second of one client), `echo` (the share that is refused within
    a block's length after a block's end), `shut_out_s` (the longest time that one of its parties
    was told to wait) and `peak_admitted_per_s`, the most attempts admitted within one clock second.
    """
    line = RunLine(partial(_observe, frozenset(details)), "rows" if details else "subjects")
    runs = player.play(scenario, seeds, fidelity="compiled", check=False, line=line)
    return [run.line for run in runs]


def _observe(details: Collection[Detail], result: Result, scenario: Scenario) -> dict[str, float]:
    """Return what a run shows of each group, and of each clause in it."""
    metrics: dict[str, float] = {}
    attempts = max_attempts(scenario)
    span_s = (result.summary["duration_ns"] - result.summary["warm_up_ns"]) / _SECOND_NS
    episode = result.summary["windows"]["episode"] * attempts
    clauses = [row["clause"] for row in result.summary["clauses"] if row["offered"]]
    for row in result.summary["groups"]:
        if not row["offered"]:
            continue
        name, admitted = row["name"], row["admitted"]
        label = f"{{client='{name}'}}"
        metrics |= {f"{metric}{label}": float(row[metric]) for metric in ("offered", "refused")}
        metrics[f"refused_share{label}"] = share_of(result.summary, name, attempts=attempts)
        # The limits alone answer nothing with an error.
        metrics[f"goodput_per_s{label}"] = admitted / span_s
        metrics[f"attempts_per_success{label}"] = (
            row["offered"] / admitted if admitted else math.nan
        )
        for clause in clauses:
            refused = row["clauses"].get(clause, 0)
            metrics[f"refused_share{{client='{name}',clause='{clause}'}}"] = Share(
                [refused], [row["offered"]], episode
            )
    if "pace" in details:
        metrics.update(_paces(result, scenario))
    if "echo" in details:
        metrics.update(_echoes(result))
    if "shut_out_s" in details:
        metrics.update(_shut_out(result))
    if "peak_admitted_per_s" in details:
        metrics["peak_admitted_per_s"] = _peak_admitted_per_s(result)
    return metrics


def _paces(result: Result, scenario: Scenario) -> Iterator[tuple[str, float]]:
    """Yield how many first attempts a second a client of each group made."""
    t_ns, client, attempt = (
        result.table.column(name).to_numpy() for name in ("t_ns", "client", "attempt")
    )
    firsts_of = client[(attempt == 1) & (t_ns >= result.summary["warm_up_ns"])]
    for group in scenario.clients:
        from_ns = max(group.start_ns, result.summary["warm_up_ns"])
        span_s = (scenario.stop_of(group) - from_ns) / _SECOND_NS
        clients = result.groups.get(group.name, range(0))
        firsts = int(((firsts_of >= clients.start) & (firsts_of < clients.stop)).sum())
        if len(clients) and span_s > 0:
            yield f"pace{{client='{group.name}'}}", firsts / len(clients) / span_s


def _peak_admitted_per_s(result: Result) -> float:
    times = result.table.select(["t_ns", "outcome"]).to_pandas()
    passed = times.loc[times["outcome"].isin(PASSED), "t_ns"] // _SECOND_NS
    return float(passed.value_counts().max()) if len(passed) else 0.0


def _shut_out(result: Result) -> Iterator[tuple[str, float]]:
    """Yield the longest time for which a party of each group was told to wait, in seconds."""
    clients = result.table.column("client").to_numpy()
    for group, numbers in result.groups.items():
        rows = result.table.filter((clients >= numbers.start) & (clients < numbers.stop))
        findings = gather(rows.to_batches(), result.summary, bins=1)
        stretches = (
            until_ns - from_ns
            for party in findings.shut_out.values()
            for from_ns, until_ns in party.intervals
        )
        yield f"shut_out_s{{client='{group}'}}", max(stretches, default=0) / _SECOND_NS


def _echoes(result: Result) -> Iterator[tuple[str, float]]:
    """Yield each group's refused share within a block's length after a block's end."""
    names = ["t_ns", "client", "key", "ip", "outcome", "rule", "wait_ns"]
    frame = result.table.select(names).to_pandas()
    blocked = frame[frame["outcome"] == "blocked"]
    if not len(blocked):
        return
    ends = blocked.assign(end_ns=blocked["t_ns"] + blocked["wait_ns"])
    length_ns = ends.groupby("rule", observed=True)["wait_ns"].transform("max")
    ends = ends.assign(until_ns=ends["end_ns"] + length_ns)
    ends = ends.drop_duplicates(["ip", "end_ns"]).sort_values("end_ns")
    rows = frame.sort_values("t_ns")
    after = pd.merge_asof(
        rows,
        ends[["ip", "end_ns", "until_ns"]]
        .rename(columns={"end_ns": "t_ns"})
        .assign(began_ns=lambda table: table["t_ns"]),
        on="t_ns",
        by="ip",
    )
    after = after[after["t_ns"] < after["until_ns"]]
    refused = ~after["outcome"].isin(PASSED)
    for group, clients in result.groups.items():
        of_group = after["client"].isin(clients)
        if of_group.any():
            yield f"echo{{client='{group}'}}", float(refused[of_group].mean())
