"""The target: what the operator says of a deployment under test.

`target.toml` is the contract (shared with `python -m engine serve --write-target`). Secrets come
from `${ENV}`; whatever the file holds of them is shown nowhere. What the target does not say is
discovered, or what it would show stays *skipped* with the line that would change that.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any

from conformance.exchanges import KeyLabel
from engine.files import Integer, Text, from_document, read_toml
from engine.model import TenantKind

__all__ = ["Budget", "RequestShape", "Target", "TargetKey", "TargetTenant"]


@dataclass(frozen=True, kw_only=True)
class TargetKey:
    """One key of the deployment, by what it is for."""

    role: Annotated[str, "what the key is for; roles are those of `serve --demo`"]
    value: Annotated[str, Text(environment=True, secret=True), "the key's text"] = field(
        default="", repr=False
    )
    tenant: Annotated[str | None, "name of its tenant in [[tenants]]"] = None
    header: Annotated[str | None, "header it is sent in, where not the target's own"] = None
    host: Annotated[str | None, "custom hostname, of role custom_hostname"] = None


@dataclass(frozen=True, kw_only=True)
class TargetTenant:
    """A tenant of the deployment."""

    name: str
    kind: TenantKind = "production"
    quotas: Annotated[Mapping[str, int | str] | None, "quotas that differ from the defaults"] = None


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that a run may cost."""

    requests: Annotated[int, Integer(minimum=1), "requests in all"] = 20_000
    minutes: Annotated[int, Integer(minimum=1), "minutes in all"] = 5


@dataclass(frozen=True, kw_only=True)
class RequestShape:
    """How an endpoint is asked, where its shape differs from the engine's assumed one."""

    method: str
    path: str
    body: Mapping[str, Any] | None = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A deployment under test."""

    base_url: Annotated[str, "where the API starts, base path included"]
    key_header: Annotated[str, "request header of the API key"] = "SVC-API-KEY"
    sources: Annotated[tuple[str, ...], "local addresses to send from"] = ()
    forwarded: Annotated[str | None, "trusted header that carries the client address"] = None
    budget: Budget = Budget()
    forbidden: Annotated[tuple[str, ...], "operations that must not be asked for"] = ()
    expected_failures: Annotated[tuple[str, ...], "clauses known to fail"] = ()
    profile: Annotated[str | None, "profile file with what is known of its choices"] = None
    limits: Annotated[str | None, "limit table, where it is not the seed's own"] = None
    keys: tuple[TargetKey, ...] = ()
    tenants: tuple[TargetTenant, ...] = ()
    requests: Annotated[Mapping[str, RequestShape] | None, "[requests.NAME]"] = None

    @classmethod
    def from_toml(cls, path: str | Path) -> Target:
        """Return the target of a file; raises `InputError` with file:line:col."""
        target: Target = from_document(cls, read_toml(path))
        return target

    @cached_property
    def key_labels(self) -> Mapping[KeyLabel, TargetKey]:
        """Label (`role.place`, places from 1) → key."""
        found: dict[KeyLabel, TargetKey] = {}
        places: dict[str, int] = {}
        for key in self.keys:
            places[key.role] = places.get(key.role, 0) + 1
            found[f"{key.role}.{places[key.role]}"] = key
        return found
