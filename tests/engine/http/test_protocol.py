"""Connections: fed by hand, idle, and those of hostile, broken and slow senders and readers."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any, Final, TypeAlias

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


# --- over sockets --------------------------------------------------------------------------------


Step: TypeAlias = bytes | float | str


class _Loop(asyncio.SelectorEventLoop):
    """An event loop whose time moves only when told."""

    now_s = 1_000.0

    def time(self) -> float:
        return self.now_s


class _Noted:
    """A transport that notes what is done with it."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.is_over = False
        self.unsent_bytes = 0

    def write(self, data: bytes) -> None:
        while data:
            head, _, rest = data.partition(b"\r\n\r\n")
            status, *lines = head.decode("latin-1").split("\r\n")
            fields = dict(line.split(": ", 1) for line in lines)
            size = int(fields.get("content-length", 0))
            content, data = rest[:size], rest[size:]
            said = json.loads(content) if content else None
            words = [status.split(" ")[1]]
            if isinstance(said, dict):
                words.append(said.get("detail", "with a body"))
            words += [f"({name}: {fields[name]})" for name in _SHOWN if name in fields]
            self.events.append(" ".join(words))

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.write(b"".join(parts))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": ("192.0.2.1", 5000), "sockname": ("192.0.2.2", 80)}.get(name, default)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.events.append("no more is sent")

    def close(self) -> None:
        self.events.append("closed")
        self.is_over = True

    def abort(self) -> None:
        self.events.append("aborted")
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def get_write_buffer_size(self) -> int:
        return self.unsent_bytes

    def pause_reading(self) -> None:
        """Nothing is read here."""

    resume_reading = pause_reading


_KEY_SIZE: Final = len("key_prod_us_pvt_") + 22
_SHOWN: Final = ("connection", "retry-after", "allow")


def _talk(*steps: Step, limit: int = 9, others: int = 0) -> list[str]:
    """Return what happens on a connection in each step, the first of which is that it is made.

    Bytes are received, numbers let so many seconds pass, `eof` ends what the peer sends, and
    `unsent N` says that N bytes wait for the peer to read them.
    """
    loop = _Loop()
    try:
        return loop.run_until_complete(_session(loop, steps, limit, others))
    finally:
        loop.close()


async def _session(loop: _Loop, steps: tuple[Step, ...], limit: int, others: int) -> list[str]:
    service = Engine(seed=7)
    key = str(service.key_for(service.create_tenant("Acme"), "token:create", "token:read"))
    service.erase()
    application = HttpApplication(service)
    connections = Connections(limit)
    kind = type("_Protocol", (HttpProtocol,), {"connections_of_server": connections})
    config = uvicorn.Config(
        application,
        http=kind,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        timeout_keep_alive=75,
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"now")]
    for _ in range(others):
        kind(config, state, {}).connection_made(_Noted())
    wire, protocol = _Noted(), kind(config, state, {})
    protocol.connection_made(wire)
    happened = [", ".join(wire.events)]
    for step in steps:
        wire.events = []
        if isinstance(step, bytes):
            protocol.data_received(step.replace(b"KEY", key.encode()))
        elif step == "eof":
            protocol.eof_received()
        elif isinstance(step, str):
            wire.unsent_bytes = int(step.removeprefix("unsent "))
        else:
            loop.now_s += step
            connections.tick(loop.now_s)
        for _ in range(30):
            await asyncio.sleep(0)
        happened.append(", ".join(wire.events))
    protocol.connection_lost(None)
    await asyncio.gather(*state.tasks)
    return happened


def _head(
    *lines: str, first: str = "POST /tokenize HTTP/1.1", host: str = "host: service"
) -> bytes:
    fields = (
        first,
        *([host] if host else []),
        "svc-api-key: KEY",
        "content-type: application/json",
    )
    return "\r\n".join((*fields, *lines)).encode() + b"\r\n\r\n"


def _post(content: bytes, *lines: str, **more: str) -> bytes:
    return _head(f"content-length: {len(content)}", *lines, **more) + content


