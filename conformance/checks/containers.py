"""Section 1: a token is created inside a destination container, which the request determines."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any, Final

from conformance.context.answers import is_refused, record_of
from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding
from conformance.messages.exchange import Exchange, KeyLabel
from engine.messages import Json

_CHOICES: Final = ("tokens.container_default_token", "tokens.container_default_card")


_NAMES: Final = ("containers", "container", "container_path", "container_id", "vault")
"""Names that the field may have, the most likely first (D-CONTAINER)."""


@check(
    "containers.field",
    "TOK-CONTAINER",
    accepts="any field that selects the container is a reading; a profile's own must be the one",
    roles=("private_reader",),
    requests=5,
)
def field(ctx: CheckContext) -> Iterator[Finding]:
    """Find the field that selects the container: the record then shows the container it names."""
    key = ctx.ready_key("private_reader")
    path = (ctx.target.containers or ("/conformance/named/",))[0]
    usual = ctx.profile.tokens.container_field
    is_told = ctx.knows("tokens.container_field")
    shown: list[Exchange] = []
    names = tuple(dict.fromkeys((usual, *_NAMES)))
    forms: tuple[Json, ...] = ([path], path)
    for name, given in itertools.product(names, forms):
        exchange = ctx.tokenize(ctx.token(f"field {name}", **{name: given}), key)
        shown.append(exchange)
        if not exchange.ok or _found_in(ctx, exchange, key)[0] != path:
            continue
        if is_told and name != usual:
            says = f"`{usual}` must select the container, as the profile says; `{name}` does"
            yield ctx.fails("TOK-CONTAINER", says, exchange)
        else:
            yield ctx.reads("TOK-CONTAINER", "tokens.container_field", name, exchange)
        return
    says = f"none of {', '.join(names)} was seen to select a container; {_way_out(ctx)}"
    yield ctx.informs("TOK-CONTAINER", says, *shown[:2])


def _way_out(ctx: CheckContext) -> str:
    """Return what to add to the target or its profile so that containers can be judged."""
    if not ctx.knows("tokens.container_field"):
        return "name the field in the profile (tokens.container_field)"
    if not ctx.target.containers:
        return "name containers that exist in the target (containers)"
    return "neither the record nor a read of the token shows its container"


@check(
    "containers.named",
    "TOK-CONTAINER",
    accepts="2xx for a named container, and the token is found there",
    roles=("private_reader",),
    requests=9,
)
def named(ctx: CheckContext) -> Iterator[Finding]:
    """A token goes into the container that its request names."""
    key = ctx.ready_key("private_reader")
    paths = ctx.target.containers or ("/conformance/named/", "/conformance/other/")
    form, shown = _form(ctx, key, paths[0])
    if form is None:
        field = ctx.profile.tokens.container_field
        says = f"`{field}` was not accepted with a container ({shown.status}); {_way_out(ctx)}"
        yield ctx.unsettled("TOK-CONTAINER", says, shown)
        return
    nonsense = ctx.token("nonsense", **{ctx.profile.tokens.container_field: 5})
    is_understood = ctx.knows("tokens.container_field") or is_refused(ctx.tokenize(nonsense, key))
    if is_understood:
        yield ctx.reads("TOK-CONTAINER", "tokens.container_form", form, shown)
    for path in paths[:2]:
        exchange = ctx.tokenize(ctx.token(path, **ctx.container_of(path, form)), key)
        found, where = _found_in(ctx, exchange, key)
        if found is None:
            says = "a container is accepted, but no record shows it"
            yield ctx.informs("TOK-CONTAINER", says, exchange)
        elif found != path and not is_understood:
            field = ctx.profile.tokens.container_field
            says = f"`{field}` is ignored here; {_way_out(ctx)}"
            yield ctx.unsettled("TOK-CONTAINER", says, exchange, where)
        else:
            says = f"the token must be in {path}; its record shows {found}"
            yield ctx.rule("TOK-CONTAINER", says, exchange, where, is_so=found == path)


def _form(ctx: CheckContext, key: KeyLabel, path: str) -> tuple[str | None, Exchange]:
    """Return which form of the field is accepted; the other is tried if the first is refused."""
    known = ctx.profile.tokens.container_form
    for form in (known, "string" if known == "array" else "array"):
        made = ctx.token(f"form {form}", **ctx.container_of(path, form))
        exchange = ctx.tokenize(made, key)
        if exchange.ok:
            return form, exchange
    return None, exchange


def _found_in(ctx: CheckContext, exchange: Exchange, key: KeyLabel) -> tuple[str | None, Exchange]:
    """Return the container that the record shows, or a read of the token where it shows none."""
    record = record_of(exchange)
    path = _shown(ctx, record)
    if path is not None:
        return path, exchange
    read = ctx.call("get", {"id": record["id"]}, key=key)
    return (_shown(ctx, record_of(read)) if read.ok else None), read


def _shown(ctx: CheckContext, record: dict[str, Any]) -> str | None:
    for name in (ctx.profile.tokens.container_field, "containers", "container"):
        found = record.get(name)
        if isinstance(found, list) and len(found) == 1:
            found = found[0]
        if isinstance(found, str):
            return found
    return None


@check(
    "containers.default",
    "TOK-CONTAINER",
    accepts="a container of the deployment's choice where none is named",
    roles=("private_reader",),
    requests=6,
    is_extra=True,
)
def default(ctx: CheckContext) -> Iterator[Finding]:
    """Find the container of a token whose request names none (D-CONTAINER-DEFAULT)."""
    key = ctx.ready_key("private_reader")
    for made, choice in ((ctx.token, _CHOICES[0]), (ctx.card, _CHOICES[1])):
        shown = [ctx.tokenize(made(f"default {turn}"), key) for turn in range(2)]
        found = [_found_in(ctx, exchange, key)[0] for exchange in shown]
        if None in found:
            says = f"no record shows the container, so {choice} is not known"
            yield ctx.informs("TOK-CONTAINER", says, *shown)
        else:
            seen = found[0] if found[0] == found[1] else None
            says = f"equal requests must use the same container, not {found[0]} and {found[1]}"
            yield ctx.reads_or_fails("TOK-CONTAINER", choice, seen, says, *shown)


@check(
    "containers.form",
    "TOK-CONTAINER",
    accepts="any 4xx for a value that is not a container path",
    roles=("private_reader",),
    requests=5,
)
def form(ctx: CheckContext) -> Iterator[Finding]:
    """A value that cannot name a container is refused."""
    key = ctx.ready_key("private_reader")
    field = ctx.profile.tokens.container_field
    for what, given in (("a number", 5), ("an object", {"a": "b"}), ("an array of numbers", [5])):
        exchange = ctx.tokenize(ctx.token(what, **{field: given}), key)
        if exchange.ok:
            says = f"`{field}` is ignored: {what} is accepted as container"
            yield ctx.informs("TOK-CONTAINER", says, exchange)
        else:
            yield ctx.refusal("TOK-CONTAINER", f"{what} as container", exchange)
