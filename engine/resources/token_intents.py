"""Token intents: sealed data that a later tokenize consumes (D-INTENT, QUO-INTENT)."""

from __future__ import annotations

from typing import Any, Final

from engine.messages import Response
from engine.model import Intent
from engine.resources.context import Context
from engine.resources.documents import Collection
from engine.resources.operation import Operation
from engine.resources.tokenize import decrypter
from engine.tokens import timestamp, validate_intent, walk_one

__all__ = ["OPERATIONS"]


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


_INTENTS: Final = Collection(
    kind=Intent,
    name="token intent",
    path="/token-intents",
    right="token-intent",
    shown=lambda intent, _: _shown(intent),
    is_there=lambda intent, context: intent.until_ns > context.steady_ns,
    clauses=("QUO-INTENT",),
)


OPERATIONS = (
    Operation(
        name="create_token_intent",
        method="POST",
        path="/token-intents",
        summary="Keep sensitive data for a tokenize to come.",
        run=_create,
        clauses=_INTENTS.clauses,
        permission="token-intent:create",
        body="json",
        success_status=201,
    ),
    _INTENTS.view("Show a token intent, without its data."),
    _INTENTS.deletion("Delete a token intent."),
)
