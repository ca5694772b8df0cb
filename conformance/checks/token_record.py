"""Section 2.1: the fields of a token record, its fingerprint among them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Any, Final

from conformance.checks._oracle import record_rules
from conformance.context.answers import identifiers, is_uuid, record_of, records_of
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.model.comparison import instant, is_equal
from engine.messages import Json
from engine.tokens.cards import card_mask

_SECOND_NS: Final = 1_000_000_000
_CLOCKS_DIFFER: Final = timedelta(minutes=5)
_ROUNDING_S: Final = 2
_FORMER: Final = ("REC-ID", "REC-TENANT", "REC-TYPE", "REC-CREATED", "REC-EXTRAS")


# --- the fields of every record -----------------------------------------------------------------


@check(
    "record.fields",
    *_FORMER,
    "REC-TOKEN-DATA",
    accepts="each field in its specified form; further fields are fine",
    requests=8,
)
def fields(ctx: CheckContext) -> Iterator[Finding]:
    """Every record has its identifier, tenant, type, creator, creation time and flag."""
    key = ctx.ready_key("private_prod")
    seen: list[tuple[dict[str, Any], Exchange]] = []
    for number in range(2):
        both: list[Json] = [ctx.token(f"both {number}"), ctx.card(f"both {number}")]
        exchange = ctx.tokenize(both, key)
        seen += [(record, exchange) for record in records_of(exchange, 2)]
    single = ctx.tokenize(ctx.token("single", metadata={"a": "b"}), key)
    seen.append((record_of(single), single))
    asked = ("token", "card", "token", "card", "token")
    leaf = ctx.tokenize([ctx.value("leaf")], key)
    says = "the identifier of a plain string must be a UUID string"
    yield ctx.rule("REC-ID", says, leaf, is_so=is_uuid(identifiers(leaf, 1)[0]))
    for (record, exchange), type_ in zip(seen, asked, strict=True):
        yield from _one_record(ctx, record, type_, exchange)
    yield from _together(ctx, seen)
    yield from _elapsed(ctx, seen[0], seen[-1])


def _one_record(
    ctx: CheckContext, record: dict[str, Any], type_: str, exchange: Exchange
) -> Iterator[Finding]:
    for clause, says, is_so in record_rules(record, type_):
        yield ctx.rule(clause, says, exchange, is_so=is_so)
    created = instant(record.get("created_at"))
    if created is not None:
        yield _is_now(ctx, created, exchange)
    if type_ == "token":
        says = "the record of a `token` must have no `data`"
        yield ctx.rule("REC-TOKEN-DATA", says, exchange, is_so="data" not in record)


def _is_now(ctx: CheckContext, created: datetime, exchange: Exchange) -> Finding:
    """Judge a creation time by the answer's `Date`, or else by this machine's clock."""
    by, answered = "the answer's Date", _answered(exchange)
    if answered is None:
        by = "this machine's clock"
        at_ns = ctx.session.wall_start_ns + exchange.received_ns
        answered = datetime.fromtimestamp(at_ns // _SECOND_NS, UTC)
    apart = created - answered
    says = f"`created_at` must be the current time by {by}"
    if abs(apart) < _CLOCKS_DIFFER:
        return ctx.passes("REC-CREATED", f"`created_at` is the current time by {by}", exchange)
    seen = f"{abs(apart)} {'ahead' if apart > timedelta() else 'behind'}"
    return ctx.fails("REC-CREATED", f"{says}, but is {seen}", exchange)


def _answered(exchange: Exchange) -> datetime | None:
    """Return the time in an answer's `Date` header, None without one."""
    date = exchange.header("Date")
    try:
        found = None if date is None else parsedate_to_datetime(date)
    except ValueError:
        return None
    return None if found is None or found.tzinfo is None else found


