"""A whole run, against an engine on virtual time: plan, verdicts, limits of what it may do."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path
from typing import Any

import pytest

from conformance.context.check import Check, Inconclusive, Skip
from conformance.context.context import CheckContext
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Verdict
from conformance.report import Report
from conformance.report.report import FORMATS
from conformance.runner import offline, runner
from conformance.runner.offline import judge
from conformance.runner.plan import make_plan
from conformance.runner.runner import Options, Run, again, failed, replay
from conformance.target import Budget, RequestShape
from conformance.wire.in_process import Deployment, deploy
from conformance.wire.transport import EngineTransport
from engine.clauses import select
from engine.errors import InputError
from engine.files import Rate as RateOf
from engine.limits import LimitTable

SECOND_NS = 1_000_000_000


def _check(check_id: str, judge_: Any, *clauses: str, **more: Any) -> Check:
    return Check(check_id, clauses, "says", "a pass", judge_, **more)


async def _passes(ctx: CheckContext) -> list[Finding]:
    exchange = await ctx.client.insist(
        "POST", "/tokenize", {"a": "secret value"}, key=ctx.key("private_prod")
    )
    return [ctx.passes(ctx.check.clauses[0], f"got {exchange.status}", exchange)]


async def _fails(ctx: CheckContext) -> list[Finding]:
    exchange = await ctx.client.insist("GET", "/nowhere", key=ctx.key("private_prod"))
    return [ctx.fails(ctx.check.clauses[0], f"got {exchange.status}", exchange)]


async def _crashes(ctx: CheckContext) -> list[Finding]:
    findings: list[Finding] = []
    findings.append(ctx.passes(ctx.check.clauses[0], "so far"))
    raise ValueError(ctx.target.keys[0].value)


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run some checks against a deployment; `play(check, …, out=…, deployment=…)`."""

    def run(
        *checks: Check,
        deployment: Deployment | None = None,
        out: Path | None = None,
        **options: Any,
    ) -> Report:
        by_id = {check.id: check for check in checks}
        monkeypatch.setattr(runner, "all_checks", lambda: by_id)
        monkeypatch.setattr(offline, "all_checks", lambda: by_id)
        found = deployment or deploy()
        asked = Options(**{"seed": 3, "select": ("TOK-", "LIM-PUBLIC"), **options})
        one = Run(found.target, asked, transport=found.transport, out=out, command=("again",))
        report = one.execute()
        if out is not None:
            report.save(out)
        return report

    return run


def test_the_worst_finding_is_the_clauses_verdict(play: Any) -> None:
    report = play(
        _check("a", _passes, "TOK-LEAF"),
        _check("b", _fails, "TOK-LEAF"),
        _check("c", _passes, "TOK-PLAIN"),
    )
    assert report.result("TOK-LEAF").verdict is Verdict.FAIL
    assert report.result("TOK-PLAIN").verdict is Verdict.PASS
    assert report.result("TOK-ARRAY").verdict is Verdict.SKIPPED
    assert report.exit_code == 1
    assert report.verdict_line.startswith("does not conform: TOK-LEAF; partial")


def test_a_crash_is_an_error_without_a_secret_and_never_a_pass(play: Any) -> None:
    deployment = deploy()
    secret = deployment.target.keys[0].value
    report = play(_check("a", _crashes, "TOK-LEAF"), deployment=deployment)
    assert report.result("TOK-LEAF").verdict is Verdict.ERROR
    assert "ValueError: <private_test.1>" in report.result("TOK-LEAF").message
    assert secret not in json.dumps(report.plain())
    assert report.exit_code == 4


