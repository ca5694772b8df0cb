"""Limiters that others wrote: the right configuration passes its row, a wrong one fails it.

LIM-CREATE, LIM-PUBLIC. A sample; `python -m tests.conformance.foreign` judges all.
"""

from __future__ import annotations

import pytest

from conformance.context.verdicts import Verdict
from tests.conformance.foreign._limiters import Configuration, configurations, judge

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
