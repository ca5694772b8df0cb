"""Sections 5, 7 and 8.1: rules for all limits, besides what the measured rows show.

Whom limits are for (kinds of application, legacy keys), the lowest of several rates, which failed
requests count, and what a refusal's headers say. LIM-THROTTLE and LIM-BLOCK are judged with the
rows that show them.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

from conformance.context.answers import text_of
from conformance.context.check import Absent, Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.limits.findings import pool_of, sender_of
from conformance.limits.measurement import FEW_AT_ONCE
from conformance.limits.observations import Burst, is_missing
from conformance.limits.rows import ROWS, RowRequests, rule_of
from conformance.limits.sending import SECOND_NS, BurstSender, Sender
from conformance.messages.exchange import Exchange, HttpRequest, KeyLabel
from engine.limits import Rule
from engine.messages import Json

_CLASSES: Final = ("LIM-PUBLIC", "LIM-MANAGEMENT", "LIM-LEGACY")
_PAUSE_NS: Final = 11 * SECOND_NS
_MARGIN_NS: Final = 20_000_000
_ROUNDS: Final = 3
_MARKED: Final = re.compile("_prod_|_test_")
_WHOLE: Final = re.compile("[0-9]{1,9}")
_Judge = TypeVar("_Judge", bound=Callable[..., object])


def _probe(
    check_id: str,
    *clauses: str,
    takes_ns: int = 2 * SECOND_NS,
    **fields: Any,  # noqa: ANN401 # reason: fields of Check
) -> Callable[[_Judge], _Judge]:
    """Register a check that exceeds rates; by default it waits for no window."""
    return check(check_id, *clauses, takes_ns=takes_ns, is_probe=True, **fields)


async def _row_sender(
    ctx: CheckContext, rule_id: str, key: KeyLabel, operation: str = ""
) -> tuple[Sender, BurstSender, Rule]:
    """Return a sender of a row's requests with one key, its party, and the row.

    operation: what is sent instead of the row's own.
    """
    rule, row = rule_of(ctx.limits, rule_id), ROWS[rule_id]
    if operation:
        row = dataclasses.replace(row, operation=operation, variants=())
    requests = RowRequests(ctx, row, lane_name=f"prepare {key} {operation}")
    await requests.prepare([key])
    sender = sender_of(ctx, rule, [key], requests, pool_of(ctx, row, rule, [key]))
    sender.prefix = f"{rule_id} {operation}: "
    return sender, BurstSender(key, ctx.sources[:1]), rule


def _is_limited(sender: Sender, burst: Burst) -> bool:
    """Whether a burst met a limit: it was refused, or held back."""
    return bool(burst.refused) or any(map(sender.is_slow, burst.all))


def _check_exceeded(sender: Sender, burst: Burst) -> None:
    """Raise `Inconclusive` where a burst that met no limit need not have met one."""
    usual = sender.refusals.usual.get("plain", 0)
    if 400 <= usual < 500:
        raise Inconclusive(
            f"not decided: requests are answered {usual} and never refused, and failed requests "
            "need not count; give the key the permissions for them"
        )
    if burst.lost > len(burst.all) // 5 or burst.duration_ns > sender.window_ns:
        raise Inconclusive("not decided: answers were lost, or too slow to exceed the rate")


# --- whom limits are for --------------------------------------------------------------------------


@_probe(
    "limits.classes",
    "AUTH-KINDS",
    "AUTH-LEGACY",
    accepts="public, management and legacy keys each meet a rate that a private key does not meet",
    roles=("private_prod", "public", "management", "legacy"),
    requests=640,
    requests_most=1_400,
)
async def classes(ctx: CheckContext) -> list[Finding]:
    """Keys of each kind of application, and legacy keys, are limited as separate classes."""
    bursts: dict[str, Burst] = {}
    limited = {}
    for role, rule_id in zip(("public", "management", "legacy"), _CLASSES, strict=True):
        sender, party, rule = await _row_sender(ctx, rule_id, ctx.key(role))
        bursts[role] = await sender.until_refused(party, rule.limit_requests)
        # Beyond that, it may have met the row of what it sent.
        is_near = bursts[role].size < rule.limit_requests * 17 // 10
        limited[role] = _is_limited(sender, bursts[role]) and is_near
        if not limited[role]:
            _check_exceeded(sender, bursts[role])
    size = rule_of(ctx.limits, "LIM-LEGACY").limit_requests * 5 // 4
    sender, party, _ = await _row_sender(ctx, "LIM-PRIVATE", ctx.key("private_prod"))
    private = await sender.at_once(party, size)
    if private.refused and private.size < FEW_AT_ONCE:
        raise Inconclusive("requests sent together are refused at once: they seem to be spaced")
    missing = [role for role in ("public", "management") if not limited[role]]
    refused = [x.exchange for x in private.refused[:1]]
    legacy = _legacy(ctx, bursts["legacy"], private, is_limited=limited["legacy"])
    if missing:
        message = f"a {' and a '.join(missing)} key met no limit of its class"
        kinds = ctx.fails("AUTH-KINDS", message, *_last(bursts[missing[0]]))
    elif refused:
        message = f"a private key is refused within {size} requests, the limit of another class"
        kinds = ctx.fails("AUTH-KINDS", message, *refused)
        kinds = dataclasses.replace(kinds, follows="AUTH-LEGACY")
    else:
        message = f"public and management keys are limited, a private one not in {size} requests"
        evidence = [
            x.exchange for role in ("public", "management") for x in bursts[role].refused[:1]
        ]
        kinds = ctx.passes("AUTH-KINDS", message, *evidence)
    return [kinds, legacy]


def _last(burst: Burst) -> list[Exchange]:
    return [x.exchange for x in burst.all[-2:]]


def _legacy(ctx: CheckContext, burst: Burst, private: Burst, *, is_limited: bool) -> Finding:
    label, clause = ctx.key("legacy"), "AUTH-LEGACY"
    if _MARKED.search(ctx.target.key_labels[label].value):
        message = f"the key {label} contains _prod_ or _test_, so it is not a legacy key"
        return ctx.unsettled(clause, message)
    if not is_limited:
        message = f"a key without _prod_ or _test_ met no limit in {len(burst.all)} requests"
        return ctx.fails(clause, message, *_last(burst))
    if private.refused:
        message = "a key with _prod_ or _test_ is refused like a legacy key"
        return ctx.fails(clause, message, private.refused[0].exchange)
    message = (
        "a key without _prod_ or _test_ is limited as a legacy key, a key with one of them is not"
    )
    return ctx.passes(clause, message, *_last(burst)[-1:])


@_probe(
    "limits.legacy-class",
    "LIM-LEGACY",
    accepts="whether its kind's rate limits a legacy key as well is a reading (D-LEGACY-CLASS)",
    roles=("management",),
    requests=90,
    requests_most=600,
    takes_ns=0,
)
async def legacy_class(ctx: CheckContext) -> list[Finding]:
    """Find whether a legacy key of a public application is limited as a public key too."""
    try:
        return await _legacy_class(ctx)
    except Inconclusive as why:
        message = f"not decided whether its kind's rate limits a legacy key as well: {why}"
        return [ctx.informs("LIM-LEGACY", message)]


async def _legacy_class(ctx: CheckContext) -> list[Finding]:
    public, legacy = rule_of(ctx.limits, "LIM-PUBLIC"), rule_of(ctx.limits, "LIM-LEGACY")
    label = await _made_legacy_key(ctx)
    if label is None or legacy.limit_requests < public.limit_requests * 2:
        raise Inconclusive("no legacy key of a public application can be created here")
    sender, party, _ = await _row_sender(ctx, "LIM-LEGACY", label)
    burst = await sender.until_refused(party, public.limit_requests)
    # Beyond that, it may have met the row of what it sent.
    if not _is_limited(sender, burst) or burst.size >= legacy.limit_requests * 17 // 10:
        if not burst.refused:
            _check_exceeded(sender, burst)
        message = (
            f"{burst.size} requests of a legacy key of a public application, and none was "
            "refused: must meet the rate of legacy keys"
        )
        return [ctx.fails("LIM-LEGACY", message, *_last(burst))]
    is_added = burst.size < (public.limit_requests + legacy.limit_requests) // 2
    value = "added" if is_added else "exclusive"
    return [ctx.reads("LIM-LEGACY", "limits.legacy_class", value, *_last(burst))]


async def _made_legacy_key(ctx: CheckContext) -> KeyLabel | None:
    """Create a public application with a legacy key; returns None where that is not possible."""
    lane = ctx.lane("making", key=ctx.key("management"))
    body: Json = {
        "name": "conformance legacy class",
        "kind": "public",
        "grants": [{"container": "/", "permissions": ["token:create"]}],
    }
    application = text_of(await lane.call("create_application", body=body), "id")
    if application is None:
        return None
    made = await lane.call("create_application_key", {"id": application}, body={"legacy": True})
    text = text_of(made, "key")
    if text is None or _MARKED.search(text):
        return None
    ctx.learn_key("made.legacy-1", text)
    return "made.legacy-1"


# --- how limits refuse ----------------------------------------------------------------------------


@_probe(
    "limits.lowest",
    "LIM-LOWEST",
    accepts="the lower rate refuses or slows, though other rows allow more",
    roles=("private_test", "legacy"),
    requests=180,
    requests_most=540,
)
async def lowest(ctx: CheckContext) -> list[Finding]:
    """The lowest rate applies: the tenant's on POST /tokens, the resource's on a search."""
    findings = []
    for name, role, operation, rule_id in (
        ("tenant", "private_test", "create", "LIM-TEST-TENANT"),
        ("resource", "legacy", "search", "LIM-SEARCH"),
    ):
        sender, party, rule = await _row_sender(ctx, rule_id, ctx.key(role), operation)
        # Below the rates of the other rows of these requests: LIM-CREATE, LIM-LEGACY.
        burst = await sender.at_once(party, rule.limit_requests)
        while not _is_limited(sender, burst) and len(burst.all) < rule.limit_requests * 9 // 5:
            burst += await sender.at_once(party, rule.limit_requests // 10)
        if is_missing([x.exchange for x in burst.all]):
            continue  # no row limits an operation that does not exist
        if _is_limited(sender, burst):
            message = f"{name}: {burst.size} of {len(burst.all)} admitted, then refused or slowed"
            evidence = [x.exchange for x in burst.refused[:2]]
            findings.append(ctx.passes("LIM-LOWEST", message, *evidence))
            if name == "resource":  # the legacy key's own row has the lower rate
                findings.append(ctx.reads("LIM-LOWEST", "limits.compose", "all", *evidence))
        else:
            _check_exceeded(sender, burst)
            message = (
                f"none of {len(burst.all)} requests of a {role} key at once was refused or slowed: "
                f"the row of its {name} allows {rule.limit_requests}, whatever other rows allow"
            )
            findings.append(ctx.fails("LIM-LOWEST", message, *_last(burst)))
    if not findings:
        raise Absent("the deployment has none of the operations that have a row of their own")
    return findings


@_probe(
    "limits.counted",
    "LIM-TEST-TENANT",
    accepts="whether failed requests count is a reading (D-COUNTED), the same for all of them",
    roles=("private_test",),
    requests=100,
    requests_most=300,
    beside=("LIM-TEST-TENANT",),
)
async def counted(ctx: CheckContext) -> list[Finding]:
    """Find whether failed requests count (D-COUNTED), whatever is wrong with them."""
    sender, party, rule = await _row_sender(ctx, "LIM-TEST-TENANT", ctx.key("private_test"))
    make = sender.make
    bodies: dict[str, Json] = {
        "an unknown type": {"type": "unknown", "data": "x"},
        "a number as `encrypted`": {"type": "token", "data": {"number": 1}, "encrypted": 7},
    }

    def failing(variant: str, party: BurstSender, number: int) -> HttpRequest:
        ask = make("plain" if variant in bodies else variant, party, number)
        return dataclasses.replace(ask, body=bodies[variant]) if variant in bodies else ask

    sender.make = failing
    kinds = itertools.cycle((*bodies, "get"))
    for turn in range(_ROUNDS):
        if turn:  # an aligned window may have begun between the two bursts
            await ctx.lane(f"rest {turn}").sleep_ns(rule.window_ns * 21 // 10)
        failed = Burst(())
        while len(failed.all) < rule.limit_requests and not failed.refused:
            failed += await sender.at_once(party, 1, next(kinds))
        plain = await sender.until_refused(party, 0 if failed.refused else rule.limit_requests)
        statuses = {x.exchange.status or 0 for x in failed.admitted}
        if not plain.refused or not all(400 <= status < 500 for status in statuses):
            return [ctx.informs("LIM-TEST-TENANT", "not decided whether failed requests count")]
        share = plain.size / rule.limit_requests
        regained = (plain.last_received_ns - failed.first_sent_ns) / rule.rate.window_ns
        evidence = [
            x.exchange for x in (*failed.all[-1:], *plain.admitted[-1:], *plain.refused[:1])
        ]
        if regained > 0.5 and not failed.refused:
            message = "not decided whether failed requests count: half a window passed meanwhile"
            return [ctx.informs("LIM-TEST-TENANT", message)]
        if failed.refused or share >= 0.8 or share - regained <= 0.2:
            value = "success" if share >= 0.8 else "every"
            return [ctx.reads("LIM-TEST-TENANT", "limits.counted_statuses", value, *evidence)]
    message = (
        f"after {len(failed.all)} failed requests {plain.size} others were admitted: some failed "
        "requests count and some do not, but the row counts all alike"
    )
    return [ctx.fails("LIM-TEST-TENANT", message, *evidence)]


@_probe(
    "limits.status",
    "ERR-429",
    accepts="429 for every request beyond the rate; its headers are readings",
    roles=("private_test",),
    requests=80,
    requests_most=300,
    beside=("ERR-429",),
)
async def status(ctx: CheckContext) -> list[Finding]:
    """The headers of a refused request say when to retry (D-429-HEADERS)."""
    sender, party, rule = await _row_sender(ctx, "LIM-TEST-TENANT", ctx.key("private_test"))
    burst = await sender.until_refused(party, rule.limit_requests)
    refused = [x.exchange for x in burst.refused if x.exchange.refused]
    if not refused:
        return [ctx.informs("ERR-429", "no request was refused with 429")]
    texts = [exchange.header("Retry-After") for exchange in refused]
    fields = [exchange.header("RateLimit") for exchange in refused]
    findings = [
        ctx.reads("ERR-429", f"http.{name}", None not in values, refused[0])
        for name, values in (("retry_after", texts), ("rate_limit_fields", fields))
    ]
    for text, value in zip(texts, fields, strict=True):
        if text is not None and (not _WHOLE.fullmatch(text) or int(text) < 1):
            message = f"Retry-After = {text!r} must be a whole number of seconds, at least 1"
            return [*findings, ctx.informs("ERR-429", message, refused[0])]
        if value is not None and "r=0" not in re.split("[;,] *", value):
            message = f"RateLimit = {value!r} on a refusal: the remaining quota must be r=0"
            return [*findings, ctx.informs("ERR-429", message, refused[0])]
    last = max(refused, key=lambda exchange: exchange.received_ns)
    text = last.header("Retry-After")
    longest_ns = 2 * ctx.session.patience_ns  # a sliding counter weighs the window before
    if text is not None and int(text) * SECOND_NS > longest_ns:
        message = f"Retry-After = {text} s is longer than any row may refuse"
        message += f" ({longest_ns // SECOND_NS} s)"
        findings.append(ctx.informs("ERR-429", message, last))
    elif text is not None:
        await sender.wait_until_ns(last.received_ns + int(text) * SECOND_NS + _MARGIN_NS)
        again = await sender.send(party)
        if again.refused:
            message = f"still refused after the Retry-After of {text} s had passed"
            findings.append(ctx.informs("ERR-429", message, last, again.exchange))
    return findings
