"""Section 8.8 and rule 4 of 4.1: the quotas of a tenant.

Each tenant has its own quotas. A record is gone when its retention has expired. The Tokenize Limit
and the Detokenize Limit are exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable
from typing import Final

from conformance.context.answers import (
    elements,
    is_refused,
    is_uuid,
    member_of,
    parts,
    text_of,
)
from conformance.context.check import check
from conformance.context.context import CheckContext, Lane
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import Exchange, parsed_or_none
from engine.files import format_duration
from engine.messages import Json
from engine.tokens.strict_json import dumps

_SECOND_NS: Final = 1_000_000_000
_LONGEST_NS: Final = 60 * _SECOND_NS
_CLOCK_SLACK_NS: Final = 50_000_000
_RETENTION: Final = "its retention has expired"
_ROLES: Final = ("private_prod", "private_test", "dedup", "short")


# --- a tenant's own -------------------------------------------------------------------------------


@check(
    "quotas.tenants",
    "QUO-TENANT",
    accepts="each tenant is limited by its own quota: the default, or what the target states",
    requests=14,
)
async def tenants(ctx: CheckContext) -> list[Finding]:
    """Each tenant has its own Tokenize Limit, the default unless the operator changed it."""
    findings: list[Finding] = []
    compared: set[str | None] = set()
    for role in _ROLES:
        tenant = ctx.target.key_labels[ctx.key(role)].tenant if ctx.keys(role) else None
        if not ctx.keys(role) or tenant in compared:
            continue
        compared.add(tenant)
        key = ctx.key(role)
        await ctx.ready(key, role)
        most = ctx.quota("Tokenize Limit", key)
        values = _values(ctx, role, 2 * most + 1)
        below = await ctx.client.tokenize(values[:most], key)
        findings.append(ctx.ok_or_unsettled("QUO-TENANT", f"{role}: {most} tokens", below))
        above = await ctx.over_limit(values[most:], key)
        what = f"{role}: {most + 1} tokens"
        findings.append(ctx.refusal("QUO-TENANT", what, above, is_quota=True))
    return findings


@check(
    "quotas.shown",
    "QUO-TENANT",
    accepts="the quotas that the target states, otherwise the defaults; or no such endpoint",
    roles=("management",),
    requests=1,
    beside=("QUO-TENANT",),
)
async def quotas_shown(ctx: CheckContext) -> list[Finding]:
    """The tenant's own record shows its quotas, if the deployment offers it."""
    key = ctx.key("management")
    exchange = await ctx.client.call("get_tenant", key=key)
    quotas = member_of(exchange, "quotas")
    if not isinstance(quotas, dict):
        message = f"no answer shows the quotas: {exchange.status}"
        return [ctx.informs("QUO-TENANT", message, exchange)]
    tenant = ctx.target.tenant_of(ctx.target.key_labels[key])
    findings = []
    for name, value in quotas.items():
        try:
            due = tenant.quota(name)
        except KeyError:
            continue
        is_count = name in {"Tokenize Limit", "Detokenize Limit"}
        if not is_count and isinstance(due, int) and isinstance(value, int | float):
            due = due // _SECOND_NS
        rule = f"{name} must be {due}, not {value}; or state this in [[tenants]] quotas"
        seen = f"{name} = {value}"
        findings.append(ctx.judges("QUO-TENANT", value == due, seen, rule, exchange))
    return findings


# --- retention ------------------------------------------------------------------------------------


_PATCHED: Final = "a cvc that PATCH has replaced"
_CHANGED: Final = "a log entry of a read, a change or a deletion"
_OF_CARD: Final = "a card's token intent"
_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_Look = Callable[[Lane, str], Awaitable[tuple[bool | None, Exchange]]]
"""Returns whether what was created is readable, None if that is unknown, and the exchange."""


async def _cvc(lane: Lane, made_id: str) -> tuple[bool | None, Exchange]:
    body: Json = {"value": f"{{{{ {made_id} }}}}"}
    exchange = await lane.call("detokenize", {"id": made_id}, body=body)
    data = member_of(exchange, "value")
    if not isinstance(data, dict) or "number" not in data:
        return None, exchange  # the card itself must stay readable, before and after
    return "cvc" in data, exchange


async def _intent(lane: Lane, made_id: str) -> tuple[bool | None, Exchange]:
    exchange = await lane.call("get_token_intent", {"id": made_id})
    if exchange.ok:
        return True, exchange
    return (False if is_refused(exchange) else None), exchange


