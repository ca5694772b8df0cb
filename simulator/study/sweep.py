"""Sweeps: one scenario under many values, sampled or in a grid, each run under its own seed.

`sweep` plays them on all local cores, or on a Dask cluster, into a folder that is a Parquet
dataset; `load_sweep` reads it back. A sweep that was stopped goes on where it was.

*Values*: `path=v1,v2` lists values; `path=A..B` is a range of whole or decimal numbers, durations
or rates of one window. A sample of N draws N points of all ranges at once, so that each range is
covered evenly however many there are.

*Folder*: a Parquet dataset partitioned by point, one file a run. A file is written beside its place
and moved, so what is there is done; a sweep that goes on plays what is missing. `_sweep.json` says
which sweep it is, so that another one is not mixed in.

*Workers*: one interface, `concurrent.futures.Executor`: threads of this process for compiled runs,
which release the lock, processes of this machine for runs in Python, or a Dask cluster. A process
that dies takes its task along, and in a local pool all that were under way. The pool is made anew
and those are played again one by one; a task that breaks it a second time is recorded as failed.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import logging
import re
import secrets
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import (
    FIRST_COMPLETED,
    CancelledError,
    Future,
    wait,
)
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing, suppress
from dataclasses import KW_ONLY, asdict, dataclass
from functools import lru_cache, partial
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeAlias, TypeVar

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from engine.files import format_duration, parse_duration_ns, parse_rate
from simulator.arguments import FOLDER, FUNCTION, TEXT, Rule, optional, takes, whole
from simulator.options import CompiledOptions, count_option, option, options, takes_options
from simulator.play.simulation import (
    Fidelity,
    fidelity_in_force,
    seed_in_force,
    template_for,
    warm_up,
)
from simulator.progress import Progress
from simulator.quantiles import latin_hypercube
from simulator.scenario import Scenario, dump, loads, value_of, with_values
from simulator.scenario.model import needs_bodies
from simulator.study.runs import (
    NONE_IS_0,
    Play,
    ProcessWorkers,
    ThreadWorkers,
    Workers,
    cores,
    interrupts_blocked,
    line_of,
)

if TYPE_CHECKING:
    from simulator.kernel.running import Template

P = ParamSpec("P")
R = TypeVar("R")

Point: TypeAlias = dict[str, Any]
"""Path in the scenario → value, as a file would hold it."""

AXES: Final = Rule(
    "paths in the scenario, each with a list of values that is not empty, or with a text such as"
    ' "10/10s..100/10s"',
    lambda axes: (
        isinstance(axes, Mapping)
        and all(map(TEXT.holds, axes))
        and all(TEXT.holds(values) or _is_list(values) for values in axes.values())
    ),
    lambda axes: {path: _listed(values) for path, values in axes.items()},
)
_SAMPLE: Final = re.compile(r"lhs:([1-9]\d{0,5})")


@dataclass(frozen=True, slots=True)
class Span:
    """A range of values, both ends included; text is what it was written as."""

    text: str
    low: float
    high: float
    kind: str
    window: str = ""

    def at(self, share: float) -> Any:  # noqa: ANN401 # reason: a number or a text
        """Return the value at a share of the way, as a file would hold it."""
        if self.kind == "float":
            return self.low + share * (self.high - self.low)
        # Each whole number has the same part of the way, the ends too.
        whole = min(int(self.high), int(self.low) + int(share * (self.high - self.low + 1)))
        if self.kind == "duration":
            return format_duration(whole)
        return f"{whole}/{self.window}" if self.kind == "rate" else whole


def read_axis(text: str) -> tuple[str, Span | list[Any]]:
    """Return the path and the values of `path=…`. Raises `InputError`.

    >>> read_axis("clients.browsers.count=1,2"), read_axis("rules.LIM-IP.rate=5/1s..9/1s")[1].kind
    (('clients.browsers.count', [1, 2]), 'rate')
    """
    path, equals, values = text.partition("=")
    if not equals or not path.strip() or not values.strip():
        raise InputError(f"--set = {text!r} must be path=v1,v2 or path=A..B")
    ends = values.split("..")
    if len(ends) == 2 and all(ends):
        return path.strip(), _span(text, *(end.strip() for end in ends))
    return path.strip(), [value_of(part.strip()) for part in _parts(values)]


def read_sample(text: str) -> int:
    """Return N of `lhs:N`. Raises `InputError`."""
    found = _SAMPLE.fullmatch(text)
    if found is None:
        raise InputError(f"--sample = {text!r} must be lhs:N, such as lhs:50")
    return int(found[1])


def points_of(
    axes: Mapping[str, Span | Sequence[Any]], sample: int | None, seed: int
) -> list[Point]:
    """Return every point: the grid of the lists, times the sample of the ranges.

    Raises `InputError` for ranges without a sample, or a sample without ranges.
    """
    spans = {path: axis for path, axis in axes.items() if isinstance(axis, Span)}
    lists = {path: axis for path, axis in axes.items() if not isinstance(axis, Span)}
    if spans and sample is None:
        path, span = next(iter(spans.items()))
        raise InputError(f"--set = '{path}={span.text}' is a range; add --sample lhs:N")
    if sample is not None and not spans:
        raise InputError(f"--sample = 'lhs:{sample}' must have a range; add --set path=A..B")
    grid = [dict(zip(lists, values, strict=True)) for values in itertools.product(*lists.values())]
    if sample is None:
        return grid
    shares = latin_hypercube(sample, len(spans), seed)
    drawn = [
        {path: span.at(share) for (path, span), share in zip(spans.items(), row, strict=True)}
        for row in shares
    ]
    return [point | values for point in grid for values in drawn]


def _is_list(values: object) -> bool:
    return isinstance(values, list | tuple | range | np.ndarray | pd.Series) and len(values) > 0


def _listed(values: Any) -> str | list[Any]:  # noqa: ANN401 # reason: a text or any kind of list
    """Return a text as it is, and the values of a list as plain Python has them."""
    if isinstance(values, str):
        return values
    plain = values.tolist() if isinstance(values, np.ndarray | pd.Series) else list(values)
    return [value.item() if isinstance(value, np.generic) else value for value in plain]


def _span(text: str, low: str, high: str) -> Span:
    ends = value_of(low), value_of(high)
    written = f"{low}..{high}"
    if all(isinstance(end, int) and not isinstance(end, bool) for end in ends):
        found = Span(written, ends[0], ends[1], "int")  # type: ignore[arg-type] # reason: both are numbers
    elif all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        found = Span(written, ends[0], ends[1], "float")  # type: ignore[arg-type] # reason: as above
    elif "/" in low and "/" in high:
        one, other = parse_rate(low), parse_rate(high)
        if one.window_ns != other.window_ns:
            raise InputError(f"--set = {text!r} must have one window in both rates")
        window = format_duration(one.window_ns)
        found = Span(written, one.limit_requests, other.limit_requests, "rate", window)
    else:
        found = Span(written, parse_duration_ns(low), parse_duration_ns(high), "duration")
    if found.low >= found.high:
        raise InputError(f"--set = {text!r} must go from the lower to the higher value")
    return found


def _parts(values: str) -> list[str]:
    """Split at commas that stand in no brackets and no quotes."""
    parts, depth, quote, begin = [], 0, "", 0
    for place, letter in enumerate(values):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "'\"":
            quote = letter
        elif letter in "[{(":
            depth += 1
        elif letter in "]})":
            depth -= 1
        elif letter == "," and not depth:
            parts.append(values[begin:place])
            begin = place + 1
    return [*parts, values[begin:]]


SPEC_FILE: Final = "_sweep.json"
"""Readers of Parquet datasets pass over what begins with `_`."""


def open_folder(folder: Path, spec: dict[str, Any]) -> None:
    """Make a sweep's folder, or go on with one that holds the same sweep.

    Raises `InputError` where it holds another sweep or something else, or cannot be written.
    """
    text = json.dumps(spec, indent=2, ensure_ascii=False) + "\n"
    known = folder / SPEC_FILE
    try:
        if known.is_file():
            if known.read_text("utf-8") != text:
                raise InputError(
                    f"--out = {folder} must hold this sweep or nothing; it holds another, "
                    "choose another folder"
                )
            return
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise InputError(f"--out = {folder} must be an empty folder or a sweep's; choose one")
        folder.mkdir(parents=True, exist_ok=True)
        known.write_text(text, "utf-8")
    except OSError as fault:
        raise InputError(
            f"--out = {folder} must be a folder that can be written; {fault.strerror}"
        ) from None


def done_runs(folder: Path) -> set[tuple[int, int]]:
    """Return (point, replication) of the runs that came to an end well."""
    return {
        (int(path.parent.name.partition("=")[2]), int(path.stem.removeprefix("run-")))
        for path in folder.glob("point=*/run-*.parquet")
    }


def write_row(folder: Path, row: dict[str, Any]) -> None:
    """Write one run's row; a failed one under a name of its own, so that it is tried again."""
    place = folder / f"point={row['point']:06d}"
    place.mkdir(exist_ok=True)
    stem = f"{'run' if row['status'] == 'ok' else 'failed'}-{row['replication']:06d}"
    partial = place / f".{stem}.{secrets.token_hex(4)}.partial"
    kept = {name: value for name, value in row.items() if name != "point"}
    pq.write_table(pa.Table.from_pylist([kept]), partial, compression="zstd")
    partial.replace(place / f"{stem}.parquet")
    if row["status"] == "ok":
        (place / f"failed-{row['replication']:06d}.parquet").unlink(missing_ok=True)


