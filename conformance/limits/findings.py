"""From a measurement to findings: a row is measured again where that did not decide it.

A failure stands if the machine was calm while it was measured, or if a second measurement, on other
keys, fails too. A pass needs ±10 % of number, window and block excluded; its sentence says what was
resolved.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance.context.choices import line_of
from conformance.context.context import CheckContext
from conformance.context.cooldown import CounterId
from conformance.context.verdicts import Finding, Verdict
from conformance.limits.block import BlockMeasurement
from conformance.limits.measurement import (
    Decided,
    Delays,
    Measurement,
    PrepareValid,
    ProfileEffect,
    Shared,
)
from conformance.limits.rows import ROWS, LimitRow, RowRequests, parties_of, party_apart, rule_of
from conformance.limits.sending import (
    SECOND_NS,
    BurstSender,
    BurstSenders,
    Sender,
    counter_ids,
)
from conformance.limits.throttle import ThrottleMeasurement
from conformance.messages.exchange import KeyLabel
from engine.limits import Rule

_CALM_NS = 50_000_000
_CALM_PART = 100
MOST_MEASUREMENTS = 3
_STAGGER_NS = 2 * SECOND_NS
_HEAVY = frozenset({"LIM-IP", "LIM-PRIVATE"})
"""The rows that count what all probes send: they are measured when no other row is."""


@dataclass(slots=True)
class Outcome:
    """What one measurement of a row has decided. is_calm: whether it was not disturbed."""

    measurement: Measurement
    decided: Decided
    is_calm: bool = True

    @property
    def verdict(self) -> Verdict:
        """The verdict on the row."""
        return self.decided.verdict


async def measure(
    sender: Sender,
    counter: str,
    variants: Sequence[str],
    choices: Mapping[str, ProfileEffect],
    prepare_valid: PrepareValid,
) -> Outcome:
    """Measure a row once."""
    kind = BlockMeasurement if sender.block_ns else ThrottleMeasurement
    measurement = kind(sender, counter, variants, choices, prepare_valid)
    try:
        try:
            message = await measurement.run()
        except (Delays, Shared) as why:  # others hold back what it sends, or take its places
            if isinstance(why, Shared):
                sender.parties.kind = "each"
            await sender.take_apart()
            measurement = kind(sender, counter, variants, choices, prepare_valid)
            measurement.is_apart = True
            message = await measurement.run()
        decided = Decided(Verdict.PASS, message, measurement.evidence)
    except Decided as failure:
        decided = failure
    calm_ns = min(_CALM_NS, sender.window_ns // _CALM_PART)
    is_disturbed = any(burst.lost for burst in measurement.fresh)
    is_calm = sender.jitter_ns < calm_ns and not is_disturbed
    return Outcome(measurement, decided, is_calm)


def sender_of(
    ctx: CheckContext,
    rule: Rule,
    keys: Sequence[KeyLabel],
    requests: RowRequests,
    pool: BurstSenders,
) -> Sender:
    """Return a sender of a row's requests."""
    apart = BurstSender(None, ctx.sources[:1]), 0
    if keys:
        apart = party_apart(requests.row, keys, ctx.sources)
    return Sender(
        ctx,
        rule.limit_requests,
        rule.window_ns,
        rule.block_ns or 0,
        pool,
        requests.make,
        ctx.session.traffic,
        apart,
        is_light=rule.id not in _HEAVY,
        is_of_resource=bool(rule.match.resource),
    )


def pool_of(ctx: CheckContext, row: LimitRow, rule: Rule, keys: Sequence[KeyLabel]) -> BurstSenders:
    """Return the parties of a row, with keys that may be used for it."""
    kind = "ip" if row.role is None else "key" if _is_by_key(rule) else "pair"
    rest_ns = 2 * rule.window_ns + rule.window_ns // 50
    parties = parties_of(row, rule, keys, ctx.sources, ctx.random("parties"))
    return BurstSenders(parties, kind, rest_ns, _recently_used(ctx, rule, parties, kind, rest_ns))


