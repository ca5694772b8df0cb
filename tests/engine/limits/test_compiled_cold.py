"""A new process with compiled code on disk comes to its first decision without a detour.

What takes the time of a cold start is loading, so the tests look at what is loaded, not at clocks.
"""

from __future__ import annotations

import subprocess
import sys
from typing import Final

from engine.limits import LimitTable
from engine.limits.compiled import CompiledLimiter
from engine.profile import LimitsProfile

_FIRST_DECISION: Final = """
import sys
import numpy as np
from engine.limits import LimitTable, Subject
from engine.limits.compiled import Columns, CompiledLimiter
from engine.profile import LimitsProfile

limiter = CompiledLimiter({"Default": LimitTable.default()}, LimitsProfile())
kind = limiter.kind(Subject("POST", "/tokenize", "ip"))
zeros = np.zeros(51, np.int64)
decided = limiter.decide(Columns(zeros, zeros + kind, zeros - 1, zeros))
"""

_COMPILING_LATER: Final = """
import numba


@numba.njit
def dot(left, right):
    return np.dot(left, right)


print(dot(np.arange(3.0), np.ones(3)))
"""


def _lines(code: str) -> list[str]:
    CompiledLimiter({"Default": LimitTable.default()}, LimitsProfile())  # the code is on disk now
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return run.stdout.splitlines()


def test_first_decision_loads_nothing_that_it_does_not_need() -> None:
    unneeded = ["scipy.linalg", "pandas", "pyarrow", "engine.service", "numba.np.arraymath"]
    asked = f"print(decided.admitted.sum(), [name for name in {unneeded} if name in sys.modules])"
    assert _lines(_FIRST_DECISION + asked) == ["51 []"]


def test_all_that_numba_compiles_with_is_there_for_others_afterwards() -> None:
    assert _lines(_FIRST_DECISION + _COMPILING_LATER) == ["3.0"]
