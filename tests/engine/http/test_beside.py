"""What stands beside the service: its metrics, the demo's destination, and waits for a lock."""

from __future__ import annotations

import asyncio
import json
import platform
from types import SimpleNamespace
from typing import Any

import pytest

from engine import __version__
from engine.errors import StoreBusy, StoreError
from engine.http.access_log import Metrics
from engine.http.exposition import exposition
from engine.http.pages import _Health
from engine.http.server import _echo
from engine.messages import Decision

MS = 1_000_000


def test_latencies_are_counted_up_to_each_bound() -> None:
    """A bound belongs to its bucket, as Prometheus has it; the last one takes all."""
    metrics = Metrics()
    refused = Decision("refused", "LIM-READ", shadow=("own", "other"))
    for latency_ns in (0, 5 * MS, 5 * MS + 1, 250 * MS, 10_000 * MS, 30_000 * MS + 1):
        metrics.count("list_tokens", 429, refused, latency_ns)
    metrics.count("tokenize", 200, Decision("admitted"), 1_000 * MS)
    lines = exposition(metrics).decode().splitlines()
    buckets = dict(
        line.removeprefix('tollgate_request_duration_seconds_bucket{le="').split('"} ')
        for line in lines
        if "_bucket{" in line
    )
    expected = {
        "0.005": 2,
        "0.25": 4,
        "0.5": 4,
        "1": 5,
        "2.5": 5,
        "10": 6,
        "30": 6,
        "+Inf": 7,
    }
    assert {bound: float(buckets[bound]) for bound in expected} == expected
    for said in (
        'tollgate_requests_total{operation="list_tokens",status="429"} 6.0',
        'tollgate_requests_total{operation="tokenize",status="200"} 1.0',
        'tollgate_decisions_total{outcome="refused",rule="LIM-READ"} 6.0',
        'tollgate_decisions_total{outcome="admitted",rule=""} 1.0',
        'tollgate_shadow_refusals_total{rule="other"} 6.0',
        f'tollgate_build_info{{python="{platform.python_version()}",version="{__version__}"}} 1.0',
        "tollgate_requests_in_flight 0.0",
        "tollgate_request_duration_seconds_count 7.0",
        "tollgate_request_duration_seconds_sum 41.260000002",
    ):
        assert said in lines


@pytest.mark.parametrize(
    ("target", "waits"),
    [
        ("/a?b=c", []),
        ("/delay/0.001", [0.001]),
        ("/a/delay/26?b=c", [26.0]),
        ("/delay/60", [60.0]),
        ("/delay/99.999", [60.0]),
        ("/delay/100", []),
        ("/delay/x", []),
    ],
)
def test_the_demos_destination_echoes_after_the_delay_that_is_asked(
    target: str, waits: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    """ERR-408 can be seen without another machine; secrets are not shown."""
    slept: list[float] = []
    sent: list[dict[str, Any]] = []

    async def sleep(seconds: float) -> None:
        slept.append(seconds)

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"abc", "more_body": False}

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    monkeypatch.setattr("engine.http.server.asyncio.sleep", sleep)
    path, _, query = target.partition("?")
    headers = [(b"host", b"h"), (b"x-a", b"1"), (b"cookie", b"c"), (b"authorization", b"s")]
    scope = {"type": "http", "method": "PUT", "path": path, "raw_path": path.encode()}
    scope |= {"query_string": query.encode(), "headers": headers, "server": ("h", 80)}
    asyncio.run(_echo(scope, receive, send))
    assert slept == waits
    assert sent[0]["status"] == 200
    shown = {"method": "PUT", "path": target, "headers": {"host": "h", "x-a": "1"}, "body_bytes": 3}
    assert json.loads(sent[1]["body"]) == shown


@pytest.mark.parametrize(
    ("fault", "said", "logged"),
    [
        (None, None, []),
        (StoreBusy("busy"), "The store is locked by another program.", []),
        (
            StoreError("table logs, row 3"),
            "The store cannot be written or read; the service's log says why.",
            ["the store is not healthy: table logs, row 3"],
        ),
    ],
)
def test_a_probe_says_what_is_wrong_and_the_log_why(
    fault: Exception | None,
    said: str | None,
    logged: list[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    def probe() -> None:
        if fault is not None:
            raise fault

    store: Any = SimpleNamespace(probe=probe)
    assert _Health(store)._probe() == said
    assert [record.getMessage() for record in caplog.records] == logged
