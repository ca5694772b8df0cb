"""What a refusal says in its headers (D-429-HEADERS): remarks, and never the end of the check."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.context.verdicts import Verdict
from conformance.messages.exchange import HttpRequest
from conformance.wire.transport import Answer
from tests.conformance.checks.changed import judged


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("Retry-After", "soon", "Retry-After = 'soon' must be a whole number of seconds, at least"),
        ("Retry-After", "0", "Retry-After = '0' must be a whole number of seconds, at least 1"),
        ("Retry-After", "7200", "Retry-After = 7200 s is longer than any row may refuse (120 s)"),
        ("RateLimit", '"LIM-TEST-TENANT";r=3;t=2', "on a refusal: the remaining quota must be r=0"),
    ],
)
def test_a_wrong_header_of_a_refusal_is_a_remark(name: str, text: str, says: str) -> None:
    def with_header(_: HttpRequest, answer: Answer) -> Answer:
        if answer.status != 429:
            return answer
        return dataclasses.replace(answer, headers={**answer.headers, name: text})

    found = judged("limits.status", with_header)
    assert [one.message for one in found if one.verdict is Verdict.PASS]
    told = [one for one in found if one.verdict is not Verdict.PASS]
    assert [one.verdict for one in told] == [Verdict.INFORMATIONAL]
    assert says in told[0].message
