"""Every built-in scenario opens with its question and the answer that its run gives.

An answer holds figures of the scenario's own seed. Each is computed here from a run, and an answer
holds no other number than these: none can be stale, and none stands unproved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

import pytest

import simulator
from engine import LimitTable
from engine.files import span_text
from simulator import Result, Scenario
from simulator.scenario import builtin, load, with_value

Figures: TypeAlias = Sequence[str]
Frame: TypeAlias = Any
"""A pandas frame; its cells have no types that a checker could know."""

LAUNCH_S: Final = 600
VALUES: Final = 50
"""Tokens in a request of `bulk-import`."""


def _groups(result: Result) -> Frame:
    return result.metrics(by="group")


def _seconds(value: float) -> str:
    return span_text(round(value)).replace("\u202f", " ")


def _share(frame: Frame, name: str) -> str:
    return _percent(frame.loc[name, "refused_share"])


def _percent(share: float, digits: int = 1) -> str:
    return f"{100 * share:.{digits}f}".removesuffix(".0") + " %"


def _rows(result: Result) -> Frame:
    """Return the rows after the warm-up, with the client group of each."""
    rows = result.requests
    rows = rows[rows["t_ns"] >= result.summary["warm_up_ns"]].copy()
    names = {number: name for name, numbers in result.groups.items() for number in numbers}
    rows["group"] = rows["client"].map(names)
    rows["turned"] = rows["outcome"].isin(("refused", "blocked"))
    return rows


def _changed(scenario: Scenario, **changes: object) -> Result:
    for path, value in changes.items():
        scenario = with_value(scenario, path.replace("__", "."), value)
    return simulator.run(scenario, fidelity="limits", check=False)


def _everyday(result: Result) -> Figures:
    found = _groups(result)
    pairs = [
        ("LIM-TEST-TENANT, for the test suite", "test-suite"),
        ("LIM-READ, for the reports", "reports"),
        ("LIM-MANAGEMENT, for the admin script", "admin-script"),
        ("LIM-LEGACY, for the nightly job", "nightly-job"),
        ("LIM-PUBLIC, for the browsers", "browsers"),
    ]
    firsts = [found.loc[name, "first_refusal_ns"] for _, name in pairs]
    assert firsts == sorted(firsts), "the answer names them in order"
    binding = result.metrics(by=["group", "clause"]).index
    for words, name in pairs:
        assert (name, words.partition(",")[0]) in binding
    return [
        *(f"{words}, after {_seconds(ns)}" for (words, _), ns in zip(pairs, firsts, strict=True)),
        f"the reports lose {_share(found, 'reports')}",
        f"the test suite {_share(found, 'test-suite')}",
        f"the nightly job {_share(found, 'nightly-job')}",
        f"for {_seconds(found.loc['admin-script', 'blocked_ns'])} of the ",
        f"{_seconds(result.summary['duration_ns'])}, the",
        f" browsers for {_seconds(found.loc['browsers', 'blocked_ns'])}",
        f"lose {_share(found, 'servers')}, because",
    ]


def _bulk_import(result: Result) -> Figures:
    found = _groups(result)
    values = found["goodput_per_s"] * VALUES
    minutes = 2_000_000 / values / 60
    assert set(result.clauses.query("refused > 0").index) == {"LIM-CREATE"}
    assert found.loc["paced-import", "refused"] == 0
    adaptive, greedy = (found.loc[f"{name}-import", "refused"] for name in ("adaptive", "greedy"))
    rate = next(rule.rate for rule in LimitTable.default().rules if rule.id == "LIM-CREATE")
    a_second = rate.limit_requests * 10**9 // rate.window_ns
    return [
        f"its {a_second} requests per second carry at most {a_second * VALUES:,} values",
        f"makes {values['paced-import']:.0f} tokens per second and is never refused",
        f"take {minutes['paced-import']:.0f} min",
        f"makes {values['adaptive-import']:.0f} with {adaptive} refusals",
        f"({minutes['adaptive-import']:.0f} min)",
        f"none {values['greedy-import']:.0f} with {greedy} ({minutes['greedy-import']:.0f} min)",
    ]


def _checkout(result: Result) -> Figures:
    rows = _rows(result)
    turned = rows[rows["turned"]]
    addresses = result.metrics(by="ip").sort_values("offered", ascending=False)
    assert list(addresses.query("refused > 0").index) == [addresses.index[0]]
    shoppers, hit = rows["client"].nunique(), turned["client"].nunique()
    return [
        f"{hit} of the {shoppers:,} shoppers, {_percent(hit / shoppers, 0)}",
        f"the busiest of {len(addresses)}",
        f"refused {_percent(addresses['refused_share'].iloc[0], 0)} of its attempts",
    ]


def _cold_starts(result: Result) -> Figures:
    found = result.metrics(by=["group", "time"], bin="1m").loc["rising-load"]
    rate = (found["offered"] / 60).tolist()
    median_s = (found["latency_p50_ns"] / 1e9).tolist()
    assert min(median_s[1:]) > 1.5, "the cold start of the scenario"
    rows = _rows(result)
    over = rows[rows["status"] == 504].groupby("group").size()
    calls = rows.groupby("group").size()
    return [
        f"at {rate[0]:.1f} invocations per second, the median is {median_s[0]:.1f} s",
        f"at {rate[1]:.1f} per second, it is {median_s[1]:.1f} s",
        f"{median_s[-1]:.1f} s at {rate[-1]:.0f} per second",
        f"{calls['reporting']} invocations {over.get('reporting', 0)} exceed",
        f"other's {calls['rising-load']:,}, {over.get('rising-load', 0)}.",
    ]


def _launch_day(result: Result) -> Figures:
    found = _groups(result)
    rows = _rows(result)
    visits = rows[rows["group"] == "visitors"]
    hit = set(visits[visits["turned"]]["ip"])
    assert hit == set(visits["ip"].value_counts().index[: len(hit)]), "the busiest ones"
    first_s = found["first_refusal_ns"] / 1e9
    ip_rule: Frame = result.clauses.loc["LIM-IP"]
    return [
        f"the launch at {_seconds(LAUNCH_S * 1e9)}",
        f"after {_seconds(found.loc['order-service', 'first_refusal_ns'])}",
        f"refused {_share(found, 'order-service')}",
        f"follows {first_s['visitors'] - LAUNCH_S:.1f} s after the launch",
        f"the {len(hit)} busiest of {visits['ip'].nunique()} addresses",
        f"{found.loc['visitors', 'refused']:,} of the visitors'",
        f" {found.loc['visitors', 'offered']:,} attempts",
        f"LIM-IP refuses {ip_rule['refused']:.0f}",
    ]


def _legacy_migration(result: Result) -> Figures:
    found = _groups(result)
    counted_ns = result.summary["duration_ns"] - result.summary["warm_up_ns"]
    minutes = found["admitted"] * 60e9 / counted_ns
    return [
        f"refused {_share(found, 'stayers')} and",
        f"needs {found.loc['stayers', 'attempts_per_success']:.2f} attempts",
        f"the {minutes['stayers']:.0f} requests per minute of LIM-LEGACY",
        f"refused {_share(found, 'movers')} and completes {minutes['movers']:.0f} per minute",
    ]


def _management_loop(result: Result) -> Figures:
    found = _groups(result)
    hasty, paced = found.loc["hasty-script"], found.loc["paced-script"]
    assert paced["refused"] == 0
    return [
        f"for {_seconds(hasty['blocked_ns'])} of the",
        f" {_seconds(result.summary['duration_ns'])}, and",
        f"{hasty['admitted']:,.0f} of its {hasty['offered']:,.0f} requests succeed",
        f"all of its {paced['admitted']:,.0f} and is never blocked",
    ]


def _month_end(result: Result) -> Figures:
    found = _groups(result)
    slower = {"kind": "constant", "value": "6s"}
    polls = found.loc["poll", "offered"] / found["offered"].sum()
    seldom = _groups(_changed(load("month-end"), clients__poll__think=slower))
    return [
        f"makes up {_percent(polls, 0)} of all attempts",
        f"{_share(found, 'upload')} are refused by LIM-ACCOUNT-UPDATER",
        f"With a poll every 6 s instead of every 1.5 s only {_share(seldom, 'upload')} are",
    ]


def _retry_storm(result: Result) -> Figures:
    rows = _rows(result)
    storm = rows[(rows["t_ns"] >= 120e9) & (rows["t_ns"] < 130e9)]
    again = int((storm["attempt"] > 1).sum())
    echo = rows[rows["turned"] & (rows["t_ns"] >= 120e9) & (rows["t_ns"] < 300e9)]
    patient = _changed(
        load("retry-storm"),
        clients__impatient__retry__honour_retry_after=True,
        clients__burst__retry__honour_retry_after=True,
    )
    return [
        f"{len(storm):,} attempts are made, {again} of them retries",
        f", {_percent(again / len(storm), 0)}.",
        f"at {_seconds(float(echo['t_ns'].max()))}",
        f"refused {patient.summary['totals']['refused']} times",
        f"instead of {result.summary['totals']['refused']:,}",
    ]


def _shared_office(result: Result) -> Figures:
    rows = _rows(result)
    people = rows[rows["group"] == "browsers"]
    script_key = rows[rows["group"] == "script"]["key"].iloc[0]
    beside = people[people["key"] == script_key]
    others = people[people["key"] != script_key]
    assert others["key"].nunique() == 2
    assert len(set(rows["ip"])) == 1
    hit = beside[beside["turned"]]["client"].nunique()
    return [
        f"{hit} of the {beside['client'].nunique()} people on that key",
        f"{_percent(beside['turned'].mean())} of their attempts",
        f"at the same address, {_percent(others['turned'].mean())}",
        f"loses {_share(_groups(result), 'script')}",
    ]


def _slow_destination(result: Result) -> Figures:
    rows = _rows(result)
    found = _groups(result)
    late = rows[rows["status"] == 408]
    turned = rows[rows["turned"]]
    again = int((turned["attempt"] > 1).sum())
    tills = found.loc["tills"]
    return [
        f"Of {(rows['attempt'] == 1).sum():,} requests",
        f" {(late['attempt'] == 1).sum()} time out with",
        f"with retries {len(late)} attempts do",
        f"refuse {len(turned)} attempts, {found.loc['campaign', 'refused']} of them",
        f"{again} of all refusals, {_percent(again / len(turned), 0)}",
        f"{tills['refused']:.0f} attempts of the tills are refused, of {tills['offered']:,.0f}",
    ]


def _several_nodes(result: Result) -> Figures:
    scenario = load("several-nodes")
    exact = _changed(scenario, nodes__sharing="exact")
    often = _changed(scenario, nodes__every="100ms")
    one, other = _groups(result), _groups(exact)
    admitted = exact.summary["totals"]["admitted"]
    more = result.summary["totals"]["admitted"] - admitted
    both = {name: f"{_share(one, name)} instead of {_share(other, name)}" for name in one.index}
    return [
        f"{more:,} more attempts are admitted, {_percent(more / admitted)}",
        f"it loses {_share(one, 'import')} of its attempts instead of {_share(other, 'import')}",
        f"lose {both['orders']}",
        f"browsers {both['browsers']}",
        f"single attempts do: {result.summary['nodes']['refused_below']:,} are refused",
        "every 100 ms",
        f"{often.summary['totals']['admitted'] - admitted:,} more are admitted",
    ]


FIGURES: Final[dict[str, Callable[[Result], Figures]]] = {
    "bulk-import": _bulk_import,
    "checkout": _checkout,
    "cold-starts": _cold_starts,
    "everyday": _everyday,
    "launch-day": _launch_day,
    "legacy-migration": _legacy_migration,
    "management-loop": _management_loop,
    "month-end": _month_end,
    "retry-storm": _retry_storm,
    "several-nodes": _several_nodes,
    "shared-office": _shared_office,
    "slow-destination": _slow_destination,
}


def test_every_builtin_scenario_has_an_answer_that_is_recomputed() -> None:
    assert sorted(FIGURES) == sorted(builtin())


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(FIGURES))
def test_an_answer_holds_the_figures_of_its_run_and_no_others(name: str) -> None:
    scenario = load(name)
    assert scenario.question.endswith("?")
    assert "Answer" not in scenario.question
    rest = scenario.answer
    for figure in FIGURES[name](simulator.run(scenario, fidelity="limits", check=False)):
        assert figure in scenario.answer, scenario.answer
        rest = rest.replace(figure, "", 1)
    assert not re.search(r"\d", rest), f"a number that no run proves: {rest}"
