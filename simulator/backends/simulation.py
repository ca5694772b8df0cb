"""One run of one scenario: population, limits, gate and clients put together, and played.

What it is not: several runs, files or thresholds; those are `simulator.running`'s.
"""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Final, Literal, TypeAlias, get_args

from engine.errors import InputError
from engine.files import format_duration
from simulator.arguments import Rule, optional, whole
from simulator.backends.needing_bodies import needs_bodies
from simulator.progress import Progress
from simulator.results import Result, RunBook, RunHeader
from simulator.scenario import Scenario, limit_tables_of, profile_of
from simulator.traffic.population import populate

__all__ = ["FIDELITIES", "SEED", "Fidelity", "seed_in_force", "simulate"]

Fidelity: TypeAlias = Literal["engine", "limits", "compiled"]
FIDELITIES: Final[tuple[Fidelity, ...]] = get_args(Fidelity)

_SEEDS: Final = whole(0, "a whole number from 0 to 2^63 - 1", below=1 << 64)
"""Replications count up from a seed, so it may lie a little above what a scenario may say."""

SEED: Final[Rule] = optional(_SEEDS, "the scenario's")


def simulate(  # reason: what a run is told
    scenario: Scenario,
    *,
    seed: int | None = None,
    fidelity: Fidelity = "limits",
    warm_up_ns: int | None = None,
    folder: Path | None = None,
    columns: Collection[str] | None = None,
    check: bool = True,
    progress: Progress | None = None,
) -> Result:
    """Play a scenario once; returns its result, with the rows in memory or in `folder`.

    seed, warm_up_ns: the scenario's unless given. columns: those that the folder's file keeps, all
    of them unless given. check: run the invariant checkers.

    Raises `InputError` where the scenario needs bodies and the fidelity runs none.
    """
    if fidelity not in FIDELITIES:
        raise InputError(f"fidelity = {fidelity!r} must be one of {', '.join(FIDELITIES)}")
    seed = seed_in_force(scenario, seed)
    warm_up_ns = _warm_up_ns(scenario, warm_up_ns)
    profile, tables = profile_of(scenario), limit_tables_of(scenario)
    if fidelity != "engine" and (reason := needs_bodies(scenario, profile)):
        raise InputError(f"fidelity = {fidelity!r} runs no bodies, and {reason}; choose engine")
    if fidelity == "compiled":
        from simulator.backends.compiled import cannot_play  # noqa: PLC0415 # reason: numba loads where it is asked for

        if reason := cannot_play(scenario):
            raise InputError(f"fidelity = 'compiled' is limits alone, and {reason}; choose limits")
    population = populate(scenario, seed)
    header = RunHeader(
        scenario.name,
        seed,
        fidelity,
        scenario.start_time_ns,
        scenario.duration_ns,
        warm_up_ns,
        population.groups,
    )
    book = RunBook(header, tables, profile.limits, folder=folder, columns=columns, check=check)
    if fidelity == "compiled":
        from simulator.backends.compiled import simulate_compiled  # noqa: PLC0415 # reason: as above

        simulate_compiled(scenario, population, tables, profile, seed, book, progress)
        return book.close()
    from simulator.backends.simpy_run import simulate_simpy  # noqa: PLC0415 # reason: it needs the engine's services, a compiled run does not

    gate = simulate_simpy(scenario, population, tables, profile, seed, book, fidelity, progress)
    return book.close(gate.violations() if check else None)


def seed_in_force(scenario: Scenario, asked: object = None) -> int:
    """Return the seed of a run, the scenario's unless asked; `InputError` for what is none."""
    seed: int | None = SEED.read("seed", asked)
    return scenario.seed if seed is None else seed


def _warm_up_ns(scenario: Scenario, asked_ns: int | None) -> int:
    """Return how long results are left out; raises `InputError` when nothing would be left."""
    warm_up_ns = scenario.warm_up_ns if asked_ns is None else asked_ns
    if warm_up_ns < 0:
        raise InputError(f"warm_up = {warm_up_ns} ns must be at least 0; take more")
    if warm_up_ns >= scenario.duration_ns:
        raise InputError(
            f"warm_up = {format_duration(warm_up_ns)} must be below the duration, "
            f"{format_duration(scenario.duration_ns)}; take less"
        )
    return warm_up_ns
