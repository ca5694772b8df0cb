"""The tokens of one tenant in memory: a catalogue that also knows the oldest of equal tokens."""

from __future__ import annotations

import heapq

from engine.model import Token
from engine.store.catalogue import Catalogue, Key
from engine.store.selection import token_terms

__all__ = ["TokenShelf"]


class _Equals:
    """Tokens of one hash, oldest first; those that went are skipped when they come up.

    What was added stays in `fresh` until somebody asks for the oldest.
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

    `equals` is open to the store: a hash of one token maps to its id, and a second token of that
    hash is told to `add_equal`. `types` holds every token type that ever occurred.
    """

    __slots__ = ("equals", "types")

    def __init__(self) -> None:
        super().__init__(_key_of, token_terms)
        self.equals: dict[bytes, str | _Equals] = {}
        self.types: set[str] = set()

    def oldest(self, dedup_hash: bytes) -> Token | None:
        """Return the oldest (created_at_ns, id) token of that hash."""
        held = self.equals.get(dedup_hash)
        if held is None:
            return None
        if isinstance(held, str):
            return self.records[held]
        return self.records[self._top(held, dedup_hash)]

    def put(self, token: Token) -> None:
        """Add a token, or bring one back."""
        self.add(token.id, token)
        self.types.add(token.type)
        if self.equals.setdefault(token.dedup_hash, token.id) is not token.id:
            self.add_equal(token)

    def add_equal(self, token: Token) -> None:
        """Note a further token of a hash that another one has already."""
        held = self.equals[token.dedup_hash]
        if isinstance(held, str):
            held = self.equals[token.dedup_hash] = _Equals(held)
        held.fresh.append(token.id)
        held.live += 1

    def drop(self, token_id: str) -> Token:
        """Take a token out and return it."""
        token = self.remove(token_id)
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

    def _drop_equal(self, token: Token) -> None:
        dedup_hash = token.dedup_hash
        held = self.equals[dedup_hash]
        if isinstance(held, str):
            del self.equals[dedup_hash]
            return
        held.live -= 1
        if held.live == 0:
            del self.equals[dedup_hash]
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
