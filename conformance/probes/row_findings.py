"""Turns a measured row into findings: its verdict, what could not be decided, and readings."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from conformance.probes.bursts import SECOND_NS
from conformance.probes.delays import delays
from conformance.probes.families import HEAVY_REQUESTS, Cluster, Rate, seconds
from conformance.probes.measurement import (
    Measured,
    alternatives,
    counters_per_node,
    evidence,
    explain,
    histories_of,
    measure,
    with_sight,
)
from conformance.probes.procedures import Played, counters_of, exchanges_of
from conformance.probes.rows import ROWS, Row
from conformance.probes.sightings import LATE_NS, Sighting
from conformance.probes.signature import (
    APART,
    BOTH_OTHER,
    CONTROL,
    OTHER_RESOURCE,
    TWIN,
    Signature,
)
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive
from conformance.runner.verdicts import Finding, Verdict
from conformance.target import Source
from conformance.wire.exchange import Exchange
from conformance.wire.pace import application_kind
from conformance.wire.shapes import SHAPES, Spelling
from engine.clauses import clause
from engine.limits import SEED_SECTIONS, Rule
from engine.limits.table import COUNTER_KINDS
from engine.profile import Algorithm

_SHORT_NS: Final = 10_000_000_000
_BOUND_STEP_NS: Final = 500_000_000
_TENTH_NS: Final = 100_000_000
_ELSEWHERE: Final = {
    "other key": "another key at the same address",
    "other address": "the same key at another address",
}
_CHANGES: Final = tuple(_ELSEWHERE)
_NEARER: Final = "run closer to the server or with less load, or rerun"
_AGAIN: Final = "rerun: requests at other instants may tell them apart"
_SPELLING: Final = Spelling()
_ADDRESSES: Final = 3
"""Of this many addresses, no other check uses at least one."""


class Unsettled(Inconclusive):
    """The measurement does not decide the row, but one at another time may.

    is_of_counter: what the row counts by is undecided, not its rate or its block.
    """

    def __init__(self, says: str, *, is_of_counter: bool = False) -> None:
        super().__init__(says)
        self.is_of_counter = is_of_counter


def signature_fault(rule: Rule, signature: Signature, and_counter: str | None = None) -> str | None:
    """Return how a signature contradicts the row, None if it does not.

    and_counter: what other rows have shown of D-AND-COUNTER, None if nothing is known. Raises
    `Unsettled` if that is needed to tell a fault from a reading.
    """
    if not signature.tells:
        return None
    fired = [name for name in _CHANGES if signature.refused(name)]
    each = rule.counter == "ip+key" and len(fired) == len(_CHANGES)  # D-AND-COUNTER: a reading
    if _is_one_for_all(rule, signature, and_counter, is_each=each):
        return "another key at another address is refused as well: the row has one counter for all"
    if each and and_counter == "pair" and rule.block_ns:
        return (
            "the key at another address and another key at this address are both refused: the "
            "block covers more than what counts, which is the "
            f"{COUNTER_KINDS[rule.counter].description} together, as other rows show"
        )
    left_out = _left_out(signature)
    if left_out is not None or each:
        return left_out
    for name in signature.bursts:
        is_apart = name.startswith(APART) or name == OTHER_RESOURCE
        if is_apart and name not in signature.own and signature.refused(name):
            return (
                f"{_asked(signature, name)} is refused too: it must not share this row's counter, "
                "which counts the row's own resources only"
            )
    return _counter_fault(rule, signature)


def _left_out(signature: Signature) -> str | None:
    """Return which of a row's own operations is answered while the row refuses."""
    for name in signature.bursts:
        if name.startswith(TWIN) and signature.refused(name) is False:
            return f"{_asked(signature, name)} is still answered: it must share this row's counter"
        is_own = name == OTHER_RESOURCE and name in signature.own
        if (is_own and signature.refused(name) is False) or signature.leaves_out(name):
            return f"{_asked(signature, name)} is still answered: the row counts any resource"
    return None


