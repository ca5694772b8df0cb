"""The clause checks: one file a section of the specification, each check bound to clause ids.

Importing this package fills `conformance.runner.registry.CHECKS` with them. How limits are measured
stands in `conformance.probes`.
"""

from conformance.checks import (
    account_updater,
    authentication,
    containers,
    deduplication,
    fingerprints,
    limits,
    limits_classes,
    limits_rules,
    proxies,
    reactors,
    request_object,
    request_readings,
    secrets,
    steadiness,
    tenant_quotas,
    token_quotas,
    token_record,
    tokenize,
    tokenize_readings,
)

__all__ = [
    "account_updater",
    "authentication",
    "containers",
    "deduplication",
    "fingerprints",
    "limits",
    "limits_classes",
    "limits_rules",
    "proxies",
    "reactors",
    "request_object",
    "request_readings",
    "secrets",
    "steadiness",
    "tenant_quotas",
    "token_quotas",
    "token_record",
    "tokenize",
    "tokenize_readings",
]
