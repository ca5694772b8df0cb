"""The ASGI application: one HTTP request → `Engine.submit` → one HTTP answer.

Service operations bypass the web framework for speed. The service's own pages
(`engine.http.pages`), which count in no limit (D-COUNTED), run on Starlette. This module decides
only what concerns HTTP:

- header names are case-insensitive; a repeated key header identifies nobody (AUTH-HEADER);
- the client's address (D-IP);
- the body is handed over unread (`engine.http.requests`), and a connection with too much unread
  body ends with the answer;
- `X-Request-Id` comes back as it was sent, or is made;
- an unexpected failure is a 500 problem and a log line, neither of which holds a value.

`Cors` decides which web pages may use a public key (D-CORS, the Fetch standard): pages of the
public application's own origins, and of the configuration's origins, which apply to every public
key. By default there are none. A browser's preflight (OPTIONS) carries no key, so it is allowed for
an origin of any public application; the key of the request itself then decides whether the page may
read the answer. `Cors` refuses no request, because that is the browser's task, and it changes no
rights of a key.

A preflight is a request like any other: it counts in LIM-IP. On a custom hostname and under
`/proxy` it adds no header, since the answers there are the destination's.
"""

from __future__ import annotations

import logging
import os
import re
import time
import traceback
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from typing import Any, Final, TypeAlias

from starlette.requests import ClientDisconnect

from engine.errors import StoreError, VaultError
from engine.http.access_log import AccessLog, Metrics
from engine.http.pages import make_pages
from engine.http.protocol import EXCHANGE, HttpExchange
from engine.http.requests import (
    KEPT_UNREAD_BYTES,
    RUNNING,
    Body,
    Fields,
    MemoryBudget,
    Network,
    Receive,
    Reservation,
    forwarded_client,
    peer_address,
)
from engine.messages import Problem, Request, Response
from engine.model import Application
from engine.resources.operation import IDEMPOTENCY_KEY
from engine.service import Engine
from engine.tokens.strict_json import dumps
from engine.world import UNCOUNTED_BYTES

EXPOSED: Final = (
    "Location",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)
"""The header fields that a script may read, beyond the safelisted ones."""

_PREFLIGHT_S: Final = 600


class Cors:
    """Adds its headers to answers. origins: those of the configuration, for every public key."""

    def __init__(self, engine: Engine, origins: tuple[str, ...] = ()) -> None:
        self._engine = engine
        self._origins = frozenset(origins)
        self._allows_any = engine.profile.http.cors == "any"
        self._own: tuple[int | None, frozenset[str]] = (None, frozenset())
        headers = (engine.profile.http.key_header, "Content-Type", IDEMPOTENCY_KEY, "X-Request-Id")
        self._allowed_headers = ", ".join(headers)

    def add(self, request: Request, response: Response, origin: str) -> None:
        """Add the headers to the answer to a request with an `Origin`, where it may be read."""
        if request.operation is None and request.method == "OPTIONS":
            asked = request.headers is not None and request.headers.get(
                "access-control-request-method"
            )
            if asked and "Allow" in response.headers and self._knows(origin):
                self._allow(response, origin)
                response.headers["Access-Control-Allow-Methods"] = response.headers["Allow"]
                response.headers["Access-Control-Allow-Headers"] = self._allowed_headers
                response.headers["Access-Control-Max-Age"] = str(_PREFLIGHT_S)
        elif request.operation != "invoke_proxy" and self._may_read(request, origin):
            self._allow(response, origin)
            response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)

    def _allow(self, response: Response, origin: str) -> None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Vary"] = "Origin"

    def _may_read(self, request: Request, origin: str) -> bool:
        """Return whether the key is a public one and its pages of this origin may read answers."""
        try:
            caller = self._engine.caller_of(request)
        except StoreError:
            return False
        if caller is None or caller.application.kind != "public":
            return False
        application = caller.application
        listed = origin in self._origins or origin in application.origins
        return listed or self._allows_any

    def _knows(self, origin: str) -> bool:
        """Return whether the configuration or any public application lists the origin."""
        if self._allows_any or origin in self._origins:
            return True
        store = self._engine.services.store
        try:
            version = store.documents_version
            if version != self._own[0]:
                with store.transaction(write=False):
                    origins = frozenset(
                        own
                        for tenant in store.tenants()
                        for application in store.list(Application, tenant.id)
                        for own in application.origins
                    )
                self._own = (version, origins)
        except StoreError:
            return False
        return origin in self._own[1]


