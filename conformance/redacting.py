"""Redaction: key texts go into requests and come out of nowhere.

Whatever leaves the run (history, reports, errors, the terminal) passes through a `Redactor`, which
puts `<label>` in the place of every key text of the target, and of every key that the run made,
in each of the ways in which JSON, a URL or base64 would write it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from conformance.exchanges import Ask, KeyLabel
from conformance.target import Target

__all__ = ["Redactor", "made_key"]

_SHORTEST = 4


class Redactor:
    """Replaces secrets in text, bytes and JSON. Secrets are never shown, in a repr neither."""

    def __init__(self, secrets: Mapping[KeyLabel, str]) -> None:
        self._written: list[tuple[str, str]] = []
        for label, text in secrets.items():
            self.learn(label, text)

    @classmethod
    def of(cls, target: Target) -> Redactor:
        """Return the redactor of a target's keys."""
        return cls({label: key.value for label, key in target.key_labels.items()})

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._written)} texts>"

    def learn(self, label: KeyLabel, text: str) -> None:
        """Replace `text` by `<label>` from now on; what is too short to be a secret is left."""
        if len(text) < _SHORTEST:
            return
        raw = text.encode()
        ways = {
            text,
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            quote(text, safe=""),
            quote_plus(text),
            base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode().rstrip("="),
        }
        self._written += [(way, f"<{label}>") for way in ways]
        # The longest first: a secret that another one begins with must not leave its tail.
        self._written.sort(key=lambda pair: -len(pair[0]))

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        for way, label in self._written:
            if way in text:
                text = text.replace(way, label)
        return text

    def raw(self, raw: bytes) -> bytes:
        """Return the bytes without secrets."""
        for way, label in self._written:
            written = way.encode()
            if written in raw:
                raw = raw.replace(written, label.encode())
        return raw

    def json(self, value: Any) -> Any:  # noqa: ANN401 # reason: any JSON
        """Return the JSON value without secrets, in keys neither."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, bytes):
            return self.raw(value)
        if isinstance(value, Mapping):
            return {self.text(key): self.json(one) for key, one in value.items()}
        if isinstance(value, list | tuple):
            return [self.json(one) for one in value]
        return value


def made_key(ask: Ask, status: int | None, body: bytes) -> str | None:
    """Return the key text that an answer shows for the first and last time, None for none.

    Such answers are those of POST …/keys and POST …/proxies (DECISIONS.md, operator's side).
    """
    if ask.method != "POST" or status is None or not 200 <= status < 300:
        return None
    path = ask.path.partition("?")[0].rstrip("/")
    if not path.endswith(("/keys", "/proxies")):
        return None
    try:
        answer = json.loads(body)
    except ValueError:
        return None
    text = answer.get("key") if isinstance(answer, dict) else None
    return text if isinstance(text, str) else None
