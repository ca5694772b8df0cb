"""Identification and authority: who makes a request, and what they may pass on.

A key's text is compared by its hash only (AUTH-HEADER). A request with no or an unknown key has no
principal (D-UNKEYED); it may still name proxies, by a proxy key or a custom hostname.

The principal of a key changes only when a document does, so it is cached with the store's
`documents_version` and looked up again when that has changed. An unknown key is never cached: it
costs a look-up each time.

The module also makes 401 answers, and finds the principal of an application without a key. It finds
the proxies that a request names, by proxy key or custom hostname (D-PROXY-RULES, D-HOST).

A hostname that its tenant may no longer have names no proxy, though the store holds such a row: the
service answers its requests itself. `refused_hosts` lists these rows.

No action gives its caller, or anyone else, access that the caller lacks (D-RIGHTS). Every
operation that could pass on access asks here, and nowhere else:

    grants                  given within the giver's own scope (D-GRANT-SCOPE), by `check_grants`
    grants, keys and        changed and deleted within the same scope, by `check_application`
    applications
    API keys                made by management applications alone, by `check_makes_keys`
    proxies and reactors    changed by whoever holds what runs through them, by `check_takes_over`

What runs later runs with the rights of whoever configured it last; where it asks for a key (a
reactor, a proxy with authentication), only with those that its caller holds too. An application may
change one only if it holds what runs through it now, the rights of its configurer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from engine.errors import InputError
from engine.hosts import client_address, host_fault, host_name
from engine.identity import ADMINISTRATIVE, Caller
from engine.limits import KeyIdentity, Subject, TenantIdentity
from engine.messages import Problem, Request
from engine.model import Application, Grant, Key, Proxy, Reactor, Tenant
from engine.resources.operation import NO_PROXIES, Context, Proxies, Services

_KNOWN_LIMIT: Final = 100_000
_SUBJECTS_LIMIT: Final = 100_000
_REMEMBERED_CHARACTERS: Final = 300
"""A longer target or hostname is not cached, because callers can send texts of any size."""


@dataclass(eq=False, slots=True)
class Identification:
    """Who asks: the principal, None without one, and the proxies that the request names.

    version: of the documents that all this was read from.
    """

    caller: Caller | None
    proxies: Proxies
    _owner: Tenant | None
    version: int | None

    def subject(self, method: str, path: str, ip: str) -> Subject:
        """Return what the limits need to know: AUTH-KINDS, D-UNKEYED, D-PROXY-RULES."""
        caller, tenant = self.caller, self._owner
        by_key, by_host = self.proxies
        if by_host is not None:
            path = proxy_path(path)  # `/tokens` there is the destination's, not ours
        key = None
        if caller is not None:
            application = caller.application  # obeys AUTH-KINDS
            key = KeyIdentity(caller.key.id, caller.key.legacy, application.id, application.kind)
        return Subject.of(
            method,
            path,
            ip,
            key=key,
            # obeys QUO-RATE
            tenant=None
            if tenant is None
            else TenantIdentity(tenant.id, tenant.kind, str(tenant.quotas["Rate Limit"])),
            proxy_key_id=by_key.id if by_key is not None and not by_key.require_auth else None,
            host_id=by_host.id if by_host is not None else None,
        )


class Identifier:
    """Identifies callers, and caches known keys.

    A subject refers to its counters, so it is cached only while it is in use: call
    `forget_subjects` from time to time.
    """

    __slots__ = ("_addresses", "_known", "_prefix_bits", "_services", "_subjects")

    def __init__(self, services: Services) -> None:
        self._services = services
        self._prefix_bits = services.profile.http.ipv6_prefix_bits
        self._addresses: dict[str, str] = {}
        self._known: dict[tuple[bytes, str | None], Identification] = {}
        self._subjects: dict[tuple[Identification, str, str, str], Subject] = {}

    def identify(self, request: Request) -> tuple[Identification, Subject]:
        """Return who asks, and the subject for the limits.

        Raises `InputError` for an `ip` that is no IP address.
        """
        method, path, key = request.method, request.path, request.key
        ip = self._addresses.get(request.ip) or self._address(request.ip)
        if key is None or request.proxy_key is not None:
            who = self._look_up(request, None if key is None else hash_key_text(key))
            return who, who.subject(method, path, ip)
        name = (hash_key_text(key), request.host)
        known = self._known.get(name)
        if known is None or known.version != self._services.store.documents_version:
            known = self._look_up(request, name[0])
            if known.caller is None:
                return known, known.subject(method, path, ip)
            if request.host is None or len(request.host) <= _REMEMBERED_CHARACTERS:
                if len(self._known) >= _KNOWN_LIMIT:
                    self._known.clear()
                self._known[name] = known
        subject = self._subjects.get((known, method, path, ip))
        if subject is None:
            subject = known.subject(method, path, ip)
            if len(path) > _REMEMBERED_CHARACTERS:
                return known, subject
            if len(self._subjects) >= _SUBJECTS_LIMIT:
                self._subjects.clear()
            self._subjects[known, method, path, ip] = subject
        return known, subject

    def _address(self, text: str) -> str:
        """Return the counter key of the client's address (D-IP)."""
        address = client_address(text, self._prefix_bits)
        if address is None:
            raise InputError(f"ip = {text!r} must be an IP address, such as '192.0.2.1'")
        if len(self._addresses) >= _SUBJECTS_LIMIT:
            self._addresses.clear()
        self._addresses[text] = address
        return address

    def forget_subjects(self) -> None:
        """Forget the subjects, so that only those in use take memory."""
        self._subjects.clear()

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
            return Identification(caller, proxies, owner, store.documents_version)

    def _caller(self, key: Key) -> Caller | None:
        store = self._services.store
        application = store.get(Application, key.application_id)
        tenant = store.get(Tenant, key.tenant_id)
        return None if application is None or tenant is None else Caller(key, application, tenant)


