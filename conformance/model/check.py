"""The check of the reference model: drawn sequences against the deployment and the reference."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from conformance.context.answers import is_uuid, records_in
from conformance.context.check import Inconclusive, check, missing_need
from conformance.context.context import NO_ACCESS, CheckContext
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import parsed_or_none
from conformance.model.blame import shape_clause
from conformance.model.generator import OPEN_FIELDS, Offer
from conformance.model.readings import Learned, Readings
from conformance.model.reference import Reference
from conformance.model.scripts import sees_creation
from conformance.model.search import Case, SearchOutcome, SequenceSearch, ordered
from conformance.target import ROLES
from conformance.wire.transport import VirtualTransport
from engine.clauses import CLAUSES

_SECOND_NS: Final = 1_000_000_000
_LIVE_NS: Final = 20 * _SECOND_NS
_STEPS: Final = 1_200
_UNSEEN: Final = (
    "whether tokens are created cannot be seen: nothing shows whether a token exists; provide a "
    "field that turns deduplication on (dedup.flag_name in the profile), or a key of role dedup"
)
_NO_DETOKENIZE: Final = (
    "detokenizing, whose method and path are not specified, is not offered as it is assumed; if it "
    "is offered otherwise, describe it in [requests.detokenize]"
)
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
BESIDE: Final = (*("AUTH-HEADER", "QUO-CVC", "QUO-INTENT", "TOK-LIMIT", "QUO-TOKENIZE"),)
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
    """Randomly generated sequences of requests are answered as the reference answers them."""
    ctx.key("private_prod")
    lane = ctx.lane("model")
    offer = await _usable(ctx, offer_of(ctx))
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
        has_uuids=any(map(_has_uuid, readings.learned)),
    )
    outcome = await search.run()
    learned = [
        ctx.reads(reading.clause, reading.setting, reading.value, *reading.exchanges)
        for reading in readings.learned
    ]
    statuses = {
        exchange.status
        for reading in readings.learned
        for exchange in reading.exchanges
        if exchange.ok and exchange.ask.path == ctx.target.shape("tokenize").path
    }
    if len(statuses) == 1 and statuses <= {200, 201}:
        evidence = readings.learned[0].exchanges[:1]
        learned.append(ctx.reads("TOK-OBJECT", "http.tokenize_status", statuses.pop(), *evidence))
    if any(reading.setting == "tokens.container_form" for reading in readings.learned):
        outcome.covered["TOK-CONTAINER"] += 1
    return [
        *learned,
        *(ctx.fails(clause, rule, *evidence) for clause, rule, evidence in readings.faults),
        *(ctx.unsettled(clause, why, *evidence) for clause, why, evidence in readings.undecided),
        *_left_out(ctx, readings),
        *findings_of(ctx, outcome, readings.offer),
    ]


async def _usable(ctx: CheckContext, offer: Offer) -> Offer:
    """Leave out roles whose key has no access; raises `Inconclusive` without the main one."""
    labels = {role: ctx.keys(role)[0] for role in sorted(offer.roles)}
    reference = Reference(ctx.target, offer.profile)
    closed = {role for role, label in labels.items() if reference.key_text(label) is None}
    for role in sorted(offer.roles - closed):
        may = ctx.target.may(ctx.keys(role)[0], "token:create")
        if may and role != "private_one_container":
            exchange = await ctx.client.tokenize([ctx.value(f"usable {role}")], ctx.keys(role)[0])
            if exchange.status in NO_ACCESS:
                closed.add(role)
    if "private_prod" in closed:
        raise Inconclusive(f"no access to tokenize: {exchange.status}")
    return dataclasses.replace(offer, roles=offer.roles - closed)


def _has_uuid(reading: Learned) -> bool:
    bodies = (parsed_or_none(exchange.content) for exchange in reading.exchanges if exchange.ok)
    return any(is_uuid(record["id"]) for body in bodies for record in records_in(body))


def _left_out(ctx: CheckContext, readings: Readings) -> Iterator[Finding]:
    if readings.left_out:
        names = ", ".join(sorted(readings.left_out))
        message = f"not as assumed, and so not part of the sequences: {names}"
        yield ctx.informs("TOK-OBJECT", message)


def _is_virtual(ctx: CheckContext) -> bool:
    """Whether waiting costs no time; recorded, since a judgement from the history must know."""
    is_virtual = isinstance(ctx.transport, VirtualTransport)
    return ctx.make("virtual time", lambda: str(is_virtual)) == "True"


def _is_untold(ctx: CheckContext, role: str) -> bool:
    """Whether the target does not say if keys of a role may create tokens."""
    may = ctx.target.may(ctx.keys(role)[0], "token:create")
    return may is None and role != "private_one_container"


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
    narrow = ctx.keys("private_one_container")
    return Offer(
        roles=roles,
        operations=frozenset(allowed),
        mapped=frozenset(target.requests or ()),
        containers=target.containers,
        profile=ctx.session.given_profile,
        can_encrypt=target.encryption_jwk is not None,
        is_virtual=_is_virtual(ctx),
        untold=frozenset(role for role in roles if _is_untold(ctx, role)),
        fields=OPEN_FIELDS - ({"flag"} if "deduplication" in target.always else set()),
        narrow=target.container_of(narrow[0]) if narrow else "/pci/",
        year=ctx.year,
    )


def findings_of(ctx: CheckContext, outcome: SearchOutcome, offer: Offer) -> Iterator[Finding]:
    """Yield a failure for each clause that differs, and a pass for each that was borne out.

    The clause with the most trustworthy blame is the cause; the others follow from it.
    """
    cases = ordered(_together(outcome.cases))
    failed: dict[str, Case] = {}
    for case in cases:
        failed.setdefault(case.difference.clause, case)
    root = next(iter(failed), None)
    for clause, case in failed.items():
        finding = ctx.fails(clause, _message(case), *case.exchanges)
        yield finding if clause == root else dataclasses.replace(finding, follows=root)
    for finding in _sporadic(ctx, outcome, failed, root):
        root = root or finding.clause
        yield finding
    for clause in JUDGED:
        if clause not in failed:
            yield from _unbroken(ctx, outcome, offer, clause, root)


def _unbroken(
    ctx: CheckContext, outcome: SearchOutcome, offer: Offer, clause: str, root: str | None
) -> Iterator[Finding]:
    """Yield what the sequences have shown of a clause that no answer breaks."""
    if clause == "TOK-ATOMIC" and not sees_creation(offer):
        yield ctx.finding(clause, Verdict.NOT_OBSERVABLE, _UNSEEN, *outcome.last)
    elif outcome.covered[clause]:
        message = f"{outcome.covered[clause]} answers are those of the reference"
        yield ctx.passes(clause, message, *outcome.last)
    elif (why := missing_need(_NEEDS.get(clause, ()), ctx.target)) is not None:
        yield ctx.finding(clause, Verdict.SKIPPED, why)
    elif clause == "QUO-DETOKENIZE" and "detokenize" not in offer.operations:
        finding = ctx.finding(clause, Verdict.SKIPPED, _NO_DETOKENIZE)
        yield dataclasses.replace(finding, is_absent=True)
    elif clause not in BESIDE:
        yield ctx.unsettled(clause, _uncovered(outcome, root))


def _sporadic(
    ctx: CheckContext, outcome: SearchOutcome, failed: dict[str, Case], root: str | None
) -> Iterator[Finding]:
    """Yield a failure for each clause that differs in some answers only, and add its case."""
    counts = Counter(map(_sporadic_clause, outcome.sporadic))
    for case in ordered(outcome.sporadic):
        clause = _sporadic_clause(case)
        if clause in failed:
            continue
        failed[clause] = case
        message = (
            f"{case.difference.message}: in {counts[clause]} of {outcome.sequences} sequences, "
            "and right when sent again"
        )
        finding = ctx.fails(clause, message, *case.exchanges[-1:], symptoms=("once",))
        yield dataclasses.replace(finding, follows=root)
        root = root or clause


def _together(cases: Sequence[Case]) -> list[Case]:
    """Return cases with the clause that several of them together show.

    A record that is redacted for nobody breaks AUTH-READ; where one type, one field, or a reader's
    record is redacted, the permission is asked for. Where any `type` is accepted, so is one in
    capitals.
    """
    by_clause: dict[str, list[Case]] = {}
    for case in cases:
        by_clause.setdefault(case.difference.clause, []).append(case)
    unredacted, hidden = by_clause.get("REC-DEDUP-REDACT", []), by_clause.get("AUTH-READ", [])
    is_for_nobody = {case.difference.place for case in unredacted} == {"card", "token"}
    if unredacted and (hidden or is_for_nobody):
        for case in (*unredacted, *hidden):
            case.difference.clause = "REC-DEDUP-REDACT" if hidden else "AUTH-READ"
    if "TOK-TYPES" in by_clause:
        for case in by_clause.get("TOK-OBJECT", ()):
            if case.difference.kind == "status":
                case.difference.clause = "TOK-TYPES"
    return list(cases)


def _sporadic_clause(case: Case) -> str:
    """Return the clause of a sporadic difference: no field explains a refusal that is rare."""
    ask = case.exchanges[-1].ask
    body = parsed_or_none(ask.body) if isinstance(ask.body, bytes) else ask.body
    is_tokenize = case.steps[-1].operation == "tokenize"
    if case.difference.kind == "status" and is_tokenize and isinstance(body, dict | list):
        return shape_clause(body)
    return case.difference.clause


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
