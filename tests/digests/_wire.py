"""What a server sends, byte for byte, to drawn requests on its connections, and what it counts.

The requests differ in the header fields, methods, targets and forms of body that concern HTTP
alone: keys that come twice, forwarded addresses, origins, preflights, request ids, pages, bodies
in pieces and in chunks. What an engine answers to right requests has its own traces.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
from typing import Any, Final
from unittest import mock

import uvicorn
from uvicorn.server import ServerState

from engine import Engine, Profile
from engine.http.app import HttpApplication
from engine.http.exposition import exposition
from engine.http.pages import PAGE_PATHS
from engine.http.protocol import Connections, HttpProtocol
from engine.http.requests import parse_networks
from engine.identity import ASKABLE
from engine.world import Call, CallAnswer, ModelWorld
from tests.drawn import Seeded

__all__ = ["wire_text"]

_STEPS: Final = 300
_LONG: Final = 3_000
_UNSTEADY: Final = re.compile(rb"^(?!tollgate_)|^tollgate_build_info|_(?:bucket|sum|created)\b")
_ASKED: Final = (
    *("POST /tokenize", "POST /tokenize", "POST /tokenize", "POST /tokens", "GET /tokens?size=1"),
    *("GET /tenants/self", "GET /nothing", "POST /proxy/a?b=c", "GET /proxy", "POST /x", "PUT /x"),
    *("GET /tokens/%C3%A9", "POST /applications", "POST /token-intents", "OPTIONS *"),
    *("OPTIONS /tokenize", "OPTIONS /tokens", "GET /docs/keys.json", "GET /docs"),
    *("GET /docs/docs.js", "GET /healthz", "GET /openapi.json"),
)
_METHODS: Final = ("GET", "POST", "HEAD", "OPTIONS", "PUT", "PURGE", "DELETE")
_BODIES: Final = (
    b"",
    b"",
    b'["Ada"]',
    b'{"a": "Ada"}',
    b'{"type": "token", "data": "Ada"}',
    b"{",
    b"[1]",
)


class _Wire:
    """A transport that keeps what was written."""

    def __init__(self, peer: str) -> None:
        self.sent = b""
        self.is_over = False
        self._peer = peer

    def write(self, data: bytes) -> None:
        self.sent += data

    def writelines(self, parts: tuple[bytes, ...]) -> None:
        self.sent += b"".join(parts)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": (self._peer, 5000), "sockname": ("192.0.2.2", 80)}.get(name, default)

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        self.is_over = True

    def close(self) -> None:
        self.is_over = True

    def is_closing(self) -> bool:
        return self.is_over

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        """Nothing is read here."""

    resume_reading = pause_reading


def _destination(call: Call) -> tuple[int, CallAnswer | None]:
    headers = {"Set-Cookie": "a=1\nb=2", "X-Request-Id": "theirs", "Date": "then", "X-A": "é"}
    body = b"" if call.method == "HEAD" else f"{call.method} {sorted(call.headers)}".encode()
    return 0, CallAnswer(204 if call.method == "PUT" else 200, headers, body)


class _Site:
    """A server's application, its keys, and the requests that are drawn for it."""

    def __init__(self, seed: int) -> None:
        self.choose = Seeded(seed)
        profile = Profile().replace(http={"cors": "any"} if seed % 2 else {"ipv6_prefix_bits": 64})
        self.engine = engine = Engine(
            profile=profile, world=ModelWorld(seed=seed, destination=_destination)
        )
        tenant = engine.create_tenant("Acme")
        private = str(engine.key_for(tenant, *sorted(ASKABLE["private"])))
        shop = engine.create_application(
            tenant,
            "shop",
            "public",
            grants=[("/", {"token:create"})],
            origins=["https://a.example"],
        )
        self.keys = (private, private, private, str(engine.create_key(shop)), "nobody")
        made = {"name": "p", "destination_url": "https://d.example", "host": "pay.example"}
        self.proxy_key = engine.ask("POST", "/proxies", made, key=private).body["key"]
        offered = {
            "role": "private",
            "key": private,
            "header": "SVC-API-KEY",
            "tenant_kind": "test",
        }
        self.application = HttpApplication(
            engine,
            page_paths=PAGE_PATHS,
            trusted=parse_networks(["10.0.0.0/8", "2001:db8:1::/48"], "trusted"),
            origins=("https://b.example",),
            demo_keys=[offered, offered, {"role": "end", "header": "SVC-API-KEY"}],
        )

    def lines(self) -> list[str]:
        """Return the header fields of a request."""
        choose = self.choose
        lines = [f"host: {choose.one(('service', 'service', 'Pay.Example:80'))}"]
        for times, line in (
            (1, f"svc-api-key: {choose.one(self.keys)}"),
            (9, f"SVC-API-KEY: {choose.one(self.keys)}"),
            (5, f"svc-proxy-key: {self.proxy_key}"),
            (9, "svc-proxy-key: other"),
            (4, f"x-forwarded-for: {choose.one(_FORWARDED)}"),
            (9, "x-forwarded-for: 10.1.1.1, [2001:db8:1::9]:443"),
            (3, f"origin: https://{choose.one('abc')}.example"),
            (3, "access-control-request-method: POST"),
            (3, f"x-request-id: {choose.one(('mine', 'a b', 'x' * 128, 'x' * 129, ''))}"),
            (9, "cookie: a=1"),
            (9, "cookie: b=2"),
            (9, "connection: close"),
            (9, f"idempotency-key: {choose.one(('one', 'two', ''))}"),
            (9, f"if-none-match: {self.known_tag}"),
            (6, f"content-type: {choose.one(('text/plain', 'application/json; charset=utf-8'))}"),
        ):
            if choose.whole(1, times) == 1:
                lines.append(line)
        if not any(line.startswith("content-type") for line in lines):
            lines.append("content-type: application/json")
        return lines

    known_tag = '"none"'

    def request(self) -> list[bytes]:
        """Return a request in the pieces in which it comes."""
        choose = self.choose
        body = choose.one(_BODIES) if choose.whole(0, 30) else b'["' + b"x" * 70_000 + b'"]'
        lines = self.lines()
        if choose.whole(0, 4) == 0:
            lines.append("transfer-encoding: chunked")
            body = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if body else b"0\r\n\r\n"
        elif body or choose.either():
            lines.append(f"content-length: {len(body)}")
        version = choose.one(("1.1",) * 9 + ("1.0",))
        method, _, target = choose.one(_ASKED).partition(" ")
        if choose.whole(0, 4) == 0:
            method = choose.one(_METHODS)
        first = f"{method} {target} HTTP/{version}"
        whole = "\r\n".join([first, *lines, "", ""]).encode() + body
        cut = choose.whole(1, len(whole) - 1) if choose.whole(0, 3) == 0 else len(whole)
        return [piece for piece in (whole[:cut], whole[cut:]) if piece]


