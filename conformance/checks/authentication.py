"""Section 5: the header with the key, and the permissions that requests need on containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from conformance.context.answers import is_known, is_refused, member_of, record_of, text_of
from conformance.context.check import Inconclusive, check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, KeyLabel
from conformance.target import Grant
from engine.messages import Json

_UNKNOWN_KEY: Final = "key_prod_us_pvt_1111111111111111111111"


# --- the header ---------------------------------------------------------------------------------


@check(
    "authentication.header",
    "AUTH-HEADER",
    accepts="2xx with the key in its header, in any letter case; 4xx for no or an unknown key",
)
def header(ctx: CheckContext) -> Iterator[Finding]:
    """The API key is read from its request header, and requests without a key are refused."""
    key = ctx.spread_key("private_prod")
    shown = ctx.ready(key)
    yield ctx.passes("AUTH-HEADER", "a key in its header is accepted", shown)
    name = ctx.target.key_header
    for spelled in (name.lower(), name.upper()):
        headers = {spelled: f"{{key:{key}}}"}
        exchange = ctx.tokenize([ctx.value(spelled)], None, headers=headers)
        yield ctx.acceptance("AUTH-HEADER", f"the key in a header spelled {spelled}", exchange)
    for what, headers in (
        ("no key", {}),
        ("an unknown key", {name: _UNKNOWN_KEY}),
        ("an empty key", {name: ""}),
        ("a key with a letter more", {name: f"{{key:{key}}}x"}),
    ):
        exchange = ctx.tokenize([ctx.value(what)], None, headers=headers)
        yield ctx.refusal("AUTH-HEADER", what, exchange)
    others = {"Authorization": f"Bearer {{key:{key}}}", "X-Api-Key": f"{{key:{key}}}"}
    elsewhere = {one: text for one, text in others.items() if one.lower() != name.lower()}
    exchange = ctx.tokenize([ctx.value("elsewhere")], None, headers=elsewhere)
    if exchange.ok:
        yield ctx.informs("AUTH-HEADER", "a key in other headers is accepted too", exchange)
    else:
        yield ctx.refusal("AUTH-HEADER", "a key in other headers only", exchange)


# --- token:create, by kind of application -------------------------------------------------------


@check(
    "authentication.create",
    "AUTH-CREATE",
    accepts="2xx with token:create, any 4xx but 401 without it, and nothing created",
    roles=("private_prod", "private_no_permission"),
    requests=16,
)
def create(ctx: CheckContext) -> Iterator[Finding]:
    """Tokenize needs token:create, for every kind of application."""
    asker = ctx.ready_key("private_prod")
    for role in ("private_prod", "public", "legacy", "private_reader"):
        if not ctx.keys(role):
            continue
        key = ctx.spread_key(role)
        exchange = ctx.tokenize([ctx.value(role)], key)
        may = ctx.target.may(key, "token:create")
        if may is None and is_refused(exchange):
            yield _untold(ctx, f"a {role} key", exchange)
        elif may is not False:
            yield _with_right(ctx, f"a {role} key", exchange)
    for role in ("private_no_permission", "management", "public", "legacy"):
        if ctx.keys(role) and role not in ctx.session.doubts:
            yield from _by_role(ctx, role, asker)


def _by_role(ctx: CheckContext, role: str, asker: KeyLabel) -> Iterator[Finding]:
    """Tokenize with a key that lacks token:create, or whose permissions are not known."""
    key = ctx.spread_key(role)
    may = ctx.target.may(key, "token:create")
    if may or (may is None and role != "management"):
        return
    made = ctx.token(f"by {role}")
    for what, body in (("an object", made), ("an array", [made]), ("a string", {"a": "x"})):
        exchange = ctx.tokenize(body, key)
        if may is None and exchange.ok:
            yield _untold(ctx, f"{what} by a {role} key", exchange)
            return
        yield _without_right(ctx, f"{what} by a {role} key", exchange)
    yield from _nothing_made(ctx, made, asker, exchange)


def _untold(ctx: CheckContext, what: str, exchange: Exchange) -> Finding:
    """Report the answer to a key whose permissions the target file does not state."""
    seen = "accepted" if exchange.ok else f"refused with {exchange.status}"
    says = f"{what}: {seen}; to have this judged, state the key's permissions in [[keys]] grants"
    return ctx.informs("AUTH-CREATE", says, exchange)


def _with_right(ctx: CheckContext, what: str, exchange: Exchange) -> Finding:
    if exchange.status == 403:  # reason: forbidden
        return ctx.fails("AUTH-CREATE", f"{what} holds token:create and is refused", exchange)
    return ctx.ok_or_unsettled("AUTH-CREATE", what, exchange)


def _without_right(ctx: CheckContext, what: str, exchange: Exchange) -> Finding:
    if exchange.status == 401:  # reason: an unknown key shows nothing about permissions
        return ctx.unsettled("AUTH-CREATE", f"{what}: 401, the key is not known there", exchange)
    return ctx.refusal("AUTH-CREATE", f"{what} without token:create", exchange)


def _nothing_made(
    ctx: CheckContext, made: dict[str, Any], asker: KeyLabel, refused: Exchange
) -> Iterator[Finding]:
    """Look for a token that a refused request may have created, with a key of its tenant."""
    try:
        there, shown = ctx.deduplicated(made, asker)
    except Inconclusive:
        return
    says = "a request without token:create must create nothing"
    yield ctx.rule("AUTH-CREATE", says, refused, shown, is_so=not there)


# --- token:create on each container -------------------------------------------------------------


class _Places:
    """The one container that a key may write to, and others that it may not write to."""

    def __init__(self, ctx: CheckContext, key: KeyLabel) -> None:
        tokens, may = ctx.profile.tokens, ctx.target.may
        self.inside = ctx.target.container_of(key)
        is_path = self.inside.endswith("/")
        usual = (tokens.container_default_token, tokens.container_default_card)
        others = (*ctx.target.containers, *usual, "/general/high/", "/conformance/")
        covers = Grant(permissions=(), container=self.inside).covers
        outside = [path for path in others if not covers(path)]
        self.outside = next((path for path in outside if path.endswith("/") is is_path), None)
        self.near = self.inside.rstrip("/") + ("-other/" if is_path else "-other")
        self.token_is_outside = not covers(usual[0])
        may_create = may(key, "token:create", usual[1]) is not False
        self.card_is_inside = may_create and covers(usual[1])


@check(
    "authentication.containers",
    "AUTH-CREATE",
    "TOK-CONTAINER",
    accepts="2xx where the key holds token:create on every destination, else any 4xx",
    roles=("private_one_container",),
    requests=16,
)
def containers(ctx: CheckContext) -> Iterator[Finding]:
    """A request needs token:create on each of its destination containers, named or default."""
    key = ctx.spread_key("private_one_container")
    places = _Places(ctx, key)
    inside = ctx.container_of(places.inside)
    first = ctx.tokenize(ctx.token("named inside", **inside), key)
    if not first.ok:
        says = f"the key that may write to {places.inside} created no token there: {first.status}"
        way = "name the key's container in its [[keys]]"
        if not ctx.knows("tokens.container_field"):
            way += ", and the field that selects it in the profile (tokens.container_field)"
        raise Inconclusive(f"{says}; {way}")
    for clause in ctx.check.clauses:
        what = "a token in the container that the key may write to"
        yield ctx.acceptance(clause, what, first)
    good = ctx.token("beside", **inside)
    for what, body in _forbidden(ctx, places, good):
        yield ctx.refusal("AUTH-CREATE", what, ctx.tokenize(body, key))
    if places.card_is_inside:
        exchange = ctx.tokenize(ctx.card("default inside"), key)
        yield _with_right(ctx, "a card whose default container is permitted", exchange)
    yield from _nothing_made(ctx, good, key, first)


def _forbidden(
    ctx: CheckContext, places: _Places, good: dict[str, Any]
) -> Iterator[tuple[str, Json]]:
    """Yield requests with one token in a forbidden container, each at another place."""
    outside = ctx.token("outside", **ctx.container_of(places.outside or places.near))
    near = ctx.token("near", **ctx.container_of(places.near))
    yield f"a token in {places.outside or places.near}", outside
    yield f"a token in {places.near} (its name begins the same)", near
    yield "a forbidden container for the second token", [good, outside]
    yield "a forbidden container for the first token", [outside, good]
    yield "a forbidden container for a nested third token", {"a": good, "b": [good, {"c": outside}]}
    if places.token_is_outside:
        yield "a string (it goes to the default container)", {"a": ctx.value("default")}
        yield "a token that names no container", ctx.token("default")
        yield "a string beside a permitted token", [good, ctx.value("default beside")]


# --- applications made for the purpose ----------------------------------------------------------


@check(
    "authentication.grants",
    "AUTH-CREATE",
    "AUTH-READ",
    accepts="what the application's grants allow, container by container",
    roles=("management", "private_prod"),
    requests=16,
    is_extra=True,
)
def grants(ctx: CheckContext) -> Iterator[Finding]:
    """An application is limited to its grants: one on a container gives none on another."""
    manager, asker = ctx.spread_key("management"), ctx.spread_key("private_prod")
    ctx.ready(asker)
    paths = ctx.target.containers or ("/conformance/one/", "/conformance/two/")
    if len(paths) < 2:  # reason: a right on one, none on the other
        yield ctx.informs("AUTH-READ", "grants need two containers; the target names one")
        return
    open_path, closed_path = paths[0], paths[1]
    create_on = [{"container": path, "permissions": ["token:create"]} for path in paths[:2]]
    read_on = {"container": open_path, "permissions": ["token:create", "token:read"]}
    reader = _application(ctx, manager, "reader", [read_on, create_on[1]])
    one = _application(ctx, manager, "one", [create_on[0]])
    if reader is None or one is None:
        says = "applications cannot be created over HTTP; only the target's keys were used"
        yield from (ctx.informs(clause, says) for clause in ctx.check.clauses)
        return
    yield from _reads_by_container(ctx, asker, reader, open_path, closed_path)
    inside = ctx.token("one inside", **ctx.container_of(open_path))
    exchange = ctx.tokenize(inside, one)
    yield _with_right(ctx, f"token:create on {open_path} alone", exchange)
    if exchange.ok:
        outside = ctx.token("one outside", **ctx.container_of(closed_path))
        for what, body in (("alone", outside), ("second", [inside, outside])):
            refused = ctx.tokenize(body, one)
            yield _without_right(ctx, f"a token in {closed_path} ({what})", refused)


def _application(
    ctx: CheckContext, manager: KeyLabel, name: str, granted: list[dict[str, Any]]
) -> KeyLabel | None:
    """Create an application with a key; returns the key's label, None if that is not possible."""
    body: Json = {
        "name": ctx.value(f"conformance {name}"),
        "kind": "private",
        "grants": list(granted),
    }
    made = ctx.call("create_application", body=body, key=manager)
    made_id = member_of(made, "id")
    if made_id is None:
        return None
    answer = ctx.call("create_application_key", {"id": made_id}, body={}, key=manager)
    text = text_of(answer, "key")
    if text is None:
        return None
    label = f"made.{name}"
    ctx.learn_key(label, text)
    return label


def _reads_by_container(
    ctx: CheckContext, asker: KeyLabel, reader: KeyLabel, open_path: str, closed_path: str
) -> Iterator[Finding]:
    flag = {ctx.profile.dedup.flag_name: True}
    for path, may_read in ((open_path, True), (closed_path, False)):
        made = ctx.token(f"read {path}", metadata={"o": "1"}, **ctx.container_of(path))
        first = ctx.tokenize(made, asker)
        if not first.ok:
            yield ctx.informs("AUTH-READ", f"no token can be created in {path}", first)
            return
        again = ctx.tokenize({**made, **flag}, reader)
        record = record_of(again)
        if not is_known(record):
            yield ctx.unsettled("AUTH-READ", "the token was not deduplicated", first, again)
            return
        verb = "must show" if may_read else "must not show"
        says = f"token:read on {open_path} {verb} metadata of {path}"
        is_so = ("metadata" in record) is may_read
        yield ctx.rule("AUTH-READ", says, first, again, is_so=is_so)
