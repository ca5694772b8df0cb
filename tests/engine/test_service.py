"""The path of a request: order of checks, authentication, errors (sections 5 and 7; D-ORDER)."""

from __future__ import annotations

import asyncio
import difflib
import functools
import html
import json
import operator
import random
import re
import sys
import uuid
from collections.abc import Callable
from types import FrameType
from typing import Any

import httpx
import pytest

from engine import (
    Engine,
    InputError,
    LimitTable,
    ManualClock,
    MemoryStore,
    ModelWorld,
    Profile,
    Request,
)
from engine.clauses import CLAUSES, DECISIONS
from engine.http.app import HttpApplication
from engine.http.openapi import document
from engine.http.pages import PAGE_PATHS
from engine.identity import random_id
from engine.model import Tenant, TenantKind
from engine.world import ClockReading
from tests.engine.deployment import CARD, IP, Deployment

JSON = {"Content-Type": "application/json"}


def test_auth_header_a_known_key_is_needed(acme: Deployment) -> None:
    """AUTH-HEADER: no key and an unknown key are 401, with a challenge."""
    for key in (None, "key_prod_us_pvt_1111111111111111111111"):
        answer = acme.ask("POST", "/tokenize", {"a": "b"}, key=key)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == 'ApiKey header="SVC-API-KEY"'
        assert answer.headers["Content-Type"] == "application/problem+json"
    assert acme.count() == 0


def test_a_deleted_key_is_unknown_from_the_next_request_on(acme: Deployment) -> None:
    application, _ = acme.principal({"token:create"})
    text = acme.engine.create_key(application)
    acme.tokenize({"a": "b"}, key=text)
    acme.engine.delete_key(text.key_id)
    acme.tokenize({"a": "b"}, key=text, status=401)


def test_auth_legacy_a_key_is_legacy_by_its_text_alone(acme: Deployment) -> None:
    """AUTH-LEGACY, AUTH-KINDS: a legacy key of a private application is limited as both."""
    _, legacy = acme.principal({"token:create"}, legacy=True)
    answer = acme.ask("POST", "/tokenize", {"a": "b"}, key=legacy)
    assert "LIM-LEGACY" in answer.decision.counted
    assert "LIM-PRIVATE.key" in answer.decision.counted
    assert "LIM-LEGACY" not in acme.ask("POST", "/tokenize", {"a": "b"}).decision.counted


@pytest.mark.parametrize(
    ("method", "path", "status", "allow"),
    [
        ("GET", "/nothing", 404, None),
        ("GET", "/tokens/a/b", 404, None),
        ("GET", "/tokenize/", 404, None),
        ("GET", "/tokenize", 405, "OPTIONS, POST"),
        ("PUT", "/tokens", 405, "GET, HEAD, OPTIONS, POST"),
        ("TRACE", "/tokens/abc", 405, "DELETE, GET, HEAD, OPTIONS, PATCH"),
    ],
)
def test_unknown_paths_and_methods_come_before_authentication(
    acme: Deployment, method: str, path: str, status: int, allow: str | None
) -> None:
    """D-ORDER: 404 and 405 before 401."""
    answer = acme.ask(method, path, key=None)
    assert answer.status == status
    assert answer.headers.get("Allow") == allow


def test_options_names_the_methods_of_a_path(acme: Deployment) -> None:
    answer = acme.ask("OPTIONS", "/tokens", key=None)
    assert (answer.status, answer.headers["Allow"]) == (204, "GET, HEAD, OPTIONS, POST")
    assert acme.ask("OPTIONS", "/nothing", key=None).status == 404


def test_head_answers_as_get_without_a_body(acme: Deployment) -> None:
    answer = acme.ask("HEAD", "/tokens")
    assert (answer.status, answer.body) == (200, None)


