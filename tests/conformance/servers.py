"""Servers that are no tokenization service: each breaks in one way, on loopback."""

from __future__ import annotations

import asyncio
import re
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

__all__ = ["Handler", "answering", "counting", "dropping", "hanging", "serving"]

Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


async def _request(reader: asyncio.StreamReader) -> bytes:
    head = await reader.readuntil(b"\r\n\r\n")
    size = re.search(rb"content-length: *(\d+)", head, re.IGNORECASE)
    return head + (await reader.readexactly(int(size[1])) if size else b"")


def answering(answer: bytes, seen: list[bytes] | None = None) -> Handler:
    """Say the same to every request, on connections that stay."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            request = await _request(reader)
            if seen is not None:
                seen.append(request)
            writer.write(answer)
            await writer.drain()

    return handle


def dropping(seen: list[bytes]) -> Handler:
    """Take each request and close without a word."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        seen.append(await _request(reader))
        writer.transport.abort()  # no word about it

    return handle


async def hanging(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Never say a word."""
    await reader.read()
    writer.close()  # never reached while the client waits


def counting(handler: Handler, connections: list[int]) -> Handler:
    """Do as another does, and add each connection to a list."""

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(len(connections))
        await handler(reader, writer)

    return handle


@contextmanager
def serving(handler: Handler, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Serve on a free port of loopback; gives the port."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    async def closing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await handler(reader, writer)
        except (EOFError, ConnectionError):
            pass
        finally:
            writer.transport.abort()

    async def start() -> asyncio.Server:
        return await asyncio.start_server(closing, "127.0.0.1", 0, ssl=tls)

    async def stop() -> None:
        server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)  # what was aborted closes its socket in the loop's next round

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
