"""Limiters that are wrong in one small way are caught by the check of that clause."""

from __future__ import annotations

from typing import Any

import pytest

from engine import Engine, LimitTable, Request, Response
from tests.conformance.probes.measured import SECOND_NS, play

SEED = LimitTable.default()
THROTTLES = [rule.id for rule in SEED if rule.action == "throttle"]
TEN_SECONDS = [each for each in THROTTLES if each != "LIM-LEGACY"]
BLOCKS = ("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-IP")
QUICK = {"LIM-SEARCH", "LIM-PUBLIC"}


def slow_but(ids: list[str] | tuple[str, ...]) -> list[Any]:
    """The rows as parameters, all but two of them slow."""
    return [each if each in QUICK else pytest.param(each, marks=pytest.mark.slow) for each in ids]


def changed(rule_id: str, *, more: int = 0, window_per_cent: int = 100) -> LimitTable:
    """The seed's table with one row a little off."""
    rate = SEED[rule_id].rate
    window_ns = rate.window_ns * window_per_cent // 100
    off = rate._replace(limit_requests=rate.limit_requests + more, window_ns=window_ns)
    return SEED.replace_rule(rule_id, rate=off)


class Unavailable(Engine):
    """Says 503 where it should say 429."""

    async def submit(self, request: Request) -> Response:
        answer = await super().submit(request)
        if answer.status == 429:
            answer.status = 503
        return answer


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("rule_id", slow_but(THROTTLES))
def test_a_limit_off_by_one(rule_id: str, more: int) -> None:
    assert play(rule_id, table=changed(rule_id, more=more)).failed == {rule_id}


@pytest.mark.parametrize("per_cent", [90, 110])
@pytest.mark.parametrize(
    "rule_id",
    slow_but([each for each in TEN_SECONDS if each not in {"LIM-PRIVATE", "LIM-ACCOUNT-UPDATER"}]),
)
def test_a_window_off_by_a_tenth(rule_id: str, per_cent: int) -> None:
    found = play(rule_id, table=changed(rule_id, window_per_cent=per_cent))
    assert found.failed == {rule_id}
    assert f"per {per_cent // 10} s" in found.says(rule_id)


@pytest.mark.parametrize("rule_id", slow_but(BLOCKS))
def test_a_block_that_is_missing(rule_id: str) -> None:
    table = SEED.replace_rule(rule_id, action="throttle", block_ns=None)
    assert play(rule_id, table=table).failed == {rule_id}


@pytest.mark.parametrize("per_cent", [90, 110])
@pytest.mark.parametrize("rule_id", slow_but(BLOCKS))
def test_a_block_that_is_too_short_or_too_long(rule_id: str, per_cent: int) -> None:
    block_ns = (SEED[rule_id].block_ns or 0) * per_cent // 100
    assert play(rule_id, table=SEED.replace_rule(rule_id, block_ns=block_ns)).failed == {rule_id}


def test_any_block_rule_broken_fails_the_clause_about_blocks() -> None:
    table = SEED.replace_rule("LIM-PUBLIC", block_ns=9 * SECOND_NS)
    assert play("block", table=table).failed == {"LIM-BLOCK"}


def test_a_throttle_that_only_watches_is_shown_by_what_it_let_in_last() -> None:
    found = play("throttle", table=SEED.replace_rule("LIM-TEST-TENANT", shadow=True))
    assert found.failed == {"LIM-THROTTLE"}
    (told,) = [one for one in found.run.findings if one.clause == "LIM-THROTTLE"]
    own = [one for one in found.run.session.exchanges.values() if one.check == told.check]
    assert told.evidence == tuple(one.number for one in own[-2:])


def test_a_throttle_that_blocks() -> None:
    table = SEED.replace_rule("LIM-TEST-TENANT", action="block", block_ns=30 * SECOND_NS)
    assert play("throttle", table=table).failed == {"LIM-THROTTLE"}


@pytest.mark.parametrize(("counter", "says"), [("key", "key only"), ("ip", "address only")])
@pytest.mark.parametrize("rule_id", slow_but(["LIM-SEARCH", "LIM-TEST-TENANT", "LIM-LEGACY"]))
def test_a_counter_by_one_of_both(rule_id: str, counter: Any, says: str) -> None:
    found = play(rule_id, and_counter=counter)
    assert found.failed == {rule_id}
    assert f"counted by {says}" in found.says(rule_id)


@pytest.mark.slow
def test_management_counted_by_address_too() -> None:
    table = SEED.replace_rule("LIM-MANAGEMENT", counter="ip+key")
    assert play("LIM-MANAGEMENT", table=table).failed == {"LIM-MANAGEMENT"}


def test_a_counter_of_its_own_for_each_of_two_resources() -> None:
    found = play("LIM-CREATE", "LIM-READ", or_resource="separate")
    assert found.failed == {"LIM-CREATE", "LIM-READ"}
    assert "POST /tokens is still answered: it must share this row's counter" in found.says(
        "LIM-CREATE"
    )


def test_only_the_lowest_rule_counts() -> None:
    assert play("lowest", compose="lowest").failed == {"LIM-LOWEST"}


def test_503_for_429_fails_its_own_clause_alone() -> None:
    found = play("status", "LIM-SEARCH", "LIM-PUBLIC", engine=Unavailable)
    assert found.failed == {"ERR-429"}


def test_no_limit_at_all() -> None:
    table = LimitTable(tuple(rule for rule in SEED if rule.id != "LIM-SEARCH"))
    found = play("LIM-SEARCH", table=table)
    assert found.failed == {"LIM-SEARCH"}
    assert "none was refused or slowed" in found.says("LIM-SEARCH")


@pytest.mark.parametrize(
    ("rule_id", "clause"),
    [("LIM-PUBLIC", "AUTH-KINDS"), ("LIM-MANAGEMENT", "AUTH-KINDS"), ("LIM-LEGACY", "AUTH-LEGACY")],
)
def test_a_class_without_its_rate(rule_id: str, clause: str) -> None:
    table = LimitTable(tuple(rule for rule in SEED if rule.id != rule_id))
    assert play("classes", table=table).failed == {clause}


@pytest.mark.slow
def test_among_other_rows_a_minute_that_is_off_is_never_passed() -> None:
    """Alone it may be a sliding counter; beside rows that are logs it cannot be."""
    found = play("LIM-SEARCH", "LIM-LEGACY", table=changed("LIM-LEGACY", window_per_cent=110))
    assert [one.clause for one in found.bad] == ["LIM-LEGACY"]
