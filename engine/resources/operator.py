"""The operator's side: tenants, applications, keys, quotas and settings, as Python calls.

`engine.resources.applications` offers a part of it to management applications over HTTP; both use
the functions of this module, so that a rule about an application or a key is written once.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, get_args

from engine.errors import InputError, check_text, did_you_mean, wrong_type
from engine.files import parse_duration_ns, shown_value
from engine.hosts import EXAMPLE_SUFFIXES, is_suffix
from engine.identity import KeyText, is_legacy_text, make_grants, make_origins, new_key_text
from engine.model import (
    DEFAULT_QUOTAS,
    Application,
    ApplicationKind,
    Key,
    QuotaValue,
    Tenant,
    TenantKind,
)
from engine.resources.identification import hash_key_text
from engine.resources.operation import Services

_Changes: TypeAlias = Callable[[Tenant], Mapping[str, Any]]
COUNT_QUOTAS: Final = frozenset({"Tokenize Limit", "Detokenize Limit"})
"""The quotas that are counts; `Rate Limit` names a table, the others are durations."""

_LARGEST_COUNT: Final = 10**9
_LONGEST_NS: Final = 100 * 365 * 24 * 3_600 * 1_000_000_000
"""The longest duration of a quota; an instant that far from today fits 64 bits of ns."""


class Operator:
    """What the operator of a deployment does, from Python.

    Every change holds from the next request on (D-QUOTA-CHANGE).
    """

    services: Services
    table_names: frozenset[str]

    def create_tenant(
        self,
        name: str,
        kind: TenantKind = "production",
        *,
        quotas: Mapping[str, QuotaValue] | None = None,
        settings: Mapping[str, bool] | None = None,
        host_suffixes: Iterable[str] = EXAMPLE_SUFFIXES,
    ) -> Tenant:
        """Create a tenant; its quotas start at the defaults (QUO-TENANT).

        `quotas` changes some of them at once: counts as integers, durations as nanoseconds or
        texts such as `"1h30m"`. `host_suffixes`: under which its proxies may have hostnames
        (D-HOST). Raises `InputError` for a name that is no text, an unknown kind, quota or setting,
        and an invalid suffix.
        """
        check_text("tenant name", name)
        if kind not in get_args(TenantKind):
            raise _no_kind("a tenant kind", kind, get_args(TenantKind))
        services = self.services
        held = dict(DEFAULT_QUOTAS)  # obeys QUO-TENANT
        for quota, value in _mapping("quotas", quotas).items():
            held[quota] = checked_quota(quota, value, self.table_names)
        flags = {services.profile.dedup.setting_name: False}
        for setting, flag in _mapping("settings", settings).items():
            self._check_setting(setting, flag=flag)
            flags[setting] = flag
        suffixes = checked_suffixes(host_suffixes)
        wall_ns = services.world.clock.wall_ns
        tenant = Tenant(services.new_id(), name, kind, held, flags, wall_ns, suffixes)
        with services.store.transaction():
            services.store.put(tenant)
            services.vault.make(tenant.id)
        return tenant

    def create_application(
        self,
        tenant: Tenant | str,
        name: str,
        kind: ApplicationKind = "private",
        *,
        grants: Iterable[tuple[str, Iterable[str]]] = (),
        origins: Iterable[str] = (),
    ) -> Application:
        """Create an application with grants, as `(container path, permissions)` pairs.

        origins: web pages that may ask with its keys, of a public one (D-CORS).

        Raises `InputError` for a tenant that does not exist, a name that is no text, an unknown
        kind, a path of the wrong form, or a permission that the kind may not hold (D-PERMISSIONS).
        """
        with self.services.store.transaction():
            tenant_id = self._stored(tenant).id
            made = new_application(self.services, tenant_id, name, kind, grants, origins)
            self.services.store.put(made)
            return made

    def create_key(
        self, application: Application, *, legacy: bool = False, text: str | None = None
    ) -> KeyText:
        """Create an API key; its text is returned once and only a hash is stored (D-KEY).

        `text` brings a text of one's own; whether it is legacy then follows from its form
        (AUTH-LEGACY). Raises `InputError` when that text is too short, could not come in a header
        (AUTH-HEADER), or is already in use.
        """
        with self.services.store.transaction():
            return add_key(self.services, application, legacy=legacy, text=text)

    def key_for(
        self,
        tenant: Tenant | str,
        *permissions: str,
        container: str = "/",
        kind: ApplicationKind = "private",
        legacy: bool = False,
    ) -> KeyText:
        """Return a key of a new application that holds these permissions in one container.

        For notebooks and tests: `create_application` and `create_key` in one call. Raises
        `InputError` as they do.
        """
        grants = [(container, permissions)]
        application = self.create_application(tenant, kind, kind, grants=grants)
        return self.create_key(application, legacy=legacy)

    def delete_key(self, key: Key | KeyText | str) -> Key:
        """Revoke an API key, named by its text, its id or its record, and return what it was.

        Raises `InputError` when there is no such key.
        """
        store = self.services.store
        with store.transaction():
            record = self._key(key)
            if record is None:
                raise InputError("key = <hidden> does not exist; give a key's text, id or record")
            store.delete(Key, record.id)
        return record

    def tenants(self) -> list[Tenant]:
        """Return all tenants, the oldest first."""
        with self.services.store.transaction(write=False):
            return list(self.services.store.tenants())

    def applications(self, tenant: Tenant | str) -> list[Application]:
        """Return a tenant's applications, the oldest first."""
        with self.services.store.transaction(write=False):
            return list(self.services.store.list(Application, self._stored(tenant).id))

    def keys(self, application: Application) -> list[Key]:
        """Return an application's keys, the oldest first; no record holds a key's text."""
        with self.services.store.transaction(write=False):
            owner = stored_application(self.services, application)
            keys = self.services.store.list(Key, owner.tenant_id)
        return [key for key in keys if key.application_id == owner.id]

    def rename_tenant(self, tenant: Tenant | str, name: str) -> Tenant:
        """Give a tenant another name."""
        check_text("tenant name", name)
        return self._change(tenant, lambda _: {"name": name})

    def change_application(
        self,
        application: Application,
        *,
        name: str | None = None,
        grants: Iterable[tuple[str, Iterable[str]]] | None = None,
        origins: Iterable[str] | None = None,
    ) -> Application:
        """Give an application another name, grants or origins; its kind stays (AUTH-KINDS)."""
        if name is not None:
            check_text("application name", name)
        with self.services.store.transaction():
            changed = stored_application(self.services, application)
            if name is not None:
                changed = dataclasses.replace(changed, name=name)
            if grants is not None:
                held = make_grants(
                    changed.kind, grants, self.services.profile.tokens.container_limit
                )
                changed = dataclasses.replace(changed, grants=held)
            if origins is not None:
                listed = make_origins(origins, changed.kind)
                changed = dataclasses.replace(changed, origins=listed)
            self.services.store.put(changed)
        return changed

    def delete_application(self, application: Application) -> None:
        """Delete an application and its keys; what it created stays its tenant's."""
        with self.services.store.transaction():
            remove_application(self.services, stored_application(self.services, application))

    def set_quota(self, tenant: Tenant | str, name: str, value: QuotaValue) -> Tenant:
        """Set one quota of one tenant (QUO-TENANT); holds from the next request on.

        Raises `InputError` for an unknown tenant or quota or a value that it cannot take.
        """
        checked = checked_quota(name, value, self.table_names)
        return self._change(tenant, lambda t: {"quotas": {**t.quotas, name: checked}})

    def set_setting(self, tenant: Tenant | str, name: str, *, on: bool) -> Tenant:
        """Turn a tenant's setting on or off (D-DEDUP); holds from the next request on."""
        self._check_setting(name, flag=on)
        return self._change(tenant, lambda t: {"settings": {**t.settings, name: on}})

    def set_host_suffixes(self, tenant: Tenant | str, suffixes: Iterable[str]) -> Tenant:
        """Set the suffixes under which a tenant's proxies may have hostnames (D-HOST).

        `.shop.example` covers all names below it, `pay.shop.example` that name alone. A proxy
        whose hostname is covered no longer is not routed from the next request on. Raises
        `InputError` for an unknown tenant or an invalid suffix.
        """
        checked = checked_suffixes(suffixes)
        return self._change(tenant, lambda _: {"host_suffixes": checked})

    def rotate_master_key(self, new_master_key: bytes) -> None:
        """Rewrap every tenant's key under another master key; ciphertexts do not change.

        All or none is written. Start the next process with the new key. Raises `InputError` for a
        key of another length than 32 bytes.
        """
        vault = self.services.vault
        master = vault.master
        try:
            with self.services.store.transaction():
                vault.rotate(new_master_key)
        except BaseException:
            vault.master = master
            raise

    def tenant(self, tenant: Tenant | str) -> Tenant:
        """Return the tenant as it stands now; raises `InputError` when there is none."""
        with self.services.store.transaction(write=False):
            return self._stored(tenant)

    def _stored(self, tenant: Tenant | str) -> Tenant:
        tenant_id = tenant.id if isinstance(tenant, Tenant) else tenant
        if not isinstance(tenant_id, str):
            raise wrong_type("tenant", tenant, "a Tenant or its id")
        stored = self.services.store.get(Tenant, tenant_id)
        if stored is None:
            raise InputError(f"tenant = {tenant_id!r} does not exist; create it first")
        return stored

    def _key(self, key: object) -> Key | None:
        """Return the stored key of a text, an id or a record."""
        store = self.services.store
        if isinstance(key, Key):
            return store.get(Key, key.id)
        if isinstance(key, KeyText):
            return store.get(Key, key.key_id)
        if not isinstance(key, str):
            raise wrong_type("key", key, "a key's text, its id, or its record")
        return store.key_by_hash(hash_key_text(key)) or store.get(Key, key)

    def _change(self, tenant: Tenant | str, changes: _Changes) -> Tenant:
        with self.services.store.transaction():
            stored = self._stored(tenant)
            changed = dataclasses.replace(stored, **changes(stored))
            self.services.store.put(changed)
            return changed

    def _check_setting(self, name: object, *, flag: object) -> None:
        _check_name("setting", name)
        known = self.services.profile.dedup.setting_name
        if name != known:
            raise InputError(f"setting = {name!r} does not exist{did_you_mean(str(name), [known])}")
        if not isinstance(flag, bool):
            raise InputError(f"setting {name} = {flag!r} must be true or false")


