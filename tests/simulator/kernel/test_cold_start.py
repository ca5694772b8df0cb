"""A new process with compiled code on disk comes to its first run without a detour.

What takes the time of a cold start is loading, so the test looks at what is loaded, not at clocks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

from simulator.play.simulation import not_compiled, simulate
from simulator.scenario import builtin, load, loads
from simulator.study.runs import run

_RUN: Final = """
import json, sys
import simulator.study.runs

known = set(sys.modules)
result = simulator.study.runs.run("management-loop", fidelity="compiled", seed=7)
print(json.dumps([result.summary["sha256"], sorted(known), sorted(sys.modules)]))
"""


@pytest.mark.slow
@pytest.mark.timeout(600)  # the first run after a change compiles, on a busy machine for minutes
def test_a_compiled_run_loads_neither_the_engines_services_nor_statistics() -> None:
    expected = run("management-loop", fidelity="compiled", seed=7).summary["sha256"]
    cold = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=True)
    digest, imported, loaded = json.loads(cold.stdout)
    assert digest == expected
    assert not {"pandas", "scipy.stats", "simpy", "numba"} & set(imported)
    assert not {"scipy.stats", "scipy.linalg", "engine.service", "altair"} & set(loaded)


_LIMITS: Final = """
import sys
from simulator.study.runs import run

run("checkout", fidelity="limits", seed=7)
print(*sys.modules)
"""


@pytest.mark.slow
def test_a_run_of_the_limits_loads_no_store_no_encryption_and_no_resources() -> None:
    made = subprocess.run(
        [sys.executable, "-c", _LIMITS], capture_output=True, text=True, check=True
    )
    loaded = set(made.stdout.split())
    assert not {"sqlite3", "joserfc", "cryptography", "numba", "scipy.stats"} & loaded
    packages = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("engine.")}
    assert not {f"engine.{name}" for name in ("store", "vault", "resources", "service")} & packages


_COMMAND: Final = """
import sys
from simulator.cli import main

main(["run", "checkout", "--out", sys.argv[1]])
print(*sys.modules)
"""


@pytest.mark.slow
def test_the_command_that_runs_a_scenario_loads_neither_pandas_nor_readers_of_logs(
    tmp_path: Path,
) -> None:
    """Half a second of loading: of Arrow, `array`, `to_numpy` and `fill_null` load pandas."""
    command = [sys.executable, "-c", _COMMAND, str(tmp_path / "out")]
    made = subprocess.run(command, capture_output=True, text=True, check=True)
    assert (tmp_path / "out" / "report.html").stat().st_size > 10_000
    loaded = set(made.stdout.splitlines()[-1].split())
    assert "simulator.rows.result" in loaded
    assert not {"pandas", "altair", "numba", "pyarrow.compute", "simulator.logs._stream"} & loaded


_BROKEN_CACHE: Final = """
import simulator.kernel.compiling as compiling
calls = []
for number in (1, 2):
    compiling.warm_up("tests", lambda: calls.append(number), print)
print(calls, compiling._OPTIONS["_nrt"])
"""


@pytest.mark.parametrize("is_folder", [True, False])
def test_one_process_compiles_for_all_where_code_can_be_kept(
    tmp_path: Path, is_folder: bool
) -> None:
    """Where the folder cannot be written, as a home of somebody else, each process does, once."""
    place = tmp_path / "place"
    if is_folder:
        place.mkdir()
    else:
        place.touch()
    env = {**os.environ, "NUMBA_CACHE_DIR": str(place)}
    command = [sys.executable, "-c", _BROKEN_CACHE]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
    assert done.stdout.splitlines()[-1] == "[1] False"
    assert done.stdout.startswith("compiling the tests, once on this machine")


def test_numba_knows_the_option_that_compiles_without_reference_counts() -> None:
    """It is private to numba, which is pinned for it; without it the kernel is a third as fast."""
    from numba.core.options import DefaultOptions  # noqa: PLC0415 # reason: heavy

    assert hasattr(DefaultOptions, "_nrt")


# --- what the kernel lacks -----------------------------------------------------------------------


_HEAD: Final = """
duration = "20s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
[[clients]]
name = "c"
application = "a"
"""


def test_the_kernel_runs_all_but_three_built_in_scenarios() -> None:
    lacking = {name: not_compiled(load(name)) for name in builtin()}
    assert {name: reason for name, reason in lacking.items() if reason} == {
        "cold-starts": "proxies and reactors",
        "several-nodes": "several nodes",
        "slow-destination": "proxies and reactors",
    }


@pytest.mark.parametrize(
    ("group", "reason"),
    [
        ('retry = { kind = "fixed", delay = "36525d" }', "a retry's delay of 36 years"),
        (
            'pacing = { kind = "token-bucket", rate = "1/365d", burst = 200 }',
            "a pace of that size",
        ),
    ],
)
def test_numbers_beyond_64_bits_are_handed_over(group: str, reason: str) -> None:
    scenario = loads(f'{_HEAD}think = "1s"\n{group}')
    assert not_compiled(scenario) == reason
    result = simulate(scenario, fidelity="compiled")
    assert result.summary["fidelity"] == "limits"
    assert result.summary["totals"]["offered"] == 19


_WITHOUT: Final = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"numba", "llvmlite"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
import importlib.util
whole = importlib.util.find_spec
importlib.util.find_spec = lambda name, package=None: (
    None if name.partition(".")[0] in {"numba", "llvmlite"} else whole(name, package)
)
from simulator.cli import main

out = sys.argv[1]
codes = [
    main(["run", "management-loop", "--fidelity", "compiled", "--out", f"{out}/run", "--quiet"]),
    main(["run", "retry-storm", "--fidelity", "compiled", "--out", f"{out}/again", "--quiet"]),
    main(["sweep", "management-loop", "--set", "seed=1,2", "--out", f"{out}/sweep"]),
]
print("codes", codes, "numba" in sys.modules)
"""


@pytest.mark.slow
def test_without_numba_every_command_runs_and_says_once_what_the_extra_buys(
    tmp_path: object,
) -> None:
    command = [sys.executable, "-c", _WITHOUT, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "codes [0, 0, 0] False" in done.stdout
    assert done.stderr.count("tollgate[fast]") == 1
    assert "5 to 30 times as fast" in done.stderr
