"""Several nodes (D-COUNTERS-LIFE): what each sharing admits, on exact traces and by brute force."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine import Engine, Profile
from engine.errors import InputError
from engine.files import Rate
from engine.limits import Limiter, LimitTable, NodesLimiter, Rule, Subject
from engine.limits.nodes import Balancer, home_of, sets_of_counters
from engine.profile import LimitsProfile, NodesProfile
from tests.oracles.limits import Counter, Oracle, Verdict

S = 1_000_000_000
TABLES = {"Default": LimitTable.default()}
PUBLIC = Subject("POST", "/tokenize", "192.0.2.1", key_id="k", application_kind="public")


def nodes_of(**fields: Any) -> NodesProfile:
    return NodesProfile(**{"count": 2, "sharing": "none", **fields})


def admitted(times: list[int], nodes: NodesProfile, **limits: Any) -> list[int]:
    """Return which of a public key's requests are admitted."""
    limiter = NodesLimiter(TABLES, LimitsProfile(**limits), nodes)
    return [place for place, t_ns in enumerate(times) if limiter.decide(t_ns, PUBLIC).admitted]


# --- exact traces --------------------------------------------------------------------------------


def test_counters_per_node_admit_as_many_times_the_limit_as_there_are_nodes() -> None:
    """LIM-PUBLIC: 50 per minute on each of three nodes."""
    assert admitted([0] * 200, nodes_of(count=3)) == list(range(150))


def test_a_block_holds_on_the_node_that_began_it() -> None:
    """LIM-PUBLIC: by turns; the node of odd requests is blocked, the other one lets them in."""
    limiter = NodesLimiter(TABLES, LimitsProfile(), nodes_of(balance="address"))
    other = Subject("POST", "/tokenize", "192.0.2.2", key_id="k", application_kind="public")
    outcomes = [limiter.decide(0, PUBLIC).outcome for _ in range(51)]
    assert outcomes[-1] == "blocked"
    assert limiter.decide(0, other).outcome == "admitted"
    assert limiter.node != home_of("192.0.2.1", 2)


@pytest.mark.parametrize("count", [2, 3, 7, 10])
def test_shares_of_a_limit_sum_up_to_it(count: int) -> None:
    sets = sets_of_counters(TABLES, LimitsProfile(), nodes_of(count=count, sharing="split"))
    for rule in TABLES["Default"]:
        shares = [tables["Default"][rule.id].limit_requests for tables, _ in sets[:-1]]
        assert sum(shares) == rule.limit_requests
        assert shares == sorted(shares, reverse=True)
        assert shares[0] - shares[-1] <= 1
    assert sets[-1][0] is TABLES, "the judge has the full limits"


def test_split_admits_the_limit_where_requests_are_spread_and_less_where_not() -> None:
    assert len(admitted([0] * 200, nodes_of(sharing="split"))) == 50
    assert len(admitted([0] * 200, nodes_of(sharing="split", balance="address"))) == 25


