"""The server: uvicorn around the application, started, watched and stopped.

One process serves: the counters of the limits live in it (D-COUNTERS-LIFE), so that a second one
would let every caller have each rate once more. SQLite takes one writer at a time anyway.

On SIGTERM and SIGINT no connection is accepted any more, idle ones are closed, requests that have
begun are answered, and only then the store is closed: what was answered is kept.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
import sys
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import uvicorn

from engine.errors import InputError, TollgateError
from engine.http.addresses import Network
from engine.http.app import Application
from engine.http.pages import PAGE_PATHS, make_pages
from engine.http.protocol import Connections, HttpProtocol
from engine.http.system import SystemWorld
from engine.messages import Problem
from engine.resources import OPERATIONS
from engine.service import Engine

__all__ = ["bind", "make_application", "serve"]

_log: Final = logging.getLogger("tollgate")
_TICK_S: Final = 0.5
_STOP_S: Final = 45  # longer than a destination and two transforms of a request may take by half
_IDLE_S: Final = 75
_SPARE_FILES: Final = 128
_MOST_CONNECTIONS: Final = 20_000


def make_application(engine: Engine, *, trusted: tuple[Network, ...] = ()) -> Application:
    """Return the ASGI application of an engine, with its own pages."""
    made: list[Application] = []
    pages = make_pages(engine, lambda: made[0].metrics)
    made.append(Application(engine, trusted=trusted, pages=pages, page_paths=PAGE_PATHS))
    return made[0]


def bind(host: str, port: int) -> socket.socket:
    """Return a bound socket; raises `InputError` when the address cannot be had."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        bound = socket.socket(family, kind, protocol)
    except OSError as error:
        raise InputError(f"host = {host!r} must be an address of this machine: {error}") from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as error:
        bound.close()
        raise InputError(
            f"port = {port} must be free on {host}; choose another with --port, or 0 for any: "
            f"{error.strerror}"
        ) from None
    return bound


async def serve(
    engine: Engine,
    bound: socket.socket,
    *,
    trusted: tuple[Network, ...] = (),
    on_start: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Serve until a signal says to stop; returns the exit code, 0 or 130 after Ctrl-C.

    on_start: awaited once connections are accepted.
    """
    application = make_application(engine, trusted=trusted)
    connections = Connections(_connections_limit())
    protocol = type("_Protocol", (HttpProtocol,), {"connections_of_server": connections})
    config = uvicorn.Config(
        application,
        http=protocol,
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=2048,
        timeout_keep_alive=_IDLE_S,
        timeout_graceful_shutdown=_STOP_S,
    )
    server = _Server(config, on_start)
    beside = [
        asyncio.create_task(_tick(engine, application, connections)),
        asyncio.create_task(_warm_up(engine)),
    ]
    try:
        await server.serve(sockets=[bound])
    finally:
        for task in beside:
            task.cancel()
        await asyncio.gather(*beside, return_exceptions=True)
        world = engine.services.world
        if isinstance(world, SystemWorld):
            await world.close()
        engine.close()
    return 130 if server.was_interrupted else 0


class _Server(uvicorn.Server):
    """uvicorn's server, which tells when it has started, and stops without killing itself."""

    def __init__(
        self, config: uvicorn.Config, on_start: Callable[[], Awaitable[None]] | None
    ) -> None:
        super().__init__(config)
        self._on_start = on_start
        self.was_interrupted = False

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self._on_start is not None:
            await self._on_start()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        numbers = (signal.SIGINT, signal.SIGTERM)
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.was_interrupted = signal.SIGINT in self._captured_signals


async def _warm_up(engine: Engine) -> None:
    """Load beside the first requests what would hold up one of them for a second."""
    world = engine.services.world
    if isinstance(world, SystemWorld):
        await world.prepare()
    await asyncio.to_thread(_load_forms)


def _load_forms() -> None:
    for operation in OPERATIONS:
        if operation.form is not None:
            with contextlib.suppress(Problem):
                operation.form.check(None)


async def _tick(engine: Engine, application: Application, connections: Connections) -> None:
    """Every half second: erase what its time has come for, give up who is too slow."""
    loop = asyncio.get_running_loop()
    while True:
        try:
            engine.expire()
        except TollgateError as error:  # a store that fails now may work in half a second
            _log.error("erasing what its time has come for failed: %s", type(error).__name__)
        application.watch.tick(loop.time())
        connections.tick(loop.time())
        await asyncio.sleep(_TICK_S)


def _connections_limit() -> int:
    """Raise the limit of open files as far as it goes; return what is left for connections."""
    if sys.platform == "win32":
        return 500
    import resource  # noqa: PLC0415 # reason: not on every platform

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = _MOST_CONNECTIONS + _SPARE_FILES
    if hard != resource.RLIM_INFINITY:
        wanted = min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
    files = _MOST_CONNECTIONS + _SPARE_FILES if soft == resource.RLIM_INFINITY else soft
    return max(16, min(_MOST_CONNECTIONS, files - _SPARE_FILES))
