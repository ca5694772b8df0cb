"""A deployment that speaks otherwise, and says how in its target: fields, containers, answers.

What stands between the harness and the engine here translates by hand, in words written down
twice: nothing of the harness's own translation is used on the deployment's side.
"""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest

from conformance.context.check import all_checks
from conformance.context.verdicts import Verdict
from conformance.faults import fault_of
from conformance.messages.exchange import HttpRequest
from conformance.messages.shapes import SHAPES, RequestShape, Spelling
from conformance.report.evidence import curl
from conformance.runner.plan import make_plan
from conformance.runner.runner import Options, Run
from conformance.schema.bridge import Bridge
from conformance.target import Dialect, ErrorShape, Target, TargetKey
from conformance.wire.in_process import Deployment, deploy
from conformance.wire.over_http import HttpTransport
from conformance.wire.transport import Answer, EngineTransport, Place
from engine import CLAUSES
from engine.clauses import select
from engine.files import Rate
from engine.limits import LimitTable
from tests.conformance.servers import answering, serving

FIELDS = {
    "containers": "vault",
    "number": "pan",
    "_extras": "meta",
    "deduplicated": "known",
    "fingerprint_expression": "fpx",
    "id": "token",
}
VAULTS = {"/general/high/": "main", "/pci/high/": "cards", "/named/": "Named 1", "/pci/": "pci"}
CONTAINERS = ("Named 1", "main")
DEFAULTS = {"token": "main", "card": "cards"}
SELECT = ("TOK-", "REC-", "AUTH-CREATE", "AUTH-READ", "QUO-DETOKENIZE")
LIST = RequestShape(
    method="GET",
    path="/tokens",
    answer={"data": "{items}", "pagination": {"next": "{more}", "page_size": "{size}"}},
)
PLACE = Place("a", "b", 1)


# --- the deployment's side ----------------------------------------------------------------------

_PATHS = {
    "/main/": "/general/high/",
    "main": "/general/high/",
    "cards": "/pci/high/",
    "Named 1": "/named/",
    "pci": "/pci/",
}


def _into_engine(body: Any) -> Any:
    if isinstance(body, list):
        return [_into_engine(one) for one in body]
    if not isinstance(body, dict):
        return body
    if "permissions" in body:
        return {**body, "container": _PATHS.get(body["container"], body["container"])}
    if "type" not in body:
        return {key: _into_engine(one) for key, one in body.items()}
    found = dict(body)
    if isinstance(found.get("search_indexes"), list):
        indexes = found["search_indexes"]
        found["search_indexes"] = [
            one.replace("data.pan", "data.number") if isinstance(one, str) else one
            for one in indexes
        ]
    if "vault" in found:
        names = found.pop("vault")
        told = (
            [_PATHS.get(name, name) if isinstance(name, str) else name for name in names]
            if (isinstance(names, list))
            else names
        )
        found["containers"] = told
    elif "containers" in found:
        found["unknown"] = found.pop("containers")
    if isinstance(found.get("data"), dict) and "pan" in found["data"]:
        found["data"] = {("number" if k == "pan" else k): v for k, v in found["data"].items()}
    if "fpx" in found:
        found["fingerprint_expression"] = str(found.pop("fpx")).replace("data.pan", "data.number")
    return found


def _from_engine(answer: Any) -> Any:
    if isinstance(answer, list):
        return [_from_engine(one) for one in answer]
    if not isinstance(answer, dict):
        return answer
    if not {"id", "tenant_id"} <= set(answer) or "type" not in answer:
        return {key: _from_engine(one) for key, one in answer.items()}
    found = dict(answer)
    found["token"] = found.pop("id")
    if "containers" in found:
        found["vault"] = [VAULTS.get(path, path) for path in found.pop("containers")]
    if "_extras" in found:
        found["meta"] = {"known": found.pop("_extras")["deduplicated"]}
    for name in ("data", "mask"):
        if isinstance(found.get(name), dict):
            found[name] = {("pan" if k == "number" else k): v for k, v in found[name].items()}
    if "search_indexes" in found:
        found["search_indexes"] = [
            one.replace("data.number", "data.pan") for one in found["search_indexes"]
        ]
    if "fingerprint_expression" in found:
        expression = found.pop("fingerprint_expression")
        found["fpx"] = expression.replace("data.number", "data.pan")
    return found


