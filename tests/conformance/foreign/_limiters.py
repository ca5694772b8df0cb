"""Limiters that others wrote, in the right and in wrong configurations, and what the suite says.

Each runs for real, as a child on loopback: express-rate-limit, rate-limiter-flexible and
@fastify/rate-limit from npm, Flask-Limiter and django-ratelimit from PyPI, nginx and HAProxy. What
npm needs is installed into a cache folder.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.context.verdicts import Verdict, worst
from conformance.runner.runner import Options, Run
from conformance.target import Target
from engine.files import Document
from tests.children import free_port
from tests.conformance.foreign._servers import await_port, program, running

FOLDER: Final = Path(__file__).with_name("limiters")
_NPM: Final = (
    "express@5",
    "express-rate-limit@8",
    "rate-limiter-flexible@9",
    "fastify@5",
    "@fastify/rate-limit@10",
)
NODE_KINDS: Final = ("express-rate-limit", "rate-limiter-flexible", "@fastify/rate-limit")
PYTHON_KINDS: Final = ("Flask-Limiter", "django-ratelimit")
PROXY_KINDS: Final = ("nginx", "HAProxy")
KINDS: Final = (*NODE_KINDS, *PYTHON_KINDS, *PROXY_KINDS)
BLOCKING: Final = ("rate-limiter-flexible", "HAProxy")
_LIMIT: Final = 40
_WINDOW_MS: Final = 10_000
_BLOCK_MS: Final = 4_000
_KEYS: Final = 8
_SOURCES: Final = 16


@dataclass(frozen=True, slots=True)
class Configuration:
    """A limiter, what is configured, and whether that is right. fault: what is wrong with it."""

    kind: str
    fault: str = ""
    limit: int = _LIMIT
    window_ms: int = _WINDOW_MS
    block_ms: int = 0
    by: str = "pair"
    left_out: str = ""
    limited: bool = True
    is_block_row: bool = False

    @property
    def name(self) -> str:
        """A line of the table."""
        row = "block" if self.is_block_row else "throttle"
        return f"{self.kind}, {row} row, {self.fault or 'right'}"

    @property
    def rule_id(self) -> str:
        """The row that it must obey."""
        return "LIM-PUBLIC" if self.is_block_row else "LIM-CREATE"

    @property
    def role(self) -> str:
        """The role of the row's keys."""
        return "public" if self.is_block_row else "private_prod"