def test_tok_json_the_body_is_json_and_says_so(acme: Deployment) -> None:
    """TOK-JSON: another media type is 415, broken JSON 400, size 413; in this order 413, 415."""
    good = json.dumps({"a": "b"}).encode()
    for headers, body, status in [
        (JSON, good, 200),
        ({"content-type": "application/json; charset=utf-8"}, good, 200),
        ({"Content-Type": "application/json; profile=x"}, good, 200),
        ({"Content-Type": 'Application/JSON;profile="a";charset="UTF-8"'}, good, 200),
        ({"Content-Type": "application/json; profile=x; charset=utf-16"}, good, 415),
        ({"Content-Type": 'application/json ; a="b;charset=utf-16" ;; '}, good, 200),
        ({"Content-Type": "application/json; charset"}, good, 415),
        ({"Content-Type": "application/json; a = b"}, good, 415),
        ({"Content-Type": 'application/json; a="b'}, good, 415),
        ({"Content-Type": "application/jsonp"}, good, 415),
        ({"Content-Type": "text/plain"}, good, 415),
        ({}, good, 415),
        (JSON, b"{", 400),
        (JSON, b"", 400),
        (JSON, b'{"a": "b", "a": "c"}', 400),
        (JSON, b'{"a": NaN}', 400),
        (JSON, b'{"a": "\xff"}', 400),
        (JSON, b'{"a": "\\ud800"}', 400),
        (JSON, b"[" * 10_000, 400),
        ({"Content-Type": "text/plain"}, b" " * 4_000_001, 413),
    ]:
        answer = acme.ask("POST", "/tokenize", body, headers=headers)
        assert answer.status == status, (headers, body[:20])


def test_the_body_is_judged_after_the_key_and_before_permissions(acme: Deployment) -> None:
    """D-ORDER: 401, then 400 of the walk, then 403, then 400 of the rest; none creates."""
    nobody = acme.key_with("token:read")
    wrong_walk = {"type": "visa"}
    wrong_data = {"type": "token", "data": 5}
    acme.tokenize(wrong_walk, key=None, status=401)
    acme.tokenize(wrong_walk, key=nobody, status=400)
    acme.tokenize(wrong_data, key=nobody, status=403)
    acme.tokenize(wrong_data, status=400)
    assert acme.count() == 0


def test_err_429_limits_come_before_everything_but_the_key(acme: Deployment) -> None:
    """ERR-429, D-ORDER: a refused request gets 429 whatever else is wrong with it."""
    public = acme.principal({"token:create"}, "public")[1]
    for _ in range(50):
        assert acme.ask("GET", "/nothing", key=public).status == 404
    answer = acme.ask("GET", "/nothing", key=public)
    assert answer.status == 429
    assert answer.decision.rule == "LIM-PUBLIC"
    assert answer.decision.outcome == "blocked"
    assert answer.headers["Retry-After"] == "60"
    assert answer.body["status"] == 429


def test_e7_an_edge(acme: Deployment, other_tenant: Callable[[TenantKind], Tenant]) -> None:
    """E7: 50 at 0 on a test tenant; refused at 9.999999999 with Retry-After 1; admitted at 10."""
    tenant = other_tenant("test")
    key = acme.principal({"token:create"}, tenant=tenant)[1]
    for _ in range(50):
        assert acme.ask("POST", "/tokenize", {"a": "b"}, key=key).status == 200
    acme.clock.advance_ns(9_999_999_999)
    refused = acme.ask("POST", "/tokenize", {"a": "b"}, key=key)
    assert (refused.status, refused.headers["Retry-After"]) == (429, "1")
    assert refused.decision.wait_ns == 1
    acme.clock.advance_ns(1)
    assert acme.ask("POST", "/tokenize", {"a": "b"}, key=key).status == 200


def test_lim_throttle_by_delay_waits_on_the_clock(deploy: Callable[..., Deployment]) -> None:
    """LIM-THROTTLE, D-THROTTLE delay: the 51st request of a test tenant is answered 10 s later."""
    acme = deploy(limits={"throttle": "delay"})
    tenant = acme.engine.create_tenant("Test", kind="test")
    key = acme.principal({"token:create"}, tenant=tenant)[1]
    for _ in range(50):
        acme.tokenize({"a": "b"}, key=key)
    answer = acme.ask("POST", "/tokenize", {"type": "token", "data": "x"}, key=key)
    assert (answer.status, answer.decision.outcome) == (200, "delayed")
    assert answer.decision.wait_ns == acme.clock.now_ns == 10_000_000_000
    assert answer.body["created_at"] == "2026-01-01T00:00:10.000000+00:00"


