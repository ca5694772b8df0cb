"""What follows from (sent, received, refused) alone: never a false alarm, whatever the latency."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, Literal

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from conformance.probes.bursts import Burst, _is_overrun, clusters_of, regained
from conformance.probes.delays import Arrivals, delays_that_fit
from conformance.probes.families import (
    BASIC,
    Family,
    Rate,
    _Burst,
    _Replay,
    border_between,
    families,
    families_that_fit,
    fits,
)
from conformance.probes.measurement import Measured, explain, measure
from conformance.probes.row_findings import _check_not_spaced
from conformance.probes.rows import ROWS
from conformance.probes.sightings import (
    Outcome,
    Sighting,
    broken_blocks,
    late_after_ns,
    mark_late,
    premature_refusals,
    provable_admissions,
)
from conformance.probes.signature import Signature
from conformance.runner.registry import Inconclusive
from conformance.wire.exchange import Ask, Exchange
from engine import Limiter, LimitTable, Rule, Subject
from engine.files import Rate as RateOf
from engine.limits.compiled.algorithms import BLOCK, READY, begin_or_extend_block
from engine.profile import Algorithm, LimitsProfile
from tests.conformance.checks.changed import bench_of
from tests.conformance.probes.measured import MS_NS, SECOND_NS

RATE = Rate(50, 10 * SECOND_NS)
SUBJECT = Subject("GET", "/", "192.0.2.1", key_id="key")
PLAN = ((0, 25), (5_000, 30), (5_800, 3), (8_500, 3), (9_700, 3), (10_700, 55), (13_300, 20))
HONEST = (
    LimitsProfile(),
    LimitsProfile(algorithm="fixed-window"),
    LimitsProfile(algorithm="fixed-window", fixed_anchor="first"),
    LimitsProfile(algorithm="sliding-counter"),
    LimitsProfile(algorithm="token-bucket"),
    LimitsProfile(algorithm="gcra"),
    LimitsProfile(count_refused=True),
    LimitsProfile(algorithm="token-bucket", count_refused=True),
    LimitsProfile(edges="closed"),
)


def history(
    profile: LimitsProfile,
    start_ms: int,
    delays_ms: list[int],
    rate: str = "50/10s",
    *,
    plan: Sequence[tuple[int, int]] = (*PLAN, (16_200, 55)),
    block_ns: int | None = None,
) -> list[list[Sighting]]:
    """Return what a client sees of an honest limiter that begins to count at an odd time.

    plan: after how many ms how many requests are sent.
    """
    limit, _, window = rate.partition("/")
    window_ns = int(window.removesuffix("s")) * SECOND_NS
    rule = Rule(
        id="OWN-ROW",
        counter="key",
        rate=RateOf(int(limit), window_ns),
        action="throttle" if block_ns is None else "block",
        block_ns=block_ns,
    )
    limiter = Limiter({"Default": LimitTable((rule,))}, profile)
    arrivals = []
    turn = 0
    for place, (at_ms, number) in enumerate(plan):
        for _ in range(number):
            there = delays_ms[turn % len(delays_ms)] * MS_NS
            back = delays_ms[(turn * 7 + 3) % len(delays_ms)] * MS_NS
            sent = (start_ms + at_ms) * MS_NS
            arrivals.append((sent + there, turn, place, sent, sent + there + back))
            turn += 1
    clusters: list[list[Sighting]] = [[] for _ in plan]
    for arrived, _, place, sent, received in sorted(arrivals):
        admitted = limiter.decide(arrived, SUBJECT).admitted
        clusters[place].append(Sighting(sent, received, "admitted" if admitted else "refused"))
    return clusters


@given(st.integers(0, 30_000), st.lists(st.integers(0, 40), min_size=1, max_size=20))
@settings(max_examples=24, deadline=None, database=None)
def test_a_border_of_windows_on_a_clock_lies_where_it_is_said(
    start_ms: int, delays_ms: list[int]
) -> None:
    seen = history(LimitsProfile(algorithm="fixed-window"), start_ms, delays_ms)
    _assert_border_is_inside(border_between([seen], RATE))


def _assert_border_is_inside(between: tuple[int, int] | None) -> None:
    assert between is not None, "each burst exceeds what a window admits"
    after_ns, before_ns = between
    assert after_ns < before_ns
    assert before_ns // RATE.window_ns > (after_ns - 1) // RATE.window_ns


divisions = st.tuples(
    st.sampled_from([at_ms for at_ms, _ in (*PLAN, (16_200, 55))]),
    st.integers(0, 41),
    st.lists(st.integers(0, 40), min_size=1, max_size=20),
)
"""A burst, how long before a window's border it begins, and the ways there and back."""


