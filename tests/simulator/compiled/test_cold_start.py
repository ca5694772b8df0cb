"""A new process with compiled code on disk comes to its first run without a detour.

What takes the time of a cold start is loading, so the test looks at what is loaded, not at clocks.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest

from engine.limits.compiled import jit
from simulator.study.runs import run

_RUN: Final = """
import json, sys
import simulator.study.runs

known = set(sys.modules)
result = simulator.study.runs.run("management-loop", fidelity="compiled", seed=7)
print(json.dumps([result.summary["sha256"], sorted(known), sorted(sys.modules)]))
"""


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


def test_a_run_of_the_limits_loads_no_store_no_encryption_and_no_resources() -> None:
    made = subprocess.run(
        [sys.executable, "-c", _LIMITS], capture_output=True, text=True, check=True
    )
    loaded = set(made.stdout.split())
    assert not {"sqlite3", "joserfc", "cryptography", "numba", "scipy"} & loaded
    packages = {".".join(name.split(".")[:2]) for name in loaded if name.startswith("engine.")}
    assert not {f"engine.{name}" for name in ("store", "vault", "resources", "service")} & packages


def _double(number: int) -> int:
    return 2 * number


def _halve(number: int) -> int:
    return number // 2


def test_compiling_says_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes half a minute on an idle machine, and minutes on a busy one."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(jit, "_TELL_EVERY_S", 0.0)
    compiled = jit.Jit("tests of progress", [Path(__file__)])
    functions = [compiled.compiled(_double), compiled.compiled(_halve)]
    told: list[str] = []
    compiled.warm_up(lambda: [function(3) for function in functions], told.append)
    assert told[0].startswith("compiling the tests of progress, once on this machine")
    assert told[1:3] == ["compiled 1 of 2 functions …", "compiled 2 of 2 functions …"]
    assert told[3].startswith("compiled in ")
    compiled.warm_up(lambda: None, told.append)
    assert len(told) == 4


def test_where_compiled_code_cannot_be_kept_each_process_compiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with a home folder that may not be written."""
    (tmp_path / "file").touch()
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path / "file"))
    compiled = jit.Jit("tests of no place", [Path(__file__)])
    compiled.compiled(_double)
    calls: list[int] = []
    for number in (1, 2):
        compiled.warm_up(partial(calls.append, number), None)
    assert calls == [1, 2]


_SAME: Final = """
import sys
from pathlib import Path
import same
from engine.limits.compiled import jit

double = jit.Jit("tests of places", [Path(same.__file__)]).compiled(same.double)
assert double(3) == 6
print(sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values()))
"""


def test_a_second_checkout_of_the_same_sources_compiles_nothing(tmp_path: Path) -> None:
    counts = []
    for place in ("first", "second"):
        folder = tmp_path / place / "package"
        folder.mkdir(parents=True)
        (folder / "same.py").write_text("def double(number):\n    return 2 * number\n")
        paths = os.pathsep.join((str(folder), str(Path(jit.__file__).parents[3])))
        env = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "kept"), "PYTHONPATH": paths}
        command = [sys.executable, "-c", _SAME]
        made = subprocess.run(command, capture_output=True, text=True, check=True, env=env)
        counts.append(made.stdout.split())
    assert counts == [["0", "1"], ["1", "0"]]
