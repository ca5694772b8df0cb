"""One connection, fed by hand: the short way of small requests, and connections that are idle."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

import engine as package
from engine import Engine, Request, Response
from engine.http.app import HttpApplication
from engine.http.protocol import Connections, HttpProtocol
from engine.messages import Json
from engine.store import SqliteStore
from tests.engine.deployment import CARD

IDLE_S = 75


class _Wire:
    """A transport that keeps what was written."""

    def __init__(self) -> None:
        self.sent = b""
        self.closed = False
        self.is_read = True

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.sent += b"".join(parts)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 5000), "sockname": ("192.0.2.2", 80)}.get(name, default)

    def close(self) -> None:
        self.closed = True

    def is_closing(self) -> bool:
        return self.closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        self.is_read = True

    def can_write_eof(self) -> bool:
        return False


class _Peer:
    """A client at one end of a connection, and the service, with one key, at the other."""

    def __init__(self, kind: type[HttpToolsProtocol], **engine: Any) -> None:
        engine = engine or {"seed": 7}
        service = Engine(**engine)
        tenant = service.create_tenant("Acme")
        app = service.create_application(tenant, "shop", grants=[("/", {"token:create"})])
        self.key = str(service.create_key(app))
        service.erase()  # as a server's timer does, instead of every request
        config = uvicorn.Config(
            HttpApplication(service),
            http=kind,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            proxy_headers=False,
            timeout_keep_alive=IDLE_S,
        )
        config.load()
        state = ServerState()
        state.default_headers = [(b"date", b"now")]
        self.wire = _Wire()
        self.protocol = kind(config, state, {})
        self.protocol.connection_made(self.wire)  # type: ignore[arg-type] # reason: what is used of one

    async def ask(self, *pieces: bytes) -> bytes:
        """Send a request in pieces, each after the one before was looked at; return the answer."""
        self.wire.sent = b""
        for piece in pieces:
            self.protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(50):
            await asyncio.sleep(0)
        return self.wire.sent

    def post(self, body: object, *more: str, method: str = "POST") -> bytes:
        content = json.dumps(body).encode()
        lines = (
            f"{method} /tokenize HTTP/1.1",
            "host: service",
            f"svc-api-key: {self.key}",
            "x-request-id: mine",
            "content-type: application/json",
            f"content-length: {len(content)}",
            *more,
        )
        return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def _ours(connections: Connections) -> type[HttpProtocol]:
    return type("_Protocol", (HttpProtocol,), {"connections_of_server": connections})


def _parts(answer: bytes) -> tuple[bytes, list[bytes], bytes]:
    head, _, content = answer.partition(b"\r\n\r\n")
    status, *fields = head.split(b"\r\n")
    return status, sorted(fields), content


ASKED: dict[str, Callable[[_Peer], bytes]] = {
    "created": lambda peer: peer.post({"name": "Ada"}),
    "a scalar": lambda peer: peer.post("Ada"),
    "a fault": lambda peer: peer.post({"name": 1}),
    "no such method": lambda peer: peer.post({}, method="PUT"),
    "closing": lambda peer: peer.post({"name": "Ada"}, "connection: close"),
    "head": lambda peer: b"HEAD /tokens HTTP/1.1\r\nhost: service\r\nx-request-id: mine\r\n\r\n",
}


@pytest.mark.parametrize("what", ASKED)
def test_the_short_way_sends_what_the_long_way_sends(what: str) -> None:
    """AUTH-HEADER, TOK-JSON: with uvicorn's own protocol there is only the long way."""

    async def both() -> tuple[bytes, bytes]:
        short, long = _Peer(_ours(Connections(9))), _Peer(HttpToolsProtocol)
        return await short.ask(ASKED[what](short)), await long.ask(ASKED[what](long))

    short, long = asyncio.run(both())
    assert _parts(short)[0::2] == _parts(long)[0::2]
    assert _parts(short)[1] == _parts(long)[1]


def test_a_body_in_pieces_is_received_and_two_requests_in_one_piece_are_answered_in_order() -> None:
    async def talk() -> tuple[bytes, bytes]:
        peer = _Peer(_ours(Connections(9)))
        whole = peer.post({"name": "Ada"})
        pieces = await peer.ask(whole[:-9], whole[-9:-3], whole[-3:])
        return pieces, await peer.ask(whole + peer.post(["Bob"]))

    pieces, two = asyncio.run(talk())
    assert pieces.startswith(b"HTTP/1.1 200 ")
    assert two.count(b"HTTP/1.1 200 ") == 2
    assert two.index(b'{"name":') < two.index(b'["')


def test_no_more_is_read_before_all_that_came_is_answered() -> None:
    async def most_waiting() -> int:
        peer, most = _Peer(_ours(Connections(9))), 0
        for _ in range(100):
            if peer.wire.is_read:
                peer.protocol.data_received(peer.post("Ada") * 8)
            most = max(most, len(peer.protocol.pipeline))
            await asyncio.sleep(0)
        assert peer.wire.sent.count(b"HTTP/1.1 400") > 16  # a body that is a bare string
        return most

    assert asyncio.run(most_waiting()) == 7


