"""Every operation of the registry, asked as it should be: its right, its tenant, its status."""

from __future__ import annotations

from typing import Any

import pytest

from engine.identity import PERMISSIONS
from engine.model import Tenant
from engine.resources import OPERATIONS
from engine.resources.operation import Operation
from tests.engine.deployment import Deployment

BODIES: dict[str, Any] = {
    "tokenize": {"a": "x"},
    "create_token": {"type": "token", "data": "x"},
    "search_tokens": {"query": "data:x"},
    "patch_token": {"metadata": {"a": "b"}},
    "create_token_intent": {"type": "token", "data": "x"},
    "create_reactor": {"name": "r", "code": "c"},
    "patch_reactor": {"name": "s"},
    "invoke_reactor": {"args": 1},
    "create_proxy": {"name": "p", "destination_url": "https://api.example.com"},
    "patch_proxy": {"name": "q"},
    "create_application": {"name": "a", "kind": "public"},
    "patch_application": {"name": "b"},
}
ASKED = [each for each in OPERATIONS if each.authentication == "key"]
OTHER = {"invoke_proxy", "upload_batch_file"}


@pytest.fixture
def made(acme: Deployment) -> dict[str, str]:
    """One of everything, by the first segment of its paths."""
    _, key = acme.principal(set(PERMISSIONS))

    def make(path: str, body: Any = None) -> Any:
        answer = acme.ask("POST", path, body, key=key)
        assert answer.status == 201
        return answer.body

    job = make("/account-updater/jobs")
    rows = b"token,expiration_year,expiration_month\n"
    assert acme.ask("PUT", job["upload_url"], rows, key=None).status == 204
    acme.clock.advance_ns(60_000_000_000)
    application = make("/applications", BODIES["create_application"])["id"]
    return {
        "tokens": make("/tokens", BODIES["create_token"])["id"],
        "token-intents": make("/token-intents", BODIES["create_token_intent"])["id"],
        "reactors": make("/reactors", BODIES["create_reactor"])["id"],
        "proxies": make("/proxies", BODIES["create_proxy"])["id"],
        "account-updater": job["id"],
        "applications": application,
        "key_id": make(f"/applications/{application}/keys")["id"],
        "keys": make("/keys")["id"],
    }


def _asked(operation: Operation, made: dict[str, str]) -> tuple[str, str, Any]:
    kind = operation.path.split("/")[1]
    path = operation.path.replace("{id}", made.get(kind, "")).replace("{key_id}", made["key_id"])
    body = BODIES.get(operation.name)
    if operation.name == "detokenize":
        body = {"a": f"{{{{ {made['tokens']} }}}}"}
    return operation.method, path, body


def test_every_operation_is_asked_here() -> None:
    assert {each.name for each in OPERATIONS} - {each.name for each in ASKED} == OTHER
    assert {each.name for each in ASKED} > set(BODIES)


@pytest.mark.parametrize("operation", ASKED, ids=lambda operation: operation.name)
def test_d_statuses_each_right_alone_is_enough_and_all_others_are_not(
    acme: Deployment, made: dict[str, str], operation: Operation
) -> None:
    """AUTH-CREATE, D-GRANT, D-STATUS, D-STATUSES: 401, 403, 404 in another tenant, then the 2xx."""
    method, path, body = _asked(operation, made)
    right = operation.permission
    assert right is not None

    def status(rights: set[str], tenant: Tenant = acme.tenant) -> int:
        key = acme.principal(rights, tenant=tenant)[1] if rights else None
        return acme.ask(method, path, body, key=key).status

    assert status(set()) == 401
    assert status(set(PERMISSIONS) - {right}) == 403
    if "{id}" in operation.path:
        assert status(set(PERMISSIONS), tenant=acme.engine.create_tenant("Other")) == 404
    assert status({right}) == operation.success_status
