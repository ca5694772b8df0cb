"""The end of a run changes nothing before it: what a run plays in [0, T) every longer run plays.

In every fidelity, for the run's `duration`, a group's `stop`, the warm-up and a deadline alike. A
row that is answered before the shorter run's end is equal in all its columns; one that is answered
later was decided alike.
"""

from __future__ import annotations

from dataclasses import replace

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simulator.play.simulation import FIDELITIES, Fidelity
from simulator.rows import Result
from simulator.scenario import Scenario, builtin, load, loads, profile_of
from simulator.study.runs import run
from tests.simulator.play.test_drawn_scenarios import outside_scenarios, scenarios

MS = 1_000_000
S = 1_000_000_000

SPIN = """
duration = "{duration}"
{limits}
[[tenants]]
name = "t"
kind = "test"
[[applications]]
name = "a"
tenant = "t"
[[clients]]
name = "c"
application = "a"
think = {{ kind = "constant", value = "1ms" }}
service = {{ kind = "constant", value = "100ms" }}
retry = {{ kind = "fixed", delay = "5s", attempts = 5 }}
{more}
"""


def spin(
    duration: str, more: str = "", *, fidelity: Fidelity = "limits", limits: str = ""
) -> Result:
    """Play one client that asks again 5 s after a refusal."""
    return run(SPIN.format(duration=duration, more=more, limits=limits), fidelity=fidelity)


def rows_before(result: Result, end_ns: int) -> pd.DataFrame:
    """Return the rows before an instant; what was answered later is not known yet."""
    frame = result.requests
    frame = frame[frame["t_ns"] < end_ns].reset_index(drop=True)
    for name in frame.columns:
        if frame[name].dtype.name == "category":
            frame[name] = frame[name].astype(object)
    later = frame["t_ns"] + frame["latency_ns"] >= end_ns
    frame.loc[later, "latency_ns"] = -1
    frame["status"] = frame["status"].astype("Int64").mask(later)
    return frame


def check_prefix(
    short: Result, long: Result, end_ns: int, *, decisions_alone: bool = False
) -> None:
    """Hold one run against a longer one, up to an instant; bodies give more statuses."""
    one, other = rows_before(short, end_ns), rows_before(long, end_ns)
    for name in one.columns:
        if decisions_alone and name == "status":
            continue
        assert one[name].equals(other[name]), name