def test_only_successes_count_where_the_profile_says_so(deploy: Callable[..., Deployment]) -> None:
    """D-COUNTED, only 2xx: what fails is given back."""
    acme = deploy(limits={"counted_statuses": "success"})
    public = acme.principal({"token:create"}, "public")[1]
    for _ in range(200):
        assert acme.ask("GET", "/nothing", key=public).status == 404
    for _ in range(50):
        acme.tokenize({"a": "b"}, key=public)
    acme.tokenize({"a": "b"}, key=public, status=429)


def test_rate_limit_fields_stand_on_every_answer(acme: Deployment) -> None:
    """D-429-HEADERS: of the rule with the smallest remaining share."""
    answer = acme.ask("POST", "/tokenize", {"a": "b"})
    assert answer.headers["RateLimit-Policy"] == '"LIM-CREATE";q=200;w=10'
    assert answer.headers["RateLimit"] == '"LIM-CREATE";r=199;t=10'


def test_no_rate_limit_fields_where_the_profile_has_none(deploy: Callable[..., Deployment]) -> None:
    acme = deploy(http={"rate_limit_fields": False, "retry_after": False})
    assert acme.ask("POST", "/tokenize", {"a": "b"}).headers == {}


def test_quo_rate_a_tenant_plays_the_table_that_its_quota_names() -> None:
    """QUO-RATE: `Rate Limit` names the table in force; LIM-IP holds for everybody."""
    slow = LimitTable(tuple(r for r in LimitTable.default().rules if r.id == "LIM-PUBLIC"))
    engine = Engine(limits={"Default": LimitTable.default(), "Slow": slow}, seed=1)
    tenant = engine.create_tenant("Acme", quotas={"Rate Limit": "Slow"})
    app = engine.create_application(tenant, "a", grants=[("/", {"token:create"})])
    request = Request("POST", "/tokenize", key=engine.create_key(app), ip="::1", body={"a": "b"})
    assert engine.handle(request).decision.counted == ("LIM-IP",)
    engine.set_quota(tenant, "Rate Limit", "Default")
    assert "LIM-CREATE" in engine.handle(request).decision.counted


def test_quo_tenant_a_quota_changes_for_one_tenant_from_the_next_request_on(
    acme: Deployment, other_tenant: Callable[[TenantKind], Tenant]
) -> None:
    """QUO-TENANT, D-QUOTA-CHANGE."""
    other = other_tenant("production")
    other_key = acme.principal({"token:create"}, tenant=other)[1]
    six = [str(n) for n in range(6)]
    acme.tokenize(six, status=400)
    acme.engine.set_quota(acme.tenant, "Tokenize Limit", 6)
    acme.tokenize(six)
    acme.tokenize(six, key=other_key, status=400)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("Tokenize Limt", 1, "quota = 'Tokenize Limt' does not exist; did you mean"),
        ("Tokenize Limit", -1, "quota Tokenize Limit = -1 must be a whole number, 0 or more"),
        ("Tokenize Limit", "6", "quota Tokenize Limit = '6' must be a whole number, 0 or more"),
        ("CVC Retention", True, "quota CVC Retention = True must be a duration such as '1h'"),
        (
            "Tokenize Limit",
            10**9 + 1,
            "quota Tokenize Limit = 1000000001 must be at most 1000000000",
        ),
        ("Log Retention", "40000d", f"quota Log Retention = {86_400 * 4 * 10**13} must be at most"),
        ("Rate Limit", "Defalt", "quota Rate Limit = 'Defalt' must name a limit table; did you"),
    ],
)
def test_a_quota_that_cannot_be_names_the_way_out(
    acme: Deployment, name: str, value: Any, message: str
) -> None:
    with pytest.raises(InputError) as error:
        acme.engine.set_quota(acme.tenant, name, value)
    assert str(error.value).startswith(message)


def test_a_seed_goes_with_no_kept_store_and_a_world_with_no_clock() -> None:
    class Kept(MemoryStore):
        persistent = True

    with pytest.raises(InputError, match="seed = 3 is for simulation"):
        Engine(store=Kept(), seed=3, master_key=b"k" * 32)
    with pytest.raises(InputError, match="master_key is missing"):
        Engine(store=Kept())
    with pytest.raises(InputError, match="master_key of 5 bytes must have 32"):
        Engine(master_key=b"short")
    with pytest.raises(InputError, match="leave clock and seed out"):
        Engine(world=ModelWorld(), clock=ManualClock())


