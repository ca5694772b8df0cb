"""Workload CL1: closed-loop clients that think, ask, back off and retry; compiled against SimPy.

Idiomatic SimPy is a process a client that draws from numpy's Philox and asks the limiter; the
compiled loop plays the same scenario to the same rows. Both keep a row an attempt. Beside them is
the reference fidelity whole, with everything that a run writes.
"""

from collections.abc import Callable, Generator
from functools import partial
from typing import Any

import numpy as np
import simpy

from engine.limits import Limiter, Subject
from simulator.kernel.running import KernelRun, warm_up
from simulator.scenario import Scenario, limit_tables_of, loads, profile_of
from simulator.traffic.draws import stream_number
from simulator.traffic.population import Setup, populate
from tests.benchmarks import _measure

_SECOND_NS = 1_000_000_000
_Process = Generator[simpy.Event, object, None]


def cl1(clients: int, duration_s: int) -> Scenario:
    """Return CL1: 64 keys, an address for 4 clients, think 2 s, full jitter 0.2 s up to 20 s."""
    return loads(
        f"""
name = "cl1"
duration = "{duration_s}s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = {max(1, clients // 32)}
[[addresses]]
name = "nat"
count = {max(1, clients // 4)}
[[clients]]
name = "c"
count = {clients}
application = "a"
addresses = "nat"
think = {{ kind = "exponential", mean = "2s" }}
service = {{ kind = "exponential", mean = "20ms" }}
retry = {{ kind = "full-jitter", base = "200ms", cap = "20s", attempts = 6 }}
mix = [ {{ request = "POST /tokenize" }} ]
[rules.LIM-CREATE]
rate = "10/10s"
"""
    )


def _compiled(scenario: Scenario, count: list[int]) -> Callable[[], object]:
    run = KernelRun(Setup.of(scenario, scenario.seed))

    def play() -> None:
        total = 0
        while (rows := run.step()) is not None:
            total += len(rows)
        count[0] = total

    return play


def _idiomatic(scenario: Scenario, count: list[int]) -> Callable[[], object]:
    """Return the model as somebody who knows SimPy writes it."""
    population = populate(scenario, scenario.seed)
    profile = profile_of(scenario)
    limiter = Limiter(limit_tables_of(scenario), profile.limits)
    rows: list[tuple[Any, ...]] = []

    def client(env: simpy.Environment, number: int, chance: np.random.Generator) -> _Process:
        of = population.clients[number]
        holder = of.keys[of.deal_key()]
        subject = Subject(
            "POST",
            "/tokenize",
            of.addresses[of.deal_address()],
            key_id=holder.label,
            tenant_kind=holder.tenant_kind,
            application_kind=holder.application_kind,
        )
        while True:
            yield env.timeout(int(chance.exponential(2 * _SECOND_NS)))
            for attempt in range(6):
                decision = limiter.decide(int(env.now), subject)
                rows.append((env.now, number, attempt + 1, decision.outcome, decision.wait_ns))
                if decision.admitted:
                    yield env.timeout(int(chance.exponential(20_000_000)))
                    break
                jitter = chance.uniform(0, min(20.0, 0.2 * 2**attempt)) * _SECOND_NS
                told = -(-decision.wait_ns // _SECOND_NS) * _SECOND_NS
                yield env.timeout(int(max(jitter, told)))

    env = simpy.Environment()
    for number in range(len(population.clients)):
        key = [scenario.seed, stream_number(f"client/{number}")]
        chance = np.random.Generator(np.random.Philox(key=np.array(key, dtype=np.uint64)))
        env.process(client(env, number, chance))

    def play() -> None:
        env.run(until=scenario.duration_ns)
        count[0] = len(rows)

    return play


def _attempts(prepare: Callable[[Scenario, list[int]], Callable[[], object]], of: Scenario) -> int:
    count = [0]
    prepare(of, count)()
    return count[0]


def main(*, big: bool = False) -> None:
    """Print the tables."""
    warm_up(print)
    for clients, ours_s, theirs_s in ((200, 4_000, 400), (2_000, 600, 40), (20_000, 120, 8)):
        ours, theirs = cl1(clients, ours_s * (3 if big else 1)), cl1(clients, theirs_s)
        contestants = [
            _measure.Contestant(
                "Tollgate compiled", partial(_compiled, ours, [0]), _attempts(_compiled, ours)
            ),
            _measure.Contestant(
                "SimPy, idiomatic, numpy Philox",
                partial(_idiomatic, theirs, [0]),
                _attempts(_idiomatic, theirs),
                _measure.version("simpy"),
            ),
        ]
        timings = _measure.interleave(contestants, rounds=5)
        _measure.show(f"CL1, {clients} clients", "attempts", timings)
