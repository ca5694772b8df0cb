"""The file of `serve --config`: a deployment as TOML, and how it is applied to a store.

The file may be used again with the same store. Tenants are matched by name, applications by tenant
and name: existing ones keep their tokens and get the file's quotas, settings and grants; missing
ones are created; those that the file does not name stay unchanged. A kind cannot change. A key
whose text is in the file is stored once, as a hash. An application with no key at all gets a new
one, whose text is printed only then.
"""

from __future__ import annotations

import base64
import binascii
import contextlib
import dataclasses
import importlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TypeAlias

from engine.errors import InputError, did_you_mean
from engine.files import (
    Alias,
    Document,
    Include,
    Integer,
    Items,
    Spot,
    TextType,
    from_document,
    json_schema,
    parse_toml,
    read_toml,
)
from engine.identity import REGION_FORM, REGION_RULE, make_grants, make_origins
from engine.model import DEFAULT_QUOTAS, Application, ApplicationKind, Tenant, TenantKind
from engine.model import Key as StoredKey
from engine.resources.identification import hash_key_text
from engine.resources.operator import checked_suffixes
from engine.service import Engine

if TYPE_CHECKING:
    from engine.http.system import AnyRuntime

_KEY_BYTES: Final = 32

_LAST_PORT: Final = 65_535
ADDRESS_FORM: Final = r"(?:[A-Za-z0-9.-]+|\[[0-9A-Fa-f:.]+\]):[0-9]{1,5}"
ADDRESS_RULE: Final = "must be a host and a port, such as 127.0.0.1:9464 or [::1]:9464"
_KEYS: Final = Items(TextType(environment=True, secret=True))


@dataclass(frozen=True, kw_only=True)
class GrantTable:
    """Permissions on a container and all below it."""

    container: Annotated[str, "path, such as /pci/"]
    permissions: Annotated[tuple[str, ...], "such as token:create"]


@dataclass(frozen=True, kw_only=True)
class ApplicationTable:
    """An application: who asks, by which keys, with which rights."""

    name: Annotated[str, "unique within its tenant"]
    tenant: Annotated[str, "name of a tenant of this file"]
    kind: Annotated[ApplicationKind, "its class in the limits"] = "private"
    grants: Annotated[tuple[GrantTable, ...], "what it may do where"] = ()
    origins: Annotated[
        tuple[str, ...],
        "origins of web pages that may use its keys, such as https://shop.example; public only",
    ] = ()
    keys: Annotated[
        tuple[str, ...],
        _KEYS,
        "key texts of your own, from the environment; without any, one is made and printed once",
    ] = dataclasses.field(default=(), repr=False)


@dataclass(frozen=True, kw_only=True)
class QuotaTable:
    """Quotas of a tenant; what is left out keeps its default (section 8.8)."""

    rate_limit: Annotated[str | None, Alias("Rate Limit"), "name of a limit table"] = None
    log_retention_ns: Annotated[int | None, Alias("Log Retention"), "default 24h"] = None
    tokenize_limit: Annotated[
        int | None, Integer(minimum=0), Alias("Tokenize Limit"), "default 5 tokens"
    ] = None
    detokenize_limit: Annotated[
        int | None, Integer(minimum=0), Alias("Detokenize Limit"), "default 5 tokens"
    ] = None
    cvc_retention_ns: Annotated[int | None, Alias("CVC Retention"), "default 1h"] = None
    token_intent_retention_ns: Annotated[
        int | None, Alias("Token Intent Retention"), "default 24h"
    ] = None

    def values(self) -> dict[str, int | str]:
        """Return the quotas that are set, by their names."""
        stated = (getattr(self, field.name) for field in dataclasses.fields(self))
        named = zip(DEFAULT_QUOTAS, stated, strict=True)
        return {name: value for name, value in named if value is not None}


