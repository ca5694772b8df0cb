"""The `clause` of a problem is the one that is broken (D-PROBLEM)."""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import engine
from engine import Engine, LimitTable, Profile
from engine.clauses import CLAUSES, DECISIONS
from engine.errors import InputError
from engine.identity import PERMISSIONS
from engine.resources import OPERATIONS
from engine.resources.operation import Operation
from tests.engine.deployment import CARD, Deployment
from tests.engine.resources.outside import Outside

TOKEN = {"type": "token", "data": "x"}


def _card(**changes: Any) -> dict[str, Any]:
    return {"type": "card", "data": {"number": "4242424242424242", **changes}}


@pytest.mark.parametrize(
    ("body", "clause"),
    [
        ({"type": "token"}, "TOK-ONE-OF"),
        ({**TOKEN, "encrypted": "x"}, "TOK-ONE-OF"),
        ({"type": "token", "data": 7}, "TOK-TOKEN-DATA"),
        ({"type": "card", "data": "x"}, "TOK-CARD-DATA"),
        (_card(number="4242424242424241"), "D-CARD"),
        (_card(cvc="1"), "D-CARD"),
        (_card(expiration_month=13), "D-CARD"),
        (_card(colour="red"), "D-UNKNOWN"),
        ({**TOKEN, "colour": "red"}, "D-UNKNOWN"),
        ({"type": "visa"}, "D-TYPE-VALUE"),
        ({"type": 7}, "D-TYPE-VALUE"),
        ({**TOKEN, "containers": ["a b"]}, "D-CONTAINER"),
        ({**TOKEN, "metadata": []}, "TOK-METADATA"),
        ({**TOKEN, "metadata": {"k": "x" * 501}}, "D-METADATA"),
        ({**TOKEN, "search_indexes": "x"}, "TOK-INDEXES"),
        ({**TOKEN, "search_indexes": ["{{ data }}"] * 11}, "D-INDEXES"),
        ({**TOKEN, "search_indexes": ["{{ data.x }}"]}, "D-INDEXES"),
        ({**TOKEN, "fingerprint_expression": "{{data}}"}, "D-EXPR"),
        ({**TOKEN, "fingerprint_expression": "{{ data.x }}"}, "REC-FINGERPRINT"),
        ({**_card(cvc="123"), "search_indexes": ["{{ data.cvc }}"]}, "D-CVC-DERIVE"),
        ({**_card(cvc="123"), "fingerprint_expression": "{{ data.cvc }}"}, "D-CVC-DERIVE"),
        ([""] * 10_001, "D-BODY-COST"),
        ({"type": "token", "encrypted": "x"}, "TOK-ENCRYPTED"),
        ({"type": "token", "token_intent_id": "x"}, "D-INTENT"),
        ([1], "D-LEAF"),
        ("x", "D-SCALAR"),
        (["1", "2", "3", "4", "5", "6"], "TOK-LIMIT"),
        (b"{", "TOK-JSON"),
        (b'{"a":"x","a":"y"}', "D-STRICT-JSON"),
        (b'["\\ud800"]', "D-STRICT-JSON"),
        (b"[1e999]", "D-STRICT-JSON"),
        (b"[" * 1_025 + b"]" * 1_025, "D-DEPTH"),
    ],
)
def test_bad_data_names_its_clause(acme: Deployment, body: Any, clause: str) -> None:
    headers = {"Content-Type": "application/json"}
    answer = acme.ask("POST", "/tokenize", body, headers=headers)
    assert (answer.status, answer.body["clause"]) == (400, clause)


@pytest.mark.parametrize("raw", [b'["\\ud800"]', b'["\\udc00"]', b'{"\\ud800x": 1}', ["\ud800"]])
def test_d_strict_json_half_of_a_surrogate_pair_is_called_what_it_is(
    acme: Deployment, raw: Any
) -> None:
    """D-STRICT-JSON: the text is JSON by RFC 8259, so the answer does not say that it is none."""
    problem = acme.ask("POST", "/tokenize", raw, headers={"Content-Type": "application/json"}).body
    assert (problem["status"], problem["clause"]) == (400, "D-STRICT-JSON")
    assert "half of a surrogate pair" in problem["detail"]


