"""What the kernel lacks runs at fidelity `limits`, with one line that says so."""

from __future__ import annotations

import subprocess
import sys
from typing import Final

import pytest

from simulator.play.simulation import not_compiled, simulate
from simulator.scenario import builtin, load, loads

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