class _Foreign(EngineTransport):
    """The engine behind a front that knows no word of the specification's own."""

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment.engine, deployment.target)
        self._dialect = deployment.target.dialect
        self.seen: list[Any] = []

    async def send(self, ask: HttpRequest, place: Place) -> Answer:
        told = self._dialect.asked(ask)  # as the HTTP transport does
        body = told.body
        if not isinstance(body, bytes):
            self.seen.append(body)
            body = _into_engine(body)
        plain = HttpRequest(
            method=told.method,
            path=told.path,
            key=told.key,
            proxy_key=told.proxy_key,
            host=told.host,
            source=told.source,
            headers=told.headers,
            body=body,
        )
        found = await super().send(plain, place)
        try:
            answer = _from_engine(json.loads(found.body))
        except ValueError:
            return found
        is_list = ask.method == "GET" and ask.path.partition("?")[0] == "/tokens"
        if is_list and isinstance(answer, dict) and "data" in answer:
            answer = {
                "items": answer["data"],
                "more": answer["pagination"]["next"],
                "size": answer["pagination"]["page_size"],
            }
        found.body = json.dumps(answer).encode()
        return found


def _foreign(**more: Any) -> tuple[Deployment, _Foreign]:
    made = deploy(
        fields=FIELDS,
        container_names=CONTAINERS,
        default_containers=DEFAULTS,
        requests={"list": LIST},
        **more,
    )
    return made, _Foreign(made)


@pytest.mark.slow
def test_a_deployment_with_words_of_its_own_passes_what_it_is_asked() -> None:
    made, transport = _foreign()
    options = Options(seed=5, select=SELECT, no_limits=True)
    report = Run(made.target, options, transport=transport).execute()
    odd = {
        one.clause.id: one.message
        for one in report.results
        if one.verdict not in {Verdict.PASS, Verdict.NOT_OBSERVABLE}
    }
    assert odd == {}
    assert not [body for body in transport.seen if isinstance(body, dict) and "containers" in body]
    assert report.readings()["tokens.container_default_card"] == "/cards/"
    assert "the deployment writes `containers` as `vault`, " in report.notes[0]
    assert "`cards` as `/cards/`" in report.notes[1]


def test_a_fault_behind_other_words_is_still_found() -> None:
    made, transport = _foreign(engine=fault_of("mask-last-four-first").engine)
    options = Options(seed=5, select=("REC-CARD-MASK",))
    report = Run(made.target, options, transport=transport).execute()
    assert report.result("REC-CARD-MASK").verdict is Verdict.FAIL
    shown = [one["curl"] for one in report.evidence(report.result("REC-CARD-MASK").findings[0])]
    assert any('"pan"' in line for line in shown), "the curl line is what was sent"


# --- the words one by one -----------------------------------------------------------------------


def test_only_what_is_a_field_is_renamed() -> None:
    own = Dialect(fields=FIELDS, containers=["main"])
    body = {
        "number": {"type": "card", "data": {"number": "4"}, "metadata": {"number": "x"}},
        "list": ["id", {"type": "token", "data": "number", "search_indexes": ["{{ data.id }}"]}],
    }
    told = own.asked(HttpRequest(method="POST", path="/tokenize", body=body)).body
    assert told == {
        "number": {"type": "card", "data": {"pan": "4"}, "metadata": {"number": "x"}},
        "list": ["id", {"type": "token", "data": "number", "search_indexes": ["{{ data.token }}"]}],
    }


