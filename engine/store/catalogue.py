"""Records of one kind and owner, in order, found by id or by term. In memory, for `MemoryStore`.

It has no transaction and no lock. Order and terms are computed lazily, at the first read: adding a
record is two appends, and each record is indexed once, so a simulation that only writes never pays
for an index.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from sortedcontainers import SortedList

from engine.store.selection import Term, Union

__all__ = ["Catalogue", "Key"]

Key: TypeAlias = tuple[Any, ...]
"""The sort key of records: an instant, then the tie-breakers, the id last."""

R = TypeVar("R")


_Keys: TypeAlias = "SortedList[Key]"


class Catalogue(Generic[R]):
    """Records by id, by order and by term.

    Args:
        key_of: gives a record's place in the order; its last element is the record's id.
        terms_of: gives the terms that a record is filed under.

    `records` and `fresh` are open to the store: to add is `records[id] = record` and
    `fresh.append(id)`.
    """

    __slots__ = ("_filed", "_key_of", "_ordered", "_terms_of", "fresh", "records")

    def __init__(self, key_of: Callable[[R], Key], terms_of: Callable[[R], Iterable[Term]]) -> None:
        self.records: dict[str, R] = {}
        self.fresh: list[str] = []
        self._key_of = key_of
        self._terms_of = terms_of
        self._ordered: _Keys = SortedList()
        # A term of one record is that record's key alone: most values are held once, and a
        # sorted list each would weigh more than the records.
        self._filed: dict[Term, Key | _Keys] = {}

    def add(self, record_id: str, record: R) -> None:
        """Add a new record."""
        self.records[record_id] = record
        self.fresh.append(record_id)

    def remove(self, record_id: str) -> R:
        """Take a record out and return it."""
        if self.fresh and self.fresh[-1] == record_id:  # the usual case of an undo
            self.fresh.pop()
            return self.records.pop(record_id)
        self._settle()
        record = self.records.pop(record_id)
        key = self._key_of(record)
        self._ordered.remove(key)
        for term in self._terms_of(record):
            self._unfile(term, key)
        return record

    def page(
        self,
        unions: Sequence[Union],
        accepts: Callable[[R], bool],
        *,
        after: Key | None = None,
        before: Key | None = None,
        size: int | None = None,
    ) -> list[R]:
        """Return the accepted records between two keys in order, found by the narrowest union."""
        self._settle()
        keys = self._walk(unions, after, before)
        records = self.records
        found = (record for key in keys if accepts(record := records[key[-1]]))
        return list(islice(found, size))

    def before(self, key: Key) -> list[Key]:
        """Return the places of the records that stand before a key."""
        self._settle()
        return list(self._ordered.irange(None, key, inclusive=(True, False)))

    def first(self) -> Key | None:
        """Return the place of the first record."""
        self._settle()
        return next(self._ordered.irange(), None)

    def _walk(
        self, unions: Sequence[Union], after: Key | None, before: Key | None
    ) -> Iterator[Key]:
        if not unions:
            return self._ordered.irange(after, before, inclusive=(False, False))
        filed = [[self._filed[term] for term in union if term in self._filed] for union in unions]
        narrowest = min(filed, key=lambda found: sum(map(_width, found)))
        walks = [_between(found, after, before) for found in narrowest]
        return walks[0] if len(walks) == 1 else heapq.merge(*walks)

    def _settle(self) -> None:
        """File what was added since the last time: all of one term at once."""
        if not self.fresh:
            return
        ordered: list[Key] = []
        by_term: defaultdict[Term, list[Key]] = defaultdict(list)
        for record_id in self.fresh:
            record = self.records[record_id]
            key = self._key_of(record)
            ordered.append(key)
            for term in self._terms_of(record):
                by_term[term].append(key)
        self.fresh.clear()
        self._ordered.update(ordered)
        for term, keys in by_term.items():
            self._file(term, keys)

    def _file(self, term: Term, keys: list[Key]) -> None:
        held = self._filed.get(term)
        if held is None and len(keys) == 1:
            self._filed[term] = keys[0]
            return
        if held is None or isinstance(held, tuple):
            many: _Keys = SortedList()
            self._filed[term] = many
            if held is not None:
                many.add(held)
        else:
            many = held
        many.update(keys)

    def _unfile(self, term: Term, key: Key) -> None:
        held = self._filed[term]
        if isinstance(held, tuple):
            assert held == key, "a record was filed under a term of another"
            del self._filed[term]
            return
        held.remove(key)
        if not held:
            del self._filed[term]


def _width(held: Key | _Keys) -> int:
    return 1 if isinstance(held, tuple) else len(held)


def _between(held: Key | _Keys, after: Key | None, before: Key | None) -> Iterator[Key]:
    if isinstance(held, tuple):
        inside = (after is None or held > after) and (before is None or held < before)
        return iter((held,) if inside else ())
    return held.irange(after, before, inclusive=(False, False))
