"""Runs of a scenario: one, or several under seeds of their own, into a folder or memory.

Replication r plays seed + r and keeps a line of metrics; `simulator.intervals` makes intervals of
the lines. Compiled runs use threads of this process, since compiled code releases the interpreter
lock; runs in Python use several processes when that is faster.

The processes of a pool end with the one that started them, even if it is killed. They never load
the program that started them: a script without a main guard, or one that came through a pipe, can
start them too.
"""

from __future__ import annotations

import itertools
import math
import os
import signal
import statistics
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict, dataclass, replace
from functools import partial
from multiprocessing import get_context, parent_process, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from threading import Lock, Thread
from types import ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Final, ParamSpec, TypeVar

from engine.errors import InputError
from simulator.intervals import (
    CONFIDENCE,
    Interval,
    Share,
    Verdict,
    interval_of,
    is_share,
    judged,
    runs_for_narrower,
    runs_for_verdict,
    sequential_error,
)
from simulator.options import Budget, RunOptions, takes_options
from simulator.play.simulation import (
    Fidelity,
    fidelity_in_force,
    seed_in_force,
    simulate,
    template_for,
    warm_up,
)
from simulator.progress import Interrupted, Progress, Stop, in_notebook, progress_bar
from simulator.rows import Result, check_out
from simulator.rows.parquet import refuse_missing
from simulator.rows.result import columns_of, is_of_totals, measure, share_of, value_in
from simulator.scenario import METRICS, Condition, Scenario, dump, loads
from simulator.scenario.model import draws_at_random

if TYPE_CHECKING:
    from simulator.kernel.running import Template


P = ParamSpec("P")
R = TypeVar("R")


def cores() -> int:
    """Return how many cores this process may use."""
    affinity = getattr(os, "sched_getaffinity", None)
    return len(affinity(0)) if affinity else os.cpu_count() or 1


class Workers(ABC):
    """What plays runs at the same time. here: whether it shares this machine's files."""

    here = True

    def __init__(self, count: int | None = None) -> None:
        self.count = count or cores()

    @abstractmethod
    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a worker call a function."""

    def broken(self) -> None:  # noqa: B027 # reason: threads do not die, and a cluster replaces its workers
        """Note that workers died, so that the next call has fresh ones."""

    @abstractmethod
    def close(self) -> None:
        """End the workers at once; what is under way is lost."""


class ThreadWorkers(Workers):
    """Threads of this process, for compiled runs: nothing is loaded or compiled again."""

    def __init__(self, count: int | None = None) -> None:
        super().__init__(count)
        self.stop = Stop()
        self._pool = ThreadPoolExecutor(self.count, thread_name_prefix="runs")

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a thread call a function."""
        return self._pool.submit(call, *args, **kwargs)

    def close(self) -> None:
        """End what is under way, and the threads."""
        self.stop.set()
        self._pool.shutdown(cancel_futures=True)


class ProcessWorkers(Workers):
    """Fresh processes of this machine; they start with the first call."""

    _pool: ProcessPoolExecutor | None = None

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a process call a function."""
        with interrupts_blocked():
            try:
                return self._started().submit(call, *args, **kwargs)
            except BrokenProcessPool:  # it broke between two calls
                self.broken()
                return self._started().submit(call, *args, **kwargs)

    def _started(self) -> ProcessPoolExecutor:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(self.count, mp_context=_Context(), initializer=_begin)
        return self._pool

    def broken(self) -> None:
        """Forget the pool; the next one is fresh."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        self._pool = None

    def close(self) -> None:
        """End the processes at once; what is under way is lost."""
        processes = list((getattr(self._pool, "_processes", None) or {}).values())
        self.broken()
        for process in processes:
            process.terminate()
        for process in processes:
            process.join()


@contextmanager
def interrupts_blocked() -> Iterator[None]:
    """Block Ctrl-C in the processes and threads started here; the parent handles it.

    They inherit the blocked signal when they start; the parent receives it after the block.
    """
    if sys.platform == "win32":  # it has no signals to block
        yield
        return
    resource_tracker.ensure_running()  # it would unblock the signal when it starts
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