def test_a_key_of_a_nested_body_is_no_field_of_a_token() -> None:
    """TOK-OBJECT: objects around tokens have whatever keys the client gives them."""
    own = Dialect(fields=FIELDS, containers=["main"])
    body = {"number": {"id": "a"}, "list": [{"containers": {"type": "token", "id": "b"}}]}
    asked = own.asked(HttpRequest(method="POST", path="/tokenize", body=body))
    assert asked.body == {
        "number": {"id": "a"},
        "list": [{"containers": {"type": "token", "token": "b"}}],
    }


def test_bytes_are_translated_only_where_nothing_is_lost() -> None:
    own = Dialect(fields={"data": "value"})
    plain = HttpRequest(method="POST", path="/tokenize", body=b'{"type": "token",\n "data": "x"}')
    assert own.asked(plain).body == b'{"type": "token", "value": "x"}'
    for raw in (b'{"type": "token", "data": "x", "data": "y"}', b"{", b"[" * 100_000):
        ask = HttpRequest(method="POST", path="/tokenize", body=raw)
        assert own.asked(ask).body == raw


def test_an_answer_is_read_as_the_target_says() -> None:
    own = Dialect(requests={"list": LIST}, fields={"id": "token"})
    ask = HttpRequest(method="GET", path="/tokens?size=1")
    heard = own.heard(ask, 200, b'{"items": [{"token": "1", "type": "card"}], "size": 1}')
    assert json.loads(heard.body or b"") == {
        "data": [{"id": "1", "type": "card"}],
        "pagination": {"page_size": 1},
    }
    assert own.heard(ask, 403, b'{"items": []}').body is None
    assert own.heard(ask, 200, b"<html>").body is None
    whole = Dialect(requests={"list": RequestShape(method="GET", path="/t", answer={"data": "{}"})})
    heard = whole.heard(HttpRequest(method="GET", path="/t"), 200, b"[1]")
    assert json.loads(heard.body or b"") == {"data": [1]}


def test_an_error_with_a_2xx_is_an_error_but_never_a_refusal() -> None:
    own = Dialect(errors=ErrorShape(at="error", status="error.code"))
    ask = HttpRequest(method="POST", path="/tokenize", body={})
    heard = own.heard(ask, 200, b'{"error": {"code": 422}}')
    assert (heard.status, heard.is_ok) == (422, False)
    assert own.heard(ask, 200, b'{"error": {}}').status == 400
    assert own.heard(ask, 200, b'{"error": null, "a": "b"}').is_ok is None
    # The specification gives 429 as a status: a limiter that says so in a body does not keep to it.
    assert own.heard(ask, 200, b'{"error": {"code": 429}}').status == 200


def test_a_success_is_what_the_target_says() -> None:
    shape = RequestShape(method="POST", path="/tokenize", success=(201, 303))
    own = Dialect(requests={"tokenize": shape})
    ask = HttpRequest(method="POST", path="/tokenize", body={})
    assert own.heard(ask, 303, b"{}").is_ok is True
    assert own.heard(ask, 200, b"{}").is_ok is False
    assert own.heard(HttpRequest(method="GET", path="/tokens"), 200, b"{}").is_ok is None


def test_containers_keep_their_names_apart() -> None:
    own = Dialect(containers=["Main", "main", "/pci/", "§"])
    paths = [own.path_of(name) for name in ("Main", "main", "/pci/", "§", "/other/")]
    assert paths == ["/main/", "/main-1/", "/pci/", "/container/", "/other/"]


def test_a_container_is_named_so_in_whatever_field_the_profile_gives_it() -> None:
    own = Dialect(containers=["main"])
    body = {"type": "token", "data": "/main/", "vault": "/main/", "metadata": {"a": "/main/"}}
    told = own.asked(HttpRequest(method="POST", path="/tokenize", body=body)).body
    assert told == {**body, "vault": "main"}
    record = {"id": "1", "type": "main", "vault": "main", "metadata": {"a": "main"}}
    ask = HttpRequest(method="POST", path="/tokenize", body=body)
    heard = own.heard(ask, 201, json.dumps(record).encode())
    assert json.loads(heard.body or b"") == {**record, "vault": "/main/"}


