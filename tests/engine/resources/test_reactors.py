"""Reactors: definitions, instances, and invocations to the nanosecond (section 8.9, D-REACTOR)."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import DestinationUnreachable
from engine.profile import OutsideProfile
from engine.resources import reactors
from engine.resources.reactors import Claim, InstancePool
from engine.store import SqliteStore
from engine.world import Task
from tests.engine.deployment import CARD
from tests.engine.resources.outside import SECOND_NS, Outside, Stream

HALF_NS = SECOND_NS // 2


@pytest.fixture
def outside() -> Outside:
    return Outside()


def _reactor(outside: Outside, **more: Any) -> str:
    made = outside.made("/reactors", {"name": "upper", "code": "upper", **more})
    return f"/reactors/{made['id']}"


def _react(outside: Outside, args: Any, **more: Any) -> Any:
    return outside.ask("POST", f"{_reactor(outside)}/react", {"args": args}, **more)


# --- time ---------------------------------------------------------------------------------------


def test_e10_exactly() -> None:
    """RCT-HOT, RCT-TIMEOUT: cold_start 2 s, service 1 s, then a service of 29 s."""
    outside = Outside(outside={"cold_start_ns": 2 * SECOND_NS})
    path = f"{_reactor(outside)}/react"
    outside.service_ns = SECOND_NS
    starts_ns = (0, 0, 0, HALF_NS, 3 * HALF_NS)
    tasks = [outside.at(at_ns, "POST", path, {"args": 1}) for at_ns in starts_ns]
    outside.loop.run()
    assert [t.result.status for t in tasks] == [200] * 5
    assert [t.ended_ns for t in tasks] == [
        SECOND_NS,
        3 * SECOND_NS,
        3 * SECOND_NS,
        7 * HALF_NS,
        5 * HALF_NS,
    ]
    outside.service_ns = 29 * SECOND_NS
    now_ns = outside.clock.now_ns
    hot, cold = (outside.at(now_ns, "POST", path, {"args": 1}) for _ in range(2))
    outside.loop.run()
    assert (hot.result.status, hot.ended_ns - now_ns) == (200, 29 * SECOND_NS)
    assert (cold.result.status, cold.ended_ns - now_ns) == (504, 30 * SECOND_NS)
    assert cold.result.body["clause"] == "RCT-TIMEOUT"
    assert [status for _, _, status in outside.logged("reactor:invoke")] == [200] * 6 + [504]


@pytest.mark.parametrize(("over_ns", "status"), [(0, 200), (1, 504)])
def test_exactly_thirty_seconds_pass(outside: Outside, over_ns: int, status: int) -> None:
    """RCT-TIMEOUT: over 30 s the answer comes at exactly 30 s (D-REACTOR-TIMEOUT)."""
    outside.service_ns = 30 * SECOND_NS + over_ns
    assert _react(outside, 1).status == status
    assert outside.clock.now_ns == 30 * SECOND_NS


@pytest.mark.parametrize(("over_ns", "status"), [(0, 200), (1, 504)])
def test_a_cold_start_counts_to_the_nanosecond(over_ns: int, status: int) -> None:
    """RCT-TIMEOUT, RCT-HOT: a start that takes the whole time leaves code of no time its turn."""
    outside = Outside(outside={"hot_concurrency": 0, "cold_start_ns": 30 * SECOND_NS + over_ns})
    assert _react(outside, 1).status == status
    assert outside.clock.now_ns == 30 * SECOND_NS


@pytest.mark.parametrize("status", [408, 500])
def test_the_status_of_a_timeout_is_a_choice(status: int) -> None:
    """D-REACTOR-TIMEOUT."""
    outside = Outside(outside={"reactor_timeout_status": status, "reactor_timeout_ns": 5})
    outside.service_ns = 6
    assert _react(outside, 1).status == status


def test_each_reactor_has_its_own_instances(outside: Outside) -> None:
    """RCT-HOT: one reactor's load makes no other start cold."""
    outside.service_ns = SECOND_NS
    one, other = _reactor(outside), _reactor(outside)
    tasks = [outside.at(0, "POST", f"{path}/react", {"args": 1}) for path in (one, other)]
    outside.loop.run()
    assert [t.ended_ns for t in tasks] == [SECOND_NS, SECOND_NS]


