"""Proxies: definitions, what passes through, and whose rights count (section 8.5, D-PROXY)."""

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from engine.model import Application
from engine.resources.proxies import destination_of
from engine.world import Call, CallAnswer
from tests.engine.deployment import CARD
from tests.engine.resources.outside import Outside, Stream

JSON = {"Content-Type": "application/json"}


@pytest.fixture
def outside() -> Outside:
    return Outside()


# --- definitions --------------------------------------------------------------------------------


def test_a_definition_is_made_shown_changed_listed_and_deleted(outside: Outside) -> None:
    """The key is in the first answer only, and of it only a hash is stored."""
    given_fields = {
        "name": "payments",
        "destination_url": "https://api.example.com/v1",
        "request_transform": {"code": "in"},
        "response_transform": None,
        "require_auth": True,
        "host": "Pay.Acme.example.",
    }
    answer = outside.ask("POST", "/proxies", given_fields)
    path = answer.headers["Location"]
    key = answer.body.pop("key")
    assert answer.body.items() >= {**given_fields, "host": "pay.acme.example"}.items()
    assert outside.ask("GET", path).body == answer.body
    changes = {"request_transform": None, "host": None, "response_transform": {"code": "out"}}
    changed = outside.ask("PATCH", path, changes)
    assert changed.body == {**answer.body, **changes}
    listed = outside.ask("GET", "/proxies").body["data"]
    assert listed == [changed.body]
    assert key not in str((listed, outside.engine.services.store.__dict__))
    assert outside.ask("DELETE", path).status == 204
    assert outside.ask("GET", path).status == 404
    assert outside.ask("GET", "/proxy", proxy_key=key).status == 401
    for operation in ("create", "update", "delete"):
        ((entity, _, _),) = outside.logged(f"proxy:{operation}")
        assert entity == answer.body["id"]


@pytest.mark.parametrize(
    "url",
    [
        "api.example.com",
        "ftp://api.example.com",
        "https://",
        "https:///v1",
        "https://user:secret@api.example.com",
        "https://api.example.com/a b",
        "https://api.example.com/#top",
        "https://api.example.com:99999",
        "https://api.example.com:port",
        "https://api.example.com:0",
        "https://q*",
        "https://-a.example",
        "https://[::1",
        "https://[api.example.com]",
        "https://api.example.com\\@evil.example",
        "file:///etc/passwd",
    ],
)
def test_what_is_no_address_is_no_destination(outside: Outside, url: str) -> None:
    answer = outside.ask("POST", "/proxies", {"name": "n", "destination_url": url})
    assert (answer.status, list(answer.body["errors"])) == (400, ["/destination_url"])
    assert "secret" not in str(answer.body)


@pytest.mark.parametrize(
    "url",
    [
        "https://api.example.com",
        "HTTPS://API.example.com:65535/v1?a=[1]|2",
        "http://10.0.0.1:8080/a%20b",
        "http://my_service",
        "http://[2001:db8::1]:8080/v1",
        "https://api.example.com?a=1",
    ],
)
def test_a_destination_is_an_address(outside: Outside, url: str) -> None:
    assert outside.proxy(destination_url=url)["destination_url"] == url


@pytest.mark.parametrize("host", ["-a.example", "a..b", "a b", "é.example", "[::1]", "a_b.example"])
def test_a_host_is_a_hostname(outside: Outside, host: str) -> None:
    body = {"name": "n", "destination_url": "https://a.example", "host": host}
    answer = outside.ask("POST", "/proxies", body)
    assert (answer.status, list(answer.body["errors"])) == (400, ["/host"])


def test_a_hostname_belongs_to_one_proxy(outside: Outside) -> None:
    """409 for a second one; keeping one's own is no conflict."""
    first = outside.proxy(host="pay.example")
    second = outside.proxy()
    body = {"name": "n", "destination_url": "https://a.example", "host": "PAY.example"}
    assert outside.ask("POST", "/proxies", body).status == 409
    assert outside.ask("PATCH", f"/proxies/{second['id']}", {"host": "pay.example"}).status == 409
    assert outside.ask("PATCH", f"/proxies/{first['id']}", {"host": "pay.example"}).ok
    outside.ask("DELETE", f"/proxies/{first['id']}")
    assert outside.ask("PATCH", f"/proxies/{second['id']}", {"host": "pay.example"}).ok


