"""What `engine.handle` costs beside the calls that no engine could leave out.

The floor of a request is made of the very calls that it makes of AES-GCM, HMAC and SHA-256, UUIDs
and JSON, on the same values, and nothing else. Two bodies: one string, and five tokens of both
types. Then the curves: the cost of a request as stored tokens and active keys grow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from itertools import cycle, islice
from typing import Final, NamedTuple

import orjson

from engine import Engine, Profile, Request
from engine.messages import Json
from engine.tokens import base58
from engine.vault import hash_key_text
from tests.benchmarks import _measure

_REQUESTS: Final = 2_000
_STEP_NS: Final = 60_000_000
"""Between two requests: no limit of the table is reached."""

ONE: Final[Json] = {"name": "Ada"}
FIVE: Final[Json] = {
    "customer": {"name": "Ada Lovelace", "phones": ["+44 20 7946 0018", "+44 20 7946 0019"]},
    "card": {
        "type": "card",
        "data": {
            "number": "4242424242424242",
            "expiration_month": 12,
            "expiration_year": 2030,
            "cvc": "123",
        },
        "metadata": {"order": "17"},
    },
    "note": {"type": "token", "data": "leave at the door", "search_indexes": ["{{ data }}"]},
}


class _Calls(NamedTuple):
    """What one request asks of AES-GCM, HMAC, UUIDs and JSON, whoever serves it.

    ids: of the tokens and of the log entry. texts: JSON written, of data and of what is compared.
    seals: of data and of the cvc. hashes: for deduplication and search. shown: fingerprints.
    """

    body: Json
    ids: int
    texts: int
    seals: int
    hashes: int
    shown: int


class _Bench:
    """An engine with some keys, each with an address of its own; tokens may be there before.

    Every key comes again within ten seconds, so that its counters are in use.
    """

    def __init__(self, tokens: int = 0, keys: int = 1) -> None:
        self.engine = Engine(seed=7, profile=Profile())
        self.tenant = self.engine.create_tenant("Acme")
        application = self.engine.create_application(
            self.tenant, "bench", grants=[("/", {"token:create"})]
        )
        self.keys = [str(self.engine.create_key(application)) for _ in range(keys)]
        self._turns = cycle([(key, str(IPv4Address(n))) for n, key in enumerate(self.keys, 1)])
        self._step_ns = min(_STEP_NS, 10_000_000_000 // keys)
        self.engine.set_quota(self.tenant, "Tokenize Limit", 1_000)
        for _ in range(tokens // 1_000):
            self._ask(["x"] * 1_000)
        for _ in range(keys if keys > 1 else 0):
            self._ask([])

    def _ask(self, body: Json) -> None:
        self.engine.clock.advance_ns(self._step_ns)  # type: ignore[attr-defined] # reason: a ManualClock
        key, ip = next(self._turns)
        request = Request("POST", "/tokenize", key=key, ip=ip, body=body)
        assert self.engine.handle(request).status == 200

    def requests(self, body: Json) -> Callable[[], object]:
        """Return a run of requests, dealt to the keys in turn."""
        handle, advance = self.engine.handle, self.engine.clock.advance_ns  # type: ignore[attr-defined] # reason: a ManualClock
        step_ns = self._step_ns
        asked = [
            Request("POST", "/tokenize", key=key, ip=ip, body=body)
            for key, ip in islice(self._turns, _REQUESTS)
        ]

        def run() -> None:
            for request in asked:
                advance(step_ns)
                handle(request)

        return run

    def floor(self, calls: _Calls) -> Callable[[], object]:
        """Return a run of the bare calls: a key's hash, a body's JSON, and so many of each."""
        keys, new_id = self.engine.services.vault.of(self.tenant.id), self.engine.services.new_id
        seal, keyed, key, body = keys.seal, keys.dedup, self.keys[0], calls.body

        def run() -> None:
            for _ in range(_REQUESTS):
                hash_key_text(key)
                orjson.loads(orjson.dumps(body))
                for _ in range(calls.ids):
                    token_id = new_id()
                for _ in range(calls.texts):
                    data = orjson.dumps("leave at the door")
                for _ in range(calls.seals):
                    seal("/general/high/", token_id, data, "data")
                for _ in range(calls.hashes):
                    keyed(data)
                for _ in range(calls.shown):
                    base58(keyed(data))

        return run


def main(big: bool) -> None:
    """Print the ratios and the curves."""
    one, five = _Bench(), _Bench()
    for title, bench, calls in (
        ("one string", one, _Calls(ONE, 2, 1, 1, 1, 0)),
        ("five tokens of both types", five, _Calls(FIVE, 6, 7, 6, 6, 1)),
    ):
        timings = _measure.interleave(
            [
                _measure.Contestant("the calls alone", partial(bench.floor, calls), _REQUESTS),
                _measure.Contestant(
                    "engine.handle", partial(bench.requests, calls.body), _REQUESTS
                ),
            ],
            rounds=15,
        )
        _measure.show(f"POST /tokenize, {title}", "requests", timings, ours=1)
        floor, handle = timings
        print(f"engine.handle costs {_measure.ratio(handle, floor)} times the floor (aim: below 3)")
    _curve("stored tokens", [(n, 1) for n in (1_000, 10_000, 100_000, *([1_000_000] * big))])
    _curve("active keys", [(0, n) for n in (10, 1_000, 10_000, *([100_000] * big))])


def _curve(what: str, sizes: list[tuple[int, int]]) -> None:
    contestants = []
    for tokens, keys in sizes:
        bench = _Bench(tokens, keys)
        name = f"{max(tokens, keys):>9,} {what}"
        contestants.append(_measure.Contestant(name, partial(bench.requests, ONE), _REQUESTS))
    timings = _measure.interleave(contestants, rounds=9)
    _measure.show(f"engine.handle, one string, by {what}", "requests", timings)
