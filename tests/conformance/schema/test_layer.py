"""The schema layer, over real HTTP and on virtual time: it fails what is wrong, and that alone."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import hypothesis
import pytest
from schemathesis.generation.hypothesis.examples import default_settings

from conformance.context.check import Check, all_checks
from conformance.context.context import CheckContext
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Verdict
from conformance.faults import fault_of
from conformance.faults.trial import served
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.runner.offline import judge
from conformance.runner.runner import Options, Run
from conformance.schema.adapter import explore
from conformance.schema.bridge import GeneratedCase
from conformance.schema.layer import GeneratedRequests
from conformance.schema.oracle import Contradiction, record_rules
from conformance.wire.in_process import deploy
from engine import Engine, Request
from tests.conformance.live import in_place_of_http

FLOOR, CEILING, LINKS = "schema.floor", "schema.ceiling", "schema.links"
KNOWN_BAD = [
    ("key-lower-cased", FLOOR, "TOK-PLAIN"),
    ("last-item-dropped", FLOOR, "TOK-ARRAY"),
    ("mask-last-four-first", FLOOR, "REC-CARD-MASK"),
    ("naive-timestamp", FLOOR, "REC-CREATED"),
    ("secret-in-header", FLOOR, "REC-SECRET"),
    ("broken-json-accepted", CEILING, "TOK-ATOMIC"),
    ("no-key-accepted", LINKS, "AUTH-HEADER"),
]


def _run(fault_id: str | None, *checks: str) -> Run:
    """Play checks as a live run does, on virtual time."""
    made = deploy(engine=Engine if fault_id is None else fault_of(fault_id).engine)
    with in_place_of_http(made.engine):
        run = Run(made.target, Options(checks=checks, seed=7))
        run.execute()
    return run


def _failed(findings: Iterable[Finding]) -> set[str]:
    return {one.clause for one in findings if one.verdict is Verdict.FAIL}


@pytest.mark.slow
def test_the_reference_passes_over_http() -> None:
    with served() as target:
        run = Run(target, Options(checks=(FLOOR, CEILING, LINKS), seed=7))
        run.execute()
    assert {one.verdict for one in run.findings} == {Verdict.PASS}


@pytest.mark.slow
def test_a_run_repeats_its_requests() -> None:
    first, again = (
        [(one.ask.method, one.ask.body) for one in _run(None, FLOOR).session.exchanges.values()]
        for _ in range(2)
    )
    assert len(first) > 100
    assert first == again


@pytest.mark.slow
@pytest.mark.parametrize(("fault_id", "check", "clause"), KNOWN_BAD)
def test_known_bad_servers_fail_their_clause(fault_id: str, check: str, clause: str) -> None:
    run = _run(fault_id, check)
    assert clause in _failed(run.findings)
    shown = [one.evidence for one in run.findings if one.clause == clause]
    assert all(evidence for evidence in shown)


def test_every_check_that_runs_over_http_alone_has_a_fault() -> None:
    """The self-test sees to the other checks."""
    alone = {one.id for one in all_checks().values() if one.is_generated}
    assert {check for _, check, _ in KNOWN_BAD} == alone


@pytest.mark.slow
def test_no_key_text_reaches_the_generator_and_all_is_deleted_again() -> None:
    run = _run(None, LINKS)
    report = {one.status for one in run.session.exchanges.values() if one.ask.method == "DELETE"}
    assert 204 in report
    texts = [key.value for key in run.target.keys if key.value]
    sent = "".join(str(one.ask.headers) for one in run.session.exchanges.values())
    assert not any(text in sent for text in texts)
    assert len(run.session.created) == 0


def test_in_virtual_time_it_is_left_out() -> None:
    deployment = deploy()
    run = Run(deployment.target, Options(seed=7), transport=deployment.transport)
    assert not any(dealt.check.id.startswith("schema.") for dealt in run.plan().dealt)


@pytest.mark.slow
def test_a_run_in_virtual_time_says_so_and_is_partial(tmp_path: Path) -> None:
    deployment = deploy()
    asked = Options(select=("TOK-OBJECT", "TOK-JSON"), seed=7)
    report = Run(deployment.target, asked, transport=deployment.transport, out=tmp_path).execute()
    assert {one.verdict for one in report.results} == {Verdict.PASS}
    assert report.notes == ("schema.floor: generated requests are sent over HTTP only",)
    assert report.verdict_line.startswith("partial: 2 passed")
    assert "not run: schema.floor" in report.verdict_line
    judged = judge(tmp_path)
    assert judged.verdict_line == report.verdict_line
    assert set(report.notes) <= set(judged.notes)
    without = Options(select=("TOK-JSON",), seed=7)
    alone = Run(deployment.target, without, transport=deploy().transport).execute()
    assert (alone.notes, alone.partial) == ((), False)


# --- one answer ----------------------------------------------------------------------------------


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


# --- settings ------------------------------------------------------------------------------------


class _Asks:
    """A bridge that answers everything, and remembers by which settings examples are drawn."""

    stopped = None
    key_header = "SVC-API-KEY"

    def __init__(self) -> None:
        self.fixed: set[bool] = set()
        self.failures: list[tuple[Contradiction, int]] = []
        self.errors: list[str] = []

    def __call__(self, environ: Any, start_response: Any) -> list[bytes]:
        self.fixed.add(default_settings().derandomize)
        start_response("200 OK", [("Content-Type", "application/json")])
        return [b"{}"]


@pytest.mark.slow
def test_settings_of_an_earlier_user_of_the_library_are_not_kept() -> None:
    """The library keeps the settings that held when it drew its first single example."""
    document = {
        "openapi": "3.1.0",
        "info": {"title": "t", "version": "1"},
        "paths": {"/a": {"get": {"operationId": "a", "responses": {"200": {"description": "a"}}}}},
    }
    before = hypothesis.settings.get_current_profile_name()
    hypothesis.settings.register_profile("of the user", derandomize=True)
    hypothesis.settings.load_profile("of the user")
    try:
        default_settings.cache_clear()
        assert default_settings().derandomize
        asks = _Asks()
        explore(
            document,
            asks,  # type: ignore[arg-type] # reason: all that it needs of a bridge
            lambda asked: [],
            keys=[],
            mode="positive",
            phases=("fuzzing",),
            examples=1,
            seed=1,
        )
        assert (asks.fixed, asks.errors) == ({False}, [])
        assert default_settings().derandomize
    finally:
        hypothesis.settings.load_profile(before)
        default_settings.cache_clear()
