"""Intents, logs, applications, keys and the tenant, whose shapes are assumed."""

from typing import Any

import pytest

from engine.identity import PERMISSIONS
from engine.model import Key
from tests.engine.deployment import CARD, Deployment

HOUR_NS = 3_600_000_000_000
MANAGEMENT = {p for p in PERMISSIONS if not p.startswith("token")}


@pytest.fixture
def manager(acme: Deployment) -> str:
    """The key of a management application with every right it may hold."""
    return acme.principal(MANAGEMENT, "management")[1]


# --- token intents ------------------------------------------------------------------------------


@pytest.fixture
def intent_key(acme: Deployment) -> str:
    """A key that may do everything with intents."""
    return acme.key_with("token-intent:create", "token-intent:read", "token-intent:delete")


def _intend(acme: Deployment, key: str, body: Any = CARD) -> dict[str, Any]:
    answer = acme.ask("POST", "/token-intents", body, key=key)
    assert answer.status == 201, answer.body
    record: dict[str, Any] = answer.body
    return record


def test_an_intent_is_consumed_by_a_tokenize(acme: Deployment, intent_key: str) -> None:
    """D-INTENT: it stands instead of data, once; its cvc is not carried over."""
    intent = _intend(acme, intent_key)
    assert "data" not in intent
    assert intent["mask"]["number"] == "XXXXXXXXXXXX4242"
    asked = {"type": "card", "token_intent_id": intent["id"]}
    record = acme.tokenize(asked)
    assert record["mask"] == intent["mask"]
    revealed = acme.ask("POST", "/detokenize", f"{{{{ {record['id']} }}}}").body
    assert revealed["number"] == "4242424242424242"
    assert "cvc" not in revealed
    acme.tokenize(asked, status=400)
    assert acme.ask("GET", f"/token-intents/{intent['id']}", key=intent_key).status == 404


def test_an_intent_survives_a_request_that_fails(acme: Deployment, intent_key: str) -> None:
    """TOK-ATOMIC: what fails consumes nothing."""
    asked = {"type": "card", "token_intent_id": _intend(acme, intent_key)["id"]}
    acme.tokenize([asked, {"type": "visa"}], status=400)
    acme.tokenize([asked, *"abcde"], status=400)
    acme.tokenize([asked, asked], status=400)
    acme.tokenize([asked])


def test_quo_intent_is_readable_until_its_retention_is_over(
    acme: Deployment, intent_key: str
) -> None:
    """QUO-INTENT: readable in [t, t + 24 h), not after, and really gone."""
    intent = _intend(acme, intent_key)
    path = f"/token-intents/{intent['id']}"
    acme.clock.advance_ns(24 * HOUR_NS - 1)
    assert acme.ask("GET", path, key=intent_key).body == intent
    acme.clock.advance_ns(1)
    assert acme.ask("GET", path, key=intent_key).status == 404
    acme.tokenize({"type": "card", "token_intent_id": intent["id"]}, status=400)


def test_an_intent_is_deleted(acme: Deployment, intent_key: str) -> None:
    path = f"/token-intents/{_intend(acme, intent_key)['id']}"
    assert acme.ask("DELETE", path, key=intent_key).status == 204
    assert acme.ask("DELETE", path, key=intent_key).status == 404
    assert acme.ask("POST", "/token-intents", CARD).status == 403


# --- logs ---------------------------------------------------------------------------------------


def test_what_changes_state_or_reads_a_secret_is_logged(acme: Deployment) -> None:
    """D-LOGS: one entry an operation, never a value; none for what failed."""
    reader = acme.key_with("log:read")
    card = acme.ask("POST", "/tokens", CARD).body["id"]
    acme.ask("POST", "/detokenize", f"{{{{ {card} }}}}")
    acme.ask("GET", f"/tokens/{card}")
    acme.tokenize({"type": "visa"}, status=400)
    acme.ask("DELETE", f"/tokens/{card}")
    entries = acme.ask("GET", "/logs", key=reader).body["data"]
    assert [entry["operation"] for entry in entries] == [
        "token:create",
        "token:read",
        "token:delete",
    ]
    assert {entry["entity_id"] for entry in entries} == {card}
    assert {entry["actor_id"] for entry in entries} == {acme.application.id}
    assert "4242" not in str(entries)
    only = acme.ask("GET", "/logs?entity_type=token&size=1", key=reader).body
    assert len(only["data"]) == 1
    assert only["pagination"]["next"] is not None
    assert acme.ask("GET", "/logs").status == 403


