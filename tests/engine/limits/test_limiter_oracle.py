"""The limiter decides as the brute-force oracle does, whatever the table, profile and traffic.

Times are a few nanoseconds, so that edges, ties and roll-overs are the rule and not the exception.
LIM-LOWEST, LIM-THROTTLE, LIM-BLOCK, D-COUNTED, D-COUNT, D-ALGORITHM, D-EDGES, D-COMPOSE,
D-THROTTLE, D-BLOCK-START, D-BLOCK-OWN, D-BLOCK-RESET, D-OR-COUNTER, D-AND-COUNTER, D-OR-RESOURCE,
D-ALIGN, D-GET-TOKENS, D-UNKEYED, D-LEGACY-CLASS, D-PROXY-RULES, D-DECIDER.
"""

from typing import Any, get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.files import Rate
from engine.limits import Limiter, LimitTable, Match, Rule, Subject
from engine.limits.table import CounterName
from engine.profile import Algorithm, LimitsProfile, Profile
from tests.oracles.limits import Oracle

ALGORITHMS = get_args(Algorithm)
RESOURCES = ("POST /tokens", "GET /tokens", "PATCH /tokens/{id}", "ANY /tokens/*", "POST /tokenize")
ORIGINS = st.sampled_from((0, 0, 3, 1_767_225_600_123_456_789))
REQUESTS = (
    ("POST", "/tokens"),
    ("HEAD", "/tokens?size=1"),
    ("GET", "/tokens/7"),
    ("PATCH", "/tokens/7"),
    ("OPTIONS", "/tokens/7"),
    ("POST", "/tokenize"),
)


def mostly(usual: Any, *others: Any) -> st.SearchStrategy[Any]:
    return st.sampled_from((usual, usual, *others))


@st.composite
def profiles(draw: st.DrawFn) -> LimitsProfile:
    fields: dict[str, Any] = {
        "algorithm": draw(st.sampled_from(ALGORITHMS)),
        "fixed_anchor": draw(mostly("aligned", "first")),
        "burst_requests": draw(mostly(None, 1, 2, 5)),
        "edges": draw(mostly("half-open", "closed")),
        "compose": draw(mostly("all", "lowest")),
        "count_refused": draw(mostly(False, True)),
        "counted_statuses": draw(mostly("every", "success")),
        "throttle": draw(mostly("refuse", "delay")),
        "delay_bound_ns": draw(st.sampled_from((0, 3, 10, 25))),
        "block_extends": draw(mostly(False, True)),
        "block_reset": draw(mostly("keep", "clear")),
        "or_counter": draw(mostly("both", "key-else-ip")),
        "and_counter": draw(mostly("pair", "each", "key", "ip")),
        "or_resource": draw(mostly("shared", "separate")),
        "get_tokens": draw(mostly("list", "prefix")),
        "legacy_class": draw(mostly("added", "exclusive")),
        "proxy_rules": draw(mostly("all", "unkeyed")),
    }
    return Profile().replace(limits=fields).limits


@st.composite
def rules(draw: st.DrawFn, rule_id: str) -> Rule:
    counter: Any = draw(
        st.sampled_from(("ip+key", "key|ip", "key", "ip", "proxy-key+ip", "host+ip"))
    )
    match = Match(
        tenant=draw(mostly(None, "test")),
        application=draw(mostly(None, None, "private", "public")),
        resource=draw(st.lists(st.sampled_from(RESOURCES), max_size=2, unique=True).map(tuple)),
        legacy=draw(mostly(None, None, True, False)),
        proxy=draw(mostly(None, None, "key", "host")),
    )
    block = draw(st.booleans())
    algorithm = draw(mostly(None, None, *ALGORITHMS))
    return Rule(
        id=rule_id,
        match=match,
        counter=counter,
        rate=Rate(draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 5, 7, 10, 12)))),
        action="block" if block else "throttle",
        block_ns=draw(st.integers(1, 12)) if block else None,
        shadow=draw(mostly(False, False, True)),
        algorithm=algorithm,
        burst_requests=draw(mostly(None, 1, 3)) if algorithm in {None, "gcra"} else None,
    )


@st.composite
def busy_rules(draw: st.DrawFn, rule_id: str, counter: CounterName) -> Rule:
    """A rule that every request of the busy scenarios meets."""
    block_ns = draw(mostly(None, 3, 6, 10))
    return Rule(
        id=rule_id,
        counter=counter,
        rate=Rate(draw(st.integers(1, 3)), draw(st.sampled_from((5, 7, 10)))),
        action="throttle" if block_ns is None else "block",
        block_ns=block_ns,
        shadow=draw(mostly(False, False, True)),
        algorithm=draw(mostly(None, None, *ALGORITHMS)),
    )