@given(divisions)
@example((10_700, 25, [2, 4, 35, 36]))
@example((10_700, 26, [30, 30, 19, 5]))
@example((10_700, 22, [11, 17, 22, 1, 16, 2]))
@example((10_700, 28, [18, 2, 39, 40, 12, 4]))
@example((10_700, 10, [19, 5]))
@example((10_700, 10, [15, 5]))
@settings(max_examples=40, deadline=None, database=None)
def test_a_border_inside_a_burst_makes_no_honest_limiter_wrong(
    division: tuple[int, int, list[int]],
) -> None:
    at_ms, early_ms, delays_ms = division
    profile = LimitsProfile(algorithm="fixed-window")
    seen = history(profile, 30_000 - at_ms % 10_000 - early_ms, delays_ms)
    measured = measure([seen], RATE)
    assert measured.fault is None, measured.fault
    assert {Family("fixed-window"), Family("fixed-window", counts_refused=True)} <= {
        *measured.families
    }
    _assert_border_is_inside(border_between([seen], RATE))


BLOCKING = Rate(50, 10 * SECOND_NS, 3 * SECOND_NS)
BLOCKED = (
    *((0, 25), (7_200, 30), (7_400, 35), (8_000, 3)),
    *((10_050, 2), (10_450, 3), (10_600, 30), (13_900, 5)),
)
"""A block begins at the second burst or at the third, and is asked for until after its end."""


@given(
    st.booleans(),
    st.sampled_from(["keep", "clear"]),
    st.sampled_from([at_ms for at_ms, _ in BLOCKED]),
    st.integers(0, 41),
    st.lists(st.integers(0, 40), min_size=1, max_size=20),
)
@example(False, "keep", 7_200, 23, [17, 24, 16, 27, 11, 30, 0, 17, 22, 15, 19, 20, 30, 31])
@example(False, "clear", 7_200, 33, [35, 35, 8, 1, 0])
@example(True, "keep", 7_200, 19, [17, 19])
@example(True, "clear", 7_200, 26, [4, 16, 39, 5])
@settings(max_examples=6, deadline=None, database=None)
def test_a_border_inside_a_burst_makes_no_honest_block_wrong(
    extends: bool, reset: Literal["keep", "clear"], at_ms: int, early_ms: int, delays_ms: list[int]
) -> None:
    profile = LimitsProfile(algorithm="fixed-window", block_extends=extends, block_reset=reset)
    start_ms = 30_000 - at_ms % 10_000 - early_ms
    block_ns = BLOCKING.block_ns
    seen = history(profile, start_ms, delays_ms, plan=BLOCKED, block_ns=block_ns)
    measured = measure([seen], BLOCKING)
    assert measured.fault is None, measured.fault
    truth = Family("fixed-window", extends=extends, clears=reset == "clear")
    assert truth in measured.families


@given(
    st.sampled_from([False, True]),
    st.sampled_from(["keep", "clear"]),
    st.booleans(),
    st.tuples(st.integers(0, 45), st.integers(-45, 45), st.integers(2, 56)),
    st.lists(st.integers(0, 40), min_size=1, max_size=20),
)
@example(False, "clear", False, (20, 0, 30), [32, 39, 11, 0, 6, 25, 20, 10])
@example(False, "clear", False, (30, 10, 45), [1, 25, 39, 8, 6, 0, 4, 3, 0])
@example(False, "keep", True, (25, -10, 19), [1, 22, 2, 34, 14, 0, 2])
@settings(max_examples=12, deadline=None, database=None)
def test_a_block_that_ends_near_a_border_inside_a_burst_makes_no_honest_limiter_wrong(
    extends: bool,
    reset: Literal["keep", "clear"],
    counts: bool,
    division: tuple[int, int, int],
    delays_ms: list[int],
) -> None:
    """How many of the burst the next window has counted is told by no middle time."""
    early_ms, apart_ms, size = division
    begins_ms = 30_000 - 3_020 - apart_ms
    plan = ((0, 25), (500, 28), (3_520 + apart_ms - early_ms, size), (4_220, 55), (7_420, 54))
    profile = LimitsProfile(
        algorithm="fixed-window", block_extends=extends, block_reset=reset, count_refused=counts
    )
    block_ns = BLOCKING.block_ns
    seen = history(profile, begins_ms - 500, delays_ms, plan=plan, block_ns=block_ns)
    measured = measure([seen], BLOCKING)
    assert measured.fault is None, measured.fault
    truth = Family("fixed-window", counts_refused=counts, extends=extends, clears=reset == "clear")
    assert truth in measured.families


