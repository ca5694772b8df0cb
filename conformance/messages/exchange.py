"""Exchanges: a request, its answer, and when each was sent and received.

Times are nanoseconds on the suite's own clock: the deployment's decision lies between `sent_ns` and
`received_ns`, and no clock of the deployment is needed. An `HttpRequest` names keys by label; the
transport inserts their texts, which never appear in output.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from engine.messages import Json, find_header

_DEEPEST: Final = 256
"""Answers nested deeper are not read; the suite sends nothing that is nested half as deep."""

KeyLabel = str
"""A key of the target: its role and place, such as `private_prod.1`."""

KEY_PLACE: Final = re.compile(r"\{key:([^{}]+)\}")
"""Where the text of a key stands in a header that a check writes itself: `{key:LABEL}`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpRequest:
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


@dataclass(frozen=True, slots=True, eq=False)
class Exchange:
    """One request and its answer.

    number: place in the run's history, from 1. check, lane, turn: whose request it was, so that
    `judge` can play the history back. status: None when there was no answer; `error` says why.
    body: the bytes of the answer; read: the body translated to the names of the specification,
    where the deployment has its own. is_success: whether the target counts it as a success, None
    where any 2xx is one.
    """

    number: int
    check: str
    lane: str
    turn: int
    ask: HttpRequest
    sent_ns: int
    received_ns: int
    status: int | None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    error: str | None = None
    read: bytes | None = None
    is_success: bool | None = None

    @property
    def ok(self) -> bool:
        """Whether it is a success: what the target counts as one, else any 2xx."""
        if self.is_success is not None:
            return self.is_success
        return self.status is not None and 200 <= self.status < 300

    @property
    def content(self) -> bytes:
        """The body in the names of the specification; the bytes where none was translated."""
        return self.body if self.read is None else self.read

    @property
    def refused(self) -> bool:
        """True for 429."""
        return self.status == 429

    @property
    def is_absent(self) -> bool:
        """Whether the deployment seems not to have the operation; no row limits it then."""
        return self.status in {404, 405, 501}

    @property
    def json(self) -> Any:  # noqa: ANN401 # reason: any JSON
        """The body as JSON; raises `ValueError` when it is not JSON or nested too deep."""
        return parsed(self.content)

    def header(self, name: str) -> str | None:
        """Return a header of the answer, whatever its case."""
        return find_header(self.headers, name)


def parsed_or_none(raw: bytes) -> Any:  # noqa: ANN401 # reason: any JSON
    """Return the value of JSON bytes; None when they are none that `parsed` returns."""
    try:
        return parsed(raw)
    except ValueError:
        return None


def json_fault(raw: bytes) -> str | None:
    r"""Return how bytes break RFC 8259 although lenient readers accept them; None for JSON.

    >>> json_fault(b'{"a": 1, "a": 2}')
    'names in an object repeat: "a"'
    >>> json_fault(b"\xef\xbb\xbf{}")
    'a byte order mark stands before the JSON'
    """
    if raw.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
        return "a byte order mark stands before the JSON"
    repeated: list[str] = []

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        counts = Counter(name for name, _ in pairs)
        repeated.extend(name for name, count in counts.items() if count > 1)
        return dict(pairs)

    def refuse(constant: str) -> None:
        raise ValueError(f"{constant} is no JSON")

    try:
        json.loads(raw.decode(), object_pairs_hook=members, parse_constant=refuse)
    except UnicodeDecodeError:
        return "the bytes are no UTF-8"
    except (ValueError, RecursionError) as error:
        return str(error).partition(": line")[0]
    if repeated:
        return f"names in an object repeat: {json.dumps(repeated[0])}"
    return None


def parsed(raw: bytes) -> Any:  # noqa: ANN401 # reason: any JSON
    r"""Return the value of JSON bytes; raises `ValueError` if they are invalid or nested too deep.

    An answer nested thousands of levels deep must not end a check with an exhausted stack, and a
    text that is no Unicode must not end it when it is sent back.

    >>> parsed(b'{"a": [1]}')
    {'a': [1]}
    >>> parsed(b"[" * 200_000)
    Traceback (most recent call last):
    ValueError: the JSON is nested too deep
    >>> parsed(b'["\\ud83d"]')
    Traceback (most recent call last):
    ValueError: the JSON holds half of a surrogate pair
    """
    try:
        value = json.loads(raw)
        if b"\\u" in raw or b"\xed" in raw:  # else there is no surrogate
            json.dumps(value, ensure_ascii=False).encode()
    except RecursionError:
        raise ValueError("the JSON is nested too deep") from None
    except UnicodeEncodeError:
        raise ValueError("the JSON holds half of a surrogate pair") from None
    level = [value]
    for _ in range(_DEEPEST):
        level = [
            inner
            for part in level
            if isinstance(part, dict | list)
            for inner in (part.values() if isinstance(part, dict) else part)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return value
    raise ValueError("the JSON is nested too deep")
