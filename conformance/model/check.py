"""The check of the reference model: drawn sequences against the deployment and the reference."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Final

from conformance.context.check import check, missing_need
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding, Verdict
from conformance.model.generator import OPEN_FIELDS, Offer
from conformance.model.readings import Readings
from conformance.model.search import Case, SearchOutcome, SequenceSearch, ordered
from conformance.target import ROLES
from conformance.wire.transport import VirtualTransport
from engine.clauses import CLAUSES

_SECOND_NS: Final = 1_000_000_000
_LIVE_NS: Final = 20 * _SECOND_NS
_STEPS: Final = 1_200
_RESERVE: Final = 400
"""Requests that are left for reproducing and shrinking."""
_OPERATIONS: Final = (
    *("create", "get", "list", "search", "patch", "delete", "detokenize"),
    *("create_token_intent", "list_logs", "create_application", "create_application_key"),
)
JUDGED: Final = tuple(
    clause.id
    for clause in CLAUSES
    if clause.unobservable is None and clause.id.startswith(("TOK-", "REC-", "AUTH-", "QUO-"))
    if clause.id not in {"AUTH-KINDS", "AUTH-LEGACY", "QUO-RATE", "QUO-LOG", "QUO-TENANT"}
)
"""The clauses that a difference of two answers can name."""
BESIDE: Final = JUDGED
"""Those of them that other checks judge as a whole."""
_NEEDS: Final[Mapping[str, tuple[str, ...]]] = {
    "TOK-DEDUP": ("dedup",),
    "REC-DEDUP-REDACT": ("dedup", "dedup_reader"),
    "AUTH-READ": ("dedup", "dedup_reader"),
    "AUTH-CREATE": ("private_no_permission",),
    "TOK-ENCRYPTED": ("encryption_jwk",),
    "QUO-DETOKENIZE": ("private_reader",),
}
"""What sequences need of the target to show a clause."""


@check(
    "model.sequences",
    *JUDGED,
    accepts="the answers of the reference, up to identifiers, times and what is left open",
    requests=_STEPS // 2,
    requests_most=_STEPS + _RESERVE,
    beside=BESIDE,
    clause_needs=_NEEDS,
)
async def sequences(ctx: CheckContext) -> list[Finding]:
    """Drawn sequences of requests are answered as the reference answers them."""
    ctx.key("private_prod")
    lane = ctx.lane("model")
    offer = offer_of(ctx)
    labels = {role: ctx.key(role) for role in sorted(offer.roles)}
    readings = Readings(ctx, lane, offer, labels)
    await readings.run()
    search = SequenceSearch(
        ctx,
        lane,
        readings.profile,
        readings.offer,
        most_steps=_STEPS,
        until_ns=ctx.transport.now_ns + (1 << 60 if offer.is_virtual else _LIVE_NS),
    )
    outcome = await search.run()
    learned = [
        ctx.reads(reading.clause, reading.setting, reading.value, *reading.exchanges)
        for reading in readings.learned
    ]
    crashed = [
        ctx.fails(
            question.clause,
            f"{question.setting}: must be accepted or refused with a 4xx, got {exchange.status}",
            exchange,
        )
        for question, exchange in readings.crashes
    ]
    return [*learned, *crashed, *_left_out(ctx, readings), *findings_of(ctx, outcome)]


def _left_out(ctx: CheckContext, readings: Readings) -> Iterator[Finding]:
    if readings.left_out:
        names = ", ".join(sorted(readings.left_out))
        message = f"not as assumed, and so not part of the sequences: {names}"
        yield ctx.informs("TOK-OBJECT", message)


def _is_virtual(ctx: CheckContext) -> bool:
    """Whether waiting costs no time; recorded, since a judgement from the history must know."""
    is_virtual = isinstance(ctx.transport, VirtualTransport)
    return ctx.make("virtual time", lambda: str(is_virtual)) == "True"


def offer_of(ctx: CheckContext) -> Offer:
    """Return what sequences may use here."""
    target = ctx.target
    roles = frozenset(role for role in ROLES if ctx.keys(role) and role not in ctx.session.doubts)
    roles -= {"proxy_key", "custom_hostname", "slow_destination"}
    if target.default_containers:
        roles -= {"private_one_container"}  # where its container stands among them is not told
    allowed = [
        name
        for name in _OPERATIONS
        if ctx.session.forbids(target.shape(name).method, target.shape(name).path) is None
        and not (name == "patch" and target.fields)  # a patch has no `type` to translate by
    ]
    one = ctx.keys("private_one_container")
    return Offer(
        roles=roles,
        operations=frozenset(allowed),
        mapped=frozenset(target.requests or ()),
        containers=target.containers,
        profile=ctx.session.given_profile,
        can_encrypt=target.encryption_jwk is not None,
        is_virtual=_is_virtual(ctx),
        fields=OPEN_FIELDS - ({"flag"} if "deduplication" in target.always else set()),
        narrow=target.container_of(one[0]) if one else "/pci/",
    )


def findings_of(ctx: CheckContext, outcome: SearchOutcome) -> Iterator[Finding]:
    """Yield a failure for each clause that differs, and a pass for each that was borne out.

    The clause with the most trustworthy blame is the cause; the others follow from it.
    """
    cases = ordered(outcome.cases)
    failed: dict[str, Case] = {}
    for case in cases:
        failed.setdefault(case.difference.clause, case)
    root = next(iter(failed), None)
    for clause, case in failed.items():
        finding = ctx.fails(clause, _message(case), *case.exchanges)
        yield finding if clause == root else dataclasses.replace(finding, follows=root)
    for clause in JUDGED:
        if clause in failed:
            continue
        if outcome.covered[clause]:
            message = f"{outcome.covered[clause]} answers are those of the reference"
            yield ctx.passes(clause, message, *outcome.last)
        elif (why := missing_need(_NEEDS.get(clause, ()), ctx.target)) is not None:
            yield ctx.finding(clause, Verdict.SKIPPED, why)
        elif clause not in BESIDE:
            yield ctx.unsettled(clause, _uncovered(outcome, root))


def _uncovered(outcome: SearchOutcome, root: str | None) -> str:
    """Return why no answer has shown a clause."""
    if root is not None:
        return f"no sequence has shown it before those that break {root}"
    if outcome.why_ended is not None:
        return f"no sequence has shown it: {outcome.why_ended}"
    return f"none of {outcome.sequences} sequences has shown it; run again with another seed"


def _message(case: Case) -> str:
    count = len(case.steps)
    return f"{case.difference.message} (a sequence of {count} step{'s' * (count > 1)})"
