"""What one caller may cost the others: work in the worker thread, memory in one budget."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from starlette.requests import ClientDisconnect

from engine import Engine, Profile, Request
from engine.http.app import HttpApplication
from engine.http.requests import (
    BUDGET_BYTES,
    KEPT_UNREAD_BYTES,
    OWNER_BYTES,
    Body,
    MemoryBudget,
    Reservation,
)
from engine.http.system import SystemWorld
from engine.messages import Problem
from engine.resources.account_updater import batch_lines
from engine.store import SqliteStore, TokenFilter
from engine.world import UNCOUNTED_BYTES, Call, CallAnswer
from tests.engine.http.live import KEY, served
from tests.engine.store._records import TENANT, token


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
            other = Reservation(application.budget, str(key))
            other.resize(OWNER_BYTES)
            statuses.append((await client.post("/detokenize", json=body)).status_code)
            other.resize(0)
            statuses.append((await client.post("/detokenize", json=body)).status_code)
            return statuses

    assert asyncio.run(asked()) == [200, 503, 200]
    assert application.budget.held_bytes == 0


@pytest.mark.parametrize(
    ("path", "room", "status"),
    [
        ("/detokenize", 0, 200),
        ("/detokenize", 150_000, 503),
        ("/reactors/REACTOR/react", 0, 200),
        ("/reactors/REACTOR/react", 150_000, 503),
        ("/proxy", 0, 200),
        ("/proxy", 150_000, 503),
    ],
)
def test_what_a_request_reads_is_reserved_before_it_is_read(
    path: str, room: int, status: int
) -> None:
    """A request of 250 bytes held 20 MB: judged by what is read and answered from outside too."""
    size = 100_000

    class World(SystemWorld):
        async def call_destination(self, call: Call, timeout_ns: int) -> CallAnswer:
            assert len(call.body) > size
            return CallAnswer(200, {}, b"")

    async def asked() -> tuple[int, int, int]:
        rights = ["token:create", "token:read", "token:use"]
        rights += [
            f"{kind}:{verb}" for kind in ("reactor", "proxy") for verb in ("create", "invoke")
        ]
        engine = Engine(world=World())
        key = engine.key_for(engine.create_tenant("Acme"), *rights)
        application = HttpApplication(engine)
        budget, headers = application.budget, {"SVC-API-KEY": str(key)}
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://here", headers=headers
        ) as client:
            token = (await client.post("/tokenize", json=["x" * size])).json()[0]
            made = await client.post("/reactors", json={"name": "r", "code": "c"})
            body: Any = {"name": "p", "destination_url": "https://a.example", "require_auth": True}
            proxy = (await client.post("/proxies", json=body)).json()
            budget.limit_bytes = room or budget.limit_bytes
            body = [f"{{{{ {token} }}}}", f"{{{{ {token} }}}}"]
            if "react" in path:
                body = {"args": body}
            place = path.replace("REACTOR", made.json()["id"])
            more = {"SVC-PROXY-KEY": proxy["key"]} if path == "/proxy" else {}
            first = (await client.post(place, json=body, headers=more)).status_code
            budget.limit_bytes = 10**9
            second = (await client.post(place, json=body, headers=more)).status_code
            return first, second, budget.held_bytes

    assert asyncio.run(asked()) == (status, 200, 0)


def test_the_result_of_a_batch_file_is_reserved() -> None:
    """ACC-FILE: a file of 30 MB makes 70 MB; without room its job stays open, and is done later."""
    rows = 20_000
    at_once = Profile().replace(account_updater={"job_base_ns": 0, "job_row_ns": 0})

    async def asked() -> tuple[list[int], bytes, int]:
        engine = Engine(world=SystemWorld(), profile=at_once)
        rights = ("account-updater:job:create", "account-updater:job:read")
        key = engine.key_for(engine.create_tenant("Acme"), *rights)
        application = HttpApplication(engine)
        budget, headers = application.budget, {"SVC-API-KEY": str(key)}
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://here", headers=headers
        ) as client:
            job = (await client.post("/account-updater/jobs")).json()
            file = b"".join(batch_lines((str(uuid4()), None, None) for _ in range(rows)))
            budget.limit_bytes = len(file) + 100_000
            statuses = [(await client.put(job["upload_url"], content=file)).status_code]
            budget.limit_bytes = 10**9
            statuses.append((await client.put(job["upload_url"], content=file)).status_code)
            result = await client.get(f"/account-updater/jobs/{job['id']}/result")
            return [*statuses, result.status_code], result.content, budget.held_bytes

    statuses, content, held_bytes = asyncio.run(asked())
    assert statuses == [503, 204, 200]
    assert content.count(b",unknown_token\n") == rows
    assert held_bytes == 0


def test_a_list_of_large_tokens_reads_none_of_their_data(tmp_path: Path) -> None:
    """A request of 80 bytes read 390 MB, and others waited: a page holds no plaintext."""
    other = b"x" * 2_000_000
    with SqliteStore(tmp_path / "a.db") as store:
        with store.transaction():
            store.add_tokens([token(number, sealed_data=other) for number in range(30)])
        tracemalloc.start()
        with store.transaction(write=False):
            page = store.find_tokens(TENANT, TokenFilter(), size=100, has_data=False)
            most_bytes = tracemalloc.get_traced_memory()[1]
            whole = store.find_tokens(TENANT, TokenFilter(), size=1)
        tracemalloc.stop()
    assert [each.sealed_data for each in page] == [b""] * 30
    assert most_bytes < len(other)
    assert whole[0].sealed_data == other


@pytest.mark.slow
def test_unfinished_heads_hold_no_more_than_their_budget(tmp_path: Path) -> None:
    """14,500 heads without a key held 1.3 GB; what is beyond the budget gets 503."""
    size, count = 60_000, 2_000
    assert size * count > OWNER_BYTES
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
        assert live.memory_bytes() - before_bytes < 3 * OWNER_BYTES
        assert live.ask("GET", "/nothing", key=KEY).status_code == 404
        for connection in connections:
            connection.close()


# --- bodies in pieces ----------------------------------------------------------------------------


class _Sender:
    """Gives the pieces of a body, and says how many were taken."""

    def __init__(self, *pieces: bytes | None) -> None:
        self._pieces = pieces
        self.taken = 0

    async def __call__(self) -> Mapping[str, Any]:
        piece = self._pieces[self.taken]
        self.taken += 1
        if piece is None:
            return {"type": "http.disconnect"}
        is_last = self.taken == len(self._pieces)
        return {"type": "http.request", "body": piece, "more_body": not is_last}


def _read(body: Body, limit_bytes: int) -> bytes | None:
    return asyncio.run(body.read(limit_bytes))


@pytest.mark.parametrize(
    ("pieces", "limit", "found", "taken"),
    [
        ((b"",), 0, b"", 1),
        ((b"abc",), 3, b"abc", 1),
        ((b"abc",), 2, None, 1),
        ((b"ab", b"c"), 3, b"abc", 2),
        ((b"ab", b"c"), 2, None, 2),
        ((b"ab", b"c", b"d"), 1, None, 1),
        ((b"ab", b"", b""), 2, b"ab", 3),
    ],
)
def test_a_body_is_read_no_further_than_its_limit(
    pieces: tuple[bytes, ...], limit: int, found: bytes | None, taken: int
) -> None:
    """D-SIZE: the bound itself fits."""
    sender = _Sender(*pieces)
    body = Body(sender, None, Reservation(MemoryBudget()))
    assert _read(body, limit) == found
    assert sender.taken == taken
    assert body.is_whole == (taken == len(pieces))


def test_a_body_that_is_announced_too_large_is_not_read_at_all() -> None:
    sender = _Sender(b"abc")
    assert _read(Body(sender, 4, Reservation(MemoryBudget())), 3) is None
    assert sender.taken == 0
    assert _read(Body(sender, 3, Reservation(MemoryBudget())), 3) == b"abc"


def test_who_goes_away_in_the_middle_needs_no_answer() -> None:
    with pytest.raises(ClientDisconnect):
        _read(Body(_Sender(b"ab", None), None, Reservation(MemoryBudget())), 9)


def test_a_connection_ends_with_too_much_unread_body() -> None:
    held = Reservation(MemoryBudget())
    assert not Body(_Sender(), KEPT_UNREAD_BYTES, held).ends_connection
    assert Body(_Sender(), KEPT_UNREAD_BYTES + 1, held).ends_connection
    assert Body(_Sender(), None, held).ends_connection
    assert Body(_Sender(), 1, held, is_late=True).ends_connection
    read = Body(_Sender(b"a"), None, held)
    assert _read(read, 1) == b"a"
    assert not read.ends_connection


def test_small_bodies_hold_nothing_and_large_ones_until_they_are_released() -> None:
    budget = MemoryBudget()
    small = Body(_Sender(b"x" * UNCOUNTED_BYTES, b""), None, Reservation(budget))
    _read(small, 10**6)
    assert budget.held_bytes == 0
    held = Reservation(budget, "a")
    large = Body(_Sender(b"x" * UNCOUNTED_BYTES, b"x", b"yy", b""), None, held)
    _read(large, 10**6)
    assert held.size_bytes == budget.held_bytes == UNCOUNTED_BYTES + 3
    held.resize(0)
    assert budget.held_bytes == 0
    Reservation(budget, "a").resize(OWNER_BYTES)


def _is_refused(budget: MemoryBudget, size_bytes: int, owner: str) -> bool:
    try:
        Reservation(budget, owner).check(size_bytes)
    except Problem as problem:
        return (problem.status, problem.headers) == (503, {"Retry-After": "1"})
    return False


def test_one_caller_may_hold_a_share_and_all_together_the_whole() -> None:
    budget = MemoryBudget()
    first, second = Reservation(budget, "a"), Reservation(budget, "a")
    first.resize(OWNER_BYTES - 5)
    assert not _is_refused(budget, 5, "a")
    assert _is_refused(budget, 6, "a")
    second.grow(5)
    assert _is_refused(budget, 1, "a")
    for owner in "bc":
        Reservation(budget, owner).resize(OWNER_BYTES)
    assert budget.held_bytes == BUDGET_BYTES == 3 * OWNER_BYTES
    assert not _is_refused(budget, 0, "e")
    assert _is_refused(budget, 1, "e")
    second.resize(0)
    assert not _is_refused(budget, 5, "e")
    assert not _is_refused(budget, 5, "a")
    first.resize(0)
    assert not _is_refused(budget, OWNER_BYTES, "a")


def test_a_caller_is_the_key_where_one_is_asked_for_and_else_the_address() -> None:
    """An unknown key buys nobody a share of its own."""
    budget = MemoryBudget()
    for operation, owner in (("tokenize", "k"), ("invoke_proxy", "192.0.2.1"), (None, "192.0.2.1")):
        request = Request("POST", "/", ip="192.0.2.1", key="k")
        request.operation = operation
        held = Reservation(budget, request=request)
        held.resize(1)
        assert held.owner == owner


def test_a_large_announced_body_needs_room_before_it_is_read() -> None:
    sender, held = _Sender(b"abc"), Reservation(MemoryBudget(UNCOUNTED_BYTES))
    with pytest.raises(Problem, match="holds too much"):
        _read(Body(sender, UNCOUNTED_BYTES + 1, held), 10**6)
    assert sender.taken == 0
    assert _read(Body(sender, UNCOUNTED_BYTES, held), 10**6) == b"abc"
