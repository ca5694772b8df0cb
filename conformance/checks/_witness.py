"""The witness: finds out whether a token exists, without permission to read it.

Atomicity means that a token does *not* exist afterwards, and a refusal contains no identifier to
look up. There are three ways to find out, and the first that works on this deployment is used: an
equal value in a request that turns deduplication on, an equal value for a tenant that always
deduplicates, and a listing by metadata. Before a way is used, it is tried on a token that exists
and on one that does not.
"""

from __future__ import annotations

from urllib.parse import quote

from conformance.runner.answers import member_of
from conformance.runner.bench import Bench
from conformance.runner.registry import Inconclusive, Skip
from conformance.wire.exchange import Exchange, KeyLabel
from engine.messages import Json

_LABEL = "witness"


class NoWitness(Inconclusive):
    """Nothing on this deployment shows whether a token exists."""


class Witness:
    """Finds out whether a request created a token; the request must be sent with `key`."""

    def __init__(self, bench: Bench, key: KeyLabel, way: str) -> None:
        self._bench = bench
        self.key = key
        self.way = way

    @classmethod
    def of(cls, bench: Bench, role: str = "private_prod") -> Witness:
        """Return a witness that was tried and works; raises `NoWitness` if none does."""
        tried = []
        for way, asked in (("flag", role), ("setting", "dedup"), ("listing", role)):
            try:
                found = cls(bench, bench.key(asked), way)
                bench.ready(found.key, way)
                if found._works():
                    return found
            except (Inconclusive, Skip) as why:
                tried.append(f"{way}: {why}")
        raise NoWitness(
            "nothing shows whether a token exists; provide a field that turns deduplication on "
            "(dedup.flag_name in the profile), a key of role dedup, or a listing by metadata "
            f"([requests.list]) ({'; '.join(tried) or 'each was tried'})"
        )

    def _works(self) -> bool:
        made = self.request(f"there {self.way}")
        if not self._bench.tokenize(made, self.key).ok:
            return False
        there, _ = self.exists(f"there {self.way}")
        missing, _ = self.exists(f"missing {self.way}")
        return there and not missing

    def request(self, name: str, *, is_card: bool = False) -> dict[str, Json]:
        """Return a valid token request object with this name, to put into a body."""
        metadata: dict[str, Json] = {"metadata": {_LABEL: name}}
        made = self._bench.card if is_card else self._bench.token
        return made(name, **metadata)

    def again(self, request: dict[str, Json]) -> dict[str, Json]:
        """Return a request for an equal value, so that an existing token comes back."""
        flag = self._bench.profile.dedup.flag_name
        return {**request, flag: True} if self.way == "flag" else request

    def exists(self, name: str, *, is_card: bool = False) -> tuple[bool, Exchange]:
        """Return whether the token with that name exists, and the exchange that shows it.

        With deduplication the request creates a missing token: call this once for each name.
        """
        if self.way != "listing":
            asked = self.request(name, is_card=is_card)
            return self._bench.deduplicated(asked, self.key, flag=self.way == "flag")
        _, path, _ = self._bench.shaped("list")
        path = f"{path}?metadata.{_LABEL}={quote(name)}"
        exchange = self._bench.ask("GET", path, key=self.key)
        found = member_of(exchange, "data")
        if found is None:
            raise Inconclusive(f"no listing by metadata: {exchange.status}")
        return bool(found), exchange

    def exists_leaf(self, text: str) -> tuple[bool, Exchange]:
        """Return whether a token for this plain string exists; works with deduplication only."""
        if self.way == "listing":
            raise Inconclusive("a listing does not show values")
        asked = {"type": "token", "data": text}
        return self._bench.deduplicated(asked, self.key, flag=self.way == "flag")


def seen_witness(bench: Bench) -> tuple[Witness | None, KeyLabel, str]:
    """Return a witness of what is created, the key to use, and why there is no witness."""
    try:
        witness = Witness.of(bench)
    except NoWitness as why:
        key = bench.ready_key("private_prod")
        return None, key, f"whether tokens are created cannot be seen: {why}"
    return witness, witness.key, ""
