"""Seed 8.2 to 8.7: every row of the limit table, measured from outside.

One check a row, made from the seed's table; the rate that is judged is the target's. What it may
not be (a refusal too early, more than the rate, a wrong counter, a block too short) fails the
row's clause; how the deployment counts is a reading.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from conformance.bench import Bench
from conformance.exchanges import Ask, KeyLabel
from conformance.probes.asking import SECOND_NS, Counter
from conformance.probes.families import HEAVY_REQUESTS
from conformance.probes.playing import (
    LONG_NS,
    Played,
    play_block,
    play_block_row,
    play_throttle_row,
    play_window,
)
from conformance.probes.rows import ROWS, Row, rate_of, spare_sources
from conformance.probes.saying import Unsettled, own_probes, row_findings
from conformance.registry import Inconclusive, check
from conformance.verdicts import Finding, Verdict
from engine.limits import LimitTable, Rule

__all__: list[str] = []

_ACCEPTS: Final = (
    "no refusal that fewer admissions than the rate excuse, no more than the rate in any window "
    "unless a fixed window or a bucket of that rate would admit as many, and the row's counter"
)
_BLOCKS: Final = "; every request of the block's time is refused, and room after it is given"
_STAGGER_NS: Final = 2 * SECOND_NS


async def _staggered(bench: Bench, name: str) -> None:
    """Begin at an instant that no window begins at."""
    lane = bench.lane(f"{name} start")
    await lane.sleep_ns(bench.random("start").randrange(_STAGGER_NS))


async def _played(bench: Bench, rule_id: str, turn: int) -> list[Played]:
    """Play a row as the target's table has it; turn: 1, or 2 once its keys have rested."""
    row = ROWS[rule_id]
    rule, rate = rate_of(bench, rule_id)
    key = None if row.role is None else bench.key(row.role)
    mark = "" if turn == 1 else f" {turn}"
    is_rested = turn > 1
    asker = row.asker(bench, row.operation, key=key, sources=bench.sources)
    counter = Counter(bench, rule_id + mark, asker)
    probes = row.probes(bench, rule, key, bench.sources)
    own = own_probes(rule)
    if not rate.block_ns:
        one = await play_throttle_row(counter, rate, probes, own, is_rested=is_rested)
        played = [one]
    elif rate.block_ns > rate.window_ns:
        played = [await play_block_row(counter, rate, probes, own, is_rested=is_rested)]
    elif rate.block_ns == rate.window_ns or row.role is None:
        played = [await play_block(counter, rate, probes, own, is_rested=is_rested)]
    else:
        apart = spare_sources(bench, 1, after=1) or bench.sources
        second = row.asker(bench, row.operation, key=bench.key(row.role, 2), sources=apart)
        quiet = Counter(bench, f"{rule_id} window{mark}", second)
        played = await bench.gather(
            [
                play_block(counter, rate, probes, own, is_rested=is_rested),
                play_window(quiet, rate, is_rested=is_rested),
            ]
        )
    if not any(each.is_warm for each in played):
        await _check_failures_count(bench, row, key, counter)
    return played


async def _check_failures_count(
    bench: Bench, row: Row, key: KeyLabel | None, counter: Counter
) -> None:
    """Raise `Inconclusive` where nothing was refused because failed requests do not count.

    Where only successes count (D-COUNTED) a row whose requests are answered 4xx here meets no
    limit. Invalid searches show it: more of them than any row allows.
    """
    calm = counter.exchanges()[0].status or 0
    seen = [one for cluster in counter.clusters() for one in cluster]
    if any(one.outcome == "refused" or one.is_late for one in seen) or not 400 <= calm < 500:
        return
    labels = [key] if row.role in {"private_prod", "legacy"} else []
    labels += bench.target.labels("private_no_permission")
    rate = next((rule for rule in bench.limits if rule.id == "LIM-SEARCH"), None)
    if not labels or rate is None:
        return
    method, path, _ = bench.shaped("search")
    invalid = Ask(method=method, path=path, body=[], key=labels[0], source=bench.sources[0])
    failing = Counter(bench, f"{counter.name} failing", lambda _: invalid)
    burst = await failing.send("failing", rate.limit_requests * 2)
    if not any(one.refused for one in burst.exchanges):
        raise Inconclusive(
            f"{row.rule_id}'s requests are answered {calm} and failures seem not to count: "
            "give the key the right to them"
        )


async def _judge(bench: Bench, rule_id: str) -> list[Finding]:
    """Play a row, and once more from another instant where the first time does not settle it.

    Somebody may have used the keys before, as the last run does; or a window's edge lay where it
    hides something. So nothing is failed that was not seen after a rest: what the keys did before
    this run is forgotten by then, whatever the way of counting.
    """
    row = ROWS[rule_id]
    rule, rate = rate_of(bench, rule_id)
    if rule.counter == "ip":
        # The preflight has asked from this address: let its requests leave the window first.
        await bench.lane("quiet").sleep_ns(rate.window_ns + SECOND_NS)
    elif not rate.block_ns and rate.window_ns < LONG_NS:
        await _staggered(bench, rule_id)
    first = await _played(bench, rule_id, 1)
    why: Inconclusive | None = None
    if not any(each.is_warm for each in first):
        try:
            found = await bench.aside(lambda: list(row_findings(bench, rule_id, row, rule, first)))
        except Unsettled as unsettled:
            why = unsettled
        else:
            if not any(one.verdict is Verdict.FAIL for one in found):
                return found
    if why is not None and rate.limit_requests >= HEAVY_REQUESTS:
        raise why
    await _rest(bench, rate, first)
    second = await _played(bench, rule_id, 2)
    return await bench.aside(
        lambda: list(row_findings(bench, rule_id, row, rule, second, before=first))
    )


async def _rest(bench: Bench, rate: Rate, played: Sequence[Played]) -> None:
    """Wait until nothing of what was played lies in a window, and no block lasts."""
    counters = [counter for each in played for counter in each.counters]
    last_ns = max(one.received_ns for each in counters for one in each.exchanges())
    rest_ns = max(rate.window_ns, rate.block_ns) + bench.random("rest").randrange(_STAGGER_NS)
    await bench.lane("rest").sleep_until_ns(last_ns + rest_ns)


def _requests(rule: Rule) -> int:
    """Return about how many requests a row takes."""
    limit = rule.limit_requests
    if limit >= HEAVY_REQUESTS:
        return limit * 5 // 2
    return 2 * limit + 80 if rule.block_ns else limit * 16 // 5 + 40


def _takes_ns(rule: Rule) -> int:
    """Return how long a row takes at least: what its clusters wait for (`probes.playing`)."""
    if rule.block_ns is not None and rule.block_ns > rule.window_ns:
        return rule.window_ns * 5 // 2 + rule.block_ns + 2 * SECOND_NS
    is_whole = rule.block_ns is not None or rule.window_ns >= LONG_NS
    return rule.window_ns * (10 if is_whole else 15) // 10 + SECOND_NS


def _register(rule: Rule, row: Row) -> None:
    """Make the check of one row of the table."""

    async def judge(bench: Bench) -> list[Finding]:
        return await _judge(bench, rule.id)

    judge.__doc__ = row.says
    check(
        f"limits.{rule.id}",
        rule.id,
        accepts=_ACCEPTS + (_BLOCKS if rule.block_ns else ""),
        roles=() if row.role is None else (row.role,) * row.keys,
        sources=row.sources,
        requests=_requests(rule),
        takes_ns=_takes_ns(rule),
        is_probe=True,
    )(judge)


for _rule in LimitTable.default():
    _register(_rule, ROWS[_rule.id])
