"""What a run has created, read from its own exchanges, so that it can be deleted again.

A request to tokenize and its answer are walked side by side: where a plain string or a token
request object was sent, the answer holds an identifier. Whatever does not mirror is left alone,
and so is a token that was there before (`_extras.deduplicated`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from conformance.exchanges import Exchange, KeyLabel
from engine.messages import Json

__all__ = ["Created", "Thing"]

_COLLECTIONS: Final = (
    "/tokens",
    "/token-intents",
    "/reactors",
    "/proxies",
    "/applications",
    "/keys",
)


@dataclass(frozen=True, slots=True)
class Thing:
    """What lies at a path: the label of the key, and the check, that made it."""

    path: str
    key: KeyLabel
    check: str


class Created:
    """What is there to be deleted, by its path."""

    def __init__(self) -> None:
        self._things: dict[str, Thing] = {}

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[Thing]:
        return iter(tuple(self._things.values()))

    def note(self, exchange: Exchange) -> None:
        """Take note of what an exchange created or deleted."""
        ask = exchange.ask
        path = ask.path.partition("?")[0]
        if ask.method == "DELETE":
            if exchange.ok or exchange.status == 404:
                self._things.pop(path, None)
            return
        if ask.method != "POST" or not exchange.ok or ask.key is None:
            return
        try:
            answer = exchange.json
        except ValueError:
            return
        if path == "/tokenize":
            for token_id in identifiers(ask.body, answer):
                self._keep(f"/tokens/{token_id}", ask.key, exchange.check)
        elif path in _COLLECTIONS or path.endswith("/keys"):
            found = _record_id(answer)
            if found is not None:
                self._keep(f"{path}/{found}", ask.key, exchange.check)

    def _keep(self, path: str, key: KeyLabel, check: str) -> None:
        self._things.setdefault(path, Thing(path, key, check))

    def forget(self, path: str) -> None:
        """Drop a path that has been dealt with."""
        self._things.pop(path, None)


def identifiers(body: Any, answer: Json) -> Iterator[str]:  # noqa: ANN401 # reason: JSON or bytes
    """Yield the ids that an answer gives for the tokens of a body.

    >>> list(identifiers(["a", {"k": "b"}], ["1", {"k": "2"}]))
    ['1', '2']
    """
    if isinstance(body, str):
        if isinstance(answer, str):
            yield answer
    elif isinstance(body, dict) and isinstance(answer, dict):
        if "type" in body:
            found = _record_id(answer)
            if found is not None:
                yield found
            return
        for key, one in body.items():
            if key in answer:
                yield from identifiers(one, answer[key])
    elif isinstance(body, list) and isinstance(answer, list):
        for one, given in zip(body, answer, strict=False):
            yield from identifiers(one, given)


def _record_id(record: Json) -> str | None:
    if not isinstance(record, dict):
        return None
    extras = record.get("_extras")
    if isinstance(extras, dict) and extras.get("deduplicated") is True:
        return None
    found = record.get("id")
    return found if isinstance(found, str) else None