@given(
    st.sampled_from([one for one in BASIC if not one.is_on_a_clock]),
    st.sampled_from(["keep", "clear"]),
    st.booleans(),
    st.tuples(st.integers(0, 45), st.integers(2, 50)),
    st.lists(st.integers(0, 40), min_size=1, max_size=20),
)
@example(Family("token-bucket"), "clear", True, (16, 32), [24, 5])
@example(Family("token-bucket"), "keep", False, (9, 13), [15, 27, 14, 2])
@example(Family("token-bucket"), "clear", False, (8, 29), [25, 3])
@settings(max_examples=12, deadline=None, database=None)
def test_a_block_that_ends_inside_a_burst_makes_no_honest_limiter_wrong(
    family: Family,
    reset: Literal["keep", "clear"],
    counts: bool,
    burst: tuple[int, int],
    delays_ms: list[int],
) -> None:
    """D-BLOCK-START: what the old block refuses begins no new one."""
    early_ms, size = burst
    plan = ((0, 25), (500, 30), (3_520 - early_ms, size), (4_220, 55), (7_420, 55))
    profile = LimitsProfile(
        algorithm=family.algorithm,
        fixed_anchor="first" if family.anchored else "aligned",
        block_reset=reset,
        count_refused=counts,
    )
    seen = history(profile, 12_345, delays_ms, plan=plan, block_ns=BLOCKING.block_ns)
    measured = measure([seen], BLOCKING)
    assert measured.fault is None, measured.fault
    truth = dataclasses.replace(family, counts_refused=counts, clears=reset == "clear")
    assert truth in measured.families


def test_a_block_that_clears_admits_any_multiple_of_the_limit_in_a_window() -> None:
    """D-BLOCK-RESET: after a block of 2 s there is room for 50 again."""
    plan = [(at_ms, 55) for at_ms in range(0, 9_000, 2_200)]
    profile, block_ns = LimitsProfile(block_reset="clear"), 2 * SECOND_NS
    seen = history(profile, 0, [1, 2], plan=plan, block_ns=block_ns)
    measured = measure([seen], Rate(50, 10 * SECOND_NS, block_ns))
    assert measured.admitted_requests == 250
    assert measured.fault is None, measured.fault
    assert all(one.clears for one in measured.families)
    free = [[one._replace(outcome="admitted") for one in cluster] for cluster in seen]
    assert measure([free], Rate(50, 10 * SECOND_NS, block_ns)).fault is not None


@given(
    limit=st.integers(1, 6),
    bursts=st.lists(
        st.lists(st.tuples(*[st.integers(0, 9)] * 4), min_size=1, max_size=12),
        min_size=1,
        max_size=6,
    ),
    pause=st.integers(0, 30),
    start=st.integers(0, 19),
)
@settings(max_examples=150, deadline=None, database=None)
def test_windows_on_a_clock_fit_whatever_they_answer(
    limit: int, bursts: list[list[tuple[int, int, int, int]]], pause: int, start: int
) -> None:
    """Bursts may be longer than a window; some answers are lost, their requests counted or not."""
    rate = Rate(limit, 20)
    counted: dict[int, int] = {}
    clusters: list[list[Sighting]] = []
    at_ns = 1_000 + start
    for burst in bursts:
        cluster = []
        arrivals = sorted(
            (at_ns + after * 3 + there, there, back, luck) for after, there, back, luck in burst
        )
        for arrived, there, back, luck in arrivals:
            window = arrived // rate.window_ns
            outcome: Outcome = "admitted" if counted.get(window, 0) < limit else "refused"
            if luck > 0:  # else it does not reach the limiter
                counted[window] = counted.get(window, 0) + (outcome == "admitted")
            seen = outcome if luck > 1 else "lost"
            cluster.append(Sighting(arrived - there, arrived + back, seen))
        clusters.append(cluster)
        at_ns = max(one.received_ns for one in cluster) + pause
    assert fits([clusters], rate, Family("fixed-window"))


@given(
    st.sampled_from(HONEST),
    st.integers(0, 30_000),
    st.lists(st.integers(0, 150), min_size=1, max_size=40),
)
@settings(max_examples=12, deadline=None, database=None)
def test_no_honest_limiter_is_ever_called_wrong(
    profile: LimitsProfile, start_ms: int, delays_ms: list[int]
) -> None:
    seen = history(profile, start_ms, delays_ms)
    measured = measure([seen], RATE)
    assert measured.fault is None, measured.fault
    algorithm = "token-bucket" if profile.algorithm == "gcra" else profile.algorithm
    assert any(
        one.algorithm == algorithm and one.counts_refused == profile.count_refused
        for one in measured.families
    )
    assert provable_admissions([one for each in seen for one in each], RATE.window_ns) <= 100


