"""Bodies: what a request of a mix carries, for the fidelity that runs them.

Each element's value is made from a number: a group counts its values up, and a duplicate is the
value of a number that was used before. So bodies need no memory of what was sent, and the same
seed sends the same bodies. Draws come from the client's stream `body`, which nothing else uses.

Answers are read only for the ids that later requests need (`Known`).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, Final

from engine.messages import Json
from simulator.scenario.clients import Ask

NOTHING: Final = "00000000-0000-4000-8000-000000000000"
"""The UUID of no object; used while no id is known."""

_INVALID: Final[dict[str, str]] = {"type": "no-such-type", "data": "x"}
_DOUBLED: Final = str.maketrans("0123456789", "0246813579")
"""Twice a digit, by the sum of its digits (Luhn)."""
_ROWS_BYTES: Final = 1_000_000
_HEADER: Final = b"token,expiration_year,expiration_month\n"


class Known:
    """The ids that one application has received, by resource, oldest first."""

    def __init__(self) -> None:
        self._ids: defaultdict[str, dict[str, None]] = defaultdict(dict)

    def add(self, resource: str, ids: Iterator[str]) -> None:
        """Remember ids."""
        self._ids[resource].update(dict.fromkeys(ids))

    def forget(self, resource: str, gone: str) -> None:
        """Remove the id of a deleted object."""
        self._ids[resource].pop(gone, None)

    def pick(self, resource: str, which: str, uniform: Callable[[], float]) -> str:
        """Return an id, or `NOTHING`; `which` as `Ask.pick` says."""
        ids = self._ids[resource]
        if not ids:
            return NOTHING
        if which == "newest":
            return next(reversed(ids))
        if which == "oldest":
            return next(iter(ids))
        return list(ids)[math.floor(uniform() * len(ids))]


class GroupValues:
    """How many values of each kind, `token` or `card`, a client group has sent."""

    def __init__(self) -> None:
        self.sent: Counter[str] = Counter()

    def number(self, kind: str, old: float | None) -> int:
        """Return the number of a new value; with `old` in (0, 1), of one that was sent before."""
        sent = self.sent[kind]
        if old is not None and sent:
            return math.floor(old * sent)
        self.sent[kind] += 1
        return sent


def card_number(number: int) -> str:
    """Return the 16-digit test card of a number, Luhn-valid (D-CARD).

    >>> card_number(242424242424)
    '4002424242424242'
    """
    digits = f"4{number % 10**14:014d}"
    total = sum(map(int, digits[::2].translate(_DOUBLED) + digits[1::2]))
    return digits + str(-total % 10)


def resource_of(path: str) -> str:
    """Return the resource whose object `{id}` stands for in a path.

    >>> resource_of("/tokens/{id}"), resource_of("/account-updater/jobs/{id}")
    ('tokens', 'account-updater/jobs')
    """
    return path.partition("/{id}")[0].strip("/")


def ids_of(body: Any) -> Iterator[str]:  # noqa: ANN401 # reason: any answer
    """Yield the token ids that a tokenize answer holds: identifier strings and records' ids."""
    if isinstance(body, str):
        yield body
    elif isinstance(body, list):
        for part in body:
            yield from ids_of(part)
    elif isinstance(body, dict):
        if "tenant_id" in body:
            yield body["id"]
        else:
            for part in body.values():
                yield from ids_of(part)


def body_of(
    ask: Ask, values: GroupValues, known: Known, uniform: Callable[[], float]
) -> Json | bytes:
    """Return the body of one request of a mix; None where it has none."""
    method, _, path = ask.request.partition(" ")
    path = path.partition("?")[0]
    if path.startswith("/proxy"):
        return b"x" * ask.size_bytes if method in {"POST", "PUT", "PATCH"} else None
    if method == "PATCH":
        return {"metadata": {"touched": "yes"}} if path.startswith("/tokens") else {"name": "n"}
    if method != "POST":
        return None
    if path == "/tokenize":
        return _tokenize(ask, values, uniform)
    if path in {"/tokens", "/token-intents"}:
        return _record(ask, values, uniform, indexed=path == "/tokens")
    if path == "/detokenize":
        picked = [known.pick("tokens", ask.pick, uniform) for _ in range(_count(ask, uniform))]
        return {f"v{place}": f"{{{{ {token} }}}}" for place, token in enumerate(picked)}
    if path == "/tokens/search":
        last = max(values.sent["token"] - 1, 0)
        number = {"newest": last, "oldest": 0}.get(ask.pick, math.floor(uniform() * (last + 1)))
        return {"query": f"data:value-{number}"}
    return _other(path, ask)


