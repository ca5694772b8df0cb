"""Requests over real sockets: what is sent, from where, when, and what a broken answer becomes."""

from __future__ import annotations

import asyncio
import dataclasses
import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from conformance.messages.exchange import HttpRequest
from conformance.messages.shapes import SHAPES
from conformance.target import Target, TargetKey
from conformance.wire import over_http
from conformance.wire.over_http import HttpTransport
from conformance.wire.pace import Pacer
from conformance.wire.transport import Answer, Place
from engine import LimitTable
from engine.files import Rate, parse_toml
from tests.conformance.servers import answering, dropping, hanging, serving

OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
KEYS = (
    TargetKey(role="private_prod", value="canary-key"),
    TargetKey(role="proxy_key", value="canary-proxy", header="X-Proxy"),
    TargetKey(role="custom_hostname", host="proxy.example.com"),
)


@contextmanager
def _transport(port: int, **fields: Any) -> Iterator[HttpTransport]:
    fields = {"base_url": f"http://127.0.0.1:{port}/v1", "keys": KEYS, **fields}
    transport = HttpTransport(Target(**fields))
    try:
        yield transport
    finally:
        transport.close()


def _ask(transport: HttpTransport, *asks: HttpRequest) -> list[Answer]:
    async def one_after_another() -> list[Answer]:
        return [await transport.send(ask, Place("a", "b", 1)) for ask in asks]

    found: list[Answer] = transport.run([one_after_another()])[0]
    return found


def test_a_request_holds_the_base_path_the_keys_and_the_json() -> None:
    seen: list[bytes] = []
    ask = HttpRequest(
        method="POST",
        path="/tokens?a=b",
        key="private_prod.1",
        proxy_key="proxy_key.1",
        host="custom_hostname.1",
        headers={"X-Other": "{key:private_prod.1}"},
        body={"a": "é"},
    )
    with serving(answering(OK, seen)) as port, _transport(port) as transport:
        assert _ask(transport, ask)[0].status == 200
    head, _, body = seen[0].partition(b"\r\n\r\n")
    lines = head.decode().split("\r\n")
    assert lines[0] == "POST /v1/tokens?a=b HTTP/1.1"
    assert {
        "Host: proxy.example.com",
        "SVC-API-KEY: canary-key",
        "X-Proxy: canary-proxy",
        "X-Other: canary-key",
        "Content-Type: application/json",
        "Content-Length: 10",
    } <= set(lines)
    assert body.decode() == '{"a":"é"}'


def test_connections_are_kept_and_belong_to_their_address() -> None:
    peers: list[tuple[str, int]] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer.get_extra_info("peername"))
        await answering(OK)(reader, writer)

    asks = [
        HttpRequest(method="GET", path="/", source=source) for source in ("127.0.0.5", "127.0.0.6")
    ]
    with serving(handle) as port, _transport(port) as transport:
        answers = _ask(transport, *asks, *asks, *asks)
        assert [answer.status for answer in answers] == [200] * 6
        assert sorted(peer[0] for peer in peers) == ["127.0.0.5", "127.0.0.6"]
        at_once = [transport.send(ask, Place("a", "b", 1)) for ask in asks[:1] * 3]
        assert [answer.status for answer in transport.run(at_once)] == [200] * 3
    assert sorted(peer[0] for peer in peers) == ["127.0.0.5"] * 3 + ["127.0.0.6"]


def test_a_forwarded_header_stands_for_the_address() -> None:
    seen: list[bytes] = []
    ask = HttpRequest(method="GET", path="/", source="203.0.113.9")
    with serving(answering(OK, seen)) as port:
        with _transport(port, forwarded="X-Forwarded-For") as transport:
            _ask(transport, ask)
        with _transport(port, forwarded="Forwarded: for={source};by=me") as transport:
            _ask(transport, ask)
    assert b"\r\nX-Forwarded-For: 203.0.113.9\r\n" in seen[0]
    assert b"\r\nForwarded: for=203.0.113.9;by=me\r\n" in seen[1]


def test_a_dropped_request_is_sent_once_and_says_so() -> None:
    seen: list[bytes] = []
    with serving(dropping(seen)) as port, _transport(port) as transport:
        answer = _ask(transport, HttpRequest(method="POST", path="/", body={}))[0]
    assert (answer.status, len(seen)) == (None, 1)
    assert "before the answer's end" in (answer.error or "")


def test_a_connection_that_the_server_closed_is_not_asked_again() -> None:
    closing = OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n")
    with serving(answering(closing)) as port, _transport(port) as transport:
        asks = [HttpRequest(method="GET", path="/")] * 5
        assert [answer.status for answer in _ask(transport, *asks)] == [200] * 5


