"""Destinations that may be called; prevents server-side request forgery (SSRF).

A proxy's definition comes from a caller and is not trusted. The operator's list decides:

- an address is called only when an entry of `allowed` covers it: the same scheme, host and port,
  and a path below the entry's;
- the name is resolved once, and the connection goes to the address that was checked, so that the
  name cannot resolve to another address in between (DNS rebinding);
- an address that is not on the public internet (private, loopback, link-local, multicast, reserved,
  and IPv4 inside IPv6) is called only when `private` holds it.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Final, TypeAlias
from urllib.parse import SplitResult, unquote, urlsplit

from engine.errors import DestinationUnreachable, InputError
from engine.hosts import Address, leaves_its_folder, unmapped
from engine.http.requests import Network, in_networks, parse_networks

_PORTS = {"http": 80, "https": 443}
_NOT_PUBLIC: Final = parse_networks(
    ("64:ff9b:1::/48", "fec0::/10", "::/96", "3fff::/20", "5f00::/16"),
    "networks that are not public",
)
"""Networks that Python's `is_global` may hold for public: local NAT64 (RFC 8215), site-local
addresses (RFC 3879), IPv4-compatible addresses (RFC 4291, 2.5.5.1), documentation (RFC 9637),
segment identifiers (RFC 9602)."""

_Origin: TypeAlias = tuple[str, str, int]


@dataclass(frozen=True, slots=True)
class CheckedTarget:
    """The target of a call: the checked address, and the parts of the URL."""

    address: str
    port: int
    scheme: str
    host: str
    host_field: str
    target: str


class Destinations:
    """The operator's list of destinations.

    allowed: origins such as `https://api.example.com`, with a path where only what lies below it
        may be called. private: addresses and networks outside of the public internet that may be
        called all the same. Raises `InputError` for an invalid entry.
    """

    __slots__ = ("_allowed", "_private")

    def __init__(self, allowed: Iterable[str] = (), private: Iterable[str] = ()) -> None:
        self._allowed = tuple(_entry(text) for text in allowed)
        self._private: tuple[Network, ...] = parse_networks(private, "private_destinations")

    async def target(self, url: str) -> CheckedTarget:
        """Return where a call to `url` goes.

        Raises `DestinationUnreachable` when it may not be called or has no address.
        """
        try:
            parts = urlsplit(url)
            scheme, host, port = origin = _origin(parts)
        except (ValueError, KeyError):
            raise DestinationUnreachable("the address is none") from None
        below = unquote(parts.path).replace("\\", "/").rstrip("/") + "/"
        covers = (own == origin and below.startswith(path) for own, path in self._allowed)
        if leaves_its_folder(parts.path) or not any(covers):
            raise DestinationUnreachable("the destination is not on the operator's list")
        address = await self._judged(host, port)
        target = parts.path or "/"
        if parts.query:
            target += "?" + parts.query
        return CheckedTarget(str(address), port, scheme, host, parts.netloc, target)

    async def _judged(self, host: str, port: int) -> Address:
        loop = asyncio.get_running_loop()
        try:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise DestinationUnreachable("the destination's name has no address") from None
        for info in infos:
            address = ip_address(str(info[4][0]).partition("%")[0])
            if self._may_be_called(address):
                return address
        raise DestinationUnreachable("the destination's address may not be called")

    def _may_be_called(self, address: Address) -> bool:
        inner = _inner(address)
        if in_networks(inner, self._private) or in_networks(address, self._private):
            return True
        if any(in_networks(candidate, _NOT_PUBLIC) for candidate in (address, inner)):
            return False
        return all(
            candidate.is_global and not candidate.is_multicast for candidate in (address, inner)
        )


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one leads to (mapped, 6to4, NAT64), else itself."""
    address = unmapped(address)
    if isinstance(address, IPv6Address):
        if address.sixtofour is not None:
            return address.sixtofour
        if address.packed[:12] == bytes.fromhex("0064ff9b0000000000000000"):
            return ip_address(address.packed[12:])
    return address


def _origin(parts: SplitResult) -> _Origin:
    """Return scheme, host and port; raises `ValueError` or `KeyError` where there is no port."""
    port = parts.port or _PORTS[parts.scheme]
    return parts.scheme, (parts.hostname or "").rstrip("."), port


def _entry(text: str) -> tuple[_Origin, str]:
    """Return the origin of an entry, and what the paths of its addresses begin with."""
    with contextlib.suppress(ValueError, KeyError):
        parts = urlsplit(text)
        origin = _origin(parts)
        if parts.hostname and not (parts.query or parts.fragment or "@" in parts.netloc):
            return origin, parts.path.rstrip("/") + "/"
    raise InputError(
        f"allowed_destinations = {text!r} must be an origin such as "
        f"https://api.example.com, perhaps with a path"
    )