@st.composite
def busy_scenarios(draw: st.DrawFn) -> tuple[Any, ...]:
    """One or two clients that keep asking, rules that all count them, gaps below the windows."""
    counters: Any = draw(st.sampled_from((("ip+key",), ("ip+key", "ip"), ("ip", "key", "ip+key"))))
    drawn = [draw(busy_rules(f"OWN-{n}", counter)) for n, counter in enumerate(counters)]
    named = {"Default": LimitTable(tuple(drawn))}
    clients = [Subject("POST", "/tokenize", "1", key_id=key) for key in ("a", "b")]
    steps = st.tuples(
        mostly(0, 1, 1, 2, 3, 4, 8, 25), st.sampled_from(clients), st.integers(0, 2), st.booleans()
    )
    return draw(profiles()), named, draw(st.lists(steps, min_size=25, max_size=40)), draw(ORIGINS)


@st.composite
def tables(draw: st.DrawFn) -> dict[str, LimitTable]:
    default = LimitTable(tuple(draw(rules(f"OWN-{n}")) for n in range(draw(st.integers(1, 4)))))
    if draw(st.integers(0, 3)):
        return {"Default": default}
    shared = tuple(rule for rule in default if draw(st.booleans()))
    other = draw(rules("GOLD-1"))
    own = () if other.is_global else (other,)
    return {"Default": default, "Gold": LimitTable(own + shared)}


@st.composite
def subjects(draw: st.DrawFn, table_names: tuple[str, ...]) -> Subject:
    method, path = draw(st.sampled_from(REQUESTS))
    key_id = draw(mostly("a", "b", None))
    keyed = key_id is not None
    return Subject(
        method,
        path,
        draw(mostly("1", "2")),
        key_id=key_id,
        tenant_kind=draw(mostly("test", "production")) if keyed else None,
        application_kind=draw(mostly("private", "public")) if keyed else None,
        legacy=keyed and draw(st.booleans()),
        table=draw(st.sampled_from(table_names)),
        proxy_key_id=draw(mostly(None, "p")),
        host_id=draw(mostly(None, "h")),
    )


@st.composite
def scenarios(draw: st.DrawFn) -> tuple[Any, ...]:
    named = draw(tables())
    pool = draw(st.lists(subjects(tuple(named)), min_size=1, max_size=3))
    steps = st.tuples(
        mostly(0, 0, 1, 1, 2, 3, 5, 11, 40), st.sampled_from(pool), st.integers(0, 3), st.booleans()
    )
    return draw(profiles()), named, draw(st.lists(steps, min_size=20, max_size=45)), draw(ORIGINS)


def compare(
    profile: LimitsProfile,
    named: dict[str, LimitTable],
    steps: list[tuple[int, Subject, int, bool]],
    origin_ns: int,
    *,
    sweep_often: bool = False,
) -> None:
    limiter = Limiter(named, profile, origin_ns=origin_ns)
    oracle = Oracle(named, profile, origin_ns=origin_ns)
    if sweep_often:
        _sweep_at_every_request(limiter)
    flying: list[tuple[int, Any, Any, int]] = []
    now = 0
    for place, (gap, subject, answered_after, good) in enumerate(steps):
        now += gap
        for due in [each for each in flying if each[0] <= place]:
            flying.remove(due)
            limiter.settle(due[1], due[3])
            oracle.settle(due[2], due[3])
        wanted = oracle.decide(now, subject)
        if place % 2:
            got = limiter.decide(now, subject)
        else:
            got, status = limiter.decide_with_status(now, subject)
            if profile.throttle == "refuse":
                left = status and (status.rule, status.remaining_requests, status.wait_ns)
                assert left == oracle.status(now, subject), f"at {now}, request {place}"
        said = (got.outcome, got.rule, got.refusing, got.counted, got.shadow, got.wait_ns)
        assert said == wanted.parts, f"at {now}, request {place}"
        if got.admitted:
            flying.append((place + answered_after, got, wanted, 200 if good else 500))


def _sweep_at_every_request(limiter: Limiter) -> None:
    """Forget idle counters as often as can be: it must never change a decision."""
    decide = limiter.decide

    def sweep_and_decide(now_ns: int, subject: Subject) -> Any:
        for family in limiter._rules.families():
            family.sweep_at_ns = 0
        limiter._sweep(now_ns)
        return decide(now_ns, subject)

    limiter.decide = sweep_and_decide  # type: ignore[method-assign] # reason: the test's own pace


@pytest.mark.slow
@given(busy_scenarios(), st.booleans())
@settings(max_examples=150)
def test_every_decision_about_busy_clients_is_the_oracles(
    scenario: tuple[Any, ...], often: bool
) -> None:
    compare(*scenario, sweep_often=often)


@given(scenarios())
@settings(max_examples=120)
def test_every_decision_is_the_oracles(scenario: tuple[Any, ...]) -> None:
    compare(*scenario)


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=100)
def test_forgetting_idle_counters_changes_no_decision(scenario: tuple[Any, ...]) -> None:
    compare(*scenario, sweep_often=True)


@pytest.mark.slow
@given(scenarios() | busy_scenarios(), st.booleans())
@settings(max_examples=500)
def test_every_decision_is_the_oracles_at_length(scenario: tuple[Any, ...], often: bool) -> None:
    compare(*scenario, sweep_often=often)
