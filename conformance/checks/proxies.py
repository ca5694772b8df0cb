"""Seed 7 and 8.5: a proxy's destination may take 25 s, then the answer is 408."""

from __future__ import annotations

import re
from typing import Final

from conformance.bench import Bench, Lane
from conformance.checks._common import unsettled
from conformance.exchanges import Exchange
from conformance.registry import Skip, check
from conformance.verdicts import Finding

__all__: list[str] = []

_SECOND_NS: Final = 1_000_000_000
_TIMEOUT_NS: Final = 25 * _SECOND_NS
_EARLY_NS: Final = _SECOND_NS // 2
_LATE_NS: Final = 5 * _SECOND_NS
_DELAY: Final = re.compile(r"/delay/([0-9]+)$")
_JUST_BELOW: Final = 24


async def _timed(lane: Lane, path: str) -> Exchange:
    return await lane.ask("GET", path)


@check(
    "proxies.timeout",
    "PRX-TIMEOUT",
    "ERR-408",
    accepts="408 after 25 s for a destination that takes longer; else the destination's answer",
    roles=("slow_destination",),
    requests=3,
    takes_ns=_TIMEOUT_NS,
)
async def timeout(bench: Bench) -> list[Finding]:
    """A proxy request whose destination takes longer than 25 s gets 408, after 25 s."""
    label = bench.key("slow_destination")
    path = bench.target.key_labels[label].path
    if path is None:
        raise Skip('the slow destination has no path; add path = "/proxy/…" to its [[keys]]')
    paths = [path]
    delay = _DELAY.search(path)
    if delay is not None:
        front = path[: delay.start()]
        paths += [f"{front}/delay/{_JUST_BELOW}", f"{front}/delay/0"]
    lanes = [bench.lane(f"destination {place}", proxy_key=label) for place in range(len(paths))]
    sent = [_timed(lane, one) for lane, one in zip(lanes, paths, strict=True)]
    slow, *quick = await bench.gather(sent)
    found: list[Finding] = []
    for exchange in quick:
        if exchange.status == 408:  # reason: the status that is judged
            says = f"{exchange.ask.path}: a destination that takes less than 25 s must not get 408"
            found.append(bench.fails("PRX-TIMEOUT", says, exchange))
        elif not exchange.ok:
            says = f"{exchange.ask.path}: the destination did not answer, {exchange.status}"
            found.append(unsettled(bench, "PRX-TIMEOUT", says, exchange))
        else:
            says = f"{exchange.ask.path}: its own answer"
            found.append(bench.passes("PRX-TIMEOUT", says, exchange))
    if quick and not any(exchange.ok for exchange in quick):
        says = f"no destination answers through this proxy: {quick[-1].status}"
        return [unsettled(bench, clause, says, *quick, slow) for clause in bench.check.clauses]
    return [*found, *_slow(bench, slow)]


def _slow(bench: Bench, exchange: Exchange) -> list[Finding]:
    took_ns = exchange.received_ns - exchange.sent_ns
    took = f"after {took_ns / _SECOND_NS:.2f} s"
    if exchange.status in {None, 401, 403, 404, 429}:
        says = f"the slow destination could not be asked: {exchange.status or exchange.error}"
        return [unsettled(bench, clause, says, exchange) for clause in bench.check.clauses]
    if exchange.status != 408:  # reason: the status that is judged
        says = f"a destination that takes longer than 25 s must get 408, got {exchange.status}"
        return [bench.fails(clause, says, exchange) for clause in bench.check.clauses]
    found = [bench.passes("ERR-408", f"408 {took}", exchange)]
    if _TIMEOUT_NS - _EARLY_NS <= took_ns <= _TIMEOUT_NS + _LATE_NS + bench.latency_ns:
        found.append(bench.passes("PRX-TIMEOUT", f"408 {took}", exchange))
    else:
        says = f"408 must come after 25 s, came {took}"
        found.append(bench.fails("PRX-TIMEOUT", says, exchange))
    return found
