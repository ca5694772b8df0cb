"""Transforms: what code sees of a request and an answer, and what it may change (section 8.9)."""

import gzip
from typing import Any

import pytest

from engine.world import CallAnswer
from tests.engine.resources.outside import Outside, Stream

JSON = {"Content-Type": "application/json"}
IN = {"request_transform": {"code": "in"}}
OUT = {"response_transform": {"code": "out"}}


@pytest.fixture
def outside() -> Outside:
    return Outside()


def test_transforms_see_and_change_what_passes(outside: Outside) -> None:
    def run(code: str, args: Any) -> Any:
        if code == "in":
            return {"headers": {**args["headers"], "X-In": "1"}, "body": {"was": args["body"]}}
        return {"status": 201, "headers": {"X-Out": "1"}, "body": [args["body"]]}

    outside.runtime = run
    name = outside.expression("Ada")
    answer = outside.through(outside.proxy(**IN, **OUT), {"n": name}, path="/a?b=1")
    (call,) = outside.calls
    assert call.body == b'{"was":{"n":"Ada"}}'
    assert dict(call.headers) == {**JSON, "Accept-Encoding": "identity", "X-In": "1"}
    assert (answer.status, answer.body) == (201, b'[{"was":{"n":"Ada"}}]')
    assert answer.headers.items() >= {**JSON, "X-Out": "1"}.items()
    seen: Any = outside.runs[0][1]
    back: Any = outside.runs[1][1]
    assert (seen["method"], seen["url"]) == ("POST", "https://api.example.com/v1/a?b=1")
    assert set(back) == {"status", "headers", "body"}


@pytest.mark.parametrize(
    ("body", "headers", "seen"),
    [
        (b'{"a": 1}', JSON, {"a": 1}),
        (b"a=1&b=2", {"Content-Type": "application/x-www-form-urlencoded"}, "a=1&b=2"),
        (b"", {}, None),
    ],
)
def test_what_a_transform_leaves_alone_passes(
    outside: Outside, body: bytes, headers: dict[str, str], seen: Any
) -> None:
    outside.runtime = lambda _code, _args: {}
    answer = outside.through(outside.proxy(**IN), body, headers=headers)
    assert outside.runs[0][1] == {
        "method": "POST",
        "url": "https://api.example.com/v1",
        "headers": headers,
        "body": seen,
    }
    assert answer.ok
    assert outside.calls[0].body.replace(b" ", b"") == body.replace(b" ", b"")


@pytest.mark.parametrize(
    "result",
    [
        None,
        "text",
        [],
        {"headers": "x"},
        {"headers": {"X-Number": 1}},
        {"headers": {"X-Split": "a\r\nSet-Cookie: b"}},
        {"headers": {"bad name": "1"}},
        {"headers": {"X-List": ["1", 2]}},
        {"headers": {"Set-Cookie": ["a\nb"]}},
        {"headers": [["X", "1"]]},
    ],
)
def test_a_transform_that_returns_nonsense_has_failed(outside: Outside, result: Any) -> None:
    """502; a header that would split the answer is no header."""
    outside.runtime = lambda _code, _args: result
    assert outside.through(outside.proxy(**IN), {}).status == 502
    assert outside.calls == []
    assert outside.through(outside.proxy(**OUT), {}).status == 502


def test_cookies_stay_apart_through_a_response_transform(outside: Outside) -> None:
    """RFC 9110, 5.3: Set-Cookie cannot be joined; code sees an array and may give one back."""
    cookies = "a=1; Expires=Thu, 01 Jan 2026 00:00:00 GMT\nb=2"
    outside.destination = lambda _call: (0, CallAnswer(200, {"set-cookie": cookies}, b""))
    proxy = outside.proxy(**OUT)
    outside.runtime = lambda _code, _args: {}
    assert outside.through(proxy, {}).headers["set-cookie"] == cookies
    seen: Any = outside.runs[0][1]
    assert seen["headers"] == {"set-cookie": cookies.split("\n")}
    outside.runtime = lambda _code, args: {
        "headers": {"Set-Cookie": [*args["headers"]["set-cookie"], "c=3"], "X": ["1", "2"], "Y": []}
    }
    answer = outside.through(proxy, {})
    assert answer.headers["Set-Cookie"] == f"{cookies}\nc=3"
    assert answer.headers["X"] == "1, 2"
    assert "Y" not in answer.headers
    outside.destination = lambda _call: (0, CallAnswer(200, {"Set-Cookie": "one=1"}, b""))
    outside.runtime = lambda _code, args: {"body": args["headers"]["Set-Cookie"]}
    assert outside.through(proxy, {}).body == b'["one=1"]'


def test_a_request_transform_gives_arrays_that_are_joined(outside: Outside) -> None:
    outside.runtime = lambda _code, _args: {"headers": {"Accept": ["a/b", "c/d"], "X": []}}
    assert outside.through(outside.proxy(**IN), b"x").ok
    assert dict(outside.calls[0].headers) == {"Accept": "a/b, c/d"}


@pytest.mark.parametrize("status", ["200", 99, 101, 600, True, None])
def test_a_response_transform_gives_a_status_that_is_one(outside: Outside, status: Any) -> None:
    outside.runtime = lambda _code, _args: {"status": status}
    assert outside.through(outside.proxy(**OUT), {}).status == 502


def test_a_body_that_code_cannot_read(outside: Outside) -> None:
    """415 on the way in, 502 on the way out."""
    assert outside.through(outside.proxy(**IN), b"\xff\x00").status == 415
    assert outside.through(outside.proxy(**IN), b"{", headers=JSON).status == 415
    outside.destination = lambda _call: (0, CallAnswer(200, {}, gzip.compress(b"x")))
    assert outside.through(outside.proxy(**OUT), {}).status == 502
    assert outside.unfinished() == 0


@pytest.mark.parametrize("transform", [IN, OUT])
def test_a_payload_with_a_transform(outside: Outside, transform: Any) -> None:
    """RCT-PAYLOAD: 10^6 bytes with either transform, 10^7 without (D-SIZE)."""
    proxy = outside.proxy(**transform)
    outside.destination = lambda _call: (0, CallAnswer(204, {}, b""))
    assert outside.through(proxy, b"x" * 1_000_000).status == 204
    answer = outside.through(proxy, b"x" * 1_000_001)
    assert (answer.status, answer.body["clause"]) == (413, "RCT-PAYLOAD")
    stream = Stream(50_000_000)
    assert outside.through(proxy, stream).status == 413
    assert stream.read_bytes == 1_000_001


def test_a_payload_without_a_transform(outside: Outside) -> None:
    """D-SIZE: 10 MB."""
    proxy = outside.proxy()
    assert outside.through(proxy, b"x" * 10_000_000).ok
    assert outside.through(proxy, b"x" * 10_000_001).status == 413
    stream = Stream(50_000_000)
    assert outside.through(proxy, stream).status == 413
    assert stream.read_bytes == 10_000_001
