"""The reference passes every row however it counts; the profile is discovered, never told.

LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK and every row, ERR-429, AUTH-KINDS, AUTH-LEGACY.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.runner.verdicts import Verdict
from engine import LimitTable, Profile
from engine.clauses import CLAUSES
from engine.profile import Algorithm
from tests.conformance.probes.measured import MS_NS, SECOND_NS, Stalling, jittery, play, tenth

ALGORITHMS = ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra")


OPEN: dict[tuple[str, str], set[str]] = {
    ("sliding-counter", "refuse"): {"LIM-IP"},
    ("sliding-counter", "delay"): {"LIM-IP"},
    ("token-bucket", "delay"): {"LIM-PRIVATE"},
    ("gcra", "delay"): {"LIM-PRIVATE"},
}
"""What a calm run leaves inconclusive, as something near would have looked the same."""


def seen(algorithm: str) -> str:
    """A gcra with its usual burst is the bucket: no request tells them apart."""
    return "token-bucket" if algorithm == "gcra" else algorithm


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_row_passes_and_its_algorithm_is_discovered(algorithm: str) -> None:
    found = play("LIM-SEARCH", algorithm=algorithm)
    assert found.bad == []
    assert found.profile.limits.algorithm == seen(algorithm)
    assert found.profile.limits.throttle == "refuse"
    assert found.profile.limits.and_counter == "pair"
    assert "resolution" in found.says("LIM-SEARCH")


def test_a_throttle_that_slows_is_understood() -> None:
    found = play("LIM-SEARCH", "throttle", "status", throttle="delay")
    assert found.bad == []
    assert found.profile.limits.throttle == "delay"


@pytest.mark.parametrize(
    ("checks", "choice", "value"),
    [
        (("LIM-SEARCH",), "count_refused", True),
        (("LIM-SEARCH", "LIM-PUBLIC"), "block_reset", "clear"),
        (("LIM-SEARCH", "LIM-PUBLIC"), "block_extends", True),
        (("LIM-READ",), "get_tokens", "prefix"),
        (("LIM-PROXY-KEY",), "proxy_rules", "unkeyed"),
        (("LIM-TEST-TENANT", "LIM-PUBLIC"), "and_counter", "each"),
        (("counted",), "counted_statuses", "success"),
        (("legacy-class",), "legacy_class", "added"),
        (("legacy-class",), "legacy_class", "exclusive"),
    ],
)
def test_a_reading_is_reported_and_never_failed(
    checks: tuple[str, ...], choice: str, value: Any
) -> None:
    found = play(*checks, **{choice: value})
    assert found.bad == []
    assert f"limits.{choice}" in found.known
    assert getattr(found.profile.limits, choice) == value


@pytest.mark.parametrize("anchor", ["aligned", "first"])
def test_where_fixed_windows_begin_is_told(anchor: str) -> None:
    """D-ALGORITHM: after a rest that is no multiple of the window."""
    found = play("LIM-SEARCH", algorithm="fixed-window", fixed_anchor=anchor)
    assert found.bad == []
    assert "limits.fixed_anchor" in found.known
    assert found.profile.limits.fixed_anchor == anchor


@pytest.mark.parametrize("bound_ms", [2_500, 6_000, 10_000])
def test_the_longest_delay_is_told_where_waits_are_finely_spaced(bound_ms: int) -> None:
    """D-THROTTLE: a bucket's turns are a tenth of a second apart."""
    found = play(
        "LIM-READ",
        throttle="delay",
        algorithm="token-bucket",
        delay_bound_ns=bound_ms * MS_NS,
    )
    assert found.bad == []
    limits = found.profile.limits
    assert (limits.algorithm, limits.delay_bound_ns) == ("token-bucket", bound_ms * MS_NS)


def test_delays_under_jitter_are_not_taken_for_another_algorithm() -> None:
    found = play("LIM-SEARCH", throttle="delay", latency=jittery(5, 10, 140), seed=5)
    assert found.bad == []
    assert found.profile.limits.algorithm == "sliding-log"


def spaced_throttles() -> LimitTable:
    """Return the seed's table with throttles that space requests, and blocks that do not."""
    table = LimitTable.default()
    for rule in table:
        algorithm: Algorithm = "gcra" if rule.action == "throttle" else "sliding-log"
        table = table.replace_rule(rule.id, algorithm=algorithm)
    return table


def test_strict_spacing_is_a_reading() -> None:
    """D-ALGORITHM: one request each fifth of a second is 50 in 10 s too."""
    found = play("LIM-SEARCH", "LIM-READ", table=spaced_throttles(), burst_requests=1)
    assert found.failed == set()
    assert (found.profile.limits.algorithm, found.profile.limits.burst_requests) == ("gcra", 1)


@pytest.mark.slow
def test_strict_spacing_of_every_row_fails_none() -> None:
    """Two requests at once exceed LIM-IP then, and what its block hides cannot be told."""
    assert play(algorithm="gcra", burst_requests=1).failed == set()
    assert play(table=spaced_throttles(), burst_requests=1).failed == set()