async def _log(lane: Lane, made_id: str) -> tuple[bool | None, Exchange]:
    exchange = await lane.call("list_logs", query=f"?entity_id={made_id}")
    entries = member_of(exchange, "data")
    return (bool(entries) if isinstance(entries, list) else None), exchange


_KEPT: Final[tuple[tuple[str, str, str, str, _Look], ...]] = (
    ("QUO-CVC", "CVC Retention", "a cvc", "tokenize", _cvc),
    ("QUO-CVC", "CVC Retention", _PATCHED, "tokenize", _cvc),
    ("QUO-INTENT", "Token Intent Retention", "a token intent", "create_token_intent", _intent),
    ("QUO-INTENT", "Token Intent Retention", _OF_CARD, "create_token_intent", _intent),
    ("QUO-LOG", "Log Retention", "a log entry", "tokenize", _log),
    ("QUO-LOG", "Log Retention", _CHANGED, "tokenize", _log),
)
"""Clause, quota, what it retains, the operation that creates it, and how to look for it."""


async def _create(
    ctx: CheckContext, lane: Lane, clause: str, what: str, operation: str
) -> tuple[Exchange, str | None]:
    """Create what is retained; returns the exchange that starts its retention, and its id."""
    make = ctx.card if clause == "QUO-CVC" or what == _OF_CARD else ctx.token
    asked = make(f"kept {what}")
    body = None if operation == "tokenize" else asked
    made = await lane.call(operation, {"value": asked}, body=body)
    made_id = text_of(made, "id")
    if what == _PATCHED and made_id is not None:
        change = dumps({"data": {"cvc": "842"}})
        patched = await lane.call("patch", {"id": made_id}, body=change, headers=_MERGE_PATCH)
        made = patched if patched.ok else made  # the shape of PATCH is assumed
    if what == _CHANGED and made_id is not None:
        for name in ("detokenize", "patch", "delete"):
            headers = _MERGE_PATCH if name == "patch" else {}
            answer = await lane.call(name, {"id": made_id, "value": "changed"}, headers=headers)
            made = answer if answer.ok else made
    return made, made_id


