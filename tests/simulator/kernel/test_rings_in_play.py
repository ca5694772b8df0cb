"""Arrays that fill up while a simulation is played: rings of sliding logs, and the wheel of events.

The limiter on its own gives every ring its slots beforehand; a simulation cannot, so each charge
may be the one that its ring has no slot for (D-ALGORITHM sliding-log, D-EDGES).
"""

from __future__ import annotations

from simulator.scenario import loads
from simulator.study.runs import run
from tests.simulator.kernel.test_same_decisions import check_same

_AT_ONCE = """
duration = "4s"
[choices.limits]
edges = "closed"
[rules.LIM-CREATE]
rate = "8/1s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[addresses]]
name = "nat"
[[clients]]
name = "early"
count = 4
application = "a"
addresses = "nat"
loop = "open"
arrivals = { kind = "constant", rate = "1/1s" }
mix = [ { request = "POST /tokenize" } ]
[[clients]]
name = "late"
count = 8
application = "a"
addresses = "nat"
loop = "open"
start = "1s"
arrivals = { kind = "constant", rate = "1/1s" }
mix = [ { request = "POST /tokenize" } ]
"""

_ONCE_HEAD = """
duration = "30s"
[rules.LIM-CREATE]
rate = "8/10s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[addresses]]
name = "nat"
"""

_ONCE = """
[[clients]]
name = "at-{start}"
count = {count}
application = "a"
addresses = "nat"
loop = "open"
start = "{start}"
arrivals = {{ kind = "constant", rate = "1/1h" }}
mix = [ {{ request = "POST /tokenize" }} ]
"""

_LONG = """
duration = "100s"
[rules.LIM-CREATE]
rate = "100000/1h"
[rules.LIM-PRIVATE]
rate = "100000/1h"
[rules.LIM-IP]
rate = "100000/1h"
[rules.LIM-LEGACY]
rate = "100000/1h"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 0
legacy_keys = 1
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "constant", rate = "100/1s" }
mix = [ { request = "POST /tokenize" } ]
"""


def test_what_came_a_whole_window_ago_counts_where_edges_are_closed() -> None:
    """Four came at 1 s; at 2 s they count still, though no slot is left for a fifth."""
    scenario = loads(_AT_ONCE)
    check_same(scenario)
    rows = run(scenario, fidelity="compiled").requests
    at_2_s = rows[rows["t_ns"] == 2 * 10**9]
    assert at_2_s["outcome"].value_counts().to_dict() == {"admitted": 4, "refused": 8}


def test_what_is_kept_of_a_ring_keeps_its_instants() -> None:
    """Two of four left the window at 11 s; the later of the others counts until 19.5 s."""
    text = _ONCE_HEAD
    for start, count in (("0s", 1), ("1s", 1), ("9s", 1), ("9500ms", 1)):
        text += _ONCE.format(start=start, count=count)
    text += _ONCE.format(start="11200ms", count=6) + _ONCE.format(start="19100ms", count=2)
    scenario = loads(text)
    check_same(scenario)
    rows = run(scenario, fidelity="compiled").requests
    assert rows["outcome"].tolist() == ["admitted"] * 11 + ["refused"]
    assert rows["wait_ns"].iloc[-1] == 400_000_000


def test_rings_that_grow_at_one_request_all_have_room() -> None:
    """Each request is charged to five counters, whose rings are full at the same time."""
    check_same(loads(_LONG))


_CROWD = """
duration = "40s"
[rules.LIM-PRIVATE]
rate = "100000/1h"
[rules.LIM-IP]
rate = "100000/1h"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[reactors]]
name = "r"
tenant = "t"
service = { kind = "lognormal", median = "15s", sigma = 1.0 }
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "50/1s" }
mix = [ { request = "POST /reactors/{id}/react", reactor = "r" } ]
"""


def test_a_wheel_that_grows_full_of_events_keeps_their_order() -> None:
    """One client of whom a thousand calls are under way, where there was room for a hundred."""
    scenario = loads(_CROWD)
    check_same(scenario)
    rows = run(scenario, fidelity="compiled").requests
    assert (rows["t_ns"] + rows["latency_ns"] > 30 * 10**9).sum() > 500
