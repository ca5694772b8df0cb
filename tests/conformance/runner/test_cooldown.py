"""Runs in a row with the same keys: each takes the counters that have rested longest."""

from __future__ import annotations

from pathlib import Path

import pytest

from conformance.context.cooldown import Cooldown, file_of
from conformance.context.verdicts import Verdict
from conformance.limits.findings import MOST_MEASUREMENTS
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy

_ROWS = ("LIM-TEST-TENANT", "LIM-PUBLIC", "LIM-SEARCH")


@pytest.mark.slow
def test_three_runs_in_a_row_give_the_same_verdicts_in_the_same_time() -> None:
    """With fresh seeds, as by default; the second and the third take at most twice the first."""
    deployment = deploy(keys_a_role=8)
    cooldown = Cooldown()
    took_ns, verdicts = [], []
    for turn in range(3):
        options = Options(
            select=_ROWS, checks=tuple(f"limits.{row}" for row in _ROWS), seed=3 + turn
        )
        run = Run(deployment.target, options, transport=deployment.transport)
        run.session.cooldown = cooldown
        report = run.execute()
        took_ns.append(report.took_ns)
        verdicts.append({row: report.result(row).verdict for row in _ROWS})
    assert verdicts == [dict.fromkeys(_ROWS, Verdict.PASS)] * 3
    assert max(took_ns[1:]) <= 2 * took_ns[0]


def test_what_a_run_has_used_is_kept_in_a_file_without_the_texts_of_keys(tmp_path: Path) -> None:
    file = tmp_path / "state" / "counters.json"
    assert Cooldown.load(file, 0).entries() == []
    cooldown = Cooldown()
    cooldown.note("LIM-READ", {("private_prod.1", "127.0.0.2"): 5, ("", "127.0.0.3"): 7})
    cooldown.note("LIM-READ", {("private_prod.1", "127.0.0.2"): 4})
    cooldown.save(file)
    assert Cooldown.load(file, 0).of("LIM-READ") == cooldown.of("LIM-READ")
    assert Cooldown.load(file, 10**15).entries() == [], "long ago is forgotten"
    file.write_text("{not json")
    assert Cooldown.load(file, 0).entries() == []
    assert file_of("http://one.example") != file_of("http://two.example")


@pytest.mark.slow
def test_the_time_that_is_planned_is_the_time_that_a_run_takes() -> None:
    """Within a tenth of the plan on fresh keys, and never more than the worst that it names."""
    deployment = deploy(keys_a_role=8)
    rows = (*_ROWS, "LIM-PRIVATE", "LIM-IP")
    options = Options(select=rows, checks=tuple(f"limits.{row}" for row in rows), seed=3)
    run = Run(deployment.target, options, transport=deployment.transport)
    plan = run.plan()
    took_ns = run.execute().took_ns
    assert 0.9 * plan.floor_ns < took_ns < 1.1 * plan.floor_ns
    assert took_ns < plan.warm_ns() < plan.warm_ns(MOST_MEASUREMENTS)
