"""Cross-origin requests of browsers, for public keys (D-CORS, the Fetch standard).

Who may ask from which page: a public application's own origins, and those of the configuration,
which hold for every public key; none unless listed. A browser asks first by OPTIONS without a key
(a preflight), so that is allowed to an origin of any public application; whether the answer may be
read is decided by the key of the request. Nothing here refuses a request, which is the browser's
part, and nothing here changes what a key may do.

A preflight is a request like any other: it counts in LIM-IP. On a custom hostname and under
`/proxy` nothing is added, since the answers there are the destination's.
"""

from __future__ import annotations

from typing import Final

from engine.errors import StoreError
from engine.messages import Request, Response
from engine.model import Application
from engine.resources.idempotency import IDEMPOTENCY_KEY
from engine.service import Engine

__all__ = ["EXPOSED", "Cors"]

EXPOSED: Final = (
    "Location",
    "RateLimit",
    "RateLimit-Policy",
    "Retry-After",
    "WWW-Authenticate",
    "X-Request-Id",
)
"""The header fields that a script may read, beyond the safelisted ones."""

_PREFLIGHT_S: Final = 600


class Cors:
    """Adds its headers to answers. origins: those of the configuration, for every public key."""

    def __init__(self, engine: Engine, origins: tuple[str, ...] = ()) -> None:
        self._engine = engine
        self._origins = frozenset(origins)
        self._allows_any = engine.profile.http.cors == "any"
        self._own: tuple[int | None, frozenset[str]] = (None, frozenset())
        headers = (engine.profile.http.key_header, "Content-Type", IDEMPOTENCY_KEY, "X-Request-Id")
        self._allowed_headers = ", ".join(headers)

    def add(self, request: Request, response: Response, origin: str) -> None:
        """Add the headers to the answer to a request with an `Origin`, where it may be read."""
        if request.operation is None and request.method == "OPTIONS":
            asked = request.headers is not None and request.headers.get(
                "Access-Control-Request-Method"
            )
            if asked and "Allow" in response.headers and self._knows(origin):
                self._allow(response, origin)
                response.headers["Access-Control-Allow-Methods"] = response.headers["Allow"]
                response.headers["Access-Control-Allow-Headers"] = self._allowed_headers
                response.headers["Access-Control-Max-Age"] = str(_PREFLIGHT_S)
        elif request.operation != "invoke_proxy" and self._may_read(request, origin):
            self._allow(response, origin)
            response.headers["Access-Control-Expose-Headers"] = ", ".join(EXPOSED)

    def _allow(self, response: Response, origin: str) -> None:
        response.headers["Access-Control-Allow-Origin"] = origin
        response.headers["Vary"] = "Origin"

    def _may_read(self, request: Request, origin: str) -> bool:
        """Return whether the key that asks is a public one, and the origin one of its own."""
        try:
            application = self._engine.application_of(request)
        except StoreError:
            return False
        if application is None or application.kind != "public":
            return False
        listed = origin in self._origins or origin in application.origins
        return listed or self._allows_any

    def _knows(self, origin: str) -> bool:
        """Return whether any public application may be asked from the origin."""
        if self._allows_any or origin in self._origins:
            return True
        store = self._engine.services.store
        try:
            version = store.documents_version()
            if version is None or version != self._own[0]:
                with store.transaction(write=False):
                    found = frozenset(
                        own
                        for tenant in store.tenants()
                        for application in store.list(Application, tenant.id)
                        for own in application.origins
                    )
                self._own = (version, found)
        except StoreError:
            return False
        return origin in self._own[1]
