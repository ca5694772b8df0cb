"""How much of a bare framework's rate the service keeps: one-string tokenize over loopback.

Both run on uvicorn with uvloop and httptools, one worker each, the service with the memory store
and all limits of the default table in force at rates that are not reached. The client is one loop
over blocking sockets, cheap enough that the server is what is measured. Two tables: by the wall
clock, and by the processor time of the server's process, which others on the machine disturb less.

Then the start: the median wait of each of the first seconds after the server's last line, against
that of a later second, with 64 connections that ask all the time.
"""

import json
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from tests.benchmarks import _measure
from tests.engine.http.live import KEY, served

_CONNECTIONS: Final = 32
_REQUESTS: Final = 16_000
_BIG_REQUESTS: Final = 160_000
_START_CONNECTIONS: Final = 64
_START_SECONDS: Final = 8
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


def _processor_ns(pid: int) -> int:
    """Return the time that a process had the processor, all its threads together."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks)


def _medians_ms(port: int) -> list[float]:
    """Return the median wait of each second from now on."""
    with ExitStack() as stack:
        connections = [
            stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            for _ in range(_START_CONNECTIONS)
        ]
        request, start_s = _request(), time.perf_counter()
        waits: list[list[float]] = [[] for _ in range(_START_SECONDS)]
        while (now_s := time.perf_counter() - start_s) < _START_SECONDS:
            sent_s = []
            for connection in connections:
                sent_s.append(time.perf_counter())
                connection.sendall(request)
            for connection, at_s in zip(connections, sent_s, strict=True):
                _read(connection)
                waits[int(now_s)].append(1e3 * (time.perf_counter() - at_s))
    return [statistics.median(second) if second else float("nan") for second in waits]


def _show_start(folder: Path) -> None:
    with served(folder) as live:
        medians = _medians_ms(live.port)
    shown = ", ".join(f"{median:.2f}" for median in medians)
    print(f"\nMedian wait in each second since the start, {_START_CONNECTIONS} connections")
    print(f"in ms: {shown}")
    later_ms = statistics.median(medians[_START_SECONDS // 2 :])
    print(f"first second / later ones: {medians[0] / later_ms:.2f}; goal: at most 1.5")


@contextmanager
def _bare() -> Iterator[tuple[int, int]]:
    """Yield port and process."""
    command = [sys.executable, "-m", "tests.benchmarks._bare_app"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline()), process.pid
        finally:
            process.terminate()


def main(*, big: bool = False) -> None:
    """Print the table."""
    requests = _BIG_REQUESTS if big else _REQUESTS
    versions = ", ".join(map(_measure.version, ("starlette", "uvicorn", "uvloop", "httptools")))
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        live = stack.enter_context(served(folder))
        bare, bare_pid = stack.enter_context(_bare())
        ours = _measure.Contestant(
            "Tollgate, tokenize", partial(_load, live.port, requests), requests
        )
        theirs = _measure.Contestant(
            "bare Starlette, echo", partial(_load, bare, requests), requests, versions
        )
        by_wall = _measure.interleave([ours, theirs], rounds=5)
        by_processor = _measure.interleave(
            [
                replace(ours, clock_ns=partial(_processor_ns, live.process.pid)),
                replace(theirs, clock_ns=partial(_processor_ns, bare_pid)),
            ],
            rounds=5,
        )
        title = f"One-string tokenize over HTTP, {_CONNECTIONS} connections"
        _measure.show(title, "requests", by_wall)
        _measure.show(f"{title}: the server's process", "requests", by_processor)
        print("goal: ours / it at least 0.5")
        _show_start(folder)