def test_a_head_is_not_late_while_nothing_is_read() -> None:
    async def answers() -> bytes:
        connections = Connections(9)
        peer = _Peer(_ours(connections))
        one = peer.post(["Ada"])
        peer.protocol.data_received(one * 2 + one[:9])
        connections.tick(asyncio.get_running_loop().time() + 11)
        return await peer.ask(one[9:])

    assert asyncio.run(answers()).count(b"HTTP/1.1 200") == 3


@pytest.mark.parametrize("count", [33, 34, 500])
def test_a_connection_ends_after_more_requests_than_may_wait(count: int) -> None:
    async def answers() -> tuple[int, bool]:
        peer = _Peer(_ours(Connections(9)))
        peer.protocol.data_received(peer.post(["Ada"]) * count)
        for _ in range(200):
            await asyncio.sleep(0)
        assert peer.wire.sent.count(b"connection: close") == peer.wire.closed
        return peer.wire.sent.count(b"HTTP/1.1 200"), peer.wire.closed

    assert asyncio.run(answers()) == (33, count > 33)


def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    async def talk() -> list[bool]:
        connections = Connections(9)
        peer = _Peer(_ours(connections))
        closed = []
        for at_s in (1, 2, 2 + IDLE_S, 3 + IDLE_S, 4 + 2 * IDLE_S):
            if at_s != 4 + 2 * IDLE_S:
                await peer.ask(peer.post({"name": "Ada"}))
            connections.tick(at_s)
            closed.append(peer.wire.closed)
        return closed

    assert asyncio.run(talk()) == [False, False, False, False, True]


FIVE_TOKENS: Json = {
    "customer": {"name": "Ada Lovelace", "phones": ["+44 20 7946 0018", "+44 20 7946 0019"]},
    "card": {**CARD, "metadata": {"order": "17"}},
    "note": {"type": "token", "data": "leave at the door", "search_indexes": ["{{ data }}"]},
}


class _Way:
    """The files of the engine that a request passes, and how often one calls into another."""

    def __init__(self) -> None:
        self._root = str(Path(package.__file__).parent)
        self.files: set[str] = set()
        self.changes = 0

    def note(self, frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event != "call" or not file.startswith(self._root):
            return
        caller = frame.f_back
        while caller is not None and not caller.f_code.co_filename.startswith(self._root):
            caller = caller.f_back
        self.files.add(file.removeprefix(self._root))
        self.changes += caller is not None and caller.f_code.co_filename != file


@pytest.mark.parametrize(
    ("body", "is_kept", "files", "changes"),
    [
        ({"name": "Ada"}, False, 23, 44),
        ({"name": "Ada"}, True, 24, 54),
        (FIVE_TOKENS, False, 25, 67),
        (FIVE_TOKENS, True, 27, 80),
    ],
    ids=["one", "one kept", "five", "five kept"],
)
def test_a_tokenize_body_passes_few_files_on_its_way(
    body: Json, is_kept: bool, files: int, changes: int, tmp_path: Path
) -> None:
    """From the socket to the store and back, for a key that was seen before.

    Five tokens may take few calls more than one: what they write goes to the store together.
    """
    kept: dict[str, Any] = {"store": SqliteStore(tmp_path / "store"), "master_key": bytes(32)}
    way = _Way()

    async def talk() -> bytes:
        peer = _Peer(_ours(Connections(9)), **(kept if is_kept else {}))
        for _ in range(5):
            await peer.ask(peer.post(body))
        asked = peer.post(body)
        before = sys.getprofile()
        sys.setprofile(way.note)
        try:
            return await peer.ask(asked)
        finally:
            sys.setprofile(before)

    assert asyncio.run(talk()).startswith(b"HTTP/1.1 200 ")
    assert 10 < len(way.files) <= files, sorted(way.files)
    assert 20 < way.changes <= changes


@pytest.mark.parametrize(
    ("target", "host"),
    [
        ("http://shop.example/tokenize", "shop.example"),
        ("HTTP://ada@shop.example:8080/tokenize?a=/b", "shop.example:8080"),
        ("http://[::1]:80/tokenize", "[::1]:80"),
        ("/tokenize", "service"),
    ],
)
def test_d_host_the_host_of_an_absolute_target_wins_over_the_field(
    monkeypatch: pytest.MonkeyPatch, target: str, host: str
) -> None:
    """D-HOST: RFC 9112, 3.2.2; else the host that is checked is not the one that is asked."""
    hosts: list[str | None] = []

    async def noted(_engine: Engine, request: Request) -> Response:
        hosts.append(request.host)
        return Response(204)

    async def asked() -> None:
        monkeypatch.setattr(Engine, "submit", noted)
        peer = _Peer(_ours(Connections(9)))
        await peer.ask(peer.post({}).replace(b" /tokenize ", f" {target} ".encode()))

    asyncio.run(asked())
    assert hosts == [host]
