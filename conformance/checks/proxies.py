"""Seed 7 and 8.5: a proxy's destination may take 25 s, then the answer is 408."""

from __future__ import annotations

import re
from typing import Final

from conformance.checks._common import unsettled
from conformance.checks._stalls import Stalls, seconds, took_ns
from conformance.runner.bench import Bench
from conformance.runner.registry import Skip, check
from conformance.runner.verdicts import Finding
from conformance.wire.exchange import Exchange

__all__: list[str] = []

_SECOND_NS: Final = 1_000_000_000
_TIMEOUT_NS: Final = 25 * _SECOND_NS
_EARLY_NS: Final = _SECOND_NS // 2
_LATE_NS: Final = 5 * _SECOND_NS
_DELAY: Final = re.compile(r"/delay/([0-9]+)$")
_JUST_BELOW: Final = 24


@check(
    "proxies.timeout",
    "PRX-TIMEOUT",
    "ERR-408",
    accepts="408 after 25 s for a destination that takes longer; else the destination's answer",
    roles=("slow_destination",),
    requests=4,
    takes_ns=_TIMEOUT_NS,
    is_timed=True,
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
    asked = [lane.ask("GET", one) for lane, one in zip(lanes, paths, strict=True)]
    stalls = Stalls(bench)
    slow, *quick = await stalls.beside(asked)
    held_ns = stalls.stalled_ns
    if quick:
        # At once, now that the slow one has ended: how long does one take that waits for nothing?
        after = await lanes[-1].ask("GET", paths[-1])
        held_ns += max(took_ns(quick[-1]), took_ns(after))
    found = [_quick(bench, exchange) for exchange in quick]
    if quick and not any(exchange.ok for exchange in quick):
        says = f"no destination answers through this proxy: {quick[-1].status}"
        return [unsettled(bench, clause, says, *quick, slow) for clause in bench.check.clauses]
    return [*found, *_slow(bench, slow, held_ns)]


def _quick(bench: Bench, exchange: Exchange) -> Finding:
    """Judge a destination that takes less than 25 s by itself."""
    path, took = exchange.ask.path, seconds(took_ns(exchange))
    if exchange.status == 408 and took_ns(exchange) < _TIMEOUT_NS:
        says = f"{path}: a destination that takes less than 25 s must not get 408, got it in {took}"
        return bench.fails("PRX-TIMEOUT", says, exchange)
    if exchange.status == 408:
        says = f"{path}: 408 after {took}; what held it up may have held up the destination too"
        return unsettled(bench, "PRX-TIMEOUT", says, exchange)
    if not exchange.ok:
        says = f"{path}: the destination did not answer, {exchange.status or exchange.error}"
        return unsettled(bench, "PRX-TIMEOUT", says, exchange)
    return bench.passes("PRX-TIMEOUT", f"{path}: its own answer, after {took}", exchange)


def _slow(bench: Bench, exchange: Exchange, held_ns: int) -> list[Finding]:
    """Judge a destination that takes longer; held_ns: what is known to have held up its answer."""
    after_ns = took_ns(exchange)
    took = f"after {seconds(after_ns)}"

    def unsaid(says: str) -> list[Finding]:
        return [unsettled(bench, clause, says, exchange) for clause in bench.check.clauses]

    if exchange.status in {None, 401, 403, 404, 429}:
        return unsaid(
            f"the slow destination could not be asked: {exchange.status or exchange.error}"
        )
    if exchange.status != 408 and after_ns < _TIMEOUT_NS - _EARLY_NS:
        return unsaid(f"the slow destination must take longer than 25 s, came {took}")
    if exchange.status != 408:
        says = f"a destination that takes longer than 25 s must get 408, got {exchange.status}"
        return [bench.fails(clause, f"{says} {took}", exchange) for clause in bench.check.clauses]
    found = [bench.passes("ERR-408", f"408 {took}", exchange)]
    late_ns = after_ns - _TIMEOUT_NS
    if -_EARLY_NS <= late_ns <= _LATE_NS + bench.latency_ns:
        found.append(bench.passes("PRX-TIMEOUT", f"408 {took}", exchange))
    elif late_ns < 0 or late_ns - held_ns > _LATE_NS:
        says = f"408 must come after 25 s, came {took}"
        found.append(bench.fails("PRX-TIMEOUT", says, exchange))
    else:
        says = f"408 came {took}, but up to {seconds(held_ns)} of it were not the timeout's"
        found.append(unsettled(bench, "PRX-TIMEOUT", says, exchange))
    return found
