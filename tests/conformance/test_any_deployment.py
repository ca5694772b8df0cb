"""Deployments that do what the seed says and nothing else, or say it otherwise: right verdicts."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from conformance.context.answers import is_uuid
from conformance.context.check import all_checks
from conformance.context.context import CheckContext
from conformance.context.verdicts import Verdict
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.report import Report
from conformance.runner.runner import Options, Run
from conformance.schema.bridge import GeneratedCase
from conformance.schema.layer import GeneratedRequests
from conformance.target import Grant, Target
from conformance.wire.in_process import Deployment, deploy
from conformance.wire.transport import Answer, Place
from engine import InputError, Profile
from engine.tokens.strict_json import dumps
from tests.conformance.checks.changed import clause_checks

Change = Callable[[HttpRequest, Answer], None]


def _answering(deployment: Deployment, change: Change) -> Deployment:
    """Let a deployment answer otherwise."""
    send = deployment.transport.send

    async def changed(ask: HttpRequest, place: Place) -> Answer:
        answer = await send(ask, place)
        change(ask, answer)
        return answer

    deployment.transport.send = changed  # type: ignore[method-assign] # reason: a service of its own
    return deployment


class _Played(Run):
    """A run that keeps its report."""

    def play(self) -> _Played:
        """Execute."""
        self.report: Report = self.execute()
        return self


def _run(deployment: Deployment, *select: str, checks: tuple[str, ...] = ()) -> _Played:
    options = Options(select=select, checks=checks, seed=5, no_limits=True)
    return _Played(deployment.target, options, transport=deployment.transport).play()


def _verdicts(run: _Played) -> dict[str, Verdict]:
    return {one.clause.id: one.verdict for one in run.report.results}


def _only_tokenize(ask: HttpRequest, answer: Answer) -> None:
    if ask.path.partition("?")[0] != "/tokenize":
        answer.status, answer.body = 404, b'{"error": "nothing here"}'


# --- only what the seed specifies ---------------------------------------------------------------


@pytest.mark.slow
def test_nothing_but_tokenize_is_judged_on_all_that_it_can_be_asked_for() -> None:
    run = _run(_answering(deploy(), _only_tokenize), "TOK-", "REC-", "AUTH-")
    found = _verdicts(run)
    assert run.preflight.problems == run.preflight.doubts == {}
    own = {name for check in clause_checks().values() for name in check.clauses}
    for clause, verdict in found.items():
        if clause in own:
            assert verdict is Verdict.PASS, clause


@pytest.mark.slow
def test_what_is_not_there_is_skipped_with_a_way_out_and_never_failed() -> None:
    run = _run(_answering(deploy(), _only_tokenize), "QUO-", "RCT-", "ACC-")
    bad = {Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE}
    assert bad.isdisjoint(_verdicts(run).values())
    says = [one.message for one in run.findings if one.clause == "RCT-CODE"]
    assert says[0] == (
        "the deployment answers 404 to POST /reactors, whose method and path are not specified; "
        "if it offers this under another path, describe it in [requests.create_reactor]"
    )


@pytest.mark.slow
def test_without_deduplication_only_what_was_created_stays_unseen() -> None:
    """Refusals and mirrors are judged; that nothing was created, and places of strings, are not."""

    def plain(ask: HttpRequest, answer: Answer) -> None:
        _only_tokenize(ask, answer)
        if "deduplicat" in str(ask.body) and ask.path == "/tokenize":
            answer.status, answer.body = 422, b"{}"

    deployment = _answering(deploy(keys_a_role=1), plain)
    keys = tuple(key for key in deployment.target.keys if not key.role.startswith("dedup"))
    target = dataclasses.replace(deployment.target, keys=keys)
    deployment = dataclasses.replace(deployment, target=target)
    run = _run(deployment, "TOK-")
    found = _verdicts(run)
    assert found["TOK-ATOMIC"] is Verdict.NOT_OBSERVABLE
    (unseen,) = (one for one in run.findings if one.verdict is Verdict.NOT_OBSERVABLE)
    assert unseen.message.startswith("whether tokens are created cannot be seen: ")
    for clause in ("TOK-LEAF", "TOK-PLAIN", "TOK-ARRAY", "TOK-COMPOSITE", "TOK-ONE-OF"):
        assert found[clause] is Verdict.PASS, clause


# --- who a key is -------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_management_key_that_is_refused_as_an_unknown_one_is_a_doubt_and_no_gate() -> None:
    """No failure rests on it, and nothing that it shows is lost."""

    def strict(ask: HttpRequest, answer: Answer) -> None:
        _only_tokenize(ask, answer)
        if answer.status in {401, 403}:
            answer.status = 403

    run = _run(_answering(deploy(), strict), "AUTH-CREATE")
    assert run.preflight.problems == {}
    assert _verdicts(run)["AUTH-CREATE"] is Verdict.PASS


def _granting(*permissions: str) -> Deployment:
    """Return a deployment whose management key may create tokens; permissions: what is told."""
    deployment = deploy(keys_a_role=1)
    keys = deployment.target.keys
    asker = next(key for key in keys if key.role == "private_prod")
    grants = (Grant(permissions=permissions),) if permissions else None
    told = tuple(
        dataclasses.replace(key, value=asker.value + " ", grants=grants)
        if key.role == "management"
        else key
        for key in keys
    )
    deployment.transport.learn_key("management.1", asker.value)
    return dataclasses.replace(deployment, target=dataclasses.replace(deployment.target, keys=told))


@pytest.mark.slow
def test_a_management_key_that_may_create_is_no_failure() -> None:
    """Which rights a key was granted is the operator's to say, not the suite's to guess."""
    run = _run(_granting(), checks=("model.sequences",))
    assert Verdict.FAIL not in {one.verdict for one in run.findings}


@pytest.mark.slow
def test_grants_that_are_told_are_held_to() -> None:
    run = _run(_granting("application:create"), checks=("model.sequences",))
    failed = [one for one in run.findings if one.verdict is Verdict.FAIL]
    assert failed[0].clause == "AUTH-CREATE"
    assert failed[0].message.startswith("tokenize must be refused with a 4xx, got 200")
    run = _run(_granting("token:create"), checks=("model.sequences",))
    assert Verdict.FAIL not in {one.verdict for one in run.findings}


def test_a_role_and_its_grants_must_agree(tmp_path: Path) -> None:
    file = tmp_path / "target.toml"
    file.write_text(
        'base_url = "http://localhost:9"\n[[keys]]\nrole = "private_no_permission"\n'
        'value = "k"\ngrants = [{ permissions = ["token:create"] }]\n',
        "utf-8",
    )
    with pytest.raises(InputError) as caught:
        Target.from_toml(file)
    assert str(caught.value) == (
        f"{file}:5:1: keys[0].grants must not hold token:create: role private_no_permission says "
        "so; choose another role, or other grants"
    )


# --- readings -----------------------------------------------------------------------------------


def _required(names: set[str]) -> Change:
    def change(ask: HttpRequest, answer: Answer) -> None:
        body: Any = ask.body
        data = body.get("data") if isinstance(body, dict) and body.get("type") == "card" else None
        if isinstance(data, dict) and names - set(data):
            answer.status, answer.body = 422, b"{}"

    return change


@pytest.mark.slow
def test_one_required_field_of_a_card_is_not_all_of_them() -> None:
    run = _run(_answering(deploy(), _required({"cvc"})), checks=("model.sequences",))
    assert "tokens.card_all_required" not in run.session.known
    assert Verdict.FAIL not in {one.verdict for one in run.findings}


@pytest.mark.slow
@pytest.mark.parametrize("is_so", [True, False])
def test_all_of_them_or_none_is_the_reading(is_so: bool) -> None:
    profile = Profile().replace(tokens={"card_all_required": is_so})
    run = _run(deploy(profile=profile), checks=("model.sequences",))
    assert ("tokens.card_all_required", is_so) in {one.reading for one in run.findings}


@pytest.mark.slow
def test_a_told_field_of_containers_is_not_asked_for_again(tmp_path: Path) -> None:
    """TOK-CONTAINER must not ask to name in the profile what the profile names."""
    profile = Profile().replace(tokens={"container_field": "vault"})
    deployment = deploy()
    options = Options(checks=("model.sequences",), select=("TOK-CONTAINER",), seed=5)
    run = Run(deployment.target, options, transport=deployment.transport, profile=profile)
    run.execute()
    says = [one.message for one in run.findings if one.clause == "TOK-CONTAINER"]
    assert says
    assert not [one for one in says if "in the profile" in one and "must name" not in one]


# --- generated requests assert no more than the seed --------------------------------------------


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"type": "token", "data": "x", "metadata": None}, 201),
        ({"type": "token", "data": "x", "search_indexes": None}, 201),
        ({"type": "card", "data": {"number": "4242424242424242", "cvc": None}}, 201),
    ],
)
def test_null_may_be_read_as_absent(body: Any, status: int) -> None:
    assert list(_judged(body, status, is_negative=True)) == []


@pytest.mark.parametrize(
    "body", [{"type": "card", "data": None}, {"type": "token", "data": "x", "metadata": 5}]
)
def test_what_is_wrong_without_its_nulls_must_be_refused(body: Any) -> None:
    assert list(_judged(body, 201, is_negative=True)) != []


def test_an_integer_written_with_a_fraction_may_be_refused() -> None:
    card = {"number": "4242424242424242", "expiration_month": 2.0, "expiration_year": 2040}
    assert list(_judged({"type": "card", "data": card}, 422, is_negative=False)) == []
    card["expiration_month"] = 2
    assert list(_judged({"type": "card", "data": card}, 422, is_negative=False)) != []


def _judged(body: Any, status: int, *, is_negative: bool) -> Any:
    deployment = deploy(keys_a_role=1)
    run = Run(deployment.target, transport=deployment.transport)
    ctx = CheckContext(all_checks()["schema.floor"], run.session)
    ask = HttpRequest(method="POST", path="/tokenize", body=dumps(body))
    generated = GeneratedRequests(ctx)
    generated.bridge.exchanges[1] = Exchange(1, "c", "l", 1, ask, 0, 1, status, {}, b"{}")
    return generated.judge(GeneratedCase("tokenize", is_negative, body, number=1))


# --- answers of another form --------------------------------------------------------------------


def _wrapped(ask: HttpRequest, answer: Answer) -> None:
    if ask.path == "/tokenize" and answer.status == 200:
        answer.body = b'{"result": ' + answer.body + b"}"


def _no_body(ask: HttpRequest, answer: Answer) -> None:
    if ask.path == "/tokenize" and answer.status == 200:
        answer.status, answer.body = 204, b""


@pytest.mark.parametrize("change", [_wrapped, _no_body])
def test_an_accepted_answer_of_another_form_is_a_finding(change: Change) -> None:
    run = _run(_answering(deploy(), change), "TOK-", "REC-", "AUTH-")
    report = run.report
    assert report.exit_code == 1
    assert report.verdict_line.startswith("does not conform: ")
    assert "TOK-PLAIN" in report.verdict_line
    says = [one.message for one in run.findings if one.check == "preflight"]
    assert says[0].startswith("a plain object must come back with ")
    found = _verdicts(run)
    assert found["AUTH-HEADER"] is Verdict.PASS


def test_identifiers_that_are_no_uuids_are_one_cause() -> None:
    """Mirrors hold: only REC-ID speaks of the form of an identifier."""

    def renamed(ask: HttpRequest, answer: Answer) -> None:
        if ask.path == "/tokenize" and answer.status == 200:
            answer.body = _renamed(answer)

    run = _run(_answering(deploy(), renamed), "TOK-", "REC-", "AUTH-")
    failed = {one.clause for one in run.findings if one.verdict is Verdict.FAIL}
    assert failed == {"REC-ID"}


def _renamed(answer: Answer) -> bytes:
    def walk(one: Any) -> Any:
        if isinstance(one, dict) and "_extras" in one:
            return {**one, "id": f"tok_{one['id']}"}
        if isinstance(one, dict):
            return {key: walk(inner) for key, inner in one.items()}
        if isinstance(one, list):
            return [walk(inner) for inner in one]
        return f"tok_{one}" if is_uuid(one) else one

    return dumps(walk(json.loads(answer.body)))