# --- keys and proxies ---------------------------------------------------------------------------


def _sent(target: Target, *asks: HttpRequest) -> list[str]:
    transport = HttpTransport(target)
    try:
        transport.run([transport.send(ask, PLACE) for ask in asks])
    finally:
        transport.close()
    return []


def test_a_key_goes_out_as_the_deployment_takes_it() -> None:
    seen: list[bytes] = []
    answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
    with serving(answering(answer, seen)) as port:
        target = Target(
            base_url=f"http://127.0.0.1:{port}",
            key_header="Authorization",
            key_format="Bearer {key}",
            proxy_host="{proxy_key}.proxy.example",
            keys=(
                TargetKey(role="public", value="canary-one"),
                TargetKey(role="proxy_key", value="canary-two", variable="MINE"),
            ),
        )
        by_hand = {"authorization": "{key:public.1}x"}
        asks = (
            HttpRequest(method="GET", path="/tokens", key="public.1"),
            HttpRequest(method="GET", path="/tokens", headers=by_hand),
            HttpRequest(method="GET", path="/proxy", proxy_key="proxy_key.1"),
            HttpRequest(method="GET", path="/proxy/{proxy_key}/a", proxy_key="proxy_key.1"),
        )
        for ask in asks:
            _sent(target, ask)
    assert b"Authorization: Bearer canary-one\r\n" in seen[0]
    assert b"authorization: Bearer canary-onex\r\n" in seen[1]
    assert b"Host: canary-two.proxy.example\r\n" in seen[2]
    assert b"SVC-PROXY-KEY" not in seen[2] + seen[3]
    assert seen[3].startswith(b"GET /proxy/canary-two/a HTTP")
    assert '-H "Authorization: Bearer $KEY_PUBLIC_1"' in curl(target, asks[0])
    assert '-H "Host: ${MINE}.proxy.example"' in curl(target, asks[2])
    assert '/proxy/"${MINE}"/a' in curl(target, asks[3])
    assert not [line for line in [curl(target, ask) for ask in asks] if "canary" in line]


def test_an_empty_key_is_sent_in_a_format_too() -> None:
    """The check of keys was inconclusive wherever a space stands before or after the key."""
    answer = b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 2\r\n\r\n{}"
    for key_format in ("Bearer {key}", "{key} is the key"):
        seen: list[bytes] = []
        with serving(answering(answer, seen)) as port:
            base_url = f"http://127.0.0.1:{port}"
            target = Target(base_url=base_url, key_header="X-Key", key_format=key_format)
            _sent(target, HttpRequest(method="GET", path="/tokens", headers={"X-Key": ""}))
        assert f"X-Key: {key_format.replace('{key}', '').strip()}\r\n".encode() in seen[0]


def test_curl_lines_name_the_targets_own_variables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PAYMENTS_KEY", "canary-of-a-key")
    file = tmp_path / "target.toml"
    file.write_text(
        'base_url = "http://localhost"\nkeys = [{ role = "public", value = "${PAYMENTS_KEY}" }]\n',
        "utf-8",
    )
    line = curl(Target.from_toml(file), HttpRequest(method="GET", path="/tokens", key="public.1"))
    assert line.endswith('-H "SVC-API-KEY: $PAYMENTS_KEY"')


# --- what is on for good, and limits of its own -------------------------------------------------


def test_deduplication_that_is_always_on_is_judged_with_the_keys_there_are() -> None:
    keys = (TargetKey(role="private_prod", value="canary-one"),)
    plain = Target(base_url="http://localhost", keys=keys)
    always = Target(base_url="http://localhost", keys=keys, always=("deduplication",))
    assert plain.labels("dedup") == ()
    assert always.labels("dedup") == always.labels("dedup_reader") == ("private_prod.1",)