class _Process(SpawnProcess):
    """A fresh process that does not load the main module of its parent."""

    _starting: ClassVar[Lock] = Lock()

    def start(self) -> None:
        """Start the process; it is told of an empty main module."""
        with self._starting:
            main = sys.modules["__main__"]
            sys.modules["__main__"] = ModuleType("__main__")
            try:
                super().start()
            finally:
                sys.modules["__main__"] = main


class _Context(SpawnContext):
    Process: ClassVar[Any] = _Process

    def get_context(self, method: str | None = None) -> Any:  # noqa: ANN401 # reason: multiprocessing's own signature
        """Return this context, so that a pool does not fall back to another one."""
        return self if method is None else get_context(method)


def _begin() -> None:
    # Only the parent handles Ctrl-C; otherwise each process would print an error.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    Thread(target=_end_with_parent, name="end-with-parent", daemon=True).start()


def _end_with_parent() -> None:
    """Wait until the parent has ended, even by a kill, and then end this process."""
    parent = parent_process()
    assert parent is not None, "a pool's process has a parent"
    parent.join()
    os._exit(1)  # the parent is gone; work in progress is lost with the pool


NONE_IS_0: Final = (
    *("refused{clause=", "blocked_time{clause="),
    *("admitted_beyond", "refused_below"),
)
"""Prefixes of metrics that a run keeps only when not 0: a missing one is 0."""
_WORTH_S: Final = 6.0
"""Shorter work is done before other processes could start."""
FIRST: Final = 10
"""Runs before the first look at a precision."""


@dataclass(frozen=True, slots=True)
class Replication:
    """One replication: its seed, the digest of its rows, broken invariants, a line of metrics."""

    seed: int
    sha256: str
    faults: int
    line: dict[str, float]

    def to_json(self) -> dict[str, Any]:
        """Return what a summary holds of it: NaN is null; shares: refused and offered of each."""
        shares = {name: value for name, value in self.line.items() if isinstance(value, Share)}
        return {
            "seed": self.seed,
            "sha256": self.sha256,
            "faults": self.faults,
            "line": {name: _plain(value) for name, value in self.line.items()},
            "shares": {
                name: [int(share.refused.sum()), int(share.offered.sum()), share.episode]
                for name, share in shares.items()
            },
        }

    @staticmethod
    def line_from_json(run: Mapping[str, Any]) -> dict[str, float]:
        """Return the line of metrics of a run that a summary holds."""
        nan = float("nan")
        line = {name: nan if value is None else value for name, value in run["line"].items()}
        for name, (refused, offered, episode) in run["shares"].items():
            line[name] = Share([refused], [offered], episode)
        return line


@dataclass(frozen=True, slots=True)
class Precision:
    """The requested precision of the shares' intervals, and whether it was reached.

    looks: how often the intervals were computed. needed: about how many runs would reach it; None
    when these did, or when no number is known.
    """

    asked: float
    reached: bool
    looks: int
    needed: int | None = None


def line_of(result: Result, scenario: Scenario | None = None) -> dict[str, float]:
    """Return the metrics of a run that are kept, named as in thresholds.

    The overall ones, each client group's refused share, what each clause refused and how long it
    blocked, what several nodes decided otherwise, and whatever the scenario's thresholds are about.
    """
    whole = result.line()
    line = {name: value_in(whole, name) for name in METRICS} | _shares_in(result, scenario)
    for clause in result.summary["clauses"]:
        if clause["offered"]:
            line[f"refused{{clause='{clause['clause']}'}}"] = float(clause["refused"])
            if clause["blocked_ns"]:
                line[f"blocked_time{{clause='{clause['clause']}'}}"] = float(clause["blocked_ns"])
    line |= _of_nodes(result.summary.get("nodes"))
    for threshold in scenario.thresholds if scenario is not None else ():
        subject = threshold.that.subject
        if subject not in line:
            attempts = 1 if scenario is None else max_attempts(scenario)
            line[subject] = measure(result, threshold.that, attempts=attempts)
    return line