def test_a_missing_right_names_its_clause(acme: Deployment) -> None:
    made = acme.ask("POST", "/tokens", CARD).headers["Location"]
    for method, path, body, clause in (
        ("POST", "/tokenize", TOKEN, "AUTH-CREATE"),
        ("GET", made, None, "D-PERMISSIONS"),
        ("PATCH", made, {}, "D-PERMISSIONS"),
        ("POST", "/detokenize", {}, "D-PERMISSIONS"),
        ("GET", "/logs", None, "D-PERMISSIONS"),
    ):
        answer = acme.ask(method, path, body, key=acme.key_with("proxy:read"))
        assert (answer.status, answer.body["clause"]) == (403, clause)


def test_a_refusal_names_its_row(acme: Deployment) -> None:
    manager = acme.principal({"tenant:read"}, "management")[1]
    found = {acme.ask("GET", "/tenants/self", key=manager).body.get("clause") for _ in range(201)}
    assert found == {None, "LIM-MANAGEMENT"}
    for number in range(2_001):
        answer = acme.ask("GET", "/nothing", ip=f"192.0.2.{number % 2}")
    assert answer.body["clause"] == "LIM-PRIVATE"


def test_an_address_is_one_however_it_is_written(acme: Deployment) -> None:
    """D-IP: in process as over HTTP."""
    spellings = ["203.0.113.9", "::ffff:203.0.113.9", "::FFFF:CB00:7109", "203.0.113.9:80"]
    for number in range(2_000):
        assert acme.ask("GET", "/x", key=None, ip=spellings[number % 4]).status == 404
    for ip in spellings:
        assert acme.ask("GET", "/x", key=None, ip=ip).status == 429
    for ip in ("", "localhost", "1.2.3", "203.0.113.9:port", "a" * 99):
        with pytest.raises(InputError, match="must be an IP address"):
            acme.ask("GET", "/x", key=None, ip=ip)


def test_the_profiles_prefix_holds_in_process_too() -> None:
    for bits, status in ((64, 429), (128, 404)):
        outside = Outside(http={"ipv6_prefix_bits": bits})
        for number in range(2_001):
            answer = outside.ask("GET", "/x", key=None, ip=f"2001:db8::{number:x}")
        assert answer.status == status


def test_an_upload_counts_for_its_address_alone(acme: Deployment) -> None:
    """D-SPLIT: neither the key that comes along nor its tenant says who uploads."""
    right = "account-updater:job:create"
    tenant = acme.engine.create_tenant("Test", kind="test")
    key = acme.principal({right}, tenant=tenant)[1]
    job = acme.ask("POST", "/account-updater/jobs", {}, key=key)
    assert "LIM-TEST-TENANT" in job.decision.counted
    for sent in (key, None, acme.key):
        answer = acme.ask("PUT", job.body["upload_url"], b"token\n", key=sent)
        assert answer.decision.counted == ("LIM-IP",)


KNOWN: Final = {clause.id for clause in CLAUSES} | {decision.id for decision in DECISIONS}
FITTING: Final[Mapping[int, set[str]]] = {
    401: {"AUTH-HEADER", "D-PROXY"},
    403: {"AUTH-CREATE", "D-PERMISSIONS", "D-GRANT-SCOPE", "D-RIGHTS", "D-PROXY", "D-JOBS"},
    404: {"D-STATUSES"},
    405: {"D-STATUSES"},
    409: {"D-HOST", "D-PERMISSIONS", "D-CORS", "D-JOBS", "ACC-SPLIT"},
    413: {"D-SIZE", "RCT-PAYLOAD", "ACC-FILE"},
    414: {"D-SIZE"},
    415: {"TOK-JSON", "D-PATCH", "D-STATUSES", "D-PROXY"},
    422: {"D-IDEMPOTENCY"},
}
"""What a status that is no 400 and no 429 may be for."""

BODIES: Final = {"TOK-JSON", "D-STRICT-JSON", "D-BODY-COST", "D-DEPTH", "D-STATUSES"}
TOKENS: Final = {item for item in KNOWN if item.startswith(("TOK-", "REC-"))} | {
    item.id for item in DECISIONS[: [item.id for item in DECISIONS].index("D-STRICT-JSON")]
}
OF_FORMS: Final[Mapping[str, set[str]]] = {
    "tokenize": TOKENS,
    "tokens": TOKENS | {"D-LIST", "D-SEARCH", "D-PATCH"},
    "token-intents": TOKENS | {"D-INTENT"},
    "detokenize": {"D-DETOKENIZE", "QUO-DETOKENIZE"},
    "logs": {"D-LIST", "D-LOG-LIST"},
    "applications": {"AUTH-KINDS", "AUTH-LEGACY", "D-GRANT", "D-CORS", "D-LIST"},
    "keys": {"D-ENCRYPTED", "D-LIST"},
    "reactors": {"D-REACTOR", "RCT-CODE", "D-DETOKENIZE", "QUO-DETOKENIZE", "D-LIST"},
    "proxies": {"D-PROXY", "D-HOST", "RCT-CODE", "D-LIST"},
    "proxy": {"D-PROXY", "D-PROXY-RULES", "D-DETOKENIZE", "QUO-DETOKENIZE"},
    "account-updater": {"D-LIST"},
}
"""What a 400 may be for beside its body, by the first segment of the operation's path."""

