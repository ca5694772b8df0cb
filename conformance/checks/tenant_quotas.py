"""Section 8.8 and rule 4 of 4.1: the quotas of a tenant.

Each tenant has its own quotas. A record is gone when its retention has expired. The Tokenize Limit
and the Detokenize Limit are exact.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from conformance.checks._witness import named, seen_witness
from conformance.context.answers import (
    accepted,
    identifiers,
    is_refused,
    member_of,
    must_be_there,
    records_of,
    text_of,
)
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext, Lane
from conformance.context.verdicts import Finding, Verdict
from conformance.messages.exchange import Exchange, KeyLabel
from engine.files import format_duration
from engine.messages import Json
from engine.tokens import dumps

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
def tenants(ctx: CheckContext) -> Iterator[Finding]:
    """Each tenant has its own Tokenize Limit, the default unless the operator changed it."""
    seen: set[str | None] = set()
    for role in _ROLES:
        if not ctx.keys(role):
            continue
        key = ctx.key(role)
        tenant = ctx.target.key_labels[key].tenant
        if tenant in seen:
            continue
        seen.add(tenant)
        ctx.ready(key, role)
        most = ctx.quota("Tokenize Limit", key)
        values = _values(ctx, role, 2 * most + 1)
        below = ctx.tokenize(values[:most], key)
        yield ctx.ok_or_unsettled("QUO-TENANT", f"{role}: {most} tokens", below)
        above = ctx.over_limit("tokenize", values[most:], key)
        if above.refused:
            yield ctx.passes("QUO-TENANT", f"{role}: {most + 1} tokens refused, 429", above)
        else:
            yield ctx.refusal("QUO-TENANT", f"{role}: {most + 1} tokens", above)


@check(
    "quotas.shown",
    "QUO-TENANT",
    accepts="the quotas that the target states, otherwise the defaults; or no such endpoint",
    roles=("management",),
    requests=1,
    is_extra=True,
)
def shown(ctx: CheckContext) -> Iterator[Finding]:
    """The tenant's own record shows its quotas, if the deployment offers it."""
    key = ctx.key("management")
    exchange = ctx.call("get_tenant", key=key)
    quotas = member_of(exchange, "quotas")
    if not isinstance(quotas, dict):
        says = f"no answer shows the quotas: {exchange.status}"
        yield ctx.informs("QUO-TENANT", says, exchange)
        return
    tenant = ctx.target.tenant_of(ctx.target.key_labels[key])
    for name, found in quotas.items():
        try:
            wanted = tenant.quota(name)
        except KeyError:
            continue
        is_count = name in {"Tokenize Limit", "Detokenize Limit"}
        if not is_count and isinstance(wanted, int) and isinstance(found, int | float):
            wanted = wanted // _SECOND_NS
        seen = f"{name} = {found}"
        says = f"{name} must be {wanted}, not {found}; or state this in [[tenants]] quotas"
        yield ctx.judges("QUO-TENANT", found == wanted, seen, says, exchange)


# --- retention ------------------------------------------------------------------------------------


_IN_ARRAY: Final = "a cvc in an array"
_PATCHED: Final = "a cvc that PATCH has replaced"
_READ: Final = "a log entry of a read"
_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_Look = Callable[[CheckContext, Lane, str], Awaitable[tuple[bool | None, Exchange]]]
"""Returns whether what was created is readable, None if that is unknown, and the exchange."""


async def _cvc(ctx: CheckContext, lane: Lane, made_id: str) -> tuple[bool | None, Exchange]:
    method, path, _ = ctx.shaped("detokenize", {"id": made_id})
    exchange = await lane.insist(method, path, {"value": f"{{{{ {made_id} }}}}"})
    data = member_of(exchange, "value")
    if not isinstance(data, dict) or "number" not in data:
        return None, exchange  # the card itself must stay readable, before and after
    return "cvc" in data, exchange


async def _intent(ctx: CheckContext, lane: Lane, made_id: str) -> tuple[bool | None, Exchange]:
    exchange = await lane.insist(*ctx.shaped("get_token_intent", {"id": made_id}))
    if exchange.ok:
        return True, exchange
    return (False if is_refused(exchange) else None), exchange


async def _log(ctx: CheckContext, lane: Lane, made_id: str) -> tuple[bool | None, Exchange]:
    method, path, _ = ctx.shaped("list_logs")
    exchange = await lane.insist(method, f"{path}?entity_id={made_id}")
    entries = member_of(exchange, "data")
    return (bool(entries) if isinstance(entries, list) else None), exchange


