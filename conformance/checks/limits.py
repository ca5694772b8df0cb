"""Sections 8.2 to 8.7: every row of the limit table, measured from outside.

There is one check for each row of the specification's table; the rate that it judges comes from the
target. A refusal that is too early, more requests than the rate, a wrong counter or a block that is
too short fails the row's clause. How the deployment counts is a reading.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import uuid
from collections.abc import Coroutine, Sequence
from typing import Any, Final

from conformance.probes.bursts import SECOND_NS, Counter, refused_in, slowed_in
from conformance.probes.families import HEAVY_REQUESTS, Rate
from conformance.probes.procedures import (
    FAILING_TIMES,
    LONG_NS,
    Played,
    counters_of,
    exchanges_of,
    looks_of,
    play_block,
    play_borders,
    play_number,
    play_throttle_row,
    play_together,
    play_window,
    sizes_of,
)
from conformance.probes.row_findings import Unsettled, row_findings
from conformance.probes.rows import (
    MOST_ADDRESSES,
    ROWS,
    Row,
    border_of,
    counter_of,
    is_fixed,
    rate_of,
    rest,
    spare_sources,
)
from conformance.probes.sightings import is_absent, is_of_a_front, provable_admissions
from conformance.runner.answers import must_be_there, text_of
from conformance.runner.bench import Bench, Lane
from conformance.runner.registry import Inconclusive, Skip, check
from conformance.runner.verdicts import Finding, Verdict
from conformance.wire.exchange import Ask, KeyLabel
from engine.limits import LimitTable, Rule

_ACCEPTS: Final = (
    "no refusal before the rate is reached, no more than the rate in any window (a fixed window or "
    "a bucket may admit more across a border), counted by what the row names"
)
_BLOCKS: Final = "; every request is refused until the block ends, and then admitted again"
_SECOND_LOOK: Final = "a second measurement after a rest would decide it"
_STAGGER_NS: Final = 2 * SECOND_NS


async def _wait_for_algorithm(bench: Bench, rate: Rate) -> None:
    """Wait for light rows to show the algorithm, where a heavy row alone cannot show it."""
    if rate.limit_requests < HEAVY_REQUESTS:
        return
    lane = bench.lane("algorithm")
    until_ns = lane.now_ns + 2 * rate.window_ns
    while not bench.knows("limits.algorithm") and lane.now_ns < until_ns:
        await lane.sleep_ns(SECOND_NS)


async def _played(
    bench: Bench, rule_id: str, turn: int, seen: _Seen, border_ns: int | None = None
) -> list[Played]:
    """Measure a row as the target's table states it; turn: 1, or more once its keys have rested.

    seen: what an earlier measurement left open. border_ns: about when a fixed window begins; then
    two windows are measured and nothing else.
    """
    row = ROWS[rule_id]
    rule, rate = rate_of(bench, rule_id)
    key = None if row.role is None else bench.key(row.role)
    mark, is_rested = _mark(turn), turn > 1
    sources = bench.sources[:1] if row.role is None else bench.sources
    counter = counter_of(bench, rule_id + mark, rule_id, key, sources=sources)
    addresses = 1 if turn == 1 else MOST_ADDRESSES
    known = await _known_tokens(bench, row, key, mark)
    probes = row.probes(bench, rule, key, sources, addresses=addresses, known=known)
    main: Coroutine[Any, Any, Played]
    if border_ns is not None:
        main = play_borders(counter, rate, border_ns)
    elif seen.is_number:
        main = play_number(counter, rate)
    elif not rate.block_ns:
        main = play_throttle_row(counter, rate, probes, is_rested=is_rested)
    else:
        main = play_block(
            counter,
            rate,
            None if seen.is_silent else probes,
            silent=seen.is_silent,
            is_rested=is_rested,
            shows_window=rate.block_ns > rate.window_ns,
        )
    windows = _windows(bench, row, rate, key, turn, border_ns)
    played = await play_together(bench, rate, [main, *windows])
    if turn == 1 and _is_free(played) and (rule.match.resource or _is_exceeded(played)):
        await _check_there(bench, row, played)
    if not any(each.is_warm for each in played):
        await _check_failures_count(bench, row, key, counter)
    return played


async def _known_tokens(bench: Bench, row: Row, key: KeyLabel | None, mark: str) -> list[str]:
    """Return an identifier for each of a row's further operations.

    Another key creates the tokens, because creating them would count in the row's own counter.
    Without a key nothing is looked up, so any identifier will do.
    """
    if key is None or not row.any_of:
        return [str(uuid.UUID(int=place, version=4)) for place in range(len(row.any_of))]
    makers = [label for label in bench.target.labels(row.role or "") if label != key]
    if not makers:
        return []
    found: list[str] = []
    for name in row.any_of:
        lane = bench.lane(f"{row.rule_id} known {name}{mark}", key=makers[0])
        told = await _made(bench, lane, f"for {name}")
        if told is None:
            return []
        found.append(told)
    return found


async def _made(bench: Bench, lane: Lane, value: str) -> str | None:
    """Create a token of one string; returns its identifier, None where there is none."""
    made = await lane.insist(*bench.shaped("tokenize", {"value": {"probe": value}}))
    return text_of(made, "probe")


def _mark(turn: int) -> str:
    """Return the ending of the names of counters and lanes in a measurement."""
    return "" if turn == 1 else f" {turn}"


def _windows(
    bench: Bench, row: Row, rate: Rate, key: KeyLabel | None, turn: int, border_ns: int | None
) -> list[Coroutine[Any, Any, Played]]:
    """Return the probes that show a block row's window, on keys or addresses that are not blocked.

    As far as the keys suffice, one probe sends just before the window's end and one just after it.
    Where a border of fixed windows is known, all of them send just after the next border.
    """
    if not rate.block_ns:
        return []
    keys: Sequence[KeyLabel | None] = [key]
    sources = {"late": bench.sources[1:2]}
    if row.role is not None:
        keys = bench.keys(row.role)[1:-1]  # the last one is for the signature
        apart = spare_sources(bench, 2, after=1) or bench.sources[:1]
        sources = {"early": apart[:1], "late": apart[-1:], "silent": apart[:1]}
    found = []
    for look, label in zip(looks_of(row, rate), keys, strict=False):
        if not sources[look]:
            continue  # a small target has no address that is not blocked
        name = f"{row.rule_id} {look}{_mark(turn)}"
        counter = counter_of(bench, name, row.rule_id, label, sources=sources[look])
        is_silent, is_rested = look == "silent", turn > 1
        if border_ns is not None:
            late = not is_silent
            found.append(play_borders(counter, rate, border_ns, is_late=late, silent=is_silent))
        elif is_silent:
            found.append(play_block(counter, rate, silent=True, is_rested=is_rested))
        else:
            found.append(play_window(counter, rate, is_late=look == "late", is_rested=is_rested))
    return found


async def _check_failures_count(
    bench: Bench, row: Row, key: KeyLabel | None, counter: Counter
) -> None:
    """Raise `Inconclusive` if nothing was refused because failed requests do not count.

    If only successful requests count (D-COUNTED), a row whose requests get 4xx here never reaches
    its limit. Invalid searches show this: more of them are sent than any row allows.
    """
    calm = next((x.status or 0 for x in counter.exchanges() if not is_of_a_front(x.status)), 0)
    seen = [one for cluster in counter.clusters() for one in cluster]
    if any(one.outcome == "refused" or one.is_late for one in seen) or not 400 <= calm < 500:
        return
    if not rate_of(bench, row.rule_id)[0].match.resource and is_absent(counter.exchanges()):
        return
    labels = [key] if row.role in {"private_prod", "legacy"} else []
    labels += bench.target.labels("private_no_permission")
    rate = next((rule for rule in bench.limits if rule.id == "LIM-SEARCH"), None)
    if not labels or rate is None:
        return
    method, path, _ = bench.shaped("search")
    invalid = Ask(method=method, path=path, body=[], key=labels[0], source=bench.sources[0])
    failing = Counter(bench, f"{counter.name} failing", lambda _: invalid)
    burst = await failing.send("failing", FAILING_TIMES * rate.limit_requests)
    if not refused_in(burst.exchanges) and not slowed_in(bench, burst.exchanges):
        raise Inconclusive(
            f"not decided: the requests for {row.rule_id} are answered {calm}, and failed requests "
            "seem not to count; give the key the permissions for them"
        )


async def _judge(bench: Bench, rule_id: str) -> list[Finding]:
    """Measure a row, and measure it again at another time if that does not decide it.

    The keys may have been used before, for example by an earlier run, or the edge of a window may
    have hidden something. So a row fails only for what was seen after a rest: by then no algorithm
    still counts what the keys did before this run.
    """
    row = ROWS[rule_id]
    rule, rate = rate_of(bench, rule_id)
    if rule.counter == "ip":
        # The preflight has used this address: wait until its requests have left the window.
        await bench.lane("quiet").sleep_ns(rate.window_ns + SECOND_NS, "the address has rested")
    elif not rate.block_ns and rate.window_ns < LONG_NS:
        # A random time, so that the measurement does not begin with a window.
        pause_ns = bench.random("start").randrange(_STAGGER_NS)
        await bench.lane(f"{rule_id} start").sleep_ns(pause_ns)
    first = await _played(bench, rule_id, 1, _Seen())
    is_warm = any(each.is_warm for each in first)
    seen = _Seen() if is_warm else await _seen(bench, rule_id, first)
    if seen.is_enough:
        return seen.found
    if rule.match.resource and not _is_free(first):
        # Another row, such as that of the key's class, may refuse an operation that does not exist.
        await _check_there(bench, row, first)
    try:
        return await _judge_rested(bench, rule_id, first, seen)
    except Skip as why:
        if seen.why is not None:
            raise Inconclusive(f"{seen.why}; {_SECOND_LOOK}, but {why}") from None
        if not seen.found:
            raise
        return [_without_second_look(one, why) for one in seen.found]


def _without_second_look(one: Finding, why: Skip) -> Finding:
    """Return a finding of the first measurement; without a second one it cannot be a failure."""
    if one.verdict is not Verdict.FAIL:
        return one
    says = f"not decided: {one.says}; {_SECOND_LOOK}, but {why}"
    return dataclasses.replace(one, verdict=Verdict.INCONCLUSIVE, says=says)


async def _judge_rested(
    bench: Bench, rule_id: str, first: Sequence[Played], seen: _Seen
) -> list[Finding]:
    """Measure a row again when its keys have rested, and a third time for what is open then.

    There is a third time where the keys were warm, so that the first one showed nothing, and where
    only the number is open.
    """
    is_warm = any(each.is_warm for each in first)
    second = await _again(bench, rule_id, 2, seen, is_warm=is_warm)
    try:
        found = await _findings(bench, rule_id, second, first)
    except Inconclusive:
        if seen.why is None:
            raise
        raise seen.why from None
    now = _weighed(bench, rule_id, second, found)
    is_failed = Verdict.FAIL in {one.verdict for one in found}
    if not (is_failed or now.is_enough) and (is_warm or (now.is_number and not seen.is_number)):
        with contextlib.suppress(Inconclusive, Skip):
            third = await _again(bench, rule_id, 3, now, is_warm=False)
            before = second if is_warm else _joined(first, second)
            return await _findings(bench, rule_id, third, before)
    return found


def _joined(first: Sequence[Played], second: Sequence[Played]) -> Sequence[Played]:
    """Return the second measurement with what its counters showed in the first one."""
    for earlier, counter in zip(counters_of(first), counters_of(second), strict=True):
        counter.bursts = [*earlier.bursts, *counter.bursts]
    return second


async def _again(
    bench: Bench, rule_id: str, turn: int, seen: _Seen, *, is_warm: bool
) -> list[Played]:
    """Let the keys of a row rest, and measure it once more for what is still open."""
    _, rate = rate_of(bench, rule_id)
    await rest(bench, rate, is_warm=is_warm, is_empty=seen.is_number)
    border_ns = await border_of(bench, rate) if seen.is_silent else None
    return await _played(bench, rule_id, turn, seen, border_ns)


@dataclasses.dataclass(slots=True)
class _Seen:
    """What the first measurement of a row shows.

    is_enough: no second measurement is needed. is_silent: the second one sends nothing during a
    block, so that refusals cannot have extended a long one. is_number: only the number is open,
    which a measurement of its own shows, unless a border of windows is known. why: what left the
    row undecided.
    """

    found: list[Finding] = dataclasses.field(default_factory=list)
    is_enough: bool = False
    is_silent: bool = False
    is_number: bool = False
    why: Inconclusive | None = None


async def _seen(bench: Bench, rule_id: str, first: Sequence[Played]) -> _Seen:
    """Return what the first measurement of a row shows, with keys that have rested."""
    _, rate = rate_of(bench, rule_id)
    await _wait_for_algorithm(bench, rate)
    try:
        found = await _findings(bench, rule_id, first)
    except Unsettled as why:
        return _Seen(is_silent=not why.is_of_counter, why=why)
    return _weighed(bench, rule_id, first, found)


def _weighed(bench: Bench, rule_id: str, played: Sequence[Played], found: list[Finding]) -> _Seen:
    """Return what findings on a measurement leave open."""
    _, rate = rate_of(bench, rule_id)
    verdicts = {one.verdict for one in found}
    is_failed = Verdict.FAIL in verdicts
    is_open = is_failed or Verdict.INCONCLUSIVE in verdicts
    is_heavy = bool(rate.block_ns) and rate.limit_requests >= HEAVY_REQUESTS
    # At a heavy rate, only a block that may be longer, and borders, are worth more requests.
    longer = f"a block of {rate.block_ns * 3 // 2 / SECOND_NS:g} s"
    is_worth = is_failed or any(longer in one.says for one in found) or is_fixed(bench)
    is_unlimited = is_failed and _is_free(played)
    is_enough = not is_open or is_unlimited or (is_heavy and not is_worth)
    is_light = rate.window_ns < LONG_NS and rate.limit_requests < HEAVY_REQUESTS
    is_number = (
        not (is_failed or rate.block_ns or is_fixed(bench))
        and is_light
        and not any(slowed_in(bench, one.exchanges()) for one in counters_of(played))
        and is_number_open(rate.limit_requests, found)
    )
    return _Seen(found, is_enough, is_silent=not is_failed, is_number=is_number)


def is_number_open(limit: int, found: Sequence[Finding]) -> bool:
    """Whether findings say that a number next to the row's own would have looked the same."""
    next_to = re.compile(rf"a limit of ({limit - 1}|{limit + 1})\b")
    return any(next_to.search(one.says) for one in found)