@takes(folder=FOLDER)
def load_sweep(folder: str | Path) -> pd.DataFrame:
    """Return a sweep as a frame, a row a run in order of point and replication.

    Columns: what was set, by its path; `point`, `replication`, `seed`, `fidelity`, `status` (`ok`
    or `failed`), `error`, `sha256`, `scenario` (the resolved TOML), and a metric a column,
    durations in nanoseconds. Raises `InputError` for a folder that holds no sweep.
    """
    folder = Path(folder)
    if not (folder / SPEC_FILE).is_file():
        raise InputError(f"folder = {folder} must be a sweep's folder; it has no {SPEC_FILE}")
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("point=*/*.parquet")):
        point = int(path.parent.name.partition("=")[2])
        row = pq.ParquetFile(path).read().to_pylist()[0]
        rows.append({**json.loads(row.pop("values")), "point": point, **row})
    frame = pd.DataFrame(rows)
    if not len(frame):
        return frame
    for name in frame.columns:
        if str(name).startswith(NONE_IS_0):
            frame.loc[frame["status"] == "ok", name] = frame[name].fillna(0.0)
    order = frame.sort_values(["point", "replication"], kind="stable")
    return order.reset_index(drop=True)


@dataclass(frozen=True, slots=True)
class Task:
    """point: its number in the sweep; values: what was set; scenario: its resolved TOML text."""

    point: int
    replication: int
    seed: int
    fidelity: Fidelity
    values: Point
    scenario: str

    @property
    def known(self) -> tuple[int, int]:
        """What tells it from the sweep's other tasks."""
        return self.point, self.replication


