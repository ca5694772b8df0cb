"""What `serve --demo` makes: tenants, keys by role, proxies, an encryption key.

Each role is one application (or proxies of one), so that there is a key for every class of the
limits and every right that a clause names. Key texts are derived from the master key: with a kept
store, the next start finds everything in place and shows the same keys again.

`target_of` is the conformance target of a demo: the harness's description of a deployment, as
TOML. It holds keys, so that it can be used unchanged; only its owner can read the file.
"""

from __future__ import annotations

import hmac
import itertools
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from engine.command_line import schema_line
from engine.errors import InputError, reason_of
from engine.files import Document, to_plain, to_toml
from engine.hosts import EXAMPLE_SUFFIXES
from engine.http.configuration import (
    ApplicationTable,
    GrantTable,
    QuotaTable,
    ServeConfig,
    TenantTable,
    provision,
)
from engine.identity import ASKABLE, new_key_text, secret_text
from engine.model import Application, ApplicationKind, EncryptionKey, Proxy, Tenant
from engine.resources.applications import new_key
from engine.resources.identification import hash_key_text
from engine.service import Engine

ONE_CONTAINER: Final = "/pci/"
"""Where the key of role `private_one_container` may create tokens."""

_TOKEN_RIGHTS: Final = ("token:create", "token:update", "token:delete", "token:search")
_READER: Final = (
    *_TOKEN_RIGHTS,
    "token:read",
    "token:use",
    "token-intent:create",
    "token-intent:read",
    "token-intent:delete",
    "log:read",
)
_SLOW_S: Final = 26
_TIMEOUT_S: Final = 25


_RETAINED_NS: Final = 3 * 1_000_000_000

DEMO_TENANTS: Final[Mapping[str, TenantTable]] = {
    "demo-production": TenantTable(name="demo-production"),
    "demo-test": TenantTable(name="demo-test", kind="test"),
    "demo-dedup": TenantTable(name="demo-dedup", kind="test"),
    "demo-short": TenantTable(
        name="demo-short",
        kind="test",
        quotas=QuotaTable(
            log_retention_ns=_RETAINED_NS,
            cvc_retention_ns=_RETAINED_NS,
            token_intent_retention_ns=_RETAINED_NS,
        ),
    ),
}
"""The demo's tenants, by name."""


def _application(
    role: str,
    permissions: Sequence[str] = _TOKEN_RIGHTS,
    *,
    tenant: str = "demo-production",
    kind: ApplicationKind = "private",
    container: str = "/",
) -> ApplicationTable:
    grants = (GrantTable(container=container, permissions=tuple(permissions)),)
    return ApplicationTable(
        name=role, tenant=tenant, kind=kind, grants=grants if permissions else ()
    )


_APPLICATIONS: Final = (
    _application("private_test", tenant="demo-test"),
    _application("private_prod"),
    _application("public", ("token:create",), kind="public"),
    _application("management", sorted(ASKABLE["management"]), kind="management"),
    _application("legacy"),
    _application("private_reader", _READER),
    _application("private_no_permission", ()),
    _application("private_one_container", ("token:create",), container=ONE_CONTAINER),
    _application("dedup", tenant="demo-dedup"),
    _application("dedup_reader", _READER, tenant="demo-dedup"),
    _application("short", _READER, tenant="demo-short"),
)
"""An application for each role, named after it."""

_ROLES_OF_MANY_KEYS: Final = frozenset(
    {"private_test", "private_prod", "public", "management", "legacy"}
)


