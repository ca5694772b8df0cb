"""Invoking a proxy: ANY /proxy[/path] with a proxy key, or any path on a custom hostname (D-PROXY).

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
from functools import partial

from engine.errors import DestinationTimeout, DestinationUnreachable
from engine.messages import Problem, Response
from engine.model import Proxy
from engine.profile import Profile
from engine.resources.authentication import principal_of, unauthenticated
from engine.resources.bodies import parsed, read_raw
from engine.resources.context import Context
from engine.resources.detokenize import reveal
from engine.resources.operation import Operation
from engine.resources.passing import (
    destination_of,
    find_header,
    is_json,
    passed_answer,
    passed_request,
)
from engine.resources.transforms import (
    Codes,
    codes_of,
    transformed_answer,
    transformed_request,
)
from engine.resources.work import Work, apart_if_large
from engine.world import Call, CallAnswer

__all__ = ["OPERATIONS"]


def _body_limit_bytes(profile: Profile) -> int:
    return profile.http.proxy_body_limit_bytes


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


async def _read(context: Context, proxy: Proxy) -> bytes:
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
    call = await _call(context, proxy, await _read(context, proxy))
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
        answer = await context.services.world.call_destination(call, timeout_ns)
    except DestinationTimeout:
        raise Problem(
            408,
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


OPERATIONS = (
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
        body_limit_bytes=_body_limit_bytes,
        reads_body=True,
    ),
)
