"""Rows for any method: what one leaves out, and whom its block reaches; readings never fail.

LIM-TEST-TENANT, LIM-PUBLIC, LIM-MANAGEMENT, LIM-LEGACY.
"""

from __future__ import annotations

import pytest

from conformance.faults.registry import (
    Fault,
    FaultyEngine,
    Submit,
    all_faults,
    fault_of,
    json_of,
)
from conformance.runner.verdicts import Verdict
from engine import Request, Response
from tests.conformance.probes.measured import jittery, play
from tests.conformance.probes.test_reference import ALGORITHMS


@pytest.mark.parametrize(
    ("fault_id", "row", "operation"),
    [
        ("any-without-delete-LIM-MANAGEMENT", "LIM-MANAGEMENT", "DELETE /tokens/{id}"),
        ("any-without-all-but-post-LIM-PUBLIC", "LIM-PUBLIC", "GET /tokens"),
        ("any-without-get-LIM-LEGACY", "LIM-LEGACY", "GET /tokens"),
        ("any-without-patch-LIM-TEST-TENANT", "LIM-TEST-TENANT", "PATCH /tokens/{id}"),
    ],
)
def test_a_row_that_leaves_a_method_out_fails(fault_id: str, row: str, operation: str) -> None:
    """What is answered while the key is refused before and after is not counted."""
    all_faults()
    found = play("classes", "any", engine=fault_of(fault_id).engine)
    assert found.failed == {row}
    assert f"{operation} is answered" in found.says(row)


def test_a_block_that_reaches_other_keys_and_addresses_is_no_reading_of_the_pair() -> None:
    """D-AND-COUNTER: where other rows count the pair, a block reaches the pair alone."""
    all_faults()
    faulty = fault_of("block-of-key-and-address-LIM-PUBLIC").engine
    found = play("LIM-SEARCH", "LIM-PUBLIC", engine=faulty)
    assert found.failed == {"LIM-PUBLIC"}
    assert "the block covers more than what counts" in found.says("LIM-PUBLIC")


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_no_way_of_counting_is_failed_over_a_slow_line(algorithm: str) -> None:
    """D-ALGORITHM: room that comes back between two refusals is no operation left out."""
    found = play("classes", "any", algorithm=algorithm, latency=jittery(5, 40, 60))
    assert found.failed == set()


def test_failures_that_meet_no_limit_are_a_reading() -> None:
    """D-COUNTED: where successes alone count, a failure tells nothing of the row."""
    assert play("classes", "any", counted_statuses="success").failed == set()


def test_a_first_answer_that_is_no_json_ends_no_check() -> None:
    """Then no identifier is known, and operations on one are tried with made-up ones."""

    async def around(_: FaultyEngine, request: Request, submit: Submit) -> Response:
        response = await submit(request)
        body = json_of(request)
        if isinstance(body, dict) and "second" in body:
            response.body = b"<html>"
        return response

    faulty = Fault("no-json", "LIM-TEST-TENANT", "no JSON", around=around).engine
    found = play("any", engine=faulty)
    assert {one.verdict for one in found.run.findings} == {Verdict.PASS}


def test_a_target_without_the_keys_leaves_the_rows_judged() -> None:
    """What the check cannot ask for is a remark beside what the row's own check shows."""
    keys = tuple(one for one in play("any").run.target.keys if one.role != "management")
    found = play("classes", target={"keys": keys})
    of_row = [one for one in found.run.findings if one.clause == "LIM-PUBLIC"]
    assert {one.verdict for one in of_row} <= {Verdict.INFORMATIONAL}
