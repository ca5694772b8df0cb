"""The form of a target file: one dataclass per table, and checks across several values."""

from __future__ import annotations

import dataclasses
import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from conformance.messages.exchange import KeyLabel
from conformance.messages.shapes import SHAPES, RequestShape, Spelling
from conformance.target.dialect import FIELDS, Dialect, ErrorShape
from conformance.target.roles import ROLES
from engine.clauses import CLAUSES
from engine.errors import VaultError, did_you_mean
from engine.files import (
    Alias,
    AnyJson,
    Document,
    FilePath,
    Include,
    Integer,
    Rate,
    Spot,
    TextType,
    from_document,
    json_schema,
    read_toml,
)
from engine.http.configuration import QuotaTable
from engine.model import DEFAULT_QUOTAS, QuotaValue, TenantKind
from engine.vault import jwe

Source: TypeAlias = str | None
"""An address that requests are sent from; None for the machine's own choice."""

_CREATING: Final = ("private_test", "private_prod", "private_reader", "dedup", "dedup_reader")
_BY_ROLE: Final[Mapping[str, Mapping[str, bool]]] = {
    "token:create": {**dict.fromkeys((*_CREATING, "short"), True), "private_no_permission": False},
    "token:read": {
        **dict.fromkeys(("private_reader", "dedup_reader"), True),
        **dict.fromkeys(("private_no_permission", "private_prod", "private_test", "dedup"), False),
    },
}
"""Permission → role → whether its keys hold it. For a role that is missing it is not known."""

_SECOND_NS: Final = 1_000_000_000
_PRETENDED: Final = tuple(f"203.0.113.{number}" for number in range(1, 33))
_HEADER: Final = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"
_PRIVATE_HALF: Final = frozenset({"d", "p", "q", "dp", "dq", "qi", "k"})
_CLAUSE_IDS: Final = tuple(clause.id for clause in CLAUSES)
_VARIABLE: Final = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_STAND_INS: Final = {
    "dedup": ("private_prod", "private_test"),
    "dedup_reader": ("private_reader", "private_prod"),
}
"""Roles whose first key replaces a missing role where deduplication is on for every tenant."""


@dataclass(frozen=True, kw_only=True)
class Grant:
    """What a key may do in one container and, where containers are paths, in those below it."""

    permissions: Annotated[tuple[str, ...], 'rights, such as "token:create" and "token:read"']
    container: Annotated[str | None, "where; left out: everywhere"] = None

    def covers(self, container: str | None) -> bool:
        """Whether it applies to a container; None stands for any container.

        >>> Grant(permissions=(), container="/pci/").covers("/pci/high/")
        True
        >>> Grant(permissions=(), container="main").covers("cards")
        False
        """
        if self.container is None or container is None or self.container == container:
            return True
        return self.container.endswith("/") and container.startswith(self.container)


@dataclass(frozen=True, kw_only=True)
class TargetKey:
    """One key of the deployment, by what it is for."""

    role: Annotated[str, "what the key is for; roles are those of `serve --demo`"]
    value: Annotated[str, TextType(environment=True, secret=True), "the key's text"] = field(
        default="", repr=False
    )
    tenant: Annotated[str | None, "name of its tenant in [[tenants]]"] = None
    header: Annotated[str | None, "header it is sent in, where not the target's own"] = None
    host: Annotated[str | None, "custom hostname, of role custom_hostname"] = None
    path: Annotated[str | None, "path to a slow destination, of role slow_destination"] = None
    container: Annotated[str | None, "the one container of role private_one_container"] = None
    variable: Annotated[
        str | None,
        TextType("[A-Za-z_][A-Za-z0-9_]*", "must be a shell variable's name"),
        "shell variable that curl lines name; by default that of `value`",
    ] = None
    grants: Annotated[
        tuple[Grant, ...] | None,
        'what the key may do, where its role does not say it: [{ permissions = ["token:create"] }]',
    ] = None


