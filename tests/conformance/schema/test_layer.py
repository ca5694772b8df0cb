"""The schema layer, over real HTTP and on virtual time: it fails what is wrong, and that alone."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from conformance.context.check import all_checks
from conformance.context.verdicts import Finding, Verdict
from conformance.faults import fault_of
from conformance.faults.trial import served
from conformance.runner.offline import judge
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from engine import Engine
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