def _is_one_for_all(
    rule: Rule, signature: Signature, and_counter: str | None, *, is_each: bool
) -> bool:
    """Whether even another key at another address is refused.

    If keys and addresses count separately, other checks may use that address: then several
    addresses tell.
    """
    asked = [signature.refused(name) for name in signature.bursts if name.startswith(BOTH_OTHER)]
    if not any(asked):
        return False
    if not is_each or and_counter == "pair":
        return True
    if and_counter is None and len(asked) < _ADDRESSES:
        raise Unsettled(
            f"{rule.id}: another key, another address and both together are refused as well: there "
            "is one counter for all, or one for each key and one for each address; add sources",
            is_of_counter=True,
        )
    return and_counter is None and all(asked)


def _asked(signature: Signature, name: str) -> str:
    """Return the operation of a probe, such as `DELETE /tokens/{id}`, as the engine spells it."""
    ask = signature.exchanges(name)[0].ask
    path = ask.path.partition("?")[0]
    found = _SPELLING.operation(ask.method, path)
    return f"{ask.method} {SHAPES[found[0]].path if found else path}"


def _counter_fault(rule: Rule, signature: Signature) -> str | None:
    by = COUNTER_KINDS[rule.counter].description
    for name in _CHANGES:
        if signature.refused(name) and name not in signature.own:
            shared = "address" if name == "other key" else "key"
            return f"{_ELSEWHERE[name]} is refused too: counted by {shared} only, not by {by}"
        if signature.refused(name) is False and name in signature.own:
            return f"{_ELSEWHERE[name]} is still answered: the row must count by {by} alone"
    return None


def measured_row(
    bench: Bench, rule: Rule, played: Sequence[Played], before: Sequence[Played] = ()
) -> tuple[Measured, list[list[list[Sighting]]], int]:
    """Return the measurement of a row, its histories, and from which time on they are judged.

    before: what was measured of the same counters before a rest. It is judged too, and shows more,
    unless requests of an earlier run may have affected it.
    """
    rate, limits = played[0].rate, bench.profile.limits
    known = limits.algorithm if bench.knows("limits.algorithm") else None
    told = told_algorithm(bench, rule)
    histories = histories_of(played, before)
    rested_ns = min(one.sent_ns for one in exchanges_of(played))
    for since_ns in (0, rested_ns) if before else (0,):
        used, since = histories, since_ns
        measured = measure(
            used, rate, bound_ns=limits.delay_bound_ns, told=told, known=known, since_ns=since
        )
        if measured.fault is None and measured.families:
            break
    if measured.fault is not None and len(histories) > 1 and is_counted_each(bench):
        # A second counter uses an address that other checks use as well.
        used = histories[:1]
        measured = measure(
            used, rate, bound_ns=limits.delay_bound_ns, told=told, known=known, since_ns=since
        )
    if measured.fault is None and measured.families and measured.refused:
        measured = with_sight(measured, used, told or known, since)
    return measured, used, since


def row_findings(
    bench: Bench, rule: Rule, played: Sequence[Played], before: Sequence[Played]
) -> Iterator[Finding]:
    """Yield the verdict on a row, what could not be decided, and its readings.

    before: what was measured of the same counters before a rest. Raises `Inconclusive` if the
    requests did not reach the limits, `Unsettled` if not only the row's rate explains them.
    """
    row, shown = ROWS[rule.id], evidence(played)
    measured, histories, since_ns = _row_measured(bench, rule, played, before)
    still = None if measured.fault is None else _still_blocked(played, before)
    if still is not None:
        yield bench.fails(rule.id, still, *shown)
        return
    if measured.fault is not None:
        _check_waits_are_seen(measured.rate, histories)
        _check_not_spaced(bench, row, histories, since_ns)
        _check_address_free(bench, rule, played)
        _check_key_free(bench, rule, before)
    nodes = None if measured.fault is None else counters_per_node([*played, *before])
    signature, fault = _counter_seen(bench, rule, played, before)
    if fault is not None and nodes is not None:
        # Where nodes count apart, what another one answers says nothing of whom a counter is for.
        signature, fault = Signature(), None
    if fault is not None:
        # What counts otherwise looks like a wrong number, too.
        probes = [one for burst in signature.bursts.values() for one in burst.exchanges[-1:]]
        yield bench.fails(rule.id, fault, *probes)
    if measured.fault is not None:
        yield bench.fails(rule.id, _fault(measured, histories, since_ns, nodes), *shown)
    if measured.fault is None and fault is None:
        if not (signature.tells or signature.is_held or signature.is_spaced):
            raise Unsettled(
                f"not decided what {rule.id} counts by: it admitted requests again while other "
                f"keys and addresses were tried; {_NEARER}",
                is_of_counter=True,
            )
        if measured.unseen:
            says = (
                f"not decided: {alternatives(measured.unseen)} would have looked the same "
                f"(resolution {measured.resolution}); {_way_out(row, measured)}"
            )
            yield bench.unsettled(rule.id, says, *shown)
        else:
            yield bench.passes(rule.id, _summary(measured, rule, signature), *shown)
    yield from _untold(bench, row, signature)
    yield from readings_of(bench, rule.id, rule, measured, signature)


