"""Sweeps: one scenario under many values, sampled or in a grid, each run under its own seed.

`sweep` plays them on all local cores, or on a Dask cluster, into a folder that is a Parquet
dataset; `load_sweep` reads it back. A sweep that was stopped goes on where it was.

*Values*: `path=v1,v2` lists values; `path=A..B` is a range of whole or decimal numbers, durations
or rates of one window. A sample of N draws N points of all ranges at once, so that each range is
covered evenly however many there are.

*Folder*: a Parquet dataset partitioned by point, one file a run. A file is written beside its place
and moved, so what is there is done; a sweep that goes on plays what is missing. `_sweep.json` says
which sweep it is, so that another one is not mixed in.

A run that breaks its worker twice is recorded as failed (`simulator.study.workers`).
"""

from __future__ import annotations

import hashlib
import itertools
import json
import pickle
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import KW_ONLY, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from engine.errors import InputError
from engine.files import format_duration, parse_duration_ns, parse_rate
from simulator.arguments import (
    FOLDER,
    FUNCTION,
    TEXT,
    ArgumentRule,
    count_option,
    option,
    optional,
    options,
    takes,
    takes_options,
    whole,
)
from simulator.options import CompiledOptions
from simulator.play.simulation import Fidelity, fidelity_in_force, seed_in_force, warm_up
from simulator.quantiles import latin_hypercube
from simulator.scenario import Scenario, dump, value_of, with_values
from simulator.scenario.model import needs_bodies
from simulator.study.runs import NONE_IS_0, PRELOAD, run_replication
from simulator.study.workers import Lost, check_scheduler, play_all, workers_of

Point: TypeAlias = dict[str, Any]
"""Path in the scenario → value, as a file would hold it."""

