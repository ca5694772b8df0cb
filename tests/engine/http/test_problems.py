"""Every problem that the server can return, asked for and held against the document (D-STATUSES).

D-PROBLEM: each has a body of RFC 9457, none quotes a value; D-STRICT-JSON, D-SIZE, AUTH-HEADER,
ERR-429, ERR-408.
"""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import re
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest

from engine import Engine, Request, Response
from engine.http.access_log import Metrics
from engine.http.app import HttpApplication
from engine.http.pages import PAGE_PATHS, make_pages
from engine.http.system import SystemWorld
from engine.store import SqliteStore
from tests.engine.http.described import check_answer
from tests.engine.http.live import KEY, MANAGER, Live

JSON = {"Content-Type": "application/json"}
SECRET = "4111111111111111"


def _key_without_rights(live: Live) -> str:
    body = {"name": "nobody", "kind": "private"}
    made = live.ask("POST", "/applications", json=body).json()
    path = f"/applications/{made['id']}/keys"
    key: str = live.ask("POST", path, key=MANAGER).json()["key"]
    return key


BODIES = {
    "no JSON": b'{"a": ' + SECRET.encode(),
    "a repeated key": b'{"a": "4111111111111111", "a": "y"}',
    "NaN": b'{"a": NaN}',
    "Infinity": b'[Infinity, "4111111111111111"]',
    "bad UTF-8": b'{"a": "4111111111111111\xff"}',
    "a lone surrogate": rb'{"a": "4111111111111111\ud800"}',
    "a byte order mark": b'\xef\xbb\xbf{"a": "4111111111111111"}',
    "nothing": b"",
    "a leaf that is no string": b'{"a": 4111111111111111}',
    "deep nesting": b"[" * 10_000 + b"]" * 10_000,
    "many faults": json.dumps([{"type": "card", "data": {"number": SECRET + "1"}}] * 3).encode(),
}


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES.keys())
def test_a_body_that_is_wrong_is_400_and_not_quoted(
    live: Live, full: dict[str, Any], body: bytes
) -> None:
    answer = live.ask("POST", "/tokenize", content=body, headers=JSON)
    assert answer.status_code == 400
    check_answer(full, "tokenize", answer)
    assert SECRET not in answer.text


def test_a_query_parameter_that_comes_twice_is_400(live: Live, full: dict[str, Any]) -> None:
    answer = live.ask("GET", "/tokens?size=1&size=2")
    assert answer.status_code == 400
    check_answer(full, "list_tokens", answer)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("SVC-API-KEY", "")],
        [("SVC-API-KEY", "key_prod_us_pvt_nobodys")],
        [("SVC-API-KEY", KEY), ("svc-api-key", KEY)],
        [("SVC-API-KEY", "\xe9\xff")],
    ],
    ids=["none", "empty", "unknown", "twice", "not ASCII"],
)
def test_without_a_known_key_it_is_401_before_the_body_is_read(
    live: Live, full: dict[str, Any], headers: list[tuple[str, str]]
) -> None:
    # AUTH-HEADER, D-ORDER
    raw = [(n.encode("latin-1"), v.encode("latin-1")) for n, v in headers]
    answer = live.client.post("/tokenize", headers=raw, content=b"no JSON")
    assert answer.status_code == 401
    check_answer(full, "tokenize", answer)


def test_a_header_name_has_no_case(live: Live) -> None:
    answer = live.client.post("/tokenize", headers={"sVc-aPi-kEy": KEY}, json=["x"])
    assert answer.status_code == 200


def test_without_the_right_it_is_403(live: Live, full: dict[str, Any]) -> None:
    key = _key_without_rights(live)
    answer = live.ask("POST", "/tokenize", key=key, json={"a": "b"})
    assert answer.status_code == 403
    check_answer(full, "tokenize", answer)


def test_what_is_not_there_is_404(live: Live, full: dict[str, Any]) -> None:
    check_answer(full, "get_token", live.ask("GET", "/tokens/nothing"))
    answer = live.ask("GET", "/nothing/at/all")
    assert answer.status_code == 404
    assert answer.json()["status"] == 404


@pytest.mark.parametrize("method", ["PUT", "TRACE", "FOO", "QUERY", "CONNECT", "M-SEARCH"])
def test_another_method_is_405_with_allow(live: Live, method: str) -> None:
    answer = live.ask(method, "/tokenize")
    assert answer.status_code == 405
    assert answer.headers["allow"] == "OPTIONS, POST"
    assert answer.json()["title"] == "Method Not Allowed"