def hash_key_text(text: str) -> bytes:
    """Return the 32-byte hash under which a key's text is stored and looked up (D-KEY).

    Plain SHA-256 with a prefix of its own, and no key: the text holds 128 random bits, so nobody
    can try them all, and the hash stays the same across restarts, processes and master keys.
    """
    return sha256(b"tollgate key text\0" + text.encode("utf-8", "surrogatepass")).digest()


def unauthenticated(
    header: str, *, what: str = "API key", scheme: str = "ApiKey", clause: str = "AUTH-HEADER"
) -> Problem:
    """Return the answer to a request without a known key in `header` (AUTH-HEADER, D-STATUSES)."""
    return Problem(
        401,
        f"A known {what} is needed in {header}.",
        headers={"WWW-Authenticate": f'{scheme} header="{header}"'},
        clause=clause,
    )


def principal_of(services: Services, application_id: str) -> Caller | None:
    """Return the principal of an application that acts without a key; inside a transaction.

    The creator of a proxy without authentication, or of an account-updater job, acts when a
    request has no key. None once that application is deleted.
    """
    application = services.store.get(Application, application_id)
    if application is None:
        return None
    tenant = services.store.get(Tenant, application.tenant_id)
    if tenant is None:
        return None
    keyless = Key("", tenant.id, application.id, legacy=False, text_hash=b"")
    return Caller(keyless, application, tenant)


def proxy_path(path: str) -> str:
    """Return the proxy path of a request on a custom hostname, where all paths are the proxy's."""
    return "/proxy" + path


def find_proxies(services: Services, request: Request) -> Proxies:
    """Return the proxies that the request names; inside a transaction.

    A proxy key is read only on the proxy's own path and on a custom hostname; an unknown one, like
    an unknown hostname, names none.
    """
    store = services.store
    by_host = None if request.host is None else _proxy_of(services, host_name(request.host))
    by_key = None
    path = request.path.partition("?")[0]
    on_path = by_host is not None or path == "/proxy" or path.startswith("/proxy/")
    if request.proxy_key is not None and on_path:
        by_key = store.proxy_by_hash(hash_key_text(request.proxy_key))
    return by_key, by_host


