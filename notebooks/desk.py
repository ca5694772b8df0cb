"""What every notebook starts with: an engine whose pages look the same tomorrow, and a way to ask.

Keys and nonces of an engine come from the operating system, so fingerprints differ from run to
run. A page that is to repeat hands in entropy of its own, as `Desk` does.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from typing import Any

from engine import Engine, LimitTable, ManualClock, ModelWorld, Profile, Request, Response
from engine.model import ApplicationKind, Tenant, TenantKind

__all__ = ["CARD", "Desk", "show"]

CARD: dict[str, Any] = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
"""A card that passes every check."""


class Desk:
    """One engine with a tenant, under a clock that moves only when told.

    profile: sections as keywords, such as `limits={"algorithm": "gcra"}`.
    """

    def __init__(
        self, *, kind: TenantKind = "production", table: LimitTable | None = None, **profile: Any
    ) -> None:
        self.clock = ManualClock()
        world = ModelWorld(clock=self.clock, seed=1, entropy=random.Random(1).randbytes)
        self.engine = Engine(world=world, limits=table, profile=Profile().replace(**profile))
        self.tenant: Tenant = self.engine.create_tenant("Acme", kind=kind)

    def key(
        self,
        *rights: str,
        container: str = "/",
        kind: ApplicationKind = "private",
        legacy: bool = False,
        tenant: Tenant | None = None,
        grants: Iterable[tuple[str, Iterable[str]]] | None = None,
    ) -> str:
        """Return the key of a new application that holds these rights."""
        application = self.engine.create_application(
            tenant or self.tenant, kind, kind=kind, grants=grants or [(container, set(rights))]
        )
        return str(self.engine.create_key(application, legacy=legacy))

    def ask(
        self, method: str, path: str, body: Any = None, *, key: str | None, ip: str = "203.0.113.7"
    ) -> Response:
        """Send one request."""
        return self.engine.handle(Request(method, path, key=key, ip=ip, body=body))

    def tokenize(self, body: Any, *, key: str) -> Any:
        """Tokenize, expecting to succeed; returns the answer's body."""
        answer = self.ask("POST", "/tokenize", body, key=key)
        assert answer.status == 200, answer.body
        return answer.body

    def count(self) -> int:
        """Return how many tokens the tenant holds."""
        store = self.engine.services.store
        with store.transaction(write=False):
            return store.count_tokens(self.tenant.id)

    def wait(self, seconds: float) -> None:
        """Let time pass."""
        self.clock.advance_ns(round(seconds * 1_000_000_000))


def show(value: Any) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2, ensure_ascii=False))