async def _findings(
    bench: Bench, rule_id: str, played: Sequence[Played], before: Sequence[Played] = ()
) -> list[Finding]:
    """Return the findings on a row; before: what was measured before a rest."""
    rule, _ = rate_of(bench, rule_id)
    return await bench.aside(lambda: list(row_findings(bench, rule, played, before)))


async def _check_there(bench: Bench, row: Row, played: Sequence[Played]) -> None:
    """Raise `Skip` if the deployment does not have the operation, so that no row limits it.

    An unknown id also gives 404, so an existing token is asked for, with another key where there is
    one: what the row counts stays known.
    """
    asked = played[0].counters[0].exchanges()
    if not is_absent(asked):
        return
    _, path, _ = bench.shaped(row.operation, {"id": "{id}"})
    if "%7Bid%7D" in path or "{id}" in path:
        own = asked[0].ask.key
        others = [label for label in bench.target.labels(row.role or "") if label != own]
        lane = bench.lane(f"{row.rule_id} there", key=others[0] if others else own)
        known = await _made(bench, lane, row.rule_id)
        if known is None:
            return
        method, of_token, body = bench.shaped(row.operation, {"id": known, "value": "probe"})
        headers = asked[0].ask.headers
        if not is_absent([await lane.insist(method, of_token, body, headers=headers)]):
            return
    must_be_there(row.operation, next(one for one in asked if one.is_absent))


