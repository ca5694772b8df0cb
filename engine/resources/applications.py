"""What a tenant manages over HTTP: itself, its applications, their keys, and its log.

The part of the operator's API that a management application may use. A key's text appears only in
the answer that creates it (D-KEY). `engine.resources.operator` holds the rules.

`engine.resources.identification` decides what a caller may give, change and delete: no more than
lies in its own scope (D-GRANT-SCOPE, D-RIGHTS).

A log entry says what was done, by whom, and is readable until `Log Retention` is over (QUO-LOG,
D-LOGS). An encryption key is a pair for client-side encryption, its public half shown once
(D-ENCRYPTED).
"""

from __future__ import annotations

import dataclasses
from typing import Any, Final, get_args

from engine.errors import InputError
from engine.identity import ORIGIN_FORM, PERMISSIONS, make_grants, make_origins
from engine.messages import Problem, Response
from engine.model import (
    DEFAULT_QUOTAS,
    Application,
    ApplicationKind,
    EncryptionKey,
    Key,
    TenantKind,
)
from engine.resources.documents import Collection, check_filters, instant_ns, page_of, queried_page
from engine.resources.identification import check_application, check_grants, check_makes_keys
from engine.resources.operation import (
    INSTANT,
    NAME,
    OWNED,
    TEXT,
    TEXTS,
    UUID,
    BodySchema,
    Context,
    Operation,
    Services,
    View,
    object_schema,
)
from engine.resources.operator import (
    COUNT_QUOTAS,
    add_key,
    new_application,
    remove_application,
)
from engine.store import LogFilter, cursor
from engine.tokens.stored import timestamp
from engine.vault import jwe

LOG_VIEW: Final = View(
    {
        **OWNED,
        "created_at": INSTANT,
        "operation": TEXT,
        "entity_type": TEXT,
        "entity_id": TEXT,
        "actor_id": {"type": ["string", "null"]},
        "status": {"type": "integer"},
    }
)


def _list_logs(context: Context) -> Response:
    """List entries whose age is below the quota of the moment (D-QUOTA-CHANGE)."""
    context.require("log:read")
    query, store, tenant = context.query, context.services.store, context.tenant
    names = ("entity_type", "entity_id", "start_date", "end_date")
    check_filters(query, *names, clause="D-LOG-LIST")
    from_ns = context.wall_ns - tenant.quotas["Log Retention"] + 1  # obeys QUO-LOG
    if "start_date" in query:
        from_ns = max(from_ns, instant_ns(query["start_date"], "/start_date"))
    before_ns = instant_ns(query["end_date"], "/end_date") if "end_date" in query else None
    chosen = LogFilter(
        entity_type=query.get("entity_type"),
        entity_id=query.get("entity_id"),
        from_ns=from_ns,
        before_ns=before_ns,
    )
    page = page_of(
        queried_page(context),
        lambda after, size: store.find_logs(tenant.id, chosen, after=after, size=size),
        lambda entry: LOG_VIEW.of(entry, created_at=timestamp(entry.at_ns)),
    )
    return Response(200, page)


_GRANTS = {
    "type": "array",
    "maxItems": 50,
    "items": object_schema(
        {
            "container": {"type": "string", "minLength": 1},
            "permissions": {
                "type": "array",
                "maxItems": len(PERMISSIONS),
                "items": {"type": "string", "enum": list(PERMISSIONS)},
            },
        },
        required=("container", "permissions"),
    ),
}
_ORIGINS = {
    "type": "array",
    "maxItems": 50,
    "items": {"type": "string", "pattern": f"^{ORIGIN_FORM}$", "maxLength": 300},
}
_KIND: Final = {"enum": list(get_args(ApplicationKind))}
_FIELD_CLAUSES = {"grants": "D-GRANT", "origins": "D-CORS"}
_CREATE = BodySchema(
    object_schema(
        {
            "name": NAME,
            "kind": {"type": "string", **_KIND},
            "grants": _GRANTS,
            "origins": _ORIGINS,
        },
        required=("name", "kind"),
    ),
    "AUTH-KINDS",
    _FIELD_CLAUSES,
)
_PATCH = BodySchema(
    object_schema({"name": NAME, "grants": _GRANTS, "origins": _ORIGINS}),
    "AUTH-KINDS",
    _FIELD_CLAUSES,
)
_KEY = BodySchema(object_schema({"legacy": {"type": "boolean"}}), "AUTH-LEGACY")

_LOOKED_AT = 200


