"""Attempt rows to Parquet: rows a second, and bytes a row column by column.

Two sources of rows: CL1, where every attempt draws its service time, and W1, an open loop with a
third refused. What a run streams into is the file sink, which writes in one thread and hashes in
another; the bare writer stands beside it.

Beside each column stands its floor: the bytes that an ideal coder of that column alone would take,
knowing how often each value comes but nothing of its neighbours (of `t_ns`, the gaps). A drawn
time in whole nanoseconds cannot be packed below that, so it says how many bytes are the rows' own.

A log may keep fewer columns (`--columns`); beside the whole row stands the set `decisions`, and the
floors say which rows could be 4 bytes at all.
"""

import tempfile
import time
from collections.abc import Callable, Collection
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow.parquet as pq
from rich.console import Console
from rich.table import Table

from engine.messages import Outcome
from simulator.kernel.limiter import verdict_of
from simulator.kernel.running import KernelRun, warm_up
from simulator.rows.parquet import (
    COLUMN_SETS,
    FileSink,
    open_file,
    record_batch,
    schema_of,
)
from simulator.rows.record import (
    CHUNK_ROWS,
    NO_STATUS,
    SCHEMA,
    TEXT_COLUMNS,
    Chunk,
    RequestIdentity,
    SubjectTable,
)
from simulator.traffic.population import Setup
from tests.benchmarks import _measure
from tests.benchmarks.bench_closed_loop import cl1
from tests.benchmarks.bench_compiled import _lanes, _limiter
from tests.benchmarks.workload_w1 import IPS, RESOURCES, w1

Columns: TypeAlias = Collection[str] | None

_VERDICTS: Final = ("t_ns", "outcome", "rule")
_ROUNDS: Final = 5
_W1_ROWS: Final = 1_000_000
_FLOOR_ROWS: Final = 1_000_000
_REFUSED: Final[list[tuple[Outcome, str | None]]] = [("admitted", None), ("refused", "LIM-CREATE")]


def _cl1_chunks(duration_s: int) -> list[Chunk]:
    scenario = cl1(2_000, duration_s)
    setup = Setup.of(scenario, scenario.seed)
    run = KernelRun(setup)
    subjects = SubjectTable()
    chunks = []
    while (records := run.step()) is not None:
        combos = run.sim.combos[len(subjects) : int(run.sim.clock[0]["combo_count"])]
        for number, _, key, address in combos[["client", "entry", "key", "address"]].tolist():
            client = setup.population.clients[number]
            holder, ip = client.keys[key], client.addresses[address]
            subjects.number(
                RequestIdentity(number, "t", "a", holder.label, ip, "POST", "/tokenize")
            )
        columns: dict[str, Any] = {
            name: records[name].astype(np.int64) for name in ("t_ns", "wait_ns", "latency_ns")
        }
        columns |= {name: records[name].astype(np.int64) for name in ("combo", "attempt")}
        columns["subject"] = columns.pop("combo")
        columns["verdict"] = (records["verdict"] > 0).astype(np.int64)
        columns["status"] = np.full(len(records), NO_STATUS)
        chunks.append(Chunk(**columns, subjects=subjects, verdicts=_REFUSED))
    return chunks


def _w1_chunks(rows: int) -> list[Chunk]:
    workload, limiter = w1(rows), _limiter()
    verdict, wait_ns = limiter.decide(workload.t_ns, _lanes(limiter, workload))
    code = (workload.key.astype(np.int64) * IPS + workload.ip) * 8 + workload.resource
    codes, place = np.unique(code, return_inverse=True)
    clients: dict[int, int] = {}
    subjects = SubjectTable()
    for each in codes.tolist():
        who, resource = divmod(each, 8)
        key, ip = divmod(who, IPS)
        number = clients.setdefault(who, len(clients))
        names = (f"t{workload.key_is_test[key]}", f"app-{key // 50}", f"key-{key:04d}")
        address = f"10.{ip >> 8}.{ip & 255}.1"
        subjects.number(RequestIdentity(number, *names, address, *RESOURCES[resource]))
    verdicts: list[Any] = [("admitted", None)]
    table = np.zeros(int(verdict.max()) + 1, dtype=np.int64)
    for number in np.unique(verdict).tolist():
        outcome, rule = verdict_of(number, limiter.names)
        if outcome != "admitted":
            table[number] = len(verdicts)
            verdicts.append((outcome, rule))
    chunks = []
    for first in range(0, rows, CHUNK_ROWS):
        cut = slice(first, first + CHUNK_ROWS)
        t_ns, nothing = workload.t_ns[cut], np.zeros_like(workload.t_ns[cut])
        columns = (place[cut], nothing + 1, table[verdict[cut]], wait_ns[cut])
        chunks.append(Chunk(t_ns, *columns, nothing, nothing - 1, subjects, verdicts))
    return chunks


def _sink(chunks: list[Chunk], path: Path, columns: Columns = None) -> Callable[[], object]:
    def write() -> None:
        made = FileSink(path, columns)
        for chunk in chunks:
            made.take(chunk)
        made.close()

    return write