@pytest.mark.slow
def test_a_deployment_that_always_deduplicates_passes_without_keys_of_its_own() -> None:
    made = deploy()
    for tenant in made.engine.tenants():
        made.engine.set_setting(tenant, made.engine.profile.dedup.setting_name, on=True)
    keys = tuple(key for key in made.target.keys if not key.role.startswith("dedup"))
    target = dataclasses.replace(made.target, keys=keys, always=("deduplication",))
    seen: list[HttpRequest] = []

    class Transport(EngineTransport):
        async def send(self, ask: HttpRequest, place: Place) -> Answer:
            told = target.dialect.asked(ask)  # as the HTTP transport does
            seen.append(told)
            return await super().send(told, place)

    options = Options(seed=9, select=("TOK-", "REC-", "AUTH-CREATE", "AUTH-READ"), no_limits=True)
    run = Run(target, options, transport=Transport(made.engine, target))
    odd = {
        one.clause.id: one.message
        for one in run.execute().results
        if one.verdict not in {Verdict.PASS, Verdict.NOT_OBSERVABLE}
    }
    assert odd == {}
    assert not [ask for ask in seen if "deduplicate_token" in str(ask.body)]


@pytest.mark.parametrize(
    ("own", "is_seen"),
    [("20/10s", False), ("50/10s", False), ("100/1m", False), ("100/10s", True), ("90/1s", True)],
)
def test_a_limit_of_its_own_hides_the_row_that_is_probed_with_it(own: str, is_seen: bool) -> None:
    count, window = own.split("/")
    rate = Rate(int(count), {"1s": 1, "10s": 10, "1m": 60}[window] * 1_000_000_000)
    shape = RequestShape(method="POST", path="/find", body={"q": "{value}"}, limit=rate)
    target = deploy(requests={"search": shape}).target
    checks = [all_checks()["limits.LIM-SEARCH"]]
    plan = make_plan(target, LimitTable.default(), select(["LIM-SEARCH"]), checks)
    assert bool(plan.dealt) is is_seen
    says = "search has a limit of its own here"
    assert [one.message.startswith(says) for one in plan.left_out] == ([] if is_seen else [True])


# --- operations spelt otherwise ------------------------------------------------------------------


OWN = """\
base_url = "http://in-process.example"

[requests.tokenize]
method = "PUT"
path = "/v2/seal"
body = "{value}"

[requests.create]
method = "POST"
path = "/v2/vault"
body = { type = "token", data = "{value}" }

[requests.get]
method = "GET"
path = "/v2/vault/{id}"

[requests.delete]
method = "POST"
path = "/v2/vault/{id}/remove"

[requests.search]
method = "POST"
path = "/v2/find"
body = { query = "data:{value}" }

[requests.detokenize]
method = "POST"
path = "/v2/open"
body = { value = "{{ {id} }}" }

[requests.create_reactor]
method = "POST"
path = "/v2/functions"
body = { name = "{value}", code = "{code}", configuration = {} }

[requests.create_application_key]
method = "POST"
path = "/v2/applications/{id}/credentials"
"""
ENGINES = (
    ("PUT", r"/v2/seal", "POST", "/tokenize"),
    ("POST", r"/v2/vault", "POST", "/tokens"),
    ("GET", r"/v2/vault/([^/]+)", "GET", r"/tokens/\1"),
    ("POST", r"/v2/vault/([^/]+)/remove", "DELETE", r"/tokens/\1"),
    ("POST", r"/v2/find", "POST", "/tokens/search"),
    ("POST", r"/v2/open", "POST", "/detokenize"),
    ("POST", r"/v2/functions", "POST", "/reactors"),
    ("POST", r"/v2/applications/([^/]+)/credentials", "POST", r"/applications/\1/keys"),
)
GONE = ("/tokenize", "/tokens/search", "/detokenize")


def _own(tmp_path: Path) -> dict[str, RequestShape]:
    file = tmp_path / "target.toml"
    file.write_text(OWN, "utf-8")
    return dict(Target.from_toml(file).requests or {})


