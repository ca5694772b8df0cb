"""Scripts without a main guard, and scripts that come through a pipe, use other cores too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

SCENARIO: Final = """
duration = "30s"
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
arrivals = { kind = "poisson", rate = "2/1s" }
"""

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
    (tmp_path / "s.toml").write_text(SCENARIO)
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