def _bare(chunks: list[Chunk], path: Path, columns: Columns = None) -> Callable[[], object]:
    def write() -> None:
        schema = schema_of(columns)
        with open_file(path, schema) as writer:
            for chunk in chunks:
                writer.write_batch(record_batch(chunk, schema))

    return write


def _processor_ns(work: Callable[[], object], rows: int) -> float:
    """Return processor time a row, of the best round: what a busy machine does not change much."""
    taken_s = []
    for _ in range(_ROUNDS):
        began_s = time.process_time()
        work()
        taken_s.append(time.process_time() - began_s)
    return min(taken_s) / rows * 1e9


def _floor_bytes(values: Any) -> float:
    """Return the entropy of a column, a row; low bits that no row repeats count as they are."""
    values = np.asarray(values[:_FLOOR_ROWS], dtype=np.int64)
    low_bits, high = 0, values
    while len(np.unique(high)) > len(values) / 32 and low_bits < 62:
        low_bits, high = low_bits + 1, values >> (low_bits + 1)
    nonzero = np.count_nonzero(values) / len(values)  # zeros have no low bits to tell
    shares = np.unique(high, return_counts=True)[1] / len(values)
    return float(low_bits * nonzero - (shares * np.log2(shares)).sum()) / 8


def _sizes(path: Path) -> dict[str, int]:
    found = dict.fromkeys(SCHEMA.names, 0)
    with pq.ParquetFile(path) as file:
        for group in range(file.metadata.num_row_groups):
            for place, name in enumerate(SCHEMA.names):
                found[name] += file.metadata.row_group(group).column(place).total_compressed_size
    return found


def _show_columns(title: str, path: Path) -> dict[str, float]:
    """Print bytes a row of each column in the file, and what it could be at best; return that."""
    rows = pq.read_metadata(path).num_rows
    read = pq.read_table(path)
    floors = {}
    table = Table(title=title, title_justify="left", min_width=40)
    table.add_column("column")
    table.add_column("bytes a row", justify="right")
    table.add_column("floor", justify="right")
    for name, size in _sizes(path).items():
        column = read.column(name)
        if name in TEXT_COLUMNS:
            column = read.column(name).unify_dictionaries().combine_chunks().indices
        values = column.fill_null(-1).to_numpy(zero_copy_only=False)
        floors[name] = _floor_bytes(np.diff(values) if name == "t_ns" else values)
        table.add_row(name, f"{size / rows:.3f}", f"{floors[name]:.3f}")
    Console(width=100).print(table)
    return floors


def _show_sets(
    title: str, chunks: list[Chunk], path: Path, floors: dict[str, float], rows: int
) -> None:
    """Print what the whole row takes, and the row with fewer columns."""
    table = Table(title=title, title_justify="left")
    table.caption = "of one core: processor time, best of several rounds; bytes: of the whole file"
    table.add_column("columns")
    for name in ("bytes a row", "floor", "to Parquet, of one core", "with the digest, of one core"):
        table.add_column(name, justify="right")
    for name, columns in (*COLUMN_SETS.items(), (",".join(_VERDICTS), _VERDICTS)):
        both_ns = _processor_ns(_sink(chunks, path, columns), rows)
        alone_ns = _processor_ns(_bare(chunks, path, columns), rows)
        table.add_row(
            name,
            f"{path.stat().st_size / rows:.2f}",
            f"{sum(floors[column] for column in columns):.2f}",
            f"{alone_ns:.0f} ns, {_measure.rate_text(alone_ns)}",
            f"{both_ns:.0f} ns, {_measure.rate_text(both_ns)}",
        )
    Console(width=110).print(table)


def _show_rates(title: str, chunks: list[Chunk], path: Path, rows: int) -> None:
    """Print the wall clock of whole rows and of fewer columns, with the digest and without."""
    made, version = _measure.Contestant, _measure.version("pyarrow")
    few = COLUMN_SETS["decisions"]
    timings = _measure.interleave(
        [
            made("file sink: Parquet and digest", partial(_sink, chunks, path), rows),
            made("Parquet alone, one thread", partial(_bare, chunks, path), rows, version),
            made("decisions: Parquet and digest", partial(_sink, chunks, path, few), rows),
            made("decisions: Parquet alone", partial(_bare, chunks, path, few), rows, version),
        ],
        rounds=_ROUNDS,
    )
    _measure.show(title, "rows", timings)


def main(*, big: bool = False) -> None:
    """Print the tables."""
    warm_up(print)
    sources = {
        "CL1, 2,000 clients": _cl1_chunks(6_000 if big else 1_500),
        "W1": _w1_chunks(_W1_ROWS * (10 if big else 1)),
    }
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"
        for name, chunks in sources.items():
            rows = sum(len(chunk) for chunk in chunks)
            _show_rates(f"{rows} attempt rows of {name} to a file", chunks, path, rows)
            _sink(chunks, path)()
            floors = _show_columns(f"{name}: where the bytes are", path)
            _show_sets(f"{name}: fewer columns", chunks, path, floors, rows)