FIELDS: Final = sorted(
    {"type", "data", "metadata", "x"}.union(
        *(each.form.schema["properties"] for each in OPERATIONS if each.form is not None)
    )
)
JSON = st.recursive(
    st.none() | st.integers(-9, 9) | st.text(max_size=4) | st.just("{{ no-such }}"),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(FIELDS),
            inner | st.sampled_from(["token", "card", "private", "10.0.0.1", "https://a"]),
            max_size=4,
        )
    ),
    max_leaves=8,
)
QUERY = st.sampled_from(
    ["", "?size=0", "?start=x", "?size=1&size=2", "?x=1", "?container=x", "?start_date=x"]
)
HEADERS = st.dictionaries(
    st.sampled_from(["Content-Type", "Content-Encoding", "Idempotency-Key"]),
    st.sampled_from(["application/json", "text/plain", "gzip", "\u00e9", "one"]),
    max_size=3,
)
RAW = st.sampled_from(
    (
        *(b"", b"{", b'{"a":1,"a":2}', b"\xff", b"[1e999]", b"[" * 70 + b"]" * 70, b"[1,2,3]"),
        *(b" " * 3_000, b'{"name":"x","code":"' + b"y" * 60 + b'"}', b"[" * 1_100 + b"]" * 1_100),
    )
)


@cache
def _small() -> Deployment:
    """Bounds that a short body breaks, and no rate limits."""
    profile = Profile().replace(
        http={"body_limit_bytes": 2_500, "proxy_body_limit_bytes": 2_000, "target_limit": 256},
        outside={"reactor_code_limit": 50, "reactor_payload_limit_bytes": 1_000},
        account_updater={"file_limit_bytes": 2_000},
        tokens={"elements_limit": 5, "values_limit": 400},
    )
    return Deployment(Engine(profile=profile, limits=LimitTable(()), seed=7))


def _fits(operation: Operation, status: int, clause: str) -> bool:
    if status != 400:
        return clause in FITTING[status]
    return clause in BODIES | OF_FORMS.get(operation.path.split("/")[1], set()) | (
        {"D-IDEMPOTENCY"} if operation.creates else set()
    )


@pytest.mark.slow
@settings(max_examples=250)
@given(
    operation=st.sampled_from(OPERATIONS),
    method=st.sampled_from(["", "", "", "", "TRACE", "DELETE", "PUT", "HEAD"]),
    key=st.sampled_from(["every", "every", "every", "some", "none", "unknown", None]),
    query=QUERY | st.just("?" + "x" * 300),
    body=JSON | RAW,
    headers=HEADERS,
)
def test_every_4xx_names_a_clause_that_exists_and_fits(
    operation: Operation,
    method: str,
    key: str | None,
    query: str,
    body: Any,
    headers: dict[str, str],
) -> None:
    """D-PROBLEM: whatever is asked of whichever operation."""
    acme = _small()
    keys = {"every": PERMISSIONS, "some": ("token:read",), "none": ()}
    given_key = acme.key_with(*keys[key]) if key in keys else key and "key_prod_us_pvt_x"
    path = operation.path.replace("{id}", "no-such").replace("{path...}", "a") + query
    name = operation.method if operation.method != "ANY" else "POST"
    answer = acme.ask(method or name, path, body, key=given_key, headers=headers, proxy_key="x")
    if 400 <= answer.status < 500 and method != "HEAD":
        clause = answer.body.get("clause")
        assert clause in KNOWN, (answer.status, answer.body)
        asked = operation
        if method:  # it may be another operation's
            return
        assert _fits(asked, answer.status, clause), (operation.name, answer.status, answer.body)


