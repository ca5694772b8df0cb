"""What is asked of one answer: each fault by its clause, and silence about what is sound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from conformance.context.check import Check
from conformance.context.context import CheckContext
from conformance.context.session import Session
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.schema.bridge import GeneratedCase
from conformance.schema.layer import GeneratedRequests
from conformance.schema.oracle import record_rules
from conformance.wire.in_process import deploy
from engine import Request

BODY = {"Name": "a value of ours", "card": {"type": "card", "data": {"number": "4242424242424242"}}}


async def _nothing(_: object) -> list[Finding]:
    return []


class Judged:
    """A judge with one answer that a test has made up."""

    def __init__(self) -> None:
        self.deployment = deploy()
        session = Session(self.deployment.target, self.deployment.transport, seed=7)
        ctx = CheckContext(Check("schema.test", (), "says", "accepts", _nothing), session)
        self.judge = GeneratedRequests(ctx)
        self.bridge = self.judge.bridge

    def good(self, body: Any) -> Any:
        label = self.deployment.target.labels("private_prod")[0]
        key = self.deployment.target.key_labels[label].value
        asked = Request("POST", "/tokenize", key=key, ip="192.0.2.1", body=body)
        return self.deployment.engine.handle(asked).body

    def clauses(
        self, body: Any, answer: Any, status: int = 200, *, negative: bool = False
    ) -> set[str]:
        ask = HttpRequest(method="POST", path="/tokenize", key="private_prod.1", body=b"{}")
        self.bridge.exchanges[1] = Exchange(
            1, "schema.test", "main", 1, ask, 0, 1, status, {}, json.dumps(answer).encode()
        )
        asked = GeneratedCase("tokenize", negative, body, 1)
        return {clause for clause, *_ in self.judge.judge(asked)}


@pytest.fixture
def judged() -> Judged:
    return Judged()


def test_a_sound_answer_is_counted_by_its_shapes(judged: Judged) -> None:
    assert judged.clauses(BODY, judged.good(BODY)) == set()
    shapes = {"TOK-COMPOSITE": 1, "TOK-LEAF": 1, "TOK-OBJECT": 1}
    seen = {clause: len(shown) for clause, shown in judged.judge.seen.items()}
    assert seen.items() >= shapes.items()
    assert (seen["REC-CARD-MASK"], "REC-TOKEN-DATA" in seen) == (1, False)


@pytest.mark.parametrize(
    ("field", "value", "clause"),
    [
        ("tenant_id", "acme", "REC-TENANT"),
        ("created_by", "private", "REC-CREATED"),
        ("created_at", "2026-01-01T00:00:00", "REC-CREATED"),
        ("_extras", {"deduplicated": "false"}, "REC-EXTRAS"),
        ("mask", {"number": "4242XXXXXXXXXXXX"}, "REC-CARD-MASK"),
        ("metadata", {}, "REC-METADATA"),
        ("note", "a value of ours", "REC-SECRET"),
        ("note", "4242424242424242", "REC-SECRET"),
    ],
)
def test_each_fault_of_a_record_is_its_clauses(
    judged: Judged, field: str, value: Any, clause: str
) -> None:
    answer = judged.good(BODY)
    answer["card"][field] = value
    assert judged.clauses(BODY, answer) == {clause}


def test_a_redacted_record_shows_no_metadata_without_the_right(judged: Judged) -> None:
    answer = judged.good(BODY)
    answer["card"] |= {"_extras": {"deduplicated": True}, "metadata": {"a": "b"}}
    assert judged.clauses(BODY, answer) == {"REC-DEDUP-REDACT"}


def test_a_valid_body_that_is_refused_fails_its_shape(judged: Judged) -> None:
    assert judged.clauses(BODY, {}, 400) == {"TOK-COMPOSITE"}


@pytest.mark.parametrize(("status", "clauses"), [(400, set()), (422, set()), (500, {"TOK-ATOMIC"})])
def test_an_invalid_body_must_be_refused(judged: Judged, status: int, clauses: set[str]) -> None:
    body = [{"type": "card", "data": {"number": 5}}]
    assert judged.clauses(body, {}, status, negative=True) == clauses


@pytest.mark.parametrize(
    ("body", "clause"),
    [
        ({"type": "token", "data": "x", "metadata": 5}, "TOK-METADATA"),
        ({"type": "token", "data": "x", "search_indexes": 5}, "TOK-INDEXES"),
        ({"type": "token", "data": "x", "fingerprint_expression": 5}, "TOK-FPEXPR"),
        ({"type": "card", "data": {"number": 5}}, "TOK-CARD-DATA"),
        ({"type": "token"}, "TOK-ONE-OF"),
        ({"type": "token", "data": "x", "metadata": 5, "search_indexes": 5}, "TOK-ATOMIC"),
        ([{"type": "card", "data": {"number": 5}}], "TOK-ATOMIC"),
    ],
)
def test_an_invalid_body_that_is_accepted_fails_the_clause_of_its_only_fault(
    judged: Judged, body: Any, clause: str
) -> None:
    assert judged.clauses(body, {}, 201, negative=True) == {clause}


def test_what_the_oracle_accepts_is_no_invalid_body(judged: Judged) -> None:
    assert judged.clauses(["x"], ["y"], 200, negative=True) == set()


def test_forms_of_a_record() -> None:
    broken = {clause for clause, _, is_so in record_rules({}, None) if not is_so}
    assert broken == {"REC-ID", "REC-TENANT", "REC-TYPE", "REC-CREATED", "REC-EXTRAS"}
    redacted = {"_extras": {"deduplicated": True}}
    assert "REC-CREATED" not in {
        clause for clause, _, is_so in record_rules(redacted, None) if not is_so
    }
