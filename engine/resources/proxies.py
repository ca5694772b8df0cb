"""Pre-configured proxies: where requests go, kept under a proxy key or a custom hostname (D-PROXY).

A definition names a destination, optional transforms of the request and of the response, and
whether an API key is needed besides the proxy key. The proxy key's text is in the answer that
creates it and nowhere else; only its hash is stored. A custom hostname lies under a suffix that the
operator lists for the tenant (400 else, D-HOST) and belongs to one proxy: 409 for a second one of
the tenant, 400 where it is another tenant's.

A proxy is invoked by ANY /proxy[/path] with a proxy key, or any path on a custom hostname
(D-PROXY).

1. The proxy key or the hostname names the proxy: 400 when they name two, 401 when the key is
   unknown or nothing is named. A proxy with `require_auth` also needs an API key (401) of its own
   tenant with proxy:invoke (403).
2. The body: at most 10 MB, or 1 MB where there is a transform (D-SIZE, RCT-PAYLOAD).
3. Expressions `{{ id }}` in a JSON body are replaced by the plaintext of their tokens, as
   POST /detokenize does, within the tenant's Detokenize Limit and with token:use where each token
   is (403 else): the caller's right where the proxy asks for a key, else that of the application
   that created the proxy. A body without an expression, or of another media type, passes byte for
   byte.
4. Request transform, destination, response transform, one after the other. The destination has
   25 s for itself, to its last byte, exactly 25 s included; over that the answer is 408
   (ERR-408, PRX-TIMEOUT, D-PROXY-TIMEOUT). One that cannot be reached, or may not be called: 502.
5. The destination's status, headers and body are the answer.
"""

from __future__ import annotations

import dataclasses
import re
from functools import partial
from ipaddress import IPv6Address
from operator import attrgetter
from typing import Any, Final

from engine.errors import DestinationTimeout, DestinationUnreachable
from engine.hosts import covers_host, host_fault, host_name
from engine.identity import secret_text
from engine.messages import Problem, Response
from engine.model import Proxy, Tenant
from engine.resources.bodies import parsed, read_raw
from engine.resources.context import Context
from engine.resources.detokenize import reveal
from engine.resources.documents import Collection
from engine.resources.forms import MADE, NAME, OWNED, TEXT, Form, View, object_schema
from engine.resources.identification import principal_of, unauthenticated
from engine.resources.invocation import check_code, drop_pool, seal_code
from engine.resources.operation import Operation
from engine.resources.transforms import (
    Codes,
    codes_of,
    destination_of,
    find_header,
    is_json,
    passed_answer,
    passed_request,
    pool_names,
    transformed_answer,
    transformed_request,
)
from engine.resources.work import Work, apart_if_large
from engine.vault import hash_key_text
from engine.world import Call, CallAnswer


def _named(context: Context) -> Proxy:
    """Return the one proxy that the request names (D-PROXY-RULES, D-UNKEYED)."""
    by_key, by_host = context.proxies
    http = context.services.profile.http
    if by_key is not None and by_host is not None and by_key.id != by_host.id:
        raise Problem(
            400,
            "The proxy key and the hostname name two different proxies.",
            clause="D-PROXY-RULES",
        )
    proxy = by_key or by_host
    if proxy is None or (by_key is None and context.request.proxy_key is not None):
        raise unauthenticated(
            http.proxy_key_header, what="proxy key", scheme="ProxyKey", clause="D-PROXY"
        )
    if proxy.require_auth and context.known_caller is None:
        raise unauthenticated(http.key_header)
    return proxy


async def _body_of(context: Context, proxy: Proxy) -> bytes:
    profile = context.services.profile
    if proxy.sealed_request_transform is None and proxy.sealed_response_transform is None:
        return await read_raw(context.request, profile.http.proxy_body_limit_bytes)
    limit_bytes = profile.outside.reactor_payload_limit_bytes
    return await read_raw(context.request, limit_bytes, "RCT-PAYLOAD")


def _acting(context: Context, proxy: Proxy) -> Context | None:
    """Return the context whose rights apply to tokens; None when its application is deleted."""
    if proxy.require_auth:
        return context
    principal = principal_of(context.services, proxy.created_by)
    if principal is None:
        return None
    return Context(
        context.services, context.request, principal, {}, {}, context.now_ns, context.wall_ns
    )


def _revealed(context: Context, proxy: Proxy, body: bytes) -> bytes:
    with context.services.store.transaction(write=False):
        acting = _acting(context, proxy)
    if acting is None:
        raise Problem(
            403,
            "The application that created the proxy is gone, and with it its rights.",
            clause="D-PERMISSIONS",
        )
    answer, _ = reveal(parsed(body, context), acting, "token:use", body)
    assert isinstance(answer, bytes), "bytes came"
    return answer


