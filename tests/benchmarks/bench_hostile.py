"""What one caller's bodies do to everybody else: the victim's waits beside each hostile body.

One key sends 4 MB bodies of one kind after the other over four connections, as fast as they are
answered; a victim with a key of its own tokenizes one string every 20 ms. Printed are the victim's
waits, the server's memory against the bound that it printed at its start, and what a refused body
costs against parsing its bytes.
"""

import json
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

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


def _bodies(live: Live) -> dict[str, bytes]:
    public = live.ask("POST", "/keys", json={"algorithm": "ECDH-ES"}).json()["public_key"]
    sealed = orjson.dumps({"type": "token", "encrypted": jwe.encrypt(public, b'"x"')})
    repeated = orjson.dumps({"type": "token", "data": "", "deduplicate_token": True})
    return {
        "nothing": b"",
        "JWEs": _repeated(sealed),
        "100 JWEs, all opened": b"[" + b",".join([sealed] * 100) + b"]",
        "empty strings": _repeated(b'""'),
        "equal objects, deduplicated": _repeated(repeated),
        "10 000 of these": b"[" + b",".join([repeated] * 10_000) + b"]",
        "distinct strings": orjson.dumps([f"{number:07}" for number in range(_SIZE // 10)]),
        "10 000 distinct strings": orjson.dumps([f"{number:07}" for number in range(10_000)]),
        "numbers": _repeated(b"1"),
        "empty arrays": _repeated(b"[]"),
        "deep arrays": _repeated(b"[" * 60 + b"]" * 60),
        "one long string of escapes": b'["' + rb"\\" * (_SIZE // 2) + b'"]',
        "one object, one name": b"{" + b",".join([b'"":""'] * (_SIZE // 6)) + b"}",
    }


def _post(client: httpx.Client, body: bytes) -> int:
    return client.post("/tokenize", content=body, headers=_JSON).status_code


def _beside(live: Live, body: bytes, seconds: float) -> tuple[list[float], int, set[int]]:
    """Return the victim's waits in milliseconds, how many hostile answers, and their statuses."""
    stopping = threading.Event()
    statuses: list[int] = []

    def send() -> None:
        with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": KEY}, timeout=60) as client:
            while not stopping.is_set():
                statuses.append(_post(client, body))

    senders = [threading.Thread(target=send) for _ in range(_SENDERS if body else 0)]
    for sender in senders:
        sender.start()
    waits: list[float] = []
    with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": _VICTIM}, timeout=60) as victim:
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            started_s = time.perf_counter()
            assert _post(victim, b'{"name":"Ada"}') == 200
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


def _cost(live: Live, body: bytes) -> str:
    """Return the server's processor time for one such body, and how many times parsing it is."""
    before_s = _cpu_s(live)
    with httpx.Client(base_url=live.url, headers={"SVC-API-KEY": KEY}, timeout=60) as client:
        for _ in range(5):
            _post(client, body)
    taken_ms = 1e3 * (_cpu_s(live) - before_s) / 5
    parsing_ms = _once_ms(lambda: orjson.loads(body))
    return f"{taken_ms:.0f} ms, {taken_ms / max(parsing_ms, 0.1):.1f}"


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
        for name, body in _bodies(live).items():
            waits, sent, statuses = _beside(live, body, seconds)
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
                _cost(live, body) if body else "",
            )
        Console(width=120).print(table)
        print(f"memory: {most / 1e6:.0f} MB of the {bounds['memory_bytes'] / 1e6:.0f} MB bound")
        print("`one costs`: processor time of the server, and how many times `orjson.loads` of it")
        print("goal: p99 below 250 ms whatever is sent; a refused body at most 2 times its parsing")
