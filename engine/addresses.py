"""Client addresses in canonical form, the same for every way a request arrives (D-IP).

An IPv4-mapped IPv6 address is the IPv4 one; IPv6 clients are told apart by the profile's prefix.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

__all__ = ["Address", "client_address", "read_address", "shown_address", "unmapped"]

Address: TypeAlias = IPv4Address | IPv6Address


def read_address(text: str) -> Address | None:
    """Parse an address, without its zone; None when the text is not an address."""
    try:
        return unmapped(ip_address(text.partition("%")[0]))
    except ValueError:
        return None


def unmapped(address: Address) -> Address:
    """Return the IPv4 address of an IPv4-mapped IPv6 address, else the address itself."""
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def shown_address(address: Address, prefix_bits: int) -> str:
    """Return the text that identifies all clients within an address's prefix."""
    if address.version == 6 and prefix_bits < 128:
        return str(ip_network((address, prefix_bits), strict=False).network_address)
    return str(address)


def client_address(text: str, prefix_bits: int) -> str | None:
    """Return the counter key for a client's address; None when the text is not an address.

    >>> client_address("::ffff:203.0.113.7", 128), client_address("2001:db8::1:2:3:4", 64)
    ('203.0.113.7', '2001:db8::')
    >>> client_address("localhost", 128) is None
    True
    """
    address = read_address(text)
    return None if address is None else shown_address(address, prefix_bits)
