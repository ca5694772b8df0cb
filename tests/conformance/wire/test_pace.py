"""The pacer: what it lets through at one instant, by who asks."""

from __future__ import annotations

import pytest

from conformance.target import Target
from conformance.wire.exchange import Ask
from conformance.wire.pace import Pacer
from engine import LimitTable
from engine.files import parse_toml

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
    ask = Ask(method="GET", path="/tokens/00000000-0000-4000-8000-000000000000", key=key)
    assert [pacer.admit(0, ask, [None])[1] for _ in range(rate)].count(0) == rate * 9 // 10