@given(
    st.sampled_from([one for one in HONEST if one.algorithm != "sliding-counter"]),
    st.integers(0, 30_000),
    st.lists(st.integers(0, 150), min_size=1, max_size=40),
)
@settings(max_examples=40, deadline=None, database=None)
def test_a_premature_refusal_is_proof_where_refused_requests_do_not_count(
    profile: LimitsProfile, start_ms: int, delays_ms: list[int]
) -> None:
    flat = [one for each in history(profile, start_ms, delays_ms) for one in each]
    assert not premature_refusals(flat, 50, RATE.window_ns, counts_refused=profile.count_refused)


OFF = ("49/10s", "51/10s", "45/10s", "55/10s", "50/9s", "50/11s")


@pytest.mark.parametrize("rate", OFF)
@given(start_ms=st.integers(0, 30_000))
@settings(max_examples=2, deadline=None, database=None)
def test_a_log_that_is_a_little_off_is_told_and_explained(start_ms: int, rate: str) -> None:
    seen = history(LimitsProfile(), start_ms, [1, 2], rate)
    assert measure([seen], RATE).fault is not None
    limit, _, window = rate.removesuffix("s").partition("/")
    assert explain([seen], RATE) == f"{limit} per {window} s would explain it"


@pytest.mark.parametrize("rate", ["48/10s", "52/10s", "25/10s", "50/8s", "50/12s", "50/5s"])
def test_a_log_that_is_far_off_is_explained(rate: str) -> None:
    limit, _, window = rate.removesuffix("s").partition("/")
    seen = history(LimitsProfile(), 700, [1, 2], rate)
    assert explain([seen], RATE) == f"{limit} per {window} s would explain it"


def test_a_refusal_is_premature_only_when_nothing_could_excuse_it() -> None:
    admitted = [Sighting(i, i + 5) for i in range(49)]
    refused = Sighting(60, 70, "refused")
    assert [one.possible_requests for one in premature_refusals([*admitted, refused], 50, 100)] == [
        49
    ]
    lost = Sighting(55, 58, "lost")
    assert not premature_refusals([*admitted, lost, refused], 50, 100)
    # The first of them left the window at the earliest instant of the decision, not at the latest.
    assert not premature_refusals(
        [*admitted, Sighting(50, 52), Sighting(104, 106, "refused")], 50, 100
    )
    assert premature_refusals([*admitted, Sighting(50, 52), Sighting(105, 106, "refused")], 50, 100)


def test_admissions_are_in_one_window_only_when_they_must_be() -> None:
    assert provable_admissions([Sighting(0, 5), Sighting(90, 99)], 100) == 2
    assert provable_admissions([Sighting(0, 5), Sighting(90, 100)], 100) == 1
    assert provable_admissions([], 100) == 0


def test_an_admission_breaks_a_block_only_when_it_lies_inside_it_for_certain() -> None:
    refused = Sighting(10, 20, "refused")
    assert not broken_blocks([refused, Sighting(20, 30)], 100)
    assert broken_blocks([refused, Sighting(21, 109)], 100)
    assert not broken_blocks([refused, Sighting(21, 110)], 100)


def test_what_is_held_back_is_an_admission_at_its_receive_time() -> None:
    seen = [Sighting(0, 3 * SECOND_NS), Sighting(0, 90 * MS_NS)]
    slow, prompt = mark_late(seen, 100 * MS_NS, late_after_ns(100 * MS_NS))
    assert (slow.is_late, slow.sent_ns, slow.asked_ns) == (True, 2_900 * MS_NS, 0)
    assert not prompt.is_late


def test_the_steady_pace_of_nginx_is_a_family_of_its_own() -> None:
    """Strict spacing (gcra, burst 1) admits one of a burst and is a reading, no fault."""
    one_each = [
        [Sighting(at, at + 1), *[Sighting(at, at + 1, "refused")] * 4]
        for at in range(0, 20 * SECOND_NS, 2 * SECOND_NS)
    ]
    measured = measure([one_each], RATE)
    assert measured.fault is None
    assert [one.burst_requests for one in measured.families] == [1]


