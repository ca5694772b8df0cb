"""A known-bad deployment over real HTTP: its engine behind the real server, on loopback.

It runs in a thread of this process, with the system's clock and the demo's tenants and keys.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import uvicorn

from conformance.faults.registry import Fault
from conformance.faults.trial import SEED, Trial, judged
from conformance.runner.registry import all_checks, checks_of
from conformance.runner.runner import Options, Run
from conformance.target import Target
from engine import Engine
from engine.http.demo import demo_lines, write_target
from engine.http.protocol import Connections, HttpProtocol
from engine.http.server import bind, make_application
from engine.http.system import SystemWorld

__all__ = ["served", "try_over_http"]

_DESTINATION = "https://destination.example"
_MOST_CONNECTIONS = 500
_START_S = 20


@contextmanager
def served(make: Callable[..., Engine] = Engine, *, keys_a_role: int = 8) -> Iterator[Target]:
    """Serve an engine while the block runs; gives the target that describes it."""
    engine = make(world=SystemWorld())
    lines = list(demo_lines(engine, b"over http" * 4, keys_a_role, _DESTINATION))
    bound = bind("127.0.0.1", 0)
    protocol = type(
        "_Protocol", (HttpProtocol,), {"connections_of_server": Connections(_MOST_CONNECTIONS)}
    )
    server = uvicorn.Server(
        uvicorn.Config(
            make_application(engine),
            http=protocol,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
        )
    )
    thread = threading.Thread(
        target=lambda: asyncio.run(server.serve(sockets=[bound])), name="known-bad", daemon=True
    )
    thread.start()
    try:
        end_s = time.monotonic() + _START_S
        while not server.started and thread.is_alive() and time.monotonic() < end_s:
            time.sleep(0.01)
        assert server.started, "the server must start"
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "target.toml"
            write_target(file, url, engine.profile.http.key_header, lines)
            target = Target.from_toml(file)
        yield target
    finally:
        server.should_exit = True
        thread.join(_START_S)
        bound.close()
        engine.close()


def try_over_http(fault: Fault, *, generated: bool = True) -> Trial:
    """Put one known-bad deployment before its clause's checks, over real HTTP and in real time.

    generated: with the schema layer's checks, which run over HTTP only.
    """
    all_checks()
    began = time.perf_counter()
    ids = [check.id for check in checks_of([fault.clause])]
    checks = tuple(one for one in ids if generated or not one.startswith("schema."))
    with served(fault.engine) as target:
        run = Run(target, Options(checks=checks, select=(fault.clause,), seed=SEED))
        run.execute()
    own = [one for one in run.findings if one.clause == fault.clause]
    return judged(fault, own, time.perf_counter() - began)
