"""Children on loopback: the demo, alone or on several nodes behind HAProxy, and a slow proxy.

Each runs in the foreground out of a temporary folder with a configuration made for the test, and
ends by its own process. The configurations are not meant for deployment.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import os
import random
import re
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import pytest

from conformance.target import Target
from engine.cli import KEY_VARIABLE
from tests.children import WITH_US, free_port

__all__ = [
    "await_port",
    "balanced",
    "delaying",
    "demo",
    "program",
    "running",
    "watching",
]

_PATIENCE_S: Final = 60
_CHUNK_BYTES: Final = 65_536
_PATH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


_PAUSE_S: Final = 0.05
_LOOK_S: Final = 0.01


@contextmanager
def watching() -> Iterator[Callable[[str], None]]:
    """Watch the machine; yields what a test calls for that which it could not tell.

    That skips the test where the machine was busy or paused, and fails it on a calm one.
    """
    worst_s = 0.0
    is_over = threading.Event()

    def look() -> None:
        nonlocal worst_s
        while not is_over.is_set():
            began_s = time.monotonic()
            time.sleep(_LOOK_S)
            worst_s = max(worst_s, time.monotonic() - began_s - _LOOK_S)

    def untold(says: str) -> None:
        load, cores = os.getloadavg()[0], os.cpu_count() or 1
        if worst_s < _PAUSE_S and load <= cores:
            pytest.fail(f"not told on a calm machine (load {load:.1f}): {says}")
        pytest.skip(f"load {load:.1f}, a pause of {1000 * worst_s:.0f} ms; not told: {says}")

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield untold
    finally:
        is_over.set()
        thread.join()


def program(name: str) -> str:
    """Return the path of a program; skips the test where it is not installed."""
    found = shutil.which(name, path=_PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


@contextmanager
def running(
    command: Sequence[str], folder: Path, more: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a child until the end of the block; its words go to a file of the folder.

    more: of its environment.
    """
    with (folder / "child.log").open("wb") as log:
        child = subprocess.Popen(
            [*WITH_US, *command],
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            env={**os.environ, **(more or {})},
        )
        try:
            yield child
        finally:
            child.terminate()
            try:
                child.wait(_PATIENCE_S)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def await_port(port: int, child: subprocess.Popen[bytes], folder: Path) -> None:
    """Wait until a child listens; fails the test where it does not."""
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s and child.poll() is None:
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.02)
    said = (folder / "child.log").read_text(errors="replace")[-2000:]
    pytest.fail(f"{child.args!r} does not listen: {said}")


@contextmanager
def demo(folder: Path, limits: str, keys: int = 8) -> Iterator[Target]:
    """Serve the demo in a process of its own with this limit table; gives its target.

    keys: how many each numerous role has.
    """
    folder.mkdir()
    (folder / "limits.toml").write_text(limits)
    options = ["--limits", str(folder / "limits.toml"), "--demo-keys", str(keys)]
    with _serving(folder, options) as found:
        yield found


@contextmanager
def _serving(
    folder: Path, options: Sequence[str], more: Mapping[str, str] | None = None
) -> Iterator[Target]:
    """Serve the demo in a process of its own; gives its target. more: of its environment."""
    target = folder / "target.toml"
    command = [sys.executable, "-m", "engine", "serve", "--demo", "--port", "0"]
    command += ["--write-target", str(target), *options]
    with running(command, folder, more) as child:
        end_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < end_s and child.poll() is None:
            if target.exists() and "[[tenants]]" in target.read_text():
                break
            time.sleep(0.05)
        else:
            said = (folder / "child.log").read_text(errors="replace")[-2000:]
            pytest.fail(f"the demo does not start: {said}")
        found = Target.from_toml(target)
        await_port(_port_of(found), child, folder)
        yield found


@contextmanager
def balanced(
    folder: Path, count: int, limits: str | None = None
) -> Iterator[tuple[Target, Mapping[str, int]]]:
    """Serve the demo in `count` processes behind HAProxy; gives its target, and ports by balance.

    The ports are those of `roundrobin` and of `source`; both lead to the same processes. They share
    no store and no counters, but a master key, and so the texts of all keys. An answer's `X-Node`
    says which process it comes from: `node0` or another. limits: a table instead of the default.
    """
    haproxy = program("haproxy")
    folder.mkdir()
    table = []
    if limits is not None:
        (folder / "limits.toml").write_text(limits)
        table = ["--limits", str(folder / "limits.toml")]
    ports = {balance: free_port() for balance in ("roundrobin", "source")}
    master = {KEY_VARIABLE: base64.b64encode(random.Random(count).randbytes(32)).decode()}
    with ExitStack() as stack:
        targets = []
        for place in range(count):
            own = folder / f"node{place}"
            own.mkdir()
            options = ["--store", str(own / "store.sqlite"), "--trust-forwarded", "127.0.0.0/8"]
            options += table
            targets.append(stack.enter_context(_serving(own, options, master)))
        servers = "".join(
            f"    server node{place} 127.0.0.1:{_port_of(one)}\n"
            for place, one in enumerate(targets)
        )
        fronts = "".join(
            f"""\
frontend by_{balance}
    bind 127.0.0.1:{port}
    default_backend all_{balance}
backend all_{balance}
    balance {balance}
    http-response set-header X-Node %s
{servers}"""
            for balance, port in ports.items()
        )
        (folder / "haproxy.cfg").write_text(f"""\
global
    maxconn 2000
    nbthread 1
defaults
    mode http
    option forwardfor
    timeout connect 5s
    timeout client 60s
    timeout server 60s
{fronts}""")
        command = [haproxy, "-db", "-f", str(folder / "haproxy.cfg")]
        child = stack.enter_context(running(command, folder))
        for port in ports.values():
            await_port(port, child, folder)
        yield targets[0], ports


def _port_of(target: Target) -> int:
    port = re.search(r":(\d+)", target.base_url.partition("://")[2])
    assert port is not None, "the demo's URL names a port"
    return int(port[1])


@contextmanager
def delaying(target: Target, most_s: float, seed: int) -> Iterator[int]:
    """Pass bytes on, each way after up to `most_s` seconds by chance; gives the port.

    A connection keeps its order: a later piece never overtakes an earlier one. Connections that
    come from an address of loopback go on from that address.
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="delaying", daemon=True)
    thread.start()
    chance = random.Random(seed)

    async def pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            while piece := await reader.read(_CHUNK_BYTES):
                await asyncio.sleep(chance.uniform(0, most_s))
                writer.write(piece)
                await writer.drain()
        with contextlib.suppress(ConnectionError, RuntimeError):
            writer.close()

    async def closed(writer: asyncio.StreamWriter) -> None:
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    async def both(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            source = writer.get_extra_info("peername")[0]
            there, back = await asyncio.open_connection(
                "127.0.0.1", _port_of(target), local_addr=(source, 0)
            )
            try:
                await asyncio.gather(pass_on(reader, back), pass_on(there, writer))
            finally:
                await closed(back)
        except (ConnectionError, asyncio.CancelledError):
            pass  # the proxy ends, or the server went away, while the connection is open
        finally:
            await closed(writer)

    async def start() -> asyncio.Server:
        return await asyncio.start_server(both, "127.0.0.1", 0, backlog=1024)

    async def stop() -> None:
        server.close()
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await asyncio.sleep(0.01)  # what was closed is gone in the loop's next round

    server = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop).result()
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
