"""A history is judged to what the run said: whole runs, and where chance or time had a part."""

from __future__ import annotations

import contextlib
import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import conformance.faults.trial  # noqa: F401 # reason: a module with texts of its own
from conformance.context.check import Check
from conformance.context.context import CheckContext
from conformance.context.history import HISTORY_FILE, kept_body
from conformance.context.verdicts import Finding, Verdict
from conformance.report import Report
from conformance.runner import offline, runner
from conformance.runner.offline import judge
from conformance.runner.runner import Options, Run
from conformance.wire.in_process import deploy
from conformance.wire.redaction import Redactor
from engine.errors import InputError
from tests.engine.http.live import Live

SECOND_NS = 1_000_000_000


def _said(report: Report) -> dict[str, Any]:
    return {one.clause.id: (one.verdict, one.findings) for one in report.results}


def _played(
    monkeypatch: pytest.MonkeyPatch, out: Path, *checks: Check, deployment: Any = None
) -> tuple[Report, Report]:
    """Run some checks, and judge what they left."""
    by_id = {check.id: check for check in checks}
    monkeypatch.setattr(runner, "all_checks", lambda: by_id)
    monkeypatch.setattr(offline, "all_checks", lambda: by_id)
    found = deployment or deploy()
    options = Options(seed=3, select=("TOK-",))
    run = Run(found.target, options, transport=found.transport, out=out)
    return run.execute(), judge(out)


def _check(check_id: str, judged: Any, **more: Any) -> Check:
    return Check(check_id, ("TOK-LEAF",), "says", "a pass", judged, **more)


def test_what_no_seed_fixes_is_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chance = random.SystemRandom()

    async def makes(ctx: CheckContext) -> list[Finding]:
        made = [ctx.make(name, lambda: f"{chance.getrandbits(64):x}") for name in ("a", "b")]
        exchange = await ctx.client.insist("POST", "/tokenize", made, key=ctx.key("private_prod"))
        return [ctx.passes("TOK-LEAF", f"made {made}", exchange)]

    report, judged = _played(monkeypatch, tmp_path, _check("a", makes))
    assert _said(judged) == _said(report)
    assert judged.notes == ()