ADA: Final = b'["Ada"]'
TOKENS: Final = "GET /tokens HTTP/1.1"
CLOSE: Final = " (connection: close)"
ENDS: Final = f"{CLOSE}, no more is sent"
NO_HTTP: Final = f"400 The request is not HTTP/1.1.{ENDS}"
SLOW: Final = f"400 The head of the request came too slowly.{ENDS}"
TOO_LARGE: Final = f"413 The body must hold at most 4000000 bytes.{ENDS}"
ONE_HOST: Final = f"400 The head of the request must hold one Host.{ENDS}"
NO_CODING: Final = f"400 The transfer coding of a request must be chunked, and nothing else.{ENDS}"
TOO_MUCH: Final = f"431 The head of the request holds too much.{ENDS}"
LATE: Final = f"400 The body came too slowly.{ENDS}"
LARGE: Final = _head("content-length: 5000000")
ASKS_UNKNOWN: Final = _head("content-length: 7").replace(b"KEY", b"x")
UNKNOWN: Final = "401 A known API key is needed in SVC-API-KEY."
CHUNKED: Final = b"7\r\n" + ADA + b"\r\n0\r\n"


def _of_fields(count: int) -> bytes:
    """Return a request whose head has so many fields."""
    return _head(*(f"x-{place}: 1" for place in range(count - 3)), first=TOKENS)


def _of_size(size: int) -> bytes:
    """Return a request whose header fields take so many bytes, each with its four separators."""
    fields = _head("x: ", first=TOKENS).partition(b"\r\n")[2]
    rest = len(fields) - len(b"\r\n") - len(b"KEY") + _KEY_SIZE
    return _head("x: " + "y" * (size - rest), first=TOKENS)


