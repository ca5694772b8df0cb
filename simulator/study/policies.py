"""A table of policies: several limit tables and profiles, each played under every scenario.

A policy is a scenario's own limits and profile with a file in place of one of them, or of both. The
same seeds play every policy, so that each difference from the scenario as it stands is paired.
"""

from __future__ import annotations

import html
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any, Final

import pandas as pd

from engine.errors import InputError
from engine.profile import SECOND_NS
from simulator.arguments import (
    FUNCTION,
    ArgumentRule,
    count_option,
    list_of,
    option,
    optional,
    options,
    takes_options,
)
from simulator.intervals import pooled
from simulator.options import SCENARIO, ScenarioLike, resolve
from simulator.play.simulation import SEED, seed_in_force, warm_up
from simulator.progress import TimeLeft, keeps_what_is_known
from simulator.rows import Result
from simulator.rows.findings import gather
from simulator.rows.record import PASSED
from simulator.scenario import Scenario, with_values
from simulator.scenario.model import draws_at_random, needs_bodies
from simulator.study.comparison import Observed, observe, paired
from simulator.study.runs import replicator
from simulator.views.report import study_page, table_html

AS_IT_STANDS: Final = "as it stands"
"""The policy that changes nothing."""
REPLICATIONS: Final = 20
_BETTER: Final[Mapping[str, int]] = {
    "refused_share": -1,
    "goodput_per_s": 1,
    "attempts_per_success": -1,
    "shut_out_s": -1,
}
"""The metrics of each group, and whether a larger value is better."""
_PEAK: Final = "peak_admitted_per_s"
"""What the operator pays: the most attempts admitted within a second, over all groups."""
_FILES: Final = list_of("a list of files' paths", lambda file: isinstance(file, str | Path))
_SCENARIOS: Final = ArgumentRule(
    f"{SCENARIO.words}, or a list of these",
    lambda value: (
        all(map(SCENARIO.holds, value))
        if isinstance(value, list | tuple)
        else SCENARIO.holds(value)
    ),
)


@dataclass(slots=True)
class Policies:
    """What `policies` found.

    frame: one row for each scenario, policy, group and metric: its mean, its mean as the scenario
    stands, and the interval of the difference, paired by seed. best: one row for each scenario and
    policy: whether no other policy is at least as good in everything and better in something
    (non-dominated), including the operator's price. unfinished: why it ended early, or empty.
    """

    runs: int
    unfinished: str = ""
    _lines: list[dict[str, Any]] = field(default_factory=list)
    _prices: dict[tuple[str, str], float] = field(default_factory=dict)

    def add(
        self,
        scenario: Scenario,
        policy: str,
        before: Sequence[Observed],
        after: Sequence[Observed],
        *,
        exact: bool,
    ) -> None:
        """Add what runs of a scenario show under a policy, and as it stands (`before`)."""
        self._prices[scenario.name, policy] = pooled([run[_PEAK] for run in after])
        for group in scenario.clients:
            for metric in _BETTER:
                name = f"{metric}{{client='{group.name}'}}"
                effect = paired(name, before, after, exact=exact)
                self._lines.append(
                    {
                        "scenario": scenario.name,
                        "policy": policy,
                        "group": group.name,
                        "metric": metric,
                        "mean": effect.b,
                        "as_it_stands": effect.a,
                        "low": effect.change.low,
                        "high": effect.change.high,
                        "sure": effect.is_sure,
                    }
                )

    @property
    def frame(self) -> pd.DataFrame:
        """One row for each scenario, policy, group and metric."""
        return pd.DataFrame(self._lines)

    @property
    def best(self) -> pd.DataFrame:
        """One row for each scenario and policy."""
        goods = {key: self._goods(*key) for key in self._prices}
        best = []
        for (scenario, policy), price in self._prices.items():
            dominated = [
                name
                for where, name in goods
                if where == scenario and _dominates(goods[where, name], goods[scenario, policy])
            ]
            best.append(
                {
                    "scenario": scenario,
                    "policy": policy,
                    _PEAK: price,
                    "non_dominated": not dominated,
                    "dominated_by": ", ".join(dominated),
                }
            )
        return pd.DataFrame(best)

    def _goods(self, scenario: str, policy: str) -> list[float]:
        """Return a policy's metrics, signed so that larger is better; an unknown one is worst."""
        worth = [
            -math.inf if math.isnan(line["mean"]) else line["mean"] * _BETTER[line["metric"]]
            for line in self._lines
            if (line["scenario"], line["policy"]) == (scenario, policy)
        ]
        return [*worth, -self._prices[scenario, policy]]

    @property
    def caption(self) -> str:
        """How the table was made, in a line."""
        return (
            f"{self.runs} runs of each policy, paired by seed (one run if nothing is random);"
            " * marks policies that no other one dominates"
        )

    @property
    def table(self) -> pd.DataFrame:
        """One row per scenario, policy and group, one column per metric; `*`: not dominated."""
        if not self._lines:
            return self.frame
        wide = self.frame.pivot_table(
            index=["scenario", "policy", "group"], columns="metric", values="mean", sort=False
        )
        is_best = self.best.set_index(["scenario", "policy"])["non_dominated"]
        marks = ["*" if is_best[key[:2]] else "" for key in wide.index]
        wide.insert(0, "", marks)
        return wide.reset_index().rename_axis(columns=None)

    def _repr_html_(self) -> str:
        text = f"<p>{self.caption}</p>"
        if self.unfinished:
            text += f"<p>Unfinished: {html.escape(self.unfinished)}.</p>"
        return text + table_html(self.table)

    def write_to(self, folder: Path) -> None:
        """Write `policies.html` and the frames as CSV into a folder."""
        self.frame.to_csv(folder / "policies.csv", index=False)
        self.best.to_csv(folder / "non_dominated.csv", index=False)
        differences = table_html(self.frame)
        body = f"<h1>Policies</h1>{self._repr_html_()}<h2>Differences</h2>{differences}"
        (folder / "policies.html").write_text(study_page("Policies", body), "utf-8")


