"""The demo's own destination: a loopback HTTP server that echoes after a requested delay.

    ANY /…              → 200, what was sent: {"method", "path", "headers", "body_bytes"}
    ANY /…delay/N       → the same N seconds later, at most 60

It lets a user see ERR-408 without another machine. It is no part of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
from typing import Final

from engine.tokens import dumps

_DELAY: Final = re.compile(r"/delay/([0-9]{1,2}(?:\.[0-9]{1,3})?)(?:\?|$)")
_LONGEST_S: Final = 60.0
_HEAD_BYTES: Final = 65_536
_SECRETS: Final = frozenset({"authorization", "cookie"})


class SlowDestination:
    """The server; `url` once it has started."""

    def __init__(self) -> None:
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        self._server = await asyncio.start_server(
            self._connected, "127.0.0.1", 0, limit=_HEAD_BYTES
        )
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def stop(self) -> None:
        """Stop listening, and end all delays."""
        if self._server is not None:
            self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        self._tasks.add(task)
        try:
            with contextlib.suppress(OSError, EOFError, asyncio.LimitOverrunError, ValueError):
                writer.write(await _answer(reader))
                await writer.drain()
        finally:
            self._tasks.discard(task)
            writer.close()


async def _answer(reader: asyncio.StreamReader) -> bytes:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    method, path, _ = first.split(" ", 2)
    fields = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    size_bytes = int(fields.get("content-length", "0"))
    body = await reader.readexactly(size_bytes)
    delay = _DELAY.search(path)
    if delay is not None:
        await asyncio.sleep(min(float(delay[1]), _LONGEST_S))
    shown = {
        "method": method,
        "path": path,
        "headers": {name: value for name, value in fields.items() if name not in _SECRETS},
        "body_bytes": len(body),
    }
    content = b"" if method == "HEAD" else dumps(shown)
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nconnection: close\r\n"
        b"content-length: %d\r\n\r\n" % len(content)
    ) + content
