"""Proxies in time: the destination's 25 s, the transforms' 30 s, and nobody waits for another."""

from pathlib import Path
from typing import Any

import pytest

from engine.store import SqliteStore
from engine.world import CallAnswer
from tests.engine.resources.outside import SECOND_NS, Outside

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
