"""The clause checks: one file a section of the specification, each check bound to clause ids.

Importing this package fills `conformance.registry.CHECKS` with them. What measures limits by
sending many requests is not here but in `conformance.probes`.
"""

from conformance.checks import (
    account_updater,
    authentication,
    containers,
    deduplication,
    fingerprints,
    proxies,
    reactors,
    request_object,
    request_readings,
    secrets,
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
    "proxies",
    "reactors",
    "request_object",
    "request_readings",
    "secrets",
    "tenant_quotas",
    "token_quotas",
    "token_record",
    "tokenize",
    "tokenize_readings",
]