@dataclass(frozen=True, kw_only=True)
class TenantTable:
    """A tenant with its quotas and settings."""

    name: Annotated[str, "unique"]
    kind: Annotated[TenantKind, "test tenants have a limit of their own"] = "production"
    quotas: Annotated[QuotaTable, 'such as "Tokenize Limit" = 5'] = QuotaTable()
    settings: Annotated[Mapping[str, bool], "such as deduplicate_tokens = true"] = (
        dataclasses.field(default_factory=dict)
    )
    host_suffixes: Annotated[
        tuple[str, ...], "under which its proxies may have hostnames, such as .shop.example"
    ] = ()


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """A deployment: what `python -m engine serve --config` starts with."""

    store: Annotated[str, '"memory", or the SQLite file for tokens, keys and logs'] = "memory"
    master_key: Annotated[
        str | None,
        TextType(environment=True, secret=True),
        "32 bytes in base64 or hex; required with a store file",
    ] = dataclasses.field(default=None, repr=False)
    region: Annotated[str, TextType(REGION_FORM, REGION_RULE), "region in the text of its keys"] = (
        "us"
    )
    trusted_proxies: Annotated[
        tuple[str, ...], "addresses and networks whose X-Forwarded-For is trusted"
    ] = ()
    own_names: Annotated[
        tuple[str, ...], "hostnames that reach this server; no proxy may have one"
    ] = ()
    metrics_address: Annotated[
        str | None,
        TextType(ADDRESS_FORM, ADDRESS_RULE),
        "serves /metrics only at this address, such as 127.0.0.1:9464",
    ] = None
    cors_origins: Annotated[
        tuple[str, ...],
        "origins of web pages that may use any public key, such as https://shop.example",
    ] = ()
    allowed_destinations: Annotated[
        tuple[str, ...], "origins that proxies may call, such as https://api.example.com"
    ] = ()
    private_destinations: Annotated[
        tuple[str, ...], "private addresses and networks that proxies may call too"
    ] = ()
    reactor_runtime: Annotated[
        str | None,
        TextType(r"[\w.]+:\w+", "must be of the form package.module:function"),
        "runs reactor code; without it, code returns its arguments",
    ] = None
    limit_tables: Annotated[
        Mapping[str, Include], "further limit tables, by the name that a Rate Limit quota gives"
    ] = dataclasses.field(default_factory=dict)
    tenants: tuple[TenantTable, ...] = ()
    applications: tuple[ApplicationTable, ...] = ()


_Held: TypeAlias = tuple[dict[str, Application], set[str]]


@dataclass(frozen=True)
class Made:
    """A new key; its text can be shown only now."""

    application: Application
    tenant: Tenant
    text: str = dataclasses.field(repr=False)


def load(path: str | Path) -> tuple[ServeConfig, Document]:
    """Return a configuration and its document, for messages; `InputError` with file:line:col."""
    return _checked(read_toml(path))


def loads(text: str, name: str = "serve.toml") -> tuple[ServeConfig, Document]:
    """Return the configuration of a TOML text."""
    return _checked(parse_toml(text, name))


def schema() -> dict[str, Any]:
    """Return the JSON Schema of a configuration file; `serve.schema.json` holds it for editors."""
    return json_schema(ServeConfig, title="Tollgate deployment")


def read_master_key(text: str) -> bytes | None:
    """Return the 32 bytes of a master key in hex or base64, None when it is none."""
    text = text.strip()
    try:
        raw = bytes.fromhex(text)
    except ValueError:
        try:
            raw = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
    return raw if len(raw) == _KEY_BYTES else None


def load_runtime(name: str) -> AnyRuntime:
    """Return the function of `package.module:function`; raises `InputError`."""
    module_name, _, function_name = name.partition(":")
    try:
        runtime: Any = getattr(importlib.import_module(module_name), function_name)
    except (ImportError, AttributeError) as error:
        raise InputError(
            f"reactor_runtime = {name!r} must name a function that can be imported: {error}"
        ) from None
    if not callable(runtime):
        raise InputError(f"reactor_runtime = {name!r} must name a function")
    return runtime  # type: ignore[no-any-return] # reason: what it takes shows when it is called


def provision(engine: Engine, config: ServeConfig, document: Document) -> list[Made]:
    """Apply the configuration to a store; returns the keys that were created.

    Raises `InputError`, with its position, for what does not fit the store or the profile.
    """
    services = engine.services
    with services.store.transaction(write=False):
        stored = {tenant.name: tenant for tenant in services.store.tenants()}
    made: list[Made] = []
    tenants: dict[str, Tenant] = {}
    held: dict[str, _Held] = {}
    for index, table in enumerate(config.tenants):
        spot = document.spot("tenants", index)
        with _placed(document, spot):
            tenants[table.name] = _tenant(engine, table, stored.get(table.name), spot)
    for index, row in enumerate(config.applications):
        spot = document.spot("applications", index)
        with _placed(document, spot):
            tenant = tenants[row.tenant]
            if tenant.id not in held:
                held[tenant.id] = _held(engine, tenant)
            applications, keyed = held[tenant.id]
            application = _application(engine, row, tenant, applications.get(row.name), spot)
            made.extend(_keys(engine, row, application, tenant, keyed, spot))
    return made


