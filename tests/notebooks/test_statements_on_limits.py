"""What chapter 00 and chapters 08 to 15 state about limits holds for drawn rates and times.

Each test is named after its chapter; more of them are in `test_general_statements`.
"""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import simulator
from engine import (
    CallAnswer,
    Engine,
    Limiter,
    LimitTable,
    ManualClock,
    ModelWorld,
    Profile,
    Request,
    Subject,
    VirtualLoop,
    split_batch,
)
from simulator import caller, decide, interval_of, load, with_value
from tests.notebooks._drawn import FEW, PUBLIC, SECOND_NS, VERY_FEW, WHOLE, alone, rates, times_s

RULES = [rule.id for rule in WHOLE]
CALLERS = {
    "LIM-TEST-TENANT": caller(tenant="test"),
    "LIM-SEARCH": caller("POST", "/tokens/search"),
    "LIM-READ": caller("POST", "/detokenize"),
    "LIM-CREATE": caller("POST", "/tokenize"),
    "LIM-PATCH": caller("PATCH", "/tokens/a"),
    "LIM-DELETE": caller("DELETE", "/tokens/a"),
    "LIM-ACCOUNT-UPDATER": caller("GET", "/account-updater/jobs"),
    "LIM-PRIVATE": caller(),
    "LIM-PUBLIC": caller(kind="public"),
    "LIM-MANAGEMENT": caller(kind="management"),
    "LIM-PROXY-KEY": caller(kind=None, key=None, proxy_key="proxy-1"),
    "LIM-PROXY-HOST": caller(kind=None, key=None, host="pay.shop.example"),
    "LIM-IP": caller(kind=None, key=None),
    "LIM-LEGACY": caller(legacy=True),
}


@FEW
@given(rate=rates, block_s=st.none() | st.integers(1, 4), gaps_ms=st.lists(st.integers(0, 900)))
def test_00_every_429_names_its_clause_and_the_time_to_wait(
    rate: tuple[int, int], block_s: int | None, gaps_ms: list[int]
) -> None:
    requests, window_s = rate
    clock = ManualClock()
    engine = Engine(seed=7, clock=clock, limits=alone("LIM-PRIVATE", rate, block_s))
    key = engine.key_for(engine.create_tenant("Acme"), "token:create")
    for gap_ms in (*([0] * requests), *gaps_ms):
        clock.advance_ns(f"{gap_ms}ms")
        answer = engine.ask("POST", "/tokenize", ["x"], key=key)
        if answer.status == 429:
            wait_ns = answer.decision.wait_ns
            assert answer.body["clause"] == "LIM-PRIVATE"
            assert answer.headers["Retry-After"] == str(max(1, math.ceil(wait_ns / SECOND_NS)))
            assert answer.headers["RateLimit-Policy"].endswith(f";q={requests};w={window_s}")


SAME_KEY_OTHER_IP: dict[str, Any] = {"ip": "203.0.113.8"}
OTHER_KEY_SAME_IP: dict[str, Any] = {"key": "key-2"}


