"""The small parts: pacing, what was created, redaction, shapes, choices, verdicts."""

from __future__ import annotations

import base64
import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from conformance.context.check import Check
from conformance.context.choices import known_to_toml, read_profile
from conformance.context.context import CheckContext
from conformance.context.created import Created
from conformance.context.verdicts import Finding, Verdict, assemble, last_line, worst
from conformance.messages.exchange import Exchange, HttpRequest
from conformance.messages.shapes import RequestShape, Spelling, filled
from conformance.report.evidence import curl
from conformance.runner import runner
from conformance.target import Target, TargetKey
from conformance.wire.in_process import deploy
from conformance.wire.pace import Pacer
from conformance.wire.redaction import Redactor, made_key
from engine.clauses import CLAUSES, select
from engine.limits import LimitTable
from engine.profile import Profile

SECOND_NS = 1_000_000_000


def _exchange(ask: HttpRequest, status: int, answer: Any) -> Exchange:
    body = json.dumps(answer).encode()
    return Exchange(1, "check", "lane", 1, ask, 0, 1, status, {}, body)


def test_the_pacer_stays_below_what_the_table_allows() -> None:
    pacer = Pacer(deploy().target, LimitTable.default())
    ask = HttpRequest(method="POST", path="/tokenize", key="private_test.1")
    sent = [pacer.admit(0, ask, ["192.0.2.1", "192.0.2.2"]) for _ in range(100)]
    admitted = [source for source, wait_ns in sent if not wait_ns]
    assert {source: admitted.count(source) for source in set(admitted)} == {
        "192.0.2.1": 45,
        "192.0.2.2": 45,
    }
    wait_ns = sent[-1][1]
    assert wait_ns == 11 * SECOND_NS
    assert pacer.admit(wait_ns, ask, ["192.0.2.1"]) == ("192.0.2.1", 0)


def test_a_block_is_never_begun_by_pacing() -> None:
    pacer = Pacer(deploy().target, LimitTable.default())
    ask = HttpRequest(method="POST", path="/tokenize", key="public.1")
    waits = [pacer.admit(0, ask, ["192.0.2.1"])[1] for _ in range(60)]
    assert waits == [0] * 45 + [61 * SECOND_NS] * 15


def test_what_was_created_follows_from_the_exchanges() -> None:
    created = Created()
    body = {"a": "x", "b": [{"type": "token", "data": "y", "id": "no"}, "z"], "c": "gone"}
    record = {"id": "2", "tenant_id": "no", "_extras": {"deduplicated": False}}
    answer = {"a": "1", "b": [record, "3"]}
    tokenize = HttpRequest(method="POST", path="/tokenize", key="k.1", body=body)
    created.note(_exchange(tokenize, 200, answer))
    old = {"id": "4", "_extras": {"deduplicated": True}}
    create = HttpRequest(method="POST", path="/tokens", key="k.1", body={"type": "token"})
    created.note(_exchange(create, 201, old))
    created.note(
        _exchange(HttpRequest(method="POST", path="/reactors", key="k.2"), 201, {"id": "5"})
    )
    created.note(
        _exchange(HttpRequest(method="POST", path="/proxies", key="k.2"), 400, {"id": "6"})
    )
    created.note(_exchange(HttpRequest(method="DELETE", path="/tokens/1", key="k.1"), 204, None))
    assert [(one.path, one.key) for one in created] == [
        ("/tokens/2", "k.1"),
        ("/tokens/3", "k.1"),
        ("/reactors/5", "k.2"),
    ]


def test_a_token_intent_that_became_a_token_is_gone() -> None:
    created = Created()
    intents = HttpRequest(method="POST", path="/token-intents", key="k.1")
    for name in ("1", "2", "3"):
        created.note(_exchange(intents, 201, {"id": name}))
    of = {name: {"type": "token", "token_intent_id": name} for name in ("1", "2", "unknown")}
    tokenize = HttpRequest(method="POST", path="/tokenize", key="k.1", body={"a": [of["1"]]})
    created.note(_exchange(tokenize, 200, {"a": [{"id": "4"}]}))
    create = HttpRequest(method="POST", path="/tokens", key="k.1", body=of["unknown"])
    created.note(_exchange(create, 201, {"id": "5"}))
    refused = HttpRequest(method="POST", path="/tokenize", key="k.1", body=of["2"])
    created.note(_exchange(refused, 400, None))
    paths = ["/token-intents/2", "/token-intents/3", "/tokens/4", "/tokens/5"]
    assert [thing.path for thing in created] == paths


