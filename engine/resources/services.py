"""What all operations of one engine share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from engine.profile import Profile
from engine.store import Store
from engine.tokens import Rules
from engine.vault import Vault
from engine.world import World

__all__ = ["Services"]


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
