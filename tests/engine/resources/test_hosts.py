"""Custom hostnames: which of them a tenant may take, and what nobody takes over (D-HOST)."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from engine import Engine, Request
from engine.errors import InputError
from engine.model import Proxy
from engine.store import SqliteStore
from tests.engine.resources.outside import Outside

MASTER = b"m" * 32
OWN = "tokens.acme.example"


def _body(host: str) -> dict[str, str]:
    return {"name": "n", "destination_url": "https://attacker.example", "host": host}


@pytest.mark.parametrize(
    "host",
    [
        "127.0.0.1",
        "127.1",
        "2130706433",
        "0x7f000001",
        "a.0x7f",
        "127.0.0.1:8420",
        "[::1]",
        "localhost",
        "LocalHost.",
        "example",
        "pay.shop.test",
        "example.evil",
    ],
)
def test_a_tenant_takes_no_name_beyond_its_suffixes(outside: Outside, host: str) -> None:
    for method, path in (("POST", "/proxies"), ("PATCH", f"/proxies/{outside.proxy()['id']}")):
        answer = outside.ask(method, path, _body(host))
        assert (answer.status, answer.body["clause"]) == (400, "D-HOST")
        assert list(answer.body["errors"]) == ["/host"]


def test_a_suffix_is_the_tenants_own(outside: Outside) -> None:
    engine, tenant = outside.engine, outside.tenant
    engine.set_host_suffixes(tenant, [".Shop.test", "pay.acme.test"])
    for host, status in {
        "a.shop.test": 201,
        "a.b.shop.test": 201,
        "pay.acme.test": 201,
        "a.pay.acme.test": 400,
        "shop.test": 400,
        "pay.example": 400,
    }.items():
        assert outside.ask("POST", "/proxies", _body(host)).status == status, host


def test_another_tenants_name_is_never_taken(outside: Outside) -> None:
    """400 for a name that another tenant's proxy has, or that its longer suffix covers."""
    outside.proxy(host="pay.example")
    other = outside.engine.create_tenant("Other", host_suffixes=[".example", ".other.example"])
    stranger = outside.principal({"proxy:create"}, tenant=other)[1]
    assert outside.ask("POST", "/proxies", _body("pay.example"), key=stranger).status == 400
    assert outside.ask("POST", "/proxies", _body("a.other.example")).status == 400
    assert outside.ask("POST", "/proxies", _body("a.other.example"), key=stranger).status == 201


@pytest.mark.parametrize("suffix", ["", ".", "..", ".a b", "10.0.0.1", ".0.1", "localhost", 70])
def test_what_is_no_suffix_is_said_at_once(outside: Outside, suffix: object) -> None:
    with pytest.raises(InputError, match="must be a hostname"):
        outside.engine.set_host_suffixes(outside.tenant, [suffix])  # type: ignore[list-item] # reason: wrong on purpose


def _engine(path: Path, **more: list[str]) -> Engine:
    return Engine(store=SqliteStore(path), master_key=MASTER, **more)  # type: ignore[arg-type] # reason: own_names only


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", OWN, "evil.test"])
def test_a_row_of_an_older_store_takes_nothing_over(path: Path, host: str) -> None:
    """The service answers for itself on that name, and the start says which row is not routed."""
    with closing(_engine(path)) as engine:
        tenant = engine.create_tenant("Acme")
        key = engine.create_key(
            engine.create_application(tenant, "shop", grants=[("/", {"token:create"})])
        )
        row = Proxy(
            "p", tenant.id, "n", "https://attacker.example", False, b"h" * 32, host
        )  # reason: a record's field
        with engine.services.store.transaction():
            engine.services.store.put(row)
    with closing(_engine(path, own_names=[OWN])) as engine:
        (line,) = engine.refused_hosts()
        assert line.startswith(f"proxy p of tenant {tenant.id}: host = {host!r} must ")
        body = {"name": "Ada"}
        ask = Request("POST", "/tokenize", key=str(key), ip="192.0.2.1", body=body, host=host)
        answer = engine.handle(ask)
        assert (answer.status, "LIM-PROXY-HOST" in answer.decision.counted) == (200, False)


def test_a_name_that_is_no_longer_covered_is_not_routed_from_the_next_request_on(
    outside: Outside,
) -> None:
    outside.proxy(host="pay.example")
    assert outside.ask("GET", "/a", host="pay.example").status == 200
    outside.engine.set_host_suffixes(outside.tenant, [])
    assert outside.ask("GET", "/a", host="pay.example").status == 404


def test_a_custom_hostname_does_not_swallow_proxy(outside: Outside) -> None:
    """D-PROXY: the whole path is the destination's."""
    outside.proxy(host="pay.example")
    for path in ("/proxy", "/proxy/a", "/tokenize"):
        assert outside.ask("POST", path, host="pay.example").status == 200
        assert outside.calls[-1].url == f"https://api.example.com/v1{path}"


@pytest.fixture
def outside() -> Outside:
    return Outside()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tokens.sqlite"
