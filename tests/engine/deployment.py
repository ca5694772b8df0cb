"""One engine with a tenant and its principals, and short ways to ask it."""

from __future__ import annotations

from typing import Any

from engine import Engine, ManualClock, Request, Response
from engine.model import Application, ApplicationKind, Tenant

__all__ = ["CARD", "EVERY_TOKEN_RIGHT", "IP", "Deployment"]

IP = "203.0.113.7"
CARD = {
    "type": "card",
    "data": {
        "number": "4242424242424242",
        "expiration_month": 12,
        "expiration_year": 2030,
        "cvc": "123",
    },
}
EVERY_TOKEN_RIGHT = {
    "token:create",
    "token:read",
    "token:update",
    "token:delete",
    "token:search",
    "token:use",
}


class Deployment:
    """One engine, and short ways to ask it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        assert isinstance(engine.clock, ManualClock)
        self.clock: ManualClock = engine.clock
        self.tenant: Tenant = engine.create_tenant("Acme", kind="production")
        self.application, self.key = self.principal(EVERY_TOKEN_RIGHT)

    def principal(
        self,
        rights: set[str],
        kind: ApplicationKind = "private",
        *,
        container: str = "/",
        tenant: Tenant | None = None,
        legacy: bool = False,
    ) -> tuple[Application, str]:
        """Return a new application and its key's text."""
        application = self.engine.create_application(
            tenant or self.tenant, kind, kind=kind, grants=[(container, rights)]
        )
        return application, str(self.engine.create_key(application, legacy=legacy))

    def key_with(self, *rights: str, container: str = "/") -> str:
        """Return the key of a new private application with these rights."""
        return self.principal(set(rights), container=container)[1]

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        key: str | None = "",
        **more: Any,
    ) -> Response:
        """Ask with the deployment's own key, unless another one (or None) is given."""
        chosen = self.key if key == "" else key
        more.setdefault("ip", IP)
        return self.engine.handle(Request(method, path, key=chosen, body=body, **more))

    def tokenize(self, body: Any, *, key: str | None = "", status: int = 200) -> Any:
        """Tokenize and return the answer's body; asserts the status."""
        answer = self.ask("POST", "/tokenize", body, key=key)
        assert answer.status == status, answer.body
        return answer.body

    def count(self) -> int:
        """Return how many tokens the tenant holds."""
        store = self.engine.services.store
        with store.transaction(write=False):
            return store.count_tokens(self.tenant.id)