def demo_lines(
    engine: Engine, secret: bytes, keys_a_role: int, destination_url: str
) -> Iterator[dict[str, Any]]:
    """Create the demo, or find it in the store; returns its output lines, one per key.

    secret: what all key texts are derived from; the master key of a kept store.
    """
    yield from _key_lines(engine, secret, keys_a_role)
    owner = _proxies_owner(engine)
    for number in range(keys_a_role):
        yield _proxy_line(engine, secret, "proxy_key", owner, number, destination_url)
    for number in range(keys_a_role):
        yield _proxy_line(engine, secret, "custom_hostname", owner, number, destination_url)
    yield _encryption_line(engine)
    slow = _proxy_line(engine, secret, "slow_destination", owner, 0, destination_url)
    yield {
        **slow,
        "path": f"/proxy/delay/{_SLOW_S}",
        "delay_s": _SLOW_S,
        "timeout_s": _TIMEOUT_S,
        "destination_url": destination_url,
    }


def _key_lines(engine: Engine, secret: bytes, keys_a_role: int) -> Iterator[dict[str, Any]]:
    """Make what the tables say, where it is missing; returns the line of each API key."""
    setting = engine.profile.dedup.setting_name
    tenants = tuple(
        replace(table, settings={setting: name == "demo-dedup"}, host_suffixes=EXAMPLE_SUFFIXES)
        for name, table in DEMO_TENANTS.items()
    )
    applications = tuple(
        replace(
            row,
            keys=_key_texts(
                engine, secret, row, keys_a_role if row.name in _ROLES_OF_MANY_KEYS else 1
            ),
        )
        for row in _APPLICATIONS
    )
    config = ServeConfig(tenants=tenants, applications=applications)
    provision(engine, config, Document(to_plain(config)))
    header = engine.profile.http.key_header
    for row in applications:
        tenant = _tenant(engine, row.tenant)
        (made,) = (a for a in engine.applications(tenant) if a.name == row.name)
        for text in row.keys:
            yield line_of(row.name, text, header, tenant, made)


def _proxies_owner(engine: Engine) -> Application:
    """Return the application that owns the demo's proxies; it has no key."""
    tenant, name = _tenant(engine, "demo-production"), "proxies"
    known = [a for a in engine.applications(tenant) if a.name == name]
    return known[0] if known else engine.create_application(tenant, name)


def _key_texts(engine: Engine, secret: bytes, row: ApplicationTable, count: int) -> tuple[str, ...]:
    return tuple(
        new_key_text(
            DEMO_TENANTS[row.tenant].kind,
            row.kind,
            region=engine.services.region,
            legacy=row.name == "legacy",
            entropy=_entropy(secret, f"{row.name}/{number}"),
        )
        for number in range(count)
    )


def _tenant(engine: Engine, name: str) -> Tenant:
    return next(tenant for tenant in engine.tenants() if tenant.name == name)


def _proxy_line(
    engine: Engine,
    secret: bytes,
    role: str,
    owner: Application,
    number: int,
    destination_url: str,
) -> dict[str, Any]:
    """Return the line of one proxy: its key, or its hostname."""
    services, tenant = engine.services, _tenant(engine, "demo-production")
    text = "proxy_" + secret_text(_entropy(secret, f"{role}/{number}"))
    is_host = role == "custom_hostname"
    host = f"demo-{number + 1}.proxy.example" if is_host else None
    store = services.store
    with store.transaction():
        # Under a new master key the key texts differ, but the hostnames are the same.
        proxy = (
            store.proxy_by_hash(hash_key_text(text)) if host is None else store.proxy_by_host(host)
        )
        if proxy is None:
            proxy = Proxy(
                id=services.new_id(),
                tenant_id=tenant.id,
                name=f"{role} {number + 1}",
                destination_url=destination_url,
                require_auth=False,
                key_hash=hash_key_text(text),
                host=host,
                created_by=owner.id,
                created_at_ns=services.world.clock.wall_ns,
                configured_by=owner.id,
            )
        store.put(replace(proxy, destination_url=destination_url))
    header = "Host" if is_host else engine.profile.http.proxy_key_header
    return line_of(role, None if is_host else text, header, tenant, owner, host)


