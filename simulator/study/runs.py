"""Runs of a scenario: one, or several under seeds of their own, into a folder or memory.

Replication r plays seed + r and keeps a line of metrics; `simulator.intervals` makes intervals of
the lines. Runs are played here until starting processes costs less than it saves
(`simulator.study.workers`).
"""

from __future__ import annotations

import itertools
import math
import pickle
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, Final

from engine.errors import InputError
from simulator.arguments import takes_options
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
from simulator.options import ReplicationBudget, RunOptions
from simulator.play.simulation import (
    Fidelity,
    fidelity_in_force,
    seed_in_force,
    simulate,
    template_for,
    warm_up,
)
from simulator.progress import Interrupted, Progress, in_notebook, progress_bar
from simulator.rows import Result, check_out
from simulator.rows.parquet import refuse_missing
from simulator.rows.result import Keep, columns_of, measure, share_of, value_in
from simulator.scenario import METRICS, Condition, Scenario, dump
from simulator.scenario.model import draws_at_random
from simulator.study.workers import Lost, ProcessWorkers, play_all

if TYPE_CHECKING:
    from simulator.kernel.running import Template


NONE_IS_0: Final = (
    *("refused{clause=", "blocked_time{clause="),
    *("admitted_beyond", "refused_below"),
)
"""Prefixes of metrics that a run keeps only when not 0: a missing one is 0."""
PRELOAD: Final = ("simulator.study.preloaded",)
"""What the server of processes that play runs loads."""
_START_S: Final = 2.0
"""Shorter work is done before other processes could start."""
_HAND_S: Final = 0.02
"""Shorter work is done before processes that wait for it would have it."""
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
    if (nodes := result.summary.get("nodes")) is not None:
        names = ("admitted_beyond", "refused_below")
        line |= {name: float(nodes[name]) for name in names}
        for row in nodes["groups"]:
            label = f"{{client='{row['group']}',clause='{row['clause']}'}}"
            line |= {name + label: float(row[name]) for name in names}
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


def intervals(
    replications: Sequence[Replication], *, exact: bool = False, sequential: bool = False
) -> dict[str, Interval]:
    """Return metric → interval over replications; one that a replication lacks counts as 0.

    exact: the scenario draws nothing at random. sequential: the widths of shares were looked at
    again and again.
    """
    names = dict.fromkeys(name for replication in replications for name in replication.line)
    spread = {}
    for name in names:
        values = [replication.line.get(name, 0.0) for replication in replications]
        looks = sequential and is_share(name)
        events = sum(0 < value < 1 for value in values)
        error = sequential_error(events, len(values)) if looks else 1 - CONFIDENCE
        spread[name] = interval_of(values, name, exact=exact, error=error)
    return spread


def line_of_conditions(
    conditions: Sequence[Condition], result: Result, scenario: Scenario
) -> dict[str, float]:
    """Return what some conditions are about, and nothing else."""
    attempts = max_attempts(scenario)
    return {
        condition.subject: measure(result, condition, attempts=attempts) for condition in conditions
    }


def replication_of(result: Result, line: dict[str, float]) -> Replication:
    """Return the replication of a run, with its line of metrics."""
    summary = result.summary
    return Replication(summary["seed"], summary["sha256"], summary["checks"]["faults"], line)


def run_replication(
    pickled: bytes,
    seed: int,
    *,
    fidelity: Fidelity,
    warm_up_ns: int | None = None,
    check: bool = False,
    line: Callable[[Result, Scenario], dict[str, float]] = line_of,
    keep: Keep = "rows",
    shares: bool = True,
) -> Replication:
    """Run a scenario, here or in another process.

    pickled: the scenario. line: makes the line of metrics. keep: what that needs of a compiled run.
    shares: whether runs under other seeds follow, so that what they share is worth making.
    """
    scenario, template = _scenario_of(pickled), None
    if fidelity == "compiled" and shares:
        template = _template_of(pickled, warm_up_ns, anonymous=keep == "totals")
    result = simulate(
        scenario,
        seed=seed,
        fidelity=fidelity,
        warm_up_ns=warm_up_ns,
        check=check,
        template=template,
        keep=keep,
    )
    return replication_of(result, line(result, scenario))


@lru_cache(maxsize=2)
def _scenario_of(pickled: bytes) -> Scenario:
    scenario: Scenario = pickle.loads(pickled)  # noqa: S301 # reason: this program wrote it
    return scenario


@lru_cache(maxsize=2)
def _template_of(pickled: bytes, warm_up_ns: int | None, *, anonymous: bool) -> Template | None:
    return template_for(_scenario_of(pickled), warm_up_ns, anonymous=anonymous)


