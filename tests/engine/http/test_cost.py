"""What one caller may cost the others: work in the worker thread, memory in one budget."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from engine import Engine, Request
from engine.http.app import HttpApplication
from engine.http.protocol import HEADS_LIMIT_BYTES
from engine.http.requests import OWNER_LIMIT_BYTES, Watch
from engine.http.system import SystemWorld
from engine.messages import Problem
from tests.engine.http.live import KEY, served


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/keys", {"algorithm": "RSA-OAEP-256"}),
        ("POST", "/detokenize", ["{{ TOKEN }}"]),
        ("PATCH", "/tokens/TOKEN", {"metadata": {"a": "b"}}),
        ("POST", "/reactors/REACTOR/react", {"args": "{{ TOKEN }}"}),
    ],
)
def test_what_costs_much_runs_in_the_worker(method: str, path: str, body: Any) -> None:
    """D-BODY-COST: judged by what is read and made too, however small the request is."""
    names: list[str] = []

    class World(SystemWorld):
        async def apart(self, work: Any, whose: object) -> Any:
            def noted() -> Any:
                names.append(threading.current_thread().name)
                return work()

            return await super().apart(noted, whose)

    async def asked() -> int:
        rights = [f"token:{verb}" for verb in ("create", "read", "use", "update")]
        rights += ["encryption-key:create", "reactor:create", "reactor:invoke"]
        with Engine(world=World()) as engine:
            key = engine.key_for(engine.create_tenant("Acme"), *rights)

            async def ask(method: str, path: str, body: Any) -> Any:
                request = Request(method, path, ip="192.0.2.1", key=key, body=body)
                return await engine.submit(request)

            token = (await ask("POST", "/tokenize", ["x"])).body[0]
            reactor = await ask("POST", "/reactors", {"name": "r", "code": "c"})
            names.clear()
            text = [part.replace("TOKEN", token) for part in (path, str(body))]
            place = text[0].replace("REACTOR", reactor.body["id"])
            sent = body if "TOKEN" not in str(body) else _with(body, token)
            return int((await ask(method, place, sent)).status)

    assert asyncio.run(asked()) in {200, 201}
    assert names
    assert all(name.startswith("tollgate-apart") for name in names)


def _with(body: Any, token: str) -> Any:
    text = f"{{{{ {token} }}}}"
    return {"args": text} if isinstance(body, dict) else [text]


def test_an_answer_without_room_is_503() -> None:
    """D-SIZE: answers count in the budget of bodies, until their client has taken them."""
    engine = Engine(seed=1)
    key = engine.key_for(engine.create_tenant("Acme"), "token:create", "token:read")
    application = HttpApplication(engine)

    async def asked() -> list[int]:
        transport = httpx.ASGITransport(application)
        headers = {"SVC-API-KEY": key}
        async with httpx.AsyncClient(
            transport=transport, base_url="http://here", headers=headers
        ) as client:
            token = (await client.post("/tokenize", json=["x" * 100_000])).json()[0]
            body = [f"{{{{ {token} }}}}"]
            statuses = [(await client.post("/detokenize", json=body)).status_code]
            with application.watch.answering(OWNER_LIMIT_BYTES, str(key)):
                statuses.append((await client.post("/detokenize", json=body)).status_code)
            statuses.append((await client.post("/detokenize", json=body)).status_code)
            return statuses

    assert asyncio.run(asked()) == [200, 503, 200]
    assert application.watch.held_bytes == 0


def test_one_callers_answers_leave_room_for_others() -> None:
    watch = Watch()
    with watch.answering(OWNER_LIMIT_BYTES, "one"):
        with pytest.raises(Problem, match="too many large bodies"):
            watch.check_room(1, "one")
        watch.check_room(1, "another")
    watch.check_room(1, "one")


@pytest.mark.slow
def test_unfinished_heads_hold_no_more_than_their_budget(tmp_path: Path) -> None:
    """14,500 heads without a key held 1.3 GB; what is beyond the budget gets 503."""
    size, count = 60_000, 1_400
    assert size * count > HEADS_LIMIT_BYTES
    with served(tmp_path) as live:
        before_bytes = live.memory_bytes()
        address = httpx.URL(live.url)
        connections = []
        for _ in range(count):
            connection = socket.create_connection((address.host, address.port or 80))
            connections.append(connection)
            try:
                connection.sendall(b"GET / HTTP/1.1\r\nX-Endless: " + b"x" * size)
            except OSError:  # refused already
                continue
        time.sleep(1)
        assert live.memory_bytes() - before_bytes < 3 * HEADS_LIMIT_BYTES
        assert live.ask("GET", "/nothing", key=KEY).status_code == 404
        for connection in connections:
            connection.close()