def test_a_second_proxy_of_one_hostname_is_409(live: Live, full: dict[str, Any]) -> None:
    body = {"name": "a", "destination_url": "https://api.example.com", "host": "one.example"}
    check_answer(full, "create_proxy", live.ask("POST", "/proxies", json=body))
    answer = live.ask("POST", "/proxies", json=body)
    assert answer.status_code == 409
    check_answer(full, "create_proxy", answer)


def test_a_right_that_the_kind_may_not_hold_is_409_on_a_patch(
    live: Live, full: dict[str, Any]
) -> None:
    made = live.ask("POST", "/applications", json={"name": "p", "kind": "public"}).json()
    body = {"grants": [{"container": "/", "permissions": ["token:read"]}]}
    headers = {"Content-Type": "application/merge-patch+json"}
    path = f"/applications/{made['id']}"
    answer = live.ask("PATCH", path, content=json.dumps(body), headers=headers)
    assert answer.status_code == 409
    check_answer(full, "patch_application", answer)


def test_a_body_that_is_too_large_is_413_and_ends_the_connection(
    live: Live, full: dict[str, Any]
) -> None:
    answer = live.ask("POST", "/tokenize", content=b" " * 4_000_001, headers=JSON)
    assert answer.status_code == 413
    assert answer.headers["connection"] == "close"
    check_answer(full, "tokenize", answer)


def test_a_target_that_is_too_long_is_414(live: Live, full: dict[str, Any]) -> None:
    answer = live.ask("GET", "/tokens?type=" + "x" * 20_000)
    assert answer.status_code == 414
    assert answer.headers["ratelimit"], "it counts as any request"
    check_answer(full, "list_tokens", answer)


@pytest.mark.parametrize("media_type", ["text/plain", "application/xml", "", "application/json; q"])
def test_another_media_type_is_415(live: Live, full: dict[str, Any], media_type: str) -> None:
    # TOK-JSON
    answer = live.ask("POST", "/tokenize", content=b"{}", headers={"Content-Type": media_type})
    assert answer.status_code == 415
    check_answer(full, "tokenize", answer)


@pytest.mark.parametrize(
    "wrong", [{"Content-Type": "application/json"}, {"Content-Encoding": "gzip"}]
)
def test_each_415_of_a_patch_names_the_media_type_and_no_other_415_does(
    live: Live, full: dict[str, Any], wrong: dict[str, str]
) -> None:
    # D-PATCH; RFC 5789, 2.2
    headers = {"Content-Type": "application/merge-patch+json", **wrong}
    answer = live.ask("PATCH", f"/tokens/{uuid4()}", content=b"{}", headers=headers)
    assert answer.status_code == 415
    assert answer.headers["accept-patch"] == "application/merge-patch+json"
    check_answer(full, "patch_token", answer)
    headers["Content-Type"] = "text/plain"
    answer = live.ask("POST", "/tokenize", content=b"{}", headers=headers)
    assert (answer.status_code, answer.headers.get("accept-patch")) == (415, None)
    answers = full["components"]["responses"]
    described = {
        (method, path)
        for path, item in full["paths"].items()
        for method, operation in item.items()
        if (problem := operation["responses"].get("415"))
        and "Accept-Patch" in answers[problem["$ref"].rpartition("/")[2]]["headers"]
    }
    patches = {
        ("patch", path)
        for path, item in full["paths"].items()
        if "patch" in item and not re.match(r"/proxy(/|$)", path)  # there it is the destination's
    }
    assert described == patches


@pytest.mark.parametrize("coding", ["gzip", "br", "identity, gzip", "x"])
def test_a_coded_body_is_415_and_told_why(live: Live, full: dict[str, Any], coding: str) -> None:
    # TOK-JSON, D-SIZE: a body of 4 MB stays one of 4 MB
    headers = {**JSON, "Content-Encoding": coding}
    answer = live.ask("POST", "/tokenize", content=gzip.compress(b"{}"), headers=headers)
    assert answer.status_code == 415
    assert answer.headers["accept-encoding"] == "identity"
    check_answer(full, "tokenize", answer)
    assert live.ask("POST", "/tokenize", content=b"{}", headers=headers).status_code == 415
    headers["Content-Encoding"] = "Identity"
    assert live.ask("POST", "/tokenize", content=b"{}", headers=headers).status_code == 200