_FORWARDED: Final = (
    *("198.51.100.1", "198.51.100.1, 10.0.0.9", "x, 10.0.0.9", "198.51.100.1:80", "", "10.0.0.1"),
    *("2001:db8::1", "[2001:db8::1]:9", "::ffff:198.51.100.7", "1.2.3.4, unknown"),
)


async def _talked(seed: int) -> str:
    site = _Site(seed)
    kind = type("_Protocol", (HttpProtocol,), {"connections_of_server": Connections(99)})
    config = uvicorn.Config(
        site.application,
        http=kind,
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
    )
    config.load()
    state = ServerState()
    state.default_headers = [(b"date", b"now"), (b"server", b"tollgate")]
    said: list[str] = []
    site.engine.erase()  # as a server's timer does
    for _ in range(_STEPS):
        wire = _Wire(
            site.choose.one(("198.51.100.9", "10.0.0.1", "2001:db8::5", "", "2001:db8:1::2"))
        )
        protocol = kind(config, state, {})
        protocol.connection_made(wire)
        pieces = site.request()
        for piece in pieces:
            protocol.data_received(piece)
            await asyncio.sleep(0)
        for _ in range(4_000):  # a page may wait for a thread
            if not state.tasks:
                break
            await asyncio.sleep(0 if len(said) % 2 else 0.0005)
        head, _, body = wire.sent.partition(b"\r\n\r\n")
        tag = re.search(rb'etag: ("\w+")', head)
        if tag is not None:
            site.known_tag = tag[1].decode()
        if len(body) > _LONG:
            body = hashlib.sha256(body).hexdigest().encode()
        said.append(f"{pieces[0][:400]!r}\n  {head!r} {body!r} {wire.is_over}")
        if not wire.is_over:
            protocol.eof_received()
        protocol.connection_lost(None)
        site.engine.clock.advance_ns(site.choose.one((0, 40_000_000, 2_000_000_000)))  # type: ignore[attr-defined] # reason: a manual clock
    counted = exposition(site.application.metrics).splitlines()
    said += [line.decode() for line in counted if not _UNSTEADY.search(line)]
    return "\n".join(said)


def wire_text() -> str:
    """Return what is sent in two sessions, one for each of two profiles."""
    with mock.patch.object(os, "urandom", bytes):
        return "\n".join(asyncio.run(_talked(seed)) for seed in (0, 1))
