"""What chapters 16 to 22 state about runs holds for drawn logs, values and seeds.

Each test is named after its chapter; more of them are in `test_general_statements`. Chapters 23
to 26 try every clause, every known-bad deployment and every value of every choice themselves.
"""

from __future__ import annotations

import math
import re
from fractions import Fraction
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import simulator
from engine import Limiter, NodesLimiter, Profile
from notebooks.course import sources
from simulator import decide, load, with_value
from simulator.quantiles import latin_hypercube
from tests.notebooks._drawn import FEW, PUBLIC, SECOND_NS, VERY_FEW, alone, rates, times_s

OFFICE = """
duration = "1m"
tenants = [{ name = "acme" }]
applications = [{ name = "page", tenant = "acme", kind = "public" }]
addresses = [{ name = "office" }]
[[clients]]
name = "people"
count = 5
application = "page"
addresses = "office"
think = { kind = "exponential", mean = "2s" }
[[clients]]
name = "script"
application = "page"
addresses = "office"
loop = "open"
arrivals = { kind = "poisson", rate = "1/1s" }
"""


@VERY_FEW
@given(times=times_s, rate=rates, hides=st.booleans())
def test_16_shadow_mode_refuses_nothing_and_reports_what_a_rule_would_refuse(
    times: list[Fraction], rate: tuple[int, int], hides: bool
) -> None:
    start = pd.Timestamp("2026-03-02T09:00:00Z")
    log = pd.DataFrame(
        {
            "time": [start + pd.Timedelta(float(now), "s") for now in times],
            "ip": "203.0.113.7",
            "key": "page",
            "method": "POST",
            "path": "/tokens",
        }
    )
    table = alone("LIM-PUBLIC", rate)
    active, shadow = (
        simulator.replay(log, as_kind="public", limits=limits, pseudonymise=hides)
        for limits in (table, table.replace_rule("LIM-PUBLIC", shadow=True))
    )
    assert len(active.requests) == len(log), "each request once, no retries"
    assert shadow.summary["totals"]["refused"] == 0
    would = shadow.clauses["shadow_refused"].sum()
    assert (would > 0) == (active.summary["totals"]["refused"] > 0)
    if hides:
        assert not set(active.requests["key"]) & set(shadow.requests["key"])


@pytest.mark.slow
@settings(max_examples=3)
@given(seed=st.integers(0, 1_000))
def test_17_a_fitted_file_is_the_fitted_scenario_and_each_number_has_an_interval(seed: int) -> None:
    log = simulator.run(with_value(load(OFFICE), "seed", seed), progress=False).requests
    fit = simulator.fit(log, as_kind="public", runs=3)
    assert load(fit.text) == fit.scenario
    numbers = fit.parameters
    assert len(numbers)
    assert (numbers["low"] <= numbers["value"]).all()
    assert (numbers["value"] <= numbers["high"]).all()


@VERY_FEW
@given(
    people=st.integers(1, 12),
    requests=st.integers(1, 80),
    script=st.integers(1, 3),
    seed=st.integers(0, 1_000),
)
def test_19_a_position_of_the_sliders_is_the_run_of_the_edited_file(
    people: int, requests: int, script: int, seed: int
) -> None:
    values = {
        "clients[0].count": people,
        "clients[1].arrivals.rate": f"{script}/1s",
        "rules.LIM-PUBLIC.rate": f"{requests}/1m",
        "seed": seed,
    }
    edited = load(OFFICE)
    for path, value in values.items():
        edited = with_value(edited, path, value)
    moved = simulator.explore(load(OFFICE)).play(values)
    run = simulator.run(edited, fidelity="limits", progress=False)
    assert moved.summary["sha256"] == run.summary["sha256"]


@given(times=times_s, rate=rates, block_s=st.integers(1, 4))
def test_20_in_a_block_everybody_is_told_to_return_at_one_instant(
    times: list[Fraction], rate: tuple[int, int], block_s: int
) -> None:
    until, instant = Fraction(-1), Fraction(-1)
    decisions = decide(times, PUBLIC, table=alone("LIM-PUBLIC", rate, block_s))
    for now, decision in zip(times, decisions, strict=True):
        if decision.admitted:
            continue
        returns = now + Fraction(decision.wait_ns, SECOND_NS)
        if now < until:
            assert returns == instant
        else:
            until, instant = now + block_s, returns
        assert returns >= until