def test_a_key_that_cannot_be_used_leaves_clauses_that_others_judge(play: Any) -> None:
    """Where a check lacks a key, it has only a remark on the clauses beside its own."""
    deployment = deploy()
    keys = [
        dataclasses.replace(one, value="unknown") if one.role == "legacy" else one
        for one in deployment.target.keys
    ]
    target = dataclasses.replace(deployment.target, keys=tuple(keys))
    transport = EngineTransport(deployment.engine, target)
    report = play(
        _check("a", _passes, "TOK-LEAF"),
        _check("b", _passes, "TOK-PLAIN", "TOK-LEAF", roles=("legacy",), beside=("TOK-LEAF",)),
        deployment=Deployment(deployment.engine, target, transport),
    )
    assert report.result("TOK-PLAIN").verdict is Verdict.INCONCLUSIVE
    assert report.result("TOK-LEAF").verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("error", "verdict"), [(Skip, Verdict.SKIPPED), (Inconclusive, Verdict.INCONCLUSIVE)]
)
def test_what_allows_no_verdict_makes_the_run_partial(
    play: Any, error: type[Exception], verdict: Verdict
) -> None:
    async def stops(ctx: CheckContext) -> list[Finding]:
        if ctx.seed == 3:
            raise error("for a reason")
        return [ctx.passes("TOK-LEAF", "never said")]

    report = play(_check("a", stops, "TOK-LEAF"), select=("TOK-LEAF",))
    assert (report.result("TOK-LEAF").verdict, report.partial) == (verdict, True)
    assert report.result("TOK-LEAF").message == "for a reason"
    assert report.exit_code == 5, "nothing passed"
    assert report.verdict_line.startswith("nothing was judged of 1 selected clause: 1 ")
    checks = _check("a", stops, "TOK-LEAF"), _check("b", _passes, "TOK-ARRAY")
    for strict in (False, True):
        report = play(*checks, select=("TOK-LEAF", "TOK-ARRAY"), strict=strict)
        assert report.exit_code == int(strict)


def test_a_clause_that_a_check_leaves_unsaid_is_inconclusive(play: Any) -> None:
    report = play(_check("a", _passes, "TOK-LEAF", "TOK-PLAIN"))
    assert report.result("TOK-LEAF").verdict is Verdict.PASS
    assert report.result("TOK-PLAIN").verdict is Verdict.INCONCLUSIVE


def test_an_expected_failure_is_none_of_the_runs_until_it_stops(play: Any) -> None:
    expecting = deploy(expected_failures=("TOK-LEAF",))
    report = play(_check("a", _fails, "TOK-LEAF"), deployment=expecting, select=("TOK-LEAF",))
    assert (report.result("TOK-LEAF").word, report.exit_code) == ("fail (expected)", 0)
    expecting = deploy(expected_failures=("TOK-LEAF",))
    report = play(_check("a", _passes, "TOK-LEAF"), deployment=expecting, select=("TOK-LEAF",))
    assert report.exit_code == 1
    assert report.verdict_line == "does not conform: TOK-LEAF"


def test_a_registered_reason_makes_a_clause_not_observable(play: Any) -> None:
    report = play(select=("QUO-RATE",))
    assert report.result("QUO-RATE").verdict is Verdict.NOT_OBSERVABLE
    assert "no answer says which one" in report.result("QUO-RATE").message


def test_what_a_run_creates_it_deletes(play: Any) -> None:
    async def creates(ctx: CheckContext) -> list[Finding]:
        key = ctx.key("private_prod")
        await ctx.client.insist("POST", "/tokenize", ["a", {"b": "c"}], key=key)
        await ctx.client.insist("POST", "/tokens", {"type": "token", "data": "d"}, key=key)
        await ctx.client.insist("POST", "/tokenize", {"e": "f"}, key=ctx.key("public"))
        by_hand = {ctx.target.key_header.lower(): f"{{key:{key}}}"}
        await ctx.client.insist("POST", "/tokenize", ["h"], headers=by_hand)
        gone = (
            await ctx.client.insist("POST", "/tokens", {"type": "token", "data": "g"}, key=key)
        ).json["id"]
        await ctx.client.insist("DELETE", f"/tokens/{gone}", key=key)
        return [ctx.passes("TOK-LEAF", "created")]

    deployment = deploy()
    report = play(
        _check("a", creates, "TOK-LEAF", roles=("private_prod", "public")), deployment=deployment
    )
    assert report.cleaned[0] >= 4
    assert report.cleaned[1] == 0
    store = deployment.engine.services.store
    with store.transaction(write=False):
        assert [store.count_tokens(tenant.id) for tenant in store.tenants()] == [0] * 4


