"""Limiters that others wrote, and the reference behind a slow proxy: right ones pass their row."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from conformance.context.verdicts import Verdict
from conformance.runner.runner import Options, Run
from engine import LimitTable
from tests.conformance.foreign._limiters import Configuration, configurations, judge
from tests.conformance.foreign._servers import delaying, demo, watching

pytestmark = [pytest.mark.slow, pytest.mark.alone]

SAMPLE = {
    "express-rate-limit, throttle row, right",
    "express-rate-limit, throttle row, a tenth less",
    "@fastify/rate-limit, throttle row, POST /tokens left out",
    "rate-limiter-flexible, block row, no block",
    "Flask-Limiter, throttle row, right",
    "nginx, throttle row, right",
    "HAProxy, throttle row, no limit",
}


@pytest.mark.parametrize(
    "configuration",
    [pytest.param(x, id=x.name) for x in configurations() if x.name in SAMPLE],
)
def test_a_limiter_of_another_hand_is_judged_right(configuration: Configuration) -> None:
    """On a busy machine it may stay undecided; it is never judged wrong."""
    judged = judge(configuration)
    false = Verdict.PASS if configuration.fault else Verdict.FAIL
    assert judged.verdict is not false, judged.message


# --- a proxy that delays -------------------------------------------------------------------------


CLAUSES = ("LIM-PUBLIC", "LIM-TEST-TENANT", "LIM-CREATE")
MOST_S = 0.015


def _tenth() -> str:
    """Return the seed's table with windows and blocks divided by 10, as a file's text."""
    table = LimitTable.default()
    for rule in table:
        block_ns = None if rule.block_ns is None else rule.block_ns // 10
        rate = rule.rate._replace(window_ns=rule.window_ns // 10)
        table = table.replace_rule(rule.id, rate=rate, block_ns=block_ns)
    return table.to_toml()


def test_the_reference_passes_through_delays_and_jitter(tmp_path: Path) -> None:
    """0 to 15 ms each way beside windows of a tenth: 0 to 150 ms beside the seed's."""
    with (
        watching() as untold,
        demo(tmp_path / "demo", _tenth()) as served,
        delaying(served, MOST_S, 7) as port,
    ):
        target = dataclasses.replace(served, base_url=f"http://127.0.0.1:{port}")
        run = Run(target, Options(select=CLAUSES, seed=3))
        report = run.execute()
    bad = [
        (one.clause, one.check, one.message) for one in run.findings if one.verdict is Verdict.FAIL
    ]
    assert not bad
    assert max(one.verdict for one in run.findings) <= Verdict.INCONCLUSIVE
    slowest_ns = max(one.received_ns - one.sent_ns for one in report.exchanges.values())
    assert slowest_ns > MOST_S * 1e9, "the proxy delays"
    shown = {one.clause for one in run.findings if one.verdict is Verdict.PASS}
    if "LIM-PUBLIC" not in shown:
        says = [one.message for one in run.findings if one.verdict is Verdict.INCONCLUSIVE]
        untold("; ".join(says[:2]))
