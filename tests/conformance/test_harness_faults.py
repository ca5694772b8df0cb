"""The harness's own faults: never a failure of the deployment, never a run without a report."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from conformance.context.check import Check
from conformance.context.choices import playable, read_profile
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import Exchange, parsed
from conformance.report import Report
from conformance.runner import offline, runner
from conformance.runner.offline import judge
from conformance.runner.runner import Options, Progress, Run
from conformance.target import Target
from conformance.wire.in_process import Deployment, deploy
from engine import Engine, InputError, ManualClock
from engine.vault import jwe
from tests.conformance.checks.changed import judged_of

DEEP = b"[" * 200_000


async def _passes(ctx: CheckContext) -> list[Finding]:
    exchange = await ctx.client.insist(
        "POST", "/tokenize", {"a": "value"}, key=ctx.key("private_prod")
    )
    return [ctx.passes(ctx.check.clauses[0], f"got {exchange.status}", exchange)]


async def _fails(ctx: CheckContext) -> list[Finding]:
    exchange = await ctx.client.insist("GET", "/nowhere", key=ctx.key("private_prod"))
    return [ctx.fails(ctx.check.clauses[0], f"got {exchange.status}", exchange)]


async def _crashes(ctx: CheckContext) -> list[Finding]:
    findings: list[Finding] = []
    findings += await _passes(ctx)
    raise RuntimeError("dictionary changed size during iteration")


@pytest.fixture
def play(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run some checks: `play((judge, clause), …)`."""

    def run(*judges: tuple[Any, str], out: Path | None = None, **more: Any) -> Report:
        checks = [
            Check(f"c{place}", (clause,), "says", "a pass", judged)
            for place, (judged, clause) in enumerate(judges)
        ]
        by_id = {one.id: one for one in checks}
        monkeypatch.setattr(runner, "all_checks", lambda: by_id)
        monkeypatch.setattr(offline, "all_checks", lambda: by_id)
        deployment = deploy()
        options = Options(seed=3, select=tuple(clause for _, clause in judges))
        return Run(
            deployment.target, options, transport=deployment.transport, out=out, **more
        ).execute()

    return run


def test_an_exception_inside_a_check_is_no_failure_of_the_deployment(play: Any) -> None:
    report = play((_crashes, "TOK-LEAF"), (_passes, "TOK-PLAIN"))
    result = report.result("TOK-LEAF")
    assert result.verdict is Verdict.ERROR
    assert result.message.startswith(
        "the harness failed, which says nothing of the deployment: Runti"
    )
    assert report.exit_code == 4
    assert "conform" not in report.verdict_line
    assert "the harness failed in 1: TOK-LEAF" in report.verdict_line
    assert report.plain()["exit_code"] == 4


def test_a_failure_beside_it_is_still_one_and_named_apart(play: Any) -> None:
    report = play((_crashes, "TOK-LEAF"), (_fails, "TOK-PLAIN"))
    assert report.verdict_line.startswith("does not conform: TOK-PLAIN; the harness failed in 1: ")
    assert report.exit_code == 4


def test_a_clause_that_one_check_fails_and_another_cannot_finish_does_not_conform(
    play: Any,
) -> None:
    report = play((_fails, "TOK-LEAF"), (_crashes, "TOK-LEAF"))
    assert report.verdict_line.startswith("does not conform: TOK-LEAF; the harness failed in 1: ")


def test_what_fails_around_a_check_ends_no_run(play: Any) -> None:
    """Progress, cleaning and the rest are the harness too."""

    class Fragile(Progress):
        def ended(self, check: Check, findings: Any) -> None:
            raise OSError("no space left on device")

        def cleaned(self, gone: int, left: int) -> None:
            """Count nothing."""

    report = play((_passes, "TOK-LEAF"), (_passes, "TOK-PLAIN"), progress=Fragile())
    assert {one.verdict for one in report.results} == {Verdict.ERROR}
    assert report.exit_code == 4