def _recently_used(
    ctx: CheckContext, rule: Rule, parties: Sequence[BurstSender], kind: str, rest_ns: int
) -> dict[CounterId, int]:
    """Return when earlier runs have used the counters of a row, and those of its addresses."""
    cooldown, start_ns = ctx.session.cooldown, ctx.session.wall_start_ns
    used = {counter: at_ns - start_ns for counter, at_ns in cooldown.of(rule.id).items()}
    for other in ctx.limits:
        if other.id not in _HEAVY or other.id == rule.id:
            continue
        for party in parties:
            shared = [("", source) for source in party.sources] + [(party.key, "")]
            at_ns = max((cooldown.of(other.id).get(counter, 0) for counter in shared), default=0)
            free_ns = at_ns - start_ns + 2 * other.window_ns - rest_ns
            for counter in counter_ids(kind, party) if at_ns else ():
                used[counter] = max(free_ns, used.get(counter, free_ns))
    return used


async def judge_row(ctx: CheckContext, rule_id: str) -> list[Finding]:
    """Measure a row of the target's table, again where needed, and return the findings."""
    row, rule = ROWS[rule_id], rule_of(ctx.limits, rule_id)
    keys = ctx.keys(row.role) if row.role is not None else ()
    requests, pool = RowRequests(ctx, row), pool_of(ctx, row, rule, keys)
    if rule_id in _HEAVY:  # the rows before it have used its keys and addresses
        await ctx.lane("quiet").sleep_ns(2 * rule.window_ns, "the addresses have rested")
    pause_ns = ctx.random("start").randrange(_STAGGER_NS)  # a run may begin with a window
    await ctx.lane("start").sleep_ns(pause_ns)
    await requests.prepare(keys)
    pool.used(BurstSender(keys[0] if keys else None, ctx.sources[:1]), ctx.transport.now_ns)
    outcomes: list[Outcome] = []
    traffic = ctx.session.traffic
    while not outcomes or not _is_settled(outcomes):
        if outcomes:
            ctx.session.note_rest(ctx.check.id, ctx.check.takes_ns)
        sender = sender_of(ctx, rule, keys, requests, pool)
        sender.prefix = f"{len(outcomes) + 1}: "
        traffic.measuring.add(ctx.check.id)
        try:
            stock = functools.partial(requests.stock, keys[0] if keys else "", rule)
            outcome = await measure(sender, pool.kind, requests.variants(), row.choices, stock)
            outcomes.append(outcome)
            _check_failures_count(outcome)
        finally:
            traffic.measuring.discard(ctx.check.id)
            start_ns = ctx.session.wall_start_ns
            used = {counter: at_ns + start_ns for counter, at_ns in pool.last_used_ns.items()}
            ctx.session.cooldown.note(rule_id, used)
    return _findings(ctx, rule, outcomes)


def _check_failures_count(outcome: Outcome) -> None:
    """Fail a row that counts successes only, where failed requests count elsewhere (D-COUNTED)."""
    measurement = outcome.measurement
    seen = measurement.readings.get("limits.counted_statuses")
    if seen == "success" and measurement.do_failures_count():
        message = "failed requests do not count here, but they count in other rows"
        outcome.decided = Decided(Verdict.FAIL, message, measurement.evidence)


def _is_by_key(rule: Rule) -> bool:
    return rule.counter in {"key", "key|ip"}


def _is_settled(outcomes: list[Outcome]) -> bool:
    verdicts = [outcome.verdict for outcome in outcomes]
    last = outcomes[-1]
    if len(outcomes) >= MOST_MEASUREMENTS:
        return True
    if last.verdict is Verdict.INCONCLUSIVE:
        return len(outcomes) > 1
    if last.verdict is Verdict.FAIL and last.is_calm:
        return True
    decided = [verdict for verdict in verdicts if verdict is not Verdict.INCONCLUSIVE]
    if last.verdict is Verdict.PASS and Verdict.FAIL not in decided:
        return True
    return decided.count(last.verdict) > 1