def _mapping(thing: str, value: Mapping[str, Any] | None) -> Mapping[str, Any]:
    given: object = value
    if given is not None and not isinstance(given, Mapping):
        raise wrong_type(thing, given, "a mapping of names to values")
    return value or {}


def _check_name(thing: str, name: object) -> None:
    if not isinstance(name, str):
        raise wrong_type(thing, name, "a name in quotes")


def _no_kind(what: str, kind: object, kinds: tuple[str, ...]) -> InputError:
    if not isinstance(kind, str):
        return wrong_type("kind", kind, f"one of {', '.join(kinds)}")
    return InputError(f"kind = {kind!r} must be {what}{did_you_mean(kind, kinds)}")


def checked_quota(name: str, value: QuotaValue, table_names: Iterable[str]) -> QuotaValue:
    """Return the quota's value in its unit; raises `InputError` when it is invalid."""
    _check_name("quota", name)
    if name not in DEFAULT_QUOTAS:
        raise InputError(f"quota = {name!r} does not exist{did_you_mean(name, DEFAULT_QUOTAS)}")
    if name == "Rate Limit":
        names = sorted(table_names)
        if value not in names:
            near = did_you_mean(value if isinstance(value, str) else "", names)
            raise InputError(f"quota {name} = {_format(value)} must name a limit table{near}")
        return value
    if isinstance(value, str) and name not in COUNT_QUOTAS:
        value = parse_duration_ns(value)
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        unit = "a whole number" if name in COUNT_QUOTAS else "a duration such as '1h', or whole ns"
        raise InputError(f"quota {name} = {_format(value)} must be {unit}, 0 or more")
    if value > (_LARGEST_COUNT if name in COUNT_QUOTAS else _LONGEST_NS):
        most = "1000000000" if name in COUNT_QUOTAS else "36500d"
        raise InputError(f"quota {name} = {_format(value)} must be at most {most}")
    return value


