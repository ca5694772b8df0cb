"""Which proxies a request names, by a proxy key or by a custom hostname (D-PROXY-RULES, D-HOST).

A hostname that its tenant may not have names no proxy, even if a store holds such a row from an
older version: the service answers its requests itself. `refused_hosts` lists these rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from engine.hosts import host_fault, host_name
from engine.messages import Request
from engine.model import Proxy, Tenant
from engine.resources.services import Services
from engine.vault import hash_key_text

__all__ = ["NO_PROXIES", "Proxies", "find_proxies", "proxy_path", "refused_hosts"]

Proxies: TypeAlias = tuple[Proxy | None, Proxy | None]
"""The proxy of the proxy key and the proxy of the custom hostname."""

NO_PROXIES: Final[Proxies] = (None, None)


def proxy_path(path: str) -> str:
    """Return the path of a request on a custom hostname, which is the proxy whatever the path."""
    return "/proxy" + path


def _is_proxy_path(path: str) -> bool:
    return path == "/proxy" or path.startswith("/proxy/")


def find_proxies(services: Services, request: Request) -> Proxies:
    """Return the proxies that the request names; inside a transaction.

    A proxy key counts on the proxy's own path and on a custom hostname; an unknown one, like an
    unknown hostname, names none.
    """
    store = services.store
    by_host = None if request.host is None else _proxy_of(services, host_name(request.host))
    by_key = None
    on_path = by_host is not None or _is_proxy_path(request.path.partition("?")[0])
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
