"""The scenario: everything that a simulation is told, as frozen data.

One declaration: a file's keys, their reading and writing and the JSON Schema come from these
dataclasses (`engine.files`). Durations and instants are integers in nanoseconds, instants count
from the run's start; in files both are texts with units.

What it is not: how anything is played. `simulator.play` does that as the docstrings here, in
`simulator.scenario.clients` and in `simulator.scenario.draws` say.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from engine.files import Duration, Include, Integer, Key, Number, Rate, Text, Unwritten
from engine.model import ApplicationKind, TenantKind
from engine.profile import Algorithm
from engine.world import EPOCH_2026_NS
from simulator.scenario.clients import ClientGroup, Dealing
from simulator.scenario.conditions import Condition, ConditionText
from simulator.scenario.draws import Draw
from simulator.scenario.kinds import NAME, Choices, Instant

__all__ = [
    "AddressPool",
    "Application",
    "Grant",
    "Proxy",
    "Quotas",
    "Reactor",
    "RuleChange",
    "Scenario",
    "Tenant",
    "Threshold",
]

_EVEN: Final = Dealing()


@dataclass(frozen=True, kw_only=True)
class Quotas:
    """A tenant's quotas by name; what is left out keeps its default (QUO-TENANT)."""

    rate_limit: Annotated[
        str | None, Key("Rate Limit"), Text(), '"Default", or a name of `limit_tables` (QUO-RATE)'
    ] = None
    log_retention_ns: Annotated[int | None, Key("Log Retention"), Duration(1), "QUO-LOG"] = None
    tokenize_limit: Annotated[
        int | None, Key("Tokenize Limit"), Integer(minimum=0), "QUO-TOKENIZE"
    ] = None
    detokenize_limit: Annotated[
        int | None, Key("Detokenize Limit"), Integer(minimum=0), "QUO-DETOKENIZE"
    ] = None
    cvc_retention_ns: Annotated[int | None, Key("CVC Retention"), Duration(1), "QUO-CVC"] = None
    token_intent_retention_ns: Annotated[
        int | None, Key("Token Intent Retention"), Duration(1), "QUO-INTENT"
    ] = None

    def by_name(self) -> dict[str, int | str]:
        """Return quota name → value of those that are set; durations in nanoseconds."""
        values: dict[str, int | str | None] = {
            "Rate Limit": self.rate_limit,
            "Log Retention": self.log_retention_ns,
            "Tokenize Limit": self.tokenize_limit,
            "Detokenize Limit": self.detokenize_limit,
            "CVC Retention": self.cvc_retention_ns,
            "Token Intent Retention": self.token_intent_retention_ns,
        }
        return {name: value for name, value in values.items() if value is not None}


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """A tenant; its kind decides LIM-TEST-TENANT."""

    name: NAME
    kind: Annotated[TenantKind, "test tenants have a limit of their own"] = "production"
    quotas: Annotated[Quotas, "quotas by name; the rest keep their defaults"] = Quotas()
    settings: Annotated[Mapping[str, bool], "settings by name, such as deduplicate_tokens"] = field(
        default_factory=dict
    )


@dataclass(frozen=True, kw_only=True)
class Grant:
    """Permissions on a container path and all below it (D-GRANT)."""

    container: Annotated[str, Text(), "path, such as /pci/"] = "/"
    permissions: Annotated[tuple[str, ...], "permissions, such as token:create"]


@dataclass(frozen=True, kw_only=True)
class Application:
    """An application with its keys. Its kind is a rate-limit class (AUTH-KINDS).

    grants: left out, all that its kind may hold (D-PERMISSIONS), on `/`.
    """

    name: NAME
    tenant: Annotated[str, Text(), "name of its [[tenants]]"]
    kind: Annotated[ApplicationKind, "its rate-limit class"] = "private"
    keys: Annotated[
        int | None,
        Integer(minimum=0, maximum=1_000_000),
        "how many keys; left out 1, or 0 where it has legacy keys",
    ] = None
    legacy_keys: Annotated[
        int, Integer(minimum=0, maximum=1_000_000), "how many legacy keys (AUTH-LEGACY)"
    ] = 0
    grants: Annotated[tuple[Grant, ...] | None, "what its keys may do"] = None

    @property
    def ordinary_keys(self) -> int:
        """How many keys it has that are not legacy ones."""
        if self.keys is not None:
            return self.keys
        return 0 if self.legacy_keys else 1


@dataclass(frozen=True, kw_only=True)
class AddressPool:
    """Addresses that clients share (NAT) or have each.

    `count` addresses, in order; `deal` says who gets which. `clients_each` is NAT of a fixed size:
    clients i · n … i · n + n − 1 of a group get address i mod count; it excludes `deal`.
    network: a CIDR block; its addresses are used from the first host on. Left out, pools without
    one share 10.0.0.0/8: from 10.0.0.1 on, pool after pool in file order, then one address each for
    the clients of groups without a pool.
    """

    name: NAME
    count: Annotated[int, Integer(minimum=1, maximum=10_000_000), "how many addresses"] = 1
    deal: Annotated[Dealing, "how addresses are dealt to clients"] = _EVEN
    clients_each: Annotated[
        int | None, Integer(minimum=1), "clients that share one address, block by block"
    ] = None
    network: Annotated[str | None, Text(), 'a block such as "203.0.113.0/24"'] = None


