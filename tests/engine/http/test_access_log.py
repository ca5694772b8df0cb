"""The access log of `serve`: what it holds, what it never holds, and that `replay` reads it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

import simulator
from engine.http.access_log import AccessLog
from engine.messages import Request
from engine.service import Engine
from tests.engine.http.live import Live

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