def test_cleaning_that_crashes_is_said_and_ends_no_run(
    play: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def crash(*_: Any, **__: Any) -> int:
        raise RuntimeError("cannot delete")

    monkeypatch.setattr(runner, "clean", crash)
    report = play((_passes, "TOK-LEAF"), out=tmp_path)
    assert report.result("TOK-LEAF").verdict is Verdict.PASS
    assert report.exit_code == 4
    assert "the harness failed in cleaning up: RuntimeError: cannot delete" in report.verdict_line
    report.save(tmp_path)
    assert judge(tmp_path).exit_code == 4


def test_the_last_exchange_is_known_while_others_are_added() -> None:
    """Walking the exchanges while other checks ask ended a run without a report."""
    deployment = deploy()
    run = Run(deployment.target, transport=deployment.transport)

    class Changing(dict[int, Exchange]):
        def items(self) -> Any:
            raise RuntimeError("dictionary changed size during iteration")

    run.session.exchanges = Changing()
    check = Check("c", ("TOK-LEAF",), "says", "a pass", _crashes)
    ctx = CheckContext(check, run.session)
    found = [one for one in judged_of(ctx) if one.verdict is Verdict.ERROR]
    assert [one.evidence for one in found] == [(1,)]


# --- answers that are too deep ------------------------------------------------------------------


@pytest.mark.parametrize("raw", [DEEP, DEEP + b"]" * 200_000, b'{"a":' * 300 + b"1" + b"}" * 300])
def test_an_answer_nested_too_deep_is_no_json(raw: bytes) -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parsed(raw)


def test_what_the_suite_sends_itself_can_be_read_back() -> None:
    depth = 200
    assert parsed(b"[" * depth + b"]" * depth) != []


def _nesting(deployment: Deployment) -> None:
    """Let a deployment answer every tokenize with brackets."""
    send = deployment.transport.send

    async def nested(ask: Any, place: Any) -> Any:
        answer = await send(ask, place)
        if ask.path == "/tokenize" and answer.status == 200 and place.check != "preflight":
            answer.body = DEEP
        return answer

    deployment.transport.send = nested  # type: ignore[method-assign] # reason: the deployment's fault


def test_a_deployment_that_nests_without_end_crashes_nothing() -> None:
    deployment = deploy()
    _nesting(deployment)
    options = Options(seed=3, select=("TOK-", "REC-", "AUTH-"), no_limits=True)
    report = Run(deployment.target, options, transport=deployment.transport).execute()
    assert Verdict.ERROR not in {one.verdict for one in report.results}
    assert report.exit_code == 1
    assert "TOK-JSON" in report.verdict_line


# --- what the operator tells --------------------------------------------------------------------


@pytest.mark.slow
def test_containers_that_are_no_paths_crash_nothing(tmp_path: Path) -> None:
    """A profile that the engine would refuse in the midst of a run, in 23 clauses."""
    file = tmp_path / "profile.toml"
    file.write_text('[tokens]\ncontainer_default_token = "main"\n', "utf-8")
    profile, known = read_profile(file)
    assert profile.tokens.container_default_token == "main"  # reason: a container
    assert known == {"tokens.container_default_token"}
    Engine(profile=playable(profile), clock=ManualClock(), seed=1)
    deployment = deploy()
    options = Options(seed=3, select=("TOK-", "AUTH-"), no_limits=True)
    run = Run(deployment.target, options, transport=deployment.transport, profile=profile)
    assert Verdict.ERROR not in {one.verdict for one in run.execute().results}


def test_a_profile_that_cannot_be_played_is_refused_at_its_place(tmp_path: Path) -> None:
    file = tmp_path / "profile.toml"
    file.write_text('[tokens]\nunknown_field = "ignore"\ncontainer_field = "data"\n', "utf-8")
    with pytest.raises(InputError) as caught:
        read_profile(file)
    assert str(caught.value) == (
        f'{file}:3:19: tokens.container_field = "data" must be a name of its own; '
        "a token request object has that field already"
    )


def _target(tmp_path: Path, jwk: dict[str, str]) -> Path:
    file = tmp_path / "target.toml"
    lines = ['base_url = "http://localhost:9"', "[encryption_jwk]"]
    lines += [f"{name} = {json.dumps(text)}" for name, text in jwk.items()]
    file.write_text("\n".join(lines) + "\n", "utf-8")
    return file


@pytest.mark.parametrize("algorithm", jwe.ALGORITHMS)
def test_a_jwk_without_its_optional_members_is_enough(
    algorithm: jwe.Algorithm, tmp_path: Path
) -> None:
    pair = jwe.generate(algorithm, "k1")
    bare = {
        name: text for name, text in pair.public_jwk.items() if name not in {"alg", "kid", "use"}
    }
    assert Target.from_toml(_target(tmp_path, bare)).encryption_jwk == bare
    opened = jwe.decrypt(jwe.encrypt(bare, b'"x"'), lambda kid: pair.private if not kid else None)
    assert opened == b'"x"'


@pytest.mark.parametrize(
    ("jwk", "says"),
    [
        ({"kty": "OKP", "crv": "X25519"}, "cannot be encrypted for"),
        ({"kty": "oct", "x": "AAAA"}, "cannot be encrypted for"),
        ({"kty": "EC", "crv": "P-256", "x": "AA", "y": "AA"}, "cannot be encrypted for"),
        ({"kty": "OKP", "crv": "X25519", "x": "AAAA"}, "cannot be encrypted for"),
        ({"x": "AAAA"}, "cannot be encrypted for"),
    ],
)
def test_a_jwk_that_nothing_can_be_encrypted_for_is_refused_before_the_first_request(
    jwk: dict[str, str], says: str, tmp_path: Path
) -> None:
    file = _target(tmp_path, jwk)
    with pytest.raises(InputError, match=says) as caught:
        Target.from_toml(file)
    assert str(caught.value).startswith(f"{file}:2:")


def test_a_private_key_is_refused_and_not_shown(tmp_path: Path) -> None:
    jwk = {**jwe.generate("ECDH-ES", "k1").public_jwk, "d": "sEcReT"}
    with pytest.raises(InputError, match="give the public half alone") as caught:
        Target.from_toml(_target(tmp_path, jwk))
    assert "sEcReT" not in str(caught.value)


# --- a pass with a remark -----------------------------------------------------------------------


async def _remarks(ctx: CheckContext) -> list[Finding]:
    findings: list[Finding] = []
    findings += await _passes(ctx)
    findings.append(ctx.finding(ctx.check.clauses[0], Verdict.INFORMATIONAL, "one side remark"))
    return findings


def test_a_pass_with_a_remark_is_a_pass(play: Any) -> None:
    report = play((_remarks, "TOK-LEAF"))
    assert report.result("TOK-LEAF").verdict is Verdict.PASS
    assert report.result("TOK-LEAF").word == "pass"