def test_a_seed_makes_the_same_identifiers_again() -> None:
    def answers(seed: int) -> list[object]:
        engine = Engine(seed=seed)
        app = engine.create_application(
            engine.create_tenant("A"), "a", grants=[("/", {"token:create"})]
        )
        request = Request("POST", "/tokenize", key=engine.create_key(app), ip="::1", body=["a"])
        return [engine.handle(request).body for _ in range(3)]

    assert answers(1) == answers(1) != answers(2)


def test_a_request_that_waits_needs_a_clock_that_can_be_moved(acme: Deployment) -> None:
    class Fixed:
        now_ns = 0
        wall_ns = 0
        steady_ns = 0

        def read(self) -> ClockReading:
            return ClockReading(0, 0, 0)

    engine = Engine(clock=Fixed(), profile=Profile().replace(limits={"throttle": "delay"}))
    app = engine.create_application(
        engine.create_tenant("A", kind="test"), "a", grants=[("/", {"token:create"})]
    )
    request = Request("POST", "/tokenize", key=engine.create_key(app), ip="::1", body=["a"])
    for _ in range(50):
        engine.handle(request)
    with pytest.raises(TypeError, match="only a ManualClock"):
        engine.handle(request)


def test_a_query_parameter_given_twice_is_refused(acme: Deployment) -> None:
    assert acme.ask("GET", "/tokens?size=1&size=2").status == 400


class _BrokenStream:
    """A body whose sender has gone."""

    async def read(self, limit_bytes: int) -> bytes | None:
        raise ConnectionResetError(limit_bytes)


def test_d_counted_a_request_that_ends_without_an_answer_is_no_success(
    deploy: Callable[..., Deployment],
) -> None:
    """D-COUNTED, only 2xx: its charge is given back too."""
    acme = deploy(limits={"counted_statuses": "success"})
    public = acme.principal({"token:create"}, "public")[1]
    for _ in range(60):
        with pytest.raises(ConnectionResetError):
            acme.ask("POST", "/tokenize", _BrokenStream(), key=public)
    for _ in range(50):
        acme.tokenize({"a": "b"}, key=public)
    acme.tokenize({"a": "b"}, key=public, status=429)


def test_d_counted_a_caller_who_goes_away_while_delayed_is_no_success(
    deploy: Callable[..., Deployment],
) -> None:
    """D-COUNTED, only 2xx; D-THROTTLE delay: the place in line is given back."""
    acme = deploy(limits={"counted_statuses": "success", "throttle": "delay"})
    tenant = acme.engine.create_tenant("T", kind="test")
    key = acme.principal({"token:create"}, tenant=tenant)[1]
    for _ in range(50):
        acme.tokenize({"a": "b"}, key=key)
    for _ in range(3):
        waits = acme.engine.submit(Request("POST", "/tokenize", key=key, ip=IP, body={"a": "b"}))
        waits.send(None)
        waits.close()
    acme.clock.advance_ns(10_000_000_000)
    answers = [acme.ask("POST", "/tokenize", {"a": "b"}, key=key) for _ in range(51)]
    assert [answer.decision.outcome for answer in answers] == ["admitted"] * 50 + ["delayed"]


@pytest.mark.parametrize(
    "text", ["key_prod_short", "key_prod_us_pvt_\u00e9\u00e9", "key_prod_us_pvt_\n"]
)
def test_d_key_a_text_of_ones_own_can_stand_in_a_header(acme: Deployment, text: str) -> None:
    with pytest.raises(InputError, match="must hold at least 16 printable ASCII characters"):
        acme.engine.create_key(acme.application, text=text)


def test_a_path_ends_where_its_last_segment_does(acme: Deployment) -> None:
    """404 before 401: an empty segment is no identifier."""
    for path in ("/tokens/", "/applications//keys", "//tokens", "/tokenize/"):
        assert acme.ask("GET", path, key=None).status == 404


def test_a_coded_body_is_415(acme: Deployment) -> None:
    """D-STATUSES: a small body could unfold into a huge one; the answer says what is taken."""
    json = {"Content-Type": "application/json"}
    for coding, status in (("gzip", 415), ("identity", 200), ("", 200)):
        headers = {**json, "content-encoding": coding}
        answer = acme.ask("POST", "/tokenize", b'["x"]', headers=headers)
        assert answer.status == status
        assert (answer.headers.get("Accept-Encoding") == "identity") is (status == 415)


