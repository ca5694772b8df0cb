"""A conforming service passes every row of the limit table, however it counts.

Every row, LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK, ERR-429, AUTH-KINDS, AUTH-LEGACY. What the engine
does is never told to the suite. Latencies are drawn; time is virtual.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.context.verdicts import Verdict
from engine import Engine, LimitTable, Profile, Request, Response
from tests.conformance.limits.measured import (
    PROBES,
    SECOND_NS,
    Measured,
    Stalling,
    jittery,
    play,
    tenth,
)

LIGHT = tuple(
    name.removeprefix("limits.")
    for name in PROBES
    if name not in {"limits.LIM-IP", "limits.LIM-PRIVATE"}
)
QUICK = ("LIM-SEARCH", "LIM-TEST-TENANT", "LIM-PUBLIC")
ALGORITHMS = ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra")
READINGS: dict[str, dict[str, Any]] = {
    "anchored": {"algorithm": "fixed-window", "fixed_anchor": "first"},
    "clear": {"block_reset": "clear"},
    "extends": {"block_extends": True},
    "each": {"and_counter": "each"},
    "success": {"counted_statuses": "success"},
    "refused count": {"count_refused": True},
    "refused count in a bucket": {"count_refused": True, "algorithm": "token-bucket"},
    "refused count in a counter": {"count_refused": True, "algorithm": "sliding-counter"},
    "classes": {"legacy_class": "exclusive", "get_tokens": "prefix", "proxy_rules": "unkeyed"},
    "delays": {"throttle": "delay"},
    "delays of a bucket": {"throttle": "delay", "algorithm": "token-bucket"},
    "delays of a counter": {"throttle": "delay", "algorithm": "sliding-counter"},
    "delays of windows": {"throttle": "delay", "algorithm": "fixed-window"},
}
UNDECIDED = 2
"""How many clauses a conforming variant may leave undecided."""


def undecided(found: Measured) -> set[str]:
    return {x.clause for x in found.run.findings if x.verdict is Verdict.INCONCLUSIVE}


def told(found: Measured) -> list[tuple[str, str]]:
    remark = Verdict.INFORMATIONAL
    return [(x.clause, x.message) for x in found.bad if x.verdict is not remark]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_row_passes_and_its_algorithm_is_discovered(algorithm: str) -> None:
    found = play(*QUICK, algorithm=algorithm, latency=jittery(1, 2, 4))
    assert told(found) == []
    seen = "token-bucket" if algorithm == "gcra" else algorithm  # with its usual burst the same
    assert found.profile.limits.algorithm == seen
    assert found.profile.limits.throttle == "refuse"
    assert found.profile.limits.and_counter == "pair"


@pytest.mark.parametrize(
    ("checks", "choice", "value"),
    [
        (("LIM-SEARCH",), "count_refused", True),
        (("LIM-PUBLIC",), "block_extends", True),
        (("LIM-TEST-TENANT",), "and_counter", "each"),
        (("counted",), "counted_statuses", "success"),
        (("legacy-class",), "legacy_class", "added"),
        (("legacy-class",), "legacy_class", "exclusive"),
        (("LIM-SEARCH",), "throttle", "delay"),
    ],
)
def test_a_reading_is_reported_and_never_failed(
    checks: tuple[str, ...], choice: str, value: Any
) -> None:
    found = play(*checks, **{choice: value})
    assert told(found) == []
    assert f"limits.{choice}" in found.known
    assert getattr(found.profile.limits, choice) == value


@pytest.mark.parametrize("anchor", ["aligned", "first"])
def test_where_fixed_windows_begin_is_discovered(anchor: str) -> None:
    found = play("LIM-SEARCH", algorithm="fixed-window", fixed_anchor=anchor)
    assert told(found) == []
    assert found.profile.limits.fixed_anchor == anchor


@pytest.mark.parametrize("rule", ["LIM-PROXY-KEY", "LIM-PROXY-HOST"])
def test_a_proxys_counter_shows_nothing_of_counters_of_api_keys(rule: str) -> None:
    """D-AND-COUNTER is of `IP and API key`; a proxy's row counts a proxy key or a hostname."""
    found = play(rule, and_counter="each")
    assert told(found) == []
    assert "limits.and_counter" not in found.known


