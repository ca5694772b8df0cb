"""The tools of the OpenAPI ecosystem take the documents as they are."""

from __future__ import annotations

import json
import re
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from engine.http.openapi import document
from engine.http.openapi.documents import KINDS
from engine.profile import Profile
from tests.node_tools import needs_node, node_tools, run_tool

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), needs_node]

_HOOKS = """
const hooks = require('hooks');
hooks.beforeEach((transaction, done) => {
  const { headers } = transaction.request;
  const status = Number(transaction.expected.statusCode);
  transaction.skip = status >= 300;
  headers['SVC-API-KEY'] = 'key';
  headers['SVC-PROXY-KEY'] = 'key';
  headers.Prefer = `code=${status}`;
  if (transaction.fullPath.startsWith('/batch-files')) {  // Dredd sends only bodies of JSON
    transaction.request.body = 'token,expiration_year,expiration_month\\n';
    headers['Content-Type'] = 'text/csv';
  }
  done();
});
"""
_PORT = 43_117


@pytest.fixture(scope="module")
def documents(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with the document of each kind."""
    folder = tmp_path_factory.mktemp("documents")
    for kind in KINDS:
        (folder / f"{kind}.json").write_text(json.dumps(document(kind, Profile())), "utf-8")
    (folder / ".spectral.yaml").write_text('extends: ["spectral:oas"]\n', "utf-8")
    (folder / "hooks.js").write_text(_HOOKS, "utf-8")
    return folder


def test_redocly_and_spectral_have_nothing_to_say(documents: Path) -> None:
    names = [f"{kind}.json" for kind in KINDS]
    redocly = run_tool("redocly", "lint", *names, cwd=documents)
    assert redocly.returncode == 0, redocly.stderr
    assert "warning" not in redocly.stderr.lower().replace("0 warnings", "")
    spectral = run_tool("spectral", "lint", "--fail-severity=hint", *names, cwd=documents)
    assert spectral.returncode == 0, spectral.stdout


def test_a_linter_sees_a_planted_fault(documents: Path, tmp_path: Path) -> None:
    text = (documents / "full.json").read_text("utf-8").replace('"if": {}', '"if": true')
    (tmp_path / "broken.json").write_text(text, "utf-8")
    assert run_tool("redocly", "lint", "broken.json", cwd=tmp_path).returncode != 0


def test_a_typescript_client_is_generated_and_compiles(documents: Path, tmp_path: Path) -> None:
    made = run_tool(
        "openapi-ts", "--input", documents / "full.json", "--output", "client", cwd=tmp_path
    )
    assert made.returncode == 0, made.stdout + made.stderr
    types = (tmp_path / "client" / "types.gen.ts").read_text("utf-8")
    assert "export type PlainArray = " in types
    assert "export type CardTokenRequest = " in types
    options = {
        "strict": True,
        "noEmit": True,
        "module": "esnext",
        "moduleResolution": "bundler",
        "target": "es2022",
        "lib": ["es2022", "dom", "dom.iterable"],
        "types": [],
    }
    config = {"compilerOptions": options, "include": ["client"]}
    (tmp_path / "tsconfig.json").write_text(json.dumps(config), "utf-8")
    compiled = run_tool("tsc", "--project", "tsconfig.json", cwd=tmp_path)
    assert compiled.returncode == 0, compiled.stdout


@contextmanager
def _mock(documents: Path) -> Iterator[str]:
    command: list[str | Path] = [node_tools() / "prism", "mock", "--port", str(_PORT)]
    url = f"http://127.0.0.1:{_PORT}"
    command.append(documents / "full.json")
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as server:
        try:
            for _ in range(300):
                try:
                    httpx.get(url, trust_env=False)
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            yield url
        finally:
            server.terminate()


def test_a_mock_answers_by_the_examples_and_a_contract_tester_agrees(documents: Path) -> None:
    with _mock(documents) as url:
        headers = {"SVC-API-KEY": "key"}
        with httpx.Client(base_url=url, headers=headers, trust_env=False) as client:
            tokens = client.post("/tokenize", json={"name": "Ada"})
            refused = client.get("/tokens", headers={"Prefer": "code=429"})
        assert (tokens.status_code, list(tokens.json())) == (200, ["name", "email"])
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "56")
        assert refused.json()["detail"].endswith("request can succeed in 56 s.")
        report = run_tool(
            "dredd", "full.json", url, "--hookfiles=hooks.js", "--loglevel=error", cwd=documents
        )
    assert report.returncode == 0, report.stdout[-3000:]
    passing = re.search(r"(\d+) passing, 0 failing", report.stdout)
    assert passing is not None, report.stdout[-3000:]
    operations = sum(len(item) for item in document("full", Profile())["paths"].values())
    assert int(passing[1]) >= operations
