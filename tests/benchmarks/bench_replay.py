"""Replay of files: rate, and memory that is flat in the number of requests, up to 10^8 with BIG=1.

Each size is replayed in a process of its own, compiled, with every column written, hashed, tallied
and checked and the page written, as `simulator replay --out` does. Three kinds of file: a log of
lines in the combined format, whose parsing is most of the work; a Parquet file whose rows stand up
to five seconds out of order, so that runs are sorted on disk and merged; and one of nearly as many
(key, address, path) as requests, where memory follows those and the limits' counters of them.
"""

import datetime as dt
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import simulator
from tests.memory import peak_kb

_ADDRESSES: Final = 2_000
_PATHS: Final = ("/tokenize", "/tokens", "/tokens/search", "/me")
_ROWS_A_SECOND: Final = 1_000
_PIECE: Final = 1 << 18
_NAME: Final = pa.dictionary(pa.int32(), pa.string())
_START: Final = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
_LINE: Final = (
    '{ip} - - [{stamp}] "POST {path} HTTP/1.1" 200 {size} "https://example.test/" '
    '"Mozilla/5.0 (X11; Linux x86_64) Gecko/20100101 Firefox/115.0"\n'
)


def main(*, big: bool = False) -> None:
    """Print a line a size."""
    for kind, sizes in (
        ("combined", (1_000_000, *(4_000_000,) * big)),
        ("parquet", (1_000_000, 10_000_000, *(100_000_000,) * big)),
        ("diverse", (1_000_000, *(10_000_000,) * big)),
    ):
        for rows in sizes:
            with tempfile.TemporaryDirectory() as name:
                for step in ("write", "replay"):  # who writes the log must not count as who reads
                    command = [sys.executable, "-m", "tests.benchmarks.bench_replay"]
                    subprocess.run([*command, step, kind, str(rows), name], check=True)


def _write_lines(file: Path, rows: int) -> None:
    chance = np.random.Generator(np.random.Philox(1))
    with file.open("w") as stream:
        for first in range(0, rows, _PIECE):
            count = min(_PIECE, rows - first)
            address = np.minimum(chance.zipf(1.3, count), _ADDRESSES).tolist()
            for row, number in enumerate(address, first):
                at = _START + dt.timedelta(seconds=row // _ROWS_A_SECOND)
                stream.write(
                    _LINE.format(
                        ip=f"192.0.{number // 256}.{number % 256}",
                        stamp=f"{at:%d/%b/%Y:%H:%M:%S} +0000",
                        path=_PATHS[row % len(_PATHS)],
                        size=row % 5_000,
                    )
                )


def _write_rows(file: Path, rows: int) -> None:
    chance = np.random.Generator(np.random.Philox(1))
    names = np.array([f"192.0.{n // 256}.{n % 256}" for n in range(_ADDRESSES + 1)])
    schema = pa.schema({"t_ns": pa.int64(), "ip": pa.string(), "request": pa.string()})
    gap_ns = 10**9 // _ROWS_A_SECOND
    with pq.ParquetWriter(file, schema) as writer:
        for first in range(0, rows, _PIECE):
            count = min(_PIECE, rows - first)
            t_ns = np.arange(first, first + count) * gap_ns - chance.integers(0, 5 * 10**9, count)
            address = names[np.minimum(chance.zipf(1.3, count), _ADDRESSES)]
            path = np.array([f"POST {path}" for path in _PATHS])[
                chance.integers(0, len(_PATHS), count)
            ]
            columns = [pa.array(column) for column in (t_ns, address, path)]
            writer.write_table(pa.table(columns, schema=schema))


def _write_diverse(file: Path, rows: int) -> None:
    chance = np.random.Generator(np.random.Philox(1))
    names = [
        [f"key text {n:05d}" for n in range(5_000)],
        [f"10.{n >> 16}.{n >> 8 & 255}.{n & 255}" for n in range(200_000)],
        [f"POST /tokens/{n:05d}" for n in range(1_000)],
    ]
    schema = pa.schema({"t_ns": pa.int64(), "key": _NAME, "ip": _NAME, "request": _NAME})
    gap_ns = 10**9 // _ROWS_A_SECOND
    with pq.ParquetWriter(file, schema) as writer:
        for first in range(0, rows, _PIECE):
            t_ns = np.arange(first, min(first + _PIECE, rows)) * gap_ns
            told = [
                pa.DictionaryArray.from_arrays(
                    chance.integers(0, len(known), len(t_ns)).astype(np.int32), known
                )
                for known in names
            ]
            writer.write_table(pa.table([pa.array(t_ns), *told], schema=schema))


_WRITERS: Final[dict[str, Callable[[Path, int], None]]] = {
    "combined": _write_lines,
    "parquet": _write_rows,
    "diverse": _write_diverse,
}


def _replay(kind: str, file: Path) -> None:
    began_s, worked_s = time.perf_counter(), time.process_time()
    result = simulator.replay(
        file,
        fidelity="compiled",
        out=file.parent / "out",
    )
    worked_s = time.process_time() - worked_s
    rows = result.summary["rows"]
    peak_mb = peak_kb() / 1_024
    print(
        f"{rows:>12,} requests of a {kind} file replayed: peak memory {peak_mb:.0f} MB, "
        f"{rows / worked_s / 1e6:.2f} M/s of processor time, "
        f"{result.summary['checks']['faults']} faults, {time.perf_counter() - began_s:.1f} s",
        flush=True,
    )


if __name__ == "__main__":
    _step, _kind, _rows, _folder = sys.argv[1:]
    _file = Path(_folder) / ("access.log" if _kind == "combined" else "rows.parquet")
    if _step == "write":
        _WRITERS[_kind](_file, int(_rows))
    else:
        _replay(_kind, _file)