@settings(max_examples=5)
@given(count=st.integers(2, 6), seed=st.integers(0, 1_000))
def test_20_with_more_keys_no_more_is_refused(count: int, seed: int) -> None:
    scenario = with_value(with_value(load(OFFICE), "clients.people.count", count), "seed", seed)
    scenario = with_value(scenario, "rules.LIM-PUBLIC.rate", "20/10s")
    keyed = with_value(scenario, "applications.page.keys", count + 1)
    refused = [
        simulator.run(changed, fidelity="limits", progress=False).summary["totals"]["refused"]
        for changed in (scenario, keyed)
    ]
    assert refused[1] <= refused[0]


@FEW
@given(
    rate=rates,
    gaps_ms=st.lists(st.integers(0, 300), min_size=1, max_size=40),
    count=st.integers(1, 4),
)
def test_21_exact_nodes_are_one_counter_and_nodes_alone_admit_its_limit_each(
    rate: tuple[int, int], gaps_ms: list[int], count: int
) -> None:
    tables = {"Default": alone("LIM-PUBLIC", rate)}
    times = [sum(gaps_ms[: place + 1]) * 10**6 for place in range(len(gaps_ms))]

    def admitted(**nodes: Any) -> list[bool]:
        profile = Profile().replace(nodes={"count": count, **nodes})
        limiter = NodesLimiter(tables, profile.limits, profile.nodes)
        return [limiter.decide(now, PUBLIC).admitted for now in times]

    one = Limiter(tables, Profile().limits)
    exact = [one.decide(now, PUBLIC).admitted for now in times]
    assert admitted(sharing="exact") == exact
    assert admitted(sharing="none", balance="key") == exact, "a key meets one node"
    alone_each = admitted(sharing="none")
    window_ns = rate[1] * SECOND_NS
    passed = [now for now, it in zip(times, alone_each, strict=True) if it]
    most = max((sum(end - window_ns < then <= end for then in passed) for end in passed), default=0)
    assert most <= count * rate[0]
    assert sum(alone_each) >= sum(exact) or count == 1


@given(points=st.integers(1, 40), axes=st.integers(1, 4), seed=st.integers(0, 1_000))
def test_22_a_latin_hypercube_has_one_point_in_each_part_of_every_range(
    points: int, axes: int, seed: int
) -> None:
    shares = list(latin_hypercube(points, axes, seed))
    assert len(shares) == points
    for axis in range(axes):
        assert sorted(math.floor(share[axis] * points) for share in shares) == list(range(points))


@VERY_FEW
@given(seed=st.integers(0, 1_000), limits=st.tuples(st.integers(1, 400), st.integers(1, 400)))
def test_22_where_nobody_is_refused_the_limit_changes_nothing(
    seed: int, limits: tuple[int, int]
) -> None:
    hashes = set()
    for requests in (*limits, 1_000):
        scenario = with_value(load(OFFICE), "rules.LIM-PUBLIC.rate", f"{requests}/1m")
        scenario = with_value(scenario, "seed", seed)
        summary = simulator.run(scenario, fidelity="limits", progress=False).summary
        if not summary["totals"]["refused"]:
            hashes.add(summary["sha256"])
    assert len(hashes) == 1


@pytest.mark.slow
@settings(max_examples=2)
@given(seed=st.integers(0, 1_000), people=st.integers(1, 9))
def test_22_a_sweep_decides_as_a_run_and_never_repeats_one(
    tmp_path_factory: pytest.TempPathFactory, seed: int, people: int
) -> None:
    folder = tmp_path_factory.mktemp("sweep") / "runs"
    axes = {"clients.people.count": [people, people + 1]}
    rows = simulator.sweep(OFFICE, axes, out=folder, seed=seed, fidelity="limits", workers=1)
    written = {file: file.stat().st_mtime_ns for file in folder.glob("point=*/run-*.parquet")}
    again = simulator.sweep(OFFICE, axes, out=folder, seed=seed, fidelity="limits", workers=1)
    assert again.equals(rows)
    assert written == {file: file.stat().st_mtime_ns for file in written}
    for row in rows.to_dict("records"):
        run = simulator.run(row["scenario"], fidelity="limits", seed=seed, progress=False)
        assert run.summary["sha256"] == row["sha256"]


def test_every_chapter_with_general_statements_has_a_test_of_them() -> None:
    """The last four try every value themselves."""
    texts = [file.read_text(encoding="utf-8") for file in Path(__file__).parent.glob("test_*.py")]
    tested = {number for text in texts for number in re.findall(r"def test_(\d\d)_", text)}
    chapters = {source.stem[:2] for source in sources()}
    assert chapters - tested == {"23", "24", "25", "26"}
