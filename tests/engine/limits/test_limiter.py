"""What the limiter promises beside the oracle's traces.

Tables, ties, shadows, settling, room left, blocks and memory (QUO-RATE, LIM-IP, LIM-PRIVATE,
D-429-HEADERS, D-COUNTED, D-DECIDER).
"""

import itertools
import random
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.errors import InputError
from engine.files import Rate
from engine.limits import Limiter, LimitTable, Match, RateLimitStatus, Rule, Subject
from engine.limits.counters import Counter
from engine.messages import Decision
from engine.profile import Algorithm, LimitsProfile, Profile

SECOND_NS = 1_000_000_000


def profile(**fields: Any) -> LimitsProfile:
    return Profile().replace(limits=fields).limits


def rule(rule_id: str, count: int, window_ns: int, **fields: Any) -> Rule:
    if fields.get("block_ns") is not None:
        fields["action"] = "block"
    return Rule(id=rule_id, rate=Rate(count, window_ns), **{"counter": "ip+key", **fields})


def limiter(*rules: Rule, played: LimitsProfile | None = None, **others: LimitTable) -> Limiter:
    return Limiter({"Default": LimitTable(rules), **others}, played or profile())


def asks(key: str | None = "a", ip: str = "1", **fields: Any) -> Subject:
    return Subject("POST", "/tokenize", ip, key_id=key, **fields)


# --- tables and counters -------------------------------------------------------------------------


def applicable(limiter: Limiter, subject: Subject) -> tuple[str, ...]:
    """Return the names of the rules that count such a request, in table order."""
    return tuple(counter.settings.name for counter in limiter.match(subject).counters)


def test_an_unkeyed_request_counts_by_ip_alone() -> None:
    """D-UNKEYED, LIM-IP."""
    seed = Limiter({"Default": LimitTable.default()}, profile())
    assert applicable(seed, asks(None)) == ("LIM-IP",)
    assert applicable(seed, asks(None, proxy_key_id="p", host_id="h")) == (
        "LIM-PROXY-KEY", "LIM-PROXY-HOST", "LIM-IP",
    )  # fmt: skip


def test_legacy_is_added_to_the_kind_or_stands_instead_of_it() -> None:
    """D-LEGACY-CLASS, LIM-LEGACY."""
    subject = asks(tenant_kind="test", application_kind="public", legacy=True)
    seed = {"Default": LimitTable.default()}
    assert applicable(Limiter(seed, profile()), subject) == (
        "LIM-TEST-TENANT", "LIM-CREATE", "LIM-PUBLIC", "LIM-IP", "LIM-LEGACY",
    )  # fmt: skip
    assert applicable(Limiter(seed, profile(legacy_class="exclusive")), subject) == (
        "LIM-TEST-TENANT", "LIM-CREATE", "LIM-IP", "LIM-LEGACY",
    )  # fmt: skip


def test_private_has_two_counters_and_either_refuses() -> None:
    """LIM-PRIVATE, D-OR-COUNTER: each with the full rate; the one by IP spans tenants."""
    two = limiter(rule("LIM-PRIVATE", 2, 10, counter="key|ip"))
    assert two.decide(0, asks("a", "1")).counted == ("LIM-PRIVATE.key", "LIM-PRIVATE.ip")
    assert two.decide(0, asks("b", "1")).admitted
    assert two.decide(0, asks("c", "1")).rule == "LIM-PRIVATE.ip"
    assert two.decide(0, asks("a", "2")).admitted
    assert two.decide(0, asks("a", "3")).rule == "LIM-PRIVATE.key"


def test_a_tenants_table_is_named_by_its_quota_and_lim_ip_counts_everybody() -> None:
    """QUO-RATE: LIM-IP is in no tenant's table, so another table does not escape it."""
    gold = LimitTable((rule("OWN-GOLD", 9, 10),))
    both = limiter(rule("OWN-BASE", 1, 10), rule("LIM-IP", 3, 10, counter="ip"), Gold=gold)
    assert applicable(both, asks(table="Gold")) == ("OWN-GOLD", "LIM-IP")
    assert both.decide(0, asks("a")).admitted
    assert both.decide(0, asks("a")).rule == "OWN-BASE"
    assert both.decide(0, asks("b", table="Gold")).admitted
    assert both.decide(0, asks("b", table="Gold")).admitted
    assert both.decide(0, asks("b", table="Gold")).rule == "LIM-IP"
    with pytest.raises(InputError, match=r"^limits hold no table 'Golt'; did you mean 'Gold'"):
        both.decide(0, asks(table="Golt"))


