"""Client addresses: who a request comes from, and networks that an operator names (D-IP).

The address is the socket's peer. A forwarded-for header counts only when the peer is one of the
proxies that the operator trusts, and then the nearest address in it that is none of them. An
IPv4-mapped IPv6 address is the IPv4 one; IPv6 clients are told apart by the profile's prefix.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Network, ip_network
from typing import Final, TypeAlias

from engine.errors import InputError
from engine.hosts import Address, read_address, shown_address

__all__ = ["Address", "Clients", "Network", "in_networks", "parse_networks"]

Network: TypeAlias = IPv4Network | IPv6Network

_NOBODY: Final = IPv4Address(0)
"""The address of clients that connect through a Unix socket."""

_REMEMBERED: Final = 65_536
_HOPS_LIMIT: Final = 32


def parse_networks(texts: Iterable[str], what: str) -> tuple[Network, ...]:
    """Return addresses and networks such as `10.0.0.0/8`; `what` names them in messages.

    Raises `InputError`.
    """
    found = []
    for text in texts:
        try:
            found.append(ip_network(text, strict=False))
        except ValueError:
            raise InputError(
                f"{what} = {text!r} must be an IP address or a network such as 10.0.0.0/8"
            ) from None
    return tuple(found)


def in_networks(address: Address, networks: Sequence[Network]) -> bool:
    """Return whether one of the networks holds the address."""
    return any(address in network for network in networks)


class Clients:
    """Finds the client address of requests.

    trusted: proxies whose `X-Forwarded-For` is believed. prefix_bits: how many bits of an IPv6
    address tell clients apart (128 or 64).

    >>> clients = Clients(parse_networks(["10.0.0.1"], "trusted"), prefix_bits=64)
    >>> clients.of("::ffff:203.0.113.7", []), clients.of("10.0.0.1", ["198.51.100.9"])
    ('203.0.113.7', '198.51.100.9')
    >>> clients.of("2001:db8::1:2:3:4", [])
    '2001:db8::'
    """

    __slots__ = ("_known", "_prefix_bits", "_trusted")

    def __init__(self, trusted: Sequence[Network] = (), *, prefix_bits: int = 128) -> None:
        self._trusted = trusted
        self._prefix_bits = prefix_bits
        self._known: dict[str, str] = {}

    @property
    def trusts(self) -> bool:
        """Whether a forwarded-for header may matter at all."""
        return bool(self._trusted)

    def of(self, peer: str, forwarded: Sequence[str]) -> str:
        """Return the client's address; `forwarded` holds the values of the header, in order."""
        if self._trusted and forwarded:
            return self._shown(self._nearest(peer, forwarded))
        known = self._known.get(peer)
        if known is None:
            known = self._shown(read_address(peer) or _NOBODY)
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[peer] = known
        return known

    def _nearest(self, peer: str, forwarded: Sequence[str]) -> Address:
        """Return the last address of the chain that is no trusted proxy's.

        An entry that is not an address ends the chain: the entries before it cannot be trusted.
        """
        nearest = read_address(peer) or _NOBODY
        hops = [hop for value in forwarded for hop in value.split(",")]
        for hop in reversed(hops[-_HOPS_LIMIT:]):
            if not in_networks(nearest, self._trusted):
                break
            address = read_address(_without_port(hop.strip()))
            if address is None:
                break
            nearest = address
        return nearest

    def _shown(self, address: Address) -> str:
        return shown_address(address, self._prefix_bits)


def _without_port(text: str) -> str:
    if text.startswith("["):
        return text[1:].partition("]")[0]
    return text.partition(":")[0] if text.count(":") == 1 else text
