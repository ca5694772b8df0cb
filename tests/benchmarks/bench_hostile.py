"""What one caller's bodies do to everybody else: the victim's waits beside each hostile request.

One key sends bodies of one kind after the other over four connections, as fast as they are
answered, most to /tokenize, the last to /detokenize, a proxy and a reactor; a victim with a key of
its own tokenizes one string every 20 ms. Printed are the victim's waits, the server's memory
against the bound that it printed at its start, and what a refused body costs against parsing it.
"""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
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


@dataclass(frozen=True)
class _Hostile:
    """One request: a body, and where it goes."""

    body: bytes
    path: str = "/tokenize"
    proxy_key: str | None = None


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
        "below the bounds, 10 000 of these": b"[" + b",".join([repeated] * 10_000) + b"]",
        "distinct strings": orjson.dumps([f"{number:07}" for number in range(_SIZE // 10)]),
        "below the bounds, 10 000 strings": orjson.dumps(
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
    return {**{name: _Hostile(body) for name, body in tokenized.items()}, **_elsewhere(live)}


def _post(client: httpx.Client, hostile: _Hostile) -> int:
    headers = dict(_JSON)
    if hostile.proxy_key is not None:
        headers["SVC-PROXY-KEY"] = hostile.proxy_key
    return client.post(hostile.path, content=hostile.body, headers=headers).status_code


def _beside(live: Live, hostile: _Hostile, seconds: float) -> tuple[list[float], int, set[int]]:
    """Return the victim's waits in milliseconds, how many hostile answers, and their statuses."""
    stopping = threading.Event()
    statuses: list[int] = []

    def send() -> None:
        with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": KEY}, timeout=60) as client:
            while not stopping.is_set():
                statuses.append(_post(client, hostile))

    senders = [threading.Thread(target=send) for _ in range(_SENDERS if hostile.body else 0)]
    for sender in senders:
        sender.start()
    waits: list[float] = []
    with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": _VICTIM}, timeout=60) as victim:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            started_s = time.perf_counter()
            assert _post(victim, _Hostile(b'{"name":"Ada"}')) == 200
            waits.append(1e3 * (time.perf_counter() - started_s))
            time.sleep(_PACE_S)
    stopping.set()
    for sender in senders:
        sender.join()
    return waits, len(statuses), set(statuses)


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


def main(*, big: bool = False) -> None:
    """Print the table."""
    seconds = _BIG_SECONDS if big else _SECONDS
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--store", f"{folder}/a.db", quota=5, keys=(KEY, _VICTIM)) as live,
    ):
        bounds = live.lines[-1]
        print("the server's bounds:", json.dumps(bounds))
        table = Table(title=f"A victim beside {_SENDERS} connections of another key, {seconds:g} s")
        for name in ("body", "sent", "answers", "p50 ms", "p99 ms", "worst ms", "MB", "one costs"):
            table.add_column(name, justify="left" if name == "body" else "right")
        most = 0
        for name, hostile in _bodies(live).items():
            waits, sent, statuses = _beside(live, hostile, seconds)
            p50, p99 = statistics.median(waits), statistics.quantiles(waits, n=100)[98]
            most = max(most, live.memory_bytes())
            table.add_row(
                name,
                str(sent),
                " ".join(map(str, sorted(statuses))),
                f"{p50:.1f}",
                f"{p99:.1f}",
                f"{max(waits):.1f}",
                f"{live.memory_bytes() / 1e6:.0f}",
                _cost(live, hostile) if hostile.body else "",
            )
        Console(width=120).print(table)
        print(f"memory: {most / 1e6:.0f} MB of the {bounds['memory_bytes'] / 1e6:.0f} MB bound")
        print("`one costs`: processor time of the server, and how many times `orjson.loads` of it")
        print("goal: p99 below 250 ms whatever is sent; a refused body at most 2 times its parsing")
        print(
            "`below the bounds` cost more: by D-ORDER permissions, every fault and the look-up of"
        )
        print("duplicates come before the quota; the bounds of D-BODY-COST say how much more")
