"""Over HTTP: real requests, real time.

An event loop in its own thread drives every connection, so the suite works inside a notebook's
running loop and a check may block. A connection belongs to one source address and carries one
request at a time; h11 speaks the protocol. It is kept for the next request, and closed after two
idle seconds, because servers close idle connections. A request is sent once: when its connection
breaks (`ConnectionLost`), the exchange says so.

`sent_ns` is taken just before the first byte is handed to the socket, `received_ns` when the head
of the answer has arrived: the deployment's decision lies between.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar
from urllib.parse import quote, urlsplit

import h11

from conformance.messages.exchange import HttpRequest, KeyLabel
from conformance.target import Source, Target, Tls
from conformance.wire.transport import PROXY_KEY, Answer, Place, fields_of, with_keys
from engine import InputError
from engine.files import Include
from engine.tokens.strict_json import dumps

_HEAD_BYTES: Final = 65_536
_PIECE_BYTES: Final = 262_144
_LONGEST_BYTES: Final = 64_000_000
"""A longer answer breaks the connection."""


class ConnectionLost(Exception):
    """The connection ended, or the answer is not HTTP."""


@dataclass(slots=True)
class Sent:
    """A request on its way, and what has come back of its answer; times of `perf_counter_ns`."""

    sent_ns: int = 0
    received_ns: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytearray = field(default_factory=bytearray, repr=False)


class Connection(asyncio.Protocol):
    """A connection from `source`; `is_open` while it can carry another request."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self.idle_since_ns = 0
        self._http = h11.Connection(h11.CLIENT, max_incomplete_event_size=_HEAD_BYTES)
        self._transport: asyncio.Transport | None = None
        self._sent: Sent | None = None
        self._done: asyncio.Future[None] | None = None
        self._broken: str | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def is_open(self) -> bool:
        """Whether the connection can carry another request."""
        return (
            self._broken is None
            and self._transport is not None
            and not self._transport.is_closing()
            and self._http.our_state is h11.IDLE
        )

    def close(self) -> None:
        """Close it."""
        if self._transport is not None:
            self._transport.abort()

    async def ask(
        self,
        method: str,
        target: str,
        headers: list[tuple[str, str]],
        body: bytes,
        sent: Sent,
    ) -> None:
        """Send a request and fill `sent` with its answer; raises `ConnectionLost`."""
        assert self._transport is not None, "ask once connected"
        if self._broken is not None:
            raise ConnectionLost(self._broken)
        self._sent = sent
        self._done = asyncio.get_running_loop().create_future()
        try:
            raw = self._http.send(h11.Request(method=method, target=target, headers=headers))
            assert raw is not None, "a request has bytes"
            if body:
                raw += self._http.send(h11.Data(data=body)) or b""
            raw += self._http.send(h11.EndOfMessage()) or b""
        except h11.LocalProtocolError as error:
            self.close()
            raise ConnectionLost(f"the request cannot be sent: {error}") from None
        try:
            sent.sent_ns = time.perf_counter_ns()
            is_whole = await self._write(raw)
            await self._done
        except BaseException:
            self.close()
            raise
        finally:
            self._sent = None
        self._again(is_whole=is_whole)

    async def _write(self, raw: bytes) -> bool:
        """Write the bytes, large bodies piece by piece; returns whether all were written.

        An answer that arrives before the end of the request (413) stops the writing.
        """
        assert self._transport is not None, "write once connected"
        assert self._done is not None, "a request is under way"
        if len(raw) <= _PIECE_BYTES:
            self._transport.write(raw)
            return True
        view = memoryview(raw)
        for start in range(0, len(raw), _PIECE_BYTES):
            await self._writable.wait()
            await asyncio.sleep(0)  # an answer that has come is read first
            if self._done.done() or self._transport.is_closing():
                return False
            self._transport.write(view[start : start + _PIECE_BYTES])
        return True

    def _again(self, *, is_whole: bool) -> None:
        """Prepare for the next request, or close."""
        self.idle_since_ns = time.perf_counter_ns()
        if not is_whole:
            self.close()
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def pause_writing(self) -> None:
        """Stop writing: the socket's buffer is full."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Resume writing."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Read the next part of the answer."""
        now_ns = time.perf_counter_ns()
        if self._sent is None:
            self._end("the server spoke out of turn")
            return
        try:
            self._http.receive_data(data)
            self._read(self._sent, now_ns)
        except h11.RemoteProtocolError:
            self._end("the answer is no HTTP")

    def eof_received(self) -> bool:
        """Handle the end of the stream, which ends some answers and cuts off others."""
        if self._sent is not None:
            try:
                self._http.receive_data(b"")
                self._read(self._sent, time.perf_counter_ns())
            except h11.RemoteProtocolError:
                pass
        self._end("the connection was closed before the answer's end")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Handle the loss of the connection."""
        self._read_the_rest()
        reset = isinstance(exc, ConnectionResetError)
        what = "reset" if reset else "closed"
        self._end(f"the connection was {what} before the answer's end")

    def _read_the_rest(self) -> None:
        """Read what arrived before the loss, such as the refusal of a body still being sent.

        The loop drops a connection at the first byte that it cannot send, even with an unread
        answer.
        """
        transport = self._transport
        if transport is None or self._sent is None or self._done is None or self._done.done():
            return
        if transport.get_extra_info("sslcontext") is not None:
            return  # what the socket holds is for the TLS layer to read
        with contextlib.suppress(OSError):
            while data := os.read(transport.get_extra_info("socket").fileno(), _HEAD_BYTES):
                self.data_received(data)

    def _read(self, sent: Sent, now_ns: int) -> None:
        while True:
            event = self._http.next_event()
            if isinstance(event, h11.Response):
                sent.received_ns = now_ns
                sent.status = event.status_code
                sent.headers = {
                    name.decode("latin-1"): value.decode("latin-1")
                    for name, value in event.headers.raw_items()
                }
            elif isinstance(event, h11.Data):
                sent.body += event.data
                if len(sent.body) > _LONGEST_BYTES:
                    self._end(f"the answer is longer than {_LONGEST_BYTES // 1_000_000} MB")
                    return
            elif isinstance(event, h11.EndOfMessage):
                if self._done is not None and not self._done.done():
                    self._done.set_result(None)
                    self._writable.set()
                return
            elif not isinstance(event, h11.InformationalResponse):
                return  # no more for now, or at all

    def _end(self, why: str) -> None:
        self._broken = self._broken or why
        self._writable.set()
        if self._done is not None and not self._done.done():
            self._done.set_exception(ConnectionLost(why))
        self.close()


_SECOND_NS: Final = 1_000_000_000
_IDLE_NS: Final = 2 * _SECOND_NS
_SWITCH_S: Final = 0.0002
"""The interpreter's switch interval, in seconds. Each socket call of the loop releases the
interpreter, and may wait this long to get it back from a thread that computes. The default of 5 ms
slows bursts down."""
_AGENT: Final = "tollgate-conformance"
_Computed = TypeVar("_Computed")


class HttpTransport:
    """HTTP/1.1 to a target's base URL; `close` ends its connections and its thread."""

    def __init__(self, target: Target) -> None:
        url = urlsplit(target.base_url)
        assert url.hostname is not None, "a target's base URL names a host"
        self._host = url.hostname
        self._port = url.port or (443 if url.scheme == "https" else 80)
        self._authority = url.netloc.rpartition("@")[2]
        self._prefix = url.path.rstrip("/")
        self._target = target
        self._tls = _context(target.tls) if url.scheme == "https" else None
        self._server_name = target.tls.server_name or url.hostname
        self._keys = target.key_texts | target.hosts
        self._idle: dict[Source, list[Connection]] = {}
        self._started_ns = time.perf_counter_ns()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="conformance", daemon=True
        )
        self._aside = ThreadPoolExecutor(1, thread_name_prefix="conformance aside")
        self._switch_s = sys.getswitchinterval()
        sys.setswitchinterval(_SWITCH_S)
        self._thread.start()

    def __repr__(self) -> str:
        return f"<HttpTransport to {self._target.base_url}>"

    @property
    def now_ns(self) -> int:
        """Nanoseconds since the transport was made, on the monotonic clock."""
        return time.perf_counter_ns() - self._started_ns

    @property
    def wall_start_ns(self) -> int:
        """Nanoseconds since the Unix epoch when the transport was made, by the wall clock now."""
        return time.time_ns() - self.now_ns

    # --- sending --------------------------------------------------------------------------------

    async def send(self, ask: HttpRequest, place: Place) -> Answer:  # noqa: ARG002 # reason: the protocol's form
        """Send one request; a failure of the network is an answer without status."""
        ask = self._target.dialect.asked(ask)
        headers, body = self._message(ask)
        began_ns = self.now_ns
        sent: Sent | None = None
        try:
            async with asyncio.timeout(self._target.timeout_ns / _SECOND_NS):
                is_bound = self._target.forwarded is None
                connection = await self._connection(ask.source if is_bound else None)
                sent = Sent()
                await connection.ask(ask.method, self._path_of(ask), headers, body, sent)
        except TimeoutError:
            seconds = self._target.timeout_ns / _SECOND_NS
            return self._unanswered(began_ns, sent, f"no answer within {seconds:g} s")
        except ConnectionLost as broken:
            return self._unanswered(began_ns, sent, str(broken))
        except OSError as error:
            return self._unanswered(began_ns, sent, f"cannot connect: {_reason(error)}")
        if connection.is_open:
            self._idle.setdefault(connection.source, []).append(connection)
        assert sent.status is not None, "an answer has a status"
        return Answer(
            sent.sent_ns - self._started_ns,
            sent.received_ns - self._started_ns,
            sent.status,
            sent.headers,
            bytes(sent.body),
        )

    def _unanswered(self, began_ns: int, sent: Sent | None, why: str) -> Answer:
        sent_ns = began_ns if sent is None or not sent.sent_ns else sent.sent_ns - self._started_ns
        return Answer(sent_ns, self.now_ns, None, {}, b"", why)

    def _message(self, ask: HttpRequest) -> tuple[list[tuple[str, str]], bytes]:
        headers = [(n, with_keys(text, self._keys)) for n, text in fields_of(self._target, ask)]
        named = {name.lower() for name, _ in headers}
        if "host" not in named:
            headers.insert(0, ("Host", self._authority))
        body = ask.body
        if body is None:
            raw = b""
        elif isinstance(body, bytes):
            raw = body
        else:
            raw = dumps(body)
            if "content-type" not in named:
                headers.append(("Content-Type", "application/json"))
        for name, default in (("User-Agent", _AGENT), ("Accept", "*/*")):
            if name.lower() not in named:
                headers.append((name, default))
        if (body is not None or ask.method in {"POST", "PUT", "PATCH"}) and not named & {
            "content-length",
            "transfer-encoding",
        }:
            headers.append(("Content-Length", str(len(raw))))
        return headers, raw

    def _path_of(self, ask: HttpRequest) -> str:
        path = ask.path
        if PROXY_KEY in path:
            label = ask.proxy_key or "none"
            path = path.replace(PROXY_KEY, quote(self._keys.get(label, label), safe=""))
        return (self._prefix + path) or "/"

    # --- connections ----------------------------------------------------------------------------

    async def _connection(self, source: Source) -> Connection:
        idle = self._idle.setdefault(source, [])
        oldest_ns = time.perf_counter_ns() - _IDLE_NS
        while idle:
            connection = idle.pop()  # the one used last is the likeliest to be open still
            if connection.is_open and connection.idle_since_ns > oldest_ns:
                return connection
            connection.close()
        _, connection = await self._loop.create_connection(
            lambda: Connection(source),
            self._host,
            self._port,
            ssl=self._tls,
            server_hostname=self._server_name if self._tls is not None else None,
            local_addr=None if source is None else (source, 0),
        )
        return connection

    # --- time and running -----------------------------------------------------------------------

    async def sleep_until_ns(self, at_ns: int) -> None:
        """Sleep on the loop; never returns early."""
        while (left_ns := at_ns - self.now_ns) > 0:  # noqa: ASYNC110 # reason: a sleep may end early
            await asyncio.sleep(left_ns / _SECOND_NS)

    async def aside(self, compute: Callable[[], _Computed]) -> _Computed:
        """Compute in a thread, one task at a time, while the loop goes on sending."""
        return await self._loop.run_in_executor(self._aside, compute)

    async def gather(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run them as tasks; the first exception is raised once all have ended."""
        results = await asyncio.gather(*coroutines, return_exceptions=True)
        for result in results:
            if isinstance(result, BaseException):
                raise result
        return results

    def start(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> Callable[[], list[Any]]:
        """Start coroutines at once; the function that it returns waits for their results."""
        future = asyncio.run_coroutine_threadsafe(self.gather(coroutines), self._loop)

        def wait() -> list[Any]:
            try:
                return future.result()
            except BaseException:
                future.cancel()
                raise

        return wait

    def run(self, coroutines: Sequence[Coroutine[Any, Any, Any]]) -> list[Any]:
        """Run coroutines in parallel; returns their results."""
        assert threading.current_thread() is not self._thread, "await gather on the loop itself"
        return self.start(coroutines)()

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Register a key that a check has created."""
        self._keys[label] = text

    def close(self) -> None:
        """Close every connection and end the thread; more than once is fine."""
        if self._loop.is_closed():
            return
        asyncio.run_coroutine_threadsafe(self._close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
        self._aside.shutdown(cancel_futures=True)
        sys.setswitchinterval(self._switch_s)

    async def _close(self) -> None:
        for connection in (connection for idle in self._idle.values() for connection in idle):
            connection.close()
        mine = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not mine]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.sleep(0)


def _reason(error: OSError) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        wrong = error.verify_message.rstrip(".")
        return f"its certificate is not trusted: {wrong}; name its authority in tls.ca_file"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or "no reason given").replace("_", " ").lower()
        return f"TLS: {reason}"
    if error.errno is not None and error.errno > 0:
        return os.strerror(error.errno).lower()  # asyncio's own text repeats the address
    return (error.strerror or str(error) or type(error).__name__).lower()


def _context(tls: Tls) -> ssl.SSLContext:
    if tls.ca_file is None:
        context = ssl.create_default_context()
    else:
        with _pem("tls.ca_file", tls.ca_file, "certificates"):
            context = ssl.create_default_context(cafile=str(tls.ca_file.file))
    if tls.certificate is not None:
        key = None if tls.private_key is None else str(tls.private_key.file)
        with _pem("tls.certificate", tls.certificate, "a certificate, with its tls.private_key"):
            context.load_cert_chain(str(tls.certificate.file), key, _no_password)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


@contextlib.contextmanager
def _pem(name: str, file: Include, what: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ssl.SSLError) as error:
        reason = str(error.args[-1] if error.args else error).lower()
        message = f"{file.where}{name} = {file.path} must hold {what}, in PEM: {reason}"
        raise InputError(message) from None


def _no_password() -> str:
    """Refuse a key with a password: nobody can enter it during a run."""
    raise InputError("tls.private_key must be a key without password; take the password off a copy")
