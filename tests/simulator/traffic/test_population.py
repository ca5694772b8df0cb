"""The population: keys, addresses and who gets which."""

from __future__ import annotations

from collections import Counter

import pytest

from simulator.scenario import Scenario, loads
from simulator.traffic.population import populate


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
