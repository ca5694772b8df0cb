"""Memory does not grow with the number of requests where rows are streamed to disk."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.memory import ONE_HEAP, STATUS

SCRIPT = """
import tempfile
from pathlib import Path
from simulator.play.simulation import simulate
from simulator.scenario import loads
from tests.memory import peak_kb

scenario = loads('''
duration = "{seconds}s"
[[tenants]]
name = "t"
[[applications]]
name = "a"
tenant = "t"
keys = 20
[[clients]]
name = "c"
count = 100
application = "a"
loop = "open"
arrivals = {{ kind = "poisson", rate = "10/1s" }}
''')
with tempfile.TemporaryDirectory() as name:
    rows = simulate(scenario, fidelity="{fidelity}", folder=Path(name)).summary["rows"]
print(rows, peak_kb() // 1024)
"""


def _peak_mb(seconds: int, fidelity: str, repository: Path) -> tuple[int, int]:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT.format(seconds=seconds, fidelity=fidelity)],
        check=True,
        capture_output=True,
        text=True,
        cwd=repository,
        env=os.environ | ONE_HEAP,
    )
    rows, peak = done.stdout.split()
    return int(rows), int(peak)


@pytest.mark.slow
@pytest.mark.skipif(not STATUS.exists(), reason="only Linux says what was held")
@pytest.mark.parametrize(
    ("fidelity", "few_s", "many_s", "most_mb"),
    [("limits", 400, 1_200, 13), ("compiled", 1_000, 4_500, 30)],
)
def test_memory_is_flat(
    fidelity: str, few_s: int, many_s: int, most_mb: int, repository: Path
) -> None:
    """Rows that stayed would take 17 bytes each at least."""
    few, before_mb = _peak_mb(few_s, fidelity, repository)
    many, after_mb = _peak_mb(many_s, fidelity, repository)
    assert many - few > 790_000
    assert after_mb - before_mb < most_mb
