"""The pacer: what it lets through at one instant, by who asks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from conformance.messages.exchange import HttpRequest
from conformance.messages.shapes import SHAPES
from conformance.target import Target, TargetKey
from conformance.wire.pace import Pacer
from engine import LimitTable
from engine.files import Rate, parse_toml

TARGET = 'base_url = "https://vault.example.com"\n[[tenants]]\nname = "acme"\n' + "".join(
    f'[[keys]]\nrole = "{role}"\nvalue = "of {role}"\ntenant = "acme"\n'
    for role in ("private_prod", "legacy")
)


@pytest.mark.parametrize(
    ("key", "rule_id"), [("legacy.1", "LIM-LEGACY"), ("private_prod.1", "LIM-PRIVATE")]
)
def test_a_key_is_kept_below_the_limits_of_its_own_class(key: str, rule_id: str) -> None:
    limits = LimitTable.default()
    rate = next(rule.limit_requests for rule in limits if rule.id == rule_id)
    pacer = Pacer(Target.from_document(parse_toml(TARGET, "target.toml")), limits)
    ask = HttpRequest(method="GET", path="/tokens/00000000-0000-4000-8000-000000000000", key=key)
    assert [pacer.admit(0, ask, [None])[1] for _ in range(rate)].count(0) == rate * 9 // 10


def test_a_limit_of_an_operation_is_kept_by_each_key_and_of_proxies_at_each_address() -> None:
    own = {
        name: dataclasses.replace(SHAPES[name], limit=Rate(20, 10_000_000_000))
        for name in ("search", "invoke_proxy")
    }
    own["get"] = SHAPES["get"]  # another spelling, and no limit
    roles = ("private_prod", "private_prod", "proxy_key", "proxy_key")
    keys = tuple(TargetKey(role=role, value=f"key {turn}") for turn, role in enumerate(roles))
    target = Target(base_url="https://vault.example.com", keys=keys, requests=own)
    pacer = Pacer(target, LimitTable(()))

    def admitted(source: str, path: str, **sender: Any) -> int:
        ask = HttpRequest(method="POST", path=path, **sender)
        return [pacer.admit(0, ask, [source])[1] for _ in range(30)].count(0)

    here, there = "192.0.2.1", "192.0.2.2"
    assert admitted(here, "/tokens/search", key="private_prod.1") == 18
    assert admitted(there, "/tokens/search", key="private_prod.1") == 0
    assert admitted(here, "/tokens/search", key="private_prod.2") == 18
    assert admitted(here, "/tokens", key="private_prod.1") == 30, "it has no limit here"
    assert admitted(here, "/proxy/a", proxy_key="proxy_key.1") == 18
    assert admitted(here, "/proxy/b", proxy_key="proxy_key.2") == 0
    assert admitted(there, "/proxy/b", proxy_key="proxy_key.2") == 18