def _still_blocked(played: Sequence[Played], before: Sequence[Played]) -> str | None:
    """Return what is wrong if keys are refused after a silence longer than their block may last.

    Refusals extend no block during a silence. No other client uses the keys, because their first
    requests were all admitted. LIM-IP does not refuse them either: that is so at two addresses, or
    another key at the same address is admitted.
    """
    rate = played[0].rate
    if not before or not rate.block_ns:
        return None
    shut: dict[Source, int] = {}
    free: set[Source] = set()
    for now, earlier in zip(counters_of(played), counters_of(before), strict=True):
        first, asked = now.bursts[0].exchanges, earlier.exchanges()
        if any(one.refused for one in earlier.bursts[0].exchanges):
            return None
        is_shut = bool(first) and all(one.refused for one in first)
        if is_shut and not any(one.refused for one in asked):
            return None
        silent_ns = _silence_before_refusal(sorted([*asked, *first], key=lambda one: one.sent_ns))
        if silent_ns > max(rate.window_ns, rate.block_ns):
            shut[asked[0].ask.source] = silent_ns
        if not is_shut:
            free |= {one.ask.source for one in first}
    if len(shut) < 2 and not free & set(shut):
        return None
    return (
        f"still refused after {max(shut.values()) / SECOND_NS:.0f} s without any request; the row "
        f"says {rate.says}"
    )


def _silence_before_refusal(exchanges: Sequence[Exchange]) -> int:
    """Return the longest time without a request that was followed by a refusal."""
    longest_ns = 0
    until_ns = exchanges[0].received_ns
    for one in exchanges:
        if one.refused:
            longest_ns = max(longest_ns, one.sent_ns - until_ns)
        until_ns = max(until_ns, one.received_ns)
    return longest_ns


def _row_measured(
    bench: Bench, rule: Rule, played: Sequence[Played], before: Sequence[Played]
) -> tuple[Measured, list[list[list[Sighting]]], int]:
    """Return what `measured_row` returns; raises `Inconclusive` if that allows no verdict."""
    rate = played[0].rate
    if any(each.is_warm for each in played):
        raise Unsettled(
            f"{rule.id} was refused from the first request on, so others use its keys; leave them "
            f"alone for {seconds(rate.window_ns + rate.block_ns)} and rerun"
        )
    answers = [x for part in histories_of(played) for cluster in part for x in cluster]
    if answers and all(one.outcome == "lost" for one in answers):
        raise Inconclusive(f"no request that tested {rule.id} was answered")
    measured, histories, since_ns = measured_row(bench, rule, played, before)
    if not measured.refused and measured.fault is None:
        raise Unsettled(
            f"{rule.id} was never exceeded: only {measured.admitted_requests} requests were "
            f"answered within {seconds(rate.window_ns)}, too few for a limit of "
            f"{rate.limit_requests}; {_NEARER}"
        )
    if not measured.families and measured.fault is None and counters_per_node([*played, *before]):
        # However coarse the bursts: that several counters let it in is certain.
        says = f"{measured.admitted_requests} admitted within {seconds(rate.window_ns)}"
        measured = dataclasses.replace(measured, fault=says)
    is_blind = measured.resolution_ns > rate.window_ns and not measured.delays
    if measured.fault is None and (is_blind or not measured.families):
        raise Unsettled(f"not decided: {measured.summary}; {_NEARER}")
    check_alike(bench, rule.id, measured)
    return measured, histories, since_ns


