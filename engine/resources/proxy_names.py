"""Which proxies a request names, by a proxy key or by a custom hostname (D-PROXY-RULES)."""

from __future__ import annotations

from typing import Final, TypeAlias

from engine.messages import Request
from engine.model import Proxy
from engine.resources.services import Services
from engine.vault import hash_key_text

__all__ = ["NO_PROXIES", "Proxies", "find_proxies", "host_name", "proxy_path"]

Proxies: TypeAlias = tuple[Proxy | None, Proxy | None]
"""The proxy of the proxy key and the proxy of the custom hostname."""

NO_PROXIES: Final[Proxies] = (None, None)


def host_name(host: str) -> str:
    """Return a Host header's name: lower case, without port or final dot."""
    name = host.encode("utf-8", "replace").decode().strip().lower()
    if not name.startswith("["):
        name = name.partition(":")[0]
    return name.rstrip(".")


def proxy_path(path: str) -> str:
    """Return the path of a request on a custom hostname, which is the proxy whatever the path."""
    return path if _is_proxy_path(path.partition("?")[0]) else "/proxy" + path


def _is_proxy_path(path: str) -> bool:
    return path == "/proxy" or path.startswith("/proxy/")


def find_proxies(services: Services, request: Request) -> Proxies:
    """Return the proxies that the request names; inside a transaction.

    A proxy key counts on the proxy's own path and on a custom hostname; an unknown one, like an
    unknown hostname, names none.
    """
    store = services.store
    by_host = None if request.host is None else store.proxy_by_host(host_name(request.host))
    by_key = None
    on_path = by_host is not None or _is_proxy_path(request.path.partition("?")[0])
    if request.proxy_key is not None and on_path:
        by_key = store.proxy_by_hash(hash_key_text(request.proxy_key))
    return by_key, by_host
