"""Which rules apply to a request, and by which counters each of them counts it.

A rule of the table has one or more *families* of counters, keyed by the same fields each: `key|ip`
has a family by key and one by IP. What the profile says about counters (D-AND-COUNTER,
D-OR-COUNTER, D-OR-RESOURCE), kinds (D-LEGACY-CLASS, D-PROXY-RULES) and composition (D-COMPOSE) is
resolved here once per class of requests, so that a decision only walks a tuple of counters.

Equal rules of two tables share their families: an IP counter spans tenants, whichever table names
the rule (D-COUNTED).

A request is a `Subject` here. Whoever identifies a caller makes it: the service from keys and
tenants, a simulation from its scenario, a replay from a log, a conformance run from its target. All
do it with `Subject.of`, which demands every part; so a new part of the identity is missed nowhere
silently. The limits know no tenant, no key text and no store.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import attrgetter, itemgetter
from typing import Any, Final, NamedTuple, TypeAlias

from engine.errors import InputError, did_you_mean
from engine.limits.counters import ALGORITHMS, Counter, CounterSettings
from engine.limits.table import (
    COUNTER_KEYS,
    COUNTER_KINDS,
    DEFAULT_TABLE,
    KEY_FIELDS,
    OWNER_FIELDS,
    PRODUCT_BOUND,
    UPLOADS,
    Classifier,
    CounterFields,
    KeyField,
    LimitTable,
    Rule,
    counter_names,
)
from engine.model import ApplicationKind, TenantKind
from engine.profile import LimitsProfile

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


_SHORTEST_HORIZON_NS: Final = 60_000_000_000

CounterKey: TypeAlias = str | None | tuple[str | None, str | None]

_KEYS_OF: Final = tuple(itemgetter(*map(KEY_FIELDS.index, fields)) for fields in COUNTER_KEYS)


class RequestClass(NamedTuple):
    """The properties of a request that decide which rules apply.

    present: whether it has each of `KEY_FIELDS`. resources: the patterns that it matches.
    """

    table: str
    tenant_kind: TenantKind | None
    application_kind: ApplicationKind | None
    legacy: bool
    present: tuple[bool, ...]
    resources: tuple[int, ...]

    @classmethod
    def of(cls, subject: Subject, resources: tuple[int, ...]) -> RequestClass:
        """Return the class of a request."""
        return cls(
            subject.table,
            subject.tenant_kind,
            subject.application_kind,
            subject.legacy,
            tuple([value is not None for value in subject.key_values]),
            resources,
        )

    def has(self, field: KeyField) -> bool:
        """Return whether the request has a field."""
        return self.present[KEY_FIELDS.index(field)]


def counter_keys(subject: Subject) -> tuple[CounterKey, ...]:
    """Return the subject's key in each of `COUNTER_KEYS`; a family's is at its `key_place`."""
    values = subject.key_values
    return tuple([key_of(values) for key_of in _KEYS_OF])


class CounterFamily:
    """The counters of one rule that are keyed by the same fields: how they count, and who has one.

    name: the rule's in decisions. key_place: of the fields among `COUNTER_KEYS`. key_of: takes the
    key from a subject's `key_values`.
    """

    def __init__(
        self, name: str, rule: Rule, fields: CounterFields, profile: LimitsProfile, origin_ns: int
    ) -> None:
        self.name = name
        self.rule = rule
        self.settings = _settings_of(name, rule, profile, origin_ns)
        self.key_place = COUNTER_KEYS.index(fields)
        self.key_of = _KEYS_OF[self.key_place]
        self.counters: dict[CounterKey, Counter] = {}
        self.horizon_ns = max(2 * rule.window_ns, self.settings.block_ns, _SHORTEST_HORIZON_NS)
        self.sweep_at_ns = 0
        self.unswept: list[CounterKey] = []

    def counter(self, key: CounterKey) -> Counter:
        """Return the counter of a key; a fresh one where there is none."""
        counter = self.counters.get(key)
        if counter is None:
            counter = self.counters[key] = Counter(self.settings)
        return counter

    def sweep(self, now_ns: int, size: int) -> bool:
        """Forget the counters that decide like fresh ones; return whether there were any.

        size: how many to check in one call; call again while `unswept` holds others. Counters that
        stay were charged within the horizon, so a sweep per horizon costs constant time per charge.
        """
        counters = self.counters
        if not self.unswept:
            self.unswept = list(counters)
        count = len(counters)
        for key in self.unswept[-size:]:
            if counters[key].is_idle(now_ns):
                del counters[key]
        del self.unswept[-size:]
        if not self.unswept:
            self.sweep_at_ns = now_ns + self.horizon_ns
            self.counters = dict(counters)  # a new dict frees the memory of the forgotten ones
        return len(counters) < count


def _settings_of(name: str, rule: Rule, profile: LimitsProfile, origin_ns: int) -> CounterSettings:
    """Return how a rule counts under a profile; `InputError` where its burst is too large."""
    algorithm = rule.algorithm or profile.algorithm
    burst = (
        (rule.burst_requests or profile.burst_requests)
        if ALGORITHMS[algorithm].takes_burst
        else None
    )
    if burst and burst * rule.window_ns >= PRODUCT_BOUND:
        raise InputError(
            f"burst_requests = {burst} must be lower for {rule.id}: "
            "burst × nanoseconds of the window must stay below 2^62"
        )
    tick_ns = 1 if profile.edges == "closed" else 0
    return CounterSettings(
        algorithm=algorithm,
        limit_requests=rule.limit_requests,
        window_ns=rule.window_ns,
        burst_requests=burst or rule.limit_requests,
        name=name,
        in_shadow=rule.shadow,
        tick_ns=tick_ns,
        is_anchored=profile.fixed_anchor == "first",
        offset_ns=origin_ns % rule.window_ns,
        block_ns=0 if rule.block_ns is None else rule.block_ns + tick_ns,
        clears=profile.block_reset == "clear",
        extends=profile.block_extends,
        longest_delay_ns=profile.delay_bound_ns if profile.throttle == "delay" else 0,
        takes_back=profile.counted_statuses == "success",
    )


class RuleSet:
    """The counter families of some tables under a profile, and which apply to a class of requests.

    origin_ns: instant 0 in nanoseconds since the Unix epoch (D-ALIGN).

    A rule by IP alone with no match, such as LIM-IP, counts everybody and stands in `Default`
    only. Raises `InputError` when another table holds such a rule that `Default` does not have,
    or another rule of its name.
    """

    def __init__(
        self, tables: Mapping[str, LimitTable], profile: LimitsProfile, origin_ns: int = 0
    ) -> None:
        if DEFAULT_TABLE not in tables:
            raise InputError(f"limits hold no table {DEFAULT_TABLE!r}; name one of them so")
        self._profile = profile
        self._origin_ns = origin_ns
        self._tables = dict(tables)
        rules = [rule for table in tables.values() for rule in table]
        patterns = dict.fromkeys(pattern for rule in rules for pattern in rule.match.resource)
        self.classifier = Classifier(patterns, profile.get_tokens)
        self._places = {pattern: place for place, pattern in enumerate(patterns)}
        self._families: dict[tuple[Rule, str, CounterFields, int], CounterFamily] = {}
        self._rules = {name: self._in_force(name) for name in tables}

    def families(self) -> tuple[CounterFamily, ...]:
        """Return every family that a request has met so far."""
        return tuple(self._families.values())

    def _in_force(self, name: str) -> tuple[Rule, ...]:
        """Return a table's rules, and those of `Default` that count everybody."""
        everybody = tuple(rule for rule in self._tables[DEFAULT_TABLE] if rule.is_global)
        own = self._tables[name].rules
        taken = {rule.id for rule in everybody}
        for rule in own:
            if (rule.is_global or rule.id in taken) and rule not in everybody:
                raise InputError(
                    f"table {name!r}: {rule.id} counts every request by IP, which is in no "
                    f"tenant's table; change it in {DEFAULT_TABLE!r}"
                )
        return own + tuple(rule for rule in everybody if rule not in own)

    def of_class(self, requests: RequestClass) -> tuple[CounterFamily, ...]:
        """Return the families that count a class of requests, in table order."""
        if requests.table not in self._rules:
            near = did_you_mean(requests.table, self._rules)
            raise InputError(f"limits hold no table {requests.table!r}{near}")
        families = [
            family
            for rule in self._rules[requests.table]
            if self._applies(rule, requests)
            for family in self._families_of(rule, requests)
        ]
        if self._profile.compose == "lowest":
            in_force = [family for family in families if not family.rule.shadow]
            families = _lowest(families, in_force or families)
        return tuple(families)

    def _applies(self, rule: Rule, requests: RequestClass) -> bool:
        match = rule.match
        if match.tenant is not None and match.tenant != requests.tenant_kind:
            return False
        if match.legacy is not None and match.legacy != requests.legacy:
            return False
        if match.application is not None:
            if match.application != requests.application_kind:
                return False
            if requests.legacy and self._profile.legacy_class == "exclusive" and not match.legacy:
                return False
        if match.resource and self._resource(rule, requests) is None:
            return False
        if match.proxy is None:
            return True
        if requests.has("key_id") and self._profile.proxy_rules == "unkeyed":
            return False
        return requests.has("proxy_key_id" if match.proxy == "key" else "host_id")

    def _resource(self, rule: Rule, requests: RequestClass) -> int | None:
        """Return the index of the first of a rule's resources that a class falls under."""
        for own_place, pattern in enumerate(rule.match.resource):
            if self._places[pattern] in requests.resources:
                return own_place
        return None

    def _families_of(self, rule: Rule, requests: RequestClass) -> list[CounterFamily]:
        separate = self._profile.or_resource == "separate" and rule.match.resource
        resource = (self._resource(rule, requests) or 0) if separate else 0
        families = []
        for suffix, fields in _counters_of(rule, requests, self._profile):
            place = (rule, suffix, fields, resource)
            if place not in self._families:
                self._families[place] = CounterFamily(
                    rule.id + suffix, rule, fields, self._profile, self._origin_ns
                )
            families.append(self._families[place])
        return families


