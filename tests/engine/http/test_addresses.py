"""D-IP: whose request it is."""

from __future__ import annotations

import pytest

from engine.errors import InputError
from engine.http.requests import Clients, parse_networks


def _clients(*trusted: str, prefix_bits: int = 128) -> Clients:
    return Clients(parse_networks(trusted, "trusted"), prefix_bits=prefix_bits)


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", "0.0.0.0"),  # reason: nobody's address, not one to listen on
    ],
)
def test_a_peer_is_itself_whatever_it_forwards(peer: str, shown: str) -> None:
    clients = _clients()
    assert clients.of(peer, ["198.51.100.1"]) == shown
    assert clients.of(peer, []) == shown


@pytest.mark.parametrize(
    ("forwarded", "shown"),
    [
        (["198.51.100.1"], "198.51.100.1"),
        (["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
        (["203.0.113.9", "198.51.100.1, 10.0.0.2"], "198.51.100.1"),
        (["10.0.0.3, 10.0.0.2"], "10.0.0.3"),
        (["198.51.100.1, nonsense, 10.0.0.2"], "10.0.0.2"),
        (["nonsense"], "10.0.0.1"),
        ([""], "10.0.0.1"),
        (["[2001:db8::5]:443"], "2001:db8::5"),
        (["198.51.100.1:8080"], "198.51.100.1"),
        (["::ffff:198.51.100.1"], "198.51.100.1"),
        ([", ".join(["198.51.100.1"] * 5_000)], "198.51.100.1"),
    ],
)
def test_behind_a_trusted_proxy_it_is_the_nearest_stranger(
    forwarded: list[str], shown: str
) -> None:
    assert _clients("10.0.0.0/8").of("10.0.0.1", forwarded) == shown


def test_a_stranger_who_claims_to_be_behind_a_proxy_is_the_stranger() -> None:
    assert _clients("10.0.0.0/8").of("203.0.113.7", ["198.51.100.1"]) == "203.0.113.7"


def test_ipv6_clients_are_told_apart_by_the_profiles_prefix() -> None:
    assert _clients(prefix_bits=64).of("2001:db8::1:2:3:4", []) == "2001:db8::"
    assert _clients(prefix_bits=64).of("203.0.113.7", []) == "203.0.113.7"
    assert _clients("::1", prefix_bits=64).of("::1", ["2001:db8::9"]) == "2001:db8::"


def test_the_memory_of_addresses_is_bounded() -> None:
    clients = _clients()
    for number in range(70_000):
        clients.of(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", [])
    assert len(clients._known) <= 65_536


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(InputError, match=r"^trusted = '10\.0\.0\.0/99' must be an IP address or"):
        parse_networks(["10.0.0.0/99"], "trusted")
