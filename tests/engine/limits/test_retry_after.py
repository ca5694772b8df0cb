"""What a refused client is told to wait: `Retry-After` beside the decision's own wait.

D-429-HEADERS, D-COUNT: the decision says when the rules that refused would no longer refuse;
`Retry-After` says when the client would be admitted, by what the counters hold after the refusal.
The two differ only where refused requests count, and a refused one fills a counter that let it by.
"""

from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from engine.files import Rate
from engine.limits import Limiter, LimitTable, Rule, Subject
from engine.messages import Decision
from engine.profile import Algorithm, LimitsProfile, Profile

ALGORITHMS = get_args(Algorithm)


def profile(**fields: Any) -> LimitsProfile:
    return Profile().replace(limits=fields).limits


def rule(rule_id: str, count: int, window_ns: int, **fields: Any) -> Rule:
    if fields.get("block_ns") is not None:
        fields["action"] = "block"
    return Rule(id=rule_id, rate=Rate(count, window_ns), **{"counter": "key", **fields})


def play(
    rules: list[Rule], played: LimitsProfile, asked: list[tuple[int, str]]
) -> tuple[Decision, int]:
    """Ask at (instant, key) pairs of one IP; return the last decision and what it was told."""
    limiter = Limiter({"Default": LimitTable(tuple(rules))}, played)
    decision, wait_ns = Decision("admitted"), 0
    for now_ns, key in asked:
        subject = Subject("POST", "/tokenize", "::1", key_id=key)
        decision = limiter.decide(now_ns, subject)
        headroom = limiter.status(now_ns, subject)
        assert headroom is not None
        wait_ns = headroom.wait_ns
    return decision, wait_ns


def test_a_refused_request_that_counts_may_fill_another_counter() -> None:
    """D-COUNT all: the IP's third request of 100 ns is refused by its key's rule, and fills it."""
    rules = [rule("OWN-KEY", 1, 10), rule("OWN-IP", 3, 100, counter="ip")]
    asked = [(0, "a"), (4, "b"), (5, "a")]
    decision, wait_ns = play(rules, profile(count_refused=True), asked)
    assert (decision.refusing, decision.wait_ns, wait_ns) == (("OWN-KEY",), 10, 95)
    for later_ns, admitted in ((10, False), (94, False), (95, True)):
        again, _ = play(rules, profile(count_refused=True), [*asked, (5 + later_ns, "a")])
        assert again.admitted is admitted
    decision, wait_ns = play(rules, profile(), asked)
    assert (decision.refusing, decision.wait_ns, wait_ns) == (("OWN-KEY",), 5, 5)


COUNTS = st.integers(1, 4)
WINDOWS = st.integers(5, 60)
BLOCKS = st.none() | st.integers(1, 80)
PROFILES = st.builds(
    profile,
    algorithm=st.sampled_from(ALGORITHMS),
    count_refused=st.booleans(),
    throttle=st.sampled_from(("refuse", "refuse", "delay")),
    delay_bound_ns=st.sampled_from((3, 20)),
    block_extends=st.booleans(),
    block_reset=st.sampled_from(("keep", "clear")),
)
RULES = st.tuples(
    st.builds(rule, st.just("OWN-KEY"), COUNTS, WINDOWS, block_ns=BLOCKS),
    st.builds(rule, st.just("OWN-IP"), COUNTS, WINDOWS, block_ns=BLOCKS, counter=st.just("ip")),
).map(list)
ASKED = st.lists(st.tuples(st.integers(0, 40), st.sampled_from("ab")), min_size=2, max_size=20)


@given(rules=RULES, played=PROFILES, steps=ASKED)
def test_retry_after_is_the_first_instant_at_which_the_client_is_admitted(
    rules: list[Rule], played: LimitsProfile, steps: list[tuple[int, str]]
) -> None:
    """D-429-HEADERS: not a nanosecond too early, not one too late, if nobody else asks."""
    asked = []
    now_ns = 0
    for step_ns, key in steps:
        now_ns += step_ns
        asked.append((now_ns, key))
    decision, wait_ns = play(rules, played, asked)
    if decision.admitted:
        return
    assert decision.wait_ns <= wait_ns
    if not played.count_refused:
        assert decision.wait_ns == wait_ns
    key = asked[-1][1]
    at_once, _ = play(rules, played, [*asked, (now_ns + wait_ns, key)])
    assert at_once.admitted
    if wait_ns:
        too_early, _ = play(rules, played, [*asked, (now_ns + wait_ns - 1, key)])
        assert not too_early.admitted
