"""Keys for client-side encryption: a pair a tenant, the public half shown once (D-ENCRYPTED)."""

from __future__ import annotations

from typing import Any, Final

from engine.messages import Response
from engine.model import EncryptionKey
from engine.resources.context import Context
from engine.resources.documents import Collection
from engine.resources.forms import Form, object_schema
from engine.tokens import timestamp
from engine.vault import jwe

_CREATE = Form(
    object_schema({"algorithm": {"type": "string", "enum": ["ECDH-ES", "RSA-OAEP-256"]}}),
    "D-ENCRYPTED",
)


def _shown(key: EncryptionKey, _: Context) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant_id": key.tenant_id,
        "algorithm": key.algorithm,
        "created_at": timestamp(key.created_at_ns),
    }


_KEYS: Final = Collection(
    kind=EncryptionKey,
    name="encryption key",
    path="/keys",
    right="key",
    shown=_shown,
    clauses=("TOK-ENCRYPTED",),
)


def _create(context: Context) -> Response:
    context.require("key:create")
    body = {} if context.is_bodiless else _CREATE.check(context.json)
    services, tenant = context.services, context.tenant
    key_id = services.new_id()
    algorithm = body.get("algorithm", "ECDH-ES")
    pair = jwe.generate(algorithm, key_id)
    sealed = services.vault.of(tenant.id).seal("/keys/", key_id, pair.private, "private-key")
    key = EncryptionKey(key_id, tenant.id, algorithm, pair.public_jwk, sealed, context.wall_ns)
    return _KEYS.created(context, key, public_key=dict(pair.public_jwk))


OPERATIONS = (
    _KEYS.creation(
        "Create a key pair; the public half is in this answer only.",
        _create,
        _CREATE,
        body_optional=True,
    ),
    _KEYS.listing("list_encryption_keys", "List the tenant's encryption keys."),
    _KEYS.view("Show an encryption key."),
    _KEYS.deletion("Delete an encryption key."),
)
