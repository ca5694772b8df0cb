"""When checks begin where time is real, what is imported before, and what is deleted meanwhile."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conformance.context.check import Check, all_checks
from conformance.context.context import CheckContext
from conformance.context.cooldown import Cooldown, file_of
from conformance.context.session import Session
from conformance.context.verdicts import Finding, Verdict
from conformance.limits.findings import MOST_MEASUREMENTS
from conformance.runner.cleanup import clean
from conformance.runner.plan import (
    Dealt,
    RunPlan,
    loads_after_ns,
    make_plan,
    starts_ns,
    unshown,
)
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from engine.clauses import CLAUSES
from engine.files import span_text
from engine.limits import LimitTable

SECOND_NS = 1_000_000_000
MILLISECOND_NS = 1_000_000


def _plan() -> RunPlan:
    return make_plan(deploy().target, LimitTable.default(), CLAUSES, all_checks().values())


def test_what_decides_how_long_a_run_takes_begins_at_once() -> None:
    together = _plan().rounds[0]
    longest_ns = max(one.check.takes_ns for one in together)
    starts = dict(zip((one.check.id for one in together), starts_ns(together), strict=True))
    assert starts["limits.LIM-MANAGEMENT"] == 0
    assert starts["quotas.retention"] == 0, "no probe"
    for one in together:
        end_ns = starts[one.check.id] + one.check.takes_ns
        assert end_ns <= longest_ns, f"{one.check.id} makes the run longer"
    short = [starts[one.check.id] for one in together if one.check.takes_ns == 27 * SECOND_NS]
    assert len(set(short)) == len(short) > 8, "no two bursts at one instant"
    assert starts.pop("account-updater.file") > max(starts.values())


def test_a_plan_without_limits_names_one_time_and_hides_nothing_twice() -> None:
    deployment = deploy()
    run = Run(deployment.target, Options(no_limits=True), transport=deployment.transport)
    plan = run.plan()
    assert plan.durations == f"takes at least {span_text(30 * SECOND_NS)}"
    assert "right after another run" in _plan().durations
    clauses = [name for _, names in unshown(plan) for name in names]
    assert "LIM-PRIVATE" in clauses
    assert "LIM-PRIVATE in part" not in clauses


def test_heavy_rows_are_measured_when_nothing_else_is() -> None:
    plan = _plan()
    assert [one.check.id for one in plan.heavy] == ["limits.LIM-IP", "limits.LIM-PRIVATE"]
    together = {one.check.id for each in plan.rounds for one in each}
    assert not together & {"limits.LIM-IP", "limits.LIM-PRIVATE"}


def test_what_computes_much_waits_for_the_bursts_unless_answers_are_slow() -> None:
    plan = _plan()
    first, beside = plan.rounds[0], plan.sequential
    quick = loads_after_ns(first, beside, MILLISECOND_NS)
    assert 0 < quick["light"] < quick["computing"] < quick["stalling"] < 150 * SECOND_NS
    slow = loads_after_ns(first, beside, 100 * MILLISECOND_NS)
    assert slow["computing"] == slow["stalling"] == 0
    alone = [one for one in first if not one.check.is_probe]
    assert set(loads_after_ns(alone, beside, MILLISECOND_NS).values()) == {0}
    assert set(starts_ns(alone)) == {0}
    loads = {one.check.id: one.check.load for one in beside}
    assert loads["schema.floor"] == "computing"
    assert loads["model.sequences"] == "light"


async def _waits(_: object) -> list[Finding]:
    return []


def _dealt(name: str, takes_s: int, requests: int, **more: Any) -> Dealt:
    check = Check(name, (), "says", "a pass", _waits, takes_ns=takes_s * SECOND_NS, **more)
    return Dealt(dataclasses.replace(check, requests=requests), {}, ())


def test_each_check_of_a_round_begins_at_its_instant() -> None:
    """Fewest requests first, in the first quarter of the time that each has left over."""
    together = [
        _dealt("longest", 60, 200, is_probe=True),
        _dealt("hardly shorter", 56, 30, is_probe=True),
        _dealt("five seconds shorter", 55, 100, is_probe=True),
        _dealt("few", 20, 40, is_probe=True),
        _dealt("some", 16, 90, is_probe=True),
        _dealt("heavy", 50, 5_000, is_probe=True),
        _dealt("no probe", 10, 10),
        _dealt("stalling", 10, 10, load="stalling"),
    ]
    assert sorted(starts_ns(together))[:3] == [0, 0, 0]
    after_ms = [each // 1_000_000 for each in starts_ns(together)]
    assert after_ms == [0, 0, 1_833, 1_000, 4_666, 6_666, 0, 45_000]
    assert starts_ns([]) == []
    beside = [_dealt("one by one", 0, 600), _dealt("another", 0, 400)]
    for latency_ms, after_s in ((0, [1, 15, 45, 45]), (10, [1, 15, 30, 30]), (25, [1, 0, 0, 0])):
        after = loads_after_ns(together, beside, latency_ms * MILLISECOND_NS)
        assert list(after) == ["light", "computing", "stalling", "closing"]
        assert [each // SECOND_NS for each in after.values()] == after_s


def test_the_generator_is_imported_when_its_turn_has_come() -> None:
    text = (
        "import sys; from conformance.context.check import all_checks; all_checks(); "
        "sys.exit(len({'schemathesis', 'jsonschema', 'pandas', 'jinja2'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", text], check=False)
    assert done.returncode == 0


def test_what_ended_checks_left_is_deleted_without_a_probes_keys() -> None:
    deployment = deploy()
    session = Session(deployment.target, deployment.transport, seed=1)
    for check_id, label in (("a", "private_prod.1"), ("b", "private_prod.1"), ("a", "short.1")):
        ctx = CheckContext(Check(check_id, (), "says", "accepts", _waits), session)
        body: Any = {"x": f"{check_id} {label}"}
        ctx.transport.run([ctx.client.insist("POST", "/tokenize", body, key=label)])
    assert clean(session, made_by={"a"}, busy=["short.1"], sources=["127.0.0.9"]) == 1
    asked = [one.ask for one in session.exchanges.values() if one.ask.method == "DELETE"]
    assert [(ask.key, ask.source) for ask in asked] == [("private_prod.1", "127.0.0.9")]
    assert (clean(session), len(session.created)) == (2, 0)


# --- rested counters -----------------------------------------------------------------------------


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
