"""What one caller's bodies do to everybody else: the victim's waits beside each hostile request.

One key sends requests of one kind after the other over four connections, as fast as they are
answered: large bodies to /tokenize, /detokenize, a proxy and a reactor, and small requests for
which the server makes or reads much. In the last rows many connections hold what they can: heads
without an end, answers that nobody reads, reactors that sleep. A victim with a key of its own
tokenizes one string every 20 ms. Printed are the victim's waits, the server's most memory against
the bound that it printed at its start, and what a refused body costs against parsing it.
"""

import json
import os
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

import httpx
import orjson
from rich.console import Console
from rich.table import Table

from engine.vault import jwe
from tests.engine.http.live import KEY, Live, served

_VICTIM: Final = "key_prod_us_pvt_2222222222222222222222"
_SECONDS: Final = 4.0
_BIG_SECONDS: Final = 30.0
_SENDERS: Final = 4
_PACE_S: Final = 0.02
_SIZE: Final = 3_990_000
_JSON: Final = {"Content-Type": "application/json"}


def _repeated(piece: bytes) -> bytes:
    return b"[" + b",".join([piece] * (_SIZE // (len(piece) + 1))) + b"]"


_RUNTIME: Final = """
import time

def run(code, args, configuration):
    if code == "sleep":
        time.sleep(60)
    return args
"""


@dataclass(frozen=True)
class _Hostile:
    """One request: a body, and where it goes.

    connections: so many send it once and read nothing. is_head: they send no more than a head of
    the body's length, without its end.
    """

    body: bytes
    path: str = "/tokenize"
    proxy_key: str | None = None
    connections: int = 0
    is_head: bool = False

    def raw(self) -> bytes:
        """Return what a connection sends that reads nothing."""
        if self.is_head:
            return b"GET / HTTP/1.1\r\nX-Endless: " + self.body
        head = f"POST {self.path} HTTP/1.1\r\nHost: a\r\nSVC-API-KEY: {KEY}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(self.body)}\r\n\r\n"
        return head.encode() + self.body


def _elsewhere(live: Live) -> dict[str, _Hostile]:
    """Return bodies that are walked for token expressions, or by a transform."""
    token = live.ask("POST", "/tokenize", json=["x"]).json()[0]
    address = {"name": "p", "destination_url": "https://api.example.com"}
    proxy_key = live.ask("POST", "/proxies", json=address).json()["key"]
    reactor = live.ask("POST", "/reactors", json={"name": "r", "code": "c"}).json()["id"]
    expression = b'"{{ %b }}"' % token.encode()
    strings = b",".join([expression, *[b'"{{ y }}"'] * 230_000])
    unknown = b",".join(b'"{{ %s }}"' % str(uuid4()).encode() for _ in range(9_999))
    long = b'[%b,"%b"]' % (expression, rb"\\" * 4_990_000)
    part = b",".join([expression, *[b'"y"'] * 230_000])
    detokenize, proxy = "/detokenize", "/proxy"
    return {
        "detokenized: strings": _Hostile(b"[" + strings + b"]", detokenize),
        "detokenized: unknown tokens": _Hostile(b"[" + unknown + b"]", detokenize),
        "proxied: strings": _Hostile(b"[" + strings + b"]", proxy, proxy_key),
        "proxied: unknown tokens": _Hostile(b"[" + unknown + b"]", proxy, proxy_key),
        "proxied: one long string": _Hostile(long, proxy, proxy_key),
        "proxied: empty arrays": _Hostile(_repeated(b"[]") + b'"{{"', proxy, proxy_key),
        "a reactor's arguments": _Hostile(
            b'{"args":{"tokenize":[' + part + b"]}}", f"/reactors/{reactor}/react"
        ),
    }


def _small(live: Live) -> dict[str, _Hostile]:
    """Return small requests for which much is made or read, and what many connections can hold."""
    tokens = [live.ask("POST", "/tokenize", json=["x" * 3_900_000]).json()[0] for _ in range(5)]
    read = json.dumps([f"{{{{ {token} }}}}" for token in tokens]).encode()
    reactor = live.ask("POST", "/reactors", json={"name": "r", "code": "sleep"}).json()["id"]
    asleep = json.dumps({"args": json.loads(read)}).encode()
    path = f"/reactors/{reactor}/react"
    return {
        "an RSA key pair": _Hostile(b'{"algorithm":"RSA-OAEP-256"}', "/keys"),
        "five tokens of 3.9 MB": _Hostile(read, "/detokenize"),
        "90 of these, answers unread": _Hostile(read, "/detokenize", connections=90),
        "14 500 heads without an end": _Hostile(b"x" * 60_000, connections=14_500, is_head=True),
        "12 reactors that sleep": _Hostile(b'{"args":1}', path, connections=12),
        "90 of these, with the five tokens": _Hostile(asleep, path, connections=90),
    }


def _bodies(live: Live) -> dict[str, _Hostile]:
    public = live.ask("POST", "/keys", json={"algorithm": "ECDH-ES"}).json()["public_key"]
    sealed = orjson.dumps({"type": "token", "encrypted": jwe.encrypt(public, b'"x"')})
    repeated = orjson.dumps({"type": "token", "data": "", "deduplicate_token": True})
    tokenized = {
        "nothing": b"",
        "JWEs": _repeated(sealed),
        "below the bounds, 100 JWEs": b"[" + b",".join([sealed] * 100) + b"]",
        "empty strings": _repeated(b'""'),
        "equal objects, deduplicated": _repeated(repeated),
        "below the bounds, 10,000 of these": b"[" + b",".join([repeated] * 10_000) + b"]",
        "distinct strings": orjson.dumps([f"{number:07}" for number in range(_SIZE // 10)]),
        "below the bounds, 10,000 strings": orjson.dumps(
            [f"{number:07}" for number in range(10_000)]
        ),
        "numbers": _repeated(b"1"),
        "empty arrays": _repeated(b"[]"),
        "deep arrays": _repeated(b"[" * 60 + b"]" * 60),
        "one long string of escapes": b'["' + rb"\\" * (_SIZE // 2) + b'"]',
        "one object, one name": b"{" + b",".join([b'"":""'] * (_SIZE // 6)) + b"}",
        "objects, below the bounds": b"[" + b",".join([repeated] * 9_999) + b"]",
        "strings of 390 bytes, below the bounds": b"["
        + b",".join([b'"%0390d"' % 0] * 9_999)
        + b"]",
    }
    plain = {name: _Hostile(body) for name, body in tokenized.items()}
    return {**plain, **_elsewhere(live), **_small(live)}


def _post(client: httpx.Client, hostile: _Hostile) -> int:
    headers = dict(_JSON)
    if hostile.proxy_key is not None:
        headers["SVC-PROXY-KEY"] = hostile.proxy_key
    return client.post(hostile.path, content=hostile.body, headers=headers).status_code


@contextmanager
def _sending(live: Live, hostile: _Hostile) -> Iterator[list[int]]:
    """Send over and over, or hold connections; yields the statuses that are answered."""
    stopping = threading.Event()
    statuses: list[int] = []

    def send() -> None:
        with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": KEY}, timeout=60) as client:
            while not stopping.is_set():
                statuses.append(_post(client, hostile))

    if hostile.connections:
        with ExitStack() as held:
            raw = hostile.raw()
            for _ in range(hostile.connections):
                with suppress(OSError):  # refused, or no file is left for it
                    address = ("127.0.0.1", live.port)
                    connection = held.enter_context(socket.create_connection(address, timeout=5))
                    connection.sendall(raw)
            yield statuses
        return
    senders = [threading.Thread(target=send) for _ in range(_SENDERS if hostile.body else 0)]
    for sender in senders:
        sender.start()
    yield statuses
    stopping.set()
    for sender in senders:
        sender.join()


def _beside(live: Live, hostile: _Hostile, seconds: float) -> tuple[list[float], int, list[int]]:
    """Return the victim's waits in milliseconds, the server's most bytes, and the statuses."""
    waits: list[float] = []
    most_bytes = 0
    with (
        _sending(live, hostile) as statuses,
        httpx.Client(base_url=live.url, headers={"SVC-API-KEY": _VICTIM}, timeout=60) as victim,
    ):
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            started_s = time.perf_counter()
            assert _post(victim, _Hostile(b'{"name":"Ada"}')) == 200
            waits.append(1e3 * (time.perf_counter() - started_s))
            most_bytes = max(most_bytes, live.memory_bytes())
            time.sleep(_PACE_S)
    return waits, most_bytes, statuses


def _cpu_s(live: Live) -> float:
    fields = Path(f"/proc/{live.process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2]
    return sum(map(int, fields.split()[11:13])) / 100


def _once_ms(work: Callable[[], object]) -> float:
    taken = []
    for _ in range(3):
        started_s = time.process_time()
        work()
        taken.append(1e3 * (time.process_time() - started_s))
    return statistics.median(taken)


def _cost(live: Live, hostile: _Hostile) -> str:
    """Return the server's processor time for one such body, and how many times parsing it is."""
    before_s = _cpu_s(live)
    with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": KEY}, timeout=60) as client:
        for _ in range(5):
            _post(client, hostile)
    taken_ms = 1e3 * (_cpu_s(live) - before_s) / 5
    parsing_ms = _once_ms(lambda: _parse(hostile.body))
    return f"{taken_ms:.0f} ms, {taken_ms / max(parsing_ms, 0.1):.1f}"


def _parse(body: bytes) -> object:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError:
        return None


@contextmanager
def _runtime(folder: Path) -> Iterator[str]:
    """Let servers import a runtime whose code sleeps; yields the line that names it."""
    folder.joinpath("sleeping_runtime.py").write_text(_RUNTIME, encoding="utf-8")
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(folder) if before is None else f"{folder}{os.pathsep}{before}"
    yield 'reactor_runtime = "sleeping_runtime:run"\n'


def main(*, big: bool = False) -> None:
    """Print the table."""
    seconds = _BIG_SECONDS if big else _SECONDS
    with (
        tempfile.TemporaryDirectory() as folder,
        _runtime(Path(folder)) as more,
        served(
            Path(folder), "--store", f"{folder}/a.db", more=more, quota=5, keys=(KEY, _VICTIM)
        ) as live,
    ):
        bounds = live.lines[-1]
        print("the server's bounds:", json.dumps(bounds))
        table = Table(title=f"A victim beside {_SENDERS} connections of another key, {seconds:g} s")
        for name in ("body", "sent", "answers", "p50 ms", "p99 ms", "worst ms", "MB", "one costs"):
            table.add_column(name, justify="left" if name == "body" else "right")
        most = 0
        for name, hostile in _bodies(live).items():
            waits, most_bytes, statuses = _beside(live, hostile, seconds)
            p50, p99 = statistics.median(waits), statistics.quantiles(waits, n=100)[98]
            most = max(most, most_bytes)
            is_sent = hostile.body and not hostile.connections
            table.add_row(
                name,
                str(len(statuses) or hostile.connections),
                " ".join(map(str, sorted(set(statuses)))),
                f"{p50:.1f}",
                f"{p99:.1f}",
                f"{max(waits):.1f}",
                f"{most_bytes / 1e6:.0f}",
                _cost(live, hostile) if is_sent else "",
            )
        Console(width=120).print(table)
        print(f"memory: {most / 1e6:.0f} MB of the {bounds['memory_bytes'] / 1e6:.0f} MB bound")
        print("`one costs`: processor time of the server, and how many times `orjson.loads` of it")
        print("goal: p99 below 250 ms whatever is sent; a refused body at most 2 times its parsing")
        print(
            "`below the bounds` cost more: by D-ORDER permissions, every fault and the look-up of"
        )
        print("duplicates come before the quota; the bounds of D-BODY-COST say how much more")
