"""Theory: where queueing has a closed form, simulated values lie within its confidence interval.

Sources: Kleinrock, Queueing Systems I (1975), for M/G/∞, Erlang's formulas and M/D/1 (the
Pollaczek–Khinchine mean); Brun and Garcia, "Analytical solution of finite capacity M/D/1 queues",
J. Appl. Prob. 37 (2000), for the loss of M/D/1/K, which is what a token bucket is to a Poisson
stream: its debt is the unfinished work.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from scipy import stats

from simulator.rows import Result
from simulator.study.runs import run

S = 1_000_000_000
SEEDS = range(100, 112)


def check(text: str, value: Callable[[Result], float], theory: float) -> None:
    """Hold the mean over runs within Student's interval (99.9 %) of the closed form."""
    found = [value(run(text, fidelity="limits", seed=seed)) for seed in SEEDS]
    mean, error = float(np.mean(found)), float(stats.sem(found))
    reach = float(stats.t.ppf(0.9995, len(found) - 1)) * error
    assert error > 0
    assert reach < 0.15 * theory, "the test is too weak to see a fault"
    assert abs(mean - theory) <= reach, (mean, theory, reach)


def reactor(service: str, rate: str, choices: str) -> str:
    """Return a scenario of Poisson invocations of one reactor."""
    return f"""
        duration = "1000s"
        warm_up = "50s"
        [choices.outside]
        {choices}
        [[tenants]]
        name = "t"
        [[applications]]
        name = "a"
        tenant = "t"
        [[reactors]]
        name = "r"
        tenant = "t"
        service = {service}
        [[clients]]
        name = "c"
        application = "a"
        loop = "open"
        arrivals = {{ kind = "poisson", rate = "{rate}" }}
        mix = [{{ request = "POST /reactors/{{id}}/react", reactor = "r" }}]
    """


def rows(result: Result) -> tuple[np.ndarray, np.ndarray]:
    """Return arrival and answer instants after the warm-up, in seconds."""
    frame = result.requests
    frame = frame[frame["t_ns"] >= result.summary["warm_up_ns"]]
    begins = frame["t_ns"].to_numpy() / S
    return begins, begins + frame["latency_ns"].to_numpy() / S


LOGNORMAL = '{ kind = "lognormal", median = "800ms", sigma = 0.8 }'
LOGNORMAL_MEAN_S = 0.8 * math.exp(0.8**2 / 2)


@pytest.mark.slow
def test_unbounded_fan_out_is_m_g_infinity() -> None:
    """RCT-HOT without cold starts: nobody waits, and arrivals find a Poisson number there."""
    text = reactor(LOGNORMAL, "3/1s", 'cold_start = "0s"')
    load = 3 * LOGNORMAL_MEAN_S

    def seen(result: Result) -> np.ndarray:
        begins, ends = rows(result)
        ended = np.searchsorted(np.sort(ends), begins, side="right")
        return np.arange(len(begins)) - ended

    check(text, lambda result: float(seen(result)[100:].mean()), load)
    check(text, lambda result: float(seen(result)[100:].var()), load)


def test_cold_starts_are_erlangs_loss_of_the_hot_instance() -> None:
    """RCT-HOT: who finds the one hot instance busy starts cold, a share of ρ / (1 + ρ)."""
    service = '{ kind = "uniform", low = "200ms", high = "2s" }'
    text = reactor(service, "1/2s", 'cold_start = "5s"')
    load = 0.5 * 1.1

    def cold(result: Result) -> float:
        begins, ends = rows(result)
        return float((ends - begins > 5.0).mean())  # no service alone takes so long

    check(text, cold, load / (1 + load))


