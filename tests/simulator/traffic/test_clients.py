"""Retry delays and paces, as the scenario's classes describe them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.files import Rate
from simulator.scenario import Scenario, loads
from simulator.scenario.clients import (
    AimdPacing,
    DecorrelatedJitter,
    ExponentialRetry,
    FixedRetry,
    FullJitter,
    TokenBucketPacing,
)
from simulator.traffic.attempts import Pace, pace_of, retry_after_ns, retry_policy
from simulator.traffic.draws import Stream, uniform_ns
from simulator.traffic.population import populate

S = 1_000_000_000


def test_delays_without_chance() -> None:
    fixed = retry_policy(FixedRetry(delay_ns=7))
    doubling = retry_policy(ExponentialRetry(base_ns=3, cap_ns=20))
    assert [fixed.delay_ns(attempt, 0, float) for attempt in (1, 2, 3)] == [7, 7, 7]
    assert [doubling.delay_ns(attempt, 0, float) for attempt in (1, 2, 3, 4)] == [3, 6, 12, 20]
    assert doubling.delay_ns(5_000, 0, float) == 20


@given(st.integers(1, 100), st.integers(0, 1 << 32))
def test_full_jitter_draws_below_its_ceiling(attempt: int, seed: int) -> None:
    policy = retry_policy(FullJitter(base_ns=200, cap_ns=20_000))
    ceiling = min(20_000, 200 * 2 ** (attempt - 1))
    drawn = Stream(seed, "c/0/retry").uniform()
    assert policy.delay_ns(attempt, 0, lambda: drawn) == int(drawn * ceiling + 0.5)


@given(st.integers(0, 1 << 32))
def test_decorrelated_jitter_grows_from_its_own_last_value(seed: int) -> None:
    policy = retry_policy(DecorrelatedJitter(base_ns=100, cap_ns=5_000))
    given_uniform, uniform = (Stream(seed, "c/0/retry").uniform for _ in range(2))
    delay_ns, last_ns = 0, 100
    for attempt in range(1, 21):
        delay_ns = policy.delay_ns(attempt, delay_ns, given_uniform)
        last_ns = min(5_000, uniform_ns(uniform(), 100, 3 * last_ns))
        assert delay_ns == last_ns


def test_a_policy_retries_its_statuses_until_its_last_attempt() -> None:
    policy = retry_policy(FixedRetry(delay_ns=1, attempts=3, statuses=(429, 503)))
    assert [policy.retries(429, attempt) for attempt in (1, 2, 3)] == [True, True, False]
    assert [policy.retries(status, 1) for status in (200, 400, 503)] == [False, False, True]


@given(st.integers(1, 10**12))
def test_retry_after_is_whole_seconds_rounded_up(wait_ns: int) -> None:
    header_ns = retry_after_ns(wait_ns)
    assert header_ns % S == 0
    assert 0 <= header_ns - wait_ns < S


@pytest.mark.parametrize(
    ("wait_ns", "next_ns"),
    [
        (None, 15 * S),  # no refusal: its own delay
        (8 * S + 1, 19 * S),  # Retry-After, rounded up to whole seconds
        (1, 15 * S),  # its own delay is longer than Retry-After
    ],
)
def test_the_next_attempt_honours_retry_after(wait_ns: int | None, next_ns: int) -> None:
    retry = FixedRetry(delay_ns=5 * S)
    assert retry_policy(retry).next_attempt_ns(10 * S, 5 * S, wait_ns) == next_ns
    silent = retry_policy(retry, retry_after_enabled=False)
    assert silent.next_attempt_ns(10 * S, 5 * S, 60 * S) == 15 * S


def _paced(pace: Pace, asks: Iterator[int]) -> list[int]:
    begun = []
    for at_ns in asks:
        begun.append(max(at_ns, pace.next_attempt_ns))
        pace.begin(begun[-1])
    return begun


@given(
    st.integers(1, 7),
    st.integers(1, 50),
    st.integers(1, 5),
    st.lists(st.integers(0, 30), min_size=1, max_size=40),
)
def test_a_bucket_never_lets_more_through(
    limit: int, window: int, burst: int, gaps: list[int]
) -> None:
    now, asks = 0, []
    for gap in gaps:
        now += gap
        asks.append(now)
    begun = _paced(pace_of(TokenBucketPacing(rate=Rate(limit, window), burst=burst), 0), iter(asks))
    for i, first in enumerate(begun):
        for j in range(i, len(begun)):
            # In any stretch of time at most the burst and what is refilled meanwhile.
            assert (j - i + 1 - burst) * window <= (begun[j] - first) * limit
    free = pace_of(TokenBucketPacing(rate=Rate(limit, window), burst=burst), 0)
    assert _paced(free, iter([0] * burst)) == [0] * burst


def test_aimd_grows_by_steps_and_shrinks_by_share() -> None:
    pace = pace_of(
        AimdPacing(
            start=Rate(10, S), minimum=Rate(1, S), maximum=Rate(20, S), increase=2.0,
            decrease_percent=50,
        ),
        0,
    )  # fmt: skip
    pace.begin(0)
    assert pace.next_attempt_ns == S // 10
    pace.accept(limited=False)
    assert pace.next_attempt_ns == S // 12
    pace.accept(limited=True)
    assert pace.next_attempt_ns == S // 6
    for _ in range(9):
        pace.accept(limited=True)
    assert pace.next_attempt_ns == S
    for _ in range(30):
        pace.accept(limited=False)
    assert pace.next_attempt_ns == S // 20


# --- the population ------------------------------------------------------------------------------


def _scenario(clients: str, more: str = "") -> Scenario:
    return loads(
        f"""
        duration = "1m"
        [[tenants]]
        name = "acme"
        [[tenants]]
        name = "lab"
        kind = "test"
        [[applications]]
        name = "shop"
        tenant = "acme"
        kind = "public"
        keys = 2
        [[applications]]
        name = "old"
        tenant = "lab"
        keys = 1
        legacy_keys = 2
        {more}
        {clients}
        """
    )


_THINK = 'think = { kind = "constant", value = "1s" }'


def test_keys_are_numbered_over_the_scenario() -> None:
    keys = populate(_scenario(f'[[clients]]\nname = "c"\n{_THINK}'), 7).keys
    assert [(k.label, k.application, k.tenant_kind, k.legacy) for k in keys] == [
        ("key-0001", "shop", "production", False),
        ("key-0002", "shop", "production", False),
        ("key-0003", "old", "test", False),
        ("key-0004", "old", "test", True),
        ("key-0005", "old", "test", True),
    ]


def test_even_dealing_goes_round() -> None:
    clients = f"""
        [[clients]]
        name = "c"
        count = 7
        application = ["shop", "old"]
        {_THINK}
    """
    people = populate(_scenario(clients), 7).clients
    dealt = [client.keys[client.deal_key()].label for client in people]
    assert dealt == [f"key-{1 + place % 5:04d}" for place in range(7)]
    assert len({client.addresses[client.deal_address()] for client in people}) == 7


def test_dealing_for_each_request_starts_at_the_clients_place() -> None:
    clients = f"""
        [[clients]]
        name = "c"
        count = 2
        application = "shop"
        keys = {{ per = "request" }}
        {_THINK}
    """
    people = populate(_scenario(clients), 7).clients
    assert [[client.deal_key() for _ in range(4)] for client in people] == [
        [0, 1, 0, 1],
        [1, 0, 1, 0],
    ]


def test_zipf_dealing_prefers_the_first() -> None:
    clients = f"""
        [[clients]]
        name = "c"
        count = 2000
        application = ["shop", "old"]
        keys = {{ zipf = 1.0 }}
        {_THINK}
    """
    people = populate(_scenario(clients), 7).clients
    seen = Counter(client.deal_key() for client in people)
    share = 1 / (1 + 1 / 2 + 1 / 3 + 1 / 4 + 1 / 5)
    assert abs(seen[0] / 2_000 - share) < 0.05
    assert [client.deal_key() for client in people[:50]] == [c.deal_key() for c in people[:50]]


def test_nat_shares_addresses_block_by_block() -> None:
    pool = """
        [[addresses]]
        name = "nat"
        count = 2
        clients_each = 3
        network = "203.0.113.0/24"
        [[addresses]]
        name = "office"
    """
    clients = f"""
        [[clients]]
        name = "behind"
        count = 8
        addresses = "nat"
        {_THINK}
        [[clients]]
        name = "alone"
        count = 2
        {_THINK}
    """
    people = populate(_scenario(clients, pool), 7).clients
    found = [client.addresses[client.deal_address()] for client in people]
    assert found[:8] == ["203.0.113.1"] * 3 + ["203.0.113.2"] * 3 + ["203.0.113.1"] * 2
    assert found[8:] == ["10.0.0.2", "10.0.0.3"]  # 10.0.0.1 is the office's


@pytest.mark.parametrize(
    ("network", "hosts"),
    [
        ("203.0.113.5/32", ["203.0.113.5"]),
        ("203.0.113.4/31", ["203.0.113.4", "203.0.113.5"]),
        ("203.0.113.4/30", ["203.0.113.5", "203.0.113.6"]),
        ("2001:db8::4/127", ["2001:db8::4", "2001:db8::5"]),
    ],
)
def test_a_pool_uses_the_hosts_of_its_network_and_no_others(network: str, hosts: list[str]) -> None:
    pool = f'[[addresses]]\nname = "nat"\ncount = {len(hosts)}\nnetwork = "{network}"\n'
    clients = f'[[clients]]\nname = "c"\naddresses = "nat"\n{_THINK}\n'
    (client,) = populate(_scenario(clients, pool), 7).clients
    assert list(client.addresses) == hosts


def test_adding_a_group_moves_no_other_draw() -> None:
    one = f'[[clients]]\nname = "c"\ncount = 3\n{_THINK}\n'
    before = populate(_scenario(one), 7).clients
    after = populate(_scenario(f'[[clients]]\nname = "first"\n{_THINK}\n' + one), 7).clients[1:]
    for old, new in zip(before, after, strict=True):
        assert old.number != new.number
        assert [old.stream("think").uniform() for _ in range(20)] == [
            new.stream("think").uniform() for _ in range(20)
        ]