@options
class PolicyOptions:
    """The options of a table of policies."""

    scenarios: ScenarioLike | Sequence[ScenarioLike] = option(
        _SCENARIOS, "a scenario, or several", flag=False
    )
    _: KW_ONLY
    limits: Sequence[str | Path] = option(
        _FILES, "limit tables to run the scenarios under", default=(), nargs="+", metavar="FILE"
    )
    profiles: Sequence[str | Path] = option(
        _FILES,
        "profiles to run the scenarios under",
        default=(),
        name="profile",
        nargs="+",
        metavar="FILE",
    )
    replications: int = count_option(
        "runs of each scenario under each table and profile (20)", default=REPLICATIONS
    )
    seed: int | None = option(SEED, "the scenario's unless given", default=None, flag=False)
    progress: Callable[[str], None] | None = option(
        optional(FUNCTION), "hears what is being played", default=None, flag=False
    )


@takes_options(PolicyOptions)
def policies(options: PolicyOptions) -> Policies:
    """Run each scenario under each policy; return the differences.

    {options}

    Limit tables and profiles are files as `engine limits --toml` and `engine profile` print them.
    Each limit table makes a policy, each profile another; where both are given, each pair does. The
    scenario as it stands is the first policy.

    Raises `InputError` for a scenario, a limit table or a profile that cannot be, and for a
    scenario that compiled code cannot play. Ctrl-C raises `simulator.progress.Interrupted`,
    which has the policies that were played to the end.
    """
    scenarios, replications = options.scenarios, options.replications
    given = [scenarios] if isinstance(scenarios, Scenario | str | Path) else scenarios
    bases = [resolve(scenario) for scenario in given]
    names = [base.name for base in bases]
    if twice := next((name for name in names if names.count(name) > 1), None):
        raise InputError(
            f"scenarios: name = {twice!r} must be of one scenario; it names the lines of the table"
        )
    changes = _changes(list(map(str, options.limits)), list(map(str, options.profiles)))
    plans = [
        (base, name, with_values(base, edits.items()))
        for base in bases
        for name, edits in changes.items()
    ]
    for _, name, scenario in plans:
        if reason := needs_bodies(scenario):
            raise InputError(f"policies are compiled, limits alone, and {name}: {reason}")
    warm_up()
    comparison, left = Policies(replications), TimeLeft()
    before: list[Observed] = []
    with replicator() as player, keeps_what_is_known(comparison):
        for number, (base, name, scenario) in enumerate(plans):
            if options.progress is not None:
                options.progress(f"{base.name}, {name}{left.text(number, len(plans))}")
            exact = not draws_at_random(base)
            first = seed_in_force(base, options.seed)
            seeds = range(first, first + (1 if exact else replications))
            after = observe(player, scenario, seeds, (_shut_out, _peak_admitted))
            before = after if name == AS_IT_STANDS else before
            comparison.add(base, name, before, after, exact=exact)
    return comparison


def _changes(limits: Sequence[str], profiles: Sequence[str]) -> dict[str, dict[str, str]]:
    if not limits and not profiles:
        raise InputError("limits = [] must name a file, unless profiles does; give one of them")
    pairs = itertools.product(limits or [""], profiles or [""])
    policies: dict[str, dict[str, str]] = {AS_IT_STANDS: {}}
    for table, profile in pairs:
        edits = {"limits": table, "profile": profile}
        edits = {name: str(Path(file).resolve()) for name, file in edits.items() if file}
        policies[", ".join(file for file in (table, profile) if file)] = edits
    return policies


def _dominates(policy: Sequence[float], other: Sequence[float]) -> bool:
    pairs = list(zip(policy, other, strict=True))
    return all(a >= b for a, b in pairs) and any(a > b for a, b in pairs)


def _shut_out(result: Result, _: Scenario) -> Iterator[tuple[str, float]]:
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
        yield f"shut_out_s{{client='{group}'}}", max(stretches, default=0) / SECOND_NS


def _peak_admitted(result: Result, _: Scenario) -> Iterator[tuple[str, float]]:
    """Yield the most attempts admitted within one clock second."""
    times = result.table.select(["t_ns", "outcome"]).to_pandas()
    passed = times.loc[times["outcome"].isin(PASSED), "t_ns"] // SECOND_NS
    yield _PEAK, float(passed.value_counts().max()) if len(passed) else 0.0