def test_what_a_deployment_cannot_delete_is_left_and_told(play: Any) -> None:
    async def makes(ctx: CheckContext) -> list[Finding]:
        for place in range(20):
            body: Any = {"a": f"made {place}"}
            await ctx.client.insist("POST", "/tokenize", body, key=ctx.key("private_prod"))
        return [ctx.passes("TOK-LEAF", "made")]

    deployment = deploy()
    request = deployment.transport._request

    def without_deletion(ask: Any) -> Any:
        found = request(ask)
        found.path = "/nowhere" if found.method == "DELETE" else found.path
        return found

    deployment.transport._request = without_deletion  # type: ignore[method-assign] # reason: a service without it
    report = play(_check("a", makes, "TOK-LEAF"), deployment=deployment)
    gone, left = report.cleaned
    assert (gone, left >= 20) == (0, True)
    tried = [one for one in report.exchanges.values() if one.ask.method == "DELETE"]
    assert len(tried) <= 8, "a deletion that is not there is not tried for each thing"


def test_what_is_forbidden_is_never_asked(play: Any) -> None:
    async def deletes(ctx: CheckContext) -> list[Finding]:
        await ctx.client.insist("DELETE", "/tokens/1234", key=ctx.key("private_prod"))
        return [ctx.passes("TOK-LEAF", "deleted")]

    deployment = deploy(forbidden=("DELETE /tokens/{id}",))
    report = play(_check("a", deletes, "TOK-LEAF"), deployment=deployment)
    assert report.result("TOK-LEAF").verdict is Verdict.SKIPPED
    assert report.result("TOK-LEAF").message == "the target forbids DELETE /tokens/{id}"
    assert not [one for one in report.exchanges.values() if one.ask.method == "DELETE"]


def test_a_forbidden_operation_is_a_pattern_of_a_method_and_a_path() -> None:
    """`{id}` stands for one segment, `*` for any text; a query changes nothing."""
    lines = ("DELETE /tokens/{id}", "GET /proxy*", "POST /a.b")
    made = deploy(forbidden=lines)
    session = Session(made.target, made.transport, seed=1)
    asked = {
        "DELETE /tokens/1": lines[0],
        "DELETE /tokens/1?sure=yes": lines[0],
        "DELETE /tokens/1/metadata": None,
        "DELETE /tokens/": None,
        "PATCH /tokens/1": None,
        "GET /proxy": lines[1],
        "GET /proxy/one/two": lines[1],
        "POST /proxy": None,
        "POST /a.b": lines[2],
        "POST /a-b": None,
    }
    told = {one: session.forbids(*one.split(" ")) for one in asked}
    assert told == asked


