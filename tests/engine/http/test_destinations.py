"""Who may be called, and for how long: no request forgery, PRX-TIMEOUT over real sockets."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from engine.errors import DestinationTimeout, DestinationUnreachable, InputError
from engine.http.server import slow_destination
from engine.http.system import Destinations, SystemClock, SystemWorld
from engine.world import Bell, Call, CallAnswer

SECOND_NS = 1_000_000_000
HOUR_NS = 3_600 * SECOND_NS
"""Long enough on any machine."""


@contextmanager
def _names(monkeypatch: pytest.MonkeyPatch, names: dict[str, list[str]]) -> Iterator[list[str]]:
    """Let names resolve as the test says; each resolution takes the next address."""
    asked: list[str] = []

    async def resolve(
        _loop: object, host: str, port: int, **_more: Any
    ) -> list[tuple[Any, Any, Any, str, tuple[str, int]]]:
        asked.append(host)
        if host not in names:
            raise socket.gaierror("no such name")
        addresses = names[host]
        address = addresses.pop(0) if len(addresses) > 1 else addresses[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port))]

    with monkeypatch.context() as patch:
        patch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
        yield asked


def _target(destinations: Destinations, url: str) -> str:
    return asyncio.run(destinations.target(url)).address


ALLOWED = ["https://api.example.com", "http://api.example.com:8080/v1", "http://inner.example.com"]


@pytest.mark.parametrize(
    "url",
    [
        "http://api.example.com/",
        "https://api.example.com:444/",
        "https://api.example.com.evil.test/",
        "https://evil.test/api.example.com",
        "https://api.example.com@evil.test/",
        "http://api.example.com:8080/v2/x",
        "http://api.example.com:8080/v1/../v2",
        "http://api.example.com:8080/v1/%2e%2e/v2",
        "http://api.example.com:8080/v1/..;/v2",
        "http://api.example.com:8080/v1/%252e%252e/v2",
        "http://api.example.com:8080/v1/%00",
        "http://api.example.com:8080/v1x",
        "ftp://api.example.com/",
        "file:///etc/passwd",
        "https:///nothing",
        "https://[::1/",
    ],
)
def test_what_is_not_on_the_list_is_not_even_resolved(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with _names(monkeypatch, {}) as asked, pytest.raises(DestinationUnreachable):
        _target(Destinations(ALLOWED), url)
    assert asked == []


def test_what_is_on_the_list_is_called_at_its_address(monkeypatch: pytest.MonkeyPatch) -> None:
    with _names(monkeypatch, {"api.example.com": ["93.184.216.34"]}):
        destinations = Destinations(ALLOWED)
        assert _target(destinations, "https://API.example.com/any/path?q=1") == "93.184.216.34"
        assert _target(destinations, "http://api.example.com:8080/v1/x") == "93.184.216.34"


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "0.0.0.0",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "169.254.169.254",
        "100.64.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::",
        "fe80::1",
        "fc00::1",
        "ff02::1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::808:808",
        "fec0::1",
        "3fff::1",
        "5f00::1",
        "::8.8.8.8",
        "2002:7f00:1::",
        "2002:a00:1::",
    ],
)
def test_no_name_leads_inside(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    refused = pytest.raises(DestinationUnreachable, match="may not be called")
    with _names(monkeypatch, {"inner.example.com": [address]}), refused:
        _target(Destinations(ALLOWED), "http://inner.example.com/")


def test_a_private_address_is_called_when_the_operator_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with _names(monkeypatch, {"inner.example.com": ["10.1.2.3"]}):
        destinations = Destinations(ALLOWED, ["10.0.0.0/8"])
        assert _target(destinations, "http://inner.example.com/") == "10.1.2.3"


def test_a_name_that_changes_its_mind_is_judged_and_called_as_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Rebinding: public when it is judged, loopback afterwards. It is resolved once.
    with _names(monkeypatch, {"inner.example.com": ["93.184.216.34", "127.0.0.1"]}) as asked:
        assert _target(Destinations(ALLOWED), "http://inner.example.com/") == "93.184.216.34"
        assert asked == ["inner.example.com"]
        with pytest.raises(DestinationUnreachable):
            _target(Destinations(ALLOWED), "http://inner.example.com/")


@pytest.mark.parametrize("text", ["api.example.com", "ftp://x.example", "https://a@b", "https://"])
def test_an_entry_that_is_none_is_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"^allowed_destinations = .* must be an origin such as"):
        Destinations([text])
    with pytest.raises(InputError, match=r"^private_destinations = .* must be an IP address"):
        Destinations([], ["loopback"])


# --- real calls ----------------------------------------------------------------------------------


def _calling(talk: Callable[[SystemWorld, str], Awaitable[CallAnswer]], **more: Any) -> CallAnswer:
    async def run() -> CallAnswer:
        async with slow_destination() as url:
            world = SystemWorld(destinations=Destinations([url], ["127.0.0.1"]), **more)
            try:
                return await talk(world, url)
            finally:
                await world.close()

    return asyncio.run(run())


def test_a_call_carries_method_headers_and_body() -> None:
    async def talk(world: SystemWorld, url: str) -> CallAnswer:
        call = Call("PATCH", f"{url}/a%20b?x=1", {"X-Mine": "yes"}, b"\x00\x01")
        return await world.call_destination(call, HOUR_NS)

    answer = _calling(talk)
    assert answer.status == 200
    assert b'"method":"PATCH"' in answer.body
    assert b'"path":"/a%20b?x=1"' in answer.body
    assert b'"x-mine":"yes"' in answer.body
    assert b"user-agent" not in answer.body


def test_a_call_that_takes_too_long_is_given_up_in_time() -> None:
    async def talk(world: SystemWorld, url: str) -> CallAnswer:
        began_ns = world.clock.now_ns
        with pytest.raises(DestinationTimeout):
            await world.call_destination(Call("GET", f"{url}/delay/60", {}, b""), SECOND_NS // 5)
        assert world.clock.now_ns - began_ns >= SECOND_NS // 5
        return await world.call_destination(Call("GET", f"{url}/delay/0.1", {}, b""), HOUR_NS)

    assert _calling(talk).status == 200
    with pytest.raises(DestinationTimeout):
        _answer_of(b"", pause_s=3_600, timeout_ns=SECOND_NS // 5)


def test_an_answer_that_is_too_large_is_none() -> None:
    async def talk(world: SystemWorld, url: str) -> CallAnswer:
        with pytest.raises(DestinationUnreachable):
            await world.call_destination(Call("GET", url, {"X": "y" * 300}, b""), HOUR_NS)
        return CallAnswer(200, {}, b"")

    _calling(talk, answer_limit_bytes=100)


def _raw_server(answer: bytes, pause_s: float = 0.0) -> Callable[..., Awaitable[None]]:
    async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\n")
            half = len(answer) // 2
            writer.write(answer[:half])
            await asyncio.sleep(pause_s)
            writer.write(answer[half:])
        finally:
            writer.close()

    return connected


def _answer_of(answer: bytes, pause_s: float = 0.0, timeout_ns: int = HOUR_NS) -> CallAnswer:
    async def run() -> CallAnswer:
        server = await asyncio.start_server(_raw_server(answer, pause_s), "127.0.0.1", 0)
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        world = SystemWorld(destinations=Destinations([url], ["127.0.0.1"]))
        try:
            return await world.call_destination(Call("GET", url, {}, b""), timeout_ns)
        finally:
            await world.close()
            server.close()
            await asyncio.sleep(0.01)  # for the other end of the connection to close

    return asyncio.run(run())


def test_a_redirect_is_an_answer_and_is_not_followed() -> None:
    answer = _answer_of(
        b"HTTP/1.1 302 Found\r\nLocation: http://169.254.169.254/\r\nContent-Length: 0\r\n\r\n"
    )
    assert (answer.status, answer.headers["location"]) == (302, "http://169.254.169.254/")


def test_a_compressed_answer_stays_as_it_is_and_cookies_stay_apart() -> None:
    answer = _answer_of(
        b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nSet-Cookie: a=1; Expires=Thu, 1 Jan\r\n"
        b"Set-Cookie: b=2\r\nX-Two: 1\r\nX-Two: 2\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00"
    )
    assert answer.body == b"\x1f\x8b\x08\x00"
    assert answer.headers["content-encoding"] == "gzip"
    assert answer.headers["set-cookie"] == "a=1; Expires=Thu, 1 Jan\nb=2"
    assert answer.headers["x-two"] == "1, 2"


def test_the_time_runs_to_the_last_byte() -> None:
    # PRX-TIMEOUT, D-PROXY-TIMEOUT
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2000\r\n\r\n" + b"x" * 2000
    assert len(_answer_of(whole, pause_s=0.05).body) == 2000
    with pytest.raises(DestinationTimeout):
        _answer_of(whole, pause_s=0.5, timeout_ns=SECOND_NS // 5)


@pytest.mark.parametrize("answer", [b"", b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 999 Odd\r\n\r\n"])
def test_an_answer_that_is_none_is_unreachable(answer: bytes) -> None:
    with pytest.raises(DestinationUnreachable):
        _answer_of(answer)


def test_the_clock_is_monotonic_and_wall_time_goes_with_it() -> None:
    # D-CLOCK
    clock = SystemClock()
    apart = _apart_ns(clock)
    readings = [clock.now_ns for _ in range(1000)]
    assert readings == sorted(readings)
    again = _apart_ns(clock)
    assert again[0] - apart[1] < SECOND_NS // 10
    assert apart[0] - again[1] < SECOND_NS // 10


def _apart_ns(clock: SystemClock) -> tuple[int, int]:
    """Return the least and the most by which the wall clock is ahead, if the machine pauses."""
    before_ns, wall_ns, after_ns = clock.now_ns, clock.wall_ns, clock.now_ns
    return wall_ns - after_ns, wall_ns - before_ns


def _ring(bell: Bell) -> None:
    bell.ring()  # as it is by then


def test_a_bell_ends_a_sleep() -> None:
    async def run() -> None:
        world, bell = SystemWorld(), Bell()
        asyncio.get_running_loop().call_later(0.02, _ring, bell)
        await world.sleep_ns(HOUR_NS, bell)
        ended_ns = world.clock.now_ns
        await world.sleep_ns(SECOND_NS // 100, Bell())
        assert world.clock.now_ns - ended_ns >= SECOND_NS // 100

    asyncio.run(run())


def test_code_runs_where_the_operator_says() -> None:
    # RCT-TIMEOUT
    def plain(code: str, args: Any, configuration: Any) -> Any:
        return [code, args, dict(configuration)]

    async def waits(code: str, args: Any, configuration: Any) -> Any:
        await asyncio.sleep(float(code))
        return args

    async def run() -> None:
        assert await SystemWorld().run_code("x", {"a": 1}, {}, HOUR_NS) == {"a": 1}
        found = await SystemWorld(runtime=plain).run_code("x", 1, {"k": "v"}, HOUR_NS)
        assert found == ["x", 1, {"k": "v"}]
        world = SystemWorld(runtime=waits)
        assert await world.run_code("0", 7, {}, HOUR_NS) == 7
        with pytest.raises(DestinationTimeout):
            await world.run_code("3600", 7, {}, SECOND_NS // 20)

    asyncio.run(run())


# --- TLS -----------------------------------------------------------------------------------------


def _certificate(folder: Path, name: str) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Return a server's context for a name, and a client's that trusts its certificate alone."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    pem = certificate.public_bytes(serialization.Encoding.PEM)
    (folder / "certificate.pem").write_bytes(pem)
    (folder / "key.pem").write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(folder / "certificate.pem", folder / "key.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


@pytest.mark.parametrize(("name", "is_reached"), [("api.example.com", True), ("evil.test", False)])
def test_a_certificate_is_held_against_the_name_and_not_the_address(
    name: str, is_reached: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server_side, client_side = _certificate(tmp_path, name)
    whole = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"

    async def run() -> CallAnswer:
        server = await asyncio.start_server(_raw_server(whole), "127.0.0.1", 0, ssl=server_side)
        url = f"https://api.example.com:{server.sockets[0].getsockname()[1]}"
        world = SystemWorld(destinations=Destinations([url], ["127.0.0.1"]), verify=client_side)
        try:
            return await world.call_destination(Call("GET", url, {}, b""), HOUR_NS)
        finally:
            await world.close()
            server.close()
            for _ in range(10):  # in several rounds of the loop, also after a pause
                await asyncio.sleep(0.005)

    async def resolve(_loop: object, host: str, port: int, **_more: Any) -> list[Any]:
        assert host in {"api.example.com", "127.0.0.1"}
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    monkeypatch.setattr(asyncio.BaseEventLoop, "getaddrinfo", resolve)
    if is_reached:
        assert asyncio.run(run()).body == b"ok"
    else:
        with pytest.raises(DestinationUnreachable):
            asyncio.run(run())
