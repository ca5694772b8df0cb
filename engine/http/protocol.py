"""One HTTP/1.1 connection: uvicorn's, with bounds for hostile or broken senders.

uvicorn alone sets no time or size limit on a request's head, and answers malformed heads in plain
text. Here each of these is answered with a problem (RFC 9457) and the connection is closed:

- a head that takes longer than 10 s (400), or holds more than 64 kB or 100 fields (431);
- a request that is not HTTP (400), a missing or second Host, a transfer coding that is not
  `chunked` (400), and more connections than the process can hold (503; from the 65th more on,
  without an answer).

Header fields come from the head alone, without the blanks around their values (RFC 9110, 5.5);
trailers after a chunked body are ignored (D-FIELD-VALUE). The host of a target in absolute form
stands instead of Host (RFC 9112, 3.2.2).

408 is reserved for slow destinations (ERR-408, D-STATUSES). A connection on which nothing has
arrived for 10 s is closed without an answer.

The engine never sees such a request: no key is looked up, and it counts in no limit, LIM-IP
included (D-COUNTED counts requests). Each costs the sender its connection; limiting the rate of new
connections is the task of a proxy in front of the server.

Requests that come before the answers to earlier ones wait, and no more is read until all of them
are answered. When more than 32 wait, those are answered, and the connection is closed.

A client that reads nothing of its answer for 30 s is disconnected.

After the answer, an unread body is received and dropped, for at most 60 s and 100 MB, so that a
client that reads only after sending everything gets the answer, not a reset connection. A method
that the parser does not know is answered by the service, with 405.

There is no timer for each request: `Connections.tick`, called every half second, checks all
connections and closes those idle for too long. A request whose body has arrived, and an answer that
is complete, bypass ASGI's messages: an application finds `HttpExchange` in the scope.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

from engine.http.requests import MemoryBudget, Reservation
from engine.messages import Problem
from engine.tokens.strict_json import dumps

EXCHANGE: Final = "tollgate.exchange"
"""The name of `HttpExchange` among the extensions of an ASGI scope."""

_HEAD_S: Final = 10.0
_TAIL_S: Final = 10.0
_LINGER_S: Final = 2.0
_LONGEST_LINGER_S: Final = 60.0
_UNREAD_S: Final = 30.0
_HEAD_REST_BYTES: Final = 16_000_000
_BODY_REST_BYTES: Final = 100_000_000
_HEAD_BYTES: Final = 65_536
_FIELDS_LIMIT: Final = 100
_PIPELINE_LIMIT: Final = 32
"""The most requests that wait on a connection for earlier answers; each takes 2.5 kB."""

_CONTINUE: Final = b"HTTP/1.1 100 "
_METHOD: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,32}(?= )")
_USUAL_METHODS: Final = frozenset(
    {b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"HEAD", b"OPTIONS"}
)
_UPGRADE: Final = re.compile(rb"(\r\nconnection:[^\r\n]*)\bupgrade\b", re.IGNORECASE)
_ABSOLUTE: Final = re.compile(rb"[A-Za-z][A-Za-z0-9+.-]*://(?:[^/?#]*@)?(?P<host>[^/?#]*)")
_STAND_IN: Final = b"PROPFIND"
_TOLD_LIMIT: Final = 64
"""The most connections beyond the limit that are told so; more would take the store's files."""


