"""The reference model: no difference on what conforms, the right clause on what does not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from conformance.context.verdicts import Finding, Verdict
from conformance.faults import fault_of
from conformance.messages.exchange import HttpRequest
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import Deployment, deploy
from conformance.wire.transport import Answer, Place
from engine import Profile

_SELECT = ("TOK-", "REC-", "AUTH-", "QUO-")


def _failures(deployment: Deployment, seed: int = 3) -> list[Finding]:
    options = Options(checks=("model.sequences",), select=_SELECT, seed=seed, leaves=True)
    run = Run(deployment.target, options, transport=deployment.transport)
    run.execute()
    return [finding for finding in run.findings if finding.verdict >= Verdict.FAIL]


def _changed(change: Callable[[HttpRequest, Answer], None]) -> Deployment:
    deployment = deploy()
    send = deployment.transport.send

    async def sending(ask: HttpRequest, place: Place) -> Answer:
        answer = await send(ask, place)
        change(ask, answer)
        return answer

    deployment.transport.send = sending  # type: ignore[method-assign] # reason: a service of its own
    return deployment


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_the_engine_never_differs_from_itself(seed: int) -> None:
    assert _failures(deploy(), seed=seed) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault_id", "clause"),
    [
        ("array-reversed", "TOK-ARRAY"),
        ("deep-body-refused", "TOK-COMPOSITE"),
        ("first-container-only", "AUTH-CREATE"),
    ],
)
def test_a_broken_clause_is_named_first_and_reproduced_with_few_requests(
    fault_id: str, clause: str
) -> None:
    failures = _failures(deploy(engine=fault_of(fault_id).engine))
    assert failures[0].clause == clause
    assert 0 < len(failures[0].evidence) < 5


def test_answers_that_never_come_are_no_evidence() -> None:
    """Each seventh answer is lost or a gateway's: nothing is said of the service."""
    count = 0

    def lose(ask: HttpRequest, answer: Answer) -> None:
        nonlocal count
        count += 1
        if count % 7 == 0 and ask.path == "/tokenize":
            answer.status = None if count % 2 else 503
            answer.body = b""

    assert _failures(_changed(lose)) == []


@pytest.mark.slow
def test_a_service_of_one_operation_is_compared_in_that_operation() -> None:
    def only_tokenize(ask: HttpRequest, answer: Answer) -> None:
        if ask.path.partition("?")[0] != "/tokenize":
            answer.status, answer.body = 404, b"{}"

    assert _failures(_changed(only_tokenize)) == []


def _showing_cvc(field: str) -> Callable[[HttpRequest, Answer], None]:
    """Answer a card with its cvc in a field more."""

    def change(ask: HttpRequest, answer: Answer) -> None:
        if (
            ask.path == "/tokenize"
            and isinstance(ask.body, dict)
            and ask.body.get("type") == "card"
        ):
            cvc = ask.body.get("data", {}).get("cvc")
            if cvc is not None:
                text = answer.body.decode()
                answer.body = text.replace('"_extras"', f'"{field}":"{cvc}","_extras"').encode()

    return change


def test_a_cvc_under_any_name_is_a_leak() -> None:
    failures = _failures(_changed(_showing_cvc("cvc_check")))
    assert [finding.clause for finding in failures] == ["REC-SECRET"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "readings",
    [
        {"tokens": {"container_field": "vault", "container_form": "string"}},
        {"tokens": {"card_view": "mask", "fpexpr_default": "shown", "empty_body": "reject"}},
        {"tokens": {"limit_counts": "elements"}, "dedup": {"record": "update_existing"}},
    ],
    ids=["containers", "records", "counts"],
)
def test_readings_are_learned_before_anything_is_compared(readings: dict[str, Any]) -> None:
    deployment = deploy(profile=Profile().replace(**readings))
    options = Options(checks=("model.sequences",), select=_SELECT, seed=3, leaves=True)
    run = Run(deployment.target, options, transport=deployment.transport)
    run.execute()
    assert [finding for finding in run.findings if finding.verdict >= Verdict.FAIL] == []
    learned = run.session.profile
    for section, values in readings.items():
        for name, value in values.items():
            assert getattr(getattr(learned, section), name) == value