@pytest.mark.parametrize("is_first", [True, False])
def test_spacing_hides_a_block_only_where_a_rows_first_requests_are_refused(
    *, is_first: bool
) -> None:
    """D-ALGORITHM: another row that spaces requests refuses two at once, full or not."""
    bench = bench_of("limits.LIM-PUBLIC")
    assert bench.session.learn(("limits.burst_requests", 1)) is None
    refused = [Sighting(2 * SECOND_NS, 2 * SECOND_NS + 1, "refused")]
    first, second = [Sighting(0, 1)] * 25, [Sighting(2 * SECOND_NS, 2 * SECOND_NS + 1)] * 20
    history = [[*first, *refused], second] if is_first else [first, [*second, *refused]]
    expected = pytest.raises(Inconclusive, match="spaces requests, which hides LIM-PUBLIC")
    with expected if is_first else contextlib.nullcontext():
        _check_not_spaced(bench, ROWS["LIM-PUBLIC"], [history], 0)


def test_two_counters_of_one_row_share_their_window_edges() -> None:
    """A fixed window that would have to begin at two different instants fits neither."""
    rate, aligned = Rate(50, 10_000), Family("fixed-window")

    def full(begun_ns: int, *then: Sighting) -> list[list[Sighting]]:
        """A counter that is full at an instant, and what it answers later."""
        fifty = [Sighting(begun_ns, begun_ns + 1)] * 50
        return [[*fifty, Sighting(begun_ns, begun_ns + 1, "refused")], list(then)]

    fresh = full(100, Sighting(3_000, 3_001))
    still_full = full(0, Sighting(3_500, 3_501, "refused"))
    assert fits([fresh], rate, aligned)
    assert fits([still_full], rate, aligned)
    assert not fits([fresh, still_full], rate, aligned)


def seen_at_a_border(*burst: Sighting) -> bool:
    """Whether windows of 2 per 100 explain a burst, where one begins at 150 and has admitted 1."""
    full = [Sighting(0, 1), Sighting(0, 1), Sighting(0, 1, "refused")]
    polls = [[Sighting(49, 49, "refused")], [Sighting(50, 50)]]
    return fits([[full, *polls, list(burst)]], Rate(2, 100), Family("fixed-window"))


def test_a_window_refuses_only_when_it_is_full_on_either_side_of_a_border() -> None:
    early, late = Sighting(140, 141), Sighting(158, 159)
    early_refused, late_refused = (one._replace(outcome="refused") for one in (early, late))
    assert seen_at_a_border(early, early_refused, late, late, late_refused)
    assert not seen_at_a_border(early_refused, late, late, late_refused)
    assert not seen_at_a_border(early, early_refused, late, late_refused)
    assert not seen_at_a_border(early, early, late)
    assert not seen_at_a_border(early, late, late, late)


@pytest.mark.parametrize("outcome", ["admitted", "lost"])
def test_what_lies_on_either_side_of_a_border_excuses_one_refusal(outcome: Outcome) -> None:
    """A lost request may have filled any window from then on; an admitted one is counted once."""
    early, late = Sighting(140, 141), Sighting(158, 159)
    early_refused, late_refused = (one._replace(outcome="refused") for one in (early, late))
    between = Sighting(142, 158, outcome)
    assert seen_at_a_border(early_refused, between, late)
    assert seen_at_a_border(early, between, late, late_refused)
    assert seen_at_a_border(early_refused, between, late, late_refused) is (outcome == "lost")


def test_a_burst_longer_than_two_windows_fits_if_they_hold_it() -> None:
    def fits_long(*more: Sighting) -> bool:
        """Whether a first window, a whole one and a last one explain it."""
        return seen_at_a_border(Sighting(140, 141), *more, Sighting(258, 259))

    whole = [Sighting(160, 161)] * 2
    assert fits_long(*whole, Sighting(170, 171, "refused"))
    assert fits_long(*whole, Sighting(255, 256))
    assert not fits_long(*whole, Sighting(255, 256), Sighting(255, 256))
    assert not fits_long(*whole, *whole, Sighting(140, 141))


@pytest.mark.parametrize(("rate", "fewest"), [("49/10s", 12), ("51/10s", 8)])
def test_most_windows_that_are_a_little_off_are_told(rate: str, fewest: int) -> None:
    """Where a border lies inside a burst, some answers could be those of the row's own rate."""
    profile = LimitsProfile(algorithm="fixed-window")
    seen = [history(profile, start_ms, [1, 30, 7], rate) for start_ms in range(0, 9_600, 800)]
    assert sum(measure([each], RATE).fault is not None for each in seen) >= fewest


def test_nothing_refused_and_no_family_is_a_missing_limit() -> None:
    free = [[Sighting(0, 1)] * 25, [Sighting(5 * SECOND_NS, 5 * SECOND_NS + 1)] * 80]
    measured = measure([free], RATE)
    assert measured.fault == "105 requests within 10 s, and none was refused or slowed"
    assert families_that_fit([free], RATE) == []


