"""Section 5: the header that holds the key. What keys may do, the model compares."""

from __future__ import annotations

from typing import Final

from conformance.context.check import check
from conformance.context.context import CheckContext
from conformance.context.verdicts import Finding

_UNKNOWN_KEY: Final = "key_prod_us_pvt_1111111111111111111111"


@check(
    "authentication.header",
    "AUTH-HEADER",
    accepts="2xx with the key in its header, in any letter case; 4xx for no or an unknown key",
)
async def header(ctx: CheckContext) -> list[Finding]:
    """The API key is read from its request header, and requests without a key are refused."""
    key = ctx.spread_key("private_prod")
    ready = await ctx.ready(key)
    findings = [ctx.passes("AUTH-HEADER", "a key in its header is accepted", ready)]
    name = ctx.target.key_header
    for spelled in (name.lower(), name.upper()):
        headers = {spelled: f"{{key:{key}}}"}
        exchange = await ctx.client.tokenize([ctx.value(spelled)], None, headers=headers)
        what = f"the key in a header spelled {spelled}"
        findings.append(ctx.acceptance("AUTH-HEADER", what, exchange))
    for what, headers in (
        ("no key", {}),
        ("an unknown key", {name: _UNKNOWN_KEY}),
        ("an empty key", {name: ""}),
        ("a key with a letter more", {name: f"{{key:{key}}}x"}),
    ):
        exchange = await ctx.client.tokenize([ctx.value(what)], None, headers=headers)
        findings.append(ctx.refusal("AUTH-HEADER", what, exchange))
    others = {"Authorization": f"Bearer {{key:{key}}}", "X-Api-Key": f"{{key:{key}}}"}
    elsewhere = {other: text for other, text in others.items() if other.lower() != name.lower()}
    exchange = await ctx.client.tokenize([ctx.value("elsewhere")], None, headers=elsewhere)
    if exchange.ok:
        message = "a key in other headers is accepted too"
        return [*findings, ctx.informs("AUTH-HEADER", message, exchange)]
    return [*findings, ctx.refusal("AUTH-HEADER", "a key in other headers only", exchange)]
