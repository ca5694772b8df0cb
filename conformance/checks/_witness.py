"""The witness: finds out whether a token exists, without permission to read it.

Atomicity means that a token does *not* exist afterwards, and a refusal contains no identifier to
look up. There are three ways to find out, and the first that works on this deployment is used: an
equal value in a request that turns deduplication on, an equal value for a tenant that always
deduplicates, and a listing by metadata. Before a way is used, it is tried on a token that exists
and on one that does not.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

from conformance.context.answers import member_of
from conformance.context.check import Inconclusive, Skip
from conformance.context.context import CheckContext
from conformance.messages.exchange import Exchange, KeyLabel
from engine.messages import Json

_LABEL = "witness"


def named(ctx: CheckContext, name: str, *, is_card: bool = False) -> dict[str, Any]:
    """Return a token request object with a name, to put into a body."""
    metadata: dict[str, Json] = {"metadata": {_LABEL: name}}
    return (ctx.card if is_card else ctx.token)(name, **metadata)


class Witness:
    """Finds out whether a request created a token; the request must be sent with `key`."""

    def __init__(self, ctx: CheckContext, key: KeyLabel, way: str) -> None:
        self._ctx = ctx
        self.key = key
        self.way = way

    def works(self) -> bool:
        """Whether it tells a token that exists from one that does not."""
        made = named(self._ctx, f"there {self.way}")
        if not self._ctx.tokenize(made, self.key).ok:
            return False
        missing = named(self._ctx, f"missing {self.way}")
        return self.exists(made)[0] and not self.exists(missing)[0]

    def again(self, request: dict[str, Json]) -> dict[str, Json]:
        """Return a request for an equal value, so that an existing token comes back."""
        flag = self._ctx.profile.dedup.flag_name
        return {**request, flag: True} if self.way == "flag" else request

    def exists(self, asked: dict[str, Any]) -> tuple[bool, Exchange]:
        """Return whether a token that was asked for exists, and the exchange that shows it.

        With deduplication this creates a missing token: call it once for each. A listing needs one
        that is `named`.
        """
        if self.way != "listing":
            return self._ctx.deduplicated(asked, self.key, flag=self.way == "flag")
        _, path, _ = self._ctx.shaped("list")
        path = f"{path}?metadata.{_LABEL}={quote(asked['metadata'][_LABEL])}"
        exchange = self._ctx.ask("GET", path, key=self.key)
        found = member_of(exchange, "data")
        if found is None:
            raise Inconclusive(f"no listing by metadata: {exchange.status}")
        return bool(found), exchange


def seen_witness(ctx: CheckContext) -> tuple[Witness | None, KeyLabel, str]:
    """Return a witness, the key to use, and why there is no witness."""
    witness, why = find_witness(ctx)
    return witness, ctx.ready_key("private_prod") if witness is None else witness.key, why


def find_witness(ctx: CheckContext) -> tuple[Witness | None, str]:
    """Return a witness that was tried and works, or why there is none."""
    tried = []
    for way, role in (("flag", "private_prod"), ("setting", "dedup"), ("listing", "private_prod")):
        try:
            found = Witness(ctx, ctx.key(role), way)
            ctx.ready(found.key, way)
            if found.works():
                return found, ""
        except (Inconclusive, Skip) as why:
            tried.append(f"{way}: {why}")
    says = (
        "whether tokens are created cannot be seen: nothing shows whether a token exists; "
        "provide a field that turns deduplication on (dedup.flag_name in the profile), a key of "
        "role dedup, or a listing by metadata ([requests.list]) "
        f"({'; '.join(tried) or 'each was tried'})"
    )
    return None, says
