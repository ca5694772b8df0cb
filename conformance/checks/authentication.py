"""Section 5: the header with the key, and the permissions that requests need on containers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from conformance.runner.answers import is_known, is_refused, member_of, record_of, text_of
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, check
from conformance.runner.verdicts import Finding
from conformance.target import Grant
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json

_UNKNOWN_KEY: Final = "key_prod_us_pvt_1111111111111111111111"


# --- the header ---------------------------------------------------------------------------------


@check(
    "authentication.header",
    "AUTH-HEADER",
    accepts="2xx with the key in its header, in any letter case; 4xx for no or an unknown key",
)
def header(bench: Bench) -> Iterator[Finding]:
    """The API key is read from its request header, and requests without a key are refused."""
    key = bench.spread_key("private_prod")
    shown = bench.ready(key)
    yield bench.passes("AUTH-HEADER", "a key in its header is accepted", shown)
    name = bench.target.key_header
    for spelled in (name.lower(), name.upper()):
        headers = {spelled: f"{{key:{key}}}"}
        exchange = bench.tokenize([bench.value(spelled)], None, headers=headers)
        yield bench.acceptance("AUTH-HEADER", f"the key in a header spelled {spelled}", exchange)
    for what, headers in (
        ("no key", {}),
        ("an unknown key", {name: _UNKNOWN_KEY}),
        ("an empty key", {name: ""}),
        ("a key with a letter more", {name: f"{{key:{key}}}x"}),
    ):
        exchange = bench.tokenize([bench.value(what)], None, headers=headers)
        yield bench.refusal("AUTH-HEADER", what, exchange)
    others = {"Authorization": f"Bearer {{key:{key}}}", "X-Api-Key": f"{{key:{key}}}"}
    elsewhere = {one: text for one, text in others.items() if one.lower() != name.lower()}
    exchange = bench.tokenize([bench.value("elsewhere")], None, headers=elsewhere)
    if exchange.ok:
        yield bench.informs("AUTH-HEADER", "a key in other headers is accepted too", exchange)
    else:
        yield bench.refusal("AUTH-HEADER", "a key in other headers only", exchange)


# --- token:create, by kind of application -------------------------------------------------------


@check(
    "authentication.create",
    "AUTH-CREATE",
    accepts="2xx with token:create, any 4xx but 401 without it, and nothing created",
    roles=("private_prod", "private_no_permission"),
    requests=16,
)
def create(bench: Bench) -> Iterator[Finding]:
    """Tokenize needs token:create, for every kind of application."""
    asker = bench.ready_key("private_prod")
    for role in ("private_prod", "public", "legacy", "private_reader"):
        if not bench.keys(role):
            continue
        key = bench.spread_key(role)
        exchange = bench.tokenize([bench.value(role)], key)
        may = bench.target.may(key, "token:create")
        if may is None and is_refused(exchange):
            yield _untold(bench, f"a {role} key", exchange)
        elif may is not False:
            yield _with_right(bench, f"a {role} key", exchange)
    for role in ("private_no_permission", "management", "public", "legacy"):
        if bench.keys(role) and role not in bench.session.doubts:
            yield from _by_role(bench, role, asker)


def _by_role(bench: Bench, role: str, asker: KeyLabel) -> Iterator[Finding]:
    """Tokenize with a key that lacks token:create, or whose permissions are not known."""
    key = bench.spread_key(role)
    may = bench.target.may(key, "token:create")
    if may or (may is None and role != "management"):
        return
    made = bench.token(f"by {role}")
    for what, body in (("an object", made), ("an array", [made]), ("a string", {"a": "x"})):
        exchange = bench.tokenize(body, key)
        if may is None and exchange.ok:
            yield _untold(bench, f"{what} by a {role} key", exchange)
            return
        yield _without_right(bench, f"{what} by a {role} key", exchange)
    yield from _nothing_made(bench, made, asker, exchange)


def _untold(bench: Bench, what: str, exchange: Exchange) -> Finding:
    """Report the answer to a key whose permissions the target file does not state."""
    seen = "accepted" if exchange.ok else f"refused with {exchange.status}"
    says = f"{what}: {seen}; to have this judged, state the key's permissions in [[keys]] grants"
    return bench.informs("AUTH-CREATE", says, exchange)


def _with_right(bench: Bench, what: str, exchange: Exchange) -> Finding:
    if exchange.status == 403:  # reason: forbidden
        return bench.fails("AUTH-CREATE", f"{what} holds token:create and is refused", exchange)
    return bench.ok_or_unsettled("AUTH-CREATE", what, exchange)


def _without_right(bench: Bench, what: str, exchange: Exchange) -> Finding:
    if exchange.status == 401:  # reason: an unknown key shows nothing about permissions
        return bench.unsettled("AUTH-CREATE", f"{what}: 401, the key is not known there", exchange)
    return bench.refusal("AUTH-CREATE", f"{what} without token:create", exchange)


def _nothing_made(
    bench: Bench, made: dict[str, Any], asker: KeyLabel, refused: Exchange
) -> Iterator[Finding]:
    """Look for a token that a refused request may have created, with a key of its tenant."""
    try:
        there, shown = bench.deduplicated(made, asker)
    except Inconclusive:
        return
    says = "a request without token:create must create nothing"
    yield bench.rule("AUTH-CREATE", says, refused, shown, is_so=not there)


# --- token:create on each container -------------------------------------------------------------


class _Places:
    """The one container that a key may write to, and others that it may not write to."""

    def __init__(self, bench: Bench, key: KeyLabel) -> None:
        tokens, may = bench.profile.tokens, bench.target.may
        self.inside = bench.target.container_of(key)
        is_path = self.inside.endswith("/")
        usual = (tokens.container_default_token, tokens.container_default_card)
        others = (*bench.target.containers, *usual, "/general/high/", "/conformance/")
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
def containers(bench: Bench) -> Iterator[Finding]:
    """A request needs token:create on each of its destination containers, named or default."""
    key = bench.spread_key("private_one_container")
    places = _Places(bench, key)
    inside = bench.container_of(places.inside)
    first = bench.tokenize(bench.token("named inside", **inside), key)
    if not first.ok:
        says = f"the key that may write to {places.inside} created no token there: {first.status}"
        way = "name the key's container in its [[keys]]"
        if not bench.knows("tokens.container_field"):
            way += ", and the field that selects it in the profile (tokens.container_field)"
        raise Inconclusive(f"{says}; {way}")
    for clause in bench.check.clauses:
        what = "a token in the container that the key may write to"
        yield bench.acceptance(clause, what, first)
    good = bench.token("beside", **inside)
    for what, body in _forbidden(bench, places, good):
        yield bench.refusal("AUTH-CREATE", what, bench.tokenize(body, key))
    if places.card_is_inside:
        exchange = bench.tokenize(bench.card("default inside"), key)
        yield _with_right(bench, "a card whose default container is permitted", exchange)
    yield from _nothing_made(bench, good, key, first)


def _forbidden(bench: Bench, places: _Places, good: dict[str, Any]) -> Iterator[tuple[str, Json]]:
    """Yield requests with one token in a forbidden container, each at another place."""
    outside = bench.token("outside", **bench.container_of(places.outside or places.near))
    near = bench.token("near", **bench.container_of(places.near))
    yield f"a token in {places.outside or places.near}", outside
    yield f"a token in {places.near} (its name begins the same)", near
    yield "a forbidden container for the second token", [good, outside]
    yield "a forbidden container for the first token", [outside, good]
    yield "a forbidden container for a nested third token", {"a": good, "b": [good, {"c": outside}]}
    if places.token_is_outside:
        yield "a string (it goes to the default container)", {"a": bench.value("default")}
        yield "a token that names no container", bench.token("default")
        yield "a string beside a permitted token", [good, bench.value("default beside")]


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
def grants(bench: Bench) -> Iterator[Finding]:
    """An application is limited to its grants: one on a container gives none on another."""
    manager, asker = bench.spread_key("management"), bench.spread_key("private_prod")
    bench.ready(asker)
    paths = bench.target.containers or ("/conformance/one/", "/conformance/two/")
    if len(paths) < 2:  # reason: a right on one, none on the other
        yield bench.informs("AUTH-READ", "grants need two containers; the target names one")
        return
    open_path, closed_path = paths[0], paths[1]
    create_on = [{"container": path, "permissions": ["token:create"]} for path in paths[:2]]
    read_on = {"container": open_path, "permissions": ["token:create", "token:read"]}
    reader = _application(bench, manager, "reader", [read_on, create_on[1]])
    one = _application(bench, manager, "one", [create_on[0]])
    if reader is None or one is None:
        says = "applications cannot be created over HTTP; only the target's keys were used"
        yield from (bench.informs(clause, says) for clause in bench.check.clauses)
        return
    yield from _reads_by_container(bench, asker, reader, open_path, closed_path)
    inside = bench.token("one inside", **bench.container_of(open_path))
    exchange = bench.tokenize(inside, one)
    yield _with_right(bench, f"token:create on {open_path} alone", exchange)
    if exchange.ok:
        outside = bench.token("one outside", **bench.container_of(closed_path))
        for what, body in (("alone", outside), ("second", [inside, outside])):
            refused = bench.tokenize(body, one)
            yield _without_right(bench, f"a token in {closed_path} ({what})", refused)


def _application(
    bench: Bench, manager: KeyLabel, name: str, granted: list[dict[str, Any]]
) -> KeyLabel | None:
    """Create an application with a key; returns the key's label, None if that is not possible."""
    body: Json = {
        "name": bench.value(f"conformance {name}"),
        "kind": "private",
        "grants": list(granted),
    }
    made = bench.call("create_application", body=body, key=manager)
    made_id = member_of(made, "id")
    if made_id is None:
        return None
    answer = bench.call("create_application_key", {"id": made_id}, body={}, key=manager)
    text = text_of(answer, "key")
    if text is None:
        return None
    label = f"made.{name}"
    bench.learn_key(label, text)
    return label


def _reads_by_container(
    bench: Bench, asker: KeyLabel, reader: KeyLabel, open_path: str, closed_path: str
) -> Iterator[Finding]:
    flag = {bench.profile.dedup.flag_name: True}
    for path, may_read in ((open_path, True), (closed_path, False)):
        made = bench.token(f"read {path}", metadata={"o": "1"}, **bench.container_of(path))
        first = bench.tokenize(made, asker)
        if not first.ok:
            yield bench.informs("AUTH-READ", f"no token can be created in {path}", first)
            return
        again = bench.tokenize({**made, **flag}, reader)
        record = record_of(again)
        if not is_known(record):
            yield bench.unsettled("AUTH-READ", "the token was not deduplicated", first, again)
            return
        verb = "must show" if may_read else "must not show"
        says = f"token:read on {open_path} {verb} metadata of {path}"
        is_so = ("metadata" in record) is may_read
        yield bench.rule("AUTH-READ", says, first, again, is_so=is_so)
