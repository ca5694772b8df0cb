"""A request as the limits see it, and the room that they leave for it.

Whoever identifies a caller makes its `Subject`: the service from keys and tenants, a simulation
from its scenario, a replay from a log, a conformance run from its target. All do it with
`Subject.of`, which demands every part; so a new part of the identity is missed nowhere silently.
The limits know no tenant, no key text and no store.
"""

from __future__ import annotations

from operator import attrgetter
from typing import Any, Final, Literal, NamedTuple, TypeAlias, get_args

from engine.model import ApplicationKind, TenantKind

KeyField: TypeAlias = Literal["ip", "key_id", "proxy_key_id", "host_id"]
"""The fields of a `Subject` that a counter can be keyed by; all but the address may be None."""

KEY_FIELDS: Final[tuple[KeyField, ...]] = get_args(KeyField)
OTHER_FIELDS: Final = KEY_FIELDS[2:]
"""The fields other than address and key; few requests have them."""

OWNER_FIELDS: Final = frozenset({"application_id", "tenant_id"})
"""Fields that every request with a known API key has; a rule may count by them."""

UPLOADS: Final = "/batch-files/"
"""Of the paths whose sender is identified by the secret in it."""
_SECOND_NS = 1_000_000_000

_values_of: Final = attrgetter(*KEY_FIELDS)


class KeyIdentity(NamedTuple):
    """A known API key and its application (AUTH-KINDS, AUTH-LEGACY)."""

    id: str
    legacy: bool
    application_id: str
    application_kind: ApplicationKind | None


class TenantIdentity(NamedTuple):
    """The tenant of the key, else of the proxy; table: its limit table by name (QUO-RATE)."""

    id: str
    kind: TenantKind | None
    table: str


class Subject:
    """What the limits need to know about a request; unchanged once the limits have decided.

    method, path: as the router sees them; a query does not matter.
    ip: the client's address (D-IP).
    key_id: the known API key's id; None without one, or with an unknown one (D-UNKEYED).
    tenant_kind: of the key's tenant, else of the proxy's, else None.
    application_kind: of the key's application. legacy: of the key (AUTH-LEGACY).
    table: the tenant's limit table by name (QUO-RATE); `Default` where there is no tenant.
    proxy_key_id: of a known proxy key whose proxy requires no authentication (D-PROXY-RULES).
    host_id: of a known custom hostname.
    application_id, tenant_id: for rules that count by them.

    The sender of a batch file is identified by the secret in its address alone, so that only
    LIM-IP counts it, whatever key it sends (D-SPLIT).
    Reuse one subject for requests of the same client to the same resource: the limiter caches
    its counters in it.
    """

    __slots__ = (
        "_counters",
        "_epoch",
        "application_id",
        "application_kind",
        "host_id",
        "ip",
        "key_id",
        "legacy",
        "method",
        "path",
        "proxy_key_id",
        "table",
        "tenant_id",
        "tenant_kind",
    )

    def __init__(  # noqa: PLR0913 # reason: a record of what was identified
        self,
        method: str,
        path: str,
        ip: str,
        *,
        key_id: str | None = None,
        tenant_kind: TenantKind | None = None,
        application_kind: ApplicationKind | None = None,
        legacy: bool = False,
        table: str = "Default",
        proxy_key_id: str | None = None,
        host_id: str | None = None,
        application_id: str | None = None,
        tenant_id: str | None = None,
    ) -> None:
        if path.startswith(UPLOADS):
            key_id = tenant_kind = application_kind = proxy_key_id = host_id = None
            application_id = tenant_id = None
            legacy, table = False, "Default"
        self.method = method
        self.path = path
        self.ip = ip
        self.key_id = key_id
        self.tenant_kind = tenant_kind
        self.application_kind = application_kind
        self.legacy = legacy
        self.table = table
        self.proxy_key_id = proxy_key_id
        self.host_id = host_id
        self.application_id = application_id
        self.tenant_id = tenant_id
        self._epoch: object = None
        self._counters: Any = None

    @classmethod
    def of(
        cls,
        method: str,
        path: str,
        ip: str,
        *,
        key: KeyIdentity | None,
        tenant: TenantIdentity | None,
        proxy_key_id: str | None,
        host_id: str | None,
    ) -> Subject:
        """Return the subject of an identified request; no part has a default."""
        return cls(
            method,
            path,
            ip,
            key_id=None if key is None else key.id,
            tenant_kind=None if tenant is None else tenant.kind,
            application_kind=None if key is None else key.application_kind,
            legacy=key is not None and key.legacy,
            table="Default" if tenant is None else tenant.table,
            proxy_key_id=proxy_key_id,
            host_id=host_id,
            application_id=None if key is None else key.application_id,
            tenant_id=None if tenant is None else tenant.id,
        )

    @property
    def key_values(self) -> tuple[str | None, ...]:
        """The values that counters are keyed by, in the order of `KEY_FIELDS`."""
        return _values_of(self)

    def __repr__(self) -> str:
        path = self.path.partition("?")[0]
        return f"<Subject {self.method} {path} key={self.key_id} ip={self.ip} table={self.table}>"


class RateLimitStatus(NamedTuple):
    """The state of the rule with the least room left (D-429-HEADERS).

    rule: its name as in `Decision.rule`. remaining_requests: how many it would admit now.
    reset_ns: how long until all of `limit_requests` are available again, if no request comes.
    wait_ns: how long until no rule would refuse the same subject, if no other request comes; 0 when
        none refuses now. Where refused requests count (D-COUNT), a refused request may exhaust a
        counter that did not refuse it. Then this is longer than the decision's `wait_ns`, which
        covers only the rules that refused.
    """

    rule: str
    limit_requests: int
    remaining_requests: int
    window_ns: int
    reset_ns: int
    wait_ns: int

    @property
    def retry_after_s(self) -> int:
        """`wait_ns` in whole seconds, rounded up, at least 1: the `Retry-After` of a refusal."""
        return max(1, -(-self.wait_ns // _SECOND_NS))
