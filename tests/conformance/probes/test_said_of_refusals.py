"""What the checks say of refusals: a Retry-After that is untrue, and whose class a key got."""

from __future__ import annotations

import re
from typing import Any

import pytest

from conformance.faults.access import change_subjects
from conformance.faults.registry import Fault, FaultyEngine, Submit
from conformance.runner.verdicts import Verdict
from engine import Request, Response, Subject
from tests.conformance.probes.measured import play


def test_a_retry_after_that_is_too_short_is_told_with_what_shows_it() -> None:
    """ERR-429 asks for no Retry-After (D-429-HEADERS); one that is there should be true."""

    async def around(_: FaultyEngine, request: Request, submit: Submit) -> Response:
        response = await submit(request)
        if response.status == 429:
            response.headers["Retry-After"] = "1"
        return response

    found = play("status", engine=Fault("hasty", "ERR-429", "too short", around=around).engine)
    (told,) = [one for one in found.run.findings if "still refused" in one.says]
    assert told.verdict is Verdict.INFORMATIONAL
    assert "Retry-After of 1 s had passed" in told.says
    assert len(told.evidence) == 2, "the refusal, and the one after the wait"


def test_a_private_key_in_the_class_of_public_ones_is_not_taken_for_a_legacy_key() -> None:
    """AUTH-KINDS fails by itself; it would follow from AUTH-LEGACY if the rate were legacy's."""

    def fields(subject: Subject) -> dict[str, Any]:
        return {"application_kind": "public"} if subject.application_kind == "private" else {}

    def prepare(engine: FaultyEngine) -> None:
        change_subjects(engine, fields)

    faulty = Fault("private-as-public", "AUTH-KINDS", "one class", prepare=prepare).engine
    found = play("classes", engine=faulty)
    (told,) = [one for one in found.run.findings if "a private key is refused within" in one.says]
    assert (told.verdict, told.clause, told.follows) == (Verdict.FAIL, "AUTH-KINDS", None)


@pytest.mark.parametrize("reset", ["keep", "clear"])
def test_a_block_that_passes_says_between_which_instants_it_was_seen_to_end(reset: str) -> None:
    """LIM-BLOCK: also where room for fewer is left, so that requests are refused again."""
    found = play("block", block_reset=reset)
    (says,) = [one.says for one in found.run.findings if "block of 10 s" in one.says]
    told = re.search(
        r"; still refused (\d+\.\d\d) s after the block began and answered again after (\S+) s",
        says,
    )
    assert told is not None
    assert 9.9 < float(told[1]) < 10 < float(told[2]) < 10.1
