"""Exchanges: what was asked, when it was sent, when the answer was there, and what it said.

Times are nanoseconds on the suite's own clock: the deployment's decision lies between `sent_ns`
and `received_ns`, and no clock of the deployment is needed. Keys stand in an `Ask` by label; their
texts are put in by the transport and never come back out.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.messages import Json

__all__ = ["Ask", "Exchange", "KeyLabel", "parsed"]

_LONGEST_SHOWN: Final = 4_000
_SHOWN: Final = 200
_DEEPEST: Final = 256
"""Answers nested deeper are not read: nothing that the suite sends is nested half as deep."""

KeyLabel = str
"""A key of the target: its role and place, such as `private_prod.1`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """One request, before it has a key text or an address.

    key, proxy_key: labels of keys of the target, None for none. host: label of a custom hostname.
    source: the local address to send from, None for the default one.
    body: JSON, or bytes as they are (with their own `Content-Type` in `headers`).
    """

    method: str
    path: str
    key: KeyLabel | None = None
    proxy_key: KeyLabel | None = None
    host: KeyLabel | None = None
    source: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Json | bytes = None

    def curl(
        self,
        base_url: str,
        key_header: str = "SVC-API-KEY",
        proxy_key_header: str = "SVC-PROXY-KEY",
    ) -> str:
        """Return a command that asks the same; keys are shell variables named after their labels.

        >>> Ask(method="GET", path="/tokens", key="public.1").curl("http://localhost")
        'curl -sS -X GET http://localhost/tokens -H "SVC-API-KEY: $KEY_PUBLIC_1"'
        """
        parts = ["curl -sS -X", shlex.quote(self.method), shlex.quote(base_url + self.path)]
        if self.source is not None:
            parts.append(f"--interface {shlex.quote(self.source)}")
        if self.key is not None:
            parts.append(f'-H "{key_header}: ${_variable(self.key)}"')
        if self.proxy_key is not None:
            parts.append(f'-H "{proxy_key_header}: ${_variable(self.proxy_key)}"')
        if self.host is not None:
            parts.append(f'-H "Host: ${_variable(self.host)}"')
        headers = dict(self.headers)
        if self.body is not None and not isinstance(self.body, bytes):
            headers.setdefault("Content-Type", "application/json")
        parts += [f"-H {shlex.quote(f'{name}: {value}')}" for name, value in headers.items()]
        if self.body is not None:
            parts.append(_data(self.body))
        return " ".join(parts)


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


def _variable(label: KeyLabel) -> str:
    return "KEY_" + label.replace(".", "_").replace("-", "_").upper()


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One request and its answer.

    number: place in the run's history, from 1. check, lane, turn: whose request it was, so that
    `judge` can play the history back. status: None when there was no answer; `error` says why.
    body: the bytes of the answer.
    """

    number: int
    check: str
    lane: str
    turn: int
    ask: Ask
    sent_ns: int
    received_ns: int
    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: str | None = None

    @property
    def ok(self) -> bool:
        """True for a 2xx."""
        return self.status is not None and 200 <= self.status < 300

    @property
    def refused(self) -> bool:
        """True for 429."""
        return self.status == 429

    @property
    def json(self) -> Any:  # noqa: ANN401 # reason: any JSON
        """The body as JSON; raises `ValueError` when it is none, or nested too deep to be read."""
        return parsed(self.body)

    def header(self, name: str) -> str | None:
        """Return a header of the answer, whatever its case."""
        wanted = name.lower()
        return next((v for k, v in self.headers.items() if k.lower() == wanted), None)


def parsed(raw: bytes) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return what JSON bytes say; raises `ValueError` when they say nothing that can be read.

    An answer nested thousands of levels deep is the deployment's doing: it must not end a check
    with an exhausted stack.

    >>> parsed(b'{"a": [1]}')
    {'a': [1]}
    >>> parsed(b"[" * 200_000)
    Traceback (most recent call last):
    ValueError: the JSON is nested too deep
    """
    try:
        found = json.loads(raw)
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    level = [found]
    for _ in range(_DEEPEST):
        level = [
            inner
            for one in level
            if isinstance(one, dict | list)
            for inner in (one.values() if isinstance(one, dict) else one)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return found
    raise ValueError("the JSON is nested too deep")
