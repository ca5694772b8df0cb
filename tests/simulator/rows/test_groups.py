"""What each group of clients met, and how full counters were, by a slow look at the rows."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.files import Rate
from simulator.kernel.running import KernelRun, write_rows
from simulator.rows import Result, RunHeader, RunRecorder
from simulator.rows.findings import (
    Findings,
    RequestKey,
    _steps,
    gather,
    histogram,
    quantile_ns,
    together_ns,
)
from simulator.rows.record import SCHEMA
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


# --- findings ------------------------------------------------------------------------------------


OUTCOMES = {
    "admitted": (None,),
    "delayed": ("LIM-CREATE",),
    "refused": ("LIM-PRIVATE.key", "LIM-PRIVATE.ip", "LIM-READ"),
    "blocked": ("LIM-PUBLIC", "LIM-IP"),
}


@st.composite
def rows(draw: st.DrawFn) -> list[dict[str, Any]]:
    found = []
    t_ns = 0
    for _ in range(draw(st.integers(0, 40))):
        t_ns += draw(st.sampled_from([0, 1, 7, 100]))
        outcome = draw(st.sampled_from(sorted(OUTCOMES)))
        found.append(
            {
                "t_ns": t_ns,
                "client": draw(st.integers(0, 3)),
                "attempt": draw(st.integers(1, 2)),
                "tenant": "t",
                "application": "a",
                "key": draw(st.sampled_from([None, "key-0001", "key-0002"])),
                "ip": draw(st.sampled_from(["192.0.2.1", "192.0.2.2"])),
                "method": "GET",
                "path": "/x",
                "outcome": outcome,
                "rule": draw(st.sampled_from(OUTCOMES[outcome])),
                "wait_ns": 0 if outcome == "admitted" else draw(st.integers(1, 300)),
                "latency_ns": draw(st.integers(0, 50)),
                "status": draw(st.sampled_from([None, 200, 502])),
            }
        )
    return found


def found_in(given_rows: list[dict[str, Any]], batch: int, start_ns: int, end_ns: int) -> Findings:
    table = pa.Table.from_pylist(given_rows, schema=SCHEMA)
    summary = {"duration_ns": end_ns, "warm_up_ns": start_ns}
    return gather(table.to_batches(max_chunksize=batch), summary, bins=50)


@settings(max_examples=40)
@given(rows(), st.integers(5, 41), st.sampled_from([0, 60]))
def test_counts_and_shut_out_times_are_those_of_a_slow_look(
    given_rows: list[dict[str, Any]], batch: int, start_ns: int
) -> None:
    end_ns = max((row["t_ns"] for row in given_rows), default=0) + 200
    found = found_in(given_rows, batch, start_ns, end_ns)
    kept = [row for row in given_rows if row["t_ns"] >= start_ns]
    turned = [row for row in kept if row["outcome"] in {"refused", "blocked"}]

    def party(row: dict[str, Any]) -> RequestKey:
        return RequestKey(row["rule"].split(".")[0], row["key"], row["ip"])

    assert int(found.offered.sum()) == len(given_rows)
    assert dict(Counter(map(party, turned))) == {w: f.refused for w, f in found.parties.items()}
    shut: dict[RequestKey, set[int]] = defaultdict(set)
    for row in given_rows:
        if row["outcome"] in {"refused", "blocked"}:
            from_ns, until_ns = max(row["t_ns"], start_ns), row["t_ns"] + row["wait_ns"]
            shut[party(row)].update(range(from_ns, min(until_ns, end_ns)))
    shut = defaultdict(set, {who: instants for who, instants in shut.items() if instants})
    assert found.shut_out.keys() == shut.keys()
    for who, instants in shut.items():
        refusals = found.shut_out[who]
        assert refusals.shut_ns == len(instants)
        assert {ns for start, end in refusals.intervals for ns in range(start, end)} == instants
        ends = [end for _, end in refusals.intervals]
        assert all(a < b for a, (b, _) in zip(ends, refusals.intervals[1:], strict=False))
        mine = [row for row in turned if party(row) == who]
        assert (who in found.parties) == bool(mine)
        if not mine:
            continue
        assert (refusals.first_ns, refusals.last_ns) == (mine[0]["t_ns"], mine[-1]["t_ns"])
        assert refusals.blocked == sum(row["outcome"] == "blocked" for row in mine)
    assert together_ns(found.shut_out.values()) == len(set().union(*shut.values()))
    assert found.offered_of_ip == dict(Counter(row["ip"] for row in kept))
    assert found.offered_of_key == dict(Counter(row["key"] for row in kept))
    good = [row for row in given_rows if row["outcome"] in {"admitted", "delayed"}]
    assert len(found.good) in {0, len(found.offered)}
    assert int(found.good.sum()) == sum((row["status"] or 0) < 400 for row in good)
    assert int(found.firsts.sum()) == sum(row["attempt"] == 1 for row in given_rows)
    assert sum(count for *_, count in histogram(found.waits)) == len(turned)


@given(st.lists(st.integers(1, 10**13), min_size=1, max_size=50), st.sampled_from([0.5, 0.9, 1.0]))
def test_a_quantile_is_never_too_low_and_at_most_6_percent_too_high(
    values: list[int], share: float
) -> None:
    values = [min(value, 10**12 - 1) for value in values]
    exact = sorted(values)[int(np.ceil(share * len(values))) - 1]
    found = quantile_ns(_steps(np.array(values)), share)
    assert exact * 0.999 <= found <= max(exact + 1, exact * 1.06)


def test_a_quantile_of_nothing_is_0() -> None:
    assert quantile_ns(_steps(np.array([], dtype=np.int64)), 0.5) == 0


@pytest.mark.parametrize("span_ns", [1, 59, 10**9, 3_600 * 10**9, 10**15, 4 * 10**18])
def test_bins_are_few_and_reach_the_end(span_ns: int) -> None:
    found = gather([], {"duration_ns": span_ns, "warm_up_ns": 0}, bins=180)
    assert len(found.offered) <= 180
    assert len(found.offered) * found.bin_ns >= span_ns
