"""Curl lines: what was asked, as a command that asks it again.

Keys are shell variables: those that the target file takes them from, else one named after the
key's label. What the deployment says in words of its own stands there as it was sent.
"""

from __future__ import annotations

import json
import re
import shlex
from typing import Final

from conformance.target import Target
from conformance.wire.exchange import Ask, KeyLabel
from engine.messages import Json

__all__ = ["curl", "variable"]

_LONGEST_SHOWN: Final = 4_000
_SHOWN: Final = 200
_KEY: Final = re.compile(r"\{key:([^{}]+)\}")


def curl(target: Target, ask: Ask) -> str:
    """Return a command that asks a deployment the same.

    >>> from conformance.target import Target, TargetKey
    >>> target = Target(base_url="http://localhost", keys=(TargetKey(role="public", value="x"),))
    >>> curl(target, Ask(method="GET", path="/tokens", key="public.1"))
    'curl -sS -X GET http://localhost/tokens -H "SVC-API-KEY: $KEY_PUBLIC_1"'
    """
    ask = target.dialect.asked(ask)
    proxy = None if ask.proxy_key is None else f"${{{variable(target, ask.proxy_key)}}}"
    host = None if ask.host is None else f"${variable(target, ask.host)}"
    if proxy is not None and target.proxy_host is not None:
        host = target.proxy_host.replace("{proxy_key}", proxy)
    parts = ["curl -sS -X", shlex.quote(ask.method), _url(target, ask, proxy)]
    if ask.source is not None:
        parts.append(_from(target, ask.source))
    if ask.key is not None:
        own = target.key_labels.get(ask.key)
        name = own.header if own is not None and own.header else target.key_header
        text = target.key_format.replace("{key}", f"${variable(target, ask.key)}")
        parts.append(f'-H "{name}: {text}"')
    if proxy is not None and not target.proxy_host and "{proxy_key}" not in ask.path:
        parts.append(f'-H "{target.proxy_key_header}: ${variable(target, ask.proxy_key or "")}"')
    if host is not None:
        parts.append(f'-H "Host: {host}"')
    headers = dict(ask.headers)
    if ask.body is not None and not isinstance(ask.body, bytes):
        headers.setdefault("Content-Type", "application/json")
    parts += [_header(target, name, value) for name, value in headers.items()]
    if ask.body is not None:
        parts.append(_data(ask.body))
    return " ".join(parts)


def variable(target: Target, label: KeyLabel) -> str:
    """Return the shell variable that stands for a key's text."""
    key = target.key_labels.get(label)
    if key is not None and key.variable is not None:
        return key.variable
    return "KEY_" + label.replace(".", "_").replace("-", "_").upper()


def _url(target: Target, ask: Ask, proxy: str | None) -> str:
    url = target.base_url + ask.path
    if "{proxy_key}" not in ask.path:
        return shlex.quote(url)
    front, _, rest = url.partition("{proxy_key}")
    return f'{shlex.quote(front)}"{proxy or "none"}"{shlex.quote(rest)}'


def _header(target: Target, name: str, value: str) -> str:
    if _KEY.search(value) is None:
        return f"-H {shlex.quote(f'{name}: {value}')}"
    text = _KEY.sub(lambda match: f"${{{variable(target, match[1])}}}", value)
    is_bare = name.lower() == target.key_header.lower() and " " not in text
    return f'-H "{name}: {target.key_format.replace("{key}", text) if is_bare else text}"'


def _from(target: Target, source: str) -> str:
    if target.forwarded is None:
        return f"--interface {shlex.quote(source)}"
    name, _, template = target.forwarded.partition(":")
    value = (template.strip() or "{source}").replace("{source}", source)
    return f"-H {shlex.quote(f'{name}: {value}')}"


def _data(body: Json | bytes) -> str:
    """Return the option that sends a body; a long one only begins to be shown."""
    option, text = "-d", ""
    if isinstance(body, bytes):
        option, size = "--data-binary", len(body)
        text = body[: _LONGEST_SHOWN + 1].decode(errors="backslashreplace")
    else:
        text = json.dumps(body, ensure_ascii=False)
        size = len(text.encode())
    if len(text) <= _LONGEST_SHOWN:
        return f"{option} {shlex.quote(text)}"
    return f"{option} @BODY  # {size} bytes that begin with {shlex.quote(text[:_SHOWN])}"
