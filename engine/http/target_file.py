"""The conformance target of a demo: the harness's description of a deployment, as TOML.

It holds keys, so that it can be used unchanged; only its owner can read the file.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from engine.errors import InputError
from engine.files import to_toml
from engine.http.demo import DEMO_TENANTS, ONE_CONTAINER

__all__ = ["write_target"]

_SOURCES: Final = tuple(f"127.0.0.{number}" for number in range(2, 34))
"""Addresses of this machine beside 127.0.0.1. IPv6 has one such address alone, ::1."""


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
    """Return the demo tenant of a line, by its id once known, else by what its role says."""
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
