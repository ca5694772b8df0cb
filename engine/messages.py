"""Messages: the requests that the engine takes and the responses that it returns.

A `Request` is one HTTP request as the engine sees it, whoever carried it; a `Response` is its
answer; a `Problem` is the body of every error (RFC 9457). No socket, no clock, no framework.

Secrets (keys, bodies, headers) never appear in a repr.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any, Final, Literal, Protocol, TypeAlias

from engine.errors import wrong_type

Json: TypeAlias = None | bool | int | float | str | list[Any] | dict[str, Any]
"""A JSON value as Python holds it."""

Outcome: TypeAlias = Literal["admitted", "delayed", "refused", "blocked"]
"""`refused` by a throttle, `blocked` by a block rule; `delayed` is admitted after `wait_ns`."""

_BLANKS: Final = " \t"
PROBLEM_TYPE: Final = "application/problem+json"


class BodyStream(Protocol):
    """A body that is still on its way; the engine reads it only after the limits (D-ORDER)."""

    async def read(self, limit_bytes: int) -> bytes | None:
        """Return the whole body, or None as soon as it is known to exceed `limit_bytes`."""


class Request:
    """One request.

    `path` may carry a query (`/tokens?size=10`). `key` is the API key's text, `proxy_key` the
    proxy key's, `host` the Host header where it may name a custom hostname. `body` is a JSON
    value as Python holds it, raw `bytes`, or a `BodyStream`. Header names are matched without
    regard to case; blanks at the ends of a key or hostname are no part of it (D-FIELD-VALUE). With
    `bytes` the `Content-Type` header is checked, with a JSON value it is taken for granted.
    `operation` is the name of the requested operation; the service sets it. Raises `InputError` for
    a field that is no text.
    """

    __slots__ = ("body", "headers", "host", "ip", "key", "method", "operation", "path", "proxy_key")

    def __init__(
        self,
        method: str,
        path: str,
        *,
        ip: str,
        key: str | None = None,
        headers: Mapping[str, str] | None = None,
        body: Json | bytes | BodyStream = None,
        host: str | None = None,
        proxy_key: str | None = None,
    ) -> None:
        _check_texts(
            needed={"method": method, "path": path, "ip": ip},
            optional={"key": key, "host": host, "proxy_key": proxy_key},
        )
        self.method = method
        self.path = path
        self.key = key if key is None else key.strip(_BLANKS)
        self.ip = ip
        self.headers = headers
        self.body = body
        self.host = host if host is None else host.strip(_BLANKS)
        self.proxy_key = proxy_key if proxy_key is None else proxy_key.strip(_BLANKS)
        self.operation: str | None = None

    def __repr__(self) -> str:
        path = self.path.partition("?")[0]
        return f"<Request {self.method} {path} ip={self.ip}>"


def _check_texts(*, needed: dict[str, object], optional: dict[str, object]) -> None:
    """Raise `InputError` for the first field of a request that is no text."""
    for name, value in {**needed, **optional}.items():
        if not isinstance(value, str) and (value is not None or name in needed):
            raise wrong_type(name, value, "a text")


@dataclass(frozen=True, slots=True)
class Decision:
    """What the limits decided about one request.

    outcome: admitted, delayed, refused (by a throttle) or blocked (by a block rule).
    rule: the rule that is reported (D-DECIDER), None when admitted.
    refusing: every rule that refuses, in table order.
    counted: every rule whose counter this request was charged to, in table order.
    shadow: every shadow rule that would have refused.
    wait_ns: the delay imposed, or the exact time until none of `refusing` would refuse, else 0.
    """

    outcome: Outcome
    rule: str | None = None
    refusing: tuple[str, ...] = ()
    counted: tuple[str, ...] = ()
    shadow: tuple[str, ...] = ()
    wait_ns: int = 0

    @property
    def admitted(self) -> bool:
        """True for `admitted` and `delayed`."""
        return self.outcome in {"admitted", "delayed"}


ADMITTED: Final = Decision("admitted")
"""The decision about a request that no rule applies to."""


@dataclass(slots=True)
class Response:
    """One answer. `body` is a JSON value, `bytes` as they are, or None for no body.

    A header whose values cannot be joined by commas, such as Set-Cookie, has one on each line.
    """

    status: int
    body: Any = field(default=None, repr=False)
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    decision: Decision = ADMITTED

    @property
    def ok(self) -> bool:
        """True for a 2xx."""
        return 200 <= self.status < 300


def find_header(headers: Mapping[str, str] | None, name: str) -> str | None:
    """Return the value of a header, whatever the case of its name; None for none."""
    if headers is None:
        return None
    wanted = name.lower()
    if getattr(headers, "are_lower", False):
        return headers.get(wanted)
    return next((value for key, value in headers.items() if key.lower() == wanted), None)


CLAUSES_PAGE: Final = "/docs/clauses"
"""The page of the service that holds each clause and decision, under its id."""


class Problem(Exception):
    """An error answer, raised; the service turns it into a response (D-PROBLEM).

    `clause` is the clause or decision that the request breaks; None where the service, not the
    caller, is at fault. `errors` maps JSON Pointers to messages, for 400. `detail` and the messages
    never quote a sensitive value. Raised by the parts of the engine, caught in `engine.service`
    alone.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        *,
        errors: Mapping[str, list[str]] | None = None,
        headers: Mapping[str, str] | None = None,
        clause: str | None = None,
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.errors = errors
        self.headers = headers
        self.clause = clause

    def response(self) -> Response:
        """Return the RFC 9457 answer."""
        body: dict[str, Any] = {
            "type": "about:blank" if self.clause is None else f"{CLAUSES_PAGE}#{self.clause}",
            "title": HTTPStatus(self.status).phrase,
            "status": self.status,
            "detail": self.detail,
        }
        if self.clause is not None:
            body["clause"] = self.clause
        if self.errors:
            body["errors"] = {pointer: list(said) for pointer, said in self.errors.items()}
        headers = {"Content-Type": PROBLEM_TYPE}
        if self.headers:
            headers.update(self.headers)
        return Response(self.status, body, headers)
