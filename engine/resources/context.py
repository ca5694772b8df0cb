"""The context of one operation: its input, and the steps and parts that all share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from msgspec import Struct

from engine.identity import Caller
from engine.messages import Json, Problem, Request
from engine.model import LogEntry, Proxy, Tenant
from engine.profile import Profile
from engine.store import Store
from engine.tokens.rules import Rules
from engine.vault import Vault
from engine.world import World


@dataclass(slots=True)
class Services:
    """The parts that the service hands to every operation.

    own_names: hostnames of the server itself, which no proxy may have (D-HOST).
    rules: the profile's choices about tokens, prepared. new_id returns a fresh UUID string.
    `running` holds what lives in the process only (reactor instances), by name.
    """

    profile: Profile
    rules: Rules
    store: Store
    vault: Vault
    world: World
    new_id: Callable[[], str]
    region: str
    running: dict[str, Any]
    own_names: frozenset[str] = frozenset()


Proxies: TypeAlias = tuple[Proxy | None, Proxy | None]
"""The proxy of the proxy key and the proxy of the custom hostname."""

NO_PROXIES: Final[Proxies] = (None, None)


class Context(Struct, eq=False):
    """One request on its way through an operation.

    params, query: from the path template and the query string.
    now_ns, wall_ns, steady_ns: the request's one instant on the monotonic clock, on the wall clock,
    and on the time that never goes back, by which deadlines are judged (D-CLOCK).
    proxies: the proxies that a proxy key and a custom hostname name.
    body: the parsed JSON, or the bytes where the operation takes them raw. raw: the bytes of a JSON
    body that came as such.
    prepared: what the operation's `prepare` has made of it.
    configurer: who configured what runs for the caller, and must hold its rights too (D-RIGHTS).
    rights, entity_ids: what a kept answer depends on, None where no answer is kept (D-IDEMPOTENCY).
    caller: the principal; None only where an operation asks for no key, since the service
    authenticates first. Such an operation reads `known_caller`.
    """

    services: Services
    request: Request
    caller: Caller
    params: Mapping[str, str]
    query: Mapping[str, str]
    now_ns: int
    wall_ns: int
    steady_ns: int
    proxies: Proxies = NO_PROXIES
    body: Json | bytes = None
    raw: bytes | None = None
    prepared: Any = None
    configurer: Caller | None = None
    rights: set[str] | None = None
    entity_ids: dict[str, None] | None = None

    def __repr__(self) -> str:
        return f"<Context of {self.request!r}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:  # msgspec's own shows every field
        return [("request", self.request)]

    @property
    def known_caller(self) -> Caller | None:
        """The principal, None without one."""
        return self.caller

    @property
    def tenant(self) -> Tenant:
        """The caller's tenant."""
        return self.caller.tenant

    @property
    def is_bodiless(self) -> bool:
        """Whether no body came; JSON `null` is one."""
        return self.body == b"" or self.request.body is None

    @property
    def json(self) -> Json:
        """The body as JSON."""
        assert not isinstance(self.body, bytes), "this operation takes its body raw"
        return self.body

    def may(self, permission: str, container: str | None = None) -> bool:
        """Return whether the caller holds `permission`; an answer that is kept depends on it."""
        may = self.caller.may(permission, container)
        if self.configurer is not None:
            may = may and self.configurer.may(permission, container)
        if may and self.rights is not None:
            self.rights.add(permission if container is None else f"{permission} {container}")
        return may

    def shows(self, entity_id: str) -> None:
        """Note that the answer shows an entity: its deletion deletes a kept answer."""
        if self.entity_ids is not None:
            self.entity_ids[entity_id] = None

    def require(self, permission: str, container: str | None = None) -> None:
        """Raise a 403 problem unless the caller holds `permission` (D-PERMISSIONS, D-GRANT)."""
        if not self.may(permission, container):
            where = "" if container is None else f" on {container}"
            clause = "AUTH-CREATE" if permission == "token:create" else "D-PERMISSIONS"
            who = "The key"
            if self.caller.may(permission, container):
                who, clause = "The application that configured this", "D-RIGHTS"
            raise Problem(403, f"{who} lacks {permission}{where}.", clause=clause)

    def log(self, operation: str, entity_type: str, entity_id: str, status: int) -> None:
        """Append one log entry (D-LOGS)."""
        self.services.store.add_log(self.entry(operation, entity_type, entity_id, status))

    def entry(self, operation: str, entity_type: str, entity_id: str, status: int) -> LogEntry:
        """Return the log entry of what the caller has done to what; it holds no value."""
        actor, entry_id = self.caller.application, self.services.new_id()
        return LogEntry(
            entry_id,
            actor.tenant_id,
            self.wall_ns,
            operation,
            entity_type,
            entity_id,
            actor.id,
            status,
        )
