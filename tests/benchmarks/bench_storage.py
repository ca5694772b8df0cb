"""Attempt rows to Parquet: rows a second and bytes a row, of a compiled run's own rows.

The file sink is what a run streams into; its digest of all columns is part of what it does, so the
same writer without the digest stands beside it.
"""

import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from simulator.backends.compiled import CompiledRun, warm_up
from simulator.backends.compiled.layout import COMBO_COUNT
from simulator.results.columns import TextColumns, record_batch
from simulator.results.rows import Chunk, Subject
from simulator.results.storing import FileSink, _writer
from simulator.scenario import limit_tables_of, profile_of
from simulator.traffic.population import populate
from tests.benchmarks import _measure
from tests.benchmarks.bench_closed_loop import cl1

_ROUNDS: Final = 5


def _chunks(duration_s: int) -> list[Chunk]:
    scenario = cl1(2_000, duration_s)
    population = populate(scenario, scenario.seed)
    run = CompiledRun(
        scenario, population, limit_tables_of(scenario), profile_of(scenario), scenario.seed
    )
    subjects: list[Subject] = []
    chunks = []
    while (count := run.step()) is not None:
        for combo in run.sim.combos[len(subjects) : int(run.sim.clock[COMBO_COUNT])].tolist():
            client = population.clients[combo[0]]
            holder, ip = client.keys[combo[2]], client.addresses[combo[3]]
            subjects.append(Subject(combo[0], "t", "a", holder.label, ip, "POST", "/tokenize"))
        t_ns, subject, attempt, verdict, wait_ns, latency_ns, status = run.sim.rows[
            :, :count
        ].copy()
        chunks.append(
            Chunk(
                t_ns,
                subject,
                attempt,
                (verdict > 0).astype("int64"),
                wait_ns,
                latency_ns,
                status,
                subjects,
                [("admitted", None), ("refused", "LIM-CREATE")],
            )
        )
    return chunks


def main(*, big: bool = False) -> None:
    """Print the table."""
    warm_up(print)
    chunks = _chunks(6_000 if big else 1_500)
    rows = sum(len(chunk) for chunk in chunks)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.parquet"

        def sink() -> Callable[[], object]:
            def write() -> None:
                made = FileSink(path)
                for chunk in chunks:
                    made.take(chunk)
                made.close()

            return write

        def bare() -> Callable[[], object]:
            def write() -> None:
                texts = TextColumns()
                with _writer(path) as writer:
                    for chunk in chunks:
                        writer.write_batch(record_batch(texts.encode(chunk), texts))

            return write

        timings = _measure.interleave(
            [
                _measure.Contestant("Parquet", bare, rows, _measure.version("pyarrow")),
                _measure.Contestant("Parquet and digest (file sink)", sink, rows),
            ],
            rounds=_ROUNDS,
        )
        _measure.show(f"{rows} attempt rows to a file", "rows", timings)
        print(f"{path.stat().st_size / rows:.2f} bytes a row")
