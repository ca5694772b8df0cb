"""SimPy and compiled clients against the client by brute force, row by row.

What a client does is played a third time, from the documentation alone (`tests.oracles.client`),
with the limits by brute force; times, decisions, latencies, statuses and the sums of requests are
equal in every drawn scenario. Where there are many of them the engine's limiter decides for the
brute force too, which is several times as fast; the limits have tests of their own.
"""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings

from engine.limits import Limiter
from simulator.backends import Fidelity
from simulator.backends.simulation import simulate
from simulator.results import Result
from simulator.scenario import Scenario, limit_tables_of, loads, profile_of
from tests.oracles.client import Play
from tests.oracles.limits import Oracle
from tests.simulator.backends.test_drawn_scenarios import outside_scenarios, scenarios


def by_brute_force(scenario: Scenario, limits_of: type[Oracle | Limiter] = Oracle) -> Play:
    """Play a scenario by brute force."""
    limits = limits_of(limit_tables_of(scenario), profile_of(scenario).limits)
    return Play(scenario, scenario.seed, limits).whole()


def check_against(played: Play, result: Result) -> None:
    """Hold a run against the brute force: every row, and what became of the requests."""
    rows: list[dict[str, Any]] = result.table.to_pylist()
    for row, own in zip(rows, played.rows, strict=False):
        assert row == vars(own)
    assert len(rows) == len(played.rows)
    totals = result.summary["totals"]
    names = ("requests", "succeeded", "failed", "requests_pending")
    own_totals = (played.requests, played.succeeded, played.failed, played.pending)
    assert tuple(totals[name] for name in names) == own_totals


def check_clients(text: str, limits_of: type[Oracle | Limiter] = Oracle) -> None:
    """Hold both drivers against the brute force."""
    scenario = loads(text)
    played = by_brute_force(scenario, limits_of)
    fidelities: tuple[Fidelity, ...] = ("limits", "compiled")
    for fidelity in fidelities:
        check_against(played, simulate(scenario, fidelity=fidelity, check=False))


@given(scenarios())
@settings(max_examples=8)
def test_drawn_scenarios(text: str) -> None:
    check_clients(text)


@given(outside_scenarios())
@settings(max_examples=8)
def test_drawn_scenarios_with_proxies_reactors_and_uploads(text: str) -> None:
    check_clients(text)


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=650)
def test_hundreds_of_drawn_scenarios(text: str) -> None:
    check_clients(text, Limiter)


@pytest.mark.slow
@given(outside_scenarios())
@settings(max_examples=400)
def test_hundreds_of_drawn_scenarios_with_an_outside(text: str) -> None:
    check_clients(text, Limiter)
