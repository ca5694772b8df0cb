"""Which layer fired: what shares a counter, whom a block shuts out, and what no probe may fill.

LIM-PATCH, LIM-DELETE, LIM-CREATE, LIM-READ, LIM-SEARCH, LIM-ACCOUNT-UPDATER, LIM-PUBLIC,
LIM-MANAGEMENT.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from conformance.faults.access import change_subjects
from conformance.faults.registry import Fault, FaultyEngine, Submit
from conformance.probes import signature
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from engine import LimitTable, Request, Response
from tests.conformance.probes.measured import SECOND_NS, play

LONG_NS = 20 * SECOND_NS
SEED = LimitTable.default()


def test_probes_that_are_sent_again_do_not_meet_the_other_resources_own_limit(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """LIM-PATCH asks LIM-SEARCH's resource, which has room for 50 where its own has for 200."""
    monkeypatch.setattr(signature, "_size", lambda rate, lasts_ns: 20)
    monkeypatch.setattr(signature.Signature, "tells", property(lambda self: False))
    deployment = deploy()
    asked = Options(checks=("limits.LIM-PATCH",), select=("LIM-PATCH",), seed=1)
    report = Run(deployment.target, asked, transport=deployment.transport).execute()
    searches = [one for one in report.exchanges.values() if one.ask.path == "/tokens/search"]
    assert len(searches) == 80, "sent again, while there is room, and once more after a rest"
    assert not [one for one in searches if one.refused]


def _together(rule_id: str, other_id: str) -> LimitTable:
    """Return the table whose one row counts the other's resources too."""
    resource = SEED[rule_id].match.resource + SEED[other_id].match.resource
    match = dataclasses.replace(SEED[rule_id].match, resource=resource)
    return SEED.replace_rule(rule_id, match=match).replace_rule(other_id, shadow=True)


@pytest.mark.parametrize(
    ("rule_id", "other_id", "asked"),
    [
        ("LIM-PATCH", "LIM-DELETE", "DELETE /tokens/{id}"),
        ("LIM-DELETE", "LIM-PATCH", "PATCH /tokens/{id}"),
        ("LIM-CREATE", "LIM-PATCH", "PATCH /tokens/{id}"),
        ("LIM-READ", "LIM-SEARCH", "POST /tokens/search"),
        ("LIM-SEARCH", "LIM-READ", "GET /tokens"),
    ],
)
def test_two_rows_that_share_a_counter_fail(rule_id: str, other_id: str, asked: str) -> None:
    """Each row of the seed's table counts its own resources only."""
    found = play(rule_id, table=_together(rule_id, other_id))
    assert found.failed == {rule_id}
    assert f"{asked} is refused too: it must not share this row's counter" in found.says(rule_id)


def test_a_wildcard_row_that_leaves_a_method_out_fails() -> None:
    """ANY /account-updater/*: jobs that are created count as those that are listed."""
    match = dataclasses.replace(
        SEED["LIM-ACCOUNT-UPDATER"].match, resource=("GET /account-updater/*",)
    )
    table = SEED.replace_rule("LIM-ACCOUNT-UPDATER", match=match)
    found = play("LIM-ACCOUNT-UPDATER", table=table)
    assert found.failed == {"LIM-ACCOUNT-UPDATER"}
    assert "POST /account-updater/jobs is still answered" in found.says("LIM-ACCOUNT-UPDATER")


def test_one_counter_for_everybody_is_no_reading_of_the_pair() -> None:
    """D-AND-COUNTER: one counter a key and one an address leave other keys elsewhere alone."""

    def prepare(engine: FaultyEngine) -> None:
        everybody = {"key_id": "all", "ip": "192.0.2.1"}
        change_subjects(engine, lambda one: everybody if "search" in one.path else {})

    faulty = Fault("one-for-all", "LIM-SEARCH", "one counter", prepare=prepare).engine
    found = play("LIM-SEARCH", engine=faulty)
    assert found.failed == {"LIM-SEARCH"}
    assert "the row has one counter for all" in found.says("LIM-SEARCH")


def _in_the_middle(kind: str, change: Callable[[Response, bool], Response]) -> Fault:
    """Return a fault of the middle of a key's block; change: the answer, is it where it began."""

    async def around(engine: FaultyEngine, request: Request, submit: Submit) -> Response:
        caller = engine.identify(request)
        response = await submit(request)
        if caller is None or caller.application.kind != kind:
            return response
        now_ns = engine.clock.now_ns
        place = f"block {request.key}"
        begun_ns, _, address = engine.notes.get(place, f"{-LONG_NS} ").partition(" ")
        age_ns = now_ns - int(begun_ns)
        if age_ns >= LONG_NS and response.decision.outcome == "blocked":
            engine.notes[place] = f"{now_ns} {request.ip}"
        elif 3 * SECOND_NS < age_ns < 7 * SECOND_NS:
            return change(response, address == request.ip)
        return response

    return Fault("middle", "LIM-BLOCK", "the middle of a block", around=around)


def test_whom_a_block_shuts_out_is_looked_at_in_its_middle_too() -> None:
    """LIM-PUBLIC counts the pair: in the middle of its block another address is answered."""

    def refused(response: Response, is_there: bool) -> Response:
        del is_there
        return dataclasses.replace(response, status=429)

    found = play("LIM-PUBLIC", engine=_in_the_middle("public", refused).engine)
    assert found.failed == {"LIM-PUBLIC"}
    assert "in the middle of the block: " in found.says("LIM-PUBLIC")


def test_a_block_of_the_key_holds_at_every_address_in_its_middle_too() -> None:
    """LIM-MANAGEMENT counts the key: nothing lets it in again from elsewhere."""

    def let_in(response: Response, is_there: bool) -> Response:
        return response if is_there else dataclasses.replace(response, status=200)

    fault = _in_the_middle("management", let_in)
    table = SEED.replace_rule("LIM-MANAGEMENT", block_ns=10 * SECOND_NS)
    found = play("LIM-MANAGEMENT", table=table, told_table=table, engine=fault.engine)
    assert found.failed == {"LIM-MANAGEMENT"}
    assert "the same key at another address is still answered" in found.says("LIM-MANAGEMENT")