@pytest.mark.parametrize(("idle_ns", "connections"), [(2_000_000_000, 1), (20_000_000, 2)])
def test_a_connection_that_was_idle_for_long_is_not_asked_again(
    monkeypatch: pytest.MonkeyPatch, idle_ns: int, connections: int
) -> None:
    """Servers close what is idle, at the very moment perhaps at which it is asked."""
    peers: list[Any] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        peers.append(writer.get_extra_info("peername"))
        await answering(OK)(reader, writer)

    monkeypatch.setattr(over_http, "_IDLE_NS", idle_ns)
    with serving(handle) as port, _transport(port) as transport:
        for _ in range(2):
            assert _ask(transport, HttpRequest(method="GET", path="/"))[0].status == 200
            transport.run([transport.sleep_until_ns(transport.now_ns + 60_000_000)])
    assert len(peers) == connections


def test_a_connection_that_the_server_closed_meanwhile_is_not_asked_again() -> None:
    """It has not said that it would: the next request gets a connection of its own."""

    async def closes(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(OK)
        await writer.drain()

    with serving(closes) as port, _transport(port) as transport:
        for _ in range(2):
            assert _ask(transport, HttpRequest(method="GET", path="/"))[0].status == 200
            transport.run([transport.sleep_until_ns(transport.now_ns + 60_000_000)])


def test_an_answer_without_end_is_left() -> None:
    """Neither its head nor its body fills the memory of the machine that tests."""
    head = b"HTTP/1.1 200 OK\r\nX-Long: " + b"x" * 200_000
    with serving(answering(head)) as port, _transport(port, timeout_ns=5_000_000_000) as transport:
        found = _ask(transport, HttpRequest(method="GET", path="/"))[0]
    assert (found.status, found.error) == (None, "the answer is no HTTP")


@pytest.mark.parametrize(("size", "error"), [(2_000_000, None), (2_000_001, "longer than 2 MB")])
def test_an_answer_that_is_too_long_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, size: int, error: str | None
) -> None:
    monkeypatch.setattr(over_http, "_LONGEST_BYTES", 2_000_000)
    long = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + bytes(size)
    with serving(answering(long)) as port, _transport(port) as transport:
        found = _ask(transport, HttpRequest(method="GET", path="/"))[0]
    assert (found.status, found.error) == (
        (200, None) if error is None else (None, f"the answer is {error}")
    )


def test_a_server_that_hangs_is_left_in_time() -> None:
    with serving(hanging) as port, _transport(port, timeout_ns=200_000_000) as transport:
        answer = _ask(transport, HttpRequest(method="GET", path="/"))[0]
    assert (answer.status, answer.error) == (None, "no answer within 0.2 s")
    assert answer.received_ns > answer.sent_ns


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (b"hello\r\n\r\n", "the answer is no HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n", "the answer is no HTTP"),
    ],
)
def test_what_is_no_http_is_no_answer(answer: bytes, says: str) -> None:
    with serving(answering(answer)) as port, _transport(port) as transport:
        found = _ask(transport, HttpRequest(method="GET", path="/"))[0]
    assert (found.status, found.error) == (None, says)


def test_a_dead_port_is_no_answer() -> None:
    with serving(answering(OK)) as port:
        pass
    with _transport(port) as transport:
        found = _ask(transport, HttpRequest(method="GET", path="/"))[0]
    assert (found.status, found.error) == (None, "cannot connect: connection refused")


def test_the_decision_lies_between_the_stamps() -> None:
    arrived: list[int] = []
    decided: list[int] = []

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.readuntil(b"\r\n\r\n"):
            arrived.append(time.perf_counter_ns())
            await asyncio.sleep(0.05)
            decided.append(time.perf_counter_ns())
            writer.write(OK)

    with serving(handle) as port, _transport(port) as transport:
        first_ns = time.perf_counter_ns()
        now_ns = transport.now_ns
        last_ns = time.perf_counter_ns()
        answers = _ask(transport, *[HttpRequest(method="GET", path="/")] * 3)
    for answer, from_ns, at_ns in zip(answers, arrived, decided, strict=True):
        assert answer.sent_ns <= now_ns + from_ns - first_ns
        assert now_ns + at_ns - last_ns <= answer.received_ns