def test_d_dedup_a_setting_that_does_not_exist_is_named(acme: Deployment) -> None:
    """D-DEDUP: the one setting there is, on or off."""
    for name, on, message in (
        ("deduplicate_token", True, "setting = 'deduplicate_token' does not exist; did you mean"),
        ("deduplicate_tokens", "yes", "setting deduplicate_tokens = 'yes' must be true or false"),
    ):
        with pytest.raises(InputError) as error:
            acme.engine.set_setting(acme.tenant, name, on=on)  # type: ignore[arg-type] # reason: wrong on purpose
        assert str(error.value).startswith(message)
    assert acme.engine.tenant(acme.tenant).settings == {"deduplicate_tokens": False}


def test_d_problem_the_detail_counts_the_faults(acme: Deployment) -> None:
    """D-PROBLEM: all are counted, a thousand at most are named."""
    for count, detail in (
        (1, "The body has a fault."),
        (2, "The body has 2 faults."),
        (1_000, "The body has 1000 faults."),
        (1_001, "The body has 1001 faults. The first 1000 are named."),
    ):
        problem = acme.tokenize([1] * count, status=400)
        assert (problem["detail"], len(problem["errors"])) == (detail, min(count, 1_000))


@pytest.mark.parametrize("place", ["object", "card", "objects"])
def test_d_unknown_what_is_not_named_is_not_compared_with_what_was_meant(
    acme: Deployment, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    """D-UNKNOWN, D-SIZE: a body full of unknown fields would hold everybody up for seconds."""
    fields = {f"metadat{number}": 1 for number in range(1_500)}
    bodies: dict[str, Any] = {
        "object": {"type": "token", "data": "x", **fields},
        "card": {"type": "card", "data": {"number": "4242424242424242", **fields}},
        "objects": [{"type": "card", "data": {"numbe": 1}, "metadat": 1} for _ in range(1_500)],
    }
    asked: list[str] = []
    nearest = difflib.get_close_matches

    def counted(word: str, *more: Any, **options: Any) -> list[str]:
        asked.append(word)
        return nearest(word, *more, **options)

    monkeypatch.setattr(difflib, "get_close_matches", counted)
    problem = acme.tokenize(bodies[place], status=400)
    assert len(problem["errors"]) == 1_000
    assert len(asked) <= 1_000


def test_every_bit_of_an_identifier_but_version_and_variant_is_random() -> None:
    """RFC 9562: 122 bits; each of them takes both values, and no two are one."""
    chance = random.Random(3)
    made = [uuid.UUID(random_id(chance)).int for _ in range(64)]
    assert len(set(made)) == len(made) == 64
    version, variant = 0xF << 76, 3 << 62
    fixed = 4 << 76 | 2 << 62
    assert functools.reduce(operator.and_, made) == fixed
    assert functools.reduce(operator.or_, made) == (1 << 128) - 1 & ~(version | variant) | fixed


def test_one_request_moves_little_between_files(acme: Deployment) -> None:
    """Who follows a body of five tokens from call to call changes the file 29 times, 12 back."""
    note = {"type": "token", "data": "at the door", "search_indexes": ["{{ data }}"]}
    card = CARD | {"metadata": {"order": "17"}}
    body = {"customer": {"name": "Ada", "phones": ["1", "2"]}, "card": card, "note": note}
    files: list[str] = []

    def entered(frame: FrameType, event: str, _: object) -> None:
        file = frame.f_code.co_filename
        if event == "call" and "/engine/" in file and "/tests/" not in file and file != files[-1]:
            files.append(file)

    for _ in range(3):  # what is looked up once is known then
        acme.clock.advance_ns(10**9)
        request = Request("POST", "/tokenize", key=acme.key, ip=IP, body=body)
        files[:] = [""]
        sys.setprofile(entered)
        try:
            answer = acme.engine.handle(request)
        finally:
            sys.setprofile(None)
        assert answer.status == 200
    assert len(files) - 1 <= 29
    assert len(files) - len(set(files)) <= 12


# --- refusals ------------------------------------------------------------------------------------


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
