"""The compiled pass over a log gives what SimPy gives, row for row (D-CLOCK, D-ALGORITHM)."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import simulator
from engine.limits import LimitTable
from engine.profile import Profile


def frame(rows: int) -> pd.DataFrame:
    chance = np.random.Generator(np.random.Philox(5))
    return pd.DataFrame(
        {
            "time": np.sort(chance.integers(0, 120_000, rows)) / 1000 + 1_700_000_000,
            "ip": [f"192.0.2.{n}" for n in chance.integers(1, 9, rows)],
            "method": "POST",
            "path": chance.choice(["/tokenize", "/tokens", "/tokens/search"], rows),
        }
    )


@pytest.mark.parametrize(
    "limits",
    [
        {},
        {"algorithm": "gcra", "throttle": "delay"},
        {"algorithm": "sliding-counter", "count_refused": True, "compose": "lowest"},
    ],
)
def test_both_fidelities_decide_alike(limits: dict[str, object]) -> None:
    profile = Profile().replace(limits=limits)
    table = LimitTable.default().replace_rule("LIM-CREATE", rate="20/10s", shadow=True)
    source = frame(3_000)
    one, other = (
        simulator.replay(source, limits=table, profile=profile, fidelity=fidelity)
        for fidelity in ("limits", "compiled")
    )
    assert one.table.equals(other.table)
    assert one.violations == other.violations == ()
    assert one.summary | {"fidelity": "compiled"} == other.summary
    assert one.summary["totals"]["refused"] + one.summary["totals"]["delayed"] > 0