@given(
    secrets=st.lists(
        st.text('abkey_/+"é1', min_size=4, max_size=9), min_size=1, max_size=6, unique=True
    ),
    around=st.text("abkey_/+1", max_size=9),
)
def test_no_way_of_writing_a_secret_is_left(secrets: list[str], around: str) -> None:
    redactor = Redactor({f"k.{place}": text for place, text in enumerate(secrets)})
    for text in secrets:
        shown = redactor.text(f"{around}{text}{around}")
        assert text not in shown.replace(f"{around}", "", 1) or text in f"{around}{around}"
        assert redactor.text(text).startswith("<k.")
        label = redactor.text(text)
        assert json.loads(redactor.text(json.dumps({text: [text]}))) == {label: [label]}
        encoded = base64.b64encode(text.encode())
        assert redactor.raw(encoded).startswith(b"<k.")
        assert text not in repr(redactor)


def test_a_key_that_a_run_makes_is_a_secret_too() -> None:
    ask = HttpRequest(method="POST", path="/applications/1/keys")
    assert made_key(Spelling(), ask, 201, b'{"key": "new"}') == "new"
    assert made_key(Spelling(), ask, 403, b'{"key": "new"}') is None
    assert (
        made_key(Spelling(), HttpRequest(method="POST", path="/tokenize"), 200, b'{"key": "an-id"}')
        is None
    )
    assert made_key(Spelling(), ask, 201, b"no json") is None


def test_a_shape_is_filled_in() -> None:
    shape = RequestShape(method="POST", path="/x/{id}", body=[{"a": "{value}"}, "is {value}", 3])
    assert filled(shape, {"id": "a/b", "value": {"deep": 1}}) == (
        "POST",
        "/x/a%2Fb",
        [{"a": {"deep": 1}}, "is {'deep': 1}", 3],
    )


def test_a_discovered_profile_holds_what_is_known_and_nothing_else(tmp_path: Path) -> None:
    profile = Profile().replace(limits={"algorithm": "gcra"}, tokens={"depth_limit": 20})
    known = {"limits.algorithm", "limits.delay_bound_ns"}
    file = tmp_path / "profile.toml"
    file.write_text(known_to_toml(profile, known), "utf-8")
    found, told = read_profile(file)
    assert told == known
    assert found == Profile().replace(limits={"algorithm": "gcra"})
    assert Profile.from_toml(file) == found


def test_worst_wins_in_the_order_of_the_design() -> None:
    words = "pass informational not-applicable not-observable skipped inconclusive fail error"
    assert [verdict.word for verdict in sorted(Verdict)] == words.split()
    findings = [Finding("TOK-LEAF", "a", verdict, "") for verdict in Verdict]
    for size in range(3, len(findings) + 1):
        assert worst(findings[:size]) is findings[size - 1].verdict
    assert worst(findings[:2]) is Verdict.PASS  # a remark beside a pass
    assert worst(findings[1:2]) is Verdict.INFORMATIONAL
    assert worst([]) is Verdict.SKIPPED


@pytest.mark.parametrize("verdict", [Verdict.SKIPPED, Verdict.INCONCLUSIVE])
def test_a_partial_run_never_says_conformant(verdict: Verdict) -> None:
    findings = [Finding(clause.id, "a", Verdict.PASS, "") for clause in CLAUSES]
    whole = assemble(CLAUSES, findings)
    assert last_line(whole, total=len(CLAUSES)).startswith("conformant: ")
    partial = assemble(CLAUSES, [*findings, Finding("TOK-LEAF", "b", verdict, "")])
    assert last_line(partial, total=len(CLAUSES)).startswith("partial: ")
    some = select(["TOK-"])
    assert "clauses were not checked" in last_line(assemble(some, findings), total=len(CLAUSES))


