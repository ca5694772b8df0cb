"""Hostile and clumsy senders: refused clearly, while everybody else is served (D-SIZE).

What is sent here is no HTTP client's: plain sockets say what no library would.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import resource
import select
import shutil
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import httpx
import pytest

from engine.http.requests import BUDGET_BYTES
from tests.engine.http.described import check_answer
from tests.engine.http.live import KEY, Live, wait_until

HEAD = (
    f"POST /tokenize HTTP/1.1\r\nHost: x\r\nSVC-API-KEY: {KEY}\r\n"
    "Content-Type: application/json\r\n"
).encode()


def _connect(live: Live) -> socket.socket:
    connection = socket.create_connection(("127.0.0.1", live.port), timeout=40)
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def _everything(connection: socket.socket) -> bytes:
    """Return what comes until the server closes."""
    parts = []
    with contextlib.suppress(ConnectionResetError):
        while part := connection.recv(65_536):
            parts.append(part)
    return b"".join(parts)


def _problem(answer: bytes, status: int) -> None:
    """Fail unless the answer is one problem of this status, and the last."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 %d " % status), answer[:200]
    assert b"content-type: application/problem+json" in head.lower()
    assert b"connection: close" in head.lower()
    said = json.loads(body)
    assert said["status"] == status
    assert (said.get("clause") in {"D-STATUSES", "D-SIZE"}) == (status < 500)


_ROUNDS: Final = 4
"""How often those who hang are sent again where a busy machine took 9 s for a request."""


def _is_served_quickly(live: Live) -> bool:
    """Whether a request is answered before a sender that hangs is given up."""
    started_s = time.monotonic()
    _is_served(live)
    return time.monotonic() - started_s < 9


def _is_served(live: Live) -> None:
    assert live.ask("POST", "/tokenize", json={"name": "Ada"}).status_code == 200