def _together(ctx: CheckContext, seen: list[tuple[dict[str, Any], Exchange]]) -> Iterator[Finding]:
    shown = tuple(dict.fromkeys(exchange for _, exchange in seen))
    ids = [record.get("id") for record, _ in seen]
    if len(set(ids)) == len(ids):
        yield ctx.passes("REC-ID", "each token has an identifier of its own", *shown)
    else:
        says = "each token must have an identifier of its own"
        yield ctx.fails("REC-ID", says, *shown, symptoms=("shared-id",))
    for clause, name in (("REC-TENANT", "tenant_id"), ("REC-CREATED", "created_by")):
        found = {str(record.get(name)) for record, _ in seen}
        says = f"`{name}` must be the same for one key"
        yield ctx.rule(clause, says, *shown, is_so=len(found) == 1)


def _elapsed(
    ctx: CheckContext,
    first: tuple[dict[str, Any], Exchange],
    last: tuple[dict[str, Any], Exchange],
) -> Iterator[Finding]:
    """Judge whether the times of two records are as far apart as their requests."""
    one, two = instant(first[0].get("created_at")), instant(last[0].get("created_at"))
    if one is None or two is None:
        return
    apart = two - one
    least_ns = last[1].sent_ns - first[1].received_ns
    most_ns = last[1].received_ns - first[1].sent_ns
    slack = timedelta(seconds=_ROUNDING_S)
    holds = (
        timedelta(microseconds=least_ns // 1000) - slack
        <= apart
        <= timedelta(microseconds=most_ns // 1000) + slack
    )
    says = "`created_at` must be the time of the request"
    yield ctx.rule("REC-CREATED", says, first[1], last[1], is_so=holds)


@check(
    "record.tenants",
    "REC-TENANT",
    "REC-CREATED",
    accepts="one tenant_id for all keys of a tenant, another for another tenant's keys",
    roles=("private_prod", "private_test"),
    requests=6,
)
def tenants(ctx: CheckContext) -> Iterator[Finding]:
    """Records name the key's tenant: the same for keys of one tenant, else different ones."""
    found: dict[str, tuple[str, str, Exchange]] = {}
    for role in ("private_prod", "private_test", "private_reader"):
        if not ctx.keys(role):
            continue
        key = ctx.key(role)
        ctx.ready(key, role)
        exchange = ctx.tokenize(ctx.token(role), key)
        record = record_of(exchange)
        tenant, creator = str(record.get("tenant_id")), str(record.get("created_by"))
        found[key] = (tenant, creator, exchange)
    names = {label: ctx.target.key_labels[label].tenant for label in found}
    for two, one in itertools.combinations(found, 2):
        if names[one] is None or names[two] is None:
            continue
        is_same = names[one] == names[two]
        shown = (found[one][2], found[two][2])
        is_so = is_same == (found[one][0] == found[two][0])
        says = f"`tenant_id` of {one} and {two} must be {'the same' if is_same else 'different'}"
        yield ctx.rule("REC-TENANT", says, *shown, is_so=is_so)
        says = f"`created_by` of {one} and {two} must be different"
        yield ctx.rule("REC-CREATED", says, *shown, is_so=found[one][1] != found[two][1])
    if all(name is None for name in names.values()):
        yield ctx.unsettled("REC-TENANT", "the target does not name the tenants of these keys")


# --- the mask -----------------------------------------------------------------------------------


@check(
    "record.mask",
    "REC-CARD-MASK",
    accepts="`mask`, `data` or both contain the masked card and nothing else",
)
def mask(ctx: CheckContext) -> Iterator[Finding]:
    """A card's record shows the number with all but the last four digits as `X`, and the expiry."""
    key = ctx.ready_key("private_prod")
    views: set[str] = set()
    last: Exchange | None = None
    for digits in range(12, 20):
        data = {
            "number": ctx.card_number("mask", digits),
            "expiration_month": 1 + digits % 12,
            "expiration_year": 2020 + digits,
            "cvc": "7319"[: 3 + digits % 2],
        }
        last = ctx.tokenize({"type": "card", "data": data}, key)
        record = record_of(last)
        found = [name for name in ("mask", "data") if name in record]
        views.add("both" if len(found) > 1 else "".join(found))
        if not found:
            yield ctx.fails("REC-CARD-MASK", "the record must contain `mask` or `data`", last)
        for name in found:
            yield _masked(ctx, name, record[name], data, last)
    if len(views) == 1 and last is not None and views <= {"both", "mask", "data"}:
        yield ctx.reads("REC-CARD-MASK", "tokens.card_view", views.pop(), last)


def _masked(
    ctx: CheckContext,
    name: str,
    seen: Any,  # noqa: ANN401 # reason: any JSON
    data: dict[str, Any],
    exchange: Exchange,
) -> Finding:
    number, wanted = data["number"], card_mask(data)
    if is_equal(wanted, seen):
        says = f"`{name}` of {len(number)} digits shows the last four"
        return ctx.passes("REC-CARD-MASK", says, exchange)
    if isinstance(seen, dict) and seen.keys() - wanted.keys():
        says = f"`{name}` must contain the masked number and the expiry, nothing else"
    elif isinstance(seen, dict) and seen.get("number") != wanted["number"]:
        says = f"`{name}.number` of {len(number)} digits must be `X` except for the last four"
    else:
        says = f"`{name}` must contain number, expiration_month and expiration_year (integers)"
    return ctx.fails("REC-CARD-MASK", says, exchange)


# --- what was supplied comes back ---------------------------------------------------------------

_METADATA: Final[tuple[dict[str, str], ...]] = (
    {"a": "1"},
    {"Order": "42", "order": "43"},
    {"\u043a\u043b\u044e\u0447": "\u00e9\u00df \U0001f511", "type": "card", "quote": '"\\/'},
    {"empty": "", "space": " ", "long": "x" * 200, "lines": "a\nb"},
    {"composed \u00e9": "\u00e9", "e\u0301": "e\u0301 \ufb01 \u212b", " edges ": " both "},
)
_INDEXES: Final[tuple[tuple[str, list[str]], ...]] = (
    ("token", ["{{ data }}"]),
    ("card", ["{{ data.number }}", "{{ data.expiration_year }}", "{{ data.expiration_month }}"]),
)


@check(
    "record.echo",
    "REC-METADATA",
    "REC-INDEXES",
    accepts="exactly what was supplied, with indexes in order; absent if nothing was supplied",
    requests=13,
)
def echo(ctx: CheckContext) -> Iterator[Finding]:
    """Metadata and search indexes come back exactly, and only if supplied."""
    key = ctx.ready_key("private_prod")
    for place, supplied in enumerate(_METADATA):
        made = ctx.card if place % 2 else ctx.token
        given: dict[str, Json] = dict(supplied)
        body = made(f"metadata {place}", metadata=given)
        exchange = ctx.tokenize(body, key)
        yield _echoed(ctx, "REC-METADATA", "metadata", supplied, exchange)
    for place, (type_, expressions) in enumerate(_INDEXES):
        made = ctx.card if type_ == "card" else ctx.token
        listed: list[Json] = list(expressions)
        body = made(f"indexes {place}", search_indexes=listed)
        exchange = ctx.tokenize(body, key)
        yield _echoed(ctx, "REC-INDEXES", "search_indexes", expressions, exchange)
    for body in (ctx.token("nothing"), ctx.card("nothing")):
        exchange = ctx.tokenize(body, key)
        record = record_of(exchange)
        for clause, name in (("REC-METADATA", "metadata"), ("REC-INDEXES", "search_indexes")):
            if clause == "REC-INDEXES" and not record.get(name):
                yield ctx.passes(clause, f"no `{name}` where none was supplied", exchange)
                continue
            says = f"`{name}` must be absent where none was supplied"
            yield ctx.rule(clause, says, exchange, is_so=name not in record)


def _echoed(
    ctx: CheckContext,
    clause: str,
    name: str,
    supplied: Any,  # noqa: ANN401 # reason: any JSON
    exchange: Exchange,
) -> Finding:
    says = f"`{name}` must come back exactly as supplied"
    return ctx.rule(clause, says, exchange, is_so=record_of(exchange).get(name) == supplied)


# --- the fingerprint, and the expression that selects its input -----------------------------------


@check(
    "record.expression",
    "REC-FPEXPR",
    accepts="the expression supplied; `{{ data.number }}` for a card without one",
    requests=6,
)
def expression(ctx: CheckContext) -> Iterator[Finding]:
    """`fingerprint_expression` is the expression in force."""
    key = ctx.ready_key("private_prod")
    number: Json = "{{ data.number }}"
    for what, body, wanted in (
        ("a card without it", ctx.card("none"), number),
        ("a card that supplies it", ctx.card("own", fingerprint_expression=number), number),
        ("a token that supplies it", ctx.token("t", fingerprint_expression="{{ data }}"), None),
    ):
        exchange = ctx.tokenize(body, key)
        found = record_of(exchange).get("fingerprint_expression")
        expected = wanted or "{{ data }}"
        says = f"{what}: `fingerprint_expression` must be {expected}"
        yield ctx.rule("REC-FPEXPR", says, exchange, is_so=found == expected)
    yield from _expression_readings(ctx, key)


def _expression_readings(ctx: CheckContext, key: KeyLabel) -> Iterator[Finding]:
    """D-FPEXPR-DEFAULT and D-CARD-FPEXPR."""
    bare = ctx.tokenize(ctx.token("bare"), key)
    record = record_of(bare)
    found = record.get("fingerprint_expression")
    seen = "hidden" if found is None else "shown" if found == "{{ data }}" else None
    says = "a token's default expression must be {{ data }}"
    yield ctx.reads_or_fails("REC-FPEXPR", "tokens.fpexpr_default", seen, says, bare)
    year: Json = "{{ data.expiration_year }}"
    other = ctx.tokenize(ctx.card("year", fingerprint_expression=year), key)
    if not other.ok:
        return
    found = record_of(other).get("fingerprint_expression")
    seen = "supplied" if found == year else "number" if found == "{{ data.number }}" else None
    says = "a card's expression must be the one supplied or {{ data.number }}"
    yield ctx.reads_or_fails("REC-FPEXPR", "tokens.card_fpexpr", seen, says, other)


@check(
    "record.fingerprint",
    "REC-FINGERPRINT",
    accepts="equal for equal selected values, different for different ones",
    requests=6,
)
def fingerprint(ctx: CheckContext) -> Iterator[Finding]:
    """A fingerprint depends on the value that the expression selects, and on nothing else."""
    key = ctx.ready_key("private_prod")
    one, other = ctx.card("printed"), ctx.card("printed otherwise")
    later = {**one, "data": {**one["data"], "expiration_year": 2040, "cvc": "111"}}
    cards = ctx.tokenize([one, later, other], key)
    yield from _prints(ctx, "a card's number", cards)
    whole: dict[str, Json] = {"fingerprint_expression": "{{ data }}"}
    same = ctx.token("printed", **whole)
    strings = ctx.tokenize(
        [same, {**same, "metadata": {"a": "b"}}, ctx.token("printed otherwise", **whole)],
        key,
    )
    yield from _prints(ctx, "a token's string", strings)


def _prints(ctx: CheckContext, what: str, exchange: Exchange) -> Iterator[Finding]:
    """Judge three records: the selected values of the first two are equal, the third differs."""
    found = [record.get("fingerprint") for record in records_of(exchange, 3)]
    if not all(isinstance(one, str) and one for one in found):
        yield ctx.fails("REC-FINGERPRINT", f"{what}: `fingerprint` must be a string", exchange)
        return
    says = f"{what}: an equal value must have an equal fingerprint"
    yield ctx.rule("REC-FINGERPRINT", says, exchange, is_so=found[0] == found[1])
    says = f"{what}: a different value must have a different fingerprint"
    yield ctx.rule("REC-FINGERPRINT", says, exchange, is_so=found[0] != found[2])


@check(
    "record.value",
    "REC-FINGERPRINT",
    accepts="a fingerprint that does not contain the value",
    requests=3,
)
def not_the_value(ctx: CheckContext) -> Iterator[Finding]:
    """A fingerprint is derived from the value and does not contain it."""
    key = ctx.ready_key("private_prod")
    secret = ctx.value("derived")
    body: Json = {"type": "token", "data": secret, "fingerprint_expression": "{{ data }}"}
    exchange = ctx.tokenize(body, key)
    found = record_of(exchange).get("fingerprint")
    if not isinstance(found, str):
        raise Inconclusive("the record shows no fingerprint")
    says = "`fingerprint` must be derived from the value, without containing it"
    yield ctx.rule("REC-FINGERPRINT", says, exchange, is_so=secret not in found)