def checked_suffixes(suffixes: Iterable[str]) -> tuple[str, ...]:
    """Return suffixes of hostnames in lower case; raises `InputError` for an invalid one."""
    if isinstance(suffixes, str):
        raise InputError(f"host_suffixes = {suffixes!r} must be a list of texts")
    valid = []
    for suffix in suffixes:
        lower = str(suffix).lower()
        if not is_suffix(lower):
            raise InputError(
                f"host suffix = {suffix!r} must be a hostname, or a dot and a hostname such as "
                "'.shop.example' for all names below it"
            )
        valid.append(lower)
    return tuple(valid)


def _format(value: object) -> str:
    is_long = isinstance(value, int) and value.bit_length() > 64  # Python may refuse to print it
    return shown_value(value) if is_long else repr(value)


def check_tables(tenants: Iterable[Tenant], table_names: Iterable[str]) -> None:
    """Raise `InputError` where a stored tenant's `Rate Limit` names a table that does not exist."""
    names = sorted(table_names)
    for tenant in tenants:
        try:
            checked_quota("Rate Limit", tenant.quotas["Rate Limit"], names)
        except InputError as error:
            raise InputError(f"tenant {tenant.id} of the store: {error}; add that table") from None


def new_application(
    services: Services,
    tenant_id: str,
    name: str,
    kind: str,
    grants: Iterable[tuple[str, Iterable[str]]],
    origins: Iterable[str] = (),
) -> Application:
    """Return a new application, for the caller to store. Raises `InputError`."""
    check_text("application name", name)
    kinds = get_args(ApplicationKind)
    known: ApplicationKind | None = next((k for k in kinds if k == kind), None)
    if known is None:
        raise _no_kind("an application kind", kind, kinds)
    return Application(
        services.new_id(),
        tenant_id,
        name,
        known,
        make_grants(known, grants, services.profile.tokens.container_limit),
        services.world.clock.wall_ns,
        make_origins(origins, known),
    )