@pytest.mark.parametrize("told", ["fixed-window", "sliding-log", "token-bucket", "gcra"])
def test_of_a_heavy_rate_only_the_algorithm_that_is_told_is_tried(told: Algorithm) -> None:
    calm = [[Sighting(second * SECOND_NS, second * SECOND_NS + 1)] for second in range(3)]
    found = families_that_fit([calm], Rate(2_000, 10 * SECOND_NS), told)
    assert {family.algorithm for family in found} == {told}


@pytest.mark.parametrize(
    ("size", "lasted_ms", "is_beyond"),
    [
        (51, 1, False),
        (52, 1, True),
        (75, 4_900, False),
        (76, 4_900, True),
        (76, 5_000, False),
        (200, 10_000, False),
    ],
)
def test_two_bursts_are_beyond_a_rate_only_if_a_bucket_regains_less_between(
    size: int, lasted_ms: int, *, is_beyond: bool
) -> None:
    """LIM-LOWEST: a bucket of 50 per 10 s has 25 more after 5 s, and none has twice its window."""
    begun_ms = 60_000
    bursts = [Burst("beyond", size, begun_ns=begun_ms * MS_NS) for _ in range(2)]
    for burst, received_ms in zip(bursts, (1, lasted_ms), strict=True):
        burst.exchanges = [answered(n, begun_ms + received_ms - 1, 1) for n in range(size)]
    two: list[Any] = [None, None]
    assert _is_overrun(two, RATE, bursts) is is_beyond
    bursts[0].exchanges[0] = answered(0, begun_ms, 1, 503)
    assert not _is_overrun(two, RATE, bursts), "one of them was a front's own answer"
    assert not _is_overrun(two, RATE, bursts[1:])


@pytest.mark.parametrize(("admitted", "is_beyond"), [(100, False), (101, True)])
def test_one_counter_is_beyond_a_rate_only_by_more_than_two_windows_hold(
    admitted: int, *, is_beyond: bool
) -> None:
    """D-ALGORITHM: windows fixed on a clock admit twice the limit around a border."""

    class Seen:
        def clusters(self) -> list[list[Sighting]]:
            return [[Sighting(0, 1)] * 50, [Sighting(5, 6)] * (admitted - 50)]

    assert _is_overrun([Seen()], RATE, []) is is_beyond  # type: ignore[list-item] # reason: a counter that was seen


def answered(number: int, sent_ms: int, took_ms: int, status: int = 200) -> Exchange:
    ask = Ask(method="GET", path="/tokens")
    sent_ns = sent_ms * MS_NS
    return Exchange(
        number, "check", "lane", number, ask, sent_ns, sent_ns + took_ms * MS_NS, status
    )


def test_a_server_that_stalls_is_not_a_throttle_that_slows() -> None:
    """What refuses at once when first exceeded does not hold back what it admits later."""
    first = [answered(1, 0, 1)]
    beyond = [answered(2, 5_000, 1), answered(3, 5_000, 1, 429)]
    stalled = [answered(4, 10_000, 2_000)]
    seen = clusters_of([first, beyond, stalled], MS_NS, late_after_ns(MS_NS))
    assert not any(one.is_late for cluster in seen for one in cluster)


def test_what_is_held_back_before_anything_is_refused_is_slowed() -> None:
    first = [answered(1, 0, 1)]
    beyond = [answered(2, 5_000, 1), answered(3, 5_000, 5_000)]
    full = [answered(4, 6_000, 1, 429)]
    seen = clusters_of([first, beyond, full], MS_NS, late_after_ns(MS_NS))
    assert [one.is_late for cluster in seen for one in cluster].count(True) == 1


def spread(at_ms: int, lasts_ms: int, admitted: int, refused: int = 0) -> list[Sighting]:
    """Return a burst whose every answer takes as long as the burst lasts."""
    sent_ns, received_ns = at_ms * MS_NS, (at_ms + lasts_ms) * MS_NS
    outcomes: list[Outcome] = [*["admitted"] * admitted, *["refused"] * refused]  # type: ignore[list-item] # reason: literals
    return [Sighting(sent_ns, received_ns, outcome) for outcome in outcomes]


def measured_at(lasts_ms: int) -> Measured:
    """Measure 60 in one window of 50 per 10 s, seen through bursts that last so long.

    A border inside the first burst explains 60, but not that a whole window later none is admitted.
    """
    refused = [spread(at_ms, lasts_ms, 0, 5) for at_ms in (9_000, 10_400)]
    return measure([[spread(0, lasts_ms, 60, 5), *refused]], RATE)


