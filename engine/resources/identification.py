"""Identification: from what a request carries to the principal and what the limits need to know.

A key's text is compared by its hash only (AUTH-HEADER). A request with no or an unknown key has no
principal (D-UNKEYED); it may still name proxies, by a proxy key or a custom hostname.

The one idea: what a key stands for changes only when a document does, so it is remembered with the
store's `documents_version` and looked up again when that has moved. Nothing that a request could
make up is remembered: an unknown key costs a look-up each time.
"""

from __future__ import annotations

from typing import Final

from engine.identity import Caller
from engine.limits import Subject
from engine.messages import Request
from engine.model import Application, Key, Tenant
from engine.resources.proxy_names import NO_PROXIES, Proxies, find_proxies
from engine.resources.services import Services
from engine.vault import hash_key_text

__all__ = ["Identification", "Identifier"]

_KNOWN_LIMIT: Final = 100_000
_SUBJECTS_LIMIT: Final = 64


class Identification:
    """Who asks: the principal, None without one, and the proxies that the request names.

    `subjects` are the limits' view of it, by method, path and address. version: of the documents
    that all this was read from.
    """

    __slots__ = ("_owner", "caller", "proxies", "subjects", "version")

    def __init__(
        self, caller: Caller | None, proxies: Proxies, owner: Tenant | None, version: int | None
    ) -> None:
        self.caller = caller
        self.proxies = proxies
        self._owner = owner
        self.version = version
        self.subjects: dict[tuple[str, str, str], Subject] = {}

    def subject(self, method: str, path: str, ip: str) -> Subject:
        """Return what the limits need to know: AUTH-KINDS, D-UNKEYED, D-PROXY-RULES."""
        caller, tenant = self.caller, self._owner
        by_key, by_host = self.proxies
        made = Subject(
            method,
            path,
            ip,
            key_id=None if caller is None else caller.key.id,
            tenant_kind=None if tenant is None else tenant.kind,
            application_kind=None if caller is None else caller.application.kind,
            legacy=caller is not None and caller.key.legacy,
            table="Default" if tenant is None else str(tenant.quotas["Rate Limit"]),
            proxy_key_id=by_key.id if by_key is not None and not by_key.require_auth else None,
            host_id=by_host.id if by_host is not None else None,
        )
        if len(self.subjects) >= _SUBJECTS_LIMIT:
            self.subjects.clear()
        self.subjects[method, path, ip] = made
        return made


class Identifier:
    """Finds out who asks, and remembers the keys that it knows."""

    __slots__ = ("_known", "_services")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._known: dict[tuple[bytes, str | None], Identification] = {}

    def identify(self, request: Request) -> tuple[Identification, Subject]:
        """Return who asks, and the subject for the limits."""
        asked = (request.method, request.path, request.ip)
        key = request.key
        if key is None:
            return (who := self._look_up(request, None)), who.subject(*asked)
        text_hash = hash_key_text(key)
        known = self._known.get((text_hash, request.host))
        if (
            known is None
            or request.proxy_key is not None
            or known.version != self._services.store.documents_version()
        ):
            known = self._look_up(request, text_hash)
        return known, known.subjects.get(asked) or known.subject(*asked)

    def forget(self) -> None:
        """Forget everything, so that memory follows the keys that are in use."""
        self._known.clear()

    def _look_up(self, request: Request, text_hash: bytes | None) -> Identification:
        services = self._services
        store = services.store
        with store.transaction(write=False):
            key = None if text_hash is None else store.key_by_hash(text_hash)
            caller = None if key is None else self._caller(key)
            proxies = NO_PROXIES
            if request.proxy_key is not None or request.host is not None:
                proxies = find_proxies(services, request)
            owner = None if caller is None else caller.tenant
            if owner is None and (proxy := proxies[0] or proxies[1]) is not None:
                owner = store.get(Tenant, proxy.tenant_id)
            who = Identification(caller, proxies, owner, store.documents_version())
        if caller is not None and text_hash is not None and request.proxy_key is None:
            if len(self._known) >= _KNOWN_LIMIT:
                self.forget()
            self._known[text_hash, request.host] = who
        return who

    def _caller(self, key: Key) -> Caller | None:
        store = self._services.store
        application = store.get(Application, key.application_id)
        tenant = store.get(Tenant, key.tenant_id)
        return None if application is None or tenant is None else Caller(key, application, tenant)
