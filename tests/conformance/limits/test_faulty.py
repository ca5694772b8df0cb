"""Limiters that are wrong in one way fail the clause of that row, and no other.

Every row of the limit table, LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK, ERR-429, AUTH-KINDS, AUTH-LEGACY.
"""

from __future__ import annotations

from typing import Any

import pytest

from conformance.wire.transport import Latency
from engine import Engine, LimitTable, Request, Response
from engine.limits import Rule
from tests.conformance.limits.measured import Stalling, jittery, play

SEED = LimitTable.default()
THROTTLES = [rule.id for rule in SEED if rule.action == "throttle" and rule.id != "LIM-PRIVATE"]
BLOCKS = ("LIM-PUBLIC", "LIM-MANAGEMENT")
QUICK = {"LIM-SEARCH"}


def slow_but(ids: list[str] | tuple[str, ...]) -> list[Any]:
    """Return the rows as parameters, all but one of them slow; the first, where none is quick."""
    quick = QUICK & {*ids} or {ids[0]}
    return [each if each in quick else pytest.param(each, marks=pytest.mark.slow) for each in ids]


def changed(rule_id: str, *, more: int = 0, per_cent: int = 100, window: int = 100) -> LimitTable:
    """Return the seed's table with one row a little off."""
    rate = SEED[rule_id].rate
    off = rate._replace(
        limit_requests=rate.limit_requests * per_cent // 100 + more,
        window_ns=rate.window_ns * window // 100,
    )
    return SEED.replace_rule(rule_id, rate=off)


@pytest.mark.parametrize("change", [{"more": -1}, {"more": 1}, {"per_cent": 90}, {"per_cent": 110}])
@pytest.mark.parametrize("rule_id", slow_but([*THROTTLES, *BLOCKS]))
def test_a_number_that_is_off(rule_id: str, change: dict[str, int]) -> None:
    table = changed(rule_id, **change)
    if table[rule_id].limit_requests == SEED[rule_id].limit_requests:
        pytest.skip("the same number")
    found = play(rule_id, table=table, latency=jittery(1, 2, 4))
    assert rule_id in found.failed
    assert found.failed <= {rule_id, "LIM-BLOCK"}


@pytest.mark.parametrize("latency", [None, jittery(1, 300, 300)], ids=["none", "0.6 s"])
def test_one_more_of_a_block_fails_on_any_network(latency: Latency | None) -> None:
    """On a slow one a burst lasts so long that a bucket would regain one."""
    table = changed("LIM-PUBLIC", more=1)
    found = play("LIM-PUBLIC", table=table, latency=latency, seed=1)
    assert found.failed == {"LIM-PUBLIC"}


@pytest.mark.parametrize("per_cent", [90, 110])
@pytest.mark.parametrize("rule_id", slow_but([*THROTTLES, *BLOCKS]))
def test_a_window_that_is_off_by_a_tenth(rule_id: str, per_cent: int) -> None:
    found = play(rule_id, table=changed(rule_id, window=per_cent), latency=jittery(1, 2, 4))
    assert rule_id in found.failed


@pytest.mark.slow
@pytest.mark.parametrize("per_cent", [0, 90, 110, 200])
@pytest.mark.parametrize("rule_id", slow_but(BLOCKS))
def test_a_block_that_is_off(rule_id: str, per_cent: int) -> None:
    table = SEED.replace_rule(rule_id, action="throttle", block_ns=None)
    if per_cent:
        block_ns = (SEED[rule_id].block_ns or 0) * per_cent // 100
        table = SEED.replace_rule(rule_id, block_ns=block_ns)
    assert rule_id in play(rule_id, table=table).failed


@pytest.mark.parametrize("counter", ["key", "ip"])
@pytest.mark.parametrize("rule_id", slow_but(["LIM-SEARCH", "LIM-LEGACY"]))
def test_a_counter_by_one_of_both(rule_id: str, counter: Any) -> None:
    found = play(rule_id, and_counter=counter)
    assert found.failed == {rule_id}
    assert "not of the pair" in found.says(rule_id)