@pytest.mark.parametrize("has_polls", [False, True])
def test_single_polls_tell_windows_on_a_clock_though_bursts_are_long(*, has_polls: bool) -> None:
    """On a busy machine a burst of half a second spread hid the algorithm from the other rows."""
    shut, free = (spread(19_900, 10, 0, 1), spread(20_200, 10, 1))
    polls = [spread(9_900, 10, 0, 1), spread(10_200, 10, 1), shut, free]
    one_border = [spread(9_900, 10, 0, 2), spread(10_200, 10, 2), shut, free]
    bursts = [spread(4_000, 1_500, 50, 10), spread(10_300, 1_500, 49 if has_polls else 48, 6)]
    seen = sorted([*bursts, *(polls if has_polls else one_border)])
    measured = measure([seen], RATE)
    assert {(one.algorithm, one.anchored) for one in measured.families} == {("fixed-window", False)}
    assert measured.resolution_ns > RATE.window_ns // 10
    assert measured.tells_more is has_polls


def test_a_row_seen_too_blurred_is_never_called_wrong() -> None:
    """Only instants tell how 60 came about, and bursts of a fortieth of the window blur them."""
    sharp, blurred = measured_at(200), measured_at(300)
    assert sharp.resolution_ns <= RATE.window_ns // 20 < blurred.resolution_ns
    assert sharp.families == ()
    assert "60 admitted" in (sharp.fault or "")
    assert blurred.families == ()
    assert blurred.fault is None


def test_blurred_or_not_a_refusal_that_nothing_excuses_is_a_fault() -> None:
    """Not in the window before, not in the one before that, not by what was refused."""
    early = [spread(0, 700, 25), spread(50_000, 700, 0, 20)]
    measured = measure([early], RATE)
    assert measured.resolution_ns > RATE.window_ns // 20
    assert "refused although at most" in (measured.fault or "")


def test_blurred_or_not_more_than_any_way_of_counting_admits_is_a_fault() -> None:
    found = measure([[spread(0, 2_000, 101, 1)]], RATE)
    assert found.fault == "101 admitted within 10 s, more than twice the limit"


def test_an_answer_that_stalled_is_an_admission_of_its_time_and_no_delay() -> None:
    """Where nothing that is held back explains the history, and the plain one is a log's."""
    first = [Sighting(0, MS_NS)] * 25
    stall = [Sighting(5_000 * MS_NS, 7_000 * MS_NS)] * 25
    refused = [Sighting(7_100 * MS_NS, 7_101 * MS_NS, "refused")] * 5
    marked = mark_late(stall, MS_NS, late_after_ns(MS_NS))
    measured = measure([[first, marked, refused, [Sighting(10_100 * MS_NS, 10_101 * MS_NS)]]], RATE)
    assert measured.fault is None
    assert not measured.delays
    assert not measured.is_clear


def signature_of(
    size: int, lasts_ms: int, *, until_ms: int = 60_000, control: tuple[int, int] = (429, 429)
) -> Signature:
    """Return a signature whose control is refused at 0 and again at the end, unless told."""
    found = Signature(until_ns=until_ms * MS_NS)
    first, last = control
    for name, at_ms, status in (
        ("control", 0, first),
        ("twin", 1, 200),
        ("control again", 0, last),
    ):
        burst = Burst(name, size)
        took_ms = lasts_ms if name == "control again" else 1
        burst.exchanges = [answered(n, at_ms, took_ms, status) for n in range(size)]
        found.bursts[name] = burst
    found.regained = 1 + RATE.limit_requests * lasts_ms * MS_NS // RATE.window_ns
    return found


def test_a_signature_tells_only_what_no_pause_can_have_made() -> None:
    """A second regains five of 50 in 10 s: a probe of four may have found room in a full bucket."""
    assert signature_of(4, 200).tells
    assert signature_of(4, 200).refused("twin") is False
    assert not signature_of(4, 1_000).tells
    assert not signature_of(4, 200, until_ms=200).tells


@pytest.mark.parametrize("control", [(429, 200), (200, 429), (200, 200)])
def test_a_signature_tells_nothing_unless_its_control_was_refused_twice(
    control: tuple[int, int],
) -> None:
    assert not signature_of(4, 200, control=control).tells


