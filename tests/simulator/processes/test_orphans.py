"""Processes of a pool: none outlives its parent; scripts of every kind use other cores too."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

SCENARIO: Final = """
duration = "60s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
kind = "public"
[[clients]]
name = "c"
application = "a"
loop = "open"
arrivals = { kind = "poisson", rate = "20/1s" }
"""

SWEEP: Final = """
import simulator

def tell(done, of):
    print(done, flush=True)

axes = {"seed": list(range(1_000))}
simulator.sweep("s.toml", axes, out="o", fidelity="limits", workers=2, progress=tell)
"""

REPLICATIONS: Final = """
import simulator
from simulator.options import RunOptions
from simulator.study import runs

def tell(run):
    print(run.seed, flush=True)

runs._START_S = 0.0  # short runs, and in other processes all the same
scenario = simulator.load("s.toml")
runs.run_replicated(RunOptions(scenario, replications=1_000, fidelity="limits"), on_progress=tell)
"""


@pytest.mark.slow
@pytest.mark.parametrize("program", [SWEEP, REPLICATIONS], ids=["sweep", "replications"])
def test_workers_end_with_a_parent_that_is_killed(program: str, tmp_path: Path) -> None:
    """They hold its output open: its reader comes to the end when the last of them has gone."""
    (tmp_path / "s.toml").write_text(SCENARIO)
    parent = subprocess.Popen(
        [sys.executable, "-c", program],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(Path(__file__).resolve().parents[3])},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    assert parent.stdout is not None
    try:
        done = -1
        while done < 3:  # the first may be played without any worker
            done = int(parent.stdout.readline())
        parent.kill()
        parent.communicate(timeout=60)
    finally:
        with suppress(ProcessLookupError):
            os.killpg(parent.pid, signal.SIGKILL)


# --- scripts -------------------------------------------------------------------------------------


SCENARIO_SCRIPTS: Final = SCENARIO.replace("60s", "30s").replace("20/1s", "2/1s")

SCRIPT: Final = """
import simulator
from simulator.study import runs

print("once")
runs._START_S = 0.0  # short runs, and in other processes all the same
result = simulator.run("s.toml", fidelity="FIDELITY", replications=4)
frame = simulator.sweep("s.toml", {"seed": [1, 2]}, out="o", fidelity="FIDELITY", workers=2)
print(len(result.summary["replications"]["runs"]), len(frame), set(frame["status"]))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fidelity", "piped"), [("limits", True), ("compiled", False), ("compiled", True)]
)
def test_a_script_needs_no_main_guard(fidelity: str, *, piped: bool, tmp_path: Path) -> None:
    """It is not run again by the processes that it starts, which once printed their tracebacks."""
    (tmp_path / "s.toml").write_text(SCENARIO_SCRIPTS)
    text = SCRIPT.replace("FIDELITY", fidelity)
    (tmp_path / "script.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "-" if piped else "script.py"],
        input=text if piped else None,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.splitlines() == ["once", "4 2 {'ok'}"]
    assert done.stderr == ""