@pytest.mark.slow
@pytest.mark.parametrize("servers", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_cap_makes_a_reactor_m_m_c(servers: int) -> None:
    """D-HOT with a cap: Erlang's C for the share that waits, and the mean wait."""
    rate, mean_s = 0.75 * servers, 1.0
    choices = f'cold_start = "0s"\nhot_concurrency = {servers}\ninstances_cap = {servers}'
    service = '{ kind = "exponential", mean = "1s" }'
    text = reactor(service, f"{int(rate * 4)}/4s", choices).replace("1000s", "4000s")
    load = rate * mean_s
    full = load**servers / math.factorial(servers) * servers / (servers - load)
    waits = full / (sum(load**k / math.factorial(k) for k in range(servers)) + full)
    mean_wait_s = waits / (servers / mean_s - rate)

    def latency(result: Result) -> float:
        begins, ends = rows(result)
        return float((ends - begins).mean())

    patient = text.replace("[choices.outside]", '[choices.outside]\nreactor_timeout = "10000s"')
    check(patient, latency, mean_wait_s + mean_s)


def limited(rule: str, choices: str, rate: str) -> str:
    """Return a scenario of a Poisson stream against one throttle."""
    return f"""
        duration = "2000s"
        warm_up = "20s"
        [rules.LIM-PUBLIC]
        action = "throttle"
        {rule}
        [choices.limits]
        {choices}
        [[tenants]]
        name = "t"
        [[applications]]
        name = "a"
        tenant = "t"
        kind = "public"
        [[clients]]
        name = "c"
        application = "a"
        loop = "open"
        arrivals = {{ kind = "poisson", rate = "{rate}" }}
    """


@pytest.mark.slow
def test_strict_spacing_with_delay_is_m_d_1() -> None:
    """D-THROTTLE delay, gcra with burst 1: the mean delay is ρ · D / (2 (1 − ρ))."""
    rule = 'rate = "2/1s"\nalgorithm = "gcra"\nburst = 1'
    text = limited(rule, 'throttle = "delay"\ndelay_bound = "9000s"', "3/2s")
    text = text.replace("2000s", "5000s")
    load, spacing_s = 0.75, 0.5
    theory = load * spacing_s / (2 * (1 - load))

    def wait(result: Result) -> float:
        frame = result.requests
        return float(frame["wait_ns"][frame["t_ns"] >= 20 * S].mean() / S)

    check(text, wait, theory)


@pytest.mark.slow
@pytest.mark.parametrize("load", [0.8, 1.0, 1.5])
@pytest.mark.parametrize("algorithm", ["token-bucket", "gcra"])
def test_a_poisson_stream_against_a_token_bucket_is_m_d_1_k(load: float, algorithm: str) -> None:
    """D-ALGORITHM: the refused share of a bucket of K is the loss of M/D/1/K."""
    size = 4
    text = limited(f'rate = "{size}/2s"\nalgorithm = "{algorithm}"', "", f"{int(load * 20)}/10s")
    last = size - 1
    b = sum(
        (-1) ** k / math.factorial(k) * (last - k) ** k * math.exp((last - k) * load) * load**k
        for k in range(size)
    )
    theory = 1 - b / (1 + load * b)
    check(text, lambda result: result.summary["totals"]["refused_share"], theory)


def test_a_poisson_stream_against_a_fixed_window() -> None:
    """D-ALGORITHM: what exceeds N in each window is refused, E[(X − N)⁺] of a Poisson X."""
    text = limited('rate = "10/10s"\nalgorithm = "fixed-window"', "", "10/10s")
    many = np.arange(11, 200)
    theory = float(((many - 10) * stats.poisson(10).pmf(many)).sum() / 10)
    check(text, lambda result: result.summary["totals"]["refused_share"], theory)


@pytest.mark.slow
def test_little_s_law_holds_for_a_closed_loop() -> None:
    """N = X · (think + service): sixty clients that are never refused."""
    text = """
        duration = "1000s"
        warm_up = "50s"
        [[tenants]]
        name = "t"
        [[clients]]
        name = "c"
        count = 60
        think = { kind = "exponential", mean = "4s" }
        service = { kind = "exponential", mean = "1s" }
    """
    check(text, lambda result: result.summary["totals"]["offered"] / 950 * 5, 60.0)