VIEW: Final = View(
    {
        **OWNED,
        "name": TEXT,
        "kind": _KIND,
        "grants": {
            "type": "array",
            "items": object_schema({"container": TEXT, "permissions": TEXTS}),
        },
        "origins": TEXTS,
        "created_at": INSTANT,
    }
)
KEY_VIEW: Final = View(
    {"id": UUID, "application_id": UUID, "legacy": {"type": "boolean"}, "created_at": INSTANT}
)
_QUOTAS: Final = {name: {"type": ["string", "number"]} for name in DEFAULT_QUOTAS}
TENANT_VIEW: Final = View(
    {
        "id": UUID,
        "name": TEXT,
        "kind": {"enum": list(get_args(TenantKind))},
        "quotas": object_schema(_QUOTAS, tuple(_QUOTAS)),
        "settings": {"type": "object", "additionalProperties": {"type": "boolean"}},
        "created_at": INSTANT,
    }
)


def _to_json(application: Application, _: Context) -> dict[str, Any]:
    grants = [
        {"container": g.container, "permissions": sorted(g.permissions)} for g in application.grants
    ]
    return VIEW.of(application, grants=grants, origins=list(application.origins))


def _remove(context: Context, application: Application) -> None:
    check_application(context, "application:delete", application)
    remove_application(context.services, application)


_AUTH = ("AUTH-KINDS",)
_APPLICATIONS: Final = Collection(
    kind=Application,
    name="application",
    path="/applications",
    right="application",
    to_json=_to_json,
    remove=_remove,
    clauses=_AUTH,
)


def _pairs(body: dict[str, Any]) -> list[tuple[str, list[str]]]:
    return [(g["container"], g["permissions"]) for g in body.get("grants", [])]


def _not_accepted(error: InputError) -> Problem:
    return Problem(
        400, "The application is not acceptable.", errors={"": [str(error)]}, clause="D-GRANT"
    )


def _of_another_kind(error: InputError, clause: str) -> Problem:
    """Return the 409 to a body that is valid, but not for this application."""
    return Problem(
        409, "The application is of another kind.", errors={"": [str(error)]}, clause=clause
    )


def _tenant(context: Context) -> Response:
    """Show the caller's tenant: QUO-TENANT, durations in whole seconds where they are whole."""
    context.require("tenant:read")
    tenant = context.tenant
    quotas = {name: _quota(name, tenant.quotas[name]) for name in DEFAULT_QUOTAS}
    return Response(200, TENANT_VIEW.of(tenant, quotas=quotas, settings=dict(tenant.settings)))


def _quota(name: str, value: int | str) -> int | float | str:
    if name in COUNT_QUOTAS or isinstance(value, str):
        return value
    return value // 1_000_000_000 if value % 1_000_000_000 == 0 else value / 1_000_000_000


def _create(context: Context) -> Response:
    context.require("application:create")
    body = _CREATE.check(context.json)
    try:
        application = new_application(
            context.services, context.tenant.id, body["name"], body["kind"], _pairs(body)
        )
    except InputError as error:
        raise _not_accepted(error) from None
    if "origins" in body:
        application = _with_origins(application, body["origins"])
    check_grants(context, "application:create", application.grants)
    return _APPLICATIONS.created(context, application)


def _with_origins(application: Application, origins: list[str]) -> Application:
    try:
        return dataclasses.replace(application, origins=make_origins(origins, application.kind))
    except InputError as error:
        raise _of_another_kind(error, "D-CORS") from None


def _patch(context: Context) -> Response:
    context.require("application:update")
    body = _PATCH.check(context.json)
    application = _APPLICATIONS.requested(context)
    check_application(context, "application:update", application)
    changes: dict[str, Any] = {}
    if "name" in body:
        changes["name"] = body["name"]
    if "grants" in body:
        limit = context.services.profile.tokens.container_limit
        try:
            make_grants("private", _pairs(body), limit)  # which may hold every right
        except InputError as error:
            raise _not_accepted(error) from None
        try:
            changes["grants"] = make_grants(application.kind, _pairs(body), limit)
        except InputError as error:
            raise _of_another_kind(error, "D-PERMISSIONS") from None
        check_grants(context, "application:update", changes["grants"], application)
    changed = dataclasses.replace(application, **changes)
    if "origins" in body:
        changed = _with_origins(changed, body["origins"])
    return _APPLICATIONS.changed(context, changed)


def _create_key(context: Context) -> Response:
    context.require("key:create")
    body = {} if context.is_bodiless else _KEY.check(context.json)
    application = _APPLICATIONS.requested(context)
    check_makes_keys(context, application)
    text = add_key(context.services, application, legacy=body.get("legacy", False))
    key = context.services.store.get(Key, text.key_id)
    assert key is not None, "just stored"
    context.log("key:create", "key", key.id, 201)
    context.shows(key.id)
    context.shows(application.id)
    return Response(201, {**KEY_VIEW.of(key), "key": str(text)})


