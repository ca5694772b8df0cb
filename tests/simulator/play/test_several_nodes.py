"""Several nodes in a run: what it counts, what it says, and what does not play them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

import simulator
from engine.errors import InputError
from engine.limits import Limiter, Subject
from engine.profile import LimitsProfile, NodesProfile
from simulator.cli import main
from simulator.rows.invariants import checkers
from simulator.scenario import (
    Scenario,
    limit_tables_of,
    load,
    loads,
    profile_of,
    with_value,
    with_values,
)
from simulator.scenario.model import draws_at_random
from simulator.traffic.population import populate

SMALL = """
duration = "2m"
[nodes]
count = 3
sharing = "none"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "many"
application = "a"
loop = "open"
arrivals = "4/1s"
[[clients]]
name = "few"
application = "a"
loop = "open"
arrivals = "1/2s"
"""


def on(scenario: Scenario, **nodes: object) -> Scenario:
    """Return a scenario with fields of its nodes changed."""
    return with_values(scenario, [(f"nodes.{name}", value) for name, value in nodes.items()])


def test_nodes_that_count_alone_admit_so_many_times_the_rate() -> None:
    """LIM-PUBLIC: 4 a second by turns is 80 a minute a node, more than 50, and 50 a node get in."""
    one = simulator.run(on(loads(SMALL), sharing="exact"), fidelity="limits")
    three = simulator.run(loads(SMALL), fidelity="limits")
    first = {
        name: int(((rows["t_ns"] < 60 * 10**9) & (rows["outcome"] == "admitted")).sum())
        for name, rows in (("one", one.requests), ("three", three.requests))
    }
    assert first["one"] == 50 + 30  # of the many, and all of the few, who have another address
    assert first["three"] == 150 + 30
    assert "nodes" not in one.summary


@pytest.mark.slow
@pytest.mark.parametrize("sharing", ["none", "split", "synced", "shared-slow"])
def test_what_is_beyond_and_below_is_what_one_limiter_says_of_the_rows(sharing: str) -> None:
    """Each attempt of the rows, judged again by one exact limiter."""
    scenario = on(load("several-nodes"), sharing=sharing, race="100ms")
    scenario = with_value(with_value(scenario, "duration", "3m"), "warm_up", "30s")
    result = simulator.run(scenario, fidelity="compiled")
    keys = {holder.label: holder for holder in populate(scenario, scenario.seed).keys}
    limiter = Limiter(
        limit_tables_of(scenario), profile_of(scenario).limits, origin_ns=scenario.start_time_ns
    )
    names = {number: name for name, held in result.groups.items() for number in held}
    found: Counter[tuple[str, str, str]] = Counter()
    fields = ["t_ns", "client", "key", "ip", "method", "path", "outcome", "rule"]
    for t_ns, client, key, ip, method, path, outcome, rule in result.requests[fields].itertuples(
        index=False
    ):
        holder = keys[key]
        who = Subject(
            method,
            path,
            ip,
            key_id=key,
            tenant_kind=holder.tenant_kind,
            application_kind=holder.application_kind,
        )
        exact = limiter.decide(t_ns, who)
        if t_ns >= scenario.warm_up_ns and exact.admitted != (outcome == "admitted"):
            what = "refused_below" if exact.admitted else "admitted_beyond"
            by = rule if exact.admitted else exact.rule
            found[names[client], str(by).partition(".")[0], what] += 1
    nodes = result.summary["nodes"]
    told = {
        (row["group"], row["clause"], what): row[what]
        for row in nodes["groups"]
        for what in ("admitted_beyond", "refused_below")
        if row[what]
    }
    assert told == dict(found)
    for what in ("admitted_beyond", "refused_below"):
        assert nodes[what] == sum(n for (_, _, each), n in found.items() if each == what)
    assert nodes["refused_below"] + nodes["admitted_beyond"] > 0
    assert result.violations == ()


def test_the_checkers_know_how_many_nodes_may_admit() -> None:
    """Rows of three nodes break what holds for one, and what holds for two."""
    result = simulator.run(loads(SMALL), fidelity="limits")
    assert result.violations == ()
    assert result.summary["checks"]["invariants"] == ["order", "row", "rate", "sum"]
    names = {
        nodes.sharing: [
            each.invariant for each in checkers((), LimitsProfile(), nodes, by_client=True)
        ]
        for nodes in (
            NodesProfile(count=2, sharing="none"),
            NodesProfile(count=2, sharing="shared-slow"),
        )
    }
    assert names == {"none": ["order", "row", "rate"], "shared-slow": ["order", "row"]}


def test_a_report_says_what_nodes_let_in_and_refuse(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL)
    out = tmp_path / "out"
    assert main(["run", str(file), "--fidelity", "limits", "--out", str(out)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "3 nodes, round-robin; each counts alone." in shown
    assert "attempts were admitted beyond the exact limits" in shown
    page = (out / "report.html").read_text("utf-8")
    assert "On several nodes" in page
    nodes = simulator.Result.load(out).summary["nodes"]
    (row,) = nodes["groups"]
    assert (row["group"], row["clause"]) == ("many", "LIM-PUBLIC")
    assert row["admitted_beyond"] == nodes["admitted_beyond"] > 100
    below = f"and {row['refused_below']} below them were refused"
    assert (
        f"{row['admitted_beyond']} attempts were admitted beyond the exact limits, {below}" in page
    )


def test_a_sweep_gives_the_frame_by_count_and_lag(tmp_path: Path) -> None:
    axes: dict[str, list[object]] = {"nodes.count": [1, 2, 3], "nodes.lag": ["0s", "5s"]}
    scenario = on(loads(SMALL), sharing="synced")
    frame = simulator.sweep(scenario, axes, out=tmp_path / "sweep", fidelity="limits")
    assert (frame["status"] == "ok").all(), frame["error"].tolist()
    beyond = frame.set_index(["nodes.count", "nodes.lag"])["admitted_beyond"]
    assert (beyond[1] == 0).all()
    assert (beyond.unstack()["5s"] >= beyond.unstack()["0s"]).all()
    assert beyond[3, "5s"] > beyond[2, "5s"] > 0
    assert "admitted_beyond{client='many',clause='LIM-PUBLIC'}" in frame.columns


def test_a_sweep_prints_what_nodes_let_in_and_whole_numbers(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "small.toml"
    file.write_text(SMALL.replace('"2m"', '"45m"'))
    asked = ["sweep", str(file), "--set", "nodes.count=1,3", "--out", str(tmp_path / "out")]
    assert main(asked) == 0
    head, *rows = capsys.readouterr().out.splitlines()[1:4]
    one, three = (line.split() for line in rows)
    assert head.split("  ")[-2:] == ["admitted beyond exact limits", "refused below exact limits"]
    assert one[:3] == ["1", "1", "12,150"]
    assert one[-2:] == ["0", "0"]
    assert int(three[-2].replace(",", "")) > 1_000


@pytest.mark.slow
def test_replications_give_intervals() -> None:
    scenario = with_value(load("several-nodes"), "duration", "1m")
    result = simulator.run(scenario, fidelity="compiled", replications=8, progress=False)
    line = result.replications.loc["admitted_beyond"]
    assert line["low"] <= line["mean"] <= line["high"]
    assert line["mean"] > 0


def test_a_balancer_that_draws_makes_runs_differ() -> None:
    scenario = loads(SMALL)
    assert not draws_at_random(scenario)
    assert draws_at_random(on(scenario, balance="random"))
    assert not draws_at_random(on(scenario, balance="random", sharing="exact"))
    one, other = (
        simulator.run(on(scenario, balance="random"), fidelity="limits", seed=seed)
        for seed in (1, 2)
    )
    assert one.summary["sha256"] != other.summary["sha256"]


def test_an_engine_plays_one_node() -> None:
    with pytest.raises(InputError) as caught:
        simulator.run(loads(SMALL), fidelity="engine")
    assert str(caught.value) == (
        "fidelity = 'engine' is one node, and nodes.sharing = 'none' takes several; choose limits "
        "or compiled"
    )
    simulator.run(on(loads(SMALL), sharing="exact", count=5), fidelity="engine")


def test_a_policy_may_be_a_profile_of_nodes(tmp_path: Path) -> None:
    """`compare` plays the nodes of a profile beside the scenario as it stands."""
    file = tmp_path / "nodes.toml"
    file.write_text('[nodes]\ncount = 3\nsharing = "none"\n')
    scenario = tmp_path / "small.toml"
    scenario.write_text(SMALL.replace('[nodes]\ncount = 3\nsharing = "none"\n', ""))
    table = simulator.policies(scenario, profiles=[file], replications=2).table
    refused = table[table["group"] == "many"]["refused_share"].tolist()
    assert refused[1] < refused[0]
