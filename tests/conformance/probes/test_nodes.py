"""Nodes that each count alone are named as what they are, and nothing else is.

LIM-SEARCH, LIM-CREATE, LIM-READ, LIM-LEGACY, LIM-PUBLIC.
"""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from conformance.probes.sightings import Sighting, turns_beyond
from engine import LimitTable
from engine.files import Rate
from engine.limits import Limiter, Rule, Subject
from engine.profile import LimitsProfile
from tests.conformance.probes.measured import (
    MS_NS,
    SECOND_NS,
    Balance,
    Stalling,
    at_random,
    by_address,
    in_turn,
    jittery,
    nodes_of,
    play,
)

SEED = LimitTable.default()
CERTAIN = "admits up to {} × the rate: counters per node, since"
LIKELY = "admits up to {} × the rate: counters per node would explain it"
SUBJECT = Subject("GET", "/", "192.0.2.1", key_id="key")


def said(rule_id: str, count: int, balance: Balance, **more: Any) -> str:
    """Return what is said of a row that several nodes count; it fails unless nothing is said."""
    more.setdefault("latency", jittery(4, 2, 1))
    found = play(rule_id, engine=nodes_of(count, balance), **more)
    return found.says(rule_id) if rule_id in found.failed else ""


@pytest.mark.parametrize("count", [2, pytest.param(3, marks=pytest.mark.slow), 4])
def test_nodes_that_requests_meet_in_turn_are_told(count: int) -> None:
    assert CERTAIN.format(count) in said("LIM-SEARCH", count, in_turn)


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["fixed-window", "sliding-counter", "token-bucket"])
def test_nodes_are_told_whatever_they_count_by(algorithm: str) -> None:
    assert CERTAIN.format(2) in said("LIM-SEARCH", 2, in_turn, algorithm=algorithm)


@pytest.mark.slow
@pytest.mark.parametrize(("rule_id", "count"), [("LIM-CREATE", 2), ("LIM-READ", 4)])
def test_nodes_are_told_by_rows_of_higher_rates(rule_id: str, count: int) -> None:
    assert CERTAIN.format(count) in said(rule_id, count, in_turn)


@pytest.mark.slow
def test_nodes_are_told_on_a_machine_that_pauses() -> None:
    """The bursts are too coarse to rule out the row's own rate; the turns are not."""
    assert CERTAIN.format(2) in said("LIM-SEARCH", 2, in_turn, latency=Stalling(1, 4, 0.9))


@pytest.mark.slow
@pytest.mark.parametrize("rule_id", ["LIM-LEGACY", "LIM-PUBLIC"])
def test_where_nodes_fill_up_alike_a_higher_rate_is_named_too(rule_id: str) -> None:
    """Nothing tells them from one counter of twice the rate."""
    assert LIKELY.format(2) + ", and so would one counter" in said(rule_id, 2, in_turn)


@pytest.mark.slow
@pytest.mark.parametrize("rule_id", ["LIM-SEARCH", "LIM-PUBLIC"])
def test_nodes_that_requests_meet_by_chance_are_told(rule_id: str) -> None:
    """Whether it is certain hangs on how they fill up."""
    assert "admits up to 2 × the rate: counters per node" in said(rule_id, 2, at_random)


def test_a_balancer_by_address_leaves_nothing_to_see() -> None:
    assert said("LIM-SEARCH", 4, by_address) == ""


