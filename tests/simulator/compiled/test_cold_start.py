"""A new process with compiled code on disk comes to its first run without a detour.

What takes the time of a cold start is loading, so the test looks at what is loaded, not at clocks.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Final

from simulator.running import run

_RUN: Final = """
import json, sys
import simulator.running

known = set(sys.modules)
result = simulator.running.run("management-loop", fidelity="compiled", seed=7)
print(json.dumps([result.summary["sha256"], sorted(known), sorted(sys.modules)]))
"""


def test_a_compiled_run_loads_neither_the_engines_services_nor_statistics() -> None:
    expected = run("management-loop", fidelity="compiled", seed=7).summary["sha256"]
    cold = subprocess.run([sys.executable, "-c", _RUN], capture_output=True, text=True, check=True)
    digest, imported, loaded = json.loads(cold.stdout)
    assert digest == expected
    assert not {"pandas", "scipy.stats", "simpy", "numba"} & set(imported)
    assert not {"scipy.stats", "scipy.linalg", "engine.service", "altair"} & set(loaded)
