"""Checks of time: what the clock can support is judged, what the machine held up is not."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest

from conformance.context.check import all_checks
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import HttpRequest
from conformance.runner.plan import make_plan
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from conformance.wire.transport import Answer, Place
from engine import LimitTable, Profile
from engine.clauses import select
from engine.world import Sleep
from tests.conformance.checks.changed import judged

SECOND_NS = 1_000_000_000
Change = Callable[[HttpRequest, Answer], int]


def _judged(check_id: str, change: Change, **more: Any) -> dict[str, list[Finding]]:
    """Judge a deployment whose answers are changed, and come so many nanoseconds later."""
    deployment = deploy(keys_a_role=2, **more)
    transport = deployment.transport
    send = transport.send

    async def late(ask: HttpRequest, place: Place) -> Answer:
        answer = await send(ask, place)
        if place.check == check_id:
            await Sleep(change(ask, answer))
            answer.received_ns = transport.now_ns
        return answer

    transport.send = late  # type: ignore[method-assign] # reason: a service of its own
    run = Run(deployment.target, Options(checks=(check_id,), seed=5), transport=transport)
    run.execute()
    found: dict[str, list[Finding]] = {}
    for one in run.findings:
        found.setdefault(one.clause, []).append(one)
    return found


def _verdicts(found: dict[str, list[Finding]], clause: str) -> set[Verdict]:
    return {one.verdict for one in found[clause]}


def _late_408(after_s: int) -> Change:
    """A destination of 24 s that was held up itself, so that 408 was right."""

    def change(ask: HttpRequest, answer: Answer) -> int:
        if not ask.path.endswith("/delay/24"):
            return 0
        answer.status, answer.body = 408, b"{}"
        return (after_s - 24) * SECOND_NS

    return change


@pytest.mark.parametrize("after_s", [27, 34])
def test_a_408_that_came_late_to_a_destination_of_24_s_is_no_failure(after_s: int) -> None:
    found = _judged("proxies.timeout", _late_408(after_s))
    assert _verdicts(found, "PRX-TIMEOUT") == {Verdict.PASS, Verdict.INCONCLUSIVE}
    says = [one.message for one in found["PRX-TIMEOUT"] if one.verdict is Verdict.INCONCLUSIVE]
    assert f"408 after {after_s}." in says[0]


def test_a_408_before_25_s_have_passed_is_one_whatever_the_machine_does() -> None:
    assert Verdict.FAIL in _verdicts(_judged("proxies.timeout", _late_408(24)), "PRX-TIMEOUT")


@pytest.mark.parametrize(
    ("others_s", "verdict"), [(0, Verdict.FAIL), (4, Verdict.INCONCLUSIVE)], ids=["calm", "busy"]
)
def test_a_late_408_is_judged_by_what_held_up_another_request_beside(
    others_s: int, verdict: Verdict
) -> None:
    def change(ask: HttpRequest, answer: Answer) -> int:
        is_slow = answer.status == 408
        return (7 if is_slow else others_s) * SECOND_NS

    found = _judged("proxies.timeout", change)
    assert max(_verdicts(found, "PRX-TIMEOUT")) is verdict
    assert _verdicts(found, "ERR-408") == {Verdict.PASS}


def test_a_slow_destination_that_is_not_slow_shows_nothing() -> None:
    def change(ask: HttpRequest, answer: Answer) -> int:
        if answer.status == 408:
            answer.status = 200
            answer.sent_ns += 10 * SECOND_NS
        return 0

    found = _judged("proxies.timeout", change)
    assert Verdict.FAIL not in _verdicts(found, "PRX-TIMEOUT") | _verdicts(found, "ERR-408")


# --- reactors -----------------------------------------------------------------------------------


def test_nothing_is_left_unsent_where_a_reactor_cannot_be_created() -> None:
    """A coroutine that is made and never awaited fails this test by its warning."""
    created = []

    def change(ask: HttpRequest, answer: Answer) -> int:
        if ask.path == "/reactors":
            created.append(ask)
            if len(created) > 1:
                answer.status, answer.error = None, "cut off"
        return 0

    found = _judged("reactors.timeout", change)["RCT-TIMEOUT"]
    assert [one.verdict for one in found] == [Verdict.INCONCLUSIVE]
    assert "cut off" in found[0].message


def _not_run(status: int, after_s: float) -> Change:
    """Code that is never run: every invocation is answered alike, and late."""

    def change(ask: HttpRequest, answer: Answer) -> int:
        if not ask.path.endswith("/react"):
            return 0
        answer.status = status
        answer.sent_ns = answer.received_ns
        return int(after_s * SECOND_NS)

    return change


@pytest.mark.parametrize("after_s", [0.01, 2, 5, 29])
@pytest.mark.parametrize("status", [200, 501])
def test_a_slow_answer_is_no_proof_that_code_has_waited(status: int, after_s: float) -> None:
    found = _judged("reactors.timeout", _not_run(status, after_s))
    assert _verdicts(found, "RCT-TIMEOUT") == {Verdict.NOT_OBSERVABLE}


@pytest.mark.parametrize(
    ("others_s", "verdict"), [(0, Verdict.FAIL), (4, Verdict.NOT_OBSERVABLE)], ids=["calm", "busy"]
)
def test_a_late_end_of_waiting_code_is_judged_by_the_others(
    others_s: int, verdict: Verdict
) -> None:
    def change(ask: HttpRequest, answer: Answer) -> int:
        if not ask.path.endswith("/react"):
            return 0
        return (7 if answer.status == 504 else others_s) * SECOND_NS

    found = _verdicts(_judged("reactors.timeout", change), "RCT-TIMEOUT")
    assert found == {verdict} or (others_s and found == {Verdict.INCONCLUSIVE})


# --- who asks -----------------------------------------------------------------------------------


def test_checks_of_time_share_no_key_and_no_address_with_a_burst() -> None:
    target = deploy().target
    run = Run(target, transport=deploy().transport)
    plan = make_plan(target, run.session.limits, select([]), all_checks().values())
    timed = [one for one in plan.dealt if one.check.is_timed]
    own = {"proxies.timeout": 1, "reactors.timeout": 1, "quotas.retention": 2}
    assert {one.check.id: len(one.sources) for one in timed} == own
    for one in timed:
        others = [other for other in plan.dealt if other is not one]
        mine = {label for labels in one.keys.values() for label in labels}
        for other in others:
            assert mine.isdisjoint(label for labels in other.keys.values() for label in labels)
            assert set(one.sources).isdisjoint(other.sources)


@pytest.mark.parametrize(("addresses", "own"), [(1, 0), (2, 1), (3, 2)])
def test_a_check_of_time_leaves_an_address_for_the_others(addresses: int, own: int) -> None:
    sources = tuple(f"127.0.0.{number}" for number in range(2, 2 + addresses))
    checks = [check for check in all_checks().values() if not check.is_probe]
    plan = make_plan(deploy(sources=sources).target, LimitTable.default(), select([]), checks)
    others = {source for one in plan.dealt if not one.check.is_timed for source in one.sources}
    timed = [one for one in plan.dealt if one.check.is_timed]
    assert sum(others.isdisjoint(one.sources) for one in timed) == own
    assert others | {source for one in timed for source in one.sources} == set(sources)


@pytest.mark.slow
def test_a_delaying_deployment_passes_the_checks_of_time_among_all_others() -> None:
    deployment = deploy(profile=Profile().replace(limits={"throttle": "delay"}))
    run = Run(deployment.target, Options(seed=5), transport=deployment.transport)
    found = {one.clause.id: one.verdict for one in run.execute().results}
    assert found["PRX-TIMEOUT"] is found["RCT-TIMEOUT"] is Verdict.PASS


def test_what_is_retained_is_read_with_keys_and_from_addresses_that_no_other_check_uses() -> None:
    """A limiter that delays holds back all that shares a counter with what it delays."""
    deployment = deploy(profile=Profile().replace(limits={"throttle": "delay"}))
    names = ("quotas.retention", "limits.lowest", "limits.classes", "limits.LIM-CREATE")
    options = Options(checks=names, select=("QUO-", "LIM-", "AUTH-"), seed=7)
    run = Run(deployment.target, options, transport=deployment.transport)
    run.execute()
    verdicts = {one.verdict for one in run.findings if one.check == "quotas.retention"}
    assert verdicts == {Verdict.PASS}


# --- headers of refusals -------------------------------------------------------------------------


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
