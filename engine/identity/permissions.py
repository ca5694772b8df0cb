"""The permissions, and which kind of application may hold them (D-PERMISSIONS, D-GRANT)."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from engine.containers import container_rule, normal_container
from engine.errors import InputError, did_you_mean, wrong_type
from engine.model import ApplicationKind, Grant

__all__ = ["ADMINISTRATIVE", "ASKABLE", "PERMISSIONS", "make_grants"]


def _rights(resource: str, *verbs: str) -> tuple[str, ...]:
    return tuple(f"{resource}:{verb}" for verb in verbs)


_TOKEN: Final = (
    *_rights("token", "create", "read", "update", "delete", "search", "use"),
    *_rights("token-intent", "create", "read", "delete"),
)
_ADMINISTRATIVE: Final = (
    *_rights("tenant", "read", "update"),
    *_rights("application", "create", "read", "update", "delete"),
    *_rights("key", "create", "read", "update", "delete"),
)
_OTHER: Final = (
    *_rights("reactor", "create", "read", "update", "delete", "invoke"),
    *_rights("proxy", "create", "read", "update", "delete", "invoke"),
    *_rights("account-updater:job", "create", "read"),
    *_rights("log", "read"),
    *_ADMINISTRATIVE,
)

PERMISSIONS: Final[tuple[str, ...]] = (*_TOKEN, *_OTHER)
"""Every permission there is."""

ADMINISTRATIVE: Final = frozenset(_ADMINISTRATIVE)
"""The rights over rights: who gives one to another application must hold it (D-GRANT-SCOPE)."""

ASKABLE: Final[Mapping[ApplicationKind, frozenset[str]]] = {
    "private": frozenset(PERMISSIONS),
    "public": frozenset({"token:create", "token:update", "token-intent:create"}),
    "management": frozenset(_OTHER),
}
"""What an application of each kind may hold."""


def make_grants(
    kind: ApplicationKind,
    pairs: Iterable[tuple[str, Iterable[str]]],
    container_limit: int = sys.maxsize,
) -> tuple[Grant, ...]:
    """Return grants from `(container path, permissions)` pairs.

    container_limit: the profile's (D-CONTAINER); left out where no profile is known yet.
    Raises `InputError` for a path of the wrong form, an unknown permission, or one that the
    application kind may not hold.
    """
    grants = []
    for index, (path, held) in enumerate(_checked_pairs(pairs)):
        container = normal_container(path, container_limit)
        if container is None:
            shown = repr(path) if len(path) <= container_limit else "<str>"
            rule = container_rule(path, container_limit)
            raise InputError(f"grants[{index}].container = {shown} {rule}")
        for name in sorted(held):
            if name not in PERMISSIONS:
                raise InputError(
                    f"grants[{index}].permissions holds {name!r}, which does not exist"
                    f"{did_you_mean(name, PERMISSIONS)}"
                )
            if name not in ASKABLE[kind]:
                raise InputError(
                    f"grants[{index}].permissions holds {name!r}, which a {kind} application "
                    f"may not hold; leave it out or choose another kind"
                )
        grants.append(Grant(container, held))
    return tuple(grants)


def _checked_pairs(pairs: object) -> Iterator[tuple[str, frozenset[str]]]:
    """Return the pairs; raises `InputError` for what is none, as a mapping or one pair alone."""
    rule = 'pairs such as [("/", {"token:create"})]'
    if not isinstance(pairs, Iterable) or isinstance(pairs, str | bytes | Mapping):
        raise wrong_type("grants", pairs, rule)
    for index, pair in enumerate(pairs):
        if not isinstance(pair, Sequence) or isinstance(pair, str | bytes) or len(pair) != 2:
            raise wrong_type(f"grants[{index}]", pair, f"a pair; write {rule}")
        path, names = pair
        if not isinstance(path, str):
            raise wrong_type(f"grants[{index}].container", path, "a path such as '/pci/'")
        held = None
        if isinstance(names, Iterable) and not isinstance(names, str | bytes):
            held = list(names)
        if held is None or not all(isinstance(name, str) for name in held):
            rule = "a set of permissions such as {'token:create'}"
            raise wrong_type(f"grants[{index}].permissions", names, rule)
        yield path, frozenset(held)
