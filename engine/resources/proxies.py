"""Pre-configured proxies: where requests go, kept under a proxy key or a custom hostname (D-PROXY).

A definition names a destination, perhaps a transform of what goes there and of what comes back,
and whether an API key is needed beside the proxy key. The proxy key's text is in the answer that
creates it and nowhere else; only its hash is stored. A custom hostname lies under a suffix that the
operator lists for the tenant (400 else, D-HOST) and belongs to one proxy: 409 for a second one of
the tenant, 400 where it is another tenant's. `engine.resources.proxy_calls` invokes proxies.
"""

from __future__ import annotations

import dataclasses
import re
from ipaddress import IPv6Address
from typing import Any, Final

from engine.hosts import covers_host, host_fault, host_name
from engine.identity.keys import secret_text
from engine.messages import Problem, Response
from engine.model import Proxy, Tenant
from engine.resources import proxy_calls
from engine.resources.context import Context
from engine.resources.forms import Form, object_schema
from engine.resources.instances import drop_pool
from engine.resources.invoking import check_code, seal_code
from engine.resources.operation import Operation
from engine.resources.pages import Page, page_of
from engine.resources.transforms import codes_of, pool_names
from engine.tokens import timestamp
from engine.vault import hash_key_text

__all__ = ["OPERATIONS"]

_TRANSFORMS: Final = ("request_transform", "response_transform")
_TRANSFORM = {
    **object_schema({"code": {"type": "string", "minLength": 1}}, required=("code",)),
    "type": ["object", "null"],
}
_FIELDS: Final[dict[str, Any]] = {
    "name": {"type": "string", "minLength": 1, "maxLength": 200},
    "destination_url": {"type": "string", "minLength": 1, "maxLength": 2000},
    "request_transform": _TRANSFORM,
    "response_transform": _TRANSFORM,
    "require_auth": {"type": "boolean"},
    "host": {"type": ["string", "null"], "minLength": 1, "maxLength": 253},
}
_CREATE = Form(object_schema(_FIELDS, required=("name", "destination_url")), "D-PROXY")
_PATCH = Form(object_schema(_FIELDS), "D-PROXY")
_PORT: Final = (
    "(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
)
_NAME: Final = "[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_])?"
_REST: Final = r'(?:[/?][!"$-\[\]-~]*)?'  # printable ASCII without space, backslash and fragment
ADDRESS_PATTERN: Final = f"^[Hh][Tt][Tt][Pp][Ss]?://{_NAME}(?::{_PORT})?{_REST}$"
"""A destination by name or IPv4 address; one by IPv6 address, in brackets, is taken too."""

_ADDRESS: Final = re.compile(ADDRESS_PATTERN.removesuffix("$"))
_IPV6_ADDRESS: Final = re.compile(rf"(?i:https?)://\[([^\]]*)\](?::{_PORT})?{_REST}")
_URL_RULE: Final = (
    "must be an http or https address with a host, without user name, fragment and spaces"
)


def _shown(proxy: Proxy, context: Context) -> dict[str, Any]:
    codes = codes_of(context.services, proxy)
    return {
        "id": proxy.id,
        "tenant_id": proxy.tenant_id,
        "name": proxy.name,
        "destination_url": proxy.destination_url,
        **dict(zip(_TRANSFORMS, map(_shown_code, codes), strict=True)),
        "require_auth": proxy.require_auth,
        "host": proxy.host,
        "created_by": proxy.created_by,
        "created_at": timestamp(proxy.created_at_ns),
    }


def _shown_code(code: str | None) -> dict[str, str] | None:
    return None if code is None else {"code": code}


def _found(context: Context) -> Proxy:
    proxy = context.services.store.get(Proxy, context.params["id"])
    if proxy is None or proxy.tenant_id != context.tenant.id:
        raise Problem(404, "There is no such proxy.", clause="D-STATUSES")
    return proxy


def _is_address(url: str) -> bool:
    if _ADDRESS.fullmatch(url) is not None:
        return True
    found = _IPV6_ADDRESS.fullmatch(url)
    try:
        return found is not None and bool(IPv6Address(found[1]))
    except ValueError:
        return False


