"""What goes wrong in a few answers of a hundred is found, told with its share, and is one cause."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import HttpRequest
from conformance.runner.offline import judge
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from conformance.wire.transport import Answer, Place

CHECKS = ("model.sequences",)


def _findings(
    change: Callable[[HttpRequest, Answer, int], None],
    out: Path | None = None,
    checks: tuple[str, ...] = CHECKS,
) -> tuple[list[Finding], Run]:
    """Judge a deployment that changes its answers to tokenize, by their number."""
    deployment = deploy(keys_a_role=1)
    send = deployment.transport.send
    count = 0

    async def changed(ask: HttpRequest, place: Place) -> Answer:
        nonlocal count
        answer = await send(ask, place)
        if ask.path == "/tokenize" and place.check != "preflight":
            count += 1
            change(ask, answer, count)
        return answer

    deployment.transport.send = changed  # type: ignore[method-assign] # reason: a service of its own
    options = Options(checks=checks, seed=5)
    run = Run(deployment.target, options, transport=deployment.transport, out=out)
    run.execute()
    return run.findings, run


def _failed(findings: list[Finding]) -> list[Finding]:
    return [finding for finding in findings if finding.verdict is Verdict.FAIL]


@pytest.mark.slow
def test_a_sporadic_error_is_one_clauses_and_no_others(tmp_path: Path) -> None:
    """One 500 among many answers was told as a container that has no name."""

    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if number == 90:
            answer.status, answer.body = 500, b"{}"

    findings, run = _findings(change, tmp_path)
    (failed,) = _failed(findings)
    assert " got 500: in 1 of " in failed.message
    assert failed.message.endswith(" sequences, and right when sent again")
    assert failed.evidence
    again = judge(tmp_path).result(failed.clause)
    assert [one.message for one in again.findings if one.verdict is Verdict.FAIL] == [
        failed.message
    ]
    assert run.session.exchanges


@pytest.mark.slow
@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_sporadic_refusal_of_a_valid_body_is_sporadic_too(status: int) -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        body = ask.body
        is_plain = isinstance(body, list) and all(isinstance(part, str) for part in body)
        seen.append(is_plain and answer.status == 200 and number > 60)
        if seen[-1] and sum(seen) == 2:
            answer.status, answer.body = status, b"{}"

    seen: list[bool] = []
    (failed,) = _failed(_findings(change)[0])
    assert failed.clause == "TOK-ARRAY"
    assert failed.message.startswith(f"tokenize must be accepted, got {status}: in 1 of ")


@pytest.mark.slow
def test_a_mask_that_is_wrong_once_is_found() -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        seen.append(b'"XXXXXXXXXXXX' in answer.body and number > 60)
        if sum(seen) == 2 and seen[-1]:
            answer.body = answer.body.replace(b'"XXXXXXXXXXXX', b'"424242XXXXXX')

    seen: list[bool] = []
    (failed,) = _failed(_findings(change)[0])
    assert failed.clause == "REC-CARD-MASK"
    assert failed.message.endswith("right when sent again")


def test_what_is_always_wrong_is_not_called_right_again() -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if isinstance(ask.body, list) and answer.status == 200:
            answer.body = b"[]"

    failed = _failed(_findings(change)[0])
    assert failed[0].clause == "TOK-ARRAY"
    assert not any("sent again" in finding.message for finding in failed)


@pytest.mark.slow
def test_a_calm_run_passes_with_the_number_of_answers() -> None:
    findings = {finding.clause: finding for finding in _findings(lambda *_: None)[0]}
    assert findings["TOK-OBJECT"].verdict is Verdict.PASS
    assert findings["TOK-OBJECT"].message.endswith(" answers are those of the reference")


def _identifiers(answer: Answer) -> list[str]:
    """Return the identifiers of an array of strings alone."""
    found = json.loads(answer.body) if answer.status == 200 else None
    texts = [part for part in found if isinstance(part, str)] if isinstance(found, list) else []
    return texts if texts == found else []


@pytest.mark.slow
def test_two_identifiers_that_change_places_once_are_found() -> None:
    """TOK-ARRAY: each identifier stands in the place of its own string, in every answer."""
    changed: list[int] = []

    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        ids = _identifiers(answer)
        if len(ids) > 1 and number > 60 and not changed:
            changed.append(number)
            answer.body = json.dumps(ids[::-1]).encode()

    (failed,) = _failed(_findings(change)[0])
    assert changed
    assert failed.clause == "TOK-ARRAY"
    assert failed.message.endswith("right when sent again")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "clause"),
    [("7b7aa5d4-5b3c-4c0c-9d9c-0c3f5f9f7f11", "TOK-LEAF"), ("pending", "REC-ID")],
)
def test_an_identifier_of_no_token_and_one_that_is_no_uuid_are_found(
    given: str, clause: str
) -> None:
    """TOK-LEAF, REC-ID: what stands for a string is the identifier of its token."""
    changed: list[int] = []

    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        ids = _identifiers(answer)
        if 1 < len(ids) < 5 and number > 60 and not changed:
            changed.append(number)
            answer.body = json.dumps([given, *ids[1:]]).encode()

    (failed,) = _failed(_findings(change)[0])
    assert changed
    assert failed.clause == clause
