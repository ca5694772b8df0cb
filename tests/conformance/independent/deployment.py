"""Run the independent service: one process, or two behind HAProxy; and write its target.

Every process is a child of the caller and ends with the block.
"""

from __future__ import annotations

import base64
import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey

from tests.children import WITH_US, free_port

__all__ = ["deployment"]

_SERVICE: Final = "tests.conformance.independent.service"
_ROOT: Final = Path(__file__).parents[3]
_PATIENCE_S: Final = 30.0
_PATH: Final = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])
_EVERYWHERE: Final = {"*": ["token:create"]}
_READER: Final = {"*": ["token:create", "token:read"]}
_TENANTS: Final[Mapping[str, Mapping[str, Any]]] = {
    "acme": {"kind": "production", "deduplicate": False},
    "trial": {"kind": "test", "deduplicate": False},
    "twins": {"kind": "test", "deduplicate": True},
}
# role: tenant, kind of application, grants, how many keys
_ROLES: Final[Mapping[str, tuple[str, str, Mapping[str, Sequence[str]], int]]] = {
    "private_test": ("trial", "private", _EVERYWHERE, 8),
    "private_prod": ("acme", "private", _EVERYWHERE, 8),
    "public": ("acme", "public", _EVERYWHERE, 8),
    "management": ("acme", "management", {}, 8),
    "legacy": ("acme", "private", _EVERYWHERE, 8),
    "private_reader": ("acme", "private", _READER, 1),
    "private_no_permission": ("acme", "private", {}, 1),
    "private_one_container": ("acme", "private", {"cards": ["token:create"]}, 1),
    "dedup": ("twins", "private", _EVERYWHERE, 1),
    "dedup_reader": ("twins", "private", _READER, 1),
}
_TARGET: Final = """\
base_url = "http://127.0.0.1:{port}"
sources = [{sources}]
containers = ["main", "cards"]
default_containers = {{ token = "main", card = "cards" }}
profile = "profile.toml"

[fields]
containers = "vault"

"""


def _keys() -> tuple[dict[str, Any], list[tuple[str, str]]]:
    """Return the service's keys by their text, and (role, text) for the target."""
    tenants = {name: str(uuid.uuid4()) for name in _TENANTS}
    keys, told = {}, []
    for role, (tenant, kind, grants, count) in _ROLES.items():
        for _ in range(count):
            mark = {"test": "_test_", "production": "_prod_"}[_TENANTS[tenant]["kind"]]
            text = "k" + ("-" if role == "legacy" else mark) + secrets.token_hex(12)
            keys[text] = {
                "id": secrets.token_hex(4),
                "kind": kind,
                "legacy": role == "legacy",
                "tenant": tenant,
                "tenant_id": tenants[tenant],
                "tenant_kind": _TENANTS[tenant]["kind"],
                "application_id": str(uuid.uuid4()),
                "grants": grants,
                "deduplicate": _TENANTS[tenant]["deduplicate"],
                "tokenize_limit": 5,
            }
            told.append((role, text))
    return keys, told


def _port(child: subprocess.Popen[str]) -> int:
    assert child.stdout is not None
    line = child.stdout.readline()
    return int(json.loads(line)["port"])


@contextmanager
def _child(command: Sequence[str], **options: Any) -> Iterator[subprocess.Popen[str]]:
    command = [*WITH_US, *command]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, text=True, **options)
    try:
        yield child
    finally:
        child.terminate()
        try:
            child.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()
        if child.stdout is not None:
            child.stdout.close()


def _balancer(folder: Path, port: int, behind: Sequence[int]) -> list[str]:
    """Write HAProxy's configuration and return its command."""
    program = shutil.which("haproxy", path=_PATH)
    if program is None:
        pytest.skip("haproxy is not installed")
    servers = "\n".join(f"  server s{at} 127.0.0.1:{one}" for at, one in enumerate(behind))
    (folder / "haproxy.cfg").write_text(f"""\
global
  maxconn 2000
defaults
  mode http
  option forwardfor
  timeout connect 5s
  timeout client 60s
  timeout server 60s
frontend front
  bind 127.0.0.1:{port}
  default_backend both
backend both
  balance roundrobin
{servers}
""")
    return [program, "-db", "-f", str(folder / "haproxy.cfg")]


def _await(port: int) -> None:
    end_s = time.monotonic() + _PATIENCE_S
    while time.monotonic() < end_s:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    pytest.fail(f"nothing listens at port {port}")


@contextmanager
def deployment(
    folder: Path, *, processes: int = 1, share: bool = True, broken: str | None = None
) -> Iterator[Path]:
    """Run the service and give the path of its target file.

    processes: above 1, that many behind HAProxy, round-robin. share: whether they count together.
    broken: the one thing that the service does wrong, None for nothing.
    """
    folder.mkdir(parents=True, exist_ok=True)
    private = X25519PrivateKey.generate()
    keys, told = _keys()
    base = {
        "keys": keys,
        "store": str(folder / "shared.sqlite") if processes > 1 else ":memory:",
        "share": share,
        "forwarded": processes > 1,
        "broken": broken,
        "pepper": secrets.token_hex(16),
        "private": _text(private.private_bytes_raw()),
    }
    config = folder / "config.json"
    config.write_text(json.dumps(base))
    with ExitStack() as stack:
        ports = []
        for _ in range(processes):
            command = [sys.executable, "-m", _SERVICE, str(config)]
            child = _child(command, cwd=_ROOT, stdout=subprocess.PIPE)
            ports.append(_port(stack.enter_context(child)))
        port = ports[0]
        if processes > 1:
            port = free_port()
            stack.enter_context(_child(_balancer(folder, port, ports)))
            _await(port)
        public = {
            "kty": "OKP",
            "crv": "X25519",
            "x": _text(private.public_key().public_bytes_raw()),
        }
        yield _target(folder, port, told, public)


def _text(raw: bytes) -> str:
    return base64.urlsafe_b64encode(raw).decode().rstrip("=")


def _target(
    folder: Path, port: int, told: Sequence[tuple[str, str]], public: Mapping[str, str]
) -> Path:
    sources = ", ".join(f'"127.0.0.{number}"' for number in range(2, 18))
    lines = [_TARGET.format(port=port, sources=sources)]
    lines.append("[encryption_jwk]\n" + "\n".join(f'{k} = "{v}"' for k, v in public.items()) + "\n")
    for role, text in told:
        lines.append(f'[[keys]]\nrole = "{role}"\nvalue = "{text}"\ntenant = "{_ROLES[role][0]}"')
        if role == "private_one_container":
            lines.append('container = "cards"')
        lines.append("")
    for name, tenant in _TENANTS.items():
        lines.append(f'[[tenants]]\nname = "{name}"\nkind = "{tenant["kind"]}"\n')
    (folder / "profile.toml").write_text('[tokens]\ncontainer_form = "string"\n')
    path = folder / "target.toml"
    path.write_text("\n".join(lines))
    return path