Scope: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[MutableMapping[str, Any]], Awaitable[None]]

_log: Final = logging.getLogger("tollgate")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9._:/+=-]{1,128}")
_REPEATED_KEY: Final = b"\0"
"""Replaces a repeated key: no key's text holds a control character, so it matches none."""

_JSON_FIELD: Final = (b"content-type", b"application/json")
_NO_STORE: Final = (b"cache-control", b"no-store")
_OWN_FIELDS: Final = frozenset({b"x-request-id", b"date", b"content-length"})
_BODILESS_STATUSES: Final = frozenset({204, 304})
_FAILED_PROBLEM: Final = Problem(
    500, "The service has failed; the request id finds this in its log.", clause=None
)
_UNAVAILABLE_PROBLEM: Final = Problem(
    503,
    "The store cannot do this now; the request id finds the reason in the service's log.",
    clause=None,
    headers={"Retry-After": "5"},
)
_CLOSE_FIELD: Final = (b"connection", b"close")


class HttpApplication:
    """An engine as an ASGI application.

    trusted: proxies whose `X-Forwarded-For` is believed (D-IP).
    origins: web pages that may ask with any public key (D-CORS).
    page_paths: which of the service's own pages it shows.
    demo_keys: the lines of a demo's keys, which `/docs` offers.
    access_log: gets a line for each request but those of the pages.
    """

    def __init__(
        self,
        engine: Engine,
        *,
        trusted: tuple[Network, ...] = (),
        origins: tuple[str, ...] = (),
        page_paths: frozenset[str] = frozenset(),
        demo_keys: Sequence[Mapping[str, Any]] = (),
        access_log: AccessLog | None = None,
    ) -> None:
        self.engine = engine
        self._access_log = access_log
        self._cors = Cors(engine, origins)
        self.metrics = Metrics()
        self.budget = MemoryBudget()
        http = engine.profile.http
        self._trusted = trusted
        self._page_paths = page_paths
        if page_paths:
            self._pages: Any = make_pages(
                engine, self.metrics, demo_keys=demo_keys, paths=page_paths
            )
        self._key_header = http.key_header.lower().encode()
        self._proxy_key_header = http.proxy_key_header.lower().encode()
        self._start = os.urandom(10).hex().encode()  # of the request ids that are made here
        self._count = 0
        self._submit = engine.submit

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: C901 # reason: the whole path
        """Answer one request."""
        if scope["type"] != "http":
            return
        path = scope["path"]
        if path in self._page_paths and (path != "/" or not self._is_for_a_proxy(scope)):
            await self._pages(scope, receive, self._with_id(scope, send))
            return
        started_ns = time.perf_counter_ns()
        metrics = self.metrics
        metrics.in_flight += 1
        request, body, request_id = None, None, b""
        extensions = scope.get("extensions")
        exchange = None if extensions is None else extensions.get(EXCHANGE)
        reservation = Reservation(self.budget)
        RUNNING.set(reservation)
        try:
            request, body, request_id = self._read(scope, receive, exchange, reservation)
            reservation.request = request
            try:
                response = await self._submit(request)
            except ClientDisconnect:
                raise
            except Exception as error:  # noqa: BLE001 # reason: whatever it is, the caller gets a problem
                response = _failed(error, request_id)
            latency_ns = time.perf_counter_ns() - started_ns
            operation = request.operation or self._operation(request)
            metrics.count(operation, response.status, response.decision, latency_ns)
            origin = request.headers.get("origin") if request.headers is not None else None
            if origin is not None:
                self._cors.add(request, response, origin)
            response, headers, content = self._within_budget(
                request, response, request_id, reservation
            )
            status = response.status
            self._log_access(request, response, request_id, len(content), started_ns)
            if body is not None and body.ends_connection:
                headers.append(_CLOSE_FIELD)
            if len(content) > KEPT_UNREAD_BYTES:
                response.body = None  # the client may take long for the content alone
                await _send(send, status, headers, content, exchange)
            elif (
                body is not None
                or exchange is None
                or not exchange.answer(status, headers, content)
            ):
                await _send(send, status, headers, content)
        except ClientDisconnect:
            self._log_access(request, None, request_id, 0, started_ns)
        finally:
            metrics.in_flight -= 1
            if reservation.size_bytes:
                reservation.resize(0)

    def _within_budget(
        self, request: Request, response: Response, request_id: bytes, reservation: Reservation
    ) -> tuple[Response, list[tuple[bytes, bytes]], bytes]:
        """Return the answer with its header fields and content; 503 where no memory is left."""
        is_head = request.method == "HEAD"
        headers, content = _outgoing(response, request_id, is_head)
        if not reservation.size_bytes and len(content) <= UNCOUNTED_BYTES:
            return response, headers, content
        try:
            reservation.resize(len(content))
        except Problem as problem:
            response = problem.response()
            headers, content = _outgoing(response, request_id, is_head)
        return response, headers, content

    def _read(
        self,
        scope: Scope,
        receive: Receive,
        exchange: HttpExchange | None,
        reservation: Reservation,
    ) -> tuple[Request, Body | None, bytes]:
        """Return the request, its body where one is still to come, and its id."""
        raw = scope["headers"]
        fields: dict[bytes, bytes] = dict(raw)
        key, proxy_key = fields.get(self._key_header), fields.get(self._proxy_key_header)
        if len(fields) != len(raw):  # some field comes more than once
            key, proxy_key = _once(raw, self._key_header), _once(raw, self._proxy_key_header)
        headers, client = Fields(raw), scope["client"]
        ip = peer_address(client[0] if client else "")
        if self._trusted:
            ip = forwarded_client(ip, headers.get("x-forwarded-for", ""), self._trusted)
        content = b"" if exchange is None else exchange.body(KEPT_UNREAD_BYTES)
        body = None
        size = None if b"transfer-encoding" in fields else int(fields.get(b"content-length", b"0"))
        if not content and size != 0:
            body = Body(receive, size, reservation)
        query = scope["query_string"]
        target = scope["raw_path"] + b"?" + query if query else scope["raw_path"]
        request_id = self._request_id(fields.get(b"x-request-id"))
        host = fields.get(b"host")
        request = Request(
            scope["method"],
            target.decode("latin-1"),
            ip=ip,
            key=None if key is None else key.decode("latin-1"),
            headers=headers,
            body=(content or b"") if body is None else body,
            host=None if host is None else host.decode("latin-1"),
            proxy_key=None if proxy_key is None else proxy_key.decode("latin-1"),
        )
        return request, body, request_id

    def _is_for_a_proxy(self, scope: Scope) -> bool:
        """Return whether a request comes under a proxy's hostname, whose root is the proxy's."""
        host = next((value for name, value in scope["headers"] if name == b"host"), b"")
        try:
            return self.engine.is_host_of_a_proxy(host.decode("latin-1"))
        except StoreError:
            return False

    def _log_access(
        self,
        request: Request | None,
        response: Response | None,
        request_id: bytes,
        size: int,
        started_ns: int,
    ) -> None:
        if self._access_log is not None and request is not None:
            self._access_log.write(request, response, request_id, size=size, started_ns=started_ns)

    def _request_id(self, sent: bytes | None) -> bytes:
        """Return the client's request id, or a new one when it sent none that is valid."""
        if sent is not None and _REQUEST_ID.fullmatch(sent) is not None:
            return sent
        self._count += 1
        return b"%b%012x" % (self._start, self._count)

    def _with_id(self, scope: Scope, send: Send) -> Send:
        """Return a `send` that adds the request's id to the head of the answer."""
        sent = next((v for n, v in scope["headers"] if n == b"x-request-id"), None)
        request_id = self._request_id(sent)

        async def sending(message: MutableMapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"x-request-id", request_id)]
            await send(message)

        return sending

    def _operation(self, request: Request) -> str:
        path = request.path.partition("?")[0]
        try:
            return self.engine.router.find(request.method, path)[0].name
        except Problem as problem:
            return "unknown" if problem.status == 404 else "not_allowed"