def _shares_in(result: Result, scenario: Scenario | None) -> dict[str, Share]:
    """Return the refused share of a run and of each client group, with their counts."""
    attempts = 1 if scenario is None else max_attempts(scenario)
    shares = {"refused_share": share_of(result.summary, attempts=attempts)}
    for group in result.summary["windows"]["groups"]:
        name = f"refused_share{{client='{group}'}}"
        shares[name] = share_of(result.summary, group, attempts=attempts)
    return shares


def max_attempts(scenario: Scenario) -> int:
    """Return the most attempts that a client makes of a request."""
    return max((getattr(g.retry, "attempts", 1) for g in scenario.clients), default=1)


def _of_nodes(nodes: Mapping[str, Any] | None) -> dict[str, float]:
    """Return what nodes let in beyond the exact limits and refused below them; none of one node."""
    if nodes is None:
        return {}
    line = {name: float(nodes[name]) for name in ("admitted_beyond", "refused_below")}
    for row in nodes["groups"]:
        label = f"{{client='{row['group']}',clause='{row['clause']}'}}"
        line |= {name + label: float(row[name]) for name in tuple(line) if "{" not in name}
    return line


def intervals(
    replications: Sequence[Replication], *, exact: bool = False, sequential: bool = False
) -> dict[str, Interval]:
    """Return metric → interval over replications; one that a replication lacks counts as 0.

    exact: the scenario draws nothing at random. sequential: the widths of shares were looked at
    again and again.
    """
    names = dict.fromkeys(name for each in replications for name in each.line)
    found = {}
    for name in names:
        values = [each.line.get(name, 0.0) for each in replications]
        looks = sequential and is_share(name)
        events = sum(0 < value < 1 for value in values)
        error = sequential_error(events, len(values)) if looks else 1 - CONFIDENCE
        found[name] = interval_of(values, name, exact=exact, error=error)
    return found


def _line_of_conditions(
    conditions: Sequence[Condition], result: Result, scenario: Scenario
) -> dict[str, float]:
    attempts = max_attempts(scenario)
    return {each.subject: measure(result, each, attempts=attempts) for each in conditions}


def replication_of(result: Result, line: dict[str, float]) -> Replication:
    """Return the replication of a run, with its line of metrics."""
    summary = result.summary
    return Replication(summary["seed"], summary["sha256"], summary["checks"]["faults"], line)


@dataclass(frozen=True, slots=True)
class Play:
    """How runs are played, and what makes the lines of their metrics."""

    fidelity: Fidelity
    warm_up_ns: int | None
    check: bool
    line: Callable[[Result, Scenario], dict[str, float]]

    def __call__(self, scenario: Scenario | str, seed: int, **shared: Any) -> Replication:  # noqa: ANN401 # reason: what `simulate` takes
        """Play a scenario, or its text in another process. shared: what compiled runs share."""
        scenario = loads(scenario) if isinstance(scenario, str) else scenario
        result = simulate(
            scenario,
            seed=seed,
            fidelity=self.fidelity,
            warm_up_ns=self.warm_up_ns,
            check=self.check,
            **shared,
        )
        return replication_of(result, self.line(result, scenario))


