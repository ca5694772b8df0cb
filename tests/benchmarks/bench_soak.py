"""A server under steady load: 64 connections that create, read and list, for 600 s with `--big`.

Printed are the waits, the statuses, and the server's memory after each tenth of the time, which
must not grow. Cvcs live for five seconds, so that erasure runs all the time.
"""

import asyncio
import statistics
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Final

import httpx

from tests.engine.http.live import KEY, Live, served

_CONNECTIONS: Final = 64
_SECONDS: Final = 20.0
_BIG_SECONDS: Final = 600.0
_PAUSE_S: Final = 0.2
_CARD: Final = {"type": "card", "data": {"number": "4242424242424242", "cvc": "123"}}


async def _caller(live: Live, end_s: float, waits: list[float], statuses: Counter[int]) -> None:
    """Create a card, read it, list tokens and delete it, one after the other."""
    headers = {"SVC-API-KEY": KEY}
    async with httpx.AsyncClient(base_url=live.url, headers=headers, timeout=60) as client:

        async def ask(method: str, path: str, body: object = None) -> httpx.Response:
            started_s = time.perf_counter()
            answer = await client.request(method, path, json=body)
            waits.append(1e3 * (time.perf_counter() - started_s))
            statuses[answer.status_code] += 1
            await asyncio.sleep(_PAUSE_S)
            return answer

        while time.monotonic() < end_s:
            token = (await ask("POST", "/tokenize", [_CARD])).json()[0]["id"]
            await ask("POST", "/detokenize", [f"{{{{ {token} }}}}"])
            await ask("GET", "/tokens?size=10")
            await ask("DELETE", f"/tokens/{token}")


async def _soak(live: Live, seconds: float) -> None:
    waits: list[float] = []
    statuses: Counter[int] = Counter()
    start_s = time.monotonic()
    callers = [
        asyncio.create_task(_caller(live, start_s + seconds, waits, statuses))
        for _ in range(_CONNECTIONS)
    ]
    for tenth in range(1, 11):
        await asyncio.sleep(max(0, start_s + tenth * seconds / 10 - time.monotonic()))
        quantiles = statistics.quantiles(waits, n=100)
        print(
            f"{tenth * seconds / 10:4.0f} s: {len(waits)} answers, p50 {quantiles[49]:.0f} ms,"
            f" p99 {quantiles[98]:.0f} ms, worst {max(waits):.0f} ms,"
            f" {live.memory_bytes() / 1e6:.0f} MB",
            flush=True,
        )
        waits.clear()
    await asyncio.gather(*callers)
    print("statuses:", dict(sorted(statuses.items())))


def main(*, big: bool = False) -> None:
    """Print a line for each tenth of the time."""
    with (
        tempfile.TemporaryDirectory() as folder,
        served(Path(folder), "--store", f"{folder}/a.db", cvc_retention="5s") as live,
    ):
        asyncio.run(_soak(live, _BIG_SECONDS if big else _SECONDS))
        print("stopped with", live.stop())