_KEPT: Final[tuple[tuple[str, str, str, str, _Look], ...]] = (
    ("QUO-CVC", "CVC Retention", "a cvc", "tokenize", _cvc),
    ("QUO-CVC", "CVC Retention", _IN_ARRAY, "tokenize", _cvc),
    ("QUO-CVC", "CVC Retention", _PATCHED, "tokenize", _cvc),
    ("QUO-INTENT", "Token Intent Retention", "a token intent", "create_token_intent", _intent),
    ("QUO-LOG", "Log Retention", "a log entry", "tokenize", _log),
    ("QUO-LOG", "Log Retention", _READ, "tokenize", _log),
)
"""Clause, quota, what it retains, the operation that creates it, and how to look for it."""


async def _create(
    ctx: CheckContext, lane: Lane, clause: str, what: str, operation: str
) -> tuple[Exchange, str | None]:
    """Create what is retained; returns the exchange that starts its retention, and its id."""
    make = ctx.card if clause == "QUO-CVC" else ctx.token
    asked = make(f"kept {what}")
    sent: Json = [asked] if what == _IN_ARRAY else asked
    method, path, shaped = ctx.shaped(operation, {"value": sent})
    made = await lane.insist(method, path, shaped if operation == "tokenize" else asked)
    if what == _IN_ARRAY and made.ok:
        return made, str(records_of(made, 1)[0]["id"])
    made_id = text_of(made, "id")
    if what == _PATCHED and made_id is not None:
        method, path, _ = ctx.shaped("patch", {"id": made_id})
        body = dumps({"data": {"cvc": "842"}})
        patched = await lane.insist(method, path, body, headers=_MERGE_PATCH)
        made = patched if patched.ok else made  # the shape of PATCH is assumed
    if what == _READ and made_id is not None:
        read = await lane.insist(*ctx.shaped("detokenize", {"id": made_id}))
        made = read if read.ok else made
    return made, made_id


