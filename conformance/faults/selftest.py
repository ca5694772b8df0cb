"""`python -m conformance selftest`: every known-bad deployment is caught, the good one passes.

Each fault is run against the checks of its clause, in process and on virtual time. `--full` runs
each against every check, and a sample over real HTTP too. The command fails where a fault is not
caught, where more than 5 % of the reports name another clause before the broken one, where the good
deployment has a finding, and where a check catches no fault at all.
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from typing import Final

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from conformance.context.check import all_checks
from conformance.faults.registry import Fault, all_faults, fault_of
from conformance.faults.trial import MutantTrial, try_fault, try_good, try_over_http
from engine.clauses import clause, select

SAMPLE: Final = (
    "array-reversed",
    "mask-last-four-first",
    "naive-timestamp",
    "secret-in-header",
    "unknown-key-accepted",
    "first-container-only",
    "partial-creation",
    "tokenize-one-more",
    "one-more-LIM-ACCOUNT-UPDATER",
    "odd-metadata-ignored",
    "no-key-accepted",
)
"""The faults that `--full` also runs over real HTTP; the schema layer's checks run there alone."""

_FEW: Final = 8
_BLAMED_SHARE: Final = 0.95
"""The least share of mutants whose own clause a report must name first."""
_LOG_WIDTH: Final = 160


def run(args: argparse.Namespace) -> int:
    """Return 0 if every fault is caught and blamed and the good deployment passes, else 1."""
    began = time.perf_counter()
    faults = _chosen(args.select)
    console = Console(highlight=False, soft_wrap=True)
    if not console.is_terminal:
        console.width = _LOG_WIDTH
    trials: list[MutantTrial] = []
    with _mapping(args.processes, len(faults)) as spread:
        ids = [fault.id for fault in faults]
        with console.status("the good deployment") as status:
            good = try_good()
            for trial in spread(partial(try_fault, everything=args.full), ids):
                trials.append(trial)
                status.update(f"{len(trials)} of {len(faults)} faults")
    over_http: list[MutantTrial] = []
    if args.full:
        sample = [fault_of(name) for name in SAMPLE if name in set(ids)]
        with console.status("over HTTP"):
            over_http = [try_over_http(fault) for fault in sample]
    console.print(_table("known-bad deployments, on virtual time", trials))
    if args.full:
        console.print(_matrix(trials))
        console.print(_table("over HTTP", over_http))
    bad = [trial for trial in (*trials, *over_http) if not trial.is_killed]
    misled = [trial for trial in trials if trial.is_killed and not trial.is_blamed]
    idle = [] if args.select else _idle([*trials, *over_http], is_full=args.full)
    for style, text in _complaints(good, bad, misled, idle):
        console.print(f"[{style}]{escape(text)}[/]")
    caught = len(trials) + len(over_http) - len(bad)
    took = time.perf_counter() - began
    is_fine = not bad and not idle and good.is_good
    is_fine &= len(misled) <= len(trials) * (1 - _BLAMED_SHARE)
    verdict = "fine" if is_fine else "NOT fine"
    console.print(
        f"{verdict}: {caught} of {len(trials) + len(over_http)} known-bad deployments caught, "
        f"the good one {'passes' if good.is_good else 'is found faulty'}; {took:.1f} s"
    )
    return 0 if is_fine else 1


def _chosen(text: str) -> list[Fault]:
    """Return the selected faults; raises `InputError` for an unknown id."""
    known = all_faults()
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    if not wanted:
        return list(known.values())
    chosen: dict[str, Fault] = {}
    for name in wanted:
        if name.upper() == name:
            ids = {clause.id for clause in select([name])}
            chosen |= {fault.id: fault for fault in known.values() if fault.clause in ids}
        else:
            chosen[name] = fault_of(name)
    return list(chosen.values())


_Spread = Callable[[Callable[[str], MutantTrial], Iterable[str]], Iterable[MutantTrial]]


@contextlib.contextmanager
def _mapping(processes: int, tasks: int) -> Iterator[_Spread]:
    """Yield a `map` over processes; a few tasks run in this process."""
    if processes == 1 or tasks <= _FEW:
        yield map
        return
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, mp_context=context) as pool:
        yield pool.map


def _idle(trials: Iterable[MutantTrial], *, is_full: bool) -> list[str]:
    """Return the checks that catch no fault; is_full: those that run over HTTP alone too."""
    busy = {check_id for trial in trials for check_id in trial.killers}
    known = all_checks().values()
    return [
        check.id for check in known if check.id not in busy and (is_full or not check.is_generated)
    ]


def _table(title: str, trials: Iterable[MutantTrial]) -> Table:
    table = Table(title=title, title_justify="left")
    for name in ("fault", "clause", "what is wrong", "killed by"):
        table.add_column(name, overflow="fold")
    for trial in trials:
        description = fault_of(trial.fault).description
        killers = ", ".join(trial.killers)
        if killers and trial.runs > 1:
            killers += " (second run)"
        by = f"[green]{escape(killers)}[/]" if killers else "[bold red]nothing[/]"
        table.add_row(trial.fault, trial.clause, escape(description), by)
    return table


def _matrix(trials: list[MutantTrial]) -> Table:
    """Return the table of which groups of checks caught which fault."""
    groups = list(dict.fromkeys(_group(check) for trial in trials for check, _ in trial.failed))
    table = Table(title="kill matrix: ● its own clause fails, · another does", title_justify="left")
    table.add_column("fault", overflow="fold")
    for group in groups:
        table.add_column(group, justify="center", overflow="fold")
    for trial in trials:
        own = {_group(check) for check in trial.killers}
        other = {_group(check) for check, _ in trial.failed} - own
        marks = ["●" if group in own else "·" if group in other else "" for group in groups]
        table.add_row(trial.fault, *marks)
    return table


def _group(check_id: str) -> str:
    return check_id.partition(".")[0]


def _complaints(
    good: MutantTrial,
    bad: Iterable[MutantTrial],
    misled: Iterable[MutantTrial],
    idle: Iterable[str],
) -> Iterator[tuple[str, str]]:
    """Yield (style, sentence) of what is not as it must be."""
    for check, clause_id in good.failed:
        yield "bold red", f"the good deployment fails {clause_id} by {check}"
    for check in good.crashed:
        yield "bold magenta", f"{check} crashes on the good deployment"
    for clause_id, why in good.unsaid:
        if clause(clause_id).unobservable is None:
            yield "yellow", f"{clause_id} is not passed by the good deployment: {why}"
    for trial in bad:
        yield "bold red", f"{trial.fault} survives ({trial.clause}): {trial.message}"
    for trial in misled:
        first = trial.causes[0] if trial.causes else "no clause"
        yield (
            "bold red",
            f"{trial.fault} is caught, and the report names {first} before {trial.clause}",
        )
    for check in idle:
        yield "bold red", f"{check} catches none of them"
