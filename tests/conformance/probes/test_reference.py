"""The reference passes every row however it counts; the profile is discovered, never told.

LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK and every row, ERR-429, AUTH-KINDS, AUTH-LEGACY.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.verdicts import Verdict
from engine import Profile
from engine.clauses import CLAUSES
from tests.conformance.probes.measured import SECOND_NS, Stalling, jittery, play, tenth

ALGORITHMS = ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra")


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
        (("LIM-READ",), "get_tokens", "prefix"),
        (("LIM-PROXY-KEY",), "proxy_rules", "unkeyed"),
        (("LIM-TEST-TENANT", "LIM-PUBLIC"), "and_counter", "each"),
        (("counted",), "counted_statuses", "success"),
    ],
)
def test_a_reading_is_reported_and_never_failed(
    checks: tuple[str, ...], choice: str, value: Any
) -> None:
    found = play(*checks, **{choice: value})
    assert found.bad == []
    assert f"limits.{choice}" in found.known
    assert getattr(found.profile.limits, choice) == value


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
    assert found.bad == []
    assert found.profile.limits.algorithm == seen(algorithm)
    assert found.profile.limits.throttle == throttle


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_no_false_alarm_under_latency_and_jitter(seed: int) -> None:
    latency_ms = (0, 10, 60, 150)[seed % 4]
    found = play(
        algorithm=ALGORITHMS[seed % 5],
        latency=jittery(seed, latency_ms, 150 - latency_ms or 40),
        seed=seed,
    )
    assert found.failed == set(), [one.says for one in found.bad]
    assert found.profile.limits.algorithm == seen(ALGORITHMS[seed % 5])


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
@pytest.mark.parametrize("seed", range(10))
def test_no_false_alarm_where_everything_stops_now_and_then(seed: int) -> None:
    found = play(
        algorithm=ALGORITHMS[seed % 5],
        throttle=("refuse", "delay")[seed // 5],
        latency=Stalling(seed, 4, 1.5),
        seed=seed,
    )
    assert found.failed == set(), [one.says for one in found.bad]
