"""Keys for client-side encryption: a pair a tenant, the public half shown once (D-ENCRYPTED)."""

from __future__ import annotations

from typing import Final

from engine.messages import Response
from engine.model import EncryptionKey
from engine.resources.context import Context, Services
from engine.resources.documents import Collection
from engine.resources.forms import INSTANT, OWNED, TEXT, BodySchema, View, object_schema
from engine.vault import jwe

_CREATE = BodySchema(
    object_schema({"algorithm": {"type": "string", "enum": ["ECDH-ES", "RSA-OAEP-256"]}}),
    "D-ENCRYPTED",
)


VIEW: Final = View({**OWNED, "algorithm": TEXT, "created_at": INSTANT})


_KEYS: Final = Collection(
    kind=EncryptionKey,
    name="encryption key",
    path="/keys",
    right="encryption-key",
    to_json=lambda key, _: VIEW.of(key),
    clauses=("TOK-ENCRYPTED",),
)


def new_key(
    services: Services, tenant_id: str, algorithm: jwe.Algorithm, wall_ns: int
) -> EncryptionKey:
    """Return a new pair of a tenant, its private half sealed, for the caller to store."""
    return _sealed(services, tenant_id, jwe.generate(algorithm, services.new_id()), wall_ns)


def _sealed(services: Services, tenant_id: str, pair: jwe.KeyPair, wall_ns: int) -> EncryptionKey:
    key_id = pair.public_jwk["kid"]
    sealed = services.vault.of(tenant_id).seal("/keys/", key_id, pair.private, "private-key")
    return EncryptionKey(key_id, tenant_id, pair.algorithm, pair.public_jwk, sealed, wall_ns)


def _pair(context: Context) -> jwe.KeyPair:
    """Return a new pair; made with no transaction open, which others would wait for."""
    context.require("encryption-key:create")
    body = {} if context.is_bodiless else _CREATE.check(context.json)
    return jwe.generate(body.get("algorithm", "ECDH-ES"), context.services.new_id())


def _create(context: Context) -> Response:
    key = _sealed(context.services, context.tenant.id, context.prepared, context.wall_ns)
    return _KEYS.created(context, key, public_key=dict(key.public_jwk))


OPERATIONS = (
    _KEYS.creation(
        "Create a key pair; the public half is in this answer only.",
        _create,
        _CREATE,
        body_optional=True,
        prepare=_pair,
        is_costly=True,  # an RSA pair takes 30 ms and more
    ),
    _KEYS.listing("list_encryption_keys", "List the tenant's encryption keys."),
    _KEYS.view("Show an encryption key."),
    _KEYS.deletion("Delete an encryption key."),
)