def add_key(
    services: Services, application: Application, *, legacy: bool = False, text: str | None = None
) -> KeyText:
    """Store a new key; inside the caller's transaction. Raises `InputError`."""
    store = services.store
    application = stored_application(services, application)
    tenant = store.get(Tenant, application.tenant_id)
    assert tenant is not None, "an application has a tenant"
    if text is None:
        text = new_key_text(
            tenant.kind,
            application.kind,
            region=services.region,
            legacy=legacy,
            entropy=services.world.entropy,
        )
    else:
        check_key_text(text)
    text_hash = hash_key_text(text)
    if store.key_by_hash(text_hash) is not None:
        raise InputError("a key of this text exists already; choose another text")
    key = Key(
        services.new_id(),
        tenant.id,
        application.id,
        is_legacy_text(text),
        text_hash,
        services.world.clock.wall_ns,
    )
    store.put(key)
    return KeyText(text, key.id)


def check_key_text(text: object) -> None:
    """Raise `InputError` for a key's own text that could not come in a header (AUTH-HEADER)."""
    if not isinstance(text, str):
        raise wrong_type("text", text, "a key's own text")
    if len(text) < 16 or not text.isascii() or not text.isprintable():
        raise InputError("a key's own text must hold at least 16 printable ASCII characters")
    if text != text.strip():
        raise InputError("a key's own text must not begin or end with a space; no header keeps one")


def stored_application(services: Services, application: object) -> Application:
    """Return an application as it stands now; inside the caller's transaction."""
    if not isinstance(application, Application):
        rule = "an Application, as create_application and applications return"
        raise wrong_type("application", application, rule)
    stored = services.store.get(Application, application.id)
    if stored is None:
        raise InputError(f"application = {application.id!r} does not exist; create it first")
    return stored


def remove_application(services: Services, application: Application) -> None:
    """Delete an application and its keys; inside the caller's transaction."""
    store = services.store
    for key in store.list(Key, application.tenant_id):
        if key.application_id == application.id:
            store.delete(Key, key.id)
    store.delete(Application, application.id)
