"""Roles: what a key of the target is for, the permissions it needs, and what is judged with it.

This one table is used by the target reader, `init`, `check` and the page on targets.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class Role:
    """One role.

    holds: the permissions of its key, and those it must not hold. purpose: what is judged with it.
    many: whether probes of limits need several keys of it. permissions: what `holds` says, as the
    engine names it; the grants of a key replace it.
    """

    name: str
    holds: str
    purpose: str
    many: bool = False
    permissions: tuple[str, ...] = ()


_WRITER: Final = ("token:create", "token:update", "token:delete", "token:search")
_READER: Final = (
    *_WRITER,
    *("token:read", "token:use", "log:read"),
    *("token-intent:create", "token-intent:read", "token-intent:delete"),
)
_PERMISSIONS: Final[Mapping[str, tuple[str, ...]]] = {
    **dict.fromkeys(("private_prod", "private_test", "legacy", "dedup"), _WRITER),
    **dict.fromkeys(("private_reader", "dedup_reader", "short"), _READER),
    **dict.fromkeys(("public", "private_one_container"), ("token:create",)),
}


_ALL: Final = (
    Role(
        "private_prod",
        "private application of a production tenant: token:create, update, delete and search on "
        "every container",
        "nearly every clause; the limits by resource",
        many=True,
    ),
    Role(
        "private_test",
        "as private_prod, on a test tenant",
        "LIM-TEST-TENANT, LIM-LOWEST, LIM-THROTTLE, ERR-429, REC-TENANT, REC-CREATED; whether two "
        "addresses are counted separately",
        many=True,
    ),
    Role(
        "public",
        "public application of a production tenant: token:create",
        "LIM-PUBLIC and its block (LIM-BLOCK, ERR-429), AUTH-KINDS, AUTH-LEGACY, LIM-LEGACY, "
        "LIM-MANAGEMENT",
        many=True,
    ),
    Role(
        "management",
        "management application: permissions for applications and keys, tenant:read; no token "
        "permission unless `grants` states it",
        "LIM-MANAGEMENT and its block, ERR-429, ACC-*, RCT-*, QUO-TENANT, AUTH-* (applications "
        "created to test permissions), LIM-PUBLIC, LIM-LEGACY",
        many=True,
    ),
    Role(
        "legacy",
        "a key that contains neither _prod_ nor _test_, with the permissions of private_prod",
        "LIM-LEGACY, ERR-429, AUTH-LEGACY, AUTH-KINDS, LIM-ACCOUNT-UPDATER, LIM-LOWEST, "
        "LIM-PUBLIC, "
        "LIM-MANAGEMENT",
        many=True,
    ),
    Role(
        "private_reader",
        "as private_prod, and token:read on every container",
        "containers (TOK-CONTAINER), records as they are stored (REC-*, TOK-*), QUO-DETOKENIZE, "
        "AUTH-HEADER",
    ),
    Role(
        "private_no_permission",
        "known private application without any permission",
        "AUTH-CREATE: its requests must be refused and create nothing",
    ),
    Role(
        "private_one_container",
        "token:create on a single container, which `container` names",
        "AUTH-CREATE and TOK-CONTAINER: it must be refused on all other containers",
    ),
    Role(
        "dedup",
        "as private_prod, without token:read, on a tenant with deduplication switched on",
        "TOK-DEDUP, REC-DEDUP-REDACT, AUTH-READ, TOK-LIMIT",
    ),
    Role(
        "dedup_reader",
        "as dedup, with token:read",
        "AUTH-READ: data and metadata are shown to it; REC-*, TOK-DEDUP",
    ),
    Role(
        "short",
        "as private_reader, on a tenant whose retention quotas last seconds ([[tenants]] quotas)",
        "QUO-LOG, QUO-CVC, QUO-INTENT: what must be gone when its retention has expired",
    ),
    Role(
        "proxy_key",
        "the key of a pre-configured proxy that needs no API key",
        "LIM-PROXY-KEY, ERR-429, PRX-TIMEOUT",
        many=True,
    ),
    Role(
        "custom_hostname",
        "no API key; set `host` to the proxy's custom hostname",
        "LIM-PROXY-HOST, ERR-429",
        many=True,
    ),
    Role(
        "slow_destination",
        "the key of a proxy; `path` leads to a destination that takes longer than 25 s, best one "
        "that ends in /delay/SECONDS",
        "PRX-TIMEOUT and ERR-408",
    ),
)

ROLES: Final[Mapping[str, Role]] = {
    role.name: replace(role, permissions=_PERMISSIONS.get(role.name, ())) for role in _ALL
}
"""Every role by its name; `python -m engine serve --demo` makes keys of all of them."""


def roles_table() -> str:
    """Return the roles as a table in Markdown."""
    lines = ["| role | what its key holds | what is judged with it |", "|---|---|---|"]
    for role in _ALL:
        many = " (several)" if role.many else ""
        lines.append(f"| `{role.name}`{many} | {role.holds} | {role.purpose} |")
    return "\n".join(lines)