def test_an_equal_row_in_two_tables_is_one_counter_an_edited_one_is_its_own() -> None:
    private = rule("LIM-PRIVATE", 2, 10, counter="key|ip")
    same, edited = (
        LimitTable((private,)),
        LimitTable((rule("LIM-PRIVATE", 3, 10, counter="ip+key"),)),
    )
    shared = limiter(private, Same=same, Edited=edited)
    assert shared.decide(0, asks("a")).admitted
    assert shared.decide(0, asks("b", table="Same")).admitted
    assert shared.decide(0, asks("c", table="Same")).rule == "LIM-PRIVATE.ip"
    assert shared.decide(0, asks("c", table="Edited")).admitted


def test_tables_that_do_not_fit_are_refused() -> None:
    with pytest.raises(InputError, match=r"^limits hold no table 'Default'"):
        Limiter({"Gold": LimitTable.default()}, profile())
    everybody = rule("LIM-IP", 3, 10, counter="ip")
    for other in (
        rule("LIM-IP", 9, 10, counter="ip"),
        rule("LIM-IP", 3, 10, counter="key"),  # two rules of one name would be one in reports
        rule("OWN-IP", 3, 10, counter="ip"),
    ):
        said = rf"^table 'Gold': {other.id} counts every request by IP"
        with pytest.raises(InputError, match=said):
            limiter(everybody, Gold=LimitTable((other,)))
    assert limiter(everybody, Gold=LimitTable((everybody,))).decide(0, asks(table="Gold")).admitted
    month = rule("OWN-MONTH", 1, 30 * 86_400 * SECOND_NS)
    with pytest.raises(InputError, match=r"^burst_requests = 10000 must be lower for OWN-MONTH"):
        limiter(month, played=profile(algorithm="gcra", burst_requests=10_000)).decide(0, asks())


def test_time_never_decreases() -> None:
    one = limiter(rule("OWN-1", 3, 10))
    one.decide(5, asks())
    with pytest.raises(AssertionError, match="never decreases"):
        one.decide(4, asks())


# --- who is reported -----------------------------------------------------------------------------


def test_of_several_refusing_rules_the_longest_wait_then_a_block_then_the_first_is_reported() -> (
    None
):
    """D-DECIDER."""
    long, short = rule("OWN-LONG", 1, 20), rule("OWN-SHORT", 1, 10)
    block = rule("OWN-BLOCK", 1, 5, block_ns=20, counter="key")
    again = rule("OWN-AGAIN", 1, 20, counter="key")
    for rules, wanted in (
        ((short, long), "OWN-LONG"),
        ((short, long, block), "OWN-BLOCK"),
        ((long, again), "OWN-LONG"),
        ((again, long), "OWN-AGAIN"),
    ):
        each = limiter(*rules)
        assert each.decide(0, asks()).admitted
        decision = each.decide(0, asks())
        assert (decision.rule, decision.wait_ns) == (wanted, 20)
        assert decision.refusing == tuple(r.id for r in rules)
        assert decision.outcome == ("blocked" if wanted == "OWN-BLOCK" else "refused")


def test_a_block_begins_whichever_other_rule_refuses_too() -> None:
    """D-BLOCK-OWN."""
    own = limiter(rule("OWN-SLOW", 1, 100), rule("OWN-BLOCK", 1, 5, block_ns=7))
    own.decide(0, asks())
    assert own.decide(3, asks()).refusing == ("OWN-SLOW", "OWN-BLOCK")
    assert [c.blocked_until_ns for c in own.match(asks()).counters] == [0, 10]
    assert own.decide(10, asks()).refusing == ("OWN-SLOW",)


# --- shadow --------------------------------------------------------------------------------------


@pytest.mark.parametrize("action", [{}, {"block_ns": 7}])
def test_a_shadow_reports_what_the_rule_would_refuse_if_it_were_in_force(action: Any) -> None:
    real = limiter(rule("OWN-1", 3, 10, **action))
    shadow = limiter(rule("OWN-1", 3, 10, shadow=True, **action))
    for now in [0, 1, 1, 2, 3, 9, 10, 11, 11, 12, 20, 21, 22, 23, 24, 40]:
        decision = shadow.decide(now, asks())
        assert decision.outcome == "admitted"
        assert decision.shadow == real.decide(now, asks()).refusing
        assert decision.counted == (() if decision.shadow else ("OWN-1",))


