"""RCT-HOT: which instance an invocation gets, as a pure trace of claims (D-HOT)."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.profile import OutsideProfile
from engine.resources.reactors import Claim, InstancePool


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
