"""One run of a scenario under SimPy: connect gate and clients, and play them.

The clients are in `simulator.backends.simpy_backend`; the compiled run
(`simulator.backends.compiled`) uses nothing of this.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Final

import simpy

from engine.limits import Limiter, LimitTable
from engine.profile import Profile
from simulator.backends.asking import Asker
from simulator.backends.engine_gate import EngineGate
from simulator.backends.events import At
from simulator.backends.gates import Gate, LimitsGate
from simulator.backends.simpy_backend import ClientRun, start_client
from simulator.progress import Progress
from simulator.results import RunBook
from simulator.scenario import Scenario
from simulator.traffic.drawing import arrivals_of
from simulator.traffic.instants import ReplayedInstants
from simulator.traffic.population import Client, Population

__all__ = ["simulate_simpy"]

_PROGRESS_STEPS: Final = 200
_LAST: Final = 1 << 200


def simulate_simpy(
    scenario: Scenario,
    population: Population,
    tables: dict[str, LimitTable],
    profile: Profile,
    seed: int,
    book: RunBook,
    fidelity: str,
    progress: Progress | None = None,
) -> Gate:
    """Play a scenario, write every row to `book`, and return the gate that decided."""
    env = simpy.Environment()
    gate: Gate
    if fidelity == "engine":
        gate = EngineGate(env, scenario, population, profile, tables, seed, book)
    else:
        gate = LimitsGate(env, scenario, profile, Limiter(tables, profile.limits), book)
    file_limit_bytes = profile.account_updater.file_limit_bytes
    replayed = ReplayedInstants()
    for client in population.clients:
        asker = Asker(scenario, client, book.recorder, book.view, file_limit_bytes)
        run = ClientRun(
            env,
            client,
            asker,
            gate,
            book.tally,
            scenario.duration_ns,
            told_to_wait=profile.http.retry_after,
        )
        start_client(env, run, client, lambda c=client: _arrivals(scenario, c, replayed))  # type: ignore[misc] # reason: a default binds the loop's client
    if progress is not None:
        env.process(_ticks(env, scenario.duration_ns, progress))
    env.run()
    return gate


def _arrivals(scenario: Scenario, client: Client, replayed: ReplayedInstants) -> Iterator[int]:
    assert client.group.arrivals is not None, "an open loop has arrivals"
    return arrivals_of(
        client.group.arrivals,
        client.stream,
        start_ns=client.group.start_ns,
        start_time_ns=scenario.start_time_ns,
        replayed_ns=replayed.of,
    )


def _ticks(
    env: simpy.Environment, end_ns: int, progress: Progress
) -> Generator[simpy.Event, object, None]:
    told_ns = 0
    for step in range(1, _PROGRESS_STEPS):
        now_ns = end_ns * step // _PROGRESS_STEPS
        yield At(env, now_ns - told_ns, _LAST)
        progress(now_ns)
        told_ns = now_ns
