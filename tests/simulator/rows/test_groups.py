"""What each group of clients met, and how full counters were, by a slow look at the rows."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from engine.files import Rate
from simulator.kernel.running import KernelRun, write_rows
from simulator.rows import Result, RunHeader, RunRecorder
from simulator.scenario import Scenario, loads, profile_of
from simulator.study.runs import run
from simulator.traffic.population import Setup
from tests.simulator.play.test_drawn_scenarios import scenarios

S = 10**9

WORKERS = """
duration = "5m"
warm_up = "1m"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[addresses]]
name = "office"
[[clients]]
name = "workers"
count = 3
application = "a"
addresses = "office"
loop = "open"
arrivals = {{ kind = "constant", rate = "{rate}" }}
mix = [{{ request = "POST /tokens" }}]
[[clients]]
name = "readers"
count = 20
application = "a"
think = {{ kind = "exponential", mean = "2s" }}
mix = [{{ request = "GET /tokens" }}]
"""


def in_chunks(scenario: Scenario, rows: int) -> Result:
    """Play a scenario whose book takes so many rows at once."""
    setup = Setup.of(scenario, scenario.seed)
    header = RunHeader(
        scenario.name,
        scenario.seed,
        "compiled",
        0,
        scenario.duration_ns,
        scenario.warm_up_ns,
        setup.population.groups,
    )
    book = RunRecorder(header, setup.tables, setup.profile.limits, headroom=True, chunk_rows=rows)
    write_rows(KernelRun(setup, chunk_rows=rows), book)
    return book.close()


@given(scenarios(), st.sampled_from([5, 1_000]))
@settings(max_examples=20)
def test_a_groups_line_counts_its_rows(text: str, chunk_rows: int) -> None:
    scenario = loads(text)
    result = in_chunks(scenario, chunk_rows)
    rows = [r for r in result.table.to_pylist() if r["t_ns"] >= scenario.warm_up_ns]
    for group in result.summary["groups"]:
        numbers = range(group["first_client"], group["first_client"] + group["clients"])
        mine = [row for row in rows if row["client"] in numbers]
        turned = [row for row in mine if row["outcome"] in {"refused", "blocked"}]
        assert (group["offered"], group["refused"]) == (len(mine), len(turned))
        assert group["admitted"] == len(mine) - len(turned)
        assert group["clients_met"] == len({row["client"] for row in mine})
        assert group["clients_refused"] == len({row["client"] for row in turned})
        assert group["addresses"] == len({row["ip"] for row in mine})
        assert group["addresses_refused"] == len({row["ip"] for row in turned})
        by_clause: dict[str, int] = {}
        for row in turned:
            clause = row["rule"].partition(".")[0]
            by_clause[clause] = by_clause.get(clause, 0) + 1
        assert group["clauses"] == by_clause
        if not turned:
            assert group["binds"] is None
            continue
        by_rule = {row["rule"]: 0 for row in turned}
        for row in turned:
            by_rule[row["rule"]] += 1
        binds = group["binds"]
        assert binds["refused"] == max(by_rule.values()) == by_rule[binds["rule"]]
        hit = {row["ip"] for row in turned if row["rule"] == binds["rule"]}
        assert binds["addresses"] == len(hit)
        assert 1 <= binds["sharing"] <= len({row["client"] for row in rows})


def test_a_limit_at_one_address_is_shared_by_its_clients_and_their_pace_passes() -> None:
    """LIM-CREATE lets 200 in 10 s pass for a key at an address; of three workers 6.6/s each."""
    found = run(loads(WORKERS.format(rate="97/10s")), fidelity="limits")
    workers, readers = found.summary["groups"]
    assert readers["binds"] is None
    assert workers["binds"] == {
        "clause": "LIM-CREATE",
        "rule": "LIM-CREATE",
        "refused": workers["refused"],
        "addresses": 1,
        "limit_requests": 200,
        "window_ns": 10 * S,
        "sharing": 3,
        "senders": {"workers": {"clients": 3, "offered": workers["offered"]}},
    }
    assert round(workers["refused"] / workers["offered"], 2) == 0.31
    passed = run(loads(WORKERS.format(rate="66/10s")), fidelity="limits")
    assert passed.summary["totals"]["refused"] == 0
    beyond = run(loads(WORKERS.format(rate="68/10s")), fidelity="limits")
    assert beyond.summary["totals"]["refused"] > 0


_BY: dict[str, tuple[str, ...]] = {
    "LIM-IP": ("ip",),
    "LIM-MANAGEMENT": ("key",),
    "LIM-PRIVATE.key": ("key",),
    "LIM-PRIVATE.ip": ("ip",),
    "LIM-PUBLIC": ("key", "ip"),
}
_KIND = {"LIM-MANAGEMENT": "management", "LIM-PUBLIC": "public", "LIM-PRIVATE": "private"}


@given(scenarios(), st.sampled_from([5, 1_000]))
@settings(max_examples=20)
def test_headroom_is_what_the_last_window_admitted(text: str, chunk_rows: int) -> None:
    scenario = loads(text)
    limits = profile_of(scenario).limits
    if limits.and_counter != "pair" or limits.compose != "all":
        return
    result = in_chunks(scenario, chunk_rows)
    rows = result.table.to_pylist()
    kinds = {app.name: app.kind for app in scenario.applications}
    headroom = result.summary["headroom"]
    for line in headroom["rules"]:
        if line["rule"] not in _BY:
            continue
        kind = _KIND.get(line["clause"])
        met = [r for r in rows if kind is None or kinds.get(r["application"]) == kind]
        rate: Rate = scenario.rules[line["clause"]].rate  # type: ignore[assignment] # reason: each has one
        assert (line["limit_requests"], line["window_ns"]) == tuple(rate)
        peaks: dict[Any, int] = {}
        most = [-1] * len(line["most"])
        for row in met:
            counter = tuple(row[name] for name in _BY[line["rule"]])
            held = sum(
                tuple(each[name] for name in _BY[line["rule"]]) == counter
                and each["outcome"] in {"admitted", "delayed"}
                and row["t_ns"] - rate[1] < each["t_ns"] + each["wait_ns"] <= row["t_ns"]
                for each in met
            )
            bin_ = row["t_ns"] // headroom["bin_ns"]
            most[bin_] = max(most[bin_], held)
            if row["t_ns"] >= scenario.warm_up_ns:
                peaks[counter] = max(peaks.get(counter, 0), held)
        assert line["most"] == most
        assert line["peak"] == max(peaks.values(), default=0)
        assert line["counters"] == len(peaks) == sum(line["classes"])
