"""How fast scenarios are simulated, against a bare SimPy loop; what checks and storage cost.

The bare loop has the same processes and timeouts, a think time and a service time a request, and
decides nothing. Beside it: the engine's fidelity, the checkers' cost, and what memory grows by
between a short and a long run whose rows are streamed to disk.
"""

import random
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Final

import simpy

from simulator.play.simulation import Fidelity, simulate
from simulator.scenario import Scenario, loads
from tests.benchmarks import _measure
from tests.memory import peak_kb

_CLIENTS: Final = 200
_THINK_MS: Final = 400
_SERVICE_MS: Final = 20
_NS_A_MS: Final = 1_000_000


def _scenario(seconds: int) -> Scenario:
    """Return closed-loop clients that are seldom refused: every request is two timeouts."""
    return loads(
        f"""
        name = "bench"
        duration = "{seconds}s"
        [[tenants]]
        name = "t"
        [[applications]]
        name = "a"
        tenant = "t"
        keys = {_CLIENTS}
        [[clients]]
        name = "c"
        count = {_CLIENTS}
        application = "a"
        think = {{ kind = "exponential", mean = "{_THINK_MS}ms" }}
        service = {{ kind = "exponential", mean = "{_SERVICE_MS}ms" }}
        retry = {{ kind = "full-jitter", base = "200ms", cap = "20s", attempts = 6 }}
        """
    )


def _bare(seconds: int) -> Callable[[], Callable[[], object]]:
    def client(env: simpy.Environment, draw: random.Random) -> Generator[simpy.Event, object, None]:
        while True:
            yield env.timeout(int(draw.expovariate(1) * _THINK_MS * _NS_A_MS))
            yield env.timeout(int(draw.expovariate(1) * _SERVICE_MS * _NS_A_MS))

    def prepare() -> Callable[[], object]:
        env = simpy.Environment()
        for number in range(_CLIENTS):
            env.process(client(env, random.Random(number)))
        return lambda: env.run(until=seconds * 1_000 * _NS_A_MS)

    return prepare


def _ours(seconds: int, fidelity: Fidelity, *, check: bool) -> Callable[[], Callable[[], object]]:
    scenario = _scenario(seconds)
    return lambda: lambda: simulate(scenario, fidelity=fidelity, check=check)


def main(*, big: bool = False) -> None:
    """Print the tables."""
    seconds = 600 if big else 60
    requests = simulate(_scenario(seconds), check=False).summary["rows"]
    bare_requests = _CLIENTS * seconds * 1_000 // (_THINK_MS + _SERVICE_MS)
    simpy_version = _measure.version("simpy")
    timings = _measure.interleave(
        [
            _measure.Contestant(
                "limits, checks off", _ours(seconds, "limits", check=False), requests
            ),
            _measure.Contestant("limits, checked", _ours(seconds, "limits", check=True), requests),
            _measure.Contestant("engine", _ours(seconds, "engine", check=False), requests),
            _measure.Contestant("bare SimPy loop", _bare(seconds), bare_requests, simpy_version),
        ],
        rounds=3 if big else 5,
    )
    _measure.show("Simulated requests, 200 closed-loop clients", "requests", timings)
    share = _measure.ratio(timings[3], timings[0])
    print(f"limits, checks off, against the bare loop: {share}; the aim is 0.3 and more")
    _memory(big=big)


def _memory(*, big: bool) -> None:
    sizes = (600, 6_000, 60_000) if big else (200, 2_000)
    for seconds in sizes:
        done = subprocess.run(
            [sys.executable, "-m", "tests.benchmarks.bench_simulator", str(seconds)],
            check=True,
            capture_output=True,
            text=True,
        )
        print(done.stdout.strip())


def _stream(seconds: int) -> None:
    """Simulate into a folder, and print what it took: run in a process of its own."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        result = simulate(_scenario(seconds), folder=folder)
        size = (folder / "requests.parquet").stat().st_size
    peak_mb = peak_kb() / 1_024
    rows = result.summary["rows"]
    print(f"{rows:>12,} rows streamed: peak memory {peak_mb:.0f} MB, {size / rows:.1f} bytes a row")


if __name__ == "__main__":
    _stream(int(sys.argv[1]))
