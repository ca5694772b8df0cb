"""The worked examples of the limits, played as scenarios, in both fidelities and to the instant."""

from __future__ import annotations

import pytest

from simulator.rows import Result
from simulator.study.runs import run

S = 1_000_000_000
FIDELITIES = ("limits", "engine")


def play(
    body: str, fidelity: str = "limits", *, duration: str = "200s", kind: str = "production"
) -> Result:
    """Run a scenario of one tenant whose parts are given."""
    text = f"""
        duration = "{duration}"
        [[tenants]]
        name = "t"
        kind = "{kind}"
        {body}
    """
    result = run(text, fidelity=fidelity)  # type: ignore[arg-type] # reason: parametrised
    assert result.violations == ()
    return result


def client(
    application: str, arrivals: str, *, request: str = "POST /tokenize", more: str = ""
) -> str:
    """Return one open-loop client with a key of the given kind."""
    return f"""
        [[applications]]
        name = "a"
        tenant = "t"
        {application}
        [[clients]]
        name = "c"
        application = "a"
        loop = "open"
        arrivals = {arrivals}
        mix = [{{ request = "{request}" }}]
        {more}
    """


def refused_s(result: Result) -> list[float]:
    """Return the instants of refusals, in seconds."""
    frame = result.requests
    return (frame["t_ns"][frame["outcome"].isin(["refused", "blocked"])] / S).tolist()


def spans(*pairs: tuple[int, int]) -> list[float]:
    """Return whole seconds from … to …, both included."""
    return [float(s) for first, last in pairs for s in range(first, last + 1)]


ONE_A_SECOND = '{ kind = "constant", rate = "1/1s" }'
PUBLIC = 'kind = "public"'
E1 = {
    ("sliding-log", "throttle"): spans((50, 59), (110, 119), (170, 179)),
    ("sliding-log", "keep"): spans((50, 59), (110, 119), (170, 179)),
    ("sliding-log", "extends"): spans((50, 199)),
    ("fixed-window", "clear"): spans((50, 59), (110, 119), (170, 179)),
    ("sliding-counter", "keep"): spans((50, 69), (120, 129), (180, 189)),
    ("sliding-counter", "clear"): spans((50, 59), (110, 119), (170, 179)),
    ("sliding-counter", "extends"): spans((50, 199)),
}
ACTIONS = {
    "throttle": '[rules.LIM-PUBLIC]\naction = "throttle"',
    "keep": "",
    "clear": '[choices.limits]\nblock_reset = "clear"',
    "extends": "[choices.limits]\nblock_extends = true",
}


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(("algorithm", "action"), E1)
def test_e1_a_public_key_one_request_a_second(algorithm: str, action: str, fidelity: str) -> None:
    choice = f'[choices.limits]\nalgorithm = "{algorithm}"'
    more = ACTIONS[action]
    if more.startswith("[choices"):
        choice, more = f"{choice}\n{more.partition(chr(10))[2]}", ""
    body = client(PUBLIC, ONE_A_SECOND) + f"\n{choice}\n{more}\n"
    assert refused_s(play(body, fidelity)) == E1[algorithm, action]


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e2_a_burst_of_51_at_once(fidelity: str) -> None:
    burst = client(PUBLIC, '{ kind = "constant", rate = "51/1ns" }', more='stop = "1ns"')
    then = client(PUBLIC, ONE_A_SECOND, more='start = "1s"').partition("[[clients]]")[2]
    then = then.replace('"c"', '"d"')
    one_address = '[[addresses]]\nname = "one"\n'
    text = (burst + "\n[[clients]]" + then).replace("loop", 'addresses = "one"\nloop')
    found = play(one_address + text, fidelity, duration="100s")
    assert refused_s(found) == spans((0, 59))


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e4_a_legacy_key_on_a_test_tenant(fidelity: str) -> None:
    body = client(
        "legacy_keys = 1", '{ kind = "constant", rate = "60/1s" }', request="POST /tokens"
    )
    found = play(body, fidelity, duration="1s", kind="test")
    lines = {line["clause"]: line for line in found.summary["clauses"]}
    assert found.summary["totals"]["admitted"] == 50
    assert lines["LIM-TEST-TENANT"]["refused"] == 10
    lowest = play(
        body + '\n[choices.limits]\ncompose = "lowest"\n', fidelity, duration="1s", kind="test"
    )
    assert lowest.summary["totals"]["admitted"] == 60


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e5_a_management_key_four_requests_a_second(fidelity: str) -> None:
    body = client(
        'kind = "management"', '{ kind = "constant", rate = "4/1s" }', request="GET /tenants/self"
    )
    quarters = [q / 4 for q in range(200, 440)]
    found = play(body, fidelity, duration="160s")
    assert refused_s(found) == quarters
    line = next(x for x in found.summary["clauses"] if x["clause"] == "LIM-MANAGEMENT")
    assert line["blocked_ns"] == 60 * S
    assert (line["keys"], line["ips"]) == (1, 1)


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e6_ten_requests_a_second_refused_counted_or_delayed(fidelity: str) -> None:
    body = client("", '{ kind = "constant", rate = "10/1s" }')
    tenths = [t / 10 for t in (*range(50, 100), *range(150, 200))]
    assert refused_s(play(body, fidelity, duration="20s", kind="test")) == tenths
    counted = body + "\n[choices.limits]\ncount_refused = true\n"
    found = play(counted, fidelity, duration="20s", kind="test")
    assert refused_s(found) == [t / 10 for t in range(50, 200)]
    delay = body + '\n[choices.limits]\nthrottle = "delay"\n'
    frame = play(delay, fidelity, duration="25s", kind="test").requests
    waits = [
        None if outcome == "refused" else wait_ns // S
        for outcome, wait_ns in zip(frame["outcome"], frame["wait_ns"], strict=True)
    ]
    assert waits == [0] * 50 + [5] * 50 + [10] * 50 + [None] * 50 + [10] * 50
    late = frame[frame["outcome"] == "delayed"]
    assert (late["latency_ns"] == late["wait_ns"]).all()


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e10_a_reactor_starts_cold_beyond_its_hot_instance(fidelity: str) -> None:
    at = (
        '[[clients]]\nname = "{n}"\napplication = "a"\nloop = "open"\nstart = "{t}"\nstop = "{u}"\n'
    )
    at += 'arrivals = { kind = "constant", rate = "{r}/1s" }\n'
    at += 'mix = [{ request = "POST /reactors/{id}/react", reactor = "r" }]\n'
    text = '[[applications]]\nname = "a"\ntenant = "t"\n'
    text += (
        '[[reactors]]\nname = "r"\ntenant = "t"\nservice = { kind = "constant", value = "1s" }\n'
    )
    text += '[choices.outside]\ncold_start = "2s"\n'
    for name, t, rate in (("x", "0s", 3), ("y", "500ms", 1), ("z", "1500ms", 1)):
        until = "1ns" if name == "x" else "1600ms"
        part = at.replace("{n}", name).replace("{t}", t).replace("{u}", until)
        text += part.replace("{r}/1s", "3/1ns" if name == "x" else f"{rate}/2s")
    frame = play(text, fidelity, duration="2s").requests
    ends = [
        (t + latency) / S for t, latency in zip(frame["t_ns"], frame["latency_ns"], strict=True)
    ]
    assert ends == [1, 3, 3, 3.5, 2.5]


