"""One run of a scenario: connect population, limits, gate and clients, and play them.

`simulator.study.runs` handles several runs, files and thresholds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from engine.errors import InputError
from engine.files import format_duration
from engine.profile import Profile
from simulator.arguments import Rule, optional, whole
from simulator.progress import Progress, tell_line
from simulator.rows import Result, RunBook, RunHeader
from simulator.rows.record import Watcher
from simulator.scenario import Scenario, profile_of
from simulator.scenario.draws import SessionArrivals
from simulator.scenario.model import needs_bodies
from simulator.traffic.population import Setup

if TYPE_CHECKING:
    from simulator.play.compiled.run import Template

Fidelity: TypeAlias = Literal["engine", "limits", "compiled"]
FIDELITIES: Final[tuple[Fidelity, ...]] = get_args(Fidelity)

_SEEDS: Final = whole(0, "a whole number from 0 to 2^63 - 1", below=1 << 64)
"""The largest seed: replications count up from a scenario's seed, so it is above that limit."""

SEED: Final[Rule] = optional(_SEEDS, "the scenario's")


def simulate(  # noqa: PLR0913 # reason: what a run is told
    scenario: Scenario,
    *,
    seed: int | None = None,
    fidelity: Fidelity = "limits",
    warm_up_ns: int | None = None,
    folder: Path | None = None,
    columns: Collection[str] | None = None,
    check: bool = True,
    headroom: bool = False,
    progress: Progress | None = None,
    template: Template | None = None,
    keep: bool = True,
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Play a scenario once; returns its result, with the rows in memory or in `folder`.

    seed, warm_up_ns: the scenario's unless given. columns: those that the folder's file keeps, all
    of them unless given. check: run the invariant checkers. headroom: watch how full counters are.
    template: of this scenario and this warm-up (`template_for`), for compiled runs.
    keep: False when only the summary's totals are wanted, neither rows nor their digest.
    watchers: take the rows too.

    Raises `InputError` where the scenario needs bodies and the fidelity runs none.
    """
    if fidelity not in FIDELITIES:
        raise InputError(f"fidelity = {fidelity!r} must be one of {', '.join(FIDELITIES)}")
    seed = seed_in_force(scenario, seed)
    warm_up_ns = _warm_up_ns(scenario, warm_up_ns)
    if template is None:
        profile = profile_of(scenario)
        _refuse_unplayable(scenario, profile, fidelity)
        fidelity = _fidelity_in_force(scenario, fidelity)
        setup = Setup.of(scenario, seed, profile)
    else:
        setup = replace(template.setup, seed=seed)
        profile = setup.profile
    header = RunHeader(
        scenario.name,
        seed,
        fidelity,
        scenario.start_time_ns,
        scenario.duration_ns,
        warm_up_ns,
        setup.population.groups,
    )
    book = RunBook(
        header,
        setup.tables,
        profile.limits,
        folder=folder,
        columns=columns,
        check=check,
        headroom=headroom,
        known=None if template is None else template.known,
        keep=keep,
        watchers=watchers,
        nodes=profile.nodes,
    )
    if fidelity == "compiled":
        from simulator.play.compiled.run import simulate_compiled  # noqa: PLC0415 # reason: numba loads where it is asked for

        simulate_compiled(setup, book, progress, template)
        return book.close()
    from simulator.play.simpy_driver import simulate_simpy  # noqa: PLC0415 # reason: it needs the engine's services, a compiled run does not

    gate = simulate_simpy(setup, book, fidelity, progress)
    return book.close(gate.violations() if check else None)


def has_sessions(scenario: Scenario) -> bool:
    """Whether clients send sessions of a log."""
    return any(isinstance(group.arrivals, SessionArrivals) for group in scenario.clients)


def template_for(
    scenario: Scenario, warm_up_ns: int | None = None, *, anonymous: bool = False
) -> Template | None:
    """Return what compiled runs of a scenario share under all seeds; None where they share nothing.

    anonymous: for runs of which the totals alone are wanted.

    Raises `InputError` where the scenario cannot be compiled.
    """
    from simulator.play.compiled.run import template_of  # noqa: PLC0415 # reason: numba loads where it is asked for

    _refuse_unplayable(scenario, profile_of(scenario), "compiled")
    if _fidelity_in_force(scenario, "compiled") != "compiled":
        return None
    return template_of(scenario, _warm_up_ns(scenario, warm_up_ns), anonymous=anonymous)


def _fidelity_in_force(scenario: Scenario, fidelity: Fidelity) -> Fidelity:
    """Return the fidelity that runs: `limits` where the compiled code lacks what is needed."""
    if fidelity == "compiled" and (reason := _not_compiled(scenario)) is not None:
        _note_once(f"{reason} is not compiled; it runs at fidelity limits, with the same decisions")
        return "limits"
    return fidelity


def _not_compiled(scenario: Scenario) -> str | None:
    if any(group.loop == "open" and group.concurrency is not None for group in scenario.clients):
        return "an open loop with concurrency"
    if has_sessions(scenario):
        return "sampling the sessions of a log"
    return None


_note_once: Final = lru_cache(tell_line)


def _refuse_unplayable(scenario: Scenario, profile: Profile, fidelity: Fidelity) -> None:
    if fidelity == "engine" and not profile.nodes.is_exact:
        raise InputError(
            f"fidelity = 'engine' is one node, and nodes.sharing = {profile.nodes.sharing!r} takes "
            "several; choose limits or compiled"
        )
    if fidelity != "engine" and (reason := needs_bodies(scenario)):
        raise InputError(f"fidelity = {fidelity!r} runs no bodies, and {reason}; choose engine")


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