async def _retained(
    ctx: CheckContext, clause: str, name: str, what: str, operation: str, look: _Look
) -> list[Finding]:
    """Create something that a tenant retains; read it before and after its retention expires."""
    lane = ctx.lane(what, key=ctx.key("short"))
    retained_ns = ctx.quota(name, ctx.key("short"))
    if retained_ns > _LONGEST_NS:
        says = (
            f"the tenant of role short has a {name} of "
            f"{retained_ns // _SECOND_NS} s; set it to a few, in [[tenants]] too"
        )
        return [ctx.finding(clause, Verdict.SKIPPED, says)]
    made, made_id = await _create(ctx, lane, clause, what, operation)
    if made_id is None:
        return [_unsaid(ctx, clause, f"{what} could not be created, got {made.status}", made)]
    found: list[Finding] = []
    for part in (0, 3):
        await lane.sleep_until_ns(made.received_ns + part * retained_ns // 5, _RETENTION)
        there, exchange = await look(ctx, lane, made_id)
        if exchange.received_ns >= made.sent_ns + retained_ns:
            continue  # too late to judge: the retention may have expired
        if there is None:
            says = f"{what} cannot be looked up, got {exchange.status}"
            return [_unsaid(ctx, clause, says, made, exchange)]
        says = f"{what} must be readable until its {name} has expired"
        found.append(ctx.rule(clause, says, made, exchange, is_so=there))
        if not there:
            return found
    if not found:
        says = f"answers took longer than the {name} of {format_duration(retained_ns)}"
        return [ctx.unsettled(clause, says, made)]
    await lane.sleep_until_ns(made.received_ns + retained_ns + _CLOCK_SLACK_NS, _RETENTION)
    there, exchange = await look(ctx, lane, made_id)
    if there is None:
        says = f"{what} cannot be looked up after its {name}, got {exchange.status}"
        return [*found, ctx.unsettled(clause, says, made, exchange)]
    says = f"{what} must not be readable after its {name}"
    return [*found, ctx.rule(clause, says, made, exchange, is_so=not there)]


async def _converted(ctx: CheckContext) -> list[Finding]:
    """Convert one token intent within its retention, and another one after it."""
    name, clause = "Token Intent Retention", "QUO-INTENT"
    lane = ctx.lane("conversion", key=ctx.key("short"))
    retained_ns = ctx.quota(name, ctx.key("short"))
    if retained_ns > _LONGEST_NS:
        return []  # the intent that is read says so
    asked = [ctx.token(f"converted {turn}") for turn in range(2)]
    method, path, _ = ctx.shaped("create_token_intent")
    made = [await lane.insist(method, path, body) for body in asked]
    exchanges = []
    for each, part_ns in zip(made, (0, retained_ns + _CLOCK_SLACK_NS), strict=True):
        await lane.sleep_until_ns(each.received_ns + part_ns, _RETENTION)
        body: Json = {"type": "token", "token_intent_id": text_of(each, "id")}
        exchanges.append(await lane.insist(*ctx.shaped("tokenize", {"value": body})))
    if not exchanges[0].ok:  # how an intent is converted is assumed
        message = f"a token intent is not converted by its id: {exchanges[0].status}"
        return [ctx.informs(clause, message, exchanges[0])]
    return [ctx.refusal(clause, f"an intent after its {name}", exchanges[1])]


def _unsaid(ctx: CheckContext, clause: str, says: str, *shown: Exchange) -> Finding:
    """Report that nothing can be judged; an unspecified operation is not a failure."""
    if shown[-1].is_absent:
        asked = f"{shown[-1].ask.method} {shown[-1].ask.path.partition('?')[0]}"
        says = f"{says} to {asked}, whose method and path are not specified; if it is offered "
        says += "under another path, describe it in [requests]"
        finding = ctx.finding(clause, Verdict.SKIPPED, says, *shown)
        return dataclasses.replace(finding, is_absent=True)
    return ctx.unsettled(clause, says, *shown)


@check(
    "quotas.retention",
    "QUO-CVC",
    "QUO-INTENT",
    "QUO-LOG",
    accepts="readable in [t, t + R), not after, R being the quota of the tenant of role short",
    roles=("short",),
    requests=34,
    takes_ns=3 * _SECOND_NS + _CLOCK_SLACK_NS,
)
async def retention(ctx: CheckContext) -> list[Finding]:
    """A cvc, a token intent and a log entry are readable until their retention has expired."""
    found = await ctx.gather([*(_retained(ctx, *kept) for kept in _KEPT), _converted(ctx)])
    return [finding for each in found for finding in each]


# --- Tokenize Limit -------------------------------------------------------------------------------


_STATUSES: Final = (400, 403, 413, 422, 429)


def _records(ctx: CheckContext, values: list[Json]) -> Json:
    return [
        ctx.card(str(one)) if place % 2 else {"type": "token", "data": one}
        for place, one in enumerate(values)
    ]


def _mixed(_: CheckContext, values: list[Json]) -> Json:
    wrapped: list[Json] = [{"type": "token", "data": one} for one in values[1::2]]
    return {"strings": values[::2], "records": wrapped}


_SHAPES: Final[tuple[tuple[str, Callable[[CheckContext, list[Json]], Json]], ...]] = (
    ("an array of strings", lambda _, values: values),
    ("an object of strings", lambda _, values: {f"k{n}": one for n, one in enumerate(values)}),
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
def tokenize_limit(ctx: CheckContext) -> Iterator[Finding]:
    """The Tokenize Limit applies exactly, to the whole request, however its tokens are nested."""
    key = ctx.ready_key("private_prod")
    most = ctx.quota("Tokenize Limit", key)
    refused: list[Exchange] = []
    for what, shape in _SHAPES:
        for count in (most - 1, most) if most > 1 else (most,):
            exchange = ctx.tokenize(shape(ctx, _values(ctx, f"{what} {count}", count)), key)
            told = f"{count} tokens of {most} allowed ({what})"
            for clause in ctx.check.clauses:
                finding = ctx.ok_or_unsettled(clause, told, exchange)
                yield dataclasses.replace(finding, place=what)
        for count in (most + 1, 2 * most + 1):
            values = _values(ctx, f"{what} {count}", count)
            exchange = ctx.over_limit("tokenize", shape(ctx, values), key)
            told = f"{count} tokens of {most} allowed ({what})"
            for clause in ctx.check.clauses:
                finding = ctx.refusal(clause, told, exchange, is_quota=True)
                yield dataclasses.replace(finding, place=what)
            if _is_over(exchange):
                refused.append(exchange)
    statuses = {exchange.status for exchange in refused}
    if len(statuses) == 1 and statuses <= set(_STATUSES):
        yield ctx.reads("TOK-LIMIT", "tokens.limit_status", statuses.pop(), refused[0])
    elif statuses:
        says = f"over the limit the statuses are {sorted(map(str, statuses))}"
        yield ctx.informs("TOK-LIMIT", says, *refused[:2])
    yield from _equal_strings(ctx, key, most)


def _values(ctx: CheckContext, name: str, count: int) -> list[Json]:
    return [ctx.value(f"{name} {number}") for number in range(count)]


def _equal_strings(ctx: CheckContext, key: KeyLabel, most: int) -> Iterator[Finding]:
    """Equal strings count separately, unless they are deduplicated (D-LIMIT-COUNT)."""
    pair = ctx.tokenize([ctx.value("pair")] * 2, key)
    if most < 2 or not pair.ok or len(set(identifiers(pair, 2))) == 1:  # reason: deduplicated
        return
    exchange = ctx.over_limit("tokenize", [ctx.value("equal")] * (most + 1), key)
    yield ctx.refusal("TOK-LIMIT", f"{most + 1} equal strings", exchange, is_quota=True)


def _is_over(exchange: Exchange) -> bool:
    """Whether a request over a quota was refused; 429 is a reading too (D-LIMIT-STATUS)."""
    return is_refused(exchange) or exchange.refused


@check(
    "quotas.tokenize-whole",
    "TOK-LIMIT",
    accepts="a request over the Tokenize Limit creates none of its tokens",
    requests=12,
)
def tokenize_whole(ctx: CheckContext) -> Iterator[Finding]:
    """A request over the Tokenize Limit fails as a whole: not even its first token is created."""
    witness, key, unseen = seen_witness(ctx)
    most = ctx.quota("Tokenize Limit", key)
    asked = [named(ctx, f"whole {place}") for place in range(most + 1)]
    exchange = ctx.over_limit("tokenize", [*asked], key)
    what = f"{most + 1} token request objects"
    yield ctx.refusal("TOK-LIMIT", what, exchange, is_quota=True)
    if witness is None:
        yield ctx.finding("TOK-LIMIT", Verdict.NOT_OBSERVABLE, unseen, exchange)
        return
    for place in dict.fromkeys((0, most - 1, most)):
        there, shown = witness.exists(asked[place])
        seen = f"token {place + 1} was not created"
        says = f"token {place + 1} of a request over the limit was created"
        yield ctx.judges("TOK-LIMIT", not there, seen, says, exchange, shown)


# --- Detokenize Limit -----------------------------------------------------------------------------


@check(
    "quotas.detokenize",
    "QUO-DETOKENIZE",
    accepts="2xx with the values at the Detokenize Limit and below, any 4xx above it",
    roles=("private_reader",),
)
def detokenize_limit(ctx: CheckContext) -> Iterator[Finding]:
    """The Detokenize Limit applies exactly, to the whole request (D-DETOKENIZE)."""
    key = ctx.spread_key("private_reader")
    most = ctx.quota("Detokenize Limit", key)
    made = _made(ctx, key, most + 1)
    first = ctx.call("detokenize", body=_expressions(made[:1]), key=key)
    must_be_there("detokenize", first)
    if not first.ok:
        raise Inconclusive(
            "a token cannot be detokenized; describe the request in [requests.detokenize]"
        )
    for count in (most - 1, most) if most > 1 else (most,):
        exchange = ctx.call("detokenize", body=_expressions(made[:count]), key=key)
        yield ctx.ok_or_unsettled("QUO-DETOKENIZE", f"{count} of {most} tokens", exchange)
        wanted = {f"v{place}": text for place, (_, text) in enumerate(made[:count])}
        if exchange.ok and accepted(exchange) != wanted:
            yield ctx.unsettled("QUO-DETOKENIZE", "the values did not come back", exchange)
    for nested in (False, True):
        body = _expressions(made)
        exchange = ctx.over_limit("detokenize", {"only": [body, {}]} if nested else body, key)
        what = f"{most + 1} tokens" + (" in one top-level element" if nested else "")
        yield ctx.refusal("QUO-DETOKENIZE", what, exchange, is_quota=True)
    if most > 1:
        exchange = ctx.over_limit("detokenize", _expressions([made[0]] * (most + 1)), key)
        if exchange.ok or _is_over(exchange):
            seen = "distinct" if exchange.ok else "expressions"
            yield ctx.reads("QUO-DETOKENIZE", "tokens.detokenize_counts", seen, exchange)


_Made = tuple[str, str]
"""An identifier and the value behind it."""


def _made(ctx: CheckContext, key: KeyLabel, count: int) -> list[_Made]:
    most = ctx.quota("Tokenize Limit", key)
    found: list[_Made] = []
    for start in range(0, count, most):
        part = [ctx.value(f"detokenized {n}") for n in range(start, min(start + most, count))]
        ids = identifiers(ctx.tokenize([*part], key), len(part))
        found.extend(zip(ids, part, strict=True))
    return found


def _expressions(made: list[_Made]) -> dict[str, Json]:
    return {f"v{place}": f"{{{{ {token_id} }}}}" for place, (token_id, _) in enumerate(made)}
