"""The worked examples E1 to E7 as exact traces (LIM-PUBLIC, LIM-MANAGEMENT, LIM-TEST-TENANT …).

Seconds; production tenant, one key, one IP, defaults, unless said.
"""

from collections.abc import Iterable
from fractions import Fraction
from typing import Any

import pytest

from engine.limits import Limiter, LimitTable, Subject
from engine.messages import Decision
from engine.profile import LimitsProfile, Profile

SECOND_NS = 1_000_000_000


Seconds = Iterable[Fraction | float]


def ns(seconds: Fraction | float) -> int:
    return int(Fraction(seconds).limit_denominator(SECOND_NS) * SECOND_NS)


def profile(**fields: Any) -> LimitsProfile:
    return Profile().replace(limits=fields).limits


def client(kind: str = "public", tenant: str = "production", *, legacy: bool = False) -> Subject:
    return Subject(
        "POST",
        "/tokens",
        "203.0.113.7",
        key_id="key-1",
        tenant_kind=tenant,  # type: ignore[arg-type] # reason: a text of the test
        application_kind=kind,  # type: ignore[arg-type] # reason: a text of the test
        legacy=legacy,
    )


def decide(
    times: Seconds,
    subject: Subject,
    played: LimitsProfile | None = None,
    table: LimitTable | None = None,
) -> list[Decision]:
    tables = {"Default": table or LimitTable.default()}
    limiter = Limiter(tables, played or profile())
    return [limiter.decide(ns(t), subject) for t in times]


def refused(times: Seconds, *asked: Any) -> list[Any]:
    every = list(times)
    decisions = decide(every, *asked)
    return [t for t, decision in zip(every, decisions, strict=True) if not decision.admitted]


AS_THROTTLE = LimitTable.default().replace_rule("LIM-PUBLIC", action="throttle", block_ns=None)


def spans(*bounds: tuple[int, int]) -> list[int]:
    return [t for first, last in bounds for t in range(first, last + 1)]


def every(first: int, length: int, period: int) -> list[int]:
    """Refused for `length` seconds from `first` on, again each `period`, up to 650."""
    return [t for t in range(first, 650) if (t - first) % period < length]


