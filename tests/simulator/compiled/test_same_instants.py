"""What happens at one and the same nanosecond, compiled as in the reference: who comes first.

An instant that is excluded, an instance that cools down as it is asked for, and a bell that rings
as the time to wait is over (RCT-HOT, RCT-TIMEOUT, D-HOT, D-REACTOR-TIMEOUT).
"""

from __future__ import annotations

import pandas as pd
import pytest

from engine.errors import InputError
from simulator.scenario import loads
from simulator.study.runs import run
from tests.simulator.compiled.test_same_decisions import check_same

S = 10**9

_HEAD = """
duration = "20s"
[choices.outside]
{outside}
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[reactors]]
name = "r"
tenant = "t"
service = {{ kind = "constant", value = "{service}" }}
"""

_ONE = """
[[clients]]
name = "c{number}"
application = "a"
loop = "open"
start = "{start}"
arrivals = {{ kind = "constant", rate = "{rate}" }}
mix = [ {{ request = "POST /reactors/{{id}}/react", reactor = "r" }} ]
"""


def react(outside: str, service: str, starts: list[str], rate: str = "1/1h") -> pd.DataFrame:
    """Play clients that ask a reactor from these instants on, in both fidelities."""
    text = _HEAD.format(outside=outside, service=service)
    for number, start in enumerate(starts):
        text += _ONE.format(number=number, start=start, rate=rate)
    scenario = loads(text)
    check_same(scenario)
    return run(scenario, fidelity="compiled").requests


def test_an_instance_is_cold_at_the_very_instant_until_which_it_was_hot() -> None:
    """D-HOT: one second cold, one of code, and two until the next request: kept two, it is cold."""
    outside = 'hot_concurrency = 0\ncold_start = "1s"\nkeep_hot = "{}"'
    found = react(outside.format("2s"), "1s", ["0s"], rate="1/4s")
    assert set(found["latency_ns"]) == {2 * S}
    found = react(outside.format("2001ms"), "1s", ["0s"], rate="1/4s")
    assert found["latency_ns"].tolist()[:2] == [2 * S, 1 * S]


def test_of_two_hot_instances_the_one_that_would_live_longest_is_taken() -> None:
    """D-HOT: at 7 s both are hot; at 9 s the one that was left is not."""
    outside = 'hot_concurrency = 0\ncold_start = "1s"\nkeep_hot = "4s"'
    found = react(outside, "3s", ["0s", "2s", "7s", "9s"])
    assert found["latency_ns"].tolist() == [4 * S, 4 * S, 3 * S, 4 * S]


_PAIRS = """
duration = "10m"
[choices.outside]
hot_concurrency = 0
cold_start = "1s"
keep_hot = "0s"
instances_cap = 1
reactor_timeout = "3s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[proxies]]
name = "p"
tenant = "t"
require_auth = true
destination = { kind = "constant", value = "4s" }
request_transform = { kind = "discrete", values = ["0s", "2s"], weights = [1, 1] }
[[clients]]
name = "c"
count = 2
application = "a"
loop = "open"
arrivals = { kind = "constant", rate = "1/20s" }
mix = [ { request = "POST /proxy/score", proxy = "p" } ]
"""


def test_a_bell_that_rings_as_the_time_is_over_wakes_nobody_twice() -> None:
    """RCT-TIMEOUT: the only instance is given back as the time of who waits for it is over.

    Cold for a second and two of code, of three that a call may take; who then has nothing to run
    goes on to the destination, and its four seconds are whole.
    """
    scenario = loads(_PAIRS)
    check_same(scenario)
    found = run(scenario, fidelity="compiled").requests
    met = found[found["latency_ns"] == 7 * S]
    assert met["t_ns"].value_counts().max() == 2
    assert met["status"].isna().all()


_PACED = """
duration = "5s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = {{ kind = "constant", rate = "10/1s" }}
pacing = {{ kind = "token-bucket", rate = "{rate}" }}
{retry}
"""


def test_a_turn_that_comes_at_the_end_makes_no_attempt() -> None:
    """`until` excludes its instant, and so does a deadline."""
    scenario = loads(_PACED.format(rate="1/1s", retry=""))
    check_same(scenario)
    found = run(scenario, fidelity="compiled").requests
    assert found["t_ns"].tolist() == [second * S for second in range(5)]
    for deadline in ("900ms", "1800ms"):
        check_same(loads(_PACED.format(rate="1/1s", retry=f'deadline = "{deadline}"')))


_ALONE = """
duration = "{duration}"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[clients]]
name = "c"
application = "a"
{clients}
"""


def test_a_constant_rate_is_exact_where_its_numbers_multiply_beyond_64_bits() -> None:
    limit, window_ns = 2_147_483_647, 365 * 86_400 * S
    clients = f'loop = "open"\narrivals = {{ kind = "constant", rate = "{limit}/365d" }}'
    scenario = loads(_ALONE.format(duration="10s", clients=clients))
    check_same(scenario)
    found = run(scenario, fidelity="compiled").requests["t_ns"].tolist()
    assert found == [k * window_ns // limit for k in range(681)]


def test_a_mean_of_years_is_drawn_alike() -> None:
    clients = 'count = 9\nthink = { kind = "exponential", mean = "300d" }'
    scenario = loads(_ALONE.format(duration="600d", clients=clients))
    check_same(scenario)
    assert run(scenario, fidelity="limits").summary["totals"]["offered"] > 0


def test_a_pace_beyond_all_clocks_is_kept_alike() -> None:
    pacing = '{ kind = "aimd", start = "1/1s", maximum = "2000000000/1ns", increase = 1000000 }'
    clients = f'think = "1s"\npacing = {pacing}'
    check_same(loads(_ALONE.format(duration="9s", clients=clients)))


def test_a_delay_of_a_century_is_told_by_its_own_name() -> None:
    clients = 'think = "1s"\nretry = { kind = "fixed", delay = "36500d" }'
    scenario = loads(_ALONE.format(duration="9s", clients=clients))
    with pytest.raises(InputError, match=r"clients\.c\.retry\.delay must be below 36 years"):
        run(scenario, fidelity="compiled")
