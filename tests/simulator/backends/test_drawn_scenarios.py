"""Drawn scenarios: both fidelities decide alike, invariants hold, brute force agrees.

The brute force reads the rows alone and comes to every decision again.

The scenarios are drawn swarm style: each example leaves some features out entirely.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.limits import LimitTable, Subject
from engine.profile import Profile
from simulator.results import Result
from simulator.running import run
from simulator.scenario import Scenario, builtin, limit_tables_of, load, loads, profile_of
from simulator.traffic.population import KeyHolder, populate
from tests.oracles.limits import Oracle

_SHORT_RATES = st.sampled_from(["3/1s", "5/2s", "2/500ms", "4/3s"])
_KINDS = st.sampled_from(["private", "public", "management"])


@st.composite
def scenarios(draw: st.DrawFn) -> str:
    """Return the text of a small scenario with low limits, so that much is refused."""
    on = draw(
        st.sets(st.sampled_from(["retry", "pacing", "delay", "mix", "zipf", "slow", "bound"]))
    )
    lines = ['duration = "8s"', f"seed = {draw(st.integers(0, 2**63 - 1))}"]
    if draw(st.booleans()):
        lines.append('warm_up = "2s"')
    lines += ["[choices.limits]", *_choices(draw, on)]
    for rule, action in (("LIM-TEST-TENANT", ""), ("LIM-CREATE", ""), ("LIM-PRIVATE", "")):
        lines.append(f'[rules.{rule}]\nrate = "{draw(_SHORT_RATES)}"\n{action}')
    for rule in ("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-IP"):
        block = draw(st.sampled_from(["300ms", "1s", "2500ms"]))
        lines.append(f'[rules.{rule}]\nrate = "{draw(_SHORT_RATES)}"\nblock = "{block}"')
    for name, kind in (("a", "production"), ("b", "test")):
        lines.append(f'[[tenants]]\nname = "{name}"\nkind = "{kind}"')
    for place in range(draw(st.integers(1, 3))):
        lines += [
            "[[applications]]",
            f'name = "app{place}"',
            f'tenant = "{draw(st.sampled_from("ab"))}"',
            f'kind = "{draw(_KINDS)}"',
            f"keys = {draw(st.integers(1, 2))}",
            f"legacy_keys = {draw(st.integers(0, 1))}",
        ]
    lines.append(f'[[addresses]]\nname = "nat"\ncount = {draw(st.integers(1, 2))}')
    apps = sum(line == "[[applications]]" for line in lines)
    for place in range(draw(st.integers(1, 3))):
        lines += _group(draw, on, place, apps)
    return "\n".join(lines)


def _choices(draw: st.DrawFn, on: set[str]) -> list[str]:
    algorithms = ["sliding-log", "fixed-window", "sliding-counter", "token-bucket", "gcra"]
    lines = [f'algorithm = "{draw(st.sampled_from(algorithms))}"']
    if "delay" in on:
        bound = draw(st.sampled_from(["0s", "700ms", "3s"]))
        lines += ['throttle = "delay"', f'delay_bound = "{bound}"']
    for name, value in (
        ("count_refused", "true"),
        ("block_reset", '"clear"'),
        ("block_extends", "true"),
        ("compose", '"lowest"'),
        ("and_counter", '"each"'),
    ):
        if draw(st.integers(0, 5)) == 0:
            lines.append(f"{name} = {value}")
    return lines


def _group(draw: st.DrawFn, on: set[str], place: int, apps: int) -> list[str]:
    lines = ["[[clients]]", f'name = "g{place}"', f"count = {draw(st.integers(1, 3))}"]
    if draw(st.integers(0, 4)):
        lines.append(f'application = "app{draw(st.integers(0, apps - 1))}"')
    if draw(st.booleans()):
        lines.append('addresses = "nat"')
    if draw(st.booleans()):
        lines += ['loop = "open"', f"arrivals = {draw(st.sampled_from(_ARRIVALS))}"]
    else:
        lines.append(f"think = {draw(st.sampled_from(_DRAWS))}")
    for feature, name, values in (
        ("zipf", "keys", _DEALINGS),
        ("bound", "concurrency", ("1", "2", "3")),
        ("mix", "mix", (_MIX,)),
        ("retry", "retry", _RETRIES),
        ("pacing", "pacing", _PACINGS),
        ("slow", "service", _DRAWS),
    ):
        if feature in on:
            lines.append(f"{name} = {draw(st.sampled_from(values))}")
    if draw(st.integers(0, 2)) == 0:
        lines.append(f'deadline = "{draw(st.sampled_from(["400ms", "1500ms", "3s"]))}"')
    if draw(st.integers(0, 3)) == 0:
        lines += ['start = "1s"', f'stop = "{draw(st.sampled_from(["2500ms", "6s"]))}"']
    return lines


_DEALINGS = ('{ zipf = 1.1, per = "client" }', '{ zipf = 1.1, per = "request" }')
_MIX = """[
    { request = "POST /tokenize", weight = 2 },
    { request = "GET /tokens" },
    { request = "DELETE /tokens/{id}" },
]"""
_ARRIVALS = (
    '{ kind = "constant", rate = "4/1s" }',
    '{ kind = "poisson", rate = "5/1s" }',
    '{ kind = "on-off", on_rate = "20/1s", off_rate = "1/1s", on = "1s", off = "1s" }',
    '{ kind = "ramp", from = "0/1s", to = "9/1s", over = "6s" }',
)
_DRAWS = (
    '{ kind = "constant", value = "250ms" }',
    '{ kind = "exponential", mean = "300ms" }',
    '{ kind = "lognormal", median = "200ms", sigma = 0.7 }',
    '{ kind = "uniform", low = "1ms", high = "500ms" }',
)
_RETRIES = (
    '{ kind = "fixed", delay = "250ms", attempts = 3, honour_retry_after = false }',
    '{ kind = "exponential", base = "100ms", cap = "1s", attempts = 4 }',
    '{ kind = "full-jitter", base = "90ms", cap = "2s", attempts = 4, honour_retry_after = false }',
    '{ kind = "decorrelated-jitter", base = "100ms", cap = "2s", attempts = 3 }',
    '{ kind = "fixed", delay = "3s", attempts = 3 }',
)
_PACINGS = (
    '{ kind = "token-bucket", rate = "3/1s", burst = 2 }',
    '{ kind = "token-bucket", rate = "1/1s" }',
    '{ kind = "aimd", start = "5/1s", maximum = "9/1s", increase = 0.5 }',
    '{ kind = "aimd", start = "1/1s", minimum = "1/3s", maximum = "2/1s", decrease_percent = 80 }',
)


@st.composite
def outside_scenarios(draw: st.DrawFn) -> str:
    """Return the text of a small scenario whose clients invoke proxies and reactors, and upload."""
    latency = st.sampled_from([*_DRAWS, *_WHOLE_SECONDS])
    lines = ['duration = "60s"', f"seed = {draw(st.integers(0, 2**63 - 1))}"]
    lines += ["[choices.outside]", f"hot_concurrency = {draw(st.integers(0, 2))}"]
    lines.append(f'cold_start = "{draw(st.sampled_from(["0s", "700ms", "1s", "29s", "29500ms"]))}"')
    if draw(st.booleans()):
        lines.append(f"instances_cap = {draw(st.integers(1, 3))}")
    if draw(st.booleans()):
        lines.append('keep_hot = "2s"')
    lines.append('[choices.account_updater]\nfile_limit = "1KB"')
    if draw(st.booleans()):
        lines += ["[choices.limits]", 'throttle = "delay"', 'delay_bound = "9s"']
    lines += ['[rules.LIM-ACCOUNT-UPDATER]\nrate = "4/4s"', '[rules.LIM-IP]\nrate = "40/4s"']
    lines += ['[rules.LIM-PROXY-KEY]\nrate = "5/4s"', '[rules.LIM-PROXY-HOST]\nrate = "4/4s"']
    lines += ['[[tenants]]\nname = "t"', '[[applications]]\nname = "a"\ntenant = "t"']
    lines += ['[[addresses]]\nname = "nat"', '[[proxies]]\nname = "p"\ntenant = "t"']
    lines += ['host = "pay.example.com"', f"destination = {draw(latency)}"]
    lines.append(f"unreachable_share = {draw(st.sampled_from([0.0, 0.3]))}")
    lines.append(f"require_auth = {draw(st.sampled_from(['true', 'false']))}")
    for part in ("request_transform", "response_transform"):
        if draw(st.booleans()):
            lines.append(f"{part} = {draw(latency)}")
    lines.append(f'[[reactors]]\nname = "r"\ntenant = "t"\nservice = {draw(latency)}')
    for place in range(2):
        retry = draw(st.sampled_from(_OUTSIDE_RETRIES))
        lines += ["[[clients]]", f'name = "g{place}"\ncount = 2\naddresses = "nat"']
        lines.append('application = "a"')
        lines.append(draw(st.sampled_from(_OUTSIDE_LOOPS)))
        for name, values in (
            ("pacing", _PACINGS),
            ("deadline", ('"1500ms"', '"20s"', '"27s"')),
            ("stop", ('"33s"', '"50s"')),
            ("service", (*_DRAWS, '{ kind = "constant", value = "1s" }')),
        ):
            if draw(st.integers(0, 2)) == 0:
                lines.append(f"{name} = {draw(st.sampled_from(values))}")
        entries = draw(st.sets(st.sampled_from(_OUTSIDE_MIX), min_size=1))
        lines.append(f"retry = {retry}\nmix = [{', '.join(sorted(entries))}]")
    return "\n".join(lines)


_WHOLE_SECONDS = (
    '{ kind = "discrete", values = ["0s", "24s", "25s", "26s", "40s"] }',
    '{ kind = "discrete", values = ["0s", "500ms", "1s", "2s", "29s", "30s"] }',
    '{ kind = "constant", value = "1s" }',
)
_OUTSIDE_MIX = (
    '{ request = "GET /proxy/pay", proxy = "p" }',
    '{ request = "POST /proxy/pay", proxy = "p", via = "host" }',
    '{ request = "POST /reactors/{id}/react", reactor = "r" }',
    '{ request = "POST /account-updater/jobs", size = "2500B", split = true }',
    '{ request = "POST /account-updater/jobs", size = "900B" }',
)
_OUTSIDE_LOOPS = (
    'think = { kind = "exponential", mean = "500ms" }',
    'think = { kind = "constant", value = "1s" }\nconcurrency = 3',
    'loop = "open"\narrivals = { kind = "poisson", rate = "2/1s" }',
    'loop = "open"\narrivals = { kind = "constant", rate = "1/1s" }\nconcurrency = 2',
)
_OUTSIDE_RETRIES = (
    '{ kind = "none" }',
    '{ kind = "full-jitter", base = "100ms", cap = "2s", attempts = 3, on = [429, 408, 502] }',
    '{ kind = "fixed", delay = "1s", attempts = 2, on = [504, 429] }',
)


def check_both(text: str) -> tuple[Scenario, Result]:
    """Play a scenario in both fidelities; they decide alike and no invariant breaks."""
    scenario = loads(text)
    by_limits = run(scenario, fidelity="limits")
    by_engine = run(scenario, fidelity="engine")
    assert by_limits.violations == ()
    assert by_engine.violations == ()
    one, other = by_limits.requests, by_engine.requests
    columns = [name for name in one.columns if name != "status"]
    assert one[columns].equals(other[columns])
    assert by_limits.summary["decisions_sha256"] == by_engine.summary["decisions_sha256"]
    return scenario, by_limits


def recompute(scenario: Scenario, result: Result) -> None:
    """Come to every decision again from the rows alone, by brute force."""
    tables: dict[str, LimitTable] = limit_tables_of(scenario)
    profile: Profile = profile_of(scenario)
    holders = {holder.label: holder for holder in populate(scenario, scenario.seed).keys}
    oracle = Oracle(tables, profile.limits)
    for row in result.table.to_pylist():
        holder: KeyHolder | None = holders.get(row["key"])
        subject = Subject(
            row["method"],
            row["path"],
            row["ip"],
            key_id=holder.label if holder else None,
            tenant_kind=holder.tenant_kind if holder else None,
            application_kind=holder.application_kind if holder else None,
            legacy=holder.legacy if holder else False,
        )
        verdict = oracle.decide(row["t_ns"], subject)
        found = (verdict.outcome, verdict.rule, verdict.wait_ns)
        assert found == (row["outcome"], row["rule"], row["wait_ns"])


@given(scenarios())
@settings(max_examples=8)
def test_drawn_scenarios(text: str) -> None:
    recompute(*check_both(text))


@pytest.mark.slow
@given(outside_scenarios())
@settings(max_examples=25)
def test_drawn_scenarios_with_proxies_and_reactors(text: str) -> None:
    """Behind a proxy and in a reactor both fidelities take the same time, to the nanosecond."""
    check_both(text)


def test_a_tenant_with_a_table_of_its_own_decides_alike(tmp_path: Path) -> None:
    """QUO-RATE, with a proxy, a reactor and uploads that the tenant has from the start."""
    own = (
        '[[rule]]\nid = "LIM-PRIVATE"\nmatch = { application = "private" }\n'
        'counter = "key"\nrate = "4/2s"\naction = "block"\nblock = "3s"\n'
    )
    (tmp_path / "own.toml").write_text(own)
    _, result = check_both(
        f"""