class Replicator:
    """Plays scenarios under many seeds, on all cores where that pays."""

    def __init__(self) -> None:
        self._threads, self._processes = ThreadWorkers(), ProcessWorkers()
        self.stop = self._threads.stop
        self._planned: tuple[Scenario, tuple[int | None, bool], Template | None] | None = None

    def close(self) -> None:
        """End the workers at once; what is under way is lost."""
        self._threads.close()
        self._processes.close()

    def play(
        self,
        scenario: Scenario,
        seeds: Sequence[int],
        *,
        fidelity: Fidelity,
        warm_up_ns: int | None = None,
        check: bool = True,
        told: Callable[[int], None] | None = None,
        only: Sequence[Condition] | None = None,
        line: Callable[[Result, Scenario], dict[str, float]] = line_of,
    ) -> list[Replication]:
        """Return one replication a seed, in order. `told` hears how many are done.

        only: lines hold what these conditions are about, and nothing else. line: what else makes
        the line of a run; a compiled one unless it can be sent to processes.

        Raises `Interrupted` with those that are done where Ctrl-C stops it.
        """
        line = line if only is None else partial(_line_of_conditions, only)
        play = Play(fidelity, warm_up_ns, check, line)
        done: list[Replication] = []
        if fidelity_in_force(scenario, fidelity) == "compiled":
            keep = only is None or not all(map(is_of_totals, only))
            runs = self._compiled(play, scenario, seeds, keep=keep)
        else:
            runs = self._interpreted(play, scenario, seeds)
        try:
            for replication in runs:
                done.append(replication)
                if told is not None:
                    told(len(done))
        except KeyboardInterrupt:
            raise Interrupted(done) from None
        return done

    def _interpreted(
        self, play: Play, scenario: Scenario, seeds: Sequence[int]
    ) -> Iterator[Replication]:
        """Play runs in Python: the first here, the others in processes where that is faster."""
        text = dump(scenario, absolute=True)
        began_s = time.perf_counter()
        first = play(text, seeds[0])
        work_s = (time.perf_counter() - began_s) * (len(seeds) - 1)
        yield first
        done = 1
        if work_s > _WORTH_S and (os.cpu_count() or 1) > 1:
            # A worker that dies breaks its pool; the missing runs are then played here.
            with suppress(BrokenProcessPool):
                for each in [self._processes.submit(play, text, seed) for seed in seeds[1:]]:
                    yield each.result()
                    done += 1
        for seed in seeds[done:]:
            yield play(text, seed)

    def _compiled(
        self, play: Play, scenario: Scenario, seeds: Sequence[int], *, keep: bool
    ) -> Iterator[Replication]:
        """Play compiled runs on threads, a single one in this one."""
        warm_up()
        template = self._template(scenario, play.warm_up_ns, anonymous=not keep)
        shared = partial(play, scenario, progress=self.stop, template=template, keep=keep)
        if len(seeds) == 1:
            yield shared(seeds[0])
        else:
            for each in [self._threads.submit(shared, seed) for seed in seeds]:
                yield each.result()

    def _template(
        self, scenario: Scenario, warm_up_ns: int | None, *, anonymous: bool
    ) -> Template | None:
        """Return what runs of a scenario share; kept for the scenario that was played last."""
        asked = warm_up_ns, anonymous
        known = self._planned
        if known is None or known[0] is not scenario or known[1] != asked:
            found = template_for(scenario, warm_up_ns, anonymous=anonymous)
            known = self._planned = scenario, asked, found
        return known[2]


def replicator() -> closing[Replicator]:
    """Return a replicator for a `with` block; its workers end with the block."""
    return closing(Replicator())


def replicate_to(
    precision: float,
    first: int,
    seed: int,
    play: Callable[[range], list[Replication]],
    budget: Budget,
    *,
    exact: bool = False,
    told: Callable[[Sequence[Replication], Precision], None] | None = None,
) -> tuple[list[Replication], Precision]:
    """Replicate until no share's interval is wider than the precision, or the budget is spent.

    first: runs before the first look. play: plays some seeds, which count up from `seed`. told:
    hears the runs so far and what they make of the precision, look by look.
    """
    runs: list[Replication] = []

    def widths(count: int) -> list[Interval]:
        try:
            runs.extend(play(range(seed + len(runs), seed + count)))
        except Interrupted as stop:
            raise Interrupted([*runs, *stop.found]) from None
        return list(shares_of(intervals(runs, exact=exact, sequential=True)).values())

    def tell(found: Precision) -> None:
        if told is not None:
            told(runs, found)

    return runs, until_precise(precision, 1 if exact else first, budget, widths, tell)


def shares_of(known: Mapping[str, Interval]) -> dict[str, Interval]:
    """Return the intervals of the refused shares."""
    return {name: each for name, each in known.items() if name.startswith("refused_share")}


