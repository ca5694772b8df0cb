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
   is (403 else): a right of the application that configured the proxy last, and of the caller
   where the proxy asks for a key (D-RIGHTS). A body without an expression, or of another media
   type, passes byte for byte.
4. Request transform, destination, response transform, one after the other. The destination has
   25 s for itself, to its last byte, exactly 25 s included; over that the answer is 408
   (ERR-408, PRX-TIMEOUT, D-PROXY-TIMEOUT). One that cannot be reached, or may not be called: 502.
5. The destination's status, headers and body are the answer.

Transforms are code between a caller and the destination (section 8.9). A request transform is
handed `{"method", "url", "headers", "body"}` and may give back `headers`, `body` or both; a
response transform `{"status", "headers", "body"}` and may change all three.
Members that it leaves out stay unchanged; other members are ignored. `body` is the JSON value where
the media type is JSON, else the text, null for none; a body that is neither JSON nor UTF-8 cannot
be transformed: 415 for a request, 502 for an answer.

`headers` is an object of strings. A field that came more than once is one string, joined by commas;
the Set-Cookie of an answer, which cannot be joined, is always an array, a string for each cookie.
Code may return an array for any header: an empty array removes the header, Set-Cookie is sent once
for each string, and other arrays are joined.

Each runs as a reactor does (`engine.resources.reactors`): its own 30 s (RCT-TIMEOUT), its own
instances (RCT-HOT). Code that returns anything else has failed: 502.

`passed_request` and `passed_answer` select the headers that a proxy forwards: all except those of
one connection (RFC 9110, 7.6.1), the length and the host, which are set anew, the API key and the
proxy key, and the rate-limit fields, which the service sets itself. The rest of the path and the
query are appended to the destination's; `..` cannot lead out of its path.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from functools import partial
from ipaddress import IPv6Address
from operator import attrgetter
from typing import Any, Final, TypeAlias
from urllib.parse import quote, urlsplit

from engine.errors import DestinationTimeout, DestinationUnreachable
from engine.hosts import (
    FIELD_NAME,
    FIELD_VALUE,
    covers_host,
    host_fault,
    host_name,
    leaves_its_folder,
)
from engine.identity import secret_text
from engine.messages import Json, Problem, Response, find_header
from engine.model import LogEntry, Proxy, Tenant
from engine.profile import HttpProfile
from engine.resources.bodies import parsed, read_raw
from engine.resources.documents import Collection
from engine.resources.identification import (
    check_takes_over,
    configurer_of,
    hash_key_text,
    taken_over,
    unauthenticated,
)
from engine.resources.operation import (
    FAILED_STATUS,
    MADE,
    NAME,
    OWNED,
    TEXT,
    BodySchema,
    Context,
    Operation,
    Services,
    View,
    apart_if_large,
    carry_out,
    object_schema,
)
from engine.resources.reactors import (
    check_code,
    code_fault,
    drop_pool,
    invoke,
    open_code,
    seal_code,
)
from engine.resources.tokens import reveal
from engine.tokens.strict_json import bytes_as_values, dumps
from engine.world import Call, CallAnswer