@dataclass(frozen=True, kw_only=True)
class TargetTenant:
    """A tenant of the deployment."""

    name: str
    kind: TenantKind = "production"
    quotas: Annotated[QuotaTable, "quotas that differ from the defaults"] = field(
        default_factory=QuotaTable
    )

    def quota(self, name: str) -> QuotaValue:
        """Return a quota by its name in the specification; durations in nanoseconds.

        >>> TargetTenant(name="acme").quota("Tokenize Limit")
        5
        """
        return self.quotas.values().get(name, DEFAULT_QUOTAS[name])


@dataclass(frozen=True, kw_only=True)
class Budget:
    """The most that a run may cost."""

    requests: Annotated[int, Integer(minimum=1), "requests in all"] = 120_000
    minutes: Annotated[int, Integer(minimum=1), "minutes of sending and waiting"] = 10


@dataclass(frozen=True, kw_only=True)
class Tls:
    """How the deployment's certificate is judged, and our own shown."""

    verify: Annotated[bool, "false accepts any certificate: for test deployments only"] = True
    ca_file: Annotated[Include | None, FilePath(), "certificates to trust, PEM"] = None
    certificate: Annotated[Include | None, FilePath(), "our own certificate, PEM"] = None
    private_key: Annotated[Include | None, FilePath(), "its private key, PEM"] = None
    server_name: Annotated[str | None, "name to ask for, where it is not the URL's"] = None