@pytest.mark.parametrize("bound_s", [3, 30])
def test_another_bound_of_delays_fails_nothing_and_misleads_nobody(bound_s: int) -> None:
    """D-THROTTLE: what was held back for longer, or less, than is usual."""
    found = play("LIM-SEARCH", "LIM-READ", throttle="delay", delay_bound_ns=bound_s * SECOND_NS)
    assert found.failed == set()
    limits = found.profile.limits
    assert "limits.algorithm" not in found.known or limits.algorithm == "sliding-log"


@pytest.mark.slow
@pytest.mark.parametrize(
    "choices",
    [
        {"and_counter": "each"},
        {"counted_statuses": "success"},
        {"count_refused": True, "algorithm": "sliding-counter"},
        {"count_refused": True, "algorithm": "token-bucket"},
        {"legacy_class": "exclusive"},
        {"or_counter": "key-else-ip"},
        {"edges": "closed"},
        {"block_extends": True},
        {"fixed_anchor": "first", "algorithm": "fixed-window"},
    ],
    ids=str,
)
def test_no_reading_fails_any_clause(choices: dict[str, Any]) -> None:
    found = play(**choices)
    assert found.failed == set(), [one.says for one in found.bad]


def test_headers_that_are_left_out_are_a_reading() -> None:
    found = play("status")
    assert {"http.retry_after", "http.rate_limit_fields"} <= found.known
    assert found.profile.http.retry_after


def test_the_profile_that_was_discovered_loads_again(tmp_path: Any) -> None:
    found = play("LIM-SEARCH", algorithm="token-bucket", count_refused=True)
    (tmp_path / "profile.toml").write_text(found.profile.to_toml())
    limits = Profile.from_toml(tmp_path / "profile.toml").limits
    assert (limits.algorithm, limits.count_refused) == ("token-bucket", True)


def test_with_one_key_and_address_what_cannot_be_shown_is_said() -> None:
    found = play("LIM-SEARCH", target={"sources": ("127.0.0.2",)})
    assert [one.verdict.word for one in found.bad] == ["skipped"]
    assert "add sources" in found.bad[0].says


@pytest.mark.slow
def test_everything_at_once_takes_little_longer_than_the_longest_block() -> None:
    found = play()
    assert found.bad == []
    assert found.ended_ns < 63 * SECOND_NS
    judged = {one.clause for one in found.run.findings}
    rows = {clause.id for clause in CLAUSES if clause.id.startswith("LIM-")}
    assert rows | {"ERR-429", "AUTH-KINDS", "AUTH-LEGACY"} <= judged
    assert found.run.session.requests < 20_000


@pytest.mark.slow
@pytest.mark.parametrize("throttle", ["refuse", "delay"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_row_passes_under_every_algorithm(algorithm: str, throttle: str) -> None:
    found = play(algorithm=algorithm, throttle=throttle)
    assert found.open == OPEN.get((algorithm, throttle), set())
    assert found.failed == set()
    for one in found.bad:
        assert one.verdict <= Verdict.INCONCLUSIVE
        assert one.verdict is Verdict.INFORMATIONAL or "rerun" in one.says
    assert found.profile.limits.algorithm == seen(algorithm)
    assert found.profile.limits.throttle == throttle


@pytest.mark.slow
@pytest.mark.parametrize("seed", [3, 4, 8, 9, 13, 14, 18, 19])
def test_no_false_alarm_under_latency_and_jitter(seed: int) -> None:
    latency_ms = (0, 10, 60, 150)[seed % 4]
    found = play(
        algorithm=ALGORITHMS[seed % 5],
        latency=jittery(seed, latency_ms, 150 - latency_ms or 40),
        seed=seed,
    )
    assert found.failed == set(), [one.says for one in found.bad]
    assert found.profile.limits.algorithm == seen(ALGORITHMS[seed % 5])


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_pauses_never_fail_a_row_nor_a_rule(algorithm: str) -> None:
    """A second's windows and a machine that stops for up to 0.3 s about every second."""
    seed = ALGORITHMS.index(algorithm)
    found = play(
        "LIM-SEARCH",
        "LIM-PUBLIC",
        "LIM-READ",
        "lowest",
        "throttle",
        "classes",
        "block",
        "status",
        "status-blocked",
        table=tenth(),
        told_table=tenth(),
        latency=Stalling(seed, 1, 0.3),
        algorithm=algorithm,
        throttle=("refuse", "delay")[seed % 2],
    )
    assert found.failed == set(), [one.says for one in found.bad]
    assert all(one.verdict <= Verdict.INCONCLUSIVE for one in found.bad)
    limits = found.profile.limits
    assert "limits.algorithm" not in found.known or limits.algorithm == seen(algorithm)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 5, 6, 8])
def test_no_false_alarm_where_everything_stops_now_and_then(seed: int) -> None:
    found = play(
        algorithm=ALGORITHMS[seed % 5],
        throttle=("refuse", "delay")[seed // 5],
        latency=Stalling(seed, 4, 1.5),
        seed=seed,
    )
    assert found.failed == set(), [one.says for one in found.bad]