duration = "20s"
limit_tables = {{ own = "{tmp_path}/own.toml" }}
[[tenants]]
name = "t"
quotas = {{ "Rate Limit" = "own" }}
[[tenants]]
name = "u"
[[applications]]
name = "a"
tenant = "t"
[[applications]]
name = "b"
tenant = "u"
[[proxies]]
name = "p"
tenant = "t"
destination = {{ kind = "constant", value = "1s" }}
[[reactors]]
name = "r"
tenant = "t"
service = {{ kind = "constant", value = "1s" }}
[[clients]]
name = "c"
count = 2
application = "a"
think = {{ kind = "exponential", mean = "300ms" }}
mix = [
    {{ request = "POST /proxy/pay", proxy = "p" }},
    {{ request = "POST /reactors/{{id}}/react", reactor = "r" }},
    {{ request = "POST /account-updater/jobs" }},
]
[[clients]]
name = "d"
application = "b"
think = {{ kind = "exponential", mean = "300ms" }}
"""
    )
    refused = result.metrics(by="group")["refused"]
    assert refused["c"] > 0
    assert refused["d"] == 0


def test_an_outside_that_takes_no_time_is_waited_for_like_another() -> None:
    """A retry is counted from the answer, which comes after the service's own time."""
    _, result = check_both(
        """
duration = "9s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[proxies]]
name = "p"
tenant = "t"
destination = { kind = "discrete", values = ["0s", "400ms"] }
unreachable_share = 0.8
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "2/1s" }
service = { kind = "exponential", mean = "1s" }
mix = [ { request = "GET /proxy/pay", proxy = "p" } ]
retry = { kind = "full-jitter", base = "1s", cap = "4s", attempts = 3, on = [429, 502] }
"""
    )
    assert (result.requests["attempt"] > 1).any()


@pytest.mark.slow
@given(scenarios())
@settings(max_examples=60)
def test_many_drawn_scenarios(text: str) -> None:
    recompute(*check_both(text))


@pytest.mark.slow
@pytest.mark.parametrize("name", builtin())
def test_built_in_scenarios_in_both_fidelities(name: str) -> None:
    scenario = load(name)
    one, other = run(scenario, fidelity="limits"), run(scenario, fidelity="engine")
    assert one.violations == ()
    assert other.violations == ()
    assert one.summary["decisions_sha256"] == other.summary["decisions_sha256"]


def test_the_same_seed_gives_the_same_values_and_another_seed_others() -> None:
    one, again = run("retry-storm", fidelity="limits"), run("retry-storm", fidelity="limits")
    other = run("retry-storm", fidelity="limits", seed=8)
    assert one.summary == again.summary
    assert one.summary["sha256"] != other.summary["sha256"]
