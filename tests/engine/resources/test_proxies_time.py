"""Proxies: times of destinations and transforms; what transforms see and change (section 8.9)."""

import gzip
from pathlib import Path
from typing import Any

import pytest

from engine.store import SqliteStore
from engine.world import CallAnswer
from tests.engine.resources.outside import SECOND_NS, Outside, Stream

TIMEOUT_NS = 25 * SECOND_NS
IN = {"request_transform": {"code": "in"}}
OUT = {"response_transform": {"code": "out"}}


@pytest.fixture
def outside() -> Outside:
    return Outside()


def _proxy(outside: Outside, **more: Any) -> str:
    body = {"name": "payments", "destination_url": "https://api.example.com", **more}
    key: str = outside.made("/proxies", body)["key"]
    return key


def _takes(outside: Outside, duration_ns: int, answer: CallAnswer | None = None) -> None:
    given = answer or CallAnswer(200, {}, b"")
    outside.destination = lambda _call: (duration_ns, given)


@pytest.mark.parametrize(("over_ns", "status"), [(0, 200), (1, 408), (TIMEOUT_NS, 408)])
def test_a_destination_has_25_s(outside: Outside, over_ns: int, status: int) -> None:
    """ERR-408, PRX-TIMEOUT, E10: exactly 25 s passes; over that it is 408 at 25 s."""
    _takes(outside, TIMEOUT_NS + over_ns)
    answer = outside.ask("GET", "/proxy", proxy_key=_proxy(outside))
    assert (answer.status, outside.clock.now_ns) == (status, TIMEOUT_NS)
    assert outside.unfinished() == 0
    ((_, _, logged),) = outside.logged("proxy:invoke")
    assert logged == status
    if status == 408:
        assert answer.body["clause"] == "PRX-TIMEOUT"


def test_a_destinations_own_408_is_its_answer(outside: Outside) -> None:
    _takes(outside, 5, CallAnswer(408, {}, b"theirs"))
    answer = outside.ask("GET", "/proxy", proxy_key=_proxy(outside))
    assert (answer.status, answer.body) == (408, b"theirs")


def test_an_unreachable_destination_is_502(outside: Outside) -> None:
    outside.destination = lambda _call: (3, None)
    answer = outside.ask("GET", "/proxy", proxy_key=_proxy(outside))
    assert (answer.status, outside.clock.now_ns) == (502, 3)


@pytest.mark.parametrize("transforms", [{}, IN, OUT, {**IN, **OUT}])
def test_each_transform_has_its_own_time(outside: Outside, transforms: Any) -> None:
    """RCT-TIMEOUT, D-PROXY-TIMEOUT: the destination's 25 s are its own, so are each one's 30 s."""
    outside.service_ns = 30 * SECOND_NS
    _takes(outside, TIMEOUT_NS)
    answer = outside.ask("GET", "/proxy", proxy_key=_proxy(outside, **transforms))
    assert answer.ok
    assert outside.clock.now_ns == TIMEOUT_NS + len(transforms) * 30 * SECOND_NS


@pytest.mark.parametrize(("transforms", "calls", "at_ns"), [(IN, 0, 0), (OUT, 1, 7)])
def test_a_transform_over_its_time_is_504(
    outside: Outside, transforms: Any, calls: int, at_ns: int
) -> None:
    """RCT-TIMEOUT: as a reactor's, at exactly 30 s of its own."""
    outside.service_ns = 30 * SECOND_NS + 1
    _takes(outside, 7)
    answer = outside.ask("GET", "/proxy", proxy_key=_proxy(outside, **transforms))
    assert (answer.status, answer.body["clause"]) == (504, "RCT-TIMEOUT")
    assert len(outside.calls) == calls
    assert outside.clock.now_ns == at_ns + 30 * SECOND_NS


def test_each_transform_has_its_own_hot_instance() -> None:
    """RCT-HOT: of two at once, the second starts cold in each transform on its own."""
    outside = Outside(outside={"cold_start_ns": 2 * SECOND_NS})
    outside.service_ns = SECOND_NS
    key = _proxy(outside, **IN, **OUT)
    tasks = [outside.at(0, "GET", "/proxy", proxy_key=key) for _ in range(2)]
    outside.loop.run()
    # The second finds the response transform's hot instance idle, because it comes 2 s later.
    assert [t.ended_ns for t in tasks] == [2 * SECOND_NS, 4 * SECOND_NS]
    assert len(outside.engine.services.running) == 2


def test_a_deleted_proxy_leaves_no_instances(outside: Outside) -> None:
    definition = {"name": "n", "destination_url": "https://a.example", **IN, **OUT}
    made = outside.made("/proxies", definition)
    assert outside.ask("POST", "/proxy", {}, proxy_key=made["key"]).ok
    outside.ask("DELETE", f"/proxies/{made['id']}")
    assert not outside.engine.services.running


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_a_slow_destination_stops_nobody_else(kept: str, tmp_path: Path) -> None:
    """No transaction is open across an await: reads, writes and other proxies go on meanwhile."""
    outside = Outside(SqliteStore(tmp_path / "store.db") if kept == "file" else None)
    key = _proxy(outside)
    outside.destination = lambda call: (
        20 * SECOND_NS if call.url.endswith("slow") else SECOND_NS,
        CallAnswer(200, {}, b""),
    )
    slow = outside.at(0, "GET", "/proxy/slow", proxy_key=key)
    others = [
        outside.at(1, "POST", "/tokenize", {"name": "Ada"}),
        outside.at(2, "GET", "/tokens"),
        outside.at(3, "GET", "/proxy/quick", proxy_key=key),
        outside.at(4, "DELETE", "/reactors/none"),
    ]
    outside.loop.run(until_ns=SECOND_NS)
    assert outside.unfinished() == 2
    outside.loop.run()
    assert [t.result.status for t in others] == [200, 200, 200, 404]
    assert [t.ended_ns for t in others] == [1, 2, 3 + SECOND_NS, 4]
    assert (slow.result.status, slow.ended_ns) == (200, 20 * SECOND_NS)
    assert outside.unfinished() == 0
    outside.engine.close()


def test_a_proxy_deleted_meanwhile_still_answers(outside: Outside) -> None:
    definition = {"name": "n", "destination_url": "https://a.example"}
    made = outside.made("/proxies", definition)
    _takes(outside, 10)
    running = outside.at(0, "GET", "/proxy", proxy_key=made["key"])
    outside.at(5, "DELETE", f"/proxies/{made['id']}")
    later = outside.at(6, "GET", "/proxy", proxy_key=made["key"])
    outside.loop.run()
    assert (running.result.status, later.result.status) == (200, 401)


def test_the_limits_of_proxies_apply(outside: Outside) -> None:
    """LIM-PROXY-KEY, LIM-PROXY-HOST: 50 in 10 s without required authentication."""
    key = _proxy(outside, host="one.example")
    for more, rule in (
        ({"proxy_key": key}, "LIM-PROXY-KEY"),
        ({"host": "one.example"}, "LIM-PROXY-HOST"),
    ):
        answers = [outside.ask("GET", "/proxy", key=None, **more) for _ in range(51)]
        assert [a.status for a in answers] == [200] * 50 + [429]
        assert answers[-1].decision.rule == rule


# --- what transforms see and change --------------------------------------------------------------


JSON = {"Content-Type": "application/json"}


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
