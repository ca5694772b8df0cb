"""`Table`: records by id, in order, and by the terms of `engine.store.selection`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias

from sortedcontainers import SortedList

from engine.model import Intent, KeptAnswer, LogEntry, Token
from engine.store.protocol import (
    UNCACHED,
    Cursor,
    Document,
    cursor_place,
    owner_of,
    unique_names,
)
from engine.store.selection import Term, Union, log_terms, token_terms

_MAX_SORTED: Final = 1_000
"""A page sorts so many records of a term; of more, it walks through all records in order."""

Place: TypeAlias = tuple[Any, ...]
"""A record's place in the order: its instant, what breaks ties, its id."""


class Table:
    """Records by id, in order and by term; the latter two are made at the first read.

    kind: of the records. A log entry is stored as (number of its arrival, entry).
    """

    __slots__ = ("_by_term", "_gone", "_order", "_place", "_terms", "fresh", "is_cached", "records")

    def __init__(self, kind: type) -> None:
        self.records: dict[str, Any] = {}
        self.fresh: list[str] = []
        self.is_cached = kind in _DOCUMENTS - UNCACHED
        self._order: SortedList[Place] = SortedList()
        self._by_term: dict[Term, set[str]] = {}
        self._place: Callable[[Any], Place] = _log_place if kind is LogEntry else _place
        self._gone = _log_gone if kind is LogEntry else _gone
        self._terms = _TERMS.get(kind, _document_terms)

    def swap(self, record_id: str, new: object) -> Any:  # noqa: ANN401 # reason: a record
        """Put a record, or None for nothing, in the place of another one, which is returned."""
        old = self.records.get(record_id)
        if old is not None:
            if self.fresh and self.fresh[-1] == record_id:  # the usual case of a rollback
                self.fresh.pop()
            else:
                self._index()
                self._order.remove(self._place(old))
                for term in self._terms(old):
                    self._by_term[term].discard(record_id)
                    if not self._by_term[term]:
                        del self._by_term[term]
            del self.records[record_id]
        if new is not None:
            self.records[record_id] = new
            self.fresh.append(record_id)
        return old

    def page(
        self,
        unions: Sequence[Union] = (),
        accepts: Callable[[Any], bool] = lambda _: True,
        *,
        after: Cursor | None = None,
        from_ns: int | None = None,
        before_ns: int | None = None,
        size: int | None = None,
    ) -> list[Any]:
        """Return the accepted records after a cursor and between two instants, in order."""
        self._index()
        first: Place = () if from_ns is None else (from_ns,)
        if after is not None:
            at_ns, record_id = cursor_place(after)
            known = self.records.get(record_id)
            if known is None and at_ns is None:
                return []
            gone = () if at_ns is None else self._gone(at_ns, record_id)
            first = max(first, gone if known is None else self._place(known))
        order = self._order
        sets = [[self._by_term.get(term, set()) for term in union] for union in unions]
        narrowest = min(sets, key=lambda parts: sum(map(len, parts)), default=None)
        if narrowest is not None and sum(map(len, narrowest)) <= _MAX_SORTED:
            records = (self.records[record_id] for record_id in set().union(*narrowest))
            order = SortedList(map(self._place, records))
        last = None if before_ns is None else (before_ns,)
        places = order.irange(first or None, last, inclusive=(False, False))
        return list(islice(filter(accepts, (self.records[place[-1]] for place in places)), size))

    def of_term(self, term: Term) -> list[Any]:
        """Return the records of a term in order."""
        self._index()
        return sorted(map(self.records.__getitem__, self._by_term.get(term, ())), key=self._place)

    def _index(self) -> None:
        for record_id in self.fresh:
            record = self.records[record_id]
            self._order.add(self._place(record))
            for term in self._terms(record):
                self._by_term.setdefault(term, set()).add(record_id)
        self.fresh.clear()


def _place(record: Token | Document) -> Place:
    return (record.created_at_ns, record.id)


def _log_place(arrived: tuple[int, LogEntry]) -> Place:
    return (arrived[1].at_ns, arrived[0], arrived[1].id)


def _gone(at_ns: int, record_id: str) -> Place:
    """Return the place of a record that was deleted, as its cursor tells it."""
    return (at_ns, record_id)


def _log_gone(at_ns: int, _: str) -> Place:
    return (at_ns + 1,)  # an entry that expired did so with all of its instant


def until_ns_of(record: object) -> int | None:
    """Return when a record, or its cvc, expires."""
    if isinstance(record, Token):
        return record.cvc_until_ns
    return record.until_ns if isinstance(record, Intent | KeptAnswer) else None


def _document_terms(record: Document) -> list[Term]:
    """Return what a document is looked up by, besides its id."""
    entity_ids = record.entity_ids if isinstance(record, KeptAnswer) else ()
    return [owned_by(owner_of(record)), *unique_names(record), *map(shows, entity_ids)]


def owned_by(tenant_id: str) -> Term:
    """Return the term of a tenant's documents."""
    return b"o" + tenant_id.encode("utf-8", "replace")


def shows(entity_id: str) -> Term:
    """Return the term of the kept answers that show a record."""
    return b"a" + entity_id.encode("utf-8", "replace")


def equal_to(dedup_hash: bytes) -> Term:
    """Return the term of the tokens that deduplication takes for equal."""
    return b"d" + dedup_hash


_DOCUMENTS: Final[frozenset[type]] = frozenset(Document.__args__)
_TERMS: Final[Mapping[type, Callable[[Any], Iterable[Term]]]] = {
    Token: lambda token: [*token_terms(token), equal_to(token.dedup_hash)],
    LogEntry: lambda arrived: log_terms(arrived[1]),
}