def _encryption_line(engine: Engine) -> dict[str, Any]:
    """Return the line of the key for client-side encryption (D-ENCRYPTED)."""
    services, tenant = engine.services, _tenant(engine, "demo-production")
    store = services.store
    with store.transaction():
        known = store.list(EncryptionKey, tenant.id, size=1)
        if not known:
            wall_ns = services.world.clock.wall_ns
            known = [new_key(services, tenant.id, "ECDH-ES", wall_ns)]
            store.put(known[0])
    return {"role": "encryption", "jwk": dict(known[0].public_jwk), "tenant_id": tenant.id}


def _entropy(secret: bytes, label: str) -> Callable[[int], bytes]:
    """Return bytes that follow from the secret and the label."""
    blocks = itertools.count()

    def draw(size: int) -> bytes:
        drawn = hmac.digest(secret, f"demo/{label}/{next(blocks)}".encode(), "sha256")
        assert size == len(drawn), "key texts are made of blocks"
        return drawn

    return draw


def line_of(
    role: str,
    key: str | None,
    header: str,
    tenant: Tenant,
    application: Application,
    host: str | None = None,
) -> dict[str, Any]:
    """Return the line of output for a key, or for the hostname of a proxy."""
    return {
        "role": role,
        "key": key,
        "header": header,
        "tenant_id": tenant.id,
        "tenant_kind": tenant.kind,
        "application_id": application.id,
        "host": host,
    }


_SOURCES: Final = tuple(f"127.0.0.{number}" for number in range(2, 34))
"""Loopback addresses besides 127.0.0.1; IPv6 has only one, ::1."""


def target_of(
    base_url: str,
    engine: Engine,
    lines: Sequence[Mapping[str, Any]],
    **files: str | None,
) -> dict[str, Any]:
    """Return the target of a demo's lines, as the tables of its file.

    files: `profile` and `limits`, where the demo was started with one.
    """
    key_header = engine.profile.http.key_header
    names = {tenant.id: tenant.name for tenant in engine.tenants()}
    keys: list[dict[str, Any]] = []
    plain: dict[str, Any] = {"base_url": base_url, "key_header": key_header}
    if ":" not in (urlsplit(base_url).hostname or ""):
        plain["sources"] = list(_SOURCES)
    for name, value in files.items():
        if value is not None:
            plain[name] = str(Path(value).resolve())
    for line in lines:
        if line["role"] == "encryption":
            plain["encryption_jwk"] = line["jwk"]
            continue
        row = {
            "role": line["role"],
            "tenant": names[line["tenant_id"]],
            "value": line["key"],
            "header": None if line["header"] == key_header else line["header"],
            "host": line["host"],
            "path": line.get("path"),
            "container": ONE_CONTAINER if line["role"] == "private_one_container" else None,
        }
        keys.append({name: value for name, value in row.items() if value is not None})
        if "destination_url" in line:
            plain["destination_url"] = line["destination_url"]
    plain["keys"] = keys
    plain["tenants"] = [
        {"name": name, "kind": DEMO_TENANTS[name].kind, **_quotas(name)}
        for name in dict.fromkeys(row["tenant"] for row in keys)
    ]
    return plain


def _quotas(name: str) -> dict[str, Any]:
    quotas = to_plain(DEMO_TENANTS[name].quotas)
    return {"quotas": quotas} if quotas else {}


def write_target(
    path: Path,
    base_url: str,
    engine: Engine,
    lines: Sequence[Mapping[str, Any]],
    **files: str | None,
) -> None:
    """Write the target of a demo's lines, for its owner alone; `files` are those of `target_of`.

    Raises `InputError` when the file cannot be written.
    """
    target = target_of(base_url, engine, lines, **files)
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            path.chmod(0o600)  # of a file that was there before
            file.write(schema_line("conformance.target", "target.schema.json") + to_toml(target))
    except OSError as error:
        reason = reason_of(error)
        raise InputError(f"--write-target = {path} must be a file to write: {reason}") from None