@pytest.mark.parametrize("name", ["request_transform", "response_transform"])
def test_transform_code_is_bounded(outside: Outside, name: str) -> None:
    """RCT-CODE holds for both transforms."""
    outside.proxy(**{name: {"code": "\U0001f511" * 50_000}})
    body = {"name": "n", "destination_url": "https://a.example", name: {"code": "x" * 50_001}}
    answer = outside.ask("POST", "/proxies", body)
    assert (answer.status, answer.body["clause"]) == (400, "RCT-CODE")
    assert list(answer.body["errors"]) == [f"/{name}/code"]


@pytest.mark.parametrize(
    ("method", "right"),
    [
        ("POST", "proxy:create"),
        ("GET", "proxy:read"),
        ("PATCH", "proxy:update"),
        ("DELETE", "proxy:delete"),
    ],
)
def test_each_operation_asks_for_its_right(outside: Outside, method: str, right: str) -> None:
    """D-PERMISSIONS; and another tenant's proxy is not there."""
    made = outside.proxy()
    path = "/proxies" if method == "POST" else f"/proxies/{made['id']}"
    bodies = {"POST": {"name": "n", "destination_url": "https://a.example"}, "PATCH": {}}
    body = bodies.get(method)
    others = {f"proxy:{verb}" for verb in ("create", "read", "update", "delete", "invoke")}
    assert outside.ask(method, path, body, key=outside.key_with(*(others - {right}))).status == 403
    assert outside.ask(method, path, body, key=None).status == 401
    stranger = outside.principal({right}, tenant=outside.engine.create_tenant("Other"))[1]
    if method != "POST":
        assert outside.ask(method, path, body, key=stranger).status == 404
    assert outside.ask(method, path, body, key=outside.key_with(right)).ok


@pytest.mark.parametrize(
    "path",
    [
        "..",
        "a/../b",
        "..;/b",
        "a/..;jsessionid=1/b",
        "%2e%2e/b",
        ".%2E;x/b",
        "%252e%252e/b",
        "a%252f..%252fb",
        "%25%32%65%25%32%65/b",
        "..%5cb",
        "..%3bx/b",
        "..%00/b",
        "%2525252525252525252e",
    ],
)
def test_no_path_climbs_out_however_often_it_is_decoded(outside: Outside, path: str) -> None:
    """D-PROXY: servers decode a path once or twice, and some drop what follows a semicolon."""
    proxy = outside.proxy()
    answer = outside.ask("GET", f"/proxy/{path}", key=None, proxy_key=proxy["key"])
    assert (answer.status, answer.body["clause"]) == (400, "D-PROXY")
    assert outside.calls == []


@pytest.mark.parametrize("path", ["a..b", "...", "a;..", "a%20b", "a%2520b", ".%2e.", "%41"])
def test_other_dots_and_codes_pass(outside: Outside, path: str) -> None:
    proxy = outside.proxy()
    assert outside.ask("GET", f"/proxy/{path}", key=None, proxy_key=proxy["key"]).ok
    assert outside.calls[-1].url == f"https://api.example.com/v1/{path}"


def test_an_answer_that_is_too_large_is_502() -> None:
    """D-SIZE: outside.answer_limit_bytes, in every world."""
    for size, status in ((1000, 200), (1001, 502)):
        outside = Outside(outside={"answer_limit_bytes": 1000})
        assert outside.through(outside.proxy(), b"x" * size).status == status


# --- which proxy, and who may -------------------------------------------------------------------


def test_a_key_or_a_hostname_names_the_proxy(outside: Outside) -> None:
    """D-PROXY-RULES: either alone, or both naming one; two different ones are 400."""
    one = outside.proxy(host="one.example")
    outside.proxy(host="two.example")
    assert outside.through(one).ok
    assert outside.ask("GET", "/anything", host="One.example:8443", key=None).ok
    assert outside.calls[-1].url == "https://api.example.com/v1/anything"
    assert outside.through(one, host="one.example").ok
    assert outside.through(one, host="two.example").status == 400
    assert outside.ask("GET", "/proxyfoo", host="two.example", key=None).ok
    assert outside.calls[-1].url == "https://api.example.com/v1/proxyfoo"


def test_an_unknown_key_names_nothing(outside: Outside) -> None:
    """401 with what is needed (D-STATUSES), on a custom hostname too; nothing is called."""
    outside.proxy(host="one.example")
    for more in ({}, {"proxy_key": "proxy_x"}, {"proxy_key": "proxy_x", "host": "one.example"}):
        answer = outside.ask("GET", "/proxy", key=None, **more)
        assert answer.status == 401
        assert answer.headers["WWW-Authenticate"] == 'ProxyKey header="SVC-PROXY-KEY"'
    assert outside.ask("GET", "/proxy", host="other.example").status == 401
    assert outside.calls == []