async def _call(context: Context, proxy: Proxy, body: bytes) -> Call:
    """Return the call to the destination."""
    request = context.request
    if proxy.require_auth:
        if context.tenant.id != proxy.tenant_id:
            raise Problem(
                403, "The key belongs to another tenant than the proxy.", clause="D-PROXY"
            )
        context.require("proxy:invoke")
    headers = passed_request(request.headers or {}, context.services.profile.http)
    given_as_value = isinstance(request.body, (str, int, float, list, dict))
    if given_as_value and find_header(headers, "content-type") is None:
        headers["Content-Type"] = "application/json"
    if proxy.sealed_response_transform is not None:  # code cannot read a compressed body
        headers = {n: v for n, v in headers.items() if n.lower() != "accept-encoding"}
        headers["Accept-Encoding"] = "identity"
    if (b"{{" in body or b"\\u007" in body) and is_json(headers):
        body = await apart_if_large(context, len(body), partial(_revealed, context, proxy, body))
    query = request.path.partition("?")[2]
    url = destination_of(proxy.destination_url, context.params["path"], query)
    return Call(request.method, url, headers, body)


async def _invoke(context: Context) -> Response:
    services = context.services
    proxy = _named(context)
    call = await _call(context, proxy, await _body_of(context, proxy))
    caller = context.known_caller if proxy.require_auth else None
    work = Work(
        context,
        "proxy:invoke",
        ("proxy", proxy.id),
        tenant_id=proxy.tenant_id,
        actor_id=None if caller is None else caller.application.id,
    )

    async def exchange(codes: Codes) -> CallAnswer:
        request_code, response_code = codes
        sent = await transformed_request(context, proxy, request_code, call)
        answer = await _destination(context, sent)
        answer = dataclasses.replace(answer, headers=passed_answer(answer.headers))
        return await transformed_answer(context, proxy, response_code, answer)

    return await work.carry_out(
        lambda: codes_of(services, proxy),
        exchange,
        lambda answer: Response(answer.status, answer.body, dict(answer.headers)),
    )


async def _destination(context: Context, call: Call) -> CallAnswer:
    outside = context.services.profile.outside
    timeout_ns = outside.destination_timeout_ns
    try:
        # obeys PRX-TIMEOUT
        answer = await context.services.world.call_destination(call, timeout_ns)
    except DestinationTimeout:
        raise Problem(
            408,  # obeys ERR-408
            f"The destination took longer than {timeout_ns / 1_000_000_000:g} s.",
            clause="PRX-TIMEOUT",
        ) from None
    except DestinationUnreachable:
        raise _bad_gateway("cannot be reached or may not be called") from None
    if len(answer.body) > outside.answer_limit_bytes:
        raise _bad_gateway("answers too much")
    return answer


def _bad_gateway(what: str) -> Problem:
    return Problem(502, f"The destination {what}.", clause="D-STATUSES")


_TRANSFORMS: Final = ("request_transform", "response_transform")
_TRANSFORM = {
    **object_schema({"code": {"type": "string", "minLength": 1}}, required=("code",)),
    "type": ["object", "null"],
}
_FIELDS: Final[dict[str, Any]] = {
    "name": NAME,
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


_SHOWN_TRANSFORM: Final = {"anyOf": [object_schema({"code": TEXT}, ("code",)), {"type": "null"}]}
VIEW: Final = View(
    {
        **OWNED,
        "name": TEXT,
        "destination_url": TEXT,
        **dict.fromkeys(_TRANSFORMS, _SHOWN_TRANSFORM),
        "require_auth": {"type": "boolean"},
        "host": {"type": ["string", "null"]},
        **MADE,
    }
)


def _shown(proxy: Proxy, context: Context) -> dict[str, Any]:
    codes = zip(_TRANSFORMS, codes_of(context.services, proxy), strict=True)
    return VIEW.of(proxy, **{n: None if code is None else {"code": code} for n, code in codes})


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

    Raises `Problem` 400 for an invalid address or hostname and for code over its limit (RCT-CODE),
    409 for a hostname that another proxy has.
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


def _remove(context: Context, proxy: Proxy) -> None:
    context.services.store.delete(Proxy, proxy.id)
    for name in pool_names(proxy):
        drop_pool(context.services, name)


_PROXIES: Final = Collection(
    kind=Proxy,
    name="proxy",
    path="/proxies",
    right="proxy",
    shown=_shown,
    remove=_remove,
)


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
    return _PROXIES.created(context, proxy, key=text)


def _patch(context: Context) -> Response:
    """Change a proxy: a merge patch, in which null removes a transform or the hostname."""
    context.require("proxy:update")
    body = _PATCH.check(context.json)
    proxy = _PROXIES.found(context)
    changed = dataclasses.replace(proxy, **_read(body, context, proxy.id))
    return _PROXIES.changed(context, changed)


OPERATIONS = (
    _PROXIES.creation(
        "Create a proxy; its key is in this answer only.", _create, _CREATE, ("RCT-CODE",)
    ),
    _PROXIES.listing("list_proxies", "List the tenant's proxies, without their keys."),
    _PROXIES.view("Show a proxy, without its key."),
    _PROXIES.change("Change a proxy.", _patch, _PATCH, ("RCT-CODE",)),
    _PROXIES.deletion("Delete a proxy; its key and its hostname name nothing from then on."),
    Operation(
        name="invoke_proxy",
        method="ANY",
        path="/proxy/{path...}",
        summary="Pass the request on to the destination of a pre-configured proxy.",
        run_async=_invoke,
        clauses=("ERR-408", "PRX-TIMEOUT", "RCT-PAYLOAD", "RCT-HOT", "RCT-TIMEOUT"),
        authentication="optional",
        body="raw",
        body_optional=True,
        body_limit_bytes=attrgetter("http.proxy_body_limit_bytes"),
        reads_body=True,
    ),
)
