"""A 429 explains itself, and every problem's type leads to the clause that is broken (ERR-429)."""

from __future__ import annotations

import asyncio
import html
import json
import re
from typing import Any

import httpx

from engine import Engine, LimitTable, ManualClock
from engine.clauses import CLAUSES, DECISIONS
from engine.http.app import HttpApplication
from engine.http.openapi import document
from engine.http.pages import PAGE_PATHS
from engine.profile import Profile
from tests.engine.deployment import Deployment


def _refused(acme: Deployment, times: int, **more: Any) -> dict[str, Any]:
    answer = acme.ask("GET", "/nothing", **more)
    for _ in range(times):
        answer = acme.ask("GET", "/nothing", **more)
    assert answer.status == 429
    body: dict[str, Any] = answer.body
    assert int(answer.headers["Retry-After"]) == int(
        re.findall(r"in (\d+) s\.$", body["detail"])[0]
    )
    return body


def test_err_429_a_block_says_number_window_counter_block_and_when(acme: Deployment) -> None:
    """ERR-429, LIM-PUBLIC: in plain words; the next request can succeed when Retry-After says."""
    public = acme.principal({"token:create"}, "public")[1]
    for _ in range(25):
        acme.ask("GET", "/nothing", key=public)
    acme.clock.advance_ns("4s")
    problem = _refused(acme, 25, key=public)
    assert problem["detail"] == (
        "More than 50 requests in 60 s with this key from this address. Blocked for 10 s; the next "
        "request can succeed in 56 s."
    )
    assert problem["type"] == "/docs/clauses#LIM-PUBLIC"
    # /docs shows this very answer, from the OpenAPI document.
    shown = document("full", Profile())["components"]["responses"]["Problem429"]
    assert shown["content"]["application/problem+json"]["example"] == problem
    answer = acme.ask("GET", "/nothing", key=public)
    for name in ("Retry-After", "RateLimit", "RateLimit-Policy"):
        assert str(shown["headers"][name]["example"]) == answer.headers[name]


def test_err_429_a_counter_of_a_key_alone(acme: Deployment) -> None:
    manager = acme.principal({"tenant:read"}, "management")[1]
    detail = _refused(acme, 200, key=manager)["detail"]
    assert detail.startswith("More than 200 requests in 60 s with this key. Blocked for 60 s; the")


def test_err_429_of_an_address_and_of_a_rule_of_ones_own() -> None:
    table = LimitTable.default().replace_rule("LIM-IP", rate="3/1m30s")
    acme = Deployment(Engine(clock=ManualClock(), seed=1, limits=table))
    detail = _refused(acme, 3, key=None)["detail"]
    assert detail == (
        "More than 3 requests in 90 s from this address. Blocked for 30 s; the next request can "
        "succeed in 90 s."
    )


def _pages(*paths: str) -> list[httpx.Response]:
    application = HttpApplication(Engine(seed=1), page_paths=PAGE_PATHS)

    async def answers() -> list[httpx.Response]:
        transport = httpx.ASGITransport(application)
        async with httpx.AsyncClient(transport=transport, base_url="http://here") as client:
            return [await client.get(path) for path in paths]

    answers_ = asyncio.run(answers())
    assert {answer.status_code for answer in answers_} == {200}
    return answers_


def test_d_problem_the_type_of_a_problem_leads_to_its_clause() -> None:
    """D-PROBLEM: the page holds every clause and decision under its id."""
    problem = Engine(seed=1).ask("POST", "/tokenize", ["Ada"]).body
    assert problem["type"] == f"/docs/clauses#{problem['clause']}"
    (page,) = _pages(problem["type"])
    for name in [clause.id for clause in CLAUSES] + [decision.id for decision in DECISIONS]:
        assert f'id="{name}"' in page.text


def test_err_429_a_refusal_leads_to_a_page_that_explains_it(acme: Deployment) -> None:
    """The page's exchange is the engine's own, and it names the counter of every rule."""
    public = acme.principal({"token:create"}, "public")[1]
    for _ in range(50):
        acme.ask("POST", "/tokenize", key=public, body={"name": "Ada"})
        acme.clock.advance_ns("80ms")
    answer = acme.ask("POST", "/tokenize", key=public, body={"name": "Ada"})
    index, clauses, page = _pages("/docs", answer.body["type"], "/docs/429")
    shown = " ".join(html.unescape(page.text).split())
    for name in ("Retry-After", "RateLimit-Policy", "RateLimit"):
        assert f"{name}: {answer.headers[name]}" in shown
    for name, value in answer.body.items():
        assert f'"{name}": {json.dumps(value)}' in shown
    for rule in LimitTable.default():
        assert rule.id in shown
        entry = clauses.text.split(f'id="{rule.id}"')[1].split("<dt")[0]
        assert 'href="/docs/429"' in entry
    assert 'href="/docs/429"' in index.text
