"""A deployment that answers the same to everything, or to nobody, never passes a check."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable

import pytest

from conformance.context.verdicts import Finding, Verdict, worst
from conformance.messages.exchange import HttpRequest
from conformance.runner.outcome import judge
from conformance.wire.transport import Answer
from tests.conformance.checks.changed import bench_of, clause_checks, judged

_UUID = "0b0c8f34-6f0e-4a52-9f3a-2f2f6c1f7f10"
_RECORD = {
    "id": _UUID,
    "tenant_id": _UUID,
    "type": "token",
    "created_by": _UUID,
    "created_at": "2026-01-01T00:00:00+00:00",
    "_extras": {"deduplicated": False},
}


def _always(status: int | None, body: object = None) -> Callable[[HttpRequest, Answer], Answer]:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        del ask
        error = None if status is not None else "connection refused"
        return Answer(answer.sent_ns, answer.received_ns, status, {}, raw, error)

    return change


_HOPELESS = {
    "200-empty-object": _always(200, {}),
    "200-html": _always(200, b"<html>Welcome</html>"),
    "200-record": _always(200, _RECORD),
    "200-identifier": _always(200, _UUID),
    "201-nothing": _always(201, b""),
    "400": _always(400, {"title": "Bad Request"}),
    "401": _always(401, {"title": "Unauthorized"}),
    "403": _always(403, {"title": "Forbidden"}),
    "404": _always(404, b"not found"),
    "429": _always(429, b""),
    "500": _always(500, b"oops"),
    "no-answer": _always(None, b""),
}


@pytest.mark.parametrize("raw", [b'"\\ud83d"', b'"\xed\xa0\xbd"'])
def test_half_a_surrogate_pair_in_an_answer_ends_no_check(raw: bytes) -> None:
    """An identifier that is no Unicode text can neither be sent back nor be written down."""

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        del ask
        answer.body = re.sub(rb'"[0-9a-f-]{36}"', lambda _: raw, answer.body)
        return answer

    for check_id in ("model.sequences", "deduplication.at-once"):
        verdicts = {one.verdict for one in judged(check_id, change)}
        assert Verdict.ERROR not in verdicts, check_id


def test_a_list_in_place_of_a_text_is_judged() -> None:
    def change(ask: HttpRequest, answer: Answer) -> Answer:
        del ask
        answer.body = answer.body.replace(b'"completed"', b"[]")
        return answer

    found = {one.verdict for one in judged("account-updater.jobs", change)}
    assert found == {Verdict.PASS, Verdict.INCONCLUSIVE}


@pytest.mark.slow
@pytest.mark.parametrize("name", _HOPELESS)
def test_a_hopeless_deployment_never_passes(name: str) -> None:
    """No check passes as a whole, and no clause passes over all checks."""
    found: dict[str, list[Finding]] = {}
    for check_id, check in clause_checks().items():
        findings = judged(check_id, _HOPELESS[name])
        assert Verdict.ERROR not in {finding.verdict for finding in findings}, check_id
        assert {finding.clause for finding in findings} == set(check.clauses), check_id
        assert worst(findings) is not Verdict.PASS, check_id
        for finding in findings:
            found.setdefault(finding.clause, []).append(finding)
    assert [clause for clause, said in found.items() if worst(said) < Verdict.NOT_OBSERVABLE] == []


@pytest.mark.parametrize("check_id", sorted(clause_checks()))
def test_a_wrong_key_never_passes(check_id: str) -> None:
    """Every key is unknown: whatever is refused then shows nothing."""

    def unknown(ask: HttpRequest) -> HttpRequest:
        return dataclasses.replace(
            ask,
            key=None if ask.key is None else "key_prod_us_pvt_9999999999999999999999",
            proxy_key=None if ask.proxy_key is None else "no-such-proxy-key-at-all",
            headers={},
        )

    found = {finding.verdict for finding in judged(check_id, redirect=unknown)}
    assert found & {Verdict.PASS, Verdict.ERROR} == set()


@pytest.mark.parametrize("check_id", sorted(clause_checks()))
def test_a_key_without_permission_never_passes(check_id: str) -> None:
    def powerless(ask: HttpRequest) -> HttpRequest:
        if ask.key is None:
            return ask
        return dataclasses.replace(ask, key="private_no_permission.1")

    findings = judged(check_id, redirect=powerless)
    if check_id in {"authentication.header", "proxies.timeout"}:
        return  # what needs no permission, and no key of a tenant
    assert {finding.verdict for finding in findings} & {Verdict.PASS, Verdict.ERROR} == set()


def test_metadata_that_is_no_object_is_no_crash_of_the_harness() -> None:
    def change(ask: HttpRequest, answer: Answer) -> Answer:
        body = json.loads(answer.body) if answer.body else None
        if isinstance(body, dict) and "metadata" in body:
            changed.append(body["metadata"])
            answer.body = json.dumps({**body, "metadata": 7}).encode()
        return answer

    changed: list[object] = []
    assert Verdict.ERROR not in {one.verdict for one in judged("model.sequences", change)}
    assert changed


def test_a_job_without_an_id_fails_and_is_no_crash_of_the_harness() -> None:
    def change(ask: HttpRequest, answer: Answer) -> Answer:
        if answer.status == 201 and b"upload_url" in answer.body and not jobs:
            body = json.loads(answer.body)
            jobs.append(body.pop("id"))
            answer.body = json.dumps(body).encode()
        return answer

    jobs: list[str] = []
    found = judged("account-updater.jobs", change)
    assert jobs
    assert [(one.verdict, one.message) for one in found] == [
        (Verdict.FAIL, "each job must have its own id and its own upload_url")
    ]


@pytest.mark.parametrize("given", ["key_prod_us_pub_aaaaaaaaaaaaaaaaaaaaaa", None])
def test_a_key_that_was_not_made_a_legacy_one_shows_nothing_of_legacy_keys(
    given: str | None,
) -> None:
    """AUTH-LEGACY: a deployment may ignore that a legacy key was asked for, or make none."""

    def change(ask: HttpRequest, answer: Answer) -> Answer:
        if isinstance(ask.body, dict) and "legacy" in ask.body:
            answer.body = json.dumps({"key": given}).encode()
        return answer

    (found,) = judged("limits.legacy-class", change)
    assert found.verdict is Verdict.INFORMATIONAL
    assert found.message.endswith("no legacy key of a public application can be created here")


def test_the_history_shows_each_job_apart_with_all_that_was_sent_for_it() -> None:
    ctx = bench_of("account-updater.jobs")
    ctx.transport.run([judge(ctx)])
    uploads: dict[str, set[str]] = {}
    for exchange in ctx.session.exchanges.values():
        if exchange.ask.method == "PUT":
            uploads.setdefault(exchange.lane, set()).add(exchange.ask.path)
    assert sorted(uploads) == ["job 1", "job 2"]
    assert all(len(paths) == 1 for paths in uploads.values())
