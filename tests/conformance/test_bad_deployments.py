"""Servers that are no deployment, or not today: a clear verdict, never a pass, never a hang."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

import conformance
from conformance.cli import main
from conformance.faults.trial import served
from conformance.target import Target, TargetKey
from tests.conformance.servers import Handler, answering, counting, dropping, hanging, serving

MOST_CONNECTIONS = 3
HTML = b"<html>hello</html>"
KEYS = (
    TargetKey(role="private_prod", value="canary-1"),
    TargetKey(role="public", value="canary-2"),
)


def _answer(status: str, body: bytes = b"", kind: str = "application/json") -> Handler:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    return answering(head.encode() + body)


def _target(port: int) -> Target:
    return Target(base_url=f"http://127.0.0.1:{port}", timeout_ns=300_000_000, keys=KEYS)


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (hanging, "gives no answer: no answer within 0.3 s"),
        (dropping([]), "gives no answer: the connection was"),
        (answering(b"SMTP?\r\n\r\n"), "gives no answer: the answer is no HTTP"),
    ],
    ids=["hangs", "drops", "no HTTP"],
)
def test_who_gives_no_answer_is_unreachable(handler: Handler, says: str) -> None:
    connections: list[int] = []
    with (
        serving(counting(handler, connections)) as port,
        pytest.raises(conformance.Unreachable, match=says),
    ):
        conformance.run(_target(port), select=["TOK-LEAF"], seed=1)
    assert len(connections) <= MOST_CONNECTIONS


def test_a_dead_target_is_unreachable_and_ends_with_3(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serving(hanging) as port:
        pass
    file = tmp_path / "target.toml"
    file.write_text(f'base_url = "http://127.0.0.1:{port}"\n', "utf-8")
    assert main(["run", str(file), "--out", str(tmp_path / "out")]) == 3
    assert "cannot connect: connection refused" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("handler", "says"),
    [
        (
            _answer("200 OK", b"{}"),
            "without an identifier, so it is not from a tokenization service",
        ),
        (_answer("200 OK", b"[]"), "JSON that is not an object"),
        (_answer("200 OK", HTML, "text/html"), "an answer that is not JSON (text/html)"),
        (_answer("401 Unauthorized"), "private_prod.1 is not a key of this deployment"),
        (_answer("403 Forbidden"), "private_prod.1 lacks the permission"),
        (_answer("404 Not Found", b"{}"), "404"),
        (_answer("500 Oops"), "private_prod.1 got 500"),
    ],
    ids=["200", "array", "html", "wrong key", "no permission", "404", "500"],
)
def test_who_accepts_nothing_or_everything_gets_no_verdict(handler: Handler, says: str) -> None:
    with serving(handler) as port:
        report = conformance.run(_target(port), select=["TOK-LEAF", "TOK-ATOMIC"], seed=1)
    _judges_nothing(report, says)


@pytest.mark.parametrize(
    ("role", "says"),
    [
        (None, "is not a key of this deployment"),
        ("private_no_permission", "lacks the permission"),
    ],
)
def test_a_key_that_may_nothing_at_the_real_server_is_named(role: str | None, says: str) -> None:
    with served() as target:
        own = [
            dataclasses.replace(key, role="private_prod") for key in target.keys if key.role == role
        ]
        report = conformance.run(
            dataclasses.replace(target, keys=tuple(own[:1]) or KEYS),
            select=["TOK-LEAF", "TOK-ATOMIC"],
            seed=1,
        )
    _judges_nothing(report, says)


def _judges_nothing(report: conformance.Report, says: str) -> None:
    assert report.exit_code == 3
    assert says in report.verdict_line
    assert report.verdict_line.startswith("nothing could be judged: ")
    assert {result.verdict for result in report.results} <= {
        conformance.Verdict.INCONCLUSIVE,
        conformance.Verdict.SKIPPED,
    }


@pytest.mark.slow
def test_who_refuses_everything_gets_no_verdict() -> None:
    with serving(_answer("429 Too Many Requests")) as port:
        report = conformance.run(_target(port), select=["TOK-LEAF"], seed=1)
    assert report.exit_code == 3
    assert "is refused (429) all the time" in report.verdict_line