def _proxy_of(services: Services, host: str) -> Proxy | None:
    proxy = services.store.proxy_by_host(host)
    if proxy is None or _fault(services, proxy, host) is not None:
        return None
    return proxy


def _fault(services: Services, proxy: Proxy, host: str) -> str | None:
    tenant = services.store.get(Tenant, proxy.tenant_id)
    suffixes = () if tenant is None else tenant.host_suffixes
    return host_fault(host, suffixes, services.own_names)


def refused_hosts(services: Services) -> Iterator[str]:
    """Return a line for each stored hostname that is not routed, and why; inside a transaction."""
    for tenant in services.store.tenants():
        for proxy in services.store.list(Proxy, tenant.id):
            if proxy.host is None:
                continue
            fault = _fault(services, proxy, proxy.host)
            if fault is not None:
                yield (
                    f"proxy {proxy.id} of tenant {tenant.id}: host = {proxy.host!r} {fault}; "
                    "it is not routed"
                )


_READS_TOKENS: Final = frozenset({"token:use"})
_RUNS_CODE: Final = frozenset({"token:use", "token:create"})


def check_grants(
    context: Context, right: str, grants: Iterable[Grant], recipient: Application | None = None
) -> None:
    """Raise `Problem` 403 for a grant that the caller, who acts by `right`, may not give.

    A management application gives any right within its own scope, but rights over applications,
    keys and the tenant only where it holds them. Another application, and one that changes its own
    grants, gives only what it holds.
    """
    if context.services.profile.identity.grant_scope == "any":
        return
    giver = context.caller.application
    holds_all = giver.kind != "management" or (recipient is not None and recipient.id == giver.id)
    for grant in grants:
        given = grant.permissions if holds_all else grant.permissions & ADMINISTRATIVE
        for permission in (right, *sorted(given)):
            _check_holds(context, permission, grant.container, "D-GRANT-SCOPE")


def check_application(context: Context, right: str, application: Application) -> None:
    """Raise `Problem` 403 unless the caller, who acts by `right`, could have given the grants."""
    if context.services.profile.identity.grant_scope == "any":
        return
    for grant in application.grants:
        for permission in (right, *sorted(grant.permissions & ADMINISTRATIVE)):
            _check_holds(context, permission, grant.container, "D-RIGHTS")


def check_makes_keys(context: Context, application: Application) -> None:
    """Raise `Problem` 403 unless the caller may make an API key of the application."""
    if context.caller.application.kind != "management":
        raise Problem(403, "API keys are made by management applications alone.", clause="D-RIGHTS")
    check_application(context, "key:create", application)


def check_takes_over(context: Context, record: Proxy | Reactor) -> None:
    """Raise `Problem` 403 unless the caller holds what runs through a proxy or a reactor."""
    if record.configured_by == context.caller.application.id:
        return
    rights = _READS_TOKENS if isinstance(record, Proxy) else _RUNS_CODE
    configurer = context.services.store.get(Application, record.configured_by)
    for grant in () if configurer is None else configurer.grants:
        for permission in sorted(grant.permissions & rights):
            _check_holds(context, permission, grant.container, "D-RIGHTS")


def taken_over(
    context: Context, record: Proxy | Reactor, body: Mapping[str, object]
) -> dict[str, str]:
    """Return who configures a record from a change on; `Problem` 403 as `check_takes_over`."""
    if body.keys() <= {"name"}:
        return {}
    check_takes_over(context, record)
    return {"configured_by": context.caller.application.id}


def configurer_of(context: Context, record: Proxy | Reactor) -> Caller:
    """Return the principal that configured a record last; `Problem` 403 where it is gone."""
    principal = principal_of(context.services, record.configured_by)
    if principal is None:
        raise Problem(
            403,
            "The application that configured this is gone, and with it its rights.",
            clause="D-RIGHTS",
        )
    return principal


def _check_holds(context: Context, permission: str, container: str, clause: str) -> None:
    if not context.may(permission, container):
        raise Problem(
            403,
            f"The key cannot act for rights on {container}; it lacks {permission} there.",
            clause=clause,
        )