def _findings(ctx: CheckContext, rule: Rule, outcomes: list[Outcome]) -> list[Finding]:
    last = outcomes[-1]
    measurement, decided = last.measurement, last.decided
    notes = "".join(f"; {note}" for note in measurement.notes)
    message = decided.message + notes
    if len(outcomes) > 1:
        message += f"; measured {len(outcomes)} times"
    finding = ctx.finding(rule.id, decided.verdict, message, *decided.evidence)
    findings = [dataclasses.replace(finding, follows=decided.clause)]
    if decided.verdict is Verdict.PASS:
        findings += [
            _of_choice(ctx, rule, name, value)
            for name, value in measurement.readings.items()
            if name != "limits.and_counter" or rule.counter == "ip+key"
        ]
    clauses = ctx.check.clauses
    if "LIM-THROTTLE" in clauses:
        findings.append(_of_throttle(ctx, measurement, findings[0]))
    if "LIM-BLOCK" in clauses:
        findings.append(_of_block(ctx, measurement, findings[0]))
    if "ERR-429" in clauses:
        findings.append(_of_status(ctx, measurement))
    return findings


def _of_choice(ctx: CheckContext, rule: Rule, name: str, value: object) -> Finding:
    """Return the finding on a choice: a reading, unless the target's profile states another one."""
    session = ctx.session
    stated = getattr(session.given_profile.limits, name.removeprefix("limits."))
    if name in session.given and _contradicts(stated, value):
        message = (
            f"the target's profile states {line_of(name, stated)}; seen: {line_of(name, value)}"
        )
        return ctx.fails(rule.id, message)
    return ctx.reads(rule.id, name, value)


def _contradicts(stated: object, value: object) -> bool:
    """Whether a measured choice differs from a stated one in a way that a measurement decides.

    A token bucket is GCRA with a burst of N; a sliding counter often decides as a log does.
    """
    same = ({"token-bucket", "gcra"}, {"sliding-counter", "sliding-log"})
    return stated != value and not any({stated, value} <= group for group in same)


def _of_throttle(ctx: CheckContext, measurement: Measurement, row_finding: Finding) -> Finding:
    """Return the finding on LIM-THROTTLE: requests beyond the rate are slowed or refused."""
    if measurement.fresh:
        burst = measurement.fresh[0]
        message = f"{burst.size} of {len(burst.all)} were admitted, then requests were refused"
        return ctx.passes("LIM-THROTTLE", message, *measurement.evidence[:2])
    return dataclasses.replace(row_finding, clause="LIM-THROTTLE")


def _of_block(ctx: CheckContext, measurement: Measurement, row_finding: Finding) -> Finding:
    """Return the finding on LIM-BLOCK."""
    assert isinstance(measurement, BlockMeasurement), "a block row"
    if measurement.of_block:
        worst = max(measurement.of_block, key=lambda decided: decided.verdict)
        finding = ctx.finding("LIM-BLOCK", worst.verdict, worst.message, *worst.evidence)
        return finding if worst.clause else dataclasses.replace(finding, follows=row_finding.clause)
    if measurement.block_message is not None:
        return ctx.passes("LIM-BLOCK", measurement.block_message, *measurement.evidence[:2])
    if not measurement.fresh:
        return dataclasses.replace(row_finding, clause="LIM-BLOCK", follows=row_finding.clause)
    return ctx.unsettled("LIM-BLOCK", f"see {row_finding.clause}")


def _of_status(ctx: CheckContext, measurement: Measurement) -> Finding:
    """Return the finding on ERR-429: every refusal must have this status."""
    odd = measurement.sender.refusals.odd
    if odd:
        message = f"beyond the rate the answer must be 429, got {odd[0].status}"
        return ctx.fails("ERR-429", message, *odd[:2])
    refused = [x.exchange for burst in measurement.fresh for x in burst.refused]
    if refused:
        return ctx.passes("ERR-429", f"{len(refused)} were refused, all with 429", *refused[:2])
    return ctx.informs("ERR-429", "no request was refused")