def test_a_counter_by_key_fails_when_it_is_measured_again() -> None:
    """The first measurement has filled the keys' counters, so the second one waits for them."""
    found = play("LIM-SEARCH", and_counter="key", latency=jittery(1, 2, 150), seed=1)
    assert found.failed == {"LIM-SEARCH"}
    assert "not of the pair" in found.says("LIM-SEARCH")


def test_one_less_where_refused_requests_count() -> None:
    """Only a bucket may admit fewer than its row's number at once."""
    table = changed("LIM-SEARCH", more=-1)
    found = play("LIM-SEARCH", table=table, algorithm="sliding-counter", count_refused=True)
    assert found.failed == {"LIM-SEARCH"}


@pytest.mark.parametrize("rule_id", slow_but([*THROTTLES, *BLOCKS]))
def test_no_limit_at_all(rule_id: str) -> None:
    """A row without a limiter fails alone, whatever its requests are answered."""
    found = play(rule_id, table=LimitTable(tuple(rule for rule in SEED if rule.id != rule_id)))
    assert rule_id in found.failed


class Unavailable(Engine):
    """Answers 503 where it should answer 429."""

    status = 503

    async def submit(self, request: Request) -> Response:
        answer = await super().submit(request)
        if answer.status == 429:
            answer.status = self.status
        return answer


class Forbidden(Unavailable):
    """Answers 403 where it should answer 429."""

    status = 403


class Cheerful(Unavailable):
    """Answers 200 with an error where it should answer 429."""

    status = 200


@pytest.mark.slow
@pytest.mark.parametrize("engine", [Unavailable, Forbidden, Cheerful])
def test_another_status_than_429_fails_its_own_clause_alone(engine: type[Engine]) -> None:
    found = play("LIM-TEST-TENANT", "LIM-PUBLIC", engine=engine)
    assert found.failed == {"ERR-429"}
    assert "must be 429" in found.says("ERR-429")


class Unanswering(Engine):
    """Answers 502 to every tenth request, as a balancer does whose node is gone."""

    count = 0

    async def submit(self, request: Request) -> Response:
        answer = await super().submit(request)
        self.count += request.path.startswith("/tokens/search")
        if self.count % 10 == 9 and request.path.startswith("/tokens/search"):
            answer.status = 502
        return answer


def test_a_balancers_answers_are_never_evidence() -> None:
    assert play("LIM-SEARCH", engine=Unanswering).failed == set()


@pytest.mark.parametrize(
    ("rule_id", "clause"),
    [("LIM-PUBLIC", "AUTH-KINDS"), ("LIM-MANAGEMENT", "AUTH-KINDS"), ("LIM-LEGACY", "AUTH-LEGACY")],
)
def test_a_class_without_its_rate(rule_id: str, clause: str) -> None:
    table = LimitTable(tuple(rule for rule in SEED if rule.id != rule_id))
    assert play("classes", table=table).failed == {clause}


def test_only_the_lowest_rule_counts() -> None:
    assert play("lowest", compose="lowest").failed == {"LIM-LOWEST"}


def shadowed(rule: Rule) -> LimitTable:
    return SEED.replace_rule(rule.id, shadow=True)


def test_a_throttle_that_only_watches() -> None:
    found = play("LIM-TEST-TENANT", table=shadowed(SEED["LIM-TEST-TENANT"]))
    assert {"LIM-TEST-TENANT", "LIM-THROTTLE"} <= found.failed


@pytest.mark.slow
@pytest.mark.parametrize("change", [{"more": -1}, {"per_cent": 90}, {"window": 110}])
@pytest.mark.parametrize("rule_id", ["LIM-PRIVATE", "LIM-IP"])
def test_heavy_rows_that_are_off(rule_id: str, change: dict[str, int]) -> None:
    assert rule_id in play(rule_id, table=changed(rule_id, **change)).failed


def test_a_missing_limit_fails_beside_pauses_of_the_machine() -> None:
    """All callers waited alike, so the limiter held nobody back: more requests decide."""
    table = changed("LIM-PROXY-KEY", per_cent=10_000)
    latency = Stalling(14, 1, 1.0)
    found = play("LIM-PROXY-KEY", table=table, told_table=SEED, latency=latency, seed=0)
    assert "LIM-PROXY-KEY" in found.failed
