"""A deployment that spells its operations in its own way, and says so in `[requests.NAME]`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from conformance.context.verdicts import Verdict
from conformance.messages.exchange import HttpRequest
from conformance.messages.shapes import SHAPES, RequestShape, Spelling
from conformance.runner.runner import Options, Run
from conformance.schema.bridge import Bridge
from conformance.target import Target
from conformance.wire.in_process import Deployment, deploy
from engine import CLAUSES

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