async def _send(
    send: Send,
    status: int,
    headers: list[tuple[bytes, bytes]],
    content: bytes,
    exchange: HttpExchange | None = None,
) -> None:
    """Send an answer; with its exchange, wait until the client has taken it."""
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": content})
    if exchange is not None:
        await exchange.sent()


def _once(raw: Sequence[tuple[bytes, bytes]], name: bytes) -> bytes | None:
    """Return a field's value; for a repeated field, a value that matches no key."""
    values = [value for other, value in raw if other == name]
    if not values:
        return None
    return values[0] if len(values) == 1 else _REPEATED_KEY


def _outgoing(
    response: Response,
    request_id: bytes,
    is_head: bool,  # noqa: FBT001 # reason: the hot path calls by position
) -> tuple[list[tuple[bytes, bytes]], bytes]:
    """Return the header fields and the content of an answer."""
    headers, has_type = _fields(response, request_id)
    content = response.body
    if is_head or response.status in _BODILESS_STATUSES:
        if is_head and not has_type:
            headers.append(_JSON_FIELD)
        return headers, b""
    if not isinstance(content, bytes):  # None is JSON's null where there is a body at all
        content = dumps(content)
        headers.append(_NO_STORE)
        if not has_type:
            headers.append(_JSON_FIELD)
    headers.append((b"content-length", b"%d" % len(content)))
    return headers, content


