"""The compiled fidelity gives the rows of the `limits` fidelity, bit for bit.

Drawn scenarios (the same that hold `limits` to `engine`), each built-in scenario whole, and what it
cannot play says so in one line.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings

from engine.errors import InputError
from simulator.kernel.deciding import LARGEST_RING
from simulator.kernel.running import KernelRun, write_rows
from simulator.rows import RunHeader, RunRecorder
from simulator.scenario import Scenario, builtin, load, loads
from simulator.study.runs import run
from simulator.traffic.population import Setup
from tests.simulator.play.test_drawn_scenarios import scenarios


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
    assert one.summary | {"fidelity": other.summary["fidelity"]} == other.summary


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=60)
def test_drawn_scenarios(text: str) -> None:
    check_same(loads(text))


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin())
def test_built_in_scenarios_whole(name: str) -> None:
    check_same(load(name))


@pytest.mark.slow
def test_records_are_the_same_in_small_pieces() -> None:
    """Records are written in order and whole, however small the pieces that the loop runs in."""
    scenario = load("management-loop")
    whole = run(scenario, fidelity="compiled")
    setup = Setup.of(scenario, scenario.seed)
    groups = setup.population.groups
    header = RunHeader(scenario.name, scenario.seed, "compiled", 0, scenario.duration_ns, 0, groups)
    book = RunRecorder(header, setup.tables, setup.profile.limits)
    write_rows(KernelRun(setup, chunk_rows=3), book)
    assert book.close().requests.equals(whole.requests)


@pytest.mark.parametrize(
    "more", ["", 'concurrency = 2\nservice = "400ms"\ndeadline = "3s"\nstart = "90s"\n']
)
def test_sessions_of_a_log(tmp_path: Path, more: str) -> None:
    """Each client sends sessions of its own, beside a group that draws; both wait in a queue."""
    rows = [
        "group,caller,key,address,stream,session,at_s,request",
        *(
            f"s,{caller},a/{caller},{caller},0,{session},{session * 40 + at},{request}"
            for caller in range(3)
            for session in range(9)
            for at, request in ((0, "POST /tokenize"), (0.5, "GET /tokens"), (0.9, "GET /tokens"))
        ),
    ]
    (tmp_path / "s.csv").write_text("\n".join(rows) + "\n", "utf-8")
    path = tmp_path / "sessions.toml"
    path.write_text(_SESSIONS.format(more=more), "utf-8")
    scenario = load(path)
    check_same(scenario)
    assert run(scenario, fidelity="compiled").summary["fidelity"] == "compiled"


_SESSIONS = """
duration = "6m"
seed = 3
[rules.LIM-CREATE]
rate = "4/30s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 6
[[addresses]]
name = "shared"
count = 6
[[clients]]
name = "sampled"
count = 6
application = "a"
addresses = "shared"
loop = "open"
arrivals = {{ kind = "sessions", file = "s.csv", group = "s", span = "6m" }}
mix = [{{ request = "GET /tokens" }}, {{ request = "POST /tokenize", weight = 9 }}]
{more}
[[clients]]
name = "drawn"
count = 2
application = "a"
addresses = "shared"
loop = "open"
arrivals = {{ kind = "poisson", rate = "20/m" }}
mix = [{{ request = "POST /tokenize" }}, {{ request = "DELETE /tokens/7", weight = 2 }}]
"""

_BURSTS = """
duration = "4m"
[rules.LIM-CREATE]
rate = "{rate}"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 2
[[clients]]
name = "c"
count = 6
application = "a"
loop = "open"
arrivals = {{ kind = "on-off", on = "2s", off = "8s", on_rate = "20/1s", off_rate = "1/2s" }}
mix = [ {{ request = "POST /tokenize" }} ]
"""


@pytest.mark.parametrize("rate", ["30/1s", "70/3s", "150/30s"])
def test_charges_that_left_the_window_are_forgotten_before_the_limit_is_met(rate: str) -> None:
    """D-ALGORITHM sliding-log: their slots serve later charges, and no decision tells."""
    scenario = loads(_BURSTS.format(rate=rate))
    check_same(scenario)
    assert "LIM-CREATE" in set(run(scenario, fidelity="compiled").requests["rule"])


def test_a_ring_has_at_most_twice_the_slots_that_its_window_held() -> None:
    scenario = loads(_BURSTS.format(rate="100000/1s"))
    played = KernelRun(Setup.of(scenario, scenario.seed))
    records = played.step()
    assert records is not None
    assert len(records) == 7_486
    # A key is asked with some 900 times a minute, the longest window, and 3,700 times in all.
    longest = played.limiter.limits.used[LARGEST_RING]
    assert longest == 1_024


@pytest.mark.parametrize("warm_up", ["0s", "5s"])
def test_a_request_that_two_counters_of_a_shadow_would_refuse_is_one(warm_up: str) -> None:
    """D-OR-COUNTER: LIM-PRIVATE counts by key and by IP; in shadow it says so once a request."""
    scenario = loads(
        f"""
duration = "10s"
warm_up = "{warm_up}"
[rules.LIM-PRIVATE]
rate = "3/1h"
shadow = true
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 2
[[addresses]]
name = "nat"
[[clients]]
name = "c"
count = 2
application = "a"
addresses = "nat"
loop = "open"
arrivals = {{ kind = "constant", rate = "1/1s" }}
"""
    )
    check_same(scenario)
    line = run(scenario, fidelity="engine").clauses.loc["LIM-PRIVATE"]
    # Two keys at one address: the address has room for three of 20, no key is ever beyond it first.
    assert (line["offered"], line["shadow_refused"]) == ((20, 17) if warm_up == "0s" else (10, 10))


def test_what_it_cannot_play_is_named() -> None:
    text = """
duration = "1m"
[choices.limits]
counted_statuses = "success"
[[tenants]]
name = "t"
[[clients]]
name = "c"
think = { kind = "constant", value = "1s" }
"""
    with pytest.raises(InputError, match="counted_statuses") as caught:
        run(loads(text), fidelity="compiled")
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
        '{ kind = "on-off", on_rate = "20/1s", on = "1s", off = "3s", begin = "either" }',
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


# --- one nanosecond, and the largest numbers -----------------------------------------------------


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


# --- arrays that fill up -------------------------------------------------------------------------


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