def _counter_seen(
    bench: Bench, rule: Rule, played: Sequence[Played], before: Sequence[Played]
) -> tuple[Signature, str | None]:
    """Return the signature that shows what a row counts by, and what is wrong with it.

    A block has two signatures: at its beginning and in its middle. A silent measurement has none;
    then the one from before the rest is used, which was found to be right.
    """
    limits = bench.profile.limits
    and_counter = limits.and_counter if bench.knows("limits.and_counter") else None
    own = next((each for each in played if each.signature.bursts), None)
    if own is not None:
        for signature, when in ((own.signature, ""), (own.middle, "in the middle of the block: ")):
            fault = signature_fault(rule, signature, and_counter)
            if fault is not None:
                _check_probes_free(bench, rule, signature)
                return signature, when + fault
    taken = [one for each in (*played, *before) for one in (each.signature, each.middle)]
    taken = [one for one in taken if one.bursts]
    return next((one for one in taken if one.tells), taken[0] if taken else Signature()), None


def _way_out(row: Row, measured: Measured) -> str:
    """Return what to do so that a row can be measured more precisely."""
    rate = measured.rate
    is_sharp = measured.resolution_ns <= rate.window_ns // rate.limit_requests
    return (_more_keys(row) if rate.block_ns else "") + (_AGAIN if is_sharp else _NEARER)


def _more_keys(row: Row) -> str:
    """Return the advice to add keys, where a row is asked for with any."""
    return "" if row.role is None else f'add [[keys]] role = "{row.role}", or '


def is_counted_each(bench: Bench) -> bool:
    """Whether addresses and keys are known to have separate counters (D-AND-COUNTER each)."""
    return bench.knows("limits.and_counter") and bench.profile.limits.and_counter == "each"


def _check_address_free(bench: Bench, rule: Rule, played: Sequence[Played]) -> None:
    """Raise `Inconclusive` if LIM-IP may have refused, for example where refused requests count."""
    says = _busy_address(bench, rule, {one.ask.source for one in exchanges_of(played)})
    if says is not None:
        raise Inconclusive(f"not decided: {says}")


def _check_probes_free(bench: Bench, rule: Rule, signature: Signature) -> None:
    """Raise `Unsettled` if another limit may have refused probes that the row must not refuse.

    Other checks may use the same address or the same other key, so that all of them together exceed
    LIM-IP or a row for all requests of a key.
    """
    refused = [
        one.ask
        for name in signature.bursts.keys() - signature.own
        if not name.startswith(CONTROL)
        for one in signature.exchanges(name)
        if signature.is_refused(one)
    ]
    says = _busy_address(bench, rule, {ask.source for ask in refused})
    own = {one.ask.key for one in signature.exchanges(CONTROL)}
    for label in sorted({ask.key for ask in refused if ask.key is not None}):
        says = says or _busy_key(bench, label, rule.id if label in own else None)
    if says is not None:
        raise Unsettled(f"not decided: {says}", is_of_counter=True)


def _busy_address(bench: Bench, rule: Rule, sources: Iterable[Source]) -> str | None:
    """Return why LIM-IP may have answered in a row's place, None if it did not or is that row."""
    of_ip = next((one for one in bench.limits if one.id == "LIM-IP" and not one.shadow), None)
    if of_ip is None or rule.id == "LIM-IP":
        return None
    exchanges = list(bench.session.exchanges.values())
    for source in sources:
        sent = [one for one in exchanges if one.ask.source == source]
        says = _busy(of_ip, sent, f"from {source}")
        if says is not None:
            return f"{says}; add sources"
    return None