def _other(path: str, ask: Ask) -> Json:
    if path == "/reactors":
        return {"name": "simulated", "code": "x" * max(1, ask.size_bytes)}
    if path.endswith("/react"):
        return {"args": {"pad": "x" * max(0, ask.size_bytes - len('{"args":{"pad":""}}'))}}
    if path == "/proxies":
        return {"name": "simulated", "destination_url": "https://destination.example/"}
    if path == "/applications":
        return {"name": "simulated", "kind": "private"}
    return None


def _tokenize(ask: Ask, values: GroupValues, uniform: Callable[[], float]) -> Json:
    shape = ask.shape or ("plain" if ask.types.card == 0 else "array")
    count = _count(ask, uniform)
    if shape == "object":
        return _record(ask, values, uniform, indexed=True)
    elements = [_element(ask, values, uniform) for _ in range(count)]
    if elements and ask.invalid_share and uniform() < ask.invalid_share:
        elements[math.floor(uniform() * len(elements))] = _INVALID
    if shape == "array":
        return elements
    if shape == "plain":
        return {f"f{place}": element for place, element in enumerate(elements)}
    half = len(elements) // 2
    return {"list": elements[:half], "nested": {"rest": elements[half:]}}


def _count(ask: Ask, uniform: Callable[[], float]) -> int:
    most = ask.tokens if ask.tokens_max is None else ask.tokens_max
    if most == ask.tokens:
        return most
    return ask.tokens + math.floor(uniform() * (most - ask.tokens + 1))


def _element(ask: Ask, values: GroupValues, uniform: Callable[[], float]) -> Json:
    """Return a plain string, or a card's token request object."""
    is_card = _is_card(ask, uniform)
    old = _old(ask, uniform)
    return _card(ask, values, old) if is_card else _token(values, old)


def _record(
    ask: Ask, values: GroupValues, uniform: Callable[[], float], *, indexed: bool
) -> dict[str, Json]:
    """Return one token request object."""
    is_card = _is_card(ask, uniform)
    old = _old(ask, uniform)
    if ask.invalid_share and uniform() < ask.invalid_share:
        return dict(_INVALID)
    if is_card:
        return _card(ask, values, old)
    record: dict[str, Json] = {"type": "token", "data": _token(values, old)}
    if indexed:
        record["search_indexes"] = ["{{ data }}"]
    return record


def _is_card(ask: Ask, uniform: Callable[[], float]) -> bool:
    weights = ask.types
    if weights.card == 0:
        return False
    return weights.token == 0 or uniform() * (weights.token + weights.card) < weights.card


def _old(ask: Ask, uniform: Callable[[], float]) -> float | None:
    if not ask.duplicate_share or uniform() >= ask.duplicate_share:
        return None
    return uniform()


def _token(values: GroupValues, old: float | None) -> str:
    return f"value-{values.number('token', old)}"


def _card(ask: Ask, values: GroupValues, old: float | None) -> dict[str, Json]:
    number = card_number(values.number("card", old))
    data: dict[str, Json] = {"number": number, "expiration_month": 12, "expiration_year": 2030}
    if ask.cvc:
        data["cvc"] = "123"
    return {"type": "card", "data": data}


@lru_cache(maxsize=4)
def batch_file(size_bytes: int) -> bytes:
    """Return an account-updater batch file of at most `size_bytes`, exactly so if it is large.

    Up to `_ROWS_BYTES` it is whole rows of tokens, which the service looks up. What is larger goes
    on as one line that is no row, so that its job fails after the rows before: a simulation is
    about when and how much is uploaded (ACC-FILE, ACC-SPLIT), and looking up and keeping
    hundreds of thousands of rows a file would cost seconds and as much memory as all files
    together.
    """
    line = f"{NOTHING},2030,12\n".encode()
    rows_bytes = min(size_bytes, _ROWS_BYTES) - len(_HEADER)
    file = _HEADER + line * max(0, rows_bytes // len(line))
    return file + b"-" * (size_bytes - len(file)) if size_bytes > _ROWS_BYTES else file