def test_quo_log_an_entry_is_readable_until_its_retention_is_over(acme: Deployment) -> None:
    """QUO-LOG: readable in [t, t + 24 h), judged by the quota of the moment (D-QUOTA-CHANGE)."""
    reader = acme.key_with("log:read")
    acme.tokenize(["x"])

    def count() -> int:
        return len(acme.ask("GET", "/logs", key=reader).body["data"])

    acme.clock.advance_ns(24 * HOUR_NS - 1)
    assert count() == 1
    acme.engine.set_quota(acme.tenant, "Log Retention", "1h")
    assert count() == 0
    acme.engine.set_quota(acme.tenant, "Log Retention", "24h")
    acme.clock.advance_ns(1)
    assert count() == 0


def test_logs_are_chosen_by_date(acme: Deployment) -> None:
    reader = acme.key_with("log:read")
    acme.tokenize(["x"])
    acme.clock.advance_ns(HOUR_NS)
    acme.tokenize(["y"])
    later = acme.ask("GET", "/logs?start_date=2026-01-01T00:30:00Z", key=reader).body["data"]
    assert [entry["created_at"] for entry in later] == ["2026-01-01T01:00:00.000000+00:00"]
    sooner = acme.ask("GET", "/logs?end_date=2026-01-01T01:00:00%2B00:00", key=reader).body["data"]
    assert [entry["created_at"] for entry in sooner] == ["2026-01-01T00:00:00.000000+00:00"]
    assert acme.ask("GET", "/logs?start_date=yesterday", key=reader).status == 400


# --- tenant, applications, keys -----------------------------------------------------------------


def test_quo_tenant_the_quotas_start_at_the_defaults(acme: Deployment, manager: str) -> None:
    """QUO-TENANT, QUO-LOG, QUO-TOKENIZE, QUO-DETOKENIZE, QUO-CVC, QUO-INTENT, QUO-RATE."""
    tenant = acme.ask("GET", "/tenants/self", key=manager).body
    assert tenant["quotas"] == {
        "Rate Limit": "Default",
        "Log Retention": 86_400,
        "Tokenize Limit": 5,
        "Detokenize Limit": 5,
        "CVC Retention": 3_600,
        "Token Intent Retention": 86_400,
    }
    assert acme.ask("GET", "/tenants/self").status == 403


def test_a_management_application_makes_applications_and_keys(
    acme: Deployment, manager: str
) -> None:
    """AUTH-KINDS, D-KEY: a key's text stands only in the answer that creates it."""
    made = acme.ask(
        "POST",
        "/applications",
        {
            "name": "shop",
            "kind": "private",
            "grants": [{"container": "/", "permissions": ["token:create"]}],
        },
        key=manager,
    )
    assert made.status == 201
    path = made.headers["Location"]
    key = acme.ask("POST", f"{path}/keys", key=manager)
    assert key.status == 201
    acme.tokenize(["x"], key=key.body["key"])
    listed = acme.ask("GET", f"{path}/keys", key=manager).body["data"]
    assert [one["id"] for one in listed] == [key.body["id"]]
    assert key.body["key"] not in str(listed)
    patched = acme.ask("PATCH", path, {"grants": []}, key=manager)
    assert patched.status == 200
    acme.tokenize(["x"], key=key.body["key"], status=403)
    assert acme.ask("DELETE", f"{path}/keys/{key.body['id']}", key=manager).status == 204
    acme.tokenize(["x"], key=key.body["key"], status=401)
    assert acme.ask("DELETE", path, key=manager).status == 204
    assert acme.ask("GET", path, key=manager).status == 404


def test_auth_legacy_a_legacy_key_can_be_made(acme: Deployment, manager: str) -> None:
    """AUTH-LEGACY."""
    path = f"/applications/{acme.application.id}/keys"
    made = acme.ask("POST", path, {"legacy": True}, key=manager).body
    assert made["legacy"] is True
    assert "_prod_" not in made["key"]
    answer = acme.ask("POST", "/tokenize", ["x"], key=made["key"])
    assert "LIM-LEGACY" in answer.decision.counted