def _check_key_free(bench: Bench, rule: Rule, before: Sequence[Played]) -> None:
    """Raise `Inconclusive` if a row for all requests of a key may have refused.

    before: the first measurement. If it shows that refused requests count, those of a second one
    may exceed such a row, for example LIM-LEGACY, whose window is a minute.
    """
    seen = [measured_row(bench, rule, [each])[0].families for each in before[:1]]
    counts = [family.counts_refused for families in seen for family in families]
    is_known = bench.knows("limits.count_refused") and bench.profile.limits.count_refused
    if not is_known and not (counts and all(counts)):
        return
    sent = list(bench.session.exchanges.values())
    labels = {one.ask.key for one in sent if one.check == bench.check.id}
    for label in sorted(one for one in labels if one is not None):
        says = _busy_key(bench, label, rule.id)
        if says is not None:
            raise Inconclusive(f"not decided: {says}, and refused ones count; rerun")


def _busy_key(bench: Bench, label: str, apart_from: str | None) -> str | None:
    """Return why a row for all requests of a key may have refused it, None if it did not."""
    exchanges = list(bench.session.exchanges.values())
    sent = [one for one in exchanges if one.ask.key == label]
    for rule in bench.limits:
        is_other = rule.id != apart_from and not rule.shadow
        says = _busy(rule, sent, f"with {label}")
        if says is not None and is_other and _is_for_all_of(bench, rule, label):
            return says
    return None


def _busy(rule: Rule, sent: Iterable[Exchange], by: str) -> str | None:
    """Return why a row may have refused requests, None if they were too few; by: what they share.

    They may all be in one counter of the row.
    """
    sent_ns = sorted(one.sent_ns for one in sent)
    inside = (bisect_left(sent_ns, at_ns + rule.window_ns) - n for n, at_ns in enumerate(sent_ns))
    most = max(inside, default=0)
    if most <= rule.limit_requests * 9 // 10:
        return None
    window = seconds(rule.window_ns)
    return f"{most} requests were sent {by} within {window}, so {rule.id} may have refused them"


def _is_for_all_of(bench: Bench, rule: Rule, label: str | None) -> bool:
    """Whether a row counts every request of one key."""
    key = bench.target.key_labels.get(label or "")
    match = rule.match
    if key is None or match.resource or match.proxy or "key" not in rule.counter:
        return False
    tenant = bench.target.tenant_of(key)
    return (
        match.tenant in {None, tenant.kind}
        and match.application in {None, application_kind(key)}
        and match.legacy in {None, key.role == "legacy"}
    )


def _check_waits_are_seen(rate: Rate, histories: Sequence[Sequence[Cluster]]) -> None:
    """Raise `Inconclusive` if waits decide, and are too short to be told from pauses.

    A wait is told from a server that pauses where it is longer than `LATE_NS`. In a window that is
    not much longer some waits are seen and others are not, so what was let in when is uncertain.
    """
    seen = [one for history in histories for cluster in history for one in cluster]
    if any(one.outcome == "refused" for one in seen) or rate.window_ns > 2 * LATE_NS:
        return
    if delays(histories):
        raise Inconclusive(
            "not decided: requests beyond the rate wait instead of being refused, and in a window "
            f"of {seconds(rate.window_ns)} waits look like pauses of the server; {_NEARER}"
        )