class OneByOne(_Replay):
    """The same counter, which counts and refuses one request after the other."""

    def would_admit(self, at_ns: Sequence[int], offset_ns: int) -> int:
        found = copy.deepcopy(self)
        return sum(found._admits(each_ns + offset_ns) for each_ns in at_ns)

    def take(self, burst: _Burst, blocked: int | None = None) -> None:
        assert blocked is None
        until_ns = self._line[BLOCK] - self._shift_ns
        self._refuse([each_ns for each_ns in burst.refused_ns if each_ns < until_ns])
        for each_ns in burst.admitted_ns:
            self._now_ns = max(self._now_ns, each_ns + self._shift_ns)
            self._count(self._now_ns)
        self._refuse([each_ns for each_ns in burst.refused_ns if each_ns >= until_ns])

    def _refuse(self, at_ns: Sequence[int]) -> None:
        for each_ns in at_ns:
            self._now_ns = max(self._now_ns, each_ns + self._shift_ns)
            self._refuse_one(self._now_ns)

    def _admits(self, at_ns: int) -> bool:
        self._now_ns = now_ns = max(self._now_ns, at_ns + self._shift_ns)
        is_admitted = self._line[READY] <= now_ns
        if is_admitted:
            self._count(now_ns)
        else:
            self._refuse_one(now_ns)
        return is_admitted

    def _refuse_one(self, t_ns: int) -> None:
        family, line, block_ns = self._family, self._line, self._rate.block_ns
        if block_ns and (line[BLOCK] <= t_ns or family.extends):
            begin_or_extend_block(line, t_ns, block_ns, family.extends, family.clears)
        if family.counts_refused and not (family.clears and line[BLOCK] > t_ns):
            self._count(t_ns)
            line[READY] = max(line[READY], line[BLOCK])


@given(
    limit=st.integers(1, 12),
    block_ns=st.sampled_from([0, 3, 20, 70]),
    bursts=st.lists(st.lists(st.integers(0, 60), min_size=1, max_size=20), min_size=1, max_size=5),
    shift_ns=st.integers(0, 20),
)
@settings(max_examples=60, deadline=None, database=None)
def test_a_burst_is_replayed_at_once_as_it_is_one_by_one(
    limit: int, block_ns: int, bursts: list[list[int]], shift_ns: int
) -> None:
    rate = Rate(limit, 20, block_ns)
    for family in families(rate):
        quick, plain = _Replay(rate, family, shift_ns), OneByOne(rate, family, shift_ns)
        start_ns = 0
        for steps in bursts:
            at_ns = [start_ns + step for step in sorted(steps)]
            assert quick.would_admit(at_ns, 3) == plain.would_admit(at_ns, 3), family
            for replay in (quick, plain):
                replay.take(_Burst(at_ns, at_ns[::2], at_ns[1::2], 0, at_ns[0]))
            start_ns = at_ns[-1] + 1


def test_a_lost_request_excuses_only_what_came_soon_after_it_where_requests_are_delayed() -> None:
    """It may have taken a turn, which moves the turns of the next windows and of no later one."""
    rate, bound_ns = Rate(10, 10 * SECOND_NS), 10 * SECOND_NS
    at_ns = 200 * SECOND_NS
    at_once = [Sighting(at_ns, at_ns + 1)] * 30
    for lost_ns, excuses in ((at_ns - SECOND_NS, True), (0, False)):
        lost = [Sighting(lost_ns, lost_ns + 1, "lost")] * 3
        assert bool(delays_that_fit(Arrivals([[lost, at_once]]), rate, bound_ns)) == excuses
    assert not delays_that_fit(Arrivals([[at_once]]), rate, bound_ns)


@pytest.mark.parametrize(
    ("admitted", "says"),
    [
        (47, "47 per 10 s would explain it"),
        (63, "63 per 10 s would explain it"),
        (96, "96 per 10 s would explain it"),
        (97, "admits up to 2 × the rate: counters per node would explain it"),
        (102, "admits up to 2 × the rate: counters per node would explain it"),
        (103, "103 per 10 s would explain it"),
        (148, "admits up to 3 × the rate: counters per node would explain it"),
    ],
)
def test_another_number_is_told_and_nodes_are_blamed_near_a_multiple_alone(
    admitted: int, says: str
) -> None:
    """A balancer divides requests nearly evenly, so that a few are missing or beyond."""
    bursts = [
        [Sighting(at_ns, at_ns + 1)] * admitted + [Sighting(at_ns, at_ns + 1, "refused")] * 40
        for at_ns in (0, 30 * SECOND_NS)
    ]
    assert explain([bursts], RATE) == says


def test_a_bucket_regains_what_fits_into_the_round_trips_of_a_burst() -> None:
    """A burst takes up to four of them; at most the whole limit comes back."""
    for latency_ms, count in ((0, 0), (100, 2), (1_000, 20), (9_000, 50)):
        bench: Any = SimpleNamespace(latency_ns=latency_ms * MS_NS)
        assert regained(bench, RATE) == count