def test_an_unknown_key_is_refused_before_the_body_is_read(outside: Outside) -> None:
    """D-ORDER: 401 before 413."""
    stream = Stream(50_000_000)
    assert outside.ask("POST", "/proxy", stream, proxy_key="proxy_x").status == 401
    assert stream.read_bytes == 0


def test_required_authentication(outside: Outside) -> None:
    """An API key of the proxy's own tenant with proxy:invoke."""
    proxy = outside.proxy(require_auth=True)
    answer = outside.through(proxy)
    assert answer.status == 401
    assert answer.headers["WWW-Authenticate"] == 'ApiKey header="SVC-API-KEY"'
    assert outside.through(proxy, key=outside.key_with("proxy:read")).status == 403
    stranger = outside.principal({"proxy:invoke"}, tenant=outside.engine.create_tenant("Other"))[1]
    assert outside.through(proxy, key=stranger).status == 403
    assert outside.calls == []
    invoker = outside.principal({"proxy:invoke"})
    assert outside.through(proxy, key=invoker[1]).ok
    assert outside.logged("proxy:invoke") == [(proxy["id"], invoker[0].id, 200)]


def test_without_required_authentication_nobody_is_known(outside: Outside) -> None:
    proxy = outside.proxy()
    assert outside.through(proxy).ok
    assert outside.through(proxy, key=outside.key_with("log:read")).ok
    assert outside.logged("proxy:invoke") == [(proxy["id"], None, 200)] * 2


# --- what passes through ------------------------------------------------------------------------


def test_path_query_and_method_are_appended(outside: Outside) -> None:
    proxy = outside.proxy(destination_url="https://api.example.com/v1/?app=7")
    outside.through(proxy, method="GET", path="/users//7/?a=1&a=2&b=%20")
    assert (outside.calls[0].method, outside.calls[0].url) == (
        "GET",
        "https://api.example.com/v1/users//7/?app=7&a=1&a=2&b=%20",
    )
    for method in ("PUT", "PATCH", "DELETE", "OPTIONS", "PROPFIND"):
        assert outside.through(proxy, method=method).ok
        assert outside.calls[-1].method == method
        assert outside.calls[-1].url == "https://api.example.com/v1/?app=7"


@pytest.mark.parametrize(
    "path", ["/../admin", "/a/..", "/%2e%2e/admin", "/a%2f..%2fb", "/..%5cadmin", "/a/%2E./b"]
)
def test_no_path_climbs_out_of_the_destination(outside: Outside, path: str) -> None:
    assert outside.through(outside.proxy(), path=path).status == 400
    assert outside.calls == []


@given(st.text(), st.text())
def test_an_address_stays_below_its_base(path: str, query: str) -> None:
    base = "https://api.example.com/v1"
    assume(".." not in path and not any(ord(each) < 32 or ord(each) == 127 for each in path))
    url = destination_of(base, path, query)
    assert url.startswith(base)
    assert url.isascii()
    assert url.isprintable()
    assert " " not in url
    assert "#" not in url


def test_headers_pass_but_for_the_connections_and_our_keys(outside: Outside) -> None:
    headers = {
        "Authorization": "Bearer theirs",
        "X-Trace": "7",
        "X-Hop": "gone",
        "connection": "keep-alive, x-hop",
        "Keep-Alive": "timeout=5",
        "Transfer-Encoding": "chunked",
        "Content-Length": "12",
        "Host": "us.example",
        "svc-api-key": outside.key,
        "Accept-Encoding": "gzip",
    }
    outside.destination = lambda _call: (
        0,
        CallAnswer(
            418,
            {
                "X-Theirs": "1",
                "Connection": "X-Gone",
                "X-Gone": "1",
                "ratelimit": "theirs",
                "ratelimit-policy": "theirs",
            },
            b"tea",
        ),
    )
    answer = outside.through(outside.proxy(), b"{}", headers=headers, key=outside.key)
    assert dict(outside.calls[0].headers) == {
        "Authorization": "Bearer theirs",
        "X-Trace": "7",
        "Accept-Encoding": "gzip",
    }
    assert (answer.status, answer.body) == (418, b"tea")
    assert {name for name in answer.headers if "ate" not in name} == {"X-Theirs"}
    assert "theirs" not in answer.headers.values()