def asgi_app(engine: Engine) -> HttpApplication:
    """Return the engine as an ASGI application: for an HTTP client in this process, or a server.

    >>> import asyncio, httpx
    >>> async def asked() -> int:
    ...     transport = httpx.ASGITransport(asgi_app(Engine(seed=7)))
    ...     async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
    ...         return (await client.post("/tokenize", json=["Ada"])).status_code
    >>> asyncio.run(asked())
    401
    """
    return HttpApplication(engine)


def _fields(response: Response, request_id: bytes) -> tuple[list[tuple[bytes, bytes]], bool]:
    """Return the answer's header fields, and whether a media type is among them."""
    headers = [(b"x-request-id", request_id)]
    has_type = False
    for name, value in response.headers.items():
        lower = name.lower().encode("latin-1")
        if lower == b"content-type":
            has_type = True
        elif lower in _OWN_FIELDS:
            continue
        if "\n" in value:  # values that cannot be joined (Set-Cookie) are separate lines
            headers.extend((lower, v.encode("latin-1", "replace")) for v in value.split("\n"))
        else:
            headers.append((lower, value.encode("latin-1", "replace")))
    return headers, has_type


def _failed(error: Exception, request_id: bytes) -> Response:
    """Log why a request failed, in one line without a value, and return its answer.

    Messages of the store are logged, since they name tables and rows, which an operator needs. Of
    any other error only the type and the traceback's places are logged, never the message.
    """
    if isinstance(error, StoreError | VaultError):
        _log.error("request %s failed: %s", request_id.decode(), error)
        return (
            _UNAVAILABLE_PROBLEM if isinstance(error, StoreError) else _FAILED_PROBLEM
        ).response()
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(f"{f.filename.rpartition('/')[2]}:{f.lineno}" for f in reversed(frames))
    _log.error("request %s failed: %s at %s", request_id.decode(), type(error).__name__, places)
    return _FAILED_PROBLEM.response()