def play_task(
    task: Task,
    prepare: Callable[[Task], tuple[Scenario, Template | None]] | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Play a task; return its row, which holds the error where the run fails.

    prepare: returns the task's scenario, and what runs of it share.
    """
    try:
        scenario, template = prepare(task) if prepare else (loads(task.scenario), None)
        play = Play(task.fidelity, warm_up_ns=None, check=False, line=line_of)
        found = play(scenario, task.seed, progress=progress, template=template)
    except Exception as fault:  # noqa: BLE001 # reason: one run's fault must not end the others
        return failed_row(task, f"{type(fault).__name__}: {fault}")
    return _head(task) | {"status": "ok", "error": "", "sha256": found.sha256} | found.line


def failed_row(task: Task, error: str) -> dict[str, Any]:
    """Return the row of a task that has no result."""
    return _head(task) | {"status": "failed", "error": error, "sha256": ""}


def _head(task: Task) -> dict[str, Any]:
    return asdict(task) | {"values": json.dumps(task.values, sort_keys=True)}


LOCAL: Final = "local"
_AHEAD: Final = 2
_BREAKS: Final = 2
_BATCH_S: Final = 0.1
"""Tasks sent together take about this long: few messages, and results come back soon."""

_DASK: Final = {
    # How often a task may break a worker is counted here, as for local processes.
    "distributed.scheduler.allowed-failures": 0,
    # A worker that died is started again however long it takes; else none might be left.
    "distributed.deploy.lost-worker-timeout": "1h",
}

_Played: TypeAlias = tuple[float, list[dict[str, Any]]]
"""How many seconds some tasks took, and their rows."""


class Threads(ThreadWorkers):
    """Threads of this process, for compiled runs: those of one point share what they can."""

    def __init__(self, count: int | None = None) -> None:
        super().__init__(count)
        self._preparing = Lock()
        self._scenario = lru_cache(self.count + 1)(loads)
        self._template = lru_cache(self.count + 1)(self._shared)

    def play(self, task: Task) -> dict[str, Any]:
        """Play a task, until `close`."""
        return play_task(task, self._prepare, self.stop)

    def _prepare(self, task: Task) -> tuple[Scenario, Template | None]:
        with self._preparing:  # one thread prepares what others wait for
            scenario = self._scenario(task.scenario)
            # A template pays from the second run of a point on.
            return scenario, self._template(task.scenario) if task.replication else None

    def _shared(self, text: str) -> Template | None:
        return template_for(self._scenario(text))


class Cluster(Workers):
    """A Dask cluster: one of this machine (`local`), or one by its address."""

    here = False

    def __init__(self, scheduler: str, count: int | None = None) -> None:
        check_scheduler(scheduler)
        import dask as _dask  # noqa: PLC0415 # reason: an optional dependency
        import distributed as _distributed  # noqa: PLC0415 # reason: as above

        dask: Any = _dask
        distributed: Any = _distributed
        cluster: Any = None
        self._own = ExitStack()
        try:
            if scheduler == LOCAL:
                self._own.enter_context(dask.config.set(_DASK))
                cluster = _local_cluster(distributed, count)
                self._own.callback(cluster.close)
            self._client = distributed.Client(cluster or scheduler, timeout="10s")
        except (OSError, ValueError) as fault:
            self._own.close()
            raise InputError(
                f"--scheduler = {scheduler!r} must be local or a scheduler's address that "
                f"answers; {fault}"
            ) from None
        self.count = max(1, sum(self._client.nthreads().values()))
        self._executor = self._client.get_executor(retries=0, pure=False)

    def submit(self, call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Have a worker call a function; the cluster replaces workers that die."""
        with interrupts_blocked():
            found: Future[R] = self._executor.submit(call, *args, **kwargs)
        return found

    def close(self) -> None:
        """Leave the cluster; end it where it is this machine's own."""
        self._client.close()
        self._own.close()


def _local_cluster(distributed: Any, count: int | None) -> Any:  # noqa: ANN401 # reason: Dask has no types
    # The task's row reports what broke a worker, so Dask's own messages are off.
    with interrupts_blocked():
        return distributed.LocalCluster(
            n_workers=count or cores(),
            threads_per_worker=1,
            dashboard_address=None,
            silence_logs=logging.CRITICAL,
        )


def check_scheduler(scheduler: str | None) -> None:
    """Raise `InputError` where a scheduler is asked for and Dask is not installed."""
    if scheduler is not None and None in map(find_spec, ("dask", "distributed")):
        raise InputError(f"--scheduler = {scheduler!r} must have Dask; install tollgate[dask]")


def workers_of(
    scheduler: str | None, count: int | None = None, fidelity: Fidelity = "limits"
) -> Workers:
    """Return the workers that a command asks for. Raises `InputError` where there are none."""
    if count is not None and scheduler not in {None, LOCAL}:
        raise InputError(
            f"--workers = {count} must be left out; {scheduler} has the workers that it has"
        )
    if scheduler is not None:
        return Cluster(scheduler, count)
    return Threads(count) if fidelity == "compiled" else ProcessWorkers(count)


def play_all(
    workers: Workers,
    tasks: Sequence[Task],
    play: Callable[[Task], dict[str, Any]] = play_task,
) -> Iterator[dict[str, Any]]:
    """Yield each task's row, in order of arrival.

    Short tasks travel several at a time, so that handing them out costs little beside them.
    """
    waiting = deque(tasks)
    suspects: deque[Task] = deque()
    breaks: Counter[tuple[int, int]] = Counter()
    under_way: dict[Future[_Played], Sequence[Task]] = {}
    each_s = _BATCH_S
    while waiting or suspects or under_way:
        if suspects:
            if not under_way:
                batch = [suspects.popleft()]
                under_way[workers.submit(_play_some, play, batch)] = batch
        else:
            while waiting and len(under_way) < _AHEAD * workers.count:
                size = _batch_size(each_s, len(waiting), workers.count)
                batch = [waiting.popleft() for _ in range(size)]
                under_way[workers.submit(_play_some, play, batch)] = batch
        done, _ = wait(under_way, return_when=FIRST_COMPLETED)
        for future in done:
            batch = list(under_way.pop(future))
            fault = _fault(future)
            if fault is None:
                taken_s, rows = future.result()
                each_s = taken_s / len(rows)
                yield from rows
                continue
            if isinstance(fault, BrokenProcessPool | CancelledError):
                workers.broken()
            for task in batch:
                breaks[task.known] += 1
                if (number := breaks[task.known]) < _BREAKS:
                    suspects.append(task)
                else:
                    why = f"its worker died {number} times ({type(fault).__name__})"
                    yield failed_row(task, why)


def _batch_size(each_s: float, waiting: int, count: int) -> int:
    """Return how many tasks go together: `_BATCH_S` of them, fewer towards the end."""
    fair = waiting // (_AHEAD * count)
    return max(1, min(fair, int(_BATCH_S / max(each_s, 1e-4))))


def _play_some(play: Callable[[Task], dict[str, Any]], tasks: Sequence[Task]) -> _Played:
    """Play tasks one after the other: what a worker runs."""
    began_s = time.perf_counter()
    rows = [play(task) for task in tasks]
    return time.perf_counter() - began_s, rows


def _fault(future: Future[_Played]) -> BaseException | None:
    with suppress(CancelledError):
        return future.exception()
    return CancelledError()


_WRITTEN: Final = "written"
_SEED: Final = "seed"
_SEEDS: Final = 1 << 63
"""No row holds a larger seed."""


@options
class SweepOptions(CompiledOptions):
    """What a sweep can be told."""

    axes: Mapping[str, Sequence[Any] | str] = option(
        AXES,
        'path in the scenario → a list of values, or a text as on the command line ("1,2",'
        ' "10/10s..100/10s"); an axis seed says each point\'s first',
        flag=False,
    )
    _: KW_ONLY
    sample: str | None = option(
        optional(TEXT), "points of the ranges together", default=None, metavar="lhs:N"
    )
    replications: int = count_option("runs a point, under seeds that count up (1)", default=1)
    scheduler: str | None = option(
        optional(TEXT),
        "local, or the address of a Dask scheduler; left out, the cores of this machine",
        default=None,
        metavar="ADDRESS",
    )
    workers: int | None = count_option(
        "how many: threads where compiled, else processes (all cores)",
        default=None,
        rule=optional(whole(1), "all cores"),
    )
    out: str | Path = option(
        FOLDER, "folder of the dataset; one that holds this sweep goes on where it was", flag=False
    )
    progress: Callable[[int, int], None] | None = option(
        optional(FUNCTION), "hears how many runs are done, of how many", default=None, flag=False
    )


@takes_options(SweepOptions)
def sweep(options: SweepOptions) -> pd.DataFrame:
    """Play a scenario at every point of a space, and return the runs as a frame (`load_sweep`).

    {options}

    Raises `InputError` for a space or a folder that cannot be, before anything is played.
    """
    axes, sample, progress = options.axes, options.sample, options.progress
    if options.seed is not None and _SEED in axes and sample is None:
        raise InputError(f"seed = {options.seed} must be left out; the axis seed says each point's")
    base = options.played
    seed = seed_in_force(base, options.seed)
    spaces = {
        path: read_axis(f"{path}={values}")[1] if isinstance(values, str) else values
        for path, values in axes.items()
    }
    points = points_of(spaces, None if sample is None else read_sample(sample), seed)
    tasks = tasks_of(base, points, options.replications, seed, options.fidelity)
    folder = Path(options.out)
    check_scheduler(options.scheduler)  # before anything is written
    open_folder(folder, _spec(options, base, seed))
    done = done_runs(folder)
    left = [task for task in tasks if task.known not in done]
    if progress is not None:
        progress(len(tasks) - len(left), len(tasks))
    if left:
        _play(left, folder, options, len(tasks))
    return load_sweep(folder)


def _play(left: Sequence[Task], folder: Path, options: SweepOptions, count: int) -> None:
    if options.fidelity == "compiled":
        warm_up()  # here, so that workers find it compiled
    fidelity = fidelity_in_force(loads(left[0].scenario), options.fidelity)
    with closing(workers_of(options.scheduler, options.workers, fidelity)) as hands:
        play = hands.play if isinstance(hands, Threads) else play_task
        if hands.here:
            play = partial(_play_into, folder.absolute(), play)
        for number, row in enumerate(play_all(hands, left, play), count - len(left) + 1):
            if not row.pop(_WRITTEN, False):
                write_row(folder, row)
            if options.progress is not None:
                options.progress(number, count)


def _play_into(folder: Path, play: Callable[[Task], dict[str, Any]], task: Task) -> dict[str, Any]:
    """Play a task and write its row, where the worker has the sweep's own disk."""
    row = play(task)
    # A row that cannot be written here is written again by the parent, which reports the error.
    with suppress(OSError):
        write_row(folder, row)
        row[_WRITTEN] = True
    return row


def tasks_of(
    base: Scenario, points: Sequence[Point], replications: int, seed: int, fidelity: Fidelity
) -> list[Task]:
    """Return the runs of a sweep. Raises `InputError` for a point that is no scenario."""
    tasks = []
    for number, values in enumerate(points):
        scenario = with_values(base, values.items())
        if fidelity == "compiled" and (reason := needs_bodies(scenario)):
            raise InputError(f"fidelity = 'compiled' is limits alone, and {reason}")
        text = dump(scenario, absolute=True)
        first = scenario.seed if _SEED in values else seed
        if first + replications > _SEEDS:
            raise InputError(
                f"seed = {first} must leave room for {replications} replications below 2^63;"
                " take a lower one"
            )
        tasks += [
            Task(number, replication, first + replication, fidelity, values, text)
            for replication in range(replications)
        ]
    return tasks


def _spec(options: SweepOptions, base: Scenario, seed: int) -> dict[str, Any]:
    """Return all that makes a sweep this one."""
    text = dump(base, absolute=True)
    return {
        "format": 1,
        "scenario": base.name,
        "scenario_sha256": hashlib.sha256(text.encode()).hexdigest(),
        "axes": options.axes,
        "sample": options.sample,
        "replications": options.replications,
        "seed": seed,
        "fidelity": options.fidelity,
    }
