"""Redaction: keys are sent in requests and never appear in output.

Whatever leaves the run (history, reports, errors, the terminal) passes through a `Redactor`, which
puts `<label>` in the place of every key text of the target, and of every key that the run made,
as plain text and as JSON, a URL or base64 encodes it.
"""

from __future__ import annotations

import base64
import json
import re
import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import groupby
from typing import Any
from urllib.parse import quote, quote_plus

from conformance.messages.exchange import HttpRequest, KeyLabel, parsed_or_none
from conformance.messages.shapes import Spelling
from conformance.target import Target
from engine.files import to_plain

_SHORTEST = 4
_MAKING = frozenset({"create_application_key", "create_encryption_key", "create_proxy"})


class Redactor:
    """Replaces secrets in text and bytes; its repr shows none of them."""

    def __init__(self, secrets: Mapping[KeyLabel, str]) -> None:
        self._labels: dict[str, str] = {}
        self._patterns: tuple[re.Pattern[str], re.Pattern[bytes]] | None = None
        self._lock = threading.Lock()  # a key is learned while other threads write
        for label, text in secrets.items():
            self._add(label, text)

    def __repr__(self) -> str:
        return f"<Redactor of {len(self._labels)} texts>"

    def learn(self, label: KeyLabel, text: str) -> None:
        """Replace `text` by `<label>` from now on; a text too short to be a secret stays."""
        with self._lock:
            self._add(label, text)
            self._patterns = None

    def _add(self, label: KeyLabel, text: str) -> None:
        if len(text) < _SHORTEST:
            return
        raw = text.encode()
        ways = (
            text,
            json.dumps(text)[1:-1],
            json.dumps(text, ensure_ascii=False)[1:-1],
            quote(text, safe=""),
            quote_plus(text),
            base64.b64encode(raw).decode(),
            base64.urlsafe_b64encode(raw).decode().rstrip("="),
        )
        for way in ways:
            self._labels.setdefault(way, f"<{label}>")

    def _compiled(self) -> tuple[re.Pattern[str], re.Pattern[bytes]]:
        """Return the patterns of all texts, compiled when something is first written."""
        with self._lock:
            if self._patterns is None:
                pattern = _union(self._labels)
                self._patterns = re.compile(pattern), re.compile(pattern.encode())
            return self._patterns

    def text(self, text: str) -> str:
        """Return the text without secrets."""
        return self._compiled()[0].sub(lambda match: self._labels[match[0]], text)

    def raw(self, raw: bytes) -> bytes:
        """Return the bytes without secrets."""
        pattern = self._compiled()[1]
        return pattern.sub(lambda match: self._labels[match[0].decode()].encode(), raw)


def without_secrets(target: Target) -> dict[str, Any]:
    """Return a target as plain values whose key texts are their labels."""
    plain = to_plain(target)
    for row, label in zip(plain.get("keys", ()), target.key_labels, strict=True):
        if "value" in row:
            row["value"] = f"<{label}>"
    for name in ("profile", "limits", "tls"):
        plain.pop(name, None)
    return plain


def _union(words: Iterable[str]) -> str:
    """Return a pattern of all words, the longest first, which reads shared beginnings once.

    >>> _union(["key_a", "key_ab", "pin"])
    '(?:key_a(?:b)?|pin)'
    """
    words = sorted(words)
    return _branches(words) if words else "(?!)"


def _branches(words: Sequence[str]) -> str:
    """Return the pattern of sorted words."""
    may_end = words[0] == ""
    by_first = [list(group) for _, group in groupby(filter(None, words), lambda word: word[0])]
    parts = []
    for group in by_first:
        shared = _shared(group[0], group[-1])
        rest = [word[len(shared) :] for word in group]
        parts.append(re.escape(shared) + (_branches(rest) if rest != [""] else ""))
    return f"(?:{'|'.join(parts)}){'?' if may_end else ''}"


def _shared(first: str, last: str) -> str:
    """Return what both words begin with; of sorted words, what all between begin with too."""
    size = next(
        (place for place, pair in enumerate(zip(first, last, strict=False)) if len(set(pair)) > 1),
        min(len(first), len(last)),
    )
    return first[:size]


def made_key(spelling: Spelling, ask: HttpRequest, status: int | None, body: bytes) -> str | None:
    """Return the key text that an answer shows, which no later one does; None for none.

    These are the answers to creating a key or a proxy (DECISIONS.md, operator's side).
    """
    if status is None or not 200 <= status < 300:
        return None
    operation = spelling.operation(ask.method, ask.path.rstrip("/"))
    if operation is None or operation[0] not in _MAKING:
        return None
    answer = parsed_or_none(body)
    text = answer.get("key") if isinstance(answer, dict) else None
    return text if isinstance(text, str) else None