def _list_keys(context: Context) -> Response:
    context.require("key:read")
    application = _APPLICATIONS.requested(context)
    store = context.services.store

    def fetch(after: str | None, size: int) -> list[Key]:
        """Look at the tenant's keys, so many at a time, until the page is full."""
        page: list[Key] = []
        while len(page) < size:
            keys = store.list(Key, application.tenant_id, after=after, size=_LOOKED_AT)
            page += [key for key in keys if key.application_id == application.id]
            if len(keys) < _LOOKED_AT:
                break
            after = cursor(keys[-1])
        return page[:size]

    return Response(200, page_of(queried_page(context), fetch, KEY_VIEW.of))


def _delete_key(context: Context) -> Response:
    context.require("key:delete")
    application = _APPLICATIONS.requested(context)
    key = context.services.store.get(Key, context.params["key_id"])
    if key is None or key.application_id != application.id:
        raise Problem(404, "There is no such key.", clause="D-STATUSES")
    check_application(context, "key:delete", application)
    context.services.store.delete(Key, key.id)
    context.log("key:delete", "key", key.id, 204)
    return Response(204)


_NEW_PAIR = BodySchema(
    object_schema({"algorithm": {"type": "string", "enum": ["ECDH-ES", "RSA-OAEP-256"]}}),
    "D-ENCRYPTED",
)


PAIR_VIEW: Final = View({**OWNED, "algorithm": TEXT, "created_at": INSTANT})


_ENCRYPTION_KEYS: Final = Collection(
    kind=EncryptionKey,
    name="encryption key",
    path="/keys",
    right="encryption-key",
    to_json=lambda key, _: PAIR_VIEW.of(key),
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
    body = {} if context.is_bodiless else _NEW_PAIR.check(context.json)
    return jwe.generate(body.get("algorithm", "ECDH-ES"), context.services.new_id())


def _create_pair(context: Context) -> Response:
    key = _sealed(context.services, context.tenant.id, context.prepared, context.wall_ns)
    return _ENCRYPTION_KEYS.created(context, key, public_key=dict(key.public_jwk))


OPERATIONS = (
    Operation(
        name="list_logs",
        method="GET",
        path="/logs",
        summary="List the tenant's log.",
        run=_list_logs,
        clauses=("QUO-LOG",),
        permission="log:read",
        paged=True,
        query=("entity_type", "entity_id", "start_date", "end_date"),
    ),
    Operation(
        name="get_tenant",
        method="GET",
        path="/tenants/self",
        summary="Show the caller's tenant with its quotas.",
        run=_tenant,
        clauses=("QUO-TENANT",),
        permission="tenant:read",
    ),
    _APPLICATIONS.creation("Create an application.", _create, _CREATE),
    _APPLICATIONS.listing("list_applications", "List the tenant's applications."),
    _APPLICATIONS.view("Show an application."),
    _APPLICATIONS.change("Rename an application or change its grants.", _patch, _PATCH),
    _APPLICATIONS.deletion("Delete an application and its keys."),
    Operation(
        name="create_application_key",
        method="POST",
        path="/applications/{id}/keys",
        summary="Create an API key; its text is in this answer only.",
        run=_create_key,
        clauses=("AUTH-HEADER", "AUTH-LEGACY"),
        permission="key:create",
        body="json",
        body_optional=True,
        form=_KEY,
        success_status=201,
    ),
    Operation(
        name="list_application_keys",
        method="GET",
        path="/applications/{id}/keys",
        summary="List an application's keys, without their texts.",
        run=_list_keys,
        clauses=_AUTH,
        permission="key:read",
        paged=True,
    ),
    Operation(
        name="delete_application_key",
        method="DELETE",
        path="/applications/{id}/keys/{key_id}",
        summary="Delete an API key.",
        run=_delete_key,
        clauses=_AUTH,
        permission="key:delete",
        success_status=204,
    ),
    _ENCRYPTION_KEYS.creation(
        "Create a key pair; the public half is in this answer only.",
        _create_pair,
        _NEW_PAIR,
        body_optional=True,
        prepare=_pair,
        is_costly=True,  # an RSA pair takes 30 ms and more
    ),
    _ENCRYPTION_KEYS.listing("list_encryption_keys", "List the tenant's encryption keys."),
    _ENCRYPTION_KEYS.view("Show an encryption key."),
    _ENCRYPTION_KEYS.deletion("Delete an encryption key."),
)