class _Lingering:
    """A transport whose `close` waits while the peer is still sending.

    The head of an answer waits for its body, so that both leave in one packet.
    """

    __slots__ = ("_head", "_protocol", "_transport")

    def __init__(self, transport: asyncio.Transport, protocol: HttpProtocol) -> None:
        self._transport = transport
        self._protocol = protocol
        self._head = b""

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 # reason: whatever a transport has
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send data; hold back a head until its body or `flush` follows."""
        if self._head:
            head, self._head = self._head, b""
            self._transport.writelines((head, data))
        elif data.startswith(b"HTTP/1.1 ") and not data.startswith(_CONTINUE):
            self._head = data
        else:
            self._transport.write(data)

    def flush(self) -> None:
        """Send a head that was held back."""
        if self._head:
            self._transport.write(self._head)
            self._head = b""

    def is_closing(self) -> bool:
        """Return whether nothing more can be sent."""
        return self._protocol.lingers or self._transport.is_closing()

    def close(self) -> None:
        """Close, at once or when the peer has finished."""
        self.flush()
        if self._protocol.is_receiving and not self._protocol.lingers:
            self._protocol.linger()
        elif not self._protocol.lingers:
            self._transport.close()


@dataclass(eq=False, repr=False, slots=True)
class HttpExchange:
    """One request and its answer without ASGI messages, which cost half of a small request."""

    _protocol: HttpProtocol
    _cycle: RequestResponseCycle

    def body(self, limit_bytes: int) -> bytes | None:
        """Return the body if all of it has arrived and fits the limit; else None: use `receive`.

        What is returned here must not be received too.
        """
        cycle = self._cycle
        if cycle.more_body or len(cycle.body) > limit_bytes or cycle.disconnected:
            return None
        return bytes(cycle.body)

    async def sent(self) -> None:
        """Return when the client has taken nearly all of the answer, or is gone."""
        await self._cycle.flow.drain()

    def answer(self, status: int, fields: list[tuple[bytes, bytes]], body: bytes) -> bool:
        """Send a whole answer; False, and nothing is sent, where it must go through `send`.

        fields: of the header, a content-length among them where there is a body.
        """
        cycle, protocol = self._cycle, self._protocol
        if cycle.disconnected or cycle.flow.write_paused or not cycle.keep_alive:
            return False
        assert not cycle.response_started, "a request has one answer"
        cycle.response_started = cycle.response_complete = True
        start = protocol.connections_of_server.start_of(status, cycle.default_headers)
        lines = b"\r\n".join(map(b": ".join, fields))
        assert lines.count(b"\n") == lines.count(b"\r") == len(fields) - 1, "a field is one line"
        protocol.write(b"".join((start, lines, b"\r\n\r\n", body)))
        cycle.message_event.set()
        cycle.on_response()
        return True


class Connections:
    """What all connections of one server share: the limit on their number, and their clock."""

    def __init__(self, limit: int, budget: MemoryBudget | None = None) -> None:
        self.limit = limit
        self.budget = MemoryBudget() if budget is None else budget  # unfinished heads count in it
        self.open: set[HttpProtocol] = set()
        self._starts: dict[int, bytes] = {}
        self._starts_with: list[tuple[bytes, bytes]] | None = None

    def start_of(self, status: int, fields: list[tuple[bytes, bytes]]) -> bytes:
        """Return the start of an answer: status line and server fields, cached for a second."""
        if fields is not self._starts_with:
            self._starts, self._starts_with = {}, fields
        start = self._starts.get(status)
        if start is None:
            lines = (b"%b: %b\r\n" % field for field in fields)
            start = self._starts[status] = STATUS_LINE[status] + b"".join(lines)
        return start

    def tick(self, now_s: float) -> None:
        """End connections that take too long; `now_s` is on the event loop's clock."""
        for connection in list(self.open):
            connection.tick(now_s)