@dataclass(frozen=True, kw_only=True)
class Proxy:
    """A pre-configured proxy and the destination behind it (seed 8.5).

    destination: the time that one call takes, to its last byte; over the profile's destination
    timeout it is answered 408 (PRX-TIMEOUT).
    transforms: service times of request and response transform; each makes RCT-* apply.
    """

    name: NAME
    tenant: Annotated[str, Text(), "name of its [[tenants]]"]
    host: Annotated[str | None, Text(), "custom hostname"] = None
    require_auth: Annotated[bool, "callers need an API key; false is a whitelabel proxy"] = False
    destination: Annotated[Draw, "latency of the destination"]
    unreachable_share: Annotated[
        float, Number(minimum=0, maximum=1), "probability that the destination cannot be reached"
    ] = 0.0
    request_transform: Annotated[Draw | None, "service time of a request transform"] = None
    response_transform: Annotated[Draw | None, "service time of a response transform"] = None


@dataclass(frozen=True, kw_only=True)
class Reactor:
    """A reactor (seed 8.9).

    How many instances stay hot and what a cold start takes are choices of the profile (D-HOT):
    `[choices.outside]` has `hot_concurrency`, `cold_start`, `keep_hot`, `instances_cap`. An
    invocation that waited for an instance goes on after all else that the service does at that
    instant; it is in time where it was given one by then.
    """

    name: NAME
    tenant: Annotated[str, Text(), "name of its [[tenants]]"]
    service: Annotated[Draw, "time of one invocation, without the cold start"]


@dataclass(frozen=True, kw_only=True)
class RuleChange:
    """What a scenario changes in one rule of its limit table; what is left out stays."""

    rate: Annotated[Rate | None, "the limit"] = None
    action: Annotated[Literal["throttle", "block"] | None, "what follows a rate exceeded"] = None
    block_ns: Annotated[int | None, Duration(1), "how long a block is"] = None
    algorithm: Annotated[Algorithm | None, "how the rule counts"] = None
    burst: Annotated[int | None, Integer(minimum=1), "burst of gcra"] = None
    shadow: Annotated[bool | None, "count and report, never refuse"] = None
    off: Annotated[bool, "leave the rule out"] = False


@dataclass(frozen=True, kw_only=True)
class Threshold:
    """A condition that a run must keep; where it does not, the run exits with 1."""

    that: Annotated[
        Condition, ConditionText(), "such as \"refused_share{client='browsers'} <= 0.01\""
    ]


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A whole scenario. Attempts happen in [0, duration); results leave out [0, warm_up).

    limits, profile: files; left out, the engine's own. `rules` and `choices` then change single
    rules and choices, so that a sweep can vary them: `rules.LIM-PUBLIC.rate`,
    `choices.limits.algorithm`.
    question, answer: the comment that opens the file: what it asks, and after `Answer:` what a run
    said.
    """

    name: NAME = "scenario"
    question: Annotated[str, Unwritten] = ""
    answer: Annotated[str, Unwritten] = ""
    duration_ns: Annotated[int, Duration(1), "how long traffic is simulated"]
    warm_up_ns: Annotated[int, "time at the start that results leave out"] = 0
    seed: Annotated[int, Integer(minimum=0, maximum=2**63 - 1), "of every random stream"] = 7
    start_time_ns: Annotated[
        int, Instant(), "the wall clock at the start, such as 2026-01-01T00:00:00Z"
    ] = EPOCH_2026_NS
    limits: Annotated[Include | None, "limit table; left out, the engine's own"] = None
    limit_tables: Annotated[
        Mapping[str, Include], "further tables, for tenants' Rate Limit quota (QUO-RATE)"
    ] = field(default_factory=dict)
    profile: Annotated[Include | None, "profile; left out, the engine's own"] = None
    rules: Annotated[
        Mapping[str, RuleChange], "changes to rules of the limit table, by rule id"
    ] = field(default_factory=dict)
    choices: Annotated[
        Mapping[str, Mapping[str, object]], Choices(), "changes to the profile, by section"
    ] = field(default_factory=dict)
    tenants: Annotated[tuple[Tenant, ...], "tenants of the service"]
    applications: Annotated[tuple[Application, ...], "applications and their keys"] = ()
    addresses: Annotated[tuple[AddressPool, ...], "pools of client addresses"] = ()
    proxies: Annotated[tuple[Proxy, ...], "pre-configured proxies"] = ()
    reactors: Annotated[tuple[Reactor, ...], "reactors"] = ()
    clients: Annotated[tuple[ClientGroup, ...], "who sends requests"]
    thresholds: Annotated[tuple[Threshold, ...], "what must hold; else the run exits with 1"] = ()
    folder: Annotated[Path | None, Unwritten] = field(default=None, compare=False)
