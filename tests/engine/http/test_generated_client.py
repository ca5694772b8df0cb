"""A client that a generator makes of the document works against the server, as it comes.

The generator is openapi-python-client. What is asked of a document so that others understand it
too stands in `test_openapi.test_generators_of_clients_understand_the_document`.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engine.http.live import KEY, Live

NAME = "client_of_the_document"
CARD = {
    "type": "card",
    "data": {"number": "4242424242424242", "expiration_month": 12, "cvc": "123"},
    "search_indexes": ["{{ data.number }}"],
}


class Client:
    """The generated package: `ask` calls an operation and returns its status and parsed answer."""

    def __init__(self, url: str) -> None:
        package = importlib.import_module(NAME)
        self.models = importlib.import_module(f"{NAME}.models")
        self._client = package.AuthenticatedClient(
            base_url=url, token=KEY, prefix="", auth_header_name="SVC-API-KEY"
        )

    def close(self) -> None:
        self._client.get_httpx_client().close()

    def ask(self, tag: str, operation: str, *path: str, **more: Any) -> tuple[int, Any]:
        module = importlib.import_module(f"{NAME}.api.{tag}.{operation}")
        answer = module.sync_detailed(*path, client=self._client, **more)
        return int(answer.status_code), answer.parsed


@pytest.fixture
def generated(
    live: Live, full: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Generate the package from the document; its folder."""
    (tmp_path / "document.json").write_text(json.dumps(full), encoding="utf-8")
    (tmp_path / "generator.yaml").write_text("post_hooks: []\n", encoding="utf-8")
    made = tmp_path / NAME
    command = [sys.executable, "-m", "openapi_python_client", "generate", "--meta", "none"]
    command += ["--path", str(tmp_path / "document.json"), "--output-path", str(made)]
    command += ["--config", str(tmp_path / "generator.yaml")]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "will not be generated" not in ran.stdout
    monkeypatch.syspath_prepend(tmp_path)
    return made


@pytest.mark.slow
def test_a_generated_client_works(live: Live, full: dict[str, Any], generated: Path) -> None:
    """TOK-PLAIN, TOK-OBJECT, D-CREATE, D-LIST, D-SEARCH, D-PATCH, D-DELETE, D-DETOKENIZE."""
    operations = {o["operationId"] for item in full["paths"].values() for o in item.values()}
    assert operations <= {file.stem for file in (generated / "api").rglob("*.py")}

    with closing(Client(live.url)) as client:
        _use(client)


def _use(client: Client) -> None:
    models = client.models
    body = models.PlainObject.from_dict({"name": "Ada", "deep": {"list": [["x"]]}})
    status, mirror = client.ask("tokenize", "tokenize", body=body)
    assert (status, mirror.to_dict().keys()) == (200, {"name", "deep"})

    card = models.CardTokenRequest.from_dict(CARD)
    status, record = client.ask("tokens", "create_token", body=card)
    assert (status, record.mask.number) == (201, "XXXXXXXXXXXX4242")
    token_id = str(record.id)
    assert client.ask("tokens", "get_token", token_id)[1].id == record.id

    change = models.PatchTokenBody.from_dict({"metadata": {"seen": "yes"}})
    _, changed = client.ask("tokens", "patch_token", token_id, body=change)
    assert changed.metadata.to_dict() == {"seen": "yes"}

    _, shown = client.ask("detokenize", "detokenize", body=[f"{{{{ {token_id} }}}}"])
    assert shown == [CARD["data"]]

    query = models.SearchTokensBody.from_dict({"query": "data.number:4242424242424242"})
    _, found = client.ask("tokens", "search_tokens", body=query)
    assert record.id in {each.id for each in found.data}
    _, listed = client.ask("tokens", "list_tokens", size=1)
    assert (len(listed.data), listed.pagination.page_size) == (1, 1)

    assert client.ask("tokens", "delete_token", token_id)[0] == 204
    status, problem = client.ask("tokens", "get_token", token_id)
    assert (status, problem.status, problem.title) == (404, 404, "Not Found")