def configurations() -> list[Configuration]:
    """Return every limiter in the right configuration and in wrong ones."""
    found = []
    for kind in KINDS:
        rows = [Configuration(kind)]
        if kind in BLOCKING:
            rows.append(Configuration(kind, block_ms=_BLOCK_MS, is_block_row=True))
        for right in rows:
            found.append(right)
            changes: dict[str, dict[str, Any]] = {
                "one more": {"limit": _LIMIT + 1},
                "one less": {"limit": _LIMIT - 1},
                "a tenth less": {"limit": _LIMIT * 9 // 10},
                "a tenth more": {"limit": _LIMIT * 11 // 10},
                "window a tenth shorter": {"window_ms": _WINDOW_MS * 9 // 10},
                "window a tenth longer": {"window_ms": _WINDOW_MS * 11 // 10},
                "by key alone": {"by": "key"},
                "no limit": {"limited": False},
            }
            if right.is_block_row:
                changes["no block"] = {"block_ms": 0}
            else:
                changes["POST /tokens left out"] = {"left_out": "/tokens"}
            if kind == "nginx":  # the burst of a bucket is not the row's number
                changes = {name: x for name, x in changes.items() if not name.startswith("one ")}
            found += [
                dataclasses.replace(right, fault=name, **change) for name, change in changes.items()
            ]
    return found


@contextmanager
def serving(configuration: Configuration, folder: Path) -> Iterator[int]:
    """Run a limiter with a small service behind it; gives its port. Skips what is not installed."""
    given = {
        "limit": configuration.limit,
        "window_ms": configuration.window_ms,
        "block_ms": configuration.block_ms,
        "by": configuration.by,
        "left_out": configuration.left_out,
        "limited": configuration.limited,
        "anything": configuration.is_block_row,
    }
    if configuration.kind in PROXY_KINDS:
        open_service = {**given, "limited": False}
        with _child(_node_command("express-rate-limit", open_service), folder / "behind") as behind:
            make = _nginx if configuration.kind == "nginx" else _haproxy
            with make(configuration, folder / "front", behind) as port:
                yield port
        return
    command = _node_command(configuration.kind, given)
    if configuration.kind in PYTHON_KINDS:
        script = str(FOLDER / "__main__.py")
        command = ([sys.executable, script, configuration.kind, "PORT", json.dumps(given)], {})
    with _child(command, folder / "service") as port:
        yield port


def _node_command(kind: str, given: Mapping[str, Any]) -> tuple[list[str], dict[str, str]]:
    node = program("node")
    command = [node, str(FOLDER / "node.cjs"), kind, "PORT", json.dumps(given)]
    return command, {"NODE_PATH": str(npm_packages())}


def npm_packages() -> Path:
    """Return the folder of the packages from npm; installs them once."""
    npm = program("npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "tollgate-tests" / "npm"
    if (folder / "complete").exists():
        return folder / "node_modules"
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder.parent) as fresh:
        command = [npm, "install", "--no-audit", "--no-fund", "--no-package-lock", *_NPM]
        done = subprocess.run(
            command, cwd=fresh, capture_output=True, text=True, timeout=300, check=False
        )
        if done.returncode:
            pytest.skip(f"npm install failed: {done.stderr.strip()[-300:]}")
        modules = folder / "node_modules"
        if not modules.exists():
            shutil.move(Path(fresh) / "node_modules", modules)
    (folder / "complete").touch()
    return folder / "node_modules"


@contextmanager
def _child(command: tuple[list[str], dict[str, str]], folder: Path) -> Iterator[int]:
    folder.mkdir(parents=True)
    port = free_port()
    arguments = [str(port) if part == "PORT" else part for part in command[0]]
    with running(arguments, folder, command[1]) as child:
        await_port(port, child, folder)
        yield port


@contextmanager
def _nginx(configuration: Configuration, folder: Path, behind: int) -> Iterator[int]:
    nginx = program("nginx")
    folder.mkdir(parents=True)
    port = free_port()
    key = {"pair": "$remote_addr|$http_x_api_key", "key": "$http_x_api_key"}[configuration.by]
    per_minute = configuration.limit * 60_000 // configuration.window_ms
    limit = f"limit_req zone=pairs burst={configuration.limit - 1} nodelay;"
    paths = [] if not configuration.limited else ["/tokenize", "/tokens"]
    limited = "".join(
        f"location = {path} {{ {limit} proxy_pass http://behind; }}\n"
        for path in paths
        if path != configuration.left_out
    )
    temporary = "".join(
        f"{name}_temp_path {folder / name};\n"
        for name in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    )
    (folder / "nginx.conf").write_text(f"""\
daemon off;
master_process off;
pid {folder / "nginx.pid"};
error_log stderr crit;
events {{ worker_connections 1024; }}
http {{
access_log off;
{temporary}
map $request_method $party {{ POST "{key}"; default ""; }}
limit_req_zone $party zone=pairs:1m rate={per_minute}r/m;
limit_req_status 429;
proxy_http_version 1.1;
proxy_set_header Connection "";
upstream behind {{ server 127.0.0.1:{behind}; keepalive 64; }}
server {{
listen 127.0.0.1:{port};
keepalive_requests 100000;
{limited}
location / {{ proxy_pass http://behind; }}
}}
}}
""")
    command = [nginx, "-p", str(folder), "-c", str(folder / "nginx.conf"), "-e", "stderr"]
    with running(command, folder) as child:
        await_port(port, child, folder)
        yield port


@contextmanager
def _haproxy(configuration: Configuration, folder: Path, behind: int) -> Iterator[int]:
    """Run HAProxy: its rates are a sliding counter; a tag in the table blocks until it expires."""
    haproxy = program("haproxy")
    folder.mkdir(parents=True)
    port = free_port()
    key = {"pair": "%[src]|%[req.hdr(X-API-Key)]", "key": "%[req.hdr(X-API-Key)]"}[configuration.by]
    paths = [path for path in ("/tokenize", "/tokens") if path != configuration.left_out]
    which = f"{{ method POST }} {{ path {' '.join(paths)} }}"
    if configuration.is_block_row:
        which = "TRUE"
    rate = f"http_req_rate({configuration.window_ms}ms)"
    over = f"{{ sc0_http_req_rate gt {configuration.limit} }}"
    rules = f"""\
    http-request set-var-fmt(txn.pair) "{key}"
    http-request track-sc1 var(txn.pair) table blocked if {{ var(txn.pair) -m found }}
    http-request deny deny_status 429 if {{ sc1_get_gpc0 gt 0 }}
    http-request track-sc0 var(txn.pair) table rates if {which}
    http-request sc-inc-gpc0(1) if {over}
    http-request deny deny_status 429 if {over}
"""
    if not configuration.block_ms:
        rules = f"""\
    http-request set-var-fmt(txn.pair) "{key}"
    http-request track-sc0 var(txn.pair) table rates if {which}
    http-request deny deny_status 429 if {over}
"""
    (folder / "haproxy.cfg").write_text(f"""\
global
    maxconn 1000
defaults
    mode http
    timeout connect 5s
    timeout client 30s
    timeout server 30s
backend rates
    stick-table type string len 256 size 10k expire 60s store {rate}
backend blocked
    stick-table type string len 256 size 10k expire {configuration.block_ms or 1000}ms store gpc0
frontend front
    bind 127.0.0.1:{port}
{rules if configuration.limited else ""}\
    default_backend behind
backend behind
    server one 127.0.0.1:{behind}
""")
    with running([haproxy, "-db", "-f", str(folder / "haproxy.cfg")], folder) as child:
        await_port(port, child, folder)
        yield port


@dataclass(frozen=True, slots=True)
class Judged:
    """What the suite said of a limiter, and how long it took."""

    configuration: Configuration
    verdict: Verdict
    message: str
    took_s: float

    @property
    def is_right(self) -> bool:
        """Whether a right limiter passed, or a wrong one failed."""
        return self.verdict is (Verdict.FAIL if self.configuration.fault else Verdict.PASS)


def judge(configuration: Configuration) -> Judged:
    """Run a limiter, and the check of the row that it must obey."""
    began_s = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with serving(configuration, folder) as port:
            run = Run(_target(configuration, folder, port), _options(configuration))
            run.execute()
    findings = [x for x in run.findings if x.clause == configuration.rule_id]
    verdict = worst(findings)
    message = next((x.message for x in findings if x.verdict is verdict), "")
    return Judged(configuration, verdict, message, time.monotonic() - began_s)


def _options(configuration: Configuration) -> Options:
    rule_id = configuration.rule_id
    return Options(select=(rule_id,), checks=(f"limits.{rule_id}",), leaves=True)


def _target(configuration: Configuration, folder: Path, port: int) -> Target:
    window_s = _WINDOW_MS // 1000
    resource = '["POST /tokenize", "POST /tokens"]'
    match = 'application = "public"' if configuration.is_block_row else f"resource = {resource}"
    action = "throttle"
    if configuration.is_block_row:
        action = f'block"\nblock = "{_BLOCK_MS // 1000}s'
    limits = folder / "limits.toml"
    limits.write_text(f"""\
[[rule]]
id = "{configuration.rule_id}"
match = {{ {match} }}
counter = "ip+key"
rate = "{_LIMIT}/{window_s}s"
action = "{action}"
""")
    return Target.from_document(
        Document(
            {
                "base_url": f"http://127.0.0.1:{port}",
                "key_header": "X-API-Key",
                "sources": [f"127.0.0.{place}" for place in range(2, 2 + _SOURCES)],
                "limits": str(limits),
                "keys": [
                    {"role": configuration.role, "tenant": "acme", "value": f"key-{place}"}
                    for place in range(_KEYS)
                ],
                "tenants": [{"name": "acme", "kind": "production"}],
            }
        )
    )
