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

CHECKS = ("tokenize.order", "record.fields", "record.echo", "request.valid", "tokenize.steady")
READ_BACK = (*CHECKS, "tokenize.mirror", "tokenize.read-back")


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


def _steady(findings: list[Finding]) -> dict[str, Finding]:
    return {one.clause: one for one in findings if one.check == "tokenize.steady"}


def test_a_sporadic_error_is_one_clauses_and_no_others(tmp_path: Path) -> None:
    """One 500 among many answers was told as a container that has no name."""

    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if number == 12:
            answer.status, answer.body = 500, b"{}"

    findings, run = _findings(change, tmp_path)
    failed = [one for one in findings if one.verdict is Verdict.FAIL]
    assert len(failed) == 1
    assert failed[0].says.startswith("answered 500: in 1 of ")
    assert failed[0].says.endswith(" answers, and right when sent again")
    assert failed[0].evidence
    again = judge(tmp_path).result(failed[0].clause)
    assert [one.says for one in again.findings if one.verdict is Verdict.FAIL] == [failed[0].says]
    assert run.session.exchanges


def test_an_answer_that_is_wrong_once_is_told_with_how_many_were() -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if number == 9:
            answer.body = b'"wrong"'

    found = _steady(_findings(change)[0])
    failed = {clause: one.says for clause, one in found.items() if one.verdict is Verdict.FAIL}
    assert len(failed) == 1
    assert ": in 1 of " in next(iter(failed.values()))


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_sporadic_refusal_of_a_valid_body_is_sporadic_too(status: int) -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        is_plain = isinstance(ask.body, list) and all(isinstance(one, str) for one in ask.body)
        seen.append(is_plain and answer.status == 200)
        if seen[-1] and sum(seen) == 2:
            answer.status, answer.body = status, b"{}"

    seen: list[bool] = []
    found = _steady(_findings(change)[0])
    assert found["TOK-ARRAY"].says.startswith(f"a valid body is refused with {status}: in 1 of ")


def test_a_mask_that_is_wrong_once_is_found() -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        seen.append(b"XXXX" in answer.body)
        if sum(seen) == 2 and seen[-1]:
            answer.body = answer.body.replace(b"XXXXXXXXXXXX", b"424242XXXXXX")

    seen: list[bool] = []
    found = _steady(_findings(change)[0])
    assert ": in 1 of " in found["REC-CARD-MASK"].says
    assert found["REC-CARD-MASK"].says.endswith("right when sent again")


def test_what_is_always_wrong_is_not_called_right_again() -> None:
    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if isinstance(ask.body, list) and answer.status == 200:
            answer.body = b"[]"

    found = _steady(_findings(change)[0])
    assert found["TOK-ARRAY"].verdict is Verdict.FAIL
    assert found["TOK-ARRAY"].says.endswith("; the same when sent again")


def test_a_calm_run_passes_with_the_number_of_answers() -> None:
    found = _steady(_findings(lambda *_: None)[0])
    assert found["TOK-OBJECT"].verdict is Verdict.PASS
    assert found["TOK-OBJECT"].says.endswith(" answers of the run were right")


def _strings_in(ask: HttpRequest, answer: Answer) -> list[str]:
    """Return the identifiers of an array of strings alone."""
    is_plain = isinstance(ask.body, list) and all(isinstance(one, str) for one in ask.body)
    found = json.loads(answer.body)
    return found if is_plain and isinstance(found, list) else []


def test_two_identifiers_that_change_places_once_are_found() -> None:
    """TOK-ARRAY: each identifier stands in the place of its own string, in every answer."""
    changed: list[int] = []

    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if len(_strings_in(ask, answer)) > 1 and number > 30 and not changed:
            changed.append(number)
            answer.body = json.dumps(json.loads(answer.body)[::-1]).encode()

    findings, _ = _findings(change, checks=READ_BACK)
    failed = [one for one in findings if one.verdict is Verdict.FAIL]
    assert changed
    assert {(one.clause, one.check) for one in failed} == {("TOK-ARRAY", "tokenize.read-back")}
    assert failed[0].says.startswith("in ")
    assert failed[0].says.endswith("two identifiers have changed places; right when sent again")


def test_a_few_bodies_that_are_always_read_back_wrongly_are_not_called_right_again() -> None:
    """TOK-ARRAY: a small share says nothing; the same body sent again does."""

    def change(ask: HttpRequest, answer: Answer, number: int) -> None:
        if number > 30 and len(_strings_in(ask, answer)) == 3:
            answer.body = json.dumps(json.loads(answer.body)[::-1]).encode()

    findings, _ = _findings(change, checks=READ_BACK)
    failed = [
        one for one in findings if one.verdict is Verdict.FAIL and one.check == "tokenize.read-back"
    ]
    assert failed[0].says.startswith("in ")
    assert failed[0].says.endswith("; the same when sent again")


def test_an_identifier_of_no_token_and_one_that_is_no_uuid_are_found() -> None:
    """TOK-LEAF, REC-ID: what stands for a string is the identifier of its token."""
    for given, clause in (
        ("7b7aa5d4-5b3c-4c0c-9d9c-0c3f5f9f7f11", "TOK-LEAF"),
        ("pending", "REC-ID"),
    ):
        changed: list[str] = []

        def change(ask: HttpRequest, answer: Answer, number: int, given: str = given) -> None:
            strings = _strings_in(ask, answer)
            if strings and number > 30 and not changed:  # noqa: B023 # reason: judged within the turn
                changed.append(strings[0])  # noqa: B023 # reason: likewise
                answer.body = answer.body.replace(strings[0].encode(), given.encode())

        findings, _ = _findings(change, checks=READ_BACK)
        failed = {one.clause for one in findings if one.verdict is Verdict.FAIL}
        assert changed
        assert clause in failed
