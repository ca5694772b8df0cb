"""What `serve --demo` makes: tenants, keys by role, proxies, an encryption key.

Each role is one application (or proxies of one), so that there is a key for every class of the
limits and every right that a clause names. Key texts are derived from the master key: with a kept
store, the next start finds everything in place and shows the same keys again.

`target_text` is the conformance target of a demo: the harness's description of a deployment, as
TOML. It holds keys, so that it can be used unchanged; only its owner can read the file.
"""

from __future__ import annotations

import dataclasses
import hmac
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from engine.errors import InputError
from engine.files import to_toml
from engine.hosts import EXAMPLE_SUFFIXES
from engine.identity import ASKABLE, new_key_text, secret_text
from engine.model import Application, ApplicationKind, EncryptionKey, Proxy, Tenant, TenantKind
from engine.service import Engine
from engine.vault import hash_key_text, jwe

ONE_CONTAINER: Final = "/pci/"
"""Where the key of role `private_one_container` may create tokens."""

_FOUR: Final = ("token:create", "token:update", "token:delete", "token:search")
_READER: Final = (
    *_FOUR,
    "token:read",
    "token:use",
    "token-intent:create",
    "token-intent:read",
    "token-intent:delete",
    "log:read",
)
_SLOW_S: Final = 26
_TIMEOUT_S: Final = 25


@dataclass(frozen=True, slots=True, kw_only=True)
class _TenantOf:
    kind: TenantKind
    quotas: Mapping[str, int | str]
    deduplicates: bool = False


DEMO_TENANTS: Final[Mapping[str, _TenantOf]] = {
    "demo-production": _TenantOf(kind="production", quotas={}),
    "demo-test": _TenantOf(kind="test", quotas={}),
    "demo-dedup": _TenantOf(kind="test", quotas={}, deduplicates=True),
    "demo-short": _TenantOf(
        kind="test",
        quotas={"Log Retention": "3s", "CVC Retention": "3s", "Token Intent Retention": "3s"},
    ),
}
"""The demo's tenants, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Role:
    tenant: str = "demo-production"
    kind: ApplicationKind = "private"
    grants: tuple[tuple[str, Sequence[str]], ...] = (("/", _FOUR),)
    legacy: bool = False
    is_many: bool = False


_ROLES: Final[Mapping[str, _Role]] = {
    "private_test": _Role(tenant="demo-test", is_many=True),
    "private_prod": _Role(is_many=True),
    "public": _Role(kind="public", grants=(("/", ("token:create",)),), is_many=True),
    "management": _Role(
        kind="management", grants=(("/", sorted(ASKABLE["management"])),), is_many=True
    ),
    "legacy": _Role(legacy=True, is_many=True),
    "private_reader": _Role(grants=(("/", _READER),)),
    "private_no_permission": _Role(grants=()),
    "private_one_container": _Role(grants=((ONE_CONTAINER, ("token:create",)),)),
    "dedup": _Role(tenant="demo-dedup"),
    "dedup_reader": _Role(tenant="demo-dedup", grants=(("/", _READER),)),
    "short": _Role(tenant="demo-short", grants=(("/", _READER),)),
}


def demo_lines(
    engine: Engine, secret: bytes, keys_a_role: int, destination_url: str
) -> Iterator[dict[str, Any]]:
    """Create the demo, or find it in the store; returns its output lines, one per key.

    secret: what all key texts are derived from; the master key of a kept store.
    """
    demo = _Demo(engine, secret)
    for role, form in _ROLES.items():
        application = demo.application(role, form)
        for number in range(keys_a_role if form.is_many else 1):
            yield demo.key_line(role, form, application, number)
    owner = demo.application("proxies", _Role(grants=()))
    for number in range(keys_a_role):
        yield demo.proxy_line("proxy_key", owner, number, destination_url)
    for number in range(keys_a_role):
        yield demo.proxy_line("custom_hostname", owner, number, destination_url)
    yield demo.encryption_line()
    slow = demo.proxy_line("slow_destination", owner, 0, destination_url)
    yield {
        **slow,
        "path": f"/proxy/delay/{_SLOW_S}",
        "delay_s": _SLOW_S,
        "timeout_s": _TIMEOUT_S,
        "destination_url": destination_url,
    }


class _Demo:
    def __init__(self, engine: Engine, secret: bytes) -> None:
        self._engine = engine
        self._secret = secret
        store = engine.services.store
        with store.transaction(write=False):
            known = {tenant.name: tenant for tenant in store.tenants()}
        self._tenants = {
            name: known.get(name) or self._new_tenant(name, form)
            for name, form in DEMO_TENANTS.items()
        }
        engine.set_host_suffixes(self._tenants["demo-production"], EXAMPLE_SUFFIXES)

    def _new_tenant(self, name: str, form: _TenantOf) -> Tenant:
        setting = self._engine.profile.dedup.setting_name
        return self._engine.create_tenant(
            name, form.kind, quotas=form.quotas, settings={setting: form.deduplicates}
        )

    def application(self, name: str, form: _Role) -> Application:
        """Return the role's application."""
        tenant, store = self._tenants[form.tenant], self._engine.services.store
        with store.transaction(write=False):
            known = [a for a in store.list(Application, tenant.id) if a.name == name]
        if known:
            return known[0]
        return self._engine.create_application(tenant, name, form.kind, grants=form.grants)

    def key_line(
        self, role: str, form: _Role, application: Application, number: int
    ) -> dict[str, Any]:
        """Return the line of one API key."""
        tenant, services = self._tenants[form.tenant], self._engine.services
        text = new_key_text(
            tenant.kind,
            application.kind,
            region=services.region,
            legacy=form.legacy,
            entropy=self._entropy(f"{role}/{number}"),
        )
        with services.store.transaction(write=False):
            is_known = services.store.key_by_hash(hash_key_text(text)) is not None
        if not is_known:
            self._engine.create_key(application, text=text)
        header = self._engine.profile.http.key_header
        return line_of(role, text, header, tenant, application)

    def proxy_line(
        self, role: str, owner: Application, number: int, destination_url: str
    ) -> dict[str, Any]:
        """Return the line of one proxy: its key, or its hostname."""
        services, tenant = self._engine.services, self._tenants["demo-production"]
        text = "proxy_" + secret_text(self._entropy(f"{role}/{number}"))
        is_host = role == "custom_hostname"
        host = f"demo-{number + 1}.proxy.example" if is_host else None
        store = services.store
        with store.transaction():
            # Under a new master key the key texts differ, but the hostnames are the same.
            proxy = (
                store.proxy_by_hash(hash_key_text(text))
                if host is None
                else store.proxy_by_host(host)
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
                )
            store.put(dataclasses.replace(proxy, destination_url=destination_url))
        header = "Host" if is_host else self._engine.profile.http.proxy_key_header
        return line_of(role, None if is_host else text, header, tenant, owner, host)

    def encryption_line(self) -> dict[str, Any]:
        """Return the line of the key for client-side encryption (D-ENCRYPTED)."""
        services, tenant = self._engine.services, self._tenants["demo-production"]
        store = services.store
        with store.transaction():
            known = store.list(EncryptionKey, tenant.id, size=1)
            if known:
                key = known[0]
            else:
                key_id = services.new_id()
                pair = jwe.generate("ECDH-ES", key_id)
                keys = services.vault.of(tenant.id)
                key = EncryptionKey(
                    key_id,
                    tenant.id,
                    "ECDH-ES",
                    pair.public_jwk,
                    keys.seal("/keys/", key_id, pair.private, "private-key"),
                    services.world.clock.wall_ns,
                )
                store.put(key)
        return {"role": "encryption", "jwk": dict(key.public_jwk), "tenant_id": tenant.id}

    def _entropy(self, label: str) -> Callable[[int], bytes]:
        """Return bytes that follow from the secret and the label."""
        block = 0

        def draw(size: int) -> bytes:
            nonlocal block
            drawn = b""
            while len(drawn) < size:
                message = f"demo/{label}/{block}".encode()
                drawn += hmac.digest(self._secret, message, "sha256")
                block += 1
            return drawn[:size]

        return draw


