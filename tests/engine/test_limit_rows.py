"""Every row of the limit table, asked through the whole engine: N pass, the next is its 429."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from engine import Engine, LimitTable, Profile
from tests.engine.deployment import Deployment

RIGHTS = {
    "token:create",
    "token:read",
    "token:update",
    "token:delete",
    "token:search",
    "log:read",
    "proxy:create",
    "account-updater:job:read",
}
TOKEN = "0b1e9c4e-0000-4000-8000-000000000000"


@dataclass(frozen=True)
class Row:
    """How one row is reached: who asks, for what, how often until it refuses."""

    rule: str
    limit_requests: int
    asks: tuple[tuple[str, str], ...]
    kind: Any = "private"
    tenant: Any = "production"
    legacy: bool = False
    keyed: bool = True


ROWS = (
    Row("LIM-TEST-TENANT", 50, (("GET", "/logs"),), tenant="test"),
    Row("LIM-SEARCH", 50, (("POST", "/tokens/search"),)),
    Row("LIM-READ", 100, (("GET", "/tokens"), ("POST", "/detokenize"), ("HEAD", "/tokens?size=1"))),
    Row("LIM-CREATE", 200, (("POST", "/tokens"), ("POST", "/tokenize"))),
    Row("LIM-PATCH", 200, (("PATCH", f"/tokens/{TOKEN}"), ("PATCH", "/tokens/other"))),
    Row("LIM-DELETE", 200, (("DELETE", f"/tokens/{TOKEN}"), ("DELETE", "/tokens/other"))),
    Row(
        "LIM-ACCOUNT-UPDATER",
        10,
        (
            ("GET", "/account-updater/jobs"),
            ("POST", "/account-updater/jobs"),
            ("PUT", "/account-updater/x"),
        ),
    ),
    Row("LIM-PRIVATE.key", 2000, (("GET", "/logs"),)),
    Row("LIM-PUBLIC", 50, (("GET", "/logs"), ("OPTIONS", "/nothing")), kind="public"),
    Row("LIM-MANAGEMENT", 200, (("GET", "/logs"),), kind="management"),
    Row("LIM-IP", 2000, (("GET", "/logs"), ("GET", "/nothing")), keyed=False),
    Row("LIM-LEGACY", 100, (("GET", "/logs"),), legacy=True),
)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.rule)
def test_a_row_admits_its_rate_and_refuses_the_next(row: Row) -> None:
    """Whatever the answers are (D-COUNTED); one counter for all resources of a row (D-OR-RESOURCE).

    LIM-TEST-TENANT, LIM-SEARCH, LIM-READ, LIM-CREATE, LIM-PATCH, LIM-DELETE, LIM-PRIVATE,
    LIM-ACCOUNT-UPDATER, LIM-PUBLIC, LIM-MANAGEMENT, LIM-IP, LIM-LEGACY, ERR-429.
    """
    acme = Deployment(Engine(seed=1))
    tenant = acme.engine.create_tenant("Other", kind=row.tenant)
    rights = {"log:read"} if row.kind == "management" else RIGHTS
    rights = {"token:create"} if row.kind == "public" else rights
    _, text = acme.principal(rights, row.kind, tenant=tenant, legacy=row.legacy)
    key = text if row.keyed else None

    def ask(number: int) -> Any:
        method, path = row.asks[number % len(row.asks)]
        body: Any = {} if method in {"POST", "PATCH"} else None
        # LIM-PRIVATE counts by key too: from many addresses LIM-IP has nothing to say.
        ip = f"2001:db8::{number}" if row.rule == "LIM-PRIVATE.key" else "203.0.113.7"
        return acme.ask(method, path, body, key=key, ip=ip)

    for number in range(row.limit_requests):
        assert ask(number).status != 429, number
    refused = ask(row.limit_requests)
    assert refused.status == 429
    assert refused.decision.rule == row.rule
    rule = LimitTable.default()[row.rule.partition(".")[0]]
    assert rule.limit_requests == row.limit_requests
    wait_ns = max(rule.window_ns, rule.block_ns or 0)
    assert refused.decision.wait_ns == wait_ns
    assert refused.headers["Retry-After"] == str(wait_ns // 1_000_000_000)
    if (rule.block_ns or rule.window_ns) >= rule.window_ns:  # else it would begin another block
        acme.clock.advance_ns(wait_ns - 1)
        assert ask(0).status == 429
        wait_ns = 1
    acme.clock.advance_ns(wait_ns)
    assert ask(0).status != 429


@pytest.mark.parametrize("by_host", [False, True])
def test_a_proxy_row_admits_its_rate_and_refuses_the_next(by_host: bool) -> None:
    """LIM-PROXY-KEY, LIM-PROXY-HOST, D-PROXY-RULES: by proxy key or hostname, and IP."""
    acme = Deployment(Engine(seed=1))
    made = acme.ask(
        "POST",
        "/proxies",
        {
            "name": "p",
            "destination_url": "https://api.example.com/v1",
            "require_auth": False,
            "host": "pay.example",
        },
        key=acme.key_with("proxy:create"),
    )
    assert made.status == 201, made.body
    names: dict[str, Any] = {"proxy_key": made.body["key"]}
    if by_host:
        names = {"host": "pay.example:8443"}
    path = "/orders" if by_host else "/proxy/orders"
    for _ in range(50):
        assert acme.ask("GET", path, key=None, **names).status == 200
    refused = acme.ask("GET", path, key=None, **names)
    assert refused.status == 429
    assert refused.decision.rule == ("LIM-PROXY-HOST" if by_host else "LIM-PROXY-KEY")
    assert acme.ask("GET", path, key=None, ip="198.51.100.9", **names).status == 200


def test_e4_the_lowest_rate_binds() -> None:
    """E4, LIM-LOWEST: a legacy private key on a test tenant, 60 requests in one second."""
    for compose, admitted in (("all", 50), ("lowest", 60)):
        acme = _deploy(compose)
        tenant = acme.engine.create_tenant("Test", kind="test")
        key = acme.principal({"token:create"}, tenant=tenant, legacy=True)[1]
        answers = []
        for _ in range(60):
            answers.append(acme.ask("POST", "/tokens", {"type": "token", "data": "x"}, key=key))
            acme.clock.advance_ns(16_000_000)
        assert [answer.status for answer in answers].count(201) == admitted
        refused = {answer.decision.rule for answer in answers if answer.status == 429}
        assert refused == ({"LIM-TEST-TENANT"} if compose == "all" else set())


def _deploy(compose: str) -> Deployment:
    return Deployment(Engine(seed=1, profile=Profile().replace(limits={"compose": compose})))
