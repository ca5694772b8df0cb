"""What happens at one and the same nanosecond, and with the largest numbers, compiled alike."""

from __future__ import annotations

from simulator.scenario import loads
from simulator.study.runs import run
from tests.simulator.kernel.test_same_decisions import check_same

S = 10**9

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
