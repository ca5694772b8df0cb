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
from simulator.play.simulation import Fidelity, simulate
from simulator.rows import Result
from simulator.scenario import Scenario, limit_tables_of, loads, profile_of
from tests.oracles.client import Play
from tests.oracles.limits import Oracle
from tests.simulator.play.test_drawn_scenarios import outside_scenarios, scenarios


def by_brute_force(scenario: Scenario, limits_of: type[Oracle | Limiter] = Oracle) -> Play:
    """Play a scenario by brute force."""
    limits = limits_of(
        limit_tables_of(scenario), profile_of(scenario).limits, origin_ns=scenario.start_time_ns
    )
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


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=8)
def test_drawn_scenarios(text: str) -> None:
    check_clients(text)


@pytest.mark.slow
@given(outside_scenarios())
@settings(max_examples=8)
def test_drawn_scenarios_with_proxies_reactors_and_uploads(text: str) -> None:
    check_clients(text)


_BELL = """
duration = "60s"
seed = 0
[choices.outside]
hot_concurrency = 0
cold_start = "0s"
instances_cap = 1
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[addresses]]
name = "nat"
[[proxies]]
name = "p"
tenant = "t"
destination = { kind = "discrete", values = ["0s", "24s", "25s", "26s", "40s"] }
require_auth = true
request_transform = { kind = "discrete", values = ["0s", "24s", "25s", "26s", "40s"] }
response_transform = { kind = "constant", value = "250ms" }
[[clients]]
name = "c"
count = 2
addresses = "nat"
application = "a"
think = { kind = "constant", value = "1s" }
concurrency = 3
stop = "33s"
mix = [{ request = "GET /proxy/pay", proxy = "p" }]
"""


def test_a_bell_of_an_earlier_wait_does_not_wake_a_later_one() -> None:
    """RCT-TIMEOUT: an instance of the request's code is given as the time to wait for it is over.

    Its bell is too late; at that instant the call waits for the response's code already.
    """
    check_clients(_BELL)


_TWO_JOBS = """
duration = "60s"
seed = 2
[choices.account_updater]
file_limit = "1KB"
[rules.LIM-ACCOUNT-UPDATER]
rate = "4/4s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[clients]]
name = "c"
count = 2
application = "a"
think = { kind = "exponential", mean = "500ms" }
pacing = { kind = "token-bucket", rate = "3/1s", burst = 2 }
retry = { kind = "full-jitter", base = "100ms", cap = "2s", attempts = 3 }
mix = [{ request = "POST /account-updater/jobs", size = "2500B", split = true }]
"""


@pytest.mark.parametrize("seed", range(4))
def test_the_files_of_two_jobs_of_one_loop_come_in_a_stated_order(seed: int) -> None:
    """ACC-SPLIT: at one instant, of one client and attempt, in the order in which they began."""
    check_clients(_TWO_JOBS.replace("seed = 2", f"seed = {seed}"))


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=250)
def test_hundreds_of_drawn_scenarios(text: str) -> None:
    check_clients(text, Limiter)


@pytest.mark.slow
@given(outside_scenarios())
@settings(max_examples=60)
def test_many_drawn_scenarios_with_an_outside(text: str) -> None:
    check_clients(text, Limiter)
