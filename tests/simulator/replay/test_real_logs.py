"""The replay of the real logs, decided again by counting over the rows that it wrote.

What counts here is written from the specification's tables alone and shares nothing with the
engine (LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK, D-DECIDER).
"""

import bisect
from collections import defaultdict
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from engine.model import TenantKind
from simulator.logs import KINDS, Kind
from simulator.rows import Result
from simulator.study.replay import replay

SECOND_NS = 1_000_000_000

Row: TypeAlias = tuple[str, tuple[str, ...], int, int, int]
"""Counter's name, whose it is, requests, window and block in seconds."""

FIGURES: dict[tuple[str, Kind, str], dict[str, int]] = {
    ("apache_access.log", "legacy", "1"): {"LIM-LEGACY": 8},
    ("apache_access.log", "legacy", "1000"): {"LIM-LEGACY": 378},
    ("apache_access.log", "public", "1"): {"LIM-PUBLIC": 135},
    ("apache_access.log", "public", "1000"): {"LIM-PUBLIC": 859},
    ("apache_access.log", "management", "1"): {},
    ("apache_access.log", "management", "1000"): {"LIM-MANAGEMENT": 8_999},
    ("apache_access.log", "private", "1"): {},
    ("apache_access.log", "private", "1000"): {},
    ("api_arrivals.csv", "legacy", "1"): {"LIM-LEGACY": 13_563},
    ("api_arrivals.csv", "public", "1"): {"LIM-PUBLIC": 16_703},
    ("api_arrivals.csv", "management", "1"): {"LIM-MANAGEMENT": 12_161},
    ("api_arrivals.csv", "private", "1"): {},
}
"""Requests refused by clause, of 9 999 and 19 366; confirmed by the count below."""


def replayed(log: Path, kind: Kind, speed: str, tenant: TenantKind = "production") -> Result:
    options: dict[str, Any] = {}
    if log.suffix == ".csv":
        request = {"address": "192.0.2.1", "path": "POST /tokenize"}
        options = {"time_column": "TIMESTAMP", "assume": request}
    return replay(log, as_kind=kind, speed=speed, tenant=tenant, **options)


def rules_of(row: dict[str, Any], kind: Kind, tenant: TenantKind) -> list[Row]:
    """Return the rows of section 8.2 to 8.7 that such a request meets, typed in again by hand."""
    pair, key, ip = (row["key"], row["ip"]), (row["key"],), (row["ip"],)
    rules: list[Row] = []
    if tenant == "test":
        rules.append(("LIM-TEST-TENANT", pair, 50, 10, 0))
    if (row["method"], row["path"]) == ("POST", "/tokenize"):
        rules.append(("LIM-CREATE", pair, 200, 10, 0))
    if kind in {"private", "legacy"}:
        rules += [("LIM-PRIVATE.key", key, 2000, 10, 0), ("LIM-PRIVATE.ip", ip, 2000, 10, 0)]
    if kind == "public":
        rules.append(("LIM-PUBLIC", pair, 50, 60, 10))
    if kind == "management":
        rules.append(("LIM-MANAGEMENT", key, 200, 60, 60))
    rules.append(("LIM-IP", ip, 2000, 10, 30))
    if kind == "legacy":
        rules.append(("LIM-LEGACY", pair, 100, 60, 0))
    return rules


def recompute(result: Result, kind: Kind, tenant: TenantKind) -> int:
    """Decide every row again by counting; return how many rows were compared."""
    admitted: dict[tuple[str, tuple[str, ...]], list[int]] = defaultdict(list)
    blocked_until: dict[tuple[str, tuple[str, ...]], int] = defaultdict(int)
    rows = result.table.to_pylist()
    for row in rows:
        t_ns = row["t_ns"]
        rules = rules_of(row, kind, tenant)
        waits = []
        for name, counter, limit, window_s, block_s in rules:
            place = (name, counter)
            history = admitted[place]
            since_ns = t_ns - window_s * SECOND_NS
            inside = len(history) - bisect.bisect_right(history, since_ns)
            if t_ns >= blocked_until[place] and inside >= limit and block_s:
                blocked_until[place] = t_ns + block_s * SECOND_NS
            room_ns = history[-limit] + window_s * SECOND_NS if inside >= limit else t_ns
            until_ns = max(room_ns, blocked_until[place])
            if until_ns > t_ns:
                waits.append((until_ns - t_ns, block_s > 0, name))
        if waits:
            wait_ns, blocks, name = max(waits, key=lambda wait: wait[:2])
            expected: Any = ("blocked" if blocks else "refused", name, wait_ns)
        else:
            expected = ("admitted", None, 0)
            for name, counter, *_ in rules:
                admitted[name, counter].append(t_ns)
        assert (row["outcome"], row["rule"], row["wait_ns"]) == expected
    return len(rows)


def check(log: Path, kind: Kind, speed: str, tenant: TenantKind, rows: int) -> None:
    result = replayed(log, kind, speed, tenant)
    assert recompute(result, kind, tenant) == rows
    assert not result.violations
    assert result.summary["totals"]["offered"] == rows
    refused = result.clauses["refused"]
    if tenant == "production":
        assert refused[refused > 0].to_dict() == FIGURES[log.name, kind, speed]


@pytest.mark.slow
@pytest.mark.parametrize("speed", ["1", "1000"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_decision_of_a_real_log_is_that_of_a_count_over_its_rows(
    shared_data: Path, kind: Kind, speed: str
) -> None:
    check(shared_data / "apache_access.log", kind, speed, "production", 9_999)


@pytest.mark.slow
@pytest.mark.parametrize("speed", ["1", "1000"])
@pytest.mark.parametrize("kind", KINDS)
def test_so_is_every_decision_on_a_test_tenant(shared_data: Path, kind: Kind, speed: str) -> None:
    check(shared_data / "apache_access.log", kind, speed, "test", 9_999)


@pytest.mark.slow
@pytest.mark.parametrize("tenant", ["production", "test"])
@pytest.mark.parametrize("kind", KINDS)
def test_every_decision_of_the_api_log_is_that_of_a_count_over_its_rows(
    shared_data: Path, kind: Kind, tenant: TenantKind
) -> None:
    check(shared_data / "api_arrivals.csv", kind, "1", tenant, 19_366)


def test_the_whole_engine_decides_as_the_limits_alone(shared_data: Path) -> None:
    log = shared_data / "apache_access.log"
    alone = replay(log, as_kind="legacy", speed="1000")
    whole = replay(log, as_kind="legacy", speed="1000", fidelity="engine")
    columns = ["t_ns", "client", "key", "ip", "method", "path", "outcome", "rule", "wait_ns"]
    assert whole.requests[columns].equals(alone.requests[columns])
    assert alone.requests["status"].isna().all()
    statuses = whole.requests["status"]
    assert set(statuses[whole.requests["outcome"] == "refused"]) == {429}
    assert 404 in set(statuses)
