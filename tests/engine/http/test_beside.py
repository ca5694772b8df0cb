"""What stands beside the service: metrics, the access log, the demo's destination, locks."""

from __future__ import annotations

import asyncio
import json
import platform
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import simulator
from engine import __version__
from engine.errors import StoreBusy, StoreError
from engine.http.access_log import AccessLog, Metrics
from engine.http.exposition import exposition
from engine.http.pages import _Health
from engine.http.server import _echo
from engine.messages import Decision, Request
from engine.service import Engine
from tests.engine.http.live import Live

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


# --- the access log ------------------------------------------------------------------------------


_MAP = """\
time = "time"
address = "ip"
key = "key"
tenant = {{ {0} }}
tenant_kind = {{ {1} }}
application = {{ {2} }}
application_kind = {{ {3} }}
"""
_FIELDS = ("tenant", "tenant_kind", "application", "application_kind")
_SECRET = "4242424242424242"


def _serve(log: Path, form: str) -> tuple[int, str]:
    """Serve the demo with a log; return how many requests of a key were refused, and its text."""
    options = ("--access-log", str(log), "--access-log-format", form)
    with Live("--demo", "--demo-keys", "1", *options) as live:
        (line,) = live.keys("private_test")
        statuses = [
            live.ask("GET", f"/tokens?metadata.card={_SECRET}", key=line["key"]).status_code
            for _ in range(60)
        ]
        live.ask("GET", "/healthz", key=None)
        live.ask("POST", "/tokenize", key="key_unknown", json={"number": _SECRET})
        live.stop()
    return statuses.count(429), line["key"]


@pytest.mark.slow
@pytest.mark.parametrize("form", ["combined", "json"])
def test_a_replay_of_the_log_refuses_what_the_server_refused(form: str, tmp_path: Path) -> None:
    log, mapping = tmp_path / "access.log", tmp_path / "map.toml"
    refused, key = _serve(log, form)
    assert refused > 0
    text = log.read_text(encoding="ascii")
    assert len(text.splitlines()) == 61, "pages are no requests of the service"
    assert key not in text
    assert _SECRET not in text
    assert re.search(r"key_[0-9a-f]{8}-", text)
    if form == "json":
        _check_decisions([json.loads(line) for line in text.splitlines()], refused)
    fields = [f'field = "{name}", default = "none"' for name in _FIELDS]
    if form == "combined":  # has no tenants: the one key of the log is told apart from no key
        fields = ['value = "demo"', 'value = "test"', 'value = "demo"', 'value = "private"']
    else:
        fields[1] = fields[1].replace("none", "test")
        fields[3] = fields[3].replace("none", "private")
    lines = _MAP.format(*fields)
    if form == "combined":
        lines = lines.replace('"ip"', '"address"')
    mapping.write_text(lines, encoding="utf-8")
    result = simulator.replay(log, map=mapping)
    assert result.summary["totals"]["offered"] == 61
    if form == "json":  # to the nanosecond, and without a map too
        assert result.summary["totals"]["refused"] == refused
        known = simulator.replay(log).summary
        assert (known["replay"]["format"], known["totals"]["refused"]) == ("tollgate", refused)
    else:  # to the second: a window may hold a second's requests more or fewer
        assert result.summary["totals"]["refused"] > 0


def _check_decisions(entries: list[dict[str, Any]], refused: int) -> None:
    by_limit = [entry for entry in entries if entry["rule"] == "LIM-TEST-TENANT"]
    assert len(by_limit) == refused
    assert {entry["status"] for entry in by_limit} == {429}
    assert min(entry["wait_ns"] for entry in by_limit) > 0
    assert {entry["path"] for entry in entries} == {"/tokens", "/tokenize"}
    assert entries[-1].get("key") is None
    assert len({entry["request_id"] for entry in entries}) == len(entries)


def test_what_a_client_writes_stays_in_its_field(tmp_path: Path) -> None:
    log = tmp_path / "access.log"
    engine = Engine(seed=7)
    access_log = AccessLog(log, "combined", engine)
    headers = {"user-agent": 'a"b\\c\n\xe9', "referer": f"http://x/?card={_SECRET}"}
    request = Request("GET", '/a"b\nc', ip="192.0.2.1", headers=headers)
    access_log.write(request, None, b"id", size=0, started_ns=0)
    access_log.close()
    line = log.read_text(encoding="ascii")
    head, _, rest = line.partition('] "')
    assert head.startswith("192.0.2.1 - - [")
    assert rest == (
        'GET /a\\x22b\\x0Ac HTTP/1.1" 499 0 "http://x/" "a\\x22b\\x5Cc\\x0A\\xEF\\xBF\\xBD" "-"\n'
    )


def test_a_full_disk_delays_no_response(caplog: pytest.LogCaptureFixture) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("needs /dev/full, a device of Linux")
    access_log = AccessLog(full, "json", Engine(seed=7))
    for _ in range(3):
        request = Request("GET", "/tokens", ip="192.0.2.1")
        access_log.write(request, None, b"id", size=0, started_ns=0)
    access_log.close()
    assert len(caplog.records) == 1
