"""What is no tokenization service gets its clear verdict over HTTP: never a pass, never a hang."""

from __future__ import annotations

import dataclasses

import pytest

from conformance.context.verdicts import Verdict
from conformance.faults.trial import served
from conformance.report.report import Report
from conformance.runner.preflight import Unreachable
from conformance.runner.runner import Options, Run
from conformance.target import Budget, Target, TargetKey
from tests.conformance.servers import Handler, answering, dropping, hanging, serving

SECOND_NS = 1_000_000_000
SAID = {Verdict.INCONCLUSIVE, Verdict.SKIPPED, Verdict.NOT_OBSERVABLE}
KEYS = (
    TargetKey(role="private_prod", value="key_prod_us_pvt_2222222222222222222222"),
    TargetKey(role="private_test", value="key_test_us_pvt_3333333333333333333333"),
)


def _answer(status: str, body: bytes, kind: str = "application/json") -> Handler:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return answering(head.encode() + body)


def _target(port: int) -> Target:
    return Target(
        base_url=f"http://127.0.0.1:{port}",
        keys=KEYS,
        timeout_ns=SECOND_NS // 2,
        budget=Budget(minutes=1),
    )


def _run(target: Target) -> Report:
    return Run(target, Options(no_limits=True, seed=7)).execute()


def _check_nothing_passed(report: Report) -> None:
    assert {one.verdict for one in report.results} <= SAID
    assert report.aborted is not None
    assert report.exit_code != 0
    assert "conformant" not in report.verdict_line


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (_answer("200 OK", b"{}"), "without an identifier"),
        (_answer("200 OK", b"<html>Welcome</html>", "text/html"), "not JSON (text/html)"),
        (_answer("401 Unauthorized", b"{}"), "is not a key of this deployment"),
        (_answer("403 Forbidden", b"{}"), "lacks the permission"),
        (_answer("404 Not Found", b"{}"), "404"),
        (_answer("500 Internal Server Error", b"oops", "text/plain"), "500"),
    ],
    ids=["200", "html", "wrong-key", "no-permission", "404", "500"],
)
def test_one_answer_to_everything_is_no_deployment(handler: Handler, says: str) -> None:
    with serving(handler) as port:
        report = _run(_target(port))
    _check_nothing_passed(report)
    assert says in str(report.aborted)


@pytest.mark.slow
def test_429_to_everything_is_no_deployment() -> None:
    with serving(_answer("429 Too Many Requests", b"{}")) as port:
        report = _run(_target(port))
    _check_nothing_passed(report)
    assert "429" in str(report.aborted)


def test_a_dead_target_is_unreachable() -> None:
    with serving(hanging) as port:
        pass
    with pytest.raises(Unreachable, match="cannot connect"):
        _run(_target(port))


def test_a_target_that_hangs_is_unreachable() -> None:
    with serving(hanging) as port, pytest.raises(Unreachable, match=r"no answer"):
        _run(_target(port))


def test_a_target_that_drops_connections_is_unreachable() -> None:
    seen: list[bytes] = []
    with serving(dropping(seen)) as port, pytest.raises(Unreachable):
        _run(_target(port))
    assert seen


def test_a_wrong_key_at_the_real_server_is_said_so() -> None:
    with served() as target:
        report = _run(dataclasses.replace(target, keys=KEYS))
    _check_nothing_passed(report)
    assert "is not a key of this deployment" in str(report.aborted)


def test_a_key_without_permission_at_the_real_server_is_said_so() -> None:
    with served() as target:
        barred = next(key for key in target.keys if key.role == "private_no_permission")
        keys = (dataclasses.replace(barred, role="private_prod"),)
        report = _run(dataclasses.replace(target, keys=keys))
    _check_nothing_passed(report)
    assert "lacks the permission" in str(report.aborted)