def _deployed(tmp_path: Path) -> Deployment:
    """Return a deployment whose engine is reached by the other spelling alone."""
    deployment = deploy(requests=_own(tmp_path))
    request = deployment.transport._request

    def respelled(ask: HttpRequest) -> Any:
        found = request(ask)
        path, mark, query = found.path.partition("?")
        if path in GONE:
            found.path = "/nowhere"
        for method, pattern, engines, engines_path in ENGINES:
            if method == found.method and re.fullmatch(pattern, path):
                found.method = engines
                found.path = re.sub(pattern, engines_path, path) + mark + query
                break
        return found

    deployment.transport._request = respelled  # type: ignore[method-assign] # reason: a gateway in front
    return deployment


def test_names_are_told_from_paths_and_back() -> None:
    plain = Spelling()
    assert plain.operation("POST", "/tokens/search") == ("search", {})
    assert plain.operation("GET", "/tokens/a%20b?x=1") == ("get", {"id": "a b"})
    assert plain.operation("GET", "/tenants/self") == ("get_tenant", {})
    assert plain.operation("GET", "/nowhere") is None
    own = Spelling({"get": RequestShape(method="POST", path="/t/{id}/show")})
    assert own.assumed("POST", "/t/1/show?a=b") == "/tokens/1?a=b"
    assert own.here("GET", "/tokens/1?a=b") == ("POST", "/t/1/show?a=b")
    assert own.here("GET", "/tokens") == ("GET", "/tokens")
    assert own.assumed("GET", "/tokens/1") == "/tokens/1"
    for name, shape in SHAPES.items():
        asked = shape.path.replace("{path}", "/a").replace("{", "").replace("}", "")
        assert plain.operation(shape.method, asked) is not None, name


@pytest.mark.slow
def test_a_deployment_that_spells_otherwise_passes_every_clause(tmp_path: Path) -> None:
    deployment = _deployed(tmp_path)
    options = Options(seed=7, no_limits=True)
    report = Run(deployment.target, options, transport=deployment.transport).execute()
    limits = {clause.id for clause in CLAUSES if clause.id.startswith("LIM-")}
    others = {"AUTH-KINDS", "AUTH-LEGACY", "ERR-429"} | limits
    odd = {
        one.clause.id: one.message
        for one in report.results
        if one.verdict not in {Verdict.PASS, Verdict.NOT_OBSERVABLE} and one.clause.id not in others
    }
    assert odd == {}
    assert report.cleaned[0] > 300
    assert report.cleaned[1] == 0
    assert not [one for one in report.exchanges.values() if one.ask.path in GONE]


def test_limits_are_kept_and_probed_by_what_is_asked_for(tmp_path: Path) -> None:
    deployment = _deployed(tmp_path)
    options = Options(seed=7, checks=("limits.LIM-SEARCH",), select=("LIM-SEARCH",))
    report = Run(deployment.target, options, transport=deployment.transport).execute()
    assert report.result("LIM-SEARCH").verdict is Verdict.PASS


def test_generated_requests_are_spelled_so_too(tmp_path: Path) -> None:
    asked: list[tuple[str, str]] = []

    class CheckContext:
        target = deploy(requests=_own(tmp_path)).target

    class Stopping(Bridge):
        def send(self, method: str, path: str, *_: Any, **__: Any) -> Any:
            asked.append((method, path))
            raise _Stop

    class _Stop(Exception):
        pass

    bridge = Stopping(CheckContext())  # type: ignore[arg-type] # reason: what a bridge asks of it
    for method, path in (("POST", "/tokenize"), ("GET", "/tokens/1"), ("GET", "/tokens?size=2")):
        with pytest.raises(_Stop):
            bridge({"REQUEST_METHOD": method, "REQUEST_URI": path}, lambda *_: None)
    assert asked == [("PUT", "/v2/seal"), ("GET", "/v2/vault/1"), ("GET", "/tokens?size=2")]