def test_what_is_no_json_with_an_expression_passes_byte_for_byte(outside: Outside) -> None:
    proxy = outside.proxy()
    bodies: list[tuple[bytes, dict[str, str]]] = [
        (b'{ "spaces" : "kept" }', JSON),
        (b'{ "begun" : "{{ and not ended" }', JSON),
        (b"{{ not ours }}", {"Content-Type": "text/plain"}),
        (b"{{ \xff\x00", {}),
        (b'{"empty": "{{}}"}', {"Content-Type": "application/octet-stream"}),
        (b"", JSON),
    ]
    for body, headers in bodies:
        answer = outside.through(proxy, body, headers=headers)
        assert (answer.status, outside.calls[-1].body, answer.body) == (200, body, body)


def test_a_value_passes_as_json(outside: Outside) -> None:
    outside.through(outside.proxy(), {"a": [1, None]})
    assert outside.calls[0].body == b'{"a":[1,null]}'
    assert dict(outside.calls[0].headers) == JSON


# --- tokens -------------------------------------------------------------------------------------


@pytest.mark.parametrize("media_type", ["application/json; charset=utf-8", "application/x+json"])
def test_expressions_become_values(outside: Outside, media_type: str) -> None:
    """With the rights of whoever created the proxy, where no key is asked for."""
    name, card = outside.expression("Ada"), outside.expression(CARD)
    body = f'{{"to": "Dear {name}", "card": "{card}", "n": 1}}'.encode()
    outside.through(outside.proxy(), body, headers={"Content-Type": media_type})
    assert outside.calls[0].body == (
        b'{"to": "Dear Ada", "card": {"number":"4242424242424242","expiration_month":12,'
        b'"expiration_year":2030,"cvc":"123"}, "n": 1}'
    )


def test_whose_rights_count(outside: Outside) -> None:
    """D-RIGHTS: token:use of the creator, and of the caller too where the proxy asks for a key."""
    body = {"n": outside.expression("Ada")}
    weak_app, weak = outside.principal({"proxy:create", "proxy:invoke"})
    user = outside.key_with("proxy:invoke", "token:use")
    elsewhere = outside.key_with("proxy:invoke", "token:use", container="/pci/")
    definition: dict[str, object] = {"name": "n", "destination_url": "https://a.example"}
    weak_proxy = outside.ask("POST", "/proxies", definition, key=weak).body
    assert outside.through(weak_proxy, body).status == 403
    assert outside.through(weak_proxy, body, key=user).status == 403
    definition["require_auth"] = True
    refused = outside.ask("POST", "/proxies", definition, key=weak).body
    assert outside.through(refused, body, key=user).status == 403
    asking = outside.ask("POST", "/proxies", definition).body
    assert outside.through(asking, body, key=weak).status == 403
    assert outside.through(asking, body, key=elsewhere).status == 403
    assert outside.calls == []
    assert outside.through(asking, body, key=user).ok
    store = outside.engine.services.store
    with store.transaction():
        store.delete(Application, weak_app.id)
    assert outside.through(weak_proxy, body).status == 403
    assert outside.through(weak_proxy, {"n": 1}).ok


def test_bad_expressions_call_nobody(outside: Outside) -> None:
    """QUO-DETOKENIZE and D-DETOKENIZE hold here too; another tenant's token is unknown."""
    proxy = outside.proxy()
    other = outside.engine.create_tenant("Other")
    theirs = outside.tokenize(["x"], key=outside.principal({"token:create"}, tenant=other)[1])[0]
    for body in (
        {"n": "{{ 8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f }}"},
        {"n": f"{{{{ {theirs} }}}}"},
        {"n": "{{ token: a }}"},
        [outside.expression("Ada")] * 6,
    ):
        assert outside.through(proxy, body).status == 400
    assert outside.through(proxy, b'{"n": "{{ x }}"', headers=JSON).status == 400
    assert outside.calls == []
    assert outside.unfinished() == 0


def test_no_value_stands_in_a_problem(outside: Outside) -> None:
    """D-PROBLEM: not of a token, not of a header, whatever goes wrong."""
    card = outside.expression(CARD)

    def destination(call: Call) -> tuple[int, CallAnswer | None]:
        assert b"4242424242424242" in call.body
        return 0, None

    outside.destination = destination
    answer = outside.through(outside.proxy(), {"c": card}, headers={"X-Secret": "s3cret"})
    assert answer.status == 502
    assert "4242" not in str(answer.body)
    assert "s3cret" not in str(answer.body)