SESSIONS: Final[dict[str, tuple[tuple[Step, ...], list[str]]]] = {
    # heads that come slowly, and connections on which nothing comes
    "head slow": ((b"POST /to", 10, 0.5, 2, 0.5), ["", "", SLOW, "", "closed"]),
    "head fed": (
        (b"POST /to", 5, b"kenize", 5.5, b"x" * 10, "eof"),
        ["", "", "", SLOW, "", "closed"],
    ),
    "nothing": ((10, 0.5), ["", "closed"]),
    # heads that hold too much
    "100 fields": ((_of_fields(100),), ["200 with a body"]),
    "101 fields": ((_of_fields(101),), [TOO_MUCH]),
    "64 kB of fields": ((_of_size(65_536),), ["200 with a body"]),
    "a byte more": ((_of_size(65_537),), [TOO_MUCH]),
    "a head without end": (
        (b"GET /" + b"y" * 65_531, b"y", b"y"),
        ["", f"431 The head of a request must hold at most 65536 bytes.{ENDS}", ""],
    ),
    # what is no HTTP/1.1, or could be read in two ways
    "bytes": ((b"\x16\x03\x01\x02\r\n\r\n",), [NO_HTTP]),
    "HTTP/2": ((b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",), [NO_HTTP]),
    "no host": ((_head(host="", first=TOKENS),), [ONE_HOST]),
    "two hosts": ((_head("host: b", first=TOKENS),), [ONE_HOST]),
    "no host in 1.0": (
        (_head(host="", first="GET /tokens HTTP/1.0"),),
        [f"200 with a body{CLOSE}, closed"],
    ),
    "two hosts in 1.0": ((_head("host: b", first="GET /tokens HTTP/1.0"),), [ONE_HOST]),
    "two codings": ((_head("transfer-encoding: gzip, chunked"),), [NO_CODING]),
    "chunks in 1.0": (
        (_head("transfer-encoding: chunked", first="POST /tokenize HTTP/1.0"),),
        [NO_CODING],
    ),
    "chunks": ((_head("transfer-encoding: Chunked") + CHUNKED + b"\r\n",), ["200"]),
    "a broken chunk": (
        (_head("transfer-encoding: chunked"), b"7\r\n" + ADA[:3], b"nothing"),
        ["", "", NO_HTTP],
    ),
    # D-FIELD-VALUE: blanks around a value and trailers are no part of the fields
    "blanks": ((_post(ADA).replace(b"KEY", b"\t KEY \t "),), ["200"]),
    "trailers": (
        (_head("transfer-encoding: chunked") + CHUNKED + b"svc-api-key: x\r\nhost: y\r\n\r\n",),
        ["200"],
    ),
    # methods that the parser does not know
    "a method": (
        (_head(first="BREW /tokenize HTTP/1.1"), _post(ADA)),
        ["405 BREW is not allowed at this path. (allow: OPTIONS, POST)", "200"],
    ),
    "a long method": (
        (_head(first=f"{'B' * 32} /tokenize HTTP/1.1"),),
        ["405 This method is not allowed at this path. (allow: OPTIONS, POST)"],
    ),
    "no method": ((_head(first=f"{'B' * 33} /tokenize HTTP/1.1"),), [NO_HTTP]),
    # bodies that come slowly: 20 s, and a second more for each 1,000 bytes
    "body slow": (
        (_head("content-length: 4000"), b" " * 2_000, 20, 1.5, 0.5),
        ["", "", "", "", LATE],
    ),
    "no body": ((_head("content-length: 4000"), 19.5, 0.5, 2.5), ["", "", LATE, "closed"]),
    "wanted": ((_head("content-length: 7", "expect: 100-continue"), ADA), ["100", "200"]),
    # bodies that are refused: the rest is received for a while, so that the sender gets the answer
    "too large": ((LARGE, b"x" * 1_000, 2, 0.5), [TOO_LARGE, "", "", "closed"]),
    "sent on": ((LARGE, *(b"x", 2) * 31), [TOO_LARGE, *[""] * 61, "closed"]),
    "sent to the end": ((LARGE, b"x", "eof"), [TOO_LARGE, "", "closed"]),
    "100 MB more": ((LARGE, b"x" * 99_999_999, b"x", b"x"), [TOO_LARGE, "", "", "closed"]),
    "16 MB of nothing": (
        (b"\x16\r\n\r\n", b"x" * 15_999_999, b"x", b"x"),
        [NO_HTTP, "", "", "closed"],
    ),
    "a small rest": ((ASKS_UNKNOWN, 10, 0.5), [UNKNOWN, "", "no more is sent"]),
    "its rest comes": ((ASKS_UNKNOWN, 9, ADA, _post(ADA)), [UNKNOWN, "", "", "200"]),
    # several requests, and the end of a connection
    "two at once": ((_post(ADA) * 2,), ["200, 200"]),
    "a second that is none": ((_post(ADA) + b"NONSENSE\r\n\r\n",), [f"200{ENDS}"]),
    "a second without host": ((_post(ADA) + _head(host="") + _post(ADA),), [f"200{ENDS}"]),
    "a second after a refused one": (
        (_head(host="", first=TOKENS) + _head(first=TOKENS), 2, 0.5),
        [ONE_HOST, "", "closed"],
    ),
    "wished": ((_post(ADA, "connection: close"),), [f"200{CLOSE}, closed"]),
    "idle": ((_post(ADA), 75, 75, 0.5), ["200", "", "", "closed"]),
    "used": ((_post(ADA), 1, 74, _post(ADA), 74, 75, 1), ["200", "", "", "200", "", "", "closed"]),
    # RFC 9110, 7.8: who asks for another protocol is answered in this one, its body included
    "another protocol": (
        (_post(ADA, "Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c"),),
        [f"200{CLOSE}, closed"],
    ),
    "another in pieces": (
        (_head("connection: upgrade", "upg", first=TOKENS)[:-14], b"grade\r\nupgrade: a\r\n\r\n"),
        ["", f"200 with a body{CLOSE}, closed"],
    ),
    # a reader that takes nothing of its answer for 30 s
    "unread": ((_post(ADA), "unsent 5", 1, 30, 1), ["200", "", "", "", "aborted"]),
    "read slowly": (
        (_post(ADA), "unsent 5", 1, 30, "unsent 4", 1, 30, 1),
        ["200", "", "", "", "", "", "", "aborted"],
    ),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_a_connection_answers_and_ends_as_documented(name: str) -> None:
    """D-STATUSES, D-SIZE, D-FIELD-VALUE, in the words of `engine.http.protocol`."""
    steps, happens = SESSIONS[name]
    assert _talk(*steps) == ["", *happens]


def test_more_connections_than_the_limit_are_told_so() -> None:
    assert _talk(_post(ADA), limit=3, others=2) == ["", "200"]
    full = f"503 The server has too many connections.{CLOSE} (retry-after: 1), no more is sent"
    assert _talk(_post(ADA), limit=3, others=3) == [full, ""]
    assert _talk(limit=3, others=66) == [full]
    assert _talk(limit=3, others=67) == ["aborted"]