COUNTER_THROTTLE = [*range(50, 61), *range(66, 110, 6)]
E1 = {
    "sliding-log": (
        every(50, 10, 60), every(50, 10, 60), every(50, 10, 60), list(range(50, 650)),
    ),
    "fixed-window": (
        every(50, 10, 60), every(50, 10, 60), every(50, 10, 60), list(range(50, 650)),
    ),
    "sliding-counter": (
        None,
        [*range(50, 70), *every(120, 10, 60)],
        every(50, 10, 60),
        list(range(50, 650)),
    ),
    "token-bucket": (
        every(295, 1, 6), every(295, 10, 60), every(295, 10, 305), list(range(295, 650)),
    ),
    "gcra": (
        every(295, 1, 6), every(295, 10, 60), every(295, 10, 305), list(range(295, 650)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("algorithm", E1)
def test_e1_one_request_a_second_with_a_public_key(algorithm: str) -> None:
    times = range(650)
    throttle, keep, clear, extends = E1[algorithm]
    played = profile(algorithm=algorithm)
    as_throttle = refused(times, client(), played, AS_THROTTLE)
    if throttle is None:  # the list is given up to its second round
        assert [t for t in as_throttle if t < 84] == [t for t in COUNTER_THROTTLE if t < 84]
    else:
        assert as_throttle == throttle
    assert refused(times, client(), played) == keep
    assert refused(times, client(), profile(algorithm=algorithm, block_reset="clear")) == clear
    assert refused(times, client(), profile(algorithm=algorithm, block_extends=True)) == extends


def test_e1_refused_requests_count() -> None:
    times = range(650)
    assert refused(times, client(), profile(count_refused=True), AS_THROTTLE) == [*range(50, 650)]
    assert refused(times, client(), profile(count_refused=True)) == [*range(50, 650)]
    clears = profile(count_refused=True, block_reset="clear")
    assert refused(times, client(), clears) == every(50, 10, 60)
    extends = profile(count_refused=True, block_extends=True)
    assert refused(times, client(), extends) == [*range(50, 650)]


def test_e2_fifty_one_at_once_then_one_a_second() -> None:
    times = [0] * 51 + list(range(1, 100))
    assert refused(times, client()) == [*range(60)]
    assert refused(times, client(), profile(block_reset="clear")) == [*range(10), *range(60, 70)]


def test_e3_the_block_itself() -> None:
    """LIM-BLOCK: at 62 there is room, and a throttle would admit."""
    tick = Fraction(1, SECOND_NS)
    times: Seconds = [
        0,
        *[55] * 49,
        Fraction(111, 2),
        62,
        Fraction(131, 2) - tick,
        Fraction(131, 2),
        66,
    ]
    decisions = decide(times, client())
    assert [d.outcome for d in decisions[:50]] == ["admitted"] * 50
    assert [d.outcome for d in decisions[50:]] == [
        "blocked", "blocked", "blocked", "admitted", "blocked",
    ]  # fmt: skip
    assert [d.rule for d in decisions[50:53]] == ["LIM-PUBLIC"] * 3
    assert [d.wait_ns for d in decisions[50:53]] == [ns(10), ns(3.5), 1]
    assert decisions[54].wait_ns == ns(115) - ns(66)  # the block ends at 76, room opens at 115
    as_throttle = decide(times, client(), None, AS_THROTTLE)
    assert [d.outcome for d in as_throttle[50:]] == [
        "refused", "admitted", "refused", "refused", "refused",
    ]  # fmt: skip
    assert all(d.admitted for d in decide(times, client(), profile(algorithm="token-bucket")))


def test_e3_closed_edges_hold_a_block_one_tick_longer() -> None:
    tick = Fraction(1, SECOND_NS)
    times: Seconds = [0, *[55] * 49, Fraction(111, 2), Fraction(131, 2), Fraction(131, 2) + tick]
    decisions = decide(times, client(), profile(edges="closed"))
    assert [d.outcome for d in decisions[50:]] == ["blocked", "blocked", "admitted"]


def test_e4_the_lowest_rate_binds() -> None:
    """LIM-LOWEST, LIM-TEST-TENANT, LIM-LEGACY, D-COMPOSE."""
    times = [Fraction(n, 60) for n in range(60)]
    legacy = client("private", "test", legacy=True)
    decisions = decide(times, legacy)
    assert [d.outcome for d in decisions] == ["admitted"] * 50 + ["refused"] * 10
    assert {d.rule for d in decisions[50:]} == {"LIM-TEST-TENANT"}
    assert all(d.refusing == ("LIM-TEST-TENANT",) for d in decisions[50:])
    assert decisions[0].counted == (
        "LIM-TEST-TENANT", "LIM-CREATE", "LIM-PRIVATE.key", "LIM-PRIVATE.ip", "LIM-IP",
        "LIM-LEGACY",
    )  # fmt: skip
    lowest = decide(times, legacy, profile(compose="lowest"))
    assert all(d.outcome == "admitted" for d in lowest)
    assert lowest[0].counted == ("LIM-LEGACY",)


def quarters(*bounds: tuple[float, float]) -> list[float]:
    return [t / 4 for a, b in bounds for t in range(int(a * 4), int(b * 4))]


def test_e5_a_management_key_four_a_second() -> None:
    """LIM-MANAGEMENT: 200 in 110 s with the block, 200 in 60 s as a throttle."""
    times = [n / 4 for n in range(4 * 400)]
    management = client("management")
    expected = quarters((50, 110), (160, 220), (270, 330), (380, 400))
    assert refused(times, management) == expected
    throttled = LimitTable.default().replace_rule(
        "LIM-MANAGEMENT", action="throttle", block_ns=None
    )
    expected = quarters((50, 60), (110, 120), (170, 180), (230, 240), (290, 300), (350, 360))
    assert refused(times, management, None, throttled) == expected
    bucket = profile(algorithm="token-bucket")
    assert refused(times, management, bucket, throttled)[0] == 298.75


def test_e6_a_test_tenant_ten_a_second() -> None:
    """LIM-TEST-TENANT, LIM-THROTTLE: one half refused; or slowed (D-THROTTLE delay)."""
    times = [Fraction(n, 10) for n in range(300)]
    private = client("private", "test")
    tenths = [t for t in times if 5 <= t < 10 or 15 <= t < 20 or 25 <= t < 30]
    assert refused(times, private) == tenths
    after = [t for t in times if t >= 5]
    assert refused(times, private, profile(count_refused=True)) == after
    decisions = decide(times, private, profile(throttle="delay"))
    waits = {0: 0, 5: 5, 10: 10, 20: 10}
    for start, wait in waits.items():
        slowed = decisions[start * 10 : (start + 5) * 10]
        assert {d.wait_ns for d in slowed} == {ns(wait)}
        assert {d.outcome for d in slowed} == {"delayed" if wait else "admitted"}
    assert {d.outcome for d in decisions[150:200]} == {"refused"}
    assert decisions[150].wait_ns == ns(5)  # at 20 it would be accepted


def test_e7_an_edge() -> None:
    """D-EDGES, D-429-HEADERS: an admission exactly W ago no longer counts."""
    private = client("private", "test")
    limiter = Limiter({"Default": LimitTable.default()}, profile())
    assert all(limiter.decide(0, private).admitted for _ in range(50))
    at = ns(10) - 1
    decision = limiter.decide(at, private)
    assert (decision.outcome, decision.rule, decision.wait_ns) == ("refused", "LIM-TEST-TENANT", 1)
    headroom = limiter.status(at, private)
    assert headroom is not None
    assert headroom.retry_after_s == 1
    assert limiter.decide(ns(10), private).admitted
    closed = decide([*[0] * 50, 10, Fraction(10) + Fraction(1, SECOND_NS)], private,
                    profile(edges="closed"))  # fmt: skip
    assert [d.admitted for d in closed[50:]] == [False, True]