def _is_free(played: Sequence[Played]) -> bool:
    """Whether nothing was refused at all, which no earlier use and no window's edge explains."""
    return not refused_in(exchanges_of(played))


def _is_exceeded(played: Sequence[Played]) -> bool:
    """Whether a window admitted more than the rate; if not, the rate may not have been reached."""
    rate = played[0].rate
    seen = [one for cluster in played[0].counters[0].clusters() for one in cluster]
    return provable_admissions(seen, rate.window_ns) > rate.limit_requests


def _register(rule: Rule, row: Row) -> None:
    """Register the check of one row of the table."""

    async def judge(bench: Bench) -> list[Finding]:
        return await _judge(bench, rule.id)

    judge.__doc__ = row.says
    sizes = sizes_of(rule, row, LimitTable.default())
    check(
        f"limits.{rule.id}",
        rule.id,
        accepts=_ACCEPTS + (_BLOCKS if rule.block_ns else ""),
        roles=() if row.role is None else (row.role,) * row.keys,
        sources=row.sources,
        more_roles=(row.role,) * row.more_keys if row.role is not None else (),
        more_sources=row.more_sources,
        requests=sizes.requests,
        requests_most=sizes.requests_most,
        takes_ns=sizes.takes_ns,
        is_probe=True,
    )(judge)


for _rule in LimitTable.default():
    _register(_rule, ROWS[_rule.id])