def test_coroutines_run_side_by_side_and_inside_a_running_loop() -> None:
    steps: list[str] = []

    async def naps(transport: HttpTransport) -> None:
        steps.append("begins")
        await transport.sleep_until_ns(transport.now_ns + 50_000_000)
        steps.append("ends")

    async def notebook() -> None:
        with _transport(9) as transport:
            transport.run([naps(transport) for _ in range(20)])

    asyncio.run(notebook())
    assert steps == ["begins"] * 20 + ["ends"] * 20


def test_what_one_raises_ends_no_other() -> None:
    ended: list[int] = []

    async def fails() -> None:
        raise ValueError("one")

    async def goes_on(transport: HttpTransport) -> None:
        await transport.sleep_until_ns(transport.now_ns + 50_000_000)
        ended.append(1)

    with _transport(9) as transport, pytest.raises(ValueError, match="one"):
        transport.run([fails(), goes_on(transport)])
    assert ended == [1]


def test_a_large_body_goes_out_in_pieces_and_an_early_answer_ends_it() -> None:
    received: list[int] = []
    is_answered = threading.Event()

    async def reads(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        if b"/early" in head:
            writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
            await reader.read(1000)
            await asyncio.to_thread(is_answered.wait)
        received.append(len(await reader.readexactly(20_000_000)))
        writer.write(OK.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        await writer.drain()

    body = bytes(20_000_000)
    with serving(reads) as port, _transport(port) as transport:
        asks = [HttpRequest(method="PUT", path=path, body=body) for path in ("/whole", "/early")]
        assert [answer.status for answer in _ask(transport, *asks)] == [200, 413]
        is_answered.set()  # so the client did not wait for the server to go on
    assert received == [20_000_000]


def test_an_answer_is_read_although_the_body_could_not_be_sent() -> None:
    """A server that refuses a body may close while it is still coming: its answer counts."""

    async def cuts_off(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        held = writer.get_extra_info("socket")
        held.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))

    body = bytes(20_000_000)
    with serving(cuts_off) as port, _transport(port) as transport:
        found = _ask(transport, *[HttpRequest(method="PUT", path="/", body=body)] * 20)
    assert [(one.status, one.error) for one in found] == [(413, None)] * 20


# --- the pacer -----------------------------------------------------------------------------------


TARGET = 'base_url = "https://vault.example.com"\n[[tenants]]\nname = "acme"\n' + "".join(
    f'[[keys]]\nrole = "{role}"\nvalue = "of {role}"\ntenant = "acme"\n'
    for role in ("private_prod", "legacy")
)


@pytest.mark.parametrize(
    ("key", "rule_id"), [("legacy.1", "LIM-LEGACY"), ("private_prod.1", "LIM-PRIVATE")]
)
def test_a_key_is_kept_below_the_limits_of_its_own_class(key: str, rule_id: str) -> None:
    limits = LimitTable.default()
    rate = next(rule.limit_requests for rule in limits if rule.id == rule_id)
    pacer = Pacer(Target.from_document(parse_toml(TARGET, "target.toml")), limits)
    ask = HttpRequest(method="GET", path="/tokens/00000000-0000-4000-8000-000000000000", key=key)
    assert [pacer.admit(0, ask, [None])[1] for _ in range(rate)].count(0) == rate * 9 // 10


def test_a_limit_of_an_operation_is_kept_by_each_key_and_of_proxies_at_each_address() -> None:
    own = {
        name: dataclasses.replace(SHAPES[name], limit=Rate(20, 10_000_000_000))
        for name in ("search", "invoke_proxy")
    }
    own["get"] = SHAPES["get"]  # another spelling, and no limit
    roles = ("private_prod", "private_prod", "proxy_key", "proxy_key")
    keys = tuple(TargetKey(role=role, value=f"key {turn}") for turn, role in enumerate(roles))
    target = Target(base_url="https://vault.example.com", keys=keys, requests=own)
    pacer = Pacer(target, LimitTable(()))

    def admitted(source: str, path: str, **sender: Any) -> int:
        ask = HttpRequest(method="POST", path=path, **sender)
        return [pacer.admit(0, ask, [source])[1] for _ in range(30)].count(0)

    here, there = "192.0.2.1", "192.0.2.2"
    assert admitted(here, "/tokens/search", key="private_prod.1") == 18
    assert admitted(there, "/tokens/search", key="private_prod.1") == 0
    assert admitted(here, "/tokens/search", key="private_prod.2") == 18
    assert admitted(here, "/tokens", key="private_prod.1") == 30, "it has no limit here"
    assert admitted(here, "/proxy/a", proxy_key="proxy_key.1") == 18
    assert admitted(here, "/proxy/b", proxy_key="proxy_key.2") == 0
    assert admitted(there, "/proxy/b", proxy_key="proxy_key.2") == 18
