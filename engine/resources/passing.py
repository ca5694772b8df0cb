"""Passing on: which parts of requests and answers a proxy forwards, and to which address.

All headers are forwarded except those of one connection (RFC 9110, 7.6.1), the length and the host,
which are set anew, our own two keys, and the rate-limit fields, which the service sets itself. The
path behind the proxy and the query are appended to the destination's; no path can leave it by `..`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final
from urllib.parse import quote, unquote, urlsplit

from engine.messages import Problem
from engine.profile import HttpProfile

__all__ = ["destination_of", "find_header", "is_json", "passed_answer", "passed_request"]

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