@pytest.mark.parametrize("fidelity", FIDELITIES)
@pytest.mark.parametrize(
    ("latency", "answered_s", "status"), [("25s", 25, 200), ("25000000001ns", 25, 408)]
)
def test_e10_a_destination_may_take_25_seconds(
    fidelity: str, latency: str, answered_s: int, status: int
) -> None:
    text = f"""
        [[proxies]]
        name = "p"
        tenant = "t"
        destination = {{ kind = "constant", value = "{latency}" }}
        [[clients]]
        name = "c"
        loop = "open"
        arrivals = {{ kind = "constant", rate = "1/10s" }}
        mix = [{{ request = "POST /proxy/pay", proxy = "p" }}]
    """
    frame = play(text, fidelity, duration="1s").requests
    assert frame["latency_ns"].tolist() == [answered_s * S]
    if fidelity == "engine" or status != 200:
        assert frame["status"].tolist() == [status]


def instants(kind: str, *counts: tuple[int, int]) -> str:
    """Return a scenario's clients: so many requests of one key and address at each instant, ns."""
    text = f'[[addresses]]\nname = "one"\n[[applications]]\nname = "a"\ntenant = "t"\n{kind}\n'
    for place, (count, at_ns) in enumerate(counts):
        text += (
            f'[[clients]]\nname = "c{place}"\napplication = "a"\naddresses = "one"\n'
            f'loop = "open"\nstart = "{at_ns}ns"\nstop = "{at_ns + 1}ns"\n'
            f'arrivals = {{ kind = "constant", rate = "{count}/1ns" }}\n'
            'mix = [{ request = "POST /tokenize" }]\n'
        )
    return text


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e3_the_block_itself(fidelity: str) -> None:
    end_ns = 65_500_000_000
    body = instants(
        PUBLIC,
        (1, 0),
        (49, 55 * S),
        (1, 55_500_000_000),
        (1, 62 * S),
        (1, end_ns - 1),
        (1, end_ns),
        (1, 66 * S),
    )
    frame = play(body, fidelity, duration="70s").requests
    late = frame[frame["t_ns"] > 55 * S]
    assert late["outcome"].tolist() == ["blocked", "blocked", "blocked", "admitted", "blocked"]
    assert late["wait_ns"].tolist()[:3] == [10 * S, end_ns - 62 * S, 1]
    throttle = f"{body}\n[rules.LIM-PUBLIC]\naction = 'throttle'\n"
    frame = play(throttle, fidelity, duration="70s").requests
    assert frame[frame["t_ns"] == 62 * S]["outcome"].tolist() == ["admitted"]


@pytest.mark.parametrize("fidelity", FIDELITIES)
def test_e7_an_edge(fidelity: str) -> None:
    body = instants("", (50, 0), (1, 10 * S - 1), (1, 10 * S))
    frame = play(body, fidelity, duration="11s", kind="test").requests
    assert frame["outcome"].tolist() == ["admitted"] * 50 + ["refused", "admitted"]
    assert frame["wait_ns"].tolist()[50] == 1
