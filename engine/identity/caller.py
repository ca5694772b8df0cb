"""A known principal: the key, its application, its tenant, and what the grants allow."""

from __future__ import annotations

from engine.containers import covers
from engine.model import Application, Key, Tenant

__all__ = ["Caller"]


class Caller:
    """Who is asking, once the key is known.

    Permission answers are cached: a `Caller` is immutable, and a changed application gets a new
    one.
    """

    __slots__ = ("_may", "application", "key", "tenant")

    def __init__(self, key: Key, application: Application, tenant: Tenant) -> None:
        self.key = key
        self.application = application
        self.tenant = tenant
        self._may: dict[tuple[str, str | None], bool] = {}

    def __repr__(self) -> str:
        return f"<Caller application={self.application.id}>"

    def may(self, permission: str, container: str | None = None) -> bool:
        """Return whether a grant holds `permission` on `container` (D-GRANT).

        With no container: on any (rights that belong to no container, D-EMPTY).
        """
        asked = (permission, container)
        known = self._may.get(asked)
        if known is None:
            known = any(
                permission in grant.permissions
                and (container is None or covers(grant.container, container))
                for grant in self.application.grants
            )
            if len(self._may) < 1024:
                self._may[asked] = known
        return known

    def containers(self, permission: str) -> tuple[str, ...]:
        """Return the paths on which a grant holds `permission`."""
        return tuple(
            sorted({g.container for g in self.application.grants if permission in g.permissions})
        )