@pytest.mark.parametrize(
    "sent",
    [
        b"\x00\x01\x02\x03" * 100,
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nBad Name: y\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET /\xff\xfe HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["noise", "version", "field", "negative", "two lengths", "both", "HTTP/2", "target"],
)
def test_what_is_no_http_is_400(live: Live, sent: bytes) -> None:
    with _connect(live) as connection:
        connection.sendall(sent)
        _problem(_everything(connection), 400)
    _is_served(live)


@pytest.mark.parametrize(
    "head",
    [
        "POST /tokenize HTTP/1.1\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nHost: b\r\n",
        "POST /tokenize HTTP/1.0\r\nHost: a\r\nhost: a\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked, chunked\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a" + 2 * "\r\nTransfer-Encoding: chunked" + "\r\n",
        "POST /tokenize HTTP/1.0\r\nHost: a\r\nTransfer-Encoding: chunked\r\n",
        "POST /tokenize HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nContent-Length: 9\r\n",
    ],
)
def test_a_head_that_two_servers_may_read_differently_is_400(live: Live, head: str) -> None:
    fields = f"SVC-API-KEY: {KEY}\r\nContent-Type: application/json\r\n\r\n"
    with _connect(live) as connection:
        connection.sendall(f'{head}{fields}5\r\n["a"]\r\n0\r\n\r\n'.encode())
        _problem(_everything(connection), 400)
    _is_served(live)


def test_http_1_0_needs_no_host(live: Live) -> None:
    with _connect(live) as connection:
        connection.sendall(f"GET /nothing HTTP/1.0\r\nSVC-API-KEY: {KEY}\r\n\r\n".encode())
        assert _everything(connection).startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(
    "trailer", [f"SVC-API-KEY: {KEY}", "X-Request-Id: trailer", "Host: y", "Content-Type: a/b"]
)
def test_a_trailer_changes_nothing(live: Live, trailer: str) -> None:
    """D-FIELD-VALUE: neither who asks, nor which address or media type the request has."""
    head = "POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n"
    body = '5\r\n["a"]\r\n0\r\n'
    for key, status in ((f"SVC-API-KEY: {KEY}\r\n", b"200"), ("", b"401")):
        fields = f"Content-Type: application/json\r\nConnection: close\r\n{key}\r\n"
        with _connect(live) as connection:
            connection.sendall(f"{head}{fields}{body}{trailer}\r\n\r\n".encode())
            answer = _everything(connection)
        assert answer.startswith(b"HTTP/1.1 " + status), answer[:200]
        assert b"trailer" not in answer


@pytest.mark.parametrize("blanks", [("", " "), ("  ", "\t "), ("\t", "")])
def test_blanks_at_the_ends_of_a_value_are_no_part_of_it(
    live: Live, blanks: tuple[str, str]
) -> None:
    # RFC 9110, 5.5
    value = KEY.join(blanks)
    with _connect(live) as connection:
        head = f"GET /nothing HTTP/1.1\r\nHost: x \r\nSVC-API-KEY:{value}\r\n"
        connection.sendall(f"{head}X-Request-Id: abc \r\nConnection: close\r\n\r\n".encode())
        answer = _everything(connection)
    assert answer.startswith(b"HTTP/1.1 404")
    assert b"x-request-id: abc\r\n" in answer
    assert b"ratelimit: " in answer.lower()


def test_a_chunk_that_is_none_ends_the_request(live: Live) -> None:
    with _connect(live) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n")
        _problem(_everything(connection), 400)
    _is_served(live)


@pytest.mark.parametrize(
    "piece",
    [b"x" * 4096, b"X-%d: y\r\n" * 300, b"X: y\r\n" * 300],
    ids=["one field", "many fields", "one name"],
)
def test_an_endless_head_is_431(live: Live, piece: bytes) -> None:
    sent = 0
    with _connect(live) as connection:
        connection.sendall(b"GET /tokens HTTP/1.1\r\nHost: x\r\nX-Endless: ")
        with contextlib.suppress(OSError):
            for number in range(5_000):
                connection.sendall(piece if b"%" not in piece else piece % ((number,) * 300))
                sent += len(piece)
        _problem(_everything(connection), 431)
    assert sent < 20_000_000
    _is_served(live)


@pytest.mark.parametrize("first_bytes", [1_000, 40_000, 64_000, 65_000])
def test_a_large_head_in_two_pieces_is_431(live: Live, first_bytes: int) -> None:
    head = HEAD + b"X-Much: " + b"x" * 70_000 + b"\r\n\r\n"
    with _connect(live) as connection:
        connection.sendall(head[:first_bytes])
        time.sleep(0.05)  # the server reads the pieces apart
        connection.sendall(head[first_bytes:])
        _problem(_everything(connection), 431)
    _is_served(live)


def test_an_endless_target_is_refused(live: Live) -> None:
    with _connect(live) as connection:
        with contextlib.suppress(OSError):
            connection.sendall(b"GET /" + b"x" * 300_000)
        _problem(_everything(connection), 431)


def test_an_endless_body_is_413_at_its_bound(live: Live) -> None:
    chunk = b"%x\r\n%b\r\n" % (65_536, b" " * 65_536)
    sent_chunks = 0
    before = live.memory_bytes()
    with _connect(live) as connection:
        connection.sendall(HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            for _ in range(5_000):
                connection.sendall(chunk)
                sent_chunks += 1
        _problem(_everything(connection), 413)
    assert sent_chunks < 2_000
    assert live.memory_bytes() - before < 100_000_000
    _is_served(live)


@pytest.mark.parametrize("is_chunked", [False, True])
def test_who_sends_a_large_body_whole_before_reading_finds_the_413(
    live: Live, is_chunked: bool
) -> None:
    """D-SIZE: no broken pipe for a client that is still sending, as most of them are."""
    piece, pieces = b"x" * 1_000_000, 40
    headers = {"SVC-API-KEY": KEY, "Content-Type": "application/json"}
    if not is_chunked:
        headers["Content-Length"] = str(len(piece) * pieces)
    for pauses in _unhurried():
        connection = http.client.HTTPConnection("127.0.0.1", live.port, timeout=100)
        body = (pauses.note(piece) for _ in range(pieces))
        with contextlib.closing(connection), pauses.excuse():
            connection.request("POST", "/tokenize", body, headers, encode_chunked=is_chunked)
            with connection.getresponse() as answer:
                assert answer.status == 413
                assert json.loads(answer.read())["status"] == 413


class _Pauses:
    """The pauses between the pieces that are sent: a server gives up who is silent for 2 s."""

    def __init__(self) -> None:
        self._last_s = time.monotonic()
        self._longest_s = 0.0
        self.is_done = False

    def note(self, piece: bytes) -> bytes:
        """Note the instant of a piece, and return it."""
        now_s = time.monotonic()
        self._longest_s = max(self._longest_s, now_s - self._last_s)
        self._last_s = now_s
        return piece

    @contextlib.contextmanager
    def excuse(self) -> Iterator[None]:
        """Let a connection break where the machine paused, and only there."""
        try:
            yield
        except ConnectionError:
            self.note(b"")
            if self._longest_s < 1.5:
                raise
        else:
            self.is_done = True


def _unhurried() -> Iterator[_Pauses]:
    """Try until no pause of the machine broke the connection."""
    while True:
        pauses = _Pauses()
        yield pauses
        if pauses.is_done:
            return


@pytest.mark.slow
def test_who_sends_a_large_body_slowly_finds_the_413(live: Live) -> None:
    size = 8_000_000
    head = f"POST /tokenize HTTP/1.1\r\nHost: a\r\nSVC-API-KEY: {KEY}\r\n"
    for pauses in _unhurried():
        with _connect(live) as connection, pauses.excuse():
            connection.sendall(f"{head}Content-Length: {size}\r\n\r\n".encode())
            for _ in range(8):
                time.sleep(0.5)  # longer together than a client that says nothing is waited for
                connection.sendall(pauses.note(b"x" * (size // 8)))
            _problem(_everything(connection), 413)


def test_a_body_that_is_announced_too_large_is_413_before_it_comes(live: Live) -> None:
    with _connect(live) as connection:
        connection.sendall(HEAD + b"Content-Length: 1000000000000\r\n\r\n")
        _problem(_everything(connection), 413)


def test_the_answer_arrives_though_the_body_is_still_being_sent(live: Live) -> None:
    with _connect(live) as connection:
        connection.sendall(HEAD + b"Content-Length: 9000000\r\n\r\n")
        with contextlib.suppress(OSError):
            connection.sendall(b" " * 9_000_000)
        _problem(_everything(connection), 413)


def test_a_small_body_that_nobody_reads_leaves_the_connection_open(live: Live) -> None:
    refused = b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"
    took_s = 9.0
    while took_s >= 9:  # its rest is waited for 10 s, which may pass on a busy machine
        started_s = time.monotonic()
        with _connect(live) as connection:
            connection.sendall(refused)
            answer = b""
            while not answer.endswith(b"}") and (part := connection.recv(65_536)):
                answer += part
            took_s = time.monotonic() - started_s
            assert answer.startswith(b"HTTP/1.1 401")
            with contextlib.suppress(BrokenPipeError, ConnectionResetError):
                connection.sendall(b"12345" + HEAD + b"Content-Length: 5\r\n\r\n" + b'["a"]')
                took_s = time.monotonic() - started_s
            again = _next(connection)
    assert again.startswith(b"HTTP/1.1 200")


def _next(connection: socket.socket) -> bytes:
    """Return what comes next, nothing where the server has closed."""
    try:
        return connection.recv(65_536)
    except ConnectionResetError:
        return b""


def test_pipelined_requests_are_answered_in_order(live: Live) -> None:
    one = HEAD + b"Content-Length: 5\r\n\r\n" + b'["a"]'
    missing = b"GET /nothing HTTP/1.1\r\nHost: x\r\n"
    with _connect(live) as connection:
        connection.sendall(one + missing + b"\r\n" + missing + b"Connection: close\r\n\r\n")
        answers = _everything(connection)
    statuses = [part[:3] for part in answers.split(b"HTTP/1.1 ")[1:]]
    assert statuses == [b"200", b"404", b"404"]


def test_the_service_as_a_whole_has_options(live: Live) -> None:
    with _connect(live) as connection:
        connection.sendall(b"OPTIONS * HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        answer = _everything(connection)
    assert answer.startswith(b"HTTP/1.1 204")
    assert b"allow: DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT" in answer


def test_what_came_before_broken_bytes_is_answered(live: Live) -> None:
    with _connect(live) as connection:
        connection.sendall(HEAD + b"Content-Length: 5\r\n\r\n" + b'["a"]' + b"\x00\x00\x00\x00")
        assert _everything(connection).count(b"HTTP/1.1 200 OK") == 1


def test_a_request_for_another_protocol_is_answered_in_this_one(live: Live) -> None:
    upgrade = b"Connection: Upgrade\r\nUpgrade: websocket\r\n\r\n"
    with _connect(live) as connection:
        connection.sendall(b"GET /tokens HTTP/1.1\r\nHost: x\r\n" + upgrade)
        assert _everything(connection).startswith(b"HTTP/1.1 401")


def test_who_goes_away_in_the_middle_is_forgotten(live: Live) -> None:
    for _ in range(20):
        with _connect(live) as connection:
            connection.sendall(HEAD + b"Content-Length: 100\r\n\r\n{")
    _is_served(live)
    wait_until(lambda: "requests_in_flight 0.0" in live.client.get("/metrics").text)


@contextlib.contextmanager
def _many(live: Live, count: int) -> Iterator[list[socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(_connect(live)) for _ in range(count)]


def test_thousands_of_connections_keep_nobody_out(live: Live) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 2_300 if hard == resource.RLIM_INFINITY else min(2_300, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    try:
        for _ in range(_ROUNDS):
            with _many(live, wanted - 300) as connections:
                for connection in connections[::2]:
                    connection.sendall(b"GET /tokens HTTP/1.1\r\nHost:")
                if is_quick := _is_served_quickly(live):
                    break
        assert is_quick
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    _is_served(live)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("prlimit") is None, reason="no prlimit on this machine")
def test_more_connections_than_files_are_503() -> None:
    with Live("--demo", "--demo-keys", "1", prefix=["prlimit", "--nofile=200:200"]) as live:
        key = live.keys("private_prod")[0]["key"]
        took_s = 9.0
        while took_s >= 9:  # a connection that says nothing for 10 s makes room for another
            started_s = time.monotonic()
            with _many(live, 72) as connections:
                with contextlib.suppress(ConnectionError):
                    connections[0].sendall(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n")
                first = _next(connections[0])
                with _connect(live) as late:
                    said = _everything(late)
                took_s = time.monotonic() - started_s
        assert first.startswith(b"HTTP/1.1 200")
        _problem(said, 503)
        wait_until(lambda: _is_let_in(live, key))


def _is_let_in(live: Live, key: str) -> bool:
    with contextlib.suppress(httpx.TransportError):
        return live.ask("POST", "/tokenize", key=key, json=["x"]).status_code == 200
    return False


LARGE = 3_900_000
HOLDERS = 90


@pytest.mark.slow
def test_many_large_bodies_at_once_are_503_and_memory_is_bounded(full: dict[str, Any]) -> None:
    """D-SIZE bounds each body, the server's memory all of them: small ones are served meanwhile."""
    assert HOLDERS * LARGE > BUDGET_BYTES
    with Live("--demo", "--demo-keys", "1") as live, _many(live, HOLDERS) as holders:
        key = live.keys("private_prod")[0]["key"]
        before = live.memory_bytes()
        head = HEAD.replace(KEY.encode(), key.encode()) + b"Content-Length: %d\r\n\r\n" % LARGE
        for connection in holders:
            with contextlib.suppress(OSError):  # a refused one is closed
                connection.sendall(head + b" " * (LARGE - 10))
        least = HOLDERS - BUDGET_BYTES // (LARGE - 70_000)
        wait_until(lambda: len(_answered(holders)) >= least)
        assert live.memory_bytes() - before < BUDGET_BYTES + 60_000_000
        for connection in _answered(holders):
            answer = _everything(connection)
            _problem(answer, 503)
            assert b"retry-after: 1" in answer.lower()
        assert live.ask("POST", "/tokenize", key=key, json=["x"]).status_code == 200
        large = live.ask("POST", "/tokenize", key=key, content=b" " * LARGE + b"{}")
        assert large.status_code == 503
        check_answer(full, "tokenize", large)
        assert _is_taken(live, live.keys("private_test")[0]["key"])  # another caller has a share
        for connection in holders:
            connection.close()
        wait_until(lambda: _is_taken(live, key))


def _answered(connections: list[socket.socket]) -> list[socket.socket]:
    return select.select(connections, [], [], 0)[0]


def _is_taken(live: Live, key: str) -> bool:
    headers = {"Content-Type": "application/json"}
    body = b" " * LARGE + b"{}"
    answer = live.ask("POST", "/tokenize", key=key, content=body, headers=headers)
    return answer.status_code == 200


def _drip(live: Live, start: bytes, piece: bytes) -> bytes:
    """Send a start and then a piece now and then; return what comes until the server closes."""
    end_s = time.monotonic() + 200
    parts: list[bytes] = []
    with _connect(live) as connection:
        connection.sendall(start)
        connection.settimeout(0.2)
        while time.monotonic() < end_s:
            with contextlib.suppress(OSError):
                connection.sendall(piece)
            try:
                part = connection.recv(65_536)
            except TimeoutError:
                continue
            except OSError:
                break
            if not part:
                break
            parts.append(part)
        else:
            parts.append(b"the server has not closed")
    return b"".join(parts)


@pytest.mark.slow
def test_slow_senders_are_given_up_and_others_served_meanwhile(live: Live) -> None:
    answers: dict[str, tuple[bytes, float]] = {}

    def send(name: str, start: bytes, piece: bytes) -> None:
        started_s = time.monotonic()
        answers[name] = _drip(live, start, piece), time.monotonic() - started_s

    senders = {
        "silent": (b"", b""),
        "head": (b"GET /tokens HTTP/1.1\r\nX: ", b"x"),
        "body": (HEAD + b"Content-Length: 1000\r\n\r\n", b" "),
        "chunks": (HEAD + b"Transfer-Encoding: chunked\r\n\r\n", b"1\r\n \r\n"),
        "unread": (b"POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 60000\r\n\r\n", b" "),
    }
    for _ in range(_ROUNDS):
        threads = [threading.Thread(target=send, args=(n, *p)) for n, p in senders.items()]
        for thread in threads:
            thread.start()
        is_quick = _is_served_quickly(live)
        while any(thread.is_alive() for thread in threads):
            _is_served(live)
            time.sleep(0.2)
        if is_quick:
            break
    assert is_quick
    assert answers["silent"][0] == b"", "a connection without a byte is closed silently"
    _problem(answers["head"][0], 400)
    for name in ("silent", "head"):
        assert answers[name][1] > 9, name
    for name in ("body", "chunks"):
        _problem(answers[name][0], 400)
        assert b"\r\nconnection: close\r\n" in answers[name][0]
        assert answers[name][1] > 19, name
    assert answers["unread"][0].startswith(b"HTTP/1.1 401")
    assert answers["unread"][0].endswith(b"}"), "it is given up too"
