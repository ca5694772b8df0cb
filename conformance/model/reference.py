"""The reference: an engine in process that is set up as the target file describes the deployment.

It has the target's tenants with their kinds, quotas and settings, and one application per key with
the grants that the file states, or those of the key's role. Its clock is set to the instant of each
step. It has no rate limits: the suite stays below the deployment's.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from conformance.context.choices import playable
from conformance.messages.exchange import KeyLabel, parsed_or_none
from conformance.target import ROLES, Target
from conformance.wire.pace import application_kind
from engine import Engine, InputError, LimitTable, ManualClock, Profile, Request, Response
from engine.identity import ASKABLE
from engine.messages import Json
from engine.model import DEFAULT_QUOTAS, Tenant
from engine.resources.applications import new_key
from engine.tokens.strict_json import dumps

_TABLE: Final = "Rate Limit"
_ADDRESS: Final = "192.0.2.1"
_DEDUP_ROLES: Final = frozenset({"dedup", "dedup_reader"})
_NO_TENANT: Final[Mapping[str, str]] = {
    "private_test": "test",
    "dedup": "dedup",
    "dedup_reader": "dedup",
    "short": "short",
}
"""The tenant of a key whose tenant the file does not name, by role; else one for all."""


class ReferenceAnswer(NamedTuple):
    """An answer of the reference; `clause` names the rule of a refusal."""

    status: int
    body: Json
    raw: str
    clause: str | None

    @property
    def ok(self) -> bool:
        """Whether it is a success."""
        return 200 <= self.status < 300


class Reference:
    """One engine; a tenant and a key are created when a step first needs them."""

    def __init__(self, target: Target, profile: Profile) -> None:
        self._target = target
        self.clock = ManualClock()
        self.engine = Engine(
            profile=playable(profile), limits=LimitTable(()), clock=self.clock, seed=1
        )
        self._tenants: dict[str, Tenant] = {}
        self._keys: dict[KeyLabel, str | None] = {}

    def key_text(self, label: KeyLabel) -> str | None:
        """Return a key's text; None where there is no such key or the engine cannot hold it."""
        if label not in self._keys:
            self._keys[label] = self._made(label) if label in self._target.key_labels else None
        return self._keys[label]

    def _made(self, label: KeyLabel) -> str | None:
        key = self._target.key_labels[label]
        kind, grants = application_kind(key), _grants(self._target, label)
        try:
            application = self.engine.create_application(
                self._tenant(label), label, kind=kind, grants=grants
            )
            return self.engine.create_key(application, legacy=key.role == "legacy")
        except InputError:
            return None  # the engine cannot hold such grants, so nothing is expected of the key

    def _tenant(self, label: KeyLabel) -> Tenant:
        target = self._target
        key = target.key_labels[label]
        stated = target.tenant_of(key)
        tenant = stated.name or _NO_TENANT.get(key.role, "production")
        if tenant not in self._tenants:
            profile = self.engine.profile
            peers = {peer.role for peer in target.keys if peer.tenant == key.tenant}
            is_on = "deduplication" in target.always or bool(
                _DEDUP_ROLES & (peers if key.tenant else {key.role})
            )
            quotas = {**DEFAULT_QUOTAS, **stated.quotas.values()}
            self._tenants[tenant] = self.engine.create_tenant(
                tenant,
                kind=stated.kind,
                quotas={name: quota for name, quota in quotas.items() if name != _TABLE},
                settings={profile.dedup.setting_name: is_on},
            )
        return self._tenants[tenant]

    def encryption_jwk(self, label: KeyLabel) -> Mapping[str, Any]:
        """Make a key for client-side encryption in a key's tenant; returns its public half."""
        services = self.engine.services
        tenant = self._tenant(label)
        with services.store.transaction():
            pair = new_key(services, tenant.id, "ECDH-ES", self.clock.wall_ns)
            services.store.put(pair)
        return pair.public_jwk

    def is_tie(self, first: str, second: str) -> bool:
        """Whether two tokens are equal for deduplication and of one instant."""
        store = self.engine.services.store
        with store.transaction():
            tokens = [
                token
                for tenant in self._tenants.values()
                for token_id in (first, second)
                if (token := store.token(tenant.id, token_id)) is not None
            ]
        return len({(token.dedup_hash, token.created_at_ns) for token in tokens}) == 1

    def set_time(self, now_ns: int) -> None:
        """Move the clock forward to an instant of the suite's clock."""
        if now_ns > self.clock.now_ns:
            self.clock.advance_ns(now_ns - self.clock.now_ns)

    def learn_key(self, label: KeyLabel, text: str) -> None:
        """Register a key that a step has made."""
        self._keys[label] = text

    def answer(
        self,
        method: str,
        path: str,
        *,
        label: KeyLabel | None = None,
        body: Json | bytes = None,
        headers: Mapping[str, str] | None = None,
    ) -> ReferenceAnswer:
        """Answer a request."""
        sent = dict(headers or {})
        if body is not None and not isinstance(body, bytes):
            sent.setdefault("Content-Type", "application/json")
        request = Request(
            method,
            path,
            key=None if label is None else self.key_text(label) or label,
            ip=_ADDRESS,
            headers=sent,
            body=body if body is None or isinstance(body, bytes) else dumps(body),
        )
        return _answer(self.engine.handle(request))


def _answer(response: Response) -> ReferenceAnswer:
    body: Any = response.body
    raw = "" if body is None else (body if isinstance(body, bytes) else dumps(body)).decode()
    if isinstance(body, bytes):
        body = parsed_or_none(body)
    clause = body.get("clause") if isinstance(body, dict) and response.status >= 400 else None
    return ReferenceAnswer(response.status, body, raw, clause)


def _grants(target: Target, label: KeyLabel) -> list[tuple[str, tuple[str, ...]]]:
    """Return what a key may do: its stated grants, or what its role says."""
    key = target.key_labels[label]
    if key.grants is not None:
        return [(grant.container or "/", grant.permissions) for grant in key.grants]
    if key.role == "management":
        return [("/", tuple(sorted(ASKABLE["management"])))]
    permissions = ROLES[key.role].permissions
    path = target.container_of(label) if key.role == "private_one_container" else "/"
    return [(path, permissions)] if permissions else []
