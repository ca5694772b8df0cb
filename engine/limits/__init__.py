"""Rate limits: the specification's table as data, and a limiter that plays it under a profile.

`LimitTable` and `Rule` say what is limited (section 8.2 to 8.7), `LimitsProfile` how that is read
(`engine.profile`), and `Limiter` decides: `decide(now_ns, subject)` for a request of a `Subject`.
`NodesLimiter` decides as several nodes do that share their counters (`engine.limits.nodes`).

The package reads no clock: callers pass in each instant.
"""

from engine.limits.counters import RateLimitStatus
from engine.limits.limiter import CountersFull, Limiter
from engine.limits.nodes import NodesLimiter
from engine.limits.rules import KeyIdentity, Subject, TenantIdentity
from engine.limits.table import (
    DEFAULT_TABLE,
    SEED_SECTIONS,
    Classifier,
    LimitTable,
    Match,
    Rule,
    render,
)

__all__ = [
    "DEFAULT_TABLE",
    "SEED_SECTIONS",
    "Classifier",
    "CountersFull",
    "KeyIdentity",
    "LimitTable",
    "Limiter",
    "Match",
    "NodesLimiter",
    "RateLimitStatus",
    "Rule",
    "Subject",
    "TenantIdentity",
    "render",
]
