"""Memory of a run whose rows go to disk: flat in the number of requests, up to 10^8 with BIG=1.

Each size is played in a process of its own, compiled, with every column written, hashed, tallied
and checked, as `simulator run --out` does; what is printed is the most that the process ever held.
"""

import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from simulator.play.simulation import simulate
from tests.benchmarks.bench_closed_loop import cl1
from tests.memory import peak_kb

_CLIENTS: Final = 2_000
_ROWS_A_SECOND: Final = 994  # of virtual time: each client asks about every two seconds
_SIZES: Final = (1_000_000, 4_000_000)
_BIG_SIZES: Final = (10_000_000, 100_000_000)


def main(*, big: bool = False) -> None:
    """Print a line a size."""
    for rows in _SIZES + _BIG_SIZES * big:
        command = [sys.executable, "-m", "tests.benchmarks.bench_streaming", str(rows)]
        subprocess.run(command, check=True)


def _stream(rows: int) -> None:
    began_s = time.perf_counter()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        scenario = cl1(_CLIENTS, -(-rows // _ROWS_A_SECOND))
        summary = simulate(scenario, fidelity="compiled", folder=folder).summary
        size_bytes = (folder / "requests.parquet").stat().st_size
    taken_s = time.perf_counter() - began_s
    peak_mb = peak_kb() / 1_024
    print(
        f"{summary['rows']:>12,} rows streamed: peak memory {peak_mb:.0f} MB, "
        f"{size_bytes / summary['rows']:.2f} bytes a row on disk, "
        f"{summary['checks']['faults']} faults, {taken_s:.1f} s "
        f"({time.process_time():.1f} s of processor time)",
        flush=True,
    )


if __name__ == "__main__":
    _stream(int(sys.argv[1]))