def check_ends(scenario: Scenario, end_ns: int, fidelity: Fidelity) -> None:
    """End a scenario earlier, by its duration and by its groups' stops."""
    whole = run(scenario, fidelity=fidelity)
    earlier = replace(scenario, duration_ns=end_ns, warm_up_ns=0)
    short = run(earlier, fidelity=fidelity)
    assert short.violations == ()
    check_prefix(short, whole, end_ns)
    stops = tuple(
        replace(group, stop_ns=end_ns if group.stop_ns is None else min(end_ns, group.stop_ns))
        for group in scenario.clients
        if group.start_ns < end_ns
    )
    if len(stops) == len(scenario.clients):
        stopped = run(replace(scenario, clients=stops), fidelity=fidelity)
        assert stopped.violations == ()
        assert len(stopped.requests) == len(short.requests)
        check_prefix(stopped, whole, end_ns)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_client_that_would_ask_again_after_the_end_does_not_begin_anew(
    fidelity: Fidelity,
) -> None:
    short, long = spin("58s", fidelity=fidelity), spin("2m", fidelity=fidelity)
    check_prefix(short, long, 58 * S)
    totals = short.summary["totals"]
    assert totals["requests_pending"] == 1
    assert totals["requests"] == totals["succeeded"] + 1
    assert totals["refused_share"] < 0.03


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_client_whose_group_stops_does_not_begin_anew(fidelity: Fidelity) -> None:
    check_prefix(
        spin("2m", 'stop = "58s"', fidelity=fidelity), spin("2m", fidelity=fidelity), 58 * S
    )


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_a_request_ends_badly_at_its_deadline(fidelity: Fidelity) -> None:
    """50 in 10 s: the 51st is refused at 5.05 s, gives up 4 s later, and the loop thinks then."""
    found = spin("58s", 'deadline = "4s"', fidelity=fidelity)
    rows = found.requests
    refused = rows.index[rows["outcome"] == "refused"]
    assert rows["t_ns"][refused[0]] == 50 * 101 * MS + MS
    assert rows["t_ns"][refused[0] + 1] == rows["t_ns"][refused[0]] + 4_001 * MS
    totals = found.summary["totals"]
    assert (totals["refused"], totals["failed"], totals["requests_pending"]) == (9, 8, 1)
    check_prefix(found, spin("118s", 'deadline = "4s"', fidelity=fidelity), 58 * S)


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(("service", "succeeded"), [("999ms", 3), ("1s", 2)])
def test_what_is_answered_at_the_end_or_later_is_pending(
    fidelity: Fidelity, service: str, succeeded: int
) -> None:
    text = SPIN.format(duration="3s", more="", limits="")
    text = text.replace('"1ms"', '"1s"').replace('"100ms"', f'"{service}"')
    text = text.replace("think = { kind", 'loop = "open"\narrivals = { rate = "1/1s", kind')
    text = text.replace(', value = "1s" }\nservice', " }\nservice")
    totals = run(text, fidelity=fidelity).summary["totals"]
    assert (totals["offered"], totals["admitted"], totals["requests"]) == (3, 3, 3)
    assert (totals["succeeded"], totals["requests_pending"]) == (succeeded, 3 - succeeded)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_who_waits_for_a_turn_until_its_deadline_takes_none(fidelity: Fidelity) -> None:
    """One turn in 2 s and two requests a second: who waits 1.2 s gives up, and takes no token."""
    text = SPIN.format(duration="9s", more='deadline = "1200ms"', limits="")
    text = text.replace(
        'think = { kind = "constant", value = "1ms" }',
        'loop = "open"\narrivals = { kind = "constant", rate = "2/1s" }\n'
        'pacing = { kind = "token-bucket", rate = "1/2s" }',
    )
    found = run(text, fidelity=fidelity)
    assert (found.requests["t_ns"] // MS).tolist() == [0, 2_000, 4_000, 6_000, 8_000]
    totals = found.summary["totals"]
    # 18 begin; those that wait at 9 s and began after 7.8 s have their deadline ahead of them.
    assert (totals["requests"], totals["succeeded"], totals["requests_pending"]) == (18, 5, 2)
    assert totals["failed"] == 11


@pytest.mark.slow
@given(scenarios(), st.integers(1, 7_999))
@settings(max_examples=12)
def test_drawn_scenarios(text: str, end_ms: int) -> None:
    for fidelity in FIDELITIES:
        check_ends(loads(text), end_ms * MS, fidelity)


@pytest.mark.slow
@given(outside_scenarios(), st.integers(1, 59_999))
@settings(max_examples=5)
def test_drawn_scenarios_with_proxies_and_reactors(text: str, end_ms: int) -> None:
    for fidelity in FIDELITIES:
        check_ends(loads(text), end_ms * MS, fidelity)


@pytest.mark.slow
@given(scenarios(), st.integers(1, 7_999))
@settings(max_examples=120)
def test_many_drawn_scenarios(text: str, end_ms: int) -> None:
    check_ends(loads(text), end_ms * MS, "compiled")


@pytest.mark.slow
@given(scenarios(), st.integers(0, 7_999))
@settings(max_examples=8)
def test_a_warm_up_moves_no_row(text: str, warm_up_ms: int) -> None:
    scenario = loads(text)
    for fidelity in FIDELITIES:
        whole = run(scenario, fidelity=fidelity, warm_up=0)
        left = run(scenario, fidelity=fidelity, warm_up=warm_up_ms * MS)
        assert whole.requests.equals(left.requests)
        names = ("requests", "succeeded", "failed", "requests_pending", "offered")
        assert all(left.summary["totals"][n] <= whole.summary["totals"][n] for n in names)


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin())
def test_built_in_scenarios(name: str) -> None:
    """Whole ones are played compiled; the other fidelities play the first parts of the same."""
    scenario = load(name)
    whole = run(scenario, fidelity="compiled")
    for part, fidelities in ((15, FIDELITIES), (70, ("compiled",))):
        end_ns = scenario.duration_ns * part // 100 + 1
        earlier = replace(scenario, duration_ns=end_ns, warm_up_ns=0)
        for fidelity in fidelities:
            if fidelity == "engine" and not profile_of(scenario).nodes.is_exact:
                continue
            short = run(earlier, fidelity=fidelity, check=False)
            check_prefix(short, whole, end_ns, decisions_alone=fidelity == "engine")