def until_precise(
    precision: float,
    first: int,
    budget: Budget,
    played: Callable[[int], Sequence[Interval]],
    told: Callable[[Precision], None],
) -> Precision:
    """Play on until every share is known to a precision, or the budget is spent.

    played: plays until there are so many runs, and returns the interval of every share. told: hears
    what each look finds.
    """
    ends_s = math.inf if budget.most_time_s is None else time.monotonic() + budget.most_time_s
    count = min(first, budget.most_replications)
    for look in itertools.count(1):
        needed = [
            runs_for_narrower(interval, precision)
            for interval in played(count)
            if interval.runs and interval.half_width > precision
        ]
        most = None if None in needed else max((n for n in needed if n is not None), default=None)
        found = Precision(precision, not needed, look, most)
        told(found)
        if found.reached or count >= budget.most_replications or time.monotonic() >= ends_s:
            break
        count = next_count(count, found.needed, budget.most_replications)
    return found


def next_count(count: int, needed: int | None, most: int) -> int:
    """Return how many runs there are at the next look, at most twice as many.

    Before 20 runs, widths are looked at 10 and 20 alone. Then most of those that are needed are
    played at once, since the number is an estimate, and the last ones a few at a time.
    """
    if count < FIRST:
        aim = FIRST
    elif count < 2 * FIRST:
        aim = 2 * FIRST
    else:
        aim = 2 * count if needed is None else min(2 * count, count + (needed - count) * 4 // 5)
    return min(most, max(aim, count + 1 + count // 20))


# --- to a user's words ---------------------------------------------------------------------------


@takes_options(RunOptions)
def run(options: RunOptions) -> Result:
    """Play a scenario; returns its result.

    {options}

    Decisions are the same in each fidelity, bit for bit. With replications, rows are the first
    one's, and `Result.replications` has the intervals of the metrics over all of them.

    Raises `InputError` for a scenario that cannot be, a folder that cannot be written, or columns
    that are unknown or too few for the scenario's thresholds.

    >>> result = run("management-loop", fidelity="limits")
    >>> result.summary["totals"]["offered"] > 0, result.violations
    (True, ())
    """
    scenario = options.played
    shown = in_notebook() if options.progress is None else options.progress
    with progress_bar(scenario.duration_ns, quiet=not shown) as tell:
        return run_replicated(replace(options, scenario=scenario), progress=tell)


def _run_once(
    options: RunOptions,
    progress: Progress | None = None,
    extra: Callable[[Result], Mapping[str, Any]] = lambda _: {},
) -> Result:
    """Play a scenario once; what `extra` makes of the result goes into the summary too."""
    scenario, columns, warm_up_ns = options.played, options.kept, options.warm_up_ns
    if columns is not None:
        left_out_ns = scenario.warm_up_ns if warm_up_ns is None else warm_up_ns
        for threshold in scenario.thresholds:
            needed = columns_of(threshold.that, warm_up=bool(left_out_ns))
            refuse_missing(f"columns, for the threshold {threshold.that},", needed, columns)
    with options.written() as folder:
        result = simulate(
            scenario,
            seed=options.seed,
            fidelity=options.fidelity,
            warm_up_ns=warm_up_ns,
            folder=folder,
            columns=columns,
            check=options.check,
            headroom=options.check,
            progress=progress,
        )
        result.folder = folder
        result.scenario_text = dump(scenario, absolute=True)
        result.summary["question"] = scenario.question
        result.summary["answer"] = scenario.answer
        result.summary["thresholds"] = _judged(scenario, result)
        result.summary.update(extra(result))
        if folder is not None:
            result.write_to(folder)
    result.folder = options.folder
    return result


def run_replicated(
    options: RunOptions,
    *,
    progress: Progress | None = None,
    told: Callable[[int], None] | None = None,
    told_of_precision: Callable[[Sequence[Replication], Precision], None] | None = None,
    command: Sequence[str] | None = None,
) -> Result:
    """Play a scenario once, or under several seeds; the rows and files are those of the first.

    told: hears how many of the runs after the first are done. command: what repeats this run.
    """
    scenario = options.played
    budget = options.budget(options.replications)
    several, kept = options.are_several, options.kept
    if several and kept is not None:
        raise InputError(
            f"columns = {','.join(kept)} must be left out with replications; intervals are of"
            " metrics that need every column"
        )
    if options.folder is not None:
        check_out(options.folder, force=options.force)
    seed = seed_in_force(scenario, options.seed)
    options = replace(options, scenario=scenario, seed=seed)
    exact = not draws_at_random(scenario)
    others: list[Replication] = []
    reached: Precision | None = None
    with replicator() as player:
        play = partial(
            player.play,
            scenario,
            fidelity=options.fidelity,
            warm_up_ns=options.warm_up_ns,
            check=options.check,
        )
        if options.precision is not None:
            first = options.replications or FIRST
            found, reached = replicate_to(
                options.precision, first, seed, play, budget, exact=exact, told=told_of_precision
            )
            others = found[1:]
        elif several:
            others = play(range(seed + 1, seed + (options.replications or 1)), told=told)

    def extra(result: Result) -> dict[str, Any]:
        added: dict[str, Any] = {} if command is None else {"command": list(command)}
        added["intervals"] = {
            name: _interval_plain(interval_of([share], name, exact=exact))
            for name, share in _shares_in(result, scenario).items()
        }
        if several:
            runs = [replication_of(result, line_of(result, scenario)), *others]
            added["replications"] = _replications(scenario, runs, reached, exact=exact)
        return added

    try:
        return _run_once(options, progress, extra)
    except KeyboardInterrupt:
        raise Interrupted(others) from None


def _replications(
    scenario: Scenario, runs: Sequence[Replication], reached: Precision | None, *, exact: bool
) -> dict[str, Any]:
    """Return what a summary says of replications: each run's line, intervals, thresholds."""
    spread = intervals(runs, exact=exact, sequential=reached is not None)
    return {
        "confidence": CONFIDENCE,
        "faults": sum(each.faults for each in runs),
        "runs": [each.to_json() for each in runs],
        "intervals": {name: _interval_plain(each) for name, each in spread.items()},
        "spread": {name: _spread(name, runs) for name in spread},
        "thresholds": _judged_by_intervals(scenario, runs, spread),
        **({} if reached is None else {"precision": asdict(reached)}),
    }


def _spread(name: str, runs: Sequence[Replication]) -> dict[str, float | None]:
    """Return how far single runs lie apart; a metric that a run lacks counts as 0."""
    values = [run.line.get(name, 0.0) for run in runs]
    values = [value for value in values if math.isfinite(value)]
    if not values:
        return dict.fromkeys(("least", "most", "deviation"))
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"least": min(values), "most": max(values), "deviation": deviation}


def _interval_plain(interval: Interval) -> dict[str, Any]:
    found = interval._asdict()
    return found | {name: _plain(found[name]) for name in ("mean", "low", "high")}


def _judged_by_intervals(
    scenario: Scenario, runs: Sequence[Replication], spread: Mapping[str, Interval]
) -> list[dict[str, Any]]:
    """Return a line a threshold: the interval of what it is about, and its verdict.

    needed: about how many runs would decide one that is not decided; None where none is known.
    """
    lines = []
    for threshold in scenario.thresholds:
        name = threshold.that.subject
        verdict: Verdict = judged(threshold.that, spread[name])
        needed = None
        if verdict == "not decided":
            needed = runs_for_verdict([run.line[name] for run in runs], threshold.that)
        lines.append(
            {"that": str(threshold.that), "subject": name, "verdict": verdict, "needed": needed}
            | _interval_plain(spread[name])
        )
    return lines


def _judged(scenario: Scenario, result: Result) -> list[dict[str, Any]]:
    """Return what became of the scenario's thresholds in this one run."""
    lines = []
    for threshold in scenario.thresholds:
        value = measure(result, threshold.that)
        holds = threshold.that.holds(value)
        lines.append({"that": str(threshold.that), "value": _plain(value), "holds": holds})
    return lines


def _plain(value: float) -> float | None:
    """Return a value as JSON has it: NaN and the infinite are null."""
    return value if math.isfinite(value) else None