def test_a_timed_out_instance_is_free_again(outside: Outside) -> None:
    """RCT-HOT: what takes too long is ended, and its hot instance serves the next."""
    path = f"{_reactor(outside)}/react"
    outside.service_ns = 31 * SECOND_NS
    assert outside.ask("POST", path, {"args": 1}).status == 504
    outside.service_ns = 1
    before_ns = outside.clock.now_ns
    assert outside.ask("POST", path, {"args": 1}).status == 200
    assert outside.clock.now_ns == before_ns + 1


def test_a_cap_makes_a_queue_without_losing_its_order() -> None:
    """D-HOT, `instances_cap`: M/M/c with c = 2 and no cold start, as a trace."""
    outside = Outside(outside={"instances_cap": 2, "hot_concurrency": 2})
    path = f"{_reactor(outside)}/react"
    outside.service_ns = SECOND_NS
    tasks = [outside.at(n * SECOND_NS // 10, "POST", path, {"args": n}) for n in range(5)]
    outside.loop.run()
    assert [t.ended_ns * 10 // SECOND_NS for t in tasks] == [10, 11, 20, 21, 30]


def test_a_place_in_the_queue_counts_too() -> None:
    """RCT-TIMEOUT: 30 s from the invocation, waiting included; who gives up is passed over."""
    outside = Outside(outside={"instances_cap": 1})
    path = f"{_reactor(outside)}/react"
    outside.service_ns = 20 * SECOND_NS
    tasks: list[Task] = [outside.at(0, "POST", path, {"args": n}) for n in range(3)]
    outside.loop.run()
    assert [(t.result.status, t.ended_ns // SECOND_NS) for t in tasks] == [
        (200, 20),
        (504, 30),
        (504, 30),
    ]
    assert outside.ask("POST", path, {"args": 1}).status == 200
    assert outside.clock.now_ns == 50 * SECOND_NS  # the instance was given up at 30
    later = [outside.at(50 * SECOND_NS, "POST", path, {"args": n}) for n in range(3)]
    outside.loop.run()
    assert [t.ended_ns // SECOND_NS for t in later] == [70, 80, 80]


def test_instances_kept_hot_serve_the_next_crowd() -> None:
    """D-HOT, `keep_hot_ns`: until a second after its last answer a started instance is hot."""
    outside = Outside(outside={"keep_hot_ns": SECOND_NS})
    path = f"{_reactor(outside)}/react"
    outside.service_ns = SECOND_NS
    starts_ns = (0, 0, 3 * SECOND_NS - 1, 3 * SECOND_NS - 1, 5 * SECOND_NS, 5 * SECOND_NS)
    tasks = [outside.at(at_ns, "POST", path, {"args": 1}) for at_ns in starts_ns]
    outside.loop.run()
    taken_ns = [t.ended_ns - at_ns for t, at_ns in zip(tasks, starts_ns, strict=True)]
    assert [ns // SECOND_NS for ns in taken_ns] == [1, 2, 1, 1, 1, 2]


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_a_slow_reactor_stops_nobody_else(kept: str, tmp_path: Path) -> None:
    """No transaction is open across an await: others read and write meanwhile, in any store."""
    outside = Outside(SqliteStore(tmp_path / "store.db") if kept == "file" else None)
    outside.service_ns = 20 * SECOND_NS
    slow = outside.at(0, "POST", f"{_reactor(outside)}/react", {"args": 1})
    seen: list[int] = []

    async def quick(at_ns: int) -> None:
        outside.clock.advance_to_ns(at_ns)
        seen.append(outside.unfinished())
        outside.tokenize({"name": f"Ada {at_ns}"})

    for second in range(1, 4):
        outside.loop.at(second * SECOND_NS, quick(second * SECOND_NS))
    outside.loop.run()
    assert (slow.result.status, slow.ended_ns) == (200, 20 * SECOND_NS)
    assert seen == [1, 1, 1]
    assert outside.unfinished() == 0
    assert outside.count() == 3
    outside.engine.close()


def test_a_caller_who_goes_away_leaves_nothing_open(outside: Outside) -> None:
    """A cancelled invocation gives its instance back and closes its work."""
    outside.service_ns = SECOND_NS
    path = f"{_reactor(outside)}/react"
    task = outside.at(0, "POST", path, {"args": 1})
    outside.loop.run(until_ns=HALF_NS)
    task._coroutine.close()
    assert outside.unfinished() == 0
    pool = next(iter(outside.engine.services.running.values()))
    assert pool.claim(outside.clock.now_ns).is_started


# --- what comes in and out ----------------------------------------------------------------------


@pytest.mark.parametrize(
    "result", [7, None, "text", [1], {}, {"other": 1}, {"tokenize": "x", "raw": 1, "other": 2}]
)
def test_a_result_without_parts_is_raw(outside: Outside, result: Any) -> None:
    outside.runtime = lambda _code, _args: result
    assert _react(outside, 1).body == {"tokens": None, "raw": result}
    assert outside.count() == 0


def test_what_the_code_asks_to_tokenize_is_tokenized(outside: Outside) -> None:
    outside.runtime = lambda _code, args: {"tokenize": {"a": args, "c": CARD}, "raw": {"n": 1}}
    answer = _react(outside, "Ada").body
    assert answer["raw"] == {"n": 1}
    assert answer["tokens"]["c"]["mask"]["number"] == "XXXXXXXXXXXX4242"
    revealed = outside.ask("POST", "/detokenize", f"{{{{ {answer['tokens']['a']} }}}}")
    assert revealed.body == "Ada"
    assert outside.count() == 2


def test_a_part_alone_leaves_the_other_null(outside: Outside) -> None:
    assert _react(outside, {"raw": [1]}).body == {"tokens": None, "raw": [1]}
    answer = _react(outside, {"tokenize": ["x"]}).body
    assert answer["raw"] is None
    assert len(answer["tokens"]) == 1


@pytest.mark.parametrize(("part", "status"), [({"type": "visa"}, 400), (list("abcdef"), 400)])
def test_a_result_that_cannot_be_tokenized_creates_nothing(
    outside: Outside, part: Any, status: int
) -> None:
    """TOK-ATOMIC, TOK-LIMIT hold for what code asks for too."""
    outside.runtime = lambda _code, _args: {"tokenize": part}
    assert _react(outside, 1).status == status
    assert (outside.count(), outside.unfinished()) == (0, 0)
    assert [status for _, _, status in outside.logged("reactor:invoke")] == [status]


def test_tokenizing_a_result_needs_the_right_to_create(outside: Outside) -> None:
    """AUTH-CREATE."""
    key = outside.key_with("reactor:invoke")
    assert _react(outside, {"tokenize": ["x"]}, key=key).status == 403
    assert _react(outside, {"raw": "x"}, key=key).status == 200


def test_expressions_in_the_arguments_become_values(outside: Outside) -> None:
    ids = outside.tokenize({"name": "Ada", "card": CARD})
    args = {"n": f"{{{{ {ids['name']} }}}}", "c": f"{{{{ token: {ids['card']['id']} }}}}", "k": 1}
    _react(outside, args)
    ((code, seen, configuration),) = outside.runs
    assert (code, configuration) == ("upper", {})
    assert seen == {"n": "Ada", "c": CARD["data"], "k": 1}


def test_expressions_need_the_right_to_use_each_token(outside: Outside) -> None:
    """D-GRANT: token:use in the token's container; token:read is another right."""
    token_id = outside.tokenize({"n": "Ada"})["n"]
    args = {"n": f"{{{{ {token_id} }}}}"}
    for rights in ({"token:read"}, set[str]()):
        key = outside.key_with("reactor:invoke", *rights)
        assert _react(outside, args, key=key).status == 403
    elsewhere = outside.principal({"reactor:invoke", "token:use"}, container="/pci/")[1]
    assert _react(outside, args, key=elsewhere).status == 403
    assert _react(outside, args, key=outside.key_with("reactor:invoke", "token:use")).ok
    assert len(outside.runs) == 1


def test_an_unknown_token_and_too_many_run_nothing(outside: Outside) -> None:
    """QUO-DETOKENIZE holds for arguments too."""
    unknown = _react(outside, ["{{ 8a0f3f5e-0d5c-4f0e-9d0c-2b8c7b6d5e4f }}"])
    assert (unknown.status, list(unknown.body["errors"])) == (400, ["/args/0"])
    ids = outside.tokenize(list("abcde"))
    six = [f"{{{{ {token_id} }}}}" for token_id in [*ids, ids[0]]]
    assert _react(outside, six).body["clause"] == "QUO-DETOKENIZE"
    assert outside.runs == []


def test_the_configuration_is_handed_to_the_code(outside: Outside) -> None:
    path = _reactor(outside, configuration={"url": "https://example.com"})
    outside.ask("POST", f"{path}/react", {"args": None})
    assert outside.runs == [("upper", None, {"url": "https://example.com"})]


def test_no_arguments_are_null(outside: Outside) -> None:
    assert outside.ask("POST", f"{_reactor(outside)}/react", {}).body["raw"] is None


def test_code_that_fails_says_nothing_of_what_it_saw(outside: Outside) -> None:
    """502, and the words of the code, which may quote a token, stay inside."""

    def fail(_code: str, args: Any) -> Any:
        raise ValueError(f"cannot handle {args}")

    outside.runtime = fail
    answer = _react(outside, "4242424242424242")
    assert answer.status == 502
    assert "4242" not in str(answer.body)
    outside.runtime = lambda _code, _args: {"not", "JSON"}  # type: ignore[assignment,return-value] # reason: what a broken runtime does
    assert _react(outside, 1).status == 502
    assert outside.unfinished() == 0


def test_a_runtime_that_cannot_be_reached_is_502(outside: Outside) -> None:
    def fail(_code: str, _args: Any) -> Any:
        raise DestinationUnreachable("no runtime")

    outside.runtime = fail
    assert _react(outside, 1).status == 502


def test_instances_live_in_the_process_only(outside: Outside) -> None:
    """RCT-HOT: no record of the store names an instance; each engine starts with its hot ones."""
    path = _reactor(outside)
    outside.ask("POST", f"{path}/react", {"args": 1})
    name = f"reactor/{path.rpartition('/')[2]}"
    assert reactors.pool_of(outside.engine.services, name).claim(0).is_lasting


def test_d_order_what_may_not_be_asked_is_told_before_what_is_wrong_with_it(
    outside: Outside,
) -> None:
    """D-ORDER: 413, then 403, then 400, then 404."""
    path, stranger = f"{_reactor(outside)}/react", outside.key_with("token:create")
    long, wrong = {"args": "x" * 1_000_000, "more": 1}, {"args": 1, "more": 1}
    bodies = (long, wrong, ["no object"])
    asked = [outside.ask("POST", path, body, key=stranger).status for body in bodies]
    assert asked == [413, 403, 403]
    assert [outside.ask("POST", path, body).status for body in bodies] == [413, 400, 400]
    assert outside.ask("POST", "/reactors/none/react", wrong).status == 400
    assert outside.ask("POST", "/reactors/none/react", {}).status == 404


@pytest.mark.parametrize("error", [SystemExit(3), ValueError("x"), RecursionError()])
def test_code_that_raises_anything_is_a_problem(outside: Outside, error: BaseException) -> None:
    """D-STATUSES: SystemExit too, which ended the connection without an answer."""

    def failing(_code: str, _args: Any) -> Any:
        raise error

    outside.runtime = failing
    answer = _react(outside, 1)
    assert (answer.status, answer.body["detail"]) == (502, "The code failed.")


# --- definitions ---------------------------------------------------------------------------------


# --- limits of size -----------------------------------------------------------------------------


@pytest.mark.parametrize("character", ["x", "é", "\U0001f511"])
def test_code_is_bounded_in_code_points(outside: Outside, character: str) -> None:
    """RCT-CODE: 50,000 characters whatever their bytes (D-UNITS)."""
    path = _reactor(outside, code=character * 50_000)
    for answer in (
        outside.ask("POST", "/reactors", {"name": "n", "code": character * 50_001}),
        outside.ask("PATCH", path, {"code": character * 50_001}),
    ):
        assert (answer.status, answer.body["clause"]) == (400, "RCT-CODE")
        assert answer.body["errors"] == {"/code": ["must hold at most 50000 characters"]}
    assert outside.ask("PATCH", path, {"code": character * 49_999}).ok


def test_the_payload_is_bounded_in_bytes(outside: Outside) -> None:
    """RCT-PAYLOAD: 10^6 bytes of arguments as compact JSON pass, one more does not (D-SIZE)."""
    assert _react(outside, "x" * 999_998).ok
    assert _react(outside, "é" * 499_999).ok
    for too_long in ("x" * 999_999, "é" * 499_999 + "x"):
        answer = _react(outside, too_long)
        assert (answer.status, answer.body["clause"]) == (413, "RCT-PAYLOAD")
    assert len(outside.runs) == 2


def test_the_payload_is_the_same_however_the_body_is_written(outside: Outside) -> None:
    """RCT-PAYLOAD counts the arguments, not the spaces around them."""
    headers = {"Content-Type": "application/json"}
    path = f"{_reactor(outside)}/react"
    body = b'{"args": "' + b"x" * 999_998 + b'"' + b" " * 1_000 + b"}"
    assert outside.ask("POST", path, body, headers=headers).ok
    body = b'{"args":"' + b"x" * 999_999 + b'"}'
    assert outside.ask("POST", path, body, headers=headers).status == 413


def test_a_body_far_beyond_is_not_read_to_its_end(outside: Outside) -> None:
    """D-SIZE: 4 MB of JSON are read at most."""
    stream = Stream(50_000_000)
    headers = {"Content-Type": "application/json"}
    answer = outside.ask("POST", f"{_reactor(outside)}/react", stream, headers=headers)
    assert answer.status == 413
    assert stream.read_bytes == 4_000_001


# --- definitions --------------------------------------------------------------------------------


def test_a_definition_is_made_shown_changed_listed_and_deleted(outside: Outside) -> None:
    body = {"name": "upper", "code": "x", "configuration": {"a": "1", "b": "2"}}
    answer = outside.ask("POST", "/reactors", body)
    path = answer.headers["Location"]
    shown = {"name": "upper", "code": "x", "configuration_names": ["a", "b"]}
    assert answer.body.items() >= shown.items()
    assert "configuration" not in answer.body, "no value comes back"
    assert outside.ask("GET", path).body == answer.body
    changed = outside.ask("PATCH", path, {"name": "lower", "configuration": {"a": None, "c": "3"}})
    assert changed.body == {
        **answer.body,
        "name": "lower",
        "configuration_names": ["b", "c"],
    }
    assert outside.ask("GET", "/reactors").body["data"] == [changed.body]
    outside.ask("POST", f"{path}/react", {"args": 1})
    assert outside.ask("DELETE", path).status == 204
    assert outside.ask("GET", path).status == 404
    assert outside.ask("POST", f"{path}/react", {"args": 1}).status == 404
    assert not outside.engine.services.running, "a deleted reactor leaves no instances"
    for operation in ("create", "update", "delete"):
        ((entity, _, _),) = outside.logged(f"reactor:{operation}")
        assert entity == answer.body["id"]


@pytest.mark.parametrize(
    ("body", "place"),
    [
        ({"code": "x"}, "/name"),
        ({"name": "n"}, "/code"),
        ({"name": "n", "code": ""}, "/code"),
        ({"name": "n", "code": 1}, "/code"),
        ({"name": "n", "code": "x", "configuration": {"a": 1}}, "/configuration/0"),
        ({"name": "n", "code": "x", "timeout": 1}, "/2"),
    ],
)
def test_a_definition_that_is_none_is_refused(outside: Outside, body: Any, place: str) -> None:
    answer = outside.ask("POST", "/reactors", body)
    assert (answer.status, list(answer.body["errors"])) == (400, [place])


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("POST", "/reactors", "reactor:create"),
        ("GET", "/reactors", "reactor:read"),
        ("GET", "/reactors/{id}", "reactor:read"),
        ("PATCH", "/reactors/{id}", "reactor:update"),
        ("DELETE", "/reactors/{id}", "reactor:delete"),
        ("POST", "/reactors/{id}/react", "reactor:invoke"),
    ],
)
def test_each_operation_asks_for_its_right(
    outside: Outside, method: str, path: str, right: str
) -> None:
    """D-PERMISSIONS; and another tenant's reactor is not there."""
    path = path.replace("/reactors/{id}", _reactor(outside))
    bodies: dict[str, Any] = {"POST": {"name": "n", "code": "c"}, "PATCH": {}}
    body = {"args": 1} if path.endswith("react") else bodies.get(method)
    others = {f"reactor:{verb}" for verb in ("create", "read", "update", "delete", "invoke")}
    assert outside.ask(method, path, body, key=outside.key_with(*(others - {right}))).status == 403
    assert outside.ask(method, path, body, key=None).status == 401
    stranger = outside.principal({right}, tenant=outside.engine.create_tenant("Other"))[1]
    if path != "/reactors":
        assert outside.ask(method, path, body, key=stranger).status == 404
    assert outside.ask(method, path, body, key=outside.key_with(right)).ok


# --- RCT-HOT: instances --------------------------------------------------------------------------


def _pool(**choices: Any) -> InstancePool:
    return InstancePool(OutsideProfile(**choices))


def _held(claim: Claim) -> str:
    if not claim.is_held:
        return "queued"
    return "hot" if claim.is_started else "cold"


def _ready(claim: Claim) -> Claim:
    claim.is_started = True
    return claim


def test_one_is_hot_from_creation_and_others_start_cold() -> None:
    pool = _pool()
    assert [_held(pool.claim(0)) for _ in range(3)] == ["hot", "cold", "cold"]


def test_a_cold_started_instance_dies_when_idle_and_the_hot_one_stays() -> None:
    pool = _pool()
    hot, cold = pool.claim(0), pool.claim(0)
    pool.release(_ready(cold), 5)
    assert _held(pool.claim(5)) == "cold"
    pool.release(hot, 9)
    assert _held(pool.claim(9_000_000_000)) == "hot"


def test_hot_concurrency_is_how_many_are_hot() -> None:
    assert [_held(_pool(hot_concurrency=0).claim(0))] == ["cold"]
    pool = _pool(hot_concurrency=2)
    assert [_held(pool.claim(0)) for _ in range(3)] == ["hot", "hot", "cold"]


def test_an_instance_kept_hot_lives_until_and_without_the_end_of_its_time() -> None:
    for asked_ns, found in ((14, "hot"), (15, "cold")):
        pool = _pool(keep_hot_ns=10)
        pool.claim(0)
        pool.release(_ready(pool.claim(0)), 5)
        assert _held(pool.claim(asked_ns)) == found


def test_what_has_not_started_is_not_kept() -> None:
    pool = _pool(keep_hot_ns=10, hot_concurrency=0)
    pool.release(pool.claim(0), 5)
    assert _held(pool.claim(5)) == "cold"


def test_use_prolongs_the_life_of_an_instance_kept_hot() -> None:
    pool = _pool(keep_hot_ns=10, hot_concurrency=0)
    pool.release(_ready(pool.claim(0)), 5)
    again = pool.claim(14)
    pool.release(again, 20)
    assert _held(pool.claim(29)) == "hot"


def test_beyond_the_cap_claims_queue_first_come_first_served() -> None:
    pool = _pool(instances_cap=2)
    hot, cold, first, second = (pool.claim(0) for _ in range(4))
    assert [_held(c) for c in (hot, cold, first, second)] == ["hot", "cold", "queued", "queued"]
    rung: list[str] = []
    first.bell.ring = lambda: rung.append("first")
    second.bell.ring = lambda: rung.append("second")
    pool.release(_ready(cold), 3)
    assert rung == ["first"]
    assert (_held(first), _held(second)) == ("hot", "queued")
    pool.release(hot, 4)
    assert rung == ["first", "second"]
    pool.release(first, 5)  # it had the instance that was cold, which now dies
    pool.release(second, 6)
    assert [_held(pool.claim(7)) for _ in range(3)] == ["hot", "cold", "queued"]


def test_a_cap_below_the_hot_concurrency_wins() -> None:
    pool = _pool(hot_concurrency=5, instances_cap=1)
    assert [_held(pool.claim(0)) for _ in range(2)] == ["hot", "queued"]


def test_who_gives_up_leaves_the_queue() -> None:
    pool = _pool(instances_cap=1)
    hot, first, second = pool.claim(0), pool.claim(0), pool.claim(0)
    pool.release(first, 1)
    pool.release(hot, 2)
    assert (_held(first), _held(second)) == ("queued", "hot")


def test_an_instance_given_up_while_it_starts_is_started_anew_by_the_next() -> None:
    pool = _pool(hot_concurrency=0, instances_cap=1)
    starting, following = pool.claim(0), pool.claim(0)
    pool.release(starting, 1)
    assert _held(following) == "cold"
    assert not following.is_started


@given(
    st.lists(st.integers(0, 9), max_size=60),
    st.integers(0, 3),
    st.one_of(st.none(), st.integers(1, 4)),
    st.integers(0, 5),
)
def test_whatever_happens_no_instance_is_lost_and_nobody_queues_beside_an_idle_one(
    steps: list[int], hot: int, cap: int | None, keep_hot_ns: int
) -> None:
    """0 … 3 claims, anything else gives the n-th claim back; time moves one ns a step."""
    pool = _pool(hot_concurrency=hot, instances_cap=cap, keep_hot_ns=keep_hot_ns)
    claims: list[Claim] = []
    for now_ns, step in enumerate(steps):
        if step <= 3 or not claims:
            claims.append(pool.claim(now_ns))
        else:
            pool.release(_ready(claims.pop(step % len(claims))), now_ns)
        held = [c for c in claims if c.is_held]
        queued = [c for c in claims if not c.is_held]
        assert sum(c.is_lasting for c in held) <= hot
        assert cap is None or len(held) <= cap
        assert not queued or len(held) == cap
        # First come, first served: whoever holds came before whoever waits.
        assert claims[len(held) :] == queued
    for claim in list(claims):
        claims.remove(claim)
        pool.release(_ready(claim), len(steps))
    lasting = hot if cap is None else min(hot, cap)
    later_ns = len(steps) + keep_hot_ns
    again = [pool.claim(later_ns) for _ in range(lasting + 1)]
    assert [_held(c) for c in again[:lasting]] == ["hot"] * lasting
    assert _held(again[-1]) in ({"queued"} if cap == lasting else {"cold"})
