"""The demo's own destination: a loopback HTTP server that echoes after a requested delay.

    ANY /…              → 200, what was sent: {"method", "path", "headers", "body_bytes"}
    ANY /…delay/N       → the same N seconds later, at most 60

It lets a user see ERR-408 without another machine. It is no part of the service.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from typing import Any, Final

import uvicorn
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse

_DELAY: Final = re.compile(r"/delay/([0-9]{1,2}(?:\.[0-9]{1,3})?)(?:\?|$)")
_LONGEST_S: Final = 60.0
_SECRETS: Final = frozenset({"authorization", "cookie"})


class SecondServer(uvicorn.Server):
    """A server beside the one of the process: it stops with that one, not by a signal."""

    def capture_signals(self) -> contextlib.nullcontext[None]:  # type: ignore[override] # reason: there is nothing to capture
        """Leave the signals to the server of the process."""
        return contextlib.nullcontext()


class SlowDestination:
    """The server; `url` once it has started."""

    def __init__(self) -> None:
        config = uvicorn.Config(_echo, lifespan="off", log_config=None, access_log=False)
        self._server = SecondServer(config)
        self._serving: asyncio.Task[None] | None = None
        self.url = ""

    async def start(self) -> None:
        """Listen on a free port of loopback."""
        bound = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]))

    async def stop(self) -> None:
        """Stop listening, and wait for no delay."""
        if self._serving is not None:
            self._server.should_exit = self._server.force_exit = True
            await self._serving


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
