"""The compiled fidelity gives the rows of the `limits` fidelity, bit for bit.

Drawn scenarios (the same that hold `limits` to `engine`), each built-in scenario whole, and what it
cannot play says so in one line.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings

from engine.errors import InputError
from simulator.running import run
from simulator.scenario import Scenario, builtin, load, loads
from tests.simulator.backends.test_drawn_scenarios import scenarios

_CANNOT = {"cold-starts", "slow-destination"}
_LONG = {"month-end"}


def check_same(scenario: Scenario) -> None:
    """Play a scenario in both fidelities; rows and summaries are the same."""
    one, other = run(scenario, fidelity="limits"), run(scenario, fidelity="compiled")
    frame, compiled = one.requests, other.requests
    for name in frame.columns:
        left, right = frame[name], compiled[name]
        if left.dtype.name == "category":
            left, right = left.astype(object), right.astype(object)
        assert left.equals(right), name
    assert other.violations == ()
    assert one.summary | {"fidelity": "compiled"} == other.summary


@given(scenarios())
@settings(max_examples=60)
def test_drawn_scenarios(text: str) -> None:
    check_same(loads(text))


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=1500)
def test_thousands_of_drawn_scenarios(text: str) -> None:
    check_same(loads(text))


@pytest.mark.slow
@pytest.mark.parametrize("name", sorted(set(builtin()) - _CANNOT - _LONG))
def test_built_in_scenarios_whole(name: str) -> None:
    check_same(load(name))


@pytest.mark.parametrize(
    ("name", "feature"),
    [
        ("cold-starts", "invokes a reactor"),
        ("slow-destination", "asks for a proxy"),
    ],
)
def test_what_it_cannot_play_is_named(name: str, feature: str) -> None:
    with pytest.raises(InputError, match=feature) as caught:
        run(name, fidelity="compiled")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    "arrivals",
    [
        '{ kind = "constant", rate = "7/1s" }',
        '{ kind = "poisson", rate = "9/1s" }',
        '{ kind = "steps", steps = [{ rate = "3/1s" }, { at = "2s", rate = "0/1s" }] }',
        '{ kind = "ramp", from = "20/1s", to = "1/1s", over = "5s" }',
        '{ kind = "daily", rate = "9/1s", day = "6s" }',
        '{ kind = "on-off", on_rate = "20/1s", off_rate = "0/1s", on = "1s", off = "700ms" }',
    ],
)
@pytest.mark.parametrize(
    "deal", ["", 'keys = { per = "request" }', 'keys = { zipf = 1.2, per = "request" }']
)
def test_every_arrival_process_and_dealing(arrivals: str, deal: str) -> None:
    check_same(
        loads(
            f"""
duration = "12s"
[choices.limits]
algorithm = "gcra"
[rules.LIM-PUBLIC]
rate = "9/1s"
block = "700ms"
shadow = true
[rules.LIM-IP]
rate = "12/1s"
block = "400ms"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
keys = 4
[[addresses]]
name = "nat"
count = 3
deal = {{ zipf = 1.0, per = "request" }}
[[clients]]
name = "c"
count = 3
application = "a"
addresses = "nat"
loop = "open"
start = "500ms"
service = {{ kind = "discrete", values = ["1ms", "40ms", "2s"], weights = [5, 3, 1] }}
arrivals = {arrivals}
{deal}
mix = [ {{ request = "POST /tokenize", weight = 3 }}, {{ request = "GET /tokens" }} ]
retry = {{ kind = "decorrelated-jitter", base = "50ms", cap = "3s", attempts = 3 }}
"""
        )
    )