_AND_COUNTERS: Final[dict[str, tuple[CounterFields, ...]]] = {
    "pair": (("ip", "key_id"),),
    "each": (("key_id",), ("ip",)),
    "key": (("key_id",),),
    "ip": (("ip",),),
}
"""D-AND-COUNTER: what a rule by IP and key counts by."""


def _counters_of(
    rule: Rule, requests: RequestClass, profile: LimitsProfile
) -> tuple[tuple[str, CounterFields], ...]:
    """Return the counters that a rule has for a class: the suffix of its name, and its fields.

    A counter that needs what the request does not have does not count it (D-UNKEYED). Raises
    `InputError` where whoever identified the request left out what every API key has.
    """
    kinds = COUNTER_KINDS[rule.counter].fields
    for field in {field for fields in kinds for field in fields} & OWNER_FIELDS:
        if requests.has("key_id") and not requests.has(field):
            raise InputError(
                f"{rule.id} counts by {field}, which the identity of this request lacks; make its "
                "Subject with Subject.of"
            )
    counters = tuple(
        (suffix, fields)
        for suffix, fields in counter_names(kinds)
        if all(map(requests.has, fields))
    )
    if rule.counter == "ip+key" and counters:
        return counter_names(_AND_COUNTERS[profile.and_counter])
    return counters[:1] if profile.or_counter == "key-else-ip" else counters  # D-OR-COUNTER


def _lowest(families: list[CounterFamily], among: list[CounterFamily]) -> list[CounterFamily]:
    """Return the families whose rate is not above the lowest rate of `among` (D-COMPOSE lowest).

    A shadow rule never excludes other rules; it counts where its own rate would be the lowest.
    """
    return [
        family
        for family in families
        if all(
            family.rule.limit_requests * other.rule.window_ns
            <= other.rule.limit_requests * family.rule.window_ns
            for other in among
        )
    ]