@pytest.mark.parametrize("rule", ["LIM-PROXY-KEY", "LIM-ACCOUNT-UPDATER", "LIM-CREATE"])
def test_strict_spacing_of_a_throttle_is_a_reading(rule: str) -> None:
    """D-ALGORITHM: one request each fifth of a second is 50 in 10 s too."""
    table = LimitTable.default().replace_rule(rule, algorithm="gcra")
    found = play(rule, table=table, burst_requests=1)
    assert told(found) == []
    assert found.profile.limits.burst_requests == 1


@pytest.mark.slow
@pytest.mark.parametrize("jitter_ms", [0, 4, 50])
@pytest.mark.parametrize("burst_requests", [1, 2, 3])
def test_small_bursts_of_all_counters_fail_nothing(burst_requests: int, jitter_ms: int) -> None:
    """An address's counter saves up little as well, so that rows disturb one another."""
    latency = jittery(5, 2, jitter_ms) if jitter_ms else None
    limits: dict[str, Any] = {"algorithm": "gcra", "burst_requests": burst_requests}
    assert play(*LIGHT, seed=5, latency=latency, **limits).failed == set()


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS[:4])
def test_every_row_passes_under_jitter(algorithm: str) -> None:
    """By up to 100 ms; every reading below is met with 4 ms."""
    found = play(*LIGHT, algorithm=algorithm, latency=jittery(3, 2, 100))
    assert found.failed == set()
    assert len(undecided(found)) <= UNDECIDED


@pytest.mark.slow
@pytest.mark.parametrize("reading", READINGS)
def test_every_reading_passes_every_row(reading: str) -> None:
    found = play(*LIGHT, latency=jittery(2, 2, 4), **READINGS[reading])
    assert found.failed == set()
    assert len(undecided(found)) <= UNDECIDED


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS[:4])
def test_heavy_rows_pass(algorithm: str) -> None:
    found = play("LIM-PRIVATE", "LIM-IP", algorithm=algorithm, latency=jittery(1, 2, 4))
    assert told(found) == []


@pytest.mark.slow
def test_a_heavy_row_that_delays_is_sent_from_several_addresses() -> None:
    """From one address LIM-IP would block it, which has the same rate."""
    assert told(play("LIM-PRIVATE", throttle="delay")) == []


@pytest.mark.slow
@pytest.mark.parametrize("rule", ["LIM-ACCOUNT-UPDATER", "LIM-DELETE", "LIM-IP", "LIM-PRIVATE"])
def test_rows_are_seen_where_failed_requests_do_not_count(rule: str) -> None:
    found = play("counted", rule, counted_statuses="success")
    assert told(found) == []
    assert found.known >= {"limits.counted_statuses"}


class Preflighted(Engine):
    """Answers OPTIONS before its limiter, as gateways do."""

    async def submit(self, request: Request) -> Response:
        return Response(204) if request.method == "OPTIONS" else await super().submit(request)


@pytest.mark.slow
def test_options_that_a_gateway_answers_accuse_no_limiter() -> None:
    found = play("counted", "LIM-PRIVATE", engine=Preflighted, counted_statuses="success")
    assert found.failed == set()
    assert "which a gateway may answer" in found.says("LIM-PRIVATE")


@pytest.mark.parametrize("addresses", [1, 2])
def test_few_addresses_and_few_keys_take_longer_and_decide_the_same(addresses: int) -> None:
    sources = tuple(f"127.0.0.{place}" for place in range(2, 2 + addresses))
    found = play("LIM-SEARCH", target={"sources": sources})
    assert found.failed == set()
    assert found.says("LIM-SEARCH").startswith("50 per ")
    assert found.ended_ns < 600 * SECOND_NS


