"""Who asks is remembered, and never wrongly."""

from __future__ import annotations

import tracemalloc

from engine import Engine, Request
from engine.limits import LimitTable
from engine.model import Tenant

MINUTE_NS = 60 * 1_000_000_000


def _engine() -> tuple[Engine, Tenant, str]:
    tables = {"Default": LimitTable.default(), "Other": LimitTable.default()}
    engine = Engine(seed=1, limits=tables)
    tenant = engine.create_tenant("Acme")
    application = engine.create_application(tenant, "shop", grants=[("/", {"token:create"})])
    return engine, tenant, engine.create_key(application)


def _ask(engine: Engine, key: str | None, **more: str) -> int:
    ask = Request("POST", "/tokenize", key=key, ip="192.0.2.1", body=["x"], **more)  # type: ignore[arg-type] # reason: host and proxy_key only
    return engine.handle(ask).status


def test_auth_header_a_deleted_key_is_unknown_from_the_next_request_on() -> None:
    engine, _, key = _engine()
    assert [_ask(engine, key), _ask(engine, key)] == [200, 200]
    engine.delete_key(key.key_id)  # type: ignore[attr-defined] # reason: a KeyText
    assert _ask(engine, key) == 401


def test_quo_tenant_a_changed_quota_holds_from_the_next_request_on() -> None:
    engine, tenant, key = _engine()
    assert _ask(engine, key) == 200
    engine.set_quota(tenant, "Tokenize Limit", 0)
    assert _ask(engine, key) == 400
    engine.set_quota(tenant, "Tokenize Limit", 1)
    assert _ask(engine, key) == 200


def test_quo_rate_a_tenant_with_another_table_is_counted_there_at_once() -> None:
    engine, tenant, key = _engine()
    request = Request("GET", "/tokens", key=key, ip="192.0.2.1")
    _, before = engine._identifier.identify(request)
    engine.set_quota(tenant, "Rate Limit", "Other")
    _, after = engine._identifier.identify(request)
    assert (before.table, after.table) == ("Default", "Other")


def test_lim_proxy_host_a_path_there_is_the_destinations_and_no_resource_of_ours() -> None:
    """LIM-PROXY-HOST, D-COUNTED: no row by resource counts what goes on to a destination."""
    engine, tenant, _ = _engine()
    rights = {"proxy:create", "proxy:invoke"}
    key = engine.create_key(engine.create_application(tenant, "p", grants=[("/", rights)]))
    made = {"name": "p", "destination_url": "https://api.example.com", "host": "pay.example"}
    request = Request("POST", "/proxies", key=key, ip="192.0.2.9", body=made)
    proxy_key = engine.handle(request).body["key"]

    def counted(path: str, host: str | None, proxy_key: str | None = None) -> tuple[str, ...]:
        request = Request(
            "POST", path, key=key, ip="192.0.2.1", body={}, host=host, proxy_key=proxy_key
        )
        return engine.handle(request).decision.counted

    everywhere = ("LIM-PRIVATE.key", "LIM-PRIVATE.ip", "LIM-PROXY-HOST", "LIM-IP")
    assert counted("/tokens", None)[0] == "LIM-CREATE"
    for path in ("/tokens", "/tokens?size=1", "/account-updater/jobs", "/proxy", "/proxy/tokens"):
        assert counted(path, "pay.example") == everywhere
        both = counted(path, "pay.example", proxy_key)
        assert both == (*everywhere[:2], "LIM-PROXY-KEY", *everywhere[2:])
    assert "LIM-PROXY-KEY" not in counted("/tokens", None, proxy_key)


def test_lim_proxy_key_counts_no_proxy_that_asks_for_an_api_key() -> None:
    """LIM-PROXY-KEY, D-PROXY-RULES: no required authentication, even if an API key is sent."""
    engine, tenant, _ = _engine()
    rights = {"proxy:create", "proxy:invoke"}
    key = engine.create_key(engine.create_application(tenant, "p", grants=[("/", rights)]))
    for require_auth in (False, True):
        made = {"name": "p", "destination_url": "https://a.example", "require_auth": require_auth}
        request = Request("POST", "/proxies", key=key, ip="192.0.2.9", body=made)
        proxy_key = engine.handle(request).body["key"]
        for api_key in (None, key):
            request = Request("GET", "/proxy", key=api_key, ip="::1", proxy_key=proxy_key)
            counted = engine.handle(request).decision.counted
            assert ("LIM-PROXY-KEY" in counted) is not require_auth


def test_one_key_from_one_address_keeps_its_subject_and_others_have_their_own() -> None:
    engine, _, key = _engine()

    def subject(path: str = "/tokens", ip: str = "192.0.2.1", host: str | None = None) -> object:
        return engine._identifier.identify(Request("GET", path, key=key, ip=ip, host=host))[1]

    first = subject()
    assert subject() is first
    others = [subject(path="/logs"), subject(ip="192.0.2.2"), subject(host="a.example")]
    assert len({id(each) for each in (first, *others)}) == 4


def test_what_a_stranger_makes_up_is_not_remembered() -> None:
    engine, _, key = _engine()
    for number in range(50):
        assert _ask(engine, f"key_{number}") == 401
        _ask(engine, key, proxy_key=f"proxy_{number}")
        _ask(engine, None, host=f"{number}.example")
    identifier = engine._identifier
    assert (len(identifier._known), len(identifier._subjects)) == (0, 0)


def test_long_targets_and_hostnames_are_not_remembered() -> None:
    """Memory follows those who ask, not what they make up: a target may have 16 kB, a host more."""
    engine, _, key = _engine()
    tracemalloc.start()
    try:
        for number in range(300):
            request = Request("GET", f"/tokens?type={number}{'x' * 16_000}", key=key, ip="::1")
            engine.handle(request)
            request = Request("GET", "/tokens", key=key, ip="::1", host=f"{number}{'x' * 60_000}")
            engine.handle(request)
        held_bytes = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held_bytes < 1_000_000


def test_subjects_are_forgotten_when_nobody_asks() -> None:
    engine, _, key = _engine()
    _ask(engine, key)
    assert len(engine._identifier._subjects) == 1
    engine.clock.advance_ns(MINUTE_NS)  # type: ignore[attr-defined] # reason: a ManualClock
    engine.expire()
    assert not engine._identifier._subjects