@pytest.mark.parametrize("times", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_one_counter_of_a_multiple_is_told_as_either(times: int) -> None:
    rate = SEED["LIM-SEARCH"].rate._replace(limit_requests=50 * times)
    found = play("LIM-SEARCH", table=SEED.replace_rule("LIM-SEARCH", rate=rate))
    assert LIKELY.format(times) in found.says("LIM-SEARCH")
    assert f"so would one counter of {50 * times} per 10 s" in found.says("LIM-SEARCH")


@pytest.mark.parametrize("limit", [60, pytest.param(85, marks=pytest.mark.slow)])
def test_one_counter_of_another_rate_is_never_told_as_nodes(limit: int) -> None:
    rate = SEED["LIM-SEARCH"].rate._replace(limit_requests=limit)
    found = play("LIM-SEARCH", table=SEED.replace_rule("LIM-SEARCH", rate=rate))
    assert found.failed == {"LIM-SEARCH"}
    assert "node" not in found.says("LIM-SEARCH")


ANY = [
    LimitsProfile(algorithm="sliding-log"),
    LimitsProfile(algorithm="fixed-window"),
    LimitsProfile(algorithm="fixed-window", fixed_anchor="first"),
    LimitsProfile(algorithm="sliding-counter"),
    LimitsProfile(algorithm="token-bucket"),
    LimitsProfile(algorithm="sliding-log", count_refused=True),
    LimitsProfile(algorithm="sliding-counter", count_refused=True),
    LimitsProfile(algorithm="fixed-window", block_reset="clear"),
    LimitsProfile(algorithm="token-bucket", block_extends=True),
]


def seen_of(
    limiter: Limiter, gaps_ms: list[int], delays_ms: list[int], size: int
) -> list[Sighting]:
    """Return what a client sees that sends `size` at once, waits for the answers and a gap."""
    chance, now_ns, found = random.Random(size), 0, []
    for gap_ms in gaps_ms * (240 // len(gaps_ms) // size):
        delays = [chance.choice(delays_ms) * MS_NS for _ in range(size)]
        for delay_ns in sorted(delays):
            is_admitted = limiter.decide(now_ns + delay_ns, SUBJECT).admitted
            outcome = "admitted" if is_admitted else "refused"
            back_ns = chance.choice(delays_ms) * MS_NS
            found.append(Sighting(now_ns, now_ns + delay_ns + back_ns, outcome))  # type: ignore[arg-type] # reason: one of both
        now_ns = max(one.received_ns for one in found) + gap_ms * MS_NS
    return sorted(found)


def limiter_of(profile: LimitsProfile, limit: int, block_s: int) -> Limiter:
    action: dict[str, Any] = {"action": "block", "block_ns": block_s * SECOND_NS} if block_s else {}
    rule = Rule(id="OWN-ROW", counter="key", rate=Rate(limit, 2 * SECOND_NS), **action)
    return Limiter({"Default": LimitTable((rule,))}, profile)


@given(
    st.sampled_from(ANY),
    st.integers(2, 60),
    st.sampled_from([0, 0, 1, 3]),
    st.lists(st.integers(0, 40) | st.integers(0, 2500), min_size=1, max_size=30),
    st.lists(st.integers(1, 4) | st.integers(1, 60), min_size=1, max_size=6),
    st.integers(1, 4),
)
@settings(max_examples=100, deadline=None, database=None)
def test_one_counter_never_looks_like_several(  # reason: what is drawn
    profile: LimitsProfile,
    limit: int,
    block_s: int,
    gaps_ms: list[int],
    delays_ms: list[int],
    size: int,
) -> None:
    """Whatever its rate and its way of counting, and however requests are sent."""
    seen = seen_of(limiter_of(profile, limit, block_s), gaps_ms, delays_ms, size)
    assert turns_beyond(seen, 2 * SECOND_NS, block_s * SECOND_NS) <= 0


def test_several_counters_look_like_several() -> None:
    """Where one is full: ten more are admitted by turns, of which four have other reasons."""
    full = [Sighting(at, at + 1) for at in range(0, 80, 2)]
    turns = [Sighting(at, at + 1, "refused" if at % 4 else "admitted") for at in range(80, 122, 2)]
    assert turns_beyond([*full, *turns], 1_000_000) == 6
    assert turns_beyond([*full, *turns[:4]], 1_000_000) <= 0
    blocked = [Sighting(at, at + 1, "refused") for at in range(80, 122, 2)]
    assert turns_beyond([*full, *blocked], 1_000_000) == 0
    at_once = [one._replace(received_ns=one.sent_ns + 2) for one in turns]
    assert turns_beyond([*full, *at_once], 1_000_000) == 6, "sent as the answer before came"


@pytest.mark.parametrize(("waits", "beyond"), [(0, 0), (200, 18)])
def test_only_what_was_sent_after_a_refusals_answer_has_found_room_since(
    waits: int, beyond: int
) -> None:
    """What was under way with the refusal may have been let in before it."""
    seen = []
    for begin in (0, 1_000, 2_000):
        seen.append(Sighting(begin, begin + 100, "refused"))
        sent = begin + 10 + waits
        seen += [Sighting(sent, sent + 100)] * (20 if begin < 2_000 else 0)
    assert max(0, turns_beyond(seen, 100_000)) == beyond


def test_bursts_admitted_in_part_do_not_look_like_several_counters() -> None:
    """Which request of a burst came first is not known, though the refused one's answer is last."""
    seen = []
    for begin in range(0, 1_000, 10):
        seen += [Sighting(begin, begin + 1), Sighting(begin, begin + 2, "refused")]
    assert turns_beyond(seen, 100_000) <= 0


@pytest.mark.parametrize("algorithm", ["sliding-log", "fixed-window"])
def test_one_counter_that_gives_room_again_is_no_second_one(algorithm: Any) -> None:
    """What was admitted every 4 ms leaves a log so; a fixed window begins anew as a whole."""
    limiter = limiter_of(LimitsProfile(algorithm=algorithm), 20, 0)
    times = [1 + 4 * place for place in range(20)] + [1996 + 2 * place for place in range(60)]
    found = []
    for at in times:
        outcome = "admitted" if limiter.decide(at * MS_NS, SUBJECT).admitted else "refused"
        found.append(Sighting(at * MS_NS - 1, at * MS_NS + 1, outcome))  # type: ignore[arg-type] # reason: one of both
    assert turns_beyond(found, 2 * SECOND_NS) <= 0
