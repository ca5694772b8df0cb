"""Transforms: code between a caller and a proxy's destination (section 8.9).

A request transform is handed `{"method", "url", "headers", "body"}` and may give back `headers`,
`body` or both; a response transform `{"status", "headers", "body"}` and may change all three.
Members that it leaves out stay unchanged; other members are ignored. `body` is the JSON value where
the media type is JSON, else the text, null for none; a body that is neither JSON nor UTF-8 cannot
be transformed: 415 for a request, 502 for an answer.

`headers` is an object of strings. A field that came more than once is one string, joined by commas;
the Set-Cookie of an answer, which cannot be joined, is always an array, a string for each cookie.
Code may return an array for any header: an empty array removes the header, Set-Cookie is sent once
for each string, and other arrays are joined.

Each runs as a reactor does (`engine.resources.invocation`): its own 30 s (RCT-TIMEOUT), its own
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
from typing import Any, Final, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from engine.messages import Json, Problem
from engine.model import Proxy
from engine.profile import HttpProfile
from engine.resources.bodies import parsed
from engine.resources.context import Context, Services
from engine.resources.invocation import code_fault, invoke, open_code
from engine.resources.work import apart_if_large
from engine.tokens import dumps
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
_DECODED_TIMES: Final = 8
"""How often a path is decoded; no legitimate path is encoded more often."""

_UNSEEN: Final = "".join(map(chr, range(33)))
_PATH_SAFE: Final = "/%:@!$&'()*+,;=~-._"
_QUERY_SAFE: Final = _PATH_SAFE + "?[]|"


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header's value, whatever its case; `name` in lower case."""
    return next((value for key, value in headers.items() if key.lower() == name), None)


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


def _may_climb(path: str) -> bool:
    """Return whether a server may read a segment `..` in the path."""
    for _ in range(_DECODED_TIMES):
        segments = path.replace("\\", "/").split("/")
        if any(segment.partition(";")[0].strip(_UNSEEN) == ".." for segment in segments):
            return True
        decoded = unquote(path)
        if decoded == path:
            return False
        path = decoded
    return True


def destination_of(base: str, path: str, query: str) -> str:
    """Return the address to call: `path` and `query` appended to those of `base` (D-PROXY).

    Raises `Problem` 400 for a path with a segment `..`, however it is written: servers differ in
    how often they decode a path, and some drop what follows a `;`.

    >>> destination_of("https://api.example.com/v1/?a=1", "users/7", "b=2&b=3")
    'https://api.example.com/v1/users/7?a=1&b=2&b=3'
    """
    if _may_climb(path):
        raise Problem(400, "The path must not leave the proxy's destination.", clause="D-PROXY")
    parts = urlsplit(base)
    if path:
        whole = parts.path.rstrip("/") + "/" + quote(path, safe=_PATH_SAFE, errors="replace")
        parts = parts._replace(path=whole)
    asked = quote(query, safe=_QUERY_SAFE, errors="replace")
    return parts._replace(query="&".join(q for q in (parts.query, asked) if q)).geturl()


Codes: TypeAlias = tuple[str | None, str | None]
"""The code of the request and of the response transform."""

_HEADER_NAME: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE: Final = re.compile(r"[\t -~\x80-\xff]*")
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
            value = await apart_if_large(context, len(body), partial(parsed, body, context))
        elif body:
            value = body.decode()
    except (Problem, UnicodeDecodeError):
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
    found = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not _HEADER_NAME.fullmatch(name) or not all(
            isinstance(each, str) and _HEADER_VALUE.fullmatch(each) for each in values
        ):
            raise code_fault("returned headers that are none")
        if values:
            found[name] = ("\n" if name.lower() in by_lines else ", ").join(values)
    return found


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
    kept = {name: value for name, value in headers.items() if name.lower() != "content-type"}
    return {**kept, "Content-Type": "application/json"}, dumps(body)
