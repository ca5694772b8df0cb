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
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, unquote, urlsplit

from engine.errors import DestinationUnreachable, InputError
from engine.hosts import Address, unmapped
from engine.http.requests import Network, in_networks, parse_networks

_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class Target:
    """The target of a call: the checked address, and the parts of the URL."""

    address: str
    port: int
    scheme: str
    host: str
    host_field: str
    target: str


@dataclass(frozen=True, slots=True)
class _Entry:
    scheme: str
    host: str
    port: int
    path: str


class Destinations:
    """The operator's list of destinations.

    allowed: origins such as `https://api.example.com`, with a path where only what lies below it
        may be called. private: addresses and networks outside of the public internet that may be
        called all the same. Raises `InputError` for an invalid entry.
    """

    __slots__ = ("_entries", "_private")

    def __init__(self, allowed: Iterable[str] = (), private: Iterable[str] = ()) -> None:
        self._entries = tuple(_entry(text) for text in allowed)
        self._private: tuple[Network, ...] = parse_networks(private, "private_destinations")

    async def target(self, url: str) -> Target:
        """Return where a call to `url` goes.

        Raises `DestinationUnreachable` when it may not be called or has no address.
        """
        try:
            parts = urlsplit(url)
            port = parts.port or _PORTS[parts.scheme]
            host = (parts.hostname or "").rstrip(".")
        except (ValueError, KeyError):
            raise DestinationUnreachable("the address is none") from None
        if not any(_covers(entry, parts, host, port) for entry in self._entries):
            raise DestinationUnreachable("the destination is not on the operator's list")
        address = await self._judged(host, port)
        target = parts.path or "/"
        if parts.query:
            target += "?" + parts.query
        return Target(str(address), port, parts.scheme, host, parts.netloc, target)

    async def _judged(self, host: str, port: int) -> Address:
        loop = asyncio.get_running_loop()
        try:
            found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            raise DestinationUnreachable("the destination's name has no address") from None
        for info in found:
            address = ip_address(str(info[4][0]).partition("%")[0])
            if self._may_be_called(address):
                return address
        raise DestinationUnreachable("the destination's address may not be called")

    def _may_be_called(self, address: Address) -> bool:
        inner = _inner(address)
        if in_networks(inner, self._private) or in_networks(address, self._private):
            return True
        return all(each.is_global and not each.is_multicast for each in (address, inner))


def _inner(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 one leads to (mapped, 6to4, NAT64), else itself."""
    address = unmapped(address)
    if isinstance(address, IPv6Address):
        if address.sixtofour is not None:
            return address.sixtofour
        if address.packed[:12] == bytes.fromhex("0064ff9b0000000000000000"):
            return ip_address(address.packed[12:])
    return address


def _entry(text: str) -> _Entry:
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS.get(parts.scheme, 0)
    except ValueError:
        port, parts = 0, urlsplit("")
    if not port or not parts.hostname or parts.query or parts.fragment or "@" in parts.netloc:
        raise InputError(
            f"allowed_destinations = {text!r} must be an origin such as "
            f"https://api.example.com, perhaps with a path"
        )
    return _Entry(parts.scheme, parts.hostname.rstrip("."), port, parts.path.rstrip("/") + "/")


def _covers(entry: _Entry, parts: SplitResult, host: str, port: int) -> bool:
    if (parts.scheme, host, port) != (entry.scheme, entry.host, entry.port):
        return False
    path = unquote(parts.path).replace("\\", "/")
    return ".." not in path.split("/") and (path.rstrip("/") + "/").startswith(entry.path)
