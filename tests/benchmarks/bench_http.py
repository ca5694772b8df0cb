"""How much of a bare framework's rate the service keeps: one-string tokenize over loopback.

Both run on uvicorn with uvloop and httptools, one worker each, the service with the memory store
and all limits of the default table in force at rates that are not reached. The client is one loop
over blocking sockets, cheap enough that the server is what is measured.
"""

import json
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks import _measure
from tests.engine.http.live import KEY, served

_CONNECTIONS: Final = 32
_REQUESTS: Final = 16_000
_BIG_REQUESTS: Final = 160_000
_BODY: Final = json.dumps({"name": "Ada"}).encode()


def _request() -> bytes:
    head = (
        f"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nSVC-API-KEY: {KEY}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(_BODY)}\r\n\r\n"
    )
    return head.encode() + _BODY


def _read(connection: socket.socket) -> None:
    data = connection.recv(65_536)
    while True:
        head, end, body = data.partition(b"\r\n\r\n")
        if end:
            assert head.startswith(b"HTTP/1.1 200"), head
            lower = head.lower()
            size = int(lower[lower.index(b"content-length: ") + 16 :].split(b"\r\n", 1)[0])
            if len(body) >= size:
                return
        more = connection.recv(65_536)
        assert more, "the server has closed the connection"
        data += more


def _load(port: int, requests: int) -> Callable[[], object]:
    connections = [socket.create_connection(("127.0.0.1", port)) for _ in range(_CONNECTIONS)]
    request = _request()

    def run() -> None:
        for _ in range(requests // _CONNECTIONS):
            for connection in connections:
                connection.sendall(request)
            for connection in connections:
                _read(connection)
        for connection in connections:
            connection.close()

    return run


@contextmanager
def _bare() -> Iterator[int]:
    command = [sys.executable, "-m", "tests.benchmarks._bare_app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.terminate()


def main(*, big: bool = False) -> None:
    """Print the table."""
    requests = _BIG_REQUESTS if big else _REQUESTS
    versions = ", ".join(map(_measure.version, ("starlette", "uvicorn", "uvloop", "httptools")))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        live = stack.enter_context(served(folder))
        bare = stack.enter_context(_bare())
        contestants = [
            _measure.Contestant(
                "Tollgate, tokenize", partial(_load, live.port, requests), requests
            ),
            _measure.Contestant(
                "bare Starlette, echo", partial(_load, bare, requests), requests, versions
            ),
        ]
        timings = _measure.interleave(contestants, rounds=5)
    _measure.show(f"One-string tokenize over HTTP, {_CONNECTIONS} connections", "requests", timings)
    print("goal: ours / it at least 0.5")