@dataclass(frozen=True, kw_only=True)
class Target:
    """A deployment under test."""

    base_url: Annotated[
        str,
        TextType(
            r"https?://[^/?#\s]+(/[^?#\s]*)?",
            "must be an http or https URL without query",
            environment=True,
        ),
        "where the API starts, base path included",
    ]
    key_header: Annotated[
        str, TextType(_HEADER, "must be a header's name"), "request header of the API key"
    ] = "SVC-API-KEY"
    key_format: Annotated[
        str,
        TextType(r"[^{}]*\{key\}[^{}]*", 'must hold {key} once, as "Bearer {key}" does'),
        'what that header holds, such as "Bearer {key}"',
    ] = "{key}"
    proxy_key_header: Annotated[
        str, TextType(_HEADER, "must be a header's name"), "request header of the proxy key"
    ] = "SVC-PROXY-KEY"
    proxy_host: Annotated[
        str | None,
        TextType(r"[^{}\s]*\{proxy_key\}[^{}\s]*", "must be a host that holds {proxy_key} once"),
        'host that names a proxy instead of the header, such as "{proxy_key}.proxy.example.com"',
    ] = None
    tls: Tls = Tls()
    sources: Annotated[
        tuple[str, ...], "local addresses to send from, or with `forwarded` to pretend"
    ] = ()
    forwarded: Annotated[
        str | None,
        TextType(_HEADER + r"(:.*\{source\}.*)?", "must be a header, or `Header: text {source}`"),
        'trusted header that carries the client address, such as "X-Forwarded-For"',
    ] = None
    timeout_ns: Annotated[int, "longest wait for one answer"] = field(
        default=40 * _SECOND_NS, metadata={"minimum": 1_000_000}
    )
    pacing: Annotated[Rate | None, "the most that is sent, whatever the deployment allows"] = None
    budget: Budget = Budget()
    forbidden: Annotated[
        tuple[
            Annotated[str, TextType("[A-Z]+ /.*", 'must be a method and a path: "DELETE /tokens"')],
            ...,
        ],
        'operations that must not be asked for, as "DELETE /tokens/{id}"',
    ] = ()
    expected_failures: Annotated[tuple[str, ...], "clauses known to fail"] = ()
    profile: Annotated[Include | None, FilePath(), "what is known of its choices"] = None
    limits: Annotated[Include | None, FilePath(), "limit table, if not the specification's own"] = (
        None
    )
    container_names: Annotated[
        tuple[str, ...],
        Alias("containers"),
        "containers that the run may use, by their names here, where not every path exists",
    ] = ()
    default_containers: Annotated[
        Mapping[str, str] | None, "type of token = the container it goes to when none is named"
    ] = None
    fields: Annotated[
        Mapping[str, str] | None, "a field's name in the specification = its name here"
    ] = None
    errors: Annotated[ErrorShape | None, "where errors come with a 2xx: how to tell one"] = None
    always: Annotated[
        tuple[Literal["deduplication"], ...],
        'what is switched on for good: "deduplication" on every tenant',
    ] = ()
    destination_url: Annotated[
        str | None, "an echoing destination that the deployment's proxies may call"
    ] = None
    encryption_jwk: Annotated[
        Mapping[str, Any] | None, AnyJson(), "public key for client-side encryption"
    ] = None
    keys: tuple[TargetKey, ...] = ()
    tenants: tuple[TargetTenant, ...] = ()
    requests: Annotated[
        Mapping[str, RequestShape] | None, "operations whose shape differs from the engine's"
    ] = None

    @classmethod
    def from_toml(cls, path: str | Path) -> Target:
        """Return the target of a file; raises `InputError` with file:line:col."""
        return cls.from_document(read_toml(path))

    @classmethod
    def from_document(cls, document: Document) -> Target:
        """Return the target of a document that was read; raises `InputError`."""
        target: Target = from_document(cls, document)
        _check(target, document)
        return target._with_variables(document)

    @staticmethod
    def schema() -> dict[str, Any]:
        """Return the JSON Schema of a target file."""
        return json_schema(Target, title="Tollgate target")

    def _with_variables(self, document: Document) -> Target:
        """Return the target with the environment variables that the file takes keys from."""
        keys = []
        for key, row in zip(self.keys, document.value.get("keys", ()), strict=True):
            match = _VARIABLE.fullmatch(str(row.get("value", "")))
            is_told = match is not None and key.variable is None
            keys.append(dataclasses.replace(key, variable=match[1]) if match and is_told else key)
        return dataclasses.replace(self, keys=tuple(keys))

    @cached_property
    def key_labels(self) -> Mapping[KeyLabel, TargetKey]:
        """Label (`role.place`, places from 1) → key."""
        labelled: dict[KeyLabel, TargetKey] = {}
        places: dict[str, int] = {}
        for key in self.keys:
            places[key.role] = places.get(key.role, 0) + 1
            path = None if key.container is None else self.dialect.path_of(key.container)
            grants = None if key.grants is None else tuple(map(self._grant, key.grants))
            labelled[f"{key.role}.{places[key.role]}"] = dataclasses.replace(
                key, container=path, grants=grants
            )
        return labelled

    @property
    def key_texts(self) -> dict[KeyLabel, str]:
        """Label → text, of keys that have one."""
        return {label: key.value for label, key in self.key_labels.items() if key.value}

    @property
    def hosts(self) -> dict[KeyLabel, str]:
        """Label → custom hostname, of keys that have one."""
        return {label: key.host for label, key in self.key_labels.items() if key.host is not None}

    def _grant(self, grant: Grant) -> Grant:
        """Return a grant that names its container as checks do."""
        if grant.container is None:
            return grant
        return dataclasses.replace(grant, container=self.dialect.path_of(grant.container))

    def labels(self, role: str) -> tuple[KeyLabel, ...]:
        """Return the labels of a role's keys, in order.

        Where deduplication is always on, a private key stands in for a missing role with
        deduplication.
        """
        labels = tuple(label for label, key in self.key_labels.items() if key.role == role)
        if labels or role not in _STAND_INS or "deduplication" not in self.always:
            return labels
        others = (self.labels(other)[:1] for other in _STAND_INS[role])
        return next((labels for labels in others if labels), ())

    def may(self, label: KeyLabel, permission: str, container: str | None = None) -> bool | None:
        """Return whether a key holds a right, by its grants or else by its role; None: not known.

        container: where; None asks whether it holds the right anywhere.
        """
        key = self.key_labels[label]
        if key.grants is not None:
            return any(
                permission in grant.permissions and grant.covers(container) for grant in key.grants
            )
        if permission == "token:create" and key.role == "private_one_container":
            return None if container is None else container == self.container_of(label)
        return _BY_ROLE.get(permission, {}).get(key.role)

    def container_of(self, label: KeyLabel) -> str:
        """Return the one container that a key of role private_one_container may write to."""
        key = self.key_labels[label]
        granted = [
            grant.container for grant in key.grants or () if "token:create" in grant.permissions
        ]
        return key.container or next(filter(None, granted), None) or "/pci/"

    def tenant_of(self, key: TargetKey) -> TargetTenant:
        """Return a key's tenant; where the file names none, a default one for its role."""
        known = {tenant.name: tenant for tenant in self.tenants}
        if key.tenant in known:
            return known[key.tenant]
        is_test = key.role in {"private_test", "dedup", "dedup_reader", "short"}
        return TargetTenant(name=key.tenant or "", kind="test" if is_test else "production")

    def shape(self, name: str) -> RequestShape:
        """Return the request shape of an operation; raises `KeyError` for an unknown name."""
        return (self.requests or {}).get(name, SHAPES[name])

    @cached_property
    def spelling(self) -> Spelling:
        """How this deployment spells the operations."""
        return Spelling(self.requests)

    @cached_property
    def dialect(self) -> Dialect:
        """The translation between this deployment's names and those of the specification."""
        defaults = self.default_containers or {}
        named = [grant.container for key in self.keys for grant in key.grants or ()]
        named += [key.container for key in self.keys]
        keys = [name for name in named if name is not None]
        return Dialect(
            requests=self.requests,
            fields=self.fields,
            containers=(*self.container_names, *defaults.values(), *keys),
            errors=self.errors,
            without=("deduplicate_token",) if "deduplication" in self.always else (),
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for reports on names that differ between the deployment and the specification."""
        fields = [f"`{name}` as `{own}`" for name, own in (self.fields or {}).items()]
        paths = [
            f"`{name}` as `{self.dialect.path_of(name)}`"
            for name in self.dialect.names
            if self.dialect.path_of(name) != name
        ]
        notes = []
        if fields:
            notes.append(f"the deployment writes {', '.join(fields)}; reports use the first name")
        if paths:
            notes.append(f"reports write the container {', '.join(paths)}")
        return tuple(notes)

    @cached_property
    def containers(self) -> tuple[str, ...]:
        """The containers that the run may use, as the paths that checks name."""
        return tuple(self.dialect.path_of(name) for name in self.container_names)

    @cached_property
    def addresses(self) -> tuple[Source, ...]:
        """The addresses that requests may be sent from; one None where the machine chooses.

        With a trusted header and no `sources`, they are addresses reserved for documentation.
        """
        if self.forwarded is not None and not self.sources:
            return _PRETENDED
        return self.sources or (None,)


def stand_ins(document: Document) -> list[str]:
    """Replace variables of keys that are not set by their names; returns these names.

    For a command that sends nothing: it needs to know which keys there are, not their texts.
    """
    unset: dict[str, None] = {}

    def named(match: re.Match[str]) -> str:
        if match[1] in os.environ:
            return match[0]
        unset[match[1]] = None
        return match[1]

    rows = document.value.get("keys")
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("value"), str):
            row["value"] = _VARIABLE.sub(named, row["value"])
    return list(unset)


def url_fault(url: str) -> str | None:
    """Return the rule that the address of a deployment breaks; None for a sound one."""
    try:
        parts = urlsplit(url)
    except ValueError:  # brackets that hold no IPv6 address
        parts = urlsplit("")
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
        return "must be an http or https URL without query"
    if "@" in parts.netloc:
        return "must hold no user and no password: reports quote it, and keys stand in [[keys]]"
    try:
        _ = parts.port
    except ValueError:
        return "must name a port from 1 to 65535"
    return None


def _check(target: Target, document: Document) -> None:
    """Check the rules that span several values."""
    fault = url_fault(target.base_url)
    if fault is not None:
        document.spot("base_url").fail(fault, secret="@" in target.base_url)
    for index, source in enumerate(target.sources):
        _check_source(source, target.base_url, document.spot("sources", index))
    for index, clause_id in enumerate(target.expected_failures):
        if clause_id not in _CLAUSE_IDS:
            listed = "; `conformance list` prints them"
            hint = did_you_mean(clause_id, _CLAUSE_IDS, otherwise=listed)
            document.spot("expected_failures", index).fail(f"must be a clause's id{hint}")
    if target.tls.private_key is not None and target.tls.certificate is None:
        document.spot("tls", "private_key").fail("must stand beside its tls.certificate; add it")
    _check_jwk(target.encryption_jwk, document)
    for name in target.requests or {}:
        if name not in SHAPES:
            hint = did_you_mean(name, SHAPES)
            document.spot("requests", name).fail_key(f"is no known operation{hint}")
    _check_words(target, document)
    _check_keys(target, document)


def _check_jwk(jwk: Mapping[str, Any] | None, document: Document) -> None:
    """Encrypt once, so that an unusable key is reported before anything is sent."""
    if jwk is None:
        return
    spot = document.spot("encryption_jwk")
    if not isinstance(jwk, Mapping):
        spot.fail("must be a table: [encryption_jwk]")
    for name in sorted(_PRIVATE_HALF.intersection(jwk)):
        spot.child(name).fail("must not be there: give the public half alone", secret=True)
    try:
        jwe.encrypt(jwk, b'""')
    except VaultError as error:
        spot.fail_key(f"cannot be encrypted for: {error}; mend it, or leave it out")


def _check_words(target: Target, document: Document) -> None:
    """Check the names that the deployment uses."""
    for kind in target.default_containers or {}:
        if kind not in {"token", "card"}:
            spot = document.spot("default_containers", kind)
            spot.fail_key("is no type of token; write token or card")
    fields = target.fields or {}
    for name, own in fields.items():
        spot = document.spot("fields", name)
        if name not in FIELDS:
            spot.fail_key(f"is not a field of the specification{did_you_mean(name, FIELDS)}")
        taken = [other for other, its in fields.items() if its == own and other != name]
        if taken or (own in FIELDS and own not in fields):
            spot.fail(f"must be a name of its own; {(taken or [own])[0]} is called so too")


def _check_source(source: str, base_url: str, spot: Spot) -> None:
    """Check that a source has the IP version of the deployment's address, where that is known."""
    try:
        version = ipaddress.ip_address(source).version
    except ValueError:
        spot.fail("must be an IP address")
    try:
        wanted = ipaddress.ip_address(urlsplit(base_url).hostname or "").version
    except ValueError:
        return  # a name may have addresses of both versions
    if version != wanted:
        spot.fail(f"must be an IPv{wanted} address, as base_url has")


def _check_grants(key: TargetKey, spot: Spot) -> None:
    """Check that a key's grants agree with its role."""
    if key.grants is None:
        return
    held = {permission for grant in key.grants for permission in grant.permissions}
    for permission, by_role in _BY_ROLE.items():
        wanted = by_role.get(key.role)
        if wanted is not None and wanted != (permission in held):
            rule = f"must {'' if wanted else 'not '}hold {permission}: role {key.role} says so"
            spot.child("grants").fail_key(f"{rule}; choose another role, or other grants")


def _check_keys(target: Target, document: Document) -> None:
    tenants = [tenant.name for tenant in target.tenants]
    texts: dict[str, int] = {}
    for index, key in enumerate(target.keys):
        spot = document.spot("keys", index)
        if key.role not in ROLES:
            spot.child("role").fail(f"must be a known role{did_you_mean(key.role, ROLES)}")
        if key.role == "custom_hostname":
            if key.host is None:
                spot.fail_missing("host")
        elif not key.value:
            spot.fail_missing("value")
        elif key.value in texts:
            rule = f"must differ from keys[{texts[key.value]}]: a key of its own has its own limits"
            spot.child("value").fail(rule, secret=True)
        texts[key.value] = index
        _check_grants(key, spot)
        if key.tenant is not None and key.tenant not in tenants:
            hint = did_you_mean(key.tenant, tenants) if tenants else "; add [[tenants]]"
            spot.child("tenant").fail(f"must be the name of a tenant{hint}")
