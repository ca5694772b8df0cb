"""Token intents: sealed data that a later tokenize consumes (D-INTENT, QUO-INTENT)."""

from __future__ import annotations

from typing import Any, Final

from engine.messages import Response
from engine.model import Intent
from engine.resources.context import Context
from engine.resources.documents import Collection
from engine.resources.forms import INSTANT, MADE, OWNED, TEXT, View
from engine.resources.tokenize import decrypter
from engine.tokens.records import timestamp
from engine.tokens.shapes import walk_one
from engine.tokens.types import validate_intent

VIEW: Final = View({**OWNED, "type": TEXT, "mask": {}, **MADE, "expires_at": INSTANT})


def _to_json(intent: Intent, _: Context) -> dict[str, Any]:
    mask = None if intent.mask is None else {**intent.mask}
    document = VIEW.of(intent, mask=mask, expires_at=timestamp(intent.until_ns))
    return {name: value for name, value in document.items() if value is not None}


def _create(context: Context) -> Response:
    services, tenant = context.services, context.tenant
    walked = walk_one(context.json, services.rules)
    context.require("token-intent:create")
    keys = services.vault.of(tenant.id)
    new_token = validate_intent(walked, services.rules, decrypt=decrypter(context))
    intent_id = services.new_id()
    intent = Intent(
        intent_id,
        tenant.id,
        new_token.type,
        context.caller.application.id,
        context.wall_ns,
        context.steady_ns + tenant.quotas["Token Intent Retention"],
        keys.seal("/intents/", intent_id, new_token.plaintext),
        new_token.mask,
    )
    return _INTENTS.created(context, intent)


_INTENTS: Final = Collection(
    kind=Intent,
    name="token intent",
    path="/token-intents",
    right="token-intent",
    to_json=_to_json,
    is_there=lambda intent, context: intent.until_ns > context.steady_ns,
    clauses=("QUO-INTENT",),
)


OPERATIONS = (
    _INTENTS.creation("Store sensitive data for a later tokenize call.", _create),
    _INTENTS.view("Show a token intent, without its data."),
    _INTENTS.deletion("Delete a token intent."),
)