def test_what_stands_in_a_wrong_state_names_its_clause() -> None:
    """409, 403 and 404 of what was there, and what a body or a hostname alone cannot show."""
    acme = _small()
    key = acme.key_with(*PERMISSIONS)
    engine = acme.engine
    stranger = acme.principal(set(PERMISSIONS), tenant=engine.create_tenant("Other"))[1]

    def asked(method: str, path: str, body: Any = None, **more: Any) -> tuple[int, str]:
        more.setdefault("key", key)
        answer = acme.ask(method, path, body, **more)
        return answer.status, answer.body["clause"]

    address = {"name": "p", "destination_url": "https://api.example.com"}
    owned = acme.ask("POST", "/proxies", {**address, "require_auth": True}, key=key).body
    named = acme.ask("POST", "/proxies", {**address, "host": "a.example"}, key=key).body
    assert asked("POST", "/proxies", {**address, "host": "a.example"}) == (409, "D-HOST")
    assert asked("POST", "/proxies", {**address, "host": "10.0.0.1"}) == (400, "D-HOST")
    proxy_key = {"proxy_key": owned["key"]}
    assert asked("GET", "/proxy", **proxy_key, host="a.example") == (400, "D-PROXY-RULES")
    assert asked("GET", "/proxy", **proxy_key, key=None) == (401, "AUTH-HEADER")
    assert asked("GET", "/proxy", **proxy_key, key=stranger) == (403, "D-PROXY")
    assert asked("GET", "/proxy", key=None) == (401, "D-PROXY")
    assert asked("POST", "/proxy/..;/x", proxy_key=named["key"]) == (400, "D-PROXY")

    job = acme.ask("POST", "/account-updater/jobs", key=key).body
    assert asked("GET", f"/account-updater/jobs/{job['id']}/result") == (409, "D-JOBS")
    upload = job["upload_url"]
    assert asked("PUT", upload, b"x" * 2_001) == (413, "ACC-FILE")
    assert asked("PUT", upload.partition("?")[0], b"x") == (404, "D-STATUSES")
    acme.ask("PUT", upload, b"token,expiration_year,expiration_month\n", key=None)
    assert asked("PUT", upload, b"x") == (409, "ACC-SPLIT")
    late = acme.ask("POST", "/account-updater/jobs", key=key).body["upload_url"]
    acme.clock.advance_ns("1h")
    assert asked("PUT", late, b"x") == (403, "D-JOBS")

    made = acme.ask("POST", "/applications", {"name": "a", "kind": "public"}, key=key).body
    application = f"/applications/{made['id']}"
    grants = [{"container": "/", "permissions": ["log:read"]}]
    assert asked("PATCH", application, {"grants": grants}) == (409, "D-PERMISSIONS")
    private = acme.ask("POST", "/applications", {"name": "a", "kind": "private"}, key=key).body
    origins = {"origins": ["https://a.example"]}
    assert asked("PATCH", f"/applications/{private['id']}", origins) == (409, "D-CORS")
    narrow = acme.key_with("application:update", container="/pci/")
    assert asked(
        "PATCH", application, {"grants": [{**grants[0], "permissions": []}]}, key=narrow
    ) == (
        403,
        "D-GRANT-SCOPE",
    )
    once = {"Idempotency-Key": "k"}
    acme.ask("POST", "/tokenize", {"a": "x"}, headers=once)
    assert asked("POST", "/tokenize", {"a": "y"}, key=acme.key, headers=once) == (
        422,
        "D-IDEMPOTENCY",
    )
    reactor = acme.ask("POST", "/reactors", {"name": "r", "code": "c"}, key=key).body["id"]
    assert asked("POST", f"/reactors/{reactor}/react", {"args": "x" * 1_001}) == (
        413,
        "RCT-PAYLOAD",
    )


def test_only_what_is_not_the_callers_fault_names_no_clause() -> None:
    """Every problem that the engine makes: `clause=` is a name that exists, or it is a 5xx."""
    silent, named = [], set()
    for path in Path(engine.__file__).parent.rglob("*.py"):
        if path.parent.name == "openapi":
            continue  # examples in a document
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Problem":
                given_names = {word.arg: word.value for word in node.keywords}
                said = given_names.get("clause", ast.Constant(None))
                if isinstance(said, ast.Constant) and said.value is None:
                    silent.append(ast.unparse(node.args[0]))
                elif isinstance(said, ast.Constant):
                    named.add(said.value)
    assert named
    assert named <= KNOWN
    assert set(silent) == {"500", "503"}
