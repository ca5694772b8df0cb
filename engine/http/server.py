"""The server: uvicorn around the application, started, watched and stopped.

Only one process serves, because the limit counters live in it (D-COUNTERS-LIFE): a second process
would double every rate. SQLite allows only one writer at a time anyway.

On SIGTERM, SIGHUP and SIGINT the server accepts no more connections, closes idle ones, answers the
requests that have begun (for at most 90 s), and then closes the store.

`slow_destination` is the demo's own destination: it echoes after a requested delay, on loopback.

    ANY /…              → 200, what was sent: {"method", "path", "headers", "body_bytes"}
    ANY /…delay/N       → the same N seconds later, at most 60

It lets a user see ERR-408 without another machine. It is no part of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

from engine.errors import InputError, TollgateError
from engine.http.access_log import AccessLog
from engine.http.app import HttpApplication
from engine.http.pages import METRICS_PATHS, PAGE_PATHS, make_pages
from engine.http.protocol import Connections, HttpProtocol
from engine.http.requests import Network
from engine.http.system import SystemClock, SystemWorld
from engine.messages import Problem
from engine.service import Engine
from engine.tokens.strict_json import check_values

_log: Final = logging.getLogger("tollgate")
_TICK_S: Final = 0.5

ERASED_WITHIN_S: Final = 5
"""What has expired is overwritten in the store's file within this time; it is printed at start."""

_STOP_S: Final = 90  # a transform may take 30 s, the destination 25 s, the second transform 30 s
_IDLE_S: Final = 75
_SPARE_FILES: Final = 128
_MOST_CONNECTIONS: Final = 20_000


def bind(host: str, port: int, option: str = "--port") -> socket.socket:
    """Return a bound socket; raises `InputError` when the address is not available."""
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
            f"port = {port} must be free on {host}; choose another with {option}, or 0 for any: "
            f"{error.strerror}"
        ) from None
    return bound


async def serve(
    engine: Engine,
    bound: socket.socket,
    *,
    trusted: tuple[Network, ...] = (),
    origins: tuple[str, ...] = (),
    demo_keys: Sequence[Mapping[str, Any]] = (),
    metrics: socket.socket | None = None,
    access_log: AccessLog | None = None,
    on_start: Callable[[], Awaitable[None]] | None = None,
) -> int:
    """Serve until a signal says to stop; returns the exit code, 0 or 130 after Ctrl-C.

    demo_keys: the lines of a demo's keys, which `/docs` offers.
    metrics: a separate bound socket for `/metrics`, which is then served only there.
    access_log: gets a line for each request.
    on_start: awaited once connections are accepted.
    """
    clock, store = engine.clock, engine.services.store
    if isinstance(clock, SystemClock):  # which may have been set back since the last process
        with store.transaction(write=False):
            clock.not_before(store.latest_ns())
    application = HttpApplication(
        engine,
        trusted=trusted,
        origins=origins,
        demo_keys=demo_keys,
        access_log=access_log,
        page_paths=PAGE_PATHS if metrics is None else PAGE_PATHS - {"/metrics"},
    )
    connections = Connections(connections_limit(), application.budget)
    server = _Server(server_config(application, connections), on_start)
    await _warm_up(engine)
    stopping = asyncio.Event()
    beside = [
        asyncio.create_task(_tick(connections, stopping)),
        asyncio.create_task(_erase(engine, stopping)),
    ]
    second = None
    if metrics is not None:
        pages = make_pages(engine, application.metrics, paths=METRICS_PATHS)
        second = SecondServer(server_config(pages, connections))
        beside.append(asyncio.create_task(second.serve(sockets=[metrics])))
    try:
        await server.serve(sockets=[bound])
    finally:
        if second is not None:
            second.should_exit = True
        stopping.set()  # let running threads finish
        await asyncio.gather(*beside, return_exceptions=True)
        world = engine.services.world
        if isinstance(world, SystemWorld):
            await world.close()
        engine.close()
    return 130 if server.was_interrupted else 0