def test_a_shadow_counts_nothing_that_a_real_rule_refuses() -> None:
    both = limiter(rule("OWN-REAL", 1, 10), rule("OWN-SHADOW", 2, 10, shadow=True))
    assert both.decide(0, asks()).counted == ("OWN-REAL", "OWN-SHADOW")
    for now in (1, 2, 3):
        assert both.decide(now, asks()).shadow == ()
    assert both.decide(10, asks()).admitted


# --- only successes count ------------------------------------------------------------------------


def test_a_charge_that_failed_is_given_back_as_if_it_had_never_been() -> None:
    """D-COUNTED, only 2xx: decided and charged at arrival, given back at the answer."""
    two = limiter(rule("OWN-1", 2, 10), played=profile(counted_statuses="success"))
    first, second = two.decide(0, asks()), two.decide(1, asks())
    assert two.decide(2, asks()).outcome == "refused"
    two.settle(first, 500)
    third = two.decide(3, asks())
    assert third.admitted
    two.settle(second, 200)
    two.settle(third, 201)
    assert two.decide(10, asks()).outcome == "refused"
    assert two.decide(11, asks()).admitted


def test_a_success_does_not_keep_the_charge_of_another_that_is_still_on_its_way() -> None:
    """D-COUNTED, only 2xx: whichever is answered first."""
    two = limiter(rule("OWN-1", 2, 10), played=profile(counted_statuses="success"))
    first, second = two.decide(0, asks()), two.decide(1, asks())
    two.settle(first, 200)
    two.settle(second, 500)
    assert two.decide(2, asks()).admitted
    assert two.decide(2, asks()).outcome == "refused"


def test_a_charge_that_a_clearing_block_forgot_is_not_brought_back() -> None:
    played = profile(counted_statuses="success", block_reset="clear")
    one = limiter(rule("OWN-1", 3, 100, block_ns=5), played=played)
    old = [one.decide(0, asks()) for _ in range(3)]
    assert one.decide(0, asks()).outcome == "blocked"
    assert one.decide(5, asks()).admitted
    one.settle(old[0], 400)
    outcomes = [one.decide(6, asks()).outcome for _ in range(3)]
    assert outcomes == ["admitted", "admitted", "blocked"]


def test_settling_does_nothing_where_every_answer_counts() -> None:
    one = limiter(rule("OWN-1", 1, 10))
    one.settle(one.decide(0, asks()), 500)
    assert one.decide(1, asks()).outcome == "refused"


# --- what is left --------------------------------------------------------------------------------


def test_headroom_is_of_the_rule_with_the_smallest_remaining_share() -> None:
    """D-429-HEADERS."""
    both = limiter(rule("OWN-BIG", 10, 10 * SECOND_NS), rule("OWN-SMALL", 4, 2 * SECOND_NS))
    both.decide(0, asks())
    assert both.status(0, asks()) == RateLimitStatus(
        "OWN-SMALL", 4, 3, 2 * SECOND_NS, 2 * SECOND_NS, 0
    )
    left = both.status(2 * SECOND_NS, asks())
    assert left == RateLimitStatus("OWN-BIG", 10, 9, 10 * SECOND_NS, 8 * SECOND_NS, 0)
    assert left is not None
    assert (left.reset_ns, left.retry_after_s) == (8 * SECOND_NS, 1)
    assert limiter().status(0, asks()) is None