_OF_A_CONNECTION: Final = frozenset(
    {
        "connection",
        "content-length",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_OURS_TO_ANSWER: Final = frozenset({"ratelimit", "ratelimit-policy"})
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~-._"
_QUERY_SAFE: Final = _PATH_SAFE + "?[]|"


def is_json(headers: Mapping[str, str]) -> bool:
    """Whether the media type is JSON: `application/json`, or any with the suffix `+json`."""
    media_type = (find_header(headers, "content-type") or "").partition(";")[0].strip().lower()
    return media_type == "application/json" or media_type.endswith("+json")


def passed_request(headers: Mapping[str, str], http: HttpProfile) -> dict[str, str]:
    """Return the request headers that a destination gets: never an API key or a proxy key."""
    ours = {"host", http.key_header.lower(), http.proxy_key_header.lower()}
    return _passed(headers, ours)


def passed_answer(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of a destination's answer that a caller gets."""
    return _passed(headers, _OURS_TO_ANSWER)


def _passed(headers: Mapping[str, str], also: set[str] | frozenset[str]) -> dict[str, str]:
    listed = (find_header(headers, "connection") or "").lower().split(",")
    dropped = _OF_A_CONNECTION | also | {name.strip() for name in listed}
    return {name: value for name, value in headers.items() if name.lower() not in dropped}


def destination_of(base: str, path: str, query: str) -> str:
    """Return the address to call: `path` and `query` appended to those of `base` (D-PROXY).

    Raises `Problem` 400 for a path with a segment `..`, however it is written.

    >>> destination_of("https://api.example.com/v1/?a=1", "users/7", "b=2&b=3")
    'https://api.example.com/v1/users/7?a=1&b=2&b=3'
    """
    if leaves_its_folder(path):
        raise Problem(400, "The path must not leave the proxy's destination.", clause="D-PROXY")
    parts = urlsplit(base)
    if path:
        whole = parts.path.rstrip("/") + "/" + quote(path, safe=_PATH_SAFE, errors="replace")
        parts = parts._replace(path=whole)
    asked = quote(query, safe=_QUERY_SAFE, errors="replace")
    return parts._replace(query="&".join(q for q in (parts.query, asked) if q)).geturl()


Codes: TypeAlias = tuple[str | None, str | None]
"""The code of the request and of the response transform."""

_BY_LINES: Final = frozenset({"set-cookie"})
"""Response headers that cannot be joined by commas (RFC 9110, 5.3): one value per line."""


def pool_names(proxy: Proxy) -> tuple[str, str]:
    """Return the names of the instance pools of the request and the response transform."""
    return f"proxy/{proxy.id}/request", f"proxy/{proxy.id}/response"


def codes_of(services: Services, proxy: Proxy) -> Codes:
    """Return the code of a proxy's two transforms; inside a transaction."""

    def opened(sealed: bytes | None, purpose: str) -> str | None:
        if sealed is None:
            return None
        return open_code(services, proxy.tenant_id, proxy.id, sealed, purpose)

    return (
        opened(proxy.sealed_request_transform, "request_transform"),
        opened(proxy.sealed_response_transform, "response_transform"),
    )


async def transformed_request(context: Context, proxy: Proxy, code: str | None, call: Call) -> Call:
    """Return what the request transform makes of a call; the call itself where there is none."""
    if code is None:
        return call
    services = context.services
    parts = await _parts(context, call.headers, call.body, 415)
    args = {"method": call.method, "url": call.url, **parts}
    result = await invoke(services, pool_names(proxy)[0], code, args, {})
    headers, body = _joined(result, args)
    return dataclasses.replace(
        call, headers=passed_request(headers, services.profile.http), body=body
    )


async def transformed_answer(
    context: Context, proxy: Proxy, code: str | None, answer: CallAnswer
) -> CallAnswer:
    """Return what the response transform makes of an answer; itself where there is none."""
    if code is None:
        return answer
    services = context.services
    parts = await _parts(context, answer.headers, answer.body, 502)
    args = {"status": answer.status, **parts}
    args["headers"] = _seen(answer.headers)
    result = await invoke(services, pool_names(proxy)[1], code, args, {})
    headers, body = _joined(result, args, _BY_LINES)
    status = result.get("status", answer.status) if isinstance(result, dict) else None
    if isinstance(status, bool) or not isinstance(status, int) or not 200 <= status <= 599:
        raise code_fault("returned a status that is none")
    return CallAnswer(status, passed_answer(headers), body)


async def _parts(
    context: Context, headers: Mapping[str, str], body: bytes, status: int
) -> dict[str, Any]:
    """Return headers and body as code sees them; raises `Problem` `status` where it cannot."""
    value: Json = None
    try:
        if body and is_json(headers):
            context.services.world.reserve(bytes_as_values(body))
            value = await apart_if_large(context, len(body), partial(parsed, body, context))
        elif body:
            value = body.decode()
    except (Problem, UnicodeDecodeError) as error:
        if isinstance(error, Problem) and error.status == 503:
            raise
        raise Problem(
            status,
            "The body is neither JSON nor UTF-8 text, or it holds too much.",
            clause="D-PROXY",
        ) from None
    return {"headers": dict(headers), "body": value}


def _seen(headers: Mapping[str, str]) -> dict[str, str | list[str]]:
    """Return an answer's headers as code sees them."""
    return {
        name: value.split("\n") if name.lower() in _BY_LINES else value
        for name, value in headers.items()
    }


def _headers(given: object, by_lines: frozenset[str]) -> dict[str, str]:
    """Return headers that code gave back; raises `Problem` 502 for what is none."""
    if not isinstance(given, dict):
        raise code_fault("returned headers that are none")
    headers = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not re.fullmatch(FIELD_NAME, name) or not all(
            isinstance(text, str) and re.fullmatch(FIELD_VALUE, text) for text in values
        ):
            raise code_fault("returned headers that are none")
        if values:
            headers[name] = ("\n" if name.lower() in by_lines else ", ").join(values)
    return headers


def _joined(
    result: Json, args: Mapping[str, Any], by_lines: frozenset[str] = frozenset()
) -> tuple[dict[str, str], bytes]:
    """Return headers and body of what code gave back; raises `Problem` 502 for anything else."""
    if not isinstance(result, dict):
        raise code_fault("returned no object")
    headers = _headers(result.get("headers", args["headers"]), by_lines)
    body = result.get("body", args["body"])
    if body is None:
        return headers, b""
    if is_json(headers):
        return headers, dumps(body)
    if isinstance(body, str):
        return headers, body.encode()
    others = {name: value for name, value in headers.items() if name.lower() != "content-type"}
    return {**others, "Content-Type": "application/json"}, dumps(body)


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


def _acting(context: Context, proxy: Proxy) -> Context:
    """Return the context whose rights apply to tokens (D-RIGHTS)."""
    with context.services.store.transaction(write=False):
        configurer = configurer_of(context, proxy)
    if proxy.require_auth:
        context.configurer = configurer
        return context
    instants = (context.now_ns, context.wall_ns, context.steady_ns)
    return Context(context.services, context.request, configurer, {}, {}, *instants)


def _revealed(context: Context, proxy: Proxy, body: bytes) -> bytes:
    acting = _acting(context, proxy)
    context.body = parsed(body, context)
    answer, _ = reveal(context.body, acting, "token:use", body)
    assert isinstance(answer, bytes), "bytes came"
    context.body = None  # the destination may take long
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
        reveal_body = partial(_revealed, context, proxy, body)
        whose = context.known_caller or request.ip
        body = await context.services.world.apart(reveal_body, whose)
    query = request.path.partition("?")[2]
    url = destination_of(proxy.destination_url, context.params["path"], query)
    return Call(request.method, url, headers, body)


async def _invoke(context: Context) -> Response:
    services = context.services
    proxy = _named(context)
    call = await _call(context, proxy, await _body_of(context, proxy))
    caller = context.known_caller if proxy.require_auth else None
    entry = LogEntry(
        services.new_id(),
        proxy.tenant_id,
        context.wall_ns,
        "proxy:invoke",
        "proxy",
        proxy.id,
        None if caller is None else caller.application.id,
        FAILED_STATUS,
    )

    async def exchange(codes: Codes) -> CallAnswer:
        request_code, response_code = codes
        sent = await transformed_request(context, proxy, request_code, call)
        answer = await _destination(context, sent)
        answer = dataclasses.replace(answer, headers=passed_answer(answer.headers))
        return await transformed_answer(context, proxy, response_code, answer)

    return await carry_out(
        context,
        entry,
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
_CREATE = BodySchema(object_schema(_FIELDS, required=("name", "destination_url")), "D-PROXY")
_PATCH = BodySchema(object_schema(_FIELDS), "D-PROXY")
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


def _to_json(proxy: Proxy, context: Context) -> dict[str, Any]:
    codes = zip(_TRANSFORMS, codes_of(context.services, proxy), strict=True)
    return VIEW.of(proxy, **{n: None if code is None else {"code": code} for n, code in codes})


def _url_fault(url: str) -> str | None:
    """Return why a text is no destination, None for nothing."""
    if not _is_address(url):
        return _URL_RULE
    if leaves_its_folder(urlsplit(url).path):
        return "must have no segment '..' and no control character"
    return None


def _is_address(url: str) -> bool:
    if _ADDRESS.fullmatch(url) is not None:
        return True
    match = _IPV6_ADDRESS.fullmatch(url)
    try:
        return match is not None and bool(IPv6Address(match[1]))
    except ValueError:
        return False


def _read(body: dict[str, Any], context: Context, proxy_id: str) -> dict[str, Any]:
    """Return the record's fields from a body of the right form, with sealed transforms.

    Raises `Problem` 400 for an invalid address or hostname and for code over its limit (RCT-CODE),
    409 for a hostname that another proxy has.
    """
    fields = dict(body)
    errors: dict[str, list[str]] = {}
    fault = _url_fault(fields["destination_url"]) if "destination_url" in fields else None
    if fault is not None:
        errors["/destination_url"] = [fault]
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
    if proxy.host is not None:  # which another proxy could take then
        check_takes_over(context, proxy)
    context.services.store.delete(Proxy, proxy.id)
    for name in pool_names(proxy):
        drop_pool(context.services, name)


_PROXIES: Final = Collection(
    kind=Proxy,
    name="proxy",
    path="/proxies",
    right="proxy",
    to_json=_to_json,
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
        configured_by=context.caller.application.id,
        **{"require_auth": False, **fields},
    )
    return _PROXIES.created(context, proxy, key=text)


def _patch(context: Context) -> Response:
    """Change a proxy: a merge patch, in which null removes a transform or the hostname."""
    context.require("proxy:update")
    body = _PATCH.check(context.json)
    proxy = _PROXIES.requested(context)
    changes = _read(body, context, proxy.id) | taken_over(context, proxy, body)
    return _PROXIES.changed(context, dataclasses.replace(proxy, **changes))


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
    ),
)
