"""One HTTP/1.1 connection: h11 speaks the protocol, this file moves the bytes and stamps the time.

One request at a time. Nothing is ever sent twice, and what breaks raises `Broken` with a sentence
about it.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from dataclasses import dataclass, field
from typing import Final

import h11

from conformance.target import Source

__all__ = ["Broken", "Connection", "Sent"]

_HEAD_BYTES: Final = 65_536
_PIECE_BYTES: Final = 262_144
_LONGEST_BYTES: Final = 64_000_000
"""An answer that goes on beyond it has no end that is worth waiting for."""


class Broken(Exception):
    """The connection ended, or what came back is no HTTP."""


@dataclass(slots=True)
class Sent:
    """A request on its way, and what has come back of its answer; times of `perf_counter_ns`."""

    sent_ns: int = 0
    received_ns: int = 0
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    body: bytearray = field(default_factory=bytearray, repr=False)


class Connection(asyncio.Protocol):
    """A connection from `source`; `is_open` while it may be asked again."""

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
        """Whether the connection may be asked again."""
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
        """Send a request and fill `sent` with its answer; raises `Broken`."""
        assert self._transport is not None, "ask once connected"
        if self._broken is not None:
            raise Broken(self._broken)
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
            raise Broken(f"the request cannot be sent: {error}") from None
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
        """Hand the bytes over, large ones piece by piece; returns whether all of them.

        An answer that comes before the request's end (413) ends the writing.
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
        """Be ready for the next request, or close."""
        self.idle_since_ns = time.perf_counter_ns()
        if not is_whole:
            self.close()
        elif self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        else:
            self.close()

    # --- asyncio's side -------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        assert isinstance(transport, asyncio.Transport), "a stream"
        self._transport = transport

    def pause_writing(self) -> None:
        """Hear that the socket takes no more for now."""
        self._writable.clear()

    def resume_writing(self) -> None:
        """Hear that it takes more."""
        self._writable.set()

    def data_received(self, data: bytes) -> None:
        """Read on."""
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
        """Hear that no more will come: the end of some answers, a break in others."""
        if self._sent is not None:
            try:
                self._http.receive_data(b"")
                self._read(self._sent, time.perf_counter_ns())
            except h11.RemoteProtocolError:
                pass
        self._end("the connection was closed before the answer's end")
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Hear that the connection is gone."""
        self._read_the_rest()
        reset = isinstance(exc, ConnectionResetError)
        what = "reset" if reset else "closed"
        self._end(f"the connection was {what} before the answer's end")

    def _read_the_rest(self) -> None:
        """Read what came before the end: a body may be refused, and the rest of it cut off.

        The loop gives a connection up at the first byte that it cannot send, unread answer or not.
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
            self._done.set_exception(Broken(why))
        self.close()
