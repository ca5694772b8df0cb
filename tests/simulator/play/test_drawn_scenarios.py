"""Drawn scenarios: both fidelities decide alike, invariants hold, brute force agrees.

The brute force reads the rows alone and comes to every decision again.

The scenarios are drawn swarm style: each example leaves some features out entirely.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.errors import InputError
from engine.limits import LimitTable, Subject
from engine.profile import Profile
from simulator.rows import Result
from simulator.scenario import Scenario, builtin, limit_tables_of, load, loads, profile_of
from simulator.study.runs import run
from simulator.traffic.population import KeyHolder, populate
from tests.drawn import outside_scenario_text, scenario_text
from tests.oracles.limits import Oracle

_Value = TypeVar("_Value")


class _Drawn:
    """Choices of hypothesis."""

    def __init__(self, draw: st.DrawFn) -> None:
        self._draw = draw

    def one(self, values: Sequence[_Value]) -> _Value:
        return self._draw(st.sampled_from(values))

    def some(self, values: Sequence[str], *, least: int = 0) -> set[str]:
        return self._draw(st.sets(st.sampled_from(values), min_size=least))

    def whole(self, low: int, high: int) -> int:
        return self._draw(st.integers(low, high))

    def either(self) -> bool:
        return self._draw(st.booleans())


@st.composite
def scenarios(draw: st.DrawFn) -> str:
    """Return the text of a small scenario with low limits, so that much is refused."""
    return scenario_text(_Drawn(draw))


@st.composite
def outside_scenarios(draw: st.DrawFn) -> str:
    """Return the text of a small scenario whose clients invoke proxies and reactors, and upload."""
    return outside_scenario_text(_Drawn(draw))


def check_both(text: str) -> tuple[Scenario, Result]:
    """Play a scenario in both fidelities; they decide alike and no invariant breaks."""
    scenario = loads(text)
    by_limits = run(scenario, fidelity="limits")
    by_engine = run(scenario, fidelity="engine")
    assert by_limits.violations == ()
    assert by_engine.violations == ()
    one, other = by_limits.requests, by_engine.requests
    columns = [name for name in one.columns if name != "status"]
    assert one[columns].equals(other[columns])
    assert by_limits.summary["decisions_sha256"] == by_engine.summary["decisions_sha256"]
    return scenario, by_limits


def recompute(scenario: Scenario, result: Result) -> None:
    """Come to every decision again from the rows alone, by brute force."""
    tables: dict[str, LimitTable] = limit_tables_of(scenario)
    profile: Profile = profile_of(scenario)
    holders = {holder.label: holder for holder in populate(scenario, scenario.seed).keys}
    oracle = Oracle(tables, profile.limits, origin_ns=scenario.start_time_ns)
    for row in result.table.to_pylist():
        holder: KeyHolder | None = holders.get(row["key"])
        subject = Subject(
            row["method"],
            row["path"],
            row["ip"],
            key_id=holder.label if holder else None,
            tenant_kind=holder.tenant_kind if holder else None,
            application_kind=holder.application_kind if holder else None,
            legacy=holder.legacy if holder else False,
        )
        verdict = oracle.decide(row["t_ns"], subject)
        found = (verdict.outcome, verdict.rule, verdict.wait_ns)
        assert found == (row["outcome"], row["rule"], row["wait_ns"])


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=8)
def test_drawn_scenarios(text: str) -> None:
    recompute(*check_both(text))


@pytest.mark.slow
@given(outside_scenarios())
@settings(max_examples=25)
def test_drawn_scenarios_with_proxies_and_reactors(text: str) -> None:
    """Behind a proxy and in a reactor both fidelities take the same time, to the nanosecond."""
    check_both(text)


def test_a_tenant_with_a_table_of_its_own_decides_alike(tmp_path: Path) -> None:
    """QUO-RATE, with a proxy, a reactor and uploads that the tenant has from the start."""
    own = (
        '[[rule]]\nid = "LIM-PRIVATE"\nmatch = { application = "private" }\n'
        'counter = "key"\nrate = "4/2s"\naction = "block"\nblock = "3s"\n'
    )
    (tmp_path / "own.toml").write_text(own)
    _, result = check_both(
        f"""
duration = "20s"
limit_tables = {{ own = "{tmp_path}/own.toml" }}
[[tenants]]
name = "t"
quotas = {{ "Rate Limit" = "own" }}
[[tenants]]
name = "u"
[[applications]]
name = "a"
tenant = "t"
[[applications]]
name = "b"
tenant = "u"
[[proxies]]
name = "p"
tenant = "t"
destination = {{ kind = "constant", value = "1s" }}
[[reactors]]
name = "r"
tenant = "t"
service = {{ kind = "constant", value = "1s" }}
[[clients]]
name = "c"
count = 2
application = "a"
think = {{ kind = "exponential", mean = "300ms" }}
mix = [
    {{ request = "POST /proxy/pay", proxy = "p" }},
    {{ request = "POST /reactors/{{id}}/react", reactor = "r" }},
    {{ request = "POST /account-updater/jobs" }},
]
[[clients]]
name = "d"
application = "b"
think = {{ kind = "exponential", mean = "300ms" }}
"""
    )
    refused = result.metrics(by="group")["refused"]
    assert refused["c"] > 0
    assert refused["d"] == 0


def test_an_outside_that_takes_no_time_is_waited_for_like_another() -> None:
    """A retry is counted from the answer, which comes after the service's own time."""
    _, result = check_both(
        """
duration = "9s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[proxies]]
name = "p"
tenant = "t"
destination = { kind = "discrete", values = ["0s", "400ms"] }
unreachable_share = 0.8
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "2/1s" }
service = { kind = "exponential", mean = "1s" }
mix = [ { request = "GET /proxy/pay", proxy = "p" } ]
retry = { kind = "full-jitter", base = "1s", cap = "4s", attempts = 3, on = [429, 502] }
"""
    )
    assert (result.requests["attempt"] > 1).any()


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=60)
def test_many_drawn_scenarios(text: str) -> None:
    recompute(*check_both(text))


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin())
def test_built_in_scenarios_in_both_fidelities(name: str) -> None:
    """The first half of each is played; `python -m tests.digests` plays them whole."""
    scenario = load(name)
    scenario = replace(scenario, duration_ns=scenario.duration_ns // 2)
    if not profile_of(scenario).nodes.is_exact:
        with pytest.raises(InputError, match=r"^fidelity = 'engine' is one node"):
            run(scenario, fidelity="engine")
        return
    one, other = run(scenario, fidelity="limits"), run(scenario, fidelity="engine")
    assert one.violations == ()
    assert other.violations == ()
    assert one.summary["decisions_sha256"] == other.summary["decisions_sha256"]


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    one, again = run("retry-storm", fidelity="limits"), run("retry-storm", fidelity="limits")
    other = run("retry-storm", fidelity="limits", seed=8)
    assert one.summary == again.summary
    assert one.summary["sha256"] != other.summary["sha256"]