SLOW_NETWORKS: tuple[tuple[dict[str, Any], bool, int, int, int, tuple[str, ...]], ...] = (
    ({}, True, 2, 300, 7, ("LIM-TEST-TENANT", "counted")),
    ({"algorithm": "fixed-window"}, True, 20, 20, 237238, ("LIM-MANAGEMENT", "counted")),
    ({"algorithm": "fixed-window"}, True, 20, 600, 282864, ("LIM-PUBLIC",)),
    ({"algorithm": "fixed-window"}, True, 0, 600, 491957, ("LIM-MANAGEMENT",)),
    ({"count_refused": True}, True, 20, 600, 3547, ("LIM-MANAGEMENT",)),
    ({"block_reset": "clear"}, True, 2, 600, 924916, ("LIM-SEARCH",)),
    ({"algorithm": "sliding-log"}, True, 20, 300, 257425, ("LIM-PUBLIC", "counted")),
    ({"algorithm": "token-bucket"}, True, 0, 100, 787918, ("LIM-MANAGEMENT",)),
    ({"algorithm": "gcra"}, False, 20, 600, 440546, ("LIM-MANAGEMENT",)),
    ({"algorithm": "sliding-counter"}, True, 20, 20, 315902, ("LIM-DELETE", "counted")),
    ({"throttle": "delay", "algorithm": "fixed-window"}, True, 0, 100, 903520, ("LIM-MANAGEMENT",)),
    (
        {"algorithm": "token-bucket", "and_counter": "each"},
        False,
        50,
        100,
        1018,
        ("LIM-PATCH", "LIM-PROXY-KEY"),
    ),
    (
        {"algorithm": "sliding-counter", "and_counter": "each"},
        False,
        50,
        1500,
        3001,
        ("LIM-PROXY-HOST", "LIM-READ"),
    ),
    (
        {"algorithm": "token-bucket", "and_counter": "each"},
        True,
        50,
        100,
        3020,
        ("LIM-PUBLIC", "LIM-MANAGEMENT"),
    ),
    (
        {"algorithm": "fixed-window", "and_counter": "each"},
        True,
        50,
        100,
        4231,
        ("LIM-PROXY-HOST", "LIM-READ"),
    ),
    (
        {"algorithm": "token-bucket", "and_counter": "each"},
        False,
        50,
        1500,
        4236,
        ("LIM-SEARCH", "LIM-LEGACY"),
    ),
)
"""What the engine counts by, whether its windows are a tenth, latency and jitter in ms, a seed."""


@pytest.mark.slow
@pytest.mark.parametrize("network", SLOW_NETWORKS, ids=str)
def test_a_slow_network_never_makes_a_conforming_service_fail(
    network: tuple[dict[str, Any], bool, int, int, int, tuple[str, ...]],
) -> None:
    """Round trips beside the window: what they hide is left open, and no reading is wrong."""
    limits, is_tenth, latency_ms, jitter_ms, seed, checks = network
    table = tenth() if is_tenth else None
    latency = jittery(seed, latency_ms, jitter_ms)
    found = play(*checks, table=table, told_table=table, latency=latency, seed=seed % 7, **limits)
    assert found.failed == set()
    for name in ("throttle", "count_refused", "counted_statuses", "and_counter"):
        if f"limits.{name}" in found.known and limits.get("throttle") != "delay":
            default = getattr(Profile().limits, name)
            assert getattr(found.profile.limits, name) == limits.get(name, default)


PAUSES: tuple[tuple[dict[str, Any], bool, float, float, int, tuple[str, ...]], ...] = (
    ({"and_counter": "each"}, False, 3, 2.0, 1037, ("LIM-ACCOUNT-UPDATER", "LIM-CREATE")),
    ({"count_refused": True}, False, 1, 1.0, 2034, ("LIM-READ", "LIM-DELETE")),
    (
        {"algorithm": "token-bucket", "and_counter": "each"},
        True,
        3,
        2.0,
        4080,
        ("LIM-CREATE", "LIM-LEGACY"),
    ),
)
"""What the engine counts by, whether its windows are a tenth, seconds between pauses and the
longest pause, a seed."""


@pytest.mark.slow
@pytest.mark.parametrize("pauses", PAUSES, ids=str)
def test_pauses_of_a_machine_never_make_a_conforming_service_fail(
    pauses: tuple[dict[str, Any], bool, float, float, int, tuple[str, ...]],
) -> None:
    """A pause bunches what follows it; a request without a key is answered 401 throughout."""
    limits, is_tenth, every_s, most_s, seed, checks = pauses
    table = tenth() if is_tenth else None
    latency = Stalling(seed, every_s, most_s)
    found = play(*checks, table=table, told_table=table, latency=latency, seed=seed % 7, **limits)
    assert found.failed == set()
