"""The objects that a run has created, read from its exchanges, so that it can delete them.

A tokenize request and its answer are compared part by part: where a plain string or a token request
object was sent, the answer holds an identifier. A part that does not mirror the request is ignored,
and so is a token that existed before (`_extras.deduplicated`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from conformance.context.answers import elements, is_known
from conformance.messages.exchange import KEY_PLACE, Exchange, KeyLabel
from conformance.messages.shapes import Spelling
from engine.messages import Json

_DELETED_BY: Final = {
    "tokenize": "delete",
    "create": "delete",
    "create_token_intent": "delete_token_intent",
    "create_reactor": "delete_reactor",
    "create_proxy": "delete_proxy",
    "create_application": "delete_application",
    "create_application_key": "delete_application_key",
    "create_encryption_key": "delete_encryption_key",
}
"""Each creating operation, and the operation that deletes what it creates."""


@dataclass(frozen=True, slots=True)
class Thing:
    """A created object: how to delete it, and the key label and the check that created it."""

    method: str
    path: str
    key: KeyLabel
    check: str


class Created:
    """The objects to delete, by path. spelling: of the deployment's operations."""

    def __init__(self, spelling: Spelling | None = None) -> None:
        self._spelling = spelling or Spelling()
        self._things: dict[str, Thing] = {}
        self._shown: set[str] = set()

    def __len__(self) -> int:
        return len(self._things)

    def __iter__(self) -> Iterator[Thing]:
        return iter(tuple(self._things.values()))

    def note(self, exchange: Exchange) -> None:
        """Record what an exchange created or deleted."""
        ask = exchange.ask
        thing = self._things.get(ask.path)
        if thing is not None:
            if exchange.ok and ask.method != thing.method:
                self._shown.add(ask.path)
            elif exchange.ok or (exchange.status == 404 and ask.path in self._shown):
                self.forget(ask.path)  # deleted, or seen before and gone since
            if ask.method == thing.method:
                return
        key = ask.key or _key_in(ask.headers)
        if not exchange.ok or key is None:
            return
        operation = self._spelling.operation(ask.method, ask.path)
        if operation is None or operation[0] not in _DELETED_BY:
            return
        name, values = operation
        try:
            answer = exchange.json
        except ValueError:
            return
        self._forget_consumed(ask.body)
        made = list(identifiers(ask.body, answer)) if name == "tokenize" else [_record_id(answer)]
        for made_id in made:
            if made_id is not None:
                named = {**values, "key_id" if name == "create_application_key" else "id": made_id}
                method, path = self._spelling.deletion(_DELETED_BY[name], named)
                self._things.setdefault(path, Thing(method, path, key, exchange.check))

    def _forget_consumed(self, body: Any) -> None:  # noqa: ANN401 # reason: JSON or bytes
        """Remove the token intents that a body has turned into tokens."""
        for element, _ in elements(body, body):
            intent = element.get("token_intent_id") if isinstance(element, dict) else None
            if isinstance(intent, str):
                self.forget(self._spelling.deletion("delete_token_intent", {"id": intent})[1])

    def forget(self, path: str) -> None:
        """Remove the object at a path."""
        self._things.pop(path, None)


def _key_in(headers: Mapping[str, str]) -> KeyLabel | None:
    """Return the label of a key that a check has written into a header itself."""
    matches = (KEY_PLACE.search(text) for text in headers.values())
    return next((match[1] for match in matches if match is not None), None)


def identifiers(body: Any, answer: Json) -> Iterator[str]:  # noqa: ANN401 # reason: JSON or bytes
    """Yield the ids that an answer gives for the tokens of a body.

    >>> list(identifiers(["a", {"k": "b"}], ["1", {"k": "2"}]))
    ['1', '2']
    """
    for element, given in elements(body, answer):
        made_id = given if isinstance(element, str) else _record_id(given)
        if isinstance(made_id, str):
            yield made_id


def _record_id(record: Json) -> str | None:
    if not isinstance(record, dict):
        return None
    record_id = record.get("id")
    return record_id if isinstance(record_id, str) and not is_known(record) else None
