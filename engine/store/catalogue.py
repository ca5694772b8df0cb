"""Records of one kind and owner, in order, found by id or by term. In memory, for `MemoryStore`.

It has no transaction and no lock. Order and terms are computed lazily, at the first read: adding a
record is two appends, and each record is indexed once, so a simulation that only writes never pays
for an index.

`DocumentShelf` holds records by class and id, in order by tenant, and by name where unique;
`LogShelf` the log entries of one tenant, in order of (at_ns, arrival); `TokenShelf` the tokens of
one tenant, and the oldest of equal ones.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Generic, TypeAlias, TypeVar

from sortedcontainers import SortedList

from engine.errors import StoreError
from engine.model import Key, LogEntry, Proxy, Tenant, Token
from engine.store.protocol import Document, LogFilter, cursor_place
from engine.store.selection import Term, Union, log_matches, log_terms, log_unions, token_terms

SortKey: TypeAlias = tuple[Any, ...]
"""The sort key of records: an instant, then the tie-breakers, the id last."""

R = TypeVar("R")


_SortKeys: TypeAlias = "SortedList[SortKey]"
_Filed: TypeAlias = "dict[Term, SortKey | SortedList[SortKey]]"
"""The records filed under each term. Of one record, its key alone: most values are held once, and a
sorted list each would weigh more than the records."""


class Catalogue(Generic[R]):
    """Records by id, by order and by term.

    Args:
        key_of: gives a record's place in the order; its last element is the record's id.
        terms_of: gives the terms that a record is filed under.

    `records` and `fresh` are open to the store: to add is `records[id] = record` and
    `fresh.append(id)`.
    """

    __slots__ = ("_filed", "_key_of", "_ordered", "_terms_of", "fresh", "records")

    def __init__(
        self, key_of: Callable[[R], SortKey], terms_of: Callable[[R], Iterable[Term]]
    ) -> None:
        self.records: dict[str, R] = {}
        self.fresh: list[str] = []
        self._key_of = key_of
        self._terms_of = terms_of
        self._ordered: _SortKeys = SortedList()
        self._filed: _Filed = {}

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
            _unfile(self._filed, term, key)
        return record

    def page(
        self,
        unions: Sequence[Union],
        accepts: Callable[[R], bool],
        *,
        after: SortKey | None = None,
        before: SortKey | None = None,
        size: int | None = None,
    ) -> list[R]:
        """Return the accepted records between two keys in order, found by the narrowest union."""
        self._settle()
        keys = self._walk(unions, after, before)
        records = self.records
        found = (record for key in keys if accepts(record := records[key[-1]]))
        return list(islice(found, size))

    def before(self, key: SortKey) -> list[SortKey]:
        """Return the places of the records that stand before a key."""
        self._settle()
        return list(self._ordered.irange(None, key, inclusive=(True, False)))

    def first(self) -> SortKey | None:
        """Return the place of the first record."""
        self._settle()
        return next(self._ordered.irange(), None)

    def _walk(
        self, unions: Sequence[Union], after: SortKey | None, before: SortKey | None
    ) -> Iterator[SortKey]:
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
        ordered: list[SortKey] = []
        by_term: defaultdict[Term, list[SortKey]] = defaultdict(list)
        for record_id in self.fresh:
            record = self.records[record_id]
            key = self._key_of(record)
            ordered.append(key)
            for term in self._terms_of(record):
                by_term[term].append(key)
        self.fresh.clear()
        self._ordered.update(ordered)
        for term, keys in by_term.items():
            _file(self._filed, term, keys)


def _file(filed: _Filed, term: Term, keys: list[SortKey]) -> None:
    held = filed.get(term)
    if held is None and len(keys) == 1:
        filed[term] = keys[0]
        return
    if held is None or isinstance(held, tuple):
        many: _SortKeys = SortedList()
        filed[term] = many
        if held is not None:
            many.add(held)
    else:
        many = held
    many.update(keys)


def _unfile(filed: _Filed, term: Term, key: SortKey) -> None:
    held = filed[term]
    if isinstance(held, tuple):
        assert held == key, "a record was filed under a term of another"
        del filed[term]
        return
    held.remove(key)
    if not held:
        del filed[term]


def _width(held: SortKey | _SortKeys) -> int:
    return 1 if isinstance(held, tuple) else len(held)


def _between(
    held: SortKey | _SortKeys, after: SortKey | None, before: SortKey | None
) -> Iterator[SortKey]:
    if isinstance(held, tuple):
        inside = (after is None or held > after) and (before is None or held < before)
        return iter((held,) if inside else ())
    return held.irange(after, before, inclusive=(False, False))


Name = tuple[str, str | bytes]
"""A unique name of a record besides its id: the kind of name, and the name."""


def _place_of(record: Document) -> SortKey:
    return (record.created_at_ns, record.id)


def _no_terms(_record: Document) -> tuple[Term, ...]:
    return ()


def _owner(record: Document) -> str:
    return "" if isinstance(record, Tenant) else record.tenant_id


def _names(record: Document) -> list[Name]:
    if isinstance(record, Key):
        return [("key hash", record.text_hash)]
    if isinstance(record, Proxy):
        own: Name = ("proxy-key hash", record.key_hash)
        return [own] if record.host is None else [own, ("hostname", record.host)]
    return []


class DocumentShelf:
    """All documents of a store. `named` and `listed` are open to the store, for look-ups.

    `listed` has a tenant's records of a class, in order; tenants are listed under the id "".
    """

    __slots__ = ("_held", "listed", "named")

    def __init__(self) -> None:
        self._held: defaultdict[type, dict[str, Document]] = defaultdict(dict)
        self.listed: defaultdict[tuple[type, str], Catalogue[Document]] = defaultdict(
            lambda: Catalogue(_place_of, _no_terms)
        )
        self.named: dict[Name, Document] = {}

    def get(self, kind: type, record_id: str) -> Document | None:
        """Return the record of that class and id."""
        return self._held[kind].get(record_id)

    def check_names(self, record: Document) -> None:
        """Raise `StoreError` when another record has a name of this one."""
        for name in _names(record):
            other = self.named.get(name)
            if other is not None and other.id != record.id:
                raise StoreError(f"the {name[0]} of a record must be its own; it is taken")

    def swap(self, kind: type, record_id: str, new: Document | None) -> Document | None:
        """Put `new`, or nothing, in the place of a record, which is returned."""
        held = self._held[kind]
        old = held.pop(record_id, None)
        if old is not None:
            self.listed[kind, _owner(old)].remove(record_id)
            for name in _names(old):
                del self.named[name]
        if new is not None:
            held[record_id] = new
            self.listed[kind, _owner(new)].add(record_id, new)
            for name in _names(new):
                self.named[name] = new
        return old

    def tenant(self, tenant_id: str) -> Sequence[Document]:
        """Return the one tenant of that id, as a list."""
        own = self._held[Tenant].get(tenant_id)
        return [] if own is None else [own]


Numbered: TypeAlias = tuple[int, LogEntry]
"""An entry with the number of its arrival."""


def _log_key(numbered: Numbered) -> SortKey:
    arrival, entry = numbered
    return (entry.at_ns, arrival, entry.id)


def _log_terms(numbered: Numbered) -> list[Term]:
    return log_terms(numbered[1])


class LogShelf(Catalogue[Numbered]):
    """Log entries in order, and indexed by their terms.

    `arrivals` counts the entries that ever arrived; it is open to the store, which numbers them.
    """

    __slots__ = ("_earliest_ns", "arrivals")

    def __init__(self) -> None:
        super().__init__(_log_key, _log_terms)
        self.arrivals = 0
        self._earliest_ns: int | None = None  # at or before every entry; None: there is none

    def put(self, numbered: Numbered) -> None:
        """Add a new entry, or bring one back."""
        entry = numbered[1]
        entry_id, at_ns = entry.id, entry.at_ns
        self.records[entry_id] = numbered
        self.fresh.append(entry_id)
        if self._earliest_ns is None or at_ns < self._earliest_ns:
            self._earliest_ns = at_ns

    def find(self, chosen: LogFilter, after: str | None, size: int) -> Sequence[LogEntry]:
        """Return at most `size` chosen entries in order, after a cursor."""
        place: SortKey | None = None
        if after is not None:
            at_ns, entry_id = cursor_place(after)
            known = self.records.get(entry_id)
            if known is not None:
                place = _log_key(known)
            elif at_ns is not None:  # it expired, and with it all entries of its instant
                place = (at_ns + 1,)
            else:
                return []
        if chosen.from_ns is not None:
            place = max(place or (), (chosen.from_ns,))
        found = self.page(
            log_unions(chosen),
            lambda numbered: log_matches(numbered[1], chosen),
            after=place,
            before=None if chosen.before_ns is None else (chosen.before_ns,),
            size=size,
        )
        return [entry for _, entry in found]

    def expire(self, before_ns: int, size: int | None = None) -> list[Numbered]:
        """Take out and return the entries of instants before `before_ns`, `size` at most."""
        if self._earliest_ns is None or self._earliest_ns >= before_ns:
            return []
        gone = [self.remove(key[-1]) for key in self.before((before_ns,))[:size]]
        first = self.first()
        self._earliest_ns = None if first is None else first[0]
        return gone


def _token_key(token: Token) -> SortKey:
    return (token.created_at_ns, token.id)


class TokenShelf(Catalogue[Token]):
    """Tokens by id, order and term, and by deduplication hash (D-DEDUP-KEY).

    Like order and terms, hashes are indexed at the first look-up: a tenant without deduplication
    never pays for them.
    """

    __slots__ = ("_equals", "_noted", "_types")

    def __init__(self) -> None:
        super().__init__(_token_key, token_terms)
        self._equals: _Filed = {}
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
        key = held if isinstance(held, tuple) else held[0]
        return self.records[key[-1]]

    def drop(self, token_id: str) -> Token:
        """Take a token out and return it."""
        self._note()
        token = self.remove(token_id)
        self._noted = len(self.fresh)
        _unfile(self._equals, token.dedup_hash, _token_key(token))
        return token

    def swap(self, new: Token) -> Token:
        """Put a token in the place of the one of its id, which is returned."""
        old = self.records[new.id]
        assert old.created_at_ns == new.created_at_ns, "a token's creation never changes"
        if old.dedup_hash == new.dedup_hash and token_terms(old) == token_terms(new):
            self.records[new.id] = new
            return old
        self.drop(new.id)
        self.add(new.id, new)
        return old

    def _settle(self) -> None:
        self._note()
        super()._settle()
        self._noted = 0

    def _note(self) -> None:
        """Note hash and type of what was added since the last time."""
        for token_id in self.fresh[self._noted :]:
            token = self.records[token_id]
            self._types.add(token.type)
            _file(self._equals, token.dedup_hash, [_token_key(token)])
        self._noted = len(self.fresh)