def test_no_more_is_sent_than_pacing_allows(play: Any) -> None:
    """Whatever else runs beside: the preflight, the checks and the cleaning together."""

    async def asks(ctx: CheckContext) -> list[Finding]:
        lanes = [ctx.lane(f"lane {place}", key=ctx.key("private_prod")) for place in range(9)]
        await ctx.gather([lane.ask("POST", "/tokenize", ["a"]) for lane in lanes])
        return [ctx.passes("TOK-LEAF", "asked")]

    deployment = deploy(pacing=RateOf(20, 2 * SECOND_NS))
    report = play(_check("a", asks, "TOK-LEAF"), deployment=deployment)
    sent_ns = sorted(one.sent_ns for one in report.exchanges.values())
    apart_ns = {after - before for before, after in itertools.pairwise(sent_ns)}
    assert apart_ns == {SECOND_NS // 10}
    assert len(sent_ns) > 20


@pytest.mark.parametrize("lost", [5, 6])
def test_a_target_that_answers_no_longer_is_not_asked_on(play: Any, lost: int) -> None:
    """A few answers may be lost in a row; then each further one would cost its whole timeout."""

    async def asks(ctx: CheckContext) -> list[Finding]:
        send, numbers = ctx.transport.send, itertools.count(1)

        async def losing(ask: Any, place: Any) -> Any:
            answer = await send(ask, place)
            if next(numbers) <= lost:
                answer.status, answer.error = None, "cut off"
            return answer

        ctx.transport.send = losing  # type: ignore[method-assign] # reason: a network of its own
        lane = ctx.lane("one", key=ctx.key("private_prod"))
        for _ in range(8):
            await ctx.gather([lane.ask("POST", "/tokenize", {})])
        return [ctx.passes("TOK-LEAF", "asked")]

    result = play(_check("a", asks, "TOK-LEAF")).result("TOK-LEAF")
    expected = (Verdict.PASS, "asked")
    if lost == 6:
        expected = (Verdict.INCONCLUSIVE, "the target no longer answers")
    assert (result.verdict, result.message) == expected


def test_the_budget_of_requests_holds(play: Any) -> None:
    async def asks(ctx: CheckContext) -> list[Finding]:
        for _ in range(100):
            await ctx.client.insist("POST", "/tokenize", {"a": "b"}, key=ctx.key("private_prod"))
        return [ctx.passes("TOK-LEAF", "asked")]

    deployment = deploy(budget=Budget(requests=50, minutes=1))
    report = play(_check("a", asks, "TOK-LEAF", requests=20), deployment=deployment)
    assert "budget.requests = 50 leaves this check 30 requests" in report.result("TOK-LEAF").message
    assert report.cleaned[1] > 0
    assert report.requests <= 50
    assert "the harness failed" not in report.verdict_line


def test_a_check_takes_what_others_leave_of_the_budget(play: Any) -> None:
    """Each has its usual requests for itself; what nobody needs is there for the first to ask."""

    def asking(count: int) -> Any:
        async def asks(ctx: CheckContext) -> list[Finding]:
            for _ in range(count):
                key = ctx.key("private_prod")
                await ctx.client.insist("POST", "/tokenize", {"a": "b"}, key=key)
            return [ctx.passes(ctx.check.clauses[0], "asked")]

        return asks

    asked = {"TOK-LEAF": 250, "TOK-ARRAY": 250, "TOK-PLAIN": 100}
    checks = [_check(x, asking(count), x, requests=100) for x, count in asked.items()]
    report = play(*checks, deployment=deploy(budget=Budget(requests=700, minutes=20)))
    verdicts = [report.result(clause).verdict for clause in asked]
    assert verdicts == [Verdict.PASS, Verdict.SKIPPED, Verdict.PASS]
    assert report.requests <= 700


def test_the_plan_is_held_against_the_budget_before_the_start() -> None:
    small = [_check(f"small-{place}", _passes, "TOK-LEAF", requests=10) for place in range(5)]
    large = _check("large", _passes, "REC-ID", requests=500)
    for budget, kept, left in ((5_000, 6, []), (300, 5, ["REC-ID"])):
        target = deploy(budget=Budget(requests=budget)).target
        plan = make_plan(target, LimitTable.default(), select([]), [*small, large])
        assert len(plan.dealt) == kept
        assert [one.clause for one in plan.left_out] == left
        assert plan.requests <= plan.requests_most <= budget
        assert all(plan.reserved[one.check.id] >= one.check.requests for one in plan.dealt)
    assert plan.left_out[0].message == (
        "its 500 requests do not fit budget.requests = 300; raise it"
    )


def test_a_check_that_takes_longer_than_the_budget_is_left_out_before_the_start() -> None:
    check = _check("a", _passes, "TOK-LEAF", takes_ns=121 * SECOND_NS)
    target = deploy(budget=Budget(minutes=2)).target
    plan = make_plan(target, LimitTable.default(), select(["TOK-LEAF"]), [check])
    says = plan.left_out[0].message.replace("\u202f", " ")
    assert says == "it takes 2 min 1 s, more than budget.minutes = 2; raise it"


def test_the_budget_of_time_holds(play: Any) -> None:
    async def waits(ctx: CheckContext) -> list[Finding]:
        lane = ctx.lane("one", key=ctx.key("private_prod"))
        await lane.sleep_ns(61 * SECOND_NS)
        await lane.ask("POST", "/tokenize", {})
        return [ctx.passes("TOK-LEAF", "asked")]

    deployment = deploy(budget=Budget(requests=500, minutes=1))
    report = play(_check("a", waits, "TOK-LEAF", takes_ns=SECOND_NS), deployment=deployment)
    assert "the budget of 1 min is spent" in report.result("TOK-LEAF").message


def test_no_check_waits_for_what_lies_beyond_the_budget_of_time(play: Any) -> None:
    async def waits(ctx: CheckContext) -> list[Finding]:
        await ctx.lane("one").sleep_ns(3_600 * SECOND_NS)
        return [ctx.passes("TOK-LEAF", "waited")]

    deployment = deploy(budget=Budget(requests=500, minutes=1))
    report = play(_check("a", waits, "TOK-LEAF", takes_ns=SECOND_NS), deployment=deployment)
    assert "the budget of 1 min is spent" in report.result("TOK-LEAF").message
    assert report.took_ns < 61 * SECOND_NS


def test_cleaning_up_ends_soon_after_the_budget_of_time(play: Any) -> None:

    async def makes(ctx: CheckContext) -> list[Finding]:
        findings: list[Finding] = []
        key = ctx.key("private_prod")
        for place in range(40):
            made = await ctx.client.insist("POST", "/tokenize", {"a": f"text {place}"}, key=key)
            findings.append(ctx.passes("TOK-LEAF", f"got {made.status}"))
        answer = ctx.transport.send

        async def slow(ask: Any, place: Any) -> Any:
            await ctx.transport.sleep_until_ns(ctx.transport.now_ns + 20 * SECOND_NS)
            return await answer(ask, place)

        ctx.transport.send = slow  # type: ignore[method-assign] # reason: a busy deployment
        return findings

    deployment = deploy(budget=Budget(requests=500, minutes=1))
    report = play(_check("a", makes, "TOK-LEAF"), deployment=deployment)
    assert report.result("TOK-LEAF").verdict is Verdict.PASS
    assert report.took_ns < 111 * SECOND_NS
    assert report.cleaned[1] > 0
    assert "the harness failed" not in report.verdict_line


def test_checks_that_wait_run_concurrently_with_keys_of_their_own(play: Any) -> None:
    seen: dict[str, Any] = {}

    async def probe(ctx: CheckContext) -> list[Finding]:
        lane = ctx.lane("one", key=ctx.key("public"))
        seen[ctx.check.id] = (ctx.keys("public"), ctx.sources, lane.now_ns)
        await lane.sleep_ns(60 * SECOND_NS)
        answers = await ctx.gather([lane.ask("POST", "/tokenize", {}) for _ in range(3)])
        assert all(answer.ok for answer in answers)
        return [ctx.passes("LIM-PUBLIC", "probed")]

    wants: dict[str, Any] = {"sources": 2, "takes_ns": 60 * SECOND_NS, "is_probe": True}
    probes = [_check(i, probe, "LIM-PUBLIC", roles=("public",) * 2, **wants) for i in "abc"]
    deployment = deploy()
    report = play(*probes, _check("d", _passes, "TOK-LEAF"), deployment=deployment)
    assert report.result("LIM-PUBLIC").verdict is Verdict.PASS
    assert report.floor_ns == 60 * SECOND_NS
    assert report.took_ns == 60 * SECOND_NS
    keys = [key for taken, _, _ in seen.values() for key in taken]
    sources = [source for _, taken, _ in seen.values() for source in taken]
    assert len(set(keys)) == len(keys) == 6
    assert "public.1" not in keys
    assert len(set(sources)) == len(sources) == 6


def test_a_probe_with_a_wrong_key_is_inconclusive(play: Any) -> None:
    deployment = deploy()
    deployment.transport.learn_key("public.1", "not a key")
    report = play(
        _check("a", _passes, "LIM-PUBLIC", roles=("public",)),
        _check("b", _passes, "TOK-LEAF"),
        deployment=deployment,
    )
    assert report.result("LIM-PUBLIC").verdict is Verdict.INCONCLUSIVE
    assert "public.1 is not a key of this deployment (401" in report.result("LIM-PUBLIC").message
    assert report.result("TOK-LEAF").verdict is Verdict.PASS


def test_addresses_that_are_one_to_the_deployment_are_told(play: Any) -> None:
    async def probe(ctx: CheckContext) -> list[Finding]:
        return [ctx.fails("LIM-PUBLIC", "counted by key alone")]

    async def at_one(ctx: CheckContext) -> list[Finding]:
        return [ctx.passes("TOK-LEAF", "one address is enough")]

    check = _check("a", probe, "LIM-PUBLIC", sources=2, is_probe=True, roles=("private_test",))
    other = _check("b", at_one, "TOK-LEAF", sources=1, is_probe=True)
    report = play(check, other)
    assert report.preflight["apart"] is True
    assert report.result("LIM-PUBLIC").verdict is Verdict.FAIL
    by_address = LimitTable.default().replace_rule("LIM-TEST-TENANT", counter="ip")
    for limits, apart, says in (
        (None, None, "are seen as one address, or only keys count"),
        (by_address, False, "as one address"),
    ):
        deployment = deploy(limits=limits)
        request = deployment.transport._request

        def from_one_address(ask: Any, request: Any = request) -> Any:
            found = request(ask)
            found.ip = "198.51.100.1"
            return found

        deployment.transport._request = from_one_address  # type: ignore[method-assign] # reason: a proxy in front
        report = play(check, other, deployment=deployment)
        assert report.preflight["apart"] is apart
        assert report.result("LIM-PUBLIC").verdict is Verdict.INCONCLUSIVE
        assert report.result("LIM-PUBLIC").message.endswith(says)
        assert report.result("TOK-LEAF").message == "one address is enough"


def test_a_role_that_is_missing_is_said_before_the_run() -> None:
    target = deploy(keys=()).target
    check = _check("a", _passes, "LIM-PUBLIC", roles=("public", "public"))
    plan = make_plan(target, LimitTable.default(), select(["LIM-PUBLIC"]), [check])
    assert plan.dealt == []
    assert plan.left_out[0].message == (
        'the target has 0 of 2 keys of role public; add [[keys]] role = "public"'
    )


def test_too_few_keys_make_rounds_and_far_too_few_leave_probes_out() -> None:
    async def probe(ctx: CheckContext) -> list[Finding]:
        return []

    wants: dict[str, Any] = {"sources": 1, "is_probe": True, "roles": ("public",) * 2}
    for takes_s, minutes, rounds in (
        (60, 5, [1, 2, 1]),
        (60, 4, [1, 2]),
        (60, 3, [1, 2]),
        (61, 3, [1]),
    ):
        lasts: dict[str, Any] = {"takes_ns": takes_s * SECOND_NS, **wants}
        checks = [_check(name, probe, "LIM-PUBLIC", **lasts) for name in "abcd"]
        target = deploy(keys_a_role=4, budget=Budget(minutes=minutes)).target
        plan = make_plan(target, LimitTable.default(), select(["LIM-"]), checks)
        assert [len(each) for each in plan.rounds] == rounds
        pauses_s = 60 * (len(rounds) - 1)
        assert plan.floor_ns == (takes_s * len(rounds) + pauses_s) * SECOND_NS
        assert len(plan.left_out) == 4 - sum(rounds)
        assert all("too few keys and addresses" in one.message for one in plan.left_out)


def test_a_probe_waits_for_a_key_that_other_requests_use_too() -> None:
    """The first of several keys stays for the preflight, and the only one for other checks."""
    check = _check("a", _passes, "TOK-LEAF", roles=("public",))
    for others, keys, wanted, rounds in (
        ([], 1, 1, [1]),
        ([check], 1, 1, [0, 1]),
        ([], 2, 1, [1]),
        ([], 2, 2, [0, 1]),
        ([check], 3, 2, [1]),
    ):
        probe = _check("b", _passes, "LIM-PUBLIC", roles=("public",) * wanted, is_probe=True)
        target = deploy(keys_a_role=keys).target
        plan = make_plan(target, LimitTable.default(), select([]), [*others, probe])
        assert [len(each) for each in plan.rounds] == rounds
        assert plan.rounds[-1][0].sources == target.addresses[:1], "it asks for none of its own"


def test_what_virtual_time_leaves_out_is_told_unless_the_checks_are_named(play: Any) -> None:
    checks = _check("a", _passes, "TOK-LEAF"), _check("schema.a", _passes, "TOK-LEAF")
    assert play(*checks).unrun == ("schema.a",)
    assert play(*checks, checks=("a",)).unrun == ()


def test_one_address_stays_for_the_checks_beside_a_probe() -> None:
    """Two addresses are enough for one round; with one, the probe waits until it has it alone."""
    check = _check("a", _passes, "TOK-LEAF")
    wants: dict[str, Any] = {"sources": 1, "takes_ns": SECOND_NS, "is_probe": True}
    probe = _check("b", _passes, "LIM-IP", **wants)
    target = deploy(sources=("127.0.0.2", "127.0.0.3")).target
    for sources, rounds in ((target.sources, [1]), (target.sources[:1], [0, 1])):
        own = dataclasses.replace(target, sources=sources)
        plan = make_plan(own, LimitTable.default(), select([]), [check, probe])
        assert [len(each) for each in plan.rounds] == rounds


def test_a_shape_of_the_targets_own_is_asked(play: Any) -> None:
    async def searches(ctx: CheckContext) -> list[Finding]:
        exchange = await ctx.client.call("search", {"value": "x y"}, key=ctx.key("private_prod"))
        assert (exchange.ask.path, exchange.ask.body) == ("/find", {"q": "data:x y"})
        return [ctx.passes("TOK-LEAF", f"got {exchange.status}")]

    shape = RequestShape(method="POST", path="/find", body={"q": "data:{value}"})
    report = play(_check("a", searches, "TOK-LEAF"), deployment=deploy(requests={"search": shape}))
    assert report.result("TOK-LEAF").message == "got 404"


def test_patience_outlasts_a_limit_that_was_not_foreseen(play: Any) -> None:
    """D-AND-COUNTER: pairs are expected, and this deployment counts by key and by address."""

    async def asks(ctx: CheckContext) -> list[Finding]:
        key = ctx.key("private_test")
        statuses = {
            (await ctx.client.insist("POST", "/tokenize", {}, key=key)).status for _ in range(120)
        }
        return [ctx.passes("TOK-LEAF", f"got {statuses}")]

    base = deploy()
    profile = base.engine.profile.replace(limits={"and_counter": "each"})
    check = _check("a", asks, "TOK-LEAF", requests=130)
    report = play(check, deployment=deploy(profile=profile))
    assert report.result("TOK-LEAF").message == "got {200}"
    assert any(one.refused for one in report.exchanges.values())
    assert report.took_ns >= 20 * SECOND_NS


# --- what is kept -------------------------------------------------------------------------------


async def _wanders(ctx: CheckContext) -> list[Finding]:
    findings: list[Finding] = []
    chance = ctx.random("walk")
    key = ctx.key("private_prod")
    answers = [
        await ctx.client.insist("POST", "/tokenize", {"a": str(chance.random())}, key=key)
        for _ in range(5)
    ]
    ids = sorted(answer.json["a"] for answer in answers)
    findings.append(ctx.finding("TOK-LEAF", Verdict.FAIL, f"saw {ids}", *answers))
    findings.append(
        ctx.finding(
            "TOK-PLAIN", Verdict.PASS, "read", reading=("tokens.depth_limit", 4 * len(answers))
        )
    )
    return findings


async def _probes(ctx: CheckContext) -> list[Finding]:
    lanes = [ctx.lane(str(place), key=ctx.key("public")) for place in range(3)]

    async def asks(lane: Any, after_s: int) -> list[int]:
        await lane.sleep_ns(after_s * SECOND_NS)
        return [(await lane.ask("POST", "/tokenize", {})).received_ns for _ in range(4)]

    found = await ctx.gather([asks(lane, 7 - place) for place, lane in enumerate(lanes)])
    return [ctx.passes("LIM-PUBLIC", f"saw {found} until {lanes[0].now_ns}")]


def test_a_history_is_judged_to_the_same_findings(play: Any, tmp_path: Path) -> None:
    times = iter(range(10**6))
    deployment = deploy(latency=lambda: (1_000_000 * (next(times) % 7), 333_333))
    checks = (
        _check("a", _wanders, "TOK-LEAF", "TOK-PLAIN"),
        _check("b", _probes, "LIM-PUBLIC", roles=("public",), sources=1, is_probe=True),
        _check("c", _crashes, "TOK-ARRAY"),
        _check("d", _passes, "TOK-JSON", roles=("short",) * 3),
    )
    report = play(*checks, deployment=deployment, out=tmp_path)
    judged = judge(tmp_path)
    assert [one.findings for one in judged.results] == [one.findings for one in report.results]
    assert judged.readings() == report.readings() == {"tokens.depth_limit": 20}
    then, now = report.plain(), judged.plain()
    assert now == then


def test_a_choice_is_kept_as_it_was_seen_first_and_a_contradiction_is_told(play: Any) -> None:
    def reads(value: int) -> Any:
        async def judged(ctx: CheckContext) -> list[Finding]:
            return [ctx.reads("TOK-LEAF", "tokens.depth_limit", value)]

        return judged

    seen = {"a": 20, "b": 20, "c": 30, "d": -1}
    report = play(*(_check(name, reads(value), "TOK-LEAF") for name, value in seen.items()))
    assert report.readings() == {"tokens.depth_limit": 20}
    assert report.notes == tuple(
        f"{name}: tokens.depth_limit = 20 and tokens.depth_limit = {seen[name]} were both seen"
        for name in "cd"
    )
    report = play(_check("d", reads(-1), "TOK-LEAF"))
    assert report.readings() == {}
    assert report.notes[0].startswith("d: profile.tokens.depth_limit = -1 must be")


def test_no_file_of_a_run_holds_a_key(play: Any, tmp_path: Path) -> None:
    async def leaks(ctx: CheckContext) -> list[Finding]:
        key = ctx.key("private_prod")
        text = ctx.target.key_labels[key].value
        management = ctx.key("management")
        exchange = await ctx.client.insist(
            "POST", "/tokenize", {text: text}, key=key, headers={"X-Echo": text}
        )
        body = {"name": "x", "kind": "private", "grants": []}
        made = await ctx.client.insist("POST", "/applications", body, key=management)
        path = f"/applications/{made.json['id']}/keys"
        new = await ctx.client.insist("POST", path, {}, key=management)
        secrets.append(new.json["key"])
        ctx.learn_key("made", new.json["key"])
        await ctx.client.insist("POST", "/tokenize", {"a": secrets[-1]}, key="made")
        return [ctx.fails("TOK-LEAF", f"{text} came back, and {secrets[-1]}", exchange, new)]

    secrets: list[str] = []
    deployment = deploy()
    report = play(_check("a", leaks, "TOK-LEAF"), deployment=deployment, out=tmp_path)
    report.save(tmp_path, FORMATS)
    secrets += [key.value for key in deployment.target.keys if key.value]
    assert len(secrets) > 50
    written = [path.read_text("utf-8") for path in tmp_path.iterdir()]
    assert len(written) == 10, "every format, and the history"
    shown = [report._repr_html_(), repr(report), report.clauses.to_csv(), report.findings.to_csv()]
    for text in (*written, *shown):
        assert not [secret for secret in secrets if secret in text]
    assert "&lt;private_prod.1&gt; came back" in report._repr_html_()


def test_what_failed_is_asked_again(play: Any) -> None:
    checks = (_check("a", _fails, "TOK-LEAF"), _check("b", _passes, "TOK-LEAF", "TOK-PLAIN"))
    report = play(*checks)
    results = report.plain()
    before = failed(results, ["TOK-"])
    assert before == {"TOK-LEAF": "fail"}
    deployment = deploy()
    now = again(results, before, deployment.target, transport=deployment.transport)
    assert [one.clause.id for one in now.results] == ["TOK-LEAF"]
    assert {one.check for one in now.results[0].findings} == {"a"}
    assert now.seed == report.seed


def test_a_folder_is_replayed_and_one_without_a_failure_is_refused(
    play: Any, tmp_path: Path
) -> None:
    report = play(_check("a", _fails, "TOK-LEAF"), _check("b", _passes, "TOK-PLAIN"))
    report.save(tmp_path, FORMATS)
    deployment = deploy()
    now = replay(tmp_path, deployment.target, ["TOK-"], transport=deployment.transport)
    assert {one.clause.id: one.word for one in now.results} == {"TOK-LEAF": "fail"}
    with pytest.raises(InputError, match="TOK-PLAIN: nothing of it failed in"):
        replay(tmp_path, deployment.target, ["TOK-PLAIN"])


def test_the_same_seed_asks_the_same(play: Any) -> None:
    first, second = (play(_check("a", _wanders, "TOK-LEAF", "TOK-PLAIN")) for _ in range(2))
    asked = [[one.ask for one in report.exchanges.values()] for report in (first, second)]
    assert asked[0] == asked[1]
    other = play(_check("a", _wanders, "TOK-LEAF", "TOK-PLAIN"), seed=4)
    assert [one.ask for one in other.exchanges.values()] != asked[0]
