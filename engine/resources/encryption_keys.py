"""Keys for client-side encryption: a pair a tenant, the public half shown once (D-ENCRYPTED)."""

from __future__ import annotations

from typing import Final

from engine.messages import Response
from engine.model import EncryptionKey
from engine.resources.context import Context, Services
from engine.resources.documents import Collection
from engine.resources.forms import INSTANT, OWNED, TEXT, Form, View, object_schema
from engine.vault import jwe

_CREATE = Form(
    object_schema({"algorithm": {"type": "string", "enum": ["ECDH-ES", "RSA-OAEP-256"]}}),
    "D-ENCRYPTED",
)


VIEW: Final = View({**OWNED, "algorithm": TEXT, "created_at": INSTANT})


_KEYS: Final = Collection(
    kind=EncryptionKey,
    name="encryption key",
    path="/keys",
    right="encryption-key",
    shown=lambda key, _: VIEW.of(key),
    clauses=("TOK-ENCRYPTED",),
)


def new_key(
    services: Services, tenant_id: str, algorithm: jwe.Algorithm, wall_ns: int
) -> EncryptionKey:
    """Return a new pair of a tenant, its private half sealed, for the caller to store."""
    key_id = services.new_id()
    pair = jwe.generate(algorithm, key_id)
    sealed = services.vault.of(tenant_id).seal("/keys/", key_id, pair.private, "private-key")
    return EncryptionKey(key_id, tenant_id, algorithm, pair.public_jwk, sealed, wall_ns)


def _create(context: Context) -> Response:
    context.require("encryption-key:create")
    body = {} if context.is_bodiless else _CREATE.check(context.json)
    algorithm = body.get("algorithm", "ECDH-ES")
    key = new_key(context.services, context.tenant.id, algorithm, context.wall_ns)
    return _KEYS.created(context, key, public_key=dict(key.public_jwk))


OPERATIONS = (
    _KEYS.creation(
        "Create a key pair; the public half is in this answer only.",
        _create,
        _CREATE,
        body_optional=True,
        is_costly=True,  # an RSA pair takes about 30 ms
    ),
    _KEYS.listing("list_encryption_keys", "List the tenant's encryption keys."),
    _KEYS.view("Show an encryption key."),
    _KEYS.deletion("Delete an encryption key."),
)
