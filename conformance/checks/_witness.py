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

from conformance.runner.answers import member_of
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, Skip
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json

_LABEL = "witness"


def named(bench: Bench, name: str, *, is_card: bool = False) -> dict[str, Any]:
    """Return a token request object with a name, to put into a body."""
    metadata: dict[str, Json] = {"metadata": {_LABEL: name}}
    return (bench.card if is_card else bench.token)(name, **metadata)


class Witness:
    """Finds out whether a request created a token; the request must be sent with `key`."""

    def __init__(self, bench: Bench, key: KeyLabel, way: str) -> None:
        self._bench = bench
        self.key = key
        self.way = way

    def works(self) -> bool:
        """Whether it tells a token that exists from one that does not."""
        made = named(self._bench, f"there {self.way}")
        if not self._bench.tokenize(made, self.key).ok:
            return False
        missing = named(self._bench, f"missing {self.way}")
        return self.exists(made)[0] and not self.exists(missing)[0]

    def again(self, request: dict[str, Json]) -> dict[str, Json]:
        """Return a request for an equal value, so that an existing token comes back."""
        flag = self._bench.profile.dedup.flag_name
        return {**request, flag: True} if self.way == "flag" else request

    def exists(self, asked: dict[str, Any]) -> tuple[bool, Exchange]:
        """Return whether a token that was asked for exists, and the exchange that shows it.

        With deduplication this creates a missing token: call it once for each. A listing needs one
        that is `named`.
        """
        if self.way != "listing":
            return self._bench.deduplicated(asked, self.key, flag=self.way == "flag")
        _, path, _ = self._bench.shaped("list")
        path = f"{path}?metadata.{_LABEL}={quote(asked['metadata'][_LABEL])}"
        exchange = self._bench.ask("GET", path, key=self.key)
        found = member_of(exchange, "data")
        if found is None:
            raise Inconclusive(f"no listing by metadata: {exchange.status}")
        return bool(found), exchange


def seen_witness(bench: Bench) -> tuple[Witness | None, KeyLabel, str]:
    """Return a witness, the key to use, and why there is no witness."""
    witness, why = find_witness(bench)
    return witness, bench.ready_key("private_prod") if witness is None else witness.key, why


def find_witness(bench: Bench) -> tuple[Witness | None, str]:
    """Return a witness that was tried and works, or why there is none."""
    tried = []
    for way, role in (("flag", "private_prod"), ("setting", "dedup"), ("listing", "private_prod")):
        try:
            found = Witness(bench, bench.key(role), way)
            bench.ready(found.key, way)
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