class Replicator:
    """Plays scenarios under many seeds, in processes where that pays."""

    def __init__(self) -> None:
        self._workers = ProcessWorkers(preload=PRELOAD)
        self._run_s: float | None = None
        self._spent_s = 0.0

    def close(self) -> None:
        """End the workers at once; what is under way is lost."""
        self._workers.close()

    def play(
        self,
        scenario: Scenario,
        seeds: Sequence[int],
        *,
        fidelity: Fidelity,
        warm_up_ns: int | None = None,
        check: bool = True,
        on_progress: Callable[[Replication], None] | None = None,
        line: Callable[[Result, Scenario], dict[str, float]] = line_of,
        keep: Keep = "rows",
    ) -> list[Replication]:
        """Return one replication a seed, in order. `on_progress` hears each when it is done.

        line, keep: as `run_replication` takes them; both can be pickled.

        Raises `Interrupted` with those that are done where Ctrl-C stops it.
        """
        fidelity = fidelity_in_force(scenario, fidelity)
        if fidelity == "compiled":
            warm_up()  # here, so that workers find it compiled
        play = partial(
            run_replication,
            pickle.dumps(scenario),
            fidelity=fidelity,
            warm_up_ns=warm_up_ns,
            check=check,
            line=line,
            keep=keep,
        )
        done: dict[int, Replication] = {}
        try:
            for place, replication in self._played(play, seeds):
                done[place] = replication
                if on_progress is not None:
                    on_progress(replication)
        except KeyboardInterrupt:
            firsts = itertools.takewhile(done.__contains__, range(len(seeds)))
            raise Interrupted([done[place] for place in firsts]) from None
        return [done[place] for place in range(len(seeds))]

    def _played(
        self, play: Callable[[int], Replication], seeds: Sequence[int]
    ) -> Iterator[tuple[int, Replication]]:
        """Play runs here, and the rest in processes as soon as that is faster."""
        for place, seed in enumerate(seeds):
            if self._pays(len(seeds) - place):
                assert self._run_s is not None, "a run was played here"
                for later, result in play_all(self._workers, seeds[place:], play, self._run_s):
                    if isinstance(result, Lost):  # played here, where its fault is heard
                        result = play(seeds[place + later])  # noqa: PLW2901 # reason: in its place
                    yield place + later, result
                break
            began_s = time.perf_counter()
            replication = play(seed)
            self._run_s = time.perf_counter() - began_s
            self._spent_s += self._run_s
            yield place, replication

    def _pays(self, runs: int) -> bool:
        """Whether processes would be done with some runs sooner than this one."""
        if self._workers.count == 1 or runs == 1 or self._run_s is None:
            return False
        work_s = self._run_s * runs
        if self._workers.are_started:
            return work_s > _HAND_S
        return self._spent_s + work_s > _START_S


def replicator() -> closing[Replicator]:
    """Return a replicator for a `with` block; its workers end with the block."""
    return closing(Replicator())


def replicate_to(
    precision: float,
    first: int,
    seed: int,
    play: Callable[[range], list[Replication]],
    budget: ReplicationBudget,
    *,
    exact: bool = False,
    on_look: Callable[[Sequence[Replication], Precision], None] | None = None,
) -> tuple[list[Replication], Precision]:
    """Replicate until no share's interval is wider than the precision, or the budget is spent.

    first: runs before the first look. play: plays some seeds, which count up from `seed`.
    on_look: hears the runs so far and what they make of the precision, look by look.
    """
    runs: list[Replication] = []

    def widths(count: int) -> list[Interval]:
        try:
            runs.extend(play(range(seed + len(runs), seed + count)))
        except Interrupted as stop:
            raise Interrupted([*runs, *stop.result]) from None
        known = intervals(runs, exact=exact, sequential=True)
        return [known[name] for name in known if name.startswith("refused_share")]

    def tell(precision_so_far: Precision) -> None:
        if on_look is not None:
            on_look(runs, precision_so_far)

    return runs, until_precise(precision, 1 if exact else first, budget, widths, tell)


def until_precise(
    precision: float,
    first: int,
    budget: ReplicationBudget,
    played: Callable[[int], Sequence[Interval]],
    on_look: Callable[[Precision], None],
) -> Precision:
    """Play on until every share is known to a precision, or the budget is spent.

    played: plays until there are so many runs, and returns the interval of every share.
    on_look: hears what each look finds.
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
        reached = Precision(precision, not needed, look, most)
        on_look(reached)
        if reached.reached or count >= budget.most_replications or time.monotonic() >= ends_s:
            break
        count = next_count(count, reached.needed, budget.most_replications)
    return reached


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
    is_shown = in_notebook() if options.progress is None else options.progress
    with progress_bar(scenario.duration_ns, quiet=not is_shown) as tell:
        return run_replicated(replace(options, scenario=scenario), progress=tell)


def _run_once(
    options: RunOptions,
    progress: Progress | None,
    extra: Callable[[Result], Mapping[str, Any]],
) -> Result:
    """Play a scenario once; what `extra` makes of the result goes into the summary too."""
    scenario, columns, warm_up_ns = options.played, options.kept_columns, options.warm_up_ns
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
    on_progress: Callable[[Replication], None] | None = None,
    told_of_precision: Callable[[Sequence[Replication], Precision], None] | None = None,
    command: Sequence[str] | None = None,
) -> Result:
    """Play a scenario once, or under several seeds; the rows and files are those of the first.

    on_progress: hears each run after the first when it is done. command: what repeats this run.
    """
    scenario = options.played
    budget = options.budget(options.replications)
    several, columns = options.are_several, options.kept_columns
    if several and columns is not None:
        raise InputError(
            f"columns = {','.join(columns)} must be left out with replications; intervals are of"
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
            replications, reached = replicate_to(
                options.precision, first, seed, play, budget, exact=exact, on_look=told_of_precision
            )
            others = replications[1:]
        elif several:
            seeds = range(seed + 1, seed + (options.replications or 1))
            others = play(seeds, on_progress=on_progress)

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
        "faults": sum(run.faults for run in runs),
        "runs": [run.to_json() for run in runs],
        "intervals": {name: _interval_plain(interval) for name, interval in spread.items()},
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
    plain = interval._asdict()
    return plain | {name: _plain(plain[name]) for name in ("mean", "low", "high")}


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
    lines = []
    for threshold in scenario.thresholds:
        value = measure(result, threshold.that)
        holds = threshold.that.holds(value)
        lines.append({"that": str(threshold.that), "value": _plain(value), "holds": holds})
    return lines


def _plain(value: float) -> float | None:
    """Return a value as JSON has it: NaN and the infinite are null."""
    return value if math.isfinite(value) else None