def _held(engine: Engine, tenant: Tenant) -> _Held:
    """Return what a tenant had in the store before: applications by name, and which have keys."""
    store = engine.services.store
    with store.transaction(write=False):
        applications = store.list(Application, tenant.id)
        keys = store.list(StoredKey, tenant.id)
    # Names that were not created from a file may repeat; the oldest one counts.
    return {application.name: application for application in reversed(applications)}, {
        key.application_id for key in keys
    }


def _tenant(engine: Engine, table: TenantTable, stored: Tenant | None, spot: Spot) -> Tenant:
    if stored is None:
        return engine.create_tenant(
            table.name,
            table.kind,
            quotas=table.quotas.values(),
            settings=table.settings,
            host_suffixes=table.host_suffixes,
        )
    _check_kind(stored, table.kind, spot)
    for name, value in table.quotas.values().items():
        stored = engine.set_quota(stored, name, value)
    for name, flag in table.settings.items():
        stored = engine.set_setting(stored, name, on=flag)
    return engine.set_host_suffixes(stored, table.host_suffixes)


def _application(
    engine: Engine, row: ApplicationTable, tenant: Tenant, stored: Application | None, spot: Spot
) -> Application:
    if stored is None:
        return engine.create_application(
            tenant, row.name, row.kind, grants=_pairs(row), origins=row.origins
        )
    _check_kind(stored, row.kind, spot)
    return engine.change_application(stored, grants=_pairs(row), origins=row.origins)


def _check_kind(stored: Tenant | Application, kind: str, spot: Spot) -> None:
    if stored.kind != kind:
        spot.child("kind").fail(
            f"must stay {stored.kind!r}, as it is in the store; take a new name"
        )


def _keys(
    engine: Engine,
    row: ApplicationTable,
    application: Application,
    tenant: Tenant,
    keyed: set[str],
    spot: Spot,
) -> Iterator[Made]:
    store = engine.services.store
    for place, text in enumerate(row.keys):
        with store.transaction(write=False):
            stored = store.key_by_hash(hash_key_text(text))
        if stored is None:
            engine.create_key(application, text=text)
        elif stored.application_id != application.id:
            spot.child("keys").child(place).fail(
                "must not be the key of another application of the store", secret=True
            )
    if not row.keys and application.id not in keyed:
        yield Made(application, tenant, str(engine.create_key(application)))


def _pairs(row: ApplicationTable) -> list[tuple[str, tuple[str, ...]]]:
    return [(grant.container, grant.permissions) for grant in row.grants]


@contextlib.contextmanager
def _placed(document: Document, spot: Spot) -> Iterator[None]:
    """Prefix error messages that have no position with the position of a table."""
    where = document.where(spot.path)
    try:
        yield
    except InputError as error:
        text = str(error)
        raise InputError(text if text.startswith(document.name) else where + text) from None


def _checked(document: Document) -> tuple[ServeConfig, Document]:
    config = from_document(ServeConfig, document)
    if config.master_key is not None and read_master_key(config.master_key) is None:
        document.spot("master_key").fail("must be 32 bytes in base64 or hex", secret=True)
    names: dict[str, None] = {}
    for index, tenant in enumerate(config.tenants):
        if tenant.name in names:
            document.spot("tenants", index, "name").fail("must be unique")
        with _placed(document, document.spot("tenants", index)):
            checked_suffixes(tenant.host_suffixes)
        names[tenant.name] = None
    pairs: set[tuple[str, str]] = set()
    texts: set[str] = set()
    for index, row in enumerate(config.applications):
        spot = document.spot("applications", index)
        if row.tenant not in names:
            near = did_you_mean(row.tenant, names)
            spot.child("tenant").fail(f"must be a tenant of this file{near}")
        if (row.tenant, row.name) in pairs:
            spot.child("name").fail("must be unique within its tenant")
        pairs.add((row.tenant, row.name))
        for place, text in enumerate(row.keys):
            if text in texts:
                spot.child("keys").child(place).fail("must be no other key's text", secret=True)
            texts.add(text)
        with _placed(document, spot):
            make_grants(row.kind, _pairs(row))
            make_origins(row.origins, row.kind)
    _check_addresses(config, document)
    return config, document


def _check_addresses(config: ServeConfig, document: Document) -> None:
    if int((config.metrics_address or ":0").rpartition(":")[2]) > _LAST_PORT:
        document.spot("metrics_address").fail(ADDRESS_RULE)
    if config.cors_origins:
        with _placed(document, document.spot("cors_origins")):
            make_origins(config.cors_origins, thing="cors_origins")