def test_deleting_an_application_ends_its_keys(acme: Deployment, manager: str) -> None:
    application, key = acme.principal({"token:create"})
    assert acme.ask("DELETE", f"/applications/{application.id}", key=manager).status == 204
    acme.tokenize(["x"], key=key, status=401)
    store = acme.engine.services.store
    with store.transaction(write=False):
        left = {kept.application_id for kept in store.list(Key, acme.tenant.id)}
    assert application.id not in left, "what nobody can use is not kept"
    assert acme.application.id in left


@pytest.mark.parametrize(
    ("body", "pointer"),
    [
        ({"name": "a"}, "/kind"),
        ({"name": "a", "kind": "secret"}, "/kind"),
        ({"name": "", "kind": "private"}, "/name"),
        ({"name": "a", "kind": "private", "colour": 1}, "/2"),
        ({"name": "a", "kind": "private", "grants": [{}]}, "/grants/0/container"),
        (
            {
                "name": "a",
                "kind": "public",
                "grants": [{"container": "/", "permissions": ["token:read"]}],
            },
            "",
        ),
    ],
)
def test_an_application_of_another_form_is_400(
    acme: Deployment, manager: str, body: Any, pointer: str
) -> None:
    answer = acme.ask("POST", "/applications", body, key=manager)
    assert answer.status == 400
    assert pointer in answer.body["errors"]


def test_applications_are_listed_page_by_page(acme: Deployment, manager: str) -> None:
    for number in range(5):
        acme.clock.advance_ns(1)
        acme.engine.create_application(acme.tenant, f"app {number}")
    seen: list[str] = []
    start = ""
    while True:
        page = acme.ask("GET", f"/applications?size=3{start}", key=manager).body
        seen += [one["name"] for one in page["data"]]
        if page["pagination"]["next"] is None:
            break
        start = f"&start={page['pagination']['next']}"
    assert set(seen[:2]) == {"private", "management"}  # of one instant, so in order of their ids
    assert seen[2:] == [f"app {number}" for number in range(5)]


def test_encryption_keys_are_shown_without_their_private_half(acme: Deployment) -> None:
    """TOK-ENCRYPTED, D-ENCRYPTED: the public key only at creation."""
    key = acme.key_with("key:create", "key:read", "key:delete")
    made = acme.ask("POST", "/keys", key=key).body
    assert made["public_key"]["kid"] == made["id"]
    assert "d" not in made["public_key"]
    path = f"/keys/{made['id']}"
    shown = acme.ask("GET", path, key=key).body
    assert "public_key" not in shown
    assert [one["id"] for one in acme.ask("GET", "/keys", key=key).body["data"]] == [made["id"]]
    assert acme.ask("DELETE", path, key=key).status == 204
    assert acme.ask("GET", path, key=key).status == 404


def test_d_intent_of_another_tenant_is_not_there(acme: Deployment, intent_key: str) -> None:
    """D-INTENT, REC-TENANT: it can be neither shown nor deleted nor consumed."""
    intent = acme.ask("POST", "/token-intents", CARD, key=intent_key).body["id"]
    rights = {"token:create", "token-intent:read", "token-intent:delete"}
    stranger = acme.principal(rights, tenant=acme.engine.create_tenant("Other"))[1]
    body = {"type": "card", "token_intent_id": intent}
    assert acme.ask("POST", "/tokenize", body, key=stranger).status == 400
    for method in ("GET", "DELETE"):
        assert acme.ask(method, f"/token-intents/{intent}", key=stranger).status == 404
    acme.tokenize(body)


def test_a_key_is_deleted_by_the_path_of_its_own_application(
    acme: Deployment, manager: str
) -> None:
    """404 for another application's key, of this tenant or of another one."""
    path = f"/applications/{acme.application.id}/keys"
    tenant = acme.engine.create_tenant("Other")
    for owner in (acme.tenant, tenant):
        application, _ = acme.principal({"token:create"}, tenant=owner)
        other = acme.engine.create_key(application)
        assert acme.ask("DELETE", f"{path}/{other.key_id}", key=manager).status == 404
        acme.tokenize(["x"], key=str(other))
