"""What `engine.handle` costs beside the calls that no engine could leave out.

The floor of a request is made of the very calls that it makes of AES-GCM, HMAC and SHA-256, UUIDs
and JSON, on the same values and token by token, after a body that is parsed and checked by hand
with nothing to spare; and of nothing else: no limits, no permissions, no records, no store. Two
bodies: one string, and five tokens of both types. Then the curves: the cost of a request as stored
tokens and active keys grow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from ipaddress import IPv4Address
from itertools import cycle, islice
from typing import Any, Final, NamedTuple

import orjson

from engine import Engine, Profile, Request
from engine.messages import Json
from engine.resources.identification import hash_key_text
from engine.tokens.rules import is_luhn_valid
from tests.benchmarks import _measure

_REQUESTS: Final = 2_000
_STEP_NS: Final = 60_000_000
"""Between two requests: no limit of the table is reached."""

ONE: Final[Json] = {"name": "Ada"}
FIVE: Final[dict[str, Any]] = {
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

_PLACE: Final = b"token\0/general/high/\0"
_FIELDS: Final = frozenset({"type", "data", "metadata", "search_indexes"})


class _Token(NamedTuple):
    """What one token asks of JSON, HMAC and AES-GCM, whoever serves it.

    written: as JSON, what is sealed and what is compared. hashed: for deduplication, search and a
    card's fingerprint. sealed: the data, and a cvc apart.
    """

    written: tuple[Json, ...]
    hashed: tuple[bytes, ...]
    sealed: tuple[bytes, ...]


def _leaf(text: str) -> _Token:
    data = orjson.dumps(text)
    return _Token((text,), (_PLACE + data,), (data,))


def _five() -> tuple[_Token, ...]:
    customer, card, note = FIVE["customer"], FIVE["card"]["data"], FIVE["note"]["data"]
    kept = {name: value for name, value in card.items() if name != "cvc"}
    number, text = orjson.dumps(card["number"]), orjson.dumps(note)
    return (
        *map(_leaf, (customer["name"], *customer["phones"])),
        _Token(
            (kept, card["number"]),
            (_PLACE + number, b"card\0" + number),
            (orjson.dumps(kept), card["cvc"].encode()),
        ),
        _Token((note, note), (_PLACE + text, b"data\0" + note.encode()), (text,)),
    )


def _check(value: Json, depth: int = 0) -> None:
    """Check a body by hand: strings, objects with a `type`, and what nests them; no fault found."""
    kind = type(value)
    if kind is str:
        return
    assert depth < 50
    if kind is list:
        for inner in value:  # type: ignore[union-attr] # reason: its type was just asked
            _check(inner, depth + 1)
        return
    assert isinstance(value, dict)
    if "type" not in value:
        for inner in value.values():
            _check(inner, depth + 1)
        return
    assert value.keys() <= _FIELDS
    for name, text in value.get("metadata", {}).items():
        assert type(text) is str
        assert len(text) <= 500
        assert len(name) <= 40
    data = value["data"]
    if value["type"] == "card":
        number, month, year = data["number"], data["expiration_month"], data["expiration_year"]
        assert number.isdigit()
        assert is_luhn_valid(number)
        assert 1 <= month <= 12
        assert 1000 <= year <= 9999
        assert data["cvc"].isdigit()
    else:
        assert type(data) is str


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

    def floor(self, body: Json, tokens: tuple[_Token, ...]) -> Callable[[], object]:
        """Return a run of the bare calls: a key's hash, a body's JSON, each token, the log's id."""
        keys, new_id = self.engine.services.vault.of(self.tenant.id), self.engine.services.new_id
        seal, keyed, key, dumps = keys.seal, keys.dedup, self.keys[0], orjson.dumps

        def run() -> None:
            for _ in range(_REQUESTS):
                hash_key_text(key)
                _check(orjson.loads(dumps(body)))
                for written, hashed, sealed in tokens:
                    for value in written:
                        dumps(value)
                    for message in hashed:
                        keyed(message)
                    token_id = new_id()
                    for plaintext in sealed:
                        seal("/general/high/", token_id, plaintext, "data")
                new_id()

        return run


def main(big: bool) -> None:
    """Print the ratios and the curves."""
    one, five = _Bench(), _Bench()
    for title, bench, body, tokens in (
        ("one string", one, ONE, (_leaf("Ada"),)),
        ("five tokens of both types", five, FIVE, _five()),
    ):
        timings = _measure.interleave(
            [
                _measure.Contestant(
                    "the calls alone", partial(bench.floor, body, tokens), _REQUESTS
                ),
                _measure.Contestant("engine.handle", partial(bench.requests, body), _REQUESTS),
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
