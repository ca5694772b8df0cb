"""Scheduling: when each check of a run begins, where time is real.

The longest probes begin at once and decide how long a run takes. Whatever is shorter has *slack*,
and begins later: at one instant all would hold up one another on one machine, bursts would come
out blurred, and the long ones late. What takes much computing waits for the first bursts to be
over, and what may stall the deployment for the time when only blocks and windows are waited for,
unless answers come so slowly that it would not be done by the end.

It is no matter of verdicts: a check is sound whenever it runs. On virtual time all begin at once.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from conformance.runner.plan import Dealt
from conformance.runner.registry import Load

__all__ = ["loads_after_ns", "starts_ns"]

_SECOND_NS: Final = 1_000_000_000
_NONE_NS: Final = 5 * _SECOND_NS
"""A slack below it is none."""
_FIRST_NS: Final = _SECOND_NS
"""What the most urgent have to themselves."""
_BULK_REQUESTS: Final = 1_000


def starts_ns(together: Sequence[Dealt]) -> list[int]:
    """Return when each check of a round begins, nanoseconds after the round does.

    What has slack is spread over the first quarter of it, the lightest first; a probe of very many
    requests begins when two thirds of its slack have gone, and beside probes what may stall the
    deployment when three quarters of the time have.
    """
    longest_ns = max((one.check.takes_ns for one in together), default=0)
    found = [0] * len(together)
    light = []
    has_probes = any(one.check.is_probe for one in together)
    for place, one in enumerate(together):
        slack_ns = longest_ns - one.check.takes_ns
        if one.check.load == "stalling" and has_probes:
            found[place] = longest_ns * 3 // 4
        if not one.check.is_probe or slack_ns < _NONE_NS:
            continue
        if one.check.requests >= _BULK_REQUESTS:
            found[place] = slack_ns * 2 // 3
        else:
            light.append((one.check.requests, place, slack_ns))
    for turn, (_, place, slack_ns) in enumerate(sorted(light)):
        found[place] = _FIRST_NS + slack_ns // 4 * turn // len(light)
    return found


def loads_after_ns(
    together: Sequence[Dealt], beside: Iterable[Dealt], latency_ns: int
) -> dict[Load, int]:
    """Return by load how long after the round's beginning what runs beside it may begin.

    latency_ns: of one request. What runs beside needs at least that for each of its own, and
    begins sooner where it would not be done else.
    """
    if not any(one.check.is_probe for one in together):
        return {"light": 0, "computing": 0, "stalling": 0, "closing": 0}
    longest_ns = max(one.check.takes_ns for one in together)
    needed_ns = 3 * latency_ns * sum(one.check.requests for one in beside)
    latest_ns = max(0, longest_ns - needed_ns)
    return {
        "light": _FIRST_NS,
        "computing": min(longest_ns // 4, latest_ns),
        "stalling": min(longest_ns * 3 // 4, latest_ns),
        "closing": min(longest_ns * 3 // 4, latest_ns),
    }