def _check_not_spaced(
    bench: Bench, row: Row, histories: Sequence[Sequence[Cluster]], since_ns: int
) -> None:
    """Raise `Inconclusive` if another row that spaces requests strictly may have refused.

    If rows do so (D-ALGORITHM gcra with burst 1), the row with the longest spacing refuses requests
    sent together. If LIM-IP does so too, any two together exceed it, and its block refuses
    everything.
    """
    block_ns = next((rule.block_ns or 0 for rule in bench.limits if rule.id == "LIM-IP"), 0)
    late = [
        [cluster for cluster in history if cluster[0].sent_ns >= since_ns] for history in histories
    ]
    seen = [one for cluster in late[0] for one in cluster]
    refused_ns = min((one.sent_ns for one in seen if one.outcome == "refused"), default=0)
    admitted = [one.sent_ns for one in seen if one.outcome == "admitted"]
    early = sum(sent_ns <= refused_ns for sent_ns in admitted)
    inside = sum(0 < sent_ns - refused_ns < block_ns * 9 // 10 for sent_ns in admitted)
    if row.rule_id != "LIM-IP" and not admitted:
        raise Inconclusive(
            "not decided: refused from the first request on, after a rest: by a longer block of "
            f"{row.rule_id}, or by one of LIM-IP that other requests have begun; {_more_keys(row)}"
            "leave the target alone for a few minutes and rerun"
        )
    if row.rule_id != "LIM-IP" and refused_ns and max(early, inside) <= len(bench.sources):
        raise Inconclusive(
            "not decided: refused from the second request on, for as long as LIM-IP blocks; the "
            "deployment seems to space requests, so two at once block the whole address"
        )
    is_spaced = bench.knows("limits.burst_requests") and bench.profile.limits.burst_requests == 1
    first = [one.outcome for history in late if history for one in history[0]]
    if is_spaced and bench.limits[row.rule_id].block_ns and "refused" in first:
        raise Inconclusive(
            f"not decided: the row of this resource spaces requests, which hides {row.rule_id}"
        )


def told_algorithm(bench: Bench, rule: Rule) -> Algorithm | None:
    """Return the algorithm that the operator stated, if any; then no other is accepted."""
    if rule.algorithm is not None:
        return rule.algorithm
    told = bench.target.profile is not None and bench.knows("limits.algorithm")
    return bench.profile.limits.algorithm if told else None


def check_alike(bench: Bench, rule_id: str, measured: Measured) -> None:
    """Raise `Inconclusive` if only another algorithm than that of the other rows explains a row.

    A window of a minute with a block shows too little to tell a sliding counter at an unlucky phase
    from a log with slightly wrong numbers; what the shorter rows have shown by then decides.
    """
    if not bench.knows("limits.algorithm") or not measured.families or measured.fault:
        return
    algorithm = bench.profile.limits.algorithm
    same = {algorithm, "token-bucket"} if algorithm == "gcra" else {algorithm}
    if not same & {family.algorithm for family in measured.families}:
        raise Unsettled(
            f"not decided: {rule_id} looks like {measured.algorithms} and other rows like "
            f"{algorithm}; as {algorithm} its rate or block would be wrong; name the algorithm in "
            "the target's profile to have it judged"
        )


def _fault(
    measured: Measured, histories: Sequence[Sequence[Cluster]], since_ns: int, nodes: str | None
) -> str:
    guess, rate = nodes, measured.rate
    if guess is None and measured.refused:
        guess = explain(histories, rate, since_ns)
    here = f"; {guess}" if guess else ""
    says = "" if rate.says in str(measured.fault) else f"; the row says {rate.says}"
    return f"{measured.fault}{here}{says}"


def _summary(measured: Measured, rule: Rule, signature: Signature) -> str:
    by = f"counted by {COUNTER_KINDS[rule.counter].description}"
    if signature.is_held:
        by = "counter kind unknown: delayed requests hold up every counter they share"
    elif not signature.tells:
        by = "counter kind unknown: requests are spaced, so two at once are refused in any counter"
    masked = clause(rule.id).masked if rule.id in SEED_SECTIONS else None
    return f"{measured.summary}; {by}" + (f"; not observable: {masked}" if masked else "")


def _untold(bench: Bench, row: Row, signature: Signature) -> Iterator[Finding]:
    """Say what the target's keys and addresses cannot show about the counter."""
    if not signature.tells:
        return
    for what, probe, missing in (
        ("address", "other address", "a second address; add sources"),
        ("key", "other key", f'a second key; add [[keys]] role = "{row.other_role}"'),
    ):
        if probe not in signature.bursts:
            says = f"whether the {what} counts is not shown: needs {missing}"
            yield bench.finding(row.rule_id, Verdict.SKIPPED, says)


def readings_of(
    bench: Bench, clause_id: str, rule: Rule, measured: Measured, signature: Signature | None = None
) -> Iterator[Finding]:
    """Yield the choices that the measurement shows for certain: readings, never faults."""
    if measured.fault is not None:
        return
    if bench.knows("limits.algorithm"):
        # Where this row leaves a choice open, what other rows have shown may be assumed.
        algorithm = bench.profile.limits.algorithm
        alike = tuple(one for one in measured.families if one.algorithm == algorithm)
        measured = dataclasses.replace(measured, families=alike or measured.families)
    for field, value in _choices(rule, measured, signature or Signature()):
        says = f"reading: {field} = {value!r}"
        yield bench.finding(clause_id, Verdict.PASS, says, reading=(f"limits.{field}", value))


def _choices(rule: Rule, measured: Measured, signature: Signature) -> Iterator[tuple[str, object]]:
    """Yield the choices on which all fitting families agree, and those the signature shows."""
    is_light = measured.rate.limit_requests < HEAVY_REQUESTS
    if is_light and measured.refused and measured.tells_more:
        # A burst of thousands takes too long to show more than whether the row is sound.
        yield from (
            _block_choices(measured) if measured.rate.block_ns else _throttle_choices(measured)
        )
    if not signature.tells:
        return
    one_token = signature.refused("one token")
    if one_token is not None:
        yield "get_tokens", "prefix" if one_token else "list"
    with_key = signature.refused("with an API key")
    if with_key is not None:
        yield "proxy_rules", "all" if with_key else "unkeyed"
    changed = [signature.refused(name) for name in _CHANGES]
    told = None not in changed and not signature.refused(BOTH_OTHER)
    if rule.counter == "ip+key" and told and len(set(changed)) == 1:
        yield "and_counter", "each" if changed[0] else "pair"


def _bound_ns(measured: Measured) -> int | None:
    """Return the bound of delays, rounded, if it is known closely enough."""
    if measured.bound_ns is None:
        return None
    low_ns, high_ns = measured.bound_ns
    if not 0 <= high_ns - low_ns <= _BOUND_STEP_NS:
        return None
    unsure_ns = min(measured.resolution_ns, _BOUND_STEP_NS)
    middle_ns = (low_ns + high_ns) // 2
    whole_ns = (middle_ns + SECOND_NS // 2) // SECOND_NS * SECOND_NS
    if low_ns - unsure_ns <= whole_ns <= high_ns + unsure_ns:
        return whole_ns
    return (middle_ns + _TENTH_NS // 2) // _TENTH_NS * _TENTH_NS


def _throttle_choices(measured: Measured) -> Iterator[tuple[str, object]]:
    families = measured.families
    if measured.delays:
        yield "throttle", "delay"
        bound_ns = _bound_ns(measured)
        if bound_ns is not None:
            yield "delay_bound_ns", bound_ns
    elif measured.is_clear and measured.rate.window_ns <= _SHORT_NS:
        # Where waits would be too long, a throttle that slows refuses too.
        yield "throttle", "refuse"
    algorithms = {family.algorithm for family in families}
    if len(algorithms) == 1:
        yield "algorithm", next(iter(algorithms))
        anchors = {family.anchored for family in families}
        if algorithms == {"fixed-window"} and len(anchors) == 1:
            yield "fixed_anchor", "first" if anchors == {True} else "aligned"
        bursts = {family.burst_requests for family in families}
        if len(bursts) == 1 and bursts != {None}:
            yield "burst_requests", next(iter(bursts))
    counts = {family.counts_refused for family in families}
    if len(counts) == 1:
        yield "count_refused", next(iter(counts))


def _block_choices(measured: Measured) -> Iterator[tuple[str, object]]:
    extends = {family.extends for family in measured.families}
    if len(extends) == 1:
        yield "block_extends", next(iter(extends))
    clears = {family.clears for family in measured.families}
    if len(clears) == 1:
        yield "block_reset", "clear" if clears == {True} else "keep"