async def _retained(
    ctx: CheckContext, clause: str, name: str, what: str, operation: str, look: _Look
) -> list[Finding]:
    """Create something that a tenant retains; read it before and after its retention expires."""
    lane = ctx.lane(what, key=ctx.key("short"))
    retained_ns = ctx.quota(name, ctx.key("short"))
    if retained_ns > _LONGEST_NS:
        message = (
            f"the tenant of role short has a {name} of "
            f"{retained_ns // _SECOND_NS} s; set it to a few, in [[tenants]] too"
        )
        return [ctx.finding(clause, Verdict.SKIPPED, message)]
    made, made_id = await _create(ctx, lane, clause, what, operation)
    if made_id is None:
        return [_unsaid(ctx, clause, f"{what} could not be created, got {made.status}", made)]
    if look is _log and not is_uuid(made_id):
        message = f"{what} cannot be looked up by an id that is no UUID"
        return [_unsaid(ctx, clause, message, made)]
    findings: list[Finding] = []
    for part in (0, 9):
        await lane.sleep_until_ns(made.received_ns + part * retained_ns // 10, _RETENTION)
        there, exchange = await look(lane, made_id)
        if exchange.received_ns >= made.sent_ns + retained_ns:
            continue  # too late to judge: the retention may have expired
        if there is None:
            message = f"{what} cannot be looked up, got {exchange.status}"
            return [_unsaid(ctx, clause, message, made, exchange)]
        message = f"{what} must be readable until its {name} has expired"
        findings.append(ctx.rule(clause, message, made, exchange, is_so=there))
        if not there:
            return findings
    if not findings:
        message = f"answers took longer than the {name} of {format_duration(retained_ns)}"
        return [ctx.unsettled(clause, message, made)]
    await lane.sleep_until_ns(made.received_ns + retained_ns + _CLOCK_SLACK_NS, _RETENTION)
    there, exchange = await look(lane, made_id)
    if there is None:
        message = f"{what} cannot be looked up after its {name}, got {exchange.status}"
        return [*findings, ctx.unsettled(clause, message, made, exchange)]
    message = f"{what} must not be readable after its {name}"
    return [*findings, ctx.rule(clause, message, made, exchange, is_so=not there)]


def _card_requests(ctx: CheckContext) -> list[tuple[str, Json]]:
    """Return operations and bodies that create cards in several ways; some may be refused."""
    named, third, bare, indexed, again, alone = (ctx.card(f"way {n}") for n in range(6))
    short = ctx.card("of 15 digits", 15)
    tokens, number = ctx.profile.tokens, "{{ data.number }}"
    named |= {"metadata": {"a": "b"}, **ctx.container_of(tokens.container_default_card)}
    short["data"]["cvc"] = "7316"
    third["data"]["expiration_year"] = ctx.year
    bare["data"] = {name: bare["data"][name] for name in ("number", "cvc")}
    indexed |= {"search_indexes": [number], "fingerprint_expression": number}
    bodies: list[Json] = [{"a": {"b": [named, short]}, "c": third}, bare, indexed, [again]]
    bodies.append({**again, ctx.profile.dedup.flag_name: True})
    return [*(("tokenize", body) for body in bodies), ("create", alone)]


async def _by_path(ctx: CheckContext) -> list[Finding]:
    """Create cards in several ways, change one, read all: then no cvc must be readable."""
    name, clause = "CVC Retention", "QUO-CVC"
    key = ctx.keys("short")[-1]  # not that of the others: its rate is low
    lane = ctx.lane("ways", key=key)
    retained_ns = ctx.quota(name, key)
    if retained_ns > _LONGEST_NS:
        return []  # the cvc that is alone says so
    requests = _card_requests(ctx)
    made = [
        await lane.call(name, {"value": body}, body=None if name == "tokenize" else body)
        for name, body in requests
    ]
    answers = [
        answer
        for (_, body), exchange in zip(requests, made, strict=True)
        if exchange.ok
        for _, answer in elements(body, parsed_or_none(exchange.content))
        if isinstance(answer, dict)
    ]
    ids = list(dict.fromkeys(a["id"] for a in answers if isinstance(a.get("id"), str)))
    if not ids:
        return []
    patch = {"id": ids[0], "value": "changed"}
    last = await lane.call("patch", patch, headers=_MERGE_PATCH)
    most = ctx.quota("Detokenize Limit", key)

    async def read() -> list[Exchange]:
        groups = [ids[first : first + most] for first in range(0, len(ids), most)]
        bodies: list[Json] = [
            {made_id: f"{{{{ {made_id} }}}}" for made_id in group} for group in groups
        ]
        for group in groups:  # an expression may name the token's kind too
            bodies.append([f"{{{{ {made_id} }}}}" for made_id in group])
            bodies.append({made_id: f"{{{{ token: {made_id} }}}}" for made_id in group})
        return [await lane.call("detokenize", {"id": ids[0]}, body=body) for body in bodies]

    await read()
    await lane.sleep_until_ns(last.received_ns + retained_ns + _CLOCK_SLACK_NS, _RETENTION)
    after = await read()
    wrong = [exchange for exchange in after[: -(-len(ids) // most)] if not exchange.ok]
    if wrong:
        message = f"several cards cannot be read at once: {wrong[0].status}"
        return [ctx.informs(clause, message, wrong[0])]
    answers = [parsed_or_none(exchange.content) for exchange in after if exchange.ok]
    cards = [card for answer in answers for card in parts(answer)]
    is_gone = not any(isinstance(card, dict) and "cvc" in card for card in cards)
    rule = "a cvc must not be readable after its CVC Retention, however its card was created"
    return [ctx.rule(clause, rule, *made, *after, is_so=is_gone)]


async def _converted(ctx: CheckContext) -> list[Finding]:
    """Convert one token intent within its retention, and another one after it."""
    name, clause = "Token Intent Retention", "QUO-INTENT"
    lane = ctx.lane("conversion", key=ctx.key("short"))
    retained_ns = ctx.quota(name, ctx.key("short"))
    if retained_ns > _LONGEST_NS:
        return []  # the intent that is read says so
    asked = [ctx.token(f"converted {turn}") for turn in range(5)]
    made = [await lane.call("create_token_intent", body=body) for body in asked]
    intents: list[Json] = [
        {"type": "token", "token_intent_id": text_of(intent, "id")} for intent in made
    ]
    first = await lane.call("tokenize", {"value": intents[0]})
    if not first.ok:  # how an intent is converted is assumed
        message = f"a token intent is not converted by its id: {first.status}"
        return [ctx.informs(clause, message, first)]
    await lane.sleep_until_ns(made[-1].received_ns + retained_ns + _CLOCK_SLACK_NS, _RETENTION)
    late: list[Json] = [intents[1], [intents[2]], {"a": [{"b": intents[3]}]}]
    answers = [await lane.call("tokenize", {"value": body}) for body in late]
    answers.append(await lane.call("create", body=intents[4]))
    return [ctx.refusal(clause, f"an intent after its {name}", answer) for answer in answers]


def _unsaid(ctx: CheckContext, clause: str, message: str, *evidence: Exchange) -> Finding:
    """Report that nothing can be judged; an unspecified operation is not a failure."""
    if evidence[-1].is_absent:
        asked = f"{evidence[-1].ask.method} {evidence[-1].ask.path.partition('?')[0]}"
        message = (
            f"{message} to {asked}, whose method and path are not specified; if it is offered "
        )
        message += "under another path, describe it in [requests]"
        finding = ctx.finding(clause, Verdict.SKIPPED, message, *evidence)
        return dataclasses.replace(finding, is_absent=True)
    return ctx.unsettled(clause, message, *evidence)


@check(
    "quotas.retention",
    "QUO-CVC",
    "QUO-INTENT",
    "QUO-LOG",
    accepts="readable in [t, t + R), not after, R being the quota of the tenant of role short",
    roles=("short",),
    requests=72,
    takes_ns=3 * _SECOND_NS + _CLOCK_SLACK_NS,
    is_timed=True,
)
async def retention(ctx: CheckContext) -> list[Finding]:
    """A cvc, a token intent and a log entry are readable until their retention has expired."""
    groups = await ctx.gather(
        [*(_retained(ctx, *kind) for kind in _KEPT), _by_path(ctx), _converted(ctx)]
    )
    return [finding for group in groups for finding in group]


# --- Tokenize Limit -------------------------------------------------------------------------------


_STATUSES: Final = (400, 403, 413, 422, 429)


def _records(ctx: CheckContext, values: list[Json]) -> Json:
    return [
        ctx.card(str(value)) if place % 2 else {"type": "token", "data": value}
        for place, value in enumerate(values)
    ]


def _mixed(_: CheckContext, values: list[Json]) -> Json:
    wrapped: list[Json] = [{"type": "token", "data": value} for value in values[1::2]]
    return {"strings": values[::2], "records": wrapped}


_SHAPES: Final[tuple[tuple[str, Callable[[CheckContext, list[Json]], Json]], ...]] = (
    ("an array of strings", lambda _, values: values),
    ("an object of strings", lambda _, values: {f"k{n}": value for n, value in enumerate(values)}),
    ("one top-level element", lambda _, values: {"only": [values[::2], {"rest": values[1::2]}]}),
    ("records of two types", _records),
    ("strings and records", _mixed),
)
"""The name of a shape, and a body of it with some values."""


@check(
    "quotas.tokenize",
    "TOK-LIMIT",
    "QUO-TOKENIZE",
    accepts="2xx at the Tokenize Limit and below, any 4xx above it",
    requests=5 * len(_SHAPES),
)
async def tokenize_limit(ctx: CheckContext) -> list[Finding]:
    """The Tokenize Limit applies exactly, to the whole request, however its tokens are nested."""
    key = await ctx.ready_key("private_prod")
    most = ctx.quota("Tokenize Limit", key)
    findings: list[Finding] = []
    refused: list[Exchange] = []
    for what, shape in _SHAPES:
        for count in (most - 1, most) if most > 1 else (most,):
            body = shape(ctx, _values(ctx, f"{what} {count}", count))
            exchange = await ctx.client.tokenize(body, key)
            case = f"{count} tokens of {most} allowed ({what})"
            findings += [
                dataclasses.replace(ctx.ok_or_unsettled(clause, case, exchange), place=what)
                for clause in ctx.check.clauses
            ]
        for count in (most + 1, 2 * most + 1):
            body = shape(ctx, _values(ctx, f"{what} {count}", count))
            exchange = await ctx.over_limit(body, key)
            case = f"{count} tokens of {most} allowed ({what})"
            findings += [
                dataclasses.replace(ctx.refusal(clause, case, exchange, is_quota=True), place=what)
                for clause in ctx.check.clauses
            ]
            if is_refused(exchange) or exchange.refused:
                refused.append(exchange)
    statuses = {exchange.status for exchange in refused}
    if len(statuses) == 1 and statuses <= set(_STATUSES):
        findings.append(ctx.reads("TOK-LIMIT", "tokens.limit_status", statuses.pop(), refused[0]))
    elif statuses:
        message = f"over the limit the statuses are {sorted(map(str, statuses))}"
        findings.append(ctx.informs("TOK-LIMIT", message, *refused[:2]))
    return findings


def _values(ctx: CheckContext, name: str, count: int) -> list[Json]:
    return [ctx.value(f"{name} {number}") for number in range(count)]
