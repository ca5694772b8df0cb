"""Deduplication, and what a deduplicated record leaves out (sections 1, 2.1 and 5)."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Any, Final

from conformance.context.answers import (
    accepted,
    elements,
    flag_of,
    identifiers,
    is_known,
    member_of,
    record_of,
    records_of,
)
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding, Symptom
from conformance.messages.exchange import Exchange, KeyLabel
from engine.messages import Json

_MERGE_PATCH: Final = {"Content-Type": "application/merge-patch+json"}
_REDACTED: Final = ("data", "metadata")
_NARROW: Final = frozenset({"id", "type", "tenant_id", "fingerprint", "containers", "_extras"})


# --- equal values -------------------------------------------------------------------------------


@check(
    "deduplication.equal",
    "TOK-DEDUP",
    accepts="the existing token's id with `_extras.deduplicated` true; no second token",
    roles=("dedup",),
    requests=9,
)
def equal(ctx: CheckContext) -> Iterator[Finding]:
    """With deduplication on, an equal value returns the existing token; other values do not."""
    key = ctx.ready_key("dedup")
    one, both = ctx.token("equal"), ctx.card("equal")
    for what, body in (("a token", one), ("a card", both)):
        first = ctx.tokenize(body, key)
        before = record_of(first)
        if flag_of(before) is not False:
            yield ctx.fails("TOK-DEDUP", f"{what}: a new value must not be deduplicated", first)
        second = ctx.tokenize(body, key)
        yield _is_equal(ctx, f"{what}, sent again", before, record_of(second), first, second)
    fresh = ctx.card("twice")
    inside = ctx.tokenize([fresh, ctx.token("between"), fresh], key)
    pair = records_of(inside, 3)
    if flag_of(pair[0]) is not False:
        yield ctx.fails("TOK-DEDUP", "the first of two equal values must create a token", inside)
    yield _is_equal(ctx, "a card twice in one request", pair[0], pair[2], inside)
    text = ctx.value("leaf")
    leaves = ctx.tokenize([text, text], key)
    ids = identifiers(leaves, 2)
    says = "an equal string in the same request must share the first one's token"
    yield ctx.rule("TOK-DEDUP", says, leaves, is_so=ids[0] == ids[1])
    text = ctx.value("near \u00e9")
    near = [text, f"{text} ", text.upper(), unicodedata.normalize("NFD", text)]
    most = ctx.quota("Tokenize Limit", key)
    others = ctx.tokenize(near[:most], key)
    found = identifiers(others, len(near[:most]))
    if len(set(found)) == len(found):
        yield ctx.passes("TOK-DEDUP", "each value that differs has a token of its own", others)
    else:
        says = "each of the values that differ must have a token of its own"
        yield ctx.fails("TOK-DEDUP", says, others, symptoms=("shared-id",))


def _is_equal(
    ctx: CheckContext,
    what: str,
    first: dict[str, Any],
    later: dict[str, Any],
    *shown: Exchange,
) -> Finding:
    if later.get("id") != first.get("id"):
        return ctx.fails("TOK-DEDUP", f"{what}: must return the existing id", *shown)
    says = f"{what}: `_extras.deduplicated` must be true"
    return ctx.rule("TOK-DEDUP", says, *shown, is_so=is_known(later))


@check(
    "deduplication.tenants",
    "TOK-DEDUP",
    accepts="a value that only another tenant has stored is new",
    roles=("dedup",),
    requests=14,
)
def tenants(ctx: CheckContext) -> Iterator[Finding]:
    """A value that another tenant has stored is not found: a token belongs to one tenant."""
    key = ctx.ready_key("dedup")
    labels = ctx.target.key_labels
    others = [
        ctx.key(role)
        for role in ("private_prod", "private_test", "private_reader")
        if ctx.keys(role) and labels[ctx.key(role)].tenant != labels[key].tenant
    ]
    if not others:
        says = "the target names keys of one tenant only, so tenants were not compared"
        yield ctx.informs("TOK-DEDUP", says)
        return
    flag: dict[str, Json] = {ctx.profile.dedup.flag_name: True}
    for what, made, more in (
        ("a token", ctx.token("theirs"), {}),
        ("a card", ctx.card("theirs"), {}),
        ("a token", ctx.token("theirs too"), flag),
        ("a card", ctx.card("theirs too"), flag),
    ):
        theirs = ctx.tokenize({**made, **more}, others[0])
        if more and not theirs.ok:
            continue  # a deployment need not have the flag: D-DEDUP
        stored = record_of(theirs)
        ours = ctx.tokenize(made, key)
        found = record_of(ours)
        if found.get("tenant_id") == stored.get("tenant_id"):
            says = f"records of {others[0]} and {key} name the same tenant: see REC-TENANT"
            yield ctx.informs("TOK-DEDUP", says, theirs, ours)
            return
        is_so = found.get("id") != stored["id"] and not is_known(found)
        says = f"{what} of another tenant must not be found"
        yield ctx.rule("TOK-DEDUP", says, theirs, ours, is_so=is_so)
        again = ctx.tokenize(made, key)
        if record_of(again).get("id") == stored["id"]:
            yield ctx.fails("TOK-DEDUP", says, theirs, again)


_AT_ONCE: Final = 10


@check(
    "deduplication.at-once",
    "TOK-DEDUP",
    accepts="equal concurrent requests return one identifier, and only one creates a token",
    roles=("dedup",),
    requests=2 * _AT_ONCE + 2,
)
def at_once(ctx: CheckContext) -> Iterator[Finding]:
    """Ten equal requests sent at the same time create one token."""
    key = ctx.ready_key("dedup")
    for what, body in (("cards", ctx.card("at once")), ("tokens", ctx.token("at once"))):
        asked = ctx.shaped("tokenize", {"value": body})
        lanes = [ctx.lane(f"{what} {number}", key=key) for number in range(_AT_ONCE)]
        shown = ctx.side_by_side([lane.insist(*asked) for lane in lanes])
        if not all(exchange.ok for exchange in shown):
            bad = [exchange for exchange in shown if not exchange.ok]
            says = f"{_AT_ONCE} equal {what} at the same time: {len(bad)} got {bad[0].status}"
            yield ctx.informs("TOK-DEDUP", says, *bad)
            continue
        records = [record_of(exchange) for exchange in shown]
        ids = {record["id"] for record in records}
        created = sum(flag_of(record) is False for record in records)
        seen = f"{_AT_ONCE} equal {what} at the same time have one identifier"
        says = f"{_AT_ONCE} equal {what} at the same time must create one token, not "
        says += f"{created} with {len(ids)} identifiers"
        yield ctx.judges("TOK-DEDUP", len(ids) == created == 1, seen, says, *shown)


# --- redaction ----------------------------------------------------------------------------------


@check(
    "deduplication.redaction",
    "REC-DEDUP-REDACT",
    "AUTH-READ",
    accepts="`data` and `metadata` only for a key that holds token:read in the container",
    roles=("dedup", "dedup_reader"),
    requests=11,
)
def redaction(ctx: CheckContext) -> Iterator[Finding]:
    """A deduplicated record leaves out data and metadata unless the key may read (E9)."""
    blind, reader = ctx.ready_key("dedup"), ctx.ready_key("dedup_reader")
    for what, made in (
        ("a card", ctx.card("redacted", metadata={"o": "1"})),
        ("a token", ctx.token("redacted", metadata={"o": "1"})),
    ):
        fresh = ctx.tokenize(made, reader)
        stored = record_of(fresh)
        if flag_of(stored) is not False or "metadata" not in stored:
            raise Inconclusive(f"{what}: the check needs a new record that shows its metadata")
        asked = {**made, "metadata": {"o": "2"}}
        hidden = ctx.tokenize(asked, blind)
        shown = ctx.tokenize(asked, reader)
        for exchange in (hidden, shown):
            if record_of(exchange).get("id") != stored["id"]:
                raise Inconclusive(f"{what} is not deduplicated between the two keys")
        yield from _redacted(ctx, what, stored, fresh, hidden, may_read=False)
        yield from _redacted(ctx, what, stored, fresh, shown, may_read=True)
    yield from _view(ctx, blind, stored["id"])


def _view(ctx: CheckContext, blind: KeyLabel, token_id: str) -> Iterator[Finding]:
    """Find what a key without token:read sees of a stored record in other answers."""
    values: dict[str, Json] = {"id": token_id, "value": "viewed"}
    patched = ctx.call("patch", values, key=blind, headers=_MERGE_PATCH)
    if member_of(patched, "id") is not None:
        seen = "metadata" if "metadata" in patched.json else "redacted"
        yield ctx.reads("REC-DEDUP-REDACT", "tokens.record_view", seen, patched)


def _redacted(
    ctx: CheckContext,
    what: str,
    stored: dict[str, Any],
    fresh: Exchange,
    exchange: Exchange,
    *,
    may_read: bool,
) -> Iterator[Finding]:
    """Judge which fields a deduplicated record shows; stored: the record of the new token."""
    record = record_of(exchange)
    odd = stored.keys() - record.keys() if may_read else record.keys()
    wrong = [name for name in _REDACTED if name in odd]
    right, verb = ("with", "shown") if may_read else ("without", "left out")
    seen = f"{what}: {right} token:read data and metadata are {verb}"
    says = f"{what}: {right} token:read {' and '.join(wrong)} must be {verb}"
    is_part = len(wrong) < len(_REDACTED)
    symptom: Symptom = "hides" if may_read else "leaks-in-part" if is_part else "leaks"
    for clause in ("REC-DEDUP-REDACT", "AUTH-READ"):
        if wrong:
            yield ctx.fails(clause, says, fresh, exchange, symptoms=(symptom,), place=what)
        else:
            yield ctx.passes(clause, seen, fresh, exchange)
    if not may_read and not wrong and stored.keys() - _NARROW - set(_REDACTED):
        choice = "narrow" if record.keys() <= _NARROW else "data_metadata"
        yield ctx.reads("REC-DEDUP-REDACT", "dedup.redact", choice, fresh, exchange)


@check(
    "deduplication.leaves",
    "TOK-DEDUP",
    accepts="a string that is already stored comes back as the same identifier",
    roles=("dedup",),
    requests=4,
)
def leaves(ctx: CheckContext) -> Iterator[Finding]:
    """A plain string that is already stored returns the existing token's identifier."""
    key = ctx.spread_key("dedup")
    text = ctx.value("string")
    first = ctx.tokenize({"a": text}, key)
    second = ctx.tokenize({"b": [text]}, key)
    answers = ((first, accepted(first)), (second, accepted(second)))
    found = [given for one, answer in answers for _, given in elements(one.ask.body, answer)]
    if len(found) < len(answers):
        yield ctx.unsettled("TOK-DEDUP", "the answers do not mirror the bodies", first, second)
        return
    says = "the existing identifier must come back"
    yield ctx.rule("TOK-DEDUP", says, first, second, is_so=found[0] == found[1])