def test_a_synced_node_learns_at_the_next_publication_and_after_the_lag() -> None:
    """60 at once on two nodes: each counts its own 30. They are published at 1 s, known at 1.25 s.

    Until then a node has room for 20 more, from then on for none: 60 are known.
    """
    nodes = nodes_of(sharing="synced", every_ns=S, lag_ns=S // 4)
    times = [1] * 60 + [S + S // 4 - 1, S + S // 4]
    assert admitted(times, nodes) == list(range(61))
    assert admitted([1] * 200, nodes) == list(range(100)), "each node the whole limit"
    at_one = [S] * 60 + [2 * S + S // 4 - 1, 2 * S + S // 4]
    assert admitted(at_one, nodes) == list(range(61)), "what is counted at 1 s is published at 2 s"


def test_a_synced_block_is_heard_too() -> None:
    """LIM-BLOCK: 49 on one node and 51 on the other block the latter from 1 ns to 10 s + 1 ns.

    The former, which has counted 49 and would admit one more, refuses as soon as it hears of it.
    """
    nodes = nodes_of(sharing="synced", balance="address", every_ns=S)
    other = Subject("POST", "/tokenize", "192.0.2.2", key_id="k", application_kind="public")
    table = {"Default": LimitTable((Rule(id="OWN-K", counter="key", rate=Rate(50, 5 * S)),))}
    table = {"Default": table["Default"].replace_rule("OWN-K", action="block", block_ns=10 * S)}
    limiter = NodesLimiter(table, LimitsProfile(), nodes)
    for _ in range(51):
        limiter.decide(1, PUBLIC)
    assert limiter.decision.outcome == "blocked"
    assert limiter.decide(S - 1, other).admitted
    heard = limiter.decide(S, other)
    assert (heard.outcome, heard.wait_ns) == ("blocked", 9 * S + 1)
    assert limiter.decide(10 * S, other).outcome == "blocked", "the window is free since 6 s"
    assert limiter.decide(10 * S + 1, other).admitted


def test_a_block_that_clears_forgets_what_another_node_let_in_meanwhile() -> None:
    """D-BLOCK-RESET: nothing is charged before the end of a block that clears, whoever begins it.

    One node blocks from 1 ns on; the other has not heard of it, and lets five in. At the block's
    end the first one has the whole limit again.
    """
    nodes = nodes_of(sharing="synced", balance="address", every_ns=S)
    table = LimitTable((Rule(id="OWN-K", counter="key", rate=Rate(50, 60 * S)),))
    table = table.replace_rule("OWN-K", action="block", block_ns=10 * S)
    other = Subject("POST", "/tokenize", "192.0.2.2", key_id="k")
    limiter = NodesLimiter({"Default": table}, LimitsProfile(block_reset="clear"), nodes)
    assert [limiter.decide(1, PUBLIC).admitted for _ in range(51)].count(True) == 50
    assert all(limiter.decide(2, other).admitted for _ in range(5))
    end_ns = 10 * S + 1
    assert [limiter.decide(end_ns, PUBLIC).admitted for _ in range(60)].count(True) == 50


def test_two_attempts_within_the_race_see_the_same_counter() -> None:
    """At t, what was charged up to t − race is seen; of a burst at one instant all get in."""
    slow = nodes_of(sharing="shared-slow", race_ns=10)
    assert len(admitted([0] * 200, slow)) == 200
    assert admitted([0] * 50 + [9, 10], slow) == list(range(51))
    assert admitted([0] * 60, nodes_of(sharing="shared-slow", race_ns=0)) == list(range(60))[:50]


def test_what_cannot_delay_says_so() -> None:
    for sharing in ("synced", "shared-slow"):
        with pytest.raises(InputError, match=r"^nodes\.sharing = .* must stand with limits\.thr"):
            admitted([0], nodes_of(sharing=sharing), throttle="delay")


def test_a_limit_below_the_count_cannot_be_split() -> None:
    with pytest.raises(InputError) as caught:
        admitted([0], nodes_of(count=11, sharing="split"))
    assert str(caught.value) == (
        "nodes.count = 11 must be at most 10, the limit of LIM-ACCOUNT-UPDATER, where "
        "nodes.sharing = 'split'; take fewer nodes or a higher limit"
    )


def test_an_engine_is_one_node() -> None:
    with pytest.raises(InputError, match=r"^profile\.nodes\.sharing = 'none' must be 'exact'"):
        Engine(profile=Profile().replace(nodes={"count": 2, "sharing": "none"}))
    assert Engine(profile=Profile().replace(nodes={"count": 2})).profile.nodes.count == 2


# --- a balancer ----------------------------------------------------------------------------------


def test_an_address_goes_where_haproxy_sends_it() -> None:
    """`balance source`: the XOR of its 32-bit words, modulo the servers."""
    assert [home_of(f"192.0.2.{n}", 3) for n in range(4)] == [
        (0xC0000200 + n) % 3 for n in range(4)
    ]
    assert home_of("2001:db8::5", 7) == (0x20010DB8 ^ 5) % 7
    assert home_of("::ffff:192.0.2.1", 3) == home_of("192.0.2.1", 3)


def test_least_busy_takes_the_fewest_in_flight_and_the_lowest_of_several() -> None:
    balancer = Balancer(nodes_of(count=3, balance="least-busy"), lambda: 0.5)
    for end_ns in (30, 10, 20):
        node = balancer.choose(0, PUBLIC)
        balancer.begin(node)
        balancer.end(node, end_ns)
    assert [balancer.choose(t_ns, PUBLIC) for t_ns in (0, 9, 10, 19, 20)] == [0, 0, 1, 1, 1]
    balancer.begin(1)
    assert balancer.choose(20, PUBLIC) == 2, "one that answers at 20 is not in flight at 20"


def test_only_least_busy_remembers_when_requests_end() -> None:
    """Others never ask, so what they were told would fill the memory of a long run."""
    for balance, held in (("round-robin", 0), ("random", 0), ("address", 0), ("least-busy", 1)):
        balancer = Balancer(nodes_of(count=2, balance=balance), lambda: 0.5)
        for now_ns in range(100):
            balancer.begin(balancer.choose(now_ns, PUBLIC))
            balancer.end(0, now_ns + 1)
        assert len(balancer._ends) == held


def test_a_random_balance_needs_a_draw() -> None:
    """Without one, every request would go to the same node."""
    with pytest.raises(InputError, match=r"nodes\.balance = 'random' must go with draw"):
        NodesLimiter(TABLES, LimitsProfile(), nodes_of(balance="random"))
    draws = iter([0.1, 0.9])
    limiter = NodesLimiter(TABLES, LimitsProfile(), nodes_of(balance="random"), lambda: next(draws))
    assert [(limiter.decide(0, PUBLIC), limiter.node)[1] for _ in range(2)] == [0, 1]


def test_a_request_without_a_key_goes_by_its_address() -> None:
    balancer = Balancer(nodes_of(count=5, balance="key"), lambda: 0.5)
    assert balancer.choose(0, PUBLIC) == home_of("k", 5)
    assert balancer.choose(0, Subject("GET", "/tokens", "192.0.2.3")) == home_of("192.0.2.3", 5)


# --- by brute force ------------------------------------------------------------------------------


class NodesOracle:
    """Nodes by definition: before each decision, a view is made of all events that are known."""

    def __init__(
        self, table: LimitTable, profile: LimitsProfile, nodes: NodesProfile, slow: bool
    ) -> None:
        self.table, self.profile, self.nodes, self.slow = table, profile, nodes, slow
        self.events: list[tuple[int, int, str, Counter, object]] = []

    def knows(self, now: int, node: int, event: tuple[int, int, str, Counter, object]) -> bool:
        """Whether a node knows of an event: its own, or one published and heard of."""
        at, by_node = event[:2]
        if self.slow:
            return at + self.nodes.race_ns <= now
        heard_until = now - self.nodes.lag_ns
        published = range(0, max(heard_until, -1) + 1, self.nodes.every_ns)
        return by_node == node or any(at < instant for instant in published)

    def decide(self, now: int, subject: Subject, node: int) -> Verdict:
        """Decide as the node does."""
        view = Oracle({"Default": self.table}, self.profile)
        for event in self.events:
            if self.knows(now, node, event):
                self.play(view, event)
        before = {who: counter.block_until for who, counter in view.counters.items()}
        verdict = view.decide(now, subject)
        for who, counter in view.counters.items():
            if counter.block_until != before.get(who, 0):
                self.events.append((now, node, "block", counter, who))
            if counter.name in verdict.counted and counter in view._met(subject):
                self.events.append((now, node, "charge", counter, who))
        return verdict

    def play(self, view: Oracle, event: tuple[int, int, str, Counter, object]) -> None:
        """Do to a counter of the view what an event did."""
        at, _, what, first, who = event
        counter = view.counters.setdefault(who, Counter(first.name, first.rule, self.profile, 0))
        if what == "charge":
            counter.charge_refused(at, 0)
        elif at >= counter.block_until or self.profile.block_extends:
            clears = self.profile.block_reset == "clear" and at >= counter.block_until
            assert counter.rule.block_ns is not None
            tick = 1 if self.profile.edges == "closed" else 0
            counter.block_until = at + counter.rule.block_ns + tick
            if clears:
                counter.charged.clear()


@st.composite
def rules(draw: st.DrawFn) -> LimitTable:
    made = []
    counters: list[Any] = draw(st.permutations(["ip", "key", "ip+key"]))
    for place, counter in enumerate(counters[:2]):
        block_ns = draw(st.sampled_from((None, 3, 12)))
        made.append(
            Rule(
                id=f"OWN-{place}",
                counter=counter,
                rate=Rate(draw(st.integers(1, 4)), draw(st.integers(2, 12))),
                action="throttle" if block_ns is None else "block",
                block_ns=block_ns,
                shadow=draw(st.integers(0, 5)) == 0,
            )
        )
    return LimitTable(tuple(made))


@pytest.mark.slow
@given(
    table=rules(),
    fields=st.fixed_dictionaries(
        {
            "algorithm": st.sampled_from(
                ("sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra")
            ),
            "edges": st.sampled_from(("half-open", "half-open", "closed")),
            "count_refused": st.sampled_from((False, False, True)),
            "block_extends": st.booleans(),
            "block_reset": st.sampled_from(("keep", "clear")),
        }
    ),
    sharing=st.sampled_from(("synced", "shared-slow")),
    times=st.tuples(st.integers(1, 30), st.integers(0, 12), st.integers(1, 15)),
    asked=st.lists(
        st.tuples(st.integers(0, 3), st.sampled_from((0, 0, 0, 1)), st.sampled_from((0, 0, 0, 1))),
        min_size=20,
        max_size=60,
    ),
)
@settings(max_examples=150)
def test_nodes_decide_as_a_replay_of_all_that_they_know(
    table: LimitTable,
    fields: dict[str, Any],
    sharing: Any,
    times: tuple[int, int, int],
    asked: list[tuple[int, int, int]],
) -> None:
    """All five algorithms, blocks that extend or clear, refused requests that count, shadows."""
    nodes = NodesProfile(
        count=3, sharing=sharing, every_ns=times[0], lag_ns=times[1], race_ns=times[2]
    )
    profile = LimitsProfile(**fields)
    limiter = NodesLimiter({"Default": table}, profile, nodes)
    oracle = NodesOracle(table, profile, nodes, slow=sharing == "shared-slow")
    who = [
        [Subject("GET", "/tokens", ip, key_id=key) for key in ("k", "l")]
        for ip in ("192.0.2.1", "192.0.2.2")
    ]
    now = 0
    for gap, ip, key in asked:
        now += gap
        decision = limiter.decide(now, who[ip][key])
        expected = oracle.decide(now, copy.copy(who[ip][key]), limiter.node)
        shown = (decision.outcome, decision.rule, decision.refusing, decision.counted)
        assert (*shown, decision.shadow, decision.wait_ns) == expected.parts


@given(st.lists(st.integers(0, 3), max_size=80), st.sampled_from(("keep", "clear")))
@settings(max_examples=60)
def test_one_node_and_a_race_of_nothing_are_exact(gaps: list[int], reset: Any) -> None:
    table = LimitTable((Rule(id="OWN-K", counter="key", rate=Rate(4, 9)),))
    table = table.replace_rule("OWN-K", action="block", block_ns=5)
    profile = LimitsProfile(block_reset=reset)
    one = Limiter({"Default": table}, profile)
    others = [
        NodesLimiter({"Default": table}, profile, nodes)
        for nodes in (
            NodesProfile(count=1, sharing="none"),
            NodesProfile(count=1, sharing="split"),
            NodesProfile(count=1, sharing="synced"),
            NodesProfile(count=3, sharing="exact"),
        )
    ]
    now = 0
    for gap in gaps:
        now += gap
        decision = one.decide(now, copy.copy(PUBLIC))
        for other in others:
            assert other.decide(now, PUBLIC) == decision == other.exact