def test_a_coded_batch_file_is_415_and_the_job_waits_on(live: Live, full: dict[str, Any]) -> None:
    # D-JOBS
    job = live.ask("POST", "/account-updater/jobs").json()
    file = gzip.compress(b"token,expiration_year,expiration_month\n")
    coded = {"Content-Encoding": "gzip"}
    answer = live.ask("PUT", job["upload_url"], key=None, content=file, headers=coded)
    assert answer.status_code == 415
    check_answer(full, "upload_batch_file", answer)
    path = f"/account-updater/jobs/{job['id']}"
    assert live.ask("GET", path).json()["status"] == "pending"


def test_a_head_that_is_too_large_is_431(live: Live, full: dict[str, Any]) -> None:
    answer = live.ask("GET", "/tokens", headers={"X-Much": "x" * 70_000})
    assert answer.status_code == 431
    assert answer.headers["connection"] == "close"
    assert answer.json()["status"] == 431
    assert "431" in full["paths"]["/tokens"]["get"]["responses"]


def test_over_the_rate_it_is_429_with_the_time_to_wait(hurried: Live, full: dict[str, Any]) -> None:
    # ERR-429, LIM-TEST-TENANT, D-429-HEADERS
    key = hurried.keys("private_test")[0]["key"]
    answers = hurried.ask_until_refused("POST", "/tokenize", key=key, json=["x"])
    assert {answer.status_code for answer in answers[:-1]} == {200}
    assert len(answers) > 50
    check_answer(full, "tokenize", answers[-1])
    assert 1 <= int(answers[-1].headers["retry-after"]) <= 10
    assert answers[-1].headers["ratelimit"].startswith('"LIM-TEST-TENANT";r=0;t=')
    assert answers[-2].headers["ratelimit-policy"] == '"LIM-TEST-TENANT";q=50;w=10'


def test_a_destination_that_takes_too_long_is_408(hurried: Live, full: dict[str, Any]) -> None:
    # ERR-408, PRX-TIMEOUT
    line = hurried.keys("slow_destination")[0]
    # The client waits 30 s: less than the destination would take.
    answer = hurried.client.get("/proxy/delay/60", headers={line["header"]: line["key"]})
    assert answer.status_code == 408
    check_answer(full, "invoke_proxy_path_get", answer)


def test_a_destination_that_may_not_be_called_is_502(live: Live, full: dict[str, Any]) -> None:
    body = {"name": "a", "destination_url": f"{live.url}/healthz"}
    key = live.ask("POST", "/proxies", json=body).json()["key"]
    answer = live.client.get("/proxy", headers={"SVC-PROXY-KEY": key})
    assert answer.status_code == 502
    check_answer(full, "invoke_proxy_get", answer)


def test_a_reactor_that_takes_too_long_is_504(hurried: Live, full: dict[str, Any]) -> None:
    # RCT-TIMEOUT
    key = hurried.keys("management")[0]["key"]
    made = hurried.ask("POST", "/reactors", key=key, json={"name": "r", "code": "x"}).json()
    answer = hurried.ask("POST", f"/reactors/{made['id']}/react", key=key, json={"args": {}})
    assert answer.status_code == 504
    check_answer(full, "invoke_reactor", answer)


def test_a_store_that_does_not_answer_is_503_to_a_probe(tmp_path: Path) -> None:
    world = SystemWorld()
    engine = Engine(world=world, store=SqliteStore(tmp_path / "store.db"), master_key=bytes(32))
    engine.close()

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(make_pages(engine, Metrics()))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.get("/healthz")

    answer = asyncio.run(ask())
    assert (answer.status_code, answer.json()["status"]) == (503, 503)
    assert answer.headers["content-type"] == "application/problem+json"


def test_what_fails_unexpectedly_is_500_without_a_value(
    caplog: pytest.LogCaptureFixture, full: dict[str, Any]
) -> None:
    engine = Engine(world=SystemWorld())

    async def fail(_: Request) -> Response:
        raise RuntimeError(SECRET)

    engine.submit = fail  # type: ignore[assignment,method-assign] # reason: nothing in the engine fails

    async def ask() -> httpx.Response:
        transport = httpx.ASGITransport(HttpApplication(engine, page_paths=PAGE_PATHS))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/tokenize", json={"a": SECRET}, headers={"X-Request-Id": "7"})

    with caplog.at_level(logging.ERROR):
        answer = asyncio.run(ask())
    assert answer.status_code == 500
    assert SECRET not in answer.text
    assert "request 7 failed: RuntimeError at test_problems.py:" in caplog.text
    assert SECRET not in caplog.text
    check_answer(full, "tokenize", answer)
