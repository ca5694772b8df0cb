"""Keys for client-side encryption: a pair a tenant, the public half shown once (D-ENCRYPTED)."""

from __future__ import annotations

from typing import Any

from engine.messages import Problem, Response
from engine.model import EncryptionKey
from engine.resources.context import Context
from engine.resources.forms import Form, object_schema
from engine.resources.operation import Operation
from engine.resources.pages import Page, page_of
from engine.tokens import timestamp
from engine.vault import jwe

__all__ = ["OPERATIONS"]

_CREATE = Form(
    object_schema({"algorithm": {"type": "string", "enum": ["ECDH-ES", "RSA-OAEP-256"]}}),
    "D-ENCRYPTED",
)
_CLAUSES = ("TOK-ENCRYPTED",)


def _shown(key: EncryptionKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "tenant_id": key.tenant_id,
        "algorithm": key.algorithm,
        "created_at": timestamp(key.created_at_ns),
    }


def _found(context: Context) -> EncryptionKey:
    key = context.services.store.get(EncryptionKey, context.params["id"])
    if key is None or key.tenant_id != context.tenant.id:
        raise Problem(404, "There is no such encryption key.", clause="D-STATUSES")
    return key


def _create(context: Context) -> Response:
    context.require("key:create")
    body = {} if context.is_bodiless else _CREATE.check(context.json)
    services, tenant = context.services, context.tenant
    key_id = services.new_id()
    algorithm = body.get("algorithm", "ECDH-ES")
    pair = jwe.generate(algorithm, key_id)
    sealed = services.vault.of(tenant.id).seal("/keys/", key_id, pair.private, "private-key")
    key = EncryptionKey(key_id, tenant.id, algorithm, pair.public_jwk, sealed, context.wall_ns)
    services.store.put(key)
    context.log("key:create", "encryption-key", key.id, 201)
    location = {"Location": f"/keys/{key.id}"}
    return Response(201, {**_shown(key), "public_key": dict(pair.public_jwk)}, location)


def _list(context: Context) -> Response:
    context.require("key:read")
    store, tenant_id = context.services.store, context.tenant.id
    page = page_of(
        Page.of(context),
        lambda after, size: store.list(EncryptionKey, tenant_id, after=after, size=size),
        _shown,
    )
    return Response(200, page)


def _get(context: Context) -> Response:
    context.require("key:read")
    return Response(200, _shown(_found(context)))


def _delete(context: Context) -> Response:
    context.require("key:delete")
    key = _found(context)
    context.services.store.delete(EncryptionKey, key.id)
    context.log("key:delete", "encryption-key", key.id, 204)
    return Response(204)


OPERATIONS = (
    Operation(
        name="create_encryption_key",
        method="POST",
        path="/keys",
        summary="Create a key pair; the public half is in this answer only.",
        run=_create,
        clauses=_CLAUSES,
        permission="key:create",
        body="json",
        body_optional=True,
        form=_CREATE,
        success_status=201,
    ),
    Operation(
        name="list_encryption_keys",
        method="GET",
        path="/keys",
        summary="List the tenant's encryption keys.",
        run=_list,
        clauses=_CLAUSES,
        permission="key:read",
        paged=True,
    ),
    Operation(
        name="get_encryption_key",
        method="GET",
        path="/keys/{id}",
        summary="Show an encryption key.",
        run=_get,
        clauses=_CLAUSES,
        permission="key:read",
    ),
    Operation(
        name="delete_encryption_key",
        method="DELETE",
        path="/keys/{id}",
        summary="Delete an encryption key.",
        run=_delete,
        clauses=_CLAUSES,
        permission="key:delete",
        success_status=204,
    ),
)