def test_a_curl_line_names_keys_by_variables() -> None:
    ask = HttpRequest(
        method="POST",
        path="/proxy?a=b&c",
        key="public.1",
        proxy_key="proxy_key.2",
        source="127.0.0.9",
        body={"it's": "é"},
    )
    target = Target(base_url="http://localhost", key_header="X-Key", proxy_key_header="X-Proxy")
    assert curl(target, ask) == (
        "curl -sS -X POST 'http://localhost/proxy?a=b&c' --interface 127.0.0.9 "
        '-H "X-Key: $KEY_PUBLIC_1" -H "X-Proxy: $KEY_PROXY_KEY_2" '
        "-H 'Content-Type: application/json' -d '{\"it'\"'\"'s\": \"é\"}'"
    )


def test_a_curl_line_names_the_header_of_a_key_of_its_own() -> None:
    keys = (
        TargetKey(role="public", value="one", header="X-Own"),
        TargetKey(role="proxy_key", value="two", header="X-Own-Proxy"),
    )
    ask = HttpRequest(method="GET", path="/proxy", key="public.1", proxy_key="proxy_key.1")
    assert curl(Target(base_url="http://localhost", keys=keys), ask) == (
        'curl -sS -X GET http://localhost/proxy -H "X-Own: $KEY_PUBLIC_1" '
        '-H "X-Own-Proxy: $KEY_PROXY_KEY_1"'
    )


@pytest.mark.parametrize("form", ['Token token="{key}", v=1', "$a `b` \\{key}_v1", "{key}:"])
def test_a_shell_sends_a_key_in_the_form_that_the_target_gives_it(form: str) -> None:
    """What a check writes into the key's header itself was shown without that form."""
    target = Target(base_url="http://localhost", key_header="Authorization", key_format=form)
    for key, headers in (
        ("public.1", {}),
        (None, {"authorization": "{key:public.1}"}),
        (None, {"Authorization": "one"}),
    ):
        ask = HttpRequest(method="GET", path="/tokens", key=key, headers=headers)
        script = f'curl() {{ printf "%s\\n" "$@"; }}; KEY_PUBLIC_1=one; {curl(target, ask)}'
        done = subprocess.run(["sh", "-c", script], capture_output=True, check=True, text=True)
        sent = done.stdout.splitlines()[-1]
        assert sent.partition(": ")[2] == form.replace("{key}", "one")


def test_a_curl_line_sends_an_empty_header() -> None:
    """Without the semicolon, curl sends no header at all."""
    target = Target(base_url="http://localhost", key_header="X-Key")
    line = curl(target, HttpRequest(method="GET", path="/tokens", headers={"X-Key": ""}))
    assert line == "curl -sS -X GET http://localhost/tokens -H 'X-Key;'"


def test_a_long_body_only_begins_to_be_shown() -> None:
    for body in (b"x" * 30_000_000, ["y" * 30_000]):
        target = Target(base_url="http://localhost")
        line = curl(target, HttpRequest(method="PUT", path="/", body=body))
        assert len(line) < 400
        assert "@BODY  # 300" in line
    for size, is_whole in ((4_000, True), (4_001, False)):
        for sent in (b"x" * size, "x" * (size - 2)):
            line = curl(target, HttpRequest(method="PUT", path="/", body=sent))
            assert ("@BODY" not in line) is is_whole


def test_an_interrupted_run_deletes_what_it_created(monkeypatch: pytest.MonkeyPatch) -> None:
    async def interrupted(ctx: CheckContext) -> list[Finding]:
        await ctx.client.insist("POST", "/tokenize", {"a": "b"}, key=ctx.key("private_prod"))
        if ctx.seed:
            raise KeyboardInterrupt
        return [ctx.passes("TOK-LEAF", "never said")]

    check = Check("a", ("TOK-LEAF",), "says", "a pass", interrupted)
    monkeypatch.setattr(runner, "all_checks", lambda: {"a": check})
    made = deploy()
    with pytest.raises(KeyboardInterrupt):
        runner.Run(made.target, runner.Options(seed=1), transport=made.transport).execute()
    store = made.engine.services.store
    with store.transaction(write=False):
        assert [store.count_tokens(tenant.id) for tenant in store.tenants()] == [0] * 4
