"""D-IP: whose request it is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from engine import Engine
from engine.errors import InputError
from engine.hosts import client_address
from engine.http.app import HttpApplication
from engine.http.requests import Reservation, forwarded_client, parse_networks, peer_address


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("203.0.113.7", "203.0.113.7"),
        ("::ffff:203.0.113.7", "203.0.113.7"),
        ("2001:DB8::0:1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1"),
        ("", "0.0.0.0"),  # reason: nobody's address, not one to listen on
        ("testclient", "0.0.0.0"),
    ],
)
def test_a_peer_has_one_address(peer: str, shown: str) -> None:
    assert client_address(peer_address(peer), 128) == shown


@pytest.mark.parametrize(
    ("forwarded", "shown"),
    [
        ("198.51.100.1", "198.51.100.1"),
        ("203.0.113.9, 198.51.100.1", "198.51.100.1"),
        ("203.0.113.9, 198.51.100.1, 10.0.0.2", "198.51.100.1"),
        ("10.0.0.3, 10.0.0.2", "10.0.0.3"),
        ("198.51.100.1, nonsense, 10.0.0.2", "10.0.0.2"),
        ("nonsense", "10.0.0.1"),
        ("", "10.0.0.1"),
        ("[2001:db8::5]:443", "2001:db8::5"),
        ("198.51.100.1:8080", "198.51.100.1"),
        ("::ffff:198.51.100.1", "198.51.100.1"),
        (", ".join(["198.51.100.1"] * 5_000), "198.51.100.1"),
    ],
)
def test_behind_a_trusted_proxy_it_is_the_nearest_stranger(forwarded: str, shown: str) -> None:
    trusted = parse_networks(["10.0.0.0/8"], "trusted")
    assert forwarded_client("10.0.0.1", forwarded, trusted) == shown


def test_a_stranger_who_claims_to_be_behind_a_proxy_is_the_stranger() -> None:
    trusted = parse_networks(["10.0.0.0/8"], "trusted")
    assert forwarded_client("203.0.113.7", "198.51.100.1", trusted) == "203.0.113.7"


def test_a_large_body_without_a_key_is_held_by_the_client_not_by_the_proxy() -> None:
    """D-SIZE: one caller's bound; all callers behind a proxy are not one caller."""

    async def receive() -> Mapping[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": True}

    trusted = parse_networks(["10.0.0.0/8"], "trusted")
    scope = {
        "method": "POST",
        "raw_path": b"/tokenize",
        "query_string": b"",
        "client": ("10.0.0.1", 1),
        "headers": [(b"content-length", b"70000"), (b"x-forwarded-for", b"198.51.100.1")],
    }
    application = HttpApplication(Engine(seed=7), trusted=trusted)
    held = Reservation(application.budget)
    held.request, body, _ = application._read(scope, receive, None, held)
    assert body is not None
    held.resize(1)
    assert held.owner == "198.51.100.1"


def test_ipv6_clients_are_told_apart_by_the_profiles_prefix() -> None:
    assert client_address("2001:db8::1:2:3:4", 64) == "2001:db8::"
    assert client_address("203.0.113.7", 64) == "203.0.113.7"
    nearest = forwarded_client("::1", "2001:db8::9", parse_networks(["::1"], "trusted"))
    assert client_address(nearest, 64) == "2001:db8::"


def test_the_memory_of_addresses_is_bounded() -> None:
    assert peer_address.cache_info().maxsize == 65_536


def test_what_is_no_network_is_named() -> None:
    with pytest.raises(InputError, match=r"^trusted = '10\.0\.0\.0/99' must be an IP address or"):
        parse_networks(["10.0.0.0/99"], "trusted")