def line_of(  # reason: the fields of a line
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


def write_target(
    path: Path,
    base_url: str,
    key_header: str,
    lines: Sequence[Mapping[str, Any]],
    *,
    profile: str | None = None,
    limits: str | None = None,
) -> None:
    """Write the target of a demo's lines; raises `InputError` when the file cannot be written.

    profile, limits: the files that the demo was started with.
    """
    names: dict[str, str] = {}
    keys: list[dict[str, Any]] = []
    plain: dict[str, Any] = {"base_url": base_url, "key_header": key_header} | _sources(base_url)
    for name, value in (("profile", profile), ("limits", limits)):
        if value is not None:
            plain[name] = str(Path(value).resolve())
    for line in lines:
        if line["role"] == "encryption":
            plain["encryption_jwk"] = line["jwk"]
            continue
        tenant = _tenant_name(line, names)
        row = {"role": line["role"], "tenant": tenant}
        if line["key"] is not None:
            row["value"] = line["key"]
        if line["header"] != key_header:
            row["header"] = line["header"]
        if line["host"] is not None:
            row["host"] = line["host"]
        if line["role"] == "slow_destination":
            row["path"] = line["path"]
            plain["destination_url"] = line["destination_url"]
        if line["role"] == "private_one_container":
            row["container"] = ONE_CONTAINER
        keys.append(row)
    plain["keys"] = keys
    plain["tenants"] = [_tenant(name) for name in names.values()]
    _write(path, to_toml(plain))


def _sources(base_url: str) -> dict[str, Any]:
    is_ipv6 = ":" in (urlsplit(base_url).hostname or "")
    return {} if is_ipv6 else {"sources": list(_SOURCES)}


def _tenant_name(line: Mapping[str, Any], names: dict[str, str]) -> str:
    """Return the demo tenant of a line: by its id if known, else by its role."""
    known = names.get(line["tenant_id"])
    if known is None:
        role = str(line["role"])
        start = role.partition("_")[0]
        known = (
            f"demo-{start}" if f"demo-{start}" in DEMO_TENANTS else f"demo-{line['tenant_kind']}"
        )
        names[line["tenant_id"]] = known
    return known


def _tenant(name: str) -> dict[str, Any]:
    form = DEMO_TENANTS[name]
    found: dict[str, Any] = {"name": name, "kind": form.kind}
    if form.quotas:
        found["quotas"] = dict(form.quotas)
    return found


def _write(path: Path, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        reason = (error.strerror or "no reason given").lower()
        raise InputError(f"--write-target = {path} must be a file to write: {reason}") from None