def server_config(application: Any, connections: Connections) -> uvicorn.Config:  # noqa: ANN401 # reason: any ASGI application
    """Return uvicorn's configuration for an application of ours."""
    protocol = type("_Protocol", (HttpProtocol,), {"connections_of_server": connections})
    return uvicorn.Config(
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


class _Server(uvicorn.Server):
    """uvicorn's server; it calls `on_start`, and does not raise its stop signal again."""

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
        numbers = [signal.SIGINT, signal.SIGTERM]
        if sys.platform != "win32" and signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            numbers.append(signal.SIGHUP)  # the terminal has closed; ignored under nohup
        before = {number: signal.signal(number, self.handle_exit) for number in numbers}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
            self.was_interrupted = signal.SIGINT in self._captured_signals


async def _warm_up(engine: Engine) -> None:
    """Load what the first requests would have to wait for."""
    world = engine.services.world
    if isinstance(world, SystemWorld):
        await world.prepare()
    with contextlib.suppress(Problem):
        check_values(b"[" * 2, 1)


async def _pause(stopping: asyncio.Event) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(stopping.wait(), _TICK_S)


async def _tick(connections: Connections, stopping: asyncio.Event) -> None:
    """Every half second: end connections that are too slow."""
    loop = asyncio.get_running_loop()
    while not stopping.is_set():
        connections.tick(loop.time())
        await _pause(stopping)


async def _erase(engine: Engine, stopping: asyncio.Event) -> None:
    """Every half second: delete and overwrite what has expired, in a thread, beside the requests.

    Logs once when that cannot be done within `ERASED_WITHIN_S`.
    """
    loop = asyncio.get_running_loop()
    eraser = ThreadPoolExecutor(1, "tollgate-erase")  # of its own: nothing else may delay it
    done_s, is_said = loop.time(), False
    while not stopping.is_set():
        reason = "another program reads the store's file"
        try:
            is_done = await loop.run_in_executor(eraser, engine.erase)
        except TollgateError as error:  # a store that fails now may work in half a second
            is_done, reason = False, str(error)
        if is_done:
            done_s, is_said = loop.time(), False
        elif not is_said and loop.time() - done_s > ERASED_WITHIN_S:
            is_said = True
            _log.error("what has expired is not erased within %d s: %s", ERASED_WITHIN_S, reason)
        await _pause(stopping)
    eraser.shutdown(wait=False)


def connections_limit() -> int:
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


_DELAY: Final = re.compile(r"/delay/([0-9]{1,2}(?:\.[0-9]{1,3})?)(?:\?|$)")
_LONGEST_S: Final = 60.0
_SECRETS: Final = frozenset({"authorization", "cookie"})


class SecondServer(uvicorn.Server):
    """A server beside the one of the process: it stops with that one, not by a signal."""

    def capture_signals(self) -> contextlib.nullcontext[None]:  # type: ignore[override] # reason: there is nothing to capture
        """Leave the signals to the server of the process."""
        return contextlib.nullcontext()


@contextlib.asynccontextmanager
async def slow_destination() -> AsyncIterator[str]:
    """Serve the demo's own destination on a free port of loopback; yields its address.

    At the end it waits for no delay.
    """
    config = uvicorn.Config(_echo, lifespan="off", log_config=None, access_log=False)
    server = SecondServer(config)
    bound = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[bound]))
    try:
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
    finally:
        server.should_exit = server.force_exit = True
        await serving


async def _echo(scope: Any, receive: Any, send: Any) -> None:  # noqa: ANN401 # reason: as ASGI has it
    request = Request(scope, receive)
    with contextlib.suppress(ClientDisconnect):
        body = await request.body()
        query = request.url.query
        path = scope["raw_path"].decode("latin-1") + (f"?{query}" if query else "")
        delay = _DELAY.search(path)
        if delay is not None:
            await asyncio.sleep(min(float(delay[1]), _LONGEST_S))
        answer = {
            "method": request.method,
            "path": path,
            "headers": {n: v for n, v in request.headers.items() if n not in _SECRETS},
            "body_bytes": len(body),
        }
        await JSONResponse(answer)(scope, receive, send)
