"""What is good about an answer: headers, pages, the client's address, ordinary clients (D-IP)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from engine import Engine
from engine.errors import InputError
from engine.hosts import client_address
from engine.http.app import HttpApplication
from engine.http.pages import PAGE_PATHS
from engine.http.requests import Fields, Reservation, forwarded_client, parse_networks, peer_address
from tests.engine.http.described import check_answer
from tests.engine.http.live import KEY, Live, served

UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}")


def test_tokenize_over_http(live: Live, full: dict[str, Any]) -> None:
    # TOK-PLAIN, TOK-OBJECT
    body = {"name": "Ada", "card": {"type": "card", "data": {"number": "4242424242424242"}}}
    answer = live.ask("POST", "/tokenize", json=body)
    assert answer.status_code == 200
    assert UUID.fullmatch(answer.json()["name"])
    assert answer.json()["card"]["mask"]["number"] == "XXXXXXXXXXXX4242"
    assert answer.headers["cache-control"] == "no-store"
    check_answer(full, "tokenize", answer)


def test_curl_works_as_anybody_would_write_it(live: Live) -> None:
    command = ["curl", "-sS", f"{live.url}/tokenize", "-H", f"SVC-API-KEY: {KEY}", "--json"]
    ran = subprocess.run([*command, '{"name": "Ada"}'], capture_output=True, text=True, check=True)
    assert UUID.fullmatch(json.loads(ran.stdout)["name"])


def test_curl_sends_a_large_body_only_when_it_is_wanted(live: Live, folder: Path) -> None:
    # `Expect: 100-continue`: the head alone is enough for a 401 and a 413
    (folder / "large").write_bytes(b" " * 5_000_000)
    command = ["curl", "-sS", "-i", f"{live.url}/tokenize", "-H", "Content-Type: application/json"]
    command += ["-H", "Expect: 100-continue", "--data-binary", f"@{folder}/large"]
    for more, status in ((["-H", f"SVC-API-KEY: {KEY}"], b"413"), ([], b"401")):
        ran = subprocess.run([*command, *more], capture_output=True, check=True)
        assert ran.stdout.startswith(b"HTTP/1.1 " + status)


def test_a_request_id_comes_back_as_it_was_sent_or_is_made(live: Live) -> None:
    sent = live.ask("GET", "/tokens", headers={"X-Request-Id": "abc-123"})
    assert sent.headers["x-request-id"] == "abc-123"
    for odd in ("", "a b", "x" * 200, "<script>"):
        made = live.ask("GET", "/tokens", headers={"X-Request-Id": odd}).headers["x-request-id"]
        assert re.fullmatch(r"[0-9a-f]{32}", made)


@pytest.mark.parametrize("path", sorted(PAGE_PATHS))
def test_a_page_carries_a_request_id_too(live: Live, path: str) -> None:
    read = 307 if path == "/" else 200  # it leads to `/docs`
    for method, status in (("GET", read), ("HEAD", read), ("OPTIONS", 204), ("DELETE", 405)):
        sent = live.ask(method, path, key=None, headers={"X-Request-Id": "abc-123"})
        assert (sent.status_code, sent.headers["x-request-id"]) == (status, "abc-123")
    made = [live.ask("GET", path, key=None).headers["x-request-id"] for _ in range(2)]
    assert made[0] != made[1]
    assert all(re.fullmatch(r"[0-9a-f]{32}", each) for each in made)


def test_fields_that_come_twice_are_joined() -> None:
    # RFC 9110, 5.3; a cookie's parts as in RFC 9113, 8.2.3
    raw = [(b"cookie", b"a=1"), (b"accept", b"x/y"), (b"cookie", b"b=2"), (b"accept", b"z/w")]
    fields = Fields(raw)
    assert dict(fields) == {"cookie": "a=1; b=2", "accept": "x/y, z/w"}
    assert (fields.get("cookie"), fields.get("x"), fields.get("x", "")) == ("a=1; b=2", None, "")


def test_head_is_get_without_its_body(live: Live) -> None:
    answer = live.ask("HEAD", "/tokens")
    assert (answer.status_code, answer.content) == (200, b"")
    assert answer.headers["content-type"] == "application/json"
    assert live.ask("HEAD", "/tokens", key=None).status_code == 401
    refused = live.ask("HEAD", "/tokens", key=None).headers.get_list("content-type")
    assert refused == ["application/problem+json"]


def test_options_names_the_methods(live: Live) -> None:
    answer = live.ask("OPTIONS", "/tokens/x", key=None)
    assert answer.status_code == 204
    assert answer.headers["allow"] == "DELETE, GET, HEAD, OPTIONS, PATCH"
    assert "content-type" not in answer.headers


def test_an_answer_that_is_null_is_json(live: Live) -> None:
    answer = live.ask("POST", "/detokenize", json=None, content=b"null", headers=_JSON)
    assert (answer.status_code, answer.content) == (200, b"null")


_JSON = {"Content-Type": "application/json"}


def test_a_body_of_null_is_not_no_body(live: Live) -> None:
    assert live.ask("POST", "/keys", content=b"null", headers=_JSON).status_code == 400
    assert live.ask("POST", "/keys").status_code == 201


def test_a_chunked_body_is_a_body(live: Live) -> None:
    pieces = iter([b'{"name":', b' "Ada"}'])
    assert live.ask("POST", "/tokenize", content=pieces, headers=_JSON).status_code == 200


def test_the_pages_need_no_key_and_count_nowhere(hurried: Live) -> None:
    # D-COUNTED
    for _ in range(3):
        for path in ("/healthz", "/metrics", "/docs", "/openapi.json"):
            answer = hurried.ask("GET", path, key=None)
            assert answer.status_code == 200
            assert "ratelimit" not in answer.headers
            assert hurried.ask("HEAD", path, key=None).content == b""
    root = hurried.ask("GET", "/", key=None)
    assert (root.status_code, root.headers["location"]) == (307, "/docs")
    refused = hurried.ask("POST", "/healthz", key=None)
    assert (refused.status_code, refused.json()["status"]) == (405, 405)
    assert refused.headers["allow"] == "GET, HEAD, OPTIONS"


def test_on_a_custom_hostname_all_but_the_pages_is_the_proxys(hurried: Live) -> None:
    # D-PROXY-RULES, D-HOST
    host = hurried.keys("custom_hostname")[0]["host"]
    for path in ("/", "/tokenize?a=1", "/proxy", "/proxy/a"):
        answer = hurried.ask_destination("GET", path, headers={"Host": host})
        assert answer.json()["path"] == path
    for path in sorted(PAGE_PATHS - {"/"}):
        page = hurried.client.get(path, headers={"Host": host})
        assert page.content == hurried.client.get(path).content or path == "/metrics"


def test_metrics_count_requests_decisions_and_time(live: Live) -> None:
    live.ask("POST", "/tokenize", json={"a": "b"})
    text = live.ask("GET", "/metrics", key=None).text
    assert re.search(r'tollgate_requests_total\{operation="tokenize",status="200"\} [1-9]', text)
    assert re.search(r'tollgate_decisions_total\{outcome="admitted",rule=""\} [1-9]', text)
    assert "# TYPE tollgate_request_duration_seconds histogram" in text
    buckets = re.findall(r'duration_seconds_bucket\{le="([^"]+)"\} ([0-9.]+)', text)
    counts = [float(count) for _, count in buckets]
    assert counts == sorted(counts)
    assert buckets[-1][0] == "+Inf"
    assert f"duration_seconds_count {counts[-1]}" in text


def test_metrics_name_the_clause_that_refuses(hurried: Live) -> None:
    key = hurried.keys("private_test")[1]["key"]
    hurried.ask_until_refused("GET", "/tokens", key=key)
    text = hurried.ask("GET", "/metrics", key=None).text
    assert 'tollgate_decisions_total{outcome="refused",rule="LIM-TEST-TENANT"}' in text


@pytest.mark.slow
def test_a_forwarded_address_counts_only_from_a_trusted_proxy(folder: Path) -> None:
    # D-IP: 2000 requests of one address are the most (LIM-IP), so the tests' own limit table is
    # the witness: one request a client
    table = '[[rule]]\nid = "LIM-IP"\nrate = "1/1h"\ncounter = "ip"\n'
    limits = folder / "limits.toml"
    limits.write_text(table, encoding="utf-8")

    def statuses(*flags: str) -> list[int]:
        with served(folder, "--limits", str(limits), *flags, limits=True) as server:
            return [
                server.ask("GET", "/tokens", headers={"X-Forwarded-For": address}).status_code
                for address in ("203.0.113.1", "203.0.113.2", "203.0.113.1")
            ]

    assert statuses() == [200, 429, 429]
    assert statuses("--trust-forwarded", "127.0.0.0/8") == [200, 200, 429]


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "PATCH", "DELETE"])
def test_a_proxy_passes_every_method_on(hurried: Live, method: str) -> None:
    line = hurried.keys("proxy_key")[0]
    headers = {line["header"]: line["key"], "SVC-API-KEY": "not passed on", "X-Mine": "passed on"}
    answer = hurried.ask_destination(
        method, "/proxy/a%20b/c?x=1&x=2", headers=headers, content=b"\x00\xff" * 10
    )
    assert answer.status_code == 200
    shown = answer.json()
    assert (shown["method"], shown["path"]) == (method, "/a%20b/c?x=1&x=2")
    assert shown["body_bytes"] == 20
    assert shown["headers"]["x-mine"] == "passed on"
    assert not {"svc-api-key", "svc-proxy-key"} & shown["headers"].keys()


def test_detokenize_answers_with_the_bytes_that_were_sent(live: Live) -> None:
    # D-PASS-THROUGH
    made = live.ask("POST", "/tokenize", json=["Ada"]).json()[0]
    sent = b' {"n": 12345678901234567.89,"m" :1.10, "t":"{{ name }}", "a":%s} '
    headers = {"Content-Type": "application/json"}
    for value, shown in ((b'"x"', b'"x"'), (b'"{{ %s }}"' % made.encode(), b'"Ada"')):
        answer = live.ask("POST", "/detokenize", content=sent % value, headers=headers)
        assert (answer.status_code, answer.content) == (200, sent % shown)
        assert answer.headers["content-type"] == "application/json"
        assert answer.headers["cache-control"] == "no-store"


# --- D-IP: whose request it is -------------------------------------------------------------------


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
