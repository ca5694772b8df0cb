"""The tokens of one tenant in memory: a catalogue that also knows the oldest of equal tokens."""

from __future__ import annotations

import heapq

from engine.model import Token
from engine.store.catalogue import Catalogue, Key
from engine.store.selection import token_terms

__all__ = ["TokenShelf"]


class _Equals:
    """Tokens of one hash, oldest first; deleted ones are skipped when they are first.

    Added tokens stay in `fresh` until the oldest is asked for.
    """

    __slots__ = ("fresh", "heap", "live")

    def __init__(self, first_id: str) -> None:
        self.fresh = [first_id]
        self.heap: list[tuple[int, str]] = []
        self.live = 1


def _key_of(token: Token) -> Key:
    return (token.created_at_ns, token.id)


class TokenShelf(Catalogue[Token]):
    """Tokens by id, order and term, and by deduplication hash (D-DEDUP-KEY).

    A hash of one token maps to its id, that of several to `_Equals`. Like order and terms, hashes
    are indexed at the first look-up: a tenant without deduplication never pays for them.
    """

    __slots__ = ("_equals", "_noted", "_types")

    def __init__(self) -> None:
        super().__init__(_key_of, token_terms)
        self._equals: dict[bytes, str | _Equals] = {}
        self._types: set[str] = set()
        self._noted = 0  # so many of `fresh` stand in the two above, and all that is not fresh

    def types(self) -> set[str]:
        """Return every token type that ever occurred."""
        self._note()
        return self._types

    def oldest(self, dedup_hash: bytes) -> Token | None:
        """Return the oldest (created_at_ns, id) token of that hash."""
        self._note()
        held = self._equals.get(dedup_hash)
        if held is None:
            return None
        if isinstance(held, str):
            return self.records[held]
        return self.records[self._top(held, dedup_hash)]

    def put(self, token: Token) -> None:
        """Add a token, or bring one back."""
        self.add(token.id, token)

    def drop(self, token_id: str) -> Token:
        """Take a token out and return it."""
        self._note()
        token = self.remove(token_id)
        self._noted = len(self.fresh)
        self._drop_equal(token)
        return token

    def swap(self, new: Token) -> Token:
        """Put a token in the place of the one of its id, which is returned."""
        old = self.records[new.id]
        assert old.created_at_ns == new.created_at_ns, "a token's creation never changes"
        if old.dedup_hash == new.dedup_hash and token_terms(old) == token_terms(new):
            self.records[new.id] = new
            return old
        self.drop(new.id)
        self.put(new)
        return old

    def _settle(self) -> None:
        self._note()
        super()._settle()
        self._noted = 0

    def _note(self) -> None:
        """Note hash and type of what was added since the last time."""
        if self._noted == len(self.fresh):
            return
        for token_id in self.fresh[self._noted :]:
            token = self.records[token_id]
            self._types.add(token.type)
            held = self._equals.setdefault(token.dedup_hash, token_id)
            if held is not token_id:
                if isinstance(held, str):
                    held = self._equals[token.dedup_hash] = _Equals(held)
                held.fresh.append(token_id)
                held.live += 1
        self._noted = len(self.fresh)

    def _drop_equal(self, token: Token) -> None:
        dedup_hash = token.dedup_hash
        held = self._equals[dedup_hash]
        if isinstance(held, str):
            del self._equals[dedup_hash]
            return
        held.live -= 1
        if held.live == 0:
            del self._equals[dedup_hash]
        elif len(held.heap) + len(held.fresh) > 2 * held.live + 16:  # mostly gone: forget those
            ids = {*held.fresh, *(token_id for _, token_id in held.heap)}
            held.heap = []
            held.fresh = [each for each in ids if self._is_live(each, dedup_hash)]

    def _top(self, held: _Equals, dedup_hash: bytes) -> str:
        for token_id in held.fresh:
            if self._is_live(token_id, dedup_hash):
                heapq.heappush(held.heap, (self.records[token_id].created_at_ns, token_id))
        held.fresh.clear()
        while not self._is_live(held.heap[0][1], dedup_hash):
            heapq.heappop(held.heap)
        return held.heap[0][1]

    def _is_live(self, token_id: str, dedup_hash: bytes) -> bool:
        token = self.records.get(token_id)
        return token is not None and token.dedup_hash == dedup_hash