@pytest.mark.parametrize(
    ("rule_id", "passes", "stays"),
    [
        ("LIM-PUBLIC", [SAME_KEY_OTHER_IP, OTHER_KEY_SAME_IP], []),
        ("LIM-TEST-TENANT", [SAME_KEY_OTHER_IP, OTHER_KEY_SAME_IP], []),
        ("LIM-LEGACY", [SAME_KEY_OTHER_IP, OTHER_KEY_SAME_IP], []),
        ("LIM-MANAGEMENT", [OTHER_KEY_SAME_IP], [SAME_KEY_OTHER_IP]),
        ("LIM-IP", [SAME_KEY_OTHER_IP], [OTHER_KEY_SAME_IP]),
        ("LIM-PRIVATE", [], [SAME_KEY_OTHER_IP, OTHER_KEY_SAME_IP]),
    ],
)
@FEW
@given(rate=rates)
def test_00_what_else_is_refused_shows_which_counter_is_full(
    rule_id: str,
    passes: list[dict[str, Any]],
    stays: list[dict[str, Any]],
    rate: tuple[int, int],
) -> None:
    """As the table of symptoms says: by key and address, by the key, by the address."""
    kinds: dict[str, Any] = {
        "LIM-PUBLIC": {"kind": "public"},
        "LIM-TEST-TENANT": {"tenant": "test"},
        "LIM-LEGACY": {"legacy": True},
        "LIM-MANAGEMENT": {"kind": "management"},
    }
    kind = kinds.get(rule_id, {})
    limiter = Limiter({"Default": alone(rule_id, rate)}, Profile().limits)
    for _ in range(rate[0]):
        assert limiter.decide(0, caller("POST", "/tokens", **kind)).admitted
    assert not limiter.decide(0, caller("GET", "/applications", **kind)).admitted, "any operation"
    for other in passes:
        assert limiter.decide(0, caller("POST", "/tokens", **kind, **other)).admitted
    limiter = Limiter({"Default": alone(rule_id, rate)}, Profile().limits)
    for _ in range(rate[0]):
        limiter.decide(0, caller("POST", "/tokens", **kind))
    for other in stays:
        assert not limiter.decide(0, caller("POST", "/tokens", **kind, **other)).admitted


@FEW
@given(rule_id=st.sampled_from(RULES), rate=rates, block_s=st.none() | st.integers(1, 4))
def test_08_under_steady_overload_the_first_request_beyond_the_rate_is_refused(
    rule_id: str, rate: tuple[int, int], block_s: int | None
) -> None:
    requests, window_s = rate
    step = Fraction(window_s, requests) * Fraction(2, 3)
    times = [step * number for number in range(int(window_s * Fraction(5, 2) / step))]
    decisions = decide(times, CALLERS[rule_id], table=alone(rule_id, rate, block_s))
    outcomes = [decision.outcome for decision in decisions]
    refused = [place for place, outcome in enumerate(outcomes) if outcome != "admitted"]
    assert refused[0] == requests
    word = "refused" if block_s is None else "blocked"
    assert set(outcomes) <= {"admitted", word}
    until = times[requests] + (block_s or 0)
    assert all(outcomes[n] == word for n, now in enumerate(times) if times[requests] <= now < until)
    if block_s is None:
        after = next(place for place, now in enumerate(times) if now >= window_s)
        assert outcomes[after] == "admitted", "as soon as the oldest leaves the window"


