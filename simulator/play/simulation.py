"""One run of a scenario: connect population, limits, backend and clients, and play them.

`simulator.study.runs` handles several runs, files and thresholds.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, TypeAlias, get_args

from engine.errors import InputError
from engine.files import format_duration
from engine.profile import Profile
from simulator.arguments import ArgumentRule, optional, whole
from simulator.progress import Progress, tell_line
from simulator.rows import Result, RunHeader, RunRecorder
from simulator.rows.record import Watcher
from simulator.rows.result import Keep
from simulator.scenario import Scenario, limit_tables_of, profile_of
from simulator.scenario.clients import ClientGroup, FixedRetry, NoRetry, TokenBucketPacing
from simulator.scenario.model import needs_bodies
from simulator.traffic.population import Setup

if TYPE_CHECKING:
    from simulator.kernel.running import Template

Fidelity: TypeAlias = Literal["engine", "limits", "compiled"]
FIDELITIES: Final[tuple[Fidelity, ...]] = get_args(Fidelity)

_SEEDS: Final = whole(0, "a whole number from 0 to 2^63 - 1", below=1 << 64)
"""The largest seed: replications count up from a scenario's seed, so it is above that limit."""

SEED: Final[ArgumentRule] = optional(_SEEDS, "the scenario's")


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
    keep: Keep = "rows",
    watchers: Sequence[Watcher] = (),
) -> Result:
    """Run a scenario once; returns its result, with the rows in memory or in `folder`.

    seed, warm_up_ns: the scenario's unless given. columns: those that the folder's file keeps, all
    of them unless given. check: run the invariant checkers. headroom: watch how full counters are.
    template: of this scenario and this warm-up (`template_for`), for compiled runs.
    keep: what the run keeps of its rows, besides the summary's totals.
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
        fidelity = fidelity_in_force(scenario, fidelity)
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
    book = RunRecorder(
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
        from simulator.kernel.running import run_in_kernel  # noqa: PLC0415 # reason: numba loads where it is asked for

        run_in_kernel(setup, book, progress, template)
        return book.close()
    from simulator.play.simpy_driver import simulate_simpy  # noqa: PLC0415 # reason: it needs the engine's services, a compiled run does not

    backend = simulate_simpy(setup, book, fidelity, progress)
    return book.close(backend.violations() if check else None)


def template_for(
    scenario: Scenario, warm_up_ns: int | None = None, *, anonymous: bool = False
) -> Template | None:
    """Return what compiled runs of a scenario share under all seeds; None where they share nothing.

    anonymous: for runs of which the totals alone are wanted.

    Raises `InputError` where the scenario cannot be compiled.
    """
    _refuse_unplayable(scenario, profile_of(scenario), "compiled")
    if fidelity_in_force(scenario, "compiled") != "compiled":
        return None
    from simulator.kernel.running import template_of  # noqa: PLC0415 # reason: numba loads where it is asked for

    return template_of(scenario, _warm_up_ns(scenario, warm_up_ns), anonymous=anonymous)


def has_kernel() -> bool:
    """Whether the optional extra `fast` is installed."""
    return find_spec("numba") is not None


def warm_up() -> None:
    """Compile the kernel if this machine has not done so and the extra `fast` is installed."""
    if has_kernel():
        from simulator.kernel.running import warm_up as compile_all  # noqa: PLC0415 # reason: numba loads where it is asked for

        compile_all(tell_line)


def load_kernel() -> None:
    """Load the kernel where an earlier run has compiled it."""
    if has_kernel():
        from simulator.kernel.running import load  # noqa: PLC0415 # reason: as above

        load()


def is_compiled() -> bool:
    """Whether nothing is left to compile: an earlier run did it, or the extra `fast` is missing."""
    if not has_kernel():
        return True
    from simulator.kernel.running import is_compiled as is_all_compiled  # noqa: PLC0415 # reason: numba loads where it is asked for

    return is_all_compiled()


def is_without_kernel() -> bool:
    """Whether the extra `fast` is missing; if so, print once what it would buy."""
    if has_kernel():
        return False
    _note_once(
        "fidelity compiled needs the extra fast (pip install tollgate[fast]), which runs "
        "5 to 30 times as fast; this runs at fidelity limits, with the same decisions"
    )
    return True


def fidelity_in_force(scenario: Scenario, fidelity: Fidelity) -> Fidelity:
    """Return the fidelity that runs: `limits` where the kernel lacks what a scenario needs."""
    if fidelity != "compiled" or is_without_kernel():
        return "limits" if fidelity == "compiled" else fidelity
    if (reason := not_compiled(scenario)) is not None:
        _note_once(f"{reason}: not compiled; runs at fidelity limits, with the same decisions")
        return "limits"
    return "compiled"


def not_compiled(scenario: Scenario) -> str | None:
    """Return what the kernel lacks of a scenario, None where it runs it."""
    if not profile_of(scenario).nodes.is_exact:
        return "several nodes"
    for group in scenario.clients:
        if any(scenario.proxy_of(ask) or scenario.reactor_of(ask) for ask in group.mix):
            return "proxies and reactors"
        if (reason := _too_large(group)) is not None:
            return reason
    for table in limit_tables_of(scenario).values():
        if any(rule.limit_requests >= 1 << 31 for rule in table):
            return "a limit of 2^31 requests"
    return None


def _too_large(group: ClientGroup) -> str | None:
    """Return what of a group does not fit into the kernel's integers."""
    if group.pacing is not None and isinstance(group.pacing, TokenBucketPacing):
        limit, window_ns = group.pacing.rate
        if limit >= 1 << 31 or group.pacing.burst * window_ns >= _LARGEST_PRODUCT:
            return "a pace of that size"
    retry = group.retry
    if not isinstance(retry, NoRetry):
        longest_ns = retry.delay_ns if isinstance(retry, FixedRetry) else retry.cap_ns
        if 4 * longest_ns >= _LARGEST_PRODUCT:
            return "a retry's delay of 36 years"
    return None


_LARGEST_PRODUCT: Final = 1 << 62
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
