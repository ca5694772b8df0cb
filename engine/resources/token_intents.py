"""Token intents: sealed data that a later tokenize consumes (D-INTENT, QUO-INTENT)."""

from __future__ import annotations

from typing import Any

from engine.messages import Problem, Response
from engine.model import Intent
from engine.resources.context import Context
from engine.resources.operation import Operation
from engine.resources.tokenize import decrypter
from engine.tokens import timestamp, validate_intent, walk_one

__all__ = ["OPERATIONS"]

_CLAUSES = ("QUO-INTENT",)


def _shown(intent: Intent) -> dict[str, Any]:
    shown: dict[str, Any] = {
        "id": intent.id,
        "tenant_id": intent.tenant_id,
        "type": intent.type,
    }
    if intent.mask is not None:
        shown["mask"] = {**intent.mask}
    shown["created_by"] = intent.created_by
    shown["created_at"] = timestamp(intent.created_at_ns)
    shown["expires_at"] = timestamp(intent.until_ns)
    return shown


def _create(context: Context) -> Response:
    services, tenant = context.services, context.tenant
    plan = walk_one(context.json, services.rules)
    context.require("token-intent:create")
    keys = services.vault.of(tenant.id)
    draft = validate_intent(plan, services.rules, decrypt=decrypter(context))
    retention_ns = tenant.quotas["Token Intent Retention"]
    assert isinstance(retention_ns, int)
    intent_id = services.new_id()
    intent = Intent(
        intent_id,
        tenant.id,
        draft.type,
        context.caller.application.id,
        context.wall_ns,
        context.steady_ns + retention_ns,
        keys.seal("/intents/", intent_id, draft.plaintext),
        draft.mask,
    )
    services.store.put(intent)
    context.log("token-intent:create", "token-intent", intent.id, 201)
    return Response(201, _shown(intent), {"Location": f"/token-intents/{intent.id}"})


def _found(context: Context) -> Intent:
    """Return the intent; readable in [t, t + R), not after (QUO-INTENT)."""
    intent = context.services.store.get(Intent, context.params["id"])
    if intent is None or intent.tenant_id != context.tenant.id:
        raise Problem(404, "There is no such token intent.", clause="D-STATUSES")
    if intent.until_ns <= context.steady_ns:
        raise Problem(404, "There is no such token intent.", clause="D-STATUSES")
    return intent


def _get(context: Context) -> Response:
    context.require("token-intent:read")
    return Response(200, _shown(_found(context)))


def _delete(context: Context) -> Response:
    context.require("token-intent:delete")
    intent = _found(context)
    context.services.store.delete(Intent, intent.id)
    context.log("token-intent:delete", "token-intent", intent.id, 204)
    return Response(204)


OPERATIONS = (
    Operation(
        name="create_token_intent",
        method="POST",
        path="/token-intents",
        summary="Keep sensitive data for a tokenize to come.",
        run=_create,
        clauses=_CLAUSES,
        permission="token-intent:create",
        body="json",
        success_status=201,
    ),
    Operation(
        name="get_token_intent",
        method="GET",
        path="/token-intents/{id}",
        summary="Show a token intent, without its data.",
        run=_get,
        clauses=_CLAUSES,
        permission="token-intent:read",
    ),
    Operation(
        name="delete_token_intent",
        method="DELETE",
        path="/token-intents/{id}",
        summary="Delete a token intent.",
        run=_delete,
        clauses=_CLAUSES,
        permission="token-intent:delete",
        success_status=204,
    ),
)