@given(times=times_s, rate=rates)
def test_10_spacing_with_a_burst_of_one_keeps_its_distance(
    times: list[Fraction], rate: tuple[int, int]
) -> None:
    requests, window_s = rate
    table = alone("LIM-PUBLIC", rate)
    decisions = decide(times, PUBLIC, table=table, algorithm="gcra", burst_requests=1)
    passed = [now for now, it in zip(times, decisions, strict=True) if it.admitted]
    least = Fraction(window_s * SECOND_NS // requests, SECOND_NS)
    assert passed
    assert all(later - earlier >= least for earlier, later in pairwise(passed))


@FEW
@given(rate=rates)
def test_10_the_worst_cases_are_reached(rate: tuple[int, int]) -> None:
    requests, window_s = rate
    table, tick = alone("LIM-PUBLIC", rate), Fraction(1, 1000)

    def admitted(times: list[Fraction], algorithm: str) -> int:
        decisions = decide(times, PUBLIC, table=table, algorithm=algorithm)
        return sum(decision.admitted for decision in decisions)

    edge = [window_s - tick] * requests + [Fraction(window_s)] * requests
    assert admitted(edge, "fixed-window") == 2 * requests
    assert admitted(edge, "sliding-log") == requests
    refill = Fraction(window_s, requests)
    drip = [Fraction(0)] * requests + [refill * (n + 1) + tick for n in range(requests - 1)]
    assert drip[-1] < window_s or requests == 1
    for name in ("token-bucket", "gcra"):
        assert admitted(drip, name) == 2 * requests - 1
    filled = [window_s - tick] * requests
    filled += [window_s + Fraction(n * window_s, 200) for n in range(1, 200)]
    span = Fraction(window_s)
    decisions = decide(filled, PUBLIC, table=table, algorithm="sliding-counter")
    passed = [now for now, it in zip(filled, decisions, strict=True) if it.admitted]
    most = max(sum(end - span < then <= end for then in passed) for end in passed)
    assert most > requests or requests == 1, "it takes the last window as spread evenly"


@given(times=times_s, rate=rates, block_s=st.integers(1, 4))
def test_11_a_counter_that_a_block_clears_starts_from_nothing(
    times: list[Fraction], rate: tuple[int, int], block_s: int
) -> None:
    requests, window_s = rate
    table = alone("LIM-PUBLIC", rate, block_s)
    counted: list[Fraction] = []
    until = Fraction(-1)
    for now, decision in zip(
        times, decide(times, PUBLIC, table=table, block_reset="clear"), strict=True
    ):
        is_full = sum(now - window_s < then for then in counted) >= requests
        assert decision.admitted == (now >= until and not is_full)
        if decision.admitted:
            counted.append(now)
        elif now >= until:
            until, counted = now + block_s, []


@given(times=times_s, rate=rates, block_s=st.integers(1, 4))
def test_11_where_refusals_extend_a_block_it_ends_after_a_pause_alone(
    times: list[Fraction], rate: tuple[int, int], block_s: int
) -> None:
    table = alone("LIM-PUBLIC", rate, block_s)
    last = None
    decisions = decide(times, PUBLIC, table=table, block_extends=True)
    for now, decision in zip(times, decisions, strict=True):
        if last is not None and now < last + block_s:
            assert not decision.admitted
        if not decision.admitted:
            last = now


@given(times=times_s, rate=rates, bound_s=st.integers(0, 3))
def test_11_a_delayed_request_is_released_in_order_within_the_bound(
    times: list[Fraction], rate: tuple[int, int], bound_s: int
) -> None:
    requests, window_s = rate
    table = alone("LIM-PUBLIC", rate)
    bound_ns = bound_s * SECOND_NS
    decisions = decide(times, PUBLIC, table=table, throttle="delay", delay_bound_ns=bound_ns)
    released: list[Fraction] = []
    for now, decision in zip(times, decisions, strict=True):
        room = released[-requests] + window_s if len(released) >= requests else now
        release = max(now, room, *released[-1:])
        if release - now <= bound_s:
            assert decision.outcome == ("admitted" if release == now else "delayed")
            assert Fraction(decision.wait_ns, SECOND_NS) == release - now
            released.append(release)
        else:
            assert decision.outcome == "refused", "and not counted"


STORM = """
duration = "1m"
tenants = [{ name = "shop" }]
applications = [{ name = "page", tenant = "shop", kind = "public" }]
addresses = [{ name = "campus" }]
[[clients]]
name = "people"
count = 6
application = "page"
addresses = "campus"
think = { kind = "exponential", mean = "1s" }
"""


@VERY_FEW
@given(
    base_ms=st.integers(10, 200),
    cap_ms=st.integers(200, 1_000),
    attempts=st.integers(2, 6),
    seed=st.integers(0, 1_000),
)
def test_12_where_own_delays_are_shorter_the_header_alone_decides(
    base_ms: int, cap_ms: int, attempts: int, seed: int
) -> None:
    outcomes = set()
    for kind in ("fixed", "exponential", "full-jitter", "decorrelated-jitter"):
        delays = {"base": f"{base_ms}ms", "cap": f"{cap_ms}ms"}
        delays = {"delay": f"{base_ms}ms"} if kind == "fixed" else delays
        retry = {"kind": kind, **delays, "attempts": attempts, "honour_retry_after": True}
        scenario = with_value(with_value(load(STORM), "clients.people.retry", retry), "seed", seed)
        result = simulator.run(scenario, fidelity="limits", progress=False)
        assert result.summary["totals"]["refused"] > 0
        outcomes.add(result.summary["sha256"])
    assert len(outcomes) == 1, "a header says a second at least"


KEYS, ADDRESSES = ("key-1", "key-2"), ("203.0.113.7", "203.0.113.8")
pairs = st.tuples(st.sampled_from(KEYS), st.sampled_from(ADDRESSES))


@given(rate=rates, busy=pairs, other=pairs, counter=st.sampled_from(["pair", "each"]))
def test_13_who_shares_key_and_address_shares_the_block(
    rate: tuple[int, int], busy: tuple[str, str], other: tuple[str, str], counter: str
) -> None:
    profile = Profile().replace(limits={"and_counter": counter})
    limiter = Limiter({"Default": alone("LIM-PUBLIC", rate, 2)}, profile.limits)

    def who(pair: tuple[str, str]) -> Subject:
        return caller("POST", "/tokens", kind="public", key=pair[0], ip=pair[1])

    for _ in range(rate[0] + 1):
        last = limiter.decide(0, who(busy))
    assert last.outcome == "blocked"
    shared = [a == b for a, b in zip(busy, other, strict=True)]
    shares = all(shared) if counter == "pair" else any(shared)
    assert limiter.decide(1, who(other)).admitted != shares


@given(rate=rates, slack=st.integers(0, 5))
def test_13_even_intervals_within_the_rate_are_never_refused(
    rate: tuple[int, int], slack: int
) -> None:
    requests, window_s = rate
    step = Fraction(window_s, requests) + Fraction(slack, 7)
    step = Fraction(math.ceil(step * SECOND_NS), SECOND_NS)
    times = [step * number for number in range(5 * requests)]
    assert all(it.admitted for it in decide(times, PUBLIC, table=alone("LIM-PUBLIC", rate, 1)))


def test_13_twenty_runs_without_a_refusal_leave_one_in_six_open() -> None:
    interval = interval_of([0.0] * 20, "refused_share")
    assert round(interval.high, 3) == 0.168
    assert 1 / 6 < interval.high < 1 / 5


class Service:
    """An engine without limits whose destinations and reactors take as long as is given."""

    def __init__(self, takes_ns: int, **outside: int) -> None:
        self.clock = ManualClock()
        world = ModelWorld(
            clock=self.clock,
            seed=7,
            destination=lambda call: (takes_ns, CallAnswer(200, {}, call.body)),
            service_ns=lambda _code, _args: takes_ns,
        )
        profile = Profile().replace(outside=outside)
        self.engine = Engine(world=world, limits=LimitTable(rules=()), profile=profile)
        rights = ("reactor:create", "reactor:invoke", "proxy:create")
        self.key = self.engine.key_for(self.engine.create_tenant("Acme"), *rights)

    def create(self, path: str, **body: Any) -> Any:
        return self.engine.ask("POST", path, body, key=self.key).body

    def invoke(self, at_ns: list[int]) -> list[tuple[int, int]]:
        """Invoke one reactor at these instants: each status, and when it ends."""
        code = "module.exports = (request) => request"
        path = f"/reactors/{self.create('/reactors', name='r', code=code, configuration={})['id']}"
        loop = VirtualLoop(self.clock)
        body: dict[str, Any] = {"args": {}}
        request = Request("POST", f"{path}/react", key=self.key, ip="203.0.113.7", body=body)
        tasks = [loop.at(at, self.engine.submit(request)) for at in at_ns]
        loop.run()
        return [(task.result.status, task.ended_ns) for task in tasks]


@FEW
@given(
    gaps_ms=st.lists(st.integers(0, 900), min_size=1, max_size=8),
    takes_ms=st.integers(1, 1_500),
    start_ms=st.integers(0, 1_500),
    hot=st.integers(0, 3),
    timeout_ms=st.integers(500, 4_000),
)
def test_14_who_finds_no_idle_hot_instance_waits_for_a_start_within_the_time_limit(
    gaps_ms: list[int], takes_ms: int, start_ms: int, hot: int, timeout_ms: int
) -> None:
    ms = 1_000_000
    at_ms = [sum(gaps_ms[: place + 1]) for place in range(len(gaps_ms))]
    free_ms = [0] * hot
    expected = []
    for now in at_ms:
        idle = next((place for place, until in enumerate(free_ms) if until <= now), None)
        whole = takes_ms + (start_ms if idle is None else 0)
        ends = now + min(whole, timeout_ms)
        if idle is not None:
            free_ms[idle] = ends
        expected.append((200 if whole <= timeout_ms else 504, ends * ms))
    service = Service(
        takes_ms * ms,
        cold_start_ns=start_ms * ms,
        hot_concurrency=hot,
        reactor_timeout_ns=timeout_ms * ms,
    )
    assert service.invoke([now * ms for now in at_ms]) == expected


@FEW
@given(takes_ns=st.integers(1, 40), limit_ns=st.integers(1, 40))
def test_14_a_proxy_answers_408_exactly_beyond_its_limit(takes_ns: int, limit_ns: int) -> None:
    service = Service(takes_ns, destination_timeout_ns=limit_ns)
    made = service.create("/proxies", name="pay", destination_url="https://shop.example/charge")
    answer = service.engine.ask("GET", "/proxy", proxy_key=made["key"])
    assert answer.status == (200 if takes_ns <= limit_ns else 408)
    assert service.clock.now_ns == min(takes_ns, limit_ns)


@FEW
@given(limit=st.integers(5, 60), size=st.integers(1, 70))
def test_14_code_has_a_size_limit_and_its_edge_is_inside(limit: int, size: int) -> None:
    service = Service(0, reactor_code_limit=limit)
    body = {"name": "r", "code": "x" * size, "configuration": {}}
    status = service.engine.ask("POST", "/reactors", body, key=service.key).status
    assert status == (201 if size <= limit else 400)


@given(
    pollers=st.sampled_from([1, 2, 4]),
    turns=st.sampled_from([1, 2, 4, 5]),
    window_s=st.integers(1, 4),
    upload=st.integers(0, 1_000).map(lambda number: Fraction(number, 1_000)),
)
def test_15_pollers_that_fill_the_limit_exactly_lock_everybody_out(
    pollers: int, turns: int, window_s: int, upload: Fraction
) -> None:
    """Each polls `turns` times in a window, at a fixed interval; together they use the limit."""
    interval = Fraction(window_s, turns)
    starts = [interval * number / pollers for number in range(pollers)]
    polls = {start + interval * turn for start in starts for turn in range(4 * turns)}
    instant = window_s * (1 + 2 * upload)
    assume(instant not in polls)
    times = sorted([*polls, instant])
    decisions = decide(times, PUBLIC, table=alone("LIM-PUBLIC", (pollers * turns, window_s)))
    refused = [now for now, it in zip(times, decisions, strict=True) if not it.admitted]
    assert refused == [instant], "no poll is refused, and the upload is"


@FEW
@given(
    lines=st.lists(st.text("ab", min_size=1, max_size=9), max_size=30),
    spare=st.integers(0, 30),
)
def test_15_a_split_file_holds_every_line_below_the_limit(lines: list[str], spare: int) -> None:
    header, rows = b"token,year\n", [f"{line}\n".encode() for line in lines]
    limit = len(header) + max(map(len, rows), default=0) + spare
    files = list(split_batch(header + b"".join(rows), limit_bytes=limit))
    assert all(len(file) <= limit and file.startswith(header) for file in files)
    assert b"".join(file.removeprefix(header) for file in files) == b"".join(rows)