AXES: Final = ArgumentRule(
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
    match = _SAMPLE.fullmatch(text)
    if match is None:
        raise InputError(f"--sample = {text!r} must be lhs:N, such as lhs:50")
    return int(match[1])


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
        span = Span(written, ends[0], ends[1], "int")  # type: ignore[arg-type] # reason: both are numbers
    elif all(isinstance(end, int | float) and not isinstance(end, bool) for end in ends):
        span = Span(written, ends[0], ends[1], "float")  # type: ignore[arg-type] # reason: as above
    elif "/" in low and "/" in high:
        lowest, other = parse_rate(low), parse_rate(high)
        if lowest.window_ns != other.window_ns:
            raise InputError(f"--set = {text!r} must have one window in both rates")
        window = format_duration(lowest.window_ns)
        span = Span(written, lowest.limit_requests, other.limit_requests, "rate", window)
    else:
        span = Span(written, parse_duration_ns(low), parse_duration_ns(high), "duration")
    if span.low >= span.high:
        raise InputError(f"--set = {text!r} must go from the lower to the higher value")
    return span


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
            if known.read_bytes() != text.encode():
                raise InputError(
                    f"--out = {folder} must hold this sweep or nothing; its {SPEC_FILE} is "
                    "of another, choose another folder"
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
    values = {name: value for name, value in row.items() if name != "point"}
    table = pa.Table.from_pylist([values])
    pq.write_table(table, partial, compression="zstd", write_page_checksum=True)
    partial.replace(place / f"{stem}.parquet")
    if row["status"] == "ok":
        (place / f"failed-{row['replication']:06d}.parquet").unlink(missing_ok=True)


def _read_row(path: Path) -> dict[str, Any]:
    """Return the row of one run. Raises `InputError` naming the file where it is damaged."""
    try:
        row: dict[str, Any] = pq.read_table(
            path, partitioning=None, page_checksum_verification=True
        ).to_pylist()[0]
    except (pa.ArrowException, OSError, UnicodeDecodeError, IndexError):
        row = {}
    if not {"values", "replication", "status"} <= row.keys():
        raise InputError(
            f"{path} must be a row of a sweep; it is damaged, remove it and sweep again"
        )
    return row


@takes(folder=FOLDER)
def load_sweep(folder: str | Path) -> pd.DataFrame:
    """Return a sweep as a frame, one row per run in order of point and replication.

    Columns: what was set, by its path; `point`, `replication`, `seed`, `fidelity`, `status` (`ok`
    or `failed`), `error`, `sha256`, `scenario` (the resolved TOML), and a metric a column,
    durations in nanoseconds. Raises `InputError` for a folder that holds no sweep, or a damaged
    file, which it names.
    """
    folder = Path(folder)
    spec = folder / SPEC_FILE
    if not spec.is_file():
        raise InputError(f"folder = {folder} must be a sweep's folder; it has no {SPEC_FILE}")
    try:
        json.loads(spec.read_bytes())
    except (OSError, ValueError):
        raise InputError(
            f"{spec} must describe a sweep; it is damaged, sweep again into another folder"
        ) from None
    rows: list[dict[str, Any]] = []
    for path in sorted(folder.glob("point=*/*.parquet")):
        point = int(path.parent.name.partition("=")[2])
        row = _read_row(path)
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
class SweepTask:
    """One run of a sweep.

    point: its number in the sweep. values: what was set. scenario: its resolved TOML text. pickled:
    the same scenario as a worker reads it. shares: whether more runs of the point follow, so that
    what they share is worth making.
    """

    point: int
    replication: int
    seed: int
    fidelity: Fidelity
    values: Point
    scenario: str
    pickled: bytes
    shares: bool = False


def play_task(task: SweepTask) -> dict[str, Any]:
    """Play a task; return its row, which holds the error where the run fails."""
    try:
        run = run_replication(task.pickled, task.seed, fidelity=task.fidelity, shares=task.shares)
    except Exception as fault:  # noqa: BLE001 # reason: one run's fault must not end the others
        return failed_row(task, f"{type(fault).__name__}: {fault}")
    return _head(task) | {"status": "ok", "error": "", "sha256": run.sha256} | run.line


def failed_row(task: SweepTask, error: str) -> dict[str, Any]:
    """Return the row of a task that has no result."""
    return _head(task) | {"status": "failed", "error": error, "sha256": ""}


def _head(task: SweepTask) -> dict[str, Any]:
    names = ("point", "replication", "seed", "fidelity", "scenario")
    values = json.dumps(task.values, sort_keys=True)
    return {name: getattr(task, name) for name in names} | {"values": values}


_WRITTEN: Final = "written"
_SEED: Final = "seed"
_SEEDS: Final = 1 << 63
"""No row holds a larger seed."""


@options
class SweepOptions(CompiledOptions):
    """The options of a sweep."""

    axes: Mapping[str, Sequence[Any] | str] = option(
        AXES,
        'path in the scenario → a list of values, or a text as on the command line ("1,2",'
        ' "10/10s..100/10s"); an axis seed says each point\'s first',
        flag=False,
    )
    _: KW_ONLY
    sample: str | None = option(
        optional(TEXT),
        "number of points, a Latin hypercube over all ranges",
        default=None,
        metavar="lhs:N",
    )
    replications: int = count_option("runs of each point, with consecutive seeds (1)", default=1)
    scheduler: str | None = option(
        optional(TEXT),
        "local, or the address of a Dask scheduler; left out, the cores of this machine",
        default=None,
        metavar="ADDRESS",
    )
    workers: int | None = count_option(
        "how many processes (all cores)",
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
    """Run a scenario at every point of a space, and return the runs as a frame (`load_sweep`).

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
    check_scheduler(options.scheduler)  # before anything is said or written
    tasks = tasks_of(base, points, options.replications, seed, options.fidelity)
    folder = Path(options.out)
    open_folder(folder, _spec(options, base, seed))
    done = done_runs(folder)
    left = [task for task in tasks if (task.point, task.replication) not in done]
    if progress is not None:
        progress(len(tasks) - len(left), len(tasks))
    if left:
        _play(left, folder, options, len(tasks))
    return load_sweep(folder)


def _play(left: Sequence[SweepTask], folder: Path, options: SweepOptions, count: int) -> None:
    if options.fidelity == "compiled":
        warm_up()  # here, so that workers find it compiled
    with closing(workers_of(options.scheduler, options.workers, PRELOAD)) as workers:
        play = partial(_play_into, folder.absolute()) if workers.here else play_task
        done = count - len(left)
        for place, result in play_all(workers, left, play):
            row = failed_row(left[place], result.why) if isinstance(result, Lost) else result
            if not row.pop(_WRITTEN, False):
                write_row(folder, row)
            done += 1
            if options.progress is not None:
                options.progress(done, count)


def _play_into(folder: Path, task: SweepTask) -> dict[str, Any]:
    """Play a task and write its row, where the worker has the sweep's own disk."""
    row = play_task(task)
    # A row that cannot be written here is written again by the parent, which reports the error.
    with suppress(OSError):
        write_row(folder, row)
        row[_WRITTEN] = True
    return row


def tasks_of(
    base: Scenario, points: Sequence[Point], replications: int, seed: int, fidelity: Fidelity
) -> list[SweepTask]:
    """Return the runs of a sweep. Raises `InputError` for a point that is no scenario."""
    tasks = []
    for number, values in enumerate(points):
        scenario = with_values(base, values.items())
        if fidelity == "compiled" and (reason := needs_bodies(scenario)):
            raise InputError(f"fidelity = 'compiled' is limits alone, and {reason}")
        text, pickled = dump(scenario, absolute=True), pickle.dumps(scenario)
        used = fidelity_in_force(scenario, fidelity)
        first = scenario.seed if _SEED in values else seed
        if first + replications > _SEEDS:
            raise InputError(
                f"seed = {first} must leave room for {replications} replications below 2^63;"
                " take a lower one"
            )
        tasks += [
            SweepTask(
                number, run, first + run, used, values, text, pickled, shares=replications > 1
            )
            for run in range(replications)
        ]
    return tasks


def _spec(options: SweepOptions, base: Scenario, seed: int) -> dict[str, Any]:
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
