"""`MemoryStore`: the store of simulations and tests, in dictionaries.

Not durable, for one process. A transaction is a lock and a list of what was replaced, filled by
writes and dropped at the commit. `Store` says what each method does.

A `Table` keeps records by id, in order, and by the terms of `engine.store.protocol`.
"""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import count, islice
from typing import Any, Final, TypeAlias, cast

from sortedcontainers import SortedList

from engine.errors import StoreError
from engine.model import Intent, KeptAnswer, Key, LogEntry, Proxy, Token
from engine.store.protocol import (
    UNCACHED,
    Cursor,
    D,
    Document,
    LogFilter,
    Store,
    Term,
    TokenFilter,
    Union,
    WithoutCvc,
    cursor_place,
    drop_cvc,
    log_matches,
    log_terms,
    log_unions,
    owner_of,
    token_matches,
    token_terms,
    token_unions,
    unique_names,
)

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


class MemoryStore(Store):
    """The store in memory; safe among threads, one transaction after the other."""

    persistent = False
    next_deadline_ns: int | None = None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._is_open = False
        self._undo: list[tuple[Any, ...]] | None = None
        self.documents_version = 0
        self.next_deadline_ns = None
        self._tables: dict[tuple[type, str], Table] = {}
        self._arrivals = count()
        self._deadlines: list[tuple[int, int, Table, str]] = []
        self._secrets: dict[str, bytes] = {}
        self._work: dict[str, LogEntry] = {}

    def _table(self, kind: type, tenant_id: str = "") -> Table:
        """Return a table: a tenant's tokens or log entries, or all documents of a kind."""
        assert self._is_open, "a read must stand in a transaction"
        name = kind, tenant_id
        return self._tables.get(name) or self._tables.setdefault(name, Table(kind))

    def begin(self, *, write: bool = True) -> None:
        self._lock.acquire()
        if self._is_open:
            self._lock.release()
            raise AssertionError("a transaction is open in this thread; they do not nest")
        self._is_open, self._undo = True, [] if write else None

    def commit(self) -> None:
        assert self._is_open, "no transaction is open"
        self._is_open, self._undo = False, None
        self._lock.release()

    def rollback(self) -> None:
        assert self._is_open, "no transaction is open"
        for step, *arguments in reversed(self._undo or []):
            step(*arguments)
        self.commit()

    def close(self) -> None:
        with self._lock:
            assert not self._is_open, "a transaction is open"
            self.__init__()  # type: ignore[misc]  # reason: an empty store, which nobody uses

    def _set(self, table: Table, record_id: str, new: object) -> Any:  # noqa: ANN401 # reason: a record
        self._note(self._swap, table, record_id, table.records.get(record_id))
        return self._swap(table, record_id, new)

    def _add(self, table: Table, record_id: str, new: object) -> None:
        if record_id in table.records:
            raise StoreError("the id of a new record must be its own; it is taken")
        assert self._undo is not None, "a write must stand in a transaction that writes"
        self._undo.append((self._swap, table, record_id, None))
        table.records[record_id] = new
        table.fresh.append(record_id)

    def _expires(self, until_ns: int | None, table: Table, record_id: str) -> None:
        if until_ns is not None:
            heapq.heappush(self._deadlines, (until_ns, next(self._arrivals), table, record_id))
            self.next_deadline_ns = self._deadlines[0][0]

    def _swap(self, table: Table, record_id: str, new: object) -> Any:  # noqa: ANN401 # reason: a record
        if table.is_cached:
            self.documents_version += 1  # before the change: no cache takes old data for new
        self._expires(until_ns_of(new), table, record_id)
        old = table.swap(record_id, new)
        self._drop_deadlines()
        return old

    def _drop_deadlines(self) -> None:
        """Drop the first deadlines while their records are gone or have another one."""
        while self._deadlines:
            until_ns, _, table, record_id = self._deadlines[0]
            if until_ns_of(table.records.get(record_id)) == until_ns:
                self.next_deadline_ns = until_ns
                return
            heapq.heappop(self._deadlines)
        self.next_deadline_ns = None

    def _note(self, *step: Any) -> None:  # noqa: ANN401 # reason: a function and its arguments
        assert self._undo is not None, "a write must stand in a transaction that writes"
        self._undo.append(step)

    def put(self, record: Document) -> None:
        table = self._table(type(record))
        holders = [holder for name in unique_names(record) for holder in table.of_term(name)]
        if any(holder.id != record.id for holder in holders):
            raise StoreError("a name of a record must be its own; it is taken")
        self._set(table, record.id, record)

    def get(self, kind: type[D], record_id: str) -> D | None:
        return cast("D | None", self._table(kind).records.get(record_id))

    def delete(self, kind: type[D], record_id: str) -> bool:
        return self._delete(self._table(kind), record_id)

    def _delete(self, table: Table, record_id: str) -> bool:
        answers = self._table(KeptAnswer)
        for answer in answers.of_term(shows(record_id)):
            self._set(answers, answer.id, None)
        return self._set(table, record_id, None) is not None

    def list(
        self, kind: type[D], tenant_id: str, *, after: Cursor | None = None, size: int | None = None
    ) -> Sequence[D]:
        unions, table = [[owned_by(tenant_id)]], self._table(kind)
        return table.page(
            unions, lambda record: owner_of(record) == tenant_id, after=after, size=size
        )

    def _named(self, name: bytes) -> Document | None:
        return next((r for kind in (Key, Proxy) for r in self._table(kind).of_term(name)), None)

    def add_tokens(self, tokens: Sequence[Token]) -> None:
        for token in tokens:
            table = self._table(Token, token.tenant_id)
            self._add(table, token.id, token)
            if token.cvc_until_ns is not None:
                self._expires(token.cvc_until_ns, table, token.id)

    def token(self, tenant_id: str, token_id: str) -> Token | None:
        return cast("Token | None", self._table(Token, tenant_id).records.get(token_id))

    def duplicate(self, tenant_id: str, dedup_hash: bytes) -> Token | None:
        return next(iter(self._table(Token, tenant_id).of_term(equal_to(dedup_hash))), None)

    def update_token(self, token: Token) -> None:
        table = self._table(Token, token.tenant_id)
        if token.id not in table.records:
            raise StoreError("a token that is updated must exist; it does not")
        self._set(table, token.id, token)

    def delete_token(self, tenant_id: str, token_id: str) -> bool:
        return self._delete(self._table(Token, tenant_id), token_id)

    def find_tokens(
        self,
        tenant_id: str,
        chosen: TokenFilter,
        *,
        after: Cursor | None = None,
        size: int,
        has_data: bool = True,  # noqa: ARG002 # reason: to leave data out would cost more
    ) -> Sequence[Token]:
        accepts = partial(token_matches, chosen=chosen)
        table = self._table(Token, tenant_id)
        return table.page(token_unions(chosen), accepts, after=after, size=size)

    def count_tokens(self, tenant_id: str) -> int:
        return len(self._table(Token, tenant_id).records)

    def add_log(self, entry: LogEntry) -> None:
        table = self._table(LogEntry, entry.tenant_id)
        self._add(table, entry.id, (next(self._arrivals), entry))

    def find_logs(
        self, tenant_id: str, chosen: LogFilter, *, after: Cursor | None = None, size: int
    ) -> Sequence[LogEntry]:
        arrived = self._table(LogEntry, tenant_id).page(
            log_unions(chosen),
            lambda arrived: log_matches(arrived[1], chosen),
            after=after,
            from_ns=chosen.from_ns,
            before_ns=chosen.before_ns,
            size=size,
        )
        return [entry for _, entry in arrived]

    def expire_logs(self, tenant_id: str, before_ns: int, *, size: int | None = None) -> int:
        table = self._table(LogEntry, tenant_id)
        old = table.page(before_ns=before_ns, size=size)
        for _, entry in old:
            self._set(table, entry.id, None)
        return len(old)

    def expire(
        self, now_ns: int, without_cvc: WithoutCvc = drop_cvc, *, size: int | None = None
    ) -> int:
        assert self._undo is not None, "a write must stand in a transaction that writes"
        erased = 0
        while self._deadlines and (size is None or erased < size):
            until_ns, _, table, record_id = self._deadlines[0]
            if until_ns > now_ns:
                break
            record = table.records[record_id]
            self._set(table, record_id, without_cvc(record) if type(record) is Token else None)
            erased += 1
        return erased

    def put_secret(self, name: str, wrapped: bytes) -> None:
        self._note(_put, self._secrets, name, self._secrets.get(name))
        self._secrets[name] = wrapped

    def secrets(self) -> Mapping[str, bytes]:
        assert self._is_open, "a read must stand in a transaction"
        return self._secrets

    def open_work(self, entry: LogEntry) -> None:
        if entry.id in self._work:
            raise StoreError("the id of new work must be its own; it is taken")
        self._note(_put, self._work, entry.id, None)
        self._work[entry.id] = entry

    def close_work(self, work_id: str) -> None:
        self._note(_put, self._work, work_id, self._work.pop(work_id, None))

    def unfinished_work(self) -> Sequence[LogEntry]:
        assert self._is_open, "a read must stand in a transaction"
        return sorted(self._work.values(), key=lambda entry: (entry.at_ns, entry.id))


def _put(held: dict[str, Any], name: str, value: object) -> None:
    if value is None:
        held.pop(name, None)
    else:
        held[name] = value