def _read(body: dict[str, Any], context: Context, proxy_id: str) -> dict[str, Any]:
    """Return the record's fields from a body of the right form, with sealed transforms.

    Raises `Problem` 400 for an address or hostname that is none and for code over its limit
    (RCT-CODE), 409 for a hostname that another proxy has.
    """
    fields = dict(body)
    errors: dict[str, list[str]] = {}
    if "destination_url" in fields and not _is_address(fields["destination_url"]):
        errors["/destination_url"] = [_URL_RULE]
    if fields.get("host") is not None:
        fields["host"] = host_name(fields["host"])
        fault = _host_fault(fields["host"], context)
        if fault is not None:
            errors["/host"] = [fault]
    if errors:
        clause = "D-HOST" if errors.keys() == {"/host"} else "D-PROXY"
        raise Problem(400, "The proxy is not acceptable.", errors=errors, clause=clause)
    for name in _TRANSFORMS:
        if name in fields:
            transform = fields.pop(name)
            sealed = None
            if transform is not None:
                code: str = transform["code"]
                check_code(code, f"/{name}/code", context.services.profile)
                sealed = seal_code(context.services, context.tenant.id, proxy_id, code, name)
            fields[f"sealed_{name}"] = sealed
    if fields.get("host") is not None:
        holder = context.services.store.proxy_by_host(fields["host"])
        if holder is not None and holder.id != context.params.get("id"):
            raise Problem(409, "Another proxy has this hostname.", clause="D-HOST")
    return fields


def _host_fault(host: str, context: Context) -> str | None:
    """Return why a proxy of the caller's tenant may not use a hostname (D-HOST)."""
    services, tenant = context.services, context.tenant
    fault = host_fault(host, tenant.host_suffixes, services.own_names)
    if fault is not None:
        return fault
    holder = services.store.proxy_by_host(host)
    if holder is not None and holder.tenant_id != tenant.id:
        return "must be no name of another tenant"
    longest = _suffix_length(tenant, host)
    if any(_suffix_length(other, host) > longest for other in services.store.tenants()):
        return "must be no name of another tenant"  # its suffix says more of the name
    return None


def _suffix_length(tenant: Tenant, host: str) -> int:
    return max((len(s) for s in tenant.host_suffixes if covers_host(s, host)), default=0)


def _create(context: Context) -> Response:
    context.require("proxy:create")
    services = context.services
    proxy_id = services.new_id()
    fields = _read(_CREATE.check(context.json), context, proxy_id)
    text = f"proxy_{secret_text(services.world.entropy)}"
    proxy = Proxy(
        id=proxy_id,
        tenant_id=context.tenant.id,
        key_hash=hash_key_text(text),
        created_by=context.caller.application.id,
        created_at_ns=context.wall_ns,
        **{"require_auth": False, **fields},
    )
    services.store.put(proxy)
    context.log("proxy:create", "proxy", proxy.id, 201)
    shown = {**_shown(proxy, context), "key": text}
    return Response(201, shown, {"Location": f"/proxies/{proxy.id}"})


def _list(context: Context) -> Response:
    context.require("proxy:read")
    store, tenant_id = context.services.store, context.tenant.id
    page = page_of(
        Page.of(context),
        lambda after, size: store.list(Proxy, tenant_id, after=after, size=size),
        lambda proxy: _shown(proxy, context),
    )
    return Response(200, page)


def _get(context: Context) -> Response:
    context.require("proxy:read")
    return Response(200, _shown(_found(context), context))


def _patch(context: Context) -> Response:
    """Change a proxy: a merge patch, in which null removes a transform or the hostname."""
    context.require("proxy:update")
    body = _PATCH.check(context.json)
    proxy = _found(context)
    changed = dataclasses.replace(proxy, **_read(body, context, proxy.id))
    context.services.store.put(changed)
    context.log("proxy:update", "proxy", changed.id, 200)
    return Response(200, _shown(changed, context))


def _delete(context: Context) -> Response:
    context.require("proxy:delete")
    proxy = _found(context)
    context.services.store.delete(Proxy, proxy.id)
    for name in pool_names(proxy):
        drop_pool(context.services, name)
    context.log("proxy:delete", "proxy", proxy.id, 204)
    return Response(204)


OPERATIONS = (
    Operation(
        name="create_proxy",
        method="POST",
        path="/proxies",
        summary="Create a proxy; its key is in this answer only.",
        run=_create,
        clauses=("RCT-CODE",),
        permission="proxy:create",
        body="json",
        form=_CREATE,
        success_status=201,
    ),
    Operation(
        name="list_proxies",
        method="GET",
        path="/proxies",
        summary="List the tenant's proxies, without their keys.",
        run=_list,
        permission="proxy:read",
        paged=True,
    ),
    Operation(
        name="get_proxy",
        method="GET",
        path="/proxies/{id}",
        summary="Show a proxy, without its key.",
        run=_get,
        permission="proxy:read",
    ),
    Operation(
        name="patch_proxy",
        method="PATCH",
        path="/proxies/{id}",
        summary="Change a proxy.",
        run=_patch,
        clauses=("RCT-CODE",),
        permission="proxy:update",
        body="merge-patch",
        form=_PATCH,
    ),
    Operation(
        name="delete_proxy",
        method="DELETE",
        path="/proxies/{id}",
        summary="Delete a proxy; its key and its hostname name nothing from then on.",
        run=_delete,
        permission="proxy:delete",
        success_status=204,
    ),
    *proxy_calls.OPERATIONS,
)