def test_after_a_refusal_headroom_waits_for_the_latest_of_all_refusing_rules() -> None:
    both = limiter(
        rule("OWN-1", 1, SECOND_NS), rule("OWN-2", 1, 3 * SECOND_NS // 2, block_ns=5 * SECOND_NS)
    )
    both.decide(0, asks())
    decision = both.decide(1, asks())
    headroom = both.status(1, asks())
    assert headroom is not None
    assert (headroom.rule, headroom.remaining_requests) == ("OWN-2", 0)
    assert headroom.wait_ns == decision.wait_ns == 5 * SECOND_NS
    assert (headroom.reset_ns, headroom.retry_after_s) == (5 * SECOND_NS, 5)


@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_remaining_is_how_many_more_would_be_admitted_at_once(algorithm: str) -> None:
    times = [0, 3, 3, 9, 10, 14, 15, 15, 19, 20, 26, 27, 60]
    for place, now in enumerate(times):
        for later in (now, now + 1, now + 7, now + 10, now + 13, now + 20):
            one = limiter(rule("OWN-1", 4, 10), played=profile(algorithm=algorithm))
            for past in times[: place + 1]:
                one.decide(past, asks())
            headroom = one.status(later, asks())
            assert headroom is not None
            more = 0
            while one.decide(later, asks()).admitted:
                more += 1
            assert headroom.remaining_requests == more


@pytest.mark.parametrize("throttle", ["refuse", "delay"])
@pytest.mark.parametrize("algorithm", get_args(Algorithm))
def test_headroom_waits_exactly_where_the_next_request_is_refused(
    algorithm: str, throttle: str
) -> None:
    """D-429-HEADERS: a client that is only delayed, even behind a block rule, need not wait.

    On a grid many requests come at the very instant at which a block or a window ends.
    """
    chance = random.Random(5)
    for slow, grid_ns in itertools.product((1, 2, 6), (1, SECOND_NS // 4)):
        one = limiter(
            rule("OWN-1", slow, SECOND_NS),
            rule("OWN-2", 3, 2 * SECOND_NS, block_ns=SECOND_NS),
            rule("OWN-3", 4, 3 * SECOND_NS, counter="ip"),
            played=profile(algorithm=algorithm, throttle=throttle),
        )
        now, outcomes = 0, set()
        for _ in range(150):
            now += chance.randrange(SECOND_NS) // grid_ns * grid_ns
            asked = asks(chance.choice("ab"))
            headroom = one.status(now, asked)
            decision = one.decide(now, asked)
            assert headroom is not None
            assert (headroom.wait_ns > 0) == (not decision.admitted), (now, headroom, decision)
            outcomes.add(decision.outcome)
        assert len(outcomes) > 1


# --- memory --------------------------------------------------------------------------------------


def test_memory_follows_the_active_keys() -> None:
    one = limiter(rule("OWN-1", 3, SECOND_NS), rule("OWN-2", 3, SECOND_NS, counter="key"))
    for number in range(20_000):
        one.decide(number * 10_000_000, asks(f"key-{number}"))
    assert one.counter_count < 2 * (3 * 60 * 100)
    one.decide(400 * SECOND_NS, asks("last"))
    one.decide(500 * SECOND_NS, asks("last"))
    assert one.counter_count == 2
    assert len(one._counters) == 1


def test_counters_in_use_are_looked_at_less_often_than_they_are_charged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Forgetting costs constant time per charge, however many keys are active."""
    looked = 0
    is_idle = Counter.is_idle

    def counted(self: Counter, now_ns: int) -> bool:
        nonlocal looked
        looked += 1
        return is_idle(self, now_ns)

    monkeypatch.setattr(Counter, "is_idle", counted)
    one = limiter(rule("OWN-1", 9, 60 * SECOND_NS))
    charges = [
        (start + place) * SECOND_NS // 10 for start in range(0, 6_000, 300) for place in range(300)
    ]
    for place, now in enumerate(charges):
        one.decide(now, asks(f"key-{place % 300}"))
    assert 0 < looked < len(charges)
    assert one.counter_count == 300


def test_a_request_that_no_rule_applies_to_is_admitted() -> None:
    none = limiter(rule("OWN-1", 1, 10, match=Match(tenant="test")))
    assert all(none.decide(0, asks()).outcome == "admitted" for _ in range(3))
    assert none.decide(0, asks()).counted == ()


def test_one_subject_serves_two_limiters() -> None:
    subject = asks()
    first, second = limiter(rule("OWN-1", 1, 10)), limiter(rule("OWN-2", 1, 10))
    assert first.decide(0, subject).counted == ("OWN-1",)
    assert second.decide(0, subject).counted == ("OWN-2",)
    assert first.decide(0, subject).rule == "OWN-1"


# --- Retry-After ---------------------------------------------------------------------------------


ALGORITHMS = get_args(Algorithm)


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
    rules = [rule("OWN-KEY", 1, 10, counter="key"), rule("OWN-IP", 3, 100, counter="ip")]
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
    st.builds(rule, st.just("OWN-KEY"), COUNTS, WINDOWS, block_ns=BLOCKS, counter=st.just("key")),
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