def test_what_it_now_asks_otherwise_is_kept_as_it_was_and_said(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    bodies = iter([b'["then"]', b'["now"]'])

    async def asks(ctx: CheckContext) -> list[Finding]:
        body = next(bodies)
        key = ctx.key("private_prod")
        found = await ctx.client.insist(
            "POST", "/tokenize", body, key=key, headers={"Content-Type": "a/json"}
        )
        return [ctx.passes("TOK-LEAF", f"asked {body!r}", found)]

    report, judged = _played(monkeypatch, tmp_path, _check("a", asks))
    assert _said(judged) == _said(report)
    assert judged.notes == ("a asks otherwise now: what it found then is kept",)


def test_a_long_body_that_is_the_same_is_recognised(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def asks(ctx: CheckContext) -> list[Finding]:
        key = ctx.key("private_prod")
        shown = [
            await ctx.client.insist(
                "POST", "/tokenize", body, key=key, headers={"Content-Type": "text/json"}
            )
            for body in (b"x" * 70_000, ["x" * 70_000], b"\xff\x00")
        ]
        return [ctx.passes("TOK-LEAF", f"got {[one.status for one in shown]}", *shown)]

    report, judged = _played(monkeypatch, tmp_path, _check("a", asks))
    assert _said(judged) == _said(report)
    assert judged.notes == ()


def test_a_body_is_kept_whole_up_to_64_kib() -> None:
    redactor = Redactor({})
    for body, longer in ((b"x" * 65_536, b"x" * 65_537), (["x" * 65_532], ["x" * 65_533])):
        assert kept_body(body, redactor) == body
        start = "x" * 256 if isinstance(longer, bytes) else '["' + "x" * 254
        assert kept_body(longer, redactor) == f"{start}… (65537 bytes)".encode()


def test_each_check_knows_what_was_known_at_the_time(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The quick one ends between the slow one's beginning and its end."""

    async def slow(ctx: CheckContext) -> list[Finding]:
        lane = ctx.lane("one", key=ctx.key("private_prod"))
        said = []
        for _ in range(3):
            await lane.ask("POST", "/tokenize", {})
            said.append((ctx.knows("tokens.depth_limit"), ctx.profile.tokens.depth_limit))
            await lane.sleep_ns(5 * SECOND_NS)
        return [ctx.passes("TOK-LEAF", f"knew {said}")]

    async def quick(ctx: CheckContext) -> list[Finding]:
        lane = ctx.lane("one", key=ctx.key("private_prod"))
        await lane.sleep_ns(SECOND_NS)
        found = await lane.ask("POST", "/tokenize", {})
        seen = ("tokens.depth_limit", 20)
        return [ctx.finding("TOK-LEAF", Verdict.PASS, "read", found, reading=seen)]

    report, judged = _played(
        monkeypatch, tmp_path, _check("a", slow, takes_ns=1), _check("b", quick, takes_ns=1)
    )
    assert "knew [(False, 64), (True, 20), (True, 20)]" in str(_said(report))
    assert _said(judged) == _said(report)


def test_a_history_that_was_changed_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Without any of its lines, or any field of one, it is judged, or it is said."""

    async def judged(ctx: CheckContext) -> list[Finding]:
        return [
            ctx.passes(
                "TOK-LEAF", ctx.value("leaf"), await ctx.client.tokenize("a", "private_prod.1")
            )
        ]

    _played(monkeypatch, tmp_path, _check("own.leaf", judged))
    history = tmp_path / HISTORY_FILE
    lines = history.read_text("utf-8").splitlines()
    met: set[str] = set()
    judged_still = 0
    for place, line in enumerate(lines):
        record = json.loads(line)
        if record["record"] in met:
            continue
        met.add(record["record"])
        without = [{name: record[name] for name in record if name != each} for each in record]
        for instead in ([], *([json.dumps(each)] for each in without)):
            history.write_text("\n".join([*lines[:place], *instead, *lines[place + 1 :]]), "utf-8")
            with contextlib.suppress(InputError):
                judge(tmp_path)
                judged_still += 1
    assert {"run", "check", "ended", "exchange", "end"} <= met
    assert judged_still, "a field that may be absent"


@pytest.mark.slow
def test_a_whole_run_is_judged_to_the_same_verdicts(tmp_path: Path) -> None:
    chance = random.Random(5)
    deployment = deploy(
        latency=lambda: (chance.randrange(1_000_000, 4_000_000), chance.randrange(1_000_000))
    )
    run = Run(deployment.target, Options(seed=5), transport=deployment.transport, out=tmp_path)
    report = run.execute()
    judged = judge(tmp_path)
    assert _said(judged) == _said(report)
    assert judged.notes == report.notes
    assert judged.readings() == report.readings()


@pytest.mark.slow
def test_generated_requests_are_the_same_in_another_process(tmp_path: Path) -> None:
    """What Hypothesis draws must not depend on which modules happen to be loaded."""
    target, out = tmp_path / "target.toml", tmp_path / "out"
    live = Live("--demo", "--demo-keys", "2", "--write-target", str(target))
    try:
        words = ["run", str(target), "--schema-only", "--select", "TOK-LEAF"]
        words += ["--seed", "1", "--out", str(out), "--quiet"]
        done = subprocess.run([sys.executable, "-m", "conformance", *words], check=False)
    finally:
        live.client.close()
        live.process.terminate()
        live.process.communicate(timeout=20)
    assert done.returncode == 0
    assert "conformance.faults.trial" in sys.modules, "what the run had not loaded"
    assert (out / HISTORY_FILE).stat().st_size > 100_000
    judged = judge(out)
    assert judged.notes == ()
    seen = [one for one in judged.results if one.findings[0].check != "no-check"]
    assert {one.verdict.word for one in seen} == {"pass"}
