"""Section 1: a token is created inside a destination container, which the request determines."""

from __future__ import annotations

import itertools
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
async def field(ctx: CheckContext) -> list[Finding]:
    """Find the field that selects the container: the record then shows the container it names."""
    key = await ctx.ready_key("private_reader")
    path = (ctx.target.containers or ("/conformance/named/",))[0]
    usual = ctx.profile.tokens.container_field
    is_told = ctx.knows("tokens.container_field")
    shown: list[Exchange] = []
    names = tuple(dict.fromkeys((usual, *_NAMES)))
    forms: tuple[Json, ...] = ([path], path)
    for name, given in itertools.product(names, forms):
        exchange = await ctx.tokenize(ctx.token(f"field {name}", **{name: given}), key)
        shown.append(exchange)
        if not exchange.ok or (await _found_in(ctx, exchange, key))[0] != path:
            continue
        if is_told and name != usual:
            says = f"`{usual}` must select the container, as the profile says; `{name}` does"
            return [ctx.fails("TOK-CONTAINER", says, exchange)]
        return [ctx.reads("TOK-CONTAINER", "tokens.container_field", name, exchange)]
    says = f"none of {', '.join(names)} was seen to select a container; {_way_out(ctx)}"
    return [ctx.informs("TOK-CONTAINER", says, *shown[:2])]


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
async def named(ctx: CheckContext) -> list[Finding]:
    """A token goes into the container that its request names."""
    key = await ctx.ready_key("private_reader")
    paths = ctx.target.containers or ("/conformance/named/", "/conformance/other/")
    form, shown = await _form(ctx, key, paths[0])
    field_name = ctx.profile.tokens.container_field
    if form is None:
        message = f"`{field_name}` was not accepted with a container ({shown.status})"
        return [ctx.unsettled("TOK-CONTAINER", f"{message}; {_way_out(ctx)}", shown)]
    is_understood = ctx.knows("tokens.container_field") or is_refused(
        await ctx.tokenize(ctx.token("nonsense", **{field_name: 5}), key)
    )
    findings = []
    if is_understood:
        findings.append(ctx.reads("TOK-CONTAINER", "tokens.container_form", form, shown))
    for path in paths[:2]:
        exchange = await ctx.tokenize(ctx.token(path, **ctx.container_of(path, form)), key)
        container, where = await _found_in(ctx, exchange, key)
        if container is None:
            message = "a container is accepted, but no record shows it"
            findings.append(ctx.informs("TOK-CONTAINER", message, exchange))
        elif container != path and not is_understood:
            message = f"`{field_name}` is ignored here; {_way_out(ctx)}"
            findings.append(ctx.unsettled("TOK-CONTAINER", message, exchange, where))
        else:
            message = f"the token must be in {path}; its record shows {container}"
            is_so = container == path
            findings.append(ctx.rule("TOK-CONTAINER", message, exchange, where, is_so=is_so))
    return findings


async def _form(ctx: CheckContext, key: KeyLabel, path: str) -> tuple[str | None, Exchange]:
    """Return which form of the field is accepted; the other is tried if the first is refused."""
    known = ctx.profile.tokens.container_form
    for form in (known, "string" if known == "array" else "array"):
        exchange = await ctx.tokenize(
            ctx.token(f"form {form}", **ctx.container_of(path, form)), key
        )
        if exchange.ok:
            return form, exchange
    return None, exchange


async def _found_in(
    ctx: CheckContext, exchange: Exchange, key: KeyLabel
) -> tuple[str | None, Exchange]:
    """Return the container that the record shows, or a read of the token where it shows none."""
    record = record_of(exchange)
    path = _shown(ctx, record)
    if path is not None:
        return path, exchange
    read = await ctx.call("get", {"id": record["id"]}, key=key)
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
    beside=("TOK-CONTAINER",),
)
async def default(ctx: CheckContext) -> list[Finding]:
    """Find the container of a token whose request names none (D-CONTAINER-DEFAULT)."""
    key = await ctx.ready_key("private_reader")
    findings = []
    for made, setting in ((ctx.token, _CHOICES[0]), (ctx.card, _CHOICES[1])):
        exchanges = [await ctx.tokenize(made(f"default {turn}"), key) for turn in range(2)]
        paths = [(await _found_in(ctx, exchange, key))[0] for exchange in exchanges]
        if None in paths:
            message = f"no record shows the container, so {setting} is not known"
            findings.append(ctx.informs("TOK-CONTAINER", message, *exchanges))
        elif paths[0] == paths[1]:
            findings.append(ctx.reads("TOK-CONTAINER", setting, paths[0], *exchanges))
        else:
            message = (
                f"equal requests must use the same container, not {' and '.join(map(str, paths))}"
            )
            findings.append(ctx.fails("TOK-CONTAINER", message, *exchanges))
    return findings


@check(
    "containers.form",
    "TOK-CONTAINER",
    accepts="any 4xx for a value that is not a container path",
    roles=("private_reader",),
    requests=5,
)
async def form(ctx: CheckContext) -> list[Finding]:
    """A value that cannot name a container is refused."""
    key = await ctx.ready_key("private_reader")
    field_name = ctx.profile.tokens.container_field
    findings = []
    for what, given in (("a number", 5), ("an object", {"a": "b"}), ("an array of numbers", [5])):
        exchange = await ctx.tokenize(ctx.token(what, **{field_name: given}), key)
        if exchange.ok:
            message = f"`{field_name}` is ignored: {what} is accepted as container"
            findings.append(ctx.informs("TOK-CONTAINER", message, exchange))
        else:
            findings.append(ctx.refusal("TOK-CONTAINER", f"{what} as container", exchange))
    return findings