class HttpProtocol(HttpToolsProtocol):
    """One connection. `connections` is set by the server on a subclass of its own."""

    connections_of_server: Connections

    def __init__(self, *args: Any, **more: Any) -> None:  # noqa: ANN401 # reason: uvicorn's arguments
        super().__init__(*args, **more)
        self.is_receiving = False
        self.lingers = False
        self._lingers_until_s = 0.0
        self._is_broken = False
        self._since_s = 0.0  # of the message that is coming, or of an unused connection
        self._in_head = True
        self._head = Reservation(self.connections_of_server.budget)
        self._feed_bytes = 0
        self._discarded_bytes = 0
        self._unsent_bytes = 0
        self._unsent_since_s = 0.0
        self._idle_since_s = 0.0
        self._method: bytes | None = None
        self._direct: asyncio.Transport
        self._transport: _Lingering

    # --- the connection --------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # reason: as uvicorn's
        """Take the connection, or say that there are too many."""
        self._direct = transport
        server = self.connections_of_server
        self._transport = _Lingering(transport, self)
        super().connection_made(self._transport)  # type: ignore[arg-type] # reason: behaves as one
        self._head.owner = self.client[0] if self.client else None
        server.open.add(self)
        self._since_s = self.loop.time()
        beyond = len(server.open) - server.limit
        if beyond > _TOLD_LIMIT:
            transport.abort()
        elif beyond > 0:
            self._end(503, "The server has too many connections.")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.connections_of_server.open.discard(self)
        self._forget_head()
        super().connection_lost(exc)

    def linger(self) -> None:
        """Send what is written, close the sending side, and drop the rest of the request."""
        self.lingers = True
        self._since_s = self.loop.time()
        self._lingers_until_s = self._since_s + _LONGEST_LINGER_S
        self._unset_keepalive_if_required()
        if self._direct.is_closing():
            return
        self.flow.resume_reading()
        if self._direct.can_write_eof():
            self._direct.write_eof()
        else:
            self._direct.close()

    def eof_received(self) -> None:
        """Handle the end of the data that the peer sends."""
        if self.lingers:
            self._direct.close()
        else:
            super().eof_received()

    def tick(self, now_s: float) -> None:
        """End the connection when it takes too long."""
        if self._is_stuck(now_s):
            self._direct.abort()
            return
        waited_s = now_s - self._since_s
        if self.lingers:
            if waited_s > _LINGER_S or now_s > self._lingers_until_s:
                self._direct.close()
        elif self._direct.is_closing():
            return
        elif not self._since_s:
            self._tick_idle(now_s)
        elif self._in_head:
            self._tick_head(now_s)
        elif waited_s > _TAIL_S and self._is_answered:
            self.transport.close()

    def _tick_head(self, now_s: float) -> None:
        """End a connection on which a head takes too long, unless nothing is read meanwhile."""
        if self.flow.read_paused:
            self._since_s = now_s
        elif now_s - self._since_s > _HEAD_S:
            if self.is_receiving:
                self._end(400, "The head of the request came too slowly.")
            else:
                self._direct.close()  # nothing was asked, so nothing is answered

    def _tick_idle(self, now_s: float) -> None:
        """Close a connection on which nothing was asked for a long time since its last answer."""
        if not self._is_answered:
            return
        if not self._idle_since_s:
            self._idle_since_s = now_s
        elif now_s - self._idle_since_s > self.timeout_keep_alive:
            self.transport.close()

    def _is_stuck(self, now_s: float) -> bool:
        """Whether the peer has read none of the written data for a long time."""
        unsent_bytes = self._direct.get_write_buffer_size()
        if not unsent_bytes or unsent_bytes != self._unsent_bytes:
            self._unsent_bytes, self._unsent_since_s = unsent_bytes, now_s
        return unsent_bytes > 0 and now_s - self._unsent_since_s > _UNREAD_S

    @property
    def _is_answered(self) -> bool:
        """Whether the newest request, if any, is completely answered."""
        cycle: RequestResponseCycle | None = self.cycle  # None before the first one
        return cycle is None or cycle.response_complete

    @property
    def _is_body_awaited(self) -> bool:
        """Whether the newest request is the one being answered, and its body is on its way."""
        if self._is_answered or self.pipeline:
            return False
        return self.cycle.more_body and not self.cycle.response_started

    # --- the parser's events ---------------------------------------------------------------------

    def data_received(self, data: bytes) -> None:
        """Parse received data, unless the connection is ending."""
        if self.lingers or self._is_broken:
            self._discarded_bytes += len(data)
            if not self._is_broken:  # a body, which its sender may be unable to stop
                self._since_s = self.loop.time()
            if self._discarded_bytes > (_HEAD_REST_BYTES if self._is_broken else _BODY_REST_BYTES):
                self._direct.close()
            return
        if not self.is_receiving:
            self._method = None
            if data[: data.find(b" ", 0, 33)] not in _USUAL_METHODS:
                data = self._with_known_method(data)
            if b"pgrade" in data:
                data = _without_upgrade(data)
        self._feed_bytes = len(data)
        HttpToolsProtocol.data_received(self, data)
        if self._in_head and self.is_receiving:
            try:
                self._head.grow(len(data))
            except Problem as problem:
                self._end(problem.status, problem.detail)
                return
            if self._head.size_bytes > _HEAD_BYTES:
                self._end(431, f"The head of a request must hold at most {_HEAD_BYTES} bytes.")

    def _forget_head(self) -> None:
        if self._head.size_bytes:
            self._head.resize(0)

    def _with_known_method(self, data: bytes) -> bytes:
        """Replace a method that the parser may not know by one that it knows."""
        match = _METHOD.match(data)
        if match is None or match[0] == b"PRI":  # which opens HTTP/2
            return data
        self._method = match[0]
        return _STAND_IN + data[match.end() :]

    def on_message_begin(self) -> None:
        """Begin a request: its head is on its way. Nothing begins after one that was refused."""
        if self._is_broken:
            return
        HttpToolsProtocol.on_message_begin(self)
        self.is_receiving = True
        self._in_head = True
        self._forget_head()
        self._since_s = self.loop.time()
        self._idle_since_s = 0.0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Take a field of the head; ignore trailers after the body."""
        if not self._in_head:
            return
        name, value = name.lower(), value.strip(b" \t")
        if name == b"expect" and value.lower() == b"100-continue":
            self.expect_100_continue = True
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        """Handle a complete head: refuse one that is too large, else start to answer."""
        if self._is_broken:
            return
        self._in_head = False
        if len(self.headers) > _FIELDS_LIMIT or (
            self._head.size_bytes + self._feed_bytes > _HEAD_BYTES
            and _size(self.headers) > _HEAD_BYTES
        ):
            self._end(431, "The head of the request holds too much.")
            return
        if len(self.pipeline) >= _PIPELINE_LIMIT:
            self._end(503, "Too many requests wait for their answers.")
            return
        fault = _fault(self.headers, self.parser.get_http_version)
        if fault is not None:
            self._end(400, fault)
            return
        self._forget_head()
        if not self.url.startswith(b"/"):
            self.headers[:] = _with_host_of(self.url, self.headers)
        HttpToolsProtocol.on_headers_complete(self)
        self.scope["extensions"] = {EXCHANGE: HttpExchange(self, self.cycle)}  # type: ignore[dict-item] # reason: an object of ours, no dictionary
        if self._method is not None:
            self.scope["method"] = self._method.decode("ascii")
            self._method = None

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        if not self._is_broken:
            HttpToolsProtocol.on_body(self, body)

    def on_message_complete(self) -> None:
        """Take the end of a request."""
        if self._is_broken:
            return
        self.is_receiving = False
        self._since_s = 0.0
        HttpToolsProtocol.on_message_complete(self)

    def on_response_complete(self) -> None:
        """Take the end of an answer as uvicorn does, but with no timer until the next request."""
        self._transport.flush()
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.flow.resume_reading()

    def write(self, data: bytes) -> None:
        """Send a whole answer."""
        self._direct.write(data)

    def _unsupported_upgrade_warning(self) -> None:
        """Answer an upgrade request in HTTP/1.1, then close the connection."""
        if not self._is_answered:
            self.cycle.keep_alive = False

    # --- ends that are no answer of the application ----------------------------------------------

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 # reason: uvicorn's words are not ours
        """Answer what the parser cannot read."""
        self._end(400, "The request is not HTTP/1.1.")

    def _end(self, status: int, detail: str) -> None:
        if self.lingers or self._direct.is_closing():
            return
        self._is_broken = True
        if self._is_body_awaited:
            self.cycle.disconnected = True  # nobody waits for the rest
            self.cycle.message_event.set()
        elif not self._is_answered:
            self.cycle.keep_alive = False  # what came before is answered first, and is the last
            return
        clause = None if status == 503 else "D-SIZE" if status == 431 else "D-STATUSES"
        body = dumps(Problem(status, detail, clause=clause).response().body)
        head = (
            b"%bcontent-type: application/problem+json\r\n"
            b"content-length: %d\r\nconnection: close\r\n%b\r\n"
        )
        later = b"retry-after: 1\r\n" if status == 503 else b""
        self._direct.write(head % (STATUS_LINE[status], len(body), later) + body)
        self.linger()


def _without_upgrade(data: bytes) -> bytes:
    """Return a request that asks for the connection's end instead of another protocol.

    The parser reads no body of one that does, and Java's client asks so with its first request.
    """
    head, end, body = data.partition(b"\r\n\r\n")
    return _UPGRADE.sub(rb"\1close  ", head) + end + body


def _fault(headers: list[tuple[bytes, bytes]], version: Callable[[], str]) -> str | None:
    """Return why a head is ambiguous: another server might read a different request in it.

    version: of HTTP; called only where it matters, because the parser makes a text each time.
    """
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts != 1 and (hosts or version() != "1.0"):
        return "The head of the request must hold one Host."
    if b"transfer-encoding" in names:
        codings = [value.lower() for name, value in headers if name == b"transfer-encoding"]
        if codings != [b"chunked"] or version() == "1.0":
            return "The transfer coding of a request must be chunked, and nothing else."
    return None


def _with_host_of(target: bytes, headers: list[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the fields with the host of a target in absolute form as Host (RFC 9112, 3.2.2)."""
    match = _ABSOLUTE.match(target)
    if match is None:
        return headers
    others = [field for field in headers if field[0] != b"host"]
    return [(b"host", match["host"]), *others]


def _size(headers: list[tuple[bytes, bytes]]) -> int:
    return sum(len(name) + len(value) + 4 for name, value in headers)
